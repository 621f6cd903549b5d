"""What a new user meets: help, examples, completion, standard input, sizes, colours."""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.text import show_program
from treadle.lab.cli import COMMANDS, build_parser, main
from treadle.lab.colour import painted
from treadle.lab.completion import SCRIPTS, describe
from treadle.lab.demo_program import demo_program
from treadle.lab.help import EXAMPLES
from treadle.schedule.reproducer import write_reproducer
from treadle.testing.fsdp_programs import fsdp_program

PROBLEM = "id,lower,upper,size\na,0,2,4096\nb,1,3,8192\n"


def subparsers() -> dict[str, argparse.ArgumentParser]:
    (found,) = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(found.choices)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the examples of the help speak of."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "program.txt").write_text(show_program(demo_program()))
    (tmp_path / "problem.csv").write_text(PROBLEM)
    (tmp_path / "fsdp.txt").write_text(show_program(fsdp_program(1, 8, 256, 256)))
    assert main(["export", "program.txt", "-o", "dump.txt"]) == 0
    made = write_reproducer(str(tmp_path), demo_program(), ["drop-dead-ops"], Options(), "once")
    os.rename(made, tmp_path / "repro.pkg")
    assert main(["schedule", "program.txt", "-o", "scheduled.txt"]) == 0
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_of_every_command_is_explained(command: str) -> None:
    actions = subparsers()[command]._actions
    assert [a.dest for a in actions if not a.help] == []
    assert [a.dest for a in actions if a.help and len(a.help.split()) < 2] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert all(line in out for line in EXAMPLES[command])
    assert f"treadle {command}" in " ".join(EXAMPLES[command])


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_every_example_runs(line: str, folder: Path) -> None:
    if "model.py" in line:
        pytest.importorskip("torch")
        (folder / "model.py").write_text("def model(x):\n    return x.relu()\n")
    if "program.treadle" in line:
        assert main(["compile", "program.txt", "-o", "program.treadle"]) == 0
    ours = f"{shlex.quote(sys.executable)} -m treadle.lab.cli"
    shell_line = line.replace("treadle ", f"{ours} ", 1)
    done = subprocess.run(
        ["sh", "-c", shell_line], capture_output=True, text=True, cwd=folder, timeout=120
    )
    # The two compared files differ, which is what `diff` says with exit code 1.
    assert done.returncode == (1 if " diff " in line else 0), done.stdout + done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------------------- completion


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_completion_script_knows_every_command_and_option(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for command in describe(build_parser()):
        assert command.name in script
        for option in command.options:
            for name in option.names:
                spelled = f"-l {name[2:]}" if shell == "fish" and name[:2] == "--" else name
                spelled = f"-s {name[1:]}" if shell == "fish" and name[:2] != "--" else spelled
                assert spelled in script, (command.name, name)
        for value in command.values:
            assert value in script
    if found := shutil.which(shell):
        done = subprocess.run([found, "-n"], input=script, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def offered(*words: str) -> list[str]:
    """What bash offers for the last of the words."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    script = SCRIPTS["bash"](describe(build_parser()))
    listed = " ".join(shlex.quote(w) for w in ("treadle", *words))
    asks = f"COMP_WORDS=({listed}); COMP_CWORD={len(words)}; _treadle; "
    prints = "printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run([bash, "-c", script + asks + prints], capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_bash_completes_commands_options_and_values() -> None:
    assert offered("sch") == ["schedule"]
    assert set(COMMANDS) <= set(offered(""))
    assert offered("plan", "--cap") == ["--capacity"]
    assert offered("plan", "x.csv", "--effort", "") == ["fast", "balanced", "exact"]
    assert offered("cache", "c") == ["clear"]
    assert offered("explain", "IR01")[:2] == ["IR010", "IR011"]
    assert offered("export", "x", "--title", "B") == ["BEFORE\\ FUSION"]
    assert offered("show", "") == [""]  # nothing of ours: the shell offers files


# ------------------------------------------------------------------------------- standard input


class Piped(io.TextIOWrapper):
    """Standard input that can be read once, as a pipe."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("command", "file"),
    [
        (["show", "-", "--json"], "program.txt"),
        (["show", "-", "--json"], "dump.txt"),
        (["show", "-", "--json"], "problem.csv"),
        (["show", "-", "--json"], "journal.jsonl"),
        (["check", "-"], "program.txt"),
        (["check", "-"], "dump.txt"),
        (["plan", "-"], "problem.csv"),
        (["plan", "-"], "program.txt"),
        (["export", "-"], "program.txt"),
        (["why", "-", "norm_scale", "norm_apply"], "program.txt"),
        (["diff", "-", "program.txt"], "program.txt"),
        (["replay", "-"], "repro.pkg"),
    ],
)
def test_a_dash_is_standard_input(
    command: list[str],
    file: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Journal().write(folder / "journal.jsonl")
    capsys.readouterr()
    named = [file if word == "-" else word for word in command]
    assert main(named) == 0
    by_name = capsys.readouterr().out.replace(file, "-")
    monkeypatch.setattr(sys, "stdin", Piped((folder / file).read_bytes()))
    assert main(command) == 0
    piped = capsys.readouterr().out
    if command[0] not in ("check", "plan"):  # these tell seconds and call a program by its file
        assert piped == by_name
    assert piped.count("\n") == by_name.count("\n")


def test_scheduling_reads_standard_input_twice_without_asking_for_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Piped((folder / "dump.txt").read_bytes()))
    assert main(["schedule", "-", "--json"]) == 0
    assert '"accounting": "dump"' in capsys.readouterr().out


def test_standard_input_that_is_no_text_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Piped(b"treadle \xff"))
    assert main(["show", "-"]) == 2
    assert capsys.readouterr().err == (
        "-: expected UTF-8 text, found byte 0xff at offset 8 [TXT002]\n"
    )


