"""PrivacyAccountant: one privacy budget, its ledger, and the rule of its charges."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from dp_accounting import DpEvent

from .._types import BoundedUnit, in_words
from ..exceptions import BudgetExceededError, LedgerError
from ..utils.printing import printable, shown
from ._calibration import FitPlan, Phase, calibrate, check_phases, make_plan, scale_for_rdp
from ._events import Charge, check_note
from ._filter import Entry, PrivacyFilter, proves_privacy
from ._ledger import FileLedger, MemoryLedger, create_ledger_file
from ._pricing import MOST_WORK, check_delta, check_epsilon, epsilon_pld, gaussian_mu, work_alone
from ._receipt import ChargedSteps, Receipt, resume, unit_of_plan
from ._renyi import rdp_at, shares_of

if TYPE_CHECKING:
    import pandas as pd


class PrivacyAccountant:
    """One privacy budget for all fits on one data set; it refuses charges beyond the budget.

    The first charge may cost the whole budget. Later charges may depend on earlier releases, so they must pass a
    privacy filter (see Notes), which needs slightly more noise. To avoid this, declare all fits in advance by `plan`.

    Parameters
    ----------
    epsilon : float, default=None
        Budget, > 0; infinity sets no limit. None opens the existing `ledger`.
    delta : float, default=None
        Budget, in (0, 1). None: that of an existing ledger, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"}, default=None
        Neighbouring relation of every charge. None: that of an existing ledger, else "add_or_remove_one".
    ledger : str or path, default=None
        SQLite file of the ledger, on a local disk; created when missing, else opened. Processes that share it never
        overspend, and a killed process loses no charge. None: the ledger is in the memory of this object.
    delta_reserve : float, default=None
        Share of delta, in [0, 1), reserved for the thresholds of learned categories. None: that of an existing ledger,
        else 0.2.
    unit : str, default=None
        What every charge protects: all rows with the same identifier in the column of this name. None: the unit of an
        existing ledger, else one row. The accountant refuses charges for another unit.
    label : str, default=None
        Text in the ledger beside the name of the model, in each fit that is charged through this object, such as
        "visits of 2023"; public. One line of at most 100 printable characters, without a colon. It
        distinguishes the fits of one ledger. It is not a part of the budget: each process that opens a ledger file may
        give another one.

    Raises
    ------
    ValueError
        For parameters out of range.
    LedgerError
        When the ledger cannot be opened, is damaged, or was created with other parameters.

    Notes
    -----
    `sklearn.base.clone`, `copy.copy` and `copy.deepcopy` return the accountant itself, so a pipeline, a grid search and
    their clones charge the same ledger. A pickle of an accountant with a ledger file contains the path, and charges the
    file. Without a file, an unpickled accountant is *detached*, and so is one in a forked child process: it can be
    read, but a charge raises an error. With a file, the accountant remembers the length and the hash that it has seen.
    It refuses a file that is shorter, or in which earlier entries differ; `verify` explains the limits of this check.

    The filter: a batch is one charge, or the charges of one `plan`. The cost of the first batch is its epsilon by PLD.
    For later batches, the sum of the RDP of all charges must stay within a limit, at an order that is fixed when the
    accountant is created. `skdpgen.accounting._filter.PrivacyFilter` has the rule and the proof.

    Examples
    --------
    >>> from skdpgen.accounting import Phase, PrivacyAccountant
    >>> accountant = PrivacyAccountant(epsilon=1.0, delta=1e-5)
    >>> plan = accountant.calibrate([Phase("histogram", 1.0)], label="first look", epsilon=0.5)
    >>> receipt = accountant.charge(plan.event, plan.label)
    >>> round(accountant.epsilon_spent(), 3)
    0.5
    >>> round(accountant.remaining(), 2)
    0.72
    """

    # Whether the phases of a fit are fixed before its noise is known, as in a search: they may not depend on it then.
    fixed_phases = False
    # Labels of the phases of a fit that goes on, which were charged.
    charged_labels = None
    _label = None

    def __init__(
        self, epsilon=None, delta=None, neighboring=None, ledger=None, *, delta_reserve=None, unit=None, label=None
    ):
        self._label = None if label is None else check_note(label)
        given = {"epsilon": epsilon, "delta": delta, "neighboring": neighboring, "delta_reserve": delta_reserve}
        given["unit"] = unit
        if epsilon is None and ledger is None:
            raise ValueError("epsilon must be given; it may be left out only to open an existing ledger")
        if epsilon is not None:
            rule = PrivacyFilter(
                epsilon,
                1e-5 if delta is None else delta,
                "add_or_remove_one" if neighboring is None else neighboring,
                0.2 if delta_reserve is None else delta_reserve,
                unit,
            )
        if ledger is None:
            self._filter, self._ledger = rule, MemoryLedger()
            return
        path = os.path.abspath(os.fspath(ledger))
        if epsilon is not None:
            create_ledger_file(path, rule)
        self._ledger = FileLedger(path)
        self._filter = self._ledger.rule()
        for name, value in given.items():
            stored = getattr(self._filter, name)
            if value is not None and value != stored:
                raise LedgerError(f"the ledger {path} was created with {name}={stored!r}, not {value!r}")

    # ---- what it is ------------------------------------------------------------------------------
    @property
    def epsilon(self) -> float:
        """Budget."""
        return self._filter.epsilon

    @property
    def delta(self) -> float:
        """Budget; the ledger states epsilon at this delta."""
        return self._filter.delta

    @property
    def neighboring(self) -> str:
        """Neighbouring relation of every charge."""
        return self._filter.neighboring

    @property
    def delta_reserve(self) -> float:
        """Share of delta reserved for threshold rules."""
        return self._filter.delta_reserve

    @property
    def unit(self) -> str | None:
        """Who every charge protects: all rows of one `unit`; None: one row."""
        return self._filter.unit

    @property
    def label(self) -> str | None:
        """Text beside the name of the model, in the label of each fit that is charged through this object."""
        return self._label

    @property
    def alpha(self) -> float | None:
        """RDP order of the filter, fixed at creation; None for an infinite budget."""
        return self._filter.alpha

    @property
    def ledger(self) -> str | None:
        """Absolute path of the ledger file, or None."""
        return self._ledger.path

    @property
    def detached(self) -> bool:
        """Whether this is a copy without a ledger file, which cannot be charged."""
        return self._ledger.detached

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Entries of the ledger: charges with their batch and status, in the order of their acceptance."""
        return tuple(self._ledger.read(self._filter))

    @property
    def charges(self) -> tuple[Charge, ...]:
        """All charges, planned ones included."""
        return tuple(entry.charge for entry in self.entries)

    # ---- charging --------------------------------------------------------------------------------
    def charge(
        self,
        event: DpEvent,
        label: str,
        extra_delta: float = 0.0,
        *,
        private: bool = True,
        unit: str | None = None,
    ) -> Receipt:
        """Charge a mechanism, before it touches the data.

        Parameters
        ----------
        event : dp_accounting.DpEvent, DPSGDPlan or SubsetPlan
            Description of all releases. For a plan its event is charged, and the plan may then be followed, once, in
            this process.
        label : str
            Name for the reader of the ledger; public.
        extra_delta : float, default=0.0
            Probability that threshold rules spend.
        private : bool, default=True
            False when the noise can be reproduced, as seeded noise can: the ledger is then marked for good.
        unit : str, default=None
            Who the mechanism protects: all rows of one `unit`; None: one row, or the unit of a plan. It must be the
            unit of this accountant.

        Returns
        -------
        Receipt
            ``receipt.cover(plan)`` allows a plan to be followed whose steps are a part of `event`.

        Raises
        ------
        BudgetExceededError
            When the budget does not allow it; nothing is charged.
        DetachedAccountantError
            When the accountant is a copy without a ledger file.
        LedgerError
            When the ledger file cannot be read or written; nothing is charged.
        ValueError
            For an event whose cost is not known, a bad label or extra_delta, or another unit.
        RuntimeError
            For a plan that was charged before; nothing is charged.

        Notes
        -----
        A charge equal to one declared by `plan` uses that one up and costs nothing more. A charge is never
        undone, even if the fit fails.
        """
        status = "charged" if private else "seeded"
        if not hasattr(event, "check_charged"):
            return self._charge_event(Charge(label, event, extra_delta, unit), status)
        plan, relation = event, getattr(event, "neighboring", self.neighboring)
        if relation != self.neighboring:
            raise ValueError(
                f"the plan is for {relation!r}, and this ledger for {self.neighboring!r}: make the plan with "
                "neighboring=accountant.neighboring; nothing was charged"
            )
        own = unit_of_plan(plan)
        if unit not in (None, own):
            raise ValueError(f"the plan is for {in_words(own)}, and not for {in_words(unit)}; nothing was charged")
        charge = Charge(label, plan.event, extra_delta, own)
        with plan._use.lock:  # of two threads that charge one plan, the second is refused before it is charged
            plan._check_free()
            receipt = self._charge_event(charge, status)
            receipt.cover(plan)
        return receipt

    def _charge_event(self, charge: Charge, status: str) -> Receipt:
        number = self._add([charge], status)
        return Receipt(charge, None if self.ledger is None else ChargedSteps(self._ledger, self._filter, number))

    def resume(self, plan, checkpoint):
        """Allow a plan to be followed for the remaining steps of an interrupted training; charges nothing.

        Parameters
        ----------
        plan : DPSGDPlan
            A new plan with the same numbers as the one that was charged.
        checkpoint : str or path
            File that ``DPNet(..., plan=plan, checkpoint=...)`` wrote, under a plan charged to this ledger file.

        Returns
        -------
        plan
            The same object, to be followed with the same checkpoint, once and in this process. The ledger file counts
            the steps taken: those that were taken and not run to the end of their block are lost, at most 2 % each
            time. Several processes may resume one training: they share the remaining steps.

        Raises
        ------
        LedgerError
            When the checkpoint is of another ledger, or the ledger does not fit it.
        RuntimeError
            For a plan with other numbers or one that was charged; for a training that did not begin with a
            checkpoint; when all steps were taken.
        ValueError
            When the file is no checkpoint, or the accountant has no ledger file.

        Notes
        -----
        The parameters in the checkpoint need not be trusted: whatever they are, the remaining steps cost what was
        charged for them. A *copy of the ledger file* is another ledger with separate steps: resume from one of them.
        """
        return resume(plan, checkpoint, self._ledger, self._filter)

    def plan(self, charges: Iterable[Charge | FitPlan]) -> None:
        """Declare and charge several fits at once; each is used up by a later equal `charge`.

        Parameters
        ----------
        charges : iterable of Charge or FitPlan
            Charges that do not depend on any release from the data. As the first batch of a ledger they cost their
            joint epsilon by PLD, without the extra cost of the filter.

        Raises
        ------
        BudgetExceededError, DetachedAccountantError, LedgerError, ValueError
            As in `charge`; all are accepted or none.

        Examples
        --------
        >>> from skdpgen.accounting import Charge, PrivacyAccountant, gaussian_event
        >>> accountant = PrivacyAccountant(1.0)
        >>> pca, mixture = Charge("pca", gaussian_event(6.0)), Charge("mixture", gaussian_event(6.0))
        >>> accountant.plan([pca, mixture])
        >>> receipt = accountant.charge(pca.event, "pca")
        >>> list(accountant.report()["status"])
        ['charged', 'planned']
        """
        batch = [item.charge if isinstance(item, FitPlan) else item for item in charges]
        if not batch or not all(isinstance(item, Charge) for item in batch):
            raise ValueError("plan takes a non-empty list of Charge or FitPlan")
        self._add(batch, "planned")

    def _add(self, charges: Sequence[Charge], status: str) -> int | None:
        if not self.detached and not math.isinf(self.epsilon) and not self._ledger.totals(self._filter):
            epsilon_pld(charges, self.delta, self.neighboring)  # cached: the lock is then held for a moment only
        return self._ledger.add(charges, status, self._filter)

    def calibrate(
        self,
        phases: Iterable[Phase],
        *,
        label: str,
        epsilon: float | None = None,
        delta: float | None = None,
        extra_delta_share: float = 0.0,
        unit: BoundedUnit | None = None,
    ) -> FitPlan:
        """Find the noise for a fit; nothing is charged yet.

        Parameters
        ----------
        phases : iterable of Phase
        label : str
            Name of the fit in the ledger.
        epsilon : float, default=None
            Cost of the fit alone, to which it is calibrated; a later fit that the filter would refuse for its sampled
            steps gets more noise and costs less. None: all that is left, under the rule that will apply.
        delta : float, default=None
            Delta of that cost; None: the accountant's.
        extra_delta_share : float, default=0.0
            Share of `delta`, in [0, 1), that threshold rules will spend; in a fit after others at most half of the
            delta that is still reserved for them, so that a part is always left.
        unit : BoundedUnit, default=None
            Who the fit protects; None: one row. Its name must be the unit of this accountant.

        Returns
        -------
        FitPlan
            Charge it by ``charge(plan.event, plan.label, plan.extra_delta)``.

        Raises
        ------
        BudgetExceededError
            With ``epsilon=None``, when nothing is left.
        ValueError
            For parameters out of range.
        """
        phases = check_phases(phases)
        delta = self.delta if delta is None else check_delta(delta)
        if not 0 <= extra_delta_share < 1:
            raise ValueError(f"extra_delta_share must lie in [0, 1); got {shown(extra_delta_share)}")
        extra = float(extra_delta_share) * delta
        Charge(label, phases[0].event(1.0), extra)  # the label and extra_delta must be chargeable
        self._filter.check_unit(None if unit is None else unit.name, label)
        terms = {"neighboring": self.neighboring, "label": label, "extra_delta": extra, "unit": unit}
        past = self._ledger.totals(self._filter)
        if math.isinf(self.epsilon):
            return calibrate(phases, math.inf if epsilon is None else epsilon, delta, **terms)
        if epsilon is not None and past.planned and (plan := self._planned_before(phases, epsilon, delta, terms)):
            return plan
        if past and extra > 0:
            terms["extra_delta"] = extra = min(extra, self._filter.thresholds_left(past) / 2) or extra
        if epsilon is not None:
            plan = calibrate(phases, check_epsilon(epsilon), delta, **terms)
            if not past or self._filter.accepts(past, [plan.charge]):
                return plan
            # Sampled steps can take far more RDP than Gaussian releases of the same epsilon: limit them to the same.
            if math.isinf(epsilon) or epsilon > self._filter.remaining(past):
                return plan  # above the budget by any rule: charging it says so
            rdp = min(self._filter.rdp_left(past), self.alpha * gaussian_mu(epsilon, self.delta) ** 2 / 2)
        elif not past:
            return self._with_whole_budget(phases, delta, terms)
        else:
            rdp = self._filter.rdp_left(past)
            if not rdp > 0:
                raise BudgetExceededError(
                    f"nothing is left of this budget (epsilon = {self.epsilon:g}, delta = {self.delta:.3g}): no "
                    "further fit of these rows can be charged; nothing was charged"
                )
        mu = scale_for_rdp(phases, rdp * (1 - 1e-9), self.alpha, self.neighboring)
        return self._alone(make_plan(phases, mu, epsilon=self.epsilon, delta=delta, **terms), delta)

    def _with_whole_budget(self, phases, delta: float, terms: dict) -> FitPlan:
        """Plan of the first fit, which spends everything."""
        extra = terms["extra_delta"]
        if extra >= self.delta:
            raise ValueError(
                f"thresholds would spend {extra:.3g}, more than the accountant's delta {self.delta:.3g}: lower "
                "extra_delta_share, or give the accountant a larger delta"
            )
        plan = calibrate(phases, self.epsilon, self.delta, **terms)
        return plan if delta == self.delta else self._alone(plan, delta)

    def _planned_before(self, phases, epsilon: float, delta: float, terms: dict) -> FitPlan | None:
        """Return the plan of these phases that the ledger holds as planned, if there is one."""
        extra, label = terms["extra_delta"], terms["label"]
        entries = self._ledger.read(self._filter)
        planned = [entry.charge for entry in entries if entry.status == "planned" and entry.charge.label == label]
        # plans with thresholds for one with thresholds, and first the delta that it would have by itself
        found = {charge.extra_delta for charge in planned if (charge.extra_delta > 0) == (extra > 0)}
        for known in sorted((one for one in found if one < delta), key=lambda one: (one != extra, one)):
            plan = calibrate(phases, check_epsilon(epsilon), delta, **{**terms, "extra_delta": known})
            if plan.charge in planned:
                return plan
        return None

    def _alone(self, plan: FitPlan, delta: float) -> FitPlan:
        """Return the plan with the epsilon that it costs alone at `delta`."""
        return replace(plan, epsilon=epsilon_pld(plan, delta, self.neighboring), delta=delta)

    # ---- reading the ledger ----------------------------------------------------------------------
    def epsilon_spent(self, delta: float | None = None) -> float:
        """Epsilon spent so far, planned charges included.

        Parameters
        ----------
        delta : float, default=None
            Delta at which epsilon is stated; None: the accountant's.

        Returns
        -------
        float
            By PLD as long as all charges were declared in one batch; afterwards the sum that the filter counts.
            Infinity if a release was not private, or if the thresholds have spent more than `delta`.
        """
        return self._filter.spent(self._ledger.read(self._filter), delta)

    def remaining(self) -> float:
        """Epsilon that one more fit may cost, alone and at the accountant's delta, under the rule that will apply.

        Returns
        -------
        float
            Exact for the first charge and for fits of Gaussian releases. For a later fit with Poisson-sampled steps it
            is an upper bound: `calibrate` lowers its cost where the filter demands it.
        """
        return self._filter.remaining(self._ledger.totals(self._filter))

    def report(self) -> pd.DataFrame:
        """Return the ledger as a table with one row for each primitive release.

        Returns
        -------
        pandas.DataFrame
            Columns label, release (its name, where the label of the charge lists one for each row; else empty),
            mechanism, noise_multiplier, sampling_rate (NaN without sampling), count, extra_delta (on the first row of
            its charge), rdp (at the filter's order), share and status. A share is that of a plan: of the squared
            Gaussian-DP parameter mu of all releases. Shares of sampled steps therefore differ from those of their rdp.
            `attrs` holds the totals: budget_epsilon, budget_delta, neighboring, unit (where it is not a row), alpha,
            epsilon_spent, epsilon_if_fixed_in_advance (the PLD total, were all charges known beforehand), remaining,
            private.
        """
        return _ledger_frame(self._ledger.read(self._filter), self._filter)

    def fits(self) -> pd.DataFrame:
        """Return the ledger as a table with one row for each charge: a fit, as a rule.

        Returns
        -------
        pandas.DataFrame
            Columns day (of the charge, in UTC; None where the ledger file is of an earlier version), model and releases
            (the two parts of the label), epsilon_alone (what the charge would cost alone, at the accountant's delta;
            NaN after computations of about a minute), share (as in `report`) and status. Epsilons of separate fits do
            not add up; the shares do.
        """
        return _fits_frame(self._ledger.read(self._filter), self._filter)

    def verify(self, head: str | None = None) -> dict[str, Any]:
        """Recompute the ledger from its entries alone: its hash chain, its running sums, and each charge by its rule.

        Parameters
        ----------
        head : str, default=None
            Head noted earlier ("length:hash"): the ledger must have had it.

        Returns
        -------
        dict
            charges (their number), epsilon_spent, budget_epsilon, delta, neighboring, unit (where it is not a row),
            private, head (of a ledger file: note it where others cannot change it), unchained (number of entries from
            before the hash chain, by an earlier version: it cannot be shown that they were not changed).

        Raises
        ------
        LedgerError
            At the first entry that is not correct; when the ledger cannot be read; for a file of more than 256 MiB,
            200,000 records or 16 MiB in a record, or whose events take longer than about a minute to verify.

        Notes
        -----
        The chain has no secret key. Whoever can write the file can write another one with another valid chain.
        Accountants that have seen the true chain notice that, and so does a head that was noted.

        Examples
        --------
        >>> from skdpgen.accounting import PrivacyAccountant, gaussian_event
        >>> accountant = PrivacyAccountant(1.0)
        >>> receipt = accountant.charge(gaussian_event(20.0), "first look")
        >>> accountant.verify()["charges"]
        1
        """
        found = self._ledger.verify(self._filter, head)
        entries = self.entries
        return {
            "charges": len(entries),
            "epsilon_spent": self._filter.spent(entries),
            "budget_epsilon": self.epsilon,
            "delta": self.delta,
            "neighboring": self.neighboring,
            **({} if self.unit is None else {"unit": self.unit}),
            "private": proves_privacy(entries),
            **found,
        }

    def __repr__(self):
        # scikit-learn prints parameters on one line: 30 characters at most, and the file is not read for it
        text = f"PrivacyAccountant({self.epsilon:.4g}, {self.delta:.2g})"
        return text if len(text) <= 30 else f"PrivacyAccountant({self.epsilon:.4g})"

    def _repr_html_(self):
        try:
            return _ledger_html(self._ledger.read(self._filter), self._filter, path=self.ledger, detached=self.detached)
        except LedgerError as error:
            return f"<p>PrivacyAccountant: {html.escape(str(error))}</p>"

    # ---- surviving scikit-learn ------------------------------------------------------------------
    def __sklearn_clone__(self):
        return self

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        rule = self._filter
        parameters = (rule.epsilon, rule.delta, rule.neighboring, rule.delta_reserve, rule.unit)
        if self.ledger is not None:
            # nothing that changes with a charge: joblib caches recognise an estimator by its pickle
            labelled = () if self._label is None else (self._label,)
            return _reattach, (self.ledger, self._ledger.identity, parameters, *labelled)
        return detached_accountant, (tuple(self._ledger.read(self._filter)), parameters)


