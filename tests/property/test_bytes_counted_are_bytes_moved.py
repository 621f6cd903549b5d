"""Bytes that the scheduler reports are the bytes that the loads and stores of its kernels move.

Checked on the seeds and gathered dumps, on the forward and backward graphs of the workloads, on
models, and on random programs, kernel by kernel:

    equal       a kernel's figure is what is counted from the statements of its nests
    kept        it is what fusion promised, and the buffers that kernels need for themselves
    internal    no nest touches memory for a value that was counted as internal

A kernel around a template or a user's kernel has its border counted: a launch is what its renderer
makes of it, and such calls are opaque.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from nest_bytes import moved_by, moved_of, touched_by
from small_operations import LOOP_MOVES
from small_programs import small_programs

from treadle.analysis.accounting import ACCOUNTINGS, figures
from treadle.analysis.cost import cost_model, internal_storages, work_of
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.frontends.inductor_dump import unpacked
from treadle.ir.effects import runs
from treadle.ir.program import Foreach, Group, Kernel, Nest, Operation, Program
from treadle.lab.loading import load_program
from treadle.schedule.passes import KERNELS, SCHEDULING
from treadle.schedule.pipeline import run_pipeline

HERE = Path(__file__).parent
SHARED = HERE.parents[1].parent / "shared"
SEEDS = sorted(SHARED.glob("seeds/*.txt"))
DUMPS = sorted((HERE.parent / "corpus" / "inductor").glob("*.txt"))
GATHERED = sorted(SHARED.glob("dumps/inductor/*/*.txt"))
WORKLOADS = SHARED / "bench" / "workloads.py"


def compare(program: Program, options: Options | None = None) -> int:
    """Hold a program's kernels against what was said of them; gives the number of kernels."""
    options = options or Options()
    ctx = Ctx(options, cost_model(program, options), Journal(enabled=False))
    promised = run_pipeline(program, ctx, SCHEDULING)
    built = run_pipeline(promised, ctx, KERNELS)
    own = {b.name for b in built.buffers} - {b.name for b in promised.buffers}
    kernels, total = 0, 0
    for op in built.ops:
        if isinstance(op, Kernel) and op.shape != "template":
            kernels += 1
            total += _compare_kernel(promised, built, op, own)
        elif runs(op):
            total += work_of(built, op).bytes
    if options.accounting != "inductor":
        assert figures(built, ACCOUNTINGS[options.accounting]).bytes_moved == total
    return kernels


def _compare_kernel(promised: Program, built: Program, op: Kernel, own: set[str]) -> int:
    nests = [m for m in op.members if isinstance(m, Nest)]
    assert len(nests) == len(op.members)
    counted = [moved_by(built, nest) for nest in nests]
    said = work_of(built, op)
    assert said.bytes_read == sum(c.loaded for c in counted), op.name
    assert said.bytes_written == sum(c.stored for c in counted), op.name
    before = promised.op_by_name[op.name]
    scratch = sum(moved_of(built, nest, own) for nest in nests)
    assert said.bytes == work_of(promised, before).bytes + scratch, op.name
    inside = _counted_as_internal(promised, before)
    for nest in nests:
        assert not inside & touched_by(built, nest), (op.name, nest.name)
    return said.bytes


def _counted_as_internal(promised: Program, op: Operation) -> frozenset[str]:
    members = op.members if isinstance(op, Foreach) else (op,)
    groups = [m for m in members if isinstance(m, Group)]  # a loop by itself counts all it touches
    return frozenset().union(*[internal_storages(promised, m) for m in groups])


def of_dump(path: Path) -> Program:
    program, loaded = load_program(str(path))
    return unpacked(program) if loaded.is_dump else program


@pytest.mark.skipif(not SEEDS, reason="the seeds are not beside the repository")
def test_the_seeds() -> None:
    assert sum(compare(of_dump(path), Options(accounting="dump")) for path in SEEDS) > 100


