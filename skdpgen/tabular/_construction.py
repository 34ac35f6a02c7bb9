"""Constraints by construction: the table that a model sees, and the way back to rows that satisfy them.

Each step maps one row to one row, by public facts alone: the declared schema and constraints. So the sensitivities of
all queries are those of a table without constraints.
"""

from __future__ import annotations

import ast
import json
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from ..exceptions import SchemaError
from ..utils.callers import warn_user
from ..utils.printing import quoted
from ._columns import Boolean, Categorical, Datetime, Numeric, unit_microseconds
from ._constraint_forms import Combinations, Conditional, Lookup, read_constraint
from ._constraints import RowConstraint
from ._construction_columns import inside, restore_unbounded, typed, unit_of, with_bounds
from ._construction_steps import Computed, Gap, Looked, Merged, Overwritten, Product
from ._dtypes import output_dtype
from ._formats import form_of, time_zone
from ._frames import check_columns, numeric_bounds, numeric_values, restore
from ._schema import Schema

_MOST_INTEGER = 2**53
# Whole numbers of a range in which an equality may be found by drawing again.
_MOST_REPEATING = 10_000
# Rows in which conditions that rows are drawn again for are tried.
_TRIAL_ROWS = 20_000
# Share of such rows below which two equalities contradict each other, and the bound of numbers without declared ones.
_LEAST_SATISFIED, _TRIAL_BOUND = 1e-3, 100.0
# Declared bounds that are wider than others by more than this factor; share of the pairs of two grids of so many values
# within their bounds below which few rows at random violate an order.
_MUCH_WIDER, _FEW, _GRID = 2.0, 0.2, 201
_VIOLATED = 'rows violate the constraint {text}, and on_invalid="raise" refuses them: correct the rows, or {other}'
# Largest exponent of a column that is constructed: powers of powers, such as `((a ** 4) ** 4) ** 4`, have any.
_MOST_EXPONENT = 64
# Comparisons, and what each is from the other side.
_TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq}
# Microseconds.
_DAY, _SECOND = 86_400_000_000, 1_000_000


