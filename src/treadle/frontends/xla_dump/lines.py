"""A cursor over the lines of one file, and the one message about a damaged file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from treadle.core.errors import InputError
from treadle.frontends.dumps import DumpLines
from treadle.frontends.xla_dump.model import HloValue, ShapeIndex, UnknownLine

CODE = "XLA001"
NUMBER = r"([0-9]{1,19})"
NAME = r"([^\s{}<>,:()%]+)"
INDEX = r"(\{(?:[0-9]{1,9}(?:,[0-9]{1,9})*)?\})"
# Lines that have a place of their own: elsewhere they are damage, not news.
_KNOWN = re.compile(
    r" (?:value|positions|uses|from instruction|reused by buffers of a different color):.*"
    r"|  (?:InstructionSequence|BufferLiveRange|Live ranges at .*|Stack trace breakdown .*):.*"
    r"|  \(none\)"
    rf"|  {NAME}(?: {INDEX})?|  {NAME}, operand .*"
    rf"|    {NUMBER}:{NAME}|    {NAME}{INDEX}:{NUMBER}-{NUMBER}"
    rf"|    {NAME}{INDEX}?: {NUMBER} bytes.*|  value: <.*"
)
VALUE = rf"<{NUMBER} {NAME}{INDEX}?( \(phi\))?(?: @{NUMBER})?>"


class HloLines(DumpLines):
    """The lines of a file and a position among them; indented lines may be set aside as unknown."""

    __slots__ = ("unknown",)

    def __init__(self, lines: Sequence[str], file: str) -> None:
        super().__init__(lines, file)
        self.unknown: list[UnknownLine] = []

    def expect(self, wanted: str, expected: str | None = None) -> int:
        """Take the line if it is exactly `wanted`, else raise; gives its number."""
        if self.done or self.text != wanted:
            raise self.error(expected or (f"'{wanted.strip()}'" if wanted else "a blank line"))
        self.at += 1
        return self.at

    def skip_unknown(self, known: Sequence[str] = ()) -> bool:
        """Set the line aside if it is indented and none that has a place elsewhere; say whether.

        `known` are beginnings that the caller wants to see itself.
        """
        text = self.text
        if self.done or not text.startswith(" ") or not text.strip():
            return False
        if any(text.startswith(start) for start in known) or _KNOWN.fullmatch(text):
            return False
        self.unknown.append(UnknownLine(text, self.number))
        self.at += 1
        return True

    def error(self, expected: str, found: str | None = None, line: int | None = None) -> InputError:
        """The one message: what was expected at the cursor, what is there."""
        return InputError(
            file=self.file,
            line=line or min(self.number, max(len(self.lines), 1)),
            expected=expected,
            found=self.shown() if found is None else found,
            code=CODE,
        )

    def shown(self) -> str:
        """The line at the cursor in words for a message."""
        if self.done:
            return "the end of the file"
        return super().shown()


def index_of(text: str | None) -> ShapeIndex | None:
    """The shape index that `{0,1}` says; None for None."""
    if text is None:
        return None
    return tuple([int(part) for part in text[1:-1].split(",") if part])


def value_of(found: re.Match[str], first: int = 1) -> HloValue:
    """The value whose five groups of the pattern VALUE begin at group `first`."""
    number, name, index, phi, color = found.group(*range(first, first + 5))
    return HloValue(int(number), name, index_of(index), bool(phi), int(color) if color else None)
