"""A program as tasks: compute on streams, collectives on channels, waits that join the two.

    stream cuda:0      [ a ][ b ][      c      ][wait][ d ]
    channel g/nvlink        [ all-gather ]

A task is one top operation. A collective begins once everything that was launched before it on its
stream is done and its channel is free; a wait holds its stream until the collective has ended.
There is one channel for each group and kind of link.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from treadle.analysis.comm.cost import CollectiveCosts
from treadle.analysis.comm.kinds import CollectiveKind, kind_of_collective
from treadle.analysis.deps import COLLECTIVES, dependences
from treadle.core.costs import CostModel
from treadle.ir.effects import effects
from treadle.ir.program import (
    Collective,
    Group,
    MultiOutput,
    Nop,
    Operation,
    Program,
    Wait,
)
from treadle.ir.ranks import RankGroup
from treadle.ir.types import BufferKind


class TaskKind(Enum):
    """What a task occupies."""

    COMPUTE = "compute"
    COLLECTIVE = "collective"
    WAIT = "wait"
    NOTHING = "nothing"
    """It takes no time: memory is named, not touched."""


@dataclass(frozen=True)
class Task:
    """One operation of the program: where it runs and how long."""

    name: str
    kind: TaskKind
    us: float
    stream: str
    """The queue it is launched from."""
    channel: str = ""
    """Of a collective: what it occupies."""
    of: int = -1
    """Of a wait: the collective it waits for; -1 if it waits for nothing."""
    message_bytes: int = 0
    latency_us: float = 0.0
    """Of a collective: the part that no bandwidth would save."""
    what: str = ""
    launch_us: float = 0.0
    """Of a collective: how long its stream is busy beginning it, where that was measured."""


class MeasuredTask(NamedTuple):
    """How long a task took in a run."""

    us: float
    launch_us: float = 0.0


@dataclass(frozen=True)
class TaskGraph:
    """The tasks of a program in its order, and what each must follow."""

    tasks: tuple[Task, ...]
    before: tuple[tuple[int, ...], ...]
    """For each task those it must follow, whatever the order of collectives."""
    kept: tuple[tuple[int, int], ...]
    """Pairs of collectives of one group that follow each other in the given order."""
    slowdown: float = 0.0
    """How much longer compute takes while a collective is under way."""

    @property
    def collectives(self) -> list[int]:
        """The collectives, in the given order."""
        return [k for k, t in enumerate(self.tasks) if t.kind is TaskKind.COLLECTIVE]

    @property
    def serial_us(self) -> float:
        """How long it takes if nothing overlaps."""
        return sum(task.us for task in self.tasks)

    def after(self) -> list[list[int]]:
        """For each task those that must follow it."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for k, sources in enumerate(self.before):
            for source in sources:
                found[source].append(k)
        return found

    def with_times(self, measured: Mapping[str, MeasuredTask]) -> TaskGraph:
        """The same tasks, those with these names taking the time that was measured."""
        tasks = []
        for task in self.tasks:
            known = measured.get(task.name, MeasuredTask(task.us, task.launch_us))
            tasks.append(replace(task, us=known.us, launch_us=known.launch_us))
        return replace(self, tasks=tuple(tasks))

    def with_order_kept(self) -> TaskGraph:
        """The same tasks, with the order of collectives of a group among what must be followed."""
        extra: dict[int, list[int]] = {}
        for a, b in self.kept:
            extra.setdefault(b, []).append(a)
        rows = [(*row, *extra.get(k, ())) for k, row in enumerate(self.before)]
        before = tuple([tuple(dict.fromkeys(row)) for row in rows])
        return TaskGraph(self.tasks, before, self.kept, self.slowdown)


def first_come_order(before: Mapping[int, Collection[int]]) -> list[int] | None:
    """All numbers, each after those it must follow, the least first of those that can come.

    None if some follow each other in a ring.
    """
    after: dict[int, list[int]] = {k: [] for k in before}
    waiting = {}
    for k, row in before.items():
        waiting[k] = len(row)
        for source in row:
            after[source].append(k)
    ready = [k for k, count in waiting.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for other in after[k]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, other)
    return order if len(order) == len(before) else None


def message_bytes(program: Program, op: Collective) -> int:
    """The whole message: what a gather delivers, what others are given."""
    of = effects(op)

    def size(names: tuple[str, ...]) -> int:
        tensors = [n for n in names if program.by_name[n].kind is BufferKind.TENSOR]
        return sum(program.by_name[n].tensor_bytes for n in dict.fromkeys(tensors))

    given = tuple(n for n in of.reads if n not in of.mutates)
    made = max(size(of.writes), size(of.mutates), _tuple_bytes(program, of.writes))
    if kind_of_collective(op.target) is CollectiveKind.ALL_GATHER:
        return made or size(given)
    return size(given) or made


