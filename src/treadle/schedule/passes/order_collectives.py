"""order-collectives: start communication early and wait for it late, so that work runs meanwhile.

before   a = f(x) ; c = gather(y) ; wait c ; b = g(a) ; use(b, c)
after    c = gather(y) ; a = f(x) ; b = g(a) ; wait c ; use(b, c)
keeps    the order of all collectives among themselves, the same on every rank; the peak

Option `comm` says how. `model` simulates the program on given hardware and looks for the order that
is done soonest (`overlap/by_model.py`); `exact` also proves it for small programs. `simple`, below,
needs no estimates.

Two kinds of moves, to a fixpoint: a wait goes to just before its first user; a collective goes to
just behind the last operation it needs, and what it needs is moved forward with it. A move that
raises the peak is tried again half as far, then dropped. Only where no kernel at all runs between a
collective and its wait may the peak rise, as little as possible and never above that of the order
given to the pipeline (policy `memory`: not at all). What a collective needs is never moved over a
wait: that would uncover another collective.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from treadle.analysis.timeline import LifeError
from treadle.core.context import Ctx
from treadle.core.verdict import Verdict, no, yes
from treadle.ir.program import Collective, Group, MultiOutput, Nop, Operation, Program, Wait
from treadle.schedule.board import Board
from treadle.schedule.given_peak import given_peak
from treadle.schedule.overlap.by_model import order_by_model
from treadle.schedule.policy import policy_of

ROUNDS = 32
"""More than any program was seen to need."""
FARTHEST = 256
"""Steps that one move may pass: enough for any collective to hide behind."""


class Flight(NamedTuple):
    """A collective and its wait, as positions among the leaves."""

    start: int
    wait: int


def order_collectives(program: Program, ctx: Ctx) -> Program:
    """Move collectives forward and waits back within the peak."""
    flights = list(_flights(program))
    if not flights:
        return program
    by_model = order_by_model(program, ctx) if ctx.options.comm != "simple" else None
    if by_model is not None:
        return by_model
    order = Reorder(program, ctx)
    before = [order.between(f) for f in flights]
    for _ in range(ROUNDS):
        if not order.round() and not order.cover(flights):
            break
    after = [order.between(f) for f in flights]
    for f, count in zip(flights, after, strict=True):
        names = program.leaves[f.start].name, program.leaves[f.wait].name
        ctx.journal.verdict("overlap", names, order.verdict(f, count))
    ctx.journal.emit(
        "step",
        action="order-collectives",
        args=[len(flights), before.count(0), after.count(0), order.given, order.peak],
    )
    return order.program_in_order()


def _flights(program: Program) -> Iterator[Flight]:
    """Every collective with each wait on what it wrote; both outside of groups."""
    top = {op.name for op in program.ops if isinstance(op, Collective | Wait)}
    last: dict[str, int] = {}
    for position, leaf in enumerate(program.leaves):
        if isinstance(leaf, Collective):
            for name in (*leaf.writes, *leaf.mutates):
                last[program.storage_of(name)] = position
        elif isinstance(leaf, Wait):
            start = last.get(program.storage_of(leaf.buffer))
            if start is not None and {leaf.name, program.leaves[start].name} <= top:
                yield Flight(start, position)


def exposed_flights(program: Program) -> int:
    """How many collectives are waited for with no work between start and wait."""
    at = {leaf.name: k for k, op in enumerate(program.ops) for leaf in op.leaves}
    count = 0
    for f in _flights(program):
        low, high = (at[program.leaves[k].name] for k in f)
        count += not any(_is_work(op) for op in program.ops[low + 1 : high])
    return count


def _is_work(op: Operation) -> bool:
    return not isinstance(op, Collective | Wait | Nop | MultiOutput)


class Reorder:
    """The order while it is being changed."""

    def __init__(self, program: Program, ctx: Ctx) -> None:
        self.program = program
        policy = policy_of(ctx)
        self.board = Board(program, ctx, policy)
        self.board.enter_groups(lambda kept, gone: None)
        self.timeline = self.board.timeline
        self.given = self.peak = self.timeline.peak().bytes
        self.allowed = self.peak if policy.never_raise else max(self.peak, given_peak(ctx))
        self.too_high: set[int] = set()
        self.steps = [self.board.group_of(step[0]) for step in self.timeline.order()]
        """One leaf of each step, in order."""
        self.at = {step: k for k, step in enumerate(self.steps)}
        place = self.board.deps.position
        self.op_at = {place[leaf.name]: op for op in program.ops for leaf in op.leaves}
        tops = [(place[op.name], op) for op in program.ops if not isinstance(op, Group)]
        self.waits = [k for k, op in tops if isinstance(op, Wait)]
        self.starts = [k for k, op in tops if isinstance(op, Collective)]
        for a, b in zip(self.starts, self.starts[1:], strict=False):
            # Also those of different groups: ranks that disagree would wait for each other.
            self.board.order.add_edge(a, b)

    def round(self) -> int:
        """Every wait back once, every collective forward once; gives how many moved."""
        moved = sum([self.sink(w, self.peak) for w in reversed(self.waits)])
        return moved + sum([self.raise_(c, self.peak) for c in self.starts])

    def cover(self, flights: list[Flight]) -> int:
        """Give collectives that nothing hides some work, with memory if need be."""
        moved = 0
        for f in flights:
            if not self.between(f):
                moved += self.sink(f.wait, self.allowed, nearest=True) or self.raise_(
                    f.start, self.allowed, nearest=True
                )
        return moved

    def _follow(self, moves: list[tuple[int, int, bool]]) -> None:
        """Note moves that the timeline has made; only what stands between changes its place."""
        touched = [self.at[s] for step, anchor, _ in moves for s in (step, anchor)]
        low, high = min(touched), max(touched) + 1
        part = self.steps[low:high]
        for step, anchor, behind in moves:
            part.remove(step)
            part.insert(part.index(anchor) + behind, step)
        self.steps[low:high] = part
        self.at.update({step: k for k, step in enumerate(part, low)})

    def sink(self, wait: int, limit: int, *, nearest: bool = False) -> bool:
        """Put a wait right before its first user, or less far if the peak does not allow it."""
        after = self.board.order.successors(wait)
        steps, here = self.steps, self.at[wait]
        first = min((self.at[s] for s in after), default=len(steps))
        for goal in _goals(here + 1, min(first, here + 1 + FARTHEST), nearest):
            passed = [self.op_at[s] for s in steps[here + 1 : goal]]
            moves = [(wait, steps[goal - 1], True)]
            if any(map(_is_work, passed)) and self._try(wait, moves, limit):
                return True
        return False

    def raise_(self, start: int, limit: int, *, nearest: bool = False) -> bool:
        """Put a collective, with what it needs, as early as it can be within the peak."""
        steps, here = self.steps, self.at[start]
        needed = self._needed(start, here)
        low = 0
        for k in range(here - 1, max(here - FARTHEST, -1), -1):
            op = self.op_at[steps[k]]
            if isinstance(op, Collective) or (isinstance(op, Wait) and steps[k] in needed):
                low = k + 1
                break
            low = k
        for goal in _goals(here, low, nearest):
            block = [s for s in steps[goal:here] if s in needed]
            others = [s for s in steps[goal:here] if s not in needed]
            if not any(_is_work(self.op_at[s]) for s in others):
                continue
            anchor = others[0]
            ready = [s for s in block if self.at[s] > self.at[anchor]]
            if self._try(start, [(s, anchor, False) for s in (*ready, start)], limit):
                return True
        return False

    def _needed(self, start: int, here: int) -> set[int]:
        """Everything among the steps before it that a collective needs, directly or not."""
        found: set[int] = set()
        pending = [start]
        while pending:
            for s in self.board.order.predecessors(pending.pop()):
                if s not in found and here - self.at[s] <= FARTHEST:
                    found.add(s)
                    pending.append(s)
        return found

    def _try(self, which: int, moves: list[tuple[int, int, bool]], limit: int) -> bool:
        mark = self.timeline.checkpoint()
        try:
            for step, anchor, behind in moves:
                move = self.timeline.move_after if behind else self.timeline.move_before
                move(step, anchor)
        except LifeError:
            self.timeline.rollback(mark)
            return False
        peak = self.timeline.peak().bytes
        if peak > limit:
            self.timeline.rollback(mark)
            self.too_high.add(which)
            return False
        self.peak = peak
        self.timeline.commit()
        self._follow(moves)
        return True

    def between(self, f: Flight) -> int:
        """How many kernels run between a collective and its wait."""
        low, high = self.at[f.start], self.at[f.wait]
        return sum(_is_work(self.op_at[s]) for s in self.steps[low + 1 : high])

    def verdict(self, f: Flight, count: int) -> Verdict:
        """COL000 if work runs meanwhile, COL001 if the peak forbade it, COL002 if there is none."""
        if count:
            return yes("COL000", kernels=count)
        if f.start in self.too_high or f.wait in self.too_high:
            return no("COL001", limit=self.allowed)
        return no("COL002", kernels=0)

    def program_in_order(self) -> Program:
        """The program in the order found; itself if that is the given one."""
        ops = [self.op_at[s] for s in self.steps]
        ops.extend(op for op in self.program.ops if not op.leaves)
        return self.program.with_ops(tuple(ops))


def _goals(near: int, far: int, nearest: bool) -> list[int]:
    """Goals from `far` to `near`, each half as far as the one before; or the other way round."""
    found = []
    while far != near:
        found.append(far)
        far = near + int((far - near) / 2)
    return found[::-1] if nearest else found
