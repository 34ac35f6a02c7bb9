"""Where numbers lie, by a noisy histogram of their octaves: few are cut off, and noise stretches no range by much."""

import itertools

import numpy as np
import pytest

from skdpgen.mechanisms import N_OCTAVE_CELLS, octave_cells, octave_edges, octave_ranges, outermost_bins
from skdpgen.mechanisms._selection import occupied_cells, unevenness

N, SD, COLUMNS = 2000, 53.0, 10  # ten undeclared columns at epsilon 1
LAWS = {
    "normal": lambda rng: rng.normal(size=N),
    "small": lambda rng: rng.normal(0, 0.05, N),
    "exponential": lambda rng: rng.exponential(30.0, N),
    "uniform": lambda rng: rng.random(N),
    "incomes": lambda rng: np.exp(rng.normal(10.3, 0.6, N)),
    "negative": lambda rng: -rng.gamma(3, 2, N),
    "ages": lambda rng: rng.integers(17, 90, N).astype(float),
    "flags": lambda rng: (rng.random(N) < 0.3).astype(float),
}


def counts(values):
    return np.bincount(octave_cells(values), minlength=N_OCTAVE_CELLS).astype(float)


def cut_off(values, found):
    low, high = octave_edges(found[0])[0], octave_edges(found[1])[1]
    return np.mean((values < low) | (values > high))


@pytest.mark.parametrize("law", LAWS)
def test_ranges_hold_the_rows_and_little_more(law, rng):
    cut, octaves = [], []
    for _ in range(20):
        values = LAWS[law](rng)
        noisy = counts(values) + SD * rng.normal(size=N_OCTAVE_CELLS)
        (found,) = octave_ranges(noisy[None], SD, COLUMNS)
        cut.append(cut_off(values, found))
        largest = max(abs(octave_edges(found[0])[0]), abs(octave_edges(found[1])[1]))
        octaves.append(np.log2(largest / np.abs(values).max()))
    assert np.mean(cut) < 0.06
    assert max(octaves) < 2.1


def test_octaves_one_by_one_are_not_enough(rng):
    # what is tested above fails where cells are judged alone: both halves of the bell drown, each in its octaves
    cut = []
    for _ in range(20):
        values = LAWS["normal"](rng)
        cut.append(cut_off(values, outermost_bins(counts(values) + SD * rng.normal(size=N_OCTAVE_CELLS), SD, COLUMNS)))
    assert np.mean(cut) > 0.15


def test_a_spike_far_from_the_rest_is_in_the_range(rng):
    values = np.where(rng.random(20_000) < 0.3, 1e5, 0.01)
    (found,) = octave_ranges((counts(values) + SD * rng.normal(size=N_OCTAVE_CELLS))[None], SD, COLUMNS)
    assert cut_off(values, found) == 0


@pytest.mark.parametrize("law", LAWS)
def test_without_noise_the_range_is_that_of_the_rows(law, rng):
    values = LAWS[law](rng)
    (found,) = octave_ranges(counts(values)[None], 0.0)
    assert found == (octave_cells(values).min(), octave_cells(values).max())


def test_noise_alone_seldom_makes_a_range(rng):
    found = octave_ranges(SD * rng.normal(size=(300, N_OCTAVE_CELLS)), SD, COLUMNS)
    assert sum(one is not None for one in found) < 30


@pytest.mark.parametrize(
    ("heights", "alike", "in_a_table"),
    [
        ([4.2], False, False),  # noise makes such a cell in one of thousands of columns
        ([3.3, 3.3], False, True),  # and hardly ever two of them
        ([6.0], True, True),
    ],
)
def test_a_cell_far_from_all_columns_needs_more_than_one_near_them(heights, alike, in_a_table):
    zero = N_OCTAVE_CELLS // 2
    far, near = np.zeros((2, 1, N_OCTAVE_CELLS))
    far[0, zero + 45 : zero + 45 + len(heights)] = heights
    near[0, zero + 4 : zero + 4 + len(heights)] = heights
    common = (zero, zero + 5)
    assert octave_ranges(far, 1.0, 30)[0] is not None
    assert (octave_ranges(far, 1.0, 30, common)[0] is not None) == alike
    assert (octave_ranges(far, 1.0, 30, common, alike=False)[0] is not None) == in_a_table
    for columns in (True, False):
        assert octave_ranges(near, 1.0, 30, common, alike=columns) == octave_ranges(near, 1.0, 30)


def test_columns_are_judged_each_by_itself(rng):
    noisy = rng.normal(20.0, 10.0, (70, 40))
    width = rng.random(40)
    together = occupied_cells(noisy, width, 10.0, 3)
    assert together.shape == (70, 40)
    for row, one in zip(together, noisy):
        assert row == pytest.approx(occupied_cells(one, width, 10.0, 3), abs=1e-12)


def test_odds_of_uneven_rows_are_those_of_all_ways_to_cut_the_cells(rng):
    noisy, width, sd, n_cells = 20 * rng.normal(size=7) + 15, rng.random(7) + 0.1, 20.0, 50

    def log_likelihood(run, size):
        width = size / size.max()
        density = max(np.sum(run * width), 0.0) / np.sum(width**2)
        return (np.sum(run**2) - np.sum((run - density * width) ** 2)) / (2 * sd**2)

    fit, prior = [], []
    for cuts in itertools.chain.from_iterable(itertools.combinations(range(1, 7), k) for k in range(7)):
        edges = [0, *cuts, 7]
        gains = [log_likelihood(noisy[a:b], width[a:b]) for a, b in itertools.pairwise(edges)]
        # a run is empty, or it has a density
        fit.append(sum(np.logaddexp(0, gain - 0.25 * np.log(n_cells)) - 0.5 * np.log(n_cells) for gain in gains))
        prior.append(len(gains) * (np.logaddexp(0, -0.25 * np.log(n_cells)) - 0.5 * np.log(n_cells)))
    expected = np.logaddexp.reduce(fit) - np.logaddexp.reduce(prior) - (fit[0] - prior[0])
    assert unevenness(noisy, width, sd, n_cells) == pytest.approx(expected)


def test_odds_of_uneven_rows_are_small_where_noise_explains_all(rng):
    width = np.full(10, 0.1)
    even = [unevenness(30 + 20 * rng.normal(size=10), width, 20.0, 100) for _ in range(300)]
    slope = [unevenness(np.linspace(0, 180, 10) + 20 * rng.normal(size=10), width, 20.0, 100) for _ in range(30)]
    # odds of e^3 against the truth come up in less than e^-3 of the draws
    assert np.mean(np.array(even) > 3) < 0.05
    assert min(slope) > 7
    assert unevenness(np.array([50.0]), np.ones(1), 20.0, 100) == pytest.approx(0.0)
