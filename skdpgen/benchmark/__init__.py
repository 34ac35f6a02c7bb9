"""The papers' tables, run through the public API alone."""

from __future__ import annotations

from .adult import adult_benchmark
from .images import image_benchmark
from .runner import run_benchmark

__all__ = ["adult_benchmark", "image_benchmark", "run_benchmark"]
