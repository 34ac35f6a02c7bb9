"""A run of a benchmark goes past what fails, and refuses before its first cell what cannot be run."""

from __future__ import annotations

import gc
import json
import sys
import weakref
from types import ModuleType

import pytest

from benchmarks import BENCHMARKS, Benchmark, run_benchmark
from benchmarks.models import BASELINES, MODELS
from benchmarks.peers import PEERS
from skdpgen.__main__ import main
from skdpgen.exceptions import BenchmarkError


class _Rows(list):
    """Stands for data; lists have no weak references."""


@pytest.fixture
def room(monkeypatch):
    """Benchmarks "one" of models a and b, "other" of b and c, and "both"; `raises` is what a model raises."""
    room = ModuleType("benchmarks.of_these_tests")
    room.raises, room.calls, room.drawn, room.held = {}, [], [], []

    def function(models=("a", "b"), *, seeds=(0,), figure=None):
        rows = _Rows([1, 2, 3])
        room.held.append(weakref.ref(rows))
        for model in models:
            room.calls.append(model)
            if model in room.raises:
                raise room.raises[model]
            yield {"model": model, "score": float(len(rows))}

    room.function = function
    room.draw = lambda results, path: room.drawn.append((len(results), str(path)))
    room.some, room.others = ("a", "b"), lambda: ("b", "c")
    monkeypatch.setitem(sys.modules, room.__name__, room)
    shared = {"options": ("models", "seeds", "figure"), "figures": ("score",), "draw": "of_these_tests:draw"}
    for name, takes in (("one", "some"), ("other", "others")):
        entry = Benchmark(name, "a test", "of_these_tests:function", takes=f"of_these_tests:{takes}", **shared)
        monkeypatch.setitem(BENCHMARKS, name, entry)
    both = Benchmark("both", "a test", "", options=("models", "seeds", "figures"), parts=("one", "other"))
    monkeypatch.setitem(BENCHMARKS, "both", both)
    return room


def test_a_cell_that_fails_is_told_and_the_others_are_run_and_kept(room, tmp_path, capsys):
    room.raises = {"a": TimeoutError("a did not fit\nwithin 2 s")}
    file = tmp_path / "results.jsonl"
    with pytest.raises(BenchmarkError, match=r"^2 of 4 cells failed$") as caught:
        run_benchmark("one", models=("a", "b"), seeds=(0, 1), output=file)
    assert [result["model"] for result in caught.value.results] == ["b", "b"]
    assert isinstance(caught.value.__cause__, TimeoutError)
    shown = capsys.readouterr()
    message = "failed: TimeoutError: a did not fit within 2 s"
    assert shown.err.splitlines() == [f"skdpgen: one {seed} a {message}" for seed in (0, 1)]
    assert "| b (2 seeds) | 3 |" in shown.out
    assert [json.loads(line)["model"] for line in file.read_text().splitlines()] == ["b", "b"]
    room.raises, room.calls[:] = {}, []
    assert len(run_benchmark("one", models=("a", "b"), seeds=(0, 1), output=file)) == 4
    assert room.calls == ["a", "a"]


