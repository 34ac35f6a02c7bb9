"""What is released stays as it was: plans, charges, bits of samples, files, public names and the sabotage suite.

After a change that is meant to move something: ``python tests/_unmoved.py --record`` (`_unmoved` says what it writes).
"""

from __future__ import annotations

import shutil

import _unmoved as unmoved
import pytest

from skdpgen import load
from skdpgen.accounting import PrivacyAccountant, PrivacyCard, gaussian_event

_RECORD = "if this is meant, record again: python tests/_unmoved.py --record"


def _assert_unmoved(recorded, found, advice=_RECORD):
    rows = unmoved.differences(recorded, unmoved.plain(found))
    assert not rows, "\n".join([*rows[:20], f"{len(rows)} differences; {advice}"])


def _assert_same_bits(name, found):
    """On a machine like the one of the record; elsewhere shapes and figures are all that can be compared."""
    recorded = unmoved.recorded_bits()
    if recorded is not None and recorded[name] is not None:  # null: moved since that machine recorded it
        _assert_unmoved(recorded[name], found)


# ---- fits ------------------------------------------------------------------------------------------------------------
def test_every_public_estimator_is_held_still():
    first = {case.partition("-")[0]: case for case in unmoved.CASES}
    made = {type(unmoved.make(case)[0]).__name__ for case in first.values()}
    public = {name.rpartition(".")[2] for name in unmoved.estimators()}
    assert made == public


@pytest.mark.parametrize("case", [*unmoved.CASES, *unmoved.PRESETS])
def test_a_fit_plans_charges_states_and_releases_what_it_did(case):
    _assert_unmoved(unmoved.read("plans.json")[case], unmoved.plan_facts(case))
    if case in unmoved.FITTED:
        facts, bits = unmoved.fit_facts(case)
        _assert_unmoved(unmoved.read("fits.json")[case], facts)
        _assert_unmoved(unmoved.read("plans.json")[case]["label"], facts["card"]["fit"]["label"])
        _assert_same_bits(case, bits)


@pytest.mark.parametrize("relation", unmoved.RELATIONS)
def test_fits_that_share_books_are_charged_as_they_were(relation):
    facts, bits = unmoved.shared_books(relation)
    _assert_unmoved(unmoved.read("fits.json")[f"books-{relation}"], facts)
    _assert_same_bits(f"books-{relation}", bits)


# ---- files of the version before -------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", unmoved.MODELS)
def test_a_model_file_of_an_earlier_version_loads_verifies_and_samples(name, tmp_path):
    facts, bits = unmoved.model_facts(unmoved.DATA / name)
    _assert_unmoved(unmoved.read("fits.json")[name], facts)
    _assert_same_bits(name, bits)
    load(unmoved.DATA / name).save(tmp_path / name)
    again, _ = unmoved.model_facts(tmp_path / name)
    _assert_unmoved(unmoved.plain(facts), again)


def test_a_card_of_an_earlier_version_verifies():
    card = PrivacyCard.load(unmoved.DATA / "classifier.card.json")
    verified = card.verify()
    assert verified["private"]
    for part, spent in (("fit", "epsilon"), ("ledger", "epsilon_spent")):
        assert verified[part]["epsilon"] == pytest.approx(card[part][spent], rel=1e-6)


def test_a_ledger_of_an_earlier_version_opens_verifies_and_is_charged_on(tmp_path):
    path, recorded = tmp_path / "ledger.sqlite", unmoved.read("ledger.json")
    shutil.copy(unmoved.DATA / "ledger.sqlite", path)
    books = PrivacyAccountant(ledger=path)
    _assert_unmoved(recorded["books"], unmoved.books_facts(books))
    _assert_unmoved(recorded["verified"], books.verify(recorded["verified"]["head"]))
    books.charge(gaussian_event(30.0), "one more")
    after = PrivacyAccountant(ledger=path).verify(recorded["verified"]["head"])
    assert after["charges"] == recorded["verified"]["charges"] + 1
    assert after["head"] != recorded["verified"]["head"]
    assert after["epsilon_spent"] > recorded["verified"]["epsilon_spent"]


# ---- names -----------------------------------------------------------------------------------------------------------
def test_public_names_and_parameters_are_those_they_were():
    advice = "change doc/changelog.md's table of renamed names, then record again: python tests/_unmoved.py --record"
    _assert_unmoved(unmoved.read("names.json"), unmoved.public_names(), advice)


def test_no_sabotage_has_left_the_suite():
    gone = unmoved.recorded_mutants() - unmoved.mutant_names()
    assert not gone, f"sabotage that nothing tries any more: {sorted(gone)}"
