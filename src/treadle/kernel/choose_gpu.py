"""How a nest is walked on a GPU: which loops programs share out, which are tiles, what is looped.

    pointwise   up to 1024 points along the loop that walks memory, and more loops if it is short;
                fewer if the device would not be busy
    transposed  a square tile, so that both ways of walking read whole lines
    rows        whole rows in registers if they fit, else tiles that follow each other in a loop
    columns     a tile of columns, more of them if there are few rows; rows in a loop
    in chunks   rows one after the other, whole, with what they add up for columns in registers

All other loops are the grid's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from treadle.core.verdict import Verdict, no, yes
from treadle.index import Expr, Symbol, coefficient, hint
from treadle.ir.body import Body
from treadle.ir.loop_schedule import Bind, Binding, Order, Split, Step, Tune, plan_loops
from treadle.ir.program import Nest, Program
from treadle.kernel.choose_cpu import AccessCosts
from treadle.kernel.row_chunks import chunk_loops
from treadle.kernel.stages import TWO_PASSES, plan_nests
from treadle.kernel.vector_rules import BodyAccess, accesses_of

POINTS, FEWEST_POINTS = 1024, 128
"""Points of a tile of pointwise work; fewer, down to a warp's, where that leaves cores idle."""
EACH, APART = 8, 2
"""Points that a lane takes; fewer where what they load is apart in memory."""
USUAL_LANES = 128
MANY_LOADS = 20
"""Loads at a point, above which a lane takes one point only."""
WASTE = 0.05
"""Share of a tile's points beyond the end of a loop that no smaller tile is worth."""
SQUARE = 64
"""The side of a tile that is read both ways."""
LONGEST_KEPT = 16384
"""Elements of a row that is kept in registers."""
SHORT_TILE = 256
"""Points of a tile along rows and one loop that need no other loop beside them."""
BLOCK = 2048
"""Elements of a row that a loop takes at a time."""
SHORT_ROW, LONG_CHUNK_POINTS, CHUNK_POINTS = 512, 4096, 2048
"""Points of rows that follow each other, at a time: more of short rows, so many rows as that is."""
COLUMNS, ROWS = 64, 32
"""The tile of a reduction along columns."""
SHORT_LINE, LONG_WALK = 64, 64
"""Elements beside each other that are too few for a row, and steps that make a walk long."""
ONE_BY_ONE = frozenset({"sort", "reduce_part", "bucketize", "inline_asm", "rand", "randn",
                        "randint", "assert"})  # fmt: skip


IN_CHUNKS = "rows in chunks"
"""What the shape of rows that add up columns on their way is called."""
BUSY_PROGRAMS = 528
"""Programs that keep a large device busy: four for each of its 132 cores."""
MOST_WARPS = 16


@dataclass(frozen=True, slots=True)
class Lean:
    """How a schedule differs from the usual one; `tile` and `warps` count doublings."""

    tile: int = 0
    """Of a tile along the loop that is shared out, or of a block that is walked."""
    warps: int = 0
    is_walked: bool = False
    """Whether rows go by in a loop though registers would hold them."""
    pipeline: int = 0
    """Loads under way in a loop; 0: as many as usual."""

    def of(self, size: int, fewest: int = 1) -> int:
        """A size of a tile, doubled as often as this says."""
        return max(size << self.tile if self.tile >= 0 else size >> -self.tile, fewest)


USUAL = Lean()


