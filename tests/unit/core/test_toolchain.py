"""Compiling C at run time: found again, never half written, clear when it fails."""

from __future__ import annotations

import ctypes
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.core.options import Options, cache_folder
from treadle.core.toolchain import _identity, compile_shared, find_compiler, why_not_compiled
from treadle.lab.cli import main

SOURCE = "int twice(int x) { return 2 * x; }\n"
needs_compiler = pytest.mark.skipif(not find_compiler(Options()), reason="no C compiler here")


def options(tmp_path: Path, **more: str) -> Options:
    return Options.make(cache_dir=str(tmp_path / "cache"), **more)


@needs_compiler
def test_a_library_is_made_once_and_then_found(tmp_path: Path) -> None:
    first = compile_shared(SOURCE, options=options(tmp_path))
    second = compile_shared(SOURCE, options=options(tmp_path))
    assert (first.is_new, second.is_new) == (True, False)
    assert first.path == second.path
    assert ctypes.CDLL(first.path).twice(21) == 42


@needs_compiler
def test_another_source_or_flag_is_another_library(tmp_path: Path) -> None:
    made = [
        compile_shared(source, flags=flags, options=options(tmp_path)).path
        for source, flags in ((SOURCE, ()), (SOURCE, ("-O1",)), (SOURCE + "\n", ()))
    ]
    assert len(set(made)) == 3


@needs_compiler
def test_many_at_once_leave_one_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(compile_shared, SOURCE, options=options(tmp_path)) for _ in range(8)]
    paths = {job.result().path for job in jobs}
    assert len(paths) == 1
    assert [str(p / "code.so") for p in (tmp_path / "cache" / "compiled").iterdir()] == list(paths)


@needs_compiler
def test_a_source_that_does_not_compile_says_why(tmp_path: Path) -> None:
    made = compile_shared("int twice(int x) { return y; }\n", options=options(tmp_path))
    assert made.path == ""
    assert made.verdict.code == "TOOL002"
    assert "y" in str(made.verdict.facts["reason"])
    assert list((tmp_path / "cache" / "compiled").iterdir()) == []


def test_a_compiler_that_is_not_there_is_named(tmp_path: Path) -> None:
    made = compile_shared(SOURCE, options=options(tmp_path, cc="no-such-compiler -x"))
    assert str(made.verdict) == "no TOOL001 looked_for='no-such-compiler -x'"


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cc = shutil.which("true")
    if cc is None:
        pytest.skip("no program to stand in for a compiler")
    bad = Options.make(cache_dir=str(tmp_path / "file" / "cache"), cc=cc)
    made = compile_shared(SOURCE, options=bad)
    assert made.verdict.code == "TOOL004"
    assert f"{tmp_path / 'file'}" in why_not_compiled(made.verdict)
    assert "Not a directory" in why_not_compiled(made.verdict)


def test_a_failing_compiler_is_not_a_missing_one(tmp_path: Path) -> None:
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho 'licence expired' >&2\nexit 3\n")
    broken.chmod(0o755)
    made = compile_shared(SOURCE, options=options(tmp_path, cc=str(broken)))
    said = why_not_compiled(made.verdict)
    assert said.startswith(f"the C compiler failed: licence expired (command: {broken}")
    assert said.endswith("[TOOL002]")


def test_a_compiler_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "no-interpreter"
    broken.write_text("#!/no/such/shell\n")
    broken.chmod(0o755)
    made = compile_shared(SOURCE, options=options(tmp_path, cc=str(broken)))
    assert made.verdict.code == "TOOL002"
    assert str(broken) in str(made.verdict.facts["reason"])


def test_a_newer_compiler_of_the_same_name_is_asked_again(tmp_path: Path) -> None:
    real = find_compiler(Options())
    if not real:
        pytest.skip("no C compiler here")
    wrapper = tmp_path / "my-cc"
    words = " ".join(real)
    keys = []
    for version in ("one", "two"):
        asks = f'if [ "$1" = --version ]; then echo {version}; exit; fi'
        wrapper.write_text(f'#!/bin/sh\n{asks}\nexec {words} "$@"\n')
        wrapper.chmod(0o755)
        os.utime(wrapper, ns=(1, 1))  # same size, same time: only what it says is different
        _identity.cache_clear()  # another process
        keys.append(compile_shared(SOURCE, options=options(tmp_path, cc=str(wrapper))).path)
    assert keys[0] != keys[1]


def test_the_planners_own_c_obeys_the_cache_folder_and_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = find_compiler(Options())
    if not real:
        pytest.skip("no C compiler here")
    asked = tmp_path / "asked"
    wrapper = tmp_path / "my-cc"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexec {" ".join(real)} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "mine"))
    rows = [f"b{i},{i % 40},{i % 40 + 7},{16 + i % 5}" for i in range(100)]
    problem = tmp_path / "problem.csv"
    problem.write_text("id,lower,upper,size\n" + "\n".join(rows) + "\n")
    assert main(["plan", str(problem), "--seconds", "2"]) == 0
    assert "-shared" in asked.read_text()
    assert len(list((tmp_path / "mine" / "compiled").iterdir())) == 1


def test_the_cache_folder_follows_the_option_then_the_user() -> None:
    assert cache_folder(Options.make(cache_dir="here")) == "here"
    assert cache_folder(Options(), {"XDG_CACHE_HOME": "/var/c"}) == "/var/c/treadle"
    assert cache_folder(Options(), {}).endswith(".cache/treadle")
