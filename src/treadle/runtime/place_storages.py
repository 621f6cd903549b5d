"""Where the storages of one device lie: the plan with the lowest peak that a short search finds.

One arena holds the temporaries, from the first to the last of them. Where a run would hold more
than it needs, because the arena lies idle while the most is held, large temporaries get memory of
their own, for as long as they live. Donated inputs after their last reader, and outputs before they
are written, take some in. What is written over something else (`analysis/inplace`) lies
where that lay, also in a result that a library allocated, and may be an output itself.
What calls allocate is counted like everything else, so that the peak is what a run really holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from treadle.core.context import Ctx
from treadle.ir.devices import alignment_for
from treadle.memory.portfolio import Solution, solve
from treadle.memory.problem import ARENA, Block, Place, Pool, Problem
from treadle.runtime.device_memory import DeviceMemory, Role, StorageLife
from treadle.runtime.launch_shape import LaunchShape

SEARCH_STEPS = 2_000
"""Nodes of exact search where greedy plans leave a gap: planning is part of compiling."""

MOST_ALONE = 32
"""How many temporaries may have memory of their own: each is allocated in every run."""
TRIED_SIZES = 6
"""How many limits are tried, above which a temporary has memory of its own."""
MOST_CLOSED = 6
"""How many outputs are tried one after the other with nobody in them."""
LEAST_GAIN = 0.005
"""The share of the peak that memory of their own must save."""

WAYS = ((True, True), (False, True), (True, False), (False, False))
"""Whether outputs and donated inputs take in others, in the order in which that is tried."""


def place_storages(
    shape: LaunchShape,
    device: str,
    lives: Mapping[str, StorageLife],
    ctx: Ctx | None = None,
    like: DeviceMemory | None = None,
    at_once: bool = False,
) -> DeviceMemory:
    """The plan with the lowest peak: hosts are used where that is not paid for elsewhere.

    A host is held for as long as anything lies in it, which can cost more than it saves. `like` is
    a plan for other sizes: what was best there is used again, for a run waits for this plan.
    Where all is held `at_once`, memory of one's own has no end, and saves nothing.
    """
    chains = in_place_chains(shape, lives)
    planner = _Planner(shape, device, lives, chains, ctx, at_once)
    if like is not None:
        return planner.plan(planner.ask(like.hosts, like.alone, like.closed), 0)
    found: list[DeviceMemory] = []
    seen: set[tuple[Pool, ...]] = set()
    for hosts in WAYS:
        ask = planner.ask(hosts)
        if ask.problem.pools in seen:
            continue
        seen.add(ask.problem.pools)
        found.append(planner.plan(ask, SEARCH_STEPS))
        if found[-1].peak_bytes == found[-1].lower_bound:
            break
    best = min(found, key=_rank)
    least = int(best.peak_bytes * LEAST_GAIN)
    if at_once or best.arena is None or best.peak_bytes - best.lower_bound <= least:
        return best
    freed = min([planner.with_some_alone(plan) for plan in found], key=_rank)
    freed = planner.with_some_closed(min(best, freed, key=_rank))
    if best.peak_bytes - freed.peak_bytes <= least:
        return best
    return min(freed, planner.with_fewer_alone(freed), key=_rank)


@dataclass(frozen=True)
class _Planner:
    """Plans one run in several ways."""

    shape: LaunchShape
    device: str
    lives: Mapping[str, StorageLife]
    chains: tuple[tuple[str, ...], ...]
    ctx: Ctx | None
    at_once: bool = False

    def ask(
        self,
        hosts: tuple[bool, bool],
        alone: frozenset[str] = frozenset(),
        closed: frozenset[str] = frozenset(),
    ) -> _Ask:
        """One way of asking: who takes in others, and who has memory of its own."""
        return _Ask(self.shape, self.device, self.lives, self.chains, *hosts, alone, closed)

    def plan(self, ask: _Ask, steps: int) -> DeviceMemory:
        """The plan for one way of asking, with so many nodes of exact search."""
        name = self.shape.program.name
        solution = _solved(ask.problem, steps, self.ctx)
        assert solution.plan is not None, f"no plan for {name}: {solution.verdict}"
        placed = {n: p for n, p in solution.plan.placements.items() if n != p.pool}
        places, hosts = {**ask.fixed, **placed}, (ask.outputs, ask.donated)
        found = solution.height, solution.lower_bound
        lives, chains = self.lives, self.chains
        end = self.shape.end
        alone, closed = ask.alone, ask.closed
        given = self.device, end, lives, chains, places, *found, hosts, alone, closed
        parts = ((0, end - 1),) if self.at_once and end else ()
        return DeviceMemory(*given, parts)

    def _quick(self, like: DeviceMemory, alone: frozenset[str]) -> DeviceMemory:
        return self.plan(self.ask(like.hosts, alone, like.closed), 0)

    def with_some_closed(self, plan: DeviceMemory) -> DeviceMemory:
        """The plan, or one in which outputs that lie idle while the most is held take nobody in.

        An output with something in it is allocated when that is, and then held to the end. What
        was in it gets memory of its own.
        """
        best = plan
        for _ in range(MOST_CLOSED):
            idle = [n for n in plan.suballocations if self._is_idle(plan, n)]
            if not idle or plan.peak_bytes == plan.lower_bound:
                break
            out = max(idle, key=lambda n: (self.lives[n].bytes, n))
            firsts = {chain[0] for chain in self.chains}
            alone = plan.alone | (firsts & set(plan.suballocations[out]))
            if len(alone) > MOST_ALONE:
                break
            plan = self.plan(self.ask(plan.hosts, alone, plan.closed | {out}), 0)
            best = min(best, plan, key=_rank)
        return best

    def _is_idle(self, plan: DeviceMemory, name: str) -> bool:
        """Whether an output is held at the peak although nothing in it is needed there."""
        life, at = self.lives.get(name), plan.peak_step
        if life is None or life.role is not Role.OUTPUT or life.first <= at:
            return False
        inside = [self.lives[n] for n in plan.suballocations[name]]
        return plan.spans[name].first <= at and not any(x.first <= at <= x.last for x in inside)

    def with_some_alone(self, plan: DeviceMemory) -> DeviceMemory:
        """The plan, or one in which the largest temporaries of the arena lie on their own.

        The arena is held from the first to the last that lies in it. If it is not full when the
        most is held, the largest in it are tried on their own, for some limits of size.
        """
        best = plan
        for limit in self._limits(plan):
            alone = frozenset(self._in_arena(plan, limit))
            if len(alone) > MOST_ALONE:
                break
            best = min(best, self._quick(plan, alone), key=_rank)
        return best

    def with_fewer_alone(self, plan: DeviceMemory) -> DeviceMemory:
        """The plan with those back in the arena, the smallest first, that do not raise the peak."""
        size = {c[0]: max(self.lives[n].bytes for n in c) for c in self.chains}
        for name in sorted(plan.alone, key=lambda n: (size[n], n)):
            made = self._quick(plan, plan.alone - {name})
            if made.peak_bytes <= plan.peak_bytes:
                plan = made
        return plan

    def _in_arena(self, plan: DeviceMemory, limit: int) -> Iterator[str]:
        """The first of each chain in the arena that is at least so large."""
        for chain in self.chains:
            place = plan.places.get(chain[0])
            if place is None or place.pool != ARENA:
                continue
            if max(self.lives[n].bytes for n in chain) >= limit:
                yield chain[0]

    def _limits(self, plan: DeviceMemory) -> list[int]:
        """Some of the sizes of what lies in the arena, the largest first."""
        leaders = set(self._in_arena(plan, 1))
        chains = [chain for chain in self.chains if chain[0] in leaders]
        sizes = sorted({max(self.lives[n].bytes for n in c) for c in chains}, reverse=True)
        return sizes[:: max(1, -(-len(sizes) // TRIED_SIZES))]


def _rank(plan: DeviceMemory) -> tuple[int, int, int]:
    return plan.peak_bytes, len(plan.alone), plan.arena_bytes


def _solved(problem: Problem, steps: int, ctx: Ctx | None) -> Solution:
    quick = solve(problem, steps=0, effort="fast", ctx=ctx)
    if quick.is_optimal or not steps:
        return quick
    return min(quick, solve(problem, steps=steps, ctx=ctx), key=lambda solution: solution.height)


def in_place_chains(
    shape: LaunchShape, lives: Mapping[str, StorageLife]
) -> tuple[tuple[str, ...], ...]:
    """Storages that are written one over the other, in order; most stand alone."""
    return tuple(_chains(shape, lives))


def _chains(shape: LaunchShape, lives: Mapping[str, StorageLife]) -> Iterator[tuple[str, ...]]:
    """Storages one over the other; an output joins only if it fills the whole memory."""
    reusers: set[str] = set()
    for name, life in lives.items():
        reuser = shape.reuses.get(name)
        if reuser is not None and reuser in lives and life.bytes:
            reusers.add(reuser)
    rest = set(reusers)
    for name in lives:
        if name in reusers:
            continue
        chain = [name]
        while (reuser := shape.reuses.get(chain[-1])) in rest:
            assert reuser is not None, "what is in the rest has a name"
            is_output = lives[reuser].role is Role.OUTPUT
            if is_output and lives[reuser].bytes != lives[name].bytes:
                break
            rest.discard(reuser)
            chain.append(reuser)
        yield tuple(chain)
    for name in rest:
        yield (name,)


@dataclass(frozen=True)
class _Ask:
    """What the planner is asked, and what is decided without it."""

    shape: LaunchShape
    device: str
    lives: Mapping[str, StorageLife]
    chains: tuple[tuple[str, ...], ...]
    outputs: bool
    """Outputs take in temporaries before they are written."""
    donated: bool
    """Donated inputs take in temporaries after their last reader."""
    alone: frozenset[str] = frozenset()
    """The first of each chain that is to have memory of its own."""
    closed: frozenset[str] = frozenset()
    """Outputs that take in nobody."""

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
        if name in self.closed:
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
            align, fixed = (alignment_for(self.device), None) if host is None else (1, 0)
            yield Block(name, lower, upper, life.bytes, align, (), fixed, host, group)
