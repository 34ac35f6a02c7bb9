"""DataFrames to matrices of one-hot blocks and scaled numbers with a known row norm, and back by sampling."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..exceptions import SchemaError
from ..utils.foreign_tables import to_pandas
from ..utils.printing import shown
from ..utils.validation import as_numbers, validate_rows
from ._binning import Binning
from ._columns import KINDS, Boolean, Categorical, Identifier, bin_decimals
from ._frames import (
    ON_INVALID,
    check_columns,
    column_levels,
    level_codes,
    numeric_bounds,
    numeric_values,
    restore,
)
from ._schema import Schema


@dataclass(frozen=True)
class Block:
    """The columns of the matrix that encode one column of the table.

    Parameters
    ----------
    name : str or int
        Column of the table.
    kind : {"levels", "value"}
        One-hot levels; or one number in [-1, 1], and where values may be missing a flag after it.
    start, stop : int
        Its columns of the matrix.
    levels : tuple
        Of a "levels" block: categories, tuples of categories where they are grouped, or pairs (lowest, highest) of
        bins; then `other` where there is one; then None where values may be missing. Of a "value" block: ("value",)
        or ("value", None).
    """

    name: str | int
    kind: str
    start: int
    stop: int
    levels: tuple

    @property
    def size(self) -> int:
        """Number of columns of the matrix."""
        return self.stop - self.start


def sample_levels(weights, rng):
    """Draw one level for each row from non-negative weights, by inverting the distribution function.

    Parameters
    ----------
    weights : array of shape (n_rows, n_levels)
        Negative and non-finite entries count as 0; a row of zeros is uniform.
    rng : object with ``random(size)``

    Returns
    -------
    array of shape (n_rows,), intp
    """
    weights = np.asarray(weights, dtype=np.float64)
    weights = np.where(np.isfinite(weights) & (weights > 0), weights, 0.0)
    largest = weights.max(axis=1, keepdims=True)
    # scaled by the largest, so that sums neither overflow nor vanish
    weights = np.divide(weights, largest, out=np.ones_like(weights), where=largest > 0)
    cumulative = np.cumsum(weights, axis=1)
    drawn = rng.random(len(weights)) * cumulative[:, -1]
    drawn = np.minimum(drawn, np.nextafter(cumulative[:, -1], 0.0))
    return (cumulative <= drawn[:, None]).sum(axis=1)


def one_hot(codes, sizes, dtype=np.float32):
    """Return the one-hot matrix of level codes, block after block.

    `codes`: shape (n_rows, n_blocks). `sizes`: number of levels of each block. Returns an array of shape (n_rows,
    sum(sizes)).
    """
    codes, offsets = np.asarray(codes), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    matrix = np.zeros((len(codes), offsets[-1]), dtype=dtype)
    matrix[np.arange(len(codes))[:, None], codes + offsets[:-1]] = 1.0
    return matrix


class TableEncoder(TransformerMixin, BaseEstimator):
    """Encode a table as a matrix whose row norm is known in advance, and sample tables back from such matrices.

    Nothing is learned from the rows: the encoding follows from a schema and, for learned bins, from binnings. So `fit`
    costs no privacy, and may be called without rows.

    Parameters
    ----------
    schema : Schema or Numeric (Categorical, Boolean, Datetime), default=None
        Complete schema. A single column describes every column (for arrays); None takes kinds from the dtypes, which
        is enough for bools only.
    numeric : {"bins", "scale"}, default="bins"
        Encoding of numeric and datetime columns: one-hot bins, or values scaled from their bounds to [-1, 1]. A
        missing value is 0 then, with a flag of 1 in a second column.
    binnings : dict of column name -> Binning, default=None
        Bins of numeric columns; other numeric columns get `n_bins` of equal width over their bounds.
    groups : dict of column name -> LevelGroups, default=None
        Groups of levels of columns of many categories, which are encoded by their group.
    n_bins : int, default=16
        Number of bins of columns without a binning.
    on_invalid : {"clip", "raise"}, default="clip"
        Whether values outside declared bounds are clipped or refused.

    Attributes
    ----------
    schema_ : Schema
    binnings_ : dict of column name -> Binning
        Empty for ``numeric="scale"``.
    groups_ : dict of column name -> LevelGroups
    blocks_ : tuple of Block
    n_features_in_ : int
    feature_names_in_ : array of str
        Where all columns have strings as names.

    Examples
    --------
    >>> import pandas as pd
    >>> from skdpgen.tabular import Categorical, Numeric, Schema, TableEncoder
    >>> frame = pd.DataFrame({"age": [20.0, 60.0], "sex": ["Male", "Female"]})
    >>> schema = Schema([Numeric("age", (0, 80)), Categorical("sex", ("Female", "Male"))])
    >>> encoder = TableEncoder(schema, numeric="scale").fit(frame)
    >>> encoder.transform(frame)
    array([[-0.5,  0. ,  1. ],
           [ 0.5,  1. ,  0. ]])
    >>> encoder.inverse_transform(encoder.transform(frame)).equals(frame)
    True
    """

    def __init__(self, schema=None, *, numeric="bins", binnings=None, groups=None, n_bins=16, on_invalid="clip"):
        self.schema = schema
        self.numeric = numeric
        self.binnings = binnings
        self.groups = groups
        self.n_bins = n_bins
        self.on_invalid = on_invalid

    def fit(self, X=None, y=None):
        """Lay out the matrix from the schema.

        **Privacy**: values are only validated; nothing is released and nothing is charged.

        Parameters
        ----------
        X : DataFrame or array of numbers, shape (n_rows, n_columns), default=None
            Checked against the schema. None lays out the matrix of a Schema alone.
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        SchemaError
            The schema is incomplete, or `X` does not fit it.
        """
        self._check_parameters()
        frame = None if X is None else self._as_input(X, reset=True)
        schema = self._resolve_schema(frame)
        if keys := [repr(column.name) for column in schema.columns if isinstance(column, Identifier)]:
            raise SchemaError(f"identifiers are not encoded: leave {', '.join(keys)} out, by schema.select")
        if not schema.complete:
            raise SchemaError(
                f"the schema lacks bounds or categories of {', '.join(map(repr, schema.incomplete))}: declare them, or "
                "learn them with schema_histogram"
            )
        if X is None:
            self.n_features_in_ = len(schema)
            if all(isinstance(name, str) for name in schema.names):
                self.feature_names_in_ = np.array(schema.names, dtype=object)
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        self.schema_ = schema
        self.binnings_ = self._resolve_binnings(schema)
        self.groups_ = self._resolve_groups(schema)
        self.blocks_ = tuple(self._lay_out(schema))
        if frame is not None:
            frame = check_columns(frame, schema)
            for column in schema.columns:
                self._encode(frame, column)
        return self

    def _check_parameters(self):
        if self.numeric not in ("bins", "scale"):
            raise ValueError(f"numeric must be 'bins' or 'scale'; got {shown(self.numeric)}")
        if self.on_invalid not in ON_INVALID:
            raise ValueError(f"on_invalid must be 'clip' or 'raise'; got {shown(self.on_invalid)}")
        if not isinstance(self.n_bins, int | np.integer) or self.n_bins < 1:
            raise ValueError(f"n_bins must be an integer of at least 1; got {shown(self.n_bins)}")
        if self.schema is not None and not isinstance(self.schema, (Schema, *KINDS.values())):
            raise ValueError(
                f"schema must be a Schema (Schema.load reads a file) or a column; got {type(self.schema).__name__}"
            )

    def _as_input(self, X, reset):
        X = to_pandas(X)
        if isinstance(X, pd.DataFrame):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        return validate_rows(self, X, reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")

    def _resolve_schema(self, frame):
        if isinstance(self.schema, Schema):
            return self.schema
        if frame is None:
            raise SchemaError("fit needs a Schema, or a table whose columns it can take")
        if self.schema is None:
            return Schema.from_kinds(frame)
        names = frame.columns if isinstance(frame, pd.DataFrame) else [f"x{i}" for i in range(frame.shape[1])]
        return Schema(tuple(replace(self.schema, name=name) for name in names))

    def _resolve_binnings(self, schema):
        numbers = [c for c in schema.columns if not isinstance(c, Categorical | Boolean)]
        given = self.binnings or {}
        if unknown := [repr(name) for name in given if name not in [c.name for c in numbers]]:
            raise SchemaError(f"binnings of columns that are not numeric in the schema: {', '.join(unknown)}")
        if self.numeric == "scale":
            return {}
        return {c.name: given.get(c.name) or Binning.equal_width(c, self.n_bins) for c in numbers}

    def _resolve_groups(self, schema):
        given = dict(self.groups or {})
        for name, groups in given.items():
            if name not in schema or not isinstance(column := schema[name], Categorical):
                raise SchemaError(f"groups of levels of a column that is not categorical in the schema: {name!r}")
            if len(groups.group) != len(column_levels(column)):
                raise SchemaError(f"groups of {len(groups.group)} levels of {name!r}, which has other levels")
        return given

    def _lay_out(self, schema):
        start = 0
        for column in schema.columns:
            if isinstance(column, Categorical | Boolean):
                kind, levels = "levels", column_levels(column)
                if column.name in self.groups_:
                    levels = self.groups_[column.name].labels(levels)
            else:
                binning = self.binnings_.get(column.name)
                kind, levels = ("value", ("value",)) if binning is None else ("levels", binning.labels)
                levels = (*levels, None) if column.missing else levels
            yield Block(column.name, kind, start, start + len(levels), levels)
            start += len(levels)

    @property
    def row_norm(self) -> float:
        """Bound of the Euclidean norm of a row of any table: the root of the number of blocks."""
        check_is_fitted(self)
        return len(self.blocks_) ** 0.5

    @property
    def n_features_out_(self) -> int:
        """Number of columns of the matrix."""
        return self.blocks_[-1].stop

    @property
    def level_blocks_(self) -> tuple:
        """The one-hot blocks: all of them for ``numeric="bins"``."""
        return tuple(block for block in self.blocks_ if block.kind == "levels")

    @property
    def value_blocks_(self) -> tuple:
        """The blocks of scaled numbers: none for ``numeric="bins"``."""
        return tuple(block for block in self.blocks_ if block.kind == "value")

    def _checked(self, X):
        check_is_fitted(self)
        return check_columns(self._as_input(X, reset=False), self.schema_)

    def _encode(self, frame, column):
        """Return level codes, or values in [-1, 1] with NaN where missing, of one column."""
        series = frame[column.name]
        if isinstance(column, Categorical | Boolean):
            codes = level_codes(series, column)
            return self.groups_[column.name].codes(codes) if column.name in self.groups_ else codes
        values = numeric_values(series, column, self.on_invalid)
        binning = self.binnings_.get(column.name)
        if binning is not None:
            return np.where(np.isnan(values), binning.n_bins, binning.codes(values))
        low, high = numeric_bounds(column)
        return np.clip((values - low) / (high - low) * 2 - 1, -1.0, 1.0)

    def levels_of(self, name):
        """Return the levels of a column of categories as they are without groups."""
        return column_levels(self.schema_[name])

    def codes(self, X):
        """Return the level of each row in each one-hot block.

        Parameters
        ----------
        X : DataFrame or array of numbers, shape (n_rows, n_columns)

        Returns
        -------
        array of shape (n_rows, n_level_blocks), int16 (int32 for blocks of more than 32,767 levels)
            Stored column by column.
        """
        frame = self._checked(X)
        blocks = self.level_blocks_
        widest = max((block.size for block in blocks), default=0)
        codes = np.empty((len(frame), len(blocks)), dtype=np.int16 if widest <= 2**15 - 1 else np.int32, order="F")
        for i, block in enumerate(blocks):
            codes[:, i] = self._encode(frame, self.schema_[block.name])
        return codes

    def transform(self, X):
        """Return the matrix of a table.

        **Privacy**: rows are private values, not released; their norm is at most `row_norm`.

        Parameters
        ----------
        X : DataFrame or array of numbers, shape (n_rows, n_columns)

        Returns
        -------
        array of shape (n_rows, n_features_out), float64

        Raises
        ------
        SchemaError
            The table does not fit the schema.
        """
        frame = self._checked(X)
        rows = np.arange(len(frame))
        matrix = np.zeros((len(frame), self.n_features_out_))
        for block in self.blocks_:
            found = self._encode(frame, self.schema_[block.name])
            if block.kind == "levels":
                matrix[rows, block.start + found] = 1.0
            else:
                absent = np.isnan(found)
                matrix[:, block.start] = np.where(absent, 0.0, found)
                if block.size == 2:
                    matrix[:, block.start + 1] = absent
        return matrix

    def one_hot(self, codes):
        """Return the matrix of level codes, block after block; for chunks of the rows of :meth:`codes`."""
        return one_hot(codes, [block.size for block in self.level_blocks_], np.float64)

    def inverse_transform(self, X, rng=None):
        """Sample a table: levels from their distribution in each row, never the most likely one.

        Parameters
        ----------
        X : array of shape (n_rows, n_features_out)
            Any numbers: negative entries of a block count as 0, the others are normalised; a block of zeros is
            uniform. The flag of a "value" block is the probability that the value is missing.
        rng : numpy Generator or another object with ``random(size)``, default=None
            None draws a fresh one.

        Returns
        -------
        DataFrame of n_rows rows
            Columns, order and dtypes of the schema.
        """
        check_is_fitted(self)
        X = as_numbers(X, "X", "")
        if X.ndim != 2 or X.shape[1] != self.n_features_out_:
            raise ValueError(f"expected a matrix of {self.n_features_out_} columns; got shape {X.shape}")
        rng = np.random.default_rng() if rng is None else rng
        codes = [sample_levels(X[:, block.start : block.stop], rng) for block in self.level_blocks_]
        values = []
        for block in self.value_blocks_:
            value = np.clip(np.nan_to_num(X[:, block.start]), -1.0, 1.0)
            if block.size == 2:
                value = np.where(rng.random(len(X)) < X[:, block.start + 1], np.nan, value)
            values.append(value)
        return self._decode(codes, values, rng, len(X))

    def decode(self, codes, values=None, rng=None):
        """Return the table of level codes and scaled values.

        Parameters
        ----------
        codes : array of int of shape (n_rows, n_level_blocks)
        values : array of shape (n_rows, n_value_blocks), default=None
            In [-1, 1], NaN where missing; needed for ``numeric="scale"`` only.
        rng : numpy Generator or another object with ``random(size)``, default=None
            Draws values inside bins; None draws a fresh one.

        Returns
        -------
        DataFrame of n_rows rows
            Columns, order and dtypes of the schema.
        """
        check_is_fitted(self)
        codes = np.asarray(codes)
        values = np.empty((len(codes), 0)) if values is None else as_numbers(values, "values", "")
        expected = (len(self.level_blocks_), len(self.value_blocks_))
        if codes.ndim != 2 or values.ndim != 2 or (codes.shape[1], values.shape[1]) != expected:
            raise ValueError(f"expected {expected[0]} columns of codes and {expected[1]} of values")
        rng = np.random.default_rng() if rng is None else rng
        return self._decode(codes.T, values.T, rng, len(codes))

    def _decode(self, codes, values, rng, n_rows):
        codes, values = iter(codes), iter(values)
        columns = {}
        for block in self.blocks_:
            column = self.schema_[block.name]
            binning = self.binnings_.get(block.name)
            if block.kind == "value":
                low, high = numeric_bounds(column)
                decoded = low + (next(values) + 1) / 2 * (high - low)
            elif block.name in self.groups_:
                decoded = self.groups_[block.name].sample(next(codes), rng)
            elif binning is None:
                decoded = next(codes)
            else:
                found = np.asarray(next(codes))
                absent = found >= binning.n_bins
                decoded = np.where(absent, np.nan, binning.sample(np.where(absent, 0, found), rng))
            columns[block.name] = restore(decoded, column, None if binning is None else bin_decimals(column))
        return pd.DataFrame(columns, index=pd.RangeIndex(n_rows))

    def get_feature_names_out(self, input_features=None):
        """Return names of the columns of the matrix: "column" for a number, "column=level" else."""
        check_is_fitted(self)
        if input_features is not None and list(input_features) != list(self.schema_.names):
            raise ValueError("input_features is not equal to the columns of the schema")
        names = []
        for block in self.blocks_:
            for level in block.levels:
                label = "missing" if level is None else level
                if isinstance(level, tuple):
                    binned = block.name in self.binnings_
                    label = f"[{level[0]}, {level[1]}]" if binned else f"{{{', '.join(map(str, level))}}}"
                names.append(
                    f"{block.name}" if block.kind == "value" and level is not None else f"{block.name}={label}"
                )
        return np.array(names, dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        columns = self.schema.columns if isinstance(self.schema, Schema) else (self.schema,)
        tags.input_tags.allow_nan = any(getattr(column, "missing", False) for column in columns)
        tags.input_tags.string = tags.input_tags.categorical = isinstance(self.schema, Schema)
        tags.requires_fit = True
        return tags
