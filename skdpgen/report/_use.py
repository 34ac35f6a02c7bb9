"""The section on use: a model that was trained on synthetic rows predicts a column of real ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score

from ..metrics._tstr import _by_name, _default_estimator, _encoder, _guess, _split, protocol_regressors
from ._page import table

# Classes whose recall is listed.
_MOST_CLASSES = 50
_NAMES = ("real rows", "synthetic rows")
# Most rows of a tree of the forest, most columns of a split, and most columns of categories in all: a page is to take
# seconds, not minutes (a forest of 15,000 rows of 100 columns: 5 s in place of 55).
_ROWS_OF_A_TREE, _COLUMNS_OF_A_SPLIT, _COLUMNS = 5_000, 100, 800
_BASELINE = "baseline"


class Scored(NamedTuple):
    """Scores of models trained on real and on synthetic rows, of what needs no model, and tables of them as HTML.

    Of several models they are means; `each` has those of every model that was trained on synthetic rows, by name.
    """

    real: tuple
    synthetic: tuple
    without: tuple
    tables: list
    each: dict


def of_classes(real, synthetic, test, target, classifier=None):
    """Return the accuracies of a classifier, beside the share of the commonest class, and the recall of each class."""
    truth, guesses = test[target], []
    if isinstance(classifier, list | tuple | dict):
        raise TypeError("classifier= must be one classifier: several models are for a target of numbers")
    for rows in (real, synthetic):
        Z, y, Z_test = _encoded(rows, test, target)
        model = next(iter(_default_estimator(rows[target]).values())) if classifier is None else clone(classifier)
        one_class = is_classifier(model) and len(np.unique(y)) < 2
        guesses.append((_guess(Z, y, None) if one_class else model.fit(Z, y)).predict(Z_test))
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
    return Scored((scores[0],), (scores[1],), (without,), tables, {})


def of_numbers(real, synthetic, test, target, regressor=None):
    """Return R squared and mean absolute error of regressors, beside those of the mean of the real rows.

    `regressor`: None is ridge regression, a random forest of few rows a tree, and gradient boosting.
    """
    truth, found = test[target], []
    given = None if regressor is None else _by_name(regressor)
    if given is not None and _BASELINE in given:
        raise ValueError(f"classifier= must name no regressor {_BASELINE!r}: so is the figure without a model named")
    for rows in (real, synthetic):
        Z, y, Z_test = _encoded(rows, test, target)
        regressors = _regressors(*Z.shape) if given is None else given
        guesses = {name: clone(model).fit(Z, y).predict(Z_test) for name, model in regressors.items()}
        found.append({name: _errors(truth, guess) for name, guess in guesses.items()})
    without = _errors(truth, np.full(len(truth), float(np.mean(real[target]))))
    means = [tuple(map(float, np.mean(list(each.values()), axis=0))) for each in found]
    lines = [(name.replace("_", " "), *zip(*(each[name] for each in found))) for name in found[0]]
    if len(lines) > 1:
        lines.append(("mean of the regressors", *zip(*means)))
    rows = [(name, *r_squared, *error) for name, r_squared, error in lines]
    rows.append(("no model: always the mean of the real rows", without[0], "", without[1], ""))
    scores = ("R squared", f"mean absolute error, in units of {target}")
    header = ("regressor", *(f"{score}, trained on {rows}" for score in scores for rows in _NAMES))
    return Scored(*means, without, [table("Regression", header, rows)], found[1])


def _regressors(n_rows, n_columns):
    """The regressors of the benchmarks, the forest with a bounded cost."""
    regressors = protocol_regressors()
    features = min(1 / 3, _COLUMNS_OF_A_SPLIT / max(n_columns, 1))
    regressors["random_forest"].set_params(max_samples=min(1.0, _ROWS_OF_A_TREE / n_rows), max_features=features)
    return regressors


def _encoded(rows, test, target):
    """Training rows, encoded; their target; and test rows in the same encoding."""
    X, y = _split(rows, target)
    encode = _encoder(X, _COLUMNS)
    return encode.fit_transform(X), np.asarray(y), encode.transform(_split(test, target)[0])


def _errors(truth, guess):
    """R squared, to a few digits, for that of the mean is zero up to chance; and mean absolute error."""
    return round(float(r2_score(truth, guess)), 5) + 0.0, float(mean_absolute_error(truth, guess))


def _texts(values):
    return pd.Series(np.asarray(values, dtype=object)).astype(str)
