"""The instrument: cells, resuming, what a line tells, verified epsilons, and the published numbers beside ours."""

from __future__ import annotations

import inspect
import json
import math
import sys
from types import ModuleType

import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from benchmarks import BENCHMARKS, Benchmark, run_benchmark
from benchmarks.runner import Meter, cells_of
from benchmarks.summary import summary
from skdpgen import datasets
from skdpgen.__main__ import main
from skdpgen.exceptions import BenchmarkError

# breast cancer has few rows for so many columns
pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")


@pytest.fixture
def small_tables(monkeypatch):
    # breast cancer in Adult's place, and one classifier in the place of four
    bunch = datasets.load_breast_cancer_table()
    loads = []

    def load(data_dir=None):
        loads.append(data_dir)
        return Bunch(**bunch)

    for name in ("load_adult", "load_esr"):
        monkeypatch.setattr(datasets, name, load)
    one = {"logistic_regression": LogisticRegression(max_iter=1000)}
    for where in ("skdpgen.metrics._tstr", "benchmarks.tables"):
        monkeypatch.setattr(f"{where}.protocol_classifiers", lambda: one)
    return loads


@pytest.fixture
def counted(monkeypatch):
    """A benchmark of two results a cell, the calls of which are counted; the second result may fail."""
    calls, room = [], ModuleType("benchmarks.counted")
    room.fails = False

    def function(models=("a", "b"), *, seeds=(0, 1), epsilon=1.0, data=None, figure=None, quick=False):
        calls.append((models, seeds, epsilon))
        for model in models:
            for seed in seeds:
                yield {"model": model, "seed": seed, "step": 1, "score": epsilon}
                if room.fails:
                    raise RuntimeError("stopped")
                yield {"model": model, "seed": seed, "step": 2, "score": epsilon + seed}

    room.function = function
    monkeypatch.setitem(sys.modules, room.__name__, room)
    options = ("models", "seeds", "epsilon", "data", "figure", "quick")
    benchmark = Benchmark("counted", "a test", "counted:function", options=options, figures=("score",))
    monkeypatch.setitem(BENCHMARKS, "counted", benchmark)
    return Bunch(calls=calls, room=room, benchmark=benchmark)


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_tells_what_was_run_what_it_cost_and_the_verified_epsilon(small_tables, tmp_path, capsys):
    file = tmp_path / "results.jsonl"
    arguments = ["bench", "adult", "--models", "real data", "P3GMSynthesizer", "--seeds", "3"]
    assert main([*arguments, "--epsilon", "2", "--output", str(file)]) == 0
    real, ours = lines = _lines(file)
    assert [line["model"] for line in lines] == ["real data", "P3GMSynthesizer"]
    for line in lines:
        assert line["data"] == "adult"
        assert line["seed"] == 3
        assert line["complete"]
        assert line["seconds"] > 0
        assert line["peak_mib"] > 10
        assert {"python", "skdpgen", "scikit-learn", "numpy", "torch"} <= set(line["versions"])
        assert 0 <= line["auprc"] <= 1
        assert 0 <= line["two_way_tvd"] <= 1
    assert real["epsilon"] is None
    assert ours["epsilon_asked"] == 2.0
    assert 1.9 < ours["epsilon"] <= 2.0
    out = capsys.readouterr().out
    rows = {row.split("|")[1].strip(): row for row in out.splitlines() if row.startswith("| ")}
    assert f"{ours['auroc']:.4g}" in rows["adult P3GMSynthesizer at epsilon 2"]  # what is published is at 1
    assert not any("published" in row or "0.8214" in row for row in rows.values())


def test_a_fit_without_privacy_says_so(small_tables, tmp_path):
    file = tmp_path / "results.jsonl"
    for _ in range(2):
        (result,) = run_benchmark("adult", seeds=(0,), epsilon=math.inf, output=file)
        assert result["epsilon"] == "inf"
    assert len(_lines(file)) == 1


def test_finished_cells_are_read_by_every_benchmark_that_has_them(small_tables, tmp_path, capsys):
    file = tmp_path / "results.jsonl"
    options = {"models": ("MomentSynthesizer",), "output": file}
    (first,) = run_benchmark("adult", seeds=(0,), **options)
    loads = len(small_tables)
    with file.open("a") as lines:
        lines.write('{"benchmark": "adult", "cell": {"run": "tab')  # of a killed process
    again = run_benchmark("adult", seeds=(0, 1), **options)
    assert len(small_tables) == loads + 1
    assert [result["seed"] for result in again] == [0, 1]
    assert again[0] == first
    capsys.readouterr()
    shown = run_benchmark("table8", only_finished=True, **options)
    assert [(result["data"], result["seed"]) for result in shown] == [("adult", 0), ("adult", 1)]
    assert len(small_tables) == loads + 1
    out = capsys.readouterr().out
    assert "(2 seeds)" in out
    assert "0.0752" in out
    assert "esr" not in out


