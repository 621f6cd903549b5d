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
from dataclasses import asdict, dataclass, fields

from treadle.core.errors import InputError, TreadleError
from treadle.core.options import Options
from treadle.core.reading import read_text
from treadle.ir.program import Program
from treadle.ir.text import parse_program, show_program

VERSION = 1
KEPT_OPTIONS = (
    "check", "seed", "stop_after", "policy", "accounting", "target", "code", "memory_limit",
    "comm", "hardware", "world", "bucket", "split", "in_flight", "prefetch",
)  # fmt: skip
"""What the runner and the passes read. The others name commands and files of one machine (`cc`,
`cache_dir`, `cost_file`, `dump`): a file from elsewhere must not choose those."""


@dataclass(frozen=True)
class Reproducer:
    """What a reproducer file holds."""

    program: Program
    passes: tuple[str, ...]
    options: Options
    error: str
    ignored: tuple[str, ...] = ()
    """Options in the file that no pass reads; they have no effect."""


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
    text = read_text(path, "PIPE003").replace("\r\n", "\n")
    first, _, rest = text.partition("\n")
    try:
        header = json.loads(first)
    except (ValueError, RecursionError):
        raise _bad(path, "a reproducer header", f"'{first[:40]}'") from None
    if not isinstance(header, dict) or header.get("treadle_repro") != VERSION:
        raise _bad(path, f'a header with "treadle_repro": {VERSION}', f"'{first[:40]}'")
    passes, options = header.get("passes"), header.get("options")
    if not isinstance(passes, list) or not isinstance(options, dict):
        raise _bad(path, '"passes" and "options" in the header', f"'{first[:40]}'")
    # The header is line 1: an empty line in its place keeps line numbers of the file.
    program = parse_program("\n" + rest, path)
    if not all(isinstance(name, str) for name in passes):
        raise _bad(path, 'names of passes in "passes"', f"'{first[:40]}'")
    known = {one.name for one in fields(Options)}
    ignored = tuple([k for k in options if k in known and k not in KEPT_OPTIONS])
    try:
        made = Options.make(**{k: v for k, v in options.items() if k not in ignored})
    except TreadleError as e:
        raise _bad(path, "options of this Treadle", e.message) from None
    error = str(header.get("error", ""))
    return Reproducer(program, tuple(passes), made, error, ignored)


def _bad(path: str, expected: str, found: str) -> InputError:
    return InputError(file=path, line=1, expected=expected, found=found, code="PIPE003")
