"""Numbers far from zero get their range by a second release; where there are none, the moments get that share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _short_fits import short_postprocessing
from _watched import watched_fit

from skdpgen import DPSGD, MomentSynthesizer, P3GMSynthesizer, PrivacyUnit
from skdpgen.tabular import Numeric, Schema
from skdpgen.tabular import _ranges as ranges
from skdpgen.tabular._ranges import far_from_zero, narrowed_ranges, range_histogram
from skdpgen.testing import check_noninterference, seeded_noise

pytestmark = pytest.mark.usefixtures("short_fits")

N = 8_000


def places(n=N, seed=0):
    """Columns far from zero: years as numbers, a latitude, a longitude, a temperature; and one that is not."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "when": rng.uniform(2016.5, 2017.7, n),
            "lat": rng.normal(44.97, 0.03, n).round(4),
            "long": rng.normal(-93.27, 0.03, n).round(4),
            "year": rng.integers(1987, 2004, n),
            "amount": rng.lognormal(3, 1, n).round(2),
            "ward": rng.choice(list("abc"), n),
        }
    )


def _fit(frame, *arguments, **options):
    synth, watch = watched_fit(frame, *arguments, **options)
    return synth, watch.queries


@pytest.mark.full_fits
@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
def test_ranges_are_near_those_of_the_rows_and_clip_few_of_them(model):
    frame = places()
    synth, _ = _fit(frame, model=model)
    schema = synth.model_.codec.encoder.schema_
    for name in ("when", "lat", "long", "year"):
        low, high = schema[name].bounds
        inside = frame[name].between(low, high).mean()
        assert inside > 0.99, (name, low, high)
        own = frame[name].max() - frame[name].min()
        assert high - low < 6 * own, (name, low, high)
    assert schema["amount"].bounds[0] == 0
    assert all(isinstance(bound, int) for bound in schema["year"].bounds)
    sample = synth.sample(4_000, random_state=0)
    for name in ("when", "lat", "long", "year"):
        shares = [
            np.histogram(rows[name], np.quantile(frame[name], np.linspace(0, 1, 9)))[0] for rows in (frame, sample)
        ]
        real, made = (share / share.sum() for share in shares)
        assert np.abs(real - made).sum() / 2 < 0.1, name


def test_decimals_that_follow_from_bounds_follow_from_the_narrow_ones():
    frame = places()[["when", "lat", "ward"]]
    synth, _ = _fit(frame)
    schema = synth.model_.codec.encoder.schema_
    assert schema["when"].decimals == 3  # four digits of a range of a few years; of two octaves it would be 2
    plain, _ = _fit(frame.assign(when=frame["when"].round(1)), epsilon=5.0)
    assert plain.model_.codec.encoder.schema_["when"].decimals == 1


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_the_release_is_of_the_far_columns_alone_and_scaled_to_them(neighboring):
    frame = places()
    synth, queries = _fit(frame, neighboring=neighboring)
    assert "ranges" in synth.accountant_.charges[0].label
    found = [query for query in queries if query.bounded_sum.value.size == 4 * sum(ranges._SIZES)]
    assert len(found) == 1
    assert found[0].noise_multiplier == synth.plan(frame).noise_multipliers["ranges"]
    total = found[0].bounded_sum
    factor = 1 if neighboring == "add_or_remove_one" else 2
    assert total.sensitivity(neighboring) == pytest.approx((4 * factor) ** 0.5)


def test_sensitivity_is_attained_and_not_exceeded():
    rng = np.random.default_rng(0)
    names = ("a", "b", "c")
    schema = Schema(
        [
            Numeric(names[0], (1024, 2048)),
            Numeric(names[1], (-64.0, -32.0), missing=True),
            Numeric(names[2], (4.0, 16.0)),
        ]
    )
    rows = pd.DataFrame({"a": rng.uniform(900, 2100, 60), "b": rng.uniform(-70, -20, 60), "c": rng.uniform(3, 17, 60)})
    rows.loc[::7, "b"] = np.nan
    whole = range_histogram(rows, schema, names)
    norms = []
    for k in range(len(rows)):
        rest = range_histogram(rows.drop(index=k), schema, names)
        norms.append(np.linalg.norm((whole.value - rest.value) * whole.weights))
    assert max(norms) == pytest.approx(whole.sensitivity("add_or_remove_one"), rel=1e-12)
    assert np.isclose(sorted(set(np.round(norms, 9))), [2**0.5, 3**0.5]).all()  # a missing value has no cell
    a, b = rows.iloc[[1]], rows.iloc[[2]]
    first, second = (
        range_histogram(x.assign(a=y, b=-33 - y / 100, c=5 + y / 300), schema, names) for x, y in ((a, 1100), (b, 1900))
    )
    moved = np.linalg.norm((first.value - second.value) * whole.weights)
    assert moved == pytest.approx(whole.sensitivity("replace_one"), rel=1e-12)


