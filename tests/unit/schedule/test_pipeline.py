"""The pass runner: checks, failures, reproducers, dumps, the certificate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.analysis.certificate import certify
from treadle.analysis.cost import Roofline
from treadle.core.context import Ctx, journal_for
from treadle.core.errors import InputError, SpecError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.numerics import EXACT, TORCH, Numerics
from treadle.ir.program import Loop, Program
from treadle.ir.spec import Stage
from treadle.ir.text import parse_program, show_program
from treadle.ir.types import Buffer, BufferKind, DType, Layout
from treadle.lab.demo_program import demo_program
from treadle.schedule.failure import PipelineError
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import KERNELS, PASSES, PIPELINE, SCHEDULING
from treadle.schedule.pipeline import check, run_pipeline
from treadle.schedule.reproducer import read_reproducer, write_reproducer
from treadle.testing.costs import MACHINES


def context(tmp_path: Path, **options: object) -> Ctx:
    made = Options.make(**{"dump": str(tmp_path), **options})
    return Ctx(made, Roofline(demo_program()), Journal())


def drop_first(program: Program, ctx: Ctx) -> Program:
    """Remove the first operation, needed or not."""
    return program.with_ops(program.ops[1:])


def swap_last(program: Program, ctx: Ctx) -> Program:
    """Swap the last two operations."""
    return program.with_ops((*program.ops[:-2], program.ops[-1], program.ops[-2]))


def explode(program: Program, ctx: Ctx) -> Program:
    """Raise."""
    raise ZeroDivisionError("oh")


def double(program: Program, ctx: Ctx) -> Program:
    """Change what the last operation stores."""
    op = program.ops[-1]
    assert isinstance(op, Loop)
    stmts = list(op.body.stmts)
    at = next(k for k, s in enumerate(stmts) if s.op == "sub")
    stmts[at] = stmts[at]._replace(op="add")
    body = replace(op.body, stmts=tuple(stmts))
    return program.with_ops((*program.ops[:-1], replace(op, body=body)))


def step(function: object, stage: Stage = Stage.GROUPED) -> Pass:
    return Pass(function.__name__.replace("_", "-"), function, stage)


def test_all_passes_run_and_are_journaled(tmp_path: Path) -> None:
    ctx = context(tmp_path, check=3)
    result = run_pipeline(demo_program(), ctx)
    events = list(ctx.journal.events("pass"))
    assert [e["name"] for e in events] == [p.name for p in SCHEDULING if p.only_after is None]
    changed = {e["name"] for e in events if e["changed"]}
    assert changed == {"fuse", "name-kernels"}
    assert len(result.ops) == 1
    again = context(tmp_path / "again")
    assert run_pipeline(result, again) is result
    built = run_pipeline(result, ctx, KERNELS)
    changed = {e["name"] for e in ctx.journal.events("pass") if e["changed"]}
    assert changed == {"fuse", "name-kernels", "build-kernels", "state-parameters"}
    assert run_pipeline(built, again, PIPELINE) is built


def test_changed_programs_are_dumped_unchanged_ones_are_not(tmp_path: Path) -> None:
    run_pipeline(demo_program(), context(tmp_path))
    written = sorted(f.name for f in tmp_path.iterdir())
    numbers = {p.name: k for k, p in enumerate(PIPELINE, 1)}
    changed = ("fuse", "name-kernels")
    names = [f"{numbers[n]:03d}.after_{n.replace('-', '_')}.txt" for n in changed]
    assert written == names
    text = (tmp_path / names[-1]).read_text()
    assert show_program(parse_program(text)) == text


def test_the_runner_stops_after_as_many_passes_as_asked(tmp_path: Path) -> None:
    ctx = context(tmp_path, stop_after=1)
    run_pipeline(demo_program(), ctx)
    assert len(list(ctx.journal.events("pass"))) == 1


def test_debug_levels_say_what_they_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_pipeline(demo_program(), context(tmp_path, debug=2))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == sum(p.only_after is None for p in SCHEDULING)
    assert lines[0].startswith("001 drop-dead-ops        unchanged 4 -> 4 ops")
    run_pipeline(demo_program(), context(tmp_path, debug=5))
    assert "program demo" in capsys.readouterr().err


def test_a_pass_that_breaks_its_stage_is_shown_with_place_provenance_and_reproducer(
    tmp_path: Path,
) -> None:
    ctx = context(tmp_path)
    with pytest.raises(PipelineError) as e:
        run_pipeline(demo_program(), ctx, [PASSES["merge-loops"], step(drop_first)])
    text = e.value.render()
    assert text.startswith("PIPE001: pass 'drop-first' (number 2) broke stage grouped: IR015 at ")
    assert "IR015 at norm_apply: it uses scale, which nothing wrote before" in text
    assert ">    13 | loop norm_apply on cpu" in text
    assert "norm_apply comes from: rms_norm" in text
    assert "passes before it: merge-loops" in text
    assert "what it does: Remove the first operation, needed or not." in text
    (artifact,) = [a for a in ctx.journal.events("artifact") if a["name"] == "reproducer"]
    assert f"reproduce with: treadle replay {artifact['path']}" in text
    repro = read_reproducer(str(artifact["path"]))
    assert repro.passes == ("drop-first",)
    assert len(repro.program.ops) == 4
    assert "IR015" in repro.error
    assert e.value.exit_code == 1


def test_a_pass_that_raises_is_reported_with_its_cause(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="PIPE002: pass 'explode'") as e:
        run_pipeline(demo_program(), context(tmp_path), [step(explode)])
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    assert "ZeroDivisionError: oh" in e.value.render()


def test_a_program_that_is_broken_from_the_start_is_not_blamed_on_a_pass(tmp_path: Path) -> None:
    program = demo_program()
    broken = program.with_ops(program.ops[1:])
    with pytest.raises(SpecError, match="not sound before the first pass"):
        run_pipeline(broken, context(tmp_path))


def test_an_unwritable_folder_does_not_hide_the_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ctx = context(tmp_path, dump=str(tmp_path / "file"))
    with pytest.raises(PipelineError, match="no reproducer"):
        run_pipeline(demo_program(), ctx, [step(explode)])


def test_check_0_looks_at_nothing(tmp_path: Path) -> None:
    ctx = context(tmp_path, check=0)
    assert len(run_pipeline(demo_program(), ctx, [step(drop_first)]).ops) == 3


def readers() -> Program:
    """Two operations in an order that only a dependence, not a rule, demands."""
    b = ProgramBuilder("war")
    x, y = b.input("x", "f32", [4]), b.output("y", "f32", [4])
    with b.loop("read", [4]) as k:
        k.store(y, k.vars, k.load(x, *k.vars))
    with b.loop("change", [4]) as k:
        k.store(x, k.vars, k.load(x, *k.vars) + 1.0)
    return b.build()


def test_level_2_finds_a_dependence_that_the_rules_do_not_see(tmp_path: Path) -> None:
    program = readers()
    assert len(run_pipeline(program, context(tmp_path, check=1), [step(swap_last)]).ops) == 2
    with pytest.raises(PipelineError, match="CERT001 at change: it stands before read; overwrites"):
        run_pipeline(program, context(tmp_path, check=2), [step(swap_last)])


def test_level_2_finds_a_lost_result() -> None:
    program = readers()
    gone = program.with_ops(program.ops[:1])
    assert [str(v) for v in certify(program, gone)] == [
        "CERT002 at change: it is gone, yet x is seen by the caller"
    ]


def test_level_2_finds_a_lost_producer() -> None:
    before = demo_program()
    after = before.with_ops(before.ops[1:])
    assert [str(v) for v in certify(before, after)] == [
        "CERT002 at norm_apply: norm_scale is gone, yet reads scale, version 1, written there"
    ]
    assert certify(before, before) == []


def test_level_2_finds_a_program_its_text_cannot_say() -> None:
    program = demo_program()
    # A token has no elements, so the text does not say of which type they are.
    token = Buffer("t", DType.F32, Layout.contiguous([3]), kind=BufferKind.TOKEN)
    odd = replace(program, buffers=(*program.buffers, token))
    assert [v.code for v in check(program, odd, Stage.GROUPED, 2)] == ["CERT003"]
    assert check(program, odd, Stage.GROUPED, 1) == []


def test_level_3_finds_a_changed_meaning(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="CERT004 at state: its value changed"):
        run_pipeline(demo_program(), context(tmp_path, check=3), [step(double)])
    run_pipeline(demo_program(), context(tmp_path, check=2), [step(double)])


def test_a_reproducer_reads_back(tmp_path: Path) -> None:
    program = demo_program()
    path = write_reproducer(str(tmp_path), program, ["merge-loops"], Options(check=2), "boom")
    repro = read_reproducer(path)
    assert (repro.program, repro.passes, repro.error) == (program, ("merge-loops",), "boom")
    assert repro.options.check == 2
    same = write_reproducer(str(tmp_path), program, ["merge-loops"], Options(check=2), "boom")
    assert same == path


@pytest.mark.parametrize(
    "text, expected",
    [
        ("", "expected a reproducer header, found ''"),
        ("treadle 1\n", "expected a reproducer header, found 'treadle 1'"),
        ('{"treadle_repro": 9}\n', 'expected a header with "treadle_repro": 1'),
        ('{"treadle_repro": 1}\n', 'expected "passes" and "options" in the header'),
        (
            json.dumps({"treadle_repro": 1, "passes": [], "options": {"chek": 1}})
            + "\ntreadle 1\nprogram p\n",
            "expected options of this Treadle, found unknown option 'chek'",
        ),
    ],
)
def test_a_damaged_reproducer_gets_one_clear_line(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "r.pkg"
    file.write_text(text)
    with pytest.raises(InputError) as e:
        read_reproducer(str(file))
    assert expected in e.value.render()
    assert "[PIPE003]" in e.value.render()


def test_line_numbers_in_a_reproducer_are_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "r.pkg"
    header = json.dumps({"treadle_repro": 1, "passes": [], "options": {}})
    file.write_text(header + "\ntreadle 1\nprogram p\nnonsense\n")
    with pytest.raises(InputError, match=r"r\.pkg:4:1: expected an operation"):
        read_reproducer(str(file))


def test_every_pass_documents_itself() -> None:
    for p in PIPELINE:
        assert p.summary.endswith(".")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda p: replace(p, outputs=()), "CERT005 at outputs: outputs were probs, now none"),
        (
            lambda p: replace(p, inputs=p.inputs[::-1]),
            "CERT005 at inputs: inputs were x, w, state, now state, w, x",
        ),
        (
            lambda p: replace(p, donated=("x",)),
            "CERT005 at donated: donated were none, now x",
        ),
        (
            lambda p: replace(
                p,
                buffers=tuple(
                    replace(b, dtype=DType.F64) if b.name == "probs" else b for b in p.buffers
                ),
            ),
            "CERT005 at probs: the caller knows it as another buffer",
        ),
    ],
)
def test_a_pass_may_not_change_the_border_of_the_program(change, message: str) -> None:
    program = demo_program()
    assert message in [str(v) for v in check(program, change(program), Stage.GROUPED, 1)]
    assert check(program, program, Stage.GROUPED, 1) == []


@pytest.mark.parametrize(
    "was, now, message",
    [
        (EXACT, TORCH, "CERT006 at numerics: sums were exact, now blocked 512"),
        (TORCH, replace(TORCH, function_ulps=8.0), "functions were within 6 ulp, now 8"),
        (replace(TORCH, contraction=False), TORCH, "contraction was not allowed, now it is"),
    ],
)
def test_a_pass_may_tighten_the_numerics_and_not_loosen_them(
    was: Numerics, now: Numerics, message: str
) -> None:
    before, after = (replace(demo_program(), numerics=n) for n in (was, now))
    assert any(message in str(v) for v in check(before, after, Stage.GROUPED, 1))
    assert check(after, before, Stage.GROUPED, 1) == []


def loosen(program: Program, ctx: Ctx) -> Program:
    """Promise less than the program did."""
    return replace(program, numerics=TORCH)


def test_a_pass_that_loosens_the_numerics_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="CERT006 at numerics: sums were exact"):
        run_pipeline(demo_program(), context(tmp_path), [step(loosen)])


def forget(program: Program, ctx: Ctx) -> Program:
    """Return nothing."""


def test_a_pass_that_returns_no_program_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"PIPE002.*it returned NoneType, not a Program"):
        run_pipeline(demo_program(), context(tmp_path), [step(forget)])


def test_an_exception_is_shown_with_the_line_that_raised_it(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"raised at test_pipeline\.py:\d+ in explode: raise"):
        run_pipeline(demo_program(), context(tmp_path), [step(explode)])


def test_a_write_that_is_replaced_unseen_may_go() -> None:
    b = ProgramBuilder("p")
    x, y = b.input("x", "f32", [4]), b.output("y", "f32", [4])
    for name in ("first", "second"):
        with b.loop(name, [4]) as k:
            k.store(y, k.vars, k.load(x, *k.vars) * 2.0)
    before = b.build()
    assert certify(before, before.with_ops(before.ops[1:])) == []
    assert [v.code for v in certify(before, before.with_ops(before.ops[:1]))] == ["CERT002"]


@pytest.mark.parametrize("debug, words", [(2, set()), (3, {"yes"}), (4, {"yes", "no"})])
def test_decisions_are_printed_from_their_debug_level_on(
    debug: int, words: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    b = ProgramBuilder("p", numerics=TORCH)
    x, y, z = b.input("x", "f32", [64]), b.output("y", "f32", [64]), b.output("z", "f32", [64])
    with b.loop("double", [64]) as k:
        k.store(y, k.vars, k.load(x, *k.vars) * 2.0)
    with b.loop("running", [], reduce=[64]) as k:
        k.store(z, k.vars, k.scan("add", k.load(x, *k.vars)))
    options = Options(debug=debug)
    run_pipeline(b.build(), Ctx(options, MACHINES, journal_for(options)), KERNELS)
    lines = [line for line in capsys.readouterr().err.splitlines() if "KER007" in line]
    assert {word for line in lines for word in ("yes", "no") if f": {word} KER007" in line} == words
