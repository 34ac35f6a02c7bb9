"""Small checks of public facts, and the only module that imports private names of scikit-learn."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from numbers import Integral, Real

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionDtype
from sklearn.base import ClassNamePrefixFeaturesOutMixin, _fit_context
from sklearn.utils._param_validation import (
    HasMethods,
    Hidden,
    InvalidParameterError,
    Options,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils.validation import _num_samples, validate_data

from ..exceptions import InvalidInputError
from .containers import refuse_chunks, refuse_containers, refuse_objects
from .foreign_tables import holds_numbers, is_foreign_table, to_pandas
from .printing import listed, shown
from .table_checks import (
    MAX_ROWS,
    check_names,
    check_row_count,
    is_of_dask,
    is_unicode,
    texts_in,
    without_cells,
)

__all__ = [
    "BEYOND_CARD",
    "EXACT_SCORES",
    "MAX_ROWS",
    "MOST_NUMBERS",
    "MOST_UNITS",
    "SEPARATE_LEDGERS",
    "ClassNamePrefixFeaturesOutMixin",
    "HasMethods",
    "Hidden",
    "Interval",
    "InvalidParameterError",
    "Options",
    "StrOptions",
    "as_numbers",
    "as_sizes",
    "check_model_size",
    "check_names",
    "check_parameters",
    "check_row_count",
    "convert_fields",
    "count_search_fits",
    "fit_context",
    "inside_search",
    "is_extension",
    "is_finite",
    "is_unicode",
    "meta_estimator",
    "num_samples",
    "physical_memory",
    "python_value",
    "validate_coordinates",
    "validate_data",
    "validate_rows",
]

fit_context = _fit_context
num_samples = _num_samples


# Ends of the ranges of parameters. Between them every fit that passes its checks ends in finite values; beyond, squares
# and ratios of the numbers leave the range of floats, and counts stand for years of work.
_LEAST, _MOST, _MOST_COUNT = 1e-100, 1e100, 10**8
# Largest number of components, frequencies or units of a layer: they take memory.
MOST_UNITS = 1 << 16
# Gradient steps of a sampled image: they take time.
MOST_MOVES = 10_000
# Largest standard deviation of the displacement of pixels, as a share of the side of an image.
MOST_DEFORMATION = 0.2
# Largest number of parameters of a model (2 GiB of doubles).
MOST_NUMBERS = 1 << 28


class Interval(_Interval):
    """A range of numbers, with both ends finite: a bool is no number, nor is what no float can hold.

    An open end (None, or the 0 of positive numbers) is that of the package: 1e-100 and 1e100, 10**8 for counts.
    """

    def __init__(self, type, left, right, *, closed):
        if type is not Integral and left == 0 and closed in ("right", "neither"):
            left, closed = _LEAST, {"right": "both", "neither": "left"}[closed]
        if right is None:
            right = _MOST_COUNT if type is Integral else _MOST
            closed = {"left": "both", "neither": "right"}.get(closed, closed)
        super().__init__(type, left, right, closed=closed)

    def is_satisfied_by(self, val):
        """Tell whether a value of a parameter, of any type, lies in the range."""
        if isinstance(val, bool) or not isinstance(val, self.type):
            return False
        try:
            return python_value(val if self.type is Integral else float(val)) in self
        except OverflowError:
            return False


def python_value(value):
    """Return numbers and text of other types, numpy's above all, as bool, int, float or str; other values as they are.

    numpy's numbers have a limited precision and range in arithmetic: a bound of type float16 would make the noise
    overflow, and an unsigned number of subsets would wrap around.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    return str(value) if isinstance(value, np.str_) else value


def convert_fields(frozen):
    """Give the fields of a frozen dataclass that were given by the caller Python's own numbers, in place."""
    for field in fields(frozen):
        if field.init:
            object.__setattr__(frozen, field.name, python_value(getattr(frozen, field.name)))


