"""Forms of constraints that are more than a condition: values that occur together, mappings, and what follows from one.

`read_constraint` tells them apart.
"""

from __future__ import annotations

import ast
import math
from dataclasses import replace

import numpy as np
import pandas as pd

from ..exceptions import SchemaError
from ..utils.printing import quoted
from ._columns import Datetime, Numeric, rounded_to
from ._constraints import (
    DIFFERENT_KINDS,
    NOT_COMPARED,
    ConstraintText,
    RowConstraint,
    absent_in,
    comparable,
    is_number,
    plain_categories,
)
from ._formats import form_of

# A longer constraint is not written in another way in an error.
_LONGEST_ADVICE = 200
# Comparisons that hold where others do not.
_OPPOSITE = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt}
_OPPOSITE |= {ast.In: ast.NotIn, ast.NotIn: ast.In}


class Combinations(ConstraintText):
    """Values that occur together: ``"combinations(state, city)"``, ``"determines(area, density)"``, or with a list.

    The list is declared as in ``"(state, city) in [('TX', 'Dallas'), ('NY', 'Albany')]"``; without it the combinations
    are learned. With "determines" the first column has one combination of the others for each of its values.
    """

    def __init__(self, text, names):
        super().__init__(text, names)
        node, self.values, self.is_function = self._tree, None, False
        if isinstance(node, ast.Call):
            self.is_function = node.func.id == "determines"
            if node.keywords:
                raise ValueError(f"the constraint {quoted(text)}: {node.func.id}() takes columns alone")
            parts = node.args
        else:
            parts = node.left.elts
            self.values = tuple(dict.fromkeys(map(self._tuple, node.comparators[0].elts)))
        self.columns = tuple(self._name(part) for part in parts)
        if len(self.columns) < 2 or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"the constraint {quoted(text)} must name two columns or more, each once")
        if self.values is not None and (not self.values or {len(v) for v in self.values} != {len(self.columns)}):
            raise ValueError(f"the constraint {quoted(text)}: each combination must have {len(self.columns)} values")

    def _tuple(self, node):
        if not isinstance(node, ast.Tuple | ast.List):
            raise ValueError(
                f"the constraint {quoted(self.text)}: a combination must be a tuple, such as ('TX', 'Dallas')"
            )
        return tuple(self._literal(part) for part in node.elts)

    @staticmethod
    def _matches(node):
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Name) and node.func.id in ("combinations", "determines")
        if not (isinstance(node, ast.Compare) and isinstance(node.left, ast.Tuple) and len(node.ops) == 1):
            return False
        return isinstance(node.ops[0], ast.In) and isinstance(node.comparators[0], ast.List | ast.Tuple)

    def check(self, schema):
        """Refuse columns of dates, and values that a column cannot have; ValueError."""
        for at, name in enumerate(self.columns):
            column = schema[name]
            if isinstance(column, Datetime) or _has_form(column):
                raise ValueError(
                    f"the constraint {quoted(self.text)}: {name!r} ({column.dtype}) cannot be in a combination"
                )
            for value in dict.fromkeys(row[at] for row in self.values or ()):
                check_value(value, column, self.text)
        return self

    def holds(self, frame):
        """Return which rows have a combination of the list, or a missing value; all, where there is no list."""
        if self.values is None:
            return np.ones(len(frame), dtype=bool)
        parts = frame[list(self.columns)].astype(object)
        return pd.MultiIndex.from_frame(parts).isin(self.values) | parts.isna().any(axis=1).to_numpy()


class Lookup(ConstraintText):
    """A column that follows from another by a declared mapping: ``"density == {'A': 3.2, 'B': 0.5}[area]"``."""

    def __init__(self, text, names):
        super().__init__(text, names)
        sides = [self._tree.left, self._tree.comparators[0]]
        looked, other = sides if _is_lookup(sides[0]) else reversed(sides)
        self.dependent, self.key = self._name(other), self._name(looked.slice)
        if None in looked.value.keys or not looked.value.keys or self.dependent == self.key:
            raise ValueError(f"the constraint {quoted(text)} must map the values of another column, and at least one")
        self.table = {self._literal(k): self._literal(v) for k, v in zip(looked.value.keys, looked.value.values)}
        if len(self.table) < len(looked.value.keys):
            raise ValueError(f"the constraint {quoted(text)} maps a value twice")
        if None in self.table:
            raise ValueError(
                f"the constraint {quoted(text)}: None (missing) has no place among the values of {self.key!r}"
            )
        self.columns = (self.key, self.dependent)

    @staticmethod
    def _matches(node):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
            return False
        return _is_lookup(node.left) != _is_lookup(node.comparators[0])

    def check(self, schema):
        """Refuse columns of dates, values that a column cannot have, and a mapping with gaps; ValueError."""
        key, dependent = schema[self.key], schema[self.dependent]
        for column in (key, dependent):
            if isinstance(column, Datetime) or _has_form(column):
                raise ValueError(
                    f"the constraint {quoted(self.text)}: a mapping takes categories and numbers, and {column.name!r} "
                    f"is {column.dtype}"
                )
        for column, wanted in ((key, self.table), (dependent, dict.fromkeys(self.table.values()))):
            known = set(getattr(column, "values", None) or ())
            for value in wanted:
                if value is None or value not in known:
                    check_value(value, column, self.text)
        if absent := [value for value in getattr(key, "values", None) or () if value not in self.table]:
            raise ValueError(
                f"the constraint {quoted(self.text)} maps no value {quoted(absent[0])}, a category of {self.key!r}"
            )
        return self

    def holds(self, frame):
        """Return which rows have the value of the mapping; a missing value leaves it open, and the row holds it."""
        return _equal(plain_categories(frame[self.key]).map(self.table), frame[self.dependent], self.text)


