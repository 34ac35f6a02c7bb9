"""Every sabotage of the audit itself is caught by a claim of an ordinary test."""

from __future__ import annotations

import pytest
import test_audit as claims
import test_audit_bounds as bounds
import test_audit_scale as scale
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.audit import _audit, _bounds, _runs

MUTANTS = [
    (
        "the size of the shift for the shift",
        [Claim(bounds.test_the_bound_by_shift_holds_at_its_confidence, 0.02, 1000)],
        (
            _bounds.mu_from_shift,
            ("float($within.mean() - $without.mean())", "abs(float($within.mean() - $without.mean()))"),
        ),
    ),
    (
        "a point estimate for a bound, by shift",
        [Claim(bounds.test_the_bound_by_shift_holds_at_its_confidence, 1.5, 300)],
        (_bounds.mu_from_shift, ("1 - $confidence", "0.5")),
    ),
    (
        "noise of pairs that counts for none",
        [Claim(bounds.test_the_bound_by_pairs_holds_at_its_confidence, 0.0)],
        (_bounds.mu_from_pairs, ("float($gaps.mean()) - $error", "float($gaps.mean())")),
    ),
    (
        "a point estimate of the noise, by pairs",
        [Claim(bounds.test_the_bound_by_pairs_holds_at_its_confidence, 1.0)],
        (_bounds.mu_from_pairs, ("stats.chi2.ppf($chance, $freedom)", "$freedom")),
    ),
    (
        "what the canary is computed to add, in the measured shift",
        [Claim(bounds.test_fits_without_noise_that_do_not_describe_the_noisy_ones_are_not_relied_on)],
        (_runs.bounds_of_distances, ("$of_one[:, 1] - $of_one[:, 0]", "-$of_one[:, 0] / 2")),
    ),
    (
        "means that cost no degree of freedom",
        [Claim(bounds.test_the_bound_by_likelihood_holds_at_its_confidence)],
        (_runs.bounds_of_distances, ("len($noise) - 2", "len($noise)")),
    ),
    (
        "fits without noise believed whatever the noisy ones show",
        [Claim(bounds.test_fits_without_noise_that_do_not_describe_the_noisy_ones_are_not_relied_on)],
        (_runs.bounds_of_distances, ("_TOO_FAR * $spread", "1e9 * $spread")),
    ),
    (
        "a point estimate for a bound, by scale",
        [Claim(bounds.test_the_bound_by_scale_holds_at_its_confidence)],
        (_bounds.mu_from_scale, ("1 - $confidence", "0.5")),
    ),
    (
        "scaled noise that calls itself private",
        [Claim(scale.test_fits_whose_noise_is_not_that_stated_say_that_they_are_not_private)],
        (
            _runs.noise_scaled,
            ("_Scaled($kind, $scale)", "type('_Scaled', (_Scaled,), {'private': True})($kind, $scale)"),
        ),
    ),
    (
        "a frequency for its upper bound",
        [Claim(bounds.test_the_bound_by_counts_holds_at_its_confidence, 0.5)],
        (
            _bounds._upper,
            ("float(stats.beta.ppf($confidence, $errors + 1, $trials - $errors))", "$errors / $trials"),
        ),
    ),
    (
        "errors alone without their delta",
        [Claim(bounds.test_the_bound_by_errors_alone_holds_where_delta_gives_the_canary_away, 0.0)],
        (_bounds.epsilon_from_counts, ("(1 - $miss - $4) / $alarm", "(1 - $miss) / $alarm")),
    ),
    (
        "two error bounds at the confidence of one",
        [
            Claim(bounds.test_error_bounds_of_both_sides_hold_together),
        ],
        (_bounds.error_bounds, ("1 - (1 - $confidence) / 2", "$confidence")),
    ),
    (
        "an audit's delta term without the number of canaries",
        [Claim(bounds.test_the_bound_by_guesses_holds_where_delta_gives_canaries_away)],
        (_bounds.epsilon_from_guesses, ("2 * $canaries", "2")),
    ),
    (
        "a guess more than was right",
        [Claim(bounds.test_the_bound_by_guesses_holds_for_randomised_response)],
        (_bounds.epsilon_from_guesses, ("np.arange($correct, -1, -1) - 1", "np.arange($correct, -1, -1) + 2")),
    ),
    (
        "a trade-off curve above itself",
        [Claim(bounds.test_lines_under_a_trade_off_curve_are_never_above_it)],
        (_audit._least_miss, ("1 - $delta - $grown * $alarm", "1 - $grown * $alarm")),
    ),
    (
        "releases that add up instead of their squares",
        [Claim(scale.test_what_a_canary_adds_is_all_that_was_charged_and_no_more, "three releases")],
        (_runs._distance, ("$reach += $weight * $norm", "$reach += $norm")),
    ),
    (
        "each data set follows its own releases",
        [Claim(claims.test_what_is_measured_on_a_followed_fit_is_noise_alone, "mixture by EM")],
        (_runs._AlongPath.release, ("$expected[0].copy()", "$1")),
    ),
    (
        "judged by the runs that chose the direction",
        [Claim(claims.test_a_vector_of_statistics_is_not_judged_by_the_runs_that_chose_its_direction)],
        (
            _audit._one_number,
            ("($without @ $weights, $within @ $weights, $half)", "($without @ $weights, $within @ $weights, 0)"),
        ),
    ),
    (
        "a public randomness of its own for each fit",
        [Claim(claims.test_what_is_measured_on_a_followed_fit_is_noise_alone, "public directions")],
        (_runs.with_public_seed, ("$value is None", "$value == 'never'")),
    ),
    (
        "a shift of several releases",
        [Claim(claims.test_the_shift_of_several_releases_is_refused, "mixture by EM")],
        (_audit._n_releases, ("sum($counts)", "1 or sum($counts)")),
    ),
    (
        "a delta for the canaries that were guessed, not for all",
        [Claim(claims.test_a_bound_is_that_of_the_counts_that_stand_beside_it, "one_run", 0.95)],
        (
            _audit.audit_one_run,
            (
                "epsilon_from_guesses($right, $made, len($canaries), $rest)",
                "epsilon_from_guesses($right, $made, $made, $rest)",
            ),
        ),
    ),
    (
        "one run under replace_one",
        [Claim(claims.test_one_run_is_refused_under_replace_one)],
        (_audit.audit_one_run, ("$relation == 'replace_one'", "$relation == 'nothing'"), ("(500, $n)", "(2, $n)")),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
