"""What `treadle show` says about an Inductor dump: half a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from treadle.frontends.inductor_dump.survey import SectionSurvey, survey
from treadle.lab.loading import LoadedFile, sound
from treadle.lab.output import emit, human_bytes


def run(loaded: LoadedFile, args: argparse.Namespace) -> int:
    """Print the survey of the dump that was loaded."""
    dump = sound(loaded).dump
    assert dump is not None, "a file of this kind holds a dump"
    found = survey(dump, imported=loaded.imported)
    sections = len(dump.sections)
    data = {"kind": "inductor_dump", "sections": sections, **found.to_json()}
    data["findings"] = [str(f) for f in dump.findings]
    emit(args.json, data, _lines(found, sections, len(dump.findings)))
    return 0


def _lines(s: SectionSurvey, sections: int, findings: int) -> Iterator[str]:
    shown = f", last of {sections} sections" if sections > 1 else ""
    kinds = ", ".join(f"{n} {kind}" for kind, n in s.kinds.items())
    yield f"Inductor dump ({s.dialect}{shown}): {s.nodes} nodes, {s.kernels} kernels"
    yield f"operations      {s.ops}: {kinds}"
    groups = ", ".join(f"{n} of {size}" for size, n in s.groups.items())
    yield f"groups          {groups or 'none'}"
    unknown = f" ({s.inputs_of_unknown_size} of unknown size)" if s.inputs_of_unknown_size else ""
    made = sum(s.buffers.values())
    yield f"buffers         {made} made, {s.inputs} inputs{unknown}, {s.outputs} outputs"
    peer = s.counted_as_inductor["bytes_moved"]
    yield (
        f"bytes moved     {s.bytes_moved:,} ({human_bytes(s.bytes_moved)}); "
        f"counted as inductor {peer:,}"
    )
    parts = ", ".join(f"{kind} {human_bytes(n)}" for kind, n in list(s.bytes_by_kind.items())[:5])
    yield f"                {s.estimated_bytes:,} by the sizes in the dump alone: {parts}"
    at = f" at {s.peak_at}" if s.peak_at else ""
    yield f"peak            {s.peak_bytes:,} ({human_bytes(s.peak_bytes)}){at}"
    bound = f"counted so, no order of these kernels is below {s.peak_lower_bound:,}"
    yield f"                {bound}; without groups {s.unfused_peak_bytes:,}"
    yield f"                {s.counted_as_ours['peak_bytes']:,} with inputs and hand-over in place"
    twice = ""
    if s.mutated_more_than_once:
        twice = f" (more than once: {', '.join(s.mutated_more_than_once)})"
    yield f"mutations       {s.mutations}{twice}; {s.aliases} aliasing buffers"
    yield f"order only      {s.ordering_edges} edges"
    yield f"indirect        {s.indirect_accesses} in {s.indirect_nodes} loops"
    if s.work:
        words = [w for w in ("fills", "copies", "casts") if w in s.work]
        shown = ", ".join(f"{s.work[w]} {w} ({human_bytes(s.work[w + '_bytes'])})" for w in words)
        yield f"plain loops     {shown}"
    if s.largest:
        yield "largest buffers " + ", ".join(f"{n} {human_bytes(b)}" for n, b in s.largest)
    for line in s.oddities:
        yield f"odd             {line}"
    if s.assumptions:
        codes = ", ".join(f"{n} x {code}" for code, n in s.assumptions.items())
        yield f"assumed         {codes} (treadle explain CODE)"
    if findings:
        yield f"findings        {findings}: see treadle check"
