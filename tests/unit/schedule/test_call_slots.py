"""Loops in the slots of templates and users' kernels: one case inside each rule, one outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.analysis.accounting import DUMP, PEER, figures
from treadle.analysis.cost import work_of
from treadle.analysis.liveness import Liveness
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.frontends.inductor_dump import import_program, read_dump, unpacked
from treadle.ir.build import ProgramBuilder
from treadle.ir.interp.compare import differing_results
from treadle.ir.program import Fused, Program
from treadle.ir.spec import verify
from treadle.ir.types import Buffer
from treadle.schedule.choose import Search
from treadle.schedule.passes.fuse import fuse
from treadle.schedule.policy import POLICIES, Policy
from treadle.testing.costs import MACHINES
from treadle.testing.stand_ins import stand_ins

BYTES = 8 * 8 * 4


def context(journal: Journal) -> Ctx:
    return Ctx(Options(), MACHINES, journal)


def decided(program: Program, policy: Policy = POLICIES["balanced"]) -> tuple[set[str], set[str]]:
    """Names of the kernels, and the codes of all verdicts."""
    verify(program)
    journal = Journal()
    found = Search(program, context(journal), policy).run()
    names = {"_".join(program.leaves[m].name for m in group) for group in found.kernels}
    after = fuse(program, context(Journal()))
    assert differing_results(program, after, externs=stand_ins(program)) == []
    assert fuse(after, context(Journal())) is after
    return names, {e["code"] for e in journal.events("verdict")}


def pointwise(b: ProgramBuilder, name: str, *sources: Buffer, out: Buffer | None = None) -> Buffer:
    target = out if out is not None else b.buffer(f"{name}_out", "f32", [8, 8])
    with b.loop(name, [8, 8]) as k:
        total = k.load(sources[0], *k.vars)
        for s in sources[1:]:
            total = total + k.load(s, *k.vars)
        k.store(target, k.vars, total * 0.5)
    return target


def product(b: ProgramBuilder, x: Buffer, y: Buffer, **rest: object) -> Buffer:
    t = b.buffer("t", "f32", [8, 8])
    b.template("aten.mm", [x, y], [t], name="mm", **rest)
    return t


def epilogue(b: ProgramBuilder, **rest: object) -> tuple[Buffer, Buffer]:
    x = b.input("x", "f32", [8, 8])
    t = product(b, x, x, **rest)
    y = b.output("y", "f32", [8, 8])
    return t, y


def test_a_loop_joins_the_template_whose_result_it_uses() -> None:
    b = ProgramBuilder("p")
    t, y = epilogue(b)
    pointwise(b, "act", t, out=y)
    program = b.build()
    names, codes = decided(program)
    assert names == {"mm_act"}
    assert codes == {"FUS000"}
    after = fuse(program, context(Journal()))
    (kernel,) = after.ops
    assert isinstance(kernel, Fused)
    # x is read twice by the product; t is neither stored nor read, nor does it need memory.
    assert work_of(after, kernel).bytes == 2 * BYTES
    assert Liveness(after).peak().bytes == 2 * BYTES


def test_a_result_that_others_use_is_still_stored_once() -> None:
    b = ProgramBuilder("p")
    t, y = epilogue(b)
    pointwise(b, "act", t, out=y)
    b.returns(t)
    program = b.build()
    assert decided(program)[0] == {"mm_act"}
    after = fuse(program, context(Journal()))
    assert work_of(after, after.ops[0]).bytes == 3 * BYTES


def test_several_loops_follow_each_other_in_one_epilogue() -> None:
    b = ProgramBuilder("p")
    t, y = epilogue(b)
    pointwise(b, "second", pointwise(b, "first", t), t, out=y)
    assert decided(b.build())[0] == {"mm_first_second"}


def test_a_transposed_epilogue_is_walked_like_the_result() -> None:
    b = ProgramBuilder("p")
    t, y = epilogue(b)
    with b.loop("act", [8, 8]) as k:
        i, j = k.vars
        k.store(y, (i, j), k.load(t, j, i) + 1.0)
    assert decided(b.build())[0] == {"mm_act"}


def reduced(b: ProgramBuilder, t: Buffer, y: Buffer) -> None:
    with b.loop("act", [8], reduce=[8]) as k:
        i, j = k.vars
        k.store_at(y, i, k.sum(k.load(t, i, j)))


def in_place(b: ProgramBuilder, t: Buffer, y: Buffer) -> None:
    pointwise(b, "act", t, out=t)
    b.extern("aten.mm", [t, t], [y], name="last")


def changes_an_input(b: ProgramBuilder, t: Buffer, y: Buffer) -> None:
    z = b.input("z", "f32", [8, 8])
    pointwise(b, "act", t, out=z)
    b.extern("aten.mm", [z, z], [y], name="last")


def by_data(b: ProgramBuilder, t: Buffer, y: Buffer) -> None:
    at = b.input("at", "i64", [8])
    with b.loop("zero", [8, 8]) as k:
        k.store(y, k.vars, 0.0)
    with b.loop("act", [8, 8]) as k:
        i, j = k.vars
        row = k.indirect(k.load(at, i), 8)
        k.store_at(y, 8 * row + j, k.load(t, i, j), mode="atomic_add")


@pytest.mark.parametrize("build", [reduced, in_place, changes_an_input, by_data])
def test_only_plain_pointwise_work_follows_a_template(
    build: Callable[[ProgramBuilder, Buffer, Buffer], None],
) -> None:
    b = ProgramBuilder("p")
    t, y = epilogue(b)
    build(b, t, y)
    names, codes = decided(b.build())
    assert not any("mm_act" in n for n in names)
    assert "FUS021" in codes


def test_a_closed_epilogue_slot_stays_closed() -> None:
    b = ProgramBuilder("p")
    t, y = epilogue(b, has_epilogue_slot=False, prologue_slots=("x",))
    pointwise(b, "act", t, out=y)
    names, codes = decided(b.build())
    assert names == {"mm", "act"}
    assert codes == {"FUS020"}


def test_a_template_without_any_slot_is_not_looked_at() -> None:
    b = ProgramBuilder("p")
    t, y = epilogue(b, has_epilogue_slot=False)
    pointwise(b, "act", t, out=y)
    assert decided(b.build()) == ({"mm", "act"}, set())


def test_loops_that_read_the_same_operand_stay_outside() -> None:
    b = ProgramBuilder("p")
    t, _ = epilogue(b)
    b.returns(t, pointwise(b, "beside", b.buffers["x"]))
    b.outputs.remove("y")
    names, _ = decided(b.build())
    assert names == {"mm", "beside"}


def test_two_templates_do_not_become_one() -> None:
    b = ProgramBuilder("p")
    t, y = epilogue(b, prologue_slots=("x",))
    b.template("aten.mm", [t, t], [y], name="again", prologue_slots=("t",))
    names, codes = decided(b.build())
    assert names == {"mm", "again"}
    assert codes == {"FUS020"}


# ---------------------------------------------------------------------------------- prologues


def prologue(reads: int, sizes: int = 8) -> ProgramBuilder:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [8, 8])
    parts = [b.input(f"x{k}", "f32", [8, 8]) for k in range(reads)]
    before = pointwise(b, "before", *parts)
    t = product(b, before, x, prologue_slots=("before_out",))
    b.returns(t)
    return b


def test_a_loop_that_makes_one_operand_joins_the_template() -> None:
    program = prologue(1).build()
    assert decided(program) == ({"before_mm"}, {"FUS000"})
    after = fuse(program, context(Journal()))
    assert work_of(after, after.ops[0]).bytes == 3 * BYTES
    assert Liveness(after).peak().bytes == 3 * BYTES


def test_a_prologue_and_an_epilogue_share_the_kernel() -> None:
    b = prologue(1)
    b.outputs.remove("t")
    b.returns(pointwise(b, "act", b.buffers["t"]))
    assert decided(b.build())[0] == {"before_mm_act"}


def test_a_prologue_that_reads_more_than_it_makes_is_refused() -> None:
    assert decided(prologue(2).build()) == ({"before", "mm"}, {"FUS022"})


def test_a_prologue_may_read_a_tenth_more_than_it_makes() -> None:
    def build(extra: int) -> Program:
        b = ProgramBuilder("p")
        x = b.input("x", "f32", [20, 20])
        w = b.input("w", "f32", [extra])
        made = b.buffer("made", "f32", [20, 20])
        with b.loop("before", [20, 20]) as k:
            i, j = k.vars
            more = k.load_at(w, (20 * i + j) % extra)
            k.store(made, (i, j), k.load(x, i, j) + more)
        t = b.output("t", "f32", [20, 20])
        b.template("aten.mm", [made, made], [t], name="mm", prologue_slots=("made",))
        return b.build()

    assert decided(build(40))[0] == {"before_mm"}  # 400 + 40 elements of 400
    assert decided(build(41)) == ({"before", "mm"}, {"FUS022"})


def test_an_operand_that_others_read_is_no_prologue() -> None:
    b = prologue(1)
    b.returns(b.buffers["before_out"])
    assert decided(b.build()) == ({"before", "mm"}, {"FUS022"})


def test_an_operand_without_a_slot_is_no_prologue() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [8, 8])
    t = product(b, x, pointwise(b, "before", x), prologue_slots=("x",))
    b.returns(t)
    assert decided(b.build()) == ({"before", "mm"}, {"FUS022"})


# ------------------------------------------------------------------------------- users' kernels


def users(*, also_read: bool = False, kept: bool = False) -> Program:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [8, 8])
    t = b.buffer("t", "f32", [8, 8])
    b.user_kernel("mine", [x], writes=[t], name="mine")
    b.returns(pointwise(b, "act", t, *([x] if also_read else [])))
    if kept:
        b.returns(t)
    return b.build()


def test_users_kernels_take_epilogues_only_if_the_policy_says_so() -> None:
    allowed = replace(POLICIES["balanced"], user_epilogues=True)
    assert decided(users()) == ({"mine", "act"}, {"FUS020"})
    assert decided(users(), allowed)[0] == {"mine_act"}
    assert decided(users(also_read=True), allowed) == ({"mine", "act"}, {"FUS020"})
    assert decided(users(kept=True), allowed) == ({"mine", "act"}, {"FUS020"})


def test_a_narrower_view_of_a_stored_value_is_another_place() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "i32", [8])
    t = b.buffer("t", "i32", [8])
    with b.loop("store", [8]) as k:
        k.store(t, k.vars, k.load(x, *k.vars) + 1)
    halves = b.view("halves", t, [8], element="i16")
    y = b.output("y", "i16", [8])
    with b.loop("read", [8]) as k:
        k.store(y, k.vars, k.load(halves, *k.vars))
    assert decided(b.build()) == ({"store", "read"}, {"FUS008"})


def test_the_dump_of_a_template_is_scheduled_no_worse_than_its_maker_did() -> None:
    text = Path(__file__).parents[2] / "corpus" / "inductor" / "gpu_template.txt"
    given = import_program(read_dump(str(text))).program
    program = unpacked(given)
    after = fuse(program, Ctx(Options(accounting="dump"), MACHINES, Journal()))
    for accounting in (DUMP, PEER):
        ours, theirs = figures(after, accounting), figures(given, accounting)
        assert ours.kernels <= theirs.kernels
        assert ours.bytes_moved <= theirs.bytes_moved
        assert ours.peak_bytes <= theirs.peak_bytes
