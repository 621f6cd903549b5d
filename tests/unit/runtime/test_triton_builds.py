"""Triton functions are compiled beside us, each once, and kept between runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("triton")

from treadle.core.options import Options
from treadle.runtime.triton_builds import BuildError, Builds, KernelJob
from treadle.runtime.triton_server import Server

TEXT = """import triton
import triton.language as tl


@triton.jit
def twice(a0, a1, n):
    p0 = a0.to(tl.pointer_type(tl.float32))
    p1 = a1.to(tl.pointer_type(tl.float32))
    r = tl.arange(0, 128)
    tl.store(p1 + r, {what}, r < n)
"""


def job(what: str = "2.0 * tl.load(p0 + r, r < n)", **other: object) -> KernelJob:
    sizes = (("i32", False),)
    given = {"text": TEXT.format(what=what), "name": "twice", "arch": "sm_90", "addresses": 2}
    return KernelJob(**{**given, "sizes": sizes, "options": (("num_warps", 1),), **other})


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Builds]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    made = Builds("sm_90", Options(cache_dir=str(tmp_path / "own")))
    yield made
    made.close()


def test_a_function_becomes_a_binary_once_and_is_found_by_the_next_process(
    builds: Builds, tmp_path: Path
) -> None:
    made = builds.submit(job()).result(60)
    assert made.binary[:4] == b"\x7fELF"
    assert (made.name, made.suffix, made.warps, made.scratch) == ("twice", "cubin", 1, 0)
    assert builds.submit(job()).result() is made
    other = Builds("sm_90", Options(cache_dir=str(tmp_path / "own")))
    assert other.submit(job()).result() == made
    assert (builds.compiled, other.compiled) == (1, 0)


def test_what_decides_a_binary_is_part_of_its_key() -> None:
    others = [
        job("3.0 * tl.load(p0 + r, r < n)"),
        job(arch="sm_100"),
        job(sizes=(("i64", False),)),
        job(sizes=(("i32", True),)),
        job(options=(("num_warps", 2),)),
    ]
    assert len({one.key for one in [job(), *others]}) == 1 + len(others)
    assert job().key == job().key


def test_what_triton_says_against_a_function_is_said_to_who_waits(builds: Builds) -> None:
    bad, good = builds.submit(job("tl.nothing(p0)")), builds.submit(job())
    with pytest.raises(BuildError, match="twice cannot be compiled for sm_90: "):
        bad.result(60)
    assert good.result(60).name == "twice"


def test_a_damaged_entry_is_compiled_again(builds: Builds, tmp_path: Path) -> None:
    builds.submit(job()).result(60)
    path = builds.cache.find(job().key)
    assert path is not None
    os.truncate(path, 40)
    other = Builds("sm_90", Options(cache_dir=str(tmp_path / "own")))
    try:
        assert other.submit(job()).result(60).binary[:4] == b"\x7fELF"
        assert other.compiled == 1
    finally:
        other.close()


def test_if_the_process_dies_its_jobs_are_done_here(builds: Builds) -> None:
    assert builds.start()
    process = builds._process
    assert process is not None
    first = builds.submit(job())
    process.kill()
    process.wait()
    assert first.result(60).name == "twice"
    assert builds.submit(job("tl.load(p0 + r)")).result(60).name == "twice", "a new one is started"


def test_a_disk_that_is_full_is_an_error_and_not_a_wait(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**how: object) -> str:
        raise OSError("no room")

    with monkeypatch.context() as changed:
        changed.setattr("treadle.runtime.triton_builds.tempfile.mkdtemp", full)
        for _ in range(2):
            with pytest.raises(OSError, match="no room"):
                builds.submit(job())
    assert builds.submit(job()).result(60).name == "twice"


def test_a_fork_that_ends_leaves_the_process_and_its_folder_alone(builds: Builds) -> None:
    assert builds.start()
    process, folder = builds._process, builds._folder
    child = os.fork()
    if child == 0:
        builds.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert process is not None
    assert process.poll() is None
    assert os.path.isdir(folder)
    assert builds.submit(job()).result(60).name == "twice"


def test_where_no_process_can_be_started_jobs_are_done_here(
    builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.runtime.triton_server.__file__", "nowhere.py")
    assert builds.submit(job()).result(60).name == "twice"


def test_spare_jobs_wait_for_others_and_leave_them_room() -> None:
    server = Server(8)
    server.waiting = [{"id": 1, "spare": True}, {"id": 2}, {"id": 3, "spare": False}]
    found = []
    while (one := server.next()) is not None:
        found.append(one["id"])
        server.running[one["id"]] = one
    assert found == [2, 3, 1]
    server.waiting = [{"id": k, "spare": True} for k in range(10, 20)]
    while (one := server.next()) is not None:
        server.running[one["id"]] = one
    assert len(server.running) == 6
    server.waiting.append({"id": 30})
    assert server.next() == {"id": 30}
    assert Server(1).next() is None


def test_a_spare_job_is_compiled_like_any_other(builds: Builds) -> None:
    made = builds.submit(job(), is_spare=True).result(60)
    assert builds.submit(job()).result() is made
