"""The kind of a column of a CSV file is declared, by a schema or by consent; no row decides it unasked."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import PrivacyAccountant, Schema
from skdpgen.__main__ import main
from skdpgen.data.csv_values import as_kind
from skdpgen.data.notation import Notation
from skdpgen.data.table_reading import KINDS_FROM_VALUES, read_table
from skdpgen.exceptions import InvalidInputError
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric
from skdpgen.tabular._frames import level_codes

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.filterwarnings("ignore:read as text"),
]

N = 300
FRAME = pd.DataFrame(
    {
        "age": [str(20 + k % 60) for k in range(N)],
        "pay": [f"{1000 + 7.5 * (k % 90):.2f}" for k in range(N)],
        "seen": [f"2021-0{1 + k % 9}-1{k % 7}" for k in range(N)],
        "zip": [f"{10000 + k % 4}" for k in range(N)],
        "ill": [("true", "false")[k % 3 == 0] for k in range(N)],
        "grade": [str(1 + k % 3) for k in range(N)],
    }
)
SCHEMA = Schema(
    [
        Numeric("age", integer=True, missing=True),
        Numeric("pay", missing=True),
        Datetime("seen", resolution="D", missing=True),
        Categorical("zip", missing=True, dtype="string"),
        Boolean("ill", missing=True),
        Categorical("grade", missing=True, dtype="Int64"),
    ]
)
# A row that would change the kind of each column, if its values decided it.
ODD = {"age": "1.5", "pay": "none", "seen": "2021-01-01T10:00", "zip": "00501", "ill": "perhaps", "grade": "x"}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _write(*more, name="rows.csv"):
    pd.concat([FRAME, pd.DataFrame(list(more), columns=FRAME.columns)]).to_csv(name, index=False)
    return name


@pytest.mark.parametrize("odd", [*({name: text} for name, text in ODD.items()), ODD], ids=lambda odd: "+".join(odd))
@pytest.mark.parametrize("first", [False, True], ids=["last row", "first row"])
def test_with_a_schema_no_row_changes_how_another_is_read(odd, first):
    row = pd.DataFrame([{**FRAME.iloc[0], **odd}])
    FRAME.to_csv("plain.csv", index=False)
    pd.concat([row, FRAME] if first else [FRAME, row]).to_csv("odd.csv", index=False)
    plain = read_table("plain.csv", schema=SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **kwargs: None)
        read = read_table("odd.csv", schema=SCHEMA)
    assert plain.attrs == read.attrs
    rest = read.iloc[1:] if first else read.iloc[:-1]
    for name in FRAME:
        one, other = plain[name].astype(object), rest[name].astype(object).reset_index(drop=True)
        assert one.tolist() == other.tolist(), name


@pytest.mark.filterwarnings("ignore:values that cannot be read as the kind")
def test_a_row_without_a_value_of_the_declared_kind_is_missing_and_does_not_change_the_release():
    schemas = []
    for name in (_write(), _write(ODD, name="odd.csv")):
        frame = read_table(name, schema=SCHEMA)
        schemas.append(Schema.from_kinds(frame, SCHEMA))
        command = f"synthesize {name} --model moment --schema s.json --epsilon 8 --output out.csv --card {name}.json"
        SCHEMA.save("s.json")
        assert main(command.split()) == 0
    assert schemas[0] == schemas[1] == SCHEMA
    facts = [json.loads(Path(f"{name}.json").read_text())["public_assumptions"] for name in ("rows.csv", "odd.csv")]
    assert facts[0] == facts[1]
    assert not any("read from the values" in text for text in facts[0])
    last = frame.iloc[-1]
    assert last[["pay", "ill", "grade"]].isna().all()
    assert (last["zip"], last["age"]) == ("00501", 1.5)
    assert last["seen"] == pd.Timestamp("2021-01-01T10:00")


def test_values_that_are_not_of_the_declared_kind_are_said_without_showing_them():
    with pytest.warns(UserWarning, match="taken for missing: 'pay', 'ill', 'grade'") as said:
        read_table(_write({**ODD, "pay": "hunter2"}), schema=SCHEMA)
    assert not any("hunter2" in str(warning.message) for warning in said)


def test_where_no_value_may_be_missing_one_of_another_kind_is_refused():
    strict = Schema([Numeric("pay"), *(column for column in SCHEMA.columns if column.name != "pay")])
    with pytest.raises(InvalidInputError, match=r"'pay' is Numeric .* must not be missing"):
        read_table(_write(ODD), schema=strict)


@pytest.mark.parametrize(
    "column", [Numeric("ill", missing=True), Datetime("zip", missing=True)], ids=["number", "date"]
)
def test_a_kind_that_no_value_has_is_refused(column):
    with pytest.raises(InvalidInputError, match="none of its values"):
        read_table(_write(), schema=Schema([column]))


def test_a_declared_column_of_times_of_the_day_is_read_and_written(capsys):
    texts = [f"{10 + k % 12}:{k % 60:02d}:{7 * k % 60:02d}" for k in range(N)]
    FRAME[["ill"]].assign(at=texts).to_csv("times.csv", index=False)
    Schema([Numeric("at", dtype="time", integer=True), Boolean("ill")]).save("times.json")
    command = "synthesize times.csv --model moment --schema times.json --epsilon 8 --output out.csv"
    assert main(command.split()) == 0
    written = pd.read_csv("out.csv", dtype="string")["at"]
    assert written.str.fullmatch(r"\d\d:\d\d:\d\d").all()
    assert written.str[:2].between("09", "22").mean() > 0.8
    assert main(["report", "times.csv", "out.csv", "--schema", "times.json", "--output", "report.html"]) == 0
    FRAME[["ill"]].assign(at="noon").to_csv("times.csv", index=False)
    capsys.readouterr()
    assert "write times of the day as 13:45 or 13:45:30" in refused(capsys, *command.split())


@pytest.mark.filterwarnings("ignore:values that cannot be read as the kind")
@pytest.mark.parametrize(
    ("column", "notation", "texts", "values"),
    [
        (Numeric("x"), {}, ["1", " 2.5 ", "1e3", "inf", "nan", "True", "1,5"], [1, 2.5, 1000, None, None, None, None]),
        (Numeric("x"), {"decimal": ",", "thousands": "."}, ["1.000,5", "2", "01.02.2024"], [1000.5, 2, None]),
        (
            Boolean("x", missing=True),
            {},
            ["TRUE", "0", "1.0", "yes", "N", "maybe"],
            [True, False, True, True, False, None],
        ),
        (
            Numeric("x", dtype="time"),
            {},
            ["13:45", " 9:05:30 ", "23:59:59.5", "3600", "24:00", "12:60", "1:30 h", "13:45:30:10"],
            [49_500, 32_730, 86_399.5, 3600, None, None, None, None],
        ),
        (Categorical("x", dtype="Int64"), {}, ["9007199254740993", "2.0", "b"], [2**53 + 1, 2.0, None]),
        (Categorical("x", (1, 2)), {}, ["1", "2.0", "b"], [1, 2, None]),
        (Categorical("x", dtype="boolean", missing=True), {}, ["True", "f", "g"], [True, False, None]),
        (Categorical("x"), {}, ["007", "1.50", "TRUE"], ["007", "1.50", "TRUE"]),
        (
            Datetime("x", missing=True),
            {"dates": ["%d.%m.%Y"]},
            ["31.12.2021", "2021-12-31 10:00", "2021-12-31T10:00Z", "12/31/2021"],
            [pd.Timestamp("2021-12-31"), pd.Timestamp("2021-12-31T10:00"), None, None],
        ),
        (
            Datetime("x", missing=True, dtype="datetime64[us, Europe/Paris]"),
            {},
            ["2021-12-31T10:00Z", "2021-12-31T10:00+02:00", "x", "now"],
            [pd.Timestamp("2021-12-31T10:00Z"), pd.Timestamp("2021-12-31T08:00Z"), None, None],
        ),
    ],
)
def test_each_value_is_read_by_itself(column, notation, texts, values):
    written = pd.Series([*texts, None], dtype="string")
    read, unread = as_kind(written, column, Notation(**notation))
    found = [None if pd.isna(value) else value for value in read.astype(object)]
    assert found == [*values, None]
    assert unread.tolist() == [value is None for value in values] + [False]
    for k, text in enumerate(texts):  # whatever stands beside it
        alone, _ = as_kind(pd.Series([text], dtype="string"), column, Notation(**notation))
        assert [None if pd.isna(value) else value for value in alone.astype(object)] == [values[k]]


def test_an_undeclared_category_among_numbers_is_the_other_one():
    column = Categorical("grade", (1, 2), other=-1, dtype="int64")
    Schema([column]).save("s.json")
    FRAME[["grade"]].assign(grade=["x", *FRAME["grade"][1:]]).to_csv("rows.csv", index=False)
    assert main(["synthesize", "rows.csv", "--schema", "s.json", "--epsilon", "8", "--output", "out.csv"]) == 0
    assert set(pd.read_csv("out.csv")["grade"]) <= {1, 2, -1}


# ---- without a schema --------------------------------------------------------------------------------------------
def test_without_a_schema_nothing_is_charged_before_the_kinds_are_declared_public(capsys):
    line = refused(capsys, *f"synthesize {_write()} --output out.csv --ledger budget.db --epsilon 1".split())
    assert "'age', 'pay', 'seen', 'zip', 'ill' and 1 more" in line
    assert "--kinds-from-values" in line
    assert "skdpgen schema" in line
    assert not Path("budget.db").exists()
    SCHEMA.select(["age", "pay", "zip", "ill", "grade"]).save("s.json")
    line = refused(capsys, *f"synthesize {_write()} --schema s.json --output out.csv".split())
    assert "the kinds of these columns are not declared: 'seen';" in line


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("Yes\n", 0), ("n\n", 2), ("\n", 2), ("", 2)])
def test_on_a_terminal_consent_is_asked_for(monkeypatch, answer, code):
    stderr = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    monkeypatch.setattr("sys.stderr", stderr)
    command = f"synthesize {_write()} --model moment --epsilon 8 --output out.csv --ledger budget.db --card card.json"
    assert main(command.split()) == code
    asked = stderr.getvalue()
    for kind in ("age: numeric (whole numbers)", "pay: numeric\n", "seen: datetime", "ill: boolean", "[y/N]"):
        assert kind in asked
    assert Path("budget.db").exists() == (code == 0)
    if code == 0:
        assert len(PrivacyAccountant(ledger="budget.db").charges) == 1
        facts = json.loads(Path("card.json").read_text())["public_assumptions"]
        assert any("read from the values of the CSV file, declared public" in text for text in facts)
        assert "resolution of dates: 'seen' D" in facts


def test_the_columns_on_the_card_and_its_assumptions_name_one_source(capsys):
    Schema([SCHEMA["age"]]).save("s.json")
    fit = f"synthesize {_write()} --model moment --schema s.json --kinds-from-values --epsilon 8 --output out.csv"
    assert main(f"{fit} --card card.json".split()) == 0
    card = json.loads(Path("card.json").read_text())
    sources = {column["name"]: column["from"] for column in card["columns"]}
    assert sources.pop("age") == "schema"
    assert set(sources.values()) == {"values"}
    assert any(
        "read from the values of the CSV file, declared public by the caller" in text
        for text in card["public_assumptions"]
    )
    capsys.readouterr()
    assert main(["card", "card.json", "--html", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert page.count("read from the values of the CSV file, declared public by the caller") == len(sources) + 1
    assert "type of the column" not in page
    assert main(["verify", "card.json"]) == 0


def test_consent_that_is_not_needed_is_refused(capsys):
    SCHEMA.save("s.json")
    line = refused(capsys, *f"synthesize {_write()} --schema s.json --kinds-from-values --output out.csv".split())
    assert "has no effect" in line


def test_the_card_names_format_and_resolution_of_dates():
    frame = FRAME.assign(seen=pd.to_datetime(FRAME["seen"]).dt.strftime("%d.%m.%Y %H:%M"))
    frame.to_csv("rows.csv", index=False)
    common = ["synthesize", "rows.csv", "--model", "moment", "--epsilon", "8", "--output", "out.csv"]
    common += ["--card", "card.json", "--dates"]
    assert main([*common, "%d.%m.%Y %H:%M", "--kinds-from-values"]) == 0
    facts = json.loads(Path("card.json").read_text())["public_assumptions"]
    assert "resolution of dates: 'seen' min" in facts
    assert "format of dates: 'seen' %d.%m.%Y %H:%M" in facts
    SCHEMA.save("s.json")
    assert main([*common, "%d.%m.%Y %H:%M", "--schema", "s.json"]) == 0
    assert "format of dates: 'seen' %d.%m.%Y %H:%M" in json.loads(Path("card.json").read_text())["public_assumptions"]
    assert pd.read_csv("out.csv", dtype=str)["seen"].dropna().str.fullmatch(r"\d\d\.\d\d\.\d{4} 00:00").all()


@pytest.mark.parametrize("place", [0, -1])
def test_the_kind_of_a_column_does_not_depend_on_where_in_a_long_file_a_row_stands(place):
    values = np.arange(120_000).astype(str)
    values[place] = "x"
    pd.DataFrame({"a": values, "b": "t"}).to_csv("long.csv", index=False)
    frame = read_table("long.csv")
    assert pd.api.types.is_string_dtype(frame["a"].dtype)
    assert frame["a"].iloc[[0, -1]].tolist() == values[[0, -1]].tolist()
    assert frame.attrs[KINDS_FROM_VALUES] == ["a", "b"]


@pytest.mark.parametrize(
    ("texts", "categories", "notation"),
    [
        (["1,5", "2,5", " 1,50"], (1.5, 2.5), {"decimal": ","}),
        (["1.000", "2.000", "2000"], (1000, 2000), {"decimal": ",", "thousands": "."}),
        (["1.0", "0.0", "TRUE", "false"], (False, True), {}),
        (["9007199254740993", "9007199254740992"], (9007199254740992, 9007199254740993), {}),
        (["1", "+2", "3.0", "1e0"], (1, 2, 3), {}),
    ],
    ids=["decimals", "thousands", "flags", "large", "integers"],
)
def test_a_text_that_is_no_category_leaves_the_other_rows_as_they_were(texts, categories, notation):
    column = Categorical("a", categories=categories, other="other")
    codes = []
    for more in ([], ["none"]):
        Path("rows.csv").write_text("\n".join(["a;b", *(f"{text};1" for text in [*texts, *more])]) + "\n")
        read = read_table("rows.csv", Notation(separator=";", **notation), schema=Schema([column]))
        codes.append(level_codes(read["a"], column).tolist())
    assert codes[1] == [*codes[0], len(categories)]
    assert len(categories) not in codes[0]


@pytest.mark.parametrize(
    ("dtype", "form", "texts", "odd"),
    [
        (None, None, ["9999-12-31", "1000-01-01", "2020-02-03T04:05"], "2020-01-01T00:00:00.123456789"),
        ("datetime64[us, UTC]", None, ["9999-12-30", "1000-01-01T00:00Z"], "2020-01-01T00:00:00.1234567Z"),
        (
            None,
            "%d.%m.%Y %H:%M:%S.%f",
            ["30.12.9999 00:00:00.0", "01.01.1000 10:00:00.5"],
            "01.01.2020 0:0:0.123456789",
        ),
        (None, "%H.%d%m%Y", ["10.01022020", "11.31129999"], "2020-01-01T00:00:00.123456789"),
    ],
    ids=["ISO 8601", "zone", "format", "long digits"],
)
def test_nanoseconds_of_one_row_leave_the_dates_of_the_others_as_they_were(dtype, form, texts, odd):
    column = Datetime("a", missing=True, resolution="s", dtype=dtype, bounds=("0900-01-01", "9999-12-31"))
    notation = Notation(dates=() if form is None else (form,))
    alone, _ = as_kind(pd.Series(texts, dtype="string"), column, notation)
    beside, unread = as_kind(pd.Series([*texts, odd], dtype="string"), column, notation)
    assert [str(moment) for moment in beside[:-1]] == [str(moment) for moment in alone]
    assert not unread.iloc[-1]


@pytest.mark.filterwarnings("ignore:values that cannot be read")
@pytest.mark.parametrize("more", ["1.5", "none", "8"])
@pytest.mark.parametrize("texts", [["3", "-999", "-999 ", "4"], ["3.25", "-999.00", "-9.99e2", " -999"]])
def test_a_number_that_stands_for_a_missing_value_does_so_whatever_the_other_rows_hold(texts, more):
    read = []
    for rows in (texts, [*texts, more]):
        Path("rows.csv").write_text("\n".join(["a;b", *(f"{text};1" for text in rows)]) + "\n")
        frame = read_table(
            "rows.csv", Notation(separator=";", missing_marks=["-999"]), schema=Schema([Numeric("a", missing=True)])
        )
        read.append(frame["a"].to_numpy(dtype=float, na_value=np.nan)[: len(texts)])
    np.testing.assert_array_equal(*read)
    assert np.count_nonzero(np.isnan(read[0])) == sum("9" in text for text in texts)


@pytest.mark.parametrize("texts", [["3", "7 ", "7 ", "4"], ["3", "007", "12", "+7"]])
def test_a_number_that_stands_for_a_missing_value_does_so_in_an_undeclared_column_of_whole_numbers(texts):
    read = []
    for rows in (texts, [*texts, "5.0"]):  # of which the reader makes floats, and compares these by value
        Path("rows.csv").write_text("\n".join(["a;b", *(f"{text};1" for text in rows)]) + "\n")
        frame = read_table("rows.csv", Notation(separator=";", missing_marks=["7"]))
        assert frame["a"].dtype == "Int64"
        read.append(frame["a"][: len(texts)].isna().tolist())
    assert read[0] == read[1] == ["7" in text for text in texts]


def test_a_file_with_nul_is_refused():
    Path("rows.csv").write_text("a,b\n1,x\n2,x\0y\n")
    with pytest.raises(InvalidInputError, match="NUL") as said:
        read_table("rows.csv")
    assert "\0" not in str(said.value)
