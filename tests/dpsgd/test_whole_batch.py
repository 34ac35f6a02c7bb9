"""The paper's micro and batch aggregation: 2 C is attained and not exceeded, and no record's gradient is formed."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from _charged import charged
from test_termwise import Groups, Line, Scripted, Trained, Wide

from skdpgen.dpsgd import DPSGDPlan, LossModule, PartedPlan, TermwisePlan, WholeBatchAggregate, WholeBatchPlan
from skdpgen.nn import DPNet


def change(one, other):
    return float(sum((a.double() - b.double()).square().sum() for a, b in zip(one.value, other.value)) ** 0.5)


def whole(module, x, aggregation, bound=0.4, **changes):
    settings = {"sampling_rate": 0.1, "steps": 10, "noise_multiplier": 1.0, "expected_batch_size": 8.0}
    plan = WholeBatchPlan(**{**settings, **changes}, gradient_bound=bound, aggregation=aggregation)
    make = plan.make_aggregate(LossModule(module), Scripted([0]), group_root=Groups(module))
    return make(torch.as_tensor(x, dtype=torch.float32)), plan


@pytest.mark.parametrize("aggregation", ["micro", "batch"])
def test_whole_batch_sensitivity_is_attained_and_not_exceeded(aggregation):
    """2 C under both relations: the clipped gradient of a batch may turn round."""
    small = type("Still", (Line,), {"forward": lambda self, x: 0 * self.line(x)[:, 0]})
    one, plan = whole(small(), [[-1.0]], aggregation)
    assert plan.l2_bound == 2 * 0.4 * 8
    assert one.sensitivity("add_or_remove_one") == one.sensitivity("replace_one") == plan.l2_bound
    for joined in ([[-1.0], [1.0]], [[1.0]]):
        other, _ = whole(small(), joined, aggregation)
        assert 0.999 <= change(one, other) * (1 + plan.slack) / plan.l2_bound <= 1 + 1e-6
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    for scale in (1e-3, 1.0, 1e3):
        module = Wide()
        for size in (0, 1, 9):
            x = rng.normal(size=(size + 1, 3)) * scale
            values = [whole(module, rows, aggregation)[0] for rows in (x, x[:-1], np.vstack([x[:-1], -x[-1:]]))]
            assert max(change(values[0], v) for v in values) * (1 + plan.slack) <= plan.l2_bound * (1 + 1e-5)


KINDS = ("records", "parts", "term-wise", "micro", "batch")


def made(kind):
    """One aggregate of each kind, for rows of three columns."""
    torch.manual_seed(0)
    module = Wide()
    root, settings = LossModule(module), {"sampling_rate": 0.1, "steps": 10, "noise_multiplier": 1.0}
    settings.update(expected_batch_size=8.0)
    if kind == "records":
        return DPSGDPlan(l2_bound=0.4, **settings).make_aggregate(root, None)
    if kind == "parts":
        module.part_of = lambda x: (x[:, 0] > 0).long()
        module.only = lambda part: contextlib.nullcontext()
        return PartedPlan(l2_bound=0.4, part_batch_sizes=(4.0, 4.0), **settings).make_aggregate(root, None)
    own = {"n_groups": 2} if kind == "term-wise" else {"aggregation": kind}
    plan = (TermwisePlan if kind == "term-wise" else WholeBatchPlan)(**settings, **own)
    return plan.make_aggregate(root, Scripted([0, 1, 0, 1]), group_root=Groups(module))


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_that_was_interrupted_leaves_nothing_to_the_next(kind):
    """Its records were not drawn for the next step: with them, a record would count in steps that are not its own."""
    x, left = torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), 5 + torch.ones(4, 3)
    fresh, used = made(kind), made(kind)
    used.reset()
    used.add(left)  # and no result: an error came between
    expected, empty = [v.clone() for v in fresh(x).value], [v.clone() for v in fresh(x[:0]).value]
    for rows, values in ((x, expected), (x[:0], empty)):
        for one, other in zip(used(rows).value, values):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
        used.reset()
        used.add(left)
    assert any(v.any() for v in expected)
    assert not any(v.any() for v in empty)


def test_micro_aggregation_is_the_mean_of_clipped_gradients_by_hand():
    torch.manual_seed(0)
    module, x = Wide(), torch.randn(6, 3)
    value, plan = whole(module, x, "micro")
    parameters = list(module.parameters())
    expected = [torch.zeros_like(p) for p in parameters]
    for i in range(6):
        loss = module(x)[i] + module.group_losses(x[None], torch.ones(1, 6)).sum()
        gradient = torch.autograd.grad(loss, parameters)
        norm = float(torch.cat([g.flatten() for g in gradient]).norm())
        for out, g in zip(expected, gradient):
            out += g * min(1.0, 0.4 / (1 + plan.slack) / norm) * 8 / 6
    for a, b in zip(value.value, expected):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("aggregation", ["micro", "batch"])
def test_whole_batch_plans_train_and_mask_what_is_not_finite(aggregation):
    torch.manual_seed(0)
    module = Wide()
    x = torch.randn(4, 3)
    x[1] = torch.inf
    assert not any(v.any() for v in whole(module, x, aggregation)[0].value)
    empty, plan = whole(module, torch.zeros(0, 3), aggregation)
    assert not any(v.any() for v in empty.value)
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    net = DPNet(Trained, plan=charged(plan), verbose=0, random_state=0).fit(X)
    assert net.steps_taken_ == 10
    assert isinstance(plan.make_aggregate(LossModule(module), None, group_root=Groups(module)), WholeBatchAggregate)
    for changes in ({"bound": 0.0}, {"aggregation": "macro"}):
        with pytest.raises(ValueError, match=r"gradient_bound|aggregation"):
            whole(module, x, **{"aggregation": aggregation, **changes})
