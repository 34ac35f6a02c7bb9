"""Proof by replay that a fit reads nothing of its rows but through its releases."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
from sklearn.base import clone

from .._types import UnitRelation, unit_of
from ..utils.clock import one_day
from ._replay import difference, fit_along

# Tolerance, relative to the claimed sensitivity: rounding of float64 sums on a lattice, and of float32 gradients.
_ROUNDING = {"plain": 1e-6, "gradient": 1e-3}


@one_day()  # a card holds the day of its fit
def check_noninterference(estimator, data_a, data_b, *, rows=None, source=None, neighbours=True, order=True):
    """Assert that what a fit leaves behind follows from its releases alone, and that each release is as bounded.

    For tests, of this package's estimators and of yours: the fits made here have seeded noise and are not private. All
    that is learned from rows must leave a fit through `skdpgen.mechanisms.add_gaussian`,
    `skdpgen.mechanisms.release_names` or a step of `skdpgen.nn.DPNet`; any other way is found here, such as a
    default chosen by the number of rows, a scale by their deviation, or a warning that depends on them.

    Parameters
    ----------
    estimator : estimator or callable
        Not fitted; cloned, its public randomness seeded. Or a function that returns a new one.
    data_a, data_b : tuple
        Arguments of ``fit``, X or (X, y): arrays, or DataFrames in memory. Public facts are equal (names, kinds,
        numbers of columns; under ``replace_one`` the number of rows too), and the rest as different as can be: signs,
        sizes, classes, extreme and missing values, order, and the number of rows. Arrays of units are (X, y, groups).
        Of units, the two have different identifiers: one unit in both would be another one in the rows of the other.
    rows : tuple, default=None
        As `data_a`: single rows that join (or replace another) in the neighbouring data sets. None: a few of `data_a`
        and `data_b`. Rows at the edge of a case are better: beyond bounds, of a class that is nowhere else. Where the
        estimator has `unit`, they are all rows of one unit that is in neither, which join (or replace another unit)
        together.
    source : callable, default=None
        Maps a DataFrame to what ``fit`` is given in its place: a list of chunks, the path of a Parquet file.
    neighbours : bool, default=True
        Whether to replay into neighbouring data sets too.
    order : bool, default=True
        Whether to replay into the same rows in another order.

    Raises
    ------
    AssertionError
        Names the path, query or text that depends on the rows, and shows no value.
    ValueError
        The data cannot be compared: other columns, under ``replace_one`` other numbers of rows, or the same identifiers
        of units.

    Notes
    -----
    1. *Unrelated data.* The releases of a fit on `data_a` are recorded. A fit on `data_b` goes on with these
       releases. Queries (shapes, weights, bounds, noise), attributes, model file, card, ledger, samples,
       warnings, log, and printed lines must be the same, to the last bit.
    2. *Neighbours.* The same releases are replayed into data sets that differ in one row. The exact value of each
       query must differ by no more than its sensitivity, given the same earlier releases: an adaptive chain is checked
       link by link. Of a sum of one contribution a record, that of a row must be the same among other rows. Where the
       estimator has `unit`, the data sets differ in all rows of one unit, which stand among the others' rows.
    3. *Order.* The releases are replayed into the same rows backwards: each query (but steps of DP-SGD and counts of
       votes, whose draws follow the places of records) must have the same exact value, and the same names must pass a
       threshold where their noisy counts are equal. And a row that joins stands last, first and in the middle: which
       kinds the first row has, or in which chunk the others are, must not matter.

    State that a process carries from one fit to the next is detected if it is stored on the estimator, or if each fit
    overwrites it. State that the first fit of a process leaves for all later fits is not detected.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen import DPPCA
    >>> from skdpgen.testing import check_noninterference
    >>> rng = np.random.default_rng(0)
    >>> check_noninterference(DPPCA(2), (rng.normal(size=(60, 3)),), (100 + rng.random((20, 3)),))
    """
    make = _maker(estimator, source)
    data_a, data_b = _tuple(data_a), _tuple(data_b)
    replace = make(data_a)[0].get_params(deep=False)["neighboring"] == "replace_one" or _accountant_replaces(
        make(data_a)[0]
    )
    unit = _unit_of(make(data_a)[0], data_a)
    if unit is not None and rows is None:
        raise ValueError("of an estimator with units, give rows= of one unit that is nowhere else")
    if replace and unit is None and _length(data_a) != _length(data_b):
        raise ValueError("under replace_one the number of rows is public: give data sets of one length")
    pool = _Pool(data_a, data_b, data_a if rows is None else _tuple(rows))
    if unit is not None:
        pool.find_units(unit.name)
    first = _fit(make, data_a)
    spent, _ = make(data_a)
    neighbouring = pool.neighbours(replace, own_rows=rows is not None) if neighbours else None
    if neighbouring is not None:
        relation = "replace_one" if replace else "add_or_remove_one"
        _check_neighbours(make, first, neighbouring, pool, relation, spent, unit)
    _same(first, _fit(make, data_b, first, spent=spent), "unrelated data")
    if order:
        _check_order(make, data_a, first, pool.taken(pool.backwards(_length(data_a))))
    if order and neighbours and unit is None:  # rows of a unit stand among the others already
        _check_places(make, first, pool, pool.places(own_rows=rows is not None))


def _check_order(make, data, first, backwards):
    """Replay into the same rows, last row first."""
    if any(release.about["kind"] == "plain" for release in first.releases):
        pair = [_level(make, rows, first) for rows in (data, backwards)]
        _same_values(*pair, "follows from the order of rows")
    if any(release.named for release in first.releases):
        tied = _fit(make, data, ties=True)
        _same(tied, _fit(make, backwards, tied, pass_names=True), "the same rows in another order")


def _check_places(make, first, pool, places):
    """Replay into the same rows, of which one stands last, first, or among the others."""
    if any(release.about["kind"] == "plain" for release in first.releases):
        for last, *elsewhere in places:
            before = _level(make, pool.taken(last), first)
            for at in elsewhere:
                after = _level(make, pool.taken(at), first)
                _same_values(before, after, "follows from the place of a row that joins")


def _level(make, data, first):
    """Releases up to the last that is no step of DP-SGD, of rows whose random choices are equal."""
    return _fit(make, data, first, aligned=True, level=True, until="plain").releases


def _same_values(before, after, follows):
    """Each query has the same exact value; but counts of votes, whose draws follow the places of records."""
    for number, (one, other) in enumerate(zip(before, after)):
        placed = one.exact is None or not one.query.additive
        assert placed or _norm(_change(one, other)) <= _rounding(one), f"query {number + 1} {follows}"


def _check_neighbours(make, first, neighbouring, pool, relation, spent, unit):
    """Replay into pairs of data sets that differ in one row, which stands among two kinds of other rows."""
    made = {}

    def outcome(at):
        if tuple(at) not in made:
            # one estimator is used again: state left by its last rows must not matter
            # one fit is followed to its end; of the others the queries are wanted alone
            how = {"aligned": True, "spent": spent, "until": "any" if made else None}
            made[tuple(at)] = _fit(make, pool.taken(at), first, **how)
            _same(first, made[tuple(at)], "some of the rows")
        return made[tuple(at)].releases

    for pairs in neighbouring:
        (without, with_it), (without_there, with_it_there) = [[outcome(at) for at in pair] for pair in pairs]
        for number, four in enumerate(zip(without, with_it, without_there, with_it_there)):
            if four[0].exact is None:
                continue
            here, there = _change(*four[:2]), _change(*four[2:])
            query, stated = four[0].query, four[0].about["neighboring"]
            if unit is not None and stated is None:  # a step of DP-SGD, whose bound is that of its unit as it stands
                assert query.unit != "record", f"query {number + 1}: a step bounds rows where units are protected"
                stated = UnitRelation(relation, unit) if query.unit == "unit" else None
            reach = query.reach_of_a_record(relation if unit_of(stated) is None else stated)
            for change in (here, there):
                share = _norm(change) / reach
                assert share <= 1 + _ROUNDING[four[0].about["kind"]], (
                    f"query {number + 1}: one row moves it by {share:.4g} of its sensitivity"
                )
            shared = not query.additive or query.unit not in ("record", "unit")
            own = shared or _norm(_minus(here, there)) <= _rounding(four[0])
            assert own, f"query {number + 1}: what a row adds to it follows from the other rows"


def _change(before, after):
    """Difference of two exact sums, as a dict: cells that rows name are compared by their names."""
    change = {} if before.exact is None else {None: after.exact - before.exact}
    for run, (ours, theirs) in enumerate(zip(before.named, after.named)):
        change.update(
            {(run, name): theirs.get(name, 0.0) - ours.get(name, 0.0) for name in ours.keys() | theirs.keys()}
        )
    return change


def _minus(one, other):
    return {name: one.get(name, 0.0) - other.get(name, 0.0) for name in one.keys() | other.keys()}


def _norm(change):
    """Norm of a change; infinite if a part is not a number."""
    norm = float(np.sqrt(sum(float(np.sum(np.square(part))) for part in change.values())))
    return norm if np.isfinite(norm) else np.inf


def _rounding(release):
    return _ROUNDING[release.about["kind"]] * release.query.add_or_remove_one


def _fit(make, data, past=None, *, spent=None, **how):
    estimator, arguments = make(data)
    estimator = estimator if spent is None else spent
    return fit_along(estimator, arguments, None if past is None else past.releases, **how)


def _same(one, other, compared):
    for kind, facts in one.left.items() if other.left is not None else ():
        if facts is None or other.left[kind] is None:
            continue
        path = difference(facts, other.left[kind])
        assert path is None, f"{compared}, the same releases: {kind} differ at {path}"


def _maker(estimator, source):
    """A function of the data that returns a new estimator, its public randomness seeded, and arguments of its fit."""

    def make(data):
        made = estimator() if callable(estimator) and not hasattr(estimator, "fit") else clone(estimator)
        seeds = {name: value for name, value in made.get_params().items() if name.split("__")[-1] == "random_state"}
        made.set_params(**{name: 0 for name, value in seeds.items() if value is None})
        return made, data if source is None else (source(data[0]), *data[1:])

    return make


def _accountant_replaces(estimator):
    accountant = estimator.get_params(deep=False).get("accountant")
    return accountant is not None and accountant.neighboring == "replace_one"


def _unit_of(estimator, data):
    """Who a fit of these data protects, where that is not a row: a BoundedUnit."""
    resolve = getattr(estimator, "_resolve_unit", None)
    return None if resolve is None else resolve(data[2] if len(data) == 3 else None)


def _tuple(data):
    return data if isinstance(data, tuple) else (data,)


def _length(data):
    return len(data[0])


class _Pool:
    """All rows of all data sets, to make others of: dtypes are those of all of them together."""

    _units = None  # of each row, where the unit is not a row

    def __init__(self, *sets):
        self._lengths = [_length(data) for data in sets]
        if len({len(data) for data in sets}) != 1:
            raise ValueError("the data sets must all have y, or none of them")
        self._parts = [_joined([np.asarray(p) if isinstance(p, list) else p for p in parts]) for parts in zip(*sets)]

    def find_units(self, name):
        """Take the units from a column of the frame, or from the third argument of ``fit``."""
        if len(self._parts) == 3:
            values = self._parts[2]
        else:
            values = next(column for label, column in self._parts[0].items() if str(label) == name)
        self._units = pd.factorize(values)[0]
        a, b, _ = self._lengths
        own = [set(part.tolist()) - {-1} for part in np.split(self._units, [a, a + b])]  # -1: without an identifier
        if own[0] & own[1]:
            raise ValueError("the two data sets have units in common: give them different identifiers")
        if own[2] & (own[0] | own[1]) or len(own[2]) > 1:
            raise ValueError("rows= are to be those of one unit, whose identifier is in neither data set")

    def taken(self, at):
        """Rows by their places in the pool, as arguments of ``fit``."""
        at = np.asarray(at, dtype=np.int64)
        return tuple(part.iloc[at].reset_index(drop=True) if _is_table(part) else part[at] for part in self._parts)

    def backwards(self, n):
        """Places of the first rows, last row first; of units, the last unit first, its rows in their order."""
        if self._units is None:
            return np.arange(n)[::-1]
        return np.argsort(-self._units[:n], kind="stable")

    def neighbours(self, replace, own_rows):
        """Yield lists of two pairs (without, with): a row among some of the first set, and among the second's."""
        if self._units is not None:
            yield from self._neighbours_by_unit(replace)
            return
        a, b, extra = self._lengths
        among_b = a + np.arange(b)
        joining = a + b + np.arange(extra) if own_rows else np.array([a, 0])
        m = min(a, b)
        for row in joining:
            if replace:  # the last row of the first set is replaced, wherever it stands
                old, rest = [a - 1], [np.arange(a - 1), among_b[: b - 1]]
                pairs = [(np.r_[others, old], np.r_[others, row]) for others in rest]
            else:
                pairs = [(others, np.r_[others, row]) for others in (np.arange(m), among_b[:m])]
            yield [tuple(side.tolist() for side in pair) for pair in pairs]

    def places(self, own_rows):
        """Yield lists of data sets: a row that joins some of the first set, at its end, at its beginning, among it."""
        a, b, extra = self._lengths
        others = np.arange(min(a, b) - 1)
        for row in a + b + np.arange(extra) if own_rows else [a]:
            yield [np.insert(others, at, row) for at in (len(others), 0, len(others) // 2)]

    def _neighbours_by_unit(self, replace):
        """As `neighbours`: all rows of one unit join, or replace those of the last unit of the first set."""
        a, b, extra = self._lengths
        joining, old = a + b + np.arange(extra), np.flatnonzero(self._units[:a] == self._units[a - 1])
        pairs = []
        for others in (np.arange(a), a + np.arange(b)):
            rest = others[~np.isin(others, old)]
            pairs.append((_among(rest, old if replace else old[:0]), _among(rest, joining)))
        yield [tuple(side.tolist() for side in pair) for pair in pairs]


def _among(others, joining):
    """Rows that stand here and there among others."""
    return np.insert(others, np.linspace(0, len(others), len(joining)).astype(int), joining)


def _is_table(part):
    return hasattr(part, "iloc")


def _joined(parts):
    if not _is_table(parts[0]):
        return np.concatenate([np.asarray(part) for part in parts])
    if isinstance(parts[0], pd.Series):
        return _joined_series(parts)
    names = list(parts[0].columns)
    if any(list(part.columns) != names for part in parts):
        raise ValueError("the data sets have other columns")
    out = pd.DataFrame({i: _joined_series([part.iloc[:, i] for part in parts]) for i in range(len(names))})
    out.columns = parts[0].columns
    out.attrs = dict(parts[0].attrs)
    return out


def _joined_series(parts):
    if all(isinstance(part.dtype, pd.CategoricalDtype) for part in parts):
        listed = list(dict.fromkeys(itertools.chain(*(part.dtype.categories for part in parts))))
        parts = [part.cat.set_categories(listed) for part in parts]
    joined = pd.concat(parts, ignore_index=True)
    return joined.rename(parts[0].name)
