"""Every sabotage of DataLens, and of G-PATE, is caught by a claim of an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_critic_models
import test_critics
import test_datalens
import test_gpate
import test_gradient_votes
from _fits import ledger_is_what_ran, nothing_private_is_kept
from _noninterference import noninterference
from _sabotage import LEARNED, Claim, after, assert_caught, mutant_ids

from skdpgen.nn._critics import Critics, train_by_critics
from skdpgen.nn._gradient_votes import LargestSigns, ProjectedVotes, _Votes, bound_of_votes
from skdpgen.synthesizers._critic_model import BaseCriticSynthesizer, CriticReleases, _make_critics, fit_critic_model

AR, RO = "add_or_remove_one", "replace_one"
BOUNDED = {r: Claim(test_gradient_votes.a_record_turns_the_signs_of_one_teacher_at_all_rows, r) for r in (AR, RO)}
AS_MANY = Claim(test_gradient_votes.a_teacher_sends_as_many_signs_as_are_paid_for)
NO_NUMBER = Claim(test_gradient_votes.what_is_no_number_is_no_vote)
ROUNDED = Claim(test_gradient_votes.the_bound_holds_of_sums_that_are_rounded)
OTHERS = Claim(test_critics.the_other_critics_stay_as_they_are_to_the_last_bit, "logistic")
TOO_NOISY = Claim(test_gpate.noise_too_large_for_votes_is_refused_before_the_charge)
ONE_RELEASE = {r: Claim(test_datalens.all_rows_of_a_step_are_one_release, r) for r in (AR, RO)}
UNITS = Claim(test_critic_models.a_unit_is_in_one_subset_as_a_whole, "DataLens", "rows")
ARRAYS, REPLACED, FRAME, OF_UNITS = test_datalens.FITTED
LEDGER = {name: Claim(ledger_is_what_ran, name) for name in test_datalens.FITTED}
KEPT = [Claim(nothing_private_is_kept, ARRAYS)]
RELEASES_ALONE = Claim(noninterference, "signs")
HISTOGRAMS = {r: Claim(test_gradient_votes.a_record_moves_one_vote_in_each_histogram, r) for r in (AR, RO)}
ONE_VOTE = Claim(test_gradient_votes.a_teacher_has_one_vote_in_each_histogram)
ONE_HISTOGRAM = {r: Claim(test_gpate.all_rows_of_a_step_are_one_release, r) for r in (AR, RO)}
HISTOGRAMS_LEDGER = {name: Claim(ledger_is_what_ran, name) for name in test_gpate.FITTED}
HISTOGRAMS_ALONE = Claim(noninterference, "histograms")
SQUARE = "4 * self.n_largest * $n_rows"

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    # ---- the one vector of a step
    (
        "signs of other entries, where signs of the same entries may turn",
        [BOUNDED[AR], BOUNDED[RO], ONE_RELEASE[AR]],
        (LargestSigns.square, (SQUARE, "2 * self.n_largest * $n_rows")),
    ),
    (
        "a set of signs that joins, where one may turn",
        [BOUNDED[AR], BOUNDED[RO]],
        (LargestSigns.square, (SQUARE, "self.n_largest * $n_rows")),
    ),
    (
        "the votes on one row for those on all rows of a step, as in the published accounting",
        [BOUNDED[AR], BOUNDED[RO], ONE_RELEASE[AR]],
        (LargestSigns.square, (SQUARE, "4 * self.n_largest")),
    ),
    (
        "the squared distance of votes for their distance",
        [BOUNDED[AR]],
        (bound_of_votes, ("math.sqrt($s) * (1 + $x)", "math.sqrt(math.sqrt($s)) * (1 + $x)")),
    ),
    (
        "whole numbers that are taken for multiples of the lattice",
        [ROUNDED],
        (bound_of_votes, ("math.sqrt($s) * (1 + $x)", "math.sqrt($s)")),
    ),
    (
        "noise whose lattice is too wide for any bound",
        [ROUNDED, TOO_NOISY],
        (bound_of_votes, ("$r > _MOST_ROUNDING", "False")),
    ),
    (
        "noise that is refused after the charge",
        [TOO_NOISY],
        (BaseCriticSynthesizer._prepare, ("$s.training.bound($n)", "pass")),
    ),
    (
        "entries for their signs",
        [BOUNDED[AR], AS_MANY],
        (LargestSigns.votes,
         ("$g.gather(-1, $largest).sign()", "$g.gather(-1, $largest)"), ("return $g.sign()", "return $g")),
    ),
    (
        "all entries as large as the least that is sent",
        [AS_MANY],
        (
            LargestSigns.votes,
            (
                "return torch.zeros_like($g).scatter_(-1, $largest, $signs)",
                "return $g.sign() * ($g.abs() >= $g.abs().gather(-1, $largest).amin(-1, keepdim=True))",
            ),
        ),
    ),
    (
        "one sign more than is paid for",
        [AS_MANY],
        (LargestSigns.votes, ("$g.abs().topk(self.n_largest, dim=-1)", "$g.abs().topk(self.n_largest + 1, dim=-1)")),
    ),
    (
        "votes by entries that are no numbers",
        [NO_NUMBER],
        (_Votes.total, ("self.votes(torch.where(torch.isfinite($g), $g, 0.0))", "self.votes($g)")),
    ),
    # ---- what teachers share
    (
        "one loss for all teachers",
        [OTHERS],
        (Critics.learn, ("$losses.sum()", "$losses.sum().square()")),
    ),
    (
        "rows of a teachers' unit in several subsets",
        [UNITS],
        (_make_critics, ("$assign(len($x), $k, $rng, units=$rows.unit_codes)", "$assign(len($x), $k, $rng)")),
    ),
    # ---- what else the rows could move
    (
        "exact votes beside the noisy ones",
        [RELEASES_ALONE],
        (
            train_by_critics,
            after(
                "$noise.release($total, divisor=$d, out=[$released])",
                "$released.add_($total.value[0] / $d)",
            ),
        ),
    ),
    (
        "votes of the private rows' classes alone",
        [RELEASES_ALONE],
        (fit_critic_model, after(LEARNED, "$weights = np.bincount($classes + 1)[1:] + 1.0")),
    ),
    (
        "private rows kept beside the votes",
        KEPT,
        (
            fit_critic_model,
            after(LEARNED, "object.__setattr__($codec, 'seen', $x[:5])"),
        ),
    ),
    # ---- the books
    (
        "noise of votes below the charge",
        [LEDGER[name] for name in (ARRAYS, REPLACED, FRAME, OF_UNITS)],
        (fit_critic_model, ("$fit.noise['gradients']", "0.9 * $fit.noise['gradients']")),
    ),
    (
        "votes without noise",
        [LEDGER[ARRAYS], LEDGER[FRAME]],
        (
            train_by_critics,
            ("$noise.release($total, divisor=$d, out=[$released])", "$released.copy_($total.value[0] / $d)"),
        ),
    ),
    (
        "votes charged as sampled teachers",
        [ONE_RELEASE[AR]],
        (CriticReleases.plan, ("'balanced' if $every else 'poisson'", "'poisson'")),
    ),
    # ---- histograms (G-PATE)
    (
        "a vote that joins, where one may move",
        [HISTOGRAMS[AR], HISTOGRAMS[RO], ONE_HISTOGRAM[AR]],
        (ProjectedVotes.square, ("2 * self.n_projections * $n_rows", "self.n_projections * $n_rows")),
    ),
    (
        "one histogram paid for, and several released",
        [HISTOGRAMS[AR], HISTOGRAMS[RO], ONE_HISTOGRAM[RO]],
        (ProjectedVotes.square, ("2 * self.n_projections * $n_rows", "2 * $n_rows")),
    ),
    (
        "the histograms of one row for those of all rows of a step",
        [HISTOGRAMS[AR], HISTOGRAMS[RO], ONE_HISTOGRAM[AR]],
        (ProjectedVotes.square, ("2 * self.n_projections * $n_rows", "2 * self.n_projections")),
    ),
    (
        "votes that are as large as the gradient",
        [ONE_VOTE],
        (ProjectedVotes.votes, ("($lengths > 0)[..., None]", "$lengths[..., None]")),
    ),
    (
        "teachers of empty subsets that vote",
        [ONE_VOTE],
        (ProjectedVotes.votes, ("F.one_hot($bins, self.n_bins) * ($lengths > 0)[..., None]",
                                "F.one_hot($bins, self.n_bins)")),
    ),
    (
        "exact histograms beside the noisy ones",
        [HISTOGRAMS_ALONE],
        (
            train_by_critics,
            after(
                "$noise.release($total, divisor=$d, out=[$released])",
                "$released.add_($total.value[0] / $d)",
            ),
        ),
    ),
    (
        "noise of histograms below the charge",
        [HISTOGRAMS_LEDGER[name] for name in test_gpate.FITTED],
        (fit_critic_model, ("$fit.noise['gradients']", "0.9 * $fit.noise['gradients']")),
    ),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_datalens_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
