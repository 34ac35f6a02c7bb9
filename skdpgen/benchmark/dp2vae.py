"""DP2-VAE's experiments: Table 1 on MNIST and Fashion-MNIST, encoder policies, the speed of stage 1."""

from __future__ import annotations

import math
from time import perf_counter, process_time

import numpy as np

__all__ = ["MODELS", "dp2vae_benchmark", "dp2vae_policies", "dp2vae_speed"]

MODELS = ("DP2VAESynthesizer", "random start", "DPVAESynthesizer", "P3GMSynthesizer", "real data")
_IMAGES = {"bounds": (0, 255), "image_shape": (28, 28), "classes": range(10)}
# What keeps the paper's idea and survives sound accounting: see the page "DP2-VAE" of the documentation.
_TUNED = {
    "n_subsets": 2500, "subsets_per_step": 50, "steps": 200, "pretrain_steps": 20, "start_steps": 3000,
    "n_components": 20, "lr": 5e-4,
}  # fmt: skip
_QUICK = {"n_subsets": 200, "subsets_per_step": 10, "steps": 5, "pretrain_steps": 2, "start_steps": 20}
_QUICK_ROWS = 2_000


def dp2vae_benchmark(
    dataset="mnist",
    models=MODELS,
    *,
    seeds=(0,),
    epsilon=10.0,
    delta=1e-5,
    data=None,
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
    features, drawn = _feature_map(X, y), {}
    for seed in seeds:
        for name in models:
            start, model = perf_counter(), None
            images, labels = X[:n_samples], y[:n_samples]
            if name != "real data":
                model = _make(name, epsilon, delta, seed, quick).fit(X, y)
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
                **_judge(images, labels, bunch, epochs, seed),
                "frechet": _frechet(features, bunch.data_test, images),
                "fit_seconds": round(fitted - start, 1),
                "judge_seconds": round(perf_counter() - fitted, 1),
            }
    if figure is not None:
        draw_grid(drawn, figure)


def dp2vae_policies(*, seeds=(0,), epsilon=10.0, delta=1e-5, data=None, quick=False):
    """Yield the accuracies of each encoder policy on MNIST, all at one budget and from random parameters.

    Parameters and results as in `dp2vae_benchmark`, with the policy as "model", the sampler, and the noise on the mean
    gradient of a step in units of its bound.
    """
    bunch, rows = _load("mnist", data), slice(0, _QUICK_ROWS if quick else None)
    X, y = bunch.data[rows], bunch.target[rows]
    n_samples, epochs = (_QUICK_ROWS, 1) if quick else (20_000, 5)
    for seed in seeds:
        for sampler, update in (
            ("poisson", "stateless"), ("poisson", "frozen"), ("poisson", "round_robin"), ("poisson", "on_query"),
            ("balanced", "on_query"),
        ):  # fmt: skip
            from skdpgen.synthesizers._dp2vae_planning import subset_plan

            start = perf_counter()
            model = _make("random start", epsilon, delta, seed, quick)
            model.set_params(sampler=sampler, encoder_update=update, random_state=seed)
            plan = subset_plan(model.get_params(deep=False), model.plan(X, y).noise_multipliers["decoder"])
            images, labels = model.fit(X, y).sample(n_samples)
            yield {
                "dataset": "mnist",
                "model": update,
                "sampler": sampler,
                "seed": seed,
                "epsilon": epsilon,
                "noise": plan.noise_std / plan.per_step / plan.l2_bound,
                "fit_seconds": round(perf_counter() - start, 1),
                **_judge(images, labels, bunch, epochs, seed),
            }


def dp2vae_speed(*, n_subsets=2500, steps=20, data=None, quick=False):
    """Yield the time of stage 1 on MNIST: all encoders together, and 50 of them one after another.

    Parameters
    ----------
    n_subsets : int, default=2500
    steps : int, default=20
        Of each encoder.
    data, quick
        As in `dp2vae_benchmark`.

    Yields
    ------
    dict
        method, encoders, milliseconds (of processor time, an encoder and step), seconds (of all, on this machine).
    """
    import torch

    from skdpgen.dpsgd.subsets import assign_subsets
    from skdpgen.nn._dp2vae import LIKELIHOODS, make_decoder, make_encoder
    from skdpgen.nn._dp2vae_training import SubsetRows, default_chunk, pretrain_encoders
    from skdpgen.utils.noise import make_noise_generator

    bunch = _load("mnist", data)
    rng, k = make_noise_generator(), 60 if quick else n_subsets
    x = (bunch.data[: 24 * k] / 255).astype(np.float32)
    rows = SubsetRows(x, bunch.target[: 24 * k].astype(np.int64), 10, assign_subsets(len(x), k, rng), k)
    make = {"image_shape": (28, 28)}
    encoder, decoder = (f("patches", 784, 10, 8, **make) for f in (make_encoder, make_decoder))
    sizes = [sum(p.numel() for p in net.parameters()) for net in (encoder, decoder)]
    settings = {"steps": steps, "batch_size": 8, "lr": 1e-3, "l2_bound": 1.0, "device": "cpu", "n_jobs": 1}
    start, started = perf_counter(), process_time()
    options = {"n_subsets": k, "settings": settings, "key": bytes(rng.random_bytes(16))}
    likelihood = LIKELIHOODS["bernoulli"]()
    chunk = default_chunk(*sizes, "cpu", 4 * 2**30, 8, 784)[0]
    pretrain_encoders(encoder, decoder, rows, likelihood, chunk=chunk, **options)
    yield {
        "method": "together",
        "encoders": k,
        "milliseconds": 1e3 * (process_time() - started) / (k * steps),
        "seconds": round(perf_counter() - start, 2),
    }
    few, start, started = min(50, k), perf_counter(), process_time()
    for i in range(few):
        _train_one(encoder, decoder, torch.from_numpy(x[24 * i : 24 * i + 24]), steps)
    yield {
        "method": "one after another",
        "encoders": few,
        "milliseconds": 1e3 * (process_time() - started) / (few * steps),
        "seconds": round(perf_counter() - start, 2),
    }


