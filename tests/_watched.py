"""What tests of learned schemas see of the releases of a fit."""

from __future__ import annotations

from skdpgen.utils.watching import Replay

__all__ = ["Queries"]


class Queries(Replay):
    """Every query of a fit and the names that passed; changes nothing."""

    def __init__(self):
        self.queries, self.names = [], []

    def release(self, released, sd, kind, query):
        self.queries.append(query)
        return released

    def kept(self, names):
        self.names.append(tuple(names))
        return names
