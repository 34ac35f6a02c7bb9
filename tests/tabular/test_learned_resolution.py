"""Decimals of numbers and steps of datetimes that are learned from the released counts of an incomplete schema."""

import warnings

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer
from skdpgen.exceptions import UtilityWarning
from skdpgen.tabular import Categorical, Datetime, Numeric, Schema
from skdpgen.tabular import _learning as learning
from skdpgen.tabular import _schema_cells as cells_of
from skdpgen.tabular._learning import schema_from_histogram
from skdpgen.tabular._schema_cells import schema_histogram

N = 4000


def values(kind, n=N, seed=0):
    rng = np.random.default_rng(seed)
    moments = pd.Timestamp("2001-01-01") + pd.to_timedelta(rng.integers(0, 3e8, n), unit="s")
    return {
        "whole": lambda: rng.integers(-3, 90, n).astype(float),
        "whole_with_gaps": lambda: np.where(rng.random(n) < 0.2, np.nan, rng.integers(1, 6, n)),
        "tenths": lambda: rng.normal(37, 0.5, n).round(1),
        "tenths_float32": lambda: rng.normal(37, 0.5, n).round(1).astype("float32"),
        "cents": lambda: rng.lognormal(3, 1, n).round(2),
        "measured": lambda: rng.normal(0, 1, n),
        "measured_float32": lambda: rng.normal(0, 1, n).astype("float32"),
        "shares": lambda: np.where(rng.random(n) < 0.3, rng.random(n), 0.0),
        "halves": lambda: rng.integers(1, 11, n) / 2,
        "days": lambda: moments.floor("D"),
        "minutes": lambda: moments.floor("min"),
        "seconds": lambda: moments,
        "zoned_days": lambda: moments.floor("D").tz_localize("Europe/Paris"),
    }[kind]()


