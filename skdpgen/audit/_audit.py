"""Audits: an empirical lower bound of epsilon, by many fits, by one fit, or by one training."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import asdict, dataclass

import numpy as np
from sklearn.base import clone

from ..accounting import (
    PrivacyAccountant,
    delta_pld,
    describe_event,
    gaussian_epsilon,
    gaussian_mu,
    poisson_gaussian_event,
)
from ..utils.printing import shown
from ..utils.progress import progress_bar, shows_bars
from ..utils.watching import watch_releases
from ._bounds import (
    epsilon_from_counts,
    epsilon_from_guesses,
    error_bounds,
    expected_bound,
    expected_bound_of_scale,
    least_claim,
    mu_from_counts,
    mu_from_scale,
    mu_from_shift,
)
from ._runs import (
    bounds_of_distances,
    claimed_mu,
    contribution,
    data_sets,
    fit_distances,
    fitted_numbers,
    follow,
    follow_path,
    project,
    released_by,
    with_public_seed,
)
from ._sampled import SampledScores, scores_of_steps

METHODS = ("likelihood", "counts", "shift", "scale", "distribution_free")


@dataclass(frozen=True)
class AuditPlan:
    """Cost of an audit, and the bound that it can give.

    Attributes
    ----------
    n_fits : int
    seconds : float
        Seconds of one fit, times `n_fits`.
    epsilon_claimed, delta : float
        Claim of one fit.
    epsilon_expected : float
        Lower bound to expect of an honest estimator whose noise is Gaussian and whose canary attains the sensitivity.
    epsilon_least : float
        Smallest claim that this number of runs can test.
    confidence : float
    n_runs : int
        Number of fits with the canary, and of fits without; the remaining fits are made with the noise off.
    """

    n_fits: int
    seconds: float
    epsilon_claimed: float
    delta: float
    epsilon_expected: float
    epsilon_least: float
    confidence: float
    n_runs: int

    def __str__(self):
        return (
            f"{self.n_runs} runs with the canary and as many without ({self.n_fits} fits), about {self.seconds:.3g} s; "
            f"claimed epsilon {self.epsilon_claimed:g} at delta {self.delta:g}; an honest estimator can be expected to "
            f"show {self.epsilon_expected:.3g} (with confidence {self.confidence:g}); the audit cannot test claims "
            f"below {self.epsilon_least:.3g}"
        )


@dataclass(frozen=True)
class AuditResult:
    """Result of an audit: a lower bound of epsilon, and how it was found.

    Attributes
    ----------
    epsilon_lower : float
        Lower bound of the true epsilon, at the given confidence.
    epsilon_claimed, delta, confidence : float
    method : str
    n_fits : int
    seconds : float
    details : dict
        Errors, shifts or guesses from which the bound was computed.
    """

    epsilon_lower: float
    epsilon_claimed: float
    delta: float
    confidence: float
    method: str
    n_fits: int
    seconds: float
    details: dict

    @property
    def broken(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_lower > self.epsilon_claimed

    def to_dict(self) -> dict:
        """Return plain values, for JSON."""
        return {**asdict(self), "broken": self.broken}

    def __str__(self):
        verdict = "the claim is REFUTED" if self.broken else "the claim stands"
        runs = f"{self.details['runs']} runs judged, " if "runs" in self.details else ""
        mu = ""
        if "mu_claimed" in self.details:
            lower, claimed = self.details["mu_lower"], self.details["mu_claimed"]
            mu = f"mu is at least {lower:.4f} of {claimed:.4f} claimed, {lower / claimed:.0%}"
            if "mu_by_shift" in self.details:
                mu += f" ({self.details['mu_by_shift'] / claimed:.0%} by the shift alone)"
            mu += "; "
        if "epsilon_by_guesses" in self.details:
            mu += f"by guesses alone epsilon is at least {self.details['epsilon_by_guesses']:.3f}; "
        return (
            f"epsilon is at least {self.epsilon_lower:.3f} (confidence {self.confidence:g}, {self.method}); claimed: "
            f"{self.epsilon_claimed:g} at delta {self.delta:g}: {verdict}; "
            f"{mu}{runs}{self.n_fits} fits, {self.seconds:.1f} s"
        )


def plan_audit(estimator, X, y=None, *, n_runs=200, confidence=0.95, method=None):
    """Fit a few times, and estimate the cost of an audit and the bound that it could give.

    Parameters
    ----------
    estimator, X, y, n_runs, confidence, method
        As in `audit`; the method "likelihood" has a separate plan.

    Returns
    -------
    AuditPlan
    """
    _check(estimator, n_runs, confidence, method)
    estimator, data = with_public_seed(estimator), data_sets(X, y, estimator, _neighboring(estimator))[0]
    fitted, seen = released_by(estimator, data)  # the first finds the noise, and later ones remember it
    epsilon, delta = _claim(fitted)
    if method == "likelihood":
        gradient, n_releases = _judged_releases(seen)
        each = 1 if follow_path(estimator, data, data, data, gradient, n_releases).fixed else 3
        least = 0.0  # the noise is measured, whatever a canary adds
        expected = expected_bound_of_scale(epsilon, delta, n_runs, confidence)
        n_fits = 2 * n_runs * each + 4
    else:
        n_releases, n_fits, least = None, 2 * n_runs + 2, least_claim(delta, n_runs, confidence)
        expected = expected_bound(epsilon, delta, n_runs, confidence)
    start = time.perf_counter()
    released_by(estimator, data, n_releases=n_releases)
    seconds = time.perf_counter() - start
    return AuditPlan(n_fits, n_fits * seconds, epsilon, delta, expected, least, confidence, n_runs)


def audit(
    estimator,
    X,
    y=None,
    *,
    n_runs=200,
    confidence=0.95,
    method=None,
    statistic=None,
    noise_scale=1.0,
    progress=False,
):
    """Bound epsilon from below by fits with and without one canary.

    The canary attains the sensitivity of a clipped query, and lies far outside the bounds: where clipping was
    forgotten it stands out. Of an estimator with `max_rows_per_unit` it is a unit of that many rows, all alike, and
    every row of X is another unit. The statistic is what the adversary of the definition sees: every noisy release,
    projected on what the canary adds to it (found by two fits with the noise off).

    Parameters
    ----------
    estimator : private estimator
        With the epsilon that it claims; the smaller it is, the more runs it takes (see `plan_audit`).
    X, y
        Dummy or synthetic rows, **not private** ones: they are fitted many times, and no ledger of yours is charged.
    n_runs : int, default=200
        Number of fits without the canary, and of fits with it.
    confidence : float, default=0.95
    method : {"likelihood", "counts", "shift", "scale", "distribution_free"} or None, default=None
        "likelihood": the log-likelihood ratio of all Gaussian releases of a fit together, each given the earlier ones;
        a fit ends at the last of them. What the canary adds is found with the noise off, the noise is measured along
        it, over all runs. It assumes that the noise is Gaussian, and neither its size nor how it is shared among the
        numbers released. "counts": errors of a test fixed in advance, for Gaussian mechanisms (DP-SGD at
        ``sampling_rate=1`` is one, and its first step is judged). "shift": of a statistic that is linear in a single
        Gaussian release, and larger with the canary. "scale": what the canary adds, noise off, over the noise measured
        on every number released; ten runs will do, and it trusts the mechanism in how noise is shared among the
        numbers. Of several releases, what it adds to each *after the same earlier releases*, and the least of the runs.
        "distribution_free": errors alone, any mechanism. None: by what was charged.
    statistic : callable or None, default=None
        ``statistic(fitted, releases)`` gives a number, larger with the canary; `releases` is a list of
        (array, sd, kind) with kind "plain" or "gradient". It may give a vector: half of the runs then find the
        direction, and the other half are judged. None is the projection; estimators that do not release through this
        package's mechanisms are judged by the numbers among their fitted attributes.
    noise_scale : float, default=1.0
        For "likelihood": scale of the noise that the fits draw, over what they state. With 0.5 an audit that has enough
        runs refutes the claim: run it too, to know that the audit could have found a fault.
    progress : bool, default=False
        For "likelihood": show a bar of fits, on a terminal or in a notebook.

    Returns
    -------
    AuditResult

    Raises
    ------
    ValueError
        If the audit cannot test the claim: too few runs, a fit without noise, or a method that is not valid for these
        releases.

    Notes
    -----
    All fits have one public randomness: `random_state`, and 0 where it is None.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen import DPPCA
    >>> from skdpgen.audit import audit
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> result = audit(DPPCA(epsilon=10.0, bounds=(-3, 3), l2_bound=1.0), X, n_runs=60)
    >>> 2 < result.epsilon_lower < 10
    True
    """
    one, other = data_sets(X, y, estimator, _neighboring(estimator))
    options = {"n_runs": n_runs, "confidence": confidence, "method": method, "statistic": statistic}
    return audit_neighbours(estimator, one, other, noise_scale=noise_scale, progress=progress, **options)


def audit_neighbours(
    estimator,
    one,
    other,
    *,
    n_runs=200,
    confidence=0.95,
    method=None,
    statistic=None,
    noise_scale=1.0,
    progress=False,
):
    """Bound epsilon from below by fits of two given neighbouring data sets.

    Parameters
    ----------
    estimator, n_runs, confidence, method, statistic, noise_scale, progress
        As in `audit`.
    one, other : tuple
        Arguments of ``fit``, (X,) or (X, y): neighbours under the estimator's relation. The pair decides what can be
        found: use one that attains the sensitivity in question.

    Returns
    -------
    AuditResult
    """
    _check(estimator, n_runs, confidence, method)
    if not noise_scale > 0 or (noise_scale != 1.0 and method != "likelihood"):
        raise ValueError('noise_scale must be positive, and goes with method="likelihood"')
    if method == "likelihood" and statistic is not None:
        raise ValueError('method="likelihood" finds its statistic itself: give statistic to another method')
    start = time.perf_counter()
    estimator = with_public_seed(estimator)
    first, seen = released_by(estimator, one)
    epsilon, delta = _claim(first)
    if method == "likelihood":
        settings = {"n_runs": n_runs, "noise_scale": noise_scale, "progress": progress}
        return _by_likelihood(estimator, first, seen, one, other, confidence=confidence, start=start, **settings)
    gaussian = all(is_gaussian(charge.event, charge.extra_delta) for charge in first.accountant_.charges)
    gradient = gaussian and any(kind == "gradient" for _, _, kind in seen)  # of steps that every record takes part in
    directions = contribution(estimator, one, other, gradient) if statistic is None else None
    method = method or ("counts" if gaussian else "distribution_free")
    _check_releases(method, first, gaussian, directions)
    if method == "scale":
        found, details = _by_scale(estimator, one, other, gradient, n_runs, delta, confidence)
        n_fits = 3 * n_runs + 3
    else:
        judged = n_runs - _n_before(directions, gradient, n_runs)
        if method == "counts" and expected_bound(epsilon, delta, judged, confidence) <= 0:
            raise ValueError(
                f"with {n_runs} runs the audit cannot test a claim of epsilon {epsilon:g}, only claims from "
                f"{least_claim(delta, judged, confidence):.3g} on: take more runs, or claim a larger epsilon"
            )
        measure = _measure(directions, statistic, gradient)
        runs = [[measure(*released_by(estimator, data)) for _ in range(n_runs)] for data in (one, other)]
        found, details = _by_runs(method, *map(np.asarray, runs), directions, gradient, delta, confidence)
        n_fits = 2 * n_runs + 1 + (2 if statistic is None else 0)
    return AuditResult(found, epsilon, delta, confidence, method, n_fits, time.perf_counter() - start, details)


def _check_releases(method, fitted, gaussian, directions):
    """Refuse a method that does not hold for what is released."""
    if method != "distribution_free" and not gaussian:
        raise ValueError(f"method={method!r} is for Gaussian releases alone: this fit has sampled steps")
    if method == "scale" and directions is None:
        raise ValueError(
            'method="scale" needs releases that can be observed, of this package\'s mechanisms: use '
            'method="distribution_free"'
        )
    if method == "shift" and (count := _n_releases(fitted)) != 1:
        raise ValueError(
            f'method="shift" is for a single Gaussian release; this fit makes {count}, and what is made of several has '
            'no Gaussian distribution: use method="counts" or "scale", or declare what is learned'
        )


def _by_scale(estimator, one, other, gradient, n_runs, delta, confidence):
    """Bound from what the canary adds, and the noise measured on every number released."""
    added, noise = zip(*(follow(estimator, one, other, gradient) for _ in range(n_runs)))
    noise = np.concatenate(noise)
    mu = min(mu_from_scale(directions, noise, confidence) for directions in added)
    return gaussian_epsilon(mu, delta), {"mu_lower": mu, "runs": n_runs}


def _by_runs(method, without, within, directions, gradient, delta, confidence):
    """Bound from the statistics of the runs without the canary, and with it."""
    without, within, half = _one_number(without, within)
    if method == "shift":
        without, within = without[half:], within[half:]
        mu = mu_from_shift(without, within, confidence)
        return gaussian_epsilon(mu, delta), {"mu_lower": mu, "runs": len(without)}
    threshold, without, within = _threshold(directions, gradient, without, within)
    alarms, misses = int((without > threshold).sum()), int((within <= threshold).sum())
    n = len(without)
    details = {"false_positives": alarms, "false_negatives": misses, "runs": n}
    if method == "distribution_free":
        return epsilon_from_counts(alarms, misses, n, delta, confidence), details
    details["mu_lower"] = mu_from_counts(alarms, misses, n, confidence)
    return gaussian_epsilon(details["mu_lower"], delta), details


def _by_likelihood(estimator, first, seen, one, other, *, n_runs, confidence, noise_scale, progress, start):
    epsilon, delta = _claim(first)
    charges = first.accountant_.charges
    if not all(is_gaussian(charge.event) for charge in charges):
        raise ValueError('method="likelihood" is for Gaussian releases alone: this fit has sampled steps')
    gradient, n_releases = _judged_releases(seen)
    if gradient and noise_scale != 1.0:
        raise ValueError("noise_scale scales plain releases alone; this fit releases gradients")
    # a threshold costs a separate delta: the releases were charged at the rest
    delta_left = delta - math.fsum(charge.extra_delta for charge in charges)
    with progress_bar(total=2 * n_runs, phase="audit", shown=progress and shows_bars("auto"), unit="fit") as bar:
        options = {"n_releases": n_releases, "gradient": gradient, "noise_scale": noise_scale, "tick": bar.update}
        of_one, of_other, n_pairs, each = fit_distances(estimator, one, other, n_runs, **options)
    details = {**bounds_of_distances(of_one, of_other, confidence, n_pairs), "mu_claimed": claimed_mu(charges)}
    details.update(runs=2 * n_runs, noise_scale=noise_scale)
    found, seconds = gaussian_epsilon(details["mu_lower"], delta_left), time.perf_counter() - start
    return AuditResult(found, epsilon, delta, confidence, "likelihood", 2 * n_runs * each + 4, seconds, details)


def audit_one_run(estimator, X, *, canaries=None, confidence=0.95, guesses=None, rng=None):
    """Bound epsilon from below by one fit that includes each of many canaries with probability 1/2, independently.

    Parameters
    ----------
    estimator : private estimator
        Of arrays, with one plain release that is a sum over the rows.
    X : array of shape (n_samples, n_features)
        Rows that are not private.
    canaries : array of shape (n_canaries, n_features) or None, default=None
        None: 500 random directions, as far out as the bounds allow and farther.
    confidence : float, default=0.95
    guesses : int or None, default=None
        Number of guesses, made on the lowest and the highest scores; None: a fifth of the canaries.
    rng : numpy.random.Generator or None, default=None
        Source of the canaries and of the choice of those that are included; None: seeded by the operating system.

    Returns
    -------
    AuditResult

    Raises
    ------
    ValueError
        Under replace_one: leaving a canary out gives no neighbour of that relation. Or if the estimator makes other
        releases than one plain one.

    Notes
    -----
    One noisy fit, and one with the noise off for each canary, to know what it would add. The bound is weaker than that
    of `audit` with as many fits, and needs no assumption on the noise.
    """
    _check(estimator, 2, confidence)
    if _neighboring(estimator) == "replace_one":
        raise ValueError(
            "audit_one_run includes or leaves out records, and replace_one makes no promise about that: use "
            'neighboring="add_or_remove_one"'
        )
    start = time.perf_counter()
    estimator = with_public_seed(estimator)
    rng = np.random.default_rng() if rng is None else rng
    X = np.asarray(X, dtype=np.float64)
    if canaries is None:
        directions = rng.normal(size=(500, X.shape[1]))
        canaries = 10 * np.abs(X).max() * directions / np.abs(directions).max(axis=1, keepdims=True)
    found = [contribution(estimator, (X,), (np.vstack([X, row]),)) for row in canaries]
    if any(parts is None or len(parts) != 1 for parts in found):
        raise ValueError("audit_one_run needs an estimator with one plain release: declare bounds and l2_bound")
    base, sd = found[0][0][0].ravel(), found[0][0][2].ravel()
    added = np.stack([parts[0][1].ravel() for parts in found]) / sd
    chosen = rng.random(len(canaries)) < 0.5
    fitted, seen = released_by(estimator, (np.vstack([X, canaries[chosen]]),))
    epsilon, delta = _claim(fitted)
    # the release is compared with its expectation, in which every canary is included with probability one half
    residual = (seen[0][0].ravel() - base) / sd - added.sum(axis=0) / 2
    scores = added @ residual
    guesses = max(2, len(canaries) // 5) if guesses is None else int(guesses)
    correct = _correct_guesses(scores, chosen, guesses)
    bound = epsilon_from_guesses(correct, guesses, len(canaries), delta, confidence)
    details = {"correct": correct, "guesses": guesses, "canaries": len(canaries)}
    seconds = time.perf_counter() - start
    return AuditResult(bound, epsilon, delta, confidence, "one_run", 2 * len(canaries) + 1, seconds, details)


# ---- helpers ------------------------------------------------------------------------------------
def _check(estimator, n_runs, confidence, method=None):
    if not (isinstance(n_runs, int) and n_runs >= 2):
        raise ValueError(f"n_runs must be a whole number of at least 2; got {shown(n_runs)}")
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must lie in (0.5, 1); got {shown(confidence)}")
    if method not in (None, *METHODS):
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {shown(method)}")
    if estimator.get_params(deep=False).get("accountant") is not None:
        raise ValueError("an audit fits hundreds of times: give an estimator with accountant=None")


def _neighboring(estimator):
    return clone(estimator).get_params(deep=False).get("neighboring") or "add_or_remove_one"


def _claim(fitted):
    """Epsilon that the fit was asked for, which is what it claims, and its delta."""
    card = fitted.card_
    asked = float(card["fit"]["epsilon_asked"])
    if math.isinf(asked):
        raise ValueError("a fit without noise claims no epsilon that an audit could refute: give a finite epsilon")
    return asked, card["fit"]["delta"]


def _n_releases(fitted):
    return sum(row["count"] for charge in fitted.accountant_.charges for row in describe_event(charge.event))


def _judged_releases(seen):
    """Whether gradients are released, and how many releases there are up to the last that is judged."""
    kinds = [kind for _, _, kind in seen]
    if not kinds:
        raise ValueError("no release was seen: the estimator does not release by this package's mechanisms")
    gradient = "gradient" in kinds
    return gradient, kinds.index("gradient") + 1 if gradient else len(kinds)


def is_gaussian(event, extra_delta=0.0):
    """Whether all that was charged are releases with Gaussian noise in which every record takes part."""

    def whole(row):
        return row["mechanism"] == "gaussian" or (row["mechanism"] == "poisson_gaussian" and row["sampling_rate"] == 1)

    return not extra_delta and all(whole(row) for row in describe_event(event))


def _measure(directions, statistic, gradient):
    if statistic is not None:
        return statistic
    if directions is not None:
        return lambda fitted, seen: project(seen, directions, gradient)
    return lambda fitted, seen: fitted_numbers(fitted)


def _one_number(without, within):
    """Statistics of one number, and how many of the first runs have found it: of vectors, half, not to be judged."""
    if without.ndim == 1:
        return without, within, 0
    if not without.shape[1]:
        raise ValueError("no release was seen and no fitted attribute is an array of numbers: give statistic")
    half = len(without) // 2
    if half < 2:
        raise ValueError("a statistic of several numbers needs at least 4 runs: half of them find the direction")
    shift = within[:half].mean(axis=0) - without[:half].mean(axis=0)
    spread = (without[:half].var(axis=0) + within[:half].var(axis=0)) / 2
    weights = shift / np.maximum(spread, 1e-12 * max(spread.max(), 1e-300))
    return without @ weights, within @ weights, half


def _n_before(directions, gradient, n_runs):
    """Runs that find the threshold: half, or a fifth where the direction is known; none where it is computed."""
    if directions is None or gradient:
        return max(1, n_runs // (2 if directions is None else 5))
    return 0


def _threshold(directions, gradient, without, within):
    """Where the test says "with the canary", fixed before the runs that are judged; and those runs."""
    if part := _n_before(directions, gradient, len(without)):
        middle = (np.median(without[:part]) + np.median(within[:part])) / 2
        return middle, without[part:], within[part:]
    whole = sum(float(np.sum((d / np.maximum(sd, 1e-300)) ** 2)) for _, d, sd in directions)
    return whole / 2, without, within


# ---- one training among many canaries ------------------------------------------------------------------------------
# Norm of a canary's gradient, as a multiple of the bound to which it is clipped: the canary attains the bound.
_BEYOND = 10.0
# Slopes of the lines under a trade-off curve, as epsilons: errors of nearly equal size touch it near slope 1. Fewer
# lines make the bound smaller, never wrong.
_SLOPES = (0.0, 0.2, 0.5, 1.0)
# Largest ratio of measured to planned noise, and how often the interval is halved: the result is within about 1 %.
_MOST_NOISE, _BISECTIONS = 4.0, 8
# Share of the canaries that find the threshold, and are not judged.
_BEFORE = 0.2


def audit_training(
    plan,
    *,
    delta=1e-5,
    canaries=20_000,
    guesses=None,
    confidence=0.95,
    noise_scale=1.0,
    rng=None,
    progress=False,
):
    """Bound epsilon of DP-SGD from below by one training in which each of many canaries is included
    with probability 1/2, independently.

    The net is linear: each canary has a separate parameter, and its gradient lies along it, far beyond the bound. So
    canaries do not hide each other, and the released gradients of a parameter depend on whether its canary was
    included. The training is that of `skdpgen.nn.DPNet`: its Poisson batches, clipping, groups and noise.

    Parameters
    ----------
    plan : DPSGDPlan or TermwisePlan
        The plan under audit. Its numbers are used; the plan itself stays unused, and no ledger of yours is charged.
    delta : float, default=1e-5
    canaries : int, default=20000
    guesses : int or None, default=None
        Number of guesses, made on the lowest and the highest scores; None: the number that gives the largest bound for
        a Gaussian mechanism of the claim.
    confidence : float, default=0.95
        Confidence of each of the two bounds.
    noise_scale : float, default=1.0
        Noise of the training over that of the plan; with 0.5 the claim is to be refuted.
    rng : numpy.random.Generator or None, default=None
        Source of the choice of the canaries that are included; None: seeded by the operating system.
    progress : bool, default=False
        Whether to show a bar of the steps, on a terminal or in a notebook.

    Returns
    -------
    AuditResult
        ``epsilon_lower`` is the bound by the shift between the scores of canaries that were included and of others: a
        score is the log-likelihood ratio of all released gradients, under the noise and the sampling rate of the plan.
        It assumes Gaussian noise, independent from parameter to parameter, and Poisson samples. Where the scores are
        not spread as those of Poisson samples are, ``details["fits"]`` is False, and the bound is that by errors at a
        threshold that a fifth of the canaries found, and the trade-off curve of sampled steps of *some* noise.
        ``details["mu_lower"]`` is the parameter of the Gaussian mechanism of that epsilon.
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
    The bound holds with probability `confidence`, and each run has another one. Seeded noise makes this run repeatable:

    >>> import numpy as np
    >>> from skdpgen.audit import audit_training
    >>> from skdpgen.dpsgd import DPSGDPlan
    >>> from skdpgen.testing import seeded_noise
    >>> plan = DPSGDPlan(1.0, 1, 1.0, noise_multiplier=1.0, expected_batch_size=250)
    >>> with seeded_noise(0, quiet=True):
    ...     result = audit_training(plan, canaries=500, rng=np.random.default_rng(0))
    >>> 2 < result.epsilon_lower < result.epsilon_claimed
    True
    """
    check_plan(plan, confidence, noise_scale)
    if not (isinstance(canaries, int) and canaries >= 20):
        raise ValueError(f"canaries must be a whole number of at least 20; got {shown(canaries)}")
    rng = np.random.default_rng() if rng is None else rng
    start = time.perf_counter()
    claimed = plan.epsilon(delta)
    chosen = rng.random(canaries) < 0.5
    guesses = _best_guesses(claimed, delta, canaries, confidence) if guesses is None else int(guesses)
    # a new plan, charged to an accountant that is dropped at once: the records are dummy data
    trained = dataclasses.replace(plan, noise_multiplier=plan.noise_multiplier * noise_scale)
    unit = None if plan.unit is None else plan.unit.name
    PrivacyAccountant(math.inf, neighboring=plan.neighboring, unit=unit).charge(trained, "audit of a training")
    scores = _train(trained, plan, chosen, progress)
    correct = _correct_guesses(scores, chosen, guesses)
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
        found = _by_sampled_scores(scores, chosen, plan, delta, confidence, details)
        details["mu_claimed"], details["mu_lower"] = (gaussian_mu(e, delta) if e else 0.0 for e in (claimed, found))
    seconds = time.perf_counter() - start
    return AuditResult(found, claimed, delta, confidence, "one_training", 1, seconds, details)


def check_plan(plan, confidence, noise_scale):
    """Refuse a plan that cannot be audited by training, and numbers out of range."""
    if plan.neighboring == "replace_one":
        raise ValueError(
            "an audit by training includes or leaves out records, and replace_one makes no promise about that: use "
            'neighboring="add_or_remove_one"'
        )
    if not plan.private:
        raise ValueError("a plan without noise claims no epsilon that an audit could refute: give a finite epsilon")
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must lie in (0.5, 1); got {shown(confidence)}")
    if not noise_scale > 0:
        raise ValueError(f"noise_scale must be positive; got {shown(noise_scale)}")


def _train(plan, claimed, chosen, progress=False):
    """Log-likelihood ratio of each canary, under the noise that is claimed."""
    from ..nn import DPNet
    from ..nn._modules import CanaryModule

    reach, scores = _reach(claimed), np.zeros(len(chosen))

    def watcher(gradient, sd, kind):
        scores[:] += scores_of_steps(gradient / reach, claimed.noise_std / reach, claimed.sampling_rate)
        bar.update()

    net = DPNet(
        CanaryModule,
        module__n_canaries=len(chosen),
        module__reach=_BEYOND * max(1.0, claimed.l2_bound),
        plan=plan,
        verbose=0,
        random_state=0,
    )
    # a unit of several rows is a canary with as many equal rows as are used
    rows = np.repeat(np.flatnonzero(chosen), 1 if plan.unit is None else plan.unit.max_rows)
    bar = progress_bar(total=int(plan.steps), phase="audit", shown=progress and shows_bars("auto"))
    with bar, watch_releases(watcher):
        net.fit(rows[:, None], groups=None if plan.unit is None else rows)
    return scores


def _reach(plan):
    """Norm of the clipped gradient of a canary."""
    return plan.sample_bound / (1 + plan.slack) if plan.needs_groups else plan.clip_norm


def _by_sampled_scores(scores, chosen, plan, delta, confidence, details):
    """Bound from the scores of canaries in sampled steps; what it was computed from is added to `details`."""
    model = SampledScores(plan.sampling_rate, plan.steps, plan.noise_std / _reach(plan))
    found = model.bound(scores[~chosen], scores[chosen], confidence)
    details.update(found)
    if found["fits"]:
        return model.epsilon(found["noise_upper"], plan, delta)
    first = int(_BEFORE * len(scores))
    threshold = _middle(scores[:first], chosen[:first])
    without, within = scores[first:][~chosen[first:]], scores[first:][chosen[first:]]
    alarms, misses = int((without > threshold).sum()), int((within <= threshold).sum())
    details.update(false_positives=alarms, false_negatives=misses)
    errors = error_bounds(alarms, len(without), misses, len(within), confidence)
    return _epsilon_of_errors(*errors, plan, delta)


def _best_guesses(epsilon, delta, canaries, confidence):
    """Number of guesses for which a Gaussian mechanism of the claim shows most: of public numbers alone."""
    mu = gaussian_mu(min(epsilon, 50.0), delta)
    rng = np.random.default_rng(0)
    inside = rng.random(canaries) < 0.5
    scores = rng.normal(size=canaries) + mu * inside
    best = (-1.0, 2)
    for share in (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        guesses = max(2, round(share * canaries))
        correct = _correct_guesses(scores, inside, guesses)
        best = max(best, (epsilon_from_guesses(correct, guesses, canaries, delta, confidence), guesses))
    return best[1]


def _correct_guesses(scores, inside, guesses):
    """How many guesses are right, if the lowest scores are taken for canaries left out, and the highest for others."""
    order = np.argsort(scores)
    low, high = order[: guesses // 2], order[len(order) - (guesses - guesses // 2) :]
    return int((~inside[low]).sum() + inside[high].sum())


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
