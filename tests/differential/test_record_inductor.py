"""Recording torch.compile: programs and decisions are Inductor's own, and nothing stays behind."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from ranks import Ranks

from treadle.frontends.inductor_dump import (
    Decision,
    RecordedGraph,
    import_program,
    parse_dump,
    print_dump,
    record,
    rederive,
)
from treadle.frontends.inductor_dump.record import LOGGERS, decision_in
from treadle.ir.interp import run
from treadle.ir.program import Call, Program

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.torch]


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Dumps are complete before any kernel is built: no C++ compiler is needed to test them."""
    import torch._inductor.async_compile

    maker = torch._inductor.async_compile.AsyncCompile
    monkeypatch.setattr(maker, "cpp_pybinding", lambda *_, **__: lambda *_: None)
    with torch._inductor.config.patch({"cpp.vec_isa_ok": True}):
        yield
    torch._dynamo.reset()


def pointwise_and_sum(x, y):
    return (torch.relu(x) + y).sum(-1)


def softmax(x):
    return x.softmax(-1)


def two_outputs(x, y):
    return x * y + 1, (x - y).exp().amax(0)


def changed_in_place(x, y):
    sine = x.sin()  # the graph's inputs come in the order of their first use
    y.add_(sine)
    return y * 2


CASES: dict[str, tuple[Callable[..., object], list[tuple[int, ...]]]] = {
    "pointwise_and_sum": (pointwise_and_sum, [(4, 8), (8,)]),
    "softmax": (softmax, [(4, 16)]),
    "two_outputs": (two_outputs, [(4, 8), (4, 8)]),
    "changed_in_place": (changed_in_place, [(4, 4), (4, 4)]),
}


def is_sound(graph: RecordedGraph) -> bool:
    """Both dumps print back as recorded, and every claim in them holds."""
    for text, dump in ((graph.pre_text, graph.pre), (graph.post_text, graph.post)):
        assert print_dump(dump) == text
        assert dump.unknown_count == 0
        assert [str(d) for d in rederive(dump).differences] == []
    return True


def outputs_of(program: Program, arguments: list[np.ndarray]) -> list[np.ndarray]:  # type: ignore[type-arg]
    """What the program leaves in its outputs; inputs come in the order of the caller's."""
    names = sorted(program.inputs)  # arg0_1, arg1_1 ...
    result = run(program, dict(zip(names, arguments, strict=True)))
    return [result.read(name) for name in program.outputs]


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_program_computes_what_eager_computes(case: str) -> None:
    function, shapes = CASES[case]
    torch.manual_seed(0)
    arguments = [torch.randn(shape) for shape in shapes]
    before = [a.numpy().copy() for a in arguments]
    with record() as recording:
        torch.compile(function)(*[a.clone() for a in arguments])
    expected = function(*arguments)
    (graph,) = recording.graphs
    assert is_sound(graph)
    wanted = [e.numpy() for e in (expected if isinstance(expected, tuple) else (expected,))]
    if case == "changed_in_place":
        wanted.append(arguments[1].numpy())
    for program in (import_program(graph.pre).program, graph.program):
        assert not any(isinstance(op, Call) for op in program.leaves)
        found = outputs_of(program, before)
        for want in wanted:
            assert any(
                f.shape == want.shape and np.allclose(f, want, rtol=1e-5, atol=1e-6) for f in found
            )


def test_decisions_are_recorded_in_order_with_reasons() -> None:
    def apart(x, y):
        return x.sum(-1), torch.relu(y) + 1

    with record() as recording:
        torch.compile(apart)(torch.randn(4, 8), torch.randn(3, 5))
        torch.compile(softmax)(torch.randn(4, 16))
    assert len(recording.graphs) == 2
    fused = [d for d in recording.graphs[1].decisions if d.fused]
    assert fused
    assert all(d.first.startswith("op") and d.reason == "" for d in fused)
    # Whatever was fused stands together after fusion, whatever was not, has a reason.
    groups = [node.name.split("_") for node in recording.graphs[1].post.nodes]
    for d in fused:
        names = {*d.first.split("_"), *d.second.split("_")}
        assert any(names <= set(group) for group in groups)
    refused = [d for graph in recording.graphs for d in graph.decisions if not d.fused]
    assert all(d.reason for d in refused)


def test_messages_of_the_fusion_log_are_understood() -> None:
    refusal = "cannot fuse op0_op1 with op2: numel/rnumel mismatch (reduce) (8, 4), (1, 1)"
    reason = "numel/rnumel mismatch (reduce) (8, 4), (1, 1)"
    assert decision_in(refusal) == Decision("op0_op1", "op2", False, reason)
    assert decision_in("fusing op0 with op1") == Decision("op0", "op1", True)
    slower = decision_in(
        "cannot fuse (benchmark): fusing {'buf0'} with {'buf1'} cause 1.2x slowdown"
    )
    assert slower == Decision("{'buf0'}", "{'buf1'}", False, "cause 1.2x slowdown")
    assert decision_in("found 3 possible fusions") is None


