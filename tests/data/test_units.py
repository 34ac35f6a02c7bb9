"""Sums of units: bounds attained and not exceeded, thresholds, and the choice of the rows that are used."""

from __future__ import annotations

import datetime
import operator
import uuid
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from _visits import SCHEMA
from scipy.stats import chisquare, norm

from skdpgen import (
    DPPCA,
    DPGaussianMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivacyUnit,
    PrivateSearchCV,
)
from skdpgen._base import PrivateEstimator
from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedSum, BoundedUnit, UnitRelation
from skdpgen.accounting import BudgetPlan
from skdpgen.data import units
from skdpgen.data.sources import ChunkSource, open_source
from skdpgen.data.units import UnitSource, keep_rows, read_ids
from skdpgen.exceptions import InvalidInputError
from skdpgen.mechanisms import (
    _histogram,
    _mixture_sums,
    _moments,
    _selection,
    add_gaussian,
    class_first_moments,
    class_moments,
    class_norm_histogram,
    cluster_sums,
    first_moments,
    histogram,
    joint_histogram,
    mixture_sums,
    moments,
    norm_histogram,
    one_hot_moments,
    residual_plan,
    second_moments,
    selection_threshold,
    shared_moments,
    sum_of_rows,
    total,
    triple_interactions,
)
from skdpgen.synthesizers._dp_merf import RandomFeatures, embedding_sum
from skdpgen.tabular import Categorical, Numeric, Schema, bins_histogram, schema_histogram
from skdpgen.testing import check_noninterference
from skdpgen.utils.noise import NoiseGenerator

K, D = 3, 4
E = np.eye(D)
_RNG = np.random.default_rng(0)
_FEATURES = RandomFeatures.draw(D, 3, 1.0, _RNG)
_OPEN = Schema([Numeric("a"), Categorical("c")])
_KNOWN = Schema([Numeric("a", (-9, 9)), Numeric("b", (0, 1))])


def _frame(rows, names):
    return pd.DataFrame({names[0]: np.asarray(rows, float)[:, 0], names[1]: np.asarray(rows, float)[:, 1]})


def _labelled(rows):
    frame = _frame(rows, "ac")
    return frame.assign(c=np.where(frame["c"] > 0, "x", "y").astype(object))


def _codes(rows):
    return (np.asarray(rows)[:, :3] > 0).astype(np.int64)


def _responsibilities(rows):
    return np.where((rows[:, :1] > 0), [[1.0, 0.0]], [[0.0, 1.0]])


def _norms(rows):
    return np.linalg.norm(rows, axis=1)


def _side(rows):
    return (rows[:, 3] > 0).astype(int)


_ALL = E.sum(axis=0)
_TABLES = residual_plan([2, 2, 2], n_classes=2), residual_plan([2, 2], n_classes=2, pairs=False)
_CELL = np.array([0.5])
# A query of rows, and two rows: the first attains the bound of a row that joins, the two together that of one that is
# replaced. No two rows have opposite random features, so the mean embedding comes near it alone.
QUERIES = {
    "histogram": (lambda r, m: histogram(_codes(r)[:, 0], 2, m), E[0], -E[0]),
    "joint histogram": (lambda r, m: joint_histogram(list(_codes(r).T), [2, 2, 2], [1, 2, 3], m), _ALL, -_ALL),
    "norms": (lambda r, m: norm_histogram(_norms(r), _CELL, m), E[0], 0 * E[0]),
    "class norms": (lambda r, m: class_norm_histogram(_norms(r), _codes(r)[:, 0], 2, _CELL, m), E[0], 0 * E[0]),
    "total": (lambda r, m: total(7 * _codes(r)[:, 0], 7, m), E[0], -E[0]),
    "tables": (lambda r, m: one_hot_moments(_codes(r), _TABLES[0], _side(r), unit_sizes=m), _ALL, -_ALL),
    "triples": (lambda r, m: triple_interactions(3 * _codes(r), [False] * 3, unit_sizes=m), _ALL, -_ALL),
    "triples of classes": (
        lambda r, m: triple_interactions(3 * _codes(r), [False] * 3, _side(r), 2, unit_sizes=m),
        _ALL,
        2 * E[3] - _ALL,  # of the same class
    ),
    "tables of classes": (
        lambda r, m: one_hot_moments(_codes(r)[:, :2], _TABLES[1], _side(r), unit_sizes=m),
        _ALL,
        -_ALL,
    ),
    "moments": (lambda r, m: moments(r, unit_sizes=m), E[0], -0.05 * E[0] + (1 - 0.05**2) ** 0.5 * E[1]),
    "second moments": (lambda r, m: second_moments(r, unit_sizes=m), E[0], E[1]),
    "first moments": (lambda r, m: first_moments(r, unit_sizes=m), E[0], -E[0]),
    "sum of rows": (lambda r, m: sum_of_rows(r, unit_sizes=m), E[0], -E[0]),
    "class moments": (lambda r, m: class_moments(r, _side(r), 2, unit_sizes=m), E[0], E[3]),
    "shared moments": (
        lambda r, m: shared_moments(r, _side(r), 2, unit_sizes=m),
        E[0],
        -0.5 * E[0] + 0.75**0.5 * E[1],
    ),
    "class first moments": (lambda r, m: class_first_moments(r, _side(r), 2, unit_sizes=m), E[0], -E[0]),
    "clusters": (lambda r, m: cluster_sums(r, lambda x: x, unit_sizes=m), E[0], -E[0]),
    "mixture, diag": (lambda r, m: mixture_sums(r, _responsibilities(r), unit_sizes=m), E[0], -E[1]),
    "mixture, full": (
        lambda r, m: mixture_sums(r, _responsibilities(r), covariance_type="full", unit_sizes=m),
        E[0],
        -E[1],
    ),
    "mean embedding": (lambda r, m: embedding_sum(r, _side(r), 2, _FEATURES, unit_sizes=m), E[0], E[3]),
    "bins": (lambda r, m: bins_histogram(_frame(r, "ab"), _KNOWN, m), E[0], 5 * E[0] + E[1]),
}


