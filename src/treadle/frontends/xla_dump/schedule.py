"""When each instruction runs: the flattened schedule, and where each computation begins and ends.

Computations that run as part of the schedule (of call, conditional, while, async-start) are
numbered before the instruction that calls them; a while's condition comes before its body.
With the HLO text all of this is known. A dump alone gives the order and, for instructions that
define a value, their text; then only the entry computation's borders are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from treadle.frontends.xla_dump.hlo import Computation, Instruction, Module, instructions_of
from treadle.frontends.xla_dump.model import XlaDump

MAX_DEPTH = 200
CONTROL = ("while", "conditional", "async-start")


@dataclass(frozen=True)
class HloSchedule:
    """Times of instructions, and what borders of computations mean for values."""

    sequence: tuple[str, ...]
    time: Mapping[str, int]
    root_end: Mapping[str, int]
    """Root instruction -> the time one past the last instruction of its computation."""
    parameter_start: Mapping[str, int]
    """Parameter -> the time of the first instruction of its computation."""
    entry_parameters: frozenset[str]
    entry_root: str | None
    calls: frozenset[str]
    """Instructions of opcode `call`: a use by them is a use inside what they call."""
    body_parameter: Mapping[str, str]
    """While instruction -> the parameter of its body, where its operand is really used."""
    opcode: Mapping[str, str]
    borders: frozenset[int] = frozenset()
    """Times that nothing may be moved across: where the computations of a loop or a conditional
    begin, and where the loop or conditional itself stands. Empty, if there are none or they are not
    known."""
    is_exact: bool = True
    """False: computations other than the entry were guessed at, and there are some."""
    clash: tuple[int, str, str] | None = field(default=None)
    """(time, name in the dump, name in the HLO text) where the two orders differ first."""


def schedule_of(dump: XlaDump) -> HloSchedule | None:
    """The schedule of a dump, from its HLO text where that is there; None without live ranges."""
    if not dump.live:
        return None
    if not (dump.module and dump.module.is_scheduled):
        return _from_texts(dump)
    if dump.live.is_derived:
        return schedule_of_text(dump.module)
    found = _from_module(dump.module, dump.live.sequence)
    if found.clash and _is_abridged(found, dump.live.sequence):
        return replace(_from_texts(dump), is_exact=False)
    return found


def schedule_of_text(module: Module) -> HloSchedule:
    """The schedule that the text of a scheduled module is."""
    return _from_module(module, None)


def _is_abridged(schedule: HloSchedule, printed: tuple[str, ...]) -> bool:
    """Whether the HLO text only leaves some instructions out, in an order that is the same.

    XLA writes asynchronous operations in short (`fusion-start`), without what they wrap.
    """
    known = set(schedule.sequence)
    is_short = any(op.endswith("-start") for op in schedule.opcode.values())
    return is_short and tuple([n for n in printed if n in known]) == schedule.sequence


class _Flattening:
    """Numbers the instructions of a module."""

    def __init__(self, module: Module) -> None:
        self.by_name = module.by_name()
        self.order: list[Instruction] = []
        self.spans: dict[str, tuple[int, int]] = {}

    def run(self, computation: Computation, depth: int = 0) -> None:
        """Number a computation and, before each instruction, what it calls."""
        if computation.name in self.spans or depth > MAX_DEPTH:
            return
        start = len(self.order)
        self.spans[computation.name] = (start, start)
        for one in computation.instructions:
            for name in one.computations():
                if name in self.by_name:
                    self.run(self.by_name[name], depth + 1)
            self.order.append(one)
        self.spans[computation.name] = (start, len(self.order))

    def borders(self) -> Iterator[int]:
        """Where loops and conditionals begin and end."""
        for time, one in enumerate(self.order):
            if one.opcode in ("while", "conditional"):
                starts = [self.spans[name][0] for name in one.computations() if name in self.spans]
                yield min([*starts, time])
                yield time

    def take_over(self, printed: tuple[str, ...]) -> None:
        """Take the printed order if all that the text says is in it, in the same order.

        Where elements written in short run, the text does not say.
        """
        implied = {one.name for one in self.order if one.is_implied}
        if not implied:
            return
        said = [one.name for one in self.order if not one.is_implied]
        if [name for name in printed if name not in implied] != said:
            return
        by_name = {one.name: one for one in self.order}
        time = {name: t for t, name in enumerate(printed)}
        for name, (start, end) in self.spans.items():
            inside = [time[one.name] for one in self.order[start:end] if one.name in time]
            self.spans[name] = (min(inside), max(inside) + 1) if inside else (0, 0)
        self.order = [by_name[name] for name in printed]


def _from_module(module: Module, printed: tuple[str, ...] | None) -> HloSchedule:
    flat = _Flattening(module)
    flat.run(module.entry)
    if printed is not None:
        flat.take_over(printed)
    names = tuple([one.name for one in flat.order])
    roots: dict[str, int] = {}
    starts: dict[str, int] = {}
    for name, (start, end) in flat.spans.items():
        computation = flat.by_name[name]
        roots[computation.root.name] = end
        for one in computation.instructions:
            if one.opcode == "parameter":
                starts[one.name] = start
    bodies: dict[str, str] = {}
    for one in flat.order:
        body = flat.by_name.get(dict(one.called).get("body", ""))
        if one.opcode == "while" and body:
            inner = [i.name for i in body.instructions if i.opcode == "parameter"]
            bodies.update({one.name: inner[0]} if inner else {})
    entry = module.entry
    return HloSchedule(
        sequence=names,
        time={name: t for t, name in enumerate(names)},
        root_end=roots,
        parameter_start=starts,
        entry_parameters=frozenset(
            [one.name for one in entry.instructions if one.opcode == "parameter"]
        ),
        entry_root=entry.root.name,
        calls=frozenset([one.name for one in flat.order if one.opcode == "call"]),
        body_parameter=bodies,
        opcode={one.name: one.opcode for one in flat.order},
        borders=frozenset(flat.borders()),
        clash=None if printed is None else _first_clash(printed, names),
    )


def _first_clash(printed: tuple[str, ...], names: tuple[str, ...]) -> tuple[int, str, str] | None:
    pairs = zip(printed, names)
    clash = next(((t, a, b) for t, (a, b) in enumerate(pairs) if a != b), None)
    if clash is None and len(printed) != len(names):
        t = min(len(printed), len(names))
        ends = [seq[t] if t < len(seq) else "the end" for seq in (printed, names)]
        clash = (t, ends[0], ends[1])
    return clash


def _from_texts(dump: XlaDump) -> HloSchedule:
    assert dump.live is not None, "a schedule from texts needs the part with live ranges"
    sequence = dump.live.sequence
    opcode = {name: one.opcode for name, one in dump.derive(instructions_of).items()}
    time = {name: t for t, name in enumerate(sequence)}
    of_entry = {
        one.value.name
        for allocation, one in dump.assigned()
        if allocation.parameter
        and not one.value.is_phi  # a loop's own parameter may share a donated allocation
        and opcode.get(one.value.name) == "parameter"
    }
    calls = _probable_calls(dump, opcode)
    is_exact = not any(opcode.get(name) in CONTROL for name in sequence)
    root = _probable_root(dump, time)
    return HloSchedule(
        sequence=sequence,
        time=time,
        root_end={} if root is None else {root: len(sequence)},
        parameter_start=dict.fromkeys(of_entry, 0),
        entry_parameters=frozenset(of_entry),
        entry_root=root,
        calls=frozenset(calls),
        body_parameter={},
        opcode=opcode,
        is_exact=is_exact,
    )


def _probable_root(dump: XlaDump, time: Mapping[str, int]) -> str | None:
    """The last instruction through which the value in the output allocation flows as a whole."""
    outputs = {
        one.value.place
        for allocation, one in dump.assigned()
        if allocation.output_shape is not None
    }
    whole = [
        position.name
        for used in dump.used
        if used.value.place in outputs
        for position in used.positions
        if not position.index and position.name in time
    ]
    if whole:
        return max(whole, key=lambda name: time[name])
    return dump.live.sequence[-1] if dump.live and dump.live.sequence else None


def _probable_calls(dump: XlaDump, opcode: Mapping[str, str]) -> set[str]:
    """Calls define no value, so their text is not in a dump; they are known by what they are not.

    What else defines no value takes an operand apart (and shows its index) or passes it on.
    """
    found = {name for name in (u.name for one in dump.used for u in one.uses) if _is_call(name)}
    for one in dump.used:
        flows_to = {position.name for position in one.positions}
        for use in one.uses:
            if use.name not in flows_to and (use.operand or use.index is None):
                found.add(use.name)
    return {name for name in found if name not in opcode}


def _is_call(name: str) -> bool:
    return name.partition(".")[0] == "call"
