"""Stage 1 of DP2-VAE: many encoders trained together without noise; and training on rows that may be read."""

from __future__ import annotations

import contextlib
import copy
import math
import sys

import numpy as np
import torch
from joblib import Parallel, delayed
from torch.func import functional_call, vmap
from tqdm import tqdm

from .._types import BoundedSum
from ..dpsgd import GradientNoise
from ..dpsgd._subsets import KeyedStream, subset_draws
from ._dp2vae import in_patch_order

__all__ = [
    "StackableNet",
    "SubsetRows",
    "default_chunk",
    "pretrain_encoders",
    "readable",
    "train_on_pairs",
    "train_together",
]

# Purposes of the keyed stream: what is drawn for one never repeats for another.
PRETRAIN, QUERY, REFRESH = 0, 2, 4
_LOG_VARIANCE = (-12.0, 4.0)
# Encoders trained at once on a CPU, by default: few enough that parameters stay near its cache, and enough that the
# time of an operation is theirs.
_CACHED_BYTES = 96 << 20
_BETAS, _TINY = (0.9, 0.999), 1e-8


class SubsetRows:
    """The private rows of a fit, sorted by subset.

    Parameters
    ----------
    x : float32 array of shape (n_rows, n_features)
    codes : int array of shape (n_rows,)
        Class of each row; 0 where there are no classes.
    n_classes : int
        0 without.
    subsets : int array of shape (n_rows,)
    n_subsets : int
        K. A subset without rows keeps its index.
    """

    def __init__(self, x, codes, n_classes, subsets, n_subsets):
        order = np.argsort(subsets, kind="stable")
        self._x, self._codes = torch.from_numpy(x[order]), torch.from_numpy(np.asarray(codes)[order])
        self._ends = np.searchsorted(subsets[order], np.arange(n_subsets + 1))
        self._eye = torch.eye(n_classes)
        self.n_classes = n_classes

    def part(self, start, stop):
        """The rows of a range of subsets, which keep their order; for another process."""
        out = copy.copy(self)
        first, last = self._ends[start], self._ends[stop]
        out._x, out._codes = self._x[first:last].clone(), self._codes[first:last].clone()
        out._ends = self._ends[start : stop + 1] - first
        return out

    def occupied(self, units):
        """Which of some subsets have rows, bool tensor."""
        return torch.from_numpy(self._ends[units + 1] > self._ends[units])

    def batch(self, units, uniforms, device):
        """Rows and one-hot labels of some subsets, shapes (units, batch, n_features) and (units, batch, n_classes).

        `uniforms`, of shape (units, batch), chooses the rows, with replacement; of an empty subset they are zero.
        """
        first, size = self._ends[units][:, None], (self._ends[units + 1] - self._ends[units])[:, None]
        index = torch.from_numpy(np.minimum(first + (uniforms * size).astype(np.int64), max(len(self._x) - 1, 0)))
        if not len(self._x):
            shapes = ((*index.shape, self._x.shape[1]), (*index.shape, self.n_classes))
            return tuple(torch.zeros(shape, device=device) for shape in shapes)
        empty = torch.from_numpy(size == 0)[..., None]
        x = self._x[index.to(self._x.device)].masked_fill_(empty.to(self._x.device), 0).to(device)
        if not self.n_classes:
            return x, x.new_zeros(*index.shape, 0)
        return x, self._eye[self._codes[index].clamp(min=0)].masked_fill_(empty, 0).to(device)

    def to(self, device, order=None):
        """The same rows, where they are to be used: one copy instead of one a step; columns in another order."""
        out = copy.copy(self)
        out._x = (self._x if order is None else self._x[:, order]).to(device)
        return out


class StackableNet:
    """A module as functions of its parameters: of one copy, or of a stack of copies.

    Parameters
    ----------
    module : Module
    device : str, default=None
        Where it will be used; None: where it is.
    """

    def __init__(self, module, device=None):
        body = copy.deepcopy(module).to(device)
        self.names = [name for name, p in body.named_parameters() if p.requires_grad]
        self.start = [p.detach().clone() for p in body.parameters() if p.requires_grad]
        rest = {name: p.detach().clone() for name, p in body.named_parameters() if not p.requires_grad}
        rest.update({name: b.detach().clone() for name, b in body.named_buffers()})

        def call(parameters, x, label):
            return functional_call(body, {**dict(zip(self.names, parameters)), **rest}, (x, label))

        self.single, self.stacked = call, vmap(call)

    @property
    def size(self):
        """Number of parameters of one copy."""
        return sum(p.numel() for p in self.start)

    def copies(self, n, device):
        """A stack of `n` copies of the parameters of the template."""
        return [p.to(device).expand(n, *p.shape).clone() for p in self.start]


def sample_latent(output, normals):
    """Latents, and the gradient of the KL divergence to N(0, I) in `output`."""
    mean, log_variance = output.chunk(2, dim=-1)
    log_variance = log_variance.clamp(*_LOG_VARIANCE)
    with torch.no_grad():
        divergence = torch.cat([mean, 0.5 * torch.expm1(log_variance)], dim=-1)
    return mean + torch.exp(0.5 * log_variance) * normals, divergence


