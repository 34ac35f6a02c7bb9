"""What is no table and no array: refused, with how to make one of it. No message has a cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Number
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from ..exceptions import InvalidInputError
from .foreign_tables import is_foreign_column, is_foreign_table

# Estimators that read a table in chunks.
CHUNK_READERS = "MomentSynthesizer, P3GMSynthesizer and DPMERFSynthesizer"
_TABLE_TYPES = (pd.DataFrame, pd.Series, pd.Index)


def refuse_containers(X):
    """Refuse what no estimator takes as rows.

    Parameters
    ----------
    X : object
        As it was given to `fit`.

    Raises
    ------
    InvalidInputError
        For None, a dict, a list of dicts, one column of a table, and a connection to a database.
    """
    if isinstance(X, pd.DataFrame) or is_foreign_table(X):
        return
    kind = type(X).__name__
    if X is None:
        raise InvalidInputError("X is None: give a DataFrame or an array of rows")
    if isinstance(X, dict) and not sparse.issparse(X):  # some sparse matrices are dicts
        raise InvalidInputError("X is a dict: give pandas.DataFrame(X)")
    if isinstance(X, list | tuple) and len(X) and isinstance(X[0], dict):
        raise InvalidInputError("X is a list of dicts: give pandas.DataFrame(X)")
    if isinstance(X, pd.Series | pd.Index) or is_foreign_column(X):
        frame = "X.to_frame()" if hasattr(X, "to_frame") else "pyarrow.table({'name': X}), with the name of the column"
        raise InvalidInputError(
            f"Expected a 2-dimensional container, and X is a {kind}, which is one column: give {frame}"
        )
    if hasattr(X, "fetchall") or (hasattr(X, "execute") and hasattr(X, "cursor")):
        frame = "X.df()" if hasattr(X, "df") else "pandas.read_sql(query, connection)"
        raise InvalidInputError(
            f"X is a {kind}, a connection to a database or its cursor: read the rows of the query first, and give "
            f"{frame}"
        )


def refuse_objects(X):
    """Refuse an object that is no array: numpy would make one cell of it, or one row of what it contains.

    Parameters
    ----------
    X : object
        As it was given to `fit`, and no table.

    Raises
    ------
    InvalidInputError
        For an object that is no sequence and has no array, such as groups of rows, a set, or an expression.
    """
    known = isinstance(X, Sequence | Number | np.generic) or sparse.issparse(X) or is_foreign_table(X)
    if not known and not hasattr(X, "__array__") and not hasattr(X, "__array_interface__"):
        raise InvalidInputError(
            f"X is a {type(X).__name__}, which is neither a table nor an array: give a DataFrame or an array of rows"
        )


def refuse_chunks(X, name):
    """Refuse chunks of a table, for an estimator that reads none.

    Parameters
    ----------
    X : object
        As it was given to `fit`.
    name : str
        Of the estimator.

    Raises
    ------
    InvalidInputError
        For a list of tables, an iterator, a function, and a path.
    """
    if isinstance(X, str | Path):
        raise InvalidInputError(
            f"Expected 2D array or DataFrame, and X is text or a path: {name} takes rows, so read the file first, by "
            "pandas.read_csv(path) or pandas.read_parquet(path). If it is one value, Reshape your data"
        )
    if is_foreign_table(X):  # a reader of record batches, too
        return
    listed = isinstance(X, list | tuple) and len(X) and (isinstance(X[0], _TABLE_TYPES) or is_foreign_table(X[0]))
    if listed or isinstance(X, Iterator) or (callable(X) and not hasattr(X, "__array__")):
        what = "a list of tables" if listed else f"a {type(X).__name__}"
        raise InvalidInputError(
            f"X is {what}, and {name} takes the rows at once: give one DataFrame, such as pandas.concat(chunks). "
            f"Tables in chunks are read by {CHUNK_READERS}"
        )
