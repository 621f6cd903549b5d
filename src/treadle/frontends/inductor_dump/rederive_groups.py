"""Iteration spaces, layout lines and the headers of fused groups, from what they are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from treadle.frontends.inductor_dump.model import (
    Bracketed,
    Dep,
    DumpBuffer,
    DumpLoop,
    DumpNode,
    Index,
    Layout,
    LoopBody,
    MemoryDep,
    TensorLayout,
    WeakDep,
)
from treadle.frontends.inductor_dump.rederive_access import (
    DumpAccess,
    Spelling,
    UnsayableError,
    accesses_of,
)
from treadle.frontends.inductor_dump.rederive_same import is_same_access
from treadle.frontends.inductor_dump.rederive_users import DerivedNode, buffers_of, key
from treadle.index import Expr, Kind, substitute
from treadle.index.expr import Const, loop, mul

Keyed = dict[tuple[object, ...], Dep]

# -------------------------------------------------------------------------- iteration spaces


def wrong_space(space: DumpLoop, body: LoopBody | None) -> Iterator[tuple[str, str, str]]:
    """Yield (what, printed, derived) for sizes and iteration numbers that do not fit the body.

    Of a template, which shows no body, only the iteration numbers are compared with the sizes.
    """
    sizes = _two_lists(space.sizes)
    if sizes is None:
        yield "sizes", _shown(space.sizes), "two lists"
        return
    if body is not None:
        extents = [extent for _, extent in body.ranges]
        if not _same(sizes[0] + sizes[1], extents):
            yield "sizes", _shown(space.sizes), f"the extents {_shown(Bracketed(tuple(extents)))}"
            return
        for derived in _wrong_border(body, len(sizes[0])):
            yield "sizes", _shown(space.sizes), derived
    iteration = iteration_of(space.device, *sizes)
    if iteration is None or not _equal(space.iteration, iteration):
        shown = _shown(iteration) if iteration else "something else"
        yield "group.iteration", _shown(space.iteration), shown


def _wrong_border(body: LoopBody, kept: int) -> Iterator[str]:
    """What contradicts that the first `kept` loops are kept and the others reduced."""
    accesses = accesses_of(body)
    reduced = {loop(name) for name, _ in body.ranges[kept:]}
    if reduced and not (accesses.reduces or _has_scan(body)):
        yield "no reduced loops, as nothing is reduced"
    if accesses.stores_reductions:
        for access in accesses.writes:
            expr = access.index.expr if access.index else None
            if expr is not None and expr.free & reduced:
                yield f"a loop kept for {access.name}"


def wrong_device(space: DumpLoop, outputs: Iterable[DumpBuffer]) -> Iterator[tuple[str, str, str]]:
    """Yield the device of a node if what it makes is elsewhere; old layouts show no number."""
    for buffer in outputs:
        if isinstance(buffer.layout, TensorLayout):
            device = buffer.layout.device
            if space.device != device and not space.device.startswith(f"{device}:"):
                yield "group.device", space.device, f"{device}, where {buffer.name} is"


def iteration_of(device: str, kept: list[Index], reduced: list[Index]) -> Bracketed | None:
    """The iteration numbers of a device: two lists on the CPU, else two products."""
    if device.startswith("cpu"):
        return Bracketed((Bracketed(tuple(kept), "()"), Bracketed(tuple(reduced), "()")), "()")
    totals: list[Index] = []
    for part in (kept, reduced):
        total: Expr = Const(1)
        for extent in part:
            if extent.expr is None:
                return None
            total = mul(total, extent.expr)
        totals.append(Index.of(total))
    return Bracketed(tuple(totals), "()")


def _two_lists(sizes: Bracketed | Index) -> tuple[list[Index], list[Index]] | None:
    if not isinstance(sizes, Bracketed) or len(sizes.items) != 2:
        return None
    first, second = sizes.items
    if not isinstance(first, Bracketed) or not isinstance(second, Bracketed):
        return None
    lists = [[i for i in part.items if isinstance(i, Index)] for part in (first, second)]
    return lists[0], lists[1]


def _has_scan(body: LoopBody) -> bool:
    names = [name for block in body.blocks for name in map(_target, block.statements)]
    return any(name.startswith(("scan", "sort", "partial")) for name in names)


def _target(statement: object) -> str:
    return str(getattr(statement, "target", "") or getattr(statement, "op", ""))


def _same(a: Iterable[Index], b: Iterable[Index]) -> bool:
    return [i.expr or i.text for i in a] == [i.expr or i.text for i in b]


def _equal(a: Bracketed | Index, b: Bracketed | Index) -> bool:
    if isinstance(a, Index) or isinstance(b, Index):
        both = isinstance(a, Index) and isinstance(b, Index)
        return both and _same([a], [b])  # type: ignore[list-item]
    if len(a.items) != len(b.items):
        return False
    return all(_equal(x, y) for x, y in zip(a.items, b.items, strict=True))


def _shown(nest: Bracketed | Index) -> str:
    if isinstance(nest, Index):
        return nest.text
    inner = ", ".join([_shown(item) for item in nest.items])
    comma = "," if nest.brackets == "()" and len(nest.items) == 1 else ""
    return f"{nest.brackets[0]}{inner}{comma}{nest.brackets[1]}"


# ------------------------------------------------------------------------------ layout lines


def layout_names(derived: DerivedNode) -> list[str]:
    """The buffers whose layouts a loop node lists: what it reads in order, then what it writes."""
    reads = [dep.name for dep in derived.reads.values() if not isinstance(dep, WeakDep)]
    return [*reads, *[dep.name for dep in derived.writes.values()]]


def are_layouts_of(printed: list[str], names: list[str], derived: DerivedNode) -> bool:
    """Whether the printed names are those of the layouts that the node lists.

    Reads at indices that mean the same are one here; the peer may not see that and list the buffer
    again, at most once for each way it is spelled in the body.
    """
    if printed == names:
        return True
    if list(dict.fromkeys(printed)) != list(dict.fromkeys(names)):
        return False
    listed, least = Counter(printed), Counter(names)
    most = {name: max(least[name], len(derived.spellings.get(name, ()))) for name in least}
    return all(least[name] <= listed[name] <= most[name] for name in least)


def wrong_layouts(
    lines: Iterable[tuple[str, Layout]], known: dict[str, Layout]
) -> Iterator[tuple[str, Layout, Layout]]:
    """Yield the layouts that contradict the buffer's own; inputs are learned as they come."""
    for name, layout in lines:
        expected = known.setdefault(name, layout)
        if expected != layout:
            yield name, layout, expected


