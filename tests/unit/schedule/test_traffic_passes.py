"""merge-duplicates and recompute: what they take out, and what they must leave."""

from __future__ import annotations

import pytest

from treadle.analysis.certificate import border_changes, certify
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.interp.compare import differing_results
from treadle.ir.program import Loop, Program
from treadle.ir.spec import verify
from treadle.schedule.pass_card import PassFunction
from treadle.schedule.passes.drop_dead_ops import drop_dead_ops
from treadle.schedule.passes.merge_duplicates import merge_duplicates
from treadle.schedule.passes.recompute import recompute
from treadle.testing.costs import MACHINES
from treadle.testing.stand_ins import stand_ins


def after(run: PassFunction, program: Program) -> tuple[Program, list[str]]:
    """The program after a pass that was checked in every way, and the codes of its verdicts."""
    journal = Journal()
    new = run(program, Ctx(Options(), MACHINES, journal))
    verify(new)
    assert border_changes(program, new) == []
    assert certify(program, new) == []
    assert differing_results(program, new, externs=stand_ins(program)) == []
    return new, [e["code"] for e in journal.events("verdict")]


def fill(b: ProgramBuilder, name: str, value: float = 0.0, size: int = 16):  # type: ignore[no-untyped-def]
    t = b.buffer(f"{name}_out", "f32", [size])
    with b.loop(name, [size]) as k:
        k.store(t, k.vars, value)
    return t


def copy(b: ProgramBuilder, name: str, source, plus: float = 0.0, size: int = 16):  # type: ignore[no-untyped-def]
    t = b.buffer(f"{name}_out", "f32", [size])
    with b.loop(name, [size]) as k:
        v = k.load(source, *k.vars)
        k.store(t, k.vars, v + plus if plus else v)
    return t


def names(program: Program) -> list[str]:
    return [op.name for op in program.leaves]


def test_equal_results_are_computed_once() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [16])
    one, two = copy(b, "one", x, 1.0), copy(b, "two", x, 1.0)
    b.returns(copy(b, "y", one))
    b.returns(copy(b, "z", two))
    new, _ = after(merge_duplicates, b.build())
    assert names(new) == ["one", "y", "z"]
    assert "two_out" not in new.by_name


def test_results_that_differ_are_not_merged() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [16])
    b.returns(copy(b, "y", copy(b, "one", x, 1.0)))
    b.returns(copy(b, "z", copy(b, "two", x, 2.0)))
    program = b.build()
    assert after(merge_duplicates, program)[0] is program


def test_a_result_that_is_changed_later_keeps_its_own_buffer() -> None:
    b = ProgramBuilder("p")
    one, two = fill(b, "one"), fill(b, "two")
    b.extern("mylib.add_", [one], [], name="change", mutates=[one])
    b.returns(copy(b, "y", one))
    b.returns(copy(b, "z", two))
    program = b.build()
    assert after(merge_duplicates, program)[0] is program


def test_a_result_joins_one_that_is_changed_only_after_all_its_uses() -> None:
    b = ProgramBuilder("p")
    one, two = fill(b, "one"), fill(b, "two")
    b.returns(copy(b, "z", two))
    b.extern("mylib.add_", [one], [], name="change", mutates=[one])
    b.returns(copy(b, "y", one))
    new, _ = after(merge_duplicates, b.build())
    assert names(new) == ["one", "z", "change", "y"]


def test_equal_results_of_different_versions_are_not_merged() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [16])
    one = copy(b, "one", x, 1.0)
    b.extern("mylib.add_", [x], [], name="change", mutates=[x])
    two = copy(b, "two", x, 1.0)
    b.returns(copy(b, "y", one))
    b.returns(copy(b, "z", two))
    program = b.build()
    assert after(merge_duplicates, program)[0] is program


def test_two_outputs_of_equal_values_stay_two() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [16])
    b.returns(copy(b, "y", x, 1.0))
    b.returns(copy(b, "z", x, 1.0))
    program = b.build()
    assert after(merge_duplicates, program)[0] is program


def test_copies_of_a_constant_become_constants() -> None:
    b = ProgramBuilder("p")
    zero = fill(b, "zero")
    b.returns(copy(b, "y", zero, 1.0))
    b.returns(copy(b, "z", zero, 2.0))
    new, codes = after(recompute, b.build())
    assert codes == ["RCP000", "RCP000"]
    assert names(drop_dead_ops(new, Ctx(Options(), MACHINES, Journal()))) == ["y", "z"]


