"""Questions of `skdpgen schema` on a terminal: answers enter the schema, what the rows show does not."""

from __future__ import annotations

import os
import select
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from skdpgen import Schema
from skdpgen.__main__ import main
from skdpgen.commands import _questions
from skdpgen.data.table_reading import read_table
from skdpgen.tabular import Categorical, Datetime, Identifier, Numeric

N = 60
FRAME = pd.DataFrame(
    {
        "patient_id": np.arange(N) + 1000,
        "age": np.arange(N) % 50 + 20,
        "ward": np.arange(N) % 4 + 1,
        "sex": (["f", "m"] * N)[: N - 1] + ["x"],
        "admitted": pd.date_range("2023-01-01", periods=N),
        "note": [f"note {i // 2}" for i in range(N)],
        "site": "A",
        "bill": np.linspace(10, 99.5, N).round(1),
        "ill": np.arange(N) % 2,
    }
)
# In the order of the columns; a code is asked about again, as a category.
ANSWERS = [
    *(
        "ill",
        "",
        "i",
        "0 120",
        "c",
        "1, 2, 3, 4",
        "f, m",
        "",
        "2020-01-01 2025-12-31",
        "x",
        "x",
        "",
        "0, 1",
        "age, ill",
    ),
]


class Injected:
    """Answers from a list; what is said is kept."""

    def __init__(self, *answers):
        self.answers, self.said, self.asked = list(answers), [], []

    def say(self, text):
        self.said.append(text)

    def ask(self, prompt):
        self.asked.append(prompt.strip())
        return self.answers.pop(0)

    @property
    def text(self):
        return "\n".join(self.said)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("data.csv", index=False)
    return read_table("data.csv")


def answered(frame, *answers, **options):
    terminal = Injected(*answers)
    found = _questions.ask_about(Schema.from_kinds(frame), frame, terminal, **options)
    assert not terminal.answers
    return found, terminal


def test_answers_enter_the_schema(table):
    found, terminal = answered(table, *ANSWERS)
    schema = found.schema
    assert found.target == "ill"
    assert found.left_out == ["note", "site"]
    assert found.public == []
    assert schema["patient_id"] == Identifier("patient_id", dtype="Int64")
    assert schema["age"] == Numeric("age", (0, 120), integer=True, dtype="Int64")
    assert schema["ward"].categories == (1, 2, 3, 4)
    assert schema["sex"].categories == ("f", "m")
    assert schema["sex"].other == "other"
    assert isinstance(schema["admitted"], Datetime)
    assert schema["admitted"].bounds[1] == "2025-12-31T00:00:00"
    assert schema["bill"] == Schema.from_kinds(table)["bill"]  # Enter leaves it open
    assert schema["ill"].categories == (0, 1)
    assert not schema["ill"].missing
    assert schema["ward"].missing
    assert "they are private, for your eyes alone" in terminal.text
    assert "is published with every model" in terminal.text


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("patient_id", "Looks like a key"),
        ("ward", "if they are codes or classes"),
        ("note", "Looks like free text"),
        ("site", "Looks constant"),
        ("age", None),
        ("bill", None),
    ],
)
def test_a_remark_says_what_a_column_looks_like(table, name, remark):
    terminal = answered(table[[name]], "", "", "")[1]
    private = [line for line in terminal.said if line.startswith("  | ")]
    assert len(private) == (1 if remark is None else 2)
    assert remark is None or remark in private[1]
    assert "cost nothing" in terminal.text


def test_nothing_of_the_values_enters_the_schema_without_being_typed(table):
    columns = list(table)
    opened = answered(table, "", "", *[""] * len(columns), "")[0]
    assert opened.schema == Schema.from_kinds(table)
    other = table.assign(age=table["age"] + 7, sex=table["note"], bill=-table["bill"])
    changed = answered(other, "", "", *[""] * len(columns), "")[0]
    assert changed.schema == opened.schema


def test_the_ends_of_the_file_need_a_second_answer(table):
    refused, terminal = answered(table[["age"]], "", "p", "", "", "")
    assert refused.public == []
    assert "publishes 20 and 69, which may be one person's" in terminal.text
    assert answered(table[["age"]], "", "p", "y", "")[0].public == ["age"]


def test_an_answer_that_is_wrong_is_named_and_asked_again(table):
    terminal = answered(table[["age", "sex"]], "agge", "", "", "old", "5", "10 x", "9 3", "z", "0 120", "", "")[1]
    for said in (
        "no column 'agge'",
        "got 'old'",
        "got '5'",
        "'x' is not a whole number",
        "bounds",
        "'z' is not an answer",
    ):
        assert said in terminal.text


def test_back_takes_an_answer_back_and_q_leaves_the_rest_open(table):
    found = answered(table[["age", "bill", "sex"]], "", "", "x", "b", "0 99", "q", "")[0]
    assert found.left_out == []
    assert found.schema["age"].bounds == (0, 99)
    assert found.schema.incomplete == ("bill", "sex")


