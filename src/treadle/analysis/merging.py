"""May two operations be put into one group: the rule about cycles, with the forbidding path."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.analysis.deps import dependences
from treadle.analysis.order import MergeOrder
from treadle.core.verdict import YES, Verdict, no
from treadle.ir.program import Program, walk_operations


def merge_order(program: Program) -> MergeOrder:
    """The order of the program's leaves, with the members of its groups already merged."""
    deps = dependences(program)
    order = MergeOrder(len(deps.names), deps.edges)
    for op in walk_operations(program.ops):
        first, *rest = [deps.position[leaf.name] for leaf in op.leaves]
        for other in rest:
            order.merge(first, other)
    return order


def may_merge(order: MergeOrder, names: Sequence[str], a: int, b: int) -> Verdict:
    """ORD001: no third operation follows the one and precedes the other."""
    if not order.would_cycle(a, b):
        return YES
    path = order.witness(a, b) or []
    return no("ORD001", left=names[a], right=names[b], path=[names[k] for k in path])
