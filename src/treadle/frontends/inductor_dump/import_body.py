"""Loop bodies of a dump as executable bodies.

    load = ops.load('x', get_index)            %0 = load x[16*i0 + i1]     x is bf16
                                               %1 = cast f32 %0
    add = ops.add(load, load)                  %2 = add %1, %1
    store = ops.store('y', get_index_1, add)   store y[16*i0 + i1] = %2

The peer computes on bf16 and f16 in f32 and rounds only where it stores; here every operation
rounds to its type, so the f32 in between is said with casts. Sizes of indirect values are not in
the dump: see `indirect_size`. What has no meaning here raises `UnsayableError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from treadle.frontends.inductor_dump import model
from treadle.frontends.inductor_dump.rederive_access import UnsayableError
from treadle.index import Const, Expr, Facts, Kind, Symbol, coefficient, loop, substitute
from treadle.index.expr import IntLike
from treadle.ir.body import Body
from treadle.ir.build_body import BodyBuilder, Value
from treadle.ir.ops import POINTWISE, STORE_MODES
from treadle.ir.types import Buffer, DType, dtype
from treadle.ir.typing import BodyTypeError

RENAMED: Mapping[str, str] = {
    "and_": "bitwise_and", "or_": "bitwise_or", "xor": "bitwise_xor", "lshift":
    "bitwise_left_shift", "rshift": "bitwise_right_shift", "div_rn": "truediv", "mul_rn": "mul",
    "mod": "fmod",
}  # fmt: skip
REDUCTIONS: Mapping[str, str] = {
    "welford_reduce": "welford", "online_softmax_reduce": "online_softmax",
}  # fmt: skip
ROUND_TO_INT = frozenset({"floor_to_int", "ceil_to_int", "trunc_to_int", "round_to_int"})
NUMBERS: Mapping[str, bool | float] = {
    "True": True, "False": False, "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """Where a name of the body really lives: a buffer, and the element at which it begins."""

    buffer: Buffer
    start: Expr
    limit: Expr
    """How many elements the storage has."""


def compute_type(t: DType) -> DType:
    """The type in which the peer computes on values of type `t`."""
    return DType.F32 if t in (DType.F16, DType.BF16) else t


def import_body(
    detail: model.DumpLoop, place_of: Callable[[str], BufferPlace], buffers: Mapping[str, Buffer]
) -> Body:
    """The body of a loop node; `place_of` says where its buffers live."""
    assert detail.body is not None, "only loops with a body are imported as loops"
    iteration, reduction = _extents(detail)
    builder = BodyBuilder(buffers, iteration, reduction)
    names = [loop(name) for name, _ in detail.body.ranges]
    translation = _Translation(
        detail.body, builder, place_of, dict(zip(names, builder.vars, strict=True))
    )
    try:
        translation.run("body")
        return builder.build()
    except (BodyTypeError, ValueError) as problem:
        raise UnsayableError(str(problem)) from None


def _extents(detail: model.DumpLoop) -> tuple[list[Expr], list[Expr]]:
    """Extents of the iteration loops and of the reduction loops."""
    assert detail.body is not None, "only loops with a body are imported as loops"
    extents: list[Expr] = []
    for name, extent in detail.body.ranges:
        if extent.expr is None:
            raise UnsayableError(f"the extent {extent.text} of {name}")
        extents.append(extent.expr)
    if not isinstance(detail.sizes, model.Bracketed) or len(detail.sizes.items) != 2:
        raise UnsayableError("its sizes have another form")
    reduced = detail.sizes.items[1]
    count = len(reduced.items) if isinstance(reduced, model.Bracketed) else 0
    first = detail.sizes.items[0]
    if not isinstance(first, model.Bracketed) or len(first.items) + count != len(extents):
        raise UnsayableError("its sizes do not fit its loops")
    return extents[: len(extents) - count], extents[len(extents) - count :]


class _Translation:
    """One walk over the statements; `values` are those in view."""

    def __init__(
        self,
        body: model.LoopBody,
        builder: BodyBuilder,
        place_of: Callable[[str], BufferPlace],
        loops: dict[Symbol, Symbol],
    ) -> None:
        self.body, self.builder, self.place_of = body, builder, place_of
        self.blocks = {block.name: block for block in body.blocks}
        self.named = dict(body.indices)
        self.known: dict[Symbol, IntLike] = dict(loops)
        self.values: dict[str, Value] = {}
        self.indices: dict[str, Expr] = {}
        self.facts = (builder.domain + builder.reduce).facts
        self.depth = 0
        self.alone: set[str] = set()
        """Names of packs of one value."""

    # -- statements ------------------------------------------------------------------------
    def run(self, block: str) -> Value | None:
        """Translate a block; gives the value it returns."""
        if block not in self.blocks:
            raise UnsayableError(f"the block {block} is missing")
        if self.depth > 32:
            raise UnsayableError("its blocks call each other too deeply")
        for statement in self.blocks[block].statements:
            if isinstance(statement, model.Return):
                found = statement.value
                return self.values.get(found.name) if isinstance(found, model.ValueName) else None
            self.statement(statement)
        return None

    def statement(self, s: model.Statement) -> None:
        """Translate one statement."""
        if isinstance(s, model.GetIndex):
            self.indices[s.result] = self.index_named(s.index)
        elif isinstance(s, model.OpCall):
            found = self.call(s)
            if found is not None:
                self.values[s.result] = found
        elif isinstance(s, model.SetIndirect):
            self.set_indirect(s)
        elif isinstance(s, model.GetItem):
            source = self.named_value(s.source)
            is_alone = s.source in self.alone and s.position == 0
            self.values[s.result] = source if is_alone else source[s.position]
        elif isinstance(s, model.MaskedCall):
            self.values[s.result] = self.masked(s)
        elif isinstance(s, model.BodyCall) and s.target.startswith("scan"):
            self.values[s.result] = self.scan(s)
        else:
            what = s.target if isinstance(s, model.BodyCall) else getattr(s, "text", "a statement")
            raise UnsayableError(f"{what}: what it does is not in the dump")

    def scan(self, s: model.BodyCall) -> Value:
        """A scan; a dump shows what it takes and gives, not how it combines two values."""
        types, values = (s.args[k] if k < len(s.args) else None for k in (0, 1))
        if not isinstance(types, model.Pack) or not isinstance(values, model.Pack):
            raise UnsayableError("a scan of another form")
        wanted = [compute_type(_dtype(t)) for t in types.items]
        given = [self.value(v) for v in values.items]
        if len(given) != len(wanted) or not given:
            raise UnsayableError("a scan with other values than types")
        found = [v if v.dtype is t else v.to(t) for v, t in zip(given, wanted, strict=True)]
        if len(found) == 1:
            self.alone.add(s.result)
        return self.builder.scan("unknown", *found)

    def index_named(self, name: str) -> Expr:
        index = self.named.get(name)
        if index is None or index.expr is None:
            raise UnsayableError(f"the index {name if index is None else index.text}")
        missing = [
            s.name for s in index.expr.free if s.kind is not Kind.SIZE and s not in self.known
        ]
        if missing:
            raise UnsayableError(f"{missing[0]} in {index.text} is not defined yet")
        return substitute(index.expr, self.known)

    def set_indirect(self, s: model.SetIndirect) -> None:
        symbol = next((x for x in self._all_symbols() if x.name == f"indirect{s.slot}"), None)
        if symbol is None:
            return  # no index uses it
        value = self.value(s.value)
        size, is_exact = indirect_size(self.body, self.place_of, symbol)
        checked = size is not None
        limit = size if size is not None else Const(2**62)
        self.known[symbol] = self.builder.indirect(value, limit, wrap=is_exact, check=checked)
        if checked:
            bound = self.known[symbol]
            assert isinstance(bound, Symbol)
            extents: dict[Symbol, Expr] = dict(self.facts.extents)
            self.facts = Facts({**extents, bound: limit})

    def _all_symbols(self) -> set[Symbol]:
        found: set[Symbol] = set()
        for index in self.named.values():
            if index.expr is not None:
                found |= index.expr.free
        return found

    def masked(self, s: model.MaskedCall) -> Value:
        other = self.number(s.other)
        # A block has names of its own, which may be those of values outside.
        outer, values, self.depth = dict(self.indices), dict(self.values), self.depth + 1

        def region() -> Value:
            found = self.run(s.block)
            if found is None:
                raise UnsayableError(f"the block {s.block} returns nothing")
            if isinstance(other, float) and not found.dtype.is_float:
                return found.to(DType.F32)
            return found

        result = self.builder.masked(self.as_bool(self.value(s.mask)), other, region)
        self.indices, self.values, self.depth = outer, values, self.depth - 1
        return result

    # -- arguments -------------------------------------------------------------------------
    def named_value(self, name: str) -> Value:
        if name not in self.values:
            raise UnsayableError(f"{name} is not a value")
        return self.values[name]

    def value(self, argument: model.Argument) -> Value:
        if isinstance(argument, model.ValueName):
            if argument.name in self.indices and argument.name not in self.values:
                return self.builder.index(self.indices[argument.name])
            return self.named_value(argument.name)
        found = self.number(argument)
        return self.builder.constant(found, _type_of(found))

    def number(self, argument: model.Argument) -> bool | int | float:
        if isinstance(argument, model.Verbatim):
            text = argument.text
            if text in NUMBERS:
                return NUMBERS[text]
            try:
                return int(text)
            except ValueError:
                pass
            try:
                return float(text)
            except ValueError:
                pass
        raise UnsayableError("a number was expected")

    def place(self, call: model.OpCall) -> tuple[BufferPlace, Expr, bool]:
        """Buffer, storage index, and whether the access is not provably inside."""
        name = call.args[0] if call.args else None
        at = call.args[1] if len(call.args) > 1 else None
        if not isinstance(name, model.QuotedText):
            raise UnsayableError(f"ops.{call.op} names no buffer")
        place = self.place_of(name.text)
        if isinstance(at, model.ValueName) and at.name in self.indices:
            index = self.indices[at.name]
        else:
            index = Const(int(self.number(at))) if at is not None else Const(0)
        index = index + place.start
        return place, index, not self.facts.within(index, place.limit)

    def as_bool(self, value: Value) -> Value:
        return value if value.dtype is DType.BOOL else value.to(DType.BOOL)

    # -- operations ------------------------------------------------------------------------
    def call(self, call: model.OpCall) -> Value | None:
        """The value of an operation; None if it has none."""
        special = SPECIAL.get(call.op)
        if special is not None:
            try:
                return special(self, call)
            except IndexError:
                raise UnsayableError(f"ops.{call.op} with too few arguments") from None
        name = RENAMED.get(call.op, call.op)
        if name not in POINTWISE or call.keywords:
            raise UnsayableError(f"ops.{call.op}")
        operands = [self.operand(a) for a in call.args]
        if name == "where" and operands and isinstance(operands[0], Value):
            operands[0] = self.as_bool(operands[0])
        return self.builder.op(name, *operands)

    def operand(self, argument: model.Argument) -> Value | bool | int | float:
        if isinstance(argument, model.ValueName):
            return self.value(argument)
        return self.number(argument)


def _type_of(number: bool | int | float) -> DType:
    if isinstance(number, bool):
        return DType.BOOL
    return DType.I64 if isinstance(number, int) else DType.F32


def _dtype(argument: model.Argument | None) -> DType:
    if not isinstance(argument, model.DumpDType):
        raise UnsayableError("an element type was expected")
    return dtype(argument.name)  # a ValueError for a type unknown here


def _argument(call: model.OpCall, position: int, keyword: str) -> model.Argument | None:
    if len(call.args) > position:
        return call.args[position]
    return dict(call.keywords).get(keyword)


def _flag(argument: model.Argument | None, default: bool) -> bool:
    if isinstance(argument, model.Verbatim) and argument.text in ("True", "False"):
        return argument.text == "True"
    return default


def _load(t: _Translation, call: model.OpCall) -> Value:
    place, index, unproven = t.place(call)
    value = t.builder.load_at(place.buffer, index, unproven and t.depth == 0)
    wide = compute_type(value.dtype)
    return value if wide is value.dtype else value.to(wide)


def _store(t: _Translation, call: model.OpCall) -> None:
    place, index, unproven = t.place(call)
    mode = _argument(call, 3, "mode")
    text = mode.text if isinstance(mode, model.QuotedText) else "plain"
    if text not in STORE_MODES:
        raise UnsayableError(f"a store of mode {text}")
    t.builder.store_at(place.buffer, index, t.value(call.args[2]), text, unproven)


def _constant(t: _Translation, call: model.OpCall) -> Value:
    number, element = t.number(call.args[0]), compute_type(_dtype(_argument(call, 1, "dtype")))
    if element.is_float and not isinstance(number, bool):
        number = float(number)
    return t.builder.constant(number, element)


def _index_expr(t: _Translation, call: model.OpCall) -> Value:
    at = call.args[0]
    if isinstance(at, model.ValueName) and at.name in t.indices:
        index: Expr = t.indices[at.name]
    else:
        index = Const(int(t.number(at)))
    wanted = compute_type(_dtype(_argument(call, 1, "dtype")))
    if wanted.is_float or wanted is DType.BOOL:
        return t.builder.index(index).to(wanted)
    return t.builder.index(index, wanted)


def _to_dtype(t: _Translation, call: model.OpCall) -> Value:
    value, wanted = t.value(call.args[0]), _dtype(_argument(call, 1, "dtype"))
    if not _flag(_argument(call, 3, "use_compute_types"), True):
        value = value.to(wanted)  # rounds for real
    wide = compute_type(wanted)
    return value if value.dtype is wide else value.to(wide)


def _bitcast(t: _Translation, call: model.OpCall) -> Value:
    value = t.value(call.args[0])
    wanted, source = _dtype(_argument(call, 1, "dtype")), _dtype(_argument(call, 2, "src_dtype"))
    value = value if value.dtype is source else value.to(source)
    found = t.builder.bitcast(value, wanted)
    wide = compute_type(wanted)
    return found if wide is wanted else found.to(wide)


def _to_int(t: _Translation, call: model.OpCall) -> Value:
    how = call.op.removesuffix("_to_int")
    return t.builder.to_int(how, t.value(call.args[0]), _dtype(_argument(call, 1, "dtype")))


def _reduction(t: _Translation, call: model.OpCall) -> Value:
    wanted, kind = compute_type(_dtype(call.args[0])), call.args[2]
    if not isinstance(kind, model.QuotedText):
        raise UnsayableError("a reduction without a kind")
    given = call.args[3]
    parts = given.items if isinstance(given, model.Pack) else (given,)
    name = REDUCTIONS.get(kind.text, kind.text)
    values = [t.value(a) for a in parts]
    element = None if name in ("any", "all", "argmax", "argmin") else wanted
    return t.builder.reduce_by(name, *values, element=element)


def _sort(t: _Translation, call: model.OpCall) -> Value:
    values = call.args[1]
    if not isinstance(values, model.Pack) or len(call.args) < 4:
        raise UnsayableError("a sort of another form")
    stable, descending = _flag(call.args[2], False), _flag(call.args[3], False)
    return t.builder.sort(*[t.value(v) for v in values.items], descending=descending, stable=stable)


def _bucketize(t: _Translation, call: model.OpCall) -> Value:
    table, start = call.args[1], call.args[2]
    if not isinstance(table, model.Pack) or not isinstance(table.items[0], model.QuotedText):
        raise UnsayableError("a bucketize of another form")
    has_sorter = any(isinstance(a, model.QuotedText | model.Pack) for a in call.args[5:])
    if has_sorter or not isinstance(start, model.Verbatim) or start.text != "0":
        raise UnsayableError("a bucketize with a sorter or into one of several tables")
    place = t.place_of(table.items[0].text)
    right = _flag(_argument(call, 4, "right"), False)
    return t.builder.bucketize(
        t.value(call.args[0]), place.buffer, place.buffer.numel, right, _dtype(call.args[3])
    )


def _random(t: _Translation, call: model.OpCall) -> Value:
    return t.builder.random(call.op, t.value(call.args[0]), t.value(call.args[1]))


def _randint(t: _Translation, call: model.OpCall) -> Value:
    seed, offset, low, high = (t.value(a) for a in call.args)
    return t.builder.randint(seed, offset, low, high)


def _assert(t: _Translation, call: model.OpCall) -> None:
    message = (
        call.args[1].text if isinstance(call.args[1], model.QuotedText) else "assertion failed"
    )
    t.builder.check(t.as_bool(t.value(call.args[0])), message)


def _nothing(t: _Translation, call: model.OpCall) -> None:
    """A bounds check: the indirect value that it belongs to is checked already."""


SPECIAL: Mapping[str, Callable[[_Translation, model.OpCall], Value | None]] = {
    "load": _load,
    "load_seed": _load,
    "store": _store,
    "store_reduction": _store,
    "constant": _constant,
    "index_expr": _index_expr,
    "value_expr": _index_expr,
    "to_dtype": _to_dtype,
    "to_dtype_bitcast": _bitcast,
    "reduction": _reduction,
    "sort": _sort,
    "bucketize": _bucketize,
    "rand": _random,
    "randn": _random,
    "randint64": _randint,
    "check_bounds": _nothing,
    "device_assert_async": _assert,
    **dict.fromkeys(ROUND_TO_INT, _to_int),
}


# --------------------------------------------------------------------------- indirect values


def indirect_size(
    body: model.LoopBody, place_of: Callable[[str], BufferPlace], symbol: Symbol
) -> tuple[Expr | None, bool]:
    """The range of an indirect value, and whether it is the size of the dimension it walks.

    The dump does not say it. A value that walks one dimension of a buffer, with the other walked
    dimensions in the same index, has that dimension's size. Otherwise any value that keeps the
    access inside the storage is allowed; without such a limit (None) nothing is.
    """
    limits: list[Expr] = []
    for name, index in _uses(body, symbol):
        place = place_of(name)
        stride = None if index.expr is None else coefficient(index.expr, symbol)
        if stride is None or index.expr is None:
            return None, False
        exact = _dimension(place.buffer, index.expr, stride)
        if exact is not None:
            return exact, True
        if stride.value is None or stride.value < 1 or place.limit.value is None:
            return None, False
        limits.append(Const((place.limit.value - 1) // stride.value + 1))
    return (limits[0] if len(limits) == 1 else None), False


def _uses(body: model.LoopBody, symbol: Symbol) -> list[tuple[str, model.Index]]:
    """Buffer and index of each access whose index contains the symbol."""
    named = dict(body.indices)
    found: list[tuple[str, model.Index]] = []
    for block in body.blocks:
        indices: dict[str, model.Index] = {}
        for s in block.statements:
            if isinstance(s, model.GetIndex) and s.index in named:
                indices[s.result] = named[s.index]
            elif isinstance(s, model.OpCall) and s.op in ("load", "store") and len(s.args) > 1:
                name, at = s.args[0], s.args[1]
                index = indices.get(at.name) if isinstance(at, model.ValueName) else None
                uses = index is not None and index.expr is not None and symbol in index.expr.free
                if uses and index is not None and isinstance(name, model.QuotedText):
                    found.append((name.text, index))
    return found


def _dimension(buffer: Buffer, index: Expr, stride: Expr) -> Expr | None:
    """The size of the dimension with this stride, if the index walks the next outer one as well.

    Without that the value may run through several dimensions at once.
    """
    sizes, strides = buffer.layout.sizes, buffer.layout.strides
    dims = [(n, s) for n, s in zip(sizes, strides, strict=True) if n.value != 1]
    mine = [n for n, s in dims if s is stride]
    facts = Facts()
    outer = [s for _, s in dims if facts.less(stride, s)]
    inner = [s for _, s in dims if s is not stride and facts.less(s, stride)]
    if len(mine) != 1 or len(outer) + len(inner) + 1 != len(dims):
        return None  # which dimensions are outer ones cannot be told
    nearest = next((s for s in outer if all(facts.at_most(s, x) for x in outer)), None)
    if not outer:
        return mine[0]
    walked = [coefficient(index, v) for v in index.free if v.kind is not Kind.SIZE]
    goes_outside = any(
        w is not None and nearest is not None and facts.at_most(nearest, w) for w in walked
    )
    return mine[0] if goes_outside else None


__all__ = ["BufferPlace", "UnsayableError", "compute_type", "import_body", "indirect_size"]
