"""Lives and peaks of whole programs, and which outputs may take over which inputs."""

from __future__ import annotations

import pytest

from treadle.analysis.inplace import check_in_place, in_place_pairs
from treadle.analysis.liveness import Liveness, LivenessPolicy, PeakPoint
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Fused, Grouped, Program
from treadle.ir.spec import verify
from treadle.ir.types import BufferKind

KB = 1024


def builder() -> ProgramBuilder:
    return ProgramBuilder("p")


def scale(b: ProgramBuilder, name: str, target, *sources) -> None:
    with b.loop(name, [256]) as k:
        (i,) = k.vars
        total = k.load(sources[0], i)
        for s in sources[1:]:
            total = total + k.load(s, i)
        k.store(target, (i,), total * 2.0)


def chain(length: int, donated: bool = False) -> Program:
    b = builder()
    last = b.input("b0", "f32", [256], donated=donated)
    for k in range(1, length + 1):
        target = b.buffer(f"b{k}", "f32", [256]) if k < length else b.output("y", "f32", [256])
        scale(b, f"op{k}", target, last)
        last = target
    return verify(b.build())


APART = LivenessPolicy(in_place=False)


def test_a_chain_holds_two_buffers_beside_its_input() -> None:
    assert Liveness(chain(4), APART).peak() == PeakPoint(3 * KB, "op2")


def test_in_place_a_chain_needs_one_block_beside_its_input() -> None:
    live = Liveness(chain(4))
    assert live.peak() == PeakPoint(2 * KB, "op1")
    assert [r.block for r in live.ranges()] == ["b0", "b1", "b1", "b1", "b1"]


def test_a_donated_input_can_be_taken_over() -> None:
    assert Liveness(chain(4, donated=True)).peak().bytes == KB
    assert Liveness(chain(4, donated=True), APART).peak() == PeakPoint(2 * KB, "op1")


def test_inputs_can_be_left_out_of_the_count() -> None:
    policy = LivenessPolicy(include_inputs=False, in_place=False)
    assert Liveness(chain(4), policy).peak().bytes == 2 * KB


def test_outputs_are_never_freed_and_inputs_only_if_donated() -> None:
    rows = {r.storage: r for r in Liveness(chain(2), APART).ranges()}
    assert not rows["y"].freed
    assert not rows["b0"].freed
    assert rows["b1"].freed
    assert rows["b1"].first == "op1"
    assert rows["b1"].last == "op2"
    kept = {r.storage: r for r in Liveness(chain(2, donated=True), APART).ranges()}
    assert kept["b0"].freed


def test_order_without_data_should_not_extend_a_life() -> None:
    b = builder()
    x = b.input("x", "f32", [256])
    t, y, z = b.buffer("t", "f32", [256]), b.output("y", "f32", [256]), b.output("z", "f32", [256])
    scale(b, "a", t, x)
    scale(b, "b", y, t)
    with b.loop("c", [256], after=["a"]) as k:
        k.store(z, k.vars, k.load(x, *k.vars))
    rows = {r.storage: r.last for r in Liveness(verify(b.build()), APART).ranges()}
    assert rows["t"] == "b"


def test_mutations_belong_to_the_storage_they_change() -> None:
    b = builder()
    x = b.input("x", "f32", [256])
    t, y = b.buffer("t", "f32", [256]), b.output("y", "f32", [256])
    scale(b, "a", t, x)
    for name in ("m1", "m2"):
        scale(b, name, t, t)
    scale(b, "z", y, t)
    rows = {r.storage: r for r in Liveness(verify(b.build()), APART).ranges()}
    assert list(rows) == ["x", "y", "t"] or set(rows) == {"x", "t", "y"}
    assert (rows["t"].first, rows["t"].last) == ("a", "z")


def test_tensors_of_a_tuple_are_allocated_by_the_call_that_makes_it() -> None:
    b = builder()
    x = b.input("x", "f32", [256])
    pair = b.token("pair", BufferKind.TUPLE)
    left, right = b.buffer("left", "f32", [256]), b.buffer("right", "f32", [256])
    y = b.output("y", "f32", [256])
    b.extern("split", [x], [pair], name="split")
    b.take(left, pair, 0, name="t0")
    b.take(right, pair, 1, name="t1")
    scale(b, "end", y, left, right)
    live = Liveness(verify(b.build()), LivenessPolicy(include_inputs=False, in_place=False))
    assert [(name, during) for name, during, _ in live.curve()] == [
        ("split", 2 * KB),
        ("t0", 2 * KB),
        ("t1", 2 * KB),
        ("end", 3 * KB),
    ]


