"""Rows of a generator as points: what gradients of generated rows, and their noise, are of."""

from __future__ import annotations

import numpy as np
import torch

from ..dpsgd._seeding import torch_seeded
from ..utils.blocks import exact_product
from ._generators import ConditionalGenerator, one_hot

# Factor of the initial weights of the class: latents are longer than a one-hot class, and the noise hides the classes
# for long from a generator that hardly depends on them.
_CLASS_WEIGHT = 6.0
# Least slope of the sigmoid in the gradient; its largest is .25.
_LEAK = 0.05
# Private rows that are encoded at once.
_CHUNK = 4096


class GeneratedRows:
    """Generated and private rows as points of one space: coordinates, and then the class with a scale.

    Arrays are moved from [0, 1] to [-1, 1]; one-hot levels of tables stay as they are.

    `generator`: with `basis` its outputs are coordinates of the log-odds of rows (see `to_rows`).
    `class_ratio` (n_classes,): public or released: labels of generated rows follow it.
    `draws`: of latents and labels, which are public.
    `basis` (n_features, n_outputs): public orthonormal basis of the coordinates.
    `gains` (n_outputs,) or float: public factors of the generator's outputs.
    `label_scale`: of the one-hot class.
    """

    def __init__(self, generator, class_ratio, draws, *, basis=None, gains=1.0, label_scale=1.0):
        self.generator, self.draws, self.label_scale = generator, draws, label_scale
        self.cumulative_ = torch.as_tensor(np.cumsum(class_ratio) / np.sum(class_ratio))
        self.basis_ = None if basis is None else torch.as_tensor(basis, dtype=torch.float32)
        self.gains_ = torch.as_tensor(gains, dtype=torch.float32)

    def encode(self, rows, codes, product=torch.matmul):
        """Points of rows."""
        rows = rows if self.generator.n_levels is not None else 2 * rows - 1
        rows = rows if self.basis_ is None else product(rows, self.basis_)
        classes = one_hot(codes, self.generator.n_classes)
        return rows if classes is None else torch.cat([rows, self.label_scale * classes], dim=1)

    def encoded(self, rows, codes):
        """Points of private rows, a chunk at a time: each is a function of its row, to the last bit."""
        parts = zip(rows.split(_CHUNK), codes.split(_CHUNK))
        return torch.cat([self.encode(*part, _exact) for part in parts] or [self.encode(rows, codes)])

    def codes(self, n_rows):
        """Classes that follow the shares, but for a random start."""
        places = (torch.arange(n_rows) + torch.rand(1, generator=self.draws, dtype=torch.float64)) / n_rows
        return torch.searchsorted(self.cumulative_, places).clamp_(max=len(self.cumulative_) - 1)

    def __call__(self, n_rows, codes=None):
        """Points of generated rows; their classes follow the shares, but for a random start, or are given."""
        codes = self.codes(n_rows) if codes is None else codes
        generator, draws = self.generator, self.draws
        latent, classes = torch.randn(n_rows, generator.n_latent, generator=draws), one_hot(codes, generator.n_classes)
        if generator.n_levels is not None:
            uniforms = torch.rand(n_rows, generator.n_outputs, generator=draws)
            return self.encode(generator(latent, classes, uniforms), codes)
        logits = self.gains_ * generator.logits(latent, classes)
        return self.encode(_leaky_sigmoid(logits if self.basis_ is None else logits @ self.basis_.T), codes)


def _exact(rows, matrix):
    """A product whose last bits do not follow the place of a row, or the number of rows: see `exact_product`."""
    return torch.from_numpy(exact_product(rows.numpy(), matrix.numpy()).astype(np.float32))


def _leaky_sigmoid(logits):
    """The sigmoid with a gradient that does not vanish: a value that noise led to an end of its range can return."""
    return torch.sigmoid(logits) + _LEAK * (logits - logits.detach())


@torch.no_grad()
def emphasize_classes(generator):
    """Let a new generator depend on the class as much as on the latent, before it has learned anything."""
    if generator.n_classes:
        weight = next(generator.parameters())
        weight[:, generator.n_latent :] *= _CLASS_WEIGHT


@torch.no_grad()
def to_rows(generator, basis=None, gains=1.0):
    """The generator of rows for one of coordinates in a public basis: basis and gains become part of its last layer."""
    width = generator.n_outputs if basis is None else len(basis)
    with torch_seeded(0):  # its first parameters are replaced, and torch's generators are the caller's
        whole = ConditionalGenerator(**{**generator.architecture, "n_outputs": width})
    last = torch.as_tensor(gains, dtype=torch.float32).expand(generator.n_outputs)
    last = torch.diag(last) if basis is None else torch.as_tensor(basis, dtype=torch.float32) * last
    arrays = generator.state_dict()
    weight, bias = list(arrays)[-2:]
    whole.load_state_dict({**arrays, weight: last @ arrays[weight], bias: last @ arrays[bias]})
    return whole
