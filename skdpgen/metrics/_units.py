"""Units of several rows: how many rows they have, real against synthetic."""

from __future__ import annotations

import pandas as pd

from ..utils.foreign_tables import to_pandas


def rows_per_unit(real, synthetic, unit, max_rows=None):
    """Shares of the units by their number of rows.

    Parameters
    ----------
    real, synthetic : DataFrame
        Rows of several units each; those of ``sample(units=)``.
    unit : column name
        Of the identifiers. Rows without one are left out.
    max_rows : int, default=None
        Most rows of a unit that the fit used: units with more count as units with so many. None is no limit.

    Returns
    -------
    shares : DataFrame
        Indexed by the number of rows, with the columns ``real`` and ``synthetic``, each of which sums to 1. Half the
        sum of their absolute differences is the total variation distance.

    Raises
    ------
    ValueError
        A table lacks the column, or has no identifier.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: it holds the exact share of the
    persons with each number of rows. Do not publish it; ``rows_per_unit_`` of a fit is released.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpgen.metrics import rows_per_unit
    >>> real = pd.DataFrame({"patient": ["a", "a", "b", "c"]})
    >>> synthetic = pd.DataFrame({"patient": [0, 0, 1, 1]})
    >>> rows_per_unit(real, synthetic, "patient").round(2).values.tolist()
    [[0.67, 0.0], [0.33, 1.0]]
    """
    shares = {"real": _shares(real, unit, max_rows), "synthetic": _shares(synthetic, unit, max_rows)}
    return pd.DataFrame(shares).fillna(0.0).rename_axis("rows").sort_index()


def _shares(rows, unit, max_rows):
    frame = to_pandas(rows)
    if unit not in frame.columns or frame[unit].isna().all():
        raise ValueError(f"both tables need the identifiers of units, in a column {unit!r}")
    sizes = frame[unit].value_counts()
    return sizes.clip(upper=max_rows).value_counts(normalize=True)
