"""Pipelines whose steps are charged: a pipeline that warns of others, and rows from a fitted one.

scikit-learn gives a step no view of its pipeline, so a private step cannot know whether an earlier one learned from the
rows. The pipeline knows: `PrivatePipeline` looks at its steps before it fits them, `sample_pipeline` at those of any
pipeline before it maps rows back.
"""

from __future__ import annotations

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._base import PrivateEstimator
from .._parameters import read_unit
from ..data.scaling import RowScaling
from ..exceptions import PrivacyLeakWarning, UtilityWarning
from ..tabular import TableEncoder
from ..utils.callers import warn_user
from ..utils.printing import listed


def _last_has(method):
    """Whether the last step has a method, as `available_if` asks."""
    return lambda pipeline: hasattr(pipeline.steps[-1][1], method)


class PrivatePipeline(Pipeline):
    """A pipeline that warns, before anything is charged, of steps that weaken the guarantee of others.

    A step that learns from the rows without a charge (a `StandardScaler`, say) moves all rows when one record changes,
    so that the guarantee on the cards of the steps after it does not hold, and what it learned leaves with whatever is
    mapped back. Private estimators, a `TableEncoder`, steps without fitted state and encoders with declared categories
    pass. Of a pipeline that is a step and has a private step, each step is looked at; its names are those of
    scikit-learn: ``inner__scaler``.

    If one private step protects units of several rows, by `groups` or `unit`, all must: what they release together
    protects the rows of a unit only as well as the step that protects one row. scikit-learn gives each step its own
    arguments: ``fit(X, pca__groups=ids, model__groups=ids)``.

    A step without fitted state passes unchecked. Its function must map each row by that row alone: in
    ``FunctionTransformer(scale)`` one record changes the rows of all others, as in a `StandardScaler`.

    What `transform`, `predict`, `predict_proba`, `score`, `score_samples` and `decision_function` return for real rows
    is computed from these rows without protection: do not publish it.

    Parameters
    ----------
    steps : list of (name, estimator)
        As in `sklearn.pipeline.Pipeline`.
    public_steps : str or sequence of str, default=()
        Names of steps whose fitted state is public, by the caller's declaration: ``FrozenEstimator(scaler)`` of a
        scaler that was fitted on public rows. The cards of the private steps after them say so.
    transform_input, memory, verbose
        As in `sklearn.pipeline.Pipeline`. A cache (`memory`) holds transformed private rows.

    See Also
    --------
    sample_pipeline : Rows from any fitted pipeline; it refuses such steps.

    Notes
    -----
    There is no ``save``: steps may be functions, which a file without code cannot hold. Keep a fitted pipeline by
    ``joblib.dump``, which only a reader who trusts you should load. A synthesizer that is the last step can be saved
    alone, ``pipeline[-1].save(path)``; it draws rows in transformed columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> from skdpgen import MomentSynthesizer, PrivatePipeline
    >>> logarithm = FunctionTransformer(np.log1p, np.expm1)
    >>> model = MomentSynthesizer(10.0, bounds=(0, 1), l2_bound=1.0)
    >>> pipeline = PrivatePipeline([("log", logarithm), ("model", model)])
    >>> pipeline.fit(np.random.default_rng(0).random((500, 2))).sample(3).shape
    (3, 2)
    """

    _parameter_constraints = {**Pipeline._parameter_constraints, "public_steps": [str, list, tuple]}

    def __init__(self, steps, *, public_steps=(), transform_input=None, memory=None, verbose=False):
        super().__init__(steps, transform_input=transform_input, memory=memory, verbose=verbose)
        self.public_steps = public_steps

    def fit(self, X, y=None, **params):
        """Fit all steps; a `PrivacyLeakWarning` names each that weakens the guarantee of others.

        **Privacy**: the private steps charge as they do alone. The cards of those after `public_steps` name these.

        Parameters
        ----------
        X, y, **params
            As in `sklearn.pipeline.Pipeline.fit`.

        Returns
        -------
        self
        """
        self._warn(params)
        super().fit(X, y, **params)
        return self._stated()

    @available_if(lambda self: _last_has("fit_transform")(self) or _last_has("transform")(self))
    def fit_transform(self, X, y=None, **params):
        """Fit all steps, and return the transformed rows, which must not be published; see `fit`."""
        self._warn(params)
        transformed = super().fit_transform(X, y, **params)
        self._stated()
        return transformed

    @available_if(_last_has("fit_predict"))
    def fit_predict(self, X, y=None, **params):
        """Fit all steps, and return the predictions of the rows, which must not be published; see `fit`."""
        self._warn(params)
        predicted = super().fit_predict(X, y, **params)
        self._stated()
        return predicted

    @available_if(_last_has("sample"))
    def sample(self, n_samples=None, *, random_state=None):
        """Draw rows from the last step and map them back through the others: `sample_pipeline` of this pipeline."""
        return sample_pipeline(self, n_samples, random_state=random_state)

    def _warn(self, params):
        _warn_of_units({name: _has_units(name, step, params) for name, step in _private_steps(self)})
        public, steps = _public_names(self, ()), list(_taken_apart(self))
        private = [k for k, (_, step) in enumerate(steps) if _is_private(step)]
        for name, step in steps[: private[-1]] if private else ():
            if _learns(step) and not _is_public(name, public):
                warn_user(
                    f"step {name!r} ({type(step).__name__}) learns from the rows, and nothing is charged for it: one "
                    "record can change the rows that all later steps see, so the guarantee on their cards does not "
                    f"hold. Leave it out (private steps take bounds=), or name it in public_steps=({name!r},) if it "
                    "was fitted on public rows alone",
                    PrivacyLeakWarning,
                )
        for name, step in _within_others(steps):
            if not _is_public(name, public):
                warn_user(
                    f"step {name!r} ({type(step).__name__}) learns from the rows, and nothing is charged for it: one "
                    "record can change the rows that the private step behind it sees, so the guarantee on its card "
                    "does not hold. Leave it out (private steps take bounds=)",
                    PrivacyLeakWarning,
                )
        if private and hasattr(self.steps[-1][1], "sample"):
            for name, step in self.steps[:-1]:
                if not _is_left_out(step) and not hasattr(step, "inverse_transform"):
                    warn_user(
                        f"step {name!r} ({type(step).__name__}) has no inverse_transform, so this pipeline cannot "
                        "sample rows like those it is given: its last step alone can sample, in transformed columns",
                        UtilityWarning,
                    )

    def _stated(self):
        _state_public(self, _public_names(self, ()))
        return self


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
        what they hold is known to everybody. (A step fitted by the pipeline learned from the rows it was given.) The
        card of the last step says so from then on.

    Returns
    -------
    X or (X, y)
        As the last step's ``sample`` returns them, within the bounds that private steps declared or learned; component
        labels of a mixture fitted without y are left out.

    Raises
    ------
    TypeError
        `pipeline` is no Pipeline, a step has no ``inverse_transform``, or the last one no ``sample``.
    NotFittedError
        The last step is not fitted.
    ValueError
        A step may hold what it learned from private rows, and `public_steps` does not name it; or `public_steps` names
        what is no step.

    Warns
    -----
    PrivacyLeakWarning
        Some private steps protect units of several rows, and others one row, as their cards say.

    Notes
    -----
    A step that learned from private rows also spoils the fits after it, whatever is sampled: one record moves the rows
    of all others, and what those fits charge is for moving one.
    """
    if not isinstance(pipeline, Pipeline):
        own = ": call its method sample" if hasattr(pipeline, "sample") else ""
        raise TypeError(f"sample_pipeline takes a fitted Pipeline, and not a {type(pipeline).__name__}{own}")
    *steps, (name, generator) = pipeline.steps
    if not hasattr(generator, "sample"):
        raise TypeError(f"the last step {name!r} has no sample")
    public = _public_names(pipeline, public_steps)
    check_is_fitted(generator, msg="this pipeline is not fitted: call its fit before sample_pipeline")
    steps = [(name, step) for name, step in steps if not _is_left_out(step)]
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
    cards = {name: step.card_ for name, step in _private_steps(pipeline) if hasattr(step, "card_")}
    _warn_of_units({name: card.charges[0].unit is not None for name, card in cards.items() if card.charges})
    _state_public(pipeline, public)
    drawn = generator.sample(n_samples, random_state=random_state)
    X, y = drawn if isinstance(drawn, tuple) else (drawn, None)
    for _, step in reversed(steps):
        X = step.inverse_transform(X)
        scaling = getattr(step, "scaling_", None)
        if isinstance(scaling, RowScaling):  # what goes back through components may leave the bounds of what came
            X = np.clip(X, scaling.lower, scaling.upper)
    return X if y is None or not hasattr(generator, "classes_") else (X, y)


def _private_steps(pipeline):
    """Yield names and steps that are private estimators, those of inner pipelines too."""
    return ((name, step) for name, step in _taken_apart(pipeline) if isinstance(step, PrivateEstimator))


def _has_units(name, step, params):
    """Whether a step protects units of several rows: by its parameters and by the names of what `fit` is given."""
    if read_unit(step.get_params(deep=False)).name is not None:
        return True
    groups = f"{name}__groups"
    if get_config()["enable_metadata_routing"]:
        asked = step.get_metadata_routing().fit.requests.get("groups")
        groups = {True: "groups", False: None}.get(asked, asked)
    return params.get(groups) is not None


def _warn_of_units(has_units):
    """Warn where some private steps protect units and others rows; `has_units`: name -> whether it protects units."""
    rows = [name for name, units in has_units.items() if not units]
    units = [name for name, found in has_units.items() if found]
    if rows and units:
        arguments = ", ".join(f"{name}__groups=..." for name in has_units)
        warn_user(
            f"private steps protect all rows of a unit ({listed(units)}), and others one row ({listed(rows)}): what "
            "they release together protects a unit of several rows less than the cards of the former say. Give the "
            f"identifiers to every private step: fit(X, {arguments})",
            PrivacyLeakWarning,
        )


def _is_left_out(step):
    return step is None or (isinstance(step, str) and step == "passthrough")


def _public_names(pipeline, more):
    """Names of the steps that the caller declares public, of the pipeline and of the call."""
    public = {*_declared(pipeline), *((more,) if isinstance(more, str) else more)}
    steps = [*pipeline.steps[:-1], *list(_taken_apart(pipeline))[:-1]]
    known = {name for name, step in steps if not _is_left_out(step)}
    if unknown := sorted(map(repr, public - known)):
        raise ValueError(f"public_steps names what is no step before the last: {', '.join(unknown)}")
    return public


def _declared(pipeline):
    """Yield the names of steps that a pipeline, and those within it, declare public."""
    names = getattr(pipeline, "public_steps", ())
    yield from (names,) if isinstance(names, str) else names
    for name, step in pipeline.steps:
        if isinstance(step, Pipeline) and _is_private(step):
            yield from (f"{name}__{inner}" for inner in _declared(step))


def _taken_apart(pipeline, within=""):
    """Yield names and steps, with those of inner pipelines that have a private step in the place of these pipelines."""
    for name, step in pipeline.steps:
        if isinstance(step, Pipeline) and _is_private(step):
            yield from _taken_apart(step, f"{within}{name}__")
        else:
            yield f"{within}{name}", step


def _within_others(steps):
    """Names and steps that learn before a private one, in pipelines that a ColumnTransformer or the like has."""
    found = {}
    for name, step in steps:
        if isinstance(step, PrivateEstimator | Pipeline) or not _is_private(step):
            continue  # steps of pipelines are looked at one by one
        for inner, part in step.get_params(deep=True).items():
            if not (isinstance(part, Pipeline) and _is_private(part)):
                continue
            within = list(_taken_apart(part, f"{name}__{inner}__"))
            last = max(k for k, (_, one) in enumerate(within) if _is_private(one))
            found.update((of, one) for of, one in within[:last] if _learns(one))
    return found.items()


def _learns(step):
    return not _is_left_out(step) and not _holds_nothing_private(step)


def _is_private(step):
    """Whether a step is a private estimator, or has one among its steps or parameters."""
    parts = step.get_params(deep=True).values() if isinstance(step, BaseEstimator) else ()
    return any(isinstance(part, PrivateEstimator) for part in (step, *parts))


def _is_public(name, public):
    """Whether a step, or the inner pipeline that it is in, was declared public."""
    parts = name.split("__")
    return any("__".join(parts[:n]) in public for n in range(1, len(parts) + 1))


def _state_public(pipeline, public):
    """Say on the cards of the private steps after a step that it was declared public."""
    texts = []
    for name, step in _taken_apart(pipeline):
        if _is_public(name, public) and not isinstance(step, PrivateEstimator):
            texts.append(f"step {name!r} ({type(step).__name__}) of the pipeline: declared public by the caller")
        elif texts and hasattr(step, "card_"):
            step.card_ = step.card_.with_assumptions(*texts)


def _holds_nothing_private(step):
    """Whether the fitted state of a step is released, declared, or none at all."""
    if isinstance(step, PrivateEstimator | TableEncoder):
        return True
    if isinstance(step, Pipeline):
        return all(_is_left_out(inner) or _holds_nothing_private(inner) for _, inner in step.steps)
    if not isinstance(step, BaseEstimator):
        return False  # it may have state: scikit-learn's tags do not say
    return not get_tags(step).requires_fit or _has_declared_categories(step)


def _has_declared_categories(step):
    """Whether a OneHotEncoder or OrdinalEncoder was given its categories, and counts none of them."""
    if type(step) not in (OneHotEncoder, OrdinalEncoder):  # a TargetEncoder has categories too, and learns from y
        return False
    return not isinstance(step.categories, str) and (step.min_frequency, step.max_categories) == (None, None)