# ------------------------------------------------------------------------------- sizes, colours


def test_sizes_are_read_as_people_write_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for size in ("12288", "12KiB", "12k"):
        capsys.readouterr()
        assert main(["plan", "problem.csv", "--capacity", size, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out)["capacity"])
    assert found == [12288] * 3
    with pytest.raises(SystemExit) as ended:
        main(["plan", "problem.csv", "--capacity", "12 apples"])
    assert ended.value.code == 2
    assert "'12 apples' is not a byte count such as 4096" in capsys.readouterr().err


def test_colours_are_for_terminals_only(folder: Path) -> None:
    command = [sys.executable, "-m", "treadle.lab.cli", "check", "program.txt"]
    plain = {k: v for k, v in os.environ.items() if k != "NO_COLOR"} | {"TERM": "xterm"}

    def on_a_terminal(environment: dict[str, str]) -> str:
        ours, theirs = pty.openpty()
        subprocess.run(command, stdout=theirs, cwd=folder, env=environment, check=True)
        text = os.read(ours, 10_000).decode()  # before the end that wrote it is closed
        os.close(theirs)
        os.close(ours)
        return text

    assert ": \033[32mok\033[0m," in on_a_terminal(plain)
    assert "\033" not in on_a_terminal({**plain, "NO_COLOR": "1"})
    assert "\033" not in on_a_terminal({**plain, "TERM": "dumb"})
    piped = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=plain)
    assert "program.txt: ok," in piped.stdout


class Terminals:
    """Two terminals, one for output and one for errors, and what a person sees there."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch
        patch.setenv("TERM", "xterm")
        patch.delenv("NO_COLOR", raising=False)

    def see(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output and errors of a command."""
        seen = {"stdout": b"", "stderr": b""}
        with self.patch.context() as patch, ThreadPoolExecutor(2) as readers:
            ends = {}
            for name in seen:
                ours, theirs = pty.openpty()
                ends[name] = open(theirs, "w", encoding="utf-8"), readers.submit(all_of, ours)  # noqa: SIM115
                patch.setattr(sys, name, ends[name][0])
            code = main(list(words))
            for name, (stream, reader) in ends.items():
                stream.write(THE_END)
                stream.flush()
                seen[name] = reader.result()
                stream.close()
        out, err = (text.decode().replace("\r\n", "\n") for text in seen.values())
        return code, out, err


# A terminal whose writer is gone may drop what was not read yet: so the writer says when it has
# said all, and stays until that is read.
THE_END = "\N{END OF TRANSMISSION BLOCK}"


