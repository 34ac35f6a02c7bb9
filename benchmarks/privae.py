"""PriVAE's experiments: Figure 1 (a sparse prior), Figure 2 (a pinwheel), and its utility beside P3GM and DP-VAE."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np

from skdpgen import DPSGD, GroupDivergence

from .drawing import new_figure, save_figure
from .models import Model

__all__ = [
    "METHODS",
    "MODELS",
    "PINWHEEL_METHODS",
    "draw_pinwheel",
    "draw_sparsity",
    "hoyer",
    "privae_pinwheel_benchmark",
    "privae_sparsity_benchmark",
    "privae_tstr_benchmark",
]

# ---- Figure 1 ------------------------------------------------------------------------------------------------------
EPSILONS = (1.0, 4.0, 10.0, 100.0, math.inf)
# What is fitted: parameters of PriVAESynthesizer, on top of those of a setting. VAEs are without privacy.
METHODS = {
    "PriVAE + MMD": {"divergence": "mmd"},
    "PriVAE": {"divergence": None},
    "micro aggregation": {"divergence": GroupDivergence(aggregation="micro")},
    "batch aggregation": {"divergence": GroupDivergence(aggregation="batch")},
    "VAE + MMD": {"divergence": "mmd"},
    "VAE": {"divergence": None},
}
_WITHOUT_PRIVACY = ("VAE + MMD", "VAE")
# The paper's setting, at which parameters hardly move, and one tuned on training images that were held out. Two things
# make the difference: many small groups of a large batch, whose part of the noise is 2 C2/b, and an encoder that cannot
# meet the prior without being sparse (see `SparseEncoder`). Without privacy nothing is clipped: alpha is the weight. To
# gradients of whole batches large ones are of no use: no average makes their noise smaller.
_SPARSE_SETTINGS = {
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
        prior's own is .42, a normal distribution's .23), sparsity_of_means, log_likelihood (importance-weighted bound
        of 100 samples, mean over 500 test rows), mmd (of the latents' draws to the prior's), epsilon_card, fit_seconds.

    References
    ----------
    Takahashi, Takagi, Ono, Komatsu, 2020, section 5.1 and Figure 1.
    """
    from skdpgen.datasets import load_fashion_mnist

    bunch = load_fashion_mnist(data)
    for name, given, known in (("settings", settings, _SPARSE_SETTINGS), ("models", models, METHODS)):
        if not set(given) <= set(known):
            raise ValueError(f"{name} must be of {', '.join(known)}; got {', '.join(map(str, given))}")
    for seed, setting, budget, method in itertools.product(seeds, settings, epsilon, models):
        if (method in _WITHOUT_PRIVACY) == math.isfinite(budget):
            continue
        rows = np.random.default_rng(seed).permutation(len(bunch.data))[:n_train]
        synthesizer = _make_sparse(setting, method, budget, seed, convolutional, steps, n_train, device)
        start = time.perf_counter()
        synthesizer.fit(bunch.data[rows])
        yield {
            "setting": setting,
            "model": method,
            "epsilon": float(budget) if math.isfinite(budget) else None,
            "seed": int(seed),
            "fit_seconds": round(time.perf_counter() - start, 1),
            **_judge_sparse(synthesizer, bunch.data_test[:n_test], seed),
            "epsilon_card": synthesizer.card_.verify()["fit"]["epsilon"],
        }


