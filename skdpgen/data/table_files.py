"""Reading and writing tables on disk (CSV and Parquet), with a one-line message for each error."""

from __future__ import annotations

import codecs
import contextlib
import csv
import functools
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
from ..tabular import Boolean, Categorical, Datetime, Identifier, Numeric
from ..tabular._columns import output_dtype
from ..tabular._formats import time_zone
from ..tabular._frames import restore
from ..tabular._identifiers import insert_keys, split_keys
from ..utils.atomic import Draft
from ..utils.printing import listed
from .csv_values import (
    DATE,
    ISO_FORMATS,
    NUMBER,
    Notation,
    are_codes,
    as_kind,
    resolution_of,
    undeclared,
    with_dates,
    with_notation,
)
from .sources import PARQUET, PUBLIC_ASSUMPTIONS, arrow_dtype, is_parquet

__all__ = [
    "KINDS_FROM_VALUES",
    "check_apart",
    "check_input",
    "check_output",
    "check_writing",
    "column_names",
    "date_formats_of",
    "declare_public",
    "example_of",
    "is_parquet",
    "is_utf8",
    "read_table",
    "write_table",
]

_OUTPUTS = (".csv", ".tsv", ".txt", ".gz", *PARQUET)
_NO_TABLES = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".dta", ".sav", ".sas7bdat", ".pkl", ".zip")
_ARCHIVES = (".xz", ".bz2", ".zst", ".tar", ".tgz", ".tbz", ".txz", ".7z", ".rar", ".lz4", ".br")
# Numbers are read exactly as Python reads them, whether a column is read as numbers or as text first. pandas does so by
# default from 3.1.
_EXACT = {"float_precision": "round_trip"} if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1) else {}
# Key of `DataFrame.attrs` for the columns whose kind `read_table` took from their values.
KINDS_FROM_VALUES = "kinds_from_values"
# Most columns that a text for the privacy card names.
_NAMED = 20
# First characters that spreadsheet programs take for a formula (OWASP, "CSV Injection"), with full-width forms.
_FORMULA = r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_CLOCK = "%Y-%m-%d %H:%M:%S"
# Resolutions of times, the finest first.
_FINEST = ("us", "ms", "s", "min", "h")
# Lines that show whether the lines above them are a title.
_PEEKED = 20
_MARKS = ",;\t|"
_SEPARATORS = {"tab": "\t", "\\t": "\t"}


def read_table(
    path,
    *,
    missing_values=(),
    separator=None,
    decimal=".",
    thousands=None,
    date_formats=(),
    signs=(),
    numeric_names=False,
    encoding=None,
    skip_lines=0,
    schema=None,
    left_out=(),
):
    """Read a CSV or Parquet file into a frame of nullable dtypes.

    Parameters
    ----------
    path : str or Path
        ``.parquet`` and ``.pq`` are read as Parquet, everything else as CSV with a header row.
    missing_values : sequence of str
        Texts that stand for a missing value, in addition to the empty field.
    separator : str, default=None
        Separator of fields: one character, or "tab". None is a tab for ``.tsv``, else a comma.
    decimal, thousands, date_formats, signs : str, str, sequence of str, sequence of str
        Notation of numbers, and of dates that are not in ISO 8601; see `Notation`.
    encoding : str, default=None
        Name of the encoding of a CSV file, as Python knows it; None is UTF-8, with or without a byte order mark.
    skip_lines : int, default=0
        Number of lines above the header of a CSV file, such as a title.
    numeric_names : bool, default=False
        Whether numbers and dates in the first line of a CSV file are column names. False refuses them: names are
        published, and such a line may be a row.
    schema : Schema, default=None
        Kinds of the columns of a CSV file; see `_read_csv`.
    left_out : sequence of str, default=()
        Columns that are not read.

    Returns
    -------
    DataFrame
        Every column can hold missing values, so that its dtype does not show whether it does. ``attrs`` has the facts
        taken for public, for the privacy card, and in ``kinds_from_values`` the columns with kinds read from values.

    Raises
    ------
    InvalidInputError
        The file is not a table, an option is wrong or has no effect, or no value of a declared column is of its kind.

    Warns
    -----
    UserWarning
        Some values are not of the declared kind, or a text column looks like numbers or dates. These warnings are
        computed from private rows without protection; do not publish them.
    """
    path = Path(path)
    options = {"missing_values": missing_values, "separator": separator, "numeric_names": numeric_names}
    options |= {"encoding": encoding, "skip_lines": skip_lines, "signs": signs}
    check_input(path, **options, decimal=decimal, thousands=thousands, date_formats=date_formats)
    if is_parquet(path):
        try:
            return _with_arrow_types(pd.read_parquet(path, dtype_backend="numpy_nullable"), path).drop(
                columns=list(left_out)
            )
        except (OSError, ValueError):
            raise InvalidInputError(f"{path}: cannot be read as Parquet") from None
    notation = Notation(decimal, thousands, date_formats, signs)
    declared = {} if schema is None else {column.name: column for column in schema.columns}
    opened = functools.partial(_open_text, path, encoding, skip_lines)
    try:
        _check_rectangular(path, opened, separator, numeric_names, skip_lines)
        return _read_csv(opened, _separator(path, separator), missing_values, notation, declared, left_out)
    except UnicodeError:
        raise _wrong_encoding(path, encoding) from None
    except pd.errors.EmptyDataError:
        raise InvalidInputError(f"{path}: the file is empty") from None
    except (pd.errors.ParserError, csv.Error, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path}: cannot be read as CSV ({type(error).__name__})") from None


