"""Fits of neighbouring data sets, observed: what each released, projected on what the canary adds."""

from __future__ import annotations

import math
import warnings
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.base import clone

from .._parameters import read_unit
from ..accounting import describe_event
from ..utils.foreign_tables import to_pandas
from ..utils.noise import NoiseGenerator, make_noise_generator, override_noise
from ..utils.progress import without_bars
from ..utils.watching import Replay, replay_releases, watch_releases
from ._bounds import RUNS_OF_A_PAIR, mu_from_pairs, mu_from_scale

_DIFFERENT = "fits of neighbouring data sets made different releases: give `statistic`"


class _Silent(NoiseGenerator):
    """Noise of standard deviation 0, in a fit that is planned with noise; other draws have a known seed."""

    keeps_order = True  # a row more must not change the draws of the others

    def __init__(self):
        super().__init__("seeded", seed=0)

    def _fill_normals(self, out):
        out[:] = 0.0


class _Followed(_Silent):
    """No noise, and what another fit has drawn, in its order: uniforms, of where a grid begins and the like.

    Of a network's own generator the normals too, those of its latents, and the integers, the groups of its rows: one
    for each row of a batch.
    """

    def __init__(self, uniforms, normals, integers=()):
        super().__init__()
        self._uniforms, self._normals, self._integers = list(uniforms), list(normals), list(integers)

    def random(self, size=None):
        return self._uniforms.pop(0) if self._uniforms else super().random(size)

    def standard_normal(self, size=None):
        return _drawn_before(super().standard_normal(size), self._normals)  # a row more has a zero

    def integers(self, high, size=None):
        return _drawn_before(super().integers(high, size), self._integers)


def _drawn_before(out, log):
    """Draws, those of another fit in their place: of a row more, its own are left."""
    if not log:
        return out
    out, drawn = np.array(out), np.ravel(log.pop(0))[: np.size(out)]
    out.ravel()[: drawn.size] = drawn
    return out if out.ndim else out.item()


class _Repeated(NoiseGenerator):
    """What another fit has drawn, in its order; of a row more, its own draws. Never private."""

    private, keeps_order = False, True

    def __init__(self, kind, logs):
        super().__init__(kind)
        for name, log in zip(_DRAWS, logs):
            setattr(self, name, self._repeating(getattr(self, name), list(log)))

    @staticmethod
    def _repeating(draw, log):
        return lambda *arguments: _drawn_before(draw(*arguments), log)


class _Scaled(NoiseGenerator):
    """Noise of another scale than the fit states: the fault that an audit is to find. Never private."""

    private = False

    def __init__(self, kind, scale):
        super().__init__(kind)
        self._scale = scale

    def _fill_normals(self, out):
        super()._fill_normals(out)
        out *= self._scale


@contextmanager
def noise_scaled(scale):
    """Let fits in the block draw normals of this deviation instead of 1; with 1.0 nothing is changed."""
    if scale == 1.0:
        yield
    else:
        with override_noise(lambda kind: _Scaled(kind, scale)):
            yield


# Methods by which a fit draws.
_DRAWS = ("random", "standard_normal", "integers", "random_bytes")


class _Recorded:
    """Generators of a fit, in their order, and what was drawn from each."""

    def __init__(self, kind):
        # more than a fit asks for: made outside the block in which they stand in for others
        self._made = [make_noise_generator(kind) for _ in range(16)]
        self.drawn = []

    def __call__(self, kind):
        if len(self.drawn) == len(self._made):
            raise ValueError("the fit asks for more generators of noise than an audit can follow: give statistic")
        rng, log = self._made[len(self.drawn)], ([], [], [], [])
        self.drawn.append(log)
        rng.keeps_order = True
        for name, kept in zip(_DRAWS, log):
            setattr(rng, name, self._recording(getattr(rng, name), kept))
        return rng

    @staticmethod
    def _recording(draw, kept):
        def recorded(*arguments):
            kept.append(draw(*arguments))
            return kept[-1]

        return recorded

    def followed(self, gradient):
        """Factory of generators that repeat it."""
        last, logs = len(self.drawn) - 1, enumerate(self.drawn)

        def make(kind):
            k, (uniforms, normals, integers, _) = next(logs)
            if not gradient or k < last:
                return _Followed(uniforms, [])
            # a network's own generator is made last; the normals of a fit's only one are the noise of plain releases
            return _Followed(uniforms, normals if last else [], integers)

        return make

    def again(self):
        """Factory of generators that draw the same once more, noise included."""
        logs = iter(self.drawn)
        return lambda kind: _Repeated(kind, next(logs, ((),) * len(_DRAWS)))


