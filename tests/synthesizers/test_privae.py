"""PriVAE and DP-VAE on tables, arrays and images: what goes in comes out, files keep it, bad input costs nothing."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from _flat import make_flat
from sklearn.datasets import load_digits
from torch import nn

from skdpgen import DPSGD, DPVAESynthesizer, GroupDivergence, PrivacyAccountant, PriVAESynthesizer, load
from skdpgen.accounting import describe_event, gaussian_event
from skdpgen.datasets import make_pinwheel
from skdpgen.exceptions import DetachedAccountantError, InvalidInputError, UtilityWarning
from skdpgen.mechanisms._gaussian import Count
from skdpgen.nn import DPNet, GaussianMixturePrior, PriVAEModule, SparseEncoder
from skdpgen.synthesizers._vae_model import training_plan, vae_settings

X, Y = load_digits(return_X_y=True)
X, Y = X[:600], Y[:600]
QUICK = {"epsilon": 5.0, "n_components": 3, "steps": 4, "sampling_rate": 0.1, "random_state": 0}
CORNERS = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]


def net(**module):
    return DPNet(PriVAEModule, **{f"module__{k}": v for k, v in {"n_hidden": 8, "n_channels": 4, **module}.items()})


def make(divergence="mmd", **parameters):
    groups = {} if divergence is None else {"n_groups": 4}
    return make_flat(PriVAESynthesizer, **{**QUICK, "net": net(), "divergence": divergence, **groups, **parameters})


def frame(n=300):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"height": rng.normal(1.7, 0.1, n), "job": rng.choice(["baker", "nurse"], n), "old": rng.random(n) < 0.4}
    )


ARRAYS = {
    "no divergence": {"divergence": None},
    "mmd": {},
    "kl_prior": {"divergence": "kl_prior", "beta": 0.0, "net": net(n_monte_carlo=2)},
    "own": {"divergence": lambda z, p: (z.mean(0) - p.mean(0)).square().sum()},
    "sparse": {"prior": "sparse"},
    "mixture": {"prior": "mixture"},
    "own prior": {"prior": GaussianMixturePrior(np.eye(3), 0.1)},
    "images": {"image_shape": (8, 8), "warm_start_steps": 20},
    "micro": {"aggregation": "micro", "n_groups": None},
    "batch": {"aggregation": "batch", "n_groups": None},
    "laplace": {"likelihood": "laplace"},
}


def test_the_card_says_what_of_the_callers_was_taken_for_public():
    told = make(**ARRAYS["own"], bounds=(0, 16), prior=GaussianMixturePrior(np.eye(3), 0.1)).fit(X).card_
    for name in ("net", "prior", "divergence"):
        assert f"{name}: an object of the caller's, taken for public" in told["public_assumptions"]
    told = make(bounds=(0, 16)).fit(X).card_["public_assumptions"]
    assert [text for text in told if "object" in text] == ["net: an object of the caller's, taken for public"]


@pytest.mark.parametrize(
    ("name", "labelled"), [*((name, True) for name in ARRAYS), *((name, False) for name in ("mmd", "images", "micro"))]
)
def test_arrays_go_in_and_come_out(name, labelled, tmp_path):
    if labelled:
        synth = make(bounds=(0, 16), classes=range(10), **ARRAYS[name]).fit(X, Y)
        new, labels = synth.sample(30)
        assert set(labels) <= set(range(10))
        assert len(synth.sample(y=[3, 3, 4])[1]) == 3
        assert synth.class_ratio_.sum() == pytest.approx(1.0)
    else:
        synth = make(bounds=(0, 16), **ARRAYS[name]).fit(X)
        new = synth.sample(30)
    assert new.shape == (30, 64)
    assert new.min() >= 0
    assert new.max() <= 16
    latent = synth.transform(X[:20])
    assert latent.shape == (20, 3)
    assert list(synth.get_feature_names_out()) == [f"privaesynthesizer{i}" for i in range(3)]
    assert synth.inverse_transform(latent).shape == (20, 64)
    assert synth.reconstruct(X[:20], Y[:20] if labelled else None).shape == (20, 64)
    assert synth.reconstruct(X[:20]).shape == (20, 64)
    assert np.isfinite(synth.score(X[:20], Y[:20] if labelled else None))
    assert synth.score_samples(X[:5], n_importance=8).shape == (5,)
    assert 0.99 * 5 <= synth.accountant_.epsilon_spent() <= 5.0
    synth.card_.verify()
    path = tmp_path / "model.safetensors"
    synth.save(path)
    again = load(path)
    np.testing.assert_allclose(again.transform(X[:20]), latent, rtol=1e-6)
    one, other = (np.asarray(s.sample(9, random_state=1)[0]) for s in (synth, again))
    np.testing.assert_array_equal(one, other)
    with pytest.raises(DetachedAccountantError):
        again.accountant_.charge(gaussian_event(9.0), "again")


@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize("name", ["no divergence", "mmd", "sparse", "micro"])
def test_tables_go_in_and_come_out(name, tmp_path):
    table = frame()
    synth = make(target="job", warm_start_steps=2, **ARRAYS[name]).fit(table)
    new = synth.sample(20)
    assert list(new.columns) == list(table.columns)
    assert synth.transform(table).shape == (300, 3)
    assert list(synth.reconstruct(table.head()).columns) == list(table.columns)
    assert list(synth.inverse_transform(np.zeros((4, 3))).columns) == list(table.columns)
    assert np.isfinite(synth.score(table))
    pair = make(warm_start_steps=0, **ARRAYS[name]).fit(table[["height", "old"]], table["job"])
    rows, y = pair.sample(10)
    assert list(rows.columns) == ["height", "old"]
    assert y.name == "job"
    assert pair.transform(table[["height", "old"]]).shape == (300, 3)
    path = tmp_path / "model.safetensors"
    synth.save(path)
    pd.testing.assert_frame_equal(load(path).sample(9, random_state=1), synth.sample(9, random_state=1))


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_numeric_y_is_a_column_like_the_others():
    y = np.linspace(0.0, 5.0, len(X))
    synth = make(bounds=(0, 16)).fit(X, y)
    rows, drawn = synth.sample(20)
    assert rows.shape == (20, 64)
    assert drawn.dtype == float
    assert synth.transform(X[:5]).shape == (5, 3)
    assert np.isfinite(synth.score(X[:5], y[:5]))


def test_events_charged_are_those_of_the_plan():
    synth = make(bounds=(0, 16), neighboring="replace_one")
    plan = synth.plan(X)
    assert [phase.label for phase in plan.phases] == ["training"]  # the number of rows is public
    (row,) = describe_event(synth.fit(X).accountant_.charges[0].event)
    assert (row["mechanism"], row["sampling_rate"], row["count"]) == ("poisson_gaussian", 0.1, 4)
    assert [p.label for p in make().plan(X, Y).phases] == ["bounds", "classes", "counts", "training"]
    assert [p.label for p in make(bounds=(0, 16)).plan(X).phases] == ["counts", "training"]


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_the_card_agrees_with_an_independent_accounting(relation):
    """Every release composed anew, by dp-accounting's distributions alone."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    synth = make(bounds=(0, 16), classes=range(10), neighboring=relation, steps=30).fit(X, Y)
    neighbours = {"add_or_remove_one": "ADD_OR_REMOVE_ONE", "replace_one": "REPLACE_ONE"}[relation]
    total = None
    for row in describe_event(synth.accountant_.charges[0].event):
        sampling = {} if row["sampling_rate"] is None else {
            "sampling_prob": row["sampling_rate"], "neighboring_relation": getattr(NeighboringRelation, neighbours),
        }  # fmt: skip
        step = pld.from_gaussian_mechanism(row["noise_multiplier"], value_discretization_interval=1e-4, **sampling)
        part = step.self_compose(row["count"])
        total = part if total is None else total.compose(part)
    assert synth.card_.verify()["fit"]["epsilon"] == pytest.approx(total.get_epsilon_for_delta(1e-5), abs=1e-3)


