"""P3GM's judge of synthetic images: a small convolutional net, trained on synthetic images, tested on real ones."""

from __future__ import annotations

import sys

import numpy as np
from tqdm import tqdm

__all__ = ["IMAGE_SHAPE", "cnn_accuracy", "fit_cnn", "predict_cnn"]

IMAGE_SHAPE = (28, 28)


def fit_cnn(
    images,
    labels,
    *,
    n_classes=10,
    image_shape=IMAGE_SHAPE,
    epochs=10,
    batch_size=256,
    learning_rate=1e-3,
    random_state=0,
    progress=True,
    device="cpu",
):
    """Train the convolutional net of P3GM's image protocol for a fixed number of epochs.

    One convolution of 28 kernels (3, 3), max-pooling (2, 2), dense 128 and `n_classes`, ReLU,
    dropout .5 after the first dense layer, Adam. Nothing is chosen or stopped on any data.

    Parameters
    ----------
    images : array of shape (n_images, n_pixels)
        Pixels in [0, 255].
    labels : array of shape (n_images,)
        Class codes 0 to ``n_classes - 1``.
    n_classes : int, default=10
        Outputs of the last layer.
    image_shape : (int, int), default=(28, 28)
        Height and width of one image.
    epochs, batch_size, learning_rate : int, int, float
        Passes over `images`, images a step, Adam's rate.
    random_state : int, default=0
        Seed of the initial weights, the order of the images and the dropout.
    progress : bool, default=True
        Whether to draw a bar of steps on stderr.
    device : str, default="cpu"
        Where torch computes.

    Returns
    -------
    torch.nn.Sequential
        The trained net, in evaluation mode; pass it to `predict_cnn`.

    References
    ----------
    Takagi, Takahashi, Cao, Yoshikawa, "P3GM: Private High-Dimensional Data Release via Privacy Preserving
    Phased Generative Model", ICDE 2021, section VI-C.
    """
    import torch
    from torch import nn

    from skdpgen.dpsgd._seeding import torch_seeded

    pixels = _to_tensor(images, image_shape, device)
    target = torch.as_tensor(np.asarray(labels, dtype=np.int64), device=device)
    with torch_seeded(random_state, device):
        flat = 28 * ((image_shape[0] - 2) // 2) * ((image_shape[1] - 2) // 2)
        net = nn.Sequential(
            nn.Conv2d(1, 28, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),  # equal to ReLU before the pooling, on a quarter of the values
            nn.Flatten(),
            nn.Linear(flat, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, n_classes),
        ).to(device=device, memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(net.parameters(), lr=learning_rate, fused=True)
        steps = tqdm(
            total=epochs * -(-len(target) // batch_size),
            desc="CNN",
            unit="step",
            file=sys.stderr,
            disable=not progress,
            leave=False,
        )
        with steps:
            for _ in range(epochs):
                for batch in torch.randperm(len(target), device=device).split(batch_size):
                    optimizer.zero_grad(set_to_none=True)
                    loss = nn.functional.cross_entropy(net(pixels[batch]), target[batch])
                    loss.backward()
                    optimizer.step()
                    steps.update()
    return net.eval()


def predict_cnn(net, images, *, image_shape=IMAGE_SHAPE, batch_size=2048):
    """Class codes a net of `fit_cnn` gives to `images`.

    Parameters
    ----------
    net : torch.nn.Module
        As `fit_cnn` returned it.
    images : array of shape (n_images, n_pixels)
        Pixels in [0, 255].
    image_shape : (int, int), default=(28, 28)
        Height and width of one image.
    batch_size : int, default=2048
        Images a forward pass.

    Returns
    -------
    array of shape (n_images,)
        Class codes.
    """
    import torch

    device = next(net.parameters()).device
    with torch.inference_mode():
        pixels = _to_tensor(images, image_shape, device)
        return torch.cat([net(part).argmax(1) for part in pixels.split(batch_size)]).cpu().numpy()


def cnn_accuracy(images, labels, images_test, labels_test, **options):
    """Accuracy on the test images of the net trained on the others by `fit_cnn`.

    Parameters
    ----------
    images, images_test : arrays of shape (n_images, n_pixels)
        Pixels in [0, 255].
    labels, labels_test : arrays of shape (n_images,)
        Classes, compared by value; a class that `labels` lacks is counted as an error.
    **options
        Passed to `fit_cnn`.

    Returns
    -------
    float
        Share of the test images that get their own class.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    net = fit_cnn(images, codes, n_classes=len(classes), **options)
    shape = options.get("image_shape", IMAGE_SHAPE)
    predicted = classes[predict_cnn(net, images_test, image_shape=shape)]
    return float(np.mean(predicted == np.asarray(labels_test)))


def _to_tensor(images, image_shape, device):
    """Images as a float tensor (n, 1, height, width) in [0, 1], laid out channels last."""
    import torch

    array = np.asarray(images, dtype=np.float32)
    if array.ndim != 2 or array.shape[1] != image_shape[0] * image_shape[1]:
        raise ValueError(f"images of {image_shape[0]} x {image_shape[1]} pixels expected; got shape {array.shape}")
    tensor = torch.from_numpy(array / np.float32(255)).reshape(-1, 1, *image_shape)
    return tensor.to(device=device, memory_format=torch.channels_last)
