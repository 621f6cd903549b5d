"""The timeline equals a replay from scratch after every operation, whatever was done and undone.

Two replays, which share no code with the timeline: `Replay` recomputes every life, hand-over and
byte count from the definitions, by scans; `Memory` runs the steps over blocks that are poisoned
when they are freed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from random import Random
from unittest.mock import patch

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.analysis import hubs, sequence
from treadle.analysis.timeline import Life, LifeError, Mark, Peak, Storage, Timeline

POISON = "freed"


@dataclass(frozen=True)
class Step:
    """A step of the replay: its members, the id it goes by, and whether it drops internals."""

    members: tuple[int, ...]
    name: int
    drops: bool = False


@dataclass(frozen=True)
class Replay:
    """One state as plain data; every answer is worked out anew, every operation gives a new one."""

    storages: list[Storage]
    steps: tuple[Step, ...]
    pairs: tuple[tuple[str, str], ...] = ()

    @cached_property
    def places(self) -> dict[int, int]:
        return {m: at for at, step in enumerate(self.steps) for m in step.members}

    def place(self, step: int) -> int:
        return self.places[step]

    def broken_life(self) -> Storage | None:
        for storage in self.storages:
            if storage.producer is not None:
                born = self.place(storage.producer)
                if any(self.place(user) < born for user in storage.users):
                    return storage
        return None

    def span(self, storage: Storage) -> tuple[int, int] | None:
        """The places of birth (-1: an input) and death, or None if it never exists."""
        born = -1 if storage.producer is None else self.place(storage.producer)
        if storage.users:
            return born, max(self.place(user) for user in storage.users)
        return None if born == -1 else (born, born)

    def dropped(self, storage: Storage) -> bool:
        if storage.producer is None or not storage.freeable:
            return False
        home = self.steps[self.place(storage.producer)]
        inside = all(user in home.members for user in storage.users)
        return home.drops and len(home.members) > 1 and inside

    @cached_property
    def effective(self) -> dict[str, str]:
        known = {storage.name: storage for storage in self.storages}
        found = {}
        for out_name, inp_name in self.pairs:
            out, inp = known[out_name], known[inp_name]
            if out.producer is None or not inp.users or not inp.freeable:
                continue
            last = max(self.place(user) for user in inp.users)
            meets = last == self.place(out.producer) and out.bytes <= inp.bytes
            if meets and not self.dropped(out) and not self.dropped(inp):
                found[out_name] = inp_name
        return found

    @cached_property
    def blocks(self) -> list[tuple[Storage, list[Storage]]]:
        """Every block that needs memory: who allocates it, and all who live in it, in turn."""
        known = {storage.name: storage for storage in self.storages}
        reused_by = {known[inp].name: known[out] for out, inp in self.effective.items()}
        takers = set(self.effective)
        found = []
        for storage in self.storages:
            unused = storage.producer is None and not storage.users and storage.freeable
            if storage.name in takers or self.dropped(storage) or unused:
                continue
            holders = [storage]
            while holders[-1].name in reused_by:
                holders.append(reused_by[holders[-1].name])
            found.append((storage, holders))
        return found

    def block_span(self, holders: list[Storage]) -> tuple[int, int]:
        """First and last place at which a block is counted; past the end if it is never freed."""
        born = -1 if holders[0].producer is None else self.place(holders[0].producer)
        if not holders[-1].freeable:
            return born, len(self.steps)
        span = self.span(holders[-1])
        assert span is not None
        return born, span[1]

    def live(self, at: int) -> list[Storage]:
        spans = [(owner, self.block_span(holders)) for owner, holders in self.blocks]
        return [owner for owner, (born, dies) in spans if born <= at <= dies]

    def curve(self) -> list[tuple[int, int, int]]:
        spans = [(owner.bytes, *self.block_span(holders)) for owner, holders in self.blocks]
        curve = []
        for at, step in enumerate(self.steps):
            during = sum(size for size, born, dies in spans if born <= at <= dies)
            after = sum(size for size, born, dies in spans if born <= at < dies)
            curve.append((step.name, during, after))
        return curve

    def peak(self) -> Peak:
        if not self.steps:
            return Peak(sum(owner.bytes for owner, _ in self.blocks), None)
        bytes_, at = max((during, -at) for at, (_, during, _) in enumerate(self.curve()))
        return Peak(bytes_, self.steps[-at].name)

    def life(self, storage: Storage) -> Life:
        span = self.span(storage)
        if span is None:
            kept = not storage.freeable
            host = storage.name if kept else None
            return Life(None, None, storage.bytes if kept else 0, not kept, host)
        first = None if span[0] == -1 else self.steps[span[0]].name
        last = self.steps[span[1]].name
        if self.dropped(storage):
            return Life(first, last, 0, False, None)
        owner, holders = next(block for block in self.blocks if storage in block[1])
        freed = storage.freeable and storage is holders[-1]
        return Life(first, last, storage.bytes if owner is storage else 0, freed, owner.name)

    # -- operations; they return a new state, or None where a life would break ---------------

    def moved(self, step: int, other: int, behind: bool) -> "Replay | None":
        mover, target = self.steps[self.place(step)], self.steps[self.place(other)]
        rest = [each for each in self.steps if each is not mover]
        rest.insert(rest.index(target) + behind, mover)
        return self.unless_broken(rest)

    def merged(self, a: int, b: int, at: int, drops: bool) -> "Replay | None":
        early, late = sorted((self.place(a), self.place(b)))
        stay = self.place(at)
        steps = list(self.steps)
        members = steps[early].members + steps[late].members
        steps[stay] = Step(members, steps[stay].name, drops)
        del steps[early + late - stay]
        return self.unless_broken(steps)

    def unless_broken(self, steps: list[Step]) -> "Replay | None":
        new = Replay(self.storages, tuple(steps), self.pairs)
        return None if new.broken_life() else new


class Memory:
    """Blocks that hold the name of their tenant, or poison once freed; steps run over them."""

    def __init__(self, storages: list[Storage], tl: Timeline) -> None:
        self.storages = storages
        self.sizes = {storage.name: storage.bytes for storage in storages}
        self.lives = {storage.name: tl.life(storage.name) for storage in storages}
        self.takes = tl.effective_hand_overs()
        self.blocks: dict[str, str] = {}

    def run(self, tl: Timeline) -> None:
        """Follow what the timeline says; every touch must find its storage in a live block."""
        for storage in self.storages:
            if storage.producer is None and self.lives[storage.name].host is not None:
                self.blocks[storage.name] = storage.name
        for cell, (name, during, after) in zip(tl.order(), tl.curve(), strict=True):
            self.check_touches([s for s in self.storages if s.producer not in cell], cell)
            born = [s for s in self.storages if s.producer in cell]
            self.allocate(born)
            assert self.live_bytes() == during
            self.hand_over([s.name for s in born if s.name in self.takes])
            self.free(name)
            assert self.live_bytes() == after
        for storage in self.storages:
            if not storage.freeable:
                assert self.holder_of_block_of(storage) == storage.name

    def live_bytes(self) -> int:
        return sum(self.sizes[owner] for owner, state in self.blocks.items() if state != POISON)

    def holder_of_block_of(self, storage: Storage) -> str:
        host = self.lives[storage.name].host
        assert host is not None, f"{storage.name} needs memory and has none"
        return self.blocks[host]

    def check_touches(self, old: list[Storage], cell: tuple[int, ...]) -> None:
        for storage in old:
            if any(user in cell for user in storage.users):
                assert self.holder_of_block_of(storage) == storage.name

    def allocate(self, born: list[Storage]) -> None:
        for storage in born:
            if self.lives[storage.name].host == storage.name:
                assert storage.name not in self.blocks, f"{storage.name} is allocated twice"
                self.blocks[storage.name] = storage.name

    def hand_over(self, takers: list[str]) -> None:
        """Let each taker move in after its giver; in a merged step several may do so in turn."""
        while takers:
            ready = next(t for t in takers if self.takes[t] in self.blocks.values())
            host = self.lives[ready].host
            assert host is not None
            assert self.blocks[host] == self.takes[ready], f"{ready} takes a block in use"
            self.blocks[host] = ready
            takers.remove(ready)

    def free(self, step: int) -> None:
        for storage in self.storages:
            life = self.lives[storage.name]
            if life.freed and life.last == step:
                assert self.holder_of_block_of(storage) == storage.name
                self.blocks[str(life.host)] = POISON


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[int], list[Storage]]:
    """An order of up to twelve steps, and storages that are legal in it."""
    count = draw(st.integers(0, 12))
    order = draw(st.permutations(range(count)))
    storages = []
    for number in range(draw(st.integers(0, 10))):
        birth = draw(st.integers(-1, count - 1))
        later = st.sampled_from(order[max(birth, 0) :]) if count else st.nothing()
        users = draw(st.lists(later, max_size=4)) if count else []
        storages.append(
            Storage(
                f"s{number}",
                draw(st.sampled_from((0, 1, 2, 2, 3, 5, 8, 1 << 40))),
                None if birth == -1 else order[birth],
                tuple(users),
                draw(st.sampled_from((True, True, True, False))),
            )
        )
    return order, storages


def check(tl: Timeline, replay: Replay) -> None:
    assert tl.order() == [step.members for step in replay.steps]
    assert tl.curve() == replay.curve()
    assert tl.peak() == replay.peak()
    assert tl.effective_hand_overs() == replay.effective
    for storage in replay.storages:
        assert tl.life(storage.name) == replay.life(storage)
    for at, step in enumerate(replay.steps):
        live = replay.live(at)
        for member in step.members:
            assert tl.position(member) == at
            assert tl.live_during(member) == live
        if at:
            earlier = replay.steps[at - 1].members[0]
            assert tl.before(earlier, step.members[-1])
            assert not tl.before(step.members[-1], earlier)
    Memory(replay.storages, tl).run(tl)


class Session:
    """Draws operations, does them in both worlds, and compares."""

    def __init__(self, data: st.DataObject, order: list[int], storages: list[Storage]) -> None:
        self.data = data
        self.drops = data.draw(st.booleans(), label="drop_internal")
        self.tl = Timeline(order, storages, drop_internal=self.drops)
        self.replay = Replay(storages, tuple(Step((step,), step) for step in order))
        self.marks: list[tuple[Mark, Replay]] = []
        check(self.tl, self.replay)

    def act(self) -> None:
        acts = [self.mark, self.roll_back, self.hand_over]
        if len(self.replay.steps) > 1:
            acts += [self.move, self.merge, self.try_move, self.try_merge] * 2
        act = self.data.draw(st.sampled_from(acts), label="act")
        act()
        check(self.tl, self.replay)

    def two_steps(self) -> tuple[int, int]:
        count = len(self.replay.steps)
        first = self.data.draw(st.integers(0, count - 1))
        second = (first + self.data.draw(st.integers(1, count - 1))) % count
        a, b = (self.replay.steps[at].members for at in (first, second))
        return self.data.draw(st.sampled_from(a)), self.data.draw(st.sampled_from(b))

    def move(self) -> None:
        step, other = self.two_steps()
        behind = self.data.draw(st.booleans(), label="behind")
        move = self.tl.move_after if behind else self.tl.move_before
        self.do(self.replay.moved(step, other, behind), lambda: move(step, other))

    def merge(self) -> None:
        a, b = self.two_steps()
        at = self.data.draw(st.sampled_from((a, b)), label="at")
        drops = self.data.draw(st.sampled_from((None, None, True, False)), label="drops")
        wanted = self.replay.merged(a, b, at, self.drops if drops is None else drops)
        name = self.replay.steps[self.replay.place(at)].name
        got = self.do(wanted, lambda: self.tl.merge(a, b, at, drop_internal=drops))
        assert got in (None, name)

    def do(self, wanted: Replay | None, act: Callable[[], int | None]) -> int | None:
        if wanted is not None:
            self.replay = wanted
            return act()
        with pytest.raises(LifeError) as refusal:
            act()
        error = refusal.value
        storage = next(s for s in self.replay.storages if s.name == error.storage)
        assert storage.producer == error.producer
        assert error.user in storage.users
        return None

    def try_move(self) -> None:
        step, other = self.two_steps()
        wanted = self.replay.moved(step, other, False)
        self.compare_trial(wanted, lambda: self.tl.peak_if_moved_before(step, other))

    def try_merge(self) -> None:
        a, b = self.two_steps()
        wanted = self.replay.merged(a, b, b, self.drops)
        self.compare_trial(wanted, lambda: self.tl.peak_if_merged(a, b, b))

    @staticmethod
    def compare_trial(wanted: Replay | None, act: Callable[[], Peak]) -> None:
        if wanted is not None:
            assert act() == wanted.peak()
        else:
            with pytest.raises(LifeError):
                act()

    def hand_over(self) -> None:
        names = [storage.name for storage in self.replay.storages]
        if not names:
            return
        out, inp = self.data.draw(st.sampled_from(names)), self.data.draw(st.sampled_from(names))
        if self.is_refused(out, inp):
            with pytest.raises(ValueError):
                self.tl.hand_over(out, inp)
        else:
            self.tl.hand_over(out, inp)
            self.replay = replace(self.replay, pairs=(*self.replay.pairs, (out, inp)))

    def is_refused(self, out: str, inp: str) -> bool:
        givers = dict(self.replay.pairs)
        root: str | None = inp
        while root is not None and root != out:
            root = givers.get(root)
        return root == out or out in givers or inp in givers.values()

    def mark(self) -> None:
        self.marks.append((self.tl.checkpoint(), self.replay))

    def roll_back(self) -> None:
        if self.marks:
            keep = self.data.draw(st.integers(0, len(self.marks) - 1), label="mark")
            mark, self.replay = self.marks[keep]
            del self.marks[keep:]
            self.tl.rollback(mark)


@contextmanager
def narrow_structures() -> Iterator[None]:
    """Make blocks, label gaps, hubs and fringes tiny, so that small programs reach every path."""
    narrow = patch.multiple(sequence, _CAPACITY=4, _FILL=3, _GAP=2, _NARROW=2, _ROOTS=1)
    with narrow, patch.object(hubs, "_MANY", 1):
        yield


@settings(deadline=None, max_examples=examples(80))
@given(st.data())
def test_every_operation_equals_a_replay_from_scratch(data: st.DataObject) -> None:
    session = Session(data, *data.draw(programs(), label="program"))
    for _ in range(data.draw(st.integers(0, 15), label="acts")):
        session.act()


@settings(deadline=None, max_examples=examples(80))
@given(st.data())
def test_narrow_blocks_labels_and_hubs_change_nothing(data: st.DataObject) -> None:
    with narrow_structures():
        session = Session(data, *data.draw(programs(), label="program"))
        for _ in range(data.draw(st.integers(0, 15), label="acts")):
            session.act()


@settings(deadline=None, max_examples=examples(8))
@given(st.integers(0, 1 << 32))
def test_a_hundred_moves_around_hubs_equal_a_replay_from_scratch(seed: int) -> None:
    """Long runs with hubs of many users, which leave and join the kept fringe many times."""
    random = Random(seed)
    count = 60
    storages = [
        Storage("produced hub", 5, 0, tuple(random.sample(range(1, count), 50))),
        Storage("given hub", 7, None, tuple(random.sample(range(1, count), 40))),
        Storage("late hub", 9, 5, tuple(random.sample(range(6, count), 30))),
    ]
    storages += [Storage(f"s{i}", i, i, (min(i + 7, count - 1),)) for i in range(0, count, 3)]
    with narrow_structures():
        tl = Timeline(count, storages)
        replay = Replay(storages, tuple(Step((step,), step) for step in range(count)))
        start = tl.checkpoint(), replay
        for turn in range(100):
            # Mostly one way, so that fringes run empty and one place gets crowded.
            step, other = random.randrange(count), random.choice((5, 6, 6, random.randrange(count)))
            if replay.place(step) == replay.place(other):
                continue
            if turn % 10 == 9:
                wanted = replay.merged(step, other, other, False)
                act: Callable[..., object] = partial(tl.merge, step, other, other)
            else:
                wanted = replay.moved(step, other, behind=turn % 2 == 1)
                act = partial(tl.move_after if turn % 2 else tl.move_before, step, other)
            if wanted is None:
                with pytest.raises(LifeError):
                    act()
            else:
                act()
                replay = wanted
            assert tl.curve() == replay.curve()
            assert tl.peak() == replay.peak()
        check(tl, replay)
        tl.rollback(start[0])
        check(tl, start[1])