def test_a_divergence_that_mixes_groups_is_refused_for_tables_too():
    kept, books = [], PrivacyAccountant(100.0)

    def remembers(z, samples):
        kept.append(z.detach().mean())
        return (sum(kept) * z.mean()).square()

    with pytest.raises(ValueError, match=r"depends on the others|random"):
        make(remembers, accountant=books).fit(frame())
    assert not books.charges


def test_without_noise_the_model_learns_the_pinwheel():
    """The whole flow: a mixture prior holds four arms apart, and they are reconstructed."""
    points, _ = make_pinwheel(400, random_state=0)
    synth = PriVAESynthesizer(
        np.inf, divergence=GroupDivergence("kl_prior", alpha=3.0, n_groups=1),
        prior=GaussianMixturePrior(CORNERS, 0.03), n_components=2,
        likelihood="gaussian", bounds=(-2.5, 2.5),
        training=DPSGD(150, 0.5, net=DPNet(PriVAEModule, module__n_hidden=50, module__n_monte_carlo=2, lr=0.01)),
        random_state=0,
    ).fit(points)  # fmt: skip
    error = np.square(synth.reconstruct(points) - points).sum(axis=1).mean()
    assert error < 0.3 * points.var(axis=0).sum()
    assert synth.score(points) > synth.score(points[::-1] * 0 + 2.0)


