"""Which operations may be grouped, judged on programs."""

from __future__ import annotations

from treadle.analysis.deps import dependences
from treadle.analysis.merging import may_merge, merge_order
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Fused, Program
from treadle.ir.spec import verify


def diamond(grouped: bool = False) -> Program:
    """a -> b -> c and a -> c; d is independent."""
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [8])
    t, u = b.buffer("t", "f32", [8]), b.buffer("u", "f32", [8])
    y, z = b.output("y", "f32", [8]), b.output("z", "f32", [8])

    def op(name: str, target, *sources) -> None:
        with b.loop(name, [8]) as k:
            total = k.load(sources[0], *k.vars)
            for s in sources[1:]:
                total = total + k.load(s, *k.vars)
            k.store(target, k.vars, total)

    if grouped:
        with b.group(Fused, "ab"):
            op("a", t, x)
            op("b", u, t)
    else:
        op("a", t, x)
        op("b", u, t)
    op("c", y, t, u)
    op("d", z, x)
    return verify(b.build())


def verdict(program: Program, a: str, b: str):
    deps = dependences(program)
    return may_merge(merge_order(program), deps.names, deps.position[a], deps.position[b])


def test_neighbours_and_independent_operations_may_merge() -> None:
    program = diamond()
    for pair in (("a", "b"), ("b", "c"), ("a", "d"), ("c", "d")):
        assert verdict(program, *pair), pair


def test_operations_with_one_between_them_should_not_merge_and_the_path_is_named() -> None:
    v = verdict(diamond(), "a", "c")
    assert not v
    assert v.code == "ORD001"
    assert v.facts["path"] == ["a", "b", "c"]
    assert verdict(diamond(), "c", "a").code == "ORD001"


def test_groups_of_the_program_count_as_merged() -> None:
    program = diamond(grouped=True)
    assert verdict(program, "a", "c")
    assert merge_order(program).members(0) == (0, 1)
