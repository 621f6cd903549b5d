"""Reproducers: one file with a program, the passes to run on it, and the options.

The first line is a JSON header, the rest is the text of the program, so that a person can read and
shrink it:

    {"treadle_repro": 1, "passes": ["merge-loops"], "options": {"check": 1}, "error": "..."}
    treadle 1
    program ...
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from treadle.core.errors import InputError, TreadleError
from treadle.core.options import Options
from treadle.core.reading import read_utf8
from treadle.ir.program import Program
from treadle.ir.text import parse_program, show_program

VERSION = 1
KEPT_OPTIONS = ("check", "seed", "stop_after")


@dataclass(frozen=True)
class Reproducer:
    """What a reproducer file holds."""

    program: Program
    passes: tuple[str, ...]
    options: Options
    error: str


def write_reproducer(
    folder: str, program: Program, passes: Sequence[str], options: Options, error: str
) -> str:
    """Write a reproducer named after its content; gives the path."""
    kept = {k: v for k, v in asdict(options).items() if k in KEPT_OPTIONS}
    header = {"treadle_repro": VERSION, "passes": list(passes), "options": kept, "error": error}
    text = json.dumps(header) + "\n" + show_program(program)
    name = f"repro-{hashlib.sha256(text.encode()).hexdigest()[:10]}.pkg"
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def read_reproducer(path: str) -> Reproducer:
    """The reproducer in a file; one InputError if it is none."""
    try:
        text = read_utf8(path).replace("\r\n", "\n")
    except OSError as e:
        raise _bad(path, "a readable file", e.strerror or str(e)) from None
    except UnicodeDecodeError:
        raise _bad(path, "UTF-8 text", "other bytes") from None
    first, _, rest = text.partition("\n")
    try:
        header = json.loads(first)
    except ValueError:
        raise _bad(path, "a reproducer header", f"'{first[:40]}'") from None
    if not isinstance(header, dict) or header.get("treadle_repro") != VERSION:
        raise _bad(path, f'a header with "treadle_repro": {VERSION}', f"'{first[:40]}'")
    passes, options = header.get("passes"), header.get("options")
    if not isinstance(passes, list) or not isinstance(options, dict):
        raise _bad(path, '"passes" and "options" in the header', f"'{first[:40]}'")
    # The header is line 1: an empty line in its place keeps line numbers of the file.
    program = parse_program("\n" + rest, path)
    try:
        made = Options.make(**{str(k): v for k, v in options.items()})
    except TreadleError as e:
        raise _bad(path, "options of this Treadle", e.message) from None
    return Reproducer(program, tuple(map(str, passes)), made, str(header.get("error", "")))


def _bad(path: str, expected: str, found: str) -> InputError:
    return InputError(file=path, line=1, expected=expected, found=found, code="PIPE003")