def test_the_users_prior_and_net_are_left_as_they_were():
    prior = GaussianMixturePrior(np.eye(3), 0.1, learned=True)
    before = prior.table.weight.detach().clone()
    template = net(encoder=nn.Linear(64, 6), decoder=nn.Linear(3, 64))
    synth = make(prior=prior, net=template, bounds=(0, 16)).fit(X)
    assert torch.equal(prior.table.weight, before)
    assert not torch.equal(synth.model_.module.prior.table.weight, before)
    assert not hasattr(template, "module_")
    with pytest.raises(ValueError, match="files hold no code"):
        synth.save("model.safetensors")


def test_a_divergence_of_ones_own_leaves_no_trace_in_the_model():
    synth = make(lambda z, p: z.square().sum(), bounds=(0, 16)).fit(X)
    assert synth.model_.module.divergence is None
    pickle.dumps(synth.model_)


def test_dp_vae_is_privae_without_divergence():
    baseline = make_flat(DPVAESynthesizer, **QUICK, net=net(), bounds=(0, 16), classes=range(10))
    assert "divergence" not in baseline.get_params()
    plans = [s.plan(X, Y) for s in (baseline, make(None, bounds=(0, 16), classes=range(10)))]
    assert plans[0].event == plans[1].event
    new, labels = baseline.fit(X, Y).sample(7)
    assert (new.shape, labels.shape) == ((7, 64), (7,))
    with pytest.raises(ValueError, match="beta=0"):
        make_flat(DPVAESynthesizer, **QUICK, beta=0.0).fit(X)


def test_by_default_groups_have_sixteen_records_and_a_fifth_of_the_noise():
    model = PriVAESynthesizer(divergence="mmd", training=DPSGD(5, 0.1, gradient_bound=2.0))
    settings = vae_settings(model._resolve(), seed=0)
    fit = SimpleNamespace(noise={"training": 1.0}, plan=SimpleNamespace(neighboring="add_or_remove_one", unit=None))
    for row_count, n_groups in ((1600.0, 10), (40.0, 1)):
        plan, enough = training_plan(settings, fit, Count(row_count, row_count))
        assert enough
        assert plan.n_groups == n_groups
        assert plan.sample_bound == pytest.approx(0.8 * plan.l2_bound)


def test_few_records_warn_from_the_released_count_and_never_stop_a_fit():
    with pytest.warns(UtilityWarning, match="few records a step"):
        make(n_groups=16, sampling_rate=0.01, bounds=(0, 16)).fit(X[:40])


# ---- what is refused, before any charge -------------------------------------------------------------------------
class Normed(nn.Sequential):
    def __init__(self, n_in, n_out):
        super().__init__(nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out))


class NoSample(nn.Module):
    def log_prob(self, z):
        return z.sum(-1)


