"""XLA's files, printed back byte for byte and worked out again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from treadle.frontends.dumps import Finding, Rederivation
from treadle.frontends.xla_dump import (
    XlaDump,
    parse_dump,
    print_file,
    print_report,
    rederive,
)
from treadle.frontends.xla_dump.parse import HLO, REPORT


@dataclass(frozen=True)
class Checked:
    """A dump with what was found when it was worked out again."""

    dump: XlaDump
    ops: int
    errors: tuple[str, ...]
    notes: tuple[str, ...]
    facts: Mapping[str, object]
    about: str
    inputs: tuple[str, ...]


def check(path: str, text: str, kind: str) -> Checked:
    """What can be said about one file; the files next to it are used if they are there."""
    start = time.perf_counter()
    dump = parse_dump(text, path, find_siblings=True)
    found = rederive(dump)
    errors = [] if _printed(dump, kind, text) == text else ["it is printed back otherwise"]
    errors += [str(finding) for finding in dump.findings if not finding.is_note]
    errors += [str(difference) for difference in found.differences]
    notes = [*[finding for finding in dump.findings if finding.is_note], *found.notes]
    facts: dict[str, object] = {
        "allocations": len(dump.allocations),
        "values": len(dump.used) or sum(1 for _ in dump.assigned()),
        **found.checked,
        "total": found.total,
        **_figures(dump),
        "unknown_lines": dump.unknown_count,
        "seconds": round(time.perf_counter() - start, 3),
    }
    return Checked(
        dump,
        ops=len(dump.live.sequence) if dump.live else _instructions(dump),
        errors=tuple(errors),
        notes=tuple(map(str, notes)),
        facts=facts,
        about=_about(dump, found, kind),
        inputs=tuple(dict.fromkeys([path, *_files(dump)])),
    )


def _files(dump: XlaDump) -> Iterator[str]:
    yield from (file.name for file in dump.files)
    yield from (part.file for part in (dump.module, dump.report) if part)


def _printed(dump: XlaDump, kind: str, text: str) -> str:
    if kind == HLO:
        return text  # read only: nothing of it is written again
    if kind == REPORT:
        return print_report(dump.report) if dump.report else ""
    return print_file(dump, dump.files[0])


def _instructions(dump: XlaDump) -> int:
    return sum(len(c.instructions) for c in dump.module.computations) if dump.module else 0


def _figures(dump: XlaDump) -> dict[str, object]:
    figures: dict[str, object] = {}
    if dump.assignment:
        figures |= {"total_bytes": dump.total_bytes, "temp_bytes": dump.temp_bytes}
    if dump.live and dump.live.peak:
        peak = dump.live.peak
        figures |= {"peak_at": peak.moment, "peak_bytes": sum(row.size for row in peak.lines)}
    return figures


def _about(dump: XlaDump, found: Rederivation[Finding], kind: str) -> str:
    """How much was worked out again, for people, in the middle of one line."""
    if kind == HLO and not dump.files:
        computations = len(dump.module.computations) if dump.module else 0
        sound = "" if found.differences else ", every operand and computation is there"
        return f"; HLO text, {computations} computations{sound}"
    parts = [
        f"{found.checked[key]} of {found.total[key]} {key.replace('_', ' ')}"
        for key in ("live_ranges", "uses", "sizes", "peak_lines", "placements", "headers")
        if found.total[key]
    ]
    texts = ["printed back byte for byte"] if kind != HLO else []
    if parts:
        texts.append(f"re-derived {', '.join(parts)}")
    if found.checked["totals"] and dump.assignment:
        texts.append(f"total {dump.total_bytes:,}")
    if found.checked["peaks"] and dump.live and dump.live.peak:
        texts.append(f"peak at {dump.live.peak.moment}")
    if found.total["placements"] and found.checked["placements"] == found.total["placements"]:
        texts.append("XLA's plan is valid")
    return "".join([f"; {text}" for text in texts])
