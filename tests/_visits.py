"""Persons with several rows: a table of their visits, and what tests of units do to fits."""

from __future__ import annotations

import numpy as np
import pandas as pd

from skdpgen.mechanisms import _histogram, _moments
from skdpgen.tabular import Categorical, Numeric, Schema

__all__ = ["SCHEMA", "in_the_second_half", "visits", "weights_of_one"]

SCHEMA = Schema([Numeric("a", (-4, 4)), Categorical("c", ("x", "y", "z"))])


def visits(n_units=500, sizes=(5, 1)):
    """Every second person has five rows, the others one: of at most two, 3 rows for 2 persons are used."""
    pid = np.repeat(np.arange(n_units), np.resize(sizes, n_units))
    rng = np.random.default_rng(0)
    return pd.DataFrame({"pid": pid, "a": rng.normal(size=len(pid)), "c": rng.choice(list("xyz"), len(pid))})


def in_the_second_half(others, joining):
    """A person who joins draws last, so that the draws of the others stay theirs."""
    return np.insert(others, np.linspace(len(others) // 2 + 1, len(others), len(joining)).astype(int), joining)


def weights_of_one(patch):
    """Every row counts 1 where a unit should."""
    patch.setattr(_histogram, "row_weights", lambda sizes: np.ones(np.shape(sizes)))
    patch.setattr(_moments, "weight_roots", lambda sizes, exact=True: np.ones(len(sizes)))
