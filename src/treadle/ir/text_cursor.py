"""A cursor over program text that knows where it is, so that every error has line and column."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from treadle.core.errors import InputError
from treadle.index import Expr, IndexSyntaxError
from treadle.index.text import parse_prefix
from treadle.ir.body import Literal
from treadle.ir.types import DTYPES, DType

T = TypeVar("T")

_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*")
_NUMBER = re.compile(
    r"-?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.[0-9]+|[0-9]+|inf\b)"
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_DEVICE = re.compile(r"[A-Za-z_0-9]+(?::[0-9]+)?")
_CONSTANTS = {"true": True, "false": False, "none": None, "nan": math.nan, "inf": math.inf}
MAX_DIGITS = 400


class Cursor:
    """A position in a text, line by line. Blank lines and lines of only a # comment are passed."""

    __slots__ = ("at", "file", "line", "lines", "text")

    def __init__(self, source: str, file: str) -> None:
        self.file = file
        self.lines = source.split("\n")
        self.line = 0
        self.at = 0
        self.text = ""
        self.next_line()

    # -- lines -----------------------------------------------------------------------------
    def next_line(self) -> None:
        """Go to the next line that says something; past the last one, `done` is true."""
        while self.line < len(self.lines):
            self.text = self.lines[self.line]
            self.line += 1
            stripped = self.text.strip()
            if stripped and not stripped.startswith("#"):
                self.at = 0
                self.skip_space()
                return
        self.line = len(self.lines) + 1
        self.text, self.at = "", 0

    @property
    def done(self) -> bool:
        """Whether all lines have been read."""
        return self.line > len(self.lines)

    @property
    def rest(self) -> str:
        """What is left of the line."""
        return self.text[self.at :].rstrip()

    def end_line(self) -> None:
        """Demand the end of the line and go to the next."""
        if self.rest:
            raise self.error("the end of the line")
        self.next_line()

    def error(self, expected: str, at: int | None = None, found: str | None = None) -> InputError:
        """The error that names this place."""
        column = self.at if at is None else at
        if found is None:
            if self.done:
                found = "the end of the text"
            else:
                shown = self.text[column : column + 24].rstrip()
                found = f"'{shown}'" if shown else "the end of the line"
        line = min(self.line, len(self.lines))
        return InputError(
            file=self.file,
            line=line,
            column=column + 1,
            expected=expected,
            found=found,
            code="TXT001",
        )

    # -- pieces ----------------------------------------------------------------------------
    def skip_space(self) -> None:
        """Pass blanks."""
        while self.at < len(self.text) and self.text[self.at] in " \t\r":
            self.at += 1

    def match(self, pattern: re.Pattern[str]) -> str | None:
        """Take what the pattern matches here, if it does."""
        found = pattern.match(self.text, self.at)
        if found is None:
            return None
        self.at = found.end()
        self.skip_space()
        return found.group()

    def peek_word(self) -> str:
        """The word that begins here, empty if none does."""
        found = _WORD.match(self.text, self.at)
        return found.group() if found else ""

    def take_word(self, word: str) -> bool:
        """Take `word` if it stands here."""
        if self.peek_word() != word:
            return False
        self.at += len(word)
        self.skip_space()
        return True

    def take(self, mark: str) -> bool:
        """Take the punctuation `mark` if it stands here."""
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        self.skip_space()
        return True

    def expect(self, mark: str) -> None:
        """Demand the punctuation `mark`."""
        if not self.take(mark):
            raise self.error(f"'{mark}'")

    def expect_word(self, *words: str) -> str:
        """Demand one of the given words."""
        found = self.peek_word()
        if found not in words:
            raise self.error(" or ".join(f"'{w}'" for w in words))
        self.take_word(found)
        return found

    def name(self, what: str = "a name") -> str:
        """A bare or quoted name."""
        if self.text.startswith('@"', self.at):
            self.at += 1
            return self.string()
        return self.word(what)

    def word(self, what: str) -> str:
        """A bare name: the only ones that index expressions can speak of."""
        word = self.match(_WORD)
        if word is None:
            raise self.error(what)
        return word

    def names(self, what: str = "a name") -> tuple[str, ...]:
        """One or more names between commas."""
        return self.separated(lambda: self.name(what))

    def names_in_parens(self, what: str = "a name") -> tuple[str, ...]:
        """Names in parentheses, possibly none."""
        return self.in_parens(lambda: self.name(what))

    def separated(self, item: Callable[[], T]) -> tuple[T, ...]:
        """One or more items between commas."""
        items = [item()]
        while self.take(","):
            items.append(item())
        return tuple(items)

    def in_parens(self, item: Callable[[], T], close: str = ")") -> tuple[T, ...]:
        """Items between commas up to a closing mark, possibly none."""
        self.expect({")": "(", "]": "["}[close])
        if self.take(close):
            return ()
        items = self.separated(item)
        self.expect(close)
        return items

    def string(self) -> str:
        """A quoted string."""
        start = self.at
        text = self.match(_STRING)
        if text is None:
            raise self.error("a quoted string")
        try:
            value = json.loads(text)
        except ValueError:
            raise self.error("a string with JSON escapes", start) from None
        assert isinstance(value, str)
        return value

    def device(self) -> str:
        """A device name."""
        if self.text.startswith('@"', self.at):
            return self.name()
        found = self.match(_DEVICE)
        if found is None:
            raise self.error("a device such as cpu or cuda:0")
        return found

    def integer(self, what: str = "an integer") -> int:
        """A whole number."""
        found = self.match(re.compile(r"-?[0-9]+"))
        if found is None or len(found) > MAX_DIGITS:
            raise self.error(what)
        return int(found)

    def value_number(self) -> int:
        """A reference to a value: %3."""
        found = self.match(re.compile(r"%[0-9]{1,9}\b"))
        if found is None:
            raise self.error("a value such as %0")
        return int(found[1:])

    def element_type(self) -> DType:
        """An element type."""
        found = DTYPES.get(self.peek_word())
        if found is None or found.text != self.peek_word():
            raise self.error(f"an element type ({', '.join(d.text for d in DType)})")
        self.take_word(found.text)
        return found

    def literal(self) -> Literal:
        """true, false, none, a number or a string."""
        if self.text.startswith('"', self.at):
            return Literal(self.string())
        word = self.peek_word()
        if word in _CONSTANTS:
            self.take_word(word)
            return Literal(_CONSTANTS[word])
        number = self.match(_NUMBER)
        if number is None or len(number) > MAX_DIGITS:
            raise self.error("a literal (true, false, none, a number or a string)")
        return Literal(int(number) if re.fullmatch(r"-?[0-9]+", number) else float(number))

    def expression(self, scope: Mapping[str, Expr]) -> Expr:
        """An index expression over the names of `scope`."""
        try:
            result, self.at = parse_prefix(self.text, self.at, scope, lambda name: None)
        except IndexSyntaxError as e:
            raise self.error(e.expected, e.column) from None
        self.skip_space()
        return result
