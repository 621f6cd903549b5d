"""A dump as a Treadle program: executable bodies, groups kept as the dump's own schedule.

    dump = read_dump("ir_post_fusion.txt")
    imported = import_program(dump)
    imported.program            # verified, in the order of the dump
    imported.assumptions        # what the dump does not say and was assumed
    unpacked(imported.program)  # the same without the dump's groups

The dump leaves things out: the sizes of inputs that only calls read, the order of a call's
operands, the offsets of parts of a concatenation, the combination of a scan. What can be inferred
is, what cannot is kept opaque (a call that reads and writes the same buffers), and all of it is
listed. Order: dependences follow from what operations touch; where the dump orders two operations
that share nothing (collectives, control), `after` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.analysis.deps import dependences
from treadle.frontends.dumps import Finding
from treadle.frontends.inductor_dump import model
from treadle.frontends.inductor_dump.import_buffers import (
    SectionNames,
    collect,
    creation_key,
    sizes_in,
)
from treadle.frontends.inductor_dump.import_matmul import infer_products
from treadle.frontends.inductor_dump.import_ops import Importer, note
from treadle.frontends.inductor_dump.model import DumpSection, InductorDump
from treadle.index import Expr
from treadle.ir.effects import effects
from treadle.ir.program import Group, Loop, Nop, Operation, Program, walk_operations
from treadle.ir.spec import verify, violations
from treadle.ir.types import Buffer

TRIES = 8


@dataclass(frozen=True)
class Imported:
    """A program from a dump, and what had to be assumed."""

    program: Program
    assumptions: tuple[Finding, ...]
    unknown_inputs: tuple[str, ...]
    """Inputs whose size the dump does not tell: they count no bytes."""


def import_program(dump: InductorDump | DumpSection, name: str = "dump") -> Imported:
    """The program of a dump (its last section) or of a section."""
    section = dump.last if isinstance(dump, InductorDump) else dump
    names = collect(section)
    importer = Importer(names)
    lines = {node.name: node.line for node in section.walk()}
    for _ in range(TRIES):
        ops = tuple([importer.operation(node) for node in section.nodes])
        ops = _allocate_first(ops, names)
        program, notes = infer_products(_program(name, names, ops), names.unknown_inputs)
        if not _make_opaque(program, importer):
            break
    program = verify(_with_order(program, section, names))
    assumptions = [*names.findings, *[note("IND022", text, lines.get(op, 0)) for op, text in notes]]
    for op, reason in importer.opaque.items():
        assumptions.append(note("IND020", f"{op} is kept opaque: {reason}", lines.get(op, 0)))
    for op in sorted(importer.synchronous, key=creation_key):
        text = f"{op}: its result is used without a wait, so it is taken to finish at once"
        assumptions.append(note("IND023", text, lines.get(op, 0)))
    known = {b.name for b in program.buffers if b.layout.numel.value != 0}
    unknown = tuple(n for n in names.unknown_inputs if n not in known)
    for n in unknown:
        assumptions.append(note("IND021", f"the size of input {n} is not in the dump", 0))
    return Imported(program, tuple(assumptions), unknown)


def unpacked(program: Program) -> Program:
    """The operations without groups, in the order the peer made them, as far as that is possible.

    That order is the one before scheduling. Where it is not valid (a later pass of the peer moved
    an operation that others follow), the order of the dump stays.
    """
    ops = _flat(program.ops)
    by_creation = tuple(sorted(ops, key=lambda op: creation_key(op.name)))
    for candidate in (by_creation, ops):
        found = replace(program, ops=candidate)
        if not violations(found) and _same_order(program, found):
            return found
    return program.with_ops(ops)


def _same_order(before: Program, after: Program) -> bool:
    """Whether each dependence of `before` still runs forward in `after`."""
    old, place = dependences(before), dependences(after).position
    return all(place[old.names[d.source]] < place[old.names[d.target]] for d in old.deps)


def _flat(ops: tuple[Operation, ...]) -> tuple[Operation, ...]:
    found: list[Operation] = []
    for op in ops:
        found.extend(op.leaves if isinstance(op, Group) else (op,))
    return tuple(found)


def _program(name: str, names: SectionNames, ops: tuple[Operation, ...]) -> Program:
    used = {n for op in ops for leaf in op.leaves for n in _touched(leaf)}
    roots = {names.buffers[n].view_of for n in used if n in names.buffers}
    kept = [b for b in names.buffers.values() if _is_needed(b, used, roots, names)]
    exprs = [e for op in ops for leaf in op.leaves for e in _exprs_of(leaf)]
    return Program(
        name=name,
        buffers=tuple(kept),
        ops=ops,
        inputs=tuple(n for n in names.inputs),
        outputs=tuple(names.outputs),
        sizes=sizes_in(kept, exprs),
    )


def _is_needed(b: Buffer, used: set[str], roots: set[str | None], names: SectionNames) -> bool:
    return b.name in used or b.name in roots or b.name in names.inputs or b.name in names.outputs


def _touched(op: Operation) -> tuple[str, ...]:
    return effects(op).touched


def _exprs_of(op: Operation) -> list[Expr]:
    if not isinstance(op, Loop):
        return []
    found = list(op.body.space.extents)
    for at in op.body.walk():
        found.extend(a for a in at.stmt.attrs if isinstance(a, Expr))
    return found


def _allocate_first(ops: tuple[Operation, ...], names: SectionNames) -> tuple[Operation, ...]:
    """The shell of a concatenation stands behind its parts; as an allocation it comes first."""
    result = list(ops)
    for op in ops:
        if not isinstance(op, Nop):
            continue
        parts = {b.name for b in names.buffers.values() if b.view_of in op.writes}
        users = [k for k, other in enumerate(result)
                 if any(parts & set(_touched(leaf)) for leaf in other.leaves)]  # fmt: skip
        if users and users[0] < result.index(op):
            result.remove(op)
            result.insert(users[0], op)
    return tuple(result)


def _make_opaque(program: Program, importer: Importer) -> bool:
    """Mark what breaks a rule so that the next try keeps it opaque; False if nothing does."""
    known = program.op_by_name
    changed = False
    for bad in violations(program):
        op = known.get(bad.where)
        if isinstance(op, Loop) and op.name not in importer.opaque:
            importer.opaque[op.name] = f"{bad.message} [{bad.code}]"
            changed = True
        elif bad.code == "IR017":
            for other in walk_operations(program.ops):
                if type(other).__name__ in ("Collective", "Wait"):
                    changed = changed or other.name not in importer.synchronous
                    importer.synchronous.add(other.name)
    return changed


def _with_order(program: Program, section: DumpSection, names: SectionNames) -> Program:
    """Add `after` for the edges of the dump that no shared buffer gives."""
    deps = dependences(program)
    place = deps.position
    given = set(deps.edges)
    wanted: dict[str, list[str]] = {}
    for node in section.leaves():
        for dep in node.unmet:
            if dep.name not in names.made or node.name not in place:
                continue
            source = names.made[dep.name][0].name
            orders = isinstance(dep, model.WeakDep) or dep.name in names.made
            if not orders or source not in place or place[source] >= place[node.name]:
                continue
            if (place[source], place[node.name]) not in given:
                wanted.setdefault(node.name, []).append(source)
    if not wanted:
        return program
    return program.with_ops(tuple([_follow(op, wanted) for op in program.ops]))


def _follow(op: Operation, wanted: dict[str, list[str]]) -> Operation:
    if isinstance(op, Group):
        members = tuple([_follow(m, wanted) for m in op.members])
        same = all(a is b for a, b in zip(members, op.members, strict=True))
        return op if same else replace(op, members=members)
    more = tuple(dict.fromkeys(wanted.get(op.name, ())))
    return replace(op, after=more) if more else op