# ------------------------------------------------------------------------------ fused headers


@dataclass(frozen=True, slots=True)
class Header:
    """The three lists of a group."""

    writes: Keyed
    unmet: Keyed
    met: Keyed

    def same(self, other: Header) -> bool:
        """Whether both have the same dependences, however they are spelled."""
        parts = (self.writes, self.unmet, self.met), (other.writes, other.unmet, other.met)
        return all(a.keys() == b.keys() for a, b in zip(*parts, strict=True))

    def alike(self, other: Header) -> bool:
        """Whether both have the same accesses, if need be compared point by point."""
        parts = (self.writes, self.unmet, self.met), (other.writes, other.unmet, other.met)
        return all(_covers(a, b) and _covers(b, a) for a, b in zip(*parts, strict=True))

    def merged(self) -> Header:
        """The same with every access in normal form."""
        writes, unmet, met = [_all_normal(part) for part in (self.writes, self.unmet, self.met)]
        return Header(writes, unmet, {k: dep for k, dep in met.items() if k not in writes})


def _covers(one: Keyed, other: Keyed) -> bool:
    """Whether each dependence of `one` is also in `other`."""
    return all(
        k in other or any(is_same_access(dep, d, sums_too=True) for d in other.values())
        for k, dep in one.items()
    )


def header_of(node: DumpNode) -> Header:
    """The lists that the group prints."""
    return Header(*[{key(d): d for d in part} for part in (node.writes, node.unmet, node.met)])


def derived_header(members: Iterable[DumpNode], merged: bool = False) -> Header:
    """The lists that follow from the members: what is made inside is not waited for.

    With `merged`, as they would be if every member had its accesses in normal form.
    """

    def keyed(deps: Iterable[Dep]) -> Keyed:
        found = {key(dep): dep for dep in deps}
        return _all_normal(found) if merged else found

    writes: Keyed = {}
    reads: Keyed = {}
    unmet: Keyed = {}
    inside: set[str] = set()
    for member in members:
        writes |= keyed(member.writes)
        reads |= keyed((*member.unmet, *member.met))
        unmet |= keyed(member.unmet)
        inside |= {buffer.name for leaf in member.leaves() for buffer in buffers_of(leaf)}
    reads = {k: dep for k, dep in reads.items() if k not in writes}
    unmet = {k: dep for k, dep in unmet.items() if k in reads and dep.name not in inside}
    return Header(writes, unmet, {k: dep for k, dep in reads.items() if k not in unmet})


def _all_normal(deps: Keyed) -> Keyed:
    result: Keyed = {}
    for dep in deps.values():
        changed = _normal(dep) if isinstance(dep, MemoryDep) else dep
        result[key(changed)] = changed
    return result


def _normal(dep: MemoryDep) -> Dep:
    """The dependence with merged loops; one that the index algebra cannot say stays."""
    inside = {name for name, _ in dep.ranges}
    if dep.index.expr is None or any(
        symbol.kind is Kind.LOOP and symbol.name not in inside for symbol in dep.index.expr.free
    ):
        return dep
    # c-variables may not stand on both sides of the renaming.
    names = {loop(name): loop(f"p{at}") for at, (name, _) in enumerate(dep.ranges)}
    index = Index.of(substitute(dep.index.expr, names))
    ranges = tuple([(f"p{at}", extent) for at, (_, extent) in enumerate(dep.ranges)])
    try:
        return Spelling(ranges, normalised=True).dep(
            DumpAccess(dep.name, index, dep.mode), dep.name
        )
    except UnsayableError:
        return dep


def joined_outputs(members: Iterable[DumpNode]) -> tuple[DumpBuffer, ...]:
    """The outputs of a group: those of its members, in order."""
    return tuple([buffer for member in members for buffer in member.outputs])
