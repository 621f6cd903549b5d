from __future__ import annotations

from collections.abc import Callable

from treadle.codegen.host import KernelPlan
from treadle.codegen.lower import lower
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Fused
from treadle.ir.types import Buffer


def kernel(write: Callable[[ProgramBuilder, Buffer], None]) -> KernelPlan:
    b = ProgramBuilder("merge")
    x = b.input("x", "f32", [5, 8])
    with b.group(Fused, "group"):
        write(b, x)
    (plan,) = lower(b.build()).kernels
    return plan


def ops(plan: KernelPlan) -> list[str]:
    return [at.stmt.op for part in plan.parts for at in part.body.walk()]


def test_a_pointwise_producer_joins_the_reduction_that_reads_it() -> None:
    def write(b: ProgramBuilder, x: Buffer) -> None:
        t, y = b.buffer("t", "f32", [5, 8]), b.output("y", "f32", [5])
        with b.loop("point", [5, 8]) as k:
            k.store(t, k.vars, k.exp(k.load(x, *k.vars)))
        with b.loop("total", [5], reduce=[8]) as k:
            k.store(y, k.vars[0], k.sum(k.load(t, *k.vars)))

    plan = kernel(write)
    assert ops(plan) == ["load", "exp", "reduce", "store"]
    assert plan.dropped == {"t"}
    assert plan.storages == ("x", "y")


def test_a_value_is_rounded_to_the_buffer_it_no_longer_goes_through() -> None:
    def write(b: ProgramBuilder, x: Buffer) -> None:
        t, y = b.buffer("t", "bf16", [5, 8]), b.output("y", "f32", [5, 8])
        with b.loop("first", [5, 8]) as k:
            k.store(t, k.vars, k.load(x, *k.vars))
        with b.loop("second", [5, 8]) as k:
            k.store(y, k.vars, k.load(t, *k.vars))

    # bf16 once for the buffer, f32 again for the output
    assert ops(kernel(write)) == ["load", "cast", "cast", "store"]


def test_should_not_drop_what_the_caller_gets() -> None:
    def write(b: ProgramBuilder, x: Buffer) -> None:
        t, y = b.output("t", "f32", [5, 8]), b.output("y", "f32", [5, 8])
        with b.loop("first", [5, 8]) as k:
            k.store(t, k.vars, k.neg(k.load(x, *k.vars)))
        with b.loop("second", [5, 8]) as k:
            k.store(y, k.vars, k.exp(k.load(t, *k.vars)))

    plan = kernel(write)
    assert ops(plan) == ["load", "neg", "store", "exp", "store"]
    assert not plan.dropped


def test_should_not_join_members_that_walk_differently() -> None:
    def write(b: ProgramBuilder, x: Buffer) -> None:
        t, y = b.buffer("t", "f32", [5, 8]), b.output("y", "f32", [8, 5])
        with b.loop("first", [5, 8]) as k:
            k.store(t, k.vars, k.load(x, *k.vars))
        with b.loop("second", [8, 5]) as k:
            k.store(y, k.vars, k.load(t, k.vars[1], k.vars[0]))

    plan = kernel(write)
    assert len(plan.parts) == 2
    assert [v.code for v in plan.apart] == ["GEN001"]
    assert not plan.dropped


def test_should_not_join_a_member_that_reads_what_its_neighbour_wrote() -> None:
    def write(b: ProgramBuilder, x: Buffer) -> None:
        t, y = b.buffer("t", "f32", [5, 8]), b.output("y", "f32", [5, 8])
        with b.loop("first", [5, 8]) as k:
            k.store(t, k.vars, k.load(x, *k.vars))
        with b.loop("second", [5, 8]) as k:
            k.store(y, k.vars, k.load(t, 4 - k.vars[0], k.vars[1]))

    plan = kernel(write)
    assert len(plan.parts) == 2
    assert [v.code for v in plan.apart] == ["GEN002"]


def test_should_not_join_a_sum_over_atomic_stores() -> None:
    def write(b: ProgramBuilder, x: Buffer) -> None:
        acc, y = b.input("acc", "f32", [5]), b.output("y", "f32", [5])
        with b.loop("first", [5, 8]) as k:
            k.store(acc, k.vars[0], k.load(x, *k.vars), "atomic_add")
        with b.loop("second", [5]) as k:
            k.store(y, k.vars[0], k.load(acc, k.vars[0]))

    assert len(kernel(write).parts) == 2


def test_the_same_load_happens_once() -> None:
    def write(b: ProgramBuilder, x: Buffer) -> None:
        for n in range(3):
            y = b.output(f"y{n}", "f32", [5, 8])
            with b.loop(f"member{n}", [5, 8]) as k:
                k.store(y, k.vars, k.load(x, *k.vars))

    assert ops(kernel(write)).count("load") == 1


def test_a_load_after_a_change_in_place_sees_the_change() -> None:
    def write(b: ProgramBuilder, x: Buffer) -> None:
        y, z = b.output("y", "f32", [5, 8]), b.output("z", "f32", [5, 8])
        with b.loop("before", [5, 8]) as k:
            k.store(y, k.vars, k.load(x, *k.vars))
        with b.loop("change", [5, 8]) as k:
            k.store(x, k.vars, k.load(x, *k.vars) * 2.0)
        with b.loop("after", [5, 8]) as k:
            k.store(z, k.vars, k.load(x, *k.vars))

    plan = kernel(write)
    stores = [at.stmt for part in plan.parts for at in part.body.walk() if at.stmt.op == "store"]
    assert stores[1].args == stores[2].args != stores[0].args
