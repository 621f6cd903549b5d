"""Attention operators for tests, described by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from treadle.codegen.triton.flex.spec import (
    CAPTURED,
    GRAD,
    RESULT,
    SCORE,
    FlexSpec,
    Lists,
    Points,
)
from treadle.index import as_expr
from treadle.ir.build_body import BodyBuilder
from treadle.ir.types import Buffer, DType, Layout

EXTENTS = tuple([as_expr(n) for n in (4, 16, 4096, 4096)])
BLOCKS = Lists(128, 128, has_full=True, per_batch=False, per_head=False)


def pair(name: str, dtype: DType = DType.F32) -> Buffer:
    """A value of the kernel."""
    return Buffer(name, dtype, Layout.contiguous(EXTENTS))


def points(result: DType, write: Any, *captured: Buffer) -> Points:
    """A function of pairs: `write(k)` gives its result."""
    named = {b.name: b for b in (pair(SCORE), pair(GRAD), pair(RESULT, result), *captured)}
    k = BodyBuilder(named, EXTENTS)
    k.store(named[RESULT], k.vars, write(k))
    return Points(k.build(), named)


def causal() -> Points:
    """Queries look at keys that are not behind them."""
    return points(DType.BOOL, lambda k: k.index(k.vars[2], "i32") >= k.index(k.vars[3], "i32"))


def alibi() -> Points:
    """What is far away counts less, in every head another way."""
    slopes = Buffer(f"{CAPTURED}0", DType.F32, Layout.contiguous([as_expr(16)]))

    def write(k: BodyBuilder) -> Any:
        apart = k.index(k.vars[3], "i32") - k.index(k.vars[2], "i32")
        return k.load(pair(SCORE), *k.vars) + k.load(slopes, k.vars[1]) * apart.to("f32")

    return points(DType.F32, write, slopes)


def softcap() -> Points:
    """Scores that never leave -20..20."""
    return points(
        DType.F32, lambda k: k.tanh(k.load(pair(SCORE), *k.vars) / 20.0) * k.constant(20.0, "f32")
    )


def softcap_joint() -> Points:
    """The gradient through `softcap`."""

    def write(k: BodyBuilder) -> Any:
        t = k.tanh(k.load(pair(SCORE), *k.vars) / 20.0)
        return k.load(pair(GRAD), *k.vars) * (k.constant(1.0, "f32") - t * t)

    return points(DType.F32, write)


PLAIN = FlexSpec(DType.BF16, 64, 64, 16, 1, False, 0.125, "ieee", None)
CAUSAL = replace(PLAIN, lists=BLOCKS, mask=causal())
SOFTCAP = replace(CAUSAL, score=softcap(), joint=softcap_joint())
