"""What a plan says about counts in rows is what fits under real noise then do."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from skdpgen import DPMERFSynthesizer, MomentSynthesizer, P3GMSynthesizer, Schema, load
from skdpgen.accounting import BudgetPlan
from skdpgen.data.frame_codec import FrameCodec
from skdpgen.data.table_plan import plan_tables
from skdpgen.generators.product_mixture import consistent_marginals
from skdpgen.generators.target_step import ratio_of_classes
from skdpgen.mechanisms import exact_value, one_hot_moments, unpack_one_hot_moments
from skdpgen.synthesizers._count_errors import count_errors, smallest_kept
from skdpgen.synthesizers._frame_model import FrameModel
from skdpgen.synthesizers._summary import summarize
from skdpgen.tabular import Categorical, Numeric, TableEncoder, bins_from_histogram
from skdpgen.utils.watching import watch_releases

# Probability that a comparison with drawn noise fails by chance.
BY_CHANCE = 1e-7


class _TablesReleasedError(Exception):
    pass


def _rows_of(plan, kind):
    return next(row for row in plan.counts if row.kind == kind)


def _table(n_rows):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.choice(list("pqrst"), n_rows, p=[0.5, 0.2, 0.15, 0.1, 0.05]),
            "b": rng.choice(list("uvwx"), n_rows),
            "c": rng.choice(["yes", "no"], n_rows, p=[0.3, 0.7]),
            "x": rng.random(n_rows),
            "y": rng.choice(["one", "two"], n_rows, p=[0.7, 0.3]),
        }
    )
    declared = [Categorical(name, categories=tuple(sorted(set(frame[name])))) for name in "abcy"]
    return frame, Schema([*declared[:3], Numeric("x", (0, 1)), declared[3]])


@pytest.mark.system_noise
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_a_category_of_the_size_that_a_plan_states_is_kept_with_its_probability(neighboring):
    """One level of each column has exactly the stated number of rows."""

    def make():
        return DPMERFSynthesizer(8.0, neighboring=neighboring, steps=1, n_frequencies=2)

    n_columns, n_fits = 40, 7
    empty = pd.DataFrame({f"c{i}": ["common"] * 3 for i in range(n_columns)})
    stated = _rows_of(BudgetPlan.of(make().plan(empty), 3), "learned category").smallest_kept
    size, kept = round(stated), 0
    rng, levels = np.random.default_rng(0), np.array(["common"] * (3 * size) + ["rare"] * size)
    frame = pd.DataFrame({f"c{i}": rng.permutation(levels) for i in range(n_columns)})
    for _ in range(n_fits):
        schema = make().fit(frame).schema_
        kept += sum("rare" in column.categories for column in schema.columns)
    low, high = stats.binom.ppf([BY_CHANCE, 1 - BY_CHANCE], n_columns * n_fits, 0.95)
    assert low <= kept <= high
    smaller = stats.binom.ppf(1 - BY_CHANCE, n_columns * n_fits, 0.7)  # what the test would see at a wrong size
    assert smaller < low


@pytest.mark.system_noise
@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_counts_of_fits_have_the_errors_that_a_plan_states(neighboring):
    n_rows, n_fits = 3000, 40
    frame, schema = _table(n_rows)
    synth = MomentSynthesizer(4.0, target="y", schema=schema, neighboring=neighboring)
    plan = BudgetPlan.of(synth.plan(frame), n_rows)
    exact, errors = None, {"one_way": [], "two_way": [], "class": []}
    for _ in range(n_fits):
        codec, released, sd, plan_ = _released_tables(synth, frame, schema)
        contrasts = plan_.contrasts
        if exact is None:
            codes, classes = codec.codes(frame)
            counted = one_hot_moments(codes, plan_, classes)
            exact = contrasts.tables(unpack_one_hot_moments(exact_value(counted), plan_))
        counts = consistent_marginals(released, sd, contrasts)[0]
        tables = contrasts.tables(released)
        errors["one_way"].append((tables.one_way - exact.one_way).sum(axis=0)[:5])
        errors["two_way"].append((tables.pairs - exact.pairs).sum(axis=0)[:5, 5:9].ravel())
        errors["class"].append(counts - exact.count)
    noise = synth.plan(frame).noise_multipliers
    ratio = ratio_of_classes(noise, n_rows, neighboring)
    assert ratio > 1
    of_table = count_errors(codec, noise, neighboring, np.ones(4), seen=0.1, ratio=ratio)
    for found, stated in (
        (errors["one_way"], of_table.one_way[0]),
        (errors["class"], of_table.of_class),
    ):
        _assert_standard_deviation(found, stated)
    pair = of_table.two_way[0]
    assert np.std(errors["two_way"]) == pytest.approx(pair, rel=0.35)  # the median over the pairs of the column
    # the plan says the largest of the columns of a kind
    kind = _rows_of(plan, "declared category")
    assert kind.smallest_kept == 0
    assert kind.one_way_error == pytest.approx(of_table.one_way[:3].max(), rel=0.05)
    assert kind.two_way_error == pytest.approx(of_table.two_way[:3].max(), rel=0.05)
    assert _rows_of(plan, "declared target").one_way_error == pytest.approx(of_table.of_class, rel=0.05)
    assert _rows_of(plan, "number").one_way_error > 0


def _released_tables(synth, frame, schema):
    """The tables that one fit releases; the fit ends there, and no model is made."""
    seen, n_tables = [], 2  # bins, then the tables

    def observe(released, sd, kind):
        seen.append((released, sd))
        if len(seen) == n_tables:
            raise _TablesReleasedError

    with pytest.raises(_TablesReleasedError), watch_releases(observe):
        synth.fit(frame)
    (cells, cells_sd), (tables, sd) = seen
    binnings = bins_from_histogram(cells, schema, float(np.max(cells_sd)), 16)
    codec = FrameCodec(TableEncoder(schema, binnings=binnings).fit(), "y")
    ratio = ratio_of_classes(synth.plan(frame).noise_multipliers, len(frame), synth.neighboring)
    plan = plan_tables(codec, 0.1, np.ones(len(codec.n_levels)), ratio=ratio)
    scale = np.ravel(sd)[0] * np.ravel(plan.weights)[0]
    return codec, unpack_one_hot_moments(tables, plan), plan.noise_sd(scale), plan


def _assert_standard_deviation(errors, stated):
    errors = np.concatenate([np.ravel(part) for part in errors])
    low, high = stats.chi2.ppf([BY_CHANCE, 1 - BY_CHANCE], len(errors))
    assert low < np.sum((errors / stated) ** 2) < high


def test_the_closed_forms_are_those_of_the_estimates_that_a_model_is_made_of():
    schema = _table(300)[1]
    codec = FrameCodec(TableEncoder(schema, n_bins=7).fit(), "y")
    importance = np.array([1.0, 3.0, 0.2, 1.0])
    noise = {"moments": 1.7}
    for pairs in (True, False):
        plan = plan_tables(codec, 0.0 if pairs else np.inf, importance)
        query = one_hot_moments(np.zeros((0, 4), dtype=int), plan, np.zeros(0, dtype=int))
        sd = plan.noise_sd(1.7 * query.sensitivity("replace_one"))
        stated = count_errors(codec, noise, "replace_one", importance, seen=0.0 if pairs else np.inf)
        variances = plan.contrasts.table_variances(sd)
        of_levels = np.split(variances.one_way[0], np.cumsum(codec.n_levels)[:-1])
        np.testing.assert_allclose(stated.one_way, [(2 * part.mean()) ** 0.5 for part in of_levels], rtol=1e-12)
        assert stated.of_class == pytest.approx(sd.count[0])
        assert np.isnan(stated.two_way).all() != pairs


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("make", [MomentSynthesizer, P3GMSynthesizer])
def test_a_plan_and_the_summary_of_its_fit_agree(make):
    frame, schema = _table(3000)
    synth = make(4.0, target="y", schema=schema)
    plan = BudgetPlan.of(synth.plan(frame), 3000)
    columns = {column.name: column for column in synth.fit(frame).summary_.columns}
    largest = max(columns[name].count_error for name in "abc")
    assert _rows_of(plan, "declared category").one_way_error == pytest.approx(largest, rel=0.02)
    assert _rows_of(plan, "number").one_way_error == pytest.approx(columns["x"].count_error, rel=0.1)
    assert _rows_of(plan, "declared target").one_way_error == pytest.approx(columns["y"].count_error, rel=0.02)


def test_without_noise_every_category_is_kept_and_without_tables_no_error_is_stated():
    frame, _ = _table(300)
    free = BudgetPlan.of(MomentSynthesizer(np.inf, target="y").plan(frame), 300)
    assert {row.smallest_kept for row in free.counts} == {0.0, None}
    assert "NOT PRIVATE" in str(free)
    net = BudgetPlan.of(P3GMSynthesizer(prior="mixture").plan(frame), 300)
    assert _rows_of(net, "learned category").smallest_kept > 0
    assert all(row.one_way_error is None for row in net.counts)
    assert "no error: the model is not made of such counts" in str(net)
    assert not BudgetPlan.of(MomentSynthesizer(bounds=(0, 1)).plan(frame[["x"]].to_numpy()), 300).counts


def test_a_plan_says_what_it_assumes_and_no_epsilon_that_is_not_reached():
    frame, schema = _table(300)
    open_ = BudgetPlan.of(MomentSynthesizer(target="y").plan(frame), 12_345)
    assert open_.assumptions[0] == "12345 rows"
    assert any("10 categories" in text for text in open_.assumptions)
    text = str(open_)
    assert "assumed: 12345 rows" in text
    assert "no epsilon at delta 1e-06 or less: the threshold of learned categories spends it" in text
    assert "inf" not in text
    declared = BudgetPlan.of(MomentSynthesizer(target="y", schema=schema).plan(frame), 100)
    assert declared.assumptions[0] == "100 rows"
    assert [text.partition(" released")[0] for text in declared.assumptions[1:]] == ["triples, target"]
    assert "at 1e-08" in str(declared)
    assert "no epsilon" not in str(declared)
    plain = json.loads(json.dumps(open_.to_dict()))
    assert plain["counts"][0]["kind"] == "learned category"
    assert plain["counts"][0]["smallest_kept"] > 0
    assert dict(map(tuple, plain["curve"]))[1e-08] == "inf"


def test_the_smallest_category_grows_with_the_noise_and_with_the_number_of_columns():
    base = smallest_kept(5, 3, 10.0, 1e-6, "add_or_remove_one")
    assert smallest_kept(20, 3, 10.0, 1e-6, "add_or_remove_one") == pytest.approx(2 * base, rel=0.02)
    assert smallest_kept(5, 3, 20.0, 1e-6, "add_or_remove_one") == pytest.approx(2 * base, rel=0.02)
    assert smallest_kept(5, 3, 10.0, 1e-6, "replace_one") == pytest.approx(2**0.5 * base, rel=0.02)
    assert smallest_kept(5, 0, 10.0, 1e-6, "replace_one") == 0


def test_a_plan_with_a_table_can_be_pickled_and_equals_one_without():
    frame, _ = _table(50)
    plan = MomentSynthesizer(target="y").plan(frame)
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert BudgetPlan.of(again, 100) == BudgetPlan.of(plan, 100)


@pytest.mark.parametrize("n_rows", [50, 1000, 10**6])
def test_every_table_has_a_budget_plan(n_rows):
    """Few rows have scores or one-way tables; several targets, one column and dates have their own lines."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "k": rng.choice(["p", "q"], 60),
            "l": rng.choice(["p", "q"], 60),
            "d": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 60), unit="D"),
            "t": rng.random(60) < 0.5,
        }
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for columns, target in ((["k"], None), (["d"], None), (["k", "l", "t"], ["k", "l"]), (list("kldt"), "k")):
            plan = BudgetPlan.of(MomentSynthesizer(target=target).plan(frame[columns]), n_rows)
            assert sum(row.columns for row in plan.counts) == len(columns)
            str(plan)