@pytest.mark.parametrize("error", [FileNotFoundError("rows.npz"), ImportError("rows.npz")])
def test_what_is_not_there_is_bad_input_before_the_first_result_and_a_failure_after(room, capsys, error):
    room.raises = {"a": error}
    assert _command(["one", "--models", "a", "b"]) == 2
    assert capsys.readouterr().err == "skdpgen: rows.npz\n"
    assert room.calls == ["a"]
    assert _command(["one", "--models", "b", "a"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "skdpgen: 1 of 2 cells failed"


def test_a_cell_that_failed_is_not_tried_again_by_another_part(room, capsys):
    room.raises = {"b": TimeoutError("4 hours")}
    with pytest.raises(BenchmarkError, match=r"^2 of 2 cells failed$"):
        run_benchmark("both", models=("b",))
    assert room.calls == ["b"]
    assert capsys.readouterr().err.splitlines() == [
        "skdpgen: one 0 b failed: TimeoutError: 4 hours",
        "skdpgen: other 0 b failed before, and is not tried again",
    ]


def test_the_exit_status_is_1_where_cells_failed(room, capsys):
    room.raises = {"a": RuntimeError("no")}
    arguments = ["one", "--models", "a", "b"]
    assert _command(arguments) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "skdpgen: 1 of 2 cells failed"
    room.raises = {}
    assert _command(arguments) == 0


def _command(arguments):
    return main(["bench", *arguments])


def test_data_of_a_failed_cell_do_not_stay_in_memory(room):
    room.raises = {"a": RuntimeError("no")}
    with pytest.raises(BenchmarkError) as caught:
        run_benchmark("one")
    gc.collect()
    assert caught.value.__cause__ is room.raises["a"]
    assert [held() for held in room.held] == [None, None]


def test_an_interruption_and_an_output_that_cannot_be_written_end_the_run(room, monkeypatch, tmp_path):
    room.raises = {"a": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        run_benchmark("one")
    assert room.calls == ["a"]
    room.raises = {}
    monkeypatch.setattr("benchmarks.runner._tell", _full)
    with pytest.raises(OSError, match="no space"):
        run_benchmark("one")
    assert room.calls == ["a", "a"]


def _full(record, output):
    raise OSError("no space left")


def test_the_bar_counts_cells_that_fail(room, monkeypatch):
    bars = []

    class Bar(sys.modules["benchmarks.runner"].tqdm):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **{**options, "disable": False})
            bars.append(self)

    monkeypatch.setattr("benchmarks.runner.tqdm", Bar)
    room.raises = {"a": RuntimeError("no")}
    with pytest.raises(BenchmarkError):
        run_benchmark("one")
    assert [(bar.n, bar.total) for bar in bars] == [(2, 2)]


def test_a_model_that_a_benchmark_cannot_take_is_refused_before_the_first_cell(room):
    with pytest.raises(ValueError, match=r"^the benchmark one cannot take the models c, fly: it takes a, b$"):
        run_benchmark("one", models=("a", "c", "fly"))
    with pytest.raises(ValueError, match=r"^the benchmark both cannot take the models fly: it takes a, b, c$"):
        run_benchmark("both", models=("a", "fly"))
    assert room.calls == []


def test_a_part_leaves_out_what_it_cannot_take_and_is_not_run_without_any(room, capsys):
    assert len(run_benchmark("both", models=("a", "b"))) == 3
    assert room.calls == ["a", "b"]  # the parts share a cell
    assert capsys.readouterr().err.splitlines() == ["skdpgen: other cannot take a"]
    assert len(run_benchmark("both", models=("a",))) == 1
    assert capsys.readouterr().err.splitlines() == ["skdpgen: other cannot take a, and is not run"]


def test_every_benchmark_of_models_names_those_that_it_takes():
    takes = {name: entry.models() for name, entry in BENCHMARKS.items() if "models" in entry.options and entry.home}
    assert None not in takes.values()
    for name, known in takes.items():
        declared = (*BENCHMARKS[name].arguments.get("models", ()), *BENCHMARKS[name].quick.get("models", ()))
        assert set(declared) <= set(known), name
    assert set(takes["table6"]) == {*takes["table7"], *PEERS}
    assert set(BASELINES) | set(MODELS) <= set(takes["table7"])
    assert set(takes["table7"]) - set(takes["figure2"]) == {"DPNetClassifier"}
    assert set(takes["figure2"]) - set(takes["figure5"]) == {"real data"}
    assert takes["figure7"] == ("P3GM(net)", "P3GM(AE)", "DPVAESynthesizer")
    assert takes["figure8"] == ("P3GM(net)", "P3GM(AE)", "P3GM(paper)", "PGM")


@pytest.mark.parametrize(
    "arguments",
    [("figure5", "real data"), ("figure7", "P3GMSynthesizer"), ("figure8", "P3GMSynthesizer"), ("table7", "AIM")],
)
def test_a_model_of_the_wrong_kind_is_bad_input(arguments, capsys):
    name, model = arguments
    assert _command([name, "--models", model]) == 2
    assert f"the benchmark {name} cannot take the models {model}: it takes" in capsys.readouterr().err


def test_a_figure_is_refused_before_the_first_cell_where_matplotlib_is_missing(room, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for name, option in (("one", "figure"), ("both", "figures")):
        with pytest.raises(ImportError, match="pip install matplotlib"):
            run_benchmark(name, **{option: str(tmp_path / "f.png")})
    assert room.calls == []


def test_without_results_no_figure_is_written(room, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    room.raises = {"a": RuntimeError("no")}
    with pytest.raises(BenchmarkError):
        run_benchmark("both", models=("a",), figures=tmp_path)
    assert room.drawn == []
    assert f"one has no result to draw: {tmp_path / 'one.png'} is not written" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["all", "figure2", "figure9", "privae-sparsity", "privae-pinwheel"])
def test_nothing_finished_is_nothing_to_draw(name, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    file, figures = tmp_path / "none.jsonl", tmp_path / "figures"
    figures.mkdir()
    options = {"figures": figures} if name == "all" else {"figure": figures / "f.png"}
    assert run_benchmark(name, output=file, only_finished=True, **options) == []
    assert list(figures.iterdir()) == []
    told = [line for line in capsys.readouterr().err.splitlines() if line.endswith(".png is not written")]
    assert len(told) == (7 if name == "all" else 1)


def test_a_figure_that_cannot_be_drawn_does_not_stop_the_parts_that_follow(room, tmp_path, capsys):
    pytest.importorskip("matplotlib")

    def draw(results, path):
        if path.endswith("one.png"):
            raise ValueError("a blank")
        room.drawn.append(path)

    room.draw = draw
    with pytest.raises(BenchmarkError, match=r"^figures not drawn: 1$"):
        run_benchmark("both", figures=tmp_path, models=("b",))
    assert room.drawn == [str(tmp_path / "other.png")]
    assert "one.png failed: ValueError: a blank" in capsys.readouterr().err
