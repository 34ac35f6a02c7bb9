"""A fit for persons reads its rows through its releases alone, and no person moves a release by more than it claims."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat
from _short_fits import short_postprocessing
from _visits import weights_of_one

from skdpgen import (
    DPPCA,
    DataLensSynthesizer,
    DPCGANSynthesizer,
    DPGaussianMixture,
    DPGMSynthesizer,
    DPMERFSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    GPATESynthesizer,
    GSWGANSynthesizer,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PATEGANSynthesizer,
    PrivacyUnit,
    PriVAESynthesizer,
)
from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedSum
from skdpgen.data import arrays, frames, rows_per_unit, units
from skdpgen.nn import DPNet, P3GMModule, PartitionedVAEModule, PriVAEModule, TableRefinementModule
from skdpgen.testing import check_noninterference


def _frame(ids, seed, words, shift):
    rng, n = np.random.default_rng(seed), len(ids)
    frame = {"pid": ids, "a": rng.normal(size=n) + shift, "c": rng.choice(words, n), "late": rng.random(n) < 0.3}
    return pd.DataFrame(frame).astype({"c": object})


def _data(numbers):
    """Two tables of visits, and the five visits of another person: of new categories, and beyond all bounds."""
    rng = np.random.default_rng(0)
    many = _frame(rng.integers(0, 40, 90), 1, ["x", "y", "z"], 0.0)
    few = _frame(100 + np.repeat(np.arange(20), 2), 2, ["y", "nowhere else"], -40.0)
    joining = _frame(np.full(5, 999), 3, ["x", "alone", "alone too"], 1e6)
    parts = [part[["pid", "a"]].assign(b=part["a"] ** 2) if numbers else part for part in (many, few, joining)]
    return parts


_STEPS = {"sampling_rate": 0.5, "steps": 2}
_DEEP = {"decoder": "net", "warm_start_steps": 1, "net": DPNet(P3GMModule, module__n_hidden=4), **_STEPS}
_REFINES = {"decoder": "net", "net": DPNet(TableRefinementModule, module__n_hidden=4), **_STEPS}
_AUTOENCODER = {"n_components": 2, "net": DPNet(PriVAEModule, module__n_hidden=4), **_STEPS}
_VAE = {"warm_start_steps": 0, **_AUTOENCODER}
_GROUPS = {"divergence": "mmd", "n_groups": 2, **_VAE}
_TRANSPORT = {"n_components": 2, "hidden_layer_sizes": (4,), "generated_rows": 6, **_STEPS}
_PARTS = {**_AUTOENCODER, "n_clusters": 2, "cluster_steps": 2, "net": DPNet(PartitionedVAEModule, module__n_hidden=4)}

_GAN = {"n_components": 2, "n_critic": 1, "generator_sizes": (4,), "discriminator_sizes": (4,), **_STEPS}
_VOTES = {
    "n_teachers": 3, "steps": 2, "labelled_rows": 6, "n_components": 2, "generator_sizes": (4,), "student_sizes": (4,),
}  # fmt: skip
_CRITICS = {
    "n_critics": 3, "steps": 2, "generated_rows": 5, "warm_start_steps": 1, "batch_size": 3, "n_components": 2,
    "hidden_layer_sizes": (4,), "critic_sizes": (4,),
}  # fmt: skip
_TEACHERS = {
    "n_teachers": 3, "steps": 2, "generated_rows": 5, "warm_start_steps": 1, "batch_size": 3, "n_components": 2,
    "hidden_layer_sizes": (4,), "teacher_sizes": (4,), "n_largest": 2,
}  # fmt: skip
_HISTOGRAMS = {
    "n_teachers": 3, "steps": 2, "generated_rows": 5, "warm_start_steps": 1, "batch_size": 3, "n_components": 2,
    "hidden_layer_sizes": (4,), "teacher_sizes": (4,), "n_projections": 2, "n_bins": 3,
}  # fmt: skip

CASES = {
    "moments of a table": (MomentSynthesizer, {"target": "c"}, False),
    "tables of units": (MomentSynthesizer, {"unit__columns": ["a", "c"]}, False),
    "P3GM of a table": (P3GMSynthesizer, {}, False),
    "P3GM with a mixture": (P3GMSynthesizer, {"prior": LatentMixture(2, n_iter=2)}, False),
    "P3GM that refines a table": (P3GMSynthesizer, _REFINES, False),
    "P3GM with the network of the paper": (P3GMSynthesizer, {"target": "c", **_DEEP}, False),
    "DP-VAE of a table": (DPVAESynthesizer, {"target": "c", **_VAE}, False),
    "DP-VAE from tables": (DPVAESynthesizer, {**_VAE, "warm_start_steps": 1}, False),
    "PriVAE of a table": (PriVAESynthesizer, _GROUPS, False),
    "DP-GM of a table": (DPGMSynthesizer, _PARTS, False),
    "DP-CGAN of a table": (DPCGANSynthesizer, {"target": "c", **_GAN}, False),
    "PATE-GAN of a table": (PATEGANSynthesizer, {"target": "c", **_VOTES}, False),
    "GS-WGAN of a table": (GSWGANSynthesizer, {"target": "c", **_CRITICS}, False),
    "DataLens of a table": (DataLensSynthesizer, {"target": "c", **_TEACHERS}, False),
    "G-PATE of a table": (GPATESynthesizer, {"target": "c", **_HISTOGRAMS}, False),
    "DP-MERF of a table": (DPMERFSynthesizer, {"steps": 1, "n_frequencies": 5}, False),
    "DP-Sinkhorn of a table": (DPSinkhornSynthesizer, {"target": "c", **_TRANSPORT}, False),
    "DP-PCA": (DPPCA, {}, True),
    "DP-PCA in two rounds": (DPPCA, {"centering": "two_round"}, True),
    "mixture": (DPGaussianMixture, {"n_components": 2, "n_iter": 2}, True),
    "pairs of rows of units": (MomentSynthesizer, {"unit__shared": ["a", "c"]}, False),
    "tables of units with constraints": (
        MomentSynthesizer,
        {"unit__columns": ["c", "late"], "constraints": ["combinations(c, late)"]},
        False,
    ),
}
# of arrays, whose identifiers are the third argument of `fit`; those of images have more releases
ARRAYS = {
    "moments of an array": (MomentSynthesizer, {}),
    "P3GM of images, sub-clusters": (P3GMSynthesizer, {"image_shape": (2, 2), "bounds": (0, 1), "l2_bound": 2.0}),
    "P3GM of an array, mixture": (P3GMSynthesizer, {"prior": LatentMixture(2, n_iter=2)}),
    "P3GM of an array, mixture and network": (
        P3GMSynthesizer,
        {"prior": LatentMixture(2, n_iter=1), **_DEEP},
    ),
    "DP-VAE of an array": (DPVAESynthesizer, _VAE),
    "DP-VAE from moments": (DPVAESynthesizer, {**_VAE, "warm_start_steps": 1}),
    "PriVAE of an array": (PriVAESynthesizer, _GROUPS),
    "DP-GM of an array": (DPGMSynthesizer, _PARTS),
    "DP-Sinkhorn of an array": (DPSinkhornSynthesizer, _TRANSPORT),
    "DP-CGAN of an array": (DPCGANSynthesizer, _GAN),
    "PATE-GAN of an array": (PATEGANSynthesizer, _VOTES),
    "GS-WGAN of an array": (GSWGANSynthesizer, _CRITICS),
    "DataLens of an array": (DataLensSynthesizer, _TEACHERS),
    "G-PATE of an array": (GPATESynthesizer, _HISTOGRAMS),
    "mixture of classes": (DPGaussianMixture, {}),
}


def _array_data():
    """Two sets of rows with classes and identifiers, and the five rows of another person."""
    rng, sets = np.random.default_rng(0), []
    for words, ids, scale in (
        (["a", "b"], rng.integers(0, 40, 90), 1.0),
        (["b", "nowhere else"], 100 + np.repeat(np.arange(20), 2), 0.1),
        (["a", "alone", "alone too"], np.full(5, 999), 50.0),
    ):
        X = scale * rng.random((len(ids), 4))
        sets.append((X, rng.choice(np.array(words, dtype=object), len(ids)), ids))
    return sets


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(("name", "relation"), [(name, NEIGHBORING[i % 2]) for i, name in enumerate(ARRAYS)])
def test_a_person_moves_no_release_of_an_array_by_more_than_it_claims(name, relation, weighting):
    estimator, parameters = ARRAYS[name]
    options = {"unit": PrivacyUnit(None, 3, weighting=weighting), "neighboring": relation}
    many, few, joining = _array_data()
    with short_postprocessing():
        made = make_flat(estimator, epsilon=60.0, random_state=0, **options, **parameters)
        check_noninterference(made, many, few, rows=joining)


def test_data_sets_with_units_in_common_are_not_compared():
    many, few, joining = _array_data()
    made = DPPCA(2, unit=PrivacyUnit(None, 3))
    shared = (*few[:2], np.where(few[2] == 105, many[2][0], few[2]))
    with pytest.raises(ValueError, match="give them different identifiers"):
        check_noninterference(made, many, shared, rows=joining)
    for ids in (np.full(5, many[2][3]), np.full(5, few[2][3]), np.arange(500, 505)):
        with pytest.raises(ValueError, match="one unit, whose identifier is in neither data set"):
            check_noninterference(made, many, few, rows=(*joining[:2], ids))


def _in_chunks(frame):
    """Three chunks, sorted by unit: the second begins and ends within the rows of one."""
    frame = frame.sort_values("pid", kind="stable", ignore_index=True)
    cuts = [0, len(frame) // 3 + 1, len(frame) // 2 + 1, len(frame)]
    return [frame.iloc[first:last] for first, last in itertools.pairwise(cuts)]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_a_person_moves_no_release_of_chunks_by_more_than_it_claims(weighting):
    many, few, joining = _data(False)
    options = {"unit": PrivacyUnit("pid", 3, weighting=weighting, columns="late", shared="a")}
    with short_postprocessing():
        made = MomentSynthesizer(60.0, random_state=0, target="c", **options)
        check_noninterference(made, many, few, rows=joining, source=_in_chunks)


ALL = [(name, weighting, relation) for name in CASES for weighting in WEIGHTINGS for relation in NEIGHBORING]
# most cases once, under a weighting and a relation that alternate; all of them are slow
FAST = [
    (name, WEIGHTINGS[i % 2], NEIGHBORING[i // 2 % 2]) for i, name in enumerate(CASES) if name != "DP-MERF of a table"
]
FAST += [("moments of a table", *both) for both in (("units", NEIGHBORING[0]), ("rows", NEIGHBORING[1]))]


def _check(name, weighting, relation, k=3):
    estimator, parameters, numbers = CASES[name]
    options = {"unit": PrivacyUnit("pid", k, weighting=weighting), "neighboring": relation}
    own = {key: value for key, value in parameters.items() if key.startswith("unit__")}
    rest = {key: value for key, value in parameters.items() if key not in own}
    made = make_flat(estimator, epsilon=60.0, random_state=0, **options, **rest).set_params(**own)
    many, few, joining = _data(numbers)
    with short_postprocessing():
        check_noninterference(made, many, few, rows=joining)


@pytest.mark.parametrize(("name", "weighting", "relation"), FAST)
def test_a_person_moves_no_release_by_more_than_it_claims(name, weighting, relation):
    _check(name, weighting, relation)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "weighting", "relation"), [case for case in ALL if case not in FAST])
def test_a_person_moves_no_release_by_more_than_it_claims_in_any_case(name, weighting, relation):
    _check(name, weighting, relation)


# ---- sabotage -----------------------------------------------------------------------------------------------------
def _rows_kept_by_a_global_shuffle(patch):
    """Whoever joins changes the places, and with them which rows of the others are kept."""

    def shuffled(ids, key):
        order = np.random.default_rng(key).permutation(len(ids))
        rank = pd.Series(ids.codes[order]).groupby(ids.codes[order]).cumcount().to_numpy()
        rows = np.sort(order[rank < ids.unit.max_rows])
        used = np.minimum(np.bincount(ids.codes), ids.unit.max_rows)
        weighted = ids.unit.weighting == "units"
        sizes = used[ids.codes[rows]] if weighted else None
        return units.KeptRows(rows, sizes, used[used > 0], ids.codes[rows])

    for module in (units, arrays, rows_per_unit):
        patch.setattr(module, "keep_rows", shuffled)


def _numbers_by_the_order_of_all_units(patch):
    """The number of a unit among the others decides which of its rows are kept."""
    patch.setattr(units, "_hashes", lambda values, key: np.arange(len(values), dtype=np.uint64))


def _every_row_is_kept(patch):
    """Rows are not bounded: as many as there are take part."""
    shipped = units.keep_rows

    def all_of_them(ids, key):
        many = units.BoundedUnit(ids.unit.name, 1000, ids.unit.weighting)
        return shipped(units.UnitIds(many, ids.codes, ids.values), key)

    for module in (units, arrays, rows_per_unit):
        patch.setattr(module, "keep_rows", all_of_them)


def _the_exact_number_of_rows(patch):
    patch.setattr(
        "skdpgen.synthesizers._base.ChargedFit.sample_size", lambda fit, rows, released: float(len(rows.frame))
    )


def _number_of_rows_without_k(patch):
    """A unit adds up to k to the number of rows, and the noise is for 1."""

    def plain(counts, largest, of_units):
        return BoundedSum(np.array([float(counts.sum())]), 1.0, 1.0, lattice=2.0**-20, unit="unit")

    patch.setattr(units, "total", plain)


def _what_a_unit_adds_follows_from_the_others(patch):
    """No unit moves it by more than its bound, but where to follows from how many rows the others have."""

    def scattered(counts, largest, of_units):
        value = largest * (0.618 * float(counts.sum()) ** 2 % 1)
        return BoundedSum(np.array([value]), 1.0, 1.0, weights=1 / largest, lattice=2.0**-20, unit="unit")

    patch.setattr(units, "total", scattered)


def _frames_counted_without_weights(patch):
    shipped = frames.bins_histogram
    patch.setattr(
        frames,
        "bins_histogram",
        lambda frame, schema, unit_sizes=None: _as_weighted(shipped(frame, schema), unit_sizes),
    )


def _as_weighted(query, unit_sizes):
    object.__setattr__(query, "weighted", unit_sizes is not None)
    return query


def _units_counted_once_for_each_row(patch):
    """Every row used counts in the tables of units, whose noise is for one contribution of each unit."""
    patch.setattr(units, "_first_of_each", lambda codes: (np.arange(len(codes)), np.bincount(codes)[codes]))


def _sizes_of_other_units(patch):
    """A unit has the number of rows of the one before it."""
    shipped = units._first_of_each

    def other(codes):
        first, sizes = shipped(codes)
        return first, np.roll(sizes, 1) + (np.arange(len(sizes)) < len(sizes) % 3)

    patch.setattr(units, "_first_of_each", other)


def _tables_of_units_with_half_their_bound(patch):
    shipped = frames.unit_tables

    def smaller(*arguments):
        found = shipped(*arguments)
        object.__setattr__(found, "add_or_remove_one", found.add_or_remove_one / 2)
        return found

    patch.setattr(frames, "unit_tables", smaller)


def _rows_sampled_and_clipped_one_by_one(patch):
    patch.setattr(DPNet, "_units", lambda net, groups: np.arange(len(groups)))


def _the_exact_number_of_units_as_denominator(patch):
    chosen = []
    shipped = units.keep_rows

    def seen(ids, key):
        chosen[:] = [shipped(ids, key)]
        return chosen[0]

    patch.setattr(units, "keep_rows", seen)
    patch.setattr(
        "skdpgen.synthesizers._base.ChargedFit.step_size",
        lambda fit, row_count, counted: counted._replace(value=float(len(chosen[0].n_per_unit))),
    )


SABOTAGE = [
    (_rows_kept_by_a_global_shuffle, "moments of a table", "rows"),
    (_rows_kept_by_a_global_shuffle, "DP-PCA", "units"),
    (_numbers_by_the_order_of_all_units, "moments of a table", "rows"),
    (_every_row_is_kept, "moments of a table", "rows"),
    (weights_of_one, "moments of a table", "units"),
    (weights_of_one, "DP-PCA", "units"),
    (_number_of_rows_without_k, "moments of a table", "units"),
    (_what_a_unit_adds_follows_from_the_others, "moments of a table", "units"),
    (_the_exact_number_of_rows, "moments of a table", "units"),
    (_the_exact_number_of_rows, "moments of a table", "rows"),
    (_frames_counted_without_weights, "moments of a table", "units"),
    (_units_counted_once_for_each_row, "tables of units", "rows"),
    (_sizes_of_other_units, "tables of units", "units"),
    (_tables_of_units_with_half_their_bound, "tables of units", "units"),
    (_rows_sampled_and_clipped_one_by_one, "P3GM that refines a table", "rows"),
    (_the_exact_number_of_units_as_denominator, "P3GM that refines a table", "units"),
    (_the_exact_number_of_units_as_denominator, "DP-VAE of a table", "units"),
]


@pytest.mark.parametrize(("sabotage", "name", "weighting"), SABOTAGE)
def test_what_weakens_the_protection_of_a_person_is_caught(sabotage, name, weighting, monkeypatch):
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        _check(name, weighting, NEIGHBORING[0])
