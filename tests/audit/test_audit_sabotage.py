"""Every sabotage of the audit itself is caught by a claim of an ordinary test."""

from __future__ import annotations

import pytest
import test_audit as claims
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.audit import _audit, _runs

MUTANTS = [
    (
        "each data set follows its own releases",
        [Claim(claims.test_what_is_measured_on_a_followed_fit_is_noise_alone, "mixture by EM")],
        (_runs._along, ("return path[len(seen) - 1][0].copy()", "return None")),
    ),
    (
        "judged by the runs that chose the direction",
        [Claim(claims.test_a_vector_of_statistics_is_not_judged_by_the_runs_that_chose_its_direction)],
        (_audit._one_number, ("within @ weights, half", "within @ weights, 0")),
    ),
    (
        "a public randomness of its own for each fit",
        [Claim(claims.test_what_is_measured_on_a_followed_fit_is_noise_alone, "public directions")],
        (_runs.with_public_seed, ("if value is None", "if value == 'never'")),
    ),
    (
        "a shift of several releases",
        [Claim(claims.test_the_shift_of_several_releases_is_refused, "mixture by EM")],
        (_audit._n_releases, ("return sum", "return 1 or sum")),
    ),
    (
        "one run under replace_one",
        [Claim(claims.test_one_run_is_refused_under_replace_one)],
        (_audit.audit_one_run, ('== "replace_one"', '== "nothing"'), ("(500, X", "(2, X")),
    ),
]


@pytest.mark.parametrize(("name", "claims", "changes"), [(m[0], m[1], m[2:]) for m in MUTANTS], ids=mutant_ids(MUTANTS))
def test_sabotage_is_caught(monkeypatch, name, claims, changes):
    assert_caught(monkeypatch, claims, *changes)
