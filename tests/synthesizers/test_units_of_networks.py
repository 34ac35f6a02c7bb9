"""Synthesizers whose networks are trained by DP-SGD protect persons with several rows."""

from __future__ import annotations

import numpy as np
import pytest
from _flat import make_flat
from _visits import SCHEMA, visits

from skdpgen import (
    DPCGANSynthesizer,
    DPGMSynthesizer,
    DPVAESynthesizer,
    LatentMixture,
    P3GMSynthesizer,
    PrivacyUnit,
    PriVAESynthesizer,
)
from skdpgen._parameters import flat_parameters
from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedUnit
from skdpgen.accounting import PrivacyAccountant, Receipt
from skdpgen.nn import DPNet, P3GMModule, PartitionedVAEModule, PriVAEModule, TableRefinementModule

_UNIT = {"unit": "pid", "max_rows_per_unit": 2}
_STEPS = {"sampling_rate": 0.1, "steps": 3}
_WHOLE = {"decoder": "net", "warm_start_steps": 1, **_STEPS, "net": DPNet(P3GMModule, module__n_hidden=4)}
_REFINES = {"decoder": "net", **_STEPS, "net": DPNet(TableRefinementModule, module__n_hidden=4)}
_AUTOENCODER = {**_STEPS, "n_components": 2, "net": DPNet(PriVAEModule, module__n_hidden=4)}
_VAE = {**_AUTOENCODER, "warm_start_steps": 0}
_GROUPS = {**_VAE, "divergence": "mmd", "n_groups": 3}
_PARTS = {**_AUTOENCODER, "n_clusters": 2, "cluster_steps": 2, "net": DPNet(PartitionedVAEModule, module__n_hidden=4)}
_GAN = {**_STEPS, "n_components": 2, "n_critic": 1, "generator_sizes": (4,), "discriminator_sizes": (4,)}
MODELS = {
    "P3GM that refines": (P3GMSynthesizer, _REFINES),
    "P3GM with the network of the paper": (P3GMSynthesizer, _WHOLE),
    "DP-CGAN": (DPCGANSynthesizer, _GAN),
    "DP-GM": (DPGMSynthesizer, _PARTS),
    "DP-VAE": (DPVAESynthesizer, _VAE),
    "DP-VAE from moments": (DPVAESynthesizer, {**_VAE, "warm_start_steps": 1}),
    "PriVAE": (PriVAESynthesizer, _GROUPS),
    "PriVAE, whole batch": (PriVAESynthesizer, {**_VAE, "divergence": "mmd", "aggregation": "batch"}),
}


def _fit(monkeypatch, name, *, array=False, **parameters):
    """A fitted model, and the plan of its training."""
    plans, cover = [], Receipt.cover
    monkeypatch.setattr(Receipt, "cover", lambda receipt, plan: plans.append(plan) or cover(receipt, plan))
    estimator, own = MODELS[name]
    synth, table = (
        make_flat(estimator, **{"epsilon": 50.0, "random_state": 0, **_UNIT, **own, **parameters}),
        visits(),
    )
    if array:
        X = np.column_stack([table["a"], table["a"] ** 2])
        synth.set_params(target=None, schema=None).fit(X, table["c"].to_numpy(), groups=table["pid"])
    else:
        synth.fit(table)
    (plan,) = plans
    return synth, plan


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("weighting", "neighboring"), list(zip(WEIGHTINGS, NEIGHBORING)))
def test_a_network_is_trained_by_units_on_released_numbers_alone(monkeypatch, name, weighting, neighboring):
    how = {
        "unit": PrivacyUnit("pid", weighting=weighting),
        "neighboring": neighboring,
        "target": "c",
        "schema": SCHEMA,
    }
    synth, plan = _fit(monkeypatch, name, **how)
    assert plan.unit == BoundedUnit("pid", 2, weighting)
    assert plan.neighboring == neighboring
    sampled = {"rows": 750, "units": 500}[weighting]  # a public rate times what was released, never the exact number
    assert plan.expected_batch_size == pytest.approx(0.1 * sampled, abs=3)
    assert plan.expected_batch_size != 0.1 * sampled
    assert synth.row_count_ == pytest.approx(750, abs=30)
    assert synth.card_["unit"].startswith("all rows of one pid, at most 2")
    assert synth.accountant_.charges[0].unit == "pid"
    assert list(synth.sample(3).columns) == ["a", "c"]
    assert not hasattr(synth, "score") or np.isfinite(synth.score(visits()[:20]))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "P3GM that refines"])
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_arrays_are_trained_on_by_units(monkeypatch, name, weighting):
    synth, plan = _fit(
        monkeypatch,
        name,
        array=True,
        unit=PrivacyUnit("pid", weighting=weighting),
        bounds=(-20, 20),
        classes=list("xyz"),
    )
    assert plan.unit == BoundedUnit("pid", 2, weighting)
    assert plan.expected_batch_size == pytest.approx({"rows": 75, "units": 50}[weighting], abs=5)
    X, y = synth.sample(5)
    assert X.shape == (5, 2)
    assert set(y) <= set("xyz")


def test_a_mixture_keeps_the_number_of_units(monkeypatch):
    how = {"unit": PrivacyUnit("pid", weighting="units"), "prior": LatentMixture(n_iter=1), "bounds": (-20, 20)}
    _, plan = _fit(monkeypatch, "P3GM with the network of the paper", array=True, **how)
    assert plan.expected_batch_size == pytest.approx(50, abs=5)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"batch_size": 50, "sampling_rate": None}, "may have any number of them"),
        ({"epochs": 2, "steps": None}, "may have any number of them"),
    ],
)
def test_what_needs_the_number_of_rows_is_refused_before_the_charge(name, parameters, match):
    accountant = PrivacyAccountant(1.0, unit="pid", neighboring="replace_one")
    estimator, own = MODELS[name]
    defaults = flat_parameters(estimator())
    if not parameters.keys() <= defaults.keys():
        pytest.skip("the synthesizer has no such parameter")
    parameters = {key: defaults[key] if value is None else value for key, value in parameters.items()}
    synth = make_flat(estimator, accountant=accountant, **{**own, **_UNIT, **parameters})
    for call in (synth.fit, synth.plan):
        with pytest.raises(ValueError, match=match):
            call(visits())
    assert not accountant.entries
