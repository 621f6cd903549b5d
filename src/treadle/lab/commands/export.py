"""`treadle export FILE [-o OUT] [--dialect 2.13]`: write a program as a TorchInductor dump."""

from __future__ import annotations

import argparse
import sys

from treadle.core.writing import Outputs
from treadle.frontends.inductor_dump import export_program, print_dump
from treadle.frontends.inductor_dump.dialect import DIALECTS
from treadle.lab.help import PROGRAM_FILE
from treadle.lab.loading import load_program
from treadle.lab.output import complain, emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `export`."""
    parser.add_argument("file", metavar="FILE", help=PROGRAM_FILE)
    parser.add_argument("-o", dest="out", metavar="OUT", help="write here instead of to stdout")
    parser.add_argument("--force", action="store_true", help="OUT may be the input")
    parser.add_argument(
        "--dialect", choices=sorted(DIALECTS), default="2.13", help="as which torch version writes"
    )
    parser.add_argument(
        "--title", choices=("BEFORE FUSION", "AFTER FUSION"), default="", help="the form of a log"
    )


def run(args: argparse.Namespace) -> int:
    """Write the dump; say which names changed and what the format cannot say."""
    program, loaded = load_program(args.file)
    outputs = Outputs({"-o": args.out}, loaded.inputs, args.force)
    exported = export_program(program, args.dialect, section_title=args.title)
    text = print_dump(exported.dump)
    notes = [f"{note.message} [{note.code}]" for note in exported.notes]
    outputs.write("-o", text)
    data: dict[str, object] = {
        "dialect": args.dialect,
        "nodes": len(exported.dump.nodes),
        "names": dict(exported.names),
        "notes": notes,
    }
    if not args.out and args.json:
        data["text"] = text
    if args.out or args.json:
        renamed = len(exported.names)
        count = f"{len(exported.dump.nodes)} nodes, {renamed} names changed"
        emit(args.json, data, [f"{count}, {len(notes)} things that the format cannot say", *notes])
        return 0
    sys.stdout.write(text)
    for note in notes:
        complain(f"note: {note}")
    return 0
