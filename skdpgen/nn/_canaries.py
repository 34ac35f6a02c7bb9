"""The net of an audit: a parameter for each canary, so that none hides another."""

from __future__ import annotations

from torch import nn

__all__ = ["CanaryModule"]


class CanaryModule(nn.Module):
    """Losses whose gradients are orthogonal: record k's lies along parameter k, whatever the parameters are.

    Parameters
    ----------
    n_canaries : int
    reach : float
        Norm of a gradient before it is clipped.

    Notes
    -----
    Records are of shape (batch, 1), the number of a canary. A group's loss is the sum of its members' losses.
    """

    def __init__(self, n_canaries, reach):
        super().__init__()
        self.table, self.reach = nn.Embedding(n_canaries, 1), reach

    def forward(self, x):
        return self.reach * self.table(x)[:, 0, 0]

    def group_losses(self, x, members):
        return self.reach * (self.table(x)[:, :, 0, 0] * members).sum(1)
