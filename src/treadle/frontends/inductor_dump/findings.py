"""What is odd in a dump that could be read: things that are missing, or were not understood.

Dumps do not declare the inputs of their graph, so any name that nobody writes is taken for an
input, except names like `buf7`: the scheduler gives those to what its own nodes write, so one
without a writer means that nodes are missing. Numbers that nobody mentions at all are harmless: the
scheduler removed those nodes as dead before it wrote the dump.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from treadle.frontends.dumps import Finding
from treadle.frontends.inductor_dump.model import (
    Argument,
    BodyBlock,
    Bracketed,
    Dep,
    DumpBuffer,
    DumpLoop,
    DumpNode,
    DumpSection,
    GetIndex,
    GetItem,
    Index,
    InductorDump,
    LoopBody,
    MaskedCall,
    MemoryDep,
    OtherLayout,
    Pack,
    Return,
    SetIndirect,
    Statement,
    TensorLayout,
    UnknownStatement,
    ValueName,
)
from treadle.frontends.inductor_dump.rederive_users import removed_users
from treadle.frontends.inductor_dump.soundness import unsound

SHOWN_NAMES = 8
_SCHEDULER_NAME = re.compile(r"((?:\w+_)?(?:buf|op))(\d{1,9})")
_SCHEDULER_BUFFER = re.compile(r"(?:\w+_)?buf\d+")


def find_oddities(dump: InductorDump) -> Iterator[Finding]:
    """Yield the findings of every section, in the order of its nodes."""
    for section in dump.sections:
        yield from _missing_end(section)
        yield from _missing_names(section)
        yield from _removed_names(section)
        yield from unsound(section)
        reported: set[str] = set()
        for node in section.walk():
            for finding in _not_understood(node):
                # One expression stands in many places; its first place is enough.
                if finding.code != "IND005" or finding.message not in reported:
                    reported.add(finding.message)
                    yield finding
            if isinstance(node.detail, DumpLoop) and node.detail.body:
                yield from _broken_references(node, node.detail.body)


# --------------------------------------------------------------------------- missing pieces


def _missing_end(section: DumpSection) -> Iterator[Finding]:
    if section.nodes and section.final_newlines < 2:
        last = section.nodes[-1]
        message = f"no blank line after the last node {last.name}: the end may be missing"
        yield Finding("IND003", message, last.line, is_note=True)


def _missing_names(section: DumpSection) -> Iterator[Finding]:
    written = {name for node in section.walk() for name in _written(node)}
    nodes = {node.name for node in section.walk()}
    removed = removed_users(section)
    reported: set[str] = set()
    for node in section.walk():
        if node.snodes and len(node.snodes) != len(node.arguments):
            message = f"{node.name} names {len(node.arguments)} members, of which "
            message += f"{len(node.snodes)} stand in this dump"
            yield Finding("IND003", message, node.line)
        for name in _read(node):
            known = name in written or not _SCHEDULER_BUFFER.fullmatch(name)
            if not known and name not in reported:
                reported.add(name)
                message = f"{node.name} depends on {name}, which no node of this dump writes"
                yield Finding("IND002", message, node.line)
        for owner, user in _users(node):
            if user in removed.get(owner, ()):
                continue
            if user not in nodes and user not in reported:
                reported.add(user)
                message = f"{owner} is used by {user}, which is not in this dump"
                yield Finding("IND003", message, node.line)


def _written(node: DumpNode) -> Iterator[str]:
    yield from (dep.name for dep in node.writes)
    yield from (buffer.name for buffer in node.outputs)


def _read(node: DumpNode) -> Iterator[str]:
    yield from (dep.name for dep in (*node.unmet, *node.met))
    for buffer in node.outputs:
        yield from (*buffer.aliases, *buffer.mutations)


def _users(node: DumpNode) -> Iterator[tuple[str, str]]:
    if node.users:
        yield from ((node.name, user.node) for user in node.users if not user.is_output)
    for buffer in node.outputs:
        yield from ((buffer.name, user.node) for user in buffer.users if not user.is_output)


def _removed_names(section: DumpSection) -> Iterator[Finding]:
    """Numbers that are skipped among the operations, and among the buffers."""
    seen: dict[str, set[int]] = {}
    for node in section.leaves():
        for name in (node.name, *_written(node)):
            if found := _SCHEDULER_NAME.fullmatch(name):
                seen.setdefault(found[1], set()).add(int(found[2]))
    for stem, numbers in sorted(seen.items()):
        # Stray huge numbers would make a long list; a real graph skips only few.
        if max(numbers) - min(numbers) > 10 * len(numbers) + 1000:
            continue
        gone = sorted(set(range(min(numbers), max(numbers))) - numbers)
        if gone:
            shown = ", ".join([f"{stem}{number}" for number in gone[:SHOWN_NAMES]])
            more = f" and {len(gone) - SHOWN_NAMES} more" if len(gone) > SHOWN_NAMES else ""
            message = f"{shown}{more} skipped: removed before the dump was written"
            yield Finding("IND007", message, section.line, is_note=True)


# --------------------------------------------------------------------------- not understood


def _not_understood(node: DumpNode) -> Iterator[Finding]:
    kept = [*node.unknown, *[line for buffer in node.outputs for line in buffer.unknown]]
    yield from (_unknown(line.line, line.text) for line in kept)
    yield from _odd_layouts(node.outputs)
    yield from _odd_indices((node.writes, node.unmet, node.met), node)
    if not isinstance(node.detail, DumpLoop):
        return
    loop = node.detail
    body = loop.body
    indices = [*_indices_of(loop.iteration), *_indices_of(loop.sizes)]
    if body:
        for line in body.unknown:
            yield _unknown(line.line, line.text)
        for block in body.blocks:
            for statement in block.statements:
                if isinstance(statement, UnknownStatement):
                    yield _unknown(statement.line, statement.text)
        indices += [index for _, index in (*body.ranges, *body.indices)]
    yield from _opaque(indices, body.line if body else node.line)


def _unknown(line: int, text: str) -> Finding:
    shown = text.strip()
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return Finding("IND004", f"not understood, kept as it is: {shown}", line, is_note=True)


def _odd_layouts(buffers: tuple[DumpBuffer, ...]) -> Iterator[Finding]:
    for buffer in buffers:
        layout = buffer.layout
        if isinstance(layout, OtherLayout):
            yield _unknown(buffer.line, layout.text)
        elif isinstance(layout, TensorLayout):
            offset = [layout.offset] if layout.offset else []
            sizes = [*_indices_of(layout.size), *_indices_of(layout.stride), *offset]
            yield from _opaque(sizes, buffer.line)


def _odd_indices(lists: Iterable[tuple[Dep, ...]], node: DumpNode) -> Iterator[Finding]:
    for deps in lists:
        for dep in deps:
            if isinstance(dep, MemoryDep):
                sizes = [size for _, size in dep.ranges]
                yield from _opaque([dep.index, *sizes], node.line)


def _opaque(indices: list[Index], line: int) -> Iterator[Finding]:
    for index in indices:
        if index.expr is None:
            shown = index.text if len(index.text) <= 60 else f"{index.text[:57]}..."
            message = f"an expression the index algebra cannot say: {shown}"
            yield Finding("IND005", message, line, is_note=True)


def _indices_of(nest: Bracketed | Index) -> Iterator[Index]:
    if isinstance(nest, Index):
        yield nest
        return
    for item in nest.items:
        yield from _indices_of(item)


# ------------------------------------------------------------------------ broken references


def _broken_references(node: DumpNode, body: LoopBody) -> Iterator[Finding]:
    indices = {name for name, _ in body.indices}
    blocks = {block.name for block in body.blocks}
    for block in body.blocks:
        for name, what in _dangling(block, indices, blocks):
            message = f"{node.name}, {block.name}: {what} {name} is used but never defined"
            yield Finding("IND006", message, block.line)


def _dangling(block: BodyBlock, indices: set[str], blocks: set[str]) -> Iterator[tuple[str, str]]:
    defined: set[str] = set()
    for statement in block.statements:
        if isinstance(statement, UnknownStatement):
            defined.add(statement.text.partition(" ")[0])
            continue
        for name in _values(statement):
            if name not in defined:
                yield name, "value"
        if isinstance(statement, GetIndex) and statement.index not in indices:
            yield statement.index, "index"
        if isinstance(statement, MaskedCall) and statement.block not in blocks:
            yield statement.block, "block"
        if not isinstance(statement, Return):
            defined.add(statement.result)


def _values(statement: Statement) -> Iterator[str]:
    if isinstance(statement, GetItem):
        yield statement.source
    elif isinstance(statement, MaskedCall):
        yield from _names((statement.mask, statement.other))
    elif isinstance(statement, SetIndirect | Return):
        yield from _names((statement.value,))
    elif not isinstance(statement, GetIndex | UnknownStatement):
        yield from _names((*statement.args, *[value for _, value in statement.keywords]))


def _names(arguments: tuple[Argument, ...]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, ValueName):
            yield argument.name
        elif isinstance(argument, Pack):
            yield from _names(argument.items)
