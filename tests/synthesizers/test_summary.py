"""After a fit to a table the user is told what was lost, from released values alone."""

from __future__ import annotations

import dataclasses
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from skdpgen import DPSGD, DPMERFSynthesizer, MomentSynthesizer, P3GMSynthesizer, PriVAESynthesizer, Schema, load
from skdpgen.exceptions import UtilityWarning
from skdpgen.synthesizers._summary import _ends, _with_bounds
from skdpgen.tabular import Categorical, Datetime, Numeric, bins_from_histogram, bins_histogram
from skdpgen.testing import seeded_noise


def _frame(n_rows=4000):
    rng = np.random.default_rng(0)
    towns = [f"town {i}" for i in range(60)]
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n_rows),
            "town": rng.choice(towns, n_rows, p=[0.41, *[0.01] * 59]),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n_rows), unit="D"),
            "sex": rng.choice(["f", "m"], n_rows),
            "ill": rng.choice(["yes", "no"], n_rows, p=[0.3, 0.7]),
        }
    )


def _declared():
    return Schema(
        [
            Numeric("age", (18, 90), integer=True),
            Categorical("town", categories=tuple(f"town {i}" for i in range(60))),
            Datetime("day", ("2020-01-01", "2022-12-31"), resolution="D"),
            Categorical("sex", categories=("f", "m")),
            Categorical("ill", categories=("yes", "no")),
        ]
    )


@pytest.mark.filterwarnings("ignore:the classes of the target")
def test_lost_categories_are_said_by_column_with_their_share():
    with pytest.warns(UtilityWarning, match=r"\"other\" in much of 'town' \((5\d|6[0-4])%\).*Declare"):
        synth = MomentSynthesizer(0.6, target="ill").fit(_frame())
    columns = {column.name: column for column in synth.summary_.columns}
    town = columns["town"]
    assert 1 <= town.categories <= 8  # of 60
    assert town.other == pytest.approx(0.58, abs=0.06)
    assert town.learned
    assert columns["ill"].kind == "target"
    assert columns["ill"].categories == 2
    assert columns["sex"].other < 0.05
    assert columns["age"].bounds[1] >= 89
    assert columns["age"].other is columns["age"].categories is None
    assert columns["day"].kind == "date"
    assert 0 < columns["sex"].count_error < 300
    assert columns["sex"].count_error_percent == pytest.approx(100 * columns["sex"].count_error / synth.row_count_)
    share = (synth.sample(20_000, random_state=0)["town"] == "other").mean()
    assert share == pytest.approx(town.other, abs=0.02)


@pytest.mark.filterwarnings("ignore:the classes of the target")
def test_rows_whose_combination_is_replaced_are_said_with_their_share():
    frame = _frame()
    frame["land"] = np.where(frame["town"] == "town 0", "north", "south")
    rule = ["combinations(town, land)"]
    with pytest.warns(UtilityWarning, match=r"combinations were not kept .*'town' \((5\d|6[0-4])%\), 'land'"):
        synth = MomentSynthesizer(0.6, target="ill", constraints=rule).fit(frame)
    columns = {column.name: column for column in synth.summary_.columns}
    assert columns["town"].replaced == columns["land"].replaced == pytest.approx(0.58, abs=0.06)
    assert columns["sex"].replaced is None
    assert "one that was kept, which is then too frequent: town 5" in repr(synth.summary_)
    north = (synth.sample(5000)["town"] == "town 0").mean()  # of .41 of the rows
    assert north > 0.6


@pytest.mark.filterwarnings("error")
def test_what_the_warning_advises_ends_it():
    summary = MomentSynthesizer(2.0, target="ill", schema=_declared()).fit(_frame()).summary_
    assert not any(column.learned for column in summary.columns)
    assert summary.smallest_kept is None
    assert not list(summary.warnings())


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: MomentSynthesizer(2.0, target="ill", importance={"age": 3.0}),
        lambda: P3GMSynthesizer(2.0, target="ill"),
        lambda: DPMERFSynthesizer(2.0, target="ill", steps=2, n_frequencies=8),
        lambda: PriVAESynthesizer(2.0, n_components=2, training=DPSGD(2, 0.1, warm_start_steps=2)),
    ],
)
@pytest.mark.usefixtures("short_fits")
def test_a_saved_model_has_the_summary_of_its_fit(make, tmp_path):
    synth = make().fit(_frame(1500))
    synth.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.summary_ == synth.summary_
    pd.testing.assert_frame_equal(again.summary_.to_frame(), synth.summary_.to_frame())
    assert list(again.summary_.warnings()) == list(synth.summary_.warnings())
    assert repr(again.summary_) == repr(synth.summary_)


