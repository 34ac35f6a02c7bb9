"""Tables: the public schema, DataFrame to matrix and back, and what a schema lacks learned under privacy."""

from __future__ import annotations

from .binning import Binning
from .blocks import Block, sample_levels
from .columns import Boolean, Categorical, Datetime, Numeric
from .encoder import TableEncoder
from .frames import validate_frame
from .learning import (
    SchemaHistogram,
    bins_from_histogram,
    bins_histogram,
    schema_from_histogram,
    schema_histogram,
)
from .schema import Schema

__all__ = [
    "Binning",
    "Block",
    "Boolean",
    "Categorical",
    "Datetime",
    "Numeric",
    "Schema",
    "SchemaHistogram",
    "TableEncoder",
    "bins_from_histogram",
    "bins_histogram",
    "sample_levels",
    "schema_from_histogram",
    "schema_histogram",
    "validate_frame",
]
