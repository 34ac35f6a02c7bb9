"""What estimators do alike where a person may have several rows: the number of rows used of each is learned."""

from __future__ import annotations

from .rows_per_unit import OpenUnit, settle_ids
from .units import draw_key, keep_rows


class LearnedRowsMixin:
    """For a `PrivateEstimator` that learns `max_rows_per_unit` where it is not declared."""

    def _learned_unit(self, asked):
        return OpenUnit.of(asked.label, asked.weighting)

    def _keep_rows(self, ids, plan, rng):
        """Return which rows of an array are used (`KeptRows`), and the plan with their number in a unit."""
        ids, plan = settle_ids(ids, plan, rng)
        self.max_rows_per_unit_ = plan.unit.max_rows
        return keep_rows(ids, draw_key(rng)), plan
