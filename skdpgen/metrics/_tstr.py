"""Train on synthetic rows, test on real ones: the utility of a synthetic table for prediction."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.base import clone, is_classifier
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, get_scorer, mean_absolute_error, r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from ..utils.callers import warn_user
from ..utils.printing import shown
from ._column_codes import ColumnCodes, takes_codes, with_codes
from ._samples import MOST_LEVELS, as_frame, column_kind, each_distinct, to_numbers

# Share of the test rows with one class, above which accuracy says little.
_MOST_OF_ONE_CLASS = 0.8
# Most classes of whole numbers that are classified where no classifier is given.
_MOST_CLASSES = 100


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
        package xgboost-cpu (extra ``bench``).

    Raises
    ------
    ImportError
        xgboost is not installed.

    Notes
    -----
    **Leak.** Nothing: it reads no rows.
    """
    try:
        from xgboost import XGBClassifier
    except ImportError as error:
        raise ImportError("the protocol's fourth classifier needs xgboost: pip install xgboost-cpu") from error
    return {
        # 1000 iterations let the default solver converge; the solution is that of the default parameters
        "logistic_regression": LogisticRegression(max_iter=1000),
        "adaboost": AdaBoostClassifier(random_state=random_state),
        "gradient_boosting": GradientBoostingClassifier(
            max_features="sqrt", max_depth=8, min_samples_leaf=50, min_samples_split=200, random_state=random_state
        ),
        "xgboost": XGBClassifier(random_state=random_state),
    }


def tstr_report(synthetic, real, *, target=None, positive=None, classifiers=None, scoring=None):
    """Scores of classifiers or regressors trained on synthetic rows and tested on real ones, one by one.

    Parameters
    ----------
    synthetic : DataFrame of shape (n_rows, n_columns), or pair (X, y)
        Training rows. Passing the real training rows gives the reference.
    real : DataFrame of shape (n_test_rows, n_columns), pair (X, y), or dict of str to them
        Real rows that no synthesizer saw; several tests by name share what was trained.
    target : column name, default=None
        The column to predict; with pairs None, as y is it.
    positive : scalar, default=None
        Value of `target` that is the positive class; every other value is negative. None takes the target as it is:
        a number for regressors, any number of classes for classifiers.
    classifiers : classifier, regressor, list of them, or dict of str to them, default=None
        Without names they go by those of their classes, numbered where several are of one. None is
        ``protocol_classifiers()`` with `positive`, and histogram gradient boosting (of the kind of the target) without.
        Histogram gradient boosting takes categories as they are; other estimators get them one-hot.
    scoring : str or callable, default=None
        Scorer of scikit-learn. None gives AUROC and average precision with `positive`, else what the estimator's
        ``score`` gives: accuracy, or R squared. If over 80 % of the test rows have one class, accuracy says little, and
        a warning says so.

    Returns
    -------
    report : dict of str to dict
        For each estimator ``auroc`` and ``auprc`` (average precision), or ``score``. Synthetic rows of one
        class alone give chance: .5 and the rate of positives. Of several tests, one such report by each name.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.
    """
    classifiers = None if classifiers is None else _by_name(classifiers)
    X_train, y_train = _split(synthetic, target)
    tests = {name: _split(rows, target) for name, rows in (real if isinstance(real, dict) else {"": real}).items()}
    if positive is not None:
        y_train = (np.asarray(y_train) == positive).astype(np.int64)
        tests = {name: (X, (np.asarray(y) == positive).astype(np.int64)) for name, (X, y) in tests.items()}
        classifiers = protocol_classifiers() if classifiers is None else classifiers
        if any(y.min() == y.max() for _, y in tests.values()):
            raise ValueError(
                "the test rows must contain both classes of the target: give more test rows, or another positive="
            )
    else:
        if classifiers is None:
            classifiers = _default_estimator(y_train)
            _refuse_quantity(y_train, classifiers)
        y_train = np.asarray(y_train)
        tests = {name: (X, np.asarray(y)) for name, (X, y) in tests.items()}
        if scoring is None and any(map(is_classifier, classifiers.values())):
            _warn_of_accuracy([y for _, y in tests.values()])
    reports = {name: {} for name in tests}
    if positive is not None and scoring is None and y_train.min() == y_train.max():
        for test, (_, y) in tests.items():
            reports[test] = {name: {"auroc": 0.5, "auprc": float(y.mean())} for name in classifiers}
    else:
        score = _binary_scores if positive is not None and scoring is None else _score_with(scoring)
        shared = {}  # what is encoded serves all classifiers that take it so
        for name, classifier in classifiers.items():
            classifier, encode = encoded_for(classifier, X_train, shared)
            Z_train = encode(X_train)
            one_class = is_classifier(classifier) and len(np.unique(y_train)) < 2
            fitted = _guess(Z_train, y_train, positive) if one_class else classifier.fit(Z_train, y_train)
            for test, (X, y) in tests.items():
                reports[test][name] = score(fitted, encode(X), y)
    return reports if isinstance(real, dict) else reports[""]


