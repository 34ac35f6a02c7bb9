"""The tool of the sabotage suite: patterns on syntax trees."""

from __future__ import annotations

import ast

import pytest
from _rewriting import rewrite

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
