"""The demo without torch: a hand-built program through every part, in a few readable lines."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from treadle.analysis.cost import cost_model
from treadle.analysis.deps import dependences
from treadle.analysis.liveness import Liveness, LiveRange
from treadle.core.codes import load_codes
from treadle.core.context import Ctx, journal_for
from treadle.core.options import Options
from treadle.core.writing import Outputs
from treadle.ir.program import Loop, Program
from treadle.ir.spec import verify
from treadle.ir.text import parse_program, show_program
from treadle.lab.demo_program import COLUMNS, EPSILON, RATE, ROWS, demo_program
from treadle.lab.output import emit, human_bytes, table
from treadle.lab.scheduling import context_for
from treadle.lab.summary import summarise
from treadle.page.html import page
from treadle.page.report import report_of_story
from treadle.page.story import tell
from treadle.schedule.pipeline import run_pipeline

TOLERANCE = 1e-6


def run(args: argparse.Namespace, why: str | None = None) -> int:
    """Verify, analyse, schedule, run and compare; exit 1 if the results differ.

    `why` says what kept the main demo from running.
    """
    start = time.perf_counter()
    program = verify(demo_program())
    assert parse_program(show_program(program)) == program, (
        "the text of the demo program reads back as another program"
    )
    options = Options.from_env()
    ctx = Ctx(options, cost_model(program, options), journal_for(options))
    scheduled = run_pipeline(program, ctx)
    errors = _errors(program, scheduled)
    summary = summarise(program)
    seconds = time.perf_counter() - start
    ok = all(e <= TOLERANCE for e in errors.values())
    data = {"kind": "program", "note": why, **summary.to_json(), "max_error": errors, "ok": ok}
    data["seconds"] = round(seconds, 3)
    lines = [
        *([why, ""] if why else []),
        *([show_program(program)] if args.text else []),
        *_lines(program, scheduled, errors),
    ]
    lines.append(f"{'all results agree' if ok else 'RESULTS DIFFER'}; {seconds:.2f} s")
    if args.out:
        outputs = Outputs({"-o": args.out}, ())
        context = context_for(program, options, program)
        outputs.write("-o", page(report_of_story(tell(program, program, context, "demo"))))
        lines.append(f"wrote {args.out}")
    emit(args.json, data, lines)
    return 0 if ok else 1


def _lines(program: Program, scheduled: Program, errors: dict[str, float]) -> Iterator[str]:
    rules = sum(c.startswith("IR") for c in load_codes())
    yield f"program {program.name}: {len(program.ops)} operations, {rules} rules hold"
    deps = dependences(program)
    yield ""
    yield "dependences"
    for d in deps.deps:
        order = "order only" if d.ordering_only else "carries data"
        yield f"  {d.kind.name}  {deps.explain(d)} ({order})"
    live = Liveness(program)
    yield ""
    yield "live ranges"
    reused_by = live.in_place_reuse()
    rows = [
        (r.storage, r.bytes, r.first or "(input)", r.last or "-", _end(r, reused_by))
        for r in live.ranges()
    ]
    yield from table(rows, ("storage", "bytes", "from", "to", "then"))
    peak, bound = live.peak(), live.working_set_bound()
    yield f"  peak {human_bytes(peak.bytes)} at {peak.at}, no order can be below {bound:,} B"
    yield ""
    yield "after the passes"
    loops = [
        (op.name, leaf.name, str(leaf.body.space))
        for op in scheduled.ops
        for leaf in op.leaves
        if isinstance(leaf, Loop)
    ]
    yield from table(loops, ("kernel", "operation", "loops"))
    yield ""
    yield "interpreter against plain numpy (largest difference)"
    for name, error in errors.items():
        yield f"  {name}: {error:.2e}"


def _end(r: LiveRange, reused_by: dict[str, str]) -> str:
    if r.storage in reused_by:
        return f"its block goes to {reused_by[r.storage]}"
    return "freed" if r.freed else "kept for the caller"


def _errors(program: Program, scheduled: Program) -> dict[str, float]:
    """The largest difference of each result to a plain numpy version, before and after passes."""
    import numpy as np

    from treadle.ir.interp import run as interpret

    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    w = rng.standard_normal(COLUMNS, dtype=np.float32)
    state = rng.standard_normal((ROWS, COLUMNS), dtype=np.float32)
    wide = x.astype(np.float64)
    normed = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + EPSILON) * w
    e = np.exp(normed - normed.max(axis=1, keepdims=True))
    probs = e / e.sum(axis=1, keepdims=True)
    expected = {"probs": probs, "state": state + (probs - state) * RATE}
    errors = {}
    for label, p in (("", program), (" after passes", scheduled)):
        result = interpret(p, {"x": x, "w": w, "state": state})
        for name, want in expected.items():
            errors[name + label] = float(np.abs(result.read(name) - want).max())
    return errors
