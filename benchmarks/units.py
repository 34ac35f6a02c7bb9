"""Persons with several rows: utility on Adult over the rows used of a person, and both weightings."""

from __future__ import annotations

import time

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from skdpgen import PrivacyUnit
from skdpgen.datasets import load_adult
from skdpgen.metrics import one_way_tvd, tstr_report

from .models import find_model, verified_epsilon
from .tables import split_rows

__all__ = ["ROW_LEVEL", "SIZES", "give_units", "units_benchmark"]

# Numbers of rows of a person, and their probabilities; each has a mean of 1.4.
SIZES = {
    "geometric": (np.arange(1, 26), (1 / 1.4) * (1 - 1 / 1.4) ** np.arange(25)),
    "one in five has 3": (np.array([1, 3]), np.array([0.8, 0.2])),
    "one in 25 has 11": (np.array([1, 11]), np.array([0.96, 0.04])),
}
# The reference: every row is another person's.
ROW_LEVEL = "row level"
# Standard deviation of what is added to the age before rows are given out in its order: the rows of a person are of
# similar age, and so of similar marital status and income.
_SPREAD = 5.0


def give_units(frame, sizes, seed, *, column="age", spread=_SPREAD):
    """Give the rows of a table to persons, so that the rows of one are alike.

    Parameters
    ----------
    frame : DataFrame
    sizes : (array of int, array of float)
        Numbers of rows of a person, and their probabilities.
    seed : int
    column : str, default="age"
        Rows of similar values in this column are given to one person.
    spread : float, default=5.0
        Standard deviation of the noise on that column; the larger, the less alike.

    Returns
    -------
    int64 array of shape (n_rows,)
        Identifiers, in no order.
    """
    rng, n = np.random.default_rng(seed), len(frame)
    numbers, chances = sizes
    drawn = rng.choice(numbers, n, p=np.asarray(chances) / np.sum(chances))
    persons = np.repeat(np.arange(n), drawn)[:n]
    ids = np.empty(n, dtype=np.int64)
    ids[np.argsort(frame[column].to_numpy(dtype=float) + spread * rng.standard_normal(n))] = persons
    return rng.permutation(n)[ids]


def units_benchmark(
    distributions=(ROW_LEVEL, *SIZES),
    weightings=("units", "rows"),
    k=(1, 2, 3, 5, 8, None),
    *,
    models=("MomentSynthesizer",),
    seeds=(0, 1),
    epsilon=1.0,
    delta=1e-5,
    rows=None,
    data=None,
):
    """Fit a synthesizer to Adult for persons with several rows, and train a classifier on its synthetic rows.

    The results are exact functions of real rows: this table is public, others' results are not.

    Parameters
    ----------
    distributions : sequence of str
        Names in `SIZES`, and "row level": a fit for one row, the reference.
    weightings : sequence of {"units", "rows"}
    k : sequence of int or None
        `max_rows_per_unit`; None is learned.
    models : sequence of str, default=("MomentSynthesizer",)
        Synthesizers that have units.
    seeds : iterable of int, default=(0, 1)
    epsilon, delta : float
        Budget of one fit, for one person, or for one row.
    rows : int, default=None
        Training rows at most; None is all.
    data : str or path, default=None

    Yields
    ------
    dict
        distribution, weighting, k ("learned" where it was), k_used, mean_rows (of a person), seed, model, auroc, auprc
        (of histogram gradient boosting on real rows), one_way_tvd (to the training rows), fit_seconds, epsilon.
    """
    bunch = load_adult(data)
    for seed in seeds:
        train, test = split_rows(bunch.frame, seed)
        train = train if rows is None else train.head(rows)
        for distribution in distributions:
            of_units = distribution != ROW_LEVEL
            ids = give_units(train, SIZES[distribution], seed) if of_units else None
            cases = [(w, most) for w in weightings for most in k] if of_units else [("", "")]
            for weighting, most in cases:
                # fits by units have no model of the target, so the reference has none either
                reference = {"budget_split": {"target": 0}}
                unit = {"unit": PrivacyUnit("pid", most, weighting=weighting)} if of_units else reference
                for name in models:
                    public = {"target": bunch.target, "schema": bunch.schema, **unit}
                    model = find_model(name).make("adult", epsilon=epsilon, delta=delta, device="cpu", **public)
                    start = time.perf_counter()
                    model.fit(train.assign(pid=ids) if of_units else train)
                    seconds = time.perf_counter() - start
                    synthetic = model.sample(len(train))
                    classifier = {"boosting": HistGradientBoostingClassifier(random_state=0)}
                    of = {"target": bunch.target, "positive": bunch.positive, "classifiers": classifier}
                    scores = tstr_report(synthetic, {"": test}, **of)[""]["boosting"]
                    yield {
                        "distribution": distribution,
                        "weighting": weighting,
                        "k": "learned" if most is None else most,
                        "k_used": model.max_rows_per_unit_ if of_units else None,
                        "mean_rows": len(train) / len(np.unique(ids)) if of_units else 1.0,
                        "seed": int(seed),
                        "model": name,
                        "auroc": float(scores["auroc"]),
                        "auprc": float(scores["auprc"]),
                        "one_way_tvd": one_way_tvd(train, synthetic, bunch.schema),
                        "fit_seconds": seconds,
                        "epsilon": verified_epsilon(model),
                        "epsilon_asked": float(epsilon),
                        "rows": len(train),
                    }