@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize(
    ("epsilon", "n_rows", "options"), [(20.0, 3000, {}), (20.0, 3000, {"n_components": 1}), (1.0, 300, {})]
)
def test_a_summary_states_the_errors_of_the_tables_that_the_fit_planned(epsilon, n_rows, options, tmp_path):
    """Also where another row count, or the number of support points, suggests another plan."""
    frame, schema = _table(n_rows)
    synth = MomentSynthesizer(epsilon, target="y", schema=schema, random_state=0, **options).fit(frame)
    model, noise = synth.model_, synth.plan(frame).noise_multipliers
    assert (model.seen is not None) == (epsilon == 20.0)
    seen = np.inf if model.seen is None else model.seen
    if model.respent:
        noise = {**noise, "moments": sum(noise[label] ** -2.0 for label in ("moments", *model.respent)) ** -0.5}
    stated = [column.count_error for column in synth.summary_.columns]
    assert model.ratio == (3.0 if epsilon == 20.0 else 1.0)
    errors = count_errors(model.codec, noise, "add_or_remove_one", np.ones(4), seen=seen, ratio=model.ratio)
    np.testing.assert_allclose(stated, [*errors.one_way, errors.of_class])
    synth.save(tmp_path / "model.safetensors")
    loaded = load(tmp_path / "model.safetensors")
    assert loaded.model_.seen == model.seen
    assert loaded.model_.ratio == model.ratio
    assert loaded.summary_ == synth.summary_
    for wrong in (0.5, 1e9, float("nan"), True, "3", None):
        with pytest.raises(ValueError, match="weight of the tables"):
            FrameModel.from_state({**model.to_state(), "ratio": wrong})
    for other in (1.0, 1e9):
        model.row_count = other
        assert [column.count_error for column in summarize(model, synth.card_).columns] == stated