@dataclass(frozen=True, eq=False)
class Construction:
    """What the constraints of a schema do to a table, row by row."""

    table: Schema  # of the rows that come in and go out, with its constraints; it may be incomplete
    steps: tuple  # in the order in which rows are put together again
    # name of a column without declared bounds -> (low, high) that follow from the constraints, in its own numbers
    limits: dict
    texts: tuple  # tuple of str; constraints of which at least a part is satisfied by construction
    # tuple of str; constraints that are not, or not wholly, satisfied by construction: rows that violate one are drawn
    # again
    left: tuple
    # column names; that are constant within a unit: those that are constructed follow from one another alone
    constant: tuple = ()

    @classmethod
    def of(cls, schema, fixed=(), constant=(), choose=None):
        """Return the construction of a schema with constraints.

        `fixed`: targets, on which a model is conditional: they are not constructed.
        `constant`: that are constant within a unit of several rows: each of them is constructed from others of them, or
            not.
        `choose`: which column of a difference is made: see `by_bounds`, which is the default.
        Raises ValueError: a constraint contradicts the schema, or cannot be satisfied.
        """
        steps, left, made, kept = [], [], [], _Kept(tuple(fixed), tuple(constant), choose or by_bounds)
        for text in schema.constraints:
            constraint = read_constraint(text, schema.names).check(schema)
            before = steps
            steps, whole = _with_steps(constraint, schema, steps, kept)
            if steps != before:
                made.append(text)
            if not whole:
                if isinstance(constraint, Combinations) and constraint.values is None:
                    raise SchemaError(f"the constraint {quoted(text)} names {_not_merged(constraint, steps, kept)}")
                left.append(text)
        steps = [_knowing(step, steps) for step in _in_order(steps)]
        table, limits = _narrowed(_with_facts(schema, steps), steps)
        _check_together(table)
        return cls(table, tuple(steps), limits, tuple(made), tuple(left), kept.constant)

    @property
    def differences(self):
        """Of each difference the name of the column that is made, and that of the other: a tuple of pairs."""
        return tuple((step.made, step.base) for step in self.steps if isinstance(step, Gap))

    def times_beside_days(self, seen):
        """Dates with a time of the day that are computed from dates whose learned resolution is a day: pairs of names.

        `seen`: what the model sees, complete.
        """

        def is_day(column):
            return getattr(column, "resolution", None) == "D"

        dates = [pair for pair in self.differences if isinstance(self.table[pair[0]], Datetime)]
        return [pair for pair in dates if is_day(seen[pair[1]]) and not any(is_day(self.table[name]) for name in pair)]

    @property
    def changed(self):
        """Names of the columns that the model does not see as they are."""
        return frozenset(name for step in self.steps for name in step.outputs)

    @property
    def constructed(self):
        """Names of the columns that are made from what the model sees: neither their values nor their counts are."""
        steps = [step for step in self.steps if not isinstance(step, Overwritten)]
        return frozenset(name for step in steps for name in step.outputs)

    @property
    def learned_combinations(self):
        """Names of the columns of each constraint whose combinations are not declared."""
        return [step.outputs for step in self.steps if isinstance(step, Merged) and step.values is None]

    def checks(self, released):
        """Conditions on rows of `released`, for `keep_constraints`: computed values outside the bounds of a column.

        Such bounds are declared, or those of its dtype.
        """
        steps = [step for step in self.steps if isinstance(step, Computed)]
        return [_Exact(step, released) for step in steps if step.may_leave_bounds(released)]

    def merged_with(self, name):
        """Column of the model that holds the combinations with this one, or None."""
        return next((s.name for s in self.steps if isinstance(s, Merged) and name in s.outputs), None)

    def shares(self, name, seen, levels, of_values):
        """Of the levels of combinations, ``of_values`` of the values of one of their columns; 0 for "other"."""
        step = next(s for s in self.steps if isinstance(s, Merged) and name in s.outputs)
        rows = step.released_rows(seen[step.name], self.released(seen))
        found = np.zeros(len(levels))
        found[: len(rows)] = of_values([row[step.outputs.index(name)] for row in rows])
        return found

    def implied(self, name, wanted, low, high, seen):
        """Necessary conditions of a condition on a constructed column: (column, lowest, highest) that the model sees.

        `wanted`: whether a value of the column fulfils the condition. `low`, `high`: the range of the condition, in the
        numbers of the column. `seen`: what the model sees, complete.
        """
        if any(map(wanted, self.written(name))):
            return None
        step = next((s for s in self.steps if name in s.outputs and not isinstance(s, Overwritten)), None)
        if step is None:
            return name, low, high
        if low is None or not isinstance(step, Gap) or step.base in self.changed:
            return None
        return step.base, *step.base_range(low, high, self.table[name], seen)

    def optional(self, name, levels):
        """Which levels of a column that the model sees stand for missing values, which rows need not have."""
        if name in self.changed and not isinstance(self.table[name], Boolean) and isinstance(self.seen[name], Boolean):
            return np.array([level is False for level in levels])
        if self.merged_with(name) == name:
            return np.array([isinstance(x, str) and x.startswith("[") and None in json.loads(x) for x in levels])
        return np.zeros(len(levels), dtype=bool)

    def written(self, name):
        """Values that constraints set in a column, None among them for a missing one."""
        steps = [step for step in self.steps if isinstance(step, Overwritten) and name in step.outputs]
        return [step.conditional.values[name] for step in steps]

    def set_values(self):
        """Values, none of them missing, that constraints set in the columns that the model sees as they are."""
        found = {}
        for step in self.steps:
            if isinstance(step, Overwritten):
                for name, value in step.conditional.values.items():
                    if value is not None and name not in step.shared:
                        found.setdefault(name, []).append(value)
        return found

    @cached_property
    def seen(self) -> Schema:
        """Schema of the table that the model sees; it may be incomplete."""
        columns = {column.name: column for column in self.table.columns}
        # a merged column disappears: steps that are made from it look at it before
        for step in sorted(self.steps, key=lambda step: isinstance(step, Merged)):
            step.declare(columns)
        return Schema(tuple(columns.values()))

    def check_seen(self, schema):
        """Raise ValueError unless a complete schema can be what the model sees, as one from a file may not."""
        kinds = [(column.name, type(column)) for column in self.seen.columns]
        if not schema.complete or kinds != [(column.name, type(column)) for column in schema.columns]:
            raise ValueError("the columns that the model sees are not those that its constraints construct")
        self.released(schema)

    def encode(self, frame, on_invalid="clip"):
        """Return the table that the model sees, row by row.

        **Privacy**: rows are private values, not released. A row of the result follows from that row of `frame` and
        from the declared schema alone.

        SchemaError for rows that `table` does not allow; with ``on_invalid="raise"``, for rows that violate a
        constraint. The message names the constraint, never a value.
        """
        frame = check_columns(frame, self.table)
        outer = {name: frame[name] for name in self.table.names}
        if on_invalid == "raise":
            for step in self.steps:
                if step.violated(outer, self.table).any():
                    raise SchemaError(_VIOLATED.format(text=quoted(step.text), other='clip them by on_invalid="clip"'))
        for step in self.steps:
            if isinstance(step, Overwritten):
                step.overwrite(outer, self.table)
        seen = dict(outer)
        for name, (low, high) in self.limits.items():
            values = numeric_values(outer[name], self.table[name], on_invalid)
            clipped = restore_unbounded(np.clip(values, low, high), self.table[name])
            outer[name] = seen[name] = clipped.set_axis(frame.index)
        for step in self.steps:
            step.encode(outer, seen, self.table, on_invalid)
        return pd.DataFrame({name: seen[name] for name in self.seen.names})

    def settled(self, seen):
        """Return the complete schema of what the model sees, within the limits that the constraints set."""
        columns = {column.name: column for column in seen.columns}
        for name, limits in self.limits.items():
            if name in self.changed:
                continue
            columns[name] = with_bounds(columns[name], *inside(numeric_bounds(columns[name]), limits))
        for step in self.steps:
            step.settle(columns)
        return Schema(tuple(columns.values()))

    def released(self, seen):
        """Return the complete schema of the rows that come out, from the complete one of what the model sees."""
        columns = {name: None if name in self.changed else seen[name] for name in self.table.names}
        for step in self.steps:
            step.release(columns, seen, self.table)
            for name in self.limits.keys() & set(step.outputs):
                limited = inside(numeric_bounds(columns[name]), self.limits[name])
                columns[name] = with_bounds(columns[name], *limited)
        return replace(self.table, columns=tuple(columns[name] for name in self.table.names))

    def separates(self, names):
        """Whether no step makes some of these columns from others than these, or together with others."""
        steps = [step for step in self.steps if set(step.outputs) & set(names)]
        return all(set(step.outputs) | set(step.inputs) <= set(names) for step in steps)

    def decode(self, frame, seen, released, rng, known=None, names=None):
        """Return rows of `released` from rows of the table that the model sees; `rng` draws what a row lacks.

        `known` holds values of constructed columns that need no construction any more. `names` are the columns to
        return, None: all. The columns of either must be such as `separates` accepts.
        """
        known, names = known or {}, self.table.names if names is None else names
        outer = {name: frame[name] for name in frame.columns if name not in self.changed} | known
        for step in self.steps:
            if set(step.outputs) & set(names) and not set(step.outputs) & set(known):
                step.decode(outer, frame, seen, released, rng)
        return pd.DataFrame({name: outer[name] for name in names}, index=frame.index)


