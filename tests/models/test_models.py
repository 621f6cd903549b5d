"""Random small models of `transformers` through `torch.compile(backend="treadle")`, like eager."""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="the models are those of `transformers`")

from model_compare import Found, compare, distance, is_library, tensors  # noqa: E402
from model_family import FAMILY, family  # noqa: E402
from model_zoo import MODELS, QUICK, example  # noqa: E402

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Built, Settings  # noqa: E402

pytestmark = pytest.mark.torch

WITHIN = 1e-4
"""How far results and gradients may be from eager's, as shares of the largest element."""
WITHIN_BF16 = 0.05
"""The same where results are rounded to eight bits on the way."""
SHARE = 0.9
"""The least share of operations that are generated, products, convolutions, attention apart."""


@pytest.fixture(autouse=True)
def nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a test wanted the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


ALIKE = {
    "qwen3": "llama", "phi": "llama", "opt": "gpt2", "falcon": "bloom", "distilbert": "bert",
    "deit": "vit", "mixtral_loop": "mixtral", "gemma": "llama", "clip": "vit",
    "bloom": "gpt2", "mixtral": "mixtral_grouped", "whisper_encoder": "t5",
}  # fmt: skip
"""Models built of what another one has too: for `make exhaustive`."""


def named(name: str) -> Any:
    slow = () if name in QUICK else (pytest.mark.slow,)
    return pytest.param(name, marks=(*slow, pytest.mark.exhaustive) if name in ALIKE else slow)


@pytest.mark.parametrize("name", [named(name) for name in MODELS])
def test_forward_and_training_step_equal_eager(name: str) -> None:
    found = compare(example(name))
    assert found.warned == []
    assert found.graphs >= 3
    assert found.forward_error < WITHIN
    assert found.gradient_error < WITHIN
    assert found.share > SHARE, found.reasons
    assert found.share_of_loops > SHARE, found.reasons


# The parts of the last two are those of llama, and of t5 and gpt2.
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["deberta-v2", *[pytest.param(n, marks=pytest.mark.exhaustive) for n in ("mistral", "bart")]],
)
def test_other_families_equal_eager(name: str) -> None:
    assert name in FAMILY
    found = compare(family(name))
    assert found.warned == []
    assert found.forward_error < WITHIN
    assert found.gradient_error < WITHIN
    assert found.share > SHARE, found.reasons


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit", pytest.param("llama", marks=pytest.mark.exhaustive)])
def test_other_batch_sizes_need_no_other_program(name: str) -> None:
    model, given = example(name).model.eval(), example(name).inputs
    built: list[Built] = []
    settings = Settings(Options(), strict=True, report=built.append)
    torch._dynamo.reset()
    fast = torch.compile(model, backend=partial(compile_with, settings), dynamic=True)
    for size in (2, 3, 7):
        inputs = {key: torch.cat([x] * 4)[:size] for key, x in given.items()}
        with torch.no_grad():
            assert distance(tensors(fast(**inputs)), tensors(model(**inputs))) < WITHIN
    assert len(built) == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", pytest.param("convnext", marks=pytest.mark.exhaustive)])
def test_a_training_step_in_bfloat16_is_as_near_as_rounding_allows(name: str) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = compare(example(name))
    assert found.warned == []
    assert found.forward_error < WITHIN_BF16
    assert found.gradient_error < WITHIN_BF16
    assert found.share > SHARE, found.reasons


def test_every_difference_counts() -> None:
    here = {"a": torch.tensor([1.0, 100.0]), "b": torch.tensor([0.1])}
    assert distance(here, here) == 0
    wrong = {**here, "b": torch.tensor([0.2])}
    assert distance(wrong, here) == pytest.approx(1.0)
    lost = {**here, "a": torch.tensor([float("nan"), 100.0])}
    assert distance(lost, here) == float("inf")
    with pytest.raises(AssertionError, match="b: None is not"):
        distance({**here, "b": None}, here)


def test_noise_beside_large_elements_counts_as_little() -> None:
    wanted = {"weight": torch.tensor([1.0]), "bias": torch.tensor([1e-9])}
    assert distance({**wanted, "bias": torch.tensor([-1e-9])}, wanted) < 1e-5


def test_only_products_convolutions_and_attention_are_library_calls() -> None:
    calls = ("aten.addmm.default", "aten.convolution_backward.default", "other.grouped_mm.default")
    assert all(is_library(name) for name in calls)
    assert not any(is_library(name) for name in ("aten.sort.default", "aten.cumsum.default", "f"))


def test_the_share_is_of_calls_that_no_library_is_meant_for() -> None:
    found = Found(nodes=9, loops=3)
    found.calls.update(["aten.mm.default", "aten.mm.default", "aten.sort.default"])
    assert found.share == 0.9
    assert found.share_of_loops == 0.75
    assert Found().share == 1.0
