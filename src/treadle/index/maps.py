"""Index maps: from the points of a loop nest to one or more indices.

An access `x[256*i + j]` inside `for i in 128, j in 256` is the map (i, j) -> 256*i + j. Loop
transformations act on maps (`permute`, `split`, `merge`), maps compose and, where they are
one-to-one, invert. Two normal forms decide whether accesses agree:

  sequence_form   the same addresses in the same order, whatever the loops are called and however
                  they are cut: (i: 128, j: 256) -> 256*i + j   becomes   (c0: 32768) -> c0
  set_form        the same addresses in any order: loops sorted by stride, idle loops gone
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from treadle.index.divide import exact_quotient
from treadle.index.domain import Domain
from treadle.index.expr import (
    Const,
    Expr,
    FloorDiv,
    IntLike,
    Kind,
    Mod,
    Symbol,
    as_expr,
    floordiv,
    loop,
    mod,
    mul,
    product_of,
    sum_of,
)
from treadle.index.rewrite import coefficient, substitute

Replacement: TypeAlias = dict[Symbol, IntLike]
MAX_CUTS = 64


@dataclass(frozen=True)
class IndexMap:
    """A function from the points of `domain` to the integers `results`."""

    domain: Domain
    results: tuple[Expr, ...]

    @classmethod
    def of(cls, domain: Domain, *results: IntLike) -> IndexMap:
        """The map with the given results, simplified under the domain."""
        return cls(domain, tuple([domain.facts.simplify(as_expr(r)) for r in results]))

    @property
    def index(self) -> Expr:
        """The only result."""
        (only,) = self.results
        return only

    def stride(self, v: Symbol) -> Expr | None:
        """How far the only result moves when `v` moves by one; None if that varies."""
        return coefficient(self.index, v)

    def after(self, inner: IndexMap) -> IndexMap:
        """self(inner(point)): inner's results are the points of our domain."""
        if len(inner.results) != len(self.domain):
            raise ValueError(
                f"{len(inner.results)} results do not fit {len(self.domain)} loops {self.domain}"
            )
        values: Replacement = dict(zip(self.domain.vars, inner.results, strict=True))
        return IndexMap.of(inner.domain, *[substitute(r, values) for r in self.results])

    def permute(self, order: Sequence[int]) -> IndexMap:
        """The same function, its loops visited in another nesting order."""
        return IndexMap(permute(self.domain, order), self.results)

    def split(self, v: Symbol, factor: IntLike) -> IndexMap:
        """Loop `v` cut into an outer loop and an inner loop of `factor` steps."""
        domain, values = split(self.domain, v, factor)
        return IndexMap.of(domain, *[substitute(r, values) for r in self.results])

    def merge(self, outer: Symbol) -> IndexMap:
        """Loop `outer` and the one inside it made one loop."""
        domain, values = merge(self.domain, outer)
        return IndexMap.of(domain, *[substitute(r, values) for r in self.results])

    def invert(self, shape: Sequence[IntLike]) -> IndexMap | None:
        """The map back from the indices in `shape` to our loops, or None if not one-to-one."""
        return _invert(self, tuple([as_expr(n) for n in shape]))

    def is_injective(self) -> bool:
        """Whether no two points of the loops provably give the same only result."""
        domain, (index,) = refine(self.domain, self.results)
        facts = domain.facts
        steps: list[tuple[Expr, Expr]] = []
        for v, n in domain.items():
            if n.value is not None and n.value <= 1:
                continue
            stride = coefficient(index, v)
            if stride is None or any(s in domain.vars for s in stride.free):
                return False
            steps.append((stride if facts.nonnegative(stride) else -stride, n))
        steps.sort(key=lambda step: (step[0].value is None, step[0].value or 0, len(step[0].terms)))
        span: Expr = Const(0)
        for stride, n in steps:
            # A step must leave behind everything that the smaller loops can reach.
            if not facts.less(span, stride):
                return False
            span = span + mul(stride, n - 1)
        return True

    def sequence_form(self) -> IndexMap:
        """The normal form under which equal means: same indices in the same order."""
        return _sequence_form(self)

    def set_form(self) -> IndexMap:
        """The normal form under which equal means: same indices, in whatever order and often."""
        base = self.sequence_form()
        if len(base.results) != 1 or any(n.value == 0 for n in base.domain.extents):
            return base
        return _sorted_by_stride(base)

    def __str__(self) -> str:
        return f"{self.domain} -> {', '.join(map(str, self.results))}"


