"""Can a classifier tell synthetic rows from real ones? pMSE and the AUROC of detection."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.preprocessing import StandardScaler

from ._samples import numeric_matrices, paired_frames

__all__ = ["PMSE", "detection_auroc", "pmse"]


def detection_auroc(real, synthetic, *, schema=None, classifier=None, n_folds=3, random_state=0):
    """AUROC of a classifier that is to tell synthetic rows from real ones, on rows that it was not trained on.

    Parameters
    ----------
    real, synthetic : DataFrame, array of shape (n_rows, ...), or pair (X, y)
        With the same columns.
    schema : Schema, default=None
        Says which columns are categories; None tells it from the dtypes of `real`.
    classifier : classifier, default=None
        None is scikit-learn's histogram gradient boosting.
    n_folds : int, default=3
        Of cross-validation.
    random_state : int, RandomState or None, default=0
        Of the folds and the default classifier.

    Returns
    -------
    auroc : float
        .5: no better than a guess. 1: every row is told. Below .5 is chance.

    Notes
    -----
    **Leak.** Computed from real rows without noise: showing it to anyone but the data holder leaks about them, and no
    budget is charged for it.
    """
    Z, origin = _told_apart(real, synthetic, schema)
    if min(np.bincount(origin)) < n_folds:
        raise ValueError(f"detection needs at least n_folds={n_folds} real and synthetic rows")
    if classifier is None:
        classifier = HistGradientBoostingClassifier(random_state=random_state)
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
    told = cross_val_predict(clone(classifier), Z, origin, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(origin, told))


class PMSE(NamedTuple):
    """Mean squared error of propensities.

    Attributes
    ----------
    pmse : float
        0: no row is told; at most c (1 - c), .25 for equally many rows.
    ratio : float
        Over what it is on average where both are draws of one law: near 1 for perfect synthetic rows.
    """

    pmse: float
    ratio: float


def pmse(real, synthetic, *, schema=None):
    """Mean squared difference of the propensity of being synthetic from the share of synthetic rows.

    Propensities are those of a logistic regression on the encoded columns and their squares, fitted without penalty
    to speak of on the rows that it judges: the classical measure of utility.

    Parameters
    ----------
    real, synthetic, schema
        As for ``detection_auroc``.

    Returns
    -------
    PMSE
        ``pmse`` and ``ratio``, a named tuple of floats.

    Notes
    -----
    **Leak.** Computed from real rows without noise: showing it to anyone but the data holder leaks about them, and no
    budget is charged for it.

    With k - 1 independent columns and N rows of which a share c is synthetic, two independent draws of one law give
    (k - 1) c (1 - c) / N on average, as the projection of N coins on k - 1 directions; `ratio` is over that. (The
    reference takes the real rows for given, which leaves 1 - c of it.) More columns than rows leave it without meaning.

    References
    ----------
    J. Snoke, G. Raab, B. Nowok, C. Dibben, A. Slavkovic, "General and specific utility measures for synthetic data",
    JRSS A 181, 2018.
    """
    Z, origin = _told_apart(real, synthetic, schema)
    binary = np.array([len(np.unique(column)) <= 2 for column in Z.T])
    Z = np.column_stack([Z, np.square(Z[:, ~binary])])
    Z = Z[:, Z.std(axis=0) > 1e-12]
    c, n = origin.mean(), len(origin)
    if not Z.shape[1]:
        return PMSE(0.0, 0.0)
    Z = StandardScaler().fit_transform(Z)
    # one-hot blocks depend on one another: the rank counts, not the columns
    values = np.linalg.eigvalsh(Z.T @ Z)
    rank = int((values > 1e-9 * values[-1]).sum())
    with warnings.catch_warnings():
        # of rows that can all be told, the coefficients grow for ever; their propensities are then 0 and 1 long since
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=1e3, max_iter=500, tol=1e-3).fit(Z, origin)
    error = float(np.mean(np.square(model.predict_proba(Z)[:, 1] - c)))
    expected = rank * c * (1 - c) / n
    return PMSE(error, float(error / expected))


def _told_apart(real, synthetic, schema):
    real, synthetic = paired_frames(real, synthetic)
    parts = numeric_matrices(real, synthetic, schema)
    return np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])
