"""Streams: branches run side by side; a checker of its own proves that nothing runs too early."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.analysis.deps import dependences
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
from treadle.ir.types import Buffer
from treadle.schedule.streams import Lane, Streams, assign_streams

GPU, CPU = "cuda:0", "cpu"


def work(b: ProgramBuilder, name: str, sources: list[Buffer], device: str = GPU) -> Buffer:
    out = b.buffer(f"{name}_out", "f32", [4], device=device)
    b.extern("f", sources, [out], name=name, device=device)
    return out


def done_before(streams: Streams) -> list[set[int]]:
    """For each operation what is sure to be done, from streams and events alone, by search."""
    steps = range(len(streams.names))
    edges: dict[int, set[int]] = {k: set(streams.waits[k]) for k in steps}
    for k in steps:
        edges[k] |= {j for j in range(k) if streams.lane[j] == streams.lane[k]}
    found: list[set[int]] = []
    for k in steps:
        reach = set(edges[k])
        for j in edges[k]:
            reach |= found[j]
        found.append(reach)
    return found


def diamond() -> Program:
    b = ProgramBuilder("p", GPU)
    a = work(b, "a", [b.input("x", "f32", [4])])
    left, right = work(b, "left", [a]), work(b, "right", [a])
    b.returns(work(b, "join", [left, right]))
    return b.build()


def test_the_branches_of_a_diamond_run_on_two_streams() -> None:
    streams = assign_streams(diamond())
    assert streams.lane == (Lane(GPU, 0), Lane(GPU, 0), Lane(GPU, 1), Lane(GPU, 1))
    assert streams.waits == ((), (), (0,), (1,))
    assert (streams.count, streams.events) == (2, 2)
    assert not streams.ordered(1, 2)
    assert streams.ordered(0, 3)
    assert streams.of("right") == Lane(GPU, 1)


def test_a_chain_needs_one_stream_and_no_event() -> None:
    b = ProgramBuilder("p", GPU)
    t = b.input("x", "f32", [4])
    for n in range(5):
        t = work(b, f"w{n}", [t])
    b.returns(t)
    streams = assign_streams(b.build())
    assert (streams.count, streams.events) == (1, 0)


def test_one_stream_is_enough_if_told_so() -> None:
    streams = assign_streams(diamond(), most=1)
    assert (streams.count, streams.events) == (1, 0)


def test_an_event_that_another_implies_is_not_waited_for() -> None:
    b = ProgramBuilder("p", GPU)
    x = b.input("x", "f32", [4])
    a = work(b, "a", [x])
    c = work(b, "c", [a])
    d = work(b, "d", [x])
    b.returns(work(b, "e", [d]), work(b, "last", [a, c, d]))
    streams = assign_streams(b.build())
    # `last` follows `c`, so that `a` is done anyway.
    assert all(len(w) <= 1 for w in streams.waits)


def test_the_cpu_has_one_stream() -> None:
    b = ProgramBuilder("p", CPU)
    x = b.input("x", "f32", [4])
    b.returns(*[work(b, f"w{n}", [x], CPU) for n in range(3)])
    assert assign_streams(b.build()).count == 1


def test_memory_that_is_written_again_orders_streams() -> None:
    b = ProgramBuilder("p", GPU)
    x = b.input("x", "f32", [4])
    t = work(b, "first", [x])
    b.returns(work(b, "reader", [t]))
    b.extern("g", [x], [], mutates=[t], name="again")
    b.returns(t)
    streams = assign_streams(b.build())
    assert streams.ordered(1, 2)


@st.composite
def graphs(draw: st.DrawFn) -> Program:
    b = ProgramBuilder("p", GPU)
    made: list[Buffer] = [b.input("x", "f32", [4])]
    for n in range(draw(st.integers(1, 12))):
        count = draw(st.integers(0, min(3, len(made))))
        sources = [draw(st.sampled_from(made)) for _ in range(count)]
        device = draw(st.sampled_from([GPU, GPU, GPU, CPU]))
        if draw(st.booleans()) or len(made) < 2:
            made.append(work(b, f"w{n}", sources, device))
        else:
            changed = draw(st.sampled_from(made[1:]))
            b.extern("g", sources, [], mutates=[changed], name=f"w{n}", device=device)
    b.returns(*made[1:])
    return b.build()


@settings(max_examples=150)
@given(graphs(), st.integers(1, 4))
def test_every_dependence_is_kept_by_streams_and_events(program: Program, most: int) -> None:
    streams = assign_streams(program, most)
    done = done_before(streams)
    for source, target in dependences(program).edges:
        assert source in done[target]
    for k in range(len(streams.names)):
        assert {j for j in range(k) if streams.ordered(j, k)} == done[k]
        for event in streams.waits[k]:
            assert streams.lane[event] != streams.lane[k]
    assert all(lane.number < most for lane in streams.lane)