def all_of(terminal: int) -> bytes:
    """All that is written to a terminal before `THE_END`."""
    seen = b""
    end = THE_END.encode()
    while not seen.endswith(end):
        seen += os.read(terminal, 4096)
    os.close(terminal)
    return seen.removesuffix(end)


@pytest.fixture
def terminals(monkeypatch: pytest.MonkeyPatch) -> Terminals:
    return Terminals(monkeypatch)


@pytest.mark.parametrize(
    "words",
    [
        ("schedule", "program.txt"),
        ("kernels", "program.txt"),
        ("plan", "program.txt"),
        ("plan", "problem.csv"),
        ("why", "program.txt", "norm_apply", "update"),
        ("diff", "program.txt", "program.txt"),
        ("env",),
        ("explain",),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_person_sees_colours_and_a_script_does_not(
    folder: Path,
    words: tuple[str, ...],
    terminals: Terminals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(folder / "cache"))
    code, seen, _ = terminals.see(*words)
    assert code == 0
    assert "\033[" in seen
    unpainted = re.sub(r"\033\[\d+m", "", seen)
    _, as_json, _ = terminals.see(*words, "--json")
    assert "\033" not in as_json
    json.loads(as_json)
    monkeypatch.setenv("NO_COLOR", "1")
    _, plain, _ = terminals.see(*words)
    assert "\033" not in plain
    monkeypatch.delenv("NO_COLOR")
    capsys.readouterr()
    assert main(list(words)) == 0  # into a pipe
    piped = capsys.readouterr().out
    # Colours change no letter.
    assert without_times(piped) == without_times(plain) == without_times(unpainted)


def without_times(text: str) -> str:
    return re.sub(r"\d+\.\d+ s\b", "s", text)


def test_answers_have_the_colour_of_what_they_say(folder: Path, terminals: Terminals) -> None:
    _, seen, _ = terminals.see("why", "program.txt", "norm_apply", "update")
    assert ": \033[32myes\033[0m" in seen
    assert ": \033[31mno\033[0m \033[36m" in seen


def test_notes_and_errors_are_painted_where_errors_go(
    folder: Path, terminals: Terminals, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, seen = terminals.see("check", "program.txt", "nothing.txt")
    assert code == 2
    assert "[\033[36mTXT002\033[0m]" in seen
    monkeypatch.setenv("NO_COLOR", "1")
    _, _, seen = terminals.see("check", "program.txt", "nothing.txt")
    assert "[TXT002]" in seen


def test_columns_of_figures_stand_to_the_right(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from treadle.core.tables import table

    rows = [("a", "768 B", "12%", 7, "x"), ("b", "11.25 KiB", "", "op25", "y"), ("c", 3, "-", 1, 4)]
    assert table(rows, ("name", "moved", "part", "many", "word")) == [
        "  name      moved  part  many  word",
        "  a         768 B   12%     7  x",
        "  b     11.25 KiB        op25  y",
        "  c             3     -     1  4",
    ]
    capsys.readouterr()
    assert main(["schedule", "program.txt"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = lines[0]
    for line in lines[1:4]:
        assert len(line) == len(head), line  # the last column ends where its name ends


def test_codes_stand_out_and_plain_text_stays_plain() -> None:
    assert painted("IR012: outside", True) == "\033[36mIR012\033[0m: outside"
    assert painted("IR012: outside", False) == "IR012: outside"


@pytest.mark.parametrize("command", ["show", "schedule", "check", "plan"])
def test_a_pipe_is_read_once_however_often_a_command_looks(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    content = (folder / "program.txt").read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=[content], daemon=True)
    writer.start()
    assert main([command, str(pipe)]) == 0
    writer.join(10)
    assert not writer.is_alive()
    assert capsys.readouterr().out


def test_input_without_end_is_refused_with_the_size(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("treadle.core.reading.MAX_BYTES", 1 << 20)  # as soon as that
    assert main(["show", "/dev/zero"]) == 2
    assert "/dev/zero: expected a file of at most 1 MiB" in capsys.readouterr().err


def test_a_package_that_is_not_here_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert main(["demo", "--program"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("`treadle demo` needs numpy: pip install 'treadle[interp]'\n")
    assert "bug" not in told


def test_who_asks_for_nothing_is_told_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr().out
    assert set(COMMANDS) <= set(told.split())
