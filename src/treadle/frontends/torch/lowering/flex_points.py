"""Functions inside of `flex_attention` as bodies over (batch, head, query, key).

torch hands them over as graphs of scalars. They are lowered like any graph, except that nothing may
lie in memory on the way, and that scores are f32 whatever the tensors are: eager computes them so.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from treadle.codegen.triton.flex.points import why_no_points
from treadle.codegen.triton.flex.spec import CAPTURED, RESULT, Points
from treadle.codegen.triton.forms import why_unwritable
from treadle.frontends.torch.lowering.node import Node, converted
from treadle.frontends.torch.lowering.promotion import our_type
from treadle.frontends.torch.lowering.table import TABLE
from treadle.frontends.torch.lowering.values import (
    Index,
    Lazy,
    LoopWriter,
    NotLowered,
    Opaque,
    Realised,
)
from treadle.index import Expr, as_expr, floordiv, maximum, minimum, mod
from treadle.ir.body import Literal
from treadle.ir.build import ProgramBuilder
from treadle.ir.build_body import Value
from treadle.ir.types import Buffer, DType, Layout

if TYPE_CHECKING:
    from treadle.frontends.torch.lowering.graph import GraphLowering

WHOLE = (DType.I32, DType.I64)


@dataclass(frozen=True)
class Given:
    """What a function is given beside coordinates: values of the kernel, captured values."""

    pairs: tuple[str, ...]
    """The kernel's values, by the position of the function's arguments; '' for a coordinate."""
    captured: Sequence[Any]
    """Tensors in memory, numbers, sizes."""
    extents: Index
    """Of batch, head, query and key."""


COORDINATES = ("", "", "", "")


def captured_buffers(given: Sequence[Any]) -> list[Any]:
    """Captured values as a function sees them: tensors as buffers that begin where they begin."""
    found: list[Any] = []
    for k, x in enumerate(given):
        if isinstance(x, Realised):
            lies = Layout(x.layout.sizes, x.layout.strides)
            x = Buffer(f"{CAPTURED}{k}", x.dtype, lies)
        elif isinstance(x, Opaque):
            raise NotLowered("a captured tensor exists at run time only")
        found.append(x)
    return found


class PointGraph:
    """Lowers one function; what a `Node` asks of a graph."""

    def __init__(self, outer: GraphLowering) -> None:
        self.sizes, self.device = outer.sizes, outer.device
        self.builder = ProgramBuilder("points")
        self.env: dict[Any, Any] = {}
        self.origins: tuple[str, ...] = ()
        self.refuses, self.own_products = why_unwritable, False

    def value(self, node: Any) -> Any:
        """The value of a node that was lowered before."""
        return self.env[node]

    def realise(self, value: Any, name: str, keep_gaps: bool = False) -> Realised:
        """Memory there is only for what was there before."""
        found = value if isinstance(value, Realised) else value.home
        if found is None:
            raise NotLowered(f"{name} of its function would have to lie in memory")
        return found

    def fresh(self, name: str) -> str:
        """A name of something in memory, which a function has not."""
        raise NotLowered(f"{name} of its function would have to lie in memory")

    fresh_op = fresh

    def lower(self, gm: Any, inputs: Sequence[Any]) -> list[Any]:
        """The results of a function on the values of its arguments."""
        given = iter(inputs)
        for node in gm.graph.nodes:
            if node.op == "placeholder":
                self.env[node] = next(given)
            elif node.op == "call_function":
                self.env[node] = self._value_of(node)
            elif node.op == "output":
                results = node.args[0]
                several = results if isinstance(results, list | tuple) else [results]
                return [self.env[r] if isinstance(r, torch.fx.Node) else r for r in several]
            else:
                self.env[node] = _constant(getattr(gm, node.target, None), node.target)
        raise NotLowered("its function returns nothing")

    def _value_of(self, node: Any) -> Any:
        val = node.meta.get("val")
        if node.target is operator.getitem:
            return self.env[node.args[0]][node.args[1]]
        if isinstance(val, torch.SymInt | int) and not isinstance(val, bool):
            return self.sizes.expr(val)
        lowering = TABLE.get(str(node.target))
        if lowering is None:
            raise NotLowered(f"{node.target} inside of its function has no lowering")
        args = [self._argument(a) for a in node.args]
        kwargs = {key: self._argument(a) for key, a in node.kwargs.items()}
        try:
            value = lowering(Node(self, node), *args, **kwargs)  # type: ignore[arg-type]
        except NotLowered as e:
            raise NotLowered(f"{node.target} inside of its function: {e.reason}") from e
        if isinstance(val, torch.Tensor) and value.dtype is not our_type(val.dtype):
            raise NotLowered(f"{node.target} inside of its function gives {value.dtype}")
        return value

    def _argument(self, arg: Any) -> Any:
        if isinstance(arg, torch.fx.Node):
            return self.env[arg]
        if isinstance(arg, list | tuple):
            return [self._argument(a) for a in arg]
        return arg


def _constant(held: Any, name: str) -> Lazy:
    """A number that a function holds as a tensor."""
    is_plain = type(held) is torch.Tensor and held.ndim == 0
    if not is_plain or held.is_complex():
        raise NotLowered(f"its function holds '{name}' itself")
    with _disable_current_modes():
        value, kind = held.item(), our_type(held.dtype)
    return Lazy((), kind, lambda k, at: k.constant(value, kind))


class PairWriter(LoopWriter):
    """A body over pairs; places that several loops decide are indices where they stay inside."""

    def formula_of(self, number: int, size: Expr | None = None, wrap: bool = False) -> Expr | None:
        """What a whole number is as an index, if that is within `size` elements."""
        e = self._index_of(number)
        if e is not None and size is not None:
            if self.space.facts.within(e, size):
                return e
            if wrap and self.space.facts.within(e + size, 2 * size):
                return mod(e, size)  # negative ones count from the end
        return super().formula_of(number, size, wrap)

    def _index_of(self, number: int) -> Expr | None:
        stmt, dtype = self._made.get(number), self.types.values[number]
        if stmt is None or dtype not in WHOLE:
            return None
        if stmt.op == "index":
            found = stmt.attr("expr")
            return found if isinstance(found, Expr) else None
        if stmt.op == "constant":
            value = stmt.attr("value")
            whole = value.value if isinstance(value, Literal) else None
            return as_expr(whole) if type(whole) is int else None
        given = [e for a in stmt.args if (e := self._index_of(a)) is not None]
        if len(given) != len(stmt.args) or stmt.op not in INDEX_OPS:
            return None
        if stmt.op in ("floordiv", "remainder") and (given[1].value or 0) <= 0:
            return None
        made: Expr = INDEX_OPS[stmt.op](*given)
        return made


INDEX_OPS: Mapping[str, Any] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "cast": lambda e: e,
    "identity": lambda e: e,
    "maximum": maximum,
    "minimum": minimum,
    "floordiv": floordiv,
    "remainder": mod,
}


def lower_points(
    outer: GraphLowering, gm: Any, given: Given, result: DType, which: int = 0
) -> Points | None:
    """A function's result number `which` as a body; None if it has no such result."""
    gm = retyped(gm, given.pairs)
    graph = PointGraph(outer)
    buffers: dict[str, Buffer] = {}
    inputs = [*_arguments(given, buffers), *[_as_value(x, buffers) for x in given.captured]]
    found = graph.lower(gm, inputs)[which]
    if found is None:
        return None
    if not isinstance(found, Lazy | Realised) or found.sizes:
        raise NotLowered("its function gives no scalar")
    buffers[RESULT] = Buffer(RESULT, result, Layout.contiguous(given.extents))
    k = PairWriter(buffers, given.extents, refuses=why_unwritable)
    k.store(buffers[RESULT], k.at, converted(found.load(k, ()), result))
    points = Points(k.build(), buffers)
    reason = why_no_points(points)
    if reason is not None:
        raise NotLowered(f"inside of its function: {reason}")
    return points


