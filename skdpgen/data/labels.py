"""Class labels: validated, encoded while a fit lasts, learned under privacy; the released classes decode them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..exceptions import InvalidInputError
from ..mechanisms import histogram, release_names
from ..tabular._dtypes import TEXT_DTYPES, name_of_dtype, parse_dtype, plain_value
from ..tabular._learning import hidden_classes
from ..utils.callers import warn_user
from ..utils.categories import canonical_rows
from ..utils.foreign_tables import check_arrow_type, is_foreign_table, only_column, to_pandas
from ..utils.printing import listed, shown
from ..utils.table_checks import holds_nul, is_missing, reading
from ..utils.validation import check_names, is_extension, is_unicode

# Answers of pandas.api.types.infer_dtype for classes that a release file can hold.
_KINDS = {"string", "boolean", "integer", "floating", "mixed-integer-float"}
# The same of a list whose entries are of one kind, and the dtype that it has then, whatever they are.
_DTYPE_OF_LIST = {"string": str, "boolean": bool, "integer": np.int64, "floating": np.float64}


@dataclass(frozen=True)
class Labels:
    """Public or released facts about y: its classes (None when y is numeric), dtype and container."""

    classes: tuple | None
    dtype: str
    series: bool = False
    name: str | None = None

    def decode(self, values):
        """Return class codes (or numbers, when y is numeric) in the dtype and container of y."""
        if self.classes is not None:
            values = np.array(self.classes, dtype=_array_dtype(self.dtype))[np.asarray(values, dtype=np.int64)]
        else:
            values = _as_numbers(values, self.dtype)
        return values if not self.series else pd.Series(values, name=self.name).astype(self.dtype)

    def to_state(self):
        """Return plain values for a release file."""
        classes = None if self.classes is None else list(self.classes)
        return {"classes": classes, "dtype": self.dtype, "series": self.series, "name": self.name}

    @classmethod
    def from_state(cls, state):
        """Rebuild from `to_state`."""
        if state["dtype"] not in TEXT_DTYPES:
            parse_dtype(state["dtype"])
        return cls(**{**state, "classes": None if state["classes"] is None else tuple(state["classes"])})


def with_dtype(y):
    """Return y with a dtype, which is public: a list becomes an array of the kind that all its entries have.

    A list has no dtype. numpy makes text of all its numbers where one entry is text, and floats of all its integers
    where one has a fraction, and the released classes would show this. So a list must hold entries of one kind.
    Raises InvalidInputError: they are of several kinds, none of which is named.
    """
    if isinstance(y, pd.DataFrame):
        for dtype in y.dtypes:
            check_arrow_type("y", dtype)
        return np.asarray(y)
    if hasattr(y, "dtype"):
        return _as_released(y)
    try:
        entries = np.asarray(y, dtype=object)
    except ValueError:  # lists of several lengths
        raise InvalidInputError("y must be an array, or a list of one label for each row of X") from None
    if entries.size == 0 or entries.ndim == 0:
        return entries
    if pd.isna(entries).any():
        raise InvalidInputError("Input y contains NaN or infinity.")
    dtype = _DTYPE_OF_LIST.get(pd.api.types.infer_dtype(entries.ravel(), skipna=False))
    if dtype is not None:
        with contextlib.suppress(OverflowError):  # integers beyond 64 bits
            return entries.astype(dtype)
    raise InvalidInputError(
        "y must hold numbers, text or booleans, of one kind: all text, all True or False, all integers of 64 bits, or "
        "all floats. Give y as an array or a Series, whose dtype is public; a list has none"
    )


def _as_released(y):
    """A Series of a dtype that samples can have: sparse values and categories of Arrow as what they stand for."""
    check_arrow_type("y", y.dtype)
    if not isinstance(y, pd.Series):
        return y
    if isinstance(y.dtype, pd.SparseDtype):
        return y.sparse.to_dense()
    arrow = getattr(y.dtype, "pyarrow_dtype", None)
    return y.astype(pd.ArrowDtype(arrow.value_type)) if hasattr(arrow, "index_type") else y


def is_numeric_target(y, target_type):
    """Return whether y is numeric, by its dtype and not by its values; `target_type` overrides."""
    if target_type is not None:
        return target_type == "numeric"
    return pd.api.types.is_float_dtype(with_dtype(y).dtype)


def check_labels(y, n_rows, *, numeric, classes):
    """Validate the y of a synthesizer and return it as an array with what is public about it.

    `y`: shape (n_rows,) or (n_rows, 1).
    `numeric`: whether y holds numbers and no classes.
    `classes`: declared classes, in their order; None where they are to be learned.
    Raises InvalidInputError: wrong shape, missing values, or a class that was not declared.
    """
    y, series = with_dtype(y), isinstance(y, pd.Series)
    name = None if not series or y.name is None else y.name if isinstance(y.name, int) else str(y.name)
    dtype = y.dtype if series else np.asarray(y).dtype
    if numeric:
        values = _column(y, n_rows)
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):  # numpy's message holds the value
            raise InvalidInputError("y must be numeric, but holds values that are no numbers") from None
        if not np.isfinite(values).all():
            raise InvalidInputError("Input y contains NaN or infinity.")
        plain = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
        return values, Labels(None, str(dtype) if plain else "float64", series, name)
    values = class_labels(y, n_rows)
    if classes is not None:
        classes = tuple(plain_value(c) for c in classes)
        if not all(map(pd.api.types.is_hashable, classes)):
            raise InvalidInputError("classes must be text, numbers or truth values")
        if not classes or len(set(classes)) < len(classes):
            raise ValueError("classes must be distinct, and at least one")
        declared_codes(values, classes)
    plain = series or dtype.kind in "biuf"
    return values, Labels(classes, name_of_dtype(dtype) if plain else "object", series, name)


def class_labels(y, n_rows):
    """Validate class labels and return them as an array in which equal labels are identical.

    `y` (n_rows,) or (n_rows, 1): text, truth values or numbers, of one kind and without missing values.
    Returns an array of shape (n_rows,) of a dtype of numpy's; of dtype object for text and for the values of nullable
        dtypes.
    Raises InvalidInputError: names what does not fit; the message holds no label.
    """
    values = _column(y, n_rows)
    if is_missing(values, "y").any() or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        raise InvalidInputError("Input y contains NaN or infinity.")
    if values.dtype.kind in "mM":
        raise InvalidInputError("y must hold numbers, text or booleans; give dates as text")
    if pd.api.types.infer_dtype(values, skipna=False) not in _KINDS:
        raise InvalidInputError(f"y must hold numbers, text or booleans, of one kind; its dtype is {values.dtype}")
    if values.dtype == object and not _are_finite(values):
        raise InvalidInputError("y holds numbers that are infinite, or that no float can hold")
    if values.dtype.kind in "OU" and not is_unicode(pd.unique(values)):
        raise InvalidInputError("y holds text that is no Unicode (lone surrogates)")
    if values.dtype.kind in "OU" and holds_nul(values, pd.unique(values)):
        raise InvalidInputError("y holds text with the character NUL (\\0): remove it")
    if values.dtype == object:
        return canonical_rows(values)
    return values + 0.0 if values.dtype.kind == "f" else values  # -0.0 becomes 0.0


def _are_finite(values):
    """Whether all numbers among labels of one kind are finite as floats: an integer may have thousands of digits."""
    if pd.api.types.infer_dtype(values, skipna=False) == "string":
        return True
    try:
        return bool(np.isfinite(values.astype(np.float64)).all())
    except OverflowError:
        return False


def _column(y, n_rows):
    """Return y as an array of shape (n_rows,)."""
    if isinstance(y, pd.Series):
        check_names([y.name], "y")
    y = with_dtype(y)
    with reading("y"):
        values = np.asarray(y.astype(object) if isinstance(y, pd.Series) and is_extension(y) else y)
    if values.shape == (n_rows, 1):
        values = values[:, 0]
    if values.shape != (n_rows,):
        raise InvalidInputError(f"y must have shape ({n_rows},), one label for each row of X; got {values.shape}")
    return values


def sorted_classes(classes):
    """Return declared classes as a sorted array; InvalidInputError where there is none, or one twice."""
    try:
        given = np.asarray(list(classes) if is_extension(classes) else classes)
        if given.ndim != 1 or given.size == 0:
            raise InvalidInputError(f"classes must be a list of at least one class; got shape {given.shape}")
        kept = np.unique(given)
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError("classes must be a list of classes of one type that can be sorted") from None
    if kept.size != given.size:
        raise InvalidInputError(f"classes holds the same class twice; got {shown(classes)}")
    return kept


def declared_codes(values, classes):
    """Return the position of each label in `classes`; InvalidInputError, without the label, where one is not there."""
    codes = label_codes(values, classes)
    if (codes < 0).any():
        raise InvalidInputError(f"y holds a class that is not among the declared classes, {listed(classes)}")
    return codes


def check_list_of_classes(y):
    """Refuse one class in the place of the `y` of `sample`; it is the caller's own, and may be named."""
    if np.ndim(y) == 0:
        raise ValueError(f"y must be a list of classes, one for each row; for one class: y=[{y!r}] * n")


