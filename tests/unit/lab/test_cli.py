"""The treadle command: what it prints, its JSON keys, its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.text import parse_program, show_program
from treadle.lab.cli import COMMANDS, main
from treadle.lab.commands import demo
from treadle.lab.demo_program import demo_program
from treadle.schedule.reproducer import write_reproducer


@pytest.fixture
def program_file(tmp_path: Path) -> str:
    file = tmp_path / "demo.txt"
    file.write_text(show_program(demo_program()))
    return str(file)


def test_demo_of_a_program_runs_and_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--program"]) == 0
    out = capsys.readouterr().out
    for words in (
        "20 rules hold",
        "norm_apply after norm_scale",
        "live ranges",
        "all results agree",
    ):
        assert words in out
    assert len(out.splitlines()) < 40
    assert main(["demo", "--program", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is True
    assert data["note"] is None
    assert data["peak_bytes"] == 197_888
    assert max(data["max_error"].values()) < 1e-6


def test_demo_without_torch_says_so_and_shows_the_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert main(["demo"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("torch is not installed (pip install 'treadle[torch]')")
    assert "all results agree" in out
    assert main(["demo", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["kind"] == "program"
    assert "torch is not installed" in data["note"]


def test_show(program_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", program_file]) == 0
    out = capsys.readouterr().out
    assert "program demo: 4 operations (4 Loop), 4 kernels" in out
    assert "1 mutations" in out
    assert main(["show", program_file, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ops"] == 4
    assert data["peak_at"] == "norm_apply"
    assert data["peak_lower_bound"] <= data["peak_bytes"]
    assert data["dependences"] == {"RAW": 3, "WAR": 0, "WAW": 0, "CONTROL": 0}
    assert data["mutations"] == 1


def test_show_says_how_exact_the_code_must_be(
    program_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(program_file)
    text = path.read_text()
    assert main(["show", program_file]) == 0
    assert "numerics" not in capsys.readouterr().out
    path.write_text(text.replace("\ninputs ", "\nnumerics f32, contract\ninputs ", 1))
    assert main(["show", program_file]) == 0
    assert "numerics        f32, contract\n" in capsys.readouterr().out
    assert main(["show", program_file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["numerics"] == "f32, contract"


def test_show_of_a_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = Journal()
    journal.emit("pass", name="a", changed=True)
    journal.write(tmp_path / "j.jsonl")
    assert main(["show", str(tmp_path / "j.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "journal"


def test_check_accepts_what_treadle_wrote(
    program_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", program_file, program_file, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is True
    assert data["errors"] == []
    assert len(data["files"]) == 2


def test_check_reports_broken_rules_with_exit_1_and_odd_form_in_a_note(
    program_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(program_file)
    text = file.read_text()
    file.write_text(text.replace("load w[i1]", "load w[i1 + 1]"))
    assert main(["check", program_file]) == 1
    assert "IR012 at norm_apply" in capsys.readouterr().out
    file.write_text(text.replace("load w[i1]", "load w[0 + i1]"))
    assert main(["check", program_file]) == 0
    assert "note: line 29 is not in standard form: '%3 = load w[0 + i1]'" in capsys.readouterr().out
    file.write_text("# a comment is fine\n" + text)
    assert main(["check", program_file]) == 0


def test_schedule_writes_the_program_and_the_journal(
    program_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, journal = tmp_path / "out.txt", tmp_path / "j.jsonl"
    command = ["schedule", program_file, "-o", str(out), "--journal", str(journal), "--json"]
    assert main(command) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["before"]["kernels"], data["after"]["kernels"]) == (4, 1)
    assert [p["name"] for p in data["passes"]][-1] == "state-parameters"
    assert data["partitions"] == data["fewest_partitions"] == 1
    assert "fused sum_max_exp_0 on cpu {" in out.read_text()
    parse_program(out.read_text())
    assert len(list(Journal.read(journal).events("pass"))) == len(data["passes"])


def test_why_names_direct_dependences_chains_and_freedom(
    program_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", program_file, "norm_scale", "norm_apply"]) == 0
    assert "norm_apply after norm_scale: reads scale" in capsys.readouterr().out
    assert main(["why", program_file, "update", "norm_scale"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("one kernel: ")
    assert "\n\nno direct dependence; a chain of 3:\n" in out
    assert out.splitlines()[6] == "update after softmax: reads probs, version 1, written there"
    assert main(["why", program_file, "update", "norm_scal"]) == 2
    assert "norm_scale" in capsys.readouterr().err


def test_why_says_when_nothing_orders_two_operations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "free.txt"
    file.write_text("""treadle 1
program free
outputs a, b

buffer a : f32[] on cpu
buffer b : f32[] on cpu