def _train_one(encoder, decoder, x, steps):
    """One encoder as one would write it: modules, autograd, clipping and Adam of torch."""
    import copy

    import torch

    encoder, decoder = copy.deepcopy(encoder), copy.deepcopy(decoder)
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer, label = torch.optim.Adam(parameters, lr=1e-3), torch.zeros(8, 10)
    for _ in range(steps):
        rows = x[torch.randint(len(x), (8,))]
        mean, log_variance = encoder(rows, label).chunk(2, dim=1)
        latent = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(decoder(latent, label), rows, reduction="sum")
        loss = (loss + 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()) / 8
        optimizer.zero_grad()
        loss.backward()
        for net in (encoder, decoder):
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()


# ---- models and judges --------------------------------------------------------------------------------------------
def _make(name, epsilon, delta, seed, quick):
    from .. import synthesizers

    common = {"epsilon": epsilon, "delta": delta, "random_state": seed}
    if name in ("DP2VAESynthesizer", "random start"):
        tuned = dict(_QUICK if quick else _TUNED)
        if name == "random start":
            tuned.update(start="random", n_components=8, lr=1e-3)
            tuned.pop("start_steps")
        return synthesizers.DP2VAESynthesizer(**common, **_IMAGES, **tuned)
    if name == "DPVAESynthesizer":
        steps = {"steps": 10} if quick else {}
        return synthesizers.DPVAESynthesizer(**common, bounds=(0, 255), classes=range(10), **steps)
    return getattr(synthesizers, name)(**common, **_IMAGES)


def _load(dataset, data):
    from .. import datasets

    return getattr(datasets, f"load_{dataset}")(data)


def _judge(images, labels, bunch, epochs, seed):
    """Test accuracies of the paper's three classifiers."""
    from sklearn.linear_model import LogisticRegression

    unit = np.asarray(images, dtype=np.float32) / 255
    test = np.asarray(bunch.data_test, dtype=np.float32) / 255
    classes, codes = np.unique(labels, return_inverse=True)
    logistic = LogisticRegression()
    with np.errstate(all="ignore"):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it stopped at its default number of iterations
            logistic.fit(unit, codes)
    out = {"lr": float(np.mean(classes[logistic.predict(test)] == bunch.target_test))}
    for name in ("mlp", "cnn"):
        predicted = _fit_predict(name, unit, codes, test, len(classes), epochs, seed)
        out[name] = float(np.mean(classes[predicted] == bunch.target_test))
    return out


def _fit_predict(name, unit, codes, test, n_classes, epochs, seed):
    """The paper's MLP or CNN with Adam's defaults, batches of 128, a fixed number of epochs."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == "mlp":
            net = nn.Sequential(nn.Linear(unit.shape[1], 100), nn.ReLU(), nn.Linear(100, n_classes))
        else:
            net = nn.Sequential(
                nn.Unflatten(1, (1, 28, 28)),
                nn.Conv2d(1, 32, 3, 2, 1), nn.Dropout(0.5), nn.ReLU(),
                nn.Conv2d(32, 64, 3, 2, 1), nn.Dropout(0.5), nn.ReLU(),
                nn.Flatten(), nn.Linear(64 * 49, n_classes),
            )  # fmt: skip
        x, target = torch.from_numpy(unit), torch.from_numpy(codes.astype(np.int64))
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(epochs):
            for batch in torch.randperm(len(x)).split(128):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x[batch]), target[batch]).backward()
                optimizer.step()
        net.eval()
        with torch.inference_mode():
            return torch.cat([net(part).argmax(1) for part in torch.from_numpy(test).split(2048)]).numpy()


def _feature_map(X, y):
    """Features of the CNN of P3GM's protocol trained on real images: its dense layer of 128."""
    import torch

    from ._image_classifiers import fit_cnn

    net = fit_cnn(X, np.unique(y, return_inverse=True)[1], epochs=1, progress=False)[:6]

    def features(images):
        pixels = torch.from_numpy(np.asarray(images, dtype=np.float32) / 255).reshape(-1, 1, 28, 28)
        with torch.inference_mode():
            return torch.cat([net(part) for part in pixels.split(2048)]).double().numpy()

    return features


def _frechet(features, real, synthetic):
    from skdpgen.metrics import frechet_distance

    return float(frechet_distance(features(real), features(synthetic[: len(real)])))


def draw_grid(drawn, path):
    """Draw ten images a class of each model, one model beside the other."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("the picture needs matplotlib: pip install skdpgen[plot]") from None
    drawing = Figure(figsize=(2.6 * len(drawn), 2.9), layout="constrained")
    for axes, (name, (images, labels)) in zip(np.atleast_1d(drawing.subplots(1, len(drawn))), drawn.items()):
        rows = []
        for k in np.unique(labels)[:10]:
            of_class = np.asarray(images)[np.asarray(labels) == k][:8]
            blank = np.zeros((8 - len(of_class), 784))
            rows.append(np.concatenate([of_class, blank]).reshape(8, 28, 28).transpose(1, 0, 2).reshape(28, -1))
        axes.imshow(np.concatenate(rows), cmap="gray_r", vmin=0, vmax=255)
        axes.set_title(name, fontsize=9)
        axes.axis("off")
    drawing.savefig(path, dpi=110)
