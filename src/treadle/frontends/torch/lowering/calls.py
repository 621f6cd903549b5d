"""Calls of the ATen operator itself: what is not lowered, and matrix products and convolutions.

A `LibraryCall` remembers the Python function and its arguments with holes for what is known at run
time only (`runtime/library_calls`). Collectives of torch.distributed begin here, as calls that
somebody waits for (`lowering/collectives`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from treadle.frontends.torch import compat
from treadle.frontends.torch.lowering import collectives
from treadle.frontends.torch.lowering.collectives import begins, emptied, is_collective
from treadle.frontends.torch.lowering.gathers import sent_safely
from treadle.frontends.torch.lowering.parts import Part, compiled_parts
from treadle.frontends.torch.lowering.promotion import our_type
from treadle.frontends.torch.lowering.values import Index, Lazy, Number, Opaque, Realised
from treadle.index import Expr
from treadle.ir.types import Buffer
from treadle.runtime.hosts.torch_tensors import storage_key
from treadle.runtime.library_calls import Held, Hole, LibraryCall, ViewHole

if TYPE_CHECKING:
    from treadle.frontends.torch.lowering.graph import GraphLowering


class Holes:
    """The arguments of the program's call so far; gives each its hole."""

    def __init__(self, exact: frozenset[Any] = frozenset()) -> None:
        self.args: list[Any] = []
        self.exact = exact
        """Arguments that must lie just as in eager mode."""
        self._known: dict[object, int] = {}

    def add(self, key: object, arg: Any) -> int:
        """The position of an argument, added the first time it is seen."""
        if key not in self._known:
            self._known[key] = len(self.args)
            self.args.append(arg)
        return self._known[key]

    def value(self, graph: GraphLowering, node: Any) -> Any:
        """The value of an argument, as the call must see it."""
        return graph.laid_out(node) if node in self.exact else graph.value(node)


def template(graph: GraphLowering, arg: Any, holes: Holes) -> Any:
    """An argument of a node with holes for everything that is known at run time only."""
    if isinstance(arg, torch.fx.Node):
        return _hole(graph, holes.value(graph, arg), holes, arg.name)
    if isinstance(arg, list | tuple):
        items = [template(graph, a, holes) for a in arg]
        return tuple(items) if isinstance(arg, tuple) else items
    if isinstance(arg, dict):
        return {key: template(graph, a, holes) for key, a in arg.items()}
    if isinstance(arg, slice):
        parts = [template(graph, a, holes) for a in (arg.start, arg.stop, arg.step)]
        return slice(*parts)
    return _hole(graph, arg, holes) if isinstance(arg, Expr) else arg


def _hole(graph: GraphLowering, value: Any, holes: Holes, name: str = "") -> Any:
    """`name`: of the node whose value it is, after which its memory is called."""
    if isinstance(value, Lazy | Realised):
        where = graph.realise(value, name or f"{graph.current}_arg")
        position = holes.add(where.buffer.name, where.buffer)
        if where.layout == where.buffer.layout:
            return Hole(position)
        return ViewHole(position, where.layout)
    if isinstance(value, Expr):
        return value.value if value.value is not None else Hole(holes.add(value, value))
    if isinstance(value, Number):
        value = held(graph, value)
    if isinstance(value, Opaque):
        if value.name in graph.builder.buffers:
            holes.add(value.name, graph.builder.buffers[value.name])
        for buffer in value.looks_into:
            holes.add(buffer.name, buffer)
        return Held(value.name)
    if isinstance(value, list | tuple):
        return type(value)([_hole(graph, v, holes, name) for v in value])
    return value


def held(graph: GraphLowering, number: Number) -> Any:
    """A run-time number as the object Python computes."""
    if number.held is None:
        number.held = add_call(graph, number.node)
    return number.held


def describe(arg: Any) -> str:
    """A template as text: calls that differ in it are different calls."""
    if isinstance(arg, Hole):
        return f"%{arg.position}"
    if isinstance(arg, ViewHole):
        at = arg.layout
        return f"%{arg.position}{_text(at.sizes)}{_text(at.strides)}+{at.offset}"
    if isinstance(arg, Held):
        return f"held {arg.name}"
    if isinstance(arg, list | tuple):
        return "[" + ", ".join(map(describe, arg)) + "]"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in arg.items()) + "}"
    if isinstance(arg, torch.nn.Module | Part):
        return f"module {id(arg)}"
    return str(arg)


