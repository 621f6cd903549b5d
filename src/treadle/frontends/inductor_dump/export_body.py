"""Bodies of loops as the bodies of a dump: the inverse of `import_body`.

    %0 = load x[16*i0 + i1]      x is bf16      load = ops.load('x', get_index)
    %1 = cast f32 %0
    %2 = add %1, %1                             add = ops.add(load, load)
    store y[16*i0 + i1] = %2                    store = ops.store('y', get_index_1, add, None)

A dump computes on bf16 and f16 in f32. So a value of such a type is an f32 there; making it one is
said by nothing, and what rounds here is said with a `to_dtype` that uses no compute types.
Blocks of a dump cannot use values of the block around them: those are computed again inside.
What has no form raises `UnsayableError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from treadle.frontends.inductor_dump import model
from treadle.frontends.inductor_dump.dialect import Dialect
from treadle.frontends.inductor_dump.export_fx import FxNames
from treadle.frontends.inductor_dump.import_body import (
    REDUCTIONS,
    ROUND_TO_INT,
    BufferPlace,
    compute_type,
    indirect_size,
)
from treadle.frontends.inductor_dump.rederive_access import UnsayableError
from treadle.index import Const, Expr, Symbol, indirect, loop, substitute
from treadle.index.expr import IntLike
from treadle.ir.body import Body, Literal, Stmt, value_symbol
from treadle.ir.ops import OPS, POINTWISE
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import ValueType, infer_types

OF_BOOLS: Mapping[str, str] = {"bitwise_and": "and_", "bitwise_or": "or_", "bitwise_xor": "xor"}
"""What the peer calls these where masks are combined."""
REDUCTION_NAMES = {ours: theirs for theirs, ours in REDUCTIONS.items()}
EXACT = frozenset({
    "identity", "neg", "abs", "maximum", "minimum", "relu", "where", "sign", "copysign",
    "floor", "ceil", "trunc", "round", "frexp",
})  # fmt: skip
"""Operations whose result has no more digits than their operands."""
EXACT_REDUCTIONS = frozenset({"max", "min", "any", "all", "argmax", "argmin", "xor_sum"})
INDEX_KINDS = frozenset({DType.F32, DType.F64, DType.BOOL})
DIGITS = {DType.BF16: 8, DType.F16: 11}
"""Binary digits of the types that a dump computes in f32."""


@dataclass(frozen=True)
class Context:
    """What a body needs to know of the rest of the program."""

    place: Callable[[str], tuple[str, Expr]]
    """The dump's name of a buffer, and the storage index at which that begins."""
    place_of: Callable[[str], BufferPlace]
    """What a reader of the dump will take the name to be."""
    stored: Mapping[str, str]
    """The name under which a buffer is stored to."""
    buffers: Mapping[str, Buffer]
    said: Callable[[Expr], Expr]
    dialect: Dialect


def export_body(body: Body, context: Context) -> model.LoopBody:
    """The body as a dump shows it."""
    explicit = _used_as_values(body)
    while True:
        writer = DumpBodyWriter(body, context, explicit)
        found = writer.written()
        missing = writer.wraps_that_are_lost(found)
        if not missing:
            return found
        explicit |= missing


def _used_as_values(body: Body) -> set[int]:
    """Indirect values that wrap and are also operands: there the wrapping must show."""
    wraps = {at.number for at in body.walk() if at.stmt.op == "indirect" and at.stmt.attr("wrap")}
    used = {a for at in body.walk() for a in at.stmt.args}
    return {n for n in wraps & used if n is not None}