def test_a_small_broadcast_is_computed_again_where_it_is_read() -> None:
    b = ProgramBuilder("p")
    w = b.input("w", "f32", [4])
    wide = b.buffer("wide", "f32", [8, 4])
    with b.loop("spread", [8, 4]) as k:
        i, j = k.vars
        k.store(wide, (i, j), k.load(w, j) * 2.0)
    y = b.output("y", "f32", [4, 8])
    with b.loop("use", [4, 8]) as k:
        i, j = k.vars
        k.store(y, (i, j), k.load(wide, j, i) + 1.0)
    new, codes = after(recompute, b.build())
    assert codes == ["RCP000"]
    use = new.op_by_name["use"]
    assert isinstance(use, Loop)
    assert [name for name, _, _ in use.body.loads()] == ["w"]


def test_what_reads_as_much_as_it_makes_is_kept() -> None:
    b = ProgramBuilder("p")
    x, s = b.input("x", "bf16", [16]), b.input("s", "bf16", [])
    t = b.buffer("t", "f32", [16])
    with b.loop("sum", [16]) as k:
        k.store(t, k.vars, k.load(x, *k.vars) + k.load(s))
    b.returns(copy(b, "y", t, 1.0))
    program = b.build()
    new, codes = after(recompute, program)
    assert new is program
    assert codes == ["RCP004"]


@pytest.mark.parametrize(
    "device, heads, size, code",
    [
        ("cpu", 4, 4096, "RCP004"),
        ("cpu", 1, 4096, "RCP000"),
        ("cpu", 4, 16, "RCP000"),  # a launch takes longer than 48 sines
        ("cuda:0", 4, 4096, "RCP000"),  # they hide behind the loads
    ],
)
def test_a_costly_function_is_not_computed_for_every_head(
    device: str, heads: int, size: int, code: str
) -> None:
    b = ProgramBuilder("p", device=device)
    x, t = b.input("x", "f32", [heads, size]), b.buffer("t", "f32", [size])
    with b.loop("angles", [size]) as k:
        k.store(t, k.vars, k.sin(k.index(k.vars[0])))
    y = b.output("y", "f32", [heads, size])
    with b.loop("turn", [heads, size]) as k:
        i, j = k.vars
        k.store(y, (i, j), k.load(x, i, j) * k.load(t, j))
    program = b.build()
    new, codes = after(recompute, program)
    assert codes == [code]
    assert (new is program) == (code != "RCP000")


def test_what_is_written_through_a_view_that_nobody_reads_is_kept() -> None:
    b = ProgramBuilder("p")
    x, w = b.input("x", "f32", [16]), b.input("w", "f32", [8])
    part = b.view("part", x, [8])
    with b.loop("write", [8]) as k:
        k.store(part, k.vars, k.load(w, *k.vars))
    b.returns(copy(b, "y", x, 1.0))
    program = b.build()
    new, codes = after(recompute, program)
    assert new is program
    assert codes == []


def test_what_is_read_through_a_view_is_not_repeated() -> None:
    """Loads through a view stay loads, so there is nothing to compare."""
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [3, 4])
    t = b.buffer("t", "f32", [3, 4])
    with b.loop("short", [3, 4]) as k:
        k.store(t, k.vars, k.load(x, *k.vars) * 0.5)
    row = b.view("row", t, [4], offset=4)
    y = b.output("y", "f32", [4])
    with b.loop("read", [4]) as k:
        k.store(y, k.vars, k.load(row, *k.vars) + 1.0)
    program = b.build()
    new, codes = after(recompute, program)
    assert new is program
    assert codes == []


def test_long_work_is_not_repeated() -> None:
    b = ProgramBuilder("p")
    t = b.buffer("t", "f32", [16])
    with b.loop("long", [16]) as k:
        v = k.index(k.vars[0], "i64").to("f32")
        for _ in range(3):
            v = k.exp(k.sin(v))
        k.store(t, k.vars, v)
    b.returns(copy(b, "y", t, 1.0))
    program = b.build()
    new, codes = after(recompute, program)
    assert new is program
    assert codes == ["RCP001"]


def test_a_value_whose_source_is_changed_in_between_is_kept() -> None:
    b = ProgramBuilder("p")
    w = b.input("w", "f32", [])
    wide = b.buffer("wide", "f32", [16])
    with b.loop("spread", [16]) as k:
        k.store(wide, k.vars, k.load(w))
    b.extern("mylib.add_", [w], [], name="change", mutates=[w])
    b.returns(copy(b, "y", wide, 1.0))
    program = b.build()
    new, codes = after(recompute, program)
    assert new is program
    assert codes == ["RCP002"]


def test_what_the_caller_put_into_an_input_still_shows_where_nothing_was_written() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [4])
    with b.loop("write", [2]) as k:
        k.store(x, k.vars, 0.0)
    r = b.output("r", "f32", [4])
    with b.loop("read", [4]) as k:
        k.store(r, k.vars, k.load(x, *k.vars))
    program = b.build()
    new, codes = after(recompute, program)
    assert new is program
    assert codes == ["RCP002"]
