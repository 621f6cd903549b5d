"""What a lowering sees of the node it lowers, and the ways it can make values.

c.sizes, c.dtype            of the (first) result, as torch inferred them
c.pointwise(fn, x, y)       an element-wise computation with torch's broadcasting and promotion
c.lazy(sizes, dtype, inner, of=[x])     any computation of one element from its coordinates
c.realise(x)                the value in memory
c.loop(extents, reduce)     a loop written by hand into buffers from `c.buffer`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from treadle.frontends.torch.lowering.promotion import DEFAULT, common_types, our_type
from treadle.frontends.torch.lowering.realise import dense_strides
from treadle.frontends.torch.lowering.values import (
    Index,
    Inner,
    Lazy,
    LoopWriter,
    LoweringCrashed,
    NotLowered,
    Number,
    Realised,
    Tensor,
)
from treadle.index import Expr, as_expr, hint
from treadle.ir.build_body import Value
from treadle.ir.program import Loop
from treadle.ir.types import Buffer, DType

if TYPE_CHECKING:
    from treadle.frontends.torch.lowering.graph import GraphLowering

ZERO = as_expr(0)


class Node:
    """One node of the graph while it is lowered."""

    def __init__(self, graph: GraphLowering, node: Any) -> None:
        self.graph, self.node = graph, node
        self.name: str = node.name
        self.val: Any = node.meta.get("val")
        self._buffers = 0

    # -- what torch says of the result -----------------------------------------------------
    def result(self, position: int = 0) -> Any:
        """torch's description of one result (a fake tensor)."""
        return self.val[position] if isinstance(self.val, list | tuple) else self.val

    def sizes_of(self, position: int = 0) -> Index:
        """The sizes of one result."""
        return self.graph.sizes.exprs(self.result(position).shape)

    def dtype_of(self, position: int = 0) -> DType:
        """The element type of one result."""
        return our_type(self.result(position).dtype)

    @property
    def sizes(self) -> Index:
        """The sizes of the first result."""
        return self.sizes_of(0)

    @property
    def dtype(self) -> DType:
        """The element type of the first result."""
        return self.dtype_of(0)

    @property
    def is_for_lanes(self) -> bool:
        """Whether kernels are written in Triton, for lanes that each take a point."""
        return self.graph.refuses is not None

    # -- computations of one element -------------------------------------------------------
    def lazy(
        self, sizes: Sequence[Expr], dtype: DType, inner: Inner, of: Sequence[Any] = ()
    ) -> Lazy:
        """A new computation; `of` are the tensors it loads from."""
        known = [x for x in of if isinstance(x, Lazy | Realised)]
        reads = frozenset[str]().union(*[x.reads for x in known])
        parts = frozenset[object]({object()}).union(*[x.parts for x in known])
        return Lazy(tuple(sizes), dtype, self._blamed(inner), reads, parts)

    def _blamed(self, inner: Inner) -> Inner:
        """The computation; if it cannot be written, which happens later, this node is to blame."""

        def guarded(k: LoopWriter, at: Index) -> Value:
            try:
                return inner(k, at)
            except NotLowered as e:
                raise type(e)(e.reason, e.node or self.name) from e
            except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as e:
                reason = f"its lowering fails: {type(e).__name__}: {e}"
                raise LoweringCrashed(reason, self.name) from e

        return guarded

    def pointwise(
        self,
        fn: Callable[..., Value],
        *operands: Any,
        kind: str = DEFAULT,
        compute: DType | None = None,
        dtype: DType | None = None,
        sizes: Index | None = None,
    ) -> Lazy:
        """`fn(k, *values)` at every point: operands broadcast, converted to the type torch uses.

        Numbers become constants of that type. The result is converted to the node's type.
        """
        chosen = compute if compute is not None else common_types(kind, *operands)[0]
        out = self.sizes if sizes is None else sizes
        result = self.dtype if dtype is None else dtype

        def inner(k: LoopWriter, at: Index) -> Value:
            values = [operand_value(k, x, at, out, chosen) for x in operands]
            return converted(fn(k, *values), result)

        return self.lazy(out, result, inner, operands)

    def mapped(self, x: Tensor, sizes: Sequence[Expr], at: Callable[[Index], Index]) -> Lazy:
        """A view: the element of `x` at the coordinates `at` gives."""
        sizes = tuple(sizes)
        return Lazy(
            sizes, x.dtype, lambda k, i: x.load(k, tuple(map(k.simplify, at(i)))), x.reads, x.parts
        )

    # -- memory ----------------------------------------------------------------------------
    def realise(self, x: Tensor) -> Realised:
        """The value in memory."""
        return self.graph.realise(x, f"{self.name}_of")

    def buffer(self, position: int = 0, **other: Any) -> Buffer:
        """A new buffer for one result: torch's sizes, type and (if dense) strides."""
        val = self.result(position)
        sizes = other.get("sizes") or self.sizes_of(position)
        dtype = other.get("dtype") or self.dtype_of(position)
        strides = None
        if "sizes" not in other and hasattr(val, "stride"):
            strides = dense_strides(sizes, self.graph.sizes.exprs(val.stride()))
        return self.graph.builder.buffer(self._buffer_name(), dtype, sizes, strides)

    def _buffer_name(self) -> str:
        self._buffers += 1
        return self.graph.fresh(self.name)

    @contextmanager
    def loop(self, extents: Sequence[Expr], reduce: Sequence[Expr] = ()) -> Iterator[LoopWriter]:
        """A loop whose body is written inside the `with` block; it must store its results."""
        builder = self.graph.builder
        k = LoopWriter(builder.buffers, extents, reduce, self.graph.refuses)
        yield k
        name = self.graph.fresh_op(self.name)
        builder.add(Loop(name=name, device="cpu", origins=self.graph.origins, body=k.build()))


