"""The papers' tables, run through the public API alone; `BENCHMARKS` names them, each in a module of its own."""

from __future__ import annotations

from .registry import BENCHMARKS, Benchmark
from .runner import run_benchmark

__all__ = ["BENCHMARKS", "Benchmark", "run_benchmark"]
