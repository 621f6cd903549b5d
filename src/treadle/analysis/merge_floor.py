"""What a merged step needs at least: a number that refuses most hopeless merges without trying.

A trial changes the timeline, reads the peak and undoes everything. Often one look at the place is
enough: what lives there already, plus what the arriving step brings, less all that could possibly
become internal or move away. If that is too much, the trial would find at least as much.

    arriving from the left      its dying inputs live on until here
    arriving from the right     its outputs are allocated here already
    from both                   what the two hand to each other may become internal; but then the
                                receiver's output can no longer take over that block
"""

from collections.abc import Callable, Sequence

from treadle.analysis.sequence import NOWHERE
from treadle.analysis.timeline import Timeline

_FEW = 8  # users that are looked at; of storages with more, the best is assumed


def merge_floor(
    timeline: Timeline, a: int, b: int, at: int, moved: Sequence[int], *, drops: bool
) -> int:
    """Bytes that the merge of two steps at the place of `at` needs there at least.

    `moved` are the steps that go out of the way first, behind or before that place.
    """
    t = timeline
    stay = t._leader_of(at)
    first, second = t._leader_of(a), t._leader_of(b)
    gone = second if stay == first else first
    level = t.during(stay)
    label = t._sequence.label
    if label[gone] < label[stay]:
        away = {t._leader_of(step) for step in moved}
        level += _from_the_left(t, gone, stay, drops, away)
        level -= _could_take_over(
            t, gone, stay, drops, lambda end: label[gone] < label[end] < label[stay]
        )
        for step in away:
            level -= _leaves_to_the_right(t, step, gone, stay, away)
    else:
        level += _from_the_right(t, gone, stay, drops)
        away = {t._leader_of(step) for step in moved}
        for step in away:
            level -= _leaves_to_the_left(t, step, stay, away)
        if away:
            level -= _could_take_over(t, gone, stay, drops, away.__contains__)
            level -= _could_take_over(t, stay, gone, drops, away.__contains__)
    if drops and stay not in t._dropping:
        level -= _unread(t, stay)
    return level


def _from_the_left(t: Timeline, gone: int, stay: int, drops: bool, away: set[int]) -> int:
    leader, label, ends, reused_by = t._leader, t._sequence.label, t._ends, t._pairs.reused_by
    change = 0
    for i in t._touched_by(t._members_of(gone)):
        if ends[i] == NOWHERE:
            continue
        storage, end = t._storages[i], leader[ends[i]]
        if storage.producer is None or leader[storage.producer] != gone:
            if label[end] < label[stay]:
                change += t._freed[i]
                if i in reused_by and end != gone and end not in away:
                    # Who took the block over on the way can no longer: it is still in use here.
                    change += t._storages[reused_by[i]].bytes
        elif drops and end == stay and _stays_inside(t, i, gone, stay):
            change -= t._allocated[i]
        elif end in away:
            change += t._freed[i]  # it was gone before, now it is made here
        if i in reused_by:
            change += _needs_its_own(t, reused_by[i], stay)
    return change


def _from_the_right(t: Timeline, gone: int, stay: int, drops: bool) -> int:
    leader, ends, reused_by = t._leader, t._ends, t._pairs.reused_by
    there = set(t._touched_by(t._members_of(stay))) if reused_by else set()
    change = 0
    for i in t._touched_by(t._members_of(gone)):
        storage = t._storages[i]
        if i in reused_by and i in there:
            change += _needs_its_own(t, reused_by[i], gone)
        if storage.producer is None:
            continue
        ends_here = drops and storage.freeable and leader[ends[i]] == gone
        maker = leader[storage.producer]
        if maker == gone and not ends_here:
            change += t._allocated[i]
        elif maker == stay and ends_here and _stays_inside(t, i, gone, stay):
            change -= t._allocated[i]
    return change


def _stays_inside(t: Timeline, i: int, gone: int, stay: int) -> bool:
    """Whether a storage that one of the two makes may have no users but them."""
    storage = t._storages[i]
    if not storage.freeable or len(storage.users) > _FEW:
        return storage.freeable
    return all(t._leader[user] in (gone, stay) for user in storage.users)


def _needs_its_own(t: Timeline, out: int, step: int) -> int:
    """Bytes of a taker that this step makes, if it will live on: both now touch its block."""
    storage = t._storages[out]
    if storage.producer is None or t._leader[storage.producer] != step:
        return 0
    return 0 if storage.freeable and t._leader[t._ends[out]] == step else storage.bytes


def _leaves_to_the_right(t: Timeline, step: int, gone: int, stay: int, away: set[int]) -> int:
    """What a step that goes behind `stay` allocates there instead, less what it will free there."""
    leader, label = t._leader, t._sequence.label
    change = 0
    for i in t._touched_by(t._members_of(step)):
        if t._ends[i] == NOWHERE:
            continue
        producer, end = t._storages[i].producer, leader[t._ends[i]]
        maker = None if producer is None else leader[producer]
        if maker == step:
            freed = t._storages[i].freeable and label[end] < label[stay]
            if not freed or i in t._pairs.reused_by:
                change += t._allocated[i]
        elif end == step and maker not in away and i not in t._pairs.host:
            users = t._storages[i].users
            # What the arriving step uses as well was counted with it.
            if len(users) <= _FEW and all(leader[user] != gone for user in users):
                change -= t._freed[i]
    return change


def _leaves_to_the_left(t: Timeline, step: int, stay: int, away: set[int]) -> int:
    """What a step that goes before `stay` frees there instead, less what it makes and leaves."""
    leader, label = t._leader, t._sequence.label
    change = 0
    for i in t._touched_by(t._members_of(step)):
        if t._ends[i] == NOWHERE:
            continue
        producer, end = t._storages[i].producer, leader[t._ends[i]]
        if end == step:
            is_there = producer is None or label[leader[producer]] <= label[stay]
            if is_there or i in t._pairs.host:
                change += t._freed[i]
        if producer is not None and leader[producer] == step:
            lives_on = end not in away or not t._storages[i].freeable
            if lives_on and i not in t._pairs.reused_by:
                change -= t._allocated[i]
    return change


def _could_take_over(
    t: Timeline, step: int, other: int, drops: bool, will_pass: Callable[[int], bool]
) -> int:
    """Outputs that need no memory of their own once the last user of a block stands before them.

    Not so if the other one uses that block as well: the hand-over is for this kernel alone.
    """
    if not t._pairs.giver:
        return 0
    used = set(t._touched_by(t._members_of(other)))
    leader, giver = t._leader, t._pairs.giver
    spared = 0
    for i in t._touched_by(t._members_of(step)):
        producer = t._storages[i].producer
        if producer is None or leader[producer] != step or i not in giver or giver[i] in used:
            continue
        if drops and i in used and _stays_inside(t, i, step, other):
            continue  # it needs no memory anyway
        end = t._ends[giver[i]]
        if end != NOWHERE and will_pass(leader[end]):
            spared += t._allocated[i]
    return spared


def _unread(t: Timeline, step: int) -> int:
    """What a step makes and nobody else looks at; a kernel keeps it in registers."""
    leader = t._leader
    return sum(
        t._allocated[i]
        for i in t._touched_by(t._members_of(step))
        if (s := t._storages[i]).freeable
        and s.producer is not None
        and leader[s.producer] == step == leader[t._ends[i]]
    )
