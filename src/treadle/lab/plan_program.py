"""What `treadle plan` says about programs: Treadle's own and those in Inductor dumps.

before   the order of the file, memory counted as its maker counts it, nothing written in place
after    what can be run: blocks handed over in place, with `--order` in a better order

Where running takes more or less than its maker counts, the plan says for what.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.liveness import Liveness, LivenessPolicy
from treadle.core.options import Options
from treadle.core.writing import Outputs
from treadle.ir.program import Program
from treadle.lab.loading import LoadedFile, program_of
from treadle.lab.output import emit, human_bytes, table
from treadle.memory.csvio import print_csv
from treadle.memory.draw_svg import plan_svg
from treadle.memory.draw_text import curve_text, map_text
from treadle.memory.from_program import PlanOptions
from treadle.memory.plan_program import LiveAtPeak, PlannedProgram, plan_program
from treadle.schedule.ordering.search import FoundOrder, find_order

ORDER_SECONDS = 10.0
SHOWN = 20
HONESTY = (
    ("hold_until_wait", "what a collective reads is kept until its wait"),
    ("count_gaps", "gaps between strided elements take room"),
    ("include_inputs", "donated inputs are counted with what lives in them"),
    ("in_place", "blocks handed over in place"),
)
"""What is counted otherwise after than before, in the order in which it is taken into account."""
BETWEEN = "room between blocks, whose offsets are multiples of"
KEYS = ("temp_bytes", "total_bytes", "plan_lower_bound", "peak_bytes", "peak_lower_bound")


@dataclass(frozen=True)
class ComparedSide:
    """One side of the comparison: a program in some order, counted in some way."""

    planned: PlannedProgram
    bound: int

    @property
    def total(self) -> int:
        """Everything that is allocated."""
        return self.planned.total_bytes

    @property
    def room_between(self) -> int:
        """What is allocated and not filled at the peak."""
        return self.total - self.planned.peak.bytes

    def to_json(self) -> dict[str, object]:
        """The figures with the keys all commands share."""
        p = self.planned
        return {
            "temp_bytes": p.total_bytes - p.output_bytes,
            "total_bytes": p.total_bytes,
            "plan_lower_bound": p.total_lower_bound,
            "peak_bytes": p.peak.bytes,
            "peak_lower_bound": self.bound,
            "peak_at": p.peak.at,
            "unshared_bytes": p.unshared_bytes,
            "gap": round((p.total_bytes - p.total_lower_bound) / max(1, p.total_lower_bound), 6),
            "method": p.solution.method,
        }


def run(loaded: LoadedFile, args: argparse.Namespace, outputs: Outputs) -> int:
    """Plan the program as it stands and as it could run; 1 if the capacity is not met."""
    start = time.perf_counter()
    program = program_of(loaded)
    counted = ACCOUNTINGS[args.accounting or ("dump" if loaded.is_dump else "ours")]
    given = replace(counted.policy, include_inputs=False)
    real = LivenessPolicy(include_inputs=bool(program.donated))
    before = _planned(program, given, args)
    policy = given if args.accounting else real
    found = _ordered(program, policy, args) if args.order else None
    moved = program
    if found is not None:
        moved = program.with_ops(tuple([program.ops[k] for k in found.order]))
    after = _planned(moved, policy, args, None if found is None else found.bound)
    _write(outputs, after.planned)
    errors = []
    if args.capacity is not None and after.planned.total_bytes > args.capacity:
        total = after.planned.total_bytes
        errors.append(f"{total:,} bytes are over the capacity of {args.capacity:,}")
    reasons = {}
    if after.total != before.total:
        reasons = reasons_for_change(program, before.planned, policy)
        rest = after.planned.peak.bytes - before.planned.peak.bytes - sum(reasons.values())
        between = after.room_between - before.room_between
        more = {"another order": rest, f"{BETWEEN} {after.planned.of.alignment}": between}
        reasons |= {words: size for words, size in more.items() if size}
    order = None if found is None else _order_json(found)
    data: dict[str, object] = {"kind": loaded.kind, "file": loaded.path}
    data |= {"name": program.name}
    data |= {**after.to_json(), "before": before.to_json(), "after": after.to_json()}
    data |= {"more_because": reasons if after.total > before.total else {}}
    data |= {"less_because": reasons if after.total < before.total else {}}
    if not policy.include_inputs and not loaded.is_dump:  # a dump does not tell all their sizes
        data |= {"peak_bytes_with_inputs": Liveness(moved).peak().bytes}
    data |= {"order": order, "breakdown": [_row(r) for r in after.planned.breakdown]}
    data |= {"seconds": round(time.perf_counter() - start, 3), "ok": not errors, "errors": errors}
    emit(args.json, data, _lines(data, before, after, args))
    return 1 if errors else 0


def _planned(
    program: Program, policy: LivenessPolicy, args: argparse.Namespace, bound: int | None = None
) -> ComparedSide:
    options = PlanOptions(
        alignment=args.alignment,
        outputs_in_arena=args.outputs == "arena",
        pack_into_outputs=args.outputs == "hosts",
    )
    planned = plan_program(
        program, policy=policy, options=options, seconds=args.seconds, steps=args.steps,
        effort=args.effort, seed=args.seed,
    )  # fmt: skip
    return ComparedSide(planned, planned.of.live.working_set_bound() if bound is None else bound)


def reasons_for_change(
    program: Program, before: PlannedProgram, after: LivenessPolicy
) -> dict[str, int]:
    """By how much the peak changes with each thing that is counted otherwise, one after another."""
    policy, last = before.of.live.policy, before.peak.bytes
    found: dict[str, int] = {}
    for name, words in HONESTY:
        if getattr(policy, name) != getattr(after, name):
            policy = replace(policy, **{name: getattr(after, name)})
            peak = Liveness(program, policy).peak().bytes
            if peak != last:
                found[words] = peak - last
            last = peak
    return found


def _ordered(program: Program, policy: LivenessPolicy, args: argparse.Namespace) -> FoundOrder:
    seconds = ORDER_SECONDS if args.seconds is None else args.seconds
    return find_order(program, Options(), seconds=seconds, policy=policy)


def _order_json(found: FoundOrder) -> dict[str, object]:
    return {
        "peak_bytes": found.peak,
        "given_peak_bytes": found.given_peak,
        "peak_lower_bound": found.bound,
        "gap": round((found.peak - found.bound) / max(1, found.bound), 6),
        "method": found.method,
        "seconds": round(found.seconds, 3),
        "tried": found.tried,
    }


def _row(row: LiveAtPeak) -> dict[str, object]:
    place = None if row.place is None else f"{row.place.pool}+{row.place.offset}"
    return {**row._asdict(), "place": place}


def _write(outputs: Outputs, planned: PlannedProgram) -> None:
    problem, plan = planned.of.problem, planned.plan
    outputs.write("-o", print_csv(problem, plan))
    if "--svg" in outputs.paths:
        outputs.write("--svg", plan_svg(problem, plan, planned.lower_bound))


def _lines(
    data: Mapping[str, object], before: ComparedSide, after: ComparedSide, args: argparse.Namespace
) -> Iterator[str]:
    planned = after.planned
    count = len(planned.of.problem.blocks)
    yield f"memory plan for {data['name']}: {count} blocks, {len(planned.of.steps)} steps, valid"
    left, right = before.to_json(), after.to_json()
    yield from table([(k, left[k], right[k]) for k in KEYS], ("", "before", "after"))
    yield f"no two storages sharing would take {human_bytes(before.planned.unshared_bytes)}"
    yield from _change_lines(data, before, after)
    if "peak_bytes_with_inputs" in data:
        yield f"inputs are the caller's: with them the peak is {data['peak_bytes_with_inputs']:,}"
    gap = planned.total_bytes - planned.total_lower_bound
    yield "the plan is as low as can be" if not gap else f"{gap:,} above the lower bound"
    if data["order"] is not None:
        yield from _order_lines(data["order"])
    yield f"peak of {human_bytes(planned.peak.bytes)} at {planned.peak.at}; who is live there:"
    rows = [
        (r.storage, r.bytes, r.producer or "input", r.last_use or "kept", r.idle, _place(r))
        for r in planned.breakdown[:SHOWN]
    ]
    yield from table(rows, ("storage", "bytes", "made by", "last use", "idle", "place"))
    if len(planned.breakdown) > SHOWN:
        rest = planned.breakdown[SHOWN:]
        yield f"  and {len(rest)} more, {human_bytes(sum(r.bytes for r in rest))}"
    if args.map:
        yield from map_text(planned.of.problem, planned.plan)
        yield from curve_text(planned.of.problem, planned.plan, planned.lower_bound)
    errors = data["errors"]
    assert isinstance(errors, list)
    yield from errors
    yield f"{planned.solution.method}, {data['seconds']} s"


def _change_lines(
    data: Mapping[str, object], before: ComparedSide, after: ComparedSide
) -> Iterator[str]:
    """Why what can be run takes more or less than what the file's maker counts."""
    change = after.total - before.total
    reasons = data["more_because" if change > 0 else "less_because"]
    assert isinstance(reasons, dict)
    because = ", ".join(f"{words} ({size:+,} B)" for words, size in reasons.items())
    if change:
        word = "more" if change > 0 else "less"
        yield f"{abs(change):,} B {word} than its maker counts: {because}"


def _order_lines(order: object) -> Iterator[str]:
    assert isinstance(order, dict)
    yield (
        f"order: {order['given_peak_bytes']:,} given, {order['peak_bytes']:,} found"
        f" ({order['method']}), no order is below {order['peak_lower_bound']:,};"
        f" {order['seconds']} s"
    )


def _place(row: LiveAtPeak) -> str:
    return "its own" if row.place is None else f"{row.place.pool}+{row.place.offset}"
