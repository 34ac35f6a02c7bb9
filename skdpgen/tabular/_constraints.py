"""Declared constraints on rows: a small language of comparisons with its own parser, never executed."""

from __future__ import annotations

import ast
import math
import operator
import re
from dataclasses import replace

import numpy as np
import pandas as pd

from ..utils.printing import quoted
from ._columns import ISO_DATE, Boolean, Categorical, Datetime, Identifier, Numeric
from ._dtypes import output_dtype
from ._formats import form_of, from_form, time_zone, type_of_objects
from ._frames import numeric_bounds, restore

# Length of one constraint: it may come from a file, and brackets are parsed by recursion. A mapping of single values
# has no brackets inside, and may be a long public list.
_MOST_CHARACTERS, _MOST_OF_MAPPING = 10_000, 200_000
_VALUE = r"""(?:'[^'\\]*'|"[^"\\]*"|-?\d[\d.]*|True|False|None)"""
_ENTRY = rf"{_VALUE}\s*:\s*{_VALUE}\s*"
# Each text has one reading, so that the search for it takes time in proportion to its length.
_MAPPING = re.compile(rf"[^{{}}]{{0,500}}\{{\s*{_ENTRY}(?:,\s*{_ENTRY})*(?:,\s*)?\}}[^{{}}]{{0,500}}")
# Constraints of one schema: each is checked beside the others. The length of all of them together.
MOST_CONSTRAINTS, MOST_OF_ALL = 200, 2_000_000

_COMPARE = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}  # fmt: skip
# Exponents that may stand behind **.
_EXPONENTS = (2, 3, 4)
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
# Values of weekday(...), in the order of pandas. English names, whatever the locale is: a model file says the same
# everywhere.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# What comparisons raise. The texts of these errors may hold values of the rows.
DIFFERENT_KINDS = (TypeError, ValueError, OverflowError)
NOT_COMPARED = (
    "the constraint {text} compares values of different kinds in the rows, or its dates leave the range of dates"
)
# Most combinations of declared categories that are compared with a condition, to see whether any fulfils it.
_MOST_COMPARED = 100_000
_ONLY_FUNCTIONS = (
    "the only functions are weekday(COLUMN) and hour(COLUMN), of a column of dates. Leave a column that follows from "
    "others in another way, such as the year of a date, out of the fit, and compute it from a sample"
)
# Operators that other languages of conditions have, and what stands in their place.
_IN_PLACE_OF = {
    ast.BitAnd: "write `and` in place of &, as in `age >= 16 and age < 65`, or give two constraints",
    ast.BitOr: "write `or` in place of |, as in `age >= 16 or job == 'none'`",
    ast.Invert: "write `not` in place of ~, as in `not age < 16`",
}
_QUOTED = re.compile(r"`([^`]+)`")
_IF = re.compile(r"if\b")
# How constraints are written: comparisons, and conditions.
_WRITTEN = (
    'write a comparison, such as "start <= end" or "total == a + b", with == for equal; join several by and, or, not; '
    "a name of several words stands in `backticks`",
    "write a condition as in \"if age < 16: status == 'child'\"",
)