def _with_arrow_types(frame, path):
    """Give columns that pandas reads as objects, or in another unit, the type that a Parquet file declares."""
    import pyarrow.parquet as pq

    schema = pq.ParquetFile(path).schema_arrow
    kinds = {field.name: arrow_dtype(field.type) for field in schema if field.name in frame.columns}
    return frame.astype({name: dtype for name, dtype in kinds.items() if dtype is not None})


def _read_csv(opened, separator, missing_values, notation, declared, left_out):
    """Read a CSV file whose fields are known to be rectangular.

    Each value of a declared column is read separately; a value that is not of the declared kind is missing. Datetimes
    are in the format of their column, or one of those of the notation, or in ISO 8601. The kinds of
    all other columns are read from their values: numbers, which are whole numbers if all are written as 5 or 5.0; truth
    values; datetimes, if all values are dates (or times) in one ISO 8601 format, or in one of the formats of the
    notation; codes (only digits, the same number of them in every row, and a leading zero in one row), which are text;
    and text. `opened` opens the file at its header.
    """
    options = {
        "sep": separator,
        "dtype_backend": "numpy_nullable",
        "keep_default_na": False,
        "na_values": ["", *missing_values],
        "skipinitialspace": separator == ",",
        **_EXACT,
    }
    as_text = functools.partial(_as_text, opened, options)
    plain, formats = notation == Notation(), {}
    # declared numbers are read at once if all values are numbers; columns of other declared kinds are read as text
    texts = [name for name, column in declared.items() if not isinstance(column, Numeric)]
    dtype = dict.fromkeys(texts, "string") if plain else "string"
    # low_memory=False: a column has one kind, which does not depend on the position of a row in the file
    with opened() as file:
        frame = pd.read_csv(file, dtype=dtype, low_memory=False, **options).drop(columns=list(left_out))
    frame = _with_declared(frame, declared, notation, as_text)
    frame = _without_marks(frame, declared, notation.numbers_of(missing_values))
    undeclared_names = [name for name in frame.columns if name not in declared]
    if not plain:  # pandas would read 01.02.2024 as a number if thousands are marked
        frame, formats = with_notation(frame, undeclared_names, notation)
    frame = _with_codes(frame, undeclared_names, as_text)
    frame = _with_whole_numbers(frame, undeclared_names, as_text, notation)
    frame, resolutions, iso_formats = with_dates(frame, declared, notation)
    resolutions |= {name: resolution_of(form) for name, form in formats.items()}
    formats |= iso_formats
    formats |= _formats_of_declared([declared[name] for name in frame.columns if name in declared], notation)
    frame.attrs["resolutions"], frame.attrs["date_formats"] = resolutions, formats
    frame.attrs[KINDS_FROM_VALUES] = undeclared_names
    frame.attrs[PUBLIC_ASSUMPTIONS] = _assumptions(frame, undeclared_names, resolutions, formats)
    return frame


def _formats_of_declared(columns, notation):
    """Formats of the columns of dates among declared ones, from what is declared alone: a dict by name.

    A schema that gives the format of one column, other than one of ISO 8601, gives those of all. Else a column of days
    has the first format of days, or the first one at all; and a column of times has the first format of the finest
    times that it has, or ISO 8601.
    """
    dates = [column for column in columns if isinstance(column, Datetime)]
    given = {column.name: column.format for column in dates if column.format}
    if not ISO_FORMATS.issuperset(given.values()):
        return given
    first = {}
    for form in notation.dates:
        first.setdefault(resolution_of(form), form)
    chosen = {}
    for column in dates:
        if column.name in given:
            continue
        usable = ("D", *first) if column.resolution == "D" else _FINEST[_FINEST.index(column.resolution) :]
        if found := [first[step] for step in usable if step in first]:
            chosen[column.name] = found[0]
    return given | chosen


