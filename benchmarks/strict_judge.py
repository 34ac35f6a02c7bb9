"""A small residual network as the judge of synthetic images, and distances in its features."""

from __future__ import annotations

import sys

import numpy as np
from tqdm import tqdm

from .images import IMAGE_SHAPE, pixels_of, torch_seeded

__all__ = ["feature_figures", "fit_resnet", "resnet_features"]

# Channels and residual blocks of each stage; the first stage halves the sides too, so that two cores can train it.
_STAGES = ((16, 2), (32, 2), (64, 4))
# Images of each kind that are compared in its features, and those whose neighbours are looked for.
_COMPARED, _NEIGHBOURS = 10_000, 2_000


def fit_resnet(
    images,
    labels,
    *,
    n_classes=10,
    image_shape=IMAGE_SHAPE,
    epochs=6,
    batch_size=256,
    learning_rate=2e-3,
    random_state=0,
    progress=True,
    device="cpu",
):
    """Train a residual network of 0.3 million parameters for a fixed number of epochs.

    Eight residual blocks of two convolutions with batch normalisation; AdamW with one cycle of its rate; no
    augmentation. Nothing is chosen or stopped on any data: the parameters are those after the last step.

    Parameters
    ----------
    images, labels, n_classes, image_shape, epochs, batch_size, learning_rate, random_state, progress, device
        As for `benchmarks.images.fit_cnn`; the rate is the largest of the cycle.

    Returns
    -------
    torch.nn.Module
        The trained net, in evaluation mode; pass it to `benchmarks.images.predict_cnn`.

    References
    ----------
    He, Zhang, Ren, Sun, "Deep residual learning for image recognition", CVPR 2016.
    """
    import torch
    from torch import nn

    pixels = pixels_of(images, image_shape, device)
    target = torch.as_tensor(np.asarray(labels, dtype=np.int64), device=device)
    with torch_seeded(random_state, device):
        net = _resnet(n_classes).to(device=device, memory_format=torch.channels_last)
        n_batches = -(-len(target) // batch_size)
        optimizer = torch.optim.AdamW(net.parameters(), lr=learning_rate, weight_decay=1e-3)
        rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=epochs * n_batches)
        bar = {"desc": "ResNet", "unit": "step", "file": sys.stderr, "disable": not progress, "leave": False}
        with tqdm(total=epochs * n_batches, **bar) as steps:
            for _ in range(epochs):
                # parts of equal size: batch normalisation of a last part of one image would have no variance
                for batch in torch.randperm(len(target), device=device).tensor_split(n_batches):
                    optimizer.zero_grad(set_to_none=True)
                    nn.functional.cross_entropy(net(pixels[batch]), target[batch]).backward()
                    optimizer.step()
                    rate.step()
                    steps.update()
    return net.eval()


def resnet_features(net, *, image_shape=IMAGE_SHAPE, batch_size=2048):
    """Return the function from images to what the last layer of a `fit_resnet` net sees, shape (n_images, 64)."""
    import torch

    device = next(net.parameters()).device

    def features(images):
        with torch.inference_mode():
            parts = pixels_of(images, image_shape, device).split(batch_size)
            return torch.cat([net[:-1](part) for part in parts]).double().cpu().numpy()

    return features


def feature_figures(features, images, training, test, *, random_state=0):
    """Compare synthetic images with real ones in the features of a fixed network.

    Parameters
    ----------
    features : callable
        As `resnet_features` returns it, of a net that was trained on real images.
    images : array of shape (n_images, n_pixels)
        Synthetic ones.
    training, test : arrays of shape (n_images, n_pixels)
        Real images that the model was fitted on, and others of the same distribution.
    random_state : int, default=0
        Draws the images that are compared, where there are more than 10,000 (2,000 for neighbours).

    Returns
    -------
    dict
        frechet: Frechet distance to the test images. precision, recall: shares of synthetic images inside the sample of
        test images, and the reverse. nearer_to_training: share of synthetic images whose nearest real image is one of
        the training images, of as many as there are test images; about .5 unless training images are copied.
    """
    from sklearn.neighbors import NearestNeighbors

    from skdpgen.metrics import frechet_distance, prdc

    rng = np.random.default_rng(random_state)
    n = min(_COMPARED, len(images), len(training), len(test))
    synthetic, fitted, held_out = (
        features(rows[np.sort(rng.permutation(len(rows))[:n])]) for rows in (np.asarray(images), training, test)
    )
    few = slice(_NEIGHBOURS)
    inside = prdc(held_out[few], synthetic[few])
    gaps = [NearestNeighbors(n_neighbors=1).fit(real).kneighbors(synthetic[few])[0] for real in (fitted, held_out)]
    return {
        "frechet": frechet_distance(held_out, synthetic),
        "precision": inside.precision,
        "recall": inside.recall,
        "nearer_to_training": float(np.mean(gaps[0] < gaps[1])),
    }


def _resnet(n_classes):
    from torch import nn

    channels = _STAGES[0][0]
    parts = [nn.Conv2d(1, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
    for width, n_blocks in _STAGES:
        for block in range(n_blocks):
            parts.append(_block()(channels, width, 2 if block == 0 else 1))
            channels = width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, n_classes))


def _block():
    """The class of a residual block; torch is loaded where it is used."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, n_in, n_out, stride):
            super().__init__()
            self.way = nn.Sequential(
                nn.Conv2d(n_in, n_out, 3, stride, padding=1, bias=False),
                nn.BatchNorm2d(n_out),
                nn.ReLU(),
                nn.Conv2d(n_out, n_out, 3, padding=1, bias=False),
                nn.BatchNorm2d(n_out),
            )
            short = [nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out)]
            self.short = nn.Identity() if (n_in, stride) == (n_out, 1) else nn.Sequential(*short)

        def forward(self, x):
            return nn.functional.relu(self.way(x) + self.short(x))

    return Block