def _refuse_quantity(y, classifiers):
    """Refuse whole numbers of very many values, for each of which boosting would grow trees for hours."""
    numbers = pd.api.types.is_integer_dtype(getattr(y, "dtype", np.asarray(y).dtype))
    if numbers and any(map(is_classifier, classifiers.values())) and pd.Series(y).nunique() > _MOST_CLASSES:
        raise ValueError(
            f"whole numbers are taken for classes, and the target has more than {_MOST_CLASSES} of them: for a "
            "quantity use tstr_regression, or classifiers=, such as a regressor"
        )


def _warn_of_accuracy(targets):
    """Warn that accuracy says little where nearly all test rows have one class."""
    counts = [pd.Series(y).value_counts(dropna=False) for y in targets]
    if any(len(found) > 1 and found.iloc[0] > _MOST_OF_ONE_CLASS * found.sum() for found in counts):
        warn_user(
            "the score is the accuracy, and most test rows have one class: a model that always predicts this class "
            "scores almost as high. Give positive=, the rare class, for AUROC and average precision; or scoring=, such "
            'as "balanced_accuracy"',
            UserWarning,
        )


def tstr_score(synthetic, real, *, target=None, positive=None, classifiers=None, scoring=None):
    """Train on synthetic rows, test on real ones: the mean score over classifiers or regressors.

    Parameters
    ----------
    synthetic, real, target, positive, classifiers, scoring
        As for ``tstr_report``; one test alone.

    Returns
    -------
    auroc, auprc : float
        With `positive` and no `scoring`: means over the classifiers.
    score : float
        Else: the mean of one score.

    See Also
    --------
    make_tstr_scorer : The same as a scorer of a synthesizer, for GridSearchCV.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.

    References
    ----------
    S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, "P3GM", ICDE 2021, Tables V and VI.
    """
    if isinstance(real, dict):
        raise TypeError("tstr_score takes one test; tstr_report takes several by name")
    report = tstr_report(
        synthetic, real, target=target, positive=positive, classifiers=classifiers, scoring=scoring
    ).values()
    if positive is not None and scoring is None:
        return tuple(float(np.mean([scores[key] for scores in report])) for key in ("auroc", "auprc"))
    return float(np.mean([scores["score"] for scores in report]))


def protocol_regressors(random_state=0):
    """Three regressors of different kinds for numeric targets, unfitted.

    Parameters
    ----------
    random_state : int, default=0
        Seed of the regressors.

    Returns
    -------
    regressors : dict of str to regressor
        Ridge regression, a random forest, and gradient boosting.

    Notes
    -----
    **Leak.** Nothing: it reads no rows.
    """
    return {
        "ridge": Ridge(),
        "random_forest": RandomForestRegressor(min_samples_leaf=5, random_state=random_state),
        "gradient_boosting": HistGradientBoostingRegressor(random_state=random_state),
    }


def tstr_regression(synthetic, real, *, target=None, regressors=None):
    """Train regressors on synthetic rows, test them on real ones: R squared and mean absolute error of each.

    Parameters
    ----------
    synthetic : DataFrame of shape (n_rows, n_columns), or pair (X, y)
        Training rows. Passing the real training rows gives the reference.
    real : DataFrame of shape (n_test_rows, n_columns), pair (X, y), or dict of str to them
        Real rows that no synthesizer saw; several tests by name share what was trained.
    target : column name, default=None
        The numeric column to predict; with pairs None, as y is it. Rows without it are left out.
    regressors : regressor, list of them, or dict of str to them, default=None
        Named as in ``tstr_report``. None is ``protocol_regressors()``.

    Returns
    -------
    report : dict of str to dict
        For each regressor ``r2`` (1 is best; 0 is what the mean of the test rows gives) and ``mae``, in units of the
        target. Of several tests, one such report by each name.

    Raises
    ------
    ValueError
        No synthetic row, or fewer than two test rows, have the target.

    See Also
    --------
    tstr_report : The same for classes.

    Notes
    -----
    **Leak.** Computed from private rows without protection, and no budget is charged: do not publish it.

    Examples
    --------
    The reference, which is to be compared with rows of a synthesizer in the place of the training rows:

    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> from skdpgen.metrics import tstr_regression
    >>> frame = load_diabetes(as_frame=True).frame
    >>> report = tstr_regression(frame.iloc[:300], frame.iloc[300:], target="target", regressors=Ridge())
    >>> report["Ridge"]["r2"] > 0.4, report["Ridge"]["mae"] < 50
    (True, True)
    """
    regressors = protocol_regressors() if regressors is None else _by_name(regressors)
    X_train, y_train = _with_numbers(*_split(synthetic, target))
    tests = real if isinstance(real, dict) else {"": real}
    tests = {name: _with_numbers(*_split(rows, target)) for name, rows in tests.items()}
    if not len(y_train) or any(len(y) < 2 for _, y in tests.values()):
        raise ValueError("the target must be present in one synthetic row and two real rows at least")
    encode = _encoder(X_train)
    Z_train = encode.fit_transform(X_train)
    encoded = {name: (encode.transform(X), y) for name, (X, y) in tests.items()}
    reports = {name: {} for name in tests}
    for name, regressor in regressors.items():
        fitted = clone(regressor).fit(Z_train, y_train)
        for test, (Z, y) in encoded.items():
            predicted = fitted.predict(Z)
            errors = {"r2": float(r2_score(y, predicted)), "mae": float(mean_absolute_error(y, predicted))}
            reports[test][name] = errors
    return reports if isinstance(real, dict) else reports[""]


