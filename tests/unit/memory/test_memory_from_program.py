"""From programs to memory problems: who gets a block, who shares one, who takes others in."""

from __future__ import annotations

from threading import Thread

import pytest

from treadle.analysis.liveness import LivenessPolicy
from treadle.core.context import Ctx, journal_for
from treadle.core.costs import CostModel
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.devices import alignment_for
from treadle.ir.program import Program
from treadle.ir.types import Buffer
from treadle.memory.from_program import PlanOptions, problem_of
from treadle.memory.plan_cache import PlanCache, plan_for_all_sizes
from treadle.memory.plan_program import plan_program
from treadle.memory.problem import ARENA, Block, Place, Plan
from treadle.memory.validate import violations


class Weaver:
    """A builder for straight lines of pointwise kernels."""

    def __init__(self, size: object = 64, donated: bool = False) -> None:
        self.b = ProgramBuilder("p")
        self.size = size
        self.x = self.b.input("x", "f32", [size], donated=donated)  # type: ignore[list-item]

    def point(self, name: str, *sources: Buffer, is_output: bool = False, size: object = None
              ) -> Buffer:  # fmt: skip
        """A new buffer from the sum of others, element by element."""
        n = self.size if size is None else size
        make = self.b.output if is_output else self.b.buffer
        target = make(name, "f32", [n])  # type: ignore[list-item]
        with self.b.loop(f"make_{name}", [n]) as k:  # type: ignore[list-item]
            (i,) = k.vars
            value = k.load(sources[0], i)
            for s in sources[1:]:
                value = value + k.load(s, i)
            k.store(target, (i,), value * 2.0)
        return target

    def call(self, name: str, *sources: Buffer, size: int | None = None, is_output: bool = False
             ) -> Buffer:  # fmt: skip
        """A library call, which never works in place."""
        make = self.b.output if is_output else self.b.buffer
        target = make(name, "f32", [self.size if size is None else size])  # type: ignore[list-item]
        self.b.extern("lib.f", list(sources), [target], name=f"call_{name}")
        return target

    def build(self) -> Program:
        return self.b.build()


def blocks_of(program: Program, **options: object) -> dict[str, Block]:
    found = problem_of(program, options=PlanOptions(**options)).problem  # type: ignore[arg-type]
    return {block.name: block for block in found.blocks}


def test_lives_are_half_open_and_inputs_and_outputs_get_no_block() -> None:
    w = Weaver()
    a = w.call("a", w.x)
    w.call("y", w.call("c", a), a, is_output=True)
    blocks = blocks_of(w.build())
    assert {n: (b.lower, b.upper, b.size) for n, b in blocks.items()} == {
        "a": (0, 3, 256),
        "c": (1, 3, 256),
    }


def test_a_chain_of_hand_overs_is_one_group() -> None:
    w = Weaver()
    c = w.point("c", w.point("b", w.point("a", w.x)))
    w.call("y", c, is_output=True)
    blocks = blocks_of(w.build())
    assert {b.group for b in blocks.values()} == {"a"}
    assert [(b.lower, b.upper) for b in blocks.values()] == [(0, 2), (1, 3), (2, 4)]
    assert plan_program(w.build(), steps=10).arena_bytes == 256


def test_views_and_mutations_stay_in_the_block_of_their_root() -> None:
    w = Weaver()
    a = w.call("a", w.x)
    half = w.b.view("half", a, [32], [1], 0)
    with w.b.loop("change", [32]) as k:
        (i,) = k.vars
        k.store(half, (i,), k.load(half, i) + 1.0)
    w.call("y", half, is_output=True)
    blocks = blocks_of(w.build())
    assert list(blocks) == ["a"]
    assert (blocks["a"].lower, blocks["a"].upper) == (0, 3)


def test_an_output_takes_no_guest_at_the_step_that_writes_it() -> None:
    w = Weaver()
    a = w.call("a", w.x)
    w.call("y", a, is_output=True)  # a is read while y is written
    (pool,) = problem_of(w.build(), options=PlanOptions(pack_into_outputs=True)).problem.pools
    assert (pool.name, pool.free) == ("y", ((0, 1),))
    planned = plan_program(w.build(), options=PlanOptions(pack_into_outputs=True), steps=10)
    assert planned.plan.placements == {"a": Place(ARENA, 0)}