class ConstraintText:
    """The text of a constraint, the columns that it may name, and its syntax tree."""

    def __init__(self, text, names):
        if not isinstance(text, str):
            raise ValueError(f'a constraint must be a text such as "start <= end"; got {type(text).__name__}')
        if len(text) > _MOST_CHARACTERS:
            most = _MOST_OF_MAPPING if _MAPPING.fullmatch(text[: _MOST_OF_MAPPING + 1]) else _MOST_CHARACTERS
            if len(text) > most:
                raise ValueError(
                    f"a constraint may have at most {_MOST_CHARACTERS:,} characters, and a mapping of single values "
                    f"{_MOST_OF_MAPPING:,}; got {len(text):,}"
                )
        self.text, self._names = text, {str(name): name for name in names}
        self._quoted = {}
        source = _QUOTED.sub(self._placeholder, text).strip()
        try:
            if _IF.match(source):
                (self._tree,) = ast.parse(source).body
            else:
                self._tree = ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # null characters, endless brackets
            how = _WRITTEN[_IF.match(source) is not None]
            raise ValueError(f"the constraint {quoted(text)} cannot be read: {how}") from None

    def _placeholder(self, match):
        name = f"_quoted_{len(self._quoted)}"
        self._quoted[name] = match.group(1)
        return name

    def _column(self, node):
        name = self._quoted.get(node.id, node.id)
        if name not in self._names:
            raise ValueError(
                f"the constraint {quoted(self.text)} names {quoted(name)}, which is no column of the table"
            )
        return self._names[name]

    def _name(self, node):
        if not isinstance(node, ast.Name):
            raise ValueError(f"the constraint {quoted(self.text)} has something else where a column must stand")
        return self._column(node)

    def _literal(self, node):
        """A number, a text, True, False, or None for a missing value."""
        sign = 1
        if _is_minus(node):
            node, sign = node.operand, -1
        known = isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | bool | None)
        if not known or (sign < 0 and not is_number(node.value)):
            raise ValueError(f"the constraint {quoted(self.text)}: values must be numbers, text, True, False or None")
        if node.value is not None and _beyond_floats(node.value):
            raise ValueError(f"the constraint {quoted(self.text)}: numbers must be finite, and no larger than floats")
        return node.value if sign > 0 else -node.value


