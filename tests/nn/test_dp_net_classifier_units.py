"""DPNetClassifier protects persons with several rows: the charge, the ledger and every release are for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from skdpgen import PrivacyUnit
from skdpgen._types import BoundedUnit
from skdpgen.accounting import PrivacyAccountant
from skdpgen.data import rows_per_unit
from skdpgen.data.rows_per_unit import OpenUnit
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.exceptions import InvalidInputError, PrivacyLeakWarning
from skdpgen.nn import DPNetClassifier
from skdpgen.testing import check_noninterference, seeded_noise
from skdpgen.utils.watching import watch_releases

X, Y = load_digits(return_X_y=True)
GROUPS = np.repeat(np.arange(len(X)), np.resize([1, 1, 3, 2, 1], len(X)))[: len(X)]
FACTS = {"bounds": (0, 16), "classes": range(10), "max_rows_per_unit": 3, "steps": 40, "sampling_rate": 0.1}


@pytest.mark.parametrize("weighting", ["rows", "units"])
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_a_classifier_of_units_learns_and_is_charged_for_units(relation, weighting):
    model = DPNetClassifier(20.0, neighboring=relation, unit=PrivacyUnit("writer", weighting=weighting), **FACTS)
    model.fit(X, Y, groups=GROUPS)
    assert model.score(X, Y) > 0.6
    assert model.accountant_.unit == "writer"
    assert model.card_["unit"].startswith("all rows of one writer, at most 3 of them used")
    report = model.accountant_.report()
    assert set(report["release"]) == {"rows", "network"}
    assert model.accountant_.epsilon_spent() == pytest.approx(20.0, rel=1e-3)


def test_identifiers_are_a_column_of_a_frame_and_no_feature():
    frame = pd.DataFrame(X[:300], columns=[f"p{k}" for k in range(64)]).assign(writer=GROUPS[:300])
    model = DPNetClassifier(10.0, unit="writer", **FACTS).fit(frame, Y[:300])
    assert model.n_features_in_ == 64
    assert "writer" not in model.feature_names_in_
    assert model.predict(frame.drop(columns="writer")).shape == (300,)


def test_learned_bounds_and_classes_follow_the_unit():
    facts = {**FACTS, "bounds": None, "classes": None}
    model = DPNetClassifier(50.0, unit="writer", **facts).fit(X, Y, groups=GROUPS)
    assert set(model.accountant_.report()["release"]) >= {"bounds", "classes", "rows", "network"}
    assert set(model.classes_) <= set(range(10))


def _rows_of_a_training(monkeypatch, model, groups):
    """The rows that a fit trains on, the number of the unit of each, and what else it releases, with its noise."""
    from skdpgen.nn import DPNet

    seen, released = [], []
    monkeypatch.setattr(DPNet, "fit", lambda self, X, y, groups: seen.append((X, groups)) or self.initialize())
    monkeypatch.setattr(DPNet, "noise_description_", "none", raising=False)
    monkeypatch.setattr(DPNet, "noise_private_", True, raising=False)
    with watch_releases(lambda value, sd, kind: released.append(float(np.max(sd)))):
        model.fit(X, Y, groups=groups)
    ((rows, codes),) = seen
    return rows, codes, released


def test_at_most_k_rows_of_a_unit_are_used(monkeypatch):
    groups = np.repeat(np.arange(40), 45)[: len(X)]
    rows, codes, _ = _rows_of_a_training(monkeypatch, DPNetClassifier(10.0, unit="writer", **FACTS), groups)
    assert (np.bincount(codes) == 3).all()
    assert len(rows) == 3 * 40


def test_as_many_rows_of_a_unit_are_used_as_were_learned_and_the_noise_is_for_so_many(monkeypatch):
    groups = np.arange(len(X)) // 6  # six rows each: most units have more than are used
    groups[: 6 * 240] = np.repeat(np.arange(1000, 1000 + 6 * 60), 4)  # of 8 units in 10 all rows are used: four each
    model = DPNetClassifier(10.0, unit="writer", **{**FACTS, "max_rows_per_unit": None})
    noise = model.plan(X, Y, groups=groups).noise_multipliers
    rows, _codes, released = _rows_of_a_training(monkeypatch, model, groups)
    assert model.max_rows_per_unit_ == 5
    assert len(rows) == np.minimum(np.unique(groups, return_counts=True)[1], 5).sum() < len(X)
    assert released == pytest.approx([noise["unit_rows"], 5 * noise["rows"]])


def test_rows_beyond_the_learned_number_are_caught(monkeypatch):
    shipped = rows_per_unit.settle_ids
    monkeypatch.setattr(rows_per_unit, "settle_ids", lambda ids, *rest: (ids, shipped(ids, *rest)[1]))
    with pytest.raises(AssertionError):
        test_as_many_rows_of_a_unit_are_used_as_were_learned_and_the_noise_is_for_so_many(monkeypatch)


def test_noise_of_one_row_for_a_learned_number_is_caught(monkeypatch):
    shipped = OpenUnit.closed
    monkeypatch.setattr(OpenUnit, "closed", lambda unit, k=5: replace(shipped(unit, k), weighting="units"))
    with pytest.raises((AssertionError, ValueError)):
        test_as_many_rows_of_a_unit_are_used_as_were_learned_and_the_noise_is_for_so_many(monkeypatch)


def test_a_unit_needs_identifiers_before_the_charge():
    accountant = PrivacyAccountant(5.0, unit="writer")
    model = DPNetClassifier(1.0, accountant=accountant, unit="writer", **FACTS)
    with pytest.raises(InvalidInputError, match="needs its identifiers"):
        model.fit(X, Y)
    with pytest.raises(InvalidInputError, match="lacks an identifier"):
        model.fit(X, Y, groups=np.where(GROUPS == 3, np.nan, GROUPS))
    assert not accountant.charges


def test_a_unit_of_one_row_each_is_a_fit_of_rows_but_for_the_slack_of_sums():
    facts = {**FACTS, "max_rows_per_unit": 1}
    with pytest.warns(PrivacyLeakWarning), seeded_noise(0):
        model = DPNetClassifier(10.0, unit="writer", **facts).fit(X, Y, groups=np.arange(len(X)))
    rows = DPNetClassifier(10.0, **{k: v for k, v in FACTS.items() if k != "max_rows_per_unit"})
    with pytest.warns(PrivacyLeakWarning), seeded_noise(0):
        rows.fit(X, Y)
    assert (
        model.accountant_.report()["noise_multiplier"].tolist()
        == rows.accountant_.report()["noise_multiplier"].tolist()
    )


# ---- charges for units and plans ------------------------------------------------------------------------------------
def test_a_plan_is_charged_for_its_unit_and_to_a_ledger_of_that_unit():
    of_units, of_rows = (DPSGDPlan(0.1, 5, 1.0, 2.0, 10, unit=unit) for unit in (BoundedUnit("writer", 3), None))
    for plan, unit in ((of_units, None), (of_units, "reader"), (of_rows, "writer")):
        accountant = PrivacyAccountant(5.0, unit=unit)
        with pytest.raises(ValueError, match="row"):
            accountant.charge(plan, "training")
        assert not accountant.charges
    accountant = PrivacyAccountant(5.0, unit="writer")
    accountant.charge(of_units, "training")
    assert accountant.charges[0].unit == "writer"
    with pytest.raises(ValueError, match="reader"):
        accountant.charge(DPSGDPlan(0.1, 5, 1.0, 2.0, 10, unit=BoundedUnit("writer", 3)), "training", unit="reader")


def test_a_charge_for_units_covers_no_training_on_rows():
    accountant = PrivacyAccountant(5.0, unit="writer")
    plan = DPSGDPlan(0.1, 5, 1.0, 2.0, 10)
    receipt = accountant.charge(plan.event, "fit", unit="writer")
    with pytest.raises(RuntimeError, match="samples the one does not protect the other"):
        receipt.cover(plan)
    receipt.cover(DPSGDPlan(0.1, 5, 1.0, 2.0, 10, unit=BoundedUnit("writer", 3)))


@pytest.mark.slow
@pytest.mark.parametrize("most", [3, None])
def test_a_person_moves_no_release_of_a_classifier_by_more_than_it_claims(most):
    """The person who joins has a class and values that nobody else has, and more rows than are used."""
    rng, sets = np.random.default_rng(0), []
    for words, ids, scale in ((["a", "b"], rng.integers(0, 40, 90), 1), (["b", "c"], 50 + np.arange(40) // 2, 0.1)):
        sets.append((scale * rng.random((len(ids), 3)), rng.choice(np.array(words, dtype=object), len(ids)), ids))
    joining = 50 * rng.random((5, 3)), np.array(["a", "alone", "a", "alone", "a"], dtype=object), np.full(5, 999)
    short = {"hidden_layer_sizes": (4,), "sampling_rate": 0.5, "steps": 2, "max_rows_per_unit": most, "random_state": 0}
    check_noninterference(DPNetClassifier(60.0, **short), *sets, rows=joining)