def _as_text(opened, options, names, n_rows=None):
    with opened() as file:
        return pd.read_csv(file, usecols=list(names), dtype="string", nrows=n_rows, **options)


def _with_codes(frame, names, as_text):
    """Replace integers by their text if they are codes: as numbers they would lose leading zeros."""
    codes = [name for name in names if pdt.is_integer_dtype(frame[name].dtype)]
    for n_rows in (1000, None):  # the first rows rule out most columns
        if codes:
            written = as_text(codes, n_rows)
            codes = [name for name in codes if are_codes(written[name].dropna(), n_rows is None)]
    if codes:
        frame[codes] = written[codes]
    return frame


def _with_whole_numbers(frame, names, as_text, notation):
    """Convert numbers that are all written as 5 or 5.0, as programs write whole numbers beside a missing value."""
    whole = [name for name in names if pdt.is_float_dtype(frame[name].dtype) and _are_whole(frame[name])]
    for n_rows in (1000, None):
        if whole:
            written = as_text(whole, n_rows)
            texts = {name: notation.to_plain(written[name].dropna().str.strip()) for name in whole}
            whole = [name for name in whole if texts[name].str.fullmatch(r"[+-]?\d+(?:\.0)?").all()]
    return frame.assign(**{name: frame[name].astype("Int64") for name in whole}) if whole else frame


def _are_whole(column):
    values = column.dropna().to_numpy(dtype=np.float64)  # floats have all whole numbers below this limit
    return bool(len(values) and np.all((values == np.rint(values)) & (np.abs(values) < 2**53)))


def _with_declared(frame, declared, notation, as_text):
    """Convert the declared columns to their kinds, value by value; `as_text` reads columns again as text."""
    read = [name for name in frame.columns if name in declared and not isinstance(declared[name], Identifier)]
    names = [name for name in read if not _are_numbers(frame[name])]
    again = [name for name in names if not pdt.is_string_dtype(frame[name].dtype)]
    written = frame[names].assign(**({name: as_text(again)[name] for name in again} if again else {}))
    columns, lost = {}, []
    for name in names:
        column = declared[name]
        columns[name], unread = as_kind(written[name], column, notation)
        if not unread.any():
            continue
        if not columns[name].notna().any():
            _refuse_kind(column)
        if column.missing:
            lost.append(repr(name))
        elif isinstance(column, Categorical) and column.complete:
            columns[name] = undeclared(columns[name], unread, column)
        else:
            raise InvalidInputError(
                f"column {name!r} is {type(column).__name__} in the schema and must not be missing, but not all of its "
                'values can be read as such: set "missing" to true in the schema to make them missing values'
            )
    if lost:
        warnings.warn(
            f"values that cannot be read as the kind that the schema declares are taken for missing: {', '.join(lost)}",
            UserWarning,
            stacklevel=4,
        )
    return frame.assign(**columns) if columns else frame


def _refuse_kind(column):
    hint = ""
    if isinstance(column, Datetime):
        hint = ": it has no ISO 8601 date; give the format of its dates by --dates"
    elif isinstance(column, Numeric):
        hint = ": give the notation of its numbers by --decimal, --thousands and --sign"
    elif isinstance(column, Boolean):
        hint = ". Truth values are true, yes, t, y, 1 and false, no, f, n, 0: declare other words as categories"
    kind = type(column).__name__
    raise InvalidInputError(
        f"column {column.name!r} is {kind} in the schema, and none of its values can be read as such{hint}"
    )


def _without_marks(frame, declared, marks):
    """Make declared numbers missing that stand for a missing value, however they are written.

    pandas compares fractions by value, but integers and text as they are written. Without this step, the other rows
    would decide whether 7.0 is a missing value.
    """
    names = [name for name in frame.columns if isinstance(declared.get(name), Numeric)] if marks else []
    found = {name: np.isin(frame[name].to_numpy(dtype=np.float64, na_value=np.nan), marks) for name in names}
    return frame.assign(**{name: frame[name].mask(marked) for name, marked in found.items() if marked.any()})


