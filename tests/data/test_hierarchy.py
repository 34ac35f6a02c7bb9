"""Declared groups of categories: what is counted for them, what it costs, and models made of them."""

from __future__ import annotations

import itertools
import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from _claims import RELATIONS, assert_noise_of, assert_sensitivity
from _watched import Queries

from skdpgen import DPSGD, DPVAESynthesizer, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, Schema, load
from skdpgen.data import table_plan
from skdpgen.data.level_groups import LevelProfiles, grouped_columns, square_of_levels
from skdpgen.exceptions import InvalidInputError, SchemaError, UtilityWarning
from skdpgen.generators.product_mixture import fit_tables
from skdpgen.metrics import two_way_tvd
from skdpgen.tabular import (
    Binning,
    Boolean,
    Categorical,
    Numeric,
    TableEncoder,
    schema_histogram,
)
from skdpgen.tabular import _learning as learning
from skdpgen.tabular._level_groups import declared_groups, divided_groups
from skdpgen.tabular._schema_cells import cell_weights
from skdpgen.testing import seeded_noise
from skdpgen.utils.watching import replay_releases

pytestmark = pytest.mark.usefixtures("short_fits")

N_CHAPTERS, N_CODES = 20, 400
CODES = tuple(f"{chr(65 + k % N_CHAPTERS)}{k // N_CHAPTERS:02d}" for k in range(N_CODES))
# two levels: letters, and the first digit within each
NESTED = {
    letter: {f"{letter}{d}": [c for c in CODES if c[:2] == f"{letter}{d}"] for d in "01"}
    for letter in sorted({c[0] for c in CODES})
}
CHAPTERS = {f"chapter {letter}": [c for c in CODES if c[0] == letter] for letter in sorted({c[0] for c in CODES})}
# one column of declared groups, one that is grouped by profiles, and others
SCHEMA = Schema(
    [
        Categorical("code", CODES, other="another", missing=True, hierarchy=CHAPTERS),
        Categorical("town", tuple(f"t{i}" for i in range(200))),
        Numeric("age", (0, 99), integer=True),
        Boolean("sick"),
    ]
)


def _rows(n, seed=0):
    """Age and sickness depend on the chapter of a code alone."""
    rng = np.random.default_rng(seed)
    at = rng.choice(N_CODES, n, p=np.random.default_rng(9).dirichlet(np.full(N_CODES, 0.5)))
    chapter = at % N_CHAPTERS
    return pd.DataFrame(
        {
            "code": np.array(CODES, dtype=object)[at],
            "town": [f"t{i}" for i in rng.integers(0, 200, n)],
            "age": np.clip(rng.normal(15 + 3.5 * chapter, 6), 0, 99).astype(int),
            "sick": rng.random(n) < np.where(chapter % 3 == 0, 0.9, 0.1),
        }
    )


def _profiles(targets=("sick",)):
    columns = grouped_columns(SCHEMA, targets)
    assert columns == ("code", "town")
    return LevelProfiles(SCHEMA, {"age": Binning.equal_width(SCHEMA["age"])}, columns, targets)


def _fit(frame, epsilon, schema, model=MomentSynthesizer, n_iter=40, **options):
    watch = Queries()
    with pytest.MonkeyPatch.context() as patch, seeded_noise(3, quiet=True), replay_releases(watch):
        patch.setitem(fit_tables.__kwdefaults__, "n_iter", n_iter)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UtilityWarning)
            return model(epsilon, random_state=0, schema=schema, **options).fit(frame), watch


def _groups(synth, name="code"):
    return synth.model_.codec.encoder.groups_[name]


def _members(synth, name="code"):
    encoder = synth.model_.codec.encoder
    return [set(group) if isinstance(group, tuple) else {group} for group in encoder.blocks_[0].levels]


def _n_learned(synth, name):
    return len(synth.model_.codec.encoder.schema_[name].categories)


