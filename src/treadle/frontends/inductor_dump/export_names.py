"""The names a program gets in a dump: operations op0.., buffers buf0.., versions, run-time sizes.

A dump gives a new name to each version of a buffer: `buf3` with mutations ['x'] is x after it was
overwritten. Views do not exist there: an access through a view is an access of its root, except
for views that together fill a buffer that was only allocated, which dumps know as the parts of a
concatenation. Names that dumps use already (op3, buf7) stay, unless their order contradicts a
dependence: readers of dumps take the numbers for the order of creation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from treadle.analysis.deps import dependences
from treadle.frontends.inductor_dump.import_buffers import creation_key, part_offsets
from treadle.frontends.inductor_dump.import_ops import CONCAT
from treadle.frontends.inductor_dump.parse_values import LIKELY_SIZE, SIZE_NAME
from treadle.index import Expr, Kind, Symbol, substitute
from treadle.index.expr import IntLike
from treadle.ir.effects import effects
from treadle.ir.program import (
    Call,
    Extern,
    Group,
    Loop,
    MultiOutput,
    Nop,
    Operation,
    Program,
    Ref,
    Wait,
)
from treadle.ir.types import Buffer, Layout

_OP = re.compile(r"(?:mem_check_)?((?:\w+_)?)op\d{1,9}")
_BUF = re.compile(r"(?:\w+_)?buf\d{1,9}")
_LAST_NUMBER = re.compile(r"(\d+)$")
_PLAIN = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a node: a buffer it makes, a new version of `target`, or a token."""

    name: str
    buffer: str | None
    """The buffer of the program, None for a token that only the dump needs."""
    target: str | None = None
    """The name in the dump of what is overwritten; None if the buffer is made here."""


@dataclass
class ExportedNames:
    """What everything is called in the dump, and which output of which node it is."""

    program: Program
    ops: tuple[Operation, ...]
    """In the order of the dump: the shell of a concatenation comes behind its parts."""
    op: dict[str, str] = field(default_factory=dict)
    buffer: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, tuple[Output, ...]] = field(default_factory=dict)
    """By operation of the program."""
    part_of: dict[str, str] = field(default_factory=dict)
    """Views that are parts of a concatenation, with the whole."""
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Parts by the operation that is the shell of their concatenation."""
    sizes: dict[Symbol, IntLike] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    """The program's buffers over the sizes of the dump."""
    notes: list[str] = field(default_factory=list)

    def home(self, name: str) -> str:
        """The buffer by whose name the dump speaks of `name`: itself, or the root of a view."""
        return name if name in self.part_of else self.program.storage_of(name)

    @cached_property
    def buffer_called(self) -> Mapping[str, str]:
        """The buffer of the program behind each name of the dump, versions included."""
        rows = [o for outputs in self.outputs.values() for o in outputs]
        found = {o.name: o.buffer for o in rows if o.buffer is not None}
        return {**found, **{new: old for old, new in self.buffer.items()}}

    @cached_property
    def versions(self) -> Mapping[str, list[tuple[int, str]]]:
        """For each buffer the numbers of the operations that write it, with the name after that."""
        found: dict[str, list[tuple[int, str]]] = {}
        for op in sorted(self.outputs, key=lambda op: number_of(self.op[op])):
            for o in self.outputs[op]:
                if o.buffer is not None:
                    found.setdefault(o.buffer, []).append((number_of(self.op[op]), o.name))
        return found

    def said(self, e: Expr) -> Expr:
        """An expression over the sizes of the dump."""
        return substitute(e, self.sizes) if self.sizes else e

    def mapping(self) -> Mapping[str, str]:
        """Names of the program with the different ones they have in the dump."""
        known = {**self.op, **self.buffer, **{s.name: str(t) for s, t in self.sizes.items()}}
        for name in self.program.by_name:
            if name not in self.buffer and self.home(name) in self.buffer:
                known[name] = self.buffer[self.home(name)]
        return {old: new for old, new in known.items() if old != new}


