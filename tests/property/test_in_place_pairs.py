"""The fast search for hand-overs finds what asking every rule about every pair finds."""

from __future__ import annotations

from focused_programs import relays
from hypothesis import given
from small_programs import small_programs

from treadle.analysis.access import accesses
from treadle.analysis.deps import dependences
from treadle.analysis.inplace import (
    ORDER_FREE_RULES,
    InPlace,
    InPlaceCandidate,
    input_dies_here,
    possible_pairs,
)
from treadle.core.verdict import check_rules
from treadle.ir.program import Grouped, Loop, Operation, Program


def all_pairs(program: Program) -> list[InPlaceCandidate]:
    """Every output of every kernel with every input it only reads, smaller inputs first."""
    found = []
    known, deps = program.derive(accesses), dependences(program)
    waiting: list[Operation] = list(program.ops)
    while waiting:
        op = waiting.pop(0)
        if isinstance(op, Grouped):
            waiting[:0] = op.members
            continue
        if not all(isinstance(leaf, Loop) for leaf in op.leaves):
            continue
        touches = tuple([a for leaf in op.leaves for a in known[leaf.name]])
        written = dict.fromkeys(a.storage for a in touches if a.is_write)
        read = [s for s in dict.fromkeys(a.storage for a in touches) if s not in written]
        read.sort(key=lambda n: program.by_name[n].storage_bytes)
        found += [InPlaceCandidate(program, deps, op, touches, o, i) for o in written for i in read]
    return found


def asked_one_by_one(program: Program) -> list[InPlace]:
    """What `possible_pairs` promises, without any short cut."""
    found: list[InPlace] = []
    pairs = all_pairs(program)
    for now in (True, False):
        for c in pairs:
            used = {p.inp for p in found}, {p.out for p in found}
            free = c.inp not in used[0] and c.out not in used[1]
            if free and bool(input_dies_here(c)) == now and check_rules(ORDER_FREE_RULES, c):
                found.append(InPlace(c.op.name, c.out, c.inp, now))
    return found


@given(small_programs())
def test_small_programs_hand_over_what_the_rules_allow(program: Program) -> None:
    assert list(possible_pairs(program)) == asked_one_by_one(program)


@given(relays())
def test_relays_hand_over_what_the_rules_allow(program: Program) -> None:
    assert list(possible_pairs(program)) == asked_one_by_one(program)
