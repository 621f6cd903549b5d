"""A few hundred cases of the command fuzzer, always the same ones; see it for long runs."""

from __future__ import annotations

from collections import Counter

import pytest
from command_fuzzer import Failure, HangError, fuzz, run, time_limit

CASES = 150
SEEDS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def found() -> tuple[list[Failure], Counter[str]]:
    failures: list[Failure] = []
    ends: Counter[str] = Counter()
    for seed in SEEDS:
        more, counts = fuzz(0, CASES, seed)
        failures += more
        ends += counts
    return failures, ends


def test_no_command_loses_its_head_over_a_damaged_file(
    found: tuple[list[Failure], Counter[str]],
) -> None:
    failures, ends = found
    assert not failures, "\n".join(f"case {f.case}: {f.words}\n{f.what}" for f in failures)
    assert sum(ends.values()) == CASES * len(SEEDS)


def test_the_cases_reach_every_command_and_every_end(
    found: tuple[list[Failure], Counter[str]],
) -> None:
    ends = found[1]
    commands = {end.partition(" ")[0] for end in ends}
    assert {"check", "show", "schedule", "plan", "export", "why", "diff", "replay"} <= commands
    for command in ("check", "show", "schedule", "plan", "export"):
        assert {f"{command} 0", f"{command} 1", f"{command} 2"} <= set(ends), command


def test_the_fuzzer_sees_what_it_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(args: object) -> int:
        raise KeyError("buf7")

    def endless(args: object) -> int:
        while True:
            pass

    monkeypatch.setattr("command_fuzzer.run_command", broken)
    end, what = run(["env"])
    assert end == "traceback"
    assert "KeyError: 'buf7'" in str(what)
    monkeypatch.setattr("command_fuzzer.run_command", endless)
    end, what = run(["env"], seconds=0.2)
    assert end == "hang"
    with pytest.raises(HangError), time_limit(0.1):
        endless(None)
