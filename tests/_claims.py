"""Claims of many tests: sensitivity attained and not exceeded, noise at its scale, a refusal before the charge."""

from __future__ import annotations

import numpy as np
import pytest

from skdpgen import PrivacyAccountant
from skdpgen._types import NEIGHBORING
from skdpgen.mechanisms import add_gaussian, exact_value
from skdpgen.utils.noise import make_noise_generator

__all__ = [
    "RELATIONS", "assert_noise_at_scale", "assert_noise_of", "assert_refused_before_the_charge", "assert_sensitivity",
    "noise_is_at_scale", "weighted_change",
]  # fmt: skip

RELATIONS = NEIGHBORING


def weighted_change(one, other):
    """L2 norm of the weighted difference of two bounded sums: what their sensitivity bounds."""
    return float(np.linalg.norm(np.asarray(one.weights) * (exact_value(one) - exact_value(other))))


def assert_sensitivity(query, neighbours, *, attained, relation, slack=1e-9, least=0.999):
    """Check that no pair of neighbouring data sets moves `query` by more than it says, and that some pair gets there.

    Parameters
    ----------
    query : callable
        Data set -> BoundedSum, noise off.
    neighbours : iterable of (data set, data set)
        Random and adversarial pairs under `relation`.
    attained : iterable of (data set, data set)
        Pairs that prove the bound tight: the largest change among them is at least `least` of it.
    relation : str
    """
    known = {}  # a data set is in many pairs; kept, so that no other one has its id

    def of(data):
        if id(data) not in known:
            known[id(data)] = data, query(data)
        return known[id(data)][1]

    worst = 0.0
    for one, other in attained:
        bound = of(one).sensitivity(relation)
        change = weighted_change(of(one), of(other))
        assert change <= bound * (1 + slack), f"{change / bound} of the sensitivity"
        worst = max(worst, change / bound)
    assert worst >= least, f"only {worst} of the sensitivity is attained"
    for one, other in neighbours:
        bound = of(one).sensitivity(relation)
        change = weighted_change(of(one), of(other))
        assert change <= bound * (1 + slack), f"{change / bound} of the sensitivity"


def noise_is_at_scale(noise, sd):
    """Chi-squared on noise alone: with 1e5 coordinates a standard deviation off by 2 % fails."""
    scaled = np.ravel(noise) / np.ravel(sd)
    ratio = float(np.mean(scaled**2))
    return abs(ratio - 1) < 4.5 * (2 / scaled.size) ** 0.5 and abs(scaled.mean()) < 4.5 / scaled.size**0.5


def assert_noise_at_scale(noise, sd):
    """Check noise of at least 1e5 coordinates against `sd`, and that 2/3, 3/2 and 1.02 of it would be caught."""
    sd = np.broadcast_to(sd, np.shape(noise))
    assert np.size(noise) >= 100_000
    assert noise_is_at_scale(noise, sd)
    for wrong in (2 / 3, 3 / 2, 0.98, 1.02):
        assert not noise_is_at_scale(noise, wrong * sd)


def assert_noise_of(query, relation, n_releases):
    """Check the noise of releases of a bounded sum, each coordinate by its weight."""
    rng = make_noise_generator("fast")
    released = np.stack([add_gaussian(query, 1.7, rng, relation) for _ in range(n_releases)])
    sd = 1.7 * query.sensitivity(relation) / np.broadcast_to(query.weights, query.value.shape)
    assert_noise_at_scale(released - exact_value(query), sd)


def assert_refused_before_the_charge(estimator, match, *data):
    """Check that a fit raises ValueError, and that nothing was charged."""
    accountant = PrivacyAccountant(1.0)
    with pytest.raises(ValueError, match=match):
        estimator.set_params(accountant=accountant).fit(*data)
    assert not accountant.entries
