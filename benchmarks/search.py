"""A private search on Adult beside what it has to beat: the mean of its candidates, each fitted at the same budget."""

from __future__ import annotations

import time

import numpy as np
from sklearn.linear_model import LogisticRegression

from skdpgen.datasets import load_adult
from skdpgen.metrics import tstr_report

from .tables import split_rows

__all__ = ["CANDIDATES", "search_benchmark"]

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
            judged = _judge(template.set_params(**{"n_components": "auto", **parameters}), train, test, bunch)
            candidates.append(judged["auroc"])
            yield {"seed": int(seed), "model": "one candidate", "candidate": parameters, **judged}
        template = P3GMSynthesizer(target=bunch.target, schema=bunch.schema)
        search = PrivateSearchCV(template, CANDIDATES, epsilon=epsilon, scoring="tstr_log_loss")
        judged = _judge(search, train, test, bunch)
        judged["gain"] = judged["auroc"] - float(np.mean(candidates))
        yield {"seed": int(seed), "model": "PrivateSearchCV", "candidate": search.best_params_, **judged}


def _judge(synthesizer, train, test, bunch):
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
