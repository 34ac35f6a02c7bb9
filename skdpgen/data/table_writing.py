"""Writing tables to CSV and Parquet files, with a one-line message for each file that cannot be written."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import InvalidInputError
from ..tabular import Boolean, Categorical, Datetime, Numeric
from ..tabular._dtypes import output_dtype
from ..tabular._formats import dates_as_text, time_zone
from ..tabular._frames import restore
from ..tabular._identifiers import insert_keys, split_keys
from ..utils.atomic import Draft
from .notation import USUAL_NOTATION
from .sources import PARQUET, is_parquet

_OUTPUTS = (".csv", ".tsv", ".txt", ".gz", *PARQUET)
# First characters that spreadsheet programs take for a formula (OWASP, "CSV Injection"), with full-width forms.
_FORMULA = r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_CLOCK = "%Y-%m-%d %H:%M:%S"


def check_apart(*paths):
    """Refuse two names of one file among those that a command reads and writes; None is no file."""
    paths = [path for path in paths if path is not None]
    for one, other in itertools.combinations(paths, 2):
        if os.path.realpath(one) == os.path.realpath(other):
            raise InvalidInputError(
                f"{other}: is named by two options, and one would overwrite the other: give different files"
            )


def check_output(path, *, table=False):
    """Refuse a file that cannot be written, before anything is charged.

    If it is for rows (`table`), its suffix must be that of CSV or Parquet, or empty.
    """
    if str(path) == "-":
        raise InvalidInputError("results are written to a file: give it a name other than -")
    path = Path(path)
    if table and path.suffix and path.suffix.lower() not in _OUTPUTS:
        raise InvalidInputError(f"{path}: rows are written as CSV or Parquet; got the suffix {path.suffix!r}")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InvalidInputError(f"{path}: the folder {folder} does not exist: create it, or name another file")
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder; give the name of a file")
    if is_parquet(path) and find_spec("pyarrow") is None:
        raise InvalidInputError(f"{path}: writing Parquet needs pyarrow: pip install pyarrow")


def check_writing(path, notation=USUAL_NOTATION, *, escape_formulas=False):
    """Refuse what has no effect on the file that is written."""
    if is_parquet(path) and (notation != USUAL_NOTATION or escape_formulas):
        raise InvalidInputError(
            f"{path}: separators, decimal marks, missing marks and escaped formulas are of CSV files"
        )


def write_table(
    frames, path, notation=USUAL_NOTATION, *, date_formats=None, whole=(), example=None, escape_formulas=False
):
    """Write a table to a file; after an error there is no file.

    `frames`: chunks are written one after another; none stays in memory.
    `path`: ``.parquet`` and ``.pq`` are Parquet, everything else is CSV: with tabs in ``.tsv``, compressed in ``.gz``.
    `notation`: its separator, but for a ``.tsv`` file, which always has tabs; its decimal mark; and the first text of a
        missing value.
    `date_formats`: column name -> format of strftime; other dates are written in ISO 8601.
    `whole`: columns of floats that are whole numbers, which a CSV file has without decimals: see `whole_numbers_of`.
    `example`: see `example_of`.
    `escape_formulas`: whether text that a spreadsheet takes for a formula gets a leading ' in a CSV file.
    Returns: number of rows.
    """
    frames = [frames] if isinstance(frames, pd.DataFrame) else frames
    draft = path if isinstance(path, Draft) else Draft(path)
    with draft as written:
        if is_parquet(draft.target):
            return _write_parquet(frames, written, example)
        if ".tsv" in draft.target.suffixes[-2:]:
            notation = replace(notation, separator="tab")
        how = {"sep": notation.separator_of(draft.target), "decimal": notation.decimal}
        how["na_rep"] = next(iter(notation.missing_marks), "")
        compressed = draft.target.suffix.lower() == ".gz"
        return _write_csv(frames, written, compressed, date_formats or {}, whole, escape_formulas, how)


def _write_csv(frames, path, compressed, date_formats, whole, escape_formulas, how):
    """Write chunks of rows as one CSV file, and return the number of rows; `how` are options of pandas.

    Without a format in `date_formats`, pandas would choose one by the values of each chunk.
    """
    n_rows = 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "wb"))
        if compressed:  # without a name and time, which would be those of the draft
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        text = stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        for frame in frames:
            frame = frame.copy(deep=False)
            for name in frame.columns.intersection(list(date_formats)):
                frame[name] = _written_dates(frame[name], date_formats[name])
            for name in frame.columns.intersection(list(whole)):
                frame[name] = _without_decimals(frame[name])
            if escape_formulas:
                frame = _escaped(frame)
            frame.to_csv(text, index=False, header=not n_rows, **how)
            n_rows += len(frame)
    return n_rows


def _written_dates(column, form):
    periods = isinstance(column.dtype, pd.PeriodDtype)
    return dates_as_text(column if periods else pd.to_datetime(column), form)


def _without_decimals(column):
    """Whole numbers as integers of pandas, which are written without decimals; others as they are."""
    if not pdt.is_float_dtype(column.dtype):
        return column
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    absent = np.isnan(values)
    if (np.abs(values[~absent]) >= 2**53).any() or (values[~absent] % 1).any():
        return column
    integers = pd.Series(np.where(absent, 0, values).astype(np.int64), index=column.index, dtype="Int64")
    return integers.mask(absent)


def _write_parquet(frames, path, example=None):
    """Write chunks of rows as one Parquet file, a row group each, and return the number of rows.

    The columns of `example` have every kind of value that those of the chunks may have, by position. They give the type
    of a column that is missing throughout the first chunk. None takes the types of the first chunk.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_rows, writer = 0, None
    with contextlib.ExitStack() as stack:
        for frame in frames:
            if writer is None:
                first = frame if example is None else example.set_axis(frame.columns, axis=1)
                schema = pa.Table.from_pandas(first, preserve_index=False).schema
                writer = stack.enter_context(pq.ParquetWriter(str(path), schema))
            table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            writer.write_table(table.replace_schema_metadata(schema.metadata))
            n_rows += len(frame)
    return n_rows