class DumpBodyWriter:
    """One walk over the statements of a body."""

    def __init__(self, body: Body, context: Context, explicit: set[int]) -> None:
        self.body, self.context, self.explicit = body, context, explicit
        self.types: list[ValueType] = infer_types(body, context.buffers)
        letter = context.dialect.loop_variable
        self.loops = [loop(f"{letter}{k}") for k in range(len(body.space))]
        self.known: dict[Symbol, IntLike] = dict(zip(body.space.vars, self.loops, strict=True))
        self.indices: dict[Expr, str] = {}
        self.blocks: list[model.BodyBlock] = []
        self.statements: list[list[model.Statement]] = []
        self.fx: list[FxNames] = []
        self.vars: list[dict[int, str]] = []
        self.defined: dict[int, Stmt] = {}
        self.slots: dict[int, int] = {}
        self.parts = 1  # the peer counts get_index as the first part of a body
        self.counter = 0
        self.seeds = _seeds(body)
        self.later = _cast_at_once(body)
        reduces = any(at.stmt.op == "reduce" for at in body.walk())
        inner = set(body.reduce.vars)
        self.stores_results = reduces and not any(inner & e.free for _, e, _, _ in body.stores())

    # -- the whole -------------------------------------------------------------------------
    def written(self) -> model.LoopBody:
        """The body."""
        self.block("body", self.body.stmts)
        said, space = self.context.said, self.body.space
        extents = [model.Index.of(said(n)) for n in space.extents]
        ranges = tuple([(v.name, n) for v, n in zip(self.loops, extents, strict=True)])
        indices = tuple([(name, model.Index.of(e)) for e, name in self.indices.items()])
        *inner, body = self.blocks
        return model.LoopBody(ranges, indices, (body, *inner))

    def block(self, name: str, stmts: Sequence[Stmt]) -> None:
        """One `def`, with what it returns."""
        self.statements.append([])
        self.fx.append(FxNames())
        self.vars.append({})
        returned: model.Argument = model.Verbatim("None")
        for stmt in stmts:
            if stmt.op == "yield":
                returned = self.value(stmt.args[0])
                break
            number = self.counter
            self.counter += stmt.definition.produces
            if stmt.definition.produces:
                self.defined[number] = stmt
            result = self.statement(number, stmt)
            if stmt.op == "store" and result is not None:
                is_plain = not result.startswith("store_reduction")
                returned = model.ValueName(result) if is_plain else model.Verbatim("None")
        statements = (*self.statements.pop(), model.Return(returned))
        self.fx.pop()
        self.vars.pop()
        self.blocks.append(model.BodyBlock(name, statements))

    def wraps_that_are_lost(self, body: model.LoopBody) -> set[int]:
        """Indirect values that add their size to negative ones, where a reader would not."""
        found = set()
        for number, slot in self.slots.items():
            if number in self.explicit or not self.defined[number].attr("wrap"):
                continue
            size, wraps = indirect_size(body, self.context.place_of, indirect(f"indirect{slot}"))
            wanted = self.defined[number].attr("size")
            assert isinstance(wanted, Expr)
            if not wraps or size is not self.context.said(wanted):
                found.add(number)
        return found

    # -- statements ------------------------------------------------------------------------
    def statement(self, number: int, stmt: Stmt) -> str | None:
        """Write one statement; gives the name of its result."""
        special = SPECIAL.get(stmt.op)
        if special is not None:
            name = special(self, number, stmt)
        elif stmt.op in POINTWISE:
            args = tuple([self.value(a) for a in stmt.args])
            is_bool = self.types[number] is DType.BOOL
            name = self.call(OF_BOOLS.get(stmt.op, stmt.op) if is_bool else stmt.op, args)
            if stmt.op not in EXACT:
                name = self.rounded(name, self.types[number])
        else:
            raise UnsayableError(f"{stmt.op} has no form in a dump")
        if name is not None and stmt.definition.produces:
            self.vars[-1][number] = name
        return name

    def value(self, number: int) -> model.ValueName:
        """A value by its name in this block; one from outside is computed again."""
        if number not in self.vars[-1]:
            stmt = self.defined[number]
            if stmt.op not in POINTWISE and stmt.op not in AGAIN:
                raise UnsayableError(f"{stmt.op} outside a masked block, used inside")
            self.statement(number, stmt)
        return model.ValueName(self.vars[-1][number])

    def call(self, op: str, args: Sequence[model.Argument], keywords: model.Keywords = ()) -> str:
        """Append `name = ops.op(args)`."""
        name = self.fx[-1].fresh(op)
        self.statements[-1].append(model.OpCall(name, op, tuple(args), keywords))
        return name

    def index(self, e: Expr) -> model.ValueName:
        """Append `get_index = self.get_index('index0')`."""
        name = self.fx[-1].fresh("get_index")
        self.statements[-1].append(model.GetIndex(name, self.index_name(e)))
        return model.ValueName(name)

    def index_name(self, e: Expr) -> str:
        """The number under which the body lists an index; equal ones share it."""
        said = substitute(self.context.said(e), self.known)
        return self.indices.setdefault(said, f"index{len(self.indices)}")

    def type_of(self, number: int) -> DType:
        """The type of a single value in the program."""
        found = self.types[number]
        if not isinstance(found, DType):
            raise UnsayableError("several results where one was expected")
        return found

    def to_dtype(self, name: str, wanted: DType, source: DType, rounds: bool = False) -> str:
        """Append a conversion; one that rounds keeps no more digits than the type has."""
        keywords: list[tuple[str, model.Argument]] = [("src_dtype", _torch(source))]
        if rounds:
            keywords.append(("use_compute_types", model.Verbatim("False")))
        elif self.context.dialect.shows_distances:
            keywords.append(("use_compute_types", model.Verbatim("True")))
        return self.call("to_dtype", (model.ValueName(name), _torch(wanted)), tuple(keywords))

    def rounded(self, name: str, wanted: ValueType, source: DType = DType.F32) -> str:
        """The value rounded to its type, if a dump would keep more of it."""
        if not isinstance(wanted, DType) or compute_type(wanted) is wanted:
            return name
        return self.to_dtype(name, wanted, source, rounds=True)


