"""Tables: the public schema, DataFrame to matrix and back, and bounds, categories and bins learned under privacy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..utils.lazy import lazy_names
from ._columns import Boolean, Categorical, Datetime, Identifier, Numeric
from ._frames import validate_frame
from ._schema import Schema

# Imported on first use: a schema, and a file that is read by one, need neither scikit-learn nor the mechanisms.
_HOMES = {
    "Binning": "_binning",
    "Block": "_encoder",
    "SchemaHistogram": "_schema_cells",
    "TableEncoder": "_encoder",
    "bins_from_histogram": "_binning",
    "bins_histogram": "_binning",
    "sample_levels": "_encoder",
    "schema_from_histogram": "_learning",
    "schema_histogram": "_schema_cells",
}

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

if TYPE_CHECKING:  # type checkers and editors do not follow names that are imported on first use
    from ._binning import Binning as Binning
    from ._binning import bins_from_histogram as bins_from_histogram
    from ._binning import bins_histogram as bins_histogram
    from ._encoder import Block as Block
    from ._encoder import TableEncoder as TableEncoder
    from ._encoder import sample_levels as sample_levels
    from ._learning import schema_from_histogram as schema_from_histogram
    from ._schema_cells import SchemaHistogram as SchemaHistogram
    from ._schema_cells import schema_histogram as schema_histogram

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
