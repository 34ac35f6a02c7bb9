"""Columns of many learned categories: the charge of the moments pays for their profiles, and they have groups too."""

from __future__ import annotations

import warnings
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from _claims import RELATIONS
from _short_fits import short_postprocessing
from _watched import Queries

from skdpgen import (
    DPSGD,
    DP2VAESynthesizer,
    DPCGANSynthesizer,
    DPMERFSynthesizer,
    DPVAESynthesizer,
    MomentSynthesizer,
    P3GMSynthesizer,
    PrivacyUnit,
    SubsetSGD,
    load,
)
from skdpgen.data import table_plan
from skdpgen.data.level_groups import MOST_GROUPS, _clusters, bytes_of_profiles, most_learned, noise_with_levels
from skdpgen.exceptions import UtilityWarning
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.tabular import Categorical, Schema
from skdpgen.tabular._learning import MAX_CATEGORIES
from skdpgen.testing import check_noninterference, seeded_noise
from skdpgen.utils.watching import replay_releases

N, N_CODES = 12_000, 300
DIVIDED = 8**0.5, (8 / 7) ** 0.5  # noise of the profiles and of the moments, in that of their charge


def _rows(n=N, n_codes=N_CODES, prefix="c", seed=0):
    """One column of many codes, every third of which is that of older and sick persons."""
    rng = np.random.default_rng(seed)
    at = rng.integers(0, n_codes, n)
    return pd.DataFrame(
        {
            "code": [f"{prefix}{k:03d}" for k in at],
            "age": np.clip(rng.normal(20 + 60 * (at % 3 == 0), 8), 0, 99).astype(int),
            "sick": np.where(rng.random(n) < np.where(at % 3 == 0, 0.9, 0.1), "yes", "no"),
        }
    )


def _fit(frame, epsilon=40.0, model=MomentSynthesizer, **options):
    with short_postprocessing():
        return _watched(frame, epsilon, model, **options)


def _watched(frame, epsilon=40.0, model=MomentSynthesizer, **options):
    watch = Queries()
    with seeded_noise(3, quiet=True), replay_releases(watch), warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        synth = model(epsilon, random_state=0, **{"target": "sick", **options}).fit(frame)
    return synth, watch


@pytest.fixture(scope="module")
def fitted():
    with patch.dict(fit_tables.__kwdefaults__, n_iter=40):  # the rows of this fit are read
        return _watched(_rows())


def _groups(synth):
    return synth.model_.codec.encoder.groups_


def _profiles(watch, noise):
    return [q for q in watch.queries if q.noise_multiplier == pytest.approx(noise["moments"] * DIVIDED[0])]


def test_a_column_keeps_more_learned_categories_than_there_is_room_for(fitted):
    synth, _ = fitted
    assert (
        synth.accountant_.charges[0].label
        == "MomentSynthesizer: schema, numbers, categories, ranges, bins, moments, target"
    )
    column = synth.model_.codec.encoder.schema_["code"]
    assert len(column.categories) == N_CODES > MAX_CATEGORIES
    assert _groups(synth)["code"].n_groups == MAX_CATEGORIES + 2  # "other" and missing are alone
    rows = synth.sample(N, random_state=0)
    assert rows["code"].nunique() >= N_CODES
    thirds = rows["code"].str[1:].where(rows["code"] != "other", "1").astype(int) % 3 == 0
    assert (rows["sick"][thirds] == "yes").mean() > (rows["sick"][~thirds] == "yes").mean() + 0.6
    assert rows["age"][thirds].mean() > rows["age"][~thirds].mean() + 40


@pytest.mark.parametrize("noise", [0.3, 1.0, 17.3, 4e5])
def test_both_parts_cost_what_is_charged_and_never_more(noise):
    charged = {"schema": 2.0, "moments": noise}
    parts = noise_with_levels(charged, ["code"])
    spent = parts["levels"] ** -2 + parts["moments"] ** -2
    assert (1 - 1e-11) * noise**-2 < spent <= noise**-2
    assert parts["schema"] == 2.0
    assert noise_with_levels(charged, []) == charged
    paid = {**charged, "levels": 5.0}
    assert noise_with_levels(paid, ["code"]) == paid
    assert noise_with_levels({"moments": 0.0}, ["code"]) == {"moments": 0.0, "levels": 0.0}


@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
def test_profiles_and_moments_divide_one_charge(model):
    frame = _rows(6_000, 250)
    synth, watch = _fit(frame, 60.0, model)
    noise = synth.plan(frame).noise_multipliers
    assert "levels" not in noise
    ran = [q.noise_multiplier for q in watch.queries]
    assert sum(z == noise["moments"] for z in ran) == 0
    parts = [z for part in DIVIDED for z in ran if z == pytest.approx(noise["moments"] * part)]
    assert len(parts) == 2
    # the others are for charges of their own
    assert sorted(z for z in ran if z not in parts) == sorted(z for label, z in noise.items() if label != "moments")


