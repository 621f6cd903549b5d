"""Decisions for a page: every verdict of a journal, what refusals left on the table, the codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.core.codes import load_codes
from treadle.core.journal import Journal

ABOUT_KERNELS = ("fuse", "mix", "combine")
"""Questions about two operations that might become one launch."""


def refusals_in(journal: Journal) -> dict[str, dict[str, int]]:
    """How often each rule refused, and the bytes that it left on the table."""
    found: dict[str, dict[str, int]] = {}
    for event in journal.events("verdict"):
        if not event["ok"]:
            row = found.setdefault(event["code"], {"count": 0, "bytes": 0})
            row["count"] += 1
            row["bytes"] += int(event["facts"].get("bytes", 0))
    return dict(sorted(found.items()))


def traded_in(journal: Journal) -> dict[str, int]:
    """What fusions paid with memory: how many, by how much the peak rose, the bytes not moved."""
    paid = [e["facts"] for e in journal.events("verdict") if e["ok"] and e["facts"].get("paid")]
    return {
        "fusions": len(paid),
        "peak_bytes": sum(int(f["paid"]) for f in paid),
        "saved_bytes": sum(int(f.get("bytes", 0)) for f in paid),
    }


def verdict_rows(journal: Journal) -> list[dict[str, Any]]:
    """Every verdict that was kept, in order, with the pass that asked."""
    rows: list[dict[str, Any]] = []
    unclaimed = 0
    for event in journal.events():
        if event["kind"] == "pass":  # told when it ends, after all that it decided
            for row in rows[unclaimed:]:
                row["pass"] = event["name"]
            unclaimed = len(rows)
        if event["kind"] == "verdict":
            keys = ("question", "ops", "ok", "code", "facts")
            rows.append({key: event[key] for key in keys})
    return rows


def code_pages(codes: Iterable[str]) -> dict[str, dict[str, str]]:
    """Title and page of each code that has one."""
    known = load_codes()
    wanted = sorted({code for code in codes if code in known})
    return {code: {"title": known[code].title, "page": known[code].page} for code in wanted}
