"""How a nest is walked on a CPU: the loop for vectors, blocks, tiles, what is kept.

    rows        y[i] = sum of x[i, r]      vectors along r, partial sums flow on every 4096 elements
    columns     y[i] = sum of x[r, i]      lanes of i inside r: whole lines of memory, one sum each
    transposed  y[i, j] = x[j, i]          blocks of both, x goes through a tile
    product     y[i, j] = sum of x[i, r] * w[r, j]     tiles in registers, see `choose_product`

The loop for vectors is the one along which memory is touched in the cheapest way: element by
element costs least, the same element hardly anything, strides a line of cache each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from treadle.core.verdict import Verdict, no, yes
from treadle.index import Expr, Symbol, as_expr, coefficient, hint
from treadle.ir.body import Body
from treadle.ir.loop_schedule import (
    AxisKind,
    Bind,
    Binding,
    Flush,
    Keep,
    Order,
    Split,
    StageLoad,
    Step,
    Tune,
    plan_loops,
)
from treadle.ir.ops import OPS
from treadle.ir.products import MatrixProduct
from treadle.ir.program import Nest, Program
from treadle.ir.types import DType
from treadle.kernel.choose_product import product_in, product_steps
from treadle.kernel.narrow_rows import ALL_NARROW, NARROW_BLOCK, narrow_rows
from treadle.kernel.stages import LONGEST_ROW, POSITIONS, Nests, plan_nests
from treadle.kernel.vector_rules import (
    BodyAccess,
    accesses_of,
    has_scan,
    may_be_threads,
    may_be_vector,
    may_scan_beside,
)

VECTOR = 8
"""Partial sums that a vector holds at least: what bounds the length of each."""
LANES = 1024
"""Columns that are walked side by side: a few of their sums fit into the first cache."""
TILE = 16
"""Elements of a tile along its memory: a line of cache."""
LONGEST_TURNED = 512
"""Elements of rows of which a tile fits into the first cache."""
TILE_LENGTH = 64
"""Elements of a tile along the loop for vectors."""
TILE_BYTES, FEWEST_TILES = 4, 8
"""What an element of a tile takes; how many tiles there are beside each other at least."""
SHORTEST = 8
"""A loop with fewer points is not worth vectors if there is another."""
LINE = 64
SHARED_BLOCK = 4096
"""Elements of a part at least, where vectors and threads share the only loop."""
ROWS_BESIDE = 4
"""Rows that are scanned side by side: an addition takes as long as four others may begin."""
LEAST_LANES, STRIPS = 128, 4
"""Columns that threads may share are cut into so many strips, but none narrower than that."""
LEAST_SHARED_NS = 60_000
"""A nest that takes less is not worth a second thread: to wake one takes microseconds."""
ACCESS_PS, WORK_PS, SCALAR = 40, 30, 6.0
"""Picoseconds for touching an element and for a unit of work (see `ops`) on vectors, and how much
longer it takes without them. Rough, for all they decide is how many threads share a nest."""
PRODUCT = 0.15
"""How much less a point of a product takes, of which registers hold all but two loads in ten."""
INVARIANT, NEXT, STRIDED, BY_DATA = 0.1, 1.0, 6.0, 4.0
SINGLE_PS, MISSED_PS = 250, 600
"""Picoseconds for touching an element by itself: in the first cache, and for a load out of it."""
FIRST_CACHE = 32 * 1024
CACHE_SETS = 64
"""Sets of lines in the first cache: 4096 bytes further on it is the same set again."""


def choose_steps(nest: Nest, program: Program) -> tuple[tuple[Step, ...], Verdict]:
    """The schedule of a nest on a CPU, and what it does or why it does nothing."""
    numerics = program.numerics
    if not numerics.reassociation or numerics.accumulation == "exact":
        return (), no("KER007", nest=nest.name, reason="sums must be exact")
    accesses = accesses_of(nest.body, program)
    allowed = may_scan_beside(nest, accesses)
    if not allowed:
        return (), allowed
    return _Choice(nest, program, accesses).steps()


def takes_long(nest: Nest, program: Program) -> bool:
    """Whether a nest on vectors takes so long that a second thread would pay."""
    return _Choice(nest, program, accesses_of(nest.body, program))._is_long()


class AccessCosts:
    """What touching memory along a loop costs, for the loops of one body."""

    def __init__(self, body: Body, program: Program, accesses: list[BodyAccess]) -> None:
        self.body, self.program, self.accesses = body, program, accesses

    def of(self, v: Symbol) -> float:
        """What the accesses cost if `v` is the innermost loop."""
        return sum(self.one(a, v) for a in self.accesses) + 0.01

    def one(self, a: BodyAccess, v: Symbol) -> float:
        """What one access costs if `v` is the innermost loop."""
        step = coefficient(a.index, v)
        if step is None or (a.is_indirect and v not in a.index.free):
            return BY_DATA
        if step.value == 0:
            return INVARIANT
        if step.value is not None and abs(step.value) == 1:
            return NEXT
        width = self.program.by_name[a.buffer].dtype.itemsize
        apart = LINE if step.value is None else abs(step.value) * width
        return NEXT + (STRIDED - NEXT) * min(apart, LINE) / LINE


@dataclass(frozen=True)
class _Candidate:
    """A loop that vectors could carry out, and what touching memory along it costs."""

    loop: Symbol
    cost: float


class _Choice:
    """The choice for one nest."""

    def __init__(self, nest: Nest, program: Program, accesses: list[BodyAccess]) -> None:
        self.nest, self.program, self.body = nest, program, nest.body
        self.accesses, self.numerics = accesses, program.numerics
        self.extents = dict(self.body.space.items())
        self.costs = AccessCosts(self.body, program, accesses)
        self.stages: Nests = plan_nests(self.body, program.storage_of, in_any_order=True)

    def steps(self) -> tuple[tuple[Step, ...], Verdict]:
        """The steps, and the verdict that explains them."""
        product = product_in(self.nest, self.program)
        if product is not None:
            return self._product(product)
        best, refusal = self._best()
        if best is None:
            if has_scan(self.body):
                return self._scanned_rows(), refusal
            names = tuple([v.name for v in self.body.space.vars])
            serial: tuple[Step, ...] = (Order(names),) if names else ()
            return (*serial, *self._threads(serial, SCALAR)), refusal
        v = best.loop
        across = self._across(v)
        if across is not None:
            found, shape = self._tiled(v, across), "transposed"
        elif v in self.body.reduce.vars or not len(self.body.reduce):
            found, shape = self._rows(v), "rows"
        else:
            found, shape = self._columns(v), "columns"
        steps = tuple(found)
        steps = (*steps, *self._threads(steps, 1.0))
        return steps, yes("KER007", nest=self.nest.name, loop=v.name, shape=shape)

    def _product(self, product: MatrixProduct) -> tuple[tuple[Step, ...], Verdict]:
        block = None if self.numerics.accumulation == "f32" else self._block()
        steps = tuple(product_steps(self.body, product, block))
        steps = (*steps, *self._threads(steps, PRODUCT))
        return steps, yes("KER007", nest=self.nest.name, loop=product.columns.name, shape="product")

    def _scanned_rows(self) -> tuple[Step, ...]:
        """Rows that are scanned: some beside each other, for each waits for its own last step.

        Where memory lies along them they go by whole vectors, beside each other or not.
        """
        names, steps = [v.name for v in self.body.space.vars], list[Step]()
        beside = self.body.domain.vars[-1] if len(self.body.domain) else None
        along = self.body.space.vars[-1]
        narrow = narrow_rows(self.body, self.program, self.accesses, along, ALL_NARROW)
        if narrow:
            steps += [Split(along.name, self._row_block(along, False, True))]
            steps += map(StageLoad, narrow)
            names.append(f"{along.name}'")
        elif beside is not None and _divides(ROWS_BESIDE, self.extents[beside]):
            steps.append(Split(beside.name, ROWS_BESIDE))
            names.append(f"{beside.name}'")
        steps.append(Order(tuple(names)))
        shared = tuple(self._threads(tuple(steps), SCALAR))
        is_line = all(self.costs.one(a, along) <= NEXT for a in self.accesses)
        return (*steps, *shared) if shared or is_line or len(steps) > 1 else ()

    # -- threads -------------------------------------------------------------------------------
    def _picoseconds(self, factor: float) -> int:
        """What a point takes one thread, roughly."""
        passes = max(len(self.stages.passes), 1)
        touching = ACCESS_PS * passes * len(self.accesses)
        return int(factor * (touching + WORK_PS * self._work())) + 1

    def _is_long(self, factor: float = 1.0) -> bool:
        """Whether a nest takes long enough to be shared by threads, at the sizes to expect."""
        points = 1.0
        for n in self.extents.values():
            points *= max(hint(n), 1)
        return points * self._picoseconds(factor) >= 1000 * LEAST_SHARED_NS

    def _may_share(self, factor: float = 1.0) -> bool:
        """Whether points of the domain may be different threads': none meets another's."""
        return all(a.mode in ("", "plain") for a in self.accesses) and self._is_long(factor)

    def _threads(self, steps: tuple[Step, ...], factor: float) -> Iterator[Step]:
        if not self.extents or not self._is_long(max(factor, 1.0)):
            return
        first = plan_loops(self.body, steps).axes[0]
        if not may_be_threads(self.body, self.accesses, first.loop):
            return
        extent = self.extents[first.loop]
        blocks = -(-hint(extent) // (first.size or 1))
        if first.kind is AxisKind.PARALLEL and first.binding is Binding.SERIAL and blocks > 1:
            yield Bind(first.name, Binding.THREADS)
            yield Tune("picoseconds", self._picoseconds(factor))

    # -- which loop --------------------------------------------------------------------------
    def _best(self) -> tuple[_Candidate | None, Verdict]:
        found: list[_Candidate] = []
        refusal: Verdict = no("KER007", nest=self.nest.name, reason="it has no loops")
        for v in self.body.space.vars:
            verdict = may_be_vector(self.nest, self.program, v)
            if verdict and v in self.body.domain.vars and len(self.body.reduce):
                verdict = self._may_have_lanes()
            if verdict:
                found.append(_Candidate(v, self._cost(v)))
            else:
                refusal = verdict
        # Of equal ones the innermost, as the body was written.
        best = min(reversed(found), key=lambda c: c.cost, default=None)
        if (
            best
            and has_scan(self.body)
            and any(self.costs.one(a, best.loop) > NEXT for a in self.accesses)
        ):
            return None, refusal
        is_choice = len(found) == len(self.extents)
        if best and not is_choice and self._vectors_ps(best.loop) > self._serial_ps():
            return None, refusal
        return best, refusal

    def _vectors_ps(self, v: Symbol) -> float:
        """What a point takes on vectors along a loop that was left over, roughly.

        Lines of memory that strides touch are used again by the next loop if they are few.
        """
        apart = [a for a in self.accesses if self.costs.one(a, v) > NEXT]
        touching = (len(self.accesses) - len(apart)) * ACCESS_PS + WORK_PS * self._work()
        if sum(self._part_of_first_cache(a, v) for a in apart) <= 1.0:
            return touching + len(apart) * SINGLE_PS
        # A line that is stored to is fetched and given back; one that is added to waits for both.
        weights = {"": 1, "plain": 2}
        return touching + MISSED_PS * sum(weights.get(a.mode, 4) for a in apart)

    def _part_of_first_cache(self, a: BodyAccess, v: Symbol) -> float:
        """How much of the first cache the lines take that an access touches along a loop.

        A line has its place in one of few sets, and strides of whole pages share a single one.
        """
        step = coefficient(a.index, v)
        stride = abs(hint(step)) * self.program.by_name[a.buffer].dtype.itemsize if step else LINE
        sets = CACHE_SETS // gcd(CACHE_SETS, -(-stride // LINE))
        return hint(self.extents[v]) * LINE * CACHE_SETS / (sets * FIRST_CACHE)

    def _serial_ps(self) -> float:
        """What a point takes if the loops are walked one by one, as they were written."""
        return len(self.accesses) * SINGLE_PS + SCALAR * WORK_PS * self._work()

    def _work(self) -> float:
        return sum(OPS[at.stmt.op].work for at in self.body.walk())

    def _may_have_lanes(self) -> Verdict:
        """Whether points may be walked side by side through all passes."""
        storage_of = self.program.storage_of
        must = plan_nests(self.body, storage_of, frozenset(), in_any_order=True)
        if any(s.kept for s in must.steps):
            return no("KER007", nest=self.nest.name, reason="a row must be kept for each point")
        if any(p.loops != frozenset(self.body.reduce.vars) for p in self.stages.passes.values()):
            return no("KER007", nest=self.nest.name, reason="passes over different loops")
        return yes("KER007")

    def _cost(self, v: Symbol) -> float:
        total = self.costs.of(v)
        points = hint(self.extents[v])
        if points < SHORTEST:
            total *= SHORTEST / max(points, 1)
        if v in self.body.domain.vars and len(self.body.reduce):
            total *= 1.1  # sums in memory instead of registers
        return total

    # -- shapes ------------------------------------------------------------------------------
    def _rows(self, v: Symbol) -> Iterator[Step]:
        reduce = v in self.body.reduce.vars
        others = [x for x in self.body.space.vars if x is not v]
        names = [*[x.name for x in others], v.name]
        narrow = narrow_rows(self.body, self.program, self.accesses, v)
        flush = self._flush_rows(v) if reduce else None
        size = self._row_block(v, flush == f"{v.name}'", bool(narrow))
        u, turned = self._turned_rows(v) if not size and flush is None else (None, [])
        yield from self._keeps({*narrow, *self._strided(v)} - {*turned})
        if u is not None:
            names = [x.name for x in others if x is not u] + [u.name, f"{u.name}'", v.name]
            yield Split(u.name, TILE)
            yield from map(StageLoad, turned)
        if size:
            yield Split(v.name, size)
            names.append(f"{v.name}'")
        yield from map(StageLoad, narrow)
        yield Order(tuple(names))
        if flush is not None:
            yield Flush(flush.removesuffix("'"))
        yield Bind(names[-1], Binding.VECTOR)

    def _turned_rows(self, v: Symbol) -> tuple[Symbol | None, list[int]]:
        """Loads of which 16 rows at a time are turned, and along which loop memory lies there."""
        n = self.extents[v].value
        if len(self.stages.passes) < 2 or list(self.body.reduce.vars) != [v]:
            return None, []
        if n is None or n % TILE or n > LONGEST_TURNED:
            return None, []
        forced = {s.number for s in self.stages.steps if s.kept}
        strided, f32 = {*self._strided(v)} - forced, DType.F32
        plain = [a for a in self.accesses if self.program.by_name[a.buffer].dtype is f32]
        for u in reversed(self.body.domain.vars):
            extent = self.extents[u].value
            lie_so = {a.number for a in plain if coefficient(a.index, u) == as_expr(1)}
            found = set(self._staged(v, u)) & strided & lie_so
            if found and extent is not None and extent % TILE == 0:
                return u, sorted(found)
        return None, []

    def _row_block(self, v: Symbol, flushes: bool, is_narrow: bool) -> int:
        """The elements of a block along rows; 0 if they are walked whole."""
        most = NARROW_BLOCK if is_narrow else 1 << 30
        if flushes:
            return min(self._block() * VECTOR, most)
        if is_narrow:
            return max(2, min(most, hint(self.extents[v])))
        is_only = len(self.body.space) == 1 and v in self.body.domain.vars
        return SHARED_BLOCK if is_only and self._may_share() else 0

    def _flush_rows(self, v: Symbol) -> str | None:
        """The loop at whose steps partial sums flow on; a prime: inside the vector loop itself."""
        if not self._adds() or self.numerics.accumulation == "f32":
            return None
        most = self._block() * VECTOR
        inner = [x for x in self.body.reduce.vars if x is not v]
        length = self._length(self.extents[v])
        if length > most:
            return f"{v.name}'"
        for x in reversed(inner):
            longer = length * self._length(self.extents[x])
            if longer > most:
                return x.name
            length = longer
        return None

    def _columns(self, v: Symbol) -> Iterator[Step]:
        size = min(LANES, max(2, _rounded_up(hint(self.extents[v]))))
        outer = [x.name for x in self.body.domain.vars if x is not v]
        if not outer and self._may_share():
            size = min(size, max(LEAST_LANES, _rounded_up(-(-hint(self.extents[v]) // STRIPS))))
        yield Split(v.name, size)
        reduce = [x.name for x in self.body.reduce.vars]
        flush: str | None = None
        if self._adds() and self.numerics.accumulation != "f32":
            length = 1.0
            for x in reversed(self.body.reduce.vars):
                longer = length * self._length(self.extents[x])
                if longer > self._block():
                    if length == 1.0:
                        yield Split(x.name, self._block())
                        at = reduce.index(x.name)
                        reduce[at : at + 1] = [x.name, f"{x.name}'"]
                    flush = x.name
                    break
                length = longer
        yield from map(StageLoad, narrow_rows(self.body, self.program, self.accesses, v))
        yield Order((*outer, v.name, *reduce, f"{v.name}'"))
        if flush is not None:
            yield Flush(flush)
        yield Bind(f"{v.name}'", Binding.VECTOR)

    def _across(self, v: Symbol) -> Symbol | None:
        """A loop along which memory lies that vectors along `v` would touch with strides."""
        if len(self.stages.passes) > 1 or not self._one_walk():
            return None
        if v in self.body.domain.vars and len(self.body.reduce):
            return None  # lanes inside a reduction are columns
        for u in reversed(self.body.domain.vars):
            if u is not v and self._staged(v, u) and self._may_tile(u, v):
                return u
        return None

    def _one_walk(self) -> bool:
        loops = frozenset(self.body.reduce.vars)
        kept = any(s.kept for s in self.stages.steps)
        return not kept and all(p.loops == loops for p in self.stages.passes.values())

    def _may_tile(self, u: Symbol, v: Symbol) -> bool:
        if min(hint(self.extents[u]), hint(self.extents[v])) < TILE:
            return False
        return bool(may_be_vector(self.nest, self.program, u))

    def _staged(self, v: Symbol, u: Symbol) -> list[int]:
        """Loads that lie along `u` and would be strided along `v`."""
        written = {a.storage for a in self.accesses if a.mode}
        found = []
        for a in self.accesses:
            if a.mode or a.depth or a.is_indirect or a.storage in written:
                continue
            along, strided = coefficient(a.index, u), coefficient(a.index, v)
            if along is None or along.value is None or abs(along.value) != 1 or strided is None:
                continue
            if a.number is not None and (strided.value is None or abs(strided.value) >= TILE):
                found.append(a.number)
        return found

    def _tiled(self, v: Symbol, u: Symbol) -> Iterator[Step]:
        yield Split(u.name, self._tile_rows(v, u))
        yield Split(v.name, min(TILE_LENGTH, -(-hint(self.extents[v]) // TILE) * TILE))
        rest = [x for x in self.body.domain.vars if x is not u and x is not v]
        inner = [x for x in self.body.reduce.vars if x is not v]
        yield Order(
            (*[x.name for x in rest], u.name, *[x.name for x in inner], v.name,
             f"{u.name}'", f"{v.name}'")
        )  # fmt: skip
        for number in self._staged(v, u):
            yield StageLoad(number)
        yield Bind(f"{v.name}'", Binding.VECTOR)

    def _tile_rows(self, v: Symbol, u: Symbol) -> int:
        """Rows of a tile: more lines of each page that is visited, as long as they fit in a cache.

        Tiles that are not full are filled element by element, and threads want several.
        """
        each = len(self._staged(v, u)) * TILE_LENGTH * TILE_BYTES
        for rows in (4 * TILE, 2 * TILE):
            is_full = _divides(rows, self.extents[u])
            if (
                is_full
                and hint(self.extents[u]) >= FEWEST_TILES * rows
                and rows * each <= FIRST_CACHE
            ):
                return rows
        return TILE

    # -- sums and rows -------------------------------------------------------------------------
    def _strided(self, v: Symbol) -> list[int]:
        """Loads that touch a line of memory for each element of a row."""
        loads = [a for a in self.accesses if not a.mode and not a.depth]
        return [a.number or 0 for a in loads if self.costs.one(a, v) >= STRIDED]

    def _keeps(self, dear: set[int]) -> Iterator[Step]:
        """Rows of costly values, and of loads that are dear if several passes make them."""
        passes = [{s.number for s in p.needed} for p in self.stages.passes.values()]
        is_short = self.body.reduce.numel_hint <= LONGEST_ROW
        for s in self.stages.steps:
            again = s.op == "load" and s.number in dear and is_short
            if s.kept or (again and sum(s.number in one for one in passes) > 1):
                yield Keep(s.number)

    def _adds(self) -> bool:
        """Whether floats are added up or multiplied in parts."""
        kinds = {str(at.stmt.attr("kind")) for at in self.body.walk() if at.stmt.op == "reduce"}
        return bool(kinds - {"max", "min", "any", "all", "xor_sum", *POSITIONS})

    def _block(self) -> int:
        return self.numerics.block

    def _length(self, extent: Expr) -> float:
        """How many points a loop has at most."""
        return float("inf") if extent.value is None else max(extent.value, 1)


def _divides(size: int, extent: Expr) -> bool:
    """Whether a loop has so many points that all its blocks are full."""
    return extent.value is not None and extent.value % size == 0


def _rounded_up(n: int) -> int:
    """The next multiple of a vector."""
    return -(-n // VECTOR) * VECTOR
