"""Trainings in several threads of one process: each draws its own secret masks, those that it would draw alone."""

from __future__ import annotations

import copy
import threading
import time

import numpy as np
import pytest
import torch
from _charged import charged
from joblib import Parallel, delayed
from skorch.callbacks import Callback
from torch import nn

from skdpgen import SubsetSGD
from skdpgen.accounting import PrivacyAccountant
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.dpsgd import _seeding as seeding
from skdpgen.dpsgd._seeding import check_generators
from skdpgen.nn import DPNet, DPNetClassifier
from skdpgen.synthesizers import DP2VAESynthesizer
from skdpgen.synthesizers._p3gm_decoder import _warm_start
from skdpgen.testing import seeded_noise

X = np.random.default_rng(3).standard_normal((40, 4)).astype(np.float32)
# of the pass under way in each thread: the list of states that it begins with, and how long it takes
_seen = threading.local()


class Dropping(nn.Module):
    """Remembers the state of the generators at the start of each pass, and lets other threads run before it draws."""

    def __init__(self, rate=0.5):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Dropout(rate), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        if getattr(_seen, "states", None) is not None:
            _seen.states.append(torch.get_rng_state())
            time.sleep(0.001)
        return self.layers(x).square().flatten()


class Watch(Callback):
    """Watches the passes of the steps alone: those of the check, on dummy rows, have public seeds."""

    def __init__(self, states):
        self.states = states

    def on_batch_begin(self, net, batch=None, training=None, **kwargs):
        _seen.states = self.states

    def on_batch_end(self, net, batch=None, training=None, **kwargs):
        _seen.states = None


def train(seed, states, module=Dropping, callbacks=(), **settings):
    plan = charged(DPSGDPlan(0.3, 6, 1.0, 1.0, 12.0))
    with seeded_noise(seed, quiet=True):
        net = DPNet(
            module, plan=plan, random_state=seed, verbose=0, callbacks=[Watch(states), *callbacks], **settings
        ).fit(X)
    return torch.cat([p.detach().flatten() for p in net.module_.parameters()])


def in_threads(calls):
    """Results of calls that run at the same time, each in a thread of its own; the first error, if there is one."""
    results, errors = [None] * len(calls), []

    def run(k):
        try:
            results[k] = calls[k]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "a training hangs"
    if errors:
        raise AssertionError("a training in a thread failed") from errors[0]
    return results


def key(state):
    return state.numpy().tobytes()


def test_trainings_in_threads_give_what_they_give_one_after_another():
    seeds = (0, 1, 2)
    alone = [train(seed, []) for seed in seeds]
    together = in_threads([lambda seed=seed: train(seed, []) for seed in seeds])
    for one, other in zip(alone, together):
        assert torch.equal(one, other)


def test_no_pass_of_a_training_starts_from_a_public_or_a_shared_state():
    public = {key(torch.Generator().manual_seed(seed).get_state()) for seed in range(8)}
    public |= {key(torch.get_rng_state()), key(check_generators())}
    watched = [[], [], []]
    in_threads([lambda seed=seed, states=states: train(seed, states) for seed, states in enumerate(watched)])
    states = [key(state) for states in watched for state in states]
    assert len(states) >= 3 * 6
    assert not public & set(states)
    assert len(set(states)) == len(states), "two passes drew the same masks"


def test_a_net_with_rare_dropout_is_not_refused_beside_other_trainings():
    in_threads([lambda seed=seed: train(seed, [], module__rate=0.02) for seed in range(4)])


def test_callbacks_see_the_generators_of_the_process():
    before, seen = torch.get_rng_state(), []

    class Look(Callback):
        def on_grad_computed(self, net, named_parameters, **kwargs):
            seen.append(torch.get_rng_state())

    train(0, [], callbacks=[Look()])
    assert len(seen) == 6
    assert all(torch.equal(state, before) for state in seen)


