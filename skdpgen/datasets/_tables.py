"""The tables on which private synthesis is compared: Adult, seizures in EEG, spoken letters, credit card fraud."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import fetch_openml
from sklearn.utils import Bunch

from ..utils.callers import warn_user

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
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship", "race",
    "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
]  # fmt: skip
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

    `complete`: whether only complete rows are used, so that no column has missing values.
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


# ---- the other tables of P3GM's evaluation -------------------------------------------------------------------------
# The recordings were digitised by a converter of 12 bits (Andrzejak et al. 2001).
_ESR_BOUNDS = (-2048, 2047)
_ISOLET_BOUNDS = (-1.0, 1.0)
_VOWELS = frozenset("AEIOU")

# OpenML's copy of the full table of the credit cards; it has no column Time.
_CREDIT_ID = 1597
_CREDIT_SEED = 1597
_N_EXTRA_LEGITIMATE = 978

# Ranges on the publisher's page of the full table (Kaggle, mlg-ulb/creditcardfraud), each rounded outwards.
_CREDIT_BOUNDS = {
    "V1": (-57, 3), "V2": (-73, 23), "V3": (-49, 10), "V4": (-6, 17), "V5": (-114, 35), "V6": (-27, 74),
    "V7": (-44, 121), "V8": (-74, 21), "V9": (-14, 16), "V10": (-25, 24), "V11": (-5, 13), "V12": (-19, 8),
    "V13": (-6, 8), "V14": (-20, 11), "V15": (-5, 9), "V16": (-15, 18), "V17": (-26, 10), "V18": (-10, 6),
    "V19": (-8, 6), "V20": (-55, 40), "V21": (-35, 28), "V22": (-11, 11), "V23": (-45, 23), "V24": (-3, 5),
    "V25": (-11, 8), "V26": (-3, 4), "V27": (-23, 32), "V28": (-16, 34), "Amount": (0, 26_000),
}  # fmt: skip

_ESR_DESCR = """Epileptic Seizure Recognition

11,500 seconds of EEG, 178 values each, in five classes of 2,300; class 1 is recorded during a seizure. Q. Wu and
E. Fokoue, UCI Machine Learning Repository (2017), from the recordings of R. Andrzejak et al., Phys. Rev. E 64, 061907
(2001). One person gave 23 rows, and the table does not say which: a guarantee for one row is not one for a person.
`schema` holds public facts: bounds of the 12-bit converter.
"""
_ISOLET_DESCR = """ISOLET (Isolated Letter Speech Recognition)

7,797 spoken letters of 150 speakers, 617 features each, scaled to [-1, 1] by the publishers. R. Cole and M. Fanty, UCI
Machine Learning Repository, doi:10.24432/C51G69 (CC BY 4.0). The target of P3GM's evaluation is whether the letter is
a vowel. One speaker gave 52 rows: a guarantee for one row is not one for a speaker.
"""
_CREDIT_DESCR = """Credit card fraud, a subset of 20 %

