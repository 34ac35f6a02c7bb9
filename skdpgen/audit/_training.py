"""audit_training: one training by DP-SGD among many canaries, whose gradients are orthogonal to each other."""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from ..accounting import PrivacyAccountant, delta_pld, gaussian_epsilon, gaussian_mu, poisson_gaussian_event
from ..utils.watching import watch_releases
from ._audit import AuditResult
from ._bounds import epsilon_from_guesses, error_bounds, mu_from_shift

__all__ = ["audit_training"]

# Of a canary's gradient, over the bound to which it is clipped.
_BEYOND = 10.0
# Slopes of the lines under a trade-off curve, as epsilons: errors of nearly equal size touch it near slope 1. Fewer
# lines make the bound smaller, never wrong.
_SLOPES = (0.0, 0.2, 0.5, 1.0)
# Of the noise that is looked for over the plan's, and how often the interval is halved: to about 1 %.
_MOST_NOISE, _BISECTIONS = 4.0, 8
# Share of the canaries that find the threshold, and are not judged.
_BEFORE = 0.2


def audit_training(plan, *, delta=1e-5, canaries=20_000, guesses=None, confidence=0.95, noise_scale=1.0, rng=None):
    """Bound epsilon of DP-SGD from below by one training in which each of many canaries is put in by a coin of its own.

    The net is linear: each canary has a parameter of its own, and its gradient lies along it, far beyond the bound. So
    canaries do not hide each other, and a parameter's released gradients tell whether its canary was there. The
    training is that of `skdpgen.nn.DPNet`: its Poisson batches, clipping, groups and noise.

    Parameters
    ----------
    plan : DPSGDPlan or TermwisePlan
        The plan under audit. Its numbers are used; the plan itself stays unused, and no ledger of yours is charged.
    delta : float, default=1e-5
    canaries : int, default=20000
    guesses : int or None, default=None
        How many of the most telling scores are guessed on; None is what serves a Gaussian mechanism of the claim best.
    confidence : float, default=0.95
        Of each of the two bounds.
    noise_scale : float, default=1.0
        Noise of the training over that of the plan; with 0.5 the claim is to be refuted.
    rng : numpy.random.Generator or None, default=None
        Of the coins.

    Returns
    -------
    AuditResult
        ``epsilon_lower`` is the bound by the trade-off of errors among the canaries: by their shift where every record
        takes part in every step, else by errors at a threshold that a fifth of the canaries found, and the trade-off
        curve of sampled steps of *some* noise. It assumes Gaussian noise, independent from parameter to parameter.
        ``details["epsilon_by_guesses"]`` assumes nothing, and shows less.

    Notes
    -----
    In term-wise DP-SGD a canary shares its group with others, so its part of the group's gradient stays below the
    2 C2 that are charged: the more groups, and the smaller C2, the closer the bound comes to the claim.

    References
    ----------
    T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023; M. Nasr et al.,
    "Tight auditing of differentially private machine learning", USENIX Security 2023; G. Andrew et al., "One-shot
    empirical privacy estimation for federated learning", ICLR 2024.

    Examples
    --------
    >>> from skdpgen.audit import audit_training
    >>> from skdpgen.dpsgd import DPSGDPlan
    >>> plan = DPSGDPlan(1.0, 1, 1.0, noise_multiplier=1.0, expected_batch_size=250)
    >>> result = audit_training(plan, canaries=500)
    >>> 2 < result.epsilon_lower < result.epsilon_claimed
    True
    """
    if plan.neighboring == "replace_one":
        raise ValueError("audit_training puts records in or leaves them out, which replace_one promises nothing about")
    if not plan.private:
        raise ValueError("a plan without noise claims nothing that an audit could refute")
    if not (isinstance(canaries, int) and canaries >= 20):
        raise ValueError(f"canaries must be a whole number of at least 20; got {canaries!r}")
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must lie in (0.5, 1); got {confidence!r}")
    if not noise_scale > 0:
        raise ValueError(f"noise_scale must be positive; got {noise_scale!r}")
    rng = np.random.default_rng() if rng is None else rng
    start = time.perf_counter()
    claimed = plan.epsilon(delta)
    chosen = rng.random(canaries) < 0.5
    guesses = _best_guesses(claimed, delta, canaries, confidence) if guesses is None else int(guesses)
    # a new plan, charged to an accountant that is dropped at once: the records are dummy data
    trained = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier * noise_scale)
    PrivacyAccountant(math.inf, neighboring=plan.neighboring).charge(trained, "audit of a training")
    scores = _train(trained, plan, chosen)
    order = np.argsort(scores)
    low, high = order[: guesses // 2], order[canaries - (guesses - guesses // 2) :]
    correct = int((~chosen[low]).sum() + chosen[high].sum())
    details = {
        "canaries": canaries,
        "guesses": guesses,
        "correct": correct,
        "epsilon_by_guesses": epsilon_from_guesses(correct, guesses, canaries, delta, confidence),
        "noise_scale": noise_scale,
    }
    if plan.sampling_rate == 1:
        details["mu_claimed"] = math.sqrt(plan.steps) / plan.noise_multiplier
        details["mu_lower"] = mu_from_shift(scores[~chosen], scores[chosen], confidence)
        found = gaussian_epsilon(details["mu_lower"], delta)
    else:
        first = int(_BEFORE * canaries)
        threshold = _middle(scores[:first], chosen[:first])
        without, within = scores[first:][~chosen[first:]], scores[first:][chosen[first:]]
        alarms, misses = int((without > threshold).sum()), int((within <= threshold).sum())
        details.update(false_positives=alarms, false_negatives=misses)
        errors = error_bounds(alarms, len(without), misses, len(within), confidence)
        found = _epsilon_of_errors(*errors, plan, delta)
    seconds = time.perf_counter() - start
    return AuditResult(found, claimed, delta, confidence, "one_training", 1, seconds, details)


def _train(plan, claimed, chosen):
    """Log-likelihood ratio of each canary, under the noise that is claimed."""
    from ..nn import DPNet
    from ..nn._modules import CanaryModule

    reach, rate = claimed.clip_norm, claimed.sampling_rate
    if claimed.needs_groups:
        reach = claimed.sample_bound / (1 + claimed.slack)
    scores = np.zeros(len(chosen))

    def watcher(gradient, sd, kind):
        ratio = reach * (gradient - reach / 2) / claimed.noise_std**2
        # a record that was not drawn adds nothing
        scores[:] += ratio if rate == 1 else np.logaddexp(math.log1p(-rate), math.log(rate) + ratio)

    net = DPNet(
        CanaryModule,
        module__n_canaries=len(chosen),
        module__reach=_BEYOND * max(1.0, claimed.l2_bound),
        plan=plan,
        verbose=0,
        random_state=0,
    )
    with watch_releases(watcher):
        net.fit(np.flatnonzero(chosen)[:, None])
    return scores


def _best_guesses(epsilon, delta, canaries, confidence):
    """Number of guesses for which a Gaussian mechanism of the claim shows most: of public numbers alone."""
    mu = gaussian_mu(min(epsilon, 50.0), delta)
    rng = np.random.default_rng(0)
    inside = rng.random(canaries) < 0.5
    order = np.argsort(rng.normal(size=canaries) + mu * inside)
    best = (-1.0, 2)
    for share in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        guesses = max(2, round(share * canaries))
        half = guesses // 2
        correct = int((~inside[order[:half]]).sum() + inside[order[canaries - (guesses - half) :]].sum())
        best = max(best, (epsilon_from_guesses(correct, guesses, canaries, delta, confidence), guesses))
    return best[1]


def _epsilon_of_errors(alarm, miss, plan, delta):
    """Epsilon of sampled steps of the least loss that allows a test with errors below these."""

    def event(log_noise):
        return poisson_gaussian_event(plan.sampling_rate, math.exp(log_noise), int(plan.steps))

    def allows(log_noise):
        return _least_miss(event(log_noise), alarm, plan.neighboring) <= miss

    low, high = (math.log(plan.noise_multiplier) + shift for shift in (-math.log(_MOST_NOISE), math.log(_MOST_NOISE)))
    if alarm + miss >= 1 or allows(high):
        return 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if allows(middle) else (low, middle)
    return dataclasses.replace(plan, noise_multiplier=math.exp(high)).epsilon(delta)


def _middle(scores, chosen):
    """Threshold halfway between the medians of canaries that were put in and of those left out."""
    if chosen.all() or not chosen.any():
        return 0.0
    return (np.median(scores[chosen]) + np.median(scores[~chosen])) / 2


def _least_miss(event, alarm, neighboring):
    """Least chance of a miss at a chance of a false alarm, from below: the trade-off curve has these lines under it."""
    least = 0.0
    for epsilon in _SLOPES:
        delta = delta_pld(event, epsilon, neighboring)
        grown = math.exp(epsilon)
        least = max(least, 1 - delta - grown * alarm, (1 - delta - alarm) / grown)
    return least