def _as_value(x: Any, buffers: dict[str, Buffer]) -> Any:
    if not isinstance(x, Buffer):
        return x
    buffers[x.name] = x
    return Realised(x, x.layout)


def _arguments(given: Given, buffers: dict[str, Buffer]) -> list[Lazy]:
    """The first arguments of a function: values of the kernel, and where the pair is."""
    found, coordinate = [], 0
    for name in given.pairs:
        if name:
            buffers[name] = Buffer(name, DType.F32, Layout.contiguous(given.extents))
            found.append(Lazy((), DType.F32, _pair_value(buffers[name])))
        else:
            found.append(Lazy((), DType.I32, _coordinate(coordinate)))
            coordinate += 1
    return found


def _pair_value(buffer: Buffer) -> Any:
    def inner(k: LoopWriter, at: Index) -> Value:
        return k.once(("pair", buffer.name), lambda: k.load(buffer, *k.at))

    return inner


def _coordinate(position: int) -> Any:
    def inner(k: LoopWriter, at: Index) -> Value:
        return k.once(("place", position), lambda: k.index(k.at[position], DType.I32))

    return inner


def retyped(gm: Any, pairs: Sequence[str]) -> Any:
    """A copy of a function's graph with the types that its values have when scores are f32."""
    graph = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    graph.output(graph.graph_copy(gm.graph, copies))
    modes = [getattr(n.meta.get("val"), "fake_mode", None) for n in gm.graph.nodes]
    mode = next((m for m in modes if m is not None), None)
    if mode is None:
        raise NotLowered("torch does not describe the values of its function")
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    with mode:
        for node, name in zip(placeholders, pairs, strict=False):
            if name:
                device = node.meta["val"].device
                node.meta["val"] = torch.empty((), dtype=torch.float32, device=device)
        for node in graph.nodes:
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor):
                node.meta["val"] = _described(node)
    return torch.fx.GraphModule(gm, graph)


def _described(node: Any) -> Any:
    """What torch says a node gives, for arguments as they are described now."""
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    try:
        return node.target(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError) as e:
        raise NotLowered(f"{node.target} inside of its function refuses f32: {e}") from e
