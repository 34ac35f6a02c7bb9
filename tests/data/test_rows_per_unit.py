"""How many rows of a unit are used may be learned: one histogram of units, and a quantile of what is released."""

from __future__ import annotations

import operator

import numpy as np
import pandas as pd
import pytest
from _flat import make_flat
from _short_fits import short_postprocessing
from _visits import SCHEMA, visits

import skdpgen
from skdpgen import (
    DPPCA,
    DP2VAESynthesizer,
    DPGaussianMixture,
    DPGMSynthesizer,
    DPMERFSynthesizer,
    DPVAESynthesizer,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyAccountant,
    PrivacyUnit,
    PriVAESynthesizer,
    PrivateSearchCV,
)
from skdpgen._base import PrivateEstimator
from skdpgen._types import NEIGHBORING, WEIGHTINGS, UnitRelation
from skdpgen.accounting import BudgetPlan
from skdpgen.data import rows_per_unit
from skdpgen.data.frames import FrameRows
from skdpgen.data.rows_per_unit import OpenUnit, release_max_rows
from skdpgen.data.sources import MemorySource, open_source
from skdpgen.data.units import UnitSource
from skdpgen.exceptions import UtilityWarning
from skdpgen.mechanisms import histogram_of_units
from skdpgen.nn import DPNet, DPNetClassifier, PartitionedVAEModule, PriVAEModule
from skdpgen.testing import check_noninterference
from skdpgen.utils.noise import make_noise_generator
from skdpgen.utils.watching import watch_releases

pytestmark = pytest.mark.usefixtures("short_fits")

OPEN = OpenUnit.of("pid", "rows")


def _visits(n_units=2000, sizes=(1, 1, 1, 1, 1, 1, 1, 3, 3, 7)):
    """Of ten units, seven have one row, two have three, and one has seven."""
    return visits(n_units, sizes)


class _Rows:
    def __init__(self, *sizes):
        self._sizes = sizes

    def rows_per_unit(self):
        yield from (np.array(part) for part in self._sizes)


# ---- the sum -----------------------------------------------------------------------------------------------------
def _count(sizes):
    return histogram_of_units([rows_per_unit._cells(np.array(sizes, dtype=int))], len(rows_per_unit._CHOICES))


def test_a_unit_moves_the_histogram_by_one_however_many_rows_it_has():
    rng, others = np.random.default_rng(0), [1, 2, 5, 89, 400]
    added, replaced = (_count(others).sensitivity(UnitRelation(name, OPEN)) for name in NEIGHBORING)
    assert (added, replaced) == (1.0, 2**0.5)
    sizes = [1, 2, 3, 88, 89, 90, 10**6, *rng.integers(1, 500, 30)]
    changes = np.array([_count([*others, n]).value - _count(others).value for n in sizes])
    assert (np.linalg.norm(changes, axis=1) == added).all()  # attained by every unit
    gaps = np.linalg.norm(changes[:, None] - changes[None], axis=2)
    assert gaps.max() == pytest.approx(replaced, rel=1e-12)


def test_the_choice_is_the_least_at_which_enough_units_have_no_more_rows():
    rng, sizes = make_noise_generator("fast"), [1] * 700 + [3] * 200 + [7] * 60 + [500] * 40
    for weighting, expected in (("rows", 3), ("units", 8)):
        relation = UnitRelation(NEIGHBORING[0], OpenUnit.of("pid", weighting))
        rng.unit = relation.unit
        unit = release_max_rows(_Rows(sizes[:300], sizes[300:]), 0.5, rng, relation)
        assert (unit.max_rows, unit.weighting, type(unit).__name__) == (expected, weighting, "BoundedUnit")
        rng.unit = relation.unit
        assert release_max_rows(_Rows([400] * 100), 0.5, rng, relation).max_rows == 89


def test_noise_alone_is_no_tail_of_large_units():
    """Ten cells of noise would be many large units; a table that is hidden in the noise uses one row of each."""
    rng, relation = make_noise_generator("fast"), UnitRelation(NEIGHBORING[0], OPEN)
    found = []
    for _ in range(40):
        rng.unit = OPEN
        found.append(release_max_rows(_Rows([1] * 2000 + [2] * 300), 40.0, rng, relation).max_rows)
    assert np.mean(np.array(found) <= 2) > 0.8
    rng.unit = OPEN
    with pytest.warns(UtilityWarning, match="too few units for this noise"):
        assert release_max_rows(_Rows([1] * 3), 1e6, rng, UnitRelation(NEIGHBORING[0], OPEN)).max_rows in (1, 89)


