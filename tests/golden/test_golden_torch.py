"""Functions of torch as programs, kernels and C: tests/golden/torch/<name>.md.

Each file shows the graphs that torch captured (forward and backward where there are gradients) in
three forms. `--update-golden` rewrites them; the review reads the difference. What torch captures
differs from version to version, so one version is compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402, N812

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch import compat  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Built, Settings  # noqa: E402
from treadle.ir.text import parse_program, show_program  # noqa: E402
from treadle.testing.golden import check_text  # noqa: E402

VERSION = "2.13"
HERE = Path(__file__).parent / "torch"
OPTIONS = Options(target="cpu", host="python")
"""The built-in figures of a CPU, not those of the machine at hand."""

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not torch.__version__.startswith(VERSION), reason=f"shown as torch {VERSION} captures it"
    ),
]


@dataclass(frozen=True)
class TorchCase:
    """A function, what it is given, and a sentence about it."""

    says: str
    function: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]
    dynamic: bool = False


def floats(*shape: int, gradient: bool = False, dtype: Any = None) -> Any:
    return torch.ones(shape, dtype=dtype or torch.float32, requires_grad=gradient)


def changed_in_place(x: Any) -> Any:
    x.add_(1.0)
    return x * 2


CASES = {
    "pointwise_broadcast": TorchCase(
        "a row and a column are spread where they are read",
        lambda x, row, column: torch.relu(x * row + column),
        lambda: (floats(6, 40), floats(40), floats(6, 1)),
    ),
    "softmax": TorchCase(
        "three passes over a row, the exponentials kept",
        lambda x: torch.softmax(x, -1),
        lambda: (floats(8, 512),),
    ),
    "layer_norm_with_gradients": TorchCase(
        "forward and backward; rows and columns of the gradients",
        lambda x, w, b: F.layer_norm(x, (32,), w, b),
        lambda: tuple(floats(*shape, gradient=True) for shape in ((16, 32), (32,), (32,))),
    ),
    "embedding_with_gradients": TorchCase(
        "rows are gathered, and their gradients added up where they came from",
        lambda at, table: F.embedding(at, table) * 2,
        lambda: (torch.zeros(5, dtype=torch.int64), floats(10, 16, gradient=True)),
    ),
    "index_put": TorchCase(
        "values are added at places that data say",
        lambda x, at, v: x.index_put((at,), v, accumulate=True),
        lambda: (floats(10, 8), torch.zeros(4, dtype=torch.int64), floats(4, 8)),
    ),
    "cat": TorchCase(
        "two computations, each at its place of one result",
        lambda x, y: torch.cat([x * 2, torch.exp(y)], 1),
        lambda: (floats(4, 24), floats(4, 40)),
    ),
    "cat_chosen": TorchCase(
        "what one reader takes point by point is not put together; loops are cut where it changes",
        lambda x, s: torch.cat([-x[:, 24:], x[:, :24]], 1) * s,
        lambda: (floats(4, 64), floats(64)),
    ),
    "mm_epilogue": TorchCase(
        "a matrix product of few rows is a call; what follows it is a loop",
        lambda x, w, b: F.gelu(x @ w + b),
        lambda: (floats(3, 16), floats(16, 32), floats(32)),
    ),
    "conv_call": TorchCase(
        "a convolution is a call with loops around",
        lambda x, w: torch.relu(F.conv2d(x * 0.5, w, padding=1)),
        lambda: (floats(1, 3, 8, 8), floats(4, 3, 3, 3)),
    ),
    "dynamic_shape": TorchCase(
        "sizes that are known at run time are names in all forms",
        lambda x: x / x.sum(-1, keepdim=True),
        lambda: (floats(6, 48),),
        dynamic=True,
    ),
    "in_place_mutation": TorchCase(
        "an input that is changed is written back once", changed_in_place, lambda: (floats(64),)
    ),
    "bf16_chain": TorchCase(
        "computed in f32, rounded where torch would round",
        lambda x, y: torch.sigmoid(x * y) + x,
        lambda: (floats(96, dtype=torch.bfloat16), floats(96, dtype=torch.bfloat16)),
    ),
    "scan": TorchCase(
        "a running sum goes one by one",
        lambda x: torch.cumsum(x * 2, 1),
        lambda: (floats(4, 32),),
    ),
}  # fmt: skip


def graphs_of(case: TorchCase) -> list[Built]:
    """The graphs of a function, compiled; the backward one without a call."""
    found: list[Built] = []
    settings = Settings(OPTIONS, strict=True, report=found.append)

    def backend(gm: Any, example_inputs: Any) -> Any:
        return compile_with(settings, gm, example_inputs)

    torch._dynamo.reset()
    with compat.backward_compiled_at_once():
        torch.compile(case.function, backend=backend, dynamic=case.dynamic)(*case.inputs())
    return sorted(found, key=lambda built: ("forward", "graph", "backward").index(built.name))


def without_places(text: str) -> str:
    """Text that does not change when a line moves in a file of Python."""
    return re.sub(r'(, )?"[\w./<>-]+\.py:\d+"(, )?', lambda m: ", " if m[1] and m[2] else "", text)


def shown(name: str, graphs: list[Built]) -> Iterator[str]:
    yield f"# {CASES[name].says}\n"
    for built in graphs:
        yield f"\n## {built.name}\n"
        program = without_places(show_program(built.lowered.program))
        kernels = without_places(show_program(built.scheduled.kernels))
        c = "\n".join(k.text.strip("\n") + "\n" for k in built.runner.compiled.unit.kernels)
        for form, text in (("program", program), ("kernels", kernels), ("c", c)):
            yield f"\n```{form}\n{text}```\n"


@pytest.mark.parametrize("name", CASES)
def test_a_function_of_torch_becomes_what_its_golden_file_shows(
    name: str, update_golden: bool
) -> None:
    graphs = graphs_of(CASES[name])
    for built in graphs:
        assert parse_program(without_places(show_program(built.scheduled.kernels)))
    check_text(HERE / f"{name}.md", "".join(shown(name, graphs)), update_golden)


def test_every_golden_file_has_its_function() -> None:
    assert {path.stem for path in HERE.glob("*.md")} == set(CASES)