def _are_numbers(column):
    """Whether the reader found only finite numbers: not truth values, and not infinity."""
    if not pdt.is_numeric_dtype(column.dtype) or pdt.is_bool_dtype(column.dtype):
        return False
    return bool(np.isfinite(column.to_numpy(dtype=np.float64, na_value=0.0)).all())


def _assumptions(frame, names, resolutions, formats):
    """Facts that are taken for public while a file is read, for the privacy card."""
    facts = []
    if names:
        which = "the columns" if len(names) == frame.shape[1] else f"{len(names)} columns"
        if len(names) < frame.shape[1] and len(names) <= _NAMED:
            which = f"the columns {', '.join(map(repr, names))}"
        facts.append(
            f"kinds (dtypes) of {which}, dates among them: read from the values of the CSV file, declared public by "
            "the caller"
        )
    for fact, found in (("resolution", resolutions), ("format", formats)):
        if found:
            listed = ", ".join(f"{name!r} {value}" for name, value in list(found.items())[:_NAMED])
            more = "" if len(found) <= _NAMED else f" and {len(found) - _NAMED} more"
            facts.append(f"{fact} of dates: {listed}{more}")
    return facts


def column_names(path, separator=None, encoding=None, skip_lines=0):
    """Return the names of the columns of a CSV or Parquet file, a list; no row is read."""
    path = Path(path)
    if is_parquet(path):
        try:
            import pyarrow.parquet as pq

            return list(pq.ParquetFile(path).schema_arrow.empty_table().to_pandas().columns)
        except ImportError:
            raise InvalidInputError("reading Parquet files needs pyarrow: pip install pyarrow") from None
        except (OSError, ValueError):
            raise InvalidInputError(f"{path}: cannot be read as Parquet") from None
    separator = _separator(path, separator)
    try:
        with _open_text(path, encoding, skip_lines) as file:
            rows = csv.reader(file, delimiter=separator, skipinitialspace=separator == ",")
            return next(filter(None, rows), [])
    except UnicodeError:
        raise _wrong_encoding(path, encoding) from None
    except (csv.Error, OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path}: cannot be read as CSV ({type(error).__name__})") from None


def check_input(
    path,
    *,
    missing_values=(),
    separator=None,
    decimal=".",
    thousands=None,
    date_formats=(),
    signs=(),
    numeric_names=False,
    encoding=None,
    skip_lines=0,
):
    """Refuse a file that does not exist or is not a table, and options that are wrong or have no effect on it."""
    path = Path(path)
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder; give the name of a file")
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file")
    if path.suffix.lower() in _NO_TABLES:
        raise InvalidInputError(f"{path}: only CSV and Parquet are read; save it as one of them")
    if path.suffix.lower() in _ARCHIVES:
        raise InvalidInputError(f"{path}: of compressed files, .gz alone is read; unpack it, or compress it with gzip")
    given = Notation(decimal, thousands, date_formats, signs) != Notation()
    given |= bool(missing_values or numeric_names or skip_lines or (separator, encoding) != (None, None))
    if is_parquet(path) and given:
        raise InvalidInputError(
            f"{path}: options for missing values, separators, encodings, headers, and the notation of numbers and "
            "dates are of CSV files; drop them for a Parquet file"
        )
    if skip_lines < 0:
        raise InvalidInputError(f"--skip-lines must be 0 or more; got {skip_lines}")
    _codec(encoding)


def is_utf8(path):
    """Whether all bytes of a CSV file are UTF-8."""
    try:
        with _open_text(Path(path)) as file:
            while file.read(2**20):
                pass
    except UnicodeError:
        return False
    return True


def _separator(path, separator):
    if separator is None:
        return "\t" if ".tsv" in path.suffixes[-2:] else ","
    separator = _SEPARATORS.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        raise InvalidInputError(f'the separator must be one character, or "tab"; got {separator!r}')
    return separator


def _check_rectangular(path, opened, given, numeric_names, skipped):
    # pandas fills short rows with missing values, and uses the first column as the index if rows are too long
    separator = _separator(path, given)
    with opened() as file:
        rows = csv.reader(file, delimiter=separator, skipinitialspace=separator == ",")
        header = next(filter(None, rows), None)
        if header is None:
            raise InvalidInputError(f"{path}: the file is empty" + (f" below line {skipped}" if skipped else ""))
        start, width = rows.line_num, len(header)
        others = [mark for mark in _MARKS if mark != separator and given is None]
        if width == 1 and (hint := _title_hint(opened, skipped, others or [separator], separator)):
            raise InvalidInputError(
                f"{path}: one column{hint}" + (f"; else give --separator {separator!r}" if given is None else "")
            )
        _check_header(path, header, separator, numeric_names, skipped + start)
        for row in rows:
            if row and len(row) != width:
                hint = _title_hint(opened, skipped, [separator, *others], separator) if len(row) > width else ""
                line = skipped + rows.line_num
                raise InvalidInputError(f"{path}: line {line} has {len(row)} fields where the header has {width}{hint}")
        if rows.line_num == start:
            raise InvalidInputError(f"{path}: a header and no rows")


