"""Recordings found and started from C: a table of addresses beside the handles of recordings."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from treadle.codegen.host_c.render import FLAGS
from treadle.core.options import Options
from treadle.core.toolchain import load_shared
from treadle.runtime.hosts.recorded_steps import (
    DeviceRecorder,
    DeviceRecording,
    RecordingStarts,
)

ENTRY, KNOW = "treadle_replay", "treadle_replay_know"


class _KnownRow(ctypes.Structure):
    _fields_ = (
        ("stream", ctypes.c_void_p),
        ("recording", ctypes.c_void_p),
        ("addresses", ctypes.c_char_p),
    )


class _FinderRecord(ctypes.Structure):
    """What `replay.c` calls a record."""

    _fields_ = (
        ("bytes", ctypes.c_int64),
        ("device", ctypes.c_int64),
        ("replays", ctypes.c_int64),
        ("lock", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("table", ctypes.c_void_p),
        ("stream_of", ctypes.c_void_p),
        ("is_capturing", ctypes.c_void_p),
        ("launch", ctypes.c_void_p),
    )


class Finder:
    """The recordings of one host function, as C looks for them."""

    def __init__(self, library: Any, starts: RecordingStarts, count: int) -> None:
        """`count` is how many bytes of addresses a recording is known by."""
        self._record = _FinderRecord(bytes=count, device=starts.device)
        self._record.stream_of, self._record.is_capturing = starts.stream_of, starts.is_capturing
        self._record.launch = starts.launch
        self.address = ctypes.addressof(self._record)
        self.entry = int(ctypes.cast(library[ENTRY], ctypes.c_void_p).value or 0)
        self._know = library[KNOW]
        self._know.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        self._know.restype = None
        self._lock = threading.Lock()
        self._held: object = None
        """What the table speaks of: recordings live as long as C may start them."""

    @property
    def replays(self) -> int:
        """How many recordings C has started."""
        return int(self._record.replays)

    def know(self, rows: Sequence[tuple[object, bytes, DeviceRecording]]) -> None:
        """The recordings there are now: stream, addresses and recording of each."""
        known = [row for row in rows if isinstance(row[0], int) and row[2].handle is not None]
        table = (_KnownRow * max(len(known), 1))()
        for place, (stream, addresses, recording) in zip(table, known, strict=False):
            place.stream, place.recording = stream or None, recording.handle
            place.addresses = addresses
        with self._lock:  # C takes no turns with Python's lock: what it was told last must be held
            self._know(self.address, ctypes.addressof(table), len(known))
            self._held = table, known  # the last ones are let go of only now


def finder_for(recorder: DeviceRecorder, count: int, options: Options) -> Finder | None:
    """Who finds recordings from C, if this device's can be started from there."""
    starts = recorder.starts
    if starts is None:
        return None
    text = files("treadle.codegen.host_c").joinpath("replay.c").read_text("utf-8")
    loaded = load_shared(text, flags=FLAGS, options=options)
    return Finder(loaded.library, starts, count) if loaded.verdict else None
