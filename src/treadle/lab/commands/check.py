"""`treadle check FILE...`: read, print back, verify; exit 1 with a precise message if not.

Dumps of TorchInductor are also worked out again: what they claim must follow from their bodies.
So are XLA's buffer assignments, from positions, uses, shapes and the HLO text next to them.
"""

from __future__ import annotations

import argparse
import time

from treadle.frontends.inductor_dump import parse_dump, print_dump, rederive
from treadle.frontends.xla_dump import FILE_KINDS
from treadle.ir.spec import violations
from treadle.ir.text import parse_program, show_program
from treadle.lab import check_xla
from treadle.lab.files import kind_of, read_program, read_text
from treadle.lab.help import ANY_FILE
from treadle.lab.output import emit
from treadle.lab.summary import summarise

SHOWN_ERRORS = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `check`."""
    parser.add_argument("files", metavar="FILE", nargs="+", help=ANY_FILE)


def run(args: argparse.Namespace) -> int:
    """Check each file; the exit code says whether all are fine."""
    start = time.perf_counter()
    results = [_check(path) for path in args.files]
    ok = all(not r["errors"] for r in results)
    lines = []
    for r in results:
        errors = r["errors"]
        assert isinstance(errors, list)
        about = _about_dump(r) if r.get("kind") == "inductor_dump" else r.get("about", "")
        state = "ok" if not errors else "FAILED"
        lines.append(f"{r['file']}: {state}, {r['ops']} operations{about}")
        lines.extend(f"  {e}" for e in errors[:SHOWN_ERRORS])
        if len(errors) > SHOWN_ERRORS:
            lines.append(f"  ... and {len(errors) - SHOWN_ERRORS} more")
        lines.extend(f"  note: {note}" for note in _list(r.get("notes", [])))
    errors = [f"{r['file']}: {e}" for r in results for e in _list(r["errors"])]
    seconds = round(time.perf_counter() - start, 3)
    emit(args.json, {"ok": ok, "errors": errors, "files": results, "seconds": seconds}, lines)
    return 0 if ok else 1


def _list(value: object) -> list[str]:
    assert isinstance(value, list)
    return value


def _check(path: str) -> dict[str, object]:
    text = read_text(path)
    kind = kind_of(text)
    if kind in FILE_KINDS:
        return check_xla.check(path, text, kind)
    return _check_dump(path, text) if kind == "inductor_dump" else _check_program(path)


def _check_program(path: str) -> dict[str, object]:
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


def _check_dump(path: str, text: str) -> dict[str, object]:
    start = time.perf_counter()
    dump = parse_dump(text, path)
    printed = print_dump(dump)
    found = rederive(dump)
    errors = [] if printed == text else [_first_difference(text, printed)]
    errors += [str(finding) for finding in dump.findings if not finding.is_note]
    errors += [str(difference) for difference in found.differences]
    notes = [*[finding for finding in dump.findings if finding.is_note], *found.notes]
    nodes = sum(1 for section in dump.sections for _ in section.leaves())
    return {
        "file": path,
        "kind": "inductor_dump",
        "ops": nodes,
        "errors": errors,
        "notes": [str(note) for note in notes],
        "nodes": nodes,
        **found.checked,
        "total": found.total,
        "unknown_lines": dump.unknown_count,
        "seconds": round(time.perf_counter() - start, 3),
    }


def _about_dump(result: dict[str, object]) -> str:
    """How much of a dump was worked out again, for people."""
    total = result["total"]
    assert isinstance(total, dict)
    parts = [
        f"{result[key]} of {total[key]} {key.replace('_', ' ')}"
        for key in ("loop_nodes", "fused_headers", "user_flags")
        if total[key]
    ]
    again = f"; re-derived {', '.join(parts)}" if parts else ""
    unknown = result["unknown_lines"]
    return f"{again}; {unknown} unknown lines" if unknown else again


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
