"""Reading and writing tables on disk (CSV and Parquet), with one clear line for each thing that can be wrong."""

from __future__ import annotations

import csv
import itertools
import os
import re
import warnings
import zlib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from .exceptions import InvalidInputError, PrivacyLeakWarning, SchemaError
from .synthesizers._frames import PUBLIC_ASSUMPTIONS
from .tabular import Categorical, Datetime
from .tabular.columns import output_dtype
from .utils.categories import family, number_text

__all__ = ["check_apart", "check_input", "check_output", "declare_public", "is_parquet", "read_table", "write_table"]

_PARQUET = (".parquet", ".pq")
_OUTPUTS = (".csv", ".tsv", ".txt", ".gz", *_PARQUET)
_NO_TABLES = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".dta", ".sav", ".sas7bdat", ".pkl", ".zip")
_DTYPES_OF_CSV = (
    "kinds (dtypes) of the columns, dates among them: told from the values of the CSV file, and taken as public"
)
# One format for a whole column, and the resolution that it has.
_DATE = r"\d{4}-\d{2}-\d{2}"
_ISO_FORMATS = {
    "D": (_DATE,),
    "min": (_DATE + r"T\d{2}:\d{2}", _DATE + r" \d{2}:\d{2}"),
    "s": (_DATE + r"T\d{2}:\d{2}:\d{2}", _DATE + r" \d{2}:\d{2}:\d{2}"),
    "us": (_DATE + r"T\d{2}:\d{2}:\d{2}\.\d{1,6}", _DATE + r" \d{2}:\d{2}:\d{2}\.\d{1,6}"),
}
_SEPARATORS = {"tab": "\t", "\\t": "\t"}
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
# Numbers with signs or separators, and dates in other formats: read as text, of which little can be learned.
_FORMATTED = r"[^\w\s]?\s?[+-]?\d{1,3}(?:[.,' \u00a0]\d{3})*(?:[.,]\d+)?\s?[^\w\s]?"
_OTHER_DATE = r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(?:[T ].*)?|\d{1,2}:\d{2}(?::\d{2})?"


def read_table(path, *, missing_values=(), separator=None, numeric_names=False, schema=None):
    """Read a CSV or Parquet file into a frame of nullable dtypes.

    Parameters
    ----------
    path : str or Path
        ``.parquet`` or ``.pq`` is read as Parquet, everything else as UTF-8 CSV with a header row.
    missing_values : sequence of str
        Texts that stand for a missing value, beside the empty field.
    separator : str, default=None
        Between the fields of a CSV file: one character, or "tab". None is a tab for ``.tsv`` and a comma else.
    numeric_names : bool, default=False
        Whether numbers and dates in the first line of a CSV file are names. If not, they are refused: names are
        published, and where they are none, the first line is a row.
    schema : Schema, default=None
        Its columns of text are left as text: it says what they are. Of the others, those whose values are all dates
        (or times) in one ISO 8601 format become datetimes, and those of digits alone, equally many in every row and
        with a zero first in one, are codes, and text.

    Returns
    -------
    DataFrame
        Every column can hold missing values, whether it does or not: that is not to be told from its dtype. What was
        taken for public while reading is in its ``attrs``, from where it goes onto the privacy card.

    Raises
    ------
    InvalidInputError
        The file is not there, is empty, has ragged rows, is not UTF-8, or has a column without a name, or a number for
        one; or all of it is one column that another separator would cut.

    Warns
    -----
    UserWarning
        A column would be numeric but for one text, which may stand for a missing value; or all of it looks like numbers
        with separators or signs, or like dates in another format. For the data holder alone.
    """
    path = Path(path)
    check_input(path, missing_values=missing_values, separator=separator, numeric_names=numeric_names)
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
        texts = [name for name, column in declared.items() if _is_text(column)]
        frame = pd.read_csv(path, dtype=dict.fromkeys(texts, "string"), **options)
        for name in frame.columns.intersection(texts):
            frame[name] = _as_declared(frame[name], declared[name].categories or ())
        integers = [
            name
            for name in frame.columns
            if _may_be_codes(declared.get(name)) and pd.api.types.is_integer_dtype(frame[name].dtype)
        ]
        for n_rows in (1000, None):  # of codes, numbers would lose the zeros; most columns are none by their first rows
            if integers:
                written = pd.read_csv(path, usecols=integers, dtype="string", nrows=n_rows, **options)
                integers = [name for name in integers if _are_codes(written[name].dropna(), n_rows is None)]
        if integers:
            frame[integers] = written[integers]
        frame = _with_dates(frame, declared)
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