def test_the_plan_says_nothing_of_the_categories_that_rows_have():
    many, few = _rows(), _rows(n_codes=20)
    plans = [str(MomentSynthesizer(40.0, target="sick").plan(frame)) for frame in (many, few)]
    assert plans[0] == plans[1]


def test_where_there_is_room_for_all_categories_nothing_changes():
    frame = _rows(n_codes=MAX_CATEGORIES)
    synth, watch = _fit(frame)
    noise = synth.plan(frame).noise_multipliers
    assert not _groups(synth)
    assert not _profiles(watch, noise)
    assert sum(q.noise_multiplier == noise["moments"] for q in watch.queries) == 1
    assert len(synth.model_.codec.encoder.schema_["code"].categories) == MAX_CATEGORIES


@pytest.mark.parametrize("relation", RELATIONS)
def test_profiles_are_of_the_columns_beyond_the_room_and_scaled_to_them(monkeypatch, relation):
    monkeypatch.setattr(table_plan, "_ROOM", ((16, 12),))
    frame = _rows(N, 30).assign(town=_rows(N, 20, "t", seed=1)["code"], ward=np.arange(N) % 7)
    synth, watch = _fit(frame, 60.0, neighboring=relation, schema=Schema([Categorical("ward")]))
    assert set(_groups(synth)) == {"code", "town"}
    query = _profiles(watch, synth.plan(frame).noise_multipliers)
    assert len(query) == 1
    total = query[0].bounded_sum
    assert total.sensitivity(relation) == pytest.approx((2 if relation == "add_or_remove_one" else 4) ** 0.5)
    # every row has all of its weight in this query: in squares, its counts sum to the number of columns
    assert (total.value * np.square(total.weights)).sum() == pytest.approx(2 * N)


def test_declared_and_learned_columns_share_the_charge_of_declared_ones(monkeypatch):
    monkeypatch.setattr(table_plan, "_ROOM", ((16, 12),))
    declared = Categorical("town", tuple(f"t{k:03d}" for k in range(N_CODES)))
    frame = _rows(N, 30).assign(town=_rows(seed=1, prefix="t")["code"])
    synth, watch = _fit(frame, schema=Schema([declared]))
    noise = synth.plan(frame).noise_multipliers
    groups = _groups(synth)
    assert groups["code"].n_groups == 12 + 2
    assert groups["town"].n_groups <= MOST_GROUPS
    assert not _profiles(watch, noise)
    total = next(q for q in watch.queries if q.noise_multiplier == noise["levels"]).bounded_sum
    assert total.add_or_remove_one == pytest.approx(2**0.5)
    assert sum(q.noise_multiplier == noise["moments"] for q in watch.queries) == 1


@pytest.mark.parametrize("relation", RELATIONS)
def test_nothing_but_the_releases_decides_which_columns_have_groups(relation):
    """Rows with other names, for all of which there is room, go the same way."""
    few = _rows(80 if relation == "add_or_remove_one" else 300, 5, "d", seed=5)
    joining = pd.DataFrame({"code": ["new", "c001"], "age": [5, 1000], "sick": ["no", "never"]})
    many = _rows(300, 15)
    model = MomentSynthesizer(200.0, target="sick", neighboring=relation)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(table_plan, "_ROOM", ((16, 6),))
        assert _groups(_fit(many, 200.0, neighboring=relation)[0])  # there are more than there is room for
        with short_postprocessing():
            check_noninterference(model, (many,), (few,), rows=(joining,))


