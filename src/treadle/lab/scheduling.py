"""How commands schedule a file: with the same options, so that one says what the other does."""

from __future__ import annotations

import argparse

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx, journal_for
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.core.sizes import parse_bytes
from treadle.ir.change import devices_of, moved_to
from treadle.ir.program import Program
from treadle.lab.files import kind_of


def is_dump(text: str) -> bool:
    """Whether the text is a peer's dump, which has groups and lacks the sizes of its inputs."""
    return kind_of(text) == "inductor_dump"


def options_for(text: str, policy: str | None = None, accounting: str | None = None) -> Options:
    """The options for scheduling a file: those of the environment, and what was asked for."""
    changes: dict[str, object] = {}
    if policy is not None:
        changes["policy"] = policy
    if accounting is not None:
        changes["accounting"] = accounting
    elif is_dump(text):
        changes["accounting"] = "dump"  # sizes of inputs are not in a dump
    return Options.from_env().with_(**changes)


def add_comm_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments by which commands are told of collectives and the machine they run on."""
    parser.add_argument(
        "--comm", choices=("simple", "model", "exact"), help="how collectives are ordered"
    )
    parser.add_argument(
        "--hardware", metavar="H", help="machines that ranks run on: h100-8, a100-8x16 ..."
    )


def comm_changes(args: argparse.Namespace) -> dict[str, object]:
    """What the command line says of collectives, as options."""
    named = {"comm": args.comm, "hardware": args.hardware, "world": getattr(args, "world", None)}
    return {name: value for name, value in named.items() if value is not None}


def message_changes(args: argparse.Namespace) -> dict[str, object]:
    """What the command line says of messages, sent together or in parts, as options."""
    changes: dict[str, object] = {"split": True} if args.split else {}
    if args.bucket:
        is_auto = args.bucket == "auto"
        changes["bucket"] = "auto" if is_auto else _bytes_given("--bucket", args.bucket, "auto or ")
    if args.in_flight:
        changes["in_flight"] = _bytes_given("--in-flight", args.in_flight)
    if args.prefetch is not None:
        changes["prefetch"] = args.prefetch
    return changes


def _bytes_given(flag: str, size: str, otherwise: str = "") -> int:
    try:
        return parse_bytes(size)
    except ValueError:
        message = f"{flag} cannot be '{size}': expected {otherwise}bytes such as 25MiB"
        raise UsageError(message, code="OPT002") from None


GPU = "cuda:0"
"""The device that a program is moved to if it is scheduled for a GPU."""


def for_target(program: Program, target: str | None) -> Program:
    """The program on a device of the kind of machine that `target` names.

    One that is on such a device already stays as it is, and so does one without a target.
    """
    if target is None:
        return program
    kinds = {device.partition(":")[0] for device in devices_of(program)}
    if target == "cpu":
        return program if kinds <= {"cpu"} else moved_to(program, "cpu")
    return moved_to(program, GPU) if kinds <= {"cpu"} else program


def context_for(program: Program, options: Options, given: Program) -> Ctx:
    """The context of the passes, with a journal of all that they decide.

    How much memory they may spend is measured by the schedule that the file came with.
    """
    journal = journal_for(options.with_(explain=True))
    return Ctx(options, cost_model(program, options), journal, given=given)