# ---- what is declared ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"hierarchy": 0}, "at least 1 character"),
        ({"hierarchy": -2}, "at least 1 character"),
        ({"hierarchy": True}, "got bool"),
        ({"hierarchy": 1.5}, "got float"),
        ({"hierarchy": "abc"}, "got str"),
        ({"hierarchy": ["a", "b"]}, "got list"),
        ({"hierarchy": {}}, "one group at least"),
        ({"hierarchy": (("x", ("a", "b"), 3),)}, "one group at least"),
        ({"hierarchy": (("x", ("a",)), ("x", ("b",)))}, "two groups are named 'x'"),
        ({"hierarchy": {1: ["a", "b"]}}, "name of a group must be text; got 1"),
        ({"hierarchy": {"x": "ab"}}, "'x' must be a sequence"),
        ({"hierarchy": {"x": 3}}, "'x' must be a sequence"),
        ({"hierarchy": {"x": ["a", "b"], "y": []}}, "'y' must be a sequence"),
        ({"hierarchy": {"x": ["a", "b"], "y": ["b"]}}, "'b' is in the groups 'x' and 'y'"),
        ({"hierarchy": {"x": ["a", "a", "b"]}}, "'a' is in the groups 'x' and 'x'"),
        ({"hierarchy": {"x": ["a", "b", "c"]}}, "'c' of the group 'x' is not one of the categories"),
        ({"hierarchy": {"x": ["a", "b", None]}}, "None of the group 'x' is not one of the categories"),
        ({"hierarchy": {"x": ["a", ["b"]]}}, "not one of the categories"),
        ({"hierarchy": {"x": ["a", "b", "rest"]}, "other": "rest"}, "'rest' of the group 'x' is not one"),
        ({"hierarchy": {"x": ["a"]}}, "no group has 'b'"),
        ({"hierarchy": {"x": ["a", "a"]}, "categories": None}, "'a' stands twice"),
        ({"hierarchy": {"x": ["a", 1]}, "categories": None}, "mixed types"),
        ({"hierarchy": (0, 2)}, "at least 1 character"),
        ({"hierarchy": (2, 2)}, r"must increase; got \(2, 2\)"),
        ({"hierarchy": [3, 1]}, r"must increase; got \(3, 1\)"),
        ({"hierarchy": (1, True)}, "tuple with True"),
        ({"hierarchy": [1, 2.5]}, "got list"),
        ({"hierarchy": {"x": {"y": ["a"]}, "z": {}}}, "'z' must be a sequence"),
        ({"hierarchy": {"x": {"y": "a", "z": ["b"]}}}, "'y' must be a sequence"),
        ({"hierarchy": {"x": {"y": ["a"], "z": ["a", "b"]}}}, "'a' is in the groups 'y' and 'z'"),
        ({"hierarchy": {"x": {"y": ["a"]}}}, "no group has 'b'"),
        ({"hierarchy": {"x": {1: ["a"], "z": ["b"]}}}, "name of a group must be text; got 1"),
        ({"hierarchy": {"x": {"y": ["a", "c"]}, "z": ["b"]}}, "'c' of the group 'y' is not one of the categories"),
        ({"hierarchy": {"x": {"a": 1, "b": 2}}}, "'a' must be a sequence"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_reason(facts, message):
    with pytest.raises(SchemaError, match=message):
        Categorical("c", **{"categories": ("a", "b"), **facts})


def test_groups_declare_categories_and_a_schema_keeps_them(tmp_path):
    column = Categorical("code", hierarchy=CHAPTERS, missing=True)
    assert column.categories == tuple(c for codes in CHAPTERS.values() for c in codes)
    assert column == Categorical("code", column.categories, hierarchy=CHAPTERS, missing=True)
    numbers = Categorical("naics", np.array([111, 112, 236]), hierarchy={"farms": np.array([111, 112]), "works": [236]})
    assert all(type(value) is int for _, members in numbers.hierarchy for value in members)
    schema = Schema([column, numbers, Categorical("town", hierarchy=np.int64(2)), Boolean("sick")])
    schema.save(tmp_path / "schema.json")
    for again in (Schema.load(tmp_path / "schema.json"), Schema.from_dict(json.loads(json.dumps(schema.to_dict())))):
        assert again == schema
        assert hash(again) == hash(schema)
        assert repr(again["code"]) == repr(column)
    assert schema.to_dict()["columns"][0]["hierarchy"] == CHAPTERS
    assert schema.to_dict()["columns"][2]["hierarchy"] == 2
    assert "hierarchy" not in Schema([Categorical("ward")]).to_dict()["columns"][0]
    assert schema.incomplete == ("town",)
    declared = Schema.from_kinds(_rows(2)).declare("code", hierarchy=CHAPTERS)
    assert declared["code"].complete
    for bad in ("2.5", "[]", '{"x": 3}', '[["x", ["a"]]]'):
        text = '{"columns": [{"name": "c", "kind": "categorical", "categories": ["a"], "hierarchy": BAD}]}'
        with pytest.raises(SchemaError, match="'c': hierarchy"):
            Schema.from_json(text.replace("BAD", bad))


def test_groups_of_groups_declare_categories_and_a_schema_keeps_them(tmp_path):
    nested = Categorical("code", hierarchy=NESTED, missing=True)
    assert nested.categories == tuple(c for parts in NESTED.values() for codes in parts.values() for c in codes)
    uneven = Categorical("ward", hierarchy={"a": {"b": {"c": ["x"], "d": ["y"]}}, "e": ["z"]})
    schema = Schema([nested, uneven, Categorical("town", hierarchy=np.array([2, 4]))])
    schema.save(tmp_path / "schema.json")
    for again in (Schema.load(tmp_path / "schema.json"), Schema.from_dict(json.loads(json.dumps(schema.to_dict())))):
        assert again == schema
        assert hash(again) == hash(schema)
    assert schema.to_dict()["columns"][0]["hierarchy"] == NESTED
    assert schema.to_dict()["columns"][2]["hierarchy"] == [2, 4]
    assert Categorical("c", ("a", "b"), hierarchy=(1,)) == Categorical("c", ("a", "b"), hierarchy=1)


# ---- groups of groups ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hierarchy", [NESTED, (1, 2)])
def test_a_group_is_divided_where_it_has_rows(hierarchy):
    column = Categorical("code", CODES, other="another", missing=True, hierarchy=hierarchy)
    sizes = np.ones(N_CODES + 2)
    many, some = CODES.index("B13"), [CODES.index(c) for c in CODES if c[:2] == "C0"]
    sizes[many], sizes[some] = 1_000, 100
    groups = divided_groups(column, sizes, 30)
    members = [{c for c, k in zip(CODES, groups) if k == at} for at in range(max(groups) - 1)]
    assert {"B13"} in members  # a category that has many rows
    assert {c for c in CODES if c[0] == "B"} - {"B13"} not in members  # its group is divided at each level
    assert {c for c in CODES if c[:2] == "B1"} - {"B13"} in members
    assert {c for c in CODES if c[:2] == "B0"} in members
    assert {c for c in CODES if c[:2] == "C1"} in members
    assert {c for c in CODES if c[0] == "D"} in members
    assert groups[-2:] == [max(groups) - 1, max(groups)]  # "other" and missing values


@pytest.mark.parametrize("most", [1, 8, 21, 30, 64, 128, 1_000])
@pytest.mark.parametrize("seed", range(3))
def test_divided_groups_are_within_the_coarsest_and_not_too_many(seed, most):
    column = Categorical("code", CODES, missing=True, hierarchy=NESTED)
    sizes = np.random.default_rng(seed).lognormal(0.0, 1.0, N_CODES + 1)
    groups, coarsest = np.array(divided_groups(column, sizes, most)), np.array(declared_groups(column))
    n_groups = len(np.unique(groups)) - 1
    assert sorted(set(groups)) == list(range(n_groups + 1))
    assert n_groups <= max(most, N_CHAPTERS)
    assert all(len(np.unique(coarsest[groups == k])) == 1 for k in range(n_groups + 1))
    if most <= N_CHAPTERS:
        np.testing.assert_array_equal(groups, coarsest)
    else:
        assert n_groups > 0.6 * min(most, N_CODES)
    # no rows at all, and rows of one category alone
    assert divided_groups(column, 0 * sizes, most) == coarsest.tolist()
    alone = np.eye(N_CODES + 1)[5]
    assert len(set(divided_groups(column, alone, most))) <= N_CHAPTERS + 3


@pytest.mark.parametrize(("hierarchy", "learned"), [(NESTED, False), ((1, 2), False), ((1, 2), True)])
def test_a_fit_divides_groups_by_released_counts(hierarchy, learned, tmp_path):
    frame = _rows(8_000).drop(columns="town")
    column = Categorical("code", None if learned else CODES, missing=learned, hierarchy=hierarchy)
    schema = Schema([column, Numeric("age", (0, 99), integer=True), Boolean("sick")])
    synth, watch = _fit(frame, 4.0, schema, target="sick")
    members = _members(synth)
    known = [group for group in members if None not in group and not group & {"other", "another"}]
    letters = {next(iter(group))[0] for group in known}
    assert all(len({code[0] for code in group}) == 1 for group in known)
    assert len(letters) < len(known) <= 128
    assert any(len(group) == 1 for group in known)
    if not learned:
        # the plan is that of groups without groups, and the release of the categories is all of `levels`
        plain = MomentSynthesizer(4.0, schema=schema.declare("code", hierarchy=1), target="sick").plan(frame)
        assert synth.plan(frame).noise_multipliers == plain.noise_multipliers
        noise = plain.noise_multipliers["levels"]
        query = next(q for q in watch.queries if q.noise_multiplier == noise).bounded_sum
        assert query.value.size == N_CODES
    synth.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.model_.codec.encoder.schema_ == synth.model_.codec.encoder.schema_
    codes = list(again.model_.codec.encoder.schema_["code"].categories[:2])
    assert set(again.sample(60, given={"code": codes})["code"]) == set(codes)
    groups = {code[:n] for code in CODES for n in (1, 2)} if learned else set()
    assert again.sample(500)["code"].dropna().isin([*CODES, *groups, "other"]).all()


def test_errors_before_a_fit_are_those_of_divided_groups():
    frame, stated = _rows(8_000).drop(columns="town"), {}
    for name, hierarchy in {"nested": NESTED, "letters": 1}.items():
        schema = SCHEMA.select(["code", "age", "sick"]).declare("code", hierarchy=hierarchy)
        plan = MomentSynthesizer(4.0, schema=schema, target="sick").plan(frame)
        stated[name] = next(kind for kind in plan.table.counts(plan, 8_000) if kind.kind == "declared category")
    assert stated["nested"].one_way_error == stated["letters"].one_way_error  # of a category, which both count
    assert stated["nested"].two_way_error != stated["letters"].two_way_error  # of a group


# ---- what is released ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("relation", RELATIONS)
def test_sensitivity_is_attained_not_exceeded_and_lower_than_with_profiles(relation):
    profiles, base = _profiles(), _rows(30)
    rows = [_rows(12, seed=3).iloc[[i]] for i in (0, 2, 5, 6, 7)]
    joined = [pd.concat([base, row], ignore_index=True) for row in rows]
    pairs = [(base, one) for one in joined] if relation == "add_or_remove_one" else list(itertools.pairwise(joined))
    assert_sensitivity(profiles.query, pairs, attained=pairs, relation=relation)
    assert profiles.query(base).add_or_remove_one == pytest.approx(1.4**0.5)
    assert square_of_levels(SCHEMA, profiles.columns) == pytest.approx(1.4)


def test_only_the_categories_of_declared_groups_are_counted():
    query, columns = _profiles().query(_rows(50)), ("town",)
    alone = LevelProfiles(SCHEMA, {"age": Binning.equal_width(SCHEMA["age"])}, columns, ("sick",)).query(_rows(50))
    assert query.value.size == alone.value.size + N_CODES + 2


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_is_at_its_scale(relation):
    assert_noise_of(_profiles().query(_rows(30)), relation, 25)


@pytest.mark.parametrize("hierarchy", [CHAPTERS, 1])
def test_groups_of_a_fit_are_the_declared_ones(hierarchy, tmp_path):
    schema = SCHEMA.declare("code", hierarchy=hierarchy).select(["code", "age", "sick"])
    synth, watch = _fit(_rows(4_000).drop(columns="town"), 4.0, schema, target="sick")
    assert _members(synth) == [*map(set, CHAPTERS.values()), {"another"}, {None}]
    assert sum(_groups(synth).mass) == pytest.approx(1)
    # the release of the categories is all of `levels`
    noise = synth.plan(_rows(4_000).drop(columns="town")).noise_multipliers["levels"]
    query = next(q for q in watch.queries if q.noise_multiplier == noise).bounded_sum
    assert query.value.size == N_CODES + 2
    column = next(c for c in synth.summary_.columns if c.name == "code")
    assert column.count_error == pytest.approx(noise)  # as of a count of weight 1
    synth.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.model_.codec.encoder.schema_ == synth.model_.codec.encoder.schema_
    assert str(again.summary_) == str(synth.summary_)
    assert set(again.sample(60, given={"code": ["A01", "B02"]})["code"]) == {"A01", "B02"}


def test_declared_groups_cost_nothing():
    frame = _rows(500)
    plans = [
        MomentSynthesizer(2.0, schema=schema, target="sick").plan(frame).noise_multipliers
        for schema in (SCHEMA, SCHEMA.declare("code", hierarchy=None))
    ]
    assert plans[0] == plans[1]
    text = str(MomentSynthesizer(2.0, schema=SCHEMA, target="sick").plan(frame))
    assert "levels" in text
    books = PrivacyAccountant(2.0)
    synth, watch = _fit(frame, 2.0, SCHEMA, accountant=books, target="sick", n_iter=2)
    assert sorted(q.noise_multiplier for q in watch.queries) == sorted(plans[0].values())
    assert books.epsilon_spent() == pytest.approx(2.0, rel=1e-3)
    assert next(c for c in synth.card_["columns"] if c["name"] == "code")["hierarchy"] == CHAPTERS


@pytest.mark.full_fits
def test_few_categories_may_have_declared_groups():
    schema = Schema([Categorical("code", ("a1", "a2", "b1"), hierarchy=1), Boolean("sick")])
    frame = pd.DataFrame({"code": ["a1", "a2", "b1", "a1"] * 100, "sick": [True, True, False, True] * 100})
    synth, _ = _fit(frame, 9.0, schema)
    assert synth.card_.charges[0].label == "MomentSynthesizer: rows, levels, moments"
    rows = synth.sample(400, random_state=0)
    assert rows["sick"][rows["code"].str[0] == "a"].mean() > rows["sick"][rows["code"] == "b1"].mean() + 0.7
    assert (rows["code"] == "a1").mean() == pytest.approx(0.5, abs=0.1)


# ---- learned categories ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("relation", RELATIONS)
def test_learned_categories_are_grouped_by_their_released_names(relation):
    frame, schema = _rows(20_000), Schema([Categorical("code", hierarchy=1, missing=True)])
    synth, watch = _fit(frame, 20.0, schema, neighboring=relation)
    noise = synth.plan(frame).noise_multipliers
    assert synth.accountant_.charges[0].label.startswith(
        "MomentSynthesizer: schema, numbers, categories, ranges, bins, levels"
    )
    kept = synth.model_.codec.encoder.schema_["code"].categories
    assert 200 < len(kept) <= N_CODES
    *groups, other, missing = _members(synth)
    assert {c[0] for c in kept} == {min(group)[0] for group in groups}
    assert all(len({c[0] for c in group}) == 1 for group in groups)
    assert (other, missing) == ({"other"}, {None})
    assert set().union(*groups) == set(kept)
    # of one share: `categories`, then `levels` of the code and of the town, whose learned categories have profiles
    _, query = [q.bounded_sum for q in watch.queries if q.noise_multiplier == noise["levels"]]
    assert len(synth.model_.codec.encoder.groups_) == 1 + (_n_learned(synth, "town") > 200)
    square = 0.4 + (_n_learned(synth, "town") > 200)
    assert query.sensitivity(relation) == pytest.approx((square * (2 if relation == "replace_one" else 1)) ** 0.5)


LEARNED = Schema([Categorical("code", missing=True, hierarchy=(1, 2)), Categorical("ward")])


def _histogram(frame):
    """The schema histogram of LEARNED, in which each name of `CODES` has a place."""
    found = schema_histogram(frame, LEARNED)
    names = [*((0, c) for c in sorted({c[:1] for c in CODES})), *((1, c) for c in sorted({c[:2] for c in CODES}))]
    keys = {"code": [*names, *((2, c) for c in sorted(CODES))], "ward": ["north", "south"]}
    values = []
    for name, counts in zip(LEARNED.names, np.split(found.bounded_sum.value, np.cumsum(found.sizes)[:-1])):
        own = dict(zip(found.keys[name], counts))
        values.append(np.array([*(own.get(key, 0.0) for key in keys[name]), counts[-1]]))
    weights = cell_weights(LEARNED, [len(v) for v in values], keys)
    return replace(found.bounded_sum, value=np.concatenate(values), weights=weights)


@pytest.mark.parametrize("relation", RELATIONS)
def test_first_characters_do_not_raise_the_sensitivity_of_counts_of_codes(relation):
    base = pd.DataFrame({"code": [*CODES[:20], None], "ward": ["north", "south", "north"] * 7})
    values = [("A00", "north"), ("B01", "south"), ("A01", "north"), ("A10", "south"), (None, "north"), ("C05", "south")]
    rows = [pd.DataFrame({"code": [code], "ward": [ward]}) for code, ward in values]
    joined = [pd.concat([base, row], ignore_index=True) for row in rows]
    pairs = [(base, one) for one in joined] if relation == "add_or_remove_one" else itertools.permutations(joined, 2)
    attained = [(base, joined[0]) if relation == "add_or_remove_one" else (joined[0], joined[1])]
    assert_sensitivity(_histogram, pairs, attained=attained, relation=relation)
    alone = schema_histogram(base, LEARNED.declare("code", hierarchy=None)).bounded_sum
    assert _histogram(base).sensitivity(relation) == pytest.approx(alone.sensitivity(relation))


@pytest.mark.parametrize("relation", RELATIONS)
def test_noise_on_counts_of_codes_and_first_characters_is_at_its_scale(relation):
    base = pd.DataFrame({"code": CODES[:20], "ward": ["north", "south"] * 10})
    assert_noise_of(_histogram(base), relation, 250)


@pytest.mark.parametrize("delta", [0.1, 0.4])
def test_names_of_one_row_pass_any_of_the_thresholds_with_probability_delta(delta):
    """Of its code, its first characters and its ward: the thresholds share delta."""
    frame = pd.DataFrame({"code": ["A01"], "ward": ["north"]})
    found, rng, passed = schema_histogram(frame, LEARNED), np.random.default_rng(0), 0
    n, sd, asked = 4_000, 3.0, []

    def kept(names):
        asked.append(len(names))
        return names

    exact, weights = found.bounded_sum.value, found.bounded_sum.weights
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "tell_kept", kept)
        for _ in range(n):
            asked.clear()
            noisy = exact + rng.standard_normal(exact.shape) * sd / weights
            learning.schema_and_candidates(noisy, found, sd, delta, unlearned=learning.Unlearned())
            passed += sum(asked) > 0
    assert len(asked) == 2
    assert passed / n == pytest.approx(delta, abs=4 * (delta * (1 - delta) / n) ** 0.5)


