"""The second release of a fit to tables: interactions of triples of columns, or else the moments again."""

from __future__ import annotations

import math

import numpy as np

from .._types import BoundedSum, unit_of
from ..generators.product_mixture import consistent_marginals
from ..generators.triples import quarters_of_levels, released_triples
from ..mechanisms import add_gaussian, triple_bounds

__all__ = ["joined", "joined_noise", "release_triples"]

# Triples, over all classes, above which their interactions take too much memory.
_MOST_TRIPLES = 1 << 17
# Standard deviations of a sum of products of halves by which all rows of a class must exceed the noise.
_VISIBLE = 5.0


def release_triples(rows, codec, released, sd, contrasts, fit):
    """Release the interactions of all triples of columns; None where the noise would hide any of them.

    Parameters
    ----------
    rows : FrameRows
    codec : FrameCodec
    released, sd : Residuals
        The tables of the first release and their noise: columns are divided into quarters by them.
    contrasts : Contrasts
    fit : ChargedFit

    Returns
    -------
    ReleasedTriples or None
        Where None, the share of this release is still to be spent.
    """
    counts, marginals, _ = consistent_marginals(released, sd, contrasts, codec.optional_levels)
    quarters = quarters_of_levels(counts @ marginals, codec.n_levels)
    noise_multiplier, n_triples = fit.noise["triples"], math.comb(len(quarters.columns), 3)
    unit = unit_of(fit.neighboring)
    weighted = unit is not None and unit.weighting == "units"
    bounds = BoundedSum(0.0, *triple_bounds(quarters.fine), weighted=weighted)
    noise = noise_multiplier * bounds.sensitivity(fit.neighboring)
    if not 0 < n_triples * len(counts) <= _MOST_TRIPLES or counts.max() < _VISIBLE * noise:
        return None
    query = rows.triples(codec, quarters)
    noisy = add_gaussian(query, noise_multiplier, fit.rng, fit.neighboring)
    return released_triples(noisy, noise / query.weights, quarters, codec.n_levels)


def joined(first, second, noise_multipliers):
    """The mean of two releases of one query, weighted by their inverse variances."""
    one, other = (np.square(noise) for noise in noise_multipliers)
    return first if one + other == 0 else (first * other + second * one) / (one + other)


def joined_noise(noise_multipliers):
    """Noise multiplier of that mean."""
    one, other = noise_multipliers
    return 0.0 if one == 0 or other == 0 else one * other / math.hypot(one, other)
