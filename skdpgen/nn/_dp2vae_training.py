"""The two stages of DP2-VAE: encoders trained without noise, one for each subset, then one decoder with noise.

The encoders are private and exist in `EncoderStack` alone, for as long as a fit lasts. What leaves this file is the
decoder.
"""

from __future__ import annotations

import contextlib
import copy
import math
from dataclasses import dataclass, field

import numpy as np
import torch
from joblib import Parallel, delayed
from torch.func import functional_call, vmap

from .._types import BoundedSum
from ..dpsgd import GradientNoise
from ..dpsgd._clipping import clip_factors
from ..dpsgd._subsets import KeyedStream, subset_draws
from ..utils.progress import progress_bar
from ._dp2vae import in_patch_order
from ._networks import LOG_VARIANCES

# Purposes of the keyed stream: what is drawn for one never repeats for another.
PRETRAIN, QUERY, REFRESH = 0, 2, 4
# Places of a pass of stage 2 where draws are hidden: with more of them more are free, with fewer there are more passes.
_PLACES = 16
# Memory of the encoders trained at once on a CPU, by default: few enough that their parameters stay near its cache, and
# enough that the time of an operation is not the time to call it.
_CACHED_BYTES = 96 << 20
_BETAS, _TINY = (0.9, 0.999), 1e-8  # of Adam


@dataclass(frozen=True)
class EncoderTraining:
    """How encoders are trained, in both stages."""

    key: bytes = field(repr=False)  # key of the stream from which rows and latents are drawn, 16 bytes
    steps: int  # steps of stage 1
    batch_size: int  # rows of a subset in one step, drawn with replacement
    learning_rate: float  # of Adam; each encoder has a separate state
    gradient_bound: float  # norm to which an encoder's gradients are clipped
    refine_steps: int = 1  # steps of one refreshment in stage 2
    device: str = "cpu"  # torch device of the training, such as "cpu" or "cuda"
    n_jobs: int = 1  # processes of stage 1


class SubsetRows:
    """The private rows of a fit, sorted by subset.

    `x`: shape (n_rows, n_features).
    `codes` (n_rows,): class of each row; 0 where there are no classes.
    `n_classes`: number of classes; 0 without classes.
    `subsets`: shape (n_rows,).
    `n_subsets`: k. A subset without rows keeps its index.
    `units` (n_rows,): unit of each row, all of whose rows are in one subset, where each unit counts 1: a row is then
        drawn with a probability of one over the rows of its unit. None: all rows of a subset are drawn with one
        probability.
    """

    def __init__(self, x, codes, n_classes, subsets, n_subsets, *, units=None):
        order = np.argsort(subsets, kind="stable")
        self._weights = None if units is None else _cumulative(np.asarray(units)[order])
        self._x, self._codes = torch.from_numpy(x[order]), torch.from_numpy(np.asarray(codes)[order])
        self._ends = np.searchsorted(subsets[order], np.arange(n_subsets + 1))
        self._eye = torch.eye(n_classes)
        self.n_classes, self.n_subsets = n_classes, n_subsets

    def part(self, start, stop):
        """Return the rows of a range of subsets, which keep their order; for another process."""
        out = copy.copy(self)
        first, last = self._ends[start], self._ends[stop]
        out._x, out._codes = self._x[first:last].clone(), self._codes[first:last].clone()
        out._ends, out.n_subsets = self._ends[start : stop + 1] - first, stop - start
        if self._weights is not None:
            out._weights = self._weights[first : last + 1] - self._weights[first]
        return out

    def occupied(self, units):
        """Which of the subsets `units` have rows, bool tensor."""
        return torch.from_numpy(self._ends[units + 1] > self._ends[units])

    def batch(self, units, uniforms, device):
        """Rows and one-hot labels of the subsets `units`, (units, batch, n_features) and (units, batch, n_classes).

        `uniforms`, of shape (units, batch), chooses the rows, with replacement; of an empty subset they are zero.
        """
        first, size = self._ends[units][:, None], (self._ends[units + 1] - self._ends[units])[:, None]
        if self._weights is None:
            index = first + (uniforms * size).astype(np.int64)
        else:
            start, stop = self._weights[first], self._weights[first + size]
            drawn = start + np.minimum((uniforms * (stop - start)).astype(np.int64), np.maximum(stop - start - 1, 0))
            index = np.searchsorted(self._weights, drawn, side="right") - 1
        index = torch.from_numpy(np.minimum(index, max(len(self._x) - 1, 0)))
        if not len(self._x):
            shapes = ((*index.shape, self._x.shape[1]), (*index.shape, self.n_classes))
            return tuple(torch.zeros(shape, device=device) for shape in shapes)
        empty = torch.from_numpy(size == 0)[..., None]
        x = self._x[index.to(self._x.device)].masked_fill_(empty.to(self._x.device), 0).to(device)
        if not self.n_classes:
            return x, x.new_zeros(*index.shape, 0)
        return x, self._eye[self._codes[index].clamp(min=0)].masked_fill_(empty, 0).to(device)

    def to(self, device, order=None):
        """Copy the rows to a device, once and not at every step; with `order`, their columns in that order."""
        out = copy.copy(self)
        out._x = (self._x if order is None else self._x[:, order]).to(device)
        return out


