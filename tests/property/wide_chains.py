"""Random programs of several wide operations: points, rows, columns and totals of each other.

All buffers have the loops `a` and `b`, one of them, or none. Each operation makes a new one of
those there are, so that fusion finds rows inside totals, columns beside rows, sums that are used
at once, and memory that can be taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import assume
from hypothesis import strategies as st

from treadle.index import IntLike, Symbol
from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.program import Program
from treadle.ir.spec import violations
from treadle.ir.types import Buffer, DType

T = TypeVar("T")
EXTENTS = (0, 1, 2, 7, 16, 17, 33, 64, 70, 600, 1100)
MOST_POINTS = 20_000
HINT = 48
KINDS = ("ab", "ab", "a", "b", "")
"""The loops of a buffer."""
ELEMENTS = (DType.F32, DType.F32, DType.F32, DType.BF16, DType.F64, DType.I32)
POINTS = ("add", "mul", "maximum", "minimum")
CHANGES = ("abs", "exp", "sigmoid", "tanh", "square", "logical_not")
SUMS = ("sum", "sum", "max", "min", "prod", "any")


class Chain:
    """A program on its way."""

    extents = EXTENTS
    most_points = MOST_POINTS

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw, self.b = draw, ProgramBuilder("chain")
        sizes: list[IntLike] = [self.one(self.extents), self.one(self.extents)]
        if self.number(0, 3) == 0:
            sizes[self.number(0, 1)] = self.b.size("s", 0, 300, hint=HINT)
        self.sizes = dict(zip("ab", sizes, strict=True))
        points = 1
        for n in sizes:
            points *= n if isinstance(n, int) else HINT
        assume(points <= self.most_points)
        self.made: list[tuple[Buffer, str]] = []
        for k, kind in enumerate(("ab", "ba", "ab", "a", "b")):
            donated = self.number(0, 2) == 0
            shape = [self.sizes[c] for c in kind]
            buffer = self.b.input(f"x{k}", self.one(ELEMENTS), shape, donated=donated)
            self.made.append((buffer, kind))

    def one(self, options: Sequence[T]) -> T:
        return self.draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def buffer(self, kind: str, element: DType) -> Buffer:
        """A new buffer, which the caller may get back."""
        name = f"y{len(self.made)}"
        make = self.b.output if self.number(0, 2) == 0 else self.b.buffer
        found = make(name, element, [self.sizes[c] for c in kind] or [1])
        self.made.append((found, kind))
        return found

    def value(self, k: BodyBuilder, at: dict[str, Symbol]) -> Value:
        """A value of buffers that have no other loops, the newest ones first."""
        usable = [(x, kind) for x, kind in self.made if set(kind) <= set(at)]
        picked = usable[-1 - self.number(0, min(len(usable), 4) - 1)]
        buffer, kind = picked
        index = tuple([at[c] for c in kind])
        found = (
            k.load(buffer, *index) if kind or buffer.layout.sizes == () else k.load_at(buffer, 0)
        )
        if self.number(0, 2) == 0:
            found = k.op(self.one(CHANGES), found.to("f32"))
        return found

    def operation(self) -> None:
        """An operation: loops `outer` are kept, `inner` ones are reduced."""
        outer = self.one(KINDS)
        rest = "".join([c for c in "ab" if c not in outer])
        inner = self.one([rest, rest[:1]]) if rest else ""
        usable = set(outer) | set(inner)
        if not any(set(kind) <= usable for _, kind in self.made):
            return
        mode = self.number(0, 7)
        adds_up = not inner and outer == "ab" and mode == 0
        target = None
        if adds_up:
            kept = self.one(["a", "b", ""])
            shape = [self.sizes[c] for c in kept] or [1]
            target = self.b.input(f"z{len(self.b.inputs)}", "f64", shape)
        with self.b.loop(None, [self.sizes[c] for c in outer], [self.sizes[c] for c in inner]) as k:
            at = dict(zip(outer + inner, k.domain.vars + k.reduce.vars, strict=True))
            value = self.value(k, at)
            for _ in range(self.number(0, 2)):
                value = k.op(self.one(POINTS), value, self.value(k, at))
            if target is not None:
                index = target.layout.index([at[c] for c in kept]) if kept else 0
                k.store_at(target, index, value.to("f64"), "atomic_add")
                return
            if inner:
                value = self.reduced(k, value)
                if self.number(0, 1):
                    value = k.op(self.one(POINTS), value, k.constant(0.5, value.dtype))
            element = self.one(ELEMENTS)
            made = self.buffer(outer, element)
            where = [at[c] for c in outer]
            if where:
                k.store(made, where, value.to(element))
            else:
                k.store_at(made, 0, value.to(element))

    def reduced(self, k: BodyBuilder, value: Value) -> Value:
        """A value over all inner loops."""
        several = self.number(0, 5)
        if several == 0:
            return k.reduce_by("welford", value.to("f32"))[1]
        if several == 1:
            return k.reduce_by("online_softmax", value.to("f32"))[self.number(0, 1)]
        return k.reduce_by(self.one(SUMS), value)


@st.composite
def wide_chains(draw: st.DrawFn) -> Program:
    """A program of up to nine operations that the verifier accepts."""
    chain = Chain(draw)
    for _ in range(chain.number(2, 9)):
        chain.operation()
    last, _ = chain.made[-1]
    if last.name not in (*chain.b.outputs, *chain.b.inputs):
        chain.b.returns(last)
    program = chain.b.build()
    assume(program.ops and not violations(program))
    return program