@dataclass(frozen=True)
class _Kept:
    """Columns that steps may not construct, or not from any other: see `Construction.of`."""

    fixed: tuple
    constant: tuple
    choose: object  # which column of a difference is made: see `by_bounds`

    def allows(self, step):
        made = [name in self.constant for name in step.outputs]
        own = all(made) and all(name in self.constant for name in step.inputs)
        return not set(step.outputs) & set(self.fixed) and (own or not any(made))


class _Exact:
    """Whether a computed column has the value that is computed, and not the nearest one within its bounds."""

    def __init__(self, step, table):
        self._step = step
        names = (*step.inputs, step.column)
        self._table = {name: replace(table[name], bounds=None) for name in names}

    @property
    def text(self):
        return self._step.text

    @property
    def columns(self):
        return tuple(self._table)

    def holds(self, frame):
        return ~self._step.violated(frame, self._table)

    def advice(self, rows):
        """What to declare where no row can satisfy the constraint, in words; None if the rows do not show that."""
        return self._step.advice(rows, self._table)


# ---- constraints to steps -------------------------------------------------------------------------------------------
def _with_steps(constraint, schema, steps, kept):
    """Return the steps with those of one more constraint, and whether they satisfy it wholly."""
    if isinstance(constraint, RowConstraint):
        return _with_condition(constraint, schema, steps, kept)
    if isinstance(constraint, Conditional):
        step = Overwritten(constraint.text, constraint)
    elif isinstance(constraint, Lookup):
        step = Looked(constraint.text, constraint)
    else:
        step = Merged(constraint.text, constraint.columns, constraint.values, constraint.is_function)
    return ([*steps, step], True) if _fits(step, steps, kept) else (steps, False)


