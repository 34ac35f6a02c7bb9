"""Sources of the rows of a table: memory, chunks, Parquet files or a dask cluster. Sums are computed there."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ..exceptions import InvalidInputError, SchemaError
from ..tabular._frames import column_difference
from ..utils.foreign_tables import is_foreign_table, to_pandas
from ..utils.numerics import usual_numerics
from ..utils.table_checks import check_row_count, is_of_dask, without_cells

# Rows that are encoded at a time; this bounds the memory of a fit.
CHUNK_ROWS = 1 << 18
# Key of `DataFrame.attrs` for the columns whose kind `read_table` took from their values.
KINDS_FROM_VALUES = "kinds_from_values"
# Key of `DataFrame.attrs` for the facts that a reader of files takes for public; they go onto the privacy card.
PUBLIC_ASSUMPTIONS = "public_assumptions"
# Partitions of dask of which one column is fetched at a time.
_COLUMN_PARTS = 16
# Suffixes of Parquet files.
PARQUET = (".parquet", ".pq")
_ONE_READER = (
    "the function of chunks must return a new iterable at each call, of the same rows, and not go on with one reader: "
    "open the file within the function, such as lambda: pandas.read_csv(path, chunksize=100_000)"
)
_NO_ROWS = "Found array with 0 sample(s): no chunk has a row"  # the message of scikit-learn


def open_source(X):
    """Return the source of a table, or None if `X` is no table.

    `X`: DataFrame; list or tuple of DataFrames, or a function that returns a new iterable of them at each call; path
        (or list of paths) of Parquet files; dask DataFrame. Anything else, such as an array, gives None.
    Raises InvalidInputError: `X` is an iterator, or holds one, which can be read only once.
    """
    if isinstance(X, pd.DataFrame):
        return MemorySource(X)
    if is_of_dask(X):
        return DaskSource(X)
    if _is_path(X):
        return ChunkSource(functools.partial(parquet_chunks, [X]))
    if isinstance(X, Iterator) or (isinstance(X, list | tuple) and any(_is_read_once(part) for part in X)):
        raise InvalidInputError(
            "X is an iterator, or holds one, which can be read only once, and a fit reads chunks several times: give a "
            "function that returns a new one at each call, such as lambda: pandas.read_csv(path, chunksize=100_000)"
        )
    if isinstance(X, list | tuple) and X and (isinstance(X[0], pd.DataFrame) or is_foreign_table(X[0])):
        return ChunkSource(lambda: X)
    if isinstance(X, list | tuple) and X and all(map(_is_path, X)):
        return ChunkSource(functools.partial(parquet_chunks, X))
    if callable(X) and not hasattr(X, "__array__"):
        return ChunkSource(X)
    return None


def _is_read_once(part):
    """Whether a chunk is a reader of rows, such as a RecordBatchReader of pyarrow."""
    return isinstance(part, Iterator) and is_foreign_table(part)


def _is_path(X):
    return isinstance(X, Path) or (isinstance(X, str) and X.lower().endswith(PARQUET))


def is_table_path(X):
    """Return whether `X` is the path of a Parquet file, or several of them, or a path of any file as an object."""
    return _is_path(X) or (isinstance(X, list | tuple) and bool(X) and all(map(_is_path, X)))


def is_parquet(path):
    """Return whether a file is Parquet, by its suffix."""
    return Path(path).suffix.lower() in PARQUET


def add_sums(one, other):
    """Add two bounded sums of one query over disjoint rows."""
    return replace(one, value=one.value + other.value)


class _Source:
    """What all sources share."""

    def inspect(self, function, combine):
        """As `reduce`, for validation before the charge."""
        return self.reduce(function, combine)

    @staticmethod
    def whole(total):
        """Return what `reduce` found; InvalidInputError where there was no row."""
        if total is None:
            raise InvalidInputError(_NO_ROWS)
        return total


class MemorySource(_Source):
    """A DataFrame in memory, read in slices."""

    in_memory = True
    kinds_of = None  # a frame has one dtype for each column

    def __init__(self, frame):
        self.frame = frame
        check_row_count(len(frame))

    @property
    def one_slice(self):
        """Whether `reduce` sees all rows at once."""
        return len(self.frame) <= CHUNK_ROWS

    @property
    def head(self):
        """The frame without rows: names and dtypes."""
        return self.frame.iloc[:0]

    @property
    def attrs(self):
        """Notes of the reader of a file."""
        return self.frame.attrs

    def without(self, names):
        """Return the source without these columns."""
        return MemorySource(self.frame.drop(columns=names))

    def reduce(self, function, combine):
        """Apply `function` to every chunk of rows, and `combine` the results two by two."""
        parts = (self.frame.iloc[at : at + CHUNK_ROWS] for at in range(0, max(len(self.frame), 1), CHUNK_ROWS))
        return functools.reduce(combine, map(function, parts))


class ChunkSource(_Source):
    """DataFrames that are read one after another; one of them is in memory at a time.

    `make_chunks`: returns an iterable of DataFrames with the same columns; the same rows at each call.
    """

    in_memory = False
    one_slice = False
    kinds_of = "the first chunk"
    _left_out = ()

    def __init__(self, make_chunks):
        self._make_chunks = make_chunks
        chunks, again = self._open(), self._open()
        _close(chunks)
        _close(again)
        if isinstance(chunks, Iterator) and again is chunks:
            raise InvalidInputError(_ONE_READER)  # the second pass would find this only after the charge
        del chunks, again
        first = self._first()
        if first is None:
            raise InvalidInputError(_NO_ROWS)
        self.head, self.attrs, self._beginning = first.iloc[:0], dict(first.attrs), _beginning_of(first)
        del first
        self.check_beginning()

    def without(self, names):
        """Return the source without these columns."""
        other = copy.copy(self)
        other._left_out, other.head = [*self._left_out, *names], self.head.drop(columns=names)
        return other

    def _open(self):
        with without_cells("the function of chunks", "call it and read its chunks"):
            return self._make_chunks()

    def _first(self):
        """The first chunk of a new pass, with all columns, or None."""
        with contextlib.closing(self._all_chunks()) as chunks:
            return next(chunks, None)

    def check_beginning(self):
        """Refuse a function whose next pass begins otherwise: one reader that it goes on with, behind another object.

        Compared are the shape, the columns and, where it counts rows, the index: rows may come in any order.
        """
        if self._reads_files:
            return
        first = self._first()
        if first is None or _beginning_of(first) != self._beginning:
            raise InvalidInputError(_ONE_READER)

    @property
    def _reads_files(self):
        make = self._make_chunks
        return isinstance(make, functools.partial) and make.func is parquet_chunks

    def inspect(self, function, combine):
        """As `reduce`, for validation before the charge; then nothing may be left in a reader that can be read once."""
        total = self.reduce(function, combine)
        self.check_beginning()
        return total

    def _chunks(self):
        for chunk in self._all_chunks():
            yield chunk.drop(columns=self._left_out, errors="ignore") if self._left_out else chunk

    def _all_chunks(self):
        chunks = self._open()
        if isinstance(chunks, pd.DataFrame) or (is_foreign_table(chunks) and not isinstance(chunks, Iterator)):
            chunks = (chunks,)
        if not isinstance(chunks, Iterable):
            raise InvalidInputError(f"the chunks of X must be an iterable of DataFrames; got {type(chunks).__name__}")
        end = object()
        try:
            reader = iter(chunks)
            while True:
                with without_cells("the function of chunks", "call it and read its chunks"):
                    chunk = next(reader, end)
                if chunk is end:
                    return
                if not isinstance(chunk := to_pandas(chunk), pd.DataFrame):
                    raise InvalidInputError(f"every chunk must be a DataFrame; got {type(chunk).__name__}")
                yield chunk
        finally:
            _close(chunks)

    def reduce(self, function, combine):
        """Apply `function` to every chunk of rows, and `combine` the results two by two."""
        total = None
        for chunk in self.checked_chunks():
            for at in range(0, len(chunk), CHUNK_ROWS):
                part = function(chunk.iloc[at : at + CHUNK_ROWS])
                total = part if total is None else combine(total, part)
        return self.whole(total)

    def reduce_with(self, values, lengths, function, combine):
        """Apply ``function(part, values of its rows, place of its first row)`` to every part, and `combine` as ever.

        `values`: shape (n_rows,). `lengths`: rows of each part of `column`. `function`, `combine`: `function` must
        itself compare the number of rows of its part with that of the values.
        """
        total, start = None, 0
        for chunk in self.checked_chunks():
            part = function(chunk, values[start : start + len(chunk)], start)
            total, start = part if total is None else combine(total, part), start + len(chunk)
        return self.whole(total)

    def column(self, name):
        """Yield the values of one column, in parts of any length; of Parquet files nothing else is read."""
        if self._reads_files and name not in self._left_out:
            for chunk in parquet_chunks(self._make_chunks.args[0], only=[name]):
                yield chunk[name]
            return
        for chunk in self.checked_chunks():
            yield chunk[name]

    def checked_chunks(self):
        """Yield the chunks; SchemaError for one with other columns than the first."""
        for number, chunk in enumerate(self._chunks()):
            if list(chunk.columns) != list(self.head.columns):
                difference = column_difference(list(chunk.columns), list(self.head.columns))
                raise SchemaError(
                    f"chunk {number} has other columns than the first one: {difference or 'the same in another order'}"
                )
            yield chunk


class DaskSource(_Source):
    """A dask DataFrame: each worker sums its partitions, and only the sums are transferred."""

    in_memory = False
    one_slice = False
    kinds_of = "dask's description of the table"

    def __init__(self, frame):
        if not hasattr(frame, "to_delayed") or not isinstance(getattr(frame, "_meta", None), pd.DataFrame):
            raise InvalidInputError(f"expected a dask DataFrame; got dask's {type(frame).__name__}")
        self._frame = frame
        self.head, self.attrs = frame._meta.iloc[:0], {}

    def without(self, names):
        """Return the source without these columns."""
        return DaskSource(self._frame.drop(columns=names))

    def reduce(self, function, combine):
        """Apply `function` to every partition, and `combine` the results two by two, in a tree."""
        return self._reduce(function, combine, ())

    def reduce_with(self, values, lengths, function, combine):
        """As that of `ChunkSource`: each worker gets the values of its rows."""
        starts = [0, *itertools.accumulate(lengths)]
        return self._reduce(
            function, combine, [(values[start:end], start) for start, end in itertools.pairwise(starts)]
        )

    def column(self, name):
        """Yield the values of one column, a partition at a time: they come from the workers to this process."""
        import dask

        # of the partitions that `reduce` has: of one column alone dask may join partitions
        parts = [dask.delayed(operator.itemgetter(name))(part) for part in self._frame.to_delayed()]
        for at in range(0, len(parts), _COLUMN_PARTS):
            with without_cells("the dask DataFrame", "compute it"):
                found = dask.compute(*parts[at : at + _COLUMN_PARTS])
            yield from found

    def _reduce(self, function, combine, more):
        import dask

        lazy = dask.delayed(functools.partial(_of_part, function))
        merge = dask.delayed(functools.partial(_both, combine))
        parts = self._frame.to_delayed()
        more = more or [()] * len(parts)
        parts = [lazy(part, *given) for part, given in zip(parts, more, strict=True)]
        while len(parts) > 1:
            parts = [merge(*parts[at : at + 2]) if at + 1 < len(parts) else parts[at] for at in range(0, len(parts), 2)]
        with without_cells("the dask DataFrame", "compute it"):
            total = dask.compute(parts[0])[0]
        return self.whole(total)


def _beginning_of(chunk):
    """What the first chunks of two passes have in common: the shape, the columns and an index that counts rows."""
    index = chunk.index
    counted = (index.start, index.stop, index.step) if isinstance(index, pd.RangeIndex) else None
    return chunk.shape, list(chunk.columns), counted


def _close(chunks):
    """Close the file of a reader of chunks, if it has one."""
    if isinstance(chunks, Iterator) and callable(close := getattr(chunks, "close", None)):
        close()


# Both run in a worker, which may have another state of numpy than the process that fits.
def _of_part(function, part, *more):
    with usual_numerics():
        return function(part, *more) if len(part) else None


def _both(combine, one, other):
    with usual_numerics():
        return one if other is None else other if one is None else combine(one, other)


def parquet_chunks(paths, left_out=(), only=None):
    """Yield the rows of Parquet files as frames of at most `CHUNK_ROWS` rows, without the columns `left_out`.

    With `only` these columns alone are read.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise InvalidInputError("reading Parquet files needs pyarrow: pip install pyarrow") from None
    for path in paths:
        if not is_parquet(path):
            raise InvalidInputError(
                f"{path}: only Parquet files are read in chunks; read a CSV file by pandas.read_csv(path), or give a "
                "function that returns chunks, such as lambda: pandas.read_csv(path, chunksize=100_000)"
            )
        if not Path(path).is_file():
            raise InvalidInputError(f"{path}: no such file")
        try:
            with parquet.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=CHUNK_ROWS, columns=only):
                    yield batch.to_pandas(types_mapper=_nullable).drop(columns=list(left_out))
        except (OSError, MemoryError):
            raise
        except Exception:  # of Arrow or pandas, whose message may be a cell
            raise InvalidInputError(f"{path}: cannot be read as Parquet, or holds text that is not UTF-8") from None


def arrow_dtype(kind):
    """Dtype of an Arrow type of which pandas would make objects, or another unit; None for other types."""
    return pd.ArrowDtype(kind) if str(kind).startswith(("decimal", "date", "time32", "time64", "duration")) else None


def _nullable(kind):
    """Dtype of an Arrow type that can hold missing values, whether a chunk has any or not."""
    if (dtype := arrow_dtype(kind)) is not None:
        return dtype
    name = str(kind)
    if name in ("bool", "float", "double", "string", "large_string"):
        names = {"bool": "boolean", "float": "Float32", "double": "Float64"}
        return pd.api.types.pandas_dtype(names.get(name, "string"))
    if name.removeprefix("u").startswith("int"):
        return pd.api.types.pandas_dtype(name.replace("int", "Int").replace("uI", "UI"))
    return None
