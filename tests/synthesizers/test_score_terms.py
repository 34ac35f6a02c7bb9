"""The score of a record is a function of that record: where it stands, and which others there are, changes nothing.

On this rests the price of a private score: a sum of terms of which a record moves its own.
"""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat
from _sabotage import Claim, assert_caught, mutant_ids, quietly

from skdpgen import (
    DP2VAESynthesizer,
    DPVAESynthesizer,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PriVAESynthesizer,
)
from skdpgen.model_selection._scoring import bounded_score, score_terms
from skdpgen.nn import DPNet, P3GMModule
from skdpgen.nn._modules import fixed_normals
from skdpgen.synthesizers._released import NetGenerator
from skdpgen.synthesizers._vae_model import VAEModel

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 4)).clip(-3, 3)
Y = np.where(X[:, 0] > 0, "a", "b").astype(object)
FRAME = pd.DataFrame(X[:, :3], columns=list("pqr")).assign(c=Y, d=RNG.choice(["x", "y", "z"], 500))
STEPS = {"sampling_rate": 0.1, "steps": 2, "random_state": 0}
NET = {**STEPS, "decoder": "net", "warm_start_steps": 5, "net": DPNet(P3GMModule, module__n_hidden=20)}
SMALL = {"n_subsets": 10, "steps": 2, "warm_start_steps": 5, "pretrain_steps": 2, "n_components": 2, "random_state": 0}
BOUNDS = {"bounds": (-3, 3)}
MODELS = {
    "P3GM, net": (lambda: make_flat(P3GMSynthesizer, **BOUNDS, **NET), X),
    "P3GM, net by class": (lambda: make_flat(P3GMSynthesizer, **BOUNDS, **NET), X, Y),
    "P3GM, net of a frame": (lambda: make_flat(P3GMSynthesizer, target="c", **NET), FRAME),
    "P3GM, mixture": (lambda: make_flat(P3GMSynthesizer, prior=LatentMixture(n_iter=2), random_state=0, **BOUNDS), X),
    "P3GM, released": (lambda: P3GMSynthesizer(target="c", random_state=0), FRAME),
    "moments": (lambda: MomentSynthesizer(random_state=0), FRAME),
    "PriVAE": (lambda: make_flat(PriVAESynthesizer, n_components=2, **BOUNDS, **STEPS), X),
    "PriVAE, by class": (lambda: make_flat(PriVAESynthesizer, n_components=2, prior="sparse", **BOUNDS, **STEPS), X, Y),
    "PriVAE of a frame": (
        lambda: make_flat(PriVAESynthesizer, n_components=2, prior="mixture", target="c", warm_start_steps=2, **STEPS),
        FRAME,
    ),
    "DP-VAE": (lambda: make_flat(DPVAESynthesizer, n_components=2, **BOUNDS, **STEPS), X),
    "DP2-VAE": (lambda: make_flat(DP2VAESynthesizer, **SMALL, **BOUNDS), X, Y),
    "DP2-VAE of a frame": (lambda: make_flat(DP2VAESynthesizer, **SMALL), FRAME),
}


@functools.cache
def _fitted(name):
    make, *data = MODELS[name]
    return quietly(lambda: make().fit(*data))


def _rows(data, order):
    return [part.iloc[order].reset_index(drop=True) if hasattr(part, "iloc") else part[order] for part in data]


def a_joining_record_moves_the_score_by_its_own_term(name):
    """In front, in the middle or at the end; within and beyond one batch of the network: all other terms stay."""
    data = MODELS[name][1:]
    for n in (499, 4200):
        base = np.arange(n) % 499
        terms = {}
        for place in (None, 0, n // 2, n):
            rows = _rows(data, base if place is None else np.insert(base, place, 499))
            terms[place] = score_terms("log_likelihood", _fitted(name), rows[0], rows[1] if len(rows) > 1 else None)
            assert np.isfinite(terms[place]).all()
        bounds = np.quantile(terms[None], [0.02, 0.98])
        score = {place: bounded_score(part, bounds) for place, part in terms.items()}
        sums = {place: part.value * part.lattice * part.weights for place, part in score.items()}
        for place in (0, n // 2, n):
            moved = np.linalg.norm(sums[place] - sums[None])
            assert moved <= score[None].sensitivity("add_or_remove_one"), f"{moved} when a record joins at {place}"
            others = np.delete(terms[place], place)
            assert np.abs(others - terms[None]).max() < 1e-10 * (bounds[1] - bounds[0])


@pytest.mark.parametrize("name", MODELS)
def test_a_joining_record_moves_the_score_by_its_own_term(name):
    a_joining_record_moves_the_score_by_its_own_term(name)


def test_the_fixed_draws_are_antithetic_and_the_same_each_time():
    draws = fixed_normals(8, (2, 3)).numpy()
    assert draws.shape == (8, 2, 3)
    assert np.array_equal(draws, fixed_normals(8, (2, 3)).numpy())
    assert np.abs(draws.mean(axis=0)).max() < 1e-15
    assert 0.6 < draws.std() < 1.5
    assert fixed_normals(5, (2,)).shape == (5, 2)


def test_more_importance_samples_give_a_closer_bound():
    model = _fitted("PriVAE")
    means = [model.score_samples(X, n_importance=n).mean() for n in (1, 16, 256)]
    assert means[0] < means[1] < means[2] + 0.1


GENERATOR = ("$start", "import torch as fresh\ngenerator = fresh.Generator().manual_seed(0)")
FRESH = "fresh.randn((len($part), *$draw.shape), generator=generator, dtype=fresh.float64)"
CLAIMS = {name: Claim(a_joining_record_moves_the_score_by_its_own_term, name) for name in MODELS}
MUTANTS = [
    (
        "a stream of draws along the rows",
        [CLAIMS["P3GM, net"], CLAIMS["P3GM, net of a frame"]],
        (
            NetGenerator.elbo,
            GENERATOR,
            (
                "$draw.expand(len($part), *$shape)",
                FRESH,
            ),
        ),
    ),
    (
        "a stream of draws along the rows",
        [CLAIMS["PriVAE"], CLAIMS["PriVAE, by class"], CLAIMS["DP-VAE"]],
        (
            VAEModel._bound,
            GENERATOR,
            (
                "$draw.expand(len($part), *$draw.shape)",
                FRESH,
            ),
        ),
    ),
    (
        "a score relative to the mean of all",
        [CLAIMS["PriVAE"]],
        (
            VAEModel._bound,
            ("np.concatenate($bounds).astype(np.float64)", "np.concatenate($bounds) - np.concatenate($bounds).mean()"),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=mutant_ids(MUTANTS))
def test_sabotage_of_a_score_is_caught(monkeypatch, mutant):
    assert_caught(monkeypatch, *mutant[1:])