def _with_condition(constraint, schema, steps, kept):
    steps, whole = list(steps), True
    for part in _conjuncts(constraint.tree):
        if not isinstance(part, ast.Compare):
            whole = False
            continue
        for op, left, right in zip(part.ops, [part.left, *part.comparators], part.comparators):
            exact = False
            if isinstance(op, ast.Eq):
                exact = _add_computed(constraint, left, right, schema, steps, kept)
                exact = exact or _add_product(constraint, left, right, schema, steps, kept)
            elif isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                sides = (left, right) if isinstance(op, ast.Lt | ast.LtE) else (right, left)
                exact = _add_gap(constraint, *sides, isinstance(op, ast.Lt | ast.Gt), schema, steps, kept)
            whole &= exact
    return steps, whole


def _conjuncts(tree):
    """The conditions all of which a condition asks for."""
    return tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]


def check_equalities(construction):
    """Refuse, by public facts alone, an equality of numbers that is not constructed: no row that is drawn satisfies it.

    Where a number has few possible values, or declared spikes, rows that are drawn again may.
    """
    schema = construction.table
    for step in construction.steps:
        if isinstance(step, Computed) and step.misses_bounds(schema):
            raise SchemaError(
                f"the constraint {quoted(step.text)} gives no value within the declared bounds of {step.column!r}: "
                "change the constraint, or declare other bounds; nothing was charged"
            )
    for text in construction.left:
        constraint = read_constraint(text, schema.names)
        if not isinstance(constraint, RowConstraint):
            continue
        for part in _conjuncts(constraint.tree):
            if not isinstance(part, ast.Compare) or not all(isinstance(op, ast.Eq) for op in part.ops):
                continue
            names = set(constraint.columns_in(part))
            made = [s for s in construction.steps if isinstance(s, Computed) and {s.column, *s.weights} == names]
            if any(_is_violated_by(step, RowConstraint.within(constraint, part), schema) for step in made):
                raise SchemaError(
                    f"hardly any row that {quoted(made[0].text)} constructs satisfies the constraint {quoted(text)} "
                    "too: leave one of them out; nothing was charged"
                )
            beside = constraint.columns_beside_functions(part)  # dates have few days of the week
            if not made and any(_hardly_repeats(schema[name]) for name in beside):
                raise SchemaError(
                    f"the constraint {quoted(text)} is an equality of numbers that cannot be constructed, and rows "
                    "that are "
                    "drawn at random do not satisfy it. Constructed is one column on one side and on the other a sum "
                    "of columns times numbers, as in 'total == a + b', or a product or ratio of columns, as in "
                    "'area == width * height' or 'rate == cases / people', for columns that are no target and in no "
                    "other such constraint (one that is constant within a unit, from others that are). Write it so; or "
                    "leave it out, and compute the column after sampling; nothing was charged"
                )


def _is_violated_by(step, condition, schema):
    """Whether hardly any row in which a column is computed satisfies a condition on the columns of the step.

    Numbers are drawn at random, between declared bounds where there are any. Of dates, nothing is said.
    """
    columns = {name: schema[name] for name in (*step.inputs, step.column)}
    if not all(isinstance(column, Numeric) for column in columns.values()):
        return False
    draws, table = np.random.default_rng(0), schema.replace(replace(columns.pop(step.column), bounds=None))
    columns = {name: c if c.complete else with_bounds(c, 0.0, _TRIAL_BOUND) for name, c in columns.items()}
    rows = pd.DataFrame(
        {name: restore(draws.uniform(*numeric_bounds(c), _TRIAL_ROWS), c) for name, c in columns.items()}
    )
    step.release(columns, (), table)
    step.decode(rows, rows, (), columns, draws)
    return condition.holds(rows).mean() < _LEAST_SATISFIED


def _hardly_repeats(column):
    """Whether two values of a column are hardly ever equal by chance."""
    if not isinstance(column, Numeric | Datetime) or column.spikes:
        return False
    if not column.whole:
        return True
    low, high = numeric_bounds(column) if column.complete else (0, 0)
    return high - low > _MOST_REPEATING


def refuse_violations(frame, schema, conditions):
    """Raise SchemaError if rows violate a condition for which rows are drawn again; it names the condition, no value.

    `frame`: of the columns of `schema`. **Privacy**: rows are private values, not released.
    """
    for condition in conditions:
        rows = pd.DataFrame({name: typed(frame[name], schema[name]) for name in condition.columns})
        if not condition.holds(rows).all():
            raise SchemaError(_VIOLATED.format(text=quoted(condition.text), other='use all rows by on_invalid="clip"'))


