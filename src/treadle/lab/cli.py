"""The `treadle` command: finds the command's file, runs it, turns errors into one clear message.

Exit codes: 0 fine, 1 a check failed, 2 bad input or usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module

from treadle import __version__
from treadle.core.errors import InternalError, TreadleError, UsageError
from treadle.core.options import Options
from treadle.lab.colour import painted, wants_colour
from treadle.lab.help import EXIT_CODES, epilog
from treadle.lab.progress import progress

COMMANDS: Mapping[str, str] = {
    "demo": "run the main job on a built-in program and say what was done",
    "bench": "your model by several backends of torch.compile, side by side",
    "show": "what is in a file",
    "check": "read, print back, verify and re-derive; exit 1 on any difference",
    "schedule": "run the passes on a program; before and after",
    "simulate": "a program with collectives on more and more ranks; where it stops scaling",
    "kernels": "the kernels of a program: nests, bytes, predicted time",
    "plan": "static memory plan: total, lower bound, gap",
    "compile": "a model ahead of time: a package that runs without Python; or kernels of a program",
    "run": "run a package on arrays from files or on random ones, and time it",
    "report": "one page with what was decided and why, to open in a browser",
    "serve": "the files of a folder as pages, on this machine only",
    "export": "write a program as a TorchInductor dump",
    "why": "why one operation must follow another, and why two are (not) one kernel",
    "diff": "two schedules, programs or journals: what differs and what it cost",
    "explain": "the page of a code",
    "env": "environment variables and options",
    "replay": "run a reproducer again",
    "cache": "compiled code that is kept between runs: show it or clear it",
    "completion": "a script that completes this command in bash, zsh or fish",
}


EXTRAS = {
    "numpy": "interp",
    "scipy": "interp",
    "ml_dtypes": "interp",
    "torch": "torch",
    "triton": "triton",
    "ortools": "opt",
}
"""Which extra brings a package that is not here."""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line, or with the arguments of one command alone.

    Arguments come from the command's file, and loading all of them takes longer than most work.
    """
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
        if only is None or name == only:
            import_module(f"treadle.lab.commands.{name}").add_arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    _prepare_streams()
    words = sys.argv[1:] if argv is None else list(argv)
    # Only options without values come before the command, so this is it, or there is none.
    named = next((word for word in words if not word.startswith("-")), "")
    parser = build_parser(only=named)
    if not words:
        parser.print_help()  # who asks for nothing wants to know what there is
        return 2
    args = parser.parse_args(words)
    try:
        with progress(f"treadle {args.command}"):
            code = run_command(args)
        sys.stdout.flush()
        return code
    except TreadleError as e:
        return _report(e, args.json)
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
    except (MemoryError, RecursionError) as e:
        what = "memory" if isinstance(e, MemoryError) else "nesting"
        return _report(UsageError(f"the input needs more {what} than there is"), args.json)
    except Exception as e:  # a bug of ours: one line for the user, the rest for who asks
        if _wants_all():
            raise
        if (missing := _missing_extra(e, args.command)) is not None:
            return _report(missing, args.json)
        frame = traceback.extract_tb(e.__traceback__)[-1]
        place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        error = InternalError(
            f"{type(e).__name__} in {place}: {e}", notes=["TREADLE_DEBUG=1 shows where"]
        )
        return _report(error, args.json)


def _missing_extra(error: Exception, command: str) -> UsageError | None:
    """What to install for this command; None if the module is not one of the extras."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    return UsageError(
        f"`treadle {command}` needs {package}: pip install 'treadle[{extra}]'",
        notes=["the core needs nothing: dumps, schedules, plans and pages work without it"],
    )


def _prepare_streams() -> None:
    """Give the command an output to write to, also where there is none or it knows only ASCII."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif getattr(stream, "errors", "") == "strict" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _wants_all() -> bool:
    try:
        return Options.from_env().debug > 0
    except UsageError:
        return False


def run_command(args: argparse.Namespace) -> int:
    """Run the command that was named; gives its exit code, raises what goes wrong."""
    code: int = import_module(f"treadle.lab.commands.{args.command}").run(args)
    return code


def _report(error: TreadleError, as_json: bool) -> int:
    if as_json:
        # Scripts read one object from stdout whatever happens.
        errors = getattr(error, "errors", None) or [error.render()]
        print(json.dumps({"ok": False, "errors": list(errors)}))
    print(painted(error.render(), wants_colour(sys.stderr)), file=sys.stderr)
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
