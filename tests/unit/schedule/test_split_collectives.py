"""Large messages in parts: where it pays, where it may not be, what the certificate says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.analysis.certificate import certify
from treadle.analysis.comm.machine import machine_of
from treadle.analysis.comm.simulate import simulate
from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Collective, Program, Wait
from treadle.schedule.overlap.splitting import Splittable, choose_parts, splittable, with_parts
from treadle.schedule.passes import PASSES, message_passes
from treadle.schedule.pipeline import run_pipeline

SIZE, KERNELS = 1 << 22, 4


def gathered(count: int = 4, target: str = "all_gather_into_tensor_coalesced") -> Program:
    """Several weights gathered by one call, each used by kernels of its own."""
    b = ProgramBuilder("p", device="cuda:0")
    shards = [b.input(f"x{k}", "f32", [SIZE // 8]) for k in range(count)]
    wholes = [b.buffer(f"whole{k}", "f32", [SIZE]) for k in range(count)]
    b.collective(
        f"_c10d_functional.{target}.default", [tuple(shards), 8, "g"], writes=wholes,
        group="g", ranks=tuple(range(8)), name="gather",
    )  # fmt: skip
    used = []
    for k, whole in enumerate(wholes):
        b.wait(whole, name=f"wait{k}")
        value = whole
        for step in range(KERNELS):
            made = b.buffer(f"used{k}_{step}", "f32", [SIZE])
            with b.loop(f"use{k}_{step}", [SIZE]) as body:
                body.store(made, body.vars, body.load(value, *body.vars))
            value = made
        used.append(value)
    b.returns(*used)
    return b.build()


def options(**rest: object) -> Options:
    return Options.make(comm="model", hardware="h100-8", world=8, split=True, check=2, **rest)


def test_each_part_is_used_while_the_next_is_under_way() -> None:
    program, journal = gathered(), Journal(level=4)
    ctx = Ctx(options(), Roofline(program), journal)
    after = run_pipeline(program, ctx, message_passes(ctx.options))
    parts = [op for op in after.ops if isinstance(op, Collective)]
    assert len(parts) > 1
    assert {p.part_of for p in parts} == {"gather"}
    (verdict,) = journal.events("verdict")
    assert (verdict["code"], verdict["facts"]["into"]) == ("COL011", [p.name for p in parts])
    order = (PASSES["order-collectives"],)
    ordered = [run_pipeline(p, ctx, order) for p in (program, after)]
    machine = machine_of(program, ctx.options)
    whole, split = (simulate(machine.tasks(p)).makespan_us for p in ordered)
    assert split < whole


def test_parts_stay_under_their_size_and_tensors_stay_whole() -> None:
    one = Splittable(0, (10, 10, 30, 5, 5), in_list=True)
    assert one.parts(20) == [range(2), range(2, 3), range(3, 5)]
    assert one.parts(100) == [range(5)]
    assert one.parts(1) == [range(k, k + 1) for k in range(5)]


def test_what_cannot_be_split_says_why() -> None:
    program = gathered()
    sent = program.ops[0]
    assert isinstance(sent, Collective)

    def why(op: Collective) -> object:
        return splittable(program.with_ops((op, *program.ops[1:])), 0)

    assert isinstance(why(sent), Splittable)
    assert "one tensor" in str(why(replace(sent, target="_c10d_functional.all_reduce.default")))
    one_result = replace(sent, writes=sent.writes[:1])
    assert "a result of its own" in str(splittable(_alone(program, one_result), 0))
    bound = replace(sent, args=sent.args[0], attrs=(("call", sent.args[2]),))
    assert "no tensors" in str(why(bound))


def _alone(program: Program, op: Collective) -> Program:
    kept = [o for o in program.ops[1:] if o.name.startswith(("wait0", "use0"))]
    return replace(program, ops=(op, *kept), outputs=program.outputs[:1])


def test_what_is_not_done_sooner_stays_whole() -> None:
    program, journal = gathered(1), Journal(level=4)
    ctx = Ctx(options(), Roofline(program), journal)
    assert choose_parts(program, ctx) is program
    assert [e["code"] for e in journal.events("verdict")] == ["COL012"]
    assert message_passes(Options()) == ()


@pytest.mark.parametrize("wrong", ["late", "lost"])
def test_the_certificate_sees_a_part_that_is_late_or_lost(wrong: str) -> None:
    program = gathered(2)
    one = splittable(program, 0)
    assert isinstance(one, Splittable)
    made = with_parts(program, [one], 1)
    assert certify(program, made) == []
    first, second, *rest = made.ops
    # Only what the second part delivers must come behind it.
    fine = made.with_ops((first, *rest[: 1 + KERNELS], second, *rest[1 + KERNELS :]))
    assert certify(program, fine) == []
    if wrong == "late":
        waits = [op for op in rest if isinstance(op, Wait)]
        bad = made.with_ops((waits[1], first, second, *[op for op in rest if op is not waits[1]]))
        codes = {"CERT001"}
    else:
        bad = made.with_ops((first, *rest))
        codes = {"CERT002"}
    assert {v.code for v in certify(program, bad)} == codes