def test_the_summary_is_a_table_to_read():
    summary = MomentSynthesizer(2.0, schema=_declared()).fit(_frame(1000)).summary_
    lines = repr(summary).splitlines()
    assert (
        " ".join(lines[0].split())
        == "column kind bounds or categories drawn other missing error of a count at its ends"
    )
    assert "18 to 90" in lines[1]
    assert "2020-01-01 to 2022-12-31" in repr(summary)
    assert len(lines) == 1 + 5 + 3
    assert lines[-2].startswith("drawn: the lowest and the highest value that sample can draw")
    assert lines[-1].startswith("hidden low, hidden high: ")
    assert "<table" in summary._repr_html_()
    assert list(summary.to_frame().index) == list(_declared().names)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_the_summary_has_the_share_of_missing_values():
    rng, n_rows = np.random.default_rng(0), 4000
    frame = pd.DataFrame(
        {"x": np.where(rng.random(n_rows) < 0.3, np.nan, rng.random(n_rows)), "full": rng.random(n_rows)}
    )
    frame["code"] = pd.Series(rng.choice(["a", "b", None], n_rows, p=[0.5, 0.4, 0.1]), dtype=object)
    frame["ill"] = pd.Series(rng.choice(["no", "yes", None], n_rows, p=[0.5, 0.3, 0.2]), dtype=object)
    columns = [Numeric("x", (0, 1), missing=True), Numeric("full", (0, 1)), Categorical("code", missing=True)]
    schema = Schema([*columns, Categorical("ill", ("no", "yes"), missing=True)])
    summary = MomentSynthesizer(8.0, schema=schema, target="ill").fit(frame).summary_
    x, full, code, ill = (column.missing for column in summary.columns)
    assert (x, code, ill) == pytest.approx((0.3, 0.1, 0.2), abs=0.03)
    assert full is None
    assert re.search(r"x +number .* \d\d\.\d% ", repr(summary))
    assert "missing" in summary.to_frame().columns


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_the_summary_says_at_which_ends_nothing_is_drawn():
    rng, n_rows = np.random.default_rng(0), 4000
    tail = np.where(rng.random(n_rows) < 0.001, rng.uniform(8, 10, n_rows), rng.uniform(0, 2, n_rows))
    frame = pd.DataFrame({"tail": tail, "whole": rng.uniform(0, 10, n_rows)})
    frame["day"] = pd.Timestamp("2020-06-01") + pd.to_timedelta(rng.integers(0, 30, n_rows), unit="D")
    schema = Schema(
        [
            Numeric("tail", (0, 10)),
            Numeric("whole", (0, 10)),
            Datetime("day", ("2020-01-01", "2020-12-31"), resolution="D"),
        ]
    )
    summary = MomentSynthesizer(2.0, schema=schema).fit(frame).summary_
    assert [column.ends for column in summary.columns] == [("hidden high",), (), ("hidden low", "hidden high")]
    assert "nothing is drawn at this end of the bounds: no row is there, or so few that the noise hides" in repr(
        summary
    )
    assert not list(summary.warnings())  # the bounds are declared


def test_an_array_has_no_summary():
    synth = MomentSynthesizer(2.0, bounds=(0, 1), l2_bound=1.0)
    assert not hasattr(synth, "summary_")
    assert not hasattr(synth.fit(np.random.default_rng(0).random((500, 2))), "summary_")