def test_a_file_that_does_not_say_which_tables_were_planned_has_an_estimate():
    frame, schema = _table(3000)
    synth = MomentSynthesizer(20.0, target="y", schema=schema, random_state=0).fit(frame)
    model, state = synth.model_, synth.model_.to_state()
    del state["seen"]
    old = FrameModel._restore(model.codec, state)
    assert np.isnan(old.seen)
    assert "seen" not in old.to_state()
    assert summarize(old, synth.card_) == synth.summary_  # far from the limits
    for wrong in (0, -0.1, True, "0.1", np.inf):
        with pytest.raises(ValueError, match="no correlation"):
            FrameModel._restore(model.codec, {**state, "seen": wrong})


def test_a_summary_states_the_noise_of_the_moments_that_were_released_again(tmp_path):
    """Where there are no rare categories and no numbers far from zero, their shares buy the moments once more."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=2000), "a": rng.choice(["u", "v"], 2000), "b": rng.choice([1, 2], 2000)})
    synth = MomentSynthesizer(2.0, random_state=0)
    planned = synth.plan(frame)
    synth.fit(frame)
    assert {"numbers", "categories", "ranges"} <= set(synth.model_.respent)
    noise = planned.noise_multipliers
    whole = sum(noise[label] ** -2.0 for label in ("moments", *synth.model_.respent)) ** -0.5
    stated = synth.summary_.to_frame()["count_error"]
    respent, synth.model_.respent = synth.model_.respent, ()
    once = summarize(synth.model_, synth.card_).to_frame()["count_error"]
    synth.model_.respent = respent
    np.testing.assert_allclose(stated / once, whole / noise["moments"], rtol=1e-9)
    synth.save(tmp_path / "model.safetensors")
    assert load(tmp_path / "model.safetensors").summary_ == synth.summary_
    (text,) = (text for text in BudgetPlan.of(planned, 2000).assumptions if "at most" in text)
    assert text.startswith("numbers, categories, ranges, triples released")
