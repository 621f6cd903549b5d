"""A reduction in two stages: partial results of blocks, then a reduction of those.

    one stage    s[i] = sum(x[4096*i + r])        for i in 4, reduce r in 4096
    two stages   p[32*i + b] = sum(x[4096*i + 128*b + r])   for i in 4, b in 32, reduce r in 128
                 s[i] = sum(p[32*i + b])                    for i in 4, reduce b in 32

Blocks follow each other in the order of the loops, so that a position keeps its meaning. What is
added or multiplied up is kept in f64 between the stages: the result is rounded once, as in one
stage. (Two orders of f64 additions can differ by a hair; it shows only in a sum that lies so close
to the middle between two f32 values. The interpreter rests on the same argument.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from treadle.core.unused import unused_name
from treadle.index import Const, Domain, Expr, Symbol, loop
from treadle.index.expr import IntLike, mul
from treadle.ir.body import Body, Stmt, operands_of, value_symbol
from treadle.ir.program import Loop, Program
from treadle.ir.reduced import levels_of
from treadle.ir.rewrite import BodySource, Rewriter
from treadle.ir.types import Buffer, DType, Layout
from treadle.ir.typing import infer_types

ADDED_UP = {"sum": "sum", "prod": "prod", "dot": "sum"}
"""Kinds whose rounding depends on the order, and what combines their partial results."""
EXACT = frozenset({"max", "min", "any", "all", "xor_sum"})
POSITIONS = {"argmax": "max", "argmin": "min"}
SPLITTABLE = frozenset({*ADDED_UP, *EXACT, *POSITIONS, "welford"})


@dataclass(frozen=True)
class Cut:
    """The reduction loops cut in two: the first `blocks` steps outside, `chunk` inside each."""

    whole: int
    """Leading reduction loops that move outside as a whole."""
    parts: int
    """Blocks of the loop behind them."""

    def blocks(self, reduce: Domain) -> int:
        """How many blocks there are."""
        count = self.parts
        for n in reduce.extents[: self.whole]:
            count *= _known(n)
        return count


def cuts(reduce: Domain) -> Iterator[Cut]:
    """Every way to cut static reduction loops into equal blocks that follow each other."""
    for whole, n in enumerate(reduce.extents):
        if n.value is None:
            return
        yield from (Cut(whole, k) for k in _divisors(n.value) if k > 1)


def _divisors(n: int) -> list[int]:
    small = [k for k in range(1, int(n**0.5) + 1) if n % k == 0]
    return sorted({*small, *(n // k for k in small)})


def _known(n: Expr) -> int:
    assert n.value is not None, "only loops of known extent are cut"
    return n.value


@dataclass(frozen=True)
class Stages:
    """A loop in two stages, and the buffers between them."""

    first: Loop
    second: Loop
    partial: tuple[Buffer, ...]


class Splitter:
    """Builds the two stages of one loop."""

    def __init__(self, op: Loop, program: Program, cut: Cut) -> None:
        self.op, self.body, self.program = op, op.body, program
        self.types = infer_types(op.body, program.by_name)
        self.taken = {*program.by_name, *program.op_by_name}
        self.name = self._fresh_name()
        self.blocks = cut.blocks(op.body.reduce)
        self.block = fresh_loop("b", op.body)
        self.domain, self.inner, self.values = self._cut(cut)
        self.one, self.two = Rewriter(), Rewriter()
        self.to_one, self.to_two = BodySource(self.one, self.values), BodySource(self.two)
        self.partial: list[Buffer] = []
        self.wide: set[int] = set()
        """Reductions with several results, which the second stage has in f64."""
        sizes: list[IntLike] = [*op.body.domain.extents, self.blocks]
        self.layout = Layout.contiguous(sizes)

    def _fresh_name(self) -> str:
        return unused_name(f"{self.op.name}_part", self.taken, first=1)

    def _cut(self, cut: Cut) -> tuple[Domain, Domain, dict[Symbol, IntLike]]:
        """The first stage's loops, and the old reduction loops in terms of them."""
        reduce = self.body.reduce
        pairs = list(reduce.items())
        values: dict[Symbol, IntLike] = {}
        outer: list[tuple[Symbol, IntLike]] = list(self.body.domain.items())
        for k, (v, n) in enumerate(pairs[: cut.whole]):
            values[v] = fresh_loop(f"b{k}", self.body)
            outer.append((fresh_loop(f"b{k}", self.body), n))
        at, n = pairs[cut.whole]
        chunk = _known(n) // cut.parts
        values[at] = mul(self.block, chunk) + at
        outer.append((self.block, cut.parts))
        inner: list[tuple[Symbol, IntLike]] = [(at, chunk), *pairs[cut.whole + 1 :]]
        return Domain(outer), Domain(inner), values

    def stages(self) -> Stages:
        """Both stages."""
        _, reduced = levels_of(self.body)
        for at in self.body.walk():
            if at.depth:
                continue
            if at.stmt.op == "reduce":
                assert at.number is not None, "a reduction has a value"
                self._reduce(at.stmt, at.number)
            elif at.number in reduced or at.number is None:
                self._copy(self.two, self.to_two, at.stmt, at.number)
        one = Body(self.domain, self.inner, self.one.stmts)
        reduce = Domain([(self.block, self.blocks)])
        two = Body(self.body.domain, reduce, self.two.stmts)
        first = replace(self.op, name=self.name, body=one)
        return Stages(first, replace(self.op, body=two), tuple(self.partial))

    def _copy(self, to: Rewriter, source: BodySource, stmt: Stmt, number: int | None) -> None:
        """Copy a statement and what it needs that is not there yet."""
        self._need(to, source, operands_of(stmt))
        source.take((stmt,), number)
        if stmt.op == "get" and number is not None and stmt.args[0] in self.wide:
            made, element = source.numbers[number], self.types[number]
            source.numbers[number] = to.emit(Stmt("cast", (made,), (element,)))

    def _need(self, to: Rewriter, source: BodySource, uses: set[int]) -> None:
        inside = {
            at.number: at.stmt for at in self.body.walk() if not at.depth and at.number is not None
        }
        for number in sorted(uses):
            if number not in source.numbers and number in inside:
                self._copy(to, source, inside[number], number)

    def _reduce(self, stmt: Stmt, number: int) -> None:
        kind = str(stmt.attr("kind"))
        self._need(self.one, self.to_one, set(stmt.args))
        args = tuple(self.to_one.numbers[a] for a in stmt.args)
        if kind in POSITIONS:
            self.to_two.numbers[number] = self._position(kind, args, stmt)
        elif kind == "welford":
            self.to_two.numbers[number] = self._welford(args, stmt, number)
        else:
            self.to_two.numbers[number] = self._plain(kind, args, stmt, number)

    def _plain(self, kind: str, args: tuple[int, ...], stmt: Stmt, number: int) -> int:
        to = self.types[number]
        assert isinstance(to, DType)
        if kind not in ADDED_UP or not to.is_float:
            given = self.one.emit(Stmt("reduce", args, (kind, stmt.attr("dtype"))))
            loaded = self._pass_on(given, to)
            again = ADDED_UP.get(kind, kind)
            return self.two.emit(Stmt("reduce", (loaded,), (again, to)))
        if self._adds_in_blocks(to):
            sums = self.one.emit(Stmt("reduce", args, (kind, to)))
            given = self.one.emit(Stmt("cast", (sums,), (DType.F64,)))
        else:
            wide = self._widened(args, stmt, to)
            given = self.one.emit(Stmt("reduce", wide, (kind, DType.F64)))
        loaded = self._pass_on(given, DType.F64)
        total = self.two.emit(Stmt("reduce", (loaded,), (ADDED_UP[kind], DType.F64)))
        return self.two.emit(Stmt("cast", (total,), (to,)))

    def _adds_in_blocks(self, to: DType) -> bool:
        """Whether a block may be added up in f32, as the numerics allow and a GPU does best."""
        on_gpu = self.op.device.partition(":")[0] == "cuda"
        return on_gpu and to is DType.F32 and self.program.numerics.accumulation == "blocked"

    def _widened(self, args: tuple[int, ...], stmt: Stmt, to: DType) -> tuple[int, ...]:
        """Operands as the one stage would see them, then in f64."""
        found = []
        for new, old in zip(args, stmt.args, strict=True):
            at = new if self.types[old] is to else self.one.emit(Stmt("cast", (new,), (to,)))
            found.append(self.one.emit(Stmt("cast", (at,), (DType.F64,))))
        return tuple(found)

    def _welford(self, args: tuple[int, ...], stmt: Stmt, number: int) -> int:
        types = self.types[number]
        assert isinstance(types, tuple)
        wide = self._widened(args, stmt, types[0])
        made = self.one.emit(Stmt("reduce", wide, ("welford", DType.F64)))
        parts = [self.one.emit(Stmt("get", (made,), (k,))) for k in range(3)]
        loaded = tuple(self._pass_on(p, DType.F64) for p in parts)
        self.wide.add(number)
        return self.two.emit(Stmt("reduce", loaded, ("welford_combine", DType.F64)))

    def _position(self, kind: str, args: tuple[int, ...], stmt: Stmt) -> int:
        """The first block that holds the best value, then the position stored for that block."""
        element = self.types[stmt.args[0]]
        assert isinstance(element, DType)
        best = self.one.emit(Stmt("reduce", args, (POSITIONS[kind], None)))
        place = self.one.emit(Stmt("reduce", args, (kind, None)))
        chunk = self.inner.numel
        at = self._block_number()
        before = self.one.emit(Stmt("index", (), (mul(at, chunk), DType.I64)))
        place = self.one.emit(Stmt("add", (place, before)))
        values = self._pass_on(best, element)
        positions = self._buffer(DType.I64)
        self.one.emit(Stmt("store", (place,), (positions.name, self._index(at), "plain", False)))
        block = self.two.emit(Stmt("reduce", (values,), (kind, None)))
        block = self.two.emit(Stmt("indirect", (block,), (Const(self.blocks), False, True)))
        index = self._index(value_symbol(block))
        return self.two.emit(Stmt("load", (), (positions.name, index, False)))

    def _block_number(self) -> Expr:
        """The number of a block in the order of the loops."""
        total: Expr | None = None
        for v, n in list(self.domain.items())[len(self.body.domain) :]:
            total = v if total is None else mul(total, n) + v
        assert total is not None, "at least one loop is cut"
        return total

    def _pass_on(self, value: int, element: DType) -> int:
        """Store a partial result in the first stage and load it in the second."""
        buffer = self._buffer(element)
        at = self._index(self._block_number())
        self.one.emit(Stmt("store", (value,), (buffer.name, at, "plain", False)))
        return self.two.emit(Stmt("load", (), (buffer.name, self._index(self.block), False)))

    def _buffer(self, element: DType) -> Buffer:
        buffer = Buffer(self._fresh_name(), element, self.layout, self.op.device)
        self.partial.append(buffer)
        return buffer

    def _index(self, block: Expr) -> Expr:
        return self.layout.index((*self.body.domain.vars, block))


def fresh_loop(stem: str, body: Body) -> Symbol:
    """A loop variable that the body does not have."""
    taken = {v.name for v in body.space.vars}
    while stem in taken:
        stem += "_"
    return loop(stem)
