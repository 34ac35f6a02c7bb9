"""Poisson-sampled batches: every record, or every unit with all its rows, takes part in a step with one probability."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

# Number of included records that one call draws (8 MB of indices).
_DRAWN_AT_ONCE = 2**20


class Chunk(NamedTuple):
    """One physical batch: a fixed number of rows, which are records where `mask` is True and padding elsewhere.

    `units` is the unit of each row, where units are sampled: all rows of a unit are in one chunk. Padding has -1.
    """

    X: Any
    y: Any
    mask: torch.Tensor
    noise: torch.Tensor | None
    units: np.ndarray | None = None


class Batch:
    """The records of one step, to be iterated over once in chunks of one shape; an empty batch has no chunk."""

    def __init__(self, loader, indices):
        self._loader = loader
        self._indices = indices

    def __iter__(self) -> Iterator[Chunk]:
        yield from self._loader._chunks(self._indices)


def poisson_batches(n_records, sampling_rate, steps, rng, *, drawn_at_once=_DRAWN_AT_ONCE) -> Iterator[np.ndarray]:
    """Yield the indices of the records of each step, each included independently with `sampling_rate`.

    Parameters
    ----------
    n_records : int
    sampling_rate : float in (0, 1]
    steps : int
    rng : NoiseGenerator
        Source of the uniforms, slightly more than one for each included record.
    drawn_at_once : int
        About how many included records one call draws.

    Yields
    ------
    int64 array, sorted, possibly empty
        `steps` of them.

    Notes
    -----
    The inclusions of all steps are one row of independent trials. The gaps between successes of such a row are
    independent geometric numbers, ``floor(log(u) / log(1 - sampling_rate))``, so the time grows with the number of
    included records, not with that of all records.
    """
    # a generator of `skdpgen.testing` may include all records
    if n_records == 0 or sampling_rate >= 1 or getattr(rng, "takes_all", False):
        for _ in range(steps):
            yield np.arange(n_records, dtype=np.int64)
        return
    block = int(min(steps, max(1, drawn_at_once // (n_records * sampling_rate))))
    for first in range(0, steps, block):
        trials = min(block, steps - first) * n_records
        hits = _successes(trials, sampling_rate, rng)
        bounds = np.searchsorted(hits, np.arange(0, trials + n_records, n_records))
        for step, (i, j) in enumerate(itertools.pairwise(bounds)):
            yield hits[i:j] - step * n_records


def _successes(trials, rate, rng, *, spare=16):
    """Positions of the successes among independent trials; `spare` gaps are drawn beyond the likely number."""
    found, last = [], -1
    while last < trials:
        expected = (trials - last) * rate
        draws = max(1, int(expected + 4 * np.sqrt(expected) + spare))
        # 1 - u is in (0, 1]: never an infinite gap
        gaps = np.floor(np.log1p(-rng.random(draws)) / np.log1p(-rate))
        # gaps past the end are cut to the end, so that their sum cannot overflow
        positions = last + np.cumsum(np.minimum(gaps, trials).astype(np.int64) + 1)
        found.append(positions)
        last = positions[-1]
    hits = np.concatenate(found)
    return hits[: np.searchsorted(hits, trials)]


class PoissonLoader:
    """Iterable over the Poisson-sampled batches of a plan, exactly ``plan.steps`` of them.

    Parameters
    ----------
    dataset : array, tensor, tuple (X, y), skorch Dataset, or torch Dataset
        Records along the first dimension of every array. Other datasets are read item by item once.
    plan : DPSGDPlan
    rng : NoiseGenerator
        Source of the samples, and of the noise of `noise_shape`.
    noise_shape : tuple of int, default=None
        Shape of the standard normals that come with every row, for reparameterised samples. They are drawn for the
        row's place in the batch, so that a record that joins does not shift the draws of others.
    device : str or device, default="cpu"
        Device of the batches.
    dtype : dtype, default=torch.float32
        Type of floating-point batches.
    units : int array of shape (n_records,), default=None
        Unit of each row, for a plan with `unit`: whole units are sampled, not rows. Of a unit with more rows than the
        plan's ``unit.max_rows``, so many are drawn at random, once for all steps: the others have no effect.

    Notes
    -----
    Batch sizes are private: they are neither stored nor returned, and no public attribute holds the number of records.
    A record stands at a place drawn out of ``plan.places``, in physical batches of one shape, and free places are
    zero: a record that joins takes a free place, and no other moves (see `slack_of_sums`). No record that is sampled is
    dropped. No unit is split between physical batches, because its rows are clipped together. A unit draws its batch,
    and its rows stand at places drawn there; a unit of many rows is computed alone. The running time of a step depends
    on the number of batches and is not protected: whoever can time single steps of a fit must be trusted.
    """

    def __init__(self, dataset, *, plan, rng, noise_shape=None, device="cpu", dtype=torch.float32, units=None):
        self.plan = plan
        self._batches = plan.physical_batches
        self.physical_batch = self._batches.size
        self.noise_shape = None if noise_shape is None else tuple(noise_shape)
        self.device, self.dtype = torch.device(device), dtype
        self._rng = rng
        self._X, self._y = _arrays(dataset)
        lengths = {len(x) for x in tree_leaves((self._X, self._y)) if x is not None}
        if len(lengths) != 1:
            raise ValueError("all arrays of X and y must have one number of records")
        self._n_sampled = lengths.pop()
        self._rows = None
        if (units is None) != (plan.unit is None):
            raise ValueError("units= must be given if the plan has a unit, and only then")
        if units is not None:
            units = np.asarray(units)
            if units.shape != (self._n_sampled,) or units.dtype.kind not in "iu":
                raise ValueError(f"units must be {self._n_sampled} whole numbers, one for each row")
            # rows by unit: those of unit u are at _starts[u] and the next places
            self._rows, sizes = _rows_by_unit(units, plan.unit.max_rows, rng)
            self._sizes, self._starts = sizes, np.cumsum(sizes) - sizes
            self._n_sampled = len(sizes)

    def __len__(self) -> int:
        return self.plan.steps

    def __iter__(self) -> Iterator[Batch]:
        plan = self.plan
        for indices in poisson_batches(self._n_sampled, plan.sampling_rate, plan.steps, self._rng):
            yield Batch(self, indices)

    def example(self) -> Chunk:
        """Return a chunk of zeros with the shapes and dtypes of training: it reveals nothing about the values."""
        nothing = np.empty(0, dtype=np.int64)
        return self._chunk(nothing, nothing, drawing=False)

    def _chunks(self, indices):
        """The physical batches of a step: records, or units, at places that are drawn."""
        if self._rows is not None:
            yield from self._chunks_of_units(indices)
            return
        size = self.physical_batch
        places = self._rng.permutation(max(self.plan.places, len(indices)))[: len(indices)]
        chunks = places // size
        for chunk in np.unique(chunks):
            here = chunks == chunk
            yield self._chunk(indices[here], places[here] % size)

    def _chunks_of_units(self, units):
        """Large units alone; each of the others in a physical batch that it draws. No unit moves another."""
        size, number, shared = self._batches
        large = self._sizes[units] > shared
        for unit in units[large]:
            rows, codes = self._rows_of(unit[None])
            yield self._chunk(rows, self._rng.permutation(len(rows)), codes, len(rows))
        units = units[~large]
        drawn = self._rng.integers(number, len(units)) if number > 1 else np.zeros(len(units), dtype=np.int64)
        for batch in np.unique(drawn):
            rows, codes = self._rows_of(units[drawn == batch])
            length = size * max(1, -(-len(rows) // size))  # more than `size` in very rare steps alone: see `room_for`
            yield self._chunk(rows, self._rng.permutation(length)[: len(rows)], codes, length)

    def _rows_of(self, units):
        """Rows of units, those of the largest unit first, and the unit of each, numbered as they come."""
        sizes = self._sizes[units]
        order = np.argsort(-sizes, kind="stable")
        units, sizes = units[order], sizes[order]
        first = self._starts[units] - (np.cumsum(sizes) - sizes)
        return self._rows[np.repeat(first, sizes) + np.arange(sizes.sum())], np.repeat(np.arange(len(units)), sizes)

    def _chunk(self, indices, places, codes=None, size=None, *, drawing=True) -> Chunk:
        size = self.physical_batch if size is None else size
        index, at = torch.from_numpy(indices), torch.from_numpy(places)

        def rows(x):
            if x is None:
                return None
            dtype = self.dtype if x.is_floating_point() else x.dtype
            batch = torch.zeros((size, *x.shape[1:]), dtype=dtype)
            batch[at] = x[index].to(dtype)
            return batch.to(self.device)

        noise = units = None
        if self.noise_shape is not None:
            shape = (size, *self.noise_shape)
            normals = self._rng.standard_normal(shape) if drawing else np.zeros(shape)
            noise = torch.from_numpy(normals).to(self.device, self.dtype)
        if self._rows is not None:
            units = np.full(size, -1, dtype=np.int64)
            if codes is not None:
                units[places] = codes
        mask = torch.zeros(size, dtype=torch.bool)
        mask[at] = True
        return Chunk(tree_map(rows, self._X), rows(self._y), mask.to(self.device), noise, units)


def _rows_by_unit(units, most, rng):
    """Places of the rows used, unit by unit, and the number of them in each unit: at most `most`, drawn at random.

    The gradient of a unit is clipped whatever its size; without a limit, the largest one would set the size of a batch.
    """
    _, sizes = np.unique(units, return_counts=True)
    if sizes.max(initial=0) <= most:
        return np.argsort(units, kind="stable"), sizes
    order = np.lexsort((rng.integers(1 << 62, len(units)), units))  # within each unit at random
    place = np.arange(len(units)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[place < most], np.minimum(sizes, most)


def _arrays(dataset):
    """Return (X, y) as tensors, or trees of them, from a dataset of skorch or torch."""
    if isinstance(dataset, tuple) and len(dataset) == 2:
        X, y = dataset
    elif isinstance(dataset, torch.utils.data.TensorDataset):
        X, y = (*dataset.tensors, None)[:2]
    elif hasattr(dataset, "X") and hasattr(dataset, "y"):
        X, y = dataset.X, dataset.y
    elif isinstance(dataset, torch.utils.data.Dataset):
        items = [dataset[i] for i in range(len(dataset))]
        X, y = torch.utils.data.default_collate(items)
    else:
        X, y = dataset, None
    return tree_map(_tensor, X), _tensor(y)


def _tensor(x):
    if x is None or isinstance(x, torch.Tensor):
        return x
    x = np.asarray(x)
    if x.dtype.kind not in "fiub":
        raise ValueError(f"X and y must be numbers; got an array of dtype {x.dtype}")
    # torch warns about arrays that are read-only, so these are copied
    return torch.from_numpy(x if x.flags.writeable else x.copy())
