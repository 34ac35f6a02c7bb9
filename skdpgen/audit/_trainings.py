"""Audits by many short trainings with one canary, and as many without it."""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from ..accounting import PrivacyAccountant, gaussian_epsilon, gaussian_mu
from ..utils.printing import shown
from ..utils.progress import progress_bar, shows_bars
from ..utils.watching import watch_releases
from ._audit import AuditResult, check_plan
from ._runs import bounds_of_distances
from ._sampled import SampledScores, scores_of_steps

# Expected members of a group in a step: no group is ever empty, so that without the canary all gradients point one way.
_MEMBERS = 30
# Size of gradients before they are clipped, as a multiple of the largest bound.
_BEYOND = 10.0


def audit_trainings(plan, *, delta=1e-5, trainings=2000, confidence=0.95, noise_scale=1.0, progress=False):
    """Bound epsilon of DP-SGD from below by many trainings, half of them with one canary among the records.

    For term-wise DP-SGD with few groups, which one training among many canaries says nothing about: there the
    gradient of a group is clipped as a whole, and many canaries hide each other. Here one canary turns the gradient of
    its group round, and so changes the released sum by all that is charged: C1 + 2 C2 B/b. A training has one parameter
    and takes milliseconds.

    Parameters
    ----------
    plan : DPSGDPlan or TermwisePlan
        The plan under audit. Its numbers are used; the plan itself stays unused, and no ledger of yours is charged.
    delta : float, default=1e-5
    trainings : int, default=2000
        Number of trainings in all.
    confidence : float, default=0.95
    noise_scale : float, default=1.0
        Noise of the trainings over that of the plan; with 0.5 the claim is to be refuted.
    progress : bool, default=False
        Show a bar of trainings, on a terminal or in a notebook.

    Returns
    -------
    AuditResult
        If every record takes part in every step, as by `audit` with ``method="likelihood"``: ``details["mu_lower"]``
        takes what the canary adds from the plan, and the noise from all trainings; ``details["mu_by_shift"]`` is from
        the shift between trainings with the canary and without it alone. Otherwise as by `audit_training`.

    Raises
    ------
    ValueError
        For a plan without noise, or numbers out of range.

    Examples
    --------
    >>> from skdpgen.audit import audit_trainings
    >>> from skdpgen.dpsgd import TermwisePlan
    >>> plan = TermwisePlan(1.0, 1, noise_multiplier=1.0, expected_batch_size=64, n_groups=4)
    >>> result = audit_trainings(plan, trainings=200, confidence=0.99999)
    >>> 2 < result.epsilon_lower < result.epsilon_claimed
    True
    """
    check_plan(plan, confidence, noise_scale)
    if not (isinstance(trainings, int) and trainings >= 20):
        raise ValueError(f"trainings must be a whole number of at least 20; got {shown(trainings)}")
    start = time.perf_counter()
    claimed, half = plan.epsilon(delta), trainings // 2
    base, reach = _ends(plan)
    sides = [(side - base) / reach for side in _trained(plan, half, noise_scale, progress)]
    noise, details = plan.noise_std / reach, {"noise_scale": noise_scale}
    if plan.sampling_rate == 1:
        # the sum over the steps is all that matters; distances in units of its noise
        without, within = (side.mean(axis=1) * math.sqrt(plan.steps) / noise for side in sides)
        added = math.sqrt(plan.steps) / noise
        distances = [np.stack([side, np.full(half, added)], axis=1) for side in (added - without, within)]
        details.update(bounds_of_distances(*distances, confidence))
        details["mu_claimed"] = math.sqrt(plan.steps) / plan.noise_multiplier
        found = gaussian_epsilon(details["mu_lower"], delta)
    else:
        scores = [scores_of_steps(side, noise, plan.sampling_rate).sum(axis=1) for side in sides]
        model = SampledScores(plan.sampling_rate, plan.steps, noise)
        details.update(model.bound(*scores, confidence))
        found = model.epsilon(details["noise_upper"] if details["fits"] else None, plan, delta)
        details["mu_claimed"], details["mu_lower"] = (gaussian_mu(e, delta) if e else 0.0 for e in (claimed, found))
    seconds = time.perf_counter() - start
    return AuditResult(found, claimed, delta, confidence, "trainings", 2 * half, seconds, details)


def _ends(plan):
    """Sum of the clipped gradients of a step without the canary, and what the canary adds to it."""
    if not plan.needs_groups:
        return 0.0, plan.clip_norm
    slack = 1 + plan.slack
    groups = plan.group_bound * plan.group_weight / slack
    return -groups * plan.n_groups, plan.sample_bound / slack + 2 * groups


def _trained(plan, n, noise_scale, progress):
    """Released sums of n trainings without the canary, and of n with it: two arrays of shape (n, steps)."""
    trained = {"noise_multiplier": plan.noise_multiplier * noise_scale}
    with progress_bar(total=2 * n, phase="audit", shown=progress and shows_bars("auto"), unit="fit") as bar:
        sides = []
        for has_canary in (False, True):
            sides.append([])
            for _ in range(n):
                sides[-1].append(_train(dataclasses.replace(plan, **trained), has_canary))
                bar.update()
    return [np.array(side) for side in sides]


def _train(plan, has_canary):
    """Released sum of each step of one training, shape (steps,)."""
    from ..nn import DPNet
    from ..nn._modules import TurningModule

    # a new plan, charged to an accountant that is dropped at once: the records are dummy data
    PrivacyAccountant(math.inf, neighboring=plan.neighboring).charge(plan, "audit of a training")
    others = math.ceil(_MEMBERS * getattr(plan, "n_groups", 1) / plan.sampling_rate)
    rows, released = np.zeros((others + has_canary, 1), dtype=np.int64), []
    rows[others:] = 1
    net = DPNet(
        TurningModule, module__reach=_BEYOND * max(1.0, plan.l2_bound), plan=plan, verbose=0, random_state=0, lr=0.0
    )
    with watch_releases(lambda gradient, sd, kind: released.append(float(gradient[0]))):
        net.fit(rows)
    return np.array(released)
