"""Poisson-sampled batches: every record takes part in every step by a draw of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

__all__ = ["Batch", "Chunk", "PoissonLoader", "poisson_batches"]

# Records included in the steps that are drawn in one call (8 MB of indices).
_DRAWN_AT_ONCE = 2**20


class Chunk(NamedTuple):
    """One physical batch: rows of fixed number, of which those with `mask` are records and the others padding."""

    X: Any
    y: Any
    mask: torch.Tensor
    noise: torch.Tensor | None


class Batch:
    """The records of one step, to be iterated over once in chunks of one shape; none of them when it is empty."""

    def __init__(self, loader, indices):
        self._loader = loader
        self._indices = indices

    def __iter__(self) -> Iterator[Chunk]:
        size = self._loader.physical_batch
        for start in range(0, len(self._indices), size):
            yield self._loader._chunk(self._indices[start : start + size])


def poisson_batches(n_records, sampling_rate, steps, rng, *, drawn_at_once=_DRAWN_AT_ONCE) -> Iterator[np.ndarray]:
    """Yield the indices of the records of each step, each included independently with `sampling_rate`.

    Parameters
    ----------
    n_records : int
    sampling_rate : float in (0, 1]
    steps : int
    rng : NoiseGenerator
        Of which uniforms are drawn, as many as records are included (and a few).
    drawn_at_once : int
        Records included in the steps that are drawn in one call, about.

    Yields
    ------
    int64 array, sorted, possibly empty
        `steps` of them.

    Notes
    -----
    The inclusions of all steps are one row of independent trials. The gaps between successes of such a row are
    independent geometric numbers, ``floor(log(u) / log(1 - sampling_rate))``, so the cost is that of the
    records included, not of the records there are.
    """
    # a generator of `skdpgen.testing` may take all: which records are drawn then follows from no row
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
    """Positions of the successes among independent trials; `spare` gaps more are drawn than are likely to be needed."""
    found, last = [], -1
    while last < trials:
        expected = (trials - last) * rate
        draws = max(1, int(expected + 4 * np.sqrt(expected) + spare))
        # 1 - u is in (0, 1]: never an infinite gap
        gaps = np.floor(np.log1p(-rng.random(draws)) / np.log1p(-rate))
        # one gap past the end is as good as any, and the sum of such cannot overflow
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
        Draws who takes part, and the noise of `noise_shape`.
    noise_shape : tuple of int, default=None
        With it every row comes with standard normals of this shape, drawn for its place in the batch: for
        reparameterised samples, of which a joining record must not shift the others' draws.
    device : str or device, default="cpu"
    dtype : dtype, default=torch.float32
        To which floating-point data are converted, batch by batch.

    Notes
    -----
    Batch sizes are private: they are neither stored nor returned, and no attribute tells the number of records.
    A batch above ``plan.physical_batch`` is yielded in several chunks, the last one padded with zeros,
    so that all passes have one shape. Nothing is ever dropped. The number of chunks shows in the running time of
    a step, which is no release: who can time single steps of a fit is trusted.
    """

    def __init__(self, dataset, *, plan, rng, noise_shape=None, device="cpu", dtype=torch.float32):
        self.plan = plan
        self.physical_batch = plan.physical_batch
        self.noise_shape = None if noise_shape is None else tuple(noise_shape)
        self.device, self.dtype = torch.device(device), dtype
        self._rng = rng
        self._X, self._y = _arrays(dataset)
        lengths = {len(x) for x in tree_leaves((self._X, self._y)) if x is not None}
        if len(lengths) != 1:
            raise ValueError("the arrays of the data differ in their number of records")
        self._n_records = lengths.pop()

    def __len__(self) -> int:
        return self.plan.steps

    def __iter__(self) -> Iterator[Batch]:
        plan = self.plan
        for indices in poisson_batches(self._n_records, plan.sampling_rate, plan.steps, self._rng):
            yield Batch(self, indices)

    def example(self) -> Chunk:
        """A chunk of the shapes and dtypes that training will see, all zeros: tells nothing of the data."""
        return self._chunk(np.empty(0, dtype=np.int64), drawing=False)

    def _chunk(self, indices, drawing=True) -> Chunk:
        count, size = len(indices), self.physical_batch
        index = torch.from_numpy(indices)

        def rows(x):
            if x is None:
                return None
            dtype = self.dtype if x.is_floating_point() else x.dtype
            # without padding, indexing copies straight into a batch
            batch = torch.zeros((size, *x.shape[1:]), dtype=dtype)
            batch[:count] = x[index]
            return batch.to(self.device)

        noise = None
        if self.noise_shape is not None:
            shape = (size, *self.noise_shape)
            normals = self._rng.standard_normal(shape) if drawing else np.zeros(shape)
            noise = torch.from_numpy(normals).to(self.device, self.dtype)
        mask = (torch.arange(size) < count).to(self.device)
        return Chunk(tree_map(rows, self._X), rows(self._y), mask, noise)


def _arrays(dataset):
    """(X, y) as tensors, or trees of them, from what skorch and torch call a dataset."""
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
        raise ValueError(f"a net takes numbers; got an array of dtype {x.dtype}")
    # memory-mapped or read-only arrays are taken as they are: nothing writes to them
    return torch.from_numpy(x if x.flags.writeable else x.copy())
