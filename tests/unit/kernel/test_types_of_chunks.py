"""Chunks of rows sum up in f32 what is f32, if the numerics allow, and in f64 what is f64."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.ir.numerics import TORCH
from treadle.ir.program import Kernel, Program
from treadle.ir.text import parse_program
from treadle.ir.types import DType
from treadle.kernel.row_chunks import chunk_rows

MIXED = """treadle 1
program p
inputs x
outputs s, t

buffer x : {given}[{rows}, 256] on cpu
buffer s : {sums}[{rows}] on cpu
buffer t : {totals}[256] on cpu
buffer g_columns : f64[256] on cpu

launch g on cpu mixed {{
  nest g_nest on cpu for i0 in 256 runs (rows, columns) {{
    %0 = constant 0.0 f64
    store g_columns[i0] = %0
  }}
  nest g_nest_2 on cpu for i0 in {rows} reduce r0 in 256 runs (rows, columns) {{
    %0 = load x[256*i0 + r0]
    %1 = reduce sum %0
    store s[i0] = %1
    {term}
    store g_columns[r0] = %2 mode atomic_add
  }}
  nest g_nest_3 on cpu for i0 in 256 runs (rows, columns) {{
    %0 = load g_columns[i0]
    {total}
  }}
}}
"""
F32 = {
    "given": "f32",
    "sums": "f32",
    "totals": "f32",
    "term": "%2 = cast f64 %0",
    "total": "%1 = cast f32 %0\n    store t[i0] = %1",
}
F64 = {
    "given": "f64",
    "sums": "f64",
    "totals": "f64",
    "term": "%2 = neg %0",
    "total": "store t[i0] = %0",
}
WHOLE = {**F32, "given": "i64", "sums": "i64"}


def mixed(rows: int, **said: str) -> Program:
    return replace(parse_program(MIXED.format(rows=rows, **said)), numerics=TORCH)


def chunks(program: Program, on_cpu: bool) -> tuple[int, DType]:
    """How many chunks there are, and in what they sum up."""
    (kernel,) = program.ops
    assert isinstance(kernel, Kernel)
    names = iter(["parts"])
    found = chunk_rows(kernel.members, program, lambda: next(names), on_cpu)
    assert found is not None
    (buffer,) = found.buffers
    count = buffer.layout.sizes[0].value
    assert count is not None
    return count, buffer.dtype


def test_a_few_rows_each_are_summed_up_in_f32_on_a_cpu() -> None:
    assert chunks(mixed(512, **F32), on_cpu=True) == (2, DType.F32)


def test_many_rows_make_more_chunks() -> None:
    count, dtype = chunks(mixed(32768, **F32), on_cpu=True)
    assert (count, dtype) == (64, DType.F32)
    assert 32768 // count <= TORCH.block


def test_should_not_sum_more_rows_in_f32_than_are_allowed() -> None:
    strict = replace(mixed(512, **F32), numerics=replace(TORCH, block=8))
    assert chunks(strict, on_cpu=True) == (2, DType.F64)
    # No number divides these rows into more chunks.
    assert chunks(mixed(4 * 1031, **F32), on_cpu=True) == (4, DType.F64)


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("said", [F64, WHOLE, {**F32, "totals": "f64", "total": F64["total"]}])
def test_should_not_sum_up_anything_else_in_f32(said: dict[str, str], on_cpu: bool) -> None:
    assert chunks(mixed(512, **said), on_cpu)[1] is DType.F64
