"""Synthetic rows from a fitted scikit-learn pipeline whose last step is a generator."""

from __future__ import annotations

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._scaling import RowScaling

__all__ = ["sample_pipeline"]


def sample_pipeline(pipeline, n_samples=None, *, random_state=None):
    """Sample the last step of a fitted pipeline and take the rows back through the others.

    Post-processing of what the steps released: it charges nothing.

    Parameters
    ----------
    pipeline : sklearn.pipeline.Pipeline
        Fitted; the last step has ``sample``, the others ``inverse_transform``.
    n_samples : int, default=None
        None is the row count that the last step released.
    random_state : int, RandomState instance or None, default=None
        None advances the last step's own stream.

    Returns
    -------
    X or (X, y)
        As the last step's ``sample`` returns them, within the bounds that private steps declared or learned; component
        labels of a mixture fitted without y are left out.

    Raises
    ------
    TypeError
        A step has no ``inverse_transform``, or the last one no ``sample``.
    """
    *steps, (name, generator) = pipeline.steps
    if not hasattr(generator, "sample"):
        raise TypeError(f"the last step {name!r} has no sample")
    steps = [(name, step) for name, step in steps if step is not None and step != "passthrough"]
    for name, step in steps:
        if not hasattr(step, "inverse_transform"):
            raise TypeError(f"step {name!r} has no inverse_transform, so its input cannot be synthesized")
    check_is_fitted(generator)
    drawn = generator.sample(n_samples, random_state=random_state)
    X, y = drawn if isinstance(drawn, tuple) else (drawn, None)
    for _, step in reversed(steps):
        X = step.inverse_transform(X)
        scaling = getattr(step, "scaling_", None)
        if isinstance(scaling, RowScaling):  # what goes back through components may leave the bounds of what came
            X = np.clip(X, scaling.lower, scaling.upper)
    return X if y is None or not hasattr(generator, "classes_") else (X, y)
