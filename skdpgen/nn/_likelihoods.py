"""Likelihoods of a decoder: per-record log-probabilities, never reduced over records."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["BernoulliLikelihood", "GaussianLikelihood", "LaplaceLikelihood", "TableLikelihood"]


class BernoulliLikelihood(nn.Module):
    """Independent Bernoulli columns with values in [0, 1]; the decoder gives logits."""

    def log_prob(self, output, x):
        """Shape ``output.shape[:-1]``; `x` broadcasts against `output`."""
        return -F.binary_cross_entropy_with_logits(output, x.expand_as(output), reduction="none").sum(-1)

    def mean(self, output):
        """Expected value of each column."""
        return torch.sigmoid(output)


class GaussianLikelihood(nn.Module):
    """Independent Gaussian columns of one fixed standard deviation; the decoder gives means."""

    def __init__(self, scale=0.1):
        super().__init__()
        self.scale = scale

    def log_prob(self, output, x):
        """Shape ``output.shape[:-1]``; `x` broadcasts against `output`."""
        gap = (x - output) / self.scale
        return -0.5 * gap.square().sum(-1) - output.shape[-1] * (math.log(self.scale) + 0.5 * math.log(2 * math.pi))

    def mean(self, output):
        """Expected value of each column."""
        return output


class LaplaceLikelihood(nn.Module):
    """Independent Laplace columns of one fixed scale; the decoder gives their medians."""

    def __init__(self, scale=0.1):
        super().__init__()
        self.scale = scale

    def log_prob(self, output, x):
        """Shape ``output.shape[:-1]``; `x` broadcasts against `output`."""
        return -(x - output).abs().sum(-1) / self.scale - output.shape[-1] * math.log(2 * self.scale)

    def mean(self, output):
        """Expected value of each column."""
        return output


class TableLikelihood(nn.Module):
    """One categorical distribution a block of one-hot columns.

    Parameters
    ----------
    widths : sequence of int
        Number of levels of each block, in column order; they cover all columns.
    """

    def __init__(self, widths):
        super().__init__()
        self.widths = tuple(int(width) for width in widths)

    def log_prob(self, output, x):
        """Shape ``output.shape[:-1]``; `x` holds one-hot (or soft) blocks and broadcasts against `output`."""
        return (self._log_softmax(output) * x).sum(-1)

    def mean(self, output):
        """Probability of each level."""
        return torch.exp(self._log_softmax(output))

    def _log_softmax(self, output):
        return torch.cat([F.log_softmax(block, dim=-1) for block in output.split(self.widths, dim=-1)], dim=-1)
