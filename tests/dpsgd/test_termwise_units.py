"""Terms of groups by units of several rows: a unit lies in one group as a whole, and moves it by 2 C2 at most."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_termwise import Groups, Line, Scripted, Wide, make_plan, sum_by_hand

from skdpgen._types import BoundedUnit
from skdpgen.dpsgd import LossModule, TermwiseAggregate, WholeBatchAggregate, WholeBatchPlan
from skdpgen.dpsgd._termwise import one_row_of_each
from skdpgen.dpsgd._units import RowUnits
from skdpgen.utils.noise import make_noise_generator


class ScriptedRows(Scripted):
    """Groups as written down, and always the first row of a unit."""

    def random(self, size):
        return np.zeros(size)


def plan_of(n_groups=1, weighting="rows", **changes):
    return make_plan(n_groups, unit=BoundedUnit("person", 6, weighting), **changes)


def aggregate(module, x, units, labels, plan, path="fast"):
    """`labels` are the groups of the units, in the order of their numbers."""
    x, places = torch.as_tensor(x, dtype=torch.float32), np.zeros(len(x), dtype=np.int64)
    places[: len(labels)] = labels
    engine = TermwiseAggregate(
        LossModule(module), Groups(module), plan, ScriptedRows(places), path=path, group_path=path
    )  # fmt: skip
    found = engine(x, units=np.asarray(units))
    return torch.cat([part.flatten().double() for part in found.value]), found


def unit_of_a_group_moves_the_sum_as_stated(relation):
    plan = plan_of(neighboring=relation)
    one, bounded = aggregate(Line(), [[-1.0]], [0], [0], plan)
    if relation == "add_or_remove_one":
        other, _ = aggregate(Line(), [[-1.0], [1.0], [1.0], [1.0]], [0, 1, 1, 1], [0, 0], plan)
    else:
        other, _ = aggregate(Line(), [[1.0], [1.0]], [0, 0], [0], plan)
    reached = float((one - other).norm()) * (1 + plan.slack) / bounded.sensitivity(relation)
    assert 0.999 <= reached <= 1 + 1e-6
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    plan = plan_of(4, neighboring=relation)
    for scale in (1e-3, 1.0, 1e3):
        module = Wide()
        for k in (1, 2, 6):
            units = np.array([0, 0, 1, 2, 2, 2, 3])
            x, labels = rng.normal(size=(7 + k, 3)) * scale, rng.integers(0, 4, 5)
            with_unit, _ = aggregate(module, x, np.append(units, [9] * k), labels, plan)
            if relation == "add_or_remove_one":
                neighbour, _ = aggregate(module, x[:7], units, labels[:4], plan)
            else:
                neighbour, _ = aggregate(module, np.vstack([x[:7], -x[-1:]]), np.append(units, 9), labels, plan)
            moved = float((with_unit - neighbour).norm()) * (1 + plan.slack)
            assert moved <= bounded_sensitivity(plan, relation) * (1 + 1e-5)


def bounded_sensitivity(plan, relation):
    return plan.l2_bound if relation == "add_or_remove_one" else plan.difference_bound


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_a_unit_moves_records_and_its_group_as_stated_and_no_further(relation):
    unit_of_a_group_moves_the_sum_as_stated(relation)


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_the_sum_is_that_of_clipped_units_and_groups_by_hand(weighting):
    torch.manual_seed(0)
    module, plan = Wide(), plan_of(2, weighting)
    x, units, labels = torch.randn(9, 3), np.array([0, 1, 1, 2, 3, 3, 3, 0, 4]), [0, 1, 1, 0, 1]
    terms = []
    for unit in range(5):
        losses = module(x[units == unit])
        terms.append((losses.sum() if weighting == "rows" else losses.mean(), 0.3, 1.0))
    first = [int(np.flatnonzero(units == unit)[0]) for unit in range(5)]
    for group in range(2):
        rows = np.array(labels)[units] == group
        if weighting == "units":  # one row of each unit, here the first
            rows &= np.isin(np.arange(9), first)
        rows = x[torch.from_numpy(rows)]
        terms.append((module.group_losses(rows[None], torch.ones(1, len(rows)))[0], 0.07, 4.0))
    expected = sum_by_hand(module, terms, plan)
    for path in ("fast", "loop"):
        found, _ = aggregate(module, x, units, labels, plan, path=path)
        torch.testing.assert_close(
            found, torch.cat([part.flatten().double() for part in expected]), rtol=1e-2, atol=2e-4
        )


def test_chunks_of_whole_units_add_up_to_the_batch():
    torch.manual_seed(0)
    module, plan = Wide(), plan_of(2)
    x, units = torch.randn(6, 3), np.array([0, 0, 1, 1, 1, 2])
    whole, _ = aggregate(module, x, units, [0, 1, 0], plan)
    parts = TermwiseAggregate(LossModule(module), Groups(module), plan, ScriptedRows([0]))
    parts.reset()
    for rows, labels in ((slice(0, 2), [0]), (slice(2, 6), [1, 0])):
        chunk, codes = torch.full((5, 3), 7.0), np.full(5, -1)
        chunk[: len(x[rows])], codes[: len(x[rows])] = x[rows], units[rows]
        parts._rng = ScriptedRows(np.resize(labels, 5))
        parts.add(chunk, mask=torch.from_numpy(codes >= 0), units=codes)
    found = torch.cat([part.flatten().double() for part in parts.result().value])
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-6)


def test_a_unit_that_is_not_finite_masks_itself_and_its_group_alone():
    torch.manual_seed(0)
    module, plan = Wide(), plan_of(2)
    x, units = torch.randn(6, 3), np.array([0, 0, 1, 1, 2, 2])
    x[1] = torch.nan
    found, _ = aggregate(module, x, units, [0, 1, 1], plan)
    others, _ = aggregate(module, x[2:], units[2:], [1, 1], plan)
    torch.testing.assert_close(found, others, rtol=1e-4, atol=1e-6)


def test_one_row_of_each_unit_is_drawn_uniformly_and_independently():
    units = RowUnits(np.array([4, 2, 4, -1, 2, 4, 0]))
    counts, rng = np.zeros(7), make_noise_generator("fast")
    for _ in range(3000):
        chosen = one_row_of_each(units, rng)
        assert chosen.sum() == 3
        counts += chosen
    np.testing.assert_allclose(counts / 3000, [1 / 3, 0.5, 1 / 3, 0, 0.5, 1 / 3, 1], atol=0.05)


@pytest.mark.parametrize("weighting", ["rows", "units"])
@pytest.mark.parametrize("aggregation", ["batch", "micro"])
def test_a_whole_batch_is_bounded_as_a_vector(weighting, aggregation):
    torch.manual_seed(0)
    module = Wide()
    plan = WholeBatchPlan(
        0.1, 5, noise_multiplier=1.0, expected_batch_size=8.0, gradient_bound=0.2, aggregation=aggregation,
        unit=BoundedUnit("person", 6, weighting),
    )  # fmt: skip
    engine = WholeBatchAggregate(LossModule(module), Groups(module), plan, make_noise_generator("fast"))
    x, units = torch.randn(9, 3) * 30, np.array([0, 1, 1, 2, 3, 3, 3, 0, 4])
    for rows in (slice(None), slice(0, 8)):
        found = engine(x[rows], units=units[rows])
        assert float(torch.cat([part.flatten() for part in found.value]).norm()) <= 0.2 * 8
        assert found.add_or_remove_one == 2 * 0.2 * 8
    with pytest.raises(ValueError, match="plan that has a unit"):
        engine(x)
