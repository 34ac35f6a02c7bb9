"""DP2-VAE's experiments: Table 1 on MNIST and Fashion-MNIST, the encoder policies, and the cost of stage 1."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from time import perf_counter, process_time

import numpy as np

from .drawing import new_figure, save_figure
from .moment_cost import peak_mib

__all__ = [
    "MODELS",
    "POLICIES",
    "dp2vae_benchmark",
    "dp2vae_policies",
    "dp2vae_speed",
    "draw_grid",
    "feature_map",
    "frechet",
    "judge",
]

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
# Of networks that start from random parameters: subsets of a few rows, of which a step draws many, and larger steps.
_RANDOM_START = {
    "warm_start_steps": 0, "n_subsets": 10_000, "subsets_per_step": 500, "steps": 300, "learning_rate": 0.01,
    "encoder_update": "frozen",
}  # fmt: skip
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
    per_step = model.training.subsets_per_step or 50
    model.training.set_params(sampler=sampler, encoder_update=update, subsets_per_step=per_step)
    return model


def noise_of(model, X, y):
    """Noise of a step that such a synthesizer plans, on the mean gradient and in units of its bound."""
    from skdpgen.synthesizers._dp2vae import dp2vae_settings

    settings = dp2vae_settings(model._resolve(), seed=0)
    plan = replace(settings.subsets, noise_multiplier=model.plan(X, y).noise_multipliers["decoder"])
    return plan.noise_std / plan.per_step / plan.gradient_bound


def _make(name, epsilon, delta, seed, quick, device):
    from skdpgen import DPSGD, SubsetSGD, synthesizers

    common = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    if name in ("DP2VAESynthesizer", "random start"):
        random = name == "random start"
        settings = dict(_RANDOM_START) if random else {"warm_start_steps": 20} if quick else {}
        settings.update(_QUICK if quick else {})
        training = SubsetSGD(device=device, **settings)
        return synthesizers.DP2VAESynthesizer(**common, **_IMAGES, training=training)
    if name == "DPVAESynthesizer":
        training = DPSGD(10 if quick else None, device=device)
        return synthesizers.DPVAESynthesizer(**common, bounds=(0, 255), classes=range(10), training=training)
    return getattr(synthesizers, name)(**common, **_IMAGES)


def _load(dataset, data):
    from skdpgen import datasets

    return getattr(datasets, f"load_{dataset}")(data)


# ---- the paper's classifiers and the Frechet distance --------------------------------------------------------------
_LOGISTIC_STEPS = 100


def judge(images, labels, bunch, epochs, seed, device="cpu"):
    """Test accuracies of the paper's three classifiers.

    Parameters
    ----------
    images : array of shape (n_images, 784)
        Pixels in [0, 255].
    labels : array of shape (n_images,)
    bunch : Bunch
        Real images: data_test, target_test.
    epochs : int
        Of MLP and CNN.
    seed : int
        Of their initial weights, batches and dropout.
    device : str, default="cpu"

    Returns
    -------
    dict
        lr, mlp, cnn.
    """
    unit = np.asarray(images, dtype=np.float32) / 255
    test = np.asarray(bunch.data_test, dtype=np.float32) / 255
    classes, codes = np.unique(labels, return_inverse=True)
    out = {"lr": logistic(unit, codes, test, len(classes), device)}
    for name in ("mlp", "cnn"):
        out[name] = neural(name, unit, codes, test, len(classes), epochs, seed, device)
    return {name: float(np.mean(classes[predicted] == bunch.target_test)) for name, predicted in out.items()}


def logistic(unit, codes, test, n_classes, device="cpu"):
    """Predictions of multinomial logistic regression with scikit-learn's defaults: C = 1, 100 steps of L-BFGS.

    The objective is evaluated by torch, so that it runs on the same device as the other classifiers.
    """
    import torch
    from scipy.optimize import minimize

    x, y = torch.from_numpy(unit).to(device), torch.as_tensor(codes.astype(np.int64), device=device)
    shape, n = (n_classes, unit.shape[1] + 1), len(unit)

    def objective(flat):
        w = torch.from_numpy(flat.reshape(shape)).to(device, torch.float32).requires_grad_()
        loss = torch.nn.functional.cross_entropy(x @ w[:, :-1].T + w[:, -1], y)
        loss = loss + 0.5 / n * w[:, :-1].square().sum()
        loss.backward()
        return float(loss.detach()), w.grad.cpu().double().numpy().ravel()

    # tolerances of scikit-learn's solver "lbfgs"
    options = {"maxiter": _LOGISTIC_STEPS, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    found = minimize(objective, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options).x.reshape(shape)
    return (test @ found[:, :-1].T + found[:, -1]).argmax(axis=1)


def neural(name, unit, codes, test, n_classes, epochs, seed, device="cpu"):
    """Predictions of the paper's MLP or CNN: Adam's defaults, batches of 128, a fixed number of epochs."""
    import torch
    from torch import nn

    from .images import torch_seeded

    with torch_seeded(seed, device):
        if name == "mlp":
            net = nn.Sequential(nn.Linear(unit.shape[1], 100), nn.ReLU(), nn.Linear(100, n_classes))
        else:
            net = nn.Sequential(
                nn.Unflatten(1, (1, 28, 28)),
                nn.Conv2d(1, 32, 3, 2, 1), nn.Dropout(0.5), nn.ReLU(),
                nn.Conv2d(32, 64, 3, 2, 1), nn.Dropout(0.5), nn.ReLU(),
                nn.Flatten(), nn.Linear(64 * 49, n_classes),
            )  # fmt: skip
        x, target = torch.from_numpy(unit).to(device), torch.from_numpy(codes.astype(np.int64)).to(device)
        net.to(device)
        optimizer = torch.optim.Adam(net.parameters(), fused=torch.device(device).type in ("cpu", "cuda"))
        for _ in range(epochs):
            for batch in torch.randperm(len(x)).to(device).split(128):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x[batch]), target[batch]).backward()
                optimizer.step()
        net.eval()
        with torch.inference_mode():
            parts = torch.from_numpy(test).to(device).split(2048)
            return torch.cat([net(part).argmax(1) for part in parts]).cpu().numpy()


def feature_map(X, y, device="cpu"):
    """Features of the CNN of P3GM's protocol trained on real images for an epoch: its dense layer of 128."""
    import torch

    from .images import fit_cnn

    codes = np.unique(y, return_inverse=True)[1]
    net = fit_cnn(X, codes, epochs=1, progress=False, device=device)[:6]

    def features(images):
        pixels = torch.from_numpy(np.asarray(images, dtype=np.float32) / 255).reshape(-1, 1, 28, 28)
        with torch.inference_mode():
            return torch.cat([net(part.to(device)).cpu() for part in pixels.split(2048)]).double().numpy()

    return features


