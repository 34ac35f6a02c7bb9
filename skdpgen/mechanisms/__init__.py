"""Sums of bounded contributions and the one function that adds noise to them; no budget, no estimator."""

from __future__ import annotations

from ._contrasts import OneHotMoments, Residuals
from ._gaussian import add_gaussian, check_bound, clip_rows, exact_value, lattice_rows
from ._histogram import (
    LARGEST,
    N_OCTAVE_CELLS,
    class_norm_histogram,
    count_votes,
    histogram,
    histogram_of_units,
    joint_histogram,
    norm_histogram,
    octave_cells,
    octave_edges,
    row_weights,
    split_histogram,
    total,
)
from ._mixture_sums import MixtureSums, mixture_sums, unpack_mixture_sums
from ._moments import (
    CLUSTER_COUNT_WEIGHT,
    Moments,
    class_first_moments,
    class_moments,
    cluster_sums,
    first_moments,
    moments,
    nearest_centers,
    second_moments,
    unpack_moments,
)
from ._one_hot import ResidualPlan, one_hot_moments, residual_plan, unpack_one_hot_moments
from ._selection import (
    octave_ranges,
    outermost_bins,
    release_kept,
    release_names,
    select_above,
    selection_threshold,
)
from ._shared_moments import shared_moments, unpack_shared_moments
from ._triples import CONTRASTS, N_QUARTERS, triple_bounds, triple_interactions, triples_of
from ._unit_tables import likeness, size_starts, unit_pairs, unit_plan, unit_tables

__all__ = [
    "CLUSTER_COUNT_WEIGHT",
    "CONTRASTS",
    "LARGEST",
    "N_OCTAVE_CELLS",
    "N_QUARTERS",
    "MixtureSums",
    "Moments",
    "OneHotMoments",
    "ResidualPlan",
    "Residuals",
    "add_gaussian",
    "check_bound",
    "class_first_moments",
    "class_moments",
    "class_norm_histogram",
    "clip_rows",
    "cluster_sums",
    "count_votes",
    "exact_value",
    "first_moments",
    "histogram",
    "histogram_of_units",
    "joint_histogram",
    "lattice_rows",
    "likeness",
    "mixture_sums",
    "moments",
    "nearest_centers",
    "norm_histogram",
    "octave_cells",
    "octave_edges",
    "octave_ranges",
    "one_hot_moments",
    "outermost_bins",
    "release_kept",
    "release_names",
    "residual_plan",
    "row_weights",
    "second_moments",
    "select_above",
    "selection_threshold",
    "shared_moments",
    "size_starts",
    "split_histogram",
    "total",
    "triple_bounds",
    "triple_interactions",
    "triples_of",
    "unit_pairs",
    "unit_plan",
    "unit_tables",
    "unpack_mixture_sums",
    "unpack_moments",
    "unpack_one_hot_moments",
    "unpack_shared_moments",
]