def _cumulative(units):
    """Sums of the weights of the rows before each row, and of all rows: whole numbers, so that subsets stay apart.

    A sum of floats would be rounded differently after a row joins another subset, and then choose other rows.
    """
    _, codes, sizes = np.unique(units, return_inverse=True, return_counts=True)
    return np.concatenate([[0], np.cumsum(2**32 // sizes[codes])]).astype(np.int64)


class StackableNet:
    """A module as functions of its parameters: of one copy, or of a stack of copies.

    `device`: where it will be used; None: where it is.
    """

    def __init__(self, module, device=None):
        body = copy.deepcopy(module).to(device)
        self.names = [name for name, p in body.named_parameters() if p.requires_grad]
        self.initial = [p.detach().clone() for p in body.parameters() if p.requires_grad]
        rest = {name: p.detach().clone() for name, p in body.named_parameters() if not p.requires_grad}
        rest.update({name: b.detach() for name, b in body.named_buffers()})  # which nothing changes

        def call(parameters, x, label):
            return functional_call(body, {**dict(zip(self.names, parameters)), **rest}, (x, label))

        self.single, self.stacked = call, vmap(call)

    def copies(self, n, device):
        """Return a stack of `n` copies of the parameters of the template."""
        return [p.to(device).expand(n, *p.shape).clone() for p in self.initial]


# ---- gradients ----------------------------------------------------------------------------------------------------
def sample_latent(output, normals):
    """Latents, and the gradient of the KL divergence to N(0, I) with respect to `output`."""
    mean, log_variance = output.chunk(2, dim=-1)
    log_variance = log_variance.clamp(*LOG_VARIANCES)
    with torch.no_grad():
        divergence = torch.cat([mean, 0.5 * torch.expm1(log_variance)], dim=-1)
    return mean + torch.exp(0.5 * log_variance) * normals, divergence


def _elbo_gradients(output, decode, x, normals, likelihood, parameters):
    """Gradients of minus the mean ELBO of a batch, found from gradients of its terms: no loss is formed.

    `output` (..., batch, 2 n_latent): what the encoder gives for `x`. `decode`: latents to outputs of the decoder. `x`:
    shape (..., batch, n_features). `normals`: shape (..., batch, n_latent).
    """
    latent, divergence = sample_latent(output, normals)
    decoded, size = decode(latent), x.shape[-2]
    slope = likelihood.gradient(decoded.detach(), x)
    return torch.autograd.grad([decoded, output], parameters, [slope.div_(size), divergence.div_(size)])


def norms_of(gradients, dtype=torch.float64):
    """Norm of each of a stack of gradients; accumulated in float64 where a release depends on it."""
    parts = [torch.linalg.vector_norm(g, dim=tuple(range(1, g.dim())), dtype=dtype) for g in gradients]
    return torch.stack(parts).square().sum(0).sqrt()


def scaled(gradients, factor):
    """Multiply each of a stack by its factor, in place; 0 where that is 0: infinity times 0 is no number."""
    masked = not bool((factor > 0).all())
    for g in gradients:
        shape = (-1,) + (1,) * (g.dim() - 1)
        if masked:
            g = torch.where((factor > 0).reshape(shape), g, torch.zeros_like(g))
        yield g.mul_(factor.to(g.dtype).reshape(shape))


# ---- memory -------------------------------------------------------------------------------------------------------
def default_chunk(encoder_size, decoder_size, device, max_bytes, batch_size, row_size):
    """Choose how many encoders to train at once: within the cache of a CPU, all that memory holds elsewhere.

    `row_size` is the number of columns of a row, and of what its decoder computes besides.

    Returns: the choice, and the largest number that `max_bytes` hold.
    """
    # parameters, gradients, Adam's two moments, a temporary; of rows: input, output, its gradient, hidden layers
    each = 20 * (encoder_size + decoder_size) + 24 * batch_size * row_size
    most = max(1, int(max_bytes // each))
    wanted = most if torch.device(device).type != "cpu" else max(16, _CACHED_BYTES // each)
    return min(wanted, most), most


def bytes_needed(n_parameters, n_subsets, policy):
    """Memory of the encoders in stage 2: their parameters, and Adam's two moments where they persist."""
    return 4 * n_parameters * n_subsets * (3 if policy in ("round_robin", "on_query") else 1)


def readable(n_bytes):
    """Gibibytes, or mebibytes below one, in words."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{math.ceil(n_bytes / 2**20)} MiB"


# ---- stage 1 ------------------------------------------------------------------------------------------------------
def pretrain_encoders(encoder, decoder, rows, likelihood, training, *, chunk, progress=False):
    """Train one encoder for each subset, each with an auxiliary decoder that is discarded.

    `encoder`, `decoder`: their common initialisation: public, or a function of releases.
    `chunk`: encoders at once; the result does not depend on it.
    Returns a tensor of shape (n_subsets, ...): parameters of the encoders, in the order of ``encoder.parameters()``.
        Private.
    """
    bounds = [(start, min(start + chunk, rows.n_subsets)) for start in range(0, rows.n_subsets, chunk)]
    work = (delayed(_pretrain_chunk)(encoder, decoder, rows.part(*part), likelihood, part, training) for part in bounds)
    bar = progress_bar(work, shown=progress, phase="DP2-VAE encoders", total=len(bounds), unit="chunk")
    # max_nbytes: joblib would write larger arrays, which are private rows, to files for its workers
    done = Parallel(n_jobs=training.n_jobs, max_nbytes=None)(bar)
    return [torch.from_numpy(np.concatenate(pieces)) for pieces in zip(*done)]


def _pretrain_chunk(encoder, decoder, rows, likelihood, part, training):
    """Stage 1 for a range of subsets: fixed steps, nothing pooled over subsets, nothing reported about them."""
    device, size = training.device, training.batch_size
    encoder, decoder, order = in_patch_order(encoder, decoder, likelihood)
    encoder, decoder = StackableNet(encoder, device), StackableNet(decoder, device)
    stream = KeyedStream(training.key)
    # Empty subsets are trained too, on zeros: which of them have rows is private, and kernels may add in an order that
    # depends on how many nets there are. Nobody uses their encoders.
    local = np.arange(part[1] - part[0])
    units, rows = part[0] + local, rows.to(device, order)
    nets = encoder.copies(len(units), device), decoder.copies(len(units), device)
    parameters = [p.requires_grad_() for net in nets for p in net]
    optimizer = torch.optim.Adam(parameters, lr=training.learning_rate, fused=_may_fuse(device))
    middle = len(nets[0])
    for step in range(training.steps):
        x, label = rows.batch(local, stream.uniform(PRETRAIN, units, step, size), device)
        output = encoder.stacked(nets[0], x, label)
        n_latent = output.shape[-1] // 2
        normals = stream.normal(PRETRAIN + 1, units, step, size * n_latent).reshape(len(units), size, n_latent)
        gradients = _elbo_gradients(
            output, lambda z: decoder.stacked(nets[1], z, label), x, torch.from_numpy(normals).to(device), likelihood,  # noqa: B023
            parameters,
        )  # fmt: skip
        for group, targets in ((gradients[:middle], nets[0]), (gradients[middle:], nets[1])):
            factor = clip_factors(norms_of(group, torch.float32), training.gradient_bound)
            for target, g in zip(targets, scaled(group, factor)):
                target.grad = g.contiguous()  # fused Adam reads gradients in the layout of their parameters
        optimizer.step()
    return [p.detach().cpu().numpy() for p in nets[0]]


def _may_fuse(device):
    return torch.device(device).type in ("cpu", "cuda")


# ---- stage 2 ------------------------------------------------------------------------------------------------------
class EncoderStack:
    """The encoders in stage 2, and everything that may change them.

    The state of each encoder is a function of its subset, of releases, and of draws keyed by (subset, step). It does
    not depend on how often the subset was drawn, except under "on_query".

    `parameters`: from `pretrain_encoders`. `policy`: ``encoder_update`` of the plan.
    """

    def __init__(self, encoder, parameters, rows, likelihood, training, *, policy):
        self.net, self.parameters, self.likelihood = StackableNet(encoder, training.device), parameters, likelihood
        self.rows, self.stream = rows.to(training.device), KeyedStream(training.key)
        self.size, self.device, self.training, self.policy = training.batch_size, training.device, training, policy
        persistent = policy in ("round_robin", "on_query")
        self._moments = [[torch.zeros_like(p) for p in parameters] for _ in range(2)] if persistent else None
        self._counts = torch.zeros(len(parameters[0]), dtype=torch.float64)

    def __reduce__(self):
        raise TypeError("encoders are trained without noise: they are private, and are not to be pickled or copied")

    def encode(self, units, step, decoder, weights):
        """Latents, labels and rows of a batch of the subsets `units`, by encoders refined as the policy says.

        `decoder`, `weights`: the decoder with its released parameters.
        """
        parameters = [p[units].to(self.device) for p in self.parameters]
        if self.policy == "stateless":  # refine a copy, which is discarded
            zeros = [[torch.zeros_like(p) for p in parameters] for _ in range(2)]
            counts = torch.zeros(len(units), dtype=torch.float64)
            parameters = self._refine(parameters, zeros, counts, units, step, decoder, weights)
        x, label, normals = self._draw(QUERY, units, step)
        with torch.no_grad():
            output = self.net.stacked(parameters, x, label)
            latent, _ = sample_latent(output, normals(output.shape[-1] // 2))
        return latent, label, x

    def refresh(self, units, step, decoder, weights):
        """Train the encoders of the subsets `units` on their rows against the released decoder; store the result."""
        parameters = [p[units].to(self.device) for p in self.parameters]
        moments = [[m[units].to(self.device) for m in kind] for kind in self._moments]
        counts = self._counts[units]
        parameters = self._refine(parameters, moments, counts, units, step, decoder, weights)
        for store, new in zip([self.parameters, *self._moments], [parameters, *moments]):
            for whole, piece in zip(store, new):
                whole[units] = piece.to(whole.device)
        self._counts[units] = counts

    def _refine(self, parameters, moments, counts, units, step, decoder, weights):
        for r in range(self.training.refine_steps):
            x, label, normals = self._draw(REFRESH + 2 * r, units, step)
            parameters = [p.detach().requires_grad_() for p in parameters]
            output = self.net.stacked(parameters, x, label)

            def decode(latent):
                whole = decoder.single(weights, latent.flatten(0, 1), label.flatten(0, 1))  # noqa: B023
                return whole.reshape(*latent.shape[:2], -1)

            normals = normals(output.shape[-1] // 2)
            gradients = _elbo_gradients(output, decode, x, normals, self.likelihood, parameters)
            factor = clip_factors(norms_of(gradients), self.training.gradient_bound)
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
        gain = (self.training.learning_rate / (1 - _BETAS[0] ** counts)).to(p).reshape(shape)
        spread = (1 / (1 - _BETAS[1] ** counts)).to(p).reshape(shape)
        return p - gain * first / ((second * spread).sqrt() + _TINY)

    def _draw(self, purpose, units, step):
        x, label = self.rows.batch(units, self.stream.uniform(purpose, units, step, self.size), self.device)

        def normals(n_latent):
            drawn = self.stream.normal(purpose + 1, units, step, self.size * n_latent)
            return torch.from_numpy(drawn.reshape(len(units), self.size, n_latent)).to(self.device)

        return x, label, normals


def clipped_subset_sum(stack, decoder, weights, units, step, plan, *, chunk):
    """Sum of the clipped mean gradients of the decoder over subsets, many of which are computed at once.

    `weights`: parameters of the decoder.
    `units`: the subsets drawn.
    `chunk`: most subsets at once.
    The value is a list of tensors shaped as `weights`. A record changes one of the terms, from any vector of
        norm ``plan.clip_norm`` to any other, and ``l2_bound`` is what the plan's noise multiplier is a multiple of.
    """
    total = [torch.zeros_like(w) for w in weights]
    for part, drawn in _passes(units, plan, chunk):
        gradients = _mean_gradients(stack, decoder, weights, part, step)
        counts = stack.rows.occupied(part) & torch.from_numpy(drawn)
        factor = clip_factors(norms_of(gradients), plan.clip_norm) * counts.to(stack.device)
        for whole, piece in zip(total, scaled(gradients, factor)):
            whole += piece.sum(0)
    return BoundedSum(total, add_or_remove_one=plan.l2_bound, replace_one=2 * plan.gradient_bound, unit="subset")


def _passes(units, plan, chunk):
    """Subsets that are computed at once, and which of them were drawn.

    Float32 may round the gradient of a subset by its place in a pass and by the number of places. Where draws are
    hidden, no other drawn subset may change either: a subset has a fixed place, in passes of one size. If several of
    one place are drawn, they take several passes. Free places are computed too, with a subset that counts nothing.
    """
    if plan.mechanism != "poisson_subsets":  # the draws are public, or one subset is drawn
        for part in np.array_split(units, max(1, -(-len(units) // chunk))):
            if len(part):
                yield part, np.ones(len(part), dtype=bool)
        return
    n_places = min(chunk, _PLACES)
    places = units % n_places
    while len(units):
        taken, first = np.unique(places, return_index=True)
        part, drawn = np.zeros(n_places, dtype=np.int64), np.zeros(n_places, dtype=bool)
        part[taken], drawn[taken] = units[first], True
        yield part, drawn
        units, places = np.delete(units, first), np.delete(places, first)


def _mean_gradients(stack, decoder, weights, units, step):
    """Gradients of the decoder by its weights, each the mean over a batch of one of the subsets `units`."""
    latent, label, x = stack.encode(units, step, decoder, weights)
    copies = [w.detach().expand(len(units), *w.shape).requires_grad_() for w in weights]
    decoded = decoder.stacked(copies, latent, label)
    slope = stack.likelihood.gradient(decoded.detach(), x)
    return torch.autograd.grad(decoded, copies, slope.div_(stack.size))


def train_decoder(
    module, stack, plan, rng, *, learning_rate, averaging, chunk, device="cpu", progress=False, progress_text="",
    checkpoint=None, initial=None,
):  # fmt: skip
    """Train the decoder with noise for all steps of a plan that was charged.

    `module`: the decoder, initialised by public values or releases. Changed in place.
    `stack`: None where no step is left.
    `rng`: draws subsets and noise.
    `learning_rate`: learning rate of Adam on the noisy gradient; it falls linearly to zero.
    `averaging`: decay of the exponential average of the parameters that is released; 0 releases the last parameters.
    `chunk`: subsets at once.
    `progress_text`: shown beside the progress bar.
    `checkpoint`: takes the steps from the ledger in blocks, and writes the training between them.
    `initial`: with a checkpoint: networks as they were before stage 1, which it holds too. Never an encoder of a
        subset.
    Returns: source of the noise in words, and whether it was private.
    Raises RuntimeError if the plan was not charged in this process, or a training has followed it already.
    """
    plan.claim(object())
    module.to(device)
    decoder = StackableNet(module)
    weights = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=learning_rate)
    average = [p.detach().clone() for p in weights]
    with contextlib.ExitStack() as exits:
        noise = exits.enter_context(GradientNoise.like(weights, plan.noise_multiplier, rng, steps=plan.steps))
        steps = range(plan.steps)
        if checkpoint is not None:
            if checkpoint.training is not None:
                _restore_training(checkpoint, optimizer, average)
            steps = _granted_steps(
                plan, checkpoint, lambda: _training_tensors(module, weights, optimizer, average, initial), noise
            )
        text = f"DP2-VAE decoder {progress_text}".strip()
        left = plan.steps - plan.steps_resumed
        bar = exits.enter_context(progress_bar(None, shown=progress, phase=text, total=left, unit="step"))
        for p in weights:
            p.grad = torch.zeros_like(p)
        for step, units in zip(steps, subset_draws(plan, rng)):
            released = [p.detach() for p in weights]
            if plan.encoder_update == "round_robin":  # whichever subsets were drawn
                stack.refresh(round_robin(plan, step), step, decoder, released)
            total = clipped_subset_sum(stack, decoder, released, units, step, plan, chunk=chunk)
            if plan.encoder_update == "on_query" and len(units):
                stack.refresh(units, step, decoder, released)
            noise.release(total, divisor=plan.per_step, out=[p.grad for p in weights])
            _set_rate(optimizer, learning_rate * (1 - step / plan.steps))
            optimizer.step()
            _move_towards(average, weights, 1 - min(averaging, (1 + step) / (10 + step)))
            bar.update()
        for p, mean in zip(weights, average):
            p.grad = None
            if averaging:
                p.data.copy_(mean)
        return noise.description, noise.private


# ---- stage 2 in a fit with a checkpoint ---------------------------------------------------------------------------
def _granted_steps(plan, checkpoint, tensors, noise):
    """Yield the numbers of the steps that the ledger grants, each before it runs; write the checkpoint between blocks.

    Each number is yielded once in all processes, so that a schedule of them goes on where it was.
    """
    while True:
        if not plan.steps_granted:
            ended = plan.steps_taken >= plan.steps
            checkpoint.write(plan, tensors(), {}, plan.steps_taken, (noise.description, noise.private))
            if ended:
                return
        step = plan.steps_taken
        plan.take_step()
        yield step


def _training_tensors(module, weights, optimizer, average, initial):
    """What a checkpoint holds of stage 2: functions of released gradients, and the networks before stage 1."""
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    found = {f"decoder.{name}": p for name, p in zip(names, weights)}
    found.update({f"averages.{k}": mean for k, mean in enumerate(average)})
    for k, state in optimizer.state_dict()["state"].items():
        found.update({f"optimizer.{k}.{name}": value for name, value in state.items()})
    for role, net in initial.items():
        found.update({f"{role}.{name}": p for name, p in net.named_parameters()})
    return {name: value.detach().cpu().contiguous() for name, value in found.items()}


@torch.no_grad()
def _restore_training(checkpoint, optimizer, average):
    """Set averages and the state of the optimiser by a checkpoint; the decoder has its parameters already."""
    tensors = checkpoint.training[0]
    _fill(checkpoint.path, tensors, {f"averages.{k}": mean for k, mean in enumerate(average)})
    state = {}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        if part == "optimizer":
            k, _, key = rest.partition(".")
            state.setdefault(int(k), {})[key] = value
    if state:
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def restore_networks(checkpoint, networks):
    """Set the parameters of networks, by role, to those in a checkpoint; ValueError where they do not fit."""
    wanted = {f"{role}.{name}": p for role, net in networks.items() for name, p in net.named_parameters()}
    _fill(checkpoint.path, checkpoint.training[0], wanted)


@torch.no_grad()
def _fill(path, tensors, wanted):
    for name, target in wanted.items():
        found = tensors.get(name)
        if found is None or (found.shape, found.dtype) != (target.shape, target.dtype):
            raise ValueError(f"{path}: does not fit the networks: {name} is missing, or of another shape or dtype")
        if not torch.isfinite(found).all():
            raise ValueError(f"{path}: {name} holds NaN or infinity")
        target.copy_(found)


@torch.no_grad()
def _move_towards(average, weights, share):
    for mean, p in zip(average, weights):
        mean.lerp_(p, share)


def round_robin(plan, step):
    """Subsets whose encoders are refreshed at a step: public, as many as are drawn on average."""
    return np.unique((step * plan.per_step + np.arange(plan.per_step)) % plan.n_subsets)


def _set_rate(optimizer, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate


# ---- initialisation: training on synthetic rows that were drawn from a release --------------------------------------
def train_together(
    encoder, decoder, x, codes, n_classes, likelihood, *, steps, learning_rate, seed, batch_size=256, device="cpu"
):
    """Train encoder and decoder in place on synthetic rows: no charge, where the rows are a function of a release.

    `x`: shape (n_rows, n_features). `codes`: shape (n_rows,). `steps`, `learning_rate`, `batch_size`: of Adam, whose
    rate falls linearly to a tenth.
    """
    generator = torch.Generator().manual_seed(seed)
    x, codes, eye = torch.from_numpy(x), torch.from_numpy(np.asarray(codes)), torch.eye(n_classes)
    parameters = _trainable(encoder.to(device), decoder.to(device))

    def gradients():
        index = torch.randint(len(x), (batch_size,), generator=generator)
        rows = x[index].to(device)
        label = (eye[codes[index]] if n_classes else torch.zeros(batch_size, 0)).to(device)
        output = encoder(rows, label)
        normals = torch.randn(batch_size, output.shape[1] // 2, generator=generator).to(device)
        return _elbo_gradients(output, lambda z: decoder(z, label), rows, normals, likelihood, parameters)

    _follow(parameters, gradients, range(steps), steps, learning_rate, fall=0.9, fused=None)


def train_on_pairs(
    encoder, decoders, pairs, n_classes, likelihood, *, steps, learning_rate, seed, batch_size=256, device="cpu",
    progress=False,
):  # fmt: skip
    """Train encoder and decoders in place on synthetic rows whose latents are known: no charge, if both are released.

    A decoder learns which rows a latent gives, and an encoder learns the distribution of the latent given the row.
    Unlike in `train_together`, a decoder uses its latents from the first step, when the encoder has learned nothing.

    `pairs`: rows, float32 of shape (n_rows, n_features); their latents, standard normal; their class codes.
    `n_classes`, `likelihood`, `steps`, `learning_rate`, `seed`, `batch_size`, `device`: as in `train_together`; the
        rate falls to a twentieth.

    Reference: G. Hinton, P. Dayan, B. Frey, R. Neal, "The wake-sleep algorithm for unsupervised neural networks",
    Science 1995: the sleep phase.
    """
    generator = torch.Generator().manual_seed(seed)
    x, latents, codes = (torch.from_numpy(np.asarray(part)).to(device) for part in pairs)
    eye, parameters = (
        torch.eye(n_classes, device=device),
        _trainable(encoder.to(device), *(d.to(device) for d in decoders)),
    )

    def gradients():
        index = torch.randint(len(x), (batch_size,), generator=generator).to(device)
        rows, latent = x[index], latents[index]
        label = eye[codes[index]] if n_classes else rows.new_zeros(batch_size, 0)
        outputs = [encoder(rows, label), *(decoder(latent, label) for decoder in decoders)]
        slopes = [_posterior_gradient(outputs[0].detach(), latent)]
        slopes += [likelihood.gradient(output.detach(), rows) for output in outputs[1:]]
        return torch.autograd.grad(outputs, parameters, [slope.div_(batch_size) for slope in slopes])

    bar = progress_bar(range(steps), shown=progress, phase="DP2-VAE initialisation", unit="step")
    _follow(parameters, gradients, bar, steps, learning_rate, fall=0.95, fused=_may_fuse(device))


def _trainable(*modules):
    return [p for module in modules for p in module.parameters() if p.requires_grad]


def _follow(parameters, gradients, each_step, steps, learning_rate, *, fall, fused):
    """Take the steps of Adam; its rate falls linearly by the share `fall`."""
    optimizer = torch.optim.Adam(parameters, lr=learning_rate, fused=fused)
    for step in each_step:
        for p, g in zip(parameters, gradients()):
            p.grad = g.contiguous()
        _set_rate(optimizer, learning_rate * (1 - fall * step / steps))
        optimizer.step()
    for p in parameters:
        p.grad = None


def _posterior_gradient(output, latent):
    """Gradient of minus the log-density of latents under the means and log-variances that an encoder gives."""
    mean, log_variance = output.chunk(2, dim=-1)
    inside = (log_variance > LOG_VARIANCES[0]) & (log_variance < LOG_VARIANCES[1])
    gap = (mean - latent) * torch.exp(-log_variance.clamp(*LOG_VARIANCES))
    return torch.cat([gap, 0.5 * (1 - (mean - latent) * gap) * inside], dim=-1)
