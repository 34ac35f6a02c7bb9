"""No fit reads anything of its rows but through its releases, and each release is as bounded as it claims."""

from __future__ import annotations

import pytest
from _noninterference import CASES, PRODUCT, noninterference


@pytest.mark.parametrize("name", CASES)
def test_a_fit_reads_its_rows_through_its_releases_alone(name):
    noninterference(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCT)
def test_every_estimator_on_every_kind_of_data_reads_through_its_releases_alone(name):
    noninterference(name)