def in_memory(buffer: Buffer) -> Realised:
    """A whole buffer as a value."""
    return Realised(buffer, buffer.layout)


def operand_value(k: LoopWriter, x: Any, at: Index, out: Index, compute: DType) -> Value:
    """An operand at a point of the result: a tensor broadcast there, or a number."""
    if isinstance(x, Lazy | Realised):
        return converted(x.load(k, broadcast_at(x.sizes, at, out)), compute)
    return number(k, x, compute)


def broadcast_at(sizes: Index, at: Index, out: Index) -> Index:
    """Coordinates in a tensor of `sizes` that is broadcast to `out`."""
    skip = len(out) - len(sizes)
    return tuple(
        ZERO if is_repeated(n, out[skip + d]) else at[skip + d] for d, n in enumerate(sizes)
    )


def is_repeated(n: Expr, out: Expr) -> bool:
    """Whether a dimension of `n` elements is repeated to `out`: torch has made sure that n is 1.

    A size that is open may be 1 as well; it is then another expression than `out`, and torch
    guards on what it was when the graph was captured.
    """
    if n.value is not None:
        return n.value == 1 and out.value != 1
    return n is not out and hint(n) == 1


def number(k: LoopWriter, x: Any, dtype: DType) -> Value:
    """A number in the given type, written once: a constant, or what sizes decide at run time."""
    if isinstance(x, Expr):
        return converted(k.once(("size", x), lambda: k.index(x)), dtype)
    if isinstance(x, Number):
        return converted(x.load(k), dtype)
    if not isinstance(x, bool | int | float):
        raise NotLowered(f"a number of type {type(x).__name__}")
    if dtype is DType.BOOL:
        x = bool(x)
    elif dtype.is_float:
        x = float(x)
    elif isinstance(x, float):
        x = int(x)
    return k.once(("number", repr(x), dtype), lambda: k.constant(x, dtype))


def converted(value: Value, dtype: DType) -> Value:
    """The value in another type, or itself; what was widened before is narrow again as it was."""
    if value.dtype is dtype:
        return value
    before = value.body.cast_from(value)
    if before is not None and before.dtype is dtype and _holds(value.dtype, dtype):
        return before
    return value.to(dtype)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of a float type is one of another."""
    return wide in (DType.F32, DType.F64) and narrow.is_float and narrow.bits < wide.bits


def sizes_of(x: Any) -> tuple[Expr, ...]:
    """Sizes given as numbers or expressions."""
    return tuple([as_expr(n) for n in x])
