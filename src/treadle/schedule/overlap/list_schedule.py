"""An order made task by task along simulated time: collectives early, waits late, within memory.

At each place of the spine (see `roles`):

    1  what has arrived and only needs finishing is finished: that frees memory and costs no time
    2  collectives are begun, the one needed soonest first, as long as their channel would soon be
       idle and the bytes they hold fit under the budget until they are used
    3  the next task of the spine runs; if it must wait, other work fills the gap
    4  a task that does not fit waits for collectives that hold memory

Everything is counted, nothing is drawn: the same program gives the same order on every rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treadle.analysis.comm.simulate import NEXT_TO_NOTHING_US
from treadle.analysis.comm.tasks import TaskKind
from treadle.schedule.ordering.steps import Steps
from treadle.schedule.overlap.roles import NEVER, Roles

LOOKED_AT = 24
"""Collectives, soonest needed first, among which one is looked for that can begin."""
FILLERS = 32
"""Tasks of the spine ahead of a blocked one among which one is looked for that can run."""


@dataclass(frozen=True)
class Limits:
    """How far an order may go."""

    budget: int | None = None
    """Bytes that may be alive at once; None: any."""
    in_flight: int | None = None
    """Bytes of messages that may be under way at once; None: any."""
    distance: int = 256
    """Tasks of the spine that a collective may begin ahead of its first use."""
    backlog: float = 1.0
    """How much longer than the next task a channel may be busy before more is begun on it."""
    margin: float = 0.0
    """A collective is taken as arrived this share of its time after it should have."""


class Memory:
    """Bytes alive while an order grows: what was made and is still to be used."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.left = [len(h.users) for h in steps.held]
        self.alive = sum(
            h.bytes for h in steps.held if h.producer is None and (h.users or not h.ends)
        )
        self.peak = self.alive

    def run(self, step: int) -> int:
        """Run a step; gives the bytes alive during it."""
        steps = self.steps
        during = self.alive + steps.made[step]
        gone = 0
        for h in steps.touches[step]:
            held = steps.held[h]
            if step in held.users:
                self.left[h] -= 1
            if not self.left[h] and held.ends:
                gone += held.bytes
                if h in steps.givers[step]:
                    during -= held.bytes  # its block becomes the result
        self.alive = self.alive + steps.made[step] - gone
        self.peak = max(self.peak, during)
        return during


def tight_profile(roles: Roles, steps: Steps) -> list[int]:
    """Bytes at each place of the spine if every collective begins where it is first needed."""
    limits = Limits(distance=0, backlog=float("inf"))
    made = _Maker(roles, steps, limits, None)
    made.is_tight = True
    made.make()
    return made.profile


def list_schedule(
    roles: Roles, steps: Steps, limits: Limits, profile: Sequence[int] | None = None
) -> list[int]:
    """The tasks in an order made along simulated time."""
    return _Maker(roles, steps, limits, profile).make()


