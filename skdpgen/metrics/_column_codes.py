"""Columns as trees take them: numbers as they are, categories as codes; and values of a column, each read once."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from ._samples import MOST_LEVELS, column_kind, each_distinct, text_of, to_numbers


def takes_codes(estimator):
    """Tell whether an estimator splits categories by their codes, as histogram gradient boosting does by default.

    One-hot columns would cost it a histogram for each category, and its trees a split for each.
    """
    boosting = isinstance(estimator, HistGradientBoostingClassifier | HistGradientBoostingRegressor)
    return boosting and isinstance(estimator.categorical_features, str)


def with_codes(estimator, codes):
    """Return a clone of an estimator that `takes_codes`, which knows the columns of categories."""
    return clone(estimator).set_params(categorical_features=codes.categorical)


class ColumnCodes:
    """Encode frames of the same columns as numbers, by rules learned from one of them.

    Numbers and dates stay as they are. Of categories the `MOST_LEVELS` commonest have a code each, all rarer ones share
    one, and values that the frame lacks share another. What is missing is NaN.

    `frame`: rows to learn from. `schema`: says which columns are categories. `categorical`: shape (n_columns,).
    """

    def __init__(self, frame, schema=None):
        kinds = [column_kind(frame[name], None if schema is None else schema[name]) for name in frame.columns]
        self.names, self.categorical = list(frame.columns), np.array([kind == "category" for kind in kinds], dtype=bool)
        self._values = {
            name: pd.Index(pd.Series(each_distinct(frame[name], text_of)).value_counts().index, dtype=object)
            for name, category in zip(self.names, self.categorical)
            if category
        }

    def __call__(self, frame):
        """Return an array of shape (n_rows, n_columns), float64."""
        columns = [self._column(frame[name]) for name in self.names]
        return np.column_stack(columns) if columns else np.empty((len(frame), 0))

    def _column(self, column):
        if column.name not in self._values:
            return to_numbers(column, finite=True)
        known = self._values[column.name]
        texts = each_distinct(column, text_of)
        ranks = known.get_indexer(pd.Index(texts, dtype=object))
        codes = np.where(ranks < 0, MOST_LEVELS + 1.0, np.minimum(ranks, MOST_LEVELS))
        return np.where(pd.isna(texts), np.nan, codes)
