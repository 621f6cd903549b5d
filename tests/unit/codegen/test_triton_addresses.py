"""What the addresses of loads in Triton leave to a compiler, and what they do not."""

from __future__ import annotations

from treadle.codegen.lower import lower
from treadle.codegen.triton.unit import write_triton
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.numerics import TORCH_ON_GPU
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES

GPU = "cuda:0"


def text_of(b: ProgramBuilder) -> str:
    """The Triton of a program."""
    built = run_pipeline(b.build(), Ctx(Options(), MACHINES, Journal()), KERNELS)
    return write_triton(lower(built)).text


def test_neighbours_share_an_address_and_have_their_distance_in_the_load() -> None:
    b = ProgramBuilder("windows", numerics=TORCH_ON_GPU)
    x = b.input("x", "f32", [4096], device=GPU)
    y = b.output("y", "f32", [1024], device=GPU)
    with b.loop("sums", [1024], device=GPU) as k:
        (i,) = k.vars
        k.store(y, (i,), k.load(x, i * 4) + k.load(x, i * 4 + 3))
    text = text_of(b)
    assert "tl.load(p0 + (4 * i0))" in text
    assert "tl.load(p0 + (4 * i0) + 3)" in text, "not (4 * i0 + 3): each would be a sum of its own"


def masked_columns(size: int) -> str:
    """A matrix below its diagonal, each column times a factor out of `size`."""
    b = ProgramBuilder("below", numerics=TORCH_ON_GPU)
    x = b.input("x", "f32", [128, 128], device=GPU)
    w = b.input("w", "f32", [size], device=GPU)
    y = b.output("y", "f32", [128, 128], device=GPU)
    with b.loop("scaled", [128, 128], device=GPU) as k:
        i, j = k.vars
        below = k.ge(k.index(i), k.index(j))
        at = j if size >= 128 else j - (128 - size)
        unproven = size < 128
        value = k.masked(below, 0.0, lambda: k.load(x, i, j) * k.load(w, at, unproven=unproven))
        k.store(y, (i, j), value)
    return text_of(b)


def test_what_exists_whatever_a_condition_says_is_loaded_once_for_all_rows() -> None:
    text = masked_columns(128)
    assert "tl.load(p1 + i1)" in text
    assert "other=0.0" in text, "elements of the matrix are asked for"


def test_what_exists_under_a_condition_only_should_not_be_loaded_without_it() -> None:
    text = masked_columns(64)
    (line,) = [line for line in text.splitlines() if "tl.load" in line and "p1" in line]
    assert "other=0.0" in line
