"""The `treadle` command: finds the command's file, runs it, turns errors into one clear message.

Exit codes: 0 fine, 1 a check failed, 2 bad input or usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from treadle import __version__
from treadle.core.errors import TreadleError
from treadle.lab.colour import painted, wants_colour
from treadle.lab.help import EXIT_CODES, epilog

COMMANDS: Mapping[str, str] = {
    "demo": "run the main job on a built-in program and say what was done",
    "show": "what is in a file",
    "check": "read, print back, verify and re-derive; exit 1 on any difference",
    "schedule": "run the passes on a program; before and after",
    "plan": "static memory plan: total, lower bound, gap",
    "export": "write a program as a TorchInductor dump",
    "why": "why one operation must follow another, and why two are (not) one kernel",
    "diff": "two schedules, programs or journals: what differs and what it cost",
    "explain": "the page of a code",
    "env": "environment variables and options",
    "replay": "run a reproducer again",
    "cache": "compiled code that is kept between runs: show it or clear it",
    "completion": "a script that completes this command in bash, zsh or fish",
}


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="treadle",
        description="A scheduling compiler for tensor programs.",
        epilog=f"`treadle COMMAND --help` shows arguments and an example; {EXIT_CODES}",
    )
    parser.add_argument("--version", action="version", version=f"treadle {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        import_module(f"treadle.lab.commands.{name}").add_arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    args = build_parser().parse_args(argv)
    try:
        code: int = import_module(f"treadle.lab.commands.{args.command}").run(args)
        sys.stdout.flush()
        return code
    except TreadleError as e:
        if args.json:
            # Scripts read one object from stdout whatever happens.
            print(json.dumps({"ok": False, "errors": [e.render()]}))
        print(painted(e.render(), wants_colour(sys.stderr)), file=sys.stderr)
        return e.exit_code
    except BrokenPipeError:
        # The reader went away (`treadle show FILE | head`): nothing to report.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as e:
        where = f"{e.filename}: " if e.filename else ""
        print(f"treadle: {where}{e.strerror or e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
