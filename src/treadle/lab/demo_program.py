"""The program of the demo: a norm, a softmax and an in-place update, built by hand."""

from __future__ import annotations

from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program

ROWS, COLUMNS = 64, 256
EPSILON = 1e-5
RATE = 0.1


def demo_program() -> Program:
    """RMS-normalise x, scale by w, take the softmax of each row, and move `state` towards it."""
    b = ProgramBuilder("demo")
    x = b.input("x", "f32", [ROWS, COLUMNS])
    w = b.input("w", "f32", [COLUMNS])
    state = b.input("state", "f32", [ROWS, COLUMNS])
    scale = b.buffer("scale", "f32", [ROWS])
    normed = b.buffer("normed", "f32", [ROWS, COLUMNS])
    probs = b.output("probs", "f32", [ROWS, COLUMNS])

    with b.loop("norm_scale", [ROWS], reduce=[COLUMNS], origins=["rms_norm"]) as k:
        i, j = k.vars
        v = k.load(x, i, j)
        mean_square = k.sum(v * v) / float(COLUMNS)
        k.store(scale, (i,), k.rsqrt(mean_square + EPSILON))

    with b.loop("norm_apply", [ROWS, COLUMNS], origins=["rms_norm"]) as k:
        i, j = k.vars
        k.store(normed, (i, j), k.load(x, i, j) * k.load(scale, i) * k.load(w, j))

    with b.loop("softmax", [ROWS], reduce=[COLUMNS], origins=["softmax"]) as k:
        i, j = k.vars
        v = k.load(normed, i, j)
        e = k.exp(v - k.max(v))
        k.store(probs, (i, j), e / k.sum(e))

    with b.loop("update", [ROWS, COLUMNS], origins=["state.lerp_"]) as k:
        i, j = k.vars
        old = k.load(state, i, j)
        k.store(state, (i, j), old + (k.load(probs, i, j) - old) * RATE)

    return b.build()
