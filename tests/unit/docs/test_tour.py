"""Every command of the tour prints what the tour says; `python test_tour.py` writes it anew."""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from treadle.lab.cli import main

ROOT = Path(__file__).resolve().parents[3]
SEEDS = ROOT.parent / "shared" / "seeds"
TOUR = ROOT / "docs" / "tour.md"
CONSOLE = re.compile(r"(```console\n\$ treadle ([^\n]*)\n)(.*?)(```)", re.S)
SECONDS = re.compile(r"\b\d+\.\d+ s\b")
PAGE_SIZE = re.compile(r"(wrote \S+) \([^)]*\)")
SHOWN = 24
"""Lines of an answer that the tour shows; the rest is three dots."""
WHOLE = ("diff",)
"""Answers whose last lines matter."""


def printed(words: str) -> str:
    """What a command prints, without what another run would print otherwise."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = main(shlex.split(words))
    assert code == (1 if words.startswith("diff") else 0), f"treadle {words} gives {code}"
    plain = PAGE_SIZE.sub(r"\1 (N MiB)", SECONDS.sub("N s", out.getvalue()))
    lines = [line.rstrip() for line in plain.splitlines()]
    shown = len(lines) if words.startswith(WHOLE) else SHOWN
    return "\n".join([*lines[:shown], *(["..."] if len(lines) > shown else [])]) + "\n"


def written_anew(text: str) -> str:
    """The tour with the answers that the commands give now."""
    with tempfile.TemporaryDirectory() as folder:
        for path in SEEDS.glob("*.txt"):
            os.symlink(path, Path(folder, f"{path.name[:3]}.txt"))
        before = os.getcwd()
        os.chdir(folder)
        try:
            return CONSOLE.sub(lambda m: f"{m[1]}{printed(m[2])}{m[4]}", text)
        finally:
            os.chdir(before)


def test_the_tour_says_what_the_commands_print() -> None:
    if not list(SEEDS.glob("00[0-3]_*.txt")):
        pytest.skip("the seed documents are not beside this checkout")
    text = TOUR.read_text("utf-8")
    assert len(CONSOLE.findall(text)) >= 7
    assert written_anew(text) == text


def test_the_pictures_of_the_tour_are_what_the_page_draws() -> None:
    from tour_pictures import DRAWN, PICTURES, chromium_path, pictures

    shown = re.findall(r"\(pictures/(\S+\.svg)\)", TOUR.read_text("utf-8"))
    assert sorted(shown) == sorted(DRAWN)
    seeds = sorted(SEEDS.glob("001_*.txt"))
    if not seeds or chromium_path() is None:
        pytest.skip("no seed documents beside this checkout, or no Chromium to draw with")
    for name, text in pictures(seeds[0]):
        assert text == (PICTURES / name).read_text("utf-8"), f"{name}: run tour_pictures.py"


@pytest.mark.torch
def test_the_example_of_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    (code,) = re.findall(r"```python\n(.*?)```", TOUR.read_text("utf-8"), re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "tour.md", "exec"), {})
    assert (tmp_path / "model.html").stat().st_size > 10_000


if __name__ == "__main__":
    TOUR.write_text(written_anew(TOUR.read_text("utf-8")), "utf-8")
    sys.exit(0)
