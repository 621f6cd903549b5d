"""What the timeline is told and what it answers: plain data about steps and storages."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from treadle.analysis.sequence import NOWHERE


@dataclass(frozen=True, slots=True)
class Storage:
    """One block of memory and the steps that need it."""

    name: str
    bytes: int
    producer: int | None
    """The step that allocates it. None: it is there before the first step, a graph input."""
    users: tuple[int, ...]
    """Every step that touches it; a mere ordering edge is not here, so it extends no life."""
    freeable: bool = True
    """False for outputs and for inputs that were not donated."""

    def __post_init__(self) -> None:
        if self.bytes < 0:
            raise ValueError(f"storage {self.name!r} has {self.bytes} bytes; expected 0 or more")


class Peak(NamedTuple):
    """The most bytes live at once, and the first step during which they are."""

    bytes: int
    step: int | None
    """None if there are no steps: then only the inputs are counted."""


class StepBytes(NamedTuple):
    """The bytes live during a step, and those left after its frees."""

    step: int
    during: int
    after: int


class Life(NamedTuple):
    """Where a storage lives; a merged step is named by the id that `Timeline.merge` returned."""

    first: int | None
    """The producing step; None for an input."""
    last: int | None
    """The last step that uses it, or else the producer; None for an input without users."""
    bytes: int
    """What is allocated for it: 0 if it takes over a block, is dropped, or is never needed."""
    freed: bool
    """Whether its block is freed at `last` (not: kept, handed over, or dropped)."""
    host: str | None
    """The storage whose block it lives in, mostly its own; None if it needs no memory."""


class LifeError(ValueError):
    """Raised for an order in which a step uses a storage before the step that produces it."""

    def __init__(self, storage: str, producer: int, user: int) -> None:
        super().__init__(
            f"step {user} would use storage {storage!r} before step {producer} produces it; "
            f"legal places for step {user} are behind step {producer}"
        )
        self.storage = storage
        self.producer = producer
        self.user = user


def check_input(order: list[int], storages: Sequence[Storage], index: dict[str, int]) -> None:
    """Refuse an order that is no permutation, names that repeat and steps that do not exist."""
    count = len(order)
    if sorted(order) != list(range(count)):
        raise ValueError(f"the order is not a permutation of the steps 0 to {count - 1}")
    for i, storage in enumerate(storages):
        if len(index) != len(storages) and index[storage.name] != i:
            raise ValueError(f"two storages are named {storage.name!r}")
        for step in storage.users:
            if not 0 <= step < count:
                raise ValueError(f"storage {storage.name!r} is used by step {step} of {count}")
        maker = storage.producer
        if maker is not None and not 0 <= maker < count:
            raise ValueError(f"storage {storage.name!r} is produced by step {maker} of {count}")


def touches_by_step(count: int, storages: Sequence[Storage]) -> tuple[list[int], list[int]]:
    """Return starts and storages: step s touches ``storages[starts[s] : starts[s + 1]]``.

    Flat, because a list for each step would be walked by the garbage collector again and again.
    """
    counts = [0] * (count + 1)
    seen = [NOWHERE] * count  # the newest storage counted for a step: users may repeat
    for i, storage in enumerate(storages):
        for step in storage.users:
            if seen[step] != i:
                seen[step] = i
                counts[step] += 1
        maker = storage.producer
        if maker is not None and seen[maker] != i:
            counts[maker] += 1
    starts = list(accumulate(counts))
    touches = [0] * starts[-1]
    seen = [NOWHERE] * count
    for i, storage in enumerate(storages):  # each start moves down from the end of its run
        for step in storage.users:
            if seen[step] != i:
                seen[step] = i
                starts[step] -= 1
                touches[starts[step]] = i
        maker = storage.producer
        if maker is not None and seen[maker] != i:
            starts[maker] -= 1
            touches[starts[maker]] = i
    return starts, touches
