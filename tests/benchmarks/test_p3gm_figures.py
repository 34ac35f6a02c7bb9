"""The figures of P3GM's paper and the models of its tables: what is fitted is what their names say."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from benchmarks import BENCHMARKS, figures, images, published
from benchmarks.checkpoints import checkpoint_benchmark
from benchmarks.figures import components_benchmark, split_benchmark
from benchmarks.models import BASELINES, MODELS, find_model
from skdpgen import DPSGD, datasets
from skdpgen.synthesizers._p3gm import paper_settings

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
ONE = {"logistic_regression": LogisticRegression(max_iter=1000)}


@pytest.fixture
def small_table(monkeypatch):
    bunch = datasets.load_breast_cancer_table()
    for name in ("load_creditcard_subset", "load_adult"):
        monkeypatch.setattr(datasets, name, lambda data_dir=None: Bunch(**bunch))
    for where in ("skdpgen.metrics._tstr", "benchmarks.tables"):
        monkeypatch.setattr(f"{where}.protocol_classifiers", lambda: ONE)


@pytest.fixture
def small_images(monkeypatch, short_fits):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 10
    X = np.clip(rng.normal(100 + 10 * y[:, None], 20, size=(200, 784)), 0, 255).astype(np.uint8)
    bunch = Bunch(data=X, target=y, data_test=X[:50], target_test=y[:50])
    for name in ("load_mnist", "load_fashion_mnist"):
        monkeypatch.setattr(datasets, name, lambda data_dir=None: Bunch(**bunch))
    return bunch


def test_named_settings_make_what_their_names_say():
    made = {name: find_model(name).make("esr", epsilon=1.0, bounds=(0, 1)) for name in BASELINES[1:]}
    assert made["P3GM(AE)"].training.net.get_params()["module__latent_variance"] == "zero"
    assert made["P3GM(AE)"].decoder == "net"
    assert made["P3GM(paper)"].preset == made["PGM"].preset == "paper/esr"
    assert [name for name, model in made.items() if math.isinf(model.epsilon)] == ["PGM", "VAE"]
    assert all(model.bounds == (0, 1) for model in made.values())
    assert {type(made[name]).__name__ for name in ("VAE", "DPVAESynthesizer")} == {"DPVAESynthesizer"}


def test_a_device_is_given_to_models_that_train_a_net_alone():
    assert find_model("P3GM(net)").make("esr", epsilon=1.0, device="cuda").training.device == "cuda"
    assert find_model("P3GMSynthesizer").make("esr", epsilon=1.0, device="cuda").training is None
    assert not hasattr(find_model("MomentSynthesizer").make("esr", epsilon=1.0, device="cuda"), "device")


def test_what_a_class_does_not_take_is_left_out_and_an_unknown_model_is_refused():
    model = find_model("DPMERFSynthesizer").make("mnist", epsilon=1.0, image_shape=(28, 28), classes=None, l2_bound=2.0)
    assert model.l2_bound == 2.0
    with pytest.raises(ValueError, match=r"P3GM\(AE\)"):
        find_model("P3GM(XL)")
    assert set(MODELS) >= {"P3GM(net)", "P3GM(AE)", "P3GM(paper)", "PGM", "VAE"}


def test_published_numbers_stand_beside_both_of_our_p3gms():
    for name in ("P3GMSynthesizer", "P3GM(paper)"):
        assert published.TABLE_6["isolet", name] == {"auroc": 0.7498, "auprc": 0.3950}
        assert published.TABLE_5[name,]["classifiers.xgboost.auprc"] == 0.6218
        assert published.TABLE_7["fashion_mnist", name] == {"accuracy": 0.7485}
        assert published.TABLE_8["credit", name] == {"two_way_tvd": 0.2411}
    assert published.TABLE_6["esr", "Ryan's, published"] == {"auroc": 0.5757, "auprc": 0.4265}
    assert len(published.TABLE_6) == 4 * 6


@pytest.mark.parametrize("model", ["P3GM(AE)", "DPVAESynthesizer"])
def test_checkpoints_are_of_the_steps_asked_for_and_the_last_is_the_model(small_table, model, monkeypatch):
    kept = []

    def fit(*arguments):
        kept.append(original(*arguments))
        return kept[-1]

    from benchmarks import checkpoints

    monkeypatch.setattr("skdpgen.DPSGD", functools.partial(DPSGD, warm_start_steps=2))
    original = checkpoints._fit
    monkeypatch.setattr(checkpoints, "_fit", fit)
    results = list(checkpoint_benchmark("credit", (model,), steps=6, shares=(0.5, 1.0)))
    assert [(result["step"], result["share"]) for result in results] == [(3, 0.5), (6, 1.0)]
    assert all(0.9 < result["epsilon"] <= 1.0 for result in results)
    assert all(result["error"] > 0 and 0 <= result["auroc"] <= 1 for result in results)
    synthesizer, recorder = kept[0]
    first, last = (
        np.concatenate([value.ravel() for value in recorder.states[step].values()]) for step in recorder.states
    )
    assert not np.array_equal(first, last)
    module = getattr(synthesizer.model_, "generator", synthesizer.model_).module
    for name, value in module.state_dict().items():
        np.testing.assert_array_equal(value, recorder.states[6][name])


def test_the_split_of_the_budget_and_the_dimensions_are_those_of_the_cell(small_table, small_images, monkeypatch):
    made = []
    original = type(find_model("P3GM(net)")).make

    def make(self, *arguments, **parameters):
        made.append(original(self, *arguments, **parameters))
        net = made[-1].decoder == "net"
        return made[-1].set_params(training=DPSGD(3, warm_start_steps=2)) if net else made[-1]

    monkeypatch.setattr(type(find_model("P3GM(net)")), "make", make)
    (split,) = split_benchmark(shares=(0.3,), seeds=(0,), rows=300)
    assert split["encoder_share"] == 0.3
    assert made[0].budget_split == {"encoder": 0.3, "mixture": 0.0, "decoder": 0.7}
    (found,) = components_benchmark("mnist", ("P3GMSynthesizer",), (3,), n_samples=60, epochs=1)
    assert found["n_components"] == made[1].n_components == 3
    assert 0.9 < found["epsilon"] <= 1.0


@pytest.mark.parametrize("name", ["P3GM(paper)", "PGM"])
def test_a_sweep_replaces_what_the_preset_sets_and_nothing_else(name, monkeypatch):
    swept = []

    def judge(of, models, *rest, **options):
        swept.append((of, models[0]))
        return [{}]

    for function in ("table_benchmark", "image_benchmark"):
        monkeypatch.setattr(figures, function, judge)
    list(split_benchmark("adult", (name,), (0.3,)))
    list(components_benchmark("mnist", (name,), (7,)))
    for (data, model), parameter in zip(swept, ("budget_split", "n_components")):
        made, preset = model.make(data, epsilon=1.0), find_model(name).make(data, epsilon=1.0)
        assert made.epsilon == preset.epsilon
        ours, papers = (one._resolve(presets=paper_settings) for one in (made, preset))
        different = {key for key in ours if repr(ours[key]) != repr(papers[key])}
        assert different == {"preset", parameter}
    encoder, mixture, decoder = swept[0][1].settings["budget_split"].values()
    papers = paper_settings("paper/adult")["budget_split"]
    assert encoder == 0.3
    assert encoder + mixture + decoder == pytest.approx(1.0)
    assert mixture / decoder == pytest.approx(papers["mixture"] / papers["decoder"])
    assert swept[1][1].settings["n_components"] == 7


def test_what_has_no_place_on_the_axis_is_a_dashed_line(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **options: saved.append(self))
    ours = [{"data": "credit", "model": "a", "epsilon_asked": x, "auroc": 0.6} for x in (1.0, 2.0)]
    real = [{"data": "credit", "model": "real data", "epsilon_asked": None, "auroc": value} for value in (0.8, 0.9)]
    BENCHMARKS["figure4"].draw_figure([*ours, *real], tmp_path / "figure.png")
    (panel,) = saved[0].axes
    (dashed,) = [line for line in panel.lines if line.get_linestyle() == "--"]
    assert dashed.get_ydata()[0] == pytest.approx(0.85)
    assert sorted(panel.get_legend_handles_labels()[1]) == ["a", "real data"]


def test_sample_grids_are_read_as_they_were_written_and_drawn(small_images, tmp_path):
    real, ours = images.sample_benchmark(models=("real data", "P3GMSynthesizer"))
    grid = images.read_samples(real["samples"])
    assert grid.shape == (10, 8, 28, 28)
    np.testing.assert_array_equal(grid[3, 1].ravel(), small_images.data[13])
    assert ours["epsilon"] <= 1.0
    pytest.importorskip("matplotlib")
    images.draw_samples([real, ours], tmp_path / "grids.png")
    assert (tmp_path / "grids.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("name", ["figure4", "figure5", "figure6", "figure7", "figure8", "figure9"])
def test_each_figure_draws_every_panel_that_its_results_have(name, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    saved = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **options: saved.append(self))
    kinds = ("epsilon_pld", "epsilon_rdp", "epsilon_paper", "epsilon_baseline")
    results = [
        {
            "data": "mnist", "model": model, "epsilon_asked": x, "n_components": x, "dimension": x, "share": x,
            "encoder_share": x, "auroc": 0.5, "auprc": 0.5, "accuracy": 0.5, "error": 1.0, **dict.fromkeys(kinds, 1.0),
        }
        for model in ("a", "b")
        for x in (1, 2)
    ]  # fmt: skip
    BENCHMARKS[name].draw_figure(results, tmp_path / "figure.png")
    (figure,) = saved
    expected = {"figure4": 2, "figure5": 1, "figure6": 1, "figure7": 3, "figure8": 2, "figure9": 1}
    assert len(figure.axes) == expected[name]
    if name != "figure9":
        assert all(len(panel.containers) == 2 for panel in figure.axes)
