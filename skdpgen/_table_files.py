"""Reading and writing tables on disk (CSV and Parquet), with one clear line for each thing that can be wrong."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd

from skdpgen.exceptions import InvalidInputError

__all__ = ["read_table", "write_table"]


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
        Every column can hold missing values, whether it does or not: that is not to be told from its dtype.

    Raises
    ------
    InvalidInputError
        The file is not there, is empty, has ragged rows, or is not UTF-8.
    """
    path = Path(path)
    if not path.is_file():
        raise InvalidInputError(f"{path}: no such file")
    if path.suffix in (".parquet", ".pq"):
        return pd.read_parquet(path, dtype_backend="numpy_nullable")
    try:
        _check_rectangular(path)
        return pd.read_csv(
            path,
            dtype_backend="numpy_nullable",
            keep_default_na=False,
            na_values=["", *missing_values],
            encoding="utf-8-sig",
            skipinitialspace=True,
        )
    except UnicodeDecodeError:
        raise InvalidInputError(f"{path}: not UTF-8; save it as UTF-8 first") from None
    except pd.errors.EmptyDataError:
        raise InvalidInputError(f"{path}: the file is empty") from None
    except (pd.errors.ParserError, csv.Error) as error:
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
                raise InvalidInputError(f"{path}: line {rows.line_num} has {len(row)} fields where the header has {width}")
        if rows.line_num < 2:
            raise InvalidInputError(f"{path}: a header and no rows")


def _open_text(path):
    if path.suffix == ".gz":
        import gzip

        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def write_table(frame, path):
    """Write `frame` to a CSV file, or to Parquet when `path` ends in .parquet or .pq."""
    path = Path(path)
    if path.suffix in (".parquet", ".pq"):
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)
