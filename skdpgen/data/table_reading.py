"""Reading tables from CSV and Parquet files, with a one-line message for each error."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import InvalidInputError
from ..tabular import Boolean, Categorical, Datetime, Identifier, Numeric
from ..tabular._formats import form_of
from ..utils.callers import warn_user
from .csv_layout import UNREADABLE, check_layout, check_separator, header_of, open_text, wrong_encoding
from .csv_values import ISO_FORMATS, are_codes, as_kind, resolution_of, undeclared, with_dates, with_notation
from .notation import USUAL_NOTATION
from .other_notations import readings_of
from .sources import KINDS_FROM_VALUES, PUBLIC_ASSUMPTIONS, arrow_dtype, is_parquet

_NO_TABLES = (".xlsx", ".xls", ".ods", ".json", ".jsonl", ".feather", ".dta", ".sav", ".sas7bdat", ".pkl", ".zip")
_ARCHIVES = (".xz", ".bz2", ".zst", ".tar", ".tgz", ".tbz", ".txz", ".7z", ".rar", ".lz4", ".br")
# Numbers are read exactly as Python reads them, whether a column is read as numbers or as text first. pandas does so by
# default from 3.1.
_EXACT = {"float_precision": "round_trip"} if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1) else {}
# Most columns that a text for the privacy card names.
_NAMED = 20
# Resolutions of times, the finest first.
_FINEST = ("us", "ms", "s", "min", "h")


# ---- files ----------------------------------------------------------------------------------------------------------
def check_input(path, notation):
    """Refuse a file that does not exist or is not a table, and a notation that has no effect on it."""
    path = Path(path)
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder; give the name of a file")
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file")
    if path.suffix.lower() in _NO_TABLES:
        raise InvalidInputError(f"{path}: only CSV and Parquet are read; save it as one of them")
    if path.suffix.lower() in _ARCHIVES:
        raise InvalidInputError(f"{path}: of compressed files, .gz alone is read; unpack it, or compress it with gzip")
    if is_parquet(path) and notation != USUAL_NOTATION:
        raise InvalidInputError(
            f"{path}: options for missing values, separators, encodings, headers, and the notation of numbers and "
            "dates are of CSV files; drop them for a Parquet file"
        )


def column_names(path, notation):
    """Return the names of the columns of a CSV or Parquet file, a list.

    No row is read, but for what `check_separator` says of a header of one name.
    """
    path = Path(path)
    if is_parquet(path):
        try:
            import pyarrow.parquet as pq

            return list(pq.ParquetFile(path).schema_arrow.empty_table().to_pandas().columns)
        except ImportError:
            raise InvalidInputError("reading Parquet files needs pyarrow: pip install pyarrow") from None
        except (OSError, ValueError):
            raise InvalidInputError(f"{path}: cannot be read as Parquet") from None
    try:
        with open_text(path, notation) as file:
            names = header_of(file, notation.separator_of(path))[0] or []
        if names:
            check_separator(path, names, notation)
        return names
    except UnicodeError:
        raise wrong_encoding(path, notation) from None
    except UNREADABLE as error:
        raise InvalidInputError(f"{path}: cannot be read as CSV ({type(error).__name__})") from None


def read_texts(path, notation, names):
    """Read columns of a CSV file, which `read_table` has accepted, as they are written: only empty fields are missing.

    `path`, `notation`: as for `read_table`.
    """
    path = Path(path)
    separator = notation.separator_of(path)
    options = {"sep": separator, "keep_default_na": False, "na_values": [""], "skipinitialspace": separator == ","}
    return _as_text(path, notation, options, names)[list(names)]


def read_table(path, notation=USUAL_NOTATION, *, schema=None, left_out=(), refuse=None, unit=None):
    """Read a CSV or Parquet file into a frame of nullable dtypes.

    `path`: ``.parquet`` and ``.pq`` are read as Parquet, everything else as CSV with a header row.
    `notation`: of a CSV file.
    `schema`: kinds of the columns of a CSV file; see `_read_csv`.
    `left_out`: columns that are not read.
    `refuse`: called with the undeclared columns of a CSV file that would be text, although their values look like
        numbers or dates in another notation, a dict as `refusal_of_file` takes it; it may raise. None: a warning names
        them.
    `unit`: column of identifiers of units: a CSV file is refused if the schema declares a kind for it that not all
        values are of.
    Every column can hold missing values, so that its dtype does not show whether it does. ``attrs`` has the
        facts taken for public, for the privacy card, and in ``kinds_from_values`` the columns with kinds read from
        values.
    Raises InvalidInputError: the file is not a table, the notation has no effect, or no value of a declared column is
        of its kind.
    Warns UserWarning: some values are not of the declared kind, or a text column looks like numbers or dates. These
        warnings are computed from private rows without protection; do not publish them.
    """
    path = Path(path)
    check_input(path, notation)
    if is_parquet(path):
        with _refused_as_parquet(path):
            frame = _with_arrow_types(pd.read_parquet(path, dtype_backend="numpy_nullable"), path)
            _check_utf8(frame)
        return frame.drop(columns=list(left_out))
    declared = {} if schema is None else {column.name: column for column in schema.columns}
    try:
        check_layout(path, notation)
        return _read_csv(path, notation, declared, left_out, refuse, unit)
    except UnicodeError:
        raise wrong_encoding(path, notation) from None
    except pd.errors.EmptyDataError:
        raise InvalidInputError(f"{path}: the file is empty") from None
    except (pd.errors.ParserError, *UNREADABLE) as error:
        raise InvalidInputError(f"{path}: cannot be read as CSV ({type(error).__name__})") from None


@contextlib.contextmanager
def _refused_as_parquet(path):
    """Raise whatever goes wrong with a Parquet file without its message, which may contain a cell."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception:
        raise InvalidInputError(f"{path}: cannot be read as Parquet, or holds text that is not UTF-8") from None