class TSTRScorer:
    """Scorer of a fitted synthesizer; see ``make_tstr_scorer``."""

    def __init__(self, estimator, target, positive, scoring, n_samples, random_state):
        self.estimator, self.target, self.positive, self.scoring = estimator, target, positive, scoring
        self.n_samples, self.random_state = n_samples, random_state

    def __repr__(self):
        positive = "" if self.positive is None else f"positive={self.positive!r}, "
        return f"make_tstr_scorer({self.estimator!r}, {positive}scoring={self.scoring!r})"

    def __call__(self, synthesizer, X, y=None):
        """Return the score of an estimator trained on rows of `synthesizer` and tested on X (and y): private."""
        target = getattr(synthesizer, "target", None) if self.target is None else self.target
        synthetic = synthesizer.sample(self.n_samples, random_state=self.random_state)
        real = X if y is None else (X, y)
        target = target if y is None else None
        scoring, estimator = self.scoring, self.estimator
        if self.positive is not None:
            scoring = "roc_auc" if scoring is None else scoring
            # not the protocol's four, as without a positive class
            estimator = HistGradientBoostingClassifier(random_state=0) if estimator is None else estimator
        options = {"target": target, "positive": self.positive, "classifiers": estimator, "scoring": scoring}
        return tstr_score(synthetic, real, **options)


def make_tstr_scorer(estimator=None, *, target=None, positive=None, scoring=None, n_samples=None, random_state=0):
    """Make a scorer of synthesizers: train on what they sample, test on the rows that are given.

    Parameters
    ----------
    estimator : classifier or regressor, default=None
        Trained on synthetic rows (or several, as `tstr_report` takes them, of which the mean counts). None is gradient
        boosting, of the kind of the target.
    target : column name, default=None
        Column to predict, of a synthesizer fitted on frames without y; None is the synthesizer's own `target`.
    positive : scalar, default=None
        Value of the target that is the positive class; every other is negative. Scorers of two classes that are not
        0 and 1 need it, for example "f1" and "average_precision".
    scoring : str or callable, default=None
        Scorer of scikit-learn, for example "roc_auc"; None is that with `positive`, else the estimator's ``score``.
    n_samples : int, default=None
        Number of synthetic rows; None: the released row count.
    random_state : int or None, default=0
        Seed of the draw of synthetic rows.

    Returns
    -------
    scorer : callable
        ``scorer(synthesizer, X, y=None) -> float``, higher is better: ``GridSearchCV(synth, grid, scoring=scorer)``.

    Notes
    -----
    **Leak.** Scores, and any choice made by them, are computed from private rows without protection: do not publish
    them. To choose parameters soundly, use ``PrivateSearchCV`` or public rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skdpgen import P3GMSynthesizer
    >>> from skdpgen.metrics import make_tstr_scorer
    >>> X, y = load_digits(return_X_y=True)
    >>> synth = P3GMSynthesizer(10.0, bounds=(0, 16), classes=range(10)).fit(X[:1500], y[:1500])
    >>> scorer = make_tstr_scorer(LogisticRegression(max_iter=1000))
    >>> bool(scorer(synth, X[1500:], y[1500:]) > 0.5)
    True
    """
    return TSTRScorer(estimator, target, positive, scoring, n_samples, random_state)


def _split(rows, target):
    """X as a frame and y, of a frame with a target column or of a pair."""
    if isinstance(rows, tuple):
        if target is not None:
            raise ValueError("target names a column of a frame; a pair (X, y) has its own")
        X, y = rows
        return as_frame(X), y
    if target is None:
        raise ValueError("target= must name the column to predict, or the rows must be pairs (X, y)")
    frame = as_frame(rows)
    if target not in frame.columns:
        raise ValueError(f"target= {target!r} is not a column of the rows")
    return frame.drop(columns=target), frame[target]


