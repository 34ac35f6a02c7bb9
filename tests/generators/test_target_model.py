from __future__ import annotations

import copy
import functools

import numpy as np
import pytest
from _claims import RELATIONS, assert_sensitivity
from scipy.special import logsumexp
from sklearn.metrics import log_loss

from skdpgen.generators import oblivious_trees, target_step
from skdpgen.generators.oblivious_trees import ObliviousTrees, boosted_trees
from skdpgen.generators.target_model import ColumnCells, TargetModel, covered_classes
from skdpgen.generators.target_step import hides_target, initial_step
from skdpgen.mechanisms import exact_value, sum_of_rows

IS_NUMBER, N_LEVELS = np.array([True, False, True, False]), np.array([0, 6, 0, 3])
# Noise of the release over its bound and the number of rows: little, and that of a few thousand rows at epsilon 1.
LITTLE, MUCH = 1e-5, 5e-3


def _rows(n, seed=0, shift=0.0, n_classes=3):
    """Numbers, one of them with missing values and a frequent value, categories, and classes that depend on them."""
    rng = np.random.default_rng(seed)
    number, spiked = rng.normal(size=n), np.where(rng.random(n) < 0.4, 0.0, rng.gamma(2.0, 3.0, n))
    values = np.column_stack([number, rng.integers(0, 6, n), spiked, rng.integers(0, 3, n)])
    values[rng.random(n) < 0.1, 2] = np.nan
    effect = np.stack([number + shift * (values[:, 1] == 2), np.nan_to_num(spiked) / 3, 0 * number], axis=1)
    logits = effect[:, :n_classes] + [1.0, 0.0, 0.5][:n_classes]
    return values, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


@functools.cache
def _step(n_classes=3, noise=LITTLE):
    values, classes = _rows(4000, n_classes=n_classes)
    return initial_step(values, classes, np.arange(n_classes), IS_NUMBER, N_LEVELS, noise)


def _directions(step):
    return step.scale.shape[1], len(step.model.classes)


def _moved(step, at):
    """The model moved along its directions: what `corrected` does without noise, in other words."""
    n = int(step.model.cells.sizes.sum())
    change = step.scale @ at
    weights = step.model.weights + step.combinations @ change[n:]
    weights[:n] += change[:n]
    return TargetModel(step.model.classes, step.model.cells, step.model.prior, weights)


def test_gradients_are_those_of_the_log_likelihood(rng):
    step = _step()
    values, classes = _rows(20, seed=5)
    gradients = step.gradients(step.rows(values, classes)).reshape(20, *_directions(step))
    for _ in range(3):
        direction = rng.normal(size=_directions(step))
        up, down = (_moved(step, t * direction).log_probability(values, classes) for t in (1e-5, -1e-5))
        np.testing.assert_allclose((gradients * direction).sum(axis=(1, 2)), (up - down) / 2e-5, rtol=1e-4, atol=1e-6)


def test_a_row_of_a_class_without_a_model_has_no_gradient():
    values, classes = _rows(4000)
    step = initial_step(values, classes, np.array([0, 2]), IS_NUMBER, N_LEVELS, LITTLE)
    gradients = step.gradients(step.rows(values, classes))
    np.testing.assert_array_equal(np.any(gradients != 0, axis=1), classes != 1)
    drawn, chances = step.model.draw(values, np.random.default_rng(0))
    assert set(drawn) == {0, 2}
    np.testing.assert_array_equal(chances, step.model.probabilities(values))
    assert (step.model.log_probability(values, classes)[classes == 1] == 0).all()


def test_the_gradient_of_a_row_is_a_function_of_the_row_alone_to_the_last_bit(rng):
    step = _step()
    rows = step.rows(*_rows(500, seed=3))
    whole = step.gradients(rows)
    order = rng.permutation(500)
    np.testing.assert_array_equal(step.gradients(rows[order]), whole[order])
    np.testing.assert_array_equal(step.gradients(rows[77:78])[0], whole[77])