def _text(numbers: Index) -> str:
    return "(" + ", ".join(map(str, numbers)) + ")"


def add_call(graph: GraphLowering, node: Any) -> Any:
    """Append the call of a node's own operator; gives the value of its result."""
    holes = Holes(_exact_arguments(node))
    args = compiled_parts(node, template(graph, tuple(node.args), holes), graph.compile_part)
    kwargs = template(graph, dict(node.kwargs), holes)
    val = node.meta.get("val")
    is_single = not isinstance(val, list | tuple)
    function = sent_safely(node.target)
    if node.target in RELATIVE and not isinstance(graph.value(node.args[0]), Opaque):
        # The place it counts from may be known at run time only, like any other argument.
        began = graph.sizes.expr(node.args[0].meta["val"].storage_offset())
        function, args = RELATIVE[node.target], (_hole(graph, began, holes), *args)
    call = LibraryCall(function, args, kwargs, is_single)
    writes, values = [], []
    for position, one in enumerate([val] if is_single else val):
        value, buffer = _result(graph, node, one, holes)
        values.append(value)
        if buffer is not None:
            call.results.append((position, buffer, isinstance(value, Opaque)))
            writes.append(buffer)
    changed = mutated_arguments(node)
    mutates = []
    for arg in changed:
        value = graph.value(arg)
        # What torch holds torch changes, in the order of effects; a view changes what it shows.
        for shown in _memory_of(graph, value):
            graph.settle(shown.name, node)
            mutates.append(shown.name)
    name = graph.fresh_op(node.name)
    has_objects = any(isinstance(graph.value(a), Opaque) for a in node.all_input_nodes)
    has_effects = (
        _has_effects(node) or has_objects or any(is_object for _, _, is_object in call.results)
    )
    _note_memory(call, node)
    add, attrs = graph.builder.extern, {"call": f"{describe(args)} {describe(kwargs)}"}
    if is_collective(node) and not any(is_object for _, _, is_object in call.results):
        call.wait, add = collectives.wait_for, begins(graph, node, [*writes, *mutates])
        has_effects = has_objects  # what it delivers, and its turn in the group, are known
        # What two of them must have in common to be sent as one.
        attrs["constants"] = f"{describe(emptied(args))} {describe(emptied(kwargs))}"
    add(
        target_name(node.target),
        holes.args,
        writes=writes,
        mutates=mutates,
        name=name,
        origins=graph.origins,
        attrs=attrs,
        has_side_effects=has_effects or not (writes or mutates),
    )
    graph.calls[name] = call
    if changed and not writes:
        return graph.value(changed[0])
    return values[0] if is_single else type(val)(values) if type(val) is list else tuple(values)


def _note_memory(call: LibraryCall, node: Any) -> None:
    """Say what a call does with the memory of its arguments and results."""
    function = call.function
    is_plain = is_plain_aten(function) and not sees_storage(function)
    call.keeps_arguments = not is_plain or any(is_object for _, _, is_object in call.results)
    call.moves_arguments = moves(function)
    call.draws = function in DRAWS_AGAIN and node.kwargs.get("generator") is None
    call.into = WRITES_WHERE_TOLD.get(function) if call.is_single else None
    if function is aten.convolution.default and node.meta["val"].is_cuda and node.args[2] is None:
        call.into, call.into_any = _convolve_into, True


def is_plain_aten(function: Any) -> bool:
    """Whether a call is known to keep nothing: an operator of ATen, not of a library or a user."""
    return isinstance(function, torch._ops.OpOverload) and is_torchs(function)


def sees_storage(function: Any) -> bool:
    """Whether an operator knows of the storage behind a tensor, where others may lie.

    It counts elements from its start, or makes it the storage of another tensor.
    """
    if moves(function):
        return True
    return any(a.name == "storage_offset" for a in function._schema.arguments)


