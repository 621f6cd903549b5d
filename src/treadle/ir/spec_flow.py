"""Rules about the flow of data through the program."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.core.errors import Violation
from treadle.ir.effects import effects
from treadle.ir.program import Collective, Loop, Program, Wait
from treadle.ir.types import BufferKind


def values_exist_before_use(program: Program) -> Iterator[Violation]:
    """IR015: what is read or changed was an input or was written before; outputs are written."""
    known = program.by_name
    ready = {program.storage_of(n) for n in program.inputs}
    for op in program.leaves:
        of = effects(op)
        for name in (*of.reads, *of.mutates):
            own_store = isinstance(op, Loop) and name in of.writes
            if program.storage_of(name) not in ready and not own_store:
                yield Violation("IR015", f"it uses {name}, which nothing wrote before", op.name)
        ready.update(program.storage_of(n) for n in (*of.writes, *of.mutates))
    for name in program.outputs:
        if name in known and program.storage_of(name) not in ready:
            yield Violation("IR015", f"output {name} is never written", name)


def devices_agree(program: Program) -> Iterator[Violation]:
    """IR016: an operation touches buffers of its own device, or single elements on the CPU."""
    known = program.by_name
    for op in program.leaves:
        if not isinstance(op, Loop):
            continue  # calls may move data between devices
        for name in effects(op).touched:
            b = known[name]
            scalar = b.device == "cpu" and b.numel.value == 1 and name in effects(op).reads
            if b.device != op.device and not scalar and b.kind is BufferKind.TENSOR:
                message = f"{name} is on {b.device}, the operation on {op.device}"
                yield Violation("IR016", message, op.name)


def collectives_are_waited_for(program: Program) -> Iterator[Violation]:
    """IR017: results of a collective are touched only after a wait, and waits wait for one."""
    pending: dict[str, str] = {}
    for op in program.leaves:
        of = effects(op)
        if isinstance(op, Wait):
            storage = program.storage_of(op.buffer)
            if storage not in pending:
                message = f"no collective on {op.buffer} is under way"
                yield Violation("IR017", message, op.name)
            pending.pop(storage, None)
            continue
        for name in of.touched:
            storage = program.storage_of(name)
            if storage in pending:
                message = f"it touches {name} while {pending[storage]} is still under way"
                yield Violation("IR017", message, op.name)
        if isinstance(op, Collective):
            for name in (*of.writes, *of.mutates):
                pending[program.storage_of(name)] = op.name


FLOW_RULES = (values_exist_before_use, devices_agree, collectives_are_waited_for)
