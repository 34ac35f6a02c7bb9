"""Tables of other libraries, such as polars and pyarrow: read as frames of pandas, and samples as theirs."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from ..exceptions import InvalidInputError, SchemaError
from .table_checks import without_cells


def is_foreign_table(X):
    """Tell whether X is a table of a library beside pandas, such as polars or pyarrow.

    Labelled arrays have no columns: they are arrays. A dataset of pyarrow is the table of its files.
    """
    if isinstance(X, type | pd.DataFrame):
        return False
    if _is_dataset(X):
        return True
    if hasattr(X, "to_pandas"):
        return not hasattr(X, "__array__") or hasattr(X, "columns")
    if hasattr(X, "__arrow_c_stream__"):  # the rows of a query, say
        return hasattr(X, "columns") or hasattr(X, "schema")
    return hasattr(X, "collect") and hasattr(type(X), "columns")  # a lazy table warns of X.columns


def is_foreign_column(y):
    """Tell whether y is a column of polars or pyarrow; both are given to Arrow by one of two methods."""
    if isinstance(y, type | pd.Series | pd.Index | pd.DataFrame | pd.api.extensions.ExtensionArray):
        return False
    return hasattr(y, "__arrow_c_stream__") or hasattr(y, "__arrow_c_array__")


def holds_numbers(X):
    """Tell whether all columns of such a table are numbers; its array may hold dates as numbers."""
    if not hasattr(X, "__array__"):
        return False
    names = getattr(X, "column_names", None) or X.columns
    try:
        return all(np.asarray(X[name]).dtype.kind in "biuf" for name in names)
    except Exception:  # of the table's library, whose message may contain a cell
        return False


def to_pandas(X):
    """Return a table, or a column, of another library as one of pandas; anything else as it is.

    All columns have dtypes of Arrow. So a dtype depends on that of the given column alone: pandas' own integers become
    floats where a value is missing. NaN is missing. Categories become text, because a dtype may list those of private
    rows. Raises InvalidInputError: the library cannot give its table to Arrow, or there is no pyarrow.
    """
    if is_foreign_table(X):
        return _arrow_frame(X)
    if is_foreign_column(X):
        name = getattr(X, "name", None)
        return _arrow_frame(X).iloc[:, 0].rename(name or None)
    return X


def only_column(values):
    """Return a table with one column, of pandas or another library, or an array (n_rows, 1), as that column.

    Anything else is returned as it is.
    """
    if is_foreign_table(values):
        values = to_pandas(values)
    if len(shape := getattr(values, "shape", ())) == 2 and shape[1] == 1:
        return values.iloc[:, 0] if isinstance(values, pd.DataFrame) else np.asarray(values)[:, 0]
    return values


def library_of(X):
    """Return "polars" or "pyarrow" for a table of it, of which `to_library` makes others; else None."""
    return library if is_foreign_table(X) and (library := _library(X)) in ("polars", "pyarrow") else None


def to_library(rows, library):
    """Return rows, or a pair (X, y), as tables of the library; those of pandas where it is None."""
    if library is None or isinstance(rows, np.ndarray):
        return rows
    if isinstance(rows, tuple):
        return tuple(to_library(part, library) for part in rows)
    if isinstance(rows, pd.Series):
        column = to_library(rows.to_frame("y"), library)["y"]
        return column if library == "pyarrow" else column.rename("" if rows.name is None else str(rows.name))
    import pyarrow as pa

    table = pa.Table.from_pandas(_of_plain_types(rows), preserve_index=False).replace_schema_metadata(None)
    if library == "pyarrow":
        return table
    import polars

    return polars.from_arrow(table)


def _of_plain_types(rows):
    """Return rows whose periods are their first days or moments, and intervals text: other libraries know neither."""
    rows = rows.copy(deep=False)
    for name, dtype in rows.dtypes.items():
        if isinstance(dtype, pd.PeriodDtype):
            moments = rows[name].dt.to_timestamp().astype("datetime64[us]")
            part_of_a_day = isinstance(dtype.freq, pd.offsets.Tick) and pd.Timedelta(dtype.freq) < pd.Timedelta(1, "D")
            rows[name] = moments if part_of_a_day else moments.astype("date32[day][pyarrow]")
        elif isinstance(dtype, pd.IntervalDtype):
            rows[name] = rows[name].astype(object).map(_interval_text, na_action="ignore").astype("string")
    return rows


def _interval_text(interval):
    return re.sub(r"\.0(?=[,)\]])", "", str(interval))  # (0, 1] of (0.0, 1.0]


def _is_dataset(X):
    return hasattr(X, "to_table") and hasattr(X, "to_batches")


def _library(X):
    return type(X).__module__.partition(".")[0]


def _arrow_frame(X):
    """Return a table or a column as a frame whose columns have dtypes of Arrow."""
    kind = f"X is a {type(X).__name__} of {_library(X)}"
    if hasattr(X, "toPandas"):  # of a cluster, whose rows this process need not hold
        raise InvalidInputError(f"{kind}: give a DataFrame of pandas, X.toPandas()")
    convert = "X.to_pandas()" if hasattr(X, "to_pandas") else "X.collect().to_pandas()"
    if _is_dataset(X):
        with without_cells(f"the {type(X).__name__} of {_library(X)}", "call its to_table"):
            X = X.to_table()
    if hasattr(X, "collect"):  # a lazy table
        with without_cells(f"the {type(X).__name__} of {_library(X)}", "collect it"):
            X = X.collect()
    if not (hasattr(X, "__arrow_c_stream__") or hasattr(X, "__arrow_c_array__")):
        raise InvalidInputError(f"{kind}, which cannot give its rows to Arrow: give a DataFrame of pandas, {convert}")
    try:
        import pyarrow as pa
    except ImportError:
        raise InvalidInputError(
            f"{kind}, and reading it needs pyarrow: pip install pyarrow, or give a DataFrame of pandas, {convert}"
        ) from None
    with without_cells(f"the conversion of the {type(X).__name__} of {_library(X)}", "call pyarrow.table of it"):
        try:
            table = _arrow_table(X, pa)
        except Exception:
            _check_types(X, pa)
            raise
        names = table.column_names
        table = pa.table([_plain_column(column, pa) for column in table.columns], names=names)
        for name, kind in zip(names, table.schema.types):
            check_arrow_type(f"column {name!r}", pd.ArrowDtype(kind))
        return table.to_pandas(types_mapper=pd.ArrowDtype)


def _arrow_table(X, pa):
    """Return a table, or a column as the table of it alone, as a table of Arrow."""
    if is_foreign_table(X):
        return pa.table(X)
    column = pa.array(X) if hasattr(X, "__arrow_c_array__") else pa.chunked_array(X)
    return pa.table([column], names=["y"])


def _check_types(X, pa):
    """Refuse a type of polars that Arrow lacks, such as integers of 128 bits, by the name of its column."""
    if _library(X) != "polars":
        return
    for name, kind in {X.name: X.dtype}.items() if hasattr(X, "dtype") else X.schema.items():
        try:
            _arrow_table(X.head(0) if hasattr(X, "dtype") else X.head(0).select(name), pa)
        except Exception:
            raise SchemaError(
                f"column {name!r}: Arrow has no type for {kind} of polars; convert it to narrower numbers, or to text"
            ) from None


def check_arrow_type(what, dtype):
    """Refuse a type of Arrow that pandas does not know, such as intervals of months and days, or views of text.

    `what`: "y", or the column. `dtype`: any dtype; those of Arrow alone are refused.
    """
    if not isinstance(dtype, pd.ArrowDtype):
        return
    try:
        _ = dtype.type
    except NotImplementedError:
        raise SchemaError(
            f"{what}: no kind for the type {dtype.pyarrow_dtype} of Arrow; convert it to numbers, text or datetimes"
        ) from None


def _plain_column(column, pa):
    """Return a column as one of a type that pandas can hold: categories and views as text, NaN as missing."""
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    if not pa.types.is_dictionary(column.type):
        return _without_nan(column.cast(views.get(column.type, column.type)), pa)
    plain = views.get(column.type.value_type, column.type.value_type)
    parts = [
        pa.DictionaryArray.from_arrays(part.indices, part.dictionary.cast(plain)).dictionary_decode()
        for part in column.chunks
    ]
    return _without_nan(pa.chunked_array(parts, type=plain), pa)


def _without_nan(column, pa):
    if not pa.types.is_floating(column.type):
        return column
    import pyarrow.compute as pc

    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
