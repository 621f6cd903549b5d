"""HLO text: computations and their instructions, read tolerantly; nothing is evaluated.

    module = parse_hlo(text)
    for instruction in module.entry.instructions:
        instruction.name, instruction.opcode, instruction.operands, instruction.called

An operand `%fusion#0` is an element of a tuple, written in short (see `elements`).
Only what scheduling needs is taken apart: name, shape, opcode, operand names, computations called,
the root. Attributes stay text. Tables between the header and the first computation are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from treadle.core.errors import InputError
from treadle.frontends.xla_dump.lines import CODE
from treadle.frontends.xla_dump.model import XlaDump
from treadle.frontends.xla_dump.shapes import AnyShape, scan_shape

_MODULE = re.compile(r"HloModule ([^\s,]+)(.*)")
_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s%{}(),=]+)(?= \(|,| \{$)")
_INSTRUCTION = re.compile(r"(ROOT )?%?([^\s%{}(),=]+) = ")
_OPCODE = re.compile(r" ([a-z][a-z0-9-]*)\(")
_NAME_AT_END = re.compile(r"%?([^\s%{}(),=]+)$")
_CALLED = re.compile(
    r"(?:^|[ ,{])(to_apply|calls|body|condition|branch_computations|true_computation|"
    r"false_computation|called_computations|select|scatter|comparator|async_computation)="
    r"(\{[^{}]*\}|%?[^\s%{}(),=]+)"
)
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
SEQUENTIAL = ("call", "conditional", "while", "async-start")
"""Instructions whose computations are part of the schedule; others are called from inside."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `shape` is None where the text could not be taken apart."""

    name: str
    shape: AnyShape | None
    opcode: str
    operands: tuple[str, ...]
    called: tuple[tuple[str, str], ...] = ()
    """(attribute, computation), such as `("body", "region_5.61")`."""
    attributes: str = ""
    is_root: bool = False
    line: int = field(default=0, compare=False)
    is_implied: bool = False
    """Not in the text: it takes an element out of a tuple, written in short (`%fusion#0`)."""

    def computations(self) -> tuple[str, ...]:
        """The computations that run as part of the schedule, in the order they are numbered."""
        if self.opcode not in SEQUENTIAL:
            return ()
        names = [name for _, name in self.called]
        if self.opcode == "while":
            by_role = dict(self.called)
            wanted = ("condition", "body")
            return tuple([by_role[role] for role in wanted if role in by_role])
        return tuple(names)

    @property
    def parameter_number(self) -> int | None:
        """The number of a parameter; None for everything else."""
        text = self.operands[0] if self.opcode == "parameter" and self.operands else ""
        return int(text) if text.isdecimal() and len(text) < 10 else None


@dataclass(frozen=True, slots=True)
class Computation:
    """Instructions in schedule order, and the one whose value is the result."""

    name: str
    instructions: tuple[Instruction, ...]
    is_entry: bool = False
    line: int = field(default=0, compare=False)

    @property
    def root(self) -> Instruction:
        """The root: the one marked, else the last."""
        marked = [one for one in self.instructions if one.is_root]
        return marked[0] if marked else self.instructions[-1]


@dataclass(frozen=True)
class Module:
    """A module: its name, attributes and computations."""

    name: str
    attributes: str
    computations: tuple[Computation, ...]
    file: str = "<text>"

    @property
    def entry(self) -> Computation:
        """The computation a caller runs: the one marked, else the last."""
        marked = [one for one in self.computations if one.is_entry]
        return marked[0] if marked else self.computations[-1]

    @property
    def is_scheduled(self) -> bool:
        """Whether the order of the text is the order of execution."""
        return "is_scheduled=true" in self.attributes

    def by_name(self) -> Mapping[str, Computation]:
        """Computations by name."""
        return {one.name: one for one in self.computations}

    def dangling(self) -> Iterator[tuple[Instruction, str]]:
        """Operands and computations that are named but not there."""
        known = set(self.by_name())
        for computation in self.computations:
            local = {one.name for one in computation.instructions}
            for one in computation.instructions:
                if one.opcode not in ("parameter", "constant"):
                    yield from ((one, name) for name in one.operands if name not in local)
                yield from ((one, name) for _, name in one.called if name not in known)