def name_everything(program: Program) -> ExportedNames:
    """The names of a program in a dump."""
    names = ExportedNames(program, program.ops)
    _name_sizes(names)
    _find_parts(names)
    names.ops = _shells_last(names)
    written = {leaf.name: list(_written(names, leaf)) for leaf in _leaves(names.ops)}
    _name_operations(names)
    _name_inputs(names)
    _name_buffers(names, written)
    return names


def _leaves(ops: tuple[Operation, ...]) -> Iterator[Operation]:
    for op in ops:
        yield from op.leaves


# ------------------------------------------------------------------------------------- sizes


def _name_sizes(names: ExportedNames) -> None:
    taken = {s.name for s in names.program.sizes if SIZE_NAME.fullmatch(s.name)}
    for size in names.program.sizes:
        name, number = size.name, 0
        while not SIZE_NAME.fullmatch(name) or (name != size.name and name in taken):
            name, number = f"s{number}", number + 1
        taken.add(name)
        # The same symbol as a reader of the dump makes: it knows no bounds.
        names.sizes[size] = Symbol(name, Kind.SIZE, lo=0, hint=LIKELY_SIZE)
    for b in names.program.buffers:
        old = b.layout
        sizes = tuple([names.said(e) for e in old.sizes])
        strides = tuple([names.said(e) for e in old.strides])
        layout = Layout(sizes, strides, names.said(old.offset))
        names.buffers[b.name] = replace(b, layout=layout)


# --------------------------------------------------------------------------------------- parts


def _find_parts(names: ExportedNames) -> None:
    """Find the views that fill an allocated buffer one behind the other, each written on its own.

    A concatenation that is a copy has parts as well: they keep storages of their own.
    """
    known = names.program.by_name
    stored: dict[str, list[str]] = {}
    for leaf in names.program.leaves:
        of = effects(leaf)
        for name in (*of.writes, *of.mutates):
            if known[name].view_of is not None:
                stored.setdefault(names.program.storage_of(name), []).append(name)
    for leaf in names.program.leaves:
        if isinstance(leaf, Extern) and leaf.target == CONCAT:
            names.parts[leaf.name] = tuple(a.buffer for a in leaf.args if isinstance(a, Ref))
        if not isinstance(leaf, Nop) or len(leaf.writes) != 1:
            continue
        (root,) = leaf.writes
        parts = list(dict.fromkeys(stored.get(root, ())))
        if all(_BUF.fullmatch(p) for p in parts):
            parts.sort(key=creation_key)  # else they are numbered as they are written
        offsets = part_offsets(known[root], [known[p] for p in parts]) if parts else None
        if offsets is not None and offsets == [known[p].layout.offset for p in parts]:
            names.parts[leaf.name] = tuple(parts)
            names.part_of.update(dict.fromkeys(parts, root))


def _shells_last(names: ExportedNames) -> tuple[Operation, ...]:
    ops = list(names.program.ops)
    for op in names.program.ops:
        if isinstance(op, Nop) and op.name in names.parts:
            parts = set(names.parts[op.name])
            last = [
                k for k, other in enumerate(ops)
                if any(parts & {*effects(x).writes, *effects(x).mutates} for x in other.leaves)
            ]  # fmt: skip
            at = ops.index(op)
            if last and last[-1] > at:
                ops.insert(last[-1] + 1, op)
                del ops[at]
    return tuple(ops)


# ---------------------------------------------------------------------------------- operations


def _name_operations(names: ExportedNames) -> None:
    leaves = list(_leaves(names.ops))
    known = [leaf.name for leaf in leaves if _OP.fullmatch(leaf.name)]
    free = max([number_of(name) for name in known], default=-1) + 1
    prefix = _prefix(names)
    for leaf in leaves:
        if _OP.fullmatch(leaf.name):
            names.op[leaf.name] = leaf.name
        else:
            names.op[leaf.name] = f"{prefix}op{free}"
            free += 1
    if not _is_in_order(names):
        names.op = {leaf.name: f"op{k}" for k, leaf in enumerate(leaves)}
    for op in names.ops:
        _name_group(names, op)


