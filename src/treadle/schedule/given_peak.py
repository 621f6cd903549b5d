"""The peak of the program as it was given: what passes measure the memory by that they spend.

Asked for by need: many runs of passes spend none.
"""

from __future__ import annotations

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.liveness import program_peak
from treadle.core.context import Ctx
from treadle.ir.program import Program


def given_peak(ctx: Ctx) -> int:
    """Bytes of the peak that the context names, or of the program that it names; 0 if neither."""
    if ctx.peak_bytes is not None:
        return ctx.peak_bytes
    if not isinstance(ctx.given, Program):
        return 0
    return program_peak(ctx.given, ACCOUNTINGS[ctx.options.accounting].policy)
