"""Compiling C at run time: found again, never half written, clear when it fails."""

from __future__ import annotations

import ctypes
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.core.options import Options, cache_folder
from treadle.core.toolchain import compile_shared, find_compiler

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
    assert [str(p) for p in (tmp_path / "cache").iterdir()] == list(paths)


@needs_compiler
def test_a_source_that_does_not_compile_says_why(tmp_path: Path) -> None:
    made = compile_shared("int twice(int x) { return y; }\n", options=options(tmp_path))
    assert made.path == ""
    assert made.verdict.code == "TOOL002"
    assert "y" in str(made.verdict.facts["reason"])
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_compiler_that_is_not_there_is_named(tmp_path: Path) -> None:
    made = compile_shared(SOURCE, options=options(tmp_path, cc="no-such-compiler -x"))
    assert str(made.verdict) == "no TOOL001 looked_for='no-such-compiler -x'"


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cc = shutil.which("true")
    if cc is None:
        pytest.skip("no program to stand in for a compiler")
    bad = Options.make(cache_dir=str(tmp_path / "file" / "cache"), cc=cc)
    assert compile_shared(SOURCE, options=bad).verdict.code == "TOOL002"


def test_the_cache_folder_follows_the_option_then_the_user() -> None:
    assert cache_folder(Options.make(cache_dir="here")) == "here"
    assert cache_folder(Options(), {"XDG_CACHE_HOME": "/var/c"}) == "/var/c/treadle"
    assert cache_folder(Options(), {}).endswith(".cache/treadle")
