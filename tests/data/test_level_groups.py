"""Columns of many declared categories: their release, the groups that follow from it, and models made of them."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from _claims import RELATIONS, assert_noise_of, assert_sensitivity

from skdpgen import LatentMixture, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, load
from skdpgen.data import table_plan
from skdpgen.data.level_groups import GROUPED_ABOVE, LevelProfiles, _clusters, grouped_columns, posterior_sizes
from skdpgen.exceptions import InvalidInputError
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.mechanisms import add_gaussian, exact_value
from skdpgen.tabular import Binning, Boolean, Categorical, Numeric, Schema, TableEncoder
from skdpgen.tabular._level_groups import LevelGroups
from skdpgen.utils.noise import make_noise_generator

N_CODES = 600
CODES = tuple(f"c{i:03d}" for i in range(N_CODES))
# the first and second columns have many categories, one of them "other" and missing values too
SCHEMA = Schema(
    [
        Categorical("code", CODES, other="another", missing=True),
        Categorical("town", tuple(f"t{i}" for i in range(200))),
        Numeric("age", (0, 99), integer=True, missing=True),
        Categorical("ward", tuple("abcdefghijkl")),
        Boolean("sick"),
    ]
)


def _rows(n, seed=0):
    rng = np.random.default_rng(seed)
    at = rng.integers(0, N_CODES, n)
    frame = pd.DataFrame(
        {
            "code": np.array(CODES, dtype=object)[at],
            "town": [f"t{i}" for i in rng.integers(0, 200, n)],
            "age": pd.array(np.clip(rng.normal(20 + 60 * (at % 3 == 0), 8), 0, 99).astype(int), dtype="Int64"),
            "ward": rng.choice(list("abcdefghijkl"), n),
            "sick": rng.random(n) < np.where(at % 3 == 0, 0.9, 0.1),
        }
    )
    few = 2 + n // 50
    frame.loc[frame.index[:few], ["code", "age"]] = None
    frame.loc[frame.index[few : 2 * few], "code"] = "another"
    return frame


def _profiles(targets=("sick",)):
    columns = grouped_columns(SCHEMA, targets)
    assert columns == ("code", "town")
    return LevelProfiles(SCHEMA, {"age": Binning.equal_width(SCHEMA["age"])}, columns, targets)


@pytest.mark.parametrize("targets", [("sick",), (), ("sick", "ward"), ("ward", "sick", "age")])
@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_of_profiles_is_attained_and_not_exceeded(relation, targets):
    profiles, base = _profiles(targets), _rows(30)
    rows = [_rows(12, seed=3).iloc[[i]] for i in (0, 2, 5, 6, 7)]
    joined = [pd.concat([base, row], ignore_index=True) for row in rows]
    pairs = [(base, one) for one in joined] if relation == "add_or_remove_one" else list(itertools.pairwise(joined))
    assert_sensitivity(profiles.query, pairs, attained=pairs, relation=relation)
    assert profiles.query(base).add_or_remove_one == pytest.approx(2**0.5)


def test_a_unit_moves_profiles_as_one_row_does():
    profiles, frame = _profiles(), _rows(40)
    sizes = np.repeat([4, 10], 20)
    one, other = profiles.query(frame, sizes), profiles.query(frame.iloc[4:], sizes[4:])
    change = np.linalg.norm(one.weights * (exact_value(one) - exact_value(other)))
    assert one.weighted
    assert 0 < change <= one.add_or_remove_one


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_of_profiles_is_at_its_scale(relation):
    assert_noise_of(_profiles().query(_rows(30)), relation, 5)


def test_groups_join_levels_that_are_alike():
    profiles = _profiles()
    query = profiles.query(_rows(60_000))
    noisy = add_gaussian(query, 3.0, make_noise_generator("fast"), "add_or_remove_one")
    groups = profiles.groups(noisy, 3.0 * query.add_or_remove_one, 12)["code"]
    assert groups.n_groups == 14  # "another" and missing are alone
    members = groups.labels((*CODES, "another", None))
    assert members[-2:] == ("another", None)
    for found in members[:-2]:
        sick = np.mean([int(code[1:]) % 3 == 0 for code in found])
        assert min(sick, 1 - sick) < 0.1, found
    assert sum(groups.mass) == pytest.approx(1)


@pytest.mark.parametrize("noisy", [np.zeros, lambda n: np.full(n, -1e6), lambda n: np.full(n, 1e6)])
@pytest.mark.parametrize("sd", [0.0, 30.0])
def test_whatever_the_noise_makes_of_profiles_gives_groups(noisy, sd):
    profiles = _profiles()
    for groups in profiles.groups(noisy(profiles.query(_rows(10)).value.size), sd).values():
        assert np.isfinite(groups.mass).all()
        assert min(groups.mass) >= 0
        assert LevelGroups.from_dict(groups.to_dict()) == groups


def test_places_that_are_nearly_equal_give_fewer_groups_and_no_warning():
    places = np.repeat(np.arange(10.0), 20)[:, None] * [[1.0, 0.0]]
    places[:, 1] = 1e-17 * np.arange(200)  # different, but not to the clustering
    labels = _clusters(places, np.ones(200), 60)
    assert len(np.unique(labels)) == 10
    assert labels.shape == (200,)


@pytest.mark.parametrize(
    "sizes", [np.full(2000, 20.0), np.r_[np.zeros(1900), np.full(100, 400.0)], np.random.default_rng(1).zipf(1.8, 2000)]
)
def test_sizes_of_levels_are_nearer_to_the_truth_than_counts_or_their_projection(sizes):
    sizes = np.minimum(sizes, 5000).astype(float)
    noisy = sizes + 25 * np.random.default_rng(0).standard_normal(2000)
    found = posterior_sizes(noisy, 25.0)
    cut = np.maximum(noisy - np.sort(noisy - 25)[1000], 0)  # counts above a threshold
    assert np.abs(found - sizes).mean() < 0.8 * min(
        np.abs(other - sizes).mean() for other in (np.maximum(noisy, 0), cut)
    )
    assert (np.diff(found[np.argsort(noisy)]) > -1e-6).all()


def test_drawn_levels_follow_their_shares_and_a_level_without_any_is_never_drawn():
    groups = LevelGroups((0, 1, 0, 1, 2, 2), (0.3, 0.0, 0.1, 0.6, 0.0, 0.0))
    drawn = groups.sample(np.repeat([0, 1, 2], 4000), np.random.default_rng(0))
    counts = np.bincount(drawn, minlength=6) / 4000
    np.testing.assert_allclose(counts, [0.75, 0, 0.25, 1, 0.5, 0.5], atol=0.03)
    share, cut = groups.given([1, 1, 0, 0, 0, 1])
    np.testing.assert_allclose(share, [0.75, 0, 0.5])
    assert set(cut.sample(np.array([0, 0, 2, 2]), np.random.default_rng(1)).tolist()) == {0, 5}


def test_drawn_shares_vary_less_than_independent_draws_and_follow_no_order_of_rows():
    groups, codes = LevelGroups((0, 1, 0, 0), (0.3, 0.4, 0.2, 0.1)), np.array([0, 0, 1] * 1000)
    drawn = [groups.sample(codes, np.random.default_rng(seed)) for seed in range(30)]
    counts = np.array([np.bincount(found, minlength=4) for found in drawn])
    np.testing.assert_allclose(counts, np.broadcast_to([1000, 1000, 2000 / 3, 1000 / 3], counts.shape), atol=1.001)
    first = np.mean([found[:600][codes[:600] == 0] == 0 for found in drawn])
    assert first == pytest.approx(0.5, abs=0.02)
    pairs = np.mean([(found[codes == 0][:-1] == 0) & (found[codes == 0][1:] == 0) for found in drawn])
    assert pairs == pytest.approx(0.25, abs=0.01)
    alone = [groups.sample([0], np.random.default_rng(seed))[0] for seed in range(3000)]
    np.testing.assert_allclose(np.bincount(alone, minlength=4) / 3000, [0.5, 0, 1 / 3, 1 / 6], atol=0.03)
    assert groups.sample(np.zeros(0, dtype=np.int16), np.random.default_rng(0)).shape == (0,)


@pytest.fixture(scope="module")
def fitted():
    steps = fit_tables.__kwdefaults__["n_iter"]
    fit_tables.__kwdefaults__["n_iter"] = 40  # which is enough for a structure as plain as this one
    try:
        columns = ["code", "age", "sick"]
        synth = MomentSynthesizer(8.0, schema=SCHEMA.select(columns), target="sick", random_state=0)
        return synth.fit(_rows(20_000)[columns])
    finally:
        fit_tables.__kwdefaults__["n_iter"] = steps


def test_a_model_of_groups_keeps_what_rare_levels_have_in_common(fitted):
    """Each of 600 codes has 33 rows."""
    assert fitted.card_.charges[0].label == "MomentSynthesizer: bins, levels, moments, target"
    rows = fitted.sample(20_000)
    assert rows["code"].nunique() > 500
    thirds = rows["code"].dropna().loc[lambda codes: codes != "another"].str[1:].astype(int) % 3 == 0
    sick = rows.loc[thirds.index, "sick"]
    assert sick[thirds].mean() > sick[~thirds].mean() + 0.4
    age = rows.loc[thirds.index, "age"].astype(float)
    assert age[thirds].mean() > age[~thirds].mean() + 20


def test_rows_given_a_level_of_a_group_have_it(fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    for model in (fitted, load(tmp_path / "model.safetensors")):
        rows = model.sample(300, given={"code": ["c003", "c004"]}, random_state=1)
        assert set(rows["code"]) == {"c003", "c004"}
        assert rows.loc[rows["code"] == "c003", "sick"].mean() > 0.5
        assert model.sample(20, given={"code": None})["code"].isna().all()
    with pytest.raises(ValueError, match="no level 'c999'"):
        fitted.sample(3, given={"code": "c999"})


def test_summary_and_plan_state_the_error_of_a_level(fitted):
    column = next(c for c in fitted.summary_.columns if c.name == "code")
    assert column.categories == N_CODES
    noise = dict(zip(("bins", "levels"), (row.noise_multiplier for row in fitted.card_.charges[0].releases)))
    assert column.count_error == pytest.approx(noise["levels"] * (1 / 0.4) ** 0.5)
    text = str(MomentSynthesizer(2.0, schema=SCHEMA, target="sick").plan(_rows(50)))
    assert "levels" in text


def test_a_network_and_a_mixture_see_groups():
    model = P3GMSynthesizer(5.0, schema=SCHEMA, prior=LatentMixture(n_iter=2), random_state=0).fit(_rows(300)).model_
    assert model.codec.n_levels.max() <= GROUPED_ABOVE + 2
    assert len(model.codec.encoder.groups_["code"].group) == N_CODES + 2


def test_groups_of_other_levels_are_refused():
    groups = {"ward": LevelGroups((0, 0, 1), (0.5, 0.25, 0.25))}
    with pytest.raises(ValueError, match="which has other levels"):
        TableEncoder(SCHEMA, groups=groups).fit()
    with pytest.raises(ValueError, match="not categorical"):
        TableEncoder(SCHEMA, groups={"age": groups["ward"]}).fit()
    for bad in ({"group": [0, 2], "mass": [0.5, 0.5]}, {"group": [0, 1], "mass": [1.0]}, {"group": [0], "mass": [-1]}):
        with pytest.raises(ValueError, match="levels"):
            LevelGroups.from_dict(bad)


def test_names_of_encoded_columns_tell_groups_apart():
    schema = Schema([Categorical("ward", tuple("abc"))])
    encoder = TableEncoder(schema, groups={"ward": LevelGroups((0, 1, 0), (0.5, 0.25, 0.25))}).fit()
    assert encoder.get_feature_names_out().tolist() == ["ward={a, c}", "ward=b"]
    frame = pd.DataFrame({"ward": ["a", "c", "b"]})
    np.testing.assert_array_equal(encoder.transform(frame), [[1, 0], [1, 0], [0, 1]])


def test_a_column_alone_is_one_group():
    rows = _rows(500)[["town"]]
    model = MomentSynthesizer(5.0, schema=SCHEMA.select(["town"])).fit(rows).model_
    assert model.codec.n_levels.tolist() == [1]
    assert MomentSynthesizer(5.0, schema=SCHEMA.select(["town"])).fit(rows).sample(500)["town"].nunique() > 50


def test_ten_thousand_categories_take_little_memory():
    schema = Schema([Categorical("street", tuple(f"s{i}" for i in range(10_000))), Boolean("sick")])
    frame = pd.DataFrame({"street": ["s1", "s2"] * 100, "sick": [True, False] * 100})
    model = MomentSynthesizer(1.0, schema=schema).fit(frame).model_
    assert model.latent_model.mean.size < 200


def test_groups_that_would_not_fit_into_memory_are_refused_before_the_charge(monkeypatch):
    monkeypatch.setattr(table_plan, "physical_memory", lambda: 50 << 20)
    accountant = PrivacyAccountant(1.0)
    schema = Schema([Categorical("street", tuple(f"s{i}" for i in range(30_000))), Boolean("sick")])
    frame = pd.DataFrame({"street": ["s1", "s2"], "sick": [True, False]})
    with pytest.raises(InvalidInputError, match=r"columns with the most levels are 'street' \(30000\)"):
        MomentSynthesizer(schema=schema, accountant=accountant).fit(frame)
    assert not accountant.charges
