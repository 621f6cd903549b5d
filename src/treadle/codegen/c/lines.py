"""The lines that generated loops are made of, read again.

const float v3 = tr_vector_exp(v2) * x[(512 * i0 + r0)];
a4 += v3;
y[r0] = (v5);

Who writes a loop another way asks here what its lines say; what cannot be read gives None, and the
loop stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class CName:
    """A variable."""

    text: str


@dataclass(frozen=True)
class CNumber:
    """A literal."""

    text: str


@dataclass(frozen=True)
class CElement:
    """An element of memory: `base[index]`."""

    base: str
    index: CTree
    text: str
    """The index as it stands."""


@dataclass(frozen=True)
class CCall:
    """A function of values."""

    function: str
    args: tuple[CTree, ...]


@dataclass(frozen=True)
class CCast:
    """A value as another C type."""

    to: str
    value: CTree


@dataclass(frozen=True)
class CUnary:
    """An operator before a value."""

    op: str
    value: CTree


@dataclass(frozen=True)
class CBinary:
    """An operator between values."""

    op: str
    left: CTree
    right: CTree


@dataclass(frozen=True)
class CChoice:
    """One of two values, by a condition."""

    condition: CTree
    one: CTree
    other: CTree


CTree = CName | CNumber | CElement | CCall | CCast | CUnary | CBinary | CChoice


def written(e: CTree) -> str:
    """An expression as text, all of it in parentheses."""
    match e:
        case CName(text) | CNumber(text):
            return text
        case CElement(base, _, text):
            return f"{base}[{text}]"
        case CCall(function, args):
            return f"{function}({', '.join(map(written, args))})"
        case CCast(to, value):
            return f"(({to}){written(value)})"
        case CUnary(op, value):
            return f"({op}{written(value)})"
        case CBinary(op, left, right):
            return f"({written(left)} {op} {written(right)})"
        case CChoice(a, b, c):
            return f"({written(a)} ? {written(b)} : {written(c)})"


@dataclass(frozen=True)
class CDeclared:
    """`const TYPE name = value;`"""

    ctype: str
    name: str
    value: CTree


@dataclass(frozen=True)
class CAssigned:
    """`target OP value;`, where OP is = or an operator and =."""

    target: CName | CElement
    op: str
    value: CTree


CLine = CDeclared | CAssigned

TOKEN = re.compile(
    r"\s*(0x[0-9a-fA-F.]+p[+-]?\d+|\d+\.?\d*(?:e[+-]?\d+)?[fuL]*|[A-Za-z_]\w*"
    r"|\+=|-=|\*=|\|=|&=|\^=|<<|>>|[<>=!]=|&&|\|\||[-+*/%&|^~!<>?:=(),;\[\]])"
)
TYPES = frozenset({
    "float", "double", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t",
    "uint32_t", "uint64_t",
})  # fmt: skip
LEVELS: Sequence[frozenset[str]] = [
    frozenset({"||"}),
    frozenset({"&&"}),
    frozenset({"|"}),
    frozenset({"^"}),
    frozenset({"&"}),
    frozenset({"==", "!="}),
    frozenset({"<", ">", "<=", ">="}),
    frozenset({"<<", ">>"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
]
"""Operators between values, those that bind least first."""
ASSIGNS = frozenset({"=", "+=", "-=", "*=", "|=", "&=", "^="})


class _UnreadableError(Exception):
    """The text is none of these lines."""


@lru_cache(maxsize=1 << 14)
def read_line(text: str) -> CLine | None:
    """What a line says; None if it cannot be read."""
    try:
        return _Reader(text).line()
    except _UnreadableError:
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, int, int]] = []
        at = 0
        while at < len(text.rstrip()):
            found = TOKEN.match(text, at)
            if found is None:
                raise _UnreadableError(text[at:])
            self.tokens.append((found[1], found.start(1), found.end(1)))
            at = found.end()
        self.at = 0

    def line(self) -> CLine:
        """A whole line."""
        if self._peek() in ("const", *TYPES):
            if self._peek() == "const":
                self._next()
            ctype, name = self._next(), self._next()
            self._expect("=")
            found: CLine = CDeclared(ctype, name, self._value())
        else:
            target = self._postfix()
            if not isinstance(target, CName | CElement) or self._peek() not in ASSIGNS:
                raise _UnreadableError(self.text)
            found = CAssigned(target, self._next(), self._value())
        self._expect(";")
        if self.at != len(self.tokens):
            raise _UnreadableError(self.text)
        return found

    # -- tokens ----------------------------------------------------------------------------
    def _peek(self, ahead: int = 0) -> str:
        at = self.at + ahead
        return self.tokens[at][0] if at < len(self.tokens) else ""

    def _next(self) -> str:
        found = self._peek()
        if not found:
            raise _UnreadableError(self.text)
        self.at += 1
        return found

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _UnreadableError(self.text)

    # -- values ----------------------------------------------------------------------------
    def _value(self) -> CTree:
        condition = self._between(0)
        if self._peek() != "?":
            return condition
        self._next()
        one = self._value()
        self._expect(":")
        return CChoice(condition, one, self._value())

    def _between(self, level: int) -> CTree:
        if level == len(LEVELS):
            return self._unary()
        left = self._between(level + 1)
        while self._peek() in LEVELS[level]:
            left = CBinary(self._next(), left, self._between(level + 1))
        return left

    def _unary(self) -> CTree:
        token = self._peek()
        if token in ("-", "!", "~"):
            return CUnary(self._next(), self._unary())
        if token == "(" and self._peek(1) in TYPES and self._peek(2) == ")":
            self._next()
            to = self._next()
            self._next()
            return CCast(to, self._unary())
        return self._postfix()

    def _postfix(self) -> CTree:
        token = self._next()
        if token == "(":
            inner = self._value()
            self._expect(")")
            return inner
        if token[0].isdigit():
            return CNumber(token)
        if not (token[0].isalpha() or token[0] == "_"):
            raise _UnreadableError(self.text)
        if self._peek() == "(":
            return CCall(token, tuple(self._arguments()))
        if self._peek() == "[":
            self._next()
            start = self.tokens[self.at][1] if self.at < len(self.tokens) else 0
            index = self._value()
            end = self.tokens[self.at - 1][2]
            self._expect("]")
            return CElement(token, index, self.text[start:end])
        return CName(token)

    def _arguments(self) -> list[CTree]:
        self._expect("(")
        found = [self._value()]
        while self._peek() == ",":
            self._next()
            found.append(self._value())
        self._expect(")")
        return found