def fused_pair(kind: type) -> Program:
    b = builder()
    x = b.input("x", "f32", [256])
    t, y = b.buffer("t", "f32", [256]), b.output("y", "f32", [256])
    with b.group(kind, "g"):
        scale(b, "a", t, x)
        scale(b, "b", y, t)
    return verify(b.build())


@pytest.mark.parametrize("kind, peak", [(Fused, 2 * KB), (Grouped, 3 * KB)])
def test_only_a_kernel_keeps_its_internal_buffers_in_registers(kind: type, peak: int) -> None:
    assert Liveness(fused_pair(kind), APART).peak().bytes == peak


def test_a_merged_step_has_the_name_of_its_group() -> None:
    live = Liveness(fused_pair(Fused), LivenessPolicy(drop_internal=False, in_place=False))
    assert live.peak() == PeakPoint(3 * KB, "g")
    assert [s.name for s in live.live_during("g")] == ["x", "t", "y"]
    assert live.order() == [("a", "b")]
    assert {r.first for r in live.ranges()} == {None, "g"}


def test_gaps_between_strided_elements_count_or_not() -> None:
    b = builder()
    x = b.input("x", "f32", [256])
    y = b.output("y", "f32", [256], strides=[3])
    scale(b, "a", y, x)
    program = verify(b.build())
    assert Liveness(program).peak().bytes == KB + (255 * 3 + 1) * 4
    assert Liveness(program, LivenessPolicy(count_gaps=False)).peak().bytes == 2 * KB


def branches() -> Program:
    """a and b make large buffers that shrink separately: better one after the other."""
    b = builder()
    x = b.input("x", "f32", [1])
    out = b.output("y", "f32", [1])
    big = [b.buffer(f"big{k}", "f32", [256]) for k in range(2)]
    small = [b.buffer(f"small{k}", "f32", [1]) for k in range(2)]
    for k in range(2):
        with b.loop(f"grow{k}", [256]) as body:
            body.store(big[k], body.vars, body.load(x, 0))
    for k in range(2):
        with b.loop(f"shrink{k}", [1], reduce=[256]) as body:
            i, j = body.vars
            body.store(small[k], (i,), body.sum(body.load(big[k], j)))
    with b.loop("end", [1]) as body:
        (i,) = body.vars
        body.store(out, (i,), body.load(small[0], i) + body.load(small[1], i))
    return verify(b.build())


def test_moving_an_operation_changes_the_peak_and_can_be_undone() -> None:
    live = Liveness(branches(), APART)
    before = live.peak().bytes
    mark = live.timeline.checkpoint()
    live.move_after("shrink0", "grow0")
    assert live.peak().bytes < before
    assert live.order()[1] == ("shrink0",)
    live.timeline.rollback(mark)
    assert live.peak().bytes == before
    live.move_before("grow1", "shrink1")
    assert live.order()[2] == ("grow1",)
    assert live.peak().bytes < before


def test_merging_steps_keeps_what_stays_inside_out_of_memory() -> None:
    live = Liveness(branches(), APART)
    live.move_after("shrink0", "grow0")
    live.merge("grow0", "shrink0", at="grow0")
    rows = {r.storage: r for r in live.ranges()}
    assert rows["big0"].block is None
    assert rows["big1"].block == "big1"


def test_no_order_is_below_the_largest_working_set() -> None:
    live = Liveness(branches(), APART)
    assert live.working_set_bound() == 4 + KB + 4  # the input, a large buffer, a small one
    live.move_after("shrink0", "grow0")
    assert live.peak().bytes >= live.working_set_bound()


# --------------------------------------------------------------------------------- in place


def verdict(program: Program, op: str, out: str, inp: str) -> str:
    v = check_in_place(program, program.op_by_name[op], out, inp)
    return "yes" if v else v.code


