"""What P3GM and Moment share: rows given the values of some columns, and constraints as a parameter."""

from __future__ import annotations

from sklearn.utils.validation import check_is_fitted

from ..generators.components import join_chunks
from ._synthetic_units import SyntheticUnitsMixin

__all__ = ["CONSTRAINTS", "ConditionalSamplingMixin"]

# The parameters that the mixin reads.
CONSTRAINTS = {"constraints": [str, list, tuple, None]}


class ConditionalSamplingMixin(SyntheticUnitsMixin):
    """`sample` and `sample_chunks` with `given` and `units`, for synthesizers with the parameters `CONSTRAINTS`."""

    def sample(self, n_samples=None, *, y=None, class_ratio=None, given=None, units=None, random_state=None):
        """Draw synthetic rows: post-processing, which charges nothing.

        Parameters
        ----------
        n_samples : int, default=None
            Number of rows; None: the released row count, or the length of `y` if that is given.
        y : array-like of shape (n_samples,), default=None
            Class of each row; with several targets a DataFrame, or a sequence of tuples.
        class_ratio : dict, array or "balanced", default=None
            Share of each class, by class (a tuple of values with several targets) or in the shape of `class_ratio_`;
            "balanced" gives all classes the same share, and "other" and missing none; None: the released shares.
        given : dict, default=None
            Values of selected columns, {name: condition}. A condition is a value, a list of categories, a pair ``(low,
            high)`` of numbers or dates with None for an open end, or None for a missing value. The other columns are
            drawn from their distribution given these conditions. Arrays: {column index or name: value}. Rows are drawn
            again, up to 200 times, for columns that a constraint constructs (``end`` of ``start <= end``), and for all
            columns where the model has a mixture prior or a network.
        units : int, default=None
            Number of synthetic units, instead of rows: each has a number of rows from the released distribution, which
            come one after another. The first column, under the name of the unit, numbers the units from 0; these are no
            identifiers of real units. The `columns` of the PrivacyUnit are constant within a unit, and its rows are
            alike in the `shared` ones; else they are independent. For fits of DataFrames with `unit`.
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
        return join_chunks(
            self.sample_chunks(
                n_samples, y=y, class_ratio=class_ratio, given=given, units=units, random_state=random_state
            )
        )

    def sample_chunks(self, n_samples=None, *, y=None, class_ratio=None, given=None, units=None, random_state=None):
        """Draw synthetic rows in chunks, when they do not fit into memory: charges nothing.

        Joined, the chunks are what `sample` with these arguments returns, row for row. Each has at most 100,000 rows,
        and fewer if there are more than 167 columns (2**24 values). The rows of a seed depend on these numbers. With
        `units`, a chunk holds whole units, and about so many rows.

        Parameters
        ----------
        n_samples, y, class_ratio, given, units, random_state
            As in `sample`. With None as `random_state` the stream advances as chunks are taken.

        Yields
        ------
        DataFrame or array, or (X, y)
            As `sample` returns them.
        """
        check_is_fitted(self)
        if units is None:
            return self._chunks(n_samples, y, class_ratio, random_state, given)
        others = {"n_samples": n_samples, "y": y, "class_ratio": class_ratio, "given": given}
        if named := [f"{name}=" for name, value in others.items() if value is not None]:
            raise ValueError(f"units= is given alone, without {', '.join(named)}: units have rows of all kinds")
        return self._unit_chunks(units, random_state, self._rows_at_once)
