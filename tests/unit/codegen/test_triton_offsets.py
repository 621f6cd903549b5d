"""Nests that differ in where they begin in a storage are one function in Triton."""

from __future__ import annotations

from treadle.codegen.lower import lower
from treadle.codegen.triton.unit import TritonUnit, write_triton
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.numerics import TORCH_ON_GPU
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES

GPU = "cuda:0"


def rows_written(step: int) -> TritonUnit:
    """Three kernels that each write a part of one result, `step` elements apart."""
    b = ProgramBuilder("parts", numerics=TORCH_ON_GPU)
    x = b.input("x", "bf16", [4 * step], device=GPU)
    y = b.output("y", "bf16", [4 * step], device=GPU)
    for n in range(3):
        with b.loop(f"part{n}", [step], device=GPU) as k:
            (i,) = k.vars
            k.store(y, (i + n * step,), k.sqrt(k.load(x, i + (n + 1) * step).to("f32")).to("bf16"))
    built = run_pipeline(b.build(), Ctx(Options(), MACHINES, Journal()), KERNELS)
    return write_triton(lower(built))


def test_parts_that_lie_on_sixteen_bytes_share_a_function() -> None:
    unit = rows_written(64)
    sources = [one for several in unit.kernels for one in several]
    assert len(unit.functions) == 1
    assert [one.offsets for one in sources] == [(128, 0), (256, 128), (384, 256)]


def test_parts_that_do_not_should_not_share_it_and_keep_what_is_left() -> None:
    unit = rows_written(62)  # 124 bytes: four less than a multiple of sixteen
    sources = [one for several in unit.kernels for one in several]
    assert len(unit.functions) == 3
    assert all(n % 16 == 0 for one in sources for n in one.offsets)
    assert "p0 + i0 + 6," in sources[0].text, "62 elements are 112 bytes and six elements"
