"""`treadle schedule` says what is worse than in the file's own schedule, and gives nothing that is
worse and nowhere better."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from treadle.analysis.accounting import DUMP, OURS, Figures, figures
from treadle.frontends.inductor_dump import import_program, read_dump, unpacked
from treadle.lab.cli import main
from treadle.lab.given_or_new import JUDGED, ScheduleChoice, choose, explain_worse
from treadle.schedule.policy import POLICIES

CORPUS = Path(__file__).parents[2] / "corpus" / "inductor"
DUMPS = sorted(CORPUS.glob("*.post.txt"))


def schedule(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[dict[str, Any], str]:
    assert main(["schedule", *args, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert main(["schedule", *args]) == 0
    return data, capsys.readouterr().out


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("path", DUMPS, ids=lambda p: p.name.removesuffix(".post.txt"))
def test_what_is_worse_is_said_and_never_for_nothing(
    path: Path, policy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data, text = schedule(capsys, str(path), "--policy", policy)
    before, after = data["before"], data["after"]
    worse = {name for name in JUDGED if after[name] > before[name]}
    assert {row["figure"] for row in data["worse"]} == worse
    assert text.count("worse than the file's own schedule: ") == len(worse)
    if worse:
        assert any(after[name] < before[name] for name in JUDGED), "worse, and nowhere better"
    for row in data["worse"]:
        assert (row["before"], row["after"]) == (before[row["figure"]], after[row["figure"]])
        assert row["reason"]
        assert row["reason"] in text
    assert ("the file's own schedule is kept" in text) == data["kept_given"]


def test_the_policy_that_is_named_does_not_do_it(capsys: pytest.CaptureFixture[str]) -> None:
    seen = 0
    for path in DUMPS:
        for policy in ("memory", "inductor"):
            data, _ = schedule(capsys, str(path), "--policy", policy)
            for row in data["worse"]:
                if row["policy"] is None:
                    continue
                other, _ = schedule(capsys, str(path), "--policy", row["policy"])
                assert other["after"][row["figure"]] <= row["before"]
                seen += 1
    assert seen >= 2, "no dump of the corpus shows it any more: add one that does"


def test_the_files_own_schedule_is_kept_written_saved_and_replayed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(CORPUS / "gpu_combined.txt")
    saved, out = tmp_path / "s.json", tmp_path / "out.txt"
    arguments = [path, "--policy", "memory", "--save", str(saved), "-o", str(out)]
    data, text = schedule(capsys, *arguments)
    assert data["kept_given"]
    assert data["after"] == data["before"]
    assert "is nowhere better (kernels 1 -> 3)" in text
    given = import_program(read_dump(path)).program
    assert main(["show", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"] == figures(given, OURS).kernels
    again, _ = schedule(capsys, path, "--replay", str(saved))
    assert again["after"]["kernels"] == data["after"]["kernels"]


def test_a_schedule_that_was_asked_for_is_given_and_what_is_worse_is_said() -> None:
    given = import_program(read_dump(str(CORPUS / "gpu_combined.txt"))).program
    flat = unpacked(given)
    choice = choose(given, flat, flat, DUMP, is_asked_for=True)
    assert not choice.kept_given
    assert choice.worse() == ["kernels"]
    tried: list[str] = []

    def under(policy: str) -> Figures:
        tried.append(policy)
        return choice.given

    (row,) = explain_worse(choice, choice.new, {}, "balanced", under)
    assert (row.reason, row.policy) == ("the saved schedule says so", "balanced")
    assert sorted(tried) == sorted(POLICIES)


def test_equal_is_not_worse_and_a_trade_is_a_choice() -> None:
    given = import_program(read_dump(str(CORPUS / "gpu_combined.txt"))).program
    same = choose(given, given, given, DUMP)
    assert not same.kept_given
    assert same.worse() == []
    base = same.given
    trade = ScheduleChoice(
        given, False, base, replace(base, kernels=base.kernels + 1, peak_bytes=1)
    )
    (row,) = explain_worse(trade, base, {}, "balanced", lambda _: trade.new)
    assert row.policy is None
    assert f"peak {base.peak_bytes:,} -> 1" in row.line()
    assert "no policy does without it" in row.line()


def test_show_and_schedule_count_one_file_alike(capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted(CORPUS.glob("*.txt")):
        if path.name.endswith(("log.txt",)):
            continue
        assert main(["show", str(path), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert main(["schedule", str(path), "--json"]) == 0
        before = json.loads(capsys.readouterr().out)["before"]
        for name in ("ops", "kernels", "bytes_moved", "peak_bytes", "peak_at", "peak_lower_bound"):
            assert shown[name] == before[name], (path.name, name)
        assert shown["counted_as_inductor"] == before["counted_as_inductor"]
