from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from _flat import make_flat
from sklearn.base import clone
from sklearn.datasets import load_digits

from skdpgen import DPSGD, LatentMixture, P3GMSynthesizer, load
from skdpgen.exceptions import UtilityWarning
from skdpgen.nn import DPNet, P3GMModule
from skdpgen.synthesizers import _p3gm
from skdpgen.testing import seeded_noise

RNG = np.random.default_rng(7)
N = 1500
Y = RNG.integers(0, 2, N)
# two classes whose means and correlations differ, inside the unit box
LATENT = RNG.normal(size=(N, 2))
X = np.column_stack(
    [
        0.3 * LATENT[:, 0] + np.where(Y, 0.3, -0.3),
        0.3 * np.where(Y, 1, -1) * LATENT[:, 0] + 0.05 * LATENT[:, 1],
        0.2 * LATENT[:, 1],
    ]
)
X = np.clip(X, -1, 1)
NAMES = np.array(["no", "yes"])
PUBLIC = {"bounds": (-1, 1), "l2_bound": 1.5}
NET = {
    "decoder": "net",
    "steps": 4,
    "warm_start_steps": 20,
    "sampling_rate": 0.05,
    "net": DPNet(P3GMModule, module__n_hidden=8),
}


def _fit(X=X, y=None, **parameters):
    synth = make_flat(P3GMSynthesizer, **{"epsilon": 3.0, "random_state": 0, **parameters}).fit(X, y)
    synth.card_.verify()
    asked = parameters.get("epsilon", 3.0)
    if np.isfinite(asked):
        assert synth.accountant_.epsilon_spent() == pytest.approx(asked, rel=1e-3)
        assert synth.card_["fit"]["epsilon"] <= asked
    assert len(synth.accountant_.charges) == 1
    return synth


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"prior": "gaussian", "n_components": 2},
        {"prior": LatentMixture(2, n_iter=3)},
        {"prior": LatentMixture(covariance_type="diag"), "neighboring": "replace_one"},
        {**NET},
        {**NET, "prior": "mixture", "net": DPNet(P3GMModule, module__latent_variance="zero"), "likelihood": "gaussian"},
        {"epsilon": np.inf},
    ],
    ids=lambda parameters: "-".join(parameters) or "defaults",
)
@pytest.mark.parametrize("labels", [None, NAMES[Y]], ids=["rows", "rows and labels"])
def test_rows_go_in_and_rows_of_the_same_kind_come_out(parameters, labels):
    synth = _fit(y=labels, **PUBLIC, **parameters)
    drawn = synth.sample(200)
    rows = drawn if labels is None else drawn[0]
    assert rows.shape == (200, 3)
    assert np.isfinite(rows).all()
    assert rows.min() >= -1
    assert rows.max() <= 1
    if labels is not None:
        assert set(drawn[1]) <= {"no", "yes"}
    latent = synth.transform(X[:50])
    assert latent.shape == (50, synth.model_.n_latent)
    assert synth.inverse_transform(latent).shape == (50, 3)
    assert np.isfinite(synth.score(X[:50], None if labels is None else labels[:50]))


def test_without_noise_moments_are_those_of_the_rows():
    synth = _fit(y=Y, epsilon=np.inf, n_components=None)
    rows, labels = synth.sample(40_000, random_state=1)
    assert synth.row_count_ == N
    np.testing.assert_allclose(synth.class_ratio_, np.bincount(Y) / N, atol=1e-6)
    assert synth.card_["private"] is False
    for k in (0, 1):
        np.testing.assert_allclose(rows[labels == k].mean(axis=0), X[Y == k].mean(axis=0), atol=0.02)
        np.testing.assert_allclose(np.cov(rows[labels == k].T), np.cov(X[Y == k].T), atol=0.012)