@pytest.mark.full_fits
@pytest.mark.parametrize("as_written", [str, int])
def test_codes_that_are_too_rare_are_released_by_their_first_characters(as_written):
    codes = [f"{a}{b}{c}" for a in range(1, 9) for b in range(5) for c in range(12)]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"code": [as_written(code) for code in [*rng.choice(codes, 19_000), *["915"] * 1_000]]})
    plain, _ = _fit(frame, 1.0, Schema([Categorical("code")]))
    other = "other" if as_written is str else -1
    assert (plain.sample(5_000)["code"] == other).mean() > 0.8
    synth, _ = _fit(frame, 1.0, Schema([Categorical("code", hierarchy=(1, 2))]))
    schema = synth.model_.codec.encoder.schema_
    assert schema["code"].other == other
    rows = synth.sample(20_000)["code"]
    assert (rows == other).mean() < 0.02
    assert (rows == as_written("915")).mean() == pytest.approx(0.05, abs=0.01)
    assert rows.astype(str).isin(["9", "91"]).mean() < 0.01  # no other code is in these groups
    real = frame["code"].astype(str).str[0].value_counts(normalize=True)
    shares = rows[rows != other].astype(str).str[0].value_counts(normalize=True)
    assert (real - shares).abs().max() < 0.03
    # what a row counts as follows from the released names
    levels = TableEncoder(schema).fit()
    value = next(code for code in codes if as_written(code) not in schema["code"].categories)
    at = levels.codes(pd.DataFrame({"code": [as_written(value)]}))[0, 0]
    assert str(levels.blocks_[0].levels[at]) in (value[:2], value[:1])


