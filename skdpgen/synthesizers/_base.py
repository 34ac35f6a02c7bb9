"""What synthesizers share: the flow of a fit, sampling in the container that was fitted, and release files."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np
import pandas as pd
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .._base import PRIVACY_CONSTRAINTS, PrivateEstimator
from .._parameters import DPSGD, SPLIT_CONSTRAINTS, flat_parameters, object_of
from .._types import UnitRelation
from ..accounting import FitPlan, PrivacyCard
from ..data.frames import FrameRows
from ..data.labels import check_list_of_classes
from ..data.rows_per_unit import LABEL as MAX_ROWS
from ..data.rows_per_unit import LearnedRowsMixin, OpenUnit, release_max_rows
from ..data.units import draw_key
from ..data.validation import columns_of, public_assumptions
from ..exceptions import InvalidInputError, PrivacyLeakWarning
from ..generators.components import component_chunks, join_chunks
from ..generators.constraints import keep_constraints, read_constraints
from ..mechanisms import add_gaussian
from ..mechanisms._gaussian import Count
from ..tabular import Schema
from ..tabular._columns import KINDS
from ..tabular._constraints import constraint_texts
from ..utils.callers import warn_user
from ..utils.file_checks import check_loaded, check_whole
from ..utils.foreign_tables import to_library, to_pandas
from ..utils.numerics import each_in_usual_numerics, usual_numerics
from ..utils.printing import listed, shown
from ..utils.progress import progress_bar, shows_bars
from ..utils.validation import (
    ClassNamePrefixFeaturesOutMixin,
    InvalidParameterError,
    StrOptions,
    as_numbers,
    fit_context,
    validate_coordinates,
    validate_data,
    validate_rows,
)
from ._checkpoint import FitCheckpoint, describe_rows
from ._count_errors import (
    PlannedTable,
    point_out_few_rows,
    point_out_hidden_classes,
    point_out_learned_classes,
    point_out_learned_combinations,
    point_out_learned_labels,
)
from ._released import ReleasedModel, recorded_parameters, save_state
from ._summary import summarize
from ._training import plan_phases

# Parameters of every synthesizer: the budget, and what is public of the data.
DATA_CONSTRAINTS = {
    **PRIVACY_CONSTRAINTS,
    "target": "no_validation",
    "schema": [Schema, None],
    "classes": ["array-like", range, None],
    "target_type": [StrOptions({"categorical", "numeric"}), None],
    "bounds": ["array-like", None],
    **SPLIT_CONSTRAINTS,
    "on_invalid": [StrOptions({"clip", "raise"})],
    "progress": ["boolean", StrOptions({"auto"})],
}
# Parameters of those that train a network by DP-SGD.
TRAINING_CONSTRAINTS = {"training": [DPSGD, None], "checkpoint": [str, os.PathLike, None]}

# Rows, and values, that are drawn at once. Part of what a seed means: more rows are drawn in chunks of this size.
_CHUNK_ROWS, _CHUNK_VALUES = 100_000, 2**24
# numpy's hypergeometric draws take fewer than this.
_MOST_ROWS = 10**9

# Values (2.4 GB) of a sample whose size a model file states and the caller does not.
_MOST_CELLS = 300_000_000


class BaseSynthesizer(LearnedRowsMixin, PrivateEstimator):
    """Base of the synthesizers: a fit releases a `ReleasedModel`, which is all that `sample` and `save` need.

    A subclass has `_prepare`, which returns ``(rows, settings), plan``, `_release`, and `_model_class` or
    `_model_from_state`. A **Privacy** paragraph of its docstring says which releases of the model `fit` charges.
    """

    _model_class = ReleasedModel

    _takes_tables = True
    _training_defaults = {}  # parameters of `training` that the synthesizer takes, and their defaults

    # ---- fitting ----------------------------------------------------------------------------------------------------
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, groups=None):
        """Release a generative model of the rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            Rows, one for each person, or with `unit` several. Arrays hold finite numbers. A table may be one of polars
            or pyarrow: samples then are too. `MomentSynthesizer` also takes a DataFrame in chunks.
        y : array-like of shape (n_samples,) or (n_samples, 1), or table with one column, default=None
            Labels; `sample` then returns (X, y). Not allowed with `target`.
        groups : array-like of shape (n_samples,), default=None
            Identifiers of the units of the rows, of any dtype, for rows in memory; a DataFrame may have them in its
            column `unit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, InvalidInputError, SchemaError
            Parameters contradict one another, or the data do not fit what was declared; nothing was charged.
        BudgetExceededError
            The accountant does not allow the fit; nothing was charged.

        Notes
        -----
        **Privacy.** The unit is one row, or all rows of one `unit`, under `neighboring`. Charged before anything is
        released, as one composed event that costs (`epsilon`, `delta`): one Gaussian event for each kind of fact not
        declared (at its part of `budget_split`; learned categories also spend a tenth of `delta`), one for the number
        of rows where each unit counts 1, and what the **Privacy** paragraph of the class names.
        """
        return self._fit(X, y, groups)

    def _planner(self, accountant):
        if getattr(self, "checkpoint", None) is None:
            return accountant
        self._checkpoint = FitCheckpoint(self.checkpoint, accountant, self)
        return self._checkpoint.planner

    def _relation(self, accountant):
        """The relation of this fit before it is planned: between rows, or between all rows of a unit."""
        relation = accountant.neighboring
        return relation if self._unit is None else UnitRelation(relation, self._unit)

    def _check_rows(self, rows):
        if isinstance(rows[0], FrameRows):
            rows[0].refuse_readings()

    def _check_prepared(self, rows, plan):
        if isinstance(rows[0], FrameRows):
            point_out_few_rows(*rows, plan)
            point_out_learned_classes(rows[0], plan)
            point_out_learned_combinations(rows[0], plan)
        elif rows[0].learns_classes:
            point_out_learned_labels(rows[0].labels, plan, may_be_quantity=rows[0].image_shape is None)
        if (checkpoint := self._open_checkpoint) is not None:
            checkpoint.check(plan, describe_rows(self, rows[0], plan.relation))

    def _charge(self, accountant, plan, reservation=None):
        rng = super()._charge(accountant, plan, reservation)
        if (checkpoint := self._open_checkpoint) is not None:
            self.accountant_ = checkpoint.accountant
            checkpoint.charged(plan, self._receipt)
        return rng

    def _complete(self, rows, plan, rng):
        rows, settings = rows
        checkpoint = self._open_checkpoint
        if plan.unit is not None:
            plan = _settled(rows, plan, rng, checkpoint)
            rows.choose(once(checkpoint, "key", lambda: draw_key(rng)))
        fit = ChargedFit(plan, rng, plan.relation, self._receipt, self._sampling_stream, checkpoint)
        self._set_model(self._release(rows, settings, fit))
        if plan.unit is not None:
            self.max_rows_per_unit_ = plan.unit.max_rows
        noise = self.model_.gradient_noise if checkpoint is None else checkpoint.noise(self.model_.gradient_noise)
        self._issue_card(plan, rng, self._public_assumptions(rows), noise, columns_of(self, rows))
        if checkpoint is not None:
            checkpoint.complete(self)
            del self._checkpoint
        if self.model_.kind == "frame":
            for text in self.summary_.warnings():
                warn_user(text)

    def _how_to_go_on(self):
        checkpoint = self._open_checkpoint
        return None if checkpoint is None else checkpoint.how_to_go_on

    @property
    def _open_checkpoint(self):
        """Checkpoint of the fit that is being made, or None."""
        return vars(self).get("_checkpoint")

    def _validate_params(self):
        schema = getattr(self, "schema", None)
        columns = list(schema.values()) if isinstance(schema, dict) else schema
        columns = columns if isinstance(columns, list | tuple) else [columns]
        if columns and all(isinstance(column, tuple(KINDS.values())) for column in columns):
            first = f"{type(columns[0]).__name__}({columns[0].name!r}, ...)"
            raise InvalidParameterError(
                f"schema= takes a Schema of columns: schema=skdpgen.Schema([{first}{', ...' * (len(columns) > 1)}])"
            )
        if isinstance(schema, str | os.PathLike | dict):  # whose text may be a private path
            raise InvalidParameterError(
                "schema= takes a Schema: read it from its JSON file by skdpgen.Schema.load(path), or from a dict by "
                "Schema.from_dict"
            )
        super()._validate_params()

    def _release(self, rows, settings, fit):
        """Make all releases of a charged fit: the one place where private rows reach a model.

        `rows`: private. `settings`: as `_prepare` returned them: public. `fit`: the plan as it was charged, with the
        noise of each release.
        """
        raise NotImplementedError

    def _describe(self, prepared, plan):
        rows, settings = prepared
        return replace(plan, table=PlannedTable.of(rows, settings)) if isinstance(rows, FrameRows) else plan

    def _public_assumptions(self, rows):
        return public_assumptions(self, rows)

    def _calibrate_phases(self, accountant, rows, phases):
        return self._calibrate(accountant, phases, learns_names=rows.learns_classes)

    def _plan_training(self, accountant, rows, settings, label="training"):
        """Return the calibrated plan of a fit that trains networks: facts that are not declared, then the steps."""
        phases = plan_phases(rows, settings, self._share("bounds"), self._relation(accountant), label)
        return self._calibrate_phases(accountant, rows, phases)

    def _card_parameters(self):
        """Constructor parameters; what `training` leaves open is stated too, where nothing else sets it."""
        parameters, names = self.get_params(deep=False), self._training_defaults
        flat = flat_parameters(self)
        elsewhere = ["preset", *(("batch_size", "epochs") if "epochs" in names else ())]
        if names.get("steps") is not None and all(flat.get(name) is None for name in elsewhere):
            parameters["training"] = object_of(type(self), "training")(**{name: flat[name] for name in names})
        return parameters

    def _resolve(self, **options):
        """Constructor parameters, with those of the objects among them; see `resolve_parameters` for `options`."""
        training = getattr(self, "training", None)
        named = training.get_params(deep=False).items() if isinstance(training, DPSGD) else ()
        named = [name for name, value in named if value is not None]
        return resolve_parameters(flat_parameters(self), flat_parameters(type(self)()), named=named, **options)

    def _rows_like_fit(self, X):
        """Rows to be used with the fitted model, validated."""
        if self.model_.kind == "array":
            return validate_rows(self, X, reset=False)
        X = to_pandas(X)
        if not isinstance(X, pd.DataFrame):
            raise InvalidInputError("the model was fitted on a DataFrame: give a DataFrame")
        unit = self._asked_unit.name
        if unit is not None and unit in X.columns:  # identifiers are not modelled
            X = X.drop(columns=unit)
        validate_data(self, X, reset=False, skip_check_array=True)
        return X

    # ---- sampling ---------------------------------------------------------------------------------------------------
    def sample(self, n_samples=None, *, y=None, class_ratio=None, random_state=None):
        """Draw synthetic rows: post-processing, which charges nothing.

        Parameters
        ----------
        n_samples : int, default=None
            Number of rows; None: the released row count, or the length of `y` if that is given.
        y : array-like of shape (n_samples,) or (n_samples, 1), or table with one column, default=None
            Class of each row, for a class-conditional model.
        class_ratio : dict, array of shape (n_classes,) or "balanced", default=None
            Share of each class, by class or in the order of `classes_`; a dict may name "other" and missing (None) too.
            "balanced" gives all classes the same share, and "other" and missing none; None: the released shares.
        random_state : int, RandomState, Generator or None, default=None
            Seed of the draw. None: the next values of the estimator's stream, so that two calls differ; an integer
            gives the same rows in each call.

        Returns
        -------
        DataFrame or array, or (X, y)
            Rows of the kind that was fitted; a pair if `fit` was given y. For more rows than memory holds see
            `sample_chunks`.
        """
        check_is_fitted(self)
        return self._join(self._chunks(n_samples, y, class_ratio, random_state), n_samples, y)

    def sample_chunks(self, n_samples=None, *, y=None, class_ratio=None, random_state=None):
        """Draw synthetic rows in chunks, when they do not fit into memory: charges nothing.

        Joined, the chunks are what `sample` with these arguments returns, row for row. Each has at most 100,000 rows,
        and fewer if there are more than 167 columns (2**24 values). The rows of a seed depend on these numbers.

        Parameters
        ----------
        n_samples, y, class_ratio, random_state
            As in `sample`. With None as `random_state` the stream advances as chunks are taken.

        Yields
        ------
        DataFrame or array, or (X, y)
            As `sample` returns them.

        Examples
        --------
        >>> import numpy as np
        >>> from skdpgen import MomentSynthesizer
        >>> X = np.random.default_rng(0).random((500, 2))
        >>> synth = MomentSynthesizer(10.0, bounds=(0, 1), l2_bound=1.0).fit(X)
        >>> sum(len(chunk) for chunk in synth.sample_chunks(250_000))
        250000
        """
        check_is_fitted(self)
        return self._of_library(self._chunks(n_samples, y, class_ratio, random_state))

    @usual_numerics()
    def _chunks(self, n_samples, y, class_ratio, random_state, given=None):
        constraints = self._drawn_again()
        rng = self._sampler(random_state)
        model = self.model_ if given is None else self.model_.given(given)
        constraints += getattr(model, "conditions_left", [])
        parts = self._components(model, n_samples, y, class_ratio, rng)
        fixed = y is not None or class_ratio is not None
        if constraints:
            chunks = (keep_constraints(model, constraints, part, fixed, rng) for part in parts)
        else:
            chunks = (model.sample(part, rng) for part in parts)
        # keys come last: rows that were drawn again use none up, and none occurs twice in all chunks
        return each_in_usual_numerics(self._with_keys(chunks))

    def _join(self, chunks, n_samples=None, y=None):
        """Join the chunks of a sample, with a progress bar for tables: rows of images have one already."""
        n = len(y) if y is not None else self.model_.row_count if n_samples is None else n_samples
        if self.model_.kind == "frame" and n > self._rows_at_once and shows_bars(self.progress):
            total = math.ceil(n / self._rows_at_once)
            chunks = progress_bar(chunks, phase="synthetic rows", shown=True, total=total, unit="chunk")
        return to_library(join_chunks(chunks), self._library)

    def _of_library(self, chunks):
        """Chunks as tables of the library whose table was fitted."""
        return chunks if self._library is None else (to_library(chunk, self._library) for chunk in chunks)

    def _with_keys(self, chunks):
        """Chunks of rows with fresh keys, where the schema has identifiers."""
        return self.model_.codec.with_keys(chunks) if self.model_.kind == "frame" else chunks

    def relax(self, *constraints):
        """Let samples violate constraints for which rows are drawn again: charges nothing.

        Parameters
        ----------
        *constraints : str
            Texts of constraints of `schema` or of `constraints`, as they were given. They replace those of an earlier
            call: without texts, all constraints hold again. Those that hold by construction cannot be relaxed.

        Returns
        -------
        self
            A saved model does not keep what was relaxed.
        """
        check_is_fitted(self)
        earlier, self._relaxed = self._relaxed, ()
        texts = dict.fromkeys(one.text for one in self._drawn_again())
        self._relaxed = earlier
        if unknown := [text for text in constraints if text not in texts]:
            raise ValueError(
                f"relax: rows are not drawn again for {shown(unknown[0])}; they are for {listed(texts) or 'nothing'}"
            )
        self._relaxed = constraints
        return self

    def _drawn_again(self):
        """The constraints that are not satisfied by construction: rows that violate one are drawn again."""
        given = constraint_texts(getattr(self, "constraints", None))
        if self.model_.kind != "frame":
            if given:
                raise ValueError("constraints is for DataFrames, and this was fitted on an array")
            return []
        construction, checks = self.model_.codec.construction, []
        if construction is not None:
            checks = construction.checks(self.model_.codec.drawn_schema)
            given = (*construction.left, *(text for text in given if text not in construction.table.constraints))
        drawn_again = read_constraints(given, self.model_.codec.schema) + checks
        return [one for one in drawn_again if one.text not in self._relaxed]

    def _components(self, model, n_samples, y, class_ratio, rng):
        """Components (classes) of the rows of each chunk to be drawn: an iterator of arrays."""
        size = self._rows_at_once
        if y is not None:
            check_list_of_classes(y)
            if class_ratio is not None or (n_samples is not None and n_samples != len(y)):
                raise ValueError("y fixes the number of rows and the class of each: give it alone")
            codes = self._conditional("y").class_codes(y)
            point_out_hidden_classes(model, codes)
            return (codes[start : start + size] for start in range(0, max(len(codes), 1), size))
        n = max(1, round(model.row_count)) if n_samples is None else n_samples
        if n_samples is None and getattr(self, "_row_count_is_stated", False) and n * self.n_features_in_ > _MOST_CELLS:
            raise ValueError(
                f"the file states {n} rows of {self.n_features_in_} columns, which may not fit into memory: say how "
                "many are wanted (n_samples=, --rows)"
            )
        if isinstance(n, bool) or not isinstance(n, Real) or n % 1 or n < 1:
            raise ValueError(f"n_samples must be a positive integer; got {shown(n_samples)}")
        if n >= _MOST_ROWS:
            raise ValueError(f"n_samples must be below {_MOST_ROWS:,} in one call; got {shown(n_samples)}")
        weights = model.component_weights
        if class_ratio is not None:
            weights = self._ratio(class_ratio)
            point_out_hidden_classes(model, np.flatnonzero(weights))
        return component_chunks(int(n), weights, size, rng)

    @property
    def _rows_at_once(self):
        """Rows of a chunk of a sample, at most."""
        return max(1, min(_CHUNK_ROWS, _CHUNK_VALUES // (self.n_features_in_ + 1)))

    def _conditional(self, name):
        if not self.model_.codec.n_classes:
            has_given = self.model_.kind == "frame" and hasattr(self.model_, "given")
            given = "; sample(n, given={...}) draws rows with given values" if has_given else ""
            raise ValueError(f"{name} needs a class-conditional model: fit with a categorical y or target{given}")
        return self.model_.codec

    def _named(self):
        """Classes of `classes_` among all of the model, which may have "other" and missing too; bool array."""
        codec = self._conditional("class_ratio")
        return codec.named_classes if self.model_.kind == "frame" else np.ones(codec.n_classes, dtype=bool)

    def _ratio(self, class_ratio):
        classes = list(self._conditional("class_ratio").classes)
        if isinstance(class_ratio, str):
            if class_ratio != "balanced":
                raise ValueError(f'class_ratio must be "balanced", a dict, or an array; got {class_ratio!r}')
            return self._named().astype(np.float64)
        if isinstance(class_ratio, dict):
            left_out = len(classes) > len(class_ratio) and sum(class_ratio.values()) < 1 - 1e-6
            if left_out and all(c in classes for c in class_ratio):
                left, total = [c for c in classes if c not in class_ratio], sum(class_ratio.values())
                raise ValueError(
                    f"class_ratio leaves out {listed(left)}, and its shares sum to {total:g}, which is less than 1: "
                    "give all shares"
                )
            if unknown := [c for c in class_ratio if c not in classes]:
                raise ValueError(
                    f"class_ratio: no class {listed(unknown, 5)} in the model; it has {listed(classes, 20)}"
                )
            class_ratio = [class_ratio.get(c, 0.0) for c in classes]
        ratio = as_numbers(class_ratio, "class_ratio", "")
        if np.shape(ratio) == np.shape(self.class_ratio_):
            ratio, given = np.zeros(len(classes)), ratio
            ratio[self._named()] = given.ravel()
        if ratio.shape != (len(classes),) or not np.isfinite(ratio).all() or ratio.min() < 0 or not ratio.sum() > 0:
            shape = " x ".join(map(str, np.shape(self.class_ratio_)))
            raise ValueError(
                f"class_ratio must hold {shape} shares, not negative and not all zero, of {listed(classes, 20)}; got "
                f"{shown(class_ratio)}"
            )
        return ratio

    def as_frame(self, drawn):
        """Return what `sample` drew as one DataFrame, for writing to a file.

        Parameters
        ----------
        drawn : DataFrame, array or (X, y)

        Returns
        -------
        DataFrame
            Columns of the fitted frame, or x0, x1, ...; y last, under its name or "y".
        """
        X, y = map(to_pandas, drawn if isinstance(drawn, tuple) else (drawn, None))
        if not isinstance(X, pd.DataFrame):
            names = getattr(self, "feature_names_in_", [f"x{i}" for i in range(X.shape[1])])
            X = pd.DataFrame(X, columns=list(names))
        if y is None:
            return X
        name = getattr(y, "name", None)
        name = "y" if name is None else str(name)
        while name in X.columns:
            name += "_"
        return X.assign(**{name: y.array if isinstance(y, pd.Series) else y})

    # ---- release files ----------------------------------------------------------------------------------------------
    def save(self, path):
        """Write the released model to one .safetensors file: schema, parameters and card in its header, no pickle.

        Parameters
        ----------
        path : str or Path
            File to write, ending in .safetensors; ``skdpgen.load`` reads it.

        Notes
        -----
        The file has what `sample` needs. Of a network that replaces the released decoder (`P3GMSynthesizer`), it lacks
        the variance of the encoder: `score` and `score_samples` of the loaded model then raise a ValueError.
        """
        check_is_fitted(self)
        save_state(path, type(self).__name__, self._to_state())

    def _to_state(self):
        names = getattr(self, "feature_names_in_", None)
        return {
            "card": self.card_.to_json(),
            "model": self.model_.to_state(),
            "n_features_in": int(self.n_features_in_),
            "feature_names_in": None if names is None else list(names),
        }

    @classmethod
    def _model_from_state(cls, state):
        return cls._model_class.from_state(state)

    @classmethod
    def _from_state(cls, state):
        """Fitted estimator of a release file, with a detached accountant."""
        card = PrivacyCard.from_json(state["card"])
        card.verify()
        epsilon = card["fit"]["epsilon_asked"]
        epsilon = np.inf if epsilon == "inf" else epsilon
        self = cls(epsilon=epsilon, delta=card["fit"]["delta"], neighboring=card["neighboring"])
        self.n_features_in_ = check_whole(state["n_features_in"], "n_features_in", 1)
        if state["feature_names_in"] is not None:
            self.feature_names_in_ = np.array(state["feature_names_in"], dtype=object)
        self.set_params(**recorded_parameters(card, cls))
        # a budget may be any that an accountant took, beyond what `epsilon` and `delta` of a fit may be
        type(self)(**{**self.get_params(deep=False), "epsilon": None, "delta": None})._validate_params()
        self.accountant_ = card.accountant()
        self._sampling_stream = np.random.default_rng()
        self._set_model(cls._model_from_state(state["model"]))
        if card["model"]["parameters"].get("schema") is not None and "schema" in self.get_params(deep=False):
            self.schema = self.schema_
        self.card_ = card
        if isinstance(card.relation, UnitRelation):
            self.max_rows_per_unit_ = card.relation.unit.max_rows
        check_loaded(self)
        self._row_count_is_stated = True
        return self

    def _issue_card(self, plan, rng, public_assumptions, gradient_noise=None, columns=None, declared=None):
        super()._issue_card(plan, rng, public_assumptions, gradient_noise, columns, declared)
        if plan.delta * self.row_count_ >= 1:
            whose = "one or two rows" if plan.unit is None else "all rows of one or two units"
            warn_user(
                f"delta={plan.delta:g} is not below one row in {self.row_count_:.0f}: at such a delta, a mechanism "
                f"that publishes {whose} unchanged satisfies the definition. Choose a delta far below 1 / rows",
                PrivacyLeakWarning,
            )

    @property
    def summary_(self):
        """FitSummary: of a DataFrame, what the fit kept and lost of each column, from released values alone."""
        check_is_fitted(self)
        if self.model_.kind != "frame":
            raise AttributeError("summary_ is of fits to DataFrames, and this was fitted to an array")
        if "_summary" not in vars(self):
            self._summary = summarize(self.model_, self.card_, getattr(self, "importance", None))
        return self._summary

    def _released(self):
        return self.model_

    def _set_model(self, model):
        """Set the fitted attributes that follow from the released model."""
        self.model_, self._relaxed = model, ()
        self.row_count_ = model.row_count
        if hasattr(model.codec, "encoder"):
            self.schema_ = model.codec.schema
        else:
            scaling, n_features = model.codec.scaling, model.codec.n_features
            self.bounds_ = np.column_stack([scaling.lower, scaling.upper])[:n_features]
        if model.codec.n_classes:
            self._set_classes(model)

    def _set_classes(self, model):
        """Set the classes and their shares; "other" and missing are no classes, and have their shares apart."""
        codec, ratio = model.codec, model.class_ratio
        if model.kind == "array":
            self.classes_, self.class_ratio_, self.rest_ratio_ = np.array(codec.classes), ratio, {}
            return
        kept = [np.flatnonzero(codec.named(block)) for block in codec.target_blocks]
        classes = [np.array([block.levels[i] for i in at]) for block, at in zip(codec.target_blocks, kept)]
        self.classes_ = classes if isinstance(codec.target, tuple) else classes[0]
        self.class_ratio_ = ratio.reshape(codec.class_shape)[np.ix_(*kept)]
        rest = np.flatnonzero(~codec.named_classes)
        self.rest_ratio_ = {codec.classes[k]: float(ratio[k]) for k in rest}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = False
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags


def _settled(rows, plan, rng, checkpoint):
    """The plan of a fit with the number of rows of a unit that are used, which may be learned: the first release."""
    if not isinstance(plan.unit, OpenUnit):
        return plan
    noise, relation = plan.noise_multipliers[MAX_ROWS], plan.relation
    unit = plan.unit.closed(once(checkpoint, "max_rows", lambda: release_max_rows(rows, noise, rng, relation).max_rows))
    rows.settle(unit)
    rng.unit = unit  # all further noise is for so many rows
    return replace(plan, unit=unit)


class LatentTransformerMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """`transform` to latents and `inverse_transform` from them, for models that release an encoder."""

    @usual_numerics()
    def transform(self, X):
        """Return the latents of rows, shape (n_samples, n_components).

        The encoder is released. The latent of a record is computed from that record without protection: do not publish
        it.
        """
        check_is_fitted(self)
        return self.model_.encode(self._rows_like_fit(X))

    @usual_numerics()
    def inverse_transform(self, X):
        """Return rows (a DataFrame where one was fitted) from latents; levels are drawn from their distribution."""
        check_is_fitted(self)
        latent = validate_coordinates(X, self.model_.n_latent)
        rows = join_chunks(self._with_keys([self.model_.decode(latent, self._sampling_stream)]))
        return to_library(rows, self._library)

    @property
    def _n_features_out(self):
        return self.model_.n_latent


# ---- constructor parameters ------------------------------------------------------------------------------------------
def resolve_parameters(parameters, defaults, *, named=(), presets=None, acts=None):
    """Return the parameters of a synthesizer, a preset's in the place of those it concerns.

    `parameters`, `defaults`: what was asked for, and the defaults, as `flat_parameters` gives them.
    `named`: parameters that were given, even where the value is the default.
    `presets`: name of a preset -> its parameters: a dict, or a function that raises ValueError for an unknown name.
    `acts`: name of a parameter -> (name of another, its values under which the first has an effect).
    Raises ValueError: parameters that contradict one another, or that would do nothing in this combination.
    """
    settings = {name: value for name, value in parameters.items() if name != "accountant"}
    given = {name for name in settings if name in defaults and not _same(settings[name], defaults[name])}
    given |= set(named)
    if settings.get("preset") is not None:
        preset = dict(presets(settings["preset"]) if callable(presets) else _preset(presets, settings["preset"]))
        split = settings["budget_split"]
        if split is not None and not split.keys() & preset.get("budget_split", {}).keys():
            preset["budget_split"] = {**split, **preset.get("budget_split", {})}  # such as the share of "bounds"
            given -= {"budget_split"}
        if both := sorted(name for name in given & preset.keys() if not _same(settings[name], preset[name])):
            raise ValueError(f"preset={settings['preset']!r} sets {', '.join(both)}: leave out the one or the other")
        settings.update(preset)
    for name, (switch, values) in (acts or {}).items():
        if name in given and settings[switch] not in values:
            of = " of training=" if name in DPSGD._get_param_names() else ""
            raise ValueError(f"{name}={of} is used only with {switch}={' or '.join(map(repr, values))}")
    for name, other in (("sampling_rate", "batch_size"), ("steps", "epochs")):
        if "epochs" in settings and settings[other] is not None and name in given:
            raise ValueError(f"{name} and {other} set the same thing: give one of them")
    if settings["image_shape"] is not None and settings["target"] is not None:
        raise ValueError("image_shape is for arrays, target for DataFrames")
    return settings


def _preset(presets, name):
    if name not in presets:
        raise ValueError(f"preset must be one of {', '.join(map(repr, presets))}; got {name!r}")
    return presets[name]


def _same(one, other):
    plain = (str, Real, tuple)  # other arrays and objects are never a default
    one, other = _as_tuple(one), _as_tuple(other)
    return one is other or (isinstance(one, plain) and isinstance(other, plain) and one == other)


def _as_tuple(value):
    """Sizes as a tuple, where they are a list or an array; anything else as it is."""
    listed = isinstance(value, list) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return tuple(value) if listed and all(isinstance(size, Real) for size in value) else value


# ---- a charged fit ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class ChargedFit:
    """What the releases of a fit need, once it is charged."""

    plan: FitPlan  # as it was charged
    rng: object  # NoiseGenerator; the noise of all releases
    neighboring: object  # str or UnitRelation; the relation that the noise of the releases follows
    receipt: object  # Receipt; covers the plans of DP-SGD
    # for what needs no privacy: initialisation of EM, synthetic rows. It may follow `random_state`.
    stream: np.random.Generator
    checkpoint: object | None = None  # FitCheckpoint, where the fit is written, and from which it goes on

    @property
    def noise(self):
        """Noise multiplier of each release, by its label; of a fit that goes on, of the training alone."""
        noise = self.plan.noise_multipliers
        if self.checkpoint is None or not self.checkpoint.resumed:
            return noise
        return {phase.label: noise[phase.label] for phase in self.plan.phases if phase.sampling_rate is not None}

    @property
    def progress_text(self):
        """What a progress bar says of the training."""
        return f"epsilon {self.plan.epsilon:.3g}"

    @property
    def starts_training(self):
        """Whether the training begins, rather than goes on from the checkpoint."""
        return self.checkpoint is None or self.checkpoint.training is None

    def facts(self, release, state, restore):
        """Make the releases before the training; a fit that goes on has them from its checkpoint.

        Arguments as in `FitCheckpoint.facts`; a fit without a checkpoint calls `release` alone.
        """
        return release() if self.checkpoint is None else self.checkpoint.facts(release, state, restore)

    def cover(self, plan):
        """Let the training follow a plan, from its beginning or from the checkpoint on."""
        plan = self.receipt.cover(plan)
        if self.checkpoint is not None:
            self.checkpoint.follow(plan)
        return plan

    def row_count(self, n_rows, released):
        """Number of rows: the exact one where it is public, else a released one."""
        return float(n_rows) if self.neighboring == "replace_one" else float(released)

    def step_size(self, row_count, counted):
        """Count of what a step of DP-SGD samples: rows, or units where each of them counts 1.

        `row_count`: public or released number of rows. `counted`, a Count: released sum of the weights of the rows: the
        number of units where each of them counts 1.
        """
        unit = self.plan.unit
        if unit is not None and unit.weighting == "units":
            return counted
        is_public = self.neighboring == "replace_one"
        return Count(float(row_count), float(row_count) if is_public else counted.most)

    def sample_size(self, rows, released):
        """Number of rows to sample, as `row_count`; where units count 1, a separate release (`row_count`)."""
        noise = self.plan.noise_multipliers
        if "row_count" not in noise:
            return self.row_count(len(rows), released)
        return once(
            self.checkpoint,
            "row_count",
            lambda: max(float(add_gaussian(rows.kept_rows(), noise["row_count"], self.rng, self.neighboring)[0]), 1.0),
        )

    def noise_of_rows(self, label):
        """Noise of a release relative to what one row adds: a unit may add several."""
        unit = self.plan.unit
        return self.noise[label] * (1 if unit is None else unit.weight)


def once(checkpoint, name, make):
    """Make a number of a fit by units; a fit that goes on has it from its checkpoint (see `FitCheckpoint.once`)."""
    return make() if checkpoint is None else checkpoint.once(name, make)