@pytest.mark.parametrize("policy", ["balanced", "fast", "memory"])
def test_the_gathered_dumps(policy: str) -> None:
    options = Options(accounting="dump", policy=policy)
    assert sum(compare(of_dump(path), options) for path in DUMPS) > 50


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", GATHERED, ids=lambda p: f"{p.parent.name}/{p.stem}")
@pytest.mark.parametrize("policy", ["balanced", "fast", "memory", "inductor"])
def test_the_dumps_beside_the_repository(path: Path, policy: str) -> None:
    assert compare(of_dump(path), Options(accounting="dump", policy=policy)) > 0


# ------------------------------------------------------------------------------- random programs


@settings(max_examples=100)
@given(small_programs())
def test_random_programs(program: Program) -> None:
    compare(program)


@settings(max_examples=60)
@given(small_programs(moves=LOOP_MOVES))
def test_random_programs_of_loops(program: Program) -> None:
    compare(program, Options(policy="fast"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["balanced", "fast", "memory"])
def test_many_random_programs(policy: str) -> None:
    @settings(max_examples=2000)
    @given(small_programs())
    def every_program(program: Program) -> None:
        compare(program, Options(policy=policy))

    every_program()


# ------------------------------------------------------------------------------- graphs of torch's


def captured(monkeypatch: pytest.MonkeyPatch, run: Any, step: Any) -> list[tuple[str, Program]]:
    """The programs of the graphs that `step(compiled run)` captures; torch itself runs them."""
    torch = pytest.importorskip("torch")
    from treadle.frontends.torch import backend, compat
    from treadle.frontends.torch.lowering.graph import lower_graph

    found: list[tuple[str, Program]] = []

    def lowered(gm: Any, kind: Any, _: Any, donated: Sequence[int] = (), __: Any = None) -> Any:
        found.append((kind.value, lower_graph(gm, kind, donated, lambda part: part).program))
        return compat.make_boxed(lambda args: gm(*args))

    monkeypatch.setattr(backend, "compile_graph", lowered)
    torch._dynamo.reset()
    step(torch.compile(run, backend="treadle"))
    return found


def workloads() -> Any:
    if not WORKLOADS.exists():
        pytest.skip("the workloads are not beside the repository")
    pytest.importorskip("torch")
    sys.path.insert(0, str(WORKLOADS.parent))
    try:
        import workloads as found
    finally:
        sys.path.pop(0)
    return found.REG


def compare_workload(
    monkeypatch: pytest.MonkeyPatch, name: str, options: Sequence[Options]
) -> None:
    import torch

    run, args = workloads()[name]("cpu", torch.float32, "cpu")
    step = getattr(run, "_step", None)
    graphs = captured(
        monkeypatch, run, lambda fast: fast(*args) if step is None else step(fast, *args)
    )
    assert {kind for kind, _ in graphs} == ({"graph"} if step is None else {"forward", "backward"})
    for _, program in graphs:
        for one in options:
            assert compare(program, one) > 0


@pytest.mark.torch
@pytest.mark.parametrize("name", ["rmsnorm_train", "layernorm_train", "softmax_xent_train"])
def test_workloads(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    compare_workload(monkeypatch, name, [Options()])


@pytest.mark.torch
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    ["ssm_scale", "qwen_mlp_stack", "llama_train", "resnet_train", "mlp_train", "layernorm_train",
     "rmsnorm_train", "softmax_xent_train", "adamw_foreach", "lstm_unrolled", "pointwise_mix",
     "embedding_scatter"],
)  # fmt: skip
def test_every_workload(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    policies = [Options(policy=p) for p in ("balanced", "fast", "memory")]
    compare_workload(monkeypatch, name, [*policies, Options(code="triton")])


@pytest.mark.torch
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["llama", "bert", "t5", "vit", "mamba", "gpt2"])
def test_models(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("transformers", reason="the models are those of `transformers`")
    monkeypatch.syspath_prepend(str(HERE.parent / "models"))
    from model_zoo import MODELS, example

    if name not in MODELS:
        pytest.skip(f"there is no model {name}")
    model = example(name)
    graphs = captured(
        monkeypatch,
        model.model,
        lambda fast: fast(**model.inputs, **model.labels).loss.backward(),
    )
    assert len(graphs) >= 2
    for _, program in graphs:
        assert compare(program) > 0
