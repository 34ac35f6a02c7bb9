"""Standard errors of statistics of synthetic rows: the released model is refitted to rows that it draws itself."""

from __future__ import annotations

import math
import warnings
from contextlib import contextmanager
from numbers import Integral

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..exceptions import UtilityWarning
from ..utils.callers import warn_user
from ..utils.progress import progress_bar, shows_bars

# Rows of a sample on which a statistic is computed, as a multiple of those of the fit, and at least and at most. Their
# sampling adds at most a tenth to the variance of the fit's rows, up to 10,000 of these; above, errors are too large
# rather than too small.
_TIMES, _FEWEST, _MOST = 10, 10_000, 100_000


def refit_errors(synthesizer, statistic, n_fits=20, *, confidence=0.95, random_state=None):
    """Estimate how far a statistic of synthetic rows is from that of the population: a parametric bootstrap.

    Software that takes synthetic rows for real ones states standard errors that are too small: they do not contain the
    noise of the fit. Here the released model stands for the population. A table of as many rows as the released count
    is drawn from it, and a clone of the synthesizer is fitted to this table with the same privacy parameters, and so
    with the same noise. The statistic of the samples of `n_fits` such clones varies as that of repeated studies would,
    each with new rows and new noise.

    Parameters
    ----------
    synthesizer : fitted synthesizer
        It may be loaded from a model file. With ``unit=``, synthetic units are drawn, and tables contain the column of
        identifiers.
    statistic : callable
        Takes a sample, a DataFrame or an array, or two arrays X and y after ``fit(X, y)``. Returns a number, a
        Series, a dict of numbers, or an array of numbers, the same ones for each sample.
    n_fits : int, default=20
        Number of fits, each to other synthetic rows. Each takes about as long as the fit of the synthesizer.
    confidence : float, default=0.95
        Of the intervals.
    random_state : int, RandomState instance, Generator or None, default=None
        Of the sampling. The noise of the fits is never repeatable.

    Returns
    -------
    DataFrame
        One row for each number of the statistic: ``estimate``, that of a large sample of the synthesizer;
        ``bias``, by how much the clones are above it on average; ``standard_error``, their standard deviation;
        ``low`` and ``high``, an interval about the estimate less the bias, by the t distribution. NaN where a clone has
        no number, of which a UtilityWarning is given.

    Raises
    ------
    ValueError
        For a synthesizer fitted to arrays with ``groups=``, fewer than two fits, no whole number of them, or a
        confidence outside (0, 1).

    Notes
    -----
    **Leak.** Nothing beyond the released model: no real row is read, nothing is charged, and the figures may be
    published.

    The intervals contain sampling error, noise, and the shrinkage of dependences by noise, as far as the model can
    express the dependence. They do not contain what the model of a table cannot express: see Limitations in the README.
    The tables have the released number of rows: that another study would have another number is not in the errors.

    The statistic is computed of samples of 10 times as many rows as the fit had, of 100,000 or, if the fit had more, of
    as many as it had. From 10,000 rows on, sampling these therefore makes the errors larger than needed: by up to a
    factor of 1.4.

    References
    ----------
    .. [1] C. Ferrando, S. Wang, D. Sheldon. *Parametric bootstrap for differentially private confidence intervals.*
       AISTATS 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpgen import MomentSynthesizer, Schema
    >>> from skdpgen.metrics import refit_errors
    >>> from skdpgen.tabular import Numeric
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": np.random.default_rng(0).uniform(20, 60, 2000)})
    >>> synth = MomentSynthesizer(1.0, schema=Schema([Numeric("age", (0, 100))])).fit(frame)
    >>> errors = refit_errors(synth, lambda rows: {"mean age": rows["age"].mean()}, n_fits=20)
    >>> bool(0.1 < errors.loc["mean age", "standard_error"] < 3)
    True
    """
    if isinstance(n_fits, bool) or not isinstance(n_fits, Integral) or n_fits < 2:
        raise ValueError(f"n_fits must be at least 2, a whole number; got {n_fits!r}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; got {confidence!r}")
    samples = samples_of_refits(synthesizer, n_fits, random_state=random_state)
    estimate = _named(statistic(*next(samples)))
    refits = pd.concat([_named(statistic(*tables)).reindex(estimate.index) for tables in samples], axis=1).T
    absent = refits.isna().sum()
    if absent.any():
        warn_user(
            f"{absent.idxmax()!r} has no number in {absent.max()} of {n_fits} refits, so it has no standard error. For "
            "a category that a fit may lose, return 0",
            UtilityWarning,
        )
    bias, error = refits.mean(skipna=False) - estimate, refits.std(ddof=1, skipna=False)
    half = student.ppf((1 + confidence) / 2, n_fits - 1) * error * math.sqrt(1 + 1 / n_fits)
    centre = estimate - bias
    columns = {"estimate": estimate, "bias": bias, "standard_error": error, "low": centre - half, "high": centre + half}
    return pd.DataFrame(columns)


