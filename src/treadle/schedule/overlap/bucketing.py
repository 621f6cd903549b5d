"""Small collectives sent as one: which ones, and the program in which they are.

before   a = gather(x) ; wait a ; use(a) ; b = gather(y) ; wait b ; use(b)
after    a, b = gather_coalesced([x, y]) ; wait a ; use(a) ; wait b ; use(b)

A call costs its latency once, however much it sends. Together go collectives of the same kind, in
the same group, with the same element type and the same further arguments, that follow each other
among their like, as long as the bucket stays under its cap and nothing that one delivers is needed
for what another sends. Nothing is copied: a coalesced call takes a list of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from treadle.analysis.comm.kinds import CollectiveKind, kind_of_collective
from treadle.analysis.comm.machine import CommMachine, machine_of
from treadle.analysis.comm.tasks import GroupsAtWorld, TaskGraph, first_come_order
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.verdict import yes
from treadle.ir.body import Literal
from treadle.ir.effects import effects
from treadle.ir.program import Arg, Collective, Operation, Program, Ref
from treadle.ir.types import BufferKind
from treadle.schedule.overlap.by_model import budget_of, overlap_of

LARGEST_BUCKET = 500 << 20
SMALLEST_CAP = 10 << 20
CAP_SHARES = (1, 4, 16)
"""Parts of the size that fills the link which are tried as the size of buckets."""
WORTH_BUCKETING = 0.002
"""The part of the time that larger calls must save."""
COALESCED: dict[CollectiveKind, str] = {
    CollectiveKind.ALL_GATHER: "all_gather_into_tensor",
    CollectiveKind.REDUCE_SCATTER: "reduce_scatter_tensor",
    CollectiveKind.ALL_REDUCE: "all_reduce",
}
"""The kinds that torch has a form for which takes a list, by the name of the plain form."""
CALL, CONSTANTS = "call", "constants"
"""Attributes of a call that a host makes: its arguments as text, and those that are no tensors."""
Alike: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class Bucket:
    """Collectives that go together, in order."""

    members: tuple[int, ...]
    """Positions among the operations of the program."""
    bytes: int


def find_buckets(program: Program, machine: CommMachine, cap: int | None = None) -> list[Bucket]:
    """The buckets of a program; without a cap, as large as it takes to fill the link."""
    graph = machine.tasks(program)
    ahead = _ancestors(graph)
    groups = GroupsAtWorld(program, machine.world)
    found: list[Bucket] = []
    open_: dict[Alike, list[int]] = {}
    for k in graph.collectives:
        op = program.ops[k]
        assert isinstance(op, Collective)
        key = _alike(program, op)
        if key is None:
            continue
        row = open_.setdefault(key, [])
        most = cap or _cap(machine, groups, op)
        size = sum(graph.tasks[m].message_bytes for m in row)
        full = size + graph.tasks[k].message_bytes > most
        if row and (full or any(ahead[k] >> m & 1 for m in row)):
            found.append(Bucket(tuple(row), size))
            row.clear()
        row.append(k)
    found += [
        Bucket(tuple(row), sum(graph.tasks[m].message_bytes for m in row))
        for row in open_.values()
        if row
    ]
    several = [bucket for bucket in found if len(bucket.members) > 1]
    return _without_rings(graph, sorted(several, key=lambda b: b.members))


def _cap(machine: CommMachine, groups: GroupsAtWorld, op: Collective) -> int:
    enough = machine.costs.saturation_bytes(kind_of_collective(op.target), groups.of(op))
    return min(max(enough, SMALLEST_CAP), LARGEST_BUCKET)


def _alike(program: Program, op: Collective) -> Alike | None:
    """What collectives of one bucket have in common; None for one that goes by itself."""
    kind, of, said = kind_of_collective(op.target), effects(op), dict(op.attrs)
    plain = COALESCED.get(kind)
    base = op.target.removesuffix(".default").rpartition(".")[2].rstrip("_")
    if plain is None or base.removesuffix("_out") != plain or op.has_side_effects:
        return None
    tensors = [n for n in of.touched if program.by_name[n].kind is BufferKind.TENSOR]
    types = {program.by_name[n].dtype for n in tensors}
    if len(types) != 1:
        return None
    if CALL in said and (CONSTANTS not in said or of.mutates or "_out" in base):
        return None  # bound to a function of the host's, of which only the plain form takes a list
    rest = tuple([None if isinstance(a, Ref) else a for a in op.args])
    same = said.get(CONSTANTS)
    return op.target, op.group, op.ranks, op.device, types.pop(), rest, same


def _ancestors(graph: TaskGraph) -> list[int]:
    """For each task the set of those it must follow, as bits."""
    found = [0] * len(graph.tasks)
    for k, sources in enumerate(graph.before):  # the given order respects them
        bits = 0
        for s in sources:
            bits |= found[s] | 1 << s
        found[k] = bits
    return found


def _without_rings(graph: TaskGraph, buckets: list[Bucket]) -> list[Bucket]:
    """The buckets that can all be there: one that would wait for itself through others goes."""
    if merged_order(graph, buckets) is not None:
        return buckets
    kept: list[Bucket] = []
    for bucket in buckets:
        if merged_order(graph, [*kept, bucket]) is not None:
            kept.append(bucket)
    return kept


def merged_order(graph: TaskGraph, buckets: list[Bucket]) -> list[int] | None:
    """An order in which each bucket is one task, named by its first member; None if there is none.

    Tasks stay where they are as far as that can be; a bucket stands where its first member stood,
    or where its last operand is made.
    """
    of = {m: bucket.members[0] for bucket in buckets for m in bucket.members}
    before: dict[int, set[int]] = {}
    for k, sources in enumerate(graph.before):
        me = of.get(k, k)
        row = before.setdefault(me, set())
        row.update(of.get(s, s) for s in sources)
    return first_come_order(before)  # a bucket whose member needs another's result is a ring


def with_buckets(program: Program, ctx: Ctx, cap: int | None = None) -> Program:
    """Send small collectives of a group together; a verdict for each bucket."""
    machine = machine_of(program, ctx.options)
    buckets = find_buckets(program, machine, cap)
    if not buckets:
        return program
    graph = machine.tasks(program)
    order = merged_order(graph, buckets)
    assert order is not None, "buckets were kept only if there is an order"
    joined: dict[int, Operation] = {}
    for bucket in buckets:
        members = [op for m in bucket.members if isinstance(op := program.ops[m], Collective)]
        joined[bucket.members[0]] = one = _joined(members)
        names = tuple([m.name for m in members])
        apart = sum(graph.tasks[m].latency_us for m in bucket.members)
        saved = round(apart - graph.tasks[bucket.members[0]].latency_us, 3)
        facts = {"into": one.name, "bytes": bucket.bytes, "saved_us": saved}
        ctx.journal.verdict("bucket", names, yes("COL006", **facts))
    return program.with_ops(tuple([joined.get(k, program.ops[k]) for k in order]))


def _joined(members: list[Collective]) -> Collective:
    """One call that sends what several sent.

    A host finds the arguments of its call by their position: there they follow each other, member
    by member. In other programs they stand in lists, as a coalesced call has them.
    """
    first = members[0]
    args: list[Arg] = []
    if CALL in dict(first.attrs):
        args = [arg for m in members for arg in m.args]
    else:
        for position, arg in enumerate(first.args):
            same = isinstance(arg, Ref)
            args.append(tuple([m.args[position] for m in members]) if same else arg)
    target, dot, overload = first.target.rpartition(".")
    stem = f"{target}_coalesced{dot}{overload}" if dot else f"{first.target}_coalesced"
    kept = tuple([(key, value) for key, value in first.attrs if key != CALL])
    names: tuple[Arg, ...] = tuple([Literal(m.name) for m in members])
    return replace(
        first,
        name=f"{first.name}_and_{len(members) - 1}",
        target=stem,
        args=tuple(args),
        writes=tuple(dict.fromkeys(n for m in members for n in m.writes)),
        mutates=tuple(dict.fromkeys(n for m in members for n in m.mutates)),
        attrs=(*kept, ("sends", names)),
        origins=tuple(dict.fromkeys(o for m in members for o in m.origins)),
        after=tuple(dict.fromkeys(a for m in members for a in m.after)),
    )


def choose_buckets(program: Program, ctx: Ctx) -> Program:
    """The program with the buckets, of several sizes or none, that let it be done soonest.

    Large buckets save latency; small ones can begin earlier and hide behind more. Only simulating
    both tells.
    """
    machine = machine_of(program, ctx.options)
    groups = GroupsAtWorld(program, machine.world)
    sent = {(op.target, op.group): op for op in program.ops if isinstance(op, Collective)}
    caps = {_cap(machine, groups, op) for op in sent.values()}
    best, best_us = program, overlap_of(program, ctx, machine, thorough=False).after.makespan_us
    budget = budget_of(program, ctx)
    chosen: int | None = None
    for share in CAP_SHARES if caps else ():
        cap = max(caps) // share
        quiet = replace(ctx, journal=Journal(level=0))
        made = with_buckets(program, quiet, cap)
        if made is program:
            break
        found = overlap_of(made, ctx, machine, thorough=False)
        us = found.after.makespan_us
        if found.peak_bytes <= budget and us < best_us * (1 - WORTH_BUCKETING):
            best, best_us, chosen = made, us, cap
    return best if chosen is None else with_buckets(program, ctx, chosen)
