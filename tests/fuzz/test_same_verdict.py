"""Damaged files: what `check` accepts the others accept, what it refuses they refuse alike."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from command_fuzzer import GENTLE, seeds

from treadle.lab.cli import main

OTHERS = ("show", "schedule", "plan", "export")
CASES = 40
PARTIAL = "xla"
"""Files of this kind can be sound and yet not enough for a plan or a schedule."""


def damaged(kind: str, case: int, corpus: dict[str, list[str]]) -> str:
    rng = random.Random(f"{kind} {case}")
    text = rng.choice(corpus[kind])
    for _ in range(rng.choice((1, 1, 2))):
        text = rng.choice(GENTLE)(rng, text) or "x"
    return text


def answer(command: str, file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = main([command, str(file), "--json"])
    return code, json.loads(capsys.readouterr().out).get("errors", [])


@pytest.mark.parametrize("kind", ["program", "inductor", "xla"])
def test_all_commands_agree_with_check(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = seeds()
    file = tmp_path / "file.txt"
    codes = set()
    for case in range(CASES):
        file.write_text(damaged(kind, case, corpus), "utf-8")
        expected = answer("check", file, capsys)
        codes.add(expected[0])
        for command in OTHERS:
            found = answer(command, file, capsys)
            what = f"{kind} {case}: check {expected}, {command} {found}"
            if expected[0]:
                assert found == expected, what
            elif command == "export" and found[0] == 2 and kind == "program":
                # Kernels are sound, and no dump has a form for them.
                assert "launch " in file.read_text("utf-8"), what
                assert "IND030" in found[1][0], what
            else:
                assert found[0] in ((0, 2) if kind == PARTIAL else (0,)), what
    assert codes == {0, 1, 2}
