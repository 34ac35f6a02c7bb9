"""Critics of disjoint subsets of the private rows, and a generator that learns from their gradients with noise.

Critics are trained without noise and never leave a fit. What is released of them is a sum over critics, with noise: of
their clipped gradients at generated rows, or of votes on these gradients (`_gradient_votes`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from .._types import BoundedSum
from ..dpsgd import GradientNoise
from ..dpsgd._clipping import clip_factors
from ..dpsgd._subsets import KeyedStream, subset_draws
from ..utils.progress import progress_bar
from ._dp2vae_training import norms_of
from ._generated_rows import GeneratedRows
from ._generators import ParameterMeans

# Purposes of the keyed stream: what is drawn for one never repeats for another.
_ROWS, _PARTNERS = 0, 1
# Slope of the leaky ReLU, and scale of the initial weights that keeps the size of what passes through it.
_SLOPE, _SCALE = 0.2, math.sqrt(2 / (1 + 0.2**2))
# Betas of Adam for critics: those of WGAN-GP are (0, .9) and (.5, .9).
_BETAS = (0.5, 0.9)
# Share of the generator's learning rate that is left at the end.
_LEAST_RATE = 0.05
# Critics at once: few enough that their numbers stay near the cache.
_AT_ONCE = 256
# Generated rows of each class, or in all without classes, that critics compare their rows with in a step.
_PARTNERS_OF_A_CLASS, _PARTNERS_WITHOUT = 4, 32


@dataclass(frozen=True)
class CriticTraining:
    """How critics are trained: without noise, each on its own rows."""

    sizes: tuple  # tuple of int; widths of the hidden layers
    learning_rate: float
    penalty: float  # weight of the gradient penalty
    batch_size: int  # rows of a subset in one step, drawn with replacement
    steps: int  # of every critic before each release
    warm_start_steps: int  # of every critic before the first one
    # "wasserstein" or "logistic"; what a critic is: one whose slopes are held near 1, or a discriminator, a classifier
    # of private against generated rows, whose slopes are held near 0
    loss: str = "wasserstein"


class Critics:
    """Critics with a gradient penalty, one a subset, trained together.

    `rows`: points of the private rows, without their labels, and the labels.
    `label_scale`: of the one-hot class, which follows the columns of a point.
    `key`: of the stream from which rows are drawn, 16 bytes; private.
    `seed`: of the initial parameters, which all critics have in common; public.

    A record may change its own critic alone: there is no shared state but the public start, every array has a public
    shape, and every operation is of one entry of the critics' axis. What a critic draws is a function of a key, of its
    number and of the number of steps that all critics have taken. So its state is a function of its own rows, of
    generated rows that it was shown, and of draws that do not depend on which critics a step uses.

    A private row is compared with a generated row of its own class. With generated rows of other shares of the classes
    than its subset has, a critic would tell the two apart by their classes, and grow without bound: the penalty does
    not see the class.
    """

    def __init__(self, rows, n_columns, label_scale, training, key, seed):
        self.rows, self.n_columns, self.label_scale, self.training = rows, n_columns, label_scale, training
        self.stream, self.step_ = KeyedStream(key), 0
        draws, k = torch.Generator().manual_seed(int(seed)), rows.n_subsets
        widths = [n_columns + rows.n_classes, *training.sizes, 1]
        self.weights_ = [
            (torch.randn(a, b, generator=draws) * (_SCALE / math.sqrt(a))).expand(k, a, b).clone()
            for a, b in itertools.pairwise(widths)
        ]
        self.offsets_ = [torch.zeros(k, 1, b) for b in widths[1:]]
        self.parts_ = []
        for units in np.array_split(np.arange(k), -(-k // _AT_ONCE)):
            own = [p[units[0] : units[-1] + 1].detach().requires_grad_() for p in (*self.weights_, *self.offsets_)]
            self.parts_.append((units, own, torch.optim.Adam(own, training.learning_rate, _BETAS, fused=True)))

    def __reduce__(self):
        raise TypeError("critics are trained without noise: they are private, and are not to be pickled or copied")

    def learn(self, partners):
        """One step of every critic, on rows of its own against generated rows.

        `partners` (n_partners, n_columns + n_classes): generated points, in the order of `classes_of_partners`.
        """
        for units, parameters, optimizer in self.parts_:
            with torch.enable_grad():
                losses = self._losses(parameters, units, partners)
                gradients = torch.autograd.grad(losses.sum(), parameters)
            for p, gradient in zip(parameters, gradients):
                p.grad = gradient.contiguous()  # fused Adam reads gradients in the layout of their parameters
            optimizer.step()
        self.step_ += 1

    def _losses(self, parameters, units, partners):
        n, step = self.training.batch_size, self.step_
        x, labels = self.rows.batch(units, self.stream.uniform(_ROWS, units, step, n), "cpu")
        uniforms = self.stream.uniform(_PARTNERS, units, step, 2 * n)
        of_class, most = 0, len(partners)
        if labels.shape[2]:
            of_class, most = labels.argmax(2), len(partners) // labels.shape[2]
        place = torch.from_numpy((uniforms[:, :n] * most).astype(np.int64).clip(max=most - 1))
        chosen = partners[of_class + place * max(labels.shape[2], 1)]
        share = torch.from_numpy(uniforms[:, n:].astype(np.float32))[..., None]
        labels = self.label_scale * labels
        between = torch.cat([share * x + (1 - share) * chosen[:, :, : self.n_columns], labels], dim=2)
        scores, _ = self._scores(parameters, torch.cat([torch.cat([x, labels], dim=2), chosen], dim=1))
        slopes = self._slopes(parameters, between).square().sum(2).add(1e-12).sqrt()
        logistic = self.training.loss == "logistic"
        penalty = self.training.penalty * (slopes - (0 if logistic else 1)).square().mean(1)
        if logistic:
            return F.softplus(scores[:, n:]).mean(1) + F.softplus(-scores[:, :n]).mean(1) + penalty
        return scores[:, n:].mean(1) - scores[:, :n].mean(1) + penalty

    def _scores(self, parameters, points):
        """Scores of points, (critics, n), and the slopes of the hidden layers."""
        middle = len(parameters) // 2
        hidden, slopes = points, []
        for weight, offset in zip(parameters[: middle - 1], parameters[middle:-1]):
            hidden = torch.baddbmm(offset, hidden, weight)
            slopes.append(torch.where(hidden.detach() > 0, 1.0, _SLOPE))
            hidden = hidden * slopes[-1]
        return torch.baddbmm(parameters[-1], hidden, parameters[middle - 1])[..., 0], slopes

    def _slopes(self, parameters, points):
        """Gradients of the scores by the columns of points, (critics, n, n_columns), without a second graph.

        Hidden layers are linear by pieces: their slopes are constants.
        """
        middle = len(parameters) // 2
        with torch.no_grad():
            _, slopes = self._scores(parameters, points)
        gradient = parameters[middle - 1].mT.expand(-1, points.shape[1], -1)
        for layer, slope in reversed(list(enumerate(slopes))):
            weight = parameters[layer] if layer else parameters[0][:, : self.n_columns]
            gradient = torch.bmm(gradient * slope, weight.mT)
        return gradient if slopes else gradient[:, :, : self.n_columns]

    def with_all(self, units):
        """Yield the critics that are trained at once, if some of `units` are among them, and which of them are.

        Float32 may round the gradients of a critic by its place. So it has the same place whichever critics are drawn.
        """
        for part, *_ in self.parts_:
            drawn = np.isin(part, units)
            if drawn.any():
                yield part, torch.from_numpy(drawn)

    @torch.no_grad()
    def gradients(self, units, points):
        """Gradients of the scores of some critics by the columns of generated points; 0 where a subset is empty.

        `points`: shape (n, n_columns + n_classes). Returns a tensor of shape (len(units), n, n_columns).
        """
        parameters = [p[torch.from_numpy(units)] for p in (*self.weights_, *self.offsets_)]
        found = self._slopes(parameters, points.expand(len(units), *points.shape))
        return found.masked_fill(~self.rows.occupied(units)[:, None, None], 0.0)


def classes_of_partners(n_classes):
    """Classes of the generated rows that critics compare their rows with: all classes in turn."""
    return torch.arange(_PARTNERS_OF_A_CLASS * n_classes if n_classes else _PARTNERS_WITHOUT) % max(n_classes, 1)


@torch.no_grad()
def clipped_gradient_sum(critics, units, points, plan):
    """Sum over critics of their gradients at generated rows, each row's clipped to its part of the bound.

    `units`: the critics of the step.
    `points` (n_rows, n_columns + n_classes): generated: a function of what was released, and of public draws.
    `plan`: its `gradient_bound` is that of the gradients of one critic at all rows together.
    The value is a list of one tensor of shape (n_rows, n_columns). A record changes one critic: at every row
        its gradient may turn from any vector of norm C to any other, where C is ``gradient_bound / sqrt(n_rows)``. All
        rows together move by at most ``2 * gradient_bound``, and ``l2_bound`` is what the plan's noise multiplier is a
        multiple of.
    """
    n_rows = len(points)
    total = torch.zeros(n_rows, critics.n_columns)
    for part, drawn in critics.with_all(units):
        gradients = critics.gradients(part, points)
        scale = clip_factors(norms_of([gradients.flatten(0, 1)]), plan.clip_norm / math.sqrt(n_rows))
        scale = scale.to(gradients.dtype).view(len(part), n_rows, 1) * drawn[:, None, None]
        total += torch.where(scale > 0, gradients * scale, 0.0).sum(0)  # infinity times 0 is no number
    return BoundedSum([total], add_or_remove_one=plan.l2_bound, replace_one=2 * plan.gradient_bound, unit="subset")


class ClippedGradients:
    """What a step releases of critics, and what the generator learns from it: gradients themselves (GS-WGAN)."""

    def shape(self, n_rows, n_columns):
        """Shape of what is released."""
        return n_rows, n_columns

    def total(self, critics, units, points, plan):
        """The `BoundedSum` over the critics of a step."""
        return clipped_gradient_sum(critics, units, points, plan)

    def direction(self, released):
        """Direction in which generated rows are to move: a function of what was released."""
        return released


def train_by_critics(
    generator, make_critics, plan, rng, class_ratio, *, n_rows, votes=None, basis=None, gains=1.0, label_scale=10.0,
    learning_rate=5e-4, average=0.99, seed=0, progress=False, progress_text="",
):  # fmt: skip
    """Train a generator with noise for all steps of a plan that was charged.

    `generator`: changed in place; at the end it has the average of its parameters. With `basis` its outputs are
        coordinates of the log-odds of rows (see `to_rows`).
    `make_critics`: `GeneratedRows` to `Critics`: all that is private here.
    `rng`: draws critics and noise.
    `class_ratio` (n_classes,): public or released: labels of generated rows follow it.
    `n_rows`: generated rows in a step at which gradients are released; public.
    `votes`: with the methods of `ClippedGradients`, which None stands for: what is released of the gradients.
    `basis`, `gains`, `label_scale`: as of `GeneratedRows`.
    `learning_rate`, `average`: of Adam, whose rate falls linearly; decay of the average of the parameters, which is
        released.
    `seed`: of latents and labels, which are public.
    Returns: source of the noise in words, and whether it was private.

    All critics learn before every release, whichever of them it uses: what a critic has learned says nothing of how
    often it was drawn.
    """
    plan.claim(object())
    draws = torch.Generator().manual_seed(int(seed))
    generate = GeneratedRows(generator, class_ratio, draws, basis=basis, gains=gains, label_scale=label_scale)
    classes = classes_of_partners(generator.n_classes)
    means = ParameterMeans(generator, average)
    optimizer = torch.optim.Adam(means.parameters, lr=learning_rate, betas=(0.5, 0.999), fused=True)
    votes = votes or ClippedGradients()
    released = torch.zeros(votes.shape(n_rows, generator.n_outputs))

    def teach(critics, steps):
        for _ in range(steps):
            with torch.no_grad():
                partners = generate(len(classes), classes)
            critics.learn(partners)

    with contextlib.ExitStack() as exits:
        noise = exits.enter_context(GradientNoise([released.shape], plan.noise_multiplier, rng, steps=plan.steps))
        bar = progress_bar(None, shown=progress, phase=progress_text, total=plan.steps, unit="step")
        exits.enter_context(bar)
        exits.enter_context(torch.enable_grad())
        critics = make_critics(generate)  # after the noise: draws of subsets, one a record, do not shift it
        teach(critics, critics.training.warm_start_steps)
        for step, units in enumerate(subset_draws(plan, rng)):
            plan.take_step()
            teach(critics, critics.training.steps)
            points = generate(n_rows)
            total = votes.total(critics, units, points.detach(), plan)
            noise.release(total, divisor=plan.per_step, out=[released])
            optimizer.zero_grad()
            # critics are to give generated rows a high score
            points[:, : generator.n_outputs].backward(votes.direction(released).div(-n_rows))
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * (1 - (1 - _LEAST_RATE) * step / plan.steps)
            optimizer.step()
            means.follow(step)
            bar.update()
        means.give()
        return noise.description, noise.private
