"""The middle of a column, by its released histogram."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen.mechanisms import exact_value
from skdpgen.tabular import Numeric, Schema, bins_from_histogram, bins_histogram
from skdpgen.tabular._binning import middles_from_histogram


def _shares_above(values, bounds, noise_sd, rng):
    """Share of the rows above the middle of each of many noisy histograms of one column."""
    schema = Schema([Numeric("x", bounds)])
    counts = exact_value(bins_histogram(pd.DataFrame({"x": values}), schema))
    found = []
    for _ in range(20):
        noisy = counts + noise_sd * rng.normal(size=counts.shape) if noise_sd else counts
        binnings = bins_from_histogram(noisy, schema, noise_sd, 16)
        middle = middles_from_histogram(noisy, schema, noise_sd, binnings)["x"]
        assert 1 <= middle < binnings["x"].n_bins
        found.append(np.mean(values >= binnings["x"].bin_edges[middle]))
    return np.array(found)


@pytest.mark.parametrize("noise_sd", [0.0, 5.0])
def test_half_of_the_rows_are_on_either_side(rng, noise_sd):
    amounts = np.minimum(rng.lognormal(3, 1, 1000), 1000.0)
    assert np.abs(_shares_above(amounts, (0, 1000), noise_sd, rng) - 0.5).max() < 0.15


def test_few_skewed_rows_have_a_middle_that_divides_them(rng):
    """The histogram does not show bins, and yet where most of the rows are."""
    amounts = np.minimum(rng.lognormal(3, 1, 1000), 1000.0)
    above = _shares_above(amounts, (0, 1000), 50.0, rng)
    assert np.median(np.minimum(above, 1 - above)) > 0.1  # above 500, half of the bounds, are .001


def test_where_nothing_is_shown_the_middle_is_half_of_the_bins():
    schema = Schema([Numeric("x", (0, 1))])
    noisy = np.full(exact_value(bins_histogram(pd.DataFrame({"x": [0.5]}), schema)).shape, -1.0)
    binnings = bins_from_histogram(noisy, schema, 50.0, 16)
    assert middles_from_histogram(noisy, schema, 50.0, binnings) == {"x": 8}
