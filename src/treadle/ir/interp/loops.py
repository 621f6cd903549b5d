"""Runs the body of a loop operation, every statement at all points at once.

A value is an array with one axis per loop (iteration loops first, then reduction loops); an axis
along which the value does not vary has extent 1. A reduced value has extent 1 on every reduction
axis. So a statement happens at each point of the iteration loops, and at each point of the
reduction loops only if something it uses varies there:

    for i in 4 reduce j in 8
      %0 = load x[8*i + j]      axes (4, 8)      32 loads
      %1 = reduce sum %0        axes (4, 1)
      store y[i] = %1           axes (4, 1)       4 stores

Statements run one after the other, each over the whole domain: a load sees every store above it
and none below. (Points of a domain are parallel, so no legal body tells the difference.) Inside a
masked region only points the mask allows are loaded, checked or asserted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np

from treadle.index import Expr, Kind, Symbol, evaluate
from treadle.ir.body import Literal, Stmt, number_of
from treadle.ir.interp.bindings import number
from treadle.ir.interp.dtypes import Array, scalar
from treadle.ir.interp.errors import RunError
from treadle.ir.interp.memory import Memory
from treadle.ir.interp.statements import EFFECTS, STATEMENTS, Value
from treadle.ir.ops import OPS
from treadle.ir.program import Loop, Operation, Program
from treadle.ir.text_print import PRINTERS
from treadle.ir.types import DType
from treadle.ir.typing import BodyTypeError, ValueType, infer_types


class _Symbols(dict[Symbol, "int | Array"]):
    """What symbols in index expressions stand for: sizes, loop variables, indirect values."""

    def __init__(self, run: BodyRun, known: Mapping[Symbol, int | Array]) -> None:
        super().__init__(known)
        self._run = run

    def __missing__(self, symbol: Symbol) -> int | Array:
        if symbol.kind is Kind.INDIRECT:
            return self._run.single(number_of(symbol))
        what = "size" if symbol.kind is Kind.SIZE else "loop variable"
        message = f"operation '{self._run.name}' uses {what} {symbol.name}, which has no value"
        raise RunError(message, code="RUN002")


class BodyRun:
    """One body at work: the values so far, the mask and the parameters of the open regions."""

    def __init__(self, op: Loop, memory: Memory) -> None:
        self.name, self.body, self.memory = op.name, op.body, memory
        where = f"operation '{op.name}'"
        extents = [number(n, memory.sizes, where) for n in op.body.space.extents]
        split = len(op.body.domain)
        # A body without iteration loops is one point: an axis of its own keeps arrays arrays.
        self.points = tuple(extents[:split]) or (1,)
        self.reduce = tuple(extents[split:])
        self.types = _types(op, memory)
        self.values: dict[int, Value] = {}
        self.mask: Array | None = None
        self.params: list[Sequence[Array]] = []
        known: dict[Symbol, int | Array] = dict(memory.sizes)
        first = len(self.points) - split
        for k, v in enumerate(op.body.space.vars):
            known[v] = self._axis(first + k)
        self.symbols = _Symbols(self, known)

    def _axis(self, at: int) -> Array:
        shape = [1] * (len(self.points) + len(self.reduce))
        shape[at] = (*self.points, *self.reduce)[at]
        return np.arange(shape[at]).reshape(shape)

    def run(self) -> None:
        """Run every statement; a domain without points only defines what it would have stored."""
        if 0 in self.points:
            for name, _, _, _ in self.body.stores():
                self.memory.define(name)
        else:
            self.block(self.body.stmts, 0)

    def block(self, stmts: Sequence[Stmt], counter: int) -> tuple[Array, ...]:
        """Run statements whose numbers begin at `counter`; gives what they yield."""
        yielded: tuple[Array, ...] = ()
        for stmt in stmts:
            if stmt.op == "yield":
                yielded = tuple(self.single(a) for a in stmt.args)
            elif OPS[stmt.op].produces:
                self.values[counter] = STATEMENTS[stmt.op](self, stmt, counter)
                counter = counter + 1 + count_values(stmt.region)
            else:
                EFFECTS[stmt.op](self, stmt, counter)
        return yielded

    # -- looking at values -----------------------------------------------------------------
    def single(self, at: int) -> Array:
        """The value %at, which is no tuple."""
        found = self.values[at]
        assert not isinstance(found, tuple), f"%{at} has several results"
        return found

    def type_of(self, at: int) -> DType:
        """The element type of %at."""
        found = self.types[at]
        assert isinstance(found, DType)
        return found

    def index(self, e: object) -> Array:
        """An index expression at every point it varies over."""
        assert isinstance(e, Expr)
        found = np.asarray(evaluate(e, self.symbols, np.minimum, np.maximum), np.int64)
        return found.reshape(self._ones()) if found.ndim == 0 else found

    def literal(self, value: object, dtype: DType) -> Array:
        """A literal as a value that varies along no loop."""
        assert isinstance(value, Literal)
        return scalar(value.value, dtype).reshape(self._ones())

    def _ones(self) -> tuple[int, ...]:
        return (1,) * (len(self.points) + len(self.reduce))

    # -- rows: the reduction loops as one last axis ------------------------------------------
    def rows(self, values: Sequence[Array]) -> list[Array]:
        """Values at every point of the reduction loops, which become the last axis."""
        kept = np.broadcast_shapes(*[v.shape[: len(self.points)] for v in values])
        full = [np.broadcast_to(v, kept + self.reduce) for v in values]
        return [v.reshape(*kept, math.prod(self.reduce)) for v in full]

    def unrolled(self, row: Array) -> Array:
        """A row back on the reduction loops."""
        return row.reshape(row.shape[:-1] + self.reduce)

    def reduced(self, value: Array) -> Array:
        """One value per row, as a value that does not vary along the reduction loops."""
        return value.reshape(value.shape + (1,) * len(self.reduce))

    # -- complaints ------------------------------------------------------------------------
    def fail(
        self, code: str, message: str, stmt: Stmt, at: tuple[int, ...] | None = None
    ) -> NoReturn:
        """Stop with an error that shows the statement and, where known, the loop point."""
        notes = [f"statement: {PRINTERS[stmt.op](stmt)}"]
        if at is not None:
            at = at[len(at) - len(self.body.space) :]
            pairs = zip(self.body.space.vars, at, strict=True)
            point = ", ".join([f"{v.name} = {k}" for v, k in pairs])
            notes.append(f"at: {point or 'the only point'}")
        where = f"operation '{self.name}'"
        raise RunError(f"{where}: {message}", code=code, notes=notes, operations=[self.name])


def run_loop(op: Loop, memory: Memory) -> None:
    """Run a loop operation on the storages in `memory`."""
    BodyRun(op, memory).run()


def count_values(stmts: Sequence[Stmt]) -> int:
    """How many numbers the statements of a block take, inner regions included."""
    return sum(OPS[s.op].produces + count_values(s.region) for s in stmts)


def _inferred(op: Operation, program: Program) -> list[ValueType]:
    assert isinstance(op, Loop)
    return infer_types(op.body, program.by_name)


def _types(op: Loop, memory: Memory) -> list[ValueType]:
    try:
        return memory.program.derive_of(op, _inferred)
    except BodyTypeError as error:
        message = f"operation '{op.name}': {error}"
        raise RunError(message, code="RUN008", operations=[op.name]) from error
