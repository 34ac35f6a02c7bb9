"""Fits for persons that go on after a kill: the same rows of each person, and no release twice."""

from __future__ import annotations

import os

import numpy as np
import pytest
import test_resumed_fits as fits
import torch
from test_resumed_fits import FITS, after_release, fit, interrupted, make, refused, stop, unit_of_fit, workplace

import skdpgen
from skdpgen import PrivacyAccountant, PrivacyUnit
from skdpgen._parameters import read_unit
from skdpgen.data import arrays
from skdpgen.data import units as of_frames
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.exceptions import LedgerError
from skdpgen.synthesizers._checkpoint import FitCheckpoint
from skdpgen.testing import seeded_noise

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
NAMES = [name for name in FITS if unit_of_fit(name) is not None]


def the_rows_of_a_person_are_the_same_after_a_kill(name):
    kept, keys, shipped = [], [], arrays.keep_rows

    def seen(ids, key):
        found = shipped(ids, key)
        kept.append(found.rows.tolist())
        keys.append(key)
        return found

    with workplace(FITS[name][1].get("neighboring"), unit_of_fit(name)) as (_, accountant, path):
        with pytest.MonkeyPatch.context() as patch:
            for module in (arrays, of_frames):
                patch.setattr(module, "keep_rows", seen)
            interrupted(name, accountant, path)
            assert fits._header(path)["units"]["key"] == keys[0]
            with after_release(0, "", None) as second:
                made = fit(name, accountant, path)
        assert kept[0] == kept[1]
        assert len(kept[0]) < fits.N or read_unit(FITS[name][1]).max_rows is None  # learned: noise may allow all rows
        assert second["plain"] == 0
        return made


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_of_a_person_are_the_same_after_a_kill(name):
    made = the_rows_of_a_person_are_the_same_after_a_kill(name)
    assert made.card_["unit"].startswith(f"all rows of one {unit_of_fit(name)}, at most {made.max_rows_per_unit_}")


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("dp2-vae")])
def test_steps_are_divided_by_the_same_number_after_a_kill(name, monkeypatch):
    sizes, shipped = [], DPSGDPlan.__post_init__

    def seen(plan):
        sizes.append(plan.expected_batch_size)
        return shipped(plan)

    monkeypatch.setattr(DPSGDPlan, "__post_init__", seen)
    with workplace(FITS[name][1].get("neighboring"), unit_of_fit(name)) as (_, accountant, path):
        interrupted(name, accountant, path)
        first = sizes[-1]
        sizes.clear()
        fit(name, accountant, path)
    assert sizes[-1] == first


@pytest.mark.parametrize("name", ["privae, units", "dp2-vae, drawn, units", "dp-vae, units"])
def test_numbers_that_were_released_are_those_of_the_file(name):
    """How many rows of a person are used, if it is learned, and how many there are: both are drawn once."""
    with workplace(FITS[name][1].get("neighboring"), unit_of_fit(name)) as (_, accountant, path):
        interrupted(name, accountant, path)
        header = fits._header(path)
        made = fit(name, accountant, path)
    assert header["data"]["rows"] is None  # private under both relations
    assert made.max_rows_per_unit_ == header["units"].get("max_rows", 2)
    unit = read_unit(FITS[name][1])
    assert ("max_rows" in header["units"]) == (unit.max_rows is None)
    assert ("row_count" in header["units"]) == (unit.weighting == "units")
    if unit.weighting == "units":
        assert made.row_count_ == header["units"]["row_count"]


@pytest.mark.parametrize(("name", "count"), [("privae, units", 1), ("privae, units", 2), ("dp-gm, units", 1)])
def test_releases_that_were_not_written_are_not_drawn_again(name, count):
    with workplace(unit=unit_of_fit(name)) as (_, accountant, path):
        with after_release(count, "plain", stop), pytest.raises(fits.StopError):
            fit(name, accountant, path)
        with after_release(0, "", None) as seen:
            refused(lambda: fit(name, accountant, path), RuntimeError, "ended before its first releases were written")
        assert seen == {"plain": 0, "gradient": 0}
        os.remove(path)
        fit(name, accountant, path, epsilon=1.0)
        assert [charge.unit for charge in accountant.charges] == ["unit", "unit"]


@pytest.mark.parametrize("name", ["privae, units", "dp2-vae, units"])
def test_a_fit_with_a_checkpoint_is_the_fit_without_one(name, tmp_path):
    states = []
    for number, checkpoint in enumerate((None, tmp_path / "fit.safetensors")):
        accountant = PrivacyAccountant(50.0, unit="unit", ledger=tmp_path / f"{number}.db")
        with seeded_noise(3, quiet=True):
            made = fit(name, accountant, checkpoint, random_state=0)
        states.append(made.model_.to_state())
    assert _equal(*states)
    assert skdpgen.load(tmp_path / "fit.safetensors").unit.weighting == "units"


def _equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if torch.is_tensor(one):
        return torch.equal(one, other)
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unit": PrivacyUnit(max_rows=3, weighting="units")}, "with other parameters: unit"),
        ({"unit": PrivacyUnit(weighting="units")}, "with other parameters: unit"),
        ({"unit": PrivacyUnit(max_rows=2)}, "with other parameters: unit"),
    ],
)
def test_a_fit_goes_on_for_the_same_units_alone(changes, message):
    with workplace(unit="unit") as (_, accountant, path):
        interrupted("dp-gm, units", accountant, path)
        with fits.nothing_happens(accountant):
            refused(lambda: fit("dp-gm, units", accountant, path, **changes), ValueError, message)
            rows = make("dp-gm, units", accountant, path)
            refused(
                lambda: rows.fit(*FITS["dp-gm, units"][2][:2]),
                ValueError,
                "the column of identifiers, or groups= of fit",
            )
        fit("dp-gm, units", accountant, path)


@pytest.mark.parametrize("of_units", [[], {"key": 1.0}, {"key": -1}, {"key": True}, {"other": 1}, {"row_count": 3}])
def test_numbers_of_units_of_other_types_are_no_checkpoint(of_units):
    def edit(path):
        fits._rewrite(path, units=of_units)

    assert "not a checkpoint of a fit" in fits.an_edited_checkpoint_is_refused(edit)


# ---- sabotage ------------------------------------------------------------------------------------------------------
def _drawn_again(patch, names):
    shipped = FitCheckpoint.once

    def once(file, name, make):
        return make() if file.resumed and name in names else shipped(file, name, make)

    patch.setattr(FitCheckpoint, "once", once)


@pytest.mark.parametrize(
    ("again", "name"), [("key", "dp-gm, units"), ("max_rows", "privae, units"), ("row_count", "dp-gm, units")]
)
def test_what_is_drawn_again_after_a_kill_is_caught(again, name, monkeypatch):
    _drawn_again(monkeypatch, [again])
    with pytest.raises((AssertionError, LedgerError)):
        the_rows_of_a_person_are_the_same_after_a_kill(name)


@pytest.mark.parametrize("name", ["privae, units", "dp-vae, units", "dp2-vae, units"])
def test_the_file_holds_released_values_and_the_key_alone(name):
    fits.the_file_holds_released_values_alone(name)
