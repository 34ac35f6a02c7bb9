"""Synthetic units of several rows: their tables, what is constant in them, their sizes, and the rows given them."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import pandas as pd
import pytest
from _claims import assert_sensitivity
from _flat import make_flat
from _nasty import LISTS, OBJECTS, outcome

from skdpgen import MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, PrivacyUnit, Schema, load
from skdpgen._types import NEIGHBORING, WEIGHTINGS, BoundedUnit, UnitRelation
from skdpgen.data import units as _units
from skdpgen.data.sources import ChunkSource, MemorySource
from skdpgen.data.units import UnitSource
from skdpgen.exceptions import InvalidInputError, SchemaError
from skdpgen.generators.product_mixture import TableModel, fit_tables
from skdpgen.generators.units import UnitModel, _Points, _without_hidden
from skdpgen.mechanisms import Residuals, exact_value, size_starts, unit_plan, unit_tables, unpack_one_hot_moments
from skdpgen.mechanisms._contrasts import Contrasts
from skdpgen.tabular import Boolean, Categorical, Identifier, Numeric

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")

K = 5
WARDS = ("ears", "eyes")


@functools.cache
def _visits(n=6000, seed=0):
    """Persons with sex and age: the older, the more visits; the ward depends on the sex, the cost on the age."""
    rng = np.random.default_rng(seed)
    sex, age = rng.choice(["f", "m"], n, p=[0.6, 0.4]), rng.integers(0, 90, n)
    person = rng.permutation(np.repeat(np.arange(n), 1 + rng.binomial(4, age / 100)))
    eyes = rng.random(len(person)) < np.where(sex[person] == "f", 0.7, 0.2)
    cost = 10 * age[person] + rng.normal(0, 60, len(person))
    return pd.DataFrame(
        {
            "person": person,
            "sex": sex[person].astype(object),
            "age": age[person],
            "ward": np.where(eyes, "eyes", "ears").astype(object),
            "cost": cost.clip(-200, 1200),
            "night": rng.random(len(person)) < 0.3,
        }
    )


SCHEMA = Schema(
    [
        Categorical("sex", ("f", "m")),
        Numeric("age", (0, 89), integer=True),
        Categorical("ward", WARDS),
        Numeric("cost", (-200, 1200)),
        Boolean("night"),
    ]
)


def _fit(frame=None, model=MomentSynthesizer, short=True, y=None, groups=None, **parameters):
    """Fit; the fits to what was released are short, which leaves structure as it is, and not quality."""
    settings = {"unit": PrivacyUnit("person", K), "schema": SCHEMA, "random_state": 0, "noise": "fast"}
    own = {name: parameters.pop(name) for name in [*parameters] if name.startswith("unit__")}
    made = make_flat(model, **{"epsilon": 4.0, **settings, **parameters}).set_params(**own)
    steps, fit_tables.__kwdefaults__["n_iter"] = fit_tables.__kwdefaults__["n_iter"], 2 if short else 150
    try:
        return made.fit(_visits(600) if frame is None else frame, y, groups)
    finally:
        fit_tables.__kwdefaults__["n_iter"] = steps


@functools.cache
def _fitted(weighting="rows"):
    return _fit(_visits(), short=False, unit=PrivacyUnit("person", K, weighting=weighting, columns=["sex", "age"]))


def _assert_units(rows, columns, name="person"):
    """Units follow one another, are numbered from 0, and are constant in their columns."""
    ids = rows[name].to_numpy()
    assert rows.columns[0] == name
    assert ids[0] == 0
    assert set(np.diff(ids)) <= {0, 1}
    sizes = rows.groupby(name).size()
    assert sizes.between(1, K).all()
    for column in columns:
        assert (rows.groupby(name)[column].nunique(dropna=False) == 1).all(), column
    return sizes


# ---- the release --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("neighboring", NEIGHBORING)
def test_a_unit_attains_the_sensitivity_of_the_tables_of_units_and_never_exceeds_it(neighboring, weighting):
    relation = UnitRelation(neighboring, BoundedUnit("person", K, weighting))
    rng = np.random.default_rng(0)
    n_levels = [3, 2, 4]

    def joined(data, *unit):
        return np.vstack([data[0], unit[0]]), np.append(data[1], unit[1])

    base = rng.integers(0, n_levels, (20, 3)), rng.integers(1, K + 1, 20)
    query_of = functools.partial(unit_tables, n_levels=n_levels, max_rows=K)
    # a unit of any number of rows, and of one beyond the bound or with a code that is no level
    units = [((0, 0, 0), 1), ((1, 1, 1), K), ((2, 0, 3), 3), ((9, -1, 0), 99), ((0, 1, 2), 0)]
    data = [joined(base, *unit) for unit in units]
    if neighboring == "add_or_remove_one":
        pairs = [(base, more) for more in data]
        attained = pairs[:3]
    else:
        pairs = [(one, other) for one in data for other in data]
        attained = [(data[0], data[1])]
    assert_sensitivity(lambda d: query_of(d[0], sizes=d[1]), pairs, attained=attained, relation=relation)
    with pytest.raises(ValueError, match="one of units"):
        query_of(base[0], sizes=base[1]).sensitivity(neighboring)


def test_tables_in_which_every_row_of_a_unit_counts_exceed_it():
    """The sabotaged twin: a unit counts once for each of its rows, at the bound of one contribution."""
    codes, sizes = np.zeros((K, 2), dtype=int), np.full(K, K)
    found = unit_tables(codes, [2, 2], sizes, K)
    relation = UnitRelation("add_or_remove_one", BoundedUnit("person", K))
    moved = np.linalg.norm(exact_value(found) * found.weights)
    assert moved == pytest.approx(K * found.sensitivity(relation), rel=1e-3)
    assert moved > found.sensitivity(relation)


@pytest.mark.parametrize("k", [1, 2, 24, 25, 1000, 1 << 16])
def test_levels_of_sizes_cover_every_number_and_end_in_the_bound_alone(k):
    starts = size_starts(k)
    assert starts[0] == 1
    assert starts[-1] == k
    assert (np.diff(starts) > 0).all()
    assert len(starts) == k if k <= 24 else len(starts) <= 24
    tables = unit_tables(np.zeros((3, 0), dtype=int), [], np.array([1, k, 10 * k]), k)
    assert exact_value(tables)[0, 0] == 3
    plan = unit_plan([], k)
    of_sizes = plan.contrasts.tables(unpack_one_hot_moments(exact_value(tables), plan)).one_way[0]
    assert of_sizes[-1] == pytest.approx(3 if k == 1 else 2)


def _chosen(frame, k=3, chunks=None):
    source = MemorySource(frame) if chunks is None else ChunkSource(lambda: chunks)
    source = UnitSource(source, BoundedUnit("id", k), "refuse", column="id")
    source.choose(1)
    seen = []
    source.reduce_units(lambda rows, sizes: seen.append(rows.assign(size=sizes)) or 0, lambda one, other: 0)
    return pd.concat(seen)


def _numbered(seed=0, n=300):
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.integers(0, 150, n))
    return pd.DataFrame({"id": ids, "row": np.arange(n)})


def test_a_unit_stands_for_its_first_row_used_and_the_number_of_these():
    frame = _numbered().sample(frac=1, random_state=3)
    found = _chosen(frame)
    kept = UnitSource(MemorySource(frame), BoundedUnit("id", 3), "refuse", column="id")
    kept.choose(1)
    used = kept.frame.assign(id=frame.set_index("row").loc[kept.frame["row"], "id"].to_numpy())
    first = used.groupby("id", sort=False).agg(row=("row", "first"), size=("row", "size"))
    np.testing.assert_array_equal(found["row"], first["row"])
    np.testing.assert_array_equal(found["size"], first["size"])


def test_units_of_chunks_are_those_of_the_same_rows_in_memory():
    frame = _numbered()
    cuts = [0, 7, 8, 9, 120, 121, 300]
    chunks = [frame.iloc[a:b] for a, b in itertools.pairwise(cuts)]
    pd.testing.assert_frame_equal(
        _chosen(frame, chunks=chunks).reset_index(drop=True), _chosen(frame).reset_index(drop=True), check_dtype=False
    )


def test_a_unit_that_joins_changes_no_other_unit_s_row_or_size():
    frame = _numbered()
    joining = pd.DataFrame({"id": 999, "row": [1000, 1001, 1002, 1003]})
    more = pd.concat([joining[:2], frame, joining[2:]], ignore_index=True)
    one, other = _chosen(frame), _chosen(more)
    other = other[other["row"] < 1000]
    np.testing.assert_array_equal(one, other)


# ---- quality ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_synthetic_units_have_the_sizes_constants_and_rows_of_the_planted_table(weighting):
    real, synth = _visits(), _fitted(weighting)
    drawn = synth.sample(units=6000, random_state=1)
    sizes = _assert_units(drawn, ["sex", "age"])
    assert len(sizes) == 6000
    assert synth.unit_count_ == pytest.approx(6000, rel=0.02)
    assert len(drawn) == pytest.approx(len(real), rel=0.03)
    true = real.groupby("person").size()
    shares = [s.value_counts(normalize=True).sort_index() for s in (sizes, true)]
    assert 0.5 * (shares[0] - shares[1]).abs().sum() < 0.02
    np.testing.assert_allclose(synth.rows_per_unit_, shares[1], atol=0.015)
    # sizes given the age
    mean = []
    for rows, by in ((drawn, sizes), (real, true)):
        first = rows.drop_duplicates("person").set_index("person")
        mean.append(
            by.groupby(pd.cut(first["age"], [-1, 15, 30, 45, 60, 75, 90]).reindex(by.index), observed=True).mean()
        )
    np.testing.assert_allclose(mean[0], mean[1], atol=0.15)
    # rows given the columns of their unit: pairs of columns as in the table
    for sex in ("f", "m"):
        share = [(rows.loc[rows["sex"] == sex, "ward"] == "eyes").mean() for rows in (drawn, real)]
        assert share[0] == pytest.approx(share[1], abs=0.04)
    assert np.corrcoef(drawn["age"], drawn["cost"])[0, 1] > 0.88
    assert (drawn["night"].mean()) == pytest.approx(0.3, abs=0.02)


def test_a_column_of_the_rows_varies_within_units():
    drawn = _fitted().sample(units=500, random_state=1)
    several = drawn.groupby("person").filter(lambda rows: len(rows) > 2)
    assert (several.groupby("person")["cost"].nunique() > 1).all()
    assert (several.groupby("person")["ward"].nunique() > 1).any()


def test_two_way_tables_that_noise_hides_leave_columns_independent():
    noise, found = np.random.default_rng(0), []
    n_levels, share = np.array([4, 5]), np.outer([0.4, 0.3, 0.2, 0.1], np.full(5, 0.2))
    share[0, 0] += 0.15
    contrasts = Contrasts(n_levels, [0, 0])
    matrix = contrasts.matrix.toarray()
    for n in (100, 100_000):
        pairs = np.zeros((1, 7, 7))
        pairs[0, :3, 3:] = n * matrix[:4, :3].T @ share @ matrix[4:, 3:] + noise.normal(0, 40, (3, 4))
        pairs += pairs.transpose(0, 2, 1)
        one_way = n * np.concatenate([share.sum(axis=1), share.sum(axis=0)])[None] @ matrix
        sd = Residuals(np.full(1, 1.0), np.full((1, 7), 1.0), np.full((1, 7, 7), 40.0))
        kept = _without_hidden(Residuals(np.full(1, 1.15 * n), one_way, pairs), sd, contrasts, None)
        np.testing.assert_array_equal(kept, kept.transpose(0, 2, 1))
        found.append(np.linalg.matrix_rank(kept[0, :3, 3:], tol=1e-6 * n))
    assert found == [1, 3]


def test_rows_given_levels_follow_the_joint_distribution_of_the_model():
    """Against the definition: the share of a level among many rows is that of points weighted by the likelihood."""
    synth = _fitted()
    points, codec = _Points(synth.model_), synth.model_.codec
    at = codec.places(["sex", "age"])
    codes = np.array([[0, 2], [1, 9], [0, 2]])
    draw, rng = points.given(at, codes), np.random.default_rng(0)
    which = np.repeat([0, 1, 2], 20_000)
    rows = points.sample_at(draw(rng.random(len(which)), which), rng)
    ward = codec.places(["ward"])[0]
    for unit in (0, 1, 2):
        weights = points.weights.copy()
        for place, level in zip(at, codes[unit]):
            weights *= points.p[:, points.offsets[place] + level]
        start = points.offsets[ward]
        expected = weights / weights.sum() @ points.p[:, start : start + 2]
        drawn = np.bincount(rows[which == unit, ward], minlength=2) / 20_000
        np.testing.assert_allclose(drawn, expected, atol=0.015)


# ---- kinds of fits ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"unit__columns": "sex"},
        {"unit__columns": ["sex", "ward"], "target": "ward"},
        {"unit__columns": ["age"], "target": "ward", "unit__weighting": "units"},
        {"unit__columns": ("sex", "night", "cost"), "neighboring": "replace_one"},
    ],
    ids=["sizes", "one", "target", "units", "replace_one"],
)
def test_units_of_every_kind_of_fit(model, parameters):
    synth = _fit(model=model, **parameters)
    columns = parameters.get("unit__columns", [])
    drawn = synth.sample(units=300, random_state=2)
    sizes = _assert_units(drawn, [columns] if isinstance(columns, str) else columns)
    assert len(sizes) == 300
    assert list(drawn.columns) == ["person", *SCHEMA.names]
    (charge,) = synth.accountant_.charges
    assert charge.label.endswith(", units")
    # rows without units are as before
    rows = synth.sample(50, random_state=2)
    assert list(rows.columns) == list(SCHEMA.names)
    pd.testing.assert_series_equal(rows.dtypes, drawn.dtypes.drop("person"))


def test_rows_of_a_real_unit_that_differ_in_its_columns_are_no_error():
    frame = _visits(600).copy()
    frame["sex"] = np.random.default_rng(0).permutation(frame["sex"])
    _assert_units(_fit(frame, unit__columns=["sex"]).sample(units=200), ["sex"])


def test_missing_values_are_constant_too():
    frame = _visits(600).copy()
    frame["age"] = frame["age"].astype(float).mask(frame["person"] % 3 == 0)
    schema = SCHEMA.replace(Numeric("age", (0, 89), integer=True, missing=True))
    drawn = _fit(frame, schema=schema, unit__columns=["age"], short=False).sample(units=600, random_state=0)
    _assert_units(drawn, ["age"])
    assert drawn.drop_duplicates("person")["age"].isna().mean() == pytest.approx(1 / 3, abs=0.1)


def test_labels_given_separately_come_back_separately():
    frame = _visits(600)
    synth = _fit(frame.drop(columns="ward"), y=frame["ward"], unit__columns=["ward"], schema=SCHEMA)
    drawn, y = synth.sample(units=80, random_state=0)
    _assert_units(drawn.assign(ward=y), ["ward"])
    assert y.name == "ward"


def test_identifiers_of_groups_get_a_name_that_no_column_has():
    frame = _visits(600).rename(columns={"ward": "unit"})
    parameters = {"unit": PrivacyUnit(columns=["sex"]), "schema": None, "groups": frame["person"]}
    synth = _fit(frame.drop(columns="person"), **parameters)
    _assert_units(synth.sample(units=80, random_state=0), ["sex"], name="unit_")


def test_one_row_a_unit_and_many():
    frame = _visits(600)
    for k in (1, 400):
        drawn = _fit(frame, unit__max_rows=k, unit__columns=["sex"]).sample(units=100, random_state=0)
        sizes = drawn.groupby("person").size()
        assert sizes.between(1, k).all()
        assert len(sizes) == 100


def test_keys_are_fresh_in_every_row():
    frame = _visits(600).assign(visit=[f"v{i}" for i in range(len(_visits(600)))])
    schema = Schema([*SCHEMA.columns, Identifier("visit")])
    drawn = _fit(frame, schema=schema, unit__columns=["sex"]).sample(units=100, random_state=0)
    assert drawn["visit"].is_unique
    assert list(drawn.columns)[-1] == "visit"


def test_constraints_hold_in_every_row_and_unit():
    constraints = ["age >= 30 or sex == 'm'", "age >= 20 or ward == 'eyes'", "if night == True: ward == 'eyes'"]
    synth = _fit(constraints=constraints, unit__columns=["sex", "age"])
    drawn = synth.sample(units=400, random_state=0)
    _assert_units(drawn, ["sex", "age"])
    assert ((drawn["age"] >= 30) | (drawn["sex"] == "m")).all()
    assert ((drawn["age"] >= 20) | (drawn["ward"] == "eyes")).all()
    assert (drawn.loc[drawn["night"], "ward"] == "eyes").all()
    synth.set_params(constraints=["age < 0"])
    with pytest.raises(ValueError, match="100 of 100 rows still violate"):
        synth.sample(units=100)


@pytest.mark.parametrize("shared", [None, ["ward"]])
def test_units_that_no_row_fits_are_drawn_again_whole(shared):
    """No row of a woman satisfies the constraint: her rows are drawn in vain."""
    text = "sex == 'm' or ward == 'none' and cost > 1190"
    schema = SCHEMA.replace(Categorical("ward", (*WARDS, "none"))).constrain(text)
    unit = PrivacyUnit("person", K, columns=["sex", "age"], shared=shared)
    synth = _fit(schema=schema, unit=unit, epsilon=1000.0)
    drawn = synth.sample(units=300, random_state=0)
    sizes = _assert_units(drawn, ["sex", "age"])
    assert len(sizes) == 300
    assert set(drawn["sex"]) == {"m"}
    men = _visits(600).query("sex == 'm'").groupby("person").size()
    assert sizes.mean() == pytest.approx(men.mean(), abs=0.3)
    whole = synth.relax(text).sample(units=300, random_state=0)
    assert set(whole["sex"]) == {"f", "m"}
    with pytest.raises(ValueError, match="rows are not drawn again for 'age > 3'; they are for"):
        synth.relax("age > 3")
    synth.set_params(constraints=["ward == 'none' and cost > 1190 and night == True"])
    with pytest.raises(ValueError, match="210 of 210 units that were drawn have rows that still violate") as error:
        synth.sample(units=30)
    assert "relax(...)" in str(error.value)


def _stays(seed=0):
    """Persons with years of birth and of entry, a region with its town, and visits after the entry."""
    rng, n = np.random.default_rng(seed), 600
    born = rng.integers(1930, 2000, n).astype(float)
    entered = born + rng.integers(0, 20, n)
    born[rng.random(n) < 0.2] = np.nan
    region = rng.choice(["n", "s"], n)
    town = np.where(region == "n", rng.choice(["na", "nb"], n), rng.choice(["sa", "sb"], n))
    frame = pd.DataFrame({"born": born, "entered": entered, "region": region, "town": town})
    frame["late"] = frame["entered"] - frame["born"]
    frame["old"] = np.where(frame["region"] == "s", False, rng.random(n) < 0.5)
    person = rng.permutation(np.repeat(np.arange(n), rng.integers(1, K + 1, n)))
    rows = frame.iloc[person].reset_index(drop=True).assign(person=person)
    rows["visit"] = rows["entered"] + rng.integers(0, 10, len(rows))
    rows["age"] = rows["visit"] - rows["born"]
    return rows.assign(ward=rng.choice(WARDS, len(rows))).astype(dict.fromkeys(("region", "town", "ward"), object))


STAYS = Schema(
    [
        Numeric("born", (1930, 2000), integer=True, missing=True),
        Numeric("entered", (1930, 2030), integer=True),
        Numeric("late", (0, 60), integer=True, missing=True),
        Categorical("region", ("n", "s")),
        Categorical("town", ("na", "nb", "sa", "sb")),
        Boolean("old"),
        Numeric("visit", (1930, 2050), integer=True),
        Numeric("age", (0, 120), integer=True, missing=True),
        Categorical("ward", WARDS),
    ]
)
CONSTRUCTED = ["born", "entered", "late", "region", "town", "old"]
OF_STAYS = [
    "born <= entered", "late == entered - born", "combinations(region, town)", "if region == 's': old == False",
    "entered <= visit", "age == visit - born",
]  # fmt: skip


def _keeps_constraints(drawn):
    assert not (drawn["born"] > drawn["entered"]).any()
    for made, wanted in (("late", drawn["entered"] - drawn["born"]), ("age", drawn["visit"] - drawn["born"])):
        both = drawn[made].notna() & wanted.notna()
        assert both.any()
        assert (drawn.loc[both, made] == wanted[both]).all()
    assert (drawn["town"].str[0] == drawn["region"]).all()
    assert not drawn.loc[drawn["region"] == "s", "old"].any()
    assert (drawn["entered"] <= drawn["visit"]).all()


@pytest.mark.parametrize("target", [None, "ward", "old"])
def test_columns_that_constraints_construct_from_one_another_are_constant_too(target):
    frame = _stays()
    synth = _fit(frame, schema=STAYS, unit__columns=CONSTRUCTED, constraints=OF_STAYS, target=target)
    construction = synth.model_.codec.construction
    assert {"entered", "late", "region", "town"} & construction.changed
    assert construction.separates(CONSTRUCTED)
    drawn = synth.sample(units=500, random_state=0)
    _assert_units(drawn, CONSTRUCTED)
    _keeps_constraints(drawn)
    assert drawn["visit"].nunique() > 5
    assert (drawn.groupby("person")["visit"].nunique() > 1).any()
    _keeps_constraints(synth.sample(300, random_state=0))


def test_a_column_of_units_is_not_constructed_from_one_of_the_rows():
    """Of two columns that a constraint compares, the one that is constructed is that of the rows."""
    frame = _stays()
    for columns, made in ((["born"], "visit"), (["ward"], "born")):  # of rows alone, that which may be missing
        synth = _fit(frame, schema=STAYS, constraints="born <= visit", unit__columns=columns)
        assert synth.model_.codec.construction.changed == {made}
        drawn = synth.sample(units=300, random_state=0)
        _assert_units(drawn, columns)
        assert drawn["born"].isna().any()
        assert not (drawn["born"] > drawn["visit"]).any()
    # of combinations with a column of the rows none is constructed: rows are drawn again
    listed = "(region, ward) in [('n', 'ears'), ('n', 'eyes'), ('s', 'eyes')]"
    frame["ward"] = frame["ward"].mask(frame["region"] == "s", "eyes")
    synth = _fit(frame, schema=STAYS, constraints=listed, unit__columns=["region"])
    assert synth.model_.codec.construction is None
    assert len(synth._drawn_again()) == 1
    drawn = synth.sample(units=300, random_state=0)
    _assert_units(drawn, ["region"])
    assert (drawn.loc[drawn["region"] == "s", "ward"] == "eyes").all()


@pytest.mark.parametrize(
    ("constraint", "match"),
    [("combinations(region, ward)", "constant within a unit"), ("late == visit - born", "constant within a unit")],
)
def test_constraints_that_would_make_a_column_of_units_vary_are_refused_before_the_charge(constraint, match):
    ledger = PrivacyAccountant(50.0, unit="person")
    schema = STAYS.replace(Numeric("late", (0, 60), missing=True))
    with pytest.raises(SchemaError, match=match):
        _fit(_stays(), schema=schema, constraints=constraint, unit__columns=["region", "late"], accountant=ledger)
    assert not ledger.charges


def test_a_file_keeps_how_columns_of_units_are_constructed_and_one_in_which_they_vary_is_refused(tmp_path):
    synth = _fit(_stays(), schema=STAYS, unit__columns=CONSTRUCTED, constraints=OF_STAYS)
    synth.save(tmp_path / "m.safetensors")
    drawn = load(tmp_path / "m.safetensors").sample(units=300, random_state=0)
    pd.testing.assert_frame_equal(drawn, synth.sample(units=300, random_state=0))
    state, codec = synth.model_.units.to_state(), synth.model_.codec
    UnitModel.from_state(state, codec)
    loose = dataclasses.replace(codec, construction=dataclasses.replace(codec.construction, constant=()))
    assert "constant" in codec.to_state()
    assert "constant" not in loose.to_state()
    with pytest.raises(ValueError, match="constructed from one another"):
        UnitModel.from_state({**state, "columns": [name for name in CONSTRUCTED if name != "born"]}, codec)


# ---- sampling -----------------------------------------------------------------------------------------------------
def test_chunks_hold_whole_units_and_join_to_the_sample(monkeypatch):
    monkeypatch.setattr("skdpgen.synthesizers._base._CHUNK_ROWS", 100)
    synth = _fitted()
    chunks = list(synth.sample_chunks(units=150, random_state=4))
    assert len(chunks) > 2
    for one, other in itertools.pairwise(chunks):
        assert one["person"].iloc[-1] + 1 == other["person"].iloc[0]
    drawn = synth.sample(units=150, random_state=4)
    pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), drawn)
    _assert_units(drawn, ["sex", "age"])


def test_a_seed_repeats_and_the_stream_advances():
    synth = _fitted()
    one, other = (synth.sample(units=30, random_state=7) for _ in range(2))
    pd.testing.assert_frame_equal(one, other)
    assert not synth.sample(units=30).equals(synth.sample(units=30))


@pytest.mark.parametrize("units", [0, -1, 2.5, True, "3", 10**9, np.nan])
def test_a_number_of_units_that_is_none_is_refused(units):
    with pytest.raises(ValueError, match="units must be a whole number"):
        _fitted().sample(units=units)


@pytest.mark.parametrize("others", [{"n_samples": 3}, {"class_ratio": "balanced"}, {"y": ["eyes"]}])
def test_units_are_asked_for_alone(others):
    with pytest.raises(ValueError, match=f"without {next(iter(others))}="):
        _fitted().sample(units=3, **others)


def test_units_of_given_columns_have_them_and_else_the_distribution_of_the_model():
    synth = _fitted()
    free = synth.sample(units=20_000, random_state=0)
    for given in ({"sex": "f"}, {"sex": ["f"], "age": (60, None)}):
        drawn = synth.sample(units=3000, given=given, random_state=1)
        _assert_units(drawn, ["sex", "age"])
        assert set(drawn["sex"]) == {"f"}
        assert drawn["person"].nunique() == 3000
        low = given.get("age", (0, None))[0]
        assert drawn["age"].min() >= low
        like = free[(free["sex"] == "f") & (free["age"] >= low)]
        # of 3,000 persons: ages of a deviation of 26, of at most five rows, and shares of rows
        for statistic in (
            lambda rows: rows.groupby("person").size().mean(),
            lambda rows: rows.groupby("person")["age"].first().mean() / 26,
            lambda rows: (rows["ward"] == "eyes").mean(),
        ):
            assert statistic(drawn) == pytest.approx(statistic(like), abs=0.12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ward": "eyes"}, "'ward' differs between the rows of a unit"),
        ({"sex": "f", "cost": (0, 5)}, "'cost' differs between the rows of a unit"),
        ({"sex": "x"}, "a value that the model does not have"),
        ({"town": "x"}, "columns that the model does not have"),
        ({}, "at least one column"),
    ],
)
def test_units_cannot_be_asked_for_other_columns_or_values(given, message):
    with pytest.raises(ValueError, match=message):
        _fitted().sample(units=3, given=given)


def test_a_fit_of_rows_has_no_units():
    synth = _fit_of_rows()
    with pytest.raises(ValueError, match="units= needs a fit with unit="):
        synth.sample(units=3)
    assert not hasattr(synth, "unit_count_")


def test_files_keep_the_units(tmp_path):
    synth = _fitted()
    synth.save(tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(again.sample(units=40, random_state=1), synth.sample(units=40, random_state=1))
    pd.testing.assert_series_equal(again.rows_per_unit_, synth.rows_per_unit_)
    assert again.unit_count_ == synth.unit_count_
    assert again.unit.columns == ["sex", "age"]
    assert "units" not in _fit_of_rows().model_.to_state()


def _fit_of_rows():
    return _fit(_visits(600).drop(columns="person"), unit=None)


@pytest.mark.parametrize(
    "change",
    [
        {"max_rows": 6}, {"max_rows": True}, {"max_rows": 0}, {"columns": ["sex"]}, {"columns": ["sex", "sex"]},
        {"columns": ["sex", "nowhere"]}, {"name": "ward"}, {"name": None},
    ],
    ids=str,
)  # fmt: skip
def test_states_that_do_not_fit_are_refused(change):
    model = _fitted().model_
    with pytest.raises(ValueError, match="unit"):
        UnitModel.from_state({**model.units.to_state(), **change}, model.codec)
    assert isinstance(UnitModel.from_state(model.units.to_state(), model.codec).latent, TableModel)


# ---- refusals cost nothing ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "parameters", "match"),
    [
        (MomentSynthesizer, {"unit__columns": ["nowhere"]}, "'nowhere', which is no column"),
        (MomentSynthesizer, {"unit__columns": ["person"]}, "'person', which is no column"),
        (MomentSynthesizer, {"unit__columns": ["sex", "sex"]}, "a column twice"),
        (MomentSynthesizer, {"unit__columns": {"sex"}}, "columns"),
        (MomentSynthesizer, {"unit": PrivacyUnit(columns=["sex"])}, "needs unit="),
        (P3GMSynthesizer, {"unit__columns": ["sex"], "prior": "mixture"}, "without prior"),
        (P3GMSynthesizer, {"unit__columns": [], "decoder": "net"}, "without prior"),
    ],
    ids=str,
)
def test_columns_that_cannot_be_those_of_units_are_refused_before_the_charge(model, parameters, match):
    own = {name: value for name, value in parameters.items() if name.startswith("unit__")}
    rest = {name: value for name, value in parameters.items() if name not in own}
    ledger = PrivacyAccountant(50.0, unit="person")
    made = make_flat(model, accountant=ledger, **{"unit": PrivacyUnit("person", K), **rest}).set_params(**own)
    with pytest.raises((ValueError, InvalidInputError, SchemaError), match=match):
        made.fit(_visits(600))
    assert not ledger.charges


def test_odd_unit_columns_are_refused_before_the_charge_by_name():
    def made():
        return MomentSynthesizer(unit=PrivacyUnit("person", 2), schema=SCHEMA)

    for value in [*LISTS, *OBJECTS, ["sex", None], ["sex", np.nan], ("sex", 1j), {"sex": 1}]:
        found = outcome(made, (_visits(40),), "unit__columns", value, stop=True, named=False)
        empty = value is None or (isinstance(value, list | tuple) and not len(value))
        assert found == ("charged" if empty else "refused"), type(value)


def test_unit_columns_of_an_array_are_refused():
    X = np.random.default_rng(0).random((50, 2))
    made = MomentSynthesizer(unit=PrivacyUnit(None, 2, columns=[0]))
    with pytest.raises(InvalidInputError, match="for DataFrames"):
        made.fit(X, groups=np.arange(50))
    assert not hasattr(made, "accountant_")


def test_an_identifier_is_no_column_of_units():
    frame = _visits(600).assign(visit="v")
    schema = Schema([*SCHEMA.columns, Identifier("visit")])
    with pytest.raises(InvalidInputError, match="is an identifier"):
        _fit(frame, schema=schema, unit__columns=["visit"])


def test_first_rows_are_a_function_of_codes_alone():
    first, sizes = _units._first_of_each(np.array([4, 4, 2, 9, 2, 4]))
    np.testing.assert_array_equal(first, [0, 2, 3])
    np.testing.assert_array_equal(sizes, [3, 2, 1])