def _seeds(body: Body) -> set[int]:
    """Loads that are nothing but the seed of random numbers."""
    uses: dict[int, set[bool]] = {}
    for at in body.walk():
        for position, a in enumerate(at.stmt.args):
            is_seed = position == 0 and OPS[at.stmt.op].family.value == "random"
            uses.setdefault(a, set()).add(is_seed)
    return {n for n, seen in uses.items() if seen == {True}}


def _cast_at_once(body: Body) -> set[int]:
    """Index values that are only made a number of another kind: dumps say both in one."""
    indices = {at.number for at in body.walk() if at.stmt.op == "index" and at.stmt.attr("dtype")
               is DType.I64}  # fmt: skip
    uses: dict[int, list[Stmt]] = {}
    for at in body.walk():
        for a in at.stmt.args:
            uses.setdefault(a, []).append(at.stmt)
    return {
        n
        for n, (user, *others) in uses.items()
        if n in indices and not others and user.op == "cast" and user.attr("dtype") in INDEX_KINDS
    }


def _torch(t: DType) -> model.DumpDType:
    return model.DumpDType(t.torch_name)


def _flag(value: object) -> model.Verbatim:
    return model.Verbatim(str(bool(value)))


def is_exact(value: object, t: DType) -> bool:
    """Whether a literal is a value of type `t` as it stands."""
    if t not in DIGITS or not isinstance(value, float) or value == 0 or not math.isfinite(value):
        return t not in DIGITS or not isinstance(value, int) or abs(value) <= 2 ** DIGITS[t]
    mantissa, exponent = math.frexp(value)
    fits = -13 <= exponent <= 15 if t is DType.F16 else -125 <= exponent <= 127
    return fits and (mantissa * 2 ** DIGITS[t]).is_integer()


# --------------------------------------------------------------------- statements by operation


