"""Headers of allocations worked out again from the values in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from treadle.frontends.xla_dump.hlo import Instruction, instructions_of
from treadle.frontends.xla_dump.model import Allocation, HloPosition, UsedValue, XlaDump
from treadle.frontends.xla_dump.schedule import HloSchedule
from treadle.frontends.xla_dump.shapes import parse_shape

Wrong = tuple[int, int, str]
"""Line, allocation, what it should be."""


def wrong_headers(dump: XlaDump, schedule: HloSchedule | None) -> Iterator[Wrong]:
    """What headers say otherwise than the values inside, one message at a time."""
    used = {one.value.place: one for one in dump.used}
    instructions = dump.derive(instructions_of)
    for allocation in dump.allocations:
        yield from _wrong_order(allocation)
        yield from _wrong_kind(allocation, instructions, schedule)
        yield from _wrong_output(allocation, used, instructions, schedule)


def _wrong_order(allocation: Allocation) -> Iterator[Wrong]:
    ids = [one.value.id for one in allocation.values]
    for one, (before, after) in zip(allocation.values[1:], pairwise(ids)):
        if after <= before:
            yield one.line, allocation.number, f"value {after} stands after value {before}"
            return


def _wrong_kind(
    allocation: Allocation, instructions: Mapping[str, Instruction], schedule: HloSchedule | None
) -> Iterator[Wrong]:
    """A constant or a parameter is where the header says one is."""
    if not instructions:
        return
    numbers: set[int | None] = set()
    shapes: set[str] = set()
    holds_constant = False
    for one in allocation.values:
        found = instructions.get(one.value.name)
        if found is None:
            continue
        holds_constant = holds_constant or found.opcode == "constant"
        if schedule is None or found.name in schedule.entry_parameters:
            numbers.add(found.parameter_number)
            # The shape of the whole parameter in older versions, of this part of it in newer ones.
            shapes |= {str(found.shape), str(parse_shape(one.shape))}
    if allocation.is_constant and not holds_constant:
        yield allocation.line, allocation.number, "called constant, but holds no constant"
    parameter = allocation.parameter
    if parameter and shapes and _plain(parameter.shape) not in shapes:
        message = f"parameter {parameter.number} has the shape {', '.join(sorted(shapes))}"
        yield allocation.line, allocation.number, f"{message}, not {parameter.shape}"
    if parameter and numbers and parameter.number not in numbers:
        shown = ", ".join(sorted(map(str, numbers)))
        message = f"called parameter {parameter.number}, but holds parameter {shown}"
        yield allocation.line, allocation.number, message


def _wrong_output(
    allocation: Allocation,
    used: dict[HloPosition, UsedValue],
    instructions: Mapping[str, Instruction],
    schedule: HloSchedule | None,
) -> Iterator[Wrong]:
    """What flows to the root of the entry computation lives out."""
    if not used or schedule is None or schedule.entry_root is None or schedule.clash:
        return
    root = schedule.entry_root
    flows_out = whole = False
    for one in allocation.values:
        entry = used.get(one.value.place)
        for position in entry.positions if entry else ():
            if position.name == root:
                flows_out = True
                whole = whole or not position.index
    if flows_out != allocation.is_live_out and not allocation.is_constant:
        says = "is called" if allocation.is_live_out else "is not called"
        what = "flows" if flows_out else "does not flow"
        message = f"{says} maybe-live-out, but what it holds {what} to the root {root}"
        yield allocation.line, allocation.number, message
    if whole != (allocation.output_shape is not None):
        message = "the output as a whole is here" if whole else "the output as a whole is not here"
        yield allocation.line, allocation.number, message
    elif allocation.output_shape is not None and root in instructions:
        shape = str(instructions[root].shape)
        if shape != _plain(allocation.output_shape):
            message = f"the output has the shape {shape}, not {allocation.output_shape}"
            yield allocation.line, allocation.number, message


def _plain(text: str) -> str:
    """A shape without the comments that XLA puts into long tuples."""
    shape = parse_shape(text)
    return text if shape is None else str(shape)
