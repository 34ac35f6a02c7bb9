"""Every sabotage of steps by units of several rows is caught by a claim of an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_dp2vae_units
import test_dp_net_units
import test_places_of_rows
import test_room_for_noisy_counts
import test_rounding_of_sums
import test_rows_of_no_class
import test_termwise_units
import test_unit_sums
import torch
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.dpsgd import (
    ClippedSum,
    DPSGDPlan,
    PoissonLoader,
    TermwiseAggregate,
    _clipping,
    _layers,
    _plan,
    _termwise,
    _units,
)
from skdpgen.dpsgd._subsets import assign_subsets
from skdpgen.nn import _dp2vae_training
from skdpgen.synthesizers import _array_model, _dpgm, _frame_model, _training

BOUND = {
    (rows, weighting): Claim(
        test_unit_sums.test_a_unit_moves_the_sum_by_its_bound_and_no_further, rows, weighting, "fast"
    )
    for rows in ("equal", "different")
    for weighting in ("rows", "units")
}  # fmt: skip
NAIVE = {
    name: Claim(test_unit_sums.test_units_equal_one_backward_pass_for_each, name, "rows")
    for name in ("linear", "conv", "layer norm")
}
MEAN = Claim(test_unit_sums.test_units_equal_one_backward_pass_for_each, "linear", "units")
OTHERS = Claim(test_unit_sums.test_inserting_a_unit_leaves_the_clipped_gradients_of_others_equal, "fast")
NAN = Claim(test_unit_sums.test_a_row_without_finite_gradient_takes_out_its_unit_and_no_other, "fast", float("nan"))
CANCELLED = {
    name: Claim(test_unit_sums.test_a_unit_whose_rows_cancel_does_not_depend_on_the_place_of_its_rows, name, path)
    for name, path in (
        ("conv", "fast"), ("conv, Gram", "fast"), ("layer norm", "fast"), ("embedding", "fast"), ("linear", "vmap")
    )
}  # fmt: skip
MANY_ROWS = {n: Claim(test_unit_sums.test_a_unit_of_many_rows_of_a_linear_layer, (6, 5), n) for n in (20, 40)}
PARTS = Claim(test_unit_sums.test_rows_of_a_unit_in_several_parts_are_clipped_together, "rows")
SAMPLING = Claim(test_unit_sums.test_units_are_sampled_whole_and_independently_at_the_rate)
CHUNKS = Claim(test_unit_sums.test_a_large_batch_comes_in_chunks_that_never_split_a_unit, 15)
ADDED = {
    "fast": Claim(test_rounding_of_sums.test_gradients_of_units_are_added_exactly, "fast"),
    "vmap": Claim(test_rounding_of_sums.test_gradients_that_are_formed_in_blocks_are_added_exactly),
}
ADDITIONS = Claim(test_rounding_of_sums.test_a_sum_errs_by_the_additions_of_a_term, 4096, (5, 0), torch.float32)
COVERED = Claim(test_rounding_of_sums.test_the_slack_covers_the_additions)
RULE = Claim(test_rounding_of_sums.test_no_unit_changes_the_rule_of_a_layer_for_others, "linear")
PASSES = Claim(test_rounding_of_sums.test_a_pass_does_not_begin_with_the_sum_of_earlier_ones, 1)
UNUSABLE = [Claim(test_rounding_of_sums.test_an_unusable_record_changes_no_other_gradient, float("nan"))]
MOVED = [
    Claim(test_rounding_of_sums.test_a_unit_that_joins_does_not_move_products_of_the_places_of_others, n)
    for n in (1, 2)
]
ALIGNED = Claim(test_places_of_rows.test_a_unit_of_the_lowest_number_moves_no_other, "loop")
WINDOWS = Claim(test_rounding_of_sums.test_the_size_of_a_unit_does_not_change_the_norms_of_others, 32)
ALONE = Claim(test_rounding_of_sums.test_rows_of_a_unit_that_is_alone_stand_in_a_random_order)
NO_CLASS = [
    Claim(test_rows_of_no_class.test_steps_have_room_for_their_rows, model, "rows")
    for model in test_rows_of_no_class.MODELS
]
NOISY = {
    name: Claim(test_room_for_noisy_counts.test_noise_of_the_count_never_takes_the_room, name)
    for name in test_room_for_noisy_counts.MODELS
}
CLUSTER = Claim(test_room_for_noisy_counts.test_noise_of_the_size_of_a_cluster_never_takes_its_room, "replace_one")
TABLES = Claim(
    test_room_for_noisy_counts.test_noise_of_the_count_of_tables_never_takes_the_room,
    test_room_for_noisy_counts.P3GMSynthesizer,
)
WIDER = Claim(test_room_for_noisy_counts.test_a_margin_gives_the_places_of_so_many_more_records)
SLACK = Claim(test_unit_sums.test_a_plan_of_units_costs_what_one_of_records_costs)
LOSS = Claim(test_dp_net_units.test_without_noise_a_step_is_the_mean_over_rows_or_over_units)
GROUP_SUM = {
    weighting: Claim(test_termwise_units.test_the_sum_is_that_of_clipped_units_and_groups_by_hand, weighting)
    for weighting in ("rows", "units")
}
ONE_ROW = Claim(test_termwise_units.test_one_row_of_each_unit_is_drawn_uniformly_and_independently)
SUBSET = Claim(test_dp2vae_units.test_a_unit_lies_in_one_subset_as_a_whole_drawn_uniformly)
EQUAL_UNITS = Claim(test_dp2vae_units.test_units_count_one_each_in_the_batches_of_a_subset)

GROUPS = [
    Claim(test_termwise_units.unit_of_a_group_moves_the_sum_as_stated, relation)
    for relation in ("add_or_remove_one", "replace_one")
]

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    # ---- the units
    (
        "one unit for each type of an identifier",
        [Claim(test_unit_sums.test_equal_entries_of_different_types_are_one_unit)],
        (_units.unit_codes, ("$codes.setdefault($entry, len($codes))", "$codes.setdefault(repr($entry), len($codes))")),
    ),
    # ---- the clip
    (
        "rows clipped in place of units",
        [BOUND["equal", "rows"], BOUND["different", "units"], NAIVE["conv"]],
        (ClippedSum.add, ("RowUnits($units, $mask)", "RowUnits(np.arange(len($units)), $mask)")),
    ),
    (
        "the rows of a unit taken for orthogonal",
        [BOUND["equal", "rows"], BOUND["equal", "units"]],
        (
            _units._linear,
            ("$squares.sqrt()", "$squares"),
            ("$norms.square_()", "pass"),
            ("($4.large, $4.windows)", "($4.large, None)"),
        ),
    ),
    (
        "products of rows of different units in a norm",
        [NAIVE["linear"], OTHERS],
        (
            _units._linear,
            ("torch.where($windows.same, $inputs * $outputs, 0.0)", "($inputs * $outputs)"),
        ),
    ),
    (
        "the factors of the first units for every block",
        [NAIVE["conv"], NAIVE["layer norm"]],
        (_units._by_blocks, ("$factors[$block.units]", "$factors[:$block.units.stop - $block.units.start]")),
    ),
    (
        "the bias left out of the norms of units",
        [NAIVE["linear"]],
        (_units._linear, ("$inputs.add_(int($bias))", "$inputs")),
    ),
    (
        "cancellation within a unit not allowed for",
        [MANY_ROWS[20]],
        (_units._linear, ("$found.add_($norms[$several], alpha=_ROWS_CANCELLATION)", "$found")),
    ),
    (
        "cancellation not allowed for in products of places",
        [CANCELLED["conv"]],
        (_layers._outer_product, ("$found.add_($size.square_(), alpha=_ROWS_CANCELLATION)", "$found")),
    ),
    (
        "norms of the rows of large units taken for zero",
        [MANY_ROWS[40]],
        (_layers._add_up_rows, ("(_norms($left, 1) * _norms($right, 2)).sum(1)", "0 * _norms($left, 1).sum(1)")),
    ),
    (
        "cancellation not allowed for in Gram matrices of places",
        [CANCELLED["conv, Gram"], CANCELLED["embedding"]],
        (_layers._norms_of_gram, ("$norms.add_($size, alpha=_ROWS_CANCELLATION)", "pass")),
    ),
    (
        "cancellation not allowed for in small layers",
        [CANCELLED["layer norm"]],
        (_layers._small, ("$norms.add_($size, alpha=_ROWS_CANCELLATION)", "pass")),
    ),
    (
        "cancellation not allowed for in formed gradients",
        [CANCELLED["linear"]],
        (ClippedSum._add_formed, ("$found + $3", "$found")),
    ),
    (
        "each part of a unit clipped by its own norm",
        [PARTS],
        (
            ClippedSum._square_norms_of_units,
            ("for $records, $rows in $1:\n    $body", "for $records, $rows in $1[:1]:\n    $body"),
        ),
    ),
    ("a row that is not finite leaves its unit in", [NAN], (ClippedSum._add_units, ("bool($unusable.any())", "False"))),
    ("the weights of rows of equal units dropped", [MEAN, LOSS], (_units.RowUnits.weights, ("$1 == 'units'", "False"))),
    (
        "no slack for the rounding of units",
        [SLACK],
        (
            DPSGDPlan.slack,
            ("max(self._additions * _ADDITION, $of_unit)", "self._additions * _ADDITION"),
        ),
    ),
    # ---- the sampling
    (
        "rows sampled in place of units",
        [SAMPLING],
        (
            PoissonLoader.__init__,
            ("_rows_by_unit($units, $most, $rng)", "_rows_by_unit(np.arange(len($units)), $most, $rng)"),
        ),
    ),
    (
        "chunks of more rows than memory is planned for",
        [CHUNKS],
        (
            PoissonLoader._chunks_of_units,
            ("self._sizes[$units] > $shared", "self._sizes[$units] > 10**6"),
        ),
    ),
    # ---- the sums
    (
        "gradients of units added in float32",
        [ADDED["fast"]],
        (ClippedSum.reset, ("self.weighting is not None", "False")),
    ),
    (
        "formed gradients added in float32",
        [ADDED["vmap"]],
        (ClippedSum._add_formed, ("self._beta and not self._exact", "False")),
    ),
    (
        "all rows of a batch in one chain of additions",
        [ADDITIONS],
        (_layers.add_product, ("16 * SUMMED_TOGETHER if $exact else SUMMED_TOGETHER", "10**6")),
    ),
    (
        "slack for one addition of a term",
        [COVERED],
        (DPSGDPlan.slack, ("max(self._additions * _ADDITION, $of_unit)", "max(_ADDITION, $of_unit)")),
    ),
    (
        "products that begin with the sum of earlier passes",
        [PASSES],
        (ClippedSum.add, ("self._beta and not self._exact", "False")),
    ),
    (
        "gradients by outputs in the layout that they have",
        UNUSABLE,
        (
            ClippedSum._record,
            (
                "($layers[$layer], $layer, $a.contiguous(), $g.contiguous())",
                "($layers[$layer], $layer, $a.contiguous(), $g)",
            ),
        ),
    ),
    (
        "rows of the slow path where others end",
        [ALIGNED],
        (_clipping.example_gradients_loop, ("$x[$i : $i + 1].clone()", "$x[$i : $i + 1]")),
    ),
    (
        "products of the places of units in float32",
        MOVED,
        (_layers._multiply, ("$pool.exact", "False")),
        (_layers._add_up_rows, ("$x.double() if $pool.exact else $x", "$x")),
    ),
    (
        "the rule of a layer by the number of units",
        [RULE],
        (_units._BlockPool.total, ("self._most_units", "self._n_units")),
    ),
    (
        "norms of units rounded by the largest of them",
        [WINDOWS],
        (
            _units._linear,
            ("torch.bmm($x, $x.mT)", "torch.bmm($x.float(), $x.float().mT).double()"),
        ),
    ),
    (
        "rows of units that are alone in the order of the table",
        [ALONE],
        (PoissonLoader._chunks_of_units, ("self._rng.permutation(len($rows))", "np.arange(len($rows))")),
    ),
    (
        "steps of rows of no class, which were not counted",
        NO_CLASS,
        (_training.counted_rows, ("$has_class.all()", "True")),
    ),
    # ---- the number of rows was released: noise may have made it too small
    (
        "room for the released number of rows alone",
        [*NOISY.values(), TABLES],
        (_plan.plan_of_fit, ("$count.most", "$count.value")),
    ),
    (
        "a margin that places do not follow",
        [WIDER],
        (DPSGDPlan.largest_batch_size.fget, ("$size + self.batch_margin", "$size")),
    ),
    (
        "a margin without the noise of the counts of classes",
        [NOISY["array of counted classes"], NOISY["DP-CGAN"]],
        (_training.ClassCounts.total.fget, ("self.noise_sd", "0.0")),
    ),
    (
        "a margin without the noise of the moments",
        [NOISY["moments"], NOISY["network that starts from moments"]],
        (_array_model._release_moments, ("$sd / CLASS_COUNT_WEIGHT", "0.0")),
    ),
    (
        "a margin without the noise of the tables",
        [TABLES],
        (_frame_model.fit_frame_model, ("$plan.noise_sd($scale).count[0]", "0.0")),
    ),
    (
        "rooms of clusters by their released sizes",
        [CLUSTER],
        (
            _dpgm.training_plan,
            (
                "{'l2_bound': $a, 'part_batch_sizes': $b, 'part_batch_margin': $c}",
                "{'l2_bound': $a, 'part_batch_sizes': $b, 'part_batch_margin': 0.0}",
            ),
        ),
    ),
    # ---- groups of term-wise steps, subsets of DP2-VAE
    (
        "groups of units clipped at the norm of units",
        GROUPS,
        (TermwiseAggregate.__init__, ("$clips[1]", "$clips[0]")),
    ),
    (
        "the rows of a unit in several groups",
        [GROUP_SUM["rows"], GROUP_SUM["units"]],
        (TermwiseAggregate.add, ("$labels[np.maximum($units.codes, 0)]", "$labels")),
    ),
    (
        "all rows of a unit in the groups where each unit counts 1",
        [GROUP_SUM["units"]],
        (_termwise._GroupAggregate._rows_for_groups, ("self.plan.weighting == 'rows'", "True")),
    ),
    (
        "always the first row of a unit",
        [ONE_ROW],
        (_termwise.one_row_of_each, ("$rng.random($rest)", "np.zeros($rest)")),
    ),
    (
        "the rows of a unit in several subsets",
        [SUBSET],
        (assign_subsets, ("$units is None", "True")),
    ),
    (
        "rows of a subset drawn as if each counted 1",
        [EQUAL_UNITS],
        (_dp2vae_training.SubsetRows.batch, ("self._weights is None", "True")),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_steps_by_units_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
