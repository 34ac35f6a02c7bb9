"""Reading and writing tables on disk (CSV and Parquet), with one clear line for each thing that can be wrong."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import os
import re
import warnings
import zlib
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import InvalidInputError, PrivacyLeakWarning, SchemaError
from ..tabular import Boolean, Categorical, Datetime, Numeric
from ..tabular._columns import output_dtype
from ..tabular._restoring import restore
from ..utils.atomic import Draft
from .csv_values import (
    DATE,
    NUMBER,
    Notation,
    are_codes,
    as_kind,
    resolution_of,
    undeclared,
    with_dates,
    with_notation,
)
from .frames import PUBLIC_ASSUMPTIONS

__all__ = [
    "KINDS_FROM_VALUES",
    "check_apart",
    "check_input",
    "check_output",
    "check_writing",
    "date_formats_of",
    "declare_public",
    "example_of",
    "is_parquet",
    "read_table",
    "write_table",
]

_PARQUET = (".parquet", ".pq")
_OUTPUTS = (".csv", ".tsv", ".txt", ".gz", *_PARQUET)
_NO_TABLES = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".dta", ".sav", ".sas7bdat", ".pkl", ".zip")
_ARCHIVES = (".xz", ".bz2", ".zst", ".tar", ".tgz", ".tbz", ".txz", ".7z", ".rar", ".lz4", ".br")
# Numbers are read as Python reads them, in the last bit too, whether a column is read as numbers or as text first:
# newer releases of pandas do so by themselves.
_EXACT = {"float_precision": "round_trip"} if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1) else {}
# Key of `DataFrame.attrs` under which `read_table` names the columns whose kind it took from their values.
KINDS_FROM_VALUES = "kinds_from_values"
_NAMED = 20
# What spreadsheet programs take for the start of a formula (OWASP, "CSV Injection"), full-width forms among them.
_FORMULA = r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_CLOCK = "%Y-%m-%d %H:%M:%S"
_SEPARATORS = {"tab": "\t", "\\t": "\t"}


def read_table(
    path,
    *,
    missing_values=(),
    separator=None,
    decimal=".",
    thousands=None,
    date_formats=(),
    numeric_names=False,
    schema=None,
):
    """Read a CSV or Parquet file into a frame of nullable dtypes.

    Parameters
    ----------
    path : str or Path
        ``.parquet`` or ``.pq`` is read as Parquet, everything else as UTF-8 CSV with a header row.
    missing_values : sequence of str
        Texts that stand for a missing value, beside the empty field.
    separator : str, default=None
        Between the fields of a CSV file: one character, or "tab". None is a tab for ``.tsv`` and a comma else.
    decimal, thousands, date_formats : str, str, sequence of str
        How a CSV file writes numbers, and dates that are not in ISO 8601; see `Notation`.
    numeric_names : bool, default=False
        Whether numbers and dates in the first line of a CSV file are names. If not, they are refused: names are
        published, and where they are none, the first line is a row.
    schema : Schema, default=None
        Declares the kinds of its columns in a CSV file. Each value of them is read by itself; what is no value of the
        declared kind is missing. Datetimes are in one of `date_formats`, or else in ISO 8601, and are written in the
        first of `date_formats`. The kinds of all other columns are read from their values: numbers; truth values;
        datetimes, if all values are dates (or times) in one ISO 8601 format, or in one of `date_formats`; codes (digits
        alone, equally many in every row and with a zero first in one), which are text; and text.

    Returns
    -------
    DataFrame
        Every column can hold missing values, whether it does or not: its dtype does not show that. What was taken for
        public while reading is in its ``attrs``, from where it goes onto the privacy card; the columns whose kind was
        read from their values are in ``attrs["kinds_from_values"]``.

    Raises
    ------
    InvalidInputError
        The file is not there, is empty, has ragged rows, is not UTF-8, or has a column without a name, or a number for
        one; or all of it is one column that another separator would cut. An option is bad, or would do nothing. No
        value of a declared column is of its kind, or one is not and the schema allows no missing values there.

    Warns
    -----
    UserWarning
        Values of a declared column are not of its kind, and are missing. A column of no declared kind would be numeric
        but for one text, which may stand for a missing value; or all of it looks like numbers with separators or signs,
        or like dates in another format. For the data holder alone.
    """
    path = Path(path)
    options = {"missing_values": missing_values, "separator": separator, "numeric_names": numeric_names}
    check_input(path, **options, decimal=decimal, thousands=thousands, date_formats=date_formats)
    notation = Notation(decimal, thousands, date_formats)
    if is_parquet(path):
        try:
            return pd.read_parquet(path, dtype_backend="numpy_nullable")
        except (OSError, ValueError):
            raise InvalidInputError(f"{path}: cannot be read as Parquet") from None
    separator = _separator(path, separator)
    declared = {} if schema is None else {column.name: column for column in schema.columns}
    try:
        _check_rectangular(path, separator, numeric_names)
        options = {
            "sep": separator,
            "dtype_backend": "numpy_nullable",
            "keep_default_na": False,
            "na_values": ["", *missing_values],
            "encoding": "utf-8-sig",
            "skipinitialspace": separator == ",",
            **_EXACT,
        }
        plain, frame, formats = notation == Notation(), None, {}
        # declared numbers are read at once, where all values are numbers; what is declared as anything else, as text
        texts = [name for name, column in declared.items() if not isinstance(column, Numeric)]
        dtype = dict.fromkeys(texts, "string") if plain else "string"
        # low_memory=False: a column is of one kind, which does not depend on where in the file a row stands
        frame = pd.read_csv(path, dtype=dtype, low_memory=False, **options)
        frame = _with_declared(frame, declared, notation, lambda names: _as_text(path, names, options))
        frame = _without_marks(frame, declared, notation.numbers_of(missing_values))
        open_ = [name for name in frame.columns if name not in declared]
        if not plain:  # pandas would make a number of 01.02.2024, where thousands are marked
            frame, formats = with_notation(frame, open_, notation)
        integers = [name for name in open_ if pdt.is_integer_dtype(frame[name].dtype)]
        for n_rows in (1000, None):  # of codes, numbers would lose the zeros; most columns are none by their first rows
            if integers:
                written = _as_text(path, integers, options, n_rows)
                integers = [name for name in integers if are_codes(written[name].dropna(), n_rows is None)]
        if integers:
            frame[integers] = written[integers]
        frame, resolutions = with_dates(frame, declared, notation)
        resolutions |= {name: resolution_of(form) for name, form in formats.items()}
        if notation.dates:
            dates = [name for name in frame.columns if isinstance(declared.get(name), Datetime)]
            formats |= dict.fromkeys(dates, notation.dates[0])
        frame.attrs["resolutions"], frame.attrs["date_formats"] = resolutions, formats
        frame.attrs[KINDS_FROM_VALUES] = open_
        frame.attrs[PUBLIC_ASSUMPTIONS] = _assumptions(frame, open_, resolutions, formats)
        return frame
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path}: not UTF-8; save it as UTF-8 first") from None
    except pd.errors.EmptyDataError:
        raise InvalidInputError(f"{path}: the file is empty") from None
    except (pd.errors.ParserError, csv.Error, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path}: cannot be read as CSV ({type(error).__name__})") from None


def _as_text(path, names, options, n_rows=None):
    return pd.read_csv(path, usecols=list(names), dtype="string", nrows=n_rows, **options)


def _with_declared(frame, declared, notation, as_text):
    """Bring the declared columns to their kinds, value by value.

    Parameters
    ----------
    frame : DataFrame
        Declared columns of text, or of numbers that the reader found.
    declared : dict of name to column
    notation : Notation
    as_text : callable
        Reads columns once more, as they stand in the file.
    """
    names = [name for name in frame.columns if name in declared and not _are_numbers(frame[name])]
    again = [name for name in names if not pdt.is_string_dtype(frame[name].dtype)]
    written = frame[names].assign(**({name: as_text(again)[name] for name in again} if again else {}))
    columns, lost = {}, []
    for name in names:
        column = declared[name]
        columns[name], unread = as_kind(written[name], column, notation)
        if not unread.any():
            continue
        kind = type(column).__name__
        if not columns[name].notna().any():
            raise InvalidInputError(
                f"column {name!r} is {kind} in the schema, and none of its values can be read as such"
                + (
                    ": it holds no ISO 8601 date; say how dates are written by --dates"
                    if isinstance(column, Datetime)
                    else ": say how numbers are written by --decimal and --thousands"
                    if isinstance(column, Numeric)
                    else ""
                )
            )
        if column.missing:
            lost.append(repr(name))
        elif isinstance(column, Categorical) and column.complete:
            columns[name] = undeclared(columns[name], unread, column)
        else:
            raise InvalidInputError(
                f"column {name!r} is {kind} in the schema and must not be missing, but not all of its values can be "
                'read as such: set "missing" to true in the schema, and they are taken for missing values'
            )
    if lost:
        warnings.warn(
            f"values that cannot be read as the kind that the schema declares are taken for missing: {', '.join(lost)}",
            UserWarning,
            stacklevel=3,
        )
    return frame.assign(**columns) if columns else frame


def _without_marks(frame, declared, marks):
    """Make missing the declared numbers that stand for a missing value, however they are written.

    pandas compares numbers with fractions by value, whole ones and text as they are written: 7.0 would be missing or 7
    by what stands in the other rows.
    """
    names = [name for name in frame.columns if isinstance(declared.get(name), Numeric)] if marks else []
    found = {name: np.isin(frame[name].to_numpy(dtype=np.float64, na_value=np.nan), marks) for name in names}
    return frame.assign(**{name: frame[name].mask(marked) for name, marked in found.items() if marked.any()})


def _are_numbers(column):
    """Whether the reader of the file found finite numbers alone: not True, which may be a number, nor infinity."""
    if not pdt.is_numeric_dtype(column.dtype) or pdt.is_bool_dtype(column.dtype):
        return False
    return bool(np.isfinite(column.to_numpy(dtype=np.float64, na_value=0.0)).all())


def _assumptions(frame, names, resolutions, formats):
    """What was taken for public while reading, for the privacy card."""
    told = []
    if names:
        which = "the columns" if len(names) == frame.shape[1] else f"{len(names)} columns"
        if len(names) < frame.shape[1] and len(names) <= _NAMED:
            which = f"the columns {', '.join(map(repr, names))}"
        told.append(
            f"kinds (dtypes) of {which}, dates among them: read from the values of the CSV file, declared public by "
            "the caller"
        )
    for fact, found in (("resolution", resolutions), ("format", formats)):
        if found:
            listed = ", ".join(f"{name!r} {value}" for name, value in list(found.items())[:_NAMED])
            more = "" if len(found) <= _NAMED else f" and {len(found) - _NAMED} more"
            told.append(f"{fact} of dates: {listed}{more}")
    return told


def is_parquet(path):
    """Tell by its suffix whether a file is read as Parquet."""
    return Path(path).suffix.lower() in _PARQUET


def check_input(
    path, *, missing_values=(), separator=None, decimal=".", thousands=None, date_formats=(), numeric_names=False
):
    """Refuse a file that is not there or is no table, and options that would do nothing with it."""
    path = Path(path)
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file")
    if path.suffix.lower() in _NO_TABLES:
        raise InvalidInputError(f"{path}: only CSV and Parquet are read; save it as one of them")
    if path.suffix.lower() in _ARCHIVES:
        raise InvalidInputError(f"{path}: of compressed files, .gz alone is read; unpack it, or compress it with gzip")
    plain = Notation(decimal, thousands, date_formats) == Notation()
    if is_parquet(path) and (missing_values or separator is not None or numeric_names or not plain):
        raise InvalidInputError(
            f"{path}: texts that stand for a missing value, separators, headers, and how numbers and dates are written "
            "are of CSV files; a Parquet file has its own"
        )


def _separator(path, separator):
    if separator is None:
        return "\t" if ".tsv" in path.suffixes[-2:] else ","
    separator = _SEPARATORS.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        raise InvalidInputError('the separator must be one character, or "tab"')
    return separator


def _check_rectangular(path, separator, numeric_names=False):
    # pandas fills short rows with missing values and takes the first column for an index when rows are long
    opener = _open_text(path)
    with opener as file:
        rows = csv.reader(file, delimiter=separator, skipinitialspace=separator == ",")
        header = next(rows, None)
        if not header:
            raise InvalidInputError(f"{path}: the file is empty")
        found = [mark for mark in ",;\t|" if mark != separator and mark in header[0]]
        if len(header) == 1 and found:
            mark = "tab" if found[0] == "\t" else found[0]
            raise InvalidInputError(
                f"{path}: one column, whose header holds {found[0]!r}: if that is what separates the fields, give "
                f"--separator {mark!r}; else rename the column"
            )
        if "" in header:
            raise InvalidInputError(
                f"{path}: column {header.index('') + 1} has no name: if it is an index, which would tell rows apart, "
                "write the file without it; else name it"
            )
        duplicates = sorted(name for name, count in Counter(header).items() if count > 1)
        if duplicates:
            raise InvalidInputError(f"{path}: duplicate column names: {', '.join(map(repr, duplicates))}")
        values = [name for name in header if re.fullmatch(f"{NUMBER}|{DATE}.*", name.strip())]
        counted = len(header) > 2 and all(name == str(k) for k, name in enumerate(header))  # as pandas counts columns
        if values and not (numeric_names or counted):
            raise InvalidInputError(
                f"{path}: the name of column {header.index(values[0]) + 1} is a number or a date: if the first line is "
                "a row, put one of names above it, for names are published; if it does hold names, give --header"
            )
        width = len(header)
        for row in rows:
            if row and len(row) != width:
                raise InvalidInputError(
                    f"{path}: line {rows.line_num} has {len(row)} fields where the header has {width}"
                )
        if rows.line_num < 2:
            raise InvalidInputError(f"{path}: a header and no rows")


def _open_text(path):
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def check_apart(*paths):
    """Refuse two names of one file among those that a command reads and writes; None stands for no file."""
    paths = [path for path in paths if path is not None]
    for one, other in itertools.combinations(paths, 2):
        if os.path.realpath(one) == os.path.realpath(other):
            raise InvalidInputError(f"{other}: is read or written under two options: one would overwrite the other")


def check_output(path, *, table=False):
    """Refuse, before anything is charged, a file that could not be written in the end.

    Parameters
    ----------
    path : str or Path
    table : bool, default=False
        Whether rows are to be written there: its suffix must then be one of CSV or Parquet, or none.
    """
    if str(path) == "-":
        raise InvalidInputError("results are written to a file: give it a name other than -")
    path = Path(path)
    if table and path.suffix and path.suffix.lower() not in _OUTPUTS:
        raise InvalidInputError(f"{path}: rows are written as CSV or Parquet; got the suffix {path.suffix!r}")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InvalidInputError(f"{path}: the folder {folder} is not there")
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder")
    if is_parquet(path) and find_spec("pyarrow") is None:
        raise InvalidInputError(f"{path}: writing Parquet needs pyarrow (the extra skdpgen[parquet])")


def check_writing(path, *, separator=None, decimal=".", escape_formulas=False):
    """Refuse marks that no file, or not this one, is written with."""
    Notation(decimal)
    if is_parquet(path) and (separator is not None or decimal != "." or escape_formulas):
        raise InvalidInputError(f"{path}: separators, decimal marks and escaped formulas are of CSV files")
    _separator(Path(path), separator)


def write_table(frames, path, *, separator=None, decimal=".", date_formats=None, example=None, escape_formulas=False):
    """Write a table to a file, which is whole or not there.

    Parameters
    ----------
    frames : DataFrame or iterable of them
        Chunks are written as they come; none is kept.
    path : str, Path or Draft
        ``.parquet`` and ``.pq`` are Parquet, all else CSV: with tabs in ``.tsv``, compressed in ``.gz``.
    separator, decimal : str
        Of a CSV file, as for `read_table`; one that ends in .tsv has tabs.
    date_formats : dict of str to str, default=None
        Formats of strftime by column; others are written as ISO 8601.
    example : DataFrame, default=None
        See `write_parquet`.
    escape_formulas : bool, default=False
        Whether text in a CSV file that a spreadsheet would take for a formula gets a ' in front.

    Returns
    -------
    int
        How many rows were written.
    """
    frames = [frames] if isinstance(frames, pd.DataFrame) else frames
    draft = path if isinstance(path, Draft) else Draft(path)
    with draft as written:
        if is_parquet(draft.target):
            return write_parquet(frames, written, example)
        tabs = ".tsv" in draft.target.suffixes[-2:]
        return write_csv(
            frames,
            written,
            compressed=draft.target.suffix.lower() == ".gz",
            separator=_separator(draft.target, None if tabs else separator),
            decimal=decimal,
            date_formats=date_formats or {},
            escape_formulas=escape_formulas,
        )


def write_csv(frames, path, *, compressed, separator, decimal, date_formats, escape_formulas):
    """Write chunks of rows as one CSV file; returns how many rows.

    Parameters
    ----------
    frames : iterable of DataFrame
    path : str or Path
    compressed : bool
        By gzip.
    separator, decimal : str
    date_formats : dict of str to str
        Formats of strftime by column. Without one pandas chooses by the values of each chunk.
    escape_formulas : bool
        Whether text that a spreadsheet would take for a formula gets a ' in front.
    """
    n_rows = 0
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(path, "wb"))
        if compressed:  # without name and time, which would be those of a draft
            file = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0))
        text = stack.enter_context(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        for frame in frames:
            frame = frame.copy(deep=False)
            for name in frame.columns.intersection(list(date_formats)):
                frame[name] = frame[name].dt.strftime(date_formats[name])
            if escape_formulas:
                frame = _escaped(frame)
            frame.to_csv(text, index=False, header=not n_rows, sep=separator, decimal=decimal)
            n_rows += len(frame)
    return n_rows


def write_parquet(frames, path, example=None):
    """Write chunks of rows as one Parquet file, a row group each; returns how many rows.

    Parameters
    ----------
    frames : iterable of DataFrame
    path : str or Path
    example : DataFrame, default=None
        Its columns have every kind of value that those of the chunks may have, by position: a column of objects that is
        missing throughout the first chunk is of its type. None takes the types of the first chunk.
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
    """Formats of strftime of the columns of dates without a time zone, by their resolution, a dict.

    pandas leaves out times that are all midnight, and fractions that are all zero: which chunk has none is chance.
    """
    formats = {"D": "%Y-%m-%d", "us": f"{_CLOCK}.%f", "ms": f"{_CLOCK}.%f"}
    return {
        column.name: formats.get(column.resolution, _CLOCK)
        for column in schema.columns
        if isinstance(column, Datetime) and isinstance(output_dtype(column.dtype), np.dtype)
    }


