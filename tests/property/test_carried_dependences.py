"""Dependences carried over to another order mean the same as those found anew in that order."""

from __future__ import annotations

from dataclasses import replace

from focused_programs import crowds
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from small_programs import small_programs

from treadle.analysis.access import accesses
from treadle.analysis.deps import Dependences, carry_over, dependences
from treadle.ir.program import Fused, Operation, Program


def closure(deps: Dependences) -> list[set[str]]:
    """Everything that must run before each leaf."""
    before: list[set[str]] = []
    for k, row in enumerate(deps.into):
        found: set[str] = set()
        for d in row:
            assert d.source < d.target == k
            found |= {deps.names[d.source]} | before[d.source]
        before.append(found)
    return before


@st.composite
def orders(draw: st.DrawFn, programs: st.SearchStrategy[Program]) -> tuple[Program, Program]:
    """A program and the same leaves in another order that its dependences allow."""
    program = draw(programs)
    deps = dependences(program)
    waiting = [{d.source for d in row} for row in deps.into]
    left, order = set(range(len(deps.names))), list[int]()
    while left:
        ready = sorted(k for k in left if not waiting[k] & left)
        order.append(draw(st.sampled_from(ready)))
        left.remove(order[-1])
    ops: list[Operation] = [program.leaves[k] for k in order]
    if len(ops) > 1 and ops[0].device == ops[1].device and draw(st.booleans()):
        ops[:2] = [Fused(name="both", device=ops[0].device, members=tuple(ops[:2]))]
    return program, replace(program, ops=tuple(ops))


@settings(max_examples=examples(150))
@given(orders(st.one_of(small_programs(), crowds())))
def test_carried_dependences_order_the_same_and_read_the_same(
    pair: tuple[Program, Program],
) -> None:
    old, new = pair
    fresh = dependences(replace(new))
    carry_over(old, new)
    carried = dependences(new)
    assert carried.names == fresh.names
    assert closure(carried) == closure(fresh)
    assert carried.users == fresh.users
    assert carried.replaced == fresh.replaced


@st.composite
def some_gone(draw: st.DrawFn, programs: st.SearchStrategy[Program]) -> tuple[Program, Program]:
    """A program and the same less some leaves, whoever looks at what those wrote."""
    program = replace(draw(programs))
    program = replace(program, ops=program.leaves)
    kept = [op for op in program.ops if draw(st.integers(0, 3))]
    return program, program.with_ops(tuple(kept))


@settings(max_examples=examples(150))
@given(some_gone(st.one_of(small_programs(), crowds())))
def test_what_is_left_depends_on_each_other_as_if_found_anew(
    pair: tuple[Program, Program],
) -> None:
    old, new = pair
    names = {op.name for op in new.ops}
    new = new.with_ops(tuple([replace(op, after=()) if set(op.after) - names else op
                              for op in new.ops]))  # fmt: skip
    fresh = dependences(replace(new))
    carry_over(old, new)
    assert dependences(new) == fresh


def test_dead_leaves_are_left_out_without_another_look() -> None:
    from treadle.ir.build import ProgramBuilder

    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [4]), b.output("y", "f32", [4])
    for name, target in (("dead", b.buffer("t", "f32", [4])), ("k", y)):
        with b.loop(name, [4]) as k:
            k.store(target, k.vars, k.load(x, k.vars[0]) * 2.0)
    old = b.build()
    new = old.with_ops(old.ops[1:])
    carry_over(old, new)
    assert new.derive(accesses)["k"] is old.derive(accesses)["k"]
    assert dependences(new).users == {"x": (0,), "y": (0,)}


def test_another_body_is_not_trusted() -> None:
    from treadle.ir.build import ProgramBuilder

    def program(factor: float) -> Program:
        b = ProgramBuilder("p")
        x, y = b.input("x", "f32", [4]), b.output("y", "f32", [4])
        with b.loop("k", [4]) as k:
            k.store(y, k.vars, k.load(x, k.vars[0]) * factor)
        return b.build()

    old, new = program(1.0), program(2.0)
    new = replace(new, buffers=old.buffers)
    carry_over(old, new)
    assert new.derive(accesses) is not old.derive(accesses)