@pytest.mark.parametrize("command", ["b", "q", "x"])
def test_a_list_of_categories_is_taken_back_before_the_rest_becomes_other(table, command):
    found, terminal = answered(table[["sex"]], "", "xyz", command, "f, m, x", "")
    assert "b to take it back" in terminal.text
    assert terminal.text.count("[1 of 1]") == 2
    assert set(found.schema["sex"].categories) == {"f", "m", "x"}
    assert answered(table[["sex"]], "", "xyz", command, "q", "")[0].schema.incomplete == ("sex",)


def test_rows_outside_of_declared_facts_are_counted_for_the_data_holder(table):
    terminal = answered(table[["age", "sex"]], "", "", "30 60", "f,", "f, m, x", "")[1]
    outside = ((FRAME["age"] < 30) | (FRAME["age"] > 60)).sum()
    assert f"{outside} rows are outside" in terminal.text
    assert "The file has other values too: m, x" in terminal.text


def test_categories_none_of_which_is_in_the_file_are_said_to_be_none_of_it(table):
    found, terminal = answered(table[["sex"]], "", "yes, no", "f, m, x", "")
    assert "  | The file has none of these, and its values are: f, m, x." in terminal.text
    assert found.schema["sex"].categories == ("f", "m", "x")


def test_all_columns_left_out_is_refused(table):
    with pytest.raises(ValueError, match="every column is left out"):
        answered(table[["age"]], "", "x")


def test_control_characters_of_values_do_not_reach_the_terminal(table):
    frame = pd.DataFrame({"a\x1b[2J": ["x\x1b[2J"] * 30})
    assert "\x1b" not in answered(frame, "", "", "")[1].text


def test_no_terminal_no_questions(table, capsys, monkeypatch):
    monkeypatch.setattr(_questions, "ask_about", None)
    assert main(["schema", "data.csv", "--output", "s.json"]) == 0
    assert Schema.load("s.json") == Schema.from_kinds(table)
    assert "Replace null by bounds" in capsys.readouterr().err


def on_pty(arguments, answers):
    """Run the command in a child on a pseudo-terminal; return its output and exit code."""
    pty = pytest.importorskip("pty")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork, by Python 3.12
        child, terminal = pty.fork()
    if child == 0:
        code = 70
        try:
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
            code = main(arguments)
            sys.stdout.flush()
        finally:
            os._exit(code)
    output, answers = b"", list(answers)
    while select.select([terminal], [], [], 60)[0]:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux, at the end
            break
        if not part:
            break
        output += part
        if output.endswith(b"> ") and answers:
            os.write(terminal, f"{answers.pop(0)}\n".encode())
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return output.decode().replace("\r\n", "\n"), code


def visits(n=N):
    """Rows of 25 patients, with codes of missing values."""
    codes = np.where(np.arange(n) % 7, np.arange(n) % 20, -99)
    ages = np.where(np.arange(n) % 9, np.arange(n) % 50 + 20, 999)
    return pd.DataFrame({"Patient-Nr": np.arange(n) % 25 + 7, "score": codes, "age": ages, "name": "A", "ill": "no"})


def test_the_column_of_persons_is_asked_for_and_leaves_the_schema():
    found, terminal = answered(visits(), "ill", "ill", "Patient-Nr", *[""] * 5)
    assert found.unit == "Patient-Nr"
    assert list(found.schema) == ["score", "age", "name", "ill"]
    assert "  | Likely, by their names and repeated values: Patient-Nr" in terminal.text
    assert "'ill' is none of the columns Patient-Nr, score, age, name:" in terminal.text
    assert answered(FRAME[["patient_id", "age"]], "", "", "", "")[0].unit is None


def test_codes_of_missing_values_and_names_of_persons_are_pointed_out():
    terminal = answered(visits()[["score", "age", "name"]], "", "", "", "", "", "")[1]
    assert [line.split(" apart")[0] for line in terminal.said if "apart from" in line] == ["  | -99:", "  | 999:"]
    assert sum("By its name the column may identify persons" in line for line in terminal.said) == 1


def test_remarks_name_codes_of_one_length_and_two_numbers_in_one_text():
    k = np.arange(900)
    frame = pd.DataFrame({"cpt": 90_000 + k % 40, "bp": [f"{100 + i % 31}/{60 + i % 29}" for i in k]})
    terminal = answered(frame, "", "", "c", "", "x")[1]
    assert "if they are codes (answer c), their order means nothing" in terminal.text
    assert "Looks like two numbers in one text: split it into two columns" in terminal.text
    assert "Looks like free text" not in terminal.text


def test_limits_of_measurement_are_pointed_out_where_bounds_are_asked_for(tmp_path, monkeypatch):
    terminal = answered(FRAME[["age", "bill"]], "", "", "0 120", "", "", limits=["bill"])[1]
    place = next(k for k, line in enumerate(terminal.said) if "type the limit as a bound" in line)
    assert "bill" in "".join(terminal.said[place - 2 : place])
    assert sum("type the limit as a bound" in line for line in terminal.said) == 1


