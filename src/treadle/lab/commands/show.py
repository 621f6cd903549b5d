"""`treadle show FILE`: what is in a file, in half a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from importlib import import_module

from treadle.frontends.xla_dump import FILE_KINDS
from treadle.ir.numerics import EXACT
from treadle.lab.help import ANY_FILE
from treadle.lab.loading import load, program_of
from treadle.lab.output import emit, human_bytes, table
from treadle.lab.summary import Summary, summarise

SHOWN_BY: Mapping[str, str] = {
    "inductor_dump": "treadle.lab.show_dump",
    "minimalloc_csv": "treadle.lab.show_csv",
    **dict.fromkeys(FILE_KINDS, "treadle.lab.show_xla"),
}
"""Kinds that have a page of their own: the module whose `run(loaded, args)` prints it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `show`."""
    parser.add_argument(
        "file", metavar="FILE", help=f"{ANY_FILE}: the kind is found from the content"
    )


def run(args: argparse.Namespace) -> int:
    """Print a summary of the file."""
    loaded = load(args.file)  # once: the file may be a pipe
    if loaded.kind in SHOWN_BY:
        code: int = import_module(SHOWN_BY[loaded.kind]).run(loaded, args)
        return code
    if loaded.journal is not None:
        counts = loaded.journal.summary()
        rows = [(k, w, n) for k, part in counts.items() for w, n in part.items()]
        emit(args.json, {"kind": "journal", **counts}, table(rows, ("what", "which", "count")))
        return 0
    if loaded.schedule is not None:
        kernels = loaded.schedule.kernels()
        data = {"kind": "schedule", "kernels": len(kernels), "ops": loaded.ops}
        of = f"schedule of {loaded.schedule.program}"
        emit(args.json, data, [f"{of}: {loaded.ops} operations in {len(kernels)} kernels"])
        return 0
    summary = summarise(program_of(loaded))
    emit(args.json, {"kind": "program", **summary.to_json()}, _lines(summary))
    return 0


def _lines(s: Summary) -> Iterator[str]:
    kinds = ", ".join(f"{n} {kind}" for kind, n in s.kinds.items())
    shown = f" ({kinds})" if kinds else ""
    yield f"program {s.name}: {s.ops} operations{shown}, {s.kernels} kernels"
    yield f"buffers         {s.buffers} ({s.views} views), {s.mutations} mutations"
    deps = ", ".join(f"{n} {kind}" for kind, n in s.dependences.items() if n)
    yield f"dependences     {deps or 'none'}; {s.indirect_accesses} indirect accesses"
    yield f"bytes moved     {s.bytes_moved:,} ({human_bytes(s.bytes_moved)})"
    bound = f"lower bound {s.peak_lower_bound:,}"
    where = f"at {s.peak_at}" if s.peak_at else "(no operations)"
    yield f"peak            {s.peak_bytes:,} ({human_bytes(s.peak_bytes)}) {where}; {bound}"
    if s.largest:
        yield "largest buffers " + ", ".join(f"{n} {human_bytes(b)}" for n, b in s.largest)
    if s.assumed_sizes:
        assumed = ", ".join(f"{n} = {value}" for n, value in s.assumed_sizes.items())
        yield f"sizes           counted with {assumed}"
    if s.numerics != str(EXACT):
        yield f"numerics        {s.numerics}"
