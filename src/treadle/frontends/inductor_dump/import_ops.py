"""Nodes of a dump as operations of a program, by node and IR class.

SchedulerNode(ComputedBuffer)            Loop; opaque Extern where the body says too little
SchedulerNode(...TemplateBuffer)         Template
NopKernelSchedulerNode                   Nop
MultiOutput                              MultiOutput
_CollectiveKernel, _AllReduce_Kernel     Collective
_WaitKernel                              Wait
UserDefinedTritonKernel                  UserKernel
any other extern                         Extern
Fused..., OuterLoopFused..., FusedNested... -> Fused   Foreach... -> Foreach
FusedMixOrder... -> MixOrder                           Grouped... -> Grouped
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from treadle.frontends.dumps import Finding
from treadle.frontends.inductor_dump import model
from treadle.frontends.inductor_dump.import_body import UnsayableError, import_body
from treadle.frontends.inductor_dump.import_buffers import SectionNames, creation_key
from treadle.frontends.inductor_dump.model import DumpNode
from treadle.frontends.inductor_dump.rederive_users import buffers_of
from treadle.ir.program import (
    Arg,
    Call,
    Collective,
    Extern,
    Foreach,
    Fused,
    Group,
    Grouped,
    Loop,
    MixOrder,
    MultiOutput,
    Nop,
    Operation,
    Ref,
    Template,
    UserKernel,
    Wait,
)
from treadle.ir.types import BufferKind

C = TypeVar("C", bound=Call)

COLLECTIVES = frozenset({"_CollectiveKernel", "_AllReduce_Kernel", "_AllReduceKernel"})
WITH_EFFECTS = frozenset(
    {"AssertScalar", "MemoryCheckKernel", "Print", "DynamicScalar", "EffectfulKernel"}
)
GROUPS: Mapping[str, type[Group]] = {
    "ForeachKernelSchedulerNode": Foreach,
    "FusedMixOrderReductions": MixOrder,
    "GroupedSchedulerNode": Grouped,
}
OPAQUE_LOOP = "inductor.loop"
CONCAT = "inductor.concat"


class Importer:
    """Makes the operations of one section; `names` knows its buffers."""

    def __init__(self, names: SectionNames) -> None:
        self.names = names
        self.positions = _tuple_positions(names)
        self.waited = _waited_for(names)
        self.synchronous: set[str] = set()
        self.opaque: dict[str, str] = {}
        """Loops that cannot be loops here, with the reason."""

    def operation(self, node: DumpNode) -> Operation:
        """The operation a node is, members included."""
        if node.kind == "group":
            members = tuple([self.operation(m) for m in node.snodes])
            if len(members) == 1 and members[0].name == node.name:
                return members[0]  # a group of one has no name of its own
            kind = GROUPS.get(node.node_class, Fused)
            return kind(name=node.name, device=members[0].device, members=members)
        if node.kind == "loop":
            return self._loop(node)
        if node.kind == "nop":
            return self._nop(node)
        return self._extern(node)

    # -- loops and allocations -------------------------------------------------------------
    def _loop(self, node: DumpNode) -> Operation:
        assert isinstance(node.detail, model.DumpLoop)
        if node.detail.body is None and node.arguments == ("ComputedBuffer",):
            self.opaque.setdefault(node.name, "its body is not shown")
            return self._call(node, Extern, OPAQUE_LOOP)
        if node.detail.body is None:
            call = self._call(node, Template, ".".join(node.arguments) or "template")
            return replace(call, prologue_slots=_tensors(self.names, call.args))
        if node.name not in self.opaque:
            try:
                body = import_body(node.detail, self.names.place_of, self.names.buffers)
                return Loop(name=node.name, device=node.detail.device, body=body)
            except (UnsayableError, KeyError) as problem:
                self.opaque[node.name] = str(problem)
        return self._call(node, Extern, OPAQUE_LOOP)

    def _nop(self, node: DumpNode) -> Operation:
        made = [b.name for b in buffers_of(node) if not b.mutations]
        parts = [p for name in made for p in self.names.copied_parts.get(name, ())]
        if parts:
            return Extern(
                name=node.name,
                device=self.names.device_of(node),
                target=CONCAT,
                args=tuple(Ref(p) for p in parts),
                writes=tuple(made),
            )
        return Nop(name=node.name, device=self.names.device_of(node), writes=tuple(made))

    # -- calls -----------------------------------------------------------------------------
    def _extern(self, node: DumpNode) -> Operation:
        what = node.arguments[0] if node.arguments else ""
        kernel = node.detail.kernel if isinstance(node.detail, model.DumpCall) else "None"
        target = kernel if kernel != "None" else f"inductor.{what}"
        device = self.names.device_of(node)
        if what == "MultiOutput" and node.name in self.positions:
            source, position = self.positions[node.name]
            made = self.names.real(buffers_of(node)[0].name)
            return MultiOutput(
                name=node.name,
                device=device,
                source=source,
                position=position,
                target=made,
            )
        if what == "_WaitKernel" and node.name not in self.synchronous:
            return Wait(name=node.name, device=device, buffer=self._waits_on(node))
        if what in COLLECTIVES:
            return self._collective(node, target)
        if what == "UserDefinedTritonKernel":
            return self._call(node, UserKernel, target)
        call = self._call(node, Extern, target)
        return replace(call, has_side_effects=True) if what in WITH_EFFECTS else call

    def _collective(self, node: DumpNode, target: str) -> Operation:
        """A collective says that it changes its operands too; it does those that are waited for."""
        if node.name in self.synchronous:
            return replace(self._call(node, Extern, target), has_side_effects=True)
        call = self._call(node, Collective, target)
        in_place = target.removesuffix(".default").endswith("_")
        changed = tuple(m for m in call.mutates if m in self.waited)
        if not in_place and changed:
            call = replace(call, mutates=changed)
        return call

    def _waits_on(self, node: DumpNode) -> str:
        changed = [m for b in buffers_of(node) for m in b.mutations]
        read = [d.name for d in (*node.unmet, *node.met) if not isinstance(d, model.WeakDep)]
        return self.names.real((changed or read or [""])[0])

    def _call(self, node: DumpNode, kind: type[C], target: str) -> C:
        """A call with what the dependences of the node say it reads, in the order they have."""
        names = self.names
        reads = [names.real(d.name) for d in (*node.unmet, *node.met)
                 if not isinstance(d, model.WeakDep)]  # fmt: skip
        made = buffers_of(node)
        writes = [b.name for b in made if not b.mutations]
        mutates = [names.real(m) for b in made for m in b.mutations]
        args = [r for r in dict.fromkeys(reads) if r not in writes]
        tuples = [a for a in args if names.buffers[a].kind is BufferKind.TUPLE]
        return kind(
            name=node.name,
            device=self.names.device_of(node),
            target=target,
            args=tuple(Ref(a) for a in args if a not in tuples),
            writes=tuple(writes),
            mutates=tuple(m for m in dict.fromkeys(mutates) if m not in writes),
        )


def _tensors(names: SectionNames, args: tuple[Arg, ...]) -> tuple[str, ...]:
    found = [a.buffer for a in args if isinstance(a, Ref)]
    return tuple(n for n in found if names.buffers[n].kind is BufferKind.TENSOR)


def _tuple_positions(names: SectionNames) -> dict[str, tuple[str, int]]:
    """For each MultiOutput its tuple and position: not in the dump, so in order of creation."""
    takers: dict[str, list[str]] = {}
    for node in names.section.leaves():
        if node.arguments[:1] == ("MultiOutput",):
            for dep in (*node.unmet, *node.met):
                made = names.buffers.get(dep.name)
                if made is not None and made.kind is BufferKind.TUPLE:
                    takers.setdefault(dep.name, []).append(node.name)
                    break
    found = {}
    for source, nodes in takers.items():
        for position, name in enumerate(sorted(nodes, key=creation_key)):
            found[name] = (source, position)
    return found


def _waited_for(names: SectionNames) -> set[str]:
    found = set()
    for node in names.section.leaves():
        if node.arguments[:1] == ("_WaitKernel",):
            found |= {names.real(m) for b in buffers_of(node) for m in b.mutations}
            found |= {names.real(d.name) for d in node.unmet}
    return found


def note(code: str, message: str, line: int) -> Finding:
    """Something assumed on import: a note."""
    return Finding(code, message, line, is_note=True)
