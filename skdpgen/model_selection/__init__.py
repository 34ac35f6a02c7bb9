"""Choosing hyper-parameters under the same budget as everything else."""

from __future__ import annotations

from ._made_up import made_up_rows, rows_like
from ._private_search import PrivateSearchCV

__all__ = ["PrivateSearchCV", "made_up_rows", "rows_like"]
