"""Where every storage of a run lies, and how many bytes that takes at each step.

One arena holds the temporaries, from the first to the last of them. Where a run would hold more
than it needs, because the arena lies idle while the most is held, large temporaries get memory of
their own, for as long as they live. Donated inputs after their last reader, and outputs before they
are written, take some in. What is written over something else (`analysis/inplace`) lies
where that lay, also in a result that torch allocated for a call, and may be an output itself.
What torch allocates is counted like everything else, so that the peak is what a run really holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from treadle.core.context import Ctx
from treadle.frontends.torch.running.memory_lives import Life, Role, RunShape, Spot
from treadle.index import Symbol
from treadle.memory.from_program import CPU_ALIGNMENT
from treadle.memory.portfolio import Solution, solve
from treadle.memory.problem import ARENA, Block, Place, Pool, Problem

SEARCH_STEPS = 2_000
"""Nodes of exact search where greedy plans leave a gap: planning is part of compiling."""

MOST_ALONE = 32
"""How many temporaries may have memory of their own: each is allocated in every run."""
TRIED_SIZES = 6
"""How many limits are tried, above which a temporary has memory of its own."""
LEAST_GAIN = 0.005
"""The share of the peak that memory of their own must save."""

WAYS = ((True, True), (False, True), (True, False), (False, False))
"""Whether outputs and donated inputs take in others, in the order in which that is tried."""


class Span(NamedTuple):
    """Memory that is allocated as one piece, and the steps between which it is held."""

    name: str
    kind: str
    """`arena`, or what a `Role` is called."""
    bytes: int
    first: int
    """Allocated before this step; -1: there from the beginning."""
    last: int
    """Dropped after this step; the number of steps: the caller keeps it."""


@dataclass(frozen=True)
class RunPlan:
    """A place for every storage at one set of run-time sizes."""

    lives: Mapping[str, Life]
    chains: tuple[tuple[str, ...], ...]
    """Storages that are written one over the other, in order; most stand alone."""
    places: Mapping[str, Place]
    """Storages that lie in the arena or in another storage; all others lie on their own."""
    solution: Solution
    end: int
    hosts: tuple[bool, bool] = (True, True)
    """Whether outputs and donated inputs take in others."""
    alone: frozenset[str] = frozenset()
    """The first of each chain of temporaries that has memory of its own."""

    @property
    def arena_bytes(self) -> int:
        """The bytes of the arena."""
        return self.solution.height

    @property
    def arena_lower_bound(self) -> int:
        """No plan for what is to lie in the arena has a lower one."""
        return self.solution.lower_bound

    @cached_property
    def tenants(self) -> dict[str, list[str]]:
        """Who lies in each pool."""
        found: dict[str, list[str]] = {}
        for name, place in self.places.items():
            found.setdefault(place.pool, []).append(name)
        return found

    @cached_property
    def spans(self) -> dict[str, Span]:
        """Every piece of memory by name, inputs included, the arena not."""
        found = {}
        for name, life in self.lives.items():
            if name not in self.places:
                inside = self.tenants.get(name, [])
                found[name] = self._span(name, life.role.value, life.bytes, [name, *inside])
        return found

    @cached_property
    def arena(self) -> Span | None:
        """The arena as a piece of memory, if anything lies in it."""
        inside = self.tenants.get(ARENA)
        return self._span(ARENA, ARENA, self.arena_bytes, inside) if inside else None

    @property
    def pieces(self) -> list[Span]:
        """All memory that is held at some time, the arena last."""
        return [*self.spans.values(), *([self.arena] if self.arena is not None else [])]

    def _span(self, name: str, kind: str, size: int, storages: Iterable[str]) -> Span:
        lives = [self.lives[s] for s in storages]
        return Span(name, kind, size, min(x.first for x in lives), max(x.last for x in lives))

    @cached_property
    def held(self) -> list[int]:
        """The bytes held during each step, inputs included."""
        return _per_step(self.pieces, self.end)

    @cached_property
    def peak_step(self) -> int:
        """The first step with the most bytes."""
        return max(range(len(self.held)), key=lambda k: (self.held[k], -k))

    @property
    def peak_bytes(self) -> int:
        """The most bytes held at once, inputs included."""
        return self.held[self.peak_step]

    @cached_property
    def input_bytes(self) -> int:
        """The bytes of all inputs, as they lie."""
        return sum(x.bytes for x in self.lives.values() if x.first < 0)

    @cached_property
    def output_bytes(self) -> int:
        """The bytes that the caller gets and that were no input."""
        outputs = (Role.OUTPUT, Role.CALL_OUTPUT)
        return sum(x.bytes for x in self.lives.values() if x.role in outputs)

    @cached_property
    def lower_bound(self) -> int:
        """No plan of this order holds less: what is live at once, each chain as one piece."""
        spans = []
        for chain in self.chains:
            size = max(self.lives[s].bytes for s in chain)
            spans.append(self._span(chain[0], "", size, chain))
        return max(_per_step(spans, self.end))


def _per_step(spans: Iterable[Span], end: int) -> list[int]:
    steps = max(end, 1)
    changes = [0] * (steps + 2)
    for s in spans:
        changes[max(s.first, 0)] += s.bytes
        changes[min(s.last, steps) + 1] -= s.bytes
    held, total = [], 0
    for k in range(steps):
        total += changes[k]
        held.append(total)
    return held


def plan_run(
    shape: RunShape,
    spots: Mapping[str, Spot],
    values: Mapping[Symbol, int],
    ctx: Ctx | None = None,
    like: RunPlan | None = None,
) -> RunPlan:
    """The plan with the lowest peak: hosts are used where that is not paid for elsewhere.

    A host is held for as long as anything lies in it, which can cost more than it saves. `like` is
    a plan for other sizes: what was best there is used again, for a run waits for this plan.
    """
    lives = {x.storage: x for x in shape.lives(spots, values)}
    chains = tuple(_chains(shape, lives))
    planner = _Planner(shape, lives, chains, ctx)
    if like is not None:
        return planner.plan(_Ask(shape, lives, chains, *like.hosts, like.alone), 0)
    found: list[RunPlan] = []
    seen: set[tuple[Pool, ...]] = set()
    for hosts in WAYS:
        ask = _Ask(shape, lives, chains, *hosts)
        if ask.problem.pools in seen:
            continue
        seen.add(ask.problem.pools)
        found.append(planner.plan(ask, SEARCH_STEPS))
        if found[-1].peak_bytes == found[-1].lower_bound:
            break
    best = min(found, key=_rank)
    least = int(best.peak_bytes * LEAST_GAIN)
    if best.arena is None or best.peak_bytes - best.lower_bound <= least:
        return best
    freed = min([planner.with_some_alone(plan) for plan in found], key=_rank)
    if best.peak_bytes - freed.peak_bytes <= least:
        return best
    return min(freed, planner.with_fewer_alone(freed), key=_rank)


@dataclass(frozen=True)
class _Planner:
    """Plans one run in several ways."""

    shape: RunShape
    lives: Mapping[str, Life]
    chains: tuple[tuple[str, ...], ...]
    ctx: Ctx | None

    def plan(self, ask: _Ask, steps: int) -> RunPlan:
        """The plan for one way of asking, with so many nodes of exact search."""
        name = self.shape.program.name
        solution = _solved(ask.problem, steps, self.ctx)
        assert solution.plan is not None, f"no plan for {name}: {solution.verdict}"
        placed = {n: p for n, p in solution.plan.placements.items() if n != p.pool}
        places, hosts = {**ask.fixed, **placed}, (ask.outputs, ask.donated)
        end = self.shape.end
        return RunPlan(self.lives, self.chains, places, solution, end, hosts, ask.alone)

    def _quick(self, like: RunPlan, alone: frozenset[str]) -> RunPlan:
        return self.plan(_Ask(self.shape, self.lives, self.chains, *like.hosts, alone), 0)

    def with_some_alone(self, plan: RunPlan) -> RunPlan:
        """The plan, or one in which the largest temporaries of the arena lie on their own.

        The arena is held from its first to its last tenant. If it is not full when the most is
        held, its largest tenants are tried on their own, for some limits of size.
        """
        best = plan
        for limit in self._limits(plan):
            alone = frozenset(self._in_arena(plan, limit))
            if len(alone) > MOST_ALONE:
                break
            best = min(best, self._quick(plan, alone), key=_rank)
        return best

    def with_fewer_alone(self, plan: RunPlan) -> RunPlan:
        """The plan with those back in the arena, the smallest first, that do not raise the peak."""
        size = {c[0]: max(self.lives[n].bytes for n in c) for c in self.chains}
        for name in sorted(plan.alone, key=lambda n: (size[n], n)):
            made = self._quick(plan, plan.alone - {name})
            if made.peak_bytes <= plan.peak_bytes:
                plan = made
        return plan

    def _in_arena(self, plan: RunPlan, limit: int) -> Iterator[str]:
        """The first of each chain in the arena that is at least so large."""
        for chain in self.chains:
            place = plan.places.get(chain[0])
            if place is None or place.pool != ARENA:
                continue
            if max(self.lives[n].bytes for n in chain) >= limit:
                yield chain[0]

    def _limits(self, plan: RunPlan) -> list[int]:
        """Some of the sizes of what lies in the arena, the largest first."""
        leaders = set(self._in_arena(plan, 1))
        chains = [chain for chain in self.chains if chain[0] in leaders]
        sizes = sorted({max(self.lives[n].bytes for n in c) for c in chains}, reverse=True)
        return sizes[:: max(1, -(-len(sizes) // TRIED_SIZES))]


def _rank(plan: RunPlan) -> tuple[int, int, int]:
    return plan.peak_bytes, len(plan.alone), plan.arena_bytes


def _solved(problem: Problem, steps: int, ctx: Ctx | None) -> Solution:
    quick = solve(problem, steps=0, effort="fast", ctx=ctx)
    if quick.is_optimal or not steps:
        return quick
    return min(quick, solve(problem, steps=steps, ctx=ctx), key=lambda solution: solution.height)


def _chains(shape: RunShape, lives: Mapping[str, Life]) -> Iterator[tuple[str, ...]]:
    """Storages one over the other; an output joins only if it fills the whole memory."""
    takers: set[str] = set()
    for name, life in lives.items():
        heir = shape.heirs.get(name)
        if heir is not None and heir in lives and life.bytes:
            takers.add(heir)
    rest = set(takers)
    for name in lives:
        if name in takers:
            continue
        chain = [name]
        while (heir := shape.heirs.get(chain[-1])) in rest:
            assert heir is not None
            is_output = lives[heir].role is Role.OUTPUT
            if is_output and lives[heir].bytes != lives[name].bytes:
                break
            rest.discard(heir)
            chain.append(heir)
        yield tuple(chain)
    for name in rest:
        yield (name,)


@dataclass(frozen=True)
class _Ask:
    """What the planner is asked, and what is decided without it."""

    shape: RunShape
    lives: Mapping[str, Life]
    chains: tuple[tuple[str, ...], ...]
    outputs: bool
    """Outputs take in temporaries before they are written."""
    donated: bool
    """Donated inputs take in temporaries after their last reader."""
    alone: frozenset[str] = frozenset()
    """The first of each chain that is to have memory of its own."""

    @cached_property
    def fixed(self) -> dict[str, Place]:
        """Storages that lie in another one from its start, because they are written over it."""
        found = {}
        for chain in self.chains:
            home = self._home(chain)
            if home is not None:
                found.update({name: Place(home, 0) for name in chain if name != home})
        return found

    def _home(self, chain: tuple[str, ...]) -> str | None:
        """The storage of the chain that has memory of its own, if it is not for the planner."""
        if self.lives[chain[0]].role is not Role.TEMP:
            return chain[0]
        if self.lives[chain[-1]].role is Role.OUTPUT:
            return chain[-1]
        # The largest has room for all that is written over it.
        return max(chain, key=lambda n: self.lives[n].bytes) if chain[0] in self.alone else None

    @cached_property
    def problem(self) -> Problem:
        """The memory problem of what is left."""
        blocks: list[Block] = []
        pools: list[Pool] = []
        for chain in self.chains:
            home = self._home(chain)
            if home is None:
                blocks.extend(self._group(chain, None))
            elif self._is_host(home):
                pools.append(Pool(home, self.lives[home].bytes, ((0, self.shape.end),)))
                blocks.extend(self._group(chain, home))
        return Problem(tuple(blocks), tuple(pools), None, self.shape.program.name)

    def _is_host(self, name: str) -> bool:
        life = self.lives[name]
        if not life.bytes or not life.is_whole or name in self.shape.pinned or not self.shape.end:
            return False
        if life.role is Role.DONATED:
            return self.donated
        return self.outputs and life.role is Role.OUTPUT

    def _group(self, chain: tuple[str, ...], host: str | None) -> Iterator[Block]:
        end = self.shape.end
        group = chain[0] if len(chain) > 1 else None
        for name in chain:
            life = self.lives[name]
            lower, upper = max(life.first, 0), min(life.upper, end)
            if not life.bytes or lower >= upper:
                continue
            align, fixed = (CPU_ALIGNMENT, None) if host is None else (1, 0)
            yield Block(name, lower, upper, life.bytes, align, (), fixed, host, group)
