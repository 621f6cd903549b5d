"""Program text read back: `parse_program(show_program(p)) == p`.

Anything unexpected gives one InputError with file, line, column and what was expected. Nothing is
evaluated. What the text says is only checked for form here; `spec` checks the meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from treadle.index import Const, Domain, Expr, Kind, Symbol, loop
from treadle.ir.numerics import ACCUMULATIONS, EXACT, Numerics
from treadle.ir.parameters import Contiguity, KernelParameter, ParameterAccess
from treadle.ir.program import (
    KERNEL_SHAPES,
    Arg,
    Call,
    Collective,
    Group,
    Kernel,
    Loop,
    MultiOutput,
    Nest,
    Nop,
    Operation,
    Program,
    Ref,
    Template,
    Wait,
)
from treadle.ir.ranks import RankGroup
from treadle.ir.text_body import parse_body
from treadle.ir.text_cursor import Cursor
from treadle.ir.text_print import KEYWORDS, RESERVED, VERSION
from treadle.ir.text_schedule import parse_step
from treadle.ir.types import Buffer, BufferKind, DType, Layout

MAX_NESTING = 20
MAX_RANKS = 1 << 20


def parse_program(text: str, file: str = "<text>") -> Program:
    """The program `text` stands for."""
    return _ProgramReader(Cursor(text, file)).program()


class _ProgramReader:
    """Reads one program; `sizes` is the scope of names that index expressions may use."""

    def __init__(self, cursor: Cursor) -> None:
        self.at = cursor
        self.sizes: dict[str, Expr] = {}
        self.depth = 0

    # -- header ----------------------------------------------------------------------------
    def program(self) -> Program:
        at = self.at
        self.version()
        at.expect_word("program")
        name = at.name("a program name")
        at.end_line()
        said: dict[str, Any] = {}
        while (word := at.peek_word()) in ("inputs", "outputs", "donated", "numerics"):
            if word in said:
                raise at.error(f"'{word}' at most once")
            at.take_word(word)
            said[word] = self.numerics() if word == "numerics" else at.names("a buffer name")
            at.end_line()
        while at.peek_word() == "size":
            self.size()
        buffers = []
        while at.peek_word() == "buffer":
            buffers.append(self.buffer())
        ops = []
        while not at.done:
            ops.append(self.operation())
        return Program(
            name=name,
            buffers=tuple(buffers),
            ops=tuple(ops),
            inputs=said.get("inputs", ()),
            outputs=said.get("outputs", ()),
            donated=said.get("donated", ()),
            sizes=tuple([s for s in self.sizes.values() if isinstance(s, Symbol)]),
            numerics=said.get("numerics", EXACT),
        )

    def numerics(self) -> Numerics:
        at, start = self.at, self.at.at
        found: dict[str, Any] = {"accumulation": at.expect_word(*ACCUMULATIONS)}
        if found["accumulation"] == "blocked":
            found["block"] = at.integer("the most additions of a partial sum")
        while at.take(","):
            place = at.at
            word = at.expect_word("functions", "as", "contract", "reassociate")
            field = {"functions": "function_ulps", "as": "as_result", "contract": "contraction",
                     "reassociate": "reassociation"}[word]  # fmt: skip
            if field in found:
                raise at.error(f"'{word}' at most once", place)
            found[field] = self.ulps() if word == "functions" else True
            if word == "as":
                at.expect_word("result")
        try:
            return Numerics(**found)
        except ValueError as e:
            raise at.error("numerics that can be kept", start, str(e)) from None

    def ulps(self) -> float:
        start, value = self.at.at, self.at.literal().value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.at.error("a number of ulp", start)
        self.at.expect_word("ulp")
        return float(value)

    def version(self) -> None:
        at = self.at
        at.expect_word("treadle")
        start = at.at
        if at.integer("a version number") != VERSION:
            raise at.error(f"version {VERSION} (what this Treadle reads)", start)
        at.end_line()

    def size(self) -> None:
        at = self.at
        at.expect_word("size")
        start, name = at.at, at.word("a size name")
        if name in self.sizes:
            raise at.error("a size name not used before", start)
        at.expect_word("in")
        low = None if at.text.startswith("..", at.at) else at.integer()
        at.expect("..")
        high = at.integer() if at.rest[:1].isdigit() or at.rest[:1] == "-" else None
        divisor = at.integer() if at.take_word("divisor") else 1
        hint = at.integer() if at.take_word("hint") else None
        try:
            self.sizes[name] = Symbol(name, Kind.SIZE, low, high, divisor, hint)
        except ValueError as e:
            raise at.error("a size whose range, divisor and hint agree", start, str(e)) from None
        at.end_line()

    # -- buffers ---------------------------------------------------------------------------
    def buffer(self) -> Buffer:
        at = self.at
        at.expect_word("buffer")
        start, name = at.at, at.name("a buffer name")
        at.expect(":")
        kind = at.peek_word()
        if kind in (BufferKind.TOKEN.value, BufferKind.TUPLE.value):
            at.take_word(kind)
            dtype, layout = DType.U8, Layout((Const(0),), (Const(1),))
        else:
            kind = BufferKind.TENSOR.value
            dtype = at.element_type()
            layout = self.layout()
        at.expect_word("on")
        device = at.device()
        view_of = None
        if at.take_word("view"):
            at.expect_word("of")
            view_of = at.name("a buffer name")
        try:
            buffer = Buffer(name, dtype, layout, device, view_of, BufferKind(kind))
        except ValueError as e:
            raise at.error("a sound buffer", start, str(e)) from None
        at.end_line()
        return buffer

    def layout(self) -> Layout:
        at, start = self.at, self.at.at
        sizes = at.in_parens(lambda: at.expression(self.sizes), "]")
        try:
            plain = Layout.contiguous(sizes)
            if at.peek_word() not in ("stride", "offset"):
                return plain
            strides = plain.strides
            if at.take_word("stride"):
                strides = at.in_parens(lambda: at.expression(self.sizes))
            offset = at.expression(self.sizes) if at.take_word("offset") else Const(0)
            return Layout(sizes, strides, offset)
        except ValueError as e:
            raise at.error("a sound layout", start, str(e)) from None

    # -- operations ------------------------------------------------------------------------
    def operation(self) -> Operation:
        at = self.at
        word = at.peek_word()
        kind = _KINDS.get(word)
        if kind is None:
            raise at.error(f"an operation ({', '.join(sorted(_KINDS))})")
        at.take_word(word)
        common: dict[str, Any] = {"name": at.name("an operation name")}
        at.expect_word("on")
        common["device"] = at.device()
        for family, read in _FAMILIES.items():
            if issubclass(kind, family):
                return read(self, kind, common)
        raise AssertionError(kind)

    def tail(self, common: dict[str, Any]) -> None:
        at = self.at
        if at.take_word("after"):
            common["after"] = at.names_in_parens("an operation name")
        if at.take_word("from"):
            common["origins"] = at.in_parens(at.string)

    def loop(self, kind: type[Operation], common: dict[str, Any]) -> Operation:
        at = self.at
        domain = self.domain() if at.take_word("for") else Domain()
        reduce = self.domain() if at.take_word("reduce") else Domain()
        if kind is Nest:
            at.expect_word("runs")
            common["runs"] = at.names_in_parens("an operation name")
            if at.take_word("schedule"):
                common["schedule"] = at.in_parens(lambda: parse_step(at))
        self.tail(common)
        scope = {v.name: v for v in (*domain.vars, *reduce.vars)}
        clash = next((n for n in scope if n in self.sizes), None)
        if clash or len(scope) != len(domain) + len(reduce):
            raise at.error("loop names that differ from each other and from sizes", None, clash)
        assert issubclass(kind, Loop), "only loops have a body"
        return kind(**common, body=parse_body(at, domain, reduce, {**self.sizes, **scope}))

    def domain(self) -> Domain:
        at, start = self.at, self.at.at

        def one() -> tuple[Symbol, Expr]:
            name = at.word("a loop variable")
            at.expect_word("in")
            return loop(name), at.expression(self.sizes)

        try:
            return Domain(at.separated(one))
        except ValueError as e:
            raise at.error("sound loops", start, str(e)) from None

    def group(self, kind: type[Operation], common: dict[str, Any]) -> Operation:
        at = self.at
        if kind is Kernel:
            if at.peek_word() not in KERNEL_SHAPES:
                raise at.error(f"the shape of a kernel ({', '.join(KERNEL_SHAPES)})")
            common["shape"] = at.word("a shape")
        self.tail(common)
        at.expect("{")
        at.end_line()
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise at.error(f"groups nested at most {MAX_NESTING} deep")
        if kind is Kernel:
            common["parameters"] = tuple(self.parameters())
        members = []
        while not at.take("}"):
            if at.done:
                raise at.error("'}'")
            members.append(self.operation())
        self.depth -= 1
        at.end_line()
        assert issubclass(kind, Group), "only groups have members"
        return kind(**common, members=tuple(members))

    def parameters(self) -> Iterator[KernelParameter]:
        at = self.at
        while at.take_word("parameter"):
            storage = at.name("a buffer name")
            at.expect(":")
            access = ParameterAccess(at.expect_word(*[a.value for a in ParameterAccess]))
            walk = Contiguity(at.expect_word(*[c.value for c in Contiguity]))
            at.expect_word("align")
            alignment = at.integer("how many bytes its address is a multiple of")
            of_caller = at.take_word("of")
            if of_caller:
                at.expect_word("caller")
            over = at.name("a buffer name") if at.take_word("over") else None
            at.end_line()
            yield KernelParameter(storage, access, walk, alignment, bool(of_caller), over)

    def call(self, kind: type[Operation], common: dict[str, Any]) -> Operation:
        at = self.at
        at.expect_word("call")
        common["target"] = at.string()
        common["args"] = at.in_parens(self.arg)
        for word, key in (("writes", "writes"), ("mutates", "mutates")):
            if at.take_word(word):
                common[key] = at.names_in_parens("a buffer name")
        if at.take_word("with"):
            common["attrs"] = at.in_parens(self.keyword_arg)
        if at.take_word("effects"):
            common["has_side_effects"] = True
        if kind is Collective:
            at.expect_word("group")
            common["group"] = at.string()
            if at.take_word("ranks"):
                common["ranks"] = self.ranks(common["group"])
        if kind is Template:
            if at.take_word("prologue"):
                common["prologue_slots"] = at.names_in_parens("a buffer name")
            common["has_epilogue_slot"] = not at.take_word("closed")
        self.tail(common)
        at.end_line()
        return kind(**common)

    def ranks(self, group: str) -> tuple[int, ...]:
        """`0..7`, `0..24 by 8` or `(0, 3, 5)`."""
        at = self.at
        begin = at.at
        if at.text.startswith("(", at.at):
            found = at.in_parens(lambda: at.integer("a rank"))
        else:
            first = at.integer("the first rank")
            at.expect("..")
            last = at.integer("the last rank")
            step = at.integer("the distance between ranks") if at.take_word("by") else 1
            if step < 1 or last - first > MAX_RANKS * step:
                raise at.error(f"at most {MAX_RANKS} ranks, a positive distance apart", begin)
            found = tuple(range(first, last + 1, step))
        try:
            return RankGroup(group, found).ranks
        except ValueError:
            raise at.error("ranks of at least 0, each once", begin) from None

    def arg(self) -> Arg:
        at = self.at
        if at.text.startswith("[", at.at):
            self.depth += 1
            if self.depth > MAX_NESTING:
                raise at.error(f"lists nested at most {MAX_NESTING} deep")
            items = at.in_parens(self.arg, "]")
            self.depth -= 1
            return items
        if at.take("{"):
            size = at.expression(self.sizes)
            at.expect("}")
            return size
        word = at.peek_word()
        if at.text.startswith('@"', at.at) or (word and word not in RESERVED):
            return Ref(at.name())
        return at.literal()

    def keyword_arg(self) -> tuple[str, Arg]:
        key = self.at.name("an attribute name")
        self.at.expect("=")
        return key, self.arg()

    def wait(self, kind: type[Operation], common: dict[str, Any]) -> Operation:
        self.at.expect_word("for")
        common["buffer"] = self.at.name("a buffer name")
        self.tail(common)
        self.at.end_line()
        return Wait(**common)

    def multi_output(self, kind: type[Operation], common: dict[str, Any]) -> Operation:
        at = self.at
        common["target"] = at.name("a buffer name")
        at.expect("=")
        common["source"] = at.name("a buffer name")
        at.expect("[")
        common["position"] = at.integer("a position")
        at.expect("]")
        self.tail(common)
        at.end_line()
        return MultiOutput(**common)

    def nop(self, kind: type[Operation], common: dict[str, Any]) -> Operation:
        common["writes"] = self.at.names_in_parens("a buffer name")
        self.tail(common)
        self.at.end_line()
        return Nop(**common)


_KINDS: Mapping[str, type[Operation]] = {word: kind for kind, word in KEYWORDS.items()}
_FAMILIES: Mapping[
    type[Operation], Callable[[_ProgramReader, type[Operation], dict[str, Any]], Operation]
] = {
    Loop: _ProgramReader.loop,
    Group: _ProgramReader.group,
    Call: _ProgramReader.call,
    Wait: _ProgramReader.wait,
    MultiOutput: _ProgramReader.multi_output,
    Nop: _ProgramReader.nop,
}
