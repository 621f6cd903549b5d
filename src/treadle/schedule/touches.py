"""How a loop goes through a buffer, in a form that decides whether two loops meet at one point.

A touch has a level, the number of points at which it happens, and an access map, the addresses in
the order of those points:

    x[16*i + j]   for i in 8, reduce j in 16        level 128, map c0
    x[i]          at every j                        level 8, map c0

Two accesses meet at the same point if their levels and maps are equal. Accesses of different
levels do if the finer one does not move within a point of the coarser: see `outer_access_map`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from treadle.analysis.access import Access
from treadle.index import Domain, Expr, IndexMap, hint
from treadle.index.expr import mul
from treadle.ir.body import Body
from treadle.ir.pattern import pattern_of
from treadle.ir.program import Loop, Program
from treadle.kernel.space import ONE
from treadle.schedule.data_accesses import data_key


class Touch:
    """One access of a loop that may be fused."""

    __slots__ = (
        "access", "access_map", "bytes", "computed", "domain", "is_indirect", "is_write",
        "level", "mode", "storage",
    )  # fmt: skip

    def __init__(self, access: Access, op: Loop, program: Program) -> None:
        self.access = access
        self.storage = access.storage
        self.is_write = access.is_write
        self.mode = access.mode
        self.is_indirect = True
        self.domain: Domain | None = None
        self.access_map: IndexMap | None = None
        self.computed: object | None = None
        """For an address that comes from data: how it is computed."""
        if access.map is None:
            self.level: Expr = op.body.space.numel
            self.bytes = program.by_name[access.buffer].tensor_bytes
            return
        index = access.map.index
        known = pattern_of(op).pattern.derive(_ways)
        way = known.get(index)
        if way is None:
            way = known[index] = _touch_way(op.body, access)
        self.is_indirect, self.domain, self.level, self.access_map, points = way
        if way.is_indirect:
            self.computed = data_key(op.body, index)
        self.bytes = _bytes(access, points, program)

    @classmethod
    def of_call(cls, access: Access, program: Program) -> Touch:
        """An access of a call: element by element in `access.map`, or the buffer as a whole."""
        touch = cls.__new__(cls)
        touch.access, touch.storage = access, access.storage
        touch.is_write, touch.mode = access.is_write, access.mode
        touch.is_indirect = access.map is None
        touch.computed = touch.domain = touch.access_map = None
        touch.level = program.by_name[access.buffer].numel
        if access.map is not None:
            touch.domain = access.map.domain
            touch.level = touch.domain.numel
            touch.access_map = access_map(touch.domain, access.map.index)
        touch.bytes = _bytes(access, _points(access), program)
        return touch


class _TouchWay(NamedTuple):
    """What loops of one pattern share of an access by index."""

    is_indirect: bool
    domain: Domain | None
    level: Expr
    access_map: IndexMap | None
    points: int | None


def _ways(body: Body) -> dict[Expr, _TouchWay]:
    """The ways of a pattern by index, as far as they were asked for."""
    return {}


def _touch_way(body: Body, access: Access) -> _TouchWay:
    assert access.map is not None, "an access as a whole has no index"
    index = access.map.index
    points = _points(access)
    if access.is_indirect:
        return _TouchWay(True, None, body.space.numel, None, points)
    varies = not index.free.isdisjoint(body.reduce.vars)
    domain = body.space if varies or not len(body.reduce) else body.domain
    return _TouchWay(False, domain, domain.numel, access_map(domain, index), points)


def _points(access: Access) -> int | None:
    """The points at which it touches different elements; None for a buffer as a whole."""
    if access.map is None:
        return None
    points, free = 1, access.map.index.free
    for v, n in access.map.domain.items():
        if v in free or access.is_indirect:
            points *= n.value if n.value is not None else hint(n)
    return points


def _bytes(access: Access, points: int | None, program: Program) -> int:
    """What one pass over the loops moves: at most the buffer."""
    buffer = program.by_name[access.buffer]
    whole = buffer.tensor_bytes
    return whole if points is None else min(points * buffer.dtype.itemsize, whole)


@lru_cache(maxsize=65536)
def access_map(domain: Domain, index: Expr) -> IndexMap:
    """The addresses of an access in order, in normal form: equal maps are one object."""
    return _interned(IndexMap(domain, (index,)).sequence_form())


@lru_cache(maxsize=65536)
def _interned(m: IndexMap) -> IndexMap:
    return m


@lru_cache(maxsize=65536)
def outer_access_map(domain: Domain, index: Expr, r: Expr) -> IndexMap | None:
    """The access map over what is left of `domain` without its innermost `r` steps.

    None if the address differs within them, or if the loops are not cut there.
    """
    inner: Expr = ONE
    for at in range(len(domain) - 1, -1, -1):
        if inner is r:
            break
        inner = mul(domain.extents[at], inner)
    else:
        at = -1
    if inner is not r:
        return None
    kept = domain.vars[: at + 1]
    if not index.free.isdisjoint(domain.vars[at + 1 :]):
        return None
    pairs = list(domain.items())[: len(kept)]
    return access_map(Domain(pairs), index)


@lru_cache(maxsize=65536)
def visits_once(m: IndexMap) -> bool:
    """Whether an access map touches each address at one point only."""
    return m.is_injective()


@lru_cache(maxsize=65536)
def as_set(m: IndexMap) -> IndexMap:
    """The addresses of an access map without their order."""
    return _interned(m.set_form())
