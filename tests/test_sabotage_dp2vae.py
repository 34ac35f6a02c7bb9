"""Every sabotage of DP2-VAE's subsets, steps and fits, and of the losses of steps, is caught by a claim of a test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_dp2vae as estimator
import test_dp2vae_training as training
import test_gaussian_losses as losses
import test_shifted_images as shifted
import test_subset_events as events
import test_subsets as subsets
from _fits import ledger_is_what_ran, nothing_private_is_kept
from _sabotage import Claim, after, assert_caught, before, mutant_ids
from dp_accounting import NeighboringRelation

from skdpgen.accounting import _gaussian_losses as gaussian_losses
from skdpgen.accounting import _subset_sampling as subset_sampling
from skdpgen.dpsgd import _subsets as subsets_module
from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.generators.leading import LeadingDirections
from skdpgen.nn import _dp2vae_training as stage_1
from skdpgen.nn import _dp2vae_training as stage_2
from skdpgen.synthesizers import _array_model, _dp2vae_model, _moment_start

SENSITIVITY = Claim(training.test_a_record_moves_the_sum_by_twice_the_bound_and_never_by_more, "frozen")
ON_QUERY = Claim(training.test_a_record_moves_the_sum_by_twice_the_bound_and_never_by_more, "on_query")
RANDOM = Claim(training.test_random_neighbours_never_move_the_sum_by_more_than_twice_the_bound, 0)
OWN_SUBSET = Claim(training.test_a_record_that_joins_changes_its_own_subset_alone)
JOINS_EMPTY = [
    Claim(training.test_a_record_that_joins_an_empty_subset_changes_no_other_encoder, chunk) for chunk in (2, 5)
]
MASKED = Claim(training.test_a_subset_that_is_not_finite_is_left_out_and_moves_no_other)
EMPTY = Claim(training.test_an_empty_subset_keeps_its_index_and_contributes_nothing)
BY_HAND = Claim(training.test_all_drawn_subsets_in_one_pass_are_the_sum_of_single_ones_clipped_by_hand)
STATE = {p: Claim(training.two_index_sequences_give_equal_encoders, p) for p in ("stateless", "round_robin")}
SCHEDULE = Claim(training.test_a_round_robin_refreshes_whatever_was_drawn)
LEDGER = {
    name: Claim(ledger_is_what_ran, name)
    for name in (
        "arrays, subsets",
        "images, subsets",
        "arrays, one subset a step",
        "frame, subsets",
        "frame, subsets from tables",
    )
}
KEPT = [Claim(nothing_private_is_kept, name) for name in ("arrays, subsets", "images, subsets", "frame, subsets")]
LOSSES = Claim(losses.distributions_are_those_of_dp_accounting, 1.4, 0.3, NeighboringRelation.ADD_OR_REMOVE_ONE, 4e-3)
PRICES = Claim(events.test_poisson_subsets_cost_under_both_relations_what_replacing_a_unit_costs)
REVEALED = Claim(events.test_a_revealed_index_costs_the_mixture_over_its_visits)
ENVELOPE = Claim(events.test_the_profile_of_one_of_k_bounds_every_configuration_and_is_attained)
ASSIGNED = Claim(subsets.test_records_draw_their_subsets_independently_and_uniformly)
HASHED = Claim(subsets.test_a_record_that_leaves_moves_no_other_record_to_another_subset)
POISSON = Claim(subsets.test_poisson_draws_have_the_variance_of_independent_ones)
HIDDEN = Claim(subsets.test_hidden_draws_of_two_steps_are_independent, "one_of_k")
NO_MORE_VISITS = Claim(subsets.test_the_balanced_schedule_is_public_and_visits_as_often_as_it_is_charged_for, 12, 4, 3)
VISITS = Claim(subsets.test_the_balanced_schedule_is_public_and_visits_as_often_as_it_is_charged_for, 7, 3, 20)
PLACES = Claim(training.no_gradient_depends_on_which_other_subsets_are_drawn)
KEYED = Claim(subsets.test_draws_are_a_function_of_purpose_unit_and_step_alone)


LATENTS = Claim(shifted.test_latents_of_rows_are_those_that_made_them)
NEAREST = Claim(estimator.test_rows_get_the_component_whose_mean_is_nearest_whoever_else_is_there)


def _event(sampler, update, mechanism, reach):
    return Claim(subsets.test_each_combination_has_its_own_sound_event, sampler, update, mechanism, reach)


# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    # prices
    (
        "a row that joins priced as one that leaves",
        [LOSSES],
        (gaussian_losses._GaussianLoss._inverse, ("-1 if $adds else 1", "1")),
    ),
    (
        "mass of losses rounded down",
        [LOSSES],
        (gaussian_losses._connected, ("$gaps[1:] - $gaps[:-1] * math.exp($1)", "$gaps[1:] - $gaps[:-1]")),
    ),
    (
        "subsets priced under add or remove",
        [PRICES],
        (
            subset_sampling.subset_distribution,
            ("NeighboringRelation.REPLACE_ONE", "NeighboringRelation.ADD_OR_REMOVE_ONE"),
        ),
    ),
    (
        "amplified twice",
        [REVEALED],
        (
            subset_sampling._profile,
            ("$q * np.exp(_log_delta($inner, $mu))", "$q * $q * np.exp(_log_delta($inner, $mu))"),
        ),
    ),
    (
        "the envelope of one configuration alone",
        [ENVELOPE],
        (subset_sampling._profile, ("np.expm1(np.minimum($e, 30)) / $q", "np.expm1(np.minimum($e, 30)) / $q**2")),
    ),
    (
        "the paper's encoders accounted with amplification",
        [_event("poisson", "on_query", "index_revealed", 1.0), _event("one_of_k", "on_query", "index_revealed", 1.0)],
        (SubsetPlan.mechanism, ('self.encoder_update == "on_query"', "False")),
    ),
    (
        "C for 2 C",
        [ON_QUERY, _event("one_of_k", "stateless", "one_of_k", 1.0)],
        (SubsetPlan.l2_bound, ("2 * self.gradient_bound", "self.gradient_bound")),
    ),
    (
        "visits of a schedule rounded down",
        [VISITS],
        (SubsetPlan.visits, ("math.ceil", "math.floor")),
    ),
    (
        "a schedule that visits a subset at several steps in a row",
        [NO_MORE_VISITS],
        (subsets_module.subset_draws, ("$step * $1.per_step + $several", "$step + $several")),
    ),
    # draws
    (
        "an equal split",
        [ASSIGNED],
        (
            subsets_module.assign_subsets,
            (
                "if $units is None:\n    return $rng.integers($n_subsets, $n_records)",
                "if $units is None:\n    return np.arange($n_records) % $n_subsets",
            ),
        ),
    ),
    (
        "a hash of the row number",
        [HASHED],
        (
            subsets_module.hash_subsets,
            (
                "(hashlib.blake2b($code, $rest).digest() for $code in $coded)",
                "(hashlib.blake2b($code, $rest).digest() for $code in map(b'%d'.__mod__, range(len($coded))))",
            ),
        ),
    ),
    (
        "a fixed number of subsets a step",
        [POISSON],
        (
            subsets_module.subset_draws,
            (
                "poisson_batches($plan.n_subsets, $plan.sampling_rate, $plan.steps, $rng)",
                "($rng.integers($plan.n_subsets, $plan.per_step) for _ in range($plan.steps))",
            ),
        ),
    ),
    (
        "subsets taken in turn, in a hidden order",
        [HIDDEN],
        (
            subsets_module.subset_draws,
            (
                "for $step in range($plan.steps):\n"
                "    if $one:\n        yield $rng.integers($plan.n_subsets, 1)\n    else:\n        yield $turn",
                "for $step in range($plan.steps):\n"
                "    if $step % $plan.n_subsets == 0:\n        hidden = np.argsort($rng.random($plan.n_subsets))\n"
                "    yield hidden[$step % $plan.n_subsets][None]",
            ),
        ),
    ),
    (
        "draws by the place of a subset among those that have records",
        JOINS_EMPTY,
        (
            stage_1._pretrain_chunk,
            (
                "$units, $rows = ($part[0] + $local, $rows.to($device, $order))",
                "$units, $rows = ($part[0] + np.cumsum($rows.occupied($local).numpy()), $rows.to($device, $order))",
            ),
        ),
    ),
    (
        "draws that are shared by units",
        [KEYED],
        (
            subsets_module.KeyedStream.uniform,
            ("np.asarray($units, $rest)", "np.arange(len($units), $rest)"),
        ),
    ),
    # steps
    (
        "clipping dropped",
        [SENSITIVITY, RANDOM, BY_HAND],
        (
            stage_2.clipped_subset_sum,
            ("$plan.clip_norm", "1e9"),
        ),
    ),
    (
        "clipping of the sum instead of each",
        [BY_HAND],
        (
            stage_1.norms_of,
            (
                "torch.stack($parts).square().sum(0).sqrt()",
                "torch.stack($parts).square().sum().sqrt().expand(len($parts[0]))",
            ),
        ),
    ),
    (
        "a subset that is not finite not masked",
        [MASKED],
        (stage_1.scaled, ("not bool(($factor > 0).all())", "False")),
    ),
    (
        "empty subsets contribute",
        [EMPTY],
        (
            stage_2.clipped_subset_sum,
            (
                "$stack.rows.occupied($part) & torch.from_numpy($drawn)",
                "torch.from_numpy($drawn)",
            ),
        ),
    ),
    (
        "places that depend on the other drawn subsets",
        [PLACES],
        (stage_2._passes, ("$plan.mechanism != 'poisson_subsets'", "True")),
    ),
    (
        "as many places as subsets in a pass",
        [PLACES],
        (
            stage_2._passes,
            after("$part[$taken], $drawn[$taken] = $rest", "$part, $drawn = $part[$drawn], $drawn[$drawn]"),
        ),
    ),
    (
        "encoders pooled in stage 1",
        [OWN_SUBSET],
        (
            stage_1._pretrain_chunk,
            ("norms_of($group, torch.float32)", "norms_of($group).sum().expand(len($group[0]))"),
        ),
    ),
    # state
    (
        "a refined copy that is kept",
        [STATE["stateless"]],
        (
            stage_2.EncoderStack.encode,
            after(
                "$parameters = self._refine($parameters, $zeros, $counts, $units, $rest)",
                "for kept, refined in zip(self.parameters, $parameters):\n    kept[$units] = refined.detach()",
            ),
        ),
    ),
    (
        "draws by how often a subset was visited",
        [STATE["stateless"]],
        (
            stage_2.EncoderStack.encode,
            (
                "$x, $label, $normals = self._draw(QUERY, $units, $step)",
                "self._counts += 1\n"
                "self._counts[$units] += 1\n"
                "$x, $label, $normals = self._draw(QUERY, $units, int(self._counts.sum()))",
            ),
        ),
    ),
    (
        "refreshed when drawn",
        [SCHEDULE],
        (
            stage_2.train_decoder,
            (
                "for $step, $units in zip($steps, subset_draws($rest)):\n    $body",
                "for $step, $units in zip($steps, subset_draws($rest)):\n"
                "    round_robin = lambda *_: $units\n"
                "    $body",
            ),
        ),
    ),
    # labels of the rows
    (
        "components by the mean of the rows",
        [NEAREST],
        (
            LeadingDirections.nearest,
            ("exact_product($rows[$part], $means.T)", "($rows[$part] - $rows.mean(0)) @ $means.T"),
        ),
    ),
    (
        "components by rank in the chunk",
        [NEAREST],
        (
            LeadingDirections.nearest,
            ("$found[$part] < 0", "($found[$part] < 0) | (np.arange(len($found[$part])) == 7)"),
        ),
    ),
    (
        "latents by the mean of the rows",
        [LATENTS],
        (
            LeadingDirections.encode,
            ("exact_product($rows[$part], $matrix)", "exact_product($rows[$part] - $rows.mean(0), $matrix)"),
        ),
    ),
    # fits
    (
        "features without noise",
        [LEDGER["images, subsets"]],
        (_array_model.refine_images, ("add_gaussian($query, $noise, $rest)", "$query.value")),
    ),
    (
        "a step more than charged",
        [LEDGER["arrays, subsets"], LEDGER["frame, subsets"]],
        (
            _dp2vae_model.subset_plan,
            ("$settings.subsets", "replace($settings.subsets, steps=$settings.subsets.steps + 1)"),
        ),
    ),
    (
        "noise below the charge",
        [*LEDGER.values()],
        (_dp2vae_model.subset_plan, ("$fit.noise['decoder']", "0.9 * $fit.noise['decoder']")),
    ),
    (
        "more subsets a step than charged",
        [LEDGER["arrays, subsets"]],
        (
            _dp2vae_model.subset_plan,
            ("$settings.subsets", "replace($settings.subsets, per_step=6)"),
        ),
    ),
    (
        "unpaid counts",
        [LEDGER["frame, subsets"]],
        (
            _moment_start.release_class_counts,
            before(
                "$released = add_gaussian($query, $noise, $rng, $neighboring)",
                "add_gaussian(histogram(np.zeros(9, int), 1), 50.0, $rng, $neighboring)",
            ),
        ),
    ),
    (
        "rows kept on the model",
        KEPT,
        (
            _dp2vae_model.fit_dp2vae_model,
            after("$x, $classes, $n_levels = training_rows($rows, $codec)", "seen = $x"),
            after("$model = DP2VAEModel($codec, $decoder.cpu().eval(), $rest)", "$decoder.rows = seen"),
        ),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
