"""A sign of life: what takes longer than two seconds says so on a terminal, and cleans up after."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

PATIENCE = 2.0
"""Seconds without a word."""
INTERVAL = 0.5


@contextmanager
def progress(what: str, stream: TextIO | None = None, patience: float = PATIENCE) -> Iterator[None]:
    """Show `what` and the seconds gone while the block runs, on a terminal only."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield
        return
    done = threading.Event()
    clock = threading.Thread(target=_tick, args=(what, stream, patience, done), daemon=True)
    clock.start()
    try:
        yield
    finally:
        done.set()
        clock.join()


def _tick(what: str, stream: TextIO, patience: float, done: threading.Event) -> None:
    start = time.monotonic()
    if done.wait(patience):
        return
    shown = ""
    while True:
        shown = f"{what}: {time.monotonic() - start:.0f} s ..."
        stream.write(f"\r{shown}")
        stream.flush()
        if done.wait(INTERVAL):
            break
    # What the command prints must not stand behind half a line of ours.
    stream.write("\r" + " " * len(shown) + "\r")
    stream.flush()
