"""The kinds of values an option can have: how to say, check and read each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from treadle.core.sizes import FORMS, parse_bytes


class Allowed(Protocol):
    """The values one option accepts."""

    def describe(self) -> str:
        """Return the accepted values as a phrase: "a whole number from 0 to 3"."""
        ...

    def accepts(self, value: object) -> bool:
        """Return whether the option may hold `value`."""
        ...

    def parse(self, text: str) -> object:
        """Return the value written as `text` in the environment, or raise ValueError."""
        ...


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """An integer from `low` up to and including `high`, or without an upper end."""

    low: int
    high: int | None = None

    def describe(self) -> str:
        """Return the range as a phrase."""
        if self.high is None:
            return f"a whole number from {self.low} up"
        return f"a whole number from {self.low} to {self.high}"

    def accepts(self, value: object) -> bool:
        """Return whether `value` is an int in range; True is not a number here."""
        if type(value) is not int:
            return False
        return self.low <= value and (self.high is None or value <= self.high)

    def parse(self, text: str) -> int:
        """Return the number; only decimal digits count, so `1_000` and `0x1` are refused."""
        if not re.fullmatch(r"-?[0-9]+", text.strip(), re.ASCII):
            raise ValueError(text)
        return int(text)


@dataclass(frozen=True, slots=True)
class ByteCount:
    """A number of bytes from `low` up; text such as `16MiB` stands for one."""

    low: int

    def describe(self) -> str:
        """Return the forms as a phrase."""
        return f"{FORMS}, at least {self.low}"

    def accepts(self, value: object) -> bool:
        """Return whether `value` is an int in range; True is not a number here."""
        return type(value) is int and self.low <= value

    def parse(self, text: str) -> int:
        """Return the number of bytes."""
        return parse_bytes(text)


@dataclass(frozen=True, slots=True)
class ByteCountOrAuto(ByteCount):
    """A number of bytes, or `auto`: whoever needs it finds it."""

    def describe(self) -> str:
        """Return the forms as a phrase."""
        return f"auto, or {FORMS}, at least {self.low}"

    def accepts(self, value: object) -> bool:
        """Return whether `value` is the word or an int in range."""
        return value == "auto" or (type(value) is int and self.low <= value)

    def parse(self, text: str) -> int | str:  # type: ignore[override]
        """Return the number of bytes, or the word."""
        return text if text == "auto" else parse_bytes(text)


@dataclass(frozen=True, slots=True)
class AnyText:
    """Any text that is not empty; `what` says what it stands for."""

    what: str

    def describe(self) -> str:
        """Return what the text stands for."""
        return self.what

    def accepts(self, value: object) -> bool:
        """Return whether `value` is text with something in it."""
        return isinstance(value, str) and value != ""

    def parse(self, text: str) -> str:
        """Return the text as it is."""
        return text


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """A regular expression that compiles."""

    def describe(self) -> str:
        """Return the phrase for a pattern."""
        return "a regular expression"

    def accepts(self, value: object) -> bool:
        """Return whether `value` is a pattern that compiles."""
        if not isinstance(value, str) or value == "":
            return False
        try:
            re.compile(value)
        except (re.error, RecursionError, OverflowError):
            return False
        return True

    def parse(self, text: str) -> str:
        """Return the pattern as it is; `accepts` decides."""
        return text


@dataclass(frozen=True, slots=True)
class Flag:
    """On or off; in the environment 1 or 0."""

    def describe(self) -> str:
        """Return both spellings."""
        return "True or False (in the environment 1 or 0)"

    def accepts(self, value: object) -> bool:
        """Return whether `value` is a bool."""
        return isinstance(value, bool)

    def parse(self, text: str) -> bool:
        """Return True for 1 and False for 0."""
        if text.strip() not in ("0", "1"):
            raise ValueError(text)
        return text.strip() == "1"


class OneOf:
    """One of a few words."""

    __slots__ = ("words",)

    def __init__(self, *words: str) -> None:
        self.words = words

    def describe(self) -> str:
        """Return the words."""
        return "one of " + ", ".join(self.words)

    def accepts(self, value: object) -> bool:
        """Return whether `value` is one of the words."""
        return value in self.words

    def parse(self, text: str) -> str:
        """Return the word as it is; `accepts` decides."""
        return text.strip()
