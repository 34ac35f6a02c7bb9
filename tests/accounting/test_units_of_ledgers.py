"""One ledger protects one unit: its file, its cards and its copies know it, and refuse any other."""

from __future__ import annotations

import contextlib
import json
import pickle
import sqlite3

import pytest

from skdpgen._types import BoundedUnit
from skdpgen.accounting import Charge, Phase, PrivacyAccountant, PrivacyCard, calibrate, gaussian_event
from skdpgen.accounting._card import digest
from skdpgen.accounting._reservation import Reservation
from skdpgen.accounting._resumed_fit import plan_from_json, plan_to_json
from skdpgen.exceptions import LedgerError
from skdpgen.report._card_words import state

EVENT, UNIT = gaussian_event(20.0), BoundedUnit("patient", 5)


def _parameters(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return {name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM parameters")}


def _card(unit=UNIT, **options):
    accountant = PrivacyAccountant(1.0, unit=None if unit is None else unit.name)
    plan = accountant.calibrate([Phase("moments", 1.0)], label="fit", epsilon=0.5, unit=unit)
    accountant.charge(plan.event, plan.label, unit=plan.charge.unit)
    return PrivacyCard.build(plan, accountant, model="m", parameters={}, noise="secure", **options)


def _rewritten(card, change):
    content = json.loads(card.to_json())
    change(content)
    del content["digest"]
    return PrivacyCard({**content, "digest": digest(content)})


def test_a_charge_for_another_unit_is_refused_before_anything_is_charged(tmp_path):
    for ledger in (None, tmp_path / "b.db"):
        persons = PrivacyAccountant(1.0, unit="patient", ledger=ledger)
        for unit in (None, "doctor"):
            with pytest.raises(ValueError, match="guarantee the weaker of the two"):
                persons.charge(EVENT, "fit", unit=unit)
            with pytest.raises(ValueError, match="guarantee the weaker of the two"):
                persons.plan([Charge("fit", EVENT, unit=unit)])
        with pytest.raises(ValueError, match="guarantee the weaker of the two"):
            persons.calibrate([Phase("x", 1.0)], label="fit")
        assert not persons.entries
        persons.plan([Charge("fit", EVENT, unit="patient")])
        persons.charge(EVENT, "fit", unit="patient")
        assert [entry.status for entry in persons.entries] == ["charged"]
    with pytest.raises(ValueError, match="all rows of one patient, and this ledger one row"):
        PrivacyAccountant(float("inf")).charge(EVENT, "fit", unit="patient")


def test_a_ledger_file_knows_its_unit_and_one_of_rows_is_as_it_was(tmp_path):
    path, rows = tmp_path / "units.db", tmp_path / "rows.db"
    PrivacyAccountant(1.0, unit="patient", ledger=path).charge(EVENT, "fit", unit="patient")
    PrivacyAccountant(1.0, ledger=rows).charge(EVENT, "fit")
    assert (_parameters(path)["format"], _parameters(rows)["format"]) == ("skdpgen-ledger-4", "skdpgen-ledger-3")
    assert "unit" not in _parameters(rows)
    opened = PrivacyAccountant(ledger=path)
    assert (opened.unit, opened.verify()["unit"], opened.charges[0].unit) == ("patient",) * 3
    assert (opened.report().attrs["unit"], PrivacyAccountant(ledger=rows).unit) == ("patient", None)
    with pytest.raises(LedgerError, match="unit="):
        PrivacyAccountant(ledger=path, unit="doctor")
    copy = pickle.loads(pickle.dumps(opened))
    assert copy.unit == "patient"
    copy.charge(EVENT, "another", unit="patient")
    assert pickle.loads(pickle.dumps(PrivacyAccountant(1.0, unit="patient"))).unit == "patient"
    assert "all rows of one patient" in opened._repr_html_()


@pytest.mark.parametrize("unit", [None, "doctor"])
def test_a_ledger_file_whose_unit_was_changed_is_refused(tmp_path, unit):
    path = tmp_path / "b.db"
    PrivacyAccountant(1.0, unit="patient", ledger=path).charge(EVENT, "fit", unit="patient")
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        if unit is None:
            connection.execute("DELETE FROM parameters WHERE name = 'unit'")
        else:
            connection.execute("UPDATE parameters SET value = ? WHERE name = 'unit'", (json.dumps(unit),))
    with pytest.raises(LedgerError, match="damaged"):
        PrivacyAccountant(ledger=path).charge(EVENT, "more", unit=unit)


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_a_card_says_who_is_protected_and_verifies(weighting):
    card = _card(BoundedUnit("patient", 5, weighting))
    assert card["unit"].startswith("all rows of one patient, at most 5 of them used")
    card.verify()
    assert PrivacyCard.from_json(card.to_json()).relation.unit == BoundedUnit("patient", 5, weighting)
    assert card.accountant().unit == "patient"
    words = " ".join(state(card).parts[0].sentences)
    assert "all rows of one patient together" in words
    assert "at most 5 of them" in words
    assert "joined into one" not in words


def test_a_card_of_rows_is_as_it_was():
    card = _card(None)
    assert (card["unit"], card.relation, card.accountant().unit) == ("one row", "add_or_remove_one", None)
    assert all("unit" not in charge for charge in card["ledger"]["charges"])
    _rewritten(card, lambda content: content.update(unit="one household")).verify()  # earlier versions could say so


@pytest.mark.parametrize(
    ("unit", "change"),
    [
        (UNIT, lambda content: content.update(unit="one row")),
        (UNIT, lambda content: content.update(unit="all rows of one doctor, at most 5 of them used")),
        (UNIT, lambda content: content.update(unit="all rows of one patient, all of them used")),
        (None, lambda content: content.update(unit="all rows of one patient, at most 5 of them used")),
        (UNIT, lambda content: content["fit"]["charges"][0].pop("unit")),
        (UNIT, lambda content: content["ledger"]["charges"][0].pop("unit")),
        (UNIT, lambda content: content["ledger"]["charges"][0].update(unit=5)),
        (None, lambda content: content["fit"]["charges"][0].update(unit="patient")),
    ],
)
def test_a_card_whose_unit_is_not_that_of_its_charges_is_refused(unit, change):
    with pytest.raises(ValueError, match=r"unit|protects|is not in the ledger"):
        _rewritten(_card(unit), change).verify()


@pytest.mark.parametrize(("before", "after"), [("", ", and all of their relatives"), ("", "\n"), ("perhaps ", "")])
def test_no_words_are_added_to_who_a_card_protects(before, after):
    with pytest.raises(ValueError, match="the charges of the fit protect all rows of one patient"):
        _rewritten(_card(), lambda content: content.update(unit=f"{before}{content['unit']}{after}")).verify()


def test_a_card_of_a_ledger_with_two_units_is_refused():
    def mixed(content):
        other = {**content["ledger"]["charges"][0], "batch": 2}
        del other["unit"]
        content["ledger"]["charges"].append(other)

    with pytest.raises(ValueError, match="its rule would have refused"):
        _rewritten(_card(), mixed).verify()


def test_plans_and_reservations_keep_the_unit():
    plan = calibrate([Phase("x", 1.0)], 1.0, 1e-5, "replace_one", label="fit", unit=UNIT)
    assert (
        plan.noise_multipliers == calibrate([Phase("x", 1.0)], 1.0, 1e-5, "replace_one", label="fit").noise_multipliers
    )
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert (plan.charge.unit, plan.relation.unit, plan.relation == "replace_one") == ("patient", UNIT, False)
    with Reservation(PrivacyAccountant(1.0)) as reservation, pytest.raises(ValueError, match="weaker"):
        reservation.charge(EVENT, "search", unit="patient")


@pytest.mark.parametrize("bad", [("", 2), ("x", 0), ("x", 2.0), ("x", True), ("x", 1 << 17), (5, 2)])
def test_a_unit_has_a_name_and_a_whole_number_of_rows(bad):
    with pytest.raises(ValueError, match="unit"):
        BoundedUnit(*bad)
    with pytest.raises(ValueError, match="weighting"):
        BoundedUnit("x", 2, "persons")
    with pytest.raises(ValueError, match="unit"):
        PrivacyAccountant(1.0, unit=" ")
