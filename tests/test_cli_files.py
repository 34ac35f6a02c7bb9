"""Files that `skdpgen` reads and writes: CSV and Parquet, what is read from them, and how bad ones are refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import _command_line
import numpy as np
import pandas as pd
import pytest
from _command_line import FRAME, refused

from skdpgen import Schema
from skdpgen.__main__ import main
from skdpgen.data.notation import Notation
from skdpgen.data.table_reading import read_table
from skdpgen.exceptions import InvalidInputError
from skdpgen.tabular import Categorical, Numeric

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]
table = _command_line.table


def test_moment_model_reads_parquet_a_part_at_a_time(table, monkeypatch, capsys):
    from skdpgen.data import table_reading

    pytest.importorskip("pyarrow")
    FRAME.to_parquet("table.parquet")
    monkeypatch.setattr(table_reading, "read_table", None)  # which would read it whole
    command = "synthesize table.parquet --model moment --epsilon 4 --target ill --rows 30 --output out.parquet"
    assert main(command.split()) == 0
    assert pd.read_parquet("out.parquet").shape == (30, FRAME.shape[1])


@pytest.mark.parametrize("option", ["--missing none", "--separator ;"])
def test_options_of_csv_files_are_refused_with_parquet(table, option, capsys):
    pytest.importorskip("pyarrow")
    FRAME.to_parquet("table.parquet")
    assert main(f"synthesize table.parquet --epsilon 4 {option} --output out.csv".split()) == 2
    assert "CSV" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"age,town\n", "a header and no rows"),
        (b"age,town\n1,north\n2\n", "line 3 has 1 field where the header has 2: if the last lines .* are a footer"),
        (b"age,town\n1,north,hunter2\n", "line 2 has 3 fields"),
        ("age,town\n1,köln\n".encode("latin-1"), "not UTF-8"),
        (b"age,age\n1,2\n", "duplicate column names: 'age'; rename them"),
        ("age,town\n1,köln\n".encode("cp1252"), "--encoding cp1252 .* --encoding latin-1"),
        ("age,town\n1,köln\n".encode("utf-16"), "give --encoding utf-16"),
        (b"Export of 2024\n\nage,town\n1,north\n2,south\n", "lines above line 3 are a title, give --skip-lines 2"),
        (b"Export of 2024\nage,town\n1,north\n2,south\n", "line 1 is a title, give --skip-lines 1"),
        (b"Export,,,\nage,town,a,b\n1,north,2,3\n", "line 1 names 1 of 4 columns: .* give --skip-lines 1"),
        (b"Of us\n2024\n\na;b\n1,5;n\n2,5;s\n", "';' separates .* above line 4 .* --separator ';' --skip-lines 3"),
        (b"Export\nage;town\n1;north\n2;south\n", "line 1 is a title, give --separator ';' --skip-lines 1"),
        (b"\x1f\x8b\x08\x00nonsense", "UTF-8|cannot be read"),
        (b'age,town\n1,"open\n', "fields|cannot be read"),
    ],
    ids=[
        "not there",
        "empty",
        "blank",
        "header only",
        "short row",
        "long row",
        "latin-1",
        "duplicate",
        "cp1252",
        "utf-16",
        "title and blank line",
        "title",
        "title with separators",
        "titles above decimal commas",
        "title and another separator",
        "gzip",
        "quote",
    ],
)
@pytest.mark.parametrize("command", ["synthesize {} --output out.csv --ledger budget.db", "schema {}"])
def test_a_bad_csv_is_one_line_and_charges_nothing(tmp_path, monkeypatch, capsys, content, message, command):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "bad.csv").write_bytes(content)
    line = refused(capsys, *command.format("bad.csv").split())
    assert re.search(message, line), line
    assert "hunter2" not in line
    assert not (tmp_path / "budget.db").exists()
    assert not (tmp_path / "out.csv").exists()


def test_damaged_archives_and_parquet_files_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("table.csv.gz", index=False)
    whole = (tmp_path / "table.csv.gz").read_bytes()
    assert main(["schema", "table.csv.gz"]) == 0
    capsys.readouterr()
    (tmp_path / "half.csv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "none.csv.gz").write_bytes(b"no gzip at all")
    (tmp_path / "none.parquet").write_bytes(b"PAR1 no parquet at all PAR1")
    other = bytearray(whole)
    other[-6] ^= 1  # of the checksum
    (tmp_path / "other.csv.gz").write_bytes(other)
    for name in ("half.csv.gz", "none.csv.gz", "other.csv.gz", "none.parquet"):
        assert f"{name}: cannot be read as " in refused(capsys, "schema", name)
        with pytest.raises(InvalidInputError, match="cannot be read as"):
            read_table(name)
        how = () if name.endswith("parquet") else ("--encoding", "latin-1")
        line = refused(
            capsys, "synthesize", name, *how, "--output", "out.csv", "--ledger", "budget.db", "--budget", "1"
        )
        assert f"{name}: cannot be read as " in line
        assert not (tmp_path / "budget.db").exists()
        assert f"{name}: cannot be read as " in refused(capsys, "report", name, "table.csv.gz", *how)


def test_a_table_without_gaps_gets_none_and_its_integers_stay_integers(table, capsys):
    FRAME.loc[np.arange(3000) % len(FRAME)].to_csv("full.csv", index=False)
    assert (
        main(
            [
                "synthesize",
                "full.csv",
                "--kinds-from-values",
                "--epsilon",
                "3",
                "--target",
                "ill",
                "--output",
                "out.csv",
            ]
        )
        == 0
    )
    drawn = pd.read_csv("out.csv", dtype=str, keep_default_na=False)
    assert not drawn.eq("").any(axis=None)
    assert drawn["age"].str.fullmatch(r"\d+").all()
    assert drawn["pay"].str.fullmatch(r"-?\d+\.\d{1,2}").all()
    assert set(drawn["town"]) == {"north", "south", "?"}


@pytest.mark.filterwarnings("ignore:read as text, from which")
@pytest.mark.parametrize(
    ("form", "resolution"), [("%Y-%m-%d", "D"), ("%Y-%m-%dT%H:%M", "min"), ("%Y-%m-%d %H:%M:%S", "s")]
)
def test_iso_dates_of_a_csv_come_back_as_dates(tmp_path, monkeypatch, capsys, form, resolution):
    monkeypatch.chdir(tmp_path)
    days = pd.date_range("2020-01-01", periods=2000, freq="D")
    frame = pd.DataFrame({"day": days.strftime(form), "mixed": np.where(days.day < 3, "2020-01-01", "2020/01/01")})
    frame.loc[::5, "day"] = ""
    frame.to_csv("days.csv", index=False)
    assert main(["schema", "days.csv"]) == 0
    schema = Schema.from_json(capsys.readouterr().out)
    assert (schema["day"].resolution, type(schema["mixed"])) == (resolution, Categorical)
    assert schema["day"].format == (form if resolution == "min" else None)
    assert (
        main(
            [
                "synthesize",
                "days.csv",
                "--kinds-from-values",
                "--epsilon",
                "5",
                "--output",
                "out.csv",
                "--card",
                "c.json",
            ]
        )
        == 0
    )
    drawn = pd.read_csv("out.csv", keep_default_na=False)["day"]
    drawn = drawn[drawn != ""]
    if resolution == "min":
        assert drawn.map(len).unique().tolist() == [len(days.strftime(form)[0])]
    drawn = pd.to_datetime(drawn, format="ISO8601")
    assert drawn.between("1920-01-01", "2049-12-31").all()
    assert drawn.between("2020-01-01", "2025-12-31").mean() > 0.7
    if resolution == "D":
        assert (drawn == drawn.dt.floor("D")).all()
    assert "dates among them" in (tmp_path / "c.json").read_text()
    # the word of a schema settles it
    known = Schema([Categorical("day", missing=True, dtype="string"), Categorical("mixed", missing=True)])
    known.save("text.json")
    assert (
        main(
            [
                "synthesize",
                "days.csv",
                "--epsilon",
                "5",
                "--schema",
                "text.json",
                "--output",
                "out.csv",
            ]
        )
        == 0
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "age;town\n1;north\n", "--separator ';'"),
        ("a.csv", "age\ttown\n1\tnorth\n", "--separator 'tab'"),
        ("a.csv", ",age\n0,1\n", "column 1 has no name"),
        ("a.csv", "age,town,\n0,1,\n", "column 3 has no name"),
        ("a.xlsx", "age\n1\n", "only CSV and Parquet"),
        *(
            (f"a.{suffix}", "age\n1\n", ".gz alone is read")
            for suffix in ("xz", "csv.xz", "tar", "csv.bz2", "zst", "TAR")
        ),
    ],
)
def test_a_file_that_is_not_what_it_seems_is_one_line(tmp_path, monkeypatch, capsys, name, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(content)
    assert message in refused(
        capsys, "synthesize", name, "--kinds-from-values", "--output", "out.csv", "--ledger", "budget.db"
    )
    assert not (tmp_path / "budget.db").exists()
    assert message in refused(capsys, "schema", name)


def test_a_title_is_skipped_and_another_encoding_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    towns = np.where(FRAME["town"] == "?", "Köln", FRAME["town"])
    text = '"Export, of\n2024"\n\n' + FRAME.assign(town=towns).to_csv(index=False)
    (tmp_path / "a.csv").write_bytes(text.encode("cp1252"))
    how = ["--encoding", "cp1252", "--skip-lines", "2"]
    assert main(["schema", "a.csv", *how, "--output", "s.json"]) == 0
    assert "how the file is written (--encoding cp1252 --skip-lines 2): synthesize and" in capsys.readouterr().err
    fit = ["synthesize", "a.csv", "--schema", "s.json", "--epsilon", "8", "--drop", "pay"]
    assert main([*fit, "--output", "out.csv"]) == 0
    assert "Köln" in set(pd.read_csv("out.csv")["town"])
    assert main(["report", "a.csv", "out.csv", *how, "--drop", "pay", "--output", "r.html"]) == 0
    pd.read_csv("out.csv").to_csv("old.csv", index=False, encoding="cp1252")
    assert main(["report", "a.csv", "old.csv", *how, "--drop", "pay", "--output", "r.html"]) == 0
    capsys.readouterr()
    assert "not ascii; give another --encoding" in refused(capsys, "schema", "a.csv", "--encoding", "ascii")
    assert "must be utf-8, latin-1" in refused(capsys, "schema", "a.csv", "--encoding", "base64")
    assert "must be 0 or more" in refused(capsys, "schema", "a.csv", "--skip-lines", "-1")
    assert "empty below line 999" in refused(capsys, "schema", "a.csv", "--skip-lines", "999", *how[:2])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path, encoding):
    path = tmp_path / "a.csv.gz"
    FRAME.to_csv(path, index=False, encoding=encoding)
    frame = read_table(path, Notation(encoding=encoding))
    assert list(frame) == list(FRAME)
    if encoding == "utf-8-sig":
        assert list(read_table(path)) == list(FRAME)


def test_a_column_of_lists_is_read_where_its_separator_is_given(tmp_path):
    (tmp_path / "a.csv").write_text("codes\nA;B\nC;D\n")
    with pytest.raises(InvalidInputError, match="else give --separator ','"):
        read_table(tmp_path / "a.csv")
    assert read_table(tmp_path / "a.csv", Notation(separator=","))["codes"].tolist() == ["A;B", "C;D"]
    (tmp_path / "a.csv").write_text('texts\n"A, B"\n"C, D"\n')
    assert read_table(tmp_path / "a.csv")["texts"].tolist() == ["A, B", "C, D"]
    (tmp_path / "a.csv").write_text("Of us, 2024\na;b\n1;2\n3;4\n")
    with pytest.raises(InvalidInputError, match=r"one column: if line 1 is a title, give --skip-lines 1$"):
        read_table(tmp_path / "a.csv", Notation(separator=";"))


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        (["5.0", "", "-3.0", "7"], True),
        (["5.0", "6.5"], False),
        (["5.00", "6.0"], False),
        (["1e3", "2.0"], False),
        ([f"{2**53}.0", "1.0"], False),
    ],
)
def test_whole_numbers_that_are_written_as_decimals_are_whole(tmp_path, texts, whole):
    for decimal in ".,":
        written = [text.replace(".", decimal) for text in texts]
        pd.DataFrame({"a": written, "b": "x"}).to_csv(tmp_path / "a.csv", index=False)
        frame = read_table(tmp_path / "a.csv", Notation(decimal=decimal))
        assert pd.api.types.is_integer_dtype(frame["a"].dtype) == whole
        assert frame["a"].dropna().tolist() == [float(text) for text in texts if text]


@pytest.mark.parametrize(
    ("name", "mark", "option"), [("a.csv", ";", ";"), ("a.txt", "\t", "tab"), ("a.tsv", "\t", None)]
)
def test_another_separator_is_read(tmp_path, monkeypatch, capsys, name, mark, option):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv(name, index=False, sep=mark)
    more = [] if option is None else ["--separator", option]
    assert main(["schema", name, *more]) == 0
    assert Schema.from_json(capsys.readouterr().out).names == tuple(FRAME.columns)
    assert main(["synthesize", name, "--kinds-from-values", "--output", "out.tsv", *more]) == 0
    assert list(pd.read_csv("out.tsv", sep="\t").columns) == list(FRAME.columns)
    capsys.readouterr()
    assert "one character" in refused(capsys, "schema", name, "--separator", "ab")


def test_rows_are_not_written_to_a_file_of_another_kind(table, capsys, tmp_path):
    assert "'.xlsx'" in refused(
        capsys, *["synthesize", table, "--kinds-from-values", "--output", "o.xlsx", "--ledger", "budget.db"]
    )
    assert not (tmp_path / "budget.db").exists()


@pytest.mark.filterwarnings("default::UserWarning")
def test_a_text_among_numbers_is_hinted_at_without_its_value(table, capsys):
    frame = FRAME.assign(age=FRAME["age"].astype(str))
    frame.loc[::7, "age"] = "hunter2"
    frame.to_csv("gaps.csv", index=False)
    assert main(["schema", "gaps.csv"]) == 0
    err = capsys.readouterr().err
    assert re.search("UserWarning: .*'age'.*--missing TEXT", err)
    assert "hunter2" not in err
    assert main(["schema", "gaps.csv", "--missing", "hunter2"]) == 0
    err = capsys.readouterr().err
    assert "UserWarning" not in err
    assert re.findall(r"--missing [^ )]*", err) == ["--missing hunter2"]  # what the schema stores


def _zips(path, n=4000):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"zip": rng.choice(["00501", "02134", "10001", "94110"], n), "house": rng.integers(1, 99, n)})
    frame.astype(str).to_csv(path, index=False)
    return frame


def test_zeros_in_front_of_codes_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = _zips("zips.csv")
    assert main(["synthesize", "zips.csv", "--kinds-from-values", "--epsilon", "5", "--output", "out.csv"]) == 0
    drawn = pd.read_csv("out.csv", dtype=str)["zip"]
    assert set(drawn) <= {*frame["zip"], "other"}
    assert (drawn == "00501").mean() == pytest.approx((frame["zip"] == "00501").mean(), abs=0.05)
    declared = Schema([Categorical("zip", tuple(sorted(set(frame["zip"]))))])
    schema = Schema.from_kinds(frame).replace(declared["zip"])
    schema.save("zips.json")
    command = "synthesize zips.csv --epsilon 5 --schema zips.json --output out.csv"
    assert main(command.split()) == 0
    assert set(pd.read_csv("out.csv", dtype=str)["zip"]) == set(frame["zip"])


@pytest.mark.parametrize(
    ("texts", "are_codes"),
    [
        (["0110", "2141", "-8", "-9"], True),  # negative numbers stand for missing values
        (["01", "011", "0111", "45", "451"], True),  # 011 and 11 are two codes of a hierarchy
        (["05", *map(str, range(30))], False),  # one number that somebody wrote with a zero
        (["10", "21", "-8"], False),
        (["05", "12", *(f"-{k}" for k in range(1, 12))], False),
        (["-8", "-9"], False),
    ],
)
def test_codes_of_surveys_keep_their_zeros(tmp_path, texts, are_codes):
    pd.DataFrame({"code": texts * 50}).to_csv(tmp_path / "a.csv", index=False)
    read = read_table(tmp_path / "a.csv")["code"]
    assert pd.api.types.is_string_dtype(read.dtype) == are_codes
    assert set(read) == (set(texts) if are_codes else set(map(int, texts)))


def test_codes_are_codes_by_a_schema_that_was_written_for_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _zips("zips.csv")
    assert main(["schema", "zips.csv", "--output", "zips.json"]) == 0
    for schema in (Schema.load("zips.json"), Schema([Categorical("zip"), Numeric("house", integer=True)])):
        frame = read_table("zips.csv", schema=schema)
        assert set(frame["zip"]) == {"00501", "02134", "10001", "94110"}
        assert frame["house"].dtype == "Int64"


def test_declared_text_is_found_in_what_other_programs_write_for_it(tmp_path):
    (tmp_path / "a.csv").write_text("code,flag,other\n1.0,TRUE,1.50\n,false,1.5\n2.0,True,x\n")
    schema = Schema(
        [
            Categorical("code", ("1", "2"), missing=True),
            Categorical("flag", ("False", "True")),
            Categorical("other", ("1.5",), other="rest"),
        ]
    )
    frame = read_table(tmp_path / "a.csv", schema=schema)
    assert frame["code"].fillna("-").tolist() == ["1", "-", "2"]
    (tmp_path / "a.csv").write_text("code,flag,other\n1 ,TRUE,9007199254740993\n2,FALSE,9007199254740992\n")
    schema = schema.replace(
        Categorical("flag", ("true", "false")), Categorical("other", ("9007199254740992",), other="rest")
    )
    close = read_table(tmp_path / "a.csv", schema=schema)
    assert close["code"].tolist() == ["1", "2"]
    assert close["flag"].tolist() == ["true", "false"]
    assert close["other"].tolist() == ["9007199254740993", "9007199254740992"]
    assert frame["flag"].tolist() == ["True", "False", "True"]
    assert frame["other"].tolist() == ["1.5", "1.5", "x"]


@pytest.mark.parametrize("line", ["39,State-gov,77516", "pay,2020-01-31,town", "1e5,a,b", "1,2,4"])
def test_a_row_is_not_taken_for_names(tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(f"{line}\n1,2,3\n")
    said = refused(capsys, "synthesize", "a.csv", "--kinds-from-values", "--ledger", "budget.db", "--output", "out.csv")
    assert "is a number or a date" in said
    assert "77516" not in said
    assert not (tmp_path / "budget.db").exists()
    assert read_table("a.csv", Notation(numeric_names=True)).shape == (1, 3)


def test_columns_that_were_counted_have_names(tmp_path):
    frame = pd.DataFrame(np.arange(6).reshape(2, 3))
    path = tmp_path / "counted.csv"
    frame.to_csv(path, index=False)
    assert list(read_table(path).columns) == ["0", "1", "2"]


@pytest.mark.parametrize(
    "command",
    [
        "synthesize table.csv --kinds-from-values --output table.csv",
        "synthesize table.csv --kinds-from-values --output ./sub/../table.csv",
        "synthesize table.csv --kinds-from-values --output out.csv --card out.csv",
        "schema table.csv --output table.csv",
        "report table.csv table.csv --output table.csv",
        "budget table.csv --plot table.csv",
    ],
)
def test_no_file_is_written_over_one_that_is_read(table, capsys, command):
    Path("sub").mkdir()
    before = Path("table.csv").read_bytes()
    assert "overwrite" in refused(capsys, *command.split())
    assert Path("table.csv").read_bytes() == before


@pytest.mark.parametrize(("n_below", "said"), [(0, True), (3, True), (200, False)])
def test_a_footer_is_said_to_be_one_at_the_end_of_a_file_alone(tmp_path, capsys, n_below, said):
    path = tmp_path / "footer.csv"
    path.write_text("age,town\n" + "1,north\n" * 300 + "Source: hunter2\n" + "1,north\n" * n_below)
    message = refused(capsys, "schema", str(path))
    assert "line 302 has 1 field where the header has 2" in message
    assert ("if the last lines of the file are a footer" in message) == said
    assert "hunter2" not in message


def test_rows_go_to_a_file(table, capsys):
    assert "written to a file" in refused(capsys, *["synthesize", "table.csv", "--kinds-from-values", "--output", "-"])
    assert not Path("-").exists()


@pytest.mark.parametrize(
    "values",
    [
        ["11,028", "1,250,000"],
        ["1.234,56", "12,50"],
        ["$12.50", "$3"],
        ["12%", "3.5%"],
        ["31/12/2021", "1/2/2020"],
        ["31.12.2021", "01.02.2020"],
        ["2020-01-01T10:00:00+01:00", "2021-01-01T10:00:00+02:00"],
        ["13:45", "7:30"],
        ["12 EUR", "1250 EUR"],
    ],
)
def test_formatted_numbers_and_dates_are_said_before_the_charge(tmp_path, values):
    pd.DataFrame({"pay": values * 5, "town": ["a", "b"] * 5}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.warns(UserWarning, match="read as text, from which almost nothing can be learned: 'pay'[.] ") as said:
        read_table(tmp_path / "a.csv")
    assert not any(value in str(warning.message) for warning in said for value in values)


def test_a_plan_is_made_for_the_kinds_that_will_be_fitted(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"age": [*range(20, 90), "?"]}).to_csv("a.csv", index=False)
    assert main(["budget", "a.csv", "--missing", "?", "--json"]) == 0
    with_text = capsys.readouterr().out
    pd.DataFrame({"age": [*range(20, 90), ""]}).to_csv("a.csv", index=False)
    assert main(["budget", "a.csv", "--json"]) == 0
    assert capsys.readouterr().out == with_text


def test_parameters_of_the_model_are_set(table, capsys):
    command = [
        "synthesize",
        "table.csv",
        "--kinds-from-values",
        "--model",
        "moment",
        "--epsilon",
        "4",
        "--output",
        "out.csv",
    ]
    assert main([*command, "--set", "constraints=['age >= 30']", "--set", "noise=fast", "--card", "c.json"]) == 0
    assert pd.read_csv("out.csv")["age"].dropna().ge(30).all()
    assert json.loads(Path("c.json").read_text())["model"]["parameters"]["noise"] == "fast"
    capsys.readouterr()
    for setting in ("constraint=1", "epsilon=3", "schema=None"):
        assert "takes no" in refused(capsys, *command, "--set", setting, "--ledger", "budget.db")
    assert not Path("budget.db").exists()
