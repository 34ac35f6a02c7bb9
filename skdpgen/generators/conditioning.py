"""What is known of the rows to be drawn: from values asked for to shares of levels, and a codec that keeps to them."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from numbers import Integral, Real

import numpy as np
import pandas as pd

from ..data.frames import FrameCodec
from ..tabular import Binning, Boolean, Categorical, Datetime, TableEncoder
from ..tabular._frames import numeric_bounds, numeric_values
from ..tabular._restoring import restore
from .gaussians import class_weights, full_covariances
from .product_mixture import root

__all__ = ["ArraysGiven", "Evidence", "FramesGiven", "read_evidence"]

_TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Evidence:
    """What `sample(given=...)` asks for, as the model reads it.

    Parameters
    ----------
    levels : array of shape (n_columns_encoded,)
        Share of each level of the blocks within a class that is asked for.
    classes : array of shape (n_classes,)
        1 for the classes asked for, 0 for others; of shape (1,) without classes.
    codec : FrameCodec
        Whose bins are cut to the values asked for.
    exact : dict
        Column name -> the one value asked for, in the column's dtype.
    """

    levels: np.ndarray
    classes: np.ndarray
    codec: FrameCodec
    exact: dict


def read_evidence(codec, given):
    """Read values asked for, column by column.

    Parameters
    ----------
    codec : FrameCodec
    given : dict
        Column name -> a value; a list or set of values; a pair (low, high) for numbers and dates, None for an open
        end; None for a missing value.

    Returns
    -------
    Evidence

    Raises
    ------
    ValueError
        A column or a value that the model does not have.
    """
    if not isinstance(given, Mapping) or not given:
        raise ValueError("given must be a dict of column name -> value, with at least one")
    schema = codec.encoder.schema_
    if unknown := [repr(name) for name in given if name not in schema]:
        raise ValueError(f"given names what is no column: {', '.join(unknown)}")
    levels = {block.name: np.ones(block.size) for block in codec.encoder.blocks_}
    binnings, exact = dict(codec.encoder.binnings_), {}
    for name, asked in given.items():
        column = schema[name]
        if isinstance(column, Categorical | Boolean):
            block = next(block for block in codec.encoder.blocks_ if block.name == name)
            levels[name] = _of_levels(asked, block, name)
        else:
            levels[name], binnings[name], value = _of_numbers(asked, column, binnings[name])
            if value is not None:
                exact[name] = restore(np.array([value]), column)
    shares = [levels[name] for name in codec.targets]
    classes = np.ones(1)
    for share in shares:
        classes = np.outer(classes, share).ravel()
    flat = np.concatenate([np.zeros(0), *(levels[block.name] for block in codec.blocks)])
    cut = replace(codec, encoder=TableEncoder(schema, binnings=binnings).fit())
    return Evidence(flat, classes, cut, exact)


class FramesGiven:
    """A model of tables, conditioned: its rows have what is asked for, and follow the model's law of such rows.

    Parameters
    ----------
    model : FrameModel
        Of a released decoder, without mixture and network.
    given : dict
        See `read_evidence`.

    Raises
    ------
    ValueError
        The model never draws such rows.
    """

    def __init__(self, model, given):
        self.evidence = read_evidence(model.codec, given)
        self.codec, self.row_count = model.codec, model.row_count
        self._particles = model.particles
        chance = model.particles.likelihood(self.evidence.levels).mean(axis=1) if len(self.evidence.levels) else 1.0
        self.possible = self.evidence.classes * chance > 0
        self.component_weights = model.component_weights * self.evidence.classes * chance
        if not self.component_weights.sum() > 0:
            raise ValueError("the model has no rows of what is asked for by given")

    def sample(self, components, rng):
        """A frame, or (frame, y), of rows of given components."""
        if not self.possible[components].all():
            raise ValueError("y or class_ratio asks for classes that given rules out")
        evidence = self.evidence
        codes = self._particles.sample(components, rng, evidence.levels)
        drawn = evidence.codec.decode(codes, components if self.codec.n_classes else None, rng)
        frame, *y = drawn if isinstance(drawn, tuple) else (drawn,)
        for name, value in evidence.exact.items():
            if name in frame.columns:
                frame[name] = pd.Series(value).repeat(len(frame)).set_axis(frame.index)
        return (frame, *y) if y else frame


def _of_levels(asked, block, name):
    wanted = list(asked) if isinstance(asked, list | tuple | Set | np.ndarray | pd.Index) else [asked]
    share = np.zeros(block.size)
    for value in wanted:
        value = None if value is None or (np.ndim(value) == 0 and pd.isna(value)) else value
        at = [i for i, level in enumerate(block.levels) if level is value or (level is not None and level == value)]
        if not at:
            raise ValueError(f"given asks for a value of {name!r} that the model does not have")
        share[at] = 1.0
    return share


def _of_numbers(asked, column, binning):
    """Share of each bin (and of "missing", where there is one), the bins cut to what is asked for, and a lone value."""
    n_levels = binning.n_bins + bool(column.missing)
    if asked is None or (np.ndim(asked) == 0 and pd.isna(asked)):
        if not column.missing:
            raise ValueError(f"given asks for a missing {column.name!r}, which the schema does not allow")
        return np.append(np.zeros(binning.n_bins), 1.0), binning, None
    pair = asked if isinstance(asked, tuple) else (asked, asked)
    if len(pair) != 2:
        raise ValueError(f"given of {column.name!r} must be a value or a pair (low, high)")
    bounds = numeric_bounds(column)
    low, high = (edge if end is None else _number(end, column) for end, edge in zip(pair, bounds))
    if not bounds[0] <= low <= high <= bounds[1]:
        raise ValueError(f"given of {column.name!r} must lie within its bounds {column.bounds}, lowest first")
    share, cut = _cut(binning, low, high)
    return np.append(share, np.zeros(n_levels - len(share))), cut, low if low == high else None


def _number(value, column):
    series = pd.Series([value]) if not isinstance(column, Datetime) else pd.Series(pd.to_datetime([value]))
    open_ = replace(column, bounds=None)  # to refuse what is outside, and not clip it
    try:
        return float(numeric_values(series, open_)[0])
    except ValueError:
        raise ValueError(f"given of {column.name!r} is no value of its kind") from None


def _cut(binning, low, high):
    """Share of each bin that lies in [low, high], and the binning with all mass outside taken away."""
    edges, mass = np.array(binning.edges), np.array(binning.mass)
    top = np.floor(high) + 1 if binning.integer else max(np.nextafter(high, np.inf), high + _TINY)
    inside = np.clip([np.ceil(low) if binning.integer else low, top], edges[0], edges[-1])
    starts = np.array(binning.starts)
    width = np.diff(edges)
    empty = np.repeat(binning.bin_mass <= 0, np.diff([*starts, len(mass)]))
    mass = np.where(empty, 1e-12 * width / width.sum(), mass)
    cells = np.unique(np.concatenate([edges, inside]))
    old = np.searchsorted(edges, cells[:-1], side="right") - 1
    part = mass[old] * np.diff(cells) / width[old]
    kept = np.where((cells[:-1] >= inside[0]) & (cells[1:] <= inside[1]), part, 0.0)
    if not kept.any():  # one value inside a wide cell, next to no width apart from itself
        at = np.clip(np.searchsorted(cells, low, side="right") - 1, 0, len(part) - 1)
        kept[at] = part[at]
    first = np.searchsorted(cells, edges[starts])
    share = np.add.reduceat(kept, first) / np.maximum(np.add.reduceat(part, first), 1e-300)
    if low == high:  # what matters is which bin it lies in
        share = (share > 0).astype(float)
    total = kept.sum()
    return share, Binning(tuple(cells.tolist()), tuple(first.tolist()), tuple((kept / total).tolist()), binning.integer)


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
