"""One safetensors file: released state alone, no pickle, and a model that samples on detached books."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat

import skdpgen
from skdpgen import (
    DPSGD,
    GroupDivergence,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivacyUnit,
    Schema,
    SubsetSGD,
)
from skdpgen.exceptions import DetachedAccountantError, PrivacyLeakWarning
from skdpgen.nn import DPNet, P3GMModule
from skdpgen.synthesizers._checkpoint import describe
from skdpgen.synthesizers._released import of_today, recorded_parameters
from skdpgen.tabular import Categorical, Numeric

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
]

RNG = np.random.default_rng(9)
N = 311
X = RNG.uniform(-1, 1, (N, 4))
Y = np.array(["no", "yes"])[RNG.integers(0, 2, N)]
RARE = "only one person lives in Nowhere-upon-Sea"
FRAME = pd.DataFrame({"pay": RNG.normal(50, 9, N), "town": np.where(X[:, 0] > 0, "north", "south"), "ill": Y == "yes"})
FRAME.loc[5, "town"] = RARE
NET = {
    "decoder": "net",
    "steps": 3,
    "warm_start_steps": 2,
    "sampling_rate": 0.05,
    "net": DPNet(P3GMModule, module__n_hidden=4),
}
MODELS = {
    "array": ({}, (X,)),
    "array, y": ({"bounds": (-1, 1)}, (X, Y)),
    "array, series": ({"bounds": (-1, 1)}, (X, pd.Series(Y, name="answer"))),
    "array, numbers": ({"bounds": (-1, 1)}, (X, X[:, 0])),
    "array, mixture": ({"prior": LatentMixture(n_iter=2)}, (X, Y)),
    "array, net": (NET, (X, Y)),
    "rows": ({"image_shape": (2, 2), "bounds": (-1, 1)}, (X, Y)),
    "frame": ({}, (FRAME,)),
    "frame, target": ({"target": "town", "neighboring": "replace_one"}, (FRAME,)),
    "frame, y": ({}, (FRAME, pd.Series(Y, name=4))),
    "frame, mixture": ({"prior": LatentMixture(covariance_type="diag", n_iter=2)}, (FRAME,)),
    "frame, net": ({**NET, "target": "ill"}, (FRAME,)),
    "numbered columns": ({}, (FRAME.set_axis(range(3), axis=1),)),
}


@pytest.mark.parametrize(("parameters", "data"), MODELS.values(), ids=MODELS)
def test_a_loaded_model_samples_as_the_fitted_one(tmp_path, parameters, data):
    synth = make_flat(P3GMSynthesizer, epsilon=2.0, **parameters).fit(*data)
    synth.save(tmp_path / "model.safetensors")
    again = skdpgen.load(tmp_path / "model.safetensors")
    one, other = (s.sample(40, random_state=0) for s in (synth, again))
    for a, b in zip(*((pair if isinstance(pair, tuple) else (pair,)) for pair in (one, other))):
        assert type(a) is type(b)
        if isinstance(a, pd.DataFrame):
            pd.testing.assert_frame_equal(a, b)
        elif isinstance(a, pd.Series):
            pd.testing.assert_series_equal(a, b)
        else:
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(synth.transform(data[0][:5]), again.transform(data[0][:5]))
    assert again.row_count_ == synth.row_count_
    assert again.card_ == synth.card_
    assert again.accountant_.detached
    assert again.accountant_.epsilon_spent() == pytest.approx(2.0, rel=1e-3)
    assert getattr(again, "feature_names_in_", None) is None or list(again.feature_names_in_) == list(data[0].columns)
    with pytest.raises(DetachedAccountantError):
        again.accountant_.charge(again.accountant_.charges[0].event, "more")


def test_a_loaded_model_is_fitted_anew_on_books_of_its_own(tmp_path):
    P3GMSynthesizer(epsilon=2.0, neighboring="replace_one").fit(X).save(tmp_path / "m.safetensors")
    again = skdpgen.load(tmp_path / "m.safetensors")
    assert (again.epsilon, again.neighboring) == (2.0, "replace_one")
    with pytest.warns(PrivacyLeakWarning, match="fitted before"):
        again.fit(X)
    assert not again.accountant_.detached
    assert again.accountant_.epsilon_spent() == pytest.approx(2.0, rel=1e-3)


def test_a_loaded_model_keeps_the_parameters_of_its_fit(tmp_path):
    schema = Schema([Numeric("pay", (0, 100)), Categorical("town")])
    parameters = {"epsilon": 3.0, "target": "town", "schema": schema, "random_state": 3, "noise": "fast"}
    parameters["importance"] = {"pay": 2.0}
    frame = FRAME[["pay", "town"]]
    fitted = MomentSynthesizer(**parameters).fit(frame)
    fitted.save(tmp_path / "m.safetensors")
    again = skdpgen.load(tmp_path / "m.safetensors")
    changed = {k for k, v in again.get_params().items() if v != fitted.get_params()[k]}
    assert changed <= {"schema", "random_state", "delta", "neighboring", "noise"}
    assert again.noise == "secure"  # a file does not choose the source of the noise
    assert again.schema == again.schema_ == fitted.schema_
    assert again.schema_.complete
    assert (
        again.set_params(accountant=PrivacyAccountant(3.0)).fit(frame).card_["model"]["parameters"]["target"] == "town"
    )
    rows = make_flat(
        P3GMSynthesizer,
        bounds=[(-9, 9)] * 4,
        classes=["no", "yes"],
        budget_split={"encoder": 0.4, "decoder": 0.6},
        **NET,
    ).fit(X, Y)
    rows.save(tmp_path / "m.safetensors")
    again = skdpgen.load(tmp_path / "m.safetensors")
    assert again.budget_split == {"encoder": 0.4, "decoder": 0.6}
    np.testing.assert_array_equal(again.bounds, rows.bounds)
    np.testing.assert_array_equal(again.bounds_, [(-9, 9)] * 4)
    again.set_params(accountant=PrivacyAccountant(3.0)).fit(X, Y)


def test_the_file_holds_no_value_of_a_row(tmp_path):
    path = tmp_path / "model.safetensors"
    wide = X * [1.0, 1e3, 1e6, np.pi]
    P3GMSynthesizer(target="town").fit(FRAME).save(path)
    content = path.read_bytes()
    assert b"Nowhere" not in content
    assert b"pickle" not in content
    assert not any(value.tobytes() in content for value in FRAME["pay"].to_numpy())
    assert not any(np.float32(value).tobytes() in content for value in FRAME["pay"])
    P3GMSynthesizer().fit(wide, Y).save(path)
    content = path.read_bytes()
    for dtype in (np.float64, np.float32):
        assert not any(value.tobytes() in content for value in wide.astype(dtype).ravel())
    # the exact number of rows is private, and in no figure of the header
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert N not in _numbers(json.loads(header["__metadata__"]["skdpgen"])["state"])


def _numbers(value):
    if isinstance(value, dict | list):
        return [n for item in (value.values() if isinstance(value, dict) else value) for n in _numbers(item)]
    return [value] if isinstance(value, int | float) else []


def test_declared_facts_are_in_the_file(tmp_path):
    schema = Schema([Numeric("pay", (0, 100)), Categorical("town", ("north", "south", RARE))])
    synth = P3GMSynthesizer(schema=schema).fit(FRAME[["pay", "town"]])
    synth.save(tmp_path / "m.safetensors")
    assert skdpgen.load(tmp_path / "m.safetensors").model_.codec.encoder.schema_["pay"].bounds == (0, 100)


def test_the_elbo_of_a_net_needs_what_is_not_in_the_file(tmp_path):
    make_flat(P3GMSynthesizer, **NET).fit(X).save(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="encoder variance"):
        skdpgen.load(tmp_path / "m.safetensors").score(X)


def test_save_needs_a_fit_and_the_right_ending(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        P3GMSynthesizer().save(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="ends in"):
        P3GMSynthesizer().fit(X).save(tmp_path / "m.pkl")


def test_a_file_that_is_no_model_is_refused(tmp_path):
    from safetensors.numpy import save

    path = tmp_path / "m.safetensors"
    P3GMSynthesizer().fit(X).save(path)
    whole = path.read_bytes()
    header = {"format": "skdpgen-model/1", "model": "P3GMSynthesizer", "version": "0", "state": {}}
    strange = [
        b"",
        b"\x00" * 5,
        whole[: len(whole) // 2],
        b"\xff" * 200,
        save({"a": np.zeros(2)}),
        save({"a": np.zeros(2)}, metadata={"skdpgen": "no JSON"}),
        save({"a": np.zeros(2)}, metadata={"skdpgen": json.dumps([1])}),
        save({"a": np.zeros(2)}, metadata={"skdpgen": json.dumps({**header, "format": "skdpgen-model/9"})}),
        save({"a": np.zeros(2)}, metadata={"skdpgen": json.dumps({**header, "model": "load"})}),
        save({"a": np.zeros(2)}, metadata={"skdpgen": json.dumps({**header, "model": "os"})}),
        save({"a": np.zeros(2)}, metadata={"skdpgen": json.dumps(header)}),
    ]
    for content in strange:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"not a model file|format|unknown model"):
            skdpgen.load(path)
    with pytest.raises(FileNotFoundError):
        skdpgen.load(tmp_path / "nothing.safetensors")


def test_a_file_whose_card_was_changed_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    P3GMSynthesizer(epsilon=2.0).fit(X).save(path)
    content = path.read_bytes()
    assert content.count(b"one row") == 1
    path.write_bytes(content.replace(b"one row", b"two row"))
    with pytest.raises(ValueError, match="changed after it was written"):
        skdpgen.load(path)


def test_as_frame_joins_rows_and_labels():
    synth = P3GMSynthesizer(bounds=(-1, 1)).fit(X, Y)
    assert list(synth.as_frame(synth.sample(3)).columns) == ["x0", "x1", "x2", "x3", "y"]
    frame = pd.DataFrame({"y": X[:, 0], "z": X[:, 1]})
    synth = P3GMSynthesizer().fit(frame, Y)
    assert list(synth.as_frame(synth.sample(3)).columns) == ["y", "z", "y_"]
    named = P3GMSynthesizer().fit(frame, pd.Series(Y, name="answer", dtype="category"))
    joined = named.as_frame(named.sample(3))
    assert list(joined.columns) == ["y", "z", "answer"]
    assert joined["answer"].dtype == "category"


def test_a_delta_that_lets_a_row_be_published_is_said():
    with pytest.warns(PrivacyLeakWarning, match="not below one row in 311") as said:
        MomentSynthesizer(delta=0.05, neighboring="replace_one").fit(FRAME)
    assert said[0].filename == __file__


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.PrivacyLeakWarning")
@pytest.mark.parametrize(("epsilon", "delta"), [(5000.0, 1e-5), (5.0, 0.2), (1e-7, 1e-5)])
def test_a_model_is_loaded_whatever_budget_its_accountant_had(epsilon, delta, tmp_path):
    """What was charged and saved is not lost to the ranges of parameters that nobody gave."""
    books = skdpgen.PrivacyAccountant(epsilon, delta)
    made = MomentSynthesizer(epsilon=None, bounds=(-1, 1), accountant=books).fit(X)
    made.save(tmp_path / "model.safetensors")
    assert skdpgen.load(tmp_path / "model.safetensors").sample(3, random_state=0).shape == (3, 4)


def test_parameters_of_earlier_files_have_the_names_of_today():
    told = {"l2_bound_sample": 0.3, "l2_bound_group": 0.1, "n_mixture": 4}
    for name, parameters, expected in (
        (
            "PriVAESynthesizer", told,
            {"training": DPSGD(gradient_bound=0.3), "divergence": GroupDivergence(gradient_bound=0.1)},
        ),
        ("DP2VAESynthesizer", {"lr": 1e-3, "chunk_size": 7}, {"training": SubsetSGD(learning_rate=1e-3)}),
        ("DPMERFSynthesizer", {"n_latent": 3}, {"n_components": 3}),
    ):  # fmt: skip
        card = {"model": {"name": name, "parameters": parameters}}
        assert repr(recorded_parameters(card, getattr(skdpgen, name))) == repr(expected)


def _recorded(name, **parameters):
    """An estimator with the parameters of a card of an earlier version."""
    made = getattr(skdpgen, name)()
    card = {"model": {"name": name, "parameters": parameters}}
    return made.set_params(**recorded_parameters(card, type(made)))


def test_trainings_of_earlier_files_are_in_the_objects_of_today():
    usual = {"sampling_rate": 0.02, "steps": 500, "batch_size": None, "epochs": None, "gradient_bound": 1.0}
    vae = {**usual, "start": "random", "start_steps": 2000, "net": "<DPNet>", "device": "cpu"}
    assert repr(_recorded("DPVAESynthesizer", **vae).training) == "DPSGD(warm_start_steps=0)"
    assert _recorded("DPVAESynthesizer", **{**vae, "start": "moments"}).training.warm_start_steps == 2000
    assert repr(_recorded("DPVAESynthesizer", **{**vae, "steps": 7}).training) == repr(DPSGD(7, warm_start_steps=0))
    term = {"alpha": None, "n_groups": 3, "group_gradient_bound": None, "aggregation": "termwise"}
    made = _recorded("PriVAESynthesizer", divergence="kl_prior", **vae, **term)
    assert repr(made.divergence) == repr(GroupDivergence("kl_prior", n_groups=3))
    assert _recorded("PriVAESynthesizer", divergence=None, **vae, **{**term, "n_groups": None}).divergence is None
    p3gm = {"steps": 9, "sampling_rate": None, "latent_variance": "zero", "warm_start_steps": None, "decoder": "net"}
    assert repr(_recorded("P3GMSynthesizer", **p3gm).training) == "DPSGD(steps=9)"
    subsets = {"n_subsets": 8, "start": "random", "start_steps": 3000, "architecture": "mlp"}
    made = _recorded("DP2VAESynthesizer", **subsets, encoder="<Linear>", decoder=None)
    assert repr(made.training) == "SubsetSGD(n_subsets=8, warm_start_steps=0)"
    assert made.architecture == "mlp"
    nested = {"training": {"steps": 3, "net": "<DPNet>", "device": "cpu"}}
    assert repr(_recorded("DPVAESynthesizer", **nested).training) == "DPSGD(device='cpu', steps=3)"
    assert _recorded("DPMERFSynthesizer", steps=3).steps == 3


def test_parameters_of_earlier_files_are_in_the_objects_of_today():
    units = {"unit_weighting": "units", "missing_unit": "refuse", "unit_columns": ["sex"]}
    made = _recorded("MomentSynthesizer", unit="pid", max_rows_per_unit=3, bounds_share=0.1, **units)
    assert repr(made.unit) == repr(PrivacyUnit("pid", 3, weighting="units", columns=["sex"]))
    assert made.max_rows_per_unit is None
    assert made.budget_split == {"bounds": 0.1}
    usual = {"unit_weighting": "rows", "missing_unit": "refuse", "unit_columns": None}
    made = _recorded("MomentSynthesizer", unit="pid", max_rows_per_unit=3, bounds_share=0.05, **usual)
    assert (made.unit, made.max_rows_per_unit, made.budget_split) == ("pid", 3, None)
    mixture = {"n_mixture": 2, "covariance_type": "diag", "em_steps": 5}
    made = _recorded("P3GMSynthesizer", prior="mixture", budget_split=[0.4, 0.0, 0.6], bounds_share=0.1, **mixture)
    assert repr(made.prior) == repr(LatentMixture(2, covariance_type="diag", n_iter=5))
    assert made.budget_split == {"bounds": 0.1, "encoder": 0.4, "mixture": 0.0, "decoder": 0.6}
    assert _recorded("P3GMSynthesizer", prior="auto", **mixture).prior == "auto"
    usual = {"n_mixture": 3, "covariance_type": "full", "em_steps": 8}
    assert _recorded("P3GMSynthesizer", prior="mixture", **usual).prior == "mixture"
    made = _recorded("DP2VAESynthesizer", budget_split=[0.3, 0.7])
    assert made.budget_split == {"moments": 0.3, "decoder": 0.7}
    assert _recorded("DPGMSynthesizer", clusters_share=0.2).budget_split == {"clusters": 0.2}


def test_a_checkpoint_of_an_earlier_version_has_the_parameters_of_today():
    usual = {"n_mixture": 3, "covariance_type": "full", "em_steps": 8, "bounds_share": 0.05}
    units = {"unit_weighting": "rows", "missing_unit": "refuse", "unit_columns": None}
    now = describe(P3GMSynthesizer(decoder="net", prior="mixture").get_params(deep=False))
    assert describe(of_today({**now, **usual, **units})) == now
    made = P3GMSynthesizer(
        prior=LatentMixture(2),
        decoder="released",
        budget_split={"bounds": 0.1, "encoder": 1, "mixture": 1, "decoder": 0},
    )
    before = {**now, **units, **usual, "decoder": "released", "n_mixture": 2, "bounds_share": 0.1}
    assert describe(of_today({**before, "budget_split": [1, 1, 0]})) == describe(made.get_params(deep=False))


def test_a_model_whose_classes_are_all_hidden_by_noise_is_loaded(tmp_path):
    """At a tiny epsilon no noisy count is above zero: what was charged, sampled and saved is not refused afterwards."""
    synth = MomentSynthesizer(1.0, target="town").fit(FRAME)
    synth.model_.latent_model.class_counts[:] = 0.0
    synth.save(tmp_path / "model.safetensors")
    one, other = (s.sample(20, random_state=0) for s in (synth, skdpgen.load(tmp_path / "model.safetensors")))
    pd.testing.assert_frame_equal(one, other)
