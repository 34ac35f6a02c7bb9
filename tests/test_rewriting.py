"""The tool of the sabotage suite: patterns on syntax trees."""

from __future__ import annotations

import ast

import pytest
from _rewriting import names, rewrite
from _sabotage import patch_source

SOURCE = """
def f(x, scale):
    # a comment
    y = add(x, scale * 2.0, rng=None, exact=True)
    for k in range(len(x)):
        y = y + g(y, k)
    return (
        y,
        x.sum(axis=0),
    )
"""


def changed(old, new):
    return ast.unparse(rewrite(ast.parse(SOURCE), old, new))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "add($rows, $noise, $rest)",
            "add($rows, 0.9 * ($noise), $rest)",
            "y = add(x, 0.9 * (scale * 2.0), rng=None, exact=True)",
        ),
        ("add($rest, exact=True)", "add($rest, exact=False)", "y = add(x, scale * 2.0, exact=False, rng=None)"),
        ("range($n)", "range($n - 1)", "for k in range(len(x) - 1):"),
        ("$sum = $sum + g($sum, $k)", "pass", "        pass"),
        ("return $a, $b", "self.kept = $b\nreturn $a, $b", "    self.kept = x.sum(axis=0)"),
        ("$a = add($rest)", "$a = 2 * add($rest)", "y = 2 * add(x, scale * 2.0, rng=None, exact=True)"),
        ("2.0", "3.0", "y = add(x, scale * 3.0, rng=None, exact=True)"),
    ],
)
def test_the_place_of_a_pattern_is_rewritten(old, new, line):
    assert line in changed(old, new)


@pytest.mark.parametrize("old", ["add($a)", "nowhere($rest)", "x", "$a = $b", "2"])
def test_what_matches_nowhere_or_twice_is_refused(old):
    with pytest.raises(AssertionError, match="times"):
        changed(old, "None")


def test_the_tree_given_stays_as_it_was():
    tree = ast.parse(SOURCE)
    before = ast.dump(tree)
    rewrite(tree, "2.0", "3.0")
    assert ast.dump(tree) == before


def test_a_pattern_of_statements_may_end_with_all_the_others_of_the_block():
    assert "for k in []:\n        y = y + g(y, k)" in changed("for $k in $all:\n    $body", "for $k in []:\n    $body")
    kept = changed("for $k in $all:\n    $step\n$body", "$body")
    assert "for" not in kept
    assert "x.sum" in kept
    assert ast.unparse(rewrite(ast.parse("def f():\n    g(1)\n    h(2)"), "g($x)\n$body", "$body\ng($x)")).endswith(
        "g(1)"
    )


def test_a_call_for_its_effect_is_a_statement_where_statements_replace_it():
    tree = ast.parse("def f(x):\n    g(x)")
    assert ast.unparse(rewrite(tree, "g($x)", "g($x)\n$x.seen = True")).endswith("g(x)\n    x.seen = True")


@pytest.mark.parametrize("docstring", ['    """Of f."""\n', ""])
def test_statements_are_put_at_the_start_of_a_function(docstring):
    tree = ast.parse(f"def f(self, a, /, b, *, c):\n{docstring}    return a + b + c")
    changed = ast.unparse(rewrite(tree, "$start", "$1, self.kept = $2, $3"))
    assert changed.endswith("    a, self.kept = (b, c)\n    return a + b + c")
    assert changed.startswith("def f(self, a, /, b, *, c):\n" + docstring)


def test_parameters_go_by_their_place():
    tree = ast.parse("def f(a, b):\n    return g(a, c), g(b, c)")
    assert ast.unparse(rewrite(tree, "g($2, $x)", "g($1, $x)")).endswith("return (g(a, c), g(a, c))")


def test_a_hole_that_nothing_fills_is_refused():
    with pytest.raises(AssertionError, match=r"\$scale stands for nothing"):
        changed("2.0", "$scale")
    with pytest.raises(AssertionError, match="0 times"):
        changed("range(len($rest), $rest)", "None")


def test_names_of_a_pattern_are_all_but_its_holes():
    assert names("np.sum($x.mean(axis=0), $rest) + y") == {"np", "y"}
    assert names("$a = lambda z: $1\nself.w = $a") == {"z", "self"}
    assert names("$start") == set()


def _mean(values, shift=0):
    total = sum(value for value in values)
    return total / len(values) + shift


def test_a_sabotage_may_not_name_a_local_variable(monkeypatch):
    for edit in [("total / $n", "0"), ("$sum / $n", "shift"), ("$sum / $n", "sum(value for value in $1)")]:
        with pytest.raises(AssertionError, match="names a local variable"):
            patch_source(monkeypatch, _mean, edit)
    patch_source(monkeypatch, _mean, ("$start", "$2 = 1"), ("$sum / len($1)", "$sum"))
    assert _mean([1, 2]) == 4
    monkeypatch.undo()
    assert _mean([1, 2]) == 1.5
