"""The peer's rules at their thresholds, and how often its groups come out."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from treadle import schedule
from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.frontends.inductor_dump import import_program, read_dump, unpacked
from treadle.ir.build import ProgramBuilder
from treadle.ir.program import Foreach, Program
from treadle.schedule.passes.fuse import fuse
from treadle.schedule.passes.lower_peak import lower_peak
from treadle.schedule.passes.mix_orders import mix_orders
from treadle.schedule.policy import Policy

SHARED = Path(__file__).parents[3].parent / "shared"
BEFORE = sorted(SHARED.glob("dumps/inductor/*/ir_pre_fusion.txt"))


def by_the_peer(program: Program) -> tuple[Program, list[str]]:
    options = Options(policy="inductor", accounting="dump")
    ctx = Ctx(options, cost_model(program, options), Journal())
    new = mix_orders(fuse(program, ctx), ctx)
    return new, [e["code"] for e in ctx.journal.events("verdict") if not e["ok"]]


def apart(distance: int, elements: int) -> Program:
    """Two readers of x with `distance` operations between their places."""
    b = ProgramBuilder("p", "cuda:0")
    x = b.input("x", "f32", [elements])

    def use(name: str) -> None:
        y = b.output(f"{name}_out", "f32", [elements])
        with b.loop(name, [elements]) as k:
            k.store(y, k.vars, k.load(x, *k.vars) + float(len(name)))

    use("first")
    for n in range(distance - 1):
        w, y = b.input(f"w{n}", "f32", [4]), b.output(f"v{n}", "f32", [4])
        b.extern("aten.clone", [w], [y], name=f"call{n}")
    use("second_one")
    return b.build()


@pytest.mark.parametrize("distance, fused", [(64, True), (65, False)])
def test_independent_kernels_are_joined_up_to_64_operations_apart(
    distance: int, fused: bool
) -> None:
    new, codes = by_the_peer(apart(distance, 16))
    assert any(len(op.leaves) == 2 for op in new.ops) is fused
    assert ("PEER002" in codes) is not fused


@pytest.mark.parametrize("elements, fused", [(3, True), (2, False)])
def test_independent_kernels_need_ten_bytes_in_common(elements: int, fused: bool) -> None:
    new, codes = by_the_peer(apart(1, elements))
    assert any(len(op.leaves) == 2 for op in new.ops) is fused
    assert ("PEER001" in codes) is not fused


def test_every_switch_of_a_policy_is_looked_at() -> None:
    """A field that no pass reads would promise what nothing keeps."""
    folder = Path(schedule.__path__[0])
    text = "".join(p.read_text() for p in sorted(folder.rglob("*.py")) if p.name != "policy.py")
    names = {f.name for f in fields(Policy)} - {"name", "doc"}
    assert {n for n in names if not re.search(rf"policy(?:_named\(.*\))?\.{n}\b", text)} == set()


def test_the_peers_policy_leaves_the_order_before_fusion_alone() -> None:
    b = ProgramBuilder("p")
    x = b.input("x", "f32", [4])
    made = []
    for name in ("one", "two"):
        big = b.buffer(f"big_{name}", "f32", [64])
        b.extern("mylib.make", [x], [big], name=f"make_{name}")
        made.append(big)
    for name, big in zip(("one", "two"), made, strict=True):
        b.extern("mylib.use", [big], [b.output(f"y_{name}", "f32", [4])], name=f"use_{name}")
    program = b.build()
    for policy, changes in (("balanced", True), ("inductor", False)):
        options = Options(policy=policy)
        ctx = Ctx(options, cost_model(program, options), Journal())
        assert (lower_peak(program, ctx) is not program) is changes


@pytest.mark.skipif(not BEFORE, reason="the gathered dumps are not beside the repository")
def test_nearly_all_groups_of_the_peer_come_out() -> None:
    """All but the two of layernorm_train-0, where the peer mixes orders before it fuses."""
    same = total = 0
    for path in BEFORE:
        mine, _ = by_the_peer(unpacked(import_program(read_dump(str(path))).program))
        theirs = import_program(read_dump(str(path.with_name("ir_post_fusion.txt")))).program
        groups = [_groups(p) for p in (mine, theirs)]
        total += len(groups[1])
        same += len(groups[0] & groups[1])
    assert (same, total) == (100, 102)


def _groups(program: Program) -> set[frozenset[str]]:
    ops = [m for op in program.ops for m in (op.members if isinstance(op, Foreach) else (op,))]
    found = {frozenset(leaf.name for leaf in op.leaves) for op in ops}
    return {g for g in found if len(g) > 1}
