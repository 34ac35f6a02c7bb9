"""Train on synthetic rows, test on real ones: the utility of a synthetic table for classification."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import AdaBoostClassifier, GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

__all__ = ["protocol_classifiers", "tstr_report", "tstr_score"]


def protocol_classifiers(random_state=0):
    """The four classifiers of P3GM's protocol for tables, unfitted.

    Parameters
    ----------
    random_state : int, default=0
        Seed of the classifiers.

    Returns
    -------
    classifiers : dict of str to classifier
        Logistic regression, AdaBoost, gradient boosting and XGBoost. XGBoost needs the
        extra ``bench`` (``pip install skdpgen[bench]``).

    Raises
    ------
    ImportError
        xgboost is not installed.
    """
    try:
        from xgboost import XGBClassifier
    except ImportError as error:
        raise ImportError("the protocol's fourth classifier needs xgboost: pip install skdpgen[bench]") from error
    return {
        # 1000 iterations let the default solver converge; the solution is that of the default parameters
        "logistic_regression": LogisticRegression(max_iter=1000),
        "adaboost": AdaBoostClassifier(random_state=random_state),
        "gradient_boosting": GradientBoostingClassifier(
            max_features="sqrt", max_depth=8, min_samples_leaf=50, min_samples_split=200, random_state=random_state
        ),
        "xgboost": XGBClassifier(random_state=random_state),
    }


def tstr_report(synthetic, real, *, target, positive, classifiers=None):
    """Scores of classifiers trained on synthetic rows and tested on real ones, one by one.

    The scores are computed from real rows without noise: showing them to anyone but the data
    holder leaks about the test rows, and no budget is charged for them.

    Parameters
    ----------
    synthetic : DataFrame of shape (n_rows, n_columns)
        Training rows. Passing the real training rows gives the reference.
    real : DataFrame of shape (n_test_rows, n_columns)
        Real rows that no synthesizer saw.
    target : str
        Name of the column to predict.
    positive : scalar
        Value of `target` that is the positive class; every other value is negative.
    classifiers : dict of str to classifier, default=None
        None is ``protocol_classifiers()``.

    Returns
    -------
    report : dict of str to dict
        For each classifier ``auroc`` and ``auprc`` (average precision). Synthetic rows of one
        class alone give chance: .5 and the rate of positives.
    """
    classifiers = protocol_classifiers() if classifiers is None else classifiers
    y_train = (synthetic[target] == positive).to_numpy().astype(np.int64)
    y_test = (real[target] == positive).to_numpy().astype(np.int64)
    if y_test.min() == y_test.max():
        raise ValueError("the test rows need both classes")
    if y_train.min() == y_train.max():
        chance = {"auroc": 0.5, "auprc": float(y_test.mean())}
        return {name: dict(chance) for name in classifiers}
    X_train, X_test = (frame.drop(columns=target) for frame in (synthetic, real))
    encode = _encoder(X_train)
    Z_train = encode.fit_transform(X_train)
    Z_test = encode.transform(X_test)
    report = {}
    for name, classifier in classifiers.items():
        score = make_pipeline(classifier).fit(Z_train, y_train).predict_proba(Z_test)[:, 1]
        report[name] = {
            "auroc": float(roc_auc_score(y_test, score)),
            "auprc": float(average_precision_score(y_test, score)),
        }
    return report


def tstr_score(synthetic, real, *, target, positive, classifiers=None):
    """Mean AUROC and AUPRC over classifiers trained on synthetic rows and tested on real ones.

    The scores are computed from real rows without noise: showing them to anyone but the data
    holder leaks about the test rows, and no budget is charged for them.

    Parameters
    ----------
    synthetic, real, target, positive, classifiers
        As for ``tstr_report``.

    Returns
    -------
    auroc, auprc : float
        Means over the classifiers.

    References
    ----------
    S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, "P3GM", ICDE 2021, Tables V and VI.
    """
    report = tstr_report(synthetic, real, target=target, positive=positive, classifiers=classifiers)
    auroc, auprc = (float(np.mean([scores[key] for scores in report.values()])) for key in ("auroc", "auprc"))
    return auroc, auprc


def _encoder(frame):
    """Numeric columns standardised, the others one-hot; both learned from the training rows."""
    numeric = [
        name
        for name in frame.columns
        if pd.api.types.is_numeric_dtype(frame[name]) and not pd.api.types.is_bool_dtype(frame[name])
    ]
    other = [name for name in frame.columns if name not in numeric]
    return make_column_transformer(
        (StandardScaler(), numeric),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), other),
    )
