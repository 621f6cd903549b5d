"""Kernels of every kind compile for devices that are not here, and fit into their registers."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from treadle.codegen.lower import lower
from treadle.codegen.triton.unit import TritonUnit, write_triton
from treadle.core.context import Ctx
from treadle.core.errors import UsageError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.numerics import TORCH_ON_GPU
from treadle.ir.program import Foreach
from treadle.lab.cli import main
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
GPU = "cuda:0"
SEEDS = Path(__file__).parents[4] / "shared" / "seeds"


def every_kind() -> TritonUnit:
    """Pointwise, transposed, rows kept and walked, columns, scan, scatter, several as one."""
    b = ProgramBuilder("kinds", numerics=TORCH_ON_GPU)
    x = b.input("x", "bf16", [512, 1024], device=GPU)
    long = b.input("long", "f32", [64, 40_000], device=GPU)
    f8 = b.input("f8", "f8e4m3fn", [512, 1000], device=GPU)
    ids = b.input("ids", "i64", [512], device=GPU)

    def out(name: str, kind: str, sizes: list[int]) -> Any:
        return b.output(name, kind, sizes, device=GPU)

    with b.loop("turned", [1024, 512], device=GPU) as k:
        j, i = k.vars
        k.store(out("turned_y", "bf16", [1024, 512]), (j, i), k.tanh(k.load(x, i, j).to("f32")))
    with b.loop("soft", [512], reduce=[1024], device=GPU) as k:
        e = k.exp((v := k.load(x, *k.vars).to("f32")) - k.max(v))
        k.store(out("soft_y", "bf16", [512, 1024]), k.vars, e / k.sum(e))
    with b.loop("totals", [64], reduce=[40_000], device=GPU) as k:
        k.store(out("totals_y", "f32", [64]), k.vars[0], k.sum(k.load(long, *k.vars)))
    with b.loop("columns", [1024], reduce=[512], device=GPU) as k:
        j, i = k.vars
        k.store(out("columns_y", "f32", [1024]), j, k.sum(k.load(x, i, j).to("f32")))
    with b.loop("running", [512], reduce=[1024], device=GPU) as k:
        found = k.scan("add", k.load(x, *k.vars).to("f32"))
        k.store(out("running_y", "f32", [512, 1024]), k.vars, found)
    with b.loop("narrow", [512, 1000], device=GPU) as k:
        k.store(out("narrow_y", "f8e4m3fn", [512, 1000]), k.vars, k.erf(k.load(f8, *k.vars)))
    sums = out("added_y", "f32", [64, 1024])
    with b.loop("nothing", [64, 1024], device=GPU) as k:
        k.store(sums, k.vars, k.constant(0.0, "f32"))
    with b.loop("added", [512, 1024], device=GPU) as k:
        i, j = k.vars
        at = k.indirect(k.load(ids, i), 64)
        value = k.load(x, i, j).to("f32")
        k.store(sums, (at, j), value, mode="atomic_add")
    with b.group(Foreach, "each"):
        for n in range(3):
            given = b.input(f"p{n}", "f32", [2048], device=GPU)
            with b.loop(f"step{n}", [2048], device=GPU) as k:
                k.store(out(f"q{n}", "f32", [2048]), k.vars, k.sqrt(k.load(given, *k.vars)))
    built = run_pipeline(b.build(), Ctx(Options(), MACHINES, Journal()), KERNELS)
    return write_triton(lower(built))


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "gfx942"])
def test_kernels_fit_into_the_registers_of(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.runtime.triton_ahead import compile_ahead_for

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    unit = every_kind()
    made = compile_ahead_for(unit, arch)
    assert len(made) == len({one.name for several in unit.kernels for one in several}) >= 8
    assert all(one.binary[:4] == b"\x7fELF" for one in made)
    assert {one.name: one.spilled for one in made if one.spilled} == {}
    assert all(0 < one.registers <= 255 for one in made)


def test_nests_that_are_alike_are_one_launch() -> None:
    unit = every_kind()
    (one,) = [one for several in unit.kernels for one in several if "p0" in one.storages]
    assert one.name.endswith("_and_2_more")
    assert one.storages == ("p0", "q0", "p1", "q1", "p2", "q2")
    ((programs, block),) = one.grid
    assert (programs.value, block) == (6, 1)  # sixteen tiles of each, eight for a program


def test_a_device_nobody_knows_is_said_in_one_line(tmp_path: Path) -> None:
    from treadle.runtime.triton_ahead import compile_ahead_for

    with pytest.raises(UsageError, match="no device is called h100; expected sm_90"):
        compile_ahead_for(every_kind(), "h100")


def test_without_triton_one_line_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from treadle.runtime.triton_ahead import compile_ahead_for

    monkeypatch.setitem(sys.modules, "triton.backends.compiler", None)
    with pytest.raises(UsageError, match="by Triton, which is not installed: pip install triton"):
        compile_ahead_for(every_kind(), "sm_90")


SEED_CASES = [
    pytest.param("003", 2, id="003"),
    pytest.param("001", 50, id="001", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("seed, least", SEED_CASES)
def test_a_dump_compiles_for_a_gpu_that_is_not_here(
    seed: str,
    least: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = sorted(SEEDS.glob(f"{seed}_*.txt"))
    if not files:
        pytest.skip("the seeds are not beside this repository")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "treadle"))
    out = tmp_path / "out"
    asked = ["compile", str(files[0]), "--target", "triton", "--arch", "sm_90", "-o", str(out)]
    assert main([*asked, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["binaries"]
    assert len(rows) >= least
    assert [row["name"] for row in rows if row["spilled"]] == []
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["binaries"] == rows
    assert all((out / row["file"]).stat().st_size > 0 for row in rows)


def test_a_gpu_is_for_triton_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.txt").write_text("treadle 1\nprogram p\ninputs\noutputs\n")
    assert main(["compile", str(tmp_path / "p.txt"), "--arch", "sm_90"]) == 2
    assert "--arch names a GPU: it goes with --target triton" in capsys.readouterr().err