def _tuple_bytes(program: Program, names: tuple[str, ...]) -> int:
    """What is taken out of the tuples among these."""
    parts = program.derive(_taken)
    return sum(parts.get(n, 0) for n in names)


def _taken(program: Program) -> dict[str, int]:
    found: dict[str, int] = {}
    for op in program.leaves:
        if isinstance(op, MultiOutput):
            size = program.by_name[op.target].tensor_bytes
            found[op.source] = found.get(op.source, 0) + size
    return found


class GroupsAtWorld:
    """The ranks of every group of a program in a job of some size."""

    def __init__(self, program: Program, world: int) -> None:
        found = [op for op in program.leaves if isinstance(op, Collective)]
        self.known = max((max(op.ranks) + 1 for op in found if op.ranks), default=world)
        self.world = world
        self._found: dict[tuple[str, tuple[int, ...]], RankGroup] = {}

    def of(self, op: Collective) -> RankGroup:
        """The group of a collective; one whose ranks are not known is the whole job."""
        key = op.group, op.ranks
        if key not in self._found:
            ranks = op.ranks or tuple(range(self.world))
            known = self.known if op.ranks else self.world
            self._found[key] = RankGroup(op.group, ranks).at_world(known, self.world)
        return self._found[key]


def tasks_of(
    program: Program, compute: CostModel, costs: CollectiveCosts, world: int | None = None
) -> TaskGraph:
    """The program as tasks on a machine, for a job of `world` ranks (default: all it has)."""
    groups = GroupsAtWorld(program, world or costs.hardware.world)

    def collective(op: Collective) -> Task:
        group = groups.of(op)
        size, kind = message_bytes(program, op), kind_of_collective(op.target)
        found = costs.estimate(kind, size, group)
        channel = f"{op.group or 'world'}/{costs.hardware.link_of(group).name}"
        name, us, late = op.name, found.us, found.latency_us
        what = f"{kind.value} of {size} bytes over {group.size} ranks"
        return Task(name, TaskKind.COLLECTIVE, us, op.device, channel, -1, size, late, what)

    return task_graph(program, compute, collective, costs.hardware.compute_slowdown)


def task_graph(
    program: Program,
    compute: CostModel,
    collective: Callable[[Collective], Task],
    slowdown: float = 0.0,
) -> TaskGraph:
    """The program as tasks; `collective` makes the task of each collective."""
    begun: dict[str, int] = {}
    tasks = []
    for number, op in enumerate(program.ops):
        if isinstance(op, Collective):
            tasks.append(collective(op))
            for name in (*op.writes, *op.mutates):
                begun[program.storage_of(name)] = number
        elif isinstance(op, Wait):
            of = begun.get(program.storage_of(op.buffer), -1)
            tasks.append(Task(op.name, TaskKind.WAIT, 0.0, op.device, of=of))
        elif isinstance(op, MultiOutput | Nop):
            if isinstance(op, MultiOutput) and program.storage_of(op.source) in begun:
                begun[program.storage_of(op.target)] = begun[program.storage_of(op.source)]
            tasks.append(Task(op.name, TaskKind.NOTHING, 0.0, op.device))
        else:
            us = compute.op_ns(op) / 1e3 + _inside(op, collective)
            tasks.append(Task(op.name, TaskKind.COMPUTE, us, op.device))
    before, kept = _orders(program)
    return TaskGraph(tuple(tasks), before, kept, slowdown)


def _inside(op: Operation, collective: Callable[[Collective], Task]) -> float:
    """What communication costs inside a group that is kept together: nothing overlaps it."""
    if not isinstance(op, Group):
        return 0.0
    return sum(collective(leaf).us for leaf in op.leaves if isinstance(leaf, Collective))


def _orders(program: Program) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, int], ...]]:
    """What each top operation must follow, and the pairs of collectives that merely keep order."""
    deps = dependences(program)
    owner: Mapping[str, int] = {
        leaf.name: number for number, op in enumerate(program.ops) for leaf in op.leaves
    }
    at = [owner[name] for name in deps.names]
    before: list[dict[int, None]] = [{} for _ in program.ops]
    kept: dict[tuple[int, int], None] = {}
    for d in deps.deps:
        a, b = at[d.source], at[d.target]
        if a == b:
            continue
        if d.cause == COLLECTIVES and isinstance(program.ops[b], Collective):
            kept[a, b] = None
        else:
            before[b][a] = None
    return tuple([tuple(row) for row in before]), tuple(kept)
