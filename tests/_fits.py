"""Claims about whole fits: the ledger is what ran, nothing private is kept, noise is fresh, the row count is hidden."""

from __future__ import annotations

import functools
import inspect
from types import SimpleNamespace

import numpy as np
import pandas as pd
from _sabotage import Audit, find_private, quietly
from sklearn.base import clone

from skdpgen import DPPCA, DPGaussianMixture, P3GMSynthesizer, PrivacyAccountant
from skdpgen.exceptions import BudgetExceededError
from skdpgen.mixture._labels import learn_classes as learn_mixture_classes
from skdpgen.nn import DPNet, P3GMModule
from skdpgen.synthesizers._labels import learn_classes as learn_array_classes
from skdpgen.synthesizers._particles import fit_particles
from skdpgen.tabular import Schema, schema_from_histogram, schema_histogram
from skdpgen.utils.noise import make_noise_generator

N = 1009  # prime: no public size is equal to it, or to a multiple
FRAME_LABELS = "rare, of one record alone"


def _table():
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "height": rng.normal(1.7, 0.1, N),
            "income": rng.gamma(2.0, 931.7, N),
            "dose": rng.normal(0.0, 0.37, N),
            "job": rng.choice(["baker", "nurse", "pilot"], N, p=[0.5, 0.3, 0.2]).astype(object),
        }
    )
    frame.loc[0, "job"] = FRAME_LABELS
    y = np.where(rng.random(N) < 0.41, "no", "yes").astype(object)
    y[1] = FRAME_LABELS
    return frame, y


FRAME, Y = _table()
X = FRAME[["height", "income", "dose"]].to_numpy()
_PUBLIC = {"bounds": [(0, 3), (0, 20_000), (-5, 5)], "l2_bound": 1.0}
_DEEP = {
    "prior": "mixture", "em_steps": 3, "decoder": "net", "steps": 6, "sampling_rate": 0.05, "warm_start_steps": 1,
    "random_state": 0,
}  # fmt: skip


def _net():
    return DPNet(P3GMModule, module__n_hidden=5)


# Every kind of release: what is declared and what is learned, each prior and decoder, both relations.
FITS = {
    "pca": lambda: (DPPCA(2, random_state=0), X),
    "pca in two rounds": lambda: (DPPCA(2, centering="two_round", **_PUBLIC), X),
    "pca, replace_one": lambda: (DPPCA(2, neighboring="replace_one"), X),
    "mixture": lambda: (DPGaussianMixture(2, n_iter=3, random_state=0), X),
    "mixture by class": lambda: (DPGaussianMixture(random_state=0), X, Y),
    "mixture, replace_one": lambda: (DPGaussianMixture(2, n_iter=3, neighboring="replace_one"), X),
    "arrays": lambda: (P3GMSynthesizer(random_state=0), X, Y),
    "arrays, declared": lambda: (P3GMSynthesizer(prior="gaussian", **_PUBLIC), X),
    "arrays, replace_one": lambda: (P3GMSynthesizer(neighboring="replace_one"), X, Y),
    "arrays, net": lambda: (P3GMSynthesizer(net=_net(), **_DEEP), X, Y),
    "frame": lambda: (P3GMSynthesizer(target="job", random_state=0), FRAME),
    "frame, replace_one": lambda: (P3GMSynthesizer(target="job", neighboring="replace_one"), FRAME),
    "frame, levels": lambda: (P3GMSynthesizer(schema=_levels(), target="job"), FRAME[["job", "job2"]]),
    "frame, net": lambda: (P3GMSynthesizer(net=_net(), **_DEEP), FRAME, Y),
    "frame, net by class": lambda: (P3GMSynthesizer(net=_net(), **{**_DEEP, "prior": "auto"}, target="job"), FRAME),
}
FRAME["job2"] = np.where(FRAME["dose"] > 0.1, "old", "new").astype(object)


def _levels():
    from skdpgen.tabular import Categorical

    names = ("baker", "nurse", "pilot", FRAME_LABELS)
    return Schema([Categorical("job", names), Categorical("job2", ("new", "old"))])


def _fit(name, audit=None):
    estimator, *data = FITS[name]()
    # the prior's fit to released tables is post-processing: a few steps of it tell as much as all
    steps, fit_particles.__kwdefaults__["n_iter"] = fit_particles.__kwdefaults__["n_iter"], 2
    try:
        return quietly(lambda: estimator.fit(*data)), data
    finally:
        fit_particles.__kwdefaults__["n_iter"] = steps


