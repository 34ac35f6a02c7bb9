"""Tables by the protocol of P3GM's paper: train on synthetic rows, test on real ones, compare marginals."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd

from skdpgen import datasets
from skdpgen.metrics import one_way_tvd, tstr_report, two_way_tvd
from skdpgen.tabular import Numeric

__all__ = ["DEVELOPMENT_SEEDS", "TABLES", "TABLE_SEEDS", "split_rows", "table_benchmark"]

TABLE_SEEDS = (0, 1, 2, 3, 4)
DEVELOPMENT_SEEDS = (100, 101, 102, 103, 104)
# Name of a table, and of its loader in `skdpgen.datasets`.
TABLES = {
    "adult": "load_adult",
    "esr": "load_esr",
    "isolet": "load_isolet",
    "credit": "load_creditcard_subset",
}
REAL = "real data"


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
    data=None,
):
    """Fit, sample and judge synthesizers on one table, one result a seed and model.

    The results are exact functions of real rows: these tables are public, others' results are not.

    Parameters
    ----------
    table : {"adult", "esr", "isolet", "credit"}, default="adult"
    models : sequence of str or callable, default=("P3GMSynthesizer",)
        Names of synthesizers in `skdpgen.synthesizers`; "real data" judges the training rows themselves, the reference
        of every table. A callable is called with the keywords ``epsilon`` and ``delta`` and what is public: ``target``
        and ``schema``, or, for a table of numbers alone, ``bounds`` and ``classes``. It returns an object with
        ``fit(frame)`` and ``sample(n_rows)`` that gives a frame, or ``fit(X, y)`` and a `sample` that gives both.
    seeds : iterable of int, default=(0, 1, 2, 3, 4)
        One split of the rows each.
    epsilon, delta : float
        Budget of one fit.
    learned_schema : bool, default=False
        Declare nothing: everything is learned under the same budget.
    development : bool, default=False
        Judge on a part of the training rows and never touch the test rows: for choosing defaults.
    classifiers : dict of str to classifier, default=None
        None is the protocol's four.
    data : str or path, default=None
        Folder of the data, as for the loaders.

    Yields
    ------
    result : dict
        ``seed``, ``model``, ``auroc``, ``auprc`` (means over the classifiers), ``two_way_tvd``, ``one_way_tvd``
        (against the training rows), ``fit_seconds``, ``sample_seconds``, ``epsilon`` and ``delta`` (of the card
        where the synthesizer has one: recomputed from its events), ``rows``, ``learned_schema``, ``development``
        and ``classifiers``, each one's scores. With the credit cards also ``auroc_extra`` and ``auprc_extra``, on
        the rows that are richer in frauds.

    References
    ----------
    S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, "P3GM", ICDE 2021, Tables V, VI and VIII.
    """
    if table not in TABLES:
        raise ValueError(f"table must be one of {', '.join(TABLES)}; got {table!r}")
    bunch = getattr(datasets, TABLES[table])(data)
    for seed in seeds:
        train, test = split_rows(bunch.frame, seed)
        if development:
            train, test = split_rows(train, seed)
        tests = {"": test} if development or "extra" not in bunch else {"": test, "_extra": bunch.extra}
        for model in models:
            if model == REAL:
                name, synthetic, cost = REAL, train, {"epsilon": np.inf, "delta": 0.0}
            else:
                name, synthetic, cost = _synthesize(model, train, bunch, learned_schema, epsilon, delta)
            reports = {
                suffix: tstr_report(
                    synthetic, rows, target=bunch.target, positive=bunch.positive, classifiers=classifiers
                )
                for suffix, rows in tests.items()
            }
            yield {
                "seed": int(seed),
                "model": name,
                **{
                    score + suffix: float(np.mean([scores[score] for scores in report.values()]))
                    for suffix, report in reports.items()
                    for score in ("auroc", "auprc")
                },
                "two_way_tvd": two_way_tvd(train, synthetic, bunch.schema),
                "one_way_tvd": one_way_tvd(train, synthetic, bunch.schema),
                **cost,
                "rows": len(train),
                "learned_schema": bool(learned_schema),
                "development": bool(development),
                "classifiers": reports[""],
            }


def _synthesize(model, train, bunch, learned_schema, epsilon, delta):
    """Fit and sample; return the model's name, a frame like the training rows, and what it cost."""
    from skdpgen import synthesizers

    make = getattr(synthesizers, model) if isinstance(model, str) else model
    columns = [name for name in bunch.schema if name != bunch.target]
    as_array = all(isinstance(bunch.schema[name], Numeric) for name in columns)
    if as_array:
        # numbers alone go in as an array, as one would give them to scikit-learn
        public = {
            "bounds": np.array([bunch.schema[name].bounds for name in columns], dtype=np.float64),
            "classes": list(bunch.schema[bunch.target].categories),
        }
        rows = (train[columns].to_numpy(dtype=np.float64), train[bunch.target].to_numpy())
        public = {} if learned_schema else public
    else:
        rows, public = (train,), {"target": bunch.target, "schema": None if learned_schema else bunch.schema}
    synthesizer = make(epsilon=epsilon, delta=delta, **public)
    start = time.perf_counter()
    synthesizer.fit(*rows)
    fitted = time.perf_counter()
    synthetic = synthesizer.sample(len(train))
    sampled = time.perf_counter()
    card = getattr(synthesizer, "card_", None)
    if card is not None:  # recomputed from the events; raises when they do not cost what the card says
        epsilon = card.verify()["fit"]["epsilon"]
    cost = {"fit_seconds": fitted - start, "sample_seconds": sampled - fitted, "epsilon": epsilon, "delta": delta}
    if as_array:
        synthetic = pd.DataFrame(synthetic[0], columns=columns).assign(**{bunch.target: synthetic[1]})[train.columns]
    return type(synthesizer).__name__, synthetic, cost
