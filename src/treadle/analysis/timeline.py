"""Which bytes live when, kept up to date while steps move and merge: the core of liveness.

The timeline knows steps and storages, nothing of programs. A step has two phases: first all that it
produces is allocated, then all that it was the last to use is freed::

    step          0        1        2        3
    during       |####    |######  |######  |###         the peak is the highest of these
    after        |####    |######  |###     |#
    x  produced  +========+========+                     used by 1 and 2: freed after 2
    y                     +========+========+            used by 3: freed after 3
    z                                       +=======...  not freeable: lives on

- A freeable storage without users dies where it is produced: it counts in that step only.
- A freeable input (no producer) without users is freed before the first step: it never counts.
- A merged step allocates what its members produce and frees what it uses last. If it drops
  internals, a freeable storage produced and used only inside it needs no memory at all.
- A hand-over lets a storage take the block of one that the producing step is the last to use.
  Declared once, it is effective in exactly those orders in which it can be::

    inp          ========+                               effective: out allocates nothing, the
    out                  ========+                       block of inp is freed when out dies
    step                 ^ last use of inp, produces out

The caller knows the dependences. The timeline refuses only what would make a life run backwards:
a user before the producer (``LifeError``; nothing has changed then).

What an operation costs, for a step with m members that touch k storages: a move, a merge, a trial
or an undo O(m + k) plus a few scans of 32 entries, however far the step goes; `peak` a few such
scans; `before` O(1); `curve`, `order` and `live_during` the whole timeline. The last user of a
storage is sought again only if the last user itself went to the left, over at most 64 users; larger
sets of users are kept in a `Fringe`, amortised O(sqrt(users)) at worst. A hand-over that comes or
goes is passed on down its chain as long as block sizes change.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from treadle.analysis.handovers import HandOvers
from treadle.analysis.hubs import Hubs
from treadle.analysis.lives import (
    Life,
    LifeError,
    Peak,
    StepBytes,
    Storage,
    check_input,
    touches_by_step,
)
from treadle.analysis.sequence import NOWHERE, WeightedSequence

__all__ = ["Life", "LifeError", "Mark", "Peak", "StepBytes", "Storage", "Timeline"]


class Mark(NamedTuple):
    """A state to come back to, valid until something before it is undone or made final."""

    epoch: int
    depth: int
    newest: "_Undo | None"


_Undo = tuple[Callable[..., None], tuple[int, ...]]


class Timeline:
    """The lives of storages over an order of steps that can be changed, tried and undone."""

    __slots__ = (
        "_allocated", "_base", "_drop_internal", "_dropping", "_ends", "_epoch",
        "_freed", "_hubs", "_index", "_leader", "_members", "_pairs", "_sequence",
        "_starts", "_storages", "_touches", "_undo",
    )  # fmt: skip

    def __init__(
        self,
        steps: int | Sequence[int],
        storages: Iterable[Storage],
        *,
        drop_internal: bool = False,
        merged: Iterable[tuple[Sequence[int], bool]] = (),
    ) -> None:
        """Start with steps 0..n-1 in this order (a number: ascending) and these storages.

        ``merged`` are steps that are one from the beginning, at the place of the first, each with
        whether it drops internals.
        """
        order = list(range(steps)) if isinstance(steps, int) else list(steps)
        self._storages = tuple(storages)
        self._drop_internal = drop_internal
        # Storages are known by their place in the input, steps by their id. A merged step is known
        # by its leader; ids point to leaders, and only leaders stand in the sequence.
        self._index = {storage.name: i for i, storage in enumerate(self._storages)}
        check_input(order, self._storages, self._index)
        self._leader = list(range(len(order)))
        self._members: dict[int, list[int]] = {}  # of merged steps, earlier ones first
        self._dropping: set[int] = set()  # leaders of merged steps that drop their internals
        self._undo: list[_Undo] = []
        self._epoch = 0
        for members, drops in merged:
            for member in members:
                self._leader[member] = members[0]
            self._members[members[0]] = list(members)
            if drops:
                self._dropping.add(members[0])

        self._pairs = HandOvers([storage.bytes for storage in self._storages])

        # Charges in the sequence: bytes allocated at the producer, bytes freed at the end.
        self._allocated = [0] * len(self._storages)
        self._freed = [0] * len(self._storages)
        self._ends = [NOWHERE] * len(self._storages)
        self._starts, self._touches = touches_by_step(len(order), self._storages)
        self._base = 0
        self._sequence = self._charge_all(order)

        self._hubs = Hubs(self._storages, self._leader, self._sequence.label)

    def _charge_all(self, order: list[int]) -> WeightedSequence:
        """Find every end and every charge of the first order."""
        leader, count = self._leader, len(order)
        order = [step for step in order if leader[step] == step] if self._members else order
        at = [0] * count
        for k, step in enumerate(order):
            at[step] = k
        place = [at[head] for head in leader]
        rises, falls = [0] * count, [0] * count
        for i, storage in enumerate(self._storages):
            producer, freeable, size = storage.producer, storage.freeable, storage.bytes
            places = [place[user] for user in storage.users]
            if producer is not None:
                if places and min(places) < place[producer]:
                    raise LifeError(storage.name, producer, order[min(places)])
                maker = leader[producer]
                end = order[max(places)] if places else maker
                self._ends[i] = end
                if freeable and end == maker and maker in self._dropping:
                    continue  # it stays inside
                rises[maker] += size
                self._allocated[i] = size
            else:
                end = order[max(places)] if places else NOWHERE
                if places or not freeable:
                    self._base += size
            self._ends[i] = end
            if freeable and end != NOWHERE:
                falls[end] += size
                self._freed[i] = size
        return WeightedSequence(order, rises, falls)

    # -- asking ------------------------------------------------------------------------------

    def peak(self) -> Peak:
        """Return the most bytes live during a step and the first step that reaches them."""
        if not self._leader:
            return Peak(self._base, None)
        height, step = self._sequence.peak()
        return Peak(self._base + height, step)

    def during(self, step: int) -> int:
        """Return the bytes live during a step."""
        return self._base + self._sequence.level(self._leader_of(step))

    def curve(self) -> list[StepBytes]:
        """Return the bytes during and after each step, in order."""
        curve = []
        live = self._base
        for step, rise, fall in self._sequence.weighted():
            during = live + rise
            live = during - fall
            curve.append(StepBytes(step, during, live))
        return curve

    def order(self) -> list[tuple[int, ...]]:
        """Return the members of each step, in order; inside a step, those merged earlier first."""
        return [tuple(self._members_of(step)) for step in self._sequence]

    def position(self, step: int) -> int:
        """Return how many steps stand before this one."""
        return self._sequence.rank(self._leader_of(step))

    def order_key(self, step: int) -> int:
        """Return a number that sorts steps as they stand now."""
        return self._sequence.label[self._leader_of(step)]

    def before(self, a: int, b: int) -> bool:
        """Tell whether one step stands before another; members of one step do not."""
        label = self._sequence.label
        return label[self._leader_of(a)] < label[self._leader_of(b)]

    def follows(self, a: int, b: int) -> bool:
        """Tell whether the second step stands right behind the first."""
        return self._sequence.previous(self._leader_of(b)) == self._leader_of(a)

    def life(self, storage_name: str) -> Life:
        """Return where a storage begins, ends, and whose block it lives in."""
        i = self._index_of(storage_name)
        return self._life(i, self._pairs.root(i))

    def lives(self) -> list[tuple[Storage, Life]]:
        """Return every storage with its life, in the order of the input; chains walked once."""
        roots = self._pairs.roots()
        return [(s, self._life(i, roots.get(i, i))) for i, s in enumerate(self._storages)]

    def _life(self, i: int, root: int) -> Life:
        storage = self._storages[i]
        first = None if storage.producer is None else self._leader[storage.producer]
        if self._ends[i] == NOWHERE:  # an input without users
            kept = not storage.freeable
            size = storage.bytes if kept else 0
            return Life(None, None, size, not kept, storage.name if kept else None)
        last = self._leader[self._ends[i]]
        if self._is_dropped(i):
            return Life(first, last, 0, False, None)
        size = storage.bytes if root == i else 0
        freed = storage.freeable and i not in self._pairs.reused_by
        return Life(first, last, size, freed, self._storages[root].name)

    def live_during(self, step: int) -> list[Storage]:
        """Return the storages whose blocks are counted during a step, in the order of the input.

        A block that was handed over is still that of the storage which allocated it, so the bytes
        returned here always sum up to those of the curve.
        """
        label, leader = self._sequence.label, self._leader
        here = label[self._leader_of(step)]
        live = []
        for i, storage in enumerate(self._storages):
            if i in self._pairs.host or self._is_dropped(i):
                continue
            if storage.producer is not None and label[leader[storage.producer]] > here:
                continue
            holder = i
            while holder in self._pairs.reused_by:
                holder = self._pairs.reused_by[holder]
            if self._storages[holder].freeable:
                end = self._ends[holder]
                if end == NOWHERE or label[leader[end]] < here:
                    continue
            live.append(storage)
        return live

    def effective_hand_overs(self) -> dict[str, str]:
        """Return the hand-overs that hold in the current order, as taker -> giver."""
        name = [storage.name for storage in self._storages] if self._pairs.host else []
        return {name[out]: name[self._pairs.host[out]] for out in sorted(self._pairs.host)}

    # -- changing ----------------------------------------------------------------------------

    def move_before(self, step: int, other: int) -> None:
        """Put a step right before another one."""
        step, other = self._two_steps(step, other)
        self._check_lives(step, 2 * self._sequence.label[other] - 1)
        self._move_behind(step, self._sequence.previous(other))

    def move_after(self, step: int, other: int) -> None:
        """Put a step right after another one."""
        step, other = self._two_steps(step, other)
        self._check_lives(step, 2 * self._sequence.label[other] + 1)
        self._move_behind(step, other)

    def merge(self, a: int, b: int, at: int, *, drop_internal: bool | None = None) -> int:
        """Make two steps one that stands at the place of ``at``, and return its id.

        The merged step answers to every member's id and is reported under that of ``at``.
        ``drop_internal`` overrides what the constructor was told, for this merged step.
        """
        a, b = self._two_steps(a, b)
        stay = self._leader_of(at)
        if stay not in (a, b):
            raise ValueError(f"step {at} is neither of the steps to merge, {a} and {b}")
        gone = b if stay == a else a
        label = self._sequence.label
        self._check_lives(gone, 2 * label[stay])
        in_front = label[gone] < label[stay]
        moving = list(self._members_of(gone))
        undo = (gone, stay, self._sequence.previous(gone), len(moving), in_front)
        self._undo.append((Timeline._split, (*undo, stay in self._dropping)))
        touched = self._detach(moving)
        weight = self._sequence.remove(gone)
        assert weight == (0, 0), f"step {gone} weighs {weight} without the storages it touches"
        self._members.pop(gone, None)
        cell = self._members.setdefault(stay, [stay])
        place = 0 if in_front else len(cell)
        cell[place:place] = moving
        for member in moving:
            self._leader[member] = stay
        drops = self._drop_internal if drop_internal is None else drop_internal
        self._attach(moving, touched, stay, drops)
        return stay

    def hand_over(self, out: str, inp: str, among: Iterable[int] | None = None) -> None:
        """Declare that storage ``out`` may take over the block of ``inp`` where the order allows.

        It is effective when ``inp`` is freeable and last used by the step that produces ``out``,
        ``out`` fits into ``inp``, neither is dropped, and the step has no member that uses ``inp``
        but is not ``among`` those named. A storage gives and takes at most once.
        """
        self.hand_over_all([(out, inp, among)])

    def hand_over_all(self, pairs: Iterable[tuple[str, str, Iterable[int] | None]]) -> None:
        """Declare several hand-overs, each as `hand_over` does: (out, inp, among)."""
        self._settle([self._declared(*pair) for pair in pairs])

    def _declared(self, out: str, inp: str, among: Iterable[int] | None) -> int:
        taker, giver = self._index_of(out), self._index_of(inp)
        if taker in self._pairs.giver:
            known = self._storages[self._pairs.giver[taker]].name
            raise ValueError(f"storage {out!r} already takes over {known!r}, not also {inp!r}")
        if giver in self._pairs.taker:
            known = self._storages[self._pairs.taker[giver]].name
            raise ValueError(f"storage {inp!r} is already handed to {known!r}, not also {out!r}")
        if self._pairs.would_close_a_circle(taker, giver):
            raise ValueError(f"handing {inp!r} to {out!r} would close a circle of hand-overs")
        self._pairs.giver[taker] = giver
        self._pairs.taker[giver] = taker
        if among is not None:
            self._pairs.among[taker] = frozenset(among)
        self._undo.append((Timeline._withdraw, (taker, giver)))
        return taker

    # -- trying ------------------------------------------------------------------------------

    def checkpoint(self) -> Mark:
        """Return a mark of the current state; marks nest."""
        return Mark(self._epoch, len(self._undo), self._undo[-1] if self._undo else None)

    def rollback(self, mark: Mark) -> None:
        """Undo every move, merge and hand-over since the mark, at the cost of doing them again."""
        undo, depth = self._undo, mark.depth
        current = mark.epoch == self._epoch and depth <= len(undo)
        if not current or (depth and undo[depth - 1] is not mark.newest):
            raise ValueError("the mark is stale: what came before it was undone or made final")
        while len(undo) > depth:
            revert, arguments = undo.pop()
            revert(self, *arguments)

    def commit(self) -> None:
        """Make all changes so far final: what would undo them is dropped, older marks go stale."""
        self._epoch += 1
        self._undo.clear()

    def peak_if_moved_before(self, step: int, other: int) -> Peak:
        """Return the peak there would be after `move_before`."""
        mark = self.checkpoint()
        self.move_before(step, other)
        peak = self.peak()
        self.rollback(mark)
        return peak

    def peak_if_merged(self, a: int, b: int, at: int, *, drop_internal: bool | None = None) -> Peak:
        """Return the peak there would be after `merge`."""
        mark = self.checkpoint()
        self.merge(a, b, at, drop_internal=drop_internal)
        peak = self.peak()
        self.rollback(mark)
        return peak

    # -- names -------------------------------------------------------------------------------

    def _leader_of(self, step: int) -> int:
        if not 0 <= step < len(self._leader):
            raise ValueError(f"there is no step {step}; steps are 0 to {len(self._leader) - 1}")
        return self._leader[step]

    def _two_steps(self, a: int, b: int) -> tuple[int, int]:
        first, second = self._leader_of(a), self._leader_of(b)
        if first == second:
            raise ValueError(f"{a} and {b} are the same step; expected two different ones")
        return first, second

    def _index_of(self, storage_name: str) -> int:
        try:
            return self._index[storage_name]
        except KeyError:
            raise KeyError(f"no storage is named {storage_name!r}") from None

    def _members_of(self, step: int) -> Sequence[int]:
        return self._members.get(step) or (step,)

    def _touched(self, member: int) -> list[int]:
        """Return the storages that a step, as it was before any merge, produces or uses."""
        return self._touches[self._starts[member] : self._starts[member + 1]]

    def _touched_by(self, members: Sequence[int]) -> list[int]:
        """Return the storages that these steps produce or use, each once."""
        if len(members) == 1:
            return self._touched(members[0])
        return list(dict.fromkeys(chain.from_iterable(map(self._touched, members))))

    # -- moving ------------------------------------------------------------------------------

    def _check_lives(self, step: int, place: int) -> None:
        """Refuse a place for a step (twice a label, odd between two) that breaks a life."""
        leader, label = self._leader, self._sequence.label
        leftward = place < 2 * label[step]
        for member in self._members_of(step):
            for i in self._touched(member):
                producer = self._storages[i].producer
                if producer is None:
                    continue
                if leftward:
                    maker = leader[producer]
                    if maker != step and 2 * label[maker] > place:
                        raise LifeError(self._storages[i].name, producer, member)
                elif member == producer:
                    self._check_users_stay_behind(i, step, place)

    def _check_users_stay_behind(self, i: int, step: int, place: int) -> None:
        """Refuse a place for the producing step beyond any user that does not move along."""
        leader, label = self._leader, self._sequence.label
        storage = self._storages[i]
        assert storage.producer is not None, "an input has no producer to move"
        users: Iterable[int] = storage.users
        if i in self._hubs.firsts:
            # The first user that stays decides. Only a step that has swallowed the whole fringe of
            # a hub makes us look at all of its users.
            staying = (user for user in self._hubs.firsts[i].inwards() if leader[user] != step)
            first = next(staying, None)
            users = users if first is None else (first,)
        for user in users:
            if 2 * label[leader[user]] < place and leader[user] != step:
                raise LifeError(storage.name, storage.producer, user)

    def _move_behind(self, step: int, anchor: int) -> None:
        """Move a step behind an anchor, and remember where it stood."""
        stood_behind = self._sequence.previous(step)
        if anchor not in (step, stood_behind):
            self._undo.append((Timeline._seat, (step, stood_behind)))
            self._seat(step, anchor)

    def _seat(self, step: int, anchor: int) -> None:
        """Put a step right behind an anchor and shift the ends that this changes."""
        leader, label, ends = self._leader, self._sequence.label, self._ends
        leftward = anchor == NOWHERE or label[anchor] < label[step]
        members = self._members_of(step)
        self._hubs.leave(members)
        self._sequence.move_after(step, anchor)
        self._hubs.join(members)
        shifted = []
        for i in self._touched_by(members):
            end = leader[ends[i]]
            if end == step:
                new_end = self._find_end(i) if leftward else step
            else:
                new_end = step if label[step] > label[end] else end
            if new_end != end:
                self._shift_end(i, new_end)
                shifted.append(i)
        if shifted:
            self._settle(shifted)

    def _find_end(self, i: int) -> int:
        """Return the step at which a touched storage dies: its last user, or else its producer."""
        leader = self._leader
        if i in self._hubs.lasts:
            return leader[self._hubs.lasts[i].farthest()]
        users = self._storages[i].users
        if users:
            return max(map(leader.__getitem__, users), key=self._sequence.label.__getitem__)
        producer = self._storages[i].producer
        assert producer is not None, "an input without users is touched by no step"
        return leader[producer]

    def _shift_end(self, i: int, end: int) -> None:
        """Let a storage die elsewhere, and take what it frees along."""
        freed = self._freed[i]
        if freed:
            self._sequence.add(self._leader[self._ends[i]], 0, -freed)
            self._sequence.add(end, 0, freed)
        self._ends[i] = end

    # -- merging -----------------------------------------------------------------------------

    def _detach(self, members: Sequence[int]) -> Sequence[int]:
        """Take the weight of all that these steps touch out of the sequence; return what it is."""
        self._hubs.leave(members)
        touched = self._touched_by(members)
        for i in touched:
            self._charge(i, 0, 0)
        return touched

    def _attach(
        self, members: Sequence[int], touched: Sequence[int], stay: int, drops: bool
    ) -> None:
        """Weigh again what `_detach` took out, now that these steps stand elsewhere."""
        self._hubs.join(members)
        for i in touched:
            self._ends[i] = self._find_end(i)
        if drops != (stay in self._dropping):
            self._dropping ^= {stay}
            touched = [*touched, *self._touched_by(self._members_of(stay))]
        self._settle(touched)

    def _split(
        self, gone: int, stay: int, anchor: int, count: int, in_front: bool, drops: bool
    ) -> None:
        """Undo a merge: give ``gone`` its members and its place behind ``anchor`` back."""
        cell = self._members[stay]
        taken = slice(0, count) if in_front else slice(len(cell) - count, None)
        moving = cell[taken]
        touched = self._detach(moving)
        del cell[taken]
        if len(cell) == 1:
            del self._members[stay]
        if count > 1:
            self._members[gone] = moving
        for member in moving:
            self._leader[member] = gone
        self._sequence.insert_after(gone, anchor, 0, 0)
        self._attach(moving, touched, stay, drops)

    # -- weighing ----------------------------------------------------------------------------

    def _settle(self, touched: Iterable[int]) -> None:
        """Make hand-overs and charges right again for storages of which the ends are right."""
        if self._pairs.giver:
            touched = self._settle_hand_overs(touched)
        for i in touched:
            allocated, freed = self._needs(i)
            self._charge(i, allocated, freed)

    def _charge(self, i: int, allocated: int, freed: int) -> None:
        """Let the sequence count these bytes for a storage."""
        if allocated != self._allocated[i]:
            producer = self._storages[i].producer
            assert producer is not None, "an input is in the base and allocated by no step"
            self._sequence.add(self._leader[producer], allocated - self._allocated[i], 0)
            self._allocated[i] = allocated
        if freed != self._freed[i]:
            self._sequence.add(self._leader[self._ends[i]], 0, freed - self._freed[i])
            self._freed[i] = freed

    def _needs(self, i: int) -> tuple[int, int]:
        """Return what a storage allocates at its producer and frees at its end."""
        if self._is_dropped(i):
            return 0, 0
        storage = self._storages[i]
        allocated = 0 if storage.producer is None or i in self._pairs.host else storage.bytes
        ends_here = storage.freeable and i not in self._pairs.reused_by and self._ends[i] != NOWHERE
        return allocated, self._pairs.block_bytes(i) if ends_here else 0

    def _is_dropped(self, i: int) -> bool:
        """Tell whether a storage stays inside one merged step that drops its internals."""
        if not self._dropping:
            return False
        storage = self._storages[i]
        if storage.producer is None or not storage.freeable:
            return False
        # No user comes before the producer, so if the last one is inside, all are.
        maker = self._leader[storage.producer]
        return maker in self._dropping and self._leader[self._ends[i]] == maker

    # -- hand-overs --------------------------------------------------------------------------

    def _may_take(self, out: int, inp: int) -> bool:
        """Tell whether a declared hand-over is effective in the current order."""
        taker, giver = self._storages[out], self._storages[inp]
        if taker.producer is None or not giver.freeable or not giver.users:
            return False
        return (
            taker.bytes <= giver.bytes
            and self._leader[self._ends[inp]] == self._leader[taker.producer]
            and not self._is_dropped(inp)
            and not self._is_dropped(out)
            and not self._is_used_by_others(out, inp, self._leader[taker.producer])
        )

    def _is_used_by_others(self, out: int, inp: int, step: int) -> bool:
        """Tell whether a merged step has members that use ``inp`` and may not share its block."""
        among = self._pairs.among.get(out, frozenset(self._members_of(step)))
        return any(inp in self._touched(m) for m in self._members_of(step) if m not in among)

    def _settle_hand_overs(self, touched: Iterable[int]) -> Iterable[int]:
        """Re-decide every pair with one of these storages; return what is to be charged again."""
        changed = dict.fromkeys(touched)
        for i in list(changed):
            for out in (i, self._pairs.taker.get(i)):
                inp = None if out is None else self._pairs.giver.get(out)
                if out is None or inp is None:
                    continue
                effective = self._may_take(out, inp)
                if effective != (out in self._pairs.host):
                    self._pairs.switch(out, inp, effective, changed)
        return changed

    def _withdraw(self, out: int, inp: int) -> None:
        """Undo a declared hand-over."""
        changed: dict[int, None] = {}
        if out in self._pairs.host:
            self._pairs.switch(out, inp, False, changed)
        del self._pairs.giver[out]
        del self._pairs.taker[inp]
        self._pairs.among.pop(out, None)
        self._settle(changed)