def ledger_is_what_ran(name):
    """Every release and every step ran at the noise, rate, delta and relation that were charged, and nothing else."""
    with Audit() as audit:
        fitted, _ = _fit(name)
    audit.check(fitted.accountant_)
    fitted.card_.verify()
    if fitted.accountant_.neighboring == "add_or_remove_one":
        for plan in audit.plans:
            expected = plan.expected_batch_size / plan.sampling_rate
            assert abs(expected - N) > 1e-6, "the denominator holds the exact number of rows"
    assert (len(audit.plans) > 0) == ("net" in name)


def nothing_private_is_kept(name):
    """No exact count, statistic, cell, row or rare category is anywhere on the fitted estimator or in its pickle."""
    fitted, data = _fit(name)
    frame = pd.DataFrame(data[0], columns=None if isinstance(data[0], pd.DataFrame) else ["a", "b", "c"])
    public = fitted.accountant_.neighboring == "replace_one"
    found = find_private(fitted, frame, *data[1:], count_is_public=public)
    assert not found, "\n".join(found)


def fits_under_one_seed_differ(name):
    """`random_state` seeds no noise."""
    one, other = (_released(_fit(name)[0]) for _ in range(2))
    assert len(one) == len(other)
    assert not all(np.array_equal(a, b) for a, b in zip(one, other))


def _released(fitted):
    if isinstance(fitted, P3GMSynthesizer):
        generator = getattr(fitted.model_, "generator", None) or fitted.model_.particles
        space = getattr(generator, "space", None)
        return [fitted.model_.row_count, generator.mean if space is None else space.center]
    return [fitted.mean_, fitted.components_] if isinstance(fitted, DPPCA) else [fitted.means_, fitted.weights_]


def the_row_count_is_hidden(name):
    """Under add_or_remove_one `sample()` draws a released number of rows, which is not that of the data."""
    sizes = set()
    for _ in range(3):
        fitted, _ = _fit(name)
        drawn = fitted.sample()
        sizes.add(len(drawn[0] if isinstance(drawn, tuple) else drawn))
    assert sizes != {N}
    assert len(sizes) > 1


def a_refused_fit_releases_nothing(name):
    """Without budget there is no release, and no fitted attribute."""
    estimator, *data = FITS[name]()
    estimator.set_params(accountant=PrivacyAccountant(0.01))
    before = set(vars(estimator))
    with Audit() as audit:
        try:
            quietly(lambda: estimator.fit(*data))
        except BudgetExceededError:
            pass
        else:
            raise AssertionError("a fit that nobody paid for")
    assert not audit.log
    assert set(vars(estimator)) == before


def a_clone_charges_the_same_books(name):
    """Two fits of clones are two charges in the books of the first."""
    estimator, *data = FITS[name]()
    books = PrivacyAccountant(50.0)
    estimator.set_params(accountant=books)
    for k in range(2):
        quietly(lambda: clone(estimator).fit(*data))
        assert len(books.charges) == k + 1


# ---- categories ------------------------------------------------------------------------------------------
def _classes_of_mixture(labels, noise_multiplier, delta, rng):
    plan = SimpleNamespace(noise_multipliers={"classes": noise_multiplier}, extra_delta=delta)
    return learn_mixture_classes(labels, plan, rng, "add_or_remove_one")[0]


def _classes_of_arrays(labels, noise_multiplier, delta, rng):
    return learn_array_classes(labels, noise_multiplier, delta, rng, "add_or_remove_one")


def _classes_of_schema(labels, noise_multiplier, delta, rng):
    from skdpgen.mechanisms import add_gaussian

    frame = pd.DataFrame({"job": labels})
    query = schema_histogram(frame, Schema.from_kinds(frame))
    noisy = add_gaussian(query.bounded_sum, noise_multiplier, rng, "add_or_remove_one")
    return schema_from_histogram(noisy, query, noise_multiplier, delta)["job"].categories


LEARNERS = {"mixture": _classes_of_mixture, "arrays": _classes_of_arrays, "schema": _classes_of_schema}


def a_category_of_one_record_is_not_told(name):
    """One record's own category passes with chance delta; a frequent one is told."""
    rng, labels = make_noise_generator("fast"), np.array(["often"] * 300 + ["rare"], dtype=object)
    for _ in range(30):
        assert list(LEARNERS[name](labels, 5.0, 1e-6, rng)) == ["often"]


# ---- one claim as a value --------------------------------------------------------------------------------
class Claim:
    """A claim-checking function with its arguments: an ordinary test's, or one of those above."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments
        self.name = function.__name__.removeprefix("test_")

    def check(self):
        """Raise AssertionError (or pytest's Failed) if the claim does not hold."""
        parameters = inspect.signature(self.function).parameters
        first = (np.random.default_rng(20240917),) if "rng" in parameters else ()
        self.function(*first, *self.arguments)

    def holds_unpatched(self):
        """Check the shipped code, once for all mutants."""
        _check_once(self.function, self.arguments)


@functools.cache
def _check_once(function, arguments):
    Claim(function, *arguments).check()
