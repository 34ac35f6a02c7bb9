"""Fits show a bar where somebody watches: on a terminal or in a notebook, for each fit that the caller asked for."""

from __future__ import annotations

import io
import sys
import threading
import types

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_validate

import skdpgen
from skdpgen import MomentSynthesizer, P3GMSynthesizer
from skdpgen.__main__ import main
from skdpgen.audit._runs import released_by
from skdpgen.nn import DPNetClassifier
from skdpgen.testing import seeded_noise
from skdpgen.utils import progress as progress_module
from skdpgen.utils.progress import progress_bar, shows_bars, without_bars

pytestmark = [
    pytest.mark.usefixtures("short_fits"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.PrivacyLeakWarning"),
]

ROWS = pd.DataFrame({"a": np.tile(["x", "y", "z"], 40), "b": np.repeat(["u", "v"], 60)})
FITTED = [getattr(skdpgen, name) for name in skdpgen.__all__ if name.endswith("Synthesizer")] + [DPNetClassifier]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """What makes stderr a terminal; pytest sets it anew before a test begins."""

    def make():
        monkeypatch.setattr(sys, "stderr", Terminal())
        return sys.stderr

    return make


@pytest.fixture
def at_once(monkeypatch):
    """Bars that do not wait until a phase has taken a second."""
    monkeypatch.setattr(progress_module, "_DELAY", 0)


@pytest.fixture
def notebook(monkeypatch):
    """What makes this process the kernel of a notebook, to all who look."""
    shell = types.SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "tqdm.autonotebook", types.SimpleNamespace(tqdm=_Widget))
    _Widget.made.clear()
    return shell


class _Widget:
    """Stands for the bar of a notebook: ipywidgets is not among what tests need."""

    made = []

    def __init__(self, steps, **options):
        self.steps, self.n = steps, 0
        self.made.append({**options, "bar": self})

    def __iter__(self):
        return iter(self.steps)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def update(self, n=1):
        self.n += n


def _schema():
    return skdpgen.Schema.from_kinds(ROWS).replace(
        skdpgen.tabular.Categorical("a", categories=("x", "y", "z")),
        skdpgen.tabular.Categorical("b", categories=("u", "v")),
    )


def _synthesizer(**options):
    return MomentSynthesizer(100.0, 1e-5, schema=_schema(), random_state=0, **options)


@pytest.mark.parametrize("model", FITTED, ids=lambda model: model.__name__)
def test_every_fit_shows_a_bar_by_default_where_there_is_a_terminal(model):
    assert model().progress == "auto"
    with pytest.raises(ValueError, match="progress"):
        model(bounds=(0, 1), progress="always").fit(np.zeros((8, 2)), np.arange(8) % 2)


def test_a_bar_names_the_phase_and_the_time_left_and_goes_away(terminal, at_once):
    stderr = terminal()
    _synthesizer().fit(ROWS)
    written = stderr.getvalue()
    assert "prior and decoder" in written
    assert "%|" in written
    assert "<" in written
    assert not written.split("\r")[-1].strip()


def test_a_phase_of_less_than_a_second_has_no_bar(terminal):
    stderr = terminal()
    for _ in progress_bar(range(3), phase="short", shown=True, mininterval=0):
        pass
    assert not stderr.getvalue()


def test_a_longer_phase_has_one(terminal, monkeypatch):
    stderr = terminal()
    monkeypatch.setattr(progress_module, "_DELAY", 0.01)
    pause = threading.Event()
    for _ in progress_bar(range(3), phase="long", shown=True, mininterval=0):
        pause.wait(0.02)
    assert "long" in stderr.getvalue()


def test_a_sample_of_several_chunks_has_a_bar_and_is_the_same(terminal, at_once, monkeypatch):
    fitted = _synthesizer().fit(ROWS)
    monkeypatch.setattr(type(fitted), "_rows_at_once", 50)
    stderr = terminal()
    drawn = fitted.sample(120, random_state=1)
    assert "synthetic rows" in stderr.getvalue()
    assert "/3 " in stderr.getvalue()
    stderr = terminal()
    fitted.sample(50)
    fitted.set_params(progress=False)
    assert fitted.sample(120, random_state=1).equals(drawn)
    assert not stderr.getvalue()


