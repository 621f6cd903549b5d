"""Two schedules on one page: what every change cost adds up to the difference of the totals."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_tools import command, data_of, seed, walked

from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.lab.demo_program import demo_program

KINDS = {"same", "moved", "rewritten", "fused", "split", "regrouped", "only in A", "only in B",
         "fewer operations", "more operations"}  # fmt: skip


@pytest.mark.parametrize("number", ["demo", "000", "001", "003"])
def test_what_the_changes_cost_adds_up_to_the_totals(
    number: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "given.txt"
    given.write_text(show_program(demo_program()))
    source = given if number == "demo" else seed(number)
    ours, out = tmp_path / "ours.txt", tmp_path / "diff.html"
    command(capsys, "schedule", source, "-o", ours)
    said = command(capsys, "diff", source, ours, "-o", out, code=0 if number == "003" else 1)
    shown = data_of(out)
    for side, word in enumerate(("before", "after")):
        for key in ("kernels", "bytes_moved", "peak_bytes", "peak_lower_bound"):
            assert shown["totals"][key][side] == said[word][key]
        which = "ab"[side]
        assert sum(r[which]["launches"] for r in shown["changes"]) == said[word]["kernels"]
        assert sum(r[which]["bytes"] for r in shown["changes"]) == said[word]["bytes_moved"]
        assert sum(r[which] for r in shown["peak"]["rows"]) == said[word]["peak_bytes"]
        assert shown["memory"][side]["peak_bytes"] == said[word]["peak_bytes"]
    after, before = said["after"], said["before"]
    parts = {"launches": "kernels", "bytes": "bytes_moved"}
    for part, total in parts.items():
        assert sum(kind[part] for kind in said["changes"]) == after[total] - before[total]
    assert sum(g["bytes"] for g in said["peak"]) == after["peak_bytes"] - before["peak_bytes"]
    assert said["changes"] == shown["summary"]
    assert {row["what"] for row in shown["changes"]} <= KINDS
    seen = walked(out, "#changes", "#peaks", "#memory")
    assert seen["links"] == ["#changes", "#peaks", "#memory"]
    assert f"{said['before']['bytes_moved']:,}" in seen["#changes"]


def test_every_launch_is_in_exactly_one_change(tmp_path: Path) -> None:
    ours, out = tmp_path / "ours.txt", tmp_path / "diff.html"
    assert main(["schedule", str(seed("001")), "-o", str(ours)]) == 0
    assert main(["diff", str(seed("001")), str(ours), "-o", str(out)]) == 1
    shown = data_of(out)
    for which in "ab":
        names = [name for row in shown["changes"] for name in row[which]["names"]]
        assert len(names) == len(set(names))
    stayed = [row for row in shown["changes"] if row["what"] in ("same", "moved")]
    assert all(row["a"]["bytes"] == row["b"]["bytes"] for row in stayed)
    fused = [row for row in shown["changes"] if row["what"] == "fused"]
    assert all(len(row["a"]["names"]) > 1 == len(row["b"]["names"]) for row in fused)


def test_a_program_against_itself_has_no_change(tmp_path: Path) -> None:
    given, out = tmp_path / "given.txt", tmp_path / "diff.html"
    given.write_text(show_program(demo_program()))
    assert main(["diff", str(given), str(given), "-o", str(out)]) == 0
    assert {row["what"] for row in data_of(out)["changes"]} == {"same"}


def test_journals_have_no_page_to_compare_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, journal = tmp_path / "given.txt", tmp_path / "j.jsonl"
    given.write_text(show_program(demo_program()))
    assert main(["schedule", str(given), "--journal", str(journal)]) == 0
    out = tmp_path / "diff.html"
    assert main(["diff", str(journal), str(journal), "-o", str(out)]) == 2
    assert "a page compares programs and dumps" in capsys.readouterr().err
    assert not out.exists()


def test_the_text_says_where_traffic_and_peak_went(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = tmp_path / "ours.txt"
    given = tmp_path / "given.txt"
    given.write_text(show_program(demo_program()))
    assert main(["schedule", str(given), "-o", str(ours)]) == 0
    totals = command(capsys, "diff", given, ours, code=1)
    assert main(["diff", str(given), str(ours)]) == 1
    told = capsys.readouterr().out
    saved = totals["after"]["bytes_moved"] - totals["before"]["bytes_moved"]
    together = [line.split() for line in told.splitlines() if line.startswith("  together")]
    assert f"{saved:,}" in together[0]
    peak = totals["after"]["peak_bytes"] - totals["before"]["peak_bytes"]
    assert len(together) == (2 if peak else 1)
    assert "the largest:" in told
