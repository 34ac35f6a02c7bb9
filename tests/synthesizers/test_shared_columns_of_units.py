"""Columns in which the rows of a unit are alike: the release of pairs of rows, and synthetic rows that are as alike."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import pandas as pd
import pytest
from _claims import assert_sensitivity
from test_synthetic_units import STAYS, WARDS, K, _assert_units, _fit, _numbered, _stays

from skdpgen import DPPCA, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, PrivacyUnit, Schema, load
from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedUnit, UnitRelation
from skdpgen.data.sources import ChunkSource, MemorySource, add_sums
from skdpgen.data.units import UnitSource
from skdpgen.exceptions import InvalidInputError, UtilityWarning
from skdpgen.generators.units import RowsOfUnits, UnitModel, UnitSampler, _Points
from skdpgen.mechanisms import likeness, unit_pairs
from skdpgen.tabular import Categorical, Numeric
from skdpgen.tabular._constraint_forms import read_constraint

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

SHARED = ["ward", "cost"]
VISITS = Schema(
    [
        Categorical("sex", ("f", "m")),
        Categorical("ward", (*WARDS, "heart")),
        Categorical("sign", ("a", "b", "c")),
        Numeric("cost", (0, 100)),
        Categorical("day", tuple("xyz")),
    ]
)


@functools.cache
def _visits(n=5000, seed=0):
    """Persons stay in their ward, which depends on the sex; the sign of a visit follows from the ward of that visit."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    person = np.repeat(np.arange(n), rng.integers(1, K + 1, n))

    def wards(sex):
        eyes = rng.random(len(sex)) < np.where(sex == "f", 0.6, 0.3)
        return np.where(eyes, "eyes", rng.choice(["ears", "heart"], len(sex)))

    ward = np.where(rng.random(len(person)) < 0.8, wards(sex)[person], wards(sex[person]))
    follows = pd.Series(ward).map({"eyes": "a", "ears": "b", "heart": "c"})
    sign = np.where(rng.random(len(person)) < 0.8, follows, rng.choice(list("abc"), len(person)))
    cost = (rng.integers(0, 80, n)[person] + 20 * rng.random(len(person))).clip(0, 100)
    frame = pd.DataFrame({"person": person, "sex": sex[person], "ward": ward, "sign": sign, "cost": cost})
    frame["day"] = rng.choice(list("xyz"), len(person))
    return frame.astype(dict.fromkeys(("sex", "ward", "sign", "day"), object)).sample(frac=1, random_state=0)


@functools.cache
def _fitted(weighting="rows", epsilon=20.0):
    unit = PrivacyUnit("person", K, weighting=weighting, columns=["sex"], shared=SHARED)
    return _fit(_visits(), short=False, unit=unit, schema=VISITS, epsilon=epsilon)


def _alike(frame, columns=("ward", "sign", "day")):
    """Share of the persons with two rows whose first two are equal, in each column."""
    one, other = _two_rows(frame)
    return (one[list(columns)] == other[list(columns)]).mean().to_numpy()


def _two_rows(frame):
    """The first two rows of the persons that have two, in equal order."""
    one, other = (frame.groupby("person").nth(i).set_index("person") for i in (0, 1))
    return one.loc[other.index], other


# ---- the release --------------------------------------------------------------------------------------------------
def _pairs_of(units):
    """Levels of two rows of each unit that has two."""
    two = [unit for unit in units if len(unit) > 1]
    first, second = (np.array([unit[i] for unit in two]).reshape(len(two), 3) for i in (0, 1))
    return unit_pairs(first, second, n_bins=[0, 5, 2])


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("neighboring", NEIGHBORING)
def test_a_unit_attains_the_sensitivity_of_pairs_of_rows_and_never_exceeds_it(neighboring, weighting):
    relation = UnitRelation(neighboring, BoundedUnit("person", K, weighting))
    rng = np.random.default_rng(0)
    base = [list(rng.integers(0, 3, (rng.integers(1, 5), 3))) for _ in range(20)]
    alike, differ, one = [[0, 1, 2]] * K, [[0, 0, 0], [1, 1, 1]], [[0, 1, 2]]
    data = [[*base, unit] for unit in (alike, differ, one, [[0, 1, 2], [0, 0, 2], [5, 5, 5]])]
    if neighboring == "add_or_remove_one":
        pairs, attained = [(base, more) for more in data], [(base, data[0])]
    else:
        pairs, attained = list(itertools.product(data, data)), [(data[0], data[2])]
    assert_sensitivity(_pairs_of, pairs, attained=attained, relation=relation)
    with pytest.raises(ValueError, match="one of units"):
        _pairs_of(base).sensitivity(neighboring)


