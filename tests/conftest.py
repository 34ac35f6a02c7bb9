"""Put the helpers beside this file (`_claims.py`) on the path of every test."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng():
    """Random data for a test: never numpy's global generator."""
    return np.random.default_rng(20240917)
