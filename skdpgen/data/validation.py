"""From what `fit` was given to the private rows of the fit: one way for all synthesizers."""

from __future__ import annotations

from ..exceptions import InvalidInputError
from ..tabular._schema import check_unique
from ..utils.validation import validate_data, validate_rows
from .arrays import ArrayRows
from .frames import FrameRows
from .sources import open_source

__all__ = ["public_assumptions", "validate_input"]


def validate_input(estimator, X, y, *, conditional=True):
    """Validate the data; what is private stays in the object that comes back, and goes with it.

    Parameters
    ----------
    estimator : BaseSynthesizer
        Its parameters say what is public.
    X, y
        As given to `fit`.
    conditional : bool, default=True
        Whether the model has one law a class.

    Returns
    -------
    FrameRows or ArrayRows
    """
    shared = {
        "classes": estimator.classes,
        "target_type": estimator.target_type,
        "on_invalid": estimator.on_invalid,
        "conditional": conditional,
    }
    source = open_source(X)
    if source is not None:
        _refuse(estimator, ("bounds", "l2_bound", "image_shape"), "for arrays; a DataFrame takes a schema")
        check_unique(source.head.columns)
        validate_data(estimator, source.head, skip_check_array=True)
        shared["importance"] = getattr(estimator, "importance", None)
        return FrameRows(source, y, target=estimator.target, schema=estimator.schema, **shared)
    _refuse(estimator, ("schema", "target", "importance", "constraints"), "for DataFrames; an array takes bounds and y")
    X = validate_rows(estimator, X, order=None)
    return ArrayRows(
        X, y, bounds=estimator.bounds, l2_bound=estimator.l2_bound, image_shape=estimator.image_shape, **shared
    )


def _refuse(estimator, names, why):
    refused = [name for name in names if getattr(estimator, name, None) is not None]
    if refused:
        raise InvalidInputError(f"{', '.join(refused)}: {why}")


def public_assumptions(estimator, rows):
    """What a fit took for public, for the privacy card."""
    names = ("schema", "classes", "bounds", "l2_bound", "image_shape", "importance", "constraints")
    declared = [
        f"{name}: declared public by the caller" for name in names if getattr(estimator, name, None) is not None
    ]
    # what the caller made beforehand may hold anything: the card says that nothing of the rows is taken to be in it
    declared += [
        f"{name}: an object of the caller's, taken for public"
        for name in ("net", "prior", "divergence")
        if not isinstance(getattr(estimator, name, None), str | None)
    ]
    kinds = "names, order and kinds (dtypes) of the columns" if isinstance(rows, FrameRows) else "number of columns"
    return [*declared, kinds, *rows.public_assumptions]