@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_of_the_gradient_is_attained_and_not_exceeded(relation):
    step = _step(2, MUCH)
    values, classes = _rows(30, seed=4, n_classes=2)
    odd = np.array([[40.0, 5, 300.0, 2], [-40.0, 0, np.nan, 0], [0.0, 2, 0.0, 1]])
    units = [(row, k) for row in odd for k in (0, 1, 2)]  # class 2 has no model

    def joined(unit):
        return (values, classes) if unit is None else (np.vstack([values, unit[0]]), np.append(classes, unit[1]))

    # of two classes, the gradients of one row with either class are opposite; both are longer than the bound
    row = odd[0]
    bound = 0.5 * min(np.linalg.norm(step.gradients(step.rows(row[None], np.array([k])))) for k in (0, 1))
    attained = [(None, (row, 0))] if relation == "add_or_remove_one" else [((row, 0), (row, 1))]
    pairs = [(None, u) for u in units] if relation == "add_or_remove_one" else [(u, v) for u in units for v in units]
    assert_sensitivity(
        lambda data: sum_of_rows(step.rows(*data), transform=step.gradients, l2_bound=bound, chunk_rows=32),
        [(joined(one), joined(other)) for one, other in pairs],
        attained=[(joined(one), joined(other)) for one, other in attained],
        relation=relation,
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_newton_step_towards_other_rows_lowers_their_loss(n_classes):
    step = _step(n_classes)
    values, classes = _rows(20_000, seed=1, shift=1.5, n_classes=n_classes)
    query = sum_of_rows(step.rows(values, classes), transform=step.gradients, l2_bound=step.bound)
    gradient = step.bound * exact_value(query)
    before, after = step.model, step.corrected(gradient, 0.0, len(values))
    fresh, labels = _rows(20_000, seed=2, shift=1.5, n_classes=n_classes)
    losses = [log_loss(labels, model.probabilities(fresh)) for model in (before, after)]
    assert losses[1] < losses[0] - 0.005
    # noise that hides the whole gradient leaves the model as it is
    np.testing.assert_allclose(step.corrected(gradient, 1e12, len(values)).weights, before.weights, atol=1e-9)


@pytest.mark.parametrize("noise", [LITTLE, MUCH])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_directions_diagonalise_the_hessian_of_synthetic_rows(n_classes, noise):
    step = _step(n_classes, noise)
    values, classes = _rows(4000, n_classes=n_classes)
    rows = step.rows(values, classes)
    chances = step.model.probabilities(values)
    variances = np.maximum(chances * (1 - chances), target_step._LEAST_VARIANCE).sum(axis=1) / n_classes
    directions = step._directions(rows[:, :-1].astype(int))
    hessian = (directions * variances[:, None]).T @ directions / len(values)
    np.testing.assert_allclose(hessian, np.diag(step.energy), atol=1e-3)
    assert step.energy.sum() == pytest.approx(1)
    norms = np.linalg.norm(step.gradients(rows), axis=1)
    assert np.mean(norms <= step.bound) == pytest.approx(target_step._CLIPPED, abs=0.002)


def test_directions_that_the_noise_hides_are_left_out_and_the_rest_loses_least():
    little, much = _step(), _step(noise=MUCH)
    assert 0 < len(much.energy) < len(little.energy)
    h, energy = much.hessian, much.energy

    def lost(energy):
        return np.sum(h * MUCH**2 / (MUCH**2 + energy * h))

    rng = np.random.default_rng(0)
    assert all(lost(energy) < lost(rng.dirichlet(50 * energy + 1)) for _ in range(50))


def test_close_cells_of_a_number_are_expected_to_change_alike():
    cells = _step().model.cells
    root = target_step._expected_changes(cells, 2, MUCH)
    covariance = root @ root.T
    variance = target_step._CHANGE_OF_CELL**2
    start = int(cells.sizes[:2].sum())
    spiked, missing = covariance[start : start + cells.sizes[2]], start + int(cells.sizes[2]) - 1
    assert variance > spiked[0, start + 1] > spiked[0, start + 5] > 0
    assert np.flatnonzero(covariance[missing]).tolist() == [missing]
    np.testing.assert_allclose(np.diag(covariance)[:-2], variance)
    np.testing.assert_allclose(np.diag(covariance)[-2:], target_step._CHANGE_OF_FACTOR**2)
    less = [target_step._expected_changes(cells, 2, noise)[0, 0] for noise in (MUCH, 1e-3, 0.0)]
    assert less == pytest.approx([target_step._CHANGE_OF_CELL, 2**1.5 * target_step._CHANGE_OF_CELL, 2.0])


def test_the_noise_hides_the_target_of_few_rows_and_of_one_class():
    assert not hides_target(np.array([2000.0, 1000.0]), 16.0)
    assert hides_target(np.array([1000.0, 500.0]), 16.0)
    assert not hides_target(np.array([1000.0, 500.0]), 8.0)
    assert hides_target(np.array([30_000.0, 1.0]), 16.0)
    assert hides_target(np.zeros(2), 0.0)


def test_cells_follow_the_rows():
    values, _ = _rows(4000)
    cells = ColumnCells.of_rows(values, IS_NUMBER, N_LEVELS)
    codes = cells.codes(values)
    assert (codes < cells.sizes).all()
    assert (codes >= 0).all()
    spiked = codes[:, 2]
    assert len(set(spiked[values[:, 2] == 0])) == 1  # a frequent value has its own cell
    assert set(values[spiked == spiked[values[:, 2] == 0][0], 2]) == {0.0}
    assert set(spiked[np.isnan(values[:, 2])]) == {cells.sizes[2] - 1}
    counts = np.bincount(codes[:, 0])
    assert counts.max() < 1.3 * 4000 / 32
    rare = ColumnCells.of_rows(np.array([[0.0]] * 1000 + [[1.0]] * 3 + [[2.0]] * 3), np.array([False]), np.array([4]))
    assert rare.levels[0].tolist() == [0, 1, 1, 1]


def test_columns_of_few_categories_leave_their_cells_to_others(rng):
    few = np.array([120, 2, 3, 2, 2, 2])
    values = rng.integers(0, few, (20_000, 6)).astype(float)
    assert ColumnCells.of_rows(values, few == 0, few).sizes.tolist() == few.tolist()
    many = np.full(40, 60)
    sizes = ColumnCells.of_rows(rng.integers(0, many, (20_000, 40)).astype(float), many == 0, many).sizes
    assert sizes.tolist() == [12] * 40  # 512 cells, the same number of each column
    numbers = ColumnCells.of_rows(rng.normal(size=(20_000, 3)), np.ones(3, dtype=bool), np.zeros(3, dtype=int)).sizes
    assert numbers.tolist() == [33] * 3  # 32, and one of missing values


def test_pairs_and_triples_of_columns_that_decide_the_class_are_found():
    rng = np.random.default_rng(0)
    flags = rng.integers(0, 2, (20_000, 8))
    for columns in ((0, 3), (1, 4, 6)):
        parity = flags[:, list(columns)].sum(axis=1) % 2
        classes = np.where(rng.random(20_000) < 0.1, 1 - parity, parity)
        step = initial_step(flags.astype(float), classes, np.arange(2), np.zeros(8, bool), np.full(8, 2), LITTLE)
        found = step.model.cells.pairs if len(columns) == 2 else step.model.cells.triples
        assert list(columns) in found.tolist()
        right = step.model.probabilities(flags.astype(float)).argmax(axis=1) == parity
        assert right.mean() > 0.99


def test_trees_find_how_columns_act_together_and_come_back_from_their_leaves():
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, 9, 20_000), rng.integers(0, 4, 20_000), rng.integers(0, 5, 20_000)], axis=1)
    ranks = (np.arange(9), np.array([2, 0, 3, 1]), np.arange(5))
    upper = (codes[:, 0] >= 4) ^ np.isin(codes[:, 1], [0, 2])  # ranks of 2 and 3
    classes = (rng.random(20_000) < np.where(upper, 0.9, 0.1)).astype(int)
    trees, values = boosted_trees(codes, ranks, np.eye(2)[classes], np.zeros(2))
    leaves = np.stack(trees.leaves(list(codes.T)), axis=1)
    starts = np.cumsum(trees.sizes) - trees.sizes
    logits = values[starts + leaves].sum(axis=1)
    assert np.mean(logits.argmax(axis=1) == upper) > 0.99
    chances = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    assert chances[upper].mean() == pytest.approx(0.9, abs=0.02)
    assert not leaves.size or (leaves.min() >= 0 and leaves.max() < trees.sizes[0])
    assert ObliviousTrees.none().leaves(list(codes.T)) == []


