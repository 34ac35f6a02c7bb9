"""The pinwheel has the arms it says."""

from __future__ import annotations

import numpy as np
import pytest

from skdpgen.datasets import make_pinwheel


def test_pinwheel_has_equal_arms_and_repeats_by_seed():
    X, y = make_pinwheel(402, n_arms=4, random_state=3)
    assert X.shape == (402, 2)
    assert sorted(np.bincount(y)) == [100, 100, 101, 101]
    assert np.abs(X).max() < 3
    again, labels = make_pinwheel(402, n_arms=4, random_state=3)
    assert np.array_equal(X, again)
    assert np.array_equal(y, labels)
    assert not np.array_equal(X, make_pinwheel(402, random_state=4)[0])


def test_arms_are_turned_copies_of_one_another():
    X, y = make_pinwheel(4000, n_arms=4, random_state=0)
    means = np.array([X[y == k].mean(axis=0) for k in range(4)])
    quarter = np.array([[0, 1], [-1, 0]])
    np.testing.assert_allclose(means[:-1] @ quarter, means[1:], atol=0.06)
    inner = [np.linalg.norm(X[y == k] - means[k], axis=1).mean() for k in range(4)]
    apart = np.linalg.norm(means[0] - means[1])
    assert max(inner) < 0.4 < 1.2 < apart


@pytest.mark.parametrize("bad", [{"n_samples": 0}, {"n_arms": 0}])
def test_no_points_and_no_arms_are_refused(bad):
    with pytest.raises(ValueError, match="at least 1"):
        make_pinwheel(**bad)
