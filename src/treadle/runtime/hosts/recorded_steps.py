"""Steps that a device records once and replays: one launch for a whole run of kernels and calls.

A recording holds addresses. Nothing is copied to fixed places for it: a run allocates its memory as
always, and a recording is used again when everything its steps touch lies where it lay when it was
made. Allocators give a loop the same addresses over and over, so a training loop settles on one
recording per graph; what lies elsewhere is launched step by step, and recorded when it is seen for
the second time.

What calls allocate while they are recorded belongs to the recording. The next replay writes over
it, so whatever is looked at after the recorded steps is copied out at their end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from treadle.runtime.device_memory import Role
from treadle.runtime.hosts.torch_memory import Action, RunMemory, TensorMemory
from treadle.runtime.launch_plan import LaunchPlan, touched

MOST_RECORDINGS = 8
"""So many recordings of the same steps are kept; the one not used for longest goes first."""
MOST_SIGHTINGS = 32
"""So many addresses that were met once are remembered."""
FEWEST_LAUNCHES = 1
"""Even a single launch is started faster by the host in C, which starts recordings alone."""


Work: TypeAlias = Callable[[RunMemory, Mapping[str, Any]], None]
"""Steps on a run's memory, and where to copy what they allocate themselves."""


class CannotRecordError(Exception):
    """Steps that the device refuses to record; the message says why."""


class DeviceRecording(Protocol):
    """Work of a device that can be started again with one call."""

    def replay(self) -> None:
        """Start the recorded work on the present stream."""

    @property
    def handle(self) -> int | None:
        """By what the device's driver knows it; None if only Python can start it."""


class DeviceRecorder(Protocol):
    """Records what a device is told to do."""

    def place(self) -> object | None:
        """Where work is queued at present; None if nothing can be recorded there now."""

    def record(
        self, work: Work, memory: RunMemory, copies: Mapping[str, Any], draws: bool
    ) -> DeviceRecording:
        """Record the work on a run's memory, without doing it; raises CannotRecordError.

        `draws`: it draws random numbers, which are other ones at every replay.
        """

    @property
    def starts(self) -> RecordingStarts | None:
        """The functions that find and start recordings by their handles, if there are any."""


class RecordingStarts(NamedTuple):
    """Functions in C, by address: what starts a recording on the caller's stream needs them."""

    device: int
    stream_of: int
    """(device, where to put the stream) -> 0"""
    is_capturing: int
    """(stream, where to put whether) -> 0"""
    launch: int
    """(handle, stream) -> 0"""


@dataclass(frozen=True)
class StepRange:
    """Steps `first` to `last`, both included, as actions."""

    first: int
    last: int
    allocations: Sequence[Action]
    """What allocates all memory that the steps need from the host."""
    actions: Sequence[Action]
    """The steps themselves: launches, calls, what is let go of in between."""
    both: Sequence[Action]
    """Allocations and steps, each allocation as late as possible."""
    draws: bool = False
    """Whether they draw random numbers."""


class Known(NamedTuple):
    """A recording, and what its steps leave beside memory."""

    recording: DeviceRecording
    objects: dict[str, Any]
    absent: dict[str, Any]


