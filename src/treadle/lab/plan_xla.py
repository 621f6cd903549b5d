"""What `treadle plan` says about XLA's files: XLA's plan and ours, before and after."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

from treadle.core.writing import Outputs
from treadle.frontends.xla_dump.import_plan import title_of
from treadle.frontends.xla_dump.plan import Replanned, plan_dump
from treadle.lab.loading import LoadedFile, sound
from treadle.lab.output import emit, human_bytes, table
from treadle.memory.csvio import print_csv
from treadle.memory.draw import peak_rows
from treadle.memory.draw_svg import plan_svg
from treadle.memory.draw_text import curve_text, map_text, peak_text


def run(loaded: LoadedFile, args: argparse.Namespace, outputs: Outputs) -> int:
    """Plan the dump again and print both plans; 1 if ours is over the capacity asked for."""
    start = time.perf_counter()
    dump = sound(loaded).xla
    assert dump is not None, "a file of this kind holds a dump"
    result = plan_dump(
        dump, seconds=args.seconds, steps=args.steps, seed=args.seed, effort=args.effort
    )
    seconds = round(time.perf_counter() - start, 3)
    outputs.write("-o", print_csv(result.problem, result.plan))
    if "--svg" in outputs.paths:
        picture = plan_svg(result.problem, result.plan, result.solution.lower_bound)
        outputs.write("--svg", picture)
    errors = []
    if args.capacity is not None and result.plan.height > args.capacity:
        errors.append(f"scratch of {result.plan.height:,} is over the capacity {args.capacity:,}")
    name = title_of(dump)
    data: dict[str, object] = {"kind": loaded.kind, "file": loaded.path, "name": name}
    data |= {**result.to_json(), "seconds": seconds, "ok": not errors, "errors": errors}
    emit(args.json, data, [*_lines(name, result, seconds), *errors, *_pictures(result, args)])
    return 1 if errors else 0


def _lines(name: str, r: Replanned, seconds: float) -> Iterator[str]:
    yield f"XLA buffer assignment {name}: planned again in {seconds} s ({r.method}), valid"
    rows = [
        ("scratch bytes", r.before.temp_bytes, r.after.temp_bytes),
        ("total bytes", r.before.total_bytes, r.after.total_bytes),
        ("lower bound", r.before.plan_lower_bound, r.after.plan_lower_bound),
    ]
    yield from table(rows, ("", "before", "after"))
    saved = r.before.total_bytes - r.after.total_bytes
    gap = r.after.total_bytes - r.after.plan_lower_bound
    state = "as low as can be" if gap == 0 else f"{gap:,} above the lower bound"
    share = 100 * saved / max(1, r.before.total_bytes)
    yield f"saved {saved:,} ({human_bytes(saved)}, {share:.2f} %); {state}"
    movable = sum(block.fixed is None for block in r.problem.blocks)
    yield (
        f"{r.in_hosts} of {movable} temporaries live inside outputs or donated inputs; "
        f"offsets are multiples of {r.alignment}"
    )
    if r.temp_bytes_with_tables is not None:
        kept = r.temp_bytes_with_tables
        yield f"with every tuple table kept apart, as XLA:GPU needs it: scratch {kept:,}"


def _pictures(r: Replanned, args: argparse.Namespace) -> Iterator[str]:
    if args.map and not args.json:
        yield from map_text(r.problem, r.plan)
        yield from curve_text(r.problem, r.plan, r.solution.lower_bound)
        yield from peak_text(peak_rows(r.problem, r.plan))