def within_reach(schema, conditions, learned):
    """Move learned bounds of numbers all of which violate a condition such as ``age >= 16``.

    The noise may hide the numbers of a column. Then its bounds are default ones, and rows could be drawn again forever.
    This depends on the released bounds and the declared conditions alone.

    `schema`: complete. `conditions`: for which rows are drawn again. `learned`: columns without declared bounds.
    """
    limits = {}
    for condition in conditions:
        for name, op, value in _comparisons_with_numbers(condition):
            column = schema[name] if name in learned else None
            if isinstance(column, Numeric) and form_of(column.dtype) is None:
                low, high = limits.get(name, (-math.inf, math.inf))
                lowest, highest = _limits(op, value, column)
                limits[name] = max(low, lowest), min(high, highest)
    for name, (low, high) in limits.items():
        smallest, largest = numeric_bounds(schema[name])
        if low > high:
            continue  # no value fulfils the conditions
        if low > smallest and low >= largest:
            schema = schema.replace(with_bounds(schema[name], low, min(low + largest - smallest, high)))
        elif high < largest and high <= smallest:
            schema = schema.replace(with_bounds(schema[name], max(high - largest + smallest, low), high))
    return schema


def _comparisons_with_numbers(condition):
    """Comparisons of a column with a number that a condition asks of all rows: (column, operator, number)."""
    for part in _conjuncts(condition.tree) if isinstance(condition, RowConstraint) else []:
        if not isinstance(part, ast.Compare):
            continue
        for op, left, right in zip(part.ops, [part.left, *part.comparators], part.comparators):
            kind = type(op)
            if kind not in _TURNED:
                continue
            if isinstance(right, ast.Name):
                left, right, kind = right, left, _TURNED[kind]
            number = _linear(right, condition)
            if isinstance(left, ast.Name) and number is not None and not number[0]:
                yield condition.columns_in(left)[0], kind, number[1]


def _limits(op, value, column):
    """Lowest and highest number of a column, in its own steps, that fulfils a comparison."""
    value /= column.step or 1
    low, high = value, value
    if column.whole:
        low = math.floor(value) + 1 if op is ast.Gt else math.ceil(value)
        high = math.ceil(value) - 1 if op is ast.Lt else math.floor(value)
    return low if op in (ast.Gt, ast.GtE, ast.Eq) else -math.inf, high if op in (ast.Lt, ast.LtE, ast.Eq) else math.inf


def warn_of_contradictions(construction):
    """Warn, by public facts alone, of conditions that hardly any row of declared bounds and categories satisfies.

    Rows are drawn at random from what is declared, the constants of the conditions among their numbers. Of conditions
    on columns that are not declared, or on dates, nothing is said.
    """
    schema = construction.table
    known = {c.name for c in schema.columns if c.complete and isinstance(c, Numeric | Categorical | Boolean)}
    constraints = [read_constraint(text, schema.names) for text in construction.left]
    left = [one for one in constraints if isinstance(one, RowConstraint) and known.issuperset(one.columns)]
    while left:
        together, names = [left.pop(0)], set()
        while names != (names := {name for one in together for name in one.columns}):
            together += [one for one in left if names & set(one.columns)]
            left = [one for one in left if one not in together]
        rows = _trial_rows([schema[name] for name in sorted(names, key=str)], [one.tree for one in together])
        if not np.all([one.holds(rows) for one in together], axis=0).any():
            texts = ", ".join(quoted(one.text) for one in together)
            warn_user(
                f"none of {_TRIAL_ROWS} rows drawn at random from declared bounds and categories satisfies {texts}: if "
                "the conditions contradict one another, or the bounds, sample will find no row"
            )


def _trial_rows(columns, trees):
    """Rows at random: of the values of numbers half lie between the bounds, and half at them or at constants."""
    draws, found = np.random.default_rng(0), {}
    constants = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    constants = [float(value) for value in constants if type(value) in (int, float)]
    for column in columns:
        if isinstance(column, Numeric):
            low, high = numeric_bounds(column)
            unit = 1.0 if column.step is None else float(column.step)
            near = 1.0 if column.whole else 1e-3 * (high - low)
            marks = [low, high, *(value / unit + side * near for value in constants for side in (-1, 0, 1))]
            values = np.where(
                draws.random(_TRIAL_ROWS) < 0.5,
                draws.uniform(low, high, _TRIAL_ROWS),
                draws.choice(np.clip(marks, low, high), _TRIAL_ROWS),
            )
            values[draws.random(_TRIAL_ROWS) < 0.1 * column.missing] = np.nan
        else:
            values = draws.integers(0, len(column.values) + column.missing, _TRIAL_ROWS)
        found[column.name] = restore(values, column)
    return pd.DataFrame(found)


