"""BudgetPlan: the noise of each phase, errors in rows, the split of the budget and the epsilon curve: no charge."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..utils.atomic import save_figure
from ..utils.printing import printable, shown, table_lines
from ._calibration import FitPlan
from ._card import remark_on_epsilon
from ._events import SUBSET_MECHANISMS
from ._pricing import epsilon_pld

_DELTAS = tuple(10.0**-k for k in range(4, 9))


@dataclass(frozen=True)
class PlannedPhase:
    """One kind of release in a plan.

    Attributes
    ----------
    fit, phase : str
        Names; fits with one name are numbered.
    share : float
        Share of the squared Gaussian-DP parameter of its fit; in a search, of its run.
    steps : int
    sampling_rate : float or None
        Probability that a unit takes part in a step; of the score of a search, that a row is held out.
    noise_multiplier : float
        Standard deviation over sensitivity.
    signal_to_noise : float or None
        Largest possible sum of the expected rows over the noise: rows (times `sampling_rate`) / noise_multiplier; of
        steps on subsets, the sum of the clipped means of a step, one for each subset. A group of a hundredth of the
        rows has a hundredth of it. None where the number of subsets is not known.
    """

    fit: str
    phase: str
    share: float
    steps: int
    sampling_rate: float | None
    noise_multiplier: float
    signal_to_noise: float | None


@dataclass(frozen=True)
class PlannedCounts:
    """What the noise does to counts of rows, for one kind of column of a table; of units, where each counts 1.

    Attributes
    ----------
    fit : str
    kind : str
        "learned category", "declared category", "number", "date", "learned target" or "declared target".
    columns : int
        Number of columns of this kind.
    smallest_kept : float or None
        Rows of the smallest category that is kept with probability .95; 0 where every category is kept, None for
        numbers and dates and where it is not known.
    one_way_error : float or None
        Standard error, in rows, of the count of rows at one level (category, bin) of one column, the largest over the
        columns of this kind; of a target, of the rows of one class. None where the model is not made of counts.
    two_way_error : float or None
        Standard error, in rows, of the count of rows at one level of each of two columns; None where these counts are
        not released.
    usually_lost : float or None
        Rows of learned categories, or classes, below which they are lost more often than not; None where none are
        learned.
    """

    fit: str
    kind: str
    columns: int
    smallest_kept: float | None
    one_way_error: float | None
    two_way_error: float | None
    usually_lost: float | None = None


@dataclass(frozen=True)
class BudgetPlan:
    """Releases and cost of fits, before anything is charged.

    Attributes
    ----------
    phases : tuple of PlannedPhase
    n_rows : int
        Assumed number of what is counted: public.
    epsilon, delta : float
        Cost of all fits together, if they are declared together.
    neighboring : str
    curve : tuple of (delta, epsilon)
        Epsilon is infinite where thresholds of learned categories alone spend as much delta.
    counts : tuple of PlannedCounts
        Of fits to tables: errors in rows by kind of column.
    assumptions : tuple of str
        What the figures assume of the data, the number of rows above all.
    counted : {"rows", "units"}
        What `n_rows` and the errors count: units where each of them counts 1, else rows.
    unit : str or None
        Name of the unit that is protected; None: one row.

    Examples
    --------
    >>> from skdpgen import DPPCA
    >>> from skdpgen.accounting import BudgetPlan
    >>> plan = BudgetPlan.of(DPPCA(2, bounds=(0, 1)).plan([[0.1, 0.9, 0.2]] * 3), n_rows=10_000)
    >>> [(row.phase, round(row.noise_multiplier, 1), round(row.signal_to_noise)) for row in plan.phases]
    [('l2_bound', 23.6, 424), ('moments', 3.8, 2647)]
    """

    phases: tuple[PlannedPhase, ...]
    n_rows: int
    epsilon: float
    delta: float
    neighboring: str
    curve: tuple[tuple[float, float], ...]
    counts: tuple[PlannedCounts, ...] = ()
    assumptions: tuple[str, ...] = ()
    counted: str = "rows"
    unit: str | None = None

    @classmethod
    def of(cls, plans: FitPlan | Iterable[FitPlan], n_rows: int) -> BudgetPlan:
        """Make the plan of one fit, or of several to be declared together by ``accountant.plan``.

        Parameters
        ----------
        plans : FitPlan or iterable of them
            Results of ``estimator.plan(X, y)``.
        n_rows : int
            Assumed number of rows, or of units where each of them counts 1; public, it may be a guess.

        Raises
        ------
        ValueError
            For no plan, plans under different relations, some that count rows and some units, or a number of rows
            below 1.
        """
        plans = [plans] if isinstance(plans, FitPlan) else list(plans)
        if not plans or not all(isinstance(plan, FitPlan) for plan in plans):
            raise ValueError("a budget plan is made of at least one FitPlan: estimator.plan(X, y)")
        if isinstance(n_rows, bool) or n_rows < 1:
            raise ValueError(f"n_rows must be positive; got {shown(n_rows)}")
        if len({(plan.neighboring, plan.charge.unit) for plan in plans}) > 1:
            raise ValueError("the plans of one budget must have the same neighboring, and protect the same unit")
        weightings = {"rows" if plan.unit is None else plan.unit.weighting for plan in plans}
        if len(weightings) > 1:
            raise ValueError("some of these plans count rows and some count units: make one budget plan of each kind")
        counted = weightings.pop()
        relation, delta = plans[0].neighboring, max(plan.delta for plan in plans)
        names = _names(plans)
        rows = tuple(replace(row, fit=name) for name, plan in zip(names, plans) for row in _phases(plan, n_rows))
        tables = [plan for plan in plans if plan.table is not None]
        counts = tuple(
            replace(count, fit=name)
            for name, plan in zip(names, plans)
            if plan.table is not None
            for count in plan.table.counts(plan, n_rows)
        )
        units = [f"protected: {plan.unit}" for plan in plans if plan.unit is not None]
        assumed = [
            f"{int(n_rows)} {counted}",
            *dict.fromkeys(units),
            *(text for plan in tables for text in plan.table.assumptions(plan)),
        ]
        curve = tuple((d, epsilon_pld(plans, d, relation)) for d in _DELTAS)
        epsilon = epsilon_pld(plans, delta, relation)
        unit = plans[0].charge.unit
        assumed = tuple(dict.fromkeys(assumed))
        return cls(rows, int(n_rows), epsilon, delta, relation, curve, counts, assumed, counted, unit)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; infinities as "inf"."""

        def plain(value):
            if isinstance(value, float) and math.isinf(value):
                return "inf"
            if isinstance(value, dict):
                return {name: plain(item) for name, item in value.items()}
            return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

        return plain(asdict(self))

    def __str__(self):
        lines = [(row.fit, *_cells(row), _signal(row)) for row in self.phases]
        silent = "no signal/noise: the event does not say how many subsets a step adds up"
        blank = [silent] if any(row.signal_to_noise is None for row in self.phases) else []
        total = f"{self.neighboring}: epsilon {self.epsilon:.4g} at delta {self.delta:.3g}"
        assumed = f"assumed: {'; '.join(self.assumptions)}"
        parts = [
            *table_lines(("fit", *_HEAD, "signal/noise"), lines),
            *blank,
            "",
            *self._counts_in_words(),
            assumed,
            total,
            *self._curve_in_words(),
        ]
        return "\n".join([*parts, "nothing was charged"])

    def _counts_in_words(self):
        if not self.counts:
            return []
        several, what = len({row.fit for row in self.counts}) > 1, self.counted
        head = ("columns", "number", "smallest kept", "error of a count", "of two columns")
        lines = [
            (
                f"{row.kind} ({row.fit})" if several else row.kind,
                str(row.columns),
                "" if row.smallest_kept is None else f"{row.smallest_kept:.0f} {what}" if row.smallest_kept else "all",
                "" if row.one_way_error is None else f"{row.one_way_error:.3g} {what}",
                "" if row.two_way_error is None else f"{row.two_way_error:.3g} {what}",
            )
            for row in self.counts
        ]
        words = ["smallest kept: the smallest category that is kept with probability .95; errors are standard errors"]
        words += self._kept_in_words()
        unknown = any(row.one_way_error is None for row in self.counts)
        words += ["no error: the model is not made of such counts"] if unknown else []
        absent = any(row.one_way_error is not None and row.two_way_error is None for row in self.counts)
        words += ['nothing under "of two columns": these counts are not released'] if absent else []
        words += ["in units: each counts 1, shared by its rows"] if what == "units" else []
        return [*table_lines(head, lines), *words, ""]

    def _kept_in_words(self):
        learned = [row for row in self.counts if row.usually_lost and row.smallest_kept]
        sizes = dict.fromkeys((row.usually_lost, row.smallest_kept, row.kind.rpartition(" ")[2]) for row in learned)
        return [
            f"learned {'classes' if kind == 'target' else 'categories'}: those of fewer than {lost:.0f} {self.counted} "
            f"are usually lost, those of {kept:.0f} or more almost never"
            for lost, kept, kind in sizes
        ]

    def _curve_in_words(self):
        remark = remark_on_epsilon(self.epsilon, self.unit)
        if math.isinf(self.epsilon):
            return [remark]
        finite = [f"{epsilon:.4g} at {delta:.0e}" for delta, epsilon in self.curve if math.isfinite(epsilon)]
        lost = [delta for delta, epsilon in self.curve if math.isinf(epsilon)]
        curve = ["epsilon by delta:  " + "   ".join(finite)] if finite else []
        spent = (
            f"no epsilon at delta {max(lost):.0e} or less: the threshold of learned categories spends it"
            if lost
            else ""
        )
        return [text for text in (*curve, spent, remark) if text]

    def plot(self, path=None):
        """Draw the split of the budget, and epsilon against delta.

        Parameters
        ----------
        path : str or path, default=None
            Path of the figure file; None: it is not written.

        Returns
        -------
        matplotlib.figure.Figure
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("drawing needs matplotlib: pip install matplotlib") from error
        figure = Figure(figsize=(9, 3.2), layout="constrained")
        split, curve = figure.subplots(1, 2)
        names = [
            f"{row.phase} ({row.fit})" if len({r.fit for r in self.phases}) > 1 else row.phase for row in self.phases
        ]
        split.barh(names, [row.share for row in self.phases])
        for k, row in enumerate(self.phases):
            split.annotate(f" noise {row.noise_multiplier:.3g}", (row.share, k), va="center")
        split.set(xlabel="share of what the fit spends", xlim=(0, 1.35 * max(row.share for row in self.phases)))
        split.invert_yaxis()
        finite = [(delta, epsilon) for delta, epsilon in self.curve if math.isfinite(epsilon)]
        if finite:
            curve.semilogx(*zip(*finite), marker="o")
        curve.axvline(self.delta, linestyle=":", color="gray")
        curve.set(xlabel="delta", ylabel="epsilon", ylim=(0, None))
        if path is not None:
            save_figure(figure, path)
        return figure


def plan_in_words(plan: FitPlan) -> str:
    """Return the plan of one fit as text: what it costs, and a table of its phases."""
    lines = [_cells(row) for row in _phases(plan, 1)]
    return "\n".join([_cost(plan), *table_lines(_HEAD, lines), _MORE])


def plan_html(plan: FitPlan) -> str:
    """Return the same for a notebook."""

    def row(cells, kind):
        return f"<tr>{''.join(f'<{kind}>{html.escape(printable(cell))}</{kind}>' for cell in cells)}</tr>"

    body = "".join(row(_cells(phase), "td") for phase in _phases(plan, 1))
    table = f"<table><thead>{row(_HEAD, 'th')}</thead><tbody>{body}</tbody></table>"
    return f"<div><p>{html.escape(printable(_cost(plan)))}</p>{table}<p>{_MORE}</p></div>"


# Columns of a plan of one fit, and what gives more of them.
_HEAD = ("phase", "share", "steps", "sampling", "noise")
_MORE = (
    "a plan charges nothing; BudgetPlan.of(plan, n_rows) adds signal/noise, and of tables the errors of counts in rows"
)


def _cost(plan):
    unit = "one row" if plan.unit is None else str(plan.unit)
    cost = f"epsilon {plan.epsilon:.4g} at delta {plan.delta:.3g}"
    return f"plan of {plan.label.partition(':')[0]}: {cost}, {plan.neighboring} of {unit}"


def _cells(row):
    rate = "" if row.sampling_rate is None else f"{row.sampling_rate:.4g}"
    return row.phase, f"{row.share:.1%}", str(row.steps), rate, f"{row.noise_multiplier:.4g}"


def _signal(row):
    return "" if row.signal_to_noise is None else f"{row.signal_to_noise:.4g}"


def _names(plans):
    """Names of fits, numbered where several have one name."""
    names = [plan.label.partition(":")[0] for plan in plans]
    return [f"{name} {names[: k + 1].count(name)}" if names.count(name) > 1 else name for k, name in enumerate(names)]


def _phases(plan, n_rows):
    name = plan.label.partition(":")[0]
    if plan.phases:
        search = any(row.repeated is not None for row in plan.releases)
        # of a search, a run is one of its candidates or the score, and each has separate shares
        whole = 1.0 if search else math.fsum(phase.share for phase in plan.phases)
        # the releases before the runs of a search come first
        before = sum(row.repeated is None for row in plan.releases) if search else len(plan.phases)
        for k, phase in enumerate(plan.phases):
            share, noise = phase.share / whole, plan.noise_multipliers[phase.label]
            signal = n_rows * (phase.sampling_rate or 1.0) if phase.signal is None else phase.signal
            label = phase.label if k < before else f"run may be: {phase.label}"
            yield _phase(name, label, share, phase.steps, phase.sampling_rate, noise, signal)
        return
    for row in plan.releases:  # a plan without phases; of a search, each alternative of a run
        alternatives = (row,) if row.repeated is None else [part for rows in row.repeated.alternatives for part in rows]
        for k, part in enumerate(alternatives):
            words = "run may be: " if row.repeated is not None else ""
            noise, rate = part.noise_multiplier or 0.0, part.sampling_rate
            # the event does not say how many subsets a step adds up
            signal = None if part.mechanism in SUBSET_MECHANISMS else n_rows * (rate or 1.0)
            yield _phase(name, f"{words}{part.mechanism} {k + 1}", 1.0, part.count, rate, noise, signal)


def _phase(fit, label, share, steps, rate, noise, signal):
    ratio = None if signal is None else math.inf if noise == 0 else signal / noise
    return PlannedPhase(fit, label, share, steps, rate, noise, ratio)
