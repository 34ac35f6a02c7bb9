"""Benchmarks: tables and figures of the papers, run from a checkout. `BENCHMARKS` names them; see README.md."""

from __future__ import annotations

from .registry import BENCHMARKS, Benchmark
from .runner import run_benchmark

__all__ = ["BENCHMARKS", "Benchmark", "run_benchmark"]
