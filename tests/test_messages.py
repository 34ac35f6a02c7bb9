"""Messages name the value that was typed and what is allowed: declared and released values, never private ones."""

from __future__ import annotations

import warnings
from dataclasses import replace

import _command_line
import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import MomentSynthesizer, P3GMSynthesizer, PrivacyAccountant, Schema
from skdpgen.__main__ import main
from skdpgen.exceptions import InvalidInputError, SchemaError, UtilityWarning
from skdpgen.tabular import Categorical, Datetime, Numeric

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
]
table = _command_line.table

SCHEMA = Schema(
    [
        Categorical("job", ("clerk", "smith")),
        Numeric("age", (18, 80), integer=True),
        Datetime("seen", ("2020-01-01", "2021-12-31"), resolution="D"),
        Categorical("ill", ("no", "yes")),
    ]
)


def rows(n=200):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "job": rng.choice(["clerk", "smith"], n),
            "age": rng.integers(18, 80, n),
            "seen": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D"),
            "ill": rng.choice(["no", "yes"], n),
        }
    )


@pytest.fixture(scope="module")
def model():
    return MomentSynthesizer(20.0, schema=SCHEMA, target="ill", noise="fast").fit(rows())


@pytest.fixture(scope="module")
def of_array():
    X = np.random.default_rng(0).random((200, 3))
    return P3GMSynthesizer(20.0, bounds=(0, 1), classes=(0, 1), noise="fast").fit(X, np.arange(200) % 2)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"given": {"job": "baker"}}, "no level 'baker'; it has 'clerk', 'smith'"),
        ({"given": {"work": "clerk"}}, "'work'; it has 'job', 'age', 'seen', 'ill'"),
        ({"given": {"age": 17}}, r"within its bounds \(18, 80\), lowest first; got 17"),
        ({"given": {"age": (50, 40)}}, r"lowest first; got \(50, 40\)"),
        ({"given": {"age": (1, 2, 3)}}, r"a value or a pair \(low, high\); got \(1, 2, 3\)"),
        ({"given": {"age": "old"}}, r"'old' is no number; give one, or a pair \(low, high\).*has bounds \(18, 80\)"),
        ({"given": {"age": [30, 40]}}, r"\[30, 40\] is no number; give one, or a pair \(low, high\)"),
        ({"given": {"age": None}}, r"does not allow: give a value within its bounds \(18, 80\)"),
        ({"given": {"seen": "31.12.2020"}}, "the date '31.12.2020' as in 2020-12-31"),
        ({"given": {"ill": "yes"}, "class_ratio": {"no": 1.0, "yes": 0.0}}, "given excludes: it leaves 'yes'"),
        ({"class_ratio": {"maybe": 1.0}}, "no class 'maybe' in the model; it has 'no', 'yes'"),
        ({"class_ratio": {"yes": 0.2}}, "leaves out 'no', and its shares sum to 0.2"),
        ({"class_ratio": [-1, 2]}, r"not negative and not all zero, of 'no', 'yes'; got \[-1, 2\]"),
        ({"class_ratio": "equal"}, "got 'equal'"),
        ({"y": ["maybe"]}, "'ill' has 'no', 'yes'"),
        ({"n_samples": 0}, "got 0"),
    ],
)
def test_conditions_of_tables(model, asked, said):
    with pytest.raises(ValueError, match=said):
        model.sample(**{"n_samples": None if "y" in asked else 5, **asked})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({3: 0.5}, "by their index, 0 to 2; got 3"),
        ({1: "a"}, "one number for each column of an array; got 'a'"),
        ({0: 0.5, 1: 1.5}, r"given\[1\]: 1.5 is outside the bounds of its column, 0 to 1"),
    ],
)
def test_conditions_of_arrays(of_array, given, said):
    with pytest.raises(ValueError, match=said):
        of_array.sample(5, given=given)


def test_constraints_that_rows_keep_breaking_are_named(model):
    with pytest.raises(ValueError, match=r"still violate a constraint \('age > 79 and age < 80'\)"):
        model.set_params(constraints=["age > 79 and age < 80"]).sample(3)
    with pytest.raises(ValueError, match=r"still violate a constraint \('age > 79 and age < 80'\)"):
        model.set_params(constraints=["age >= 0", "age > 79 and age < 80"]).sample(3)  # the other one holds
    model.set_params(constraints=None)


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_denominator_that_is_always_zero_is_named():
    columns = [Numeric("cases", (0, 3), integer=True), Numeric("people", (0, 3), integer=True), Numeric("rate", (0, 3))]
    schema = Schema(columns, ["rate == cases / people"])
    rows = pd.DataFrame({"cases": [1] * 400, "people": [0] * 400, "rate": [0.0] * 400})
    synth = MomentSynthesizer(1000.0, schema=schema).fit(rows)
    with pytest.raises(ValueError, match="'rate' has no value where its denominator is 0, which it is in all these"):
        synth.sample(50)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Numeric("age", 5), r"a pair \(lowest, highest\); got 5"),
        (lambda: Numeric("age", (0, "x")), "two finite numbers; got 'x'"),
        (lambda: Numeric("age", (0, 1), step="a"), "1e-30 to 1e30; got 'a'"),
        (lambda: Numeric("age", (0, 1), decimals=99), r"\[-30, 30\]; got 99"),
        (lambda: Categorical("job", ("a", "b", "a")), "'a' stands twice"),
        (lambda: Categorical("job", 3), "a sequence of values; got 3"),
        (lambda: Categorical("job", (1.0, float("inf"))), "finite; got inf"),
        (lambda: Datetime("seen", ("2020-01-01", None)), r"not missing; got \('2020-01-01', None\)"),
        (lambda: Datetime("seen", ("2020-01-01", "2019-01-01"), resolution="D"), "apart; got .*2020-01-01"),
    ],
)
def test_schemas(make, said):
    with pytest.raises(SchemaError, match=said):
        make()


