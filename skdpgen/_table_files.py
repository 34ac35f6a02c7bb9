"""Reading and writing tables on disk (CSV and Parquet), with one clear line for each thing that can be wrong."""

from __future__ import annotations

import csv
import warnings
import zlib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from skdpgen.exceptions import InvalidInputError, PrivacyLeakWarning, SchemaError
from skdpgen.synthesizers._frames import PUBLIC_ASSUMPTIONS
from skdpgen.tabular import Categorical, Datetime

__all__ = ["check_output", "declare_public", "read_table", "write_table"]

_PARQUET = (".parquet", ".pq")
_DTYPES_OF_CSV = "kinds (dtypes) of the columns: told from the values of the CSV file, and taken as public"


def read_table(path, *, missing_values=()):
    """Read a CSV or Parquet file into a frame of nullable dtypes.

    Parameters
    ----------
    path : str or Path
        ``.parquet`` or ``.pq`` is read as Parquet, everything else as UTF-8 CSV with a header row.
    missing_values : sequence of str
        Texts that stand for a missing value, beside the empty field.

    Returns
    -------
    DataFrame
        Every column can hold missing values, whether it does or not: that is not to be told from its dtype. What was
        taken for public while reading is in its ``attrs``, from where it goes onto the privacy card.

    Raises
    ------
    InvalidInputError
        The file is not there, is empty, has ragged rows, or is not UTF-8.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file")
    if path.suffix in _PARQUET:
        try:
            return pd.read_parquet(path, dtype_backend="numpy_nullable")
        except (OSError, ValueError):
            raise InvalidInputError(f"{path}: cannot be read as Parquet") from None
    try:
        _check_rectangular(path)
        frame = pd.read_csv(
            path,
            dtype_backend="numpy_nullable",
            keep_default_na=False,
            na_values=["", *missing_values],
            encoding="utf-8-sig",
            skipinitialspace=True,
        )
        frame.attrs[PUBLIC_ASSUMPTIONS] = [_DTYPES_OF_CSV]
        return frame
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path}: not UTF-8; save it as UTF-8 first") from None
    except pd.errors.EmptyDataError:
        raise InvalidInputError(f"{path}: the file is empty") from None
    except (pd.errors.ParserError, csv.Error, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path}: cannot be read as CSV ({type(error).__name__})") from None


def _check_rectangular(path):
    # pandas fills short rows with missing values and takes the first column for an index when rows are long
    opener = _open_text(path)
    with opener as file:
        rows = csv.reader(file, skipinitialspace=True)
        header = next(rows, None)
        if not header:
            raise InvalidInputError(f"{path}: the file is empty")
        duplicates = sorted({name for name in header if header.count(name) > 1})
        if duplicates:
            raise InvalidInputError(f"{path}: duplicate column names: {', '.join(map(repr, duplicates))}")
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


def check_output(path):
    """Refuse, before anything is charged, a file that could not be written in the end."""
    path = Path(path)
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InvalidInputError(f"{path}: the folder {folder} is not there")
    if path.is_dir():
        raise InvalidInputError(f"{path}: is a folder")
    if path.suffix in _PARQUET and find_spec("pyarrow") is None:
        raise InvalidInputError(f"{path}: writing Parquet needs pyarrow (the extra skdpgen[parquet])")


def write_table(frame, path):
    """Write `frame` to a CSV file, or to Parquet when `path` ends in .parquet or .pq."""
    path = Path(path)
    if path.suffix in _PARQUET:
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)


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
