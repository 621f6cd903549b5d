"""Loop bodies read from text: one statement a line, one small parser per operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.index import Domain, Expr
from treadle.ir.body import Body, Stmt, value_symbol
from treadle.ir.ops import OPS, POINTWISE, REDUCTIONS, SCAN_COMBINES, STORE_MODES
from treadle.ir.text_cursor import Cursor

MAX_REGION_DEPTH = 50


def parse_body(at: Cursor, domain: Domain, reduce: Domain, scope: dict[str, Expr]) -> Body:
    """The body that begins with '{' at the cursor and ends with a line '}'."""
    return Body(domain, reduce, _StatementBlock(at, scope).block())


class _StatementBlock:
    """Statements up to the closing brace; `scope` grows by each value usable as an index."""

    __slots__ = ("at", "counter", "depth", "scope", "visible")

    def __init__(self, at: Cursor, scope: dict[str, Expr]) -> None:
        self.at, self.scope = at, scope
        self.counter = self.depth = 0
        self.visible: set[int] = set()

    def block(self) -> tuple[Stmt, ...]:
        at = self.at
        at.expect("{")
        at.end_line()
        self.depth += 1
        if self.depth > MAX_REGION_DEPTH:
            raise at.error(f"regions nested at most {MAX_REGION_DEPTH} deep")
        outer = set(self.visible)
        stmts: list[Stmt] = []
        while not at.take("}"):
            if at.done:
                raise at.error("'}'")
            stmts.append(self.statement())
        self.depth -= 1
        for number in self.visible - outer:
            self.scope.pop(f"%{number}", None)
        self.visible = outer
        at.end_line()
        return tuple(stmts)

    def statement(self) -> Stmt:
        at = self.at
        number = None
        start = at.at
        if at.text.startswith("%", at.at):
            number = at.value_number()
            at.expect("=")
        word_at, word = at.at, at.peek_word()
        definition = OPS.get(word)
        if definition is None:
            raise at.error("an operation name", word_at)
        if definition.produces != (number is not None):
            wanted = f"'%{self.counter} =' before {word}" if definition.produces else f"'{word}'"
            raise at.error(wanted, start)
        if number is not None and number != self.counter:
            raise at.error(f"%{self.counter}, the next number", start)
        at.take_word(word)
        if number is not None:
            self.counter += 1
        stmt = PARSERS[word](self, word)
        if number is not None:
            self.visible.add(number)
            if word == "indirect":
                symbol = value_symbol(number)
                self.scope[symbol.name] = symbol
        return stmt

    # -- pieces ----------------------------------------------------------------------------
    def value(self) -> int:
        start = self.at.at
        number = self.at.value_number()
        if number not in self.visible:
            raise self.at.error("a value defined before in this body", start)
        return number

    def values(self, count: int | None = None) -> tuple[int, ...]:
        start = self.at.at
        found = self.at.separated(self.value)
        if count is not None and len(found) != count:
            raise self.at.error(f"{count} operand(s)", start)
        return found

    def finish(self, stmt: Stmt) -> Stmt:
        self.at.end_line()
        return stmt

    def expression(self) -> Expr:
        return self.at.expression(self.scope)

    def element(self) -> tuple[str, Expr]:
        name = self.at.name("a buffer name")
        self.at.expect("[")
        index = self.expression()
        self.at.expect("]")
        return name, index

    # -- one method per form ---------------------------------------------------------------
    def pointwise(self, op: str) -> Stmt:
        return self.finish(Stmt(op, self.values(OPS[op].arity)))

    def typed(self, op: str) -> Stmt:
        dtype = self.at.element_type()
        return self.finish(Stmt(op, self.values(OPS[op].arity), (dtype,)))

    def constant(self, op: str) -> Stmt:
        value = self.at.literal()
        return self.finish(Stmt(op, (), (value, self.at.element_type())))

    def index(self, op: str) -> Stmt:
        e = self.expression()
        self.at.expect_word("as")
        return self.finish(Stmt(op, (), (e, self.at.element_type())))

    def indirect(self, op: str) -> Stmt:
        value = self.value()
        self.at.expect_word("size")
        size = self.expression()
        wrap = self.at.take_word("wrap")
        return self.finish(Stmt(op, (value,), (size, wrap, self.at.take_word("check"))))

    def load(self, op: str) -> Stmt:
        name, index = self.element()
        return self.finish(Stmt(op, (), (name, index, self.at.take_word("unproven"))))

    def store(self, op: str) -> Stmt:
        name, index = self.element()
        self.at.expect("=")
        value = self.value()
        mode = self.at.expect_word(*STORE_MODES) if self.at.take_word("mode") else "plain"
        unproven = self.at.take_word("unproven")
        return self.finish(Stmt(op, (value,), (name, index, mode, unproven)))

    def bucketize(self, op: str) -> Stmt:
        dtype = self.at.element_type()
        value = self.value()
        self.at.expect_word("in")
        name = self.at.name("a buffer name")
        self.at.expect_word("size")
        size = self.expression()
        return self.finish(Stmt(op, (value,), (name, size, self.at.take_word("right"), dtype)))

    def reduce(self, op: str) -> Stmt:
        kind = self.at.expect_word(*REDUCTIONS)
        values = self.values(REDUCTIONS[kind].operands)
        dtype = self.at.element_type() if self.at.take_word("as") else None
        return self.finish(Stmt(op, values, (kind, dtype)))

    def reduce_part(self, op: str) -> Stmt:
        kind = self.at.expect_word(*REDUCTIONS)
        values = self.values(REDUCTIONS[kind].operands)
        self.at.expect_word("over")
        over = self.expression()
        dtype = self.at.element_type() if self.at.take_word("as") else None
        return self.finish(Stmt(op, values, (kind, dtype, over)))

    def scan(self, op: str) -> Stmt:
        combine = self.at.expect_word(*SCAN_COMBINES)
        values = self.values()
        if combine != "region":
            return self.finish(Stmt(op, values, (combine,)))
        return Stmt(op, values, (combine,), self.block())

    def sort(self, op: str) -> Stmt:
        values = self.values()
        descending = self.at.take_word("descending")
        return self.finish(Stmt(op, values, (descending, self.at.take_word("stable"))))

    def get(self, op: str) -> Stmt:
        position = self.at.integer("a position")
        return self.finish(Stmt(op, (self.value(),), (position,)))

    def masked(self, op: str) -> Stmt:
        mask = self.value()
        self.at.expect_word("else")
        other = self.at.literal()
        return Stmt(op, (mask,), (other,), self.block())

    def param(self, op: str) -> Stmt:
        return self.finish(Stmt(op, (), (self.at.integer("a position"),)))

    def region_result(self, op: str) -> Stmt:
        return self.finish(Stmt(op, self.values()))

    def assertion(self, op: str) -> Stmt:
        value = self.value()
        return self.finish(Stmt(op, (value,), (self.at.string(),)))

    def inline_asm(self, op: str) -> Stmt:
        at = self.at
        dtype = at.element_type()
        values = at.in_parens(self.value)
        asm, constraints = at.string(), at.string()
        at.expect_word("pack")
        pack = at.integer()
        attrs = (asm, constraints, dtype, at.take_word("pure"), pack)
        return self.finish(Stmt(op, values, attrs))


PARSERS: Mapping[str, Callable[[_StatementBlock, str], Stmt]] = {
    **dict.fromkeys(POINTWISE, _StatementBlock.pointwise),
    **dict.fromkeys(
        (
            "cast", "bitcast", "floor_to_int", "ceil_to_int", "trunc_to_int", "round_to_int",
            "rand", "randn", "randint",
        ),
        _StatementBlock.typed,
    ),
    "constant": _StatementBlock.constant,
    "index": _StatementBlock.index,
    "indirect": _StatementBlock.indirect,
    "load": _StatementBlock.load,
    "store": _StatementBlock.store,
    "bucketize": _StatementBlock.bucketize,
    "reduce": _StatementBlock.reduce,
    "reduce_part": _StatementBlock.reduce_part,
    "scan": _StatementBlock.scan,
    "sort": _StatementBlock.sort,
    "get": _StatementBlock.get,
    "masked": _StatementBlock.masked,
    "param": _StatementBlock.param,
    "yield": _StatementBlock.region_result,
    "assert": _StatementBlock.assertion,
    "inline_asm": _StatementBlock.inline_asm,
}  # fmt: skip