def check_parameters(owner, parameters, constraints):
    """Refuse parameters that violate their constraints, or that no file can hold, without showing what may be rows.

    No file holds numbers beyond any float, and text with lone surrogates.

    Parameters
    ----------
    owner : str
        Whose they are.
    parameters : dict
    constraints : dict
        As scikit-learn has them.

    Raises
    ------
    InvalidParameterError
        With the parameter's name.
    """
    for name, value in parameters.items():
        if isinstance(value, Real):
            try:
                float(value)
            except OverflowError:
                raise InvalidParameterError(
                    f"The {name!r} parameter of {owner} is a number that no float can hold"
                ) from None
        elif not is_unicode(texts_in(value)):
            raise InvalidParameterError(
                f"The {name!r} parameter of {owner} holds text that cannot be written (a lone surrogate)"
            )
    for name, value in parameters.items():
        try:
            validate_parameter_constraints(constraints, {name: value}, owner)
        except InvalidParameterError as error:  # scikit-learn's message holds the value
            allowed = str(error).partition(" Got ")[0]
            raise InvalidParameterError(f"{allowed} Got {shown(value)} instead.") from None


def as_numbers(values, name, end="; nothing was charged"):
    """Return what holds numbers as an array of float64; InvalidInputError otherwise, with its name and no value."""
    try:
        if np.asarray(values).dtype.kind in "US":
            raise TypeError
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"{name} must hold numbers alone{end}") from None


def as_sizes(values, name):
    """Return a parameter that holds sizes as a tuple of int; InvalidInputError with its name otherwise."""
    values = np.atleast_1d(as_numbers(values, name))
    if values.ndim != 1 or not ((values >= 1) & (values <= MOST_UNITS) & (values % 1 == 0)).all():
        raise InvalidInputError(f"{name} must be whole numbers from 1 to {MOST_UNITS}; nothing was charged")
    return tuple(int(size) for size in values)


def check_model_size(numbers, **sizes):
    """Refuse, before anything is charged, sizes that make a model of more numbers than memory should be asked for.

    Parameters
    ----------
    numbers : int
        Of the model.
    **sizes
        Parameters that make it so large, by name.
    """
    if numbers > MOST_NUMBERS:
        given = ", ".join(f"{name}={size!r}" for name, size in sizes.items())
        raise InvalidInputError(
            f"{given}: the model would have {numbers:.2g} numbers, and at most {MOST_NUMBERS:.2g} are allowed: reduce "
            "them; nothing was charged"
        )


def physical_memory():
    """Return the bytes of memory of this machine, or None where the system does not tell."""
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
    return pages * size if pages > 0 and size > 0 else None


def is_extension(values):
    """Tell whether values have an extension dtype of pandas, which `np.asarray` would not preserve."""
    return isinstance(getattr(values, "dtype", None), ExtensionDtype)


def _advice_of_images(estimator, shape):
    """How to give an array of images, by its shape."""
    size, flat = shape[1:], "X.reshape(len(X), -1)"
    if len(size) == 3 and size[0] in (1, 3, 4) and size[2] not in (1, 3, 4):  # channels first, as torch has them
        size, flat = (*size[1:], size[0]), "X.transpose(0, 2, 3, 1).reshape(len(X), -1)"
    known = hasattr(estimator, "image_shape") and len(size) in (2, 3)
    return f"give images as {flat}" + f", and declare image_shape={tuple(map(int, size))}" * known


def _numbers_of_table(X, name):
    """Return a table of another library that has no array of numbers, such as a lazy one, as a frame of numbers."""
    refused = f"X is a {type(X).__name__} with columns that are not numbers, and {name} takes only numbers"
    if hasattr(X, "__array__") and not hasattr(X, "__arrow_c_stream__"):
        raise InvalidInputError(f"{refused}: give a DataFrame of pandas that has no other columns")
    frame = to_pandas(X)
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    other = [str(column.name) for column in columns if column.dtype.kind not in "biuf"]
    if other:
        raise InvalidInputError(
            f"{refused}: leave out {listed(other)}, or make numbers of the table by TableEncoder(schema)"
        )
    numbers = [
        column.to_numpy(np.float64, na_value=np.nan) if column.hasnans else column.to_numpy(column.dtype.numpy_dtype)
        for column in columns
    ]
    return pd.DataFrame(dict(enumerate(numbers))).set_axis(frame.columns, axis=1)