def _with_numbers(X, y):
    """Rows whose target is a finite number, and that number."""
    y = to_numbers(pd.Series(y, name=getattr(y, "name", "y")), finite=True)
    if len(X) != len(y):
        raise ValueError(f"X and y must have one number of rows; got {len(X)} and {len(y)}")
    known = np.isfinite(y)
    return X[known], y[known]


def _guess(X, y, positive):
    """What one class alone teaches; with a positive class the other one is known, and has no share."""
    if positive is None:
        return DummyClassifier().fit(X, y)
    return DummyClassifier().fit(X[[0, 0]], [0, 1], sample_weight=np.array([1.0 - y[0], y[0]], dtype=float))


def _by_name(classifiers):
    """Estimators by name, of a dict, a sequence or one alone."""
    if not isinstance(classifiers, dict):
        listed = list(classifiers) if isinstance(classifiers, (list, tuple)) else [classifiers]
        names = [type(classifier).__name__ for classifier in listed]
        names = [f"{name}_{k}" if names.count(name) > 1 else name for k, name in enumerate(names, 1)]
        classifiers = dict(zip(names, listed))
    if not classifiers:
        raise ValueError("classifiers= contains no estimator: give one, a list of them, or a dict of names")
    if unnamed := [name for name in classifiers if not isinstance(name, str)]:
        raise TypeError(f"names of classifiers must be text; got {shown(unnamed[0])}")
    for classifier in classifiers.values():
        if isinstance(classifier, type) or not hasattr(classifier, "fit"):
            raise TypeError(f"classifiers must be estimators, one, several or by name; got {shown(classifier)}")
    return classifiers


def _default_estimator(y):
    if pd.api.types.is_float_dtype(getattr(y, "dtype", np.asarray(y).dtype)):
        return {"gradient_boosting": HistGradientBoostingRegressor(random_state=0)}
    return {"gradient_boosting": HistGradientBoostingClassifier(random_state=0)}


def _binary_scores(fitted, X, y):
    if hasattr(fitted, "predict_proba"):
        score = fitted.predict_proba(X)[:, 1]
    else:
        score = fitted.decision_function(X)
    return {"auroc": float(roc_auc_score(y, score)), "auprc": float(average_precision_score(y, score))}


def _score_with(scoring):
    def score(fitted, X, y):
        return {"score": float(fitted.score(X, y) if scoring is None else get_scorer(scoring)(fitted, X, y))}

    return score


def encoded_for(estimator, frame, shared=None):
    """Return a clone of an estimator, and the function that encodes frames for it, learned from training rows.

    `frame`: training rows. `shared`: keeps both encodings, and the frames that they encoded, for further estimators.
    """
    shared, coded = {} if shared is None else shared, takes_codes(estimator)
    if coded not in shared:
        shared[coded] = _Encoded(ColumnCodes(frame) if coded else _encoder(frame).fit(frame).transform)
    encode = shared[coded]
    return (with_codes(estimator, encode.function) if coded else clone(estimator)), encode


class _Encoded:
    """An encoding that encodes each frame once."""

    def __init__(self, function):
        self.function, self._done = function, {}

    def __call__(self, frame):
        if id(frame) not in self._done:  # the frame is kept, so that no other has its id
            self._done[id(frame)] = frame, self.function(frame)
        return self._done[id(frame)][1]


def _encoder(frame, most_columns=None):
    """Numeric columns standardised (missing ones at the mean), dates as numbers, the others one-hot.

    All of it learned from the training rows. Of more than `MOST_LEVELS` categories the rarer ones are one; of fewer,
    but at least 20, where the columns of all categories would be more than `most_columns`.
    """
    kinds = {name: column_kind(frame[name]) for name in frame.columns}
    numeric = [name for name, kind in kinds.items() if kind != "category"]
    other = [name for name, kind in kinds.items() if kind == "category"]
    most = MOST_LEVELS if most_columns is None else min(MOST_LEVELS, max(20, most_columns // max(len(other), 1)))
    return make_column_transformer(
        (
            make_pipeline(FunctionTransformer(_numbers), SimpleImputer(keep_empty_features=True), StandardScaler()),
            numeric,
        ),
        (
            make_pipeline(
                FunctionTransformer(_texts),
                OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=most, sparse_output=False),
            ),
            other,
        ),
    )


def _numbers(frame):
    columns = [to_numbers(frame[name], finite=True) for name in frame.columns]
    return np.column_stack(columns) if columns else frame.to_numpy()


def _texts(frame):
    columns = [each_distinct(frame[name], str, missing="") for name in frame.columns]
    return np.column_stack(columns) if columns else frame.to_numpy(dtype=object)
