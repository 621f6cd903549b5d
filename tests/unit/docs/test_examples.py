"""Every example runs, from an empty folder, and the how-tos name only what exists."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.ir.text import show_program
from treadle.lab.cli import build_parser, main
from treadle.lab.demo_program import demo_program

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
HOWTO = (ROOT / "docs" / "howto.md").read_text("utf-8")
NEED_TORCH = {"compile_a_model.py", "package_a_model.py", "where_is_my_peak.py"}
WRITES = {"compile_a_model.py": "model.html", "build_a_program.py": "scaled.html"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, marks=[pytest.mark.torch] if p.name in NEED_TORCH else [], id=p.stem)
        for p in EXAMPLES
    ],
)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    if path.name in NEED_TORCH:
        pytest.importorskip("torch")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if path.name in WRITES:
        assert (tmp_path / WRITES[path.name]).stat().st_size > 10_000


def test_the_howtos_name_every_example() -> None:
    named = set(re.findall(r"examples/(\w+\.py)", HOWTO))
    assert named <= {p.name for p in EXAMPLES}
    assert {p.name for p in EXAMPLES} - named <= {"build_a_program.py"}


def test_the_commands_of_the_howtos_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("program.txt").write_text(show_program(demo_program()))
    assert main(["kernels", "program.txt", "--json"]) == 0
    launches = [row["name"] for row in json.loads(capsys.readouterr().out)["kernels"]]
    Path("times.json").write_text(json.dumps(dict.fromkeys(launches, 12.5)))
    blocks = re.findall(r"```\n(treadle .*?)```", HOWTO, re.S)
    lines = [line for block in blocks for line in block.strip().splitlines()]
    ran = 0
    for line in lines:
        words = line.split()[1:]
        build_parser().parse_args(words)  # what cannot be run here can at least be said
        if "program.txt" in words:
            assert main(words) == 0, line
            ran += 1
    assert ran >= 5


def test_links_in_the_documents_lead_somewhere() -> None:
    for name in ("howto.md", "tour.md"):
        text = (ROOT / "docs" / name).read_text("utf-8")
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            assert (ROOT / "docs" / link).exists(), f"{name}: {link}"