def test_an_undeclared_value_is_not_named_and_the_declared_ones_are():
    frame = rows().replace({"job": {"clerk": "secret"}})
    with pytest.raises(SchemaError, match=r"declared categories \('clerk', 'smith'\)") as error:
        MomentSynthesizer(schema=SCHEMA).fit(frame)
    assert "secret" not in str(error.value)
    with pytest.raises(InvalidInputError, match="declared classes, 0, 2") as error:
        MomentSynthesizer(bounds=(0, 1), classes=[0, 2]).fit(np.zeros((4, 2)), [0, 2, 77, 2])
    assert "77" not in str(error.value)


def test_a_target_and_a_unit_that_are_no_column_are_named_with_the_columns():
    with pytest.raises(InvalidInputError, match=r"got \(\): a column of the DataFrame is named by target="):
        MomentSynthesizer(schema=SCHEMA).fit(rows(), "job")
    with pytest.raises(InvalidInputError, match="unit='person' is not a column of the frame: it has 'job', 'age'"):
        MomentSynthesizer(1.0, unit="person").fit(rows())
    with pytest.raises(
        InvalidInputError, match=r"unit='person' is .*: it is the index, which X.reset_index\(\) makes a"
    ):
        MomentSynthesizer(1.0, unit="person").plan(rows().rename_axis("person"))
    with pytest.raises(InvalidInputError, match="the target 'sick' is not a column of the frame; it has 'job', 'age'"):
        MomentSynthesizer(schema=SCHEMA, target="sick").fit(rows())


@pytest.mark.parametrize("kind", [pd.DatetimeIndex, pd.PeriodIndex])
def test_dates_of_an_index_which_is_not_modelled_are_pointed_out_before_the_charge(kind):
    budget, days = PrivacyAccountant(1.0, 1e-5), pd.date_range("2024-01-01", periods=len(rows()))
    frame = rows().set_index(days if kind is pd.DatetimeIndex else days.to_period("D"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UtilityWarning)
        with pytest.raises(UtilityWarning, match=r"the index .* holds dates, .*: X.reset_index\(\) makes a column"):
            MomentSynthesizer(1.0, schema=SCHEMA, accountant=budget).fit(frame)
    assert not budget.charges


def test_counts_of_nanoseconds_beyond_the_range_of_bounds_are_pointed_out_as_dates():
    frame = pd.DataFrame({"seen": pd.date_range("2024-01-01", periods=500).astype("datetime64[ns]").astype("int64")})
    with pytest.warns(UtilityWarning, match=r"make dates: pandas.to_datetime\(X\['seen'\], unit='ns'\)"):
        MomentSynthesizer(5.0).fit(frame)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--separator", "ab"), "got 'ab'"),
        (("--decimal", ";"), "got ';'"),
        (("--thousands", "x"), "got 'x'"),
        (("--dates", "%Q"), "got '%Q'"),
        (("--public", "nobody"), "'nobody'; it has 'age', 'pay', 'town', 'ill'"),
        (("--target", "nobody"), "no column 'nobody'; the file has age, pay, town, ill"),
        (("--drop", "nobody"), "no column 'nobody'; the file has age, pay, town, ill"),
    ],
)
def test_options_of_files(table, capsys, options, said):
    assert said in refused(capsys, "schema", table, *options)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--given", "job=baker"), "'job' has no category 'baker'; it has 'clerk', 'smith'"),
        (("--given", "age=old"), "'old' of age=old is no number; 'age' takes numbers from 18 to 80"),
        (
            ("--given", "age=30,5..60"),
            "from 18 to 80; options take numbers with a decimal point alone, such as 1000.5",
        ),
        (("--given", "age=99"), "within its bounds (18, 80), lowest first; got 99"),
        (("--class-ratio", "maybe=1"), "no class 'maybe'; it has 'no', 'yes'"),
        (("--class-ratio", "yes=half"), "'half' of yes=half is no number"),
        (("--class-ratio", "yes=0.5,maybe=0.5"), "no class 'maybe'; it has 'no', 'yes'"),
    ],
)
def test_options_of_samples(model, tmp_path, capsys, asked, said):
    model.save(tmp_path / "m.safetensors")
    arguments = ("sample", str(tmp_path / "m.safetensors"), "--output", str(tmp_path / "out.csv"))
    assert said in refused(capsys, *arguments, *asked)


