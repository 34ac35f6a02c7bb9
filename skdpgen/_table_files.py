"""Reading and writing tables on disk (CSV and Parquet), with one clear line for each thing that can be wrong."""

from __future__ import annotations

import csv
import itertools
import os
import re
import warnings
import zlib
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from ._csv_values import (
    DATE,
    NUMBER,
    Notation,
    are_codes,
    as_declared,
    is_text,
    may_be_codes,
    resolution_of,
    with_dates,
    with_notation,
)
from ._table_writing import write_csv, write_parquet
from .exceptions import InvalidInputError, PrivacyLeakWarning, SchemaError
from .synthesizers._frames import PUBLIC_ASSUMPTIONS
from .tabular import Categorical, Datetime
from .utils.atomic import Draft

__all__ = [
    "check_apart",
    "check_input",
    "check_output",
    "check_writing",
    "declare_public",
    "is_parquet",
    "read_table",
    "write_table",
]

_PARQUET = (".parquet", ".pq")
_OUTPUTS = (".csv", ".tsv", ".txt", ".gz", *_PARQUET)
_NO_TABLES = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".dta", ".sav", ".sas7bdat", ".pkl", ".zip")
_DTYPES_OF_CSV = (
    "kinds (dtypes) of the columns, dates among them: told from the values of the CSV file, and taken as public"
)
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
        Its columns of text are left as text: it says what they are. Of the others, those whose values are all dates
        (or times) in one ISO 8601 format, or one of `date_formats`, become datetimes, and those of digits alone,
        equally many in every row and with a zero first in one, are codes, and text.

    Returns
    -------
    DataFrame
        Every column can hold missing values, whether it does or not: that is not to be told from its dtype. What was
        taken for public while reading is in its ``attrs``, from where it goes onto the privacy card.

    Raises
    ------
    InvalidInputError
        The file is not there, is empty, has ragged rows, is not UTF-8, or has a column without a name, or a number for
        one; or all of it is one column that another separator would cut. Or an option is bad, or would do nothing.

    Warns
    -----
    UserWarning
        A column would be numeric but for one text, which may stand for a missing value; or all of it looks like numbers
        with separators or signs, or like dates in another format. For the data holder alone.
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
        }
        texts = [name for name, column in declared.items() if is_text(column)]
        formats = {}
        if notation == Notation():
            frame = pd.read_csv(path, dtype=dict.fromkeys(texts, "string"), **options)
        else:  # pandas would make a number of 01.02.2024, where thousands are marked
            frame, formats = with_notation(pd.read_csv(path, dtype="string", **options), declared, texts, notation)
        for name in frame.columns.intersection(texts):
            frame[name] = as_declared(frame[name], declared[name].categories or ())
        integers = [
            name
            for name in frame.columns
            if may_be_codes(declared.get(name)) and pd.api.types.is_integer_dtype(frame[name].dtype)
        ]
        for n_rows in (1000, None):  # of codes, numbers would lose the zeros; most columns are none by their first rows
            if integers:
                written = pd.read_csv(path, usecols=integers, dtype="string", nrows=n_rows, **options)
                integers = [name for name in integers if are_codes(written[name].dropna(), n_rows is None)]
        if integers:
            frame[integers] = written[integers]
        frame, resolutions = with_dates(frame, declared, notation)
        frame.attrs["resolutions"] = resolutions | {name: resolution_of(form) for name, form in formats.items()}
        frame.attrs["date_formats"] = formats
        frame.attrs[PUBLIC_ASSUMPTIONS] = [_DTYPES_OF_CSV]
        return frame
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path}: not UTF-8; save it as UTF-8 first") from None
    except pd.errors.EmptyDataError:
        raise InvalidInputError(f"{path}: the file is empty") from None
    except (pd.errors.ParserError, csv.Error, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path}: cannot be read as CSV ({type(error).__name__})") from None


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
        import gzip

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
