"""What a forward graph keeps for its backward graph, and what the backward computes again.

torch's min-cut partitioner decides by default: it keeps what is dear to compute and small. With
the option `memory_limit` the planner has a say: if the memory it predicts for one of the two
graphs is above the limit, the graphs are divided anew with less to keep, until they fit or nothing
is left to give up.

    share of activations kept    1.0 -> 0.75 -> 0.5 -> 0.25 -> 0
    weights gathered again       none, half, all: for each of these, if there are gathers
    predicted peak               the first one within the limit is taken

A collective that one rank repeats all must repeat: where there are gathers, the division that the
first rank found is everybody's.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import CheckpointPolicy

from treadle.codegen.lower import lower
from treadle.frontends.torch import compat
from treadle.frontends.torch.capture import regather
from treadle.frontends.torch.capture.bias_apart import take_bias_apart
from treadle.frontends.torch.capture.channels_last import prefer_channels_last
from treadle.frontends.torch.capture.compile import Settings, schedule
from treadle.frontends.torch.capture.complex_pairs import compute_with_pairs
from treadle.frontends.torch.capture.even_products import even_out_products
from treadle.frontends.torch.capture.own_steps import OwnSteps
from treadle.frontends.torch.capture.owners import owners_of_inputs, owners_of_outputs
from treadle.frontends.torch.capture.parts_beside import put_parts_beside
from treadle.frontends.torch.capture.pool_places import keep_places_small
from treadle.frontends.torch.capture.relu_in_product import take_relu_into_products
from treadle.frontends.torch.capture.same_nodes import merge_same_nodes
from treadle.frontends.torch.capture.signature import signature_of
from treadle.frontends.torch.lowering.graph import lower_graph
from treadle.frontends.torch.lowering.graph_kind import GraphKind
from treadle.frontends.torch.process_groups import agreed_on, sent_by
from treadle.runtime.hosts.torch_tensors import storage_key
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.plan_launches import plan_launches
from treadle.runtime.run_facts import Owner

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Of what the forward would keep, how much it may; tried in order."""
TOO_LOW = "TOR004"


class Division(NamedTuple):
    """A forward graph, a backward graph, and the higher of their predicted peaks."""

    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule
    peak_bytes: int
    way: int
    """Which of the ways that are tried it was."""


def partition_for(settings: Settings, steps: OwnSteps) -> Callable[..., Any]:
    """How to divide a joint graph: torch's way, or within the memory that is asked for."""
    limit = settings.options.memory_limit
    always = settings.options.regather == "always"

    def partition(joint: torch.fx.GraphModule, inputs: Any, **rest: Any) -> Any:
        forget_detached(joint)
        compute_with_pairs(joint)
        take_bias_apart(joint)
        take_relu_into_products(joint)
        even_out_products(joint)
        if settings.options.channels_last:
            prefer_channels_last(joint)
        put_parts_beside(joint)
        keep_places_small(joint)
        save_what_was_read(joint)
        repeat_what_needs_nothing(joint)
        if compat.merges_same_nodes():
            merge_same_nodes(joint.graph)
        if limit is None:
            regather.mark(joint, 1.0 if always else 0.0)
            return compat.min_cut(joint, inputs, **rest)
        try:
            return divided(joint, inputs, limit, settings, **rest)
        except Exception as e:
            # The same graph will most likely not compile either, which has its own fallback.
            if settings.strict or settings.options.strict:
                raise
            _warn(f"memory_limit={limit} is not looked at, because {type(e).__name__}: {e}")
            return compat.min_cut(joint, inputs, **rest)

    return steps.watched("dividing forward and backward", partition)


def forget_detached(joint: torch.fx.GraphModule) -> None:
    """Let everyone read what was detached instead: torch's division takes that for a barrier.

    Behind it lies what it believes must be kept. A joint graph has no gradients left to stop. What
    the caller gave stays as it is: the graph may change it.
    """
    for node in joint.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        is_result = any(user.op == "output" for user in node.users)
        if not is_result and _is_computed(node.args[0]):
            node.replace_all_uses_with(node.args[0])
            joint.graph.erase_node(node)
    joint.recompile()


def save_what_was_read(joint: torch.fx.GraphModule) -> None:
    """Have the forward keep what it makes of an input that it changes in the end.

    torch's division keeps inputs and computes from them again, for it takes them for constant: the
    backward would find what was written over them.
    """
    for node in joint.graph.nodes:
        target: Any = node.target
        is_call = node.op == "call_function" and isinstance(target, torch._ops.OpOverload)
        if not is_call or not target._schema.is_mutable or not node.args:
            continue
        if getattr(node.args[0], "op", "") != "placeholder":
            continue
        looked_at = [node.args[0]]
        while looked_at:
            for reader in looked_at.pop().users:
                if reader is node or reader.op != "call_function":
                    continue
                if isinstance(reader.target, torch._ops.OpOverload) and _shows(reader.target):
                    looked_at.append(reader)
                else:
                    reader.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def repeat_what_needs_nothing(joint: torch.fx.GraphModule) -> None:
    """Have the backward make indices and masks anew that are made of nothing but their places.

    Kept, they would be memory that says nothing; made where they are used, formulas are found for
    them (`lowering/index_tables.py`).
    """
    from_nothing: set[Any] = set()
    for node in joint.graph.nodes:
        if _is_repeatable(node) and all(
            a in from_nothing or isinstance(a.meta.get("val"), SIZES) for a in node.all_input_nodes
        ):
            from_nothing.add(node)
    chosen = [n for n in from_nothing if not n.meta["val"].is_floating_point()]
    while chosen:
        node = chosen.pop()
        if node in from_nothing:
            from_nothing.remove(node)
            compat.have_recomputed(node)
            chosen += node.all_input_nodes