def number_of(name: str) -> int:
    """The number at the end of a name, by which readers of dumps order operations."""
    found = _LAST_NUMBER.search(name)
    return int(found[1]) if found else 0


def _prefix(names: ExportedNames) -> str:
    """What the names of a graph inside another one begin with: `true_graph_0_`."""
    for leaf in names.program.leaves:
        if found := _OP.fullmatch(leaf.name):
            return found[1]
    return ""


def _name_group(names: ExportedNames, op: Operation) -> str:
    if isinstance(op, Group):
        names.op[op.name] = "_".join([_name_group(names, m) for m in op.members])
    return names.op[op.name]


def _is_in_order(names: ExportedNames) -> bool:
    """Whether the numbers of operations grow along each dependence."""
    deps = dependences(names.program)
    order = [number_of(names.op[name]) for name in deps.names]
    return all(
        order[d.source] < order[d.target] or deps.names[d.source] in names.parts for d in deps.deps
    )


# ------------------------------------------------------------------------------------- buffers


def _written(names: ExportedNames, op: Operation) -> Iterator[str | None]:
    """The buffers that get a value, as outputs of the node; None is a token of the node itself."""
    of = effects(op)
    found: list[str | None] = []
    if isinstance(op, Wait):
        found = [None, op.buffer]
    elif isinstance(op, Loop):
        found = [name for name, _, _, _ in op.body.stores()]
    elif isinstance(op, Nop | MultiOutput):
        found = list(of.writes)
    elif isinstance(op, Call):
        found = [*op.writes, *op.mutates]
    homes = [n if n is None else names.home(n) for n in found]
    yield from dict.fromkeys(homes or [None])


def _name_inputs(names: ExportedNames) -> None:
    taken: set[str] = set()
    for name in names.program.inputs:
        new = name
        if not _PLAIN.fullmatch(name) or _OP.fullmatch(name):
            new = re.sub(r"\W", "_", f"arg_{name}")
        while new in taken:
            new += "_"
        taken.add(new)
        names.buffer[name] = new


def _name_buffers(names: ExportedNames, written: Mapping[str, list[str | None]]) -> None:
    """Give the versions numbers that no buffer has, near those of their operation."""
    made = {n for row in written.values() for n in row if n and n not in names.buffer}
    kept = {n for n in made if _BUF.fullmatch(n) and n not in names.buffer.values()}
    numbers = _Numbers({*kept, *names.buffer.values()}, _prefix(names))
    order = sorted(written, key=lambda op: number_of(names.op[op]))
    done: set[str] = set(names.buffer)
    for op in order:
        rows: list[Output] = []
        numbers.begin(names.op[op])
        for name in written[op]:
            is_version = name in done
            if name in kept and not is_version:
                new = numbers.pass_by(name)
            else:
                new = numbers.fresh()
            target = names.buffer[name] if name is not None and is_version else None
            if name is not None and not is_version:
                names.buffer[name] = new
                done.add(name)
            rows.append(Output(new, name, target))
        names.outputs[op] = tuple(rows)


class _Numbers:
    """Numbers for buffers: one more than the last, leaving a gap where operations leave one."""

    def __init__(self, taken: set[str], prefix: str) -> None:
        self.taken, self.prefix, self.last, self.op = taken, prefix, -1, -1

    def begin(self, op: str) -> None:
        """The next operation begins; operations that were removed had a buffer, too."""
        number = number_of(op)
        self.last += max(number - self.op - 1, 0) if _OP.fullmatch(op) else 0
        self.op = number

    def pass_by(self, name: str) -> str:
        """A buffer that keeps its name."""
        self.last = number_of(name)
        return name

    def fresh(self) -> str:
        """A name for the next buffer."""
        self.last += 1
        while (name := f"{self.prefix}buf{self.last}") in self.taken:
            self.last += 1
        self.taken.add(name)
        return name
