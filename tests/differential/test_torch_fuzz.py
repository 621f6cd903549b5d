"""Random torch functions: eager, the reference interpreter and compiled code agree."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch_fuzz_cases as cases  # noqa: E402
import torch_fuzz_interp  # noqa: E402
import torch_fuzz_ops as ops  # noqa: E402
import torch_fuzzer  # noqa: E402
from many_threads import on_threads  # noqa: E402

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings  # noqa: E402

pytestmark = pytest.mark.torch

SECONDS = 60.0
"""What a run of some cases may take; the rest of its seeds is left for another day."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    torch._dynamo.reset()
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [0, 18])
def test_some_random_functions_agree(first: int) -> None:
    done, failures = torch_fuzzer.fuzz(range(first, first + 18), SECONDS)
    assert done
    assert not [(case.seed, problem) for case, problem in failures]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_random_functions_whose_every_nest_is_shared_by_threads_agree() -> None:
    with on_threads(2):
        done, failures = torch_fuzzer.fuzz(range(2601, 2613), SECONDS)
    assert done
    assert not [(case.seed, problem) for case, problem in failures]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "first",
    [100, *[pytest.param(n, marks=pytest.mark.exhaustive) for n in range(130, 520, 30)]],
)
def test_many_random_functions_agree(first: int) -> None:
    done, failures = torch_fuzzer.fuzz(range(first, first + 30), SECONDS)
    assert done
    assert not [(case.seed, problem) for case, problem in failures]