def test_classes_of_a_target_are_never_first_characters():
    frame = pd.DataFrame({"code": ["A01", "B02"] * 400, "sick": [True, False] * 400})
    synth, _ = _fit(frame, 8.0, Schema([Categorical("code", hierarchy=1)]), target="code", n_iter=2)
    assert tuple(synth.classes_) == ("A01", "B02", "other")[: len(synth.classes_)]


def test_the_rows_that_a_code_needs_follow_from_its_weight():
    schemas = [Schema([Categorical("code", hierarchy=hierarchy)]) for hierarchy in (None, 1, (1, 2))]
    fits = [_fit(_rows(3_000)[["code"]], 2.0, schema, n_iter=2)[0].summary_ for schema in schemas]
    assert fits[1].smallest_kept > fits[0].smallest_kept / 0.8
    assert fits[2].smallest_kept > fits[1].smallest_kept
    assert fits[2].smallest_kept < 1.3 * fits[0].smallest_kept / 0.8


@pytest.mark.parametrize("values", [[111, 112, 236, 237], [1.5, 2.5, 10.0, 11.5], ["111", "112", "236", "2"]])
@pytest.mark.parametrize("hierarchy", [2, (1, 2)])
def test_no_learned_value_can_stop_a_fit_after_the_charge(values, hierarchy):
    frame = pd.DataFrame({"code": pd.Series(values * 500, dtype=object), "sick": [True, False] * 1000})
    synth, _ = _fit(frame, 30.0, Schema([Categorical("code", hierarchy=hierarchy)]), n_iter=2)
    kept = synth.model_.codec.encoder.schema_["code"].categories
    assert len(kept) == 4
    labels = [{str(value)[:2] for value in group} for group in _members(synth)[:-1]]
    assert all(len(found) == 1 for found in labels)
    nothing, _ = _fit(frame.head(3), 0.1, Schema([Categorical("code", hierarchy=hierarchy)]), n_iter=2)
    assert set(nothing.sample(5)["code"].dropna()) <= {*kept, "other", -1}


