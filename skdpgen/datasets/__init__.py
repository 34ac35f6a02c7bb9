"""Real data sets with the public facts about their columns, as Bunches (never generated, never private)."""

from __future__ import annotations

from ._images import load_fashion_mnist, load_mnist
from ._shipped import load_breast_cancer_table, load_digits_table
from ._tables import load_adult

__all__ = [
    "load_adult",
    "load_breast_cancer_table",
    "load_digits_table",
    "load_fashion_mnist",
    "load_mnist",
]
