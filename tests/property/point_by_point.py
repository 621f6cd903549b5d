"""A second meaning of programs, written to share nothing with the reference: point by point.

Storages are Python lists of numpy scalars, loops are Python loops, reductions are left folds. It
knows just the operations that the program strategy uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from treadle.index import Expr, Symbol, evaluate
from treadle.ir.body import Body, Literal, Stmt
from treadle.ir.program import Extern, Loop, Program, Ref
from treadle.ir.types import Buffer, DType, promote
from treadle.ir.typing import infer_types

SCALARS = {
    DType.BOOL: np.bool_, DType.I32: np.int32, DType.I64: np.int64, DType.F32: np.float32,
    DType.F64: np.float64, DType.BF16: ml_dtypes.bfloat16,
}  # fmt: skip


def to(value: Any, dtype: DType) -> Any:
    """One number in a type; whole numbers wrap."""
    if dtype is DType.BOOL:
        return np.bool_(value != 0)
    if dtype.is_int:
        if isinstance(value, np.integer | np.bool_ | int):
            exact = int(value)
        else:
            exact = int(float(value)) if math.isfinite(float(value)) else -(2**63)
            exact = exact if -(2**63) <= exact < 2**63 else -(2**63)
        half = 1 << (dtype.bits - 1)
        return SCALARS[dtype]((exact + half) % (2 * half) - half)
    if dtype is DType.BF16:
        return ml_dtypes.bfloat16(np.float32(value))
    return SCALARS[dtype](value)


def wide(value: Any) -> Any:
    """Python's own number: exact for whole numbers, f64 for the rest."""
    return int(value) if isinstance(value, np.integer | np.bool_) else float(value)


UNARY = {
    "neg": lambda x: -x,
    "abs": abs,
    "relu": lambda x: x if not x < 0 else 0,
    "square": lambda x: x * x,
    "sign": lambda x: (x > 0) - (x < 0),
    "bitwise_not": lambda x: ~x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > -700 else (0.0 if x == x else x),
    "tanh": math.tanh,
    "identity": lambda x: x,
    "logical_not": lambda x: not x,
    "floor": lambda x: math.floor(x) if math.isfinite(x) else x,
    "sin": lambda x: math.sin(x) if math.isfinite(x) else math.nan,
}


def larger(a: Any, b: Any) -> Any:
    return a if a != a or a > b else b


def smaller(a: Any, b: Any) -> Any:
    return a if a != a or a < b else b


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "maximum": larger,
    "minimum": smaller,
    "gt": lambda a, b: a > b,
}


