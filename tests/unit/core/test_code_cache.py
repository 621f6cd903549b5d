"""The cache of compiled code: what may be loaded, what is made again, what goes first."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.core.code_cache import CodeCache
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.core.toolchain import compile_shared, find_compiler, load_shared
from treadle.lab.cli import main

SOURCE = "int twice(int x) { return 2 * x; }\n"
needs_compiler = pytest.mark.skipif(not find_compiler(Options()), reason="no C compiler here")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def options(tmp_path: Path, **more: object) -> Options:
    return Options.make(cache_dir=str(tmp_path / "cache"), **more)


def kept(cache: CodeCache, key: str, content: bytes) -> str:
    with cache.workshop() as work:
        made = os.path.join(work, "made.so")
        Path(made).write_bytes(content)
        return cache.put(key, made, "by hand", work)


def truncate(entry: Path) -> None:
    code = entry / "code.so"
    code.write_bytes(code.read_bytes()[:4096])


def flip_a_bit(entry: Path) -> None:
    code = entry / "code.so"
    content = bytearray(code.read_bytes())
    content[len(content) // 2] ^= 1
    code.write_bytes(bytes(content))


def empty(entry: Path) -> None:
    (entry / "code.so").write_bytes(b"")


def lose_the_card(entry: Path) -> None:
    (entry / "about.json").unlink()


def spoil_the_card(entry: Path) -> None:
    (entry / "about.json").write_text("[" * 100_000)


def other_version(entry: Path) -> None:
    card = json.loads((entry / "about.json").read_text())
    (entry / "about.json").write_text(json.dumps({**card, "treadle_code": 0}))


def let_others_write_the_code(entry: Path) -> None:
    (entry / "code.so").chmod(0o666)


def let_others_write_the_folder(entry: Path) -> None:
    entry.chmod(0o777)


def link_elsewhere(entry: Path) -> None:
    content = (entry / "code.so").read_bytes()
    (entry / "code.so").unlink()
    (entry.parent.parent / "elsewhere.so").write_bytes(content)
    (entry / "code.so").symlink_to(entry.parent.parent / "elsewhere.so")


@needs_compiler
@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        flip_a_bit,
        empty,
        lose_the_card,
        spoil_the_card,
        other_version,
        let_others_write_the_code,
        let_others_write_the_folder,
        link_elsewhere,
    ],
)
def test_what_may_not_be_loaded_is_made_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    made = compile_shared(SOURCE, options=options(tmp_path))
    damage(Path(made.path).parent)
    again = compile_shared(SOURCE, options=options(tmp_path))
    assert (again.is_new, again.path) == (True, made.path)
    assert load_shared(SOURCE, options=options(tmp_path)).library.twice(21) == 42
    assert not compile_shared(SOURCE, options=options(tmp_path)).is_new


@needs_compiler
def test_a_truncated_library_does_not_kill_the_process(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from treadle.core.options import Options\n"
        "from treadle.core.toolchain import load_shared\n"
        "found = load_shared(sys.argv[1], options=Options.from_env())\n"
        "print(found.library.twice(4))\n"
    )
    made = compile_shared(SOURCE, options=options(tmp_path))
    truncate(Path(made.path).parent)
    environment = {**os.environ, "TREADLE_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script, SOURCE], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr


@needs_compiler
def test_a_whole_file_that_the_system_will_not_load_is_made_again(tmp_path: Path) -> None:
    made = compile_shared(SOURCE, options=options(tmp_path))
    key = Path(made.path).parent.name
    cache = CodeCache(str(tmp_path / "cache"), 1 << 30)
    cache.discard(key)
    kept(cache, key, b"not a library, with a checksum that is right")
    loaded = load_shared(SOURCE, options=options(tmp_path))
    assert loaded.verdict
    assert loaded.library.twice(3) == 6


def test_what_no_compiler_run_makes_loadable_is_refused_with_the_reason(tmp_path: Path) -> None:
    fake = tmp_path / "fake-cc"
    writes = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && echo no > "$2"; shift; done'
    fake.write_text(f"#!/bin/sh\n{writes}\n")
    fake.chmod(0o755)
    loaded = load_shared(SOURCE, options=options(tmp_path, cc=str(fake)))
    assert loaded.verdict.code == "TOOL005"
    assert "code.so" in str(loaded.verdict.facts["reason"])


@needs_compiler
def test_folders_and_files_are_the_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Path(compile_shared(SOURCE, options=options(tmp_path)).path)
    finally:
        os.umask(before)
    folders = [tmp_path / "cache", tmp_path / "cache" / "compiled", made.parent]
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3
    assert [f.stat().st_mode & 0o777 for f in sorted(made.parent.iterdir())] == [0o600] * 2


@needs_compiler
@needs_root
@pytest.mark.parametrize("which", [".", "code.so", "about.json"])
def test_an_entry_of_another_owner_is_never_loaded(tmp_path: Path, which: str) -> None:
    made = compile_shared(SOURCE, options=options(tmp_path))
    os.chown(Path(made.path).parent / which, 12345, 12345)
    assert CodeCache(str(tmp_path / "cache"), 1 << 30).find(Path(made.path).parent.name) is None
    assert compile_shared(SOURCE, options=options(tmp_path)).is_new


@needs_root
def test_a_folder_of_another_owner_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache" / "compiled").mkdir(parents=True)
    os.chown(tmp_path / "cache" / "compiled", 12345, 12345)
    cache = CodeCache(str(tmp_path / "cache"), 1 << 30)
    with pytest.raises(UsageError, match=r"TOOL004.*belongs to user 12345"):
        cache.find("00")


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with (
        pytest.raises(UsageError, match="others may write to it"),
        CodeCache(str(tmp_path / "cache"), 1 << 30).workshop(),
    ):
        pass
    (tmp_path / "cache").chmod(0o1777)  # as /tmp is: nobody can replace what is not theirs
    with CodeCache(str(tmp_path / "cache"), 1 << 30).workshop() as work:
        assert os.path.isdir(work)


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = CodeCache(str(tmp_path / "cache"), 50_000)
    for k in range(4):
        kept(cache, f"{k:040x}", bytes(10_000))
        os.utime(tmp_path / "cache" / "compiled" / f"{k:040x}" / "about.json", (k, k))
    assert cache.find(f"{0:040x}") is not None  # used now: no longer the oldest
    kept(cache, f"{9:040x}", bytes(12_000))
    names = {int(entry.key, 16) for entry in cache.entries()}
    assert names == {0, 2, 3, 9}
    assert sum(entry.bytes for entry in cache.entries()) <= 50_000


def test_the_cache_stays_bounded_and_the_newest_entry_stays(tmp_path: Path) -> None:
    cache = CodeCache(str(tmp_path / "cache"), 30_000)
    for k in range(40):
        assert kept(cache, f"{k * 7919:040x}", bytes(9_000 + k))
        assert sum(entry.bytes for entry in cache.entries()) <= 30_000
    assert cache.find(f"{39 * 7919:040x}") is not None


def test_work_that_a_dead_process_left_is_swept(tmp_path: Path) -> None:
    cache = CodeCache(str(tmp_path / "cache"), 1 << 20)
    kept(cache, f"{1:040x}", b"one")
    left = tmp_path / "cache" / "compiled" / "making-left"
    left.mkdir()
    os.utime(left, (0, 0))
    fresh = tmp_path / "cache" / "compiled" / "making-fresh"
    fresh.mkdir()
    cache.sweep()
    assert (left.exists(), fresh.exists()) == (False, True)


def _many(folder: str, number: int) -> int:
    """One of several processes that make, use and throw away the same few libraries."""
    cache = CodeCache(folder, 40_000)
    right = 0
    for k in range(60):
        content = bytes([(k * number) % 5]) * 9_000
        key = f"{content[0]:040x}"
        path = cache.find(key) or kept(cache, key, content)
        try:
            right += Path(path).read_bytes() == content
        except FileNotFoundError:  # another process threw it away just now
            right += 1
        if k % 7 == 0:
            cache.discard(key)
    return right


def test_many_processes_share_one_folder(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        jobs = [(str(tmp_path / "cache"), n + 1) for n in range(4)]
        assert pool.starmap(_many, jobs) == [60] * 4
    left = [p.name for p in (tmp_path / "cache" / "compiled").iterdir()]
    assert not [name for name in left if name.startswith(("making-", "gone-"))]


@needs_compiler
def test_the_command_shows_and_clears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TREADLE_CACHE_LIMIT", "16MiB")
    assert main(["cache"]) == 0
    assert "(not there yet)" in capsys.readouterr().out
    made = compile_shared(SOURCE, options=Options.from_env())
    flip_a_bit(Path(compile_shared(SOURCE + "\n", options=Options.from_env()).path).parent)
    assert main(["cache", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["folder"] == str(tmp_path / "cache" / "compiled")
    assert shown["limit"] == 16 << 20
    assert shown["refused"] == 1
    assert Path(made.path).parent.name in [entry["key"] for entry in shown["entries"]]
    assert main(["cache", "show"]) == 0
    assert "2 libraries" in capsys.readouterr().out
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == 2
    assert list((tmp_path / "cache" / "compiled").iterdir()) == []


def test_the_command_names_a_folder_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "file"))
    assert main(["cache", "clear"]) == 0  # nothing is there
    assert main(["cache", "show"]) == 2
    assert "TOOL004" in capsys.readouterr().err
    open_to_all = tmp_path / "open"
    kept(CodeCache(str(open_to_all), 1 << 20), f"{1:040x}", b"one")
    open_to_all.chmod(0o777)
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(open_to_all))
    assert main(["cache"]) == 1
    assert "others may write to it" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 2
