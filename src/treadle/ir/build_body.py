"""Loop bodies written as Python expressions: values know their type and overload operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from treadle.core.suggest import nearest
from treadle.index import Domain, Expr, IntLike, Symbol, as_expr, loop
from treadle.ir.body import Body, Literal, Scalar, Stmt, value_symbol
from treadle.ir.ops import POINTWISE, REDUCTIONS
from treadle.ir.types import Buffer, DType, dtype, promote
from treadle.ir.typing import BodyTypeError, TypeScope, ValueType

Operand: TypeAlias = "Value | bool | int | float"


class Value:
    """A value of a body under construction."""

    __slots__ = ("body", "number")

    def __init__(self, body: BodyBuilder, number: int) -> None:
        self.body, self.number = body, number

    @property
    def dtype(self) -> DType:
        """The element type."""
        found = self.body.types.values[self.number]
        if not isinstance(found, DType):
            raise BodyTypeError(self.number, "it has several results; take one of them")
        return found

    def to(self, element: str | DType) -> Value:
        """Converted to another element type."""
        return self.body.emit("cast", [self], (dtype(element),))

    def __getitem__(self, position: int) -> Value:
        return self.body.emit("get", [self], (position,))

    def __iter__(self) -> Iterator[Value]:
        results = self.body.types.values[self.number]
        if not isinstance(results, tuple):
            raise BodyTypeError(self.number, "it is a single value")
        return iter([self[k] for k in range(len(results))])

    def __bool__(self) -> bool:
        raise TypeError("a value is not known while the body is built; choose with k.where")

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self.body.op("eq", self, _operand(other))

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self.body.op("ne", self, _operand(other))

    __hash__ = object.__hash__

    def __add__(self, other: Operand) -> Value:
        return self.body.op("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.body.op("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.body.op("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.body.op("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.body.op("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.body.op("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.body.op("truediv", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.body.op("truediv", other, self)

    def __neg__(self) -> Value:
        return self.body.op("neg", self)

    def __lt__(self, other: Operand) -> Value:
        return self.body.op("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return self.body.op("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.body.op("gt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return self.body.op("ge", self, other)

    def __pow__(self, other: Operand) -> Value:
        return self.body.op("pow", self, other)

    def __floordiv__(self, other: Operand) -> Value:
        return self.body.op("floordiv", self, other)

    def __mod__(self, other: Operand) -> Value:
        return self.body.op("remainder", self, other)

    def __invert__(self) -> Value:
        return self.body.op("bitwise_not", self)

    def __abs__(self) -> Value:
        return self.body.op("abs", self)

    def __xor__(self, other: Operand) -> Value:
        return self.body.op("bitwise_xor", self, other)

    def __and__(self, other: Operand) -> Value:
        return self.body.op("bitwise_and", self, other)

    def __or__(self, other: Operand) -> Value:
        return self.body.op("bitwise_or", self, other)


def _operand(value: object) -> Operand:
    """What may stand in an expression with a value, or a TypeError that says what may."""
    if isinstance(value, Value | bool | int | float):
        return value
    if isinstance(value, Expr):
        raise TypeError(f"{value} is an index; make it a value with k.index({value})")
    raise TypeError(f"expected a value of this body or a number, not {type(value).__name__}")


class BodyBuilder:
    """Collects the statements of one body. Pointwise operations are methods: `k.exp(v)`."""

    def __init__(
        self,
        buffers: Mapping[str, Buffer],
        extents: Sequence[IntLike],
        reduce: Sequence[IntLike] = (),
    ) -> None:
        self.buffers = buffers
        self.domain = Domain([(loop(f"i{k}"), n) for k, n in enumerate(extents)])
        self.reduce = Domain([(loop(f"r{k}"), n) for k, n in enumerate(reduce)])
        self.vars: tuple[Symbol, ...] = self.domain.vars + self.reduce.vars
        self.types = TypeScope(buffers)
        self._blocks: list[list[Stmt]] = [[]]
        self._cast_from: dict[int, Value] = {}

    # -- plumbing --------------------------------------------------------------------------
    def emit(
        self,
        op: str,
        args: Sequence[Value] = (),
        attrs: tuple[object, ...] = (),
        region: Callable[[], Sequence[Value]] | None = None,
    ) -> Value:
        """Append a statement and give its value."""
        for a in args:
            if a.body is not self:
                raise ValueError(f"%{a.number} belongs to another body; load it here again")
        numbers = tuple(a.number for a in args)
        stmt = Stmt(op, numbers, attrs)
        if region is None:
            number = self.types.add(stmt)
        else:
            number, finish = self.types.open(stmt)
            self._blocks.append([])
            yielded = tuple(v.number for v in region())
            self._blocks[-1].append(Stmt("yield", yielded))
            stmt = Stmt(op, numbers, attrs, tuple(self._blocks.pop()))
            finish(yielded)
        self._blocks[-1].append(stmt)
        if op == "cast":
            self._cast_from[number] = args[0]
        return Value(self, number)

    def cast_from(self, value: Value) -> Value | None:
        """What a value was converted from; None if it was made another way."""
        return self._cast_from.get(value.number)

    def constant(self, value: Scalar, element: str | DType) -> Value:
        """A literal of the given type."""
        return self.emit("constant", (), (Literal(value), dtype(element)))

    def op(self, name: str, *operands: Operand) -> Value:
        """A pointwise operation by name; Python numbers take the type of the other operands."""
        if name not in POINTWISE:
            raise ValueError(f"'{name}' is not a pointwise operation")
        arity = POINTWISE[name].arity
        if len(operands) != arity:
            raise ValueError(f"{name} takes {arity} operands, not {len(operands)}")
        operands = tuple(_operand(v) for v in operands)
        known = [v.dtype for v in operands if isinstance(v, Value)]
        if name == "where" and isinstance(operands[0], Value):
            known = known[1:] or [DType.F32]
        common = known[0] if known else DType.F32
        for t in known[1:]:
            common = promote(common, t)
        return self.emit(name, [self._value(v, common) for v in operands])

    def _value(self, operand: Operand, common: DType) -> Value:
        operand = _operand(operand)
        if isinstance(operand, Value):
            return operand
        if isinstance(operand, float) and not common.is_float:
            common = DType.F32
        if common.is_float and not isinstance(operand, bool):
            operand = float(operand)
        return self.constant(operand, common)

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if name in POINTWISE:
            return lambda *operands: self.op(name, *operands)
        if name in REDUCTIONS:
            return lambda *values, **kw: self.reduce_by(name, *values, **kw)
        close = nearest(name, [*POINTWISE, *REDUCTIONS])
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise AttributeError(f"no body operation '{name}'{hint}")

    # -- memory ----------------------------------------------------------------------------
    def load(self, buffer: Buffer, *at: IntLike, unproven: bool = False) -> Value:
        """The element of `buffer` at the given coordinates."""
        return self.load_at(buffer, buffer.layout.index(at), unproven=unproven)

    def load_at(self, buffer: Buffer, index: IntLike, unproven: bool = False) -> Value:
        """The element at a storage index."""
        return self.emit("load", (), (buffer.name, as_expr(index), unproven))

    def store(
        self,
        buffer: Buffer,
        at: Sequence[IntLike] | IntLike,
        value: Operand,
        mode: str = "plain",
        unproven: bool = False,
    ) -> None:
        """Write an element at the given coordinates."""
        at = (at,) if isinstance(at, Expr | int) else at
        self.store_at(buffer, buffer.layout.index(at), value, mode, unproven)

    def store_at(
        self,
        buffer: Buffer,
        index: IntLike,
        value: Operand,
        mode: str = "plain",
        unproven: bool = False,
    ) -> None:
        """Write an element at a storage index."""
        v = self._value(value, buffer.dtype)
        self.emit("store", [v], (buffer.name, as_expr(index), mode, unproven))

    def bucketize(
        self,
        value: Value,
        boundaries: Buffer,
        size: IntLike | None = None,
        right: bool = False,
        element: str | DType = "i64",
    ) -> Value:
        """The position of `value` among sorted boundaries."""
        count = boundaries.numel if size is None else as_expr(size)
        return self.emit("bucketize", [value], (boundaries.name, count, right, dtype(element)))

    # -- indices ---------------------------------------------------------------------------
    def index(self, e: IntLike, element: str | DType = "i64") -> Value:
        """An index expression as a value."""
        return self.emit("index", (), (as_expr(e), dtype(element)))

    def indirect(self, value: Value, size: IntLike, wrap: bool = False, check: bool = True) -> Expr:
        """A value as an index: usable in coordinates."""
        return value_symbol(self.emit("indirect", [value], (as_expr(size), wrap, check)).number)

    # -- structure -------------------------------------------------------------------------
    def masked(self, mask: Value, other: Scalar, region: Callable[[], Value]) -> Value:
        """`region()` where the mask holds, else the literal `other`."""
        return self.emit("masked", [mask], (Literal(other),), lambda: [region()])

    def reduce_by(self, kind: str, *values: Value, element: str | DType | None = None) -> Value:
        """Combine over the reduction loops; several results are taken by index."""
        given = None if element is None else dtype(element)
        return self.emit("reduce", values, (kind, given))

    def scan(self, combine: str, *values: Value) -> Value:
        """Running combination along the reduction loops."""
        return self.emit("scan", values, (combine,))

    def scan_region(
        self, values: Sequence[Value], combine: Callable[..., Sequence[Value]]
    ) -> Value:
        """Running combination by a function of two partial results (all first, all second)."""

        def region() -> Sequence[Value]:
            count = 2 * len(values)
            return combine(*[self.emit("param", (), (k,)) for k in range(count)])

        return self.emit("scan", values, ("region",), region)

    def sort(self, *values: Value, descending: bool = False, stable: bool = True) -> Value:
        """Sort by the first value along the reduction loops."""
        return self.emit("sort", values, (descending, stable))

    def random(self, kind: str, seed: Value, offset: Value, element: str | DType = "f32") -> Value:
        """rand or randn from a seed and an offset."""
        return self.emit(kind, [seed, offset], (dtype(element),))

    def randint(
        self, seed: Value, offset: Value, low: Value, high: Value, element: str | DType = "i64"
    ) -> Value:
        """An integer in low..high (high excluded) from a seed and an offset."""
        return self.emit("randint", [seed, offset, low, high], (dtype(element),))

    def bitcast(self, value: Value, element: str | DType) -> Value:
        """The bits of `value` read as another type of the same width."""
        return self.emit("bitcast", [value], (dtype(element),))

    def to_int(self, how: str, value: Value, element: str | DType = "i64") -> Value:
        """`value` as an integer; `how` is floor, ceil, trunc or round."""
        return self.emit(f"{how}_to_int", [value], (dtype(element),))

    def check(self, condition: Value, message: str) -> None:
        """Stop with `message` where the condition does not hold."""
        self.emit("assert", [condition], (message,))

    def build(self) -> Body:
        """The frozen body."""
        return Body(self.domain, self.reduce, tuple(self._blocks[0]))


__all__ = ["BodyBuilder", "Value", "ValueType"]
