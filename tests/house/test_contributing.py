"""CONTRIBUTING.md is complete: its steps, followed exactly in a copy, add a pass and a lowering.

A fenced block with a path is a file to write or, as a diff, lines to add; `sh` blocks are run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^(`{3,4})(\w+)(?: (\S+))?\n(.*?)^\1$", re.M | re.S)
COPIED = ("src", "tests", "docs", "pyproject.toml", "CHANGELOG.md", "CONTRIBUTING.md", "README.md",
          "Makefile", "LICENSE")  # fmt: skip


class Step(NamedTuple):
    """One block of the text: its language, the file it is about, what it says."""

    kind: str
    file: str | None
    text: str


def steps(title: str) -> Iterator[Step]:
    """The blocks of one section, in order."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    for _, kind, file, body in BLOCK.findall(section):
        yield Step(kind, file or None, body)


def follow(step: Step, folder: Path) -> None:
    """Do what the step says."""
    if step.kind == "sh":
        for line in step.text.strip().splitlines():
            run(line, folder)
    elif step.kind == "diff":
        assert step.file is not None
        insert(folder / step.file, step.text)
    else:
        assert step.file is not None
        target = folder / step.file
        assert not target.exists(), f"{step.file} is there already: choose another example"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(step.text)


def insert(file: Path, diff: str) -> None:
    """Apply a small diff; the lines around it must be there exactly once."""
    lines = [(line[:1] or " ", line[1:]) for line in diff.splitlines()]
    old = "".join(f"{text}\n" for mark, text in lines if mark != "+")
    new = "".join(f"{text}\n" for mark, text in lines if mark != "-")
    text = file.read_text()
    assert text.count(old) == 1, f"{file.name} has {text.count(old)} times:\n{old}"
    file.write_text(text.replace(old, new))


def run(line: str, folder: Path) -> None:
    words = shlex.split(line)
    assert words[0] == "python"
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    done = subprocess.run(
        [sys.executable, *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """A copy of what the steps touch."""
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / "copy" / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path / "copy" / name)
    return tmp_path / "copy"


@pytest.mark.exhaustive
def test_the_steps_add_a_pass(scratch: Path) -> None:
    found = list(steps("A pass, step by step"))
    assert {step.kind for step in found} == {"python", "diff", "text", "sh"}
    for step in found:
        follow(step, scratch)
    cases = scratch / "tests" / "golden" / "drop_double_negations"
    changed = (cases / "removes_a_negation_of_a_negation.md").read_text()
    assert "store y[i] = %0" in changed.split("```after")[1]
    kept = (cases / "keeps_a_negation_that_is_read_elsewhere.md").read_text()
    assert "%1 = neg %0" in kept.split("```after")[1]
    for case in cases.glob("should_not_*.md"):
        assert case.read_text().split("```after\n")[1] == "```\n"
    program = scratch / "program.txt"
    program.write_text(changed.split("```before\n")[1].split("```")[0])
    run(f"python -m treadle.lab.cli schedule {program} -o {scratch / 'scheduled.txt'}", scratch)
    assert "neg" not in (scratch / "scheduled.txt").read_text()


@pytest.mark.exhaustive
@pytest.mark.torch
def test_the_steps_add_a_lowering(scratch: Path) -> None:
    pytest.importorskip("torch")
    found = list(steps("A lowering, step by step"))
    assert {step.kind for step in found} == {"python", "diff", "sh"}
    for step in found:
        follow(step, scratch)
    page = (scratch / "docs" / "operators.md").read_text()
    assert "### `window.py`: 1" in page


def test_the_text_names_only_files_and_functions_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    added = {
        step.file for title in ("A pass", "A lowering") for step in steps(f"{title}, step by step")
    }
    for name in set(
        re.findall(r"`((?:ir|core|schedule|tests|docs|src)/[\w./]+\.(?:py|md))`", text)
    ) - {"core/pages/CODE.md"}:
        base = ROOT if name.startswith(("tests/", "docs/", "src/")) else ROOT / "src" / "treadle"
        assert name in added or (base / name).exists(), name
    for file, functions in (
        ("change.py", ("map_loops", "map_indices", "with_loops")),
        ("rewrite.py", ("rewritten", "map_stmts")),
    ):
        source = (ROOT / "src" / "treadle" / "ir" / file).read_text()
        for function in functions:
            assert f"`{function}(" in text
            assert f"def {function}(" in source
