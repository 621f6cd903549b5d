"""Translation validation: two programs give the same results on random data."""

from __future__ import annotations

from treadle.core.errors import Violation
from treadle.ir.program import Program


def same_meaning(before: Program, after: Program, seed: int = 0) -> list[Violation]:
    """CERT004 for each result that differs when both run in the interpreter."""
    # Only here is numpy needed: checks below level 3 work without it.
    from treadle.ir.interp.compare import differing_results

    return [
        Violation("CERT004", f"its value changed: {gap}", name)
        for name, gap in differing_results(before, after, seed)
    ]
