"""Tables by the protocol of P3GM's paper, and a private search on one of them."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skdpgen import datasets
from skdpgen.datasets import load_adult
from skdpgen.metrics import one_way_tvd, protocol_classifiers, three_way_tvd, tstr_report, two_way_tvd
from skdpgen.tabular import Numeric, TableEncoder

from .development import DEVELOPMENT_TABLES, development_table
from .models import CLASSIFIER, REAL, Model, find_model, verified_epsilon
from .peers import find_peer

__all__ = [
    "CANDIDATES",
    "DEVELOPMENT_SEEDS",
    "TABLES",
    "TABLE_SEEDS",
    "search_benchmark",
    "split_rows",
    "table_benchmark",
]

TABLE_SEEDS = (0, 1, 2, 3, 4)
DEVELOPMENT_SEEDS = (100, 101, 102, 103, 104)
# Name of a table, and of its loader in `skdpgen.datasets`.
TABLES = {
    "adult": "load_adult",
    "esr": "load_esr",
    "isolet": "load_isolet",
    "credit": "load_creditcard_subset",
}


# Tables of three columns that a distance is the mean of, at most; 15 columns have 455.
_MOST_TRIPLES = 500


def split_rows(frame, seed, *, test_fraction=0.1):
    """Random training and test rows.

    Parameters
    ----------
    frame : DataFrame of shape (n_rows, n_columns)
    seed : int
    test_fraction : float, default=0.1

    Returns
    -------
    train, test : DataFrame
        Disjoint; `test` has ``round(test_fraction * n_rows)`` rows.
    """
    order = np.random.default_rng(seed).permutation(len(frame))
    n_test = round(test_fraction * len(frame))
    parts = (order[n_test:], order[:n_test])
    return tuple(frame.iloc[rows].reset_index(drop=True) for rows in parts)


def table_benchmark(
    table="adult",
    models=("P3GMSynthesizer",),
    *,
    seeds=TABLE_SEEDS,
    epsilon=1.0,
    delta=1e-5,
    learned_schema=False,
    development=False,
    classifiers=None,
    rows=None,
    judge_all=False,
    device="cpu",
    data=None,
    peer_python=None,
):
    """Fit synthesizers on one table, sample, and evaluate; one result a seed and model.

    The results are exact functions of real rows: these tables are public, others' results are not.

    Parameters
    ----------
    table : {"adult", "esr", "isolet", "credit"} or key of `DEVELOPMENT_TABLES`, default="adult"
    models : sequence of str, Model or callable, default=("P3GMSynthesizer",)
        Names of `benchmarks.models`, of synthesizers in `skdpgen.synthesizers` or of `benchmarks.peers`;
        "real data" evaluates the training rows themselves, the reference of every table; "DPNetClassifier" is trained
        on them by DP-SGD, its scores stand in the place of the classifiers' and of marginals it has none. A callable is
        called with the
        keywords ``epsilon`` and ``delta`` and what is public: ``target`` and ``schema``, or, for a table of numbers
        alone, ``bounds`` and ``classes``. It returns an object with ``fit(frame)`` and ``sample(n_rows)`` that gives a
        frame, or ``fit(X, y)`` and a `sample` that gives both.
    seeds : iterable of int, default=(0, 1, 2, 3, 4)
        One split of the rows each.
    epsilon, delta : float
        Budget of one fit.
    learned_schema : bool, default=False
        Declare nothing: everything is learned under the same budget.
    development : bool, default=False
        Evaluate on a part of the training rows and never read the test rows: for choosing defaults.
    classifiers : dict of str to classifier, default=None
        None is the protocol's four.
    rows : int, default=None
        Training rows at most: the first of the random order. None is all.
    judge_all : bool, default=False
        Whether marginals are compared with those of all training rows, whatever `rows` is, and as many synthetic rows
        are drawn: how near a fit of few rows comes to where they are from.
    device : str, default="cpu"
        Where nets are trained, by the models of `MODELS` that train one.
    data : str or path, default=None
        Folder of the data, as for the loaders.
    peer_python : str or list of str, default=None
        Interpreters of the environments that hold peers; None reads SKDPGEN_PEERS_PYTHON.

    Yields
    ------
    result : dict
        ``data`` (the name of the table), ``seed``, ``model``, ``auroc``, ``auprc`` (means over the classifiers),
        ``three_way_tvd``, ``two_way_tvd``, ``one_way_tvd`` (to the training rows, or to all of them; with real rows
        also ``three_way_tvd_of_halves`` and so on, of one half of them to the other), ``fit_seconds``,
        ``sample_seconds``, ``epsilon`` (of the card, recomputed from its events; None without a card) and ``delta``,
        ``epsilon_asked``, ``rows``, ``learned_schema``, ``development`` and ``classifiers``, each one's scores. With
        the credit cards also ``auroc_extra`` and ``auprc_extra``, on the rows that are richer in frauds.

    Raises
    ------
    ImportError
        Before anything is fitted, where the protocol's classifiers cannot be had.

    References
    ----------
    S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, "P3GM", ICDE 2021, Tables V, VI and VIII.
    """
    if table not in {*TABLES, *DEVELOPMENT_TABLES}:
        raise ValueError(f"table must be one of {', '.join([*TABLES, *DEVELOPMENT_TABLES])}; got {table!r}")
    if classifiers is None and any(model != CLASSIFIER for model in models):
        protocol_classifiers()  # a missing package must not be found after a fit of an hour
    bunch = development_table(table) if table in DEVELOPMENT_TABLES else getattr(datasets, TABLES[table])(data)
    for seed in seeds:
        train, test = split_rows(bunch.frame, seed)
        if development:
            train, test = split_rows(train, seed)
        everyone = train
        train = train if rows is None else train.head(rows)
        judged = everyone if judge_all else train
        tests = {"": test} if development or "extra" not in bunch else {"": test, "_extra": bunch.extra}
        for model in models:
            name, budget = model, {"epsilon": epsilon, "delta": delta}
            if model == CLASSIFIER:
                reports, cost = _classify(train, tests, bunch, learned_schema, budget, device, seed)
                distances = {}
            else:
                synthetic, cost = train, {"epsilon": None, "delta": None}
                if model != REAL:
                    if isinstance(model, str):
                        model = find_peer(model, peer_python) or find_model(model)
                    name, synthetic, cost = _synthesize(
                        model, table, train, bunch, learned_schema, budget, device, len(judged)
                    )
                reports = tstr_report(
                    synthetic, tests, target=bunch.target, positive=bunch.positive, classifiers=classifiers
                )
                distances = _distances(judged, synthetic, bunch.schema)
                if model == REAL:
                    halves = split_rows(judged, seed, test_fraction=0.5)
                    by_chance = _distances(*halves, bunch.schema)
                    distances.update({f"{name}_of_halves": value for name, value in by_chance.items()})
            yield {
                "data": table,
                "seed": int(seed),
                "model": name,
                **{
                    score + suffix: float(np.mean([scores[score] for scores in report.values()]))
                    for suffix, report in reports.items()
                    for score in ("auroc", "auprc")
                },
                **distances,
                **cost,
                "epsilon_asked": None if model == REAL else float(epsilon),
                "rows": len(train),
                "learned_schema": bool(learned_schema),
                "development": bool(development),
                "classifiers": reports[""],
            }


def _distances(real, synthetic, schema):
    """Mean total variation distances of tables of three, two and one columns."""
    return {
        "three_way_tvd": three_way_tvd(real, synthetic, schema, max_tables=_MOST_TRIPLES, random_state=0),
        "two_way_tvd": two_way_tvd(real, synthetic, schema),
        "one_way_tvd": one_way_tvd(real, synthetic, schema),
    }


def _classify(train, tests, bunch, learned_schema, budget, device, seed):
    """Train a classifier on the rows by DP-SGD; its scores on each of the tests, and what it cost."""
    from skdpgen.nn import DPNetClassifier

    columns, numbers = _features(bunch)
    public = {} if learned_schema else {"classes": list(bunch.schema[bunch.target].categories)}
    classifier = DPNetClassifier(**budget, **public, device=device, random_state=seed)
    encode = FunctionTransformer()
    if numbers and not learned_schema:
        classifier.set_params(bounds=_bounds(bunch, columns))
    elif not numbers:  # a schema is public in any case: categories that nobody declared have no columns
        if learned_schema:
            raise ValueError(f"{CLASSIFIER} needs the schema of a table of categories")
        encode = TableEncoder(bunch.schema.select(columns))
        classifier.set_params(bounds=(-1, 1))
    start = time.perf_counter()
    model = make_pipeline(encode, classifier).fit(train[columns], train[bunch.target])
    cost = {
        "fit_seconds": time.perf_counter() - start,
        "epsilon": verified_epsilon(model[-1]),
        "delta": budget["delta"],
    }
    positive = list(model.classes_).index(bunch.positive)
    reports = {}
    for suffix, real in tests.items():
        truth, scores = real[bunch.target] == bunch.positive, model.predict_proba(real[columns])[:, positive]
        reports[suffix] = {
            "dp_sgd": {
                "auroc": float(roc_auc_score(truth, scores)),
                "auprc": float(average_precision_score(truth, scores)),
            }
        }
    return reports, cost


def _features(bunch):
    """Columns beside the target, and whether all of them are numbers."""
    columns = [name for name in bunch.schema if name != bunch.target]
    return columns, all(isinstance(bunch.schema[name], Numeric) for name in columns)


def _bounds(bunch, columns):
    return np.array([bunch.schema[name].bounds for name in columns], dtype=np.float64)


def _synthesize(model, table, train, bunch, learned_schema, budget, device, n_rows):
    """Fit and sample; return the model's name, a frame like the training rows, and what it cost."""
    columns, as_array = _features(bunch)
    if as_array:
        # numbers alone go in as an array, as one would give them to scikit-learn
        public = {"bounds": _bounds(bunch, columns), "classes": list(bunch.schema[bunch.target].categories)}
        rows = (train[columns].to_numpy(dtype=np.float64), train[bunch.target].to_numpy())
        public = {} if learned_schema else public
    else:
        rows, public = (train,), {"target": bunch.target, "schema": None if learned_schema else bunch.schema}
    if isinstance(model, Model):
        synthesizer = model.make(table, device=device, **budget, **public)
    else:
        synthesizer = model(**budget, **public)
    start = time.perf_counter()
    synthesizer.fit(*rows)
    fitted = time.perf_counter()
    synthetic = synthesizer.sample(n_rows)
    sampled = time.perf_counter()
    cost = {
        "fit_seconds": fitted - start,
        "sample_seconds": sampled - fitted,
        "epsilon": verified_epsilon(synthesizer),
        "delta": budget["delta"],
        **getattr(synthesizer, "details_", {}),  # of a peer: what ran, and what it reads without protection
    }
    if as_array:
        synthetic = pd.DataFrame(synthetic[0], columns=columns).assign(**{bunch.target: synthetic[1]})[train.columns]
    return getattr(model, "name", type(synthesizer).__name__), synthetic, cost


