"""Figures 5, 6, 8 and 9 of P3GM's paper: latent dimensions, columns, the split of the budget, accounting."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pandas as pd

from skdpgen.synthesizers._p3gm import paper_settings

from .images import image_benchmark
from .models import find_model
from .tables import table_benchmark

__all__ = ["accounting_benchmark", "components_benchmark", "dimension_benchmark", "split_benchmark", "two_gaussians"]


def components_benchmark(
    dataset="mnist",
    models=("P3GM(released)", "P3GM(net)"),
    n_components=(2, 5, 10, 20, 50, 100, 200),
    *,
    seeds=(0,),
    epsilon=1.0,
    rows=None,
    n_samples=60_000,
    epochs=10,
    device="cpu",
    data=None,
):
    """Yield the accuracy of P3GM on images over the number of latent dimensions.

    Parameters
    ----------
    n_components : sequence of int
    dataset, models, seeds, epsilon, rows, n_samples, epochs, device, data
        As for `image_benchmark`.

    Yields
    ------
    dict
        As `image_benchmark`, and ``n_components``.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Figure 5.
    """
    options = {"epsilon": epsilon, "rows": rows, "n_samples": n_samples, "epochs": epochs, "device": device}
    for n in n_components:
        for name in models:
            for result in image_benchmark(
                dataset, (_with(name, dataset, n_components=n),), seeds, data=data, **options
            ):
                yield {**result, "n_components": n}


def split_benchmark(
    table="adult",
    models=("P3GM(net)",),
    shares=(0.1, 0.2, 0.3, 0.5, 0.7, 0.9),
    *,
    seeds=(0, 1, 2, 3, 4),
    epsilon=1.0,
    rows=None,
    device="cpu",
    data=None,
):
    """Yield the utility of P3GM over the encoder's share of the budget.

    The decoder has the rest; of a preset, decoder and mixture have it in the preset's proportion.

    Parameters
    ----------
    shares : sequence of float
        In the squared parameter of Gaussian differential privacy.
    table, models, seeds, epsilon, rows, device, data
        As for `table_benchmark`; models that train a decoder.

    Yields
    ------
    dict
        As `table_benchmark`, and ``encoder_share``.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM", ICDE 2021, Figure 8.
    """
    options = {"seeds": seeds, "epsilon": epsilon, "rows": rows, "device": device, "data": data}
    for share in shares:
        for name in models:
            split = _with(name, table).settings.get("budget_split", {"decoder": 1.0})
            mixture, decoder = split.get("mixture", 0.0), split["decoder"]
            rest = (1.0 - share) / (mixture + decoder)
            model = _with(
                name, table, budget_split={"encoder": share, "mixture": mixture * rest, "decoder": decoder * rest}
            )
            for result in table_benchmark(table, (model,), **options):
                yield {**result, "encoder_share": share}


def _with(name, data, **settings):
    """A model with other settings; a preset is written out, for a synthesizer refuses to have its own replaced."""
    model = find_model(name)
    own = dict(model.settings)
    preset = own.pop("preset", None)
    if preset is not None:
        own = {**paper_settings(preset.format(data=data)), **own}
    training = {name: own.pop(name) for name in ("sampling_rate", "steps") if name in own}
    return replace(model, settings={**own, **settings}, training={**training, **model.training})


def two_gaussians(n_features, n_samples=10_000, seed=0):
    """Draw rows of two Gaussians with unit covariance and means (1, ..., 1) and (-1, ..., -1), and their labels.

    Returns
    -------
    X : array of shape (n_samples, n_features)
    y : int array of shape (n_samples,), 0 or 1
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n_samples)
    return rng.normal(size=(n_samples, n_features)) + (2 * y - 1)[:, None], y


