"""Gradients of units with several rows: which rows are a unit's, and the norm of the sum of their gradients.

The rows of a unit are what the places of a sequence are to one example: they are summed *before* the norm. Rows are
arranged so that units with equally many rows are adjacent. A block of n units of m rows is then a batch of n examples,
each of m times the places of a row, to which the rules of `_layers` apply as they are. No row is padding, no unit's
gradient is formed where a cheaper way to its norm exists, and each linear layer gets one product for the whole sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn

from ..utils.categories import inexact_bits, kinds
from ..utils.foreign_tables import only_column
from ._layers import _ROWS_CANCELLATION, RULES, LayerGradient, Pool, UnsupportedShapeError, _linear_sum, _trainable

# Units of at most so many rows share windows of a linear layer's inner products; larger ones have Gram matrices.
_WIDEST = 32


def unit_codes(groups):
    """Return whole numbers, from 0, for the units of rows.

    `groups` (n_rows,), or a table of one column: numbers or text; equal entries are one unit. Raises ValueError for
    missing entries, more than one dimension, entries of several kinds, and floats that stand for several integers.
    """
    groups = only_column(groups)
    # numpy would make text of the numbers of a list in which one entry is text
    groups = np.asarray(groups, dtype=object if isinstance(groups, list | tuple) else None)
    if groups.ndim != 1:
        raise ValueError(f"groups must have one entry for each row; got an array of shape {groups.shape}")
    if groups.dtype.kind == "O":
        entries = groups.tolist()
        if pd.isna(groups).any():
            raise ValueError("groups must not have missing entries: each row belongs to a unit")
        if len(kinds(entries)) > 1:
            raise ValueError("groups must be of one kind, text or numbers: 7 and '7' may be one person")
        _check_exact(groups)
        codes = {}
        return np.fromiter((codes.setdefault(entry, len(codes)) for entry in entries), np.int64, len(entries))
    if groups.dtype.kind in "fmM" and bool(np.any(groups != groups)):
        raise ValueError("groups must not have missing entries: each row belongs to a unit")
    if groups.dtype.kind == "f":
        _check_exact(groups)
    return np.unique(groups, return_inverse=True)[1].astype(np.int64)


def _check_exact(groups):
    if bits := inexact_bits(groups):
        raise ValueError(
            f"groups must not hold floats of 2**{bits} or more, which are one number for several integers: give the "
            "identifiers as integers or as text"
        )


class RowUnits:
    """The unit of each row of a physical batch.

    `units` (batch,): unit of each row, numbers of any kind; negative where a row is padding.
    `mask` (batch,): False where a row is padding.
    `codes` (batch,): number of the unit among those of the batch, from 0; -1 for padding.
    `sizes`: shape (n_units,).
    """

    def __init__(self, units, mask=None):
        units = np.asarray(units)
        if units.ndim != 1 or (mask is not None and len(units) != len(mask)):
            raise ValueError(f"units must hold one number for each row, shape ({len(mask)},); got {units.shape}")
        real = units >= 0
        if mask is not None:
            real &= mask.cpu().numpy()
        self.codes = np.full(len(units), -1, dtype=np.int64)
        _, self.codes[real], self.sizes = np.unique(units[real], return_inverse=True, return_counts=True)

    def __len__(self):
        return len(self.sizes)

    def weights(self, weighting):
        """Weight of each row in the gradient of its unit, float64 tensor: 1, or one over the rows; 0 for padding."""
        weights = (self.codes >= 0).astype(np.float64)
        if weighting == "units":
            weights[self.codes >= 0] /= self.sizes[self.codes[self.codes >= 0]]
        return torch.from_numpy(weights)


@dataclass(frozen=True)
class Block:
    """Units of `size` rows each: their rows and their numbers, both adjacent in an `Arrangement`."""

    rows: slice
    units: slice
    size: int


@dataclass(frozen=True)
class Windows:
    """Rows of units of several rows, in windows of one width that no unit straddles."""

    slots: torch.Tensor  # int (n_windows, width); arranged row at each place; any row at an empty place
    same: torch.Tensor  # bool (n_windows, width, width); whether two places hold rows of one unit
    units: torch.Tensor  # int (n_windows, width); arranged unit at each place
    several: slice  # the arranged units that are in windows


def _make_windows(blocks, device):
    """Pack the units of the blocks, of adjacent numbers and at most `_WIDEST` rows, into windows."""
    width = 4
    while width < blocks[0].size:
        width *= 2
    size = np.concatenate([np.full(b.units.stop - b.units.start, b.size) for b in blocks])
    within = np.concatenate([np.arange(b.units.stop - b.units.start) for b in blocks])
    per_window = width // size
    counts = [-(-(b.units.stop - b.units.start) // (width // b.size)) for b in blocks]
    base = np.repeat(np.cumsum([0, *counts[:-1]]), [b.units.stop - b.units.start for b in blocks])
    start = (base + within // per_window) * width + within % per_window * size
    rows = np.arange(blocks[0].rows.start, blocks[-1].rows.stop)
    unit = np.repeat(np.arange(len(size)), size)
    place = start[unit] + np.arange(len(rows)) - np.repeat(np.cumsum(size) - size, size)
    slots = np.full(sum(counts) * width, blocks[0].rows.start)
    units, owner = np.full(len(slots), blocks[0].units.start), np.full(len(slots), -1)
    slots[place], owner[place] = rows, unit
    units[place] += unit
    slots, units, owner = (torch.from_numpy(x.reshape(-1, width)).to(device) for x in (slots, units, owner))
    same = (owner[:, :, None] == owner[:, None, :]) & (owner[:, None, :] >= 0)
    return Windows(slots, same, units, slice(blocks[0].units.start, blocks[-1].units.stop))


class Arrangement:
    """Rows in the order of the sizes of their units, the largest first; padding comes last, as units of one row.

    `codes` (n_rows,): unit of each row; negative for padding.
    `device`: where the rows are.
    `order` (n_rows,): rows of the batch in the order of this arrangement; None: they stand so already.
    `of_row` (n_rows,): number of the arranged unit of each arranged row.
    `codes` (n_units,): code of each arranged unit; -1 for padding.
    `large`: those of more than `_WIDEST` rows.
    `windows`: units of two to `_WIDEST` rows.
    """

    def __init__(self, codes, device="cpu"):
        real = codes >= 0
        found, inverse, counts = np.unique(codes[real], return_inverse=True, return_counts=True)
        by_size = np.argsort(-counts, kind="stable")
        rank = np.empty_like(by_size)
        rank[by_size] = np.arange(len(found))
        order = np.flatnonzero(real)[np.argsort(rank[inverse], kind="stable")]
        order = np.concatenate([order, np.flatnonzero(~real)])
        padding = len(codes) - int(real.sum())
        sizes = np.concatenate([counts[by_size], np.ones(padding, dtype=counts.dtype)])
        self.n_rows, self.n_units = len(codes), len(sizes)
        self.order = None if np.array_equal(order, np.arange(len(codes))) else torch.from_numpy(order).to(device)
        self.of_row = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(device)
        self.codes = torch.from_numpy(np.concatenate([found[by_size], np.full(padding, -1, np.int64)])).to(device)
        starts = np.flatnonzero(np.diff(sizes, prepend=-1))
        ends, rows = np.append(starts[1:], len(sizes)), np.concatenate([[0], np.cumsum(sizes)])
        self.blocks = [
            Block(slice(int(rows[i]), int(rows[j])), slice(int(i), int(j)), int(sizes[i])) for i, j in zip(starts, ends)
        ]
        self.large = [block for block in self.blocks if block.size > _WIDEST]
        several = [block for block in self.blocks if 1 < block.size <= _WIDEST]
        self.windows = _make_windows(several, device) if several else None

    def take_records(self, records):
        """Return what a pass recorded of its layers with the rows in the order of the arrangement.

        The pass itself is over the places of the batch: what it gives for a row must not depend on the units of others.
        """
        if self.order is None:
            return records
        return [(name, layer, self._arranged(a), self._arranged(g)) for name, layer, a, g in records]

    def _arranged(self, x):
        if len(x) % self.n_rows:
            raise UnsupportedShapeError("a layer's input does not start with the batch dimension")
        return x.unflatten(0, (self.n_rows, -1))[self.order].flatten(0, 1)


class _BlockPool(Pool):
    """Buffers of one block of units: those that are kept are parts of one buffer of all blocks of a layer."""

    exact = True

    def __init__(self, pool, block, arrangement):
        self._pool, self._units, self._n_units, self.rows = pool, block.units, arrangement.n_units, block.size
        self._most_units = arrangement.n_rows

    def total(self, batch):
        # not the number of units, which is private: one that joins would change the rule for all others
        return self._most_units

    def get_kept(self, key, shape, like):
        return self._pool.get_buffer(key, (self._n_units, *shape[1:]), like)[self._units]

    def get_buffer(self, key, shape, like):
        return self._pool.get_buffer(key, shape, like)


def rule_of_units(layer, a, g, arrangement, pool) -> LayerGradient:
    """Squared norms of the gradients of units and the way to their weighted sum, for one layer.

    `layer`: of a type in `RULES`.
    `a`, `g`: input of the layer and gradient with respect to its output, for arranged rows; the leading dimension is
        their number or a multiple of it, with the places of one row adjacent.
    Returns LayerGradient of the arranged units.
    """
    n_rows = arrangement.n_rows
    if len(a) % n_rows or len(g) % n_rows:
        raise UnsupportedShapeError("a layer's input does not start with the batch dimension")
    if type(layer) is nn.Linear and a.dim() == 2 and len(a) == n_rows:
        return _linear(layer, a, g, arrangement, pool)
    return _by_blocks(layer, a, g, arrangement, arrangement.blocks, pool)


def _by_blocks(layer, a, g, arrangement, blocks, pool) -> LayerGradient:
    """The rule of the layer, block by block: n units of m rows are n examples."""
    parts = []
    for block in blocks:
        of_block = (_rows(x, block, arrangement.n_rows) for x in (a, g))
        units = block.units.stop - block.units.start
        parts.append(RULES[type(layer)](layer, *of_block, units, _BlockPool(pool, block, arrangement)))

    def weighted_sum(factors, out, beta):
        for block, part in zip(blocks, parts):
            part.weighted_sum(factors[block.units], out, beta)
            beta = 1

    return LayerGradient(torch.cat([part.square_norms for part in parts]), weighted_sum)


def _rows(x, block, n_rows):
    places = len(x) // n_rows
    return x[block.rows.start * places : block.rows.stop * places]


def _linear(layer, a, g, arrangement, pool) -> LayerGradient:
    """One place a row: inner products of the rows of a unit, and one product for the sum of all units.

    The gradient by the bias is that by an input of one more entry, 1, which adds 1 to the inner products of inputs.
    """
    weight, bias = _trainable(layer, "weight"), _trainable(layer, "bias")
    large, windows = arrangement.large, arrangement.windows
    first = large[-1].rows.stop if large else 0
    head = _by_blocks(layer, a, g, arrangement, large, pool) if large else None
    squares = pool.square_norms(g) * ((pool.square_norms(a) if weight else 0) + int(bias))
    of_row = arrangement.of_row
    norms = squares.new_zeros(arrangement.n_units).index_add_(0, of_row, squares.sqrt())
    norms.square_()  # exact for units of one row
    if windows is not None:
        # in float64: the width of windows, and so what float32 would round, follows from the largest unit in them
        inputs, outputs = (torch.bmm(x, x.mT) for x in (a[windows.slots].double(), g[windows.slots].double()))
        inputs = inputs.add_(int(bias)) if weight else torch.full_like(inputs, float(bias))
        products = torch.where(windows.same, inputs * outputs, 0.0).sum(2).view(-1)
        several = windows.several
        found = norms.new_zeros(len(norms)).index_add_(0, windows.units.view(-1), products)[several].clamp_(min=0)
        norms[several] = found.add_(norms[several], alpha=_ROWS_CANCELLATION)
    if head is not None:
        norms[: len(head.square_norms)] = head.square_norms

    def weighted_sum(factors, out, beta):
        if head is not None:
            head.weighted_sum(factors, out, beta)
            beta = 1
        if len(a) > first:
            _linear_sum(a[first:], g[first:], pool)(factors[of_row[first:]], out, beta)

    return LayerGradient(norms, weighted_sum)
