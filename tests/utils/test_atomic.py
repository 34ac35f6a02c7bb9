"""Files that are whole or not there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import pytest

import skdpgen
from skdpgen import MomentSynthesizer, Schema
from skdpgen.tabular import Numeric
from skdpgen.utils.atomic import DRAFT_SUFFIX, Draft, write_atomically

pytestmark = pytest.mark.filterwarnings("ignore::skdpgen.exceptions.UtilityWarning")
posix = pytest.mark.skipif(os.name != "posix", reason="permissions and special files of POSIX")


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_file_is_replaced_whole_and_no_draft_stays(tmp_path):
    target = tmp_path / "card.json"
    write_atomically(target, "old")
    with Draft(target) as path:
        assert path.parent == tmp_path
        assert path.name.endswith(DRAFT_SUFFIX)
        path.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def half_written(target, error):
    with Draft(target) as path:
        path.write_text("half")
        raise error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ValueError("no")])
def test_what_fails_half_way_leaves_the_old_file_and_no_draft(tmp_path, error):
    target = tmp_path / "rows.csv"
    target.write_text("old")
    with pytest.raises(type(error)) as raised:
        half_written(target, error)
    if isinstance(error, OSError):  # the user knows the target, not the draft
        assert raised.value.filename == str(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_disk_that_is_full_when_synchronised_leaves_the_old_file(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    target = tmp_path / "schema.json"
    target.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*schema\.json"):
        Schema([Numeric("age", (0, 1))]).save(target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the size of files")
def test_a_good_model_survives_saving_over_it_where_nothing_can_be_written(tmp_path):
    model = MomentSynthesizer(bounds=(0, 1), noise="fast").fit([[0.2, 0.4]] * 50)
    model.save(tmp_path / "model.safetensors")
    before = (tmp_path / "model.safetensors").read_bytes()
    code = """
import resource, signal, sys
sys.path[:0] = sys.argv[2:]
from skdpgen.utils.atomic import write_atomically
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_atomically(sys.argv[1], bytes(10_000))
except OSError as error:
    sys.exit(error.errno)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "model.safetensors"), *sys.path]
    assert subprocess.run(command, check=False).returncode == 27  # EFBIG
    assert (tmp_path / "model.safetensors").read_bytes() == before
    assert len(skdpgen.load(tmp_path / "model.safetensors").sample(3)) == 3
    assert len(list(tmp_path.iterdir())) == 1


@posix
def test_a_killed_process_leaves_a_draft_that_is_known_by_its_name_and_no_file(tmp_path):
    code = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from skdpgen.utils.atomic import Draft
with Draft(sys.argv[1]) as path, open(path, "w") as file:
    file.write("half of the rows")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "rows.csv"), *sys.path], check=False)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("rows.csv.")
    assert left.name.endswith(DRAFT_SUFFIX)


@posix
def test_a_draft_that_was_left_behind_is_removed_by_the_next_of_its_target_and_a_living_one_is_not(tmp_path):
    code = """
import os, signal, sys
sys.path[:0] = sys.argv[2:]
from skdpgen.utils.atomic import Draft
draft = Draft(sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "rows.csv"), *sys.path], check=False)
    (left,) = tmp_path.iterdir()
    living, other = Draft(tmp_path / "rows.csv"), tmp_path / f"rows.csv.another-machine{DRAFT_SUFFIX}"
    other.touch()
    assert left.exists()  # it is young: its process may be about to lock it
    for path in (left, living.path, other):
        os.utime(path, (0, 0))
    write_atomically(tmp_path / "rows.csv", "rows")
    assert sorted(tmp_path.iterdir()) == sorted([living.path, other, tmp_path / "rows.csv"])
    living.discard()


@posix
def test_permissions_are_those_of_the_file_replaced_or_of_the_umask(tmp_path):
    old, new, private = tmp_path / "old", tmp_path / "new", tmp_path / "private"
    old.write_text("")
    old.chmod(0o640)
    before = os.umask(0o027)
    try:
        with Draft(new) as path:
            assert mode_of(path) == 0o600
        write_atomically(old, "text")
        write_atomically(private, "text", mode=0o600)
    finally:
        os.umask(before)
    assert [mode_of(path) for path in (old, new, private)] == [0o640, 0o640, 0o600]


@posix
def test_a_link_is_kept_and_what_it_points_to_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    link, dangling = tmp_path / "link", tmp_path / "dangling"
    link.symlink_to(tmp_path / "there" / "file")
    (tmp_path / "there" / "file").write_text("old")
    dangling.symlink_to(tmp_path / "there" / "other")
    for path, name in ((link, "file"), (dangling, "other")):
        write_atomically(path, "new")
        assert path.is_symlink()
        assert (tmp_path / "there" / name).read_text() == "new"
    assert len(list((tmp_path / "there").iterdir())) == 2


@posix
def test_a_pipe_is_written_to_directly(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_atomically(tmp_path / "pipe", "through")
    reader.join()
    assert read == [b"through"]
    assert stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="/dev/stdout")
@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_redirected_stdout_stays_the_file_it_is(tmp_path, through_a_link):
    code = """
import sys
sys.path[:0] = sys.argv[2:]
from skdpgen.utils.atomic import write_atomically
write_atomically(sys.argv[1], "rows")
print("|", flush=True)
"""
    (tmp_path / "link").symlink_to("/dev/stdout")
    target = str(tmp_path / "link") if through_a_link else "/dev/stdout"
    with open(tmp_path / "out", "ab") as out:  # as >> does: each write goes to the end
        subprocess.run([sys.executable, "-c", code, target, *sys.path], stdout=out, check=True)
    assert (tmp_path / "out").read_text() == "rows|\n"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_is_refused_though_its_folder_would_let_it_be_replaced(tmp_path):
    target = tmp_path / "model.safetensors"
    target.write_text("old")
    target.chmod(0o444)
    with pytest.raises(PermissionError, match=r"model\.safetensors"):
        Draft(target)
    assert target.read_text() == "old"


def test_a_target_that_cannot_be_is_told_by_its_own_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent.x\.json"):
        Draft(tmp_path / "absent" / "x.json")
    with pytest.raises(IsADirectoryError):
        Draft(tmp_path)


def test_a_long_name_leaves_room_for_that_of_its_draft(tmp_path):
    target = tmp_path / ("ä" * 120 + ".csv")
    write_atomically(target, "rows")
    assert target.read_text() == "rows"


def test_the_package_writes_no_file_but_through_drafts():
    """Nothing else opens a file for writing: kept short by hand, with the reason."""
    import re
    from pathlib import Path

    allowed = {
        "utils/atomic.py",
        "data/table_writing.py",  # into the draft that it is given
    }
    writes = re.compile(
        r"\.write_(text|bytes)\(|\.savefig\((?!buffer)|\.to_(csv|parquet)\(|open\([^)]*[\"'][wa]b?\+?[\"']"
    )
    root = Path(skdpgen.__file__).parent
    found = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if writes.search(path.read_text(encoding="utf-8"))
    }
    assert found == allowed


def test_a_target_that_is_a_mount_of_its_own_is_written_to(tmp_path, monkeypatch):
    def busy(*paths):
        raise OSError(16, "Device or resource busy")

    target = tmp_path / "a.json"
    target.write_text("old")
    monkeypatch.setattr(os, "replace", busy)
    write_atomically(target, "new")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
