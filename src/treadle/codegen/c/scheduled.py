"""The body of a nest in C as its loop schedule says: vectors, blocks, lanes, tiles.

    for (int64_t i0_b = 0; i0_b < n0; i0_b += 16) {            outer loops, shared by all passes
        double a5[16]; ...                                     a place for each lane
        for (int64_t r0_b = 0; r0_b < n1; r0_b += 64) {        a pass
            ...                                                tiles are filled
            for (int64_t i0_l = 0; i0_l < 16; ++i0_l) {        lanes
                float a5_p = 0;                                partial sums
                #pragma omp simd reduction(+: a5_p)
                for (int64_t r0_l = 0; r0_l < 64; ++r0_l) ...
                a5[i0_l] += a5_p;
            }
        }
    }

All of it was decided before: see `ir.loop_schedule` for the steps, `kernel.choose_cpu` for who
chose them. Where partial sums live:

    lanes innermost              one f32 per lane; flows into f64 at each step of the flush loop
    reduction inside of lanes    one f32 inside the lane, flows into the lane's f64
    no lanes                     one f32 per step of the flush loop, flows into f64
    nothing to flow into         one f32
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from treadle.codegen.c.block import CodeBlock
from treadle.codegen.c.body import BodyWriter, Frame
from treadle.codegen.c.fast_ops import fast_call, fast_pointwise
from treadle.codegen.c.gates import GATED, Gate, is_harmless
from treadle.codegen.c.held_lanes import hold_lanes
from treadle.codegen.c.narrow_values import numbers_within
from treadle.codegen.c.partial import PARTIAL, Names, PartialReduction
from treadle.codegen.c.pass_writer import Acting, PassWriter, ProductPassWriter
from treadle.codegen.c.products import ProductTiles
from treadle.codegen.c.reduce import Request
from treadle.codegen.c.row_tiles import RowTiles
from treadle.codegen.c.scan import carried_type, scan_step
from treadle.codegen.c.streams import STREAM, streamed_bytes
from treadle.codegen.c.tiles import Tiles
from treadle.codegen.c.types import ALIGNED, STORED, converted, held
from treadle.codegen.c.whole_scans import write_scan
from treadle.codegen.c.whole_vectors import (
    GOES_PAST,
    WHOLE,
    VectorLoop,
    clauses,
    types_within,
    write_whole,
)
from treadle.index import Expr, Symbol, as_expr
from treadle.ir.body import COMBINING, Stmt
from treadle.ir.loop_schedule import Axis, AxisPart, Binding, LoopPlan, plan_loops
from treadle.ir.ops import OPS
from treadle.ir.products import product_of
from treadle.ir.program import Nest
from treadle.ir.spec_facts import storage_limit
from treadle.ir.types import DType
from treadle.ir.typing import ValueType
from treadle.kernel.stages import (
    InnerPass,
    Nests,
    Step,
    first_pass,
    loops_of_steps,
    plan_nests,
)
from treadle.kernel.vector_rules import has_scan

CHOSEN = frozenset({DType.F32, DType.F64})
"""Types of which one value of two is taken by its bits."""
HALVES, ON_VECTORS = re.compile(r"\b(tr_(?:decode|encode|round)_f16)\("), r"\1_on_vectors("
"""Conversions of f16, and their names where every point of a loop on vectors makes them."""
ROUNDED = re.compile(r"const float (v\d+) = tr_round_f16_on_vectors\((v\d+)\);")
ENCODED = re.compile(r"\b(tr_encode_f16_on_vectors)\(\((v\d+)\)\)")
LONGEST_ON_STACK = 1 << 14
"""Elements of a row that lies on the stack."""


class ScheduledWriter(BodyWriter):
    """Writes one body as its schedule says."""

    def __init__(self, nest: Nest, operation: str, frame: Frame, top: CodeBlock) -> None:
        self.plan: LoopPlan = plan_loops(nest.body, nest.schedule)
        self._partials: dict[int, PartialReduction] = {}
        self._pending: list[tuple[Sequence[Acting], Names]] = []
        self._scope: set[int | str] = set()
        self._laned: set[str] = set()
        self._lane_block: CodeBlock | None = None
        self._vector_block: CodeBlock | None = None
        self._on_vectors: list[VectorLoop] = []
        """All loops on vectors; their lines are carried out at every point."""
        self._one_by_one: list[VectorLoop] = []
        """The other loops of a body that scans."""
        super().__init__(operation, nest.body, frame, top)
        self._scans = has_scan(nest.body) and self.program.numerics.reassociation
        """Whether values are combined from one point to the next, in any order of brackets."""
        self.tiles = Tiles(self)
        self.row_tiles = RowTiles(self)
        self.product = self._product_tiles()
        frame.helpers.add("fast")

    def _product_tiles(self) -> ProductTiles | None:
        """The tiles of a product, if that is what the schedule is for."""
        if not any(a.binding is Binding.UNROLL for a in self.plan.axes):
            return None
        product = product_of(self.body)
        assert product is not None, "KER007: only products have tiles"
        return ProductTiles(self, product)

    def plan_stages(self) -> Nests:
        """When each statement runs; what is kept was decided by the schedule."""
        storage_of = self.program.storage_of
        found = plan_nests(self.body, storage_of, self.plan.kept, in_any_order=True)
        if self.plan.lanes:
            _delay(found)
        return found

    def shadow_type(self) -> DType:
        """In what narrow floats are summed up in memory: f32 where sums may be made in it."""
        exact = self.program.numerics.accumulation == "exact"
        return DType.F64 if exact else DType.F32

    def pointwise(
        self, op: str, values: Sequence[str], types: Sequence[DType], result: ValueType
    ) -> tuple[str, ...]:
        """C expressions for the results of an operation, as exact as the program asks for."""
        helpers = self.frame.helpers if self.is_on_vectors else None
        if op == "where" and helpers is not None and result in CHOSEN and self._calls_here():
            return (self._chosen(values, types, result),)
        return fast_pointwise(op, values, types, result, self.program.numerics, helpers)

    def _calls_here(self) -> bool:
        """Whether the loop that is being written calls functions on vectors."""
        found = [p for p in self.loops.innermost.parts if isinstance(p, str)]
        return any("tr_vector_" in p or HALVES.search(p) for p in found)

    def _chosen(self, values: Sequence[str], types: Sequence[DType], to: ValueType) -> str:
        """One of two values by its bits.

        A compiler that sees a branch moves a call into it that only one side needs, and then
        cannot run the loop on vectors any more.
        """
        assert isinstance(to, DType), "one of two values is one value"
        one, other = (converted(v, t, to) for v, t in zip(values[1:], types[1:], strict=True))
        return f"tr_chosen_{to}({values[0]}, {one}, {other})"

    @property
    def is_on_vectors(self) -> bool:
        """Whether what is written now is done at every point of a loop that runs on vectors."""
        return self._vector_block is not None and self.loops.innermost is self._vector_block

    # -- masks -----------------------------------------------------------------------------
    def needs_no_branch(self, stmt: Stmt, dtype: ValueType) -> bool:
        """Whether what a mask guards in a loop on vectors can be done everywhere, for nothing."""
        axes = [a.loop for a in self.plan.axes if a.binding is Binding.VECTOR]
        if not self.is_on_vectors or len(axes) != 1 or dtype not in GATED or self.gate:
            return False
        return is_harmless(self, stmt, None if self._differs(stmt, axes[0]) else axes[0])

    def _differs(self, stmt: Stmt, axis: Symbol) -> bool:
        """Whether a mask is another one from one point of a loop to the next."""
        varies = {s.number: along for s, along in zip(self.nests.steps, self.along, strict=True)}
        (mask,) = stmt.args
        return mask not in varies or axis in varies[mask]

    def gated(self, stmt: Stmt, number: int) -> str:
        """Write what is under a mask without a branch; gives the name of what it yields."""
        (axis,) = (a.loop for a in self.plan.axes if a.binding is Binding.VECTOR)
        if not self._differs(stmt, axis):
            self.gate = Gate(self.name_of(stmt.args[0]), axis)
        (yielded,) = self.block(stmt.region, number + 1, self.loops.innermost)
        self.gate = None
        return yielded

    # -- the loops -------------------------------------------------------------------------
    def write(self) -> None:
        """Write the whole body."""
        self.begin()
        self._open_outer()
        self.home = self.loops.innermost
        for time in self.nests.times:
            singles = self.nests.singles.get(time, ())
            if singles:
                self._singles(singles)
            if time in self.nests.passes:
                self._pass(self.nests.passes[time])
        self._finish_pending()
        self._write_whole()
        self.top.add(*self.after)

    def _write_whole(self) -> None:
        """Write the loops on vectors on whole ones where that is known how; the others as well."""
        types, numbers = types_within(self.top), numbers_within(self.top)
        for name, pointer in self.frame.buffers.items():
            types[pointer] = STORED[self.program.by_name[name].dtype]
        streamed = self._streamed() if self._on_vectors else frozenset()
        for loop in self._on_vectors:
            if hold_lanes(loop, types) or write_whole(loop, types, numbers, streamed):
                self.frame.helpers.add(WHOLE)
        for loop in self._one_by_one:
            if write_scan(loop, types, numbers):
                self.frame.helpers.add(WHOLE)
        self._convert_halves()

    def _streamed(self) -> frozenset[str]:
        """Pointers to what is stored past the caches if the nest touches more than these hold."""
        if self.plan.vector is None or self.product is not None:
            return frozenset()
        total, buffers = streamed_bytes(self.body, self.program, self.plan.vector.loop)
        if not buffers:
            return frozenset()
        self.frame.helpers.add(STREAM)
        self.setup.add(f"const int {GOES_PAST} = tr_goes_past({total});")
        return frozenset(self.frame.pointer(name) for name in buffers)

    def _convert_halves(self) -> None:
        """Let the machine's own instructions convert f16, where loops run on vectors."""
        for block in [loop.block for loop in self._on_vectors]:
            found = [x for x in (*block.head, *block.parts) if isinstance(x, str)]
            if not any(map(HALVES.search, found)):
                continue
            self.frame.helpers.add("halves")
            block.head = [HALVES.sub(ON_VECTORS, line) for line in block.head]
            parts = [HALVES.sub(ON_VECTORS, x) if isinstance(x, str) else x for x in block.parts]
            block.parts = _rounded_once(parts)

    def _open_outer(self) -> None:
        """Open the outer loops; what does not vary along the rest of them comes before it."""
        self.along = loops_of_steps(self.nests.steps)
        first = self.nests.singles.get(0, ())
        self._done: set[int] = set()
        self._written: set[int] = set()
        for k, a in enumerate(self.plan.outer):
            self.emit_fixed(first, self.plan.outer[k:], only_before=True)
            if self.product is not None:
                self.product.pack(self.plan.outer[k:])
            if k == len(self.plan.outer) - 1:
                self.row_tiles.fill(self.nests.steps)
            self.open_axis(a)

    def emit_fixed(
        self, steps: Sequence[Step], closed: Sequence[Axis], *, only_before: bool = False
    ) -> None:
        """Write the pure statements that do not vary along loops which are still to be opened.

        `only_before` says that there are others, inside of which nothing may be made yet.
        """
        later = {a.loop for a in (*closed, *(self.plan.inner if only_before else ()))}
        for step in steps:
            if step.position in self._done or self._is_checked(step):
                continue
            if not is_pure(step) and not (step.op == "indirect" and self._are_walked(later)):
                continue
            if later.isdisjoint(self.along[step.position]) and all(
                self._is_made(u) for u in step.uses
            ):
                self._done.add(step.position)
                self._unkept(step)

    def _are_walked(self, loops: set[Symbol]) -> bool:
        """Whether each of the loops has a point: where one is empty, nothing may be checked."""
        extents = dict(self.body.space.items())
        return all(self.facts.less(as_expr(0), extents[v]) for v in loops)

    def _is_checked(self, step: Step) -> bool:
        """Whether it is a load that may stop: where a loop is empty, nothing may be checked."""
        if step.op != "load":
            return False
        e, buffer = step.stmt.attr("index"), self.program.by_name[str(step.stmt.attr("buffer"))]
        assert isinstance(e, Expr), "a load has an index"
        return not self.facts.within(e, storage_limit(buffer, self.program))

    def _is_made(self, position: int) -> bool:
        """Whether a value has its name where no lane is open."""
        return position in self._done or (not self.plan.lanes and position in self._written)

    def open_axis(self, a: Axis, reductions: Mapping[str, str] | None = None) -> CodeBlock:
        """Open a loop inside the innermost one; on vectors it may combine states by operators."""
        reductions = reductions or {}
        name, extent = self._loop_names[a.loop], self._extents[a.loop]
        if a.binding is Binding.VECTOR:
            self.loops.innermost.add(f"#pragma omp simd{clauses(reductions)}")
        in_parts = a.binding is Binding.THREADS
        if a.part is AxisPart.WHOLE:
            low, high = ("first", "last") if in_parts else ("0", extent)
            opening = f"for (int64_t {name} = {low}; {name} < {high}; ++{name})"
            self.loops.open(opening, a.loop, name)
            return self._opened(a, reductions)
        if a.part is AxisPart.BLOCKS:
            start = f"{name}_b"
            low = f"first * {a.size}" if in_parts else "0"
            high = f"tr_min(last * {a.size}, {extent})" if in_parts else extent
            block = self.loops.open(
                f"for (int64_t {start} = {low}; {start} < {high}; {start} += {a.size})"
            )
            if not self.divides(a):
                block.head.append(f"const int64_t {name}_c = tr_min({a.size}, {extent} - {start});")
            return block
        lane = f"{name}_l"
        count = str(a.size) if self.divides(a) else f"{name}_c"
        opening = f"for (int64_t {lane} = 0; {lane} < {count}; ++{lane})"
        block = self.loops.open(opening, a.loop, name)
        block.head.append(f"const int64_t {name} = {name}_b + {lane};")
        if a.binding is not Binding.VECTOR:
            self.tiles.ask_ahead(a)
        return self._opened(a, reductions)

    def _opened(self, a: Axis, reductions: Mapping[str, str]) -> CodeBlock:
        block = self.loops.innermost
        self._vector_block = block if a.binding is Binding.VECTOR else None
        if a.binding is Binding.VECTOR or self._scans:
            whole = dict(self.body.space.items())[a.loop].value
            extent = whole if a.part is AxisPart.WHOLE else a.size if self.divides(a) else None
            *_, around, parent, _ = (None, *self.loops.blocks)
            assert parent is not None, "a loop stands in a block"
            found = self._on_vectors if a.binding is Binding.VECTOR else self._one_by_one
            found.append(VectorLoop(parent, block, reductions, extent, around))
        return block

    def divides(self, a: Axis) -> bool:
        """Whether every block is full."""
        extent = dict(self.body.space.items())[a.loop].value
        return extent is not None and extent % a.size == 0

    def lane(self) -> str:
        """The place of the present point among the lanes."""
        total = ""
        for a in self.plan.lanes:
            own = f"{self._loop_names[a.loop]}_l"
            total = f"({total} * {a.size} + {own})" if total else own
        return total

    @property
    def lane_count(self) -> int:
        """How many lanes there are."""
        count = 1
        for a in self.plan.lanes:
            count *= a.size
        return count

    # -- single statements -------------------------------------------------------------------
    def _singles(self, steps: Sequence[Step]) -> None:
        steps = [s for s in steps if s.position not in self._done]
        if self.plan.lanes and not self._pending:
            self.emit_fixed(steps, self.plan.lanes)
            steps = [s for s in steps if s.position not in self._done]
        if not steps:
            return
        self.tiles.fill(steps)
        self.tiles.widen(steps)
        self._open_lanes()
        self._finish_here()
        for step in steps:
            self._unkept(step)
            self._written.add(step.position)
        self._close_lanes()
        self.tiles.drain()

    def _open_lanes(self) -> None:
        self._scope = set()
        for a in self.plan.lanes:
            self._lane_block = self.open_axis(a)

    def _close_lanes(self) -> None:
        self.loops.pop(len(self.plan.lanes))
        self._lane_block = None

    # -- results of reductions ---------------------------------------------------------------
    def finish_later(self, acting: Sequence[Acting], names: Names) -> None:
        """Name what a pass gave as soon as the lanes are walked again."""
        self._pending.append((acting, names))
        if not self.plan.lanes:
            self._finish_here()

    def _finish_here(self) -> None:
        for acting, names in self._pending:
            for one in acting:
                self.finish(one, names)
        self._pending = []

    def _finish_pending(self) -> None:
        """Walk the lanes once more if a pass gave something that was not named yet."""
        if self._pending:
            self._open_lanes()
            self._finish_here()
            self._close_lanes()

    # -- values that live longer than a stage ------------------------------------------------
    def name(self, number: int, names: tuple[str, ...]) -> None:
        """Note the C names of a value, and give it a place for each lane if others need it."""
        super().name(number, names)
        self._scope.add(number)
        if self._lane_block is not None and number in self._crossing():
            types = self.types[number]
            each = types if isinstance(types, tuple) else (types,)
            for name, t in zip(names, each, strict=True):
                assert isinstance(t, DType), f"%{number} has element types"
                self.keep_lane(name, held(t), name)

    def keep_lane(self, name: str, ctype: str, value: str) -> None:
        """Write a value into the place that each lane has for it."""
        if name not in self._laned:
            self._laned.add(name)
            self.home.head.append(f"{ctype} {name}_s[{self.lane_count}] {ALIGNED};")
        self.loops.innermost.add(f"{name}_s[{self.lane()}] = {value};")

    def _crossing(self) -> set[int]:
        """Values that are used in another stage than the one that makes them."""
        if not hasattr(self, "_crossed"):
            steps = self.nests.steps
            self._crossed = {
                steps[u].number
                for s in steps
                for u in s.uses
                if not steps[u].varies
                if steps[u].op == "reduce" or s.varies or steps[u].time != s.time
            }
        return self._crossed

    def name_of(self, number: int) -> str:
        """The C name of a single value, brought here from its lane if another stage made it."""
        name = super().name_of(number)
        self._bring(number, name, held(self.type_of(number)))
        return name

    def names_of(self, number: int) -> tuple[str, ...]:
        """The C names of a value with several results, brought here likewise."""
        types = self.types[number]
        assert isinstance(types, tuple), f"%{number} has several results"
        if number not in self._scope:
            for name, t in zip(self.values[number], types, strict=True):
                self._bring(name, name, held(t))
        return self.values[number]

    def _bring(self, key: int | str, name: str, ctype: str) -> None:
        block = self._lane_block
        if block is None or key in self._scope or name not in self._laned:
            return
        self._scope.add(key)
        block.head.append(f"const {ctype} {name} = {name}_s[{self.lane()}];")

    # -- passes ------------------------------------------------------------------------------
    def _pass(self, one: InnerPass) -> None:
        self._finish_pending()
        inner = [a for a in self.plan.inner if not a.reduces or a.loop in one.loops]
        acting = [self._acting(s, one) for s in one.actions if s.op == "reduce"]
        if self.product is not None:
            ProductPassWriter(self, one, inner, acting).write_tile(self.product)
        else:
            PassWriter(self, one, inner, acting).write()

    def _acting(self, step: Step, one: InnerPass) -> Acting:
        found = self._partials.get(step.number)
        if found is None:
            stmt, result = step.stmt, self.types[step.number]
            to = result[0] if isinstance(result, tuple) else result
            assert to is not None, "a reduction has a type"
            values = [f"v{a}" for a in stmt.args]
            types = [self.type_of(a) for a in stmt.args]
            length = self.row_length()
            kind = str(stmt.attr("kind"))
            calls = self.plan.vector is not None and kind == "online_softmax"
            exp = fast_call("exp", self.frame.helpers if calls else None)
            name, count = f"a{step.number}", self.body.reduce.numel.value
            is_short = count is not None and count < 1 << 31
            request = Request(values, types, to, name, self.position(), length, exp, is_short)
            found = self._partials[step.number] = PARTIAL[kind](request)
        which = 0 if one.time == first_pass(step) else 1
        return Acting(step, found.walks[which], which == len(found.walks) - 1)

    def at_point(self, step: Step, one: InnerPass) -> None:
        """Write what a statement does at a point of the pass."""
        if step.op == "scan":
            self._scanned(step)
            return
        if step.kept and one.time > step.time:
            row = self._row(step.number, self.type_of(step.number))
            self.define(step.number, [f"{row}[{self.position()}]"])
            return
        self._unkept(step)
        if step.kept and one.time == step.time and not self.tiles.is_row(step):
            row = self._row(step.number, self.type_of(step.number))
            self.loops.innermost.add(f"{row}[{self.position()}] = {self.name_of(step.number)};")

    def declare_scan(self, step: Step) -> None:
        """Room for what a scan carries on, for each lane."""
        t = self.type_of(step.stmt.args[0])
        count = f"[{self.lane_count}]" if self.plan.lanes else ""
        where = self.home if self.plan.lanes else self.loops.innermost
        where.add(f"{carried_type(t)} c{step.number}{count};")

    def _scanned(self, step: Step) -> None:
        """Write a step of a scan; the first one has nothing to go on from."""
        stmt, loops = step.stmt, [self._loop_names[v] for v in self.body.reduce.vars]
        (value,) = [self.name_of(a) for a in stmt.args]
        state = f"c{step.number}[{self.lane()}]" if self.plan.lanes else f"c{step.number}"
        first = f"({' | '.join(loops)}) == 0"
        t = self.type_of(stmt.args[0])
        line, result = scan_step(str(stmt.attr("combine")), state, value, t, first)
        self.loops.innermost.add(line)
        self.define(step.number, [result])

    def _unkept(self, step: Step) -> None:
        staged = self._staged_element(step) if step.op == "load" else None
        if staged is not None:
            self.define(step.number, [staged])
        elif not self.tiles.takes(step):
            self.statement(step.stmt, step.number)

    def _staged_element(self, step: Step) -> str | None:
        return self.row_tiles.element(step) or self.tiles.element(step)

    def finish(self, acting: Acting, names: Names) -> None:
        """Name what a reduction gives, where its states are at hand."""
        for name, ctype, expression in acting.walk.known:
            here = self.loops.innermost
            if self.plan.lanes:
                self.keep_lane(name, ctype, expression(names))
            else:
                here.add(f"const {ctype} {name} = {expression(names)};")
        if acting.is_last:
            self._written.add(acting.step.position)
            self.define(acting.step.number, self._partials[acting.step.number].results(names))

    def known_name(self, name: str) -> str:
        """Something a former pass of a reduction found out, at this lane."""
        return f"{name}_s[{self.lane()}]" if self.plan.lanes else name

    def scratch(self, prefix: str, ctype: str, count: str, what: str) -> str:
        """Scratch memory for the time of this body: on the stack if it is small."""
        length = self.body.reduce.numel.value
        if prefix == "shadow" or length is None or length > LONGEST_ON_STACK:
            return super().scratch(prefix, ctype, count, what)
        name = self.names.fresh(prefix)
        self.setup.add(f"{ctype} {name}[{max(length, 1)}] {ALIGNED};")
        return name