class Conditional(ConstraintText):
    """What holds where a condition does: ``"if deceased == 'yes': readmitted == 'NO' and left is None"``.

    A condition that a missing value leaves open does not hold. None stands for a missing value.
    """

    def __init__(self, text, names):
        super().__init__(text, names)
        node = self._tree
        if node.orelse or len(node.body) != 1 or not isinstance(node.body[0], ast.Expr):
            raise ValueError(f"the constraint {quoted(text)} must be: if CONDITION: COLUMN == VALUE")
        self.condition = RowConstraint.within(self, node.test)
        then = node.body[0].value
        parts = then.values if isinstance(then, ast.BoolOp) and isinstance(then.op, ast.And) else [then]
        self.values = dict(map(self._assigned, parts))
        self.columns = (*self.condition.columns, *self.values)
        if len(self.values) < len(parts) or set(self.values) & set(self.condition.columns):
            raise ValueError(
                f"the constraint {quoted(text)} must name each column on one side, and once after the colon"
            )

    def _assigned(self, node):
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.Is):
            raise ValueError(
                f"the constraint {quoted(self.text)}: after the colon stands COLUMN == VALUE, or COLUMN is None"
                f"{self._with_or()}"
            )
        return self._name(node.left), self._literal(node.comparators[0])

    def _with_or(self):
        """How the same is written without a colon, where it can be."""
        test, then = self._tree.test, self._tree.body[0].value
        if not isinstance(then, ast.Compare | ast.BoolOp):
            return ""
        single = isinstance(test, ast.Compare) and len(test.ops) == 1
        if single and (opposite := _OPPOSITE.get(type(test.ops[0]))):
            test = ast.Compare(test.left, [opposite()], test.comparators)
        else:
            test = ast.UnaryOp(ast.Not(), test)
        text = ast.unparse(ast.BoolOp(ast.Or(), [test, then]))
        for place, name in self._quoted.items():
            text = text.replace(place, f"`{name}`")
        if len(text) > _LONGEST_ADVICE:
            return ""
        try:
            RowConstraint(text, self._names.values())
        except ValueError:
            return ""
        return f". Any other condition is written without a colon: {text}"

    @staticmethod
    def _matches(node):
        return isinstance(node, ast.If)

    def check(self, schema):
        """Refuse what the condition or a value cannot be; ValueError."""
        self.condition.check(schema)
        for name, value in self.values.items():
            check_value(value, schema[name], self.text)
        return self

    def where(self, frame):
        """Return in which rows the condition holds, bool array."""
        return self.condition.holds(frame, undecided=False)

    def holds(self, frame):
        """Return which rows have the values where the condition holds; a missing value holds any."""
        kept = np.ones(len(frame), dtype=bool)
        for name, value in self.values.items():
            series = frame[name]
            kept &= series.isna().to_numpy() if value is None else _equal(series, value, self.text)
        return kept | ~self.where(frame)


def _equal(one, other, text):
    """Which values are equal, as far as they are known."""
    try:
        a, b = comparable(one, other)
        found = (a == b).astype("boolean").mask(absent_in(a) | absent_in(b))
    except DIFFERENT_KINDS:
        raise ValueError(NOT_COMPARED.format(text=quoted(text))) from None
    return found.fillna(True).to_numpy(dtype=bool)


def _has_form(column):
    return isinstance(column, Numeric) and form_of(column.dtype) is not None


def _is_lookup(node):
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict)


def check_value(value, column, text):
    """Raise ValueError for a value that a column cannot have by its schema."""
    name = column.name
    if value is None:
        if not column.missing:
            raise ValueError(f"the constraint {quoted(text)}: {name!r} may not be missing: declare missing=True")
        return
    if isinstance(column, Numeric):
        low, high = column.bounds or (-math.inf, math.inf)
        if form_of(column.dtype) in ("span", "time"):
            raise ValueError(f"the constraint {quoted(text)}: {name!r} ({column.dtype}) can be set to None alone")
        whole = is_number(value) and (not column.integer or value == math.floor(value))
        whole = whole and (column.step is None or value == rounded_to(value, column.step))
        if not whole or not low <= value <= high:
            raise ValueError(
                f"the constraint {quoted(text)}: {quoted(value)} is no value that the number {name!r} can have"
            )
    elif isinstance(column, Datetime):
        try:
            replace(column, bounds=(value, "9999-12-31") if "[ns" not in column.dtype else (value, "2262-04-11"))
        except SchemaError:
            raise ValueError(
                f"the constraint {quoted(text)}: {quoted(value)} is no date that {name!r} can have"
            ) from None
    elif column.values is not None and value not in column.values:
        raise ValueError(f"the constraint {quoted(text)} names {quoted(value)}, which is no category of {name!r}")
    elif column.values is None:
        try:
            replace(column, categories=(value,))
        except SchemaError as error:
            raise ValueError(f"the constraint {quoted(text)}: {error}") from None


def read_constraint(text, names):
    """Return the constraint that a text states: a `RowConstraint`, or one of the forms that are more than a condition.

    ValueError if the text is none, or names a column that is not among `names`.
    """
    tree = ConstraintText(text, names)._tree
    form = next((form for form in (Conditional, Combinations, Lookup) if form._matches(tree)), RowConstraint)
    return form(text, names)
