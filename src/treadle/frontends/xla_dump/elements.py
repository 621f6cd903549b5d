"""Elements of tuples written in short: `%fusion#0` for a get-tuple-element that is not printed.

Since 2026 XLA leaves most get-tuple-element instructions out of the HLO text and writes the
operands of their users as `%fusion#0`. The other files of a dump still name them. Here they are
put back, so that all that follows sees plain instructions:

    module = with_elements(module)      # one `fusion#0` before its first user
    module = with_names(module, dump)   # under the names that the rest of the dump gives away

Which name belongs to which element the texts of instructions in the used values say: they are
printed with the names. What such a text does not use is known by where it stands: a name that uses
the table of a tuple takes an element out of it, and is a position of just that element's value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from treadle.frontends.xla_dump.hlo import Computation, Instruction, Module, instructions_of
from treadle.frontends.xla_dump.model import HloPosition, UsedValue, XlaDump
from treadle.frontends.xla_dump.shapes import AnyShape, subshape

SIGN = "#"
OPCODE = "get-tuple-element"


def with_elements(module: Module) -> Module:
    """The module with an instruction for every element that is only written in short."""
    return replace(module, computations=tuple([_filled(one) for one in module.computations]))


def with_names(module: Module, dump: XlaDump) -> Module:
    """The module whose elements bear the names that the other files of the dump give them.

    An element that several instructions take out stands once for each of them.
    """
    if not dump.used or not any(one.is_implied for one in _instructions(module)):
        return module
    naming = _Naming(module, dump)
    return replace(module, computations=tuple([naming.renamed(c) for c in module.computations]))


def _instructions(module: Module) -> Iterator[Instruction]:
    for computation in module.computations:
        yield from computation.instructions


def place_of(operand: str) -> HloPosition:
    """Where an operand stands: `fusion#0`, if nothing bears another name for it, in `fusion`."""
    base, *path = operand.split(SIGN)
    return HloPosition(base, tuple([int(part) for part in path if part.isdecimal()]))


# -- putting in --------------------------------------------------------------------------------
def _filled(computation: Computation) -> Computation:
    known: dict[str, AnyShape | None] = {}
    filled: list[Instruction] = []
    for one in computation.instructions:
        if one.opcode not in ("parameter", "constant"):
            for operand in one.operands:
                filled += _missing(operand, known, one.line)
        known[one.name] = one.shape
        filled.append(one)
    if len(filled) == len(computation.instructions):
        return computation
    return replace(computation, instructions=tuple(filled))


def _missing(operand: str, known: dict[str, AnyShape | None], line: int) -> Iterator[Instruction]:
    """The instructions that `a#0#1` stands for and that are not there yet, outermost first."""
    base, *path = operand.split(SIGN)
    if base not in known or not path or not all(part.isdecimal() for part in path):
        return
    for part in path:
        whole, base = base, f"{base}{SIGN}{part}"
        if base in known:
            continue
        shape = known[whole]
        element = None if shape is None else subshape(shape, (int(part),))
        if shape is not None and element is None:
            return  # no such element: the operand leads nowhere and is reported as that
        known[base] = element
        yield Instruction(
            base, element, OPCODE, (whole,), (), f", index={part}", False, line, is_implied=True
        )


# -- naming ------------------------------------------------------------------------------------
class _Naming:
    """Which instructions of the dump take out which element."""

    def __init__(self, module: Module, dump: XlaDump) -> None:
        self.known = {one.name for one in _instructions(module)}
        self.time = {name: t for t, name in enumerate(dump.live.sequence)} if dump.live else {}
        self.printed = self._from_texts(module, dump.derive(instructions_of))
        self.possible = self._from_positions(dump.used)
        self.taken = {name for names in self.printed.values() for name in names}

    def _from_texts(
        self, module: Module, texts: Mapping[str, Instruction]
    ) -> dict[str, dict[str, None]]:
        """Short name -> the names that stand in its place where the instruction is printed."""
        short = {one.name for one in _instructions(module) if one.is_implied}
        found: dict[str, dict[str, None]] = {}
        for one in _instructions(module):
            text = texts.get(one.name)
            if text and len(text.operands) == len(one.operands):
                for ours, theirs in zip(one.operands, text.operands, strict=True):
                    if ours in short and theirs not in self.known:
                        found.setdefault(ours, {})[theirs] = None
        return found

    def _from_positions(self, used: Iterable[UsedValue]) -> dict[HloPosition, dict[str, None]]:
        """Tuple and index -> the names that may take this element out, by the used values."""
        value_at: dict[HloPosition, UsedValue] = {}
        for one in used:
            for position in one.positions:
                value_at.setdefault(position.place, one)
        found: dict[HloPosition, dict[str, None]] = {}
        for table in used:
            tuples = {p.name for p in table.positions if p.index == ()}
            for use in table.uses:
                element = value_at.get(HloPosition(use.name, ()))
                if use.name in self.known or use.operand or use.index != () or element is None:
                    continue
                for place in [p.place for p in element.positions]:
                    if len(place.path) == 1 and place.name in tuples:
                        found.setdefault(place, {})[use.name] = None
        return found

    def renamed(self, computation: Computation) -> Computation:
        """The computation with the names of the dump."""
        times = [self.time[o.name] for o in computation.instructions if o.name in self.time]
        end = max(times, default=0)
        new_name: dict[str, str] = {}
        result: list[Instruction] = []
        for one in computation.instructions:
            operands = tuple([new_name.get(name, name) for name in one.operands])
            plain = one if operands == one.operands else replace(one, operands=operands)
            names = self._names(plain, end) if one.is_implied else [one.name]
            new_name[one.name] = names[0]
            result += [replace(plain, name=name) for name in names]
        return replace(computation, instructions=tuple(result))

    def _names(self, element: Instruction, end: int) -> list[str]:
        index = int(element.name.rpartition(SIGN)[2])
        names = list(self.printed.get(element.name, ()))
        start = self.time.get(element.operands[0], 0)
        for name in self.possible.get(HloPosition(element.operands[0], (index,)), ()):
            # Branches that get the same tuple take the same values out of it, each in its time.
            is_here = start <= self.time.get(name, start) <= end if self.time else not names
            if name not in self.taken and is_here:
                names.append(name)
                self.taken.add(name)
        return names or [element.name]
