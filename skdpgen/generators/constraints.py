"""Constraints at sampling: rows that violate one are drawn again."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..tabular._constraint_forms import Combinations, read_constraint
from ..tabular._constraints import check_keys, known_values
from ..utils.printing import listed, quoted
from .components import spread_components

# Times that a row which breaks a constraint is drawn again before an error is raised.
_MOST_DRAWS = 200
_RARE = "they have almost no probability under the model; "
# Draws of one row each, before several are made at once; and rows of those.
_SINGLE_DRAWS, _ROWS_AT_ONCE = 10, 20_000


class UnsatisfiedError(ValueError):
    """Rows still violate constraints after all draws.

    `said`: in words. `texts`: the constraints. `advice`: what to declare, or None: what to ask for.
    """

    def __init__(self, said, texts, advice=None):
        self.said, self.texts, self.advice = said, texts, advice
        ask = f"{_RARE}ask for other classes, relax the values of given, or leave out constraints by relax(...)"
        super().__init__(f"{said}: {advice or ask}")

    def of_command(self, ask):
        """The message with `ask`, what to ask a command for, in place of Python calls."""
        return f"{self.said}: {self.advice or _RARE + ask}"


def read_constraints(texts, schema):
    """Return the constraints that texts state, for `keep_constraints`.

    ValueError for texts that are none, or that only a fit can satisfy.
    """
    constraints = [check_keys(read_constraint(text, schema.names), schema) for text in texts]
    for constraint in constraints:
        if isinstance(constraint, Combinations) and constraint.values is None:
            raise ValueError(
                f"the constraint {quoted(constraint.text)} is learned by a fit: fit again, or list the values"
            )
    return constraints


def keep_constraints(model, constraints, components, fixed, rng):
    """Draw rows, and those that violate a constraint again, until every row satisfies all of them.

    Parameters: of `draw_kept`. Raises ValueError: rows still break a constraint after 200 draws.
    """
    whole, broken = draw_kept(model, constraints, components, fixed, rng)
    if not len(broken):
        return model.codec.part(whole)
    raise unsatisfied(model, constraints, whole.iloc[broken], f"{len(broken)} of {len(whole)} rows")


def draw_kept(model, constraints, components, fixed, rng):
    """Draw rows, and those that violate a constraint again, up to 200 times.

    `model`: of tables.
    `constraints`: objects with ``holds(frame)``, which says of each row whether it satisfies them.
    `components` (n_rows,): class of each row.
    `fixed`: whether each row keeps its class; otherwise classes are drawn again with the rows, so that the result
        follows the model's distribution conditional on the constraints.
    Returns: the rows as one frame; the numbers of those that still violate a constraint.
    """
    names = model.codec.drawn_schema.names
    whole = joined(model.sample(components, rng), names)
    broken = np.flatnonzero(~_kept(whole, constraints, model.codec.drawn_schema))
    done = 0
    while len(broken) and done < _MOST_DRAWS:
        # one draw at a time where most rows are good; of rare rows several, which take as long as one
        tries = 1 if done < _SINGLE_DRAWS else min(_MOST_DRAWS - done, max(1, _ROWS_AT_ONCE // len(broken)))
        done += tries
        n = tries * len(broken)
        again = np.tile(components[broken], tries) if fixed else spread_components(n, model.component_weights, rng)
        fresh = joined(model.sample(again, rng), names)
        kept = _kept(fresh, constraints, model.codec.drawn_schema).reshape(tries, len(broken))
        good = kept.any(axis=0)
        taken = kept.argmax(axis=0) * len(broken) + np.arange(len(broken))
        untouched = np.setdiff1d(np.arange(len(whole)), broken[good])
        parts = pd.concat([whole.iloc[untouched], fresh.iloc[taken[good]]], ignore_index=True)
        whole = parts.iloc[np.argsort(np.concatenate([untouched, broken[good]]))].reset_index(drop=True)
        broken = broken[~good]
    return whole, broken


def unsatisfied(model, constraints, rows, which):
    """The error that some rows, `which` in words, still violate a constraint after all draws."""
    rest = known_values(rows, model.codec.drawn_schema)
    violated = [one for one in constraints if not one.holds(rest).any()] or constraints
    texts = [text for one in violated if (text := getattr(one, "text", None)) is not None]
    advice = next((found for one in violated if (found := getattr(one, "advice", _no_advice)(rest))), None)
    advice = advice or next((found for one in violated if (found := _impossible(one, model.codec.drawn_schema))), None)
    named = listed(texts, 3)
    said = f"{which} still violate a constraint{named and f' ({named})'} after {_MOST_DRAWS} draws each"
    return UnsatisfiedError(said, texts, advice)


def _no_advice(rows):
    return None


def _impossible(constraint, schema):
    """Why no row of the model satisfies a constraint, by what was released of the columns; None if this does not tell.

    A fit checks constraints by what is declared: a category that is not among the learned ones may be misspelled.
    """
    try:
        getattr(constraint, "check", _no_advice)(schema)
    except ValueError as error:
        return f"{error}, by what was released of the columns. Leave it out by relax(...), or --relax"
    return None


def _kept(frame, constraints, schema):
    frame = known_values(frame, schema)
    return np.all([constraint.holds(frame) for constraint in constraints], axis=0)


def joined(drawn, names):
    """Rows, or (rows, y), as one frame."""
    if not isinstance(drawn, tuple):
        return drawn
    frame, y = drawn
    return frame.assign(**{"_y": y.array if isinstance(y, pd.Series) else y}).set_axis(list(names), axis=1)
