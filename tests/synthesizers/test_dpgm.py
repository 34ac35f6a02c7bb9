"""DP-GM as an estimator: clusters and their autoencoders, files, refusals, and what is charged and kept."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from _fits import (
    a_refused_fit_releases_nothing,
    ledger_is_what_ran,
    nothing_private_is_kept,
    the_row_count_is_hidden,
)
from _flat import make_flat
from _sabotage import Audit, quietly
from sklearn.base import clone
from torch import nn

from skdpgen import DPGMSynthesizer, DPVAESynthesizer, PrivacyAccountant, load
from skdpgen.accounting import describe_event
from skdpgen.exceptions import InvalidInputError, UtilityWarning
from skdpgen.mechanisms import nearest_centers
from skdpgen.nn import DPNet, PartitionedVAEModule
from skdpgen.synthesizers import _dpgm
from skdpgen.tabular import Categorical, Numeric, Schema

RNG = np.random.default_rng(11)
# Four clusters of unequal size in the unit square: shares .4, .3, .2, .1; the class is the left or the right side.
SIZES, CORNERS = (800, 600, 400, 200), np.array([[0.2, 0.2], [0.2, 0.8], [0.8, 0.2], [0.8, 0.8]])
X = np.concatenate([c + 0.03 * RNG.normal(size=(n, 2)) for n, c in zip(SIZES, CORNERS)])
Y = np.where(X[:, 0] > 0.5, "right", "left").astype(object)
DECLARED = {"bounds": (0, 1), "classes": ["left", "right"]}


def net(**options):
    return DPNet(PartitionedVAEModule, lr=0.01, **{f"module__{k}": v for k, v in {"n_hidden": 6, **options}.items()})


def make(epsilon=30.0, **parameters):
    # at a rate of 1 the price is in closed form: most of the time of so short a fit is its calibration
    quick = {"n_clusters": 3, "cluster_steps": 2, "n_components": 2, "steps": 2, "sampling_rate": 1.0}
    return make_flat(DPGMSynthesizer, epsilon, **{**quick, "random_state": 0, "net": net(), **parameters})


def sizes_of_clusters_are_released(relation):
    """Denominators, physical batches and shares follow from noisy counts, under replace_one too; never from counts."""
    exact, nearest = [], nearest_centers

    def counted(rows, centers, transform):
        codes = nearest(rows, centers, transform)
        exact.append(np.bincount(codes, minlength=len(centers)))
        return codes

    patch = pytest.MonkeyPatch()
    patch.setattr(_dpgm, "nearest_centers", counted)
    try:
        with Audit() as audit:
            fitted = quietly(lambda: make(neighboring=relation, sampling_rate=0.05, bounds=(0, 1)).fit(X))
    finally:
        patch.undo()
    plan = audit.plans[-1]
    assert plan.sampling_rate == 0.05, "the rate is not the public one"
    sizes = np.array(plan.part_batch_sizes) / plan.sampling_rate
    told = fitted.cluster_weights_ * sizes.sum()
    for found in (sizes, told, fitted.cluster_weights_ * len(X)):
        assert np.abs(found - exact[-1]).max() > 1e-6, "the exact size of a cluster"
    # and yet they are those sizes, up to noise
    assert np.abs(sizes - exact[-1]).max() < 0.2 * len(X)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_sizes_of_clusters_are_released(relation):
    sizes_of_clusters_are_released(relation)


def test_one_charge_pays_for_all_clusters_together():
    """One phase of k-means, one of counts, one of training: none of them once a cluster."""
    books = PrivacyAccountant(3.0)
    public = {"sampling_rate": 0.05, **DECLARED}
    synth = quietly(lambda: make(1.0, n_clusters=7, accountant=books, **public).fit(X, Y))
    (charge,) = books.charges
    rows = describe_event(charge.event)
    assert [(row["mechanism"], row["count"]) for row in rows] == [
        ("gaussian", 2),
        ("gaussian", 1),
        ("poisson_gaussian", 2),
    ]
    assert rows[2]["sampling_rate"] == 0.05
    synth.card_.verify()
    fewer = make(1.0, n_clusters=2, **public).plan(X, Y)
    assert fewer.event == charge.event  # so k clusters cost what two of them cost
    assert fewer.event == make(1.0, n_clusters=2, **public).plan(X[:50], Y[:50]).event  # and rows do not matter


FITTED = ["arrays, clustered nets", "arrays, clustered nets, replace_one", "frame, clustered nets"]


@pytest.mark.parametrize("name", FITTED)
def test_every_release_was_charged_and_nothing_private_is_kept(name):
    ledger_is_what_ran(name)
    nothing_private_is_kept(name)


def test_the_row_count_is_hidden_and_a_refused_fit_releases_nothing():
    the_row_count_is_hidden(FITTED[0])
    a_refused_fit_releases_nothing(FITTED[0])


def test_samples_lie_where_the_clusters_are_and_are_as_many():
    settings = {"n_clusters": 4, "cluster_steps": 6, "steps": 80, "sampling_rate": 0.2, "length_scale": 2.0}
    synth = quietly(lambda: make(**settings, **DECLARED).fit(X, Y))
    assert synth.cluster_weights_.shape == (4,)
    assert synth.cluster_weights_.sum() == pytest.approx(1.0)
    new, labels = synth.sample(2000, random_state=0)
    distance = np.linalg.norm(new[:, None] - CORNERS[None], axis=2)
    assert np.median(distance.min(axis=1)) < 0.15
    shares = np.bincount(distance.argmin(axis=1), minlength=4) / 2000
    assert np.abs(shares - np.array(SIZES) / 2000).max() < 0.15
    assert np.mean(np.where(new[:, 0] > 0.5, "right", "left") == labels) > 0.85
    assert synth.score(X[::20], Y[::20]) > synth.score(1 - X[::20], Y[::20])


def test_classes_are_drawn_as_asked_and_numbers_of_y_come_back():
    synth = make(**DECLARED).fit(X, Y)
    assert synth.sample(y=["left", "right", "right"])[1].tolist() == ["left", "right", "right"]
    assert set(synth.sample(50, class_ratio=[0, 1])[1]) == {"right"}
    number = quietly(lambda: make().fit(X, X[:, 0])).sample(20)[1]
    assert number.dtype == np.float64
    assert len(np.unique(number)) > 2
    assert make(bounds=(0, 1)).fit(X).sample(5).shape == (5, 2)


def test_a_class_that_is_in_one_cluster_alone_is_drawn_from_it():
    synth = make(n_clusters=4, cluster_steps=5, length_scale=2.0, **DECLARED).fit(X, Y)
    counts = np.stack([part.component_weights for part in synth.model_.parts])
    assert (counts > 0).all()  # noise, floored: every class can be drawn of every cluster
    assert (counts.max(axis=1) > 20 * counts.min(axis=1)).all()


def _frame(n=400):
    job = RNG.choice(["baker", "nurse"], n)
    return pd.DataFrame({"job": job, "age": RNG.uniform(20, 60, n), "rich": np.where(job == "nurse", "yes", "no")})


SCHEMA = Schema([Categorical("job", ("baker", "nurse")), Numeric("age", (20, 60)), Categorical("rich", ("no", "yes"))])


def _same(one, other):
    for a, b in zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]:
        if isinstance(a, pd.DataFrame):
            pd.testing.assert_frame_equal(a, b)
        else:
            np.testing.assert_array_equal(a, b)


def test_a_model_file_and_a_pickle_sample_as_the_fit_does(tmp_path):
    images = np.clip(RNG.normal(0.5, 0.2, size=(60, 64)), 0, 1)
    fits = [
        (make(**DECLARED), X, Y),
        (make(bounds=(0, 1)), X),
        (make(schema=SCHEMA, target="rich"), _frame()),
        (make(bounds=(0, 1), image_shape=(8, 8), net=net(n_channels=4)), images),
    ]
    for estimator, *data in fits:
        synth = quietly(lambda e=estimator, d=data: clone(e).fit(*d))
        synth.save(tmp_path / "model.safetensors")
        again, pickled = load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(synth))
        drawn = [model.sample(30, random_state=1) for model in (synth, again, pickled)]
        _same(drawn[0], drawn[1])
        _same(drawn[0], drawn[2])
        assert again.score(*data) == pytest.approx(synth.score(*data))
        np.testing.assert_array_equal(again.cluster_weights_, synth.cluster_weights_)
        again.card_.verify()


def test_a_table_comes_back_as_a_table():
    frame = _frame()
    synth = quietly(lambda: make(schema=SCHEMA, target="rich").fit(frame))
    drawn = synth.sample(50)
    assert list(drawn.columns) == list(frame.columns)
    assert (drawn.dtypes == frame.dtypes).all()
    assert drawn["age"].between(20, 60).all()
    assert np.isfinite(synth.score_samples(frame)).all()
    labels = pd.Series(frame["rich"].to_numpy(), name="label", dtype="category")
    rows, y = quietly(lambda: make().fit(frame.drop(columns="rich"), labels)).sample(9)
    assert (list(rows.columns), y.name, len(y)) == (["job", "age"], "label", 9)


@pytest.mark.parametrize(("n_rows", "relation"), [(1, "add_or_remove_one"), (5, "replace_one")])
def test_clusters_without_rows_do_no_harm(n_rows, relation):
    """More clusters than rows: whatever the noise makes of them, they are fitted and sampled."""
    synth = quietly(lambda: make(1.0, n_clusters=6, bounds=(0, 1), neighboring=relation).fit(X[:n_rows]))
    assert np.isfinite(synth.sample(20)).all()
    assert np.isfinite(synth.cluster_weights_).all()
    assert synth.cluster_weights_.sum() == pytest.approx(1.0)


def test_small_clusters_warn_from_released_counts():
    with pytest.warns(UtilityWarning, match="2 of 3 clusters have, by their released counts"):
        _dpgm._warn_of_small_clusters(np.array([9.0, 0.1, 11.0]), 0.1)


def test_batch_size_and_epochs_are_for_a_public_number_of_rows():
    plan = make(neighboring="replace_one", batch_size=100, epochs=1, steps=500, sampling_rate=0.02, bounds=(0, 1))
    row = describe_event(plan.plan(X).event)[-1]
    assert (row["sampling_rate"], row["count"]) == (0.05, 20)


def test_without_a_budget_there_is_a_model_that_says_so():
    synth = make(np.inf, bounds=(0, 1)).fit(X)
    assert synth.accountant_.epsilon_spent() == np.inf
    assert synth.cluster_weights_.min() > 0.01


def test_one_cluster_is_dp_vae_and_looks_for_none():
    plan = make(3.0, n_clusters=1, cluster_steps=5, **DECLARED).plan(X, Y)
    same = make_flat(DPVAESynthesizer, 3.0, n_components=2, steps=2, sampling_rate=1.0, **DECLARED).plan(X, Y)
    assert plan.event == same.event
    synth = make(3.0, n_clusters=1, cluster_steps=5, **DECLARED).fit(X, Y)
    assert synth.cluster_weights_.tolist() == [1.0]
    assert synth.sample(5)[0].shape == (5, 2)


class Normed(nn.Sequential):
    def __init__(self, n_in, n_out):
        super().__init__(nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out))


REFUSED = {
    "no cluster": ({"n_clusters": 0}, "n_clusters"),
    "no iteration": ({"cluster_steps": 0}, "cluster_steps"),
    "no frequency": ({"n_frequencies": 0}, "n_frequencies"),
    "shares that leave nothing": ({"budget_split": {"clusters": 0.98}}, "leave nothing"),
    "no prior at all": ({"beta": 0.0}, "beta=0"),
    "batch normalisation": ({"net": net(encoder=Normed(2, 4))}, "mixes the records"),
    "nets that do not fit": ({"net": net(encoder=nn.Linear(60, 4))}, "does not fit"),
    "no DPNet": ({"net": nn.Linear(2, 2)}, "must be a DPNet"),
    "another module": ({"net": DPNet(nn.Linear)}, "give PartitionedVAEModule"),
    "LBFGS": ({"net": net().set_params(optimizer=torch.optim.LBFGS)}, "LBFGS"),
    "another device": ({"device": "nowhere"}, "cannot be used"),
    "steps and epochs": ({"epochs": 3, "neighboring": "replace_one"}, "set the same thing"),
    "epochs of private rows": ({"epochs": 3, "steps": 500}, "private under"),
    "an image of another shape": ({"image_shape": (7, 9)}, "does not fit"),
    "a schema of arrays": ({"target": "job"}, "DataFrames"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_before_any_charge(name):
    parameters, message = REFUSED[name]
    books = PrivacyAccountant(100.0, neighboring=parameters.get("neighboring", "add_or_remove_one"))
    with pytest.raises((ValueError, InvalidInputError, TypeError), match=message):
        make(**{"bounds": (0, 1), **parameters}, accountant=books).fit(X)
    assert not books.charges


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 4),
        ("cluster_steps", 3),
        ("budget_split", {"clusters": 0.5}),
        ("n_frequencies", 21),
        ("length_scale", 3.0),
        ("n_components", 3),
        ("beta", 0.5),
        ("net", net(n_monte_carlo=2)),
        ("likelihood", "gaussian"),
        ("gradient_bound", 0.01),
        ("sampling_rate", 0.5),
        ("steps", 4),
    ],
)
def test_no_parameter_is_inert(name, value):
    """Without noise a fit is a function of its parameters and of the rows drawn: all of them, at a rate of 1."""
    from skdpgen.testing import seeded_noise

    drawn = []
    for changed in ({}, {name: value}):
        with seeded_noise(quiet=True, repeat=True):
            # the noise, seeded alike, matters where it is a share of the budget or a clip that is tried
            epsilon = 3.0 if name in ("budget_split", "gradient_bound") else np.inf
            synth = quietly(lambda: make(epsilon, bounds=(0, 1), **changed).fit(X[::10]))  # noqa: B023
            drawn.append(synth.sample(20, random_state=0))
    assert not np.array_equal(*drawn)
