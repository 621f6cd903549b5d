"""Reads a journal file line by line and refuses what is damaged, with the place of the damage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from treadle.core.errors import InputError
from treadle.core.journal_schema import EVERYTHING, HEADER_KEY, SCHEMA_VERSION, find_problem
from treadle.core.reading import read_bytes

if TYPE_CHECKING:
    from os import PathLike


@dataclass(frozen=True, slots=True)
class JournalContent:
    """What a journal file says: the level it was kept at, its events, the verdicts left out."""

    level: int
    events: tuple[dict[str, Any], ...]
    left_out: dict[str, int]
    left_out_agreed: dict[str, int]


def read_journal(path: str | PathLike[str], text: str | None = None) -> JournalContent:
    """Return the checked content of a journal file, or raise an InputError naming file and line.

    With `text`, that is what the file holds: a pipe can be read only once.
    """
    lines = _lines(path) if text is None else text.encode("utf-8").splitlines()
    if not lines:
        _refuse(path, 1, f"a journal header with '{HEADER_KEY}'", "an empty file")
    header = _read_header(path, lines[0])
    events = []
    for n, raw in enumerate(lines[1:]):
        event = _parse(path, n + 2, raw)
        if problem := find_problem(event, n):
            _refuse(path, n + 2, problem.expected, problem.found)
        events.append(event)
    if len(events) != header["events"]:
        expected = f"{header['events']} events as the header says"
        _refuse(path, len(lines), expected, f"{len(events)} events in the file")
    return JournalContent(
        header["level"], tuple(events), header["left_out"], header["left_out_agreed"]
    )


def _read_header(path: object, raw: bytes) -> dict[str, Any]:
    header = _parse(path, 1, raw)
    if not isinstance(header, dict) or HEADER_KEY not in header:
        _refuse(path, 1, f"a journal header with '{HEADER_KEY}'", repr(header))
    version = header[HEADER_KEY]
    if type(version) is not int or version < 1:
        _refuse(path, 1, "a journal version such as 1", repr(version))
    if version > SCHEMA_VERSION:
        expected = f"journal version {SCHEMA_VERSION} or older"
        _refuse(path, 1, expected, f"version {version}, written by a newer Treadle")
    level, events = header.get("level"), header.get("events")
    if type(level) is not int or not 0 <= level <= EVERYTHING:
        _refuse(path, 1, f"a level from 0 to {EVERYTHING} in the header", repr(level))
    if type(events) is not int or events < 0:
        _refuse(path, 1, "a count of events in the header", repr(events))
    header.setdefault("left_out_agreed", {})  # older files do not have it
    for key in ("left_out", "left_out_agreed"):
        counts = header.get(key)
        if not isinstance(counts, dict) or not all(type(n) is int for n in counts.values()):
            _refuse(path, 1, f"counts by code in '{key}' of the header", repr(counts))
    return header


def _lines(path: str | PathLike[str]) -> list[bytes]:
    try:
        return read_bytes(path).splitlines()
    except OSError as error:
        reason = (error.strerror or "an error").lower()
        raise InputError(file=path, expected="a readable journal", found=reason) from error


def _parse(path: object, line: int, raw: bytes) -> Any:
    import json

    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        _refuse(path, line, "text in UTF-8", "other bytes")
    except json.JSONDecodeError as error:
        found = "an unfinished or damaged line" if raw.strip() else "an empty line"
        _refuse(path, line, "one JSON object", found, column=error.colno)
    except (ValueError, RecursionError) as error:
        _refuse(path, line, "one JSON object", str(error))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which JSON has no form for")


def _refuse(
    path: object, line: int, expected: str, found: str, column: int | None = None
) -> NoReturn:
    raise InputError(file=path, line=line, column=column, expected=expected, found=found)
