"""Operations as nodes of a dump, without what follows from the rest: dependences, users, headers.

Loop                 SchedulerNode(ComputedBuffer), with its body
Template             SchedulerNode(<target>), without
Nop                  NopKernelSchedulerNode(ComputedBuffer), or (ConcatKernel) if it has parts
calls                ExternKernelSchedulerNode(<class>): the class follows from kind and target
Fused, Foreach ...   FusedSchedulerNode, ForeachKernelSchedulerNode ...

Reads of nodes without a body stand in `met` under the first names of buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal

from treadle.frontends.inductor_dump import model
from treadle.frontends.inductor_dump.dialect import Dialect
from treadle.frontends.inductor_dump.export_body import Context, export_body
from treadle.frontends.inductor_dump.export_names import ExportedNames, Output
from treadle.frontends.inductor_dump.import_body import BufferPlace
from treadle.frontends.inductor_dump.import_ops import (
    COLLECTIVES,
    CONCAT,
    OPAQUE_LOOP,
    WITH_EFFECTS,
)
from treadle.frontends.inductor_dump.model import Bracketed, DumpDevice, DumpNode, Index, StarDep
from treadle.frontends.inductor_dump.rederive_access import (
    DumpAccess,
    Spelling,
    UnsayableError,
    accesses_of,
)
from treadle.frontends.inductor_dump.rederive_groups import iteration_of
from treadle.index import Const, Expr, loop
from treadle.ir.effects import effects
from treadle.ir.program import (
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
    Template,
    UserKernel,
    Wait,
)
from treadle.ir.types import Buffer, BufferKind

CLASSES: Mapping[type[Group], str] = {
    Fused: "FusedSchedulerNode",
    Foreach: "ForeachKernelSchedulerNode",
    MixOrder: "FusedMixOrderReductions",
    Grouped: "GroupedSchedulerNode",
}
WAIT = "torch.ops._c10d_functional.wait_tensor.default"
BY_TARGET = (
    ("_c10d_functional.wait_tensor", "_WaitKernel"),
    ("_c10d_functional.", "_CollectiveKernel"),
    ("extern_kernels.", "ExternKernelOut"),
    ("aten.randint.low_out", "RandomSeeds"),
    ("_inductor_debug.check_memory_step", "MemoryCheckKernel"),
)
"""Which IR class makes a call, by a part of its target; a FallbackKernel makes any other."""
MUTATION = "MutationLayoutSHOULDREMOVE"


class NodeWriter:
    """Makes the nodes of one program."""

    def __init__(self, names: ExportedNames, dialect: Dialect) -> None:
        self.names, self.dialect = names, dialect
        self.layouts: dict[str, model.Layout] = {}
        """Of everything that has a name in the dump."""
        self.notes: list[tuple[str, str]] = []
        for name in names.program.inputs:
            self.layouts[names.buffer[name]] = self.layout(names.buffers[name])

    # -- nodes -----------------------------------------------------------------------------
    def node(self, op: Operation) -> DumpNode:
        """The node for an operation, members included."""
        if isinstance(op, Group) and len(op.members) == 1:
            return self.node(op.members[0])  # the group would have the name of its member
        if isinstance(op, Group):
            members = tuple([self.node(m) for m in op.members])
            classes = tuple([m.node_class for m in members])
            kind, detail = CLASSES[type(op)], model.Members(members)
            return DumpNode(self.names.op[op.name], kind, classes, (), (), (), detail=detail)
        if isinstance(op, Loop):
            try:
                return self._loop(op)
            except UnsayableError as reason:
                self.notes.append((op.name, f"its body is not shown: {reason}"))
                return self._without_body(op, ("ComputedBuffer",))
        if isinstance(op, Template):
            return self._without_body(op, tuple(filter(str.isidentifier, op.target.split("."))))
        if isinstance(op, Extern) and op.target == OPAQUE_LOOP:
            return self._without_body(op, ("ComputedBuffer",))
        if isinstance(op, Nop) or (isinstance(op, Extern) and op.target == CONCAT):
            return self._nop(op)
        return self._extern(op, *self._class_of(op))

    def _loop(self, op: Loop) -> DumpNode:
        names, said = self.names, self.names.said
        stored = {b: o.name for o in names.outputs[op.name] for b in [o.buffer] if b is not None}
        context = Context(
            place=self.place,
            place_of=self._place_of,
            stored=_Homes(names, stored),
            buffers=names.program.by_name,
            said=said,
            dialect=self.dialect,
        )
        body = export_body(op.body, context)
        if any(at.stmt.op == "scan" for at in op.body.walk()):
            self.notes.append((op.name, "how its scan combines values is not shown"))
        kept = [Index.of(said(n)) for n in op.body.domain.extents]
        reduced = [Index.of(said(n)) for n in op.body.reduce.extents]
        detail = self._space(op.device, kept, reduced, body)
        outputs = self._outputs(op, "ComputedBuffer", MUTATION)
        deps = _deps(body, not self.dialect.keeps_loops_apart)
        return self._node(op, "SchedulerNode", "ComputedBuffer", outputs, detail, *deps)

    def _space(
        self, device: str, kept: list[Index], reduced: list[Index], body: model.LoopBody | None
    ) -> model.DumpLoop:
        brackets: Literal["()", "[]"] = "()" if self.dialect.sizes_are_tuples and body else "[]"
        sizes = Bracketed(
            (Bracketed(tuple(kept), brackets), Bracketed(tuple(reduced), brackets)), "()"
        )
        iteration = iteration_of(device, kept, reduced)
        assert iteration is not None, "a loop to export has extents that the dialect can say"
        return model.DumpLoop(device, iteration, sizes, (), body)

    def _without_body(self, op: Operation, what: tuple[str, ...]) -> DumpNode:
        """A node that shows its space and layouts only: a template, a loop that cannot be said."""
        what = what or ("TemplateBuffer",)
        outputs = self._outputs(op, what[-1], MUTATION if isinstance(op, Loop) else "")
        rows = self.names.outputs[op.name]
        made = [o.buffer for o in rows if o.buffer and not o.target]
        sizes = self.names.buffers[made[0]].layout.sizes if made else ()
        detail = self._space(op.device, [Index.of(n) for n in sizes], [], None)
        writes = tuple([self.whole(o.name, o.buffer) for o in rows])
        reads = tuple([self.whole(d.name, self.names.buffer_called[d.name])
                       for d in self._reads(op)])  # fmt: skip
        self._say_what_is_lost(op)
        return self._node(op, "SchedulerNode", what, outputs, detail, writes, reads)

    def _nop(self, op: Operation) -> DumpNode:
        parts = self.names.parts.get(op.name, ())
        what = "ConcatKernel" if parts else "ComputedBuffer"
        outputs = self._outputs(op, what)
        reads = tuple([StarDep(self.names.buffer[p]) for p in parts])
        rows = self.names.outputs[op.name]
        writes: tuple[model.Dep, ...] = tuple([StarDep(o.name) for o in rows])
        if not parts:
            writes = tuple([self.whole(o.name, o.buffer, empty=True) for o in rows])
        return self._node(op, "NopKernelSchedulerNode", what, outputs, None, writes, reads)

    def _extern(self, op: Operation, what: str, kernel: str) -> DumpNode:
        outputs = self._outputs(op, what)
        reads = self._reads(op)
        rows = self.names.outputs[op.name]
        writes: tuple[model.Dep, ...] = tuple([StarDep(o.name) for o in rows])
        if isinstance(op, MultiOutput) and self.dialect.shows_distances:
            writes = tuple([self.whole(o.name, o.buffer, merged=True) for o in rows])
        self._say_what_is_lost(op)
        detail = model.DumpCall(kernel)
        return self._node(op, "ExternKernelSchedulerNode", what, outputs, detail, writes, reads)

    def _node(
        self,
        op: Operation,
        kind: str,
        what: str | tuple[str, ...],
        outputs: tuple[model.DumpBuffer, ...],
        detail: model.Detail | None,
        writes: tuple[model.Dep, ...] = (),
        reads: tuple[model.Dep, ...] = (),
    ) -> DumpNode:
        arguments = (what,) if isinstance(what, str) else what
        name = self.names.op[op.name]
        return DumpNode(name, kind, arguments, writes, (), reads, outputs, detail)

    # -- calls -----------------------------------------------------------------------------
    def _class_of(self, op: Operation) -> tuple[str, str]:
        """IR class and kernel of a call."""
        if isinstance(op, MultiOutput):
            return "MultiOutput", "None"
        if isinstance(op, Wait):
            return "_WaitKernel", WAIT
        assert isinstance(op, Call)
        base = op.target.removeprefix("inductor.")
        if isinstance(op, UserKernel):
            is_plain = base == "UserDefinedTritonKernel"
            return "UserDefinedTritonKernel", "None" if is_plain else op.target
        if isinstance(op, Collective):
            is_new = self.dialect.shows_distances and ".all_reduce_.default" in op.target
            return "_AllReduce_Kernel" if is_new else "_CollectiveKernel", op.target
        is_class = base != op.target and base.isidentifier() and op.target != OPAQUE_LOOP
        found = [what for part, what in BY_TARGET if part in op.target]
        what = base if is_class else (found or ["FallbackKernel"])[0]
        acts = what in WITH_EFFECTS or what in COLLECTIVES or what == "_WaitKernel"
        if op.has_side_effects and not acts:
            return "EffectfulKernel", op.target
        return what, "None" if is_class else op.target

    def _reads(self, op: Operation) -> tuple[model.Dep, ...]:
        read = list(effects(op).reads)
        if isinstance(op, Wait):
            read += self._kept_until(op)
        homes = dict.fromkeys(self.names.home(n) for n in read)
        mine = {o.buffer for o in self.names.outputs[op.name] if o.target is None}
        return tuple([StarDep(self.names.buffer[n]) for n in homes if n not in mine])

    def _kept_until(self, op: Wait) -> list[str]:
        """What the collective was given: it is needed until the wait, unless changed in place."""
        for other in self.names.program.leaves:
            if isinstance(other, Collective) and op.buffer in other.writes:
                return list(effects(other).reads[:1])
        return []

    def _say_what_is_lost(self, op: Operation) -> None:
        if not isinstance(op, Call):
            return
        lost = ["arguments that are no buffers"] if _has_others(op) else []
        lost += [f"its group {op.group}"] if isinstance(op, Collective) and op.group else []
        views = [n for n in effects(op).reads if n not in self.names.buffer]
        known = self.names.program.by_name
        if any("." not in n and known[n].view_of is not None for n in views):
            lost.append("that it sees operands as views")
        if any(o.target and o.buffer in op.writes for o in self.names.outputs[op.name]):
            lost.append("that it overwrites a buffer without looking at it")
        if lost:
            self.notes.append((op.name, f"not shown: {', '.join(lost)}"))

    # -- buffers ---------------------------------------------------------------------------
    def _outputs(self, op: Operation, what: str, version: str = "") -> tuple[model.DumpBuffer, ...]:
        rows = self.names.outputs[op.name]
        targets = tuple([o.target for o in rows if o.target])
        found = []
        for o in rows:
            layout = self._output_layout(op, o, version)
            is_version = o.target is not None
            aliases: tuple[str, ...] = ()
            if o.buffer in self.names.part_of and not is_version:
                aliases = (self.names.buffer[self.names.part_of[o.buffer]],)
            elif o.buffer in self._copied and not is_version:
                aliases = (self._copied[o.buffer],)
            elif isinstance(op, Call) and isinstance(layout, model.NoneLayout) and not is_version:
                aliases = targets
            mutations = (o.target,) if o.target else ()
            kind = "MutationOutput" if is_version and not version else what
            found.append(model.DumpBuffer(o.name, kind, layout, aliases, mutations))
            self.layouts[o.name] = layout
        return tuple(found)

    @cached_property
    def _copied(self) -> Mapping[str | None, str]:
        """Parts that a concatenation copies, with the name of the whole."""
        return {
            part: self.names.outputs[op][0].name
            for op, parts in self.names.parts.items()
            for part in parts
            if part not in self.names.part_of
        }

    def _output_layout(self, op: Operation, o: Output, version: str) -> model.Layout:
        buffer = self.names.buffers.get(o.buffer or "")
        if buffer is None or (o.target and not version):
            return self._none(op.device if buffer is None else buffer.device)
        if o.target:
            return self.layout(buffer, version)
        is_part = o.buffer in self.names.part_of or o.buffer in self._copied
        return self.layout(buffer, "NonOwningLayout" if is_part else "FixedLayout")

    def _none(self, device: str) -> model.Layout:
        zero = Bracketed((Index.of(Const(0)),))
        if self.dialect.always_shows_mode:
            return model.NoneLayout(_device(device))
        return model.NoneLayout(_device(device), zero, zero)

    def layout(self, buffer: Buffer, kind: str = "FixedLayout") -> model.Layout:
        """The layout line of a buffer."""
        if buffer.kind is BufferKind.TUPLE:
            return model.MultiOutputLayout(_device(buffer.device))
        if buffer.kind is BufferKind.TOKEN:
            return self._none(buffer.device)
        device = buffer.device
        if not self.dialect.layouts_show_device_index:
            device = device.partition(":")[0]
        of = buffer.layout
        size, stride = (Bracketed(tuple(map(Index.of, part))) for part in (of.sizes, of.strides))
        hides_offset = of.offset.value == 0 or kind == "NonOwningLayout"
        offset = None if hides_offset else Index.of(of.offset)
        return model.TensorLayout(kind, device, buffer.dtype.torch_name, size, stride, offset)

    def place(self, name: str) -> tuple[str, Expr]:
        """The dump's name for a buffer in a body, and where its indices begin."""
        names = self.names
        home, known = names.home(name), names.program.by_name
        if known[home].dtype is not known[name].dtype:
            raise UnsayableError(f"{name} is a view of {home} with other elements")
        start = known[name].layout.offset if name in names.part_of else Const(0)
        return names.buffer[home], start

    def _place_of(self, name: str) -> BufferPlace:
        """What a reader of the dump takes a name for."""
        names = self.names
        home = names.buffer_called[name]
        buffer = names.buffers[home]
        root = names.buffers[names.program.storage_of(home)]
        start = buffer.layout.offset if home in names.part_of else Const(0)
        return BufferPlace(buffer, start, root.storage_numel)

    def whole(
        self, name: str, buffer: str | None, merged: bool = False, empty: bool = False
    ) -> model.Dep:
        """The dependence on every element; of an allocation, on none."""
        if buffer is None or self.names.buffers[buffer].kind is not BufferKind.TENSOR:
            return StarDep(name)
        layout = self.names.buffers[buffer].layout
        at = [loop(f"p{k}") for k in range(len(layout.sizes))]
        index = layout.index(at)
        ranges = tuple([(v.name, Index.of(n)) for v, n in zip(at, layout.sizes, strict=True)])
        dep = Spelling(ranges, merged).dep(DumpAccess(name, Index.of(index)), name)
        if empty and isinstance(dep, model.MemoryDep):
            none = Index.of(Const(0))
            return model.MemoryDep(name, dep.index, tuple([(v, none) for v, _ in dep.ranges]))
        return dep


class _Homes(dict[str, str]):
    """Names to store to, also for views of what is stored."""

    def __init__(self, names: ExportedNames, stored: Mapping[str, str]) -> None:
        super().__init__(stored)
        self.names = names

    def __missing__(self, name: str) -> str:
        return self[self.names.home(name)]


def _deps(
    body: model.LoopBody, merged: bool
) -> tuple[tuple[model.Dep, ...], tuple[model.Dep, ...]]:
    """Writes and reads before any renaming: they also say how accesses are to be spelled."""
    accesses, spelling = accesses_of(body), Spelling(body.ranges, merged)
    parts = (accesses.writes, accesses.reads)
    writes, reads = (tuple([spelling.dep(a, a.name) for a in part]) for part in parts)
    return writes, reads


def _has_others(op: Call) -> bool:
    return bool(op.attrs) or _not_buffers(op.args)


def _not_buffers(args: Iterable[object]) -> bool:
    return any(type(a).__name__ != "Ref" for a in args)


def _device(text: str) -> DumpDevice:
    kind, _, number = text.partition(":")
    return DumpDevice(kind, int(number) if number.isdigit() else None)
