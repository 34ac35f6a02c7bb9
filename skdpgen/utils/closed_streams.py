"""Standard output and standard error whose reader has gone, as behind ``| head``: what is written there is dropped."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

# What a write to a closed pipe raises: EPIPE, and EINVAL on Windows.
_CLOSED = (errno.EPIPE, errno.EINVAL)


class _Stream:
    """A stream that drops what is written to it once its reader has gone."""

    def __init__(self, stream):
        self._stream = stream

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __iter__(self):
        return iter(self._stream)

    def write(self, text):
        """Write a text; its length."""
        with self._unless_closed():
            return self._stream.write(text)
        return len(text)

    def writelines(self, lines):
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self):
        """Write what is buffered."""
        with self._unless_closed():
            self._stream.flush()

    @contextlib.contextmanager
    def _unless_closed(self):
        try:
            yield
        except OSError as error:
            if error.errno not in _CLOSED:
                raise
            self._discard()

    def _discard(self):
        """Let the descriptor lead nowhere: the buffer is written once more when Python ends, and would fail again."""
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a stream without a descriptor
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                os.dup2(nowhere, self._stream.fileno())
            finally:
                os.close(nowhere)


@contextlib.contextmanager
def quiet_when_closed():
    """Context in which the end of the readers of stdout and stderr ends nothing and raises nothing."""
    with contextlib.ExitStack() as stack:
        if sys.stdout is not None:
            stack.enter_context(contextlib.redirect_stdout(_Stream(sys.stdout)))
        if sys.stderr is not None:
            stack.enter_context(contextlib.redirect_stderr(_Stream(sys.stderr)))
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
            if sys.stderr is not None:
                with contextlib.suppress(OSError):  # messages that cannot be written end nothing
                    sys.stderr.flush()
