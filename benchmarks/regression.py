"""Regressors trained on synthetic rows of tables with a numeric target, tested on real ones."""

from __future__ import annotations

import numpy as np

from skdpgen.metrics import one_way_tvd, tstr_regression, two_way_tvd

from .development import development_table
from .models import REAL, find_model
from .tables import TABLE_SEEDS, _synthesize, split_rows

__all__ = ["regression_benchmark"]


def regression_benchmark(
    table="diamonds",
    models=(REAL, "P3GMSynthesizer", "MomentSynthesizer"),
    *,
    seeds=TABLE_SEEDS,
    epsilon=1.0,
    delta=1e-5,
    learned_schema=False,
    development=False,
    regressors=None,
    rows=None,
    device="cpu",
):
    """Fit synthesizers on one table, sample, and train regressors on the samples; one result a seed and model.

    The results are exact functions of real rows: these tables are public, others' results are not.

    Parameters
    ----------
    table : str, default="diamonds"
        One of `development.NUMERIC_TARGETS`.
    models : sequence of str or callable
        Names of `benchmarks.models.models_that_sample`; "real data" evaluates the training rows themselves. A callable
        is called with the keywords ``epsilon``, ``delta``, ``target`` and ``schema``.
    seeds : iterable of int, default=(0, 1, 2, 3, 4)
        One split of the rows each.
    epsilon, delta : float
        Budget of one fit.
    learned_schema : bool, default=False
        Declare nothing: everything is learned under the same budget.
    development : bool, default=False
        Evaluate on a part of the training rows and never read the test rows.
    regressors : dict of str to regressor, default=None
        None is ridge regression, a random forest, and gradient boosting.
    rows : int, default=None
        Training rows at most: the first of the random order. None is all.
    device : str, default="cpu"
        Where nets are trained.

    Yields
    ------
    result : dict
        ``data``, ``seed``, ``model``, ``r2`` and ``mae`` (means over the regressors, the second in units of the
        target), ``two_way_tvd``, ``one_way_tvd``, ``fit_seconds``, ``sample_seconds``, ``epsilon`` (of the card,
        recomputed from its events) and ``delta``, ``epsilon_asked``, ``rows``, ``learned_schema``, ``development`` and
        ``regressors``, each one's errors.
    """
    bunch = development_table(table, as_number=True)
    for seed in seeds:
        train, test = split_rows(bunch.frame, seed)
        if development:
            train, test = split_rows(train, seed)
        train = train if rows is None else train.head(rows)
        for model in models:
            name, synthetic, cost = model, train, {"epsilon": None, "delta": None}
            if model != REAL:
                budget = {"epsilon": epsilon, "delta": delta}
                found = find_model(model) if isinstance(model, str) else model
                how = (learned_schema, budget, device, len(train))
                name, synthetic, cost = _synthesize(found, table, train, bunch, *how)
            report = tstr_regression(synthetic, test, target=bunch.target, regressors=regressors)
            yield {
                "data": table,
                "seed": int(seed),
                "model": name,
                **{score: float(np.mean([of[score] for of in report.values()])) for score in ("r2", "mae")},
                "two_way_tvd": two_way_tvd(train, synthetic, bunch.schema),
                "one_way_tvd": one_way_tvd(train, synthetic, bunch.schema),
                **cost,
                "epsilon_asked": None if model == REAL else float(epsilon),
                "rows": len(train),
                "learned_schema": bool(learned_schema),
                "development": bool(development),
                "regressors": report,
            }