def test_splits_have_the_best_gain():
    rng = np.random.default_rng(3)
    residual, variance = rng.normal(size=(4, 7)), rng.random((4, 7))
    found = oblivious_trees._gains_of_splits(residual, variance)
    for at in range(6):
        sides = slice(None, at + 1), slice(at + 1, None)
        gain = sum(
            (residual[:, side].sum(axis=1) ** 2 / (variance[:, side].sum(axis=1) + oblivious_trees._RIDGE)).sum()
            for side in sides
        )
        assert found[at] == pytest.approx(gain)


def test_the_first_model_trusts_tables_of_more_noise_less():
    n, spread = int(_step().model.cells.sizes.sum()), []
    for noise in (LITTLE, MUCH / 5, MUCH):
        weights = _step(noise=noise).model.weights[:n]
        spread.append(np.square(weights - weights.mean(axis=1, keepdims=True)).sum())
    assert spread[0] > 1.1 * spread[1]
    assert spread[1] > 1.5 * spread[2]


def test_cells_of_few_rows_learn_from_close_cells(monkeypatch):
    rng = np.random.default_rng(3)
    # a twentieth of the rows have an amount; its cells have about thirty rows each
    amount = np.where(rng.random(20_000) < 0.95, 0.0, rng.uniform(0, 4, 20_000))
    true = np.where(amount > 0, amount - 2, -1.5)
    classes = (rng.logistic(size=20_000) < true).astype(np.int64)
    lost = []
    for common in (target_step._COMMON, 0.0):
        monkeypatch.setattr(target_step, "_COMMON", common)
        step = initial_step(amount[:, None], classes, np.arange(2), IS_NUMBER[:1], N_LEVELS[:1], MUCH / 5)
        logits = step.model.logits(step.model.cells.codes(amount[:, None]))
        lost.append(np.square((logits[:, 1] - logits[:, 0] - true)[amount > 0]).mean())
    assert lost[0] < 0.7 * lost[1]


