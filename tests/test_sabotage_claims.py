"""Every sabotage of what is said about a fit, on a page, by a command or by a check, is caught by an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_cli_budget_audit as plans
import test_cli_ledger as ledgers
import test_displays as displays
import test_estimator_checks as checks
import test_noninterference as noninterference
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.commands import budget, verify
from skdpgen.estimator_checks import _helpers
from skdpgen.metrics import LedgerDisplay
from skdpgen.testing import _noninterference, _replay

_TOLD = noninterference.test_each_uncharged_read_is_told_by_its_place_and_no_value

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "success for a card or a ledger that is private",
        [
            Claim(ledgers.verify_succeeds_only_if_card_and_ledger_are_both_private, which)
            for which in ("card", "ledger")
        ],
        (verify.run, ("all($private)", "any($private)")),
    ),
    (
        "a budget drawn for noise that can be repeated",
        [Claim(displays.test_a_ledger_whose_noise_can_be_repeated_shows_no_shares_of_a_budget)],
        (
            LedgerDisplay.plot,
            ("not $totals['private'] or not np.isfinite($shares).all()", "not np.isfinite($shares).all()"),
        ),
    ),
    (
        "a number of rows that is no Python number",
        [
            Claim(checks.test_each_broken_promise_is_caught, fault, "number of rows")
            for fault in ("numpy's count", "numpy's float")
        ],
        (_helpers.of_length, ("int | float | np.number", "int | float")),
    ),
    (
        "a change that is no number taken for none",
        [Claim(_TOLD, "infinite", "query 1: one row moves it by inf")],
        (_noninterference._norm, ("np.sum(np.square($part))", "np.nansum(np.square($part))")),
    ),
    (
        "noise of any scale, for any relation",
        [
            Claim(_TOLD, fault, f"query 1 has another {name}")
            for fault, name in (("noise", "noise_multiplier"), ("relation", "neighboring"))
        ],
        (_replay._Follower.release, ("float($4.noise_multiplier)", "0.0"), ("$4.neighboring", "None")),
    ),
    (
        "a plan for the exact number of rows",
        [Claim(plans.test_the_plan_of_a_file_follows_from_its_columns_alone)],
        (
            budget.run,
            ("$kind.of($estimator.plan(*$data), $1.rows)", "$kind.of($estimator.plan(*$data), len($data[0]))"),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_what_is_said_is_caught(monkeypatch, mutant):
    _, claims, *changes = mutant
    assert_caught(monkeypatch, claims, *changes)
