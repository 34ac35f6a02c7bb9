"""Conditional generators: networks from latents and one-hot classes to rows of a table, a vector or an image.

A generator never reads a private row: it learns through released gradients alone.
"""

from __future__ import annotations

import torch
from torch import nn

from ._networks import check_module_arrays, coarse_decoder, conv_decoder, mlp

# Temperature of the relaxed levels, whose gradient stands for that of the levels that are drawn.
_TEMPERATURE = 0.66


class ConditionalGenerator(nn.Module):
    """Network from (latent, one-hot class) to values in [0, 1], or to levels of the columns of a table.

    Parameters
    ----------
    n_latent, n_classes, n_outputs : int
        Without classes `n_classes` is 0. `n_outputs` is the number of columns, or of levels of all columns.
    n_hidden : int or sequence of int, default=128
        Widths of the hidden layers (ReLU); without `image_shape`.
    image_shape : tuple of two or three int, default=None
        Rows are images (height, width[, channels]), flat: the network is then a dense layer and convolutions with
        GroupNorm.
    n_channels : int, default=32
        Number of channels of the convolutions.
    coarse : bool, default=False
        Make images of 16 pixels and more on each side at half their sides, and interpolate (`coarse_decoder`). False:
        three transposed convolutions (`conv_decoder`), as in files of earlier versions.
    n_levels : sequence of int, default=None
        Number of levels of each column of a table; None: values in [0, 1].

    Attributes
    ----------
    architecture : dict
        The arguments, as a model file holds them.
    """

    def __init__(
        self,
        n_latent,
        n_classes,
        n_outputs,
        *,
        n_hidden=128,
        image_shape=None,
        n_channels=32,
        n_levels=None,
        coarse=False,
    ):
        super().__init__()
        if not isinstance(coarse, bool):
            raise ValueError(f"coarse must be True or False; got {type(coarse).__name__}")
        self.n_latent, self.n_classes, self.n_outputs = n_latent, n_classes, n_outputs
        self.n_levels = None if n_levels is None else [int(n) for n in n_levels]
        n_in = n_latent + n_classes
        if image_shape is None:
            self.network = mlp(n_in, n_hidden, n_outputs)
        else:
            self.network = (coarse_decoder if coarse else conv_decoder)(tuple(image_shape), n_in, n_channels)
        self.architecture = {
            "n_latent": n_latent,
            "n_classes": n_classes,
            "n_outputs": n_outputs,
            "n_hidden": n_hidden if isinstance(n_hidden, int) else [int(n) for n in n_hidden],
            "image_shape": None if image_shape is None else [int(n) for n in image_shape],
            "n_channels": n_channels,
            "n_levels": self.n_levels,
        }
        if coarse:  # left out if False, so that earlier versions can read such files
            self.architecture["coarse"] = True

    @classmethod
    def restored(cls, architecture, arrays):
        """The generator of a model file; ValueError for arrays that do not fit it."""
        check_module_arrays(lambda: cls(**architecture), arrays)
        generator = cls(**architecture)
        generator.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in arrays.items()})
        return generator.eval()

    def arrays(self):
        """The parameters by name, for a model file."""
        return {name: value.detach().cpu().numpy().copy() for name, value in self.state_dict().items()}

    def logits(self, latent, classes=None):
        """Outputs before the sigmoid, or the softmax of each column, shape (batch, n_outputs)."""
        return self.network(latent if classes is None else torch.cat([latent, classes], dim=1))

    def forward(self, latent, classes=None, uniforms=None):
        """Return rows.

        `latent` (batch, n_latent): standard normals.
        `classes` (batch, n_classes): One-hot.
        `uniforms` (batch, n_outputs): for a table: uniform numbers by which one level of each column is drawn, one-hot,
            with the gradient of the relaxed draw. None: the probabilities of the levels.
        Returns a tensor of shape (batch, n_outputs).

        Reference: E. Jang, S. Gu, B. Poole, "Categorical reparameterization with Gumbel-softmax", ICLR 2017.
        """
        logits = self.logits(latent, classes)
        if self.n_levels is None:
            return torch.sigmoid(logits)
        if uniforms is None:
            return torch.cat([part.softmax(1) for part in logits.split(self.n_levels, dim=1)], dim=1)
        gumbels = -torch.log(-torch.log(uniforms.clamp(1e-7, 1 - 1e-7)))
        drawn = []
        for part in (logits + gumbels).split(self.n_levels, dim=1):
            relaxed = (part / _TEMPERATURE).softmax(1)
            exact = torch.zeros_like(relaxed).scatter_(1, part.argmax(1, keepdim=True), 1.0)
            drawn.append(exact + relaxed - relaxed.detach())
        return torch.cat(drawn, dim=1)

    def draw(self, n, shares, draws, device="cpu"):
        """Return generated rows with their one-hot labels.

        `shares` (n_classes,): of the classes; None draws none. `draws`: on the CPU: draws are the same on every device.
        """
        latent, uniforms = torch.randn(n, self.n_latent, generator=draws).to(device), None
        codes = None if shares is None else torch.multinomial(shares, n, replacement=True, generator=draws)
        labels = one_hot(codes, self.n_classes)
        if labels is not None:
            labels = labels.to(device)
        if self.n_levels is not None:
            uniforms = torch.rand(n, self.n_outputs, generator=draws).to(device)
        rows = self(latent, labels, uniforms)
        return rows if labels is None else torch.cat([rows, labels], dim=1)


class ParameterMeans:
    """Exponential averages of the parameters of a generator in training, which it has at the end.

    `decay`: weight of earlier steps; smaller in the first steps, ``(1 + step) / (10 + step)``.
    """

    def __init__(self, module, decay):
        self.parameters, self.decay = list(module.parameters()), decay
        self._means = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def follow(self, step):
        """Move the averages towards the parameters after a step."""
        torch._foreach_lerp_(self._means, self.parameters, 1 - min(self.decay, (1 + step) / (10 + step)))

    @torch.no_grad()
    def give(self):
        """Let the parameters be their averages, without gradients."""
        for p, mean in zip(self.parameters, self._means):
            p.grad = None
            p.copy_(mean)


def descend(optimizer, loss):
    """Take a step down a loss; its gradients reach the parameters of this optimizer alone."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
        p.grad = gradient
    optimizer.step()


def one_hot(codes, n_classes):
    """One-hot classes, float32, or None without classes; a negative code has no class."""
    if not n_classes:
        return None
    codes = torch.as_tensor(codes, dtype=torch.int64)
    return (codes[:, None] == torch.arange(n_classes)).float()
