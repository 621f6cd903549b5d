"""Rows and columns in one walk, shared out: each program has rows of its own and sums them up.

    a[j] = 0                                       for j
    s[i] = sum of x[i, j];  a[j] += x[i, j]        for i, inner j        one a for all rows
    t[j] = 2 * a[j]                                for j
    ->   p[c, j] = 0                               for c, j
         s[S*c + k] = ...;  p[c, j] += ...         for c, k, inner j     one for each chunk of rows
         t[j] = 2 * sum over c of p[c, j]          for j

Programs that run side by side would otherwise wait for each other at every element. Within a chunk
rows follow each other, so that its sums can stay in registers until the end (`choose_gpu`). Rows
that are left over where no useful number divides them come after, one for each chunk. On a CPU
there are few chunks, which threads share, and what they sum up is added together in f64; how many
threads there are changes nothing. A chunk itself sums up in f32 if the numerics allow as many
additions in a row as it has rows; many rows make more chunks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from treadle.index import Domain, Expr, Kind, Symbol, hint, loop, substitute
from treadle.index.expr import mul
from treadle.ir.body import Body, Stmt
from treadle.ir.change import map_indices, with_loops
from treadle.ir.program import Nest, Operation, Program
from treadle.ir.rewrite import BodySource, Rewriter, pruned
from treadle.ir.types import Buffer, DType, Layout
from treadle.ir.typing import infer_types
from treadle.kernel.mixing import MODES

PROGRAMS = 264
"""Programs that walk rows: two for each of a large device's 132 cores."""
FEWEST_CHUNKS = 64
MOST_ROWS = 512
"""Rows that a chunk adds up in f32 before others are added to them."""
ROWS_TO_SPARE = 8
"""Rows of a chunk beside which one more is little."""
CPU_CHUNKS = (8, 12, 10, 9, 7, 6, 5, 4, 3, 2)
"""How many chunks a CPU's threads share, the first that fits; few, for all are added up again."""
FEWEST_ROWS = 16
"""Rows of a CPU's chunk: its sums are a small part of what it goes through."""
LEAST_SHARED = 1 << 16
"""Elements of a walk that takes long enough for a second thread."""
LEAST_CHUNK = 1 << 17
"""Elements of a chunk, where there are more than two: its sums are memory of its own."""
NARROWER = frozenset({DType.F32, DType.F16, DType.BF16, DType.F8E4M3, DType.F8E5M2})
KINDS = {mode: kind for kind, mode in MODES.items()}


class RowChunks(NamedTuple):
    """The nests in chunks, and the buffers of what chunks sum up."""

    nests: tuple[Nest, ...]
    """What begins the sums, walks the rows, walks what rows are left, and ends the sums."""
    buffers: tuple[Buffer, ...]


def chunk_rows(
    members: tuple[Operation, ...],
    program: Program,
    name: Callable[[], str],
    on_cpu: bool = False,
) -> RowChunks | None:
    """Nests that begin, walk and end a mixed kernel, in chunks; None if they are something else."""
    if len(members) != 3 or not all(isinstance(m, Nest) for m in members):
        return None
    first, middle, last = [m for m in members if isinstance(m, Nest)]
    sums = column_sums(middle.body)
    if not sums or len(last.body.reduce) or {n for n, _, _, _ in first.body.stores()} != set(sums):
        return None
    numerics = program.numerics
    longest = numerics.block if numerics.accumulation == "blocked" else MOST_ROWS
    count = _count_on_cpu(middle.body, longest) if on_cpu else _count(middle.body)
    if count is None:
        return None
    return _Chunking(program, sums, count, name, on_cpu, longest).nests(first, middle, last)


def column_sums(body: Body) -> dict[str, str]:
    """The buffers that a body adds to in the same places for every point of its domain."""
    found: dict[str, str] = {}
    for buffer, index, mode, _ in body.stores():
        if mode == "plain":
            continue
        if mode not in KINDS or not index.free.isdisjoint(body.domain.vars):
            return {}
        found[buffer] = mode
    if any(buffer in found for buffer, _, _ in body.loads()):
        return {}
    return found


