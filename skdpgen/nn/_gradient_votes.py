"""Votes of critics on their gradients at generated rows: what is released of them in place of the gradients.

A critic whose gradients are turned into votes moves a sum by a distance that does not depend on how long they are. Sums
of votes are whole numbers, and so exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .._types import BoundedSum
from ..exceptions import InvalidInputError

# Twice the lattice of the noise, in its standard deviations: a sum is rounded to it, see `GradientNoise`.
_LATTICE = 2.0**-29
# Share of the exact bound up to which twice the rounding is added. With a share r, a sum moves by at most
# 1 + r (1 + r) / 2 times that bound.
_MOST_ROUNDING = 0.5


def bound_of_votes(square, noise_multiplier):
    """Most that the votes of one critic move their sum, rounded as `GradientNoise` does.

    `square`: most that they move the exact sum, squared: a whole number, as votes are.

    At most `square` entries change, as each changes by at least 1. Each is rounded to the lattice before and after. The
    lattice follows from the bound, so that it would be too wide for any bound where it is wider than a vote.

    Raises InvalidInputError: the noise is so large that rounding to its lattice would move the sum by more than the
    votes do.
    """
    rounding = _LATTICE * noise_multiplier * math.sqrt(square)
    if rounding > _MOST_ROUNDING:
        raise InvalidInputError(
            f"noise of {noise_multiplier:.2g} times the bound of a step is too large for votes, which are lost where "
            "sums are rounded: raise epsilon or delta, or reduce steps or generated_rows"
        )
    return math.sqrt(square) * (1 + rounding)


class _Votes:
    """Votes on gradients: a subclass has ``square``, ``shape``, ``votes`` and ``direction``."""

    def bound(self, n_rows, noise_multiplier):
        """Most that one critic moves the sum of a step of `n_rows` generated rows, with noise of this multiplier."""
        return bound_of_votes(self.square(n_rows), noise_multiplier)

    def prepare(self, n_rows, n_columns):
        """Draw what is public and new in each step."""

    @torch.no_grad()
    def total(self, critics, units, points, plan):
        """The `BoundedSum` over the critics of a step: a list of one tensor."""
        self.prepare(len(points), critics.n_columns)
        total = torch.zeros(self.shape(len(points), critics.n_columns))
        for part, drawn in critics.with_all(units):
            gradients = critics.gradients(part, points)
            total += self.votes(torch.where(torch.isfinite(gradients), gradients, 0.0))[drawn].sum(0)
        bound = self.bound(len(points), plan.noise_multiplier)
        return BoundedSum([total], add_or_remove_one=bound, replace_one=bound, unit="subset")


@dataclass(frozen=True)
class LargestSigns(_Votes):
    """Each critic votes with the signs of the largest entries of its gradient at each row (DataLens).

    A record changes one critic, and so, at each of m rows, a vector of `n_largest` signs into any other. The two are
    farthest apart where they have the same entries with opposite signs: by ``2 * sqrt(n_largest)`` at a row, and by ``2
    * sqrt(n_largest * m)`` at all of them. With no entry in common it is only ``sqrt(2 * n_largest * m)``.
    """

    n_largest: int  # entries whose signs are votes; the others are 0
    # share of the critics that the noisy sum of an entry must reach, up or down, for the generator to follow it. It
    # then follows its sign. 0: it follows the noisy sum itself.
    threshold: float = 0.0

    def square(self, n_rows):
        """Most that one critic moves the sum, squared."""
        return 4 * self.n_largest * n_rows

    def shape(self, n_rows, n_columns):
        """Shape of what is released."""
        return n_rows, n_columns

    def votes(self, gradients):
        """Signs of the largest entries along the last axis, else 0."""
        if self.n_largest >= gradients.shape[-1]:
            return gradients.sign()
        largest = gradients.abs().topk(self.n_largest, dim=-1).indices
        return torch.zeros_like(gradients).scatter_(-1, largest, gradients.gather(-1, largest).sign())

    def direction(self, released):
        """Direction in which generated rows are to move, from the noisy mean of the votes."""
        if self.threshold == 0:
            return released
        return torch.where(released.abs() >= self.threshold, released.sign(), 0.0)


class ProjectedVotes(_Votes):
    """Each critic votes, at each row and for each of a few public directions, for a bin of its gradient (G-PATE).

    `n_projections`: random directions at each row; public, and drawn anew in each step.
    `n_bins`: of equal width, from ``-reach`` to `reach`; what is beyond is in the outermost.
    `reach`: in units of the root of the mean square of the entries of a gradient.
    `vote`: whether the generator follows the mean of the bins by their noisy counts, or the bin of the largest one.
    `threshold`: share of the critics that this largest count must reach, for the generator to follow it.
    `seed`: of the directions; public.

    A record changes one critic, and so one vote in each of ``n_projections * m`` histograms, for m rows. A vote that
    moves from one bin to another changes two counts by 1 each: by ``sqrt(2 * n_projections * m)`` in all. A critic of
    an empty subset does not vote: its first record moves less.
    """

    def __init__(self, n_projections, n_bins, reach, vote="mean", threshold=0.0, seed=0):
        self.n_projections, self.n_bins, self.reach = n_projections, n_bins, reach
        self.vote, self.threshold = vote, threshold
        self.draws = torch.Generator().manual_seed(int(seed))
        self.centers = reach * ((2 * torch.arange(n_bins) + 1) / n_bins - 1)

    def square(self, n_rows):
        """Most that one critic moves the sum, squared."""
        return 2 * self.n_projections * n_rows

    def shape(self, n_rows, n_columns):
        """Shape of what is released."""
        return n_rows, self.n_projections, self.n_bins

    def prepare(self, n_rows, n_columns):
        """Draw the directions of a step: of norm 1, others for each row."""
        drawn = torch.randn(n_rows, n_columns, self.n_projections, generator=self.draws)
        self.directions_ = drawn / torch.linalg.vector_norm(drawn, dim=1, keepdim=True).clamp(min=1e-12)

    def votes(self, gradients):
        """One-hot bins, (critics, n_rows, n_projections, n_bins): each gradient is measured by its own length."""
        lengths = torch.linalg.vector_norm(gradients, dim=2, keepdim=True)
        scaled = gradients * (gradients.shape[2] ** 0.5 / lengths.clamp(min=1e-30))
        found = torch.einsum("kmd,mdp->kmp", scaled, self.directions_)
        bins = ((found / self.reach + 1) * (self.n_bins / 2)).floor().clamp(0, self.n_bins - 1).long()
        return F.one_hot(bins, self.n_bins) * (lengths > 0)[..., None]

    def direction(self, released):
        """Direction in which generated rows are to move, from the noisy shares of the votes."""
        if self.vote == "mean":
            values = released @ self.centers
        else:
            largest, at = released.max(dim=2)
            values = torch.where(largest >= self.threshold, self.centers[at], 0.0)
        return torch.einsum("mp,mdp->md", values, self.directions_)
