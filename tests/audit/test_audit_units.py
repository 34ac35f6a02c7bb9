"""An audit of a fit for persons: the canary is a person of as many equal rows as are used, and its claim stands."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat
from _short_fits import short_postprocessing
from _visits import weights_of_one

from skdpgen import DPPCA, MomentSynthesizer, PrivacyUnit
from skdpgen.__main__ import main
from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedUnit
from skdpgen.audit import audit, audit_neighbours, plan_audit
from skdpgen.audit._runs import data_sets
from skdpgen.data import arrays, units

X = np.random.default_rng(0).uniform(-1, 1, (50, 2))
TABLE = pd.DataFrame({"x": X[:, 0], "group": np.resize(["a", "b"], len(X))})
UNIT = {"unit": "pid", "max_rows_per_unit": 3}
DECLARED = {"bounds": (-1, 1), "l2_bound": 1.0}
CASES = {
    "moments of an array": (MomentSynthesizer, DECLARED, X),
    "DP-PCA": (DPPCA, DECLARED, X),
    "a table, learned bounds and categories": (MomentSynthesizer, {}, TABLE),
}
pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")


def _audited(name, weighting, **options):
    estimator, own, rows = CASES[name]
    made = make_flat(
        estimator, epsilon=4.0, random_state=0, **{**UNIT, "unit": PrivacyUnit("pid", weighting=weighting)}, **own
    )
    # learned categories have a threshold: their releases are judged together
    how = {"method": "scale", "n_runs": 6} if own else {"method": "likelihood", "n_runs": 20, "confidence": 0.9999}
    with short_postprocessing():
        return audit(made, rows, **how, **options)


@pytest.mark.parametrize("neighboring", NEIGHBORING)
def test_the_canary_is_a_unit_of_as_many_equal_rows_as_are_used(neighboring):
    one, other = data_sets(X, None, DPPCA(**UNIT, **DECLARED), neighboring)
    assert [len(part) for part in one if part is not None] == [50 if neighboring == NEIGHBORING[0] else 53] * 2
    assert (other[0][50:] == other[0][50]).all()
    assert other[2].tolist() == [*range(50), 50, 50, 50]
    (frame,) = data_sets(TABLE, None, MomentSynthesizer(**UNIT), neighboring)[1]
    assert frame["pid"].tolist() == other[2].tolist()
    assert len(frame[50:].drop_duplicates()) == 1
    _, labels = data_sets(TABLE, ["u"] * 50, MomentSynthesizer(**UNIT), neighboring)[1]
    assert len(labels) == 53
    with pytest.raises(ValueError, match="needs max_rows_per_unit"):
        data_sets(TABLE, None, MomentSynthesizer(unit="pid"), neighboring)


@pytest.mark.parametrize(("name", "weighting"), list(zip(CASES, [*WEIGHTINGS, WEIGHTINGS[0]])))
def test_a_claim_for_persons_stands_and_is_nearly_attained(name, weighting):
    result = _audited(name, weighting)
    assert not result.broken
    assert result.epsilon_lower > 1.2, result.epsilon_lower


def _noise_of_one_row(patch):
    patch.setattr(BoundedUnit, "weight", property(lambda unit: 1))


@pytest.mark.parametrize(
    ("sabotage", "name", "weighting"),
    [
        (_noise_of_one_row, "moments of an array", "rows"),
        (_noise_of_one_row, "a table, learned bounds and categories", "rows"),
        (weights_of_one, "DP-PCA", "units"),
    ],
)
def test_noise_for_a_row_where_a_person_is_claimed_is_refuted(monkeypatch, sabotage, name, weighting):
    sabotage(monkeypatch)
    assert _audited(name, weighting).broken


def test_rows_that_should_have_been_left_out_are_found(monkeypatch):
    """A unit of nine rows, of which three may be used."""
    shipped = units.keep_rows

    def all_of_them(ids, key):
        return shipped(units.UnitIds(BoundedUnit("pid", 1000, ids.unit.weighting), ids.codes, ids.values), key)

    estimator = MomentSynthesizer(4.0, random_state=0, **UNIT, **DECLARED)
    one, _ = data_sets(X, None, estimator, NEIGHBORING[0])
    nine = np.vstack([X, np.full((9, 2), 9.0)]), None, np.append(np.arange(50), np.full(9, 50))
    assert not audit_neighbours(estimator, one, nine, n_runs=6, method="scale").broken
    monkeypatch.setattr(arrays, "keep_rows", all_of_them)
    assert audit_neighbours(estimator, one, nine, n_runs=6, method="scale").broken


def test_the_command_audits_units(capsys):
    command = ["audit", "DPPCA", "--epsilon", "4", "--runs", "6", "--method", "scale", "--quiet"]
    assert main([*command, "--unit-rows", "2", "--unit-weighting", "units"]) == 0
    out = capsys.readouterr().out
    assert "unit=PrivacyUnit(max_rows=2, name='unit', weighting='units')" in out
    assert "the claim stands" in out
    assert main([*command, "--unit-weighting", "units"]) == 2
    assert main(["audit", "DPNet", "--unit-rows", "2"]) == 2
    assert "needs --unit-rows" in capsys.readouterr().err


def test_a_plan_of_an_audit_fits_units():
    plan = plan_audit(DPPCA(epsilon=4.0, **UNIT, **DECLARED), X, n_runs=20)
    assert plan.epsilon_claimed == 4.0
