"""Changes of shipped functions by patterns on their syntax tree, which neither formatting nor local names break.

A pattern is Python with holes: ``$name`` stands for any expression (the same one wherever it comes again) or, as an
argument, ``$rest`` for all further arguments of one call. A pattern of statements stands for consecutive ones, and
``$name`` alone on a line for any one statement, ``$body`` for all further ones of its block. The pattern ``$start``
alone is the beginning of a function, and ``$1``, ``$2``... in it or in what replaces a pattern are its parameters in
order, but for self and cls.
"""

from __future__ import annotations

import ast
import copy
import re

__all__ = ["names", "rewrite"]

_HOLE = "_hole_"
_REST = _HOLE + "rest"
_BODY = _HOLE + "body"
_START = _HOLE + "start"


def rewrite(tree, old, new, what="the function"):
    """Return a copy of a syntax tree in which the one place that `old` matches is `new`."""
    tree = copy.deepcopy(tree)
    before, after = _parsed(old), _parsed(new)
    parameters = _parameters(tree)
    if _hole(before) == _START:
        (function,) = tree.body
        at = 0 if ast.get_docstring(function) is None else 1
        function.body[at:at] = _filled_all(_statements(after), parameters)
    elif isinstance(before, ast.expr) and isinstance(after, ast.expr):
        places = [(node, found) for node in ast.walk(tree) if (found := _match(before, node, parameters)) is not None]
        _assert_one(places, old, what)
        ((place, holes),) = places
        _Replace(place, _filled(after, holes)).visit(tree)
    else:
        before, after = _statements(before), _statements(after)
        places = [
            (body, k, found)
            for body in _bodies(tree)
            for k in range(len(body))
            if (found := _match_block(before, body[k:], parameters)) is not None
        ]
        _assert_one(places, old, what)
        ((body, k, holes),) = places
        end = len(body) if _hole(before[-1]) == _BODY else k + len(before)
        body[k:end] = _filled_all(after, holes) or [ast.Pass()]
    return ast.parse(ast.unparse(ast.fix_missing_locations(tree)))  # names that are read and written change places


def names(text):
    """The names that a pattern or its replacement fixes: all but its holes, attributes, keywords and strings."""
    found = _parsed(text)
    nodes = [node for part in (found if isinstance(found, list) else [found]) for node in ast.walk(part)]
    named = {node.id for node in nodes if isinstance(node, ast.Name) and not _hole(node)}
    return named | {node.arg for node in nodes if isinstance(node, ast.arg)}


def _parameters(tree):
    """What stands for the parameters of the function that is the only statement of a tree."""
    function = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(function, ast.FunctionDef):
        return {}
    given = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    given = [argument.arg for argument in given if argument.arg not in ("self", "cls")]
    return {f"{_HOLE}{k}": ast.Name(name, ast.Load()) for k, name in enumerate(given, start=1)}


def _assert_one(places, old, what):
    assert len(places) == 1, f"{what} has {len(places)} times {old!r}"


def _parsed(text):
    """An expression if the text is one, else a list of statements."""
    text = re.sub(r"\$(\w+)", _HOLE + r"\1", text)
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return ast.parse(text).body


def _statements(parsed):
    return [ast.Expr(parsed)] if isinstance(parsed, ast.expr) else parsed


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
        return (_match_block if wanted and _hole(wanted[-1]) == _BODY else _match_all)(wanted, value, holes)
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


def _match_block(patterns, nodes, holes):
    """As `_match_all`, at the beginning of the statements of a block."""
    if _hole(patterns[-1]) != _BODY:
        return _match_all(patterns, nodes[: len(patterns)], holes)
    *patterns, _ = patterns
    holes = _match_all(patterns, nodes[: len(patterns)], holes)
    return None if holes is None else {**holes, _BODY: nodes[len(patterns) :]}


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
    return None if _REST in holes else {**holes, _REST: (node.args[len(wanted) :], others)}


def _filled_all(nodes, holes):
    """Copies of statements or expressions with their holes filled."""
    filled = []
    for node in nodes:
        filled += copy.deepcopy(holes[_BODY]) if _hole(node) == _BODY else [_filled(node, holes)]
    return filled


def _filled(node, holes):
    """A copy of a pattern with its holes filled."""
    if name := _hole(node):
        assert name in holes, f"${name.removeprefix(_HOLE)} stands for nothing in what is replaced"
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
            setattr(node, field, _filled_all(value, holes) if any(isinstance(v, ast.AST) for v in value) else value)
        elif isinstance(value, ast.AST):
            setattr(node, field, _filled(value, holes))
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
