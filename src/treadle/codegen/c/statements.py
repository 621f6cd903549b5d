"""The statements of a body in C: one row per operation, as the interpreter has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.codegen.c.body import BodyWriter
from treadle.codegen.c.ops import NEEDS_SPECIAL, bitcast, to_int
from treadle.codegen.c.scatter import (
    BITWISE,
    IN_SHADOW,
    shadow_line,
    store_line,
    wants_shadow,
)
from treadle.codegen.c.sites import users_of
from treadle.codegen.c.sort import search_lines
from treadle.codegen.c.types import converted, held, loaded
from treadle.index import Expr
from treadle.ir.body import Literal, Stmt
from treadle.ir.ops import POINTWISE
from treadle.ir.spec_facts import storage_limit
from treadle.ir.types import Buffer, DType, promote

Statement = Callable[[BodyWriter, Stmt, int], None]


COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def _pointwise(w: BodyWriter, stmt: Stmt, number: int) -> None:
    if stmt.op in NEEDS_SPECIAL:
        w.frame.helpers.add("special")
    values = [w.name_of(a) for a in stmt.args]
    types = [w.type_of(a) for a in stmt.args]
    if stmt.op in COMPARISONS and types == [DType.I64] * 2 and all(map(w.fits_32_bits, stmt.args)):
        # Half as wide: vectors of such numbers have as many lanes as those of floats.
        values, types = [f"(int32_t){v}" for v in values], [DType.I32] * 2
    w.define(number, w.pointwise(stmt.op, values, types, w.types[number]))


def _constant(w: BodyWriter, stmt: Stmt, number: int) -> None:
    value = stmt.attr("value")
    assert isinstance(value, Literal)
    w.define(number, [w.literal(value.value, w.type_of(number))])


def _cast(w: BodyWriter, stmt: Stmt, number: int) -> None:
    (a,) = stmt.args
    w.define(number, [converted(w.name_of(a), w.type_of(a), w.type_of(number))])


def _bitcast(w: BodyWriter, stmt: Stmt, number: int) -> None:
    (a,), to = stmt.args, w.type_of(number)
    given = w.type_of(a)
    if given.bits != to.bits:
        words = f"the bits of {given} cannot be read as {to}: widths differ"
        w.check("1", "RUN008", words, stmt, has_point=False)
        w.define(number, ["0"])
        return
    w.define(number, [bitcast(w.name_of(a), given, to)])


def _to_int(how: str) -> Statement:
    def statement(w: BodyWriter, stmt: Stmt, number: int) -> None:
        (a,) = stmt.args
        w.define(number, [to_int(how, w.name_of(a), w.type_of(a), w.type_of(number))])

    return statement


# ---------------------------------------------------------------------------------- indices


def _index(w: BodyWriter, stmt: Stmt, number: int) -> None:
    text, _ = w.place(stmt.attr("expr"))
    w.define(number, [converted(text, DType.I64, w.type_of(number))])


def _indirect(w: BodyWriter, stmt: Stmt, number: int) -> None:
    (a,), (_, wrap, check) = stmt.args, stmt.attrs
    given = converted(w.name_of(a), w.type_of(a), DType.I64)
    if check and not w.masks.may_stop(stmt):
        w.define(number, [given])  # nor is there anything to wrap
        return
    size, _ = w.place(stmt.attr("size"))
    w.define(number, [f"{given} < 0 ? {given} + {size} : {given}" if wrap else given])
    if check:
        users = users_of(w.body, number)
        where = f" of buffer '{users[0]}'" if users else ""
        span = "{low}..{limit}" if wrap else "0..{limit}"
        shown = "{raw}" if wrap else "{found}"
        words = f"index %{a} is {shown}, outside {span}{where}"
        v = f"v{number}"
        w.check(f"{v} < 0 || {v} >= {size}", "RUN004", words, stmt, v, size)


def _element(w: BodyWriter, stmt: Stmt) -> str:
    """The element a load or a store touches, after the test that it is inside the storage."""
    buffer = w.program.by_name[stmt.buffer]
    if w.gate is not None:
        return f"{w.frame.pointer(buffer.name)}[{w.gate.place(w, stmt.address)}]"
    text, e = w.place(stmt.address)
    if not w.masks.within(e, storage_limit(buffer, w.program), w.under):
        at = w.names.fresh("at")
        w.loops.innermost.add(f"const int64_t {at} = {text};")
        _check_inside(w, stmt, at)
        text = at
    return f"{w.frame.pointer(buffer.name)}[{text}]"


def _check_inside(w: BodyWriter, stmt: Stmt, at: str, has_point: bool = True) -> None:
    buffer = w.program.by_name[stmt.buffer]
    limit = w.limit(buffer)
    words = f"index {{found}} leaves the storage of buffer '{buffer.name}' ({{limit}} elements)"
    w.check(f"{at} < 0 || {at} >= {limit}", "RUN003", words, stmt, at, limit, has_point)


def _load(w: BodyWriter, stmt: Stmt, number: int) -> None:
    w.define(number, [loaded(w.type_of(number), _element(w, stmt))])


def _bucketize(w: BodyWriter, stmt: Stmt, number: int) -> None:
    (a,), (name, size, right, _) = stmt.args, stmt.attrs
    buffer = w.program.by_name[str(name)]
    assert isinstance(size, Expr)
    step: Expr | int = buffer.layout.strides[-1] if buffer.layout.strides else 1
    found = w.names.fresh("found")
    here = w.loops.innermost
    count, start = w.index.write(size), w.index.write(buffer.layout.offset)
    stride = w.index.write(step) if isinstance(step, Expr) else str(step)
    for end in (start, f"{start} + {stride} * ({count} - 1)"):
        at = w.names.fresh("at")
        here.add(f"const int64_t {at} = {count} > 0 ? {end} : 0;")
        if size.value != 0:
            limit = w.limit(buffer)
            words = f"index {{found}} leaves the storage of buffer '{name}' ({{limit}} elements)"
            wrong = f"{count} > 0 && ({at} < 0 || {at} >= {limit})"
            w.check(wrong, "RUN003", words, stmt, at, limit, has_point=False)
    common = promote(w.type_of(a), buffer.dtype)
    wanted = f"{found}_x"
    x = converted(w.name_of(a), w.type_of(a), common)
    here.add(f"const {held(common)} {wanted} = {x};")
    element = f"{w.frame.pointer(buffer.name)}[{start} + {stride} * {found}_mid]"
    raw = loaded(buffer.dtype, element)
    key = converted(f"({raw})", buffer.dtype, common)
    here.add(*search_lines(found, count, f"({key})", wanted, common, bool(right)))
    w.define(number, [converted(found, DType.I64, w.type_of(number))])


# ----------------------------------------------------------------------------------- random


def _random(helper: str, gives: DType) -> Statement:
    def statement(w: BodyWriter, stmt: Stmt, number: int) -> None:
        whole = [converted(w.name_of(a), w.type_of(a), DType.I64) for a in stmt.args]
        drawn = f"{helper}({', '.join(whole)})"
        w.define(number, [converted(drawn, gives, w.type_of(number))])

    return statement


# ---------------------------------------------------------------------------------- control


def _get(w: BodyWriter, stmt: Stmt, number: int) -> None:
    position = stmt.attr("position")
    assert isinstance(position, int)
    w.define(number, [w.names_of(stmt.args[0])[position]])


def _masked(w: BodyWriter, stmt: Stmt, number: int) -> None:
    value, (other,) = stmt.args[0], stmt.attrs
    assert isinstance(other, Literal)
    t = w.type_of(number)
    if w.needs_no_branch(stmt, t):
        yielded, instead = w.gated(stmt, number), w.literal(other.value, t)
        w.define(number, [f"tr_chosen_f32({w.name_of(value)}, {yielded}, {instead})"])
        return
    here = w.loops.innermost
    here.add(f"{held(t)} v{number} = {w.literal(other.value, t)};")
    inside = here.open(f"if ({w.name_of(value)})")
    w.under.append(value)
    (yielded,) = w.block(stmt.region, number + 1, inside)
    w.under.pop()
    inside.add(f"v{number} = {yielded};")
    w.name(number, (f"v{number}",))


def _param(w: BodyWriter, stmt: Stmt, number: int) -> None:
    position = stmt.attr("position")
    assert isinstance(position, int)
    w.define(number, [w.params[-1][position]])


def _inline_asm(w: BodyWriter, stmt: Stmt, number: int) -> None:
    words = "inline assembly cannot be run on this target"
    w.check("1", "RUN008", words, stmt, has_point=False)
    w.define(number, ["0"])


def _assert(w: BodyWriter, stmt: Stmt, number: int) -> None:
    words = f"assertion failed: {stmt.attr('message')}"
    w.check(f"!{w.name_of(stmt.args[0])}", "RUN007", words, stmt)


# ----------------------------------------------------------------------------------- stores


def _store(w: BodyWriter, stmt: Stmt, number: int) -> None:
    (a,), mode = stmt.args, stmt.mode
    buffer = w.program.by_name[stmt.buffer]
    if mode in BITWISE and buffer.dtype.is_float:
        words = f"{mode} has no meaning for {buffer.dtype}"
        w.check("1", "RUN008", words, stmt, has_point=False)
        return
    value = converted(w.name_of(a), w.type_of(a), buffer.dtype)
    element = _element(w, stmt)
    if mode in IN_SHADOW and _has_shadow(w, buffer):
        shadow = w.shadow(buffer)
        inside = element[element.index("[") :]
        line = shadow_line(mode, f"{shadow}{inside}", f"({value})", w.shadow_type())
        w.loops.innermost.add(line)
        return
    w.loops.innermost.add(store_line(mode, buffer.dtype, element, f"({value})"))


def _has_shadow(w: BodyWriter, buffer: Buffer) -> bool:
    """Whether a wider shadow stands for a storage: all that touches it combines in the shadow."""
    root = w.program.storage_of(buffer.name)
    touched = [s for s in w.nests.steps if root in s.loads or s.stores == root]
    if any(s.op != "store" or s.stmt.buffer != buffer.name for s in touched):
        return False
    modes = {s.stmt.mode for s in touched}
    return modes <= IN_SHADOW and any(wants_shadow(mode, buffer.dtype) for mode in modes)


STATEMENTS: Mapping[str, Statement] = {
    **dict.fromkeys(POINTWISE, _pointwise),
    "constant": _constant,
    "cast": _cast,
    "bitcast": _bitcast,
    "floor_to_int": _to_int("floor"),
    "ceil_to_int": _to_int("ceil"),
    "trunc_to_int": _to_int("trunc"),
    "round_to_int": _to_int("round"),
    "index": _index,
    "indirect": _indirect,
    "load": _load,
    "store": _store,
    "bucketize": _bucketize,
    "rand": _random("tr_rand", DType.F32),
    "randn": _random("tr_randn", DType.F32),
    "randint": _random("tr_randint", DType.I64),
    "get": _get,
    "masked": _masked,
    "param": _param,
    "assert": _assert,
    "inline_asm": _inline_asm,
}
"""How each statement is written; reductions, scans and sorts belong to the passes of a body."""
