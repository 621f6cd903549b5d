"""The softmax that the architecture follows: its texts are what the compiler makes today."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from treadle.codegen.c.unit import write_unit
from treadle.codegen.lower import lower
from treadle.codegen.triton.unit import write_triton
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.program import Kernel, Program
from treadle.ir.text import parse_program, show_program
from treadle.ir.text_print import show_operation
from treadle.lab.cli import main
from treadle.runtime.launch_plan import show_plan
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.plan_launches import plan_launches
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "treadle"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
SECTION = PAGE[PAGE.index("## One softmax, followed") : PAGE.index("## One program, frozen")]
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", SECTION, re.S)


def block(beginning: str) -> str:
    """The text of the section that begins so."""
    (found,) = [text for _, text in BLOCKS if text.startswith(beginning)]
    return str(found)


def compiled(code: str) -> Program:
    """The program of the section after all passes."""
    from treadle.schedule.passes import PIPELINE

    context = Ctx(Options(code=code), MACHINES, Journal())
    return run_pipeline(parse_program(block("treadle 1")), context, PIPELINE)


def assert_in_order(shown: str, text: str) -> None:
    """Every line that is shown stands in the text, in this order; dots stand for any lines."""
    lines = iter(text.splitlines())
    for line in shown.splitlines():
        if line.strip() not in ("", "..."):
            assert line in lines, f"not there, or not in this order: {line}"


def test_the_program_and_its_schedule_are_as_shown() -> None:
    (launch,) = compiled("auto").ops
    assert isinstance(launch, Kernel)
    assert show_operation(launch) + "\n" == block("launch _softmax")


def test_the_c_is_as_shown() -> None:
    (kernel,) = write_unit(lower(compiled("auto"))).kernels
    assert_in_order(block("static int"), kernel.text)


def test_the_launch_plan_is_as_shown() -> None:
    plan = plan_launches(LaunchShape(lower(compiled("auto"))), {})
    assert show_plan(plan) == block("launch plan")


def test_the_triton_is_as_shown() -> None:
    program = compiled("triton")
    assert block("schedule (order i0 r0, bind i0 to grid").strip() in show_program(program)
    ((source,),) = write_triton(lower(program)).kernels
    assert_in_order(block("    i0 = (pid)"), source.text)


@pytest.mark.torch
def test_torch_captures_the_program_that_is_shown(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from treadle.frontends.torch.backend import compile_with
    from treadle.frontends.torch.capture.compile import Settings

    script = tmp_path / "softmax.py"
    script.write_text(block("# softmax.py").split("x = torch")[0], "utf-8")
    names: dict[str, object] = {}
    exec(compile(script.read_text("utf-8"), str(script), "exec"), names)
    seen: list[str] = []
    settings = Settings(Options(), observe=lambda one: seen.append(show_program(one.program)))
    torch._dynamo.reset()
    fast = torch.compile(
        names["attend"], backend=lambda gm, inputs: compile_with(settings, gm, inputs)
    )
    fast(torch.randn(64, 512))
    assert seen == [block("treadle 1")]


def test_the_way_without_torch_prints_c_and_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("softmax.txt").write_text(block("treadle 1"), "utf-8")
    assert main(["kernels", "softmax.txt", "--only", "_softmax", "-o", "kernels.txt"]) == 0
    assert block("launch _softmax") in capsys.readouterr().out
    exec(compile(block("from treadle.ir.text"), "architecture.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "#pragma omp simd" in printed
    assert block("launch plan") in printed


def test_functions_that_the_architecture_names_are_in_their_files() -> None:
    named = re.findall(r"`([\w/]+\.py): (\w+)`", PAGE)
    assert len(named) > 12
    for file, function in named:
        (path,) = [p for p in SOURCE.rglob("*.py") if f"/{p}".endswith(f"/{file}")]
        tree = ast.parse(path.read_text("utf-8"))
        kinds = (ast.FunctionDef, ast.ClassDef)
        defined = {n.name for n in tree.body if isinstance(n, kinds)}
        assert function in defined, f"{file}: {function}"


def test_the_map_of_rooms_names_every_folder_and_every_file_on_the_way_to_code() -> None:
    for room in {p.parent for p in SOURCE.rglob("*.py")} - {SOURCE}:
        assert f"{room.name}/" in PAGE, f"{room.name} is not on the map"
    for folder in ("kernel", "codegen", "runtime"):
        for path in (SOURCE / folder).rglob("*.py"):
            if path.name != "__init__.py":
                assert path.name in PAGE, f"{folder}: {path.name} is not on the map"
