"""`treadle check FILE...`: read, print back, verify; exit 1 with a precise message if not."""

from __future__ import annotations

import argparse
import time

from treadle.ir.spec import violations
from treadle.ir.text import parse_program, show_program
from treadle.lab.files import read_program
from treadle.lab.output import emit
from treadle.lab.summary import summarise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    parser.add_argument("files", metavar="FILE", nargs="+")


def run(args: argparse.Namespace) -> int:
    """Check each file; the exit code says whether all are fine."""
    start = time.perf_counter()
    results = [_check(path) for path in args.files]
    ok = all(not r["errors"] for r in results)
    lines = []
    for r in results:
        errors = r["errors"]
        assert isinstance(errors, list)
        lines.append(f"{r['file']}: {'ok' if not errors else 'FAILED'}, {r['ops']} operations")
        lines.extend(f"  {e}" for e in errors)
    errors = [f"{r['file']}: {e}" for r in results for e in _list(r["errors"])]
    seconds = round(time.perf_counter() - start, 3)
    emit(args.json, {"ok": ok, "errors": errors, "files": results, "seconds": seconds}, lines)
    return 0 if ok else 1


def _list(value: object) -> list[str]:
    assert isinstance(value, list)
    return value


def _check(path: str) -> dict[str, object]:
    program, text = read_program(path)
    errors = [str(v) for v in violations(program)]
    printed = show_program(program)
    if parse_program(printed, path) != program:
        errors.append("the printed program reads back as another one")
    if printed != _plain(text):
        errors.append(_first_difference(_plain(text), printed))
    result: dict[str, object] = {"file": path, "ops": len(program.leaves), "errors": errors}
    if not errors:
        result.update(summarise(program).to_json())
        result["errors"] = errors
    return result


def _plain(text: str) -> str:
    """The text without comment lines: printing does not give those back."""
    kept = [line for line in text.split("\n") if not line.strip().startswith("#")]
    return "\n".join(kept)


def _first_difference(given: str, printed: str) -> str:
    old, new = given.split("\n"), printed.split("\n")
    for k, (a, b) in enumerate(zip(old, new, strict=False), 1):
        if a != b:
            return f"line {k} is not in standard form: '{a.strip()}' should be '{b.strip()}'"
    return f"{len(old)} lines, but {len(new)} in standard form"
