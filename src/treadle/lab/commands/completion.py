"""`treadle completion SHELL`: a script that completes commands, options and their values."""

from __future__ import annotations

import argparse

from treadle.lab.completion import SCRIPTS, describe
from treadle.lab.output import emit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `completion`."""
    parser.add_argument(
        "shell",
        metavar="SHELL",
        choices=tuple(SCRIPTS),
        help=f"{', '.join(SCRIPTS)}: the shell that will read the script, e.g. by `source`",
    )


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from treadle.lab.cli import build_parser

    script = SCRIPTS[args.shell](describe(build_parser()))
    emit(args.json, {"shell": args.shell, "script": script}, script.splitlines())
    return 0
