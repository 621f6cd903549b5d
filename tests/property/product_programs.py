"""Random products of matrices as programs: sizes, layouts, batches, what follows each point."""

from __future__ import annotations

from hypothesis import strategies as st

from treadle.ir.program import Program
from treadle.ir.text import parse_program

FOLLOWS = {
    "nothing": (("%4",), ""),
    "bias": (("%6",), "  %5 = load b[j]\n  %6 = add %4, %5\n"),
    "rows": (("%7",), "  %5 = load c[i]\n  %6 = mul %4, %5\n  %7 = relu %6\n"),
    "other": (("%6",), "  %5 = load d[{at}]\n  %6 = sub %5, %4\n"),
}
"""What is done with a sum, and the value that is stored."""


@st.composite
def products(draw: st.DrawFn, most: int = 70) -> Program:
    """A loop that multiplies: each matrix by rows or by columns, with gaps or without."""
    m, n = draw(st.integers(1, most)), draw(st.integers(1, most))
    k = draw(st.one_of(st.integers(1, 80), st.sampled_from([512, 513, 600, 1030])))
    several = draw(st.sampled_from([1, 1, 3]))
    x, x_size = _lies(draw, m, k, "i", "r")
    w, w_size = _lies(draw, k, n, "r", "j")
    is_shared = draw(st.booleans())
    first, second = f"{x_size}*b0 + {x}", w if is_shared else f"{w_size}*b0 + {w}"
    at = f"{m * n}*b0 + " + draw(st.sampled_from([f"{n}*i + j", f"i + {m}*j"]))
    (made,), follow = FOLLOWS[draw(st.sampled_from(sorted(FOLLOWS)))]
    swapped = "%1, %0" if draw(st.booleans()) else "%0, %1"
    text = f"""treadle 1
program p
inputs x, w, b, c, d
outputs y

buffer x : f32[{several * x_size}] on cpu
buffer w : f32[{several * w_size}] on cpu
buffer b : f32[{n}] on cpu
buffer c : f32[{m}] on cpu
buffer d : f32[{several * m * n}] on cpu
buffer y : f32[{several * m * n}] on cpu

loop y on cpu for b0 in {several}, i in {m}, j in {n} reduce r in {k} {{
  %0 = load x[{first}]
  %1 = load w[{second}]
  %2 = reduce dot {swapped}
{follow.format(at=at)}  store y[{at}] = {made}
}}
"""
    return parse_program(_renumbered(text))


def _lies(draw: st.DrawFn, rows: int, columns: int, down: str, along: str) -> tuple[str, int]:
    """An index of a matrix and how many elements it takes."""
    gap = draw(st.sampled_from([0, 0, 1, 5]))
    if draw(st.booleans()):
        return f"{columns + gap}*{down} + {along}", rows * (columns + gap)
    return f"{down} + {rows + gap}*{along}", columns * (rows + gap)


def _renumbered(text: str) -> str:
    """Values counted without gaps: what follows a sum was written from four on."""
    for old, new in (("%4", "%2"), ("%5", "%3"), ("%6", "%4"), ("%7", "%5")):
        text = text.replace(old, new)
    return text
