"""Two-dimensional toy data: arms of a pinwheel."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_random_state

__all__ = ["make_pinwheel"]


def make_pinwheel(n_samples=400, *, n_arms=4, radial_noise=0.3, tangential_noise=0.05, twist=0.25, random_state=None):
    """Draw points on the bent arms of a pinwheel, as many on each arm as on any other (within one).

    Generated and nobody's: for examples and tests of models that are to find clusters.

    Parameters
    ----------
    n_samples : int, default=400
    n_arms : int, default=4
    radial_noise, tangential_noise : float, default=0.3, 0.05
        Standard deviations along an arm and across it; an arm lies around the distance 1.
    twist : float, default=0.25
        How far an arm is turned, in radians: ``twist * exp(position along the arm)``.
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    X : array of shape (n_samples, 2)
        Nearly all of it within (-2, 2).
    y : array of int of shape (n_samples,)
        Arm of each point.

    References
    ----------
    Johnson, Duvenaud, Wiltschko, Adams, Datta, "Composing graphical models with neural networks for structured
    representations and fast inference", NeurIPS 2016.

    Examples
    --------
    >>> from skdpgen.datasets import make_pinwheel
    >>> X, y = make_pinwheel(100, random_state=0)
    >>> X.shape, sorted(set(y.tolist()))
    ((100, 2), [0, 1, 2, 3])
    """
    if n_samples < 1 or n_arms < 1:
        raise ValueError("n_samples and n_arms must be at least 1")
    rng = check_random_state(random_state)
    y = rng.permutation(np.arange(n_samples) % n_arms)
    along = 1 + radial_noise * rng.standard_normal(n_samples)
    across = tangential_noise * rng.standard_normal(n_samples)
    angle = 2 * np.pi * y / n_arms + twist * np.exp(along)
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.stack([along * cosine - across * sine, along * sine + across * cosine], axis=1), y
