"""Repeatable noise for tests: fits made with it are marked not private."""

from __future__ import annotations

import itertools
import warnings
from contextlib import contextmanager

from ..exceptions import PrivacyLeakWarning
from ..utils.noise import NoiseGenerator, override_noise


@contextmanager
def seeded_noise(seed=0, *, quiet=False, repeat=False):
    """Make the noise of every fit that this thread makes in the block repeatable, and so not private.

    Parameters
    ----------
    seed : int, default=0
        The same seed and the same order of fits give the same noise. Each fit in the block draws different noise.
    quiet : bool, default=False
        Whether to suppress the `PrivacyLeakWarning` that each fit issues.
    repeat : bool, default=False
        Whether all fits in the block have the same noise, for checks that compare two fits.

    Warns
    -----
    PrivacyLeakWarning
        Once for each generator made, unless `quiet`.

    Notes
    -----
    Whoever knows the seed can subtract the noise: the card of a fit made here says ``private: false``, and the ledger
    that it was charged to is marked for good: so do the cards of all later fits on it. What you charge by hand, to
    train your own network, is marked by ``accountant.charge(..., private=False)``.
    """
    fits = itertools.count()

    def make(noise):
        if not quiet:
            warnings.warn(
                "noise is seeded (skdpgen.testing.seeded_noise): this fit is NOT private and is for tests only",
                PrivacyLeakWarning,
                stacklevel=3,
            )
        return NoiseGenerator("seeded", seed=[int(seed), 0 if repeat else next(fits)])

    with override_noise(make):
        yield
