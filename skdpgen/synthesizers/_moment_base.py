"""What P3GM and Moment share: their released models, scores, rows given the values of some columns, constraints."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._parameters import UNIT_CONSTRAINTS
from ..data.frames import FrameRows
from ..exceptions import InvalidInputError
from ..generators.components import join_chunks
from ..utils.foreign_tables import to_library
from ..utils.numerics import each_in_usual_numerics, usual_numerics
from ..utils.validation import MOST_UNITS, Interval, StrOptions
from ._base import DATA_CONSTRAINTS, BaseSynthesizer
from ._moment_start import model_of
from ._phases import plan_moments
from ._synthetic_units import SyntheticUnitsMixin, unit_settings

# Of the parameters that both have.
MOMENT_CONSTRAINTS = {
    **DATA_CONSTRAINTS,
    **UNIT_CONSTRAINTS,
    "l2_bound": [Interval(Real, 0, None, closed="neither"), None],
    "constraints": [str, list, tuple, None],
    "n_components": [Interval(Integral, 1, MOST_UNITS, closed="both"), StrOptions({"auto"}), None],
}


class BaseMomentSynthesizer(SyntheticUnitsMixin, BaseSynthesizer):
    """Base of the synthesizers whose model is of released moments: `sample` takes `given` and `units`."""

    @staticmethod
    def _model_from_state(state):
        return model_of(state)

    def _plan(self, rows, model, accountant, *, split=None):
        """The settings with what is released of units of several rows, and the calibrated plan; see `plan_moments`."""
        target_share = self._share("target")
        if missing := target_share and _missing_for_target(rows, model):
            if "target" in (self.budget_split or {}):
                raise InvalidInputError(f'budget_split gives a share to the "target", whose model needs {missing}')
            target_share = 0.0
        model = replace(model, units=unit_settings(self, rows, model), target_share=target_share)

        def calibrate(phases):
            return self._calibrate_phases(accountant, rows, phases)

        return model, plan_moments(rows, model, self._share("bounds"), accountant, calibrate, split=split)

    @usual_numerics()
    def score_samples(self, X, y=None):
        """Return the log-likelihood of each row; the ELBO with a network, but for refined tables.

        Where images are moved to their features, it is that of the model before the moves; of upright images, that of
        the upright image and its pose.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, 1), or table with one column, default=None
            None sums over the classes, where a model of a table has them; models of arrays leave y out.

        Returns
        -------
        array of shape (n_samples,)

        Raises
        ------
        ValueError
            After `load`, for a network that replaces the released decoder: the file has no variance of its encoder.

        Notes
        -----
        It is computed from the rows given without protection: do not publish it.
        """
        check_is_fitted(self)
        return self.model_.score_samples(self._rows_like_fit(X), y)

    def score(self, X, y=None):
        """Return the mean of `score_samples` (higher is better): private, and not to be published."""
        return float(np.mean(self.score_samples(X, y)))

    def sample(
        self, n_samples=None, *, y=None, class_ratio=None, given=None, units=None, order_by=None, random_state=None
    ):
        """Draw synthetic rows: post-processing, which charges nothing.

        Parameters
        ----------
        n_samples : int, default=None
            Number of rows; None: the released row count, or the length of `y` if that is given.
        y : array-like of shape (n_samples,) or (n_samples, 1), or table with one column, default=None
            Class of each row; with several targets a DataFrame, or a sequence of tuples.
        class_ratio : dict, array or "balanced", default=None
            Share of each class, by class (a tuple of values with several targets) or in the shape of `class_ratio_`;
            "balanced" gives all classes the same share, and "other" and missing none; None: the released shares.
        given : dict, default=None
            Values of selected columns, {name: condition}. A condition is a value, a list of categories, a pair ``(low,
            high)`` of numbers or dates with None for an open end, or None for a missing value. So ``(None, None)`` is
            any number or date that is not missing. The other columns are drawn from their distribution given these
            conditions. Arrays: {column index or name: value}. Rows are drawn again, up to 200 times, for columns that a
            constraint constructs (``end`` of ``start <= end``), and for all columns where the model has a mixture prior
            or a network.
        units : int, default=None
            Number of synthetic units, instead of rows: each has a number of rows from the released distribution, which
            come one after another. The first column, under the name of the unit, numbers the units from 0; these are no
            identifiers of real units. The `columns` of the PrivacyUnit are constant within a unit, and its rows are
            alike in the `shared` ones; else they are independent. `given` may name `columns` alone. For fits of
            DataFrames with `unit`.
        order_by : column name, default=None
            Column of dates, numbers or ordered categories by which the rows of each synthetic unit are sorted, missing
            values last. None: the first column of dates that is not among the `columns` of the PrivacyUnit. For
            `units`.
        random_state : int, RandomState, Generator or None, default=None
            Seed of the draw. None: the next values of the estimator's stream, so that two calls differ; an integer
            gives the same rows in each call.

        Returns
        -------
        DataFrame or array, or (X, y)
            Rows of the kind that was fitted; a pair if `fit` was given y.

        Raises
        ------
        ValueError
            The model has no rows that satisfy `given` or `y`, or too few that satisfy the constraints.
        """
        chunks = self._drawn(n_samples, y, class_ratio, given, units, order_by, random_state)
        if units is not None:
            return to_library(join_chunks(chunks), self._library)
        return self._join(chunks, n_samples, y)

    def sample_chunks(
        self, n_samples=None, *, y=None, class_ratio=None, given=None, units=None, order_by=None, random_state=None
    ):
        """Draw synthetic rows in chunks, when they do not fit into memory: charges nothing.

        Joined, the chunks are what `sample` with these arguments returns, row for row. Each has at most 100,000 rows,
        and fewer if there are more than 167 columns (2**24 values). The rows of a seed depend on these numbers. With
        `units`, a chunk holds whole units, and about so many rows.

        Parameters
        ----------
        n_samples, y, class_ratio, given, units, order_by, random_state
            As in `sample`. With None as `random_state` the stream advances as chunks are taken.

        Yields
        ------
        DataFrame or array, or (X, y)
            As `sample` returns them.
        """
        return self._of_library(self._drawn(n_samples, y, class_ratio, given, units, order_by, random_state))

    def _drawn(self, n_samples, y, class_ratio, given, units, order_by, random_state):
        """Chunks of a sample, as frames of pandas or arrays."""
        check_is_fitted(self)
        if units is None:
            if order_by is not None:
                raise ValueError(
                    "order_by= sorts the rows of each synthetic unit: give units= with it, or leave it out"
                )
            return self._chunks(n_samples, y, class_ratio, random_state, given)
        others = {"n_samples": n_samples, "y": y, "class_ratio": class_ratio}
        if named := [f"{name}=" for name, value in others.items() if value is not None]:
            raise ValueError(f"units= is given without {', '.join(named)}: units have rows of all kinds")
        return each_in_usual_numerics(self._unit_chunks(units, random_state, self._rows_at_once, given, order_by))


def _missing_for_target(rows, model):
    """What a fit lacks for a model of the target, in words; None where it has all. It follows from public facts."""
    if not isinstance(rows, FrameRows) or rows.target is None:
        return "a DataFrame with a categorical target"
    if not model.moments_alone:
        return 'decoder="released" and no mixture'
    if rows.unit is not None:
        return "rows as the unit of privacy: leave out unit="
    return None
