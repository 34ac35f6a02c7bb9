"""Every sabotage of DP-Sinkhorn is caught by a claim of an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_dp_sinkhorn
import test_sinkhorn
from _fits import ledger_is_what_ran, nothing_private_is_kept, the_row_count_is_hidden
from _sabotage import LEARNED, Claim, after, assert_caught, mutant_ids

from skdpgen.dpsgd import WholeBatchPlan
from skdpgen.nn import _sinkhorn
from skdpgen.synthesizers import _dp_sinkhorn
from skdpgen.synthesizers._training import sizes_by_counts

BOUNDED = Claim(test_sinkhorn.the_step_is_bounded_by_2_c_and_attains_it)
SHAPE = Claim(test_sinkhorn.the_shape_of_a_step_does_not_tell_how_many_rows_took_part)
OWN = Claim(test_sinkhorn.a_release_is_a_function_of_the_rows_of_its_step_alone)
CLASS = Claim(test_sinkhorn.a_step_has_rows_of_its_class_alone)
ALONE = Claim(test_sinkhorn.the_private_rows_enter_by_the_release_alone)
NOISE = [Claim(test_sinkhorn.a_step_without_rows_is_a_step_of_noise, n_rows) for n_rows in (0, 30)]
UNITS = Claim(test_sinkhorn.test_units_are_sampled_whole_and_weigh_as_they_are_told, "units")
STEPS = Claim(test_sinkhorn.test_as_many_steps_are_taken_as_were_charged_and_the_plan_is_followed_once)
ARRAYS, REPLACED, FRAME = test_dp_sinkhorn.FITTED
LEDGER = {name: Claim(ledger_is_what_ran, name) for name in test_dp_sinkhorn.FITTED}
KEPT = [Claim(nothing_private_is_kept, ARRAYS)]
HIDDEN = [Claim(the_row_count_is_hidden, ARRAYS)]

CALL, CLIP = _sinkhorn.SinkhornGradients.__call__, _sinkhorn.SinkhornGradients._clipped
TRAIN, FIT = _sinkhorn.train_by_transport, _dp_sinkhorn.fit_sinkhorn_model

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    # ---- the one vector of a step
    (
        "C for 2 C",
        [BOUNDED],
        (WholeBatchPlan.__post_init__, ("2 * self.gradient_bound", "self.gradient_bound")),
    ),
    (
        "the gradient clipped row by row",
        [BOUNDED],
        (
            CLIP,
            (
                "return torch.where($h, $g * $f, $z)",
                "return torch.where($h, $g * (self._clip / $g.norm(dim=2, keepdim=True)).clamp(max=1.0), $z)",
            ),
        ),
    ),
    ("no clip", [BOUNDED], (CLIP, ("return torch.where($h, $g * $f, $z)", "return torch.where($h, $g, $z)"))),
    (
        "the norm of the first row alone",
        [BOUNDED],
        (CLIP, ("$g.flatten(1)", "$g[:, :1].flatten(1)")),
    ),
    (
        "one factor for all steps at once",
        [OWN],
        (CLIP, ("($f > 0)", "($f > 0).all()")),
    ),
    (
        "iterations from the largest cost of all steps at once",
        [OWN],
        (_sinkhorn.transport_plan, ("$largest = max($largest, $blur)", "$largest = max(float($1.max()), $blur)")),
    ),
    (
        "rows of all classes in a step",
        [CLASS],
        (_sinkhorn.PrivateRows._of_step, ("self.labels[$r] == $c", "self.labels[$r] >= 0")),
    ),
    (
        "no noise in a step without rows",
        NOISE,
        (
            TRAIN,
            (
                "$noise.release($total, divisor=$d, out=[$out])",
                "bool($total.value[0].any()) and $noise.release($total, divisor=$d, out=[$out])",
            ),
        ),
    ),
    (
        "as many generated rows as private ones, as in the public code",
        [SHAPE],
        (
            CALL,
            (
                "$batches, $weights, $some = _stacked($3, $4, $2)",
                "size = max(1, int(($4 > -math.inf).sum()))\n$1, $2 = $1[:, :size], $2[:, :size]\n"
                "$batches, $weights, $some = _stacked($3, $4, $2)",
            ),
        ),
    ),
    # ---- what else the rows could move
    (
        "latents that follow the private rows",
        [ALONE],
        (TRAIN, ("torch.Generator().manual_seed(int($s))", "torch.Generator().manual_seed(int($s) + len($2))")),
    ),
    (
        "rows of a unit weigh as if they were units",
        [UNITS],
        (_sinkhorn._rows_of, ("1 / np.bincount($found)[$found]", "np.ones(len($found))")),
    ),
    # ---- the books
    (
        "noise multiplier below the charge",
        list(LEDGER.values()),
        (FIT, ("$fit.noise['training']", "0.9 * $fit.noise['training']")),
    ),
    (
        "a step more than charged",
        [LEDGER[ARRAYS]],
        (FIT, after("$training = $2.training", "$training = replace($training, steps=$training.steps + 1)")),
    ),
    (
        "sampling rate above the charge",
        [LEDGER[FRAME]],
        (FIT, after("$training = $2.training", "$training = replace($training, sampling_rate=0.1)")),
    ),
    (
        "denominator and number of rows from the data",
        [LEDGER[ARRAYS], *HIDDEN],
        (sizes_by_counts, ("$fit.sample_size($rows, $counted)", "float(len($rows))")),
    ),
    (
        "noise of the steps left out",
        [LEDGER[ARRAYS]],
        (TRAIN, ("$noise.release($total, divisor=$d, out=[$out])", "$out.copy_($total.value[0] / $d)")),
    ),
    (
        "steps that are not counted",
        [STEPS],
        (TRAIN, ("$plan.take_step()", "pass")),
    ),
    (
        "private rows kept in the codec",
        KEPT,
        (FIT, after(LEARNED, "object.__setattr__($codec, 'seen', $x[:5])")),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_dp_sinkhorn_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