def learn(data, sd, seed=0, columns=None):
    frame = pd.DataFrame({"x": data})
    histogram = schema_histogram(frame, Schema(columns) if columns else Schema.from_kinds(frame))
    noise = sd * np.random.default_rng(seed).standard_normal(sum(histogram.sizes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UtilityWarning)
        return schema_from_histogram(
            histogram.bounded_sum.value + noise / histogram.bounded_sum.weights, histogram, sd, 1e-5
        )["x"]


@pytest.mark.parametrize("kind", ["whole", "whole_with_gaps"])
def test_whole_numbers_of_few_rows_are_learned_to_be_whole(kind):
    """Numbers with missing values are floats: 0 and 1 would else be drawn as 1.017."""
    learned = [learn(values(kind, 1_000, seed), 40.0, seed).step for seed in range(40)]
    assert np.mean(np.array(learned) == 1) > 0.9
    for other in ("measured", "cents", "shares", "tenths"):
        assert not any(learn(values(other, 1_000, seed), 40.0, seed).step for seed in range(40))


@pytest.mark.parametrize("sd", [0.0, 40.0])
@pytest.mark.parametrize(
    ("kind", "step", "decimals"),
    [
        ("whole", 1, None),
        ("whole_with_gaps", 1, None),
        ("tenths", None, 1),
        ("tenths_float32", None, 1),
        ("cents", None, 2),
        ("halves", None, 1),
    ],
)
def test_numbers_get_the_decimals_in_which_they_are_written(kind, step, decimals, sd):
    column = learn(values(kind), sd)
    assert (column.step, column.decimals) == (step, decimals)


@pytest.mark.parametrize("sd", [0.0, 40.0])
@pytest.mark.parametrize("kind", ["measured", "measured_float32", "shares"])
def test_measured_numbers_keep_decimals_that_follow_from_their_bounds(kind, sd):
    column = learn(values(kind), sd)
    assert column.step is None
    assert column.decimals >= 3


@pytest.mark.parametrize("sd", [0.0, 40.0])
@pytest.mark.parametrize(
    ("kind", "resolution"), [("days", "D"), ("zoned_days", "D"), ("minutes", "min"), ("seconds", "s")]
)
def test_datetimes_get_the_coarsest_step_that_the_rows_have(kind, resolution, sd):
    assert learn(values(kind), sd).resolution == resolution


@pytest.mark.parametrize("kind", ["whole", "tenths", "measured", "days", "seconds"])
def test_few_rows_change_nothing(kind):
    column = learn(values(kind, 200), 40.0)
    assert column.resolution == "s" if isinstance(column, Datetime) else (column.step is None and column.decimals > 1)


def test_measured_numbers_are_rounded_to_whole_ones_almost_never():
    # the fewest rows from which a resolution is learned
    n = round(learning._CLEAR * 40 / cells_of._WEIGHTS[Numeric, True][-1])
    steps = [learn(values("measured", n, seed), 40.0, seed).step for seed in range(300)]
    assert sum(step is not None for step in steps) <= 3


@pytest.mark.parametrize(
    "column",
    [
        Numeric("x", integer=True),
        Numeric("x", decimals=4),
        Numeric("x", step=0.25),
        Numeric("x", dtype="timedelta64[s]"),
        Datetime("x", resolution="D"),
        Datetime("x", dtype="date"),
        Categorical("x"),
    ],
)
def test_what_is_declared_is_not_counted(column):
    assert not cells_of.learns_resolution(column)
    assert cells_of.column_weights(column)[0] in (0.8, 1.0)


def test_a_cell_depends_on_the_value_of_its_row_alone():
    column, odd = (
        Numeric("x"),
        np.array([0.0, -0.0, np.nan, 1e-320, 5e-324, 1e307, -1.7e308, 2.0**53, 0.1 + 0.2, -7.25]),
    )
    cells, size = cells_of._decimal_cells(odd, column)
    assert cells.tolist() == [-1, -1, -1, 4, 4, 0, 0, 0, 1, 2]
    assert size == 5
    alone = [cells_of._decimal_cells(odd[[i]], column)[0][0] for i in range(len(odd))]
    assert cells.tolist() == alone


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "Float32", "Float64", "double[pyarrow]", "float[pyarrow]"]
)
def test_numbers_of_every_dtype_of_floats_have_their_decimals(dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    data = pd.Series([1.5, 2.25, 30.0, 0.125, 7.1]).astype(dtype)
    cells, _ = cells_of._decimal_cells(data.to_numpy(dtype=np.float64), Numeric("x", dtype=dtype))
    assert cells.tolist() == [1, 2, 0, 3, 1]


def test_synthetic_rows_are_written_as_the_real_ones():
    kinds = ["whole_with_gaps", "tenths", "cents", "days", "minutes"]
    frame = pd.DataFrame({kind: values(kind, 8000, seed) for seed, kind in enumerate(kinds)})
    synthetic = MomentSynthesizer(epsilon=2.0, delta=1e-5, random_state=0).fit(frame).sample(500, random_state=0)
    assert set(synthetic["whole_with_gaps"].dropna()) == {1.0, 2.0, 3.0, 4.0, 5.0}
    for kind, decimals in (("tenths", 1), ("cents", 2)):
        np.testing.assert_array_equal(synthetic[kind], synthetic[kind].round(decimals))
    assert (synthetic["days"] == synthetic["days"].dt.normalize()).all()
    assert (synthetic["minutes"].dt.second == 0).all()
    assert (synthetic["minutes"].dt.minute > 0).any()


def test_a_learned_resolution_has_the_values_that_are_declared():
    """Nothing raises after the charge, and no declared value is rounded to another."""
    rng = np.random.default_rng(0)
    whole = rng.integers(1, 1000, N).astype(float)
    for spikes, step, decimals in [((0, 5), 1, None), ((0.5,), None, 1), ((-0.25, 7), None, 2), ((0.0005,), None, 4)]:
        found = learn(whole, 1.0, columns=[Numeric("x", spikes=spikes)])
        assert (found.step, found.decimals, found.spikes) == (step, decimals, spikes)
    assert learn(whole, 1.0, columns=[Numeric("x", spikes=(1 / 3,))]).decimals is None


def test_values_that_constraints_set_come_out_as_they_are():
    rng = np.random.default_rng(0)
    x = rng.integers(1, 1000, N).astype(float)
    rare, days = x > 995, pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), unit="D"))
    noon = pd.Timestamp("2020-03-01 12:34")
    columns = {"x": x, "y": np.where(rare, 0.5, x % 40), "z": np.where(rare, 12.3456, x % 997 / 10)}
    frame = pd.DataFrame({**columns, "day": days.where(~rare, noon)})
    texts = ["y == 0.5", "z == 12.3456", f"day == '{noon}'"]
    synth = MomentSynthesizer(1000.0, constraints=[f"if x > 995: {text}" for text in texts], random_state=0).fit(frame)
    drawn = synth.sample(20_000)
    drawn = drawn[drawn["x"] > 995]
    assert len(drawn)
    assert (drawn[["y", "z", "day"]] == [0.5, 12.3456, noon]).all(axis=None)
    assert synth.schema_["x"].step == 1
