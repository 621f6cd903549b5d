"""Errors that say what, where, what would be legal, and where to read more.

    TreadleError          exit 1   the base; `except TreadleError` catches all of them
      InputError          exit 2   a file or a text is not what it should be
      UsageError          exit 2   a command, option or name that does not exist
      SpecError           exit 1   a program broke the rules of its stage
      InternalError       exit 1   Treadle broke a promise of its own

An error with a code renders as

    OPT001: unknown option 'chek'
      did you mean: check
      read more: treadle explain OPT001
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

SHOWN_VIOLATIONS = 10
SHOWN_CHARACTERS = 120


class TreadleError(Exception):
    """Anything Treadle reports to a person: a message, an optional code, optional notes."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, code: str | None = None, notes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.notes = tuple(notes)

    def __str__(self) -> str:
        return self.render()

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls the class with `args` again, which keyword-only parameters refuse;
        # errors do travel between processes (parallel tests, worker pools).
        return _rebuild, (type(self), self.args, self.__dict__)

    def render(self) -> str:
        """Return the whole text a person should see, without a final newline."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the lines of `render`: the message, then the indented notes."""
        yield f"{self.code}: {self.message}" if self.code else self.message
        for note in self.notes:
            yield f"  {note}"
        if self.code:
            yield f"  read more: treadle explain {self.code}"


class InputError(TreadleError):
    """A file or text that is not what it should be, on one line that editors can jump to.

    `expected` and `found` are phrases: "a buffer name", "'}'", "the end of the file".
    They and the file name may quote hostile input, so what cannot be printed is escaped.
    """

    exit_code = 2

    def __init__(
        self,
        *,
        file: object,
        expected: str,
        found: str,
        line: int | None = None,
        column: int | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(f"expected {_one_line(expected)}, found {_one_line(found)}", code=code)
        self.file = str(file)
        self.line = line
        self.column = column
        self.expected = expected
        self.found = found

    def lines(self) -> Iterator[str]:
        """Yield exactly one line, `file:line:column: expected X, found Y`, then the code if any."""
        place = [_printable(self.file)]
        if self.line is not None:
            place.append(str(self.line))
            if self.column is not None:
                place.append(str(self.column))
        suffix = f" [{self.code}]" if self.code else ""
        yield f"{':'.join(place)}: {self.message}{suffix}"


class UsageError(TreadleError):
    """A request that cannot be met as asked: unknown name, bad value, missing argument."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken invariant: its code, what is wrong, and where in the program (may be empty)."""

    code: str
    message: str
    where: str = ""

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"{self.code}{place}: {self.message}"


class SpecError(TreadleError):
    """A program that broke the spec of its stage; carries every violation, shows the first ones.

    Without a code of its own it takes the code of the first violation.
    """

    def __init__(
        self,
        message: str,
        violations: Sequence[Violation],
        *,
        code: str | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        if not violations:
            raise InternalError("a SpecError needs at least one violation")
        super().__init__(message, code=code or violations[0].code, notes=notes)
        self.violations = tuple(violations)

    def lines(self) -> Iterator[str]:
        """Yield the message, the first violations, a count of the rest, the notes."""
        head, *rest = super().lines()
        yield head
        for violation in self.violations[:SHOWN_VIOLATIONS]:
            yield f"  {violation}"
        if (hidden := len(self.violations) - SHOWN_VIOLATIONS) > 0:
            yield f"  and {hidden} more"
        yield from rest


class InternalError(TreadleError):
    """A promise Treadle made to itself and did not keep: always a bug here, never bad input."""

    def lines(self) -> Iterator[str]:
        """Yield the message and notes, then say whose fault it is."""
        yield from super().lines()
        yield "  this is a bug in Treadle, not in your program"


def _rebuild(
    kind: type[TreadleError], args: tuple[object, ...], state: dict[str, object]
) -> TreadleError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def _one_line(text: str) -> str:
    shown = _printable(text)
    if len(shown) <= SHOWN_CHARACTERS:
        return shown
    return shown[: SHOWN_CHARACTERS - 3] + "..."


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
