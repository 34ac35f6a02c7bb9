"""Attacks on single releases: a pair of neighbours that attains the sensitivity, thousands of releases, and errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedUnit, UnitRelation
from skdpgen.accounting import gaussian_epsilon
from skdpgen.audit import epsilon_from_counts
from skdpgen.audit._runs import noise_scaled
from skdpgen.dpsgd import GradientNoise
from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.mechanisms import add_gaussian, count_votes, histogram, unit_pairs, unit_tables
from skdpgen.mechanisms._selection import release_names, select_above
from skdpgen.nn._gradient_votes import LargestSigns, ProjectedVotes
from skdpgen.utils.noise import make_noise_generator

RUNS, DELTA = 3000, 1e-2
UNIT = BoundedUnit("person", 3, "units")
# Two rows of each of five persons, in columns of categories, of eight bins, and of categories.
FIRST, SECOND, BINS = np.tile([0, 3, 1], (5, 1)), np.tile([1, 0, 1], (5, 1)), [0, 8, 0]


# ---- pairs of neighbours: bounded sums of two data sets ------------------------------------------------------------
def _votes(_):
    """One teacher changes its mind about every row."""
    votes = np.random.default_rng(0).random((20, 50)) < 0.5
    votes[0] = False
    other = votes.copy()
    other[0] = True
    return count_votes(votes), count_votes(other)


def _pairs(_):
    """One more person with two equal rows; or in the place of a person with one row."""
    row = [[1, 2, 0]]
    return unit_pairs(FIRST, SECOND, BINS), unit_pairs(np.vstack([FIRST, row]), np.vstack([SECOND, row]), BINS)


def _tables(relation):
    """One more person with three rows; or in the place of another with one row, at other levels."""
    codes, sizes = np.array([[0, 0], [1, 1], [2, 0]]), np.array([1, 2, 3])

    def of(*more):
        rows = np.vstack([codes, *(row[:2] for row in more)])
        return unit_tables(rows, [3, 2], np.append(sizes, [row[2] for row in more]), 3)

    return of(*([(0, 0, 1)] if relation == "replace_one" else [])), of((2, 1, 3))


class _Critics:
    """Critics with given gradients."""

    def __init__(self, gradients):
        self._gradients, self.n_columns = gradients, gradients.shape[2]

    def with_all(self, units):
        yield units, torch.ones(len(units), dtype=torch.bool)

    def gradients(self, part, points):
        return self._gradients[torch.from_numpy(part)]


def _of_gradients(kind):
    """One of eight critics turns round at every generated row."""
    draws = torch.Generator().manual_seed(0)
    gradients = torch.randn(8, 5, 40, generator=draws)
    turned, plan = gradients.clone(), SubsetPlan(8, 10**6, 1.0, 8, sampler="balanced")
    turned[3] *= -1
    found = []
    for part in (gradients, turned):
        votes = LargestSigns(6) if kind == "signs" else ProjectedVotes(3, 4, 2.0, seed=0)  # of the same directions
        found.append(votes.total(_Critics(part), np.arange(8), torch.zeros(5, 1), plan))
    return found


PLAIN = {
    "votes of teachers": (_votes, None),
    "pairs of rows of persons": (_pairs, UNIT),
    "tables of persons": (_tables, UNIT),
}


# ---- attacks -------------------------------------------------------------------------------------------------------
def _plain_bound(name, relation, scale):
    """What the releases of a sum show of epsilon, where the noise is `scale` of what it states."""
    make, unit = PLAIN[name]
    one, other = make(relation)
    relation = relation if unit is None else UnitRelation(relation, unit)
    change = (other.value - one.value) * np.square(other.weights)
    gap = np.linalg.norm((other.value - one.value) * other.weights)
    if np.issubdtype(one.value.dtype, np.integer):
        gap *= one.lattice
    assert gap == pytest.approx(one.sensitivity(relation), rel=1e-6)  # the pair attains the sensitivity
    with noise_scaled(scale):
        rng = make_noise_generator("fast")
    rng.unit = unit
    middle = float(np.sum(change * (other.value if other.value.dtype.kind == "f" else other.value * other.lattice)))
    found = [[np.sum(change * add_gaussian(part, 1.0, rng, relation)) for _ in range(RUNS)] for part in (one, other)]
    return _bound(found, middle)


def _bound(found, threshold):
    alarms, misses = np.sum(np.array(found[0]) >= threshold), np.sum(np.array(found[1]) < threshold)
    return epsilon_from_counts(int(alarms), int(misses), RUNS, DELTA)


@pytest.mark.parametrize("relation", NEIGHBORING)
@pytest.mark.parametrize("name", PLAIN)
def test_a_release_stands_an_attack_and_with_half_its_noise_it_does_not(name, relation):
    claim = gaussian_epsilon(1.0, DELTA)
    assert 0.5 < _plain_bound(name, relation, 1.0) < claim
    assert _plain_bound(name, relation, 0.5) > claim


@pytest.mark.parametrize("noise", ["secure", "fast"])
@pytest.mark.parametrize("kind", ["signs", "histograms"])
def test_votes_on_gradients_stand_an_attack_and_with_half_their_noise_they_do_not(kind, noise):
    one, other = _of_gradients(kind)
    change = (other.value[0] - one.value[0]).double()
    assert float(change.norm()) == pytest.approx(one.sensitivity("replace_one"), rel=1e-6)
    middle, bounds = float((change * other.value[0]).sum()), []
    for scale in (1.0, 0.5):
        with GradientNoise([change.shape], scale, make_noise_generator(noise), ahead=False) as source:
            found = [[float((source.release(t)[0] * change).sum()) for _ in range(RUNS)] for t in (one, other)]
        bounds.append(_bound(found, middle))
    assert 0.5 < bounds[0] < gaussian_epsilon(1.0, DELTA) < bounds[1]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_names_of_one_person_pass_no_more_often_than_is_charged_and_by_the_threshold_of_a_row_they_do(weighting):
    """All rows of a person may share a name, or each may have another one: each is the worst case of some noise."""
    unit, delta = BoundedUnit("person", 4, weighting), 0.02
    relation, rng = UnitRelation("add_or_remove_one", unit), make_noise_generator("fast")
    rng.unit = unit
    shares = []
    for codes, noise in (([0, 0, 0, 0], 1.0), ([0, 0, 0, 1], 1.0), ([0, 1, 2, 3], 4.0)):
        codes = np.array(codes)
        counts = histogram(codes, codes.max() + 1, np.full(4, 4) if weighting == "units" else None)
        names = [f"name {code}" for code in range(codes.max() + 1)]
        passed = sum(bool(release_names(names, counts, noise, delta, rng, relation)) for _ in range(RUNS))
        assert stats.beta.ppf(1e-5, max(passed, 1), RUNS - passed + 1) < delta
        shares.append(passed / RUNS)
    assert min(shares[0], shares[2]) > 0.5 * delta  # the two worst cases spend what is charged
    sd = noise * counts.sensitivity(relation)
    passed = sum(select_above(add_gaussian(counts, noise, rng, relation), sd, delta).any() for _ in range(RUNS))
    assert stats.beta.ppf(1e-5, passed, RUNS - passed + 1) > delta
