"""The peer's estimate of the bytes a node moves, from what the dump itself says.

Per buffer the number of accesses times the iterations, at most all its elements; calls and groups
count as 10^9 iterations, which caps buffers of more elements than that. Allocations and the
taking apart of tuples move nothing; a tuple has the bytes of what is taken out; a buffer that only
names a mutation has the bytes of what it mutates. Buffers used only inside a group are left out.
`treadle.analysis.accounting` counts the same for programs, and what is really moved beside it.
"""

from __future__ import annotations

from collections import Counter

from treadle.frontends.inductor_dump import model
from treadle.frontends.inductor_dump.import_buffers import SectionNames, collect
from treadle.frontends.inductor_dump.model import DumpNode, DumpSection
from treadle.frontends.inductor_dump.rederive_users import buffers_of
from treadle.index import hint

CAP = 10**9


class Estimates:
    """Bytes by node, and the accesses whose size the dump does not tell."""

    def __init__(self, section: DumpSection, names: SectionNames | None = None) -> None:
        self.names = names if names is not None else collect(section)
        self.unknown_accesses = 0
        self._taken = _taken_apart(section)
        self.by_node = {node.name: self._bytes(node) for node in section.nodes}
        self.by_kind: Counter[str] = Counter()
        for node in section.nodes:
            self.by_kind[kind_of(node)] += self.by_node[node.name]

    @property
    def total(self) -> int:
        """Bytes of all nodes together."""
        return sum(self.by_node.values())

    def _bytes(self, node: DumpNode) -> int:
        if node.kind == "nop" or node.arguments[:1] == ("MultiOutput",):
            return 0
        points = CAP
        if isinstance(node.detail, model.DumpLoop) and node.detail.body is not None:
            points = 1
            for _, extent in node.detail.body.ranges:
                points *= 1 if extent.expr is None else hint(extent.expr)
        inside = _inside(node)
        touched: Counter[str] = Counter()
        for dep in (*node.unmet, *node.met, *node.writes):
            if not isinstance(dep, model.WeakDep) and dep.name not in inside:
                touched[dep.name] += 1
        return sum(self._touched(name, points * count) for name, count in touched.items())

    def _touched(self, name: str, elements: int) -> int:
        if name in self._taken:
            return sum(self.names.buffers[part].tensor_bytes for part in self._taken[name])
        real = self.names.real(name)
        if real in self.names.unknown_inputs:
            self.unknown_accesses += 1
            return 0
        buffer = self.names.buffers[real]
        return min(elements, hint(buffer.numel)) * buffer.dtype.itemsize


def kind_of(node: DumpNode) -> str:
    """The word under which a node is counted."""
    if node.kind == "extern" or node.kind == "other":
        return node.arguments[0] if node.arguments else node.node_class
    return {"group": node.node_class, "nop": "allocation"}.get(node.kind, node.kind)


def _taken_apart(section: DumpSection) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for node in section.leaves():
        if node.arguments[:1] == ("MultiOutput",):
            for dep in (*node.unmet, *node.met):
                found.setdefault(dep.name, []).extend(b.name for b in buffers_of(node))
    return found


def _inside(node: DumpNode) -> set[str]:
    """Buffers that the members of a group make and only they use."""
    if node.kind != "group":
        return set()
    members = {leaf.name for leaf in node.leaves()}
    found = set()
    for leaf in node.leaves():
        for buffer in buffers_of(leaf):
            users = [None if user.is_output else user.node for user in buffer.users]
            if users and members.issuperset(users):
                found.add(buffer.name)
    return found
