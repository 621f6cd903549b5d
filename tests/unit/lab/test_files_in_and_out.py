"""Files in and out: plans in CSV are judged, inputs survive, endless and huge files are refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from treadle.analysis.cost import cost_model
from treadle.core import reading
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.ir.spec import Stage
from treadle.ir.text import show_program
from treadle.lab.cli import main
from treadle.lab.demo_program import demo_program
from treadle.lab.progress import progress
from treadle.schedule.failure import PipelineError
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes import PIPELINE
from treadle.schedule.pipeline import run_pipeline
from treadle.schedule.reproducer import KEPT_OPTIONS, read_reproducer, write_reproducer

CORPUS = Path(__file__).parents[2] / "corpus"
GOOD_PLAN = "id,lower,upper,size,offset\na,0,2,4,0\nb,1,3,6,4\n"
WRONG_PLAN = "id,lower,upper,size,offset\na,0,2,4,100\nb,1,3,6,101\n"


@pytest.fixture
def program_file(tmp_path: Path) -> str:
    file = tmp_path / "demo.txt"
    file.write_text(show_program(demo_program()))
    return str(file)


# ------------------------------------------------------------------------ memory problems


def test_check_reads_memory_problems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(GOOD_PLAN)
    assert main(["check", str(file)]) == 0
    assert "memory problem of 2 buffers; its plan of 10 bytes is valid" in capsys.readouterr().out
    file.write_text("id,lower,upper,size\na,0,2,4\n")
    assert main(["check", str(file)]) == 0
    file.write_text("id,lower,upper,size\na,2,0,4\n")
    assert main(["check", str(file)]) == 2


@pytest.mark.parametrize("command", ["check", "show", "plan"])
def test_a_plan_that_overlaps_is_exit_1(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.csv"
    file.write_text(WRONG_PLAN)
    finding = "MEM001 at b: [101, 107) of arena at time 1 overlaps a at [100, 104)"
    assert main([command, str(file)]) == 1
    assert finding in capsys.readouterr().out
    assert main([command, str(file), "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert finding in data["errors"][0]


def test_xla_plans_that_overlap_are_refused_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (CORPUS / "xla" / "loop.2025-05-buffer-assignment.txt").read_text()
    file = tmp_path / "x-buffer-assignment.txt"
    file.write_text(text)
    assert main(["check", str(file)]) == 0
    bad = text.replace("offset=", "offset=1", 1)
    assert bad != text
    file.write_text(bad)
    for command in ("check", "show", "plan", "schedule"):
        assert main([command, str(file)]) in (1, 2), command


def test_check_looks_at_all_files_even_if_one_cannot_be_read(
    program_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = tmp_path / "plan.csv"
    wrong.write_text(WRONG_PLAN)
    gone = str(tmp_path / "gone.txt")
    assert main(["check", gone, str(wrong), program_file]) == 2
    shown = capsys.readouterr()
    assert f"{gone}: expected a readable file" in shown.err
    assert "MEM001 at b" in shown.out
    assert f"{program_file}: ok, 4 operations" in shown.out
    assert main(["check", gone, str(wrong), program_file, "--json"]) == 2
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert len(data["errors"]) == 2


# ------------------------------------------------------------------------------- outputs

WRITERS = (
    ["export", "{}", "-o", "{out}"],
    ["schedule", "{}", "-o", "{out}"],
    ["schedule", "{}", "--save", "{out}"],
    ["schedule", "{}", "--journal", "{out}"],
    ["plan", "{}", "-o", "{out}"],
    ["plan", "{}", "--svg", "{out}"],
)


@pytest.mark.parametrize("command", WRITERS, ids=lambda c: f"{c[0]} {c[2]}")
@pytest.mark.parametrize("how", ["name", "symlink", "hardlink", "detour"])
def test_no_output_overwrites_the_input_by_surprise(
    command: list[str],
    how: str,
    program_file: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = {"name": program_file, "detour": str(tmp_path / "." / "demo.txt")}.get(how)
    if out is None:
        out = str(tmp_path / "link")
        (os.symlink if how == "symlink" else os.link)(program_file, out)
    before = Path(program_file).read_text()
    words = [word.format(program_file, out=out) for word in command]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "would overwrite the input" in error
    assert "TXT003" in error
    assert Path(program_file).read_text() == before
    assert main([*words, "--force"]) == 0
    assert Path(program_file).read_text() != before


def test_files_next_to_an_input_are_inputs_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("loop.2025-05-buffer-assignment.txt", "loop.2025-05.txt"):
        (tmp_path / name).write_text((CORPUS / "xla" / name).read_text())
    dump, hlo = tmp_path / "loop.2025-05-buffer-assignment.txt", tmp_path / "loop.2025-05.txt"
    assert main(["plan", str(dump), "-o", str(hlo)]) == 2
    assert "would overwrite the input" in capsys.readouterr().err


def test_two_outputs_need_two_names(program_file: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert main(["plan", program_file, "-o", out, "--svg", out]) == 2
    assert not os.path.exists(out)


@pytest.mark.parametrize("command", WRITERS, ids=lambda c: f"{c[0]} {c[2]}")
def test_an_output_onto_a_folder_gets_one_line(
    command: list[str], program_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.format(program_file, out=str(tmp_path)) for word in command]
    assert main(words) == 2
    assert "expected a file in a folder that exists, found a folder" in capsys.readouterr().err


# ---------------------------------------------------------------------------------- sizes

READERS = ("check", "show", "schedule", "plan", "export", "replay")


@pytest.mark.parametrize("command", READERS)
def test_an_endless_file_is_refused(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if not os.path.exists("/dev/zero"):
        pytest.skip("no endless file here")
    monkeypatch.setattr(reading, "MAX_BYTES", 1 << 20)
    assert main([command, "/dev/zero"]) == 2
    assert "expected a file of at most 1 MiB, found a larger one" in capsys.readouterr().err


def test_the_stated_size_is_said_and_met(tmp_path: Path) -> None:
    assert reading.MAX_BYTES == 256 << 20
    limits = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    assert "256 MiB" in limits


@pytest.mark.parametrize("content", [b"treadle 1\n\0\0", b"\0" * 100])
def test_zero_bytes_are_no_text(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f"
    file.write_bytes(content)
    assert main(["show", str(file)]) == 2
    assert "expected UTF-8 text, found a zero byte at offset" in capsys.readouterr().err


def test_files_next_to_a_dump_have_the_same_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "loop.2025-05-buffer-assignment.txt"
    (tmp_path / name).write_text((CORPUS / "xla" / name).read_text())
    (tmp_path / "loop.2025-05.txt").write_text("HloModule m\n" + " " * (1 << 20))
    monkeypatch.setattr(reading, "MAX_BYTES", 1 << 20)
    assert main(["show", str(tmp_path / name)]) == 2
    assert "at most 1 MiB" in capsys.readouterr().err


def test_an_endless_calibration_file_is_refused(
    program_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 1 << 20)
    monkeypatch.setenv("TREADLE_COST_FILE", "/dev/zero")
    assert main(["schedule", program_file]) == 2
    assert "at most 1 MiB" in capsys.readouterr().err


# -------------------------------------------------------------------------------- streams

STREAMS = {
    "no output": ("show {}", "1>&-", 0),
    "no messages": ("show {}", "2>&-", 0),
    "no input": ("show -", "<&-", 2),
    "a full disk": ("show {}", ">/dev/full", 2),
}


@pytest.mark.parametrize("name", STREAMS)
def test_closed_and_full_streams_give_no_traceback(name: str, program_file: str) -> None:
    command, redirection, code = STREAMS[name]
    words = command.format(program_file)
    line = f"{sys.executable} -m treadle {words} {redirection}"
    done = subprocess.run(
        line, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "bug" not in done.stderr


def test_names_that_the_screen_cannot_show_are_escaped(program_file: str) -> None:
    file = Path(program_file)
    file.write_text(re.sub(r"\bscale\b", '@"é"', file.read_text()), "utf-8")
    for command in ("show", "check", "schedule", "plan", "export"):
        done = subprocess.run(
            [sys.executable, "-m", "treadle", command, program_file],
            env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr


def test_a_bug_of_ours_is_one_message_and_not_a_traceback(
    program_file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(args: object) -> int:
        raise KeyError("buf7")

    monkeypatch.setattr("treadle.lab.cli.run_command", broken)
    assert main(["show", program_file, "--json"]) == 1
    shown = capsys.readouterr()
    assert "this is a bug in Treadle" in shown.err
    assert "KeyError in test_files_in_and_out.py" in json.loads(shown.out)["errors"][0]
    monkeypatch.setenv("TREADLE_DEBUG", "1")
    with pytest.raises(KeyError):
        main(["show", program_file])


# -------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    "words",
    [
        ["--seconds", "nan"],
        ["--seconds", "inf"],
        ["--seconds", "-1"],
        ["--seconds", "soon"],
        ["--steps", "-1"],
        ["--steps", "9" * 5000],
        ["--seed", "\N{FULLWIDTH DIGIT ONE}"],
        ["--alignment", "0"],
    ],
    ids=lambda w: " ".join(w)[:20],
)
def test_numbers_that_mean_nothing_are_refused(
    words: list[str], program_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["plan", program_file, *words])
    assert stopped.value.code == 2
    assert "expected a" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["[]", "1", '"x"', "null", '{"treadle_schedule": 1}',
                                  '{"treadle_schedule": 1, "program": "p", "structure": [1], '
                                  '"dropped": [], "rewritten": "", "buffers": []}',
                                  '{"treadle_schedule": 1, "program": "p", "structure": {"a": 1}, '
                                  '"dropped": 3, "rewritten": "", "buffers": []}',
                                  "[" * 100_000])  # fmt: skip
def test_a_schedule_of_the_wrong_shape_gets_one_line(
    text: str, program_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.json"
    file.write_text(text)
    assert main(["schedule", program_file, "--replay", str(file)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "bug" not in error


# ----------------------------------------------------------------------------- reproducers


def test_options_that_no_pass_reads_are_ignored_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "r.pkg"
    options = {"check": 2, "policy": "memory", "cc": "/bin/false", "cache_dir": "/nowhere",
               "cost_file": "/nowhere/costs.json", "dump": "/nowhere"}  # fmt: skip
    header = {"treadle_repro": 1, "passes": ["merge-loops"], "options": options, "error": "x"}
    file.write_text(json.dumps(header) + "\n" + show_program(demo_program()))
    repro = read_reproducer(str(file))
    assert repro.ignored == ("cc", "cache_dir", "cost_file", "dump")
    assert repro.options == Options(check=2, policy="memory")
    assert main(["replay", str(file)]) == 0
    shown = capsys.readouterr()
    for name in repro.ignored:
        assert f"warning: option {name} of {file} is ignored" in shown.err
    assert "1 of 1 passes ran" in shown.out


def test_a_reproducer_carries_what_passes_read_and_nothing_else(tmp_path: Path) -> None:
    options = Options(policy="fast", accounting="dump", cc="mycc", cache_dir="/x", cost_file="/y")
    path = write_reproducer(str(tmp_path), demo_program(), ["merge-loops"], options, "boom")
    header = json.loads(Path(path).read_text().partition("\n")[0])
    assert set(header["options"]) == set(KEPT_OPTIONS)
    assert read_reproducer(path).options == Options(policy="fast", accounting="dump")


def test_the_options_that_passes_read_are_the_ones_carried() -> None:
    root = Path(__file__).parents[3] / "src" / "treadle"
    read = {
        name
        for folder in ("schedule", "analysis")
        for file in (root / folder).rglob("*.py")
        for name in re.findall(r"options\.([a-z_]+)", file.read_text())
    }
    names = {row.name for row in Options().describe()}
    of_this_machine = {"cost_file", "dump", "dump_pass", "debug", "cache_limit"}
    assert read & names - of_this_machine == set(KEPT_OPTIONS)


def test_a_replay_says_how_many_passes_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = ["merge-loops", "drop-dead-ops", "merge-loops"]
    path = write_reproducer(
        str(tmp_path), demo_program(), passes, Options(stop_after=2), "stopped early"
    )
    assert main(["replay", path]) == 0
    assert "2 of 3 passes ran" in capsys.readouterr().out
    assert main(["replay", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["passes"], data["passes_run"]) == (3, 2)


def test_the_pass_that_failed_runs_again_even_if_it_only_follows_another_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    follows = next(k for k, p in enumerate(PIPELINE) if p.only_after is not None)
    names = [p.name for p in PIPELINE[follows:]]
    path = write_reproducer(str(tmp_path), demo_program(), names, Options(), "x")
    assert main(["replay", path, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    skipped = sum(p.only_after is not None for p in PIPELINE[follows + 1 :])
    assert data["passes_run"] == len(names) - skipped


def test_a_reproducer_stops_where_the_run_did(tmp_path: Path) -> None:
    def boom(program: Program, ctx: Ctx) -> Program:
        raise ValueError("boom")

    options = Options(stop_after=2, dump=str(tmp_path))
    passes = [PIPELINE[0], Pass("boom", boom, Stage.LOOPS), PIPELINE[1]]
    program = demo_program()
    with pytest.raises(PipelineError):
        run_pipeline(program, Ctx(options, cost_model(program, options), Journal()), passes)
    (file,) = tmp_path.glob("repro-*.pkg")
    repro = read_reproducer(str(file))
    assert (repro.passes, repro.options.stop_after) == (("boom", PIPELINE[1].name), 1)


# -------------------------------------------------------------------------------- waiting


class Terminal:
    """A stream that is a terminal; `used` once anything was written."""

    def __init__(self) -> None:
        self.written = ""
        self.used = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written += text
        self.used.set()
        return len(text)

    def flush(self) -> None:
        pass


PATIENCE_S = 60
"""For a thread that will come: how soon depends on what else the machine does."""


def test_long_work_shows_that_it_goes_on_and_cleans_up() -> None:
    screen = Terminal()
    with progress("treadle plan", screen, patience=0.01):  # type: ignore[arg-type]
        assert screen.used.wait(PATIENCE_S)
    assert re.match(r"\rtreadle plan: \d+ s \.\.\.", screen.written)
    assert screen.written.endswith("\r")
    assert not screen.written.split("\r")[-2].strip()


def test_what_is_printed_stands_behind_a_clean_beginning_of_the_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    with progress("treadle plan", screen, patience=0.01):  # type: ignore[arg-type]
        assert screen.used.wait(PATIENCE_S)
        print("the plan")
        time.sleep(0.05)
    before, _, after = screen.written.partition("the plan")
    assert re.match(r"\rtreadle plan: \d+ s \.\.\.", before)
    assert before.endswith(" \r")
    assert after == "\n"


def test_short_work_and_files_see_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Terminal()
    with progress("treadle plan", screen, patience=5):  # type: ignore[arg-type]
        pass
    assert screen.written == ""
    with progress("treadle plan", patience=0):
        time.sleep(0.01)
    assert capsys.readouterr().err == ""


def test_the_version_comes_at_once() -> None:
    command = [sys.executable, "-c", "from treadle.lab.cli import main; main(['--version'])"]
    best = 10.0
    for _ in range(5):  # CPU time: other tests run beside this one
        start = os.times()
        subprocess.run(command, check=True, capture_output=True)
        done = os.times()
        spent = done.children_user + done.children_system
        best = min(best, spent - start.children_user - start.children_system)
    assert best < 0.2
    probe = "import sys; from treadle.lab.cli import build_parser; build_parser(''); "
    probe += "print([m for m in sys.modules if m.startswith('treadle.lab.commands')])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