def _knowing(step, steps):
    if not isinstance(step, Overwritten):
        return step
    others = [other for other in steps if not isinstance(other, Overwritten)]
    return replace(step, shared=frozenset(step.outputs) & {name for other in others for name in other.outputs})


def _fits(step, steps, kept):
    """Whether a step can be made beside others: `kept` allows it, and it constructs no column of theirs."""
    if not kept.allows(step):
        return False
    for other in steps:
        both = set(step.outputs) & set(other.outputs)
        written = [s for s in (step, other) if isinstance(s, Overwritten)]
        if both and not written:
            return False
        if both and len(written) == 1:
            values = written[0].conditional.values
            if any(isinstance(s, Merged) for s in (step, other)) or any(values[name] is not None for name in both):
                return False
    return _in_order([*steps, step]) is not None


def _not_merged(constraint, steps, kept):
    """Why learned combinations cannot have these columns, after "names"."""
    if targets := [repr(name) for name in constraint.columns if name in kept.fixed]:
        return (
            f"{', '.join(targets)}, a target, of which no combinations are learned: leave the constraint out, since "
            "the model learns how all columns depend on a target; or list the values that occur together"
        )
    for step in steps:
        if both := [repr(name) for name in constraint.columns if name in step.outputs]:
            return (
                f"{', '.join(both)}, which {quoted(step.text)} constructs, too: a column is constructed once; leave "
                "one of the constraints out, or name all their columns in one"
            )
    return (
        "some columns that are constant within a unit beside others, or that another constraint constructs from these: "
        "learned combinations take none of these"
    )


def _in_order(steps):
    """Steps in an order in which each finds its inputs, or None where they go in a circle."""
    left, done = list(steps), []
    while left:
        ready = next((s for s in left if not any(_before(t, s, steps) for t in left if t is not s)), None)
        if ready is None:
            return None
        left.remove(ready)
        done.append(ready)
    return done


def _before(one, other, steps):
    if set(one.outputs) & set(other.inputs):
        return True
    if not set(one.outputs) & set(other.outputs) or not isinstance(other, Overwritten):
        return False
    return not isinstance(one, Overwritten) or steps.index(one) < steps.index(other)


def _add_gap(constraint, left, right, strict, schema, steps, kept):
    """Add the step of ``left <= right`` where it compares two columns; return whether it satisfies that wholly."""
    sides = [_linear(side, constraint) for side in (right, left)]
    if None in sides:
        return False
    (weights, constant), (theirs, their_constant) = sides
    weights = {name: weights.get(name, 0.0) - theirs.get(name, 0.0) for name in (*weights, *theirs)}
    weights = {name: weight for name, weight in weights.items() if weight}
    if sorted(weights.values()) != [-1.0, 1.0]:
        return False
    start, end = sorted(weights, key=weights.get)
    columns = schema[start], schema[end]
    dates = [isinstance(column, Datetime) for column in columns]
    if not all(isinstance(column, Numeric | Datetime) for column in columns) or dates[0] != dates[1]:
        return False
    if dates[0] and len(set(map(_zone, columns))) > 1:
        return False
    spans = set(map(_is_span, columns))
    if len(spans) > 1:
        return False
    unit = min(map(unit_microseconds, columns)) if dates[0] else 1
    low = (their_constant - constant) * (_DAY / unit if dates[0] else _DAY / _SECOND if True in spans else 1)
    integer = all(column.integer for column in columns)
    if integer:
        low = math.floor(low) + 1 if strict else math.ceil(low)
    if abs(low) > _MOST_INTEGER:
        raise ValueError(f"the constraint {quoted(constraint.text)}: its numbers are beyond 2**53")
    low, exact = float(low) + 0.0, integer or not strict
    for at, known in enumerate(steps):
        if isinstance(known, Gap) and {known.start, known.end} == {start, end}:
            bounds = (max(known.low, low), known.high) if known.end == end else (known.low, min(known.high, -low))
            if bounds[0] >= bounds[1]:
                raise ValueError(
                    f"the constraint {quoted(constraint.text)} leaves no range to the difference of {start!r} and "
                    f"{end!r}"
                )
            steps[at] = replace(known, low=bounds[0], high=bounds[1], texts=(*known.texts, constraint.text))
            return exact
    for name in kept.choose(start, end, low, unit, schema):
        step = Gap((constraint.text,), start, end, low, math.inf, name, unit, integer)
        if _fits(step, steps, kept):
            steps.append(step)
            return exact
    return False


