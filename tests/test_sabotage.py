"""Every sabotage of a mechanism, of DP-SGD or of the accounting is caught by a named test (fits: beside this file).

Each row of the table names a sabotage, the claims that must catch it (the ordinary tests' own, or one of `_fits`),
and the change it makes to the source of a shipped function. A claim must hold on the shipped code and fail on the
changed one.
"""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_accountant
import test_clipped_sum
import test_cost
import test_dp_net
import test_filter
import test_gaussian_histogram_selection as test_gaussian
import test_loader
import test_mixture_sums
import test_moments
import test_noise_and_plan
import test_one_hot
import test_places_of_rows
import test_privacy_card
import test_products_of_sides
import test_risk
import test_units
import test_units_of_ledgers
from _fits import (
    class_first_moments_sensitivity_is_attained_and_not_exceeded,
    the_sum_is_that_of_clipped_gradients,
)
from _sabotage import Claim, after, assert_caught, mutant_ids

from skdpgen._types import BoundedSum, BoundedUnit
from skdpgen.accounting import PrivacyAccountant, PrivacyCard, _card, _renyi
from skdpgen.accounting import _pricing as pricing
from skdpgen.accounting._filter import PrivacyFilter
from skdpgen.dpsgd import (
    ClippedSum,
    DPSGDPlan,
    GradientNoise,
    PoissonLoader,
    TermwiseAggregate,
    poisson_batches,
)
from skdpgen.dpsgd import (
    _loader as loader,
)
from skdpgen.dpsgd import (
    _noise as noise,
)
from skdpgen.dpsgd._clipping import _has_larger_entry, clip_factors
from skdpgen.dpsgd._places import _shared_batches, room_for_units
from skdpgen.mechanisms import (
    add_gaussian,
    class_first_moments,
    class_moments,
    first_moments,
    joint_histogram,
    lattice_rows,
    mixture_sums,
    moments,
    second_moments,
    selection_threshold,
)
from skdpgen.mechanisms._contrasts import ClassContrasts
from skdpgen.mechanisms._gaussian import _clip_in_place, _lattice_noise
from skdpgen.mechanisms._histogram import _count
from skdpgen.mechanisms._mixture_sums import _difference, _simplex_rows
from skdpgen.mechanisms._moments import _accumulate, _same_class_difference, _weights
from skdpgen.mechanisms._residual_plan import ResidualPlan, _largest_norm, _least_product, _rank_one, residual_plan
from skdpgen.nn import DPNet
from skdpgen.utils.noise import NoiseGenerator

AR, RO = "add_or_remove_one", "replace_one"
A, B, WIDE = 0.05, 0.1**0.5, 0.5**0.5  # WIDE: b^2 = .5, where two rows of one class are the worst

# ---- the claims of the ordinary tests --------------------------------------------------------------------
G_NOISE = [Claim(test_gaussian.test_gaussian_noise_is_at_its_scale, AR, lattice) for lattice in (None, 2.0**-20)]
G_NOISE_RO = Claim(test_gaussian.test_gaussian_noise_is_at_its_scale, RO, None)
G_LATTICE = Claim(test_gaussian.test_noise_is_rounded_to_the_lattice_and_added_exactly)
CLIPPED = Claim(test_gaussian.test_clipped_rows_are_inside_exactly, 1.0)
ON_LATTICE = Claim(test_gaussian.test_lattice_rows_are_inside_exactly_and_never_longer)
WEIGHTED_HISTOGRAM = {
    r: Claim(test_gaussian.test_sensitivity_of_a_weighted_joint_histogram_is_attained_and_not_exceeded, r)
    for r in (AR, RO)
}
HISTOGRAM = {r: Claim(test_gaussian.test_joint_histogram_sensitivity_is_attained_and_not_exceeded, r) for r in (AR, RO)}
THRESHOLD = {
    n: Claim(test_gaussian.test_a_category_of_one_record_passes_with_probability_delta_at_most, n) for n in (1, 8)
}


def _moments(relation, b=B, a=A):
    return Claim(test_moments.test_moments_sensitivity_is_attained_and_not_exceeded, relation, a, b)


def _class_moments(relation, b=B, a=A):
    return Claim(test_moments.test_class_moments_sensitivity_is_attained_and_not_exceeded, relation, a, b)