def norms_of(gradients, dtype=torch.float64):
    """Norm of each of a stack of gradients; accumulated in float64 where a release hangs on it."""
    parts = [torch.linalg.vector_norm(g, dim=tuple(range(1, g.dim())), dtype=dtype) for g in gradients]
    return torch.stack(parts).square().sum(0).sqrt()


def scaled(gradients, factor):
    """Multiply each of a stack by its own factor, in place; 0 where that is 0: infinity times 0 is no number."""
    masked = not bool((factor > 0).all())
    for g in gradients:
        shape = (-1,) + (1,) * (g.dim() - 1)
        if masked:
            g = torch.where((factor > 0).reshape(shape), g, torch.zeros_like(g))
        yield g.mul_(factor.to(g.dtype).reshape(shape))


def factors(norms, bound):
    """What clips to `bound`; 0 for a gradient that is not finite."""
    return torch.where(torch.isfinite(norms), (bound / norms.clamp(min=1e-30)).clamp(max=1.0), torch.zeros_like(norms))


# ---- stage 1 ------------------------------------------------------------------------------------------------------
def default_chunk(encoder_size, decoder_size, device, max_bytes, batch_size, n_features):
    """Encoders to train at once: within the cache of a CPU, all that fit into memory elsewhere.

    Returns
    -------
    int, int
        The choice, and the most that `max_bytes` hold.
    """
    # parameters, gradients, Adam's two moments, a temporary; of rows: input, output, its gradient, hidden layers
    each = 20 * (encoder_size + decoder_size) + 24 * batch_size * n_features
    most = max(1, int(max_bytes // each))
    wanted = most if torch.device(device).type != "cpu" else max(16, _CACHED_BYTES // each)
    return min(wanted, most), most


def pretrain_encoders(encoder, decoder, rows, likelihood, *, n_subsets, settings, key, chunk, progress=False):
    """Train one encoder a subset, each with a decoder of its own that is thrown away.

    Parameters
    ----------
    encoder, decoder : Module
        Where all of them start: public, or a function of what was released.
    rows : SubsetRows
    likelihood : object with ``gradient(output, x)``
    n_subsets : int
    settings : dict
        steps, batch_size, lr, l2_bound, device, n_jobs.
    key : bytes
        Of the keyed stream.
    chunk : int
        Encoders at once; the result does not hang on it.
    progress : bool, default=False

    Returns
    -------
    list of tensor, each of shape (n_subsets, ...)
        Parameters of the encoders, in the order of ``encoder.parameters()``. Private.
    """
    bounds = [(start, min(start + chunk, n_subsets)) for start in range(0, n_subsets, chunk)]
    work = (
        delayed(_pretrain_chunk)(encoder, decoder, rows.part(*part), likelihood, part, settings, key) for part in bounds
    )
    bar = tqdm(
        work, total=len(bounds), desc="DP2-VAE encoders", unit="chunk", disable=None if progress else True,
        file=sys.stderr, leave=False,
    )  # fmt: skip
    # max_nbytes: joblib would write larger arrays, which are private rows, to files for its workers
    done = Parallel(n_jobs=settings["n_jobs"], max_nbytes=None)(bar)
    return [torch.from_numpy(np.concatenate(pieces)) for pieces in zip(*done)]


def _pretrain_chunk(encoder, decoder, rows, likelihood, part, settings, key):
    """Stage 1 for a range of subsets: fixed steps, nothing pooled over them, nothing said of them."""
    device, size = settings["device"], settings["batch_size"]
    encoder, decoder, order = in_patch_order(encoder, decoder, likelihood)
    encoder, decoder, stream = StackableNet(encoder, device), StackableNet(decoder, device), KeyedStream(key)
    whole = [p.numpy() for p in encoder.copies(part[1] - part[0], "cpu")]
    local = np.flatnonzero(rows.occupied(np.arange(part[1] - part[0])).numpy())
    if not len(local):  # nothing will ever be asked of the encoder of an empty subset
        return whole
    units, rows = part[0] + local, rows.to(device, order)
    nets = encoder.copies(len(units), device), decoder.copies(len(units), device)
    parameters = [p.requires_grad_() for net in nets for p in net]
    optimizer = torch.optim.Adam(parameters, lr=settings["lr"], fused=torch.device(device).type in ("cpu", "cuda"))
    for step in range(settings["steps"]):
        x, label = rows.batch(local, stream.uniform(PRETRAIN, units, step, size), device)
        output = encoder.stacked(nets[0], x, label)
        n_latent = output.shape[-1] // 2
        normals = stream.normal(PRETRAIN + 1, units, step, size * n_latent).reshape(len(units), size, n_latent)
        latent, divergence = sample_latent(output, torch.from_numpy(normals).to(device))
        decoded = decoder.stacked(nets[1], latent, label)
        slope = likelihood.gradient(decoded.detach(), x)
        gradients = torch.autograd.grad([decoded, output], parameters, [slope.div_(size), divergence.div_(size)])
        middle = len(nets[0])
        for group, targets in ((gradients[:middle], nets[0]), (gradients[middle:], nets[1])):
            for target, g in zip(targets, scaled(group, factors(norms_of(group, torch.float32), settings["l2_bound"]))):
                target.grad = g.contiguous()  # fused Adam reads gradients in the layout of their parameters
        optimizer.step()
    for p, trained in zip(whole, nets[0]):
        p[local] = trained.detach().cpu().numpy()
    return whole


# ---- stage 2 --------------------------------------------------------------------------------------------------------
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


# ---- ordinary training, on rows that may be read ------------------------------------------------------------------
def train_together(encoder, decoder, x, codes, n_classes, likelihood, *, steps, lr, seed, batch_size=256, device="cpu"):
    """Train encoder and decoder in place on synthetic rows: free, where the rows are a function of a release.

    Parameters
    ----------
    encoder, decoder : Module
    x : float32 array of shape (n_rows, n_features)
    codes : int array of shape (n_rows,)
    n_classes : int
    likelihood : object with ``gradient(output, x)``
    steps, lr, batch_size
        Of Adam, whose rate falls linearly to a tenth.
    seed : int
    device : str
    """
    generator = torch.Generator().manual_seed(seed)
    x, codes, eye = torch.from_numpy(x), torch.from_numpy(np.asarray(codes)), torch.eye(n_classes)
    encoder.to(device), decoder.to(device)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    parameters = [p for p in parameters if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=lr)
    for step in range(steps):
        index = torch.randint(len(x), (batch_size,), generator=generator)
        rows = x[index].to(device)
        label = (eye[codes[index]] if n_classes else torch.zeros(batch_size, 0)).to(device)
        output = encoder(rows, label)
        normals = torch.randn(batch_size, output.shape[1] // 2, generator=generator).to(device)
        latent, divergence = sample_latent(output, normals)
        decoded = decoder(latent, label)
        slope = likelihood.gradient(decoded.detach(), rows)
        gradients = torch.autograd.grad(
            [decoded, output], parameters, [slope.div_(batch_size), divergence.div_(batch_size)]
        )
        for p, g in zip(parameters, gradients):
            p.grad = g
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - 0.9 * step / steps)
        optimizer.step()
    for p in parameters:
        p.grad = None


def train_on_pairs(
    encoder, decoders, pairs, n_classes, likelihood, *, steps, lr, seed, batch_size=256, device="cpu", progress=False
):
    """Train encoder and decoders in place on synthetic rows whose latents are known: free, where a release gave both.

    A decoder learns what rows a latent gives, an encoder the law of the latent given the row. Unlike `train_together`,
    no encoder that still has to learn keeps a latent from being used.

    Parameters
    ----------
    encoder : Module
    decoders : sequence of Module
    pairs : tuple of arrays
        Rows, float32 of shape (n_rows, n_features); their latents, standard normal; their class codes.
    n_classes, likelihood, steps, lr, seed, batch_size, device
        As in `train_together`.
    progress : bool, default=False

    References
    ----------
    G. Hinton, P. Dayan, B. Frey, R. Neal, "The wake-sleep algorithm for unsupervised neural networks", Science 1995:
    the sleep phase.
    """
    generator = torch.Generator().manual_seed(seed)
    x, latents, codes = (torch.from_numpy(np.asarray(part)).to(device) for part in pairs)
    eye, nets = torch.eye(n_classes, device=device), [encoder.to(device), *(net.to(device) for net in decoders)]
    parameters = [p for net in nets for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(parameters, lr=lr, fused=torch.device(device).type in ("cpu", "cuda"))
    bar = tqdm(
        range(steps),
        desc="DP2-VAE start",
        unit="step",
        disable=None if progress else True,
        file=sys.stderr,
        leave=False,
    )
    for step in bar:
        index = torch.randint(len(x), (batch_size,), generator=generator).to(device)
        rows, latent = x[index], latents[index]
        label = eye[codes[index]] if n_classes else rows.new_zeros(batch_size, 0)
        outputs = [encoder(rows, label), *(net(latent, label) for net in decoders)]
        slopes = [_posterior_gradient(outputs[0].detach(), latent)]
        slopes += [likelihood.gradient(output.detach(), rows) for output in outputs[1:]]
        gradients = torch.autograd.grad(outputs, parameters, [slope.div_(batch_size) for slope in slopes])
        for p, g in zip(parameters, gradients):
            p.grad = g.contiguous()
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 - 0.95 * step / steps)
        optimizer.step()
    for p in parameters:
        p.grad = None


def _posterior_gradient(output, latent):
    """Gradient of minus the log-density of latents under the means and log-variances that an encoder gives."""
    mean, log_variance = output.chunk(2, dim=-1)
    inside = (log_variance > _LOG_VARIANCE[0]) & (log_variance < _LOG_VARIANCE[1])
    gap = (mean - latent) * torch.exp(-log_variance.clamp(*_LOG_VARIANCE))
    return torch.cat([gap, 0.5 * (1 - (mean - latent) * gap) * inside], dim=-1)


def readable(n_bytes):
    """Gibibytes, or mebibytes below one, in words."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{math.ceil(n_bytes / 2**20)} MiB"