def test_a_private_fit_is_near_the_moments_of_the_rows():
    rows, labels = _fit(y=Y, epsilon=5.0, **PUBLIC).sample(20_000, random_state=1)
    for k in (0, 1):
        np.testing.assert_allclose(rows[labels == k].mean(axis=0), X[Y == k].mean(axis=0), atol=0.08)
    np.testing.assert_allclose(np.cov(rows[labels == 1].T), np.cov(X[Y == 1].T), atol=0.06)


def test_everything_learned_keeps_the_scale_of_the_columns():
    synth = _fit(X * [1.0, 100.0, 1e4], NAMES[Y], epsilon=20.0)
    rows, labels = synth.sample(5000)
    assert synth.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(rows.std(axis=0) / (X * [1.0, 100.0, 1e4]).std(axis=0), 1.0, atol=0.35)
    assert set(labels) == {"no", "yes"}


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize("decoder", ["released", "net"])
def test_images_come_back_inside_their_bounds(decoder):
    images = RNG.uniform(0, 1, (300, 6, 5)) * np.linspace(0, 1, 5)
    settings = {} if decoder == "released" else NET
    synth = _fit(images.reshape(300, -1), RNG.integers(0, 2, 300), bounds=(0, 1), image_shape=(6, 5), **settings)
    rows, _ = synth.sample(100)
    assert rows.shape == (100, 30)
    assert rows.min() >= 0
    assert rows.max() <= 1
    assert synth.transform(images.reshape(300, -1)).shape[1] == synth.model_.n_latent


@pytest.mark.parametrize(
    ("y", "check"),
    [
        (pd.Series(NAMES[Y], name="answer", dtype="category"), lambda y: y.dtype == "category" and y.name == "answer"),
        (pd.Series(Y == 1, name=3), lambda y: y.dtype == bool and y.name == 3),
        (pd.Series(pd.array(Y, dtype="Int64")), lambda y: y.dtype == "Int64" and y.name is None),
        (Y.astype(np.int8), lambda y: y.dtype == np.int8),
        (Y == 1, lambda y: y.dtype == bool),
        (NAMES[Y].tolist(), lambda y: isinstance(y, np.ndarray) and set(y) <= {"no", "yes"}),
    ],
    ids=["category", "bool", "Int64", "int8", "bools", "list"],
)
def test_labels_come_back_in_their_container_and_dtype(y, check):
    assert check(_fit(y=y, **PUBLIC).sample(20)[1])


@pytest.mark.parametrize("dtype", [np.float64, np.int8, "Int64"])
def test_a_numeric_y_is_modelled_with_the_columns(dtype):
    values = np.rint(100 * X[:, 0])
    y = pd.Series(values, name="amount").astype(dtype)
    synth = _fit(y=y, epsilon=10.0, target_type="numeric", **PUBLIC)
    rows, drawn = synth.sample(4000)
    assert rows.shape == (4000, 3)
    assert (drawn.name, drawn.dtype) == ("amount", y.dtype)
    # learned bounds end at powers of two, beyond what int8 holds: values do not wrap around
    assert np.corrcoef(rows[:, 0], drawn.astype(float))[0, 1] > 0.5
    assert np.isfinite(synth.score(X))
    assert not hasattr(synth, "classes_")


def test_sample_takes_classes_and_ratios():
    synth = _fit(y=NAMES[Y], classes=["yes", "no"], **PUBLIC)
    asked = np.array(["yes", "no", "no"])
    assert synth.sample(y=asked)[1].tolist() == asked.tolist()
    assert set(synth.sample(50, class_ratio={"yes": 1})[1]) == {"yes"}
    _, drawn = synth.sample(100, class_ratio=np.array([1, 3]))
    assert (drawn == "yes").sum() == pytest.approx(25, abs=1)
    _, drawn = synth.sample(100, class_ratio="balanced")
    assert (drawn == "yes").sum() == pytest.approx(50, abs=1)
    with pytest.raises(ValueError, match=r"sum to 0\.9, which is less than 1"):
        synth.sample(50, class_ratio={"yes": 0.9})
    with pytest.raises(ValueError, match="balanced"):
        synth.sample(50, class_ratio="equal")
    _, drawn = synth.sample()
    assert len(drawn) == round(synth.row_count_) == pytest.approx(N, abs=60)
    for wrong in (
        {"y": ["maybe"]},
        {"n_samples": 2, "y": asked},
        {"y": asked, "class_ratio": [1, 1]},
        {"n_samples": 5, "class_ratio": {"maybe": 1}},
        {"n_samples": 5, "class_ratio": [1, 1, 1]},
        {"n_samples": 5, "class_ratio": [-1, 2]},
        {"n_samples": 5, "class_ratio": [0, 0]},
        {"n_samples": 0},
        {"n_samples": 2.5},
        {"n_samples": "many"},
        {"n_samples": True},
    ):
        with pytest.raises(ValueError, match=r"class|n_samples|shares|number of rows"):
            synth.sample(**wrong)
    with pytest.raises(ValueError, match="class-conditional"):
        _fit(**PUBLIC).sample(y=asked)


