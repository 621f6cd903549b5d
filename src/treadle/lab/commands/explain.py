"""`treadle explain CODE`: the page of a code."""

from __future__ import annotations

import argparse

from treadle.core.codes import explain, load_codes
from treadle.lab.output import emit, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `explain`."""
    parser.add_argument("code", metavar="CODE", nargs="?", help="without one: list all codes")


def run(args: argparse.Namespace) -> int:
    """Print the page, or the list of codes."""
    if args.code is None:
        codes = load_codes()
        rows = [(c.id, c.title) for c in codes.values()]
        emit(args.json, {c.id: c.title for c in codes.values()}, table(rows, ("code", "title")))
        return 0
    page = explain(args.code)
    emit(args.json, {"code": args.code, "page": page}, [page.rstrip()])
    return 0