def _reattach(path: str, identity: str, parameters: tuple, label: str | None = None) -> PrivacyAccountant:
    """Return the accountant of a pickle, on its ledger file, which is read when it is first used."""
    accountant = object.__new__(PrivacyAccountant)
    accountant._filter, accountant._ledger = PrivacyFilter(*parameters), FileLedger(path, identity)
    accountant._label = label
    return accountant


def detached_accountant(entries: Sequence[Entry], parameters: tuple) -> PrivacyAccountant:
    """Return the accountant of a pickle without a file, or of a card: it can be read and not charged."""
    accountant = object.__new__(PrivacyAccountant)
    accountant._filter, accountant._ledger = PrivacyFilter(*parameters), MemoryLedger(entries, detached=True)
    return accountant


# ---- the ledger as a table and as HTML ----------------------------------------------------------
_COLUMNS_OF_FITS = ["day", "model", "releases", "epsilon_alone", "share", "status"]
_COLUMNS = [
    "label", "release", "mechanism", "noise_multiplier", "sampling_rate", "count", "extra_delta", "rdp", "share",
    "status",
]  # fmt: skip


def _ledger_totals(entries: Sequence[Entry], rule: PrivacyFilter) -> dict[str, Any]:
    """Return the figures of the whole ledger."""
    charges = [entry.charge for entry in entries]
    return {
        "budget_epsilon": rule.epsilon,
        "budget_delta": rule.delta,
        "neighboring": rule.neighboring,
        **({} if rule.unit is None else {"unit": rule.unit}),
        "alpha": rule.alpha,
        "epsilon_spent": rule.spent(entries),
        "epsilon_if_fixed_in_advance": epsilon_pld(charges, rule.delta, rule.neighboring),
        "remaining": rule.remaining(entries),
        "private": proves_privacy(entries),
    }


