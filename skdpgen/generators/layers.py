"""Networks of linear layers as released arrays: their output, and their state in a release file."""

from __future__ import annotations

import numpy as np


def apply_layers(layers, rows):
    """Output of linear layers with ReLU between them."""
    for k, (weight, bias) in enumerate(layers):
        rows = (np.maximum(rows, 0.0) if k else rows) @ weight.T + bias
    return rows


def layers_state(layers):
    """Weights and biases by the number of their layer, for a release file."""
    return {str(i): {"weight": weight, "bias": bias} for i, (weight, bias) in enumerate(layers)}


def layers_of(state):
    """List of (weight, bias) from `layers_state`."""
    return [(layer["weight"], layer["bias"]) for _, layer in sorted(state.items(), key=lambda item: int(item[0]))]