def _mixture(relation, weights=(1, 1, 1), kind="diag"):
    return Claim(
        test_mixture_sums.test_mixture_sums_sensitivity_is_attained_and_not_exceeded, relation, kind, weights, 1.0
    )


MOMENTS_NOISE = Claim(test_moments.test_moments_noise_is_at_its_scale, AR, False)
OFF_DIAGONAL = Claim(test_moments.test_noise_off_the_diagonal_is_smaller_by_sqrt_2)
BOTH_TERMS = Claim(test_moments.test_label_conditional_difference_needs_both_terms)
FIRST = Claim(test_moments.test_first_moments_sensitivity_is_attained_and_not_exceeded, RO, A)
SECOND = Claim(test_moments.test_second_moments_sensitivity_is_attained_and_not_exceeded, RO)
CLASS_FIRST = {r: Claim(class_first_moments_sensitivity_is_attained_and_not_exceeded, r) for r in (AR, RO)}
ONE_HOT = {r: Claim(test_one_hot.test_one_hot_sensitivity_is_attained_and_not_exceeded, r) for r in (AR, RO)}
IMPORTANCE = {r: Claim(test_one_hot.test_sensitivity_holds_whatever_matters_more, r) for r in (AR, RO)}
UNEVEN = [
    Claim(test_one_hot.test_no_row_exceeds_the_bounds_where_levels_cost_differently, *columns, True, 2)
    for columns in test_one_hot.UNEVEN[:2]
]
ONE_CLASS = Claim(test_one_hot.test_two_rows_of_the_only_class_attain_the_bound_of_a_replaced_one, (2,) * 6, True)
OF_SUM = Claim(test_one_hot.test_no_row_exceeds_the_bounds_where_the_sum_of_the_classes_weighs_more, (2,) * 6, None, 2)
SIDES = Claim(test_products_of_sides.test_the_bounds_hold_at_any_weights, (1, 1, 2), (1, 1, -1, 1))
NEAR = Claim(test_one_hot.test_what_is_added_to_products_of_weights_makes_them_positive)
ONE_HOT_NOISE = Claim(test_one_hot.test_one_hot_noise_is_at_its_scale, AR)

GRADIENT_NOISE = {
    kind: Claim(test_noise_and_plan.test_noise_is_at_its_scale_and_fails_at_two_thirds_and_three_halves, kind)
    for kind in ("secure", "fast")
}
CLIP = {path: Claim(test_clipped_sum.test_clip_is_attained_and_never_exceeded, path) for path in ("fast", "vmap")}
SUM_OF_CLIPPED = Claim(the_sum_is_that_of_clipped_gradients)
REFERENCE = Claim(test_clipped_sum.test_fast_path_equals_reference, "conv", 4)
NAN = {
    path: Claim(test_clipped_sum.test_record_without_finite_gradient_contributes_nothing, path, float("nan"))
    for path in ("fast", "vmap")
}
BATCH_SIZES = Claim(test_loader.test_batch_sizes_vary_as_poisson_sampling_says)
RATE = Claim(test_loader.test_a_plan_is_sampled_at_its_rate_to_the_last_digit, 300 / 63_000, None)
INDEPENDENT = Claim(test_loader.test_inclusion_is_independent_of_record_and_step)
WHOLE_BATCHES = Claim(test_loader.test_large_batches_come_whole_in_chunks_of_one_shape)
PLACES = Claim(test_places_of_rows.test_all_places_of_a_step_are_equally_likely)
FREE_PLACES = Claim(test_places_of_rows.test_steps_of_one_seed_differ_by_what_joins, (37, 8))
PLACES_OF_UNITS = Claim(test_places_of_rows.test_units_draw_their_batches_and_places_whatever_the_others_do)
OTHER_BATCHES = Claim(test_places_of_rows.test_a_unit_that_joins_moves_no_unit_of_another_batch, (37, 8), 1, "rows")
ROOM_OF_BATCHES = Claim(
    test_places_of_rows.test_each_physical_batch_of_units_has_room, 5000, BoundedUnit("person", 7), 1200
)
JOINING_UNIT = Claim(
    test_places_of_rows.test_what_joins_moves_a_sum_by_its_own_contribution_alone, (37, 8), "fast", "rows"
)
ROOM_OF_UNITS = Claim(test_places_of_rows.test_units_of_the_largest_size_have_room_in_one_physical_batch, "units")
SHAPE_OF_PARTS = Claim(test_places_of_rows.test_the_shape_of_a_part_of_units_that_count_1_is_public)
SHAPE_OF_GROUPS = Claim(test_places_of_rows.test_the_shape_of_groups_is_public)
EMPTY_BATCHES = Claim(test_loader.test_empty_batches_are_steps)
PRICE_RO = Claim(test_cost.test_mnist_steps_cost_the_regression_value, RO, 0.732)
FILTER = Claim(test_filter.test_the_fully_adaptive_counterexample_is_refused)
BUDGET = Claim(test_accountant.test_budget_is_kept_and_a_refused_charge_changes_nothing)
CLONES = [
    Claim(test_accountant.test_clone_copy_and_deepcopy_are_the_same_books),
    Claim(test_accountant.test_pipelines_and_grid_searches_charge_the_same_books),
]
CARD_DIGEST = Claim(test_privacy_card.test_any_changed_field_breaks_the_digest)
CARD_UNIT = Claim(
    test_units_of_ledgers.test_no_words_are_added_to_who_a_card_protects, "", ", and all of their relatives"
)
CARD_FIGURES = Claim(test_privacy_card.test_a_smaller_epsilon_or_more_noise_than_ran_is_caught)
CARD_DELTA = Claim(
    test_privacy_card.test_the_figures_of_a_fit_are_those_at_the_delta_that_stands_beside_them, "epsilon"
)
CARD_LEDGER = Claim(test_privacy_card.test_a_fit_missing_from_the_ledger_and_a_ledger_over_budget_are_caught)


