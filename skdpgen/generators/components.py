"""The component of each drawn row, for all rows or a chunk at a time."""

from __future__ import annotations

import numpy as np
import pandas as pd


def spread_components(n, weights, rng):
    """Draw the component of each of n rows, in random order; the number of rows of each is within one of its share."""
    weights = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    total = weights.sum()
    shares = np.cumsum(weights / total if total > 0 else np.full(len(weights), 1 / len(weights)))
    positions = (np.arange(n) + rng.random()) / n
    return rng.permutation(np.minimum(np.searchsorted(shares, positions, side="right"), len(weights) - 1))


def component_chunks(n, weights, size, rng):
    """Yield the components of n rows, at most `size` at a time.

    The distribution is that of `spread_components` cut into chunks, but the whole is never in memory: the counts of all
    rows are fixed first, and each chunk is drawn from them without replacement.
    """
    if n <= size:
        yield spread_components(n, weights, rng)
        return
    weights = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    weights = weights / weights.sum() if weights.sum() > 0 else np.full(len(weights), 1 / len(weights))
    ends = np.clip(np.ceil(n * np.cumsum(weights) - rng.random()), 0, n).astype(np.int64)
    ends[np.flatnonzero(weights)[-1] :] = n
    left = np.diff(ends, prepend=0)
    for start in range(0, n, size):
        counts = rng.multivariate_hypergeometric(left, min(size, n - start), method="marginals")
        left = left - counts
        yield rng.permutation(np.repeat(np.arange(len(left)), counts))


def join_chunks(chunks):
    """Join chunks of rows: arrays, series, frames or pairs of them."""
    first, *others = chunks = list(chunks)
    if not others:
        return first
    if isinstance(first, tuple):
        return tuple(join_chunks(parts) for parts in zip(*chunks))
    return np.concatenate(chunks) if isinstance(first, np.ndarray) else pd.concat(chunks, ignore_index=True)
