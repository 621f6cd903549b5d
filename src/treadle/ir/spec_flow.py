"""Rules about the flow of data through the program."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.core.errors import Violation
from treadle.ir.body import Body
from treadle.ir.effects import effects
from treadle.ir.pattern import NAMES_A_BUFFER, pattern_of, place_of
from treadle.ir.program import Collective, Loop, MultiOutput, Program, Wait
from treadle.ir.types import BufferKind


def values_exist_before_use(program: Program) -> Iterator[Violation]:
    """IR015: what is read or changed was an input or was written before; outputs are written."""
    known = program.by_name
    ready = {program.storage_of(n) for n in program.inputs}
    for op in program.leaves:
        of = effects(op)
        own = _stored_first(op, program) if isinstance(op, Loop) else ()
        for name in (*of.reads, *of.mutates):
            storage = program.storage_of(name)
            if storage not in ready and storage not in own:
                yield Violation("IR015", f"it uses {name}, which nothing wrote before", op.name)
        ready.update(program.storage_of(n) for n in (*of.writes, *of.mutates))
    for name in program.outputs:
        if name in known and program.storage_of(name) not in ready:
            yield Violation("IR015", f"output {name} is never written", name)


def _stored_first(op: Loop, program: Program) -> set[str]:
    """Storages that the body itself stores to before it looks at them."""
    pattern, buffers = pattern_of(op)
    first: dict[str, bool] = {}
    for place, is_plain in pattern.derive(_first_touches):
        first.setdefault(program.storage_of(buffers[place]), is_plain)
    return {storage for storage, is_plain in first.items() if is_plain}


def _first_touches(body: Body) -> list[tuple[int, bool]]:
    """For each buffer of a pattern, whether a plain store touches it first."""
    first: dict[int, bool] = {}
    for at in body.walk():
        if at.stmt.op in NAMES_A_BUFFER:
            is_plain = at.stmt.op == "store" and at.stmt.mode == "plain"
            first.setdefault(place_of(at.stmt.buffer), is_plain)
    return list(first.items())


def devices_agree(program: Program) -> Iterator[Violation]:
    """IR016: an operation touches buffers of its own device, or single elements on the CPU."""
    known = program.by_name
    for op in program.leaves:
        if not isinstance(op, Loop) or program.knows(op, "_is_on_its_device"):
            continue  # calls may move data between devices
        strangers = [b for n in effects(op).touched if (b := known[n]).device != op.device]
        if not strangers:
            program.note(op, "_is_on_its_device")
        for b in strangers:
            scalar = b.device == "cpu" and b.numel.value == 1 and b.name in effects(op).reads
            if not scalar and b.kind is BufferKind.TENSOR:
                message = f"{b.name} is on {b.device}, the operation on {op.device}"
                yield Violation("IR016", message, op.name)


def collectives_are_waited_for(program: Program) -> Iterator[Violation]:
    """IR017: results of a collective are touched, and what it reads is changed, after a wait."""
    pending: dict[str, str] = {}
    reading: dict[str, set[str]] = {}
    for op in program.leaves:
        of = effects(op)
        if isinstance(op, Wait):
            storage = program.storage_of(op.buffer)
            if storage not in pending:
                message = f"no collective on {op.buffer} is under way"
                yield Violation("IR017", message, op.name)
            done = pending.pop(storage, None)
            if done is not None and done not in pending.values():
                reading.pop(done, None)
            continue
        if isinstance(op, MultiOutput) and program.storage_of(op.source) in pending:
            # Taking a tensor out of the result touches no element: the wait may come after.
            pending[program.storage_of(op.target)] = pending[program.storage_of(op.source)]
            continue
        for name in of.touched:
            storage = program.storage_of(name)
            if storage in pending:
                message = f"it touches {name} while {pending[storage]} is still under way"
                yield Violation("IR017", message, op.name)
        changed = (*of.writes, *of.mutates)
        for name in changed:
            reader = next(
                (c for c, read in reading.items() if program.storage_of(name) in read), None
            )
            if reader is not None:
                message = f"it changes {name} while {reader} may still read it"
                yield Violation("IR017", message, op.name)
        if isinstance(op, Collective) and changed:
            pending.update({program.storage_of(name): op.name for name in changed})
            reading[op.name] = {program.storage_of(name) for name in of.reads}
    for name in program.outputs:
        starter = pending.get(program.storage_of(name))
        if starter is not None:
            message = f"output {name} is returned while {starter} is still under way"
            yield Violation("IR017", message, name)


FLOW_RULES = (values_exist_before_use, devices_agree, collectives_are_waited_for)