def date_formats_of(schema):
    """Return a dict of the date columns and their formats of strftime: the declared ones, else by the resolution.

    Columns with a time zone have none.

    pandas omits times that are all midnight, and fractions that are all zero; without these formats that would depend
    on the chunk.
    """
    formats = {"D": "%Y-%m-%d", "us": f"{_CLOCK}.%f", "ms": f"{_CLOCK}.%f"}
    return {
        column.name: column.format or formats.get(column.resolution, _CLOCK)
        for column in schema.columns
        if isinstance(column, Datetime) and (column.format or _has_clock(column))
    }


def whole_numbers_of(schema):
    """Return the columns of numbers with a step that is a whole number, whatever their dtype is."""
    return [
        column.name
        for column in schema.columns
        if isinstance(column, Numeric) and column.step is not None and column.step % 1 == 0
    ]


def _has_clock(column):
    dtype = output_dtype(column.dtype)
    return getattr(dtype, "kind", None) == "M" and time_zone(dtype) is None


def example_of(schema):
    """Return a frame with every category of a complete schema: the types of a Parquet file of its rows."""
    schema, keys = split_keys(schema)
    sizes = [len(c.values) + bool(c.missing) if isinstance(c, Categorical | Boolean) else 1 for c in schema.columns]
    place = np.arange(max(sizes))
    columns = [
        restore(place % size if isinstance(column, Categorical | Boolean) else np.zeros(len(place)), column)
        for column, size in zip(schema.columns, sizes)
    ]
    return next(insert_keys([pd.concat(columns, axis=1, keys=list(schema))], keys))


def _escaped(frame):
    for at, name in enumerate(frame.columns):
        column = frame.iloc[:, at]
        if isinstance(column.dtype, pd.CategoricalDtype):
            column = column.astype(object)
        if pdt.is_object_dtype(column.dtype) or pdt.is_string_dtype(column.dtype):
            texts = column.astype(object)
            risky = texts.str.match(_FORMULA).eq(True).to_numpy(dtype=bool)
            if risky.any():
                frame[name] = texts.mask(risky, "'" + texts.astype(str))
    names = pd.Series(frame.columns, dtype=object)
    risky = names.astype(str).str.match(_FORMULA)
    return frame.set_axis(list(names.mask(risky, "'" + names.astype(str))), axis=1)