def test_noise_alone_and_numbers_all_over_an_octave_narrow_nothing():
    schema = Schema([Numeric("x", (1024.0, 2048.0))])
    rng = np.random.default_rng(0)
    nothing = range_histogram(pd.DataFrame({"x": [1500.0]}), schema, ["x"]).value * 0
    wide = range_histogram(pd.DataFrame({"x": rng.uniform(1024, 2048, 5_000)}), schema, ["x"]).value
    narrow = range_histogram(pd.DataFrame({"x": rng.normal(1500, 3, 5_000)}), schema, ["x"]).value
    narrowed = {"nothing": 0, "wide": 0, "narrow": 0}
    for _ in range(200):
        for name, counts in {"nothing": nothing, "wide": wide, "narrow": narrow}.items():
            noisy = counts + 2 * 20.0 * rng.standard_normal(len(counts))
            narrowed[name] += bool(narrowed_ranges(noisy, schema, ["x"], 20.0, 5_000 if name != "nothing" else 1))
    assert narrowed == {"nothing": 0, "wide": 0, "narrow": 200}


def test_a_thin_end_that_noise_does_not_hide_stays_inside():
    """A twentieth of the rows far from the others is not clipped."""
    schema, rng = Schema([Numeric("x", (1024.0, 2048.0))]), np.random.default_rng(0)
    values = np.concatenate([rng.normal(1100, 3, 19_000), rng.normal(2000, 3, 1_000)])
    counts = range_histogram(pd.DataFrame({"x": values}), schema, ["x"]).value
    for _ in range(50):
        found = narrowed_ranges(counts + 2 * 10.0 * rng.standard_normal(len(counts)), schema, ["x"], 10.0, 20_000)
        low, high = found.get("x", (1024.0, 2048.0))
        assert low < 1095
        assert high > 2005


def test_far_columns_are_those_of_one_or_two_octaves_with_many_values():
    column = Numeric("x", (1024.0, 2048.0))
    assert far_from_zero(column, *2 * (1024.0, 2048.0))
    assert far_from_zero(column, *2 * (512.0, 2048.0))
    assert far_from_zero(column, *2 * (-2048.0, -1024.0))
    assert not far_from_zero(column, *2 * (256.0, 2048.0))
    assert not far_from_zero(column, *2 * (-1024.0, 2048.0))
    assert not far_from_zero(Numeric("x", (64, 127), integer=True), *2 * (64.0, 128.0))  # a bin each
    assert far_from_zero(Numeric("x", (1024, 2047), integer=True), *2 * (1024.0, 2048.0))
    # of one octave that stands out, the next ones may be taken for occupied too
    assert far_from_zero(Numeric("x", (0, 4095), integer=True), 1024.0, 2048.0, 512.0, 4096.0)
    assert not far_from_zero(Numeric("x", (0, 4095), integer=True), 512.0, 2048.0, 512.0, 4096.0)
    assert not far_from_zero(Numeric("x", (0.0, 4096.0)), 1024.0, 2048.0, 0.0, 4096.0)


def test_years_are_not_spread_over_an_octave_that_noise_opens():
    """The octaves beside the years may be taken for occupied: the range is counted again nevertheless."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"year": rng.integers(1974, 2017, 3_000), "group": rng.choice(["a", "b"], 3_000)})
    for seed in range(12):
        with seeded_noise(seed, quiet=True):
            synth = MomentSynthesizer(epsilon=1.0, delta=1e-5, random_state=0).fit(frame)
        years = synth.sample(3_000, random_state=0)["year"]
        assert abs(years.quantile(0.1) - frame["year"].quantile(0.1)) < 8
        assert abs(years.quantile(0.9) - frame["year"].quantile(0.9)) < 8


def test_a_value_that_many_rows_have_is_not_taken_for_all_rows():
    """Noise on the many cells of a fine grid explains all other rows, and the range shrank to the one value."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(2_000) < 0.18, 13.0, rng.normal(12, 2.5, 2_000).round(2))
    schema = Schema([Numeric("x", (8.0, 16.0), decimals=2)])
    counts = range_histogram(pd.DataFrame({"x": values}), schema, ["x"]).value
    for _ in range(50):
        found = narrowed_ranges(counts + 2 * 40.0 * rng.standard_normal(len(counts)), schema, ["x"], 40.0, 2_000)
        low, high = found.get("x", (8.0, 16.0))
        assert low < 10
        assert high > 14


