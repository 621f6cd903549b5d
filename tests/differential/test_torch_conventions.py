"""What people who use `torch.compile` expect of a backend: logs, traces, the minifier, errors."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import Ranks

torch = pytest.importorskip("torch")

import treadle.torch  # noqa: E402
from treadle.frontends.torch.capture import compile as compiling  # noqa: E402
from treadle.schedule import pipeline  # noqa: E402
from treadle.schedule.pass_card import Pass  # noqa: E402
from treadle.schedule.passes import PIPELINE  # noqa: E402

pytestmark = pytest.mark.torch

SCRIPT = """
import torch
import treadle.torch

def function(x, w):
    y = torch.softmax(x @ w, -1)
    return y.sum(0) + x.mean()

run = torch.compile(function, backend="treadle")
x, w = torch.randn(8, 16, requires_grad=True), torch.randn(16, 4)
run(x, w).sum().backward()
print("done")
"""

BREAKS = """
from treadle.frontends.torch.capture import compile as compiling

lower = compiling.lower_graph

def without_sine(gm, *rest):
    bad = [node.name for node in gm.graph.nodes if "sin" in node.name]
    if bad:
        raise ValueError(f"no loops for {bad[0]}")
    return lower(gm, *rest)

compiling.lower_graph = without_sine
"""


def run_script(folder: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in an empty folder with some environment variables."""
    file = folder / "program.py"
    file.write_text(text)
    source = str(Path(treadle.torch.__file__).parents[1])
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    cache = str(folder / "cache")
    known = {**os.environ, "PYTHONPATH": paths, "TREADLE_CACHE_DIR": cache, **variables}
    return subprocess.run(
        [sys.executable, str(file)], cwd=folder, env=known, capture_output=True, text=True
    )


# ----------------------------------------------------------------------------- logs and traces


@pytest.mark.slow
def test_torch_logs_shows_what_was_decided(tmp_path: Path) -> None:
    done = run_script(tmp_path, SCRIPT, TORCH_LOGS="fusion,schedule,output_code")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\[__fusion\] forward: fuse \S+, \S+: (yes|no) FUS\d+ \(", done.stderr)
    assert re.search(r"\[__schedule\] +Extern +mm +<- aten.mm.default, program.py:6", done.stderr)
    assert re.search(r"\[__schedule\] +peak \d+ bytes at \S+", done.stderr)
    assert re.search(r"\[__output_code\] .*int k0_\w+\(", done.stderr)
    assert "backward" in done.stderr


@pytest.mark.slow
def test_nothing_is_said_unasked_and_decisions_are_logged_for_what_was_compiled_before(
    tmp_path: Path,
) -> None:
    again = """
import sys
import torch._logging
print("until here quiet", file=sys.stderr, flush=True)
torch._logging.set_logs(fusion=True)
torch._dynamo.reset()
torch.compile(function, backend="treadle")(x, w).sum().backward()
"""
    done = run_script(tmp_path, SCRIPT + again)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    before, _, after = done.stderr.partition("until here quiet\n")
    assert before == ""
    assert re.search(r"\[__fusion\] forward: fuse \S+, \S+: (yes|no) FUS\d+ \(", after)


@pytest.mark.slow
def test_a_trace_lists_program_schedule_memory_and_code_and_logs_are_those_asked_for(
    tmp_path: Path,
) -> None:
    variables = {"TORCH_TRACE": str(tmp_path / "trace"), "TREADLE_STRICT": "1"}
    done = run_script(tmp_path, SCRIPT, **variables, TORCH_LOGS="schedule")
    assert done.returncode == 0, done.stderr
    assert "[__schedule]" in done.stderr
    assert "__fusion" not in done.stderr
    assert "__output_code" not in done.stderr
    (log,) = (tmp_path / "trace").iterdir()
    names, payload = [], {}
    lines = log.read_text().splitlines()
    for k, line in enumerate(lines):
        found = re.search(r'\{"artifact": .*', line)
        name = json.loads(found[0])["artifact"]["name"] if found else ""
        if name.startswith("treadle_"):
            names.append(name)
            inside = itertools.takewhile(lambda text: text.startswith("\t"), lines[k + 1 :])
            payload[name] = "\n".join(text[1:] for text in inside)
    parts = ("program", "schedule", "memory_plan", "c", "summary")
    assert names == [f"treadle_{g}_{part}" for g in ("forward", "backward") for part in parts]
    assert json.loads(payload["treadle_forward_memory_plan"])["peak_bytes"] > 0
    assert payload["treadle_forward_program"].startswith("treadle 1\n")
    told = json.loads(payload["treadle_forward_summary"])
    assert told["graph"] == "forward"
    assert told["options"]["strict"] is True  # what was set, and nothing else
    assert "host" not in told["options"]
    assert told["after"]["kernels"] == len(told["kernels"]) < told["before"]["kernels"]
    (product,) = [row for row in told["kernels"] if row["name"] == "mm"]
    assert product["flops"] == 2 * 8 * 16 * 4
    assert any(origin.endswith(".py:6") for origin in product["origins"]), product
    moved = sum(row["bytes_loaded"] + row["bytes_stored"] for row in told["kernels"])
    assert moved == told["after"]["bytes_moved"]


@pytest.mark.slow
def test_tlparse_lists_our_files_under_the_graph(tmp_path: Path) -> None:
    tool = shutil.which("tlparse")
    if tool is None:
        pytest.skip("tlparse is not installed: the trace was not opened with it")
    done = run_script(tmp_path, SCRIPT, TORCH_TRACE=str(tmp_path / "trace"))
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "trace").iterdir()
    out = tmp_path / "out"
    words = [tool, str(log), "-o", str(out), "--no-browser"]
    opened = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert opened.returncode == 0, opened.stderr
    listed = {path.name.rpartition("_")[0]: path for path in out.rglob("treadle_*")}
    graphs, parts = ("forward", "backward"), ("program", "schedule", "memory_plan", "c", "summary")
    assert set(listed) == {f"treadle_{g}_{part}" for g in graphs for part in parts}
    assert json.loads(listed["treadle_backward_summary"].read_text())["graph"] == "backward"
    index = (out / "index.html").read_text()
    assert listed["treadle_forward_schedule"].name in index


