"""Rules for kernels that hold a call: what a template or a user's kernel may take in.

    epilogue   loops behind it that use its result point by point
    prologue   loops before it that make one operand and nothing else

Both stay pointwise and touch nothing that others see before the call is done.
"""

from __future__ import annotations

from treadle.analysis.deps import Dependences, dependences
from treadle.analysis.inplace import boundary
from treadle.core.verdict import YES, Verdict, no
from treadle.ir.effects import effects
from treadle.ir.program import Template
from treadle.schedule.kernels import KernelDraft
from treadle.schedule.rules.pair import Pair
from treadle.schedule.touches import visits_once

MOST_READ = 1.1
"""A prologue may read this many times the bytes of the operand it makes."""


def has_one_open_slot(p: Pair) -> Verdict:
    """FUS020: at most one call, and the loops on a side of it where it has a slot."""
    calls = [k for k in (p.first, p.second) if k.call is not None]
    if not calls:
        return YES
    if len(calls) == 2:
        return no("FUS020", why="two calls", left=_called(p, p.first), right=_called(p, p.second))
    op = p.program.leaves[calls[0].call or 0]
    if isinstance(op, Template):
        is_open = bool(op.prologue_slots) if p.is_prologue else op.has_epilogue_slot
    else:
        is_open = p.policy.user_epilogues and not p.is_prologue
    if not is_open:
        side = "prologue" if p.is_prologue else "epilogue"
        return no("FUS020", why=f"no {side} slot", operation=op.name)
    if p.is_prologue:
        return YES  # the rules of prologues look at the operand
    return _uses_the_result(p)


def _uses_the_result(p: Pair) -> Verdict:
    """FUS020 also if the loops only read what the call reads: sharing operands saves nothing."""
    for storage in p.shared:
        if p.first.writes(storage) and any(not t.is_write for t in p.second.touches[storage]):
            break
    else:
        return no("FUS020", why="not a use of the result", operation=_called(p, p.first))
    op = p.program.leaves[p.first.call or 0]
    if isinstance(op, Template):
        return YES
    result = effects(op).writes[0]
    others = sorted(set(p.second.touches) - {result})
    read = [s for s in others if not p.second.writes(s)]
    if read:
        return no("FUS020", why="a user's kernel gives its result only", also_read=read[0])
    if not _used_only_by(p, result, p.first, p.second):
        return no("FUS020", why="the result is used elsewhere", storage=result)
    return YES


def is_plain_pointwise(p: Pair) -> Verdict:
    """FUS021: loops in a call's kernel run point by point and store to fresh buffers only."""
    if p.first.call is None and p.second.call is None:
        return YES
    loops = p.first if p.first.call is None else p.second
    if not loops.space.is_pointwise or loops.scans:
        return no("FUS021", why="not pointwise", space=str(loops.space))
    deps, edge = dependences(p.program), p.program.derive(boundary)
    mine = set(loops.members)
    for storage, touches in loops.touches.items():
        for t in touches:
            if not t.is_write:
                continue
            if t.mode != "plain" or t.is_indirect:
                return no("FUS021", why="stores by data or adds up", storage=storage)
            fresh = deps.users[storage][0] in mine and storage not in edge.inputs
            if not fresh or t.access.buffer != storage:
                return no("FUS021", why="changes what was there before", storage=storage)
    return YES


def makes_one_operand(p: Pair) -> Verdict:
    """FUS022: a prologue makes one operand of a slot, for nobody else, from hardly more bytes."""
    op = p.program.leaves[p.second.call or 0]
    slots = {p.program.storage_of(n) for n in op.prologue_slots} if isinstance(op, Template) else ()
    made = [s for s in p.first.touches if p.first.writes(s)]
    operands = [s for s in made if s in p.second.touches]
    if len(operands) != 1 or operands[0] not in slots:
        return no("FUS022", why="not one operand of a slot", operands=operands)
    operand = operands[0]
    for storage in made:
        users = (p.first, p.second) if storage == operand else (p.first,)
        if not _used_only_by(p, storage, *users):
            return no("FUS022", why="used elsewhere", storage=storage)
    if p.second.uses.get(operand) != 1 or not _once(p.first, operand):
        return no("FUS022", why="not read by the call alone, once stored", storage=operand)
    size = max(t.bytes for t in p.first.touches[operand] if t.is_write)
    read = sum(
        max(t.bytes for t in touches) for s, touches in p.first.touches.items() if s not in made
    )
    if read > MOST_READ * size:
        return no("FUS022", why="reads too much", read=read, result=size, limit=MOST_READ)
    return YES


def _once(loops: KernelDraft, storage: str) -> bool:
    """Whether the loops store each element of the operand at one point."""
    stores = [t for t in loops.touches[storage] if t.is_write]
    return all(t.access_map is not None and visits_once(t.access_map) for t in stores)


def _used_only_by(p: Pair, storage: str, *kernels: KernelDraft) -> bool:
    deps: Dependences = dependences(p.program)
    edge = p.program.derive(boundary)
    if storage in edge.outputs or storage in edge.inputs:
        return False
    return sum(k.uses.get(storage, 0) for k in kernels) == len(deps.users[storage])


def _called(p: Pair, kernel: KernelDraft) -> str:
    return p.program.leaves[kernel.call or 0].name


CALL_RULES = (has_one_open_slot, is_plain_pointwise)
