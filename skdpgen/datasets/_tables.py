"""Adult: the census table on which differentially private synthesis of tables is compared."""

from __future__ import annotations

import pandas as pd
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from ._source import local_file

__all__ = ["adult_schema", "load_adult"]

# Facts known without looking at the rows. Categories: the attribute list of the UCI documentation (adult.names).
# Bounds: the documented extraction keeps people over 16 with at least one hour of work; the survey's records
# top-code age at 90, hold hours in two digits and gains in five; losses and the sampling weight have round
# numbers above their published ranges; education_num numbers the 16 levels of education.
_NUMERIC = {
    "age": (17, 90),
    "fnlwgt": (0, 1_500_000),
    "education_num": (1, 16),
    "capital_gain": (0, 99_999),
    "capital_loss": (0, 5_000),
    "hours_per_week": (1, 99),
}
_CATEGORIES = {
    "workclass": "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked",
    "education": (
        "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th 10th "
        "Doctorate 5th-6th Preschool"
    ),
    "marital_status": (
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
    ),
    "occupation": (
        "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
        "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv Armed-Forces"
    ),
    "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
    "sex": "Female Male",
    "native_country": (
        "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece South "
        "China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
        "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
        "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands"
    ),
    "income": "<=50K >50K",
}
_COLUMNS = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "income",
]
# The three columns in which the documentation says that values are missing.
_MISSING = frozenset({"workclass", "occupation", "native_country"})

_DESCR = """Adult (census income, 1994)

48,842 people described by 14 attributes and whether they earn more than 50,000 dollars a year;
45,222 rows have no missing value. B. Becker and R. Kohavi, UCI Machine Learning Repository,
doi:10.24432/C5XW20 (CC BY 4.0). `schema` holds public facts: categories from the UCI
documentation; bounds from the documented extraction and the survey's field widths.
"""


def adult_schema(complete=True):
    """Public facts about Adult's columns, as a ``skdpgen.Schema``.

    Parameters
    ----------
    complete : bool, default=True
        Whether only complete rows are used, so that no column has missing values.
    """
    from ..tabular import Categorical, Numeric, Schema

    columns = []
    for name in _COLUMNS:
        missing = not complete and name in _MISSING
        if name in _NUMERIC:
            columns.append(Numeric(name, bounds=_NUMERIC[name], integer=True))
        else:
            columns.append(Categorical(name, categories=tuple(_CATEGORIES[name].split()), missing=missing))
    return Schema(columns)


def load_adult(data_dir=None, *, complete=True):
    """Load the Adult table.

    Parameters
    ----------
    data_dir : str or path, default=None
        Folder that holds ``adult.csv.gz``; None reads the environment variable SKDPGEN_DATA,
        and without it the table is fetched by ``sklearn.datasets.fetch_openml``.
    complete : bool, default=True
        Keep only the 45,222 rows without missing values, the customary table of the literature.

    Returns
    -------
    bunch : sklearn.utils.Bunch
        ``frame``: DataFrame (45222, 15), numeric columns int64, the rest strings;
        ``schema``: public facts about its columns; ``target``: the name "income";
        ``positive``: ">50K"; ``DESCR``.
    """
    path = local_file("adult.csv.gz", data_dir)
    if path is not None:
        frame = pd.read_csv(path, keep_default_na=False)
    else:
        frame = _from_openml(fetch_openml("adult", version=2, as_frame=True).frame)
    frame = frame.loc[:, _COLUMNS]
    for name in _MISSING:
        frame[name] = frame[name].where(frame[name] != "?", None)
    if complete:
        frame = frame.dropna().reset_index(drop=True)
    return Bunch(frame=frame, schema=adult_schema(complete), target="income", positive=">50K", DESCR=_DESCR)


def _from_openml(frame):
    """Bring OpenML's copy to the names and types of the file: underscores, plain strings, int64."""
    frame = frame.rename(columns=lambda name: {"class": "income"}.get(name, name.replace("-", "_")))
    types = {name: "int64" if name in _NUMERIC else "object" for name in _COLUMNS}
    return frame.loc[:, _COLUMNS].astype(types)
