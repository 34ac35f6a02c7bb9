"""Identifiers of units in dtypes of Arrow: equal values are one unit, and NaN is none, whatever a dictionary lists."""

from __future__ import annotations

import operator
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer, PrivacyUnit, Schema
from skdpgen._types import BoundedUnit
from skdpgen.data import units
from skdpgen.data.sources import open_source
from skdpgen.data.units import UnitSource, _slice_of, read_ids
from skdpgen.exceptions import InvalidInputError, SchemaError

pa = pytest.importorskip("pyarrow")

NAN = float("nan")


def _of_arrow(values):
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([values])))


def _listed(values):
    """A dictionary that lists each value once a row: as pieces of several files have been put together."""
    return _of_arrow(pa.DictionaryArray.from_arrays(pa.array(range(len(values))), pa.array(values)))


FORMS = {
    "text, listed twice": (_listed, ["a", "b", "a", "a"], [0, 1, 0, 0]),
    "numbers, listed twice": (_listed, [1.5, 2.5, 1.5, 1.5], [0, 1, 0, 0]),
    "a missing value, listed": (_listed, ["a", None, "a", None], [0, -1, 0, -1]),
    "NaN, listed twice": (_listed, [1.0, NAN, 1.0, NAN], [0, -1, 0, -1]),
    "NaN, listed once": (lambda x: _of_arrow(pa.array(x).dictionary_encode()), [1.0, NAN, 1.0, NAN], [0, -1, 0, -1]),
    "zeros of both signs": (lambda x: _of_arrow(pa.array(x)), [0.0, -0.0, 1.0, 0.0], [0, 0, 1, 0]),
    "listed zeros of both signs": (_listed, [0.0, -0.0, 1.0, 0.0], [0, 0, 1, 0]),
}


@pytest.mark.parametrize("form", FORMS)
def test_identifiers_of_arrow_are_the_values_that_they_stand_for(form):
    make, values, wanted = FORMS[form]
    ids = read_ids(make(values), len(values), BoundedUnit("id", 2), "own")
    assert ids.codes.tolist() == wanted
    assert len(ids.values) == max(wanted) + 1


@pytest.mark.parametrize("form", [form for form, (*_, codes) in FORMS.items() if -1 in codes])
def test_rows_whose_identifier_is_listed_as_missing_are_refused(form):
    make, values, _ = FORMS[form]
    with pytest.raises(InvalidInputError, match="lacks an identifier"):
        read_ids(make(values), len(values), BoundedUnit("id", 2), "refuse")


def _in_parts(ids):
    """Places of the rows used of a table in chunks, of which each pass holds the identifiers of a few rows."""
    frame = pd.DataFrame({"v": np.arange(len(ids)), "id": ids})
    chunks = [frame.iloc[start : start + 25] for start in range(0, len(ids), 25)]
    rows = UnitSource(open_source(lambda: iter(chunks)), BoundedUnit("id", 2), "own", "id")
    with patch.object(units, "HELD_ROWS", 10):
        rows.choose(3)
        used = rows.reduce(lambda part: part["v"].tolist(), operator.add)
    return sorted(used), float(rows.row_count().value[0])


_MAKERS = {
    "floats": lambda x: _of_arrow(pa.array(x)),
    "dictionary": lambda x: _of_arrow(pa.array(x).dictionary_encode()),
    "dictionary of every row": _listed,
}
_MIXED = np.random.default_rng(0).permutation(np.repeat([3.0, 0.0, -0.0, 7.0, 5.0, NAN], 10)).tolist()


@pytest.mark.parametrize("kind", _MAKERS)
def test_a_row_without_an_identifier_is_counted_once_wherever_it_lies(kind):
    assert _in_parts(_MAKERS[kind](_MIXED)) == _in_parts(pd.Series(_MIXED))


@pytest.mark.parametrize("kind", _MAKERS)
def test_the_part_of_a_row_without_an_identifier_follows_from_its_place(kind):
    """The hash of NaN is another one at each pass: the row would be in no part, or in several, and counted as often."""
    slices = [_slice_of(ids, 0, 50).tolist() for ids in (_MAKERS[kind](_MIXED), pd.Series(_MIXED))]
    assert slices[0] == slices[1]


def test_a_fit_by_units_uses_no_more_rows_of_a_person_that_a_dictionary_lists_often():
    frame = pd.DataFrame({"x": np.arange(40.0), "id": _listed([f"p{i % 4}" for i in range(40)])})
    model = MomentSynthesizer(epsilon=900.0, unit=PrivacyUnit("id", 2), random_state=0).fit(frame)
    assert model.row_count_ == pytest.approx(8, abs=0.5)


_X = pd.DataFrame({"x": np.arange(40.0), "z": np.arange(40.0) % 7})
_PLACES = {
    "X": lambda model, view: model.fit(_X.assign(word=view)),
    "chunk": lambda model, view: model.fit([_X.assign(word=view)] * 2),
    "y": lambda model, view: model.fit(_X, view),
    "y of an array": lambda model, view: model.fit(_X.to_numpy(), view),
    "y, a frame": lambda model, view: model.fit(_X, view.to_frame()),
    "y, an array of pandas": lambda model, view: model.fit(_X, view.array),
    "identifier": lambda model, view: model.set_params(unit=PrivacyUnit("word", 2)).fit(_X.assign(word=view)),
    "schema": lambda _, view: Schema.from_kinds(_X.assign(word=view)),
}


@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
@pytest.mark.parametrize("place", _PLACES)
def test_views_which_pandas_does_not_know_are_refused_by_name(kind, place):
    view = _of_arrow(pa.array(["secret", "other"] * 20).cast(getattr(pa, kind)())).rename("word")
    model = MomentSynthesizer(epsilon=1.0)
    with pytest.raises(SchemaError, match=rf"(^column 'word'|^y): no kind for the type {kind} of Arrow") as error:
        _PLACES[place](model, view)
    assert "secret" not in str(error.value)
    assert not hasattr(model, "accountant_")


def test_nan_in_a_dictionary_of_numbers_is_a_missing_category():
    values = [1.5, NAN, 2.5, NAN, 1.5] * 60
    frame = pd.DataFrame({"x": np.arange(300.0), "c": _of_arrow(pa.array(values).dictionary_encode())})
    model = MomentSynthesizer(epsilon=100.0, random_state=0).fit(frame)
    assert model.schema_["c"].categories == (1.5, 2.5)
    assert model.sample(500)["c"].isna().mean() == pytest.approx(0.4, abs=0.1)