class _EnoughError(Exception):
    """All that was asked for was released: the rest of the fit is not needed."""


def with_public_seed(estimator):
    """Clone with a separate accountant, and with the same public randomness in every fit.

    A difference between two fits is then the canary's, and not that of two initialisations. Noise has no seed.
    """
    estimator = clone(estimator)
    given = {name: value for name, value in estimator.get_params().items() if name.split("__")[-1] == "random_state"}
    return estimator.set_params(accountant=None, **{name: 0 for name, value in given.items() if value is None})


def released_by(estimator, data, silent=False, n_releases=None):
    """Fit a clone with a separate ledger, and return (fitted, list of (release, sd, kind)).

    With `n_releases` the fit ends after that many releases: what is made of them costs time and shows nothing more.
    """
    seen = []
    trial = clone(estimator).set_params(accountant=None)

    def watcher(*release):
        seen.append(release)
        if len(seen) == n_releases:
            raise _EnoughError

    with warnings.catch_warnings(), without_bars(), watch_releases(watcher), suppress(_EnoughError):
        warnings.simplefilter("ignore")
        if silent:
            with override_noise(lambda *_: _Silent()):
                trial.fit(*data)
        else:
            trial.fit(*data)
    return trial, seen


def contribution(estimator, one, other, gradient=False):
    """What a canary adds to each plain release, noise off; with `gradient` also to the first gradient.

    Returns None where nothing was released by this package's mechanisms, or the two fits released different things. The
    base of a gradient holds noise of a known seed, which the difference does not.
    """
    (_, first), (_, second) = (released_by(estimator, data, silent=True) for data in (one, other))
    first, second = (_judged(seen, gradient) for seen in (first, second))
    if not first or [r.shape for r, *_ in first] != [r.shape for r, *_ in second]:
        return None
    return [(base, changed - base, sd) for (base, sd, _), (changed, *_) in zip(first, second)]


def _plain(seen):
    """Plain releases. Of several, each is summed over its components: later ones depend on the noise of earlier ones
    through the responsibilities of a record, and these sum to one."""
    plain = [release for release in seen if release[2] == "plain"]
    if len(plain) < 2:
        return plain
    return [
        (r.sum(axis=0), np.sqrt((sd**2).sum(axis=0)), kind) if r.ndim > 1 else (r, sd, kind) for r, sd, kind in plain
    ]


def _judged(seen, gradient):
    """Plain releases, and with `gradient` the first gradient, in units of its noise: its bound holds a noisy count.

    Later gradients are taken at parameters that depend on the noise of earlier ones.
    """
    return [
        *_plain(seen),
        *([_in_noise(*release) for release in seen if release[2] != "plain"][:1] if gradient else []),
    ]


def _in_noise(value, sd, kind):
    return value / sd, np.ones_like(sd), kind


def follow(estimator, one, other, gradient=False):
    """Fit `one`, and compute what a canary adds to each release, given the releases before it.

    A later release is made of earlier ones: of what they gave for the bounds, say. The definition of composition asks
    how far the data sets are apart *after the same earlier releases*. So both are fitted once more with the noise off,
    each step of the way going on with what the first fit has released.

    `estimator`: of `with_public_seed`.
    `one`, `other`: arguments of ``fit``.
    `gradient`: whether to follow up to the first gradient, and with it.
    Returns `directions`: of the plain releases before the first gradient, and of the gradient; `noise`: of the noisy
        fit, over the standard deviation stated, one number an entry of a release.
    Raises ValueError where the fits released different things.
    """
    followed = follow_path(estimator, one, one, other, gradient)
    directions = [(base, moved - base, sd) for _, base, moved, sd, _ in followed.steps]
    noise = [((y - base) / sd)[sd > 0] for y, base, _, sd, _ in followed.steps if sd.size]
    return directions, np.concatenate([np.ravel(part) for part in noise])


@dataclass(frozen=True)
class FollowedFit:
    """A noisy fit, and what two data sets would have released at each step of it."""

    steps: list  # list of (released, base of `one`, base of `other`, sd, kind)
    fixed: bool  # whether the bases are those of every fit: one release, of a query that rests on no draw


