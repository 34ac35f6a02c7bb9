"""AIM, MST and PrivBayes of dpmm 0.1.9 (``pip install dpmm==0.1.9``; Python 3.10 or 3.11).

Read in its source: given every column's bounds and categories, it takes from the rows without paying their exact number
(the number of bins, the threshold of the tree that splits them, PrivBayes' sensitivity) and which columns hold one
value only (they are copied). Its pipelines spend `proc_epsilon` on bins of the numbers *beside* `epsilon`: here the two
together are the budget.
"""

from __future__ import annotations

from .adapter import Peer

__all__ = ["AIM", "MST", "PrivBayes"]

# A tenth of the budget for the bins of numbers, as the pipelines' defaults have it.
_SETTINGS = {"processing_share": 0.1}
_UNPAID = (
    "the exact number of rows (number of bins, threshold of their tree)",
    "which columns hold a single value: copied as they are",
)


class AIM(Peer):
    """AIM by dpmm: adaptive choice of 2-way marginals, a graphical model of them (McKenna et al. 2022)."""

    name, package, model = "AIM", "dpmm", "AIM"
    # MiB: the default of AIM's own class, which the pipeline lifts
    settings = {**_SETTINGS, "max_model_size": 80}
    unpaid = _UNPAID


class MST(Peer):
    """MST by dpmm: 2-way marginals along a spanning tree (McKenna, Miklau, Sheldon 2021)."""

    name, package, model = "MST", "dpmm", "MST"
    settings = _SETTINGS
    unpaid = _UNPAID


class PrivBayes(Peer):
    """PrivBayes by dpmm: a Bayesian network of degree 2, its tables by Gaussian noise (Zhang et al. 2017)."""

    name, package, model = "PrivBayes", "dpmm", "PrivBayes"
    settings = _SETTINGS
    unpaid = (
        *_UNPAID,
        "part of the choice of the network: it scores parents by mutual information in bits over the mean of the "
        "entropies, with the sensitivity of mutual information in nats",
    )
