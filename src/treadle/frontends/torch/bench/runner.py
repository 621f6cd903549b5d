"""Asks each backend in a fresh process with empty caches, so that none warms another.

A backend that fails, dies or takes too long is a row that says why; a target that cannot be
measured at all is the user's error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import treadle
from treadle.core.errors import UsageError
from treadle.core.options import environment_with
from treadle.core.suggest import suggestion_notes
from treadle.frontends.torch.bench.asked import Asked, BenchRow

WORKER = "treadle.frontends.torch.bench.worker"
CACHES = ("TREADLE_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Where backends keep what they compiled; a folder each."""
BUILTIN = ("conv", "decoder", "mlp", "norm", "pointwise")
"""The models of `builtin.py`, which only a process with torch may load."""
DEVICES = ("cpu", "cuda")
DTYPES = ("bfloat16", "float16", "float32", "float64")


def bench(asked: Asked, started: Callable[[str], None] = lambda backend: None) -> list[BenchRow]:
    """A row for every backend, in the order asked for; `started` is told which one begins."""
    check(asked)
    return list(_rows(asked, started))


def check(asked: Asked) -> None:
    """UsageError about what can be seen to be wrong without loading torch."""
    path, colon, name = asked.target.rpartition(":")
    if not colon and asked.target not in BUILTIN:
        notes = suggestion_notes(asked.target, BUILTIN, "built-in models")
        raise UsageError(
            f"'{asked.target}' is no built-in model; a file is named file.py:name", notes=notes
        )
    if colon and not (path and name):
        raise UsageError(f"'{asked.target}': expected file.py:name")
    if colon and not os.path.isfile(path):
        raise UsageError(f"{path}: no such file; expected file.py:name")
    if not asked.backends or not all(asked.backends):
        raise UsageError("--backends: expected names with commas between them")
    if asked.rounds < 1 or asked.threads < 1 or asked.timeout <= 0:
        raise UsageError("--rounds, --threads and --timeout are numbers from 1 on")


def _rows(asked: Asked, started: Callable[[str], None]) -> Iterator[BenchRow]:
    for backend in dict.fromkeys(asked.backends):
        started(backend)
        yield _in_a_process(asked.only(backend), backend)


def _in_a_process(asked: Asked, backend: str) -> BenchRow:
    with tempfile.TemporaryDirectory(prefix="treadle-bench-") as folder:
        out = Path(folder) / "row.json"
        words = [sys.executable, "-m", WORKER, json.dumps(asked.to_json()), str(out)]
        try:
            done = subprocess.run(
                words,
                env=_surroundings(folder),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=asked.timeout,
            )
        except subprocess.TimeoutExpired:
            return BenchRow(backend, failed=f"it took longer than {asked.timeout:g} s")
        if not out.exists():
            return BenchRow(backend, failed=_last_words(done.stderr, done.returncode))
        answer = json.loads(out.read_text())
    if "bad" in answer:
        raise UsageError(answer["bad"], notes=answer["notes"])
    return BenchRow(**answer)


def _surroundings(folder: str) -> dict[str, str]:
    """The environment of a process that finds this Treadle, and nothing compiled."""
    changes = {name: os.path.join(folder, name.lower()) for name in CACHES}
    home = os.path.dirname(os.path.dirname(os.path.abspath(treadle.__file__)))
    before = environment_with({}).get("PYTHONPATH", "")
    return environment_with(
        {**changes, "PYTHONPATH": os.pathsep.join([home, before] if before else [home])}
    )


def _last_words(stderr: str, code: int) -> str:
    """Why a process ended without an answer, in one line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"its process ended with {how}" + (f": {lines[-1]}" if lines else "")
