from __future__ import annotations

import itertools

import numpy as np
import pytest
from _claims import RELATIONS, assert_noise_at_scale, assert_sensitivity, weighted_change

from skdpgen.mechanisms import CONTRASTS, add_gaussian, exact_value, triple_interactions, triples_of
from skdpgen.utils.noise import make_noise_generator

FINE = [True, False, True, True, False]
N_CLASSES = 3


@pytest.mark.parametrize("fine", [FINE, [True] * 4, [False] * 3, [False] * 7])
@pytest.mark.parametrize("relation", RELATIONS)
def test_triple_sensitivity_is_attained_and_not_exceeded(rng, relation, fine):
    d = len(fine)
    base, y = rng.integers(0, 4, (25, d)), rng.integers(0, N_CLASSES, 25)

    def joined(unit):
        return (base, y) if unit is None else (np.vstack([base, unit[0]]), np.append(y, unit[1]))

    units = [(row, k) for row in rng.integers(-1, 5, (6, d)) for k in (-1, 0, 2)]  # codes that are no quarter too
    units += [(np.zeros(d, int), 0), (np.full(d, 3), 0), (np.arange(d) % 4, 0)]
    # two rows of one class, in other halves of their first columns: one of these numbers of columns is the worst
    opposite = [((np.zeros(d, int), 0), (np.where(np.arange(d) < m, 3, 0), 0)) for m in range(d + 1)]
    opposite += [((one[::-1], 0), (other[::-1], 0)) for (one, _), (other, _) in opposite]
    if relation == "add_or_remove_one":
        attained, pairs = [(None, (np.array([0, 3, 2, 1, 0, 0, 0])[:d], 1))], [(None, unit) for unit in units]
    else:
        attained, pairs = opposite, [(one, other) for one in units for other in units]
    assert_sensitivity(
        lambda data: triple_interactions(data[0], fine, data[1], N_CLASSES),
        [(joined(one), joined(other)) for one, other in pairs],
        attained=[(joined(one), joined(other)) for one, other in attained],
        relation=relation,
    )


@pytest.mark.parametrize("n_fine", [0, 2, 4])
def test_the_bound_of_replaced_rows_is_the_largest_of_all_pairs_of_rows(n_fine):
    """Every two rows of four columns, by their Gram matrix."""
    fine = np.arange(4) < n_fine
    query = triple_interactions(np.zeros((0, 4), int), fine)
    factors = CONTRASTS[:, None, :] * np.where(fine[:, None], np.sqrt([0.75, 0.25, 0.25]), [1.0, 0.0, 0.0])
    rows = np.array(list(itertools.product(range(4), repeat=4)))
    released = [
        np.einsum("na,nb,nc->nabc", *(factors[rows[:, i], i] for i in triple)).reshape(len(rows), -1)
        for triple in triples_of(4)
    ]
    gram = sum(part @ part.T for part in released)
    norms = np.diag(gram)
    np.testing.assert_allclose(norms, query.add_or_remove_one**2)
    squared = norms[:, None] + norms - 2 * gram
    assert max(squared.max(), 2 * norms.max()) == pytest.approx(query.replace_one**2)


@pytest.mark.parametrize("relation", RELATIONS)
def test_triple_noise_is_at_its_scale(rng, relation):
    fine = np.arange(17) % 3 > 0
    query = triple_interactions(rng.integers(0, 4, (30, 17)), fine, rng.integers(0, 6, 30), 6)
    released = add_gaussian(query, 2.2, make_noise_generator("fast"), relation)
    sd = np.broadcast_to(2.2 * query.sensitivity(relation) / query.weights, query.value.shape)
    assert_noise_at_scale(released - exact_value(query), sd)


def test_sums_are_products_of_the_contrasts_of_each_class(rng, monkeypatch):
    codes, y = rng.integers(-1, 5, (300, 5)), rng.integers(-1, N_CLASSES, 300)
    query = triple_interactions(codes, FINE, y, N_CLASSES)
    inside = (codes >= 0) & (codes < 4)
    factors = np.where(inside[..., None], CONTRASTS[np.where(inside, codes, 0)], 0)
    factors[:, ~np.array(FINE), 1:] = 0
    for k, (t, (i, j, m)) in itertools.product(range(N_CLASSES), enumerate(triples_of(5))):
        mine = factors[y == k]
        np.testing.assert_array_equal(query.value[k, t], np.einsum("na,nb,nc->abc", mine[:, i], mine[:, j], mine[:, m]))
    monkeypatch.setattr("skdpgen.mechanisms._one_hot._CHUNK_ROWS", 7)
    assert weighted_change(triple_interactions(codes, FINE, y, N_CLASSES), query) == 0


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="at least 3 columns"):
        triple_interactions(np.zeros((5, 2), int), [True, True])
    with pytest.raises(ValueError, match="one entry for each"):
        triple_interactions(np.zeros((5, 4), int), [True] * 3)
