"""Every XLA code: the damage that brings it up, and the message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.core.errors import InputError
from treadle.frontends.xla_dump import Finding, parse_dump, print_dump, read_dump, rederive

CORPUS = Path(__file__).parents[1] / "corpus" / "xla"
SMALL = (CORPUS / "small.2024-11-buffer-assignment.txt").read_text("utf-8")
TREE = (CORPUS / "small.2025-07-buffer-assignment.txt").read_text("utf-8")
HLO = (CORPUS / "small.2024-11.txt").read_text("utf-8")


def findings(text: str) -> list[Finding]:
    """All that is said about a text that can be read; it must print back as it is."""
    dump = parse_dump(text, "f")
    assert print_dump(dump) == text
    found = rederive(dump)
    return [*dump.findings, *found.differences, *found.notes]


def swapped(old: str, new: str, text: str = SMALL) -> str:
    assert old in text
    return text.replace(old, new, 1)


UNREADABLE = [
    ("", "f:1: expected an XLA dump: 'BufferAssignment:', 'HloLiveRange (max N):' or a kin of"),
    (
        SMALL[: SMALL.index("\nTotal") - 1],
        "f:24: expected a whole line, found the end [XLA001]",
    ),
    (
        swapped("allocation 3: size 4", "allocation three: size 4"),
        "f:9: expected 'allocation N: size N, ...:', a value of one, or a blank line, "
        "found 'allocation three: size 4, maybe-live-out:' [XLA001]",
    ),
    (
        swapped("(size=256,offset=0)", "(size=256,offset=)"),
        "f:3: expected ' value: <ID NAME @COLOR> (size=N,offset=N): SHAPE', "
        "found ' value: <3 a @0> (size=256,offset=): f32[64]{0}' [XLA001]",
    ),
    (
        swapped("Total bytes used: ", "Total bytes: "),
        "f:26: expected 'Total bytes used: N (SIZE)', found 'Total bytes: 1332 (1.3KiB)' [XLA001]",
    ),
    (
        swapped(" uses:\n  mul, operand 1\n", ""),
        "f:56: expected 'uses:' of <4 b @0>, found ' from instruction: %b = f32[64]{0} "
        "parameter(1)' [XLA001]",
    ),
    (
        SMALL[: SMALL.index("\n\nHloLiveRange")],
        "f:115: expected 'HloLiveRange (max N):' after the used values: the file is cut, "
        "found the end of the file [XLA001]",
    ),
    (
        swapped("    3:mul\n", ""),
        "f:123: expected instruction number 3, found '    4:pair' [XLA001]",
    ),
    (
        swapped("mul{}:3-6", "mul{}:6-3"),
        "f:134: expected a live range that ends no earlier than it starts, "
        "found '    mul{}:6-3' [XLA001]",
    ),
    (
        SMALL[: SMALL.index("  Live ranges at")],
        "f:141: expected a live range such as 'fusion{}:3-5', or 'Live ranges at N (peak):', "
        "found the end of the file [XLA001]",
    ),
    (
        swapped("  InstructionSequence:\n", "  InstructionSequence:\n" * 2),
        "f:120: expected a numbered instruction or 'BufferLiveRange:', "
        "found '  InstructionSequence:' [XLA001]",
    ),
    (
        swapped(" positions:\n  b\n uses:\n", " positions:\n  b\n uses:\n uses:\n"),
        "f:57: expected 'from instruction:' of <4 b @0>, found ' uses:' [XLA001]",
    ),
    (swapped("  Live ranges at", "stray\n  Live ranges at"), "f:142: expected a live range such"),
    (SMALL + "stray\n", "f:149: expected the end of the file, found 'stray' [XLA001]"),
    (SMALL[:-1], "f:148: expected a whole line, found the end [XLA001]"),
    ("HloModule m\n\nmain {\n  a = f32[] parameter(0)\n", "f:4: expected '}' after the instruct"),
    ("HloModule m\n\nmain {\n  nothing\n}\n", "f:4: expected 'NAME = SHAPE OPCODE(OPERANDS)', fo"),
    ("HloModule m\n", "f:1: expected a computation 'ENTRY NAME {', found none [XLA001]"),
]


@pytest.mark.parametrize("text, message", UNREADABLE, ids=range(len(UNREADABLE)))
def test_damage_gives_one_line_that_names_the_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_dump(text, "f")
    rendered = caught.value.render()
    assert "\n" not in rendered
    assert rendered.startswith(message)
    assert caught.value.code == "XLA001"


ODD: list[tuple[str, str, str]] = [
    ("XLA002", swapped(" positions:\n  b\n", " weight: 3\n positions:\n  b\n"),
     "f:54: not understood, kept as it is: weight: 3"),
    ("XLA002", swapped("maybe-live-out:", "maybe-live-out, pinned:"),
     "f:4: not understood, kept as it is: pinned"),
    ("XLA003", SMALL[: SMALL.index("\nTotal")],
     "f: no used values and no live ranges here or next to it"),
    ("XLA004", swapped(" value: <6 mul @0> (size=256,offset=0): f32[64]{0}\n", ""),
     "f:64: <6 mul @0> is in no allocation"),
    ("XLA004", swapped(" value: <6 mul @0>", " value: <66 mul @0>"),
     "f:20: <66 mul @0> is not among the used values"),
    ("XLA004", swapped(" value: <6 mul @0>", " value: <6 mul>"),
     "f:20: <6 mul> is not named like this among the used values"),
    ("XLA004", swapped("  sum, operand 1", "  sun, operand 1"),
     "f:65: <6 mul @0> names sun, which is no instruction of the sequence"),
    ("XLA004", swapped("    mul{}:3-6", "    mu{}:3-6"),
     "f:134: mu{} has a live range, but its instruction is not in the sequence"),
    ("XLA004", swapped("    mul{}:3-6", "    mul{1}:3-6"),
     "f:134: mul{1} has a live range, but no such value exists"),
    ("XLA004", swapped("out{}:9-10", "out{}:9-11"), "f:141: out{} lives until 11, after the end"),
    ("XLA005", swapped("    mul{}:3-6\n", "    mul{}:3-6\n" * 2),
     "f:135: live range mul{} stands here a second time"),
    ("XLA006", swapped("Total bytes used: 1332", "Total bytes used: 1333"),
     "f:26: the total is printed as 1333 (1.3KiB), the allocations sum to 1332 (1.3KiB)"),
    ("XLA006", swapped("(1.3KiB)", "(1.4KiB)"), "f:26: the total is printed as 1332 (1.4KiB)"),
    ("XLA006", swapped("HloLiveRange (max 10)", "HloLiveRange (max 11)"),
     "f:118: printed as max 11, there are 10 instructions"),
    ("XLA006", swapped(", preallocated-temp", ""),
     "f:19: allocation 8 is not called preallocated-temp, by its other attributes it is"),
    ("XLA007", swapped("offset=512): s8[256]", "offset=512): s8[255]"),
     "f:23: <9 pair{1} @0> has size 256, its shape s8[255]{0} takes 255"),
    ("XLA008", swapped("(size=256,offset=512)", "(size=256,offset=0)"),
     "f:23: pair{1}: [0, 256) of arena at time 4 overlaps mul at [0, 256) [MEM001]"),
    ("XLA008", swapped("allocation 3: size 4", "allocation 3: size 3"),
     "f:10: total: [0, 4) is outside [0, 3) of allocation3 [MEM003]"),
    ("XLA009", swapped("mul{}:3-6", "mul{}:3-5"),
     "f:134: mul{} lives 3-5 as printed, 3-6 by its uses"),
    ("XLA010", swapped("Live ranges at 4 (peak)", "Live ranges at 6 (peak)"),
     "f:142: the peak is printed at 6, by sizes and lives it is at 4"),
    ("XLA010", swapped("    pair: 16 bytes\n", "    pair: 17 bytes\n"),
     "f:146: line 4 of the peak should be 'pair: 16 bytes'"),
    ("XLA010", swapped("    pair: 16 bytes\n", "    pair: 16 bytes\n" * 2),
     "f:149: 7 values at the peak are printed, 6 live there"),
    ("XLA010", swapped("(cumulative: 256 bytes)", "(cumulative: 257 bytes)", TREE),
     "f:143: line 1 of the peak should be 'a{}: 256 bytes (cumulative: 256 bytes)'"),
    ("XLA010", swapped("remaining: 788 bytes", "remaining: 789 bytes", TREE),
     "f:152: after 'a' there remain 788"),
    ("XLA007", swapped("): (f32[64]{0}, s8[256]{0})", "): (f32[65]{0}, s8[256]{0})"),
     "f:21: <7 pair{} @0> is (f32[65]{0}, s8[256]{0}) here, its instruction makes (f32[64], "),
    ("XLA012", swapped("is |(f32[64], f32[])|", "is |(f32[63], f32[])|"),
     "f:7: the output has the shape (f32[64], f32[]), not (f32[63], f32[])"),
    ("XLA012", swapped("parameter 1, shape |f32[64]|", "parameter 1, shape |f32[65]|"),
     "f:4: parameter 1 has the shape f32[64], not f32[65]"),
    ("XLA015", swapped("%mul = f32[64]{0} multiply", "%mul = multiply"),
     "f: 1 instruction texts were not understood"),
    ("XLA016", swapped(" positions:\n  mul\n", " positions:\n"),
     "f:65: the first position of <6 mul @0> is not where it is made"),
    ("XLA016", swapped("  sum, operand 1\n", "  sum, operand 1\n" * 2),
     "f:65: a position or use of <6 mul @0> stands twice"),
    ("XLA016", swapped("instruction: %mul =", "instruction: %mull ="),
     "f:65: the instruction of <6 mul @0> is printed as mull"),
    ("XLA016", swapped('_target="split"', '_target="cut"'),
     "f:78: the instruction of <8 pair{0} @0> was printed otherwise before"),
    ("XLA016", swapped("  pair, operand 0\n", ""),
     "f:65: <6 mul @0> is operand 0 of pair: no such use"),
    ("XLA016", swapped("  sum, operand 1\n", "  sum, operand 2\n"),
     "f:65: <6 mul @0> is no operand 2 of sum"),
    ("XLA016", swapped("  a\n uses:\n  mul, operand 0\n", "  a\n uses:\n  mul, operand 1\n"),
     "f:46: <3 a @0> is no operand 1 of mul"),
    ("XLA012", swapped("allocation 3: size 4, maybe-live-out:", "allocation 3: size 4, constant:"),
     "f:9: called constant, but holds no constant"),
    ("XLA012", swapped(", parameter 0, shape", ", parameter 7, shape"),
     "f:2: called parameter 7, but holds parameter 0"),
    ("XLA012", swapped("allocation 4: size 4, constant", "allocation 4: size 4, maybe-live-out"),
     "f:11: is called maybe-live-out, but what it holds does not flow to the root out"),
]  # fmt: skip


@pytest.mark.parametrize(
    "code, text, message", ODD, ids=[f"{c}-{k}" for k, (c, *_) in enumerate(ODD)]
)
def test_a_contradiction_is_found_and_placed(code: str, text: str, message: str) -> None:
    said = [str(finding) for finding in findings(text) if finding.code == code]
    assert any(line.startswith(message) for line in said), said


def test_the_whole_fixture_has_none_of_these() -> None:
    assert findings(SMALL) == []
    assert findings(TREE) == []


def beside(folder: Path, change: Callable[[str], str], end: str) -> list[Finding]:
    """Findings about the small dump next to a changed copy of another of its files."""
    stem = "small.2024-11"
    path = folder / f"{stem}-buffer-assignment.txt"
    path.write_text(SMALL, "utf-8")
    (folder / f"{stem}{end}").write_text(change((CORPUS / f"{stem}{end}").read_text("utf-8")))
    dump = read_dump(str(path))
    found = rederive(dump)
    return [*dump.findings, *found.differences, *found.notes]


def test_an_hlo_text_of_another_order_is_found(tmp_path: Path) -> None:
    first, second = HLO.index("  %mul"), HLO.index("  %pair")
    line = HLO[first:second]
    moved = HLO.replace(line, "").replace("  %one", line + "  %one")
    (found,) = beside(tmp_path, lambda _: moved, ".txt")
    assert found.code == "XLA011"
    assert "instruction 2 is one here and mul in the HLO text next to it" in str(found)
    assert found.line == 122


def test_an_hlo_text_with_a_dangling_operand_is_found(tmp_path: Path) -> None:
    (found,) = beside(tmp_path, lambda text: text.replace("add(%first", "add(%fist"), ".txt")
    assert (found.code, found.message) == ("XLA014", "sum names fist, which is not there")


def test_a_report_of_another_dump_is_found(tmp_path: Path) -> None:
    end = "-memory-usage-report.txt"
    wrong = beside(tmp_path, lambda text: text.replace("2×f32[64]", "3×f32[64]"), end)
    assert [(f.code, f.message) for f in wrong] == [("XLA013", "the shapes are 2×f32[64]")]
    wrong = beside(tmp_path, lambda text: text.replace("1332 ", "1334 "), end)
    assert [(f.code, f.message) for f in wrong] == [("XLA013", "the total is 1332 (1.3KiB)")]


def test_loops_without_hlo_text_are_taken_as_given() -> None:
    loop = (CORPUS / "loop.2024-11-buffer-assignment.txt").read_text("utf-8")
    codes = {finding.code for finding in findings(loop)}
    assert codes == {"XLA015"}
    wrong = [str(f) for f in findings(loop.replace("next_i{}:13-16", "next_i{}:14-16"))]
    assert any("next_i{} lives 14-16 as printed" in line for line in wrong)
