"""DPNet protects units of several rows: it needs their names, follows the plan, and an audit finds what breaks it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from _charged import charged
from scipy import stats
from sklearn.base import clone
from torch import nn

from skdpgen._types import BoundedUnit
from skdpgen.accounting import PrivacyAccountant
from skdpgen.audit import _audit, audit_training
from skdpgen.dpsgd import ClippedSum, DPSGDPlan, PoissonLoader, TermwisePlan, WholeBatchPlan
from skdpgen.dpsgd._units import RowUnits
from skdpgen.exceptions import PrivacyLeakWarning
from skdpgen.nn import DPNet, P3GMModule
from skdpgen.testing import seeded_noise
from skdpgen.utils.noise import NoiseGenerator

GROUPS = np.array(["a", "b", "b", "c", "c", "c", "d", "e", "e", "f"] * 6)


class Autoencoder(nn.Module):
    noise_shape = (3,)
    group_noise_shape = (2,)

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 4))

    def forward(self, x, noise):
        return (self.layers(x + 0.1 * noise.mean(1, keepdim=True)) - x).square().sum(1)

    def group_losses(self, x, members, noise, group_noise):
        h = self.layers(x) * members[..., None]
        return h.sum((1, 2)) / (1 + members.sum(1)) + 0 * group_noise.sum(1)


def make_plan(kind=DPSGDPlan, weighting="rows", z=1.0, max_rows=18, **changes):
    settings = {"sampling_rate": 0.3, "steps": 8, "noise_multiplier": z, "expected_batch_size": 18}
    if kind is DPSGDPlan:
        settings["l2_bound"] = 1.0
    if kind is TermwisePlan:
        settings["n_groups"] = 3
    settings["unit"] = BoundedUnit("person", max_rows, weighting) if max_rows else None
    return charged(kind(**{**settings, **changes}))


def make_net(plan, module=Autoencoder, **options):
    return DPNet(module, plan=plan, verbose=0, random_state=0, **options)


@pytest.fixture(name="X")
def records(rng):
    return rng.standard_normal((60, 4)).astype(np.float32)


def parameters(net):
    return torch.cat([p.detach().flatten() for p in net.module_.parameters()])


@pytest.mark.parametrize("weighting", ["rows", "units"])
@pytest.mark.parametrize("kind", [DPSGDPlan, TermwisePlan, WholeBatchPlan])
def test_a_net_trains_by_units_under_every_plan(X, kind, weighting):
    plan = make_plan(kind, weighting)
    net = make_net(plan).fit(X, groups=GROUPS)
    assert net.steps_taken_ == plan.steps_taken == 8
    assert bool(torch.isfinite(parameters(net)).all())
    assert not any(np.array_equal(value, GROUPS) for value in vars(net).values() if isinstance(value, np.ndarray))
    assert clone(net).plan is plan


def test_groups_belong_to_plans_with_a_unit(X):
    with pytest.raises(ValueError, match="fit needs groups="):
        make_net(make_plan()).fit(X)
    with pytest.raises(ValueError, match="charged for rows"):
        make_net(make_plan(max_rows=None)).fit(X, groups=GROUPS)
    net = make_net(plan := make_plan())
    with pytest.raises(ValueError, match="missing entries"):
        net.fit(X, groups=[None] * 60)
    with pytest.raises(ValueError, match="one for each row"):
        net.fit(X, groups=GROUPS[:50])
    assert plan.steps_taken == 0


def test_a_net_continues_by_units(X):
    net = make_net(make_plan())
    net.partial_fit(X, groups=GROUPS)
    assert net.steps_taken_ == 8
    with pytest.raises(RuntimeError, match="all 8 steps"):
        net.partial_fit(X, groups=GROUPS)


def test_without_noise_a_step_is_the_mean_over_rows_or_over_units():
    """The loss is divided by the expected number of rows, or of units: a constant."""

    class Shift(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Linear(1, 1, bias=False)

        def forward(self, x):
            return self.shift(x)[:, 0]

    x, groups = np.array([[1.0], [2.0], [6.0]], dtype=np.float32), [7, 7, 8]
    for weighting, expected, mean in (("rows", 3, 3.0), ("units", 2, 3.75)):
        plan = make_plan(weighting=weighting, z=0.0, sampling_rate=1.0, steps=1, expected_batch_size=expected)
        net = make_net(plan, Shift, optimizer=torch.optim.SGD, lr=1.0).initialize()
        before = parameters(net).clone()
        net.partial_fit(x, groups=groups)
        assert float(before - parameters(net)) == pytest.approx(mean, rel=1e-5)


def test_units_of_one_row_train_as_records(X, monkeypatch):
    monkeypatch.setattr(NoiseGenerator, "keeps_order", True)  # the places of units are drawn otherwise
    nets, size = [], None
    for max_rows, groups in ((1, np.arange(60)), (None, None)):
        plan = make_plan(max_rows=max_rows, max_physical_batch=size)
        size = plan.physical_batch
        with pytest.warns(PrivacyLeakWarning), seeded_noise(2):
            nets.append(make_net(plan).fit(X, groups=groups))
    torch.testing.assert_close(parameters(nets[0]), parameters(nets[1]), rtol=1e-3, atol=1e-4)


def test_p3gms_net_trains_by_units(X):
    from skdpgen.nn import GaussianLikelihood, MixturePrior

    prior = MixturePrior(np.ones(1), np.zeros((1, 2)), np.ones((1, 2)))
    net = make_net(
        make_plan(), P3GMModule, module__basis=np.eye(4, 2), module__center=np.zeros(4), module__prior=prior,
        module__likelihood=GaussianLikelihood(), module__n_hidden=6,
    )  # fmt: skip
    assert net.fit(X, groups=GROUPS).path_ == "fast"


def test_a_checkpoint_of_units_is_not_resumed_for_rows(X, tmp_path):
    accountant = PrivacyAccountant(50.0, ledger=tmp_path / "ledger.json", unit="person")
    plan = DPSGDPlan(0.3, 8, 1.0, 1.0, 18, unit=BoundedUnit("person", 18))
    accountant.charge(plan, "training")
    path = tmp_path / "net.safetensors"
    net = make_net(plan, checkpoint=path).initialize()

    step = net.train_step

    def three_steps(batch, **options):
        if net.steps_taken_ == 3:
            raise KeyboardInterrupt
        return step(batch, **options)

    net.train_step = three_steps
    with pytest.raises(KeyboardInterrupt):
        net.partial_fit(X, groups=GROUPS)
    again = PrivacyAccountant(50.0, ledger=tmp_path / "ledger.json")
    with pytest.raises(RuntimeError, match="another plan"):
        again.resume(dataclasses.replace(plan, unit=None), path)
    other = dataclasses.replace(plan)
    again.resume(other, path)
    assert make_net(other, checkpoint=path).partial_fit(X, groups=GROUPS).steps_taken_ == 8


# ---- audits: a unit of k equal rows ---------------------------------------------------------------------------------
SHIPPED = ClippedSum._add_units
EVERY_STEP = DPSGDPlan(1.0, 4, 1.0, 2.0, 1000, unit=BoundedUnit("person", 5))
# At a delta above the rate, one step of little noise costs nearly nothing: a unit takes part too rarely.
SAMPLED = DPSGDPlan(0.1, 1, 1.0, 0.2, 100, unit=BoundedUnit("person", 5))
DELTA = 0.15


def clip_rows(self, inputs, units):
    """Sabotage: each row of a unit is clipped, so that a unit contributes as often as it has rows."""
    SHIPPED(self, inputs, RowUnits(np.where(units.codes >= 0, np.arange(len(units.codes)), -1)))


class SamplesRows(PoissonLoader):
    """Sabotage: rows are sampled, and those of one unit are then clipped together."""

    def __init__(self, dataset, *, units, **options):
        super().__init__(dataset, units=np.arange(len(units)), **options)
        self._unit = units

    def _rows_of(self, units):
        rows, _ = super()._rows_of(units)
        return rows, self._unit[rows]


class SplitsUnits(PoissonLoader):
    """Sabotage: a chunk ends within a unit, whose parts are clipped one by one."""

    def __iter__(self):
        for batch in super().__iter__():
            yield [self._part(chunk, place) for chunk in batch for place in (0, 1)]

    def _part(self, chunk, place):
        rows = np.arange(len(chunk.units)) % 2 == place
        return chunk._replace(units=np.where(rows, chunk.units, -1), mask=chunk.mask & torch.from_numpy(rows))


def audited(plan, canaries=600, seed=0):
    return audit_training(plan, canaries=canaries, rng=np.random.default_rng(seed), confidence=0.999)


def bound_of_sampled(confidence=0.999):
    """Lower bound of epsilon at `DELTA` by the errors of a threshold, and the claim."""
    chosen = np.random.default_rng(0).random(1000) < 0.5
    plan = charged(dataclasses.replace(SAMPLED))
    above = _audit._train(plan, plan, chosen) > 0
    alarms = stats.beta.ppf(confidence, above[~chosen].sum() + 1, (~above[~chosen]).sum())
    hits = stats.beta.ppf(1 - confidence, max(above[chosen].sum(), 1), (~above[chosen]).sum() + 1)
    return np.log(max(hits - DELTA, 1e-9) / alarms), plan.epsilon(DELTA)


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_an_audit_of_units_of_equal_rows_stays_below_the_claim(weighting):
    result = audited(dataclasses.replace(EVERY_STEP, unit=BoundedUnit("person", 5, weighting)))
    assert 0.5 * result.epsilon_claimed < result.epsilon_lower < result.epsilon_claimed
    found, claimed = bound_of_sampled()
    assert found <= claimed


def test_an_audit_of_term_wise_steps_stays_below_the_claim():
    plan = TermwisePlan(1.0, 4, noise_multiplier=2.0, expected_batch_size=1000, unit=BoundedUnit("person", 5))
    assert 0 < audited(plan).epsilon_lower < plan.epsilon(1e-5)


def test_an_audit_finds_rows_that_are_clipped_in_place_of_units(monkeypatch):
    monkeypatch.setattr(ClippedSum, "_add_units", clip_rows)
    result = audited(EVERY_STEP)
    assert result.epsilon_lower > 1.5 * result.epsilon_claimed


def test_an_audit_finds_rows_that_are_sampled_in_place_of_units(monkeypatch):
    monkeypatch.setitem(DPNet.__init__.__kwdefaults__, "iterator_train", SamplesRows)
    found, claimed = bound_of_sampled()
    assert found > claimed + 1


def test_an_audit_finds_a_chunk_that_splits_units(monkeypatch):
    monkeypatch.setitem(DPNet.__init__.__kwdefaults__, "iterator_train", SplitsUnits)
    result = audited(EVERY_STEP)
    assert result.epsilon_lower > 1.3 * result.epsilon_claimed