def test_two_samples_differ_and_a_seed_repeats():
    synth = _fit(**PUBLIC)
    one, other = synth.sample(10), synth.sample(10)
    assert not np.array_equal(one, other)
    assert np.array_equal(synth.sample(10, random_state=0), synth.sample(10, random_state=0))
    generator = np.random.default_rng(3)
    assert not np.array_equal(synth.sample(10, random_state=generator), synth.sample(10, random_state=generator))


def test_two_fits_under_one_seed_differ_in_their_noise():
    one, other = (_fit(**PUBLIC) for _ in range(2))
    assert one.row_count_ != other.row_count_
    assert not np.array_equal(one.transform(X[:5]), other.transform(X[:5]))


def test_transform_clips_as_fit_did():
    synth = _fit(**PUBLIC)
    np.testing.assert_array_equal(synth.transform([[9.0, 0, 0]]), synth.transform([[1.0, 0, 0]]))


def test_inverse_transform_undoes_transform_without_noise():
    synth = _fit(epsilon=np.inf, n_components=None, bounds=(-1, 1))
    np.testing.assert_allclose(synth.inverse_transform(synth.transform(X[:20])), X[:20], atol=1e-9)
    with pytest.raises(ValueError, match="expected an array"):
        synth.inverse_transform(np.zeros((2, 7)))


def test_score_prefers_the_model_of_the_rows():
    rows = X[Y == 1]
    synth = _fit(rows, epsilon=np.inf)
    assert synth.score(rows) > synth.score(RNG.permuted(rows, axis=0)) + 0.1


def test_set_output_and_names():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    synth = P3GMSynthesizer(epsilon=3.0, n_components=2).set_output(transform="pandas").fit(frame.to_numpy())
    latent = synth.transform(X[:3])
    assert list(latent.columns) == ["p3gmsynthesizer0", "p3gmsynthesizer1"]
    assert list(synth.get_feature_names_out()) == list(latent.columns)


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize(
    ("rows", "y"),
    [
        (np.zeros((1, 3)), None),
        (X[:1], Y[:1]),
        (X[:3], None),
        (X[:4], Y[:4]),
        (np.column_stack([X[:40], np.full(40, 0.25)]), None),
        (np.full((30, 2), 0.5), np.ones(30, dtype=int)),
        (X[:200, :1], None),
        (RNG.uniform(-1, 1, (5, 40)), None),
    ],
    ids=["one row", "one row, y", "three", "four, y", "constant column", "one class", "one column", "few rows"],
)
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_few_rows_constant_columns_and_single_classes_fit(rows, y, learned):
    parameters = {} if learned else {"bounds": (-1, 1), "l2_bound": 1.0, "classes": None if y is None else [0, 1, 2]}
    for extra in ({}, {"prior": LatentMixture(4)}):
        drawn = _fit(rows, y, epsilon=1.0, **parameters, **extra).sample(30)
        drawn = drawn if y is None else drawn[0]
        assert np.isfinite(drawn).all()
        assert drawn.shape == (30, rows.shape[1])


