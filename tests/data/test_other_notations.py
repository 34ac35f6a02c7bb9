"""Columns of text that are numbers in another notation are refused before the charge, and codes are not."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from skdpgen import DPSGD, DPVAESynthesizer, MomentSynthesizer, PrivacyAccountant, PrivateSearchCV, Schema
from skdpgen.data.frames import FrameRows
from skdpgen.data.notation import USUAL_NOTATION, Notation
from skdpgen.data.other_notations import readings_of
from skdpgen.exceptions import InvalidInputError
from skdpgen.tabular import Categorical

pytestmark = pytest.mark.usefixtures("short_fits")

RNG = np.random.default_rng(0)
COMMA = [f"{value:.1f}".replace(".", ",") for value in RNG.normal(70, 9, 400)]
FRAME = pd.DataFrame({"weight": COMMA, "age": RNG.integers(18, 90, 400), "ward": RNG.choice(["A1", "B,2"], 400)})
ANY = {"target": None, "schema": None, "classes": None, "target_type": None, "on_invalid": "clip"}


def _options(texts, notation=USUAL_NOTATION, **how):
    readings, marked = readings_of(pd.Series(texts, dtype="string"), notation, **how)
    return [one.options() for one in readings[:2]], marked


NUMBERS = [str(number) for number in range(10, 25)]


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        (["3,7", "12,25", "4"], ["--decimal ,"]),
        (["-0,5", "1,5e3"], ["--decimal ,"]),
        (["0,125", "1,250"], ["--decimal ,"]),  # 0,125 has no mark of thousands
        (["1,234", "12,000", "7"], ["--thousands ,", "--decimal ,"]),
        (["1.234,50", "7,00"], ["--decimal , --thousands ."]),
        (["1'234.5", "7"], ['--thousands "\'"']),
        (["1 234", "7"], ["--thousands space"]),
        (["$1,200.50", "$3"], ["--thousands , --sign '$'"]),
        (["12%", "7 %"], ["--sign %"]),
        (["<5", *NUMBERS], ["--sign '<'"]),
        (["<=0.5", ">90", *NUMBERS], ["--sign '<=' --sign '>'"]),
        (["<0,5", "7,5", *NUMBERS], ["--decimal , --sign '<'"]),
        ([f"{number} mg/L" for number in NUMBERS], ["--sign mg/L"]),
        ([f"{number}kg" for number in NUMBERS], ["--sign kg"]),
        (["<5 mg/L", *(f"{number} mg/L" for number in NUMBERS)], ["--sign '<' --sign mg/L"]),
        (["31.12.2024", "1.2.2024"], ["--dates %d.%m.%Y"]),
        (["12/31/2024 10:30", "01/02/2024 07:00"], ["--dates '%m/%d/%Y %H:%M'"]),
        (["12/31/2024 12:00:00 AM", "01/02/2024 1:00:00 PM"], ["--dates '%m/%d/%Y %I:%M:%S %p'"]),
        (["31.12.2024 07:30pm", "1.2.2024 07:30am"], ["--dates '%d.%m.%Y %I:%M%p'"]),
    ],
)
def test_the_options_that_read_all_values_are_named(texts, options):
    assert _options(texts) == (options, False)
    assert _options([*texts, "k.A."]) == (options, True)


def test_more_marks_of_missing_values_are_possible_among_many_numbers():
    marks = ["NA", "n/a", "unknown", "-", "?"]
    assert _options(COMMA[:20] + marks) == ([], False)
    assert _options(COMMA + marks) == (["--decimal ,"], True)
    assert _options(COMMA + marks, placeholders=0) == ([], False)


@pytest.mark.parametrize(
    "texts",
    [
        ["01,02", "03,04"],  # codes
        ["007", "012"],
        ["1,3,4", "2"],  # several answers
        ["A01,1", "B02,2"],
        ["1+", "2+", "3-"],  # grades
        ["<5", ">10"],
        ["<30", ">30", "5"],  # categories
        [*(f"<{number}" for number in range(20)), *NUMBERS],  # in half of the rows another meaning
        ["3 months", "6 months", "12 months"],  # so few numbers may be categories
        [f"{number}A" for number in NUMBERS],
        [f"{number}g" for number in NUMBERS[1:]] + ["5 mg"],
        [f"SKU-{number}" for number in NUMBERS],
        ["v1.2", "1.2.3"],
        ["1.2.3", "10.20.30"],  # versions
        ["120/80", "95/60"],
        ["10-20", "20-30"],
        ["3.7", "4"],  # read as numbers without an option
        ["3,7", "3.7"],
        ["3,7", "x", "y", "z", "w"],
        ["yes", "no"],
    ],
)
def test_codes_and_texts_have_no_reading(texts):
    assert _options(texts) == ([], False)


def test_the_notation_of_the_file_is_the_one_that_is_not_named():
    assert _options(["3,7", "4"], Notation(",")) == ([], False)
    assert _options(["3.75", "4"], Notation(",")) == (["--decimal ."], False)
    assert _options(["31.12.2024"], dates=False) == ([], False)


def test_a_fit_refuses_them_and_charges_nothing():
    budget = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(InvalidInputError, match=r"'weight': pandas\.read_csv.* decimal=','") as said:
        MomentSynthesizer(1.0, accountant=budget).fit(FRAME)
    assert "Nothing was charged" in str(said.value)
    assert "astype({'weight': 'category'})" in str(said.value)
    assert not any(text in str(said.value) for text in COMMA)
    with pytest.raises(InvalidInputError, match="'weight'"):
        MomentSynthesizer(1.0).plan(FRAME)
    with pytest.raises(InvalidInputError, match="'weight'"):  # labels too: they would be classes
        MomentSynthesizer(1.0, accountant=budget).fit(FRAME[["age"]], FRAME["weight"])
    whole = FRAME.assign(weight="7")
    with pytest.raises(InvalidInputError, match="'weight'"):  # in chunks of which the first has whole numbers alone
        MomentSynthesizer(1.0, accountant=budget).fit(lambda: iter([whole[:200], FRAME]))
    assert budget.epsilon_spent() == 0


@pytest.mark.parametrize(
    ("form", "way"),
    [
        ("%Y-%m-%d", "format='%Y-%m-%d'"),
        ("%Y-%m-%d %H:%M:%S", "format='%Y-%m-%d %H:%M:%S'"),
        ("%d/%m/%Y", "format='%d/%m/%Y'"),
        ("%d/%m/%Y %I:%M:%S %p", "format='%d/%m/%Y %I:%M:%S %p'"),
        ("%Y-%m-%d %I:%M %p", "format='%Y-%m-%d %I:%M %p'"),
        ("%d%b%Y", "format='%d%b%Y'"),
        ("%d%b%Y %I:%M:%S %p", "format='%d%b%Y %I:%M:%S %p'"),
        ("%b %d, %Y", "format='%b %d, %Y'"),
        ("%b %d %Y %I:%M%p", "format='%b %d %Y %I:%M%p'"),
    ],
)
@pytest.mark.parametrize("capitals", [False, True])
def test_a_fit_refuses_dates_that_are_text(form, way, capitals):
    days = pd.Series(pd.date_range("2020-01-01", periods=400, freq="3D")).dt.strftime(form)
    frame = FRAME[["age"]].assign(seen=days.str.upper() if capitals else days)
    budget = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(InvalidInputError, match=re.escape(f"'seen': pandas.to_datetime(..., {way})")) as said:
        MomentSynthesizer(1.0, accountant=budget).fit(frame)
    assert "astype({'seen': 'category'})" in str(said.value)
    assert budget.epsilon_spent() == 0
    frame["seen"] = pd.to_datetime(frame["seen"], format=form)
    assert "date" in str(MomentSynthesizer(8.0).fit(frame).sample(5).dtypes["seen"])


MOMENTS = pd.date_range("2021-01-01", periods=400, freq="29h")
SUMMER = [f"{at:%Y-%m-%dT%H:%M:%S}+0{1 + (3 < at.month < 11)}:00" for at in MOMENTS]


@pytest.mark.parametrize(
    ("texts", "way"),
    [
        (SUMMER, "format='ISO8601', utc=True)"),
        ([text[:19] + "Z" for text in SUMMER], "format='ISO8601', utc=True)"),
        ([text.replace("T", " ")[:16] + "+00:00" for text in SUMMER], "format='ISO8601', utc=True)"),
        ([text[:19] + ".5" for text in SUMMER], "format='ISO8601')"),
        ([text[11:16] for text in SUMMER], "format='%H:%M').dt.time"),
        ([text[11:19] for text in SUMMER], "format='%H:%M:%S').dt.time"),
    ],
)
def test_a_fit_refuses_moments_with_a_zone_and_times_of_the_day_that_are_text(texts, way):
    frame = FRAME[["age"]].assign(at=texts)
    budget = PrivacyAccountant(1.0, 1e-5)
    with pytest.raises(InvalidInputError, match=re.escape(f"'at': pandas.to_datetime(..., {way}")) as said:
        MomentSynthesizer(1.0, accountant=budget).fit(frame)
    assert "Nothing was charged" in str(said.value)
    assert not any(text in str(said.value) for text in texts)
    assert budget.epsilon_spent() == 0
    read = eval(f"pandas.to_datetime(frame['at'], {way}", {"pandas": pd, "frame": frame})
    assert MomentSynthesizer(8.0).fit(frame.assign(at=read)).sample(5)["at"].notna().all()


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/Santiago", "Asia/Kolkata"])
def test_days_of_a_zone_that_are_text_are_read_as_days_by_the_advice(zone):
    days = pd.Series(pd.date_range("2021-01-01", periods=500)).dt.tz_localize(zone, nonexistent="shift_forward")
    frame = pd.DataFrame({"at": days.map(lambda at: at.isoformat())})
    with pytest.raises(InvalidInputError, match=re.escape("tz_convert('Europe/Berlin')")):
        MomentSynthesizer(8.0).fit(frame)
    read = pd.to_datetime(frame["at"], format="ISO8601", utc=True)
    local = MomentSynthesizer(8.0).fit(frame.assign(at=read.dt.tz_convert(zone)))
    assert local.schema_["at"].resolution == "D"
    drawn = local.sample(200)["at"]
    # a day that begins at 1 where the clocks change at midnight
    assert (drawn.dt.hour == 0).mean() > 0.98
    assert str(drawn.dt.tz) == zone
    assert MomentSynthesizer(8.0).fit(frame.assign(at=read)).schema_["at"].resolution != "D"  # in UTC they are hours


@pytest.mark.parametrize("texts", [["May 2020", "June 2020"], ["Room 12 2020"], ["Apt 5, 1020"], ["Mai 12, 2020"]])
def test_words_beside_numbers_are_no_dates(texts):
    assert _options(texts, iso=True) == ([], False)


@pytest.mark.parametrize("texts", [["2:1", "10:3"], ["25:10", "13:45"], ["13:45", "2020-01-01"]])
def test_scores_and_durations_are_no_times_of_the_day(texts):
    assert _options(texts, iso=True) == ([], False)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize(
    ("frame", "options"),
    [
        (FRAME.assign(weight=RNG.choice(["2020-01-01", "2021-01-01"], 400)).astype({"weight": "category"}), {}),
        (FRAME.assign(weight=RNG.choice(["2020-01-01", "soon"], 400)), {}),
        (FRAME.astype({"weight": "category"}), {}),
        (FRAME, {"schema": Schema.from_kinds(FRAME)}),
        (FRAME, {"schema": Schema([Categorical("weight", missing=True)])}),
        (FRAME, {"target": "weight", "target_type": "categorical"}),
        (FRAME.assign(weight=["n.a.", *COMMA[1:]]), {}),
        (FRAME.assign(weight=RNG.choice(["01,02", "03,04"], 400)), {}),
    ],
    ids=["dates", "date or text", "dtype", "schema", "column", "target_type", "text", "codes"],
)
def test_columns_that_are_categories_are_fitted(frame, options):
    assert len(MomentSynthesizer(8.0, random_state=0, **options).fit(frame).sample(5)) == 5


def test_a_run_of_a_search_does_not_refuse_rows_after_its_charge():
    FrameRows(FRAME, None, **ANY)  # as a run reads them: another row may have been held out
    budget = PrivacyAccountant(1.0, 1e-5)
    model = DPVAESynthesizer(training=DPSGD(steps=2, warm_start_steps=2))
    search = PrivateSearchCV(
        model, {"training__steps": [1, 2]}, epsilon=1.0, accountant=budget, score_bounds=(-50, 0), random_state=0
    )
    with pytest.raises(InvalidInputError, match="'weight'"):  # but the search refuses them before it
        search.fit(FRAME)
    assert budget.epsilon_spent() == 0
