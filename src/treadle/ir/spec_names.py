"""Rules about names: everything is declared once, and everything named exists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from treadle.core.errors import Violation
from treadle.index import Expr, Facts, Symbol, hint
from treadle.ir.devices import is_device
from treadle.ir.effects import effects
from treadle.ir.program import Arg, Call, MultiOutput, Program, Ref, walk_operations
from treadle.ir.types import BufferKind

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*")
"""What index expressions can speak of."""


def _twice(names: Iterable[str]) -> list[str]:
    return [n for n, count in Counter(names).items() if count > 1]


def buffers_are_sound(program: Program) -> list[Violation]:
    """The rules about buffers alone, asked once for all programs over the same ones."""
    return program.derive_from_buffers(_about_buffers)


def _about_buffers(program: Program) -> list[Violation]:
    rules = (buffers_are_declared_once, views_fit, layouts_use_declared_sizes)
    return [violation for rule in rules for violation in rule(program)]


def buffers_are_declared_once(program: Program) -> Iterator[Violation]:
    """IR001: no two buffers of one name."""
    for name in _twice(b.name for b in program.buffers):
        yield Violation("IR001", f"buffer {name} is declared more than once", name)


def operations_are_named_once(program: Program) -> Iterator[Violation]:
    """IR002: no two operations of one name, members of groups included."""
    for name in _twice(op.name for op in walk_operations(program.ops)):
        yield Violation("IR002", f"operation {name} occurs more than once", name)


def touched_buffers_exist(program: Program) -> Iterator[Violation]:
    """IR003: operations, views, inputs and outputs name declared buffers."""
    known = program.by_name
    for op in program.leaves:
        if program.knows(op, "_names_exist"):
            continue
        unknown = [name for name in effects(op).touched if name not in known]
        if not unknown:
            program.note(op, "_names_exist")
        for name in unknown:
            yield Violation("IR003", f"unknown buffer {name}", op.name)
    for b in program.buffers:
        if b.view_of is not None and b.view_of not in known:
            yield Violation("IR003", f"a view of the unknown buffer {b.view_of}", b.name)
    for word in ("inputs", "outputs", "donated"):
        for name in getattr(program, word):
            if name not in known:
                yield Violation("IR003", f"unknown buffer {name} in {word}", word)


def devices_exist(program: Program) -> Iterator[Violation]:
    """IR020: buffers and operations are on devices that there are."""
    for device, name in program.derive_from_buffers(_devices_of_buffers).items():
        if not is_device(device):
            yield Violation("IR020", f"there is no device {device}", name)
    for op in walk_operations(program.ops):
        if program.knows(op, "_is_on_a_device"):
            continue
        if is_device(op.device):
            program.note(op, "_is_on_a_device")
        else:
            yield Violation("IR020", f"there is no device {op.device}", op.name)


def _devices_of_buffers(program: Program) -> dict[str, str]:
    """Each device that a buffer is on, with the first such buffer."""
    found: dict[str, str] = {}
    for b in program.buffers:
        found.setdefault(b.device, b.name)
    return found


def boundary_is_sound(program: Program) -> Iterator[Violation]:
    """IR004: inputs are named once and own their storage; donated ones are inputs."""
    for name in _twice(program.inputs):
        yield Violation("IR004", f"input {name} is listed more than once", name)
    known, inputs = program.by_name, set(program.inputs)
    for name in program.inputs:
        if name in known and known[name].kind is not BufferKind.TENSOR:
            yield Violation("IR004", f"input {name} is a {known[name].kind.value}", name)
    for name in program.donated:
        if name not in inputs:
            yield Violation("IR004", f"{name} is donated but is no input", name)


def views_fit(program: Program) -> Iterator[Violation]:
    """IR005: a view ends at a buffer with storage, on its device; all stay inside theirs."""
    known = program.by_name
    for b in program.buffers:
        lowest = hint(b.layout.lowest)
        if lowest < 0 and b.layout.numel.value != 0:
            yield Violation("IR005", f"it reaches back to element {lowest} of its storage", b.name)
        if b.storage_bytes >= 2**63:
            yield Violation("IR005", f"{b.storage_bytes} bytes are too many for any memory", b.name)
        if b.view_of is None or b.view_of not in known:
            continue
        root = known[program.storage_of(b.name)]
        if root.view_of is not None:
            yield Violation("IR005", "its chain of views never reaches a storage", b.name)
        elif root.device != b.device:
            message = f"a view on {b.device} of {root.name} on {root.device}"
            yield Violation("IR005", message, b.name)
        elif root.kind is not BufferKind.TENSOR or b.kind is not BufferKind.TENSOR:
            yield Violation("IR005", f"{root.name} is a {root.kind.value}, not a tensor", b.name)
        else:
            need, have = (x.storage_numel * x.dtype.itemsize for x in (b, root))
            # For every run-time size: what fits by its hint need not fit in the next call.
            if not Facts().at_most(need, have):
                message = f"a view of {need} bytes into the {have} bytes of {root.name}"
                yield Violation("IR005", message, b.name)


def order_is_possible(program: Program) -> Iterator[Violation]:
    """IR006: `after` names operations that stand before, inside groups too."""
    place = {leaf.name: position for position, leaf in enumerate(program.leaves)}
    known = program.op_by_name
    for op in walk_operations(program.ops):
        for name in op.after:
            if name not in known:
                yield Violation("IR006", f"after the unknown operation {name}", op.name)
                continue
            begin = min((place[leaf.name] for leaf in op.leaves), default=len(place))
            if any(place[leaf.name] >= begin for leaf in known[name].leaves):
                yield Violation("IR006", f"it must follow {name}, which stands later", op.name)


def layouts_use_declared_sizes(program: Program) -> Iterator[Violation]:
    """IR007: every run-time size in a layout is declared, each name once."""
    for name in _twice(s.name for s in program.sizes):
        yield Violation("IR007", f"size {name} is declared more than once", name)
    for s in program.sizes:
        if not PLAIN_NAME.fullmatch(s.name):
            yield Violation("IR007", f"size {s.name!r} needs a plain name to be spoken of", s.name)
    declared = set(program.sizes)
    for b in program.buffers:
        unknown: set[Symbol] = set()
        for e in (*b.layout.sizes, *b.layout.strides, b.layout.offset):
            unknown |= e.free - declared
        for s in sorted(unknown, key=lambda s: s.order):
            yield Violation("IR007", f"its layout uses the undeclared size {s.name}", b.name)


def calls_use_declared_sizes(program: Program) -> Iterator[Violation]:
    """IR007: every run-time size that a call is given is declared."""
    declared = set(program.sizes)
    for op in program.leaves:
        if isinstance(op, Call):
            named = _sizes_in((*op.args, *[a for _, a in op.attrs])) - declared
            for s in sorted(named, key=lambda s: s.order):
                yield Violation("IR007", f"it is given the undeclared size {s.name}", op.name)


def _sizes_in(args: Iterable[Arg]) -> set[Symbol]:
    found: set[Symbol] = set()
    for arg in args:
        if isinstance(arg, Expr):
            found |= arg.free
        elif isinstance(arg, tuple) and not isinstance(arg, Ref):
            found |= _sizes_in(arg)
    return found


def tuples_are_taken_apart(program: Program) -> Iterator[Violation]:
    """IR008: MultiOutput takes a tensor out of a tuple; nothing else reads a tuple."""
    known = program.by_name
    for op in program.leaves:
        if isinstance(op, MultiOutput):
            source = known.get(op.source)
            if source is not None and source.kind is not BufferKind.TUPLE:
                message = f"{op.source} is a {source.kind.value}, not a tuple"
                yield Violation("IR008", message, op.name)
            if op.position < 0:
                yield Violation("IR008", f"negative position {op.position}", op.name)
            continue
        for name in effects(op).reads:
            if name in known and known[name].kind is BufferKind.TUPLE:
                yield Violation("IR008", f"it reads the tuple {name} as a whole", op.name)


NAME_RULES = (
    buffers_are_sound,
    operations_are_named_once,
    boundary_is_sound,
    order_is_possible,
    calls_use_declared_sizes,
    tuples_are_taken_apart,
    devices_exist,
    touched_buffers_exist,
)