def test_a_cell_that_was_stopped_is_run_again_as_a_whole(counted, tmp_path):
    file = tmp_path / "results.jsonl"
    counted.room.fails = True
    with pytest.raises(BenchmarkError, match=r"^1 of 1 cells failed$"):
        run_benchmark("counted", models=("a",), seeds=(0,), output=file)
    assert [line["complete"] for line in _lines(file)] == [False]
    counted.room.fails = False
    for _ in range(2):
        results = run_benchmark("counted", models=("a",), seeds=(0,), output=file)
        assert [result["step"] for result in results] == [1, 2]
    assert len(counted.calls) == 2
    assert [line["complete"] for line in _lines(file)] == [False, False, True]


def test_lists_are_taken_one_by_one_unless_a_figure_needs_them_together(counted):
    cells = list(cells_of(counted.benchmark, {"epsilon": [1.0, 2.0]}))
    assert len(cells) == 8
    assert {cell.arguments["models"] for cell in cells} == {("a",), ("b",)}
    assert {cell.arguments["epsilon"] for cell in cells} == {1.0, 2.0}
    (whole,) = cells_of(counted.benchmark, {"figure": "f.png"})
    assert whole.arguments["models"] == ("a", "b")
    assert whole.arguments["seeds"] == (0, 1)
    assert "figure" not in whole.key
    assert whole.key["epsilon"] == 1.0


def test_the_folder_of_the_data_makes_no_other_cell_and_a_budget_does(counted):
    def keys(**options):
        return [cell.key for cell in cells_of(counted.benchmark, options)]

    assert keys(data="here") == keys(data="there") != keys(epsilon=2.0)


def test_quick_arguments_stand_in_for_the_declared_ones_and_yield_to_the_callers():
    cells = list(cells_of(BENCHMARKS["table6"], {"quick": True}))
    assert {cell.arguments["rows"] for cell in cells} == {3_000}
    assert {cell.arguments["seeds"] for cell in cells} == {(0,)}
    assert {cell.arguments["table"] for cell in cells} == {"adult", "esr", "isolet", "credit"}
    cells = list(cells_of(BENCHMARKS["table6"], {"quick": True, "seeds": (4,), "models": ("PGM",)}))
    assert {(cell.arguments["seeds"], cell.arguments["models"]) for cell in cells} == {((4,), ("PGM",))}


def test_every_benchmark_can_be_taken_apart_and_all_has_every_table_and_figure():
    for name, benchmark in BENCHMARKS.items():
        if benchmark.parts:
            assert all(part in BENCHMARKS for part in benchmark.parts)
            continue
        cells = list(cells_of(benchmark, {"quick": True} if "quick" in benchmark.options else {}))
        assert cells, name
        json.dumps([cell.key for cell in cells])
    tables = [f"table{n}" for n in (5, 6, 7, 8)]
    figures = [f"figure{n}" for n in (2, 4, 5, 6, 7, 8, 9)]
    assert [*tables, *figures, "step", "scale"] == list(BENCHMARKS["all"].parts)


def test_every_option_reaches_the_function_of_its_benchmark():
    for benchmark in BENCHMARKS.values():
        if benchmark.parts:
            continue
        taken = set(inspect.signature(benchmark.function()).parameters)
        taken |= ({"figure"} if benchmark.draw else set()) | ({"quick"} if benchmark.quick else set())
        assert set(benchmark.options) | set(benchmark.axes) <= taken, benchmark.name


def test_parts_get_the_options_that_they_take_and_their_own_figure(counted, monkeypatch, tmp_path, capsys):
    drawn = Benchmark(
        "drawn", "a test", "counted:function", options=("seeds", "figure"), figures=("score",), draw="counted:draw"
    )
    counted.room.draw = lambda results, path: _write(path, results)
    monkeypatch.setitem(BENCHMARKS, "drawn", drawn)
    options = ("models", "seeds", "figures")
    both = Benchmark("both", "a test", "", options=options, parts=("counted", "drawn"))
    monkeypatch.setitem(BENCHMARKS, "both", both)
    results = run_benchmark("both", models=("a",), seeds=(0,), figures=tmp_path / "figures")
    assert [result["benchmark"] for result in results] == ["counted"] * 2 + ["counted"] * 2 + ["drawn"] * 2
    assert (tmp_path / "figures" / "drawn.png").read_text() == "4"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("nowhere/f.png", FileNotFoundError, "no folder"),
        ("f.txt", ValueError, "must end in"),
        ("f", ValueError, "must end in"),
    ],
)
def test_a_figure_that_could_not_be_written_is_refused_before_the_first_fit(counted, tmp_path, name, error, message):
    with pytest.raises(error, match=message):
        run_benchmark("counted", figure=tmp_path / name)
    assert counted.calls == []