def test_more_learned_groups_than_there_is_room_for_are_joined(monkeypatch):
    monkeypatch.setattr(table_plan, "_ROOM", ((16, 6),))
    synth, _ = _fit(_rows(8_000), 60.0, Schema([Categorical("code", hierarchy=1, missing=True)]), n_iter=2)
    groups = _groups(synth)
    assert groups.n_groups == 6 + 2  # "other" and missing values are alone
    sizes = np.bincount(groups.group, groups.mass)[:6]
    alone = [len({c[0] for c in group}) for group in _members(synth)[:6]]
    assert alone == [1, 1, 1, 1, 1, N_CHAPTERS - 5]
    assert min(sizes[:5]) == pytest.approx(sizes[4])  # the largest are alone, in the order of their size


def test_models_without_tables_group_too():
    training = DPSGD(2, 0.1, warm_start_steps=0)
    schema = SCHEMA.select(["code", "sick"])
    synth, _ = _fit(_rows(300)[["code", "sick"]], 8.0, schema, DPVAESynthesizer, n_components=2, training=training)
    assert _members(synth)[:-2] == [*map(set, CHAPTERS.values())]
    synth, _ = _fit(_rows(300)[["code", "sick"]], 8.0, schema, P3GMSynthesizer, n_iter=2)
    assert _groups(synth).n_groups == N_CHAPTERS + 2