NET_ONE_RECORD = Claim(test_dp_net.test_one_record_moves_a_release_by_at_most_the_bound)
NET_SEED = Claim(test_dp_net.test_random_state_seeds_the_parameters_and_never_the_noise)
NET_STATE = Claim(test_dp_net.test_no_private_state_outlives_fit)
NET_NOISE = Claim(test_dp_net.test_released_gradients_carry_noise_of_the_plan)


SD, STEP_SD = "$noise * $query.sensitivity($relation)", "self.noise_multiplier * $query.add_or_remove_one"
SEEDED = "type(make_noise_generator())('seeded', seed=0)"
COPIED = "return PrivacyAccountant(self.epsilon, self.delta, self.neighboring)"

# (sabotage, claims that catch it, (function, (old, new), ...) changed)
MUTANTS = [
    # noise
    (
        "noise halved",
        [*G_NOISE, MOMENTS_NOISE],
        (
            add_gaussian,
            (
                SD,
                f"0.5 * {SD}",
            ),
        ),
    ),
    (
        "noise off by sqrt2",
        G_NOISE,
        (
            add_gaussian,
            (
                SD,
                f"0.5**0.5 * {SD}",
            ),
        ),
    ),
    (
        "noise doubled",
        G_NOISE,
        (
            add_gaussian,
            (
                SD,
                f"2 * {SD}",
            ),
        ),
    ),
    (
        "noise halved on the lattice",
        G_NOISE[1:],
        (_lattice_noise, ("np.ldexp($sd, $rest)", "np.ldexp(0.5 * $sd, $rest)")),
    ),
    (
        "low bits of the widest noise in all",
        [Claim(test_gaussian.test_noise_is_gaussian_at_its_own_scale_beside_noise_of_any_other, 1e20)],
        (_lattice_noise, ("np.maximum($sd, 1.0)", "np.full_like($sd, max(float(np.max($sd)), 1.0))")),
    ),
    ("normals off by sqrt2", G_NOISE, (NoiseGenerator._fill_normals, ("$x *= -2.0", "$x *= -1.0"))),
    (
        "noise that forgets the weights",
        [G_NOISE[0], MOMENTS_NOISE, ONE_HOT_NOISE],
        (
            add_gaussian,
            (
                f"{SD} / np.asarray($query.weights, dtype=np.float64)",
                SD,
            ),
        ),
    ),
    (
        "noise that forgets replace_one",
        [G_NOISE_RO],
        (add_gaussian, ("$bounded_sum.sensitivity($neighboring)", "$bounded_sum.add_or_remove_one")),
    ),
    ("noise off the lattice", [G_LATTICE], (add_gaussian, ("$lattice is None", "True"))),
    (
        "gradient noise halved",
        list(GRADIENT_NOISE.values()),
        (
            GradientNoise.release,
            (STEP_SD, f"0.5 * {STEP_SD}"),
        ),
    ),
    (
        "gradient noise off by sqrt2",
        [NET_NOISE],
        (
            GradientNoise.release,
            (STEP_SD, f"0.5**0.5 * {STEP_SD}"),
        ),
    ),
    (
        "gradient noise without the bound",
        [GRADIENT_NOISE["secure"]],
        (GradientNoise.release, (STEP_SD, "self.noise_multiplier")),
    ),
    (
        "secure gradient normals off by sqrt2",
        [GRADIENT_NOISE["secure"]],
        (noise.fill_secure, ("$x *= -2.0", "$x *= -1.0")),
    ),
    ("fast gradient normals off by sqrt2", [GRADIENT_NOISE["fast"]], (noise.fill_fast, ("$x *= -2.0", "$x *= -1.0"))),
    # clipping
    (
        "row clipping dropped",
        [CLIPPED, _moments(AR), _class_moments(RO), _mixture(AR)],
        (_clip_in_place, ("$norms > $limit", "np.zeros(len($norms), dtype=bool)")),
    ),
    (
        "row clipping dropped before the lattice",
        [ON_LATTICE, _moments(AR), _mixture(RO)],
        (lattice_rows, ("$rows = _clip_in_place($rows, check_bound($l2_bound))", "check_bound($l2_bound)")),
    ),
    ("rows rounded outward", [ON_LATTICE], (lattice_rows, ("np.trunc", "np.ceil"))),
    (
        "responsibilities above 1",
        [_mixture(AR)],
        (_simplex_rows, ("$r /= np.maximum($sums, 1.0)[:, None]", "pass")),
    ),
    (
        "gradient clipping dropped",
        [*CLIP.values(), NET_ONE_RECORD],
        (clip_factors, ("($bound / $norms.clamp(min=1e-30)).clamp(max=1.0)", "torch.ones_like($norms)")),
    ),
    (
        "gradients clipped batch by batch",
        [SUM_OF_CLIPPED],
        (ClippedSum._factors, ("$square_norms.sqrt()", "$square_norms.sqrt().max()")),
    ),
    (
        "a layer left out of the norms",
        [REFERENCE],
        (
            ClippedSum._square_norms_of,
            ("($rule.square_norms for $name, $rule in $rules)", "($rule.square_norms for $name, $rule in $rules[1:])"),
        ),
    ),
    (
        "clip norm above the bound",
        [NET_ONE_RECORD],
        (DPSGDPlan.clip_norm, ("self.l2_bound / (1 + self.slack)", "2 * self.l2_bound")),
    ),
    # gradients that are not finite
    (
        "NaN gradient kept by its factor",
        [NAN["vmap"]],
        (clip_factors, ("$norms.isfinite() & ($factors >= _SMALLEST_FACTOR)", "torch.ones_like($norms) > 0")),
    ),
    (
        "rows of a NaN gradient times zero",
        [NAN["fast"]],
        (
            ClippedSum._add_fast,
            ("~torch.isfinite($square_norms) & ~$unusable", "torch.zeros_like($unusable)"),
        ),
    ),
    (
        "a clip factor too small for float32",
        [Claim(test_clipped_sum.test_clip_factors_hold_over_the_range_of_float32)],
        (clip_factors, ("$norms.isfinite() & ($factors >= _SMALLEST_FACTOR)", "$norms.isfinite()")),
    ),
    (
        "enormous inputs times gradients too small for float32",
        [Claim(test_clipped_sum.test_clip_holds_for_enormous_inputs_of_small_gradients, "linear")],
        (_has_larger_entry, ("math.isinf($limit)", "True")),
    ),
    ("NaN gradient times 0", [NAN["fast"]], (ClippedSum._add_fast, ("bool($unusable.any())", "False"))),
    (
        "NaN gradient times 0, reference",
        [NAN["vmap"]],
        (
            ClippedSum._add_formed,
            ("torch.where(($factors > 0).unsqueeze(1), $gradient.flatten(1), 0.0)", "$gradient.flatten(1)"),
        ),
    ),
    # sensitivities
    (
        "replace_one factor dropped",
        [_moments(RO), _class_moments(RO), SECOND, _mixture(RO), HISTOGRAM[RO], ONE_HOT[RO], CLASS_FIRST[RO]],
        (
            BoundedSum.sensitivity,
            ("2 * self.add_or_remove_one if self.replace_one is None else self.replace_one", "self.add_or_remove_one"),
        ),
    ),
    ("count and mean weights not paid", [_moments(AR)], (moments, ("($a2 + $b2 + 1) ** 0.5", "1.0"))),
    (
        "moments' replace_one by the cosine of b = 0",
        [_moments(RO, WIDE), _class_moments(RO, WIDE)],
        (_same_class_difference, ("(2 + $b2) ** 2 / 2", "2.0")),
    ),
    ("sqrt2 left off the half-vector", [OFF_DIAGONAL, _moments(RO, WIDE)], (_weights, ("2**0.5", "1.0"))),
    ("2 for sqrt2 on the half-vector", [_moments(AR)], (_weights, ("2**0.5", "2.0"))),
    (
        "label-conditional moments by different classes alone",
        [_class_moments(RO, WIDE), BOTH_TERMS],
        (class_moments, ("max($apart, _same_class_difference($b2))", "$apart")),
    ),
    (
        "sqrt2 dropped between classes",
        [_class_moments(RO, 1.0, 1.0)],
        (class_moments, ("2 * $one if $n_classes > 1 else $one", "$one")),
    ),
    (
        "first moments' replace_one dropped",
        [FIRST],
        (
            first_moments,
            ("BoundedSum($rest, replace_one=2.0)", "BoundedSum($rest, replace_one=($3**2 + 1) ** 0.5)"),
        ),
    ),
    (
        "second moments' replace_one dropped",
        [SECOND],
        (second_moments, ("BoundedSum($rest, replace_one=2**0.5)", "BoundedSum($rest, replace_one=1.0)")),
    ),
    ("class means' replace_one dropped", [CLASS_FIRST[RO]], (class_first_moments, ("max(2 * $one, 4.0)", "$one"))),
    (
        "class means' opposite rows forgotten",
        [CLASS_FIRST[RO]],
        (class_first_moments, ("max(2 * $one, 4.0)", "2 * $one")),
    ),
    (
        "class means' count not paid",
        [CLASS_FIRST[AR]],
        (
            class_first_moments,
            ("BoundedSum($rest, add_or_remove_one=$one**0.5)", "BoundedSum($rest, add_or_remove_one=1.0)"),
        ),
    ),
    ("mixture sums' counts not paid", [_mixture(AR)], (mixture_sums, ("$w0**2 + $w1**2", "$w1**2"))),
    (
        "mixture sums' replace_one dropped",
        [_mixture(RO), _mixture(RO, kind="full")],
        (
            mixture_sums,
            ("_difference($w0**2, $w1**2, $w2**2, $total.shape[0])", "$w0**2 + $w1**2 + $w2**2"),
        ),
    ),
    (
        "mixture sums by different vertices alone",
        [_mixture(RO, (0.3, 1, 1))],
        (_difference, ("max(2 * ($w0 + $a + $b), $same_vertex)", "2 * ($w0 + $a + $b)")),
    ),
    (
        "one-hot pairs not paid",
        [ONE_HOT[AR], ONE_HOT[RO], SIDES],
        (_largest_norm, ("$largest.sum(axis=1) / 2", "0.0")),
    ),
    (
        "one-hot label count not paid",
        [ONE_HOT[AR]],
        (_largest_norm, ("$total = float($count)", "$total = 0.0")),
    ),
    ("one-hot weights squared", [ONE_HOT[AR]], (ResidualPlan.weights, ("np.sqrt($squares)", "$squares"))),
    (
        "norms of contrasts forgotten",
        [ONE_HOT[AR], ONE_HOT[RO]],
        (ResidualPlan.weights, ("[[$count], $one_way[$part] / $norms**2]", "[[$count], $one_way[$part]]")),
    ),
    (
        "one-hot one-way tables not paid",
        [IMPORTANCE[AR], IMPORTANCE[RO]],
        (_largest_norm, ("$squares[$here] @ $one_way[$i] + $pairs", "$pairs")),
    ),
    (
        "pairs of contrasts paid at their mean level",
        UNEVEN,
        (_largest_norm, ("$table.max(axis=2)", "$table.mean(axis=2)")),
    ),
    (
        "one-hot replace_one dropped",
        [ONE_HOT[RO]],
        (residual_plan, ("$replaced = max($alone, $added, $two)", "$replaced = $added")),
    ),
    (
        "one-hot replace_one of one class",
        [ONE_HOT[RO]],
        (residual_plan, ("2 * $added - $rest", "0.0")),
    ),
    (
        "classes whose sum weighs more taken for orthogonal",
        [OF_SUM],
        (residual_plan, ("2 * $added - $rest", "2 * $added")),
    ),
    (
        "norms of contrasts of classes forgotten",
        [OF_SUM],
        (ClassContrasts.weights, ("$differences**0.5 / $norms", "$differences**0.5")),
    ),
    (
        "weight of the sum of the classes added to that of the differences",
        [OF_SUM],
        (ClassContrasts.__init__, ("$n_classes / (self.ratio + $n_classes - 1)", "1.0")),
    ),
    (
        "rows of one class taken for orthogonal",
        [ONE_CLASS],
        (residual_plan, ("2 * ($added - $product)", "2 * $added")),
    ),
    (
        "products of two parts never negative",
        [ONE_CLASS],
        (_least_product, ("$linear - $square[:, None] / 2", "$linear")),
    ),
    (
        "codes outside their column have the products of some level",
        [SIDES],
        (_least_product, ("np.vstack([$products, np.zeros($n)])", "$products")),
    ),
    ("what a product of rank one lacks", [NEAR], (_rank_one, ("max(-float($least), 0.0)", "0.0"))),
    (
        "histogram pays for one column",
        [HISTOGRAM[AR]],
        (joint_histogram, ("BoundedSum($rest, add_or_remove_one=$d**0.5)", "BoundedSum($rest, add_or_remove_one=1.0)")),
    ),
    (
        "weights of a histogram left out of its sensitivity",
        [WEIGHTED_HISTOGRAM[AR], WEIGHTED_HISTOGRAM[RO]],
        (joint_histogram, ("np.sum(np.square($weights))", "np.sum(np.square($weights)) / 2")),
    ),
    ("histogram's replace_one dropped", [HISTOGRAM[RO]], (joint_histogram, ("2 * $d", "$d"))),
    (
        "counts in single precision",
        [Claim(test_gaussian.test_a_row_moves_a_count_by_one_however_many_rows_there_are)],
        (_count, ("$counts.astype(np.float64)", "$counts.astype(np.float32)")),
    ),
    # sampling
    (
        "shuffled batches for Poisson",
        [BATCH_SIZES, INDEPENDENT],
        (
            poisson_batches,
            (
                "yield $hits[$i:$j] - $step * $n_records",
                "order = np.argsort($4.random($n_records)) if $step % round(1 / $2) == 0 else order\n"
                "yield np.sort(order[$step % round(1 / $2)::round(1 / $2)])",
            ),
        ),
    ),
    (
        "batches of a fixed size, drawn anew",
        [BATCH_SIZES],
        (
            poisson_batches,
            (
                "$hits[$i:$j] - $step * $n_records",
                "np.sort(np.argsort($4.random($n_records))[:round($n_records * $2)])",
            ),
        ),
    ),
    (
        "sampling at twice the rate",
        [BATCH_SIZES],
        (PoissonLoader.__iter__, ("$plan.sampling_rate", "2 * $plan.sampling_rate")),
    ),
    (
        "a rate rounded to three digits",
        [RATE],
        (PoissonLoader.__iter__, ("$plan.sampling_rate", "round($plan.sampling_rate, 3)")),
    ),
    (
        "sampling at the square of the rate",
        [INDEPENDENT],
        (
            loader._successes,
            (
                "np.log1p(-$rng.random($draws)) / np.log1p(-$rate)",
                "np.log1p(-$rng.random($draws)) / np.log1p(-$rate**2)",
            ),
        ),
    ),
    (
        "large batches truncated",
        [WHOLE_BATCHES],
        (PoissonLoader._chunks, ("np.unique($chunks)", "np.unique($chunks)[:1]")),
    ),
    (
        "empty batches skipped",
        [EMPTY_BATCHES],
        (PoissonLoader.__iter__, ("yield Batch(self, $indices)", "if len($indices):\n    yield Batch(self, $indices)")),
    ),
    (
        "records in the order of the table",
        [PLACES],
        (
            PoissonLoader._chunks,
            ("self._rng.permutation(max(self.plan.places, len($indices)))", "np.arange(len($indices))"),
        ),
    ),
    (
        "no free place for a record that joins",
        [PLACES, FREE_PLACES],
        (PoissonLoader._chunks, ("max(self.plan.places, len($indices))", "len($indices)")),
    ),
    (
        "room for one row of each unit that counts 1",
        [ROOM_OF_UNITS, SHAPE_OF_PARTS],
        (room_for_units, ("$expected * $unit.max_rows", "$expected")),
    ),
    (
        "units in the order of the table",
        [PLACES_OF_UNITS],
        (
            PoissonLoader._chunks_of_units,
            ("self._rng.permutation($length)[: len($rows)]", "np.arange(len($rows))"),
        ),
    ),
    (
        "units in equal parts of those that a step includes",
        [PLACES_OF_UNITS, OTHER_BATCHES],
        (
            PoissonLoader._chunks_of_units,
            ("self._rng.integers($number, len($units))", "np.arange(len($units)) * $number // len($units)"),
        ),
    ),
    (
        "physical batches of units with room for the mean",
        [ROOM_OF_BATCHES],
        (_shared_batches, ("room_for($rows / $number, $shared, $number)", "math.ceil($rows / $number)")),
    ),
    (
        "one order for all steps",
        [PLACES],
        (NoiseGenerator.permutation, ("self.integers(1 << 62, 2).tolist()", "[1, 2]")),
    ),
    (
        "rows of units computed in the order of the units",
        [JOINING_UNIT],
        (
            ClippedSum._passes,
            (
                "$arranged.take_records(self._record($inputs, $weights))",
                "self._record(*([x[$arranged.order] for x in $inputs],), $weights[$arranged.order])",
            ),
        ),
    ),
    (
        "groups as long as the largest",
        [SHAPE_OF_GROUPS],
        (TermwiseAggregate.result, ("self.plan.group_places", "1")),
    ),
    # steps
    ("net's noise seeded", [NET_SEED], (DPNet._run_steps, ("make_noise_generator(self.noise)", SEEDED))),
    (
        "steps counted once they were taken",
        [Claim(test_dp_net.test_a_step_that_is_interrupted_once_it_has_released_is_not_taken_again)],
        (
            DPNet.train_step,
            (
                "self.plan.take_step()\nself.steps_taken_ += 1\n$step = self.train_step_single($batch)",
                "$step = self.train_step_single($batch)\nself.plan.take_step()\nself.steps_taken_ += 1",
            ),
        ),
    ),
    (
        "records kept by the net",
        [NET_STATE],
        (DPNet._run_steps, ("$start", "self.seen_ = $1")),
    ),
    # thresholds
    (
        "threshold without the one record",
        list(THRESHOLD.values()),
        (selection_threshold, ("$count + float($sd) * -ndtri($tail)", "float($sd) * -ndtri($tail)")),
    ),
    (
        "threshold's delta for each column",
        [THRESHOLD[8]],
        (selection_threshold, ("np.log1p(-$delta) / $n", "np.log1p(-$delta)")),
    ),
    # accounting
    (
        "replace_one priced as add_or_remove_one",
        [PRICE_RO],
        (
            pricing.epsilon_pld,
            (
                "_epsilon(epsilon_of, $what, $delta, $neighboring)",
                "_epsilon(epsilon_of, $what, $delta, 'add_or_remove_one')",
            ),
        ),
    ),
    (
        "later charges not filtered",
        [FILTER],
        (PrivacyFilter.check, ("if not $total <= $limit:\n    $left, $cost = $both\n    $body", "pass")),
    ),
    ("first charge not limited", [BUDGET], (PrivacyFilter.check, ("not $cost <= self.epsilon", "False"))),
    ("books copied by clone", CLONES, (PrivacyAccountant.__sklearn_clone__, ("return self", COPIED))),
    ("books copied by deepcopy", CLONES[:1], (PrivacyAccountant.__deepcopy__, ("return self", COPIED))),
    (
        "card edited, digest not checked",
        [CARD_DIGEST],
        (PrivacyCard.verify, ("$card['digest'] != digest($content)", "False")),
    ),
    (
        "words added to who a card protects",
        [CARD_UNIT],
        (_card._check_unit, ("re.fullmatch($words, $1)", "re.match($words, $1)")),
    ),
    (
        "card edited, epsilon not recomputed",
        [CARD_FIGURES],
        (PrivacyCard._verify_fit, ("_agree($fit['epsilon'], $epsilon, 'fit: epsilon')", "None")),
    ),
    (
        "card edited, fit not in the ledger",
        [CARD_LEDGER],
        (PrivacyCard.verify, ("not $charged[$charge]", "False")),
    ),
    (
        "the card of a fit that was declared and not made",
        [Claim(test_privacy_card.test_only_a_charged_plan_gets_a_card)],
        (
            PrivacyCard.verify,
            ("Counter($entry.charge for $entry in $all if $entry.used)", "Counter($entry.charge for $entry in $all)"),
        ),
    ),
    (
        "a file known by its beginning",
        [Claim(test_privacy_card.test_a_change_anywhere_in_a_file_of_a_card_is_found)],
        (_card._file_digest, after("$found.update($part)", "break")),
    ),
    (
        "risks without the delta of thresholds",
        [Claim(test_risk.test_the_delta_of_thresholds_is_in_every_delta_and_epsilon, "distribution")],
        (
            pricing.delta_curve,
            ("float($whole.get_delta_for_epsilon($at)) + $extra", "float($whole.get_delta_for_epsilon($at))"),
        ),
    ),
    (
        "steps at a rate of 1 that take a quarter of their cost from the filter",
        [
            Claim(test_filter.test_no_order_takes_less_from_the_filter_than_a_charge_costs_in_advance, *case)
            for case in (("poisson_subsets", 1.0, AR), ("poisson_subsets", 1.0, RO))
        ],
        (_renyi._subset_rdp, ("4 * $alpha / $variance", "$alpha / $variance")),
    ),
    (
        "one step for all steps, in the filter",
        [Claim(test_filter.test_what_a_charge_takes_from_the_filter_grows_with_its_rate_and_its_steps, "one_of_k", AR)],
        (_renyi.rdp_at, ("$row.count * _subset_rdp($row, $alpha)", "_subset_rdp($row, $alpha)")),
    ),
    (
        "a card whose later charges are checked as if they were the first",
        [
            Claim(
                test_privacy_card.test_a_card_verifies_with_those_budgets_alone_that_would_have_accepted_its_charges,
                name,
                AR,
            )
            for name in ("alike", "a large first one")
        ],
        (_card._replay, ("if $later:\n    $rule.check($first, $later)", "if $later:\n    $rule.check([], $later)")),
    ),
    (
        "a card of several first charges, of which none is checked",
        [
            Claim(
                test_privacy_card.test_a_card_verifies_with_those_budgets_alone_that_would_have_accepted_its_charges,
                "several at once",
                RO,
            )
        ],
        (_card._replay, ("$rule.check([], $first)", "pass")),
    ),
    (
        "weights of the first rows for those of later ones",
        [
            Claim(test_units.test_each_row_has_the_weight_of_its_own_unit_however_many_rows_there_are, name)
            for name in ("class moments", "shared moments", "clusters", "mean embedding")
        ],
        (_accumulate, ("$roots[$where][$mine]", "$roots[$mine]")),
    ),
    (
        "responsibilities shared by the sizes of other units",
        [Claim(test_units.test_each_row_has_the_weight_of_its_own_unit_however_many_rows_there_are, "mixture, diag")],
        (mixture_sums, ("_of_units($r, $sizes[$start:$stop], $exact)", "_of_units($r, $sizes[:len($r)], $exact)")),
    ),
    (
        "a card at the delta of the accountant",
        [CARD_DELTA],
        (
            PrivacyCard.build.__func__,
            ("_fit_to_json($1)", "_fit_to_json(__import__('dataclasses').replace($1, delta=$2.delta))"),
        ),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize(("claims", "changes"), [mutant[1:] for mutant in MUTANTS], ids=mutant_ids(MUTANTS))
def test_sabotage_is_caught(monkeypatch, claims, changes):
    assert_caught(monkeypatch, claims, changes)


@pytest.mark.parametrize("relation", [AR, RO])
def test_class_first_moments_sensitivity_is_attained_and_not_exceeded(relation):
    CLASS_FIRST[relation].holds_unpatched()
