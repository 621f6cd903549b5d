"""A sign of life: what takes longer than two seconds says so on a terminal, and cleans up after."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

PATIENCE = 2.0
"""Seconds without a word."""
INTERVAL = 0.5


@contextmanager
def progress(what: str, stream: TextIO | None = None, patience: float = PATIENCE) -> Iterator[None]:
    """Show `what` and the seconds gone while the block runs, on a terminal only.

    The line is wiped out as soon as the block prints something itself, and at its end.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield
        return
    clock = _Clock(what, stream, patience)
    clock.start()
    with ExitStack() as stack:
        stack.callback(clock.stop)
        stack.enter_context(redirect_stdout(cast("TextIO", _Watched(sys.stdout, clock))))
        stack.enter_context(redirect_stderr(cast("TextIO", _Watched(sys.stderr, clock))))
        yield


class _Clock(threading.Thread):
    """Writes the seconds gone over and over, until it is stopped."""

    def __init__(self, what: str, stream: TextIO, patience: float) -> None:
        super().__init__(daemon=True)
        self.what, self.stream, self.patience = what, stream, patience
        self.done = threading.Event()

    def run(self) -> None:
        """Wait, then tick; leave an empty line behind."""
        start = time.monotonic()
        if self.done.wait(self.patience):
            return
        while True:
            shown = f"{self.what}: {time.monotonic() - start:.0f} s ..."
            self.stream.write(f"\r{shown}")
            self.stream.flush()
            if self.done.wait(INTERVAL):
                break
        self.stream.write("\r" + " " * len(shown) + "\r")
        self.stream.flush()

    def stop(self) -> None:
        """Return when nothing of the clock is on the screen any more."""
        self.done.set()
        self.join()


class _Watched:
    """A stream that stops the clock before the first thing is written to it."""

    def __init__(self, stream: TextIO, clock: _Clock) -> None:
        self._stream, self._clock = stream, clock

    def write(self, text: str) -> int:
        """Write behind a clean beginning of the line."""
        self._clock.stop()
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
