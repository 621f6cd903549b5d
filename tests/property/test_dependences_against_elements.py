"""Dependences against the bytes that operations really touch.

Promised, and checked here on random programs:

    order      of two operations that touch a common byte, one of them writing, the later is
               reachable from the earlier
    data       what wrote the byte an operation reads reaches it through dependences that carry
    precision  two loops whose accesses are affine do not depend on each other directly if their
               ranges do not overlap, or if they fall into different places of a common step
    freedom    every order that keeps the dependences gives the same bytes
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from math import gcd

from focused_programs import crowds
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from small_programs import run_small, seen_by_caller, size_choices, small_programs
from touched_bytes import Touched, touched

from treadle.analysis.deps import Dependences, DepKind, dependences
from treadle.index import Expr, Symbol, coefficient, evaluate
from treadle.ir.program import Loop, Nop, Operation, Program
from treadle.ir.text import show_program


def reachable(edges: Iterable[tuple[int, int]], count: int) -> list[set[int]]:
    """For each operation, those that come to it along edges."""
    into: list[set[int]] = [set() for _ in range(count)]
    for source, target in sorted(edges, key=lambda e: e[1]):
        assert source < target, "a dependence runs against the order of the program"
        into[target] |= {source} | into[source]
    return into


def closures(deps: Dependences) -> tuple[list[set[int]], list[set[int]]]:
    """What each operation is ordered behind, and what its values come from."""
    count = len(deps.names)
    data = [(d.source, d.target) for d in deps.deps if d.carries]
    return reachable(deps.edges, count), reachable(data, count)


ANY = st.one_of(crowds(), crowds(), small_programs(groups=True))


@settings(max_examples=examples(150))
@given(ANY)
def test_operations_that_meet_in_a_byte_are_ordered(program: Program) -> None:
    deps = dependences(program)
    before, _ = closures(deps)
    for sizes in size_choices(program):
        all_touched = [touched(program, op, sizes) for op in program.leaves]
        for a, b in combinations(range(len(all_touched)), 2):
            if all_touched[a].meets(all_touched[b]):
                assert a in before[b], (
                    f"{deps.names[b]} is not ordered behind {deps.names[a]}\n"
                    + show_program(program)
                )


@settings(max_examples=examples(150))
@given(ANY)
def test_what_is_read_comes_along_dependences_that_carry(program: Program) -> None:
    deps = dependences(program)
    _, sources = closures(deps)
    for sizes in size_choices(program):
        all_touched = [touched(program, op, sizes) for op in program.leaves]
        for reader, of in enumerate(all_touched):
            for writer in latest_writers(of, all_touched[:reader], program.leaves):
                assert writer in sources[reader], (
                    f"{deps.names[reader]} reads what {deps.names[writer]} wrote\n"
                    + show_program(program)
                )


def latest_writers(of: Touched, earlier: list[Touched], leaves: tuple[Operation, ...]) -> set[int]:
    """Who may have written what is read: back to the first write that is certain."""
    open_cells, found = set(of.reads), set()
    for position in range(len(earlier) - 1, -1, -1):
        # What an allocation leaves behind is no value.
        if open_cells & earlier[position].writes and not isinstance(leaves[position], Nop):
            found.add(position)
        open_cells -= earlier[position].certain
    return found


# ---------------------------------------------------------------------------------- precision


class Affine:
    """An access of a loop as numbers: bytes = const + sum of strides times loop variables."""

    def __init__(self, program: Program, op: Loop, name: str, index: Expr) -> None:
        self.storage = program.storage_of(name)
        self.width = program.by_name[name].dtype.itemsize
        extents = {v: n.value for v, n in op.body.space.items()}
        strides = {v: coefficient(index, v) for v in index.free if v in extents}
        self.known = index.free <= set(extents) and all(
            c is not None and c.value is not None for c in strides.values()
        )
        self.known = self.known and None not in extents.values()
        if self.known:
            zero: Mapping[Symbol, int] = dict.fromkeys(extents, 0)
            self.first = evaluate(index, zero) * self.width
            self.steps = [
                (c.value * self.width, max((extents[v] or 0) - 1, 0))
                for v, c in strides.items()
                if c is not None and c.value
            ]

    def range(self, modulo: int = 0) -> tuple[int, int]:
        """The first and last byte, leaving out steps that are multiples of `modulo`."""
        kept = [(s, n) for s, n in self.steps if not modulo or s % modulo]
        low = self.first + sum(min(s * n, 0) for s, n in kept)
        return low, self.first + sum(max(s * n, 0) for s, n in kept) + self.width - 1


def plainly_apart(a: Affine, b: Affine) -> bool:
    """What the analysis promises to see: disjoint ranges, as they are or modulo a common step."""
    steps = {gcd(s, t) for s, _ in a.steps for t, _ in b.steps}
    for modulo in (0, *sorted(steps)):
        (low, high), (bottom, top) = a.range(modulo), b.range(modulo)
        if modulo:
            if low // modulo != high // modulo or bottom // modulo != top // modulo:
                continue
            low, high, bottom, top = (x % modulo for x in (low, high, bottom, top))
        if high < bottom or top < low:
            return True
    return False


def affine_accesses(program: Program, op: Operation) -> list[tuple[Affine, bool]]:
    """The accesses of a loop with whether they write; empty if one is not known exactly."""
    if not isinstance(op, Loop) or any(at.stmt.op == "bucketize" for at in op.body.walk()):
        return []
    if any(at.depth for _, _, at in op.body.loads()):
        return []  # what a mask guards may lie outside of everything
    loads = [(Affine(program, op, name, e), False) for name, e, _ in op.body.loads()]
    stores = [(Affine(program, op, name, e), True) for name, e, _, _ in op.body.stores()]
    found = loads + stores
    return found if all(a.known for a, _ in found) else []


def never_runs(op: Operation) -> bool:
    """Whether a loop has a dimension without iterations."""
    assert isinstance(op, Loop)
    return any(n.value == 0 for n in (*op.body.domain.extents, *op.body.reduce.extents))


@settings(max_examples=examples(120))
@given(
    st.one_of(
        crowds(),
        small_programs(moves=("pointwise", "fill", "update", "reduction"), run_time_sizes=False),
    )
)
def test_loops_that_plainly_miss_each_other_do_not_depend_directly(program: Program) -> None:
    deps = dependences(program)
    known = [affine_accesses(program, op) for op in program.leaves]
    for d in deps.deps:
        a, b = known[d.source], known[d.target]
        if not a or not b or d.kind is DepKind.CONTROL:
            continue
        if never_runs(program.leaves[d.source]) or never_runs(program.leaves[d.target]):
            continue  # what it names must exist all the same
        assert any(
            x.storage == y.storage == d.storage and (one or two) and not plainly_apart(x, y)
            for x, one in a
            for y, two in b
        ), f"{deps.explain(d)}, yet they cannot meet\n{show_program(program)}"


# ------------------------------------------------------------------------------------ freedom


@settings(max_examples=examples(100))
@given(st.one_of(crowds(), small_programs()), st.randoms(use_true_random=False))
def test_every_order_that_keeps_the_dependences_gives_the_same_bytes(
    program: Program, random: st.RandomType
) -> None:
    deps = dependences(program)
    order: list[int] = []
    waiting = {k: {d.source for d in deps.into[k]} for k in range(len(deps.names))}
    while waiting:
        free = [k for k, sources in waiting.items() if sources.issubset(order)]
        order.append(random.choice(free))
        del waiting[order[-1]]
    moved = program.with_ops(tuple([program.ops[k] for k in order]))
    for sizes in size_choices(program):
        plain = seen_by_caller(program, run_small(program, sizes))
        assert seen_by_caller(moved, run_small(moved, sizes)) == plain
