"""What dumps of every kind have in common: lines with a cursor, findings, claims derived anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Difference = TypeVar("Difference")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something odd that is no reason to refuse the file; a note is odd but harmless."""

    code: str
    message: str
    line: int | None = None
    is_note: bool = False
    file: str | None = None
    """Named where one dump is several files."""

    def __str__(self) -> str:
        return f"{self._place}: {self.message} [{self.code}]"

    @property
    def _place(self) -> str:
        if self.file is None:
            return f"line {self.line}"
        return self.file if self.line is None else f"{self.file}:{self.line}"


@dataclass
class Rederivation(Generic[Difference]):
    """How many claims came out as printed, of how many (`total`), and which came out otherwise."""

    checked: dict[str, int]
    total: dict[str, int]
    differences: list[Difference] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @classmethod
    def counting(cls, kinds: Iterable[str]) -> Rederivation[Difference]:
        """Nothing compared yet, of each kind of claim."""
        counts = dict.fromkeys(kinds, 0)
        return cls(counts, dict(counts))


class DumpLines:
    """Lines and a position among them; `first` is the number of the first."""

    __slots__ = ("at", "file", "first", "lines")

    def __init__(self, lines: Sequence[str], file: str, first: int = 1) -> None:
        self.lines, self.file, self.first, self.at = lines, file, first, 0

    @property
    def done(self) -> bool:
        """Whether all lines have been taken."""
        return self.at >= len(self.lines)

    @property
    def text(self) -> str:
        """The line at the cursor; past the end, an empty one."""
        return self.lines[self.at] if self.at < len(self.lines) else ""

    @property
    def number(self) -> int:
        """The number of the line at the cursor, as editors count."""
        return self.first + self.at

    def take(self) -> str:
        """The line at the cursor, which moves on."""
        text = self.text
        self.at += 1
        return text

    def shown(self) -> str:
        """The line at the cursor in words for a message."""
        if not self.text.strip():
            return "a blank line"
        return f"'{self.text[:60]}{'...' if len(self.text) > 60 else ''}'"