# ---- what is drawn --------------------------------------------------------------------------------------------------
def _tails(n_rows=4000):
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({f"x{i}": rng.normal(size=n_rows) for i in range(12)})
    frame["age"] = np.clip(np.rint(rng.normal(45, 18, n_rows)), 0, 90).astype(int)
    frame["score"] = rng.choice([1, 2, 3, 4, 5], n_rows, p=[0.01, 0.2, 0.58, 0.2, 0.01])
    frame["half"] = rng.integers(0, 40, n_rows) / 2
    frame["seen"] = pd.Timestamp("2020-06-01") + pd.to_timedelta(rng.integers(0, 200, n_rows), unit="D")
    frame["none"] = np.nan
    frame["gaps"] = pd.array(np.where(rng.random(n_rows) < 0.1, None, rng.integers(3, 9, n_rows)), dtype="Int64")
    frame["single"] = rng.random(n_rows).astype("float32")
    frame["span"] = pd.to_timedelta(rng.integers(0, 500, n_rows), unit="h")
    frame["clock"] = pd.Timestamp("2020-06-01 07:00", tz="Europe/Paris") + pd.to_timedelta(
        rng.integers(0, 90, n_rows), "h"
    )
    frame["month"] = pd.Series(pd.period_range("2020-01", periods=24, freq="M")).sample(n_rows, replace=True).array
    return frame


_TAILS = Schema(
    [
        *(Numeric(f"x{i}", (-10, 10)) for i in range(12)),
        Numeric("age", (0, 120), integer=True),
        Numeric("score", (1, 5), integer=True),
        Numeric("half", (0, 100), step=0.5),
        Datetime("seen", ("2020-01-01", "2021-12-31"), resolution="D"),
        Numeric("none", (0, 1), missing=True),
        Numeric("gaps", (0, 20), integer=True, missing=True, dtype="Int64"),
        Numeric("single", (-1, 2), dtype="float32"),
    ]
)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: MomentSynthesizer(1.0, schema=_TAILS),
        lambda: MomentSynthesizer(0.02, schema=_TAILS),
        lambda: MomentSynthesizer(1.0),
        lambda: P3GMSynthesizer(1.0, schema=_TAILS, prior="mixture"),
        lambda: DPMERFSynthesizer(1.0, schema=_TAILS, steps=2, n_frequencies=8),
    ],
)
@pytest.mark.usefixtures("short_fits")
def test_sample_draws_from_the_stated_range_and_up_to_its_ends(make, tmp_path):
    synth = make().fit(_tails())
    rows = synth.sample(60_000, random_state=1)
    reached = []
    for column in synth.summary_.columns:
        values = rows[column.name].dropna()
        if column.name in ("span", "clock", "month"):
            assert (column.drawn[0] <= column.drawn[1]) == bool(len(values))
            continue
        if column.drawn is None:
            assert not len(values)
            continue
        low, high = map(pd.Timestamp, column.drawn) if column.kind == "date" else column.drawn
        first, last = map(pd.Timestamp, column.bounds) if column.kind == "date" else column.bounds
        assert first <= low <= high <= last, column
        assert low <= values.min() <= values.max() <= high, column
        room = (high - low) / 10
        reached += [values.min() - low <= room, high - values.max() <= room]
    # a trained decoder may give a level next to no probability
    assert np.mean(reached) > 0.8 or not isinstance(synth, MomentSynthesizer)
    synth.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").summary_ == synth.summary_


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_the_summary_shows_which_tails_the_noise_hides():
    summary = MomentSynthesizer(1.0, schema=_TAILS).fit(_tails()[list(_TAILS)]).summary_
    drawn = summary.to_frame()["drawn"]
    low, high = drawn["score"]
    assert low in (1, 2)  # 40 rows of 4,000 at each end
    assert high in (4, 5)
    assert drawn["age"][1] < 120
    assert drawn["half"][1] <= 25
    assert drawn["seen"][0] >= "2020-04"
    assert f"{low} to {high}" in next(line for line in repr(summary).splitlines() if line.startswith("score"))
    assert "learned bounds" not in repr(summary)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_learned_bounds_of_numbers_come_with_the_advice_to_declare_them():
    summary = MomentSynthesizer(1.0).fit(_tails()[["age", "x0"]]).summary_
    assert "learned bounds of numbers are rough, like powers of two: declare bounds in the schema" in repr(summary)
    assert summary.columns[0].drawn[1] <= 127
    dates = MomentSynthesizer(1.0, schema=Schema([_TAILS["age"]])).fit(_tails()[["age", "seen"]]).summary_
    assert dates.columns[1].learned
    assert "learned bounds" not in repr(dates)