def test_a_declared_class_without_rows_can_be_sampled():
    synth = _fit(y=Y, classes=[0, 1, 2], **PUBLIC)
    assert np.isfinite(synth.sample(y=[2, 2])[0]).all()
    assert synth.classes_.tolist() == [0, 1, 2]


def test_batch_size_and_epochs_set_rate_and_steps_under_replace_one():
    net = {**NET, "sampling_rate": None, "steps": None}  # the defaults, which batch_size and epochs replace
    synth = _fit(neighboring="replace_one", **{**net, "batch_size": 150, "epochs": 2}, **PUBLIC)
    step = synth.accountant_.report().iloc[-1]
    assert (step["sampling_rate"], step["count"]) == (0.1, 20)
    assert sum("number of rows" in text for text in synth.card_["public_assumptions"]) == 1
    assert synth.row_count_ == N


def test_parameters_of_the_net_are_passed_on():
    from torch import nn

    synth = (
        make_flat(P3GMSynthesizer, epsilon=3.0, **NET, **PUBLIC).set_params(training__net__module__n_hidden=5).fit(X)
    )
    assert synth.model_.generator.layers[0][0].shape == (5, 3)
    own = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    synth = clone(synth).set_params(training__net__module__decoder=own).fit(X)
    assert synth.sample(5).shape == (5, 3)
    with pytest.raises(ValueError, match="your own decoder module cannot be saved"):
        synth.save("never.safetensors")


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")  # so small a part for the encoder
@pytest.mark.parametrize("preset", ["paper", "paper/adult", "paper/credit"])
def test_presets_are_the_papers_settings_at_the_budget_asked_for(preset, monkeypatch):
    from skdpgen.synthesizers import _p3gm_decoder

    monkeypatch.setattr(
        _p3gm_decoder, "train_decoder", lambda rows, plan, space, mixture, **settings: _Linear(space, mixture)
    )
    synth = P3GMSynthesizer(epsilon=1.0, preset=preset, bounds=(-1, 1)).fit(np.tile(X, 4))
    report = synth.accountant_.report()
    assert report["mechanism"].iloc[-1].startswith("poisson")
    assert report["count"].iloc[-1] == {"paper": 840, "paper/adult": 1018, "paper/credit": 38449}[preset]
    assert synth.transform(np.tile(X[:1], 4)).shape == (1, 12 if preset == "paper/credit" else 10)
    assert synth.card_["fit"]["epsilon"] == pytest.approx(1.0, rel=1e-3)
    with pytest.raises(ValueError, match="preset must be"):
        P3GMSynthesizer(preset="paper/nothing").fit(X)


class _Linear:
    """A generator that is its space: enough to be fitted."""

    def __init__(self, space, mixture):
        self.space, self.mixture = space, mixture

    def sample(self, components, rng):
        return np.zeros((len(components), 12), dtype=np.float32)