class RowConstraint(ConstraintText):
    """A condition on the columns of a row, such as ``"age >= 16 or job == 'none'"``.

    Parameters
    ----------
    text : str
        Columns by name (in backticks where a name is not an identifier), numbers, text in quotes, ``+ - * /``, ``** 2``
        to ``** 4``, comparisons (also chained), ``in`` and ``not in`` a list, ``and``, ``or``, ``not``. Dates are
        compared with text, as in ``"born < '2020-01-01'"``. Numbers beside dates are days, as in ``"left - came <=
        30"``.
        ``weekday(came)`` is the English name of the day of the week of a date, as in ``"weekday(came) != 'Sunday'"``,
        and ``hour(came)`` the hour from 0 to 23.
    names : sequence
        Names of the columns.

    Raises
    ------
    ValueError
        The text contains anything else, or a name that is not a column.
    """

    def __init__(self, text, names):
        super().__init__(text, names)
        self._check(self._tree)

    @classmethod
    def within(cls, whole, tree):
        """The condition that is a part of a longer text."""
        self = cls.__new__(cls)
        self.text, self._names, self._quoted, self._tree = whole.text, whole._names, whole._quoted, tree
        self._check(tree)
        return self

    def _check(self, node):
        allowed = (
            ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.In, ast.NotIn, ast.BinOp,
            ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple, ast.Call, *_COMPARE, *_ARITHMETIC,
        )  # fmt: skip
        for part in ast.walk(node):
            sides = (part.left, *part.comparators) if isinstance(part, ast.Compare) else ()
            if any(map(_is_none, sides)) or _asks_for_missing(part):
                raise ValueError(
                    f"the constraint {quoted(self.text)}: a condition cannot ask whether a value is missing, and None "
                    'stands behind the colon alone: make a column of truth values of that before the fit, as in "if '
                    'not has_job: job is None". sample(given=) draws rows in which a column is missing, or is not'
                )
        for part in filter(_is_call, ast.walk(node)):
            self._check_call(part)
        for part in ast.walk(node):
            if not isinstance(part, allowed):
                why = _ONLY_FUNCTIONS if isinstance(part, ast.Attribute) else _IN_PLACE_OF.get(type(part))
                why = f": {why}" if why else ""
                raise ValueError(f"the constraint {quoted(self.text)} is no comparison of columns and values{why}")
            if isinstance(part, ast.Constant) and not isinstance(part.value, str | int | float | bool):
                raise ValueError(f"the constraint {quoted(self.text)}: values must be numbers, text, True or False")
            if isinstance(part, ast.Constant) and _beyond_floats(part.value):
                raise ValueError(
                    f"the constraint {quoted(self.text)}: numbers must be finite, and no larger than floats"
                )
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Pow) and not _is_exponent(part.right):
                raise ValueError(
                    f"the constraint {quoted(self.text)}: an exponent must be 2, 3 or 4, as in `height ** 2`"
                )
            if isinstance(part, ast.BinOp) and (_is_call(part.left) or _is_call(part.right)):
                raise ValueError(f"the constraint {quoted(self.text)}: weekday() and hour() take no part in sums")
            if isinstance(part, ast.Compare):
                self._check_compared_calls(part)
                for op, right in zip(part.ops, part.comparators):
                    if isinstance(op, ast.In | ast.NotIn) != isinstance(right, ast.List | ast.Tuple):
                        raise ValueError(
                            f"the constraint {quoted(self.text)}: `in` goes with a list, such as `a in [1, 2]`"
                        )
        self.columns_in(node)
        options = [right for part in ast.walk(node) if isinstance(part, ast.Compare) for right in part.comparators]
        if any(isinstance(part, ast.List | ast.Tuple) and part not in options for part in ast.walk(node)):
            raise ValueError(f"the constraint {quoted(self.text)}: a list goes with `in` alone, such as `a in [1, 2]`")
        if not isinstance(node, ast.BoolOp | ast.Compare | ast.Name | ast.UnaryOp) or _is_minus(node):
            raise ValueError(f"the constraint {quoted(self.text)} is no condition: compare it with something")

    def _check_call(self, node):
        named = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
        if not named or node.keywords or len(node.args) != 1 or not isinstance(node.args[0], ast.Name):
            raise ValueError(
                f"the constraint {quoted(self.text)} is no comparison of columns and values: {_ONLY_FUNCTIONS}"
            )

    def _check_compared_calls(self, compared):
        """Refuse a day of the week beside anything else than names of days, an order of days, and hours of columns."""
        for op, left, right in zip(compared.ops, [compared.left, *compared.comparators], compared.comparators):
            sides = [left, *(right.elts if isinstance(right, ast.List | ast.Tuple) else [right])]
            rest = [side for side in sides if not _is_call(side)]
            values = [side.value for side in rest if isinstance(side, ast.Constant)]
            if any(_is_call(side, "hour") for side in sides):
                # a column beside it would need an equality that draws of rows hardly satisfy
                if len(rest) == len(sides) - 1 == len(values) and all(map(is_number, values)):
                    continue
                beside = any(isinstance(side, ast.Name) for side in rest)
                raise ValueError(
                    f"the constraint {quoted(self.text)}: compare hour() with whole numbers from 0 to 23"
                    + "; leave a column of the hour out of the fit, and compute it from the dates of a sample. Or, to "
                    "keep how often each hour occurs, fit that column beside days alone, as .dt.normalize() gives "
                    "them, and join the two in a sample" * beside
                )
            if len(rest) == len(sides):
                continue
            if isinstance(op, _ORDER):
                raise ValueError(f"the constraint {quoted(self.text)}: compare days of the week by ==, != or `in`")
            if unknown := [value for value in values if value not in _WEEKDAYS]:
                raise ValueError(
                    f"the constraint {quoted(self.text)}: {quoted(unknown[0])} is no day of the week: write "
                    f"{', '.join(_WEEKDAYS)}"
                )

    @property
    def tree(self):
        """The syntax tree of the condition."""
        return self._tree

    @property
    def columns(self):
        """Columns that the condition names, in order, each once."""
        return self.columns_in(self._tree)

    def columns_in(self, tree):
        """Columns that a part of the condition names, in order, each once."""
        functions = [part.func for part in ast.walk(tree) if _is_call(part)]
        names = [part for part in ast.walk(tree) if isinstance(part, ast.Name) and part not in functions]
        return tuple(dict.fromkeys(map(self._column, names)))

    def columns_beside_functions(self, tree):
        """Columns that a part of the condition names outside of weekday() and hour()."""
        inside = [part.args[0] for part in ast.walk(tree) if _is_call(part)]
        inside += [part.func for part in ast.walk(tree) if _is_call(part)]
        names = [part for part in ast.walk(tree) if isinstance(part, ast.Name) and part not in inside]
        return tuple(dict.fromkeys(map(self._column, names)))

    def check(self, schema):
        """Refuse comparisons of different kinds, undeclared categories, and conditions that no declared value fulfils.

        This reads the schema alone, so that it can run before anything is charged.

        Columns that the schema does not declare may have any values. Returns the constraint itself; raises ValueError.
        """
        for part in filter(_is_call, ast.walk(self._tree)):
            column = schema[self._column(part.args[0])]
            if not isinstance(column, Datetime):
                raise ValueError(f"the constraint {quoted(self.text)}: {column.name!r} is no column of dates")
            if _is_call(part, "hour") and column.resolution == "D":
                raise ValueError(
                    f"the constraint {quoted(self.text)}: {column.name!r} is a column of days, without hours"
                )
        self._check_truths(self._tree, schema)
        self._check_times(schema)
        self._check_week(schema)
        try:
            kept = self._holds(_dummy_rows(schema, ("a", "b")))
        except DIFFERENT_KINDS:  # undeclared categories may be numbers
            try:
                kept = self._holds(_dummy_rows(schema, (0, 1)))
            except DIFFERENT_KINDS as error:
                why = self._of_time_zones(schema) or self._of_times(schema) or error
                raise ValueError(
                    f"the constraint {quoted(self.text)} compares values of different kinds ({why})"
                ) from error
        for part in ast.walk(self._tree):
            if isinstance(part, ast.Compare):
                self._check_categories(part, schema)
        self._check_possible_categories(schema)
        tree = self._tree
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], _ORDER):
            sides = (tree.left, tree.comparators[0])
            names = [side for side in sides if isinstance(side, ast.Name)]
            simple = len(names) == 1 and all(isinstance(side, ast.Name | ast.Constant) for side in sides)
            column = schema[self._column(names[0])] if simple else None
            if isinstance(column, Numeric | Datetime) and column.complete and not kept.any():
                raise ValueError(
                    f"the constraint {quoted(self.text)} holds for no value within the bounds of {column.name!r}"
                )
        return self

    def _check_times(self, schema):
        """Refuse a column of times of the day beside one of another kind: its seconds would count as days, say."""
        for part in ast.walk(self._tree):
            if not isinstance(part, ast.Compare):
                continue
            columns = [schema[name] for name in self.columns_beside_functions(part)]
            times = [c for c in columns if isinstance(c, Numeric) and form_of(c.dtype) == "time"]
            others = [column for column in columns if column not in times]
            if times and others:
                raise ValueError(
                    f"the constraint {quoted(self.text)} compares values of different kinds: {times[0].name!r} is a "
                    f"time of the day, and {others[0].name!r} is not. Make numbers of the times before the fit, such "
                    "as hours since midnight"
                )

    def _check_possible_categories(self, schema):
        """Refuse a condition that no combination of the declared categories fulfils; missing values may fulfil it."""
        columns = [schema[name] for name in self.columns]
        if any(not isinstance(c, Categorical) or c.values is None or c.missing for c in columns) or len(columns) > 2:
            return
        if math.prod(len(column.values) for column in columns) > _MOST_COMPARED:
            return
        rows = np.meshgrid(*(np.arange(len(column.values)) for column in columns))
        rows = {column.name: restore(codes.ravel(), column) for column, codes in zip(columns, rows)}
        if not self._holds(pd.DataFrame(rows)).any():
            named = " and ".join(repr(column.name) for column in columns)
            raise ValueError(f"the constraint {quoted(self.text)} holds for no category of {named}")

    def _of_time_zones(self, schema):
        """What to do where dates with a time zone stand beside dates without one; else None."""
        dates = [schema[name] for name in self.columns if isinstance(schema[name], Datetime)]
        aware = [column.name for column in dates if time_zone(output_dtype(column.dtype)) is not None]
        naive = [column.name for column in dates if column.name not in aware]
        if not aware or not naive:
            return None
        return (
            f"{aware[0]!r} has a time zone, and {naive[0]!r} has none: convert one of them before the fit, for "
            f"instance by X[{aware[0]!r}].dt.tz_localize(None)"
        )

    def _of_times(self, schema):
        """What to write where a time of the day may stand beside a text; else None."""
        times = [name for name in self.columns if form_of(schema[name].dtype) == "time"]
        if not times:
            return None
        return f"{times[0]!r} is a time of the day, which counts as its seconds since midnight: write 32400 for 09:00"

    def _check_truths(self, node, schema):
        """Refuse numbers, dates, and their days and hours, that stand where a condition must stand."""
        if isinstance(node, ast.BoolOp):
            for part in node.values:
                self._check_truths(part, schema)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._check_truths(node.operand, schema)
        elif not isinstance(node, ast.Compare | ast.Constant):
            column = schema[self._column(node)] if isinstance(node, ast.Name) else None
            if column is None or not _may_be_truth(column):
                raise ValueError(
                    f"the constraint {quoted(self.text)} compares values of different kinds: write a comparison where "
                    "it has numbers or dates alone, as in `a > 0`"
                )

    def _check_week(self, schema):
        """Refuse a condition on the day and the hour of one column that no hour of a week within its bounds fulfils."""
        if len(self.columns) != 1 or self.columns_beside_functions(self._tree):
            return
        (name,) = self.columns
        column = schema[name]
        step, first, last = "D" if column.resolution == "D" else "h", "2024-01-01", "2024-01-07T23"
        if column.complete:
            first, last = (pd.Timestamp(end).tz_localize(None) for end in column.bounds)
            last = min(last, first + pd.Timedelta(days=7))
        moments = pd.date_range(first, last, freq=step).union([pd.Timestamp(last)])
        if not self._holds(pd.DataFrame({name: moments})).any():
            raise ValueError(f"the constraint {quoted(self.text)} holds for no day of the week and hour")

    def _check_categories(self, compared, schema):
        for op, left, right in zip(compared.ops, [compared.left, *compared.comparators], compared.comparators):
            if not isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn):
                continue
            sides = [left, *(right.elts if isinstance(right, ast.List | ast.Tuple) else [right])]
            values = [side.value for side in sides if isinstance(side, ast.Constant)]
            days = any(_is_call(side, "weekday") for side in sides)
            for side in sides:
                column = schema[self._column(side)] if isinstance(side, ast.Name) else None
                if days and column is not None:
                    self._check_column_of_days(column)
                if not isinstance(column, Categorical) or column.values is None:
                    continue
                if absent := [value for value in values if value not in column.values]:
                    raise ValueError(
                        f"the constraint {quoted(self.text)} names {quoted(absent[0])}, which is no category of "
                        f"{column.name!r}"
                    )

    def _check_column_of_days(self, column):
        """Refuse a column beside weekday(...) that cannot have the names of days."""
        if not isinstance(column, Categorical) or (column.values is not None and not {*column.values} & {*_WEEKDAYS}):
            raise ValueError(
                f"the constraint {quoted(self.text)}: {column.name!r} must be a column of categories "
                f"{', '.join(_WEEKDAYS)}, or such of them as occur"
            )

    def holds(self, frame, undecided=True):
        """Return which rows fulfil the constraint; where a missing value leaves that open, `undecided`.

        ValueError if values of different kinds are compared, or dates leave their range. It shows no value of the rows,
        and is raised from no error that may do so.
        """
        try:
            return self._holds(frame, undecided)
        except DIFFERENT_KINDS:
            raise ValueError(NOT_COMPARED.format(text=quoted(self.text))) from None

    def _holds(self, frame, undecided=True):
        with np.errstate(all="ignore"):
            found = self._truth(self._tree, frame)
        return found.fillna(undecided).to_numpy(dtype=bool)

    def _truth(self, node, frame):
        """Truth of a condition in each row, nullable."""
        if isinstance(node, ast.BoolOp):
            parts = [self._truth(part, frame) for part in node.values]
            total = parts[0]
            for part in parts[1:]:
                total = total & part if isinstance(node.op, ast.And) else total | part
            return total
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self._truth(node.operand, frame)
        if isinstance(node, ast.Compare):
            total, left = None, node.left
            for op, right in zip(node.ops, node.comparators):
                part = self._compared(op, left, right, frame)
                total, left = part if total is None else total & part, right
            return total
        values = self._value(node, frame)
        if not isinstance(values, pd.Series):
            return pd.Series(bool(values), index=frame.index, dtype="boolean")
        if pd.api.types.is_numeric_dtype(values.dtype) and not pd.api.types.is_bool_dtype(values.dtype):
            return (values != 0).astype("boolean").mask(values.isna())  # learned bounds may lie beyond 0 and 1
        return values.astype("boolean")

    def _compared(self, op, left, right, frame):
        a = self._value(left, frame)
        if _all_absent(a):
            return _open(a)
        if isinstance(op, ast.In | ast.NotIn):
            options = [_beside_dates(self._value(option, frame), a) for option in right.elts]
            found, absent = a.isin(options), a.isna()
            found = ~found if isinstance(op, ast.NotIn) else found
        else:
            b = self._value(right, frame)
            if _all_absent(b):
                return _open(b)
            a, b = comparable(a, b)
            found, absent = _COMPARE[type(op)](a, b), absent_in(a) | absent_in(b)
            if not isinstance(found, pd.Series):
                return pd.Series(bool(found), index=frame.index, dtype="boolean")
        return found.astype("boolean").mask(absent)

    def _value(self, node, frame):
        if isinstance(node, ast.Name):
            return _plain_objects(frame[self._column(node)])
        if isinstance(node, ast.Call):
            return _FUNCTIONS[node.func.id](_plain_objects(frame[self._column(node.args[0])]))
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand, frame)
            return value if _all_absent(value) else -value
        if isinstance(node, ast.BinOp):
            a, b = self._value(node.left, frame), self._value(node.right, frame)
            if (missing := next((x for x in (a, b) if _all_absent(x)), None)) is not None:
                return missing
            if isinstance(node.op, ast.Add | ast.Sub):
                a, b = (_days(x, beside=y) for x, y in ((a, b), (b, a)))
            if isinstance(node.op, ast.Mult) and (_is_text(a) or _is_text(b)):
                raise TypeError("text cannot be multiplied")  # repeated text could fill the memory
            if _is_whole(a) and _is_whole(b) and not isinstance(node.op, ast.Div):
                a, b = _as_floats(a), _as_floats(b)
            elif isinstance(node.op, ast.Pow) and isinstance(a, float):
                a = np.float64(a)
            with np.errstate(over="ignore", invalid="ignore"):
                value = _ARITHMETIC[type(node.op)](a, b)
            return float(value) if isinstance(value, np.floating) else value
        return self._truth(node, frame)


