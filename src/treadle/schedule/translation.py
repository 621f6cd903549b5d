"""Translation validation: two programs give the same results on random data."""

from __future__ import annotations

from treadle.core.errors import Violation
from treadle.ir.program import Program


def same_meaning(
    before: Program, after: Program, seed: int = 0, *, rounds: bool = False
) -> list[Violation]:
    """CERT004 for each result that differs when both run in the interpreter.

    A pass that `rounds` may make sums of f32 otherwise, if the program's numerics say so.
    """
    # Only here is numpy needed: checks below level 3 work without it.
    from treadle.ir.interp.compare import differing_results

    allowed = before.numerics.largest_rounding if rounds else 0.0
    return [
        Violation("CERT004", f"its value changed: {gap}", name)
        for name, gap in differing_results(before, after, seed, allowed=allowed)
    ]
