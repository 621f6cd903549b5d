"""What the documents say is true: examples run, commands exist, invariants are all listed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from treadle.core.codes import load_codes
from treadle.ir.text import parse_program
from treadle.lab.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text()


def test_the_example_in_the_readme_runs_and_prints_what_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    promised = re.search(r"# (PeakPoint\(.*\))", code)
    assert promised is not None
    assert promised.group(1) in printed
    assert printed.startswith("treadle 1\nprogram demo\n")


def test_the_readme_names_only_commands_that_exist() -> None:
    named = set(re.findall(r"^treadle (\w+)", README, re.M))
    assert named == set(COMMANDS)


def test_make_targets_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_program_in_the_ir_reference_is_in_standard_form() -> None:
    text = (ROOT / "docs" / "ir.md").read_text()
    block = re.search(r"```\n(treadle 1\n.*?)```", text, re.S)
    assert block is not None
    program = parse_program(block.group(1))
    assert program.name == "demo"
    assert [s.name for s in program.sizes] == ["n"]


def test_the_architecture_lists_every_invariant() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    listed = set(re.findall(r"^\| ((?:IR|CERT)\d+) \|", text, re.M))
    assert listed == {c for c in load_codes() if c.startswith(("IR", "CERT"))}


def test_every_decision_is_in_the_index_of_decisions() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text()
    for page in folder.glob("0*.md"):
        assert page.name in index
