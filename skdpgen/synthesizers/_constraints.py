"""Declared constraints on rows: a small language of comparisons, read by a parser of its own and never executed."""

from __future__ import annotations

import ast
import operator
import re

import numpy as np
import pandas as pd

from ._base import spread_components

__all__ = ["RowConstraint", "keep_constraints"]

# Times that a row which breaks a constraint is drawn again before giving up.
_MOST_DRAWS = 200

_COMPARE = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
_QUOTED = re.compile(r"`([^`]+)`")


class RowConstraint:
    """A condition on the columns of a row, such as ``"age >= 16 or job == 'none'"``.

    Parameters
    ----------
    text : str
        Columns by name (in backticks where a name is no identifier), numbers, text in quotes, ``+ - * /``,
        comparisons (chained ones too), ``in`` and ``not in`` a list, ``and``, ``or``, ``not``. Dates are compared with
        text, as in ``"born < '2020-01-01'"``.
    names : sequence
        Columns that there are.

    Raises
    ------
    ValueError
        Anything else in the text, or a name that is no column.
    """

    def __init__(self, text, names):
        if not isinstance(text, str):
            raise ValueError(f'a constraint is a text such as "start <= end"; got {type(text).__name__}')
        self.text, self._names = text, {str(name): name for name in names}
        self._quoted = {}
        try:
            self._tree = ast.parse(_QUOTED.sub(self._stand_in, text).strip(), mode="eval").body
        except SyntaxError:
            raise ValueError(f"the constraint {text!r} cannot be read") from None
        self._check(self._tree)

    def _stand_in(self, match):
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
                raise ValueError(f"the constraint {self.text!r} holds what is no comparison of columns and values")
            if isinstance(part, ast.Constant) and not isinstance(part.value, str | int | float | bool):
                raise ValueError(f"the constraint {self.text!r}: values are numbers, text, True or False")
            if isinstance(part, ast.Name):
                self._column(part)
            if isinstance(part, ast.Compare):
                for op, right in zip(part.ops, part.comparators):
                    if isinstance(op, ast.In | ast.NotIn) != isinstance(right, ast.List | ast.Tuple):
                        raise ValueError(f"the constraint {self.text!r}: `in` goes with a list, as in `a in [1, 2]`")
        if not isinstance(node, ast.BoolOp | ast.Compare | ast.Name | ast.UnaryOp) or _is_minus(node):
            raise ValueError(f"the constraint {self.text!r} is no condition")

    def _column(self, node):
        name = self._quoted.get(node.id, node.id)
        if name not in self._names:
            raise ValueError(f"the constraint {self.text!r} names {name!r}, which is no column")
        return self._names[name]

    def holds(self, frame):
        """Tell which rows keep the constraint; one that a missing value leaves open is kept.

        Parameters
        ----------
        frame : DataFrame

        Returns
        -------
        array of bool of shape (n_rows,)
        """
        with np.errstate(all="ignore"):
            found = self._truth(self._tree, frame)
        return found.fillna(True).to_numpy(dtype=bool)

    def _truth(self, node, frame):
        """Nullable truth of a condition."""
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
            b = self._value(right, frame)
            found, absent = _COMPARE[type(op)](*_comparable(a, b)), _absent(a) | _absent(b)
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
            return _ARITHMETIC[type(node.op)](self._value(node.left, frame), self._value(node.right, frame))
        return self._truth(node, frame)


def _is_minus(node):
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def _absent(value):
    return value.isna() if isinstance(value, pd.Series) else False


def _comparable(a, b):
    """Categories as plain values, text beside a date as a date."""
    if isinstance(b, pd.Series) and not isinstance(a, pd.Series):
        b, a = _comparable(b, a)
        return a, b
    if isinstance(a, pd.Series) and isinstance(a.dtype, pd.CategoricalDtype):
        a = a.astype(object if not len(a.cat.categories) else a.cat.categories.dtype)
    if isinstance(b, pd.Series) and isinstance(b.dtype, pd.CategoricalDtype):
        b = b.astype(object if not len(b.cat.categories) else b.cat.categories.dtype)
    if isinstance(a, pd.Series) and isinstance(b, str) and pd.api.types.is_datetime64_any_dtype(a.dtype):
        b = pd.Timestamp(b, tz=a.dt.tz)
    return a, b


def keep_constraints(model, texts, drawn, components, rng):
    """Draw again, until every row keeps all constraints.

    Parameters
    ----------
    model : FrameModel or FramesGiven
    texts : sequence of str
        Of `RowConstraint`.
    drawn : DataFrame or (DataFrame, y)
        A first draw of all rows.
    components : array of shape (n_rows,) or None
        Classes to be kept, row by row; None draws classes anew with the rows, so that the result follows the model's
        law of rows that keep the constraints.
    rng : numpy.random.Generator

    Returns
    -------
    DataFrame or (DataFrame, y)

    Raises
    ------
    ValueError
        Rows that break a constraint still, after 200 draws.
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
        f"{len(broken)} of {len(whole)} rows still break a constraint after {_MOST_DRAWS} draws each: the model knows "
        "next to no rows that keep them; ask for other classes, or loosen them"
    )


def _kept(frame, constraints):
    return np.all([constraint.holds(frame) for constraint in constraints], axis=0)


def _joined(drawn, names):
    if not isinstance(drawn, tuple):
        return drawn
    frame, y = drawn
    return frame.assign(**{"_y": y.array if isinstance(y, pd.Series) else y}).set_axis(list(names), axis=1)
