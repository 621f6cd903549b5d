"""What real dumps claim follows from their loop bodies, layouts and mutations."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from treadle.frontends.inductor_dump import Rederivation, read_dump, rederive
from treadle.lab.cli import main

HERE = Path(__file__).parent
SHARED = HERE.parents[1].parent / "shared"
GATHERED = sorted(SHARED.glob("dumps/inductor/*/*.txt"))
FIXTURES = sorted((HERE / "inductor").glob("*.txt"))

# Loop nodes, fused headers, flags of node users.
SEEDS = {"000": (9, 3, 60), "001": (365, 95, 1628), "003": (2, 0, 3)}


def seed(number: str) -> Path:
    found = sorted(SHARED.glob(f"seeds/{number}_*.txt"))
    if not found:
        pytest.skip(f"seed {number} is not beside the repository")
    return found[0]


def sound(path: Path) -> Rederivation:
    result = rederive(read_dump(str(path)))
    assert [str(difference) for difference in result.differences] == []
    return result


@pytest.mark.parametrize("number", SEEDS)
def test_a_seed_is_derived_whole(number: str) -> None:
    result = sound(seed(number))
    counts = [result.checked[what] for what in ("loop_nodes", "fused_headers", "user_flags")]
    assert tuple(counts) == SEEDS[number]
    assert result.checked == result.total
    assert result.notes == []


def test_the_seeds_together() -> None:
    results = [sound(seed(number)) for number in SEEDS]
    totals = {what: sum(r.checked[what] for r in results) for what in results[0].checked}
    assert totals["loop_nodes"] == 376
    assert totals["fused_headers"] == 98
    assert totals["user_flags"] == 1691


@pytest.mark.skipif(not GATHERED, reason="the gathered dumps are not beside the repository")
@pytest.mark.parametrize("path", GATHERED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_gathered_dump_is_derived_whole(path: Path) -> None:
    result = sound(path)
    assert result.checked == result.total
    # Headers that are older than their members are a habit of this version, told once a file.
    assert [note.code for note in result.notes] in ([], ["IND017"])


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_a_fixture_has_no_difference(path: Path) -> None:
    result = sound(path)
    given = [note for note in result.notes if "not re-derived" in note.message]
    assert result.total["loop_nodes"] - result.checked["loop_nodes"] == len(given)
    assert all(note.code in ("IND017", "IND018") for note in result.notes)


def test_check_accepts_the_seeds_in_good_time(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(seed(number)) for number in SEEDS] + [str(path) for path in GATHERED]
    start = time.process_time()
    assert main(["check", *files]) == 0
    assert time.process_time() - start < 10
    assert "365 of 365 loop nodes, 95 of 95 fused headers" in capsys.readouterr().out