def test_a_training_within_a_callback_or_a_pass_of_another_changes_nothing_of_it():
    inner = train(5, [])

    class Nested(Callback):
        def on_batch_end(self, net, batch=None, training=None, **kwargs):
            assert torch.equal(in_threads([lambda: train(5, [])])[0], inner)  # in a thread that the step waits for

    class Within(Dropping):
        trained = []

        def forward(self, x):
            if self.training and torch.is_grad_enabled() and not self.trained:
                self.trained.append(None)
                assert torch.equal(train(5, []), inner)
            return super().forward(x)

    alone = train(4, [])
    assert torch.equal(train(4, [], callbacks=[Nested()]), alone)
    Within.trained.clear()
    assert torch.equal(train(4, [], module=Within), alone)
    assert Within.trained


def test_joblib_threads_fit_networks():
    y = (X[:, 0] > 0).astype(int)

    def fit(seed):
        with seeded_noise(seed, quiet=True):
            model = DPNetClassifier(
                epsilon=np.inf, bounds=(-4, 4), classes=[0, 1], steps=4, random_state=seed,
                net=DPNet(Logits, verbose=0),
            )  # fmt: skip
            model.fit(X, y)
        return model.predict_proba(X)

    alone = [fit(seed) for seed in range(3)]  # without noise: calibration would take the time
    together = Parallel(n_jobs=3, backend="threading")(delayed(fit)(seed) for seed in range(3))
    for one, other in zip(alone, together):
        np.testing.assert_array_equal(one, other)


class Logits(nn.Module):
    def __init__(self, n_features, n_classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(n_features, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, n_classes))

    def forward(self, x):
        return self.layers(x)


def test_parameters_are_initialised_by_their_seed_whatever_other_threads_seed():
    class Slow(Dropping):
        def __init__(self):
            time.sleep(0.002)
            super().__init__()

    def start(seed):
        net = DPNet(Slow, random_state=seed, verbose=0).initialize()
        return torch.cat([p.detach().flatten() for p in net.module_.parameters()])

    alone = [start(seed) for seed in range(4)]
    for one, other in zip(alone, in_threads([lambda seed=seed: start(seed) for seed in range(4)])):
        assert torch.equal(one, other)


def test_dropout_in_the_warm_start_follows_its_seed_alone():
    rows = torch.from_numpy(X)

    class Ordinary(Dropping):
        def forward(self, x, noise):
            time.sleep(0.001)
            return super().forward(x)

    torch.default_generator.manual_seed(0)
    template = Ordinary()

    def warm(seed):
        module = copy.deepcopy(template)
        _warm_start(module, rows, 5, seed)
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    alone = [warm(seed) for seed in range(3)]
    assert not torch.equal(alone[0], alone[1])
    for one, other in zip(alone, in_threads([lambda seed=seed: warm(seed) for seed in range(3)])):
        assert torch.equal(one, other)


def test_an_encoder_that_draws_by_itself_is_refused_before_the_charge():
    class Drawing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, label):
            return self.layer(nn.functional.dropout(x, 0.5, training=True))

    accountant = PrivacyAccountant(5.0, 1e-5)
    model = DP2VAESynthesizer(
        2.0, accountant=accountant, n_components=2, architecture=(Drawing(), "auto"), training=SubsetSGD(8, 2)
    )
    with pytest.raises(ValueError, match="the encoder draws random numbers"):
        model.fit(X)
    assert not accountant.charges


def test_what_cannot_be_seeded_secretly_is_refused_before_the_plan_is_used(monkeypatch):
    net = DPNet(Dropping, plan=charged(DPSGDPlan(0.3, 2, 1.0, 1.0, 12.0)), verbose=0, random_state=0)
    with monkeypatch.context() as patch:
        patch.setattr(seeding, "_OFFSET", 32)
        with pytest.raises(RuntimeError, match="in a form that skdpgen does not know"):
            net.fit(X)
    assert net.fit(X).steps_taken_ == 2


@pytest.mark.parametrize("fails", [ValueError, KeyboardInterrupt])
def test_a_pass_that_fails_gives_generators_and_lock_back(fails):
    before = torch.get_rng_state()

    class Failing(Dropping):
        def forward(self, x):
            if getattr(_seen, "states", None) is not None:
                torch.rand(3)
                raise fails
            return super().forward(x)

    with pytest.raises(fails):
        train(0, [], module=Failing)
    _seen.states = None
    assert torch.equal(torch.get_rng_state(), before)
    in_threads([lambda: train(1, [])])