def _may_be_truth(column):
    """Whether a column may stand where a condition must: numbers are no truth but 0 and 1."""
    if isinstance(column, Numeric):
        return column.integer and (not column.complete or (column.bounds[0] >= 0 and column.bounds[1] <= 1))
    return not isinstance(column, Datetime)


def _is_whole(value):
    """Whether a column or a constant holds whole numbers."""
    return pd.api.types.is_integer_dtype(value.dtype) if isinstance(value, pd.Series) else type(value) is int


def _as_floats(value):
    """Whole numbers as floats: the results of narrow integers wrap around, and those of Python fill the memory."""
    if not isinstance(value, pd.Series):
        return np.float64(value)
    return value.astype("Float64" if isinstance(value.dtype, pd.api.extensions.ExtensionDtype) else "float64")


def _is_exponent(node):
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value in _EXPONENTS


def _is_call(node, name=None):
    return isinstance(node, ast.Call) and name in (None, getattr(node.func, "id", None))


def _asks_for_missing(node):
    """Whether a call is such as pandas has for missing values: isna(x), or x.notna()."""
    name = getattr(node.func, "id", getattr(node.func, "attr", None)) if _is_call(node) else None
    return name in ("isna", "isnull", "notna", "notnull")


def _weekdays(dates):
    """Names of the days of the week of dates, on their wall clock; those of periods are those of their first days."""
    places = _part_of_dates(dates, "day_of_week")
    if places is None:
        return dates
    names = np.array([*_WEEKDAYS, None], dtype=object)[places.fillna(len(_WEEKDAYS)).to_numpy(dtype=np.intp)]
    return pd.Series(names, index=dates.index, dtype=object)


