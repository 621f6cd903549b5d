"""Every claim of a dump that is broken on purpose is reported, under its code and at its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rederive_texts import AFTER, BEFORE, OLD, REDUCTION

from treadle.frontends.inductor_dump import parse_dump, print_dump, rederive
from treadle.lab.cli import main


def changed(text: str, old: str, new: str, at: int = 0) -> str:
    """The text with the occurrence number `at` of `old` replaced."""
    parts = text.split(old)
    assert len(parts) > at + 1, old
    return old.join(parts[: at + 1]) + new + old.join(parts[at + 1 :])


def codes(text: str) -> set[str]:
    dump = parse_dump(text, "small.txt")
    assert print_dump(dump) == text
    return {difference.code for difference in rederive(dump).differences}


@pytest.mark.parametrize(("text", "nodes", "headers", "flags"), [
    (BEFORE, 3, 0, 2), (AFTER, 3, 1, 2), (REDUCTION, 1, 0, 0), (OLD, 2, 0, 2),
])  # fmt: skip
def test_a_sound_dump_has_no_differences(text: str, nodes: int, headers: int, flags: int) -> None:
    result = rederive(parse_dump(text, "small.txt"))
    assert [str(d) for d in result.differences] == []
    assert result.notes == []
    assert result.checked == result.total
    counts = [result.checked[what] for what in ("loop_nodes", "fused_headers", "user_flags")]
    assert counts == [nodes, headers, flags]


WRITE = "op2.writes = [MemoryDep('buf2', "
READ = "op2.unmet_dependencies = [MemoryDep('buf1', c0"
USER = "name='op2'), can_inplace=False, is_weak=False"
TARGET = "[StarDep(name='arg0_1', mode=None)]"
WAITS = "        WeakDep(name='buf0', mutating_buf='buf1', is_fake=True)]"
OUTPUT = "        NodeUser(node=OUTPUT, can_inplace=False, is_weak=False),\n"


@pytest.mark.parametrize(("old", "new", "code"), [
    # Writes: another place, another extent, a mode that no store has.
    (WRITE + "c0 + 8*c1", WRITE + "8*c0 + c1", "IND010"),
    (WRITE + "c0 + 8*c1, {c0: 8, c1: 16}", WRITE + "c0 + 8*c1, {c0: 8, c1: 17}", "IND010"),
    ("c0 + 8*c1, {c0: 8, c1: 16})", "c0 + 8*c1, {c0: 8, c1: 16}, atomic_add)", "IND010"),
    # Reads: the name before the mutation, another place, the wrong list, an order too few.
    (READ, READ.replace("buf1", "buf0"), "IND011"),
    (READ, READ.replace("c0", "c0 + 1"), "IND011"),
    (READ, READ.replace("buf1", "arg0_1"), "IND011"),
    ("op1.met_dependencies = " + TARGET, "op1.met_dependencies = []", "IND011"),
    (WAITS, WAITS.replace("True", "False"), "IND011"),
    ("ops.load('arg0_1', get_index)", "ops.load('arg1_1', get_index)", "IND011"),
    # Users: each flag, a user too few, an overwritten input that is not returned.
    (USER, USER.replace("can_inplace=False", "can_inplace=True"), "IND012"),
    (USER, USER.replace("is_weak=False", "is_weak=True"), "IND012"),
    (OUTPUT, OUTPUT.replace("can_inplace=False", "can_inplace=True"), "IND012"),
    ("buf0.users = [NodeUser(node=SchedulerNode(name='op1'), can_inplace=False, is_weak=False)]",
     "buf0.users = []", "IND012"),
    ("node=OUTPUT", "node=SchedulerNode(name='op2')", "IND012"),
    # Iteration spaces.
    ("op2.group.iteration = (128, 1)", "op2.group.iteration = (64, 2)", "IND013"),
    ("op2.group.iteration = (128, 1)", "op2.group.iteration = ((8, 16), ())", "IND013"),
    ("op2.sizes = ([8, 16], [])", "op2.sizes = ([16, 8], [])", "IND013"),
    ("op2.sizes = ([8, 16], [])", "op2.sizes = ([8], [16])", "IND013"),
    ("op2.group.device = cuda:0", "op2.group.device = cuda:1", "IND013"),
    # Layout lines: another buffer, another layout.
    ("buf2_layout = FixedLayout", "buf3_layout = FixedLayout", "IND015"),
    ("\narg0_1_layout = FixedLayout('cuda:0', torch.float32",
     "\narg0_1_layout = FixedLayout('cuda:0', torch.float16", "IND015"),
    ("\nbuf2_layout = FixedLayout('cuda:0', torch.float32",
     "\nbuf2_layout = FixedLayout('cuda:0', torch.float16", "IND015"),
])  # fmt: skip
def test_a_broken_claim_is_reported(old: str, new: str, code: str) -> None:
    assert code in codes(changed(BEFORE, old, new))


@pytest.mark.parametrize(("old", "new", "code"), [
    ("op0_op1.writes = [MemoryDep('buf0', c0, {c0: 128}), ", "op0_op1.writes = [", "IND014"),
    ("op0_op1.unmet_dependencies = []",
     "op0_op1.unmet_dependencies = [MemoryDep('buf0', c0, {c0: 128})]", "IND014"),
    ("    [   MemoryDep('arg0_1', c0, {c0: 128}),\n        Star", "    [   Star", "IND014"),
    ("    buf0: ComputedBuffer", "    buf0: TemplateBuffer", "IND014"),
    ("FusedSchedulerNode(SchedulerNode,S", "FusedSchedulerNode(NopKernelSchedulerNode,S", "IND014"),
    ("[MemoryDep('buf0', c0, {c0: 128}), MemoryDep('buf1', c0, {c0: 128})]",
     "[MemoryDep('buf1', c0, {c0: 128}), MemoryDep('buf0', c0, {c0: 128})]", "IND016"),
])  # fmt: skip
def test_a_broken_header_is_reported(old: str, new: str, code: str) -> None:
    text = changed(AFTER, old, new)
    assert code in {d.code for d in rederive(parse_dump(text, "small.txt")).differences}


def test_a_difference_says_where_and_both_sides() -> None:
    text = changed(BEFORE, "op2.group.iteration = (128, 1)", "op2.group.iteration = (64, 2)")
    (difference,) = rederive(parse_dump(text, "small.txt")).differences
    assert difference.where == "op2"
    assert text.splitlines()[difference.line - 1].startswith("op2: ")
    assert str(difference) == (
        f"line {difference.line}: op2: group.iteration: printed (64, 2), derived (128, 1) [IND013]"
    )


def test_a_buffer_renamed_everywhere_but_in_the_body_is_reported() -> None:
    text = BEFORE.replace("'buf2'", "'buf9'").replace("buf2", "buf9")
    assert codes(text) == set()
    assert codes(changed(text, "ops.store('buf9'", "ops.store('buf2'")) == {"IND010", "IND015"}


def test_reduced_loops_are_checked() -> None:
    assert codes(changed(REDUCTION, "((8,), (16,))", "(8, 16)")) == {"IND013"}
    assert codes(changed(REDUCTION, "index1 = p0", "index1 = p1")) >= {"IND010", "IND013"}


def test_a_redundant_order_may_have_been_dropped_by_fusion() -> None:
    lists = "    [   MemoryDep('buf0', c0, {c0: 128}),\n" + WAITS
    text = changed(AFTER, " \n" + lists, " [MemoryDep('buf0', c0, {c0: 128})]")
    listed = (
        "    [   MemoryDep('arg0_1', c0, {c0: 128}),\n        StarDep(name='arg0_1', mode=None),\n"
    )
    short = " [MemoryDep('arg0_1', c0, {c0: 128}), StarDep(name='arg0_1', mode=None)]"
    text = changed(text, " \n" + listed + WAITS, short)
    assert {d.code for d in rederive(parse_dump(text, "small.txt")).differences} == set()


def test_a_header_older_than_its_members_is_only_a_note() -> None:
    head, rest = AFTER.split("op0_op1.outputs", 1)
    head = head.replace("c0, {c0: 128}", "16*d0 + d1, {d0: 8, d1: 16}")
    # The lists are longer now, so they are wrapped.
    head = head.replace("op0_op1.writes = [", "op0_op1.writes = \n    [   ").replace(
        "16}), M", "16}),\n        M"
    )
    result = rederive(parse_dump(f"{head}op0_op1.outputs{rest}", "small.txt"))
    assert result.differences == []
    assert [note.code for note in result.notes] == ["IND017"]
    assert result.checked["fused_headers"] == 1


def test_a_body_that_the_algebra_cannot_say_is_taken_as_given() -> None:
    text = BEFORE.replace("{p0: 8, p1: 16}", "{p0: TruncToInt(1.7*ToFloat(s0)), p1: 16}")
    result = rederive(parse_dump(text, "small.txt"))
    assert result.differences == []
    assert [note.code for note in result.notes] == ["IND018"]
    assert (result.checked["loop_nodes"], result.total["loop_nodes"]) == (2, 3)


def test_distances_are_counted_along_dependences() -> None:
    text = BEFORE
    for position, name in enumerate(("op0", "op1", "op2")):
        lines = f"{name}.min_input_distance = {position}\n{name}.max_input_distance = {position}\n"
        text = text.replace(f"{name}.outputs = [", f"{lines}{name}.outputs = [")
    assert codes(text) == set()
    assert codes(changed(text, "op2.max_input_distance = 2", "op2.max_input_distance = 1")) == {
        "IND019"
    }


CALL = """\
op0: ExternKernelSchedulerNode(FallbackKernel)
op0.writes = [StarDep(name='buf0', mode=None), StarDep(name='buf1', mode=None)]
op0.unmet_dependencies = []
op0.met_dependencies = [StarDep(name='arg0_1', mode=None), StarDep(name='arg1_1', mode=None)]
op0.outputs = [
    buf0: FallbackKernel
    buf0.layout = NoneLayout(device=device(type='cpu'), size=[0], stride=[0])
    buf0.users = []
    buf1: MutationOutput
    buf1.layout = NoneLayout(device=device(type='cpu'), size=[0], stride=[0])
    buf1.mutations = ['arg0_1']
    buf1.users = [NodeUser(node=OUTPUT, can_inplace=False, is_weak=False)]
]
op0.node.kernel = torch.ops.some.call