@pytest.mark.parametrize("weighting", ["rows", "units"])
def test_units_and_chunks_have_groups_too(monkeypatch, weighting):
    monkeypatch.setattr(table_plan, "_ROOM", ((16, 6),))
    parts = [_rows(200, 15).assign(person=np.arange(200) // 4), _rows(60, 5, "d").assign(person=1000 + np.arange(60))]
    joining = pd.DataFrame({"code": ["new", "c001"], "age": [5, 90], "sick": ["no", "yes"], "person": [-7, -7]})
    model = MomentSynthesizer(900.0, target="sick", unit=PrivacyUnit("person", 3, weighting=weighting))
    chunks = [parts[0].head(80), parts[0].tail(120)]
    synth, watch = _fit(chunks, 900.0, unit=model.unit)
    assert _groups(synth)["code"].n_groups == 8
    assert len(_profiles(watch, synth.plan(chunks).noise_multipliers)) == 1
    with short_postprocessing():
        check_noninterference(model, (parts[0],), (parts[1],), rows=(joining,))


def test_models_without_moments_and_targets_keep_what_there_is_room_for(monkeypatch):
    monkeypatch.setattr(table_plan, "_ROOM", ((16, 6),))
    frame = _rows(3_000, 15)
    training = DPSGD(2, 0.1, warm_start_steps=0)
    synth, _ = _fit(frame, 200.0, DPVAESynthesizer, n_components=2, training=training)
    assert len(synth.model_.codec.encoder.schema_["code"].categories) == 6
    synth, _ = _fit(frame, 200.0, target="code")
    assert len(synth.classes_) <= 8
    synth, _ = _fit(frame, 200.0, target=None)
    assert len(synth.model_.codec.encoder.schema_["code"].categories) == 15


def test_an_autoencoder_that_starts_from_moments_has_groups(monkeypatch):
    monkeypatch.setattr(table_plan, "_ROOM", ((16, 6),))
    training = DPSGD(2, 0.1, warm_start_steps=2)
    synth, _ = _fit(_rows(3_000, 15), 400.0, DPVAESynthesizer, n_components=2, training=training)
    assert _groups(synth)["code"].n_groups == 8
    assert len(synth.model_.codec.encoder.schema_["code"].categories) == 15


@pytest.mark.parametrize(("n_learned", "n_columns"), [(1, 4), (9, 15), (30, 60), (400, 500)])
def test_profiles_of_learned_columns_fit_into_memory(n_learned, n_columns):
    most = most_learned(n_learned, n_columns, 12)
    assert 12 <= most <= 10_000
    assert most == 12 or bytes_of_profiles([most] * n_learned, n_columns) <= 1 << 30
    assert most_learned(0, 3, 200) >= 200


def test_the_largest_levels_are_alone():
    places = np.zeros((50, 0))
    weights = np.random.default_rng(0).permutation(50) + 1.0
    labels = _clusters(places, weights, 12, 6)
    alone = np.flatnonzero(weights > 44)
    assert len(set(labels[alone])) == 6
    assert len(np.unique(labels)) == 7
    assert not set(labels[alone]) & set(np.delete(labels, alone))


def test_summary_states_the_errors_of_both_parts(fitted):
    synth, _ = fitted
    noise = synth.plan(_rows()).noise_multipliers
    column = {c.name: c for c in synth.summary_.columns}["code"]
    assert column.categories == N_CODES
    assert column.count_error == pytest.approx(noise["moments"] * (8 / 0.4) ** 0.5)


def test_a_saved_model_samples_given_a_learned_level_of_a_group(fitted, tmp_path):
    synth, _ = fitted
    synth.save(tmp_path / "model.safetensors")
    for model in (synth, load(tmp_path / "model.safetensors")):
        rows = model.sample(200, given={"code": ["c003", "c004"]}, random_state=1)
        assert set(rows["code"]) == {"c003", "c004"}
        assert (rows.loc[rows["code"] == "c003", "sick"] == "yes").mean() > 0.6
    assert str(model.summary_) == str(synth.summary_)


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (DPMERFSynthesizer, {"steps": 10, "n_frequencies": 100}),
        (DPVAESynthesizer, {"n_components": 2, "training": DPSGD(2, 0.1, warm_start_steps=0)}),
        (DP2VAESynthesizer, {"n_components": 2, "training": SubsetSGD(5, steps=2, warm_start_steps=0)}),
        (DPCGANSynthesizer, {"training": DPSGD(2, 0.1)}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_model_without_tables_releases_nothing_for_a_value_that_a_rule_adds_to_all_that_it_keeps(model, options):
    frame = _rows(60_000, 260).drop(columns="age")
    frame["sick"] = np.where(np.arange(len(frame)) < 6, "yes", "no")
    rules = ("if sick == 'yes': code == 'zzz'",)
    schema = Schema([Categorical("code"), Categorical("sick", ("yes", "no"))], constraints=rules)
    synth, watch = _fit(frame, 60.0, model, target=None, schema=schema, **options)
    assert len(synth.model_.codec.encoder.schema_["code"].categories) == MAX_CATEGORIES + 1
    assert not _groups(synth)
    planned = model(60.0, schema=schema, **options).plan(frame).noise_multipliers
    asked = [query.noise_multiplier for query in watch.queries if query is not None]
    assert set(asked) == set(planned.values())
    steps = planned.get("training", planned.get("decoder"))
    once = [noise for noise in asked if noise != steps]
    assert len(once) == len(set(once)), "a release was made twice"