def _hours(dates):
    """Hours of the day of dates, on their wall clock, from 0 to 23; NaN where missing."""
    hours = _part_of_dates(dates, "hour")
    return dates if hours is None else hours


def _part_of_dates(dates, part):
    """A part of dates as floats, NaN where missing; None where all are missing, which have no kind."""
    if isinstance(dates.dtype, pd.PeriodDtype):
        dates = dates.dt.to_timestamp()
    if _all_absent(dates):
        return None
    if not hasattr(dates, "dt") or not hasattr(dates.dt, part):
        raise TypeError("weekday() and hour() take a column of dates")
    return getattr(dates.dt, part).astype("float64")


# Functions of a column of dates.
_FUNCTIONS = {"weekday": _weekdays, "hour": _hours}


def _is_text(value):
    if not isinstance(value, pd.Series):
        return isinstance(value, str)
    if value.dtype == object:
        return any(isinstance(item, str) for item in value)
    return not pd.api.types.is_numeric_dtype(value.dtype) and value.dtype.kind not in "mMb"


def _beyond_floats(value):
    if isinstance(value, str | bool):
        return False
    try:
        return not math.isfinite(float(value))
    except OverflowError:
        return True


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_minus(node):
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def absent_in(value):
    return value.isna() if isinstance(value, pd.Series) else False