def _check_utf8(frame):
    """Fail on text that is not UTF-8: pandas finds it when a value is taken, and shows the value."""
    import pyarrow as pa

    for name in frame.columns:
        if pdt.is_string_dtype(frame[name].dtype) and not pdt.is_object_dtype(frame[name].dtype):
            pa.array(frame[name].array).validate(full=True)


def _with_arrow_types(frame, path):
    """Give columns that pandas reads as objects, or in another unit, the type that a Parquet file declares."""
    import pyarrow.parquet as pq

    schema = pq.ParquetFile(path).schema_arrow
    kinds = {field.name: arrow_dtype(field.type) for field in schema if field.name in frame.columns}
    return frame.astype({name: dtype for name, dtype in kinds.items() if dtype is not None})


# ---- CSV: the columns, each of its kind -----------------------------------------------------------------------------
def _read_csv(path, notation, declared, left_out, refuse, unit):
    """Read a CSV file whose fields are known to be rectangular.

    Each value of a declared column is read separately; a value that is not of the declared kind is missing. Datetimes
    are in the format of their column, or one of those of the notation, or in ISO 8601. The kinds of
    all other columns are read from their values: numbers, which are whole numbers if all are written as 5 or 5.0; truth
    values; datetimes, if all values are dates (or times) in one ISO 8601 format, or in one of the formats of the
    notation; codes (digits with leading zeros, as `are_codes` says), which are text; and text.
    """
    separator = notation.separator_of(path)
    options = {
        "sep": separator,
        "dtype_backend": "numpy_nullable",
        "keep_default_na": False,
        "na_values": ["", *notation.missing_marks],
        "skipinitialspace": separator == ",",
        **_EXACT,
    }
    as_text = functools.partial(_as_text, path, notation, options)
    plain, formats = notation.plain and not notation.dates, {}
    # declared numbers are read at once if all values are numbers; columns of other declared kinds are read as text
    texts = [name for name, column in declared.items() if not isinstance(column, Numeric)]
    dtype = dict.fromkeys(texts, "string") if plain else "string"
    # low_memory=False: a column has one kind, which does not depend on the position of a row in the file
    with open_text(path, notation) as file:
        frame = pd.read_csv(file, dtype=dtype, low_memory=False, **options).drop(columns=list(left_out))
    frame = _with_declared(frame, declared, notation, as_text, unit)
    frame = _without_marks(frame, declared, notation.numbers_of(notation.missing_marks))
    undeclared_names = [name for name in frame.columns if name not in declared]
    if not plain:  # pandas would read 01.02.2024 as a number if thousands are marked
        frame, formats = with_notation(frame, undeclared_names, notation)
        frame = _without_marks(frame, declared, notation.numbers_of(notation.missing_marks))
    frame = _with_codes(frame, undeclared_names, as_text)
    frame = _with_whole_numbers(frame, undeclared_names, as_text, notation)
    frame, resolutions, iso_formats = with_dates(frame, declared, notation, refuse)
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


