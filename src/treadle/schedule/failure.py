"""What a person needs to see when a pass fails: the place, the provenance, the history."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence

from treadle.core.errors import TreadleError, Violation
from treadle.ir.program import Program
from treadle.ir.text import show_name, show_program
from treadle.schedule.pass_card import Pass

AROUND = 10


class PipelineError(TreadleError):
    """A pass failed; the notes show where and how to run it again."""

    def __init__(
        self,
        message: str,
        code: str,
        notes: Sequence[str],
        violations: Sequence[Violation] = (),
        again: str | None = None,
    ) -> None:
        """`again`: how to run what failed once more, if that could be written down."""
        super().__init__(message, code=code, notes=[*notes, *([again] if again else [])])
        self.violations, self.again = tuple(violations), again


def describe_failure(
    step: Pass,
    history: Sequence[str],
    program: Program,
    bad: Sequence[Violation],
    error: Exception | None,
) -> list[str]:
    """The notes of a failure, most telling first."""
    notes = [f"also: {v}" for v in bad[1:5]]
    if len(bad) > 5:
        notes.append(f"and {len(bad) - 5} more")
    where = bad[0].where if bad else ""
    if where:
        notes.extend(_excerpt(program, where))
        op = program.op_by_name.get(where)
        if op is not None and op.origins:
            notes.append(f"{where} comes from: {', '.join(op.origins)}")
    if error is not None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        file = os.path.basename(frame.filename)
        notes.append(f"raised at {file}:{frame.lineno} in {frame.name}: {frame.line}")
    notes.append(f"passes before it: {', '.join(history) or 'none'}")
    notes.append(f"what it does: {step.summary}")
    return notes


def _excerpt(program: Program, where: str) -> list[str]:
    """The text of the program around the operation or buffer called `where`."""
    lines = show_program(program).split("\n")
    name = show_name(where)
    at = next((k for k, text in enumerate(lines) if _declares(text, name)), None)
    if at is None:
        return []
    low, high = max(0, at - AROUND), min(len(lines), at + AROUND + 1)
    return [f"{'>' if k == at else ' '} {k + 1:5d} | {lines[k]}".rstrip() for k in range(low, high)]


def _declares(line: str, name: str) -> bool:
    words = line.split()
    return len(words) > 2 and words[1] == name and words[2] in ("on", ":")
