"""Every sabotage of GS-WGAN is caught by a claim of an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_critic_models
import test_critics
import test_gs_wgan
from _fits import ledger_is_what_ran, nothing_private_is_kept, the_row_count_is_hidden
from _noninterference import noninterference
from _sabotage import LEARNED, Claim, after, assert_caught, mutant_ids

from skdpgen.dpsgd._subsets import SubsetPlan
from skdpgen.nn._critics import Critics, clipped_gradient_sum, train_by_critics
from skdpgen.nn._generated_rows import GeneratedRows
from skdpgen.synthesizers._critic_model import CriticReleases, _make_critics, fit_critic_model
from skdpgen.synthesizers._gs_wgan import GradientReleases
from skdpgen.synthesizers._training import sizes_by_counts

AR, RO = "add_or_remove_one", "replace_one"


class _Patched:
    """A claim that takes pytest's `monkeypatch`."""

    def __init__(self, claim):
        self.__name__, self._claim = claim.__name__, claim

    def __call__(self):
        with pytest.MonkeyPatch.context() as patch:
            self._claim(patch)


BOUNDED = {r: Claim(test_critics.a_record_turns_the_gradients_of_one_critic_at_all_rows, r) for r in (AR, RO)}
OWN_CLIP = Claim(test_critics.each_row_has_its_own_clip)
OTHERS = Claim(test_critics.the_other_critics_stay_as_they_are_to_the_last_bit)
DRAWN = Claim(test_critics.no_gradient_depends_on_which_other_critics_are_drawn)
PLACE = Claim(test_critics.the_points_of_a_row_do_not_depend_on_the_other_rows)
NOTHING = Claim(test_critics.an_empty_subset_and_a_gradient_that_is_not_finite_add_nothing)
DRAWS = Claim(_Patched(test_critics.what_a_critic_has_learned_does_not_depend_on_the_draws))
ALONE = Claim(_Patched(test_critics.the_private_rows_enter_by_the_release_alone))
STEPS = Claim(_Patched(test_critics.as_many_steps_are_taken_as_were_charged))
ONE_RELEASE = Claim(test_gs_wgan.all_images_of_a_step_are_one_release, AR)
SUBSETS = Claim(test_gs_wgan.sampled_critics_are_charged_as_subsets, AR)
UNITS = Claim(test_critic_models.a_unit_is_in_one_subset_as_a_whole, "GS-WGAN", "rows")
ARRAYS, SAMPLED, REPLACED, FRAME, OF_UNITS = test_gs_wgan.FITTED
LEDGER = {name: Claim(ledger_is_what_ran, name) for name in test_gs_wgan.FITTED}
KEPT = [Claim(nothing_private_is_kept, ARRAYS)]
HIDDEN = Claim(the_row_count_is_hidden, ARRAYS)
RELEASES_ALONE = Claim(noninterference, "critics")

