"""Rows to CSV and Parquet a chunk at a time, so that a file has one form however many chunks it is made of."""

from __future__ import annotations

import contextlib
import gzip
import io

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..tabular import Boolean, Categorical, Datetime
from ..tabular._columns import output_dtype
from ..tabular._frames import restore

__all__ = ["date_formats_of", "example_of", "write_csv", "write_parquet"]

# What spreadsheet programs take for the start of a formula (OWASP, "CSV Injection"), full-width forms among them.
_FORMULA = r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_CLOCK = "%Y-%m-%d %H:%M:%S"


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
