"""Real data sets with the public facts about their columns, as Bunches (never generated, never private)."""

from __future__ import annotations

from ._images import load_fashion_mnist, load_mnist
from ._small import load_breast_cancer_table, load_digits_table, make_pinwheel
from ._tables import load_adult, load_creditcard_subset, load_esr, load_isolet

__all__ = [
    "load_adult",
    "load_breast_cancer_table",
    "load_creditcard_subset",
    "load_digits_table",
    "load_esr",
    "load_fashion_mnist",
    "load_isolet",
    "load_mnist",
    "make_pinwheel",
]
