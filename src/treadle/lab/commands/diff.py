"""`treadle diff A B`: two schedules, programs, dumps or journals: what differs and what it cost."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from treadle.analysis.accounting import ACCOUNTINGS, LAUNCHLESS, figures
from treadle.core.errors import UsageError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.core.tables import human_time
from treadle.core.writing import Outputs
from treadle.ir.effects import runs
from treadle.ir.program import Program
from treadle.lab.help import COMPARED_FILE
from treadle.lab.loading import load, program_of
from treadle.lab.output import emit, table
from treadle.lab.reporting import title_of
from treadle.page.compare import Counted, changes_between, compare, peak_rows, summary
from treadle.page.html import page

SHOWN = 12
LARGEST = 8
FEW = 4
FIGURES = ("kernels", "bytes_moved", "peak_bytes", "peak_lower_bound")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `diff`."""
    parser.add_argument("first", metavar="A", help=COMPARED_FILE)
    parser.add_argument("second", metavar="B", help="another file of the same kind")
    parser.add_argument("-o", dest="out", metavar="OUT", help="write a page with all of it here")
    parser.add_argument("--force", action="store_true", help="OUT may be an input")
    parser.add_argument(
        "--accounting", choices=sorted(ACCOUNTINGS), default="dump", help="how bytes are counted"
    )


def run(args: argparse.Namespace) -> int:
    """Compare two files of one kind; exit 1 if they differ."""
    one, other = load(args.first), load(args.second)
    outputs = Outputs({"-o": args.out}, [*one.inputs, *other.inputs], args.force)
    kinds = [one.kind, other.kind]
    if args.out and {"journal", "schedule"} & set(kinds):
        raise UsageError(f"a page compares programs and dumps, not a {kinds[0]} with a {kinds[1]}")
    if kinds[0] != kinds[1] and {"journal", "schedule"} & set(kinds):
        raise UsageError(f"cannot compare a {kinds[0]} with a {kinds[1]}")
    if one.journal is not None and other.journal is not None:
        data = _journals(one.journal, other.journal)
        emit(args.json, data, _journal_lines(data))
        return 0 if data["same"] else 1
    if one.schedule is not None and other.schedule is not None:
        data = _kernels(one.schedule.kernels(), other.schedule.kernels())
        emit(args.json, data, _kernel_lines(data))
        return 0 if data["same"] else 1
    programs = [program_of(one), program_of(other)]
    data = _kernels(*[_launches_of(p) for p in programs])
    # What is no launch (an allocation, a wait) counts for nothing, but where it stands does.
    data["same"] = all_of(programs[0]) == all_of(programs[1])
    counted = [asdict(figures(p, ACCOUNTINGS[args.accounting])) for p in programs]
    data["before"], data["after"] = ({k: c[k] for k in FIGURES} for c in counted)
    rows = [(k, counted[0][k], counted[1][k], counted[1][k] - counted[0][k]) for k in FIGURES]
    options, accounting = Options.from_env(), ACCOUNTINGS[args.accounting]
    changes = changes_between(*[Counted(p, accounting, options) for p in programs])
    data["changes"], peak = summary(changes), peak_rows(programs[0], programs[1], accounting)
    data["peak"] = peak["groups"]
    if args.out:
        titles = (title_of(one), title_of(other))
        found = compare(programs[0], programs[1], args.accounting, titles, options)
        outputs.write("-o", page(found))
    lines = [*table(rows, ("", "A", "B", "change")), *_kernel_lines(data)]
    if not data["same"]:
        lines += [*change_lines(changes), *peak_lines(peak)]
    emit(args.json, data, lines + ([f"wrote {args.out}"] if args.out else []))
    return 0 if data["same"] else 1


def all_of(program: Program) -> list[frozenset[str]]:
    """The operations that stand together, in order."""
    return [frozenset(leaf.name for leaf in op.leaves) for op in program.ops if op.leaves]


def _launches_of(program: Program) -> list[frozenset[str]]:
    """The same of launches and calls alone: as many as the figures say there are kernels."""
    ran = [op for op in program.ops if runs(op) and not isinstance(op, LAUNCHLESS)]
    return [frozenset(leaf.name for leaf in op.leaves) for op in ran]


def _kernels(one: list[frozenset[str]], other: list[frozenset[str]]) -> dict[str, object]:
    mine, theirs = set(one), set(other)
    names = [frozenset().union(*part) if part else frozenset() for part in (one, other)]
    common = [k for k in one if k in theirs]
    moved = common != [k for k in other if k in mine]
    only = [[sorted(k) for k in a if k not in b] for a, b in ((one, theirs), (other, mine))]
    return {
        "same": one == other,
        "kernels_in_both": len(common),
        "order_differs": moved,
        "kernels_only_in_a": only[0],
        "kernels_only_in_b": only[1],
        "operations_only_in_a": sorted(names[0] - names[1]),
        "operations_only_in_b": sorted(names[1] - names[0]),
    }