loop one on cpu {
  %0 = constant 1.0 f32
  store a[0] = %0
}

loop two on cpu {
  %0 = constant 2.0 f32
  store b[0] = %0
}
""")
    assert main(["why", str(file), "one", "two"]) == 0
    assert "nothing orders one and two" in capsys.readouterr().out


def test_explain_and_env(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "IR012"]) == 0
    assert "not provably inside" in capsys.readouterr().out
    assert main(["explain"]) == 0
    assert "CERT001" in capsys.readouterr().out
    assert main(["explain", "IR099"]) == 2
    assert "IR0" in capsys.readouterr().err
    assert main(["env", "--json"]) == 0
    names = [o["name"] for o in json.loads(capsys.readouterr().out)["options"]]
    assert "check" in names


def test_replay_of_something_mended_and_of_something_still_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fine = write_reproducer(str(tmp_path), demo_program(), ["merge-loops"], Options(), "old")
    assert main(["replay", fine]) == 0
    assert "1 of 1 passes ran, all are fine now" in capsys.readouterr().out
    program = demo_program()
    broken = program.with_ops(program.ops[1:])
    still = write_reproducer(str(tmp_path), broken, ["merge-loops"], Options(), "x")
    assert main(["replay", still]) == 1
    assert "IR015" in capsys.readouterr().out
    unknown = write_reproducer(str(tmp_path), program, ["gone"], Options(), "x")
    assert main(["replay", unknown]) == 2
    assert "among split-collectives, bucket-collectives, drop-dead-ops" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, expected",
    [
        (b"", "a dump or a memory problem, found an empty file"),
        (b"op0; SchedulerNode(ComputedBuffer)\n", "found 'op0; SchedulerNode(ComputedBuffer)'"),
        (b"\x89PNG\r\n", "expected UTF-8 text, found byte 0x89 at offset 0"),
        (b"treadle 1\nprogram p\nbuffer", "3:7: expected a buffer name"),
    ],
)
@pytest.mark.parametrize("command", ["show", "check", "schedule"])
def test_bad_input_gets_one_line_and_exit_2(
    command: str,
    content: bytes,
    expected: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "bad"
    file.write_bytes(content)
    assert main([command, str(file)]) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert len(err.splitlines()) == 1


def test_a_missing_file_gets_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "no/such/file"]) == 2
    assert capsys.readouterr().err == (
        "no/such/file: expected a readable file, found No such file or directory [TXT002]\n"
    )


def test_an_unsound_program_is_refused_by_analyses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.txt"
    program = demo_program()
    file.write_text(show_program(program.with_ops(program.ops[1:])))
    for command in (["show", str(file)], ["schedule", str(file)]):
        assert main(command) == 1
        assert "IR015" in capsys.readouterr().err


def test_usage_errors_exit_with_2() -> None:
    for argv in (["frobnicate"], ["show"], ["show", "a", "--frob"]):
        with pytest.raises(SystemExit) as e:
            main(argv)
        assert e.value.code == 2


def test_the_module_runs_as_a_program() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "treadle", "--help"], capture_output=True, text=True, check=True
    )
    assert all(name in found.stdout for name in COMMANDS)


def test_json_is_printed_for_bad_input_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "no/such/file", "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert "TXT002" in data["errors"][0]


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    program_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for bad in (str(tmp_path), str(tmp_path / "none" / "out.txt")):
        assert main(["schedule", program_file, "-o", bad]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "expected a file in a folder that exists" in err


def test_why_needs_two_operations(program_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", program_file, "update", "update"]) == 2
    assert "name two different ones" in capsys.readouterr().err


OWN_PASS = """
def drop_all(program, ctx):
    return program.with_ops(())
"""


def test_a_pass_of_ones_own_can_be_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_passes.py").write_text(OWN_PASS)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = write_reproducer(str(tmp_path), demo_program(), ["drop-all"], Options(), "x")
    assert main(["replay", file]) == 2
    assert "name your own with --pass" in capsys.readouterr().err
    assert main(["replay", file, "--pass", "my_passes:drop_all"]) == 1
    assert "IR015 at probs: output probs is never written" in capsys.readouterr().out
    assert main(["replay", file, "--pass", "my_passes:gone"]) == 2
    assert main(["replay", file, "--pass", "no_such_module:f"]) == 2


def test_run_time_sizes_are_shown_with_what_they_were_counted_as(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.txt"
    file.write_text(
        "treadle 1\nprogram p\ninputs x\n\nsize n in 2..9\n\nbuffer x : f32[n] on cpu\n"
    )
    assert main(["show", str(file)]) == 0
    out = capsys.readouterr().out
    assert "counted with n = 2" in out
    assert "(no operations)" in out
