"""Tables: the public schema, DataFrame to matrix and back, and bounds, categories and bins learned under privacy."""

from __future__ import annotations

from ._binning import Binning
from ._columns import Boolean, Categorical, Datetime, Identifier, Numeric
from ._encoder import Block, TableEncoder, sample_levels
from ._frames import validate_frame
from ._learning import SchemaHistogram, bins_from_histogram, bins_histogram, schema_from_histogram, schema_histogram
from ._schema import Schema

__all__ = [
    "Binning",
    "Block",
    "Boolean",
    "Categorical",
    "Datetime",
    "Identifier",
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
