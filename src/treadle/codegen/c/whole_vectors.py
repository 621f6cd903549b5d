"""Loops on vectors, written on whole vectors.

    #pragma omp simd reduction(+: a4)           for (; r0_v + 2 * TR_W <= n1; r0_v += 2 * TR_W) {
    for (int64_t r0 = 0; r0 < n1; ++r0) {           for (int k = 0; k < 2; ++k) {
        const float v0 = p0[(768 * i0 + r0)];           const int64_t r0 = r0_v + k * TR_W;
        a4 += v0;                               ->      const tr_w v0 = tr_w_load(p0 + (...));
    }                                                   a4_w[k] = v0 + a4_w[k];
                                                    }
                                                }
                                                a4 += tr_w_sum(a4_w[0] + a4_w[1]);

A compiler that makes vectors of a plain loop keeps one partial sum, so that every addition waits
for the one before; it calls functions, before which all vectors go to memory; and it converts
16-bit floats by detours. Here each of these is said. What is left over at the end is one more
vector, of which some lanes count nothing.

What a loop does was decided before and stands in its lines, which are read again (`lines`) and
written with vectors for floats (`whole_values`). A loop with anything else in it stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from treadle.codegen.c.block import CodeBlock
from treadle.codegen.c.fast_ops import VECTOR
from treadle.codegen.c.lines import (
    CAssigned,
    CBinary,
    CCall,
    CCast,
    CChoice,
    CDeclared,
    CElement,
    CName,
    CTree,
    read_line,
)
from treadle.codegen.c.own_rows import OwnRows, own_rows
from treadle.codegen.c.side_by_side import SideBySide
from treadle.codegen.c.whole_values import (
    CONDITION,
    HERE,
    SMALL,
    LaneKind,
    LaneValue,
    LaneValues,
    UnwritableError,
    is_condition,
)

OPENING = re.compile(r"for \(int64_t (\w+) = 0; \1 < ([^;]+); \+\+\1\)")
WORTH = re.compile(
    rf"\btr_(?:{VECTOR}\w+|(?:round|decode|encode)_(?:b?f16|f8\w+)|to_8_bits)\("
    r"|\(uint8_t\)\("
)
"""What makes a loop faster this way, besides reductions."""
DECLARED = re.compile(r"\b(float|double|u?int(?:8|16|32|64)_t) (?:\*const )?(\w+)")
SCRATCH = re.compile(r"\b(\w+) = \((\w+) \*\)tr_scratch\(")
SEVERAL = "several"
"""The type of what has different ones in different places."""
WHOLE = "whole"
"""The helper that whole.h is."""
WIDEST = 16
"""The floats of the widest vector there is."""
PART = "#"
"""Which of the partial sums a line is about."""
MOST_PARTS, FEWER_PARTS = 4, 2
"""Partial sums side by side, so that none waits for the one before it; fewer with functions."""
CALLS = re.compile(rf"\btr_{VECTOR}")
COUNTED = "counted"
"""How conditions are combined whose number is asked."""
STATES = {"|": "int32_t", COUNTED: "uint64_t"}
"""The C types of what is combined so; all others are floats."""
START = {"+": "0.0f", "*": "1.0f", "max": "-INFINITY", "min": "INFINITY"}
TOGETHER = {
    "+": "{0} += tr_w_sum({1});",
    "*": "{0} *= tr_w_product({1});",
    "max": "{{ const float m = tr_w_most({1}); {0} = m > {0} ? m : {0}; }}",
    "min": "{{ const float m = tr_w_least({1}); {0} = m < {0} ? m : {0}; }}",
    "|": "{0} |= tr_w_any({1});",
    COUNTED: "{0} += tr_w_counted({1});",
}
"""How the parts of a vector flow into the state of the loop."""
TWO = {
    "+": "{0} + {1}",
    "*": "{0} * {1}",
    "max": "tr_w_larger({0}, {1})",
    "min": "tr_w_smaller({0}, {1})",
    "|": "{0} | {1}",
    COUNTED: "{0} + {1}",
}
"""Two vectors of parts as one."""
GOES_PAST = "goes_past"
"""What says in C whether stores go past the caches."""
NO_ROWS = OwnRows()
ENCODED = {
    f"tr_encode_{kind}": (of, f"tr_w_store_{kind}")
    for of, kinds in (("uint16_t", ("bf16", "f16")), ("uint8_t", ("f8e4m3fn", "f8e5m2")))
    for kind in kinds
}
"""What writes a narrow float: into elements of which type, and how side by side."""
ROUNDED_AGAIN = {f"tr_round_{kind}": f"tr_encode_{kind}" for kind in ("f16", "f8e4m3fn", "f8e5m2")}
"""What rounds -> what writes such a value, and rounds as well."""


@dataclass(frozen=True)
class VectorLoop:
    """A loop on vectors: where it stands, and what it combines."""

    parent: CodeBlock
    block: CodeBlock
    reductions: Mapping[str, str]
    """State -> the operator that combines its parts, as OpenMP calls it."""
    extent: int | None
    """How often it runs, where that is known."""
    around: CodeBlock | None = None
    """What the block stands in that it stands in."""


def clauses(reductions: Mapping[str, str]) -> str:
    """What a loop combines, as OpenMP says it."""
    groups: dict[str, list[str]] = {}
    for state, op in reductions.items():
        groups.setdefault(op, []).append(state)
    return "".join(f" reduction({op}: {', '.join(names)})" for op, names in groups.items())


def types_within(top: CodeBlock) -> dict[str, str]:
    """The C types of all that is declared in a block and the blocks inside of it.

    A constant byte that is 0 or 1 is a condition; what is declared as several things is nothing.
    """
    found: dict[str, str] = {}
    for line in top.lines():
        for kind, name in DECLARED.findall(line):
            own = CONDITION if kind == "uint8_t" and _says_condition(line, found) else kind
            found[name] = own if found.get(name, own) == own else SEVERAL
        found.update(dict(SCRATCH.findall(line)))
    return found


def _says_condition(line: str, types: Mapping[str, str]) -> bool:
    said = read_line(line.strip()) if line.lstrip().startswith("const ") else None
    conditions = [name for name, kind in types.items() if kind == CONDITION]
    return isinstance(said, CDeclared) and is_condition(said.value, conditions)


def write_whole(
    loop: VectorLoop,
    types: Mapping[str, str],
    numbers: Mapping[str, float] | None = None,
    streamed: Collection[str] = (),
) -> bool:
    """Write a loop on whole vectors where it stands; whether it can be, and gains by it.

    `numbers` are the values of floats outside of it that are known; what it stores into `streamed`
    may go past the caches.
    """
    lines = [*loop.block.head, *loop.block.parts]
    texts = [line for line in lines if isinstance(line, str)]
    opening = OPENING.fullmatch(loop.block.opening)
    if opening is None or len(texts) < len(lines):
        return False
    rows = own_rows(loop.parent, loop.block)
    if (
        not loop.reductions
        and not (rows.loaded or rows.stored)
        and not any(map(WORTH.search, texts))
        and not any(f"{name}[" in text for name in streamed for text in texts)
    ):
        return False
    try:
        written = WholeLoop(loop, types, opening[1], opening[2], numbers=numbers, rows=rows)
        written.streamed = streamed
        written.read(texts)
    except UnwritableError:
        return False
    written.replace()
    return True


class WholeLoop:
    """One loop, written again."""

    def __init__(
        self,
        loop: VectorLoop,
        types: Mapping[str, str],
        variable: str,
        extent: str,
        held: Collection[str] = (),
        numbers: Mapping[str, float] | None = None,
        rows: OwnRows = NO_ROWS,
    ) -> None:
        self.loop, self.variable, self.extent = loop, variable, extent
        self.at = f"{variable}_v"
        self.values = LaneValues(types, numbers or {}, variable, {*loop.reductions, *held})
        self.rows, self.values.rows = rows, rows.loaded
        self.held = held
        """Arrays whose elements are in vectors that outlast the loop."""
        self.streamed: Collection[str] = ()
        """Arrays whose stores may go past the caches."""
        self.exact: dict[tuple[str, str], str] = {}
        """Values that were rounded, and what writes them and rounds -> what they were before."""
        self.combines = {
            state: COUNTED if op == "+" and types.get(state) == STATES[COUNTED] else op
            for state, op in loop.reductions.items()
        }
        """State -> how its parts are combined."""
        for state, op in self.combines.items():
            if op not in TOGETHER or types.get(state) != STATES.get(op, "float"):
                raise UnwritableError(state)
        self.body: list[tuple[str, str]] = []
        """Each line for all lanes, and for those that are left; see PART and HERE."""
        self.parts = 1
        self.stored: dict[int, tuple[str, str]] = {}
        """Lines that store bf16 -> where, and what."""

    # -- lines -----------------------------------------------------------------------------
    def read(self, texts: Sequence[str]) -> None:
        """Read the lines of the plain loop; raises if one has no form."""
        for text in texts:
            line = self._line(text)
            self.body.append(line if isinstance(line, tuple) else (line, line))
        most = MOST_PARTS
        if any(map(CALLS.search, texts)):
            most = FEWER_PARTS if self.loop.reductions or not self.values.has_places else 1
        while self.loop.extent is not None and most * WIDEST > max(self.loop.extent, WIDEST):
            most //= 2
        self.parts = most

    def _line(self, text: str) -> str | tuple[str, str]:
        line = read_line(text)
        match line:
            case CDeclared("int64_t", name, CCast("int64_t", CName(condition))) if (
                self.values.known.get(condition) is LaneKind.FLAGS
            ):
                self.values.known[name] = LaneKind.COUNT
                return f"const tr_wi {name} = {condition};"
            case CDeclared(ctype, name, value) if ctype in ("int64_t", "int32_t"):
                self.values.steps[name] = self.values.step(value)
                if ctype == "int32_t":
                    self.values.short.add(name)
                if self.values.touches_vectors(value):
                    raise UnwritableError(text)
                return text
            case CDeclared("float" | "uint8_t" | "int8_t" as ctype, name, value):
                found = self.values.small(value) if ctype in SMALL else None
                return self._declared(ctype, name, found or self.values.value(value), value)
            case CAssigned(CName(state), op, value) if state in self.loop.reductions:
                return self._combined(state, op, value)
            case CAssigned(CElement() as element, op, value):
                return self._stored(element, op, value)
        raise UnwritableError(text)

    def _declared(self, ctype: str, name: str, value: LaneValue, tree: CTree) -> str:
        is_flag = value.kind in (LaneKind.FLAGS, LaneKind.FLAG, LaneKind.BYTE)
        is_small = ctype in SMALL and value.kind is LaneKind.SMALL
        is_wrong = not is_small and is_flag != (ctype == "uint8_t")
        if is_wrong or value.kind is LaneKind.BYTES:
            raise UnwritableError(name)
        if isinstance(tree, CCall) and (writes := ROUNDED_AGAIN.get(tree.function)):
            self.exact[name, writes] = self.values.value(tree.args[0]).vector
        known = LaneKind.FLOAT if value.kind is LaneKind.NUMBER else value.kind
        self.values.known[name] = known
        if known is LaneKind.SMALL:
            self.values.narrow.learn_of_8_bits(name)
        else:
            self.values.narrow.learn(name, tree)
        types = {LaneKind.VECTOR: "tr_w", LaneKind.FLAGS: "tr_wi", LaneKind.SMALL: "tr_wi"}
        return f"const {types.get(known, ctype)} {name} = {value.text};"

    def _combined(self, state: str, op: str, value: CTree) -> tuple[str, str]:
        """What flows into a partial sum at each step; lanes that do not count keep theirs."""
        clause, part = self.combines[state], f"{state}_w{PART}"
        if clause == COUNTED:
            counted = self.values.value(value)
            if op != "+=" or counted.kind is not LaneKind.COUNT:
                raise UnwritableError(state)
            return f"{part} += {counted.text};", f"{part} += {counted.text} & {self.mask};"
        found = self.values.value(self._flowing(state, clause, op, value))
        if clause == "|":
            return f"{part} |= {found.flags};", f"{part} |= {found.flags} & {self.mask};"
        new = TWO[clause].format(found.vector, part)
        return f"{part} = {new};", f"{part} = tr_w_where({self.mask}, {new}, {part});"

    def _flowing(self, state: str, clause: str, op: str, value: CTree) -> CTree:
        """What is added, multiplied or compared with a state."""
        match value:
            case CChoice(CBinary(sign, one, CName(other)), again, CName(otherwise)) if op == "=":
                is_same = other == otherwise == state and one == again
                if is_same and sign == {"max": ">", "min": "<"}.get(clause):
                    return one
        if op != f"{clause}=":
            raise UnwritableError(state)
        return value

    def _stored(self, to: CElement, op: str, value: CTree) -> str | tuple[str, str]:
        """A store, or what is added to what is there."""
        kind, place = self.values.types.get(to.base), f"{to.base} + {to.text}"
        self.values.has_places |= kind != "uint16_t"
        if self.values.step(to.index) != 1 or op not in ("=", "+="):
            raise UnwritableError(to.text)
        if op == "=" and isinstance(value, CCall) and value.function in ENCODED:
            return self._encoded(place, kind, value)
        found = self.values.value(value)
        if to.base in self.rows.stored and op == "=":
            kind, start = self.rows.stored[to.base]
            text = found.vector if kind == "f16" else f"tr_w_round_bf16({found.vector})"
            return f"tr_w_store_{kind}{HERE}({start} + {to.text}, {text});"
        if to.base in self.held:
            if to.text != self.variable or op != "+=":
                raise UnwritableError(to.text)
            return f"{to.base}_h{PART} = {found.vector} + {to.base}_h{PART};"
        if kind in SMALL and op == "=" and found.kind is LaneKind.SMALL:
            return f"tr_w_store_bytes{HERE}((uint8_t *)({place}), {found.text});"
        if kind == "uint8_t" and op == "=":
            return f"tr_w_store_flags{HERE}({place}, {found.flags});"
        if kind != "float":
            raise UnwritableError(to.text)
        before = f"tr_w_load{HERE}({place}) + " if op == "+=" else ""
        line = f"tr_w_store{HERE}({place}, {before}{found.vector});"
        if to.base in self.streamed and op == "=":
            return f"tr_w_stream({GOES_PAST}, {place}, {found.vector});", line
        return line

    def _encoded(self, place: str, kind: str | None, value: CCall) -> str:
        of, store = ENCODED[value.function]
        if kind != of:
            raise UnwritableError(value.function)
        (given,) = value.args
        text = self.values.value(given).vector
        if value.function != "tr_encode_bf16":
            self.values.has_places = True
            if isinstance(given, CName):  # to store rounds
                text = self.exact.get((given.text, value.function), text)
        self.stored[len(self.body)] = place, text
        return f"{store}{HERE}({place}, {text});"

    # -- the loop --------------------------------------------------------------------------
    def replace(self) -> None:
        """Put the loop on whole vectors beside the plain one, for machines that have them."""
        parent, block, extent = self.loop.parent, self.loop.block, self.loop.extent
        whole = CodeBlock("/* on whole vectors */")
        whole.add(f"int64_t {self.at} = 0;", *self._starts())
        if extent is None or extent >= WIDEST // 2 * self.parts:
            self._loop(whole)
        if extent is None or extent % (WIDEST * self.parts):
            self._rest(whole, is_whole=extent is not None and extent % WIDEST == 0)
        whole.add(*self._joined())
        where = next(k for k, part in enumerate(parent.parts) if part is block)
        before = [part for part in parent.parts[: where - 1] if part not in self.rows.before]
        behind = parent.parts[where + 1 + len(self.rows.behind) :]
        plain = [*self.rows.before, *parent.parts[where - 1 : where + 1], *self.rows.behind]
        written = ["#ifdef TR_WHOLE", whole, "#else", *plain, "#endif"]
        parent.parts[:] = [*before, *written, *behind]

    @property
    def mask(self) -> str:
        """Which lanes are left over at the end."""
        return f"{self.variable}_m"

    def _starts(self) -> list[str]:
        found = []
        for state, op in self.combines.items():
            is_whole = op in STATES
            kind, start = ("tr_wi", "{0}") if is_whole else ("tr_w", f"tr_w_all({START[op]})")
            values = start if is_whole else f"{{[0 ... {self.parts - 1}] = {start}}}"
            found.append(f"{kind} {state}_w[{self.parts}] = {values};")
        return found

    def _loop(self, into: CodeBlock) -> None:
        """As many vectors at once as there are partial sums."""
        stride = f"{self.parts} * TR_W" if self.parts > 1 else "TR_W"
        point = into.open(f"for (; {self.at} + {stride} <= {self.extent}; {self.at} += {stride})")
        if self.parts > 1 and not self.loop.reductions:
            self._beside(point)
            return
        start, which = self.at, "0"
        if self.parts > 1:
            point.add(f"#pragma GCC unroll {self.parts}")
            point = point.open(f"for (int k = 0; k < {self.parts}; ++k)")
            start, which = f"{self.at} + k * TR_W", "k"
        point.add(f"const int64_t {self.variable} = {start};")
        point.add(*[line.replace(PART, f"[{which}]").replace(HERE, "") for line, _ in self.body])

    def _beside(self, point: CodeBlock) -> None:
        """Line after line for all parts: while one waits for its last result, others go on."""
        names = {self.variable, *self.values.known, *self.values.steps}
        in_pairs = not self.values.has_places
        beside = SideBySide(names, in_pairs)
        for k in range(self.parts):
            first = f"{self.at} + {k - k % 2 if in_pairs else k} * TR_W"
            point.add(f"const int64_t {beside.named(self.variable, k)} = {first};")
        for number, (line, _) in enumerate(self.body):
            stored = self.stored.get(number)
            point.add(*beside.copies(line, stored, self.parts))

    def _rest(self, into: CodeBlock, is_whole: bool) -> None:
        """One vector after the other; of the last one maybe not all lanes."""
        inner = into.open(f"for (; {self.at} < {self.extent}; {self.at} += TR_W)")
        inner.add(f"const int64_t {self.variable} = {self.at};")
        if is_whole:
            inner.add(*[line.replace(PART, "[0]").replace(HERE, "") for line, _ in self.body])
            return
        left = f"{self.variable}_n"
        inner.add(f"const int {left} = (int)tr_min(TR_W, {self.extent} - {self.at});")
        if self.loop.reductions:
            inner.add(f"const tr_wi {self.mask} = tr_w_first({left});")
        for _, line in self.body:
            inner.add(line.replace(PART, "[0]").replace(f"{HERE}(", f"_some({left}, "))

    def _joined(self) -> list[str]:
        found = []
        for state, op in self.combines.items():
            together = f"{state}_w[0]"
            for k in range(1, self.parts):
                together = TWO[op].format(together, f"{state}_w[{k}]")
            found.append(TOGETHER[op].format(state, together))
        return found