def test_all_pairs_of_rows_of_a_unit_exceed_it():
    """The sabotaged twin: every row of a unit is compared with the next one."""
    rows = np.zeros((K, 2), dtype=int)
    relation = UnitRelation("add_or_remove_one", BoundedUnit("person", K))
    found = unit_pairs(rows[:-1], rows[1:], [0, 4])
    assert np.linalg.norm(found.value * found.weights) == pytest.approx((K - 1) * found.sensitivity(relation))


def test_rows_are_as_alike_as_their_bins_are_near():
    one, other = np.array([[0, 0, 3], [1, 4, 5], [2, 1, 5]]), np.array([[1, 4, 0], [1, 3, 0], [0, 2, 5]])
    found = likeness(one, other, [0, 5, 5])  # the level after the bins is that of missing values
    np.testing.assert_array_equal(found, [[0, 0, 0.4375], [1, 0.9375, 0], [0, 0.9375, 1]])
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 9, (2, 1000, 4))
    found = likeness(*levels, [0, 7, 8, 1])
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_array_equal(found * 2**20 % 1, 0)
    np.testing.assert_array_equal(found, likeness(levels[1], levels[0], [0, 7, 8, 1]))
    np.testing.assert_array_equal(found[levels[0] == levels[1]], 1)


def _compared(frame, k=3, chunks=None):
    source = MemorySource(frame) if chunks is None else ChunkSource(lambda: chunks)
    source = UnitSource(source, BoundedUnit("id", k), "refuse", column="id")
    source.inspect(len, lambda one, other: one + other)
    assert source.whole_units
    source.choose(1)
    seen = []

    def count(first, second):
        seen.append(np.column_stack([first, second]))
        return unit_pairs(first, second, [0])

    return source.reduce_pairs(lambda rows: rows[["row"]].to_numpy(), count, add_sums), np.concatenate(seen)


def test_two_rows_of_each_unit_that_has_two_are_compared():
    frame = _numbered().sample(frac=1, random_state=3)
    counts, found = _compared(frame)
    kept = UnitSource(MemorySource(frame), BoundedUnit("id", 3), "refuse", column="id")
    kept.choose(1)
    ids = frame.set_index("row")["id"]
    used = kept.frame.assign(id=ids.loc[kept.frame["row"]].to_numpy()).groupby("id", sort=False)["row"]
    expected = np.array([rows.to_numpy()[:2] for _, rows in used if len(rows) > 1])
    np.testing.assert_array_equal(found[np.argsort(found[:, 0])], expected[np.argsort(expected[:, 0])])
    assert counts.value[0] == len(expected) == (frame["id"].value_counts() > 1).sum()


def test_chunks_compare_the_rows_that_memory_does():
    frame = _numbered()
    cuts = [0, 7, 8, 9, 120, 121, 300]
    of_chunks = _compared(frame, chunks=[frame.iloc[a:b] for a, b in itertools.pairwise(cuts)])
    of_memory = _compared(frame)
    np.testing.assert_array_equal(of_chunks[1], of_memory[1])
    np.testing.assert_array_equal(of_chunks[0].value, of_memory[0].value)
    # a unit longer than a chunk, and chunks of one unit
    frame = pd.DataFrame({"id": np.repeat([1, 2, 3, 4], [5, 1, 2, 9]), "row": np.arange(17)})
    short = _compared(frame, chunks=[frame.iloc[a : a + 2] for a in range(0, 17, 2)])
    np.testing.assert_array_equal(short[1], _compared(frame)[1])
    assert short[0].value[0] == 3


def test_a_unit_that_joins_changes_no_other_pair():
    frame = _numbered()
    joining = pd.DataFrame({"id": 999, "row": [1000, 1001, 1002, 1003]})
    more = _compared(pd.concat([joining[:2], frame, joining[2:]], ignore_index=True))[1]
    np.testing.assert_array_equal(np.sort(more[more[:, 0] < 1000], axis=0), np.sort(_compared(frame)[1], axis=0))


