"""What a run does, step by step, and in which bytes: plain data that any host can carry out.

    launch plan relay (n = 16)
      cpu: stream 0, arena 128 bytes (no plan needs less than 128)
      storages
        x   input       64 bytes   there before .. kept     memory of its own
        t   temporary   64 bytes   0 .. 1                   arena + 0
        y   output      64 bytes   1 .. kept                memory of its own
      steps
        0   launch k0_step(x, t)
        1   call aten.mm.default(t) -> y

A plan holds for one set of run-time sizes. It names operations, kernels and storages; what they are
a host looks up in the program. Nothing here decides anything: `plan_launches` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from treadle.runtime.device_memory import DeviceMemory, StorageLife


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """Run a kernel."""

    operation: str
    kernel: str
    storages: tuple[str, ...]
    """What it is given, in the order of its parameters."""
    stream: int = 0


@dataclass(frozen=True, slots=True)
class CallStep:
    """Call something opaque: a library, a template, a user's kernel, a collective."""

    operation: str
    target: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    mutates: tuple[str, ...] = ()
    event: str | None = None
    """What happens when its results may be read, if that is later than its return."""
    stream: int = 0


@dataclass(frozen=True, slots=True)
class WaitStep:
    """Wait until an event has happened: from then on the storage may be read."""

    operation: str
    storage: str
    event: str | None
    """None: nothing was begun, so there is nothing to wait for."""
    stream: int = 0


@dataclass(frozen=True, slots=True)
class TakeStep:
    """Take a tensor out of a tuple."""

    operation: str
    source: str
    position: int
    storage: str
    event: str | None = None
    """What happens when the tuple may be read, if it is the result of a collective."""
    stream: int = 0


@dataclass(frozen=True, slots=True)
class ClearStep:
    """Storages begin anew without a value."""

    operation: str
    storages: tuple[str, ...]
    stream: int = 0


Step: TypeAlias = "LaunchStep | CallStep | WaitStep | TakeStep | ClearStep"


@dataclass(frozen=True, slots=True)
class Stream:
    """A queue of a device: its steps run in order, beside those of other streams."""

    number: int
    device: str


@dataclass(frozen=True, slots=True)
class RecordedSteps:
    """Steps `first` to `last`, both included, that can be recorded once and replayed."""

    first: int
    last: int


@dataclass(frozen=True)
class LaunchPlan:
    """The steps of a run at one set of run-time sizes, and the memory of every device."""

    name: str
    steps: tuple[Step, ...]
    memory: tuple[DeviceMemory, ...]
    """One for each device, the one with the most bytes first."""
    streams: tuple[Stream, ...] = (Stream(0, "cpu"),)
    recordings: tuple[RecordedSteps, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def main(self) -> DeviceMemory:
        """The memory of the device that holds the most."""
        return self.memory[0]

    @cached_property
    def lives(self) -> Mapping[str, StorageLife]:
        """Every storage of every device, by name."""
        return {name: life for one in self.memory for name, life in one.lives.items()}

    @property
    def events(self) -> tuple[str, ...]:
        """What can be waited for, in the order in which it is begun."""
        return tuple([s.event for s in self.steps if isinstance(s, CallStep) and s.event])


def touched(step: Step) -> tuple[str, ...]:
    """The storages a step names."""
    if isinstance(step, LaunchStep | ClearStep):
        return step.storages
    if isinstance(step, CallStep):
        return tuple(dict.fromkeys((*step.reads, *step.writes, *step.mutates)))
    return (step.storage,)


# ------------------------------------------------------------------------------- text


def show_plan(plan: LaunchPlan) -> str:
    """The plan as text: devices, storages, steps."""
    sizes = ", ".join(f"{name} = {n}" for name, n in plan.sizes.items())
    lines = [f"launch plan {plan.name}" + (f" ({sizes})" if sizes else "")]
    for one in plan.memory:
        queues = [str(s.number) for s in plan.streams if s.device == one.device]
        lines.append(
            f"  {one.device}: stream {', '.join(queues) or 'none'},"
            f" arena {one.arena_bytes} bytes (no plan needs less than {one.arena_lower_bound})"
        )
    lines.append("  storages")
    lines += [f"    {row}" for row in _rows([*_storage_rows(plan)])]
    lines.append("  steps")
    begins = {r.first: r for r in plan.recordings}
    ends = {r.last for r in plan.recordings}
    for k, step in enumerate(plan.steps):
        if k in begins:
            lines.append("    record {")
        lines.append(f"    {k:<4}{_step_text(step)}")
        if k in ends:
            lines.append("    }")
    return "\n".join(lines) + "\n"


def _storage_rows(plan: LaunchPlan) -> Iterator[tuple[str, ...]]:
    for memory in plan.memory:
        for name, life in memory.lives.items():
            place = memory.places.get(name)
            where = "memory of its own" if place is None else f"{place.pool} + {place.offset}"
            first = "there before" if life.first < 0 else str(life.first)
            last = "kept" if life.last >= len(plan.steps) else str(life.last)
            last = "never read" if life.last < 0 else last
            kind = f"{life.role.value} on {life.device}"
            yield name, kind, f"{life.bytes} bytes", f"{first} .. {last}", where


def _rows(cells: list[tuple[str, ...]]) -> list[str]:
    if not cells:
        return []
    widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
    return ["   ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in cells]


def _step_text(step: Step) -> str:
    queue = f" on stream {step.stream}" if step.stream else ""
    return _words_of(step) + queue


def _words_of(step: Step) -> str:
    if isinstance(step, LaunchStep):
        return f"launch {step.kernel}({', '.join(step.storages)})"
    if isinstance(step, CallStep):
        results = f" -> {', '.join(step.writes)}" if step.writes else ""
        changes = f" changes {', '.join(step.mutates)}" if step.mutates else ""
        event = f" records {step.event}" if step.event else ""
        return f"call {step.target}({', '.join(step.reads)}){results}{changes}{event}"
    if isinstance(step, WaitStep):
        return f"wait for {step.event or 'nothing'}, then {step.storage} may be read"
    if isinstance(step, TakeStep):
        return f"take {step.storage} from {step.source}[{step.position}]"
    return f"clear {', '.join(step.storages)}"
