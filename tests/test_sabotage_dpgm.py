"""Every sabotage of DP-GM, of its k-means and of models of disjoint parts is caught by a claim of an ordinary test."""

from __future__ import annotations

from dataclasses import replace

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_dpgm
import test_dpgm_clusters
import test_dpgm_parts
from _fits import ledger_is_what_ran, nothing_private_is_kept, the_row_count_is_hidden
from _sabotage import Claim, after, assert_caught, before, mutant_ids

from skdpgen.dpsgd import PartedSum
from skdpgen.mechanisms import _moments as clusters
from skdpgen.mechanisms import class_first_moments
from skdpgen.nn import PartitionedVAEModule
from skdpgen.synthesizers import _dpgm

AR, RO = "add_or_remove_one", "replace_one"
PARTS = {
    relation: Claim(test_dpgm_parts.parts_sensitivity_is_attained_and_not_exceeded, relation) for relation in (AR, RO)
}
OWN_BLOCK = Claim(test_dpgm_parts.test_a_record_moves_the_block_of_its_own_part_alone)
SAME_SUM = Claim(test_dpgm_parts.test_the_sum_is_that_of_all_models_on_all_records, "fast")
BLOCK_NOISE = Claim(test_dpgm_parts.test_noise_is_drawn_for_every_block_at_one_scale)
CLUSTERS = {
    (relation, name): Claim(test_dpgm_clusters.cluster_sensitivity_is_attained_and_not_exceeded, relation, name)
    for relation in (AR, RO)
    for name in test_dpgm_clusters.CENTERS
}
TWO = "opposite rows in two clusters"
OWN_CLUSTER = Claim(test_dpgm_clusters.test_a_row_that_joins_changes_the_cluster_of_no_other_one)
SIZES = [Claim(test_dpgm.sizes_of_clusters_are_released, relation) for relation in (AR, RO)]
LEDGER = {name: Claim(ledger_is_what_ran, name) for name in test_dpgm.FITTED}
ARRAYS, REPLACED, FRAME = test_dpgm.FITTED
HIDDEN = [Claim(the_row_count_is_hidden, ARRAYS)]
KEPT = [Claim(nothing_private_is_kept, ARRAYS), Claim(nothing_private_is_kept, FRAME)]
ONE_CHARGE = Claim(test_dpgm.test_one_charge_pays_for_all_clusters_together)

