"""For tests: repeatable noise (such fits are marked not private), and proof that a fit reads nothing uncharged."""

from __future__ import annotations

from ._noninterference import check_noninterference
from ._seeded import seeded_noise

__all__ = ["check_noninterference", "seeded_noise"]
