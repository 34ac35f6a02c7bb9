"""Labels beside an array: codes while a fit lasts, and the released classes that decode them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..exceptions import InvalidInputError, UtilityWarning
from ..mechanisms import histogram, release_names
from ..tabular._dtypes import TEXT_DTYPES, parse_dtype
from ..utils.categories import canonical_rows
from ..utils.validation import check_names, is_unicode

__all__ = ["Labels", "check_labels", "is_numeric_target", "label_codes", "learn_classes"]

# What pandas.api.types.infer_dtype may answer for classes: what a release file can hold.
_KINDS = {"string", "boolean", "integer", "floating", "mixed-integer-float"}


@dataclass(frozen=True)
class Labels:
    """Public or released facts about y: its classes (none when y is numeric), and the container it came in."""

    classes: tuple | None
    dtype: str
    series: bool = False
    name: str | None = None

    def decode(self, values):
        """Return class codes (or numbers, when y is numeric) as the kind of y that went in."""
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


def is_numeric_target(y, target_type):
    """Tell from its dtype, never from its values, whether y is numeric; `target_type` overrides."""
    if target_type is not None:
        return target_type == "numeric"
    return pd.api.types.is_float_dtype(getattr(y, "dtype", np.asarray(y).dtype))


def check_labels(y, n_rows, *, numeric, classes):
    """Validate y and return it as an array with what is public about it.

    Raises
    ------
    InvalidInputError
        Wrong shape, missing values, or a class that was not declared.
    """
    series = isinstance(y, pd.Series)
    name = None if not series or y.name is None else y.name if isinstance(y.name, int) else str(y.name)
    check_names([name], "y")
    dtype = y.dtype if series else np.asarray(y).dtype
    values = np.asarray(y.astype(object) if series and not isinstance(dtype, np.dtype) else y)
    if values.shape == (n_rows, 1):
        values = values[:, 0]
    if values.shape != (n_rows,):
        raise InvalidInputError(f"y must have shape ({n_rows},); got {values.shape}")
    if numeric:
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):  # numpy's message holds the value
            raise InvalidInputError("y is to be numeric, and holds what is no number") from None
        if not np.isfinite(values).all():
            raise InvalidInputError("Input y contains NaN or infinity.")
        plain = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
        return values, Labels(None, str(dtype) if plain else "float64", series, name)
    if pd.isna(values).any() or (values.dtype.kind == "f" and not np.isfinite(values).all()):
        raise InvalidInputError("Input y contains NaN or infinity.")
    if pd.api.types.infer_dtype(values, skipna=False) not in _KINDS:
        raise InvalidInputError(f"y must hold numbers, text or booleans, of one kind; its dtype is {dtype}")
    if values.dtype.kind in "OU" and not is_unicode(pd.unique(values)):
        raise InvalidInputError("y holds text that is no Unicode (lone surrogates)")
    values = canonical_rows(values) if values.dtype == object else values + 0.0 if values.dtype.kind == "f" else values
    if classes is not None:
        classes = tuple(_plain(c) for c in classes)
        if not all(map(pd.api.types.is_hashable, classes)):
            raise InvalidInputError("classes must be text, numbers or truth values")
        if not classes or len(set(classes)) < len(classes):
            raise ValueError("classes must be distinct, and at least one")
        if not np.isin(values, np.array(classes, dtype=values.dtype if values.dtype == object else None)).all():
            raise InvalidInputError("y holds a class that is not among the declared classes")
    plain = series or dtype.kind in "biuf"
    return values, Labels(classes, str(dtype) if plain else "object", series, name)


def label_codes(values, classes):
    """Position of each value in `classes`; -1 for the others."""
    # both of dtype object: pandas would make strings of them, which fails on text that is no Unicode
    return pd.Index(np.array(classes, dtype=object), dtype=object).get_indexer(
        pd.Index(np.asarray(values, dtype=object), dtype=object)
    )


def learn_classes(values, dtype, noise_multiplier, delta, rng, neighboring):
    """Release the classes that stand above the noise, sorted; the rows of others are left out.

    Returns
    -------
    tuple
        Never empty: where the noise hides every class, one class stands for all rows.
    """
    observed = pd.unique(values)
    observed = np.sort(observed) if observed.dtype != object else np.array(sorted(observed, key=str), dtype=object)
    counts = histogram(label_codes(values, observed), len(observed))
    kept = release_names(observed.tolist(), counts, noise_multiplier, delta, rng, neighboring)
    if not kept:
        warnings.warn(
            "the noise hides every class of y; one stands for all: declare classes=", UtilityWarning, stacklevel=4
        )
        parsed = pd.api.types.pandas_dtype(dtype)
        if pd.api.types.is_bool_dtype(parsed):
            return (False,)
        return (0,) if pd.api.types.is_numeric_dtype(parsed) else ("other",)
    return tuple(kept)


def _as_numbers(values, dtype):
    """Numbers as `dtype` holds them: integers are rounded, and stay in its range."""
    dtype = pd.api.types.pandas_dtype(dtype)
    dtype = np.dtype(getattr(dtype, "numpy_dtype", dtype))  # of a nullable dtype
    if dtype.kind not in "iu":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    highest = float(limits.max)
    if int(highest) > limits.max:  # 2^63 is no int64; the double below it is
        highest = np.nextafter(highest, 0.0)
    return np.clip(np.rint(values), float(limits.min), highest).astype(dtype)


def _plain(value):
    return value.item() if isinstance(value, np.generic) else value


def _array_dtype(dtype):
    try:
        parsed = np.dtype(dtype)
    except TypeError:
        return object
    return parsed if parsed.kind in "biuf" else object
