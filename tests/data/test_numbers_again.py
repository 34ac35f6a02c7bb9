"""Numbers and dates of few rows are counted once more, by the released counts alone; else the moments get the share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from _short_fits import short_postprocessing
from _watched import watched_fit

from skdpgen import DPSGD, MomentSynthesizer, P3GMSynthesizer, PrivacyUnit
from skdpgen.data import frames
from skdpgen.synthesizers import _phases
from skdpgen.tabular import Categorical, Datetime, Numeric, Schema, schema_histogram
from skdpgen.tabular import _learning as learning
from skdpgen.testing import check_noninterference

pytestmark = pytest.mark.usefixtures("short_fits")

N = 400
NUMBERS = ("weight", "height", "visits", "balance", "seen")


def patients(n=N, seed=0):
    """Columns of numbers, one of dates and one of two categories: a small table as people have it."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "weight": rng.normal(75, 12, n).round(1),
            "height": rng.normal(170, 9, n).round(),
            "visits": rng.poisson(6, n),
            "balance": rng.normal(0, 50, n).round(2),
            "seen": pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 1500, n), unit="D"),
            "sex": rng.choice(["f", "m"], n),
        }
    )


def _fit(frame, *arguments, **options):
    synth, watch = watched_fit(frame, *arguments, **options)
    return synth, watch.queries


def _again(synth, frame, queries):
    """The one query at the noise of the second count."""
    noise = synth.plan(frame).noise_multipliers["numbers"]
    found = [query for query in queries if query.noise_multiplier == noise]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
def test_ranges_of_few_rows_hold_nearly_all_of_them(model):
    """With one count alone, the noise hides the ranges of some of the columns in each of these fits."""
    frame = patients()

    def lost(**options):
        """Share of the rows beyond the learned bounds of each number, over three draws of the noise."""
        found = []
        for seed in range(3):
            synth, _ = _fit(frame, seed, model, **options)
            schema = synth.model_.codec.encoder.schema_
            found.append([1 - frame[name].between(*schema[name].bounds).mean() for name in NUMBERS[:4]])
        return np.array(found)

    assert lost().mean() < 0.05
    assert lost().max() < 0.25
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_phases, "_AGAIN_SHARE", 1e-6)
        assert lost().mean() > 0.2


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_the_release_is_of_numbers_and_dates_alone_and_scaled_to_them(neighboring):
    frame = patients()
    synth, queries = _fit(frame, neighboring=neighboring)
    assert "numbers" in synth.accountant_.charges[0].label
    query = _again(synth, frame, queries)
    total, factor = query.bounded_sum, 1 if neighboring == "add_or_remove_one" else 2
    assert not total.keys
    assert total.sensitivity(neighboring) == pytest.approx((5 * factor) ** 0.5)


def test_sensitivity_is_attained_and_not_exceeded():
    frame = patients(60)
    frame.loc[::7, "balance"] = 0  # zero has no sign and no decimals
    schema = Schema.from_kinds(frame)
    names = [name for name in schema.names if name in NUMBERS]
    whole = frames._counts_of_numbers(frame, schema)
    assert whole.schema.names == tuple(names)
    norms = []
    for k in range(len(frame)):
        rest = frames._counts_of_numbers(frame.drop(index=k), schema)
        norms.append(np.linalg.norm((whole.query.value - rest.query.value) * whole.query.weights))
    assert max(norms) == pytest.approx(whole.query.sensitivity("add_or_remove_one"), rel=1e-12)
    assert min(norms) < max(norms)
    one, other = frame.iloc[[1]], frame.iloc[[2]]
    far = {"weight": -1e9, "height": -3.5, "visits": -1, "balance": -0.001, "seen": pd.Timestamp("1950-01-01 10:00")}
    near = {"weight": 1.25, "height": 2.0, "visits": 9, "balance": 5.0, "seen": pd.Timestamp("2000-01-01")}
    first, second = (
        frames._counts_of_numbers(row.assign(**facts), schema) for row, facts in ((one, far), (other, near))
    )
    moved = np.linalg.norm((first.query.value - second.query.value) * whole.query.weights)
    assert moved == pytest.approx(whole.query.sensitivity("replace_one"), rel=1e-12)


def test_the_ledger_and_the_queries_agree():
    """Every charged release is made once, whether rows are few or not."""
    for frame, few in ((patients(), True), (patients(20_000), False)):
        synth, queries = _fit(frame)
        charged = sorted(release.noise_multiplier for release in synth.accountant_.charges[0].releases)
        assert sorted(query.noise_multiplier for query in queries) == pytest.approx(charged)
        assert ("numbers" in synth.model_.respent) is not few


def test_where_rows_are_many_the_moments_get_the_share():
    frame = patients(20_000)
    synth, queries = _fit(frame)
    again = _again(synth, frame, queries)
    noise = synth.plan(frame).noise_multipliers["moments"]
    (moments,) = (query for query in queries if query.noise_multiplier == noise)
    np.testing.assert_array_equal(again.bounded_sum.value, moments.bounded_sum.value)


def test_counts_of_numbers_are_averaged_by_their_noise_and_categories_stay():
    frame = patients()
    schema = Schema.from_kinds(frame)
    whole = schema_histogram(frame, schema)
    exact, rng, errors = whole.query.value, np.random.default_rng(0), []
    at = np.repeat([name in NUMBERS for name in schema.incomplete], whole.sizes)
    for _ in range(200):
        first = exact + 3.0 * rng.standard_normal(len(exact))
        second = exact[at] + 4.0 * rng.standard_normal(at.sum())
        found, sd = learning.joined_numbers(first, second, whole, (3.0, 4.0))
        np.testing.assert_array_equal(found[~at], first[~at])
        errors.append(found[at] - exact[at])
    assert sd == pytest.approx(2.4)
    assert np.std(errors) == pytest.approx(2.4, rel=0.02)


