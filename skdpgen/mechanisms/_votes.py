"""Counts of votes: how many of the models trained on disjoint subsets say yes to each of several public rows."""

from __future__ import annotations

import numpy as np

from .._types import BoundedSum
from ._histogram import LATTICE

__all__ = ["count_votes"]


def count_votes(votes, *, of_units=False):
    """Count the votes for each row.

    Parameters
    ----------
    votes : bool array of shape (n_teachers, n_rows)
        Each line is a function of one teacher's subset of the records, and of nothing else that is private.
    of_units : bool, default=False
        Whether subsets are made of whole units of several rows.

    Returns
    -------
    BoundedSum
        `value` of shape (n_rows,), float64. A record, or a unit, lies in one subset and changes one line, each of
        whose entries moves by at most 1: the sensitivity is sqrt(n_rows), whether it joins, leaves or is replaced.
        Votes against are no second release: they are the public number of teachers less the votes for.
    """
    votes = np.asarray(votes, dtype=bool)
    bound = votes.shape[1] ** 0.5
    counts = votes.sum(axis=0, dtype=np.int64).astype(np.float64)
    unit = "unit" if of_units else "record"
    return BoundedSum(counts, add_or_remove_one=bound, replace_one=bound, lattice=LATTICE, unit=unit, additive=False)