def test_a_training_step_gives_two_graphs() -> None:
    def step(x, w):
        torch.nn.functional.layer_norm((x @ w).relu(), (16,)).square().mean().backward()

    w = torch.randn(16, 16, requires_grad=True)
    with record() as recording:
        try:
            torch.compile(step)(torch.randn(8, 16), w)
        except Exception:  # nothing was computed, so the step may fail after compiling
            assert recording.graphs
    assert len(recording.graphs) == 2
    assert all(is_sound(graph) for graph in recording.graphs)
    assert all(graph.program.ops for graph in recording.graphs)


def test_a_function_that_was_compiled_before_is_recorded_too() -> None:
    compiled = torch.compile(softmax)
    x = torch.randn(4, 16)
    compiled(x)
    with record(fresh=False) as nothing:
        compiled(x)
    with record() as recording:
        compiled(x)
    with record() as again:
        compiled(x)
    assert nothing.graphs == []
    assert [len(r.graphs) for r in (recording, again)] == [1, 1]
    assert recording.graphs[0].post_text == again.graphs[0].post_text


def state() -> list[object]:
    """All that recording touches."""
    import torch._functorch.config as functorch
    import torch._inductor.config as inductor

    found: list[object] = [inductor.fx_graph_cache, functorch.enable_autograd_cache]
    for name in LOGGERS:
        logger = logging.getLogger(name)
        handlers = [(id(h), h.level) for h in logger.handlers]
        found.append((logger.level, logger.propagate, handlers))
    return found


def test_everything_is_restored_also_after_an_exception() -> None:
    import torch._inductor.scheduler

    before = state()
    seen = []

    def fail() -> None:
        with record() as recording:
            torch.compile(softmax)(torch.randn(4, 16))
            seen.append(recording)
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        fail()
    assert len(seen[0].graphs) == 1
    assert state() == before


def test_recordings_may_nest() -> None:
    x = torch.randn(4, 16)
    with record() as outer:
        torch.compile(softmax)(x)
        with record() as inner:
            torch.compile(two_outputs)(x, x + 1)
    assert [len(outer.graphs), len(inner.graphs)] == [2, 1]
    assert outer.graphs[1].post_text == inner.graphs[0].post_text


def test_collectives_of_a_fake_group_are_recorded() -> None:
    import torch.distributed
    import torch.distributed._functional_collectives as collective
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:

        def summed(x):
            return collective.all_reduce(x * 2, "sum", [0, 1]) + 1

        with record() as recording:
            torch.compile(summed)(torch.randn(4))
    finally:
        torch.distributed.destroy_process_group()
    (graph,) = recording.graphs
    assert is_sound(graph)
    assert "Collective" in [type(op).__name__ for op in graph.program.leaves]


LOGGED = """
import sys
import torch
import torch._inductor.async_compile
torch._inductor.async_compile.AsyncCompile.cpp_pybinding = lambda *_, **__: lambda *_: None
from treadle.frontends.inductor_dump import record
def f(x, y):
    return torch.relu(x) + y, (x * y).sum(-1)
with record() as recording:
    torch.compile(f)(torch.ones(4, 8), torch.ones(8))
graph = recording.graphs[0]
open(sys.argv[1], "w").write(graph.pre_text)
open(sys.argv[2], "w").write(graph.post_text)
"""


def test_recorded_dumps_are_what_the_logs_show_if_they_are_asked_for(tmp_path: Path) -> None:
    files = [tmp_path / "pre.txt", tmp_path / "post.txt"]
    # No kernel is built, so no C++ compiler has to be asked what it can do.
    more = {"TORCH_LOGS": "ir_pre_fusion,ir_post_fusion", "TORCHINDUCTOR_VEC_ISA_OK": "1"}
    switches = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), **more)
    command = [sys.executable, "-c", LOGGED, *map(str, files)]
    done = subprocess.run(command, env=switches, capture_output=True, timeout=600)
    recorded = [parse_dump(path.read_text()) for path in files]
    shown = {section.title: section for section in parse_dump(done.stderr.decode()).sections}
    assert list(shown) == ["BEFORE FUSION", "AFTER FUSION"]
    assert [shown[title].nodes for title in shown] == [dump.nodes for dump in recorded]


def test_recording_shows_nothing_in_logs_that_nobody_asked_for(
    tmp_path: Path, ranks: Ranks
) -> None:
    files = [tmp_path / "pre.txt", tmp_path / "post.txt"]
    words = map(str, files)
    done = ranks.script(tmp_path, LOGGED, *words, TORCHINDUCTOR_VEC_ISA_OK="1")
    assert all(parse_dump(path.read_text()).sections for path in files), done.stderr
    assert "FUSION" not in done.stderr