def test_temporaries_pack_into_an_output_that_is_born_late() -> None:
    w = Weaver()
    small = [w.call(f"s{k}", w.x, size=16) for k in range(4)]
    total = w.call("t", *small)
    late = w.call("y", total, is_output=True)
    assert late.name == "y"
    planned = plan_program(w.build(), options=PlanOptions(pack_into_outputs=True), steps=10)
    pools = {name: place.pool for name, place in planned.plan.placements.items()}
    assert pools == {"s0": "y", "s1": "y", "s2": "y", "s3": "y", "t": ARENA}
    assert planned.arena_bytes == 256
    assert planned.total_bytes == 512


def test_what_is_written_in_place_by_an_output_lives_in_the_output_if_it_fits() -> None:
    w = Weaver()
    w.point("y", w.point("a", w.x), is_output=True)
    packed = plan_program(w.build(), options=PlanOptions(pack_into_outputs=True), steps=10)
    assert packed.plan.placements == {"a": Place("y", 0), "y": Place("y", 0)}
    assert packed.arena_bytes == 0
    apart = plan_program(w.build(), steps=10)
    assert apart.plan.placements == {"a": Place(ARENA, 0)}
    inside = plan_program(w.build(), options=PlanOptions(outputs_in_arena=True), steps=10)
    assert inside.plan.placements == {"a": Place(ARENA, 0), "y": Place(ARENA, 0)}


def test_a_larger_temporary_does_not_move_into_the_output_that_takes_its_block() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [64])
    large = b.buffer("a", "f32", [64])
    b.extern("lib.f", [x], [large], name="first")
    y = b.output("y", "f32", [32])
    with b.loop("last", [32]) as k:
        (i,) = k.vars
        k.store(y, (i,), k.load(large, i) * 2.0)
    planned = plan_program(b.build(), options=PlanOptions(pack_into_outputs=True), steps=10)
    assert planned.of.live.in_place_reuse() == {"a": "y"}
    assert planned.plan.placements == {"a": Place(ARENA, 0)}


def test_a_donated_input_takes_guests_after_its_last_use_only() -> None:
    w = Weaver(donated=True)
    a = w.call("a", w.x)
    b = w.call("b", a)
    w.call("y", b, is_output=True)
    planned = plan_program(w.build(), steps=10)
    assert planned.plan.placements == {"a": Place(ARENA, 0), "b": Place("x", 0)}
    assert not problem_of(w.build(), options=PlanOptions(pack_into_donated=False)).problem.pools


def test_guests_stay_out_of_a_donated_input_while_its_heir_is_written() -> None:
    w = Weaver(donated=True)
    with_heir = w.point("h", w.x, size=32)
    other = w.call("o", with_heir, size=16)
    w.call("y", other, with_heir, is_output=True)
    of = problem_of(w.build())
    block = {b.name: b for b in of.problem.blocks}
    assert (block["x"].host, block["x"].fixed, block["x"].group) == ("x", 0, "x")
    assert (block["h"].host, block["h"].fixed, block["h"].group) == ("x", 0, "x")
    beside = Plan({"x": Place("x", 0), "h": Place("x", 0), "o": Place("x", 128)}, 0)
    assert {v.code for v in violations(of.problem, beside)} >= {"MEM001"}


def test_alignment_follows_the_device_unless_it_is_said() -> None:
    assert (alignment_for("cpu"), alignment_for("cuda:1")) == (64, 256)
    w = Weaver(size=3)
    w.call("y", w.call("a", w.x), w.call("b", w.x), is_output=True)
    assert plan_program(w.build(), steps=10).arena_bytes == 64 + 12
    packed = plan_program(w.build(), options=PlanOptions(alignment=4), steps=10)
    assert packed.arena_bytes == 24


def test_storages_without_bytes_and_tokens_are_skipped() -> None:
    w = Weaver()
    w.call("y", w.call("empty", w.x, size=0), is_output=True)
    assert blocks_of(w.build()) == {}


