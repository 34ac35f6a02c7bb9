"""Modules that keep what they saw: nothing of a private batch is in what a fit leaves."""

from __future__ import annotations

import contextlib
import pickle

import numpy as np
import pytest
import torch
from _charged import charged
from torch import nn

from skdpgen import DPSGD, P3GMSynthesizer, PriVAESynthesizer
from skdpgen.dpsgd import DPSGDPlan
from skdpgen.nn import DPNet, DPNetClassifier, P3GMModule, PriVAEModule, SparsePrior

MARK = np.float32(0.123456789)  # in the first column of every row
ROWS = 60


class Keeps(nn.Module):
    """A linear layer that keeps its input, whole and in a list, and its output with the graph behind it."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.layer, self.seen, self.all, self.last = nn.Linear(n_in, n_out), None, [], None

    def forward(self, x):
        self.seen, self.last = x.detach(), self.layer(x)
        self.all.append(self.last)
        return self.last


class KeepsLoss(nn.Module):
    """A criterion that keeps the predictions it was given."""

    seen = None
    reduction = "none"

    def forward(self, output, target):
        self.seen = output.detach()
        return (output - target).square()


class KeepingPrior(SparsePrior):
    seen = None

    def log_prob(self, z):
        self.seen = z.detach()
        return super().log_prob(z)


def rows(rng):
    X = rng.uniform(-1, 1, (ROWS, 4)).astype(np.float32)
    X[:, 0] = MARK
    return X


def tensors(module):
    """Every tensor that hangs on a module or its parts, but for parameters and buffers."""
    for part in module.modules():
        for name, value in vars(part).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            for t in value if isinstance(value, list) else [value]:
                if isinstance(t, torch.Tensor):
                    yield t


def kept(module):
    """Whether a tensor of a batch of private rows is left: those made up by the checks have three or four rows."""
    return any(len(t) > 9 for t in tensors(module) if t.dim())


def net_of(module, X, **options):
    plan = charged(DPSGDPlan(0.5, 3, 1.0, 1.0, 30.0))
    return DPNet(module, plan=plan, verbose=0, random_state=0, **options)


def of_a_net(rng):
    X = rows(rng)
    net = net_of(Keeps, X, module__n_in=4, module__n_out=1, criterion=KeepsLoss).fit(X, X[:, :1])
    assert not list(tensors(net.criterion_))
    return net.module_


def of_an_instance(rng):
    """The caller's own module, which the net takes as it is."""
    X, module = rows(rng), Keeps(4, 1)
    before = module.layer.weight.detach().clone()
    net_of(module, X, criterion=nn.MSELoss).fit(X, X[:, :1])
    assert not torch.equal(before, module.layer.weight)  # it was trained
    return module


def of_a_net_that_is_interrupted(rng):
    X = rows(rng)

    class Stops(KeepsLoss):
        def forward(self, output, target):
            if len(output) > 9:
                raise KeyboardInterrupt
            return super().forward(output, target)

    net = net_of(Keeps, X, module__n_in=4, module__n_out=1, criterion=Stops)
    with contextlib.suppress(KeyboardInterrupt):
        net.fit(X, X[:, :1])
    return net.module_


def of_a_classifier(rng):
    X = rows(rng)

    class Classes(nn.Sequential):
        def __init__(self, n_features, n_classes):
            super().__init__(Keeps(n_features, 3), nn.ReLU(), Keeps(3, n_classes))

    fitted = DPNetClassifier(
        5.0, net=DPNet(Classes), bounds=(-1, 1), classes=[0, 1], steps=2, sampling_rate=0.5, random_state=0
    ).fit(X, np.arange(ROWS) % 2)
    return fitted.module_


def of_privae(rng):
    net = DPNet(PriVAEModule, module__encoder=nn.Sequential(Keeps(4, 4)), module__decoder=nn.Sequential(Keeps(2, 4)))
    fitted = PriVAESynthesizer(
        5.0, training=DPSGD(2, 0.5, net=net), prior=KeepingPrior(), n_components=2, bounds=(-1, 1), random_state=0
    ).fit(rows(rng))
    assert np.isfinite(fitted.sample(3)).all()
    return fitted.model_.module


def of_p3gm(rng):
    fitted = P3GMSynthesizer(
        5.0, decoder="net",
        training=DPSGD(2, 0.5, net=DPNet(P3GMModule, module__decoder=nn.Sequential(Keeps(2, 4))), warm_start_steps=0),
        n_components=2,
        bounds=(-1, 1), random_state=0,
    ).fit(rows(rng))  # fmt: skip
    assert np.isfinite(fitted.sample(3)).all()
    return fitted.model_.generator.module


FITS = [of_a_net, of_an_instance, of_a_net_that_is_interrupted, of_a_classifier, of_privae, of_p3gm]


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize("fit", FITS)
def test_what_a_module_keeps_of_a_batch_does_not_leave_the_fit(fit, rng):
    module = fit(rng)
    assert any(isinstance(part, Keeps) for part in module.modules())
    assert not kept(module)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize("fit", FITS)
def test_the_module_itself_would_have_kept_it(fit, rng, monkeypatch):
    """The same fits without copies: the test above finds what they leave."""
    monkeypatch.setattr(DPNet, "_working_copies", lambda self: contextlib.nullcontext())
    try:
        module = fit(rng)
    except AssertionError:  # the criterion has kept it
        return
    assert kept(module)


def test_a_module_that_cannot_be_copied_is_refused_before_the_charge(rng):
    X = rows(rng)

    class Pinned(nn.Linear):
        def __deepcopy__(self, memo):
            raise TypeError("pinned to its place")

    net = net_of(Pinned(4, 1), X, criterion=nn.MSELoss)
    with pytest.raises(ValueError, match=r"copy\.deepcopy cannot copy the module or the criterion: pinned"):
        net.check(X, X[:, :1])


def test_a_net_pickles_and_trains_on_after_its_copies_are_gone(rng):
    X = rows(rng)
    net = DPNet(
        Keeps, module__n_in=4, module__n_out=1, criterion=nn.MSELoss, plan=charged(DPSGDPlan(0.5, 3, 1.0, 1.0, 30.0)),
        optimizer=torch.optim.Adam, verbose=0, random_state=0,
    ).fit(X, X[:, :1])  # fmt: skip
    weights = [p for group in net.optimizer_.param_groups for p in group["params"]]
    assert all(a is b for a, b in zip(weights, net.module_.parameters()))
    assert MARK.tobytes() not in pickle.dumps(net.module_.state_dict())
    before = net.module_.layer.weight.detach().clone()
    net.set_params(plan=charged(DPSGDPlan(0.5, 3, 1.0, 1.0, 30.0))).partial_fit(X, X[:, :1])
    assert not torch.equal(before, net.module_.layer.weight)
