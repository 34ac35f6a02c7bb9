"""Every uncharged read of the rows is caught by the harness that replays the releases of one fit into others.

A mutant puts something in the place of a named function or method, and reads what was never released.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import numpy as np
import pytest
from _noninterference import noninterference
from _sabotage import Claim

from skdpgen import DPPCA, DPGaussianMixture
from skdpgen._base import PrivateEstimator
from skdpgen.data import arrays as _arrays
from skdpgen.data import frames as _frames
from skdpgen.data import scaling as _scaling
from skdpgen.data import table_plan as _table_plan
from skdpgen.data.arrays import ArrayRows
from skdpgen.data.frames import FrameRows
from skdpgen.mechanisms import _selection as selection
from skdpgen.mixture import _dp_gaussian_mixture
from skdpgen.nn import DPNet, DPNetClassifier
from skdpgen.synthesizers import (
    _array_model,
    _dp2vae_model,
    _dp_merf,
    _dpgm,
    _frame_model,
    _p3gm,
    _p3gm_decoder,
    _vae_model,
)
from skdpgen.tabular import _learning as learning
from skdpgen.tabular import _schema_cells as schema_cells


def _wrap(patch, owner, name, around):
    """Put ``around(function, *args, **kwargs)`` in the place of a function or method."""
    function = getattr(owner, name)
    assert callable(function)

    def replacement(*args, **kwargs):
        return around(function, *args, **kwargs)

    patch.setattr(owner, name, replacement)


def _array_rows(patch):
    """A list that holds the rows of the last fit on arrays: what a mutant reads them from."""
    seen = []

    def learn(function, rows, *args, **kwargs):
        seen[:] = [rows]
        return function(rows, *args, **kwargs)

    _wrap(patch, ArrayRows, "learn", learn)
    return seen


# ---- the mutants that survived -----------------------------------------------------------------------------------
def bins_by_the_exact_number_of_rows(patch):
    n_rows = []
    _wrap(patch, FrameRows, "learn", lambda f, rows, *a, **k: (n_rows.append(len(rows)), f(rows, *a, **k))[1])
    _wrap(patch, _frames, "plan_bins", lambda f, size: f(replace(size, n_rows=float(n_rows[-1]))))


def sign_of_learned_bounds_by_the_exact_minimum(patch):
    def learned(function, X, *args):
        lower, upper = function(X, *args)
        return np.where(X.min(axis=0) >= 0, np.maximum(lower, 0.0), np.minimum(lower, -1.0)), upper

    _wrap(patch, _scaling, "_learn_bounds", learned)


def likelihood_by_a_look_at_the_rows(patch):
    def train(function, rows, *args, likelihood, **kwargs):
        return function(rows, *args, likelihood="bernoulli" if rows.min() >= 0 else "gaussian", **kwargs)

    _wrap(patch, _p3gm_decoder, "train_decoder", train)


def likelihood_of_subsets_by_a_look_at_the_rows(patch):
    def chosen(function, settings, rows):
        low, high = rows.X.min(), rows.X.max()
        grey = np.mean(np.abs(rows.X - (low + high) / 2) < 0.3 * (high - low))
        return "bernoulli" if grey < 0.25 else "gaussian"

    _wrap(patch, _dp2vae_model, "likelihood_of", chosen)


def clusters_of_rows_over_their_deviation(patch):
    _wrap(patch, _dpgm, "find_centers", lambda f, x, *a, **k: f(x / (x.std(axis=0) + 1e-6), *a, **k))


def length_scale_by_the_median_of_the_rows(patch):
    rows = _array_rows(patch)
    draw = _dp_merf.RandomFeatures.draw

    def scaled(width, n_frequencies, length_scale, rng):
        return draw(width, n_frequencies, length_scale * (1 + float(np.median(np.abs(rows[0].X)))), rng)

    patch.setattr(_dp_merf.RandomFeatures, "draw", staticmethod(scaled))


def cells_by_exact_class_sizes(patch):
    rows = _array_rows(patch)
    _wrap(patch, _array_model, "cut_directions", lambda f, counts, *a: f(np.bincount(rows[0].codes + 1)[1:], *a))


def em_from_the_exact_mean(patch):
    def start(function, self, X, *args):
        start = function(self, X, *args)
        start.means[0] = X.mean(axis=0) / max(1.0, np.linalg.norm(X.mean(axis=0)))
        return start

    _wrap(patch, DPGaussianMixture, "_initial_parameters", start)


def an_unknown_label_is_the_commonest_class(patch):
    def coded(function, values, classes):
        codes = function(values, classes)
        return np.where(codes < 0, np.bincount(codes[codes >= 0], minlength=len(classes)).argmax(), codes)

    _wrap(patch, _arrays, "label_codes", coded)


def an_unknown_label_is_the_commonest_class_of_a_mixture(patch):
    def coded(function, values, classes):
        codes = function(values, classes)
        return np.where(codes < 0, np.bincount(codes[codes >= 0], minlength=len(classes)).argmax(), codes)

    _wrap(patch, _dp_gaussian_mixture, "label_codes", coded)


def grey_pixels_over_the_exact_range(patch):
    def greys(function, rows, codec):
        low, high = rows.X.min(), rows.X.max()
        margin = 0.1 * (high - low)
        return ((rows.X > low + margin) & (rows.X < high - margin)).sum(axis=1)

    _wrap(patch, ArrayRows, "grey_pixels", greys)


# ---- other kinds ---------------------------------------------------------------------------------------------------
def denominator_of_the_exact_row_count(patch):
    rows = _array_rows(patch)

    def replace_count(model, count):
        return SimpleNamespace(row_count=count, counted=model.counted)

    _wrap(
        patch,
        _p3gm_decoder,
        "decoder_plan",
        lambda f, training, fit, model: f(training, fit, replace_count(model, float(len(rows[0].X)))),
    )


def missing_values_only_where_there_are_some(patch):
    def learn(function, rows, *args, **kwargs):
        columns = [c for c in rows.schema.columns if getattr(c, "missing", False) and rows.frame[c.name].notna().all()]
        rows.schema = rows.schema.replace(*(replace(column, missing=False) for column in columns))
        return function(rows, *args, **kwargs)

    _wrap(patch, FrameRows, "learn", learn)


def categories_in_the_order_of_the_rows(patch):
    for module in (schema_cells, learning):
        patch.setattr(module, "sorted", lambda values, key=None: list(values), raising=False)


def decimals_of_the_exact_rows(patch):
    """A step of 1 where all numbers of a column are whole, and only there, whatever the noisy counts say."""
    exact = []
    _wrap(patch, _frames, "schema_histogram", lambda f, *a: (exact.append(f(*a)), exact[-1])[1])

    def decided(function, column, counts, noise_sd, *values):
        names, parts = (
            exact[-1].schema.incomplete,
            np.split(exact[-1].bounded_sum.value, np.cumsum(exact[-1].sizes)[:-1]),
        )
        own = parts[names.index(column.name)][-len(counts) :]
        if column.name != "income":
            return function(column, counts, noise_sd, *values)
        return replace(column, step=1) if own[0] == own.sum() else column

    _wrap(patch, learning, "_with_resolution", decided)


def ties_of_names_broken_by_the_order_of_rows(patch):
    """As many names as there is room for, the first of them in the rows."""
    _few_categories(patch)
    patch.setattr(schema_cells, "sorted", lambda values, key: list(values), raising=False)

    def above(function, noisy, *args):
        mask = function(noisy, *args)
        mask[np.flatnonzero(mask)[2:]] = False
        return mask

    _wrap(patch, learning, "above_threshold", above)


def form_of_names_by_the_first_row(patch):
    """Classes as they stand in the rows, 1 or 1.0, and of all of them one form."""

    def names(function, found, *args):
        mixed = len(found) % 2 == 0
        return function([str(name) + "" if not mixed else np.str_(name) for name in found], *args)

    _wrap(patch, sys.modules["skdpgen.data.labels"], "release_names", names)


def type_of_a_bound_by_the_values(patch):
    def learn(function, rows, *args, **kwargs):
        codec = function(rows, *args, **kwargs)
        if np.array_equal(rows.X, np.rint(rows.X)) or (rows.X >= 0).all():
            object.__setattr__(codec.scaling, "lower", codec.scaling.lower.astype(np.float32))
        return codec

    _wrap(patch, ArrayRows, "learn", learn)


def a_warning_that_counts_the_clipped_rows(patch):
    def learn(function, rows, *args, **kwargs):
        codec = function(rows, *args, **kwargs)
        n_outside = (rows.X > codec.scaling.upper[: rows.X.shape[1]]).any(axis=1).sum()
        warnings.warn(f"{n_outside} rows were clipped", UserWarning, stacklevel=2)
        return codec

    _wrap(patch, ArrayRows, "learn", learn)


def a_printed_count(patch):
    _wrap(patch, DPPCA, "_release", lambda f, self, X, *a: (print(f"fitted on {len(X)} rows"), f(self, X, *a))[1])


def steps_of_em_by_the_likelihood(patch):
    def fit(function, self, X, *args):
        self.n_iter -= int(np.abs(X).max() > 1e3)
        return function(self, X, *args)

    _wrap(patch, DPGaussianMixture, "_fit_em", fit)


def learning_rate_by_the_exact_batch(patch):
    def step(function, self, batch):
        chunks = list(batch)
        mean = float(np.mean([float(chunk.X.mean()) for chunk in chunks])) if chunks else 0.0
        for group in self.optimizer_.param_groups:
            group["lr"] /= 1 + abs(mean)
        return function(self, chunks)

    _wrap(patch, DPNet, "train_step_single", step)


def steps_by_the_number_of_rows(patch):
    def resolved(function, training, n_rows, *args, **sizes):
        return replace(function(training, n_rows, *args, **sizes), steps=max(1, n_rows // 20))

    _wrap(patch, _p3gm, "resolve_sampling", resolved)


def a_constant_column_is_dropped(patch):
    def learn(function, rows, *args, **kwargs):
        constant = rows.X.min(axis=0) == rows.X.max(axis=0)
        if constant.any():
            rows.X = np.where(constant, 0.0, rows.X)
        codec = function(rows, *args, **kwargs)
        codec.scaling.upper[constant[: len(codec.scaling.upper)]] += 1.0
        return codec

    _wrap(patch, ArrayRows, "learn", learn)


def bounds_kept_from_the_last_fit(patch):
    last = []

    def release(function, self, X, *args):
        out = function(self, X, *args)
        if last:
            self.mean_ = np.clip(self.mean_, -last[0], last[0])
        last[:] = [np.abs(X).max(axis=0)]
        return out

    _wrap(patch, DPPCA, "_release", release)


def largest_norm_by_the_rows(patch):
    _wrap(patch, _scaling, "learn_norm_bound", lambda f, norms, largest, *a, **k: f(norms, norms.max(), *a, **k))


def rows_standardised_by_themselves(patch):
    def train(function, self, X, *args):
        return function(self, (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9), *args)

    _wrap(patch, DPNetClassifier, "_train", train)


def names_that_pass_by_exact_counts(patch):
    def above(function, noisy, counts, *args):
        return function(noisy, counts, *args) & (np.asarray(counts.value) >= 10)

    _wrap(patch, selection, "above_threshold", above)


def warm_start_on_the_rows(patch):
    def train(function, rows, *args, warm_rows, **kwargs):
        return function(rows, *args, warm_rows=rows, **kwargs)

    _wrap(patch, _p3gm_decoder, "train_decoder", train)


def samples_seeded_by_the_rows(patch):
    def learn(function, rows, *args, **kwargs):
        seed = int(np.abs(rows.X).sum() * 1000) % 2**31
        kwargs.setdefault("n_frequencies", None)
        codec = function(rows, *args, **kwargs)
        codec.__dict__["seed"] = seed
        return codec

    def sampler(function, self, random_state):
        return np.random.default_rng(getattr(self.model_.codec, "seed", 0))

    _wrap(patch, ArrayRows, "learn", learn)
    _wrap(patch, PrivateEstimator, "_sampler", sampler)


def a_failure_after_the_charge(patch):
    def learn(function, rows, *args, **kwargs):
        codec = function(rows, *args, **kwargs)
        if (rows.codes < 0).any():
            raise ValueError("a row has a class that was not released")
        return codec

    _wrap(patch, ArrayRows, "learn", learn)


def components_by_the_exact_rank(patch):
    def number(function, rows, settings, shape):
        return min(function(rows, settings, shape), np.linalg.matrix_rank(rows.X - rows.X.mean(axis=0)))

    _wrap(patch, _array_model, "_n_components", number)


def second_moments_about_the_exact_mean(patch):
    residual = sys.modules[DPPCA.__module__]._Residual.__call__

    def about(self, X):
        rows = residual(self, X)
        return rows - rows.mean(axis=0)

    patch.setattr(sys.modules[DPPCA.__module__]._Residual, "__call__", about)


def tables_weighted_by_exact_frequencies(patch):
    def tables(function, chunk, codec, plan):
        levels = np.array([len(np.unique(chunk[name])) for name in chunk.columns if name != codec.target], dtype=float)
        return function(chunk, codec, _table_plan.plan_tables(codec, 0.5, levels))

    _wrap(patch, _frames, "_tables", tables)
    patch.setattr(_frame_model.Scores, "of_codec", classmethod(lambda cls, *a: None))
    _wrap(patch, _frames, "plan_bins", lambda f, *a, **k: (8, 0.5))


def triples_by_the_exact_row_count(patch):
    _wrap(patch, _frame_model, "release_triples", lambda f, rows, *a: f(rows, *a) if len(rows) > 100 else None)


def a_model_of_the_target_by_the_exact_row_count(patch):
    _wrap(patch, _frame_model, "release_target_model", lambda f, rows, *a: f(rows, *a) if len(rows) > 100 else None)


def groups_by_the_exact_row_count(patch):
    rows = _array_rows(patch)

    _wrap(
        patch,
        _vae_model,
        "training_plan",
        lambda f, settings, fit, count: f(settings, fit, count._replace(value=float(len(rows[0].X)))),
    )


def the_global_generator_moved_by_each_row(patch):
    _wrap(patch, DPPCA, "_release", lambda f, self, X, *a: (np.random.rand(len(X)), f(self, X, *a))[1])  # noqa: NPY002


def a_log_line_of_the_largest_value(patch):
    import logging

    def release(function, self, X, *args):
        logging.getLogger("skdpgen").warning("largest value %s", float(X.max()))
        return function(self, X, *args)

    _wrap(patch, DPPCA, "_release", release)


def _few_categories(patch):
    patch.setattr(_table_plan, "_ROOM", ((16, 2),))


# (mutant, fits that the harness must catch it in)
MUTANTS = [
    (bins_by_the_exact_number_of_rows, "frame"),
    (sign_of_learned_bounds_by_the_exact_minimum, "arrays"),
    (likelihood_by_a_look_at_the_rows, "arrays, net, back"),
    (likelihood_of_subsets_by_a_look_at_the_rows, "subsets of images"),
    (clusters_of_rows_over_their_deviation, "clustered nets"),
    (length_scale_by_the_median_of_the_rows, "embedding"),
    (cells_by_exact_class_sizes, "images"),
    (em_from_the_exact_mean, "mixture"),
    (an_unknown_label_is_the_commonest_class, "arrays"),
    (an_unknown_label_is_the_commonest_class_of_a_mixture, "mixture by class"),
    (grey_pixels_over_the_exact_range, "images"),
    (denominator_of_the_exact_row_count, "arrays, net"),
    (missing_values_only_where_there_are_some, "frame"),
    (categories_in_the_order_of_the_rows, "frame"),
    (decimals_of_the_exact_rows, "frame"),
    (ties_of_names_broken_by_the_order_of_rows, "frame"),
    (form_of_names_by_the_first_row, "mixture by class"),
    (type_of_a_bound_by_the_values, "arrays"),
    (a_warning_that_counts_the_clipped_rows, "arrays"),
    (a_printed_count, "pca"),
    (steps_of_em_by_the_likelihood, "mixture"),
    (learning_rate_by_the_exact_batch, "arrays, net"),
    (steps_by_the_number_of_rows, "arrays, net"),
    (a_constant_column_is_dropped, "arrays"),
    (bounds_kept_from_the_last_fit, "pca"),
    (largest_norm_by_the_rows, "pca"),
    (rows_standardised_by_themselves, "classifier"),
    (names_that_pass_by_exact_counts, "mixture by class"),
    (warm_start_on_the_rows, "arrays, net"),
    (samples_seeded_by_the_rows, "arrays"),
    (a_failure_after_the_charge, "arrays"),
    (components_by_the_exact_rank, "arrays"),
    (second_moments_about_the_exact_mean, "pca in two rounds"),
    (tables_weighted_by_exact_frequencies, "frame"),
    (triples_by_the_exact_row_count, "frame"),
    (a_model_of_the_target_by_the_exact_row_count, "frame, target"),
    (groups_by_the_exact_row_count, "termwise net"),
    (the_global_generator_moved_by_each_row, "pca"),
    (a_log_line_of_the_largest_value, "pca"),
]


@pytest.mark.parametrize(("mutant", "name"), MUTANTS, ids=[m.__name__ for m, _ in MUTANTS])
def test_an_uncharged_read_is_caught(monkeypatch, mutant, name):
    claim = Claim(noninterference, name)
    claim.holds_unpatched()
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        claim.check()
