"""What one command says of a file is what the others say: `why`, `schedule` and `plan`."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from treadle.analysis.accounting import PEER
from treadle.analysis.liveness import Liveness, LivenessPolicy
from treadle.ir.build import ProgramBuilder
from treadle.ir.spec import verify
from treadle.ir.text import parse_program, show_program
from treadle.lab.cli import main
from treadle.lab.demo_program import demo_program
from treadle.lab.plan_program import reasons_for_change
from treadle.memory.plan_program import plan_program

CORPUS = Path(__file__).parents[2] / "corpus" / "inductor"
SHARED = Path(__file__).parents[3].parent / "shared"
NAMES = ("collectives.0.post.txt", "training.0.post.txt", "mutations.0.post.txt")
PAIRS = 60


def said(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main([*args, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_why_tells_of_the_schedule_that_schedule_gives(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = str(CORPUS / name), str(tmp_path / "out.txt")
    data = said(capsys, "schedule", path, "-o", out)
    program = parse_program(Path(out).read_text("utf-8"))
    kernel = {leaf.name: op.name for op in program.ops for leaf in op.leaves}
    some = list(combinations(sorted(kernel), 2))
    for a, b in some[:: max(1, len(some) // PAIRS)]:
        story = said(capsys, "why", path, a, b)
        assert story["kept_given"] == data["kept_given"]
        if not data["kept_given"]:
            assert story["fusion"]["one_kernel"] == (kernel[a] == kernel[b]), (a, b)
            assert story["fusion"]["kernels"] == [kernel[a], kernel[b]]


def test_plan_says_for_what_running_takes_more_than_its_maker_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seeds = sorted(SHARED.glob("seeds/000_*.txt"))
    if not seeds:
        pytest.skip("seed 000 is not beside the repository")
    data = said(capsys, "plan", str(seeds[0]))
    more = data["after"]["total_bytes"] - data["before"]["total_bytes"]
    assert more == 256
    assert data["more_because"] == {"what a collective reads is kept until its wait": 256}
    assert main(["plan", str(seeds[0])]) == 0
    line = "256 B more than its maker counts: what a collective reads is kept until its wait"
    assert line in capsys.readouterr().out


def test_every_reason_for_more_is_counted_apart() -> None:
    b = ProgramBuilder("waits")
    x = b.input("x", "f32", [64])
    sent, got = b.buffer("sent", "f32", [128]), b.buffer("got", "f32", [64])
    apart, out = b.buffer("apart", "f32", [8, 8], strides=[16, 1]), b.output("out", "f32", [64])
    b.extern("make", [x], [sent], name="make")
    b.collective("all_reduce", [sent], writes=[got], group="0", name="start")
    b.extern("other", [x], [apart], name="other")
    b.wait(got, name="wait")
    b.extern("end", [got, apart], [out], name="end")
    program = verify(b.build())
    before = plan_program(program, policy=PEER.policy)
    reasons = reasons_for_change(program, before, LivenessPolicy(include_inputs=False))
    assert reasons["what a collective reads is kept until its wait"] == 256
    assert reasons["gaps between strided elements take room"] == 4 * (7 * 16 + 8 - 64)
    total = before.peak.bytes + sum(reasons.values())
    assert total == Liveness(program, LivenessPolicy(include_inputs=False)).peak().bytes


@pytest.mark.parametrize("number", ["000", "003"])
def test_diff_counts_as_many_kernels_as_its_figures(
    number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = sorted((Path(__file__).resolve().parents[4] / "shared" / "seeds").glob(f"{number}_*"))
    if not found:
        pytest.skip("the seed documents are not beside this checkout")
    ours = tmp_path / "ours.txt"
    assert main(["schedule", str(found[0]), "-o", str(ours)]) == 0
    capsys.readouterr()
    assert main(["diff", str(found[0]), str(ours), "--json"]) in (0, 1)
    said = json.loads(capsys.readouterr().out)
    for which, part in (("a", "before"), ("b", "after")):
        only = said[f"kernels_only_in_{which}"]
        assert said["kernels_in_both"] + len(only) == said[part]["kernels"]


def test_refusals_say_what_their_codes_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.txt"
    path.write_text(show_program(demo_program()))
    assert main(["schedule", str(path)]) == 0
    assert "refused KER007 (how the loops of a nest are walked) 1 time\n" in capsys.readouterr().out


def seed_001() -> str:
    found = sorted((SHARED / "seeds").glob("001_*.txt"))
    if not found:
        pytest.skip("the seed documents are not beside this checkout")
    return str(found[0])


ANSWERS = {
    ("op1087", "op1092"): "one kernel: indirect_eq_where_0\nso 6.12 GiB less are moved",
    ("op886", "op946"): "must run between them (FUS010, would close a cycle)\nas one kernel they",
    ("op937", "op946"): "because op937 is a library call (FUS001, not a loop)",
    ("op1012", "op1015"): "op1015 (computed by op1012, which does the same)",
    ("op1086", "op1092"): "because they touch buf1138 at different points",
    ("op33", "op34"): "one launch: copy_2; they stay loops of their own",
}


@pytest.mark.parametrize(
    "pair",
    [p if k < 1 else pytest.param(p, marks=pytest.mark.exhaustive) for k, p in enumerate(ANSWERS)],
)
def test_why_begins_with_an_answer_that_its_rules_bear_out(
    pair: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", seed_001(), *pair]) == 0
    told = capsys.readouterr().out
    assert ANSWERS[pair] in told.partition("\n\n")[0]
    if told.startswith("one kernel"):
        assert ": no FUS" not in told, "no rule says no to what was done"


def test_why_says_that_a_name_is_a_buffers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "program.txt"
    path.write_text(show_program(demo_program()))
    assert main(["why", str(path), "scale", "norm_apply"]) == 2
    assert "'scale' is a buffer, made by norm_scale; name an operation" in capsys.readouterr().err
