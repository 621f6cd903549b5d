"""`treadle env`: environment variables, what they mean and what they are set to."""

from __future__ import annotations

import argparse

from treadle.core.options import Options, unknown_variables
from treadle.lab.output import emit, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`env` takes no arguments of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the options and where each can be set."""
    rows = [tuple(row) for row in Options.from_env().describe()]
    strays = unknown_variables()
    fields = Options().describe()[0]._fields
    lines = table([tuple("" if c is None else c for c in row) for row in rows], fields)
    for name, close in strays.items():
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        lines.append(f"  {name} is set but is no variable of Treadle{hint}")
    data = {"options": [dict(zip(fields, map(str, row), strict=True)) for row in rows]}
    emit(args.json, {**data, "unknown": {k: list(v) for k, v in strays.items()}}, lines)
    return 0
