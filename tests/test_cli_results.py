"""What a fit was charged for is never lost: drafts before the charge, and the released model kept whatever fails."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import _command_line
import numpy as np
import pandas as pd
import pytest
from _command_line import refused

import skdpgen
from skdpgen import MomentSynthesizer, PrivacyAccountant, PrivacyCard, Schema
from skdpgen.__main__ import main
from skdpgen.commands import _results
from skdpgen.tabular import Categorical, Numeric
from skdpgen.utils import atomic

pytestmark = [
    pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning"),
    pytest.mark.usefixtures("short_fits"),
]
table = _command_line.table
COMMAND = (
    "synthesize table.csv --kinds-from-values --model moment --epsilon 4 --target ill --rows 30 --ledger books.db "
    "--output out.csv"
)
ALL = (*COMMAND.split(), "--card", "card.json", "--save-model", "model.safetensors")


def files():
    return {path.name for path in Path().iterdir()} - {"table.csv", "books.db"}


def failing(capsys, *arguments, code=2):
    """The one line of a command that fails, and the model that it names."""
    assert main(list(arguments)) == code
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("skdpgen: ") and "Warning" not in line]
    assert len(lines) == 1, err
    assert not out
    found = re.search(r"charged epsilon 4 at delta 1e-05; the released model is in (\S+), for skdpgen sample", lines[0])
    return lines[0], found and found[1]


@pytest.mark.parametrize("option", ["--output", "--card", "--save-model"])
@pytest.mark.parametrize("reason", [PermissionError(13, "Permission denied"), OSError(30, "Read-only file system")])
def test_a_target_that_cannot_be_written_is_told_before_the_charge(table, capsys, monkeypatch, option, reason):
    target = ALL[ALL.index(option) + 1]
    make = atomic.tempfile.mkstemp

    def refuse(prefix, **options):
        if prefix.startswith(target):
            raise reason
        return make(prefix=prefix, **options)

    monkeypatch.setattr(atomic.tempfile, "mkstemp", refuse)
    line = refused(capsys, *ALL)
    assert f"{target}: cannot be written ({reason.strerror}); nothing was charged" in line
    assert not Path("books.db").exists()
    assert files() == set()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_permissions_are_missing_before_the_charge(table, capsys, kind):
    Path("there").mkdir()
    Path("there/out.csv").write_text("old")
    Path("there" if kind == "folder" else "there/out.csv").chmod(0o500 if kind == "folder" else 0o400)
    assert "nothing was charged" in refused(capsys, *ALL, "--output", "there/out.csv")
    assert Path("there/out.csv").read_text() == "old"
    assert not Path("books.db").exists()


def full_for(monkeypatch, *names):
    """A disk on which these targets cannot be finished."""
    commit = atomic.Draft.commit

    def full(self):
        if self.target.name.startswith(names):
            raise OSError(28, "No space left on device", str(self.target))
        commit(self)

    monkeypatch.setattr(atomic.Draft, "commit", full)


def test_a_disk_that_fills_up_leaves_model_and_card_and_says_where(table, capsys, monkeypatch):
    full_for(monkeypatch, "out.csv")
    line, model = failing(capsys, *ALL)
    assert "No space left on device: 'out.csv'" in line
    assert model == "model.safetensors"
    assert files() == {"card.json", "model.safetensors"}
    assert PrivacyCard.load("card.json").verify()["fit"]["epsilon"] == pytest.approx(4, rel=1e-3)
    assert len(skdpgen.load(model).sample(5)) == 5
    assert PrivacyAccountant(ledger="books.db").epsilon_spent() == pytest.approx(4, rel=1e-3)


@pytest.fixture(scope="module")
def fitted():
    rows = np.random.default_rng(0).random((300, 2))
    return MomentSynthesizer(4.0, bounds=(0, 1)).fit(rows)


def kept(fitted, error=RuntimeError, **targets):
    """What is said of a result that could not be written, and the model that it names."""
    with pytest.raises(error) as raised, _results.Results("out.csv", **targets) as results:
        results.write(fitted, 30)
    found = re.search(r"charged epsilon 4 at delta 1e-05; the released model is in (\S+), for", str(raised.value))
    return str(raised.value), found and found[1]


def test_a_model_that_cannot_be_written_where_it_was_asked_for_is_kept_elsewhere(table, fitted, monkeypatch):
    full_for(monkeypatch, "model.safetensors")
    told, model = kept(fitted, card="card.json", model="model.safetensors")
    assert "No space left on device: 'model.safetensors'" in told
    assert files() == {"card.json", "out.csv", model}  # the rest is written all the same
    assert stat.S_IMODE(os.stat(model).st_mode) == 0o600
    assert main(["sample", model, "--rows", "7", "--output", "again.csv"]) == 0
    assert len(pd.read_csv("again.csv")) == 7


def test_a_full_disk_sends_the_model_to_the_temporary_folder(table, fitted, monkeypatch, tmp_path):
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    commit = atomic.Draft.commit

    def full(self):
        if self.target.absolute().parent != elsewhere:
            raise OSError(28, "No space left on device", str(self.target))
        commit(self)

    monkeypatch.setattr(atomic.Draft, "commit", full)
    monkeypatch.setattr(_results.tempfile, "gettempdir", lambda: str(elsewhere))
    told, model = kept(fitted, card="card.json", model="model.safetensors")
    assert told.count("No space left on device") == 3
    assert Path(model).parent == elsewhere
    assert files() == {"temporary"}
    assert len(skdpgen.load(model).sample(5)) == 5


def test_where_nothing_can_be_written_the_line_says_so(table, fitted, monkeypatch):
    full_for(monkeypatch, "")
    told, model = kept(fitted, model="model.safetensors")
    assert "charged epsilon 4 at delta 1e-05; the released model could not be written anywhere, and is lost" in told
    assert model is None
    assert files() == set()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, TypeError, ValueError])
@pytest.mark.parametrize("targets", [{}, {"card": "card.json", "model": "model.safetensors"}])
def test_whatever_is_raised_while_sampling_leaves_the_model(table, fitted, monkeypatch, targets, error):
    def stop(self, *args, **options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(MomentSynthesizer, "sample_chunks", stop)
        _, model = kept(fitted, KeyboardInterrupt if error is KeyboardInterrupt else RuntimeError, **targets)
    assert files() == {model, *targets.values()}
    assert len(skdpgen.load(model).sample(5)) == 5


def test_an_interrupt_while_sampling_is_one_line_that_says_where_the_model_is(table, capsys, monkeypatch):
    def stop(self, *args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(MomentSynthesizer, "sample_chunks", stop)
    line, model = failing(capsys, *COMMAND.split(), code=130)
    assert line.startswith("skdpgen: interrupted; charged")
    assert files() == {model}


def test_a_model_lies_beside_the_rows_until_they_are_written(table, fitted, monkeypatch):
    seen = []
    draw = MomentSynthesizer.sample_chunks

    def watch(self, *args, **options):
        seen.extend(name for name in files() if name.endswith(_results.RESCUE_SUFFIX))
        return draw(self, *args, **options)

    monkeypatch.setattr(MomentSynthesizer, "sample_chunks", watch)
    with _results.Results("out.csv") as results:
        assert results.write(fitted, 30) == 30
    assert len(seen) == 1
    assert seen[0].startswith("out.csv.")
    assert files() == {"out.csv"}


def test_a_fit_that_fails_after_its_charge_says_what_is_spent(table, capsys, monkeypatch):
    def fail(self, model):
        raise MemoryError

    monkeypatch.setattr(MomentSynthesizer, "_set_model", fail)
    line, _ = failing(capsys, *ALL)
    assert "MemoryError; the fit failed after its charge, and the charge stays: spent epsilon 4 of 4" in line
    assert files() == set()


def test_rows_cut_off_half_way_are_not_there(table, fitted, monkeypatch):
    Path("old.csv").write_text("old")
    draw = MomentSynthesizer.sample_chunks

    def half(self, *args, **options):
        yield from draw(self, *args, **options)
        raise MemoryError("out of memory")

    monkeypatch.setattr(MomentSynthesizer, "sample_chunks", half)
    for name in ("old.csv", "new.csv", "new.csv.gz"):
        with pytest.raises(MemoryError):
            _results.write_rows(fitted, 30, name)
    assert Path("old.csv").read_text() == "old"
    assert files() == {"old.csv"}


@pytest.mark.parametrize("rows", ["0", "1000000000"])
def test_numbers_of_rows_that_cannot_be_drawn_are_refused_before_the_charge(table, capsys, rows):
    assert "--rows must be positive, and below" in refused(capsys, *COMMAND.split(), "--rows", rows)
    assert not Path("books.db").exists()


RISKY = ["=1+1", "+1", "-x", "@a", "\tb", "plain", "\uff1d1"]


def test_formulas_are_escaped_where_asked_for_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"-text": np.resize(RISKY, 400), "number": np.arange(-200, 200)})
    frame.to_csv("table.csv", index=False)
    Path("s.json").write_text(
        Schema([Categorical("-text", tuple(RISKY)), Numeric("number", (-200, 200), integer=True)]).to_json()
    )
    command = ["synthesize", "table.csv", "--schema", "s.json", "--model", "moment", "--rows", "200"]
    assert main([*command, "--output", "out.csv", "--escape-formulas", "--save-model", "m.safetensors"]) == 0
    assert main(["sample", "m.safetensors", "--rows", "200", "--output", "real.csv"]) == 0
    assert set(pd.read_csv("real.csv")["-text"]) <= set(RISKY)
    drawn = pd.read_csv("out.csv")
    assert set(drawn["'-text"]) <= {text if text == "plain" else "'" + text for text in RISKY}
    assert drawn["number"].min() < 0  # a number is none, whatever its sign
    capsys.readouterr()
    assert "of CSV files" in refused(capsys, *command, "--output", "out.parquet", "--escape-formulas")


class _Full:
    """A stream of a disk that is full."""

    def write(self, text):
        raise OSError(28, "No space left on device")

    def flush(self):
        raise OSError(28, "No space left on device")

    def isatty(self):
        return False


@pytest.mark.parametrize("stream", [_Full(), None], ids=["full", "closed"])
def test_a_charged_fit_is_written_where_messages_cannot_be(table, capsys, monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    assert main(list(ALL)) == 0
    assert files() == {"out.csv", "card.json", "model.safetensors"}
    assert "ledger" in capsys.readouterr().out