def two_readers() -> Program:
    b = builder()
    x = b.input("x", "f32", [256])
    t, y, z = b.buffer("t", "f32", [256]), b.output("y", "f32", [256]), b.output("z", "f32", [256])
    scale(b, "a", t, x)
    scale(b, "b", y, t)
    scale(b, "c", z, t)
    return verify(b.build())


def test_the_caller_keeps_what_it_did_not_donate() -> None:
    assert verdict(two_readers(), "a", "t", "x") == "INP001"
    assert verdict(two_readers(), "c", "z", "y") == "INP001"


def test_the_last_reader_may_take_the_block_and_no_earlier_one() -> None:
    assert verdict(two_readers(), "b", "y", "t") == "INP002"
    assert verdict(two_readers(), "c", "z", "t") == "yes"


def test_a_buffer_that_exists_already_cannot_move() -> None:
    b = builder()
    x = b.input("x", "f32", [256], donated=True)
    y = b.output("y", "f32", [512])
    for name, low in (("a", 0), ("b", 256)):
        with b.loop(name, [256]) as k:
            (i,) = k.vars
            k.store(y, (i + low,), k.load(x, i))
    assert verdict(verify(b.build()), "b", "y", "x") == "INP003"


@pytest.mark.parametrize("element, count", [("bf16", 256), ("f32", 512)])
def test_blocks_must_fit(element: str, count: int) -> None:
    b = builder()
    x = b.input("x", "f32", [256], donated=True)
    y = b.output("y", element, [count])
    with b.loop("a", [256]) as k:
        k.store(y, k.vars, k.load(x, *k.vars).to(element))
    assert verdict(verify(b.build()), "a", "y", "x") == "INP004"


def test_a_reversal_should_not_be_done_in_place() -> None:
    b = builder()
    x, y = b.input("x", "f32", [256], donated=True), b.output("y", "f32", [256])
    with b.loop("a", [256]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.load(x, 255 - i))
    program = verify(b.build())
    assert verdict(program, "a", "y", "x") == "INP005"
    assert in_place_pairs(program) == []


def test_a_gather_should_not_be_done_in_place() -> None:
    b = builder()
    x, y = b.input("x", "f32", [256], donated=True), b.output("y", "f32", [256])
    at = b.input("at", "i64", [256])
    with b.loop("a", [256]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.load(x, k.indirect(k.load(at, i), 256)))
    assert verdict(verify(b.build()), "a", "y", "x") == "INP005"


def test_a_reader_behind_the_store_should_not_lose_its_input() -> None:
    b = builder()
    x = b.input("x", "f32", [256], donated=True)
    y, z = b.output("y", "f32", [256]), b.output("z", "f32", [256])
    with b.group(Fused, "g"):
        scale(b, "a", y, x)
        scale(b, "b", z, x)
    program = verify(b.build())
    assert verdict(program, "g", "y", "x") == "INP006"
    assert verdict(program, "g", "z", "x") == "yes"
    assert [(p.out, p.inp) for p in in_place_pairs(program)] == [("z", "x")]


def test_a_later_pass_over_the_reduction_should_not_find_its_input_gone() -> None:
    b = builder()
    x = b.input("x", "f32", [4, 64], donated=True)
    y, s = b.output("y", "f32", [4, 64]), b.output("s", "f32", [4])
    with b.loop("a", [4], reduce=[64]) as k:
        i, j = k.vars
        v = k.load(x, i, j)
        k.store(y, (i, j), v * 2.0)
        k.store(s, (i,), k.sum(v))
    assert verdict(verify(b.build()), "a", "y", "x") == "INP006"


def test_a_store_behind_a_reduction_should_not_find_the_input_gone() -> None:
    b = builder()
    x = b.input("x", "f32", [4, 64], donated=True)
    y, z = b.output("y", "f32", [4, 64]), b.output("z", "f32", [4, 64])
    with b.loop("a", [4], reduce=[64]) as k:
        i, j = k.vars
        v = k.load(x, i, j)
        total = k.sum(v)
        k.store(y, (i, j), v * 2.0)
        k.store(z, (i, j), v / total)
    program = verify(b.build())
    assert verdict(program, "a", "y", "x") == "INP006"
    assert verdict(program, "a", "z", "x") == "yes"