def _write(path, results):
    with open(path, "w", encoding="utf-8") as file:
        file.write(str(len(results)))


def test_published_figures_stand_in_the_row_they_belong_to_or_in_their_own():
    benchmark = Benchmark(
        "b", "", "", figures=(("a.score", "score"),), group_by=("data", "model"),
        published={("x", "ours"): {"a.score": 0.25}, ("x", "theirs"): {"a.score": 0.5}, ("y", "ours"): {"a.score": 1}},
    )  # fmt: skip
    results = [{"data": "x", "model": "ours", "a": {"score": value}} for value in (0.7, 0.9)]
    alike = [{"data": "x", "model": "ours", "a": {"score": value}} for value in (1.0, 1.0 - 1e-12)]
    assert summary(benchmark, alike).splitlines()[2] == "| x ours (2 seeds) | 1 | 0.25 |"
    assert summary(benchmark, results).splitlines() == [
        "|  | score | published |",
        "| --- | --- | --- |",
        "| x ours (2 seeds) | 0.8 ± 0.14 | 0.25 |",
        "| x theirs, published |  | 0.5 |",
    ]


def test_budgets_are_not_averaged():
    benchmark = Benchmark("b", "", "", figures=("score",), published={("ours",): {"score": 0.25}})
    results = [{"model": "ours", "score": value, "cell": {"epsilon": value}} for value in (1.0, 10.0)]
    assert summary(benchmark, results).splitlines()[2:] == [
        "| ours at epsilon 1 | 1 | 0.25 |",
        "| ours at epsilon 10 | 10 | 0.25 |",
    ]


def test_published_figures_stand_beside_results_at_their_budget_alone():
    known = {("ours",): {"score": 0.25}, ("theirs",): {"score": 0.5}}
    benchmark = Benchmark("b", "", "", figures=("score",), published=known, published_at=1.0)

    def rows(*budgets):
        results = [{"model": "ours", "score": value, "cell": {"epsilon": value}} for value in budgets]
        return summary(benchmark, results).splitlines()

    assert rows(1.0)[2:] == ["| ours | 1 | 0.25 |", "| theirs, published |  | 0.5 |"]
    assert rows(10.0) == ["|  | score |", "| --- | --- |", "| ours at epsilon 10 | 10 |"]
    assert rows(1.0, 10.0)[2:] == [
        "| ours at epsilon 1 | 1 | 0.25 |",
        "| ours at epsilon 10 | 10 |  |",
        "| theirs, published |  | 0.5 |",
    ]
    development = [{"model": "ours", "score": 1.0, "development": True, "cell": {"epsilon": 1.0}}]
    assert summary(benchmark, development).splitlines() == ["|  | score |", "| --- | --- |", "| ours | 1 |"]


def test_options_and_files_that_do_not_fit_are_refused(counted):
    with pytest.raises(ValueError, match="takes no fly"):
        run_benchmark("counted", fly=1)
    with pytest.raises(ValueError, match="benchmark must be one of"):
        run_benchmark("fly")
    with pytest.raises(ValueError, match="name it"):
        run_benchmark("counted", only_finished=True)


def test_peak_memory_is_that_of_the_lap():
    meter = Meter()
    block = bytearray(120 << 20)
    large = meter.lap()["peak_mib"]
    del block
    assert large > 120
    assert math.isfinite(meter.lap()["seconds"])


def test_help_shows_every_benchmark_as_it_is_written(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "option_strings" not in shown
    for benchmark in BENCHMARKS.values():
        assert "".join(benchmark.summary.split()) in shown.replace(" ", ""), benchmark.name


def test_a_line_of_before_a_parameter_was_added_is_a_run_with_its_default(counted, tmp_path):
    file = tmp_path / "results.jsonl"
    run_benchmark("counted", output=file)
    lines = _lines(file)
    for line in lines:
        del line["cell"]["epsilon"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    counted.calls.clear()
    assert len(run_benchmark("counted", output=file)) == 8
    assert not counted.calls
    run_benchmark("counted", output=file, epsilon=2.0)
    assert len(counted.calls) == 4
    # seeds are taken one by one: a line without one says nothing of which it was
    for line in lines:
        del line["cell"]["seeds"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    counted.calls.clear()
    run_benchmark("counted", output=file)
    assert len(counted.calls) == 4