def _items(n_rows, n_columns=30):
    rng = np.random.default_rng(0)
    common = rng.normal(size=(n_rows, 3))
    latent = [0.75 * common[:, j % 3] + 0.66 * rng.normal(size=n_rows) for j in range(n_columns)]
    return pd.DataFrame({f"q{j}": np.clip(np.rint(3 + 1.1 * z), 1, 5).astype(int) for j, z in enumerate(latent)})


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_the_summary_says_which_correlations_the_noise_hides():
    schema = Schema([Categorical(name, categories=(1, 2, 3, 4, 5)) for name in _items(1)])
    many, few, hopeless = (
        MomentSynthesizer(epsilon, schema=schema).fit(_items(n_rows)).summary_
        for epsilon, n_rows in ((1.0, 3000), (20.0, 3000), (0.1, 300))
    )
    assert 0.4 < many.smallest_correlation < 0.6
    assert f"hides correlations of two columns below about {many.smallest_correlation:.2f}" in repr(many)
    assert few.smallest_correlation is None
    assert "correlations" not in repr(few)
    assert "depend on one another" not in repr(few)
    assert hopeless.smallest_correlation == 1
    assert "the noise hides how columns depend on one another: they are modelled as independent" in repr(hopeless)


# ---- ends of columns ------------------------------------------------------------------------------------------------
def _ends_of(values, column, learned=False, noise_sd=0.0, visible=0.005):
    frame, schema = pd.DataFrame({"x": values}), Schema([column])
    counts = np.asarray(bins_histogram(frame, schema).value)
    noise = np.random.default_rng(3).normal(size=counts.shape) * noise_sd
    return _ends(bins_from_histogram(counts + noise, schema, noise_sd, 16)["x"], learned, visible)


_RNG = np.random.default_rng(7)
_SMOOTH = {
    "uniform": _RNG.random(20_000) * 900,
    "normal": np.clip(_RNG.normal(400, 80, 20_000), 0, 1000),
    "exponential": np.minimum(_RNG.exponential(60, 20_000), 1000),
    "lognormal": np.minimum(_RNG.lognormal(3, 1, 20_000), 1000),
    "left-skewed": 900 - np.minimum(_RNG.exponential(60, 20_000), 900),
}


@pytest.mark.parametrize("name", _SMOOTH)
@pytest.mark.parametrize("noise_sd", [0.0, 20.0])
def test_smooth_columns_have_nothing_at_their_ends(name, noise_sd):
    values = _SMOOTH[name]
    assert not _ends_of(values, Numeric("x", (0, 1023)), True, noise_sd)
    assert not _ends_of(np.rint(values), Numeric("x", (0, 1023), integer=True), True, noise_sd)
    assert not _ends_of(np.rint(values / 10), Numeric("x", (0, 127), integer=True), True, noise_sd)


@pytest.mark.parametrize("noise_sd", [0.0, 20.0])
def test_a_spike_at_an_end_is_seen_where_its_cell_is_wide_and_kept_where_bounds_end_at_it(noise_sd):
    values = np.concatenate([_RNG.exponential(60, 20_000).clip(max=500), np.full(600, 999.0)])
    for integer in (False, True):
        found = _ends_of(np.rint(values), Numeric("x", (0, 1023), integer=integer), True, noise_sd)
        assert list(found) == ["smeared high"]
        assert abs(found["smeared high"] - 999) < 16
        assert not _ends_of(np.rint(values), Numeric("x", (0, 999), integer=integer), False, noise_sd)
        low = _ends_of(-np.rint(values), Numeric("x", (-1023, 0), integer=integer), False, noise_sd)
        assert list(low) == ["smeared low"]


@pytest.mark.parametrize("noise_sd", [0.0, 20.0])
def test_a_tail_beyond_learned_bounds_piles_up_and_is_seen(noise_sd):
    values = _RNG.normal(0, 300, 20_000)
    for column in (
        Numeric("x", (-512, 512)),
        Numeric("x", (-511, 511), integer=True),
        Numeric("x", (-512, 512), decimals=2),
    ):
        clipped = np.clip(np.rint(values), *column.bounds)
        assert set(_ends_of(clipped, column, True, noise_sd)) == {"cut low", "cut high"}
        assert not _ends_of(clipped, column, False, noise_sd)  # declared bounds are the user's
    few = np.clip(np.rint(values / 10), -31, 31)
    assert set(_ends_of(few, Numeric("x", (-31, 31), integer=True), True, noise_sd)) == {"cut low", "cut high"}


