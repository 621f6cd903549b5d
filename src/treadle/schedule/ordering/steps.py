"""A program as steps to be ordered: kernels, edges between them, and the storages they touch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.deps import dependences
from treadle.analysis.inplace import possible_pairs
from treadle.analysis.liveness import Liveness, LivenessPolicy
from treadle.core.options import Options
from treadle.ir.program import Operation, Program


@dataclass(frozen=True, slots=True)
class StepStorage:
    """A storage: who makes it (None: it is there from the start), and who touches it.

    `ends` is False for what is never freed.
    """

    name: str
    bytes: int
    producer: int | None
    users: tuple[int, ...]
    ends: bool

    @property
    def touched_by(self) -> tuple[int, ...]:
        """Every step that needs it."""
        return self.users if self.producer is None else (self.producer, *self.users)


@dataclass(frozen=True)
class Steps:
    """Steps 0..n-1 in the order given, with what must come before what."""

    ops: tuple[Operation, ...]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    held: tuple[StepStorage, ...]
    gives: tuple[tuple[int, int], ...] = ()
    """(out, inp), as places in `held`: out takes over the block of inp where inp dies at its birth.

    Only pairs of equal size: then nothing changes outside the steps between them.
    """
    movable: frozenset[str] = frozenset()
    """Storages that some order lets take over a block, of any size."""

    @cached_property
    def touches(self) -> tuple[tuple[int, ...], ...]:
        """For each step the storages it makes or uses, as places in `held`."""
        found: list[dict[int, None]] = [{} for _ in self.ops]
        for k, h in enumerate(self.held):
            for s in h.touched_by:
                found[s][k] = None
        return tuple(map(tuple, found))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The bytes of each storage."""
        return tuple(h.bytes for h in self.held)

    @cached_property
    def made(self) -> tuple[int, ...]:
        """The bytes each step allocates if it takes over nothing."""
        found = [0] * len(self.ops)
        for h in self.held:
            if h.producer is not None:
                found[h.producer] += h.bytes
        return tuple(found)

    @cached_property
    def givers(self) -> tuple[tuple[int, ...], ...]:
        """For each step the storages whose blocks it can hand on, if they die there."""
        found: list[list[int]] = [[] for _ in self.ops]
        for out, inp in self.gives:
            producer = self.held[out].producer
            assert producer is not None, "an input takes over nothing"
            found[producer].append(inp)
        return tuple(map(tuple, found))

    def __len__(self) -> int:
        return len(self.ops)

    def is_valid(self, order: list[int]) -> bool:
        """Whether an order contains every step once, behind all that it needs."""
        place = {step: k for k, step in enumerate(order)}
        if len(place) != len(self) or len(order) != len(self):
            return False
        return all(place[p] < place[s] for s in range(len(self)) for p in self.before[s])


def steps_of(program: Program, options: Options, policy: LivenessPolicy | None = None) -> Steps:
    """The top operations of a program as steps; memory counted as the options (or a policy) say.

    Blocks are handed over where the order lets them and sizes are equal: never less is counted
    than the liveness engine counts.
    """
    policy = policy or ACCOUNTINGS[options.accounting].policy
    live = Liveness(program, replace(policy, in_place=False))
    deps = dependences(program)
    step_of = [0] * len(deps.names)
    for k, op in enumerate(program.ops):
        for leaf in op.leaves:
            step_of[deps.position[leaf.name]] = k
    before: list[dict[int, None]] = [{} for _ in program.ops]
    after: list[dict[int, None]] = [{} for _ in program.ops]
    for a, b in deps.edges:
        u, v = step_of[a], step_of[b]
        if u != v:
            before[v][u] = None
            after[u][v] = None
    held = []
    for s, life in live.timeline.lives():
        if life.host is None:
            continue  # it lives in registers
        users = tuple(dict.fromkeys(step_of[u] for u in s.users))
        producer = None if s.producer is None else step_of[s.producer]
        held.append(StepStorage(s.name, s.bytes, producer, users, s.freeable))
    edges = tuple(map(tuple, before)), tuple(map(tuple, after))
    if not policy.in_place:
        return Steps(program.ops, *edges, tuple(held))
    return Steps(program.ops, *edges, tuple(held), *_hand_overs(program, held))


def _hand_overs(
    program: Program, held: list[StepStorage]
) -> tuple[tuple[tuple[int, int], ...], frozenset[str]]:
    """What `Steps.gives` and `Steps.movable` say of a program."""
    place = {h.name: k for k, h in enumerate(held)}
    top = {op.name: k for k, op in enumerate(program.ops)}
    pairs = possible_pairs(program)
    gives = []
    for pair in pairs:
        if pair.out not in place or pair.inp not in place or pair.op not in top:
            continue
        out, inp = held[place[pair.out]], held[place[pair.inp]]
        if out.bytes == inp.bytes and out.producer == top[pair.op] and inp.ends:
            gives.append((place[pair.out], place[pair.inp]))
    return tuple(gives), frozenset(pair.out for pair in pairs)
