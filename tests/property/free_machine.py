"""A machine that keeps a program's numerics and no more: it uses every freedom they give.

Sums are added in f32, in a random order, in blocks; functions are off by as much as they may be,
this way or that; products go into sums unrounded; what is rounded to a narrow type is computed
badly before. Only for tests of the derived bound, which must hold for whatever comes out here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from treadle.ir.body import Stmt
from treadle.ir.interp import CallContext, ExternFn
from treadle.ir.interp.arithmetic import fused_multiply_add
from treadle.ir.interp.bindings import as_arrays, bind_sizes
from treadle.ir.interp.dtypes import Array, convert
from treadle.ir.interp.externs import find_extern
from treadle.ir.interp.loops import BodyRun, count_values
from treadle.ir.interp.machine import RUNNERS
from treadle.ir.interp.memory import Memory
from treadle.ir.interp.reductions import REDUCERS
from treadle.ir.interp.statements import EFFECTS, STATEMENTS
from treadle.ir.numerics import Numerics
from treadle.ir.ops import OPS, POINTWISE
from treadle.ir.program import Call, Loop, Program
from treadle.ir.roundings import rounded_next
from treadle.ir.types import DType
from treadle.ir.typing import as_float, promote_all
from treadle.testing.bounding.functions import ELEMENTARY, FUNCTIONS, QUOTIENTS, VALUES
from treadle.testing.bounding.rounding import ulp

PAIRS = {"truediv": np.divide, "reciprocal": np.reciprocal, "sqrt": np.sqrt,
         "int_truediv": np.divide}  # fmt: skip


class FreeRun(BodyRun):
    """A body computed as badly as the numerics allow."""

    def __init__(
        self, op: Loop, memory: Memory, numerics: Numerics, rng: np.random.Generator
    ) -> None:
        super().__init__(op, memory)
        self.numerics, self.rng = numerics, rng
        self.narrow = rounded_next(op.body, memory.program.by_name)
        self.made: dict[int, Stmt] = {}

    def block(self, stmts: Sequence[Stmt], counter: int) -> tuple[Array, ...]:
        yielded: tuple[Array, ...] = ()
        for stmt in stmts:
            if stmt.op == "yield":
                yielded = tuple(self.single(a) for a in stmt.args)
            elif OPS[stmt.op].produces:
                self.made[counter] = stmt
                self.values[counter] = self.value(stmt, counter)
                counter = counter + 1 + count_values(stmt.region)
            elif stmt.op == "store" and stmt.attr("mode") == "atomic_add":
                self.scatter_add(stmt, counter)
            else:
                EFFECTS[stmt.op](self, stmt, counter)
        return yielded

    def value(self, stmt: Stmt, at: int) -> Array | tuple[Array, ...]:
        if stmt.op in POINTWISE:
            return self.pointwise(stmt, at)
        if stmt.op == "reduce" and self.is_narrow_sum(at):
            return self.reduction(stmt, at)
        if stmt.op == "scan" and stmt.attr("combine") == "add" and self.is_narrow_sum(at):
            rows = self.rows([self.single(stmt.args[0])])[0].astype(np.float32)
            columns = [self.added(rows[..., : k + 1]) for k in range(rows.shape[-1])]
            joined = np.stack(columns, -1) if columns else rows.astype(np.float64)
            return self.unrolled(convert(joined, self.type_of(at)))
        return STATEMENTS[stmt.op](self, stmt, at)

    # -- functions and products --------------------------------------------------------------
    def pointwise(self, stmt: Stmt, at: int) -> Array | tuple[Array, ...]:
        found, to = STATEMENTS[stmt.op](self, stmt, at), self.types[at]
        if isinstance(found, tuple) or not isinstance(to, DType) or not to.is_float:
            return found
        if stmt.op in ("add", "sub") and self.numerics.contraction:
            return self.contracted(stmt, found, to)
        if (stmt.op in FUNCTIONS and stmt.op != "ldexp") or stmt.op in QUOTIENTS:
            return self.off(stmt, at, found, to)
        return found

    def off(self, stmt: Stmt, at: int, found: Array, to: DType) -> Array:
        """A function's value, off by what it may be in a random direction."""
        common = as_float(promote_all([self.type_of(a) for a in stmt.args]))
        xs = [convert(self.single(a), common).astype(np.float64) for a in stmt.args]
        wide = (PAIRS[stmt.op] if stmt.op in QUOTIENTS else VALUES[stmt.op])(*xs)
        amount = np.zeros(wide.shape)
        if stmt.op in FUNCTIONS and self.numerics.function_ulps > 0.5 and to is not DType.F64:
            amount = (self.numerics.function_ulps - 0.5) * ulp(wide, DType.F32)
        elif stmt.op in ELEMENTARY:
            amount = ulp(wide, DType.F64)
        target = to if to.is_low_precision else self.narrow[at]
        if self.numerics.as_result and target is not None:
            amount = np.maximum(amount, 0.49 * ulp(wide, target))
        if not amount.any():
            return found
        moved = wide + amount * self.signs(wide.shape)
        as_f32 = moved if to is DType.F64 else moved.astype(np.float32)
        made = convert(np.where(np.isfinite(wide), as_f32, wide), to)
        # The bound takes signs of zero for granted.
        return np.where(made == 0, np.copysign(made, found), made).astype(made.dtype)

    def contracted(self, stmt: Stmt, found: Array, to: DType) -> Array:
        """a * b + c rounded once, where there is such a product."""
        for k in (0, 1):
            source = self.made[stmt.args[k]]
            if to.is_low_precision or self.type_of(stmt.args[k]) is not to:
                continue
            if source.op not in ("mul", "square") or not self.types_are(source, to):
                continue
            a, b = (self.single(source.args[0]), self.single(source.args[-1]))
            c = convert(self.single(stmt.args[1 - k]), to)
            if stmt.op == "sub":
                a, c = (a, -c) if k == 0 else (-a, c)
            return fused_multiply_add(*np.broadcast_arrays(a, b, c))
        return found

    def types_are(self, stmt: Stmt, to: DType) -> bool:
        return all(self.type_of(a) is to for a in stmt.args)

    def signs(self, shape: tuple[int, ...]) -> Array:
        return self.rng.choice([-1.0, -0.3, 0.7, 1.0], shape)

    # -- sums --------------------------------------------------------------------------------
    def is_narrow_sum(self, at: int) -> bool:
        to = self.types[at]
        to = to[0] if isinstance(to, tuple) else to
        return to is not None and to.is_float and to is not DType.F64

    def reduction(self, stmt: Stmt, at: int) -> Array | tuple[Array, ...]:
        kind, to = str(stmt.attr("kind")), self.types[at]
        rows = self.rows([self.single(a) for a in stmt.args])
        to = to[0] if isinstance(to, tuple) else to
        assert to is not None
        rows = [convert(row, to).astype(np.float32) for row in rows]
        found = self.reduced_rows(kind, rows)
        if found is None:
            found = REDUCERS[kind](self.rows([self.single(a) for a in stmt.args]), to)
        results = found if isinstance(found, tuple) else (found,)
        made = tuple(self.reduced(convert(np.asarray(x), to)) for x in results)
        return made if isinstance(found, tuple) else made[0]

    def reduced_rows(self, kind: str, rows: list[Array]) -> Array | tuple[Array, ...] | None:
        if kind == "sum":
            return self.added(rows[0])
        if kind == "dot":
            # An exact sum adds up exact products; any other may round them first.
            is_exact = self.numerics.accumulation == "exact"
            left = rows[0].astype(np.float64) if is_exact else rows[0]
            return self.added(left * rows[1])
        if kind == "prod" and self.numerics.accumulation != "exact":
            return np.multiply.reduce(self.shuffled(rows[0]), axis=-1, dtype=np.float32)
        if kind == "welford" and self.numerics.accumulation != "exact":
            return self.welford(rows[0])
        if kind == "online_softmax" and self.numerics.accumulation != "exact":
            return self.online_softmax(rows[0])
        return None

    def shuffled(self, row: Array) -> Array:
        return row[..., self.rng.permutation(row.shape[-1])] if row.shape[-1] else row

    def added(self, row: Array) -> Array:
        """The sum in f64, in f32, or in f32 block by block; in some order."""
        row = self.shuffled(row)
        if self.numerics.accumulation == "exact":
            return np.add.reduce(row.astype(np.float64)[..., ::-1], axis=-1)
        length = row.shape[-1]
        step = length if self.numerics.accumulation == "f32" else self.numerics.block
        total = np.zeros(row.shape[:-1])
        for first in range(0, length, max(step, 1)):
            part = np.zeros(row.shape[:-1], np.float32)
            for k in range(first, min(first + step, length)):
                part = part + row[..., k].astype(np.float32)
            total = total + part
        return total

    def welford(self, row: Array) -> tuple[Array, ...]:
        """The recurrence, in f32."""
        kind = np.float32
        row = self.shuffled(row).astype(kind)
        mean, m2 = np.zeros(row.shape[:-1], kind), np.zeros(row.shape[:-1], kind)
        for k in range(row.shape[-1]):
            apart = row[..., k] - mean
            mean = (mean + apart / kind(k + 1)).astype(kind)
            m2 = (m2 + apart * (row[..., k] - mean)).astype(kind)
        return mean, m2, np.full(row.shape[:-1], row.shape[-1], kind)

    def online_softmax(self, row: Array) -> tuple[Array, ...]:
        row = self.shuffled(row).astype(np.float32)
        top = np.full(row.shape[:-1], -np.inf, np.float32)
        total = np.zeros(row.shape[:-1], np.float32)
        for k in range(row.shape[-1]):
            new = np.maximum(top, row[..., k])
            rescaled = np.where(
                np.isneginf(top), np.float32(0), total * self.badly(np.exp, top - new)
            )
            weight = np.where(np.isneginf(row[..., k]), 0, self.badly(np.exp, row[..., k] - new))
            total, top = (rescaled + weight).astype(np.float32), new
        return top, np.where(np.isnan(top) | np.isposinf(top), np.float32(np.nan), total)

    def badly(self, function: np.ufunc, x: Array) -> Array:
        wide = function(x.astype(np.float64))
        amount = (self.numerics.function_ulps - 0.5) * ulp(wide, DType.F32)
        return (wide + amount * self.signs(wide.shape)).astype(np.float32)

    def scatter_add(self, stmt: Stmt, at: int) -> None:
        """Additions to memory in f32, one after the other."""
        name = str(stmt.attr("buffer"))
        dtype = self.memory.buffer(name).dtype
        if dtype is not DType.F32:
            EFFECTS["store"](self, stmt, at)
            return
        self.memory.require(name, self.name)
        value = convert(self.single(stmt.args[0]), dtype)
        index = self.index(stmt.attr("index"))
        ones = (*self.points, *([1] * len(self.reduce)))
        shape = np.broadcast_shapes(value.shape, index.shape, ones)
        places = np.broadcast_to(index, shape).reshape(-1)
        order = self.rng.permutation(places.size)
        row, new = self.memory.elements(name), np.broadcast_to(value, shape).reshape(-1)
        np.add.at(row, places[order], new[order])