56,962 of the 284,807 transactions of two days in 2013, stratified by class: 98 are frauds. V1 to V28 are principal
components that the publishers made; values are rounded to about three digits. `extra`: 1,370 rows at the original
precision that are not among them, with 392 frauds. Machine Learning Group of Université Libre de Bruxelles and
Worldline (Open Database License 1.0). Results on it are not those of the full table. `schema` holds the ranges that
the publisher's page shows.
"""


def load_esr(data_dir=None, *, binary=True):
    """Load the Epileptic Seizure Recognition table.

    Parameters
    ----------
    data_dir : str or path, default=None
        Folder that holds ``esr.npz``; None reads the environment variable SKDPGEN_DATA.
    binary : bool, default=True
        Whether the target says "seizure" or "other" (P3GM's evaluation) instead of one of the five classes.

    Returns
    -------
    bunch : sklearn.utils.Bunch
        ``frame``: DataFrame (11500, 179), columns x1 to x178 of int64 and the target; ``schema``: public facts about
        them; ``target``: the name "state"; ``positive``: "seizure", or 1; ``DESCR``.

    Raises
    ------
    FileNotFoundError
        No folder was named, or it does not hold the file: no copy of this table is known on OpenML.
    """
    arrays = _arrays("esr.npz", data_dir, _no_esr)
    X, y = arrays["X"].astype(np.int64), arrays["y"].astype(np.int64)
    bounds = {f"x{i + 1}": _ESR_BOUNDS for i in range(X.shape[1])}
    labels = np.where(y == 1, "seizure", "other").astype(object) if binary else y
    categories = ("seizure", "other") if binary else (1, 2, 3, 4, 5)
    return _bunch(X, labels, bounds, "state", categories, _ESR_DESCR, integer=set(bounds))


def load_isolet(data_dir=None, *, binary=True):
    """Load the spoken letters of ISOLET.

    Parameters
    ----------
    data_dir : str or path, default=None
        Folder that holds ``isolet.npz``; None reads the environment variable SKDPGEN_DATA,
        and without it the table is fetched by ``sklearn.datasets.fetch_openml``.
    binary : bool, default=True
        Whether the target says "vowel" or "consonant" (P3GM's evaluation) instead of the letter.

    Returns
    -------
    bunch : sklearn.utils.Bunch
        ``frame``: DataFrame (7797, 618), columns f1 to f617 of float64 and the target; ``schema``: public facts about
        them; ``target``: the name "letter"; ``positive``: "vowel", or "A"; ``group``: int64 (7797,), the published
        part 1 to 5 (the fifth is the customary test set), absent from a fetched table, which does not have it;
        ``DESCR``.

    Raises
    ------
    FileNotFoundError
        A folder was named and does not hold the file.
    """
    arrays = _arrays("isolet.npz", data_dir, _isolet_from_openml)
    letters = np.array([chr(ord("A") + int(code) - 1) for code in arrays["y"]], dtype=object)
    alphabet = tuple(chr(code) for code in range(ord("A"), ord("Z") + 1))
    if binary:
        letters = np.where([letter in _VOWELS for letter in letters], "vowel", "consonant").astype(object)
    bounds = {f"f{i + 1}": _ISOLET_BOUNDS for i in range(arrays["X"].shape[1])}
    categories = ("vowel", "consonant") if binary else alphabet
    X = arrays["X"].astype(np.float64)
    bunch = _bunch(X, letters, bounds, "letter", categories, _ISOLET_DESCR)
    if "group" in arrays:
        bunch.group = arrays["group"].astype(np.int64)
    return bunch


def load_creditcard_subset(data_dir=None):
    """Load a 20 % subset of the credit card transactions; results on it are to be called so.

    Parameters
    ----------
    data_dir : str or path, default=None
        Folder that holds ``creditcard_subset.npz``; None reads the environment variable SKDPGEN_DATA, and without it
        the full table is fetched by ``sklearn.datasets.fetch_openml`` and *another* fifth of it is drawn, the same in
        every call, with a warning.

    Returns
    -------
    bunch : sklearn.utils.Bunch
        ``frame``: DataFrame (56962, 30), columns V1 to V28 and Amount of float64 and the target; ``extra``: DataFrame
        (1370, 30; of a fetched table about as many), further test rows that are not in `frame`, far richer in frauds;
        ``schema``: public facts; ``target``: the name "class"; ``positive``: "fraud"; ``DESCR``.

    Raises
    ------
    FileNotFoundError
        A folder was named and does not hold the file.
    """
    arrays = _arrays("creditcard_subset.npz", data_dir, _credit_from_openml)
    names, extra_names = ([str(name) for name in arrays[key]] for key in ("columns", "columns_extra"))
    categories = ("fraud", "legitimate")
    bounds = {name: _CREDIT_BOUNDS[name] for name in names}

    def labels(y):
        return np.where(y == 1, *categories).astype(object)

    bunch = _bunch(arrays["X"].astype(np.float64), labels(arrays["y"]), bounds, "class", categories, _CREDIT_DESCR)
    fresh = ~arrays["extra_in_X"]
    extra = pd.DataFrame(arrays["X_extra"].astype(np.float64), columns=extra_names)[names]
    extra["class"] = labels(arrays["y_extra"])
    bunch.extra = extra[fresh].reset_index(drop=True)
    bunch.DESCR += str(arrays.get("note", ""))
    return bunch


def _arrays(name, data_dir, fetch):
    """Arrays of the file, or, where no folder is named, of `fetch()` under the same keys."""
    path = local_file(name, data_dir)
    if path is None:
        return fetch()
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _no_esr():
    raise FileNotFoundError(
        f"esr.npz: name the folder that holds it as data_dir or by {DATA_VARIABLE}. It cannot be fetched: no copy of "
        "Epileptic Seizure Recognition is known on OpenML; it was published at archive.ics.uci.edu"
    )


def _isolet_from_openml():
    table = fetch_openml("isolet", version=1, as_frame=False)
    return {"X": np.asarray(table.data), "y": np.asarray(table.target).astype(np.int64)}


def _credit_from_openml():
    """A fifth of each class, and of the others all frauds with as many legitimate rows as the file has."""
    warn_user(
        "the full table of the credit cards is fetched and a fifth of it drawn: another fifth than that of the file, "
        "so results on it differ",
        UserWarning,
    )
    frame = fetch_openml(data_id=_CREDIT_ID, as_frame=True).frame
    y = frame["Class"].astype(np.int64).to_numpy()
    names = list(_CREDIT_BOUNDS)
    X = frame[names].to_numpy(dtype=np.float64)
    # a constant: every call, on every machine, gives the same rows
    rng = np.random.default_rng(_CREDIT_SEED)
    frauds, legitimate = (rng.permutation(np.flatnonzero(y == label)) for label in (1, 0))
    n_frauds, n_legitimate = round(len(frauds) / 5), round(len(legitimate) / 5)
    table = np.sort(np.concatenate([frauds[:n_frauds], legitimate[:n_legitimate]]))
    others = legitimate[n_legitimate : n_legitimate + _N_EXTRA_LEGITIMATE]
    extra = np.sort(np.concatenate([frauds[n_frauds:], others]))
    held = {row.tobytes() for row in X[table]}  # the full table has rows that are equal
    return {
        "X": X[table],
        "y": y[table],
        "columns": np.array(names),
        "X_extra": X[extra],
        "y_extra": y[extra],
        "columns_extra": np.array(names),
        "extra_in_X": np.array([row.tobytes() in held for row in X[extra]]),
        "note": "Fetched from OpenML (1597): another fifth, at the original precision, and other rows in `extra`.\n",
    }


def _bunch(X, labels, bounds, target, categories, descr, integer=frozenset()):
    from ..tabular import Categorical, Numeric, Schema

    frame = pd.DataFrame(X, columns=list(bounds))
    frame[target] = labels
    columns = [Numeric(name, bounds=pair, integer=name in integer) for name, pair in bounds.items()]
    schema = Schema([*columns, Categorical(target, categories=categories)])
    return Bunch(frame=frame, schema=schema, target=target, positive=categories[0], DESCR=descr)


# ---- where files come from: a folder on this machine, else scikit-learn's own fetcher --------------------------------
DATA_VARIABLE = "SKDPGEN_DATA"


def local_file(name, data_dir=None):
    """Path of the file `name` in the data folder, or None when there is no folder to look in.

    `name`: file name, for example "adult.csv.gz".
    `data_dir`: folder to read; None reads the environment variable SKDPGEN_DATA.
    Returns `path`: None when neither `data_dir` nor SKDPGEN_DATA names a folder: the caller then fetches.
    Raises FileNotFoundError: a folder was named and does not hold the file. Fetching silently instead would hide a
        mistyped folder behind a download.
    """
    origin = "data_dir"
    if data_dir is None:
        data_dir = os.environ.get(DATA_VARIABLE) or None
        origin = DATA_VARIABLE
    if data_dir is None:
        return None
    path = Path(data_dir).expanduser() / name
    if not path.is_file():
        raise FileNotFoundError(f"{name} is not in the folder {str(data_dir)!r} named by {origin}")
    return path
