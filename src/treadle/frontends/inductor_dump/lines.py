"""A cursor over the lines of one section, and small scanners that respect brackets and quotes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from treadle.core.errors import InputError
from treadle.frontends.dumps import DumpLines

CODE = "IND001"
MAX_DEPTH = 40  # nested brackets or groups; real dumps have three

_SPECIAL = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[()\[\]{},'\"]")
_CLOSES = {"(": ")", "[": "]", "{": "}"}


class SectionLines(DumpLines):
    """The lines of a section and a position among them; after `end` all lines are blank."""

    __slots__ = ("end",)

    def __init__(self, lines: Sequence[str], file: str, first: int = 1) -> None:
        super().__init__(lines, file, first)
        self.end = len(lines)
        while self.end and not lines[self.end - 1]:
            self.end -= 1

    def error(self, expected: str, found: str | None = None, line: int | None = None) -> InputError:
        """The one message about a damaged file: what was expected at the cursor, what is there."""
        if found is None:
            found = self.shown()
        return InputError(
            file=self.file, line=line or self.number, expected=expected, found=found, code=CODE
        )

    def shown(self) -> str:
        """The line at the cursor in words for a message."""
        if self.at >= self.end:
            return "the end of the dump"
        return super().shown()


def closing(text: str, at: int) -> int:
    """The position of the bracket that closes the one at `at`, or -1."""
    waiting: list[str] = []
    for special in _SPECIAL.finditer(text, at):
        sign = special[0]
        if sign in _CLOSES:
            waiting.append(_CLOSES[sign])
        elif sign in ")]}":
            if not waiting or waiting.pop() != sign:
                return -1
            if not waiting:
                return special.start()
        elif sign in ("'", '"'):
            return -1
        if len(waiting) > MAX_DEPTH:
            return -1
    return -1


def is_balanced(text: str) -> bool:
    """Whether every bracket and quote in `text` is closed."""
    return closing(f"({text})", 0) == len(text) + 1


def split_commas(text: str) -> list[str] | None:
    """The parts of `text` between commas outside brackets, stripped of the blanks before them.

    None if the brackets do not match. An empty text has no parts.
    """
    if not text:
        return []
    parts: list[str] = []
    waiting: list[str] = []
    start = 0
    for special in _SPECIAL.finditer(text):
        sign = special[0]
        if sign == ",":
            if not waiting:
                parts.append(text[start : special.start()].lstrip(" "))
                start = special.end()
        elif sign in _CLOSES:
            waiting.append(_CLOSES[sign])
            if len(waiting) > MAX_DEPTH:
                return None
        elif sign in ")]}":
            if not waiting or waiting.pop() != sign:
                return None
        elif sign in ("'", '"'):
            return None
    if waiting:
        return None
    parts.append(text[start:].lstrip(" "))
    return parts