def _kernel_lines(data: dict[str, object]) -> Iterator[str]:
    if data["same"]:
        yield "the same kernels in the same order"
        return
    if not any(data[f"kernels_only_in_{which}"] for which in "ab") and not data["order_differs"]:
        yield "the same kernels in the same order; only allocations and waits stand elsewhere"
        return
    order = "in another order" if data["order_differs"] else "in the same order"
    yield f"{data['kernels_in_both']} kernels are in both, {order}"
    for which in "ab":
        names = data[f"operations_only_in_{which}"]
        assert isinstance(names, list)
        if names:
            yield f"operations only in {which.upper()}: {_some(names)}"


def change_lines(changes: list[dict[str, Any]]) -> Iterator[str]:
    """What each kind of change cost, adding up to the totals, and the largest ones."""
    kinds = summary(changes)
    rows = [(k["what"], k["count"], k["launches"], k["bytes"], human_time(k["us"])) for k in kinds]
    sums = [sum(k[key] for k in kinds) for key in ("count", "launches", "bytes", "us")]
    rows.append(("together", *sums[:3], human_time(sums[3])))
    yield "where launches, bytes and predicted time went:"
    yield from table(rows, ("change", "times", "launches", "bytes_moved", "time"), ("time",))
    cost = {id(row): row["b"]["bytes"] - row["a"]["bytes"] for row in changes}
    large = sorted([row for row in changes if cost[id(row)]], key=lambda row: -abs(cost[id(row)]))
    if not large:
        return
    shown = [(cost[id(r)], r["what"], _side(r["a"]), _side(r["b"])) for r in large[:LARGEST]]
    yield "the largest:"
    yield from table(shown, ("bytes_moved", "change", "in A", "in B"))


def peak_lines(peak: dict[str, Any]) -> Iterator[str]:
    """What became of the peak, adding up to its change."""
    groups = peak["groups"]
    if not any(group["bytes"] for group in groups):
        return
    rows = [(group["what"], group["count"], group["bytes"]) for group in groups]
    rows.append(("together", sum(r[1] for r in rows), sum(r[2] for r in rows)))
    yield "where the peak went:"
    yield from table(rows, ("storages", "how many", "peak_bytes"))


def _side(side: dict[str, Any]) -> str:
    """The launches of one side, those of several operations in brackets."""
    parts = [names[0] if len(names) == 1 else f"({_few(names)})" for names in side["ops"] if names]
    return " ".join(parts[:FEW]) + (f" and {len(parts) - FEW} more" if len(parts) > FEW else "")


def _few(names: list[str]) -> str:
    more = f" +{len(names) - FEW}" if len(names) > FEW else ""
    return " ".join(names[:FEW]) + more


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def _journals(one: Journal, other: Journal) -> dict[str, object]:
    decisions = [
        {(e["question"], *e["ops"]): e["code"] for e in j.events("verdict")} for j in (one, other)
    ]
    keys = [k for k in decisions[0] if k in decisions[1]]
    changed = [(*k, decisions[0][k], decisions[1][k]) for k in keys
               if decisions[0][k] != decisions[1][k]]  # fmt: skip
    counts = [Counter(d.values()) for d in decisions]
    return {
        "same": decisions[0] == decisions[1],
        "codes": {c: [counts[0][c], counts[1][c]] for c in sorted({*counts[0], *counts[1]})},
        "decided_otherwise": [list(c) for c in changed],
        "only_in_a": len(decisions[0]) - len(keys),
        "only_in_b": len(decisions[1]) - len(keys),
    }


def _journal_lines(data: dict[str, object]) -> Iterator[str]:
    if data["same"]:
        yield "the same decisions"
        return
    codes, changed = data["codes"], data["decided_otherwise"]
    assert isinstance(codes, dict)
    assert isinstance(changed, list)
    yield from table([(c, a, b) for c, (a, b) in codes.items()], ("code", "A", "B"))
    yield f"asked only in A: {data['only_in_a']}, only in B: {data['only_in_b']}"
    for question, first, second, a, b in changed[:SHOWN]:
        yield f"{question} {first} and {second}: {a} in A, {b} in B"
    if len(changed) > SHOWN:
        yield f"... and {len(changed) - SHOWN} more decided otherwise"
