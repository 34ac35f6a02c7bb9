"""The public grid on which unknown bounds are looked for: octaves of each sign around zero."""

from __future__ import annotations

import numpy as np

__all__ = ["LARGEST", "N_OCTAVE_CELLS", "octave_cells", "octave_edges"]

# Magnitudes from 2^-32 to 2^48; smaller and larger ones count in the outermost cells of their sign.
_SMALLEST, _OCTAVES = -32, 80
N_OCTAVE_CELLS = 2 * _OCTAVES + 1
LARGEST = 2.0 ** (_SMALLEST + _OCTAVES)


def octave_cells(values):
    """Return the cell of each number: ``_OCTAVES`` is zero, cells above hold [2^k, 2^(k+1)), cells below mirror them.

    Parameters
    ----------
    values : array of float
        NaN has no cell: what comes back for it is arbitrary.

    Returns
    -------
    array of int64, of the same shape, in ``0 .. N_OCTAVE_CELLS - 1``
    """
    values = np.asarray(values, dtype=np.float64)
    _, exponent = np.frexp(values)  # value = m 2^exponent with 1/2 <= m < 1
    size = np.clip(exponent.astype(np.int64) - 1 - _SMALLEST, 0, _OCTAVES - 1) + 1
    return _OCTAVES + np.sign(np.nan_to_num(values)).astype(np.int64) * size


def octave_edges(cell):
    """Return the lower and upper edge of a cell; those around zero begin at zero."""
    size = abs(cell - _OCTAVES)
    if size == 0:
        return 0.0, 0.0
    low, high = (0.0 if size == 1 else 2.0 ** (size - 1 + _SMALLEST)), 2.0 ** (size + _SMALLEST)
    return (low, high) if cell > _OCTAVES else (-high, -low)
