"""A line that wraps after a number of steps as two loops, of which the inner one is the step.

    for i, j in 256:               y[256*i + j] = x[32*i + 4096*(j // 32) + j % 32]
    ->   for i, j in 8, k in 32:   y[256*i + 32*j + k] = x[32*i + 4096*j + k]

What was two dimensions to whoever wrote it is one loop where the result is walked straight through.
Vectors load what lies side by side, so both loops come back where no step is left over and the
inner one is long enough.
"""

from __future__ import annotations

from collections.abc import Iterator

from treadle.index import Domain, Expr, FloorDiv, Mod, Symbol, as_expr, coefficient, loop
from treadle.ir.body import Body
from treadle.ir.program import Nest, Program
from treadle.kernel.decided import over_parts
from treadle.kernel.pieces import index_parts, indices_of, is_sound, line_of

SHORTEST = 16
"""Steps of an inner loop: one vector of the widest."""


def in_short_lines(nest: Nest, program: Program) -> Body | None:
    """The body with one loop as two, after which no index wraps within a line; None if none is."""
    body = nest.body
    if len(body.reduce):
        return None
    v = line_of(body)
    n = None if v is None else body.domain.extent(v).value
    if v is None or n is None:
        return None
    for steps in sorted({*_lengths(body, v)}):
        if steps >= SHORTEST and n > steps and n % steps == 0:
            found = _as_two(body, v, steps, program)
            inner = found.domain.vars[body.domain.vars.index(v) + 1]
            wraps = any(True for e in indices_of(found) for _ in index_parts(e, inner))
            if not wraps and is_sound(found, program):
                return found
    return None


def _lengths(body: Body, v: Symbol) -> Iterator[int]:
    """By what positions along a loop are divided."""
    for e in indices_of(body):
        for part in index_parts(e, v):
            if isinstance(part, FloorDiv | Mod) and part.den.value is not None:
                step = coefficient(part.num, v)
                if step is not None and step.value == 1:
                    yield part.den.value


def _as_two(body: Body, v: Symbol, steps: int, program: Program) -> Body:
    """The body with `steps` points of a loop as a loop of their own."""
    inner = _fresh(body, v)
    loops: list[tuple[Symbol, Expr]] = []
    for w, n in body.domain.items():
        if w is v:
            loops += [(v, as_expr((n.value or 0) // steps)), (inner, as_expr(steps))]
        else:
            loops.append((w, n))
    return over_parts(body, Domain(loops), [{v: v * steps + inner}], program.by_name)


def _fresh(body: Body, v: Symbol) -> Symbol:
    used = {w.name for w in body.space.vars}
    name = f"{v.name}_in"
    while name in used:
        name += "_"
    return loop(name)