# ---- before the charge -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [{"target": "code"}, {"constraints": ["determines(code, sick)"]}])
def test_a_hierarchy_that_is_not_used_is_pointed_out_before_the_charge(options):
    schema = Schema([Categorical("code", ("a1", "a2", "b1"), hierarchy=1), Boolean("sick")])
    frame = pd.DataFrame({"code": ["a1", "a2", "b1"] * 20, "sick": [True, False, True] * 20})
    with pytest.warns(UtilityWarning, match="a hierarchy is not used: 'code'"):
        MomentSynthesizer(5.0, schema=schema, **options).plan(frame)


@pytest.mark.parametrize("hierarchy", [CHAPTERS, 1])
def test_constraints_that_leave_the_column_as_it_is_hold_beside_groups(hierarchy):
    schema = Schema([Categorical("code", hierarchy=hierarchy)])
    rules = ["if sick: code == 'A01'", "if code == 'B02': age == 7"]
    synth, _ = _fit(_rows(3_000).drop(columns="town"), 20.0, schema, constraints=rules, n_iter=2)
    rows = synth.sample(500, random_state=0)
    assert "code" in synth.model_.codec.encoder.groups_
    assert (rows["code"][rows["sick"]] == "A01").all()
    assert (rows["age"][rows["code"] == "B02"] == 7).all()


