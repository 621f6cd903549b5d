"""bucket-collectives: send small collectives of a group as one, as far as they allow it.

before   a = gather(x) ; wait a ; use(a) ; b = gather(y) ; wait b ; use(b)
after    a, b = gather_coalesced([x, y]) ; wait a ; use(a) ; wait b ; use(b)
keeps    every dependence; what each collective delivers; the same buckets on every rank

Run only if option `bucket` asks for it, before all other passes: they then order what is sent.
"""

from __future__ import annotations

from treadle.core.context import Ctx
from treadle.ir.program import Program
from treadle.schedule.overlap.bucketing import choose_buckets, with_buckets


def bucket_collectives(program: Program, ctx: Ctx) -> Program:
    """Send small collectives together, up to the size that the option says or simulation finds."""
    size = ctx.options.bucket
    return (
        with_buckets(program, ctx, size) if isinstance(size, int) else choose_buckets(program, ctx)
    )
