"""Names after mutations, and who uses which buffer: one walk over the operations as they were made.

A buffer that overwrites x becomes the current name of x: later readers of x depend on it, and the
operation that made it comes after every earlier reader of x (ordering edges, WeakDep). Bodies keep
the first name. Buffers that alias each other share one list of users.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from treadle.frontends.inductor_dump.model import (
    Dep,
    DumpBuffer,
    DumpLoop,
    DumpNode,
    DumpSection,
    LoopBody,
    MemoryDep,
    NoneLayout,
    OtherLayout,
    StarDep,
    User,
    WeakDep,
)
from treadle.frontends.inductor_dump.rederive_access import Spelling, UnsayableError, accesses_of

_NUMBER = re.compile(r"(\d+)$")
_SIZE_FROM_DATA = re.compile(r"\bu\d+\b")


def key(dep: Dep) -> tuple[object, ...]:
    """What a dependence means: equal keys are the same dependence, however it is spelled."""
    if isinstance(dep, MemoryDep):
        ranges = [(name, size.expr or size.text) for name, size in dep.ranges]
        return "memory", dep.name, dep.index.expr or dep.index.text, tuple(ranges), dep.mode
    if isinstance(dep, StarDep):
        return "star", dep.name, dep.mode
    return "weak", dep.name, dep.mutating_buf, dep.is_fake


def body_of(node: DumpNode) -> LoopBody | None:
    """The loop body, of a node that has one."""
    return node.detail.body if isinstance(node.detail, DumpLoop) else None


def buffers_of(node: DumpNode) -> tuple[DumpBuffer, ...]:
    """The outputs of a node; in dumps in which node and buffer are one thing, the node itself."""
    if node.outputs or node.users is None:
        return node.outputs
    loop = node.detail if isinstance(node.detail, DumpLoop) else None
    aliases, mutations = (loop.aliases, loop.mutations) if loop else ((), ())
    layout = OtherLayout("")
    return (DumpBuffer(node.name, "", layout, aliases, mutations, node.users, line=node.line),)


def removed_users(section: DumpSection) -> dict[str, set[str]]:
    """Users that a buffer still lists although they were removed as dead, by buffer.

    Removing a node takes it out of the lists of what it reads, but not out of the copies of that
    list which aliases hold: what an alias alone names, and no node is, was removed.
    """
    nodes = {node.name for node in section.walk()}
    listed = {b.name: {u.node for u in b.users} for n in section.leaves() for b in buffers_of(n)}
    found: dict[str, set[str]] = {}
    for node in section.leaves():
        for buffer in buffers_of(node):
            roots = [listed[name] for name in buffer.aliases if name in listed]
            gone = {n for n in listed[buffer.name] - nodes - {"OUTPUT"}
                    if any(n not in root for root in roots)}  # fmt: skip
            if gone:
                found[buffer.name] = gone
    return found


def names_many_aliases(buffer: DumpBuffer) -> bool:
    """Whether the buffer stands for a call that overwrites several others.

    Newer versions do not take those others for one; older ones did.
    """
    return isinstance(buffer.layout, NoneLayout) and len(buffer.aliases) > 1


def is_normalised(node: DumpNode) -> bool:
    """Whether the dump prints the dependences of this node with merged loops."""
    deps = (*node.writes, *node.unmet, *node.met)
    names = [name for dep in deps if isinstance(dep, MemoryDep) for name, _ in dep.ranges]
    return not any(name.startswith("d") for name in names)


@dataclass(slots=True)
class DerivedNode:
    """What one operation must depend on; without `is_derived` the printed lists were taken."""

    reads: dict[tuple[object, ...], Dep] = field(default_factory=dict)
    writes: dict[tuple[object, ...], Dep] = field(default_factory=dict)
    weak: dict[tuple[object, ...], WeakDep] = field(default_factory=dict)
    targets: list[StarDep] = field(default_factory=list)
    given: list[Dep] = field(default_factory=list)
    spellings: dict[str, set[str]] = field(default_factory=dict)
    """By buffer, the texts of the indices it is read at: different ones can mean the same."""
    is_derived: bool = False
    why_not: str = ""

    def read(self, dep: Dep) -> None:
        """Note a read; of equal ones the first stands."""
        self.reads.setdefault(key(dep), dep)


@dataclass(slots=True)
class _Users:
    """One list of users, shared by the buffers of an alias group."""

    items: list[tuple[str, bool, bool]] = field(default_factory=list)
    seen: set[tuple[str, bool, bool]] = field(default_factory=set)

    def append(self, user: tuple[str, bool, bool]) -> None:
        if user not in self.seen:
            self.seen.add(user)
            self.items.append(user)

    def joined(self, other: _Users) -> _Users:
        both = _Users(list(self.items), set(self.seen))
        for user in other.items:
            both.append(user)
        return both


class BufferUsers:
    """All operations of a section in the order of their numbers, with what follows from them."""

    def __init__(
        self,
        section: DumpSection,
        says_fake: bool,
        joins_many: bool = False,
        calls_use_first_names: bool = False,
    ) -> None:
        """With `calls_use_first_names`, nodes without a body name buffers as bodies do."""
        self.says_fake = says_fake
        self.joins_many = joins_many
        self.calls_use_first_names = calls_use_first_names
        self.by_name: dict[str, DumpNode] = {}
        for node in section.leaves():
            self.by_name.setdefault(node.name, node)
        self.leaves = sorted(self.by_name.values(), key=_creation_order)
        self.derived: dict[str, DerivedNode] = {}
        self.renames: dict[str, str] = {}
        self.writer: dict[str, DumpNode] = {}
        for node in self.leaves:
            for name in _written(node):
                self.writer.setdefault(name, node)
        self._users: dict[str, _Users] = {}
        self._share_aliases()
        for node in self.leaves:
            self.derived[node.name] = self._derive(node)

    def current(self, name: str) -> str:
        """The name under which `name` is now known."""
        seen: set[str] = set()
        while name in self.renames and name not in seen:
            seen.add(name)
            name = self.renames[name]
        return name

    def users_of(self, name: str) -> list[User]:
        """The nodes that use a buffer, each once: a flag holds if it holds in every use."""
        found: dict[str, tuple[bool, bool]] = {}
        for node, can_inplace, is_weak in self._list(name).items:
            before = found.get(node, (True, True))
            found[node] = (before[0] and can_inplace, before[1] and is_weak)
        return [User(node, self.by_name[node].node_class, *both) for node, both in found.items()]

    def sharing(self) -> Iterator[list[str]]:
        """Groups of buffers that alias each other and so share one list of users."""
        groups: dict[int, list[str]] = {}
        for name, users in self._users.items():
            groups.setdefault(id(users), []).append(name)
        return (names for names in groups.values() if len(names) > 1)

    def mutated_inputs(self) -> Iterator[tuple[str, str]]:
        """Names that no operation writes but some overwrite, with the name they end up under."""
        for name in self.renames:
            if name not in self.writer:
                yield name, self.current(name)

    # ------------------------------------------------------------------------- the walk

    def _list(self, name: str) -> _Users:
        return self._users.setdefault(name, _Users())

    def _share_aliases(self) -> None:
        for node in self.leaves:
            for buffer in buffers_of(node):
                if names_many_aliases(buffer) and not self.joins_many:
                    continue
                for other in buffer.aliases:
                    self._share(buffer.name, other)

    def _share(self, name: str, other: str) -> None:
        users = self._users
        if name in users and other in users:
            old = (users[name], users[other])
            both = old[0].joined(old[1])
            for known, shared in users.items():
                if shared is old[0] or shared is old[1]:
                    users[known] = both
        elif name in users:
            users[other] = users[name]
        else:
            users[name] = self._list(other)

    def _derive(self, node: DumpNode) -> DerivedNode:
        derived = self._own_accesses(node)
        mode = None
        if len(derived.writes) == 1:
            (write,) = derived.writes.values()
            mode = write.mode if isinstance(write, MemoryDep) else None
        for buffer in buffers_of(node):
            for target in buffer.mutations:
                self._mutate(node, buffer, self.current(target), mode, derived)
        for dep in derived.reads.values():
            can_inplace = self._can_inplace(node, dep, derived)
            self._list(self.current(dep.name)).append((node.name, can_inplace, False))
        for buffer in buffers_of(node):
            for target in buffer.mutations:
                if self.current(target) != buffer.name:
                    self.renames[self.current(target)] = buffer.name
                    self.renames[target] = buffer.name
        return derived

    def _own_accesses(self, node: DumpNode) -> DerivedNode:
        """Reads and writes from the body; what has no body, or none we can say, as printed."""
        derived = DerivedNode()
        if body := body_of(node):
            try:
                accesses = accesses_of(body)
                spelling = Spelling(body.ranges, is_normalised(node))
                for access in accesses.reads:
                    name = self.current(access.name)
                    derived.read(spelling.dep(access, name))
                    text = access.index.text if access.index else ""
                    derived.spellings.setdefault(name, set()).add(text)
                for access in accesses.writes:
                    dep = spelling.dep(access, access.name)
                    derived.writes.setdefault(key(dep), dep)
                derived.is_derived = True
                self._add_sizes_from_data(node, body, derived)
                return derived
            except UnsayableError as reason:
                derived = DerivedNode(why_not=str(reason))
        for dep in (*node.unmet, *node.met):
            if not isinstance(dep, WeakDep):
                is_first = self.calls_use_first_names
                derived.read(replace(dep, name=self.current(dep.name)) if is_first else dep)
        derived.writes.update({key(dep): dep for dep in node.writes})
        return derived

    def _add_sizes_from_data(self, node: DumpNode, body: LoopBody, derived: DerivedNode) -> None:
        """Depend on the call that found a size such as `u0`; the dump does not say which it is."""
        sizes = [index.text for _, index in (*body.ranges, *body.indices)]
        sizes += [repr(buffer.layout) for buffer in buffers_of(node)]
        if not any(_SIZE_FROM_DATA.search(text) for text in sizes):
            return
        for dep in (*node.unmet, *node.met):
            writer = self.writer.get(dep.name)
            is_call = writer is not None and writer.kind == "extern"
            if isinstance(dep, StarDep) and is_call and key(dep) not in derived.reads:
                derived.given.append(dep)
                derived.read(dep)

    def _mutate(
        self,
        node: DumpNode,
        buffer: DumpBuffer,
        target: str,
        mode: str | None,
        derived: DerivedNode,
    ) -> None:
        """`buffer` overwrites `target`: depend on it, and come after all who have used it."""
        self._list(target).append((node.name, False, False))
        star = StarDep(target, mode)
        derived.targets.append(star)
        derived.read(star)
        for user, _, _ in list(self._list(target).items):
            if user == node.name:
                continue
            for output in buffers_of(self.by_name[user]):
                is_fake = target not in output.aliases if self.says_fake else None
                weak = WeakDep(self.current(output.name), buffer.name, is_fake)
                derived.weak.setdefault(key(weak), weak)
                self._list(weak.name).append((node.name, False, True))

    def _can_inplace(self, node: DumpNode, dep: Dep, derived: DerivedNode) -> bool:
        """Whether the node writes each element where, and when, it has read it."""
        if not body_of(node) or not isinstance(dep, MemoryDep) or len(derived.writes) != 1:
            return False
        if any(buffer.aliases for buffer in buffers_of(node)):
            return False
        (write,) = derived.writes.values()
        return key(write)[2:4] == key(dep)[2:4]


def _written(node: DumpNode) -> Iterable[str]:
    return [*[buffer.name for buffer in buffers_of(node)], *[dep.name for dep in node.writes]]


def _creation_order(node: DumpNode) -> tuple[int, int]:
    number = _NUMBER.search(node.name)
    return (int(number[1][:12]), 0) if number else (1 << 60, node.line)
