"""A mixture of products fitted to released tables, its decoder refined by a network that DP-SGD has trained."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from .layers import apply_layers, layers_of, layers_state
from .product_mixture import TableModel, block_of_level, block_softmax


def refinement_inputs(table):
    """Features and released logits at every support point of a `TableModel`, for the network that refines it.

    Returns `features` (n_classes, n_restarts * n_points, n_latent + n_restarts): the point, and the restart that it
    belongs to; `logits` (n_classes, n_restarts * n_points, n_columns_encoded).
    """
    found = [_inputs(table, k) for k in range(len(table.class_counts))]
    return tuple(np.stack(parts) for parts in zip(*found))


def _inputs(table, k):
    """The same of one class."""
    parts = [_features_and_logits(table, r, z[k]) for r, z in enumerate(table.points)]
    return tuple(np.concatenate(part) for part in zip(*parts))


def _features_and_logits(table, restart, latent):
    """Features and released logits of latents under the decoder of one restart."""
    own = np.broadcast_to(np.eye(len(table.weight), dtype=np.float32)[restart], (len(latent), len(table.weight)))
    logits = latent @ table.weight[restart] + table.bias[restart]
    return np.concatenate([latent, own], axis=1).astype(np.float32), logits.astype(np.float32)


@dataclass(frozen=True, eq=False)
class RefinedTable(TableModel):
    """Released state: a `TableModel`, and a network whose output is added to the logits of its decoder.

    It is a mixture of products like the table model, so rows are drawn, scored and conditioned exactly.
    """

    # list of (weight, bias); linear layers with ReLU between them, from features (see `refinement_inputs`) to changes
    # of logits
    layers: list
    # source of the noise of the training, in words, and whether it was private; None once loaded from a file
    noise: tuple | None = None

    @classmethod
    def of(cls, table, layers, noise):
        """Refine a `TableModel`."""
        return cls(
            **{field.name: getattr(table, field.name) for field in fields(TableModel)}, layers=layers, noise=noise
        )

    def decode(self, latent):
        """Probability of each level, shape (n_samples, n_columns_encoded)."""
        restarts = range(len(self.weight))
        return sum(self._probabilities(*_features_and_logits(self, r, latent)) for r in restarts) / len(restarts)

    def mixture(self, k):
        """Probability of each level at each point of class `k`, shape (n_restarts * n_points, n_columns_encoded)."""
        return self._probabilities(*_inputs(self, k))

    def _probabilities(self, features, logits):
        return block_softmax(logits + apply_layers(self.layers, features), self.offsets, block_of_level(self.n_levels))

    def to_state(self):
        """Return arrays for a release file."""
        state = super().to_state()
        del state["noise"]
        return {**state, "layers": layers_state(self.layers)}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        return super().from_state({**state, "layers": layers_of(state["layers"])})
