"""`skdpgen budget` and `skdpgen audit`."""

import contextlib
import io
import json
import os
import tempfile

import numpy as np
import pandas as pd
import pytest
from _command_line import refused

from skdpgen import PrivacyCard, Schema
from skdpgen.__main__ import main
from skdpgen.tabular import Boolean, Categorical, Datetime, Numeric

pytestmark = pytest.mark.usefixtures("short_fits")

SCHEMA = Schema(
    [
        Numeric("age", (17, 90), integer=True),
        Numeric("height"),
        Categorical("sex", ("f", "m")),
        Categorical("town"),
        Boolean("member"),
        Datetime("since"),
    ]
)


def test_a_table_is_planned_from_its_schema_alone(tmp_path, capsys):
    SCHEMA.save(tmp_path / "s.json")
    assert main(["budget", "--schema", str(tmp_path / "s.json"), "--target", "sex", "--rows", "5000"]) == 0
    shown = capsys.readouterr().out
    assert "moments" in shown
    assert "assumed: 5000 rows; 10 categories in a column of learned categories; " in shown
    assert "errors of counts are at most these" in shown
    assert "add_or_remove_one: epsilon 1 at delta 1e-05" in shown
    assert "rows in the noise" not in shown
    kinds = [line.split("  ")[0] for line in shown.splitlines()]
    for kind in ("learned category", "declared category", "number", "date", "declared target"):
        assert kind in kinds
    assert "nothing was charged" in shown


@pytest.mark.parametrize("epsilons", ["0.5", "0.5,0.6"])
def test_an_empty_field_of_counts_of_two_columns_is_explained(tmp_path, capsys, epsilons):
    SCHEMA.save(tmp_path / "s.json")
    for rows, absent in (("300", True), ("500000", False)):
        command = ["budget", "--schema", str(tmp_path / "s.json"), "--rows", rows, "--epsilon", epsilons]
        assert main(command) == 0
        assert ('nothing under "of two columns": these counts are not released' in capsys.readouterr().out) == absent


@pytest.mark.parametrize(("short", "long"), [("p3gm", "P3GMSynthesizer"), ("moment", "MomentSynthesizer")])
def test_a_model_is_named_in_short_or_by_its_class(tmp_path, capsys, monkeypatch, short, long):
    monkeypatch.chdir(tmp_path)
    Schema([Numeric("age", (17, 90), integer=True)]).save("s.json")
    pd.DataFrame({"age": range(18, 88)}).to_csv("t.csv", index=False)
    plans, models = [], []
    for name in (short, long):
        assert main(["budget", "--schema", "s.json", "--model", name]) == 0
        plans.append(capsys.readouterr().out)
        fit = ["synthesize", "t.csv", "--schema", "s.json", "--model", name, "--output", "o.csv", "--card", "c.json"]
        assert main(fit) == 0
        models.append(PrivacyCard.load("c.json")["model"]["name"])
        capsys.readouterr()
    assert plans[0] == plans[1]
    assert long in plans[0]
    assert models == [long, long]


@pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
@pytest.mark.parametrize("model", ["moment", "p3gm"])
def test_a_plan_of_the_columns_that_a_fit_reads_is_that_of_the_fit(tmp_path, capsys, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 90, 400), "town": rng.choice(["a", "b"], 400), "empty": "x"})
    frame.assign(who=np.arange(400) // 2, site="y").to_csv("t.csv", index=False)
    Schema([Numeric("age", (17, 90), integer=True), Categorical("town"), Categorical("empty")]).save("s.json")
    columns = ["--schema", "s.json", "--only-schema-columns", "--unit", "who", "--max-rows-per-unit", "2"]
    plans = []
    for drop in ([], ["--drop", "empty"], ["--drop", "empty,town"]):
        given = ["t.csv", *columns, *drop, "--model", model]
        assert main(["budget", *given, "--rows", "400", "--json"]) == 0
        planned = [phase["noise_multiplier"] for phase in json.loads(capsys.readouterr().out)["phases"]]
        assert main(["synthesize", *given, "--output", "o.csv", "--card", "c.json"]) == 0
        capsys.readouterr()
        charged = PrivacyCard.load("c.json")["ledger"]["charges"][0]["event"]["events"]
        released = [event["noise_multiplier"] for event in charged if "noise_multiplier" in event]
        assert planned == pytest.approx(released)
        plans.append(planned)
    assert plans[0] != plans[1] != plans[2]
    Schema.load("s.json").select(["age", "empty"]).save("two.json")
    shown = []
    for given in (["s.json", "--drop", "town"], ["two.json"], ["s.json"]):  # without a file
        assert main(["budget", "--schema", *given]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]
    assert "no column 'who'; the schema has " in refused(capsys, "budget", "--schema", "s.json", "--drop", "who")
    assert "names the target" in refused(capsys, "budget", "t.csv", "--drop", "age", "--target", "age")
    assert "needs --schema" in refused(capsys, "budget", "t.csv", "--only-schema-columns")
    mixed = Schema.load("two.json").to_dict()
    mixed["columns"][0]["name"] = 3
    (tmp_path / "mixed.json").write_text(json.dumps(mixed))
    assert "write all names as text" in refused(capsys, "budget", "--schema", "mixed.json")
    assert "leave them out with --columns" in refused(capsys, "budget", "--columns", "3", "--drop", "a")


def test_a_file_and_an_array_are_planned_and_drawn(tmp_path, capsys):
    pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]}).to_csv(tmp_path / "t.csv", index=False)
    assert main(["budget", str(tmp_path / "t.csv"), "--epsilon", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == pytest.approx(2.0, rel=1e-3)
    plot = tmp_path / "plan.png"
    command = ["budget", "--columns", "4", "--model", "DPPCA", "--set", "n_components=2", "--plot", str(plot)]
    assert main(command) == 0
    assert plot.exists()


def test_the_plan_of_a_file_follows_from_its_columns_alone():
    """It is shown, and perhaps published, and nothing is charged for it: the number of rows is what the caller says."""
    shown = {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.csv")
        for n_rows, scale in ((3, 1.0), (211, 50.0)):
            frame = pd.DataFrame({"size": [scale * (k + 0.5) for k in range(n_rows)], "kind": ["x"] * n_rows})
            frame.to_csv(path, index=False)
            for options in ((), ("--json",), ("--rows", "5000")):
                with contextlib.redirect_stdout(io.StringIO()) as told:
                    assert main(["budget", path, *options]) == 0
                shown.setdefault(options, set()).add(told.getvalue())
    assert all(len(texts) == 1 for texts in shown.values())
    assert "10000 rows" in shown[()].pop()
    assert "5000 rows" in shown["--rows", "5000"].pop()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["budget"], "give INPUT, --schema or --columns"),
        (["budget", "--columns", "0"], "--columns"),
        (["budget", "--columns", "3", "--model", "Nothing"], "--model must be one of"),
        (["budget", "--columns", "3", "--model", "PrivateSearchCV"], "--model must be one of"),
        (["budget", "--columns", "3", "--set", "epsilon"], "NAME=VALUE"),
        (["budget", "--columns", "3", "--set", "nothing=1"], "no parameter nothing"),
        (["audit", "Nothing"], "MODEL must be one of"),
        (["audit", "DPPCA", "--epsilon", "1", "--runs", "20"], "the audit cannot test a claim of epsilon 1"),
        (["audit", "DPPCA", "--columns", "0"], "--columns"),
        (["audit", "DPPCA", "--set", "nothing=1"], "DPPCA has no parameter nothing"),
        (["audit", "DPPCA", "--rows", "0"], "--rows"),
        (["audit", "DPPCA", "--fits", "2"], "n_runs must be a whole number of at least 2"),
        (["audit", "DPPCA", "--noise-scale", "0.5"], "noise_scale"),
        (["audit", "DPNet", "--set", "lr=1"], "DPNet has no parameter lr here"),
        (["audit", "DPNet", "--canaries", "5"], "canaries"),
        (["audit", "DPNet", "--runs", "50", "--method", "counts"], "--runs, --method has no effect here"),
        (["audit", "DPNet", "--fits", "40", "--learned"], "--learned has no effect here"),
        (["audit", "DPNet", "--plan"], "--plan has no effect here"),
        (["audit", "DPPCA", "--canaries", "50"], "--canaries has no effect here"),
        (["audit", "DPPCA", "--plan", "--noise-scale", "0.5"], "--noise-scale has no effect here"),
    ],
)
def test_bad_input_is_one_line_on_stderr(arguments, message, capsys):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_an_audit_tells_its_cost_and_its_result(capsys):
    assert main(["audit", "DPPCA", "--plan", "--runs", "100"]) == 0
    assert "100 runs with the canary and as many without (202 fits), about" in capsys.readouterr().out
    assert main(["audit", "DPPCA", "--plan", "--runs", "100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_fits"] == 202
    assert main(["audit", "DPPCA", "--method", "scale", "--runs", "8", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["broken"] is False
    assert result["epsilon_lower"] > 2


def test_several_models_are_audited_a_line_each(capsys):
    command = ["audit", "DPPCA", "DPVAESynthesizer", "DP2VAESynthesizer", "--runs", "3", "--method", "scale"]
    assert main([*command, "--set", "n_components=1"]) == 0
    pca, vae, subsets = capsys.readouterr().out.splitlines()
    assert "DPPCA(" in pca
    assert "3 runs judged, 12 fits" in pca
    assert "sampling_rate=1.0, steps=1" in vae
    assert "the claim stands" in vae
    assert subsets.startswith("DP2VAESynthesizer: no result: ")


def test_an_audit_at_epsilon_one_takes_seconds_and_finds_half_the_noise(capsys):
    command = ["audit", "DPPCA", "--epsilon", "1", "--fits", "60"]
    assert main([*command, "--plan"]) == 0
    assert "(64 fits)" in capsys.readouterr().out
    assert main([*command, "--confidence", "0.999999"]) == 0
    out = capsys.readouterr().out
    assert "mu is at least" in out
    assert "of 0.2681 claimed" in out
    assert "the claim stands" in out
    assert main([*command, "--noise-scale", "0.5"]) == 0
    assert "the claim is REFUTED" in capsys.readouterr().out


def test_what_is_learned_is_audited_too(capsys):
    assert main(["audit", "MomentSynthesizer", "--learned", "--fits", "4", "--epsilon", "1", "--json"]) == 0
    details = json.loads(capsys.readouterr().out)["details"]
    assert 0.98 < details["mu_added"] / details["mu_claimed"] <= 1 + 1e-6


@pytest.mark.parametrize("groups", [[], ["--set", "n_groups=500", "--set", "group_bound=0.01"]])
def test_dp_sgd_is_audited_by_one_training(groups, capsys):
    command = ["audit", "DPNet", "--epsilon", "4", "--canaries", "1000", *groups]
    assert main([*command, "--confidence", "0.999999"]) == 0
    out = capsys.readouterr().out
    assert "the claim stands" in out
    assert "by guesses alone" in out
    assert main([*command, "--noise-scale", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["broken"] is True


def test_the_noise_for_persons_is_compared_with_group_privacy(tmp_path, capsys):
    pd.DataFrame({"pid": [1, 1, 2], "a": [1.0, 2.0, 3.0]}).to_csv(tmp_path / "t.csv", index=False)
    command = ["budget", str(tmp_path / "t.csv"), "--unit", "pid", "--max-rows-per-unit", "1,4"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "protected: all rows of one pid, at most 1 of them used" in shown
    assert "group privacy" in shown
    assert main([*command, "--json"]) == 0
    one, four = json.loads(capsys.readouterr().out)["units"]
    assert one["rows"] == one["units"] == pytest.approx(one["group_privacy"])
    assert four["rows"] == pytest.approx(4 * one["rows"])
    assert (four["units"], four["group_privacy"] > four["rows"]) == (one["units"], True)
    SCHEMA.save(tmp_path / "s.json")
    for source in (["--schema", str(tmp_path / "s.json")], ["--columns", "3"]):
        assert main(["budget", *source, *command[2:]]) == 0
    capsys.readouterr()
    assert main(command[:4]) == 0  # learned: the comparison says what several numbers would mean
    shown = capsys.readouterr().out
    assert "a learned number of them used at most (here: 5)" in shown
    assert [line.split()[0] for line in shown.splitlines() if line[:2].strip().isdigit()] == list("12358") + ["13"]


def test_dp_sgd_is_audited_by_many_trainings(capsys):
    """Of few groups, of which one training among many canaries shows nothing."""
    command = ["audit", "DPNet", "--epsilon", "4", "--set", "n_groups=16", "--set", "group_bound=0.1"]
    assert main([*command, "--fits", "40", "--confidence", "0.999999"]) == 0
    out = capsys.readouterr().out
    assert "the claim stands" in out
    assert "by the shift alone" in out
    assert main([*command, "--fits", "60", "--noise-scale", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["broken"] is True


@pytest.mark.parametrize("command", ["audit DPPCA", "budget --columns 3"])
def test_an_epsilon_out_of_range_is_refused_in_the_words_of_the_command_line(capsys, command):
    assert "--epsilon must be from 1e-06 to 1000; got 0" in refused(capsys, *command.split(), "--epsilon", "0")


def test_a_plan_of_kinds_inferred_from_values_is_for_the_data_holder_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pd.DataFrame({"age": range(40, 60), "ill": ["no", "yes"] * 10}).to_csv("rows.csv", index=False)
    command = ["budget", "rows.csv", "--rows", "4000"]
    assert main(command) == 0
    assert "one row can change them, and so this plan" in capsys.readouterr().err
    assert main(["schema", "rows.csv", "--no-questions", "--output", "schema.json"]) == 0
    capsys.readouterr()
    assert main([*command, "--schema", "schema.json"]) == 0
    assert "one row can change" not in capsys.readouterr().err


def test_several_epsilons_are_compared_in_one_table(tmp_path, capsys):
    columns = [Numeric("age", (18, 80)), Categorical("sex", ("f", "m")), Categorical("town")]
    Schema(columns).save(tmp_path / "s.json")
    command = ["budget", "--schema", str(tmp_path / "s.json"), "--rows", "500"]
    assert main([*command, "--epsilon", "1,3,10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split() for line in lines if "number" in line]
    assert [line[0] for line in shown] == ["1", "3", "10"]
    errors = [float(line[4]) for line in shown]
    assert errors[0] > 2 * errors[1] > 4 * errors[2] > 0
    assert main([*command, "--epsilon", "3", "--json"]) == 0
    (number,) = [row for row in json.loads(capsys.readouterr().out)["counts"] if row["kind"] == "number"]
    assert errors[1] == pytest.approx(number["one_way_error"], rel=0.01)
    assert main([*command, "--epsilon", "1,3", "--json"]) == 0
    assert [plan["epsilon"] for plan in json.loads(capsys.readouterr().out)["plans"]] == pytest.approx([1, 3], rel=1e-3)
    assert main(["budget", "--columns", "20", "--epsilon", "1,3"]) == 0
    assert capsys.readouterr().out.count("moments") == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epsilon", "1,0"], "--epsilon must be from 1e-06 to 1000; got 0"),
        (["--epsilon", "1,2", "--plot", "plan.png"], "--plot shows one epsilon"),
        (["--epsilon", "1,2", "--unit", "id", "--max-rows-per-unit", "1,2"], "--max-rows-per-unit then takes one"),
    ],
)
def test_epsilons_that_cannot_be_compared_are_refused(capsys, options, said):
    assert said in refused(capsys, "budget", "--columns", "3", *options)


def test_a_plan_of_an_array_model_by_a_schema_is_refused_with_the_option_to_give(tmp_path, capsys):
    Schema([Numeric("age", (0, 120))]).save(tmp_path / "s.json")
    said = refused(capsys, "budget", "--model", "DPPCA", "--schema", str(tmp_path / "s.json"))
    assert "DPPCA is for arrays of numbers: leave --schema out, and give --columns K" in said
    assert "--rows must be positive; got 0" in refused(capsys, "budget", "--columns", "3", "--rows", "0")


def test_an_epsilon_that_is_no_number_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["budget", "--columns", "3", "--epsilon", "1,x"])
    assert "--epsilon: must be a number, or numbers separated by commas; got '1,x'" in capsys.readouterr().err