def one_column(y):
    """Return labels in a table with one column, or of shape (n_rows, 1), as one column; others as they are."""
    if is_foreign_table(y):
        y = to_pandas(y)
        y = y.astype(object).where(y.notna(), None)
    return only_column(y)


def label_codes(values, classes):
    """Return the position of each label in `classes`; -1 for labels that are not there."""
    values = one_column(values)
    # both of dtype object: pandas would make strings of them, which fails on text that is not valid Unicode
    values = np.asarray(values, dtype=object)
    if values.ndim != 1:  # pandas' message holds a single label
        raise InvalidInputError(f"labels must have one dimension, one label for each row; got {values.ndim}")
    return pd.Index(np.array(classes, dtype=object), dtype=object).get_indexer(pd.Index(values, dtype=object))


def learn_classes(values, noise_multiplier, delta, rng, neighboring, *, key=None, unit_sizes=None, dtype=None):
    """Release the classes whose noisy count passes the threshold: one Gaussian release, and `delta` for the names.

    `values` (n_rows,): as `class_labels` returns them.
    `noise_multiplier`: charged by the caller, as `delta` is.
    `delta`: probability that a class of one record is released.
    `key`: sort key of the classes; None sorts them as they are.
    `unit_sizes` (n_rows,): as in `joint_histogram`.
    `dtype`: name of the dtype of y, where the caller can take it for a quantity.
    Returns a sorted tuple: empty, with a UtilityWarning, where the noise hides every class. Another warning says that a
        single class was learned.
    """
    observed = sorted(pd.unique(values).tolist(), key=key)
    counts = histogram(label_codes(values, observed), len(observed), unit_sizes)
    kept = release_names(observed, counts, noise_multiplier, delta, rng, neighboring)
    if not kept:
        warn_user(hidden_classes("y", dtype))
    elif len(kept) == 1 and noise_multiplier > 0:
        warn_user(
            f"one class alone was learned of y ({listed(kept)}), and rows of others were left out, if there are any: "
            "the noise hides rare classes. Declare the classes, if they are public, by classes=[...]"
        )
    return tuple(kept)


def class_for_all(dtype):
    """Return the one class that stands for all rows where the noise hides every class, by the dtype of y."""
    parsed = pd.api.types.pandas_dtype(dtype)
    if pd.api.types.is_bool_dtype(parsed):
        return (False,)
    return (0,) if pd.api.types.is_numeric_dtype(parsed) else ("other",)


def _as_numbers(values, dtype):
    """Convert numbers to `dtype`: integers are rounded and clipped to its range."""
    dtype = pd.api.types.pandas_dtype(dtype)
    dtype = np.dtype(getattr(dtype, "numpy_dtype", dtype))  # of a nullable dtype
    if dtype.kind not in "iu":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    highest = float(limits.max)
    if int(highest) > limits.max:  # 2^63 is no int64; the double below it is
        highest = np.nextafter(highest, 0.0)
    return np.clip(np.rint(values), float(limits.min), highest).astype(dtype)


def _array_dtype(dtype):
    try:
        parsed = np.dtype(dtype)
    except TypeError:
        return object
    return parsed if parsed.kind in "biuf" else object