def test_a_store_for_the_row_should_not_come_between_the_input_and_its_readers() -> None:
    b = builder()
    x = b.input("x", "f32", [4, 64], donated=True)
    y, z = b.output("y", "f32", [4, 64]), b.output("z", "f32", [4, 64])
    s = b.output("s", "f32", [4])
    with b.loop("a", [4], reduce=[64]) as k:
        i, j = k.vars
        v = k.load(x, i, j)
        total = k.sum(v)
        k.store(y, (i, j), v * total)
        k.store(s, (i,), total)
        k.store(z, (i, j), v * total + 1.0)
    program = verify(b.build())
    assert verdict(program, "a", "y", "x") == "INP006"
    assert verdict(program, "a", "z", "x") == "yes"


def test_a_softmax_may_be_done_in_place() -> None:
    b = builder()
    x, y = b.input("x", "f32", [4, 64], donated=True), b.output("y", "f32", [4, 64])
    with b.loop("a", [4], reduce=[64]) as k:
        i, j = k.vars
        v = k.load(x, i, j)
        e = k.exp(v - k.max(v))
        k.store(y, (i, j), e / k.sum(e))
    assert verdict(verify(b.build()), "a", "y", "x") == "yes"


def test_one_block_goes_to_one_output() -> None:
    b = builder()
    x = b.input("x", "f32", [256], donated=True)
    y, z = b.output("y", "f32", [256]), b.output("z", "f32", [256])
    with b.loop("a", [256]) as k:
        v = k.load(x, *k.vars)
        k.store(y, k.vars, v)
        k.store(z, k.vars, v + 1.0)
    assert [(p.out, p.inp) for p in in_place_pairs(verify(b.build()))] == [("y", "x")]


def test_an_index_that_hits_an_element_twice_should_not_be_done_in_place() -> None:
    b = builder()
    x, y = b.input("x", "f32", [16], donated=True), b.output("y", "f32", [16])
    with b.loop("a", [2, 2, 2]) as k:
        i, j, m = k.vars
        e = i + 2 * j + 3 * m
        k.store_at(y, e, k.load_at(x, e) * 2.0)
    program = b.build()
    assert verdict(program, "a", "y", "x") == "INP005"
    assert in_place_pairs(program) == []


def sum_and_scale(sum_first: bool) -> Program:
    """Two readers of a donated input; only the last of them can take its block."""
    b = builder()
    x = b.input("x", "f32", [256], donated=True)
    y, s = b.output("y", "f32", [256]), b.output("s", "f32", [1])

    def scale_all() -> None:
        with b.loop("scale", [256]) as k:
            k.store(y, k.vars, k.load(x, *k.vars) * 2.0)

    def total() -> None:
        with b.loop("sum", [1], reduce=[256]) as k:
            i, j = k.vars
            k.store(s, (i,), k.sum(k.load(x, j)))

    for make in (total, scale_all) if sum_first else (scale_all, total):
        make()
    return verify(b.build())


def test_moving_gives_what_building_in_that_order_gives() -> None:
    live, rebuilt = Liveness(sum_and_scale(False)), Liveness(sum_and_scale(True))
    assert live.peak().bytes == 2 * KB + 4
    assert rebuilt.peak().bytes == KB + 4
    live.move_before("sum", "scale")
    assert live.peak().bytes == rebuilt.peak().bytes


def test_the_lower_bound_knows_that_another_order_may_share_blocks() -> None:
    live = Liveness(sum_and_scale(False))
    assert live.working_set_bound() <= Liveness(sum_and_scale(True)).peak().bytes


def sums_of_two(first: int, second: int) -> Program:
    """y = a + b over four elements of buffers that have more of them."""
    b = ProgramBuilder("p")
    y = b.output("y", "f32", [4])
    made = []
    for name, size in (("a", first), ("b", second)):
        made.append(b.buffer(name, "f32", [size]))
        with b.loop(f"make_{name}", [size]) as k:
            k.store(made[-1], k.vars, k.constant(1.0, "f32"))
    with b.loop("add", [4]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.load_at(made[0], i) + k.load_at(made[1], i))
    return b.build()


def test_what_is_taken_over_does_not_depend_on_loops_seen_before() -> None:
    for first, second, taken in ((8, 6, "b"), (6, 8, "a"), (6, 6, "a")):
        pairs = in_place_pairs(sums_of_two(first, second))
        assert [(p.out, p.inp) for p in pairs] == [("y", taken)]