def _title_hint(opened, skipped, marks, usual):
    """What to do if the first lines are a title: those below have more fields, and the same number each; else "".

    Parameters
    ----------
    opened : callable
    skipped : int
        Number of lines that are skipped already.
    marks : sequence of str
        Separators that may divide the fields.
    usual : str
        The separator that is used without another option.
    """
    with opened() as file:
        lines = itertools.islice(((n, text) for n, text in enumerate(file, skipped + 1) if text.strip()), _PEEKED)
        numbers, texts = zip(*lines)
    found = {}
    for mark in marks:
        counts = [text.count(mark) for text in texts]
        first = next((k for k in range(len(counts)) if len(set(counts[k:])) == 1), 0)
        if 0 < first < len(counts) - 1 and max(counts[:first]) < counts[-1]:
            found[mark] = first
    if not found:
        return ""
    mark = min(found, key=found.get)
    line = numbers[found[mark]]
    name = "tab" if mark == "\t" else mark
    divided, option = ("", "") if mark == usual else (f"{name!r} separates the fields, and ", f"--separator {name!r} ")
    above = "line 1 is a title" if line == 2 else f"the lines above line {line} are a title"
    return f": if {divided}{above}, give {option}--skip-lines {line - 1}"


def _check_header(path, header, separator, numeric_names, line):
    found = [mark for mark in _MARKS if mark != separator and mark in header[0]]
    if len(header) == 1 and found:
        mark = "tab" if found[0] == "\t" else found[0]
        raise InvalidInputError(
            f"{path}: one column, whose header contains {found[0]!r}: if that separates the fields, give "
            f"--separator {mark!r}; else rename the column"
        )
    if header.count("") > max(1, len(header) / 2):
        raise InvalidInputError(
            f"{path}: line {line} names {len(header) - header.count('')} of {len(header)} columns: if it is a title, "
            f"and the names are below it, give --skip-lines {line}; else name the columns"
        )
    if "" in header:
        raise InvalidInputError(
            f"{path}: column {header.index('') + 1} has no name: if it is an index, which would identify rows, "
            "write the file without it; else name it"
        )
    duplicates = sorted(name for name, count in Counter(header).items() if count > 1)
    if duplicates:
        raise InvalidInputError(f"{path}: duplicate column names: {', '.join(map(repr, duplicates))}; rename them")
    values = [name for name in header if re.fullmatch(f"{NUMBER}|{DATE}.*", name.strip())]
    counted = len(header) > 2 and all(name == str(k) for k, name in enumerate(header))  # as pandas counts columns
    if values and not (numeric_names or counted):
        raise InvalidInputError(
            f"{path}: the name of column {header.index(values[0]) + 1} is a number or a date: if the first line is "
            "a row, add a line of names above it, because names are published; if it is a line of names, give --header"
        )


def _open_text(path, encoding=None, skip_lines=0):
    """Open a file below the lines that are skipped."""
    open_ = gzip.open if path.suffix == ".gz" else open
    file = open_(path, "rt", encoding=_codec(encoding), newline="")
    try:
        for _ in range(skip_lines):
            file.readline()
    except BaseException:
        file.close()
        raise
    return file


def _codec(encoding):
    """Name of an encoding of text; UTF-8 may have a byte order mark."""
    if encoding is None:
        return "utf-8-sig"
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # some codecs are not of text
    except (LookupError, ValueError):
        raise InvalidInputError(f"--encoding must be utf-8, latin-1, cp1252 or the like; got {encoding!r}") from None
    return "utf-8-sig" if name == "utf-8" else name


def _wrong_encoding(path, encoding):
    """The refusal of a file with bytes that are no text."""
    if encoding is not None and _codec(encoding) != "utf-8-sig":
        return InvalidInputError(f"{path}: not {encoding}; give another --encoding")
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        mark = file.read(2)
    if mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return InvalidInputError(f"{path}: not UTF-8, but UTF-16: give --encoding utf-16")
    return InvalidInputError(
        f"{path}: not UTF-8: give its encoding, as --encoding cp1252 (Windows) or --encoding latin-1, or save it as "
        "UTF-8"
    )


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