def frechet(features, real, synthetic):
    """Frechet distance on those features; as many synthetic images as real ones."""
    from skdpgen.metrics import frechet_distance

    return float(frechet_distance(features(real), features(synthetic[: len(real)])))


def draw_grid(drawn, path):
    """Draw eight images a class of each model, one model beside the other.

    Parameters
    ----------
    drawn : dict of (images, labels)
        By model.
    path : str or path
    """
    drawing = new_figure((2.6 * len(drawn), 3.5))
    for axes, (name, (images, labels)) in zip(np.atleast_1d(drawing.subplots(1, len(drawn))), drawn.items()):
        rows = []
        for k in np.unique(labels)[:10]:
            of_class = np.asarray(images)[np.asarray(labels) == k][:8]
            blank = np.zeros((8 - len(of_class), 784))
            rows.append(np.concatenate([of_class, blank]).reshape(8, 28, 28).transpose(1, 0, 2).reshape(28, -1))
        axes.imshow(np.concatenate(rows), cmap="gray_r", vmin=0, vmax=255)
        axes.set_title(name, fontsize=9)
        axes.axis("off")
    save_figure(drawing, path, dpi=110)


# ---- cost of stage 1 -----------------------------------------------------------------------------------------------
_ROWS, _BATCH, _LATENT = 24, 8, 20