SIZES = (int, torch.SymInt)


def _is_repeatable(node: Any) -> bool:
    """Whether a node makes one tensor, and the same one whenever it is carried out."""
    target: Any = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload):
        return False
    if target._schema.is_mutable or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    return isinstance(node.meta.get("val"), torch.Tensor)


def _is_computed(node: Any) -> bool:
    """Whether a value is made by an operator that changes nothing, and stays what it is."""
    target: Any = getattr(node, "target", None)
    if target is operator.getitem:
        return _is_computed(node.args[0])
    is_call = node.op == "call_function" and isinstance(target, torch._ops.OpOverload)
    return is_call and not target._schema.is_mutable and not _shows(target)


def _shows(target: Any) -> bool:
    """Whether an operator's result lies in an argument's memory."""
    return any(a.alias_info is not None for a in target._schema.arguments)


def divided(
    joint: torch.fx.GraphModule, inputs: Any, limit: int, settings: Settings, **rest: Any
) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
    """The first division that fits the limit, else the one with the lowest peak (TOR004)."""

    ways = [(share, level) for share in SHARES for level in _levels(joint, settings)]

    def division(way: int) -> Division:
        share, level = ways[way]
        copied = _copied(joint)
        regather.mark(copied, level)
        with compat.keeping(share):
            forward, backward = compat.min_cut(copied, inputs, **rest)
        return Division(
            forward, backward, _peak(forward, backward, rest["num_fwd_outputs"], settings), way
        )

    best = _first_that_fits(map(division, range(len(ways))), limit)
    if len(ways) > len(SHARES):
        way = agreed_on("division", sent_by(joint), best.way)
        best = best if way == best.way else division(way)
    if best.peak_bytes <= limit:
        return best.forward, best.backward
    _warn(
        f"no division into forward and backward fits memory_limit={limit}; the best found holds"
        f" {best.peak_bytes} bytes at once"
    )
    return best.forward, best.backward


def _first_that_fits(divisions: Iterable[Division], limit: int) -> Division:
    best: Division | None = None
    for found in divisions:
        if best is None or found.peak_bytes < best.peak_bytes:
            best = found
        if best.peak_bytes <= limit:
            break
    assert best is not None, "at least one division is tried"
    return best


def _levels(joint: torch.fx.GraphModule, settings: Settings) -> Sequence[float]:
    """How much of what is gathered may be gathered again, in the order to try."""
    asked = settings.options.regather
    if asked == "always":
        return (1.0,)
    return regather.LEVELS if asked == "auto" and regather.gathers_of_weights(joint) else (0.0,)


def _warn(words: str) -> None:
    warnings.warn(f"{TOO_LOW}: {words}; read more: treadle explain {TOO_LOW}", stacklevel=2)


def _peak(
    forward: torch.fx.GraphModule,
    backward: torch.fx.GraphModule,
    shown: int,
    settings: Settings,
) -> int:
    """The most bytes that a run of one of the two graphs is predicted to hold."""
    there, kept = predicted(forward, GraphKind.FORWARD, settings)
    donated = _donated(forward, backward, shown)
    back, _ = predicted(backward, GraphKind.BACKWARD, settings, donated, kept)
    return max(there, back)


def predicted(
    gm: torch.fx.GraphModule,
    kind: GraphKind,
    settings: Settings,
    donated: tuple[int, ...] = (),
    kept: dict[str, Owner] | None = None,
) -> tuple[int, dict[str, Owner]]:
    """The peak of a graph, planned but not compiled, and the owners of what it gives."""
    gm = _copied(gm)
    lowered = lower_graph(gm, kind, donated)
    program = schedule(lowered.program, settings.options).kernels
    owners = owners_of_inputs(gm, lowered, kept or {})
    shape = LaunchShape(lower(program), signature_of(lowered, owners, program).facts)
    return plan_launches(shape).main.peak_bytes, owners_of_outputs(gm, lowered)


def _copied(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph once more, with the same modules: what is done to one leaves the other alone."""
    graph = torch.fx.Graph()
    copied: Any = graph.graph_copy(gm.graph, {}, return_output_node=True)
    value, last = copied
    graph.output(value).meta = dict(last.meta)
    made = torch.fx.GraphModule(gm, graph)
    made.meta.update(gm.meta)
    return made


def _donated(
    forward: torch.fx.GraphModule, backward: torch.fx.GraphModule, shown: int
) -> tuple[int, ...]:
    """The inputs of the backward graph that only it looks at: kept, not given nor shown."""
    (output,) = [node for node in forward.graph.nodes if node.op == "output"]
    (given_back,) = output.args
    results = [node for node in list(given_back) if isinstance(node, torch.fx.Node)]
    given = [node for node in forward.graph.nodes if node.op == "placeholder"]
    seen = {_storage(node) for node in (*given, *list(given_back)[:shown])} - {None}
    free = {node.name for node in results if _storage(node) not in seen}
    names = [node.name for node in backward.graph.nodes if node.op == "placeholder"]
    return tuple([k for k, name in enumerate(names) if name in free])


def _storage(node: Any) -> object:
    val = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return storage_key(val) if isinstance(val, torch.Tensor) else None
