"""PriVAE's Figure 1: a sparse prior on Fashion-MNIST; sparsity, log-likelihood and MMD against epsilon."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np

from skdpgen.utils.atomic import save_figure

__all__ = ["METHODS", "draw_sparsity", "hoyer", "privae_sparsity_benchmark"]

EPSILONS = (1.0, 4.0, 10.0, 100.0, math.inf)
# What is fitted: parameters of PriVAESynthesizer, on top of those of a setting. VAEs are without privacy.
METHODS = {
    "PriVAE + MMD": {"divergence": "mmd"},
    "PriVAE": {},
    "micro aggregation": {"divergence": "mmd", "aggregation": "micro"},
    "batch aggregation": {"divergence": "mmd", "aggregation": "batch"},
    "VAE + MMD": {"divergence": "mmd"},
    "VAE": {},
}
_WITHOUT_PRIVACY = ("VAE + MMD", "VAE")
# The paper's setting, at which parameters hardly move, and one tuned on training images that were held out. Two things
# make the difference: many small groups of a large batch, whose part of the noise is 2 C2/b, and an encoder that cannot
# meet the prior without being sparse (see `SparseEncoder`). Without privacy nothing is clipped: alpha is the weight. To
# gradients of whole batches large ones are of no use: no average makes their noise smaller.
_SETTINGS = {
    "paper": {
        "batch": 256, "steps": 2344, "sgd": True, "lr": 1e-3, "c1": 0.05, "c2": 0.005, "c": 0.0002, "alpha": 100.0,
        "group_size": 16, "n_prior_samples": 32, "sparse_encoder": False,
        "without_privacy": {"sgd": False, "lr": 5e-4, "alpha": 100.0, "group_size": 256}, "whole_batch": {},
    },
    "tuned": {
        "batch": 3000, "steps": 50, "sgd": False, "lr": 5e-3, "c1": 1.0, "c2": 1.5, "c": 1.0, "alpha": 1e4,
        "group_size": 4, "n_prior_samples": 8, "sparse_encoder": True,
        "without_privacy": {"alpha": 3000.0}, "whole_batch": {"batch": 256},
    },
}  # fmt: skip
_LATENT = 50


def hoyer(latents):
    """Mean sparsity of latents: 0 where all coordinates are alike, 1 where one alone is not zero.

    Parameters
    ----------
    latents : array of shape (n, n_latent)
        Each coordinate is divided by its standard deviation over the rows first.

    References
    ----------
    Hurley and Rickard, "Comparing measures of sparsity", 2009; Mathieu et al., ICML 2019, section 6.
    """
    spread = latents.std(axis=0)
    scaled = np.abs(latents / np.where(spread > 0, spread, 1.0))
    root = math.sqrt(latents.shape[1])
    norms = np.sqrt(np.square(scaled).sum(axis=1))
    return float(np.mean((root - scaled.sum(axis=1) / np.where(norms > 0, norms, 1.0)) / (root - 1)))


def privae_sparsity_benchmark(
    seeds=(0,), *, data=None, settings=("paper", "tuned"), epsilon=EPSILONS, models=tuple(METHODS),
    convolutional=False, steps=None, n_train=60_000, n_test=1_000, device="cpu",
):  # fmt: skip
    """Fit PriVAE with and without MMD, its alternatives, and VAEs without privacy; yield one result a fit.

    Parameters
    ----------
    seeds : iterable of int, default=(0,)
        Ten in the paper.
    data : str or path, default=None
        As for ``load_fashion_mnist``.
    settings : sequence of {"paper", "tuned"}
    epsilon : sequence of float
        At delta 1e-5; the VAEs are fitted at infinity, the others elsewhere.
    models : sequence of str
        Keys of `METHODS`.
    convolutional : bool, default=False
        At the paper's setting its nets, many times slower, in place of an MLP of 200 hidden units.
    steps : int, default=None
        None is the setting's.
    n_train, n_test : int, default=60000, 1000
        Rows to fit, and rows of the test set on which latents and likelihoods are looked at.
    device : str, default="cpu"
        Where torch trains; the tuned setting's batches are large.

    Yields
    ------
    dict
        setting, model, epsilon (None without privacy), seed, sparsity (Hoyer's, of latents drawn from the encoder; the
        prior's own is .42, a normal law's .23), sparsity_of_means, log_likelihood (importance-weighted bound of 100
        samples, mean over 500 test rows), mmd (of the latents' draws to the prior's), epsilon_card, fit_seconds.

    References
    ----------
    Takahashi, Takagi, Ono, Komatsu, 2020, section 5.1 and Figure 1.
    """
    from skdpgen.datasets import load_fashion_mnist

    bunch = load_fashion_mnist(data)
    for name, given, known in (("settings", settings, _SETTINGS), ("models", models, METHODS)):
        if not set(given) <= set(known):
            raise ValueError(f"{name} must be of {', '.join(known)}; got {', '.join(map(str, given))}")
    for seed, setting, budget, method in itertools.product(seeds, settings, epsilon, models):
        if (method in _WITHOUT_PRIVACY) == math.isfinite(budget):
            continue
        rows = np.random.default_rng(seed).permutation(len(bunch.data))[:n_train]
        synthesizer = _make(setting, method, budget, seed, convolutional, steps, n_train, device)
        start = time.perf_counter()
        synthesizer.fit(bunch.data[rows])
        yield {
            "setting": setting,
            "model": method,
            "epsilon": float(budget) if math.isfinite(budget) else None,
            "seed": int(seed),
            "fit_seconds": round(time.perf_counter() - start, 1),
            **_judge(synthesizer, bunch.data_test[:n_test], seed),
            "epsilon_card": synthesizer.card_.verify()["fit"]["epsilon"],
        }


def _make(setting, method, epsilon, seed, convolutional, steps, n_train, device):
    import torch

    from skdpgen.dpsgd._seeding import torch_seeded
    from skdpgen.nn import DPNet, PriVAEModule, SparseEncoder
    from skdpgen.synthesizers import PriVAESynthesizer

    chosen = _SETTINGS[setting]
    if not math.isfinite(epsilon):
        chosen = {**chosen, **chosen["without_privacy"]}
    parameters = {"epsilon": epsilon, **METHODS[method]}
    aggregation = parameters.get("aggregation", "termwise")
    if aggregation != "termwise":
        chosen = {**chosen, **chosen["whole_batch"]}
    batch = min(chosen["batch"], n_train)
    if "divergence" in parameters:
        parameters["alpha"] = chosen["alpha"]
        if aggregation == "termwise":
            parameters |= {"n_groups": max(1, batch // chosen["group_size"]), "group_gradient_bound": chosen["c2"]}
    module = {"n_prior_samples": chosen["n_prior_samples"]}
    if chosen["sparse_encoder"]:
        with torch_seeded(seed):
            module["encoder"] = SparseEncoder(784, _LATENT, image_shape=(28, 28))
        module["n_hidden"] = 100
    if math.isfinite(epsilon):
        parameters["gradient_bound"] = chosen["c1" if aggregation == "termwise" else "c"]
    return PriVAESynthesizer(
        **parameters,
        prior="sparse",
        n_components=_LATENT,
        bounds=(0, 255),
        image_shape=(28, 28) if convolutional and not chosen["sparse_encoder"] else None,
        likelihood="laplace",
        sampling_rate=batch / n_train,
        steps=steps or chosen["steps"],
        net=DPNet(
            PriVAEModule,
            optimizer=torch.optim.SGD if chosen["sgd"] else torch.optim.Adam,
            lr=chosen["lr"],
            **{f"module__{name}": value for name, value in module.items()},
        ),
        noise="fast",
        device=device,
        random_state=seed,
    )


def _judge(synthesizer, rows, seed):
    """Sparsity of the latents, their MMD to the prior, and the likelihood of test rows."""
    import torch

    from skdpgen.nn import cauchy_mmd

    model = synthesizer.model_
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(model.codec.scale(rows).astype(np.float32))
    with torch.inference_mode():
        mean, log_variance = model.module.encode(x)
        drawn = mean + torch.exp(0.5 * log_variance) * torch.from_numpy(rng.standard_normal(mean.shape)).float()
        prior = torch.from_numpy(model.draw_latents(len(rows), rng))
        mmd = cauchy_mmd(drawn, prior)
    few = rows[:500]
    return {
        "sparsity": hoyer(drawn.numpy()),
        "sparsity_of_means": hoyer(mean.numpy()),
        "log_likelihood": float(synthesizer.score_samples(few, n_importance=100).mean()),
        "mmd": mmd,
    }


def draw_sparsity(results, path):
    """Draw the three panels of Figure 1, a row a setting.

    Parameters
    ----------
    results : list of dict
        As `privae_sparsity_benchmark` yields them.
    path : str or path
    """
    from matplotlib.figure import Figure

    settings = list(dict.fromkeys(result["setting"] for result in results))
    canvas = Figure(figsize=(11, 3.2 * len(settings)), layout="constrained")
    panels = canvas.subplots(len(settings), 3, squeeze=False)
    names = {"sparsity": "sparsity (Hoyer)", "log_likelihood": "log-likelihood", "mmd": "MMD(q(z), p(z))"}
    for row, setting in zip(panels, settings):
        for panel, (figure, label) in zip(row, names.items()):
            for k, method in enumerate(METHODS):
                found = [r for r in results if r["setting"] == setting and r["model"] == method]
                if not found:
                    continue
                color = f"C{k}"
                if found[0]["epsilon"] is None:
                    value = float(np.mean([r[figure] for r in found]))
                    panel.axhline(value, color=color, linestyle="--", label=method)
                    continue
                budgets = sorted({r["epsilon"] for r in found})
                values = [[r[figure] for r in found if r["epsilon"] == budget] for budget in budgets]
                mean, spread = np.array([np.mean(v) for v in values]), np.array([np.std(v) for v in values])
                panel.plot(budgets, mean, "o-", color=color, label=method, markersize=4)
                panel.fill_between(budgets, mean - spread, mean + spread, color=color, alpha=0.15)
            panel.set_xscale("log")
            ticks = sorted({r["epsilon"] for r in results if r["epsilon"] is not None})
            panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            panel.minorticks_off()
            panel.set_xlabel("epsilon")
            panel.set_title(f"{label}, {setting} setting", fontsize=9)
            if figure == "log_likelihood":
                panel.set_yscale("symlog", linthresh=100)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=len(METHODS), fontsize=8)
    save_figure(canvas, path, dpi=130)