def run_freely(
    program: Program,
    inputs: Mapping[str, Array],
    numerics: Numerics,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    externs: Mapping[str, ExternFn] | None = None,
) -> Memory:
    """The memory after a run that uses what the numerics allow."""
    rng = np.random.default_rng(seed)
    arrays = as_arrays(program, inputs)
    memory = Memory(program, bind_sizes(program, arrays, sizes or {}), poisoned=True)
    with np.errstate(all="ignore"):
        for name, array in arrays.items():
            memory.define(name)
            memory.tensor(name)[...] = array
        for op in program.leaves:
            if isinstance(op, Loop):
                FreeRun(op, memory, numerics, rng).run()
            elif isinstance(op, Call) and op.target.endswith("mm"):
                _product(op, memory, externs or {})
            else:
                RUNNERS[type(op)](op, memory, externs or {})
    return memory


def _product(op: Call, memory: Memory, externs: Mapping[str, ExternFn]) -> None:
    """A matrix product in f32, added up element after element."""
    context = CallContext(op, memory)
    if find_extern(op, {}) is None or len(context.args) != 2:
        RUNNERS[type(op)](op, memory, externs)
        return
    wide = np.float64 if context.args[0].dtype == np.float64 else np.float32
    a, b = (x.astype(wide) for x in context.args)
    total = np.zeros((*a.shape[:-1], b.shape[-1]), wide)
    for k in range(a.shape[-1]):
        total = total + a[..., :, k : k + 1] * b[..., k : k + 1, :]
    context.write(op.writes[0], total)
