"""Synthetic rows from a fitted scikit-learn pipeline whose last step is a generator."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .._base import PrivateEstimator
from ..data.scaling import RowScaling
from ..tabular import TableEncoder

__all__ = ["sample_pipeline"]


def sample_pipeline(pipeline, n_samples=None, *, random_state=None, public_steps=()):
    """Sample the last step of a fitted pipeline, and map the rows back through the earlier steps.

    Post-processing of what the steps released: it charges nothing. So a step that learned from the rows without a
    charge is refused: a `StandardScaler` would give away the exact mean of each column, a `QuantileTransformer` real
    values. Steps that pass are private estimators, a `TableEncoder`, steps without fitted state
    (`FunctionTransformer`), and encoders with declared categories.

    Parameters
    ----------
    pipeline : sklearn.pipeline.Pipeline
        Fitted; the last step has ``sample``, the others ``inverse_transform``.
    n_samples : int, default=None
        None is the row count that the last step released.
    random_state : int, RandomState instance or None, default=None
        None advances the last step's own stream.
    public_steps : str or sequence of str, default=()
        Names of steps whose fitted state is public, by the caller's declaration: they were fitted on public rows, or
        what they hold is known to everybody. (A step fitted by the pipeline learned from the rows it was given.)

    Returns
    -------
    X or (X, y)
        As the last step's ``sample`` returns them, within the bounds that private steps declared or learned; component
        labels of a mixture fitted without y are left out.

    Raises
    ------
    TypeError
        A step has no ``inverse_transform``, or the last one no ``sample``.
    ValueError
        A step may hold what it learned from private rows, and `public_steps` does not name it; or `public_steps` names
        what is no step.

    Notes
    -----
    A step that learned from private rows also spoils the fits after it, whatever is sampled: one record moves the rows
    of all others, and what those fits charge is for moving one.
    """
    *steps, (name, generator) = pipeline.steps
    if not hasattr(generator, "sample"):
        raise TypeError(f"the last step {name!r} has no sample")
    steps = [(name, step) for name, step in steps if step is not None and step != "passthrough"]
    public = {public_steps} if isinstance(public_steps, str) else set(public_steps)
    if unknown := sorted(map(repr, public - {name for name, _ in steps})):
        raise ValueError(f"public_steps names what is no step before the last: {', '.join(unknown)}")
    for name, step in steps:
        if not hasattr(step, "inverse_transform"):
            raise TypeError(f"step {name!r} has no inverse_transform, so its input cannot be synthesized")
        if name not in public and not _holds_nothing_private(step):
            raise ValueError(
                f"step {name!r} ({type(step).__name__}) learned from the rows, and nothing was charged for it: its "
                "inverse_transform would reveal that, and the guarantee on the cards of later fits would not hold. "
                f"Leave it out (private steps take bounds=), or give public_steps=({name!r},) if it was fitted on "
                "public rows alone"
            )
    check_is_fitted(generator)
    drawn = generator.sample(n_samples, random_state=random_state)
    X, y = drawn if isinstance(drawn, tuple) else (drawn, None)
    for _, step in reversed(steps):
        X = step.inverse_transform(X)
        scaling = getattr(step, "scaling_", None)
        if isinstance(scaling, RowScaling):  # what goes back through components may leave the bounds of what came
            X = np.clip(X, scaling.lower, scaling.upper)
    return X if y is None or not hasattr(generator, "classes_") else (X, y)


def _holds_nothing_private(step):
    """Whether the fitted state of a step is released, declared, or none at all."""
    if isinstance(step, PrivateEstimator | TableEncoder):
        return True
    if isinstance(step, Pipeline):
        return all(inner is None or inner == "passthrough" or _holds_nothing_private(inner) for _, inner in step.steps)
    if not isinstance(step, BaseEstimator):
        return False  # it may have state: scikit-learn's tags do not say
    return not get_tags(step).requires_fit or _has_declared_categories(step)


def _has_declared_categories(step):
    """Whether a OneHotEncoder or OrdinalEncoder was given its categories, and counts none of them."""
    parameters = step.get_params(deep=False)
    counts = [parameters.get(name) for name in ("min_frequency", "max_categories")]
    declared = not isinstance(parameters.get("categories", "auto"), str)
    return declared and counts == [None, None] and type(step).__module__.startswith("sklearn.preprocessing.")
