"""Every sabotage of term-wise DP-SGD and of PriVAE's fit is caught by a claim of an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_privae_module
import test_termwise
import test_whole_batch
from _fits import ledger_is_what_ran, nothing_private_is_kept
from _noninterference import noninterference
from _sabotage import Claim, after, assert_caught, before, mutant_ids

from skdpgen.dpsgd import TermwiseAggregate, TermwisePlan, WholeBatchAggregate, WholeBatchPlan
from skdpgen.dpsgd import _termwise as termwise_module
from skdpgen.dpsgd._plan import plan_of_fit
from skdpgen.nn import UserDivergence
from skdpgen.synthesizers import _moment_start, _vae_model

AR, RO = "add_or_remove_one", "replace_one"
SENSITIVITY = {
    (relation, groups): Claim(test_termwise.test_termwise_sensitivity_is_attained_and_not_exceeded, relation, groups)
    for relation in (AR, RO)
    for groups in (1, 4)
}
TURNED = Claim(test_termwise.test_a_groups_gradient_turns_round_when_a_record_joins)
OWN_GROUP = Claim(test_termwise.test_one_record_changes_its_own_group_alone_and_denominators_are_constant)
BY_HAND = Claim(test_termwise.test_the_sum_is_that_of_clipped_terms_by_hand)
DRAWS = Claim(test_termwise.test_groups_are_draws_of_their_own)
NOISE = Claim(test_termwise.test_noise_of_a_release_covers_both_terms)
MASKED = Claim(test_termwise.test_a_record_that_is_not_finite_masks_itself_and_its_group_alone)
CHUNKS = Claim(test_termwise.test_chunks_with_padding_add_up_to_the_batch_and_an_empty_batch_is_zero)
GATHERED = Claim(test_termwise.test_gathered_groups_hold_every_record_once_and_zeros_beside)
WHOLE = {
    a: Claim(test_whole_batch.test_whole_batch_sensitivity_is_attained_and_not_exceeded, a) for a in ("micro", "batch")
}
LEDGER = {
    name: Claim(ledger_is_what_ran, name)
    for name in ("arrays, termwise net", "frame, termwise net", "arrays, whole-batch net", "frame, DP-VAE net")
}
KEPT = [Claim(nothing_private_is_kept, name) for name in ("arrays, termwise net", "frame, termwise net")]

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    (
        "C2 for 2 C2",
        [SENSITIVITY[AR, 1], SENSITIVITY[AR, 4], TURNED],
        (TermwisePlan.__post_init__, ("2 * self.group_bound", "self.group_bound")),
    ),
    (
        "C2 for 2 C2 when a record is replaced",
        [SENSITIVITY[RO, 1], SENSITIVITY[RO, 4]],
        (TermwisePlan.difference_bound, ("2 * self.group_bound", "self.group_bound")),
    ),
    (
        "a record's own term not paid twice when it is replaced",
        [SENSITIVITY[RO, 4]],
        (TermwisePlan.difference_bound, ("2 * self.sample_bound", "self.sample_bound")),
    ),
    (
        "errors of some kinds that end a training",
        [
            Claim(test_privae_module.test_an_error_on_some_group_counts_as_zero_and_is_told_before_training_alone, kind)
            for kind in (ValueError, LookupError)
        ],
        (UserDivergence._one, ("Exception", "(RuntimeError, ArithmeticError)")),
    ),
    (
        "shuffled groups of equal sizes",
        [DRAWS],
        (
            termwise_module.draw_groups,
            ("$rng.integers($n_groups, $n_records)", "np.argsort(np.argsort($rng.random($n_records))) % $n_groups"),
        ),
    ),
    (
        "groups by place in the batch",
        [DRAWS],
        (
            termwise_module.draw_groups,
            ("$rng.integers($n_groups, $n_records)", "np.arange($n_records) * $n_groups // $n_records"),
        ),
    ),
    (
        "groups' denominator from the realised batch",
        [SENSITIVITY[AR, 4], OWN_GROUP],
        (
            TermwiseAggregate.result,
            after("$inputs, $members = gather_groups($rest)", "joined = $members"),
            ("self.plan.group_weight", "float(joined.sum()) / self.plan.n_groups"),
        ),
    ),
    (
        "denominator from the groups that are not empty",
        [BY_HAND],
        (
            TermwiseAggregate.result,
            after("$inputs, $members = gather_groups($rest)", "joined = $members"),
            ("self.plan.group_weight", "self.plan.expected_batch_size / (1 + float(joined.sum()))"),
        ),
    ),
    (
        "noise on the records' term only",
        [NOISE],
        (TermwiseAggregate.result, ("self.plan.l2_bound", "self.plan.sample_bound")),
    ),
    (
        "noise on the groups' term only",
        [NOISE],
        (
            TermwiseAggregate.result,
            ("self.plan.l2_bound", "2 * self.plan.group_bound * self.plan.group_weight"),
        ),
    ),
    (
        "the paper's two draws of noise, at its sensitivity",
        [NOISE],
        (
            TermwiseAggregate.result,
            (
                "self.plan.l2_bound",
                "(self.plan.sample_bound ** 2 + (self.plan.group_bound * self.plan.group_weight) ** 2) ** 0.5",
            ),
        ),
    ),
    (
        "groups not clipped",
        [SENSITIVITY[AR, 4], BY_HAND],
        (TermwiseAggregate.__init__, ("$clips[1]", "math.inf")),
    ),
    (
        "groups clipped at the records' norm",
        [SENSITIVITY[AR, 4], BY_HAND],
        (TermwiseAggregate.__init__, ("$clips[1]", "$clips[0]")),
    ),
    (
        "padding that holds other records",
        [MASKED, GATHERED],
        (termwise_module.gather_groups, ("$gathered.masked_fill_($empty, 0)", "$gathered")),
    ),
    (
        "groups of the last chunk alone",
        [CHUNKS],
        (TermwiseAggregate.result, ("(self._parts, [])", "(self._parts[-1:], [])")),
    ),
    (
        "C for 2 C over the whole batch",
        list(WHOLE.values()),
        (WholeBatchPlan.__post_init__, ("2 * self.gradient_bound", "self.gradient_bound")),
    ),
    (
        "micro aggregation's sum over the expected batch, as the paper has it",
        [WHOLE["micro"]],
        (
            WholeBatchAggregate.result,
            (
                "float(clip_factors(torch.tensor(square_norm($vector), dtype=torch.float64).sqrt(), self._clip))",
                "1.0",
            ),
        ),
        (WholeBatchAggregate._micro, ("sum($sizes)", "1")),
    ),
    (
        "a term-wise step more than charged",
        [LEDGER["arrays, termwise net"]],
        (plan_of_fit, ("$training.steps", "$training.steps + 1")),
    ),
    (
        "noise multiplier below the charge",
        list(LEDGER.values()),
        (
            _vae_model.training_plan,
            ("$fit.noise['training']", "0.9 * $fit.noise['training']"),
        ),
    ),
    (
        "sampling rate above the charge",
        [LEDGER["frame, termwise net"]],
        (
            plan_of_fit,
            (
                "$plan($rest, sampling_rate=$training.sampling_rate)",
                "$plan($rest, sampling_rate=2 * $training.sampling_rate)",
            ),
        ),
    ),
    (
        "exact counts",
        [LEDGER["arrays, termwise net"], LEDGER["frame, termwise net"]],
        (_moment_start.release_class_counts, ("$fit.noise['counts']", "0.0")),
    ),
    (
        "denominator from the exact row count",
        [LEDGER["arrays, termwise net"], LEDGER["frame, DP-VAE net"]],
        (_vae_model.sizes_by_counts, ("$fit.sample_size($rows, $counted)", "float(len($rows))")),
    ),
    (
        "ordinary training on private rows in place of synthetic ones",
        [Claim(noninterference, "DP-VAE from moments")],
        (
            _vae_model.fit_vae_model,
            before("$net.partial_fit($x, groups=$units)", "start_autoencoder($net.module_, $x, 2, $2.network)"),
        ),
    ),
    (
        "exact counts beside released moments",
        [Claim(noninterference, "DP-VAE from moments")],
        (
            _moment_start._release_moments,
            (
                "$moments.counted.value * $moments.class_ratio",
                "np.bincount($1.codes + 1, minlength=$moments.codec.n_classes + 1)[1:].astype(float)",
            ),
        ),
    ),
    (
        "training rows kept in the encoder",
        KEPT,
        (
            _vae_model.fit_vae_model,
            after("$net.partial_fit($x, $rest)", "$net.module_.encoder.seen = $net.get_dataset($x).X[:5]"),
        ),
    ),
    (
        "the last group's latents kept by the divergence's module",
        [Claim(nothing_private_is_kept, "arrays, termwise net")],
        (_vae_model.fit_vae_model, after("$net.partial_fit($x, $rest)", "$net.module_.prior.rows = $x[:2]")),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_privae_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
