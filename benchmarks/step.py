"""How much slower than an ordinary training step a DP-SGD step is."""

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
from skdpgen.nn._dp_net import DPNet
from skdpgen.utils.noise import make_noise_generator

__all__ = ["MLPVAE", "NETS", "ConvVAE", "step_benchmark"]

# The ratios aimed at: (net, noise) -> ratio.
_TARGETS = {("mlp", "fast"): 1.15, ("mlp", "secure"): 2.0, ("conv", "fast"): 2.5, ("conv", "secure"): 2.5}


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


def step_benchmark(repeats=7, *, nets=("mlp", "conv"), batch=300, steps=8, reference=False, progress=None):
    """Time DP-SGD steps beside ordinary steps of the same net, batch and optimiser (Adam), alternating.

    Parameters
    ----------
    repeats : int, default=7
        Alternations; medians over them are reported.
    nets : sequence of {"mlp", "conv"}
    batch : int, default=300
        Rows of a step; the expected number for the method "fit".
    steps : int, default=8
        Steps of one method before the next one's turn, after one that is not timed: noise drawn ahead
        has to be drawn again within the turn that used it.
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
    rows = []
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
    ordinary = seconds["ordinary", None]
    rows = []
    for (method, kind), times in seconds.items():
        ratios = [t / o for t, o in zip(times, ordinary)]
        rows.append(
            {
                "benchmark": "step", "net": name, "method": method, "noise": kind, "batch": batch,
                "threads": torch.get_num_threads(), "repeats": repeats, "seconds": statistics.median(times),
                "ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios),
                "target": _TARGETS.get((name, kind)) if method == "step" else None,
            }
        )  # fmt: skip
    return rows


def _ordinary(module, x, noise):
    optimizer = torch.optim.Adam(module.parameters())

    def step():
        optimizer.zero_grad()
        module(x, noise).mean().backward()
        optimizer.step()

    return step


def _private(module, x, noise, kind):
    clipper = ClippedSum(LossModule(module), 1.0, clip_norm=1 / 1.01)
    source = GradientNoise.like(clipper.parameters, 1.4, make_noise_generator(kind))
    optimizer = torch.optim.Adam(clipper.parameters)
    for p in clipper.parameters:
        p.grad = torch.zeros_like(p)
    gradients = [p.grad for p in clipper.parameters]
    mask = torch.ones(len(x), dtype=torch.bool)

    def step():
        source.release(clipper(x, noise, mask=mask), divisor=len(x), out=gradients)
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
