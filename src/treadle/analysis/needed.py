"""Which operations are needed: those whose results somebody can see."""

from __future__ import annotations

from treadle.analysis.deps import Dependences, dependences
from treadle.ir.effects import acts_by_itself, effects, runs
from treadle.ir.program import Collective, Operation, Program, Wait


def needed_ops(program: Program, collectives_act: bool = True) -> set[str]:
    """The leaves that reach the caller or a side effect.

    Communication is a side effect for the other ranks; without `collectives_act` it is not one, so
    that what is left out in addition is communication whose result nobody uses.
    """
    deps = dependences(program)
    seen = {program.storage_of(n) for n in (*program.outputs, *program.inputs)}
    needed = [_is_seen(op, seen, program, deps, collectives_act) for op in program.leaves]
    while True:
        # Backwards: whoever carries a value to something needed is needed.
        for position in range(len(needed) - 1, -1, -1):
            if needed[position]:
                for d in deps.into[position]:
                    needed[d.source] = needed[d.source] or d.carries
        first = _missing_maker(program, needed)
        if first is None:
            return {name for name, kept in zip(deps.names, needed, strict=True) if kept}
        needed[first] = True


def _missing_maker(program: Program, needed: list[bool]) -> int | None:
    """Who first wrote a storage that something needed looks at, if nobody left has written it.

    It carries no value there, or it would be needed: what is looked at was never written. But a
    storage exists from its first write on.
    """
    first: dict[str, int] = {}
    ready = {program.storage_of(n) for n in program.inputs}
    for position, op in enumerate(program.leaves):
        of = effects(op)
        for name in (*of.reads, *of.mutates) if needed[position] else ():
            storage = program.storage_of(name)
            if storage not in ready and storage in first:
                return first[storage]
        for name in (*of.writes, *of.mutates):
            storage = program.storage_of(name)
            first.setdefault(storage, position)
            if needed[position]:
                ready.add(storage)
    return None


def _is_seen(
    op: Operation, seen: set[str], program: Program, deps: Dependences, collectives_act: bool
) -> bool:
    if not runs(op):
        return True  # it costs nothing, and the lives it states are the file's
    if acts_by_itself(op) and (collectives_act or not isinstance(op, Collective | Wait)):
        return True
    of = effects(op)
    touched = {program.storage_of(n) for n in (*of.writes, *of.mutates)} & seen
    return any(deps.shows_at_end(op.name, storage) for storage in touched)
