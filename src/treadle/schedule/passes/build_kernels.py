"""build-kernels: make kernels of loops and groups; what fusion promised becomes one body.

before   fused { t = x * 2 ; y = t + 1 }
after    launch fused { nest runs (t, y): y = x * 2 + 1 }
keeps    the order of the operations, the launches, every value the caller sees
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.context import Ctx
from treadle.core.verdict import Verdict
from treadle.ir.program import Program
from treadle.kernel.build import with_kernels


def build_kernels(program: Program, ctx: Ctx) -> Program:
    """Turn loops and groups into kernels."""

    def tell(question: str, names: Sequence[str], verdict: Verdict) -> None:
        if ctx.journal.enabled:
            ctx.journal.verdict(question, tuple(names), verdict)

    return with_kernels(program, tell)