FIT, PLAN, MAKE = fit_critic_model, CriticReleases.plan, _make_critics
CLIP = "clip_factors(norms_of([$g.flatten(0, 1)]), $plan.clip_norm / math.sqrt($n_rows))"

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    # ---- the one vector of a step
    (
        "the bound of one image for all images of a step, as in the published accounting",
        [ONE_RELEASE, SUBSETS],
        (GradientReleases.bound, ("self.gradient_bound * math.sqrt(self.generated_rows)", "self.gradient_bound")),
    ),
    (
        "C for 2 C",
        [BOUNDED[AR], BOUNDED[RO]],
        (
            SubsetPlan.l2_bound,
            (
                "self.gradient_bound if self.mechanism == 'poisson_subsets' else 2 * self.gradient_bound",
                "self.gradient_bound",
            ),
        ),
    ),
    (
        "the bound of all images for each of them",
        [BOUNDED[AR], BOUNDED[RO], OWN_CLIP],
        (clipped_gradient_sum, (CLIP, "clip_factors(norms_of([$g.flatten(0, 1)]), $plan.clip_norm)")),
    ),
    (
        "no clip",
        [BOUNDED[AR], BOUNDED[RO]],
        (clipped_gradient_sum, (CLIP, "torch.ones($g.shape[0] * $g.shape[1])")),
    ),
    (
        "a gradient that is not finite multiplied by 0",
        [NOTHING],
        (clipped_gradient_sum, ("torch.where($s > 0, $g * $s, 0.0).sum(0)", "($g * $s).sum(0)")),
    ),
    (
        "critics of empty subsets",
        [NOTHING],
        (
            Critics.gradients,
            ("$found.masked_fill(~self.rows.occupied($units)[:, None, None], 0.0)", "$found"),
        ),
    ),
    # ---- what critics share
    (
        "drawn critics alone in a pass",
        [DRAWN],
        (
            Critics.with_all,
            ("yield $part, torch.from_numpy($drawn)", "yield $part[$drawn], torch.from_numpy($drawn[$drawn])"),
        ),
    ),
    (
        "one loss for all critics",
        [OTHERS],
        (Critics.learn, ("$losses.sum()", "$losses.sum().square()")),
    ),
    (
        "coordinates of private rows by a product that is rounded by their place",
        [PLACE],
        (GeneratedRows.encoded, ("self.encode(*$part, _exact)", "self.encode(*$part)")),
    ),
    (
        "critics that change when they are drawn",
        [DRAWS],
        (
            Critics.gradients,
            after(
                "$p = [$q[torch.from_numpy($units)] for $q in (*self.weights_, *self.offsets_)]",
                "self.weights_[0][torch.from_numpy($units)] *= 1.01",
            ),
        ),
    ),
    (
        "rows of a unit in several subsets",
        [UNITS],
        (MAKE, ("$assign(len($x), $k, $rng, units=$rows.unit_codes)", "$assign(len($x), $k, $rng)")),
    ),
    # ---- what else the rows could move
    (
        "a generator that learns from the exact sum",
        [ALONE],
        (
            train_by_critics,
            ("$noise.release($total, divisor=$d, out=[$released])",
             "$noise.release($total, divisor=$d, out=[$released])\n$released.add_($total.value[0])"),
        ),
    ),
    (
        "generated rows that follow the critics",
        [ALONE],
        (
            train_by_critics,
            after(
                "$total = $votes.total($critics, $units, $points.detach(), $plan)",
                "$points = $points * (1 + $critics.weights_[0].mean() * $points)",
            ),
        ),
    ),
    (
        "labels of generated rows by the exact shares of the classes",
        [RELEASES_ALONE],
        (FIT, after(LEARNED, "$weights = np.bincount($classes + 1)[1:] + 1.0")),
    ),
    (
        "private rows kept in the codec",
        KEPT,
        (FIT, after(LEARNED, "object.__setattr__($codec, 'seen', $x[:5])")),
    ),
    # ---- the books
    (
        "noise multiplier below the charge",
        [LEDGER[name] for name in (ARRAYS, SAMPLED, OF_UNITS)],
        (FIT, ("$fit.noise['gradients']", "0.9 * $fit.noise['gradients']")),
    ),
    (
        "a step without noise",
        [LEDGER[ARRAYS], LEDGER[FRAME]],
        (
            train_by_critics,
            ("$noise.release($total, divisor=$d, out=[$released])", "$released.copy_($total.value[0] / $d)"),
        ),
    ),
    (
        "steps that are not counted",
        [STEPS],
        (train_by_critics, ("$plan.take_step()", "pass")),
    ),
    (
        "a public schedule charged as sampled critics",
        [ONE_RELEASE],
        (PLAN, ("'balanced' if $every else 'poisson'", "'poisson'")),
    ),
    (
        "denominator and number of rows from the data",
        [HIDDEN],
        (sizes_by_counts, ("$fit.sample_size($rows, $counted)", "float(len($rows))")),
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_gs_wgan_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