def _moved(query, one, other, weighting):
    """Norm of the difference of the weighted sums of two units, each a list of rows; and the first sum."""
    sums = []
    for rows in (one, other):
        if not len(rows):
            sums.append((0.0 * sums[0][0], None))
            continue
        found = query(np.array(rows), np.full(len(rows), len(rows)) if weighting == "units" else None)
        value = np.asarray(found.value)
        scale = float(found.lattice) if value.dtype.kind in "iu" else 1.0
        sums.append((value.astype(float) * scale * np.asarray(found.weights), found))
    return float(np.linalg.norm(sums[0][0] - sums[1][0])), sums[0][1]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("neighboring", NEIGHBORING)
@pytest.mark.parametrize("name", QUERIES)
def test_a_unit_attains_the_sensitivity_and_never_exceeds_it(name, neighboring, weighting):
    query, first, second = QUERIES[name]
    relation = UnitRelation(neighboring, BoundedUnit("person", K, weighting))
    nobody = np.zeros((0, D))
    moved, found = _moved(query, [first] * K, nobody if neighboring == NEIGHBORING[0] else [second] * K, weighting)
    claim = found.sensitivity(relation)
    assert (0.7 if name == "mean embedding" else 0.999) * claim <= moved <= claim * (1 + 1e-9)
    rng = np.random.default_rng(1)
    for _ in range(40):
        pool = np.array([first, second, -first, 0 * first, *rng.normal(size=(2, D)), *(9 * rng.normal(size=(1, D)))])
        pair = [pool[rng.integers(len(pool), size=n)] for n in rng.integers(1, K + 1, 2)]
        pair[1] = nobody if neighboring == NEIGHBORING[0] else pair[1]
        assert _moved(query, *pair, weighting)[0] <= claim * (1 + 1e-9)


