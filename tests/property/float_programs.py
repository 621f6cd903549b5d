"""Random programs that do little else than arithmetic: what a bound on errors has to get right.

Some loops over rows, each a chain of functions, sums, products, decisions and roundings, with its
results in memory for the loops that follow; a matrix product and a scatter now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from hypothesis import strategies as st

from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array
from treadle.ir.program import Program
from treadle.ir.spec import verify
from treadle.ir.types import Buffer, DType
from treadle.testing.bounding.functions import FUNCTIONS

T = TypeVar("T")
LENGTHS = (1, 2, 7, 33, 70)
FLOATS = (DType.F32, DType.F32, DType.F32, DType.BF16, DType.F16, DType.F64)
SMOOTH = ("exp", "tanh", "sigmoid", "erf", "sin", "log1p", "sqrt", "rsqrt", "atan", "expm1")
UNARY = (*SMOOTH, "neg", "abs", "relu", "square", "floor", "reciprocal", "sign", "round")
BINARY = ("add", "sub", "mul", "add", "mul", "sub", "maximum", "minimum", "truediv", "atan2",
          "hypot", "copysign", "pow", "fmod", "remainder", "floordiv")  # fmt: skip
REDUCTIONS = ("sum", "sum", "max", "min", "prod", "dot", "welford", "online_softmax", "argmax")
SCANS = ("add", "max", "logaddexp", "mul")


class Chain:
    """A body under construction; values are tensors of rows or one number for each row."""

    def __init__(self, draw: st.DrawFn, k: BodyBuilder) -> None:
        self.draw, self.k = draw, k
        self.values: list[Value] = []

    def one(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def some(self) -> Value:
        return self.one(self.values[::-1])

    def step(self) -> None:
        self.values.append(STEPS[self.one(tuple(STEPS))](self))


def _binary(c: Chain) -> Value:
    return c.k.op(c.one(BINARY), c.some(), c.some())


def _reduce(c: Chain) -> Value:
    kind, value = c.one(REDUCTIONS), c.some()
    if kind == "dot":
        return c.k.reduce_by("dot", value, c.some())
    found = c.k.reduce_by(kind, value)
    if kind == "argmax":
        return found.to("f32")
    return found[c.draw(st.integers(0, 1))] if kind in ("welford", "online_softmax") else found


def _choose(c: Chain) -> Value:
    return c.k.where(c.some() > c.some(), c.some(), c.some())


def _whole(c: Chain) -> Value:
    return c.k.to_int(c.one(("floor", "round", "trunc")), c.some() * 4.0).to("f32")


STEPS: Mapping[str, Callable[[Chain], Value]] = {
    "unary": lambda c: c.k.op(c.one(UNARY), c.some()),
    "smooth": lambda c: c.k.op(c.one(SMOOTH), c.some()),
    "any function": lambda c: _any_function(c),
    "binary": _binary,
    "binary again": _binary,
    "sum of products": lambda c: c.some() * c.some() + c.some(),
    "reduce": _reduce,
    "scan": lambda c: c.k.scan(c.one(SCANS), c.some()),
    "sort": lambda c: c.k.sort(c.some(), descending=c.draw(st.booleans())),
    "round": lambda c: c.some().to(c.one((DType.BF16, DType.F16))).to("f32"),
    "choose": _choose,
    "whole": _whole,
}


def _any_function(c: Chain) -> Value:
    name = c.one(sorted(FUNCTIONS))
    from treadle.ir.ops import POINTWISE

    return c.k.op(name, *[c.some() for _ in range(POINTWISE[name].arity or 1)])


@st.composite
def float_programs(draw: st.DrawFn) -> Program:
    """A few loops over one shape, most of them reading what those before have written."""
    b = ProgramBuilder("floats")
    rows, length = draw(st.integers(1, 3)), draw(st.sampled_from(LENGTHS))
    known = [b.input(f"x{k}", draw(st.sampled_from(FLOATS)), [rows, length]) for k in range(2)]
    seats = b.input("seats", "i64", [length])
    for k in range(draw(st.integers(1, 3))):
        known.append(_loop(draw, b, known, rows, length, k))
        if draw(st.integers(0, 4)) == 0:
            known.append(_product(b, known, rows, length, k))
        if draw(st.integers(0, 4)) == 0:
            _scatter(draw, b, known, seats, rows, length, k)
    return verify(b.build())


def _loop(
    draw: st.DrawFn, b: ProgramBuilder, known: Sequence[Buffer], rows: int, length: int, at: int
) -> Buffer:
    target = b.output(f"t{at}", draw(st.sampled_from(FLOATS)), [rows, length])
    with b.loop(f"loop{at}", [rows], reduce=[length]) as k:
        i, j = k.vars
        chain = Chain(draw, k)
        for _ in range(2):
            chain.values.append(k.load(chain.one(list(known)[::-1]), i, j))
        for _ in range(draw(st.integers(1, 7))):
            chain.step()
        last = chain.values[-1]
        k.store(target, (i, j), (last + k.load(known[0], i, j) * 0.0).to(target.dtype))
        k.sum(last.to("f32"))  # the inner loop is one that reduces
    return target


def _product(b: ProgramBuilder, known: Sequence[Buffer], rows: int, length: int, at: int) -> Buffer:
    a = known[-1]
    turned = b.view(f"turned{at}", a, [length, rows], strides=[1, length])
    target = b.buffer(f"gram{at}", a.dtype, [rows, rows])
    b.extern("aten.mm", [a, turned], [target])
    wide = b.output(f"m{at}", "f32", [rows, length])
    with b.loop(f"spread{at}", [rows, length]) as k:
        i, j = k.vars
        k.store(wide, (i, j), k.load(target, i, i).to("f32"))
    return wide


def _scatter(
    draw: st.DrawFn,
    b: ProgramBuilder,
    known: Sequence[Buffer],
    seats: Buffer,
    rows: int,
    length: int,
    at: int,
) -> None:
    target = b.output(f"s{at}", draw(st.sampled_from((DType.F32, DType.BF16))), [4])
    with b.loop(f"clear{at}", [4]) as k:
        k.store(target, k.vars, k.constant(0.5, target.dtype))
    mode = draw(st.sampled_from(("atomic_add", "atomic_add", "atomic_mul", "atomic_max")))
    with b.loop(f"scatter{at}", [rows, length]) as k:
        i, j = k.vars
        where = k.indirect(k.load(seats, j), 4)
        k.store_at(target, where, k.load(known[-1], i, j).to(target.dtype), mode)


def float_inputs(program: Program, seed: int) -> dict[str, Array]:
    """Numbers of several sizes, now and then equal, zero or far out."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name in program.inputs:
        b = program.by_name[name]
        shape = tuple(n.value or 0 for n in b.layout.sizes)
        if b.dtype.is_int:
            found[name] = rng.integers(0, 4, shape).astype(NUMPY_TYPES[b.dtype])
            continue
        x = rng.standard_normal(shape) * 10.0 ** rng.integers(-2, 2, shape)
        x = np.where(rng.random(shape) < 0.1, rng.integers(-3, 4, shape), x)
        found[name] = x.astype(np.float32).astype(NUMPY_TYPES[b.dtype])
    return found