REFUSED = {
    "a divergence of no weight": ({"alpha": 0.0}, "'alpha' parameter of GroupDivergence"),
    "no prior at all": ({"divergence": None, "beta": 0.0}, "beta=0"),
    "groups in a whole batch": ({"aggregation": "batch", "n_groups": 4}, "termwise"),
    "a group bound in a whole batch": (
        {"aggregation": "micro", "n_groups": None, "group_gradient_bound": 0.1},
        "termwise",
    ),
    "groups beyond the batch": ({"n_groups": 70, "neighboring": "replace_one"}, "to be expected"),
    "groups too small": ({"n_groups": 40, "neighboring": "replace_one"}, "at least 2"),
    "an unknown divergence": ({"divergence": "tv"}, "GroupDivergence"),
    "an unknown prior": ({"prior": "uniform"}, "prior"),
    "a prior without samples": ({"prior": NoSample()}, "prior"),
    "a prior of another dimension": ({"prior": GaussianMixturePrior(CORNERS)}, "3 dimensions"),
    "a divergence that is no number": ({"divergence": lambda z, p: z.mean(0)}, "one number"),
    "a divergence that is NaN": ({"divergence": lambda z, p: z.sum() * torch.nan}, "not finite"),
    "a divergence of constants": ({"divergence": lambda z, p: torch.ones(())}, "differentiable"),
    "batch normalisation": ({"net": net(encoder=Normed(64, 6))}, "mixes the records"),
    "nets that do not fit": ({"net": net(encoder=nn.Linear(60, 6))}, "does not fit"),
    "no DPNet": ({"net": nn.Linear(2, 2)}, "must be a DPNet"),
    "another module": ({"net": DPNet(nn.Linear)}, "give PriVAEModule"),
    "LBFGS": ({"net": net().set_params(optimizer=torch.optim.LBFGS)}, "LBFGS"),
    "another device": ({"device": "nowhere"}, "cannot be used"),
    "steps and epochs": ({"epochs": 3, "neighboring": "replace_one"}, "set the same thing"),
    "epochs of private rows": ({"epochs": 3, "steps": 500}, "private under"),
    "bernoulli below zero": ({"likelihood": "bernoulli", "bounds": (-1, 16)}, "not negative"),
    "an image of another shape": ({"image_shape": (7, 9)}, "does not fit"),
    "a schema of arrays": ({"target": "job"}, "DataFrames"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_before_any_charge(name):
    parameters, message = REFUSED[name]
    books = PrivacyAccountant(100.0, neighboring=parameters.get("neighboring", "add_or_remove_one"))
    with pytest.raises((ValueError, InvalidInputError, TypeError), match=message):
        make(**{"bounds": (0, 16), **parameters}, accountant=books).fit(X)
    assert not books.charges


def test_what_does_not_suit_a_table_is_refused_before_any_charge():
    books = PrivacyAccountant(100.0)
    for parameters, message in (
        ({"bounds": (0, 1)}, "schema"),
        ({"likelihood": "laplace"}, "categorical distribution"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**parameters, accountant=books).fit(frame())
    assert not books.charges


# ---- the defaults --------------------------------------------------------------------------------------------------
def test_a_default_fit_has_a_divergence_of_groups():
    synth = make_flat(PriVAESynthesizer, **QUICK, bounds=(0, 16)).fit(X)
    assert synth.card_.accountant()  # verified
    assert type(synth.model_.module.divergence).__name__ == type(make().fit(X).model_.module.divergence).__name__
    assert synth.model_.module.architecture.get("encoder") is None


@pytest.mark.parametrize("images", [None, (8, 8), (4, 4, 4)])
def test_a_divergence_from_the_sparse_prior_has_an_encoder_that_can_be_sparse(images, tmp_path):
    shared = {**QUICK, "bounds": (0, 16), "prior": "sparse", "image_shape": images}
    shared |= {} if images is None else {"warm_start_steps": 20}
    synth = make_flat(PriVAESynthesizer, **shared).fit(X)
    assert isinstance(synth.model_.module.encoder, SparseEncoder)
    path = tmp_path / "model.safetensors"
    synth.save(path)
    restored = load(path)
    np.testing.assert_array_equal(restored.transform(X[:9]), synth.transform(X[:9]))
    for other in ({"divergence": None}, {"prior": "normal"}, {"net": net()}):
        given = make_flat(PriVAESynthesizer, **{**shared, **other}).fit(X)
        assert not isinstance(given.model_.module.encoder, SparseEncoder)


def test_two_latents_and_images_of_one_line_have_an_encoder_that_works():
    for parameters in ({"n_components": 2}, {"image_shape": (1, 64)}):
        synth = make_flat(PriVAESynthesizer, **{**QUICK, "prior": "sparse", "bounds": (0, 16), **parameters}).fit(X)
        assert (synth.transform(X[:50]).std(axis=0) > 0).all()
    with pytest.raises(ValueError, match="decoder must be a module or None"):
        make(bounds=(0, 16), net=net(decoder="sparse")).fit(X)
    with pytest.raises(ValueError, match='encoder must be a module, "sparse" or None'):
        make(bounds=(0, 16), net=net(encoder=5)).fit(X)


def test_an_encoder_of_an_unknown_name_is_refused_before_the_charge():
    books = PrivacyAccountant(5.0, 1e-5)
    with pytest.raises(ValueError, match='encoder must be a module, "sparse" or None'):
        make(epsilon=None, accountant=books, bounds=(0, 16), net=net(encoder="dense")).fit(X)
    assert not books.charges
