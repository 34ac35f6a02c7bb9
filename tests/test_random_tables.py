"""Random columns of every dtype, and fits to random tables of them: what a value becomes follows from it alone.

A row that joins must not change how other rows are read, nor anything that a fit leaves but through its releases.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal

import numpy as np
import pandas as pd
import pytest
from _short_fits import short_postprocessing
from sklearn.base import clone

from skdpgen import DPMERFSynthesizer, MomentSynthesizer, P3GMSynthesizer, PrivacyUnit
from skdpgen._types import BoundedUnit, UnitRelation
from skdpgen.data.units import read_ids
from skdpgen.exceptions import InvalidInputError, SchemaError
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric, Schema, schema_histogram
from skdpgen.tabular._frames import factorize, numeric_values
from skdpgen.testing._noninterference import _change, _norm
from skdpgen.testing._replay import difference, fit_along

_SMALL = [0, 1, 2, 7]
_LARGE = [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1, -(2**63), -(2**53) - 1, *_SMALL]
_FLOATS = [0.0, -0.0, 5e-324, 2.2e-308, 1e308, -1e308, 0.1, 0.1 + 0.2, 2.0**53, 2.0**64, 0.5, 2.5, 123456.789]
_WORDS = [
    "a",
    "A",
    "é",
    "e\u0301",
    "Å",
    "\u212b",
    "ß",
    " a",
    "",
    "x" * 3000,
    "nan",
    "None",
    "True",
    "\u200b",
    "\ufeffa",
]
_NUMERALS = ["1", "1.0", "01", "-0", "0", "1e3", "+1", "1 ", "0.1", ".5", "1e-400", "9007199254740993", "1e22"]
_LONG = ["18446744073709551616", "9223372036854775808", "-9223372036854775809", "100000000000000000000", "1.5", "-1"]
_DATES = ["2020-01-01", "2020-02-29 10:00", "1900-01-01T23:59:59.999999", "2300-01-01", "2020-01", "now", "20200101"]
_MOMENTS = [np.datetime64(text, "s") for text in ("1970-01-01", "1969-12-31T23:59:59", "2024-02-29", "2261-01-01")]
_DECIMALS = [decimal.Decimal(text) for text in ("1.10", "1.1", "-0", "0", "1E+2", "123456789012345678.25")]
_DAYS = [datetime.date(2020, 1, day) for day in (1, 2, 3)]
# (values of a column, dtypes that hold them, and missing values where they may)
COLUMNS = {
    "small numbers": (_SMALL, ["uint8", "Int8", "float16", "float32", "Float32", "object", "category"]),
    "large numbers": (_LARGE, ["int64", "Int64", "object", "category"]),
    "unsigned numbers": ([2**64 - 1, 2**63, *_SMALL], ["uint64", "UInt64", "object"]),
    "floats": (_FLOATS, ["float64", "Float64", "object", "category"]),
    "numbers of several types": ([1, 1.0, np.int8(1), np.float32(0.1), 0.1, 2**70, 2.0**70, -0.0, 0], ["object"]),
    "truth values": ([True, False], ["bool", "boolean", "object", "category"]),
    "words": (_WORDS, ["object", "string", "category"]),
    "numerals": (_NUMERALS, ["object", "string", "category"]),
    "long numerals": (_LONG, ["object", "string", "category"]),
    "dates as text": (_DATES, ["object", "string", "category"]),
    "moments": (_MOMENTS, ["datetime64[s]", "datetime64[us]", "datetime64[ns, Europe/Paris]"]),
    "time spans": ([pd.Timedelta(k, "min") for k in (-1, 0, 90)], ["timedelta64[s]", "timedelta64[ns]"]),
    "decimals": (_DECIMALS, ["object"]),
    "days": (_DAYS, ["object"]),
}
_WITHOUT_MISSING = ("uint8", "int64", "uint64", "bool")


def random_column(rng, n):
    """A column of a few random values of one dtype, and missing values."""
    values, dtypes = COLUMNS[rng.choice(list(COLUMNS))]
    dtype = str(rng.choice(dtypes))
    chosen = rng.integers(0, len(values), rng.integers(1, 7))
    column = [values[k] for k in rng.choice(chosen, n)]
    if dtype not in _WITHOUT_MISSING and rng.random() < 0.6:
        column = [None if lost else value for lost, value in zip(rng.random(n) < rng.choice([0.05, 0.3, 1.0]), column)]
    if "Paris" in dtype:
        return pd.Series(pd.to_datetime(column).tz_localize("UTC").tz_convert("Europe/Paris"))
    return pd.Series(column, dtype=object).astype(dtype)


def readings(series):
    """Columns that a schema may declare for such a series."""
    yield Schema.from_kinds(pd.DataFrame({"c": series.iloc[:0]}))["c"]
    for dtype in (None, "str", "float64", "Int64", "boolean"):
        yield Categorical("c", missing=True, dtype=dtype)
    yield Categorical("c", ("a", "1", "1.0", "True"), other="another", missing=True)
    yield Categorical("c", (0, 1, 2.5, 2**53), other=-1, missing=True)
    yield Categorical("c", missing=True, hierarchy=1)
    yield from (Numeric("c", missing=True), Numeric("c", (-5, 9), missing=True, step=0.1), Boolean("c", missing=True))
    yield from (Datetime("c", missing=True), Datetime("c", missing=True, dtype="datetime64[us, Europe/Paris]"))


def read(series, column):
    """What a fit makes of each value, as text."""
    if column is None:
        ids = read_ids(series, len(series), BoundedUnit("c", 2), "own")
        return [None if code < 0 else ids.values[code] for code in ids.codes]
    if isinstance(column, Numeric | Datetime):
        return list(map(repr, numeric_values(series, column).tolist()))
    codes, found = factorize(series, column)
    return [None if code < 0 else repr(found[code]) for code in codes]


def counted(series, column):
    """Weighted counts of the schema, by name; and by how much one row may move them."""
    histogram = schema_histogram(pd.DataFrame({"c": series}), Schema([column]))
    total = histogram.bounded_sum
    counts = (total.value * np.broadcast_to(total.weights, total.value.shape)).tolist()
    names = list(map(repr, histogram.keys.get("c", ())))
    names += range(len(counts) - len(names))  # cells that no row names
    return dict(zip(names, counts)), total.add_or_remove_one


@pytest.mark.parametrize("part", range(4))
def test_what_a_value_becomes_follows_from_no_other_row(part):
    compared = 0
    for seed in range(100 * part, 100 * part + 100):
        rng = np.random.default_rng(seed)
        series = random_column(rng, int(rng.choice([2, 5, 20])))
        same_units = series.dtype == object and isinstance(series.dropna().max(), decimal.Decimal)  # 1.1 and 1.10
        for column in [*readings(series), *([] if same_units else [None])]:
            try:
                whole = read(series, column)
            except (SchemaError, InvalidInputError):
                continue
            last = len(series) - 1
            for rows in (rng.permutation(last + 1), np.arange(last), np.array([last])):
                assert read(series.iloc[rows], column) == [whole[k] for k in rows], (seed, column)
            compared += 1
            if column is not None and not column.complete:
                (more, reach), (less, _) = counted(series, column), counted(series.iloc[:last], column)
                moved = [more.get(name, 0) - less.get(name, 0) for name in {**more, **less}]
                assert np.linalg.norm(moved) <= reach * (1 + 1e-9), (seed, column)
    assert compared > 300


def _neighbours(rng, replaces, unit):
    """A fit that is not made yet, and two tables: a row, or a unit, joins among the others, or replaces another."""
    n, shared = 40, {"epsilon": 20.0, "neighboring": "replace_one" if replaces else None, "random_state": 0}
    table, gone = pd.DataFrame({f"c{k}": random_column(rng, n + 1) for k in range(3)}), [0]
    if unit is not None:
        table[unit] = np.append(rng.integers(0, 12, n), 99).astype(rng.choice(["int64", "object", "float64"]))
        shared["unit"] = PrivacyUnit(unit, max_rows=3, weighting=str(rng.choice(["rows", "units"])))
        gone = np.flatnonzero(table[unit] == table[unit].iloc[0])
    small = {"steps": 1, "n_frequencies": 8, "hidden_layer_sizes": (4,)}
    models = MomentSynthesizer(), MomentSynthesizer(target="c0"), P3GMSynthesizer(), DPMERFSynthesizer(**small)
    rest = np.setdiff1d(np.arange(n), gone if replaces else [])
    tables = [table.iloc[:n], table.iloc[np.insert(rest, rng.integers(len(rest)), n)]]
    if rng.random() < 0.5:  # chunks, which are cut elsewhere
        tables = [[rows.iloc[:cut], rows.iloc[cut:]] for rows, cut in zip(tables, (9, 20))]
    return models[rng.integers(4)].set_params(**shared), tables


@pytest.mark.parametrize("unit", [None, "owner"])
@pytest.mark.parametrize("seed", range(8))
def test_neighbouring_random_tables_differ_by_their_releases_alone(seed, unit):
    rng, replaces, first = np.random.default_rng(1000 + seed), seed % 2 == 1, None
    with short_postprocessing():
        while first is None:
            model, (one, other) = _neighbours(rng, replaces, unit)
            with contextlib.suppress(SchemaError, InvalidInputError):  # such as dates that are text
                first = fit_along(clone(model), (one,), aligned=True)
        second = fit_along(clone(model), (other,), first.releases, aligned=True)
    for kind, facts in first.left.items():
        assert facts is None or difference(facts, second.left[kind]) is None, kind
    relation = "replace_one" if replaces else "add_or_remove_one"
    relation = relation if unit is None else UnitRelation(relation, model._resolve_unit(None))
    for here, there in zip(first.releases, second.releases):
        if here.exact is not None:
            assert _norm(_change(here, there)) <= here.query.reach_of_a_record(relation) * (1 + 1e-6)
