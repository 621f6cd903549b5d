"""`treadle check`, `treadle show` and `treadle plan` on XLA's files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from treadle.lab.cli import main
from treadle.lab.files import kind_of

CORPUS = Path(__file__).parents[2] / "corpus" / "xla"
SHARED = Path(__file__).parents[3].parent / "shared"
SMALL = CORPUS / "small.2024-11-buffer-assignment.txt"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def test_check_says_in_one_line_what_was_worked_out(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check", str(SMALL))
    assert code == 0
    assert out == (
        f"{SMALL}: ok, 10 operations; printed back byte for byte; re-derived 11 of 11 live ranges, "
        "14 of 14 uses, 14 of 14 sizes, 6 of 6 peak lines, 14 of 14 placements, 9 of 9 headers; "
        "total 1,332; peak at 4; XLA's plan is valid\n"
    )


def test_check_accepts_every_fixture(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(path) for path in sorted(CORPUS.glob("*.txt"))]
    code, out, _ = run(capsys, "check", *files)
    assert code == 0
    assert out.count(": ok, ") == len(files)


def test_check_accepts_the_seed_and_the_gathered_dumps(capsys: pytest.CaptureFixture[str]) -> None:
    found = [*SHARED.glob("seeds/002_*.txt"), *SHARED.glob("dumps/xla/*/*-buffer-assignment.txt")]
    if not found:
        pytest.skip("no XLA dumps beside the repository")
    code, out, _ = run(capsys, "check", "--json", *map(str, sorted(found)))
    data = json.loads(out)
    assert (code, data["ok"], data["errors"]) == (0, True, [])
    seeds = [file for file in data["files"] if "002_" in file["file"]]
    for seed in seeds:
        assert (seed["live_ranges"], seed["total_bytes"]) == (132, 1_093_622_736)
        assert (seed["peak_at"], seed["peak_bytes"]) == (158, 1_092_637_220)


def test_check_fails_on_a_difference_and_names_the_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = tmp_path / SMALL.name
    bad.write_text(SMALL.read_text("utf-8").replace("mul{}:3-6", "mul{}:3-5"), "utf-8")
    code, out, _ = run(capsys, "check", str(bad))
    assert code == 1
    assert f"{bad}:134: mul{{}} lives 3-5 as printed, 3-6 by its uses [XLA009]" in out


def test_check_of_a_cut_file_is_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bad = tmp_path / "cut.txt"
    bad.write_text(SMALL.read_text("utf-8")[:700], "utf-8")
    code, out, err = run(capsys, "check", str(bad))
    assert (code, out) == (2, "")
    assert err.startswith(f"{bad}:")
    assert err.count("\n") == 1


def test_check_notes_what_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = "small.2026-04-buffer-assignment.txt"
    shutil.copy(CORPUS / name, tmp_path / name)
    code, out, _ = run(capsys, "check", str(tmp_path / name))
    assert code == 0
    assert "no used values and no live ranges here or next to it" in out


def test_show_is_half_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", str(SMALL))
    assert code == 0
    lines = out.splitlines()
    assert len(lines) <= 20
    assert lines[0] == (
        "XLA buffer assignment small: 9 allocations, 14 values, 10 instructions, 11 live ranges, "
        "HLO text of 2 computations, a report of 21 lines"
    )
    assert "  temp              1               784  (784 B)" in lines
    assert "donated         1: parameter 1" in lines
    assert "tuple tables    2 with 32 bytes of pointers" in lines


def test_show_gives_the_real_peak_and_the_printed_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "--json", str(SMALL))
    data = json.loads(out)
    assert code == 0
    assert (data["peak_bytes"], data["peak_at"]) == (1044, "4 (pair)")
    assert (data["printed_peak"], data["printed_peak_at"]) == (564, 4)
    assert (data["temp_bytes"], data["temp_lower_bound"]) == (784, 784)
    assert data["total_bytes"] == 1332


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.2026-04*.txt")), ids=lambda p: p.stem)
def test_show_works_from_every_file_and_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, path: Path
) -> None:
    kind = kind_of(path.read_text("utf-8"))
    shutil.copy(path, tmp_path / path.name)
    for file in (path, tmp_path / path.name):
        code, out, _ = run(capsys, "show", "--json", str(file))
        assert code == 0
        assert json.loads(out)["kind"] == kind
        code, out, _ = run(capsys, "show", str(file))
        assert code == 0
        assert out


def test_plan_compares_with_the_plan_of_xla(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", str(SMALL), "--steps", "100")
    assert code == 0
    assert "scratch bytes     784    512" in out
    assert "saved 272 (272 B, 20.42 %); as low as can be" in out
    assert " of 5 temporaries live inside outputs or donated inputs" in out


def test_plan_of_the_seed_needs_no_scratch_memory(capsys: pytest.CaptureFixture[str]) -> None:
    seeds = sorted(SHARED.glob("seeds/002_*.txt"))
    if not seeds:
        pytest.skip("seed 002 is not beside the repository")
    code, out, _ = run(capsys, "plan", str(seeds[0]), "--json")
    data = json.loads(out)
    assert code == 0
    assert data["before"] == {
        "temp_bytes": 985_504,
        "total_bytes": 1_093_622_736,
        "plan_lower_bound": 1_092_637_232,
    }
    assert data["after"] == {
        "temp_bytes": 0,
        "total_bytes": 1_092_637_232,
        "plan_lower_bound": 1_092_637_232,
    }


def test_plan_over_the_capacity_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "plan", str(SMALL), "--steps", "100", "--capacity", "511")
    assert code == 1
    assert "scratch of 512 is over the capacity 511" in out


def test_plan_writes_its_problem_and_picture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table, picture = tmp_path / "plan.csv", tmp_path / "plan.svg"
    arguments = ["--steps", "100", "--map", "-o", str(table), "--svg", str(picture)]
    code, out, _ = run(capsys, "plan", str(SMALL), *arguments)
    assert code == 0
    assert len(out.splitlines()) > 10
    assert picture.read_text("utf-8").startswith("<svg")
    code, out, _ = run(capsys, "plan", str(table), "--json")
    assert (code, json.loads(out)["total_bytes"]) == (0, 512)


def test_plan_of_a_part_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    name = "small.2026-04-buffer-assignment.txt"
    shutil.copy(CORPUS / name, tmp_path / name)
    code, _, err = run(capsys, "plan", str(tmp_path / name))
    assert code == 2
    assert "expected allocations, used values and live ranges" in err
    assert err.count("\n") == 1