def dimension_benchmark(*, seeds=(0,), epsilon=1.0, delta=1e-5, dimensions=(5, 10, 20, 50, 100), quick=False):
    """Yield P3GM's AUROC on two Gaussians over the number of columns; nothing is declared but the classes.

    Parameters
    ----------
    seeds : iterable of int, default=(0,)
    epsilon, delta : float
        Budget of one fit, which learns bounds and norms too.
    dimensions : sequence of int
    quick : bool, default=False
        The smallest dimension alone.

    Yields
    ------
    dict
        data, dimension, seed, model, auroc (mean of the protocol's classifiers on a tenth of the rows held out),
        fit_seconds, epsilon (of the card).

    References
    ----------
    S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, "P3GM", ICDE 2021, Figure 6.
    """
    from skdpgen.metrics import tstr_report
    from skdpgen.synthesizers import P3GMSynthesizer

    for d in dimensions[:1] if quick else dimensions:
        for seed in seeds:
            X, y = two_gaussians(d, seed=seed)
            n_test = len(X) // 10
            start = time.perf_counter()
            synthesizer = P3GMSynthesizer(epsilon, delta, classes=[0, 1]).fit(X[n_test:], y[n_test:])
            seconds = time.perf_counter() - start
            synthetic = synthesizer.sample(len(X) - n_test)
            report = tstr_report(_frame(*synthetic), _frame(X[:n_test], y[:n_test]), target="y", positive=1)
            yield {
                "data": "two_gaussians",
                "dimension": d,
                "seed": int(seed),
                "model": "P3GMSynthesizer",
                "auroc": float(np.mean([scores["auroc"] for scores in report.values()])),
                "fit_seconds": seconds,
                "epsilon": synthesizer.card_.verify()["fit"]["epsilon"],
            }


def _frame(X, y):
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]).assign(y=y)


def accounting_benchmark(*, epsilon=1.0, delta=1e-5):
    """Yield, for each of the paper's settings, what one and the same noise costs by four accountings.

    The noise is calibrated by privacy loss distributions (PLD) to `epsilon`. Beside it: Renyi differential privacy
    (RDP) of the whole; the paper's own, RDP with its looser conversion; and the baseline of the paper's figure, the
    sum of a Gaussian release, EM by zCDP and DP-SGD by the moments accountant, each at a third of delta.

    Yields
    ------
    dict
        data, model, noise_encoder, noise_mixture, noise_decoder, epsilon_pld, epsilon_rdp, epsilon_paper,
        epsilon_baseline, and the ratios of the last two to the first.

    References
    ----------
    S. Takagi, T. Takahashi, Y. Cao, M. Yoshikawa, "P3GM", ICDE 2021, Figure 9.
    """
    from skdpgen.accounting import Phase, calibrate, epsilon_pld, epsilon_rdp, gaussian_epsilon
    from skdpgen.synthesizers._p3gm import P3GM_PAPER_ROWS, paper_settings

    relation = "add_or_remove_one"
    for name in P3GM_PAPER_ROWS:
        settings = paper_settings(f"paper/{name}")
        rate, steps, em_steps = settings["sampling_rate"], settings["steps"], settings["prior"].n_iter
        shares = settings["budget_split"]
        phases = [
            Phase("encoder", shares["encoder"]),
            Phase("mixture", shares["mixture"], steps=em_steps),
            Phase("decoder", shares["decoder"], steps=steps, sampling_rate=rate),
        ]
        plan = calibrate(phases, epsilon, delta, relation, label=f"paper/{name}")
        encoder, mixture, decoder = (plan.noise_multipliers[phase.label] for phase in phases)
        rho = em_steps / (2 * mixture**2)
        part = delta / 3
        baseline = (
            gaussian_epsilon(1 / encoder, part)
            + rho + 2 * math.sqrt(rho * math.log(1 / part))
            + _by_moments([(rate, decoder, steps)], 0.0, part)
        )  # fmt: skip
        paper = _by_moments([(rate, decoder, steps)], 1 / (2 * encoder**2) + rho, delta)
        exact = epsilon_pld(plan.event, delta, relation)
        yield {
            "data": name,
            "model": "P3GM(paper)",
            "noise_encoder": encoder,
            "noise_mixture": mixture,
            "noise_decoder": decoder,
            "epsilon_pld": exact,
            "epsilon_rdp": epsilon_rdp(plan.event, delta, relation),
            "epsilon_paper": paper,
            "epsilon_baseline": baseline,
            "ratio_paper": paper / exact,
            "ratio_baseline": baseline / exact,
        }


def _by_moments(sampled, rho, delta):
    """Epsilon by RDP at whole orders and the conversion rdp + log(1/delta) / (order - 1); rho: of Gaussian releases."""
    from skdpgen.accounting._renyi import poisson_rdp

    return min(
        alpha * rho
        + math.fsum(steps * poisson_rdp(rate, noise, alpha, "add_or_remove_one") for rate, noise, steps in sampled)
        + math.log(1 / delta) / (alpha - 1)
        for alpha in range(2, 257)
    )
