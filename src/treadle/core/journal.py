"""The journal: what happened in one compilation, as plain events that outlive the process.

Everything a person sees later (console, report, diff) is computed from these events, so a
report can be made from a file somebody else sent. The file is JSONL: a header line with the
schema version, then one event a line. `journal_schema` says which events exist.

One journal belongs to one compilation in one thread; it takes no locks and promises nothing
to two threads that emit at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from treadle.core.errors import InternalError, UsageError
from treadle.core.journal_schema import (
    EVERYTHING,
    HEADER_KEY,
    LEVEL_OF_AGREEMENT,
    LEVEL_OF_REFUSAL,
    SCHEMA_VERSION,
    find_problem,
)
from treadle.core.plain import as_plain

if TYPE_CHECKING:
    from os import PathLike

    from treadle.core.verdict import Verdict

Event: TypeAlias = Mapping[str, Any]


def decision_line(event: Event) -> str:
    """One decision: `fuse add, mul: no FUS004 (left=64, right=32)`."""
    facts = ", ".join(f"{key}={value}" for key, value in event["facts"].items())
    word = "yes" if event["ok"] else "no"
    shown = f" ({facts})" if facts else ""
    return f"{event['question']} {', '.join(map(str, event['ops']))}: {word} {event['code']}{shown}"


class _Decided(NamedTuple):
    """A verdict as it came."""

    question: str
    ops: Sequence[object]
    verdict: Verdict

    def event(self, n: int) -> Event:
        """The same as event number n."""
        verdict = self.verdict
        return {
            "kind": "verdict",
            "n": n,
            "question": self.question,
            "ops": as_plain(self.ops),
            "ok": verdict.ok,
            "code": verdict.code,
            "facts": as_plain(verdict.facts),
        }


class Journal:
    """Collects events in order; switched off, an emit costs one `if`.

    `level` is the debug level: verdicts above it are counted by code but not kept, so that a
    quiet run stays small and can still say how often each rule refused.
    """

    __slots__ = ("_done", "_kept", "_left_out", "_left_out_agreed", "enabled", "level")

    def __init__(self, enabled: bool = True, level: int = EVERYTHING) -> None:
        self.enabled = enabled
        self.level = level
        self._kept: list[Event | _Decided] = []
        self._done = 0
        self._left_out: Counter[str] = Counter()
        self._left_out_agreed: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def _events(self) -> list[Event]:
        """All events in plain form; verdicts, by far the most, are put into it when asked for."""
        kept = self._kept
        for n in range(self._done, len(kept)):
            one = kept[n]
            if isinstance(one, _Decided):
                kept[n] = one.event(n)
        self._done = len(kept)
        return cast("list[Event]", kept)

    def __bool__(self) -> bool:
        return True  # an empty journal is still a journal: `journal or default` must not drop it

    def emit(self, kind: str, /, **fields: object) -> None:
        """Append one event; a field the kind requires must be there and have its type."""
        if not self.enabled:
            return
        if kind == "verdict" and not self._keeps_verdict(fields):
            return
        n = len(self._kept)
        event = {"kind": kind, "n": n, **{name: as_plain(value) for name, value in fields.items()}}
        if problem := find_problem(event, n):
            raise InternalError(
                f"journal event {n} ({kind}): expected {problem.expected}, found {problem.found}"
            )
        self._kept.append(event)

    def verdict(self, question: str, ops: Sequence[object], verdict: Verdict) -> None:
        """Append what was decided about `ops`: `journal.verdict("fuse", (a, b), verdict)`."""
        if not self.enabled:
            return
        if self.level >= (LEVEL_OF_AGREEMENT if verdict.ok else LEVEL_OF_REFUSAL):
            self._kept.append(_Decided(question, ops, verdict))
        else:
            self._leave_out(verdict.code, verdict.ok)

    def events(self, kind: str | None = None) -> Iterator[Event]:
        """Yield the events of one kind, or all of them, in order; they are not to be changed."""
        return (event for event in self._events if kind is None or event["kind"] == kind)

    def summary(self) -> dict[str, dict[str, int]]:
        """Count the kept events by kind, and all verdicts by code, the ones not kept included."""
        kinds = Counter(event["kind"] for event in self._events)
        codes = Counter(event["code"] for event in self.events("verdict")) + self._left_out
        return {"events": dict(sorted(kinds.items())), "verdicts": dict(sorted(codes.items()))}

    def decided(self, ok: bool) -> dict[str, int]:
        """Count the agreements or the refusals by code, the ones not kept included.

        One code may be that of both: KER007 says how a loop is walked, or why it stays as it is.
        """
        kept = Counter(event["code"] for event in self.events("verdict") if event["ok"] is ok)
        agreed = self._left_out_agreed
        return dict(sorted((kept + (agreed if ok else self._left_out - agreed)).items()))

    def write(self, path: str | PathLike[str]) -> None:
        """Write the journal as JSONL; equal journals give equal bytes."""
        import json

        from treadle import __version__

        header: dict[str, object] = {
            HEADER_KEY: SCHEMA_VERSION,
            "treadle": __version__,
            "level": self.level,
            "events": len(self._events),
            "left_out": dict(sorted(self._left_out.items())),
        }
        if self._left_out_agreed:
            header["left_out_agreed"] = dict(sorted(self._left_out_agreed.items()))
        try:
            with open(path, "w", encoding="utf-8", newline="\n") as file:
                for line in (header, *self._events):
                    file.write(json.dumps(line, allow_nan=False) + "\n")
        except OSError as error:
            raise UsageError(f"cannot write the journal {path}: {error.strerror}") from error

    @classmethod
    def read(cls, path: str | PathLike[str], text: str | None = None) -> Journal:
        """Return the journal that `write` left in a file; damage is an InputError with its line.

        With `text`, that is what the file holds.
        """
        from treadle.core.journal_file import read_journal

        content = read_journal(path, text)
        journal = cls(level=content.level)
        journal._kept.extend(content.events)
        journal._left_out.update(content.left_out)
        journal._left_out_agreed.update(content.left_out_agreed)
        return journal

    def _keeps_verdict(self, fields: Mapping[str, object]) -> bool:
        ok, code = fields.get("ok"), fields.get("code")
        if not isinstance(ok, bool) or not isinstance(code, str):
            return True  # not a verdict at all: the check of kept events says so
        if self.level >= (LEVEL_OF_AGREEMENT if ok else LEVEL_OF_REFUSAL):
            return True
        self._leave_out(code, ok)
        return False

    def _leave_out(self, code: str, ok: bool) -> None:
        self._left_out[code] += 1
        if ok:
            self._left_out_agreed[code] += 1