@lru_cache(maxsize=65536)
def _sequence_form(m: IndexMap) -> IndexMap:
    # Fusion, in-place rules, kernels and their parameters all ask it of the same accesses.
    if any(n.value == 0 for n in m.domain.extents):
        return IndexMap(Domain.fresh([0]), tuple([Const(0)] * len(m.results)))
    domain, results = refine(m.domain, m.results)
    domain, results = drop_unit_loops(domain, results)
    domain, results = merge_contiguous(domain, results)
    domain, results = _merge_inside(domain, results)
    return _renamed(domain, results)


# --------------------------------------------------------------------- loop transformations


def permute(domain: Domain, order: Sequence[int]) -> Domain:
    """The loops of `domain` in the given order of positions."""
    if sorted(order) != list(range(len(domain))):
        raise ValueError(f"{list(order)} is not an order of {len(domain)} loops")
    pairs = list(domain.items())
    return Domain([pairs[k] for k in order])


def split(domain: Domain, v: Symbol, factor: IntLike) -> tuple[Domain, Replacement]:
    """Cut loop `v`: the new domain, and what v is in it. The factor must divide the extent."""
    factor = as_expr(factor)
    outer_extent = _exact(domain.extent(v), factor)
    if outer_extent is None:
        raise ValueError(f"{factor} does not provably divide {domain.extent(v)}, extent of {v}")
    taken = {x.name for x in domain.vars}
    outer, inner = (loop(_unused(f"{v.name}{suffix}", taken)) for suffix in ("o", "i"))
    pairs: list[tuple[Symbol, IntLike]] = []
    for x, n in domain.items():
        pairs.extend([(outer, outer_extent), (inner, factor)] if x is v else [(x, n)])
    return Domain(pairs), {v: mul(outer, factor) + inner}


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _exact(n: Expr, by: Expr) -> Expr | None:
    """n / by where by provably divides n."""
    if by.value == 0:
        return None
    if n.value is not None and by.value is not None:
        return Const(n.value // by.value) if n.value % by.value == 0 else None
    if n is by:
        return Const(1)
    total = []
    for base, c in n.terms:
        q = exact_quotient(base, c, by)
        if q is None:
            return _exact_by_divisor(n, by)
        total.append(q)
    if n.const and (by.value is None or n.const % by.value):
        return None
    return sum_of([*total, n.const // by.value if by.value else 0])


def _exact_by_divisor(n: Expr, by: Expr) -> Expr | None:
    """s // 8 where the size s is declared a multiple of 8."""
    if by.value is not None and isinstance(n, Symbol) and n.divisor % by.value == 0:
        return floordiv(n, by)
    return None


def merge(domain: Domain, outer: Symbol) -> tuple[Domain, Replacement]:
    """Make `outer` and the loop inside it one: the new domain, and what the two are in it."""
    at = domain.vars.index(outer)
    if at + 1 == len(domain):
        raise ValueError(f"there is no loop inside {outer}")
    inner, n = domain.vars[at + 1], domain.extents[at + 1]
    taken = {x.name for x in domain.vars}
    joined = loop(_unused(f"{outer.name}{inner.name}", taken))
    pairs = list(domain.items())
    pairs[at : at + 2] = [(joined, mul(domain.extents[at], n))]
    if n.value == 0:
        return Domain(pairs), {outer: 0, inner: 0}
    return Domain(pairs), {outer: floordiv(joined, n), inner: mod(joined, n)}


def drop_unit_loops(domain: Domain, results: Iterable[Expr]) -> tuple[Domain, tuple[Expr, ...]]:
    """Loops that run once removed, their variable replaced by 0."""
    gone: Replacement = {v: 0 for v, n in domain.items() if n.value == 1}
    if not gone:
        return domain, tuple(results)
    kept = Domain([(v, n) for v, n in domain.items() if v not in gone])
    return kept, tuple([kept.facts.simplify(substitute(r, gone)) for r in results])


def merge_contiguous(
    domain: Domain, results: Iterable[Expr], groups: Sequence[int] = ()
) -> tuple[Domain, tuple[Expr, ...]]:
    """Neighbouring loops merged where every result walks through them with one stride.

    `groups` are positions that a merge may not cross (e.g. the border to reduction loops).
    """
    results = tuple(results)
    loops: list[tuple[Symbol, Expr]] = []
    borders = set(groups)
    strides = [{v: coefficient(r, v) for v in domain.vars} for r in results]
    for at, (v, n) in enumerate(domain.items()):
        if loops and at not in borders and _continues(loops[-1], (v, n), strides):
            outer, extent = loops[-1]
            # v keeps its strides: v' = outer*n + v runs through both loops.
            results = tuple([substitute(r, {outer: 0}) for r in results])
            loops[-1] = (v, mul(extent, n))
        else:
            loops.append((v, n))
    return Domain(loops), results


def _continues(
    outer: tuple[Symbol, Expr],
    inner: tuple[Symbol, Expr],
    strides: Sequence[Mapping[Symbol, Expr | None]],
) -> bool:
    """Whether one outer step is the same as running through the inner loop, for every result."""
    for of in strides:
        large, small = of[outer[0]], of[inner[0]]
        if large is None or small is None or large is not mul(small, inner[1]):
            return False
    return True


def refine(domain: Domain, results: Iterable[Expr]) -> tuple[Domain, tuple[Expr, ...]]:
    """Loops cut into digits until floor divisions and remainders of them are gone (where exact).

    (i: 12) -> 4*(i % 3) + (i // 3)   becomes   (io: 4, ii: 3) -> 4*ii + io
    """
    facts = domain.facts
    current = tuple([facts.simplify(r) for r in results])
    for _ in range(MAX_CUTS):
        cut = _next_cut(domain, current)
        if cut is None:
            return domain, current
        domain, values = split(domain, *cut)
        current = tuple([domain.facts.simplify(substitute(r, values)) for r in current])
    return domain, current


def _next_cut(domain: Domain, results: Iterable[Expr]) -> tuple[Symbol, Expr] | None:
    """The smallest cut that brings a division of a single loop variable closer to vanishing."""
    cuts: list[tuple[Symbol, Expr]] = []
    for node in _divisions(results):
        num, den = node.children
        if isinstance(num, Symbol) and num in domain.vars and _exact(domain.extent(num), den):
            cuts.append((num, den))
    cuts = [(v, d) for v, d in cuts if d.value != 1 and d is not domain.extent(v)]
    return min(cuts, key=lambda c: (c[0].order, c[1].order), default=None)


def _divisions(results: Iterable[Expr]) -> list[FloorDiv | Mod]:
    found: dict[Expr, None] = {}
    stack = list(results)
    while stack:
        e = stack.pop()
        if isinstance(e, FloorDiv | Mod):
            found[e] = None
        stack.extend(e.children)
    return [e for e in found if isinstance(e, FloorDiv | Mod)]


# ----------------------------------------------------------------------------- normal forms


def _merge_inside(domain: Domain, results: tuple[Expr, ...]) -> tuple[Domain, tuple[Expr, ...]]:
    """Neighbouring loops merged that only occur together, also inside min, max, // and %.

    (a: 3, b: 4) -> (4*a + b + 5) % 12   becomes   (ab: 12) -> (ab + 5) % 12
    """
    at = 0
    while at + 1 < len(domain):
        if _stay_apart(domain, at, results):
            at += 1
            continue
        merged, values = merge(domain, domain.vars[at])
        new = tuple([merged.facts.simplify(substitute(r, values)) for r in results])
        # If the two were not used as one number, taking it apart shows as new divisions.
        if len(_divisions(new)) <= len(_divisions(results)):
            domain, results, at = merged, new, max(at - 1, 0)
        else:
            at += 1
    return domain, results


def _stay_apart(domain: Domain, at: int, results: Sequence[Expr]) -> bool:
    """Whether two neighbours are sure to show as new divisions if they were made one.

    Where every result goes through each of them with one stride, only strides that continue each
    other let the divisions cancel.
    """
    pairs = list(domain.items())[at : at + 2]
    strides = [{v: coefficient(r, v) for v, _ in pairs} for r in results]
    if any(stride is None for of in strides for stride in of.values()):
        return False
    outer, inner = pairs
    return not _continues(outer, inner, strides)


def _renamed(domain: Domain, results: tuple[Expr, ...]) -> IndexMap:
    fresh = Domain.fresh(domain.extents)
    values: Replacement = dict(zip(domain.vars, fresh.vars, strict=True))
    return IndexMap(fresh, tuple([substitute(r, values) for r in results]))


def _sorted_by_stride(m: IndexMap) -> IndexMap:
    """Loops by falling stride, idle ones dropped, descending walks turned round, merged."""
    strides = {v: m.stride(v) for v in m.domain.vars}
    index = m.index
    rows: list[tuple[int, int, Symbol, Expr]] = []
    for at, (v, n) in enumerate(m.domain.items()):
        stride = strides[v]
        if stride is None or stride.value is None:
            # Order cannot be compared: keep the loop where it is, outside all known ones.
            rows.append((0, at, v, n))
            continue
        if stride.value == 0:
            continue
        if stride.value < 0:
            index = substitute(index, {v: n - 1 - v})
        rows.append((-abs(stride.value), at, v, n))
    unknown = [r for r in rows if r[0] == 0]
    known = sorted((r for r in rows if r[0] != 0), key=lambda r: (r[0], r[1]))
    domain = Domain([(v, n) for _, _, v, n in [*unknown, *known]])
    domain, results = merge_contiguous(domain, [index])
    return _renamed(domain, results)


# -------------------------------------------------------------------------------- inversion


@lru_cache(maxsize=16384)
def _invert(m: IndexMap, shape: tuple[Expr, ...]) -> IndexMap | None:
    if len(shape) != len(m.results):
        raise ValueError(f"{len(m.results)} results but a shape of {len(shape)} sizes")
    target = Domain.fresh(shape, "t")
    linear = _linear(m.results, shape)
    fine_domain, (fine, *digits) = refine(m.domain, [linear, *m.domain.vars])
    position = _linear(target.vars, shape)
    values = _digits_of(fine_domain, fine, position, product_of(shape))
    if values is None:
        return None
    return IndexMap.of(target, *[substitute(d, values) for d in digits])


def _linear(indices: Iterable[Expr], shape: Sequence[Expr]) -> Expr:
    """Row-major position of `indices` in `shape`."""
    result: Expr = Const(0)
    for k, n in zip(indices, shape, strict=True):
        result = mul(result, n) + k
    return result


def _digits_of(domain: Domain, linear: Expr, position: Expr, total: Expr) -> Replacement | None:
    """Each loop variable as a digit of `position`, if `linear` is a mixed-radix number of them."""
    open_loops = {v: n for v, n in domain.items() if n.value != 1}
    values: Replacement = {v: 0 for v, n in domain.items() if n.value == 1}
    if linear.const or any(s.kind is Kind.INDIRECT for s in linear.free):
        return None
    unit: Expr = Const(1)
    while open_loops:
        digit = next((v for v in open_loops if coefficient(linear, v) is unit), None)
        if digit is None:
            return None
        n = open_loops.pop(digit)
        linear = substitute(linear, {digit: 0})
        values[digit] = mod(floordiv(position, unit), n)
        unit = mul(unit, n)
    return values if linear is Const(0) and unit is total else None
