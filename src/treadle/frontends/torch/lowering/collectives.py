"""Functional collectives of torch.distributed as collectives of the program.

`wait_tensor` becomes the program's wait, so that passes may put work between the two. What is
waited for twice is there the second time. A form that is told where to write its result,
which torch hides in an `auto_functionalized_v2`, is the plain form: nothing was there before.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from treadle.frontends.torch.lowering.gathers import sent_safely
from treadle.frontends.torch.lowering.values import Realised
from treadle.frontends.torch.process_groups import name_of_group, ranks_of_group
from treadle.ir.body import Literal
from treadle.ir.program import Collective
from treadle.runtime.library_calls import Held, Hole, LibraryCall, ViewHole

if TYPE_CHECKING:
    from treadle.frontends.torch.lowering.graph import GraphLowering

COLLECTIVES = "_c10d_functional"
"""Where torch.distributed keeps collectives that return at once."""
GROUP = "group_name"
"""What torch calls the argument that says in which group a collective runs."""
TOLD = "_out"
"""How the names of forms end that are told where to write."""
HIDES_CHANGES = "auto_functionalized_v2"


def wait_for(tensor: Any) -> Any:
    """The result of a collective, once it is there."""
    return torch.ops._c10d_functional.wait_tensor.default(tensor)


def begins(graph: GraphLowering, node: Any, delivers: Sequence[str]) -> Callable[..., Any]:
    """How the builder is told of the collective of a node; what it delivers is under way then."""
    graph.under_way.update(dict.fromkeys(delivers, True))
    group = name_of_group(_group_given(graph, node))
    return partial(graph.builder.collective, group=group, ranks=ranks_of_group(group))


def add_wait(graph: GraphLowering, node: Any) -> Any:
    """Append the wait for what a collective gave; the value is then the same, but there.

    None if the argument is no collective's: then waiting is a call like any other.
    """
    value = graph.value(node.args[0])
    if not isinstance(value, Realised) or value.buffer.name not in graph.under_way:
        return None
    if graph.under_way[value.buffer.name]:
        name = graph.fresh_op(node.name)
        graph.builder.wait(value.buffer, name=name, origins=graph.origins)
        graph.under_way[value.buffer.name] = False
    return value


# ------------------------------------------------------------------------- what a node is


def is_collective(node: Any) -> bool:
    """Whether a node begins communication that `wait_tensor` ends before anybody looks."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != COLLECTIVES:
        return False
    taken = [user for user in node.users if user.target is operator.getitem]
    rows = [list(one.users) for one in taken] + [[u for u in node.users if u not in taken]]
    return any(rows) and all(_is_waited_for_first(row) for row in rows)


def _is_waited_for_first(readers: list[Any]) -> bool:
    """Whether nobody reads, or a wait does before all others."""
    return not readers or is_wait(min(readers))


def is_wait(node: Any) -> bool:
    """Whether a node waits for a collective."""
    target = node.target
    is_overload = isinstance(target, torch._ops.OpOverload) and target.namespace == COLLECTIVES
    return is_overload and target._opname == "wait_tensor"


def _group_given(graph: GraphLowering, node: Any) -> Any:
    """The name of the group a collective runs in, or the group itself."""
    names = [argument.name for argument in node.target._schema.arguments]
    if GROUP not in names:
        return ""
    position = names.index(GROUP)
    given = node.kwargs.get(GROUP, node.args[position] if position < len(node.args) else "")
    return graph.value(given) if isinstance(given, torch.fx.Node) else given


def without_told_places(gm: torch.fx.GraphModule) -> None:
    """Replace collectives that are told where to write by those that make their result.

    before   %o = auto_functionalized_v2(all_gather_into_tensor_out, input = %x, ..., _out_size = )
    after    %o = all_gather_into_tensor(%x, ...)
    """
    changed = False
    for node in list(gm.graph.nodes):
        plain = _plain_form(node)
        if plain is None:
            continue
        arguments = [argument.name for argument in plain._schema.arguments]
        if not all(name in node.kwargs for name in arguments):
            continue
        with gm.graph.inserting_before(node):
            made = gm.graph.call_function(plain, tuple([node.kwargs[n] for n in arguments]))
        made.meta.update(node.meta)
        node.replace_all_uses_with(made)
        gm.graph.erase_node(node)
        changed = True
    if changed:
        gm.recompile()


def _plain_form(node: Any) -> Any:
    """The form of a node's collective that makes its result; None if there is none such.

    A place that is a part of other memory stays: there the rest of that memory is a result too.
    """
    told = node.args[0] if node.args and str(node.target) == HIDES_CHANGES else None
    if not isinstance(told, torch._ops.OpOverload) or told.namespace != COLLECTIVES:
        return None
    val = node.meta.get("val")
    is_new = isinstance(val, torch.Tensor) and node.kwargs.get("_all_bases") == []
    if not is_new or not val.is_contiguous() or not told._opname.endswith(TOLD):
        return None
    packet = getattr(torch.ops._c10d_functional, told._opname.removesuffix(TOLD), None)
    return None if packet is None else packet.default


# ------------------------------------------------------------- several as one, one as several


def emptied(arg: Any) -> Any:
    """A template with all that is known at run time only left out."""
    if isinstance(arg, Hole | ViewHole | Held):
        return None
    if isinstance(arg, list | tuple):
        return [emptied(a) for a in arg]
    return {key: emptied(a) for key, a in arg.items()} if isinstance(arg, dict) else arg


def joined_call(op: Collective, calls: Mapping[str, LibraryCall]) -> LibraryCall:
    """The call that sends what the calls of several collectives would, in their order."""
    members = [calls[name] for name in op.sent_together]
    each = len(op.args) // len(members)  # the program's arguments follow each other like these
    tensors = [_shifted(m.args[0], k * each) for k, m in enumerate(members)]
    first = members[0]
    namespace, name, overload = op.target.split(".")
    function = sent_safely(getattr(getattr(getattr(torch.ops, namespace), name), overload))
    call = LibraryCall(function, (tensors, *first.args[1:]), first.kwargs, is_single=False)
    call.results = [(k, written, False) for k, written in enumerate(op.writes)]
    call.keeps_arguments, call.wait = first.keeps_arguments, first.wait
    return call


def part_call(op: Collective, calls: Mapping[str, LibraryCall]) -> LibraryCall:
    """The call that sends some of the tensors of another."""
    whole, first = calls[op.part_of], dict(op.attrs)["first"]
    begin = first.value if isinstance(first, Literal) else None
    assert isinstance(begin, int), f"nobody knows where '{op.name}' begins"
    end = begin + len(op.writes)
    tensors = [_shifted(hole, -begin) for hole in whole.args[0][begin:end]]
    call = replace(whole, args=(tensors, *whole.args[1:]))
    call.results = [(k, written, False) for k, written in enumerate(op.writes)]
    return call


def _shifted(hole: Any, count: int) -> Any:
    """A hole so many arguments further on."""
    return replace(hole, position=hole.position + count)
