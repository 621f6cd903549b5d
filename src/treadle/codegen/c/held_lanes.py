"""Sums of lanes that are held in vectors while the loop around the lanes runs.

    for (int64_t r0 = 0; r0 < n2; ++r0) {           tr_w a4_h[64 / TR_W];    loaded from a4
        for (int64_t i1_l = 0; ...; ++i1_l) {       for (int64_t r0 = 0; r0 < n2; ++r0) {
            const float v0 = p1[...];           ->      for (int k = 0; k < 64 / TR_W; ++k) {
            a4[i1_l] += v0;                                 const int64_t i1_l = k * TR_W; ...
        }                                                   a4_h[k] = v0 + a4_h[k];
    }                                               }                        stored in a4

In memory each addition would wait until the one before has been stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from treadle.codegen.c.block import CodeBlock
from treadle.codegen.c.whole_values import HERE, UnwritableError
from treadle.codegen.c.whole_vectors import OPENING, PART, WIDEST, VectorLoop, WholeLoop

MOST_VECTORS = 8
"""Vectors that are held at once, of the widest kind."""
SUMMED = re.compile(r"(a\d+\w*)\[\w+\] \+= ")
"""What adds to a place for each lane."""


def hold_lanes(loop: VectorLoop, types: Mapping[str, str]) -> bool:
    """Hold the sums of a loop over lanes in vectors; whether that could be done."""
    lines = [*loop.block.head, *loop.block.parts]
    texts = [line for line in lines if isinstance(line, str)]
    opening, extent = OPENING.fullmatch(loop.block.opening), loop.extent
    if opening is None or len(texts) < len(lines) or loop.around is None or loop.reductions:
        return False
    if extent is None or extent % WIDEST or extent > MOST_VECTORS * WIDEST:
        return False
    held = {m[1] for t in texts if (m := SUMMED.match(t))}
    if not _is_alone(loop, held) or any(types.get(name) != "float" for name in held):
        return False
    try:
        whole = WholeLoop(loop, types, opening[1], opening[2], held)
        whole.read(texts)
    except UnwritableError:
        return False
    _replace(loop, loop.around, whole, extent)
    return True


def _is_alone(loop: VectorLoop, held: set[str]) -> bool:
    """Whether the loop around does nothing else, but for numbers that all lanes share."""
    parent, around = loop.parent, loop.around
    *before, pragma, last = parent.parts if len(parent.parts) > 1 else (None, None)
    if not held or last is not loop.block or around is None or parent not in around.parts:
        return False
    plain = [line for line in (*parent.head, *before) if isinstance(line, str)]
    if len(plain) < len(parent.head) + len(before) or not parent.opening.startswith("for ("):
        return False
    is_pragma = isinstance(pragma, str) and pragma.startswith("#pragma")
    return is_pragma and not any(f"{name}[" in line for name in held for line in plain)


def _replace(loop: VectorLoop, around: CodeBlock, body: WholeLoop, extent: int) -> None:
    """Put the loop around, with its sums in vectors, beside the plain one."""
    count, lane, held = f"{extent} / TR_W", body.variable, sorted(body.held)
    unrolled = f"#pragma GCC unroll {MOST_VECTORS * 2}"
    each = f"for (int k = 0; k < {count}; ++k)"
    whole = CodeBlock("/* on whole vectors, which hold the sums */")
    whole.add(*[f"tr_w {name}_h[{count}];" for name in held], unrolled)
    whole.open(each).add(*[f"{name}_h[k] = tr_w_load({name} + k * TR_W);" for name in held])
    walk = whole.open(loop.parent.opening)
    walk.head += loop.parent.head
    walk.parts += loop.parent.parts[:-2]
    walk.add(unrolled)
    point = walk.open(each)
    point.add(f"const int64_t {lane} = k * TR_W;")
    point.add(*[line.replace(PART, "[k]").replace(HERE, "") for line, _ in body.body])
    whole.add(unrolled)
    whole.open(each).add(*[f"tr_w_store({name} + k * TR_W, {name}_h[k]);" for name in held])
    where = next(k for k, part in enumerate(around.parts) if part is loop.parent)
    around.parts[where : where + 1] = ["#ifdef TR_WHOLE", whole, "#else", loop.parent, "#endif"]
