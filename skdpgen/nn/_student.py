"""A generator trained against a student: a discriminator that learns from noisy counts of teachers' votes alone."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from ._gan import ADAM_BETAS
from ._generators import ParameterMeans, one_hot

__all__ = ["train_by_votes"]

# Steps of the teachers, of the student and of the generator in a round, and rows of each of these steps.
_STEPS, _BATCH = (2, 10, 10), 256
# Learning rates of the student and of the generator, and the decay of the average of the generator's parameters.
_RATES, _AVERAGE = (2e-3, 1e-3), 0.99
# Rounds whose labelled rows the student learns from.
_MEMORY = 30
# Shares of votes are cut to this range: noise takes them out of [0, 1], and cutting there would move their mean.
_RANGE = (-1.0, 2.0)


def train_by_votes(generator, student, teachers, release, class_ratio, *, n_rows, rounds, seed):
    """Train a generator in rounds: teachers learn and vote, counts are released, student and generator learn of these.

    Parameters
    ----------
    generator : ConditionalGenerator
        Changed in place; at the end it has the average of its parameters.
    student : DiscriminatorModule
    teachers : Teachers
        All that is private here.
    release : callable
        Votes, a bool array of shape (n_teachers, n_rows), to their noisy share, an array of shape (n_rows,).
    class_ratio : array of shape (n_classes,)
        Public or released: labels of generated rows follow it.
    n_rows : int
        Generated rows that are labelled in a round; public.
    rounds : iterable
        One entry a round.
    seed : int
        Of latents, labels and batches; public.

    Notes
    -----
    Student and generator read released shares and public seeds: they are post-processing. The student's target is the
    share itself: whether it is a majority says less, at the same cost.
    """
    draws = torch.Generator().manual_seed(int(seed))
    shares = torch.as_tensor(np.asarray(class_ratio), dtype=torch.float64)
    parameters = [list(net.parameters()) for net in (student, generator)]
    optimizers = [torch.optim.Adam(own, lr=rate, betas=ADAM_BETAS) for own, rate in zip(parameters, _RATES)]
    means = ParameterMeans(generator, _AVERAGE)
    known, turn = [], 0

    def generate(n):
        latent = torch.randn(n, generator.n_latent, generator=draws)
        codes = torch.multinomial(shares, n, replacement=True, generator=draws)
        labels = one_hot(codes, generator.n_classes)
        uniforms = None
        if generator.n_levels is not None:
            uniforms = torch.rand(n, generator.n_outputs, generator=draws)
        rows = generator(latent, labels, uniforms)
        return rows if labels is None else torch.cat([rows, labels], dim=1)

    def step(k, loss):
        for p, gradient in zip(parameters[k], torch.autograd.grad(loss, parameters[k])):
            p.grad = gradient
        optimizers[k].step()

    for _ in rounds:
        with torch.no_grad():
            for _ in range(_STEPS[0]):
                teachers.learn(generate(_BATCH))
            asked = generate(n_rows)
            share = np.clip(release(teachers.vote(asked)), *_RANGE)
        known = [*known, (asked, torch.as_tensor(share, dtype=torch.float32))][-_MEMORY:]
        rows, wanted = (torch.cat(part) for part in zip(*known))
        with torch.enable_grad():
            for _ in range(_STEPS[1]):
                at = torch.randint(len(rows), (_BATCH,), generator=draws)
                score = student.scores(rows[at])
                step(0, (F.softplus(score) - wanted[at] * score).mean())
            for _ in range(_STEPS[2]):
                step(1, student(generate(_BATCH)).mean())  # generated rows that are to pass for private ones
                turn += 1
                means.follow(turn)
    means.give()
