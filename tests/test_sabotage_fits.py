"""Every sabotage of a whole fit is caught: unpaid or cheap releases, private values kept, seeded noise."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_class_norms
import test_colour
import test_dp_pca
import test_image_features
import test_noninterference
import test_scaling_blocks
import test_sources
import test_subclusters
from _fits import (
    DECISIONS,
    FITS,
    POOR,
    a_category_of_one_record_is_not_told,
    a_clone_charges_the_same_books,
    a_poor_release_is_made_once,
    a_refused_fit_releases_nothing,
    decisions_are_by_the_released_row_count,
    fits_under_one_seed_differ,
    ledger_is_what_ran,
    nothing_private_is_kept,
    the_row_count_is_hidden,
)
from _sabotage import Claim, after, assert_caught, before, mutant_ids

from skdpgen import DPPCA, DPGaussianMixture, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant
from skdpgen._base import PrivateEstimator
from skdpgen.data import frames as _frames
from skdpgen.data import labels as _array_labels
from skdpgen.data import scaling as _scaling
from skdpgen.data.arrays import ArrayCodec
from skdpgen.dpsgd._plan import plan_of_fit
from skdpgen.generators import refined_images
from skdpgen.generators.refined_images import ClassCuts, FeatureSpace
from skdpgen.mechanisms import _selection as selection
from skdpgen.mixture import _em
from skdpgen.nn import DPNet, _wavelets
from skdpgen.synthesizers import _array_model, _frame_model, _p3gm_decoder
from skdpgen.tabular import _learning as learning

pytestmark = pytest.mark.usefixtures("short_fits")

LEARNING = ["mixture by class", "arrays", "frame"]
ESTIMATORS = ["pca", "mixture", "arrays", "frame"]


def _ledger(*names):
    return [Claim(ledger_is_what_ran, name) for name in names]


def _kept(*names):
    return [Claim(nothing_private_is_kept, name) for name in names]


def _count(*names):
    return [Claim(the_row_count_is_hidden, name) for name in names]


def _told(name):
    return [Claim(a_category_of_one_record_is_not_told, name)]


def _once(name, poor="negative"):
    return [Claim(a_poor_release_is_made_once, name, poor)]


SEEDS = [Claim(fits_under_one_seed_differ, name) for name in ESTIMATORS]
REFUSED = [Claim(a_refused_fit_releases_nothing, name) for name in ESTIMATORS]
CLONES = [Claim(a_clone_charges_the_same_books, name) for name in ESTIMATORS]
SHARED = Claim(test_dp_pca.test_a_shared_budget_is_charged_and_kept)
PCA_SEED = Claim(test_dp_pca.test_two_fits_under_one_seed_differ_and_no_noise_is_seeded)
CELLS = {
    relation: Claim(test_subclusters.test_the_sensitivity_of_cells_is_attained_and_not_exceeded, relation, 1)
    for relation in ("add_or_remove_one", "replace_one")
}
CELLS_JOINED = Claim(
    test_subclusters.test_a_joining_row_leaves_the_cells_of_the_others_and_adds_its_own_moments_alone, 3
)
CELLS_ORDER = Claim(test_subclusters.test_the_cell_of_a_row_at_the_cut_follows_from_no_order_of_additions)
FEATURES = [
    Claim(test_image_features.test_the_sensitivity_of_features_is_attained_and_not_exceeded, relation, apart, make)
    for relation in ("add_or_remove_one", "replace_one")
    for apart in (True, False)
    for make in (test_image_features._space, test_image_features._cut_space)
]
FEATURES_JOINED = Claim(
    test_image_features.test_a_joining_image_leaves_the_features_of_the_others_and_adds_its_own_moments_alone,
    3,
    False,
    test_image_features._cut_space,
)
FEATURES_EXACT = Claim(test_image_features.test_no_sum_of_exact_features_is_rounded, (9, 6, 2))
FEATURES_ORDER = Claim(test_image_features.test_the_order_of_sums_changes_no_feature_of_a_private_image, (28, 28))
COLOURS_EXACT = Claim(test_colour.test_features_of_colour_are_those_of_the_mean_and_of_differences)
FEATURES_APART = Claim(
    test_noninterference.test_the_exact_row_count_does_not_decide_which_moments_of_features_are_released
)
SEEDED = "type(make_noise_generator())('seeded', seed=self.random_state or 0)"
UNPACKED = "$released = unpack_moments(add_gaussian($sums, $noise, $rng, $neighboring), $rest)"
UNTHRESHOLDED = ("above_threshold($noisy, $rest)", "$noisy > 0")
EXACT = ("add_gaussian($counts, $noise_multiplier, $rest)", "add_gaussian($counts, 0.0, $rest)")

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "a step of EM that is made again where a component died",
        [*_once("mixture"), *_once("mixture, replace_one", "zero")],
        (
            _em.dp_em,
            after(
                "$noisy = add_gaussian($sums, $rest)",
                "if $noisy[:, 0].min() <= 0:\n    $noisy = add_gaussian($sums, $rest)",
            ),
        ),
    ),
    (
        "a norm bound that is learned again where the noise hides the rows",
        [*_once("pca"), *_once("mixture"), *_once("arrays", "zero")],
        (
            _scaling.learn_norm_bound,
            after(
                "$noisy = add_gaussian($counts, $rest)",
                "if $noisy.max() <= 0:\n    $noisy = add_gaussian($counts, $rest)",
            ),
        ),
    ),
    # more released than charged
    (
        "unpaid release in DPPCA",
        _ledger("pca", "pca, replace_one"),
        (
            DPPCA._release,
            before("$sums = moments($rest)", "add_gaussian(moments($rest), 9.0, $3, $4)"),
        ),
    ),
    (
        "unpaid release in DPGaussianMixture",
        _ledger("mixture by class"),
        (
            DPGaussianMixture._fit_classes,
            before(
                UNPACKED,
                "add_gaussian($sums, $noise, $rng, $neighboring)",
            ),
        ),
    ),
    (
        "unpaid release in P3GM on arrays",
        _ledger("arrays", "arrays, replace_one", "arrays, net"),
        (
            _array_model._release_moments,
            before(
                UNPACKED,
                "add_gaussian($sums, 50.0, $rng, $neighboring)",
            ),
        ),
    ),
    (
        "unpaid release in cells of images",
        _ledger("arrays, images in cells"),
        (
            _array_model.release_subclusters,
            before(
                UNPACKED,
                "add_gaussian($sums, 50.0, $rng, $neighboring)",
            ),
        ),
    ),
    (
        "unpaid release in P3GM on frames",
        _ledger("frame", "frame, levels", "frame, net"),
        (
            _frame_model.fit_frame_model,
            before(
                "$packed = add_gaussian($sums, $noise, $rng, $neighboring)",
                "add_gaussian($sums, 50.0, $rng, $neighboring)",
            ),
        ),
    ),
    (
        "an EM step more than charged",
        _ledger("mixture", "arrays, net", "frame, net"),
        (_em.dp_em, ("range($n_iter)", "range($n_iter + 1)")),
    ),
    (
        "a DP-SGD step more than charged",
        _ledger("arrays, net", "frame, net by class"),
        (plan_of_fit, ("$training.steps", "$training.steps + 1")),
    ),
    (
        "training twice",
        _ledger("frame, net"),
        (_p3gm_decoder.train_decoder, ("$net.partial_fit", "$net.partial_fit($1).initialize().partial_fit")),
    ),
    # less noise than charged
    (
        "noise multiplier of DPPCA below the charge",
        _ledger("pca", "pca in two rounds"),
        (DPPCA._release, ("$plan.noise_multipliers['moments']", "0.9 * $plan.noise_multipliers['moments']")),
    ),
    (
        "noise multiplier of EM below the charge",
        _ledger("mixture", "mixture, replace_one"),
        (DPGaussianMixture._fit_em, ("$plan.noise_multipliers['em']", "0.5")),
    ),
    (
        "noise multiplier of arrays below the charge",
        _ledger("arrays", "arrays, declared"),
        (
            _array_model._release_moments,
            (
                "add_gaussian($second, $noise['moments'], $rest)",
                "add_gaussian($second, 0.9 * $noise['moments'], $rest)",
            ),
        ),
    ),
    (
        "unpaid release of wide arrays",
        _ledger("arrays, wide"),
        (
            _array_model._release_shared,
            before(
                "$released = unpack_shared_moments(add_gaussian($sums, $noise, $rng, $neighboring), $rest)",
                "add_gaussian($sums, 50.0, $rng, $neighboring)",
            ),
        ),
    ),
    (
        "noise multiplier of wide arrays below the charge",
        _ledger("arrays, wide", "arrays, wide, replace_one"),
        (
            _array_model._release_shared,
            ("add_gaussian($sums, $noise, $rest)", "add_gaussian($sums, 0.9 * $noise, $rest)"),
        ),
    ),
    (
        "noise multiplier of cells below the charge",
        _ledger("arrays, images in cells", "arrays, images in cells, replace_one"),
        (
            _array_model.release_subclusters,
            ("add_gaussian($query, $noise_multiplier, $rest)", "add_gaussian($query, 0.9 * $noise_multiplier, $rest)"),
        ),
    ),
    (
        "noise multiplier of features below the charge",
        _ledger("arrays, features"),
        (
            _array_model.refine_images,
            ("add_gaussian($query, $noise, $rest)", "add_gaussian($query, 0.9 * $noise, $rest)"),
        ),
    ),
    (
        "features clipped where no row is",
        FEATURES,
        (
            _array_model.feature_moments,
            ("shared_moments($rest, l2_bound=$radius)", "shared_moments($rest, l2_bound=100 * $radius)"),
        ),
    ),
    (
        "images filtered by sums that are rounded",
        [Claim(test_scaling_blocks.test_images_are_filtered_by_sums_that_are_not_rounded)],
        (ArrayCodec.encode, ("exact_product($scaled, self.lowpass)", "$scaled @ self.lowpass")),
    ),
    (
        "moduli that are summed unrounded",
        [FEATURES_EXACT],
        (
            _wavelets.WaveletFeatures.forward,
            ("_round(_moduli($found))", "_moduli($found)"),
        ),
    ),
    (
        "features of private images in single precision",
        [FEATURES_ORDER],
        (
            refined_images.FeatureSpace._encode,
            ("$features($images, $rest, exact=True)", "$features($images.astype('f4'), $rest)"),
        ),
    ),
    (
        "pixels that are summed unrounded",
        [FEATURES_ORDER],
        (_wavelets.WaveletFeatures.forward, ("(_round($rows) if $exact else $rows).reshape", "$rows.reshape")),
    ),
    (
        "colours that are summed unrounded",
        [COLOURS_EXACT],
        (_wavelets.WaveletFeatures.forward, ("$images = _round($images) if $exact else $images", "pass")),
    ),
    (
        "types of objects taken from chunks, and not stated on the card",
        [
            Claim(test_sources.test_the_card_of_chunks_takes_no_fewer_facts_for_public_than_that_of_one_frame, *how)
            for how in ((MomentSynthesizer, "list"), (P3GMSynthesizer, "function"))
        ],
        (
            _frames.FrameRows._with_objects,
            (
                "if $columns:\n    $listed\n    self.public_assumptions.append($text)",
                "if $columns and $1.in_memory:\n    $listed\n    self.public_assumptions.append($text)",
            ),
        ),
    ),
    (
        "the exact row count decides which moments of features are released",
        [FEATURES_APART],
        (_array_model.refine_images, ("$4 >= $least", "len($1) >= $least")),
    ),
    (
        "the exact row count decides into how many sub-clusters of features classes are cut",
        [FEATURES_APART],
        (
            _array_model.refine_images,
            ("cut_directions(np.full($n, $count / $n), $rest)", "cut_directions(np.full($n, len($1) / $n), $rest)"),
        ),
    ),
    (
        "sub-clusters of features cut at the mean of the rows",
        [FEATURES_JOINED],
        (
            FeatureSpace.codes_of,
            (
                "$cuts.codes($features, $classes)",
                "$cuts.codes($features - $features.mean(axis=0) + self.cuts.center, $classes)",
            ),
        ),
    ),
    (
        "features less their mean over the rows",
        [FEATURES_JOINED],
        (_array_model.feature_moments, ("$space.encode($scaled)", "$space.encode($scaled) - $scaled.mean()")),
    ),
    (
        "rows kept with the features of images",
        _kept("arrays, features"),
        (_array_model.refine_images, ("$start", "$2.__dict__['rows'] = $1")),
    ),
    (
        "cells cut at the mean of the rows",
        [CELLS["add_or_remove_one"], CELLS["replace_one"], CELLS_JOINED],
        (ClassCuts.codes, ("$own > $middle[$known]", "$own > $own.mean(axis=0)")),
    ),
    (
        "cells by sums that are rounded",
        [CELLS_ORDER],
        (ClassCuts.along, ("exact_product($centered, $directions)", "$centered @ $directions")),
    ),
    (
        "cells clipped where no row is",
        [CELLS["add_or_remove_one"], CELLS["replace_one"]],
        (
            _array_model.subcluster_moments,
            ("class_moments($rest, l2_bound=$radius)", "class_moments($rest, l2_bound=100 * $radius)"),
        ),
    ),
    (
        "rows in two cells",
        [CELLS["add_or_remove_one"], CELLS["replace_one"]],
        (
            _array_model.subcluster_moments,
            before(
                "return $query, $centers, $radius",
                "from dataclasses import replace\n$query = replace($query, value=$query.value + $query.value[::-1])",
            ),
        ),
    ),
    (
        "noise multiplier of frames below the charge",
        _ledger("frame"),
        (
            _frame_model.fit_frame_model,
            ("$noise['moments']", "0.9 * $noise['moments']"),
        ),
    ),
    (
        "noise multiplier of DP-SGD below the charge",
        _ledger("arrays, net"),
        (_p3gm_decoder.decoder_plan, ("$fit.noise['decoder']", "0.9 * $fit.noise['decoder']")),
    ),
    (
        "sampling rate above the charge",
        _ledger("frame, net"),
        (
            plan_of_fit,
            (
                "$plan($rest, sampling_rate=$training.sampling_rate)",
                "$plan($rest, sampling_rate=2 * $training.sampling_rate)",
            ),
        ),
    ),
    ("an uncharged phase: exact bounds", _ledger("pca", "mixture", "arrays"), (_scaling._learn_bounds, EXACT)),
    ("an uncharged phase: exact norm", _ledger("pca", "arrays"), (_scaling.learn_norm_bound, EXACT)),
    ("an uncharged phase: exact norms of classes", _ledger("arrays"), (_array_model.release_class_norms, EXACT)),
    (
        "noise multiplier of the norms of classes below the charge",
        _ledger("arrays", "arrays, replace_one"),
        (
            _array_model.release_class_norms,
            (
                "add_gaussian($counts, $noise_multiplier, $rest)",
                "add_gaussian($counts, 0.9 * $noise_multiplier, $rest)",
            ),
        ),
    ),
    (
        "laws of the exact counts",
        [Claim(test_class_norms.test_bounds_and_laws_are_functions_of_the_noisy_counts_alone)],
        (
            _array_model.release_class_norms,
            (
                "$noisy = add_gaussian($counts, $noise, $rng, $neighboring).reshape($shape, -1)\n"
                "return class_norms($noisy, $rest)",
                "$noisy = add_gaussian($counts, $noise, $rng, $neighboring).reshape($shape, -1)\n"
                "return class_norms($noisy + $counts.value.reshape($noisy.shape), $rest)",
            ),
        ),
    ),
    (
        "an uncharged phase: exact classes",
        _ledger("arrays"),
        (
            _array_labels.learn_classes,
            (
                "release_names($observed, $counts, $noise_multiplier, $rest)",
                "release_names($observed, $counts, 0.0, $rest)",
            ),
        ),
    ),
    (
        "an uncharged phase: exact schema and bins",
        _ledger("frame"),
        (
            _frames._release,
            ("add_gaussian($bounded_sum, $noise_multiplier, $rest)", "add_gaussian($bounded_sum, 0.0, $rest)"),
        ),
    ),
    (
        "an uncharged phase: only the first is charged",
        _ledger(*ESTIMATORS),
        (
            PrivateEstimator._charge,
            ("$plan.event", "$plan.phases[0].event($plan.noise_multipliers[$plan.phases[0].label])"),
        ),
    ),
    (
        "thresholds not charged",
        _ledger("arrays", "mixture by class", "frame"),
        (PrivateEstimator._charge, ("$plan.extra_delta", "0.0")),
    ),
    (
        "a threshold for the noise of the other relation",
        _ledger("frame, replace_one"),
        (_frames._release, ("$1.sensitivity($4)", "$1.add_or_remove_one")),
    ),
    (
        "a threshold of labels for the noise of the other relation",
        _ledger("arrays, replace_one"),
        (
            selection.release_kept,
            ("$noise_multiplier * $counts.sensitivity($neighboring)", "$noise_multiplier * $counts.add_or_remove_one"),
        ),
    ),
    (
        "threshold at ten times the delta charged",
        _ledger("mixture by class"),
        (
            _array_labels.learn_classes,
            (
                "release_names($observed, $counts, $noise_multiplier, $delta, $rest)",
                "release_names($observed, $counts, $noise_multiplier, 10 * $delta, $rest)",
            ),
        ),
    ),
    (
        "noise for add_or_remove_one in a fit under replace_one",
        _ledger("arrays, replace_one"),
        (
            _array_model.fit_array_model,
            ("$start", "$3 = replace($3, neighboring='add_or_remove_one')"),
        ),
    ),
    (
        "a release before the charge",
        [*_ledger(*ESTIMATORS), *REFUSED],
        (
            PrivateEstimator._charge,
            (
                "self._receipt = $accountant.charge($rest)",
                "self._receipt = __import__('types').SimpleNamespace(cover=lambda steps: steps, day=None)\n"
                "self._late = ($2.event, $2.label, $2.extra_delta)",
            ),
        ),
        (PrivateEstimator._issue_card, before("self.card_ = $card", "self.accountant_.charge(*self._late)")),
    ),
    (
        "denominator from the realised batch",
        _ledger("arrays, net"),
        (
            DPNet.train_step_single,
            ("for $chunk in $1:\n    $body", "for $chunk in (chunks := list($1)):\n    $body"),
            ("self.plan.expected_batch_size", "max(1.0, float(sum(each.mask.sum() for each in chunks)))"),
        ),
    ),
    (
        "denominator from the exact row count",
        _ledger("arrays, net"),
        (
            _p3gm_decoder._train_in_place,
            (
                "decoder_plan($training, $fit, $model)",
                "decoder_plan($training, $fit, type('', (), {'row_count': len($1.X), 'counted': $model.counted}))",
            ),
        ),
    ),
    # private values kept
    ("exact row count kept", _kept("pca"), (DPPCA._release, ("$start", "self.n_samples_ = len($1)"))),
    ("exact means kept", _kept("pca"), (DPPCA._release, ("$start", "self.center_ = $1.mean(axis=0)"))),
    ("exact minimum kept", _kept("pca"), (DPPCA._release, ("$start", "self.least_ = float($1[:, 2].min())"))),
    (
        "one row kept",
        _kept("mixture"),
        (DPGaussianMixture._fit_em, ("$start", "self.start_ = $1[:1]")),
    ),
    (
        "rows kept by a closure",
        _kept("mixture by class"),
        (
            DPGaussianMixture._fit_classes,
            ("$start", "self._again = lambda: $1"),
        ),
    ),
    (
        "values of each record kept",
        _kept("mixture"),
        (DPGaussianMixture._fit_em, ("$start", "self._assigned = {'first': [$1.sum(axis=1)]}")),
    ),
    (
        "rows kept with the model of arrays",
        _kept("arrays"),
        (
            _array_model.fit_array_model,
            after(
                "$latents, $sizes, $most = _release_moments($rows, $codec, $rest)", "$codec.__dict__['rows'] = $rows"
            ),
        ),
    ),
    (
        "exact class ratio kept",
        _kept("arrays"),
        (
            _array_model.fit_array_model,
            after(
                "$latents, $sizes, $most = _release_moments($rows, $codec, $rest)",
                "$codec.__dict__['share'] = float(($rows.codes == 0).mean())",
            ),
        ),
    ),
    (
        "training rows kept in the net of arrays",
        _kept("arrays, net"),
        (
            _p3gm_decoder.train_decoder,
            after("$net.partial_fit($1, $rest)", "$net.module_.decoder.seen = __import__('torch').from_numpy($1)[:5]"),
        ),
    ),
    (
        "training rows kept as a buffer of the net of a frame",
        _kept("frame, net"),
        (
            _p3gm_decoder.train_decoder,
            after(
                "$net.partial_fit($1, $rest)",
                "$net.module_.register_buffer('seen', __import__('torch').from_numpy($1))",
            ),
        ),
    ),
    (
        "the frame kept with the model",
        _kept("frame", "frame, category"),
        (
            _frame_model.fit_frame_model,
            before("$fitted = FrameModel($codec, $rest)", "$codec.__dict__['frame'] = $1.frame.head(2)"),
        ),
    ),
    (
        "labels with the dtype of all that were seen",
        _kept("mixture by class"),
        (
            DPGaussianMixture._complete,
            (
                "$classes = np.array($kept)\n$codes = label_codes($labels, $kept) if $kept else $none",
                "$classes = np.array($kept).astype(np.array($labels.tolist()).dtype)\n"
                "$codes = label_codes($labels, $kept) if $kept else $none",
            ),
        ),
    ),
    # row count
    (
        "rows kept with the cells of images",
        _kept("arrays, images in cells"),
        (_array_model.release_subclusters, ("$start", "$2.__dict__['rows'] = $1")),
    ),
    (
        "exact row count used by sample of arrays",
        [*_count("arrays"), *_kept("arrays")],
        (
            _array_model.fit_array_model,
            ("$fit.row_count(len($rows.X), $latents.counts.sum())", "float(len($rows.X))"),
        ),
    ),
    (
        "exact row count used by sample of frames",
        [*_count("frame"), *_kept("frame")],
        (
            _frame_model.fit_frame_model,
            ("$fit.sample_size($rows, $particles.class_counts.sum())", "float(len($rows))"),
        ),
    ),
    (
        "shapes of classes hidden by the exact row count",
        [Claim(decisions_are_by_the_released_row_count, "hides_shapes")],
        (_array_model._release_moments, ("hides_shapes($count, $rest)", "hides_shapes(len($1.X), $rest)")),
    ),
    (
        "scores preferred by the exact row count",
        [Claim(decisions_are_by_the_released_row_count, "prefers_scores")],
        (
            _frames.FrameRows.learn,
            ("prefers_scores($size, $rest)", "prefers_scores(replace($size, n_rows=len(self)), $rest)"),
        ),
    ),
    (
        "exact row count used by sample of a mixture",
        [*_count("mixture"), *_kept("mixture")],
        (DPGaussianMixture._fit_em, ("$start", "self._n = len($1)")),
        (DPGaussianMixture._keep, ("self.count_ = $1.count", "self.count_ = self._n")),
    ),
    # categories
    (
        "a class kept without its threshold (mixture)",
        _told("mixture by class"),
        (selection.release_kept, UNTHRESHOLDED),
    ),
    (
        "a class kept without its threshold (arrays)",
        _told("arrays"),
        (selection.release_kept, UNTHRESHOLDED),
    ),
    (
        "a category kept without its threshold (schema)",
        _told("frame"),
        (learning._mask_of_categories, ("if $noise_sd > 0:\n    $above\nelse:\n    $all", "$all")),
    ),
    # noise and books
    (
        "noise seeded by random_state",
        [*SEEDS, PCA_SEED],
        (PrivateEstimator._charge, ("make_noise_generator(self.noise)", SEEDED)),
    ),
    (
        "books copied by clone",
        [*CLONES, SHARED],
        (
            PrivacyAccountant.__sklearn_clone__,
            ("return self", "return PrivacyAccountant(self.epsilon, self.delta, self.neighboring)"),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_a_fit_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])


@pytest.mark.parametrize("name", FITS)
def test_ledger_is_what_ran(name):
    Claim(ledger_is_what_ran, name).holds_unpatched()


@pytest.mark.parametrize("decision", DECISIONS)
def test_decisions_are_by_the_released_row_count(decision):
    Claim(decisions_are_by_the_released_row_count, decision).holds_unpatched()


@pytest.mark.parametrize("name", [name for name in FITS if "net" not in name])  # whose sums are those of other fits
def test_a_poor_release_is_made_once(name):
    for poor in POOR:
        Claim(a_poor_release_is_made_once, name, poor).holds_unpatched()


@pytest.mark.parametrize("name", FITS)
def test_nothing_private_is_kept(name):
    Claim(nothing_private_is_kept, name).holds_unpatched()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fits_under_one_seed_differ_and_a_refused_one_releases_nothing(name):
    for claim in (fits_under_one_seed_differ, a_refused_fit_releases_nothing, a_clone_charges_the_same_books):
        Claim(claim, name).holds_unpatched()


@pytest.mark.parametrize("name", ["mixture", "mixture by class", "arrays", "frame", "frame, levels"])
def test_the_row_count_is_hidden(name):
    Claim(the_row_count_is_hidden, name).holds_unpatched()


@pytest.mark.parametrize("name", LEARNING)
def test_a_category_of_one_record_is_not_told(name):
    Claim(a_category_of_one_record_is_not_told, name).holds_unpatched()
