"""The section on use: a model that was trained on synthetic rows predicts a column of real ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score

from ..metrics._tstr import _default_estimator, _encoder, _guess, _split
from ._page import table

__all__ = ["Scored", "of_classes", "of_numbers"]

# Classes whose recall is listed.
_MOST_CLASSES = 50
_NAMES = ("real rows", "synthetic rows")


class Scored(NamedTuple):
    """Scores of models trained on real and on synthetic rows, of what needs no model, and tables of them as HTML."""

    real: tuple
    synthetic: tuple
    without: tuple
    tables: list


def of_classes(real, synthetic, test, target, classifier=None):
    """Return the accuracies of a classifier, beside the share of the commonest class, and the recall of each class."""
    truth, guesses = _predicted(real, synthetic, test, target, classifier)
    commonest = _texts(real[target]).value_counts().index[0]
    truth, *guesses = map(_texts, (truth, *guesses))
    scores = [float(accuracy_score(truth, guess)) for guess in guesses]
    without = float((truth == commonest).mean())
    rows = [*zip(_NAMES, scores), (f"no model: always the commonest class of the real rows, {commonest}", without)]
    tables = [table("Accuracy", ("trained on", "accuracy"), rows)]
    counts = truth.value_counts()
    if 2 < len(counts) <= _MOST_CLASSES:
        recall = [pd.Series(guess.to_numpy() == truth.to_numpy()).groupby(truth.to_numpy()).mean() for guess in guesses]
        rows = [(name, int(count), *(float(part[name]) for part in recall)) for name, count in counts.items()]
        header = ("class", "test rows", "recall, trained on real", "recall, trained on synthetic")
        tables.append(table("Classes: share of the test rows that are recognised", header, rows))
    return Scored((scores[0],), (scores[1],), (without,), tables)


def of_numbers(real, synthetic, test, target, regressor=None):
    """Return R squared and mean absolute error of a regressor, beside those of the mean of the real rows."""
    truth, guesses = _predicted(real, synthetic, test, target, regressor)
    guesses.append(np.full(len(truth), float(np.mean(real[target]))))
    scores = [(_score(truth, guess), float(mean_absolute_error(truth, guess))) for guess in guesses]
    names = (*_NAMES, "no model: always the mean of the real rows")
    rows = [(name, *score) for name, score in zip(names, scores)]
    header = ("trained on", "R squared", f"mean absolute error, in units of {target}")
    return Scored(*scores, [table("Regression", header, rows)])


def _predicted(real, synthetic, test, target, estimator):
    """Return the target of the test rows, and what models trained on real and on synthetic rows make of it."""
    X_test, truth = _split(test, target)
    guesses = []
    for rows in (real, synthetic):
        X, y = _split(rows, target)
        model = next(iter(_default_estimator(y).values())) if estimator is None else clone(estimator)
        encode = _encoder(X)
        Z, y = encode.fit_transform(X), np.asarray(y)
        one_class = is_classifier(model) and len(np.unique(y)) < 2
        fitted = _guess(Z, y, None) if one_class else model.fit(Z, y)
        guesses.append(fitted.predict(encode.transform(X_test)))
    return truth, guesses


def _score(truth, guess):
    """R squared; to a few digits, for that of the mean is zero up to chance."""
    return round(float(r2_score(truth, guess)), 5) + 0.0


def _texts(values):
    return pd.Series(np.asarray(values, dtype=object)).astype(str)
