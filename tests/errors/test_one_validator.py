"""Bad files: every command refuses them, with the same finding as `treadle check`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from treadle.lab.cli import main

CORPUS = Path(__file__).parents[1] / "corpus"
DUMP = (CORPUS / "inductor" / "softmax.0.post.txt").read_text()
CHAIN = (CORPUS / "inductor" / "mutations.0.post.txt").read_text()
PADDED = (CORPUS / "inductor" / "pad_masked.0.pre.txt").read_text()
HLO = (CORPUS / "xla" / "loop.2025-05.txt").read_text()
PROGRAM = """treadle 1
program demo
inputs x
outputs y

buffer x : f32[8] on cpu
buffer y : f32[8] on cpu

loop first on cpu for i in 8 {
  %0 = load x[i]
  %1 = relu %0
  store y[i] = %1
}
"""
LOOP = PROGRAM[PROGRAM.index("loop") :]
WIDE_3 = "\N{FULLWIDTH DIGIT THREE}"


def reversed_nodes(dump: str) -> str:
    nodes = dump.rstrip("\n").split("\n\n\n")
    return "\n\n\n".join(nodes[::-1]) + "\n\n\n"


def reversed_instructions(hlo: str) -> str:
    lines = hlo.split("\n")
    first = next(k for k, line in enumerate(lines) if line.endswith("{"))
    last = next(k for k, line in enumerate(lines) if line.startswith("}"))
    return "\n".join([*lines[: first + 1], *lines[first + 1 : last][::-1], *lines[last:]])


def doubled(pattern: str, text: str) -> str:
    return re.sub(pattern, r"\g<0>\g<0>", text, count=1)


BAD = {
    "program, unknown operation": (PROGRAM.replace("relu", "frobnicate"), "TXT001"),
    "program, digit of a type": (PROGRAM.replace("f32", f"f{WIDE_3}2", 1), "TXT001"),
    "program, digit of an extent": (PROGRAM.replace("in 8", "in \N{FULLWIDTH DIGIT EIGHT}"),
                                    "TXT001"),
    "program, no such device": (PROGRAM.replace("cpu", "warp9"), "IR020"),
    "program, no such number": (PROGRAM.replace("cpu", "cuda:999"), "IR020"),
    "program, extent -1": (PROGRAM.replace("for i in 8", "for i in -1"), "TXT001"),
    "program, negative size": (PROGRAM.replace("f32[8]", "f32[-8]", 1), "TXT001"),
    "program, far outside": (PROGRAM.replace("x[i]", "x[i + 100000]"), "IR012"),
    "program, joined": (PROGRAM + PROGRAM, "TXT001"),
    "program, defined twice": (PROGRAM + LOOP, "IR002"),
    "dump, unknown operation": (DUMP.replace("ops.exp(", "ops.frobnicate("), "IND027"),
    "dump, digit of a type": (DUMP.replace("float32", f"float{WIDE_3}2"), "IND027"),
    "dump, no such device": (DUMP.replace("'cpu'", "'warp9'"), "IND027"),
    "dump, no such type in a body": (PADDED.replace("1.0, torch.float32", "1.0, torch.float33"),
                                     "IND027"),
    "dump, joined": (DUMP + DUMP, "IND025"),
    "dump, reversed": (reversed_nodes(CHAIN), "IND026"),
    "dump, extent -1": (re.sub(r"p0: \d+", "p0: -1", DUMP), "IND028"),
    "dump, negative size": (re.sub(r"size=\[\d+", "size=[-3", DUMP), "IND028"),
    "dump, far outside": (DUMP.replace("index0 = ", "index0 = 100000 + "), "IND029"),
    "dump, unknown buffer": (CHAIN.replace("WeakDep(name='buf0'", "WeakDep(name='buf77'"),
                             "IND002"),
    "HLO, defined twice": (doubled(r"\n  %?[\w.]+ = [^\n]*", HLO), "XLA005"),
    "HLO, joined": (HLO + HLO, "XLA001"),
    "HLO, reversed": (reversed_instructions(HLO), "XLA017"),
    "HLO, digit of a type": (HLO.replace("f32[", f"f{WIDE_3}2[", 1), "XLA018"),
    "HLO, unknown instruction": (HLO.replace(" add(", " frobnicate("), "XLA018"),
    "HLO, unknown type": (HLO.replace("f32[", "f33[", 1), "XLA018"),
    "HLO, negative size": (re.sub(r"f32\[(\d+)", r"f32[-\1", HLO, count=1), "XLA018"),
}  # fmt: skip
OTHERS = ("show", "schedule", "plan", "export", "why", "diff")


def arguments(command: str, file: str) -> list[str]:
    more = {"why": ["a", "b"], "diff": [file]}.get(command, [])
    return [command, file, *more, "--json"]


def errors_of(command: str, file: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the command says is wrong; it must refuse the file."""
    code = main(arguments(command, file))
    shown = capsys.readouterr()
    assert code in (1, 2), f"{command} accepts it"
    assert "bug" not in shown.err
    found = json.loads(shown.out)["errors"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("name", BAD)
def test_every_command_refuses_it_with_the_same_finding(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code = BAD[name]
    file = tmp_path / "bad.txt"
    file.write_text(text)
    expected = errors_of("check", str(file), capsys)
    assert any(code in error for error in expected)
    for command in OTHERS:
        assert errors_of(command, str(file), capsys) == expected, command


@pytest.mark.parametrize("text", [PROGRAM, DUMP, CHAIN, PADDED, HLO])
def test_what_was_made_bad_was_good(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "good.txt"
    file.write_text(text)
    for command in ("check", "show"):
        assert main([command, str(file)]) == 0


def test_findings_are_shown_as_check_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "joined.txt"
    file.write_text(DUMP + DUMP)
    assert main(["check", str(file)]) == 1
    findings = [line for line in capsys.readouterr().out.splitlines() if "IND025" in line]
    assert findings
    assert main(["schedule", str(file)]) == 1
    shown = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r".*joined\.txt: \d+ findings?, see treadle check", shown[0])
    assert [line for line in shown if "IND025" in line] == findings
