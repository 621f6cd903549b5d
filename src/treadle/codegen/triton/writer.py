"""One nest as a Triton function: tiles for the loops bound to tiles, a program for the rest.

    x0 = tl.program_id(0) * 4 + tl.arange(0, 4)[:, None]        a tile of rows
    r0 = tl.arange(0, 512)[None, :]                             whole rows: loaded once, kept
    v0 = tl.load(p0 + (512*x0 + r0), m_x0, other=0.0)
    v1 = tl.sum(v0, 1, keep_dims=True)

Where a reduction's loop is walked in blocks, every pass is a `for`, and partial results have the
shape of a tile until the end of it. Masks stand only where sizes do not divide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from treadle.codegen.triton.exactness import exactness_of
from treadle.codegen.triton.forms import ATOMIC, why_unwritable
from treadle.codegen.triton.index import TritonIndex
from treadle.codegen.triton.ops import helpers_in
from treadle.codegen.triton.reduce import Reducer, reducer_for
from treadle.codegen.triton.rows import RowLoop
from treadle.codegen.triton.scans import scan_lines
from treadle.codegen.triton.types import STORED, converted, literal, loaded, stored
from treadle.core.errors import TreadleError
from treadle.index import Expr, Kind, Symbol
from treadle.ir.body import Literal, Stmt, number_of
from treadle.ir.loop_schedule import Axis, AxisPart, Binding, LoopPlan, plan_loops
from treadle.ir.ops import OPS, POINTWISE
from treadle.ir.program import Nest, Program
from treadle.ir.rewrite import values_in
from treadle.ir.spec_facts import facts_of
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import ValueType, infer_types
from treadle.kernel.choose_gpu import choose_gpu_steps
from treadle.kernel.stages import InnerPass, Nests, Step, first_pass, plan_nests

TWICE = frozenset({"welford_combine"})
"""Reductions that are written as two walks."""
INDENT = "    "
ALIGNED = 16
"""Bytes that every address is a multiple of."""


@dataclass
class TritonSource:
    """A function in Triton and how it is launched."""

    name: str
    text: str
    storages: tuple[str, ...]
    sizes: tuple[Symbol, ...]
    grid: tuple[tuple[Expr, int], ...]
    """(extent, block) of each loop that programs share out; their product is the grid."""
    warps: int = 4
    pipeline: int = 2
    helpers: frozenset[str] = frozenset()
    offsets: tuple[int, ...] = ()
    """Bytes from the start of each storage to the address that is handed over for it."""


@dataclass
class Lines:
    """Text under construction."""

    depth: int = 1
    text: list[str] = field(default_factory=list)

    def add(self, *lines: str) -> None:
        """Append lines at the present depth."""
        self.text.extend([INDENT * self.depth + line for line in lines])


class TritonWriter:
    """Writes one nest."""

    def __init__(self, program: Program, nest: Nest, name: str) -> None:
        self.program, self.nest, self.body, self.name = program, nest, nest.body, name
        self.plan: LoopPlan = plan_loops(nest.body, nest.schedule)
        self.types: list[ValueType] = infer_types(nest.body, program.by_name)
        self.exactness = exactness_of(nest.body, program)
        self.facts = facts_of(nest.body)
        self.extents = dict(nest.body.space.items())
        self.lines = Lines()
        self.values: dict[int, tuple[str, ...]] = {}
        self.along: dict[int, frozenset[Symbol]] = {}
        self.pointers: dict[str, str] = {}
        self.under: list[str] = []
        """Conditions of the masked regions around the present place."""
        self.under_along: frozenset[Symbol] = frozenset()
        """The loops along which they differ."""
        self.reducers: dict[int, Reducer] = {}
        self.later: list[tuple[str, str]] = []
        """Stores that are put off, each with its storage: behind one a compiler loads nothing, for
        all it knows is that they may meet. Rows keep theirs in place: registers are dear there."""
        self.is_wide = self._needs_64_bits()
        self.starts = self._starts()
        self.index = TritonIndex(self.facts, self._symbol)
        self.stages: Nests = plan_nests(
            nest.body, program.storage_of, frozenset(), in_any_order=True, twice=TWICE
        )

    # -- the whole ---------------------------------------------------------------------------
    def write(self) -> TritonSource:
        """The function."""
        if len(self.body.space) and not self.nest.schedule:
            _, verdict = choose_gpu_steps(self.nest, self.program)
            reason = verdict.facts.get("reason", "nobody gave it one")
            raise unwritable(self.nest, f"what has no loop schedule ({reason})")
        self._open_grid()
        walked = [a for a in self.plan.inner if a.reduces and a.binding is Binding.SERIAL]
        rows = [a for a in self.plan.outer if a.binding is Binding.SERIAL]
        if walked:
            if rows:
                raise unwritable(self.nest, "rows that follow each other and are walked in blocks")
            self._in_passes(walked)
        else:
            for a in self.plan.inner:
                if a.reduces:
                    self.bind_tile(a)
            if rows:
                RowLoop(self, rows).write()
            else:
                self.statements(self.stages.steps)
        storages = tuple(dict.fromkeys(self.program.storage_of(b) for b in self.pointers))
        text = "\n".join([*self._head(storages), *self.lines.text, ""])
        grid = tuple(
            [(self.extents[a.loop], max(a.size, 1)) for a in self.plan.axes if _is_grid(a)]
        )
        return TritonSource(
            self.name,
            text,
            storages,
            self.program.sizes,
            grid,
            self.plan.knob("warps", 4),
            self.plan.knob("pipeline", 2),
            frozenset(helpers_in(text)),
            tuple([self.starts[s] * self._width(s) for s in storages]),
        )

    def statements(self, steps: Sequence[Step]) -> None:
        """Statements that happen once for each tile."""
        for step in steps:
            self._statement(step.stmt, step.number, step)
        self._put_down()

    def _put_down(self) -> None:
        """Write the stores that were put off."""
        self.lines.add(*[line for _, line in self.later])
        self.later.clear()

    def _head(self, storages: Sequence[str]) -> list[str]:
        given = [f"a{k}" for k in range(len(storages))] + [
            f"n_{s.name}" for s in self.program.sizes
        ]
        origins = ", ".join(self.nest.origins) or "+".join(self.nest.runs)
        lines = ["@triton.jit", f"def {self.name}({', '.join(given)}):"]
        lines.append(f"{INDENT}# {_comment(origins)}")
        place = {s: k for k, s in enumerate(storages)}
        for buffer, pointer in self.pointers.items():
            kind = STORED[self.program.by_name[buffer].dtype]
            at = f"a{place[self.program.storage_of(buffer)]}"
            lines.append(
                f"{INDENT}{pointer} = tl.multiple_of({at}.to(tl.pointer_type({kind})), 16)"
            )
        return lines

    def _needs_64_bits(self) -> bool:
        for name in {n for n, _, _ in self.body.loads()} | {n for n, _, _, _ in self.body.stores()}:
            count = self.program.by_name[self.program.storage_of(name)].storage_numel.value
            if count is None or count >= 2**31:
                return True
        return False

    def _starts(self) -> dict[str, int]:
        """Elements of each storage that stand before all that is touched, a multiple of 16 bytes.

        They are left to the address, so that nests on other parts of a storage have the same text.
        """
        least: dict[str, int] = {}
        accesses = [(name, e) for name, e, _ in self.body.loads()]
        accesses += [(name, e) for name, e, _, _ in self.body.stores()]
        for name, e in accesses:
            storage = self.program.storage_of(name)
            least[storage] = min(least.get(storage, e.const), e.const)
        even = {s: max(ALIGNED // self._width(s), 1) for s in least}
        return {s: max(n, 0) // even[s] * even[s] for s, n in least.items()}

    def _width(self, storage: str) -> int:
        return max(self.program.by_name[storage].dtype.itemsize, 1)

    def address(self, buffer: str, e: Expr) -> str:
        """Where an element of a buffer is."""
        start = self.starts[self.program.storage_of(buffer)]
        return self.index.behind(self.pointer(buffer), e - start)

    # -- loops -------------------------------------------------------------------------------
    def _open_grid(self) -> None:
        grid = [a for a in self.plan.axes if _is_grid(a)]
        if grid:
            wide = ".to(tl.int64)" if self.is_wide else ""
            self.lines.add(f"pid = tl.program_id(0){wide}")
        rest = "pid"
        for k, a in enumerate(reversed(grid)):
            count = self._blocks(a)
            own = rest if k == len(grid) - 1 else f"{rest} % {count}"
            name = f"{a.loop.name}_b" if a.part is AxisPart.BLOCKS else a.loop.name
            scale = f" * {a.size}" if a.part is AxisPart.BLOCKS else ""
            self.lines.add(f"{name} = ({own}){scale}")
            if k < len(grid) - 1:
                self.lines.add(f"pid_{k} = {rest} // {count}")
                rest = f"pid_{k}"
        in_turn = {a.loop for a in self.plan.outer if a.binding is Binding.SERIAL}
        for a in self.plan.axes:
            if a.binding is Binding.TILE and not a.reduces and a.loop not in in_turn:
                self.bind_tile(a)

    def _blocks(self, a: Axis) -> str:
        extent = self.extents[a.loop]
        if extent.value is not None:
            return str(-(-extent.value // max(a.size, 1)))
        text = self.index.write(extent)
        return text if a.size <= 1 else f"tl.cdiv({text}, {a.size})"

    def bind_tile(self, a: Axis) -> None:
        """Name the points of a tile along a loop, and the mask of those that exist."""
        name, size = a.loop.name, self.tile_size(a)
        spread = f"tl.arange(0, {size}){self._spread(a)}"
        start = f"{name}_b + " if a.part is AxisPart.WITHIN else ""
        self.lines.add(f"{name} = {start}{spread}")
        if self.mask_of(a.loop) is not None:
            self.lines.add(f"m_{name} = {name} < {self.index.write(self.extents[a.loop])}")

    def tile_size(self, a: Axis) -> int:
        """Points of a tile: a power of two."""
        if a.part is AxisPart.WITHIN:
            return a.size
        extent = self.extents[a.loop].value
        assert extent is not None, "a whole loop in a tile has a known extent"
        return power_of_two(extent)

    def _spread(self, a: Axis) -> str:
        tiles = self.plan.tiles
        if len(tiles) == 1:
            return ""
        places = [":" if t is a else "None" for t in tiles]
        return f"[{', '.join(places)}]"

    def mask_of(self, loop: Symbol) -> str | None:
        """The mask of a loop's tile; None if all its points exist."""
        for a in self.plan.tiles:
            if a.loop is loop:
                extent = self.extents[loop].value
                whole = extent is not None and extent > 0 and extent % self.tile_size(a) == 0
                return None if whole else f"m_{loop.name}"
        return None

    def mask(
        self, loops: Sequence[Symbol] | frozenset[Symbol], *, is_anywhere: bool = False
    ) -> str:
        """The mask of points along some loops and under some conditions, or `None`.

        With `is_anywhere` conditions are no matter, only whether points exist.
        """
        found = [m for a in self.plan.tiles if a.loop in loops and (m := self.mask_of(a.loop))]
        parts = [*dict.fromkeys(found), *([] if is_anywhere else self.under)]
        return " & ".join(parts) if parts else "None"

    def position_text(self) -> str:
        """The place in the row of the points of a tile."""
        total = ""
        for v, n in self.body.reduce.items():
            total = f"({total} * {self.index.write(n)} + {v.name})" if total else v.name
        return f"({total}).to(tl.int32)"

    @cached_property
    def made(self) -> dict[int, Stmt]:
        """The statements of the top level by the number of their value."""
        return {s.number: s.stmt for s in self.stages.steps if OPS[s.op].produces}

    @property
    def longest_block(self) -> int:
        """How many terms may be added up in f32 one after the other."""
        numerics = self.program.numerics
        return numerics.block if numerics.accumulation == "blocked" else 0

    def terms_per_point(self) -> int:
        """How many terms each point of a tile adds up; more than any block if nobody knows."""
        count = self.body.reduce.numel.value
        points = 1
        for a in self.plan.tiles:
            points *= self.tile_size(a) if a.reduces else 1
        return 1 << 62 if count is None else -(-count // points)

    def count_text(self) -> str:
        """How many points a reduction goes over, as an f32."""
        known = self.body.reduce.numel.value
        text = str(known) if known is not None else self.index.write(self.body.reduce.numel)
        return (
            f"tl.full([], {float(known)}, tl.float32)"
            if known is not None
            else f"({text}).to(tl.float32)"
        )

    # -- passes ------------------------------------------------------------------------------
    def _in_passes(self, walked: Sequence[Axis]) -> None:
        for time in self.stages.times:
            for step in self.stages.singles.get(time, ()):
                self._statement(step.stmt, step.number, step)
            if time in self.stages.passes:
                self._pass(self.stages.passes[time], walked)

    def _pass(self, one: InnerPass, walked: Sequence[Axis]) -> None:
        acting = [s for s in one.actions if s.op == "reduce"]
        for step in acting:
            reducer = self._reducer(step)
            self.lines.add(*reducer.before(which=_which(step, one)))
        depth = self.lines.depth
        for a in walked:
            name, extent = a.loop.name, self.index.write(self.extents[a.loop])
            if a.part is AxisPart.BLOCKS:
                stages = self.plan.knob("pipeline", 2)
                self.lines.add(
                    f"for {name}_b in tl.range(0, {extent}, {a.size}, num_stages={stages}):"
                )
            else:
                self.lines.add(f"for {name}_i in range(0, {extent}):")
            self.lines.depth += 1
            if a.part is not AxisPart.BLOCKS:
                self.lines.add(f"{name} = tl.full([], 0, tl.int32) + {name}_i")
        for a in self.plan.inner:
            if a.reduces and a.binding is Binding.TILE:
                self.bind_tile(a)
        for step in one.needed:
            if step.op == "reduce":
                reducer = self.reducers[step.number]
                self.lines.add(*reducer.at_point(which=_which(step, one)))
            else:
                self._statement(step.stmt, step.number, step)
        self.lines.depth = depth
        for step in acting:
            reducer = self.reducers[step.number]
            self.lines.add(*reducer.after(which=_which(step, one)))
            if _which(step, one) == reducer.passes - 1:
                self.define(step.number, reducer.results(), self._outside(step.stmt))

    def _reducer(self, step: Step) -> Reducer:
        if step.number not in self.reducers:
            self.reducers[step.number] = reducer_for(self, step.stmt, step.number)
        return self.reducers[step.number]

    def _outside(self, stmt: Stmt) -> frozenset[Symbol]:
        """The loops along which a reduction's result differs."""
        found = frozenset[Symbol]().union(*[self.along[a] for a in stmt.args])
        return found - frozenset(self.body.reduce.vars)

    # -- values ------------------------------------------------------------------------------
    def define(self, number: int, expressions: Sequence[str], along: frozenset[Symbol]) -> None:
        """Give a value its name (several for several results)."""
        types = self.types[number]
        if isinstance(types, tuple):
            names = tuple([f"v{number}_{k}" for k in range(len(types))])
        else:
            names = (f"v{number}",)
        for name, text in zip(names, expressions, strict=True):
            self.lines.add(f"{name} = {text}")
        self.values[number], self.along[number] = names, along

    def name_of(self, number: int) -> str:
        """The name of a single value."""
        (name,) = self.values[number]
        return name

    def type_of(self, number: int) -> DType:
        """The element type of a single value."""
        found = self.types[number]
        assert isinstance(found, DType), f"%{number} has several results"
        return found

    def _symbol(self, s: Symbol) -> str:
        if s.kind is Kind.INDIRECT:
            return self.name_of(number_of(s))
        return f"n_{s.name}" if s.kind is Kind.SIZE else s.name

    def loops_of(self, e: Expr) -> frozenset[Symbol]:
        """The loops along which an index differs."""
        found = {s for s in e.free if s.kind is Kind.LOOP}
        for s in e.free:
            if s.kind is Kind.INDIRECT:
                found |= self.along[number_of(s)]
        return frozenset(found)

    def pointer(self, buffer: str) -> str:
        """The typed pointer to the storage behind a buffer."""
        return self.pointers.setdefault(buffer, f"p{len(self.pointers)}")

    # -- statements --------------------------------------------------------------------------
    def _statement(self, stmt: Stmt, number: int, step: Step | None = None) -> None:
        given = [t for a in stmt.args if isinstance(t := self.types[a], DType)]
        refused = why_unwritable(stmt, given, self.program.by_name, self.body.reduce)
        if refused is not None:
            raise TreadleError(f"nest '{self.nest.name}': {refused}", code="GEN004")
        if stmt.op in POINTWISE:
            self._pointwise(stmt, number)
        elif stmt.op == "reduce":
            assert step is not None, "a reduction stands at the top level"
            reducer = self._reducer(step)
            self.lines.add(*reducer.at_once())
            self.define(number, reducer.results(), self._outside(stmt))
        else:
            STATEMENTS[stmt.op](self, stmt, number)

    def _pointwise(self, stmt: Stmt, number: int) -> None:
        types = [self.type_of(a) for a in stmt.args]
        values = [self.name_of(a) for a in stmt.args]
        along = frozenset[Symbol]().union(*[self.along[a] for a in stmt.args])
        text = self.exactness.pointwise(number, stmt.op, values, types, self.types[number])
        self.define(number, [text], along)

    def constant(self, stmt: Stmt, number: int) -> None:
        """A literal."""
        value = stmt.attr("value")
        assert isinstance(value, Literal), "a constant has a literal"
        self.define(number, [literal(value.value, self.type_of(number))], frozenset())

    def cast(self, stmt: Stmt, number: int) -> None:
        """A value of another type."""
        (a,) = stmt.args
        text = converted(self.name_of(a), self.type_of(a), self.type_of(number))
        self.define(number, [text], self.along[a])

    def bitcast(self, stmt: Stmt, number: int) -> None:
        """The bits of a value as another type."""
        (a,) = stmt.args
        given, to = self.type_of(a), self.type_of(number)
        bits = stored(given, self.name_of(a))
        text = loaded(to, f"({bits}).to({STORED[to]}, bitcast=True)")
        self.define(number, [text], self.along[a])

    def scan(self, stmt: Stmt, number: int) -> None:
        """A running combination along a row that is one tile."""
        lines, results = scan_lines(self, stmt, number)
        self.lines.add(*lines)
        self.define(number, results, frozenset(a.loop for a in self.plan.tiles))

    def place(self, stmt: Stmt, number: int) -> None:
        """An index as a value."""
        e = stmt.attr("expr")
        assert isinstance(e, Expr), "an index has an expression"
        wide = DType.I64
        text = f"({self.index.write(e)})"
        if not e.free:
            text = f"tl.full([], {text}, tl.int64)"
        else:
            text = f"{text}.to(tl.int64)"
        self.define(number, [converted(text, wide, self.type_of(number))], self.loops_of(e))

    def indirect(self, stmt: Stmt, number: int) -> None:
        """A value that indices may use, checked where the program asks for it."""
        (a,) = stmt.args
        size = stmt.attr("size")
        assert isinstance(size, Expr), "an indirect value has a size"
        given = converted(self.name_of(a), self.type_of(a), DType.I64)
        limit = self.index.write(size)
        text = f"tl.where({given} < 0, {given} + {limit}, {given})" if stmt.attr("wrap") else given
        self.define(number, [text], self.along[a])
        if stmt.attr("check"):
            v, mask = f"v{number}", self.mask(self.along[a])
            fine = f"(({v} >= 0) & ({v} < {limit}))"
            whole = fine if mask == "None" else f"{fine} | ~({mask})"
            self.lines.add(f'tl.device_assert({whole}, "index out of bounds")')

    def load(self, stmt: Stmt, number: int) -> None:
        """An element of a buffer."""
        buffer, e = self._buffer(stmt), stmt.attr("index")
        assert isinstance(e, Expr), "a load has an index"
        if any(storage == self.program.storage_of(buffer.name) for storage, _ in self.later):
            self._put_down()
        loops = self.loops_of(e)
        is_for_all = bool(self.under_along - loops) and self._is_inside(buffer, e)
        mask = self.mask(loops, is_anywhere=is_for_all)
        nothing = "0.0" if buffer.dtype.is_float else "0"
        other = f", other={nothing}" if mask != "None" else ""
        at = self.address(buffer.name, e)
        if self.under_along - loops and not is_for_all:
            # The condition has more points than there are addresses.
            loops = loops | self.under_along
            at, mask = self._in_shape(at, loops), self.mask(loops)
        text = f"tl.load({at}, {mask}{other})" if mask != "None" else f"tl.load({at})"
        self.define(number, [loaded(buffer.dtype, text)], loops)

    def _is_inside(self, buffer: Buffer, e: Expr) -> bool:
        """Whether an element exists whatever conditions say: one load then serves all points."""
        is_known = all(s.kind is not Kind.INDIRECT for s in e.free)
        return is_known and self.facts.within(e, buffer.storage_numel)

    def store(self, stmt: Stmt, number: int) -> None:
        """An element written, or combined with what is there."""
        buffer, e = self._buffer(stmt), stmt.attr("index")
        assert isinstance(e, Expr), "a store has an index"
        (a,), mode = stmt.args, str(stmt.attr("mode"))
        loops = self.loops_of(e) | self.along[a]
        value = converted(self.name_of(a), self.type_of(a), buffer.dtype)
        value = stored(buffer.dtype, value)
        at = self.address(buffer.name, e)
        mask = self.mask(loops)
        if mode == "plain":
            if loops - self.loops_of(e):
                at = self._in_shape(at, loops)
            line = f"tl.store({at}, {value}, {mask})"
            if len(self.body.reduce):
                self.lines.add(line)
            else:
                self.later.append((self.program.storage_of(buffer.name), line))
        else:
            self._put_down()
            # Every point of the tile adds for itself, also where all add the same to one place.
            loops = loops | {a.loop for a in self.plan.tiles if not a.reduces}
            at, value = self._in_shape(at, loops), self._in_shape(value, loops)
            mask = self.mask(loops)
            self.lines.add(f'{ATOMIC[mode]}({at}, {value}, {mask}, sem="relaxed")')

    def _in_shape(self, text: str, loops: frozenset[Symbol]) -> str:
        """A value or address with all points along some loops."""
        if not any(a.loop in loops for a in self.plan.tiles):
            return text
        shape = [self.tile_size(a) if a.loop in loops else 1 for a in self.plan.tiles]
        return f"tl.broadcast_to({text}, [{', '.join(map(str, shape))}])"

    def masked(self, stmt: Stmt, number: int) -> None:
        """A region whose loads happen only where a condition holds."""
        (a,), other = stmt.args, stmt.attr("other")
        assert isinstance(other, Literal), "a masked region has another value"
        t = self.type_of(number)
        self.under.append(self.name_of(a))
        around, self.under_along = self.under_along, self.under_along | self.along[a]
        inner, yielded = number + 1, ""
        along = self.along[a]
        for one in stmt.region:
            if one.op == "yield":
                (y,) = one.args
                yielded = converted(self.name_of(y), self.type_of(y), t)
                along |= self.along[y]
            else:
                self._statement(one, inner)
                inner += values_in(one) if one.region else OPS[one.op].produces
        self.under.pop()
        self.under_along = around
        text = f"tl.where({self.name_of(a)}, {yielded}, {literal(other.value, t)})"
        self.define(number, [text], along)

    def get(self, stmt: Stmt, number: int) -> None:
        """One of several results."""
        position = stmt.attr("position")
        assert isinstance(position, int), "a result has a place"
        self.define(number, [self.values[stmt.args[0]][position]], self.along[stmt.args[0]])

    def _buffer(self, stmt: Stmt) -> Buffer:
        return self.program.by_name[str(stmt.attr("buffer"))]


def unwritable(nest: Nest, what: str) -> TreadleError:
    """What is raised for a nest that has no form in Triton."""
    return TreadleError(f"nest '{nest.name}': {what} has no form in Triton", code="GEN004")


def power_of_two(n: int) -> int:
    """The least power of two that is not below `n`."""
    return 1 << max(n - 1, 0).bit_length()


def _is_grid(a: Axis) -> bool:
    return a.binding is Binding.GRID


def _which(step: Step, one: InnerPass) -> int:
    return 0 if one.time == first_pass(step) else 1


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


STATEMENTS = {
    "constant": TritonWriter.constant,
    "bitcast": TritonWriter.bitcast,
    "cast": TritonWriter.cast,
    "scan": TritonWriter.scan,
    "index": TritonWriter.place,
    "indirect": TritonWriter.indirect,
    "load": TritonWriter.load,
    "store": TritonWriter.store,
    "masked": TritonWriter.masked,
    "get": TritonWriter.get,
}
"""How each statement that is neither pointwise nor a reduction is written."""