def test_the_prior_follows_the_shares():
    step = _step()
    values, _ = _rows(4000)
    shares = np.array([0.05, 0.9, 0.05])
    model = step.model.with_shares(values, shares)
    np.testing.assert_allclose(model.probabilities(values).mean(axis=0), shares, atol=0.01)
    np.testing.assert_array_equal(model.weights, step.model.weights)


def test_the_shares_that_have_a_model():
    assert covered_classes([0.5, 0.0005, 0.4, 0.0995]).tolist() == [0, 2, 3]
    assert len(covered_classes(np.full(100, 0.01))) == 20
    assert covered_classes([0.0, 1.0]).tolist() == [1]
    assert covered_classes([0.0, 0.0]).tolist() == [0]


def test_a_model_of_one_class_has_nothing_to_learn():
    values, classes = _rows(1000)
    step = initial_step(values, np.full(1000, 2), np.array([2]), IS_NUMBER, N_LEVELS, LITTLE)
    gradients = step.gradients(step.rows(values, classes))
    assert gradients.shape == (1000, 1)
    assert not gradients.any()
    model = step.corrected(np.array([123.0]), 1.0, 1000.0)
    assert (model.probabilities(values) == 1).all()


def test_a_model_comes_back_from_its_state_and_a_bad_state_is_refused():
    model, (values, _) = _step().model, _rows(100, seed=8)
    state = model.to_state()
    same = TargetModel.from_state(copy.deepcopy(state), IS_NUMBER, N_LEVELS, 3)
    np.testing.assert_array_equal(same.probabilities(values), model.probabilities(values))
    assert logsumexp(np.log(model.probabilities(values)), axis=1) == pytest.approx(0, abs=1e-12)

    def changed(**parts):
        bad = copy.deepcopy(state)
        for path, value in parts.items():
            *way, last = path.split("__")
            functools.reduce(lambda at, name: at[name], way, bad)[last] = value
        return bad

    first = state["cells"]["columns"]["0"]
    for bad in (
        changed(classes=np.array([0, 1, 3])),
        changed(classes=np.array([0, 0, 1])),
        changed(classes=np.array([1])),
        changed(classes=np.array([2, 1, 0], dtype=np.uint8)),
        changed(prior=np.zeros(2)),
        changed(prior=np.array([0.0, 1e3, 0.0])),
        changed(cells__columns__0__levels=np.arange(3)),
        changed(cells__columns__1__levels=np.zeros(0, dtype=np.int64)),
        changed(weights=state["weights"][1:]),
        changed(cells__pairs=np.array([[0, 9]])),
        changed(cells__triples=np.array([[0, 1]])),
        changed(cells__columns__0__edges=first["edges"][::-1].copy()),
        changed(cells__columns__0__parts=first["parts"] + 4),
        changed(cells__columns__1__levels=np.array([-1, 0, 1, 2, 3, 4])),
        changed(cells__trees__columns=state["cells"]["trees"]["columns"] + 4),
        changed(cells__trees__columns=state["cells"]["trees"]["columns"][:, :3]),
        changed(cells__trees__thresholds=state["cells"]["trees"]["thresholds"] + 0.5),
        changed(cells__trees__ranks__0=np.arange(3)),
    ):
        with pytest.raises(ValueError, match="target's model"):
            TargetModel.from_state(bad, IS_NUMBER, N_LEVELS, 3)
    old = copy.deepcopy(state)  # a file of an earlier version has no trees
    del old["cells"]["trees"]
    old["weights"] = state["weights"][: -int(model.cells.trees.sizes.sum())]
    assert np.isfinite(TargetModel.from_state(old, IS_NUMBER, N_LEVELS, 3).probabilities(values)).all()
    for is_number, n_levels in (
        (np.append(IS_NUMBER, True), np.append(N_LEVELS, 0)),
        (~IS_NUMBER, N_LEVELS),
        (IS_NUMBER, N_LEVELS + 1),
    ):
        with pytest.raises(ValueError, match="target's model"):
            TargetModel.from_state(copy.deepcopy(state), is_number, n_levels, 3)