def validate_rows(estimator, X, *, dtype="numeric", **options):
    """Validate an array of numbers as scikit-learn does, without showing a cell in a message.

    Parameters
    ----------
    estimator : estimator
    X : array-like of shape (n_samples, n_features)
    dtype : "numeric" or dtype, default="numeric"
    **options
        Of scikit-learn's `validate_data`.

    Returns
    -------
    array of shape (n_samples, n_features)

    Raises
    ------
    InvalidInputError
        For what is no table of finite numbers, or more rows than can be summed exactly; before anything is charged.
    """
    refuse_containers(X)
    refuse_chunks(X, type(estimator).__name__)
    refuse_objects(X)
    if is_foreign_table(X) and not holds_numbers(X):
        X = _numbers_of_table(X, type(estimator).__name__)
    check_names(getattr(X, "columns", ()))
    if isinstance(X, np.ma.MaskedArray):  # scikit-learn takes the values behind the mask
        raise InvalidInputError("X is a masked array: give pandas.DataFrame(X), in which masked values are missing")
    if getattr(getattr(X, "dtype", None), "names", None):
        raise InvalidInputError("X is an array of records with named fields: give pandas.DataFrame(X)")
    if is_of_dask(X):
        with without_cells(f"the {type(X).__name__} of dask", "compute it"):
            X = X.compute()
    try:
        # the sum in which scikit-learn looks for NaN may overflow to both sides, with a warning that depends on one row
        with np.errstate(over="ignore", invalid="ignore"):
            X = _in_double(validate_data(estimator, X, dtype=dtype, **options))
        if X.dtype.kind not in "biufO":
            raise InvalidInputError(
                f"X holds values that are not numbers, of dtype {X.dtype}: the synthesizers take a DataFrame of them, "
                "pandas.DataFrame(X)"
            )
        if X.dtype.kind == "O":  # frames of categories or periods come back as objects: they must fail here
            X = X.astype(np.float64)
            if not np.isfinite(X).all():
                raise InvalidInputError("X holds text or objects that stand for NaN or infinity: give finite numbers")
    except (ValueError, OverflowError) as error:  # a TypeError names types alone
        text = str(error)
        # messages of a conversion hold the value, or have it as an attribute
        if "could not convert" in text or "cannot convert" in text or isinstance(error, OverflowError | UnicodeError):
            raise InvalidInputError(
                "X holds values that are not numbers: a table of them is a DataFrame, which the synthesizers take"
            ) from None
        if text.startswith("Expected 2D array"):  # scikit-learn's holds the array
            raise InvalidInputError(
                f"{text.splitlines()[0].split(' instead')[0]} instead. Reshape your data by X.reshape(-1, 1) if it "
                "is one column, or X.reshape(1, -1) if it is one row"
            ) from None
        if text.startswith("Found array with dim"):
            raise InvalidInputError(
                f"X must have two dimensions, a row a record; got {np.ndim(X)}: "
                f"{_advice_of_images(estimator, np.shape(X))}"
            ) from None
        if text.startswith("Input X contains NaN"):
            said = "an array must be complete. A DataFrame may hold missing values, which the synthesizers model"
            if hasattr(X, "columns"):
                name = type(estimator).__name__
                said = f"{name} takes complete numbers alone: the synthesizers model missing values of a DataFrame"
            else:
                said += ": give pandas.DataFrame(X)"
            raise InvalidInputError(f"Input X contains NaN, and {said}") from None
        if text.startswith("Complex data not supported"):  # and scikit-learn's the array
            raise InvalidInputError("Complex data not supported") from None
        raise
    except (TypeError, MemoryError):
        raise
    except Exception as error:  # of Arrow, say, which shows text that is not UTF-8
        raise InvalidInputError(f"X holds values that cannot be read as numbers ({type(error).__name__})") from None
    check_row_count(len(X))
    return X


def _in_double(X):
    """Numbers of a wider type than double as doubles, in which all later steps compute: none may overflow there."""
    if X.dtype.kind != "f" or X.dtype.itemsize <= 8:
        return X
    X = X.astype(np.float64)
    if not np.isfinite(X).all():
        raise InvalidInputError("X holds numbers that are infinite in double precision: rescale the columns")
    return X


def validate_coordinates(X, n_columns):
    """Return the coordinates or latents of rows as an array of float64, of shape (n_samples, n_columns)."""
    X = as_numbers(X, "X", "")
    if X.ndim != 2 or X.shape[1] != n_columns:
        raise ValueError(f"expected an array of shape (n_samples, {n_columns}); got {X.shape}")
    return X


# ---- released numbers ----------------------------------------------------------------------------------------------
# Attributes of models that hold trained or released numbers. Others may mark what is not known by NaN or an infinity.
_RELEASED = ("layers", "row_count", "component_weights")