def _all_absent(value):
    """Whether all values are missing. They have no kind, so they are compared with nothing."""
    return isinstance(value, pd.Series) and bool(len(value)) and bool(value.isna().all())


def _open(series):
    """Truth values that missing values leave open."""
    return pd.Series(pd.NA, index=series.index, dtype="boolean")


def _days(value, *, beside):
    """A number beside dates or time spans, as that many days."""
    if not isinstance(beside, pd.Series) or beside.dtype.kind not in "mM":
        return value
    if isinstance(value, pd.Series):
        number = pd.api.types.is_numeric_dtype(value.dtype) and not pd.api.types.is_bool_dtype(value.dtype)
        return pd.to_timedelta(value, unit="D") if number else value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return pd.Timedelta(value, unit="D") if number else value


def _is_none(node):
    return isinstance(node, ast.Constant) and node.value is None


def _dummy_rows(schema, categories):
    """Two dummy rows of a table: the ends of the declared range of each column, or of a possible one."""
    columns = {}
    for column in schema.columns:
        if not column.complete:
            open_ends = {Numeric: (0, 1), Datetime: ("2000-01-01", "2010-01-01")}
            if isinstance(column, Categorical):
                columns[column.name] = pd.Series(_of_dtype(categories, column))
                continue
            free = {"step": None, "spikes": None} if isinstance(column, Numeric) else {}
            column = replace(column, bounds=open_ends[type(column)], **free)
        ends = [0, len(column.values) - 1] if isinstance(column, Categorical | Boolean) else numeric_bounds(column)
        columns[column.name] = restore(np.array(ends), column)
    return pd.DataFrame(columns)


