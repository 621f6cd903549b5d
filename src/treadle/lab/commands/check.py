"""`treadle check FILE...`: read, print back, verify; exit 1 with a precise message if not.

Dumps of TorchInductor are also worked out again: what they claim must follow from their bodies.
So are XLA's buffer assignments, from positions, uses, shapes and the HLO text next to them, and
plans in memory problems. The work is done where every command loads its files: see `lab.loading`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from treadle.core.errors import InputError
from treadle.lab.help import ANY_FILE
from treadle.lab.loading import LoadedFile, load
from treadle.lab.output import complain, emit
from treadle.lab.summary import summarise

SHOWN_ERRORS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    parser.add_argument("files", metavar="FILE", nargs="+", help=ANY_FILE)


def run(args: argparse.Namespace) -> int:
    """Check each file; the exit code says whether all are fine, 2 if one cannot be read."""
    start = time.perf_counter()
    files: list[LoadedFile] = []
    unreadable: list[str] = []
    for path in args.files:
        try:
            files.append(load(path))
        except InputError as e:
            if len(args.files) == 1:
                raise
            # The other files are looked at all the same.
            unreadable.append(e.render())
            complain(e.render())
    ok = not unreadable and not any(one.errors for one in files)
    errors = [f"{one.path}: {error}" for one in files for error in one.errors] + unreadable
    data = {"ok": ok, "errors": errors, "files": [_json(one) for one in files]}
    seconds = round(time.perf_counter() - start, 3)
    emit(args.json, {**data, "seconds": seconds}, [line for one in files for line in _lines(one)])
    return 2 if unreadable else 0 if ok else 1


def _json(one: LoadedFile) -> dict[str, object]:
    found: dict[str, object] = {"file": one.path, "kind": one.kind, "ops": one.ops}
    if one.program is not None and not one.is_dump and not one.errors:
        found |= summarise(one.program).to_json()
    found |= one.facts
    return {**found, "errors": list(one.errors), "notes": list(one.notes)}


def _lines(one: LoadedFile) -> Iterator[str]:
    state = "ok" if not one.errors else "FAILED"
    count = f", {one.ops} operations" if one.ops or one.program is not None else ""
    yield f"{one.path}: {state}{count}{one.about}"
    yield from (f"  {error}" for error in one.errors[:SHOWN_ERRORS])
    if len(one.errors) > SHOWN_ERRORS:
        yield f"  ... and {len(one.errors) - SHOWN_ERRORS} more"
    yield from (f"  note: {note}" for note in one.notes)
