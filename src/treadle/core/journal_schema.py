"""What a journal of version 1 may hold: the kinds of events and the fields each must have.

Extra fields are welcome and need no new version; a new kind, or a required field that changes
its name or type, does, because readers refuse what they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SCHEMA_VERSION = 1
HEADER_KEY = "treadle_journal"

# The debug level from which a verdict is kept (see the option `debug`): there are few
# agreements and a great many refusals.
LEVEL_OF_AGREEMENT = 3
LEVEL_OF_REFUSAL = 4
EVERYTHING = 5

TEXT = (str,)
FLAG = (bool,)
WHOLE = (int,)
NUMBER = (int, float)
LIST = (list,)
TABLE = (dict,)

TYPE_PHRASES = {
    TEXT: "text",
    FLAG: "true or false",
    WHOLE: "a whole number",
    NUMBER: "a number",
    LIST: "a list",
    TABLE: "an object",
}


@dataclass(frozen=True, slots=True)
class EventKind:
    """What an event of this kind tells, and the fields it cannot go without."""

    tells: str
    required: Mapping[str, tuple[type, ...]]


KINDS: Mapping[str, EventKind] = {
    "pass": EventKind("a pass ran", {"name": TEXT, "changed": FLAG}),
    "candidate": EventKind("an action was considered", {"action": TEXT, "ops": LIST}),
    "verdict": EventKind(
        "a question was decided",
        {"question": TEXT, "ops": LIST, "ok": FLAG, "code": TEXT, "facts": TABLE},
    ),
    "step": EventKind("an action was taken", {"action": TEXT, "args": LIST}),
    "plan": EventKind("memory was planned", {"total_bytes": WHOLE, "plan_lower_bound": WHOLE}),
    "kernel": EventKind("a kernel was made", {"name": TEXT, "ops": LIST}),
    "timing": EventKind("something was timed", {"name": TEXT, "seconds": NUMBER}),
    "artifact": EventKind("a file was written", {"name": TEXT, "path": TEXT}),
    "note": EventKind("a remark for people", {"text": TEXT}),
}


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """Why an event does not fit the schema, as the two halves of an InputError."""

    expected: str
    found: str


def find_problem(event: object, n: int) -> SchemaProblem | None:
    """Return the first way in which plain data is not event number `n`, or None if it is."""
    if not isinstance(event, dict):
        return SchemaProblem("an event as a JSON object", repr(event))
    kind = event.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        found = repr(kind) if "kind" in event else "an event without a kind"
        return SchemaProblem(f"a kind among {', '.join(KINDS)}", found)
    if type(event.get("n")) is not int or event["n"] != n:
        return SchemaProblem(f"event number {n}", f"n = {event.get('n')!r}")
    for name, types in KINDS[kind].required.items():
        wanted = f"{TYPE_PHRASES[types]} in field '{name}' of a {kind} event"
        if name not in event:
            return SchemaProblem(wanted, "no such field")
        if type(event[name]) not in types:  # exact types, so that true is not a number
            return SchemaProblem(wanted, repr(event[name]))
    odd = [x for x in event.get("ops") or () if type(x) is not str]
    if odd and "ops" in KINDS[kind].required:
        return SchemaProblem(f"names of operations in field 'ops' of a {kind} event", repr(odd[0]))
    return None