def _ledger_frame(entries: Sequence[Entry], rule: PrivacyFilter) -> pd.DataFrame:
    """Return one row for each primitive release; the totals are in `attrs`."""
    import pandas as pd

    rows, parts = [], []
    for entry in entries:
        found = entry.charge.releases
        parts += [(row,) for row in found]
        label, names = names_of_releases(printable(entry.charge.label), len(found))
        for k, row in enumerate(found):
            rdp = math.nan if rule.alpha is None else rdp_at((row,), rule.alpha, rule.neighboring)
            rate = math.nan if row.sampling_rate is None else row.sampling_rate
            extra = 0.0 if k else entry.charge.extra_delta
            noise = math.nan if row.noise_multiplier is None else row.noise_multiplier
            line = (label, names[k], row.mechanism, noise, rate, row.count, extra, rdp, 0.0)
            rows.append((*line, entry.status))
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    frame["share"] = np.asarray(shares_of(parts, rule.alpha, rule.neighboring), dtype=float)
    frame.attrs = _ledger_totals(entries, rule)
    return frame


def _of_units(rule):
    """Say who is protected, where that is not one row."""
    return "" if rule.unit is None else f", {html.escape(in_words(rule.unit))}"


def names_of_releases(label, n_releases):
    """Return label and names of the releases of a charge that is labelled "label: name, name"; else empty names."""
    head, colon, tail = label.partition(": ")
    names = tail.split(", ")
    return (head, names) if colon and len(names) == n_releases else (label, [""] * n_releases)


