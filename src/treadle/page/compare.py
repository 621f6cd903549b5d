"""Two schedules of one program: which launches were joined, taken apart or moved, and what it cost.

Launches of both sides that share an operation are one change; every launch is in exactly one, so
what the changes cost adds up to the difference of the totals. The peaks are compared storage by
storage: what is live at the one and at the other adds up to their difference too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from treadle.analysis.accounting import ACCOUNTINGS, LAUNCHLESS, Accounting, figures
from treadle.analysis.cost import cost_model
from treadle.analysis.liveness import Liveness
from treadle.core.options import Options
from treadle.core.plain import as_plain
from treadle.ir.effects import runs
from treadle.ir.program import Operation, Program
from treadle.memory.plan_program import plan_program
from treadle.page.history import launches_of, moved
from treadle.page.kernels import operations_of
from treadle.page.memory import map_of_program
from treadle.page.report import PLANNED, given_policy, head

COSTS = ("launches", "bytes", "us")
IN_ANOTHER = "in the bytes of another storage"
NOT_LIVE = "not live at the peak"
FIGURES = ("kernels", "bytes_moved", "peak_bytes", "peak_lower_bound")


@dataclass(frozen=True)
class Counted:
    """One side: the program, and how its operations are counted."""

    program: Program
    accounting: Accounting
    options: Options

    def costs(self) -> dict[str, tuple[int, int, float]]:
        """Launches, bytes and microseconds of every operation at the top."""
        model = cost_model(self.program, self.options)
        found = {}
        for op in self.program.ops:
            if not runs(op):
                found[op.name] = (0, 0, 0.0)
                continue
            is_launch = int(not isinstance(op, LAUNCHLESS))
            size = self.accounting.bytes_of(self.program, op)
            found[op.name] = (is_launch, size, model.op_ns(op) / 1e3)
        return found


def compare(
    one: Program, other: Program, accounting: str, titles: tuple[str, str], options: Options
) -> dict[str, Any]:
    """The page of two schedules."""
    counted = ACCOUNTINGS[accounting]
    sides = [Counted(one, counted, options), Counted(other, counted, options)]
    totals = [asdict(figures(side.program, counted)) for side in sides]
    rows = changes_between(*sides)
    policy = given_policy(accounting)
    plans = [plan_program(p, policy=policy, options=PLANNED) for p in (one, other)]
    data = head("diff", f"{titles[0]} against {titles[1]}")
    data |= {
        "titles": list(titles),
        "accounting": accounting,
        "totals": {key: [totals[0][key], totals[1][key]] for key in FIGURES},
        "changes": rows,
        "summary": summary(rows),
        "cost": {
            key: [sum(row["a"][key] for row in rows), sum(row["b"][key] for row in rows)]
            for key in COSTS
        },
        "peak": peak_rows(one, other, counted),
        "resized": resized(one, other),
        "memory": [map_of_program(p, t, p.program) for p, t in zip(plans, titles, strict=True)],
    }
    found = as_plain(data)
    assert isinstance(found, dict)
    return found


def changes_between(one: Counted, other: Counted) -> list[dict[str, Any]]:
    """Every launch of both sides, those that share operations together, in order."""
    costs = [one.costs(), other.costs()]
    gone = set(moved(launches_of(one.program), launches_of(other.program)))
    rows = []
    for left, right in _components(one.program, other.program):
        mine, theirs = _side(left, costs[0]), _side(right, costs[1])
        kind = _kind(left, right, gone)
        if kind in ("same", "moved") and mine["bytes"] != theirs["bytes"]:
            kind = "rewritten"
        rows.append({"what": kind, "a": mine, "b": theirs})
    return rows


def summary(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each kind of change cost, the one that saves most bytes first; adds up to the totals."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        kind = found.setdefault(
            row["what"], {"what": row["what"], "count": 0} | dict.fromkeys(COSTS, 0)
        )
        kind["count"] += 1
        for key in COSTS:
            kind[key] = round(kind[key] + row["b"][key] - row["a"][key], 6)
    return sorted(found.values(), key=lambda kind: (kind["bytes"], kind["launches"]))


def _components(one: Program, other: Program) -> list[tuple[list[Operation], list[Operation]]]:
    """Operations of both programs, in groups that share no leaf with one another."""
    home: dict[str, int] = {}
    parent: list[int] = []

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    nodes = [(0, op) for op in one.ops] + [(1, op) for op in other.ops]
    for number, (_, op) in enumerate(nodes):
        parent.append(number)
        for name in operations_of(op):
            first = home.setdefault(name, number)
            a, b = root(first), root(number)
            parent[max(a, b)] = min(a, b)
    found: dict[int, tuple[list[Operation], list[Operation]]] = {}
    for number, (side, op) in enumerate(nodes):
        found.setdefault(root(number), ([], []))[side].append(op)
    return list(found.values())


def _kind(left: list[Operation], right: list[Operation], gone: set[str]) -> str:
    if not right:
        return "only in A"
    if not left:
        return "only in B"
    if len(left) > 1 and len(right) == 1:
        return "fused"
    if len(left) == 1 and len(right) > 1:
        return "split"
    if len(left) > 1:
        return "regrouped"
    mine, theirs = set(operations_of(left[0])), set(operations_of(right[0]))
    if mine != theirs:
        return "fewer operations" if len(theirs) < len(mine) else "more operations"
    return "moved" if mine & gone else "same"


def _side(ops: list[Operation], costs: dict[str, tuple[int, int, float]]) -> dict[str, Any]:
    rows = [costs[op.name] for op in ops]
    return {
        "names": [op.name for op in ops],
        "ops": [operations_of(op) for op in ops],
        "launches": sum(row[0] for row in rows),
        "bytes": sum(row[1] for row in rows),
        "us": round(sum(row[2] for row in rows), 6),
    }


def peak_rows(one: Program, other: Program, accounting: Accounting) -> dict[str, Any]:
    """What is live at the one peak and at the other, storage by storage."""
    sides = [Liveness(p, accounting.policy) for p in (one, other)]
    peaks = [side.timeline.peak() for side in sides]
    live = [
        {s.name: s.bytes for s in (side.timeline.live_during(peak.step) if peak.step is not None
                                   else ())}
        for side, peak in zip(sides, peaks, strict=True)
    ]  # fmt: skip
    blocks = [{r.storage: r.block for r in side.ranges()} for side in sides]
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys((*live[0], *live[1])):
        sizes = [side.get(name, 0) for side in live]
        why = [_fate(name, blocks[k], live[k]) for k in (0, 1)]
        rows.append({"storage": name, "a": sizes[0], "b": sizes[1], "in_a": why[0], "in_b": why[1]})
    rows.sort(key=lambda row: (-abs(row["a"] - row["b"]), -row["a"], row["storage"]))
    at = [None if p.step is None else s.name_of(p.step) for s, p in zip(sides, peaks, strict=True)]
    return {
        "bytes": [peak.bytes for peak in peaks],
        "at": at,
        "rows": rows,
        "groups": _peak_groups(rows),
    }


def _peak_groups(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What became of the storages of the one peak, and where those of the other come from."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["a"] and row["b"]:
            words = "live at both peaks"
        elif row["a"]:
            words = f"live at A's peak, {_not_there(row['in_b'], 'B')}"
        else:
            words = f"live at B's peak, {_not_there(row['in_a'], 'A')}"
        group = found.setdefault(words, {"what": words, "count": 0, "bytes": 0})
        group["count"] += 1
        group["bytes"] += row["b"] - row["a"]
    return sorted(found.values(), key=lambda group: (group["bytes"], group["what"]))


def _not_there(fate: str, side: str) -> str:
    """What a storage that is not live at the peak of a side is there instead."""
    if fate == NOT_LIVE:
        return f"not at {side}'s"
    return f"{IN_ANOTHER if fate.startswith(IN_ANOTHER) else fate} in {side}"


def _fate(name: str, blocks: dict[str, str | None], live: dict[str, int]) -> str:
    if name in live:
        return "live at the peak"
    if name not in blocks:
        return "not made"
    if blocks[name] is None:
        return "inside a kernel"
    return NOT_LIVE if blocks[name] == name else f"{IN_ANOTHER} ({blocks[name]})"


def resized(one: Program, other: Program) -> list[dict[str, Any]]:
    """Buffers that both have, in other sizes."""
    known = {b.name: b.storage_bytes for b in one.buffers}
    return [
        {"buffer": b.name, "a": known[b.name], "b": b.storage_bytes}
        for b in other.buffers
        if b.name in known and known[b.name] != b.storage_bytes
    ]
