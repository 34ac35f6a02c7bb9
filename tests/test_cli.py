"""The command line, run in this process: exit code, the one line on stderr, and the files it writes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import _command_line
import numpy as np
import pandas as pd
import pytest
from _command_line import FRAME, refused

import skdpgen
from skdpgen import P3GMSynthesizer, PrivacyAccountant, Schema
from skdpgen.__main__ import main
from skdpgen.data import table_reading
from skdpgen.exceptions import PrivacyLeakWarning
from skdpgen.tabular import Boolean, Categorical, Numeric

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]
table = _command_line.table

SCHEMA = Schema(
    [
        Numeric("age", (18, 80), integer=True, missing=True, dtype="Int64"),
        Numeric("pay", (0, 5000), missing=True, dtype="Float64", decimals=2),
        Categorical("town", ("north", "south"), missing=True, dtype="string"),
        Boolean("ill", missing=True, dtype="boolean"),
    ]
)


def test_synthesize_fits_the_model_asked_for(table, capsys):
    command = (
        "synthesize table.csv --kinds-from-values --model moment --epsilon 4 --target ill --rows 30 --output out.csv"
    )
    assert main([*command.split(), "--save-model", "m.safetensors"]) == 0
    assert "MomentSynthesizer" in capsys.readouterr().out
    assert list(pd.read_csv("out.csv").columns) == list(FRAME.columns)
    assert isinstance(skdpgen.load("m.safetensors"), skdpgen.MomentSynthesizer)


def test_without_a_number_synthesize_writes_as_many_rows_as_were_released(table):
    command = "synthesize table.csv --kinds-from-values --model moment --epsilon 0.5 --output out.csv"
    assert main([*command.split(), "--save-model", "m.safetensors"]) == 0
    assert len(pd.read_csv("out.csv")) == max(1, round(skdpgen.load("m.safetensors").row_count_))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_synthesize_writes_rows_card_and_model_and_prints_the_ledger(table, capsys, kind, tmp_path):
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        FRAME.to_parquet("table.parquet")
    code = main(
        f"synthesize table.{kind} {'--kinds-from-values' if kind == 'csv' else ''} --epsilon 4 --target ill --rows 50 "
        f"--seed 0 --output out.{kind} --card card.json --save-model model.safetensors".split()
    )
    assert code == 0
    out = capsys.readouterr().out
    assert f"50 synthetic rows written to out.{kind}" in out
    assert "P3GMSynthesizer" in out
    assert "spent epsilon 4.0000 of 4" in out
    drawn = pd.read_csv("out.csv") if kind == "csv" else pd.read_parquet("out.parquet")
    assert list(drawn.columns) == list(FRAME.columns)
    assert len(drawn) == 50
    card = json.loads((tmp_path / "card.json").read_text())
    assert card["fit"]["epsilon"] == pytest.approx(4, rel=1e-3)
    told = [text for text in card["public_assumptions"] if "read from the values of the CSV file" in text]
    assert bool(told) == (kind == "csv")
    assert len(skdpgen.load("model.safetensors").sample(3)) == 3
    assert main(f"sample model.safetensors --rows 7 --seed 1 --output more.{kind}".split()) == 0
    assert f"7 synthetic rows written to more.{kind}" in capsys.readouterr().out


def test_a_schema_and_a_text_for_missing_values_are_used(table, tmp_path):
    SCHEMA.save("schema.json")
    command = (
        "synthesize table.csv --schema schema.json --missing ? --epsilon 9 --rows 400 --output out.csv --card c.json"
    )
    assert main(command.split()) == 0
    drawn = pd.read_csv("out.csv", keep_default_na=False)
    assert set(drawn["town"]) == {"north", "south", "?"}  # the mark of the file is written back
    assert drawn["town"].eq("?").mean() == pytest.approx(1 / 3, abs=0.15)
    card = json.loads((tmp_path / "c.json").read_text())
    assert any(text.startswith("schema") for text in card["public_assumptions"])


def test_a_ledger_is_made_charged_and_kept(table, capsys):
    command = [
        "synthesize",
        "table.csv",
        "--kinds-from-values",
        "--output",
        "out.csv",
        "--ledger",
        "budget.db",
        "--neighboring",
        "replace_one",
    ]
    assert main([*command, "--epsilon", "1", "--budget", "2.5", "--delta", "1e-6"]) == 0
    # the relation and delta of the books that are there
    assert (
        main(
            [
                "synthesize",
                "table.csv",
                "--kinds-from-values",
                "--output",
                "out.csv",
                "--ledger",
                "budget.db",
                "--epsilon",
                "1",
            ]
        )
        == 0
    )
    books = PrivacyAccountant(ledger="budget.db")
    assert (books.epsilon, books.delta, books.neighboring) == (2.5, 1e-6, "replace_one")
    assert len(books.charges) == 2
    capsys.readouterr()
    line = refused(
        capsys,
        *[
            "synthesize",
            "table.csv",
            "--kinds-from-values",
            "--output",
            "out.csv",
            "--ledger",
            "budget.db",
            "--epsilon",
            "2",
        ],
    )
    assert "nothing was charged" in line
    assert "must match accountant.neighboring" in refused(
        capsys,
        *[
            "synthesize",
            "table.csv",
            "--kinds-from-values",
            "--output",
            "o.csv",
            "--ledger",
            "budget.db",
            "--neighboring",
            "add_or_remove_one",
        ],
    )
    assert "is not the budget of budget.db, which is 2.5" in refused(
        capsys,
        *[
            "synthesize",
            "table.csv",
            "--kinds-from-values",
            "--output",
            "o.csv",
            "--ledger",
            "budget.db",
            "--budget",
            "9",
        ],
    )
    assert len(books.charges) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--epsilon 0", "--epsilon must be from 1e-06 to 1000; got 0"),
        ("--epsilon -1", "--epsilon must be from 1e-06 to 1000; got -1"),
        ("--epsilon nan", "epsilon"),
        ("--delta 0", "delta"),
        ("--delta 1.5", "--delta must be from 1e-100 to 0.1; got 1.5"),
        ("--target nobody", "'nobody' is not a column"),
        ("--rows 0", "--rows must be positive"),
        ("--schema nowhere.json", "nowhere.json"),
        ("--schema table.csv", "not JSON"),
        ("--schema other.json", "not in the frame"),
        ("--schema narrow.json", "not among its declared categories"),
        ("--card nowhere/card.json", "does not exist"),
        ("--output nowhere/out.csv", "does not exist"),
        ("--output .", "is a folder"),
        ("--save-model model.pkl", "must end in .safetensors"),
        ("--seed -5", "random_state"),
        ("--budget 3", "--budget is the epsilon of a ledger"),
    ],
)
def test_bad_arguments_are_one_line_and_charge_nothing(table, capsys, tmp_path, arguments, message):
    PrivacyAccountant(50.0, ledger="books.db")
    Schema([Numeric("height", (0, 3))]).save("other.json")
    Schema([Categorical("town", ("north", "south"), missing=True, dtype="string")]).save("narrow.json")
    ledger = [] if "--budget" in arguments else ["--ledger", "books.db"]
    line = refused(
        capsys, "synthesize", table, "--kinds-from-values", "--output", "out.csv", *ledger, *arguments.split()
    )
    assert re.search(message, line), line
    assert line.endswith("nothing was charged") or arguments not in ("--schema other.json", "--schema narrow.json")
    assert not PrivacyAccountant(ledger="books.db").charges
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    "arguments", ["", "synthesize", "synthesize t.csv", "fly", "bench fly", "bench step --seeds x"]
)
def test_argument_errors_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments.split())
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--epsilon abc", "skdpgen: --epsilon must be a number; got 'abc'; usage: skdpgen synthesize --help"),
        ("--rows 1.5", "skdpgen: --rows must be a whole number; got '1.5'; usage: skdpgen synthesize --help"),
    ],
)
def test_a_number_that_is_none_is_one_line(capsys, option, said):
    with pytest.raises(SystemExit):
        main(["synthesize", "t.csv", "--output", "o.csv", *option.split()])
    assert capsys.readouterr().err == f"{said}\n"


@pytest.mark.parametrize("command", ["sample {} --output o.csv", "verify {}", "schema {}", "report {} t.csv"])
def test_a_file_that_is_none_is_named(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    for name, said in (("nowhere", "no such file"), ("folder", "is a folder; give the name of a file")):
        assert refused(capsys, *command.format(name).split()) == f"skdpgen: {name}: {said}"


def test_what_is_no_model_is_said_with_what_writes_one(table, capsys):
    assert "table.csv: not a model file of skdpgen; skdpgen synthesize --save-model writes one" in refused(
        capsys, "sample", table, "--output", "o.csv"
    )
    assert "table.csv: not a privacy card" in refused(capsys, "report", table, table, "--card", table)


def test_bench_without_its_data_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("SKDPGEN_DATA", raising=False)
    assert main(["bench", "mnist", "--data", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.filterwarnings("default::skdpgen.exceptions.PrivacyLeakWarning")
def test_schema_reads_no_value_unless_told_to(table, capsys, tmp_path):
    assert main(["schema", table]) == 0
    schema = Schema.from_json(capsys.readouterr().out)
    assert schema.incomplete == ("age", "pay", "town")
    assert main(["schema", table, "--public", "age", "--public", "town", "--missing", "?", "--output", "s.json"]) == 0
    err = capsys.readouterr().err
    assert "PrivacyLeakWarning" in err
    assert "'age', 'town'" in err
    schema = Schema.load("s.json")
    assert schema["age"].bounds == (FRAME["age"].min(), FRAME["age"].max())
    assert schema["town"].categories == ("north", "south")
    assert schema.incomplete == ("pay",)
    assert main(["schema", table, "--public", "*"]) == 0
    assert Schema.from_json(capsys.readouterr().out).complete
    assert "not columns of the table: 'nobody'" in refused(capsys, "schema", table, "--public", "nobody")


def test_declaring_values_public_warns():
    from skdpgen.commands._questions import declare_public

    frame = pd.DataFrame(
        {
            "day": pd.to_datetime(["2020-01-01", "2021-05-01"]),
            "one": [3, 3],
            "flag": [True, False],
            "none": pd.Series([None, None], dtype="string"),
        }
    )
    schema = Schema.from_kinds(frame)
    with pytest.warns(PrivacyLeakWarning, match="'day'"):
        known = declare_public(schema, frame, ["day", "flag"])
    assert known["day"].complete
    assert declare_public(schema, frame, ["flag"]) == schema  # two values are all there can be
    for name, message in (("one", "gives no bounds"), ("none", "no value")):
        with pytest.raises(ValueError, match=message):
            declare_public(schema, frame, [name])


def test_verify_prints_what_it_recomputes_and_refuses_a_changed_card(table, capsys, tmp_path):
    synth = P3GMSynthesizer(epsilon=2.0).fit(FRAME)
    synth.card_.save("card.json")
    assert main(["verify", "card.json"]) == 0
    out = capsys.readouterr().out
    for text in ("private  yes", "delta 1e-05", "add_or_remove_one", "one row", "P3GMSynthesizer"):
        assert text in out
    told = re.search(r"fit +epsilon ([\d.]+) at", out).group(1)
    assert float(told) == pytest.approx(2.0, rel=1e-3)
    P3GMSynthesizer(epsilon=np.inf).fit(FRAME).card_.save("open.json")
    assert main(["verify", "open.json"]) == 1
    assert "private  NO" in capsys.readouterr().out
    text = (tmp_path / "card.json").read_text()
    for old, new in (
        ('"one row"', '"one table"'),
        ("add_or_remove_one", "replace_one"),
        ('"delta": 1e-05', '"delta": 1e-09'),
    ):
        (tmp_path / "changed.json").write_text(text.replace(old, new))
        assert "changed after it was written" in refused(capsys, "verify", "changed.json")
    (tmp_path / "cut.json").write_text(text[:-50])
    refused(capsys, "verify", "cut.json")
    refused(capsys, "verify", "nowhere.json")


def test_sample_refuses_what_is_no_model(table, capsys, tmp_path):
    assert "not a model file" in refused(capsys, "sample", table, "--output", "o.csv")
    refused(capsys, *["sample", "nowhere.safetensors", "--output", "o.csv"])
    P3GMSynthesizer().fit(FRAME).save("m.safetensors")
    assert "--rows must be" in refused(capsys, *["sample", "m.safetensors", "--rows", "0", "--output", "o.csv"])
    refused(capsys, *["sample", "m.safetensors", "--rows", "5", "--output", "nowhere/o.csv"])


def test_demo_writes_rows_picture_model_and_card(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    assert main(["demo", "--dataset", "breast_cancer", "--epsilon", "2", "--output", str(tmp_path / "demo")]) == 0
    out, err = capsys.readouterr()
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert names == {f"breast_cancer{suffix}" for suffix in (".csv", ".png", ".safetensors", ".card.json")}
    assert "P3GM" in out
    assert "epsilon" in out
    assert "Traceback" not in err
    assert main(["verify", str(tmp_path / "demo" / "breast_cancer.card.json")]) == 0
    assert main(["demo", "--dataset", "breast_cancer", "--epsilon", "0", "--output", str(tmp_path / "demo")]) == 2


def test_an_interrupt_says_that_the_charge_stays(table, monkeypatch, capsys):
    def stop(self, X, y=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(P3GMSynthesizer, "fit", stop)
    assert main(["synthesize", table, "--kinds-from-values", "--output", "out.csv"]) == 130
    assert "this command charged nothing, and what was charged before it stays charged" in capsys.readouterr().err


def test_an_interrupt_of_what_cannot_charge_says_that_nothing_was_charged(table, monkeypatch, capsys):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(table_reading, "read_table", stop)
    for command in ("budget", "schema"):
        options = ["--output", "s.json"] if command == "schema" else []
        assert main([command, table, *options]) == 130
        said = capsys.readouterr().err
        assert "interrupted; no" in said  # thing was charged, or schema was written
        assert "stays charged" not in said
    monkeypatch.setattr(table_reading, "check_input", stop)
    assert main(["synthesize", table, "--kinds-from-values", "--output", "out.csv"]) == 130
    assert "this command charged nothing" in capsys.readouterr().err


def test_an_interrupt_after_the_charge_says_what_was_spent(table, monkeypatch, capsys):
    def stop(self, *arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(P3GMSynthesizer, "_issue_card", stop)
    assert main(["synthesize", table, "--kinds-from-values", "--epsilon", "2", "--output", "out.csv"]) == 130
    assert "what was charged stays charged: spent epsilon 2 of 2 at delta 1e-05" in capsys.readouterr().err


def test_traceback_shows_where_an_error_was_raised(table):
    with pytest.raises(ValueError, match="nobody"):
        main(["--traceback", "synthesize", table, "--kinds-from-values", "--output", "out.csv", "--target", "nobody"])


def test_warnings_are_shown_as_before_once_a_command_is_done(table):
    import warnings

    before = warnings.showwarning
    main(["schema", table])
    assert warnings.showwarning is before


def test_an_undeclared_category_is_refused_in_the_words_of_the_command_line(table, capsys):
    Schema([Categorical("town", ("north", "south"), missing=True, dtype="string")]).save("narrow.json")
    line = refused(capsys, "synthesize", table, "--kinds-from-values", "--schema", "narrow.json", "--output", "out.csv")
    assert "--missing TEXT" in line
    assert "frame[" not in line


def test_no_bar_goes_to_a_stderr_that_is_no_terminal(table, capsys):
    assert main(["synthesize", table, "--kinds-from-values", "--epsilon", "50", "--output", "out.csv"]) == 0
    assert "step" not in capsys.readouterr().err


def test_schema_says_what_is_to_be_edited(table, capsys):
    main(["schema", table])
    assert 'Set "missing" to false' in capsys.readouterr().err


def test_bench_outside_a_checkout_says_in_one_line_where_the_benchmarks_are(monkeypatch, capsys, tmp_path):
    from skdpgen.commands import bench

    monkeypatch.setattr(bench, "_CHECKOUT", tmp_path)
    for arguments in (["adult"], ["adult", "--quick"], []):
        line = refused(capsys, "bench", *arguments)
        assert "not part of the installed package" in line
        assert "clone the repository" in line
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "--help"])
    assert stopped.value.code == 0
    assert "clone the repository" in " ".join(capsys.readouterr().out.split())


def test_the_help_text_loads_no_command_and_no_numbers():
    code = (
        "import sys, contextlib\nfrom skdpgen.__main__ import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "slow = {'numpy', 'pandas', 'benchmarks', 'skdpgen.commands.synthesize'} & set(sys.modules)\n"
        "sys.exit(f'loaded {slow}' if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in ("synthesize", "verify", "bench"))