def _of_dtype(categories, column):
    dtype = None if column.dtype is None else output_dtype(column.dtype)
    if dtype is None or isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_object_dtype(dtype):
        return list(categories)
    if pd.api.types.is_bool_dtype(dtype):
        return [False, True]
    return [0, 1] if pd.api.types.is_numeric_dtype(dtype) else ["a", "b"]


def comparable(a, b):
    """Categories as plain values, text beside a date as a date, a number beside a time span as days."""
    if isinstance(b, pd.Series) and not isinstance(a, pd.Series):
        b, a = comparable(b, a)
        return a, b
    a, b = plain_categories(a), plain_categories(b)
    b = _beside_dates(b, a)
    if isinstance(a, pd.Series) and a.dtype.kind == "m":
        b = _days(b, beside=a)
    if isinstance(b, pd.Series) and b.dtype.kind == "m":
        a = _days(a, beside=b)
    return a, b


def _beside_dates(value, dates):
    """A text beside a column of dates as a date or period; ValueError unless it is in ISO 8601."""
    if not isinstance(value, str) or not isinstance(dates, pd.Series):
        return value
    periods = isinstance(dates.dtype, pd.PeriodDtype)
    if not periods and not pd.api.types.is_datetime64_any_dtype(dates.dtype):
        return value
    if not ISO_DATE.match(value):
        raise ValueError(f"write the date {value!r} as in 2020-12-31 (ISO 8601)")
    return pd.Period(value, freq=dates.dtype.freq) if periods else pd.Timestamp(value, tz=dates.dt.tz)


