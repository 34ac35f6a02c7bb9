"""Trainings that go on after a kill: no step beyond those charged, whoever resumes, and nothing private in a file."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from _forks import in_a_fork, start_in_a_fork
from safetensors.torch import load_file, save_file
from skorch.callbacks import Callback

from skdpgen.accounting import PrivacyAccountant, compose_events, gaussian_event
from skdpgen.accounting._receipt import read_header
from skdpgen.dpsgd import DPSGDPlan, TermwisePlan
from skdpgen.dpsgd._plan import PartedPlan
from skdpgen.dpsgd._termwise import WholeBatchPlan
from skdpgen.exceptions import LedgerError
from skdpgen.nn import DPNet, DPNetClassifier, ParameterAverage
from skdpgen.testing import seeded_noise
from skdpgen.utils.watching import watch_releases

X = np.random.default_rng(0).random((30, 4)).astype("float32")
NAMES = ("sampling_rate", "steps", "l2_bound", "noise_multiplier", "expected_batch_size")
STEPS = 101  # in blocks of two, and one at the end


class Squares(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(4))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x):
        return (x - self.w).square().sum(1)

    def group_losses(self, x, members, *_):
        return (((x - self.w) * members[..., None]).sum(1)).square().sum(1)


class At(Callback):
    """Do something at the end of a step."""

    def __init__(self, step, call):
        self.step, self.call = step, call

    def on_batch_end(self, net, step=None, **_):
        if step == self.step:
            self.call()


def interrupt():
    raise KeyboardInterrupt


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def make_plan(**changes):
    return DPSGDPlan(**{**dict(zip(NAMES, (0.5, STEPS, 1.0, 10.0, 15.0))), **changes})


def make_net(plan, path, **options):
    return DPNet(Squares, plan=plan, checkpoint=path, verbose=0, **options)


def train(plan, path, **options):
    return make_net(plan, path, **options).fit(X)


def interrupted(accountant, path, at=10, plan=None, **options):
    """A training that stops after a step, in the middle of a block or at its end."""
    plan = make_plan() if plan is None else plan
    accountant.charge(plan, "training")
    return starts(plan, path, at, **options)


def starts(plan, path, at=1, **options):
    net = make_net(plan, path, callbacks=[At(at, interrupt)], **options)
    with pytest.raises(KeyboardInterrupt):
        net.fit(X)
    return net


def counted(path, call):
    """Call, and note each release in a file that processes share."""
    with open(path, "ab", buffering=0) as file, watch_releases(lambda *_: file.write(b".") and None):
        call()


@contextmanager
def workplace():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        yield folder, PrivacyAccountant(50.0, ledger=folder / "budget.db"), folder / "training.safetensors"


@pytest.fixture
def place():
    with workplace() as found:
        yield found


def taken(accountant):
    return accountant._ledger.steps_of(1, accountant._filter)[2]


# ---- no step beyond those charged --------------------------------------------------------------------------------
def a_killed_training_goes_on_and_runs_no_step_twice():
    with workplace() as (folder, accountant, path):
        releases = folder / "releases"

        def child():
            plan = make_plan()
            accountant.charge(plan, "training")
            counted(releases, lambda: train(plan, path, callbacks=[At(37, kill)]))

        assert in_a_fork(child) == ""
        assert (releases.stat().st_size, taken(accountant), read_header(path).steps) == (37, 38, 36)
        fresh = PrivacyAccountant(ledger=folder / "budget.db")
        plan = fresh.resume(make_plan(), path)
        assert plan.steps_taken == 38
        net = make_net(plan, path)
        counted(releases, lambda: net.fit(X))
        assert releases.stat().st_size == STEPS - 1  # one step of a block was lost
        assert (taken(fresh), plan.steps_taken, net.steps_taken_, read_header(path).steps) == (STEPS,) * 4
        assert fresh.verify()["charges"] == 1
        refused(lambda: fresh.resume(make_plan(), path), RuntimeError, f"all {STEPS} steps .* were taken")
        again = DPNet(Squares, verbose=0).load_checkpoint(path)
        assert torch.equal(again.module_.w, net.module_.w)
        assert taken(fresh) == STEPS


def trainings_resumed_twice_share_the_steps():
    with workplace() as (folder, accountant, path):
        counted(folder / "releases", lambda: interrupted(accountant, path, at=10))
        copied = shutil.copy(path, folder / "copy.safetensors")

        def child(path):
            plan = PrivacyAccountant(ledger=folder / "budget.db").resume(make_plan(), path)
            counted(folder / "releases", lambda: train(plan, path))

        waits = [start_in_a_fork(lambda path=path: child(path)) for path in (path, path, copied)]
        assert [wait() for wait in waits] == [""] * 3
        assert (folder / "releases").stat().st_size <= STEPS
        assert taken(accountant) == STEPS
        assert accountant.verify()["charges"] == 1


def test_killed_trainings_go_on():
    a_killed_training_goes_on_and_runs_no_step_twice()


def test_resumed_trainings_share():
    trainings_resumed_twice_share_the_steps()


def test_an_interrupted_training_goes_on_in_its_own_process_beside_a_resumed_one(place):
    _, accountant, path = place
    net = interrupted(accountant, path, at=91)
    resumed = accountant.resume(make_plan(), path)
    train(resumed, path)
    assert resumed.steps_granted == 0
    net.set_params(callbacks=[]).initialize_callbacks()
    net.partial_fit(X)  # what it had taken itself is run, and nothing else is left
    assert net.steps_taken_ == net.plan.steps_taken == taken(accountant) == STEPS


def test_a_training_with_a_checkpoint_is_the_training_without_one(place):
    _, accountant, path = place
    weights = []
    for checkpoint in (None, path):
        plan = make_plan(steps=12)
        accountant.charge(plan, "training", private=False)
        with seeded_noise(7, quiet=True):
            weights.append(train(plan, checkpoint, callbacks=[ParameterAverage(0.5)]).module_.w)
    assert torch.equal(*weights)
    assert torch.equal(load_file(path)["parameters.module.w"], weights[1].detach())
    assert (taken_of(accountant, 1), taken_of(accountant, 2)) == (0, 12)


def taken_of(accountant, number):
    return accountant._ledger.steps_of(number, accountant._filter)[2]


# ---- what is in the file -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("optimizer", "options"),
    [(torch.optim.Adam, {}), (torch.optim.SGD, {"optimizer__momentum": 0.9}), (torch.optim.SGD, {})],
)
def test_a_resumed_optimiser_has_the_state_that_was_saved(place, optimizer, options):
    _, accountant, path = place
    net = interrupted(accountant, path, at=10, optimizer=optimizer, **options)
    saved, w = copy.deepcopy(net.optimizer_.state_dict()["state"]), net.module_.w.detach().clone()
    assert read_header(path).steps == 8  # written when the next block is taken: the interruption came before
    net.set_params(callbacks=[At(11, interrupt)]).initialize_callbacks()
    with pytest.raises(KeyboardInterrupt):
        net.partial_fit(X)
    assert read_header(path).steps == 10
    fresh = make_net(None, None, optimizer=optimizer, lr=0.5, **options).load_checkpoint(path)
    assert torch.equal(fresh.module_.w, w)
    loaded = fresh.optimizer_.state_dict()["state"]
    assert [part.keys() for part in loaded.values()] == [part.keys() for part in saved.values()]
    for name, value in saved.get(0, {}).items():
        assert loaded[0][name] is value is None or torch.equal(loaded[0][name], value)
    assert fresh.optimizer_.param_groups[0]["lr"] == 0.5  # the net's own


def test_a_resumed_training_begins_at_the_saved_parameters_and_moments(place):
    _, accountant, path = place
    interrupted(accountant, path, at=10)
    found = []

    class First(Callback):
        def on_batch_begin(self, net, **_):
            if not found:
                found.extend((net.module_.w.detach().clone(), net.optimizer_.state_dict()["state"][0]))

    net = make_net(accountant.resume(make_plan(), path), path, callbacks=[First(), At(14, interrupt)])
    saved = load_file(path)
    with pytest.raises(KeyboardInterrupt):
        net.fit(X)
    assert torch.equal(found[0], saved["parameters.module.w"])
    assert {name: value.shape for name, value in found[1].items()} == {
        name.removeprefix("optimizer.0."): value.shape for name, value in saved.items() if name.startswith("optimizer")
    }
    assert found[0].abs().sum() > 0


def test_a_checkpoint_holds_released_parameters_the_optimiser_and_public_numbers_alone(place):
    _, accountant, path = place
    interrupted(accountant, path)
    moments = {f"optimizer.0.{name}" for name in ("exp_avg", "exp_avg_sq", "step")}
    assert load_file(path).keys() == {"parameters.module.w", *moments}
    header = _header(path)
    assert header.keys() == {"format", "version", "ledger", "record", "plan", "steps", "optimizer"}
    assert (header["record"], header["steps"], header["optimizer"]) == (1, 8, {})
    assert header["plan"] == {
        "kind": "DPSGDPlan",
        **dict(zip(NAMES, (0.5, STEPS, 1.0, 10.0, 15.0))),
        "neighboring": "add_or_remove_one",
    }


def _header(path):
    content = path.read_bytes()
    outer = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(outer["__metadata__"]["skdpgen"])


def rewrite(path, tensors=None, **fields):
    save_file(
        {**load_file(path), **(tensors or {})}, path, metadata={"skdpgen": json.dumps({**_header(path), **fields})}
    )


# ---- refused, with nothing used ----------------------------------------------------------------------------------
def refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def a_training_without_a_checkpoint_is_not_resumed():
    with workplace() as (folder, accountant, path):
        begun = folder / "other.safetensors"
        interrupted(accountant, begun)
        plan = make_plan()
        accountant.charge(plan, "without")
        starts(plan, None)
        shutil.copy(begun, path)
        rewrite(path, record=int(accountant.verify()["head"].split(":")[0]), steps=0)
        refused(lambda: accountant.resume(make_plan(), path), RuntimeError, "not begun with a checkpoint")


def test_trainings_without_a_checkpoint_stay_lost():
    a_training_without_a_checkpoint_is_not_resumed()


def test_another_plan_ledger_or_accountant_does_not_resume(place):
    folder, accountant, path = place
    interrupted(accountant, path)
    before = taken(accountant)
    changes = [{"steps": 102}, {"noise_multiplier": 9.0}, {"sampling_rate": 0.4}, {"l2_bound": 2.0}]
    changes += [{"expected_batch_size": 14.0}, {"neighboring": "replace_one"}]
    for change in changes:
        refused(lambda change=change: accountant.resume(make_plan(**change), path), RuntimeError, "another plan")
    termwise = TermwisePlan(0.5, STEPS, 10.0, 15.0, n_groups=2)
    refused(lambda: accountant.resume(termwise, path), RuntimeError, "another plan")
    other = PrivacyAccountant(50.0, ledger=folder / "other.db")
    refused(lambda: other.resume(make_plan(), path), LedgerError, "charged to another ledger")
    refused(lambda: PrivacyAccountant(50.0).resume(make_plan(), path), ValueError, "from a ledger file")
    charged = make_plan()
    other.charge(charged, "its own")
    refused(lambda: accountant.resume(charged, path), RuntimeError, "charged before")
    plan = accountant.resume(make_plan(max_physical_batch=7), path)  # a matter of memory alone
    assert taken(accountant) == before
    refused(lambda: accountant.resume(plan, path), RuntimeError, "charged before")
    refused(lambda: train(plan, None), RuntimeError, "has a checkpoint: give checkpoint=")
    refused(lambda: train(plan, folder / "elsewhere.safetensors"), FileNotFoundError, "resume")
    assert taken(accountant) == before
    assert len(accountant.charges) == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 90}, "restored to an earlier state"),
        ({"record": 99}, "does not fit the ledger"),
        ({"record": 2}, "does not fit the ledger"),  # a block of steps
        ({"record": "1"}, "other types"),
        ({"steps": -1}, "other types"),
        ({"plan": []}, "other types"),
        ({"ledger": "x"}, "another ledger"),
        ({"format": "skdpgen-checkpoint/9"}, "newer version"),
        ({"more": 1}, "not a checkpoint"),
    ],
)
def test_a_forged_header_is_refused(place, fields, message):
    _, accountant, path = place
    interrupted(accountant, path)
    rewrite(path, **fields)
    refused(lambda: accountant.resume(make_plan(), path), (ValueError, LedgerError), message)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"parameters.module.w": torch.zeros(5)}, "another shape"),
        ({"parameters.module.w": torch.zeros(4, dtype=torch.float64)}, "another shape or dtype"),
        ({"parameters.module.w": torch.full((4,), torch.nan)}, "NaN or infinity"),
        ({"optimizer.0.exp_avg": torch.full((4,), torch.inf)}, "NaN or infinity"),
        ({"optimizer.1.exp_avg": torch.zeros(4)}, "not part of it"),
        ({"parameters.module.seen": torch.zeros(3)}, "not part of it"),
    ],
)
def test_forged_parameters_are_refused_and_no_step_is_used(place, tensors, message):
    _, accountant, path = place
    interrupted(accountant, path)
    rewrite(path, tensors)
    before, plan = taken(accountant), accountant.resume(make_plan(), path)
    refused(lambda: train(plan, path), ValueError, message)
    assert taken(accountant) == before
    net = make_net(None, None).initialize()
    refused(lambda: net.load_checkpoint(path), ValueError, message)
    assert not net.module_.w.any()


def test_files_that_are_no_checkpoints_are_refused(place):
    folder, accountant, path = place
    plan = make_plan()
    accountant.charge(plan, "training")
    for content in (b"", b"x" * 100, (2**60).to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        refused(lambda: accountant.resume(make_plan(), path), ValueError, "not a checkpoint")
        refused(lambda: train(plan, path), ValueError, "not a checkpoint")
        assert path.read_bytes() == content
    refused(lambda: train(plan, folder / "training.pt"), ValueError, "must end in .safetensors")
    refused(lambda: train(plan, folder / "no folder" / "t.safetensors"), OSError, "No such file")
    starts(plan, folder / "now.safetensors")  # nothing was used up


def test_a_checkpoint_of_another_training_is_not_overwritten(place):
    _, accountant, path = place
    interrupted(accountant, path)
    content, plan = path.read_bytes(), make_plan()
    accountant.charge(plan, "another")
    refused(lambda: train(plan, path), RuntimeError, "checkpoint of another training; it is not overwritten")
    assert path.read_bytes() == content
    assert plan.steps_taken == 0
    starts(plan, None)


def test_a_checkpoint_that_another_training_puts_there_meanwhile_is_not_overwritten(place):
    folder, accountant, path = place
    other = folder / "other.safetensors"
    interrupted(accountant, other)
    plan = make_plan(steps=12)
    accountant.charge(plan, "training")
    net = make_net(plan, path, callbacks=[At(5, lambda: shutil.copy(other, path))])
    refused(lambda: net.fit(X), RuntimeError, "checkpoint of another training")
    assert path.read_bytes() == other.read_bytes()
    net.set_params(checkpoint=folder / "new.safetensors", callbacks=[]).initialize_callbacks()
    assert net.partial_fit(X).steps_taken_ == 12
    assert read_header(folder / "new.safetensors").steps == 12


def test_a_checkpoint_needs_a_charge_of_the_training_alone_to_a_file(place):
    _, accountant, path = place
    alone, beside, free = make_plan(), make_plan(), make_plan(noise_multiplier=0.0)
    PrivacyAccountant(50.0).charge(alone, "in memory")
    accountant.charge(compose_events([beside.event, gaussian_event(9.0)]), "fit").cover(beside)
    for plan in (alone, beside):
        refused(lambda plan=plan: train(plan, path), ValueError, "charged to a ledger file, alone")
    refused(lambda: train(free, path), ValueError, "plans with noise")
    assert not path.exists()
    starts(alone, None), starts(beside, None)
    refused(
        lambda: DPNetClassifier(bounds=(0, 1), classes=[0, 1], net=make_net(None, path)).fit(X, np.arange(30) % 2),
        ValueError,
        "net must have checkpoint=None",
    )


def test_a_training_does_not_change_whether_it_has_a_checkpoint(place):
    _, accountant, path = place
    net = interrupted(accountant, path)
    net.set_params(checkpoint=None)
    refused(lambda: net.partial_fit(X), RuntimeError, "has a checkpoint: give checkpoint=")
    net = interrupted(accountant, None)
    net.set_params(checkpoint=path)
    refused(lambda: net.partial_fit(X), RuntimeError, "began without a checkpoint")


def test_an_optimiser_whose_state_is_no_tensors_is_refused_before_anything_is_used(place):
    class Odd(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            self.state[self.param_groups[0]["params"][0]]["odd"] = object()

    _, accountant, path = place
    plan = make_plan()
    accountant.charge(plan, "training")
    refused(lambda: train(plan, path, optimizer=Odd), ValueError, "has 'odd', of type object")
    assert taken(accountant) == 0
    starts(plan, path)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TermwisePlan(0.5, 12, 10.0, 15.0, n_groups=2),
        lambda: WholeBatchPlan(0.5, 12, 10.0, 15.0, aggregation="micro"),
    ],
    ids=["term-wise", "whole batch"],
)
def test_trainings_under_other_plans_go_on(place, make):
    _, accountant, path = place
    interrupted(accountant, path, at=5, plan=make())
    net = train(accountant.resume(make(), path), path)
    assert net.steps_taken_ == taken(accountant) == 12


def test_numbers_of_a_plan_of_parts_are_those_that_a_file_holds():
    sizes = tuple(np.array([5.0, 10.0]))
    plan = PartedPlan(0.5, 12, 1.0, 10.0, 15.0, part_batch_sizes=sizes)
    assert json.loads(json.dumps(plan.numbers)) == plan.numbers
    assert plan.numbers != PartedPlan(0.5, 12, 1.0, 10.0, 15.0, part_batch_sizes=sizes[:1]).numbers
