"""Stand-ins for calls that the reference does not know, so that any program can be run.

    run(program, inputs, externs=stand_ins(program))

A stand-in computes nothing useful: every element it writes depends on every element it was given
and on the name of the call. Two schedules of a program give the same results with stand-ins only if
each call saw the same data in both, which is what a test of a schedule wants to know.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from treadle.analysis.cost import filled_first
from treadle.ir.effects import effects
from treadle.ir.interp import CallContext, ExternFn, RunError
from treadle.ir.interp.externs import find_extern
from treadle.ir.program import Call, Collective, MultiOutput, Program, Ref
from treadle.ir.types import BufferKind, DType


def stand_ins(program: Program) -> dict[str, ExternFn]:
    """An implementation for the target of every call, where the reference has none."""
    found: dict[str, ExternFn] = {}
    shapes = _shapes_of_parts(program)
    fresh = program.derive(filled_first)

    def stand_in(ctx: CallContext, op: Call) -> None:
        given = [n for n in effects(op).reads if ctx.kind_of(n) is BufferKind.TENSOR]
        given += [m for m in op.mutates if m not in fresh.get(op.name, ())]
        digest = _digest(op.target, [ctx.read(n) for n in given])
        for position, name in enumerate((*op.writes, *op.mutates)):
            seed = zlib.crc32(f"{op.target}/{position}".encode())
            if ctx.kind_of(name) is BufferKind.TUPLE:
                parts = [_values(s, DType.F64, digest, seed + k)
                         for k, s in enumerate(shapes.get(name, ()))]  # fmt: skip
                ctx.write(name, parts)
            elif ctx.kind_of(name) is BufferKind.TENSOR:
                ctx.write(name, _values(ctx.shape_of(name), ctx.dtype_of(name), digest, seed))

    for op in program.leaves:
        if isinstance(op, Call) and op.target not in found and not _is_known(op, program):
            found[op.target] = stand_in
    return found


def _is_known(op: Call, program: Program) -> bool:
    if isinstance(op, Collective):
        return False  # the reference has one rank; a dump may have more
    try:
        find_extern(op, {})
    except RunError:
        return False
    # A product whose operands have lost their shape is not the product the reference knows.
    tensors = [a.buffer for a in op.args if isinstance(a, Ref)]
    return all(program.by_name[n].layout.numel.value != 0 for n in tensors)


def _shapes_of_parts(program: Program) -> dict[str, list[tuple[int, ...]]]:
    found: dict[str, list[tuple[int, ...]]] = {}
    for op in program.leaves:
        if isinstance(op, MultiOutput):
            sizes = program.by_name[op.target].layout.sizes
            shape = tuple(n.value if n.value is not None else 1 for n in sizes)
            row = found.setdefault(op.source, [])
            row.extend([()] * (op.position + 1 - len(row)))
            row[op.position] = shape
    return found


def _digest(target: str, arrays: list[Any]) -> float:
    """A number in [0, 1) that each element of each array moves."""
    total = float(zlib.crc32(target.encode()) % 1009)
    for k, array in enumerate(arrays):
        flat = np.nan_to_num(np.asarray(array).astype(np.float64).reshape(-1), posinf=3, neginf=-3)
        weights = 1.0 + (np.arange(flat.size) * 7919 % 1013) / 1013.0
        total += (k + 1) * float(np.dot(flat, weights))
    return float(np.modf(abs(total) * 0.6180339887498949)[0])


def _values(shape: tuple[int, ...], element: DType, digest: float, seed: int) -> Any:
    count = int(np.prod(shape, dtype=np.int64))
    pattern = np.modf(np.arange(count) * 0.7548776662466927 + digest + seed % 97 * 0.013)[0]
    if element is DType.BOOL:
        return (pattern > 0.5).reshape(shape)
    if element.is_int:
        return np.floor(pattern * 4).astype(np.int64).reshape(shape)
    return (pattern * 2 - 1).reshape(shape)