def samples_of_refits(synthesizer, n_fits, *, size=None, random_state=None):
    """Yield a sample of the synthesizer, then one of each refit: tuples of tables, as `statistic` takes them.

    `synthesizer`, `n_fits`, `random_state`: as for `refit_errors`. `size`: rows, or units, of a sample; None: many.
    """
    check_is_fitted(synthesizer)
    unit = getattr(getattr(synthesizer, "unit", None), "name", getattr(synthesizer, "unit", None))
    if unit is None and synthesizer.card_["unit"] != "one row":
        raise ValueError("the synthesizer was fitted with groups=: its rows cannot be drawn by unit")
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(2**31)
    rng = np.random.default_rng(random_state)
    n = max(2, round(float(synthesizer.row_count_ if unit is None else synthesizer.unit_count_)))
    many = min(max(_TIMES * n, _FEWEST), max(_MOST, n))
    pool = _drawn(synthesizer, many, unit, rng)
    # a copy, which the caller may change: the pool is what refits are fitted to
    yield tuple(part.copy() for part in pool) if size is None else _drawn(synthesizer, size, unit, rng)
    for _ in progress_bar(range(n_fits), phase="refits", shown=shows_bars("auto"), unit="fit"):
        fitted = _refitted(synthesizer, _resampled(pool, n, unit, rng))
        if relaxed := getattr(synthesizer, "_relaxed", ()):
            fitted.relax(*relaxed)
        yield _drawn(fitted, many if size is None else size, unit, rng)


def _named(values):
    """Numbers of a statistic as a Series."""
    if isinstance(values, pd.Series):
        return values.astype(float)
    if isinstance(values, dict):
        return pd.Series(values, dtype=float)
    return pd.Series(np.ravel(np.asarray(values, dtype=float)))


def _drawn(synthesizer, size, unit, rng):
    """A sample of so many rows, or units: the tables that `statistic` takes."""
    chosen = {"n_samples": size} if unit is None else {"units": size}
    rows = synthesizer.sample(**chosen, random_state=rng)
    return rows if isinstance(rows, tuple) else (rows,)


def _resampled(pool, n, unit, rng):
    """Draw n independent rows, or units, of a large sample: `sample` itself spreads its rows evenly."""
    if unit is None:
        chosen = rng.integers(len(pool[0]), size=n)
        return tuple(part.iloc[chosen] if hasattr(part, "iloc") else part[chosen] for part in pool)
    (rows,) = pool
    places = rows.groupby(unit, sort=False).indices
    drawn = [places[key] for key in rng.choice(np.array(list(places), dtype=object), size=n)]
    found = rows.iloc[np.concatenate(drawn)].copy()
    found[unit] = np.repeat(np.arange(n), [len(places) for places in drawn])
    return (found,)


def _refitted(synthesizer, rows):
    """A clone with the noise of the synthesizer, fitted to synthetic rows under a separate accountant."""
    card, known = synthesizer.card_, synthesizer.get_params(deep=False)
    own = {"accountant": None, "checkpoint": None, "progress": False, "random_state": None}
    own |= {"neighboring": card["neighboring"], "epsilon": float(card["fit"]["epsilon"])}
    if math.isfinite(own["epsilon"]):  # that of its releases alone, whatever shares their budget
        own["delta"] = card["fit"]["delta"]
    fitted = clone(synthesizer).set_params(**{name: value for name, value in own.items() if name in known})
    with warnings.catch_warnings(), _noted():
        warnings.simplefilter("ignore", UtilityWarning)  # of columns that the first fit has warned of
        return fitted.fit(*(part.reset_index(drop=True) if hasattr(part, "reset_index") else part for part in rows))


@contextmanager
def _noted():
    """Context of a refit: a note below its errors says that no budget of the caller was charged."""
    try:
        yield
    except BaseException as error:
        if hasattr(error, "add_note"):
            error.add_note("skdpgen: this was a refit to synthetic rows, which charges no budget of yours")
        raise
