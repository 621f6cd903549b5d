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

from collections.abc import Callable, Sequence
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
    prefetch: int | None = None
    """Kernels that may run between the start of a collective and its wait; None: any."""
    distance: int = 256
    """Tasks of the spine that a collective may begin ahead of its first use."""
    depth: int = 2
    """Collectives that may stand in line on a channel; more if the next task is longer than they
    are together."""
    waits_if_crowded: bool = False
    """What is ready to be reduced and does not fit is waited for at once instead of put off."""
    exact: bool = False
    """A small program gets the order that is proved to be the best, if that fits."""
    margin: float = 0.0
    """A collective is taken as arrived this share of its time after it should have."""


class AliveBytes:
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
    limits = Limits(distance=0)
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
        self.memory = AliveBytes(steps)
        self.steps = steps
        self.order: list[int] = []
        self.done = [False] * len(self.tasks)
        self.now = 0.0
        self.channels: dict[str, float] = {}
        self.end: dict[int, float] = {}
        """When each collective that was begun ends."""
        self.pending: dict[int, int] = {}
        """Collectives that were begun and not waited for, and how many kernels ran before."""
        self.ran = 0
        """Kernels placed so far."""
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
        self.waited = False
        """Whether a wait was placed since finishers were looked for."""
        self.lacks = {k: len(row) for k, row in roles.needs.items()}
        """How many tasks each collective still needs, feeders and waits left out."""
        self.needed_by: dict[int, list[int]] = {}
        for k, row in roles.needs.items():
            for source in row:
                self.needed_by.setdefault(source, []).append(k)

    def make(self) -> list[int]:
        """Place every task."""
        seen = 0
        for at, task in enumerate(self.roles.spine):
            self.at = at
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
        if task.kind is TaskKind.COMPUTE:
            self.land_old_ones()
            self.ran += 1
        self.done[k] = True
        self.order.append(k)
        for other in self.needed_by.get(k, ()):
            self.lacks[other] -= 1
        self.levels.append(self.memory.run(k))
        if task.kind is TaskKind.COLLECTIVE:
            self.now += task.launch_us
            begin = max(self.now, self.channels.get(task.channel, 0.0))
            self.end[k] = self.channels[task.channel] = begin + task.us
            self.pending[k] = self.ran
        elif task.kind is TaskKind.WAIT:
            self.waited = True
            if task.of >= 0:
                self.now = max(self.now, self.end[task.of])
                self.pending.pop(task.of, None)
        else:
            self.now += task.us

    def missing(self, k: int, may: Callable[[int], bool] | None = None) -> list[int] | None:
        """All that must be placed before a task can be, and the task, in order.

        None if there is something among it that `may` not be placed now.
        """
        found: dict[int, None] = {}
        stack = [(k, False)]
        while stack:
            one, is_ready = stack.pop()
            if is_ready:
                found[one] = None
            elif not self.done[one] and one not in found:
                if may is not None and one != k and not may(one):
                    return None
                stack.append((one, True))
                sources = [s for s in self.before[one] if not self.done[s]]
                stack.extend((s, False) for s in sorted(sources, reverse=True))
        return list(found)

    def need(self, k: int) -> None:
        """Place a task with all that it must follow."""
        for one in self.missing(k) or ():
            if self.done[one]:
                continue  # it came along with another
            if self.tasks[one].kind is TaskKind.COLLECTIVE:
                self.land_some(one)
            self.place(one)
            if self.tasks[one].kind is TaskKind.COLLECTIVE:
                self.unbegun.remove(one)

    def land_some(self, k: int) -> None:
        """Wait for collectives, the oldest first, until one more may be under way."""
        most = self.limits.in_flight
        while most is not None and self.pending:
            flying = sum(self.tasks[p].message_bytes for p in self.pending)
            if flying + self.tasks[k].message_bytes <= most:
                return
            oldest = next(iter(self.pending))
            waits = [w for w in self.roles.waits[oldest] if not self.done[w]]
            if not waits:
                return
            for w in waits:
                self.place(w)

    def land_old_ones(self) -> None:
        """Wait for what was begun as many kernels ago as may run meanwhile."""
        most = self.limits.prefetch
        if most is None:
            return
        old = [k for k, ran in self.pending.items() if self.ran - ran >= most]
        for w in [w for k in old for w in self.roles.waits[k]]:
            if not self.done[w] and all(self.done[s] for s in self.before[w]):
                self.place(w)

    # -- collectives -----------------------------------------------------------------------

    def begin_what_can(self, next_task: int) -> None:
        """Begin collectives until their channels are busy for longer than the next task."""
        if self.is_tight:
            first_use, lacks = self.roles.first_use, self.lacks
            for k in [k for k in self.unbegun if first_use[k] == NEVER]:
                if (
                    not lacks[k]
                    and not self.done[k]
                    and self.missing(k, self.may_come_along) is not None
                ):
                    self.need(k)
                    self.finish(arrived_only=False)
            return
        while self.begin_one(self.tasks[next_task].us):
            pass
        self.begin_crowded()

    def begin_one(self, us: float) -> bool:
        """Begin the collective that is needed soonest of those that can; whether there was one."""
        deadline, looked = self.roles.deadline, 0
        for k in self.unbegun:
            due = deadline[k]
            if due != NEVER and due - self.at > self.limits.distance:
                continue
            if self.lacks[k]:
                continue
            looked += 1
            if looked > LOOKED_AT:
                return False
            task = self.tasks[k]
            parts = self.missing(k, self.may_come_along)
            if parts is None:
                continue
            if not self.has_room(task.channel, us + sum(self.tasks[p].us for p in parts[:-1])):
                continue
            if self.fits(k, parts):
                self.hold(k, parts)
                self.need(k)
                return True
        return False

    def begin_crowded(self) -> None:
        """Run what is ready to be reduced and does not fit beside what is held, and wait for it.

        To put it off would hold what it reads, which is more.
        """
        budget = self.limits.budget
        if budget is None or self.given_profile is None or not self.limits.waits_if_crowded:
            return
        first_use, lacks = self.roles.first_use, self.lacks
        for k in [k for k in self.unbegun if not lacks[k] and first_use[k] == NEVER]:
            parts = None if self.done[k] else self.missing(k, self.may_come_along)
            while parts is not None and not self.fits(k, parts) and self.wait_for_oldest():
                parts = self.missing(k, self.may_come_along)
            if parts is not None and not self.fits(k, parts):
                self.need(k)
                self.wait_for_oldest()

    def wait_for_oldest(self) -> bool:
        """Wait for the first collective under way that the spine does not use; whether there is."""
        for k in self.pending:
            if self.roles.first_use[k] == NEVER and self.roles.waits[k]:
                for w in self.roles.waits[k]:
                    if not self.done[w]:
                        self.need(w)
                self.finish_followers()
                return True
        return False

    def has_room(self, channel: str, us: float) -> bool:
        """Whether a channel would be idle before so much time is over, or has a short line."""
        if self.channels.get(channel, 0.0) - self.now <= us:
            return True
        line = [k for k in self.pending if self.tasks[k].channel == channel]
        return sum(self.end[k] > self.now for k in line) < self.limits.depth

    def may_come_along(self, p: int) -> bool:
        """Whether a collective may bring this task along: it must hold no stream, begin no other
        collective, and leave the spine in its order."""
        task = self.tasks[p]
        if task.kind is TaskKind.WAIT:
            return self.has_arrived(task.of)
        return p in self.roles.feeders

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
        due = self.roles.first_use[k]
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
            if self.roles.first_use[k] == NEVER:
                total += self.tasks[k].message_bytes
        return total

    def hold(self, k: int, parts: list[int]) -> None:
        """Note what a collective holds at each place before its use."""
        due = self.roles.first_use[k]
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
        if not self.waited:
            return
        self.waited = False
        for k in self.open:
            if all(self.done[s] for s in self.before[k]):
                self.place(k)
        self.open = [k for k in self.open if not self.done[k]]

    def run_spine(self, task: int) -> None:
        """Run a task of the spine; if it would wait, let other work fill the gap first."""
        if not self.is_tight:
            while self.missing(task, self.is_over) is None and self.fill_gap():
                if self.done[task]:
                    return
            self.make_room(self.missing(task) or [])
        self.need(task)

    def is_over(self, p: int) -> bool:
        """Whether a task does not have to be waited for."""
        of = self.tasks[p].of
        if self.tasks[p].kind is not TaskKind.WAIT or of < 0:
            return True
        return of in self.end and self.end[of] <= self.now + NEXT_TO_NOTHING_US

    def may_fill(self, p: int) -> bool:
        """Whether a task may run in a gap for the sake of one that needs it."""
        return self.tasks[p].kind is not TaskKind.COLLECTIVE and self.is_over(p)

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
            parts = self.missing(k, self.may_fill)
            if parts is None:
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
        while self.memory.alive + self.bytes_of(parts) > budget and self.wait_for_oldest():
            pass