def _constant(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    literal, element = stmt.attrs
    assert isinstance(literal, Literal)
    assert isinstance(element, DType)
    value = literal.value
    exact = is_exact(value, element)
    shown = element if compute_type(element) is element else DType.F32
    name = w.call("constant", (model.Verbatim(str(value)), _torch(shown)))
    return name if exact else w.rounded(name, element)


def _cast(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    (a,) = stmt.args
    wanted, source = stmt.attr("dtype"), w.type_of(a)
    assert isinstance(wanted, DType)
    if a in w.later:
        e = w.defined[a].attr("expr")
        assert isinstance(e, Expr)
        return w.call("index_expr", (w.index(e), _torch(wanted)))
    name = w.value(a).name
    if wanted is source or (compute_type(source) is wanted):
        return name
    if compute_type(wanted) is not wanted:
        return w.to_dtype(name, wanted, source, rounds=True)
    return w.to_dtype(name, wanted, source)


def _bitcast(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    wanted, source = stmt.attr("dtype"), w.type_of(stmt.args[0])
    assert isinstance(wanted, DType)
    value = w.value(stmt.args[0])
    return w.call("to_dtype_bitcast", (value, _torch(wanted), _torch(source)))


def _to_int(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    wanted = stmt.attr("dtype")
    assert isinstance(wanted, DType)
    return w.call(stmt.op, (w.value(stmt.args[0]), _torch(wanted)))


def _index(w: DumpBodyWriter, number: int, stmt: Stmt) -> str | None:
    e, element = stmt.attrs
    assert isinstance(e, Expr)
    assert isinstance(element, DType)
    if number in w.later:
        return None
    at = w.index(e)
    name = w.call("index_expr", (at, _torch(element)))
    return w.rounded(name, element)


def _indirect(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    size, wrap, _ = stmt.attrs
    assert isinstance(size, Expr)
    (a,) = stmt.args
    name = w.value(a).name
    if wrap and number in w.explicit:
        name = _wrapped(w, name, w.type_of(a), size)
    slot = w.slots.setdefault(number, len(w.slots))
    w.known[value_symbol(number)] = indirect(f"indirect{slot}")
    result = w.fx[-1].fresh(f"set_indirect{slot}")
    w.statements[-1].append(model.SetIndirect(result, slot, model.ValueName(name)))
    w.parts += 1
    return name


def _wrapped(w: DumpBodyWriter, name: str, t: DType, size: Expr) -> str:
    """Negative positions count from the end."""
    if t is not DType.I64:
        name = w.to_dtype(name, DType.I64, t)
    zero = model.ValueName(w.call("constant", (model.Verbatim("0"), _torch(DType.I64))))
    end = model.ValueName(w.call("index_expr", (w.index(size), _torch(DType.I64))))
    value = model.ValueName(name)
    below = model.ValueName(w.call("lt", (value, zero)))
    moved = model.ValueName(w.call("add", (value, end)))
    return w.call("where", (below, moved, value))


def _load(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    buffer, e, _ = stmt.attrs
    assert isinstance(e, Expr)
    name, start = w.context.place(str(buffer))
    e = e - start
    if number in w.seeds and w.type_of(number) is DType.I64 and e.value is not None:
        w.index_name(e)
        return w.call("load_seed", (model.QuotedText(name), model.Verbatim(str(e.value))))
    return w.call("load", (model.QuotedText(name), w.index(e)))


def _store(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    buffer, e, mode, _ = stmt.attrs
    assert isinstance(e, Expr)
    _, start = w.context.place(str(buffer))
    name = model.QuotedText(w.context.stored[str(buffer)])
    value = w.value(stmt.args[0])
    at = w.index(e - start)
    if mode == "plain" and w.stores_results:
        return w.call("store_reduction", (name, at, value))
    how = model.Verbatim("None") if mode == "plain" else model.QuotedText(str(mode))
    return w.call("store", (name, at, value, how))


def _reduce(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    kind, _ = stmt.attrs
    types, given = w.types[number], w.type_of(stmt.args[0])
    result = types[0] if isinstance(types, tuple) else types
    assert isinstance(result, DType)
    # Summed in f64 and rounded once: f32 in between would round twice.
    is_narrow = compute_type(result) is not result and kind not in EXACT_REDUCTIONS
    shown = DType.F64 if is_narrow else compute_type(result)
    values = tuple([w.value(a) for a in stmt.args])
    packed = values[0] if len(values) == 1 else model.Pack(values)
    what = model.QuotedText(REDUCTION_NAMES.get(str(kind), str(kind)))
    name = w.call("reduction", (_torch(shown), _torch(compute_type(given)), what, packed))
    return w.rounded(name, types, DType.F64) if is_narrow else name


def _get(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    (a,), position = stmt.args, stmt.attr("position")
    assert isinstance(position, int)
    name = w.fx[-1].fresh("getitem")
    w.statements[-1].append(model.GetItem(name, w.value(a).name, position))
    source = w.defined[a]
    is_narrow = source.op == "reduce" and source.attr("kind") not in EXACT_REDUCTIONS
    return w.rounded(name, w.types[number], DType.F64) if is_narrow else name


def _scan(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    """The combination is not shown: dumps do not have it."""
    values = tuple([w.value(a) for a in stmt.args])
    types = tuple([_torch(compute_type(w.type_of(a))) for a in stmt.args])
    part = f"scan{w.parts}"
    w.parts += 1
    name = w.fx[-1].fresh(part)
    packs = (model.Pack(types), model.Pack(values))
    w.statements[-1].append(model.BodyCall(name, part, packs))
    w.counter += _values_in(stmt.region)
    if len(values) > 1:
        return name
    item = w.fx[-1].fresh("getitem")
    w.statements[-1].append(model.GetItem(item, name, 0))
    return item


def _values_in(stmts: Sequence[Stmt]) -> int:
    return sum(s.definition.produces + _values_in(s.region) for s in stmts)


def _sort(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    descending, stable = stmt.attrs
    values = tuple([w.value(a) for a in stmt.args])
    types = tuple([_torch(compute_type(w.type_of(a))) for a in stmt.args])
    flags = (_flag(stable), _flag(descending))
    return w.call("sort", (model.Pack(types), model.Pack(values), *flags))


def _masked(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    literal = stmt.attr("other")
    assert isinstance(literal, Literal)
    other, mask, result = literal.value, w.value(stmt.args[0]), w.type_of(number)
    if isinstance(other, float) and not result.is_float:
        if not other.is_integer():
            raise UnsayableError(f"{other} where a mask does not hold, among whole numbers")
        other = int(other)
    block = f"masked_subblock{w.parts}"
    w.parts += 1
    w.block(block, stmt.region)
    name = w.fx[-1].fresh(block)
    w.statements[-1].append(model.MaskedCall(name, block, mask, model.Verbatim(str(other))))
    return name if is_exact(other, result) else w.rounded(name, result)


def _bucketize(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    buffer, size, right, element = stmt.attrs
    assert isinstance(size, Expr)
    assert isinstance(element, DType)
    table = w.context.buffers[str(buffer)]
    if size is not table.numel or table.view_of is not None:
        raise UnsayableError("a bucketize into a part of a buffer")
    strides = table.layout.strides
    value = w.value(stmt.args[0])
    step = strides[-1] if strides else Const(1)
    at = [w.index(size), w.index(size), w.index(step)]
    name, _ = w.context.place(str(buffer))
    none = model.Verbatim("None")
    packed = model.Pack((model.QuotedText(name), *at))
    rest = (model.Verbatim("0"), _torch(element), _flag(right), none, none)
    return w.call("bucketize", (value, packed, *rest))


def _random(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    usual = DType.I64 if stmt.op == "randint" else DType.F32
    if stmt.attr("dtype") is not usual:
        raise UnsayableError(f"{stmt.op} of another type than {usual}")
    args = tuple([w.value(a) for a in stmt.args])
    return w.call("randint64" if stmt.op == "randint" else stmt.op, args)


def _assert(w: DumpBodyWriter, number: int, stmt: Stmt) -> str:
    message = "".join(c for c in str(stmt.attr("message")) if c not in "'\"\\\n")
    return w.call("device_assert_async", (w.value(stmt.args[0]), model.QuotedText(message)))


SPECIAL: Mapping[str, Callable[[DumpBodyWriter, int, Stmt], str | None]] = {
    "constant": _constant,
    "cast": _cast,
    "bitcast": _bitcast,
    "index": _index,
    "indirect": _indirect,
    "load": _load,
    "store": _store,
    "reduce": _reduce,
    "get": _get,
    "scan": _scan,
    "sort": _sort,
    "masked": _masked,
    "bucketize": _bucketize,
    "rand": _random,
    "randn": _random,
    "randint": _random,
    "assert": _assert,
    **dict.fromkeys(ROUND_TO_INT, _to_int),
}
AGAIN = frozenset({"constant", "cast", "bitcast", "index", "load", "bucketize", *ROUND_TO_INT})
"""What may be computed a second time inside a block."""
