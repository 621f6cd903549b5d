"""Positions, uses and shapes of values, compared with the texts of the instructions.

An operand of an instruction is a use of every value that has the operand as a position, so uses
follow from positions and the texts: those printed with the values, or the HLO text. Instructions
that only take a tuple apart use its table alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from treadle.frontends.xla_dump.elements import SIGN, place_of
from treadle.frontends.xla_dump.hlo import Instruction, instructions_of
from treadle.frontends.xla_dump.model import Assigned, HloPosition, UsedValue, XlaDump
from treadle.frontends.xla_dump.shapes import parse_shape, subshape

LEAVES = ("parameter", "constant")
TAKES_APART = ("get-tuple-element", "copy", "bitcast", "domain", "optimization-barrier")
NOT_ALWAYS = ("tuple", "domain")
"""What only passes a value on is listed as a use where it is a root."""

Wrong = tuple[int, str]
"""Line in the file of the values, what is wrong."""


def texts_of(dump: XlaDump) -> Mapping[str, Instruction]:
    """All instructions whose text is known, from the dump and from the HLO text next to it."""
    found = dict(dump.derive(instructions_of))
    if dump.module:
        for computation in dump.module.computations:
            for one in computation.instructions:
                found.setdefault(one.name, one)
    return found


def wrong_values(dump: XlaDump) -> Iterator[Wrong]:
    """Entries that contradict themselves: order, first position, instruction, repetitions."""
    known = dump.derive(instructions_of)
    first: dict[str, str] = {}
    for one, following in pairwise(dump.used):
        if following.value.id <= one.value.id:
            yield following.line, f"used value {following.value} stands after {one.value}"
    for used in dump.used:
        if not used.positions or used.positions[0].place != used.value.place:
            yield used.line, f"the first position of {used.value} is not where it is made"
        if len(set(used.positions)) < len(used.positions) or len(set(used.uses)) < len(used.uses):
            yield used.line, f"a position or use of {used.value} stands twice"
        text = known.get(used.value.name)
        if text and text.name != used.value.name:
            yield used.line, f"the instruction of {used.value} is printed as {text.name}"
        if first.setdefault(used.value.name, used.instruction) != used.instruction:
            yield used.line, f"the instruction of {used.value} was printed otherwise before"


def count_unreadable(dump: XlaDump) -> int:
    """How many instruction texts could not be taken apart: nothing is concluded from them."""
    known = dump.derive(instructions_of)
    names = {used.value.name for used in dump.used}
    return sum(name not in known or known[name].shape is None for name in names)


def wrong_shapes(dump: XlaDump) -> Iterator[tuple[Assigned, str]]:
    """Values whose shape is not the one that their instruction makes there."""
    known = dump.derive(instructions_of)
    for _, one in dump.assigned():
        text = known.get(one.value.name)
        whole = text.shape if text else None
        made = None if whole is None else subshape(whole, one.value.index or ())
        if made is not None and made != parse_shape(one.shape):
            yield one, str(made)


def wrong_uses(dump: XlaDump) -> Iterator[Wrong]:
    """Uses that no operand makes, and operands that no use lists."""
    texts = dump.derive(texts_of)
    consumers: dict[HloPosition, list[tuple[str, int]]] = {}
    for name, text in texts.items():
        if text.opcode not in LEAVES and SIGN not in name:
            for number, operand in enumerate(text.operands):
                consumers.setdefault(place_of(operand), []).append((name, number))
    for used in dump.used:
        yield from _unmade(used, texts)
        yield from _unlisted(used, texts, consumers)


def _unmade(used: UsedValue, texts: Mapping[str, Instruction]) -> Iterator[Wrong]:
    places = {position.place for position in used.positions}
    for use in used.uses:
        text = texts.get(use.name)
        if text is None or text.opcode in LEAVES:
            continue
        operand = text.operands[use.operand] if use.operand < len(text.operands) else None
        base, path = place_of(operand or "")
        if operand is None or HloPosition(base, path + (use.index or ())) not in places:
            yield used.line, f"{used.value} is no operand {use.operand} of {use.name}"
            return


def _unlisted(
    used: UsedValue,
    texts: Mapping[str, Instruction],
    consumers: Mapping[HloPosition, list[tuple[str, int]]],
) -> Iterator[Wrong]:
    listed = {(use.name, use.operand, use.index or ()) for use in used.uses}
    for position in used.positions:
        index = position.index or ()
        for depth in range(len(index) + 1):
            rest = index[depth:]
            for name, number in consumers.get(HloPosition(position.name, index[:depth]), ()):
                opcode = texts[name].opcode
                if opcode in NOT_ALWAYS or (rest and opcode in TAKES_APART):
                    continue
                if (name, number, rest) not in listed:
                    yield used.line, f"{used.value} is operand {number} of {name}: no such use"
                    return
