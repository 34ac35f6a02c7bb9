"""Declared constraints on rows: a small language of comparisons with its own parser, never executed."""

from __future__ import annotations

import ast
import math
import operator
import re
from dataclasses import replace

import numpy as np
import pandas as pd

from ..tabular import Boolean, Categorical, Datetime, Numeric
from ..tabular._columns import output_dtype
from ..tabular._frames import numeric_bounds, restore
from .components import spread_components

__all__ = ["RowConstraint", "keep_constraints"]

# Times that a row which breaks a constraint is drawn again before an error is raised.
_MOST_DRAWS = 200

# Length of one constraint: it may come from a file, and brackets are parsed by recursion.
_MOST_CHARACTERS = 10_000

_COMPARE = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_QUOTED = re.compile(r"`([^`]+)`")


class RowConstraint:
    """A condition on the columns of a row, such as ``"age >= 16 or job == 'none'"``.

    Parameters
    ----------
    text : str
        Columns by name (in backticks where a name is not an identifier), numbers, text in quotes, ``+ - * /``,
        comparisons (also chained), ``in`` and ``not in`` a list, ``and``, ``or``, ``not``. Dates are compared with
        text, as in ``"born < '2020-01-01'"``. Numbers beside dates are days, as in ``"left - came <= 30"``.
    names : sequence
        Names of the columns.

    Raises
    ------
    ValueError
        The text contains anything else, or a name that is not a column.
    """

    def __init__(self, text, names):
        if not isinstance(text, str):
            raise ValueError(f'a constraint must be a text such as "start <= end"; got {type(text).__name__}')
        if len(text) > _MOST_CHARACTERS:
            raise ValueError(f"a constraint may have at most {_MOST_CHARACTERS:,} characters; got {len(text):,}")
        self.text, self._names = text, {str(name): name for name in names}
        self._quoted = {}
        try:
            self._tree = ast.parse(_QUOTED.sub(self._placeholder, text).strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # null characters, endless brackets
            raise ValueError(f"the constraint {text!r} cannot be read: it is not a valid comparison") from None
        self._check(self._tree)

    def _placeholder(self, match):
        name = f"_quoted_{len(self._quoted)}"
        self._quoted[name] = match.group(1)
        return name

    def _check(self, node):
        allowed = (
            ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.In, ast.NotIn, ast.BinOp,
            ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple, *_COMPARE, *_ARITHMETIC,
        )  # fmt: skip
        for part in ast.walk(node):
            if not isinstance(part, allowed):
                raise ValueError(f"the constraint {self.text!r} is no comparison of columns and values")
            if isinstance(part, ast.Constant) and not isinstance(part.value, str | int | float | bool):
                raise ValueError(f"the constraint {self.text!r}: values must be numbers, text, True or False")
            if isinstance(part, ast.Constant) and _beyond_floats(part.value):
                raise ValueError(f"the constraint {self.text!r}: numbers must be finite, and no larger than floats")
            if isinstance(part, ast.Name):
                self._column(part)
            if isinstance(part, ast.Compare):
                for op, right in zip(part.ops, part.comparators):
                    if isinstance(op, ast.In | ast.NotIn) != isinstance(right, ast.List | ast.Tuple):
                        raise ValueError(f"the constraint {self.text!r}: `in` goes with a list, such as `a in [1, 2]`")
        if not isinstance(node, ast.BoolOp | ast.Compare | ast.Name | ast.UnaryOp) or _is_minus(node):
            raise ValueError(f"the constraint {self.text!r} is no condition: compare it with something")

    def _column(self, node):
        name = self._quoted.get(node.id, node.id)
        if name not in self._names:
            raise ValueError(f"the constraint {self.text!r} names {name!r}, which is no column of the table")
        return self._names[name]

    def check(self, schema):
        """Refuse comparisons of different kinds, undeclared categories, and conditions that no declared value fulfils.

        This reads the schema alone, so that it can run before anything is charged.

        Columns that the schema does not declare may have any values. Returns the constraint itself; raises ValueError.
        """
        try:
            kept = self.holds(_dummy_rows(schema, ("a", "b")))
        except ValueError:  # undeclared categories may be numbers
            kept = self.holds(_dummy_rows(schema, (0, 1)))
        for part in ast.walk(self._tree):
            if isinstance(part, ast.Compare):
                self._check_categories(part, schema)
        tree = self._tree
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], _ORDER):
            sides = (tree.left, tree.comparators[0])
            names = [side for side in sides if isinstance(side, ast.Name)]
            simple = len(names) == 1 and all(isinstance(side, ast.Name | ast.Constant) for side in sides)
            column = schema[self._column(names[0])] if simple else None
            if isinstance(column, Numeric | Datetime) and column.complete and not kept.any():
                raise ValueError(
                    f"the constraint {self.text!r} holds for no value within the bounds of {column.name!r}"
                )
        return self

    def _check_categories(self, compared, schema):
        for op, left, right in zip(compared.ops, [compared.left, *compared.comparators], compared.comparators):
            if not isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn):
                continue
            sides = [left, *(right.elts if isinstance(right, ast.List | ast.Tuple) else [right])]
            values = [side.value for side in sides if isinstance(side, ast.Constant)]
            for side in sides:
                column = schema[self._column(side)] if isinstance(side, ast.Name) else None
                if not isinstance(column, Categorical) or column.values is None:
                    continue
                if absent := [value for value in values if value not in column.values]:
                    raise ValueError(
                        f"the constraint {self.text!r} names {absent[0]!r}, which is no category of {column.name!r}"
                    )

    def holds(self, frame):
        """Return which rows fulfil the constraint; where a missing value leaves that open, a row fulfils it.

        ValueError if values of different kinds are compared.
        """
        try:
            with np.errstate(all="ignore"):
                found = self._truth(self._tree, frame)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"the constraint {self.text!r} compares values of different kinds ({error})") from error
        return found.fillna(True).to_numpy(dtype=bool)

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
        return values.astype("boolean")

    def _compared(self, op, left, right, frame):
        a = self._value(left, frame)
        if isinstance(op, ast.In | ast.NotIn):
            options = [self._value(option, frame) for option in right.elts]
            found, absent = a.isin(options), a.isna()
            found = ~found if isinstance(op, ast.NotIn) else found
        else:
            a, b = _comparable(a, self._value(right, frame))
            found, absent = _COMPARE[type(op)](a, b), _absent(a) | _absent(b)
            if not isinstance(found, pd.Series):
                return pd.Series(bool(found), index=frame.index, dtype="boolean")
        return found.astype("boolean").mask(absent)

    def _value(self, node, frame):
        if isinstance(node, ast.Name):
            return frame[self._column(node)]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._value(node.operand, frame)
        if isinstance(node, ast.BinOp):
            a, b = self._value(node.left, frame), self._value(node.right, frame)
            if isinstance(node.op, ast.Add | ast.Sub):
                a, b = (_days(x, beside=y) for x, y in ((a, b), (b, a)))
            if isinstance(node.op, ast.Mult) and (_is_text(a) or _is_text(b)):
                raise TypeError("text cannot be multiplied")  # repeated text could fill the memory
            return _ARITHMETIC[type(node.op)](a, b)
        return self._truth(node, frame)


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


