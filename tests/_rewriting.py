"""Changes of shipped functions by patterns on their syntax tree, which neither formatting nor local names break.

A pattern is Python with holes: ``$name`` stands for any expression (the same one wherever it comes again) or, as an
argument, ``$rest`` for all further arguments of a call. A pattern of statements stands for consecutive ones, and
``$name`` alone on a line for any one statement.
"""

from __future__ import annotations

import ast
import copy
import re

__all__ = ["rewrite"]

_HOLE = "_hole_"
_REST = _HOLE + "rest"


def rewrite(tree, old, new, what="the function"):
    """Return a copy of a syntax tree in which the one place that `old` matches is `new`."""
    tree = copy.deepcopy(tree)
    before, after = _parsed(old), _parsed(new)
    if isinstance(before, ast.expr):
        if not isinstance(after, ast.expr):
            raise AssertionError(f"{old!r} is an expression and {new!r} is none")
        places = [(node, found) for node in ast.walk(tree) if (found := _match(before, node, {})) is not None]
        _assert_one(places, old, what)
        ((place, holes),) = places
        _Replace(place, _filled(after, holes)).visit(tree)
    else:
        after = [ast.Expr(after)] if isinstance(after, ast.expr) else after
        places = [
            (body, k, found)
            for body in _bodies(tree)
            for k in range(len(body) - len(before) + 1)
            if (found := _match_all(before, body[k : k + len(before)], {})) is not None
        ]
        _assert_one(places, old, what)
        ((body, k, holes),) = places
        body[k : k + len(before)] = [_filled(statement, holes) for statement in after] or [ast.Pass()]
    return ast.fix_missing_locations(tree)


def _assert_one(places, old, what):
    assert len(places) == 1, f"{what} has {len(places)} times {old!r}"


def _parsed(text):
    """An expression if the text is one, else a list of statements."""
    text = re.sub(r"\$(\w+)", _HOLE + r"\1", text)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return ast.parse(text).body


def _hole(node):
    node = node.value if isinstance(node, ast.Expr) else node
    return node.id if isinstance(node, ast.Name) and node.id.startswith(_HOLE) else None


def _match(pattern, node, holes):
    """What stands in the holes of a pattern where it matches a node; None where it does not."""
    name = _hole(pattern)
    if name and isinstance(node, ast.stmt if isinstance(pattern, ast.Expr) else ast.expr):
        if name in holes:
            return holes if _same(holes[name], node) else None
        return {**holes, name: node}
    if type(pattern) is not type(node):
        return None
    if isinstance(pattern, ast.Call):
        return _match_call(pattern, node, holes)
    for field, wanted in ast.iter_fields(pattern):
        if field in ("ctx", "type_comment", "kind"):
            continue
        holes = _match_field(wanted, getattr(node, field), holes)
        if holes is None:
            return None
    return holes


def _match_field(wanted, value, holes):
    if isinstance(wanted, list):
        return _match_all(wanted, value, holes)
    if isinstance(wanted, ast.AST):
        return _match(wanted, value, holes) if isinstance(value, ast.AST) else None
    return holes if wanted == value and type(wanted) is type(value) else None


def _match_all(patterns, nodes, holes):
    if len(patterns) != len(nodes):
        return None
    for pattern, node in zip(patterns, nodes):
        holes = _match_field(pattern, node, holes)
        if holes is None:
            return None
    return holes


def _match_call(pattern, node, holes):
    holes = _match(pattern.func, node.func, holes)
    wanted = [argument for argument in pattern.args if _hole(argument) != _REST]
    rest = len(wanted) != len(pattern.args)
    if holes is None or len(node.args) < len(wanted) or (not rest and len(node.args) != len(wanted)):
        return None
    holes = _match_all(wanted, node.args[: len(wanted)], holes)
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    for keyword in pattern.keywords:
        if holes is None or keyword.arg not in given:
            return None
        holes = _match(keyword.value, given.pop(keyword.arg), holes)
    if holes is None or (given and not rest):
        return None
    if not rest:
        return holes
    others = [keyword for keyword in node.keywords if keyword.arg in given]
    return {**holes, _REST: (node.args[len(wanted) :], others)}


def _filled(node, holes):
    """A copy of a pattern with its holes filled."""
    if name := _hole(node):
        return copy.deepcopy(holes[name])
    node = copy.copy(node)
    if isinstance(node, ast.Call) and any(_hole(argument) == _REST for argument in node.args):
        args, keywords = copy.deepcopy(holes[_REST])
        node.args = [_filled(a, holes) for a in node.args if _hole(a) != _REST] + args
        node.keywords = [_filled(keyword, holes) for keyword in node.keywords] + keywords
        node.func = _filled(node.func, holes)
        return node
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            setattr(node, field, [_filled(item, holes) if isinstance(item, ast.AST) else item for item in value])
        elif isinstance(value, ast.AST):
            filled = _filled(value, holes)
            if field in ("target", "targets") and hasattr(filled, "ctx"):
                filled.ctx = ast.Store()
            setattr(node, field, filled)
    return node


class _Replace(ast.NodeTransformer):
    def __init__(self, place, new):
        self.place, self.new = place, new

    def visit(self, node):
        return self.new if node is self.place else super().visit(node)


def _bodies(tree):
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                yield body


def _same(one, other):
    return ast.unparse(one) == ast.unparse(other)
