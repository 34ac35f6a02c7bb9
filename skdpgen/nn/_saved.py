"""What the saved arrays of a network must be to be loaded into it."""

from __future__ import annotations

import warnings

import numpy as np
import torch

__all__ = ["check_module_arrays"]


def check_module_arrays(make, arrays):
    """Raise ValueError unless the arrays are those of the network that `make` builds: it is built without memory."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers without width
        wanted = {name: tuple(value.shape) for name, value in make().state_dict().items()}
    if wanted != {name: np.shape(array) for name, array in arrays.items()}:
        raise ValueError("the arrays do not fit the network that the file describes")
