"""The cost benchmark of MomentSynthesizer: the same chunks each time, and a fit measured in a process of its own."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import BENCHMARKS
from benchmarks.moment_cost import cost_of_fit, random_chunks


def test_chunks_are_the_same_each_time_and_add_up():
    one, other = (list(random_chunks(2500, 5, 1000)) for _ in range(2))
    assert [len(chunk) for chunk in one] == [1000, 1000, 500]
    for a, b in zip(one, other):
        pd.testing.assert_frame_equal(a, b)
    assert not one[0].equals(one[1])


def test_a_fit_is_measured_in_a_process_of_its_own():
    pytest.importorskip("resource")
    figures = cost_of_fit(500, 4, epsilon=5.0)
    assert figures["fit_seconds"] > figures["chunk_seconds"] > 0
    assert figures["peak_mib"] >= figures["start_mib"] > 10
    assert set(BENCHMARKS["moment_cost"].figures) == set(figures)