class _Maker:
    """One order while it is being made."""

    def __init__(
        self, roles: Roles, steps: Steps, limits: Limits, profile: Sequence[int] | None
    ) -> None:
        self.roles, self.graph, self.limits = roles, roles.graph, limits
        self.tasks, self.before = roles.graph.tasks, roles.graph.before
        self.given_profile = profile
        self.memory = Memory(steps)
        self.steps = steps
        self.order: list[int] = []
        self.done = [False] * len(self.tasks)
        self.now = 0.0
        self.channels: dict[str, float] = {}
        self.end: dict[int, float] = {}
        """When each collective that was begun ends."""
        self.pending: dict[int, None] = {}
        """Collectives that were begun and not waited for."""
        deadline = roles.deadline
        self.unbegun = sorted(deadline, key=lambda k: (deadline[k], k))
        self.extra = [0] * (len(roles.spine) + 1)
        """Bytes held at each place of the spine by what was begun ahead of its use."""
        self.at = 0
        self.profile: list[int] = []
        self.levels: list[int] = []
        """Bytes alive during each task placed so far."""
        self.is_tight = False
        computing = (TaskKind.COMPUTE, TaskKind.NOTHING)
        self.open = [k for k in sorted(roles.finishers) if self.tasks[k].kind in computing]
        """Finishers that are still to run."""

    def make(self) -> list[int]:
        """Place every task."""
        seen = 0
        for self.at, task in enumerate(self.roles.spine):
            if not self.done[task]:
                self.finish(arrived_only=not self.is_tight)
                self.begin_what_can(task)
                self.run_spine(task)
            marks = self.memory_since(seen)
            self.profile.append(marks)
            seen = len(self.order)
        self.at = len(self.roles.spine)
        while self.unbegun:
            self.finish(arrived_only=True)
            if not self.begin_one(float("inf")):
                self.need(self.unbegun[0])
        self.finish(arrived_only=False)
        for k in range(len(self.tasks)):
            if not self.done[k]:
                self.need(k)
        return self.order

    def memory_since(self, seen: int) -> int:
        """The most bytes alive during the tasks that were placed since."""
        return max(self.levels[seen:], default=self.memory.alive)

    # -- placing ---------------------------------------------------------------------------

    def place(self, k: int) -> None:
        """Put one task at the end of the order and let its time pass."""
        task = self.tasks[k]
        self.done[k] = True
        self.order.append(k)
        self.levels.append(self.memory.run(k))
        if task.kind is TaskKind.COLLECTIVE:
            begin = max(self.now, self.channels.get(task.channel, 0.0))
            self.end[k] = self.channels[task.channel] = begin + task.us
            self.pending[k] = None
        elif task.kind is TaskKind.WAIT:
            if task.of >= 0:
                self.now = max(self.now, self.end[task.of])
                self.pending.pop(task.of, None)
        else:
            self.now += task.us

    def missing(self, k: int) -> list[int]:
        """All that must be placed before a task can be, and the task, in order."""
        found: dict[int, None] = {}
        stack = [(k, False)]
        while stack:
            one, is_ready = stack.pop()
            if is_ready:
                found[one] = None
            elif not self.done[one] and one not in found:
                stack.append((one, True))
                sources = [s for s in self.before[one] if not self.done[s]]
                stack.extend((s, False) for s in sorted(sources, reverse=True))
        return list(found)

    def need(self, k: int) -> None:
        """Place a task with all that it must follow."""
        for one in self.missing(k):
            self.place(one)
            if self.tasks[one].kind is TaskKind.COLLECTIVE:
                self.unbegun.remove(one)

    # -- collectives -----------------------------------------------------------------------

    def begin_what_can(self, next_task: int) -> None:
        """Begin collectives until their channels are busy for longer than the next task."""
        if self.is_tight:
            for k in [k for k in self.unbegun if self.roles.deadline[k] == NEVER]:
                if not self.done[k] and self.waits_not(self.missing(k)):
                    self.need(k)
            return
        while self.begin_one(self.tasks[next_task].us):
            pass

    def begin_one(self, us: float) -> bool:
        """Begin the collective that is needed soonest of those that can; whether there was one."""
        deadline, looked = self.roles.deadline, 0
        for k in self.unbegun:
            due = deadline[k]
            if due != NEVER and due - self.at > self.limits.distance:
                continue
            looked += 1
            if looked > LOOKED_AT:
                return False
            task = self.tasks[k]
            behind = self.channels.get(task.channel, 0.0) - self.now
            parts = self.missing(k)
            if behind > self.limits.backlog * us + sum(self.tasks[p].us for p in parts[:-1]):
                continue
            if self.waits_not(parts) and self.fits(k, parts):
                self.hold(k, parts)
                self.need(k)
                return True
        return False

    def waits_not(self, parts: list[int]) -> bool:
        """Whether placing these holds no stream, and begins no other collective."""
        for p in parts[:-1]:
            task = self.tasks[p]
            if task.kind is TaskKind.COLLECTIVE:
                return False
            if task.kind is TaskKind.WAIT and not self.has_arrived(task.of):
                return False
            if task.kind in (TaskKind.COMPUTE, TaskKind.NOTHING) and p not in self.roles.feeders:
                return False  # the spine keeps its order
        return True

    def has_arrived(self, k: int) -> bool:
        """Whether a collective is over, by a margin."""
        if k < 0:
            return True
        if k not in self.end:
            return False
        slack = self.limits.margin * self.tasks[k].us
        return self.end[k] + slack <= self.now + NEXT_TO_NOTHING_US

    def bytes_of(self, parts: list[int]) -> int:
        """What a collective and its feeders add to what is alive."""
        return sum(self.steps.made[p] for p in parts)

    def fits(self, k: int, parts: list[int]) -> bool:
        """Whether what a collective holds until it is used stays within the limits."""
        limits = self.limits
        if limits.in_flight is not None and self.pending:
            flying = sum(self.tasks[p].message_bytes for p in self.pending)
            if flying + self.tasks[k].message_bytes > limits.in_flight:
                return False
        if limits.budget is None or self.given_profile is None:
            return True
        more = self.bytes_of(parts)
        if self.memory.alive + more > limits.budget:
            return False
        due = self.roles.deadline[k]
        high = min(due, len(self.roles.spine), self.at + limits.distance)
        if due == NEVER:
            high = self.at + 1
        held = self.held_by_reductions()
        profile, extra = self.given_profile, self.extra
        return all(
            profile[j] + extra[j] + held + more <= limits.budget
            for j in range(self.at, min(high, len(profile)))
        )

    def held_by_reductions(self) -> int:
        """Bytes that collectives without a use on the spine hold until they are waited for."""
        total = 0
        for k in self.pending:
            if self.roles.deadline[k] == NEVER:
                total += self.tasks[k].message_bytes
        return total

    def hold(self, k: int, parts: list[int]) -> None:
        """Note what a collective holds at each place before its use."""
        due = self.roles.deadline[k]
        if due != NEVER and due > self.at:
            more = self.bytes_of(parts)
            for j in range(self.at, due):
                self.extra[j] += more

    # -- the spine and what finishes -------------------------------------------------------

    def finish(self, *, arrived_only: bool) -> None:
        """Wait for collectives that the spine does not need, and do what follows their waits."""
        waits = [w for k in self.pending for w in self.roles.waits[k]]
        for w in waits:
            of = self.tasks[w].of
            if self.done[w] or w not in self.roles.finishers:
                continue
            if arrived_only and not self.has_arrived(of):
                continue
            self.need(w)
        self.finish_followers()

    def finish_followers(self) -> None:
        """Run finishers whose waits are over."""
        for k in self.open:
            if all(self.done[s] for s in self.before[k]):
                self.place(k)
        self.open = [k for k in self.open if not self.done[k]]

    def run_spine(self, task: int) -> None:
        """Run a task of the spine; if it would wait, let other work fill the gap first."""
        parts = self.missing(task)
        if not self.is_tight:
            while not self.is_free(parts) and self.fill_gap():
                parts = self.missing(task)
                if not parts:
                    return
            self.make_room(parts)
            parts = self.missing(task)
        self.need(task)

    def is_free(self, parts: list[int]) -> bool:
        """Whether nothing among these has to be waited for."""
        return all(
            self.tasks[p].kind is not TaskKind.WAIT or self._is_over(self.tasks[p].of)
            for p in parts
        )

    def _is_over(self, k: int) -> bool:
        return k < 0 or (k in self.end and self.end[k] <= self.now + NEXT_TO_NOTHING_US)

    def fill_gap(self) -> bool:
        """Place one piece of work that need not wait; whether there was any."""
        before = len(self.order)
        self.finish(arrived_only=True)
        if len(self.order) > before:
            return True
        if self.begin_one(0.0) and len(self.order) > before:
            return True
        budget = self.limits.budget
        for k in self.roles.spine[self.at + 1 : self.at + 1 + FILLERS]:
            if self.done[k] or self.tasks[k].us <= 0:
                continue
            parts = self.missing(k)
            if any(self.tasks[p].kind is TaskKind.COLLECTIVE for p in parts):
                continue
            if not self.is_free(parts):
                continue
            more = self.bytes_of(parts)
            if budget is not None and self.given_profile is not None:
                held = self.held_by_reductions()
                high = self.given_profile[self.at] + self.extra[self.at] + held + more
                if high > budget:
                    continue
            self.need(k)
            return True
        return False

    def make_room(self, parts: list[int]) -> None:
        """Wait for collectives that hold memory if a task does not fit beside them."""
        budget = self.limits.budget
        if budget is None:
            return
        for k in list(self.pending):
            if self.memory.alive + self.bytes_of(parts) <= budget:
                return
            if self.roles.deadline[k] == NEVER:
                for w in self.roles.waits[k]:
                    if not self.done[w]:
                        self.need(w)
                self.finish_followers()
