"""Scores of a search: sums of one bounded term a record, so that noise can be added to them."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from .._types import BoundedSum
from ..mechanisms._moments import SCORE_COUNT_WEIGHT
from ..utils.categories import canonical_rows
from ..utils.printing import shown
from ..utils.validation import as_numbers

# Terms are moved to [-1/2, 1/2] and truncated to this lattice, on which their sum is exact (of 2^24 rows and more).
_LATTICE = 2.0**-36
# A joining record may change the last bits of other terms (sums in batches), and bring each to the next step of the
# lattice: of 2^24 rows, the largest number, by 2^-12 in all. The sensitivity includes that, and as much rounding again.
_SLACK = 1 + 2.0**-10
# Least width of the bounds, relative to the larger of them: below it, the rounding of terms is no longer small beside
# the lattice.
_LEAST_WIDTH = 2.0**-9
# Largest difference of a term, in widths of the bounds, that a trial accepts as rounding: the sensitivity includes it.
_ROUNDING = _LATTICE
_SYNTHETIC_ROWS = 10_000
# Bounds of the terms of each score that has some.
SCORES = {"log_likelihood": None, "tstr_accuracy": (0.0, 1.0), "tstr_log_loss": (math.log(0.01), 0.0)}


def check_score_bounds(scoring, score_bounds):
    """Return (low, high); ValueError where they are missing or wrong."""
    known = SCORES.get(scoring) if isinstance(scoring, str) else None
    if score_bounds is None:
        if known is None:
            raise ValueError(
                "score_bounds=(low, high) is needed: the public range that the score of one record is clipped to; "
                'only scoring="tstr_accuracy" and "tstr_log_loss" have known ranges'
            )
        return known
    sides = as_numbers(score_bounds, "score_bounds")
    low, high = sides.tolist() if sides.shape == (2,) else (math.nan, math.nan)
    if not (-1e100 <= low < high <= 1e100 and high - low >= 1e-100):
        raise ValueError(
            f"score_bounds must be (low, high), finite, low below high (by 1e-100 to 1e100); got {shown(score_bounds)}"
        )
    if high - low < _LEAST_WIDTH * max(-low, high):
        raise ValueError(
            "score_bounds are too narrow for their size: the rounding of scores would count as their signal; got "
            f"{shown(score_bounds)}. Give bounds whose distance is at least 1/512 of the larger one"
        )
    return low, high


def bounded_score(terms, score_bounds, unit_sizes=None):
    """Sum (u_i, 1) over the records, u_i the term of a record clipped to its bounds and moved to [-1/2, 1/2].

    `terms` (n_samples,): NaN counts as the lower bound.
    `unit_sizes` (n_samples,): where units count 1, the number of rows m scored of the unit of each record, whose weight
        is then 1/m.
    Returns: `value` of shape (2,), in steps of the lattice; weights (1, w). A record moves the weighted sum by at most
        sqrt(1/4 + w^2); replacing one by at most 1 (the count cancels); a thousandth more is for rounding.

    Steps of u_i / m and of 1/m are rounded towards zero, as whole numbers. So the second is at most 1/m, the first at
    most half the second, and a record of weight 1/m adds no more than 1/m of what one of weight 1 may add.
    """
    steps, one = np.trunc(_unit_terms(terms, score_bounds) * (1 / _LATTICE)).astype(np.int64), round(1 / _LATTICE)
    counts = np.full(len(steps), one, dtype=np.int64)
    if unit_sizes is not None:
        steps, counts = np.sign(steps) * (np.abs(steps) // unit_sizes), one // unit_sizes
    value = np.array([steps.sum(), counts.sum()], dtype=np.int64)
    return BoundedSum(
        value,
        add_or_remove_one=_SLACK * (0.25 + SCORE_COUNT_WEIGHT**2) ** 0.5,
        replace_one=_SLACK,
        weights=np.array([1.0, SCORE_COUNT_WEIGHT]),
        lattice=_LATTICE,
        weighted=unit_sizes is not None,
    )


def _unit_terms(terms, score_bounds):
    low, high = score_bounds
    terms = np.asarray(terms, dtype=np.float64)
    return (np.clip(np.where(np.isnan(terms), low, terms), low, high) - low) / (high - low) - 0.5


def same_terms(one, other, score_bounds):
    """Whether two evaluations of the same records are equal, except for rounding in double precision."""
    gap = np.abs(_unit_terms(one, score_bounds) - _unit_terms(other, score_bounds))
    return bool((gap <= _ROUNDING).all())


def held_terms(score, rows, labels, take, n_rows, low):
    """Return one term for each record, even if the scorer fails on some of them.

    A scorer that raises, or gives another number of terms than there are records, is called again for each half: the
    records that it cannot score count as `low`. An error or a missing term would release something about a record
    without a charge.

    `score`: (X, y) -> terms, as from `score_function`. `rows`, `labels`: private. `take`: (X, indices) -> the rows of
    X. Returns an array of shape (n_rows,).
    """
    terms, parts = np.full(n_rows, float(low)), [(0, n_rows)] if n_rows else []
    while parts:
        start, stop = parts.pop()
        where = np.arange(start, stop)
        try:
            scored = np.asarray(score(take(rows, where), take(labels, where)), dtype=np.float64)
        except Exception:
            scored = None
        if scored is not None and scored.shape == where.shape:
            terms[start:stop] = scored
        elif len(where) > 1:
            middle = (start + stop) // 2
            parts += [(start, middle), (middle, stop)]
    return terms


def score_function(scoring, estimator):
    """Return (X, y) -> one score for each record (higher is better), a function of it and of the released model.

    `scoring`: "tstr_...": score of a logistic regression trained once on rows that the model draws. A callable maps
    (estimator, X, y) to an array of shape (n_samples,). Returns the function of records (X, y), with values of shape
    (n_samples,).
    """
    if callable(scoring):
        return lambda X, y: np.asarray(scoring(estimator, X, y))
    if scoring == "log_likelihood":
        return _log_likelihood(estimator)
    return _train_on_synthetic(estimator, log_loss=scoring == "tstr_log_loss")


def score_terms(scoring, estimator, X, y):
    """Return the scores of records by `score_function`, float64 of shape (n_samples,)."""
    return np.asarray(score_function(scoring, estimator)(X, y), dtype=np.float64)


def _log_likelihood(estimator):
    score = getattr(estimator, "score_samples", None)
    if score is None:
        score = estimator.model_.score_samples
    if "y" in inspect.signature(score).parameters:
        return lambda X, y: np.asarray(score(X, y))
    return lambda X, y: np.asarray(score(X))


def _train_on_synthetic(estimator, log_loss):
    drawn, target = estimator.sample(_SYNTHETIC_ROWS), None
    if isinstance(drawn, tuple):
        rows, labels = drawn
    else:
        target = estimator.get_params(deep=False)["target"]
        rows, labels = drawn.drop(columns=target), drawn[target]
    rows, labels = _plain_columns(rows), _texts(labels)
    classifier = _classifier(rows) if len(set(labels)) > 1 else DummyClassifier()
    classifier.fit(rows, labels)
    place = {label: k for k, label in enumerate(classifier.classes_)}

    def terms(X, y):
        if target is not None:
            X, y = X.drop(columns=target), X[target]
        X, y = _plain_columns(X), _texts(y)
        if not log_loss:
            return (classifier.predict(X) == y).astype(np.float64)
        codes = np.array([place.get(label, -1) for label in y], dtype=np.int64)
        chances = classifier.predict_proba(X)[np.arange(len(y)), codes]
        return np.log(np.where(codes < 0, 1e-300, np.maximum(chances, 1e-300)))

    return terms


def _texts(values):
    """Each value as text by itself: without a dtype that a missing value among the others would change."""
    values = pd.Series(values).astype(object).to_numpy()
    return np.array(["" if pd.isna(value) else str(value) for value in canonical_rows(values)], dtype=object)


def _plain_columns(X):
    """Columns as numbers or texts, each value by itself."""
    if not isinstance(X, pd.DataFrame):
        return pd.DataFrame(np.asarray(X, dtype=np.float64)).rename(columns=str)
    columns = {}
    for name, column in X.items():
        if pd.api.types.is_datetime64_any_dtype(column.dtype):
            stamps = column.to_numpy(dtype="datetime64[s]")
            columns[str(name)] = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64).astype(np.float64))
        elif pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype):
            columns[str(name)] = column.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            columns[str(name)] = _texts(column)
    return pd.DataFrame(columns)


def _classifier(rows):
    numeric = [name for name in rows.columns if rows[name].dtype == np.float64]
    other = [name for name in rows.columns if name not in numeric]
    scale = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
    encode = make_column_transformer((scale, numeric), (OneHotEncoder(handle_unknown="ignore"), other))
    return make_pipeline(encode, LogisticRegression(max_iter=300))
