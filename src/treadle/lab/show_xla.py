"""What `treadle show` says about XLA's files: half a page."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from treadle.frontends.xla_dump import XlaDump
from treadle.frontends.xla_dump.import_plan import title_of
from treadle.frontends.xla_dump.parse import HLO
from treadle.frontends.xla_dump.survey import XlaSurvey, survey
from treadle.lab.loading import LoadedFile, sound
from treadle.lab.output import emit, human_bytes

WHAT = {
    "xla_buffer_assignment": "XLA buffer assignment",
    "xla_values": "XLA buffer assignment, its values",
    "xla_live_range": "XLA live ranges",
    "xla_memory_report": "XLA memory usage report",
    "hlo": "HLO text",
}


def run(loaded: LoadedFile, args: argparse.Namespace) -> int:
    """Print what the file, with those next to it, holds."""
    kind, dump = loaded.kind, sound(loaded).xla
    assert dump is not None, "a file of this kind holds a dump"
    found = survey(dump)
    data: dict[str, object] = {"kind": kind, "name": title_of(dump), **_json(found)}
    if dump.module:
        data["computations"] = len(dump.module.computations)
    data["findings"] = [str(finding) for finding in dump.findings]
    emit(args.json, data, _lines(dump, found, kind))
    return 0


def _json(s: XlaSurvey) -> dict[str, object]:
    data: dict[str, object] = asdict(s)
    data["total_bytes"] = data.pop("total")
    data["temp_bytes"] = data.pop("temp")
    data["peak_bytes"] = data.pop("peak")
    data["temp_lower_bound"] = data.pop("temp_bound")
    data["joint_lower_bound"] = data.pop("joint_bound")
    data["bytes_by_kind"] = data.pop("bytes")
    return data


def _lines(dump: XlaDump, s: XlaSurvey, kind: str) -> Iterator[str]:
    parts = ", ".join(_parts(dump))
    yield f"{WHAT.get(kind, kind)} {title_of(dump)}: {parts}"
    if dump.module and (kind == HLO or not dump.assignment):
        yield from _about_module(dump)
    if dump.assignment:
        for name, count in s.counts.items():
            if count:
                size = s.bytes[name]
                yield f"  {name:<13} {count:>5}  {size:>16,}  ({human_bytes(size)})"
        count = len(dump.allocations)
        yield f"  {'total':<13} {count:>5}  {s.total:>16,}  ({human_bytes(s.total)})"
    if dump.live and dump.assignment:
        yield f"peak            {s.peak:,} ({human_bytes(s.peak)}) at {s.peak_at}, by true sizes"
    if s.printed_peak_at is not None:
        yield f"                the file prints it at {s.printed_peak_at} with {s.printed_peak:,}"
    if s.temp and dump.live:
        lost = s.temp - s.temp_bound
        share = 100 * lost / s.temp
        yield (
            f"scratch         {s.temp:,}; its values need {s.temp_bound:,} at once "
            f"({lost:,} or {share:.1f} % lost), offsets are multiples of {s.alignment}"
        )
        yield f"                with outputs {s.joint_bound:,}; idle in outputs {s.idle_in_hosts:,}"
    if s.tables:
        yield f"tuple tables    {s.tables} with {s.table_bytes:,} bytes of pointers"
    if s.donated:
        shown = ", ".join(s.donated[:8]) + (", ..." if len(s.donated) > 8 else "")
        yield f"donated         {len(s.donated)}: {shown}"
    if s.largest:
        yield "largest values  " + ", ".join(f"{n} {human_bytes(b)}" for n, b in s.largest)
    for line in s.oddities:
        yield f"odd             {line}"
    if dump.findings:
        yield f"findings        {len(dump.findings)}: see treadle check"


def _parts(dump: XlaDump) -> Iterator[str]:
    if dump.assignment:
        yield f"{len(dump.allocations)} allocations"
    if dump.values or dump.assignment:
        yield f"{len(dump.used) or sum(1 for _ in dump.assigned())} values"
    if dump.live:
        yield f"{len(dump.live.sequence)} instructions, {len(dump.live.ranges)} live ranges"
    if dump.module:
        yield f"HLO text of {len(dump.module.computations)} computations"
    if dump.report:
        yield f"a report of {len(dump.report.items)} lines"


def _about_module(dump: XlaDump) -> Iterator[str]:
    assert dump.module is not None, "this part is printed for dumps with the text of the module"
    entry = dump.module.entry
    counts = Counter(one.opcode for one in entry.instructions)
    shown = ", ".join(f"{n} {opcode}" for opcode, n in counts.most_common(6))
    state = "scheduled" if dump.module.is_scheduled else "not scheduled"
    yield f"entry           {entry.name}: {len(entry.instructions)} instructions ({shown}), {state}"