FOUND: dict[str, tuple[str, str]] = {
    "a result and its transpose share memory": (
        "x0 = torch.rand((2,)) > 0.5",
        "v5 = x0.repeat(2, 1)\nv6 = v5.mT\nreturn [v5, v6]",
    ),
    "softmax in training of a tensor that lies the other way": (
        "x0 = torch.randn((2, 3, 2), requires_grad=True)",
        "v0 = x0.transpose(0, 1)\nreturn [v0.softmax(0), v0.log_softmax(0)]",
    ),
    "one number of f16 fills rows": (
        "x0 = torch.randn(3, 64).to(torch.float16)",
        "v0 = x0.round()\nv0[torch.tensor([0, 0, 1, 0])] = 1\nreturn [v0]",
    ),
    "softmax of a reshape of nothing": (
        "x0 = torch.randn(4, 0, 4).transpose(0, -1)",
        "v0 = F.softmin(x0.reshape(-1) + 1.5, -1)\nreturn [v0]",
    ),
    "a reshape of a computation without elements": (
        "x0 = torch.randn(3, 3, 0)",
        "v0 = torch.maximum(x0.abs(), x0)\nv1 = v0.reshape(1, -1) @ v0.reshape(-1, 1)"
        "\nreturn [v1, v0.flip((0, 2))]",
    ),
    "a view of a changed input, where sizes are open": (
        "x0 = torch.arange(24).reshape(4, 3, 2)[..., ::2]",
        "x0.select(2, 0).add_(1)\nv0 = x0.expand(2, *x0.shape).diagonal(-1, 2, 3)\nreturn [v0]",
    ),
    "a piece of a computation, where sizes are open": (
        "x0 = torch.randn(3, n, 2)",
        "v0 = (x0 >= 0).chunk(2, 1)[0]\nreturn [v0]",
    ),
    "a computation and its view, where sizes are open": (
        "x0 = torch.randint(-4, 5, (4, 4), dtype=torch.int8)",
        "v0 = x0.clamp(-1, 1).cumprod(-1).to(torch.uint8)\nv1 = v0.view(2, 4, 2)\nreturn [v1, v0]",
    ),
    "a size that is open and happens to be one": (
        "x0 = torch.randn(n)",
        "v0 = x0.expand(2, *x0.shape) * 2\nv1 = v0[:, 0:3].clamp(min=v0.diagonal()[::3])"
        "\nreturn [v1]",
    ),
    "a largest size that can be told": (
        "x0 = torch.randn(4, 3, n, 1, 4)",
        "v0 = torch.tril(F.pad(x0, (1, 1, 0, 2))[..., 2:-1], -1)\nreturn [v0]",
    ),
    "index_fill keeps the order of the dimensions in memory": (
        "x0 = torch.randn(3, n, 2).transpose(0, 2)",
        "v0 = x0.index_fill(-1, torch.tensor([0, 2]), 1.5)\n"
        "v1 = (x0 * 2).index_fill(0, torch.tensor(1), x0[0, 0, 0])\nreturn [v0, v1]",
    ),
    "a quarter turn of what a view has changed": (
        "x0 = torch.randn(n, n).transpose(0, -1)",
        "x1 = x0.as_strided(x0.shape, x0.stride(), x0.storage_offset())\n"
        "v0 = torch.bucketize(x1, torch.tensor([-1.0, 0.0, 0.5, 2.0]))\nv1 = v0.flatten()\n"
        "v1.transpose(-1, -1).copy_(v1)\nreturn [v0.rot90(1, (0, 1))]",
    ),
    "a result twice, seen from inside a computation": (
        "x0 = torch.randint(-4, 5, (n, 3), dtype=torch.int32)",
        "v0 = (x0 * 2 > 1)[..., -1]\nreturn [v0, v0.flatten()]",
    ),
    "a view that torch holds, of what is changed later": (
        "x0 = torch.randint(-4, 5, (2, n, n), dtype=torch.int8)",
        "v0 = x0 + -1.5\nv1 = v0.as_strided(v0.shape, v0.stride(), v0.storage_offset())\n"
        "v2 = F.silu(v1)\nv3 = v1.to(torch.int64)\nv4 = v2.relu()\nv0.mul_(2)\n"
        "v5 = v4.unbind(1)[-1]\nreturn [v3]",
    ),
    "a reshape of sizes that may be zero": (
        "x0 = torch.randn(1, 4, 4, 3)",
        "v0 = (x0 % 3)[:, 2:].reshape(4, 2, 3).mean((2,))\nreturn [v0, v0.flatten(-2)]",
    ),
    "a read that a mask never lets through": (
        "x0 = torch.randint(-4, 5, (1,)).repeat_interleave(2, -1)[..., ::2]",
        "v0 = torch.cat([x0, x0.flip(-1), x0[0:]], -1)\n"
        "x0.index_add_(-1, torch.tensor([0, 0, 0]), x0.index_select(-1, torch.tensor([0, 0, 0])))\n"
        "v1 = v0.cummax(-1).values - 2\nv2 = v1.chunk(2, 0)[0]\nv3 = v1[..., -1]\n"
        "v2.index_fill_(0, torch.tensor([1, 0]), 0)\nreturn [v3]",
    ),
    "a window that begins where the sizes say": (
        "x0 = torch.randn(2, 2 * n)",
        "v0 = x0.tensor_split(2, -1)[-1]\n"
        "v1 = v0.as_strided(v0.shape, v0.stride(), v0.storage_offset())\nx0.neg_()\n"
        "v2 = v0.clamp(-3, 3)\nreturn [v1]",
    ),
    "every other row, where there may be none": (
        "x0 = torch.randn(3, 4, n)",
        "return [(x0 + 1)[2:-1:2]]",
    ),
    "a roll of what only looks like an image": (
        "x0 = torch.randn(3, 1, n).transpose(0, -1)",
        "v0 = torch.where(torch.arange(x0.shape[-1]) % 2 == 0, 0.5, x0).expand(2, *x0.shape)\n"
        "return [torch.copysign(v0, torch.tensor(True)).roll((0, -1), (0, 3))]",
    ),
    "parts of a copy with gaps share memory": (
        "x0 = torch.randint(-4, 5, (4, 3, 4, n), dtype=torch.int8)",
        "v0 = torch.diag_embed(x0).unbind(1)[-1].mT\n"
        "v1 = v0.diagonal_scatter(torch.zeros_like(v0.diagonal(0, 3, 2)), 0, 3, 2).detach()\n"
        "v2 = v1[1:2:1]\nv3 = v1.view_as(v1)\nreturn [v2, v3]",
    ),
    "a loop without iterations reads what is written before it": (
        "x0 = torch.rand((4, n, n)) > 0.5",
        "v2 = x0[2:3:2]\n"
        "v4 = v2[torch.tensor([0, 0, 0])[:, None], torch.tensor([2])[None, :]]\n"
        "v7 = v4.diagonal(0, -2, -1)[None]\nv10 = torch.cat([v7, v7.flip(2), v7[0:]], 2)\n"
        "v18 = v10.repeat_interleave(2, 1).to(torch.float64)\nv2.select(2, 0).fill_(0)\n"
        "v20 = torch.fmod(v18, 2)\n"
        "v21 = F.embedding(torch.tensor([0]), v20.reshape(v20.shape[0], -1))\n"
        "v24 = v21.scatter(0, (torch.arange(v21.numel()).reshape(v21.shape) % 1), 1)\n"
        "v25 = F.logsigmoid(v18.diagonal(1, -1, -3))\nreturn [v25, v24]",
    ),
    "a diagonal without elements": (
        "x0 = torch.randn(5, 1)",
        "v0 = x0.clamp(-2, 2)\nv1 = v0.diagonal(1, 0, 1)[None]\nreturn [v1, v0]",
    ),
}
"""What the fuzzer has found once, by what was wrong: inputs and function."""


