"""Walking a pointwise kernel in another order, so that it meets another kernel point by point.

    producer   t[256*i + j]   for i in 128, j in 256
    consumer   t[256*j + i]   for i in 256, j in 128        the same elements, columns first

The producer's points are free to run in any order. Its address is inverted (address -> loops) and
put after the consumer's (loops -> address): the producer then runs over the consumer's loops. This
covers loop interchange, splitting, merging and the inversion of copies in one step.
"""

from __future__ import annotations

from dataclasses import replace

from treadle.index import Domain, Expr, FloorDiv, IndexMap, IntLike, Mod, Symbol, loop, substitute
from treadle.index.expr import floordiv, mod, mul
from treadle.ir.change import map_indices, with_loops
from treadle.ir.program import Loop
from treadle.schedule.touches import Touch, as_set


def can_align(a: Touch, b: Touch) -> bool:
    """Whether the two walk through the same addresses, once each, only in another order."""
    if a.access_map is None or b.access_map is None or a.level is not b.level:
        return False
    if a.access.width != b.access.width:
        return False
    return a.access_map is not b.access_map and as_set(a.access_map) is as_set(b.access_map)


def aligned(ops: list[Loop], path: Touch, goal: Touch) -> list[Loop] | None:
    """The pointwise loops `ops`, run so that `path` (an access of one of them) walks like `goal`.

    None if the address cannot be inverted, or if the new indices would need divisions that the old
    ones did not have.
    """
    assert path.access.map is not None, "only accesses by index are asked about"
    assert goal.access.map is not None, "only accesses by index are asked about"
    wanted = goal.access.map
    new = Domain([(loop(f"i{k}"), n) for k, n in enumerate(wanted.domain.extents)])
    names: dict[Symbol, IntLike] = dict(zip(wanted.domain.vars, new.vars, strict=True))
    address = IndexMap.of(new, substitute(wanted.index, names))
    inverse = path.access.map.invert([path.access.map.domain.numel])
    if inverse is None:
        return None
    loops = inverse.after(address).results
    found = []
    for op in ops:
        changed = _over(op, path.access.map.domain, loops, new)
        if changed is None:
            return None
        found.append(changed)
    return found


def _over(op: Loop, old: Domain, loops: tuple[Expr, ...], new: Domain) -> Loop | None:
    """The loop over `new`, where `loops` are the variables of `old` at each new point."""
    body = op.body
    if len(body.reduce):
        return None
    if body.domain.extents == old.extents:
        values: dict[Symbol, IntLike] = dict(zip(body.domain.vars, loops, strict=True))
    else:
        values = _digits(body.domain, _position(old, loops))
    facts = new.facts
    before = _divisions([e for at in body.walk() for e in at.stmt.attrs if isinstance(e, Expr)])
    fresh = map_indices(body, lambda e: facts.simplify(substitute(e, values)))
    after = _divisions([e for at in fresh.walk() for e in at.stmt.attrs if isinstance(e, Expr)])
    if after > before:
        return None
    return replace(op, body=with_loops(fresh, new, body.reduce))


def _position(domain: Domain, values: tuple[Expr, ...]) -> Expr:
    """The number of a point in loop order."""
    total: Expr | None = None
    for n, value in zip(domain.extents, values, strict=True):
        total = value if total is None else mul(total, n) + value
    assert total is not None, "there is at least one loop"
    return total


def _digits(domain: Domain, position: Expr) -> dict[Symbol, IntLike]:
    values: dict[Symbol, IntLike] = {}
    inner: Expr | None = None
    for v, n in reversed(list(domain.items())):
        at = position if inner is None else floordiv(position, inner)
        values[v] = mod(at, n)
        inner = n if inner is None else mul(inner, n)
    return values


def _divisions(exprs: list[Expr]) -> int:
    """How many different divisions and remainders the expressions contain."""
    seen: set[Expr] = set()
    stack = list(exprs)
    count = 0
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        count += isinstance(e, FloorDiv | Mod)
        stack.extend(e.children)
    return count
