"""Runs a whole program on numpy arrays: the meaning of the IR, slow and obvious.

    result = run(program, {"x": x, "w": w})
    y = result.outputs[0]

Operations run in order, the members of a group one after the other. Storage nobody has written
holds NaN (whole numbers: bytes 0x7E, bools: true), so that reading too early shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from treadle.ir.interp.bindings import as_arrays, bind_sizes, check_shape
from treadle.ir.interp.calls import CallContext, ExternFn, fill
from treadle.ir.interp.dtypes import Array
from treadle.ir.interp.errors import RunError
from treadle.ir.interp.externs import find_extern
from treadle.ir.interp.loops import run_loop
from treadle.ir.interp.memory import Memory
from treadle.ir.program import (
    Call,
    Collective,
    Extern,
    Loop,
    MultiOutput,
    Nest,
    Nop,
    Operation,
    Program,
    Template,
    UserKernel,
    Wait,
)
from treadle.ir.types import BufferKind


class Result:
    """What a run left behind: the outputs, and every other buffer."""

    def __init__(self, memory: Memory, outputs: list[Array]) -> None:
        self.outputs = outputs
        self._memory = memory

    def read(self, name: str) -> Array:
        """A copy of any buffer as it is after the run, in its shape."""
        if name not in self._memory.program.by_name:
            raise RunError(f"the program has no buffer '{name}'", code="RUN001")
        return self._memory.tensor(name).copy()

    @property
    def sizes(self) -> Mapping[str, int]:
        """The run-time sizes of this run by name."""
        return {s.name: n for s, n in self._memory.sizes.items()}


def run(
    program: Program,
    inputs: Mapping[str, Array],
    *,
    sizes: Mapping[str, int] | None = None,
    externs: Mapping[str, ExternFn] | None = None,
    poison: bool = True,
) -> Result:
    """Run `program` on copies of the input arrays.

    `sizes` gives run-time sizes that no input shows, `externs` implements library calls by target
    (see `calls`), and `poison=False` hands out zeroed memory instead of poisoned memory.
    """
    arrays = as_arrays(program, inputs)
    memory = Memory(program, bind_sizes(program, arrays, sizes or {}), poison)
    with np.errstate(all="ignore"):
        for name in program.inputs:
            memory.define(name)
        for name, array in arrays.items():
            check_shape(program.by_name[name], memory.layout(name).sizes, array)
            memory.tensor(name)[...] = array
        for op in program.leaves:
            RUNNERS[type(op)](op, memory, externs or {})
        outputs = [_output(memory, name) for name in program.outputs]
    return Result(memory, outputs)


def _output(memory: Memory, name: str) -> Array:
    memory.require(name, "the end of the program")
    return memory.tensor(name).copy()


def _loop(op: Operation, memory: Memory, externs: Mapping[str, ExternFn]) -> None:
    assert isinstance(op, Loop)
    run_loop(op, memory)


def _call(op: Operation, memory: Memory, externs: Mapping[str, ExternFn]) -> None:
    assert isinstance(op, Call)
    for name in op.mutates:
        memory.require(name, op.name)
    context = CallContext(op, memory)
    find_extern(op, externs)(context, op)
    for name in op.writes:
        if memory.buffer(name).kind is BufferKind.TOKEN:
            memory.define(name)
        elif name not in context.written:
            message = f"call '{op.name}' of '{op.target}' did not write buffer '{name}'"
            raise RunError(message, code="RUN010")


def _wait(op: Operation, memory: Memory, externs: Mapping[str, ExternFn]) -> None:
    assert isinstance(op, Wait)
    memory.require(op.buffer, op.name)


def _take(op: Operation, memory: Memory, externs: Mapping[str, ExternFn]) -> None:
    assert isinstance(op, MultiOutput)
    memory.require(op.source, op.name)
    items = memory.tuples.get(op.source, ())
    if not 0 <= op.position < len(items):
        message = f"operation '{op.name}' takes item {op.position} of '{op.source}'"
        raise RunError(message, code="RUN010", notes=[f"it has {len(items)} items"])
    fill(memory, op.target, items[op.position], f"item {op.position} of '{op.source}'")


def _nop(op: Operation, memory: Memory, externs: Mapping[str, ExternFn]) -> None:
    assert isinstance(op, Nop)
    for name in op.writes:
        memory.allocate(name)


RUNNERS: Mapping[type[Operation], Callable[[Operation, Memory, Mapping[str, ExternFn]], None]] = {
    Loop: _loop,
    Nest: _loop,
    Extern: _call,
    Template: _call,
    UserKernel: _call,
    Collective: _call,
    Wait: _wait,
    MultiOutput: _take,
    Nop: _nop,
}
