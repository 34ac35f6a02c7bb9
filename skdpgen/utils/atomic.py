"""Files that are complete or absent: written beside their target, then moved to its place in one step."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import shutil
import stat
import tempfile
import time
import weakref
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


# Ends the name of every draft: it identifies what a killed process leaves behind, which no reader takes for a table.
DRAFT_SUFFIX = ".skdpgen-draft"
# Bytes of the target's name in the name of a draft: a file system allows 255 in all.
_MOST_NAME = 200
# Seconds after which a draft that no process holds was left behind; a younger one may be about to be locked.
_STALE_AFTER = 60


class Draft:
    """A file that is to take the place of another once it is whole.

    A context: it gives the path to write to; at its end the draft is put in place, or removed if anything was raised.

    The draft lies in the folder of its target, so that replacing is one step, and only its owner may read it until
    then. A process that is killed leaves its draft behind; the next draft of the same target, on the same machine,
    removes it. A target that is a symbolic link is replaced where the link points. A target that is no regular file (a
    pipe, a terminal, ``/dev/stdout``) cannot be replaced: it is written to directly.

    `mode`: permissions of the finished file. None: those of the file that is replaced, else those of the umask. `path`:
    where to write. Raises OSError: the target cannot be written: said here, before there is anything to lose.
    """

    def __init__(self, target, mode=None):
        self.target, self._mode = Path(target), mode
        self.direct = _is_special(target)
        if self.direct:
            if not os.access(target, os.W_OK):
                raise PermissionError(13, "Permission denied", str(target))
            self.path, self._final = self.target, self.target
            return
        self._final = Path(os.path.realpath(target))
        try:
            if self._final.is_dir():
                raise IsADirectoryError(21, "Is a directory")
            # replacing asks the folder alone; a file that was made read-only stays as it is
            if self._final.exists() and not os.access(self._final, os.W_OK):
                raise PermissionError(13, "Permission denied")
            prefix = f"{_shortened(self._final.name)}.{_machine()}-"
            _remove_stale(self._final.parent, prefix)
            handle, name = tempfile.mkstemp(prefix=prefix, suffix=DRAFT_SUFFIX, dir=self._final.parent)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(target)) from None
        self.path = Path(name)
        self._release = weakref.finalize(self, os.close, handle)  # and with it the lock
        if not _locked(handle):
            self._release()

    def __enter__(self):
        return self.path

    def __exit__(self, kind, error, trace):
        try:
            if error is None:
                self.commit()
        finally:
            self.discard()
        if isinstance(error, OSError) and error.filename in (None, str(self.path), self.path):
            raise OSError(error.errno, error.strerror or str(error), str(self.target)) from error

    def commit(self):
        """Put the draft in the place of its target, on disk when this returns."""
        if self.direct:
            return
        try:
            self._inherit()
            handle = os.open(self.path, os.O_RDWR)
            try:
                os.fsync(handle)  # a full disk may show here first
            finally:
                os.close(handle)
            try:
                os.replace(self.path, self._final)
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.EXDEV):
                    raise
                shutil.copyfile(self.path, self._final)  # a file that is a separate mount cannot be replaced
            self._release()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.target)) from None
        _sync_folder(self._final.parent)

    def discard(self):
        """Remove the draft; nothing where it has been put in place."""
        if not self.direct:
            self._release()
            with contextlib.suppress(OSError):
                self.path.unlink()

    def _inherit(self):
        """Owner and permissions of the finished file, while it is a draft still."""
        try:
            before = self._final.stat()
        except OSError:
            before = None
        if before is not None and hasattr(os, "chown"):
            for owner in (-1, before.st_uid):  # another's file in a shared folder becomes one's own, of its group
                with contextlib.suppress(OSError):
                    os.chown(self.path, owner, before.st_gid)
        mode = self._mode
        if mode is None:
            mode = 0o666 & ~_umask() if before is None else stat.S_IMODE(before.st_mode)
        os.chmod(self.path, mode)


def write_atomically(target, content, mode=None):
    """Write text (as UTF-8) or bytes to a file that is whole or not there.

    `target`: a draft was made before: it is put in place. `mode`: see `Draft`.
    """
    content = content.encode("utf-8") if isinstance(content, str) else content
    with target if isinstance(target, Draft) else Draft(target, mode) as path:
        path.write_bytes(content)


def save_figure(figure, target, **options):
    """Write a figure of matplotlib to a file that is whole or not there, in the format of its suffix (else PNG)."""
    with Draft(target) as path:
        figure.savefig(path, format=Path(target).suffix[1:].lower() or "png", **options)


def _is_special(path):
    """Whether a path leads to something that is written to but not replaced."""
    path = os.path.abspath(path)
    for _ in range(40):
        folder = os.path.realpath(os.path.dirname(path))
        # links such as /dev/stdout lead on to the file behind an open descriptor, which must stay that file
        if folder == "/dev" or folder == "/proc" or folder.startswith("/proc/"):
            return True
        if not os.path.islink(path):
            break
        path = os.path.join(folder, os.readlink(path))
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(kind) or stat.S_ISDIR(kind))


def _machine():
    """Part of a draft's name: locks are of the processes of one machine."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:6]


def _locked(handle):
    """Lock a file until its handle is closed, as the end of the process does; return whether that was possible."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another holds it, or the file system has no locks
        return False
    return True


def _remove_stale(folder, prefix):
    """Remove the drafts of a target that killed processes of this machine left behind."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(DRAFT_SUFFIX)):
                continue
            with contextlib.suppress(OSError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime < _STALE_AFTER:
                    continue
                handle = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    if _locked(handle):
                        os.unlink(entry.path)
                finally:
                    os.close(handle)


def _shortened(name):
    return os.fsdecode(os.fsencode(name)[:_MOST_NAME].decode("utf-8", "ignore").encode())


def _umask():
    # there is no way to read it but to set it
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_folder(folder):
    """Make the new name last a power failure, where folders can be synchronised (not on Windows)."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
