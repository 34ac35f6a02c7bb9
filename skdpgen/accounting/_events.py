"""What a fit did to the data, as dp-accounting events.

An event is the full description of a mechanism: every epsilon in the package is computed from events
alone. Five kinds of release are understood: Gaussian, Poisson-sampled Gaussian, Gaussian on drawn subsets
(`subset_sampling`), the best of a random number of runs of those (`selection`), and not private at all.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.dp_event import RepeatAndSelectDpEvent

from ._event_numbers import MOST_ALTERNATIVES, MOST_RELEASES, MOST_RUNS
from ._event_numbers import noise_multiplier as _noise
from ._event_numbers import repeat as _repeat
from ._event_numbers import sampling_rate as _rate
from ._event_numbers import whole as _whole
from ._subset_sampling import SUBSET_MECHANISMS, SubsetSampledDpEvent, subset_gaussian_event

__all__ = [
    "Charge",
    "OneOfDpEvent",
    "Release",
    "Repetition",
    "compose_events",
    "compose_releases",
    "describe_event",
    "gaussian_event",
    "mechanisms",
    "non_private_event",
    "poisson_gaussian_event",
    "releases",
    "repeat_and_select_event",
    "subset_gaussian_event",
]


class Release(NamedTuple):
    """One primitive of an event: `count` equal releases. Hashable, so figures can be remembered by it."""

    mechanism: str
    noise_multiplier: float | None
    sampling_rate: float | None
    count: int
    repeated: Repetition | None = None  # a Repetition, for "repeat_and_select" alone


# Law of the number of runs, and its shape in dp-accounting.
RUNS = {"poisson": math.inf, "logarithmic": 0.0}


class Repetition(NamedTuple):
    """A repeat-and-select event, hashable: `alternatives` holds the releases of each thing that one run may be."""

    runs: str
    mean: float
    alternatives: tuple[tuple[Release, ...], ...]


@dataclass(frozen=True)
class OneOfDpEvent(DpEvent):
    """One of several events takes place, and which one does not depend on the data.

    A mixture over a public draw (which candidate is tried), or releases of disjoint sets of units (a unit is in the
    rows of the fit or in those of the score). Its RDP is the largest at each order: the divergence is quasi-convex.
    """

    events: tuple[DpEvent, ...]


def gaussian_event(noise_multiplier: float, count: int = 1) -> DpEvent:
    """Describe `count` Gaussian releases of one noise multiplier.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the L2 sensitivity *under the relation in force*, in [1e-12, 1e18].
        The sensitivity's dependence on the relation is the caller's; the event's price has none.
    count : int, default=1
        How often the release is made, at most 1e12 times.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For a multiplier or a count out of range (without noise, use `non_private_event`).

    Examples
    --------
    >>> from skdpgen.accounting import describe_event, gaussian_event
    >>> describe_event(gaussian_event(4.0, count=3))
    [{'mechanism': 'gaussian', 'noise_multiplier': 4.0, 'sampling_rate': None, 'count': 3}]
    """
    return _repeat(GaussianDpEvent(_noise(noise_multiplier)), _whole(count, "count"))


def poisson_gaussian_event(sampling_rate: float, noise_multiplier: float, steps: int) -> DpEvent:
    """Describe `steps` Gaussian releases, each of a fresh Poisson sample of the units.

    Parameters
    ----------
    sampling_rate : float
        Probability, in [1e-12, 1], that a unit takes part in a step; independent over units and steps.
    noise_multiplier : float
        Standard deviation of the noise over the L2 bound of *one unit's contribution*, under both
        relations, in [1e-12, 1e18]. (Under replace_one the price accounts for the two contributions.)
    steps : int
        Number of steps, at most 1e12; an empty sample is a step too.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For a rate, a multiplier or a number of steps out of range.

    Examples
    --------
    >>> from skdpgen.accounting import describe_event, poisson_gaussian_event
    >>> describe_event(poisson_gaussian_event(0.01, 1.5, steps=100))
    [{'mechanism': 'poisson_gaussian', 'noise_multiplier': 1.5, 'sampling_rate': 0.01, 'count': 100}]
    """
    step = PoissonSampledDpEvent(_rate(sampling_rate), GaussianDpEvent(_noise(noise_multiplier)))
    return _repeat(step, _whole(steps, "steps"))


def non_private_event() -> DpEvent:
    """Describe a release without any guarantee (no noise).

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_pld, non_private_event
    >>> epsilon_pld(non_private_event(), 1e-5, "replace_one")
    inf
    """
    return NonPrivateDpEvent()


def repeat_and_select_event(one_of: Sequence[DpEvent], runs: str, mean: float) -> DpEvent:
    """Describe a random number of runs, of which only the best, with its score, is released.

    Parameters
    ----------
    one_of : sequence of dp_accounting.DpEvent
        What a run may be: fixed in advance, and which of them it is does not depend on the data. At most 1,000.
    runs : {"poisson", "logarithmic"}
        Law of the number of runs. Poisson may draw none; a fixed public result then stands for the best.
    mean : float
        Its mean, from 1 to 1e6.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        For no event, one that is not private or is itself a repetition, an unknown law, a mean below 1.

    References
    ----------
    N. Papernot, T. Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022, Theorems 2 and 6.

    Examples
    --------
    >>> from skdpgen.accounting import epsilon_pld, gaussian_event, repeat_and_select_event
    >>> search = repeat_and_select_event([gaussian_event(5.0)], "poisson", 5)
    >>> round(epsilon_pld(search, 1e-5, "add_or_remove_one"), 2)
    1.35
    """
    if runs not in RUNS:
        raise ValueError(f"runs must be one of {', '.join(map(repr, RUNS))}; got {runs!r}")
    if isinstance(mean, bool) or not isinstance(mean, numbers.Real) or not 1 <= mean < math.inf:
        raise ValueError(f"the mean number of runs must be a finite number, at least 1; got {mean!r}")
    if mean > MOST_RUNS:
        raise ValueError(f"the mean number of runs must be at most {MOST_RUNS:g}; got {mean!r}")
    alternatives = dict.fromkeys(releases(event) for event in one_of)
    if any(row.mechanism in ("non_private", "repeat_and_select") for rows in alternatives for row in rows):
        raise ValueError("a run must be private, and not a repetition itself")
    if not alternatives:
        raise ValueError("repeat_and_select needs at least one event")
    if len(alternatives) > MOST_ALTERNATIVES or sum(map(len, alternatives)) > MOST_RELEASES:
        raise ValueError(
            f"a run may be one of at most {MOST_ALTERNATIVES} events, of {MOST_RELEASES} releases in all; got "
            f"{len(alternatives)} events"
        )
    return _repetition_event(Repetition(runs, float(mean), tuple(alternatives)))


def compose_events(events: Iterable[DpEvent]) -> DpEvent:
    """Join events, all fixed before the first of them runs, into one.

    Parameters
    ----------
    events : iterable of dp_accounting.DpEvent
        At least one. Nesting is flattened; the order is kept.

    Returns
    -------
    dp_accounting.DpEvent

    Raises
    ------
    ValueError
        If there is no event, or one of a kind that is not understood.

    Examples
    --------
    >>> from skdpgen.accounting import compose_events, describe_event, gaussian_event
    >>> whole = compose_events([gaussian_event(4.0), gaussian_event(8.0, count=2)])
    >>> [row["count"] for row in describe_event(whole)]
    [1, 2]
    """
    return compose_releases(tuple(row for event in events for row in releases(event)))


def compose_releases(rows: tuple[Release, ...]) -> DpEvent:
    """Return the event of primitive releases: what `releases` takes apart."""
    if not rows:
        raise ValueError("an event must hold at least one release")
    makers = {
        "gaussian": lambda row: gaussian_event(row.noise_multiplier, row.count),
        "poisson_gaussian": lambda row: poisson_gaussian_event(row.sampling_rate, row.noise_multiplier, row.count),
        **dict.fromkeys(SUBSET_MECHANISMS, lambda row: subset_gaussian_event(*row[:1], row[2], row[1], row.count)),
        "non_private": lambda row: non_private_event(),
        "repeat_and_select": lambda row: _repeat(_repetition_event(row.repeated), row.count),
    }
    events = [makers[row.mechanism](row) for row in rows]
    return events[0] if len(events) == 1 else ComposedDpEvent(events)


def _repetition_event(repetition: Repetition) -> DpEvent:
    """Return the event of a repetition."""
    parts = tuple(compose_releases(rows) for rows in repetition.alternatives)
    inner = parts[0] if len(parts) == 1 else OneOfDpEvent(parts)
    return RepeatAndSelectDpEvent(inner, repetition.mean, RUNS[repetition.runs])


def releases(event: DpEvent) -> tuple[Release, ...]:
    """Flatten an event into its primitive releases, in order.

    Parameters
    ----------
    event : dp_accounting.DpEvent

    Returns
    -------
    tuple of Release

    Raises
    ------
    ValueError
        For any other event: what cannot be priced cannot be charged.
    """
    if isinstance(event, NonPrivateDpEvent):
        return (Release("non_private", 0.0, None, 1),)
    if isinstance(event, GaussianDpEvent):
        return (Release("gaussian", _noise(event.noise_multiplier), None, 1),)
    if isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        # built anew, so that the numbers pass the same checks
        rate = _rate(event.sampling_probability)
        return (Release("poisson_gaussian", _noise(event.event.noise_multiplier), rate, 1),)
    if isinstance(event, SubsetSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        # built anew, so that its parts pass the same checks
        built = subset_gaussian_event(event.mechanism, event.sampling_rate, event.event.noise_multiplier, 1)
        return (Release(built.mechanism, built.event.noise_multiplier, built.sampling_rate, 1),)
    if isinstance(event, SelfComposedDpEvent):
        count = _whole(event.count, "count")
        rows = releases(event.event)
        if any(row.mechanism == "non_private" for row in rows):
            return rows
        return tuple(row._replace(count=_whole(row.count * count, "count")) for row in rows)
    if isinstance(event, ComposedDpEvent):
        rows = tuple(row for part in event.events for row in releases(part))
        if len(rows) > MOST_RELEASES:
            raise ValueError(f"an event may hold at most {MOST_RELEASES} different releases; this one has {len(rows)}")
        if rows:
            return rows
        raise ValueError("an event must hold at least one release")
    if isinstance(event, RepeatAndSelectDpEvent):
        return (Release("repeat_and_select", None, None, 1, _repetition_of(event)),)
    kind = type(event).__name__
    raise ValueError(
        f"cannot price an event of type {kind}; use gaussian_event, poisson_gaussian_event, "
        "subset_gaussian_event, non_private_event and compose_events"
    )


def _repetition_of(event: RepeatAndSelectDpEvent) -> Repetition:
    """Return the repetition of an event; ValueError for one that cannot be priced."""
    laws = [name for name, shape in RUNS.items() if shape == event.shape]
    if not laws:
        raise ValueError(f"cannot price a number of runs of shape {event.shape!r}; known are {sorted(RUNS)}")
    one_of = event.event.events if isinstance(event.event, OneOfDpEvent) else (event.event,)
    built = repeat_and_select_event(one_of, laws[0], event.mean)
    inner = built.event.events if isinstance(built.event, OneOfDpEvent) else (built.event,)
    return Repetition(laws[0], float(event.mean), tuple(releases(part) for part in inner))


def describe_event(event: DpEvent) -> list[dict[str, Any]]:
    """Say what an event is made of, one plain dict a primitive release.

    Parameters
    ----------
    event : dp_accounting.DpEvent

    Returns
    -------
    list of dict
        Keys mechanism, noise_multiplier, sampling_rate (None without sampling) and count; for a repetition also runs,
        mean and one_of, the rows of each thing that a run may be.

    Raises
    ------
    ValueError
        For an event of a kind that is not understood.
    """
    return [_describe(row) for row in releases(event)]


def _describe(row: Release) -> dict[str, Any]:
    told = row._asdict()
    repeated = told.pop("repeated")
    if repeated is not None:
        told.update(runs=repeated.runs, mean=repeated.mean)
        told["one_of"] = [[_describe(part) for part in rows] for rows in repeated.alternatives]
    return told


def mechanisms(event: DpEvent) -> list[str]:
    """Return the kinds of release in an event, those within a repetition included, in alphabetical order."""
    rows = list(releases(event))
    rows += [part for row in rows if row.repeated is not None for inner in row.repeated.alternatives for part in inner]
    return sorted({row.mechanism for row in rows})


@dataclass(frozen=True)
class Charge:
    """One entry of the books: what was done, in the caller's words and in the accountant's.

    Parameters
    ----------
    label : str
        Who charges, for the reader of the ledger; not empty, and public.
    event : dp_accounting.DpEvent
        What is released. Stored in its flattened form, so that equal mechanisms compare equal.
    extra_delta : float, default=0.0
        Probability, in [0, 1), spent outright by a threshold rule beside the event.

    Raises
    ------
    ValueError
        For an empty label, an event that cannot be priced, or an extra_delta outside [0, 1).

    Examples
    --------
    >>> from skdpgen.accounting import Charge, gaussian_event
    >>> Charge("DPPCA", gaussian_event(4.0))
    Charge(label='DPPCA', event=GaussianDpEvent(noise_multiplier=4.0), extra_delta=0.0)
    """

    label: str
    event: DpEvent
    extra_delta: float = 0.0

    def __post_init__(self):
        if not isinstance(self.label, str) or not self.label.strip():
            raise ValueError(f"label must be a non-empty string; got {self.label!r}")
        if isinstance(self.extra_delta, bool) or not isinstance(self.extra_delta, numbers.Real):
            raise ValueError(f"extra_delta must be a number in [0, 1); got {self.extra_delta!r}")
        if not 0 <= self.extra_delta < 1:
            raise ValueError(f"extra_delta must lie in [0, 1); got {self.extra_delta!r}")
        object.__setattr__(self, "extra_delta", float(self.extra_delta))
        object.__setattr__(self, "event", compose_releases(releases(self.event)))
