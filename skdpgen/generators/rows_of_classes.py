"""Rows of given classes where a model of the target decides the class of each row."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .components import spread_components

# Fewest and most rows of one draw. An error is raised where all draws would need more rows than the third number (a few
# seconds), and than the fourth for each row that is wanted: a covered class has at least a thousandth of the rows.
_FEWEST_ROWS, _MOST_ROWS, _ALL_ROWS, _ROWS_FOR_ONE = 256, 50_000, 500_000, 2_000


class RowsOfClasses:
    """Rows of a table model whose target is drawn by a `TargetModel`.

    The other columns have the distribution of the table model over the covered classes. The class of a row is drawn
    given them. Rows of a wanted class are the drawn rows that have this class. With classes in their released shares,
    the rows have the joint distribution, as the prior of the target's model follows these shares.

    `draw`: class codes, generator -> a frame of what the model sees. `weights` (n_classes,): of the classes under the
    table model.
    """

    def __init__(self, target_model, codec, draw, weights):
        self._model, self._codec, self._draw = target_model, codec, draw
        self._covered = np.zeros(len(weights), dtype=bool)
        self._covered[target_model.classes] = True
        self._weights = np.where(self._covered, weights, 0.0)

    def sample(self, class_codes, rng):
        """A frame of what the model sees, of rows of given classes.

        Raises ValueError: a wanted class has almost no probability.
        """
        own = np.flatnonzero(~self._covered[class_codes])
        frames, places = [self._draw(class_codes[own], rng)], [own]
        wanted = np.flatnonzero(self._covered[class_codes])
        wanted = wanted[np.argsort(class_codes[wanted], kind="stable")]  # by class, and in order within it
        n, most = len(wanted), max(_ALL_ROWS, _ROWS_FOR_ONE * len(wanted))
        rows_left = most
        while len(wanted) and n <= rows_left:
            n = int(np.clip(n, _FEWEST_ROWS, _MOST_ROWS))
            rows_left -= n
            frame = self._draw(spread_components(n, self._weights, rng), rng)
            drawn, chances = self._model.draw(self._codec.seen_values(frame)[0], rng)
            taken, left = _matched(drawn, class_codes[wanted])
            frames.append(self._codec.set_classes(frame.take(taken[0]), drawn[taken[0]], rng))
            places.append(wanted[taken[1]])
            wanted = wanted[left]
            n = self._rows_needed(chances.mean(axis=0), class_codes[wanted])
        if len(wanted):
            rare = self._codec.classes[class_codes[wanted[0]]]
            raise ValueError(
                f"the model of the target draws almost no row of class {rare!r}: {len(wanted):,} of the rows that were "
                f"asked for are not among {most - rows_left:,} drawn ones, and they would need more than {most:,}. Ask "
                "for fewer of them or for other classes, or relax given"
            )
        frames = [frame for frame in frames if len(frame)] or frames[:1]
        order = np.argsort(np.concatenate(places))
        return pd.concat(frames, ignore_index=True).take(order).reset_index(drop=True)

    def _rows_needed(self, shares, wanted):
        """Rows to be drawn until all that are wanted are there, by the shares of the classes in the last draw."""
        if not len(wanted):
            return 0
        classes, counts = np.unique(wanted, return_counts=True)
        share = shares[np.searchsorted(self._model.classes, classes)]
        return float(1.1 * np.max(counts / np.maximum(share, 1e-300)))

    def relabelled(self, class_codes, rng):
        """A frame of rows of the table model, with classes drawn given the other columns."""
        frame = self._draw(class_codes, rng)
        drawn, _ = self._model.draw(self._codec.seen_values(frame)[0], rng)
        return self._codec.set_classes(frame, np.where(self._covered[class_codes], drawn, class_codes), rng)

    def shares(self, weights, rng, n_rows=2_000):
        """Weights of all classes where the target's model draws them, estimated from rows."""
        weights, total = np.array(weights, dtype=np.float64), self._weights.sum()
        if total > 0:
            frame = self._draw(spread_components(n_rows, self._weights, rng), rng)
            chances = self._model.probabilities(self._codec.seen_values(frame)[0]).mean(axis=0)
            weights[self._model.classes] = total * chances
        return weights


def _matched(drawn, wanted):
    """Rows and places that have the same class, one to one, and the places that are left; `wanted` is sorted."""
    rows, places, left = [], [], []
    for code in np.unique(wanted):
        mine, here = np.flatnonzero(drawn == code), np.flatnonzero(wanted == code)
        n = min(len(mine), len(here))
        rows.append(mine[:n])
        places.append(here[:n])
        left.append(here[n:])
    return (np.concatenate(rows), np.concatenate(places)), np.concatenate(left)
