"""A few hundred cases of the command fuzzer, always the same ones; see it for long runs."""

from __future__ import annotations

from collections import Counter

import pytest
from command_fuzzer import HangError, fuzz, run, time_limit

CASES = 150


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_no_command_loses_its_head_over_a_damaged_file(seed: int) -> None:
    failures, ends = fuzz(0, CASES, seed)
    assert not failures, "\n".join(f"case {f.case}: {f.words}\n{f.what}" for f in failures)
    assert sum(ends.values()) == CASES


def test_the_cases_reach_every_command_and_every_end() -> None:
    ends = sum([fuzz(0, CASES, seed)[1] for seed in (1, 2)], Counter())
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
