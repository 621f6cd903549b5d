"""The dependence certificate: a scheduled program keeps every dependence of the one it came from.

Independent of how the schedule was found: it compares two programs by the names of their leaf
operations, looks at the dependences of the first and at nothing but positions in the second, and at
what loops touch there: one that computes a value itself (recompute), or no longer stores beside it,
need not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from treadle.analysis.access import is_copy
from treadle.analysis.deps import COLLECTIVES, Dep, Dependences, DepKind, dependences
from treadle.analysis.duplicates import equal_loops
from treadle.core.errors import Violation
from treadle.ir.effects import acts_by_itself, effects
from treadle.ir.program import Collective, Loop, Nest, Program


def border_changes(before: Program, after: Program) -> list[Violation]:
    """CERT005: what the caller sees of the program is as it was: names, order, types, layouts."""
    found = []
    for word in ("inputs", "outputs", "donated", "sizes"):
        old, new = getattr(before, word), getattr(after, word)
        if old != new:
            shown = [", ".join(str(x) for x in part) or "none" for part in (old, new)]
            found.append(Violation("CERT005", f"{word} were {shown[0]}, now {shown[1]}", word))
    for name in dict.fromkeys((*before.inputs, *before.outputs)):
        was, now = before.by_name.get(name), after.by_name.get(name)
        if was != now:
            found.append(Violation("CERT005", "the caller knows it as another buffer", name))
    return found


def loosened(before: Program, after: Program) -> list[Violation]:
    """CERT006: code may not differ further from the interpreter than the program allowed."""
    words = after.numerics.looser_than(before.numerics)
    return [Violation("CERT006", what, "numerics") for what in words]


def certify(
    before: Program, after: Program, *, collectives_may_move: bool = False
) -> list[Violation]:
    """What `after` breaks of `before`; empty if every dependence is kept.

    With `collectives_may_move`, collectives of a group that do not depend on each other's data may
    change places: a pass that does it must do the same on every rank.
    """
    place = {op.name: k for k, op in enumerate(after.leaves)}
    parts = Parts(before)
    for k, op in enumerate(after.leaves):
        if isinstance(op, Nest):
            place.update(dict.fromkeys(op.runs, k))
        elif isinstance(op, Collective):
            place.update(dict.fromkeys(op.sent_together, k))
            if op.part_of:
                parts.add(k, op)
                place[op.part_of] = k
    order = _order_kept(before, after, place, parts, collectives_may_move)
    return [*order, *parts.lost(), *_values_kept(before, after, place)]


class Parts:
    """Where the parts of collectives that are sent in several stand."""

    def __init__(self, before: Program) -> None:
        self.before = before
        self.found: dict[str, list[tuple[int, frozenset[str]]]] = {}
        """By the name of the whole: the position of each part and the storages it touches."""

    def add(self, position: int, op: Collective) -> None:
        """Note one part."""
        storages = frozenset([self.before.storage_of(n) for n in effects(op).touched])
        self.found.setdefault(op.part_of, []).append((position, storages))

    def positions(self, name: str, other: str, place: int) -> list[int]:
        """Where an operation stands for the sake of another: those parts that touch the same."""
        if name not in self.found:
            return [place]
        touched = effects(self.before.op_by_name[other]).touched
        near = {self.before.storage_of(n) for n in touched}
        return [k for k, storages in self.found[name] if storages & near] or [
            k for k, _ in self.found[name]
        ]

    def lost(self) -> Iterator[Violation]:
        """CERT002: parts of a collective together touch all that it touched."""
        for name, parts in self.found.items():
            op = self.before.op_by_name.get(name)
            there = {storage for _, storages in parts for storage in storages}
            for n in effects(op).touched if op is not None else ():
                if self.before.storage_of(n) not in there:
                    yield Violation("CERT002", f"no part of it sends or receives {n}", name)


def _order_kept(
    before: Program,
    after: Program,
    place: dict[str, int],
    parts: Parts,
    collectives_may_move: bool,
) -> Iterator[Violation]:
    """CERT001: of two dependent operations that are both there, the source still comes first.

    Also of two that depended through operations which are gone.
    """
    deps = dependences(before)
    at = [place.get(name) for name in deps.names]
    # For each operation that is gone, those still there that it came behind.
    behind: dict[int, dict[int, None]] = {}
    for target, name in enumerate(deps.names):
        stands = at[target]
        if stands is None:
            found = (_still_there(d.source, at, behind) for d in deps.into[target])
            behind[target] = {s: None for sources in found for s in sources}
            continue
        for d in deps.into[target]:
            if collectives_may_move and d.cause == COLLECTIVES:
                continue
            if _touches_no_more(after, d, name):
                continue
            for source in _still_there(d.source, at, behind):
                other = at[source]
                if other is None:
                    continue
                first = min(parts.positions(name, deps.names[source], stands))
                last = max(parts.positions(deps.names[source], name, other))
                if last > first:
                    yield _misplaced(deps, d, source, name)


def _still_there(
    source: int, at: list[int | None], behind: dict[int, dict[int, None]]
) -> Iterable[int]:
    return (source,) if at[source] is not None else behind[source]


def _misplaced(deps: Dependences, d: Dep, source: int, target: str) -> Violation:
    through = "" if source == d.source else f" through {deps.names[d.source]}, which is gone"
    return Violation(
        "CERT001", f"it stands before {deps.names[source]}{through}; {d.reason}", target
    )


def _values_kept(before: Program, after: Program, place: dict[str, int]) -> Iterator[Violation]:
    """CERT002: nothing that is gone made a value that is still needed.

    Unless an operation that computes the very same is still there, and its value is read instead;
    or it only copied what another one now writes there itself.
    """
    deps = dependences(before)
    copied = _written_at_once(before, after, place)
    twins = {**_twins(before, place), **copied}
    for d in deps.deps:
        source, target = deps.names[d.source], deps.names[d.target]
        if source not in place and target in place and d.carries:
            if source in twins and _reads_from(after, target, twins[source]):
                continue
            if _touches_no_more(after, d, target):
                continue
            yield Violation("CERT002", f"{source} is gone, yet {d.reason}", target)
    outputs = {before.storage_of(n) for n in (*before.outputs, *before.inputs)}
    for op in before.leaves:
        if op.name in place or op.name in copied:
            continue
        if acts_by_itself(op):
            yield Violation("CERT002", "it is gone, yet it acts by itself", op.name)
        of = effects(op)
        for name in (*of.writes, *of.mutates):
            if deps.shows_at_end(op.name, before.storage_of(name)) and (
                before.storage_of(name) in outputs
            ):
                message = f"it is gone, yet {name} is seen by the caller"
                yield Violation("CERT002", message, op.name)


def _written_at_once(before: Program, after: Program, place: dict[str, int]) -> dict[str, set[str]]:
    """For each copy that is gone, who made what it copied and now writes where it wrote."""
    deps, found = dependences(before), dict[str, set[str]]()
    for position, op in enumerate(before.leaves):
        if op.name in place or not isinstance(op, Loop) or not is_copy(op):
            continue
        target = before.storage_of(effects(op).writes[0])
        makers = {deps.names[d.source] for d in deps.into[position] if d.kind is DepKind.RAW}
        writing = {
            name
            for name in makers & after.op_by_name.keys()
            if target in map(after.storage_of, effects(after.op_by_name[name]).writes)
        }
        if makers and writing == makers:
            found[op.name] = makers
    return found


def _twins(before: Program, place: dict[str, int]) -> dict[str, set[str]]:
    """For each loop that is gone, those still there that compute the same values."""
    found: dict[str, set[str]] = {}
    if all(op.name in place for op in before.leaves):
        return found
    for alike in equal_loops(before):
        there = {op.name for op in alike if op.name in place}
        found.update({op.name: there for op in alike if op.name not in place})
    return found


def _touches_no_more(after: Program, d: Dep, target: str) -> bool:
    """Whether a loop that read a value, or wrote beside it, has left its storage alone."""
    op = after.op_by_name.get(target)
    if d.kind not in (DepKind.RAW, DepKind.WAW) or not isinstance(op, Loop):
        return False
    return all(after.storage_of(name) != d.storage for name in effects(op).touched)


def _reads_from(after: Program, target: str, sources: set[str]) -> bool:
    deps = dependences(after)
    into = deps.into[deps.position[target]]
    return any(d.carries and deps.names[d.source] in sources for d in into)
