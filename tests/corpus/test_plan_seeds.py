"""Memory plans of real programs: what `treadle plan` must find in the seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.core.options import Options
from treadle.frontends.inductor_dump import import_program, read_dump
from treadle.lab.cli import main
from treadle.schedule.ordering.search import find_order

SHARED = Path(__file__).parents[2].parent / "shared"


def seed(prefix: str) -> Path:
    found = sorted((SHARED / "seeds").glob(f"{prefix}_*.txt"))
    if not found:
        pytest.skip(f"seed {prefix} is not beside the repository")
    return found[0]


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["ok"]
    return found


def test_the_large_seed_is_packed_without_a_hole(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, str(seed("001")))
    before, after = found["before"], found["after"]
    assert before["total_bytes"] == before["peak_bytes"] == 26_812_233_984
    assert before["peak_at"] == "op1012_op1015_op1030_op1033"
    assert after["total_bytes"] == after["peak_bytes"] == after["plan_lower_bound"]
    assert after["total_bytes"] == 23_523_899_648
    assert sum(row["bytes"] for row in found["breakdown"]) == found["peak_bytes"]


def test_the_small_seed_is_packed_without_a_hole(capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(capsys, str(seed("000")))
    assert found["before"]["total_bytes"] == found["before"]["peak_bytes"] == 2_080
    counted = planned(capsys, str(seed("000")), "--accounting", "inductor")
    assert counted["total_bytes"] == 2_080


def test_one_result_is_written_in_place_of_another(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "plan.csv"
    found = planned(capsys, str(seed("003")), "-o", str(out))
    assert found["total_bytes"] == found["plan_lower_bound"] == 1_114_112
    rows = {line.split(",")[0]: line for line in out.read_text().splitlines()}
    assert rows["buf1"].rpartition(",")[2] == rows["buf2"].rpartition(",")[2]
    packed = planned(capsys, str(seed("003")), "--outputs", "hosts")
    assert (packed["temp_bytes"], packed["total_bytes"]) == (0, 1_114_112)


def test_no_order_of_the_large_seed_meets_the_working_set_but_one_in_place_is_below_it() -> None:
    program = import_program(read_dump(str(seed("001")))).program
    counted = find_order(program, Options(accounting="dump"), seconds=None, tries=3000)
    # Nine storages of 23.43 GB are alive during one kernel in every order: 21.37 GB of operands,
    # and two that earlier kernels read and later ones need.
    assert counted.bound == 23_429_590_272
    assert counted.given_peak == 26_812_233_984
    assert counted.peak <= 1.005 * counted.bound


def test_a_better_order_in_place_is_below_what_was_aimed_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = planned(capsys, str(seed("001")), "--order", "--seconds", "3")
    assert found["total_bytes"] == found["peak_bytes"] < 21_000_000_000
    assert found["order"]["peak_lower_bound"] == 20_141_255_936
    assert found["order"]["peak_bytes"] == found["peak_bytes"]
