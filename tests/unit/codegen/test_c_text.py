from __future__ import annotations

from collections.abc import Callable

from treadle.codegen.c.unit import Unit, write_unit
from treadle.codegen.lower import lower
from treadle.codegen.names import Names, plain
from treadle.ir.build import BodyBuilder, ProgramBuilder
from treadle.ir.types import Buffer


def unit(write: Callable[[ProgramBuilder, BodyBuilder, Buffer, Buffer], None]) -> Unit:
    b = ProgramBuilder("text")
    n = b.size("n", 1, 64)
    x, y = b.input("x", "f32", [n, 8]), b.output("y", "f32", [n, 8])
    with b.loop("loop", [n, 8]) as k:
        write(b, k, x, y)
    return write_unit(lower(b.build()))


def kernel_text(write: Callable[[ProgramBuilder, BodyBuilder, Buffer, Buffer], None]) -> str:
    (kernel,) = unit(write).kernels
    return kernel.text


def test_a_division_is_named_in_the_loop_that_decides_it() -> None:
    def write(b: ProgramBuilder, k: BodyBuilder, x: Buffer, y: Buffer) -> None:
        i, j = k.vars
        value = k.load_at(x, 8 * (i // 2) + j) + k.load_at(x, 8 * (i // 2) + 7 - j)
        k.store(y, (i, j), value)

    lines = [line.strip() for line in kernel_text(write).splitlines()]
    named = [k for k, line in enumerate(lines) if "(i0 / 2)" in line]
    assert len(named) == 1
    assert lines[named[0] - 1].startswith("for (int64_t i0")
    assert lines[named[0] + 1].startswith("for (int64_t i1")


def test_only_divisions_of_what_may_be_negative_need_a_helper() -> None:
    def write(b: ProgramBuilder, k: BodyBuilder, x: Buffer, y: Buffer) -> None:
        i, j = k.vars
        k.store(y, (i, j), k.index((2 * i - 3 * j) // 7 + j % 3, "f32"))

    text = kernel_text(write)
    assert "tr_floordiv((2 * i0 - 3 * i1), 7)" in text
    assert "(i1 % 3)" in text


def test_accesses_that_are_proven_are_not_tested_again() -> None:
    def proven(b: ProgramBuilder, k: BodyBuilder, x: Buffer, y: Buffer) -> None:
        k.store(y, k.vars, k.load(x, *k.vars))

    def unproven(b: ProgramBuilder, k: BodyBuilder, x: Buffer, y: Buffer) -> None:
        i, j = k.vars
        k.store(y, (i, j), k.load_at(x, 9 * i + j, unproven=True))

    assert "goto done" not in kernel_text(proven)
    assert kernel_text(unproven).count("goto done") == 1


def test_arguments_are_storages_then_sizes() -> None:
    def write(b: ProgramBuilder, k: BodyBuilder, x: Buffer, y: Buffer) -> None:
        k.store(y, k.vars, k.load(x, *k.vars))

    found = unit(write)
    assert found.kernels[0].args == ("x", "y", "n")
    assert "k0_loop(buffers[0], buffers[1], sizes[0], error)" in found.text


def test_every_operation_is_one_step_and_kernels_are_known_by_theirs() -> None:
    b = ProgramBuilder("steps")
    x, y = b.input("x", "f32", [4, 4]), b.output("y", "f32", [4, 4])
    t = b.buffer("t", "f32", [4, 4])
    with b.loop("fill", [4, 4]) as k:
        k.store(t, k.vars, k.load(x, *k.vars))
    b.extern("aten.mm", [t, x], [y], name="mm")
    host = lower(b.build())
    assert [op.name for op in host.program.ops] == ["fill", "mm"]
    assert host.launches == {"fill": "k0_fill"}
    assert host.kernel_by_name["k0_fill"].storages == ("x", "t")


def test_names_are_legal_and_differ() -> None:
    names = Names()
    assert names.fresh("k", "aten::mm -> out") == "k0_aten_mm_out"
    assert names.fresh("k", "aten::mm -> out") == "k1_aten_mm_out"
    assert plain("???") == "x"
