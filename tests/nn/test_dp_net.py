"""DPNet follows its plan, equals plain training without noise, and lets nothing private out."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch
from _charged import charged
from sklearn.base import clone
from skorch.callbacks import Callback, LRScheduler
from torch import nn

from skdpgen.dpsgd import DPSGDPlan, PoissonLoader
from skdpgen.nn._callbacks import ParameterAverage, StepCheckpoint
from skdpgen.nn._dp_net import DPNet
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import make_noise_generator
from skdpgen.utils.watching import watch_releases


class Autoencoder(nn.Module):
    """Losses straight from the module."""

    def __init__(self, width=5):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 4))

    def forward(self, x):
        return (self.layers(x) - x).square().sum(1)


class Sampled(Autoencoder):
    noise_shape = (2, 4)

    def forward(self, x, noise):
        assert noise.shape == (len(x), 2, 4)
        return (self.layers(x[:, None] + 0.1 * noise) - x[:, None]).square().sum(2).mean(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Linear(4, 3)

    def forward(self, x):
        return self.layers(x)


def make_plan(rate=0.2, steps=12, n=60, z=1.0, **changes):
    settings = {"sampling_rate": rate, "steps": steps, "l2_bound": 1.0, "noise_multiplier": z}
    return charged(DPSGDPlan(**{**settings, "expected_batch_size": rate * n, **changes}))


def make_net(module=Autoencoder, plan=None, **kwargs):
    return DPNet(module, plan=plan or make_plan(), verbose=0, random_state=0, **kwargs)


@pytest.fixture(name="X")
def records(rng):
    return rng.standard_normal((60, 4)).astype(np.float32)


def parameters(net):
    return torch.cat([p.detach().flatten() for p in net.module_.parameters()])


class Spy(Callback):
    """Remember all that callbacks are given."""

    def initialize(self):
        self.calls = []
        return self

    def _note(self, name, kwargs):
        self.calls.append((name, kwargs))

    def on_train_begin(self, net, X=None, y=None, **kwargs):
        self._note("on_train_begin", {"X": X, "y": y, **kwargs})

    def on_train_end(self, net, X=None, y=None, **kwargs):
        self._note("on_train_end", {"X": X, "y": y, **kwargs})

    def on_epoch_begin(self, net, **kwargs):
        self._note("on_epoch_begin", kwargs)

    def on_epoch_end(self, net, **kwargs):
        self._note("on_epoch_end", kwargs)

    def on_batch_begin(self, net, batch=None, training=None, **kwargs):
        self._note("on_batch_begin", {"batch": batch, **kwargs})

    def on_batch_end(self, net, batch=None, training=None, **kwargs):
        self._note("on_batch_end", {"batch": batch, **kwargs})

    def on_grad_computed(self, net, named_parameters, batch=None, **kwargs):
        gradients = {name: p.grad.clone() for name, p in named_parameters}
        self._note("on_grad_computed", {"batch": batch, "gradients": gradients, **kwargs})


def test_steps_run_equal_steps_planned(X):
    spy = Spy()
    net = make_net(callbacks=[spy]).fit(X)
    assert sum(name == "on_grad_computed" for name, _ in spy.calls) == net.steps_taken_ == 12
    assert [row["train_batch_count"] for row in net.history] == [5, 5, 2]
    assert net.path_ == "fast"


def test_callbacks_see_nothing_private(X):
    spy = Spy()
    make_net(callbacks=[("spy", spy)]).fit(X, np.zeros(60))
    allowed = {"step", "training", "gradients"}
    for name, kwargs in spy.calls:
        for key, value in kwargs.items():
            assert value is None or key in allowed, f"{name} was given {key}"
    assert {name for name, _ in spy.calls} == {
        "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_batch_begin", "on_batch_end",
        "on_grad_computed",
    }  # fmt: skip


def test_notify_removes_what_it_is_handed(X):
    spy = Spy()
    net = make_net(callbacks=[spy]).initialize()
    net.notify("on_train_begin", X=X, y=X)
    net.notify("on_epoch_begin", dataset_train=X, dataset_valid=X)
    net.notify("on_batch_begin", batch=X, training=True)
    net.notify("on_batch_end", batch=X, y_pred=X, loss=X, training=True, step=1)
    for _, kwargs in spy.calls:
        assert all(value is None for key, value in kwargs.items() if key not in ("training", "step"))


def test_no_loss_and_no_batch_size_is_recorded_or_printed(X, capsys, monkeypatch):
    monkeypatch.setattr("skdpgen.utils.progress._DELAY", 0)
    net = make_net()
    net.set_params(verbose=2).fit(X)
    keys = set().union(*(row.keys() for row in net.history))
    keys |= set().union(*(step.keys() for row in net.history for step in row["batches"]))
    assert keys <= {"epoch", "batches", "train_batch_count"}
    out, err = capsys.readouterr()
    assert "loss" not in out + err
    assert "DP-SGD" in err
    assert "/12" in err


def test_no_private_state_outlives_fit(X):
    X[:] = 0.123456789
    net = make_net().fit(X, np.full(60, 7.125))
    state = pickle.dumps(net)
    assert np.float32(0.123456789).tobytes() not in state
    assert not any(isinstance(v, (torch.Tensor, np.ndarray)) for v in vars(net).values())
    assert not hasattr(net, "engine_")


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("module", [Autoencoder, Sampled])
def test_without_noise_training_equals_plain_training(X, optimizer, module):
    plan = make_plan(rate=1.0, steps=5, z=0.0, max_physical_batch=25)
    with seeded_noise(quiet=True):
        net = make_net(module, plan, optimizer=optimizer, lr=0.05, optimizer__weight_decay=0.01).fit(X)
    plain = make_net(module, plan).initialize().module_
    steps = optimizer(plain.parameters(), lr=0.05, weight_decay=0.01)
    with seeded_noise(quiet=True):
        rng = make_noise_generator()
    rng.random_bytes(32), rng.integers(2**62), rng.random_bytes(4 * 624)  # key of the noise, seeds of dropout
    for _ in range(5):
        steps.zero_grad()
        total = 0
        places = rng.permutation(plan.places)[:60]
        for chunk in np.unique(places // 25):
            here = places // 25 == chunk
            part = torch.from_numpy(X[here])
            if module is Sampled:
                noise = torch.from_numpy(rng.standard_normal((25, 2, 4))).float()
                total = total + plain(part, noise[places[here] % 25]).sum()
            else:
                total = total + plain(part).sum()
        (total / 60).backward()
        steps.step()
    torch.testing.assert_close(parameters(net), torch.cat([p.detach().flatten() for p in plain.parameters()]))


def first_release(X, plan, module=Autoencoder, **kwargs):
    spy = Spy()
    make_net(module, plan, callbacks=[spy], **kwargs).fit(X)
    return [
        torch.cat([g.flatten() for g in kwargs["gradients"].values()])
        for name, kwargs in spy.calls
        if name == "on_grad_computed"
    ]


def test_released_gradients_carry_noise_of_the_plan(X):
    plan = make_plan(rate=1e-9, steps=200, z=1.5, expected_batch_size=3.0, l2_bound=0.4)
    releases = torch.stack(first_release(X, plan, module__width=64))
    scaled = releases.double() / (1.5 * 0.4 / 3.0)
    ratio = float(scaled.square().mean())
    tolerance = 5 * (2 / scaled.numel()) ** 0.5
    assert abs(ratio - 1) < tolerance
    for wrong in (2 / 3, 3 / 2):  # the test would see a wrong scale
        assert abs(ratio / wrong**2 - 1) > tolerance


def test_one_record_moves_a_release_by_at_most_the_bound(X):
    X[0] = 1e4
    plan = {"rate": 1.0, "steps": 1, "z": 1e-6, "expected_batch_size": 1.0}
    with seeded_noise(quiet=True):
        (whole,) = first_release(X, make_plan(**plan))
    with seeded_noise(quiet=True):
        (without,) = first_release(X[1:], make_plan(**plan))
    assert 0.98 < float((whole - without).norm()) <= 1.0


def test_one_more_step_than_planned_is_refused(X):
    net = make_net().fit(X)
    with pytest.raises(RuntimeError, match="not charged"):
        net.train_step([])
    with pytest.raises(RuntimeError, match="not charged"):
        net.partial_fit(X)
    with pytest.raises(RuntimeError, match="earlier fit"):
        net.fit(X)
    with pytest.raises(RuntimeError, match="not charged"):
        net.initialize().partial_fit(X)  # a net made anew has not got its steps back
    net.set_params(plan=make_plan(steps=3))
    assert net.partial_fit(X).steps_taken_ == 3


def test_reference_without_noise_may_be_fitted_again(X):
    net = make_net(plan=make_plan(z=0.0))
    assert net.fit(X).fit(X).steps_taken_ == 12


def test_float64_nets_are_given_float64(X):
    class Double(Autoencoder):
        def __init__(self):
            super().__init__()
            self.double()

    assert make_net(Double).fit(X.astype(float)).path_ == "fast"


def test_a_step_counts_from_before_its_gradient_is_released(X):
    """Whoever stops a training with the released gradient in hand must not get another one for the same step."""
    gradients = []

    class Stop(Callback):
        def on_grad_computed(self, net, named_parameters, **kwargs):
            gradients.append([p.grad.clone() for _, p in named_parameters])
            raise KeyboardInterrupt

    net = make_net(plan=make_plan(steps=2), callbacks=[Stop()])
    with pytest.raises(KeyboardInterrupt):
        net.fit(X)
    assert (net.plan.steps_taken, net.steps_taken_) == (1, 1)
    with pytest.raises(KeyboardInterrupt):
        net.partial_fit(X)
    with pytest.raises(RuntimeError, match="more were not charged"):
        net.partial_fit(X)
    assert len(gradients) == net.plan.steps


def test_interrupt_is_not_swallowed_and_its_steps_stay_taken(X):
    class Interrupt(Callback):
        def on_batch_end(self, net, step, **kwargs):
            if step == 4:
                raise KeyboardInterrupt

    net = make_net(callbacks=[Interrupt()])
    with pytest.raises(KeyboardInterrupt):
        net.fit(X)
    assert net.steps_taken_ == 4
    assert not hasattr(net, "engine_")
    with pytest.raises(RuntimeError, match="earlier fit"):
        net.fit(X)
    net.set_params(callbacks=None).initialize_callbacks()
    assert net.partial_fit(X).steps_taken_ == 12


def test_a_step_that_is_interrupted_once_it_has_released_is_not_taken_again():
    """Its gradient was released, whatever came of it: all releases of all calls together are those of the plan."""
    X, released = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32), []

    def observer(*release):
        released.append(release)
        if len(released) == 4:
            raise KeyboardInterrupt

    net = make_net()
    with watch_releases(observer):
        with pytest.raises(KeyboardInterrupt):
            net.fit(X)
        net.partial_fit(X)
        with pytest.raises(RuntimeError, match="not charged"):
            net.partial_fit(X)
    assert len(released) == net.steps_taken_ == net.plan.steps_taken == 12


@pytest.mark.parametrize("name", ["batch_size", "max_epochs", "train_split", "compile", "iterator_train__batch_size"])
def test_parameters_that_contradict_the_plan_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is not a parameter"):
        DPNet(Autoencoder, **{name: 3})
    with pytest.raises(ValueError, match=f"{name} is not a parameter"):
        make_net().set_params(**{name: 3})
    assert name not in make_net().get_params()


def test_other_loaders_and_fit_parameters_are_refused(X):
    with pytest.raises(ValueError, match="PoissonLoader"):
        make_net(iterator_train=torch.utils.data.DataLoader).fit(X)
    with pytest.raises(ValueError, match="nothing but X and noise"):
        make_net().fit(X, weight=3)
    with pytest.raises(ValueError, match="plan=DPSGDPlan"):
        DPNet(Autoencoder).fit(X)


def test_batch_norm_and_lbfgs_are_refused_before_training(X):
    class Normed(Autoencoder):
        def __init__(self):
            super().__init__()
            self.layers.append(nn.BatchNorm1d(4))

    with pytest.raises(ValueError, match="mixes the records"):
        make_net(Normed).check(X)
    with pytest.raises(ValueError, match="LBFGS"):
        make_net(optimizer=torch.optim.LBFGS).check(X)
    assert make_net().check(X).path_ == "fast"


def test_get_params_clone_and_pickle(X):
    plan = make_plan()
    net = make_net(plan=plan, module__width=7, optimizer__weight_decay=0.1, callbacks=[("average", ParameterAverage())])
    twin = clone(net)
    assert twin.get_params()["module__width"] == 7
    assert twin.plan == plan
    twin.set_params(module__width=3, callbacks__average__decay=0.5, lr=0.2)
    twin.fit(X)
    assert twin.module_.layers[0].out_features == 3
    again = pickle.loads(pickle.dumps(twin))
    assert torch.equal(parameters(again), parameters(twin))
    with pytest.raises(RuntimeError, match="not charged"):
        again.partial_fit(X)


def test_random_state_seeds_the_parameters_and_never_the_noise(X):
    first, second = make_net().initialize(), make_net().initialize()
    assert torch.equal(parameters(first), parameters(second))
    torch.manual_seed(0)
    a = parameters(make_net().fit(X))
    torch.manual_seed(0)
    assert not torch.equal(a, parameters(make_net().fit(X)))


def test_training_leaves_torchs_generator_alone(X):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make_net().fit(X)
    assert torch.equal(torch.rand(3), expected)


def test_learning_rate_schedulers_work(X):
    schedule = LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5, step_every="batch")
    net = make_net(callbacks=[schedule], lr=1.0, plan=make_plan(steps=4)).fit(X)
    assert net.optimizer_.param_groups[0]["lr"] == pytest.approx(2.0**-4)
    by_epoch = LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
    net = make_net(callbacks=[by_epoch], lr=1.0).fit(X)
    assert net.optimizer_.param_groups[0]["lr"] == pytest.approx(2.0**-3)


def test_average_and_checkpoints_are_of_released_parameters(X):
    average, checkpoint = ParameterAverage(0.5), StepCheckpoint(every=1)
    net = make_net(callbacks=[checkpoint, average], plan=make_plan(steps=3)).fit(X)
    assert sorted(checkpoint.checkpoints_) == [1, 2, 3]
    expected = make_net().initialize().module_.state_dict()
    for t in (1, 2, 3):
        decay = min(0.5, (1 + t) / (10 + t))
        expected = {k: decay * v + (1 - decay) * checkpoint.checkpoints_[t][k] for k, v in expected.items()}
    for name, value in net.module_.state_dict().items():
        torch.testing.assert_close(value, expected[name])


def test_criteria_of_torch_are_unreduced(X):
    y = (X[:, 0] > 0).astype(np.int64)
    plan = make_plan(rate=1.0, steps=40, z=0.5, n=60)
    net = make_net(Classifier, plan, criterion=nn.CrossEntropyLoss, lr=0.1).fit(X, y)
    assert (net.predict(X).argmax(1) == y).mean() > 0.8
    net = make_net(nn.Linear, make_plan(), module__in_features=4, module__out_features=4, criterion=nn.MSELoss)
    assert net.fit(X, X).path_ == "fast"


def test_reference_path_trains_too(X):
    class Convolved(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv1d(1, 2, 3)

        def forward(self, x):
            return self.layer(x[:, None]).square().sum((1, 2))

    net = make_net(Convolved).fit(X)
    assert net.path_ == "vmap"
    assert "Conv1d" in net.path_reason_


def test_shuffled_loader_subclass_is_what_the_plan_allows(X):
    class Counting(PoissonLoader):
        pass

    assert make_net(iterator_train=Counting).fit(X).steps_taken_ == 12


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_training_on_cuda(X):
    assert make_net(device="cuda").fit(X).steps_taken_ == 12


def test_a_plan_pays_for_one_training_whoever_holds_it():
    plan = charged(DPSGDPlan(0.5, 3, 1.0, 1.0, 10.0))
    other = charged(DPSGDPlan(0.5, 3, 1.0, 1.0, 10.0))
    X = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
    net = DPNet(_Squares, module__n=4, plan=plan, verbose=0).fit(X)
    for again in (clone(net), copy.deepcopy(net), DPNet(_Squares, module__n=4, plan=plan, verbose=0)):
        with pytest.raises(RuntimeError, match="plan was used"):
            again.fit(X)
    for copied in (pickle.loads(pickle.dumps(other)), dataclasses.replace(other)):
        with pytest.raises(RuntimeError, match="was not charged"):
            DPNet(_Squares, module__n=4, plan=copied, verbose=0).fit(X)
    net.set_params(plan=other).fit(X)
    with pytest.raises(RuntimeError, match="plan was used"):
        net.set_params(plan=plan).fit(X)
    free = DPSGDPlan(0.5, 3, 1.0, 0.0, 10.0)
    for _ in range(2):
        DPNet(_Squares, module__n=4, plan=free, verbose=0).fit(X)


def test_copies_of_an_interrupted_net_share_the_steps_that_are_left(X):
    net = make_net(plan=make_plan(steps=3)).initialize()
    net.fit(X)
    twin = copy.copy(net)
    twin.steps_taken_ = 1  # as a copy made after the first step has it
    with pytest.raises(RuntimeError, match="not charged"):
        twin.partial_fit(X)
    assert twin.steps_taken_ == 1


class _Squares(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = torch.nn.Linear(n, 1)

    def forward(self, X):
        return self.layer(X)[:, 0] ** 2