def test_the_classes_of_a_ratio_may_be_separated_by_commas(tmp_path):
    frame = pd.DataFrame({"ill": ["a,b", "c"] * 100, "age": np.arange(200) % 60 + 20})
    schema = Schema([Categorical("ill", ("a,b", "c")), Numeric("age", (18, 80))])
    MomentSynthesizer(8.0, schema=schema, target="ill").fit(frame).save(tmp_path / "m.safetensors")
    arguments = ("sample", str(tmp_path / "m.safetensors"), "--output", str(tmp_path / "out.csv"), "--rows", "40")
    assert main([*arguments, "--class-ratio", "a,b=0.75", "--class-ratio", "c=0.25"]) == 0
    assert set(pd.read_csv(tmp_path / "out.csv")["ill"]) == {"a,b", "c"}
    MomentSynthesizer(8.0, schema=SCHEMA, target="ill").fit(rows()).save(tmp_path / "m.safetensors")
    assert main([*arguments, "--class-ratio", "no=0,yes=1"]) == 0
    assert set(pd.read_csv(tmp_path / "out.csv")["ill"]) == {"yes"}


def test_a_number_in_the_notation_of_the_file_is_read_unless_it_is_another_one_with_a_decimal_point(tmp_path, capsys):
    german = replace(SCHEMA, notation={"decimal": ",", "thousands": ".", "signs": ["\u20ac"]})
    MomentSynthesizer(8.0, schema=german, target="ill").fit(rows()).save(tmp_path / "m.safetensors")
    arguments = ("sample", str(tmp_path / "m.safetensors"), "--output", str(tmp_path / "out.csv"))
    for written in ("age=1.000,5", "age=1.000,5 \u20ac", "age=1000.5"):
        assert "within its bounds (18, 80), lowest first; got 1000.5" in refused(capsys, *arguments, "--given", written)
    said = refused(capsys, *arguments, "--given", "age=20.000..")
    assert (
        "'20.000' is 20000 in the notation of the file, and 20 with a decimal point: for the first write 20000" in said
    )
    assert "write" not in refused(capsys, *arguments, "--given", "age=old")
    assert main([*arguments, "--rows", "50", "--given", "age=30,5..60", "--decimal", "."]) == 0
    assert pd.read_csv(tmp_path / "out.csv")["age"].between(31, 60).all()


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ("%d.%m.%Y", "01.02.2020..31.03.2020"),
        ("%d.%m.%Y %H:%M", "01.02.2020..31.03.2020 00:00"),
        ("%d.%m.%Y %H:%M", "2020-02-01..31.03.2020"),
        ("%d%^b%Y:%H:%M:%S", "01FEB2020..31MAR2020:00:00:00"),
    ],
)
def test_a_date_of_a_condition_may_be_in_the_format_of_the_column(tmp_path, capsys, form, given):
    column = Datetime("admitted", ("2020-01-01", "2020-12-31"), resolution="D", format=form)
    frame = pd.DataFrame({"admitted": pd.date_range("2020-01-01", periods=366), "age": np.arange(366) % 60 + 20})
    MomentSynthesizer(8.0, schema=Schema([column, Numeric("age", (18, 80))])).fit(frame).save(
        tmp_path / "m.safetensors"
    )
    arguments = ("sample", str(tmp_path / "m.safetensors"), "--output", str(tmp_path / "out.csv"), "--rows", "50")
    assert main([*arguments, "--given", f"admitted={given}"]) == 0
    capsys.readouterr()
    drawn = pd.to_datetime(pd.read_csv(tmp_path / "out.csv")["admitted"], format=form.replace("^", ""))
    assert drawn.between("2020-02-01", "2020-03-31").all()
    assert "as in 2020-12-31 (ISO 8601)" in refused(capsys, *arguments, "--given", "admitted=02/01/2020")


def test_a_model_without_a_target_is_said_to_have_no_classes(tmp_path, capsys):
    MomentSynthesizer(8.0, schema=SCHEMA).fit(rows()).save(tmp_path / "m.safetensors")
    arguments = ("sample", str(tmp_path / "m.safetensors"), "--output", str(tmp_path / "out.csv"))
    assert "fitted without a target" in refused(capsys, *arguments, "--class-ratio", "yes=1")


def test_the_command_says_that_other_models_are_fitted_in_python(table, capsys):
    for name in ("DPMERFSynthesizer", "p3gn"):
        with pytest.raises(SystemExit):
            main(["synthesize", table, "--model", name, "--output", "out.csv"])
        said = capsys.readouterr().err
        assert f"fits moment and p3gm; other models are fitted in Python; got {name!r}" in said
