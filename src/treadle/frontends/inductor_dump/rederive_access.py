"""What a loop body reads and writes, as the dependences that a dump prints for it.

    var_ranges = {p0: 8, p1: 16}; index0 = 16*p0 + p1; ops.load('x', index0)

gives MemoryDep('x', c0, {c0: 128}) in normal form: loops that the index walks through with one
stride are one loop, in the order they have, loops that run once are gone, and so are innermost
loops that the index does not use. Un-normalised dumps keep the loops apart and call them d0, d1 ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass

from treadle.frontends.inductor_dump.model import (
    Argument,
    Dep,
    GetIndex,
    Index,
    LoopBody,
    MaskedCall,
    MemoryDep,
    OpCall,
    Pack,
    QuotedText,
    Ranges,
    StarDep,
    ValueName,
    Verbatim,
)
from treadle.index import Const, Domain, Expr, Kind, Symbol, coefficient, substitute
from treadle.index.expr import IntLike, indirect, loop, mul

INDIRECT = "indirect"
_KEPT = re.compile(r"\(\(([^()/]*)\)\)")
"""`64*((p0))`: what the writer has wrapped so that nothing looks into it."""
_NAME = re.compile(r"[A-Za-z_]\w*")


class UnsayableError(Exception):
    """The accesses of a body cannot be said with the index algebra; the text says why."""


@dataclass(frozen=True, slots=True)
class DumpAccess:
    """One access of a body, by the name used there; without an index it is to everything."""

    name: str
    index: Index | None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class Accesses:
    """The different accesses of a body, in the order in which the body comes to them."""

    reads: tuple[DumpAccess, ...]
    writes: tuple[DumpAccess, ...]
    stores_reductions: bool
    reduces: bool


# ------------------------------------------------------------------------ walking the body


def accesses_of(body: LoopBody) -> Accesses:
    """Every access of the body; a masked block counts where it is called first."""
    reads: dict[DumpAccess, None] = {}
    writes: dict[DumpAccess, None] = {}
    ops: set[str] = set()
    for call, indices in _calls(body):
        ops.add(call.op)
        if call.op in ("load", "load_seed"):
            reads[DumpAccess(_name(call), _place(call, indices))] = None
        elif call.op in ("store", "store_reduction"):
            mode = _mode(call) if call.op == "store" else None
            writes[DumpAccess(_name(call), _place(call, indices), mode)] = None
        elif call.op == "bucketize":
            for name in _bucketize_tables(call):
                reads[DumpAccess(name, None)] = None
    return Accesses(
        tuple(reads), tuple(writes), "store_reduction" in ops, bool(ops & {"reduction", "sort"})
    )


def _calls(body: LoopBody) -> Iterator[tuple[OpCall, dict[str, Index]]]:
    """Operation calls in the order of execution, each with the indices known at that place."""
    blocks = {block.name: block for block in body.blocks}
    named = dict(body.indices)
    entered: set[str] = set()

    def run(name: str) -> Iterator[tuple[OpCall, dict[str, Index]]]:
        # A block is entered once: a second call cannot add an access.
        if name in entered or name not in blocks:
            return
        entered.add(name)
        indices: dict[str, Index] = {}
        for statement in blocks[name].statements:
            if isinstance(statement, GetIndex) and statement.index in named:
                indices[statement.result] = named[statement.index]
            elif isinstance(statement, OpCall):
                yield statement, indices
            elif isinstance(statement, MaskedCall):
                yield from run(statement.block)

    yield from run("body")


def _name(call: OpCall) -> str:
    if call.args and isinstance(call.args[0], QuotedText):
        return call.args[0].text
    raise UnsayableError(f"ops.{call.op} names no buffer")


def _place(call: OpCall, indices: dict[str, Index]) -> Index:
    place = call.args[1] if len(call.args) > 1 else None
    if isinstance(place, ValueName) and place.name in indices:
        return indices[place.name]
    if isinstance(place, Verbatim) and place.text.isdigit():
        return Index.of(Const(int(place.text)))
    raise UnsayableError(f"ops.{call.op}('{_name(call)}', ...) has no index")


def _mode(call: OpCall) -> str | None:
    given = call.args[3] if len(call.args) > 3 else dict(call.keywords).get("mode")
    return given.text if isinstance(given, QuotedText) else None


def _bucketize_tables(call: OpCall) -> Iterator[str]:
    """The sorted table and, if there is one, the table of its order: both are searched whole."""
    for argument in call.args[1:]:
        first: Argument = argument
        if isinstance(argument, Pack) and argument.items:
            first = argument.items[0]
        if isinstance(first, QuotedText):
            yield first.text
    for key, argument in call.keywords:
        if (
            key == "sorter"
            and isinstance(argument, Pack)
            and isinstance(argument.items[0], QuotedText)
        ):
            yield argument.items[0].text


# ---------------------------------------------------------------------- from access to dep


class Spelling:
    """Dependences for the accesses of one body; equal indices are worked out once."""

    def __init__(self, ranges: Ranges, normalised: bool) -> None:
        loops: list[tuple[Symbol, Expr]] = []
        for name, extent in ranges:
            if extent.expr is None:
                raise UnsayableError(f"the extent {extent.text} of {name}")
            loops.append((loop(name), extent.expr))
        try:
            self.domain = Domain(loops)
        except ValueError as problem:
            raise UnsayableError(str(problem)) from None
        self.normalised = normalised
        self._known: dict[str, tuple[Index, Ranges]] = {}

    def dep(self, access: DumpAccess, name: str) -> Dep:
        """The dependence of an access, on the buffer `name`."""
        if access.index is None:
            return StarDep(name)
        found = self._known.get(access.index.text)
        if found is None:
            found = self._known[access.index.text] = self._spell(access.index)
        return MemoryDep(name, *found, access.mode)

    def _spell(self, index: Index) -> tuple[Index, Ranges]:
        if index.expr is None:
            raise UnsayableError(f"the index {index.text}")
        domain, expr = _without_unit_loops(self.domain, index.expr)
        if self.normalised:
            wrapped = set(_NAME.findall(" ".join(_KEPT.findall(index.text))))
            domain, expr = _merged(domain, expr, wrapped)
        values: dict[Symbol, IntLike] = {}
        loops: list[tuple[Symbol, Expr]] = []
        for at, (old, extent) in enumerate(domain.items()):
            new = loop(f"{'c' if self.normalised else 'd'}{at}")
            values[old] = new
            loops.append((new, extent))
        for symbol in expr.free:
            if symbol.kind is Kind.INDIRECT and symbol.name.startswith(INDIRECT):
                values[symbol] = indirect(f"tmp{symbol.name[len(INDIRECT) :]}")
        expr = substitute(expr, values)
        while loops and loops[-1][0] not in expr.free:
            loops.pop()
        return Index.of(expr), tuple([(v.name, Index.of(extent)) for v, extent in loops])


def _without_unit_loops(domain: Domain, expr: Expr) -> tuple[Domain, Expr]:
    gone: dict[Symbol, IntLike] = {v: 0 for v, n in domain.items() if n.value == 1}
    kept = [(v, n) for v, n in domain.items() if v not in gone]
    return Domain(kept), substitute(expr, gone)


def _merged(domain: Domain, expr: Expr, apart: Set[str]) -> tuple[Domain, Expr]:
    """Neighbouring loops made one where the index cannot tell them apart; those in `apart` stay."""
    loops: list[tuple[Symbol, Expr]] = []
    for v, n in reversed(list(domain.items())):
        is_free = loops and not apart & {v.name, loops[-1][0].name}
        if is_free and _can_merge(v, loops[-1], expr):
            inner, extent = loops[-1]
            expr = substitute(expr, {v: 0})
            loops[-1] = (inner, mul(extent, n))
        else:
            loops.append((v, n))
    return Domain(reversed(loops)), expr


def _can_merge(outer: Symbol, inner: tuple[Symbol, Expr], expr: Expr) -> bool:
    v, n = inner
    large, small = coefficient(expr, outer), coefficient(expr, v)
    if large is not None and small is not None:
        return large is mul(small, n)
    # Divisions and the like: does outer*n + inner stand together wherever they stand?
    apart = substitute(expr, {outer: mul(loop("outer"), n), v: loop("inner")})
    joined = substitute(expr, {outer: 0, v: mul(loop("outer"), 1) + loop("inner")})
    return _steps_alike(expr, outer, v, n) and apart is joined


def _steps_alike(expr: Expr, outer: Symbol, inner: Symbol, extent: Expr) -> bool:
    """Whether one step of each loop from the origin moves the index by the same stride."""
    start = substitute(expr, {outer: 0, inner: 0})
    large = substitute(expr, {outer: 1, inner: 0}) - start
    small = substitute(expr, {outer: 0, inner: 1}) - start
    return large is mul(small, extent)