def check_input(path, *, missing_values=(), separator=None, numeric_names=False):
    """Refuse a file that is not there or is no table, and options that would do nothing with it."""
    path = Path(path)
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file")
    if path.suffix.lower() in _NO_TABLES:
        raise InvalidInputError(f"{path}: only CSV and Parquet are read; save it as one of them")
    if is_parquet(path) and (missing_values or separator is not None or numeric_names):
        raise InvalidInputError(
            f"{path}: texts that stand for a missing value, separators, and headers are of CSV files; a Parquet file "
            "has its own"
        )


def _separator(path, separator):
    if separator is None:
        return "\t" if ".tsv" in path.suffixes[-2:] else ","
    separator = _SEPARATORS.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        raise InvalidInputError('the separator must be one character, or "tab"')
    return separator


def _is_text(column):
    """Whether the values of a declared column are text, whatever they look like."""
    if not isinstance(column, Categorical):
        return False
    if column.categories:
        return family(column.categories[0]) == "text"
    return column.dtype == "str" or (
        column.dtype is not None and isinstance(output_dtype(column.dtype), pd.StringDtype)
    )


def _as_declared(written, categories):
    """Bring what is not among the declared categories to one that is the same number, or truth value.

    A missing value makes 1.0 of 1 in many programs; others write TRUE.
    """
    same = {}
    for text in written.dropna().unique():
        if text in categories:
            continue
        plain = text.strip()
        if re.fullmatch(_NUMBER, plain):
            same[text] = number_text(int(plain) if re.fullmatch(r"[+-]?\d+", plain) else float(plain), categories)
        elif plain.lower() in ("true", "false"):
            same[text] = plain.capitalize() if plain.capitalize() in categories else plain.lower()
        else:
            same[text] = plain
    same = {text: other for text, other in same.items() if other in categories}
    return written.replace(same) if same else written


def _may_be_codes(column):
    """Whether digits of a column may be codes: nothing is declared of it, or that it is categorical and no more."""
    return column is None or (isinstance(column, Categorical) and column.categories is None)


def _are_codes(written, all_rows=True):
    digits = written.str.fullmatch(r"\d{2,}").all() and written.str.len().nunique() <= 1
    return bool(digits and (not all_rows or written.str.startswith("0").any()))


def _with_dates(frame, declared):
    """Make datetimes of text columns that hold dates alone; say which columns were perhaps meant for something else."""
    resolutions, almost, formatted = {}, [], []
    for name in frame.columns:
        if name in declared or not pd.api.types.is_string_dtype(frame[name].dtype):
            continue
        values = frame[name].dropna()
        if values.empty:
            continue
        for resolution, formats in _ISO_FORMATS.items():
            if any(
                re.fullmatch(pattern, values.iloc[0]) and values.str.fullmatch(pattern).all() for pattern in formats
            ):
                moments = pd.to_datetime(frame[name].astype(object), errors="coerce", format="ISO8601")
                if moments.notna().sum() == len(values):
                    frame[name] = moments.astype("datetime64[us]")
                    resolutions[name] = resolution
        if name not in resolutions:
            numbers = pd.to_numeric(values, errors="coerce").isna()
            if not numbers.all() and values[numbers].nunique() == 1:
                almost.append(repr(name))
            elif numbers.any() and any(values.str.fullmatch(form).all() for form in (_FORMATTED, _OTHER_DATE)):
                formatted.append(repr(name))
    if almost:
        warnings.warn(
            f"taken for text, though all values but a text that is no number are numbers: {', '.join(almost)}. If that "
            "text stands for a missing value, give it as --missing TEXT",
            UserWarning,
            stacklevel=3,
        )
    if formatted:
        warnings.warn(
            f"taken for text, of which next to nothing can be learned: {', '.join(formatted)}. All values look like "
            "numbers with signs or separators, or like dates and times in another format: write them as 1234.5, "
            "2024-01-31 or 2024-01-31T12:00 first",
            UserWarning,
            stacklevel=3,
        )
    frame.attrs["resolutions"] = resolutions
    return frame


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
        duplicates = sorted({name for name in header if header.count(name) > 1})
        if duplicates:
            raise InvalidInputError(f"{path}: duplicate column names: {', '.join(map(repr, duplicates))}")
        values = [name for name in header if re.fullmatch(f"{_NUMBER}|{_DATE}.*", name.strip())]
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


def write_table(frame, path):
    """Write `frame` to a CSV file (with tabs where `path` ends in .tsv), or to Parquet: .parquet or .pq."""
    path = Path(path)
    if is_parquet(path):
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, sep=_separator(path, None))


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