@pytest.mark.parametrize("column", [Numeric("x", (0, 1)), Numeric("x", (0, 1), integer=True)])
def test_bounds_learned_under_much_noise_may_cut_off_a_tail(column):
    values = np.clip(np.concatenate([np.zeros(700), _RNG.exponential(60, 300)]), 0, 1)
    values = np.rint(values) if column.integer else values
    assert set(_ends_of(values, column, True, 20.0, visible=0.5)) == {"maybe cut high"}
    assert not _ends_of(values, column, False, 20.0, visible=0.5)  # declared bounds are the user's
    assert "maybe cut high" not in _ends_of(values, column, True)  # a tail would have been seen


def test_a_column_learned_as_one_value_under_much_noise_is_named():
    zeros = np.zeros(1000)
    column = Numeric("x", (-(2.0**-31), 0))
    assert set(_ends_of(zeros, column, True, visible=0.2)) == {"one value"}
    assert not _ends_of(zeros, column, True)
    assert not _ends_of(zeros, column, False, visible=0.2)


def test_a_summary_says_which_learned_bounds_may_cut_off_values():
    schema = Schema([Numeric("visits", (0, 1), integer=True), Numeric("age", (0, 99))])
    summary = MomentSynthesizer(1.0, schema=schema).fit(pd.DataFrame({"visits": [0, 1] * 100, "age": 50.0})).summary_
    visits, age = summary.columns
    summary = dataclasses.replace(summary, columns=(dataclasses.replace(visits, ends=("maybe cut high",)), age))
    assert [said for said in summary.warnings() if "may cut off values of 'visits' (0, 1)" in said]


@pytest.mark.parametrize("end", ["cut low", "maybe cut high", "smeared low", "one value"])
def test_a_printed_summary_explains_what_it_says_of_ends(end):
    schema = Schema([Numeric("visits", (0, 9)), Numeric("age", (0, 99))])
    frame = pd.DataFrame({"visits": _RNG.uniform(0, 9, 300), "age": _RNG.uniform(0, 99, 300)})
    summary = MomentSynthesizer(1.0, schema=schema).fit(frame).summary_
    mark = end.removesuffix(" low").removesuffix(" high")
    assert f"\n{mark}: " not in repr(summary)
    summary = dataclasses.replace(summary, columns=(dataclasses.replace(summary.columns[0], ends=(end,)),))
    assert f"\n{mark}: " in repr(summary)


def test_many_zeros_at_a_learned_end_are_no_cut_tail():
    values = np.concatenate([np.zeros(15_000), _RNG.exponential(60, 5_000)])
    assert not _ends_of(values, Numeric("x", (0, 1024)), True)
    assert not _ends_of(np.rint(values), Numeric("x", (0, 1023), integer=True), True)