def by_presence(start, end, low, unit, schema):
    """Columns of a difference in the order in which they are tried: the one that is made comes first.

    That is the one that may be missing, because the other is there for it; else the end. `low`: least difference, in
    steps of `unit` microseconds for dates. Files of earlier versions have all their constructions so.
    """
    return (start, end) if schema[start].missing and not schema[end].missing else (end, start)


def by_bounds(start, end, low, unit, schema):
    """As `by_presence`, but the column with much wider declared bounds is made: public facts alone.

    A difference to a column of much wider bounds is learned in steps that are wide beside the bounds of the other, as
    that of a date of birth and a day of one year. Made from it, the other would mostly lie at the ends of its bounds.
    Where only that is possible, and few rows at random violate the constraint, such rows are drawn again.
    """
    columns = {name: schema[name] for name in (start, end)}
    if any(column.bounds is None for column in columns.values()):
        return by_presence(start, end, low, unit, schema)
    scales = {name: unit_of(one) / unit if isinstance(one, Datetime) else unit_of(one) for name, one in columns.items()}
    ends = {name: np.array(numeric_bounds(column)) * scales[name] for name, column in columns.items()}
    narrow, wide = sorted((start, end), key=lambda name: np.ptp(ends[name]))
    if _MUCH_WIDER * np.ptp(ends[narrow]) >= np.ptp(ends[wide]):
        return by_presence(start, end, low, unit, schema)
    first, last = (np.linspace(*ends[name], _GRID) for name in (start, end))
    return (wide,) if (last[None, :] - first[:, None] < low).mean() <= _FEW else (wide, narrow)


def as_recorded(differences):
    """Return the choice for `Construction.of` that made these `differences` of a construction."""
    pairs = set(map(tuple, differences))
    return lambda start, end, *_: [one for one, other in ((end, start), (start, end)) if (one, other) in pairs]


def _add_computed(constraint, left, right, schema, steps, kept):
    """Add the step of ``column == expression``; return whether there is one."""
    for side, tree in ((left, right), (right, left)):
        found = _linear(tree, constraint)
        if not isinstance(side, ast.Name) or found is None:
            continue
        (name,), weights = constraint.columns_in(side), {n: weight for n, weight in found[0].items() if weight}
        columns = [schema[n] for n in (name, *weights)]
        if not weights or name in weights or not all(isinstance(column, Numeric | Datetime) for column in columns):
            continue
        if not all(map(math.isfinite, (found[1], *weights.values()))):
            continue
        dates = [column for column in columns if isinstance(column, Datetime)]
        total = sum(weights[column.name] for column in dates if column.name != name)
        if total != isinstance(schema[name], Datetime) or len({_zone(column) for column in dates}) > 1:
            continue
        # beside dates and time spans, numbers are days
        units = {None: _DAY if dates or any(map(_is_span, columns)) else 1}
        for column in columns:
            one = _SECOND if _is_span(column) else units[None]
            units[column.name] = 1 if column in dates else one * unit_of(column)
        step = Computed(constraint.text, name, weights, found[1], units)
        if _fits(step, steps, kept):
            steps.append(step)
            return True
    return False


def _add_product(constraint, left, right, schema, steps, kept):
    """Add the step of ``column == product or ratio of columns``; return whether there is one."""
    for side, tree in ((left, right), (right, left)):
        found = _factors(tree, constraint)
        if not isinstance(side, ast.Name) or found is None:
            continue
        (name,), (exponents, factor) = constraint.columns_in(side), found
        columns = [schema[n] for n in (name, *exponents)]
        numbers = all(isinstance(c, Numeric) and form_of(c.dtype) in (None, "decimal") for c in columns)
        # a column divided by itself is no number where it is 0, and its row violates the constraint
        powers = exponents and all(0 < abs(exponent) <= _MOST_EXPONENT for exponent in exponents.values())
        if not numbers or not powers or name in exponents or factor == 0 or not math.isfinite(factor):
            continue
        units = {column.name: unit_of(column) for column in columns}
        step = Product(constraint.text, name, exponents, factor, units)
        if _fits(step, steps, kept):
            steps.append(step)
            return True
    return False


