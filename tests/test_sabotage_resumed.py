"""Sabotage of fits that go on: whatever would repeat a release, or make two models of one charge, is caught."""

from __future__ import annotations

import pytest
from _sabotage import Claim, after, assert_caught, mutant_ids

from skdpgen.accounting import _ledger_records
from skdpgen.accounting._ledger import FileLedger
from skdpgen.nn._callbacks import FitBlocks
from skdpgen.synthesizers import _dp2vae_model
from skdpgen.synthesizers._base import ChargedFit
from skdpgen.synthesizers._checkpoint import FitCheckpoint

import test_fit_steps as ledgers  # isort: skip  beside the rooms of the tests, which _sabotage makes known
import test_resumed_fits as fits  # isort: skip

GOES_ON = {name: Claim(fits.a_killed_fit_goes_on, name) for name in ("dp-vae", "privae", "p3gm, mixture", "dp2-vae")}
ONE_MODEL = Claim(fits.one_process_at_a_time_goes_on_and_one_model_comes_of_it)
COPIES = [Claim(fits.copies_of_a_checkpoint_are_not_used_after_the_end, where) for where in (2, fits.STEPS)]
STEPS, ONE_PROCESS = (
    Claim(ledgers.steps_of_a_fit_are_those_that_were_charged_and_it_ends_once),
    Claim(ledgers.one_process_at_a_time_goes_on),
)
FORGED = {
    name: Claim(ledgers.records_that_no_fit_wrote_do_not_verify, *ledgers.CHANGES[name])
    for name in ("more steps than charged", "steps after the end", "a block without a file")
}

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    # ---- a step that is repeated
    (
        "the last step before a kill repeated",
        [GOES_ON["dp-vae"], GOES_ON["dp2-vae"]],
        (
            _ledger_records.fit_steps_of,
            ("sum($later.takes for $later in $own)", "max(0, sum($later.takes for $later in $own) - 1)"),
        ),
        (FileLedger._write_fit, ("$fit.end is not None or $fit.taken != $known", "$fit.end is not None")),
        (_ledger_records.entries_of, ("$taken[$record.of] > $steps", "False")),
    ),
    (
        "steps that are not compared with the charge",
        [STEPS],
        (FileLedger.take_fit_steps, ("min($count, $found.steps - $found.taken)", "$count")),
        (_ledger_records.entries_of, ("$taken[$record.of] > $steps", "False")),
    ),
    (
        "too many steps verify",
        [FORGED["more steps than charged"]],
        (_ledger_records.entries_of, ("$taken[$record.of] > $steps", "False")),
    ),
    (
        "steps of a fit taken as those of a training alone",
        [FORGED["a block without a file"]],
        (_ledger_records._steps, ("if $of_fit:\n    $body\nelse:\n    $rest", "if True:\n    $body")),
        (_ledger_records.entries_of, ("$of_fits.setdefault($rest) != $of_fit", "False")),
    ),
    # ---- a release that is drawn again
    (
        "the releases before the training drawn again",
        [GOES_ON["dp-vae"], GOES_ON["p3gm, mixture"], GOES_ON["privae"]],
        (FitCheckpoint.facts, ("if self.resumed:\n    return $restore(self._facts)", "pass")),
        (ChargedFit.noise, ("self.checkpoint is None or not self.checkpoint.resumed", "True")),
    ),
    # ---- two models of one charge
    (
        "a checkpoint accepted after the end of its fit",
        COPIES,
        (FitCheckpoint._check_file, ("$found.end is not None and $digest != $found.end", "False")),
    ),
    (
        "two processes that go on with one fit",
        [ONE_PROCESS, ONE_MODEL],
        (FileLedger._write_fit, ("$fit.end is not None or $fit.taken != $known", "False")),
    ),
    (
        "steps after the end verify",
        [FORGED["steps after the end"]],
        (
            _ledger_records.entries_of,
            ("$record.of in $ended or ($record.ends and $taken[$record.of] < $steps)", "False"),
        ),
    ),
    # ---- what is believed
    (
        "any file accepted",
        [Claim(fits.an_edited_checkpoint_is_refused, fits.edit_counts)],
        (FitCheckpoint._check_file, ("$digest not in ($found.files | {$found.end})", "False")),
    ),
    (
        "a training that begins at the seed and not at the file",
        [Claim(fits.a_training_begins_where_the_file_left_it)],
        (FitBlocks.__init__, ("$file.training is None", "True")),
    ),
    # ---- what is written
    (
        "an encoder that was trained on private rows in the file",
        [Claim(fits.the_file_holds_released_values_alone, "dp2-vae")],
        (
            _dp2vae_model._train,
            after(
                "$stack = $make($encoder, $parameters, $rows, $likelihood, $training, policy=$policy)",
                "[p.data.copy_(q[0]) for p, q in zip($encoder.parameters(), $parameters)]",
            ),
        ),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_fits_that_go_on_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
