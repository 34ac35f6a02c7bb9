"""Rare categories are looked for once more in the columns that hide many rows; else the moments get that share.

Where these columns still lack many rows, they are counted a third time, at the charge of the second count of numbers.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import pandas as pd
import pytest
from _short_fits import short_postprocessing
from _watched import watched_fit

from skdpgen import DPMERFSynthesizer, MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, PrivacyUnit, load
from skdpgen.data.frames import FrameRows
from skdpgen.data.sources import MemorySource
from skdpgen.exceptions import UtilityWarning
from skdpgen.tabular import Categorical, Schema, schema_from_histogram, schema_histogram
from skdpgen.tabular import _learning as learning
from skdpgen.tabular._learning import joined_categories, schema_and_candidates
from skdpgen.testing import check_noninterference, seeded_noise
from skdpgen.utils.noise import make_noise_generator

pytestmark = pytest.mark.usefixtures("short_fits")

N = 6_000


def codes(n=N, n_codes=60, seed=0):
    """A column of many codes beside two of few, and one of numbers."""
    rng = np.random.default_rng(seed)
    code = np.minimum(rng.geometric(0.06, n) - 1, n_codes - 1)
    return pd.DataFrame(
        {
            "code": [f"c{k:02d}" for k in code],
            "sex": rng.choice(["f", "m"], n),
            "ward": rng.choice(list("abcd"), n),
            "age": rng.integers(0, 90, n),
        }
    )


_fit = functools.partial(watched_fit, epsilon=2.0)


def test_rare_categories_are_found_and_every_column_keeps_those_of_the_first_look():
    synth, watch = _fit(codes())
    assert (
        synth.accountant_.charges[0].label
        == "MomentSynthesizer: schema, numbers, categories, ranges, bins, moments, triples"
    )
    first, sex, ward, second = watch.names
    learned = synth.model_.codec.encoder.schema_["code"]
    assert set(learned.categories) == {*first, *second}
    assert len(learned.categories) >= 1.5 * len(first) > 0
    assert {*sex} == {"f", "m"}
    assert {*ward} == {*"abcd"}
    # one release each; the triples or the moments again, and the moments again for the numbers and the ranges
    assert len(watch.queries) == 7


@pytest.mark.parametrize("model", [MomentSynthesizer, P3GMSynthesizer])
def test_where_no_rows_are_hidden_the_moments_get_the_share(model):
    frame = codes().drop(columns="code")
    synth, watch = _fit(frame, model=model)
    noise = synth.plan(frame).noise_multipliers
    moments = [q for q in watch.queries if q.noise_multiplier in (noise["moments"], noise["categories"])]
    assert len(watch.names) == 2
    assert len(moments) == 2
    assert {q.noise_multiplier for q in moments} == {noise["moments"], noise["categories"]}
    np.testing.assert_array_equal(moments[0].bounded_sum.value, moments[1].bounded_sum.value)
    # as if one release had both shares
    shares = {phase.label: phase.share for phase in synth.plan(frame).phases}
    assert shares["categories"] == pytest.approx(2 * shares["schema"])


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_second_look_is_of_the_hidden_columns_alone_and_scaled_to_them(neighboring):
    frame = codes().assign(place=codes(seed=1)["code"].str.replace("c", "p"))
    synth, watch = _fit(frame, neighboring=neighboring)
    noise = synth.plan(frame).noise_multipliers
    second = [q for q in watch.queries if q.noise_multiplier == noise["categories"]]
    assert len(second) == 1
    total = second[0].bounded_sum
    assert len(total.keys) == 2
    factor = 1 if neighboring == "add_or_remove_one" else 2
    assert total.sensitivity(neighboring) == pytest.approx((2 * factor) ** 0.5)
    # attained: a row has one cell of each column
    sizes = [len(names) + 1 for names in total.keys.values()]
    assert total.value.size == sum(sizes)
    assert [part.sum() for part in np.split(total.value, [sizes[0]])] == [N, N]


def rare(n=N, seed=0):
    """Codes of which a second look still hides more than a tenth of the rows."""
    rng = np.random.default_rng(seed)
    code = np.minimum(rng.geometric(0.02, n) - 1, 199)
    return pd.DataFrame({"code": [f"c{k:03d}" for k in code], "ward": rng.choice(list("abcd"), n), "age": code % 90})


@pytest.mark.parametrize("neighboring", ["add_or_remove_one", "replace_one"])
def test_columns_that_still_lack_many_rows_are_counted_at_the_charge_of_the_numbers(neighboring):
    frame = rare()
    synth, watch = _fit(frame, neighboring=neighboring)
    # every charge has one release
    charged = sorted(release.noise_multiplier for release in synth.accountant_.charges[0].releases)
    assert sorted(query.noise_multiplier for query in watch.queries) == pytest.approx(charged)
    assert "numbers" not in synth.model_.respent
    noise = synth.plan(frame).noise_multipliers
    second, third = (
        query
        for label in ("categories", "numbers")
        for query in watch.queries
        if query.noise_multiplier == noise[label]
    )
    np.testing.assert_array_equal(second.bounded_sum.value, third.bounded_sum.value)
    factor = 1 if neighboring == "add_or_remove_one" else 2
    assert third.bounded_sum.sensitivity(neighboring) == pytest.approx(factor**0.5)
    assert third.bounded_sum.value.sum() == N  # attained: a row has one cell
    *_, before, now = watch.names
    assert len(now) > len(before) > 0
    assert set(synth.model_.codec.encoder.schema_["code"].categories) == {*watch.names[0], *now}


def test_where_few_rows_are_lacking_the_moments_get_the_share_of_the_numbers():
    frame = codes()
    synth, watch = _fit(frame)
    assert "numbers" in synth.model_.respent
    noise = synth.plan(frame).noise_multipliers
    again = [q for q in watch.queries if q.noise_multiplier in (noise["moments"], noise["numbers"])]
    np.testing.assert_array_equal(again[0].bounded_sum.value, again[1].bounded_sum.value)


def test_rows_are_lacking_where_some_categories_were_learned():
    schema = Schema([Categorical("a", ("x", "y"), other="other"), Categorical("b", (), other="other")])
    assert learning.lacks_many(schema, {"a": 85.0, "b": 100.0}, 100.0)
    assert not learning.lacks_many(schema, {"a": 95.0, "b": 100.0}, 100.0)
    assert not learning.lacks_many(schema, {"a": 95.0, "b": 0.0}, 100.0)  # there is none to be found


def test_nothing_but_the_releases_decides_whether_there_is_a_third_count():
    many, few = rare(900), rare(300, seed=5)
    few["code"] = few["code"].str.replace("c", "d")
    joining = pd.DataFrame({"code": ["new", "c001"], "ward": ["a", "z"], "age": [5, 1000]})
    synth, watch = _fit(many, seed=0, epsilon=10.0)
    assert len(watch.names) == 4
    assert "numbers" not in synth.model_.respent
    with short_postprocessing():
        check_noninterference(MomentSynthesizer(10.0), (many,), (few,), rows=(joining,))


def test_the_thresholds_share_the_delta():
    spent, shipped = [], learning.above_threshold

    def observed(noisy, counts, sd, delta, n_columns=1, unit=None):
        spent.append((delta, n_columns))
        return shipped(noisy, counts, sd, delta, n_columns, unit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learning, "above_threshold", observed)
        synth, _ = _fit(rare())
    extra = synth.accountant_.charges[0].extra_delta
    first, (second, third) = spent[:2], spent[2:]
    assert {n for _, n in first} == {2}
    assert second[1] == third[1] == 1
    assert first[0][0] + second[0] + third[0] <= extra * (1 + 1e-12)
    assert {delta for delta, _ in first} == {extra / 2}
    assert second == third


def test_it_learns_from_units_too():
    frame = codes().assign(person=np.arange(N) // 2)
    synth, watch = _fit(frame, unit=PrivacyUnit("person", 2), epsilon=4.0)
    assert "categories" in synth.accountant_.charges[0].label
    assert len(watch.names) == 4
    assert len(watch.names[-1]) > len(watch.names[0])


def test_nothing_but_the_releases_decides_where_to_look():
    """Columns follow from noisy counts of names that passed: other rows, with other names, go the same way."""
    many, few = codes(300, 25), codes(80, 12, seed=5)
    few["code"] = few["code"].str.replace("c", "d")
    joining = pd.DataFrame({"code": ["new", "c01"], "sex": ["x", "f"], "ward": ["a", "z"], "age": [5, 1000]})
    _, watch = _fit(many, seed=0, epsilon=40.0)
    assert len(watch.names) == 4  # the second look takes place
    with short_postprocessing():
        check_noninterference(MomentSynthesizer(40.0), (many,), (few,), rows=(joining,))


def test_a_fit_with_a_network_has_one_look():
    from skdpgen import DPSGD

    plan = P3GMSynthesizer(3.0, decoder="net", training=DPSGD(steps=2)).plan(codes())
    assert "categories" not in plan.noise_multipliers


def test_no_warning_of_a_column_that_the_second_look_finds():
    """Where all rows are hidden at first, the warning waits for the second look."""
    frame = codes().assign(code=[f"c{k % 40:02d}" for k in range(N)])
    histogram = schema_histogram(frame, Schema.from_kinds(frame))
    counts = histogram.bounded_sum.value * histogram.bounded_sum.weights
    with pytest.warns(UserWarning, match="'code'"):
        schema_from_histogram(counts, histogram, 40.0, 1e-6)
    schema, hidden, _ = schema_and_candidates(counts, histogram, 40.0, 1e-6)
    assert hidden == ("code",)
    assert schema["code"].categories == ()
    again = schema.replace(histogram.schema["code"])
    second = schema_histogram(frame, again)
    found = schema_from_histogram(second.bounded_sum.value, second, 10.0, 1e-6)
    joined = joined_categories(schema, found, [histogram.schema["code"]])
    assert len(joined["code"].categories) == 40
    assert joined["code"].other == "other"
    assert len(joined_categories(schema, found, [histogram.schema["code"]], 7)["code"].categories) == 7


def test_numbers_and_flags_stay_what_they_are():
    """Categories of numbers keep the dtype that was declared; one truth value implies the other."""
    frame = pd.DataFrame({"k": np.arange(N) % 50, "flag": np.arange(N) % 2 == 0, "x": np.arange(N) % 7})
    schema = Schema.from_kinds(frame, categorical=["k", "x"])
    rows = FrameRows(
        MemorySource(frame), None, target=None, schema=schema, classes=None, target_type=None, on_invalid="raise"
    )
    noise = dict.fromkeys(("schema", "categories", "rows", "moments"), 30.0)
    with seeded_noise(1, quiet=True):
        found = rows.learn(noise, 1e-5, make_noise_generator("secure"), "add_or_remove_one", tables=True)
    codec, unspent = found.codec, found.unspent
    learned = codec.encoder.schema_["k"]
    assert learned.dtype == "int64"
    assert all(isinstance(value, int) for value in learned.categories)
    assert set(learned.categories) <= set(range(50))
    assert unspent in ((), ("categories",))


def _few(n_rows=150):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({f"c{k}": rng.choice(list("abcdefgh"), n_rows) for k in range(4)})
    return frame.assign(sex=rng.choice(["f", "m"], n_rows), age=rng.integers(20, 60, n_rows), when=pd.Timestamp("2020"))


@pytest.mark.parametrize("epsilon", [0.05, 0.6])
def test_what_too_few_rows_hide_is_said_once(epsilon):
    with pytest.warns(UtilityWarning) as said:
        synth = MomentSynthesizer(epsilon, delta=1e-6).fit(_few())
    texts = [str(w.message) for w in said]
    few = [text for text in texts if "too few rows" in text]
    assert len(few) == 1
    assert "modelled as independent" in few[0]
    named = few[0].partition(": declare")[0]
    for column in synth.schema_.columns:
        if isinstance(column, Categorical):
            assert (repr(column.name) in named) == (not column.categories)
    text_columns = few[0].partition("In ")[2].partition(" no value")[0]
    assert all(name in named for name in text_columns.split(", "))


@pytest.mark.parametrize("make", [MomentSynthesizer, P3GMSynthesizer])
@pytest.mark.filterwarnings("error::skdpgen.exceptions.UtilityWarning")
def test_a_hopeless_fit_is_pointed_out_before_the_charge_where_the_number_of_rows_is_public(make):
    for neighboring, spent in (("replace_one", 0.0), ("add_or_remove_one", 0.05)):
        accountant = PrivacyAccountant(1.0, 1e-6, neighboring=neighboring)
        synth = make(0.05, 1e-6, accountant=accountant)
        with pytest.raises(UtilityWarning, match="too few") as raised:
            synth.fit(_few())
        assert accountant.epsilon_spent() == pytest.approx(spent, rel=1e-2)
        before = "150 rows are too few for epsilon=0.05 and 7 columns" in str(raised.value)
        assert before == (neighboring == "replace_one")
    with pytest.warns(UtilityWarning) as said:
        make(0.05, 1e-6, neighboring="replace_one").fit(_few())
    texts = [str(w.message) for w in said]
    assert sum("independent" in text for text in texts) == 1
    assert sum("all learned categories" in text for text in texts) == 1
    assert not any("'c0'" in text for text in texts)
    assert any("bounds or categories of 'age'" in text for text in texts)  # what no public fact shows


def test_the_number_of_rows_is_not_used_where_it_is_private():
    with pytest.warns(UtilityWarning) as said:
        MomentSynthesizer(0.05, neighboring="replace_one", unit=PrivacyUnit("unit", 1)).fit(
            _few(), groups=np.arange(150)
        )
    assert not any("150" in str(w.message) for w in said)


@pytest.mark.filterwarnings("error")
def test_fits_of_enough_rows_are_not_pointed_out():
    MomentSynthesizer(3.0, neighboring="replace_one").fit(codes()[["sex", "ward", "age"]])


def test_columns_of_missing_values_alone_are_named_by_released_counts():
    frame = codes().assign(empty=np.nan, none=pd.Series([None] * N, dtype=object), age=7.0)
    with pytest.warns(UtilityWarning) as said:
        MomentSynthesizer(4.0).fit(frame)
    texts = [str(w.message) for w in said]
    (text,) = [text for text in texts if "missing values" in text]
    assert "of 'empty', 'none' the released counts show missing values and nothing else: drop the column" in text
    assert "'empty'" not in text.partition("of 'empty'")[0]
    with pytest.warns(UtilityWarning) as said:  # 150 missing values are within the noise
        MomentSynthesizer(0.05).fit(_few().assign(empty=np.nan))
    assert not [w for w in said if "missing values" in str(w.message)]


@pytest.mark.parametrize("make", [MomentSynthesizer, P3GMSynthesizer, DPMERFSynthesizer])
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_columns_of_which_the_counts_show_missing_values_alone_are_missing_in_every_synthetic_row(make, tmp_path):
    n = 2_000
    frame = codes(n)[["sex", "age"]].assign(empty=np.nan, never=pd.Series([pd.NaT] * n))
    options = {"steps": 50, "n_frequencies": 100} if make is DPMERFSynthesizer else {}
    synth = make(1.0, **options).fit(frame)
    assert synth.model_.codec.empty == ("empty", "never")
    synth.save(tmp_path / "model.safetensors")
    for model in (synth, load(tmp_path / "model.safetensors")):
        rows = model.sample(2_000)
        assert rows[["empty", "never"]].isna().all(axis=None)
        assert rows["age"].notna().mean() > 0.9
        assert {c.name for c in model.summary_.columns if "missing" in c.ends} == {"empty", "never"}
    if make is not DPMERFSynthesizer:
        codec, latent = synth.model_.codec, synth.model_.latent_model
        assert not latent.present[codec.undrawn_levels].any()
        assert (latent.decode(np.zeros((1, synth.model_.n_latent)))[:, codec.undrawn_levels] < 1e-6).all()


def test_the_warning_of_missing_values_alone_says_how_many_rows_with_values_the_noise_hides():
    rng, n = np.random.default_rng(0), 20_000
    few = pd.DataFrame({"sex": codes(n)["sex"], "few": np.where(np.arange(n) < 40, rng.normal(0, 1e3, n), np.nan)})
    with pytest.warns(
        UtilityWarning, match=r"Values of fewer than \d+ rows cannot be distinguished from noise here"
    ) as said:
        synth = MomentSynthesizer(1.0).fit(few)
    (text,) = [str(w.message) for w in said if "nothing else" in str(w.message)]
    hidden = float(re.search(r"than (\d+) rows", text)[1])
    assert 40 < hidden < 400
    assert synth.model_.codec.empty == ("few",)


def test_a_column_whose_numbers_only_the_counts_of_signs_show_is_no_column_of_missing_values():
    frame = pd.DataFrame({"few": [np.nan, np.nan]})
    histogram = schema_histogram(frame, Schema.from_kinds(frame))
    counts = 5_000.0 * histogram.bounded_sum.value  # 10,000 missing values
    (missing,) = np.flatnonzero(counts)
    with pytest.warns(UtilityWarning, match="missing values and nothing else"):
        learned = schema_from_histogram(counts, histogram, 10.0, 1e-6)
    assert learned["few"].bounds == learning.DEFAULT_BOUNDS["numeric"]
    counts[missing + 2] = 200  # after the cell of missing values, those of signs
    low, high = schema_from_histogram(counts, histogram, 10.0, 1e-6)["few"].bounds
    assert low == 0 < high
