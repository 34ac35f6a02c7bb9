"""What the rows of a file suggest to its owner: whom several rows belong to, and codes that stand for missing values.

It is computed from the rows without protection: commands print it for the data holder alone, and put none of it into a
schema.
"""

from __future__ import annotations

import numpy as np
from pandas.api import types as pdt

__all__ = ["UNIT_HINT", "codes_of_missing_values", "likely_units"]

UNIT_HINT = "if one person (or household, or device) may have several rows, protect persons and not rows"
# Fewer different values are hardly those of identifiers.
_FEWEST = 20
# Numbers that surveys and registers write for a missing value.
_NEGATIVE, _POSITIVE = (-9, -99, -999, -9999, -99999), (99, 999, 9999, 99999, 999999)


def likely_units(frame):
    """Return the columns that identify persons with several rows: by their names, and because values repeat.

    Parameters
    ----------
    frame : DataFrame
        Private rows.

    Returns
    -------
    list of column names
    """
    from ..tabular._identifiers import names_units

    found = []
    for name in frame.columns:
        dtype = frame[name].dtype
        if names_units(name) and (pdt.is_integer_dtype(dtype) or pdt.is_string_dtype(dtype)):
            values = frame[name].dropna()
            if max(_FEWEST, len(values) / 1000) <= values.nunique() < len(values):
                found.append(name)
    return found


def codes_of_missing_values(values):
    """Return the numbers of a column that may stand for a missing value, such as -99 or 999; none of other columns.

    They are whole numbers of nines: negative, where no other number is, or further above all others than these are
    from one another.

    Parameters
    ----------
    values : Series
        Private values.

    Returns
    -------
    list of int
    """
    if not pdt.is_numeric_dtype(values.dtype) or pdt.is_bool_dtype(values.dtype):
        return []
    numbers = np.unique(values.dropna().to_numpy(dtype=np.float64))
    rest = numbers[~np.isin(numbers, _NEGATIVE + _POSITIVE)]
    if len(rest) < 2:
        return []
    low, high = rest[0], rest[-1]
    codes = [code for code in _NEGATIVE if low >= 0] + [code for code in _POSITIVE if code > 2 * high - low]
    return [code for code in codes if code in numbers]
