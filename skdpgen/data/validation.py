"""Input validation: from the arguments of `fit` to the private rows, in one way for all synthesizers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .._parameters import GroupDivergence, ParameterObject, unit_columns
from ..accounting._facts import table_columns
from ..exceptions import InvalidInputError
from ..tabular import Numeric
from ..tabular._identifiers import merge_keys
from ..tabular._schema import check_unique
from ..utils.containers import CHUNK_READERS, refuse_containers
from ..utils.validation import validate_data, validate_rows
from .arrays import (
    ArrayRows,
    check_image_shape,
    point_out_images,
    point_out_images_of_one_dtype,
    point_out_pixels,
    point_out_truth_values,
)
from .frames import FrameRows
from .scaling import check_bounds
from .sources import is_table_path, open_source
from .units import read_groups, unknown_unit


def validate_input(estimator, X, y, groups=None, *, conditional=True, images=True):
    """Validate the data and return its private rows.

    `estimator`: its parameters declare public facts.
    `X`, `y`, `groups`: arguments of `fit`.
    `conditional`: whether the model has one prior for each class.
    `images`: whether images are released as such. False: their shape changes no release.
    """
    shared = {
        "classes": estimator.classes,
        "target_type": estimator.target_type,
        "on_invalid": estimator.on_invalid,
        "conditional": conditional,
    }
    _refuse_text(X)
    refuse_containers(X)
    source, unit = open_source(X), estimator._unit
    if source is not None:
        _refuse_image_shape(estimator)
        refuse_given(estimator, ("bounds", "l2_bound"), "for arrays; for a DataFrame, declare schema=")
        check_unique(source.head.columns)
        head, schema, shared["units"] = without_unit(estimator, source.head, groups)
        validate_data(estimator, head, skip_check_array=True)
        shared["importance"] = getattr(estimator, "importance", None)
        shared["constraints"] = getattr(estimator, "constraints", None)
        shared["constant"] = unit_columns(estimator._asked_unit)
        rows = FrameRows(source, y, target=estimator.target, schema=schema, **shared)
        _point_out_images(rows)
        return rows
    refuse_given(
        estimator,
        ("schema", "target", "importance", "constraints"),
        "for DataFrames; for an array, declare bounds= and give y",
    )
    given, X = X, validate_rows(estimator, X, order=None)
    if unit is not None:
        shared["ids"] = read_groups(groups, len(X), unit, estimator._asked_unit.missing)
    if estimator.image_shape is None and "image_shape" in estimator.get_params(deep=False):
        point_out_images(check_bounds(estimator.bounds, X.shape[1]))
    shape = check_image_shape(estimator.image_shape, X.shape[1])
    rows = ArrayRows(
        X, y, bounds=estimator.bounds, l2_bound=estimator.l2_bound, image_shape=shape if images else None, **shared
    )
    _check_dtype(estimator, shape, given, rows)
    return rows


def read_vectors(estimator, X, y, groups=None, *, images=False):
    """Validate the data for a network, which takes rows as they are: no norm of a row is learned, none is clipped.

    `estimator`, `X`, `y`, `groups`: as in `validate_input`.
    `images`: whether moments of the rows are released, which of images are those of their low frequencies.
    What is private stays in the rows that come back. Frames are in memory.
    """
    _refuse_text(X)
    refuse_containers(X)
    if is_table_path(X):
        raise InvalidInputError(
            f"X is the path of a file, and {type(estimator).__name__} takes the rows at once: read it first, by "
            f"pandas.read_parquet(path). Parquet files are read by {CHUNK_READERS}"
        )
    shared = {name: getattr(estimator, name) for name in ("classes", "target_type", "on_invalid")}
    if isinstance(X, pd.DataFrame):
        _refuse_image_shape(estimator)
        refuse_given(estimator, ("bounds",), "for arrays; for a DataFrame, declare schema=")
        check_unique(X.columns)
        head, schema, units = without_unit(estimator, X, groups)
        validate_data(estimator, head, skip_check_array=True)
        return FrameRows(X, y, target=estimator.target, schema=schema, units=units, **shared)
    refuse_given(estimator, ("schema", "target"), "for DataFrames; for an array, declare bounds= and give y")
    given, X = X, validate_rows(estimator, X, order=None)
    shape, unit = check_image_shape(estimator.image_shape, X.shape[1]), estimator._unit
    # no row is clipped as a whole, its gradient is: the norm bound is that of the unit box
    box = float(X.shape[1] + 1) ** 0.5
    ids = None if unit is None else read_groups(groups, len(X), unit, estimator._asked_unit.missing)
    rows = ArrayRows(
        X, y, bounds=estimator.bounds, l2_bound=box, image_shape=shape if images else None, ids=ids, **shared
    )
    _check_dtype(estimator, shape, given, rows)
    return rows


def _check_dtype(estimator, shape, given, rows):
    """Refuse a y of images that is no class, and point out what does not fit the dtype of X, as it was given."""
    # a list has no dtype: one fraction in it would decide whether the warning is given
    dtype = np.dtype(np.float64) if isinstance(given, list | tuple) else rows.X.dtype
    if shape is None:
        point_out_truth_values(dtype)
        return
    if rows.numeric_target:
        raise InvalidInputError("with image_shape=, y must be classes: give y as integers or text, or leave y out")
    point_out_pixels(dtype, check_bounds(estimator.bounds, rows.n_features))


def _refuse_text(X):
    """Refuse text that is no path of a Parquet file, such as that of a CSV file, and say how to read it."""
    if isinstance(X, str | list | tuple) and not is_table_path(X) and len(X) and all(isinstance(x, str) for x in X):
        raise InvalidInputError(
            "Expected 2D array or DataFrame, and X is text. If it is a path, read the file first: "
            "fit(pandas.read_csv(path)), or use the command skdpgen synthesize (MomentSynthesizer takes paths of "
            "Parquet files, which end in .parquet or .pq). If it is one column, Reshape your data by X.reshape(-1, 1)"
        )


def without_unit(estimator, head, groups):
    """Leave the column of identifiers out.

    `head`: only its columns are used. `groups`: identifiers that are no column. Returns `head`; `schema`; `units`: see
    `FrameRows`; None where a row is the unit.
    """
    unit, schema = estimator._unit, estimator.schema
    if unit is None:
        return head, schema, None
    column = _unit_column(estimator, head, groups)
    if column is not None:
        head = head.drop(columns=column)
        if schema is not None and column in schema:
            schema = schema.select([name for name in schema if name != column])
    return head, schema, (unit, estimator._asked_unit.missing, column, groups)


def _unit_column(estimator, head, groups):
    """Name of the column of identifiers, which is left out of the rows; None where `groups` holds them."""
    column = estimator._asked_unit.name
    if groups is not None:
        if column is not None and column in head.columns:
            raise InvalidInputError(f"unit={column!r} is a column of the frame: leave out groups=, or the column")
        return None
    if column not in head.columns:
        raise unknown_unit(column, head)
    targets = estimator.target if isinstance(estimator.target, list | tuple) else [estimator.target]
    if column in targets:
        raise InvalidInputError(f"unit={column!r} is the target too, and identifiers are not modelled")
    return column


def _refuse_image_shape(estimator):
    if getattr(estimator, "image_shape", None) is not None:
        raise InvalidInputError(
            "image_shape= is for arrays, and X is a DataFrame: give the columns of pixels as an array, by "
            "X.to_numpy(), and the classes as y, with bounds=, the range of the pixels"
        )


def _point_out_images(rows):
    """Warn where the columns of a frame, but for one class label, may be pixels."""
    columns = rows.table.columns
    pixels = [column for column in columns if isinstance(column, Numeric)]
    if len(columns) - len(pixels) > 1 or not pixels:
        return
    if all(column.complete for column in pixels):
        bounds = np.array([column.bounds for column in pixels], dtype=np.float64)
        point_out_images(bounds.T, "give them as an array, with the classes as y, and declare ")
    elif not any(column.complete for column in pixels) and len({column.dtype for column in pixels}) == 1:
        point_out_images_of_one_dtype(len(pixels), pixels[0].dtype)


def refuse_given(estimator, names, why):
    """Raise InvalidInputError where parameters are given that are for other kinds of data."""
    refused = [name for name in names if getattr(estimator, name, None) is not None]
    if refused:
        named = ", ".join(f"{name}=" for name in refused)
        raise InvalidInputError(f"leave out {named}, which {'is' if len(refused) == 1 else 'are'} {why}")


def check_likelihood(likelihood, rows):
    """Refuse, by what is public, a likelihood that these rows do not have."""
    if isinstance(rows, FrameRows):
        if likelihood != "auto":
            raise ValueError("likelihood= is for arrays: a DataFrame has one categorical distribution a column")
        return
    lowest = None if rows.bounds is None else rows.bounds[0]
    if likelihood == "bernoulli" and (lowest is None or not (lowest >= 0).all()):
        raise ValueError('likelihood="bernoulli" needs declared bounds that are not negative, and no numeric y')


def public_assumptions(estimator, rows):
    """Facts that a fit takes for public, for the privacy card."""
    names = ("schema", "classes", "bounds", "l2_bound", "image_shape", "importance", "constraints")
    given = [name for name in names if getattr(estimator, name, None) is not None]
    given += ["columns of the unit"] * (estimator._asked_unit.columns is not None)
    given += ["shared columns of the unit"] * (estimator._asked_unit.shared is not None)
    declared = [f"{name}: declared public by the caller" for name in given]
    # an object of the caller may contain anything: the card says that it is assumed to contain nothing of the rows
    divergence = getattr(estimator, "divergence", None)
    objects = {
        "net": getattr(getattr(estimator, "training", estimator), "net", None),
        "prior": getattr(estimator, "prior", None),
        "divergence": divergence.kind if isinstance(divergence, GroupDivergence) else divergence,
    }
    declared += [
        f"{name}: an object of the caller's, taken for public"
        for name, value in objects.items()
        if not isinstance(value, str | ParameterObject | None)
    ]
    architecture = getattr(estimator, "architecture", "")
    if not all(isinstance(part, str) for part in ([architecture] if isinstance(architecture, str) else architecture)):
        declared.append("architecture: modules of the caller's, taken for public")
    kinds = "names, order and kinds (dtypes) of the columns" if isinstance(rows, FrameRows) else "number of columns"
    return [*declared, kinds, *rows.public_assumptions]


def columns_of(estimator, rows):
    """Columns of a table with the facts that were declared of each, for the privacy card; None for an array."""
    if not isinstance(rows, FrameRows):
        return None
    # the schema before anything was learned: public, and None where a fact is learned and charged
    declared = () if estimator.schema is None else estimator.schema.names
    table = merge_keys(rows.table, rows.keys)  # a sample has the columns of keys too
    return table_columns(table.to_dict()["columns"], declared, rows.kinds_from_values)
