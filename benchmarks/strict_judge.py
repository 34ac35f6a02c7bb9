"""A small residual network as the judge of synthetic images, with a public fixed schedule."""

from __future__ import annotations

import sys

import numpy as np
from tqdm import tqdm

from .images import IMAGE_SHAPE, pixels_of, torch_seeded

__all__ = ["fit_resnet"]

# Channels and residual blocks of each stage; the first stage halves the sides too, so that two cores can train it.
_STAGES = ((16, 2), (32, 2), (64, 4))


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