def test_a_number_that_stands_for_a_missing_value_is_an_answer_and_no_other_answer_is_lost():
    frame = visits().convert_dtypes()[["age", "score", "ill"]].assign(again=visits()["age"].astype("Int64"))
    frame = frame.assign(text=frame["age"].astype("string"))
    answers = ["", "", "0 120", "m 7000", "m x", "m -99", "c", "0, 1, 2", "", "", "m 999", "p", "y", "x", ""]
    found, terminal = answered(frame, *answers)
    assert found.missing == ["-99", "999"]
    assert "no row has 7000 here" in terminal.text
    assert "'x' is not a whole number" in terminal.text
    assert "  | 999 is now a missing value in these columns too: age, text." in terminal.text
    assert sum("answer m -99: it is then missing in all columns" in line for line in terminal.said) == 1
    assert found.schema["age"].bounds == (0, 120)
    assert found.schema["score"].categories == (0, 1, 2)
    assert not found.frame[["age", "score", "again"]].isin([-99, 999]).any(axis=None)
    assert found.frame["age"].isna().sum() == (visits()["age"] == 999).sum() == found.frame["text"].isna().sum()


def test_no_number_of_a_parquet_file_may_be_answered_to_be_missing():
    found, terminal = answered(visits()[["age"]], "", "m 999", "0 120", marks=False)
    assert found.missing == []
    assert "make it missing in the Parquet file first" in terminal.text
    assert "means missing" not in terminal.text


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.PrivacyLeakWarning")
@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_schema_stores_the_numbers_that_were_answered_to_be_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits(2000)[["score", "age"]].to_csv("visits.csv", index=False)
    said, code = on_pty(["schema", "visits.csv"], ["", "", "m -99", "p", "y", "m 999", "0 120", ""])
    assert code == 0
    schema = Schema.load("schema.json")
    assert schema.notation == {"missing": ["", "-99", "999"]}
    assert schema["score"].bounds == (0, 19)
    assert main(said.rstrip().splitlines()[-2].split()[1:]) == 0
    drawn = pd.read_csv("synthetic.csv")
    assert drawn["age"].isna().mean() == pytest.approx(1 / 9, abs=0.1)
    assert drawn.min().min() >= 0
    said, code = on_pty(["schema", "visits.csv", "--missing", "-99", "--output", "s.json"], ["", "", "", "", ""])
    assert code == 0
    assert "the file has empty fields" not in said


def test_the_form_of_a_key_is_an_answer():
    frame = FRAME[["patient_id", "sex"]]
    schema = answered(frame, "", "", "i P-####", "i x#")[0].schema
    assert schema["patient_id"] == Identifier("patient_id", pattern="P-####")
    assert list(schema["sex"].keys(np.arange(1, 3))) == ["x1", "x2"]
    assert "one run of #" in answered(frame, "", "", "i ##-##", "q", "")[1].text


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_commands_that_follow_protect_the_persons_that_were_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    visits(2000).to_csv("visits.csv", index=False)
    answers = ["", "Patient-Nr", "", "", "x", "", ""]
    said, code = on_pty(["schema", "visits.csv", "--missing", "-99", "--missing", "999"], answers)
    assert code == 0
    fit, report = said.rstrip().splitlines()[-2:]
    assert "--unit Patient-Nr --drop name --epsilon 1" in fit
    assert "--unit Patient-Nr --drop name --card card.json" in report
    assert main(fit.replace("--epsilon 1", "--epsilon 8").split()[1:]) == 0
    assert list(pd.read_csv("synthetic.csv")) == ["score", "age", "ill"]
    assert main(report.split()[1:]) == 0


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
def test_a_first_run_on_a_terminal_is_three_commands(table):
    said, code = on_pty(["schema", "data.csv"], ANSWERS)
    assert code == 0
    assert "schema of 7 columns written to schema.json" in said
    assert isinstance(Schema.load("schema.json")["ward"], Categorical)
    fit, report = said.rstrip().splitlines()[-2:]
    assert fit.startswith(
        "  skdpgen synthesize data.csv --schema schema.json --target ill --drop note,site --epsilon 1"
    )
    assert "skdpgen report data.csv synthetic.csv" in report
    assert main(fit.split()[1:]) == 0
    assert list(pd.read_csv("synthetic.csv")) == [name for name in FRAME if name not in ("note", "site")]


def test_a_file_that_exists_is_replaced_by_consent_alone_and_ctrl_d_writes_nothing(table):
    open("schema.json", "w").close()
    said, code = on_pty(["schema", "data.csv"], ["", "", "q", "", "\x04"])
    assert code == 2
    assert "schema.json exists" in said
    assert "no schema was written" in said
    assert os.path.getsize("schema.json") == 0
    assert on_pty(["schema", "data.csv"], ["", "", "q", "", "other.json"])[1] == 0
    assert len(Schema.load("other.json")) == len(FRAME.columns)