def test_a_day_that_a_third_of_the_rows_have_is_not_taken_for_all_rows():
    """Whole numbers may become far narrower; but the coarse cells beside the one day show the other rows."""
    rng = np.random.default_rng(0)
    values = np.where(rng.random(2_800) < 0.36, 11_504, rng.integers(8_500, 11_504, 2_800))
    schema = Schema([Numeric("x", (8_192, 16_383), integer=True)])
    counts = range_histogram(pd.DataFrame({"x": values}), schema, ["x"]).value
    for _ in range(200):
        found = narrowed_ranges(counts + 47.0 * rng.standard_normal(len(counts)), schema, ["x"], 23.5, 2_800)
        low, high = found.get("x", (8_192, 16_383))
        assert low < 9_500
        assert high >= 11_504


def test_numbers_on_both_sides_of_a_power_of_two():
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(1024, 1, N), "w": ["a", "b"] * (N // 2)})
    synth, _ = _fit(frame)
    low, high = synth.model_.codec.encoder.schema_["x"].bounds
    assert 1000 < low < 1021
    assert 1027 < high < 1050


def test_where_no_number_is_far_from_zero_the_moments_get_the_share():
    frame = places()[["amount", "ward"]]
    synth, queries = _fit(frame)
    noise = synth.plan(frame).noise_multipliers
    moments = [query for query in queries if query.noise_multiplier == noise["moments"]]
    same = [q for q in queries if np.array_equal(q.bounded_sum.value, moments[0].bounded_sum.value)]
    assert sorted(q.noise_multiplier for q in same) == sorted(
        noise[k] for k in ("moments", "numbers", "categories", "ranges")
    )
    shares = {phase.label: phase.share for phase in synth.plan(frame).phases}
    assert shares["ranges"] == pytest.approx(shares["schema"])


def test_the_ledger_and_the_queries_agree():
    """Every charged release is made once, whether there are far numbers or not."""
    for frame in (places(), places()[["amount", "ward"]]):
        synth, queries = _fit(frame)
        charged = sorted(release.noise_multiplier for release in synth.accountant_.charges[0].releases)
        assert sorted(query.noise_multiplier for query in queries) == pytest.approx(charged)


def test_declared_numbers_and_fits_with_a_network_have_no_such_release():
    frame = places()[["year", "ward"]]
    declared = Schema.from_kinds(frame).replace(Numeric("year", (1987, 2004), integer=True))
    assert "ranges" not in MomentSynthesizer(schema=declared).plan(frame).noise_multipliers
    net = P3GMSynthesizer(3.0, decoder="net", training=DPSGD(steps=2))
    assert "ranges" not in net.plan(frame).noise_multipliers


def test_it_learns_from_units_too():
    frame = places().assign(person=np.arange(N) // 2)
    synth, _ = _fit(frame, unit=PrivacyUnit("person", 2), epsilon=2.0)
    low, high = synth.model_.codec.encoder.schema_["when"].bounds
    assert 2010 < low < 2016.6
    assert 2017.6 < high < 2024


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_nothing_but_the_releases_decides_a_range(neighboring):
    many, few = places(300), places(300 if neighboring == "replace_one" else 80, seed=5)
    few["when"], few["lat"] = few["when"] + 500, few["lat"] * 0
    joining = pd.DataFrame(
        {
            "when": [1e9, np.nan],
            "lat": [-90.0, 90.0],
            "long": [0.0, 180.0],
            "year": [1, 9999],
            "amount": [0.0, -5.0],
            "ward": ["a", "z"],
        }
    )
    _, queries = _fit(many, 0, epsilon=40.0, neighboring=neighboring)
    assert any(query.bounded_sum.value.size == 4 * sum(ranges._SIZES) for query in queries)
    synth = MomentSynthesizer(40.0, neighboring=neighboring)
    with short_postprocessing():
        check_noninterference(synth, (many,), (few,), rows=(joining,))
