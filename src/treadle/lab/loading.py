"""The one way from a file to what a command works on: read, told apart, parsed, checked.

    loaded = load(path)          # InputError (exit 2) if it cannot be read
    loaded.errors, loaded.notes  # everything that `treadle check` has to say about it
    sound(loaded)                # the same errors as one FindingsError (exit 1), if there are any
    program_of(loaded)           # the program in it, if this kind of file holds one

Every command comes through here, so all of them accept and refuse the same files with the same
words: `check` prints all errors, the others stop at them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from treadle.core.errors import InputError, SpecError, TreadleError
from treadle.core.journal import Journal
from treadle.core.reading import read_text
from treadle.frontends import inductor_dump, xla_dump
from treadle.frontends.dumps import Rederivation
from treadle.frontends.inductor_dump.import_program import Imported, import_program
from treadle.frontends.xla_dump.import_program import import_program as xla_program
from treadle.ir.program import Program
from treadle.ir.spec import violations
from treadle.ir.text import parse_program, show_program
from treadle.kernel.allowed_steps import kernel_violations
from treadle.lab import check_xla
from treadle.lab.files import kind_of
from treadle.memory.csvio import Table, parse_csv
from treadle.memory.validate import violations as plan_violations
from treadle.schedule.record import Schedule

SHOWN_ERRORS = 20


class FindingsError(TreadleError):
    """A file that could be read but is not sound; carries every finding, shows the first ones."""

    def __init__(self, file: str, errors: tuple[str, ...]) -> None:
        count = f"{len(errors)} finding{'s' * (len(errors) != 1)}"
        super().__init__(f"{file}: {count}, see treadle check")
        self.errors = tuple([f"{file}: {error}" for error in errors])

    def lines(self) -> Iterator[str]:
        """Yield the file and the first findings, in the words of `check`."""
        yield from super().lines()
        for error in self.errors[:SHOWN_ERRORS]:
            yield f"  {error.partition(': ')[2]}"
        if len(self.errors) > SHOWN_ERRORS:
            yield f"  ... and {len(self.errors) - SHOWN_ERRORS} more"


@dataclass(frozen=True)
class LoadedFile:
    """A file that could be read, what it holds, and what is wrong with it."""

    path: str
    text: str
    kind: str
    ops: int = 0
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    """More of what `check --json` says about a file of this kind."""
    about: str = ""
    """The end of the line that `check` prints."""
    inputs: tuple[str, ...] = ()
    """Every file that was read, those next to it included."""
    program: Program | None = None
    imported: Imported | None = None
    dump: inductor_dump.InductorDump | None = None
    xla: xla_dump.XlaDump | None = None
    table: Table | None = None
    journal: Journal | None = None
    schedule: Schedule | None = None

    @property
    def is_dump(self) -> bool:
        """Whether this is one of TorchInductor's dumps."""
        return self.kind == "inductor_dump"


def load(path: str, text: str | None = None) -> LoadedFile:
    """The file with all that can be said about it; one InputError if it is nothing we know."""
    text = read_text(path) if text is None else text
    kind = kind_of(text)
    reader = READERS.get(kind)
    if reader is None:
        raise _unknown(path, text)
    try:
        return reader(path, text, kind)
    except RecursionError:
        raise InputError(
            file=path, expected="less deeply nested text", found="too many levels", code="TXT002"
        ) from None


def sound(loaded: LoadedFile) -> LoadedFile:
    """The same, or its errors as one FindingsError."""
    if loaded.errors:
        raise FindingsError(loaded.path, loaded.errors)
    return loaded


def load_sound(path: str) -> LoadedFile:
    """A file without errors, or the one error that says what is wrong with it."""
    return sound(load(path))


def program_of(loaded: LoadedFile) -> Program:
    """The program in a sound file; one InputError if this kind of file holds none."""
    if loaded.program is not None:
        return sound(loaded).program or loaded.program
    sound(loaded)
    if loaded.xla is not None:  # any of XLA's files: those next to it were read as well
        return xla_program(loaded.xla)  # says what is missing
    raise InputError(
        file=loaded.path,
        expected="a file that holds a program (a Treadle program or a dump)",
        found=f"a file of kind {loaded.kind}",
        code="TXT002",
    )


def load_program(path: str) -> tuple[Program, LoadedFile]:
    """The program in a file, sound, and the file."""
    loaded = load(path)
    return program_of(loaded), loaded


def _unknown(path: str, text: str) -> InputError:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return InputError(
        file=path,
        line=1,
        expected="a Treadle program (a first line 'treadle 1'), a dump or a memory problem",
        found=f"'{first[:40]}'" if first else "an empty file",
        code="TXT002",
    )


# --------------------------------------------------------------------------------- programs


def _load_program(path: str, text: str, kind: str) -> LoadedFile:
    # The header of a reproducer is line 1: an empty line in its place keeps line numbers.
    body = "\n" + text.partition("\n")[2] if kind == "reproducer" else text
    program = parse_program(body, path)
    errors = [str(v) for v in violations(program) or kernel_violations(program)]
    printed = show_program(program)
    if not errors and parse_program(printed, path) != program:
        errors.append("the printed program reads back as another one [CERT003]")
    plain = _plain(text.partition("\n")[2] if kind == "reproducer" else text)
    notes = () if printed == plain else (_first_difference(plain, printed),)
    return LoadedFile(
        path, text, kind, len(program.leaves), tuple(errors), notes, {}, "", (path,), program
    )