"""


def test_of_a_call_what_it_makes_and_overwrites_is_checked() -> None:
    assert codes(CALL) == set()
    assert codes(changed(CALL, "StarDep(name='buf0', mode=None), ", "")) == {"IND010"}
    assert codes(changed(CALL, "StarDep(name='arg0_1', mode=None), ", "")) == {"IND011"}
    assert codes(changed(CALL, "    buf1.mutations = ['arg0_1']\n", "")) == set()


def test_in_the_oldest_form_calls_may_have_overwritten_something() -> None:
    text = changed(OLD, "can_inplace=True", "can_inplace=False")
    result = rederive(parse_dump(text, "small.txt"))
    assert result.differences == []
    assert [note.code for note in result.notes] == ["IND018"]
    assert codes(changed(OLD, "((128,), ())", "((64,), ())")) == {"IND013"}
    calls_gone = text[: text.index("buf2: Extern")].replace("ExternKernelSchedulerNode", "X")
    assert "IND012" in codes(calls_gone)


def test_check_counts_what_was_derived(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ir_post_fusion.txt"
    path.write_text(AFTER, encoding="utf-8")
    assert main(["check", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (entry,) = data["files"]
    assert data["ok"]
    assert entry["kind"] == "inductor_dump"
    counts = [entry[k] for k in ("nodes", "loop_nodes", "fused_headers", "user_flags")]
    assert counts == [3, 3, 1, 2]
    assert entry["unknown_lines"] == 0
    assert main(["check", str(path)]) == 0
    assert "re-derived 3 of 3 loop nodes, 1 of 1 fused headers" in capsys.readouterr().out


def test_check_fails_on_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ir_pre_fusion.txt"
    path.write_text(changed(BEFORE, READ, READ.replace("c0", "c0 + 1")), encoding="utf-8")
    assert main(["check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out
    assert "op2: reads: printed MemoryDep('buf1', c0 + 1, {c0: 128})" in out
    assert "[IND011]" in out