def test_a_plan_knows_nothing_of_the_rows_and_states_errors_of_learned_groups():
    schema = Schema([Categorical("code", hierarchy=1)])
    many, few = _rows(500).drop(columns="town"), _rows(500).drop(columns="town").assign(code="A01")
    plans = [MomentSynthesizer(4.0, schema=schema, target="sick").plan(frame) for frame in (many, few)]
    assert str(plans[0]) == str(plans[1])
    assert "levels" in plans[0].noise_multipliers


def test_groups_beyond_memory_are_refused_before_the_charge():
    codes = tuple(f"s{i}" for i in range(30_000))
    books, schema = PrivacyAccountant(1.0), Schema([Categorical("street", codes, hierarchy=9), Boolean("sick")])
    with pytest.raises(InvalidInputError, match=r"the columns with the most levels are 'street' \(30000\)"):
        MomentSynthesizer(schema=schema, accountant=books).fit(pd.DataFrame({"street": ["s1"], "sick": [True]}))
    assert not books.charges


def test_an_encoder_keeps_categories_apart():
    schema = Schema([Categorical("code", ("a1", "a2", "b1"), hierarchy=1)])
    assert TableEncoder(schema).fit().blocks_[0].levels == ("a1", "a2", "b1")


# ---- quality ---------------------------------------------------------------------------------------------------------
@pytest.mark.full_fits
def test_declared_groups_carry_what_codes_have_in_common():
    """Of 400 codes in 20 chapters, at epsilon 1; groups that are found by noisy profiles lose half of it or more."""
    schema, frame = SCHEMA.select(["code", "age", "sick"]), _rows(40_000).drop(columns="town")
    schema = schema.declare("code", other=None, missing=False)
    distances = []
    for facts in ({"hierarchy": CHAPTERS}, {"hierarchy": None}):
        rows = _fit(frame, 1.0, schema.declare("code", **facts), n_iter=400)[0].sample(40_000, random_state=0)
        pair = [table.assign(code=table["code"].str[0])[["code", "sick"]] for table in (frame, rows)]
        distances.append(two_way_tvd(*pair))
    assert distances[0] < 0.02
    assert distances[0] < 0.5 * distances[1]


