"""Adversarial training under DP-SGD: a discriminator, whose private gradients are noised, and its generator."""

from __future__ import annotations

import math
import numbers

import numpy as np
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


# ---- teachers, which vote -------------------------------------------------------------------------------------------
# Learning rate of the teachers.
_LEARNING_RATE = 0.05
# Steps of the teachers, of the student and of the generator in a round, and rows of each of these steps.
_STEPS, _BATCH = (2, 10, 10), 256
# Learning rates of the student and of the generator, and the decay of the average of the generator's parameters.
_RATES, _AVERAGE = (2e-3, 1e-3), 0.99
# Rounds whose labelled rows the student learns from.
_MEMORY = 30
# Shares of votes are cut to this range: noise takes them out of [0, 1], and cutting there would move their mean.
_RANGE = (-1.0, 2.0)


def rows_by_subset(subsets, n_subsets, most):
    """Return the rows of each subset, in the order of the rows, in a table of public shape.

    `subsets` (n_rows,): subset of each row; negative: in none.
    `n_subsets`, `most`: public, or released. Of a larger subset the first `most` rows are used.
    Returns an array of shape (n_subsets, most): positions of rows; -1 where there is none. What a line holds follows
        from the rows of its subset alone.
    """
    order = np.argsort(subsets, kind="stable")
    sizes = np.bincount(subsets[subsets >= 0], minlength=n_subsets)
    starts = np.cumsum(sizes) - sizes + np.count_nonzero(subsets < 0)
    place = np.arange(most)[None, :]
    filled = place < sizes[:, None]
    table = np.full((n_subsets, most), -1, dtype=np.int64)
    table[filled] = order[(starts[:, None] + place)[filled]]
    return table


class Teachers:
    """Logistic regressions of private against generated rows, one a subset, trained together.

    They never leave a fit: what is released of them are counts of their votes, with noise, from which alone the student
    and the generator learn.

    `x` (n_rows, n_features): private.
    `labels` (n_rows,): classes of the rows; a teacher has weights for all rows, and further ones for each class.
    `n_labels`: number of classes; 0 without.
    `table` (n_teachers, most): see `rows_by_subset`.
    `weights` (n_rows,): weight of each row among those of its subset; None: all the same.

    A record may change the votes of its own teacher alone. So nothing that one teacher computes may depend on the
    subset of another, to the last bit: a vote is a threshold, and rounding could turn it. Every array therefore has a
    public or released shape, whatever the sizes of the subsets; every operation is of one entry of the teachers' axis
    or of one element; and there is no shared scale, no shared state and no early stop. All teachers begin with weights
    of zero. One with an empty subset learns from generated rows alone.
    """

    def __init__(self, x, labels, n_labels, table, weights=None):
        k, most = table.shape
        here = torch.from_numpy(table)
        at, present = here.clamp(min=0).flatten(), here >= 0
        d = self.n_features = x.shape[1]
        self.rows_, self.parts_ = torch.zeros(k, most, d), torch.zeros(k, 1 + n_labels, most)
        weight = present.float()
        if len(x):
            # no product with 0 here: it would not remove a value that is not finite, which is in every free place
            self.rows_ = torch.where(present[..., None], torch.from_numpy(x)[at].view(k, most, d), 0.0)
            self.parts_[:, 0] = present
            if n_labels:
                classes = torch.from_numpy(np.asarray(labels, dtype=np.int64))[at].clamp_(min=0)
                self.parts_[:, 1:] = (F.one_hot(classes, n_labels).view(k, most, n_labels) * present[..., None]).mT
            if weights is not None:
                weight *= torch.as_tensor(weights, dtype=torch.float32)[at].view(k, most)
        self.weight_ = weight / weight.sum(1, keepdim=True).clamp(min=1e-12)
        self.weights_, self.offsets_ = torch.zeros(k, 1 + n_labels, d), torch.zeros(k, 1 + n_labels)
        self.optimizer_ = torch.optim.Adam([self.weights_, self.offsets_], lr=_LEARNING_RATE, betas=ADAM_BETAS)

    @torch.no_grad()
    def learn(self, generated):
        """One step of every teacher, on all of its own rows and on the same generated ones.

        The gradient of a logistic regression is written out: many times faster than a graph of so many small ones.
        """
        outputs = torch.baddbmm(self.offsets_[:, :, None], self.weights_, self.rows_.mT)
        error = torch.sigmoid(-(outputs * self.parts_).sum(1)).mul_(self.weight_).neg_()[:, None] * self.parts_
        self.weights_.grad, self.offsets_.grad = torch.bmm(error, self.rows_), error.sum(2)
        rows, parts = self._split(generated)
        error = torch.sigmoid(self._scores(rows, parts)).div_(len(rows))[..., None] * parts[:, None]
        self.weights_.grad += (error.flatten(1).T @ rows).view_as(self.weights_)
        self.offsets_.grad += error.sum(0)
        self.optimizer_.step()

    @torch.no_grad()
    def vote(self, rows):
        """Say of each row whether it looks more private than the median of these rows.

        `rows` (n, n_features + n_labels): generated.
        Returns an array of shape (n_teachers, n): every teacher says yes to at most half of the rows. Against a fixed
            threshold all of them would say no to every row of a generator that is not yet good, and tell it nothing.
        """
        scores = self._scores(*self._split(rows)).T
        return (scores > scores.median(dim=1, keepdim=True).values).numpy()

    def _split(self, rows):
        """Rows without labels, and what their parts of the weights are multiplied by."""
        return rows[:, : self.n_features], F.pad(rows[:, self.n_features :], (1, 0), value=1.0)

    def _scores(self, rows, parts):
        """Log-odds, by each teacher, that generated rows are private ones, shape (n, n_teachers)."""
        outputs = (rows @ self.weights_.flatten(0, 1).T).view(len(rows), *self.offsets_.shape)
        return ((outputs + self.offsets_) * parts[:, None]).sum(2)


