"""Sabotage of how events are written, priced and planned is caught by a claim of an ordinary test."""

from __future__ import annotations

import pytest
import test_budget_plan as planning_claims
import test_cost as cost_claims
import test_repetition as repetition_claims
import test_subset_events as subset_claims
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.accounting import _events as events
from skdpgen.accounting import _pricing as pricing
from skdpgen.accounting import poisson_gaussian_event
from skdpgen.dpsgd._subsets import SubsetPlan

MUTANTS = [
    (
        "the count of a repetition lost when it is read",
        [Claim(repetition_claims.test_a_repetition_made_twice_is_one_charge_in_any_books, None, None)],
        (events._repetition_from_json, ("$value['count']", "1")),
    ),
    (
        "noise that is rounded before its cost is computed",
        [
            Claim(
                cost_claims.test_a_release_is_charged_at_its_noise_and_rate_to_the_last_digits,
                poisson_gaussian_event,
                "replace_one",
            )
        ],
        (
            pricing.combine,
            (
                "($row.sampling_rate, $row.noise_multiplier, $row.mechanism)",
                "($row.sampling_rate, round($row.noise_multiplier, 6), $row.mechanism)",
            ),
        ),
    ),
    (
        "exactly one of two and a half",
        [Claim(subset_claims.test_bad_numbers_and_unknown_mechanisms_are_refused)],
        (events.checked_release, ("$difference > 1e-9", "$difference > 1e9")),
    ),
    (
        "rows for the clipped means of subsets",
        [
            Claim(
                planning_claims.test_the_signal_of_a_step_on_subsets_is_its_clipped_means_and_not_its_rows,
                "balanced",
                16,
                8.0,
            )
        ],
        (SubsetPlan.phase, ("self.per_step * self.gradient_bound / self.l2_bound", "None")),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
