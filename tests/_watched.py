"""What tests of learned schemas see of the releases of a fit."""

from __future__ import annotations

import warnings

from skdpgen import MomentSynthesizer
from skdpgen.exceptions import UtilityWarning
from skdpgen.testing import seeded_noise
from skdpgen.utils.watching import Replay, replay_releases

__all__ = ["Queries", "watched_fit"]


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


def watched_fit(frame, seed=3, model=MomentSynthesizer, *, epsilon=1.0, **options):
    """Fit a frame with seeded noise, and return the synthesizer and its `Queries`; warnings of utility are left out."""
    watch = Queries()
    with seeded_noise(seed, quiet=True), replay_releases(watch), warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        synth = model(epsilon, random_state=0, **options).fit(frame)
    return synth, watch
