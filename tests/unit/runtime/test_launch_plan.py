"""Launch plans: steps, lives from one engine, text and JSON, waits that are real."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from treadle.analysis.cost import cost_model
from treadle.analysis.live_table import live_table
from treadle.codegen.lower import lower
from treadle.core.context import Ctx
from treadle.core.errors import UsageError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.interp.calls import CallContext
from treadle.ir.program import Call, Program, Wait
from treadle.runtime import compile_program, recorded_parts, show_plan
from treadle.runtime import plan_launches as plan_launches_module
from treadle.runtime.device_memory import Role
from treadle.runtime.launch_plan import CallStep, LaunchStep, RecordedSteps, WaitStep
from treadle.runtime.launch_plan_json import plan_from_json, plan_to_json
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.plan_launches import plan_launches


@pytest.fixture(autouse=True, scope="module")
def compiled_code_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def products(device: str = "cpu") -> Program:
    """x -> t (a kernel), t @ x -> u (a call), u + 1 -> y (a kernel)."""
    b = ProgramBuilder("products")
    x, y = b.input("x", "f32", [4, 4], device=device), b.output("y", "f32", [4, 4], device=device)
    t, u = b.buffer("t", "f32", [4, 4], device=device), b.buffer("u", "f32", [4, 4], device=device)
    with b.loop("fill", [4, 4], device=device) as k:
        k.store(t, k.vars, k.load(x, *k.vars) * 2.0)
    b.extern("aten.mm", [t, x], [u], name="mm", device=device)
    with b.loop("add", [4, 4], device=device) as k:
        k.store(y, k.vars, k.load(u, *k.vars) + 1.0)
    return b.build()


def test_every_operation_is_one_step_that_names_its_storages() -> None:
    plan = plan_launches(LaunchShape(lower(products())))
    fill, mm, add = plan.steps
    assert isinstance(fill, LaunchStep)
    assert fill.storages == ("x", "t")
    assert isinstance(mm, CallStep)
    assert (mm.reads, mm.writes) == (("t", "x"), ("u",))
    assert isinstance(add, LaunchStep)
    rows = {name: (life.role, life.first, life.last) for name, life in plan.lives.items()}
    assert rows == {
        "x": (Role.KEPT, -1, 3),
        "t": (Role.TEMP, 0, 1),
        "u": (Role.TEMP, 1, 2),
        "y": (Role.OUTPUT, 2, 3),
    }


def test_lives_are_those_of_the_liveness_engine() -> None:
    shape = LaunchShape(lower(products()))
    table = live_table(shape.program)
    assert table is shape.table  # asked, not walked again
    assert table.ending_at(0, 1) == ["t"]
    assert table.ending_at(0, 2) == ["t", "u"]


def test_a_plan_prints_what_it_does() -> None:
    plan = plan_launches(LaunchShape(lower(products())))
    text = show_plan(plan)
    assert "cpu: stream 0, arena 64 bytes (no plan needs less than 64)" in text
    assert "call aten.mm(t, x) -> u" in text
    assert "launch k1_add(u, y)" in text
    assert "t   temporary on cpu   64 bytes   0 .. 1" in text


def test_a_plan_comes_back_from_json_as_it_was() -> None:
    plan = plan_launches(LaunchShape(lower(waited())))
    text = json.dumps(plan_to_json(plan))
    assert plan_from_json(json.loads(text)) == plan


@pytest.mark.parametrize("damage", [{"version": 0}, {"steps": [{"kind": "jump"}]}, {"memory": 7}])
def test_what_is_no_plan_is_refused_in_one_line(damage: dict[str, object]) -> None:
    data = plan_to_json(plan_launches(LaunchShape(lower(products()))))
    with pytest.raises(UsageError, match="launch plan") as error:
        plan_from_json({**data, **damage})
    assert "\n" not in error.value.message


def test_every_device_has_a_stream_and_an_arena_of_its_own() -> None:
    b = ProgramBuilder("two")
    x = b.input("x", "f32", [4], device="cuda:0")
    t, u = b.buffer("t", "f32", [4], device="cuda:0"), b.buffer("u", "f32", [4])
    y = b.output("y", "f32", [4])
    with b.loop("first", [4], device="cuda:0") as k:
        k.store(t, k.vars, k.load(x, *k.vars) + 1.0)
    b.extern("copy", [t], [u], name="copy")
    with b.loop("last", [4]) as k:
        k.store(y, k.vars, k.load(u, 3 - k.vars[0]))
    plan = plan_launches(LaunchShape(lower(b.build())))
    assert [(s.number, s.device) for s in plan.streams] == [(0, "cuda:0"), (1, "cpu")]
    assert [s.stream for s in plan.steps] == [0, 1, 1]
    assert {m.device: m.arena_bytes for m in plan.memory} == {"cuda:0": 16, "cpu": 16}
    assert plan.recordings == (RecordedSteps(0, 0),)


# ------------------------------------------------------------------------------- waits


def waited(reads_early: bool = False, in_place: bool = False) -> Program:
    """A collective, work beside it, its wait, and a reader that stands before or behind it."""
    b = ProgramBuilder("waited")
    x, y = b.input("x", "f32", [8]), b.output("y", "f32", [8])
    t, z = b.buffer("t", "f32", [8]), b.output("z", "f32", [8])
    r = t if in_place else b.buffer("r", "f32", [8])
    with b.loop("make", [8]) as k:
        k.store(t, k.vars, k.load(x, *k.vars) * 2.0)
    if in_place:
        b.collective("twice_", [t], mutates=[t], group="0", name="begin")
    else:
        b.collective("twice", [t], writes=[r], group="0", name="begin")
    with b.loop("beside", [8]) as k:
        k.store(z, k.vars, k.load(x, *k.vars) - 1.0)
    b.wait(r, name="end")
    with b.loop("read", [8]) as k:
        k.store(y, k.vars, k.load(r, *k.vars) + 1.0)
    program = b.build()
    if not reads_early:
        return program
    make, begin, beside, end, read = program.ops
    return program.with_ops((make, begin, beside, read, end))


def doubled(call: CallContext, op: Call) -> None:
    (target,) = (*op.writes, *op.mutates)
    call.write(target, call.read("t") * 2)


EXTERNS = {"twice": doubled, "twice_": doubled}


def test_a_wait_names_the_event_its_collective_records() -> None:
    plan = plan_launches(LaunchShape(lower(waited())))
    begin, end = plan.steps[1], plan.steps[3]
    assert isinstance(begin, CallStep)
    assert isinstance(end, WaitStep)
    assert begin.event == end.event == plan.events[0]
    assert end.storage == "r"
    # What a collective reads may be read until somebody waited for it.
    assert plan.lives["t"].last == 3


@pytest.mark.parametrize("in_place", [False, True])
def test_a_result_that_was_waited_for_is_there(in_place: bool) -> None:
    x = np.arange(8, dtype=np.float32)
    compiled = compile_program(waited(in_place=in_place), externs=EXTERNS, optimise=0)
    for poison in (False, True):
        result = compiled.run({"x": x}, poison=poison)
        np.testing.assert_array_equal(result["y"], 4 * x + 1)
        np.testing.assert_array_equal(result["z"], x - 1)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_result_that_is_read_before_its_wait_is_poison(in_place: bool) -> None:
    x = np.arange(8, dtype=np.float32)
    program = waited(reads_early=True, in_place=in_place)
    compiled = compile_program(program, externs=EXTERNS, optimise=0)
    result = compiled.run({"x": x}, poison=True)
    assert np.isnan(result["y"]).all()


def test_a_collective_reads_its_argument_as_late_as_its_wait() -> None:
    program = waited()
    make, begin, beside, end, read = program.ops
    assert isinstance(end, Wait)
    b = ProgramBuilder("spoil")
    t = b.buffer("t", "f32", [8])
    with b.loop("spoil", [8]) as k:
        k.store(t, k.vars, k.constant(-7.0, "f32"))
    (spoil,) = b.build().ops
    late = program.with_ops((make, begin, beside, spoil, end, read))
    x = np.arange(8, dtype=np.float32)
    result = compile_program(late, externs=EXTERNS, optimise=0).run({"x": x}, poison=True)
    np.testing.assert_array_equal(result["y"], np.full(8, -13.0, np.float32))


def rising_and_falling() -> Program:
    """Two large temporaries far apart in time, and a large output made between them."""
    b = ProgramBuilder("p")
    x, y, z = b.input("x", "f32", [64]), b.output("y", "f32", [4096]), b.output("z", "f32", [64])
    s, t = b.buffer("s", "f32", [64, 64]), b.buffer("t", "f32", [64, 64])
    v, w = b.buffer("v", "f32", [64]), b.buffer("w", "f32", [64])
    for name, source, big, sums in (("a", x, s, v), ("b", v, t, w)):
        b.extern("outer", [source, source], [big], name=f"{name}_big")
        b.extern("sums", [big], [sums], name=f"{name}_sums")
    b.extern("spread", [w], [y], name="spread")
    b.extern("copy", [v], [z], name="copy")
    return b.build()


def test_what_is_allocated_at_once_is_held_at_once() -> None:
    shape = LaunchShape(lower(rising_and_falling()))
    later = plan_launches(shape).main
    plan = plan_launches(shape, at_once=True).main
    held = sum(piece.bytes for piece in plan.pieces)
    assert set(plan.held) == {held}
    assert plan.peak_bytes == held >= later.peak_bytes
    assert not plan.alone
    assert plan.lower_bound <= held
    # The output lies idle while both are used: it takes them in, and no arena is needed for them.
    assert {plan.places[name].pool for name in ("s", "t")} == {"y"}
    assert plan_from_json(plan_to_json(plan_launches(shape, at_once=True))).main == plan


def saved_and_let_go() -> Program:
    """A backward of three products: what was saved is donated, every gradient is an output."""
    b = ProgramBuilder("backward")
    n = 256
    saved = [b.input(f"saved{k}", "f32", [n, n], donated=True) for k in range(3)]
    at = b.input("tangent", "f32", [n, n])
    for k in reversed(range(3)):
        grad = b.output(f"grad{k}", "f32", [n, n // 2])
        b.extern("product", [at, saved[k]], [grad], name=f"weight{k}")
        if k:
            before, at = at, b.buffer(f"at{k}", "f32", [n, n])
            b.extern("back", [before, saved[k]], [at], name=f"back{k}")
    return b.build()


def _ctx() -> Ctx:
    options = Options(target="h200")
    return Ctx(options, cost_model(saved_and_let_go(), options), Journal())


def test_a_recording_is_cut_where_holding_all_at_once_costs_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = LaunchShape(lower(saved_and_let_go()))
    whole = plan_launches(shape, at_once=True, ctx=_ctx())
    assert whole.main.at_once  # too short a run, too few bytes
    monkeypatch.setattr(recorded_parts, "LEAST_BYTES", 1)
    monkeypatch.setattr(plan_launches_module, "LEAST_NS", 0.0)
    plan = plan_launches(shape, at_once=True, ctx=_ctx())
    assert 2 <= len(plan.main.parts) <= recorded_parts.MOST_PARTS
    assert plan.main.parts[0][0] == 0
    assert plan.main.parts[-1][1] == shape.end - 1
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(plan.main.parts))
    assert plan.recordings == tuple([RecordedSteps(*part) for part in plan.main.parts])
    stepwise = replace(plan.main, parts=())
    assert stepwise.peak_bytes <= plan.main.peak_bytes < whole.main.peak_bytes
    for first, last in plan.main.parts:  # all that a part needs is held during each of its steps
        needed = [p.bytes for p in plan.main.pieces if p.first <= last and p.last >= first]
        assert set(plan.main.held[first : last + 1]) == {sum(needed)}
    assert plan_from_json(plan_to_json(plan)) == plan


def test_a_recording_stays_whole_where_cuts_save_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_launches_module, "LEAST_NS", 0.0)
    monkeypatch.setattr(recorded_parts, "LEAST_BYTES", 1)
    monkeypatch.setattr(recorded_parts, "LEAST_SHARE", 0.9)
    plan = plan_launches(LaunchShape(lower(saved_and_let_go())), at_once=True, ctx=_ctx())
    assert plan.main.at_once
