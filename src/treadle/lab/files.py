"""Which kind of file a text is; the kind is found from the content."""

from __future__ import annotations

from treadle.core.reading import read_text
from treadle.frontends.inductor_dump import looks_like_dump
from treadle.frontends.xla_dump import kind_of_text
from treadle.memory.csvio import looks_like_csv
from treadle.schedule.record import KEY

__all__ = ["kind_of", "read_text"]


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
