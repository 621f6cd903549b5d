"""The body of a loop operation in C: loops, passes over the reduction loops, rows, failures.

for (int64_t i0 = 0; i0 < n0; ++i0) {
    double v1 = ...;                      single statements and what a pass declares
    for (int64_t r0 = 0; r0 < n1; ++r0)   a pass (see `kernel.stages`)
        ...
    y[i0] = ...;
}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from treadle.codegen.c.block import CodeBlock, Loops
from treadle.codegen.c.gates import Gate
from treadle.codegen.c.index import IndexWriter
from treadle.codegen.c.ops import pointwise
from treadle.codegen.c.reduce import REDUCERS, Reduction, Request
from treadle.codegen.c.scan import SCANNERS
from treadle.codegen.c.scatter import shadow_copies
from treadle.codegen.c.sites import RECORD, Site, Sites, site
from treadle.codegen.c.sort import sort_call
from treadle.codegen.c.types import held, literal
from treadle.codegen.names import Names
from treadle.core.errors import TreadleError
from treadle.index import Expr, Kind, Symbol, as_expr
from treadle.ir.body import Body, Stmt, number_of
from treadle.ir.masks import MaskFacts
from treadle.ir.ops import OPS
from treadle.ir.program import Program
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import ValueType, infer_types
from treadle.kernel.stages import InnerPass, Nests, Step, first_pass, plan_nests

NEEDS_AN_ELEMENT = frozenset({"argmax", "argmin"})


@dataclass
class Frame:
    """What the bodies of one C function share: its parameters, scratch memory, names, failures."""

    program: Program
    names: Names
    sites: Sites
    buffers: dict[str, str] = field(default_factory=dict)
    """Buffer -> the name of its typed pointer."""
    scratch: list[tuple[str, str, str]] = field(default_factory=list)
    """(name, C type, what it holds) of rows that are freed at the end."""
    can_fail: bool = False
    helpers: set[str] = field(default_factory=set)
    """Optional parts of the prelude that are needed: special, sort."""

    def pointer(self, buffer: str) -> str:
        """The typed pointer to the storage behind a buffer."""
        if buffer not in self.buffers:
            self.buffers[buffer] = self.names.fresh("p", buffer)
        return self.buffers[buffer]


class BodyWriter:
    """Writes one body into a block of a function."""

    def __init__(self, operation: str, body: Body, frame: Frame, top: CodeBlock) -> None:
        self.operation, self.body, self.frame, self.top = operation, body, frame, top
        self.program, self.names = frame.program, frame.names
        self.types: list[ValueType] = infer_types(body, self.program.by_name)
        self.loops = Loops(top)
        self.masks = MaskFacts(body)
        self.facts = self.masks.facts
        self.gate: Gate | None = None
        self.under: list[int] = []
        """The masks under which the statement at hand happens."""
        self.index = IndexWriter(self.loops, self.names, self.facts, self._symbol)
        self.nests: Nests = self.plan_stages()
        self.values: dict[int, tuple[str, ...]] = {}
        self.params: list[Sequence[str]] = []
        self.rows: dict[int, str] = {}
        self.after: list[str] = []
        """Lines that follow the outermost loop."""
        self._reductions: dict[int, Reduction] = {}
        self._limits: dict[str, str] = {}
        self._shadows: dict[str, str] = {}

    def plan_stages(self) -> Nests:
        """When each statement runs."""
        return plan_nests(self.body, self.program.storage_of)

    # -- the loops -------------------------------------------------------------------------
    def write(self) -> None:
        """Write the whole body."""
        self.begin()
        for v in self.body.domain.vars:
            self.loops.push(v, self._loop_names[v], self._extents[v])
        for time in self.nests.times:
            for step in self.nests.singles.get(time, ()):
                self.statement(step.stmt, step.number)
            if time in self.nests.passes:
                self._pass(self.nests.passes[time])
        self.top.add(*self.after)

    def begin(self) -> None:
        """Name the loops and their extents."""
        names = [f"i{k}" for k in range(len(self.body.domain))]
        names += [f"r{k}" for k in range(len(self.body.reduce))]
        self._loop_names = dict(zip(self.body.space.vars, names, strict=True))
        self._extents: dict[Symbol, str] = {}
        for k, (v, n) in enumerate(self.body.space.items()):
            self._extents[v] = f"n{k}"
            self.top.add(f"const int64_t n{k} = {self.index.write(n)};")
        # Rows and copies are set up where extents are known, before the first loop.
        self.setup = self.top.open("")

    def _pass(self, one: InnerPass) -> None:
        point = self.loops.innermost
        for step in one.needed:
            self._before(step, one, point)
        inside = [v for v in self.body.reduce.vars if v in one.loops]
        parts = [s for s in one.actions if s.over and s.time == one.time]
        for v in inside:
            for step in parts:
                if v is self._over(step)[0]:
                    self.loops.innermost.add(*self._reduction(step).walks[0].before)
            self.loops.push(v, self._loop_names[v], self._extents[v])
        for step in one.needed:
            self._at_point(step, one)
        for v in reversed(inside):
            self.loops.pop()
            for step in parts:
                if v is self._over(step)[0]:
                    self._part_is_done(step)
        for step in one.actions:
            self._behind(step, one, point)

    def _over(self, step: Step) -> list[Symbol]:
        """The loops of a reduction of a part, outermost first: the innermost of its pass."""
        return [v for v in self.body.reduce.vars if v in step.over]

    def _part_is_done(self, step: Step) -> None:
        """Keep the result of a part for later passes, or name it if there is only one part."""
        reduction = self._reductions[step.number]
        here = self.loops.innermost
        here.add(*reduction.walks[0].after)
        if step.varies:
            here.add(f"{self._part_row(step)} = {reduction.results[0]};")
        else:
            self.define(step.number, reduction.results)

    def _part_row(self, step: Step) -> str:
        """The element of a row in which the result of a part is kept."""
        along = [v for v in self.body.reduce.vars if v in step.varies]
        row = self._row(step.number, self.type_of(step.number), "part_", self.row_length(along))
        return f"{row}[{self.position(along)}]"

    # -- reductions, scans, sorts, kept values -----------------------------------------------
    def _before(self, step: Step, one: InnerPass, point: CodeBlock) -> None:
        if step.op == "reduce" and one.time == first_pass(step):
            reduction = self._reduction(step)
            point.add(*reduction.walks[0].before)
        elif step.op == "reduce":
            point.add(*self._reductions[step.number].walks[1].before)
        elif step.op == "scan":
            point.add(*self._scan_state(step, one.time))

    def _at_point(self, step: Step, one: InnerPass) -> None:
        here = self.loops.innermost
        if step.over and one.time > step.time:
            self.define(step.number, [self._part_row(step)])
        elif step.over:
            here.add(*self._reduction(step).walks[0].at_point)
        elif step.op == "reduce":
            which = 0 if one.time == first_pass(step) else 1
            here.add(*self._reduction(step).walks[which].at_point)
        elif step.op == "scan":
            self._scan_point(step, one.time)
        elif step.op == "sort":
            (self._fill_rows if one.time == step.time else self._read_rows)(step)
        elif step.kept and one.time > step.time:
            t = self.type_of(step.number)
            self.define(step.number, [f"{self._row(step.number, t)}[{self.position()}]"])
        else:
            self.statement(step.stmt, step.number)
            if step.kept and one.time == step.time:
                row = self._row(step.number, self.type_of(step.number))
                here.add(f"{row}[{self.position()}] = {self.name_of(step.number)};")

    def _behind(self, step: Step, one: InnerPass, point: CodeBlock) -> None:
        if step.op == "sort":
            key = self.type_of(step.stmt.args[0])
            row, order = self._row(step.number, key, "k0_"), self._row(step.number, DType.I64, "o_")
            spare = self._row(step.number, DType.I64, "s_")
            descending = bool(step.stmt.attr("descending"))
            point.add(sort_call(key, row, order, spare, self.row_length(), descending))
        elif step.op == "reduce":
            reduction = self._reductions[step.number]
            which = 0 if one.time == first_pass(step) else 1
            point.add(*reduction.walks[which].after)
            if one.time == step.time:
                self.define(step.number, reduction.results)

    def _reduction(self, step: Step) -> Reduction:
        if step.number not in self._reductions:
            stmt, result = step.stmt, self.types[step.number]
            to = result[0] if isinstance(result, tuple) else result
            assert to is not None, "a value that is written has a type"
            kind = str(stmt.attr("kind"))
            over = self._over(step) if step.over else None
            if kind in NEEDS_AN_ELEMENT:
                words = f"{kind} over no elements has no answer"
                wrong = f"{self.row_length(over)} == 0"
                self.check(wrong, "RUN009", words, stmt, has_point=False)
            values = [self.name_of(a) for a in stmt.args]
            types = [self.type_of(a) for a in stmt.args]
            position = self.position(over)
            request = Request(values, types, to, f"a{step.number}", position)
            self._reductions[step.number] = REDUCERS[kind](request)
        return self._reductions[step.number]

    def _scan_state(self, step: Step, time: int) -> Sequence[str]:
        name = f"c{step.number}_{time}"  # each pass that needs it runs it anew
        if step.stmt.attr("combine") == "unknown":
            message = f"operation '{self.operation}': how its scan combines values is not known"
            raise TreadleError(message, code="GEN003")
        if step.stmt.attr("combine") != "region":
            types = [self.type_of(a) for a in step.stmt.args]
            return SCANNERS[str(step.stmt.attr("combine"))](name, ["0"] * len(types), types).before
        states = [f"{held(self.type_of(a))} {name}_{k} = 0;" for k, a in enumerate(step.stmt.args)]
        return [*states, f"int {name}_on = 0;"]

    def _scan_point(self, step: Step, time: int) -> None:
        stmt, name, here = step.stmt, f"c{step.number}_{time}", self.loops.innermost
        values = [self.name_of(a) for a in stmt.args]
        types = [self.type_of(a) for a in stmt.args]
        if stmt.attr("combine") != "region":
            scan = SCANNERS[str(stmt.attr("combine"))](name, values, types)
            here.add(*scan.at_point)
            self.define(step.number, scan.results)
            return
        states = [f"{name}_{k}" for k in range(len(values))]
        later = here.open(f"if ({name}_on)")
        self.params.append([*states, *values])
        yielded = self.block(stmt.region, step.number + 1, later)
        self.params.pop()
        for k, (state, new) in enumerate(zip(states, yielded, strict=True)):
            later.head.insert(0, f"{held(types[k])} {state}_new;")
            later.add(f"{state}_new = {new};")
        later.add(*[f"{state} = {state}_new;" for state in states])
        first = here.open("else")
        first.add(*[f"{s} = {v};" for s, v in zip(states, values, strict=True)])
        here.add(f"{name}_on = 1;")
        self.define(step.number, states)

    def _fill_rows(self, step: Step) -> None:
        self.frame.helpers.add("sort")
        for k, a in enumerate(step.stmt.args):
            row = self._row(step.number, self.type_of(a), f"k{k}_")
            self.loops.innermost.add(f"{row}[{self.position()}] = {self.name_of(a)};")

    def _read_rows(self, step: Step) -> None:
        order = self._row(step.number, DType.I64, "o_")
        rows = [
            self._row(step.number, self.type_of(a), f"k{k}_") for k, a in enumerate(step.stmt.args)
        ]
        self.define(step.number, [f"{row}[{order}[{self.position()}]]" for row in rows])

    def _row(self, number: int, t: DType, prefix: str = "kept_", count: str | None = None) -> str:
        """Scratch memory for one value at each point of the reduction loops, or `count` values."""
        key = f"{prefix}{number}"
        found = self._shadows.get(key)
        if found is None:
            what = f"%{number} of {self.operation} along the reduction loops"
            found = self._shadows[key] = self.scratch(
                prefix, held(t), count or self.row_length(), what
            )
        return found

    def scratch(self, prefix: str, ctype: str, count: str, what: str) -> str:
        """Scratch memory for the time of this body: `count` elements."""
        name = self.names.fresh(prefix)
        self.frame.scratch.append((name, ctype, what))
        self.frame.can_fail = True
        self.setup.add(
            f"{name} = ({ctype} *)tr_scratch({count}, sizeof({ctype}));",
            f"if (!{name}) {{ error[0] = -1; error[1] = {count}; status = 1; goto done; }}",
        )
        return name

    def shadow(self, buffer: Buffer) -> str:
        """A wider copy of a storage that stands for it while the loops run."""
        key = f"shadow_{buffer.name}"
        if key not in self._shadows:
            wide = self.shadow_type()
            limit, what = self.limit(buffer), f"'{buffer.name}' while it is summed up"
            name = self._shadows[key] = self.scratch("shadow", held(wide), limit, what)
            pointer = self.frame.pointer(buffer.name)
            fill, back = shadow_copies(buffer.dtype, pointer, name, limit, wide)
            self.setup.add(*fill)
            self.after += back
        return self._shadows[key]

    def shadow_type(self) -> DType:
        """In what narrow floats are summed up in memory."""
        return DType.F64

    def row_length(self, along: Sequence[Symbol] | None = None) -> str:
        """How many points the reduction loops have, or those in `along`."""
        loops = self.body.reduce.vars if along is None else along
        extents = [self._extents[v] for v in loops]
        return "(" + " * ".join(extents) + ")" if len(extents) > 1 else extents[0]

    def position(self, along: Sequence[Symbol] | None = None) -> str:
        """The place in the row, or among the loops `along`, in terms of the loop variables."""
        total = "0"
        for k, v in enumerate(self.body.reduce.vars if along is None else along):
            name = self._loop_names[v]
            total = name if k == 0 else f"({total} * {self._extents[v]} + {name})"
        return total

    def fits_32_bits(self, number: int) -> bool:
        """Whether a whole number is known to be one of i32, whatever its type."""
        made = self.masks.made_by(number)
        if made.op != "cast":
            return self.masks.fits_32_bits(number)
        given = self.type_of(made.args[0])
        return given.cls in ("bool", "int") and given.bits <= 32

    # -- masks -----------------------------------------------------------------------------
    def needs_no_branch(self, stmt: Stmt, dtype: ValueType) -> bool:
        """Whether what is under a mask may happen always, at places that are surely there."""
        return False

    def gated(self, stmt: Stmt, number: int) -> str:
        """Write what is under a mask without a branch; gives the name of what it yields."""
        raise AssertionError("only loops on vectors have gates")

    # -- statements ------------------------------------------------------------------------
    def statement(self, stmt: Stmt, number: int) -> None:
        """Write one statement at the innermost place."""
        from treadle.codegen.c.statements import STATEMENTS

        STATEMENTS[stmt.op](self, stmt, number)

    def block(self, stmts: Sequence[Stmt], number: int, into: CodeBlock) -> tuple[str, ...]:
        """Write the statements of a region into a block; gives the names of what it yields."""
        yielded: tuple[str, ...] = ()
        self.loops.blocks.append(into)
        self.loops.variables.append(None)
        for stmt in stmts:
            if stmt.op == "yield":
                yielded = tuple(self.name_of(a) for a in stmt.args)
            else:
                self.statement(stmt, number)
                number += OPS[stmt.op].produces + count_values(stmt.region)
        self.loops.blocks.pop()
        self.loops.variables.pop()
        return yielded

    def define(self, number: int, expressions: Sequence[str]) -> None:
        """Give the value %number its C name (several for several results)."""
        types = self.types[number]
        each = types if isinstance(types, tuple) else (types,)
        if len(each) == 1 and not isinstance(types, tuple):
            names: tuple[str, ...] = (f"v{number}",)
        else:
            names = tuple(f"v{number}_{k}" for k in range(len(each)))
        for name, t, text in zip(names, each, expressions, strict=True):
            assert isinstance(t, DType)
            self.loops.innermost.add(f"const {held(t)} {name} = {text};")
        self.name(number, names)

    def name(self, number: int, names: tuple[str, ...]) -> None:
        """Note the C names of a value that has just been written."""
        self.values[number] = names

    def name_of(self, number: int) -> str:
        """The C name of a single value."""
        types = self.types[number]
        assert isinstance(types, DType), f"%{number} has several results"
        return f"v{number}"

    def names_of(self, number: int) -> tuple[str, ...]:
        """The C names of a value with several results."""
        return self.values[number]

    def pointwise(
        self, op: str, values: Sequence[str], types: Sequence[DType], result: ValueType
    ) -> tuple[str, ...]:
        """C expressions for the results of a pointwise operation."""
        return pointwise(op, values, types, result)

    def type_of(self, number: int) -> DType:
        """The element type of a single value."""
        found = self.types[number]
        assert isinstance(found, DType)
        return found

    def literal(self, value: object, dtype: DType) -> str:
        """A constant of the program."""
        return literal(value, dtype)

    def _symbol(self, s: Symbol) -> str:
        if s.kind is Kind.INDIRECT:
            return self.name_of(number_of(s))
        return f"n_{s.name}" if s.kind is Kind.SIZE else self.loops.names[s]

    # -- storage ---------------------------------------------------------------------------
    def limit(self, buffer: Buffer) -> str:
        """The name of the number of elements the storage behind a buffer holds."""
        if buffer.name not in self._limits:
            root = self.program.by_name[self.program.storage_of(buffer.name)]
            count = self._span(root)
            if root.dtype.itemsize != buffer.dtype.itemsize:
                count = f"({count}) * {root.dtype.itemsize} / {buffer.dtype.itemsize}"
            name = self._limits[buffer.name] = self.names.fresh("limit")
            self.top.head.append(f"const int64_t {name} = {count};")
        return self._limits[buffer.name]

    def _span(self, root: Buffer) -> str:
        layout = root.layout
        known = layout.span.value
        if known is not None:
            return str(known)
        offset = self.index.write(layout.offset)
        empty = " || ".join(f"{self.index.write(n)} == 0" for n in layout.sizes)
        reach = [
            f"tr_max(0, {self.index.write((n - 1) * s)})"
            for n, s in zip(layout.sizes, layout.strides, strict=True)
        ]
        return f"({empty}) ? {offset} : {' + '.join([offset, *reach, '1'])}"

    # -- failures --------------------------------------------------------------------------
    def check(
        self,
        wrong: str,
        code: str,
        message: str,
        stmt: Stmt,
        found: str = "0",
        limit: str = "0",
        has_point: bool = True,
    ) -> None:
        """Write a test that stops the kernel where `wrong` holds."""
        place: Site = site(code, self.operation, message, stmt, self.body, has_point)
        number = self.frame.sites.add(place)
        self.frame.can_fail = True
        lines = [f"error[0] = {number};", f"error[1] = {found};", f"error[2] = {limit};"]
        for k, v in enumerate(self.body.space.vars[: len(place.loops)]):
            lines.append(f"error[{RECORD + k}] = {self.loops.names.get(v, '0')};")
        inner = self.loops.innermost.open(f"if (TR_RARELY({wrong}))")
        inner.add(" ".join(lines), "status = 1; goto done;")

    def place(self, e: object) -> tuple[str, Expr]:
        """An index as a C expression, and the expression itself."""
        assert isinstance(e, Expr)
        return self.index.write(as_expr(e)), e


def count_values(stmts: Sequence[Stmt]) -> int:
    """How many numbers the statements of a block take, inner regions included."""
    return sum(OPS[s.op].produces + count_values(s.region) for s in stmts)