# ---- fits --------------------------------------------------------------------------------------------------------
_STEPS = {"sampling_rate": 0.1, "steps": 2}
_AUTOENCODER = {**_STEPS, "n_components": 2, "net": DPNet(PriVAEModule, module__n_hidden=4)}
_VAE = {**_AUTOENCODER, "warm_start_steps": 0}
_PARTS = {**_AUTOENCODER, "n_clusters": 2, "cluster_steps": 2, "net": DPNet(PartitionedVAEModule, module__n_hidden=4)}
_SUBSETS = {"n_subsets": 20, "pretrain_steps": 1, "steps": 2, "n_components": 2, "warm_start_steps": 0}
MODELS = {
    "Moment": (MomentSynthesizer, {}),
    "P3GM": (P3GMSynthesizer, {}),
    "DP-VAE": (DPVAESynthesizer, _VAE),
    "PriVAE": (PriVAESynthesizer, {**_VAE, "divergence": "mmd", "n_groups": 3}),
    "DP-GM": (DPGMSynthesizer, _PARTS),
    "DP-MERF": (DPMERFSynthesizer, {"steps": 1, "n_frequencies": 5}),
    "DP2-VAE": (DP2VAESynthesizer, _SUBSETS),
}


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize(("i", "name"), list(enumerate(MODELS)))
def test_every_synthesizer_learns_it_first_and_uses_it(i, name, tmp_path):
    estimator, own = MODELS[name]
    weighting, relation = WEIGHTINGS[i % 2], NEIGHBORING[i // 2 % 2]
    how = {"unit": PrivacyUnit("pid", weighting=weighting), "neighboring": relation, "random_state": 0}
    synth = make_flat(estimator, 30.0, schema=SCHEMA, **how, **own)
    labels = [phase.label for phase in synth.plan(_visits()).phases]
    assert labels[0] == "unit_rows"
    synth.fit(_visits())
    k = {"rows": 3, "units": 8}[weighting]
    assert synth.max_rows_per_unit_ == k
    assert synth.card_["unit"].startswith(f"all rows of one pid, at most {k} of them used")
    assert f"most rows used of one unit: {k}, learned by this fit" in "".join(synth.card_["public_assumptions"])
    assert "unit_rows" in synth.accountant_.charges[0].label
    assert synth.row_count_ == pytest.approx({"rows": 3200, "units": 4000}[weighting], rel=0.05)
    synth.card_.verify()
    synth.save(tmp_path / "m.safetensors")
    assert skdpgen.load(tmp_path / "m.safetensors").max_rows_per_unit_ == k


def test_chunks_and_arrays_learn_it_too():
    frame = _visits()
    chunks = [frame[:1500], frame[1500:1501], frame[1501:]]
    assert MomentSynthesizer(30.0, schema=SCHEMA, unit="pid").fit(chunks).max_rows_per_unit_ == 3
    own = MomentSynthesizer(30.0, schema=SCHEMA, unit=PrivacyUnit("pid", missing="own"))
    lost = frame.astype({"pid": "Int64"}).assign(pid=lambda f: f["pid"].where(f["pid"] >= 1000))
    assert own.fit(lost).max_rows_per_unit_ == 1  # a row without an identifier is a unit of one row
    assert MomentSynthesizer(30.0).fit(frame[["a"]].to_numpy(), groups=frame["pid"]).max_rows_per_unit_ == 3


def _in_chunks(frame, length=12):
    """Sorted by unit, and so short that a unit of thirty rows lies in three of them at least."""
    frame = frame.sort_values("pid", kind="stable", ignore_index=True)
    return [frame.iloc[at : at + length] for at in range(0, len(frame), length)]


@pytest.mark.parametrize(("weighting", "missing"), [("rows", "own"), ("units", "refuse")])
def test_chunks_count_and_use_the_rows_of_each_unit_as_memory_does(weighting, missing):
    """However a unit is cut: it is counted once, and no more rows of it are used than were learned."""
    frame = _visits(6, (1, 2, 30, 3)).astype({"pid": "Int64"})
    if missing == "own":
        frame = pd.concat([frame, frame[:9]], ignore_index=True)
        frame.loc[len(frame) - 9 :, "pid"] = pd.NA
    sources = [
        UnitSource(source, OpenUnit.of("pid", weighting), missing, "pid")
        for source in (MemorySource(frame), open_source(_in_chunks(frame)))
    ]
    counted = [np.sort(np.concatenate(list(source.rows_per_unit()))) for source in sources]
    assert np.array_equal(*counted)
    used = []
    for source in sources:
        source.settle(OpenUnit.of("pid", weighting).closed(3))
        source.choose(7)
        used.append(source.reduce(lambda rows, unit_sizes=None: len(rows), operator.add))
        assert source.row_count().value.sum() == used[-1]
    assert used == [np.minimum(counted[0], 3).sum()] * 2


NUMBERS = {
    "DP-PCA": (DPPCA, {"n_components": 1}),
    "DP-PCA, two rounds": (DPPCA, {"n_components": 1, "centering": "two_round"}),
    "mixture": (DPGaussianMixture, {"n_components": 2, "n_iter": 2}),
    "one Gaussian": (DPGaussianMixture, {"n_components": 1}),
    "classifier": (DPNetClassifier, {**_STEPS, "classes": (0, 1)}),
    "classifier, classes learned": (DPNetClassifier, {**_STEPS, "bounds": None}),
}


@pytest.mark.parametrize(("i", "name"), list(enumerate(NUMBERS)))
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_estimators_of_numbers_learn_it_first_and_use_it(i, name):
    estimator, own = NUMBERS[name]
    weighting, relation = WEIGHTINGS[i % 2], NEIGHBORING[i // 2 % 2]
    frame, k = _visits()[["pid", "a"]].assign(b=1.0), {"rows": 3, "units": 8}[weighting]
    how = {"unit": PrivacyUnit("pid", weighting=weighting), "neighboring": relation, "bounds": (-4, 4), **own}
    rows = (frame, (frame["a"] > 0).astype(int)) if estimator is DPNetClassifier else (frame,)
    made = make_flat(estimator, epsilon=30.0, **how)
    assert next(phase.label for phase in made.plan(*rows).phases) == "unit_rows"
    made.fit(*rows)
    assert made.max_rows_per_unit_ == k
    assert made.card_["unit"].startswith(f"all rows of one pid, at most {k} of them used")
    assert f"most rows used of one unit: {k}, learned by this fit" in "".join(made.card_["public_assumptions"])
    made.card_.verify()
    declared = make_flat(estimator, epsilon=30.0, max_rows_per_unit=k, **how)
    assert declared.fit(*rows).max_rows_per_unit_ == k
    assert "unit_rows" not in declared.accountant_.charges[0].label


def test_noise_of_estimators_of_numbers_follows_the_number_that_was_learned(monkeypatch):
    """All noise after the first release is for the learned number of rows, and not for the largest there may be."""
    seen = []
    with watch_releases(lambda released, sd, kind: seen.append(sd)):
        made = DPPCA(1, epsilon=30.0, unit="pid", bounds=(-4, 4), l2_bound=2.0).fit(
            _visits()[["pid", "a"]].assign(b=1.0)
        )
    learned = [float(np.max(sd)) for sd in seen]
    seen.clear()
    monkeypatch.setattr(rows_per_unit, "release_max_rows", lambda ids, noise, rng, relation: relation.unit.closed(12))
    with watch_releases(lambda released, sd, kind: seen.append(sd)):
        DPPCA(1, epsilon=30.0, unit="pid", bounds=(-4, 4), l2_bound=2.0).fit(_visits()[["pid", "a"]].assign(b=1.0))
    assert made.max_rows_per_unit_ == 3
    assert float(np.max(seen[-1])) / learned[-1] == pytest.approx(12 / 3)


def test_what_it_costs_is_in_the_one_calibration():
    frame, declared = _visits(), {"unit": "pid", "max_rows_per_unit": 3}
    one = MomentSynthesizer(1.0, schema=SCHEMA, unit="pid").plan(frame)
    other = MomentSynthesizer(1.0, schema=SCHEMA, **declared).plan(frame)
    assert one.epsilon == other.epsilon == 1.0
    assert 1.0 < one.noise_multipliers["moments"] / other.noise_multipliers["moments"] < 1.01
    assert "a learned number of them used at most (here: 5)" in str(BudgetPlan.of(one, 1000))
    errors = [BudgetPlan.of(plan, 10**6).counts[0].one_way_error for plan in (one, other)]
    assert errors[0] / errors[1] == pytest.approx(5 / 3, rel=0.02)


class _WithoutLearning(DPPCA):
    """An estimator of a user's, which does not learn it."""

    _learned_unit = PrivateEstimator._learned_unit


def test_where_it_cannot_be_learned_it_is_asked_for_before_the_charge():
    accountant = PrivacyAccountant(1.0, unit="pid")
    pca = _WithoutLearning(unit="pid", bounds=(-4, 4))
    for made in (pca, PrivateSearchCV(pca, {"n_components": [1, 2]}, score_bounds=(-10, 0))):
        with pytest.raises(ValueError, match=r"max_rows_per_unit= .*is missing"):
            made.set_params(accountant=accountant).fit(_visits()[["pid", "a"]])
        pca.set_params(accountant=None)
    assert not accountant.entries


# ---- neighbours that differ in a person ------------------------------------------------------------------------
def _people(ids, shift, words):
    rng, n = np.random.default_rng(len(ids)), len(ids)
    return pd.DataFrame({"pid": ids, "a": rng.normal(size=n) + shift, "c": rng.choice(words, n)}).astype({"c": object})


MANY = _people(np.random.default_rng(0).integers(0, 40, 90), 0.0, ["x", "y"])
FEW = _people(100 + np.repeat(np.arange(20), 2), -40.0, ["y", "nowhere else"])
JOINING = _people(np.full(30, 999), 1e6, ["x", "alone", "alone too"])


def _check(weighting, relation, estimator=MomentSynthesizer, columns=None, source=None, **own):
    how = {"unit": PrivacyUnit("pid", weighting=weighting, columns=columns), "neighboring": relation, "random_state": 0}
    many, few, joining, of_rows = MANY, FEW, JOINING, {"target": "c"}
    if estimator in (DPPCA, DPGaussianMixture):
        many, few, joining = (part[["pid", "a"]].assign(b=part["a"] ** 2) for part in (many, few, joining))
        of_rows = {}
    with short_postprocessing():
        made = make_flat(estimator, epsilon=60.0, **of_rows, **how, **own)
        check_noninterference(made, many, few, rows=joining, source=source)


def test_a_person_in_several_chunks_moves_no_release_by_more_than_it_claims():
    _check("rows", NEIGHBORING[0], source=lambda frame: _in_chunks(frame, 35))


@pytest.mark.parametrize(
    ("weighting", "relation", "estimator", "own"),
    [
        ("rows", NEIGHBORING[0], MomentSynthesizer, {}),
        ("units", NEIGHBORING[1], MomentSynthesizer, {}),
        ("units", NEIGHBORING[0], DPVAESynthesizer, _VAE),
        ("rows", NEIGHBORING[1], MomentSynthesizer, {"columns": ["a"]}),
        ("units", NEIGHBORING[0], DPPCA, {"n_components": 1}),
        ("rows", NEIGHBORING[1], DPGaussianMixture, {"n_components": 1}),
    ],
)
def test_a_person_moves_no_release_by_more_than_it_claims(weighting, relation, estimator, own):
    _check(weighting, relation, estimator, **own)


def _exact_quantile(patch):
    patch.setattr(rows_per_unit, "add_gaussian", lambda query, *rest: query.value)


def _rows_counted(patch):
    """A unit of thirty rows counts thirty times in its cell."""
    shipped = FrameRows.rows_per_unit
    patch.setattr(FrameRows, "rows_per_unit", lambda rows: (np.repeat(part, part) for part in shipped(rows)))


def _rows_not_left_out(patch):
    """Sums are bounded for the learned number, and more rows are used."""
    patch.setattr("skdpgen.data.units.UnitSource.settle", lambda source, unit: None)


def _bounds_of_one_row(patch):
    """The noise of what follows is that of one row, however many rows were learned."""
    shipped = OpenUnit.closed
    patch.setattr(OpenUnit, "closed", lambda unit, k=5: shipped(unit, 1))
    patch.setattr("skdpgen.data.units.UnitSource.settle", lambda source, unit: None)


@pytest.mark.parametrize("sabotage", [_exact_quantile, _rows_counted, _rows_not_left_out, _bounds_of_one_row])
def test_what_weakens_the_protection_of_a_person_is_caught(monkeypatch, sabotage):
    sabotage(monkeypatch)
    with pytest.raises(AssertionError):
        _check("rows", NEIGHBORING[0])