def _make_sparse(setting, method, epsilon, seed, convolutional, steps, n_train, device):
    import torch

    from skdpgen.nn import DPNet, PriVAEModule, SparseEncoder
    from skdpgen.synthesizers import PriVAESynthesizer

    from .images import torch_seeded

    chosen = _SPARSE_SETTINGS[setting]
    if not math.isfinite(epsilon):
        chosen = {**chosen, **chosen["without_privacy"]}
    divergence = METHODS[method]["divergence"]
    aggregation = getattr(divergence, "aggregation", "termwise")
    if aggregation != "termwise":
        chosen = {**chosen, **chosen["whole_batch"]}
    batch = min(chosen["batch"], n_train)
    if divergence is not None:
        divergence = GroupDivergence(alpha=chosen["alpha"], aggregation=aggregation)
        if aggregation == "termwise":
            n_groups = max(1, batch // chosen["group_size"])
            divergence.set_params(n_groups=n_groups, gradient_bound=chosen["c2"])
    module = {"n_prior_samples": chosen["n_prior_samples"]}
    if chosen["sparse_encoder"]:
        with torch_seeded(seed):
            module["encoder"] = SparseEncoder(784, _LATENT, image_shape=(28, 28))
        module["n_hidden"] = 100
    training = DPSGD(
        steps or chosen["steps"],
        batch / n_train,
        gradient_bound=chosen["c1" if aggregation == "termwise" else "c"] if math.isfinite(epsilon) else None,
        net=DPNet(
            PriVAEModule,
            optimizer=torch.optim.SGD if chosen["sgd"] else torch.optim.Adam,
            lr=chosen["lr"],
            **{f"module__{name}": value for name, value in module.items()},
        ),
        device=device,
    )
    return PriVAESynthesizer(
        epsilon,
        divergence=divergence,
        training=training,
        prior="sparse",
        n_components=_LATENT,
        bounds=(0, 255),
        image_shape=(28, 28) if convolutional and not chosen["sparse_encoder"] else None,
        likelihood="laplace",
        noise="fast",
        random_state=seed,
    )


def _judge_sparse(synthesizer, rows, seed):
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
    settings = list(dict.fromkeys(result["setting"] for result in results))
    canvas = new_figure((11, 3.2 * len(settings)))
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


# ---- Figure 2 ------------------------------------------------------------------------------------------------------
CORNERS = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
PINWHEEL_METHODS = ("PriVAE + KL(p||q)", "PriVAE")
# The paper's setting, and one tuned on other seeds: a batch of 40, the divergence beside some KL(q(z|x) || p), Adam,
# and an average of the released parameters, which takes away much of their noise.
_PINWHEEL_SETTINGS = {
    "paper": {
        "adam": False, "lr": 0.01, "c1": 0.05, "c2": 0.0005, "alpha": 1.0, "beta": 0.0, "batch": 20, "steps": 1000,
        "n_monte_carlo": 20, "average": None,
    },
    "tuned": {
        "adam": True, "lr": 0.01, "c1": 1.0, "c2": 0.007, "alpha": 10.0, "beta": 0.2, "batch": 40, "steps": 500,
        "n_monte_carlo": 4, "average": 0.98,
    },
}  # fmt: skip


def privae_pinwheel_benchmark(
    seeds=(0, 1, 2, 3, 4), *, settings=("tuned",), budgets=((400, 10.0), (4000, 4.0)), quick=False, figure=None
):
    """Fit PriVAE to a pinwheel with and without KL(p||q); yield one result a fit.

    Parameters
    ----------
    seeds : iterable of int, default=(0, 1, 2, 3, 4)
        Of the points and the initial net.
    settings : sequence of {"paper", "tuned"}
    budgets : sequence of (int, float)
        Numbers of points, and the epsilon of each, at delta 1e-5.
    quick : bool, default=False
        20 steps.
    figure : str or path, default=None
        Draw Figure 2 (the first seed of the first budget and setting) to this file; needs the extra ``plot``.

    Yields
    ------
    dict
        setting, model, n_samples, epsilon, seed; `purity`, share of the points whose latent mode is that of most points
        of one arm; `modes`, modes that are used; `error`, mean squared reconstruction error; `distance`, of latents to
        their mode (the prior's is .22); epsilon_card; fit_seconds.

    References
    ----------
    Takahashi, Takagi, Ono, Komatsu, 2020, section 5.2 and Figure 2.
    """
    from skdpgen.datasets import make_pinwheel

    drawn = {}
    for setting in settings:
        for n_samples, epsilon in budgets:
            for seed in seeds:
                X, arms = make_pinwheel(n_samples, random_state=seed)
                for method in PINWHEEL_METHODS:
                    start = time.perf_counter()
                    synthesizer = _make_pinwheel(setting, method, epsilon, n_samples, seed, quick).fit(X)
                    latents, rows = synthesizer.transform(X), synthesizer.reconstruct(X)
                    drawn.setdefault(method, (X, rows, latents, arms))
                    yield {
                        "setting": setting,
                        "model": method,
                        "n_samples": n_samples,
                        "epsilon": epsilon,
                        "seed": int(seed),
                        **judge_pinwheel(latents, arms),
                        "error": float(np.square(rows - X).sum(axis=1).mean()),
                        "epsilon_card": synthesizer.card_.verify()["fit"]["epsilon"],
                        "fit_seconds": round(time.perf_counter() - start, 1),
                    }
    if figure is not None:
        draw_pinwheel(drawn, figure)


def _make_pinwheel(setting, method, epsilon, n_samples, seed, quick):
    import torch

    from skdpgen.nn import DPNet, GaussianMixturePrior, ParameterAverage, PriVAEModule
    from skdpgen.synthesizers import PriVAESynthesizer

    chosen = _PINWHEEL_SETTINGS[setting]
    term = {"divergence": None}
    if method != "PriVAE":
        divergence = GroupDivergence("kl_prior", alpha=chosen["alpha"], n_groups=1, gradient_bound=chosen["c2"])
        term = {"divergence": divergence, "beta": chosen["beta"]}
    training = DPSGD(
        20 if quick else chosen["steps"],
        chosen["batch"] / 400,
        gradient_bound=chosen["c1"],
        net=DPNet(
            PriVAEModule,
            module__n_hidden=100,
            module__n_monte_carlo=chosen["n_monte_carlo"],
            optimizer=torch.optim.Adam if chosen["adam"] else torch.optim.SGD,
            lr=chosen["lr"],
            callbacks=None if chosen["average"] is None else [("average", ParameterAverage(chosen["average"]))],
        ),
    )
    return PriVAESynthesizer(
        epsilon,
        **term,
        training=training,
        prior=GaussianMixturePrior(CORNERS, 0.03),
        n_components=2,
        likelihood="gaussian",
        bounds=(-2.5, 2.5),
        noise="fast",
        random_state=seed,
    )


def judge_pinwheel(latents, arms):
    square = np.square(latents[:, None] - CORNERS).sum(axis=2)
    mode = square.argmin(axis=1)
    found = np.unique(mode)
    return {
        "purity": float(sum(np.bincount(arms[mode == k]).max() for k in found) / len(arms)),
        "modes": len(found),
        "distance": float(np.sqrt(square.min(axis=1)).mean()),
    }


def draw_pinwheel(drawn, path):
    """Draw points with their reconstructions, and latents with the prior's modes, a row a method.

    Parameters
    ----------
    drawn : dict of method -> (points, reconstructions, latents, arms)
    path : str or path
    """
    canvas = new_figure((7, 3.4 * len(drawn)))
    for row, (method, (X, rows, latents, arms)) in zip(canvas.subplots(len(drawn), 2, squeeze=False), drawn.items()):
        row[0].scatter(*X.T, s=6, color="0.75", label="points")
        row[0].scatter(*rows.T, s=6, color="C1", label="reconstructions")
        row[0].set_title(method, fontsize=9)
        row[0].legend(fontsize=7)
        for arm in np.unique(arms):
            row[1].scatter(*latents[arms == arm].T, s=6, color=f"C{arm}")
        row[1].scatter(*CORNERS.T, marker="+", color="k", s=90, label="modes of the prior")
        row[1].set_title("latents, by arm", fontsize=9)
        row[1].legend(fontsize=7)
    save_figure(canvas, path, dpi=130)


# ---- train on synthetic, test on real ------------------------------------------------------------------------------
MODELS = ("PriVAESynthesizer", "DPVAESynthesizer", "P3GMSynthesizer")


def privae_tstr_benchmark(
    dataset="adult", models=MODELS, *, seeds=(0,), epsilon=1.0, delta=1e-5, data=None, device="cpu", quick=False,
    classifiers=None,
):  # fmt: skip
    """Yield the results of the protocols of P3GM's paper for PriVAE with MMD, DP-VAE and P3GM, at defaults.

    Parameters
    ----------
    dataset : {"adult", "fashion_mnist"}, default="adult"
    models : sequence of str
        PriVAESynthesizer, DPVAESynthesizer, P3GMSynthesizer.
    seeds : iterable of int, default=(0,)
    epsilon, delta : float, default=1.0, 1e-5
    data : str or path, default=None
        Folder of the data.
    device : str, default="cpu"
        Where PriVAE, DP-VAE and the classifier of images are trained.
    quick : bool, default=False
        20 steps; images: 2,000 synthetic ones and one epoch of the classifier.
    classifiers : dict, default=None
        Of tables; None is the protocol's four.

    Yields
    ------
    dict
        As `table_benchmark` and `image_benchmark` do.
    """
    from .images import image_benchmark
    from .tables import table_benchmark

    made = [_model(name, quick) for name in models]
    options = {"seeds": seeds, "epsilon": epsilon, "delta": delta, "data": data, "device": device}
    if dataset == "adult":
        yield from table_benchmark("adult", made, classifiers=classifiers, **options)
        return
    size = {"n_samples": 2_000, "epochs": 1} if quick else {}
    yield from image_benchmark(dataset, made, progress=False, **options, **size)


def _model(name, quick):
    """A model at its defaults but for the source of the noise."""
    if name not in MODELS:
        raise ValueError(f"models must be of {', '.join(MODELS)}; got {name!r}")
    if name == "P3GMSynthesizer":
        return Model(name, name)
    return Model(name, name, {"noise": "fast"}, trains=True, training={"steps": 20} if quick else {})
