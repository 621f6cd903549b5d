"""Partitions for CUDA graphs: runs of kernels that can be recorded once and replayed, and the rest.

    gpu a ; cpu b ; gpu c ; cpu d          4 partitions: [a] b [c] d
    gpu a ; gpu c ; cpu b ; cpu d          2, if the dependences allow it: [a c] b d

A recording cannot hold work on the CPU, copies between devices, calls with side effects, or sizes
that come from data. The fewest runs of two kinds that an order can have are found by always running
everything of one kind that is ready before the other kind has its turn, begun with either kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import groupby

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.cost import internal_storages
from treadle.analysis.deps import dependences
from treadle.analysis.inplace import boundary
from treadle.analysis.live_table import live_table
from treadle.analysis.liveness import program_peak
from treadle.core.options import Options
from treadle.core.verdict import YES, Verdict, check_rules, no
from treadle.index import Expr, Kind, Symbol
from treadle.ir.effects import acts_by_itself, effects
from treadle.ir.program import Collective, Fused, Loop, MultiOutput, Operation, Program, Wait
from treadle.ir.types import BufferKind

PEAK_FACTOR = 1.1
"""An order with fewer partitions may raise the peak this much."""


@dataclass(frozen=True)
class Partition:
    """A run of operations that are recorded together, or not at all."""

    ops: tuple[str, ...]
    recorded: bool
    inputs: tuple[str, ...]
    """Storages that must be there when it begins."""
    outputs: tuple[str, ...]
    """Storages it fills or changes that are looked at later."""
    frees: tuple[str, ...]
    """Storages nobody needs after it."""


def runs_on_a_device(program: Program, leaf: Operation) -> Verdict:
    """PAR001: work on the CPU cannot be recorded."""
    return no("PAR001", device=leaf.device) if leaf.device.startswith("cpu") else YES


def stays_on_its_device(program: Program, leaf: Operation) -> Verdict:
    """PAR002: a copy from or to another device waits for it."""
    for name in effects(leaf).touched:
        buffer = program.by_name[name]
        if buffer.kind is not BufferKind.TENSOR or buffer.device == leaf.device:
            continue
        is_number = isinstance(leaf, Loop) and buffer.numel.value == 1
        if not is_number or buffer.name not in program.inputs:
            return no("PAR002", buffer=name, left=buffer.device, right=leaf.device)
    return YES


def acts_through_buffers_only(program: Program, leaf: Operation) -> Verdict:
    """PAR003: side effects happen once per recording, not once per replay."""
    if acts_by_itself(leaf) and not isinstance(leaf, Collective | Wait):
        return no("PAR003", operation=leaf.name)
    return YES


def has_sizes_of_inputs(program: Program, leaf: Operation) -> Verdict:
    """PAR004: a size that comes from data differs from replay to replay."""
    given = program.derive(_sizes_of_inputs)
    for s in _sizes(program, leaf):
        if s not in given:
            return no("PAR004", size=s.name)
    return YES


RULES: tuple[Callable[[Program, Operation], Verdict], ...] = (
    runs_on_a_device,
    stays_on_its_device,
    acts_through_buffers_only,
    has_sizes_of_inputs,
)


def can_be_recorded(program: Program, op: Operation, is_repeatable: bool = False) -> Verdict:
    """Whether an operation can be part of a recording, with the rule that forbids it.

    `is_repeatable`: what it does besides happens again whenever it is replayed.
    """
    rules = [r for r in RULES if not is_repeatable or r is not acts_through_buffers_only]
    for leaf in op.leaves:
        verdict = check_rules(rules, program, leaf)
        if not verdict:
            return verdict
    return YES


def _sizes_of_inputs(program: Program) -> frozenset[Symbol]:
    known = [program.by_name[n].layout.sizes for n in program.inputs]
    return frozenset(s for sizes in known for e in sizes for s in e.free)


def _sizes(program: Program, leaf: Operation) -> set[Symbol]:
    exprs: list[Expr] = []
    for name in effects(leaf).touched:
        exprs.extend(program.by_name[name].layout.sizes)
    if isinstance(leaf, Loop):
        exprs.extend(leaf.body.space.extents)
    return {s for e in exprs for s in e.free if s.kind is Kind.SIZE}


def partitions(program: Program) -> list[Partition]:
    """The partitions of the program in its present order."""
    return _signed(program, _runs(program))


def _runs(program: Program) -> list[tuple[bool, list[Operation]]]:
    """Operations of one kind that follow each other."""
    kinds = program.derive(_kinds)
    runs = groupby(program.ops, key=lambda op: kinds[op.name])
    return [(recorded, list(run)) for recorded, run in runs]


def _kinds(program: Program) -> dict[str, bool]:
    """Which operations can be recorded; taking a tensor out of a tuple goes with its maker."""
    kinds: dict[str, bool] = {}
    makers: dict[str, bool] = {}
    for op in program.ops:
        if isinstance(op, MultiOutput) and op.source in makers:
            kinds[op.name] = makers[op.source]
        else:
            kinds[op.name] = bool(can_be_recorded(program, op))
        makers.update(dict.fromkeys(effects(op).writes, kinds[op.name]))
    return kinds


def _signed(program: Program, runs: list[tuple[bool, list[Operation]]]) -> list[Partition]:
    """The runs with what goes in, comes out and dies."""
    edge, table = program.derive(boundary), live_table(program)
    run_of = [k for k, (_, ops) in enumerate(runs) for _ in ops]
    ends: dict[int, list[str]] = {}
    for row in table.rows.values():
        if row.is_freeable and row.last >= 0:
            ends.setdefault(run_of[row.last], []).append(row.storage)
    found = []
    for k, (recorded, ops) in enumerate(runs):
        names, changed = _storages(program, ops)
        rows = [table.rows[s] for s in names if s in table.rows]
        found.append(
            Partition(
                ops=tuple(op.name for op in ops),
                recorded=recorded,
                inputs=tuple(r.storage for r in rows if r.first < 0 or run_of[r.first] < k),
                outputs=tuple(
                    r.storage
                    for r in rows
                    if r.storage in changed
                    and (run_of[r.last] > k or r.storage in edge.outputs or r.first < 0)
                ),
                frees=tuple(ends.get(k, ())),
            )
        )
    return found


def _storages(program: Program, ops: Iterable[Operation]) -> tuple[dict[str, None], set[str]]:
    names: dict[str, None] = {}
    changed: set[str] = set()
    for op in ops:
        of = effects(op)
        tensors = [n for n in of.touched if program.by_name[n].kind is BufferKind.TENSOR]
        inside = internal_storages(program, op) if isinstance(op, Fused) else frozenset()
        names.update(
            dict.fromkeys(s for n in tensors if (s := program.storage_of(n)) not in inside)
        )
        changed.update(program.storage_of(n) for n in (*of.writes, *of.mutates))
    return names, changed


def with_fewest_partitions(program: Program, options: Options) -> Program:
    """The program in an order with as few partitions as any, if the peak allows; else itself."""
    policy = ACCOUNTINGS[options.accounting].policy
    best = program
    limit = program_peak(program, policy) * PEAK_FACTOR
    for recorded_first in (True, False):
        ops = _in_batches(program, recorded_first)
        found = program.with_ops(tuple(ops))
        if len(_runs(found)) >= len(_runs(best)):
            continue
        if program_peak(found, policy) <= limit:
            best = found
    return best


def _in_batches(program: Program, kind: bool) -> list[Operation]:
    """The operations, all that are ready of one kind before any of the other has its turn."""
    kinds = program.derive(_kinds)
    after, missing = links(program)
    ready: dict[bool, list[int]] = {True: [], False: []}
    for k, op in enumerate(program.ops):
        if not missing[k]:
            ready[kinds[op.name]].append(k)
    for row in ready.values():
        heapify(row)
    found: list[Operation] = []
    while ready[True] or ready[False]:
        if not ready[kind]:
            kind = not kind
        k = heappop(ready[kind])
        found.append(program.ops[k])
        for other in after[k]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready[kinds[program.ops[other].name]], other)
    return found


def links(program: Program) -> tuple[list[list[int]], list[int]]:
    """For each operation those that must follow it, and how many it must follow itself."""
    deps = dependences(program)
    owner = [0] * len(deps.names)
    for k, op in enumerate(program.ops):
        for leaf in op.leaves:
            owner[deps.position[leaf.name]] = k
    pairs = {(owner[a], owner[b]) for a, b in deps.edges if owner[a] != owner[b]}
    after: list[list[int]] = [[] for _ in program.ops]
    missing = [0] * len(program.ops)
    for a, b in sorted(pairs):
        after[a].append(b)
        missing[b] += 1
    return after, missing
