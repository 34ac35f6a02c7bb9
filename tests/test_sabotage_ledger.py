"""Sabotage of ledgers, receipts and charged plans is caught by a claim of an ordinary test."""

from __future__ import annotations

import _sabotage  # noqa: F401  puts the tests of the other rooms on the path
import pytest
import test_accountant as turns
import test_charged_plans as plans
import test_charged_steps as steps
import test_checkpoints as checkpoints
import test_filter as rules
import test_ledger as files
import test_ledger_chain as chain
from _sabotage import Claim, assert_caught, mutant_ids

from skdpgen.accounting import _ledger as ledgers
from skdpgen.accounting import _ledger_records as ledger_records
from skdpgen.accounting import _receipt as receipt
from skdpgen.accounting._filter import PrivacyFilter
from skdpgen.accounting._ledger import FileLedger, MemoryLedger
from skdpgen.dpsgd import _plan as charged

ROLLBACK = Claim(chain.test_a_ledger_put_back_to_an_earlier_state_is_refused)
PAST = Claim(chain.test_another_past_of_the_same_length_or_longer_is_refused)
EXCHANGED = Claim(chain.test_records_exchanged_by_sql_are_noticed)
OVER = Claim(chain.test_a_ledger_that_its_rule_would_have_refused_does_not_verify)
SUMS = Claim(chain.test_sums_that_understate_the_past_do_not_verify, "rdp")
SAME = Claim(chain.test_a_file_accepts_what_a_ledger_in_memory_accepts)
TOGETHER = [Claim(chain.test_charges_of_a_batch_that_fit_one_by_one_alone_do_not_verify, batch) for batch in (1, 2)]