def test_a_fit_warns_of_a_spike_and_of_nothing_once_its_bounds_are_declared():
    rng = np.random.default_rng(0)
    gain = np.where(rng.random(6000) < 0.05, 99_999, rng.integers(0, 20_000, 6000))
    frame = pd.DataFrame({"gain": gain, "other": rng.random(6000)})
    with pytest.warns(UtilityWarning, match=r"many rows lie together at an end of 'gain' \(about 9\d,\d{3}\)"):
        MomentSynthesizer(4.0).fit(frame)
    bounds = Schema.from_kinds(frame).replace(Numeric("gain", (0, 99_999), integer=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MomentSynthesizer(4.0, schema=bounds).fit(frame)


_SAME = {
    "whole": (np.full(6000, 2024), None),
    "a number": (np.full(6000, 5.5), None),
    "declared": (np.full(6000, 5.2), Numeric("same", (0, 10))),
    "declared, of many integers": (np.full(6000, 777), Numeric("same", (0, 1000), integer=True)),
    "a day": (pd.to_datetime(["2024-05-05"] * 6000), None),
}


@pytest.mark.parametrize("name", _SAME)
def test_one_value_is_neither_a_cut_tail_nor_a_spike_at_an_end(name):
    values, column = _SAME[name]
    frame = pd.DataFrame({"same": values, "x": np.random.default_rng(0).random(6000)})
    schema = Schema([Numeric("x", (0, 1)), *([column] if column else [])])
    with pytest.warns(UtilityWarning) as said:
        synth = MomentSynthesizer(4.0, schema=schema).fit(frame)
    assert [str(w.message).partition(" (about")[0] for w in said] == ["nearly all rows of 'same'"]
    assert "leave out a constant column" in str(said[0].message)
    assert synth.summary_.columns[0].ends == ("one value",)


def test_two_neighbouring_whole_numbers_of_many_rows_are_not_one_value():
    column = Numeric("x", (0, 3), integer=True)
    assert "one value" not in _ends_of(np.repeat([1, 2], [330, 670]), column, True, visible=0.1)
    wider = dataclasses.replace(column, bounds=(0, 7))
    assert "one value" not in _ends_of(np.repeat([3, 4, 5], [300, 400, 300]), wider, True, 20.0, 0.1)
    assert set(_ends_of(np.repeat([1, 2], [20, 980]), column, True, visible=0.1)) == {"one value"}


def test_a_column_of_which_one_category_alone_was_learned_is_named():
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(9)]
    frame = pd.DataFrame(rng.random((400, 9)), columns=names).assign(sex=["m"] * 8 + ["f"] * 392)
    with pytest.warns(UtilityWarning) as said, seeded_noise(0, quiet=True):
        synth = MomentSynthesizer(1.0, schema=Schema([Numeric(name, (0, 1)) for name in names])).fit(frame)
    assert [str(w.message) for w in said if "one category alone was learned of 'sex' ('f')" in str(w.message)]
    assert synth.summary_.columns[-1].ends == ("one category",)


def test_a_target_of_which_one_class_alone_was_learned_is_named():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ill": np.arange(20_000) % 400 == 0, "x": rng.random(20_000)}).astype({"ill": int})
    with pytest.warns(UtilityWarning) as said, seeded_noise(0, quiet=True):
        synth = MomentSynthesizer(0.5, schema=Schema([Numeric("x", (0, 1))]), target="ill").fit(frame)
    found = [str(w.message) for w in said if "one class alone was learned of the target 'ill' (0)" in str(w.message)]
    assert len(found) == 1
    assert "rows are usually lost" in found[0]
    assert list(synth.classes_) == [0]
    assert synth.summary_.columns[0].ends == ("one category",)


def test_a_constant_column_of_many_rows_needs_no_such_warning():
    frame = pd.DataFrame({"sex": ["f"] * 20_000, "x": np.random.default_rng(0).random(20_000)})
    synth = MomentSynthesizer(4.0, schema=Schema([Numeric("x", (0, 1))])).fit(frame)
    assert synth.summary_.columns[0].ends == ()


@pytest.mark.parametrize("value", [0, 5, 0.0, 10.0])
def test_one_value_that_the_sample_has_exactly_needs_no_warning(value):
    frame = pd.DataFrame({"same": np.full(6000, value), "x": np.random.default_rng(0).random(6000)})
    column = Numeric("same", (0, 10), integer=isinstance(value, int))
    synth = MomentSynthesizer(4.0, schema=Schema([column, Numeric("x", (0, 1))])).fit(frame)
    assert synth.summary_.columns[0].drawn == (value, value)
    assert set(synth.sample(100)["same"]) == {value}


def test_a_declared_column_of_missing_values_alone_is_named():
    n_rows = 8000
    frame = pd.DataFrame({"empty": np.full(n_rows, np.nan), "none": pd.Series([None] * n_rows, dtype=object)})
    frame["x"] = np.random.default_rng(0).random(n_rows)
    columns = [Numeric("empty", (0, 1), missing=True), Categorical("none", ("a", "b"), missing=True)]
    with pytest.warns(UtilityWarning) as said:
        synth = MomentSynthesizer(3.0, schema=Schema([*columns, Numeric("x", (0, 1))])).fit(frame)
    assert [str(w.message) for w in said] == [
        "nearly all values of 'empty', 'none' are missing: drop a column without values"
    ]
    assert [column.ends for column in synth.summary_.columns] == [("missing",), ("missing",), ()]


def test_columns_from_0_to_1_come_last_among_those_that_bounds_may_cut():
    columns = [SimpleNamespace(name=name, bounds=bounds) for name, bounds in (("flag", (0, 1)), ("tenure", (0, 44)))]
    assert _with_bounds(columns) == "'tenure' (0, 44), 'flag' (0, 1)"