def parse_hlo(text: str, file: str = "<text>") -> Module:
    """The module that `text` is, or one InputError that names the line."""
    lines = text.splitlines()
    header = _MODULE.match(lines[0]) if lines else None
    if not header:
        found = f"'{lines[0][:60]}'" if lines and lines[0].strip() else "none"
        raise _error(file, 1, "a header 'HloModule NAME, ...'", found)
    computations: list[Computation] = []
    at = 1
    while at < len(lines):
        bare = _bare(lines[at])
        title = _COMPUTATION.match(bare) if bare.endswith(" {") else None
        if not title:
            at = _skip_line(lines, at, file)
            continue
        body, end = _instructions(lines, at + 1, file)
        if not body:
            raise _error(file, at + 1, f"instructions in computation {title[2]}", "none")
        computations.append(Computation(title[2], tuple(body), bool(title[1]), at + 1))
        at = end
    if not computations:
        raise _error(file, len(lines), "a computation 'ENTRY NAME {'", "none")
    return Module(header[1], header[2], tuple(computations), file)


def _bare(line: str) -> str:
    """The line without a comment at its end."""
    head, slashes, _ = line.partition(" // ")
    return (head if slashes else line).rstrip()


def _skip_line(lines: list[str], at: int, file: str) -> int:
    text = lines[at].strip()
    if text in _TABLES:
        at += 1
        while at < len(lines) and lines[at].strip():
            at += 1
        return at
    if text and not text.startswith(("//", "#", "/*")):
        raise _error(file, at + 1, "a computation 'NAME {'", f"'{text[:60]}'")
    return at + 1


def _instructions(lines: list[str], at: int, file: str) -> tuple[list[Instruction], int]:
    found: list[Instruction] = []
    while at < len(lines):
        text = lines[at].strip()
        if text.startswith("}"):
            return found, at + 1
        if text and not text.startswith(("//", "#")):
            instruction = parse_instruction(text, at + 1)
            if not instruction:
                raise _error(file, at + 1, "'NAME = SHAPE OPCODE(OPERANDS)'", f"'{text[:60]}'")
            found.append(instruction)
        at += 1
    raise _error(file, len(lines), "'}' after the instructions: the file is cut", "the end")


def parse_instruction(text: str, line: int = 0) -> Instruction | None:
    """The instruction that the text is (`%a = f32[] add(%b, %c), attrs`), or None."""
    head = _INSTRUCTION.match(text)
    if not head:
        return None
    scanned = scan_shape(text, head.end())
    if scanned:
        shape, at = scanned
        opcode = _OPCODE.match(text, at)
    else:
        shape, opcode = None, _OPCODE.search(text, head.end())
    if not opcode:
        return None
    end = _closing(text, opcode.end())
    if end < 0:
        return None
    inside, attributes = text[opcode.end() : end], text[end + 1 :]
    operands = _operands(inside) if opcode[1] not in ("constant",) else ()
    called = tuple([(m[1], name) for m in _CALLED.finditer(attributes) for name in _names(m[2])])
    return Instruction(head[2], shape, opcode[1], operands, called, attributes, bool(head[1]), line)


def instructions_of(dump: XlaDump) -> Mapping[str, Instruction]:
    """The instructions that define a used value, by name, from the texts printed with it."""
    found: dict[str, Instruction] = {}
    for used in dump.used:
        if used.value.name not in found and (one := parse_instruction(used.instruction)):
            found[used.value.name] = one
    return found


def _names(text: str) -> list[str]:
    return [part.strip().removeprefix("%") for part in text.strip("{}").split(",") if part.strip()]


_COMMENT = re.compile(r"/\*.*?\*/")
_BRACKETS = re.compile(r'[()\[\]{},]|"(?:[^"\\]|\\.)*"|/\*.*?\*/')


def _closing(text: str, at: int) -> int:
    """Where the bracket that was opened before `at` is closed, or -1."""
    depth = 1
    for found in _BRACKETS.finditer(text, at):
        sign = found[0]
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:
            return found.start()
    return -1


def _operands(text: str) -> tuple[str, ...]:
    """The names of the operands; their shapes, if printed, and comments are left out."""
    text = _COMMENT.sub("", text)
    parts: list[str] = []
    depth = start = 0
    for found in _BRACKETS.finditer(text):
        sign = found[0]
        if sign == "," and depth == 0:
            parts.append(text[start : found.start()])
            start = found.end()
        else:
            depth += (sign in "([{") - (sign in ")]}")
    parts.append(text[start:])
    names = [_NAME_AT_END.search(part.strip()) for part in parts if part.strip()]
    return tuple([name[1] for name in names if name])


def _error(file: str, line: int, expected: str, found: str) -> InputError:
    return InputError(file=file, line=line, expected=expected, found=found, code=CODE)
