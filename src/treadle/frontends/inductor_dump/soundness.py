"""What no dump of the peer says: things defined twice, read before they are written, unknown words,
sizes below zero, accesses outside a buffer. A file that says so was damaged, joined or made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treadle.frontends.dumps import Finding
from treadle.frontends.inductor_dump.model import (
    Argument,
    Bracketed,
    DumpDevice,
    DumpDType,
    DumpLoop,
    DumpNode,
    DumpSection,
    GetIndex,
    Index,
    Layout,
    LoopBody,
    MemoryDep,
    MultiOutputLayout,
    NoneLayout,
    OpCall,
    Pack,
    QuotedText,
    TensorLayout,
    ValueName,
)
from treadle.frontends.inductor_dump.rederive_users import buffers_of
from treadle.frontends.inductor_dump.vocabulary import is_element_type, is_operation
from treadle.index import Symbol, coefficient, evaluate, loop
from treadle.ir.devices import is_device

TWICE, TOO_EARLY, UNKNOWN_WORD, BELOW_ZERO, OUTSIDE = (
    "IND025", "IND026", "IND027", "IND028", "IND029"
)  # fmt: skip
SHOWN_NAMES = 8


def unsound(section: DumpSection) -> Iterator[Finding]:
    """Yield what is wrong with a section whatever its writer meant."""
    yield from _defined_twice(section)
    yield from _read_too_early(section)
    reported: set[str] = set()
    for node in section.walk():
        for finding in (*_unknown_words(node), *_sizes_below_zero(node)):
            # One wrong word stands in many places; its first place is enough.
            if finding.message not in reported:
                reported.add(finding.message)
                yield finding
    extents = {
        b.name: extent
        for node in section.leaves()
        for b in buffers_of(node)
        if not b.mutations and (extent := _extent(b.layout)) is not None
    }
    for node in section.leaves():
        yield from _outside(node, extents)


# ------------------------------------------------------------------------- names and order


def _defined_twice(section: DumpSection) -> Iterator[Finding]:
    nodes = [(node.name, node.line) for node in section.walk()]
    buffers = [(b.name, b.line) for node in section.leaves() for b in buffers_of(node)]
    for what, names in (("node", nodes), ("buffer", buffers)):
        first: dict[str, int] = {}
        again: dict[str, int] = {}
        for name, line in names:
            if first.setdefault(name, line) != line:
                again.setdefault(name, line)
        if again:
            name, line = next(iter(again.items()))
            more = f" (and {len(again) - 1} more {what}s)" if len(again) > 1 else ""
            message = f"{what} {name} stands here a second time{more}, first in line {first[name]}"
            yield Finding(TWICE, message, line)


def _read_too_early(section: DumpSection) -> Iterator[Finding]:
    """Nodes stand in the order in which they run, so what is read has been written before."""
    leaves = list(section.leaves())
    writer: dict[str, int] = {}
    for position, node in enumerate(leaves):
        for buffer in buffers_of(node):
            writer.setdefault(buffer.name, position)
    wrong = [
        (node, dep.name, leaves[at])
        for position, node in enumerate(leaves)
        for dep in node.unmet
        if (at := writer.get(dep.name, -1)) > position
    ]
    if wrong:
        node, name, other = wrong[0]
        message = f"{node.name} depends on {name}, which {other.name} writes only after it"
        if len(wrong) > 1:
            message += f" ({len(wrong)} such dependences: the nodes are not in order)"
        yield Finding(TOO_EARLY, message, node.line)


# ----------------------------------------------------------------------------------- words


def _unknown_words(node: DumpNode) -> Iterator[Finding]:
    for layout, line in _layouts(node):
        device = _device_of(layout)
        if device is not None and not is_device(device):
            yield Finding(UNKNOWN_WORD, f"there is no device '{device}'", line)
        if isinstance(layout, TensorLayout) and not is_element_type(layout.dtype):
            message = f"there is no element type 'torch.{layout.dtype}'"
            yield Finding(UNKNOWN_WORD, message, line)
    if not isinstance(node.detail, DumpLoop):
        return
    if not is_device(node.detail.device):
        yield Finding(UNKNOWN_WORD, f"there is no device '{node.detail.device}'", node.line)
    for block in node.detail.body.blocks if node.detail.body else ():
        for statement in block.statements:
            if not isinstance(statement, OpCall):
                continue
            if not is_operation(statement.op):
                message = f"{node.name}: there is no operation 'ops.{statement.op}'"
                yield Finding(UNKNOWN_WORD, message, block.line)
            for name in _elements((*statement.args, *[v for _, v in statement.keywords])):
                if not is_element_type(name):
                    message = f"{node.name}: there is no element type 'torch.{name}'"
                    yield Finding(UNKNOWN_WORD, message, block.line)


def _layouts(node: DumpNode) -> Iterator[tuple[Layout, int]]:
    yield from ((buffer.layout, buffer.line) for buffer in node.outputs)
    if isinstance(node.detail, DumpLoop):
        yield from ((layout, node.line) for _, layout in node.detail.layouts)


def _device_of(layout: Layout) -> str | None:
    if isinstance(layout, TensorLayout):
        return layout.device
    if isinstance(layout, NoneLayout | MultiOutputLayout) and isinstance(layout.device, DumpDevice):
        index = layout.device.index
        return layout.device.type if index is None else f"{layout.device.type}:{index}"
    return None


def _elements(arguments: Iterable[Argument]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, DumpDType):
            yield argument.name
        elif isinstance(argument, Pack):
            yield from _elements(argument.items)


# ----------------------------------------------------------------------------------- sizes


def _sizes_below_zero(node: DumpNode) -> Iterator[Finding]:
    for layout, line in _layouts(node):
        if isinstance(layout, TensorLayout):
            parts: tuple[tuple[str, Bracketed | Index | None], ...] = (
                ("size", layout.size), ("stride", layout.stride), ("offset", layout.offset)
            )  # fmt: skip
            for what, numbers in parts:
                yield from _negative(f"a layout with a {what} of", numbers, line)
        elif isinstance(layout, NoneLayout):
            yield from _negative("a layout with a size of", layout.size, line)
    for dep in (*node.writes, *node.unmet, *node.met):
        if isinstance(dep, MemoryDep):
            for name, extent in dep.ranges:
                yield from _negative(f"{node.name}: a loop {name} of extent", extent, node.line)
    if isinstance(node.detail, DumpLoop):
        loops: list[Bracketed | Index] = [node.detail.iteration, node.detail.sizes]
        if node.detail.body:
            loops += [extent for _, extent in node.detail.body.ranges]
        for numbers in loops:
            yield from _negative(f"{node.name}: a loop of extent", numbers, node.line)


def _negative(what: str, numbers: Bracketed | Index | None, line: int) -> Iterator[Finding]:
    for number in _flat(numbers):
        if number.expr is not None and number.expr.value is not None and number.expr.value < 0:
            yield Finding(BELOW_ZERO, f"{what} {number.text}", line)


def _flat(numbers: Bracketed | Index | None) -> Iterator[Index]:
    if isinstance(numbers, Index):
        yield numbers
    elif numbers is not None:
        for item in numbers.items:
            yield from _flat(item)


# -------------------------------------------------------------------------------- accesses


def _extent(layout: Layout) -> int | None:
    """How many elements from its first the layout reaches; None if only run time tells."""
    if not isinstance(layout, TensorLayout) or (layout.offset and _number(layout.offset) != 0):
        return None
    numbers = [[_number(n) for n in _flat(part)] for part in (layout.size, layout.stride)]
    sizes, strides = ([n for n in row if n is not None] for row in numbers)
    if len(sizes) != len(strides) or len(sizes) != len(numbers[0]) or min(sizes, default=0) < 0:
        return None
    if 0 in sizes:
        return 0
    return 1 + sum((n - 1) * stride for n, stride in zip(sizes, strides, strict=True))


def _number(index: Index) -> int | None:
    return None if index.expr is None else index.expr.value


def _outside(node: DumpNode, extents: dict[str, int]) -> Iterator[Finding]:
    """Accesses that are sure to leave a buffer that the dump makes.

    Only inputs can be views of something larger, and only what is masked may be out of range.
    """
    body = node.detail.body if isinstance(node.detail, DumpLoop) else None
    if body is None:
        return
    loops = {loop(name): _number(extent) for name, extent in body.ranges}
    ends = {v: n - 1 for v, n in loops.items() if n is not None and n > 0}
    if len(ends) < len(loops):
        return
    for name, index in _plain_accesses(body):
        if name not in extents or index.expr is None or not index.expr.free <= ends.keys():
            continue
        for point in _corners(index, ends):
            try:
                at = evaluate(index.expr, point)
            except ZeroDivisionError:
                continue
            if not 0 <= at < extents[name]:
                message = f"{node.name} touches element {at} of {name}, which has {extents[name]}"
                yield Finding(OUTSIDE, message, node.line)
                return


def _plain_accesses(body: LoopBody) -> Iterator[tuple[str, Index]]:
    named = dict(body.indices)
    for block in body.blocks:
        if block.name != "body":
            continue
        at: dict[str, Index] = {}
        for statement in block.statements:
            if isinstance(statement, GetIndex) and statement.index in named:
                at[statement.result] = named[statement.index]
            elif isinstance(statement, OpCall) and statement.op in ("load", "store"):
                name, place = (*statement.args[:2], None, None)[:2]
                if (
                    isinstance(name, QuotedText)
                    and isinstance(place, ValueName)
                    and place.name in at
                ):
                    yield name.text, at[place.name]


def _corners(index: Index, ends: dict[Symbol, int]) -> Iterator[dict[Symbol, int]]:
    """Where a sum of multiples is least and greatest, and every loop alone at its end."""
    assert index.expr is not None, "only indices that were understood have corners"
    low, high = {}, {}
    for v, end in ends.items():
        step = coefficient(index.expr, v)
        rises = step is None or step.value is None or step.value >= 0
        low[v], high[v] = (0, end) if rises else (end, 0)
    yield from (low, high)
    for v, end in ends.items():
        yield {**dict.fromkeys(ends, 0), v: end}
