"""Images of released Gaussians whose means are shifted by a network that DP-SGD has trained."""

from __future__ import annotations

import itertools

import numpy as np

from ..utils.file_checks import check_size, check_whole
from .gaussians import class_weights
from .layers import apply_layers, layers_of, layers_state
from .leading import CHUNK_ROWS, LeadingDirections

# Rows that are scored at a time.
_SCORED_ROWS = 1024


class ShiftedImages:
    """Images of a `LinearGenerator` or of `RefinedImages`; a network of the widest directions shifts their means.

    Images of a `RefinedImages` are moved to their wavelet features after that.

    `layers`: linear layers with ReLU between them, from latents, and the one-hot Gaussian where `n_labels` says so, to
        what is added to each pixel in [0, 1].
    `n_labels`: number of Gaussians, or 0 for images without classes.
    `noise`: source of the noise of the training, in words, and whether it was private; None once loaded from a file.
    """

    def __init__(self, leading, layers, n_labels, noise=None):
        self.leading, self.layers, self.n_labels, self.noise = leading, layers, n_labels, noise

    @property
    def space(self):
        """Principal components of the released moments."""
        return self.leading.generator.space

    @property
    def mixture(self):
        """The released Gaussians, in that space."""
        return self.leading.generator.mixture

    @property
    def progress(self):
        """Whether `sample` shows a bar, where images are moved; no file has it."""
        return getattr(self.leading.generator, "progress", False)

    @progress.setter
    def progress(self, value):
        self.leading.generator.progress = value

    def sample(self, classes, rng):
        """Draw scaled rows of shape (n_samples, n_features) for rows of given classes."""
        return self.leading.sample(classes, rng, self._shift)[0]

    def _shift(self, latent, k):
        """What the network adds to scaled rows of Gaussian `k`."""
        generator, labels = self.leading.generator, np.zeros((len(latent), self.n_labels), dtype=np.float32)
        labels[:, k : k + 1] = 1.0
        return apply_layers(self.layers, np.hstack([latent, labels])) * generator.box.width

    def score_samples(self, scaled):
        """ELBO of each scaled row under the mixture of the classes, shape (n_samples,).

        Of each class, the Gaussian whose mean is nearest counts alone, so it is a lower bound. The draws are the same
        for all rows: the score of a row is a function of that row alone.
        """
        from ..nn._refinement import image_elbos

        generator, weights = self.leading.generator, self.mixture.weights / self.mixture.weights.sum()
        elbos = image_elbos(self.layers, *self.leading.columns(), self.n_labels)
        n_classes = len(class_weights(weights, generator.per_class))
        x = generator.box.to_unit(np.asarray(scaled, dtype=np.float64))
        scores = np.empty((len(x), n_classes))
        for start in range(0, len(x), _SCORED_ROWS):
            part = slice(start, start + _SCORED_ROWS)
            for c in range(n_classes):
                k = self.leading.nearest(x[part], np.full(len(x[part]), c))
                rows = np.hstack([x[part], self.leading.encode(x[part], k), np.eye(len(weights), self.n_labels)[k]])
                scores[part, c] = elbos(rows) + np.log(np.maximum(weights[k], 1e-300))
        return np.logaddexp.reduce(scores, axis=1)

    def to_state(self):
        """Return arrays for a release file."""
        return {**self.leading.to_state(), "layers": layers_state(self.layers), "n_labels": self.n_labels}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        leading, layers = LeadingDirections.from_state(state), layers_of(state["layers"])
        n_labels = check_whole(state["n_labels"], "n_labels", 0)
        sizes = [leading.n_latent + n_labels, *(len(bias) for _, bias in layers)]
        check_size(max(sizes[1:-1], default=1), CHUNK_ROWS)
        shapes = [(after, before) for before, after in itertools.pairwise(sizes)]
        fits = (
            n_labels in (0, leading.n_components)
            and (n_labels > 0 or leading.n_components == 1)
            and [weight.shape for weight, _ in layers] == shapes
            and sizes[-1] == len(leading.generator.box.low)
        )
        if not fits:
            raise ValueError("the network does not fit the released Gaussians")
        return cls(leading, layers, n_labels)