@pytest.mark.parametrize("progress", [False, "auto"])
def test_a_fit_is_quiet_in_a_pipe(capsys, progress):
    _synthesizer(progress=progress).fit(ROWS)
    assert not capsys.readouterr().err


def test_true_shows_a_bar_everywhere_and_false_nowhere(capsys, terminal, monkeypatch, at_once):
    stderr = terminal()
    _synthesizer(progress=False).fit(ROWS)
    assert not stderr.getvalue()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    _synthesizer(progress=True).fit(ROWS)
    assert "prior and decoder" in sys.stderr.getvalue()


def test_the_rows_that_are_drawn_do_not_depend_on_the_bar(terminal, at_once):
    terminal()
    drawn = []
    for progress in (False, True, "auto"):
        with seeded_noise(0):
            drawn.append(_synthesizer(progress=progress).fit(ROWS).sample(20, random_state=1))
    assert all(drawn[0].equals(other) for other in drawn[1:])


def test_one_of_many_fits_shows_no_bar(terminal, at_once):
    stderr = terminal()
    assert shows_bars("auto")
    with without_bars():
        assert not shows_bars("auto")
        assert shows_bars(True)
    cross_validate(_synthesizer(), ROWS, cv=2, scoring=lambda model, X, y=None: float(shows_bars("auto")))
    assert "prior and decoder" not in stderr.getvalue()
    released_by(_synthesizer(), (ROWS,))  # one of the fits of an audit
    assert "prior and decoder" not in stderr.getvalue()


def test_a_notebook_has_bars_of_its_own_kind(notebook):
    assert shows_bars("auto")
    _synthesizer().fit(ROWS)
    assert [made["desc"] for made in _Widget.made if not made["disable"]] == ["prior and decoder"]
    _Widget.made.clear()
    _synthesizer(progress=False).fit(ROWS)
    assert all(made["disable"] for made in _Widget.made)


def test_a_shell_of_ipython_in_a_pipe_has_none(notebook):
    notebook.config = {"TerminalIPythonApp": {}}
    assert not shows_bars("auto")


def test_every_long_phase_of_a_fit_to_images_has_a_bar(notebook):
    """That of the private images shows tenths, and not their number."""
    X, y = load_digits(return_X_y=True)
    how = {"bounds": (0, 16), "image_shape": (8, 8), "classes": range(10), "decoder": "features"}
    P3GMSynthesizer(10.0, **how).fit(X, y)
    shown = {made["desc"]: made for made in _Widget.made}
    assert list(shown) == ["features of synthetic images", "features of images", "moving images"]
    assert shown["features of images"]["bar"].n == shown["features of images"]["total"] == 10


def test_workers_and_threads_show_no_bars(notebook):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(shows_bars("auto")))
    thread.start()
    thread.join()
    assert seen == [False]


def test_worker_processes_show_no_bars():
    assert Parallel(n_jobs=2)([delayed(_would_show)()]) == [False]


def _would_show():
    sys.stderr = Terminal()
    return shows_bars("auto")


def test_stderr_may_be_missing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    assert not shows_bars("auto")


@pytest.mark.parametrize(("options", "shown"), [([], True), (["--quiet"], False)])
def test_the_command_shows_a_bar_on_a_terminal_unless_it_is_to_be_quiet(tmp_path, terminal, at_once, options, shown):
    _schema().save(tmp_path / "schema.json")
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    stderr = terminal()
    command = ["synthesize", tmp_path / "rows.csv", "--schema", tmp_path / "schema.json", "--epsilon", 100]
    assert main([*map(str, command), *options, "--output", str(tmp_path / "out.csv")]) == 0
    assert ("prior and decoder" in stderr.getvalue()) == shown
