"""Reading files of any kind Treadle knows; the kind is found from the content."""

from __future__ import annotations

import os

from treadle.core.errors import InputError
from treadle.core.reading import read_utf8
from treadle.frontends.inductor_dump import looks_like_dump, parse_dump
from treadle.frontends.inductor_dump.import_program import import_program
from treadle.frontends.xla_dump import kind_of_text
from treadle.frontends.xla_dump import parse_dump as parse_xla_dump
from treadle.frontends.xla_dump.import_program import import_program as xla_program
from treadle.ir.program import Program
from treadle.ir.spec import verify
from treadle.ir.text import parse_program
from treadle.memory.csvio import looks_like_csv
from treadle.schedule.record import KEY


def read_text(path: str) -> str:
    """The text of a file, or of standard input (`-`), or one InputError."""
    try:
        return read_utf8(path)
    except OSError as e:
        found = e.strerror or str(e)
        raise InputError(
            file=path, expected="a readable file", found=found, code="TXT002"
        ) from None
    except UnicodeDecodeError as e:
        found = f"byte {e.object[e.start]:#04x} at offset {e.start}"
        raise InputError(file=path, expected="UTF-8 text", found=found, code="TXT002") from None


def kind_of(text: str) -> str:
    """`program`, `journal`, `reproducer`, `inductor_dump`, ... or `unknown`, from the content.

    XLA's files are `xla_buffer_assignment`, `xla_values`, `xla_live_range`, `xla_memory_report`
    and `hlo`; memory problems are `minimalloc_csv`.
    """
    if xla := kind_of_text(text):
        return xla
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.startswith("treadle "):
            return "program"
        if stripped.startswith('{"treadle_journal"'):
            return "journal"
        if stripped.startswith('{"treadle_repro"'):
            return "reproducer"
        if stripped == "{" and f'"{KEY}"' in text[:200]:
            return "schedule"
        break
    if looks_like_dump(text):
        return "inductor_dump"
    if looks_like_csv(text):
        return "minimalloc_csv"
    return "unknown"


def read_sound_program(path: str) -> Program:
    """The program in a file, verified: analyses rely on its rules."""
    return verify(program_in(read_text(path), path))


def read_program(path: str) -> tuple[Program, str]:
    """The program in a file, not yet verified, and the text it was read from."""
    text = read_text(path)
    rest = text.partition("\n")[2] if kind_of(text) == "reproducer" else text
    return program_in(text, path), rest


def program_in(text: str, path: str) -> Program:
    """The program that the text of a file holds, or one InputError."""
    kind = kind_of(text)
    if kind == "program":
        return parse_program(text, path)
    if kind == "reproducer":
        return parse_program("\n" + text.partition("\n")[2], path)
    if kind == "inductor_dump":
        return import_program(parse_dump(text, path), _stem(path)).program
    if kind == "xla_buffer_assignment":
        return xla_program(parse_xla_dump(text, path, find_siblings=True))
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    found = f"'{first[:40]}'" if first else "an empty file"
    raise InputError(
        file=path,
        line=1,
        expected="a Treadle program (a first line 'treadle 1') or an Inductor dump",
        found=found,
        code="TXT002",
    )


def _stem(path: str) -> str:
    """A plain name for the program in a file."""
    name = os.path.basename(path).partition(".")[0]
    return name if name.isidentifier() else "dump"
