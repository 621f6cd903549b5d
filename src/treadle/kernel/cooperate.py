"""A long reduction shared out among programs that run side by side, and put together afterwards.

    y[i] = sum over r of x[r, i]                     64 columns, a million rows: few programs
    ->   part[i, c] = sum over r' of x[S*c + r', i]  for each of C chunks of rows
         y[i] = sum over c of part[i, c]

A device with many cores stays idle where there are few results. A second loop is cut where the
first has too few steps. Chunks are of one size where a loop can be cut so; what is stored along the
way is stored by the chunk it belongs to. A loop that no useful number divides (8191 rows) is cut
all the same if nothing is stored along the way: the last chunk adds nothing where its rows are
over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from treadle.index import Domain, Expr, Symbol, as_expr, hint, loop, substitute
from treadle.index.expr import mul
from treadle.ir.body import Body, Literal, Stmt
from treadle.ir.change import map_indices, with_loops
from treadle.ir.program import Nest, Program
from treadle.ir.rewrite import BodySource, Rewriter
from treadle.ir.types import Buffer, DType, Layout
from treadle.ir.typing import ValueType, infer_types
from treadle.kernel.mixing import MODES
from treadle.kernel.renest import Renested, Renesting, TopStatement, over_rows
from treadle.kernel.stages import over_of

SHORTEST_CHUNK = 32
PUT_TOGETHER = frozenset({"sum", "prod", "max", "min", "dot", "any", "all", "welford"})
"""Reductions that can be made of the results of chunks."""
NOTHING = {"sum": 0.0, "dot": 0.0, "max": -math.inf, "min": math.inf}
"""What adds nothing to reductions of floats."""
NEVER_CUT = ("reduce_part", "scan", "sort")


def cooperate(
    nest: Nest,
    program: Program,
    name: Callable[[], str],
    programs: int,
    wanted: int,
    fewest: int,
    *,
    masks: bool = True,
) -> Renested | None:
    """The nest in chunks, so that `wanted` programs have something to do; None if it is not so.

    A reduction of less than `fewest` points is fast enough in one program. Without `masks` all
    chunks are of one size.
    """
    body = nest.body
    if not len(body.reduce) or programs >= wanted or hint(body.reduce.numel) < fewest:
        return None
    if any(at.stmt.op in NEVER_CUT for at in body.walk()):
        return None
    most, points = -(-wanted // max(programs, 1)), hint(body.reduce.numel)
    masks = masks and _may_mask(body, program)
    found = {
        v: _chunks(n.value, points // max(hint(n), 1), most, masks) for v, n in body.reduce.items()
    }
    r = max(body.reduce.vars, key=lambda v: found[v])  # of loops that do as well the outermost
    chunks = found[r]
    if chunks < 2:
        return None
    cut = _in_chunks(nest, r, chunks)
    others = _others(nest, r)
    if 2 * chunks <= most and 2 * chunks > hint(dict(body.reduce.items())[r]):
        # The loop has no more steps to share out: those of another one are.
        inside = points // chunks
        again = {
            v: _chunks(n.value, inside // max(hint(n), 1), most // chunks, masks=False)
            for v, n in body.reduce.items()
            if v is not r
        }
        second = max(again, key=lambda v: again[v], default=r)
        if again.get(second, 1) > 1:
            cut = _in_chunks(cut, second, again[second])
            others = others - {second} | {_names(nest, second)[1]}
    return _Cooperating(cut, program, name, others).bodies()


def columns_first(
    nest: Nest, program: Program, name: Callable[[], str], short: Symbol
) -> Renested | None:
    """The nest with a total for every step of a short inner loop, which are put together then.

    s[g] = sum over c, r of x[r, 16*g + c]        16 elements beside each other, then far away
    ->   part[g, c] = sum over r of x[r, 16*g + c]          columns, as any others
         s[g] = sum over c of part[g, c]
    """
    if any(at.stmt.op in NEVER_CUT for at in nest.body.walk()):
        return None
    others = frozenset(nest.body.reduce.vars) - {short}
    return _Cooperating(nest, program, name, others).bodies()


def rows_leave_parts(nest: Nest, program: Program, name: Callable[[], str]) -> Renested | None:
    """Rows, each of which leaves its part of the totals; None if the nest is not made of these.

    t = sum over i, r of f(x[i, r], sum over r of x[i, r])
    ->   part[i] = sum over r of f(...)     a number a row: programs wait for no other
         t = sum over i of part[i]
    """
    over = over_rows(nest)
    parts = [at.stmt for at in nest.body.walk() if at.stmt.op == "reduce_part"]
    # Of what rows give, one number each must be all that a total needs of them.
    totals = [str(part.attr("kind")) for part in parts if over_of(part) != over]
    if over is None or not MODES.keys() >= set(totals):
        return None
    return _Cooperating(nest, program, name, over).bodies()


def shares_out(body: Body, columns: int, wanted: int) -> bool:
    """Whether a reduction can be cut so that `wanted` programs of some columns have work.

    Its loops are taken for one: they will be, where they follow each other in memory.
    """
    kinds = [str(at.stmt.attr("kind")) for at in body.walk() if at.stmt.op == "reduce"]
    if not kinds or any(at.stmt.op in NEVER_CUT for at in body.walk()):
        return False
    chunks = _chunks(body.reduce.numel.value, 1, wanted, masks=False)
    programs = max(hint(body.domain.numel) // columns, 1) * chunks
    return 2 * programs > wanted and all(kind in PUT_TOGETHER for kind in kinds)


def _chunks(extent: int | None, rest: int, most: int, masks: bool) -> int:
    """How many chunks a loop is cut into; each of its steps has `rest` points.

    Chunks of one size, if there are at least half as many as could be; else of two, if `masks`.
    """
    if extent is None:
        return 1
    limit = min(most, extent * max(rest, 1) // SHORTEST_CHUNK, extent)
    even = next((n for n in range(limit, 1, -1) if extent % n == 0), 1)
    if not masks or 2 * even >= limit:
        return even
    size = -(-extent // limit)
    if rest == 1:  # whole tiles of rows
        size = -(-size // SHORTEST_CHUNK) * SHORTEST_CHUNK
    return -(-extent // size)


def _size(extent: int, chunks: int) -> int:
    """The size of a chunk: whole tiles of rows if there are as many chunks of that size."""
    size = -(-extent // chunks)
    whole = -(-size // SHORTEST_CHUNK) * SHORTEST_CHUNK
    return whole if extent % chunks and -(-extent // whole) == chunks else size


def _may_mask(body: Body, program: Program) -> bool:
    """Whether points that do not exist may be walked: all that is done with them can be undone."""
    inner = frozenset(body.reduce.vars)
    if any(not index.free.isdisjoint(inner) for _, index, _, _ in body.stores()):
        return False
    types = infer_types(body, program.by_name)
    for at in body.walk():
        stmt = at.stmt
        if stmt.region or stmt.op in ("indirect", "assert", "inline_asm"):
            return False
        if stmt.op == "reduce":
            assert at.number is not None, "a reduction has a value"
            made = types[at.number]
            is_float = isinstance(made, DType) and made.is_float
            if not is_float or str(stmt.attr("kind")) not in NOTHING:
                return False
    return True


def _names(nest: Nest, r: Symbol) -> tuple[Symbol, Symbol]:
    taken = {v.name for v in nest.body.space.vars}
    fresh = [f"{r.name}_{word}" for word in ("chunk", "in_chunk")]
    assert not taken & set(fresh), "loops of a nest have short names"
    return loop(fresh[0]), loop(fresh[1])


def _others(nest: Nest, r: Symbol) -> frozenset[Symbol]:
    """The loops inside a chunk."""
    return frozenset({_names(nest, r)[1], *nest.body.reduce.vars}) - {r}


def _in_chunks(nest: Nest, r: Symbol, chunks: int) -> Nest:
    """The nest with the loop cut in two."""
    c, inside = _names(nest, r)
    items = list(nest.body.reduce.items())
    extent = dict(items)[r].value
    assert extent is not None, "a loop that is cut has a known extent"
    size = _size(extent, chunks)
    place = mul(c, size) + inside
    changed = map_indices(nest.body, lambda e: substitute(e, {r: place}))
    if size * chunks > extent:
        changed = _within(changed, place, extent)
    rest = [(v, n) for v, n in items if v is not r]
    inner = Domain([(c, chunks), (inside, size), *rest])
    return replace(nest, body=with_loops(changed, nest.body.domain, inner))


def _within(body: Body, place: Expr, extent: int) -> Body:
    """The body, which reads and adds nothing where `place` is not below `extent`."""
    writer = Rewriter()
    at = writer.emit(Stmt("index", (), (place, DType.I64)))
    end = writer.emit(Stmt("index", (), (as_expr(extent), DType.I64)))
    exists = writer.emit(Stmt("lt", (at, end)))

    def only_there(other: float, write: Callable[[], int]) -> int:
        def region() -> None:
            writer.emit(Stmt("yield", (write(),)))

        return writer.emit_with_region(Stmt("masked", (exists,), (Literal(other),)), region)

    def instead(writer: Rewriter, stmt: Stmt) -> int | None:
        if stmt.op == "load" and not stmt.address.free.isdisjoint(place.free):
            return only_there(0.0, lambda: writer.emit(stmt))
        if stmt.op == "reduce":
            other = NOTHING[str(stmt.attr("kind"))]
            args = tuple([only_there(other, lambda a=a: a) for a in stmt.args])  # type: ignore[misc]
            return writer.emit(Stmt("reduce", args, stmt.attrs))
        return None

    BodySource(writer, instead=instead).take(body.stmts)
    return replace(body, stmts=writer.stmts)


class _Cooperating(Renesting):
    """Each chunk leaves its part; the last nest puts the parts together."""

    adds_in_place = False

    def _total(
        self,
        middle: Rewriter,
        rows: BodySource,
        last: Rewriter,
        rest: BodySource,
        top: TopStatement,
    ) -> None:
        to = self.types[top.number]
        if not isinstance(to, DType):
            self._spread(middle, rows, last, rest, top)
            return
        kept = DType.F32 if to.is_low_precision else to
        args = tuple([rows.numbers[a] for a in top.stmt.args])
        # A total of what rows give has nothing left to add up within them.
        is_whole = top.stmt.op == "reduce"
        value = middle.emit(Stmt("reduce", args, top.stmt.attrs)) if is_whole else args[0]
        if kept is not to:
            value = middle.emit(Stmt("cast", (value,), (kept,)))
        domain = self.body.domain + self.rows
        layout = Layout.contiguous(domain.extents)
        at = layout.index(domain.vars)
        part = self._handed_on(middle, last, value, kept, layout, at)
        kind = str(top.stmt.attr("kind"))
        found = last.emit(Stmt("reduce", (part,), ("sum" if kind == "dot" else kind, kept)))
        made = found if kept is to else last.emit(Stmt("cast", (found,), (to,)))
        rest.numbers[top.number] = made

    def _has_parts(self, kind: str, to: ValueType) -> bool:
        """Whether a total can be put together from chunks."""
        return kind in PUT_TOGETHER and (isinstance(to, DType) or kind == "welford")

    def _spread(
        self,
        middle: Rewriter,
        rows: BodySource,
        last: Rewriter,
        rest: BodySource,
        top: TopStatement,
    ) -> None:
        """Mean, squares and weight of each chunk, combined in the end."""
        types = self.types[top.number]
        assert isinstance(types, tuple), "a spread has three results"
        domain = self.body.domain + self.rows
        layout = Layout.contiguous(domain.extents)
        at = layout.index(domain.vars)
        args = tuple([rows.numbers[a] for a in top.stmt.args])
        made = middle.emit(Stmt("reduce", args, top.stmt.attrs))
        parts = []
        for k, kind in enumerate(types):
            value = middle.emit(Stmt("get", (made,), (k,)))
            parts.append(self._handed_on(middle, last, value, kind, layout, at))
        attrs = ("welford_combine", top.stmt.attr("dtype"))
        rest.numbers[top.number] = last.emit(Stmt("reduce", tuple(parts), attrs))

    def _handed_on(
        self,
        middle: Rewriter,
        last: Rewriter,
        value: int,
        kind: DType,
        layout: Layout,
        at: Expr,
    ) -> int:
        """Store a part of each chunk; gives where the last nest has it."""
        buffer = Buffer(self.name(), kind, layout, self.nest.device)
        self.buffers.append(buffer)
        middle.emit(Stmt("store", (value,), (buffer.name, at, "plain", False)))
        return last.emit(Stmt("load", (), (buffer.name, at, False)))
