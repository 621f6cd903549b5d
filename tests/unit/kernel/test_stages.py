from __future__ import annotations

from treadle.ir.build import BodyBuilder, ProgramBuilder
from treadle.ir.types import Buffer
from treadle.kernel.stages import Nests, plan_nests


def body() -> tuple[BodyBuilder, list[Buffer]]:
    b = ProgramBuilder("nests")
    buffers = [b.buffer(n, "f32", s) for n, s in (("x", [4, 8]), ("y", [4, 8]), ("t", [4]))]
    return BodyBuilder(b.buffers, [4], [8]), buffers


def plan(k: BodyBuilder) -> Nests:
    return plan_nests(k.build(), lambda name: name)


def times(nests: Nests, op: str) -> list[int]:
    return [s.time for s in nests.steps if s.op == op]


def test_a_reduction_that_needs_another_one_takes_the_next_pass() -> None:
    k, (x, y, t) = body()
    v = k.load(x, *k.vars)
    total = k.sum(v - k.max(v))
    k.store(t, k.vars[0], total)
    k.store(y, k.vars, v - total)
    nests = plan(k)
    assert times(nests, "reduce") == [1, 3]
    assert times(nests, "store") == [4, 5]
    assert sorted(nests.passes) == [1, 3, 5]


def test_independent_reductions_share_a_pass() -> None:
    k, (x, _, t) = body()
    v = k.load(x, *k.vars)
    k.store(t, k.vars[0], k.sum(v) + k.max(v))
    assert sorted(plan(k).passes) == [1]


def test_what_varies_is_computed_again_in_every_pass_that_needs_it() -> None:
    k, (x, y, _) = body()
    v = k.load(x, *k.vars)
    k.store(y, k.vars, v - k.sum(v))
    nests = plan(k)
    assert [[s.op for s in p.needed].count("load") for p in nests.passes.values()] == [1, 1]
    assert not any(s.kept for s in nests.steps)


def test_what_is_overwritten_before_its_last_use_is_kept() -> None:
    k, (x, _, t) = body()
    v = k.load(x, *k.vars)
    total = k.sum(v)
    k.store(x, k.vars, v - total)
    k.store(t, k.vars[0], k.sum(k.exp(v - k.sum(v - total))))
    kept = [s.op for s in plan(k).steps if s.kept]
    assert kept == ["load"]


def test_what_is_costly_is_kept_for_values_that_only_the_later_pass_makes() -> None:
    """The doubled exponential needs no sum, but nobody asks for it before the second pass."""
    k, (x, y, _) = body()
    v = k.load(x, *k.vars)
    e = k.exp(v)
    doubled = e + e
    k.store(y, k.vars, doubled - k.sum(e * v))
    nests = plan_nests(k.build(), lambda name: name, in_any_order=True)
    assert [s.op for s in nests.steps if s.kept] == ["exp"]


def test_what_is_overwritten_in_its_last_pass_is_not_kept() -> None:
    k, (x, _, _) = body()
    v = k.load(x, *k.vars)
    k.store(x, k.vars, v - k.sum(v))
    assert not any(s.kept for s in plan(k).steps)


def test_a_store_never_runs_before_what_stands_above_it() -> None:
    k, (x, y, _) = body()
    v = k.load(x, *k.vars)
    k.sum(v - k.max(v))
    k.store(y, k.vars, v)
    nests = plan(k)
    assert times(nests, "store") == [3]


def test_a_reduction_over_deviations_goes_over_the_row_twice() -> None:
    k, (x, _, t) = body()
    mean, m2, _ = k.welford(k.load(x, *k.vars))
    k.store(t, k.vars[0], mean + m2)
    nests = plan(k)
    assert sorted(nests.passes) == [1, 3]
    assert times(nests, "store") == [4]


def test_a_sorted_row_is_read_in_the_pass_after_it_was_filled() -> None:
    k, (x, y, _) = body()
    k.store(y, k.vars, k.sort(k.load(x, *k.vars)))
    nests = plan(k)
    assert times(nests, "sort") == [1]
    assert times(nests, "store") == [3]


def test_a_store_that_varies_along_some_loops_walks_only_those() -> None:
    b = ProgramBuilder("partial")
    x, y = b.buffer("x", "f32", [8]), b.buffer("y", "f32", [8])
    k = BodyBuilder(b.buffers, [], [8, 3])
    v = k.load(x, k.vars[0])
    k.sum(v)
    k.store(y, k.vars[0], v, "atomic_add")
    nests = plan(k)
    (time,) = times(nests, "store")
    assert nests.passes[time].loops == {k.vars[0]}


def test_statements_nobody_needs_are_left_out() -> None:
    k, (x, _, t) = body()
    k.exp(k.load(t, k.vars[0]))
    k.store(t, k.vars[0], k.sum(k.load(x, *k.vars)))
    nests = plan(k)
    assert [s.op for found in nests.singles.values() for s in found] == ["store"]
