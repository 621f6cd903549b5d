"""`treadle plan FILE`: a static memory plan, its lower bound and its gap."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from importlib import import_module

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.core.errors import InputError
from treadle.core.writing import Outputs
from treadle.frontends.xla_dump import FILE_KINDS
from treadle.lab.arguments import byte_count
from treadle.lab.help import PLANNED_FILE
from treadle.lab.loading import load, sound
from treadle.memory.portfolio import EFFORTS

LONGEST_NUMBER = 30

PLANNED_BY: Mapping[str, str] = {
    "minimalloc_csv": "treadle.lab.plan_csv",
    **dict.fromkeys(FILE_KINDS, "treadle.lab.plan_xla"),
    "program": "treadle.lab.plan_program",
    "reproducer": "treadle.lab.plan_program",
    "inductor_dump": "treadle.lab.plan_program",
}
"""The module whose `run(loaded, args, outputs)` plans a file of this kind."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `plan`."""
    parser.add_argument("file", metavar="FILE", help=PLANNED_FILE)
    parser.add_argument(
        "--capacity", type=byte_count, metavar="BYTES", help="the arena's limit, e.g. 16MiB"
    )
    parser.add_argument("--seconds", type=_seconds, metavar="S", help="wall time to spend at most")
    parser.add_argument("--steps", type=_whole, metavar="N", help="search nodes to visit at most")
    parser.add_argument(
        "--effort",
        choices=tuple(EFFORTS),
        default="balanced",
        help="how hard to search (default: balanced)",
    )
    parser.add_argument(
        "--seed", type=_whole, default=0, help="start of pseudo-random choices (default: 0)"
    )
    parser.add_argument("-o", dest="out", metavar="OUT", help="write the plan as CSV here")
    parser.add_argument("--svg", metavar="OUT", help="draw the plan here")
    parser.add_argument("--force", action="store_true", help="OUT may be the input")
    parser.add_argument("--map", action="store_true", help="draw the plan as text")
    of_programs = parser.add_argument_group("programs and Inductor dumps")
    of_programs.add_argument(
        "--order", action="store_true", help="search for an order with a lower peak first"
    )
    of_programs.add_argument(
        "--accounting",
        choices=tuple(ACCOUNTINGS),
        help="count as said and plan that (default: what can be run, inputs apart)",
    )
    of_programs.add_argument(
        "--outputs",
        choices=("arena", "own", "hosts"),
        default="arena",
        help="outputs lie in the arena, apart, or apart and take temporaries in before their birth",
    )
    of_programs.add_argument(
        "--alignment", type=_alignment, metavar="BYTES", help="of offsets (default: by device)"
    )


def run(args: argparse.Namespace) -> int:
    """Plan the file by its kind."""
    loaded = load(args.file)
    kind = loaded.kind
    if loaded.table is None:
        sound(loaded)  # a plan in a memory problem may be wrong: it is not binding
    if kind not in PLANNED_BY:
        raise InputError(
            file=args.file,
            expected=f"a file that can be planned ({', '.join(PLANNED_BY)})",
            found=f"a file of kind {kind}",
            code="TXT002",
        )
    paths = {"-o": args.out, "--svg": args.svg}
    outputs = Outputs(paths, loaded.inputs, args.force)
    planned: int = import_module(PLANNED_BY[kind]).run(loaded, args, outputs)
    return planned


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > LONGEST_NUMBER:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 up, found {text!r}")
    return int(text)


def _alignment(text: str) -> int:
    value = byte_count(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number of bytes from 1 up, found {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of seconds from 0 up, found {text!r}")
    return value
