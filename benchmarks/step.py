"""How much slower than an ordinary training step a DP-SGD step and a term-wise step are."""

from __future__ import annotations

import math
import statistics
import time

import torch
from skorch.callbacks import Callback
from torch import nn
from torch.nn import functional

from skdpgen.accounting import PrivacyAccountant
from skdpgen.dpsgd import ClippedSum, DPSGDPlan, GradientNoise, LossModule, clipped_sum
from skdpgen.nn import DPNet
from skdpgen.utils.noise import make_noise_generator

__all__ = ["MLPVAE", "NETS", "ConvVAE", "privae_step_benchmark", "step_benchmark"]

# The ratios aimed at, at the usual batch and at a large one: (net, noise) -> ratio.
_TARGETS = {("mlp", "fast"): 1.15, ("mlp", "secure"): 2.0, ("conv", "fast"): 2.5, ("conv", "secure"): 2.5}
_LARGE_TARGETS = {("mlp", "fast"): 1.1, ("mlp", "secure"): 1.25, ("conv", "fast"): 1.5, ("conv", "secure"): 1.5}
# Rows of the usual batch, and rows that either step computes at once, as a fit does.
_USUAL, _AT_ONCE = 300, 1024


def _elbo(logits, x, mean, log_variance):
    reconstruction = functional.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1)
    return reconstruction - 0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(1)


class MLPVAE(nn.Module):
    """Variational autoencoder 784-1000-10-1000-784; forward gives the loss of each row, shape (batch,)."""

    noise_shape = (10,)

    def __init__(self, n_features=784, n_hidden=1000, n_latent=10):
        super().__init__()
        self.noise_shape = (n_latent,)
        self.encoder = nn.Linear(n_features, n_hidden)
        self.mean, self.log_variance = nn.Linear(n_hidden, n_latent), nn.Linear(n_hidden, n_latent)
        self.decoder = nn.Sequential(nn.Linear(n_latent, n_hidden), nn.ReLU(), nn.Linear(n_hidden, n_features))

    def forward(self, x, noise):
        hidden = torch.relu(self.encoder(x))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        return _elbo(self.decoder(mean + noise * (log_variance / 2).exp()), x, mean, log_variance)


class ConvVAE(nn.Module):
    """Convolutional variational autoencoder of 28 x 28 images: convolutions 32-64, transposed 64-32."""

    noise_shape = (10,)

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1), nn.ReLU(),
            nn.Flatten(),
        )  # fmt: skip
        self.mean, self.log_variance = nn.Linear(64 * 49, 10), nn.Linear(64 * 49, 10)
        self.decoder = nn.Sequential(
            nn.Linear(10, 64 * 49), nn.ReLU(), nn.Unflatten(1, (64, 7, 7)), nn.ConvTranspose2d(64, 32, 4, 2, 1),
            nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Flatten(),
        )  # fmt: skip

    def forward(self, x, noise):
        hidden = self.encoder(x)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        return _elbo(self.decoder(mean + noise * (log_variance / 2).exp()), x, mean, log_variance)


NETS = {"mlp": MLPVAE, "conv": ConvVAE}


