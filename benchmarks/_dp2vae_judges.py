"""DP2-VAE's judges: logistic regression, an MLP and a CNN trained on synthetic images, and a Frechet distance."""

from __future__ import annotations

import numpy as np

from skdpgen.utils.atomic import save_figure

__all__ = ["draw_grid", "feature_map", "frechet", "judge"]

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

    The objective is evaluated by torch, so that it runs wherever the other judges do.
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

    from skdpgen.dpsgd._seeding import torch_seeded

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

    from ._image_classifiers import fit_cnn

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
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("the picture needs matplotlib: pip install skdpgen[plot]") from None
    drawing = Figure(figsize=(2.6 * len(drawn), 3.5), layout="constrained")
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
