"""Two samples compared as a whole: detection, pMSE, precision and recall, density and coverage, Frechet distance."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances_chunked, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from ..utils.validation import as_numbers
from ._column_codes import ColumnCodes, takes_codes, with_codes
from ._samples import numeric_matrices, paired_frames


def detection_auroc(real, synthetic, *, schema=None, classifier=None, n_folds=3, random_state=0):
    """AUROC of a classifier that distinguishes synthetic rows from real ones, on rows that it was not trained on.

    Parameters
    ----------
    real, synthetic : DataFrame, array of shape (n_rows, ...), or pair (X, y)
        Tables with the same columns.
    schema : Schema, default=None
        Declares which columns are categories; None infers it from the dtypes of `real`.
    classifier : classifier, default=None
        None is scikit-learn's histogram gradient boosting, which takes categories as they are; other classifiers get
        them one-hot.
    n_folds : int, default=3
        Number of folds of the cross-validation.
    random_state : int, RandomState or None, default=0
        Seed of the folds and of the default classifier.

    Returns
    -------
    auroc : float
        .5: no better than guessing. 1: every synthetic row is recognised. Values below .5 occur by chance.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.
    """
    real, synthetic = paired_frames(real, synthetic, schema)
    if min(len(real), len(synthetic)) < n_folds:
        raise ValueError(f"detection needs at least n_folds={n_folds} real and synthetic rows")
    if classifier is None:
        classifier = HistGradientBoostingClassifier(random_state=random_state)
    if takes_codes(classifier):
        codes = ColumnCodes(real, schema)
        classifier, parts = with_codes(classifier, codes), (codes(real), codes(synthetic))
    else:
        parts = numeric_matrices(real, synthetic, schema)
    Z, origin = _labelled(parts)
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
    scores = cross_val_predict(clone(classifier), Z, origin, cv=folds, method="predict_proba")[:, 1]
    return float(roc_auc_score(origin, scores))


class PMSE(NamedTuple):
    """Mean squared error of propensities.

    Attributes
    ----------
    pmse : float
        0: no row is recognised; at most c (1 - c), .25 for equally many rows.
    ratio : float
        pmse over its expectation for two samples of one distribution: near 1 for perfect synthetic rows.
    """

    pmse: float
    ratio: float


def pmse(real, synthetic, *, schema=None):
    """Mean squared difference of the propensity of being synthetic from the share of synthetic rows.

    Propensities are those of a logistic regression on the encoded columns and their squares, fitted with a negligible
    penalty on the rows that it scores: the classical measure of utility.

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
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.

    With k - 1 independent columns and N rows of which a share c is synthetic, two independent samples of one
    distribution give (k - 1) c (1 - c) / N on average, as the projection of N independent binary variables on k - 1
    directions; `ratio` is the pMSE over that. (The reference treats the real rows as given, which leaves 1 - c of it.)
    With more columns than rows it has no meaning.

    References
    ----------
    J. Snoke, G. Raab, B. Nowok, C. Dibben, A. Slavkovic, "General and specific utility measures for synthetic data",
    JRSS A 181, 2018.
    """
    Z, origin = _labelled(numeric_matrices(*paired_frames(real, synthetic, schema), schema))
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
        # if all rows can be recognised, the coefficients grow without limit; the propensities have then reached 0 and 1
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(C=1e3, max_iter=500, tol=1e-3).fit(Z, origin)
    error = float(np.mean(np.square(model.predict_proba(Z)[:, 1] - c)))
    expected = rank * c * (1 - c) / n
    return PMSE(error, float(error / expected))


def _labelled(parts):
    return np.concatenate(parts), np.repeat([0, 1], [len(part) for part in parts])


# ---- precision, recall, density, coverage and the Frechet distance -------------------------------------------------
class PRDC(NamedTuple):
    """Precision, recall, density and coverage, floats in [0, 1] (density may be above)."""

    precision: float
    recall: float
    density: float
    coverage: float


def prdc(real, synthetic, *, n_neighbors=5, extractor=None, schema=None):
    """How realistic synthetic rows are (precision, density), and how much of the real ones they cover.

    A row is inside a sample if it is within the distance of some row of it to that row's k-th neighbour.

    Parameters
    ----------
    real, synthetic : array of shape (n_rows, ...), DataFrame, or pair (X, y)
        Distances are Euclidean: of arrays as they are (flattened), of frames standardised and one-hot by the real
        rows. As many rows of each make precision and recall comparable.
    n_neighbors : int, default=5
        Number of neighbours, k.
    extractor : callable, default=None
        Maps both to features of shape (n_rows, n_features) first, for example those of a classifier of images.
    schema : Schema, default=None
        Of frames: says which columns are categories.

    Returns
    -------
    PRDC
        ``precision``: share of synthetic rows inside the real sample. ``recall``: share of real rows inside the
        synthetic one. ``density``: real balls that hold a synthetic row, over k; robust to outliers, may be above 1.
        ``coverage``: share of real rows whose ball holds a synthetic row.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it. Distances to
    nearest real rows are exactly what a copied row would show.

    References
    ----------
    T. Kynkaanniemi, T. Karras, S. Laine, J. Lehtinen, T. Aila, "Improved precision and recall metric for assessing
    generative models", NeurIPS 2019. M. Naeem, S. Oh, Y. Uh, Y. Choi, J. Yoo, "Reliable fidelity and diversity
    metrics for generative models", ICML 2020.
    """
    real, synthetic = _features(real, synthetic, extractor, schema)
    if min(len(real), len(synthetic)) <= n_neighbors:
        raise ValueError(f"n_neighbors={n_neighbors} needs more rows than that in both samples")
    radius_real, radius_synthetic = (_radii(rows, n_neighbors) for rows in (real, synthetic))
    inside_real = np.zeros(len(synthetic), dtype=np.int64)
    nearest, recalled = [], []
    for distances in pairwise_distances_chunked(real, synthetic):
        rows = slice(len(nearest), len(nearest) + len(distances))
        inside_real += (distances <= radius_real[rows, None]).sum(axis=0)
        recalled.append((distances <= radius_synthetic).any(axis=1))
        nearest.extend(distances.min(axis=1))
    return PRDC(
        float((inside_real > 0).mean()),
        float(np.concatenate(recalled).mean()),
        float(inside_real.mean() / n_neighbors),
        float((np.array(nearest) <= radius_real).mean()),
    )


def frechet_distance(real, synthetic, *, extractor=None, schema=None):
    """Frechet distance of the Gaussians with the means and covariances of two samples' features.

    Parameters
    ----------
    real, synthetic : array of shape (n_rows, ...), DataFrame, or pair (X, y)
        Two rows at least of each.
    extractor : callable, default=None
        Maps rows to features of shape (n_rows, n_features). With InceptionV3's pooled features the figure is the FID;
        with others it is not, and is to be named after them. None takes arrays as they are, frames standardised.
    schema : Schema, default=None
        Of frames: says which columns are categories.

    Returns
    -------
    distance : float
        ``|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2))``, 0 for equal moments. Biased upwards for few rows.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.

    References
    ----------
    M. Heusel, H. Ramsauer, T. Unterthiner, B. Nessler, S. Hochreiter, "GANs trained by a two time-scale update rule
    converge to a local Nash equilibrium", NeurIPS 2017.
    """
    real, synthetic = _features(real, synthetic, extractor, schema)
    if min(len(real), len(synthetic)) < 2:
        raise ValueError("covariances need at least two rows of each sample")
    (mean, root), (mean_2, root_2) = map(_moments, (real, synthetic))
    # tr (C1 C2)^(1/2) is the sum of the singular values of R1^T R2, where C = R R^T: no root of a product is taken
    cross = np.linalg.svd(root.T @ root_2, compute_uv=False).sum()
    distance = np.square(mean - mean_2).sum() + np.square(root).sum() + np.square(root_2).sum() - 2 * cross
    return float(max(distance, 0.0))


def _features(real, synthetic, extractor, schema):
    if extractor is not None:
        parts = [as_numbers(extractor(rows), "features", "") for rows in (real, synthetic)]
        parts = [part.reshape(len(part), -1) for part in parts]
    else:
        tables = isinstance(real, tuple) or hasattr(real, "columns")
        frames = paired_frames(real, synthetic, schema)
        if tables:
            parts = numeric_matrices(*frames, schema)
        else:
            parts = [as_numbers(frame, "an array of rows", "") for frame in frames]
    if parts[0].shape[1] != parts[1].shape[1]:
        raise ValueError(
            f"both samples must have one number of features; got {parts[0].shape[1]} and {parts[1].shape[1]}"
        )
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError("features must be finite numbers: drop or impute missing values in both samples")
    return parts


def _radii(rows, n_neighbors):
    """Distance of each row to its k-th neighbour among the others."""
    return NearestNeighbors(n_neighbors=n_neighbors).fit(rows).kneighbors()[0][:, -1]


def _moments(rows):
    """Mean, and a root R of the covariance C = R R^T, of shape (n_features, rank)."""
    mean = rows.mean(axis=0)
    if len(rows) <= rows.shape[1]:
        return mean, (rows - mean).T / (len(rows) - 1) ** 0.5
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(rows, rowvar=False)))
    return mean, vectors * np.sqrt(np.maximum(values, 0.0))