def programs_of(nest: Nest, program: Program) -> int:
    """How many programs a schedule for a GPU would give a nest, by the likely sizes."""
    steps, verdict = choose_gpu_steps(nest, program)
    if not verdict:
        return BUSY_PROGRAMS
    count = 1
    for a in plan_loops(nest.body, steps).axes:
        if a.binding is Binding.GRID:
            count *= -(-hint(dict(nest.body.space.items())[a.loop]) // max(a.size, 1))
    return count


def choose_gpu_steps(
    nest: Nest, program: Program, lean: Lean = USUAL
) -> tuple[tuple[Step, ...], Verdict]:
    """The schedule of a nest on a GPU, and what it does or why there is none."""
    allowed = may_be_tiled(nest, program)
    if not allowed:
        return (), allowed
    return _GpuChoice(nest, program, accesses_of(nest.body, program), lean).steps()


def may_be_tiled(nest: Nest, program: Program) -> Verdict:
    """KER007: whether programs of a GPU may share out the points of a nest, in tiles."""
    if not program.numerics.reassociation or program.numerics.accumulation == "exact":
        return no("KER007", nest=nest.name, reason="sums must be exact")
    for at in nest.body.walk():
        if at.stmt.op in ONE_BY_ONE:
            return no("KER007", nest=nest.name, reason=f"{at.stmt.op} goes one by one")
        if at.stmt.op == "scan" and not keeps_rows(nest.body):
            return no("KER007", nest=nest.name, reason="a scan goes along more than registers hold")
    if _must_keep(nest, program) and not keeps_rows(nest.body):
        return no("KER007", nest=nest.name, reason="a row must be kept")
    return yes("KER007")


def _must_keep(nest: Nest, program: Program) -> bool:
    """Whether a later walk along a row could not read again what an earlier one has read."""
    must = plan_nests(
        nest.body, program.storage_of, frozenset(), in_any_order=True, twice=TWO_PASSES
    )
    return any(s.kept for s in must.steps)


def keeps_rows(body: Body) -> bool:
    """Whether a row fits into registers."""
    length = body.reduce.numel.value
    return len(body.reduce) == 1 and length is not None and length <= LONGEST_KEPT


class _GpuChoice:
    """The choice for one nest."""

    def __init__(
        self, nest: Nest, program: Program, accesses: list[BodyAccess], lean: Lean
    ) -> None:
        self.nest, self.body, self.accesses, self.lean = nest, nest.body, accesses, lean
        self.extents = dict(self.body.space.items())
        self.costs = AccessCosts(nest.body, program, _most_often(nest.body, accesses))
        scans = any(at.stmt.op == "scan" for at in self.body.walk())
        self.is_whole = scans or _must_keep(nest, program)
        """Whether each row must be one tile: it is scanned, or overwrites what it was read from."""

    def steps(self) -> tuple[tuple[Step, ...], Verdict]:
        """The steps, and the verdict that explains them."""
        chunks = chunk_loops(self.body)
        if chunks is not None and keeps_rows(self.body):
            found, shape = list(self._row_chunks(*chunks)), IN_CHUNKS
        elif not len(self.body.reduce):
            found, shape = list(self._pointwise()), "pointwise"
        else:
            inner = min(reversed(self.body.reduce.vars), key=self.costs.of)
            best = min(reversed(self.body.space.vars), key=self.costs.of)
            columns = best in self.body.domain.vars and self.costs.of(best) < self.costs.of(inner)
            if columns and not self.is_whole:
                found, shape = list(self._columns(best, inner)), "columns"
            else:
                found, shape = list(self._rows(inner)), "rows"
        names = [v.name for v in self.body.space.vars]
        return tuple(found), yes("KER007", nest=self.nest.name, loops=names, shape=shape)

    # -- shapes --------------------------------------------------------------------------------
    def _pointwise(self) -> Iterator[Step]:
        loops = list(self.body.domain.vars)
        if not loops:
            return
        v = min(reversed(loops), key=self.costs.of)
        across = self._across(v)
        sizes: dict[Symbol, int] = {}
        if across is not None:
            side = self.lean.of(SQUARE, 16)
            sizes = {across: min(side, self._power(across)), v: min(SQUARE, self._power(v))}
        else:
            left = min(self._points(), self.lean.of(self._points_per_lane(v) * USUAL_LANES, 32))
            for x in [v, *[x for x in reversed(loops) if x is not v]]:
                fewest = FEWEST_POINTS if x is v else 2
                size = self._even(x, min(self._power(x), left), fewest)
                if size >= 2:
                    sizes[x] = size
                left //= max(size, 1)
                if left < 2:
                    break
        yield from self._tiled(sizes, last=v)
        points = 1
        for size in sizes.values():
            points *= size
        usual = points if across is not None else points * EACH // self._points_per_lane(v)
        yield self._with_warps(_warps(usual))

    def _points_per_lane(self, v: Symbol) -> int:
        """Points of pointwise work that a lane takes: usually as many as a wide load holds.

        A lane's points are neighbours. Where what they load is apart (every other element), each
        load brings one, and the fewer points, the fewer lines does a load of all lanes touch. Where
        there are many loads, what they bring has to fit into registers.
        """
        places = {(a.storage, a.index) for a in self.accesses if not a.mode}
        varying = [index for _, index in places if v in index.free]
        if len(varying) > MANY_LOADS:
            return 1
        return APART if any(_is_apart(index, v) for index in varying) else EACH

    def _with_warps(self, usual: int) -> Tune:
        """The warps of a program, more or fewer than usual."""
        lean = self.lean.warps
        warps = usual << lean if lean >= 0 else usual >> -lean
        return Tune("warps", min(max(warps, 1), max(MOST_WARPS, usual)))

    def _piped(self, usual: int) -> Tune:
        """How many loads of a loop are under way."""
        return Tune("pipeline", self.lean.pipeline or usual)

    def _points(self) -> int:
        """Points of a tile: as many as leave every core something to do."""
        points = POINTS
        while points > FEWEST_POINTS and hint(self.body.domain.numel) < points * BUSY_PROGRAMS:
            points //= 2
        return self.lean.of(points, 32)

    def _across(self, v: Symbol) -> Symbol | None:
        """A loop along which memory lies that is touched with strides along `v`."""
        for u in reversed(self.body.domain.vars):
            if u is v or min(self._power(u), self._power(v)) < 16:
                continue
            for a in self.accesses:
                along, strided = coefficient(a.index, u), coefficient(a.index, v)
                if along is None or along.value is None or abs(along.value) != 1:
                    continue
                if strided is None or strided.value is None or abs(strided.value) > 1:
                    return u
        return None

    def _tiled(self, sizes: dict[Symbol, int], last: Symbol) -> Iterator[Step]:
        """Split and bind domain loops; those without a size belong to the grid whole."""
        loops = list(self.body.domain.vars)
        tiled = [x for x in loops if x in sizes and x is not last]
        tiled += [last] if last in sizes else []
        for x in tiled:
            yield Split(x.name, sizes[x])
        reduce = [x.name for x in self.body.reduce.vars]
        order = [*[x.name for x in loops], *[f"{x.name}'" for x in tiled], *reduce]
        yield Order(tuple(order))
        for x in loops:
            yield Bind(x.name, Binding.GRID)
        for x in tiled:
            yield Bind(f"{x.name}'", Binding.TILE)

    def _rows(self, r: Symbol) -> Iterator[Step]:
        others = [x for x in self.body.reduce.vars if x is not r]
        length = self.extents[r].value
        is_kept = not others and length is not None and length <= LONGEST_KEPT
        if self.lean.is_walked and not self.is_whole:
            is_kept = is_kept and self._power(r) <= BLOCK // 2
        size = self._power(r) if is_kept else min(self._block(), self._power(r))
        loops = list(self.body.domain.vars)
        rows: dict[Symbol, int] = {}
        across = self._across(r)
        if across is not None and self.is_whole:
            most = self.lean.of(SQUARE // 2)
            rows[across] = min(most, self._power(across), max(LONGEST_KEPT // size, 1))
        elif across is not None:
            is_kept, size = False, min(SQUARE, self._power(r))
            rows[across] = min(self.lean.of(SQUARE // 2, 2), self._power(across))
        elif loops and (is_kept or size < POINTS):
            left = self._rows_at_once(size)
            for x in reversed(loops):
                many = min(self._power(x), left)
                if many >= 2:
                    rows[x] = many
                left //= max(many, 1)
                if left < 2 or size * many >= SHORT_TILE:
                    break
        last = across if across is not None else loops[-1] if loops else None
        steps = list(self._tiled(rows, last=last)) if last is not None else []
        yield from [s for s in steps if isinstance(s, Split)]
        names = [n for s in steps if isinstance(s, Order) for n in s.axes]
        names = [n for n in names if n not in {x.name for x in self.body.reduce.vars}]
        walked = [x.name for x in others]
        if is_kept:
            yield Order((*names, r.name))
            yield from [s for s in steps if isinstance(s, Bind)]
            yield Bind(r.name, Binding.TILE)
        else:
            yield Split(r.name, max(size, 2))
            yield Order((*names, *walked, r.name, f"{r.name}'"))
            yield from [s for s in steps if isinstance(s, Bind)]
            yield Bind(f"{r.name}'", Binding.TILE)
            # A tile that waits for its largest gains nothing from loads that are under way.
            yield self._piped(1 if self._is_online else 3)
        points = size
        for many in rows.values():
            points *= many
        yield self._with_warps(min(_warps(points), 4) if self._is_online else _warps(points))

    def _block(self) -> int:
        """Elements of a row that a loop takes at a time."""
        return self.lean.of(BLOCK)

    def _rows_at_once(self, size: int) -> int:
        """Short rows that one program has side by side."""
        many = max(POINTS // size, 1)
        while many > 1 and hint(self.body.domain.numel) < many * BUSY_PROGRAMS:
            many //= 2  # a device that is half idle is not helped by full tiles
        return min(self.lean.of(many), max(LONGEST_KEPT // size, 1))

    @property
    def _is_online(self) -> bool:
        reductions = [at.stmt for at in self.body.walk() if at.stmt.op == "reduce"]
        return any(stmt.attr("kind") == "online_softmax" for stmt in reductions)

    def _row_chunks(self, shared: Sequence[Symbol], rows: Sequence[Symbol]) -> Iterator[Step]:
        """Programs share chunks out; the rows of each follow each other, their sums kept.

        Short rows go several at a time, or a program would wait for each of them.
        """
        (r,) = self.body.reduce.vars
        last = rows[-1]
        points = LONG_CHUNK_POINTS if self._power(r) <= SHORT_ROW else CHUNK_POINTS
        many = min(self.lean.of(points // self._power(r)), self._power(last) // 2)
        if many >= 2:
            yield Split(last.name, many)
        inside = [f"{last.name}'"] if many >= 2 else []
        yield Order((*[x.name for x in (*shared, *rows)], *inside, r.name))
        for x in shared:
            yield Bind(x.name, Binding.GRID)
        for name in (*inside, r.name):
            yield Bind(name, Binding.TILE)
        yield self._piped(3)
        per_warp = 512 if many >= 2 else 1024
        yield self._with_warps(max(4, min(16, self._power(r) * max(many, 1) // per_warp)))

    def _columns(self, v: Symbol, r: Symbol) -> Iterator[Step]:
        rows = self._even(r, min(ROWS, self._power(r)), ROWS // 2)
        columns = min(max(COLUMNS, COLUMNS * ROWS // rows // 2), self._power(v))
        others = hint(self.body.domain.numel) // max(hint(self.extents[v]), 1)
        while columns > COLUMNS and -(-hint(self.extents[v]) // columns) * others < BUSY_PROGRAMS:
            columns //= 2  # few steps leave room for more columns, if the device stays busy
        columns = min(self.lean.of(columns), self._power(v))
        steps = list(self._tiled({v: max(columns, 2)}, last=v))
        yield from [s for s in steps if isinstance(s, Split)]
        yield Split(r.name, max(rows, 2))
        names = [n for s in steps if isinstance(s, Order) for n in s.axes]
        inner = {x.name for x in self.body.reduce.vars}
        names = [n for n in names if n not in inner]
        walked = [x.name for x in self.body.reduce.vars if x is not r]
        outer = [n for n in names if not n.endswith("'")]
        tiles = [n for n in names if n.endswith("'")]
        yield Order((*outer, *tiles, *walked, r.name, f"{r.name}'"))
        yield from [s for s in steps if isinstance(s, Bind)]
        yield Bind(f"{r.name}'", Binding.TILE)
        yield self._piped(3)
        yield self._with_warps(4)

    def _even(self, x: Symbol, size: int, fewest: int) -> int:
        """A size of a tile, or a smaller one of which fewer points lie beyond the loop's end."""
        extent = max(hint(self.extents[x]), 1)
        wasted: dict[int, float] = {}
        while size >= fewest or not wasted:
            wasted[size] = -(-extent // max(size, 1)) * size / extent
            size //= 2
        least = min(wasted.values())
        return max(size for size, waste in wasted.items() if waste <= least + WASTE)

    def _power(self, x: Symbol) -> int:
        """The power of two that covers a loop."""
        return 1 << max(hint(self.extents[x]) - 1, 0).bit_length()


def short_columns(nest: Nest, program: Program) -> Symbol | None:
    """The inner loop along memory, if it is too short for rows, and results are too few.

    One program would walk far over memory for a few elements at a time, and wait for each.
    """
    body = nest.body
    if len(body.reduce) < 2 or not may_be_tiled(nest, program):
        return None
    costs = AccessCosts(body, program, _most_often(body, accesses_of(body, program)))
    inner = min(reversed(body.reduce.vars), key=costs.of)
    steps, side_by_side = hint(dict(body.reduce.items())[inner]), hint(body.domain.numel)
    if min([costs.of(v) for v in body.space.vars if v is not inner], default=0) < costs.of(inner):
        return None
    is_short = 2 <= steps <= SHORT_LINE and hint(body.reduce.numel) >= LONG_WALK * steps
    return inner if is_short and side_by_side * steps < POINTS * BUSY_PROGRAMS else None


def _most_often(body: Body, accesses: list[BodyAccess]) -> list[BodyAccess]:
    """The accesses that are made at every step of a reduction; all, if there are none."""
    inner = frozenset(body.reduce.vars)
    return [a for a in accesses if inner & a.index.free] or accesses


def _is_apart(index: Expr, v: Symbol) -> bool:
    """Whether neighbours read what is certainly not beside each other."""
    step = coefficient(index, v)
    return step is not None and step.value is not None and abs(step.value) > 1


def _warps(points: int) -> int:
    """Warps for a tile: eight elements a thread or so."""
    for warps in (1, 2, 4, 8):
        if points <= warps * 256:
            return warps
    return 8 if points <= 8192 else 16