def _is_minus(node):
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def _absent(value):
    return value.isna() if isinstance(value, pd.Series) else False


def _days(value, *, beside):
    """A number beside dates or time spans, as that many days."""
    if not isinstance(beside, pd.Series) or beside.dtype.kind not in "mM":
        return value
    if isinstance(value, pd.Series):
        number = pd.api.types.is_numeric_dtype(value.dtype) and not pd.api.types.is_bool_dtype(value.dtype)
        return pd.to_timedelta(value, unit="D") if number else value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return pd.Timedelta(value, unit="D") if number else value


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


def _comparable(a, b):
    """Categories as plain values, text beside a date as a date, a number beside a time span as days."""
    if isinstance(b, pd.Series) and not isinstance(a, pd.Series):
        b, a = _comparable(b, a)
        return a, b
    a, b = _plain_categories(a), _plain_categories(b)
    if isinstance(a, pd.Series) and isinstance(b, str) and pd.api.types.is_datetime64_any_dtype(a.dtype):
        b = pd.Timestamp(b, tz=a.dt.tz)
    if isinstance(a, pd.Series) and a.dtype.kind == "m":
        b = _days(b, beside=a)
    if isinstance(b, pd.Series) and b.dtype.kind == "m":
        a = _days(a, beside=b)
    return a, b


def _plain_categories(values):
    if isinstance(values, pd.Series) and isinstance(values.dtype, pd.CategoricalDtype):
        return values.astype(values.cat.categories.dtype if len(values.cat.categories) else object)
    return values


def keep_constraints(model, texts, drawn, components, rng):
    """Redraw rows until every row fulfils all constraints.

    Parameters
    ----------
    model : FrameModel or FramesGiven
    texts : sequence of str
        See `RowConstraint`.
    drawn : DataFrame or (DataFrame, y)
        A first draw of all rows.
    components : array of shape (n_rows,) or None
        Class of each row, which stays; None draws classes again with the rows, so that the result follows the model's
        distribution conditional on the constraints.
    rng : numpy.random.Generator

    Raises
    ------
    ValueError
        Rows still break a constraint after 200 draws.
    """
    names = model.codec.encoder.schema_.names
    constraints = [RowConstraint(text, names) for text in texts]
    whole = _joined(drawn, names)
    broken = np.flatnonzero(~_kept(whole, constraints))
    for _ in range(_MOST_DRAWS):
        if not len(broken):
            return model.codec.part(whole)
        again = (
            spread_components(len(broken), model.component_weights, rng) if components is None else components[broken]
        )
        fresh = _joined(model.sample(again, rng), names)
        good = _kept(fresh, constraints)
        untouched = np.setdiff1d(np.arange(len(whole)), broken[good])
        parts = pd.concat([whole.iloc[untouched], fresh.iloc[np.flatnonzero(good)]], ignore_index=True)
        whole = parts.iloc[np.argsort(np.concatenate([untouched, broken[good]]))].reset_index(drop=True)
        broken = broken[~good]
    raise ValueError(
        f"{len(broken)} of {len(whole)} rows still break a constraint after {_MOST_DRAWS} draws each: they have almost "
        "no probability under the model; ask for other classes, or relax the constraints by set_params(constraints=...)"
    )


def _kept(frame, constraints):
    return np.all([constraint.holds(frame) for constraint in constraints], axis=0)


def _joined(drawn, names):
    if not isinstance(drawn, tuple):
        return drawn
    frame, y = drawn
    return frame.assign(**{"_y": y.array if isinstance(y, pd.Series) else y}).set_axis(list(names), axis=1)
