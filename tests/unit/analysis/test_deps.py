"""Dependences: which there are, which there are not, and why."""

from __future__ import annotations

import pytest

from treadle.analysis.access import accesses
from treadle.analysis.deps import DepKind, dependences
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Fused, Program
from treadle.ir.spec import verify


class Cases:
    """A small vocabulary for straight-line programs over f32[16] buffers."""

    def __init__(self) -> None:
        self.b = ProgramBuilder("p")
        self.x = self.b.input("x", "f32", [16])
        self.y = self.b.output("y", "f32", [16])
        self.t = self.b.buffer("t", "f32", [16])

    def copy(self, name: str, target, source, low: int = 0, count: int = 16, step: int = 1) -> None:
        with self.b.loop(name, [count]) as k:
            (i,) = k.vars
            k.store_at(target, step * i + low, k.load_at(source, i))

    def done(self) -> Program:
        return verify(self.b.build())


def shown(program: Program) -> list[str]:
    deps = dependences(program)
    return [
        f"{d.kind.name} {deps.names[d.source]}->{deps.names[d.target]} "
        f"{'data' if d.carries else 'order'}"
        for d in deps.deps
    ]


def test_a_reader_follows_its_writer() -> None:
    c = Cases()
    c.copy("a", c.t, c.x)
    c.copy("b", c.y, c.t)
    assert shown(c.done()) == ["RAW a->b data"]


def test_an_overwriter_follows_readers_and_writers() -> None:
    c = Cases()
    c.copy("a", c.t, c.x)
    c.copy("b", c.y, c.t)
    c.copy("c", c.t, c.x)
    assert shown(c.done()) == ["RAW a->b data", "WAW a->c order", "WAR b->c order"]


def test_a_covering_write_hides_what_came_before() -> None:
    c = Cases()
    c.copy("a", c.t, c.x)
    c.copy("b", c.t, c.x)
    c.copy("c", c.y, c.t)
    assert shown(c.done()) == ["WAW a->b order", "RAW b->c data"]


def test_a_partial_write_lets_the_older_value_show() -> None:
    c = Cases()
    c.copy("a", c.y, c.x)
    c.copy("b", c.y, c.x, count=8)
    assert shown(c.done()) == ["WAW a->b data"]


def test_halves_of_one_buffer_should_not_depend_on_each_other() -> None:
    c = Cases()
    c.copy("low", c.y, c.x, count=8)
    c.copy("high", c.y, c.x, low=8, count=8)
    assert shown(c.done()) == []


def test_even_and_odd_elements_should_not_depend_on_each_other() -> None:
    c = Cases()
    c.copy("even", c.y, c.x, count=8, step=2)
    c.copy("odd", c.y, c.x, low=1, count=8, step=2)
    assert shown(c.done()) == []


def test_a_reader_of_all_follows_both_halves() -> None:
    c = Cases()
    c.copy("low", c.t, c.x, count=8)
    c.copy("high", c.t, c.x, low=8, count=8)
    c.copy("all", c.y, c.t)
    assert shown(c.done()) == ["RAW low->all data", "RAW high->all data"]


def test_columns_of_a_matrix_should_not_depend_on_each_other() -> None:
    b = ProgramBuilder("cat")
    x = b.input("x", "f32", [4, 8])
    y = b.output("y", "f32", [4, 16])
    for name, low in (("left", 0), ("right", 8)):
        with b.loop(name, [4, 8]) as k:
            i, j = k.vars
            k.store(y, (i, j + low), k.load(x, i, j))
    assert shown(verify(b.build())) == []


def test_a_mutation_carries_the_older_value_and_makes_a_version() -> None:
    c = Cases()
    with c.b.loop("twice", [16]) as k:
        k.store(c.x, k.vars, k.load(c.x, *k.vars) * 2.0)
    c.copy("b", c.y, c.x)
    program = c.done()
    assert shown(program) == ["RAW twice->b data"]
    deps = dependences(program)
    assert deps.versioned("twice", "x") == "x@0"
    assert deps.versioned("b", "x") == "x@1"
    assert deps.users["x"] == (0, 1)
    assert deps.last_use("x") == 1
    assert deps.last_use("unknown") is None


def test_an_atomic_store_depends_on_what_it_adds_to() -> None:
    c = Cases()
    c.copy("a", c.y, c.x)
    with c.b.loop("add", [16]) as k:
        k.store(c.y, k.vars, k.load(c.x, *k.vars), mode="atomic_add")
    assert shown(c.done()) == ["RAW a->add data", "WAW a->add data"]


def test_a_scatter_may_meet_everything() -> None:
    c = Cases()
    at = c.b.input("at", "i64", [4])
    c.copy("a", c.y, c.x, count=8)
    with c.b.loop("scatter", [4]) as k:
        (i,) = k.vars
        where = k.indirect(k.load(at, i), 16)
        k.store(c.y, (where,), 1.0)
    c.copy("b", c.y, c.x, low=12, count=4)
    assert shown(c.done()) == ["WAW a->scatter data", "WAW scatter->b data"]


def test_views_share_the_dependences_of_their_storage() -> None:
    c = Cases()
    head = c.b.view("head", c.t, [8])
    tail = c.b.view("tail", c.t, [8], offset=8)
    c.copy("a", c.t, c.x)
    with c.b.loop("write_head", [8]) as k:
        k.store(head, k.vars, 0.0)
    with c.b.loop("read_tail", [8]) as k:
        k.store(c.y, k.vars, k.load(tail, *k.vars))
    assert shown(c.done()) == ["WAW a->write_head data", "RAW a->read_tail data"]


