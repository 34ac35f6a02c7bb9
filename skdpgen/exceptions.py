"""Errors and warnings of the package, in one place."""

from __future__ import annotations

__all__ = [
    "BenchmarkError",
    "BudgetExceededError",
    "DetachedAccountantError",
    "InvalidInputError",
    "LedgerError",
    "PrivacyLeakWarning",
    "SchemaError",
    "UtilityWarning",
]


class BudgetExceededError(ValueError):
    """A charge would take the accountant over its budget; nothing was charged."""


class BenchmarkError(RuntimeError):
    """Cells of a benchmark failed, or its figure; the others were run, and `results` holds what they gave."""

    def __init__(self, message, results=()):
        super().__init__(message)
        self.results = results


class DetachedAccountantError(RuntimeError):
    """An accountant that was unpickled, loaded or forked without a ledger file cannot be charged."""


class LedgerError(RuntimeError):
    """A ledger file cannot be read or written, is damaged, or was changed."""


class InvalidInputError(ValueError):
    """The data do not have the shape, dtype or values that a fit accepts; nothing was charged."""


class SchemaError(InvalidInputError):
    """A schema contradicts itself, or a frame contradicts its schema; nothing was charged."""


class PrivacyLeakWarning(UserWarning):
    """The call would reveal private values outside the guarantee."""


class UtilityWarning(UserWarning):
    """The noise is large compared with the signal; the warning depends on released values alone."""