def step_benchmark(repeats=7, *, nets=("mlp", "conv"), batch=_USUAL, steps=8, reference=False, progress=None):
    """Time DP-SGD steps beside ordinary steps of the same net, batch and optimiser (Adam), alternating.

    Batches of more than 1,024 rows are computed in parts of this size, by either step.

    Parameters
    ----------
    repeats : int, default=7
        Alternations; medians over them are reported.
    nets : sequence of {"mlp", "conv"}
    batch : int, default=300
        Rows of a step; the expected number for the method "fit".
    steps : int, default=8
        Steps of one method before the next one's turn, after one that is not timed: noise drawn ahead
        has to be drawn again within the turn that used it. Fewer where a batch has more than 300 rows.
    reference : bool, default=False
        Time ``torch.func`` per-example gradients too (many times slower).
    progress : callable, default=None
        Called with one line of text before each net.

    Returns
    -------
    list of dict
        For each net and method: ``seconds`` a step and ``ratio`` to the ordinary step (medians), ``ratio_low`` and
        ``ratio_high`` (extremes), ``target`` (None if there is none). Methods: "ordinary"; "step" (a DP-SGD step with
        either noise); "fit" (`DPNet.partial_fit`, sampling and padding included); "vmap".
    """
    rows, steps = [], max(1, steps * _USUAL // max(batch, _USUAL))
    for name in nets:
        if progress is not None:
            progress(f"bench step: {name}, {repeats} repeats of {steps} steps on {torch.get_num_threads()} threads")
        rows += _one_net(name, repeats, batch, steps, reference)
    return rows


def _one_net(name, repeats, batch, steps, reference):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((batch, 784), generator=generator)
    make = NETS[name]
    noise = torch.randn((batch, *make.noise_shape), generator=generator)
    methods = {("ordinary", None): _ordinary(make(), x, noise)}
    sources = []
    for kind in ("fast", "secure"):
        step, source = _private(make(), x, noise, kind)
        methods["step", kind] = step
        sources.append(source)
    fits = {("fit", kind): _fit(make, x, batch, steps, kind) for kind in ("fast", "secure")}
    if reference:
        methods["vmap", None] = _vmap(make(), x, noise)
    seconds = {key: [] for key in [*methods, *fits]}
    try:
        for _ in range(repeats):
            for key, step in methods.items():
                step()
                start = time.perf_counter()
                for _ in range(steps):
                    step()
                seconds[key].append((time.perf_counter() - start) / steps)
            for key, run in fits.items():
                seconds[key].append(run() / steps)
    finally:
        for source in sources:
            source.close()
    ordinary, targets = seconds["ordinary", None], _TARGETS if batch <= _USUAL else _LARGE_TARGETS
    rows = []
    for (method, kind), times in seconds.items():
        ratios = [t / o for t, o in zip(times, ordinary)]
        rows.append(
            {
                "benchmark": "step", "net": name, "method": method, "noise": kind, "batch": batch,
                "threads": torch.get_num_threads(), "repeats": repeats, "seconds": statistics.median(times),
                "ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios),
                "target": targets.get((name, kind)) if method == "step" else None,
            }
        )  # fmt: skip
    return rows


def _ordinary(module, x, noise):
    optimizer = torch.optim.Adam(module.parameters())

    parts = list(zip(x.split(_AT_ONCE), noise.split(_AT_ONCE)))

    def step():
        optimizer.zero_grad()
        for part in parts:
            (module(*part).sum() / len(x)).backward()
        optimizer.step()

    return step


def _private(module, x, noise, kind):
    clipper = ClippedSum(LossModule(module), 1.0, clip_norm=1 / 1.01)
    source = GradientNoise.like(clipper.parameters, 1.4, make_noise_generator(kind))
    optimizer = torch.optim.Adam(clipper.parameters)
    for p in clipper.parameters:
        p.grad = torch.zeros_like(p)
    gradients = [p.grad for p in clipper.parameters]
    parts = list(zip(x.split(_AT_ONCE), noise.split(_AT_ONCE)))

    def step():
        clipper.reset()
        for part in parts:
            clipper.add(*part)
        source.release(clipper.result(), divisor=len(x), out=gradients)
        optimizer.step()

    return step, source


def _fit(make, x, batch, steps, kind):
    """Seconds of `steps` steps through DPNet, from a set of 60,000 rows."""
    X = x.repeat(-(-60_000 // batch), 1)[:60_000]
    rate = batch / len(X)

    def run():
        plan = DPSGDPlan(rate, steps + 1, 1.0, 1.4, batch)
        PrivacyAccountant(math.inf).charge(plan, "dummy rows for timing")
        clock = _Clock()
        net = DPNet(make, plan=plan, noise=kind, verbose=0, callbacks=[clock])
        net.fit(X)
        return clock.last - clock.first

    return run


class _Clock(Callback):
    """Callback that notes when the first and the last step ended."""

    def __init__(self):
        self.first = self.last = None

    def on_batch_end(self, net, **kwargs):
        self.last = time.perf_counter()
        if self.first is None:
            self.first = self.last


def _vmap(module, x, noise):
    def step():
        clipped_sum(module, None, (x, noise), 1.0, path="vmap")

    return step


# ---- a term-wise step ----------------------------------------------------------------------------------------------
def privae_step_benchmark(repeats=7, *, batch=300, n_groups=16, steps=6, quick=False):
    """Time term-wise steps and ordinary steps of one loss, alternating: reconstruction, KL, and MMD of each group.

    The net is the MLP 784-1000-10-1000-784, the optimiser Adam.

    Parameters
    ----------
    repeats : int, default=7
        Alternations; medians over them are reported.
    batch, n_groups : int, default=300, 16
    steps : int, default=6
        Steps of one method before the next one's turn, after one that is not timed.
    quick : bool, default=False
        Two alternations of two steps.

    Yields
    ------
    dict
        `method`, `noise`, `seconds` a step and `ratio` to the ordinary step (medians), with its extremes and `target`.
        Methods: "ordinary"; "sample-wise" (no divergence) and "term-wise" with either noise.
    """
    if quick:
        repeats, steps = 2, 2
    generator = torch.Generator().manual_seed(0)
    x = torch.rand((batch, 784), generator=generator)
    noise = torch.randn((batch, 1, 10), generator=generator)
    methods = {("ordinary", None): _ordinary_termwise(x, noise, n_groups)}
    sources = []
    for kind in ("fast", "secure"):
        for name in ("sample-wise", "term-wise"):
            methods[name, kind], source = _private_termwise(x, noise, n_groups if name == "term-wise" else None, kind)
            sources.append(source)
    seconds = {key: [] for key in methods}
    try:
        for _ in range(repeats):
            for key, step in methods.items():
                step()
                start = time.perf_counter()
                for _ in range(steps):
                    step()
                seconds[key].append((time.perf_counter() - start) / steps)
    finally:
        for source in sources:
            source.close()
    for (method, kind), times in seconds.items():
        ratios = [t / o for t, o in zip(times, seconds["ordinary", None])]
        yield {
            "method": method,
            "noise": kind,
            "batch": batch,
            "n_groups": n_groups,
            "threads": torch.get_num_threads(),
            "seconds": statistics.median(times),
            "ratio": statistics.median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
            "target": 2.0 if method == "term-wise" else None,
        }


def _module():
    from skdpgen.nn import BernoulliLikelihood, PriVAEModule

    from .images import torch_seeded

    with torch_seeded(0):
        return PriVAEModule(784, 10, BernoulliLikelihood(), divergence="mmd", n_hidden=1000)


def _ordinary_termwise(x, noise, n_groups):
    from skdpgen.dpsgd._termwise import draw_groups, gather_groups

    module, rng = _module(), make_noise_generator("fast")
    optimizer = torch.optim.Adam(module.parameters())
    mask = torch.ones(len(x), dtype=torch.bool)

    def step():
        from skdpgen.nn._divergences import GroupLatents
        from skdpgen.nn._priors import sample_with_log_prob

        optimizer.zero_grad()
        # the encoder runs once, for both terms: an ordinary loss needs no second pass
        mean, log_variance = module.encode(x)
        z = mean + torch.exp(0.5 * log_variance) * noise[:, 0]
        reconstruction = module.likelihood.log_prob(module.decode(z), x)
        loss = (module.prior.kl(mean, log_variance) - reconstruction).mean()
        (z, mean, log_variance), members = gather_groups(
            (z, mean, log_variance), mask, draw_groups(len(x), n_groups, rng), n_groups
        )
        normals = torch.from_numpy(rng.standard_normal((n_groups, *module.group_noise_shape))).float()
        samples, log_prob = sample_with_log_prob(module.prior, normals)
        groups = module.divergence(GroupLatents(z, mean, log_variance, members), samples, log_prob)
        (loss + groups.mean()).backward()
        optimizer.step()

    return step


def _private_termwise(x, noise, n_groups, kind):
    from skdpgen.dpsgd import TermwisePlan
    from skdpgen.nn._dp_net import NetGroupLoss, NetLoss

    module, rng = _module(), make_noise_generator(kind)
    net = DPNet(module, verbose=0)
    net.initialize()
    shared = {"sampling_rate": 0.005, "steps": 1, "noise_multiplier": 1.0, "expected_batch_size": float(len(x))}
    if n_groups is None:
        aggregate = DPSGDPlan(**shared, l2_bound=1.0).make_aggregate(NetLoss(net), rng)
    else:
        plan = TermwisePlan(**shared, n_groups=n_groups)
        shape = net.module_.group_noise_shape
        aggregate = plan.make_aggregate(NetLoss(net), rng, group_root=NetGroupLoss(net), group_noise_shape=shape)
    source = GradientNoise.like(aggregate.parameters, 1.0, rng)
    optimizer = torch.optim.Adam(aggregate.parameters)
    for p in aggregate.parameters:
        p.grad = torch.zeros_like(p)
    gradients = [p.grad for p in aggregate.parameters]
    mask = torch.ones(len(x), dtype=torch.bool)

    def step():
        source.release(aggregate(x, {"noise": noise}, mask=mask), divisor=len(x), out=gradients)
        optimizer.step()

    return step, source
