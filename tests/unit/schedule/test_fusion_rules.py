"""Each rule of fusion: one case just inside, one just outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.interp.compare import differing_results
from treadle.ir.program import Program
from treadle.ir.spec import verify
from treadle.ir.text import parse_program
from treadle.schedule import choose
from treadle.schedule.choose import Search
from treadle.schedule.passes.fuse import fuse
from treadle.schedule.policy import POLICIES, Policy
from treadle.schedule.reindex import aligned
from treadle.testing.costs import MACHINES
from treadle.testing.stand_ins import stand_ins

Build = Callable[[ProgramBuilder], None]


def program_of(build: Build, device: str = "cpu") -> Program:
    b = ProgramBuilder("p", device)
    build(b)
    return b.build()


def fused(program: Program, policy: Policy | None = None) -> tuple[set[str], dict[str, dict]]:  # type: ignore[type-arg]
    """Names of the kernels, and the verdicts by pair of operations."""
    journal = Journal()
    ctx = Ctx(Options(), MACHINES, journal)
    search = Search(program, ctx, policy or POLICIES["balanced"])
    found = search.run()
    names = {"_".join(program.leaves[m].name for m in group) for group in found.kernels}
    after = verify(fuse(program, Ctx(Options(), MACHINES, Journal(enabled=False))))
    assert differing_results(program, after, externs=stand_ins(program)) == []
    verdicts = {"+".join(e["ops"]): dict(e) for e in journal.events("verdict")}
    return names, verdicts


def pointwise(b: ProgramBuilder, name: str, sources: list, sizes: list[int], out=None, shift=0):  # type: ignore[no-untyped-def,type-arg]
    target = out if out is not None else b.buffer(f"{name}_out", "f32", sizes)
    with b.loop(name, sizes) as k:
        total = None
        for s in sources:
            v = k.load_at(s, s.layout.index(k.vars) + shift, unproven=bool(shift))
            total = v if total is None else total + v
        assert total is not None
        k.store(target, k.vars, total * 0.5)
    return target


# ------------------------------------------------------------------------------------- data


def test_a_producer_and_its_consumer_become_one_kernel() -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [8, 16])
        b.returns(pointwise(b, "c", [pointwise(b, "p", [x], [8, 16])], [8, 16]))

    names, verdicts = fused(program_of(build))
    assert names == {"p_c"}
    assert verdicts["p+c"]["code"] == "FUS000"
    # The intermediate is neither written nor read: twice its bytes.
    assert verdicts["p+c"]["facts"]["bytes"] == 2 * 8 * 16 * 4


def halves(b: ProgramBuilder, start_of_second: int) -> None:
    """Two loops that each write a part of the rows of one buffer, from one input."""
    x = b.input("x", "f32", [8, 16])
    y = b.output("y", "f32", [8, 40])
    for name, start in (("left", 0), ("right", start_of_second)):
        with b.loop(name, [8, 16]) as k:
            i, j = k.vars
            k.store(y, (i, j + start), k.load(x, i, j) * 0.5)


def test_parts_of_one_buffer_that_never_meet_may_be_written_by_one_kernel() -> None:
    assert fused(program_of(lambda b: halves(b, 16)))[0] == {"left_right"}
    names, verdicts = fused(program_of(lambda b: halves(b, 15)))
    assert names == {"left", "right"}
    assert verdicts["left+right"]["code"] == "FUS008"


def rows_and_elements(b: ProgramBuilder, rows: int) -> None:
    """A loop over rows, and one over elements that reads what it stored for each row."""
    x, big = b.input("x", "f32", [rows]), b.input("big", "f32", [24, 32])
    t = pointwise(b, "row", [x], [rows])
    y = b.output("y", "f32", [24, 32])
    with b.loop("element", [24, 32]) as k:
        i, j = k.vars
        k.store(y, (i, j), k.load(big, i, j) + k.load_at(t, i))


def test_a_loop_over_rows_may_run_once_for_each_row_of_elements() -> None:
    assert fused(program_of(lambda b: rows_and_elements(b, 24)))[0] == {"row_element"}
    # Rows that nobody reads are no part of the rows of elements.
    names, verdicts = fused(program_of(lambda b: rows_and_elements(b, 25)))
    assert names == {"row", "element"}
    assert verdicts["row+element"]["code"] == "FUS004"
    flat = replace(POLICIES["balanced"], nests=False)
    assert fused(program_of(lambda b: rows_and_elements(b, 24)), flat)[0] == {"row", "element"}


def test_a_shifted_read_keeps_two_kernels() -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [64])
        t = pointwise(b, "p", [x], [64])
        y = b.output("y", "f32", [63])
        with b.loop("c", [63]) as k:
            k.store(y, k.vars, k.load_at(t, k.vars[0] + 1) + k.load_at(x, k.vars[0]))

    names, verdicts = fused(program_of(build))
    assert names == {"p", "c"}
    assert verdicts["p+c"]["code"] == "FUS004"  # 64 points and 63


def test_a_halo_of_one_element_is_refused_with_both_walks() -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [64])
        t = pointwise(b, "p", [x], [64])
        y = b.output("y", "f32", [64])
        with b.loop("c", [64]) as k:
            i = k.vars[0]
            k.store(y, k.vars, k.load_at(t, (i + 1) % 64) + k.load_at(t, i))

    names, verdicts = fused(program_of(build))
    assert names == {"p", "c"}
    assert verdicts["p+c"]["code"] == "FUS008"
    assert {"left", "right", "storage"} <= set(verdicts["p+c"]["facts"])


def transposed_read(b: ProgramBuilder) -> None:
    x = b.input("x", "f32", [8, 16])
    t = pointwise(b, "p", [x], [8, 16])
    y = b.output("y", "f32", [16, 8])
    with b.loop("c", [16, 8]) as k:
        i, j = k.vars
        k.store(y, (i, j), k.load_at(t, 16 * j + i) + 1.0)


def test_another_walk_whose_indices_cannot_be_proven_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "bounds", lambda body, program: [("IR012", "who knows")])
    names, verdicts = fused(program_of(transposed_read))
    assert names == {"p", "c"}
    assert verdicts["p+c"]["code"] == "FUS008"


def test_a_transposed_read_fuses_by_walking_the_producer_in_the_consumers_order() -> None:
    program = program_of(transposed_read)
    names, _ = fused(program)
    assert names == {"p_c"}
    names, verdicts = fused(program, replace(POLICIES["balanced"], reindex=False))
    assert names == {"p", "c"}
    assert verdicts["p+c"]["code"] == "FUS008"


def test_reindexing_refuses_what_would_need_divisions() -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [6, 4])
        w = b.input("w", "f32", [6])
        t = b.buffer("t", "f32", [24])
        with b.loop("p", [6, 4]) as k:
            i, j = k.vars
            k.store_at(t, 4 * i + j, k.load(x, i, j) * k.load(w, i))
        y = b.output("y", "f32", [3, 8])
        with b.loop("c", [8, 3]) as k:
            i, j = k.vars
            k.store_at(y, 8 * j + i, k.load_at(t, 8 * j + i))

    program = program_of(build)
    search = Search(program, Ctx(Options(), MACHINES, Journal()), POLICIES["balanced"])
    producer, consumer = search.kernels
    path = next(t for t in producer.touches["t"] if t.is_write)
    goal = next(t for t in consumer.touches["t"] if not t.is_write)
    assert aligned([program.leaves[0]], path, goal) is None  # type: ignore[list-item]


def test_a_store_that_hits_an_element_twice_is_not_read_in_the_same_kernel() -> None:
    def build(per_element: int) -> Build:
        def inner(b: ProgramBuilder) -> None:
            x = b.input("x", "f32", [64])
            t = b.output("t", "f32", [64])
            with b.loop("zero", [64]) as k:
                k.store(t, k.vars, 0.0)
            with b.loop("s", [64]) as k:
                at = k.vars[0] // per_element
                k.store_at(t, at, k.load(x, *k.vars), mode="atomic_add")
            y = b.output("y", "f32", [64])
            with b.loop("c", [64]) as k:
                k.store(y, k.vars, k.load_at(t, k.vars[0] // per_element) + k.load(x, *k.vars))

        return inner

    assert any("s_c" in n for n in fused(program_of(build(1)))[0])
    names, verdicts = fused(program_of(build(2)))
    assert not any("s_c" in n for n in names)
    assert verdicts["s+c"]["code"] == "FUS009"


def test_kernels_that_read_the_same_data_become_one() -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [8, 16])
        b.returns(pointwise(b, "a", [x], [8, 16]))
        b.returns(pointwise(b, "c", [x], [8, 16]))

    names, verdicts = fused(program_of(build))
    assert names == {"a_c"}
    assert verdicts["a+c"]["facts"]["bytes"] == 8 * 16 * 4


def test_kernels_that_share_nothing_are_not_even_looked_at() -> None:
    def build(b: ProgramBuilder) -> None:
        for n in ("a", "c"):
            b.returns(pointwise(b, n, [b.input(f"x{n}", "f32", [8])], [8]))

    names, verdicts = fused(program_of(build))
    assert names == {"a", "c"}
    assert verdicts == {}


# ------------------------------------------------------------------------------------ spaces


def norm(b: ProgramBuilder, name: str, source, rows: int, columns: int):  # type: ignore[no-untyped-def]
    target = b.buffer(f"{name}_out", "f32", [rows])
    with b.loop(name, [rows], reduce=[columns]) as k:
        i, j = k.vars
        k.store(target, (i,), k.sum(k.load(source, i, j)))
    return target


def test_pointwise_work_fuses_before_and_after_a_reduction() -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [8, 16])
        t = pointwise(b, "before", [x], [8, 16])
        s = norm(b, "sum", t, 8, 16)
        half = pointwise(b, "outer", [s], [8])
        y = b.output("y", "f32", [8, 16])
        with b.loop("after", [8, 16]) as k:
            i, j = k.vars
            k.store(y, (i, j), k.load(t, i, j) - k.load(half, i))

    names, _ = fused(program_of(build))
    assert names == {"before_sum_outer_after"}


def test_two_reductions_of_one_shape_become_one_kernel_and_of_another_do_not() -> None:
    def build(columns: int) -> Build:
        def inner(b: ProgramBuilder) -> None:
            x = b.input("x", "f32", [8, 16])
            b.returns(norm(b, "a", x, 8, 16))
            y = b.output("y", "f32", [8])
            with b.loop("c", [8], reduce=[columns]) as k:
                i, j = k.vars
                k.store(y, (i,), k.max(k.load(x, i, j)))

        return inner

    assert fused(program_of(build(16)))[0] == {"a_c"}
    names, verdicts = fused(program_of(build(15)))
    assert names == {"a", "c"}
    assert all(v["code"] == "FUS004" for v in verdicts.values())


def rows_then_all(rows: int, columns: int) -> Build:
    def inner(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [rows, columns])
        s = norm(b, "rows", x, rows, columns)
        y = b.output("y", "f32", [])
        with b.loop("all", [], reduce=[rows]) as k:
            k.store(y, (), k.sum(k.load(s, k.vars[0])))

    return inner


def test_a_large_kernel_keeps_enough_independent_points() -> None:
    assert fused(program_of(rows_then_all(16, 16)))[0] == {"rows_all"}
    names, verdicts = fused(program_of(rows_then_all(512, 256)))
    assert names == {"rows", "all"}
    assert verdicts["rows+all"]["code"] == "FUS014"
    facts = verdicts["rows+all"]["facts"]
    assert facts["points"] == 1
    assert facts["apart_ns"] < facts["together_ns"]


def test_a_reduction_of_blocks_fuses_into_one_of_rows() -> None:
    """Row statistics, then a scale per block of four, as block quantisation has them."""

    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [8, 16])
        mean = norm(b, "mean", x, 8, 16)
        centred = b.buffer("centred", "f32", [8, 16])
        with b.loop("centre", [8, 16]) as k:
            i, j = k.vars
            k.store(centred, (i, j), k.load(x, i, j) - k.load(mean, i))
        scale = b.output("scale", "f32", [8, 4])
        with b.loop("scale_of", [8, 4], reduce=[4]) as k:
            i, j, r = k.vars
            k.store(scale, (i, j), k.max(k.abs(k.load(centred, i, 4 * j + r))))
        y = b.output("y", "f32", [8, 16])
        with b.loop("quantise", [8, 4, 4]) as k:
            i, j, r = k.vars
            v = k.load(centred, i, 4 * j + r) / k.load(scale, i, j)
            k.store(y, (i, 4 * j + r), v)

    assert fused(program_of(build))[0] == {"mean_centre_scale_of_quantise"}


# ------------------------------------------------------------------------------------- form


def test_a_call_is_a_kernel_of_its_own() -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [8, 8])
        t = pointwise(b, "p", [x], [8, 8])
        m = b.buffer("m", "f32", [8, 8])
        b.extern("aten.mm", [t, t], [m], name="mm")
        b.returns(pointwise(b, "c", [m], [8, 8]))

    program = program_of(build)
    assert fused(program)[0] == {"p", "mm", "c"}
    search = Search(program, Ctx(Options(), MACHINES, Journal()), POLICIES["balanced"])
    assert search.consider(0, 1, 0).code == "FUS001"
    assert search.consider(0, 2, 0).code == "FUS007"


def test_two_devices_are_two_kernels() -> None:
    b = ProgramBuilder("p", "cuda:0")
    x = b.input("x", "f32", [])
    pointwise(b, "g", [x], [])
    program = b.build()
    search = Search(program, Ctx(Options(), MACHINES, Journal()), POLICIES["balanced"])
    from copy import copy

    other = copy(search.kernels[0])
    other.device = "cpu"
    search.kernels.append(other)
    from treadle.schedule.rules.form import on_one_device
    from treadle.schedule.rules.pair import Pair

    pair = Pair.of(program, POLICIES["balanced"], MACHINES, search.kernels[0], other, ("x",))
    assert on_one_device(pair).code == "FUS002"


@pytest.mark.parametrize(
    "field, inside, outside, code",
    [
        ("max_members", 3, 2, "FUS003"),
        ("max_buffers", 5, 3, "FUS005"),
        ("max_statements", 12, 11, "FUS006"),
    ],
)
def test_limits_of_a_policy_hold_exactly(field: str, inside: int, outside: int, code: str) -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [8])
        t = pointwise(b, "a", [x], [8])
        u = pointwise(b, "c", [t], [8])
        b.returns(pointwise(b, "d", [u], [8]))

    program = program_of(build)
    loose = replace(POLICIES["balanced"], **{field: inside})
    assert fused(program, loose)[0] == {"a_c_d"}
    tight = replace(POLICIES["balanced"], **{field: outside})
    names, verdicts = fused(program, tight)
    assert names != {"a_c_d"}
    assert code in {v["code"] for v in verdicts.values()}


# ------------------------------------------------------------------------- order and memory


def test_what_must_run_in_between_keeps_two_kernels_apart() -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [8, 8])
        t = pointwise(b, "p", [x], [8, 8])
        m = b.buffer("m", "f32", [8, 8])
        b.extern("aten.mm", [t, t], [m], name="mm")
        b.returns(pointwise(b, "c", [t, m], [8, 8]))

    names, verdicts = fused(program_of(build))
    assert names == {"p", "mm", "c"}
    assert verdicts["p+c"]["code"] == "FUS010"
    assert verdicts["p+c"]["facts"]["through"] == ["mm"]


def far_apart(b: ProgramBuilder) -> None:
    """Two readers of x; the second makes a large result that is needed at the very end."""
    x = b.input("x", "f32", [1024])
    first = pointwise(b, "a", [x], [1024])
    m = first
    for n in range(3):
        wide = b.buffer(f"s{n}", "f32", [1024, 2])
        b.extern("aten.stack", [m], [wide], name=f"double{n}")
        small = b.buffer(f"t{n}", "f32", [1024])
        b.extern("aten.halve", [wide], [small], name=f"halve{n}")
        m = small
    late = pointwise(b, "z", [x], [1024])
    y = b.output("y", "f32", [1024])
    b.extern("aten.clone", [late], [y], name="end")
    b.returns(m)


def test_a_fusion_that_raises_the_peak_is_refused_by_default() -> None:
    program = program_of(far_apart)
    names, verdicts = fused(program)
    assert "a_z" not in names
    assert verdicts["a+z"]["code"] == "FUS011"
    assert verdicts["a+z"]["facts"]["peak"] > verdicts["a+z"]["facts"]["limit"]
    unlimited = replace(POLICIES["balanced"], peak_factor=None)
    assert "a_z" in fused(program, unlimited)[0]


def test_too_much_in_the_way_is_refused() -> None:
    program = program_of(far_apart)
    unlimited = replace(POLICIES["balanced"], peak_factor=None)
    assert "a_z" in fused(program, replace(unlimited, max_moves=3))[0]
    # Nothing need move here: z stands free. A chain on both sides must.

    def both_sides(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [8])
        a = pointwise(b, "a", [x], [8])
        one = b.buffer("one", "f32", [8])
        b.extern("aten.clone", [a], [one], name="call1")
        two = b.buffer("two", "f32", [8])
        b.extern("aten.clone", [b.input("w", "f32", [8])], [two], name="call2")
        b.returns(pointwise(b, "z", [x, two], [8]))
        b.returns(one)

    program = program_of(both_sides)
    assert "a_z" in fused(program, replace(unlimited, max_moves=1))[0]
    names, verdicts = fused(program, replace(unlimited, max_moves=0))
    assert "a_z" not in names
    assert verdicts["a+z"]["code"] == "FUS013"


def test_data_touched_in_different_ways_saves_nothing() -> None:
    def build(b: ProgramBuilder) -> None:
        x = b.input("x", "f32", [8, 8])
        b.returns(pointwise(b, "a", [x], [8, 8]))
        y = b.output("y", "f32", [8, 8])
        with b.loop("c", [8, 8]) as k:
            i, j = k.vars
            k.store(y, (i, j), k.load(x, j, i))

    program = program_of(build)
    search = Search(program, Ctx(Options(), MACHINES, Journal()), POLICIES["balanced"])
    assert search.consider(0, 1, search.score(0, 1)).code == "FUS012"


def test_rows_that_have_no_elements_meet_nobody() -> None:
    """An outer level of no points divides nothing: no kernel is made of it, and nothing fails."""

    def build(b: ProgramBuilder) -> None:
        x, y = b.input("x", "f32", [8]), b.output("y", "f32", [8])
        z = b.input("z", "f32", [8])
        with b.loop("running", [], reduce=[2, 0]) as k:
            r, q = k.vars
            k.store(x, (r + 4 * q,), k.scan("add", k.load(z, r + q)))
        with b.loop("most", [], reduce=[2, 0]) as k:
            r, q = k.vars
            k.store(y, (0,), k.max(k.load(z, r + q)) + k.load(x, 0))

    names, _ = fused(program_of(build))
    assert names == {"running", "most"}


ADDING = """treadle 1
program p
inputs x, n
outputs x, n

buffer x : f32[1] on cpu
buffer n : f32[3] on cpu

loop one on cpu {{
  %0 = load x[0]
  %1 = exp %0
  store x[0] = %1
}}

loop count on cpu for i in 3, j in 3 {{
  %0 = load x[0]
  %1 = index {value} as f32
  %2 = mul %0, %1
  store n[j] = %2 mode atomic_add
}}
"""


@pytest.mark.parametrize("value, code", [("j", "FUS016"), ("i + j", "FUS000")])
def test_additions_are_made_as_often_as_before(value: str, code: str) -> None:
    """What varies along all its loops adds at each point of them, inner loops or not."""
    _, verdicts = fused(parse_program(ADDING.format(value=value)))
    assert verdicts["one+count"]["code"] == code
