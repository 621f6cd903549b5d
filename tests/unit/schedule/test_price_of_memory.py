"""Memory is spent where it saves as much traffic, within what the policy allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.analysis.devices import DEVICES
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.core.verdict import yes
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
from treadle.page.verdicts import traded_in
from treadle.schedule.board import Board
from treadle.schedule.policy import POLICIES
from treadle.schedule.profit import worth_in_memory
from treadle.testing.costs import MACHINES


def program() -> Program:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [250]), b.output("y", "f32", [250])
    with b.loop("double", [250]) as k:
        k.store(y, k.vars, k.load(x, *k.vars) * 2.0)
    return b.build()


def board(policy: str, given: int | None) -> Board:
    ctx = replace(Ctx(Options(), MACHINES, Journal()), peak_bytes=given)
    return Board(program(), ctx, POLICIES[policy])


def test_what_costs_no_memory_comes_first_and_then_as_much_is_paid_as_is_saved() -> None:
    table = board("balanced", given=10_000)
    assert table.peak == 2000
    assert table.limit() == table.limit(5000) == 2000, "nothing is paid before the rest is done"
    table.pays = True
    assert table.limit() == 2000
    assert table.limit(5000) == 7000
    assert table.limit(10**9) == 10_200, "never over the given peak + 2 %"


def test_a_lower_given_peak_allows_two_percent_of_what_is_there() -> None:
    table = board("balanced", given=None)
    table.pays = True
    assert table.limit(10**9) == 2040


@pytest.mark.parametrize("policy, limit", [("memory", 2000), ("fast", 12_500), ("inductor", None)])
def test_other_policies_have_other_prices(policy: str, limit: int | None) -> None:
    table = board(policy, given=10_000)
    table.pays = True
    assert table.limit(10**9) == limit


def test_traffic_in_the_cache_is_worth_a_quarter_and_a_launch_what_could_be_moved() -> None:
    cpu = DEVICES["cpu"]
    launch = cpu.launch_ns * cpu.gigabytes_per_second
    assert worth_in_memory(0, cpu) == launch
    assert worth_in_memory(4000, cpu) == 1000 + launch
    large = cpu.cache_bytes
    assert worth_in_memory(large, cpu) == large + launch


def limited(policy: str, given: int | None, limit: int) -> Board:
    ctx = Ctx(Options(memory_limit=limit), MACHINES, Journal(), peak_bytes=given)
    table = Board(program(), ctx, POLICIES[policy])
    table.pays = True
    return table


@pytest.mark.parametrize("policy", ["balanced", "fast"])
def test_the_users_limit_is_the_ceiling_instead(policy: str) -> None:
    assert limited(policy, 10_000, 50_000).limit(10**9) == 50_000, "more than the given peak"
    assert limited(policy, 10_000, 5000).limit(10**9) == 5000, "less than the given peak"
    assert limited(policy, 10_000, 100).limit(10**9) == 2000, "nothing is spent below what there is"


def test_what_is_spent_below_the_users_limit_must_still_be_worth_it() -> None:
    assert limited("balanced", 10_000, 50_000).limit(3000) == 5000


@pytest.mark.parametrize("policy, limit", [("memory", 2000), ("inductor", None)])
def test_policies_without_a_price_know_no_limit(policy: str, limit: int | None) -> None:
    assert limited(policy, 10_000, 50_000).limit(10**9) == limit


def test_what_was_traded_is_told() -> None:
    journal = Journal(level=5)
    journal.verdict("fuse", ("a", "b"), yes("FUS000", peak=9, paid=4, bytes=100))
    journal.verdict("fuse", ("b", "c"), yes("FUS000", peak=9, bytes=7))
    journal.verdict("fuse", ("c", "d"), yes("FUS000", peak=12, paid=3, bytes=50))
    assert traded_in(journal) == {"fusions": 2, "peak_bytes": 7, "saved_bytes": 150}
