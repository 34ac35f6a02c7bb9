"""DP2-VAE protects persons with several rows: all rows of a person lie in one subset."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat
from _short_fits import short_postprocessing
from _visits import SCHEMA, in_the_second_half, visits
from scipy import stats

import skdpgen
from skdpgen import DP2VAESynthesizer, PrivacyUnit
from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedUnit
from skdpgen.accounting import PrivacyAccountant, Receipt
from skdpgen.data.units import UnitSource
from skdpgen.dpsgd import _subsets
from skdpgen.exceptions import UtilityWarning
from skdpgen.nn import _dp2vae_training
from skdpgen.synthesizers import _dp2vae_model, _moment_start
from skdpgen.testing import check_noninterference

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
UNIT = {"unit": "pid", "max_rows_per_unit": 2}
SMALL = {"n_subsets": 20, "pretrain_steps": 1, "steps": 2, "n_components": 2, "batch_size": 4, "random_state": 0}
STARTS = {"moments": {"warm_start_steps": 1}, "random": {"warm_start_steps": 0}}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("weighting", "neighboring"), list(itertools.product(WEIGHTINGS, NEIGHBORING)))
def test_a_decoder_is_trained_by_units_on_released_numbers_alone(monkeypatch, start, weighting, neighboring):
    plans, cover = [], Receipt.cover
    monkeypatch.setattr(Receipt, "cover", lambda receipt, plan: plans.append(plan) or cover(receipt, plan))
    how = {"unit": PrivacyUnit("pid", weighting=weighting), "neighboring": neighboring, "target": "c", "schema": SCHEMA}
    synth = make_flat(DP2VAESynthesizer, 50.0, **SMALL, **STARTS[start], **{**UNIT, **how}).fit(visits())
    assert [plan.unit for plan in plans] == [BoundedUnit("pid", 2, weighting)]
    assert synth.row_count_ == pytest.approx(750, abs=30)
    assert synth.row_count_ != 750  # private under both relations
    assert synth.card_["unit"].startswith("all rows of one pid, at most 2")
    assert [charge.unit for charge in synth.accountant_.charges] == ["pid"]
    assert list(synth.sample(3).columns) == ["a", "c"]
    assert np.isfinite(synth.score(visits()[:20]))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_the_number_of_rows_is_released_once(monkeypatch, start, weighting):
    how = {"schema": SCHEMA, **SMALL, **STARTS[start], **UNIT, "unit": PrivacyUnit("pid", weighting=weighting)}
    made, shipped = [], UnitSource.row_count
    monkeypatch.setattr(UnitSource, "row_count", lambda source: made.append(source) or shipped(source))
    synth = make_flat(DP2VAESynthesizer, 50.0, **how)
    labels = [phase.label for phase in synth.plan(visits()).phases]
    synth.fit(visits())
    assert labels.count("row_count") == len(made) == (weighting == "units")


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_arrays_are_trained_on_by_units(start, weighting):
    table = visits()
    X = np.column_stack([table["a"], table["a"] ** 2])
    how = {"bounds": (-20, 20), "classes": list("xyz"), "unit": PrivacyUnit("pid", weighting=weighting)}
    synth = make_flat(DP2VAESynthesizer, 50.0, **SMALL, **STARTS[start], **{**UNIT, **how})
    synth.fit(X, table["c"].to_numpy(), groups=table["pid"])
    assert synth.row_count_ == pytest.approx(750, abs=40)
    X, y = synth.sample(5)
    assert X.shape == (5, 2)
    assert set(y) <= set("xyz")


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_all_rows_of_a_unit_lie_in_one_subset(monkeypatch, weighting):
    seen, kept = [], []

    class Rows(_dp2vae_training.SubsetRows):
        def __init__(self, x, codes, n_classes, subsets, n_subsets, *, units=None):
            seen.append((subsets, units))
            super().__init__(x, codes, n_classes, subsets, n_subsets, units=units)

    assign = _subsets.assign_subsets
    monkeypatch.setattr(_dp2vae_training, "SubsetRows", Rows)
    monkeypatch.setattr(
        _subsets, "assign_subsets", lambda *args, units: kept.append(units) or assign(*args, units=units)
    )
    how = {**UNIT, "unit": PrivacyUnit("pid", weighting=weighting)}
    make_flat(DP2VAESynthesizer, 50.0, schema=SCHEMA, **SMALL, **STARTS["random"], **how).fit(visits())
    ((subsets, units),), (codes,) = seen, kept
    assert len(subsets) == len(codes) == 750
    of_unit = pd.Series(subsets).groupby(codes)
    assert of_unit.nunique().max() == 1
    assert stats.chisquare(np.bincount(of_unit.first(), minlength=20)).pvalue > 1e-5
    if weighting == "units":
        np.testing.assert_array_equal(units, codes)
    else:
        assert units is None


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"id_column": "who"}, "id_column= is for rows that are units"),
        ({"unit": PrivacyUnit(missing="own")}, "needs unit="),
    ],
)
def test_what_does_not_fit_units_is_refused_before_the_charge(parameters, match):
    accountant = PrivacyAccountant(1.0, unit="pid")
    synth = make_flat(DP2VAESynthesizer, accountant=accountant, **{**SMALL, **UNIT, **parameters})
    table = visits().assign(who=lambda f: np.random.default_rng(1).permutation(10**6)[: len(f)])
    for call in (synth.fit, synth.plan):
        with pytest.raises(ValueError, match=match):
            call(table)
    assert not accountant.entries


def test_the_warning_of_empty_subsets_counts_units_where_they_are_counted():
    codec = SimpleNamespace(n_classes=0)
    for weighting, what in (("units", "500 units"), ("rows", "500 rows")):
        with pytest.warns(UtilityWarning, match=f"n_subsets=400 for about {what}: about 29% of the subsets"):
            _dp2vae_model._warn_of_what_is_rare(400, codec, np.ones(1), 500.0, BoundedUnit("pid", 2, weighting))


def test_a_model_by_units_survives_its_file(tmp_path):
    synth = make_flat(DP2VAESynthesizer, 50.0, schema=SCHEMA, **SMALL, **STARTS["random"], **UNIT).fit(visits())
    synth.save(tmp_path / "m.safetensors")
    loaded = skdpgen.load(tmp_path / "m.safetensors")
    assert loaded.card_ == synth.card_
    assert (loaded.unit, loaded.max_rows_per_unit) == ("pid", 2)
    pd.testing.assert_frame_equal(loaded.sample(5, random_state=0), synth.sample(5, random_state=0))


# ---- neighbours that differ in a person -------------------------------------------------------------------------
def _people(array):
    """Two sets of visits, and those of another person: of new classes, and beyond all bounds.

    Units draw their subsets in the order in which they first appear: all do so in the first half of the rows.
    """
    rng, sets = np.random.default_rng(0), []
    many, few = np.append(rng.permutation(40), rng.integers(0, 40, 50)), 100 + np.tile(np.arange(20), 3)
    for ids, words, shift in ((many, "xyz", 0.0), (few, ["y", "nowhere else"], -40.0), (np.full(5, 999), "ab", 1e3)):
        a, c = rng.normal(size=len(ids)) + shift, rng.choice(np.array(list(words), dtype=object), len(ids))
        if array:
            sets.append((np.column_stack([a, a**2]), c, ids))
        else:
            sets.append(pd.DataFrame({"pid": ids, "a": a, "c": c}).astype({"c": object}))
    return sets


def _check(monkeypatch, array, n_subsets=5, **parameters):
    monkeypatch.setattr("skdpgen.testing._noninterference._among", in_the_second_half)
    own = {} if array else {"unit": "pid"}
    many, few, joining = _people(array)
    with short_postprocessing():
        how = {**SMALL, "n_subsets": n_subsets, "max_rows_per_unit": 3, **own, **parameters}
        made = make_flat(DP2VAESynthesizer, 60.0, **how)
        check_noninterference(made, many, few, rows=joining)


# every start, kind of rows, weighting and relation
CASES = [
    ("moments", False, "units", NEIGHBORING[0], {"target": "c"}),
    ("random", False, "rows", NEIGHBORING[1], {"target": "c"}),
    ("random", True, "units", NEIGHBORING[1], {"sampler": "one_of_k", "encoder_update": "on_query"}),
    ("moments", True, "rows", NEIGHBORING[0], {"encoder_update": "round_robin"}),
]


@pytest.mark.parametrize(("start", "array", "weighting", "relation", "parameters"), CASES)
def test_a_person_moves_no_release_by_more_than_it_claims(monkeypatch, start, array, weighting, relation, parameters):
    how = {"unit": PrivacyUnit("pid", weighting=weighting), "neighboring": relation, **parameters}
    _check(monkeypatch, array, **STARTS[start], **how)


def _subsets_by_rows(patch):
    """Each row draws its subset: a person with three rows moves three of them."""
    patch.setattr(_subsets, "assign_subsets", lambda n, k, rng, units=None: rng.integers(k, n))


def _counts_of_rows(patch):
    """The classes are counted by rows where the noise is that of units."""
    shipped = _moment_start.release_class_counts
    patch.setattr(
        _moment_start, "release_class_counts", lambda codec, n, classes, fit, sizes: shipped(codec, n, classes, fit)
    )


def _the_exact_number_of_rows(patch):
    patch.setattr("skdpgen.synthesizers._base.ChargedFit.sample_size", lambda fit, rows, counted: len(rows.frame))


@pytest.mark.parametrize(
    ("sabotage", "weighting"),
    [
        (_subsets_by_rows, "rows"), (_subsets_by_rows, "units"), (_counts_of_rows, "units"),
        (_the_exact_number_of_rows, "rows"),
    ],
)  # fmt: skip
def test_what_weakens_the_protection_of_a_person_is_caught(monkeypatch, sabotage, weighting):
    sabotage(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        # with 40 subsets those of the person's rows are likely to be others, which have few rows
        _check(
            monkeypatch,
            False,
            n_subsets=40,
            target="c",
            unit=PrivacyUnit("pid", weighting=weighting),
            **STARTS["random"],
        )