def _exact_arguments(node: Any) -> frozenset[Any]:
    """The arguments that must have eager's strides, because somebody could tell.

    Operators that are not ATen's may look at them, views of a storage do, random numbers are
    drawn in their order, and results that only torch holds lie as they do. What is changed in
    place lies where it lies.
    """
    if node.target in RELATIVE:
        return frozenset(node.args[:1])
    if not _tells_strides(node):
        return frozenset()
    return frozenset(node.all_input_nodes) - frozenset(mutated_arguments(node))


def _tells_strides(node: Any) -> bool:
    target, val = node.target, node.meta.get("val")
    if not isinstance(target, torch._ops.OpOverload):
        return str(target) in FUNCTIONAL_FORMS
    if not is_torchs(target) or torch.Tag.nondeterministic_seeded in target.tags:
        return True
    results = val if isinstance(val, list | tuple) else [val]
    return any(isinstance(x, torch.Tensor) and x.is_complex() for x in results)


FUNCTIONAL_FORMS = ("auto_functionalized", "auto_functionalized_v2")
"""Operators of torch's that call another one, which changes its arguments, on copies of them."""


def is_torchs(function: Any) -> bool:
    """Whether an overload is one of torch's own, not of a library or a user."""
    return function.namespace in ("aten", "prims")


