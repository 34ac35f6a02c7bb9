"""What releases cost when all of them were fixed in advance."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable

from dp_accounting import DpEvent

from .._types import check_neighboring
from ._events import Charge, Release, releases
from ._privacy_loss import MOST_GROUPS, MOST_STEPS, combine, delta_of, epsilon_of, too_large
from ._renyi import delta_of_repetitions, epsilon_by_rdp, epsilon_of_repetitions

__all__ = ["check_delta", "check_epsilon", "delta_pld", "epsilon_pld", "epsilon_rdp", "why_bounded"]


def check_epsilon(epsilon: float) -> float:
    """Return epsilon as a float; ValueError unless it is a number > 0 (infinity is: no privacy)."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, numbers.Real) or not epsilon > 0:
        raise ValueError(f"epsilon must be a number > 0; got {epsilon!r}")
    return float(epsilon)


def check_delta(delta: float, name: str = "delta") -> float:
    """Return delta as a float; ValueError unless it lies in (0, 1)."""
    if isinstance(delta, bool) or not isinstance(delta, numbers.Real) or not 0 < delta < 1:
        raise ValueError(f"{name} must lie in (0, 1); got {delta!r}")
    return float(delta)


def _gather(what: DpEvent | Charge | Iterable) -> tuple[tuple[Release, ...], float]:
    """All releases, and the sum of the extra deltas, of events, charges or plans."""
    what = getattr(what, "charge", what)  # a FitPlan
    if isinstance(what, Charge):
        return releases(what.event), what.extra_delta
    if isinstance(what, DpEvent):
        return releases(what), 0.0
    parts = [_gather(part) for part in what]
    return tuple(row for rows, _ in parts for row in rows), math.fsum(extra for _, extra in parts)


def _repeated(rows: tuple[Release, ...]) -> bool:
    """Whether a repetition is among releases that are all private: it has no privacy loss distribution."""
    kinds = {row.mechanism for row in rows}
    return "repeat_and_select" in kinds and "non_private" not in kinds


def why_bounded(charges_or_events, neighboring: str) -> str | None:
    """Say why `epsilon_pld` is an upper bound by RDP where a privacy loss distribution exists; None where it is not."""
    rows, _ = _gather(charges_or_events)
    if _repeated(rows) or not too_large(combine(rows, neighboring), neighboring):
        return None
    return (
        f"more than {MOST_STEPS:,} sampled steps, more than {MOST_GROUPS} kinds of them, or next to no noise: epsilon "
        "is an upper bound by Renyi differential privacy"
    )


def epsilon_pld(charges_or_events, delta: float, neighboring: str) -> float:
    """Epsilon of releases that were all fixed in advance, by privacy loss distributions.

    Parameters
    ----------
    charges_or_events : event, Charge, FitPlan, or iterable of them
        Composed in one go. The extra deltas of charges are taken off `delta` first.
    delta : float
        In (0, 1).
    neighboring : {"add_or_remove_one", "replace_one"}

    Returns
    -------
    float
        Never below the true value and above it by less than 0.1 %; closed form when all is Gaussian; by RDP where
        a repetition is among the releases, which has no privacy loss distribution, and where there are more than a
        million sampled steps, more than 64 rates and noise multipliers of them, or next to no noise, so that a
        distribution would take too long.
        0.0 for nothing; infinity when something is not private or the extra deltas exhaust `delta`.

    Raises
    ------
    ValueError
        For a delta outside (0, 1), an unknown relation, or an event that cannot be priced.

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_pld, poisson_gaussian_event
    >>> steps = poisson_gaussian_event(300 / 63000, 1.4, steps=840)
    >>> round(epsilon_pld(steps, 1e-5, "add_or_remove_one"), 3)
    0.413
    >>> round(epsilon_pld(steps, 1e-5, "replace_one"), 3)
    0.732
    """
    check_delta(delta), check_neighboring(neighboring)
    rows, extra = _gather(charges_or_events)
    if extra >= delta:
        return math.inf
    if _repeated(rows):
        return epsilon_of_repetitions(rows, float(delta) - extra, neighboring)
    return epsilon_of(combine(rows, neighboring), float(delta) - extra, neighboring)


def delta_pld(charges_or_events, epsilon: float, neighboring: str) -> float:
    """Delta of releases that were all fixed in advance; see `epsilon_pld`.

    Parameters
    ----------
    charges_or_events : event, Charge, FitPlan, or iterable of them
    epsilon : float
        At least 0.
    neighboring : {"add_or_remove_one", "replace_one"}

    Returns
    -------
    float
        Extra deltas included; 1.0 when something is not private.

    Examples
    --------
    >>> from skdpgen.accounting import delta_pld, gaussian_event
    >>> delta_pld(gaussian_event(3.73), 1.0, "replace_one") < 1.01e-5
    True
    """
    check_neighboring(neighboring)
    if isinstance(epsilon, bool) or not isinstance(epsilon, numbers.Real) or not epsilon >= 0:
        raise ValueError(f"epsilon must be a number >= 0; got {epsilon!r}")
    rows, extra = _gather(charges_or_events)
    if _repeated(rows):
        return min(1.0, delta_of_repetitions(rows, float(epsilon), neighboring) + extra)
    return min(1.0, delta_of(combine(rows, neighboring), float(epsilon), neighboring) + extra)


def epsilon_rdp(charges_or_events, delta: float, neighboring: str) -> float | None:
    """Epsilon by Renyi differential privacy, to stand beside `epsilon_pld`; never the price.

    Parameters
    ----------
    charges_or_events : event, Charge, FitPlan, or iterable of them
    delta : float
        In (0, 1).
    neighboring : {"add_or_remove_one", "replace_one"}

    Returns
    -------
    float or None
        None for Poisson-sampled steps under replace_one, for which dp-accounting has no RDP.

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_rdp, poisson_gaussian_event
    >>> round(epsilon_rdp(poisson_gaussian_event(300 / 63000, 1.4, 840), 1e-5, "add_or_remove_one"), 2)
    0.54
    """
    check_delta(delta), check_neighboring(neighboring)
    rows, extra = _gather(charges_or_events)
    if extra >= delta:
        return math.inf
    if _repeated(rows):
        return epsilon_of_repetitions(rows, float(delta) - extra, neighboring)
    return epsilon_by_rdp(combine(rows, neighboring), float(delta) - extra, neighboring)
