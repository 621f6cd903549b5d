"""The cache of compiled code under violence: killed writers, no room, and a second process."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treadle.core.options import Options
from treadle.core.toolchain import compile_shared, find_compiler, load_shared

pytestmark = pytest.mark.skipif(not find_compiler(Options()), reason="no C compiler here")
SOURCES = 4
SOURCE = "int answer(void) {{ return {k}; }}\n"
KILLS = 12
"""How often a writer is killed by default; the exhaustive tests do so 50 times."""

WRITER = """
import os, sys
from treadle.core.options import Options
from treadle.core.toolchain import code_cache, load_shared
options = Options.make(cache_dir=sys.argv[1])
print("ready", flush=True)
while True:
    for k in range({sources}):
        load_shared({source!r}.format(k=k), options=options)
    for name in os.listdir(os.path.join(sys.argv[1], "compiled")):
        if len(name) == 40:
            code_cache(options).discard(name)
"""


def writer(folder: Path) -> subprocess.Popen[str]:
    text = WRITER.format(sources=SOURCES, source=SOURCE)
    words = [sys.executable, "-c", text, str(folder)]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def all_answers(folder: Path) -> list[int]:
    options = Options.make(cache_dir=str(folder))
    found = []
    for k in range(SOURCES):
        loaded = load_shared(SOURCE.format(k=k), options=options)
        assert loaded.verdict
        found.append(loaded.library.answer())
    return found


def kill_writers(folder: Path, times: int) -> list[int]:
    """Kill writers, with the compilers they started, at any moment; gives what is there then."""
    moments = random.Random(0)
    for _ in range(times):
        one = writer(folder)
        time.sleep(moments.uniform(0.0, 0.25))
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        assert one.stdout is not None
        one.stdout.close()
    return all_answers(folder)


def test_killed_writers_leave_nothing_that_is_wrong(tmp_path: Path) -> None:
    assert kill_writers(tmp_path / "cache", KILLS) == list(range(SOURCES))


@pytest.mark.exhaustive
def test_fifty_killed_writers_leave_nothing_that_is_wrong(tmp_path: Path) -> None:
    assert kill_writers(tmp_path / "cache", 50) == list(range(SOURCES))


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))   # as on a full disk: files cannot grow
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from treadle.core.options import Options
from treadle.core.toolchain import compile_shared, why_not_compiled
made = compile_shared({source!r}, options=Options.make(cache_dir=sys.argv[1]))
print(bool(made.verdict), made.verdict.code, why_not_compiled(made.verdict).count(chr(10)))
"""


def test_a_full_disk_is_said_in_one_line_and_leaves_no_entry(tmp_path: Path) -> None:
    folder, source = tmp_path / "cache", SOURCE.format(k=7) + "/* " + "long " * 100 + "*/\n"
    text = FULL.format(source=source)
    ran = subprocess.run(
        [sys.executable, "-c", text, str(folder)], capture_output=True, text=True, check=True
    )
    refused, code, lines = ran.stdout.split()
    assert (refused, lines) == ("False", "0")
    assert code in ("TOOL002", "TOOL004")
    left = [p for p in (folder / "compiled").iterdir() if len(p.name) == 40]
    assert not left
    options = Options.make(cache_dir=str(folder))
    assert compile_shared(source, options=options).is_new, "once there is room, it is made"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    options = Options.make(cache_dir=str(folder))
    compile_shared(SOURCE.format(k=1), options=options)
    for one in (folder / "compiled", folder):
        one.chmod(0o500)
    try:
        assert load_shared(SOURCE.format(k=1), options=options).library.answer() == 1
        assert not compile_shared(SOURCE.format(k=2), options=options).verdict
    finally:
        for one in (folder, folder / "compiled"):
            one.chmod(0o700)


TRAINING = """
import torch, treadle
layer = torch.nn.LayerNorm(32)
x = torch.randn(8, 32, requires_grad=True)
f = torch.compile(lambda x: torch.nn.functional.gelu(layer(x)).sum(), backend="treadle")
for _ in range(4):
    f(x).backward()
print("done")
"""


@pytest.mark.torch
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    """A compiler that notes when it is run is asked for its version by the second, not more."""
    pytest.importorskip("torch")
    log, compiler = tmp_path / "log", tmp_path / "cc"
    (real,) = find_compiler(Options())[:1]
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    surroundings = {**os.environ, "CC": str(compiler), "TREADLE_CACHE_DIR": str(tmp_path / "cache")}

    def run() -> list[str]:
        log.write_text("")
        subprocess.run(
            [sys.executable, "-c", TRAINING], env=surroundings, check=True, capture_output=True
        )
        return [line for line in log.read_text().splitlines() if line != "--version"]

    assert run(), "the first process compiles"
    assert not run()