def case_of(inputs: str, body: str, is_dynamic: bool = False) -> cases.Case:
    """A case from text; its last line returns the results."""
    *lines, last = body.splitlines()
    outputs = tuple(last.removeprefix("return [").removesuffix("]").split(", "))
    errors = (1.3e-6,) * len(outputs)
    made = tuple(inputs.splitlines())
    return cases.Case(0, made, tuple(lines), outputs, 3, is_dynamic, errors, 1.3e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_once_stays_right(what: str, is_dynamic: bool) -> None:
    case = case_of(*FOUND[what], is_dynamic)
    assert torch_fuzzer.eager(case) is not None
    assert torch_fuzzer.check(case, Settings(Options.from_env(), True)) is None


# ------------------------------------------------------------- the fuzzer itself can be wrong


def test_a_gradient_may_be_closer_to_the_truth_than_eagers() -> None:
    case = case_of(
        "x0 = torch.randn((3, 3, 2, 2, 3)).to(torch.float32).requires_grad_()",
        "v0 = x0.permute(0, 1, 4, 2, 3)\nv1 = F.layer_norm(v0, v0.shape[-1:])\nreturn [v1]",
        False,
    )
    exact, wanted = torch_fuzzer.eager(torch_fuzzer.in_double(case)), torch_fuzzer.eager(case)
    assert exact is not None
    assert wanted is not None
    assert exact.gradients[0].dtype is torch.float64

    def with_gradient(gradient: Any) -> torch_fuzzer.Outcome:
        return replace(wanted, gradients=[gradient])

    right = with_gradient(exact.gradients[0].float())
    worse = with_gradient(2 * wanted.gradients[0] - right.gradients[0] + 1e-3)
    assert torch_fuzzer.judged(case, right, wanted, case.n) is None
    assert "gradient 0" in str(torch_fuzzer.judged(case, worse, wanted, case.n))
    wrong = replace(right, shared=[not x for x in wanted.shared])
    assert "memory is shared" in str(torch_fuzzer.judged(case, wrong, wanted, case.n))


def test_only_errors_of_torch_itself_pass_for_graphs_it_cannot_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run() -> torch_fuzz_interp.Watching:
        watching = torch_fuzz_interp.Watching(Settings(Options.from_env(), True))
        case = case_of("x0 = torch.randn(n)", "return [x0.sin()]", False)
        wanted = torch_fuzzer.eager(case)
        assert wanted is not None
        assert torch_fuzzer.with_backend(case, watching, wanted) is None
        return watching

    def refuses(*args: Any, **rest: Any) -> Any:
        raise RuntimeError("not captured")

    assert run().uncaptured == 0
    with monkeypatch.context() as patched:
        space: dict[str, Any] = {}
        text = "def refuses(*args, **rest):\n    raise RuntimeError('not captured')"
        exec(compile(text, "in_torch.py", "exec"), space)
        patched.setattr("torch._dynamo.backends.common.aot_module_simplified", space["refuses"])
        assert run().uncaptured == 1
    monkeypatch.setattr(torch_fuzz_interp, "compile_graph", refuses)
    with pytest.raises(AssertionError, match="not captured"):
        run()


def test_a_seed_always_gives_the_same_text() -> None:
    texts = [cases.text_of(cases.make_case(seed)) for seed in range(5)]
    assert texts == [cases.text_of(cases.make_case(seed)) for seed in range(5)]
    assert len(set(texts)) == 5


def test_the_text_of_a_case_runs_alone() -> None:
    space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(cases.text_of(cases.make_case(1)), space)
    assert all(isinstance(x, torch.Tensor) for x in space["function"](*space["make"]()))


def test_every_template_can_be_filled_in_and_runs() -> None:
    used: set[str] = set()
    for seed in range(40):
        builder = cases.Builder(seed)
        for _, group in ops.GROUPS:
            for row in group:
                if row.text in used:
                    continue
                for x in builder.tensors():
                    if cases.fits(builder.space[x], row.needs) and builder._try(row, x):
                        used.add(row.text)
                        break
    unused = {row.text for _, group in ops.GROUPS for row in group} - used
    assert not unused


def wrong(function: Any) -> Any:
    """A backend whose graphs give results that are off by a little."""

    def backend(gm: Any, inputs: Any) -> Any:
        return lambda *args: [function(y) for y in gm(*args)]

    return backend


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(lambda y: y + 1e-5, id="values"),
        pytest.param(lambda y: y.double(), id="types"),
        pytest.param(lambda y: y.t().contiguous().t(), id="strides"),
        pytest.param(lambda y: y[:1], id="sizes"),
    ],
)
def test_a_wrong_result_is_found(what: Any) -> None:
    case = case_of("x0 = torch.randn(3, 4)", "v0 = x0 * 2\nreturn [v0]")
    case = cases.replace(case, errors=(0.0,))
    wanted = torch_fuzzer.eager(case)
    assert wanted is not None
    assert torch_fuzzer.with_backend(case, "eager", wanted) is None
    assert torch_fuzzer.with_backend(case, wrong(what), wanted) is not None


