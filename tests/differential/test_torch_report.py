"""`treadle.plan`, `treadle.explain` and `treadle.compile`: reports before, and of, a run."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import treadle  # noqa: E402
from treadle.core.errors import UsageError  # noqa: E402
from treadle.frontends.torch.report.memory import GraphMemory  # noqa: E402

pytestmark = pytest.mark.torch


FEW = "the library multiplies matrices of few rows or columns"


def rows(x: Any, w: Any) -> Any:
    y = torch.softmax(x @ w, -1)
    return y.cumsum(0).sum(0) + x.mean()


def broken_in_two(x: Any) -> Any:
    y = x.cumsum(0) * 2
    torch._dynamo.graph_break()
    return y.cumsum(1) + 1


def given(grad: bool = True) -> tuple[Any, Any]:
    return torch.randn(8, 16, requires_grad=grad), torch.randn(16, 4)


# -------------------------------------------------------------------------------- treadle.plan


def test_a_plan_covers_forward_and_backward() -> None:
    report = treadle.plan(rows, *given())
    assert [g.name for g in report.graphs] == ["forward", "backward"]
    assert report.is_whole
    assert report.peak_bytes == max(g.peak_bytes for g in report.graphs)
    for graph in report.graphs:
        assert graph.lower_bound <= graph.peak_bytes
        assert graph.arena_lower_bound <= graph.arena_bytes
        assert graph.is_exact


def test_a_plan_without_gradients_is_one_graph() -> None:
    report = treadle.plan(rows, *given(grad=False))
    assert [g.name for g in report.graphs] == ["graph"]
    x, w = given(grad=False)
    memory = report["graph"]
    assert memory.input_bytes == x.nbytes + w.nbytes
    assert memory.output_bytes == 4 * 4
    with pytest.raises(KeyError, match="there are: graph"):
        report["backward"]


def test_the_breakdown_is_the_peak_and_names_operators_and_lines() -> None:
    for graph in treadle.plan(rows, *given()).graphs:
        sizes = [piece.bytes for piece in graph.breakdown]
        assert sum(sizes) == graph.peak_bytes
        assert sizes == sorted(sizes, reverse=True)
    made = [p for p in treadle.plan(rows, *given())["forward"].breakdown if p.operator]
    line = rows.__code__.co_firstlineno + 1
    of_softmax = [p.operator for p in made if p.source == f"test_torch_report.py:{line}"]
    assert "aten.div.Tensor" in of_softmax  # its last step
    assert "output" not in [p.operator for p in made]


def test_nothing_runs_while_planning() -> None:
    calls = []

    @torch.library.custom_op("treadle_test::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x + 1

    noted.register_fake(lambda x: torch.empty_like(x))
    assert treadle.plan(lambda x: noted(x) * 2, torch.randn(4)).peak_bytes > 0
    assert not calls
    model, x = torch.nn.BatchNorm1d(3), torch.randn(5, 3)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    state = torch.get_rng_state()
    treadle.plan(model, x)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)


def test_planning_the_same_function_often_never_runs_it() -> None:
    def function(x: Any) -> Any:
        return x.sin().cumsum(0)

    reports = [treadle.plan(function, torch.randn(n, 3)) for n in range(2, 16)]
    assert [len(r.graphs) for r in reports] == [1] * 14
    assert [r["graph"].output_bytes for r in reports] == [n * 12 for n in range(2, 16)]


def test_keyword_arguments_reach_the_model_and_options_the_backend() -> None:
    def function(x: Any, *, twice: bool = False) -> Any:
        return torch.cat([x, x]) if twice else x + 1

    x = torch.randn(4)
    assert treadle.plan(function, x, twice=True)["graph"].output_bytes == 32
    with pytest.raises(UsageError, match="polcy"):
        treadle.plan(function, x, options={"polcy": "memory"})


def test_a_plan_of_run_time_sizes_can_be_asked_for_others() -> None:
    memory = treadle.plan(lambda x: x.cumsum(0).softmax(1), torch.randn(6, 5), dynamic=True)
    (graph,) = memory.graphs
    assert 6 in graph.sizes.values()
    (name,) = [n for n, value in graph.sizes.items() if value == 6]
    larger = graph.at(**{name: 60})
    assert larger.output_bytes == 10 * graph.output_bytes
    assert larger.sizes[name] == 60
    assert larger.peak_bytes > graph.peak_bytes


def test_a_graph_break_is_reported_and_hides_what_is_behind_it() -> None:
    x = torch.randn(4, 4)
    report = treadle.plan(broken_in_two, x)
    assert len(report.graphs) == 1
    assert not report.is_whole
    (found,) = report.breaks
    line = broken_in_two.__code__.co_firstlineno + 2
    assert found.source == f"test_torch_report.py:{line}"
    whole = treadle.plan(broken_in_two, x, run=True)
    assert len(whole.graphs) == 2
    assert whole.is_whole


# ----------------------------------------------------------------------------- treadle.explain


def test_an_explanation_tells_kernels_bytes_and_refusals() -> None:
    found = treadle.explain(rows, *given())
    assert [g.name for g in found.graphs] == ["forward", "backward"]
    forward = found.graphs[0]
    assert forward.after.kernels <= forward.before.kernels
    assert found.kernels == sum(g.after.kernels for g in found.graphs)
    assert found.bytes_moved == sum(g.after.bytes_moved for g in found.graphs) > 0
    assert found.peak_bytes == max(g.memory.peak_bytes for g in found.graphs)
    assert ("aten.mm.default", FEW, 1) in forward.fallbacks
    assert sum(forward.refused.values()) > 0
    assert all(code.startswith(("FUS", "MIX", "COM", "RCP", "KER")) for code in forward.refused)
    # Only KER007, how loops are walked, is a code of both.
    assert set(forward.refused) & set(forward.agreed) <= {"KER007"}
    assert "cumsum" in forward.source


def test_loops_that_are_walked_with_vectors_are_not_among_the_refusals() -> None:
    (graph,) = treadle.explain(lambda x: x * 2 + 1, torch.ones(64)).graphs
    assert graph.agreed["KER007"] == 1
    assert "KER007" not in graph.refused


def test_an_explanation_lists_breaks() -> None:
    found = treadle.explain(broken_in_two, torch.randn(4, 4))
    assert len(found.breaks) == 1
    assert not found.is_whole
    assert len(treadle.explain(broken_in_two, torch.randn(4, 4), run=True).graphs) == 2


def test_reports_are_plain_data() -> None:
    x, w = given()
    for report in (treadle.plan(rows, x, w), treadle.explain(rows, x, w)):
        told = json.loads(json.dumps(report.to_json()))
        assert told["peak_bytes"] == report.peak_bytes
        assert [g["name"] for g in told["graphs"]] == ["forward", "backward"]


# ----------------------------------------------------------------------------- treadle.compile


def test_a_compiled_function_knows_its_memory_when_it_has_compiled() -> None:
    fast = treadle.compile(rows, strict=True)
    assert fast.memory.graphs == ()
    x, w = given()
    torch.testing.assert_close(fast(x, w), rows(x, w))
    planned = treadle.plan(rows, x, w)
    assert fast.memory["forward"].peak_bytes == planned["forward"].peak_bytes
    fast(x, w).sum().backward()
    assert treadle.memory_of(fast).peak_bytes == planned.peak_bytes
    assert fast.memory.peak_bytes == planned.peak_bytes


def test_a_compiled_module_knows_its_memory_and_the_model_does_not() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    fast = treadle.compile(model, policy="memory", dynamic=False)
    x = torch.randn(3, 6)
    torch.testing.assert_close(fast(x), model(x))
    (graph,) = fast.memory.graphs
    assert isinstance(graph, GraphMemory)
    assert graph.input_bytes == x.nbytes + sum(p.nbytes for p in model.parameters())
    assert not hasattr(model, "memory")


def test_options_of_compile_are_checked() -> None:
    with pytest.raises(UsageError, match="did you mean: policy"):
        treadle.compile(rows, polcy="memory")
    with pytest.raises(UsageError, match="max-autotune"):
        treadle.compile(rows, mode="max-autotun")


def test_other_functions_are_refused_with_a_way_out() -> None:
    with pytest.raises(UsageError, match=r"treadle\.plan"):
        treadle.memory_of(torch.compile(rows, backend="eager"))


def test_importing_treadle_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, treadle; assert not {'torch', 'numpy'} & set(sys.modules);"
        " assert 'plan' in treadle.__all__;"
        " assert not hasattr(treadle, 'torch_plan'); assert 'torch' not in sys.modules;"
        " treadle.plan; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------ reports for people


def layers() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))


class Tower(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.body = torch.nn.Embedding(10, 16), layers()

    def forward(self, at: Any) -> Any:
        x = self.words(at)
        return self.body(x)


def test_printed_reports_are_tables_with_the_users_lines_and_modules() -> None:
    x = torch.randn(8, 16)
    report = treadle.plan(layers(), x)
    here = f"test_torch_report.py:{sys._getframe().f_lineno - 1}"
    text = str(report)
    assert text == repr(report)
    assert "compat.py" not in text
    assert text.startswith("memory of 2 graphs: at most ")
    for words in ("graph", "lower bound", "held at the peak of backward:", "0.weight"):
        assert words in text
    assert f"{here}, 0 (Linear)" in text
    assert f"{here}, 1 (GELU)" in text
    assert max(map(len, text.splitlines())) < 120
    widths = {len(line) - len(line.lstrip()) for line in text.splitlines()[1:4]}
    assert widths == {2}


def test_lines_inside_of_a_model_come_before_the_line_that_called_it() -> None:
    report = treadle.plan(Tower(), torch.tensor([3, 4]))
    first = Tower.forward.__code__.co_firstlineno
    pieces = [p for g in report for p in g.breakdown]
    lines = {p.source for p in pieces if p.source}
    assert lines == {f"test_torch_report.py:{first + 1}", f"test_torch_report.py:{first + 2}"}
    assert {p.module for p in pieces if p.operator == "aten.addmm.default"} <= {
        "body.0 (Linear)",
        "body.2 (Linear)",
    }
    assert "words.weight" in {p.name for p in pieces}


def test_every_report_is_used_alike() -> None:
    x = torch.randn(8, 16)
    options = {"policy": "memory"}
    fast = treadle.compile(layers(), options=options, mode="default", dynamic=False)
    fast(x).sum().backward()
    reports = [
        treadle.plan(layers(), x, options=options, mode="default", dynamic=False, fullgraph=True),
        treadle.explain(layers(), x, options=options, mode="default", dynamic=False),
        fast.memory,
        treadle.memory_of(fast),
    ]
    for report in reports:
        assert [g.name for g in report] == ["forward", "backward"]
        assert len(report) == len(report.graphs) == 2
        assert report["forward"] == report[0]
        assert report.peak_bytes == max(g.peak_bytes for g in report)
        assert report.arena_bytes == max(g.arena_bytes for g in report)
        assert report.is_whole
        assert not report.breaks
        assert json.loads(json.dumps(report.to_json()))["peak_bytes"] == report.peak_bytes
        assert "\n  " in str(report)
        assert "\n  " in str(report[0])
        page = report._repr_html_()
        assert page.count("<table>") == page.count("</table>") >= 1
        assert "forward" in page
    assert len({report.peak_bytes for report in reports}) == 1


def test_an_explanation_prints_calls_and_what_refusals_mean() -> None:
    text = str(treadle.explain(rows, *given()))
    assert "aten.mm.default" in text
    assert FEW in text
    assert "what it says" in text
    broken = str(treadle.explain(broken_in_two, torch.randn(4, 4)))
    assert "graph breaks:" in broken
    assert "run=True sees them" in broken
    assert "test_torch_report.py:" in broken


def test_html_of_a_report_is_escaped() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.cumsum(0)

    Odd.__name__ = "<script>"
    model = torch.nn.Sequential(Odd(), torch.nn.Linear(4, 2))
    page = treadle.plan(model, torch.randn(3, 4))._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_a_model_that_is_compiled_already_can_be_planned_and_explained() -> None:
    x = torch.randn(8, 16)
    model = layers()
    fast = treadle.compile(model)
    assert treadle.plan(fast, x).peak_bytes == treadle.plan(model, x).peak_bytes
    assert treadle.explain(fast, x).kernels == treadle.explain(model, x).kernels
    assert len(fast.memory) == 0  # and nothing of it was run
    assert str(fast.memory).startswith("memory of no graph so far")


def test_the_package_shows_its_public_names_and_no_others() -> None:
    assert dir(treadle) == [
        "__version__",
        "compile",
        "explain",
        "load_package",
        "memory_of",
        "plan",
        "report",
    ]
    assert all(getattr(treadle, name) is not None for name in dir(treadle))


def run_in_another_process(content: bytes) -> Any:
    code = (
        "import pickle, sys, torch\n"
        "models, x = pickle.load(sys.stdin.buffer)\n"
        "made = [(model(x).detach(), model.memory.peak_bytes) for model in models]\n"
        "pickle.dump(made, sys.stdout.buffer)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


@pytest.mark.parametrize("used", [False, True])
def test_a_compiled_module_is_pickled_and_copied_as_torchs_are(used: bool) -> None:
    x = torch.randn(8, 16)
    fast = treadle.compile(layers(), policy="memory", strict=True)
    if used:
        fast(x)
    expected = fast._orig_mod(x)
    for made in (pickle.loads(pickle.dumps(fast)), copy.deepcopy(fast)):
        assert type(made) is type(fast)
        torch.testing.assert_close(made(x), expected)
        assert len(made.memory) == 1
        assert made.memory is not fast.memory
        assert made.memory._settings.options.policy == "memory"
    holder = torch.nn.ModuleDict({"inner": fast})
    torch.testing.assert_close(pickle.loads(pickle.dumps(holder))["inner"](x), expected)


def test_compiled_modules_used_or_not_go_to_another_process() -> None:
    x = torch.randn(8, 16)
    new, used = [treadle.compile(layers(), policy="memory", strict=True) for _ in range(2)]
    used(x)
    again = run_in_another_process(pickle.dumps(((new, used), x)))
    for model, (y, peak) in zip((new, used), again, strict=True):
        torch.testing.assert_close(y, model._orig_mod(x).detach())
        model(x)
        assert peak == model.memory.peak_bytes


def test_what_is_kept_for_backward_and_given_to_a_call_has_its_own_name_and_line() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    )  # nothing but a call reads what the second one makes
    forward = treadle.plan(model, torch.randn(3, 4)).graphs[0]
    made = {piece.storage: piece for piece in forward.breakdown if piece.kind == "output"}
    assert set(made) == {"relu", "addmm_1"}
    assert made["relu"].operator == "aten.relu.default"
    assert made["relu"].module == "1 (ReLU)"
    assert all(piece.source for piece in made.values())


def test_schedules_that_a_gpu_decided_between_are_told_with_times_and_winner() -> None:
    from dataclasses import replace

    from treadle.core.verdict import no, yes

    asked = {"nests": 2, "schedules": ["tune warps 4", "tune warps 8"], "predicted_us": [9.0, 9.5]}
    measured = {"chosen": "tune warps 8", "by": "measured", "measured_us": [10.0, 8.25]}
    tuned = (
        yes("TUN001", kernel="first", **asked, **measured),
        no("TUN001", kernel="second", reason="autotune is off", **asked),
    )
    found = treadle.explain(rows, *given())
    assert all(g.tuned == () for g in found.graphs)
    graph = replace(found.graphs[0], tuned=tuned)
    shown = [line.split() for line in str(graph).splitlines()]
    assert ["forward", "first", "9.000", "10.000", "tune", "warps", "4"] in shown
    assert ["9.500", "8.250", "yes", "measured", "tune", "warps", "8"] in shown
    second = ["forward", "second", "9.000", "yes", "the", "model:", "autotune", "is", "off"]
    assert [*second, "tune", "warps", "4"] in shown
    assert [v["code"] for v in graph.to_json()["tuned"]] == ["TUN001", "TUN001"]
