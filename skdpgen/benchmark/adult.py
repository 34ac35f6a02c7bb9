"""Adult by the protocol of P3GM's tables: train on synthetic rows, test on real ones, compare marginals."""

from __future__ import annotations

import time

import numpy as np

from ..datasets import load_adult
from ..metrics import one_way_tvd, tstr_report, two_way_tvd

__all__ = ["DEVELOPMENT_SEEDS", "TABLE_SEEDS", "adult_benchmark", "split_rows"]

TABLE_SEEDS = (0, 1, 2, 3, 4)
DEVELOPMENT_SEEDS = (100, 101, 102, 103, 104)


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


def adult_benchmark(
    make_synthesizer=None,
    *,
    seeds=TABLE_SEEDS,
    epsilon=1.0,
    delta=1e-5,
    learned_schema=False,
    development=False,
    classifiers=None,
    data=None,
):
    """Fit, sample and judge a synthesizer on Adult, one result a seed.

    The results are exact functions of real rows: Adult is public, other tables' results are not.

    Parameters
    ----------
    make_synthesizer : callable, default=None
        Called with keywords ``epsilon``, ``delta``, ``target`` and ``schema``; returns an object with
        ``fit(frame)`` and ``sample(n_rows)`` that gives one frame. None is ``P3GMSynthesizer``. The string
        "real" judges the training rows themselves, the reference of every table.
    seeds : iterable of int, default=(0, 1, 2, 3, 4)
        One split, one fit and one result each.
    epsilon, delta : float
        Budget of one fit.
    learned_schema : bool, default=False
        Give the synthesizer no schema: everything is learned under the same budget.
    development : bool, default=False
        Judge on a part of the training rows and never touch the test rows: for choosing defaults.
    classifiers : dict of str to classifier, default=None
        None is the protocol's four.
    data : str or path, default=None
        As for ``load_adult``.

    Yields
    ------
    result : dict
        ``seed``, ``model``, ``auroc``, ``auprc`` (means over the classifiers), ``two_way_tvd``, ``one_way_tvd``
        (against the training rows), ``fit_seconds``, ``sample_seconds``, ``epsilon`` and ``delta`` (of the card
        where the synthesizer has one: recomputed from its events), ``rows``, ``learned_schema``, ``development``
        and ``classifiers``, each one's scores.

    References
    ----------
    S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, "P3GM", ICDE 2021, Tables VI and VIII.
    """
    bunch = load_adult(data)
    for seed in seeds:
        train, test = split_rows(bunch.frame, seed)
        if development:
            train, test = split_rows(train, seed)
        if make_synthesizer == "real":
            model, synthetic, cost = (
                "real data",
                train,
                {"fit_seconds": 0.0, "sample_seconds": 0.0, "epsilon": np.inf, "delta": 0.0},
            )
        else:
            synthesizer = (make_synthesizer or _default_synthesizer)(
                epsilon=epsilon, delta=delta, target=bunch.target, schema=None if learned_schema else bunch.schema
            )
            model = type(synthesizer).__name__
            synthetic, cost = _fit_and_sample(synthesizer, train, epsilon, delta)
        report = tstr_report(synthetic, test, target=bunch.target, positive=bunch.positive, classifiers=classifiers)
        yield {
            "seed": int(seed),
            "model": model,
            "auroc": float(np.mean([scores["auroc"] for scores in report.values()])),
            "auprc": float(np.mean([scores["auprc"] for scores in report.values()])),
            "two_way_tvd": two_way_tvd(train, synthetic, bunch.schema),
            "one_way_tvd": one_way_tvd(train, synthetic, bunch.schema),
            **cost,
            "rows": len(train),
            "learned_schema": bool(learned_schema),
            "development": bool(development),
            "classifiers": report,
        }


def _default_synthesizer(**parameters):
    from ..synthesizers import P3GMSynthesizer

    return P3GMSynthesizer(**parameters)


def _fit_and_sample(synthesizer, train, epsilon, delta):
    start = time.perf_counter()
    synthesizer.fit(train)
    fitted = time.perf_counter()
    synthetic = synthesizer.sample(len(train))
    sampled = time.perf_counter()
    card = getattr(synthesizer, "card_", None)
    if card is not None:  # recomputed from the events; raises when they do not cost what the card says
        epsilon = card.verify()["fit"]["epsilon"]
    cost = {"fit_seconds": fitted - start, "sample_seconds": sampled - fitted, "epsilon": epsilon, "delta": delta}
    return synthetic, cost
