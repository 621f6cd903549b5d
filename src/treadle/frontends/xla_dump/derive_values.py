"""Where values flow and what uses them, for a dump that comes without its used values.

    dump = with_derived_values(dump)
    dump.values.is_derived        # True: worked out, not read

The allocations say which values there are and where each is made. From there the HLO text is
followed: what takes tuples apart or puts them together, bitcasts, calls, loops, branches and
asynchronous operations hand values on; everything else makes its own. What a loop or a branch joins
into a new value stands among the allocations under its own name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from treadle.frontends.xla_dump.hlo import Computation, Instruction, Module
from treadle.frontends.xla_dump.model import (
    HloPosition,
    HloUse,
    HloValue,
    ShapeIndex,
    UsedValue,
    ValuePosition,
    ValueSection,
    XlaDump,
)
from treadle.frontends.xla_dump.shapes import AnyShape, TupleShape

MOST_HOPS = 10_000
HANDS_ON = ("bitcast", "opt-barrier", "optimization-barrier", "domain", "add-dependency")
"""What hands its first operand on as it is."""
LOOKS_AT_TABLE = ("get-tuple-element", "bitcast", "domain", "opt-barrier", "optimization-barrier")
"""What uses the table of a tuple only, not what the tuple holds."""


def with_derived_values(dump: XlaDump) -> XlaDump:
    """The dump with its used values, where it has neither these nor live ranges.

    Its HLO text can tell them if it is scheduled and is that of the allocations.
    """
    module = dump.module
    if dump.values or dump.live or not (module and module.is_scheduled and dump.assignment):
        return dump
    found = _Flow(dump, module).used()
    if found is None:
        return dump
    return replace(dump, values=ValueSection(module.file, tuple(found), is_derived=True))


class _Flow:
    """Follows values through one module."""

    def __init__(self, dump: XlaDump, module: Module) -> None:
        self.values: dict[HloPosition, HloValue] = {
            o.value.place: o.value for _, o in dump.assigned()
        }
        self.computations = module.by_name()
        self.by_name: dict[str, Instruction] = {}
        self.home: dict[str, Computation] = {}
        self.caller: dict[str, list[Instruction]] = {}
        for computation in module.computations:
            for one in computation.instructions:
                self.by_name[one.name] = one
                self.home[one.name] = computation
                for name in one.computations():
                    self.caller.setdefault(name, []).append(one)

    def used(self) -> list[UsedValue] | None:
        """Every value of the allocations; None if one is made by nothing in the text."""
        if any(place.name not in self.by_name for place in self.values):
            return None
        positions: dict[HloPosition, list[ValuePosition]] = {place: [] for place in self.values}
        uses: dict[HloPosition, list[HloUse]] = {place: [] for place in self.values}
        for one in self.by_name.values():
            for index in _indices(one.shape):
                source = self.source(HloPosition(one.name, index))
                if source in positions:
                    shown = index if isinstance(one.shape, TupleShape) else None
                    positions[source].append(ValuePosition(one.name, shown))
            for use, source in self._uses(one):
                if source in uses:
                    uses[source].append(use)
        return [
            UsedValue(value, _first(place, positions[place]), tuple(uses[place]), self._text(place))
            for place, value in sorted(self.values.items(), key=lambda item: item[1].id)
        ]

    def _text(self, place: HloPosition) -> str:
        return self.by_name[place.name].attributes

    def _uses(self, one: Instruction) -> Iterator[tuple[HloUse, HloPosition | None]]:
        if one.opcode in ("parameter", "constant"):
            return
        is_root = self.home[one.name].root.name == one.name
        if one.opcode == "tuple" and not is_root:
            return  # it only hands on
        for number, name in enumerate(one.operands):
            operand = self.by_name.get(name)
            shape = operand.shape if operand else None
            for index in _indices(shape):
                if index and one.opcode in LOOKS_AT_TABLE:
                    continue
                shown = index if isinstance(shape, TupleShape) else None
                yield HloUse(one.name, number, shown), self.source(HloPosition(name, index))

    def source(self, place: HloPosition) -> HloPosition | None:
        """The value that stands at a place, by where it is made."""
        at: HloPosition | None = place
        for _ in range(MOST_HOPS):
            if at is None or at in self.values:
                return at
            at = self._before(at)
        return None

    def _before(self, place: HloPosition) -> HloPosition | None:
        """The place that hands its value on to this one."""
        one = self.by_name.get(place.name)
        if one is None:
            return None
        path, first = place.path, one.operands[0] if one.operands else ""
        if one.opcode == "get-tuple-element":
            number = one.attributes.partition("index=")[2].partition(",")[0].strip()
            return HloPosition(first, (int(number), *path)) if number.isdecimal() else None
        if one.opcode == "tuple":
            known = path and path[0] < len(one.operands)
            return HloPosition(one.operands[path[0]], path[1:]) if known else None
        if one.opcode in HANDS_ON or one.opcode == "while":
            return HloPosition(first, path)
        if one.opcode == "parameter":
            return self._from_caller(one, path)
        if one.opcode in ("call", "conditional"):
            return self._from_root(one, path)
        return _asynchronous(one, path) or (
            self._from_root(one, path[1:]) if one.opcode == "async-start" and path[:1] == (1,)
            else None
        )  # fmt: skip

    def _from_root(self, one: Instruction, path: ShapeIndex) -> HloPosition | None:
        called = [self.computations[n] for n in one.computations() if n in self.computations]
        return HloPosition(called[0].root.name, path) if called else None

    def _from_caller(self, one: Instruction, path: ShapeIndex) -> HloPosition | None:
        callers = self.caller.get(self.home[one.name].name, [])
        number = one.parameter_number
        if not callers or number is None:
            return None
        caller = callers[0]
        if caller.opcode == "conditional":
            number = 1 + caller.computations().index(self.home[one.name].name)
        elif caller.opcode == "while":
            number = 0
        return HloPosition(caller.operands[number], path) if number < len(caller.operands) else None


def _asynchronous(one: Instruction, path: ShapeIndex) -> HloPosition | None:
    """What starts and ends of asynchronous operations hand on of their operands."""
    if one.opcode == "async-start" and len(path) > 1 and path[0] == 0:
        known = path[1] < len(one.operands)
        return HloPosition(one.operands[path[1]], path[2:]) if known else None
    if not one.operands:
        return None
    if one.opcode == "copy-start" and path[:1] == (1,):
        return HloPosition(one.operands[0], path[1:])
    handed = {"async-done": (1, *path), "async-update": path, "copy-done": (0, *path)}
    return HloPosition(one.operands[0], handed[one.opcode]) if one.opcode in handed else None


def _indices(shape: AnyShape | None) -> Iterator[ShapeIndex]:
    """All places inside a shape, the whole first."""
    yield ()
    if isinstance(shape, TupleShape):
        for number, element in enumerate(shape.elements):
            yield from ((number, *rest) for rest in _indices(element))


def _first(place: HloPosition, positions: list[ValuePosition]) -> tuple[ValuePosition, ...]:
    """The positions, that where the value is made first."""
    return tuple(sorted(positions, key=lambda position: position.place != place))