@pytest.mark.parametrize("members", [iter("ab"), {"a", "b"}, {}, "ab", []])
def test_a_group_is_a_sequence_whose_order_is_known(members):
    with pytest.raises(SchemaError, match="the group 'x' must be a sequence of categories"):
        Categorical("c", hierarchy={"x": members, "y": ["c"]})


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ((1, True), "tuple with True"),
        ([1, "a"], "list with 'a'"),
        ([2, 3.5], "list with 3.5"),
        (True, "bool"),
        (1.5, "float"),
        ([], "list"),
    ],
)
def test_what_is_no_number_of_characters_is_named(given, got):
    with pytest.raises(SchemaError, match=f"a number of first characters, or a list of such numbers; got {got}$"):
        Categorical("code", hierarchy=given)


def test_a_hierarchy_of_too_many_levels_is_refused():
    deep = ["a", "b"]
    for _ in range(40):
        deep = {"g": deep}
    for hierarchy in (deep, tuple(range(1, 100))):
        with pytest.raises(SchemaError, match="at most 32 levels"):
            Categorical("code", hierarchy=hierarchy)


def test_the_type_of_first_characters_does_not_follow_from_one_row():
    """Large whole numbers are floats where floats are exact; their first characters are integers."""
    codes = [10**20 + 3 + 2 * k for k in range(500)] + [12 * 10**18 + 1 + 2 * k for k in range(500)]
    schema, found = Schema([Categorical("code", hierarchy=2)]), []
    for more in ([], [10**19], [121.0]):
        cells = schema_histogram(pd.DataFrame({"code": pd.Series(codes + more, dtype=object)}), schema)
        column = learning.schema_from_histogram(cells.bounded_sum.value, cells, 20.0, 1e-5)["code"]
        found.append((column.dtype, column.other, [(type(value), value) for value in column.categories]))
    assert found[0] == found[1] == found[2]
    assert {kind for kind, _ in found[0][2]} == {int}


def test_intervals_have_no_first_characters():
    with pytest.raises(SchemaError, match="have no first characters"):
        Categorical("age", dtype="interval[float64, right]", hierarchy=1)