# --------------------------------------------------------------------------------- the minifier


WITH_MINIFIER = """
import torch._dynamo.config
torch._dynamo.config.repro_after, torch._dynamo.config.repro_level = "dynamo", {level}
"""


@pytest.mark.parametrize("level", [2, 4])
def test_the_minifier_of_dynamo_leaves_a_healthy_graph_alone(
    tmp_path: Path, level: int, ranks: Ranks
) -> None:
    done = ranks.script(tmp_path, WITH_MINIFIER.format(level=level) + SCRIPT)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.slow
def test_the_minifier_of_dynamo_catches_a_graph_that_fails(tmp_path: Path) -> None:
    text = SCRIPT.replace("import treadle.torch\n", "import treadle.torch\n" + BREAKS)
    done = run_script(
        tmp_path,
        text.replace("x.mean()", "x.sin().mean()"),
        TREADLE_STRICT="1",
        TORCHDYNAMO_REPRO_AFTER="dynamo",
        TORCHDYNAMO_REPRO_LEVEL="2",
    )
    assert "no loops for sin" in done.stderr
    (launcher,) = tmp_path.rglob("minifier_launcher.py")
    assert "backend='treadle'" in launcher.read_text()


# ------------------------------------------------------------------------------------- errors


def test_a_compile_error_names_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Any, options: Any) -> Any:
        raise ValueError("nothing to be done about tanh")

    def function(x: Any) -> Any:
        y = x.cumsum(0)
        z = y.tanh()
        return z.cumsum(1)

    monkeypatch.setattr(compiling, "schedule", broken)
    line = function.__code__.co_firstlineno + 2
    place = re.escape(f"(at test_torch_conventions.py:{line})")
    with pytest.raises(Exception, match=f"TOR001.*{place}: ValueError: nothing to be done"):
        torch.compile(function, backend="treadle", options={"strict": True})(torch.randn(3, 17))


def test_strict_is_an_option_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(program: Any, options: Any) -> Any:
        raise ValueError("not today")

    monkeypatch.setattr(compiling, "schedule", broken)
    monkeypatch.setenv("TREADLE_STRICT", "1")
    with pytest.raises(Exception, match=r"TOR001.*not today"):
        torch.compile(lambda x: x * 17, backend="treadle")(torch.randn(3))
    torch._dynamo.reset()
    monkeypatch.setenv("TREADLE_STRICT", "0")
    with pytest.warns(UserWarning, match=r"TOR001.*not today"):
        torch.compile(lambda x: x * 17, backend="treadle")(torch.randn(3))