def chunk_loops(body: Body) -> tuple[list[Symbol], list[Symbol]] | None:
    """Loops over chunks and over the rows inside them; None where nothing is summed up for columns.

    Rows are the loops along which every store that adds to memory stays in one place.
    """
    adding = [(index, mode) for _, index, mode, _ in body.stores() if mode != "plain"]
    if not adding or any(mode not in KINDS for _, mode in adding) or not len(body.reduce):
        return None
    used = frozenset[Symbol]().union(*[index.free for index, _ in adding])
    rows = [v for v in body.domain.vars if v not in used]
    shared = [v for v in body.domain.vars if v in used]
    is_wide = all(not index.free.isdisjoint(body.reduce.vars) for index, _ in adding)
    from_data = any(s.kind is Kind.INDIRECT for s in used)
    return (shared, rows) if rows and shared and is_wide and not from_data else None


def _count(body: Body) -> int | None:
    """How many chunks the outermost loop is cut into; None if there are not enough rows."""
    if not len(body.domain) or not len(body.reduce):
        return None
    rows = next(n.value for _, n in body.domain.items())
    if rows is None:
        return None
    fewest = max(FEWEST_CHUNKS, -(-rows // MOST_ROWS))
    divisors = [n for n in range(1, min(rows, max(PROGRAMS, 2 * fewest)) + 1) if rows % n == 0]
    fitting = [n for n in divisors if n >= fewest]
    few = [n for n in fitting if n <= PROGRAMS]
    if fitting:
        return max(few) if few else min(fitting)
    # Some rows are left over then: fewer than there are chunks.
    return max(PROGRAMS, fewest) if rows >= ROWS_TO_SPARE * max(PROGRAMS, fewest) else None


def _count_on_cpu(body: Body, longest: int) -> int | None:
    """A few chunks, if there is enough to share; more where these have too many rows for f32."""
    rows = next((n.value for _, n in body.domain.items()), None)
    if rows is None or hint(body.space.numel) < LEAST_SHARED:
        return None
    most = max(2, hint(body.space.numel) // LEAST_CHUNK)  # more would be held for no thread
    counts = [n for n in CPU_CHUNKS if n <= most]
    fitting = [n for n in counts if rows % n == 0 and rows // n >= FEWEST_ROWS]
    short = [n for n in fitting if rows // n <= longest]
    if not short and fitting:
        fewest = -(-rows // longest)
        more = range(fewest, min(2 * fewest, rows // FEWEST_ROWS) + 1)
        short = [n for n in more if rows % n == 0][:1]
    return next(iter((*short, *fitting)), None)


def _of_f32(middle: Body, last: Body, program: Program) -> set[str]:
    """The f64 sums whose terms and totals are f32, or narrower: f64 is only how they are made."""
    found = {buffer for buffer, _, _ in last.loads()}
    made = {at.number: at.stmt for at in middle.walk() if at.number is not None}
    types = infer_types(middle, program.by_name)
    for at in middle.walk():
        if at.stmt.op == "store" and at.stmt.buffer in found:
            term = made[at.stmt.args[0]]
            is_widened = term.op == "cast" and types[term.args[0]] in NARROWER
            if not is_widened:
                found.discard(at.stmt.buffer)
    loads = {
        at.number: at.stmt.buffer
        for at in last.walk()
        if at.stmt.op == "load" and at.stmt.buffer in found
    }
    for at in last.walk():
        is_narrower = at.stmt.op == "cast" and at.stmt.attr("dtype") in NARROWER
        if not is_narrower:
            found -= {loads[n] for n in at.stmt.args if n in loads}
    return found


class _Chunking:
    """One kernel on its way into chunks."""

    def __init__(
        self,
        program: Program,
        sums: Mapping[str, str],
        count: int,
        name: Callable[[], str],
        on_cpu: bool,
        longest: int,
    ) -> None:
        self.sums, self.count, self.chunk, self.name = sums, count, loop("c_rows"), name
        self.on_cpu, self.longest, self.program = on_cpu, longest, program
        self.parts: dict[str, Buffer] = {}
        self.whole: dict[str, Buffer] = {}

    def _make_parts(self, rows: int, of_f32: set[str]) -> None:
        """The buffers of what chunks of so many rows sum up; f32 where sums are `of_f32`.

        A single sum is added to once for each row: in f64 that costs a CPU nothing.
        """
        in_f64 = self.on_cpu and rows // self.count > self.longest
        for buffer in self.sums:
            old = self.program.by_name[buffer]
            is_single = old.storage_numel.value == 1
            narrower = buffer in of_f32 and not in_f64 and not (self.on_cpu and is_single)
            kind = DType.F32 if narrower else old.dtype
            layout = Layout.contiguous((self._chunks, old.storage_numel))
            self.parts[buffer] = Buffer(self.name(), kind, layout, old.device)
            self.whole[buffer] = old

    @property
    def _chunks(self) -> Expr:
        ((_, n),) = Domain([(self.chunk, self.count)]).items()
        return n

    def nests(self, first: Nest, middle: Nest, last: Nest) -> RowChunks:
        """The nests over partial sums."""
        self._make_parts(self._rows(middle.body), _of_f32(middle.body, last.body, self.program))
        walks = [replace(middle, body=self._middle(middle.body))]
        if (left := self._left_over(middle.body)) is not None:
            walks.append(replace(middle, name=self.name(), body=left))
        begun = replace(first, body=self._first(first.body))
        ended = replace(last, body=self._last(last.body))
        return RowChunks((begun, *walks, ended), tuple(self.parts.values()))

    def _place(self, buffer: str, index: Expr, chunk: Symbol) -> Expr:
        return mul(chunk, self.whole[buffer].storage_numel) + index

    def _first(self, body: Body) -> Body:
        """Every chunk begins with what adds nothing."""
        writer = Rewriter()
        BodySource(writer, instead=self._into_parts).take(body.stmts)
        domain = Domain([(self.chunk, self.count)]) + body.domain
        return Body(domain, body.reduce, writer.stmts)

    def _middle(self, body: Body) -> Body:
        """Chunks, and rows inside them."""
        size = self._rows(body) // self.count
        return self._walk(body, self.count, size, lambda inside: mul(self.chunk, size) + inside)

    def _left_over(self, body: Body) -> Body | None:
        """Rows that chunks of one size do not have: one for each of some chunks."""
        done = self._rows(body) // self.count * self.count
        left = self._rows(body) - done
        return self._walk(body, left, 1, lambda _: self.chunk + done) if left else None

    def _rows(self, body: Body) -> int:
        rows = next(n.value for _, n in body.domain.items())
        assert rows is not None, "a loop that is cut has a known extent"
        return rows

    def _walk(self, body: Body, chunks: int, size: int, place: Callable[[Symbol], Expr]) -> Body:
        (rows, _), *rest = body.domain.items()
        inside = loop(f"{rows.name}_in_chunk")
        moved = map_indices(body, lambda e: substitute(e, {rows: place(inside)}))
        writer = Rewriter()
        BodySource(writer, instead=self._into_parts).take(moved.stmts)
        domain = Domain([(self.chunk, chunks), (inside, size), *rest])
        return with_loops(replace(moved, stmts=pruned(writer.stmts)), domain, body.reduce)

    def _into_parts(self, writer: Rewriter, stmt: Stmt) -> int | None:
        """A store into a sum goes to that of the chunk instead, in the type that has."""
        if stmt.op != "store" or stmt.buffer not in self.parts:
            return None
        part, (value,) = self.parts[stmt.buffer], stmt.args
        made = writer.made.get(value)
        if part.dtype is not self.whole[stmt.buffer].dtype:
            is_cast = made is not None and made.op == "cast"
            value = made.args[0] if is_cast and made is not None else value
            value = writer.emit(Stmt("cast", (value,), (part.dtype,)))
        at = self._place(stmt.buffer, stmt.address, self.chunk)
        mode = str(stmt.attr("mode"))
        writer.emit(Stmt("store", (value,), (part.name, at, mode, False)))
        return value

    def _last(self, body: Body) -> Body:
        """Sums of all chunks where there was one sum."""

        def together(writer: Rewriter, stmt: Stmt) -> int | None:
            if stmt.op != "load" or stmt.buffer not in self.parts:
                return None
            part, mode = self.parts[stmt.buffer], self.sums[stmt.buffer]
            at = self._place(stmt.buffer, stmt.address, self.chunk)
            one = writer.emit(Stmt("load", (), (part.name, at, False)))
            whole, within = self.whole[stmt.buffer].dtype, part.dtype
            if self.on_cpu and whole is not within:
                one, within = writer.emit(Stmt("cast", (one,), (whole,))), whole
            value = writer.emit(Stmt("reduce", (one,), (KINDS[mode], within)))
            return value if whole is within else writer.emit(Stmt("cast", (value,), (whole,)))

        writer = Rewriter()
        BodySource(writer, instead=together).take(body.stmts)
        return Body(body.domain, Domain([(self.chunk, self.count)]), writer.stmts)