# ---- after the releases --------------------------------------------------------------------------------------------
def train_by_votes(generator, student, teachers, release, class_ratio, *, n_rows, rounds, seed):
    """Train a generator in rounds: teachers learn and vote, counts are released, student and generator learn of these.

    `generator`: changed in place; at the end it has the average of its parameters.
    `teachers`: all that is private here.
    `release`: votes, a bool array of shape (n_teachers, n_rows), to their noisy share, an array of shape (n_rows,).
    `class_ratio` (n_classes,): public or released: labels of generated rows follow it.
    `n_rows`: generated rows that are labelled in a round; public.
    `rounds`: one entry a round.
    `seed`: of latents, labels and batches; public.

    Student and generator read released shares and public seeds: they are post-processing. The student's target is the
    share itself: whether it is a majority says less, at the same cost.
    """
    draws = torch.Generator().manual_seed(int(seed))
    shares = torch.as_tensor(np.asarray(class_ratio), dtype=torch.float64)
    of_student, of_generator = (
        torch.optim.Adam(net.parameters(), lr=rate, betas=ADAM_BETAS) for net, rate in zip((student, generator), _RATES)
    )
    means = ParameterMeans(generator, _AVERAGE)
    known, turn = [], 0

    for _ in rounds:
        with torch.no_grad():
            for _ in range(_STEPS[0]):
                teachers.learn(generator.draw(_BATCH, shares, draws))
            asked = generator.draw(n_rows, shares, draws)
            share = np.clip(release(teachers.vote(asked)), *_RANGE)
        known = [*known, (asked, torch.as_tensor(share, dtype=torch.float32))][-_MEMORY:]
        rows, wanted = (torch.cat(part) for part in zip(*known))
        with torch.enable_grad():
            for _ in range(_STEPS[1]):
                at = torch.randint(len(rows), (_BATCH,), generator=draws)
                score = student.scores(rows[at])
                descend(of_student, (F.softplus(score) - wanted[at] * score).mean())
            for _ in range(_STEPS[2]):
                # generated rows are to pass for private ones
                descend(of_generator, student(generator.draw(_BATCH, shares, draws)).mean())
                turn += 1
                means.follow(turn)
    means.give()