def follow_path(estimator, data, one, other, gradient=False, n_releases=None):
    """Fit `data` with noise, then `one` and `other` without, each on the earlier releases of the noisy fit.

    `estimator`, `one`, `other`, `gradient`: as in `follow`. `data`: arguments of ``fit``. `n_releases`: the noisy fit
    ends after so many; None: it is finished.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of noise with a seed, in a test
        recorded = _Recorded(estimator.get_params(deep=False).get("noise", "secure"))
    with override_noise(recorded):
        _, path = released_by(estimator, data, n_releases=n_releases)
    steps = [_in_noise(*release) for release in path if release[2] != "plain"]
    path = [*takewhile(lambda release: release[2] == "plain", path), *(steps[:1] if gradient else [])]
    if not path:
        raise ValueError(
            "nothing is released before the first gradient, so the contribution of a canary cannot be computed"
        )
    bases, changed = (_along(path, estimator, rows, recorded.followed(gradient)) for rows in (one, other))
    fixed = len(path) == 1 and path[0][2] == "plain" and not any(uniforms for uniforms, *_ in recorded.drawn)
    return FollowedFit([(y, base, moved, sd, kind) for (y, sd, kind), base, moved in zip(path, bases, changed)], fixed)


def _along(path, estimator, data, generators):
    """What a fit without noise would release at each step of a path."""
    replay = _AlongPath(path)
    with warnings.catch_warnings(), without_bars(), replay_releases(replay), override_noise(generators):
        warnings.simplefilter("ignore")
        with suppress(_EnoughError):
            clone(estimator).fit(*data)
    if len(replay.seen) != len(path):
        raise ValueError(_DIFFERENT)
    return replay.seen


class _AlongPath(Replay):
    """Records what a fit without noise would release, and lets it go on with the releases of the path."""

    def __init__(self, path):
        self._path, self.seen = path, []

    def release(self, released, sd, kind, query):
        expected = self._path[len(self.seen)]
        if kind != expected[2] or released.shape != expected[0].shape:
            raise ValueError(_DIFFERENT)
        self.seen.append(released if kind == "plain" else _exact_gradient(query) / sd)
        if len(self.seen) == len(self._path):
            raise _EnoughError
        return expected[0].copy()


def _exact_gradient(query):
    """Sum of a step without its noise, which does not come from the normals of a generator."""
    return np.concatenate([part.detach().cpu().double().numpy().ravel() for part in query.bounded_sum.value])


def project(seen, directions, gradient=False):
    """Log-likelihood ratio of the releases of a fit, had none depended on another: sum of (y - base) d / sd^2."""
    judged = _judged(seen, gradient)
    if [r.shape for r, *_ in judged] != [d.shape for _, d, _ in directions]:
        return 0.0
    total = 0.0
    for (released, *_), (base, difference, sd) in zip(judged, directions):
        total += float(np.sum((released - base) * difference / np.maximum(sd, 1e-300) ** 2))
    return total


def fitted_numbers(fitted):
    """All numbers among the fitted attributes, as one vector: for estimators with other mechanisms."""
    parts = []
    for name, value in sorted(vars(fitted).items()):
        if name.endswith("_") and isinstance(value, np.ndarray) and value.dtype.kind in "fiu":
            parts.append(np.ravel(value).astype(np.float64))
    return np.concatenate(parts) if parts else np.zeros(0)


def canary_rows(X, y, estimator, neighboring):
    """Return the two data sets (without, with) of a canary that attains the sensitivity of a clipped query.

    Far beyond the bounds in every column: clipped, it has the largest norm there is; not clipped, it gives itself away.
    Under replace_one the row in its place is orthogonal to it.

    `X`, `y`: rows that are not private. `estimator`: read for declared bounds.
    """
    labels = None if y is None else np.asarray(y)
    if hasattr(X, "iloc"):
        rows = [_canary_of_frame(X), X.iloc[[len(X) // 2]]]
        joined = [pd.concat([X, row], ignore_index=True) for row in rows]
        labels = None if y is None else pd.Series(labels)
        longer = None if y is None else pd.concat([labels, labels[:1]], ignore_index=True)
    else:
        X = np.asarray(X, dtype=np.float64)
        joined = [np.vstack([X, row[None]]) for row in _canaries_of_array(X, estimator)]
        longer = None if y is None else np.concatenate([labels, labels[:1]])
    with_canary, with_other = [(rows,) if y is None else (rows, longer) for rows in joined]
    if neighboring == "replace_one":
        return with_other, with_canary
    return ((X,) if y is None else (X, labels)), with_canary


def data_sets(X, y, estimator, neighboring):
    """Return the two data sets of an audit, as arguments of ``fit``: of rows, or of units where the estimator has them.

    The worst unit has `max_rows` rows, all equal to the canary. Every other row is another unit.
    """
    X = to_pandas(X)
    pair = canary_rows(X, y, estimator, neighboring)
    asked = read_unit(estimator.get_params(deep=False))
    column, most = asked.name, asked.max_rows
    if most is None:
        if column is not None:
            raise ValueError("an audit of units needs max_rows_per_unit: the canary has as many rows")
        return pair
    return tuple(_as_units(data, len(X), column, most) for data in pair)


def _as_units(data, n_others, column, most):
    """A data set of rows with an identifier for each; the row after the others, if there is one, `most` times."""
    ids = np.arange(len(data[0]))
    ids = np.repeat(ids, np.where(ids < n_others, 1, most))
    rows = [part.iloc[ids].reset_index(drop=True) if hasattr(part, "iloc") else part[ids] for part in data]
    if hasattr(rows[0], "iloc") and column is not None:
        return rows[0].assign(**{column: ids}), *rows[1:]
    return rows[0], (rows[1] if len(rows) > 1 else None), ids


def _canaries_of_array(X, estimator):
    """The canary, and a row that is orthogonal to it."""
    d = X.shape[1]
    bounds = estimator.get_params(deep=False).get("bounds")
    low, high = (
        (X.min(axis=0), X.max(axis=0)) if bounds is None else np.broadcast_to(np.asarray(bounds, float), (d, 2)).T
    )
    center, reach = (low + high) / 2, np.maximum(high - low, 1e-12)
    signs = np.ones(d)
    signs[1::2] = -1
    return center + 10 * reach, center + 10 * signs * reach


def _canary_of_frame(X):
    """Numbers far beyond those of the table, and the first category: every record attains the bound of categories."""
    columns = {}
    for name in X.columns:
        column = X[name]
        if pd.api.types.is_float_dtype(column.dtype):
            columns[name] = [float(column.max()) + 10 * float(column.max() - column.min() + 1)]
        elif pd.api.types.is_integer_dtype(column.dtype):
            columns[name] = [int(column.max()) + 10 * int(column.max() - column.min() + 1)]
        else:
            columns[name] = [column.iloc[0]]
    return pd.DataFrame(columns).astype(X.dtypes.to_dict())


# ---- the method "likelihood" ---------------------------------------------------------------------------------------
# Deviations between the measured and the computed distance beyond which the fits without noise describe no noisy fit.
_TOO_FAR = 5.0


def fit_distances(estimator, one, other, n_runs, *, n_releases, gradient=False, noise_scale=1.0, tick=lambda: None):
    """Fit both data sets again and again, each fit up to its last release, and measure all releases together.

    For a known pair of data sets, the log-likelihood ratio of Gaussian releases is linear in them: what was released,
    minus what the neighbour releases without noise *after the same earlier releases*, along what the canary adds. The
    releases enter with fixed weights, those of one fit made before, so that their sum is Gaussian however much a canary
    adds in another fit.

    Some fits of `other` draw what a fit of `one` drew. The noise of such a pair is the same, so that their difference
    shows what the canary adds to fits with noise, and hardly any noise.

    `estimator`: of `with_public_seed`.
    `one`, `other`: arguments of ``fit``: neighbours.
    `n_runs`: fits of each.
    `n_releases`: how many releases a fit makes until the last that is judged.
    `gradient`: whether the last of them is the first gradient.
    `noise_scale`: of the noise of these fits, over what they state.
    `tick`: called after each fit.
    Returns `of_one`, `of_other` (n_runs, 2): distances of fits of `one` from `other`, and of `other` from `one`, in
        units of the noise that the mechanisms state; and the same without any noise: what the canary adds, which is at
        most mu, and mu where it attains the sensitivity; `n_pairs`: the first so many fits of `one` and of `other` have
        the same noise, two by two; `each`: fits for each distance.
    """
    pilot = follow_path(estimator, one, one, other, gradient, n_releases)
    weights = np.array([_norm((moved - base) / _positive(sd)) for _, base, moved, sd, _ in pilot.steps])
    if not weights.any():
        raise ValueError("the canary changes no release: give a canary that the estimator does not ignore")
    weights /= _norm(weights)
    sides, drawn, n_pairs = [], [], n_runs // RUNS_OF_A_PAIR
    kind = estimator.get_params(deep=False).get("noise", "secure")
    for data, from_one in ((one, False), (other, True)):
        found = []
        for k in range(n_runs):
            with noise_scaled(noise_scale), ExitStack() as stack:
                if k < n_pairs and not from_one:
                    drawn.append(_Recorded(kind))
                    stack.enter_context(override_noise(drawn[k]))
                elif k < n_pairs:
                    stack.enter_context(override_noise(drawn[k].again()))
                steps = _steps(estimator, data, one, other, gradient, n_releases, pilot)
            found.append(_distance(steps, weights, from_one))
            tick()
        sides.append(np.array(found))
    return *sides, n_pairs, 1 if pilot.fixed else 3


def _steps(estimator, data, one, other, gradient, n_releases, pilot):
    """Releases of one noisy fit, with what both data sets release there without noise."""
    if not pilot.fixed:
        return follow_path(estimator, data, one, other, gradient, n_releases).steps
    _, seen = released_by(estimator, data, n_releases=n_releases)
    if len(seen) != 1 or seen[0][0].shape != pilot.steps[0][0].shape:
        raise ValueError(_DIFFERENT)
    return [(seen[0][0], *pilot.steps[0][1:])]


def _distance(steps, weights, from_one):
    distance = reach = 0.0
    for (released, base, moved, sd, _), weight in zip(steps, weights):
        direction = (moved - base) / _positive(sd)
        norm = _norm(direction)
        if norm > 0:
            way = released - base if from_one else moved - released
            distance += weight * float(np.sum(way / _positive(sd) * direction)) / norm
            reach += weight * norm
    return distance, reach


def _norm(values):
    return math.sqrt(float(np.sum(np.square(values))))


def _positive(sd):
    return np.maximum(sd, 1e-300)


def bounds_of_distances(of_one, of_other, confidence, n_pairs=0):
    """Two lower bounds of mu from what `fit_distances` returns, and whether their assumptions hold.

    `of_one`, `of_other`, `n_pairs`: as `fit_distances` returns them.
    Returns: ``mu_lower``: what the canary adds, over the upper bound of the noise measured about it. ``mu_by_shift``:
        from the shift between fits of the two data sets alone, without what was computed or stated. ``mu_added``: what
        the canary adds over the noise stated. ``noise_measured``: over the noise stated. ``normality``: p-value of a
        Kolmogorov-Smirnov test.

    Where the measured shift is not that of the fits without noise, the fits without noise do not describe the noisy
    ones, and ``mu_lower`` is ``mu_by_shift``.
    """
    # both from `one` without noise: what the canary is computed to add is in neither
    without, within = of_one[:, 1] - of_one[:, 0], of_other[:, 0]
    by_shift = mu_from_pairs(without, within, n_pairs, confidence)
    both, within, alone = np.concatenate([of_one, of_other]), within[n_pairs:], of_other[n_pairs:]
    noise = np.concatenate([side[:, 0] - side[:, 1] - (side[:, 0] - side[:, 1]).mean() for side in (of_one, alone)])
    freedom = len(noise) - 2
    added, deviation = float(both[:, 1].mean()), math.sqrt(float(np.sum(noise**2)) / freedom)
    found = {"mu_by_shift": by_shift, "mu_added": added, "noise_measured": deviation}
    spread = deviation * math.sqrt(1 / len(without) + 1 / len(within))
    if deviation == 0 or abs(within.mean() - without.mean() - added) > _TOO_FAR * spread:
        return {**found, "mu_lower": by_shift, "normality": 0.0}
    directions = [(0.0, np.array([added]), np.ones(1))]
    normality = float(stats.kstest(noise / deviation, "norm", method="asymp").pvalue)
    return {**found, "mu_lower": mu_from_scale(directions, noise, confidence, freedom), "normality": normality}


def claimed_mu(charges):
    """Gaussian-DP parameter that was charged: of releases in which every record takes part; inf without noise."""
    rows = [row for charge in charges for row in describe_event(charge.event)]
    if any(row["noise_multiplier"] == 0 for row in rows):
        return math.inf
    return math.sqrt(math.fsum(row["count"] / row["noise_multiplier"] ** 2 for row in rows))