def test_choices_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="not both"):
        PlanOptions(pack_into_outputs=True, outputs_in_arena=True)
    with pytest.raises(UsageError, match="less than 1"):
        PlanOptions(alignment=0)


def test_the_breakdown_names_maker_last_use_and_idle_time() -> None:
    w = Weaver()
    a = w.call("a", w.x, size=128)
    t = w.call("t", w.x, size=16)
    w.call("y", a, w.call("u", t, size=512), is_output=True, size=1)
    planned = plan_program(w.build(), policy=LivenessPolicy(include_inputs=False), steps=10)
    assert (planned.peak.bytes, planned.peak.at) == (4 * (128 + 16 + 512), "call_u")
    rows = {r.storage: (r.bytes, r.producer, r.last_use, r.idle) for r in planned.breakdown}
    assert rows == {
        "u": (2048, "call_u", "call_y", 0),
        "a": (512, "call_a", "call_y", 2),
        "t": (64, "call_t", "call_u", 0),
    }


def test_a_plan_is_journalled() -> None:
    class Free:
        def op_ns(self, op: object) -> float:
            return 0.0

        def latency_ns(self, a: object, b: object) -> float:
            return 0.0

    cost: CostModel = Free()  # type: ignore[assignment]
    ctx = Ctx(Options(debug=3), cost, journal_for(Options(debug=3)))
    w = Weaver()
    w.call("y", w.call("a", w.x), is_output=True)
    plan_program(w.build(), steps=10, ctx=ctx)
    (event,) = ctx.journal.events("plan")
    assert (event["total_bytes"], event["plan_lower_bound"]) == (256, 256)


# ------------------------------------------------------------------------------ run-time sizes


def with_sizes(hi: int | None) -> Program:
    b = ProgramBuilder("sized")
    s = b.size("s", 1, hi, hint=4)
    x = b.input("x", "f32", [s])
    a, c = b.buffer("a", "f32", [s]), b.buffer("c", "f32", [8])
    y = b.output("y", "f32", [s])
    b.extern("lib.f", [x], [a], name="one")
    b.extern("lib.f", [a], [c], name="two")
    b.extern("lib.f", [a, c], [y], name="three")
    return b.build()


def test_one_plan_for_all_sizes_needs_limits() -> None:
    assert plan_for_all_sizes(problem_of(with_sizes(None))) is None
    of = problem_of(with_sizes(40), options=PlanOptions(alignment=1))
    general = plan_for_all_sizes(of)
    assert general is not None
    assert general.height == 40 * 4 + 32
    for n in (1, 7, 40):
        assert of.at({"s": n}).blocks[0].size == 4 * n


def test_plans_are_made_once_for_each_size_and_the_oldest_is_dropped() -> None:
    cache = PlanCache(with_sizes(None), options=PlanOptions(alignment=1), kept=2)
    assert cache.for_all is None
    assert [cache({"s": n}).height for n in (3, 5, 3)] == [44, 52, 44]
    assert (cache.planned, len(cache)) == (2, 2)
    cache({"s": 9})
    cache({"s": 3})
    assert (cache.planned, len(cache)) == (3, 2)
    cache({"s": 5})
    assert cache.planned == 4


def test_one_plan_for_all_is_used_only_if_it_wastes_little() -> None:
    assert PlanCache(with_sizes(4), options=PlanOptions(alignment=1)).for_all is not None
    assert PlanCache(with_sizes(4000), options=PlanOptions(alignment=1)).for_all is None
    with pytest.raises(UsageError, match="keeps none"):
        PlanCache(with_sizes(4), kept=0)


def test_threads_get_the_same_plans() -> None:
    cache = PlanCache(with_sizes(None), kept=3)
    found: list[list[int]] = []

    def ask() -> None:
        found.append([cache({"s": n % 7 + 1}).height for n in range(40)])

    threads = [Thread(target=ask) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 4
    assert all(heights == found[0] for heights in found)
    assert len(cache) == 3


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(UsageError, match="no run-time size 'q'"):
        problem_of(with_sizes(4)).at({"q": 1})
