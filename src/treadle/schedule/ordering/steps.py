"""A program as steps to be ordered: kernels, edges between them, and the storages they touch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.deps import dependences
from treadle.analysis.liveness import Liveness
from treadle.core.options import Options
from treadle.ir.program import Operation, Program


@dataclass(frozen=True, slots=True)
class Held:
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
    held: tuple[Held, ...]

    def __len__(self) -> int:
        return len(self.ops)

    def is_valid(self, order: list[int]) -> bool:
        """Whether an order contains every step once, behind all that it needs."""
        place = {step: k for k, step in enumerate(order)}
        if len(place) != len(self) or len(order) != len(self):
            return False
        return all(place[p] < place[s] for s in range(len(self)) for p in self.before[s])


def steps_of(program: Program, options: Options) -> Steps:
    """The top operations of a program as steps; memory counted as the options say.

    Except that no block is handed over: which ones can be depends on the order.
    """
    policy = replace(ACCOUNTINGS[options.accounting].policy, in_place=False)
    live = Liveness(program, policy)
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
        held.append(Held(s.name, s.bytes, producer, users, s.freeable))
    return Steps(program.ops, tuple(map(tuple, before)), tuple(map(tuple, after)), tuple(held))