def test_a_reproducer_goes_to_the_cache_and_the_warning_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(program: Any, ctx: Any) -> Any:
        raise RuntimeError("a pass that fails")

    here, cache = tmp_path / "here", tmp_path / "cache"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(cache))
    passes = (Pass("failing", fail, PIPELINE[0].after),)
    real = pipeline.run_pipeline
    monkeypatch.setattr(
        compiling, "run_pipeline", lambda program, ctx, *_: real(program, ctx, passes)
    )
    x = torch.randn(3, 19)
    with pytest.warns(UserWarning, match="treadle replay") as caught:
        found = torch.compile(lambda x: x * 19 + 1, backend="treadle")(x)
    torch.testing.assert_close(found, x * 19 + 1)
    (file,) = (cache / "reproducers").iterdir()
    assert str(file) in str(caught[0].message)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("index", [[0, 5], [-5, 1]])
def test_an_index_out_of_range_is_an_index_error_at_the_users_line(index: list[int]) -> None:
    def function(t: Any, i: Any) -> Any:
        return t[i] + 1

    run = torch.compile(function, backend="treadle", options={"strict": True})
    line = function.__code__.co_firstlineno + 1
    with pytest.raises(IndexError, match="RUN004") as caught:
        run(torch.randn(4), torch.tensor(index))
    assert f"your line: test_torch_conventions.py:{line}" in str(caught.value)
    assert run(torch.zeros(4), torch.tensor([3, -1])).tolist() == [1.0, 1.0]


def gathered(t: Any, i: Any) -> Any:
    wide = (t * 2).exp()
    near = wide.gather(0, i)  # blamed, although the softmax is what runs
    return torch.softmax(near + wide[:2], -1)


def judged(t: Any, i: Any) -> Any:
    scores = t * 3
    return torch.nn.functional.cross_entropy(scores, i[:, 0])


def placed(t: Any, i: Any) -> Any:
    made = t.cos()
    made = made.scatter(0, i, 1.0)
    return made.sum(0) * 2


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [gathered, judged, placed])
def test_an_index_error_names_the_line_of_the_index_wherever_it_was_fused(
    function: Any, dynamic: bool
) -> None:
    torch._dynamo.reset()
    run = torch.compile(function, backend="treadle", dynamic=dynamic, options={"strict": True})
    index = torch.full((2, 3), 7)
    with pytest.raises(IndexError, match="RUN00") as caught:
        run(torch.randn(2 if function is judged else 4, 3), index)
    line = function.__code__.co_firstlineno + 2
    assert f"your line: test_torch_conventions.py:{line}" in str(caught.value)


def test_an_index_error_in_a_model_without_lines_of_its_own_names_the_module() -> None:
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 2))
    with pytest.raises(IndexError, match="RUN004") as caught:
        torch.compile(model, backend="treadle")(torch.tensor([3, 11]))
    assert "in your model: module 0 (Embedding)" in str(caught.value)


def test_a_failed_assertion_is_a_runtime_error_as_in_eager() -> None:
    def function(x: Any) -> Any:
        torch._assert_async((x > 0).all(), "x must be positive")
        return x * 2

    run = torch.compile(function, backend="treadle", options={"strict": True})
    assert run(torch.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="x must be positive"):
        run(-torch.ones(2))


def test_conditions_are_looked_at_by_kernels() -> None:
    def counted(x: Any) -> Any:
        return torch.nn.functional.one_hot(x, 5).sum(0)

    fast = torch.compile(counted, backend="treadle", options={"strict": True})
    for _ in range(3):
        x = torch.randint(0, 5, (20,))
        assert torch.equal(fast(x), counted(x))
    with pytest.raises(RuntimeError, match="Class values must be smaller"):
        fast(torch.tensor([4, 5]))
    with pytest.raises(RuntimeError, match="Class values must be non-negative"):
        fast(torch.tensor([-1, 2]))
    assert torch.equal(fast(torch.tensor([1, 1])), counted(torch.tensor([1, 1])))