FIT, CENTERS = _dpgm.fit_dpgm_model, _dpgm.find_centers
PLAN = _dpgm.training_plan
FACTS = "$codec, ($x, $a, $likelihood, $widths), $clusters, $b, $counts = $fit.facts($rest)"
EXACT = after(FACTS, "exact = np.bincount($clusters, minlength=$2.clusters.n_clusters).astype(float)")

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    # ---- parallel composition: a record in more than one model, or noise in fewer than all
    (
        "a record trains the models of two clusters",
        [PARTS[AR], OWN_BLOCK, SAME_SUM],
        (PartedSum.add, ("$parts == $part", "($parts == $part) | ($parts == $part + 1)")),
    ),
    (
        "a record trains the models of all clusters",
        [PARTS[AR], PARTS[RO], SAME_SUM],
        (PartedSum.add, ("$mask & ($parts == $part)", "$mask")),
    ),
    (
        "each block clipped by the norm of another plan",
        [PARTS[AR], PARTS[RO]],
        (PartedSum.__init__, ("$plan.clip_norm", "2 * $plan.clip_norm")),
    ),
    (
        "the noise of a block divided among the clusters",
        [BLOCK_NOISE, PARTS[AR]],
        (PartedSum.__init__, ("$plan.l2_bound", "$plan.l2_bound / len($plan.part_batch_sizes)")),
    ),
    (
        "rows beyond a physical batch dropped",
        [SAME_SUM],
        (PartedSum.add, ("range(0, max($room, len($rows)), $size)", "range(0, $size, $size)")),
    ),
    (
        "losses of other clusters' records",
        [SAME_SUM],
        (PartitionedVAEModule.forward, ("$of_part == $k", "$of_part >= $k")),
    ),
    # ---- k-means
    (
        "a row counted and summed in two clusters",
        [CLUSTERS[AR, TWO], CLUSTERS[RO, TWO]],
        (
            clusters.cluster_sums,
            after(
                "$codes, $n_clusters = (nearest_centers($x, $centers, $transform), len($centers))",
                "$x, $codes = (np.vstack([$x, $x]), np.append($codes, ($codes + 1) % $n_clusters))",
            ),
        ),
    ),
    (
        "a cluster that hangs on the number of the row",
        [OWN_CLUSTER, CLUSTERS[AR, TWO]],
        (
            clusters.nearest_centers,
            (
                "$codes[$part] = $scores.argmax(axis=1)",
                "$codes[$part] = np.arange(len($1))[$part] % 2 * $scores.argmax(axis=1)",
            ),
        ),
    ),
    (
        "a cluster that hangs on the rows of the block",
        [OWN_CLUSTER],
        (clusters.nearest_centers, ("$scores.argmax", "($scores - $scores.mean(axis=0)).argmax")),
    ),
    (
        "a cluster that hangs on the order of additions",
        [Claim(test_dpgm_clusters.test_the_cluster_of_a_row_halfway_between_two_follows_from_no_order_of_additions)],
        (
            clusters.nearest_centers,
            ("exact_product($transform($rows), $centers.T)", "$transform($rows) @ $centers.T"),
        ),
    ),
    (
        "noise for the sums alone",
        [CLUSTERS[AR, "one cluster"], CLUSTERS[AR, TWO]],
        (clusters.cluster_sums, ("class_first_moments($rest)", "_cheaper($rest)")),
    ),
    (
        "an iteration that was not paid",
        [LEDGER[ARRAYS], LEDGER[REPLACED], LEDGER[FRAME]],
        (CENTERS, ("$settings.steps", "$settings.steps + 1")),
    ),
    (
        "the mean of all rows without noise",
        [LEDGER[ARRAYS]],
        (
            CENTERS,
            (
                "$query = cluster_sums($x, $features, $centers, $rest)\n"
                "$released = add_gaussian($query, $noise, $rng, $neighboring)",
                "$query = cluster_sums($x, $features, $centers, $rest)\n"
                "$released = add_gaussian($query, 0.0 if $centers is None else $noise, $rng, $neighboring)",
            ),
        ),
    ),
    (
        "noise scaled for the other relation",
        [LEDGER[REPLACED]],
        (
            CENTERS,
            (
                "add_gaussian($query, $noise_multiplier, $rng, $neighboring)",
                "add_gaussian($query, $noise_multiplier, $rng, 'add_or_remove_one')",
            ),
        ),
    ),
    # ---- sizes of clusters
    (
        "exact counts of the clusters",
        [LEDGER[ARRAYS], LEDGER[FRAME], *SIZES],
        (_dpgm._release_facts, ("$noise['counts']", "0.0")),
    ),
    (
        "denominators from the exact sizes of the clusters",
        SIZES,
        (
            FIT,
            EXACT,
            (
                "training_plan($training, $fit, $size, $sizes, $margin)",
                "training_plan($training, $fit, $size, exact, $margin)",
            ),
        ),
    ),
    (
        "shares of the clusters from their exact sizes",
        SIZES,
        (
            FIT,
            EXACT,
            after(
                "$train = training_plan($vae.training, $fit, $size, $counts.sum(axis=1), $margin)",
                "$counts = exact[:, None]",
            ),
        ),
    ),
    (
        "the exact number of rows",
        [LEDGER[ARRAYS], *HIDDEN],
        (FIT, ("$fit.sample_size($rows, $counted)", "float(len($rows))")),
    ),
    # ---- what is charged for the clusters and the training
    (
        "a rate from the exact sizes of the clusters",
        [LEDGER[ARRAYS], LEDGER[REPLACED]],
        (
            FIT,
            EXACT,
            before(
                "$train = training_plan($vae.training, $fit, $size, $sizes, $margin)",
                "rate = $vae.training.sampling_rate * exact.sum() / (len(exact) * exact.max())\n"
                "$vae = replace($vae, training=replace($vae.training, sampling_rate=rate))",
            ),
        ),
    ),
    (
        "steps for each cluster, charged once",
        [LEDGER[ARRAYS], LEDGER[FRAME]],
        (PLAN, before("$rate = $training.sampling_rate", "$1 = replace($1, steps=$1.steps * len($4))")),
    ),
    (
        "the noise of one cluster's share of the rows",
        [LEDGER[ARRAYS]],
        (PLAN, ("$fit.noise['training']", "$fit.noise['training'] / len($4)")),
    ),
    (
        "a rate that is that of each cluster's share",
        [LEDGER[ARRAYS], *SIZES],
        (
            PLAN,
            before(
                "$rate = $training.sampling_rate",
                "$1 = replace($1, sampling_rate=min(1.0, $1.sampling_rate * len($4)))",
            ),
        ),
    ),
    (
        "a budget in which the clusters are not found",
        [LEDGER[ARRAYS], ONE_CHARGE],
        (_dpgm._plan_phases, ("$clusters.steps", "1")),
    ),
    # ---- what is kept
    (
        "rows kept beside the centres",
        KEPT[:1],
        (
            FIT,
            after(FACTS, "seen = $x"),
            after("$model = DPGMModel($rest)", "$model.centers = seen[:3]"),
        ),
    ),
    (
        "the cluster of each row kept",
        KEPT,
        (
            FIT,
            after(FACTS, "seen = $clusters"),
            after("$model = DPGMModel($rest)", "$model.labels = seen"),
        ),
    ),
]


def _cheaper(*arguments, **options):
    return replace(class_first_moments(*arguments, **options), add_or_remove_one=1.0, replace_one=2**0.5)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_dp_gm_is_caught(monkeypatch, mutant):
    monkeypatch.setattr(clusters, "_cheaper", _cheaper, raising=False)
    assert_caught(monkeypatch, *mutant[1:])