def _ledger_html(entries: Sequence[Entry], rule: PrivacyFilter, *, path: str | None, detached: bool) -> str:
    """Return the totals in one sentence, and the table."""
    frame = _ledger_frame(entries, rule)
    totals = frame.attrs
    left = "detached copy" if detached else f"{totals['remaining']:.4g} left for one more fit"
    text = (
        f"<b>PrivacyAccountant</b>: spent &epsilon; = {totals['epsilon_spent']:.4g} of {rule.epsilon:.4g} "
        f"at &delta; = {rule.delta:.3g} ({rule.neighboring}{_of_units(rule)}); {left}; had all been fixed in advance: "
        f"{totals['epsilon_if_fixed_in_advance']:.4g}"
    )
    if rule.alpha is not None and len({entry.batch for entry in entries}) > 1:
        used = 1 - rule.rdp_left(entries) / rule.limit(entries)
        text += (
            f"; {used:.1%} of the filter is used (epsilons of separate fits do not add up: their squares nearly do); "
            "the filter counts more than the same fits cost if fixed in advance, because a later fit may have been "
            "chosen by earlier results"
        )
    if not totals["private"]:
        seeded = any(entry.status == "seeded" for entry in entries)
        why = "a fit had noise that is known (seeded)" if seeded else "a release without noise was charged"
        text += f"; <b>not private: {why}</b>"
    if path is not None:
        text += f"; ledger {html.escape(path)}"
    return f"<div><p>{text}</p>{frame.to_html(index=False, na_rep='', float_format='{:.4g}'.format)}</div>"


def _fits_frame(entries: Sequence[Entry], rule: PrivacyFilter) -> pd.DataFrame:
    """Return one row for each charge; see `PrivacyAccountant.fits`."""
    import pandas as pd

    epsilons, left, rows = {}, MOST_WORK, []
    for entry in entries:
        charge = entry.charge
        key = (charge.releases, charge.extra_delta)
        if key not in epsilons:
            left -= work_alone(charge, rule.neighboring) if left > 0 else 0.0
            epsilons[key] = epsilon_pld(charge, rule.delta, rule.neighboring) if left > 0 else math.nan
        model, _, releases = printable(charge.label).partition(": ")
        rows.append((entry.day, model, releases, epsilons[key], math.nan, entry.status))
    frame = pd.DataFrame(rows, columns=_COLUMNS_OF_FITS)
    parts = [entry.charge.releases for entry in entries]
    frame["share"] = np.asarray(shares_of(parts, rule.alpha, rule.neighboring), dtype=float)
    return frame