# ---- synthetic rows -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_rows_of_a_synthetic_unit_are_alike_as_often_as_those_of_a_real_one(weighting):
    synth = _fitted(weighting)
    drawn = synth.sample(units=5000, random_state=0)
    _assert_units(drawn, ["sex"])
    real, found = _alike(_visits()), _alike(drawn)
    np.testing.assert_allclose(found[0], real[0], atol=0.03)  # released
    np.testing.assert_allclose(found[1], real[1], atol=0.06)  # follows from the ward
    np.testing.assert_allclose(found[2], 1 / 3, atol=0.03)
    by_chance = _alike(_fit(_visits(), short=False, schema=VISITS, epsilon=20.0).sample(units=5000, random_state=0))
    assert by_chance[0] < real[0] - 0.25
    of_costs = [np.corrcoef(*(rows["cost"] for rows in _two_rows(frame)))[0, 1] for frame in (_visits(), drawn)]
    assert abs(of_costs[1] - of_costs[0]) < 0.12, of_costs


@pytest.mark.parametrize("copied", [(0.0, 0.0), (0.9, 0.5), (1.0, 1.0)])
def test_each_row_alone_has_the_distribution_of_the_model_however_much_is_copied(copied):
    """Against the definition: one- and two-way shares of rows are those of points weighted by the likelihood."""
    model = _fitted().model_
    codec, points, n = model.codec, _Points(model), 40_000
    at, shared = codec.places(["sex"]), codec.places(SHARED)
    rng = np.random.default_rng(0)
    codes = np.repeat([[0], [1]], n // 2, axis=0)
    rows = RowsOfUnits(codec, points, at, codes, None, shared, copied, rng)
    drawn, copies = rows.draw(np.arange(n), rng)
    again, _ = rows.draw(np.arange(n), rng)
    np.testing.assert_allclose(copies.mean(axis=0), copied, atol=0.01)
    if copied[0] == 1:
        np.testing.assert_array_equal(drawn[:, shared], again[:, shared])
    for level in (0, 1):
        mine = drawn[codes[:, 0] == level]
        assert (mine[:, at] == level).all()
        weights = points.weights * points.p[:, points.offsets[at[0]] + level]
        weights /= weights.sum()
        for one, other in itertools.combinations(range(drawn.shape[1]), 2):
            if at[0] in (one, other):
                continue
            p, q = (points.p[:, points.offsets[i] : points.offsets[i] + points.n_levels[i]] for i in (one, other))
            expected = (weights[:, None] * p).T @ q
            found = np.zeros_like(expected, dtype=float)
            np.add.at(found, (mine[:, one], mine[:, other]), 1 / len(mine))
            sd = np.sqrt(expected * (1 - expected) / len(mine)) + 1e-9
            assert (np.abs(found - expected) < 5.5 * sd + 2e-4).all()


def test_copies_of_columns_that_depend_on_each_other_are_found_together():
    """The sign follows from the ward: as much of it is copied as the ward does not explain."""
    synth = _fit(
        _visits(), short=False, schema=VISITS, epsilon=50.0,
        unit=PrivacyUnit("person", K, columns=["sex"], shared=["ward", "sign", "day"]),
    )  # fmt: skip
    copied, equal = UnitSampler(synth.model_, []).pairs(20_000, np.random.default_rng(0))
    np.testing.assert_allclose(equal.mean(axis=0), _alike(_visits()), atol=0.025)
    assert copied.mean(axis=0)[1] < 0.25 < copied.mean(axis=0)[0]
    assert copied.mean(axis=0)[2] < 0.05


def test_hidden_rows_satisfy_the_constraints():
    """Of a row that is copied always, no other draw of the rows can differ."""
    model = _fitted().model_
    units = dataclasses.replace(model.units, copied=(1.0, 1.0))
    no_eyes = read_constraint("ward != 'eyes'", VISITS.names)
    rows, of = UnitSampler(model, [no_eyes], units).sample(400, np.random.default_rng(0))
    assert set(rows["ward"]) == {"ears", "heart"}
    assert len(set(of)) == 400
    assert (rows.groupby(of)["ward"].nunique() == 1).all()
    sex = rows.groupby(of)["sex"].first()  # drawn by the tables of units, and not by which of them is easier
    assert (sex == "f").mean() == pytest.approx(0.5, abs=0.12)


def test_too_few_units_of_two_rows_leave_rows_independent_with_a_warning():
    frame = _visits(60)
    with pytest.warns(UtilityWarning, match="too few units of two rows"):
        synth = _fit(frame, schema=VISITS, epsilon=0.2, unit=PrivacyUnit("person", K, shared="ward"))
    assert synth.model_.units.copied == (0.0,)
    synth.sample(units=20)


@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
def test_targets_missing_values_and_constraints_go_together_with_shared_columns(model):
    unit = {"unit__columns": ["region", "town"], "unit__shared": ["ward", "old", "born"]}
    constraints = ["combinations(region, town)", "entered <= visit", "old == True or ward == 'eyes'"]
    synth = _fit(_stays(), model, schema=STAYS, target="ward", constraints=constraints, **unit)
    drawn = synth.sample(units=200, random_state=0)
    _assert_units(drawn, ["region", "town"])
    assert (drawn["old"] | (drawn["ward"] == "eyes")).all()
    assert (drawn["entered"] <= drawn["visit"]).all()


def test_one_row_of_each_unit_and_no_other_columns():
    frame = _visits(300).drop_duplicates("person")
    synth = _fit(frame, schema=VISITS, unit=PrivacyUnit("person", 1, shared=SHARED))
    assert synth.sample(units=50)["person"].tolist() == list(range(50))


def test_files_keep_what_rows_of_units_share(tmp_path):
    synth = _fitted()
    synth.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    assert again.unit.shared == SHARED
    pd.testing.assert_frame_equal(again.sample(units=40, random_state=1), synth.sample(units=40, random_state=1))


@pytest.mark.parametrize(
    "change",
    [
        {"shared": ["ward"]}, {"shared": ["ward", "ward"]}, {"shared": ["sex", "cost"]},
        {"shared": ["ward", "nowhere"]},
        {"copied": [0.5]}, {"copied": [0.5, 1.5]}, {"copied": [0.5, True]}, {"copied": [0.5, "1"]},
        {"copied": [0.5, float("nan")]},
    ],
    ids=str,
)  # fmt: skip
def test_states_that_do_not_fit_are_refused(change):
    model = _fitted().model_
    with pytest.raises(ValueError, match="rows of units"):
        UnitModel.from_state({**model.units.to_state(), **change}, model.codec)
    assert UnitModel.from_state(model.units.to_state(), model.codec).shared == tuple(SHARED)


# ---- refusals cost nothing ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shared", "rest", "match"),
    [
        (["nowhere"], {}, "'nowhere', which is no column"),
        (["ward", "ward"], {}, "a column twice"),
        (["sex"], {"unit__columns": ["sex"]}, "columns= names too"),
        (["sign"], {"constraints": "combinations(ward, sign)"}, "a constraint constructs"),
        (["ward"], {"model": P3GMSynthesizer, "prior": "mixture"}, "without prior"),
    ],
    ids=str,
)
def test_shared_columns_that_cannot_be_are_refused_before_the_charge(shared, rest, match):
    ledger = PrivacyAccountant(50.0, unit="person")
    with pytest.raises(InvalidInputError, match=match):
        _fit(_visits(60), **{"schema": VISITS, "accountant": ledger, "unit__shared": shared, **rest})
    assert not ledger.charges


def test_chunks_that_are_not_sorted_and_estimators_without_units_refuse_shared_columns_before_the_charge():
    ledger, frame = PrivacyAccountant(50.0, unit="person"), _visits(60)
    with pytest.raises(InvalidInputError, match="sort the chunks by 'person'"):
        _fit([frame[:50], frame[50:]], schema=VISITS, accountant=ledger, unit__shared="ward")
    with pytest.raises(ValueError, match="shared= of PrivacyUnit is not for DPPCA"):
        DPPCA(1, accountant=ledger, unit=PrivacyUnit("person", 2, shared="ward")).fit(frame[["person", "cost"]])
    assert not ledger.charges
    sorted_ = frame.sort_values("person")
    _fit([sorted_[:50], sorted_[50:]], schema=VISITS, accountant=ledger, unit__shared="ward")
    assert "unit_pairs" in ledger.charges[0].label
