"""`treadle serve DIR`: the files of a folder as pages, on this machine only, until stopped."""

from __future__ import annotations

import argparse
import json
import sys

from treadle.core.errors import UsageError
from treadle.lab.serving import RunServer

LAST_PORT = 65535


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `serve`."""
    parser.add_argument("folder", metavar="DIR", help="programs, dumps, journals; also in folders")
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on (default: a free one)"
    )
    parser.add_argument("--check", action="store_true", help="say what would be served and end")


def run(args: argparse.Namespace) -> int:
    """Print the address, then serve until interrupted."""
    if not 0 <= args.port <= LAST_PORT:
        raise UsageError(f"--port is a number from 0 to {LAST_PORT}, not {args.port}")
    with RunServer(args.folder, args.port) as server:
        runs = server.runs()
        if args.json:
            rows = [{"file": name, "kind": kind, "bytes": size} for name, kind, _, size in runs]
            print(json.dumps({"address": server.address, "runs": rows}))
        else:
            print(f"{len(runs)} files; open {server.address}")
        sys.stdout.flush()
        if not args.check:
            server.serve_forever()
    return 0