def _seen(began: Any, given: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """as_strided on a tensor that may lie anywhere in an arena."""
    start = 0 if storage_offset is None else int(storage_offset - began)
    return given.as_strided(size, stride, given.storage_offset() + start)


def _scattered(
    began: Any, given: Any, source: Any, size: Any, stride: Any, storage_offset: Any = None
) -> Any:
    """as_strided_scatter on a tensor that may lie anywhere in an arena.

    torch counts `storage_offset` from the start of the storage, where `given` begins at `began`;
    what the storage holds beside `given` cannot be seen in the result.
    """
    start = int(began if storage_offset is None else storage_offset)
    view = (size, stride, start)
    overlap = compat.internal_overlap(given)
    if overlap == compat.OVERLAPS:  # eager then counts from the start of a dense copy
        result = given.clone()
        result.as_strided(*view).copy_(source)
        return result
    place = (given.size(), given.stride(), int(began))
    memory = given.new_empty(max(_end(*view), _end(*place)))
    result = memory.as_strided(*place)
    if overlap:
        numbers = torch.arange(memory.numel(), device=given.device).as_strided(*place)
        memory[numbers.reshape(-1)] = given.reshape(-1)
    else:
        result.copy_(given)
    memory.as_strided(*view).copy_(source)
    return result


def _end(sizes: Any, strides: Any, begin: int) -> int:
    """The first place of a storage behind a view."""
    if any(n == 0 for n in sizes):
        return begin
    return begin + 1 + sum((int(n) - 1) * int(s) for n, s in zip(sizes, strides, strict=True))


def _convolve_into(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *,
    out: Any,
) -> None:
    """A convolution that writes into memory it is given, if the library it goes to can do that."""
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    if bias is None and not transposed:
        own: Any = torch._C
        backend = own._select_conv_backend(x, weight, None, *rest, None)
        if backend == own._ConvBackend.Cudnn:
            library = torch.backends.cudnn
            flags = (library.benchmark, library.deterministic, library.allow_tf32)
            where = (padding, stride, dilation, groups)
            aten.cudnn_convolution.out(x, weight, *where, *flags, out=out)
            return
    out.copy_(aten.convolution.default(x, weight, bias, *rest))


aten = torch.ops.aten
WRITES_WHERE_TOLD: Mapping[Any, Any] = {
    aten.mm.default: aten.mm.out,
    aten.bmm.default: aten.bmm.out,
    aten.addmm.default: aten.addmm.out,
    aten._addmm_activation.default: aten._addmm_activation.out,
    aten.baddbmm.default: aten.baddbmm.out,
}
"""Calls with a form that writes into memory it is given, with the very same arithmetic."""
RELATIVE: Mapping[Any, Callable[..., Any]] = {
    aten.as_strided.default: _seen,
    aten.as_strided_copy.default: lambda *args: _seen(*args).clone(),
    aten.as_strided_scatter.default: _scattered,
}
"""Operators that count from the start of a storage, as functions that count from a tensor."""
RESIZES = torch.ops.inductor.resize_storage_bytes_.default
"""Gives an input's storage another size, in graphs that free and fill parameters (FSDP).

Its schema does not say that it changes its argument.
"""


def moves(function: Any) -> bool:
    """Whether a call may give the tensors it changes other memory."""
    return function is RESIZES or getattr(function, "overloadpacket", None) is aten.set_


def _result(graph: GraphLowering, node: Any, val: Any, holes: Holes) -> tuple[Any, str | None]:
    """The value of one result and the buffer or object it is known by."""
    if val is None and not (node.users and "val" not in node.meta):
        return None, None
    if type(val) in (int, float, bool) and is_plain_aten(node.target):
        return val, None  # a length that attention tells its backward: what was captured is what is
    if graph.is_representable(val) and mutated_arguments(node):
        return graph.value(mutated_arguments(node)[0]), None
    views = _shown_by(node, val)
    if graph.is_representable(val) and not views:
        sizes = graph.sizes.exprs(val.shape)
        strides = graph.dense(sizes, val)
        element = our_type(val.dtype)
        buffer = graph.builder.buffer(graph.fresh(node.name), element, sizes, strides)
        return Realised(buffer, buffer.layout), buffer.name
    name = graph.fresh(node.name)
    graph.builder.token(name)
    shown = [b for a in views for b in _memory_of(graph, holes.value(graph, a))]
    return Opaque(name, tuple(dict.fromkeys(shown))), name


def _shown_by(node: Any, val: Any) -> list[Any]:
    """The arguments whose memory a result shares: it must stay torch's own view of them."""
    if not isinstance(val, torch.Tensor):
        return []
    mine = storage_key(val)
    given = [(a, a.meta.get("val")) for a in node.all_input_nodes]
    return [a for a, x in given if isinstance(x, torch.Tensor) and storage_key(x) == mine]


def _memory_of(graph: GraphLowering, value: Any) -> tuple[Buffer, ...]:
    """The buffers a value lies in; none if only torch knows where it lies."""
    if isinstance(value, Opaque):
        return value.looks_into
    return (graph.realise(value, f"{graph.current}_arg").buffer,)


def mutated_arguments(node: Any) -> list[Any]:
    """The nodes a call changes in place, by the operator's own schema."""
    if node.target is RESIZES:
        return [node.args[0]]
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    found = []
    for position, argument in enumerate(schema.arguments):
        info = argument.alias_info
        if info is None or not info.is_write:
            continue
        given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
        found += [a for a in _flat(given) if isinstance(a, torch.fx.Node)]
    return found


def _flat(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _has_effects(node: Any) -> bool:
    """Whether a call does more than compute: random state, assertions, things we cannot see."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(target, torch._ops.HigherOrderOperator)
    if draws_numbers(node):
        return True
    if target.namespace == "aten" and not target._schema.returns:
        return True
    return not is_torchs(target)


def draws_numbers(node: Any) -> bool:
    """Whether a call draws random numbers; attention that drops nothing does not."""
    target = node.target
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    arguments = target._schema.arguments
    for position, one in enumerate(arguments):
        if one.name == "dropout_p":
            default = one.default_value if one.has_default_value() else None
            given = node.args[position] if position < len(node.args) else default
            share = node.kwargs.get("dropout_p", given)
            return not (isinstance(share, int | float) and share == 0)
    return True


DRAWS_AGAIN = frozenset({
    aten.native_dropout.default, aten.bernoulli.default, aten.bernoulli.p,
    aten.rand.default, aten.randn.default, aten.rand_like.default, aten.randn_like.default,
    aten.randint.default, aten.randint.low, aten.uniform.default, aten.normal_functional.default,
    aten.exponential.default,
})  # fmt: skip
"""Operators that draw as many numbers in every run, known when they are queued."""


def target_name(target: Any) -> str:
    """How the program names a call: `aten.mm.default`, or a Python function's name."""
    if isinstance(target, torch._ops.OpOverload | torch._ops.HigherOrderOperator):
        return str(target)
    return str(getattr(target, "__name__", target))
