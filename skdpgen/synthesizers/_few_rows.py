"""Warnings, by public facts and released values, that the noise hides most of a table, or a class."""

from __future__ import annotations

import numpy as np
from pandas.api import types as pdt

from ..data.table_plan import TableSize, plan_bins, prefers_scores
from ..tabular import Categorical
from ..tabular._columns import parse_dtype
from ..tabular._schema_cells import SelectedCounts
from ..utils.callers import warn_user
from ..utils.printing import listed
from ._count_errors import kept_sizes, weighs_units

# Rows of a class that a user expects to find: where classes of so many may be lost, a fit warns before the charge.
_RARE_CLASS = 100


def point_out_few_rows(rows, settings, plan):
    """Warn, by public facts, of what the noise of a plan hides in so few rows; of it there is no later warning.

    `rows`: their number is used under "replace_one" between rows alone, which makes it public.
    """
    if plan.neighboring != "replace_one" or plan.unit is not None:
        return
    n_rows, lost = len(rows), []
    sizes = _learned_sizes(rows, plan)
    if sizes is not None and sizes.lost > n_rows:
        rows.unlearned.expects_categories = False
        lost.append(f"all learned categories ({sizes.in_words()})")
    if getattr(settings, "moments_alone", False) and _hides_relations(rows, n_rows, plan.noise_multipliers["moments"]):
        rows.unlearned.expects_relations = False
        lost.append(
            "all two-way tables: columns of more than two categories are modelled as independent, and others by one "
            "noisy correlation of each pair, if it shows any"
        )
    if lost:
        warn_user(
            f"{n_rows} rows are too few for epsilon={plan.epsilon:.3g} and {len(rows.schema)} columns: the noise hides "
            f"{', and '.join(lost)}. Take a larger epsilon, more rows or fewer columns, and declare categories and "
            "bounds in the schema, if they are public. Nothing was charged before this warning"
        )


def point_out_hidden_classes(model, codes):
    """Warn where a sample asks for classes of which the released counts show no row, so that their rows are noise.

    `model`: or the model given some columns, which refuses classes without a row. `codes`: of the classes that are
    asked for.
    """
    ratio = getattr(model, "class_ratio", None)
    if ratio is None:
        return
    shares = np.asarray(ratio).ravel()
    if len(shares) == model.codec.n_classes and (hidden := np.unique(codes[shares[codes] <= 0])).size:
        warn_user(
            f"rows of the classes {listed([model.codec.classes[code] for code in hidden], 5)} are mostly noise, and do "
            "not show how these classes differ from the others: the released counts show no row of them, because there "
            "are none, or because the noise hides them"
        )


def point_out_learned_classes(rows, plan):
    """Warn, by the noise of a plan alone, that rare classes of a target will be lost where they are learned.

    Nothing of the rows is read: the sizes follow from the budget and the number of columns to learn.
    """
    open_ = [
        name for name in rows.targets if isinstance(rows.schema[name], Categorical) and not rows.schema[name].complete
    ]
    sizes = _learned_sizes(rows, plan) if open_ else None
    if sizes is None or sizes.kept < _RARE_CLASS:
        return
    what = "units" if weighs_units(plan.relation) else "rows"
    one = "classes=[...], or " if len(rows.targets) == 1 else ""
    whole = [name for name in open_ if pdt.is_integer_dtype(parse_dtype(rows.schema[name].dtype))]
    quantity = (
        f' If the whole numbers of {listed(whole)} are a quantity, and no classes, give target_type="numeric" (--set '
        "target_type=numeric)."
        if whole
        else ""
    )
    warn_user(
        f"the classes of the target {listed(open_)} are learned: {sizes.in_words(what)}. If the classes are public, "
        f"declare them, by {one}the schema: much smaller classes are then kept, and nothing is spent on the list of "
        f"classes.{quantity} Nothing was charged before this warning"
    )


def _learned_sizes(rows, plan):
    """Rows of learned categories that are lost and kept; None where none are learned."""
    open_ = rows.schema.incomplete
    selected = SelectedCounts.of(rows.schema[name] for name in open_)
    return kept_sizes(len(open_), selected, plan.noise_multipliers, plan.extra_delta, plan.relation)


def _hides_relations(rows, n_rows, noise_multiplier):
    """Whether the model will have neither two-way tables nor scores, however few classes are learned."""
    size = TableSize.of(rows.schema, rows.targets, n_rows, noise_multiplier, most_bins=rows.most_bins)
    n_bins, seen = plan_bins(size)
    return size.n_blocks > 1 and np.isinf(seen) and not prefers_scores(size, n_bins, True)