def _delay(nests: Nests) -> None:
    """Have values made in the stage that uses them: from one stage to another, lanes lie in memory.

    A load waits only if nothing is stored where it reads.
    """
    stored = {s.stores for s in nests.steps if s.stores is not None}
    single = {s.position for steps in nests.singles.values() for s in steps}
    users: dict[int, list[Step]] = {}
    for step in nests.steps:
        for used in step.uses:
            users.setdefault(used, []).append(step)
    for step in reversed(nests.steps):
        after = users.get(step.position, [])
        if step.position not in single or not after or not is_pure(step) or step.varies:
            continue
        first = min(user.time for user in after)
        waits = first > step.time and all(user.position in single for user in after)
        if waits and step.loads.isdisjoint(stored):
            step.time = first
    steps = [s for s in nests.steps if s.position in single]
    nests.singles = {t: [s for s in steps if s.time == t] for t in sorted({s.time for s in steps})}


def _rounded_once(parts: list[str | CodeBlock]) -> list[str | CodeBlock]:
    """Lines of a loop on vectors, which encode f16 without rounding it before: to encode rounds."""
    exact: dict[str, str] = {}
    found: list[str | CodeBlock] = []
    for line in parts:
        if isinstance(line, str):
            if (made := ROUNDED.fullmatch(line)) is not None:
                exact[made[1]] = made[2]
            line = ENCODED.sub(lambda m: f"{m[1]}({exact.get(m[2], m[2])})", line)
        found.append(line)
    return found


def is_pure(step: Step) -> bool:
    """Whether a statement may be made earlier than it stands, or not at all."""
    return (
        OPS[step.op].produces
        and not step.acts
        and not step.kept
        and step.op not in COMBINING
        and step.op not in ("indirect", "masked", "bucketize", "inline_asm")
    )
