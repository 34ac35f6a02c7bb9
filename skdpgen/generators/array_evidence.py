"""Rows of an array given some of their columns: the Gaussian law of the latents, conditioned."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np

from .gaussians import class_weights, full_covariances
from .product_mixture import root

__all__ = ["ArraysGiven"]


class ArraysGiven:
    """A model of arrays, conditioned: its rows have the values asked for, and follow the model's law of such rows.

    The values are taken for those of the linear decoder before it clips to the box, with white noise of the model's
    dither (at least a hundredth of the column's width): latents given them are Gaussian, and how likely they are under
    each class changes its share.

    Parameters
    ----------
    model : ArrayModel
        Of a linear generator.
    given : dict of column index -> value
        Within the bounds.
    """

    def __init__(self, model, given):
        codec, generator = model.codec, model.generator
        self.codec, self.row_count, self._model = codec, model.row_count, model
        self._columns, self._values = _read(given, codec)
        scaling, at = codec.scaling, self._columns
        target = (self._values - scaling.offset[at]) / scaling.scale[at]
        width = (generator.high - generator.low)[at]
        noise = np.maximum(generator.dither[:, None], 0.01) ** 2 * np.maximum(width, 1e-12) ** 2
        covariances = full_covariances(generator.mixture)
        # a component is a class, or one of its cells
        self._means, posterior, scores = [], [], []
        for k, covariance in enumerate(covariances):
            seen = generator.gain[k, at, None] * generator.space.basis[at]
            spread = seen @ covariance @ seen.T + np.diag(noise[k])
            pull = np.linalg.solve(spread, seen @ covariance).T
            gap = target - generator.location[k, at]
            self._means.append(pull @ gap)
            posterior.append(covariance - pull @ seen @ covariance)
            scores.append(-0.5 * (gap @ np.linalg.solve(spread, gap) + np.linalg.slogdet(spread)[1]))
        self._roots = [root(covariance) for covariance in posterior]
        scores = np.array(scores).reshape(-1, generator.cells)
        scores[generator.mixture.weights.reshape(scores.shape) <= 0] = -np.inf  # levels that nothing is drawn of
        best = scores.max(axis=1, keepdims=True)  # of each class: one that hardly fits may be asked for all the same
        self._weights = generator.mixture.weights * np.exp(scores - best).ravel()
        self.component_weights = class_weights(self._weights, generator.cells) * np.exp(best[:, 0] - best.max())

    def sample(self, components, rng):
        """Rows, or (rows, y), of given components."""
        generator = self._model.generator
        rows = np.empty((len(components), len(generator.low)), dtype=np.float32)
        cells = generator.draw_cells(components, rng, self._weights)
        for k in np.unique(cells):
            where = np.flatnonzero(cells == k)
            latent = self._means[k] + rng.standard_normal((len(where), len(self._roots[k]))) @ self._roots[k].T
            rows[where] = generator.decode_clipped(k, latent, rng)
        drawn = self.codec.decode(rows, components, rng)
        rows, *y = drawn if isinstance(drawn, tuple) else (drawn,)
        rows[:, self._columns] = self._values
        return (rows, *y) if y else rows


def _read(given, codec):
    if not isinstance(given, Mapping) or not given:
        raise ValueError("given must be a dict of column index -> value, with at least one")
    columns, values = list(given), list(given.values())
    n = codec.n_features
    if not all(isinstance(c, Integral) and not isinstance(c, bool) and 0 <= c < n for c in columns):
        raise ValueError(f"given of arrays names columns by their index, 0 to {n - 1}")
    if not all(isinstance(v, Real) for v in values):
        raise ValueError("given of arrays takes one number a column")
    columns, values = np.array(columns, dtype=np.intp), np.array(values, dtype=np.float64)
    low, high = codec.scaling.lower[columns], codec.scaling.upper[columns]
    if not ((low <= values) & (values <= high)).all():
        raise ValueError("given holds values outside the bounds of their columns")
    return columns, values