class Runner:
    def __init__(self, program: Program, inputs: Mapping[str, np.ndarray], sizes: dict[str, int]):
        self.program = program
        self.sizes: dict[Symbol, int] = {s: sizes[s.name] for s in program.sizes}
        self.rows: dict[str, list[Any]] = {}
        for name, array in inputs.items():
            for at in np.ndindex(array.shape):
                self.row(name)[self.place(name, at)] = array[at]
        for op in program.leaves:
            if isinstance(op, Loop):
                self.loop(op.body)
            else:
                assert isinstance(op, Extern)
                self.matrix_product(op)

    def number(self, e: Expr) -> int:
        return int(evaluate(e, self.sizes))

    def shape(self, b: Buffer) -> list[int]:
        return [self.number(n) for n in b.layout.sizes]

    def row(self, name: str) -> list[Any]:
        root = self.program.by_name[self.program.storage_of(name)]
        if root.name not in self.rows:
            self.rows[root.name] = [None] * self.number(root.layout.span)
        return self.rows[root.name]

    def place(self, name: str, at: tuple[int, ...]) -> int:
        layout = self.program.by_name[name].layout
        steps = [self.number(s) for s in layout.strides]
        return self.number(layout.offset) + sum(i * s for i, s in zip(at, steps, strict=True))

    def read(self, name: str) -> list[Any]:
        points = product(*[range(n) for n in self.shape(self.program.by_name[name])])
        return [self.row(name)[self.place(name, at)] for at in points]

    def matrix_product(self, op: Extern) -> None:
        left, right = (a.buffer for a in op.args if isinstance(a, Ref))
        (target,) = op.writes
        buffer = self.program.by_name[target]
        rows, columns = self.shape(buffer)
        inner = self.shape(self.program.by_name[left])[1]
        for i, j in product(range(rows), range(columns)):
            terms = [
                float(self.row(left)[self.place(left, (i, k))])
                * float(self.row(right)[self.place(right, (k, j))])
                for k in range(inner)
            ]
            self.row(target)[self.place(target, (i, j))] = to(sum(terms), buffer.dtype)

    # -- loops: at one point of the domain, a value is a list over the reduction points ----------
    def loop(self, body: Body) -> None:
        types = infer_types(body, self.program.by_name)
        extents = [range(self.number(n)) for n in body.domain.extents]
        inner = [range(self.number(n)) for n in body.reduce.extents]
        for point in product(*extents):
            outer = dict(zip(body.domain.vars, point, strict=True))
            points = [
                {**self.sizes, **outer, **dict(zip(body.reduce.vars, p, strict=True))}
                for p in product(*inner)
            ]
            self.point(body.stmts, types, points)

    def point(self, stmts: tuple[Stmt, ...], types: list[Any], points: list[dict]) -> None:
        values: list[list[Any]] = []
        for stmt in stmts:
            operands = [values[a] for a in stmt.args]
            given = [types[a] for a in stmt.args]
            if stmt.op == "store":
                name, index = stmt.buffer, stmt.address
                dtype = self.program.by_name[name].dtype
                for n, at in enumerate(points):
                    self.row(name)[int(evaluate(index, at))] = to(operands[0][n], dtype)
                continue
            result = types[len(values)]
            values.append(self.values(stmt, operands, given, result, points))

    def values(
        self, stmt: Stmt, operands: list, given: list[DType], result: DType, points: list[dict]
    ) -> list[Any]:
        if stmt.op == "load":
            name, index = stmt.buffer, stmt.address
            return [self.row(name)[int(evaluate(index, at))] for at in points]
        if stmt.op == "constant":
            literal = stmt.attr("value")
            assert isinstance(literal, Literal)
            return [to(literal.value, result)] * len(points)
        if stmt.op == "cast":
            return [to(x, result) for x in operands[0]]
        if stmt.op == "reduce":
            return [fold(stmt.attr("kind"), operands[0], given[0], result)] * len(points)
        if stmt.op == "where":
            return [to(b if c else a, result) for c, b, a in zip(*operands, strict=True)]
        if result is DType.BOOL and stmt.op == "bitwise_not":
            return [np.bool_(not x) for x in operands[0]]
        if stmt.op in UNARY:
            return [to(UNARY[stmt.op](wide(x)), result) for x in operands[0]]
        common = promote(*given)
        if common is DType.BOOL and result is DType.BOOL and stmt.op in ("add", "mul"):
            how = np.logical_or if stmt.op == "add" else np.logical_and
            return [how(a, b) for a, b in zip(*operands, strict=True)]
        pairs = zip(*operands, strict=True)
        return [to(BINARY[stmt.op](*[wide(to(x, common)) for x in p]), result) for p in pairs]


def fold(kind: str, values: list[Any], given: DType, result: DType) -> Any:
    """A reduction in Python numbers, rounded at the end."""
    numbers = [wide(v) for v in values]
    if kind == "any":
        return np.bool_(any(n != 0 for n in numbers))
    if kind == "argmax":
        best = 0
        for k, n in enumerate(numbers):
            if numbers[best] == numbers[best] and (n != n or n > numbers[best]):
                best = k
        return np.int64(best)
    total = numbers[0]
    how = {"sum": BINARY["add"], "prod": BINARY["mul"], "max": larger, "min": smaller}[kind]
    for n in numbers[1:]:
        total = how(total, n)
    return to(total, result)