def dp2vae_speed(*, n_subsets=2500, steps=20, data=None, quick=False):
    """Yield the cost of stage 1 on MNIST, 24 rows a subset: all encoders together, and 50 one after another.

    Both ways train the same networks: the encoder of the default architecture, and the decoder that is deleted.

    Parameters
    ----------
    n_subsets : int, default=2500
    steps : int, default=20
        Of each encoder.
    data : str or path, default=None
        Folder of the data.
    quick : bool, default=False
        20 encoders together, 10 one after another.

    Yields
    ------
    dict
        method, encoders, milliseconds (of processor time, an encoder and step), seconds (of all, on this machine), and
        of all together peak_gib (the largest resident size of a process that does this alone, interpreter and rows
        included), of one by one `ratio`, its milliseconds over those of all together.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    k = 20 if quick else n_subsets
    rows, labels = _speed_rows(data, _ROWS * k)
    # a fresh process: the peak of this one may be that of what it did before
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        together = pool.submit(_together, rows, labels, k, steps).result()
    yield {"method": "together", "encoders": k, **together}
    few = min(10 if quick else 50, k)
    alone = _one_by_one(rows, few, steps)
    ratio = alone["milliseconds"] / together["milliseconds"]
    yield {"method": "one after another", "encoders": few, **alone, "ratio": ratio}


def _speed_rows(data, n_rows):
    from skdpgen.datasets import load_mnist

    bunch = load_mnist(data)
    return bunch.data[:n_rows], bunch.target[:n_rows]


def _networks():
    from skdpgen.nn._dp2vae import AUXILIARY, make_decoder, make_encoder

    shape = {"image_shape": (28, 28)}
    encoder = make_encoder("patches", 784, 10, _LATENT, **shape)
    return encoder, make_decoder("patches", 784, 10, _LATENT, **shape, **AUXILIARY)


def _together(images, labels, k, steps):
    """Seconds, and the peak of this process."""
    from skdpgen.dpsgd._subsets import assign_subsets
    from skdpgen.nn._dp2vae import LIKELIHOODS
    from skdpgen.nn._dp2vae_training import EncoderTraining, SubsetRows, default_chunk, pretrain_encoders
    from skdpgen.utils.noise import make_noise_generator

    rng, likelihood, (encoder, auxiliary) = make_noise_generator(), LIKELIHOODS["bernoulli"](), _networks()
    x = (images / 255).astype(np.float32)
    rows = SubsetRows(x, labels.astype(np.int64), 10, assign_subsets(len(x), k, rng), k)
    sizes = [sum(p.numel() for p in net.parameters()) for net in (encoder, auxiliary)]
    chunk = default_chunk(*sizes, "cpu", 4 * 2**30, _BATCH, 784)[0]
    training = EncoderTraining(bytes(rng.random_bytes(16)), steps, _BATCH, learning_rate=1e-3, gradient_bound=1.0)
    pretrain_encoders(encoder, auxiliary, rows.part(0, 1), likelihood, training, chunk=chunk)  # libraries load
    start, started = perf_counter(), process_time()
    pretrain_encoders(encoder, auxiliary, rows, likelihood, training, chunk=chunk)
    return {**_lap(start, started, k * steps), "peak_gib": peak_mib() / 2**10}


def _one_by_one(images, few, steps):
    encoder, auxiliary = _networks()
    x = (images / 255).astype(np.float32)
    _train_one(encoder, auxiliary, x[:_ROWS], 3)  # libraries load
    start, started = perf_counter(), process_time()
    for i in range(few):
        _train_one(encoder, auxiliary, x[_ROWS * i : _ROWS * (i + 1)], steps)
    return _lap(start, started, few * steps)


def _lap(start, started, trained):
    milliseconds = 1e3 * (process_time() - started) / trained
    return {"milliseconds": milliseconds, "seconds": round(perf_counter() - start, 2)}


def _train_one(encoder, decoder, x, steps):
    """One encoder as one would write it: modules, autograd, clipping and Adam of torch."""
    import torch

    x, label = torch.from_numpy(x), torch.zeros(_BATCH, 10)
    encoder, decoder = copy.deepcopy(encoder), copy.deepcopy(decoder)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    for _ in range(steps):
        rows = x[torch.randint(len(x), (_BATCH,))]
        mean, log_variance = encoder(rows, label).chunk(2, dim=1)
        latent = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(decoder(latent, label), rows, reduction="sum")
        loss = (loss + 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()) / _BATCH
        optimizer.zero_grad()
        loss.backward()
        for net in (encoder, decoder):
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
