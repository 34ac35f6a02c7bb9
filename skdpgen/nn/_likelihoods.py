"""Likelihoods of a decoder's output: log-probabilities of single records, and their gradients."""

from __future__ import annotations

import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

# Range of the log-scales that a decoder gives: standard deviations of 0.007 to 2.7, in units of the scaled columns.
_LOG_SCALES = (-5.0, 1.0)


class BernoulliLikelihood(nn.Module):
    """Independent Bernoulli columns with values in [0, 1]; the decoder gives logits."""

    outputs_per_column = 1

    def log_prob(self, output, x):
        """Log-probability of each record, shape ``output.shape[:-1]``; `x` broadcasts against `output`."""
        return -F.binary_cross_entropy_with_logits(output, x.expand_as(output), reduction="none").sum(-1)

    def gradient(self, output, x):
        """Gradient of minus the log-probability with respect to `output`, of its shape."""
        return torch.sigmoid(output).sub_(x)

    def mean(self, output):
        """Expected value of each column."""
        return torch.sigmoid(output)


class _LocationLikelihood(nn.Module):
    """Independent columns of one fixed scale; the decoder gives their locations, which are also their means."""

    outputs_per_column = 1

    def __init__(self, scale=0.1):
        super().__init__()
        self.scale = scale

    def mean(self, output):
        """Expected value of each column."""
        return output


class GaussianLikelihood(_LocationLikelihood):
    """Independent Gaussian columns of one fixed standard deviation; the decoder gives means.

    Parameters
    ----------
    scale : float, default=0.1
        Standard deviation.
    """

    def log_prob(self, output, x):
        """Log-density of each record; see `BernoulliLikelihood.log_prob`."""
        gap = (x - output) / self.scale
        return -0.5 * gap.square().sum(-1) - output.shape[-1] * (math.log(self.scale) + 0.5 * math.log(2 * math.pi))


class LaplaceLikelihood(_LocationLikelihood):
    """Independent Laplace columns of one fixed scale; the decoder gives medians.

    Parameters
    ----------
    scale : float, default=0.1
        Mean absolute deviation from the median.
    """

    def log_prob(self, output, x):
        """Log-density of each record; see `BernoulliLikelihood.log_prob`."""
        return -(x - output).abs().sum(-1) / self.scale - output.shape[-1] * math.log(2 * self.scale)


class ScaledGaussianLikelihood(nn.Module):
    """Independent Gaussian columns; the decoder gives all means, then all log-scales."""

    outputs_per_column = 2

    def gradient(self, output, x):
        """Gradient of minus the log-density with respect to `output`, of its shape.

        A log-scale outside its range has a gradient only towards the range.
        """
        mean, log_scale = output.chunk(2, dim=-1)
        inside = (log_scale > _LOG_SCALES[0]) & (log_scale < _LOG_SCALES[1])
        log_scale = log_scale.clamp(*_LOG_SCALES)
        gap = (mean - x) * torch.exp(-2 * log_scale)
        slope = 1 - (mean - x) * gap
        inwards = torch.where(log_scale < 0, slope.clamp(max=0.0), slope.clamp(min=0.0))
        return torch.cat([gap, torch.where(inside, slope, inwards)], dim=-1)


class TableLikelihood(nn.Module):
    """One categorical distribution for each block of one-hot columns; the decoder gives logits.

    Parameters
    ----------
    widths : sequence of int
        Number of levels of each block, in column order; together they are the number of columns.
    """

    outputs_per_column = 1

    def __init__(self, widths):
        super().__init__()
        self.widths = tuple(int(width) for width in widths)

    def log_prob(self, output, x):
        """Log-probability of each record; `x` holds one-hot (or soft) blocks and broadcasts against `output`."""
        return (self._log_softmax(output) * x).sum(-1)

    def log_scores(self, output, x):
        """Log-probability of each row of `x` under each row of `output`, shape ``(len(x), len(output))``."""
        return x @ self._log_softmax(output).mT

    def gradient(self, output, x):
        """Gradient of minus the log-probability with respect to `output`; zero in a block of `x` without a level."""
        block = self._block.to(output.device).expand(output.shape)
        shape = (*output.shape[:-1], len(self.widths))
        top = torch.full(shape, -math.inf, dtype=output.dtype, device=output.device)
        top = top.scatter_reduce(-1, block, output, "amax")
        part = torch.exp(output - top.gather(-1, block))
        zeros = torch.zeros(shape, dtype=output.dtype, device=output.device)
        total, held = zeros.scatter_add(-1, block, part), zeros.scatter_add(-1, block, x.expand_as(output))
        return part / total.gather(-1, block) * held.gather(-1, block) - x

    def mean(self, output):
        """Probability of each level."""
        return torch.exp(self._log_softmax(output))

    @functools.cached_property
    def _block(self):
        """Block of each column, int64."""
        return torch.repeat_interleave(torch.arange(len(self.widths)), torch.tensor(self.widths))

    def _log_softmax(self, output):
        return torch.cat([F.log_softmax(block, dim=-1) for block in output.split(self.widths, dim=-1)], dim=-1)
