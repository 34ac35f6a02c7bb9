from __future__ import annotations

import numpy as np
import pytest
from _claims import RELATIONS, assert_noise_of, assert_sensitivity

from skdpgen.mechanisms import clip_rows, exact_value, sum_of_rows

D = 5
E = np.eye(D)


@pytest.mark.parametrize("bound", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_is_attained_and_not_exceeded(rng, relation, bound):
    base = rng.normal(size=(20, D))

    def joined(row):
        return np.vstack([base, row])

    rows = [*3 * rng.normal(size=(4, D)), 9 * E[0], -9 * E[0], np.full(D, 1e200), np.full(D, np.nan), np.zeros(D)]
    if relation == "add_or_remove_one":
        attained, pairs = [(base, joined(9 * E[0]))], [(base, joined(row)) for row in rows]
    else:
        attained = [(joined(9 * E[0]), joined(-9 * E[0]))]
        pairs = [(joined(one), joined(other)) for one in rows for other in rows]
    assert_sensitivity(
        lambda X: sum_of_rows(X, l2_bound=bound), pairs, attained=attained, relation=relation, least=0.999
    )


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_is_at_its_scale(rng, relation):
    assert_noise_of(sum_of_rows(rng.normal(size=(30, 200))), relation, 500)


def test_it_is_the_sum_of_the_clipped_images_of_the_rows_in_any_chunks(rng):
    X, matrix = rng.normal(size=(1000, D)), rng.normal(size=(D, 3))
    query = sum_of_rows(X, l2_bound=2.0, transform=lambda rows: rows @ matrix)
    expected = clip_rows(X @ matrix, 2.0).sum(axis=0) / 2.0
    np.testing.assert_allclose(exact_value(query), expected, atol=1000 * 2.0**-18)
    small = sum_of_rows(X, l2_bound=2.0, transform=lambda rows: rows @ matrix, chunk_rows=300)
    np.testing.assert_allclose(exact_value(small), exact_value(query), atol=1000 * 2.0**-18)
    np.testing.assert_allclose(exact_value(sum_of_rows(X, l2_bound=1e6, exact=False)), X.sum(axis=0) / 1e6)
