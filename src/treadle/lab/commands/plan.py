"""`treadle plan FILE`: a static memory plan, its lower bound and its gap."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import import_module

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.core.errors import InputError
from treadle.lab.arguments import byte_count
from treadle.lab.files import kind_of, read_text
from treadle.lab.help import PLANNED_FILE
from treadle.memory.portfolio import EFFORTS

PLANNED_BY: Mapping[str, str] = {
    "minimalloc_csv": "treadle.lab.plan_csv",
    "xla_buffer_assignment": "treadle.lab.plan_xla",
    "program": "treadle.lab.plan_program",
    "reproducer": "treadle.lab.plan_program",
    "inductor_dump": "treadle.lab.plan_program",
}
"""The module whose `run(text, path, args)` plans a file of this kind."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `plan`."""
    parser.add_argument("file", metavar="FILE", help=PLANNED_FILE)
    parser.add_argument(
        "--capacity", type=byte_count, metavar="BYTES", help="the arena's limit, e.g. 16MiB"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="wall time to spend at most")
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
        "--alignment", type=byte_count, metavar="BYTES", help="of offsets (default: by device)"
    )


def run(args: argparse.Namespace) -> int:
    """Plan the file by its kind."""
    text = read_text(args.file)
    kind = kind_of(text)
    if kind not in PLANNED_BY:
        raise InputError(
            file=args.file,
            expected=f"a file that can be planned ({', '.join(PLANNED_BY)})",
            found=f"a file of kind {kind}",
            code="TXT002",
        )
    planned: int = import_module(PLANNED_BY[kind]).run(text, args.file, args)
    return planned


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value
