"""Stage 2 of DP2-VAE: one decoder trained with noise on what private encoders feed it.

The encoders live in `EncoderStack` alone, for as long as a fit lasts. What leaves this file is the decoder.
"""

from __future__ import annotations

import contextlib
import sys

import numpy as np
import torch
from tqdm import tqdm

from .._types import BoundedSum
from ..dpsgd import GradientNoise
from ..dpsgd._subsets import KeyedStream, subset_draws
from ._dp2vae_training import QUERY, REFRESH, StackableNet, factors, norms_of, sample_latent, scaled

__all__ = ["EncoderStack", "bytes_needed", "clipped_sum", "train_decoder"]

_BETAS, _TINY = (0.9, 0.999), 1e-8


class EncoderStack:
    """The encoders in stage 2, and all that may happen to them: the state of each is a function of its own subset, of
    what was released, and of draws keyed by (subset, step), never of how often it was drawn (but under "on_query").

    Parameters
    ----------
    encoder : Module
    parameters : list of tensor
        From `pretrain_encoders`.
    rows : SubsetRows
    likelihood, key, batch_size, device
    lr : float
        Of Adam, of which each encoder has a state of its own.
    refine_steps : int
        Steps of one refreshment.
    l2_bound : float
        To which an encoder's gradients are clipped.
    policy : str
        ``encoder_update`` of the plan.
    """

    def __init__(
        self, encoder, parameters, rows, likelihood, *, key, batch_size, device, lr, refine_steps, l2_bound, policy
    ):
        self.net, self.parameters, self.likelihood = StackableNet(encoder, device), parameters, likelihood
        self.rows, self.stream, self.size, self.device = rows.to(device), KeyedStream(key), batch_size, device
        self.lr, self.refine_steps, self.l2_bound, self.policy = lr, refine_steps, l2_bound, policy
        persistent = policy in ("round_robin", "on_query")
        self._moments = [[torch.zeros_like(p) for p in parameters] for _ in range(2)] if persistent else None
        self._counts = torch.zeros(len(parameters[0]), dtype=torch.float64)

    def __reduce__(self):
        raise TypeError("encoders are trained without noise: they are private, and are not to be pickled or copied")

    def encode(self, units, step, decoder, weights):
        """Latents, labels and rows of a batch of some subsets, as the policy wants their encoders at this step.

        Parameters
        ----------
        units : int array
        step : int
        decoder, weights : StackableNet, list of tensor
            The released decoder as it is.
        """
        parameters = [p[units].to(self.device) for p in self.parameters]
        if self.policy == "stateless":  # refined on a copy that is dropped
            zeros = [[torch.zeros_like(p) for p in parameters] for _ in range(2)]
            counts = torch.zeros(len(units), dtype=torch.float64)
            parameters = self._refine(parameters, zeros, counts, units, step, decoder, weights)
        x, label, normals = self._draw(QUERY, units, step)
        with torch.no_grad():
            output = self.net.stacked(parameters, x, label)
            latent, _ = sample_latent(output, normals(output.shape[-1] // 2))
        return latent, label, x

    def refresh(self, units, step, decoder, weights):
        """Train the encoders of some subsets on their own rows against the released decoder, and keep the result."""
        parameters = [p[units].to(self.device) for p in self.parameters]
        moments = [[m[units].to(self.device) for m in kind] for kind in self._moments]
        counts = self._counts[units]
        parameters = self._refine(parameters, moments, counts, units, step, decoder, weights)
        for store, new in zip([self.parameters, *self._moments], [parameters, *moments]):
            for whole, piece in zip(store, new):
                whole[units] = piece.to(whole.device)
        self._counts[units] = counts

    def _refine(self, parameters, moments, counts, units, step, decoder, weights):
        for r in range(self.refine_steps):
            x, label, normals = self._draw(REFRESH + 2 * r, units, step)
            parameters = [p.detach().requires_grad_() for p in parameters]
            output = self.net.stacked(parameters, x, label)
            latent, divergence = sample_latent(output, normals(output.shape[-1] // 2))
            decoded = decoder.single(weights, latent.flatten(0, 1), label.flatten(0, 1)).reshape(*x.shape[:2], -1)
            slope = self.likelihood.gradient(decoded.detach(), x)
            gradients = torch.autograd.grad(
                [decoded, output], parameters, [slope.div_(self.size), divergence.div_(self.size)]
            )
            factor = factors(norms_of(gradients), self.l2_bound)
            counts += 1
            parameters = [
                self._adam(p.detach(), g, first, second, counts)
                for p, g, first, second in zip(parameters, scaled(gradients, factor), *moments)
            ]
        return parameters

    def _adam(self, p, g, first, second, counts):
        """One step of Adam on a stack whose members have taken different numbers of steps."""
        shape = (-1,) + (1,) * (p.dim() - 1)
        first.mul_(_BETAS[0]).add_(g, alpha=1 - _BETAS[0])
        second.mul_(_BETAS[1]).addcmul_(g, g, value=1 - _BETAS[1])
        gain = (self.lr / (1 - _BETAS[0] ** counts)).to(p).reshape(shape)
        spread = (1 / (1 - _BETAS[1] ** counts)).to(p).reshape(shape)
        return p - gain * first / ((second * spread).sqrt() + _TINY)

    def _draw(self, purpose, units, step):
        x, label = self.rows.batch(units, self.stream.uniform(purpose, units, step, self.size), self.device)

        def normals(n_latent):
            drawn = self.stream.normal(purpose + 1, units, step, self.size * n_latent)
            return torch.from_numpy(drawn.reshape(len(units), self.size, n_latent)).to(self.device)

        return x, label, normals


def clipped_sum(stack, decoder, weights, units, step, plan, *, chunk):
    """Sum of the clipped mean gradients of the decoder over some subsets: one batched pass a chunk.

    Parameters
    ----------
    stack : EncoderStack
    decoder : StackableNet
    weights : list of tensor
        Parameters of the decoder.
    units : int array
        The subsets drawn.
    step : int
    plan : SubsetPlan
    chunk : int
        Subsets at once.

    Returns
    -------
    BoundedSum
        Of a list of tensors shaped as `weights`. A record changes one of the terms, from any vector of norm
        ``plan.clip_norm`` to any other, and ``l2_bound`` is what the plan's noise multiplier is a multiple of.
    """
    total = [torch.zeros_like(w) for w in weights]
    for part in np.array_split(units, max(1, -(-len(units) // chunk))):
        if not len(part):
            continue
        latent, label, x = stack.encode(part, step, decoder, weights)
        copies = [w.detach().expand(len(part), *w.shape).requires_grad_() for w in weights]
        decoded = decoder.stacked(copies, latent, label)
        slope = stack.likelihood.gradient(decoded.detach(), x)
        gradients = torch.autograd.grad(decoded, copies, slope.div_(stack.size))
        factor = factors(norms_of(gradients), plan.clip_norm) * stack.rows.occupied(part).to(latent.device)
        for whole, piece in zip(total, scaled(gradients, factor)):
            whole += piece.sum(0)
    return BoundedSum(total, l2_bound=plan.reach, difference_bound=2 * plan.l2_bound, unit="subset")


def train_decoder(module, stack, plan, rng, *, lr, averaging, chunk, device="cpu", progress=False, text=""):
    """Train the decoder with noise for all steps of a plan that was charged.

    Parameters
    ----------
    module : Module
        The decoder: public, or a function of what was released. Changed in place.
    stack : EncoderStack
    plan : SubsetPlan
    rng : NoiseGenerator
        Draws subsets and noise.
    lr : float
        Of Adam on the noisy gradient; it falls linearly to zero.
    averaging : float
        Decay of the exponential average of the parameters that is released; 0 releases the last ones.
    chunk : int
    device : str
    progress : bool, default=False
    text : str
        Beside the bar.

    Returns
    -------
    str, bool
        Source of the noise in words, and whether it was private.

    Raises
    ------
    RuntimeError
        If the plan was not charged in this process, or a training has followed it already.
    """
    plan.claim(object())
    module.to(device)
    decoder = StackableNet(module)
    weights = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=lr)
    average = [p.detach().clone() for p in weights]
    with contextlib.ExitStack() as exits:
        noise = exits.enter_context(GradientNoise.like(weights, plan.noise_multiplier, rng, steps=plan.steps))
        bar = exits.enter_context(
            tqdm(
                total=plan.steps, desc=f"DP2-VAE decoder {text}".strip(), unit="step", file=sys.stderr, leave=False,
                disable=None if progress else True,
            )
        )  # fmt: skip
        for p in weights:
            p.grad = torch.zeros_like(p)
        for step, units in enumerate(subset_draws(plan, rng)):
            released = [p.detach() for p in weights]
            if plan.encoder_update == "round_robin":  # whatever was drawn
                stack.refresh(round_robin(plan, step), step, decoder, released)
            total = clipped_sum(stack, decoder, released, units, step, plan, chunk=chunk)
            if plan.encoder_update == "on_query" and len(units):
                stack.refresh(units, step, decoder, released)
            noise.release(total, divisor=plan.per_step, out=[p.grad for p in weights])
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 - step / plan.steps)
            optimizer.step()
            decay = min(averaging, (1 + step) / (10 + step))
            with torch.no_grad():
                for mean, p in zip(average, weights):
                    mean.lerp_(p, 1 - decay)
            bar.update()
        if averaging:
            with torch.no_grad():
                for p, mean in zip(weights, average):
                    p.copy_(mean)
        for p in weights:
            p.grad = None
        return noise.description, noise.private


def round_robin(plan, step):
    """Subsets whose encoders are refreshed at a step: public, as many as are drawn on average."""
    return np.unique((step * plan.per_step + np.arange(plan.per_step)) % plan.n_subsets)


def bytes_needed(n_parameters, n_subsets, policy):
    """Memory that the encoders hold in stage 2: their parameters, and Adam's two moments where they are kept."""
    return 4 * n_parameters * n_subsets * (3 if policy in ("round_robin", "on_query") else 1)
