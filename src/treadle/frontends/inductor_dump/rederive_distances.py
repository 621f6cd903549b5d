"""How many steps each operation is away from the inputs, over the shortest and the longest way."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

from treadle.frontends.inductor_dump.model import DumpNode
from treadle.frontends.inductor_dump.rederive_users import BufferUsers

Distances = dict[str, tuple[int, int]]


def input_distances(users: BufferUsers) -> Distances:
    """Least and greatest distance of every operation; empty if some wait for each other.

    Orders count as well, also those that fusion dropped later: the distances are older.
    """
    waits: dict[str, set[str]] = {}
    for node in users.leaves:
        derived = users.derived[node.name]
        deps = (*derived.reads.values(), *derived.weak.values(), *node.unmet)
        writers = {users.writer[dep.name].name for dep in deps if dep.name in users.writer}
        waits[node.name] = writers - {node.name}
    found: Distances = {}
    try:
        for name in TopologicalSorter(waits).static_order():
            before = [found[writer] for writer in waits[name]] or [(-1, -1)]
            found[name] = min(d[0] for d in before) + 1, max(d[1] for d in before) + 1
    except CycleError:
        return {}
    return found


def distance_of(node: DumpNode, distances: Distances) -> tuple[int, int] | None:
    """The distances of a node; a group is as near as its nearest and as far as its farthest."""
    members = [distances[leaf.name] for leaf in node.leaves() if leaf.name in distances]
    if not members:
        return None
    return min(d[0] for d in members), max(d[1] for d in members)
