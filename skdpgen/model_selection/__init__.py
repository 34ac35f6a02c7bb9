"""Choice of hyper-parameters under a privacy budget."""

from __future__ import annotations

from ._dummy import dummy_rows, rows_like
from ._private_search import PrivateSearchCV

__all__ = ["PrivateSearchCV", "dummy_rows", "rows_like"]