def test_calls_touch_whole_buffers() -> None:
    c = Cases()
    c.copy("a", c.t, c.x, count=8)
    c.b.extern("f", [c.t], [c.y], name="call")
    program = c.done()
    (d,) = dependences(program).deps
    assert d.whole
    assert d.kind is DepKind.RAW


@pytest.mark.parametrize("place", [-3, 16])
def test_a_read_that_its_mask_never_lets_through_still_needs_the_buffer(place: int) -> None:
    c = Cases()
    c.copy("a", c.t, c.x, count=8)
    with c.b.loop("b", [4]) as k:
        mask = k.op("lt", k.index(k.vars[0]), k.index(0))
        value = k.masked(mask, 0.0, lambda: k.load_at(c.t, k.vars[0] + place))
        k.store_at(c.y, k.vars[0], value)
    assert "RAW a->b data" in shown(c.done())


def test_an_allocation_orders_but_carries_nothing() -> None:
    c = Cases()
    c.b.nop(c.t, name="empty")
    c.copy("a", c.t, c.x, count=8)
    c.b.user_kernel("k", [c.t, c.x], mutates=[c.t], name="kernel")
    c.copy("b", c.y, c.t)
    assert "WAW empty->a order" in shown(c.done())


def test_control_orders_without_carrying() -> None:
    c = Cases()
    c.copy("a", c.t, c.x)
    with c.b.loop("b", [16], after=["a"]) as k:
        k.store(c.y, k.vars, k.load(c.x, *k.vars))
    program = c.done()
    assert shown(program) == ["CONTROL a->b order"]
    deps = dependences(program)
    assert deps.explain(deps.deps[0]) == "b after a: told to follow it"


def test_collectives_of_one_group_keep_their_order() -> None:
    c = Cases()
    for name, group in (("p", "tp"), ("q", "dp"), ("r", "tp")):
        target = c.b.buffer(f"out_{name}", "f32", [16])
        c.b.collective("all_reduce", [c.x], writes=[target], group=group, name=name)
        c.b.wait(target, name=f"wait_{name}")
    c.copy("end", c.y, c.x)
    assert [s for s in shown(c.done()) if s.startswith("CONTROL")] == ["CONTROL p->r order"]


def test_side_effects_keep_their_order() -> None:
    c = Cases()
    for name in ("one", "two"):
        c.b.extern("print", [c.x], [], name=name, has_side_effects=True)
    c.copy("end", c.y, c.x)
    assert shown(c.done()) == ["CONTROL one->two order"]


def test_order_of_a_group_reaches_its_members() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [4])
    y, z = b.output("y", "f32", [4]), b.output("z", "f32", [4])
    with b.group(Fused, "pair"):
        for name, target in (("one", y), ("two", z)):
            with b.loop(name, [4]) as k:
                k.store(target, k.vars, k.load(x, *k.vars))
    w = b.output("w", "f32", [4])
    with b.loop("later", [4], after=["pair"]) as k:
        k.store(w, k.vars, 0.0)
    assert shown(verify(b.build())) == ["CONTROL one->later order", "CONTROL two->later order"]


def test_between_finds_both_directions_and_reasons_name_the_buffer() -> None:
    c = Cases()
    c.copy("a", c.t, c.x)
    c.copy("b", c.y, c.t)
    deps = dependences(c.done())
    assert deps.between("a", "b") == deps.between("b", "a")
    assert deps.explain(deps.between("a", "b")[0]) == "b after a: reads t, version 1, written there"
    assert deps.edges == [(0, 1)]


def test_the_answer_is_computed_once_per_program() -> None:
    c = Cases()
    c.copy("b", c.y, c.x)
    program = c.done()
    assert dependences(program) is dependences(program)


@pytest.mark.parametrize("partial", [True, False])
def test_access_knows_whether_it_covers_its_storage(partial: bool) -> None:
    c = Cases()
    c.copy("a", c.y, c.x, count=8 if partial else 16)
    program = verify(c.b.build())
    write = next(a for a in accesses(program)["a"] if a.is_write)
    assert write.covers_storage is not partial
    assert write.reach == (0, 7 if partial else 15)


def test_transposed_writes_cover_too() -> None:
    b = ProgramBuilder("t")
    x = b.input("x", "f32", [4, 8])
    y = b.output("y", "f32", [8, 4])
    with b.loop("t", [4, 8]) as k:
        i, j = k.vars
        k.store(y, (j, i), k.load(x, i, j))
    write = next(a for a in accesses(verify(b.build()))["t"] if a.is_write)
    assert write.covers_storage


def test_run_time_sizes_are_handled() -> None:
    b = ProgramBuilder("dyn")
    n = b.size("n", 1, 64, hint=8)
    x = b.input("x", "f32", [n, 4])
    y = b.output("y", "f32", [n, 4])
    for name in ("one", "two"):
        with b.loop(name, [n, 4]) as k:
            i, j = k.vars
            k.store(y, (i, j), k.load(x, i, j))
    program = verify(b.build())
    write = next(a for a in accesses(program)["one"] if a.is_write)
    assert write.covers_storage
    assert shown(program) == ["WAW one->two order"]


def test_a_writer_with_many_readers_before_it_follows_each_once() -> None:
    c = Cases()
    for k in range(40):
        target = c.b.output(f"o{k}", "f32", [16])
        with c.b.loop(f"r{k}", [16]) as body:
            (i,) = body.vars
            body.store(target, (i,), body.load(c.x, i) + body.load(c.x, 15 - i))
    with c.b.loop("w", [16]) as body:
        body.store(c.x, body.vars, 0.0)
    c.copy("end", c.y, c.x)
    deps = dependences(c.done())
    into = deps.into[deps.position["w"]]
    assert [deps.names[d.source] for d in into] == [f"r{k}" for k in range(40)]
    assert {d.kind for d in into} == {DepKind.WAR}