def _plain_objects(series):
    """Decimals as numbers, times of the day as seconds, dates as datetimes: objects compare with no missing one."""
    if isinstance(series.dtype, pd.ArrowDtype) and series.dtype.kind == "M":  # of dates and times, with a zone or not
        zone = time_zone(series.dtype)
        return series.astype("datetime64[us]" if zone is None else pd.DatetimeTZDtype("us", zone))
    if pd.api.types.is_object_dtype(series.dtype) and type_of_objects(series) == "date":
        moments = series.where(series.notna(), None).to_numpy().astype("datetime64[us]")
        return pd.Series(moments, index=series.index)
    numbers = from_form(series, "time")
    return series if numbers is None else pd.Series(numbers, index=series.index)


def plain_categories(values):
    if isinstance(values, pd.Series) and isinstance(values.dtype, pd.CategoricalDtype):
        return values.astype(values.cat.categories.dtype if len(values.cat.categories) else object)
    return values


def known_values(frame, schema):
    """The rows, with missing values in columns of learned categories of which none was released.

    Such a column holds its `other` alone, whose kind (text or number) says nothing about the categories. A constraint
    cannot decide by it.
    """
    unknown = {column.name for column in schema.columns if getattr(column, "categories", None) == ()}
    if not unknown & set(frame.columns):
        return frame
    missing = pd.Series(np.nan, index=frame.index, dtype=object)
    return pd.DataFrame({name: missing if name in unknown else frame[name] for name in frame.columns})


def constraint_texts(given):
    """Return what is given as `constraints`, one text, several or None, as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def check_keys(constraint, schema):
    """Raise ValueError for a constraint that names an identifier; return the constraint."""
    for name in constraint.columns:
        if isinstance(schema[name], Identifier):
            raise ValueError(
                f"the constraint {quoted(constraint.text)} names {name!r}, an identifier: its keys are made anew in "
                "each sample and say nothing of a row; leave it out of constraints"
            )
    return constraint
