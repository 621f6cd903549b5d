"""`treadle schedule --comm` and `treadle simulate`: figures, traces, clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from treadle.ir.text import parse_program, show_program
from treadle.lab.cli import main
from treadle.lab.demo_program import demo_program
from treadle.schedule.overlap import exact
from treadle.testing.fsdp_programs import fsdp_program


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "fsdp.txt"
    path.write_text(show_program(fsdp_program(1, 8, 1024, 2048)))
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main([*words, "--json"]) == 0
    data: dict[str, object] = json.loads(capsys.readouterr().out)
    return data


def test_ranks_of_groups_are_written_and_read_back() -> None:
    text = show_program(fsdp_program(1, 64, 256, 64))
    assert 'group "fsdp" ranks 0..63' in text
    assert show_program(parse_program(text)) == text
    for written in ("ranks (0, 8, 3)", "ranks 0..24 by 8"):
        again = text.replace("ranks 0..63", written)
        assert show_program(parse_program(again)) == again
    for bad, words in (("0..", "the last rank"), ("(1, 1)", "each once"), ("0..8 by 0", "at most")):
        with pytest.raises(Exception, match=words):
            parse_program(text.replace("ranks 0..63", f"ranks {bad}"))


def test_schedule_says_what_communication_costs_before_and_after(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = said(capsys, "schedule", file, "--comm", "model", "--hardware", "h100-8")
    comm = data["comm"]
    assert isinstance(comm, dict)
    assert (comm["hardware"], comm["world"]) == ("h100-8", 8)
    before, after = comm["before"], comm["after"]
    assert before["makespan_us"] > after["makespan_us"] >= after["bound_us"]
    assert before["exposed_comm_us"] > after["exposed_comm_us"]
    assert after["overlap"] >= 0.9
    assert main(["schedule", file, "--comm", "simple", "--hardware", "h100-8"]) == 0
    out = capsys.readouterr().out
    assert "makespan_us" in out
    assert "communication on h100-8, 8 ranks" in out


def test_without_being_asked_schedule_says_nothing_of_links(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "comm" not in said(capsys, "schedule", file)


def test_the_trace_has_lanes_of_streams_and_channels_before_and_after(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace.json"
    words = ["schedule", file, "--comm", "model", "--hardware", "h100-8", "--trace", str(out)]
    comm = said(capsys, *words)["comm"]
    assert isinstance(comm, dict)
    events = json.loads(out.read_text())["traceEvents"]
    lanes = {(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    both = {"stream cuda:0", "channel fsdp/nvlink"}
    assert lanes == {(pid, lane) for pid in (1, 2) for lane in both}
    for pid, word in ((1, "before"), (2, "after")):
        spans = [e for e in events if e["ph"] == "X" and e["pid"] == pid]
        assert max(e["ts"] + e["dur"] for e in spans) == pytest.approx(
            comm[word]["makespan_us"], abs=0.01
        )
        lane: dict[int, float] = {}
        for e in sorted(spans, key=lambda e: (e["tid"], e["ts"])):
            assert e["ts"] >= lane.get(e["tid"], 0.0) - 1e-6  # one thing at a time
            lane[e["tid"]] = e["ts"] + e["dur"]
    assert any(e["ph"] == "C" and e["args"]["bytes"] > 0 for e in events)


def test_buckets_are_made_if_asked(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["schedule", file, "--comm", "model", "--hardware", "h100-8x64", "--policy", "fast"]
    comm = said(capsys, *words, "--bucket", "8MiB")["comm"]
    assert isinstance(comm, dict)
    assert comm["after"]["collectives"] < comm["before"]["collectives"]
    assert main([*words, "--bucket", "some"]) == 2
    assert "--bucket cannot be 'some'" in capsys.readouterr().err


def test_bytes_in_flight_are_bounded_if_asked(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["schedule", file, "--comm", "model", "--hardware", "h100-8x64", "--policy", "fast"]
    free, bounded = [said(capsys, *words, *rest)["comm"] for rest in ([], ["--in-flight", "16MiB"])]
    assert isinstance(free, dict)
    assert isinstance(bounded, dict)
    assert free["after"]["in_flight_bytes"] > 16 << 20 >= bounded["after"]["in_flight_bytes"]
    assert bounded["before"]["exposed_comm_us"] > bounded["after"]["exposed_comm_us"]
    assert main([*words, "--in-flight", "much"]) == 2
    assert "--in-flight cannot be 'much': expected bytes" in capsys.readouterr().err


def test_kernels_between_a_collective_and_its_wait_are_bounded_if_asked(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["schedule", file, "--comm", "model", "--hardware", "h100-8", "--policy", "fast"]
    free, bounded = [said(capsys, *words, *rest)["comm"] for rest in ([], ["--prefetch", "1"])]
    assert isinstance(free, dict)
    assert isinstance(bounded, dict)
    assert free["after"]["in_flight_kernels"] > 1 >= bounded["after"]["in_flight_kernels"]
    assert bounded["after"]["makespan_us"] >= free["after"]["makespan_us"]
    assert main([*words, "--prefetch", "-1"]) == 2
    assert "prefetch cannot be -1" in capsys.readouterr().err


def test_simulate_says_where_a_job_stops_scaling_and_why(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", file, "--comm", "model", "--hardware", "h100-8", "--worlds", "64,8,4096"]
    data = said(capsys, *words)
    rows = data["worlds"]
    assert isinstance(rows, list)
    assert [row["world"] for row in rows] == [8, 64, 4096]
    assert rows[0]["makespan_us"] < rows[1]["makespan_us"] < rows[2]["makespan_us"]
    stops = data["stops"]
    assert isinstance(stops, dict)
    assert stops["world"] == 64
    assert "more than all compute" in stops["why"]
    few = said(capsys, "simulate", file, "--hardware", "h100-8", "--worlds", "4096,8192")
    assert isinstance(few["stops"], dict)
    assert "latency" in few["stops"]["why"]
    assert main(["simulate", file, "--hardware", "h100-8", "--worlds", "8"]) == 0
    assert "scales to the last of these" in capsys.readouterr().out


def test_what_cannot_be_simulated_is_one_line(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = tmp_path / "demo.txt"
    plain.write_text(show_program(demo_program()))
    for words, code in (
        (["simulate", str(plain)], "COL009"),
        (["simulate", file, "--hardware", "h1000-8"], "COL007"),
        (["simulate", file, "--worlds", "8,many"], "OPT002"),
        (["schedule", file, "--comm", "model", "--world", "0"], "OPT002"),
    ):
        assert main(words) == 2
        assert code in capsys.readouterr().err


def test_what_a_pass_is_asked_for_wrongly_is_bad_usage_and_leaves_no_reproducer(
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exact, "is_available", lambda: False)
    monkeypatch.setattr(exact, "LARGEST_EXACT", 1000)
    for words, code in (
        (["--comm", "model", "--hardware", "h1000-8"], "COL007"),
        (["--comm", "exact", "--hardware", "h100-8"], "COL010"),
        (["--bucket", "auto", "--hardware", "h1000-8"], "COL007"),
        (["--comm", "model", "--hardware", "h100-8x2", "--world", "64"], "COL007"),
    ):
        assert main(["schedule", file, *words]) == 2
        assert code in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["fsdp.txt"]
