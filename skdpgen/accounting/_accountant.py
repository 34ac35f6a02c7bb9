"""PrivacyAccountant: the one object that keeps the books."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..exceptions import BudgetExceededError, LedgerError
from ._calibration import FitPlan, Phase, calibrate, check_phases, make_plan, scale_for_rdp
from ._charged_steps import ChargedSteps, resume
from ._cost import check_delta, check_epsilon, epsilon_pld
from ._events import Charge
from ._filter import Entry, PrivacyFilter, proves_privacy
from ._gaussian import gaussian_mu
from ._ledger import FileLedger, MemoryLedger, create_ledger_file
from ._receipt import Receipt
from ._report import ledger_frame, ledger_html

if TYPE_CHECKING:
    import pandas as pd
    from dp_accounting import DpEvent

__all__ = ["PrivacyAccountant", "detached_accountant"]


class PrivacyAccountant:
    """Keeps one privacy budget for everything that is fitted on one data set, and refuses to overspend it.

    The first charge may cost the whole budget. Later charges, which may have been chosen after seeing
    what was released before, are accepted by a privacy filter (see Notes); to share a budget without
    its small extra price, declare all fits beforehand by `plan`.

    Parameters
    ----------
    epsilon : float, default=None
        Budget, > 0; infinity keeps books without a limit. None opens the existing `ledger`.
    delta : float, default=None
        Budget, in (0, 1). None: that of an existing ledger, else 1e-5.
    neighboring : {"add_or_remove_one", "replace_one"}, default=None
        What a unit's presence means; every charge is made under it. None: that of an existing ledger, else
        "add_or_remove_one".
    ledger : str or path, default=None
        SQLite file of the books, on a local disk; made when missing, opened when there. Processes that
        share it never overspend, and a killed process loses no charge. None: the books live in this object.
    delta_reserve : float, default=None
        Share of delta, in [0, 1), kept for threshold rules. None: that of an existing ledger, else 0.2.

    Raises
    ------
    ValueError
        For parameters out of range.
    LedgerError
        When the ledger cannot be opened, is damaged, or was made with other parameters.

    Notes
    -----
    The accountant is not copied by `sklearn.base.clone`, `copy.copy` or `copy.deepcopy`, so a pipeline,
    a grid search and their clones charge the same books. A pickle of one with a ledger file holds the path
    and goes on charging it; without a file it is *detached*: its entries can be read, charging raises. So it is in a
    forked child, which may charge a ledger file. With a file the object remembers the length and the hash that it has
    seen, and refuses a file with a shorter or another past; see `verify` for what that can show.

    The filter: the first batch is priced by PLD; every later one by the sum of RDP over all charges at an
    order fixed when the accountant is created. `skdpgen.accounting._filter.PrivacyFilter` has rule and proof.

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

    # Whether a fit's phases were planned before its noise is known, as those of a fit within another are: it may not
    # choose them by its noise then.
    fixed_phases = False

    def __init__(self, epsilon=None, delta=None, neighboring=None, ledger=None, *, delta_reserve=None):
        given = {"epsilon": epsilon, "delta": delta, "neighboring": neighboring, "delta_reserve": delta_reserve}
        if epsilon is None and ledger is None:
            raise ValueError("epsilon must be given; it may be left out only to open an existing ledger")
        if epsilon is not None:
            rule = PrivacyFilter(
                epsilon,
                1e-5 if delta is None else delta,
                "add_or_remove_one" if neighboring is None else neighboring,
                0.2 if delta_reserve is None else delta_reserve,
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
                raise LedgerError(f"the ledger {path} was made with {name}={stored!r}, not {value!r}")

    # ---- what it is ------------------------------------------------------------------------------
    @property
    def epsilon(self) -> float:
        """Budget."""
        return self._filter.epsilon

    @property
    def delta(self) -> float:
        """Budget; at this delta the books are kept."""
        return self._filter.delta

    @property
    def neighboring(self) -> str:
        """Neighbouring relation of every charge."""
        return self._filter.neighboring

    @property
    def delta_reserve(self) -> float:
        """Share of delta kept for threshold rules."""
        return self._filter.delta_reserve

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
        """Whether these are copied books, which cannot be charged."""
        return self._ledger.detached

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The books: charges with their batch and status, in the order of their acceptance."""
        return tuple(self._ledger.read(self._filter))

    @property
    def charges(self) -> tuple[Charge, ...]:
        """Everything paid for, planned charges included."""
        return tuple(entry.charge for entry in self.entries)

    # ---- paying ----------------------------------------------------------------------------------
    def charge(self, event: DpEvent, label: str, extra_delta: float = 0.0, *, private: bool = True) -> Receipt:
        """Charge a mechanism, before it touches the data.

        Parameters
        ----------
        event : dp_accounting.DpEvent, DPSGDPlan or SubsetPlan
            Everything that will be released. Of a plan its event is charged, and the plan may then be followed, once,
            in this process.
        label : str
            For the reader of the ledger; public.
        extra_delta : float, default=0.0
            Probability spent outright by threshold rules.
        private : bool, default=True
            False when the noise to come is known to somebody, as seeded noise is: the books are then marked, for good.

        Returns
        -------
        Receipt
            ``receipt.cover(plan)`` lets a plan be followed whose steps are a part of `event`. Not needed otherwise.

        Raises
        ------
        BudgetExceededError
            When the budget does not allow it; nothing is charged.
        DetachedAccountantError
            When these are copied books.
        LedgerError
            When the ledger file cannot be read or written; nothing is charged.
        ValueError
            For an event that cannot be priced, or a bad label or extra_delta.
        RuntimeError
            For a plan that was charged before; nothing is charged.

        Notes
        -----
        A charge equal to one declared by `plan` uses that up and costs nothing more. A charge is never
        taken back, whatever becomes of the fit.
        """
        status = "charged" if private else "seeded"
        if not hasattr(event, "check_charged"):
            return self._charge_event(Charge(label, event, extra_delta), status)
        plan, relation = event, getattr(event, "neighboring", self.neighboring)
        if relation != self.neighboring:
            raise ValueError(
                f"the plan is for {relation!r}, and this ledger for {self.neighboring!r}: make the plan with "
                "neighboring=accountant.neighboring; nothing was charged"
            )
        with plan._use.lock:  # of two threads that charge one plan, the second is refused before it is charged
            plan._check_free()
            receipt = self._charge_event(Charge(label, plan.event, extra_delta), status)
            receipt.cover(plan)
        return receipt

    def _charge_event(self, charge: Charge, status: str) -> Receipt:
        number = self._add([charge], status)
        return Receipt(charge, None if self.ledger is None else ChargedSteps(self._ledger, self._filter, number))

    def resume(self, plan, checkpoint):
        """Let a plan be followed for the steps of an interrupted training that are left; charges nothing.

        Parameters
        ----------
        plan : DPSGDPlan
            A new one, of the same numbers as the one that was charged.
        checkpoint : str or path
            Written by ``DPNet(..., plan=plan, checkpoint=...)`` under a plan that was charged to this ledger file.

        Returns
        -------
        plan
            The same object, to be followed with the same checkpoint, once and in this process. The ledger file says
            how many steps were taken: steps that were taken and not run to the end of their block are lost, at most
            2 % each time. Several processes may resume one training: they share the steps that are left.

        Raises
        ------
        LedgerError
            When the checkpoint is of another ledger, or the ledger does not fit it.
        RuntimeError
            For a plan of other numbers or one that was charged; for a training that was not begun with a checkpoint;
            when all its steps were taken.
        ValueError
            When the file is no checkpoint, or the accountant has no ledger file.

        Notes
        -----
        What the checkpoint holds of parameters is not trusted: whatever they are, the steps that are left cost what
        was charged for them. A *copy of the ledger file* is another ledger with steps of its own: resume from one.
        """
        return resume(plan, checkpoint, self._ledger, self._filter)

    def plan(self, charges: Iterable[Charge | FitPlan]) -> None:
        """Declare and pay for several charges at once; each is used up by a later equal `charge`.

        Parameters
        ----------
        charges : iterable of Charge or FitPlan
            Made without looking at any release from the data. As the first batch of a ledger they are priced jointly by
            PLD, without the filter's price.

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
            epsilon_pld(charges, self.delta, self.neighboring)  # remembered: the lock is then held for a moment only
        return self._ledger.add(charges, status, self._filter)

    def calibrate(
        self,
        phases: Iterable[Phase],
        *,
        label: str,
        epsilon: float | None = None,
        delta: float | None = None,
        extra_delta_share: float = 0.0,
    ) -> FitPlan:
        """Find the noise for a fit; nothing is charged yet.

        Parameters
        ----------
        phases : iterable of Phase
        label : str
            Names the fit in the ledger.
        epsilon : float, default=None
            What the fit may cost alone, and what it is calibrated to; a later fit that the filter would refuse for its
            sampled steps gets more noise and costs less. None: all that is left, under the rule that will apply.
        delta : float, default=None
            At which `epsilon` is meant; None is the accountant's.
        extra_delta_share : float, default=0.0
            Share of `delta`, in [0, 1), that threshold rules will spend; in a fit chosen after others at most half of
            what the ledger still keeps for them, so that there is always a rest.

        Returns
        -------
        FitPlan
            To be charged by ``charge(plan.event, plan.label, plan.extra_delta)``.

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
            raise ValueError(f"extra_delta_share must lie in [0, 1); got {extra_delta_share!r}")
        extra = float(extra_delta_share) * delta
        Charge(label, phases[0].event(1.0), extra)  # the label and extra_delta must be chargeable
        terms = {"neighboring": self.neighboring, "label": label, "extra_delta": extra}
        past = self._ledger.totals(self._filter)
        if math.isinf(self.epsilon):
            return calibrate(phases, math.inf if epsilon is None else epsilon, delta, **terms)
        entries = self._ledger.read(self._filter) if past.planned else []
        planned = [entry.charge for entry in entries if entry.status == "planned" and entry.charge.label == label]
        if epsilon is not None:
            # of its own kind, and the threshold that it would have by itself first
            found = {charge.extra_delta for charge in planned if (charge.extra_delta > 0) == (extra > 0)}
            for known in sorted((one for one in found if one < delta), key=lambda one: (one != extra, one)):
                plan = calibrate(phases, check_epsilon(epsilon), delta, **{**terms, "extra_delta": known})
                if plan.charge in planned:
                    return plan
        if past and extra > 0:
            terms["extra_delta"] = extra = min(extra, self._filter.thresholds_left(past) / 2) or extra
        if epsilon is not None:
            plan = calibrate(phases, check_epsilon(epsilon), delta, **terms)
            if not past or self._filter.accepts(past, [plan.charge]):
                return plan
            # Sampled steps can take far more RDP than Gaussian releases of the same epsilon: give them as much.
            if math.isinf(epsilon) or epsilon > self._filter.remaining(past):
                return plan  # too much by any count: charging it says so
            rdp = min(self._filter.rdp_left(past), self.alpha * gaussian_mu(epsilon, self.delta) ** 2 / 2)
        elif not past:
            if extra >= self.delta:
                raise ValueError(
                    f"thresholds would spend {extra:.3g}, more than the accountant's delta {self.delta:.3g}"
                )
            plan = calibrate(phases, self.epsilon, self.delta, **terms)
            return plan if delta == self.delta else self._alone(plan, delta)
        else:
            rdp = self._filter.rdp_left(past)
            if not rdp > 0:
                raise BudgetExceededError(
                    f"nothing is left of this budget (epsilon = {self.epsilon:g}, delta = {self.delta:.3g}); "
                    "nothing was charged"
                )
        mu = scale_for_rdp(phases, rdp * (1 - 1e-9), self.alpha, self.neighboring)
        return self._alone(make_plan(phases, mu, epsilon=self.epsilon, delta=delta, **terms), delta)

    def _alone(self, plan: FitPlan, delta: float) -> FitPlan:
        """The plan with the epsilon that it costs alone at `delta`."""
        return replace(plan, epsilon=epsilon_pld(plan, delta, self.neighboring), delta=delta)

    # ---- reading the books -----------------------------------------------------------------------
    def epsilon_spent(self, delta: float | None = None) -> float:
        """Epsilon spent so far, planned charges included.

        Parameters
        ----------
        delta : float, default=None
            Reads the books at another delta; None is the accountant's.

        Returns
        -------
        float
            By PLD as long as all was declared in one batch; the filter's book value afterwards. Infinity
            when something was not private or the thresholds have spent more than `delta`.
        """
        return self._filter.spent(self._ledger.read(self._filter), delta)

    def remaining(self) -> float:
        """Epsilon that one more fit may cost, alone and at the accountant's delta, under the rule that will apply.

        Returns
        -------
        float
            Exact for the first charge and for fits of Gaussian releases. A later fit with Poisson-sampled steps may be
            asked for as much, and `calibrate` will make it cost less where the filter demands it.
        """
        return self._filter.remaining(self._ledger.totals(self._filter))

    def report(self) -> pd.DataFrame:
        """The books as a table, one row a primitive release.

        Returns
        -------
        pandas.DataFrame
            Columns label, release (its name, where the label of the charge lists one for each row; else empty),
            mechanism, noise_multiplier, sampling_rate (NaN without sampling), count, extra_delta (on the first row of
            its charge), rdp (at the filter's order), share (of all RDP spent) and status.
            `attrs` holds the totals: budget_epsilon, budget_delta, neighboring, alpha, epsilon_spent,
            epsilon_if_fixed_in_advance (the PLD total, were all charges known beforehand), remaining, private.
        """
        return ledger_frame(self._ledger.read(self._filter), self._filter)

    def verify(self, head: str | None = None) -> dict[str, Any]:
        """Recompute the ledger from its entries alone: its hash chain, its running sums, and each charge by its rule.

        Parameters
        ----------
        head : str, default=None
            A head noted earlier ("length:hash"): the ledger must have had it.

        Returns
        -------
        dict
            charges (their number), epsilon_spent, budget_epsilon, delta, neighboring, private, head (of a ledger
            file: to be noted where others cannot change it), unchained (entries of an earlier version, from before
            the chain began: that they are as they were written cannot be shown).

        Raises
        ------
        LedgerError
            At the first thing that is not so, or when the ledger cannot be read.

        Notes
        -----
        The chain has no secret. Whoever can write the file can write another one, with a chain of its own; that is
        noticed by accountants that have seen the true one, and by a head that was noted.

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
            "private": proves_privacy(entries),
            **found,
        }

    def __repr__(self):
        # scikit-learn prints parameters on one line: 30 characters at most, and the file is not read for it
        text = f"PrivacyAccountant({self.epsilon:.4g}, {self.delta:.2g})"
        return text if len(text) <= 30 else f"PrivacyAccountant({self.epsilon:.4g})"

    def _repr_html_(self):
        try:
            return ledger_html(self._ledger.read(self._filter), self._filter, path=self.ledger, detached=self.detached)
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
        parameters = (rule.epsilon, rule.delta, rule.neighboring, rule.delta_reserve)
        if self.ledger is not None:
            # nothing that changes with a charge: joblib caches recognise an estimator by its pickle
            return _reattach, (self.ledger, self._ledger.identity, parameters)
        return detached_accountant, (tuple(self._ledger.read(self._filter)), parameters)


def _reattach(path: str, identity: str, parameters: tuple) -> PrivacyAccountant:
    """Accountant of a pickle, on its ledger file; the file is looked at when it is first used."""
    accountant = object.__new__(PrivacyAccountant)
    accountant._filter, accountant._ledger = PrivacyFilter(*parameters), FileLedger(path, identity)
    return accountant


def detached_accountant(entries: Sequence[Entry], parameters: tuple) -> PrivacyAccountant:
    """Accountant of a pickle without a file, or of a card: books that can only be read."""
    accountant = object.__new__(PrivacyAccountant)
    accountant._filter, accountant._ledger = PrivacyFilter(*parameters), MemoryLedger(entries, detached=True)
    return accountant
