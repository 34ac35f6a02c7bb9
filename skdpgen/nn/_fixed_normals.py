"""Draws of a latent that are the same for every record, so that the score of a record is a function of it alone."""

from __future__ import annotations

import copy

__all__ = ["DRAWS", "fixed_normals", "in_double"]

DRAWS = 8


def fixed_normals(n_draws, shape, seed=0):
    """Standard normals for each of several draws, shape (n_draws, *shape), float64: antithetic pairs.

    All records are scored with the same draws. One stream consumed record by record would give a record other draws
    when another joins before it, and a sum of scores would then move by far more than the term of one record.

    Parameters
    ----------
    n_draws : int
        Of an odd number the last pair is cut.
    shape : tuple of int
        Of one record.
    seed : int, default=0
        Public.
    """
    import torch

    half = torch.randn(
        ((n_draws + 1) // 2, *shape), generator=torch.Generator().manual_seed(int(seed)), dtype=torch.float64
    )
    return torch.cat([half, -half])[:n_draws]


def in_double(module):
    """Copy a network to double precision: in single, the last bits of a score follow the rows beside it in a batch."""
    return copy.deepcopy(module).double()
