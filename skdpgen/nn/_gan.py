"""Adversarial training under DP-SGD: a discriminator, whose private gradients are noised, and its generator."""

from __future__ import annotations

import math
import numbers

import torch
import torch.nn.functional as F
from skorch.callbacks import Callback
from torch import nn

from ..dpsgd import ClippedSum, LossModule
from ._generators import ParameterMeans, descend
from ._networks import coarse_pixels

# Slope of the leaky ReLU, and betas of Adam: those of DCGAN (Radford, Metz, Chintala, ICLR 2016).
_SLOPE, ADAM_BETAS = 0.2, (0.5, 0.999)


class DiscriminatorModule(nn.Module):
    """Network that tells private rows from generated ones; the loss of a private row is ``-log D(x)``.

    `n_features`: columns of a row, without labels.
    `n_labels`: number of trailing one-hot label columns. The last layer has one output for each class, and the score of
        a row is that of its class (a projection discriminator).
    `n_hidden`: widths of the hidden layers (leaky ReLU).
    `image_shape`: shape of a row that is an image. Images of 16 pixels and more on each side are first averaged over 2
        x 2 pixels.

    No layer mixes rows. Few parameters are better under DP-SGD: the norm of the noise grows with their number.

    Reference: T. Miyato, M. Koyama, "cGANs with projection discriminator", ICLR 2018.
    """

    def __init__(self, n_features, n_labels=0, *, n_hidden=128, image_shape=None):
        super().__init__()
        self.n_features, self.n_labels = n_features, n_labels
        layers, n_in = [], n_features
        if image_shape is not None:
            if math.prod(image_shape) != n_features:
                raise ValueError(f"image_shape {tuple(image_shape)} does not fit rows of {n_features} columns")
            averages, n_in = coarse_pixels(image_shape)
            layers.append(averages)
        for n in [n_hidden] if isinstance(n_hidden, numbers.Integral) else n_hidden:
            layers += [nn.Linear(n_in, n), nn.LeakyReLU(_SLOPE)]
            n_in = n
        self.network = nn.Sequential(*layers, nn.Linear(n_in, 1 + n_labels))

    def scores(self, x):
        """Log-odds that rows are private ones, shape (batch,)."""
        output = self.network(x[:, : self.n_features])
        return output[:, 0] + (output[:, 1:] * x[:, self.n_features :]).sum(1)

    def forward(self, x):
        """Loss of each private row, shape (batch,)."""
        return F.softplus(-self.scores(x))

    def losses_of_generated(self, x):
        """Loss of each generated row, shape (batch,)."""
        return F.softplus(self.scores(x))


class GeneratorTraining(Callback):
    """Train a generator against the discriminator of a net: post-processing of what the net releases.

    Each step of the net releases the noisy mean gradient of private rows. To it this callback adds the mean gradient of
    generated rows, and after every `n_critic` steps it takes one step of the generator against the discriminator.

    `generator`: trained in place; at the end it has the average of its parameters.
    `class_ratio` (n_classes,): public or released shares of the classes, by which the labels of generated rows are
        drawn.
    `n_critic`: steps of the discriminator for each of the generator.
    `learning_rate`: of Adam for the generator.
    `n_rows`: number of generated rows in a step; public.
    `seed`: of latents and labels; public.
    `average`: decay of the exponential average of the generator's parameters.

    It reads parameters, which are functions of earlier releases, and its public seed, and no private row: callbacks of
    a `DPNet` get none. So neither the gradient of generated rows nor the generator needs noise. The gradients of
    generated rows are clipped one by one, as those of private rows are: without it the two sides of the loss would have
    different weights wherever clipping shortens the private one.
    """

    def __init__(self, generator, class_ratio, *, n_critic, learning_rate, n_rows, seed, average=0.99):
        self.generator, self.class_ratio = generator, class_ratio
        self.n_critic, self.learning_rate, self.n_rows = n_critic, learning_rate, n_rows
        self.seed, self.average = seed, average

    def on_train_begin(self, net, **kwargs):
        device = torch.device(net.device or "cpu")
        self.generator.to(device).train()
        self.means_ = ParameterMeans(self.generator, self.average)
        self.optimizer_ = torch.optim.Adam(self.means_.parameters, lr=self.learning_rate, betas=ADAM_BETAS)
        self.draws_ = torch.Generator().manual_seed(int(self.seed))
        self.device_, self.step_ = device, 0

    def _generated(self):
        """Generated rows, with their labels."""
        shares = torch.as_tensor(self.class_ratio, dtype=torch.float64) if self.generator.n_classes else None
        return self.generator.draw(self.n_rows, shares, self.draws_, self.device_)

    def on_grad_computed(self, net, named_parameters=None, training=True, **kwargs):
        """Add the gradient of generated rows to the released one."""
        root = LossModule(net.module_, lambda module, x: module.losses_of_generated(x))
        clipped = ClippedSum(root, net.plan.l2_bound, clip_norm=net.plan.clip_norm, path=net.path_)
        with torch.no_grad():
            rows = self._generated()
        for p, gradient in zip(clipped.parameters, clipped(rows).value):
            p.grad.add_(gradient, alpha=1 / self.n_rows)

    def on_batch_end(self, net, training=True, **kwargs):
        """Take a step of the generator, where it is its turn."""
        self.step_ += 1
        if self.step_ % self.n_critic:
            return
        with torch.enable_grad():
            loss = net.module_(self._generated()).mean()  # generated rows that are to pass for private ones
        descend(self.optimizer_, loss)
        self.means_.follow(self.step_ // self.n_critic)

    def on_train_end(self, net, **kwargs):
        """Give the generator its average."""
        self.means_.give()
        self.generator.cpu().eval()