# ---- private search ------------------------------------------------------------------------------------------------
CANDIDATES = [{"prior": ["auto"], "n_components": [3, 10, 30]}, {"prior": ["gaussian", "mixture"]}]


def search_benchmark(*, seeds=tuple(range(10)), epsilon=1.0, data=None, quick=False):
    """Fit every candidate at the whole budget, and search among them at that budget.

    Parameters
    ----------
    seeds : iterable of int
        Of the split in training and test rows.
    epsilon : float
        At delta 1e-5: of each candidate's fit, and of the search as a whole.
    data : str or path, default=None
        As for ``load_adult``.
    quick : bool, default=False
        4,000 training rows.

    Yields
    ------
    dict
        `model` ("one candidate", "PrivateSearchCV"), `candidate`, `auroc` and `auprc` of a logistic regression trained
        on synthetic rows and tested on real ones, `seconds`, `epsilon` recomputed from the card; of the search also
        `gain`, its AUROC less the mean of the candidates' on the same split.
    """
    from sklearn.model_selection import ParameterGrid

    from skdpgen.model_selection import PrivateSearchCV
    from skdpgen.synthesizers import P3GMSynthesizer

    bunch = load_adult(data)
    for seed in seeds:
        train, test = split_rows(bunch.frame, seed)
        train = train.head(4000) if quick else train
        template, candidates = P3GMSynthesizer(epsilon, target=bunch.target, schema=bunch.schema), []
        for parameters in ParameterGrid(CANDIDATES):
            judged = _judge_search(template.set_params(**{"n_components": "auto", **parameters}), train, test, bunch)
            candidates.append(judged["auroc"])
            yield {"seed": int(seed), "model": "one candidate", "candidate": parameters, **judged}
        template = P3GMSynthesizer(target=bunch.target, schema=bunch.schema)
        search = PrivateSearchCV(template, CANDIDATES, epsilon=epsilon, scoring="tstr_log_loss")
        judged = _judge_search(search, train, test, bunch)
        judged["gain"] = judged["auroc"] - float(np.mean(candidates))
        yield {"seed": int(seed), "model": "PrivateSearchCV", "candidate": search.best_params_, **judged}


def _judge_search(synthesizer, train, test, bunch):
    start = time.perf_counter()
    synthesizer.fit(train)
    seconds = time.perf_counter() - start
    report = tstr_report(
        synthesizer.sample(len(train)),
        test,
        target=bunch.target,
        positive=bunch.positive,
        classifiers={"logistic_regression": LogisticRegression(max_iter=1000)},
    )
    scores = report["logistic_regression"]
    cost = synthesizer.card_.verify()["fit"]["epsilon"]
    return {**{name: float(np.mean(scores[name])) for name in ("auroc", "auprc")}, "seconds": seconds, "epsilon": cost}
