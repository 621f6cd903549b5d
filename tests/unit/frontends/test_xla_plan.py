"""XLA's plan as a memory problem: what may move, what keeps its place, what is handed over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from treadle.core.errors import InputError
from treadle.frontends.xla_dump import (
    XlaDump,
    alignment_of,
    parse_dump,
    read_dump,
    xla_plan,
)
from treadle.frontends.xla_dump.model import HloPosition
from treadle.frontends.xla_dump.plan import plan_dump
from treadle.frontends.xla_dump.replan import fixed_bytes, replan_problem, xla_answer
from treadle.frontends.xla_dump.sharing import Sharing
from treadle.memory.lower_bound import lower_bound
from treadle.memory.problem import ARENA
from treadle.memory.validate import violations

CORPUS = Path(__file__).parents[2] / "corpus" / "xla"
SHARED = Path(__file__).parents[3].parent / "shared"
GATHERED = [
    *sorted(SHARED.glob("seeds/002_*.txt")),
    *sorted(SHARED.glob("dumps/xla/*/*-buffer-assignment.txt")),
]
SMALL = (CORPUS / "small.2024-11-buffer-assignment.txt").read_text("utf-8")


def small() -> XlaDump:
    return parse_dump(SMALL)


def loop(with_text: bool = True) -> XlaDump:
    dump = read_dump(str(CORPUS / "loop.2024-11-buffer-assignment.txt"))
    return dump if with_text else replace(dump, module=None)


def test_lives_become_half_open_and_the_scratch_memory_the_arena() -> None:
    problem, plan = xla_plan(small())
    blocks = {block.name: block for block in problem.blocks}
    assert (blocks["mul"].lower, blocks["mul"].upper, blocks["mul"].host) == (3, 7, ARENA)
    assert (blocks["x"].lower, blocks["x"].upper, blocks["x"].host) == (0, 11, "allocation5")
    assert plan.height == 784
    assert violations(problem, plan) == ()


def test_a_value_written_over_its_operand_shares_its_place() -> None:
    groups = Sharing(small()).groups()
    assert sorted(map(str, next(iter(groups.values())))) == ["pair{0}", "sum{}"]
    assert len(groups) == 1


def test_values_that_touch_without_a_use_are_no_hand_over() -> None:
    text = SMALL.replace("  sum, operand 0\n", "")  # nothing of pair{0} reaches sum now
    dump = parse_dump(text)
    assert Sharing(dump).groups() == {}
    assert [v.code for v in violations(*xla_plan(dump))] == ["MEM001"]


@pytest.mark.parametrize("with_text", [True, False])
def test_the_state_of_a_loop_keeps_one_place(with_text: bool) -> None:
    sharing = Sharing(loop(with_text))
    numbers = [HloPosition("i0", ()), HloPosition("c_state", (0,)), HloPosition("b_state", (0,)),
               HloPosition("next_i", ()), HloPosition("loop", (0,))]  # fmt: skip
    assert len({sharing.group_of(place) for place in numbers}) == 1
    assert len(sharing.groups()) == 3


def test_alignment_is_what_all_offsets_keep() -> None:
    assert alignment_of(small()) == 256
    assert alignment_of(loop()) == 16
    assert alignment_of(parse_dump(SMALL.replace("offset=768", "offset=776"))) == 8


def test_outputs_and_donated_inputs_stay_and_host() -> None:
    problem = replan_problem(small())
    assert {pool.name: pool.size for pool in problem.pools} == {
        "allocation1": 256,
        "allocation2": 16,
        "allocation3": 4,
    }
    fixed = {block.name for block in problem.blocks if block.fixed is not None}
    assert fixed == {"b", "new_b", "out{}", "total"}
    movable = {block.name for block in problem.blocks if block.fixed is None}
    assert movable == {"mul", "pair{}", "pair{0}", "pair{1}", "sum"}


def test_parameters_constants_and_thread_local_values_are_not_asked_about() -> None:
    names = {block.name for block in replan_problem(small()).blocks}
    assert names.isdisjoint({"a", "one", "x", "y", "s"})
    fixed = fixed_bytes(small())
    assert (fixed.total, fixed.arena, fixed.temp) == (1332 - 784, 784, 0)


def test_tables_that_are_kept_live_throughout() -> None:
    problem = replan_problem(small(), keep_tables=True)
    (table,) = [block for block in problem.blocks if block.name == "pair{}"]
    assert (table.lower, table.upper, table.host) == (0, 11, ARENA)


def test_scratch_memory_of_another_colour_stays() -> None:
    other = "allocation 9: size 4, color 1, preallocated-temp:\n"
    text = SMALL.replace("\nTotal bytes used: 1332", other + "\nTotal bytes used: 1336")
    dump = parse_dump(text)
    assert (fixed_bytes(dump).temp, fixed_bytes(dump).arena) == (4, 784)


def test_what_another_colour_reuses_is_left_alone() -> None:
    dump = read_dump(str(CORPUS / "small.2026-06-buffer-assignment.txt"))
    assert "allocation1" not in {pool.name for pool in replan_problem(dump).pools}


def test_a_dump_without_live_ranges_cannot_be_planned() -> None:
    dump = parse_dump((CORPUS / "small.2024-09-buffer-assignment.txt").read_text("utf-8"))
    for ask in (xla_plan, replan_problem):
        with pytest.raises(InputError, match="expected allocations, used values and live ranges"):
            ask(dump)


def test_a_dump_that_does_not_fit_together_cannot_be_planned() -> None:
    dump = parse_dump(SMALL.replace(" value: <6 mul @0>", " value: <66 mul @0>"))
    with pytest.raises(InputError, match="<66 mul @0> is not among the used values"):
        replan_problem(dump)


@pytest.mark.parametrize("path", GATHERED, ids=lambda p: f"{p.parent.name}-{p.stem[:20]}")
def test_the_answer_of_xla_is_an_answer_to_our_problem(path: Path) -> None:
    dump = read_dump(str(path))
    for known in (dump, replace(dump, module=None)):
        problem = replan_problem(known)
        answer = xla_answer(known, problem)
        assert violations(problem, answer) == ()
        assert lower_bound(problem) <= answer.height


def test_nothing_keeps_the_seed_from_needing_no_scratch_memory() -> None:
    seeds = [path for path in GATHERED if path.name.startswith("002_")]
    if not seeds:
        pytest.skip("seed 002 is not beside the repository")
    dump = read_dump(str(seeds[0]))
    problem = replan_problem(dump)
    assert lower_bound(problem) == 0
    assert fixed_bytes(dump).total == 1_092_637_232
    assert len([b for b in problem.blocks if b.fixed is None]) == 82


def seed() -> XlaDump:
    seeds = [path for path in GATHERED if path.name.startswith("002_")]
    if not seeds:
        pytest.skip("seed 002 is not beside the repository")
    return read_dump(str(seeds[0]))


def test_the_seed_needs_no_scratch_memory_after_planning() -> None:
    result = plan_dump(seed(), steps=1000)
    assert (result.before.temp_bytes, result.before.total_bytes) == (985_504, 1_093_622_736)
    assert (result.after.temp_bytes, result.after.total_bytes) == (0, 1_092_637_232)
    assert result.after.plan_lower_bound == 1_092_637_232
    assert violations(result.problem, result.plan) == ()
    assert result.in_hosts == 82
    last = result.plan.placements["tuple{}"]
    assert (last.pool, last.offset) == ("allocation48", 0)


def test_kept_tables_take_a_slot_each() -> None:
    result = plan_dump(seed(), steps=1000)
    assert result.temp_bytes_with_tables is not None
    assert 19 * 128 < result.temp_bytes_with_tables <= 20 * 128


@pytest.mark.parametrize("path", GATHERED, ids=lambda p: f"{p.parent.name}-{p.stem[:20]}")
def test_our_plan_is_valid_and_never_worse_than_that_of_xla(path: Path) -> None:
    dump = read_dump(str(path))
    result = plan_dump(dump, steps=2000)
    assert violations(result.problem, result.plan) == ()
    assert result.after.plan_lower_bound <= result.after.total_bytes <= result.before.total_bytes
    assert result.before.total_bytes == dump.total_bytes


def test_two_branches_share_what_xla_keeps_apart() -> None:
    found = [p for p in GATHERED if "0.10.2-cond_branches" in str(p)]
    if not found:
        pytest.skip("no gathered dumps beside the repository")
    result = plan_dump(read_dump(str(found[0])), steps=2000)
    assert (result.before.temp_bytes, result.after.temp_bytes) == (1_049_048, 524_288)


def test_donated_memory_hosts_temporaries_after_its_input_died() -> None:
    result = plan_dump(small(), steps=1000)
    assert result.before.temp_bytes == 784
    # At 4 the donated input is dead and its output not born: one of three values fits in there,
    # and the table of the pair in that of the output.
    assert result.after.temp_bytes == 512
    assert result.after.total_bytes == result.after.plan_lower_bound