def test_memory_that_is_shared_by_mistake_is_found() -> None:
    case = case_of("x0 = torch.randn(3)", "v0 = x0 * 2\nv1 = v0.clone()\nreturn [v0, v1]")
    wanted = torch_fuzzer.eager(case)
    assert wanted is not None

    def backend(gm: Any, inputs: Any) -> Any:
        return lambda *args: [gm(*args)[0]] * 2

    found = torch_fuzzer.with_backend(case, backend, wanted)
    assert found is not None
    assert "shared" in found


def test_the_interpreter_runs_every_graph_of_plain_calls() -> None:
    watching = torch_fuzzer.Watching(Settings(Options.from_env(), True))
    text = "v0 = (x0.sin() @ x0.transpose(0, 1)).sum(0) / 3\nreturn [v0]"
    case = case_of("x0 = torch.randn(3, 40)", text)
    wanted = torch_fuzzer.eager(case)
    assert wanted is not None
    assert torch_fuzzer.with_backend(case, watching, wanted) is None
    assert (watching.compared, watching.problem, watching.unbounded) == (1, None, 0)
    ((ours, bound),) = watching.bounded
    assert watching.bound_of(ours) is bound
    assert 0 < float(bound.error.max()) < 1e-3


def test_the_interpreter_runs_every_graph_without_calls() -> None:
    settings = Settings(Options.from_env(), True)
    watching = torch_fuzzer.Watching(settings)
    case = case_of("x0 = torch.randn(3, 4).requires_grad_()", "v0 = x0.sin().sum(0)\nreturn [v0]")
    wanted = torch_fuzzer.eager(case)
    assert wanted is not None
    assert torch_fuzzer.with_backend(case, watching, wanted) is None
    assert (watching.graphs, watching.compared, watching.problem) == (2, 2, None)


def test_an_interpreter_that_disagrees_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch_fuzz_interp.bound_for_graph

    def wrong_by_a_little(built: Any, given: Any) -> Any:
        return [y._replace(value=y.value + 1e-6) for y in right(built, given)]

    monkeypatch.setattr(torch_fuzz_interp, "bound_for_graph", wrong_by_a_little)
    case = case_of("x0 = torch.randn(3, 4)", "v0 = x0 * 2\nreturn [v0]")
    found = torch_fuzzer.check(case, Settings(Options.from_env(), True))
    assert found is not None
    assert "12 of 12 elements out of bounds" in found


def test_a_failing_case_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "v0 = x0 * 2\nv1 = v0.sin()\nv2 = x0 + 1\nreturn [v1, v2]"
    case = case_of("x0 = torch.randn(3)", body)

    def fails(case: cases.Case, settings: Any) -> str | None:
        runs = torch_fuzzer.eager(case) is not None
        return "sin" if runs and any("sin" in line for line in case.lines) else None

    monkeypatch.setattr(torch_fuzzer, "check", fails)
    small = torch_fuzzer.smaller(case, Settings(Options.from_env(), True))
    assert small.lines == ("v0 = x0 * 2", "v1 = v0.sin()")
    assert small.outputs == ("v1",)