def is_finite(released):
    """Tell whether the numbers of arrays, and of the networks in the package's own models, are finite.

    Parameters
    ----------
    released : array, number, torch module, model of the package, or dict, list or tuple of them
        Released values alone, so that the answer may be published. Other things are passed over.

    Returns
    -------
    bool
    """
    if isinstance(released, float | np.floating):
        return bool(np.isfinite(released))
    if isinstance(released, np.ndarray):
        return released.dtype.kind != "f" or bool(np.isfinite(released).all())
    if hasattr(released, "state_dict"):
        return all(bool(tensor.isfinite().all()) for tensor in released.state_dict().values())
    if isinstance(released, dict):
        return all(map(is_finite, released.values()))
    if isinstance(released, list | tuple):
        return all(map(is_finite, released))
    if type(released).__module__.startswith("skdpgen.synthesizers."):
        return all(is_finite(part) for name, part in vars(released).items() if name in _RELEASED or _may_hold(part))
    return True


def _may_hold(part):
    """Whether a part of a model may hold networks: no arrays, and no lists but of models."""
    parts = part if isinstance(part, list | tuple) else [part]
    return all(hasattr(one, "state_dict") or type(one).__module__.startswith("skdpgen.synthesizers.") for one in parts)


# ---- searches and other estimators of scikit-learn -----------------------------------------------------------------
_MODULES = ("sklearn.model_selection._validation", "sklearn.model_selection._search")
# Their functions that run the fits.
_RUNS = ("fit", "cross_validate", "learning_curve", "validation_curve", "permutation_test_score")
# Parameters that change what a fit costs.
_COSTS = ("epsilon", "delta", "accountant")

EXACT_SCORES = (
    "fitted inside a search or a cross-validation of scikit-learn: every fit is charged, but cv_results_, best_score_, "
    "best_params_ and the scores of a cross-validation are computed from private rows without protection; "
    "do not publish them. skdpgen.PrivateSearchCV charges its choice"
)
SEPARATE_LEDGERS = "; without accountant= each fit has a separate ledger, and their costs are not added up"
BEYOND_CARD = (
    ": the guarantee on the card does not cover this estimator. It may pass a row to one fit several times, as "
    "bootstrap samples do. What it learns from the rows itself, such as a calibration, is computed without protection; "
    "do not publish it"
)
# Modules of estimators that fit others, and repeat rows or learn from them without protection.
_META = tuple(
    f"sklearn.{name}"
    for name in ("calibration", "ensemble", "feature_selection", "multiclass", "multioutput", "semi_supervised")
)


def inside_search():
    """Tell whether GridSearchCV, cross_validate or the like is among the callers (scikit-learn has no other sign)."""
    return next(_callers(_MODULES), None) is not None


def meta_estimator():
    """Return the name of an estimator of scikit-learn, such as BaggingClassifier, that makes the fit; or None.

    Of several, the outermost, whose results the caller gets. In a worker process no caller has its name.
    """
    found = None
    for frame in _callers(_META):
        found = type(frame.f_locals["self"]).__name__ if "self" in frame.f_locals else found or "an estimator"
    return found


def count_search_fits():
    """Return the number of fits of the search that is among the callers, as (candidates, folds, refits).

    None where it is not known: in a worker process, in a search that chooses its candidates as it goes, in a
    cross-validation, or where the candidates differ in what a fit costs.
    """
    fits = [frame.f_locals for frame in _callers(_MODULES) if frame.f_code.co_name in _RUNS]
    return _fits_of(fits[0]) if len(fits) == 1 else None  # a search within another runs several times


def _fits_of(found):
    """Candidates, folds and refits by the local variables of a running search; None where they do not tell."""
    search = found.get("self")
    if type(search).__name__ not in ("GridSearchCV", "RandomizedSearchCV"):
        return None
    from sklearn.model_selection import ParameterGrid

    folds = found.get("n_splits", getattr(search, "n_splits_", None))
    given = getattr(search, "param_grid", None) or search.param_distributions
    grids = [given] if isinstance(given, dict) else list(given)
    if not isinstance(folds, Integral) or any(str(name).split("__")[-1] in _COSTS for grid in grids for name in grid):
        return None
    listed = not any(hasattr(values, "rvs") for grid in grids for values in grid.values())
    candidates = len(ParameterGrid(grids)) if listed else search.n_iter
    return int(min(candidates, getattr(search, "n_iter", candidates))), int(folds), int(bool(search.refit))


def _callers(modules):
    """Yield the frames of the callers that are functions of the modules, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(modules):
            yield frame
        frame = frame.f_back