def _as_text(path, notation, options, names, n_rows=None):
    with open_text(path, notation) as file:
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


def _with_declared(frame, declared, notation, as_text, unit):
    """Convert the declared columns to their kinds, value by value; `as_text` reads columns again as text.

    An identifier that cannot be read must not become a missing one: the rows of this unit would count as separate
    units.
    """
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
        if name == unit:
            raise InvalidInputError(
                f"--unit: the schema declares {name!r} as {type(column).__name__}, and not all identifiers can be read "
                "as such, so it is not known whose rows they are: declare the column as an identifier (skdpgen schema "
                "--id), which is read as text; nothing was charged"
            )
        if not columns[name].notna().any():
            _refuse_kind(column)
        _refuse_notation(column, written[name], unread, notation)
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
        warn_user(
            f"values that cannot be read as the kind that the schema declares are taken for missing: {', '.join(lost)}",
            UserWarning,
        )
    return frame.assign(**columns) if columns else frame


def _refuse_kind(column):
    hint = ""
    if isinstance(column, Datetime):
        hint = ": it has no ISO 8601 date; give the format of its dates by --dates"
    elif isinstance(column, Numeric) and form_of(column.dtype) == "time":
        hint = ": write times of the day as 13:45 or 13:45:30"
    elif isinstance(column, Numeric):
        hint = ": give the notation of its numbers by --decimal, --thousands and --sign"
    elif isinstance(column, Boolean):
        hint = ". Truth values are true, yes, t, y, 1 and false, no, f, n, 0: declare other words as categories"
    kind = type(column).__name__
    raise InvalidInputError(
        f"column {column.name!r} is {kind} in the schema, and none of its values can be read as such{hint}"
    )


def _refuse_notation(column, written, unread, notation):
    """Refuse a declared column of numbers or dates in another notation, most of whose values would become missing.

    A few values in another notation become missing: they are no reason to change the notation of the others.
    """
    if not isinstance(column, Numeric | Datetime):
        return
    odd = written[unread].nunique()
    if 2 * odd < written.nunique():
        return
    readings, _ = readings_of(written.dropna(), notation)
    if readings := [one for one in readings if (one.date is not None) == isinstance(column, Datetime)]:
        raise InvalidInputError(
            f"column {column.name!r} is {type(column).__name__} in the schema, and many of its values are in another "
            f"notation: give {' or '.join(one.options() for one in readings[:2])}"
        )


def _without_marks(frame, declared, marks):
    """Make numbers missing that stand for a missing value, however they are written, in all columns read as numbers.

    pandas compares fractions by value, but integers and text as they are written. Without this step, the other rows
    would decide whether 7.0 is a missing value.
    """

    def are_numbers(name):
        if name in declared:
            return isinstance(declared[name], Numeric)
        return pdt.is_numeric_dtype(frame[name].dtype) and not pdt.is_bool_dtype(frame[name].dtype)

    names = [name for name in frame.columns if are_numbers(name)] if marks else []
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
