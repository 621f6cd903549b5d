"""Ordering by model and bucketing on random programs: no bit changes, the budget holds.

The interpreter runs every program before and after (check level 3); there, what a collective
delivers is not there before its wait.
"""

from __future__ import annotations

from collections import Counter

from eventful_programs import eventful_programs
from how_many import examples, until
from hypothesis import given, settings

from treadle.analysis.accounting import ACCOUNTINGS
from treadle.analysis.comm.machine import machine_of
from treadle.analysis.comm.simulate import simulate
from treadle.analysis.cost import Roofline
from treadle.analysis.liveness import Liveness
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.ir.spec import Stage
from treadle.schedule.overlap.bucketing import with_buckets
from treadle.schedule.overlap.by_model import budget_of
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import PASSES
from treadle.schedule.pipeline import run_pipeline

ORDER = PASSES["order-collectives"]
BUCKET = Pass("bucket-collectives", with_buckets, Stage.GROUPED, moves_collectives=True)


def peak(program: Program) -> int:
    return Liveness(program, ACCOUNTINGS["ours"].policy).peak().bytes


def test_orders_by_model_change_no_bit_and_keep_the_budget() -> None:
    fired: Counter[str] = Counter()

    @settings(max_examples=examples(60))
    @given(eventful_programs())
    def every_program(program: Program) -> None:
        options = Options(check=3, comm="model", hardware="h100-8")
        ctx = Ctx(options, Roofline(program), Journal(level=0))
        after = run_pipeline(program, ctx, (ORDER,))
        fired[str(after is not program)] += 1
        assert peak(after) <= max(peak(program), budget_of(program, ctx))
        machine = machine_of(program, options)
        times = [simulate(machine.tasks(p)).makespan_us for p in (program, after)]
        assert times[1] <= times[0] * (1 + 1e-9)

    assert until(lambda: fired["True"], every_program), fired


def test_buckets_change_no_bit() -> None:
    fired: Counter[str] = Counter()

    @settings(max_examples=examples(60))
    @given(eventful_programs())
    def every_program(program: Program) -> None:
        ctx = Ctx(Options(check=3, hardware="h100-8"), Roofline(program), Journal(level=0))
        after = run_pipeline(program, ctx, (BUCKET,))
        fired[str(after is not program)] += 1

    assert until(lambda: fired["True"], every_program), fired
