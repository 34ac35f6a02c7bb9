"""Fits that go on after a kill: one charge, no release twice, one model, and nothing private in the file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from _flat import make_flat
from _forks import in_a_fork
from safetensors.numpy import load_file, save_file
from skorch.callbacks import Callback

import skdpgen
from skdpgen import (
    DP2VAESynthesizer,
    DPGMSynthesizer,
    DPVAESynthesizer,
    LatentMixture,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivacyUnit,
    PriVAESynthesizer,
    PrivateSearchCV,
)
from skdpgen._parameters import read_unit
from skdpgen.exceptions import InvalidInputError, LedgerError, UtilityWarning
from skdpgen.nn import DPNet, P3GMModule, PriVAEModule, _dp2vae_training
from skdpgen.synthesizers import _checkpoint, _p3gm_decoder
from skdpgen.testing import seeded_noise
from skdpgen.testing._replay import fit_along
from skdpgen.utils.strict_json import read_safetensors
from skdpgen.utils.watching import watch_releases

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]

N, STEPS = 60, 8
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4)).clip(-1, 1)
Y = RNG.integers(0, 2, N)
PERSONS = RNG.integers(0, 25, N)
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.where(Y, "yes", "no")})
# steps of every record are priced in closed form, where a rate below 1 would take a second
TRAINED = {"epsilon": 20.0, "steps": STEPS, "sampling_rate": 1.0, "n_components": 2}
SUBSETS = {
    **{"epsilon": 20.0, "steps": STEPS, "n_subsets": 5, "subsets_per_step": 5, "pretrain_steps": 2},
    "n_components": 2,
}

AE = DPNet(P3GMModule, module__latent_variance="zero")
# name -> (class, parameters, data)
FITS = {
    "p3gm": (P3GMSynthesizer, {**TRAINED, "decoder": "net", "warm_start_steps": 2}, (X, Y)),
    "p3gm, mixture": (
        P3GMSynthesizer,
        {**TRAINED, "decoder": "net", "prior": LatentMixture(n_iter=2), "warm_start_steps": 2},
        (X, Y),
    ),
    "p3gm, frame": (
        P3GMSynthesizer,
        {
            **TRAINED,
            "decoder": "net",
            "warm_start_steps": 2,
            "target": "c",
            "net": AE,
        },
        (FRAME,),
    ),
    "p3gm, refined frame": (P3GMSynthesizer, {**TRAINED, "decoder": "net", "target": "c"}, (FRAME,)),
    "privae": (PriVAESynthesizer, {**TRAINED, "divergence": "mmd", "n_groups": 2}, (X, Y)),
    "privae, replace": (
        PriVAESynthesizer,
        {**TRAINED, "prior": "mixture", "neighboring": "replace_one", "bounds": (-1, 1)},
        (X,),  # nothing is released before the training
    ),
    "dp-vae": (DPVAESynthesizer, {**TRAINED, "warm_start_steps": 0}, (FRAME,)),
    "dp-vae, from moments": (DPVAESynthesizer, {**TRAINED, "warm_start_steps": 3}, (FRAME,)),
    "privae, from moments": (
        PriVAESynthesizer,
        {**TRAINED, "divergence": "mmd", "n_groups": 2, "warm_start_steps": 3},
        (X, Y),
    ),
    "dp-gm": (DPGMSynthesizer, {**TRAINED, "n_clusters": 2, "cluster_steps": 2}, (X, Y)),
    "dp2-vae": (DP2VAESynthesizer, {**SUBSETS, "warm_start_steps": 3}, (X, Y)),
    "dp2-vae, images": (
        DP2VAESynthesizer,
        {
            **{**SUBSETS, "epsilon": 45.0, "warm_start_steps": 3, "image_shape": (2, 2), "bounds": (-1, 1)},
            "budget_split": {"moments": 1, "features": 1, "decoder": 1},
        },
        (X, Y),
    ),
    # for persons: a learned number of rows, and the count of rows where persons count, are releases too
    "p3gm, units": (
        P3GMSynthesizer,
        {**TRAINED, "decoder": "net", "warm_start_steps": 2, "unit": PrivacyUnit(max_rows=2, weighting="units")},
        (X, Y, PERSONS),
    ),
    "privae, units": (
        PriVAESynthesizer,
        {**TRAINED, "divergence": "mmd", "n_groups": 2, "unit": PrivacyUnit(weighting="units")},
        (X, Y, PERSONS),
    ),
    "dp-vae, units": (
        DPVAESynthesizer,
        {**TRAINED, "unit": "pid", "max_rows_per_unit": 2, "neighboring": "replace_one", "warm_start_steps": 0},
        (FRAME.assign(pid=PERSONS),),
    ),
    "dp-gm, units": (
        DPGMSynthesizer,
        {**TRAINED, "n_clusters": 2, "cluster_steps": 2, "unit": PrivacyUnit(max_rows=2, weighting="units")},
        (X, Y, PERSONS),
    ),
    "dp-gm, one cluster, units": (
        DPGMSynthesizer,
        {**TRAINED, "n_clusters": 1, "unit": "pid", "max_rows_per_unit": 2},
        (FRAME.assign(pid=PERSONS),),
    ),
    "dp2-vae, units": (
        DP2VAESynthesizer,
        {**SUBSETS, "warm_start_steps": 3, "unit": PrivacyUnit(max_rows=2, weighting="units")},
        (X, Y, PERSONS),
    ),
    "dp2-vae, drawn, units": (
        DP2VAESynthesizer,
        {**SUBSETS, "encoder_update": "on_query", "warm_start_steps": 0, "unit": PrivacyUnit("pid", weighting="units")},
        (FRAME.assign(pid=PERSONS),),
    ),
    "dp2-vae, drawn": (DP2VAESynthesizer, {**SUBSETS, "encoder_update": "on_query", "warm_start_steps": 0}, (FRAME,)),
}
FAST = "dp-vae"


def make(name, accountant, path, **changes):
    kind, parameters, _ = FITS[name]
    return make_flat(kind, **{**parameters, "accountant": accountant, "checkpoint": path, **changes})


def fit(name, accountant, path, **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)  # so few rows
        return make(name, accountant, path, **changes).fit(*FITS[name][2])


def unit_of_fit(name):
    """Whom the ledger of a fit protects."""
    return read_unit(FITS[name][1]).label if "unit" in FITS[name][1] else None


@contextmanager
def workplace(relation=None, unit=None):
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        yield (
            folder,
            PrivacyAccountant(50.0, neighboring=relation, unit=unit, ledger=folder / "budget.db"),
            folder / "fit.safetensors",
        )


@pytest.fixture
def place():
    with workplace() as found:
        yield found


class StopError(Exception):
    """Ends a fit in the place of a kill."""


@contextmanager
def after_release(count, kind, act):
    """Do something at the `count`-th release of a kind that fits make in the block; yield the numbers of releases."""
    seen = {"plain": 0, "gradient": 0}

    def observe(released, sd, found):
        seen[found] += 1
        if found == kind and seen[found] == count:
            act()

    with watch_releases(observe):
        yield seen


def stop():
    raise StopError


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted(name, accountant, path, count=3, kind="gradient", **changes):
    """A fit that ends at a release; its releases."""
    with after_release(count, kind, stop) as seen, pytest.raises(StopError):
        fit(name, accountant, path, **changes)
    return seen


def taken(accountant, number=1):
    return accountant._ledger.fit_steps_of(number, accountant._filter).taken


def refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


# ---- a kill, and the same call again -----------------------------------------------------------------------------
def a_killed_fit_goes_on(name):
    """Kill a fit at its third step; the same call ends it, and what both released is what was charged, once."""
    relation = FITS[name][1].get("neighboring")
    with workplace(relation, unit_of_fit(name)) as (folder, accountant, path):
        log = folder / "releases"

        def child():
            with log.open("ab", buffering=0) as file:

                def note(released, sd, kind):
                    file.write(kind[:1].encode())
                    if log.read_bytes().count(b"g") == 3:
                        kill()

                with watch_releases(note):
                    fit(name, accountant, path)

        assert in_a_fork(child, 60) == ""
        first = log.read_bytes()
        assert first.count(b"g") == 3, "not killed at its third step"
        ledger = folder / "budget.db"
        with after_release(0, "", None) as second:
            made = fit(name, PrivacyAccountant(ledger=ledger), path)
        charge = PrivacyAccountant(ledger=ledger).charges[0]
        plain = sum(row.count for row in charge.releases if row.mechanism == "gaussian")
        assert (first.count(b"p"), second["plain"]) == (plain, 0), "an earlier release was drawn again"
        assert 3 + second["gradient"] == STEPS, "steps that ran are not those that were charged"
        fresh = PrivacyAccountant(ledger=ledger)
        found = fresh._ledger.fit_steps_of(1, fresh._filter)
        assert (found.taken, found.steps, found.end is None) == (STEPS, STEPS, False)
        assert fresh.verify()["charges"] == 1
        assert made.accountant_.ledger == str(ledger)
        made.card_.verify()
        assert made.card_["private"]
        assert "checkpoint" not in made.card_["model"]["parameters"]
        _is_the_model(path, made)
        with pytest.raises(RuntimeError, match="holds a released model: its fit is complete"):
            fit(name, PrivacyAccountant(ledger=ledger), path)
        assert fresh.verify()["charges"] == 1


def _is_the_model(path, made):
    loaded, one, other = skdpgen.load(path), made.sample(20, random_state=0), None
    other = loaded.sample(20, random_state=0)
    for a, b in zip(*((drawn if isinstance(drawn, tuple) else (drawn,)) for drawn in (one, other))):
        assert pd.DataFrame(a).equals(pd.DataFrame(b))
    assert loaded.card_ == made.card_


@pytest.mark.parametrize("name", FITS)
def test_a_killed_fit_goes_on(name):
    a_killed_fit_goes_on(name)


def test_blocks_of_steps_are_lost_and_never_repeated(place):
    """Of 101 steps in blocks of two: the one that was taken and not run is lost."""
    folder, accountant, path = place
    seen = interrupted(FAST, accountant, path, 35, steps=101)
    assert (seen["gradient"], taken(accountant), _header(path)["steps"]) == (35, 36, 34)
    with after_release(0, "", None) as rest:
        fit(FAST, PrivacyAccountant(ledger=folder / "budget.db"), path, steps=101)
    assert rest == {"plain": 0, "gradient": 65}
    assert (taken(accountant), len(accountant.charges)) == (101, 1)


def test_fits_go_on_as_often_as_they_are_interrupted(place):
    _, accountant, path = place
    for _ in range(3):
        interrupted(FAST, accountant, path, 2)
    fit(FAST, accountant, path).card_.verify()
    assert len(accountant.charges) == 1


def test_the_note_of_an_interrupted_fit_says_how_it_goes_on(place):
    def interrupt():
        raise KeyboardInterrupt

    _, accountant, path = place
    for _ in range(2):
        with after_release(2, "gradient", interrupt), pytest.raises(KeyboardInterrupt) as error:
            fit(FAST, accountant, path)
        (note,) = error.value.__notes__
        assert "this fit was charged epsilon 20 at delta 1e-05; a charge is never refunded" in note
        assert note.endswith(f"; the same call goes on from {path}, and charges nothing more")
    fit(FAST, accountant, path)
    assert len(accountant.charges) == 1


def test_the_note_of_a_fit_that_cannot_go_on_promises_nothing(place):
    def interrupt():
        raise KeyboardInterrupt

    _, accountant, path = place
    with after_release(1, "plain", interrupt), pytest.raises(KeyboardInterrupt) as error:
        fit(FAST, accountant, path)
    assert error.value.__notes__[0].endswith("a charge is never refunded")
    refused(lambda: fit(FAST, accountant, path), RuntimeError, "ended before its first releases were written")


def test_a_fit_that_ended_between_the_ledger_and_the_file_goes_on(place, monkeypatch):
    """The ledger knows the hash of the file that was not written; the one before it is still there, and known."""
    _, accountant, path = place
    write, calls = _checkpoint.write_atomically, []

    def fifth_fails(target, content):
        calls.append(content)
        if len(calls) == 5:  # after the charge, the releases, and two steps
            raise StopError
        write(target, content)

    with monkeypatch.context() as patch:
        patch.setattr(_checkpoint, "write_atomically", fifth_fails)
        refused(lambda: fit(FAST, accountant, path), StopError, None)
    assert (taken(accountant), _header(path)["steps"]) == (4, 2)
    with after_release(0, "", None) as seen:
        fit(FAST, accountant, path)
    assert seen == {"plain": 0, "gradient": STEPS - 4}


def test_a_fit_that_was_declared_beforehand_goes_on(place):
    _, accountant, path = place
    accountant.plan([make(FAST, accountant, path).plan(FRAME)])
    interrupted(FAST, accountant, path)
    fit(FAST, accountant, path).card_.verify()
    assert [entry.status for entry in accountant.entries] == ["charged"]
    assert accountant.verify()["charges"] == 1


@pytest.mark.parametrize("name", ["p3gm", "dp2-vae"])
def test_a_fit_that_ended_before_its_first_step_goes_on(place, monkeypatch, name):
    """What was released is in the file before the networks are made: their initialisation is not lost with it."""
    _, accountant, path = place
    with monkeypatch.context() as patch:
        patch.setattr(DPNet, "_run_steps", lambda *_: stop())
        patch.setattr("skdpgen.nn._dp2vae_training.pretrain_encoders", lambda *_, **__: stop())
        refused(lambda: fit(name, accountant, path), StopError, None)
    assert _header(path)["training"] is None
    with after_release(0, "", None) as seen:
        fit(name, accountant, path)
    assert seen == {"plain": 0, "gradient": STEPS - 1}


@pytest.mark.parametrize("name", ["dp-vae", "p3gm, mixture", "dp-gm", "dp2-vae"])
def test_releases_that_were_not_written_are_not_drawn_again(place, name):
    _, accountant, path = place
    with after_release(1, "plain", stop), pytest.raises(StopError):
        fit(name, accountant, path)
    with after_release(0, "", None) as seen:
        refused(lambda: fit(name, accountant, path), RuntimeError, "ended before its first releases were written")
    assert seen == {"plain": 0, "gradient": 0}
    assert len(accountant.charges) == 1
    os.remove(path)
    fit(name, accountant, path, epsilon=1.0)
    assert len(accountant.charges) == 2


@pytest.mark.parametrize("name", ["dp-vae", "dp2-vae"])
@pytest.mark.parametrize("when", ["in the last step", "before the model is written"])
def test_a_fit_that_ended_with_no_step_left_makes_its_model(place, monkeypatch, name, when):
    _, accountant, path = place
    if when == "in the last step":
        interrupted(name, accountant, path, STEPS)
        assert taken(accountant) == STEPS
    else:
        with monkeypatch.context() as patch:
            patch.setattr(_checkpoint.FitCheckpoint, "complete", lambda *_: stop())
            refused(lambda: fit(name, accountant, path), StopError, None)
    with after_release(0, "", None) as seen:
        made = fit(name, accountant, path)
    assert seen == {"plain": 0, "gradient": 0}
    made.card_.verify()
    _is_the_model(path, made)
    assert len(accountant.charges) == 1


def a_training_begins_where_the_file_left_it():
    with workplace() as (_, accountant, path):
        interrupted(FAST, accountant, path, 5)
        saved, found = load_file(path), _first_state(accountant, path)
    saved = {name.removeprefix("training."): value for name, value in saved.items() if name.startswith("training.")}
    assert found.keys() == saved.keys()
    assert all(np.array_equal(found[name].numpy(), saved[name]) for name in saved)
    assert saved["averages.average.step"] == 4


def test_a_training_begins_where_the_file_left_it():
    a_training_begins_where_the_file_left_it()


def _first_state(accountant, path):
    """Parameters, state of the optimiser and averages with which a fit goes on."""
    found = {}

    class First(Callback):
        def on_batch_begin(self, net, **_):
            if not found:
                state = net.optimizer_.state_dict()["state"]
                found.update({f"optimizer.{k}.{n}": v.clone() for k, part in state.items() for n, v in part.items()})
                found.update({f"parameters.module.{n}": p.detach().clone() for n, p in net.module_.named_parameters()})
                average = dict(net.callbacks_)["average"]
                found.update({f"averages.average.{k}": part.clone() for k, part in enumerate(average.average_)})
                found["averages.average.step"] = average.step_.clone()

    build = DPNet.initialize_callbacks

    def with_first(net):
        build(net)
        net.callbacks_.append(("first", First().initialize()))
        return net

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DPNet, "initialize_callbacks", with_first)
        fit(FAST, accountant, path)
    return found


def test_a_fit_with_a_checkpoint_is_the_fit_without_one(place):
    folder, _, path = place
    samples = []
    for checkpoint in (None, path):
        accountant = PrivacyAccountant(20.0, ledger=folder / f"{checkpoint is None}.db")
        with seeded_noise(3, quiet=True):
            made = fit("privae", accountant, checkpoint, random_state=0)
        samples.append(made.model_.module.state_dict())
        assert not made.card_["private"]
    assert all(torch.equal(samples[0][name], samples[1][name]) for name in samples[0])


# ---- one charge is one model -------------------------------------------------------------------------------------
def one_process_at_a_time_goes_on_and_one_model_comes_of_it():
    with workplace() as (folder, accountant, path):
        copied = folder / "copy.safetensors"

        def overtake():
            shutil.copy(path, copied)
            fit(FAST, PrivacyAccountant(ledger=folder / "budget.db"), copied)

        with after_release(3, "gradient", overtake), pytest.raises(LedgerError, match="one charge is one model"):
            fit(FAST, accountant, path)
        assert not _is_model(path)
        assert _is_model(copied)
        with pytest.raises(RuntimeError, match="was ended from another copy of this checkpoint"):
            fit(FAST, accountant, path)
        assert not _is_model(path)
        assert taken(accountant) == STEPS
        assert accountant.verify()["charges"] == 1


def _is_model(path):
    return read_safetensors(path, "", whole=False)[0]["format"].startswith("skdpgen-model")


def test_one_model_comes_of_a_charge():
    one_process_at_a_time_goes_on_and_one_model_comes_of_it()


def copies_of_a_checkpoint_are_not_used_after_the_end(where):
    with workplace() as (folder, accountant, path):
        copied = folder / "copy.safetensors"
        with after_release(where, "gradient", lambda: shutil.copy(path, copied)):
            fit(FAST, accountant, path)
        with pytest.raises(RuntimeError, match="was ended from another copy of this checkpoint"):
            fit(FAST, accountant, copied)


@pytest.mark.parametrize("where", [2, STEPS])
def test_copies_are_refused_after_the_end(where):
    copies_of_a_checkpoint_are_not_used_after_the_end(where)


def test_a_file_of_another_fit_is_not_overwritten(place):
    folder, accountant, path = place
    interrupted(FAST, accountant, path)
    other = folder / "other.safetensors"
    with after_release(3, "gradient", lambda: shutil.copy(path, other)):
        refused(lambda: fit(FAST, accountant, other, epsilon=1.0), RuntimeError, "is a file of another fit by now")
    assert other.read_bytes() == path.read_bytes()


# ---- refused, with nothing charged, taken or released ------------------------------------------------------------
@contextmanager
def nothing_happens(accountant):
    before = accountant.verify()["head"]
    with after_release(0, "", None) as seen:
        yield
    assert seen == {"plain": 0, "gradient": 0}
    assert accountant.verify()["head"] == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": STEPS + 1}, "other parameters: steps"),
        ({"epsilon": 19.0}, "other parameters: epsilon"),
        ({"n_components": 3}, "other parameters: n_components"),
        ({"gradient_bound": 2.0, "beta": 0.5}, "other parameters: beta, gradient_bound"),
        ({"noise": "fast"}, "other parameters: noise"),
        ({"classes": ["no", "yes"], "target": "c"}, "other parameters: classes, target"),
        ({"net": DPNet(PriVAEModule, lr=0.1)}, "other parameters: net"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_parameters_do_not_go_on(place, changes, message):
    _, accountant, path = place
    interrupted(FAST, accountant, path)
    content = path.read_bytes()
    with nothing_happens(accountant):
        refused(lambda: fit(FAST, accountant, path, **changes), ValueError, message)
    assert path.read_bytes() == content


@pytest.mark.parametrize(("net", "message"), [(None, "with other phases"), (DPNet(P3GMModule), "parameters: net")])
def test_a_fit_of_the_earlier_default_net_of_images_does_not_go_on(place, monkeypatch, net, message):
    _, accountant, path = place
    parameters = {**TRAINED, "decoder": "net", "image_shape": (2, 2), "bounds": (-1, 1)}
    monkeypatch.setitem(FITS, "images", (P3GMSynthesizer, parameters, (X, Y)))
    with monkeypatch.context() as earlier:  # in which no network refined images
        earlier.setattr(_p3gm_decoder, "_refines", lambda parameters, rows: False)
        interrupted("images", accountant, path)
    with nothing_happens(accountant):
        refused(lambda: fit("images", accountant, path, net=net), ValueError, message)


def test_parameters_that_change_nothing_released_may_differ(place):
    _, accountant, path = place
    interrupted(FAST, accountant, path)
    fit(FAST, accountant, path, progress=False, random_state=5, device="cpu")


def test_rows_with_other_public_facts_do_not_go_on(place):
    _, accountant, path = place
    interrupted(FAST, accountant, path)
    with nothing_happens(accountant):
        for rows in (FRAME.rename(columns={"a": "z"}), FRAME.assign(c=Y), FRAME[["a", "c"]]):
            synthesizer = make(FAST, accountant, path)
            refused(lambda rows=rows, s=synthesizer: s.fit(rows), ValueError, r"other (data|phases)")
    make(FAST, accountant, path).fit(FRAME.iloc[5:])  # the number of rows is private


def test_the_number_of_rows_is_compared_where_it_is_public():
    with workplace("replace_one") as (_, accountant, path):
        interrupted("privae, replace", accountant, path)
        with nothing_happens(accountant):
            refused(lambda: make("privae, replace", accountant, path).fit(X[1:]), ValueError, "other data: rows")


def test_another_ledger_or_estimator_does_not_go_on(place):
    folder, accountant, path = place
    interrupted(FAST, accountant, path)
    other = PrivacyAccountant(50.0, ledger=folder / "other.db")
    with nothing_happens(accountant), nothing_happens(other):
        refused(lambda: fit(FAST, other, path), LedgerError, "charged to another ledger")
        refused(lambda: fit("privae", accountant, path), ValueError, "a 'DPVAESynthesizer', not of a 'PriVAE")
        with seeded_noise(quiet=True):
            refused(lambda: fit(FAST, accountant, path), ValueError, "noise of the kind that it began with")


def _header(path):
    return read_safetensors(path, "", whole=False)[0]


def _without_beta(value, free=(), shipped=_checkpoint.describe):
    found = shipped(value, free)
    return {k: v for k, v in found.items() if k != "beta"} if isinstance(found, dict) else found


def test_a_parameter_that_an_earlier_version_did_not_have_counts_as_its_default():
    with workplace() as (_, accountant, path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_checkpoint, "describe", _without_beta)
            interrupted("dp-vae", accountant, path)
        assert "beta" not in _header(path)["parameters"]
        with nothing_happens(accountant):
            refused(lambda: fit("dp-vae", accountant, path, beta=0.5), ValueError, "other parameters: beta")
        fit("dp-vae", accountant, path)


def _rewrite(path, arrays=None, **fields):
    header = json.dumps({**_header(path), **fields})
    save_file({**load_file(path), **(arrays or {})}, path, metadata={"skdpgen": header})


def an_edited_checkpoint_is_refused(edit):
    with workplace() as (_, accountant, path):
        interrupted(FAST, accountant, path)
        edit(path)
        content = path.read_bytes()
        with nothing_happens(accountant), pytest.raises((ValueError, LedgerError, RuntimeError)) as error:
            fit(FAST, accountant, path)
        assert path.read_bytes() == content
        return str(error.value)


def edit_counts(path):
    _rewrite(path, {"facts.counts": np.array([50.0])})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"steps": 1}, "was changed since the fit wrote it"),
        ({"noise": ["none", True]}, "was changed since"),
        ({"training": None}, "was changed since"),
        ({"facts": None}, "ended before its first releases"),
        ({"record": 99}, "does not fit the ledger"),
        ({"record": 2}, "does not fit the ledger"),  # a block of steps
        ({"record": "1"}, "not a checkpoint"),
        ({"ledger": "x"}, "another ledger"),
        ({"plan": []}, "not a checkpoint"),
        ({"format": "skdpgen-fit-checkpoint/9"}, "newer version"),
        ({"more": 1}, "not a checkpoint"),
    ],
    ids=str,
)
def test_an_edited_header_is_refused(fields, message):
    assert message in an_edited_checkpoint_is_refused(lambda path: _rewrite(path, **fields))


def test_edited_values_are_refused():
    assert "was changed since the fit wrote it" in an_edited_checkpoint_is_refused(edit_counts)


@pytest.mark.parametrize("content", [b"", b"x" * 100, (2**60).to_bytes(8, "little") + b"{}"], ids=len)
def test_other_files_are_refused_and_not_overwritten(content):
    def edit(path):
        path.write_bytes(content)

    assert "not a checkpoint of a fit" in an_edited_checkpoint_is_refused(edit)


def test_what_cannot_have_a_checkpoint_is_refused_before_the_charge(place):
    folder, accountant, path = place
    own = DPNet(PriVAEModule, module__decoder=torch.nn.Linear(2, 7))
    alone = P3GMSynthesizer(accountant=accountant, checkpoint=path)
    cases = [
        (lambda: fit(FAST, PrivacyAccountant(50.0), path), ValueError, "needs a ledger file"),
        (lambda: fit(FAST, None, path), ValueError, "needs a ledger file"),
        (lambda: fit(FAST, accountant, folder / "fit.pt"), ValueError, "must end in .safetensors"),
        (lambda: fit(FAST, accountant, folder / "no" / "f.safetensors"), InvalidInputError, "cannot be written"),
        (lambda: alone.fit(X), ValueError, "checkpoint= is used only with decoder='net'"),
        (lambda: fit("dp2-vae", accountant, path, sampler="balanced"), ValueError, 'not for sampler="balanced"'),
        (
            lambda: fit("dp2-vae", accountant, path, architecture=("auto", torch.nn.Linear(2, 3))),
            ValueError,
            "models that can be sav",
        ),
        (lambda: fit(FAST, accountant, path, net=own), ValueError, "models that can be saved"),
        (lambda: fit(FAST, accountant, path, epsilon=1e9), ValueError, "epsilon"),
        (lambda: fit(FAST, accountant, path, net=DPNet(PriVAEModule, checkpoint="x")), ValueError, "checkpoint=None"),
    ]
    with nothing_happens(accountant):
        for call, kind, message in cases:
            refused(call, kind, message)
        search = PrivateSearchCV(
            make(FAST, None, path), {"beta": [0.5, 1.0]}, score_bounds=(-9, 9), accountant=accountant
        )
        refused(lambda: search.fit(FRAME), ValueError, "checkpoint= is for one fit")
        infinite = PrivacyAccountant(np.inf, ledger=folder / "infinite.db")
        refused(lambda: fit(FAST, infinite, path, epsilon=np.inf), ValueError, "for fits with noise")
    assert sorted(os.listdir(folder)) == ["budget.db", "infinite.db"]


# ---- what is in the file -----------------------------------------------------------------------------------------
def the_file_holds_released_values_alone(name):
    with workplace(FITS[name][1].get("neighboring"), unit_of_fit(name)) as (_, accountant, path):
        contents, arrays, untrained = [], [], {}
        write, pretrain = _checkpoint.write_atomically, _dp2vae_training.pretrain_encoders

        def seen(target, content):
            write(target, content)
            contents.append(content)
            arrays.append(load_file(target))

        def noted(encoder, auxiliary, *rest, **options):
            for role, net in (("encoder", encoder), ("auxiliary", auxiliary)):
                parts = {f"training.{role}.{n}": p.detach().numpy().copy() for n, p in net.named_parameters()}
                untrained.update(parts)
            return pretrain(encoder, auxiliary, *rest, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_checkpoint, "write_atomically", seen)
            patch.setattr(_dp2vae_training, "pretrain_encoders", noted)
            fit(name, accountant, path)
        n_subsets = FITS[name][1].get("n_subsets")
        kinds = ("averages.", "optimizer.", "parameters.", "decoder.", "encoder.", "auxiliary.")
        for key, array in (item for part in arrays for item in part.items()):
            assert key.startswith(("facts.", *(f"training.{kind}" for kind in kinds))), key
            assert array.shape[:1] not in ((N,), (n_subsets,)), f"{key} has one entry for each row or subset"
        for part in arrays[2:]:  # after the charge, and after the releases before the training
            for key, array in untrained.items():
                assert np.array_equal(part[key], array), f"{key} was trained on the rows"
        for content in contents:
            for value in X[:, 0].astype(np.float32).tobytes(), X[:, 0].tobytes():
                assert value[:16] not in content


@pytest.mark.parametrize("name", ["p3gm", "dp-gm", "dp2-vae", "dp2-vae, drawn"])
def test_the_file_holds_released_values_alone(name):
    the_file_holds_released_values_alone(name)


@pytest.mark.parametrize("name", ["p3gm, mixture", "dp-gm", "dp2-vae", "dp2-vae, units"])
def test_the_file_reads_the_rows_through_their_releases_alone(name):
    """With the releases of a fit to other rows, every file that a fit writes is the one that the other fit wrote."""
    others, first, written = (2 * X[:45] ** 3 - 0.5, 1 - Y[:45], PERSONS[::-1][:45]), None, []
    for rows in ((X, Y, PERSONS), others):
        rows, unit = rows[: len(FITS[name][2])], unit_of_fit(name)
        with workplace(unit=unit) as (_, accountant, path), pytest.MonkeyPatch.context() as patch:
            parts = []
            write = _checkpoint.write_atomically

            def seen(target, content, parts=parts, write=write):
                write(target, content)
                header = {name: value for name, value in _header(target).items() if name != "ledger"}
                header.get("units", {}).pop("key", None)  # of the generator alone
                parts.append((header, load_file(target)))

            patch.setattr(_checkpoint, "write_atomically", seen)
            first = fit_along(make(name, accountant, path, random_state=0), rows, first and first.releases)
            written.append(parts)
    assert len(written[0]) == len(written[1]) > STEPS
    for (header, arrays), (other_header, other_arrays) in zip(*written):
        assert header == other_header
        assert arrays.keys() == other_arrays.keys()
        assert all(np.array_equal(arrays[key], other_arrays[key]) for key in arrays)


def test_the_card_has_the_day_of_the_charge(place, monkeypatch):
    _, accountant, path = place
    interrupted(FAST, accountant, path)
    day = accountant.entries[0].day
    for module in ("_receipt", "_card", "_ledger"):
        monkeypatch.setattr(f"skdpgen.accounting.{module}.today", lambda: "2999-12-31")
    assert fit(FAST, accountant, path).card_["date"] == day != "2999-12-31"


def test_the_file_has_the_permissions_of_any_file(place):
    """All of it is released, so it is as public as a model file."""
    _, accountant, path = place
    before = os.umask(0o027)
    try:
        interrupted(FAST, accountant, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    finally:
        os.umask(before)


def test_draws_after_an_interruption_are_new(place, monkeypatch):
    """Noise and batches come from a generator that nobody seeded: another one in each process."""
    _, accountant, path = place
    made = []
    original = skdpgen._base.make_noise_generator
    monkeypatch.setattr(skdpgen._base, "make_noise_generator", lambda kind: made.append(original(kind)) or made[-1])
    interrupted(FAST, accountant, path)
    fit(FAST, accountant, path)
    assert len(made) == 2
    assert made[0] is not made[1]
    assert not np.array_equal(made[0].random(4), made[1].random(4))


def test_a_model_that_cannot_be_written_at_the_end_is_kept(place, monkeypatch):
    _, accountant, path = place

    def full(*_):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(DPVAESynthesizer, "save", full)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = fit(FAST, accountant, path)
    assert any("save it by save()" in str(warning.message) for warning in said)
    monkeypatch.undo()
    assert made.sample(3) is not None
    again = fit(FAST, accountant, path)  # from the checkpoint at which the fit was ended
    _is_the_model(path, again)