# (sabotage, claims that catch it, (function, (old, new), ...) changed, ...)
MUTANTS = [
    ("a hash of the record alone", [EXCHANGED], (ledger_records.link, ("f'{$previous}\\n{$text}'", "f'\\n{$text}'"))),
    ("hashes not compared", [EXCHANGED], (FileLedger._rows, ("link($previous, $text) != $stated", "False"))),
    (
        "a shorter past accepted",
        [ROLLBACK],
        (FileLedger._check_length, ("$length < $seen.length", "False")),
        (
            FileLedger._rows,
            (
                "$3 is not None and $3.hash is not None",
                "$3 is not None and $3.length <= self._head($1)[0] and $3.hash is not None",
            ),
        ),
    ),
    ("another past accepted", [PAST], (FileLedger._rows, ("$then != $seen.hash", "False"))),
    (
        "a part of a head taken for the whole",
        [ROLLBACK],
        (FileLedger.verify, ("$hashes[int($length)] != $noted", "not $hashes[int($length)].startswith($noted)")),
    ),
    ("what was seen is forgotten", [ROLLBACK, PAST], (FileLedger._remember, ("self._seen = $now", "pass"))),
    ("stated sums believed", [SUMS], (ledger_records.agree, ("all($agree)", "True or all($agree)"))),
    ("the rule not replayed", [OVER], (ledger_records.replay, ("$rule.check", "lambda *_: None"))),
    (
        "charges of a batch replayed one by one",
        TOGETHER,
        (
            ledger_records.replay,
            ("$rule.check($totals, $batches[$record.entry.batch])", "$rule.check($totals, [$record.entry.charge])"),
        ),
    ),
    (
        "a file taken for unchanged by its time and size alone",
        [Claim(chain.test_a_charge_of_another_process_right_after_ones_own_is_not_overlooked)],
        (
            FileLedger._state,
            ("$3 is not None and $3.stamp == $stamp and $same", "$3 is not None and $3.stamp == $stamp"),
        ),
    ),
    (
        "charges that the disk may not have yet",
        [Claim(files.test_charges_are_on_the_disk_before_they_are_confirmed)],
        (FileLedger._run, ("'PRAGMA synchronous = EXTRA'", "'PRAGMA synchronous = OFF'")),
    ),
    (
        "a ledger that replaces the one made meanwhile",
        [Claim(files.test_of_two_that_create_one_ledger_the_second_leaves_it_alone)],
        (ledgers.create_ledger_file, ("os.link($draft, $path)", "os.replace($draft, $path)")),
    ),
    (
        "a ledger that replaces the one made meanwhile, without hard links",
        [Claim(files.test_of_two_that_create_one_ledger_without_hard_links_the_second_leaves_it_alone)],
        (ledgers._move_exclusively, ("os.O_CREAT | os.O_EXCL | os.O_WRONLY", "os.O_CREAT | os.O_WRONLY")),
    ),
    (
        "thresholds of declared fits not counted",
        [Claim(rules.test_every_sum_counts_an_entry_whatever_its_status, "planned", batch) for batch in (1, 2)],
        (
            PrivacyFilter.add,
            ("$totals.extra + $extra", "$totals.extra + ($extra if $4 != 'planned' else 0)"),
        ),
    ),
    (
        "a past that is read before the lock",
        [Claim(turns.only_one_of_two_charges_of_the_whole_budget_is_accepted, None)],
        (
            MemoryLedger.add,
            (
                "with self._lock:\n    $totals = self.totals($3)\n    $body",
                "$totals = self.totals($3)\nwith self._lock:\n    $body",
            ),
        ),
    ),
    ("running sum that stands still", [SAME], (PrivacyFilter.add, ("$totals.rdp + $rdp", "$totals.rdp"))),
    (
        "a planned charge used twice",
        [SAME],
        (
            FileLedger._planned,
            (
                "$record.entry is not None and $record.status == 'planned' and ($number not in $used)",
                "$record.entry is not None and $record.status == 'planned'",
            ),
        ),
    ),
    (
        "a planned charge in memory used twice",
        [SAME],
        (MemoryLedger.add, ("Entry($charges[0], self._entries[$k].batch, $status, $day)", "self._entries[$k]")),
    ),
    (
        "a ledger in memory that a child may charge",
        [Claim(plans.a_child_charges_a_file_for_itself_and_a_ledger_in_memory_not_at_all, "DP-SGD")],
        (MemoryLedger.detached, ("self._detached or process_identity() != self._process", "self._detached")),
    ),
    (
        "plans that were not charged are followed",
        [Claim(plans.a_plan_that_was_not_charged_is_not_followed, name) for name in ("DP-SGD", "subsets")],
        (charged.ChargedPlan.check_charged, ("not self.private", "not self._use.charged or not self.private")),
    ),
    (
        "charged plans train in every fork",
        [Claim(plans.no_plan_is_claimed_or_continued_beyond_a_fork, name) for name in ("term-wise", "balanced")],
        (charged.ChargedPlan.check_charged, ("self._use.charged[0] != process_identity()", "False")),
        (receipt.Receipt.cover, ("self._process != process_identity()", "False")),
    ),
    (
        "a plan followed twice",
        [Claim(plans.a_plan_that_was_not_charged_is_not_followed, "balanced")],
        (charged.ChargedPlan.claim, ("self._use.users[0] is not $user", "False")),
    ),
    (
        "steps that are compared before they are counted",
        [Claim(plans.two_threads_take_no_step_and_no_plan_twice_wherever_they_meet, "DP-SGD")],
        (
            charged.ChargedPlan.take_step,
            ("self._use.steps.append(None)", "pass"),
            (
                "if len(self._use.steps) > self.steps:\n    raise $error",
                "if len(self._use.steps) >= self.steps:\n    raise $error\nself._use.steps.append(None)",
            ),
        ),
    ),
    (
        "users of a plan that are compared before they are noted",
        [Claim(plans.two_threads_take_no_step_and_no_plan_twice_wherever_they_meet, "subsets")],
        (
            charged.ChargedPlan.claim,
            ("self._use.users.append($user)", "pass"),
            (
                "if self.private and self._use.users[0] is not $user:\n    raise $error",
                "if len(self._use.users) > 0 and self._use.users[0] is not $user:\n    raise $error\n"
                "self._use.users.append($user)",
            ),
        ),
    ),
    (
        "a charge that covers many plans",
        [Claim(plans.a_receipt_covers_what_was_charged_and_each_release_once, "DP-SGD")],
        (receipt.Receipt.cover, ("self._left = $left", "pass")),
    ),
    (
        "a receipt for any noise",
        [Claim(plans.a_receipt_covers_what_was_charged_and_each_release_once, "subsets")],
        (
            receipt._without,
            ("$there._replace(count=1) == $row._replace(count=1)", "$there.mechanism == $row.mechanism"),
        ),
    ),
    (
        "a receipt for any rate",
        [Claim(plans.a_receipt_covers_what_was_charged_and_each_release_once, name) for name in ("DP-SGD", "subsets")],
        (
            receipt._without,
            ("$there._replace(count=1) == $row._replace(count=1)", "$there[:2] == $row[:2]"),
        ),
    ),
    (
        "a receipt that is read before it is locked",
        [Claim(plans.one_charge_covers_one_plan_wherever_two_threads_meet, "term-wise")],
        (receipt.Receipt.cover, ("with self._lock:\n    $body", "if True:\n    $body")),
    ),
    (
        "steps that are written to the ledger after they were run",
        [Claim(checkpoints.a_killed_training_goes_on_and_runs_no_step_twice)],
        (
            charged.ChargedPlan.take_block,
            (
                "$use.record.take(self.block_size, begins=$begins)",
                "$use.record.take(self.block_size, begins=$use.granted == 2) if $use.granted else (2, 2)",
            ),
        ),
    ),
    (
        "steps that are not compared with the charge",
        [Claim(steps.test_steps_taken_together_are_those_that_were_charged)],
        (FileLedger.take_steps, ("min($count, $steps - $taken)", "$count")),
        (ledger_records.entries_of, ("$taken[$record.of] > $steps", "False")),
    ),
    (
        "too many steps verify",
        [Claim(steps.steps_that_were_not_charged_do_not_verify, (("takes", 4),), "more steps")],
        (ledger_records.entries_of, ("$taken[$record.of] > $steps", "False")),
    ),
    (
        "steps of any charge",
        [Claim(steps.test_steps_are_taken_from_nothing_but_the_charge_of_one_training)],
        (
            ledger_records._steps,
            ("$rows[0].count if $one_training and $entry.status != 'planned' else 0", "$rows[0].count if $rows else 0"),
        ),
    ),
    (
        "a training that begins twice",
        [Claim(steps.test_a_training_is_begun_once)],
        (FileLedger.take_steps, ("$begins != ($taken == 0)", "False")),
    ),
    (
        "steps that nobody took from the ledger",
        [Claim(steps.test_no_step_is_run_that_was_not_taken_from_the_ledger)],
        (charged.ChargedPlan.take_step, ("self._use.from_ledger", "False")),
    ),
    (
        "trainings resumed of which the ledger has no steps",
        [Claim(checkpoints.a_training_without_a_checkpoint_is_not_resumed)],
        (receipt.resume, ("if not $taken:\n    raise $error", "pass")),
    ),
    (
        "each resumed training with steps of its own",
        [Claim(checkpoints.trainings_resumed_twice_share_the_steps)],
        (
            charged.ChargedPlan.take_block,
            ("$use.record.take(self.block_size, begins=$begins)", "(2, $use.known + 2)"),
        ),
    ),
]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_ledgers_and_plans_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
