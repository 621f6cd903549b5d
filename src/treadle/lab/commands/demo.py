"""`treadle demo`: a small language model, forward and training, eager and compiled."""

from __future__ import annotations

import argparse
from importlib.util import find_spec

from treadle.lab import demo_scheduler, demo_table

WITHOUT_TORCH = (
    "torch is not installed (pip install 'treadle[torch]'):"
    " this is the scheduler on a small program of its own"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `demo`."""
    parser.add_argument("--peer", action="store_true", help="measure TorchInductor as well")
    parser.add_argument("--rounds", type=int, default=20, help="runs that are timed (default: 20)")
    parser.add_argument("--threads", type=int, default=1, help="threads torch may use (default: 1)")
    parser.add_argument(
        "--program", action="store_true", help="the scheduler on a small program, without torch"
    )
    parser.add_argument("-o", dest="out", metavar="OUT", help="write the page of the demo here")
    parser.add_argument("--text", action="store_true", help="with --program: print it as well")


def run(args: argparse.Namespace) -> int:
    """Run the demo; exit 1 if a result is not what it should be."""
    if args.program or args.text:
        return demo_scheduler.run(args)
    if find_spec("torch") is None:
        return demo_scheduler.run(args, WITHOUT_TORCH)
    return demo_table.run(args)
