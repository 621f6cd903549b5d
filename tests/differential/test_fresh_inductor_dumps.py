"""Dumps that the installed torch writes now come back byte for byte, and are derived again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.frontends.inductor_dump import InductorDump, model, parse_dump, print_dump, rederive

pytest.importorskip("torch")

MAKER = Path(__file__).parents[1] / "corpus" / "inductor" / "make_dumps.py"
CASES = ("softmax_dynamic", "welford", "pad_masked", "scatter", "mutations", "training",
         "collectives", "outer_loop_fusion", "size_from_data", "softmax",
         "removed_users", "reflect_dynamic")  # fmt: skip
LONG = "loops_split_again"  # eight seconds of the peer's; what it dumped once is in the corpus

# A real run with the public switches: the files of the debug folder, and the log beside them.
PROGRAM = """
import torch
def f(x, y):
    return torch.relu(x) + y, (x * y).sum(-1)
torch.compile(f)(torch.ones(4, 8), torch.ones(8))
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """A cache of its own; no C++ compiler is asked what it can do, which takes seven seconds."""
    own = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_VEC_ISA_OK": "1"}
    return dict(os.environ, **own, **more)


def read_back(path: Path) -> InductorDump:
    text = path.read_bytes().decode("utf-8")
    dump = parse_dump(text, path.name)
    assert print_dump(dump) == text
    assert dump.unknown_count == 0
    assert not [finding for finding in dump.findings if not finding.is_note]
    assert [str(difference) for difference in rederive(dump).differences] == []
    return dump


def dumped(folder: Path, *cases: str) -> Path:
    """The folder, with what the installed torch dumps of these cases."""
    command = [sys.executable, str(MAKER), str(folder), *cases]
    done = subprocess.run(command, env=environment(folder), capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return folder


def all_come_back(folder: Path, case: str) -> bool:
    files = sorted(folder.glob(f"{case}.*.txt"))
    assert files
    return all(read_back(path) for path in files)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dumped(tmp_path_factory.mktemp("dumps"), *CASES)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("case", CASES)
def test_a_fresh_dump_comes_back(fresh: Path, case: str) -> None:
    assert all_come_back(fresh, case)


@pytest.mark.exhaustive
@pytest.mark.torch
def test_a_fresh_dump_that_takes_long_comes_back(tmp_path: Path) -> None:
    assert all_come_back(dumped(tmp_path, LONG), LONG)


@pytest.mark.slow
@pytest.mark.torch
def test_a_fresh_dump_says_what_was_compiled(fresh: Path) -> None:
    dump = read_back(fresh / "scatter.0.pre.txt")
    modes = {
        dep.mode
        for node in dump.last.leaves()
        for dep in node.writes
        if isinstance(dep, model.MemoryDep)
    }
    assert "atomic_add" in modes
    collectives = read_back(fresh / "collectives.0.pre.txt")
    weak = [
        dep for node in collectives.nodes for dep in node.unmet if isinstance(dep, model.WeakDep)
    ]
    assert weak
    assert all(dep.is_fake is not None for dep in weak)


@pytest.mark.exhaustive
@pytest.mark.torch
def test_debug_folder_and_log_say_the_same(tmp_path: Path) -> None:
    switches = environment(
        tmp_path,
        TORCH_COMPILE_DEBUG="1",
        TORCH_COMPILE_DEBUG_DIR=str(tmp_path / "debug"),
        TORCH_LOGS="ir_pre_fusion,ir_post_fusion",
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=switches,
        cwd=tmp_path,
        capture_output=True,
        timeout=600,
    )
    log = tmp_path / "stderr.txt"
    log.write_bytes(done.stderr)
    sections = {section.title: section for section in read_back(log).sections}
    for title, name in (("BEFORE FUSION", "ir_pre_fusion"), ("AFTER FUSION", "ir_post_fusion")):
        files = list(tmp_path.rglob(f"{name}.txt"))
        if not files:
            pytest.skip(f"no debug files: {done.stderr.decode()[-500:]}")
        assert read_back(files[0]).nodes == sections[title].nodes
