"""Partitions for recordings: why an operation stays out, signatures, and as few as there can be."""

from __future__ import annotations

from itertools import groupby, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.analysis.deps import dependences
from treadle.analysis.liveness import Liveness
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
from treadle.ir.types import Buffer
from treadle.schedule.partition import can_be_recorded, partitions, with_fewest_partitions

GPU, CPU = "cuda:0", "cpu"


def work(b: ProgramBuilder, name: str, sources: list[Buffer], device: str) -> Buffer:
    """An operation on a device; sources elsewhere are fetched by it."""
    out = b.buffer(f"{name}_out", "f32", [4], device=device)
    b.extern("f", sources, [out], name=name, device=device)
    return out


def test_each_reason_to_stay_out_has_its_code() -> None:
    b = ProgramBuilder("p", GPU)
    n = b.size("n")
    u = b.size("u")
    x, y = b.input("x", "f32", [n]), b.input("y", "f32", [4], device=CPU)
    good = b.output("good", "f32", [n])
    with b.loop("good_op", [n]) as k:
        k.store(good, k.vars, k.load(x, *k.vars))
    b.extern("f", [y], [b.buffer("c", "f32", [4], device=CPU)], name="on_cpu", device=CPU)
    b.extern("copy", [y], [b.buffer("d", "f32", [4])], name="fetch")
    b.extern("f", [x], [b.buffer("e", "f32", [4])], name="effect", has_side_effects=True)
    with b.loop("by_data", [u]) as k:
        k.store(b.buffer("f", "f32", [u]), k.vars, 1.0)
    program = b.build()
    found = {op.name: can_be_recorded(program, op).code for op in program.ops}
    assert found["on_cpu"] == "PAR001"
    assert found["fetch"] == "PAR002"
    assert found["effect"] == "PAR003"
    assert found["by_data"] == "PAR004"
    assert can_be_recorded(program, program.ops[0])


def test_a_number_that_the_caller_gives_on_the_cpu_can_be_recorded() -> None:
    for by_caller in (True, False):
        b = ProgramBuilder("p", GPU)
        x, y = b.input("x", "f32", [4]), b.output("y", "f32", [4])
        if by_caller:
            s = b.input("s", "f32", [1], device=CPU)
        else:
            s = b.buffer("s", "f32", [1], device=CPU)
            b.extern("f", [], [s], name="make", device=CPU)
        with b.loop("scale", [4]) as k:
            k.store(y, k.vars, k.load(x, *k.vars) * k.load_at(s, 0 * k.vars[0]))
        program = b.build()
        assert bool(can_be_recorded(program, program.ops[-1])) is by_caller


def alternating() -> Program:
    b = ProgramBuilder("p", GPU)
    x, y = b.input("x", "f32", [4]), b.input("y", "f32", [4], device=CPU)
    a = work(b, "a", [x], GPU)
    c = work(b, "c", [y], CPU)
    b.returns(work(b, "b", [a], GPU), work(b, "d", [c], CPU))
    return b.build()


def test_alternating_devices_become_one_recording() -> None:
    program = alternating()
    assert len(partitions(program)) == 4
    after = with_fewest_partitions(program, Options())
    assert [op.name for op in after.ops] == ["a", "b", "c", "d"]
    recorded, rest = partitions(after)
    assert (recorded.recorded, rest.recorded) == (True, False)
    assert (recorded.inputs, recorded.outputs, recorded.frees) == (("x",), ("b_out",), ("a_out",))
    assert (rest.inputs, rest.outputs, rest.frees) == (("y",), ("d_out",), ("c_out",))


def test_what_crosses_a_border_is_in_both_signatures() -> None:
    one, two, three, four = partitions(alternating())
    assert one.outputs == ("a_out",)
    assert three.inputs == ("a_out",)
    assert three.frees == ("a_out",)
    assert one.frees == ()
    assert [p.ops for p in (two, four)] == [("c",), ("d",)]


def test_a_much_higher_peak_is_not_worth_fewer_partitions() -> None:
    b = ProgramBuilder("p", GPU)
    x, y = b.input("x", "f32", [1]), b.input("y", "f32", [1], device=CPU)
    for n in range(3):
        big = b.buffer(f"big{n}", "f32", [1000])
        b.extern("f", [x], [big], name=f"make{n}")
        small = b.output(f"small{n}", "f32", [1], device=CPU)
        b.extern("g", [big, y], [small], name=f"use{n}", device=CPU)
    program = b.build()
    assert len(partitions(program)) == 6
    assert with_fewest_partitions(program, Options()) is program


@st.composite
def small_graphs(draw: st.DrawFn) -> Program:
    b = ProgramBuilder("p", GPU)
    made: list[Buffer] = [b.input("x", "f32", [4])]
    for n in range(draw(st.integers(1, 7))):
        count = draw(st.integers(0, min(2, len(made))))
        sources = [draw(st.sampled_from(made)) for _ in range(count)]
        made.append(work(b, f"w{n}", sources, draw(st.sampled_from([GPU, CPU]))))
    b.returns(*made[1:])
    return b.build()


@settings(max_examples=60)
@given(small_graphs())
def test_no_order_has_fewer_partitions(program: Program) -> None:
    kinds = [bool(can_be_recorded(program, op)) for op in program.ops]
    edges = dependences(program).edges
    fewest = min(
        len(list(groupby(kinds[k] for k in order)))
        for order in permutations(range(len(kinds)))
        if all(order.index(a) < order.index(b) for a, b in edges)
    )
    after = with_fewest_partitions(program, Options())
    assert sorted(op.name for op in after.ops) == sorted(op.name for op in program.ops)
    # Every result is kept, so that no order needs more memory than another.
    assert len(partitions(after)) == fewest


@settings(max_examples=60)
@given(small_graphs())
def test_signatures_close_over_everything_that_is_touched(program: Program) -> None:
    there = set(program.inputs)
    seen: list[str] = []
    for p in partitions(program):
        assert set(p.inputs) <= there
        there |= set(p.outputs)
        there -= set(p.frees)
        seen.extend(p.ops)
    assert seen == [op.name for op in program.ops]
    assert set(program.outputs) <= there


def test_the_peak_stays_within_a_tenth() -> None:
    program = alternating()
    after = with_fewest_partitions(program, Options())
    assert after is not program
    assert Liveness(after).peak().bytes <= 1.1 * Liveness(program).peak().bytes
