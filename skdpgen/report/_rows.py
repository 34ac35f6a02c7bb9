"""Rows of a report: columns of one kind in both tables, random parts of large tables, and what was done, in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
from pandas.api import types as pdt

from ..exceptions import InvalidInputError
from ..metrics._samples import as_frame, column_kind, to_numbers

__all__ = ["align", "categories", "halves", "some_rows"]


def align(real, synthetic):
    """Return both as frames of the same columns, in the order of the real ones, and of comparable values.

    Two files of one table may be read as other dtypes: integers where missing values make floats, numbers where all
    categories that occur are digits.

    Raises
    ------
    InvalidInputError
        Columns of one table that the other lacks, numbers or dates against text; cells are not shown.
    """
    real = as_frame(real)
    synthetic = as_frame(synthetic, like=None if isinstance(synthetic, pd.DataFrame) else real)
    missing = [str(name) for name in real.columns if name not in synthetic.columns]
    extra = [str(name) for name in synthetic.columns if name not in real.columns]
    if missing or extra:
        raise InvalidInputError(
            f"the tables have other columns: only in the real one {missing}, only in the synthetic one {extra}"
        )
    if not len(real) or not len(synthetic):
        raise InvalidInputError("both tables need at least one row")
    real, synthetic = real.reset_index(drop=True), synthetic[list(real.columns)].reset_index(drop=True)
    for name in real.columns:
        if column_kind(real[name]) != "category":
            to_numbers(synthetic[name])  # refuses text
            if pdt.is_datetime64_any_dtype(real[name]) != pdt.is_datetime64_any_dtype(synthetic[name]):
                raise InvalidInputError(f"column {name!r}: dates in one table and numbers in the other")
        else:
            real, synthetic = (frame.assign(**{str(name): _texts(frame[name])}) for frame in (real, synthetic))
    return real, synthetic


def categories(frame, name):
    """Return the frame with the values of a column as categories, whatever they are; `align` makes others follow."""
    return frame.assign(**{str(name): _texts(frame[name])})


def _texts(column):
    """Categories as text: 1, 1.0 and "1" are the same."""
    values = column.astype(object).where(column.notna(), None)
    return pd.Series([None if value is None else _one_text(value) for value in values], dtype=object, name=column.name)


def _one_text(value):
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def some_rows(frame, most, rng):
    """Return the frame, or `most` rows of it drawn at random."""
    if len(frame) <= most:
        return frame
    return frame.iloc[np.sort(rng.choice(len(frame), most, replace=False))].reset_index(drop=True)


def halves(frame, share, rng):
    """Split rows at random, each by a draw of its own; neither part is empty where there are two rows."""
    first = rng.random(len(frame)) < share
    if len(frame) > 1 and (first.all() or not first.any()):
        first[0], first[1] = True, False
    return frame[first].reset_index(drop=True), frame[~first].reset_index(drop=True)