def _plain(text: str) -> str:
    """The text without comment lines: printing does not give those back."""
    kept = [line for line in text.split("\n") if not line.strip().startswith("#")]
    return "\n".join(kept)


def _first_difference(given: str, printed: str) -> str:
    old, new = given.split("\n"), printed.split("\n")
    for k, (a, b) in enumerate(zip(old, new, strict=False), 1):
        if a.strip() != b.strip():
            return f"line {k} is not in standard form: '{a.strip()}' should be '{b.strip()}'"
        if a != b:
            return f"line {k} is not in standard form: spaces at its beginning or end"
    return f"{len(old)} lines, but {len(new)} in standard form"


# ------------------------------------------------------------------------------------ dumps


def _load_inductor(path: str, text: str, kind: str) -> LoadedFile:
    start = time.perf_counter()
    dump = inductor_dump.parse_dump(text, path)
    found = inductor_dump.rederive(dump)
    errors = [str(finding) for finding in dump.findings if not finding.is_note]
    errors += [str(difference) for difference in found.differences]
    notes = [*[finding for finding in dump.findings if finding.is_note], *found.notes]
    imported = None
    if not errors:
        try:
            imported = import_program(dump, _stem(path))
        except SpecError as e:
            errors += [str(violation) for violation in e.violations]
    nodes = sum(1 for section in dump.sections for _ in section.leaves())
    facts: dict[str, object] = {"nodes": nodes, **found.checked, "total": found.total}
    facts |= {"unknown_lines": dump.unknown_count}
    facts |= {"seconds": round(time.perf_counter() - start, 3)}
    return LoadedFile(
        path, text, kind, nodes, tuple(errors), tuple(map(str, notes)), facts,
        about=_about_dump(found, dump.unknown_count), inputs=(path,),
        program=imported.program if imported else None, imported=imported, dump=dump,
    )  # fmt: skip


def _about_dump(found: Rederivation[inductor_dump.Difference], unknown: int) -> str:
    """How much of a dump was worked out again, for people."""
    parts = [
        f"{found.checked[key]} of {found.total[key]} {key.replace('_', ' ')}"
        for key in ("loop_nodes", "fused_headers", "user_flags")
        if found.total[key]
    ]
    again = f"; re-derived {', '.join(parts)}" if parts else ""
    return f"{again}; {unknown} unknown lines" if unknown else again


def _stem(path: str) -> str:
    """A plain name for the program in a file."""
    name = os.path.basename(path).partition(".")[0]
    return name if name.isidentifier() and name.isascii() else "dump"


def _load_xla(path: str, text: str, kind: str) -> LoadedFile:
    checked = check_xla.check(path, text, kind)
    return LoadedFile(
        path, text, kind, checked.ops, checked.errors, checked.notes, checked.facts,
        checked.about, checked.inputs, xla=checked.dump,
    )  # fmt: skip


# ---------------------------------------------------------------------------- other kinds


def _load_csv(path: str, text: str, kind: str) -> LoadedFile:
    table = parse_csv(text, path)
    problem, plan = table.problem, table.plan
    wrong = [str(one) for one in plan_violations(problem, plan)] if plan is not None else []
    count = len(problem.blocks)
    about = f"; memory problem of {count} buffers"
    if plan is not None:
        state = "is wrong" if wrong else "is valid"
        about += f"; its plan of {plan.height:,} bytes {state}"
    facts = {"buffers": count, "plan_bytes": plan.height if plan is not None else None}
    return LoadedFile(
        path, text, kind, errors=tuple(wrong), facts=facts, about=about, inputs=(path,), table=table
    )


def _load_journal(path: str, text: str, kind: str) -> LoadedFile:
    journal = Journal.read(path, text)
    count = sum(1 for _ in journal.events())
    return LoadedFile(
        path, text, kind, facts={"events": count}, about=f"; journal of {count} events",
        inputs=(path,), journal=journal,
    )  # fmt: skip


def _load_schedule(path: str, text: str, kind: str) -> LoadedFile:
    schedule = Schedule.parse(text, path)
    kernels = schedule.kernels()
    return LoadedFile(
        path, text, kind, sum(map(len, kernels)), facts={"kernels": len(kernels)},
        about=f"; schedule of {len(kernels)} kernels", inputs=(path,), schedule=schedule,
    )  # fmt: skip


READERS: Mapping[str, Callable[[str, str, str], LoadedFile]] = {
    "program": _load_program,
    "reproducer": _load_program,
    "inductor_dump": _load_inductor,
    "minimalloc_csv": _load_csv,
    "journal": _load_journal,
    "schedule": _load_schedule,
    **dict.fromkeys(xla_dump.FILE_KINDS, _load_xla),
}
"""What reads and checks a file of each kind."""