@pytest.mark.parametrize(
    "columns", [NUMBERS[:1], NUMBERS[:4], NUMBERS[4:], (*NUMBERS, "sex")], ids=["one", "numbers", "dates", "all"]
)
def test_the_number_of_rows_is_counted_without_a_bias(columns):
    frame = patients()[list(columns)]
    frame.iloc[::5, 0] = np.nan if columns[0] != "seen" else pd.NaT
    schema = Schema.from_kinds(frame)
    whole, rng = schema_histogram(frame, schema), np.random.default_rng(0)
    sds = dict.fromkeys(schema.incomplete, 10.0)
    exact, weights = whole.query.value, np.broadcast_to(whole.query.weights, whole.query.value.shape)
    found = [
        learning._rows_of_numbers(exact + 10.0 / weights * rng.standard_normal(len(exact)), whole, sds)
        for _ in range(400)
    ]
    stated = found[0][1]
    assert np.mean([rows for rows, _ in found]) == pytest.approx(N, abs=4 * stated / 20)
    assert np.std([rows for rows, _ in found]) == pytest.approx(stated, rel=0.15)
    few, many = 10.0 * learning._FEW * 0.8, 10.0 * learning._FEW * 1.2
    assert learning.are_few(few, 10.0)
    assert not learning.are_few(many, 10.0)


def test_categories_of_which_none_was_learned_or_that_lack_rows_of_numbers_are_counted_again():
    def hidden(shown, empty=(), rows=0.0, rows_sd=np.inf):
        return learning._hidden(shown, empty, 10.0, rows, rows_sd)

    assert hidden({"a": (500.0, 3), "b": (480.0, 3)}) == ()
    assert hidden({"a": (500.0, 3), "b": (300.0, 3)}) == ("b",)
    assert hidden({"a": (500.0, 3), "b": (480.0, 3)}, ["b"]) == ("b",)
    assert hidden({"a": (480.0, 3)}, rows=500.0, rows_sd=10.0) == ()
    assert hidden({"a": (300.0, 3)}, rows=500.0, rows_sd=10.0) == ("a",)
    assert hidden({"a": (300.0, 3)}, rows=500.0, rows_sd=200.0) == ()
    # many rows, on less evidence
    assert hidden({"a": (500.0, 3), "b": (450.0, 3)}) == ("b",)
    assert hidden({"a": (500.0, 3), "b": (470.0, 3)}) == ()
    assert hidden({"a": (2000.0, 3), "b": (1950.0, 3)}) == ()  # few of all
    assert hidden({"a": (500.0, 3), "b": (450.0, 3), "c": (300.0, 3)}) == ("c",)  # few beside those of another column


def test_declared_numbers_and_fits_with_a_network_have_no_such_release():
    frame = patients()[["weight", "sex"]]
    declared = Schema([Numeric("weight", (0, 200)), Categorical("sex")])
    assert "numbers" not in MomentSynthesizer(schema=declared).plan(frame).noise_multipliers
    open_ = Schema([Numeric("weight"), Categorical("sex", ("f", "m"))])
    assert "numbers" in MomentSynthesizer(schema=open_).plan(frame).noise_multipliers
    dates = Schema([Datetime("seen"), Categorical("sex", ("f", "m"))])
    assert "numbers" in MomentSynthesizer(schema=dates).plan(patients()[["seen", "sex"]]).noise_multipliers
    net = P3GMSynthesizer(3.0, decoder="net", training=DPSGD(steps=2))
    assert "numbers" not in net.plan(frame).noise_multipliers


def test_it_learns_from_units_too():
    frame = patients(1_200).assign(person=np.arange(1_200) // 2)
    synth, queries = _fit(frame, unit=PrivacyUnit("person", 2), epsilon=2.0)
    query = _again(synth, frame, queries)
    assert query.bounded_sum.sensitivity("add_or_remove_one") == pytest.approx(5**0.5)
    low, high = synth.model_.codec.encoder.schema_["weight"].bounds
    assert frame["weight"].between(low, high).mean() > 0.9


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_nothing_but_the_releases_decides_whether_and_what_is_learned(neighboring):
    many, few = patients(300), patients(300 if neighboring == "replace_one" else 60, seed=5)
    few["weight"], few["height"] = few["weight"] * 1000, few["height"] * 0
    joining = pd.DataFrame(
        {
            "weight": [1e9, np.nan],
            "height": [-90.0, 90.0],
            "visits": [0, 10_000_000],
            "balance": [1e-9, -5.0],
            "seen": [pd.Timestamp("1700-01-01"), pd.NaT],
            "sex": ["f", "x"],
        }
    )
    synth, queries = _fit(many, 0, epsilon=4.0, neighboring=neighboring)
    assert _again(synth, many, queries).bounded_sum.value.size > 100
    assert "numbers" not in synth.model_.respent
    others = [few, patients(9_000)] if neighboring == "add_or_remove_one" else [few]
    for other in others:
        with short_postprocessing():
            check_noninterference(MomentSynthesizer(4.0, neighboring=neighboring), (many,), (other,), rows=(joining,))
