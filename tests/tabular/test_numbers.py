"""Numbers that an expert of the domain believes: steps, point masses, decimals, and columns of few integers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from skdpgen import MomentSynthesizer
from skdpgen.exceptions import SchemaError
from skdpgen.mechanisms import N_OCTAVE_CELLS
from skdpgen.tabular import (
    Datetime,
    Numeric,
    Schema,
    TableEncoder,
    bins_from_histogram,
    bins_histogram,
    validate_frame,
)
from skdpgen.tabular import _learning as learning
from skdpgen.tabular._binning import Binning, fine_grid, is_uneven
from skdpgen.tabular._frames import restore

RNG = np.random.default_rng(0)


def binned(values, column, sd=5.0, seed=0, **options):
    """A sample of one column by its learned bins; their shares are exact."""
    frame, schema = pd.DataFrame({column.name: values}), Schema([column])
    rng = np.random.default_rng(seed)
    counts = bins_histogram(frame, schema).value
    binnings = bins_from_histogram(counts + rng.normal(0, sd, len(counts)), schema, sd, 16, **options)
    encoder = TableEncoder(schema, binnings=binnings).fit()
    return encoder.decode(encoder.codes(frame), rng=rng)[column.name]


def test_no_number_of_many_steps_is_beyond_its_bounds():
    end = 2.0**48 - 1
    for step in (1, 0.1):
        column = Numeric("x", (-end * step, end * step), step=step)
        values = restore(np.array([-np.inf, 0.0, np.inf]), column)
        assert values.tolist() == pytest.approx([-end * step, 0.0, end * step], abs=step)
    assert restore(np.array([-np.inf, np.inf]), Numeric("x", (-end, end), step=1)).tolist() == [-end, end]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (Numeric("x", (0, 5), step=0.25), RNG.integers(0, 21, 4000) / 4),
        (Numeric("x", (0, 5), step=0.1), RNG.integers(0, 51, 4000) / 10),
        (Numeric("x", (0, 1_000_000), integer=True, step=10_000), RNG.integers(0, 101, 4000) * 10_000),
        (Numeric("x", (-900.5, 1e6), step=0.5), RNG.integers(-900, 2_000_000, 4000) / 2),
        (Numeric("x", (0, 100), step=0.25, dtype="Float32", missing=True), RNG.integers(0, 400, 4000) / 4),
    ],
)
@pytest.mark.parametrize("numeric", ["bins", "scale"])
def test_samples_are_multiples_of_the_step(column, values, numeric):
    drawn = binned(values, column)
    if numeric == "scale":
        encoder = TableEncoder(Schema([column]), numeric="scale").fit()
        drawn = encoder.inverse_transform(
            RNG.uniform(-1, 1, (500, encoder.n_features_out_)) * [1, 0][: 1 + column.missing]
        )
        drawn = drawn["x"]
    steps = drawn.astype("float64") / column.step
    assert np.allclose(steps, np.rint(steps), atol=1e-6)
    assert drawn.nunique() > 15
    assert drawn.between(*column.bounds).all()
    assert drawn.astype(str).str.len().max() <= 10


def test_few_multiples_have_a_cell_each():
    column = Numeric("x", (0, 5), step=0.25)
    assert fine_grid(column).tolist() == list(range(22))
    drawn = binned(np.repeat([0.25, 4.75], 2000), column)
    assert set(drawn) == {0.25, 4.75}


def test_other_values_are_rounded_to_the_step_or_refused():
    schema = Schema([Numeric("x", (0, 5), step=0.25)])
    frame = pd.DataFrame({"x": [0.3, 4.9]})
    assert TableEncoder(schema, numeric="scale").fit().inverse_transform([[-0.9], [0.9]])["x"].tolist() == [0.25, 4.75]
    validate_frame(frame, schema)
    with pytest.raises(SchemaError, match="no multiples of its step"):
        validate_frame(frame, schema, on_invalid="raise")
    validate_frame(pd.DataFrame({"x": [0.25, 4.75]}), schema, on_invalid="raise")


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_a_declared_spike_is_drawn_exactly(share):
    n = 20_000
    values = np.where(RNG.random(n) < share, 99_999.0, RNG.uniform(0, 200_000, n))
    for spikes, kept in ((None, 0.01), ((99_999,), share)):
        drawn = binned(values, Numeric("x", (0, 200_000), spikes=spikes), sd=20.0)
        assert (drawn == 99_999).mean() == pytest.approx(kept, abs=0.02)


def test_spikes_at_zero_and_at_the_bounds_need_no_declaration():
    n = 20_000
    values = np.where(RNG.random(n) < 0.3, RNG.choice([0.0, -50.0, 1000.0], n), RNG.uniform(-50, 1000, n))
    drawn = binned(values, Numeric("x", (-50, 1000)), sd=20.0)
    assert [(drawn == value).mean() for value in (0.0, -50.0, 1000.0)] == pytest.approx([0.1] * 3, abs=0.02)


@pytest.mark.parametrize(
    ("bounds", "decimals"),
    [((17, 90), 2), ((0, 1), 3), ((0.05, 0.16), 4), ((0, 1_000_000), 2), ((0, 99.995), 3), ((1e-9, 3e-9), 12)],
)
def test_declared_bounds_decide_the_decimals_of_drawn_numbers(bounds, decimals):
    column = Numeric("x", bounds)
    drawn = binned(RNG.uniform(*bounds, 500), column)
    assert np.array_equal(drawn, np.clip(np.round(drawn, decimals), *bounds))
    assert not np.array_equal(drawn, np.round(drawn, decimals - 1))
    assert not np.array_equal(binned(drawn, Numeric("x", bounds, decimals=17)), np.round(drawn, decimals))


@pytest.mark.parametrize("bounds", [(0, 1e300), (-1e-300, 1e-300), (1e17, 1e17 + 1e6)])
def test_numbers_of_any_size_are_drawn(bounds):
    drawn = binned(RNG.uniform(*bounds, 500), Numeric("x", bounds))
    assert drawn.between(*bounds).all()
    assert drawn.nunique() > 300


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("rows_per_sd", [12, 40])
def test_a_column_of_1_and_2_is_never_0_or_3(share, rows_per_sd):
    """Learned bounds may be 0 and 3; the counts of four integers are known at a noise that hides finer columns."""
    values, column = RNG.choice([1, 2], 2000, p=[share, 1 - share]), Numeric("x", (0, 3), integer=True)
    wrong = [not set(binned(values, column, 2000 / rows_per_sd, seed, learned=["x"])) <= {1, 2} for seed in range(60)]
    assert np.mean(wrong) <= 0.04


@pytest.mark.parametrize("learned", [(), ("x",)], ids=["declared", "learned"])
@pytest.mark.parametrize("sd", [20.0, 60.0])
def test_values_that_are_hidden_one_by_one_are_seen_together(learned, sd):
    """Each of seven values has few rows in standard deviations of the noise, and all of them many."""
    values, column = RNG.integers(1, 8, 1000), Numeric("x", (0, 7) if learned else (1, 7), integer=True)
    distances = []
    for seed in range(20):
        shares = np.bincount(binned(values, column, sd, seed, learned=learned), minlength=8)[:8] / 1000
        distances.append(np.abs(shares - np.bincount(values, minlength=8) / 1000).sum() / 2)
    assert np.mean(distances) < (0.1 if sd < 50 else 0.2)


def test_single_values_are_bins_where_tables_of_one_column_are_all():
    values, column = RNG.choice(5, 1000, p=[0.4, 0.3, 0.2, 0.07, 0.03]) + 1, Numeric("x", (1, 5), integer=True)
    shares = np.bincount(binned(values, column, 60.0, single_values=True), minlength=6)[1:] / 1000
    # the shares of bins are exact here, and every value is a bin
    np.testing.assert_allclose(shares, np.bincount(values, minlength=6)[1:] / 1000, atol=1e-12)


@pytest.mark.parametrize("sd", [30.0, 50.0, 70.0])
def test_a_tail_that_the_noise_hides_is_not_moved_to_its_near_end(sd):
    """The ends of ages have too few rows in each cell: with all of them at the near end, quantiles are up to 5 off."""
    ages, column = np.random.default_rng(0).normal(45, 18, 3000).round(), Numeric("x", (0, 100), integer=True)
    ages = np.clip(ages, 0, 100)
    drawn = [np.quantile(binned(ages, column, sd, seed), [0.05, 0.95]) for seed in range(60)]
    least, most = np.mean(drawn, axis=0) - np.quantile(ages, [0.05, 0.95])
    assert -2.0 < least < 3.6
    assert -3.0 < most < 2.0


_SKEWED = [
    (Numeric("x", (0, 1e7)), np.exp(np.random.default_rng(0).normal(10, 1, 1000))),
    (Numeric("x", (0, 99_999), integer=True), np.where(np.arange(1000) % 7, 0, np.arange(1000) * 20)),
    (
        Datetime("x", ("1950-01-01", "2030-12-31")),
        pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(1000) % 200, "D"),
    ),
]


@pytest.mark.parametrize(("column", "values"), _SKEWED, ids=["amounts", "zeros", "dates"])
def test_few_rows_in_few_cells_have_learned_bins(column, values):
    """Bins of equal width would spread amounts, zeros or one year of dates over a wide range."""
    values, sd = pd.Series(values), 30.0
    drawn = [binned(values, column, sd, seed) for seed in range(10)]
    middle = values.quantile([0.1, 0.9])
    # without noise .80, .90 and (half a year is less than a cell) .64; of bins of equal width .1, .6 and .05
    exact = binned(values, column, 0.0).between(*middle).mean()
    assert np.mean([x.between(*middle).mean() for x in drawn]) > 0.97 * exact


def test_even_and_normal_rows_have_bins_of_equal_width():
    uneven = []
    for column, values in (
        (Numeric("x", (0, 1)), np.random.default_rng(0).random(1000)),
        (Numeric("x", (-6, 6)), np.random.default_rng(0).normal(size=1000)),
        (Numeric("x", (0, 100), integer=True), np.random.default_rng(0).integers(10, 90, 1000)),
    ):
        counts = bins_histogram(pd.DataFrame({"x": values}), Schema([column])).value[:-1]
        rng, bins = np.random.default_rng(1), Binning.equal_width(column)
        uneven += [is_uneven(counts + rng.normal(0, 40, len(counts)), column, 40.0, bins) for _ in range(60)]
    assert np.mean(uneven) < 0.05


def test_a_fit_of_few_rows_keeps_a_share_of_zeros():
    cost = np.where(RNG.random(600) < 0.85, 0, np.exp(RNG.normal(8, 1, 600)).round().clip(1, 99_999)).astype(int)
    frame = pd.DataFrame({"cost": cost, **{f"x{i}": RNG.normal(size=600).clip(-5, 5) for i in range(5)}})
    schema = Schema([Numeric("cost", (0, 99_999), integer=True), *(Numeric(f"x{i}", (-5, 5)) for i in range(5))])
    shares = [(MomentSynthesizer(1.0, schema=schema).fit(frame).sample(5000)["cost"] == 0).mean() for _ in range(3)]
    assert abs(np.mean(shares) - (cost == 0).mean()) < 0.15


def test_a_spike_at_an_end_stays_one():
    ages, column = np.concatenate([RNG.integers(10, 50, 3000), np.full(500, 60)]), Numeric("x", (0, 100), integer=True)
    drawn = [binned(ages, column, 20.0, seed) for seed in range(10)]
    assert np.mean([np.mean(x == 60) for x in drawn]) > 0.12
    assert np.mean([np.mean(x > 60) for x in drawn]) < 0.01


def test_a_fit_learns_bounds_in_steps_and_keeps_spikes_inside():
    frame = pd.DataFrame({"x": RNG.integers(1, 40, 2000) * 0.25, "y": RNG.integers(1, 9, 2000) * 10_000})
    known = Schema([Numeric("x", step=0.25, spikes=(100,)), Numeric("y", integer=True, step=10_000)])
    synth = MomentSynthesizer(20.0, schema=known, constraints="x <= y").fit(frame)
    assert synth.schema_["x"].bounds == (0, 100)
    # "x <= y" is satisfied by construction: the bounds of y are those of x and of the difference, in steps of y
    assert synth.schema_["y"].bounds[1] in range(80_000, 150_000, 10_000)
    rows = synth.sample(500)
    assert (rows["x"] % 0.25 == 0).all()
    assert (rows["y"] % 10_000 == 0).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "Int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("step", [None, 1, 7, 100, 127])
def test_no_learned_bounds_contradict_step_spikes_and_dtype(dtype, step):
    integer = "int" in dtype.lower()
    column = Numeric("x", integer=integer, dtype=dtype, step=step)
    spiked = Numeric("x", integer=integer, dtype=dtype, step=step, spikes=(0, step or 1))
    zero = N_OCTAVE_CELLS // 2
    cells = [0, 1, zero - 5, zero, zero + 1, zero + 33, zero + 40, zero + 50, N_OCTAVE_CELLS - 1]
    for first in cells:
        for last in [None, *(cell for cell in cells if cell >= first)]:
            for kind in (column, spiked):
                bounded = learning._with_bounds(kind, None if last is None else (first, last))
                assert bounded.complete
                assert len(fine_grid(bounded)) >= 3


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"step": 0}, "step must be a number"),
        ({"step": "1"}, "step must be a number"),
        ({"step": True}, "step must be a number"),
        ({"step": 0.5, "integer": True}, "not an integer"),
        ({"step": 0.5, "decimals": 1}, "give one of them"),
        ({"step": 300, "integer": True, "dtype": "uint8"}, "does not fit dtype"),
        ({"step": 10, "bounds": (1, 19)}, "two multiples"),
        ({"spikes": ()}, "1 to 32 numbers"),
        ({"spikes": range(33)}, "1 to 32 numbers"),
        ({"spikes": ("0",)}, "finite numbers"),
        ({"spikes": (2,), "bounds": (0, 1)}, "not within the bounds"),
        ({"spikes": (0.5,), "integer": True}, "no value of such a column"),
        ({"spikes": (0.3,), "step": 0.25}, "no value of such a column"),
        ({"spikes": (300,), "integer": True, "dtype": "uint8"}, "does not fit dtype"),
    ],
)
def test_facts_that_contradict_each_other_are_refused(facts, message):
    with pytest.raises(SchemaError, match=message):
        Numeric("x", **facts)


def test_step_and_spikes_survive_json():
    schema = Schema([Numeric("x", (0, 10), step=0.5, spikes=(9.5, 0))])
    assert Schema.from_json(schema.to_json()) == schema
    assert schema["x"].spikes == (0.0, 9.5)
