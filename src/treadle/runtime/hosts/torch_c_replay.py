"""The host of a plan that is recorded as a whole, in C: allocate, find the recording, replay it.

The function in C takes the addresses of the inputs and allocates what the plan needs, in the order
in which the host in Python does. Then it asks, once: is there a recording for these addresses? If
there is not, all it did is undone, `enter` gives None, and Python goes on: it records what it meets
for the second time. Where the device shows its recordings, finding and starting one is C's, too
(`replay.c`); others are started from Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle.codegen.host_c.instructions import Allocate, HostFunction, PlaceIn, RunKernels
from treadle.core.options import Options
from treadle.memory.problem import ARENA
from treadle.runtime.hosts.recorded_steps import ReplayedSteps
from treadle.runtime.hosts.torch_c import CHost, HostChoice, address_of_function, host_library
from treadle.runtime.hosts.torch_c_finder import finder_for
from treadle.runtime.hosts.torch_c_library import has_interface
from treadle.runtime.hosts.torch_c_translate import InC, NotInC, Translation
from treadle.runtime.hosts.torch_memory import RunMemory

if TYPE_CHECKING:
    from treadle.runtime.hosts.torch_cpu import Bound

RECORD_AT = -(1 << 62) + 1
"""Stands in the table of numbers where the record of recordings will be; no size is this."""
FOUND, NOT_FOUND = 0, 1


def choose_replaying(bound: Bound, steps: ReplayedSteps, options: Options) -> HostChoice:
    """A host in C that replays; or the reason why Python does."""
    try:
        made = _translated(bound, steps)
        return HostChoice(ReplayHost(bound, made, host_library(bound, made, options), steps))
    except (NotInC, OSError) as e:
        return HostChoice(None, str(e))


def _translated(bound: Bound, steps: ReplayedSteps) -> InC:
    signature = bound.runner.signature
    if not has_interface():
        raise NotInC("this torch does not have the C interface")
    if len(bound.plan.memory) > 1:
        raise NotInC("its memory is not all on one device")
    if any(known.objects or known.absent for known in steps.known.values()):
        raise NotInC("calls give more than tensors")
    storages = bound.runner.compiled.unit.storages
    given = bound.shape, bound.plan, bound.layouts, signature, bound.values, storages
    return _Replaying(*given).replaying(steps.copies)


class _Replaying(Translation):
    """A plan of which only the memory is left to do."""

    def replaying(self, copies: Sequence[str]) -> InC:
        """The function; NotInC if what calls allocate lies in each other."""
        if any(name in self.memory.places for name in copies):
            raise NotInC("results of calls lie in each other")
        sizes_at = self.at(RECORD_AT)
        inputs = [n for n, life in self.memory.lives.items() if life.first < 0]
        for name in inputs:
            self._settle(name)
        for k in range(len(self.plan.steps)):
            self._begin(k)
        for name in copies:
            self._do(Allocate(self._handle(name), self.slots[name], self.shape_of(name)))
            self._settle(name)
        self.run = [0]
        self._flush()
        results = tuple(self._results())
        self._let_go_of_all_but(results)
        function = HostFunction(
            slots=len(self.slots),
            given=tuple([self.slots[n] for n in inputs]),
            owned=(),
            handles=len(self.handles),
            views=0,
            functions=(),
            sizes_at=sizes_at,
            instructions=tuple(self.code),
            results=tuple([self.handles[n] for n in results]),
            device=self.device,
        )
        pools = tuple([n for n in inputs if n in self.memory.suballocations])
        return InC(function, tuple(self.numbers), tuple(inputs), (), results, pools, {})


class ReplayHost(CHost):
    """A host function that replays, and the recordings it knows by the addresses it sees."""

    uses_again = False
    """Memory must come from where Python gets it, or no recording is found at its addresses."""

    def __init__(self, bound: Bound, made: InC, library: Any, steps: ReplayedSteps) -> None:
        self.steps = steps
        self.table: dict[tuple[object, bytes], object] = {}
        """Addresses as the function in C has them -> the key of a recording."""
        self._seen_keys: set[object] = set()
        self._trouble: BaseException | None = None
        self._launcher = LAUNCH(self._launch)
        self._bytes = 8 * max(made.function.slots, 1)
        options = bound.runner.options
        draws = steps.steps.draws
        self.finder = None if draws else finder_for(steps.recorder, self._bytes, options)
        address = address_of_function(self._launcher)
        if self.finder is not None:
            address = self.finder.entry
        super().__init__(bound, made, library, options, address)
        if self.finder is not None:
            self._table[made.function.sizes_at] = self.finder.address
        self._named = _named_slots(made, bound)
        steps.on_known = self._learn
        self._way_in = self.enter
        self.enter = self._entered

    def _entered(self, given: list[Any]) -> Any:
        """What C made; None if it found no recording, or Python must run."""
        found = self._way_in(given)
        if type(found) is not int:
            return found
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        return None

    def _launch(self, addresses: int, sizes: int, error: int, first: int, last: int) -> int:
        """Replay the recording for these addresses."""
        try:
            key = (self.steps.recorder.place(), ctypes.string_at(addresses, self._bytes))
            found = self.steps.known.get(self.table.get(key))
            if found is None:
                return NOT_FOUND
            found.recording.replay()
            self.steps.replays += 1
            return FOUND
        except BaseException as e:
            self._trouble = e
            return NOT_FOUND

    def _learn(self, key: object, memory: RunMemory, copies: Mapping[str, Any]) -> None:
        """Remember a recording by what the function in C would see where Python saw this."""
        if key in self._seen_keys:
            return
        known = self.steps.known[key]
        if known.objects or known.absent:
            return
        addresses = (ctypes.c_int64 * (self._bytes // 8))()
        for slot, name in self._named:
            addresses[slot] = self._address(name, memory, copies)
        if len(self._seen_keys) > 4 * len(self.steps.known) + 16:
            self._forget()
        self._seen_keys.add(key)
        self.table[self.steps.recorder.place(), bytes(addresses)] = key
        if self.finder is not None:
            rows = [(*at, self.steps.known.get(key)) for at, key in self.table.items()]
            self.finder.know([(*row[:2], row[2].recording) for row in rows if row[2] is not None])

    def _forget(self) -> None:
        """Drop what no recording is left for."""
        self.table = {at: key for at, key in self.table.items() if key in self.steps.known}
        self._seen_keys = set(self.table.values())

    def _address(self, name: str, memory: RunMemory, copies: Mapping[str, Any]) -> int:
        if name == ARENA:
            return int(memory.arena.data_ptr())
        if name in copies:
            return int(copies[name].data_ptr())
        at = self.bound.runner.place(name)
        if at is not None:
            return int(memory.addresses[at] or 0)
        return int(memory.tensors[name].data_ptr()) if name in memory.tensors else 0


def _named_slots(made: InC, bound: Bound) -> list[tuple[int, str]]:
    """The slots that the function in C fills, with the storages that lie there."""
    storages = bound.runner.compiled.unit.storages
    names = list(dict.fromkeys([*storages, *bound.memory.lives, ARENA]))
    filled = set(made.function.given)
    for one in made.function.instructions:
        if isinstance(one, Allocate | PlaceIn):
            filled.add(one.slot)
        assert not isinstance(one, RunKernels) or one.first == 0, "all is one recording"
    return [(slot, names[slot]) for slot in sorted(filled)]


LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
)
"""How a host function runs its kernels: addresses, sizes, an error record, the first and last."""
