"""Checks of the names and the rows of a table. Files are read without scikit-learn, so this needs none."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pandas as pd

from ..exceptions import InvalidInputError, SchemaError

# Rows of the narrowest of the exact sums: those of a mixture hold 2^38 steps a unit in integers of 64 bits.
MAX_ROWS = 1 << 24


def check_row_count(n_samples):
    """Refuse, before anything is charged, more rows than every mechanism can sum exactly."""
    if n_samples > MAX_ROWS:
        raise InvalidInputError(f"at most {MAX_ROWS} rows can be summed exactly: fit on a random part of them")


def is_missing(values, name):
    """Return which values are missing; SchemaError, with the `name` of their column, where no test can say it."""
    try:
        return pd.isna(values)
    except ArithmeticError:
        raise SchemaError(
            f"{name} holds a signaling NaN of decimal.Decimal: give None where a value is missing"
        ) from None


def texts_in(value):
    """Yield the texts in a value: itself, or those in a list, a dict or an array."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in (*value, *value.values()):
            yield from texts_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, np.ndarray) and value.dtype.kind in "OU":
        yield from texts_in(value.ravel().tolist())


def is_unicode(values):
    """Tell whether all text among `values` can be written: a lone surrogate cannot, and pandas fails on it anywhere."""
    try:
        for value in values:
            if isinstance(value, str) and not value.isascii():
                value.encode()
    except UnicodeEncodeError:
        return False
    return True


# Whether pandas takes two texts for one that are equal up to a NUL: older versions do, in columns of text alone.
_ENDS_AT_NUL = len(pd.unique(np.array(["a\0", "a"], dtype=object))) < 2


def holds_nul(values, distinct):
    """Tell whether a text among `values` has the character NUL: another row may decide what pandas takes it for.

    `distinct`: of the values, as pandas finds them; of those that are equal up to NUL, older versions find the first.
    """
    return any(isinstance(value, str) and "\0" in value for value in (values if _ENDS_AT_NUL else distinct))


def check_names(names, what="a column"):
    """Refuse names that no file could hold, before anything is charged.

    Parameters
    ----------
    names : sequence
        Of columns: text, or anything else; tuples of them are read too.
    what : str
    """
    if not is_unicode(texts_in(list(names))):
        raise SchemaError(f"the name of {what} cannot be written: it holds a lone surrogate; nothing was charged")


def is_of_dask(X):
    """Tell whether X is a table or an array of dask, whose values are computed when they are asked for."""
    return type(X).__module__.partition(".")[0] in ("dask", "dask_expr")


@contextmanager
def reading(what):
    """Raise errors of pandas, numpy and Arrow, whose text may be a cell, as one that names `what` and the error alone.

    An Arrow column of text may hold bytes that are no text, and a date may be beyond what a library can convert.
    """
    try:
        yield
    except (SchemaError, InvalidInputError, MemoryError):
        raise
    except Exception as error:
        raise SchemaError(
            f"{what} holds values that cannot be read ({type(error).__name__}), such as text that is not UTF-8, or "
            "dates and time spans out of range"
        ) from None


@contextmanager
def without_cells(what, how):
    """Raise errors of the caller's own code without their text, which may contain a cell; those of the package as ever.

    `what`: failed. `how`: to see the text.
    """
    try:
        yield
    except InvalidInputError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"{what} failed ({type(error).__name__}). Its message may show private values, so it is not repeated here: "
            f"to see it, {how} yourself"
        ) from None
