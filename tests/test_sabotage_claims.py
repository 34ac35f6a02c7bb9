"""Every sabotage of what is said about a fit, on a page, by a command or by a check, is caught by an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_card_page as pages
import test_cli_budget_audit as plans
import test_cli_ledger as ledgers
import test_displays as displays
import test_estimator_checks as checks
import test_noninterference as noninterference
import test_pipeline_steps as pipelines
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.commands import budget, verify
from skdpgen.estimator_checks import _charges, _helpers, _released
from skdpgen.metrics import LedgerDisplay
from skdpgen.report import _card_words
from skdpgen.synthesizers import _pipeline
from skdpgen.testing import _noninterference, _replay

_TOLD = noninterference.test_each_uncharged_read_is_told_by_its_place_and_no_value
_FULL = _charges.check_full_budget_refuses_and_releases_nothing
_INTERRUPTED = _released.check_an_interrupted_fit_is_charged_and_not_fitted

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
            for fault in ("numpy's count", "numpy's float", "an array")
        ],
        (
            _helpers.of_length,
            ("int | float | np.number", "int | float"),
            ("$4 and not $shape and $1 == $2", "False"),
        ),
    ),
    (
        "a fit that costs more than its epsilon",
        [Claim(checks.test_each_check_finds_what_it_is_for, "dear", "check_epsilon_agrees_with_the_ledger")],
        (_charges.check_epsilon_agrees_with_the_ledger, ("assert $spent <= $most, $text", "pass")),
    ),
    (
        "draws of noise in a fit that is refused",
        [Claim(checks.test_each_check_finds_what_it_is_for, "refused", _FULL.__name__)],
        (_FULL, ("assert not $draws\nassert not fitted_attributes($refused), $text", "pass")),
    ),
    (
        "the relation of another accountant",
        [Claim(checks.test_each_check_finds_what_it_is_for, "any relation", "check_another_relation_is_refused")],
        (
            _charges.check_another_relation_is_refused,
            ("$made.set_params(neighboring=$other)", "$made.set_params(neighboring='nobody')"),
        ),
    ),
    (
        "an interrupted fit that is not charged",
        [Claim(checks.test_each_check_finds_what_it_is_for, "late", _INTERRUPTED.__name__)],
        (_INTERRUPTED, ("len($accountant.charges) == 1", "len($accountant.charges) <= 1")),
    ),
    (
        "a private card of repeatable noise",
        [Claim(checks.test_each_check_finds_what_it_is_for, "card", "check_noise_is_on_the_card")],
        (
            _released.check_noise_is_on_the_card,
            ("assert json.loads($seeded.card_.to_json())['private'] is False", "pass"),
        ),
    ),
    (
        "a change that is no number taken for none",
        [Claim(_TOLD, "infinite", "query 1: one row moves it by inf")],
        (_noninterference._norm, ("np.sum(np.square($part))", "np.nansum(np.square($part))")),
    ),
    (
        "no bound of what is released after names",
        [Claim(_TOLD, "bound after names", "query 3")],
        (
            _noninterference._check_neighbours,
            ("if $found[0].exact is None:\n    continue", "if $found[0].exact is None:\n    break"),
        ),
    ),
    (
        "the risk of the last fit for that of all",
        [Claim(pages.test_the_risk_of_the_whole_ledger_is_that_of_all_its_charges)],
        (
            _card_words._meaning,
            (
                "_risk($name, $fixed, $3, $relation)",
                "_risk($name, $fixed, $1.charges, $relation)",
            ),
        ),
    ),
    (
        "steps of inner pipelines that are not looked at",
        [
            Claim(pipelines.test_a_step_that_learns_before_a_private_one_is_found_wherever_both_are, case)
            for case in ("in an inner pipeline", "two pipelines deep")
        ],
        (_pipeline._taken_apart, ("isinstance($step, Pipeline) and _is_private($step)", "False")),
    ),
    (
        "steps of a pipeline in a ColumnTransformer that are not looked at",
        [
            Claim(
                pipelines.test_a_step_that_learns_before_a_private_one_is_found_in_a_pipeline_that_another_step_has,
                case,
            )
            for case in ("columns", "union")
        ],
        (_pipeline._within_others, ("isinstance($part, Pipeline) and _is_private($part)", "False")),
    ),
    (
        "a step between two private ones",
        [Claim(pipelines.test_each_step_that_learns_before_any_private_one_is_named_and_no_other, "PLP")],
        (_pipeline.PrivatePipeline._warn, ("$steps[:$private[-1]]", "$steps[:$private[0]]")),
    ),
    (
        "steps that protect one row beside steps that protect units",
        [
            Claim(
                pipelines.test_steps_of_units_beside_steps_of_rows_are_warned_of_before_the_charge,
                *(("pca",), (2, None), False, "protect all rows of a unit"),
            )
        ],
        (_pipeline._warn_of_units, ("$rows and $units", "False")),
    ),
    (
        "identifiers that are routed to no step",
        [Claim(pipelines.test_steps_of_units_are_known_where_their_identifiers_are_routed, (True, False))],
        (_pipeline._has_units, ("{True: 'groups', False: None}.get($asked, $asked)", "'groups'")),
    ),
    (
        "an encoder that counts rows",
        [Claim(pipelines.test_an_encoder_that_learns_from_y_or_counts_rows_does_not_pass_for_declared_categories)],
        (_pipeline._has_declared_categories, ("($1.min_frequency, $1.max_categories) == (None, None)", "True")),
    ),
    (
        "what one fit alone leaves behind",
        [
            *(Claim(_TOLD, fault, "attributes differ") for fault in ("one fact more", "one fact less")),
            Claim(_TOLD, "one warning more", "warning 0"),
        ],
        (_replay.difference, ("None if len($1) == len($2) else $path", "None")),
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
        (budget._plan, ("$kind.of($fit, $3)", "$kind.of($fit, len($2[0]))")),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_sabotage_of_what_is_said_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
