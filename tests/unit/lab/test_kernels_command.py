"""`treadle kernels`: the same bytes as `schedule`, one kernel in full, a target that counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.core.suggest import suggestion_notes
from treadle.ir.text import parse_program, show_program
from treadle.lab.cli import main

CORPUS = Path(__file__).parents[2] / "corpus" / "inductor"
DUMPS = sorted(CORPUS.glob("*.post.txt"))
SEEDS = sorted((Path(__file__).parents[4] / "shared" / "seeds").glob("00[0-3]_*.txt"))
KEYS = {"name", "kind", "ops", "nests", "bytes_loaded", "bytes_stored", "predicted_us"}


def data_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("path", [*DUMPS, *SEEDS], ids=lambda p: p.stem)
def test_kernels_move_the_bytes_that_schedule_reports(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = data_of(capsys, "kernels", str(path))
    after = data_of(capsys, "schedule", str(path))["after"]
    assert shown["totals"]["bytes_moved"] == after["bytes_moved"]
    assert shown["totals"]["kernels"] == len(shown["kernels"]) == after["kernels"]
    for row in shown["kernels"]:
        assert set(row) == KEYS
    rows = shown["kernels"]
    assert shown["totals"]["bytes_moved"] == sum(
        r["bytes_loaded"] + r["bytes_stored"] for r in rows
    )
    if not shown["kept_given"]:
        # What was fused is one nest: nothing that counts as internal lies in memory.
        assert {r["nests"] for r in rows if r["kind"] in ("loop", "fused")} <= {1}


def test_one_kernel_is_shown_with_its_body(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(next(p for p in DUMPS if p.name.startswith("softmax")))
    (row, *_) = data_of(capsys, "kernels", path)["kernels"]
    assert main(["kernels", path, "--only", row["name"]]) == 0
    text = capsys.readouterr().out
    assert f"launch {row['name']} on " in text
    assert main(["kernels", path, "--only", "nobody"]) == 2
    assert "there is no kernel 'nobody'" in capsys.readouterr().err


def test_a_mistyped_name_among_many_is_answered_in_short() -> None:
    known = [f"kernel_{k:03d}" for k in range(200)]
    close, listed = suggestion_notes("kernl_007", known, "kernels")
    assert close.startswith("did you mean: kernel_")
    assert listed.endswith("kernel_023 and 176 more")


def test_the_target_decides_the_time_and_an_unknown_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(CORPUS / "gpu_loops_split_again.txt")
    times = {
        t: data_of(capsys, "kernels", path, "--target", t)["totals"]["predicted_us"]
        for t in ("a100", "h200")
    }
    assert times["a100"] > times["h200"]
    assert main(["kernels", path, "--target", "h2000"]) == 2
    assert "unknown target 'h2000'" in capsys.readouterr().err


def test_the_program_of_kernels_is_written_and_reads_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "built.txt"
    path = str(next(p for p in DUMPS if p.name.startswith("softmax")))
    assert main(["kernels", path, "-o", str(out)]) == 0
    text = out.read_text()
    assert "launch " in text
    assert show_program(parse_program(text)) == text
    assert main(["check", str(out)]) == 0