def check_writing(path, *, separator=None, decimal=".", escape_formulas=False, missing_mark=""):
    """Refuse separators and marks that are wrong, or that have no effect on the file."""
    Notation(decimal)
    if is_parquet(path) and (separator is not None or decimal != "." or escape_formulas or missing_mark):
        raise InvalidInputError(
            f"{path}: separators, decimal marks, missing marks and escaped formulas are of CSV files"
        )
    _separator(Path(path), separator)


def write_table(
    frames,
    path,
    *,
    separator=None,
    decimal=".",
    date_formats=None,
    example=None,
    escape_formulas=False,
    missing_mark="",
):
    """Write a table to a file; after an error there is no file.

    Parameters
    ----------
    frames : DataFrame or iterable of them
        Chunks are written one after another; none stays in memory.
    path : str, Path or Draft
        ``.parquet`` and ``.pq`` are Parquet, everything else is CSV: with tabs in ``.tsv``, compressed in ``.gz``.
    separator, decimal : str
        As for `read_table`; a ``.tsv`` file always has tabs.
    date_formats : dict of str to str, default=None
        Column name -> format of strftime; other dates are written in ISO 8601.
    example : DataFrame, default=None
        See `example_of`.
    escape_formulas : bool, default=False
        Whether text that a spreadsheet takes for a formula gets a leading ' in a CSV file.
    missing_mark : str, default=""
        Text of a missing value in a CSV file.

    Returns
    -------
    int
        Number of rows.
    """
    frames = [frames] if isinstance(frames, pd.DataFrame) else frames
    draft = path if isinstance(path, Draft) else Draft(path)
    with draft as written:
        if is_parquet(draft.target):
            return _write_parquet(frames, written, example)
        tabs = ".tsv" in draft.target.suffixes[-2:]
        return _write_csv(
            frames,
            written,
            compressed=draft.target.suffix.lower() == ".gz",
            separator=_separator(draft.target, None if tabs else separator),
            decimal=decimal,
            date_formats=date_formats or {},
            escape_formulas=escape_formulas,
            missing_mark=missing_mark,
        )


def _write_csv(frames, path, *, compressed, separator, decimal, date_formats, escape_formulas, missing_mark):
    """Write chunks of rows as one CSV file, and return the number of rows; see `write_table`.

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
            if escape_formulas:
                frame = _escaped(frame)
            frame.to_csv(text, index=False, header=not n_rows, sep=separator, decimal=decimal, na_rep=missing_mark)
            n_rows += len(frame)
    return n_rows


def _written_dates(column, form):
    periods = isinstance(column.dtype, pd.PeriodDtype)
    return (column if periods else pd.to_datetime(column)).dt.strftime(form)


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


def declare_public(schema, frame, names):
    """Complete columns of a schema from the values of a frame, which the caller knows to be public.

    The smallest and largest value, or the distinct values, of the columns `names` are copied without noise.

    Raises
    ------
    SchemaError
        A column does not exist, or has fewer than two values to take bounds from.

    Warns
    -----
    PrivacyLeakWarning
        The schema, and every model fitted with it, contains those values.
    """
    if absent := [name for name in names if name not in schema]:
        raise SchemaError(f"not columns of the table: {listed(absent)}; it has {listed(schema)}")
    columns = [_complete(schema[name], frame[name].dropna()) for name in names if not schema[name].complete]
    if columns:
        warnings.warn(
            "the bounds or categories of "
            + ", ".join(repr(column.name) for column in columns)
            + " are those of the file, without noise, and every model and card made with this schema publishes them: "
            "leave them in the schema only if they are public knowledge",
            PrivacyLeakWarning,
            stacklevel=2,
        )
    return schema.replace(*columns)


def _complete(column, values):
    if isinstance(column, Categorical):
        if values.empty:
            raise SchemaError(f"column {column.name!r}: has no value; write its categories into the schema")
        return replace(column, categories=tuple(sorted(values.unique().tolist())))
    if values.nunique() < 2:
        raise SchemaError(
            f"column {column.name!r}: all values are equal, which gives no bounds: write bounds into the schema"
        )
    low, high = values.min(), values.max()
    if isinstance(column, Datetime):
        low, high = low.isoformat(), high.isoformat()
    return replace(column, bounds=(low, high))
