"""Buffers of a dump as buffers of a program: names, layouts, inputs, views.

A buffer that mutates another one is only a name for its next version: `real` gives the buffer that
holds the bytes. Graph inputs are the names that nothing produces; their layout is known if some
loop reads them, else unknown, and they count no bytes. Buffers that are parts of a concatenation
carry no offset in the dump: they fill the result one behind the other, in the order they were made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from treadle.frontends.dumps import Finding
from treadle.frontends.inductor_dump import model
from treadle.frontends.inductor_dump.import_body import BufferPlace
from treadle.frontends.inductor_dump.model import DumpNode, DumpSection
from treadle.frontends.inductor_dump.rederive_users import buffers_of
from treadle.index import Const, Expr, Facts, Symbol
from treadle.ir.types import DTYPES, Buffer, BufferKind, DType, Layout

OPAQUE_BYTES = {"complex32": 4, "complex64": 8, "complex128": 16}
"""Element types that only calls touch here: kept as bytes."""
_NUMBER = re.compile(r"(\d+)")


@dataclass
class SectionNames:
    """Everything the names of a section stand for."""

    section: DumpSection
    devices: dict[str, str]
    """Older dumps leave the number out of a layout's device: `cuda` -> `cuda:0`."""
    made: dict[str, tuple[DumpNode, model.DumpBuffer]] = field(default_factory=dict)
    layouts: dict[str, model.Layout] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    unknown_inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    copied_parts: dict[str, list[str]] = field(default_factory=dict)
    """Concatenations whose parts could not be placed: they are copied instead."""
    findings: list[Finding] = field(default_factory=list)

    def real(self, name: str) -> str:
        """The buffer whose bytes `name` is a version of."""
        seen = set()
        while name in self.made and self.made[name][1].mutations and name not in seen:
            seen.add(name)
            name = self.made[name][1].mutations[0]
        return name

    def device_of(self, node: DumpNode) -> str:
        """The device a node works on, with its number."""
        found = device_of(node)
        return self.devices.get(found, found)

    def place_of(self, name: str) -> BufferPlace:
        """Where the elements of `name` are, for a loop body."""
        buffer = self.buffers[self.real(name)]
        if buffer.view_of is None:
            return BufferPlace(buffer, Const(0), buffer.storage_numel)
        root = self.buffers[buffer.view_of]
        return BufferPlace(buffer, buffer.layout.offset, root.storage_numel)


def collect(section: DumpSection) -> SectionNames:
    """The names of a section, with a buffer for each that has bytes or orders something."""
    names = SectionNames(section, devices=_full_names(section))
    for node in section.leaves():
        for buffer in buffers_of(node):
            names.made.setdefault(buffer.name, (node, buffer))
        if isinstance(node.detail, model.DumpLoop):
            for name, layout in node.detail.layouts:
                known = names.layouts.get(name)
                if known is None or not isinstance(known, model.TensorLayout):
                    names.layouts[name] = layout
    _declare_made(names)
    _declare_inputs(names)
    _place_parts(names)
    for name, (_, buffer) in names.made.items():
        real = names.real(name)
        returned = any(user.is_output for user in buffer.users)
        holds = real in names.buffers and names.buffers[real].kind is BufferKind.TENSOR
        if returned and holds and real not in names.outputs:
            names.outputs.append(real)
    return names


def _full_names(section: DumpSection) -> dict[str, str]:
    numbered: dict[str, set[str]] = {}
    for node in section.leaves():
        if isinstance(node.detail, model.DumpLoop) and ":" in node.detail.device:
            kind = node.detail.device.partition(":")[0]
            numbered.setdefault(kind, set()).add(node.detail.device)
    return {kind: found.pop() for kind, found in numbered.items() if len(found) == 1}


def _declare_made(names: SectionNames) -> None:
    for name, (node, buffer) in names.made.items():
        if not buffer.mutations:
            layout = buffer.layout
            if isinstance(layout, model.OtherLayout):
                layout = names.layouts.get(name, layout)
            names.buffers[name] = _buffer(names, name, layout, node)


def _declare_inputs(names: SectionNames) -> None:
    for node in names.section.leaves():
        for dep in (*node.unmet, *node.met):
            real = names.real(dep.name)
            if real in names.buffers or isinstance(dep, model.WeakDep):
                continue
            layout = names.layouts.get(real) or names.layouts.get(dep.name)
            names.inputs.append(real)
            if isinstance(layout, model.TensorLayout):
                names.buffers[real] = _buffer(names, real, layout, node)
            else:
                names.unknown_inputs.append(real)
                empty = Layout.contiguous([0])
                names.buffers[real] = Buffer(real, DType.U8, empty, names.device_of(node))


