"""Scans along rows, written on whole vectors.

    for (int64_t r0 = 0; r0 < n1; ++r0) {           for (; r0_v + TR_W <= n1; r0_v += TR_W) {
        const float v0 = p0[r0];                        const int64_t r0 = r0_v;
        c2 = (r0) == 0 ? (double)v0                     const tr_w v0 = tr_w_load(p0 + r0);
                       : (c2 + ((double)v0));   ->      if ((r0) == 0) c2 = -0.0;
        p1[r0] = ((float)c2);                           const tr_w c2_w = tr_w_scan_sum(&c2, v0);
    }                                                   tr_w_store(p1 + r0, c2_w);
                                                    }

One by one each point waits for the one before it. On vectors the lanes are combined among
themselves in a few steps, and only what they give together waits. Rows that go side by side, so
that there is something to do meanwhile, do so inside of the loop along them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from treadle.codegen.c.block import CodeBlock
from treadle.codegen.c.lines import (
    CAssigned,
    CBinary,
    CCall,
    CChoice,
    CDeclared,
    CElement,
    CName,
    CNumber,
    CTree,
    read_line,
    written,
)
from treadle.codegen.c.own_rows import OwnRows, own_rows
from treadle.codegen.c.whole_values import HERE, LaneKind, LaneValue, UnwritableError
from treadle.codegen.c.whole_vectors import OPENING, WIDEST, VectorLoop, WholeLoop

SCANS: Mapping[str, tuple[str, str, str]] = {
    "+": ("tr_w_scan_sum", "-0.0", "-0.0f"),
    "*": ("tr_w_scan_product", "1.0", "1.0f"),
    "tr_maximum_f64": ("tr_w_scan_most", "-INFINITY", "-INFINITY"),
    "tr_minimum_f64": ("tr_w_scan_least", "INFINITY", "INFINITY"),
}
"""How two are combined -> the form on vectors, what a state begins with, what changes none."""


def write_scan(loop: VectorLoop, types: Mapping[str, str], numbers: Mapping[str, float]) -> bool:
    """Write a loop that scans on whole vectors; whether it is one and that can be done.

    The loop may be one over rows that stands, alone, in the loop along them.
    """
    if any(isinstance(part, CodeBlock) for part in loop.block.parts):
        return False
    beside = loop.block if loop.parent.parts == [loop.block] else None
    for along in (loop.block, loop.parent):
        opening = OPENING.fullmatch(along.opening)
        if opening is None or (along is loop.parent and (beside is None or loop.around is None)):
            continue
        try:
            is_own = along is loop.block
            rows = own_rows(loop.parent, loop.block) if is_own else OwnRows()
            scan = ScanLoop(loop, types, opening[1], opening[2], numbers=numbers, rows=rows)
            scan.beside = None if is_own else loop.block.opening
            heads = [] if is_own else along.head
            scan.read([*heads, *loop.block.head, *_texts(loop.block)])
        except UnwritableError:
            continue
        if scan.has_scan:
            scan.put(loop.parent if is_own else loop.around or loop.parent, along)
            return True
    return False


def _texts(block: CodeBlock) -> Iterator[str]:
    for part in block.parts:
        if isinstance(part, str):
            yield part


class ScanLoop(WholeLoop):
    """A loop along rows that are scanned."""

    beside: str | None = None
    """The opening of the loop over rows that go side by side."""
    has_scan = False

    def _line(self, text: str) -> str | tuple[str, str]:
        self.values.may_turn = True
        match read_line(text):
            case CAssigned(to, "=", CChoice(CBinary("==", first, CNumber("0")), start, step)):
                return self._scanned(to, first, start, step)
            case CDeclared("double", name, value):
                found = self.values.value(value)
                if found.kind is not LaneKind.DOUBLE:
                    raise UnwritableError(text)
                self.values.known[name] = LaneKind.DOUBLE
                return f"const tr_w {name} = {found.text};"
        return super()._line(text)

    def _scanned(
        self, to: CName | CElement, first: CTree, start: CTree, step: CTree
    ) -> tuple[str, str]:
        match step:
            case CBinary("+" | "*" as how, state, value) | CCall(how, (state, value)):
                is_scan = how in SCANS and state == to and value == start
            case _:
                is_scan = False
        given = self.values.value(start) if is_scan else None
        if given is None or given.kind is not LaneKind.DOUBLE or not self._is_first(first):
            raise UnwritableError(written(step))
        self.has_scan = True
        function, begins, changes_none = SCANS[how]
        place, base = written(to), to.base if isinstance(to, CElement) else to.text
        if place in self.values.scanned:
            raise UnwritableError(place)
        self.values.scanned[place] = LaneValue(LaneKind.DOUBLE, f"{base}_w")
        begin = f"if ({written(first)} == 0) {place} = {begins};"
        rest = f"tr_w_where({self.mask}, {given.text}, tr_w_all({changes_none}))"
        made = f"{begin} const tr_w {base}_w = {function}(&{place}, {{0}});"
        return made.format(given.text), made.format(rest)

    def _is_first(self, e: CTree) -> bool:
        """Whether an expression is zero at the first point of a row alone, a first lane."""
        match e:
            case CBinary("|", left, right):
                steps = {self.values.step(left), self.values.step(right)}
                return steps == {0, 1} and isinstance(left, CName) and isinstance(right, CName)
            case CName():
                return self.values.step(e) == 1
        return False

    def put(self, parent: CodeBlock, along: CodeBlock) -> None:
        """Put the loop on whole vectors beside the plain one."""
        whole = CodeBlock("/* on whole vectors */")
        whole.add(f"int64_t {self.at} = 0;")
        full = whole.open(f"for (; {self.at} + TR_W <= {self.extent}; {self.at} += TR_W)")
        full.add(f"const int64_t {self.variable} = {self.at};")
        self._rows(full).add(*[line.replace(HERE, "") for line, _ in self.body])
        if self.loop.extent is None or self.loop.extent % WIDEST or self.beside is not None:
            left = f"{self.variable}_n"
            rest = whole.open(f"if ({self.at} < {self.extent})")
            rest.add(f"const int64_t {self.variable} = {self.at};")
            rest.add(f"const int {left} = (int)({self.extent} - {self.at});")
            rest.add(f"const tr_wi {self.mask} = tr_w_first({left});")
            lines = [line.replace(f"{HERE}(", f"_some({left}, ") for _, line in self.body]
            self._rows(rest).add(*lines)
        where = next(k for k, part in enumerate(parent.parts) if part is along)
        before = [part for part in parent.parts[:where] if part not in self.rows.before]
        behind = parent.parts[where + 1 + len(self.rows.behind) :]
        plain: list[str | CodeBlock] = [*self.rows.before, along, *self.rows.behind]
        parent.parts[:] = [*before, "#ifdef TR_WHOLE", whole, "#else", *plain, "#endif", *behind]

    def _rows(self, block: CodeBlock) -> CodeBlock:
        if self.beside is None:
            return block
        block.add("#pragma GCC unroll 4")
        return block.open(self.beside)
