"""Memory is spent where it saves as much traffic, within what the policy allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.analysis.devices import DEVICES
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Program
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
