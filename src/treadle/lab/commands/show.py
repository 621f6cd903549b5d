"""`treadle show FILE`: what is in a file, in half a page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from treadle.core.journal import Journal
from treadle.lab.files import kind_of, read_sound_program, read_text
from treadle.lab.output import emit, human_bytes, table
from treadle.lab.summary import Summary, summarise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `show`."""
    parser.add_argument("file", metavar="FILE")


def run(args: argparse.Namespace) -> int:
    """Print a summary of the file."""
    if kind_of(read_text(args.file)) == "journal":
        counts = Journal.read(args.file).summary()
        rows = [(k, w, n) for k, part in counts.items() for w, n in part.items()]
        emit(args.json, {"kind": "journal", **counts}, table(rows, ("what", "which", "count")))
        return 0
    program = read_sound_program(args.file)
    summary = summarise(program)
    emit(args.json, {"kind": "program", **summary.to_json()}, _lines(summary))
    return 0


def _lines(s: Summary) -> Iterator[str]:
    kinds = ", ".join(f"{n} {kind}" for kind, n in s.kinds.items())
    yield f"program {s.name}: {s.ops} operations ({kinds}), {s.kernels} kernels"
    yield f"buffers         {s.buffers} ({s.views} views), {s.mutations} mutations"
    deps = ", ".join(f"{n} {kind}" for kind, n in s.dependences.items() if n)
    yield f"dependences     {deps or 'none'}; {s.indirect_accesses} indirect accesses"
    yield f"bytes moved     {s.bytes_moved:,} ({human_bytes(s.bytes_moved)})"
    bound = f"lower bound {s.peak_lower_bound:,}"
    yield f"peak            {s.peak_bytes:,} ({human_bytes(s.peak_bytes)}) at {s.peak_at}; {bound}"
    yield "largest buffers " + ", ".join(f"{n} {human_bytes(b)}" for n, b in s.largest)
