"""DP2-VAE's experiments: Table 1 on MNIST and Fashion-MNIST, and the encoder policies."""

from __future__ import annotations

import math
from time import perf_counter

from ._dp2vae_judges import draw_grid, feature_map, frechet, judge

__all__ = ["MODELS", "POLICIES", "dp2vae_benchmark", "dp2vae_policies"]

MODELS = ("DP2VAESynthesizer", "random start", "DPVAESynthesizer", "P3GMSynthesizer", "real data")
# Sampler and `encoder_update`.
POLICIES = (
    "poisson, stateless",
    "poisson, frozen",
    "poisson, round_robin",
    "poisson, on_query",
    "balanced, on_query",
)
_IMAGES = {"bounds": (0, 255), "image_shape": (28, 28), "classes": range(10)}
# Of a decoder that starts from random parameters: a smaller latent space, and larger steps.
_RANDOM_START = {"start": "random", "n_components": 8, "learning_rate": 1e-3, "subsets_per_step": 50}
_QUICK = {"n_subsets": 200, "subsets_per_step": 10, "steps": 5, "pretrain_steps": 2}
_QUICK_ROWS = 2_000


def dp2vae_benchmark(
    dataset="mnist",
    models=MODELS,
    *,
    seeds=(0,),
    epsilon=10.0,
    delta=1e-5,
    data=None,
    device="cpu",
    n_samples=60_000,
    epochs=10,
    quick=False,
    figure=None,
):
    """Yield one result a model and seed of the paper's protocol.

    A model is fitted on the 60,000 training images and their labels; logistic regression, an MLP and a CNN are trained
    on `n_samples` synthetic images for a fixed number of epochs, and tested once on the 10,000 test images.

    Parameters
    ----------
    dataset : {"mnist", "fashion_mnist"}, default="mnist"
    models : sequence of str
        Names of `MODELS`; "random start" is DP2-VAE whose decoder does not start from released moments.
    seeds : iterable of int, default=(0,)
    epsilon, delta : float, default=10.0, 1e-5
    data : str or path, default=None
        Folder of the data.
    device : str, default="cpu"
        Where networks are trained.
    n_samples : int, default=60000
    epochs : int, default=10
        Of MLP and CNN.
    quick : bool, default=False
        2,000 rows, 2,000 synthetic ones, few steps, one epoch.
    figure : str or path, default=None
        A grid of samples of the first seed is drawn to this file.

    Yields
    ------
    dict
        dataset, model, seed, epsilon, epsilon_card, lr, mlp, cnn (accuracies), frechet (on the features of a CNN
        trained on the real images for an epoch, not Inception's), fit_seconds, judge_seconds.

    References
    ----------
    Jiang, Zhang, Karami, Chen, Shao, Yu, "DP2-VAE: Differentially Private Pre-trained Variational Autoencoders", 2022,
    Table 1 and Appendix B.4.
    """
    bunch, rows = _load(dataset, data), slice(0, _QUICK_ROWS if quick else None)
    n_samples, epochs = (_QUICK_ROWS, 1) if quick else (n_samples, epochs)
    X, y = bunch.data[rows], bunch.target[rows]
    features, drawn = feature_map(X, y, device), {}
    for seed in seeds:
        for name in models:
            start, model = perf_counter(), None
            images, labels = X[:n_samples], y[:n_samples]
            if name != "real data":
                model = _make(name, epsilon, delta, seed, quick, device).fit(X, y)
                fitted = perf_counter()
                images, labels = model.sample(n_samples)
            else:
                fitted = start
            drawn.setdefault(name, (images, labels))
            yield {
                "dataset": dataset,
                "model": name,
                "seed": seed,
                "epsilon": epsilon if model is not None else math.inf,
                "epsilon_card": None if model is None else model.card_.verify()["fit"]["epsilon"],
                **judge(images, labels, bunch, epochs, seed, device),
                "frechet": frechet(features, bunch.data_test, images),
                "fit_seconds": round(fitted - start, 1),
                "judge_seconds": round(perf_counter() - fitted, 1),
            }
    if figure is not None:
        draw_grid(drawn, figure)


def dp2vae_policies(policies=POLICIES, *, seeds=(0,), epsilon=10.0, delta=1e-5, data=None, device="cpu", quick=False):
    """Yield the accuracies of each encoder policy on MNIST, all at one budget, from released moments.

    20,000 synthetic images, five epochs of MLP and CNN.

    Parameters
    ----------
    policies : sequence of str, default=POLICIES
        A sampler and an `encoder_update` each.
    seeds, epsilon, delta, data, device, quick
        As in `dp2vae_benchmark`.

    Yields
    ------
    dict
        dataset, model (the policy), seed, epsilon, noise (on the mean gradient of a step, in units of its bound),
        fit_seconds, lr, mlp, cnn.
    """
    bunch, rows = _load("mnist", data), slice(0, _QUICK_ROWS if quick else None)
    X, y = bunch.data[rows], bunch.target[rows]
    n_samples, epochs = (_QUICK_ROWS, 1) if quick else (20_000, 5)
    for seed in seeds:
        for policy in policies:
            start, model = perf_counter(), make_policy(policy, epsilon, delta, seed, quick, device)
            images, labels = model.fit(X, y).sample(n_samples)
            yield {
                "dataset": "mnist",
                "model": policy,
                "seed": seed,
                "epsilon": epsilon,
                "noise": noise_of(model, X, y),
                "fit_seconds": round(perf_counter() - start, 1),
                **judge(images, labels, bunch, epochs, seed, device),
            }


def make_policy(policy, epsilon=10.0, delta=1e-5, seed=0, quick=False, device="cpu"):
    """Make the synthesizer of one of `POLICIES`."""
    sampler, update = policy.split(", ")
    model = _make("DP2VAESynthesizer", epsilon, delta, seed, quick, device)
    per_step = model.subsets_per_step or 50
    return model.set_params(sampler=sampler, encoder_update=update, subsets_per_step=per_step)


def noise_of(model, X, y):
    """Noise of a step that such a synthesizer plans, on the mean gradient and in units of its bound."""
    from skdpgen.synthesizers._dp2vae import dp2vae_settings

    settings = dp2vae_settings(model.get_params(deep=False), model._defaults(), seed=0)
    plan = settings.subsets.plan(model.plan(X, y).noise_multipliers["decoder"])
    return plan.noise_std / plan.per_step / plan.gradient_bound


def _make(name, epsilon, delta, seed, quick, device):
    from skdpgen import synthesizers

    common = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    if name in ("DP2VAESynthesizer", "random start"):
        settings = dict(_RANDOM_START) if name == "random start" else {"start_steps": 20} if quick else {}
        settings.update(_QUICK if quick else {})
        return synthesizers.DP2VAESynthesizer(**common, **_IMAGES, **settings, device=device)
    if name == "DPVAESynthesizer":
        steps = {"steps": 10} if quick else {}
        return synthesizers.DPVAESynthesizer(**common, bounds=(0, 255), classes=range(10), device=device, **steps)
    return getattr(synthesizers, name)(**common, **_IMAGES)


def _load(dataset, data):
    from skdpgen import datasets

    return getattr(datasets, f"load_{dataset}")(data)
