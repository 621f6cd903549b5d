"""Calibration files: JSON whose entries change tables of devices and machines, field by field.

    {"treadle_calibration": 1, "devices": {...}, "hardware": {...}, "collectives": [...],
     "traces": ["trace.json"]}

What a section means is said where its table is: `devices`, `comm/hardware`, `comm/measured`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from treadle.core.errors import InputError
from treadle.core.reading import read_utf8
from treadle.core.suggest import nearest

CALIBRATION_VERSION = 1
SECTIONS = ("devices", "hardware", "collectives", "traces")
Entry = TypeVar("Entry")
FieldCheck = Callable[[str, str, object, object], object]
"""(file, field, its type, a value) -> the value; an InputError if it cannot be."""


def calibration_of(file: str) -> dict[str, object]:
    """What a calibration file says, as plain data; an InputError if it is none."""
    try:
        data = json.loads(read_utf8(file))
    except OSError as e:
        raise bad_calibration(file, "a readable calibration file", e.strerror or str(e)) from None
    except UnicodeDecodeError:
        raise bad_calibration(file, "UTF-8 text", "other bytes") from None
    except (ValueError, RecursionError) as e:
        line = getattr(e, "lineno", None)
        raise bad_calibration(file, "JSON", str(getattr(e, "msg", e)), line) from None
    if not isinstance(data, dict) or data.get("treadle_calibration") != CALIBRATION_VERSION:
        wanted = f'an object with "treadle_calibration": {CALIBRATION_VERSION}'
        found = "a trace; a calibration file names it" if _is_trace(data) else "something else"
        raise bad_calibration(file, wanted, found)
    for key in data:
        if key not in SECTIONS and key != "treadle_calibration":
            close = ", ".join(nearest(key, list(SECTIONS))) or ", ".join(SECTIONS)
            raise bad_calibration(file, f"sections such as {close}", repr(key))
    return data


def _is_trace(data: object) -> bool:
    return isinstance(data, dict) and "traceEvents" in data


def changed_table(
    file: str, word: str, entries: object, base: Mapping[str, Entry], check: FieldCheck
) -> dict[str, Entry]:
    """A table with the entries of a file put in; `word` is what one of them is called.

    An entry starts from the one of its name, or from that under "like", and replaces fields.
    """
    if not isinstance(entries, dict):
        plural = "devices" if word == "device" else word
        raise bad_calibration(file, f'an object under "{plural}"', type(entries).__name__)
    table = dict(base)
    for name, entry in entries.items():
        table[name] = _changed(file, word, name, entry, table, check)
    return table


def _changed(
    file: str, word: str, name: str, entry: object, table: Mapping[str, Entry], check: FieldCheck
) -> Entry:
    if not isinstance(entry, dict):
        raise bad_calibration(file, f'an object for {word} "{name}"', type(entry).__name__)
    like = entry.get("like", name)
    if not isinstance(like, str) or like not in table:
        known = ", ".join(sorted(table))
        wanted = f'"like" with one of {known} for {word} "{name}"'
        raise bad_calibration(file, wanted, json.dumps(like))
    start: Any = table[like]
    kinds = {f.name: f.type for f in fields(start) if f.name != "name"}
    changes: dict[str, object] = {}
    for key, value in entry.items():
        if key == "like":
            continue
        if key not in kinds:
            close = ", ".join(nearest(key, list(kinds))) or ", ".join(kinds)
            raise bad_calibration(file, f'a field such as {close} in {word} "{name}"', repr(key))
        changes[key] = check(file, key, kinds[key], value)
    made: Entry = replace(start, name=name, **changes)
    return made


def bad_calibration(file: str, expected: str, found: str, line: int | None = None) -> InputError:
    """The one error of a calibration file that cannot be used."""
    return InputError(file=file, line=line, expected=expected, found=found, code="COST001")
