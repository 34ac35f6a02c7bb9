"""Generators of synthetic rows: one estimator a file."""

from __future__ import annotations

from ._model_file import load
from ._p3gm import P3GMSynthesizer
from ._pipeline import sample_pipeline

__all__ = ["P3GMSynthesizer", "load", "sample_pipeline"]