def _factors(node, constraint):
    """Exponents of the columns and the constant of a product or ratio, or None."""
    if isinstance(node, ast.Name):
        return {constraint.columns_in(node)[0]: 1}, 1.0
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        part = _factors(node.left, constraint)
        return part and _raised(part, node.right.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        part = _factors(node.operand, constraint)
        return part and (part[0], -part[1])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        parts = _factors(node.left, constraint), _factors(node.right, constraint)
        if None in parts or (isinstance(node.op, ast.Div) and not parts[1][1]):
            return None
        (exponents, factor), (others, other) = parts
        sign = 1 if isinstance(node.op, ast.Mult) else -1
        exponents = {n: exponents.get(n, 0) + sign * others.get(n, 0) for n in (*exponents, *others)}
        return exponents, factor * other if sign == 1 else factor / other
    known = _linear(node, constraint)
    return ({}, known[1]) if known is not None and not known[0] else None


def _raised(part, exponent):
    try:
        return {name: exponent * own for name, own in part[0].items()}, float(part[1]) ** exponent
    except OverflowError:
        return None


def _zone(column):
    return str(time_zone(output_dtype(column.dtype)))


def _is_span(column):
    """Whether the numbers of a column are the seconds of time spans."""
    return isinstance(column, Numeric) and form_of(column.dtype) == "span"


def _linear(node, constraint):
    """Weights of the columns and the constant of a linear expression, or None."""
    if isinstance(node, ast.Name):
        return {constraint.columns_in(node)[0]: 1.0}, 0.0
    if isinstance(node, ast.Constant):
        number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return ({}, float(node.value)) if number else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        part = _linear(node.operand, constraint)
        return part and _combined(({}, 0.0), part, -1.0)
    if not isinstance(node, ast.BinOp) or isinstance(node.op, ast.Pow):
        return None
    parts = _linear(node.left, constraint), _linear(node.right, constraint)
    if None in parts:
        return None
    one, other = parts
    if isinstance(node.op, ast.Add | ast.Sub):
        return _combined(one, other, 1.0 if isinstance(node.op, ast.Add) else -1.0)
    if isinstance(node.op, ast.Div):
        return _combined(({}, 0.0), one, 1 / other[1]) if not other[0] and other[1] else None
    if one[0] and other[0]:
        return None
    (weighted, factor) = (one, other[1]) if one[0] else (other, one[1])
    return _combined(({}, 0.0), weighted, factor)


def _combined(one, other, factor):
    weights = {name: one[0].get(name, 0.0) + factor * other[0].get(name, 0.0) for name in (*one[0], *other[0])}
    return weights, one[1] + factor * other[1]


# ---- public facts ---------------------------------------------------------------------------------------------------
def _with_facts(schema, steps):
    columns = {column.name: column for column in schema.columns}
    for step in steps:
        step.facts(columns)
    return replace(schema, columns=tuple(columns.values()))


def _check_together(table):
    """Check each constraint again where the others have narrowed what a column may be, as a file of the model does."""
    for text in table.constraints:
        try:
            read_constraint(text, table.names).check(table)
        except ValueError as error:
            raise SchemaError(f"the constraint {quoted(text)} contradicts the other constraints: {error}") from None


def _narrowed(schema, steps):
    """The schema with the bounds that its differences leave, and such limits of columns without declared bounds."""
    gaps = [step for step in steps if isinstance(step, Gap)]
    ends, columns = {}, {name: schema[name] for step in gaps for name in (step.start, step.end)}
    for name, column in columns.items():
        scale = unit_of(column)
        bounds = numeric_bounds(column) if column.complete else (-math.inf, math.inf)
        ends[name] = [bound * scale for bound in bounds]
    for _ in gaps:
        for gap in gaps:
            start, end, low, high = ends[gap.start], ends[gap.end], gap.low * gap.unit, gap.high * gap.unit
            start[:] = max(start[0], end[0] - high), min(start[1], end[1] - low)
            end[:] = max(end[0], start[0] + low), min(end[1], start[1] + high)
    limits = {}
    for name, column in columns.items():
        scale = unit_of(column)
        low, high = (bound / scale for bound in ends[name])
        if column.whole:
            if column.step is not None:  # 0.3 / 0.1 is a little less than 3
                low, high = low * (1 - 1e-9 * np.sign(low)), high * (1 + 1e-9 * np.sign(high))
            low, high = float(np.ceil(low)), float(np.floor(high))
        if low >= high:
            raise ValueError(f"the constraints leave no range to the column {name!r} within the declared bounds")
        if not column.complete:
            if math.isfinite(low) or math.isfinite(high):
                limits[name] = (low, high)
        elif (low, high) != tuple(numeric_bounds(column)):
            schema = schema.replace(with_bounds(column, low, high))
    return schema, limits