def _weights_rounded_up(patch):
    patch.setattr(_histogram, "row_weights", lambda sizes: -(-(1 << 20) // np.asarray(sizes)) * 2.0**-20)


def _roots_for_weights(patch):
    patch.setattr(_moments, "weight_roots", lambda sizes, exact=True: np.asarray(sizes) ** -0.25)


def _shares_rounded_up(patch):
    def nearest(r, sizes, exact):
        return np.ceil(r / sizes[:, None] * 4096) / 4096

    patch.setattr(_mixture_sums, "_of_units", nearest)


def _k_forgotten(patch):
    patch.setattr(BoundedUnit, "weight", 1)


@pytest.mark.parametrize(
    ("sabotage", "name", "weighting"),
    [
        (_weights_rounded_up, "histogram", "units"),
        (_roots_for_weights, "first moments", "units"),
        (_shares_rounded_up, "mixture, diag", "units"),
        (_k_forgotten, "moments", "rows"),
        (_k_forgotten, "tables", "rows"),
    ],
)
def test_sums_that_a_unit_moves_further_are_caught(sabotage, name, weighting, monkeypatch):
    test_a_unit_attains_the_sensitivity_and_never_exceeds_it(name, NEIGHBORING[0], weighting)
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        test_a_unit_attains_the_sensitivity_and_never_exceeds_it(name, NEIGHBORING[0], weighting)


def test_where_the_count_outweighs_the_rows_a_unit_of_fewer_rows_moves_most():
    def query(rows, m):
        return first_moments(rows, count_weight=3.0, unit_sizes=m)

    claim = query(E[:1], None).sensitivity(UnitRelation("replace_one", BoundedUnit("person", K)))
    assert claim == pytest.approx(K * 10**0.5)  # K D, which is more than K R = 2 K
    # a row of norm 0 that stays, and K - 1 that go: no unit without rows is needed to exceed K R
    assert 2 * K < _moved(query, [E[0]] * K, [-E[0]], "rows")[0] <= claim


def test_the_rows_of_a_unit_weigh_at_most_1_whatever_their_number():
    for m in (1, 2, 3, 7, 1000, 1 << 16):
        sizes = np.full(m, m)
        weight = float(histogram(np.zeros(m, dtype=int), 1, sizes).value[0])
        assert (0.9 if m > 1000 else 0.999) <= weight <= 1
        count = first_moments(np.zeros((m, 1)), unit_sizes=sizes)
        assert 0.99 < float(count.value[0]) * count.lattice <= 1


def test_weighted_sums_are_exact_in_any_order():
    rng = np.random.default_rng(2)
    rows, sizes = rng.normal(size=(500, D)), rng.integers(1, 9, 500)
    order = rng.permutation(500)
    for query in (
        moments,
        first_moments,
        lambda r, unit_sizes: mixture_sums(r, np.ones((len(r), 1)), unit_sizes=unit_sizes),
    ):
        one, other = query(rows, unit_sizes=sizes), query(rows[order], unit_sizes=sizes[order])
        np.testing.assert_array_equal(one.value, other.value)


@pytest.mark.parametrize("name", QUERIES)
def test_each_row_has_the_weight_of_its_own_unit_however_many_rows_there_are(name):
    """A sum over more rows than any query takes at once is that over few rows, of units of one size, at a time."""
    query, *_ = QUERIES[name]
    rng = np.random.default_rng(4)
    rows, sizes = rng.normal(size=(70_000, D)), rng.integers(1, 6, 70_000)
    parts = [part for m in range(1, 6) for part in np.array_split(np.flatnonzero(sizes == m), 8)]
    few = [query(rows[part], sizes[part]).value for part in parts]
    np.testing.assert_array_equal(query(rows, sizes).value, sum(few))


def test_schema_histogram_of_units_has_the_bound_of_a_row():
    rows = np.array([E[0] + E[1]] * K)
    found = schema_histogram(_labelled(rows), _OPEN, np.full(K, K)).bounded_sum
    moved = np.linalg.norm(found.value * found.weights)
    assert 0.99999 * 2**0.5 <= moved <= 2**0.5
    assert found.sensitivity(UnitRelation("add_or_remove_one", BoundedUnit("p", K, "units"))) == pytest.approx(2**0.5)


# ---- noise for a person, and not for a row ------------------------------------------------------------------------
def test_noise_for_a_row_is_refused_in_a_fit_for_a_person():
    rng, counts = NoiseGenerator(), histogram(np.zeros(4, dtype=int), 1)
    rng.unit = unit = BoundedUnit("person", 2)
    with pytest.raises(ValueError, match="protects all rows of one person"):
        add_gaussian(counts, 1.0, rng, "replace_one")
    add_gaussian(counts, 1.0, rng, UnitRelation("replace_one", unit))
    rng.unit = None
    with pytest.raises(ValueError, match="protects one row"):
        add_gaussian(counts, 1.0, rng, UnitRelation("replace_one", unit))


@pytest.mark.parametrize("neighboring", NEIGHBORING)
def test_the_noise_hides_a_worst_case_person_as_it_hides_a_row(neighboring):
    """Equal rows of one cell, and of two where they are replaced: the shift over the noise is that of Gaussian(z)."""
    z, k, rng, n_cells = 3.0, 6, NoiseGenerator(), 20_000
    for weighting, shift in (("rows", k), ("units", 1.0)):
        rng.unit = unit = BoundedUnit("person", k, weighting)
        sizes = np.full(k, k) if weighting == "units" else None
        person = histogram(np.zeros(k, dtype=int), n_cells, sizes)
        noise = add_gaussian(person, z, rng, UnitRelation(neighboring, unit))[1:].std()
        cells = 1 if neighboring == NEIGHBORING[0] else 2
        assert shift * cells**0.5 / noise == pytest.approx(1 / z, rel=0.03)
    # the sabotaged twin: the noise of a row, under which the person is k times as visible
    rng.unit = None
    noise = add_gaussian(histogram(np.zeros(k, dtype=int), n_cells), z, rng, neighboring)[1:].std()
    assert k * cells**0.5 / noise == pytest.approx(k / z, rel=0.03)


def test_sums_and_relations_of_other_weights_do_not_mix():
    rows, units = (UnitRelation("replace_one", BoundedUnit("p", 2, weighting)) for weighting in WEIGHTINGS)
    plain, weighted = histogram(np.zeros(2, dtype=int), 1), histogram(np.zeros(2, dtype=int), 1, np.full(2, 2))
    for query, relation in ((plain, units), (weighted, rows), (weighted, "replace_one")):
        with pytest.raises(ValueError, match=r"weights of units|one of units"):
            query.sensitivity(relation)
    with pytest.raises(ValueError, match="one of units"):
        total([1], 2, of_units=True).sensitivity("replace_one")
    with pytest.raises(ValueError, match="one contribution per subset"):
        BoundedSum(0.0, 1.0, unit="subset").sensitivity(rows)


# ---- thresholds ---------------------------------------------------------------------------------------------------
def _passes(counts, threshold, sd, n_columns):
    """Probability that one of the categories with these counts, in one of the columns, passes."""
    return -np.expm1(n_columns * np.sum(norm.logcdf((threshold - np.asarray(counts, float)) / sd)))


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("sd", [0.3, 4.0, 60.0])
@pytest.mark.parametrize("n_columns", [1, 5])
def test_no_unit_passes_the_threshold_with_more_than_delta_and_one_attains_it(weighting, sd, n_columns):
    unit, delta, k = BoundedUnit("p", 6, weighting), 1e-4, 6
    threshold = selection_threshold(sd, delta, n_columns, unit)
    worst = 0.0
    for m in range(1, k + 1):
        for levels in range(1, m + 1):
            spread = np.full(levels, m // levels) + (np.arange(levels) < m % levels)
            heaped = np.r_[np.ones(levels - 1), m - levels + 1]
            for counts in (spread, heaped):
                counts = counts / m if weighting == "units" else counts
                worst = max(worst, _passes(counts, threshold, sd, n_columns))
    assert 0.999 * delta <= worst <= delta * (1 + 1e-9)


def test_a_threshold_without_the_union_over_the_categories_of_a_unit_is_too_low():
    unit, delta, sd = BoundedUnit("p", 20), 1e-4, 60.0
    one_category = 20 - 1 + selection_threshold(sd, delta)
    assert _passes(np.ones(20), one_category, sd, 1) > 2 * delta
    assert selection_threshold(sd, delta, 1, unit) > one_category
    # a row is a unit with one row
    assert selection_threshold(sd, delta, 3, BoundedUnit("p", 1, "units")) == selection_threshold(sd, delta, 3)


# ---- which rows are used ------------------------------------------------------------------------------------------
def _kept(ids, k=2, key=1, missing="refuse", weighting="rows"):
    return keep_rows(read_ids(ids, len(ids), BoundedUnit("p", k, weighting), missing), key)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_the_units_that_steps_sample_are_those_whose_rows_are_bounded(weighting):
    """Rows without an identifier too: as one unit together, one of them that joins would move the step of another."""
    ids = np.array(["a", None, "b", "a", None, "a", None, "b", "b", "c"], dtype=object)
    kept = _kept(ids, 2, missing="own", weighting=weighting)
    assert kept.codes.shape == kept.rows.shape
    assert kept.codes.min() >= 0
    np.testing.assert_array_equal(np.bincount(kept.codes), kept.n_per_unit)
    of_unit = [set(ids[kept.rows[kept.codes == code]].tolist()) for code in np.unique(kept.codes)]
    assert sorted(map(repr, of_unit)) == sorted(["{'a'}", "{'b'}", "{'c'}", *["{None}"] * 3])
    alone = kept.codes[pd.isna(ids[kept.rows])]
    assert len(set(alone.tolist())) == len(alone) == 3


def test_at_most_max_rows_of_a_unit_are_kept_and_all_of_a_smaller_one():
    ids = np.random.default_rng(0).integers(0, 300, 1000)
    found = _kept(ids, 3, weighting="units")
    counts, kept = np.bincount(ids, minlength=300), np.bincount(ids[found.rows], minlength=300)
    np.testing.assert_array_equal(kept, np.minimum(counts, 3))
    np.testing.assert_array_equal(found.unit_sizes, kept[ids[found.rows]])
    assert (np.diff(found.rows) > 0).all()
    assert found.n_per_unit.sum() == len(found.rows)


def test_the_rows_of_a_unit_are_drawn_uniformly():
    ids = np.repeat(np.arange(4000), 5)
    for key in (3, 2**61 + 5):
        place = _kept(ids, 2, key).rows % 5
        assert chisquare(np.bincount(place, minlength=5)).pvalue > 1e-4
        pairs = place.reshape(-1, 2) @ [5, 1]
        assert len(np.unique(pairs)) == 10
        assert chisquare(np.unique(pairs, return_counts=True)[1]).pvalue > 1e-4
    assert (_kept(ids, 2, 3).rows != _kept(ids, 2, 4).rows).any()


@pytest.mark.parametrize("kind", ["int", "text", "float"])
def test_a_unit_that_joins_changes_no_row_of_another(kind):
    rng = np.random.default_rng(4)
    ids = {"int": lambda x: x, "text": lambda x: np.array([f"p{i}" for i in x], object), "float": lambda x: x / 4}
    others, joining = rng.integers(1, 60, 400), np.zeros(17, dtype=int)
    places = np.sort(rng.integers(0, 401, 17))
    alone, both = others, np.insert(others, places, joining)
    old = np.delete(np.arange(len(both)), np.flatnonzero(both == 0))  # where the others' rows stand now
    for order in (np.arange(len(both)), np.argsort(both, kind="stable"), np.argsort(-both, kind="stable")):
        there = _kept(ids[kind](both[order]), 3).rows
        there = np.sort(order[there])
        there = there[both[there] != 0]
        np.testing.assert_array_equal(old[_kept(ids[kind](alone), 3).rows], there)


_DAYS = pd.date_range("2020-01-01", periods=5)


@pytest.mark.parametrize(
    "ids",
    [
        np.arange(5, dtype=np.uint8),
        np.array([1.5, 2, np.inf, -0.0, 4]),
        np.array([True, False, True, False, True]),
        ["a", "b", "c", "d", "e"],
        np.array(["a", "bb", "c", "d", "e"]),
        np.array([uuid.UUID(int=i) for i in range(5)], dtype=object),
        np.array([datetime.date(2020, 1, i) for i in range(1, 6)], dtype=object),
        np.array([b"a", b"bb", b"c", b"d", b"e"]),
        np.array([1, 2.5, Decimal("3"), True, 2**70], dtype=object),
        pd.Series(list("abcab"), dtype="category"),
        pd.Series([1, 2, 3, 4, 5], dtype="Int64"),
        pd.Series(list("abcde"), dtype="string"),
        _DAYS,
        _DAYS.tz_localize("Europe/Paris"),
    ],
)
def test_identifiers_are_of_any_dtype(ids):
    ids = ids if isinstance(ids, pd.Series | pd.Index) else np.asarray(ids)
    twice = pd.concat([pd.Series(ids)] * 2, ignore_index=True)
    found = _kept(twice, 1)
    assert len(found.rows) == pd.Series(ids).nunique()


def test_equal_identifiers_are_one_unit_whatever_their_dtype():
    ids = np.arange(40) % 7
    wanted = _kept(ids).rows
    np.testing.assert_array_equal(_kept(ids.astype(float)).rows, wanted)
    np.testing.assert_array_equal(_kept(ids.astype(np.int8)).rows, wanted)
    np.testing.assert_array_equal(_kept(pd.Series(ids, dtype="Int64")).rows, wanted)


def _tables_of(ids):
    yield pd.DataFrame({"p": ids})
    yield ids[:, None]
    yield pytest.importorskip("polars").DataFrame({"p": ids})
    yield pytest.importorskip("pyarrow").table({"p": ids})


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_groups_may_be_a_table_of_one_column():
    ids = np.arange(90) % 30
    unit = BoundedUnit("p", 2, "rows")
    wanted = units.read_groups(ids, 90, unit, "refuse")
    X, frame = np.random.default_rng(0).random((90, 2)), pd.DataFrame({"a": np.arange(90.0)})
    facts = {"unit": "p", "max_rows_per_unit": 3}
    for table in _tables_of(ids):
        found = units.read_groups(table, 90, unit, "refuse")
        np.testing.assert_array_equal(found.codes, wanted.codes)
        np.testing.assert_array_equal(found.values, wanted.values)
        P3GMSynthesizer(9.0, bounds=(0, 1), **facts).fit(X, groups=table)
        MomentSynthesizer(9.0, **facts).fit(frame, groups=table)
        PrivateSearchCV(
            DPPCA(1, bounds=(0, 1), **facts), {"n_components": [1, 2]}, epsilon=9.0, score_bounds=(-9, 9)
        ).fit(X, groups=table)
    with pytest.raises(InvalidInputError, match=r"must have shape \(90,\)"):
        units.read_groups(pd.DataFrame({"p": ids, "q": ids}), 90, unit, "refuse")


@pytest.mark.parametrize("other", [None, 1.5, 2**70, Decimal("0.25")])
@pytest.mark.parametrize("as_series", [False, True])
def test_an_identifier_of_another_type_changes_no_row_of_another(other, as_series):
    ids = [int(i) for i in np.repeat(np.arange(50), 5)]
    wanted = _kept(np.array(ids)).rows
    found = _kept(pd.Series([*ids, other], dtype=object) if as_series else [*ids, other], missing="own").rows
    np.testing.assert_array_equal(found[found < len(ids)], wanted)


@pytest.mark.parametrize(("dtype", "bits"), [("float64", 53), ("float32", 24), ("float16", 11), ("Float32", 24)])
def test_floats_that_are_one_number_for_several_integers_are_refused(dtype, bits):
    with pytest.raises(InvalidInputError, match="integers or as text") as error:
        _kept(pd.Series([2.0**bits, 1.0], dtype=dtype))
    assert str(2**bits) not in str(error.value)
    assert len(_kept(pd.Series([np.inf, 2.0**bits - 1], dtype=dtype)).rows) == 2


# What `read_csv` makes of a long file of which one part alone has a letter: the same persons as numbers and as text.
_MIXED = np.array([*np.repeat(np.arange(7), 5), *map(str, np.repeat(np.arange(7), 5)), "A7"], dtype=object)


def _most_rows_of_a_person(ids, k):
    return int(pd.Series(ids[_kept(ids, k).rows]).astype(str).value_counts().max())


@pytest.mark.parametrize("other", ["7", b"7", uuid.UUID(int=7), datetime.date(2020, 1, 1), pd.Timestamp("2020-01-01")])
def test_identifiers_of_several_kinds_are_refused(other):
    for ids in ([1, 2, other], pd.Series([1, 2, other]), pd.Series([other, 1, None, 2], dtype="category")):
        with pytest.raises(InvalidInputError, match="several kinds") as error:
            _kept(ids, missing="own")
        assert str(other) not in str(error.value).replace("7, '7' and '007'", "")


def test_numbers_beside_text_in_a_column_of_identifiers_cost_nothing():
    frame, accountant = pd.DataFrame({"pid": _MIXED, "a": np.arange(len(_MIXED)) % 4}), PrivacyAccountant(1, unit="pid")
    with pytest.raises(InvalidInputError, match="may be one person"):
        MomentSynthesizer(accountant=accountant, unit="pid", max_rows_per_unit=2).fit(frame)
    assert not accountant.entries
    assert _most_rows_of_a_person(_MIXED.astype(str).astype(object), 2) == 2


def test_without_that_refusal_a_person_would_have_twice_the_rows(monkeypatch):
    monkeypatch.setattr(units, "kinds", lambda values: set())
    assert _most_rows_of_a_person(_MIXED, 2) == 4


def test_rows_without_an_identifier_are_refused_or_units_of_their_own():
    ids = pd.Series(["a", None, "a", None, "a"])
    with pytest.raises(InvalidInputError, match='missing="own"'):
        _kept(ids)
    found = _kept(ids, 1, missing="own", weighting="units")
    assert {1, 3} < set(found.rows.tolist())
    assert len(found.rows) == 3
    assert len(_kept(pd.Series([None, None]), 1, missing="own").rows) == 2


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_person_among_rows_without_an_identifier_moves_no_release_by_more_than_it_claims(weighting):
    sets = []
    for seed, n in ((0, 60), (1, 30)):
        rng = np.random.default_rng(seed)
        ids = pd.Series(rng.integers(0, n // 2, n) + 100 * seed).astype(object).where(rng.random(n) < 0.8, None)
        sets.append(pd.DataFrame({"pid": ids, "c": rng.choice(list("xyz"), n)}))
    joining = pd.DataFrame({"pid": pd.Series([999] * 5, dtype=object), "c": ["x", "alone", "alone too", "x", "y"]})
    options = {"unit": PrivacyUnit("pid", 3, weighting=weighting, missing="own")}
    check_noninterference(MomentSynthesizer(60.0, random_state=0, **options), *sets, rows=joining)


@pytest.mark.parametrize(
    ("ids", "match"),
    [(np.arange(3), "shape"), ([[1], [2], [1], [2]], "shape"), ([{}, [], "a", "b"], "can be compared")],
)
def test_bad_identifiers_are_refused_without_their_values(ids, match):
    ids = np.array(ids, dtype=object) if match == "can be compared" else np.asarray(ids)
    with pytest.raises(InvalidInputError, match=match):
        read_ids(ids, 4, BoundedUnit("p", 2), "refuse")


# ---- chunks -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_chunks_that_are_sorted_by_unit_give_the_rows_of_one_frame(weighting):
    rng, unit = np.random.default_rng(6), BoundedUnit("id", 3, weighting)
    frame = pd.DataFrame({"id": np.sort(rng.integers(0, 12, 90)).astype(object), "x": np.arange(90)})
    frame.loc[40, "id"] = None
    whole = keep_rows(read_ids(frame["id"], 90, unit, "own"), 11)
    for cuts in ([], [30], [1, 2, 3, 60, 61], list(range(1, 90))):
        frames = [frame.iloc[a:b] for a, b in zip([0, *cuts], [*cuts, 90])]
        source = UnitSource(ChunkSource(lambda frames=frames: frames), unit, "own", "id")
        source._key = 11
        seen = source.reduce(lambda part, unit_sizes=None: [(part["x"].to_numpy(), unit_sizes)], operator.add)
        rows = np.concatenate([x for x, _ in seen])
        order = np.argsort(rows)  # a row without an identifier may come before the unit that it stands in
        np.testing.assert_array_equal(rows[order], whole.rows)
        if weighting == "units":
            np.testing.assert_array_equal(np.concatenate([m for _, m in seen])[order], whole.unit_sizes)
        assert source.row_count().value[0] == len(whole.rows)
        assert list(source.head.columns) == ["x"]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_rows_without_an_identifier_do_not_divide_a_unit_of_several_chunks(weighting):
    ids = [1.0, 2, 2, 2, np.nan, 2, 2, np.nan, np.nan, 2, np.nan, 2, 2, 3, np.nan]
    frame = pd.DataFrame({"v": np.arange(len(ids)), "id": ids})
    chunks = [frame.iloc[start:stop] for start, stop in ((0, 4), (4, 7), (7, 9), (9, 10), (10, 12), (12, 15))]
    unit, found = BoundedUnit("id", 2, weighting), []
    for source in (open_source(frame), open_source(lambda: iter(chunks))):
        rows = UnitSource(source, unit, "own", "id")
        rows.choose(3)
        used = rows.reduce(lambda part, **_: part["v"].tolist(), operator.add)
        found.append((sorted(used), float(rows.row_count().value[0])))
    assert found[0] == found[1]
    assert np.sum(np.take(ids, found[1][0]) == 2) == 2


def test_integers_of_one_chunk_stay_apart_beside_floats_of_another():
    large = 2**60
    first = pd.DataFrame({"v": [0, 1], "id": [1.0, np.nan]})
    second = pd.DataFrame({"v": [2, 3, 4, 5], "id": [1, large, large + 1, large + 2]})
    rows = UnitSource(open_source(lambda: iter((first, second))), BoundedUnit("id", 1), "own", "id")
    assert rows.inspect(len, operator.add) == 6
    rows.choose(3)
    assert rows.reduce(len, operator.add) == 5


@pytest.mark.parametrize("last", [["3"], [4, b"5"], [pd.Timestamp("2020-01-01")]])
def test_identifiers_of_several_kinds_in_several_chunks_are_refused_before_the_charge(last):
    chunks = [pd.DataFrame({"id": ids, "x": 1.0}) for ids in ([1, 2], [2, None], pd.Series(last, dtype=object))]
    accountant = PrivacyAccountant(1.0, unit="id")
    made = MomentSynthesizer(accountant=accountant, unit=PrivacyUnit("id", 2, missing="own"))
    with pytest.raises(InvalidInputError, match="several kinds"):
        made.fit(chunks)
    assert not accountant.entries


_SECRET = "Zoe-7731"
_REFUSED_IDS = {
    "missing": ([[_SECRET], [None]], "lacks an identifier"),
    "several kinds": ([[_SECRET, 7731]], "several kinds"),
    "several kinds in several chunks": ([[7731], [_SECRET]], "several kinds"),
    "no Unicode": ([pd.Series([f"{_SECRET}\ud800"], dtype=object)], "no Unicode"),
    "large floats": ([[7731.0 * 2**53]], "are one number for several integers"),
    "large floats among objects": (
        [pd.Series([7731.0 * 2**53, 1], dtype=object), pd.Series([np.float64(7732.0 * 2**53)], dtype=object)],
        "are one number for several integers",
    ),
    "large floats that equal an integer": (
        [pd.Series([7731 * 2**53, 7731 * 2**53 + 1, 7731.0 * 2**53], dtype=object)],
        "are one number for several integers",
    ),
    "large floats of half precision among objects": (
        [pd.Series([np.float32(7731.0 * 2**24), np.float32(2)], dtype=object)],
        r"floats of 2\*\*24 or more",
    ),
    "no values": ([[[_SECRET], [7731]]], "must be numbers, text, dates"),
}


@pytest.mark.parametrize("case", _REFUSED_IDS)
def test_no_refusal_of_identifiers_shows_one_of_them(case):
    parts, said = _REFUSED_IDS[case]
    chunks = [pd.DataFrame({"id": part, "x": 1.0}) for part in parts]
    accountant = PrivacyAccountant(1.0, unit="id")
    made = MomentSynthesizer(accountant=accountant, unit="id", max_rows_per_unit=2)
    for given in (chunks, pd.concat(chunks)):
        with pytest.raises(InvalidInputError, match=said) as error:
            made.fit(given)
        _shows_no_identifier(error.value)
    assert not accountant.entries


def _shows_no_identifier(raised):
    shown = f"{raised} {raised.__cause__ or ''} {'' if raised.__suppress_context__ else raised.__context__ or ''}"
    assert not any(part in shown for part in ("7731", "7732", "Ada", "Ann", str(7731 * 2**53), f"{7731.0 * 2**53}"))


@pytest.mark.parametrize(
    ("first", "later", "said"),
    [
        ((("Ada-7731",), (_SECRET,)), ((_SECRET,), ("Ada-7731",)), "sorted by 'id' in the first pass"),
        (
            (("Ann",), ("Ada-7731", _SECRET)),
            (("Ann",), (_SECRET, "Ada-7731")),
            "gave other rows than at an earlier pass",
        ),
    ],
)
def test_no_error_of_a_table_that_changes_shows_an_identifier(first, later, said):
    given = [first]
    rows = UnitSource(
        open_source(lambda: (pd.DataFrame({"id": part, "x": 1.0}) for part in given[0])),
        BoundedUnit("id", 2),
        "refuse",
        "id",
    )
    assert rows.inspect(len, operator.add) == sum(map(len, first))
    rows.choose(3)
    given[0] = later
    with pytest.raises(InvalidInputError, match=said) as error:
        rows.reduce(len, operator.add)
    _shows_no_identifier(error.value)


def test_a_card_says_that_rows_without_an_identifier_were_taken_for_other_units():
    frame = _visits().astype({"pid": object})
    frame.loc[3, "pid"] = None
    synth = MomentSynthesizer(5.0, schema=SCHEMA, unit=PrivacyUnit("pid", 2, missing="own")).fit(frame)
    assert "rows without 'pid': each is taken for another unit" in synth.card_["public_assumptions"]


def test_rows_that_were_not_chosen_are_not_summed():
    unit, frame = BoundedUnit("id", 3), pd.DataFrame({"id": [1, 2, 2, 1], "x": 1.0})
    for chunks in ([frame], [frame.iloc[:3]], [frame.iloc[:3], frame.iloc[3:]]):
        source = UnitSource(ChunkSource(lambda chunks=chunks: chunks), unit, "refuse", "id")
        assert source.inspect(len, operator.add) == sum(map(len, chunks))
        with pytest.raises(RuntimeError, match="chosen"):
            source.reduce(len, max)


# ---- fits ---------------------------------------------------------------------------------------------------------
def _visits(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"pid": rng.integers(0, n // 2, n), "a": rng.normal(size=n), "c": rng.choice(list("xyz"), n)})


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("neighboring", NEIGHBORING)
def test_a_fit_has_no_column_of_identifiers_and_a_card_that_names_them(weighting, neighboring):
    frame, options = _visits(), {"unit": PrivacyUnit("pid", 2, weighting=weighting), "neighboring": neighboring}
    synth = MomentSynthesizer(1e3, target="c", **options).fit(frame)
    kept = frame.groupby("pid").size().clip(upper=2).sum()
    assert synth.row_count_ == pytest.approx(kept, abs=8)
    assert synth.row_count_ != kept  # private under both relations
    assert list(synth.sample(3).columns) == ["a", "c"] == list(synth.feature_names_in_)
    assert synth.accountant_.unit == "pid"
    assert synth.card_["unit"].startswith("all rows of one pid, at most 2")
    assert "a correct guess about all rows of one pid by" in synth.card_.remarks[0]
    assert not any("number of rows" in text for text in synth.card_["public_assumptions"])
    assert np.isfinite(synth.score(frame))  # the column may be there, and is not read


def test_units_weigh_alike_and_rows_weigh_alike():
    frame = pd.DataFrame({"pid": np.r_[np.arange(3000), np.repeat(np.arange(3000, 4000), 5)]})
    frame["c"] = np.where(frame["pid"] < 3000, "once", "often")
    shared = {"target": "c", "epsilon": 50.0, "schema": None}
    frame["a"] = np.random.default_rng(0).random(len(frame))
    for weighting, share in (("rows", 0.5), ("units", 0.75)):
        synth = MomentSynthesizer(**shared, unit=PrivacyUnit("pid", 3, weighting=weighting)).fit(frame)
        assert synth.class_ratio_[list(synth.classes_).index("once")] == pytest.approx(share, abs=0.02)
        assert synth.row_count_ == pytest.approx(6000, rel=0.02)


@pytest.mark.filterwarnings("ignore:too few rows:skdpgen.exceptions.UtilityWarning")
def test_a_ledger_of_rows_refuses_units_and_the_other_way_round():
    frame, unit = _visits(), {"unit": "pid", "max_rows_per_unit": 2, "schema": SCHEMA}
    rows, persons = PrivacyAccountant(2.0), PrivacyAccountant(2.0, unit="pid")
    for accountant, more in (
        (rows, unit),
        (persons, {"schema": SCHEMA}),
        (PrivacyAccountant(2.0, unit="doctor"), unit),
    ):
        with pytest.raises(ValueError, match="guarantee the weaker of the two"):
            MomentSynthesizer(1.0, accountant=accountant, **more).fit(
                frame[["a", "c", *(["pid"] if "unit" in more else [])]]
            )
        assert not accountant.entries
    MomentSynthesizer(0.5, accountant=persons, **unit).fit(frame)
    MomentSynthesizer(0.5, accountant=persons, **{**unit, "max_rows_per_unit": 5}).fit(frame)  # the same persons
    assert [charge.unit for charge in persons.charges] == ["pid", "pid"]


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"max_rows_per_unit": 2}, "needs unit="),
        ({"unit": PrivacyUnit(weighting="units")}, "needs unit="),
        ({"unit": PrivacyUnit()}, "needs unit="),
        ({"unit": PrivacyUnit("pid", 2), "max_rows_per_unit": 2}, "set the same thing"),
        ({"unit": PrivacyUnit("pid", 0)}, "max_rows"),
        ({"unit": PrivacyUnit("pid", 2, weighting="persons")}, "weighting"),
        ({"unit": PrivacyUnit("pid", 2, missing="drop")}, "missing"),
        ({"unit": "nobody", "max_rows_per_unit": 2}, "not a column"),
        ({"unit": "pid", "max_rows_per_unit": 0}, "max_rows_per_unit"),
        ({"unit": "pid", "max_rows_per_unit": 2, "target": "pid"}, "target too"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_charge(parameters, match):
    accountant = PrivacyAccountant(1.0, unit="pid" if "pid" in repr(parameters) else None)
    with pytest.raises(ValueError, match=match):
        P3GMSynthesizer(accountant=accountant, **parameters).fit(_visits())
    assert not accountant.entries


def test_arrays_take_the_identifiers_as_groups():
    rng = np.random.default_rng(0)
    X, ids = rng.random((300, 2)), rng.integers(0, 150, 300).astype(str)
    synth = P3GMSynthesizer(50.0, bounds=(0, 1), l2_bound=1.5, max_rows_per_unit=2).fit(X, groups=ids)
    assert synth.card_["unit"] == "all rows of one unit, at most 2 of them used"
    with pytest.raises(InvalidInputError, match="groups=ids"):
        P3GMSynthesizer(1.0, unit="person", max_rows_per_unit=2).fit(X)
    with pytest.raises(ValueError, match="shape"):
        DPPCA(1, max_rows_per_unit=2).fit(X, groups=ids[:-1])
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(pid=ids)
    assert list(DPPCA(1, epsilon=50.0, unit="pid", max_rows_per_unit=2).fit(frame).feature_names_in_) == ["a", "b"]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_the_threshold_of_a_fit_is_that_of_its_unit(weighting, monkeypatch):
    seen, shipped = [], _selection.select_above

    def observed(noisy, sd, delta, n_columns=1, unit=None):
        seen.append(unit)
        return shipped(noisy, sd, delta, n_columns, unit)

    monkeypatch.setattr(_selection, "select_above", observed)
    frame, options = _visits(), {"unit": PrivacyUnit("pid", 2, weighting=weighting)}
    MomentSynthesizer(1e3, target="c", **options).fit(frame)  # learned categories
    MomentSynthesizer(1e3, bounds=(-4, 4), **options).fit(frame[["a"]].to_numpy(), frame["c"], groups=frame["pid"])
    DPGaussianMixture(epsilon=1e3, **options).fit(frame[["a", "pid"]], frame["c"])
    assert seen == [BoundedUnit("pid", 2, weighting)] * 3


def test_estimators_without_units_refuse_groups():
    class OfRows(PrivateEstimator):
        def __init__(self, epsilon=1.0, delta=None, neighboring=None, accountant=None, noise="secure"):
            self.epsilon, self.delta, self.neighboring = epsilon, delta, neighboring
            self.accountant, self.noise = accountant, noise

    with pytest.raises(ValueError, match="OfRows, which protects one row"):
        OfRows().plan(np.zeros((4, 2)), groups=[1, 1, 2, 2])


def test_a_unit_survives_the_model_file_and_the_plan(tmp_path):
    import skdpgen

    model = MomentSynthesizer(1.0, schema=SCHEMA, unit=PrivacyUnit("pid", 2, weighting="units"))
    plan = model.plan(_visits())
    assert plan.unit == BoundedUnit("pid", 2, "units")
    assert "row_count" in plan.noise_multipliers
    assert "all rows of one pid, at most 2 of them used, which together count 1" in str(BudgetPlan.of(plan, 400))
    model.fit(_visits()).save(tmp_path / "m.safetensors")
    loaded = skdpgen.load(tmp_path / "m.safetensors")
    assert loaded.card_ == model.card_
    assert (loaded.accountant_.unit, loaded.unit.max_rows) == ("pid", 2)
