"""From the model of a dump back to its text, by the rules the dumps follow.

    op0.writes = [StarDep(name='buf0', mode=None)]      up to 80 characters: on one line
    op0.unmet_dependencies =                            longer: below, one item a line
        [   MemoryDep('buf1', c0, {c0: 8}),
            MemoryDep('buf2', c0, {c0: 8})]

The line that only announces a list ends with one blank. A single item that is too long stays on
the first line, as `[   MemoryDep(...)]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treadle.frontends.inductor_dump.dialect import ITEM_WIDTH, Dialect
from treadle.frontends.inductor_dump.model import (
    Bracketed,
    Dep,
    Detail,
    DumpBuffer,
    DumpCall,
    DumpDevice,
    DumpLoop,
    DumpNode,
    DumpSection,
    Index,
    InductorDump,
    Layout,
    Members,
    MemoryDep,
    MultiOutputLayout,
    NoneLayout,
    StarDep,
    TensorLayout,
    UnknownNodeLine,
    User,
)
from treadle.frontends.inductor_dump.print_body import body_lines, ranges_text

LIST_WIDTH = 80


def print_dump(dump: InductorDump) -> str:
    """The text of the dump; for one that was parsed, exactly the text it was parsed from."""
    dialect = dump.dialect
    lines: list[str] = []
    for section in dump.sections:
        lines += section.foreign
        printed = section_lines(section, dialect)
        if section.title:
            lines.append(_finished(section.prefix + section.title, dialect))
        lines += [_finished(section.prefix + line, dialect) for line in printed]
    lines += dump.foreign_end
    return dialect.newline.join(lines)


def section_lines(section: DumpSection, dialect: Dialect) -> list[str]:
    """The lines of a section without prefixes; the last one is empty as after a final newline."""
    lines: list[str] = []
    for node in section.nodes:
        lines += node_lines(node, dialect)
        lines += ("", "")
    if section.nodes:
        del lines[-2:]
    return lines + [""] * section.final_newlines


def node_lines(node: DumpNode, dialect: Dialect) -> list[str]:
    """The lines of a node and of its members."""
    name, notes = node.name, _Notes(node.unknown)
    lines = [f"{name}: {node.node_class}({','.join(node.arguments)})", *notes.after("header")]
    for attribute, deps in (
        ("writes", node.writes),
        ("unmet_dependencies", node.unmet),
        ("met_dependencies", node.met),
    ):
        lines += wrapped(f"{name}.{attribute} =", [_dep(dep, dialect) for dep in deps], dialect)
        lines += notes.after(attribute)
    for attribute, distance in (
        ("min_input_distance", node.min_input_distance),
        ("max_input_distance", node.max_input_distance),
    ):
        if distance is not None:
            lines.append(f"{name}.{attribute} = {distance}")
        lines += notes.after(attribute)
    if node.users is not None:
        lines.append(f"{name}.users = [{', '.join([user_text(user) for user in node.users])}]")
        lines += notes.after("users")
    else:
        lines.append(f"{name}.outputs = [")
        for buffer in node.outputs:
            lines += _buffer_lines(buffer, dialect)
        lines.append("]")
    lines += notes.after("outputs")
    lines += _detail_lines(name, node.detail, notes, dialect)
    lines += notes.rest()
    if node.code:
        lines += (f"{name} {node.code.title}", *node.code.lines)
    return lines


class _Notes:
    """The unknown lines of an owner, given out by place; what has lost its place comes last."""

    def __init__(self, unknown: tuple[UnknownNodeLine, ...]) -> None:
        self.waiting = list(unknown)

    def after(self, place: str) -> list[str]:
        """The lines that follow `place`."""
        if not self.waiting:
            return []
        found = [line.text for line in self.waiting if line.after == place]
        self.waiting = [line for line in self.waiting if line.after != place]
        return found

    def rest(self) -> list[str]:
        """The lines that nothing asked for."""
        return [line.text for line in self.waiting]


def _buffer_lines(buffer: DumpBuffer, dialect: Dialect) -> Iterator[str]:
    name, notes = f"    {buffer.name}", _Notes(buffer.unknown)
    yield f"{name}: {buffer.ir_class}"
    yield from notes.after("header")
    yield f"{name}.layout = {layout_text(buffer.layout)}"
    yield from notes.after("layout")
    for attribute, listed in (("aliases", buffer.aliases), ("mutations", buffer.mutations)):
        if listed:
            quoted = [(_quoted(one),) for one in listed]
            yield from wrapped(f"{name}.{attribute} =", quoted, dialect, "    ")
        yield from notes.after(attribute)
    if len(buffer.users) <= 1:
        yield f"{name}.users = [{''.join([user_text(user) for user in buffer.users])}]"
    else:
        yield f"{name}.users = ["
        for user in buffer.users:
            yield f"        {user_text(user)},"
        yield "    ]"
    yield from notes.rest()


def _detail_lines(
    name: str, detail: Detail | None, notes: _Notes, dialect: Dialect
) -> Iterator[str]:
    if isinstance(detail, DumpCall):
        yield f"{name}.node.kernel = {detail.kernel}"
    elif isinstance(detail, Members):
        for position, member in enumerate(detail.snodes):
            yield f"{name}.snodes[{position}] ="
            yield from node_lines(member, dialect)
    elif detail is not None:
        yield from _loop_lines(name, detail, notes, dialect)


def _loop_lines(name: str, loop: DumpLoop, notes: _Notes, dialect: Dialect) -> Iterator[str]:
    yield f"{name}.group.device = {loop.device}"
    yield from notes.after("group.device")
    yield f"{name}.group.iteration = {nest_text(loop.iteration)}"
    yield from notes.after("group.iteration")
    yield f"{name}.sizes = {nest_text(loop.sizes)}"
    yield from notes.after("sizes")
    for attribute, listed in (("aliases", loop.aliases), ("mutations", loop.mutations)):
        if listed:
            quoted = [(_quoted(one),) for one in listed]
            yield from wrapped(f"{name}.{attribute} =", quoted, dialect)
        yield from notes.after(attribute)
    for buffer, layout in loop.layouts:
        yield f"{buffer}_layout = {layout_text(layout)}"
    if loop.body:
        yield f"class {name}_loop_body:"
        yield from body_lines(loop.body)


# ------------------------------------------------------------------------------------- values


def wrapped(
    start: str, items: Sequence[tuple[str, ...]], dialect: Dialect, indent: str = ""
) -> list[str]:
    """A list after `start`, on one line or below it; an item is its parts `Name(a`, `b)`.

    The writer's pprint looks only at the width of the list, not at what stands before it.
    """
    flat = [", ".join(item) for item in items]
    short = f"[{', '.join(flat)}]"
    if len(short) <= LIST_WIDTH:
        return [f"{start} {short}"]
    rows: list[str] = []
    for item, text in zip(items, flat):
        rows += _rows(item, text, dialect)
        rows[-1] += ","
    rows[-1] = f"{rows[-1][:-1]}]"
    if len(rows) == 1:
        return [f"{start} [   {rows[0]}"]
    below = [f"{indent}        {row}" for row in rows[1:]]
    return [f"{start} ", f"{indent}    [   {rows[0]}", *below]


def _rows(item: tuple[str, ...], text: str, dialect: Dialect) -> Iterator[str]:
    if len(text) <= ITEM_WIDTH or not dialect.splits_long_items or len(item) == 1:
        yield text
        return
    column = " " * (text.index("(") + 1)
    for position, part in enumerate(item):
        comma = "," if position < len(item) - 1 else ""
        yield f"{column if position else ''}{part}{comma}"


def dep_text(dep: Dep, dialect: Dialect) -> str:
    """One dependence on one line; the order of these texts is the order of the lists."""
    return ", ".join(_dep(dep, dialect))


def _dep(dep: Dep, dialect: Dialect) -> tuple[str, ...]:
    if isinstance(dep, MemoryDep):
        shows_mode = dep.mode is not None or dialect.always_shows_mode
        mode = f", {dep.mode}" if shows_mode else ""
        return (f"MemoryDep('{dep.name}', {dep.index.text}, {ranges_text(dep.ranges)}{mode})",)
    if isinstance(dep, StarDep):
        mode = "None" if dep.mode is None else _quoted(dep.mode)
        return f"StarDep(name='{dep.name}'", f"mode={mode})"
    fields = (f"WeakDep(name='{dep.name}'", f"mutating_buf='{dep.mutating_buf}'")
    if dep.is_fake is None:
        return fields[0], f"{fields[1]})"
    return *fields, f"is_fake={dep.is_fake})"


def user_text(user: User) -> str:
    """One entry of a list of users."""
    if user.node_class is None:
        node = "OUTPUT"
    elif user.names_group:
        node = f"{user.node_class}(nodes={user.node})"
    else:
        node = f"{user.node_class}(name='{user.node}')"
    weak = "" if user.is_weak is None else f", is_weak={user.is_weak}"
    return f"NodeUser(node={node}, can_inplace={user.can_inplace}{weak})"


def layout_text(layout: Layout) -> str:
    """A layout as it stands after the sign."""
    if isinstance(layout, TensorLayout):
        offset = f", offset={layout.offset.text}" if layout.offset else ""
        pinned = ", is_pinned=True" if layout.is_pinned else ""
        sizes = f"size={nest_text(layout.size)}, stride={nest_text(layout.stride)}"
        device = f"'{layout.device}', torch.{layout.dtype}"
        return f"{layout.kind}({device}, {sizes}{offset}{pinned})"
    if isinstance(layout, NoneLayout):
        size = f", size={nest_text(layout.size)}" if layout.size else ""
        stride = f", stride={nest_text(layout.stride)}" if layout.stride else ""
        return f"NoneLayout(device={_device(layout.device)}{size}{stride})"
    if isinstance(layout, MultiOutputLayout):
        return f"MultiOutputLayout(device={_device(layout.device)})"
    return layout.text


def _device(device: DumpDevice | None) -> str:
    if device is None:
        return "None"
    index = "" if device.index is None else f", index={device.index}"
    return f"device(type='{device.type}'{index})"


def nest_text(nest: Bracketed | Index) -> str:
    """Sizes in their brackets; a tuple of one has a comma."""
    if isinstance(nest, Index):
        return nest.text
    comma = "," if nest.brackets == "()" and len(nest.items) == 1 else ""
    inner = ", ".join([nest_text(item) for item in nest.items])
    return f"{nest.brackets[0]}{inner}{comma}{nest.brackets[1]}"


def _quoted(text: str) -> str:
    return f"'{text}'"


def _finished(line: str, dialect: Dialect) -> str:
    return line if dialect.keeps_trailing_spaces else line.rstrip(" ")
