"""Claims about whole fits: the ledger is what ran, nothing private is kept, noise is fresh, the row count is hidden.

And the claims about parts that no ordinary test makes.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from _claims import assert_sensitivity
from _flat import make_flat
from _private_values import find_private
from _sabotage import Audit, everywhere, quietly
from _short_fits import short_postprocessing
from sklearn.base import clone

from skdpgen import (
    DPPCA,
    DataLensSynthesizer,
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPGaussianMixture,
    DPGMSynthesizer,
    DPMERFSynthesizer,
    DPSinkhornSynthesizer,
    DPVAESynthesizer,
    GPATESynthesizer,
    GSWGANSynthesizer,
    LatentMixture,
    MomentSynthesizer,
    P3GMSynthesizer,
    PATEGANSynthesizer,
    PrivacyAccountant,
    PrivacyUnit,
    PriVAESynthesizer,
)
from skdpgen.accounting import Receipt, describe_event, epsilon_pld, gaussian_event
from skdpgen.data import frames as _frames
from skdpgen.dpsgd import ClippedSum, GradientNoise, LossModule
from skdpgen.exceptions import BudgetExceededError
from skdpgen.mechanisms import class_first_moments, class_moments
from skdpgen.nn import DPNet, DPNetClassifier, P3GMModule, PartitionedVAEModule, PriVAEModule
from skdpgen.synthesizers import _array_model, _pategan
from skdpgen.tabular import Boolean, Categorical, Numeric, Schema

N = 1009  # prime: no public size is equal to it, or to a multiple
RARE = "rare, of one record alone"


def _table():
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "height": rng.normal(1.7, 0.1, N),
            "income": rng.gamma(2.0, 931.7, N),
            "dose": rng.normal(0.0, 0.37, N),
            # counts that no edge of a round grid is equal to
            "job": rng.permutation(np.repeat(["baker", "nurse", "pilot"], [503, 307, 199])).astype(object),
        }
    )
    frame["work"] = frame["job"].str.upper()
    frame["age"] = np.where(frame["dose"] > 0.1, "old", "new").astype(object)
    frame.loc[0, "job"] = RARE
    y = np.where(rng.random(N) < 0.41, "no", "yes").astype(object)
    y[1] = RARE
    return frame, y


FRAME, Y = _table()
_NUMBERS = FRAME[["height", "income", "dose"]]
X = _NUMBERS.to_numpy()
_PUBLIC = {"bounds": [(0, 3), (0, 20_000), (-5, 5)], "l2_bound": 1.0}
_DEEP = {
    "prior": LatentMixture(n_iter=3), "decoder": "net", "steps": 6, "sampling_rate": 0.05, "warm_start_steps": 1,
    "random_state": 0,
}  # fmt: skip


def _net():
    return DPNet(P3GMModule, module__n_hidden=5)


_SHALLOW = {"n_components": 2, "steps": 6, "sampling_rate": 0.05, "random_state": 0}


def _vae():
    return DPNet(PriVAEModule, module__n_hidden=5)


def _privae(**parameters):
    defaults = {"divergence": None, "warm_start_steps": 0}
    return make_flat(PriVAESynthesizer, net=_vae(), **_SHALLOW, **{**defaults, **parameters})


def _merf(**parameters):
    sizes = {} if "image_shape" in parameters else {"hidden_layer_sizes": (6,)}
    return DPMERFSynthesizer(steps=2, n_frequencies=8, random_state=0, **sizes, **parameters)


def _cells(**parameters):
    # so little noise that classes are cut in two
    return make_flat(P3GMSynthesizer, 100.0, image_shape=(1, 3), random_state=0, **parameters)


def _transport(**parameters):
    shared = {"generated_rows": 6, "hidden_layer_sizes": (5,), **_SHALLOW}
    return make_flat(DPSinkhornSynthesizer, **shared, **parameters)


def _clusters(**parameters):
    small = DPNet(PartitionedVAEModule, module__n_hidden=5)
    return make_flat(DPGMSynthesizer, n_clusters=3, cluster_steps=2, net=small, **_SHALLOW, **parameters)


def _gan(**parameters):
    sizes = {"generator_sizes": (6,), "discriminator_sizes": (5,), "n_critic": 2, "gradient_bound": 2.0}
    return make_flat(DPCGANSynthesizer, **sizes, **_SHALLOW, **parameters)


def _votes(**parameters):
    sizes = {"generator_sizes": (6,), "student_sizes": (5,), "n_teachers": 7, "steps": 2, "labelled_rows": 6}
    return PATEGANSynthesizer(**sizes, n_components=2, random_state=0, **parameters)


def _critics(**parameters):
    sizes = {"hidden_layer_sizes": (6,), "critic_sizes": (5,), "n_critics": 7, "steps": 2, "generated_rows": 6}
    shared = {"warm_start_steps": 2, "batch_size": 3, "gradient_bound": 0.5, "n_components": 2, "random_state": 0}
    return GSWGANSynthesizer(**{**sizes, **shared, **parameters})


def _teachers(**parameters):
    sizes = {"hidden_layer_sizes": (6,), "teacher_sizes": (5,), "n_teachers": 7, "steps": 2, "generated_rows": 6}
    shared = {"warm_start_steps": 2, "batch_size": 3, "n_largest": 2, "n_components": 2, "random_state": 0}
    return DataLensSynthesizer(**{**sizes, **shared, **parameters})


def _histograms(**parameters):
    sizes = {"hidden_layer_sizes": (6,), "teacher_sizes": (5,), "n_teachers": 7, "steps": 2, "generated_rows": 6}
    shared = {"warm_start_steps": 2, "batch_size": 3, "n_projections": 3, "n_bins": 4, "n_components": 2}
    return GPATESynthesizer(random_state=0, **{**sizes, **shared, **parameters})


def _subsets(**parameters):
    shared = {"n_subsets": 7, "pretrain_steps": 2, "steps": 4, "n_components": 2, "random_state": 0}
    return make_flat(DP2VAESynthesizer, **shared, **parameters)


def _classifier(**parameters):
    return DPNetClassifier(hidden_layer_sizes=(5,), steps=6, sampling_rate=0.05, random_state=0, **parameters)


# Every kind of release: what is declared and what is learned, each prior and decoder, both relations.
FITS = {
    "pca": lambda: (DPPCA(2, random_state=0), X),
    "pca in two rounds": lambda: (DPPCA(2, centering="two_round", **_PUBLIC), X),
    "pca, replace_one": lambda: (DPPCA(2, neighboring="replace_one"), X),
    "mixture": lambda: (DPGaussianMixture(2, n_iter=3, random_state=0), X),
    "mixture by class": lambda: (DPGaussianMixture(random_state=0), X, Y),
    "mixture, frame": lambda: (DPGaussianMixture(), _NUMBERS, pd.Series(Y, name="label", dtype="category")),
    "mixture, replace_one": lambda: (DPGaussianMixture(2, n_iter=3, neighboring="replace_one"), X),
    "arrays": lambda: (P3GMSynthesizer(random_state=0), X, Y),
    "arrays, declared": lambda: (make_flat(P3GMSynthesizer, prior="gaussian", **_PUBLIC), X),
    "arrays, replace_one": lambda: (P3GMSynthesizer(neighboring="replace_one"), X, Y),
    "arrays, net": lambda: (make_flat(P3GMSynthesizer, net=_net(), **_DEEP), X, Y),
    "arrays, moments": lambda: (MomentSynthesizer(random_state=0), X, Y),
    "arrays, wide": lambda: (P3GMSynthesizer(random_state=0), np.tile(X, (1, 34)), Y),
    "arrays, wide, replace_one": lambda: (MomentSynthesizer(neighboring="replace_one"), np.tile(X, (1, 34)), Y),
    "frame, moments": lambda: (MomentSynthesizer(target=["job", "age"], constraints="dose < 9"), FRAME),
    "frame, triples": lambda: (MomentSynthesizer(8.0, target="job"), FRAME),
    "frame, target": lambda: (MomentSynthesizer(8.0, target="job", budget_split={"target": 0.2}), FRAME),
    "frame, target, replace_one": lambda: (
        P3GMSynthesizer(8.0, target="job", neighboring="replace_one", budget_split={"target": 0.1}),
        FRAME,
    ),
    "arrays, features": lambda: (P3GMSynthesizer(image_shape=(1, 3), decoder="features", random_state=0), X, Y),
    "arrays, images in cells": lambda: (_cells(), X, Y),
    "arrays, images in cells, replace_one": lambda: (_cells(neighboring="replace_one", **_PUBLIC), X, Y),
    "frame": lambda: (P3GMSynthesizer(target="job", random_state=0), FRAME),
    "frame, units": lambda: (_of_persons(columns=["job"]), PERSONS),
    "frame, units, replace_one": lambda: (
        _of_persons(columns=["age", "dose"], weighting="units", neighboring="replace_one"),
        PERSONS,
    ),
    "frame, pairs of rows of units": lambda: (_of_persons(shared=["job", "dose"]), PERSONS),
    "frame, replace_one": lambda: (P3GMSynthesizer(target="job", neighboring="replace_one"), FRAME),
    "frame, category": lambda: (P3GMSynthesizer(), _CATEGORY, pd.Series(Y, name="label", dtype="category")),
    "frame, levels": lambda: (P3GMSynthesizer(schema=_levels(), target="work"), FRAME[["work", "age"]]),
    "frame, grouped levels": lambda: (MomentSynthesizer(schema=_codes(), target="age"), FRAME[["work", "dose", "age"]]),
    "frame, learned levels": lambda: (MomentSynthesizer(150.0, target="age"), _many_codes()),
    "frame, learned levels, replace_one": lambda: (
        P3GMSynthesizer(150.0, target="age", neighboring="replace_one"),
        _many_codes(),
    ),
    "frame, net": lambda: (make_flat(P3GMSynthesizer, net=_net(), **_DEEP), FRAME, Y),
    "frame, net by class": lambda: (
        make_flat(P3GMSynthesizer, net=_net(), **{**_DEEP, "prior": "auto"}, target="job"),
        FRAME,
    ),
    "arrays, termwise net": lambda: (_privae(divergence="mmd", n_groups=3), X, Y),
    "arrays, termwise net, replace_one": lambda: (
        _privae(divergence="kl_prior", prior="sparse", n_groups=2, neighboring="replace_one"),
        X,
    ),
    "arrays, whole-batch net": lambda: (_privae(divergence="mmd", aggregation="micro"), X),
    "frame, termwise net": lambda: (_privae(divergence="mmd", prior="mixture", n_groups=3, target="job"), FRAME),
    "arrays, net from moments": lambda: (
        _privae(divergence="mmd", n_groups=3, warm_start_steps=2),
        X,
        Y,
    ),
    "frame, net from tables": lambda: (
        make_flat(DPVAESynthesizer, net=_vae(), warm_start_steps=2, **_SHALLOW),
        FRAME,
        Y,
    ),
    "frame, DP-VAE net": lambda: (
        make_flat(DPVAESynthesizer, net=_vae(), warm_start_steps=0, **_SHALLOW),
        FRAME,
        Y,
    ),
    "arrays, subsets": lambda: (_subsets(warm_start_steps=2), X, Y),
    # so little noise that classes are cut in two
    "images, subsets": lambda: (
        _subsets(
            epsilon=100.0,
            warm_start_steps=2,
            image_shape=(1, 3),
            budget_split={"moments": 1, "features": 1, "decoder": 1},
        ),
        X,
        Y,
    ),
    "arrays, one subset a step": lambda: (
        _subsets(warm_start_steps=0, sampler="one_of_k", encoder_update="on_query", neighboring="replace_one"),
        X,
    ),
    "frame, subsets": lambda: (_subsets(warm_start_steps=0, encoder_update="round_robin", target="job"), FRAME),
    "frame, subsets from tables": lambda: (_subsets(warm_start_steps=2), FRAME, Y),
    "arrays, clustered nets": lambda: (_clusters(), X, Y),
    "arrays, clustered nets, replace_one": lambda: (_clusters(neighboring="replace_one"), X),
    "frame, clustered nets": lambda: (_clusters(target="job"), FRAME),
    "arrays, embedding": lambda: (_merf(), X, Y),
    "arrays, embedding, replace_one": lambda: (_merf(neighboring="replace_one"), X, Y),
    "images, embedding": lambda: (_merf(image_shape=(1, 3)), X, Y),
    "frame, embedding": lambda: (_merf(target="job"), FRAME),
    "arrays, transport net": lambda: (_transport(), X, Y),
    "arrays, transport net, replace_one": lambda: (_transport(neighboring="replace_one"), X),
    "frame, transport net": lambda: (_transport(target="job"), FRAME),
    "arrays, adversarial net": lambda: (_gan(), X, Y),
    "arrays, adversarial net, replace_one": lambda: (_gan(neighboring="replace_one"), X),
    "frame, adversarial net": lambda: (_gan(target="job"), FRAME),
    "arrays, votes": lambda: (_votes(), X, Y),
    "arrays, votes, replace_one": lambda: (_votes(neighboring="replace_one"), X),
    "frame, votes": lambda: (_votes(target="job"), FRAME),
    "frame, votes of units": lambda: (_votes(unit="person", max_rows_per_unit=3), PERSONS),
    "arrays, critics": lambda: (_critics(), X, Y),
    "arrays, sampled critics": lambda: (_critics(critics_per_step=3, steps=4), X, Y),
    "arrays, critics, replace_one": lambda: (_critics(neighboring="replace_one"), X),
    "frame, critics": lambda: (_critics(target="job"), FRAME),
    "frame, critics of units": lambda: (_critics(unit="person", max_rows_per_unit=3), PERSONS),
    "arrays, signs": lambda: (_teachers(), X, Y),
    "arrays, signs, replace_one": lambda: (_teachers(neighboring="replace_one", threshold=0.5), X),
    "frame, signs": lambda: (_teachers(target="job"), FRAME),
    "frame, signs of units": lambda: (_teachers(unit="person", max_rows_per_unit=3), PERSONS),
    "arrays, histograms": lambda: (_histograms(), X, Y),
    "arrays, histograms, replace_one": lambda: (_histograms(neighboring="replace_one", vote="largest"), X),
    "frame, histograms": lambda: (_histograms(target="job"), FRAME),
    "frame, histograms of units": lambda: (_histograms(unit="person", max_rows_per_unit=3), PERSONS),
    "classifier, net": lambda: (_classifier(), X, Y),
    "classifier, net, replace_one": lambda: (_classifier(neighboring="replace_one"), X, Y),
}
_CATEGORY = FRAME.astype({"job": "category"})


# what noise may make of released sums
POOR = {
    "negative": lambda noisy: -1e6 - np.abs(noisy),
    "zero": np.zeros_like,
    "large": lambda noisy: 1e6 + np.abs(noisy),
}


# persons of one to nine rows
PERSONS = FRAME.assign(person=[f"person {i}" for i in np.random.default_rng(5).geometric(0.4, N).cumsum() // 4])


def _of_persons(columns=None, shared=None, weighting="rows", **parameters):
    unit = PrivacyUnit("person", 3, weighting=weighting, columns=columns, shared=shared)
    return MomentSynthesizer(unit=unit, target="job", random_state=0, **parameters)


def _levels():
    return Schema([Categorical("work", ("BAKER", "NURSE", "PILOT")), Categorical("age", ("new", "old"))])


def _codes():
    """So many declared categories that the column is modelled by groups of them."""
    codes = ("BAKER", "NURSE", "PILOT", *(f"code {i}" for i in range(140)))
    return Schema([Categorical("work", codes), Numeric("dose", (-5, 5)), Categorical("age", ("new", "old"))])


def _many_codes():
    """A column of so many categories, none of them declared, that it is modelled by groups of them."""
    return FRAME[["dose", "age"]].assign(work=[f"code {i % 233}" for i in range(N)])


def _fit(name, audit=None):
    estimator, *data = FITS[name]()
    with short_postprocessing():
        return quietly(lambda: estimator.fit(*data)), data


def ledger_is_what_ran(name):
    """Every release and every step ran at the noise, rate, delta and relation that were charged, and nothing else."""
    with Audit() as audit:
        fitted, _ = _fit(name)
    audit.check(fitted.accountant_)
    fitted.card_.verify()
    if fitted.accountant_.neighboring == "add_or_remove_one":
        for plan in audit.plans:
            expected = plan.expected_batch_size / plan.sampling_rate
            assert abs(expected - N) > 1e-6, "the denominator holds the exact number of rows"
    assert (len(audit.plans) > 0) == ("net" in name)


def a_poor_release_is_made_once(name, poor):
    """Whatever the noise makes of the sums, the fit ends, and what ran is what was charged: nothing is drawn again."""
    with Audit(POOR[poor]) as audit:
        fitted, _ = _fit(name)
    audit.check(fitted.accountant_)


def nothing_private_is_kept(name):
    """No exact count, statistic, cell, row or rare category is anywhere on the fitted estimator or in its pickle."""
    fitted, data = _fit(name)
    # the columns of wide arrays are these three again and again
    frame = data[0] if isinstance(data[0], pd.DataFrame) else pd.DataFrame(data[0][:, :3], columns=["a", "b", "c"])
    public = fitted.accountant_.neighboring == "replace_one"
    scaling = fitted.model_.codec.scaling if name.startswith("arrays") else getattr(fitted, "scaling_", None)
    derived = None  # classes may stand beside the columns of X
    if scaling is not None:
        lower, upper, offset, scale = (
            side[: X.shape[1]] for side in (scaling.lower, scaling.upper, scaling.offset, scaling.scale)
        )
        derived = (np.clip(X, lower, upper) - offset) / scale
    found = find_private(fitted, frame, *data[1:], derived=derived, count_is_public=public)
    assert not found, "\n".join(found)


# Functions that decide by a number of rows what is released, and a fit that asks each of them.
DECISIONS = {
    "hides_shapes": (_array_model, "arrays"),
    "plan_bins": (_frames, "frame"),
    "prefers_scores": (_frames, "frame, moments"),
    "correlation_over_noise": (_frames, "frame, grouped levels"),
    "most_rows": (_pategan, "arrays, votes"),
}


def decisions_are_by_the_released_row_count(decision):
    """What is released never follows from the exact number of rows, whichever way it decides."""
    module, name = DECISIONS[decision]
    asked, decide = [], getattr(module, decision)

    def observed(size, *args, **options):
        asked.append(float(getattr(size, "n_rows", size)))
        return decide(size, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        everywhere(patch, decide, observed)
        _fit(name)
    assert asked
    assert float(N) not in asked


def fits_under_one_seed_differ(name):
    """`random_state` seeds no noise."""
    one, other = (_released(_fit(name)[0]) for _ in range(2))
    assert len(one) == len(other)
    assert not all(np.array_equal(a, b) for a, b in zip(one, other))


def _released(fitted):
    if isinstance(fitted, MomentSynthesizer | P3GMSynthesizer):
        generator = getattr(fitted.model_, "generator", None) or fitted.model_.latent_model
        space = getattr(generator, "space", None)
        return [fitted.model_.row_count, generator.mean if space is None else space.center]
    return [fitted.mean_, fitted.components_] if isinstance(fitted, DPPCA) else [fitted.means_, fitted.weights_]


def the_row_count_is_hidden(name):
    """Under add_or_remove_one `sample()` draws a released number of rows, which is not that of the data."""
    sizes = set()
    for _ in range(3):
        fitted, _ = _fit(name)
        drawn = fitted.sample()
        sizes.add(len(drawn[0] if isinstance(drawn, tuple) else drawn))
    assert sizes != {N}
    assert len(sizes) > 1


def a_refused_fit_releases_nothing(name):
    """Without budget there is no release, and no fitted attribute."""
    estimator, *data = FITS[name]()
    estimator.set_params(accountant=PrivacyAccountant(0.01))
    before = set(vars(estimator))
    with Audit() as audit:
        try:
            quietly(lambda: estimator.fit(*data))
        except BudgetExceededError:
            pass
        else:
            raise AssertionError("a fit that nobody paid for")
    assert not audit.log
    assert set(vars(estimator)) == before


def votes_are_one_release_a_step(synth, data, shape, distance):
    """The noise of three steps is for a distance, whatever the votes are, and is charged without amplification."""
    plans, released, cover, shipped = [], [], Receipt.cover, GradientNoise.release

    def release(noise, bounded, *rest, **options):
        released.append(noise.noise_multiplier * bounded.add_or_remove_one)
        assert bounded.value[0].shape == shape
        return shipped(noise, bounded, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Receipt, "cover", lambda receipt, plan: plans.append(plan) or cover(receipt, plan))
        patch.setattr(GradientNoise, "release", release)
        synth.fit(*data)
    (plan,), (charge,) = plans, synth.accountant_.charges
    counts, votes = describe_event(charge.event)
    assert (counts["mechanism"], counts["count"]) == ("gaussian", 1)
    assert (votes["mechanism"], votes["sampling_rate"], votes["count"]) == ("gaussian", None, 3)
    expected = distance * votes["noise_multiplier"]
    assert plan.noise_std == pytest.approx(expected)
    assert released == pytest.approx([expected] * 3)
    alone = gaussian_event(votes["noise_multiplier"], 3)
    assert 0.9 * 3 < epsilon_pld(alone, 1e-5, synth.accountant_.neighboring) < synth.card_["fit"]["epsilon"] <= 3.0


def networks_of_many_levels_are_refused(estimator, target, **parameters):
    """Memory is foreseen by the levels that a schema declares, and not by two a column: nothing is charged."""
    frame = pd.DataFrame({"code": ["0", "1", "2"] * 20, "late": [True, False] * 30})
    for n, refused in ((40, False), (20_000, True)):
        schema = Schema([Categorical("code", tuple(map(str, range(n)))), Boolean("late")])
        accountant = PrivacyAccountant(1.0)
        synth = estimator(None, accountant=accountant, schema=schema, target=target, **parameters)
        if refused:
            with pytest.raises(ValueError, match="the model would have"):
                synth.fit(frame)
        else:
            synth.fit(frame)
        assert bool(accountant.entries) != refused


def a_clone_charges_the_same_books(name):
    """Two fits of clones are two charges in the books of the first."""
    estimator, *data = FITS[name]()
    books = PrivacyAccountant(50.0)
    estimator.set_params(accountant=books)
    for k in range(2):
        quietly(lambda: clone(estimator).fit(*data))
        assert len(books.charges) == k + 1


def a_category_of_one_record_is_not_told(name):
    """A label that one record alone has passes with chance delta, in ten fits of one that learns its categories."""
    told = set()
    for _ in range(10):
        fitted, _ = _fit(name)
        assert RARE not in list(fitted.classes_)
        told |= set(fitted.classes_)
    assert told >= {"baker", "nurse"} or told >= {"no", "yes"}


# ---- sensitivities that no other test has ----------------------------------------------------------------
def class_first_moments_sensitivity_is_attained_and_not_exceeded(relation):
    """Opposite rows of one class are further apart than rows of two; with centers, rows are clipped about them."""
    E, base = np.eye(3), (np.full((4, 3), 0.2), np.array([0, 1, 2, 0]))
    rows = [(x, k) for x in (E[0], -E[0], E[1], 9 * E[2], np.zeros(3)) for k in (-1, 0, 1)]
    joined = [(np.vstack([base[0], x]), np.append(base[1], k)) for x, k in rows]
    if relation == "add_or_remove_one":
        pairs, attained = [(base, more) for more in joined], [(base, joined[1])]
    else:
        pairs, attained = [(a, b) for a in joined for b in joined], [(joined[1], joined[4])]
    for a in (0.05, 1.0):
        best = attained if a < 1 else [(joined[1], joined[2])] if relation == "replace_one" else attained
        assert_sensitivity(
            lambda data: class_first_moments(*data, 3, count_weight=a),  # noqa: B023
            pairs,
            attained=[*best, *attained],
            relation=relation,
        )
    centers = np.array([[0.5, 0, 0], [-0.5, 0, 0], [0, 0.5, 0]])
    assert_sensitivity(
        lambda data: class_moments(*data, 3, l2_bound=0.25, centers=centers),
        pairs,
        attained=pairs,
        relation=relation,
    )


def the_sum_is_that_of_clipped_gradients():
    """Each record's gradient is clipped by its own norm, found by a backward pass of its own."""
    torch.manual_seed(0)
    net, rows = torch.nn.Linear(4, 1), torch.randn(7, 4) * torch.logspace(-2, 2, 7)[:, None]
    total = ClippedSum(LossModule(net, lambda m, x: m(x)[:, 0]), 0.5)(rows).value
    expected = [torch.zeros_like(p) for p in net.parameters()]
    for row in rows:
        gradients = torch.autograd.grad(net(row)[0], list(net.parameters()))
        norm = torch.cat([g.flatten() for g in gradients]).norm()
        for part, gradient in zip(expected, gradients):
            part += gradient * min(1.0, 0.5 / float(norm))
    for one, other in zip(total, expected):
        torch.testing.assert_close(one, other)
