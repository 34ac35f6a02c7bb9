"""Input validation: from the arguments of `fit` to the private rows, in one way for all synthesizers."""

from __future__ import annotations

from ..exceptions import InvalidInputError
from ..tabular._schema import check_unique
from ..utils.validation import validate_data, validate_rows
from .arrays import ArrayRows
from .frames import FrameRows
from .sources import open_source

__all__ = ["public_assumptions", "validate_input"]


def validate_input(estimator, X, y, *, conditional=True):
    """Validate the data and return its private rows.

    Parameters
    ----------
    estimator : BaseSynthesizer
        Its parameters declare public facts.
    X, y
        Arguments of `fit`.
    conditional : bool, default=True
        Whether the model has one prior for each class.

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
        _refuse(estimator, ("bounds", "l2_bound", "image_shape"), "for arrays; for a DataFrame, declare schema=")
        check_unique(source.head.columns)
        validate_data(estimator, source.head, skip_check_array=True)
        shared["importance"] = getattr(estimator, "importance", None)
        shared["constraints"] = getattr(estimator, "constraints", None)
        return FrameRows(source, y, target=estimator.target, schema=estimator.schema, **shared)
    _refuse(
        estimator,
        ("schema", "target", "importance", "constraints"),
        "for DataFrames; for an array, declare bounds= and give y",
    )
    X = validate_rows(estimator, X, order=None)
    return ArrayRows(
        X, y, bounds=estimator.bounds, l2_bound=estimator.l2_bound, image_shape=estimator.image_shape, **shared
    )


def _refuse(estimator, names, why):
    refused = [name for name in names if getattr(estimator, name, None) is not None]
    if refused:
        named = ", ".join(f"{name}=" for name in refused)
        raise InvalidInputError(f"leave out {named}, which {'is' if len(refused) == 1 else 'are'} {why}")


def public_assumptions(estimator, rows):
    """Facts that a fit takes for public, for the privacy card."""
    names = ("schema", "classes", "bounds", "l2_bound", "image_shape", "importance", "constraints")
    declared = [
        f"{name}: declared public by the caller" for name in names if getattr(estimator, name, None) is not None
    ]
    # an object of the caller may contain anything: the card says that it is assumed to contain nothing of the rows
    declared += [
        f"{name}: an object of the caller's, taken for public"
        for name in ("net", "prior", "divergence")
        if not isinstance(getattr(estimator, name, None), str | None)
    ]
    kinds = "names, order and kinds (dtypes) of the columns" if isinstance(rows, FrameRows) else "number of columns"
    return [*declared, kinds, *rows.public_assumptions]