# ---- what ran ----------------------------------------------------------------------------------------------------
FRAME = pd.DataFrame({"pay": RNG.random(300), "job": RNG.choice(["a", "b"], 300)})
IMAGES = RNG.random((60, 256))


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize(
    ("data", "parameters", "prior", "decoder"),
    [
        ((X, NAMES[Y]), PUBLIC, "class_conditional", "released"),
        ((X,), PUBLIC, "gaussian", "released"),
        ((X,), {**PUBLIC, "prior": LatentMixture(1)}, "mixture", "released"),
        ((X, NAMES[Y]), {**PUBLIC, **NET, "prior": "mixture"}, "mixture", "net"),
        ((IMAGES,), {"bounds": (0, 1), "image_shape": (16, 16)}, "gaussian", "features"),
        ((FRAME,), {"target": "job"}, "class_conditional", "released"),
        ((FRAME,), {"prior": "mixture", "target": "job"}, "mixture", "released"),
        ((FRAME,), {"target": "job", "decoder": "net", "steps": 3, "sampling_rate": 0.5}, "class_conditional", "net"),
    ],
)
def test_a_fit_and_its_file_say_which_prior_and_decoder_were_made(data, parameters, prior, decoder, tmp_path):
    synth = make_flat(P3GMSynthesizer, **{"epsilon": 3.0, "random_state": 0, **parameters})
    assert not hasattr(synth, "phases_")
    synth.fit(*data)
    assert synth.phases_ == {"encoder": "moments", "prior": prior, "decoder": decoder}
    synth.save(tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").phases_ == synth.phases_


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize(
    ("data", "parameters"), [((X, NAMES[Y]), PUBLIC), ((FRAME,), {"target": "job"}), ((X,), {**PUBLIC, **NET})]
)
def test_the_score_is_the_mean_of_the_scores_of_single_rows(data, parameters, tmp_path):
    synth = make_flat(P3GMSynthesizer, **{"epsilon": 3.0, "random_state": 0, **parameters}).fit(*data)
    scores = synth.score_samples(*data)
    assert scores.shape == (len(data[0]),)
    assert synth.score(*data) == np.mean(scores)
    alone = np.concatenate([synth.score_samples(*(part[k : k + 1] for part in data)) for k in range(3)])
    np.testing.assert_allclose(alone, scores[:3], rtol=1e-9)
    synth.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    if "decoder" in parameters:
        with pytest.raises(ValueError, match=r"no encoder variance.*score the rows before `save`"):
            loaded.score_samples(*data)
    else:
        np.testing.assert_allclose(loaded.score_samples(*data), scores, rtol=1e-6)


# ---- warnings and messages -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("share", "hidden"), [(0.9, None), (0.002, "all")])
def test_a_mixture_whose_latent_directions_are_noise_is_pointed_out_by_released_values(share, hidden):
    X, y = load_digits(return_X_y=True)
    split = {"encoder": share, "mixture": 1 - share}
    facts = {"bounds": (0, 16), "classes": range(10), "n_components": 10, "prior": "mixture", "budget_split": split}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        P3GMSynthesizer(1.0, random_state=0, **facts).fit(X, y)
    said = [str(one.message) for one in caught if "latent directions" in str(one.message)]
    assert len(said) == (hidden is not None)
    assert all('larger share "encoder"' in text and issubclass(caught[0].category, UtilityWarning) for text in said)


def test_the_message_of_a_model_that_cannot_be_saved_says_what_to_do_instead(tmp_path):
    X, y = load_digits(return_X_y=True)
    decoder = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 64))
    net = DPNet(P3GMModule, module__decoder=decoder)
    training = DPSGD(steps=2, sampling_rate=0.05, warm_start_steps=1, net=net)
    facts = {"bounds": (0, 16), "classes": range(10), "n_components": 12, "decoder": "net", "training": training}
    synth = P3GMSynthesizer(5.0, random_state=0, **facts).fit(X, y)
    with pytest.raises(ValueError, match=r"cannot be saved.*sample.*pickle"):
        synth.save(tmp_path / "model.safetensors")
    again = pickle.loads(pickle.dumps(synth))
    np.testing.assert_array_equal(again.sample(5, random_state=1)[0], synth.sample(5, random_state=1)[0])


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_the_place_of_a_row_leaves_its_latent(monkeypatch):
    """BLAS rounds the products of some rows of a block by their place."""

    def kept(latent, *given, **own):
        found.append(latent)
        return shipped(latent, *given, **own)

    X, bounds = (
        np.random.default_rng(0).normal(size=(700, 784)) / 10,
        [(-1, 1)] * 783 + [(-1, 2)],
    )  # which are no pixels
    found, shipped = [], _p3gm.dp_em
    monkeypatch.setattr(_p3gm, "dp_em", kept)
    for rows in (X, np.roll(X, 1, axis=0)):
        with seeded_noise(quiet=True, repeat=True):
            P3GMSynthesizer(
                100.0, prior=LatentMixture(2, n_iter=1), n_components=3, bounds=bounds, l2_bound=5.0, random_state=0
            ).fit(rows)
    np.testing.assert_array_equal(np.roll(found[1], -1, axis=0), found[0])