def _buffer(names: SectionNames, name: str, layout: model.Layout, node: DumpNode) -> Buffer:
    device = names.device_of(node)
    if isinstance(layout, model.MultiOutputLayout):
        return Buffer(name, DType.U8, Layout.contiguous([0]), device, kind=BufferKind.TUPLE)
    if isinstance(layout, model.TensorLayout):
        found = _tensor(name, layout, names.devices.get(layout.device, layout.device))
        if found is not None:
            return found
        note = f"{name}: a layout that has no meaning here; it counts no bytes"
        names.findings.append(Finding("IND021", note, node.line, is_note=True))
        return Buffer(name, DType.U8, Layout.contiguous([0]), device)
    return Buffer(name, DType.U8, Layout.contiguous([0]), device, kind=BufferKind.TOKEN)


def _tensor(name: str, layout: model.TensorLayout, device: str) -> Buffer | None:
    sizes, strides = _exprs(layout.size), _exprs(layout.stride)
    offset = Const(0) if layout.offset is None else layout.offset.expr
    element = layout.dtype.removeprefix("torch.")
    if sizes is None or strides is None or offset is None or len(sizes) != len(strides):
        return None
    if element in OPAQUE_BYTES:
        width = OPAQUE_BYTES[element]
        sizes, strides = (*sizes, Const(width)), (*[s * width for s in strides], Const(1))
        return Buffer(name, DType.U8, Layout(sizes, strides, offset * width), device)
    if element not in DTYPES or any(n.value is not None and n.value < 0 for n in sizes):
        return None
    return Buffer(name, DTYPES[element], Layout(sizes, strides, offset), device)


def _exprs(nest: model.Bracketed) -> tuple[Expr, ...] | None:
    found = []
    for item in nest.items:
        if not isinstance(item, model.Index) or item.expr is None:
            return None
        found.append(item.expr)
    return tuple(found)


def device_of(node: DumpNode) -> str:
    """The device a node works on, from whatever in it names one."""
    if isinstance(node.detail, model.DumpLoop):
        return node.detail.device
    for buffer in buffers_of(node):
        layout = buffer.layout
        if isinstance(layout, model.TensorLayout):
            return layout.device
        if isinstance(layout, model.NoneLayout | model.MultiOutputLayout) and layout.device:
            index = layout.device.index
            return layout.device.type if index is None else f"{layout.device.type}:{index}"
    return "cpu"


# ------------------------------------------------------------------------------ concatenation


def _place_parts(names: SectionNames) -> None:
    """Make the buffers that alias a concatenation views of it, at the offsets they must have."""
    parts: dict[str, list[str]] = {}
    for name, (_, buffer) in names.made.items():
        owned = isinstance(buffer.layout, model.TensorLayout)
        if owned and buffer.aliases and buffer.layout.kind == "NonOwningLayout":  # type: ignore[union-attr]
            root = names.real(buffer.aliases[0])
            if root in names.buffers and root != name:
                parts.setdefault(root, []).append(name)
    for root, members in parts.items():
        members.sort(key=creation_key)
        offsets = part_offsets(names.buffers[root], [names.buffers[m] for m in members])
        placed = [] if offsets is None else [
            _placed(names.buffers[member], offset, root)
            for member, offset in zip(members, offsets, strict=True)
        ]  # fmt: skip
        # Over run-time sizes, that a part ends inside the whole must follow for every size.
        whole = names.buffers[root].storage_numel
        if not placed or not all(Facts().at_most(part.storage_numel, whole) for part in placed):
            names.copied_parts[root] = members
            continue
        names.buffers.update({part.name: part for part in placed})


def _placed(part: Buffer, offset: Expr, root: str) -> Buffer:
    layout = Layout(part.layout.sizes, part.layout.strides, offset)
    return replace(part, layout=layout, view_of=root)


def part_offsets(root: Buffer, parts: list[Buffer]) -> list[Expr] | None:
    """Where the parts begin, if along one dimension they fill the root exactly."""
    whole = root.layout
    for dim in range(len(whole.sizes)):
        position: Expr = Const(0)
        offsets: list[Expr] = []
        for part in parts:
            same_form = part.layout.strides == whole.strides and part.dtype is root.dtype
            others = (s for k, s in enumerate(part.layout.sizes) if k != dim)
            wanted = (s for k, s in enumerate(whole.sizes) if k != dim)
            if not same_form or tuple(others) != tuple(wanted):
                break
            offsets.append(whole.offset + position * whole.strides[dim])
            position = position + part.layout.sizes[dim]
        if len(offsets) == len(parts) and position is whole.sizes[dim]:
            return offsets
    return None


def creation_key(name: str) -> tuple[int, str]:
    """Sorts `buf9` before `buf10`."""
    found = _NUMBER.search(name)
    return (int(found.group(1)) if found else 0, name)


# ------------------------------------------------------------------------------------- sizes


def sizes_in(buffers: Iterable[Buffer], more: Iterable[Expr]) -> tuple[Symbol, ...]:
    """The run-time sizes that occur, in order of name."""
    found: set[Symbol] = set()
    for e in (*_layout_exprs(buffers), *more):
        found |= {s for s in e.free if s.kind.name == "SIZE"}
    return tuple(sorted(found, key=lambda s: creation_key(s.name)))


def _layout_exprs(buffers: Iterable[Buffer]) -> Iterator[Expr]:
    for b in buffers:
        yield from (*b.layout.sizes, *b.layout.strides, b.layout.offset)