class ReplayedSteps:
    """Carries out a range of steps, from a recording wherever there is one that fits."""

    def __init__(
        self, steps: StepRange, plan: LaunchPlan, tensors: TensorMemory, recorder: DeviceRecorder
    ) -> None:
        self.steps, self.tensors, self.recorder = steps, tensors, recorder
        names = names_of(plan, steps.first, steps.last)
        self.copies = own_results(plan, tensors, steps.first, steps.last)
        places = [(name, tensors.place(name)) for name in names]
        self.slots = [at for _, at in places if at is not None]
        self.unplaced = [name for name, at in places if at is None]
        self.over = [n for k in range(steps.first, steps.last + 1) for n in tensors.ends.get(k, [])]
        arena = tensors.plan.arena
        self.ends_arena = arena is not None and steps.first <= arena.last <= steps.last
        self.known: OrderedDict[object, Known] = OrderedDict()
        self.seen: OrderedDict[object, None] = OrderedDict()
        self.refused: str | None = None
        """Why nothing is recorded, once that was tried in vain."""
        self.has_run = False
        self.replays = 0
        self.on_known: Callable[[object, RunMemory, Mapping[str, Any]], None] | None = None
        """Hears the key, memory and copies of a run that a recording fits."""

    def __call__(self, memory: RunMemory) -> None:
        """Do the steps; the first time one by one, which also warms up what cannot be recorded."""
        where = None if self.refused else self.recorder.place()
        if where is None or not self.has_run:
            _do(self.steps.both, memory)
            self.has_run = True
            return
        _do(self.steps.allocations, memory)
        copies = {name: self.tensors.fresh(name) for name in self.copies}
        key = (where, *self._addresses(memory), *[t.data_ptr() for t in copies.values()])
        found = self.known.get(key)
        if found is None:
            found = self._met_anew(key, memory, copies)
        if found is None:
            _do(self.steps.actions, memory)
            return
        self.known.move_to_end(key)
        if self.on_known is not None:
            self.on_known(key, memory, copies)
        found.recording.replay()
        self.replays += 1
        memory.objects.update(found.objects)
        memory.tensors.update(found.absent)
        for name, tensor in copies.items():
            if name in found.absent:
                continue
            self.tensors.put(memory, name, tensor)
            if name in self.tensors.pools:
                self.tensors.settle(memory, name)
        for name in self.over:
            memory.tensors.pop(name, None)
        if self.ends_arena:
            memory.arena = None

    def _addresses(self, memory: RunMemory) -> list[int]:
        held, at = memory.tensors, memory.addresses
        found = [at[k] or 0 for k in self.slots]
        found += [held[n].data_ptr() if n in held else 0 for n in self.unplaced]
        if memory.is_odd:  # then sizes tell tensors apart, too
            found += [n for name in self.unplaced if name in held for n in held[name].shape]
        return found

    def _met_anew(self, key: object, memory: RunMemory, copies: dict[str, Any]) -> Known | None:
        """A new recording for addresses that were met before; others are remembered."""
        if key not in self.seen:
            self.seen[key] = None
            if len(self.seen) > MOST_SIGHTINGS:
                self.seen.popitem(last=False)
            return None
        del self.seen[key]
        inside = memory.copy()
        try:
            recording = self.recorder.record(self._work, inside, copies, self.steps.draws)
            found = Known(recording, _plain_objects(inside.objects), _absent(inside, copies))
        except CannotRecordError as e:
            self.refused = str(e)
            return None
        self.known[key] = found
        if len(self.known) > MOST_RECORDINGS:
            self.known.popitem(last=False)
        return found

    def _work(self, memory: RunMemory, copies: Mapping[str, Any]) -> None:
        _do(self.steps.actions, memory)
        for name, tensor in copies.items():
            if name not in memory.tensors:
                raise CannotRecordError(f"'{name}' has no tensor that could be copied")
            if memory.tensors[name] is not None:
                tensor.copy_(memory.tensors[name])


def _absent(memory: RunMemory, copies: Mapping[str, Any]) -> dict[str, Any]:
    """Results that a call left out, though it had promised them."""
    held = memory.tensors
    return {name: None for name in copies if name in held and held[name] is None}


def _plain_objects(objects: Mapping[str, Any]) -> dict[str, Any]:
    """What calls gave beside tensors; it must be the same at every replay."""
    for name, value in objects.items():
        if not isinstance(value, int | float | str | None):
            raise CannotRecordError(f"'{name}' is a {type(value).__name__}, which may change")
    return dict(objects)


def names_of(plan: LaunchPlan, first: int, last: int) -> list[str]:
    """The storages that some steps touch."""
    steps = plan.steps[first : last + 1]
    return list(dict.fromkeys([name for step in steps for name in touched(step)]))


def own_results(plan: LaunchPlan, tensors: TensorMemory, first: int, last: int) -> tuple[str, ...]:
    """What the calls among some steps allocate, or lies in that, and is looked at afterwards.

    Those that others lie in come first: who is copied out himself leaves them again.
    """
    memory = tensors.plan
    roots = [
        name
        for name, life in memory.lives.items()
        if life.role in (Role.CALL, Role.CALL_OUTPUT) and first <= life.first <= last
    ]
    later = [name for name in roots if memory.spans[name].last > last]
    inside = [name for root in roots for name in memory.suballocations.get(root, [])]
    lives = [memory.lives[name] for name in inside]
    later += [x.storage for x in lives if first <= x.first <= last < x.last]
    return tuple(later)


def _do(actions: Sequence[Action], memory: RunMemory) -> None:
    for act in actions:
        act(memory)