def example_of(schema):
    """A frame with every category of a complete schema, for `write_parquet`."""
    sizes = [len(c.values) + bool(c.missing) if isinstance(c, Categorical | Boolean) else 1 for c in schema.columns]
    place = np.arange(max(sizes))
    columns = [
        restore(place % size if isinstance(column, Categorical | Boolean) else np.zeros(len(place)), column)
        for column, size in zip(schema.columns, sizes)
    ]
    return pd.concat(columns, axis=1, keys=list(schema))


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


def declare_public(schema, frame, names):
    """Complete columns of a schema from the values of a frame: for facts that the caller knows to be public.

    Parameters
    ----------
    schema : Schema
    frame : DataFrame
    names : sequence of str
        Columns whose smallest and largest value, or whose distinct values, are taken from `frame` without noise.

    Returns
    -------
    Schema

    Raises
    ------
    SchemaError
        A column is not there, or holds no two values to make bounds of.

    Warns
    -----
    PrivacyLeakWarning
        Whoever sees the schema, or a model fitted with it, sees those values.
    """
    if absent := [name for name in names if name not in schema]:
        raise SchemaError(f"not columns of the table: {', '.join(map(repr, absent))}")
    columns = [_complete(schema[name], frame[name].dropna()) for name in names if not schema[name].complete]
    if columns:
        warnings.warn(
            "the bounds or categories of "
            + ", ".join(repr(column.name) for column in columns)
            + " are those seen in the file, without noise: whatever is made with this schema shows them, "
            "so keep them only if they are public knowledge, and edit them otherwise",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    return schema.replace(*columns)


def _complete(column, values):
    if isinstance(column, Categorical):
        if values.empty:
            raise SchemaError(f"column {column.name!r}: holds no value to take for a category")
        return replace(column, categories=tuple(sorted(values.unique().tolist())))
    if values.nunique() < 2:
        raise SchemaError(f"column {column.name!r}: one value makes no bounds; write them into the schema by hand")
    low, high = values.min(), values.max()
    if isinstance(column, Datetime):
        low, high = low.isoformat(), high.isoformat()
    return replace(column, bounds=(low, high))
