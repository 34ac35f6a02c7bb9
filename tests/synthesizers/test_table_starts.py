"""Autoencoders of tables start from released moments: by default, and by the likelihood of synthetic rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from _flat import make_flat

from skdpgen import DPSGD, DPVAESynthesizer, PriVAESynthesizer
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.nn import GaussianMixturePrior, PriVAEModule, TableLikelihood
from skdpgen.synthesizers import _moment_start, _privae
from skdpgen.tabular import Categorical, Schema

CLASSES = 3
LEVELS = {"hue": ("a", "b", "c"), "tone": ("a", "b", "c"), "kind": ("x", "y", "z")}
SCHEMA = Schema([Categorical(name, levels) for name, levels in LEVELS.items()])
NETWORK = SimpleNamespace(seed=0, progress=False)


def table(n=2000):
    """Of class x the tone is the hue, of the others it is not."""
    rng = np.random.default_rng(0)
    kind, hue, tone = rng.choice(list("xyz"), n), rng.choice(list("abc"), n), rng.choice(list("abc"), n)
    return pd.DataFrame({"hue": hue, "tone": np.where(kind == "x", hue, tone), "kind": kind})


def one_hot(frame):
    parts = [frame[name].to_numpy()[:, None] == np.array(levels) for name, levels in LEVELS.items()]
    return np.concatenate(parts, axis=1).astype(np.float32)


def module(seed=0, n_labels=CLASSES, widths=(3, 3), **parameters):
    torch.manual_seed(seed)
    return PriVAEModule(sum(widths), 2, TableLikelihood(widths), n_labels=n_labels, n_hidden=50, **parameters)


def normals(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def likelihood(own, x):
    return _moment_start._PriorLikelihood(own, torch.from_numpy(x), torch.Generator().manual_seed(0))


# ---- by default ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [DPVAESynthesizer, PriVAESynthesizer])
def test_a_table_starts_from_moments_by_default_and_an_array_does_not(model):
    frame = table(300)
    given = {"schema": SCHEMA, "target": "kind"}
    shares = {phase.label: phase.share for phase in model(**given).plan(frame).phases}
    assert {"moments", "training"} <= shares.keys()
    assert shares["moments"] == pytest.approx(4 * shares["training"])
    without = model(**given, training=DPSGD(warm_start_steps=0)).plan(frame)
    assert {"counts", "training"} == {phase.label for phase in without.phases} - {"rows"}
    numbers = np.random.default_rng(0).random((300, 3))
    assert [phase.label for phase in model(bounds=(0, 1)).plan(numbers).phases] == ["counts", "training"]
    images = [phase.label for phase in model(bounds=(0, 1), image_shape=(1, 3)).plan(numbers).phases]
    assert images == ["mean", "norm", "moments", "greys", "training"]


def test_a_prior_that_shapes_the_latents_starts_from_random_parameters():
    images = {"bounds": (0, 1), "image_shape": (1, 3), "prior": "sparse"}
    plan = PriVAESynthesizer(**images).plan(np.random.default_rng(0).random((300, 3)))
    assert [phase.label for phase in plan.phases] == ["counts", "training"]


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("model", [DPVAESynthesizer, PriVAESynthesizer])
@pytest.mark.parametrize("training", [None, DPSGD(2, 0.1, warm_start_steps=1), DPSGD(2, batch_size=30)])
def test_the_card_states_the_steps_of_the_start(monkeypatch, model, training):
    monkeypatch.setattr(_privae, "_START_STEPS", 3)
    monkeypatch.setitem(model._training_defaults, "steps", 2)
    monkeypatch.setitem(fit_tables.__kwdefaults__, "n_iter", 5)
    asked = None if training is None else training.warm_start_steps
    relation = "replace_one" if training is not None and training.batch_size else None
    shared = {"n_components": 2, "training": training, "neighboring": relation, "epsilon": 20.0}
    fitted = model(**shared, schema=SCHEMA, target="kind").fit(table(300))
    assert fitted.card_["model"]["parameters"]["training"]["warm_start_steps"] == (asked or 3)
    assert fitted.training is training
    numbers = np.random.default_rng(0).random((300, 3))
    for shape, steps in ((None, 0), ((1, 3), 3)):
        fitted = model(**shared, bounds=(0, 1), image_shape=shape).fit(numbers)
        assert fitted.card_["model"]["parameters"]["training"]["warm_start_steps"] == (asked or steps)


# ---- the likelihood of rows under the prior --------------------------------------------------------------------------
@pytest.mark.parametrize("prior", [None, GaussianMixturePrior(np.eye(2), 0.1, learned=True)])
@pytest.mark.parametrize("n_labels", [CLASSES, 0])
def test_the_estimate_is_the_likelihood_of_the_mixture_at_the_draws(prior, n_labels):
    x = one_hot(table(60))[:, : 6 + n_labels]
    own = module(n_labels=n_labels, prior=prior)
    estimate = likelihood(own, x)
    batch = []
    randint = torch.randint
    with pytest.MonkeyPatch.context() as patch:  # every row once, in place of random ones

        def all_rows(n, size, generator):
            batch.append(n)
            return torch.arange(n)

        patch.setattr(torch, "randint", all_rows)
        found = estimate.estimate(normals)
    assert torch.randint is randint
    assert sum(batch) == 60
    z = own.prior.sample(normals(1, estimate.n_draws, 2, 2))[0]
    total = 0.0
    for row in torch.from_numpy(x):
        labels = row[6:].expand(len(z), -1) if n_labels else None
        total = total + torch.logsumexp(own.likelihood.log_prob(own.decode(z, labels), row[:6]), 0) / 60
    assert found.item() == pytest.approx(total.item(), abs=1e-4)
    found.backward()
    assert all(p.grad is not None for p in own.decoder.parameters())
    assert all(p.grad is None for p in own.encoder.parameters())


def test_a_step_has_few_classes_in_proportion_to_their_rows():
    shares = np.arange(1, 11) / 55
    classes = np.repeat(np.arange(10), 40 * np.arange(1, 11))
    x = np.concatenate([np.eye(8)[classes % 8], np.eye(10)[classes]], axis=1).astype(np.float32)
    estimate, seen = likelihood(module(n_labels=10, widths=(8,)), x), np.zeros(10)
    for _ in range(2000):
        chosen = dict(estimate._classes())
        assert len(chosen) <= 4
        assert sum(chosen.values()) == pytest.approx(1.0)
        for code, weight in chosen.items():
            seen[code] += weight
    np.testing.assert_allclose(seen / 2000, shares, atol=0.015)
    assert np.isfinite(estimate.estimate(normals).item())


def test_wide_tables_have_fewer_draws():
    narrow, wide = (
        likelihood(module(n_labels=0, widths=(width,)), np.eye(width, dtype=np.float32)).n_draws for width in (10, 2000)
    )
    assert narrow == 512
    assert wide == 100


def test_scores_of_rows_under_outputs_are_their_log_probabilities():
    own, rng = TableLikelihood((3, 2)), torch.Generator().manual_seed(0)
    outputs = torch.randn(4, 5, generator=rng)
    rows = torch.eye(3)[:, [0, 1, 2, 0, 1]]
    each = torch.stack([own.log_prob(outputs, row) for row in rows])
    torch.testing.assert_close(own.log_scores(outputs, rows), each)


# ---- what it buys ----------------------------------------------------------------------------------------------------
def dependence(own):
    """Share of drawn rows of class x whose tone is their hue."""
    z, label = normals(2000, 2), torch.eye(CLASSES)[0].expand(2000, -1)
    with torch.no_grad():
        p = own.likelihood.mean(own.decode(z, label))
    return float((p[:, :3] * p[:, 3:]).sum(1).mean())


def test_the_decoder_learns_dependencies_that_the_bound_alone_misses(monkeypatch):
    x, found = one_hot(table()), {}
    for kind in ("both", "bound alone"):
        if kind == "bound alone":
            monkeypatch.setattr(_moment_start._PriorLikelihood, "estimate", lambda self, normals: 0.0)
        own = module(divergence="mmd")
        _moment_start.start_autoencoder(own, x, 300, NETWORK)
        found[kind] = dependence(own)
    assert found["both"] > 0.6
    assert found["both"] > found["bound alone"] + 0.1


def test_a_fit_from_tables_keeps_dependencies():
    shared = {"n_components": 2, "warm_start_steps": 400, "steps": 10, "random_state": 0}
    fitted = make_flat(PriVAESynthesizer, 5.0, schema=SCHEMA, target="kind", **shared).fit(table(4000))
    drawn = fitted.sample(3000, random_state=0)
    alike = (drawn["hue"] == drawn["tone"]).groupby(drawn["kind"]).mean()
    assert alike["x"] > 0.75
    assert alike[["y", "z"]].max() < 0.55
