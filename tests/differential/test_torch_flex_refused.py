"""What kernels of attention cannot do stays torch's, and the report says why."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Settings  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
]
TRITON = Options(code="triton")


class LoweredError(Exception):
    """A graph was lowered, which is all that is asked for."""


def reasons(function: Callable[..., Any], given: list[Any], options: Options) -> list[str]:
    """Why attention stays torch's; nothing if it does not."""
    found: list[str] = []

    def look(done: Any) -> None:
        found.extend([why for what, why in done.fallbacks if what == "flex_attention"])
        raise LoweredError

    settings = Settings(options, True, look)
    torch._dynamo.reset()
    run = torch.compile(function, backend=lambda gm, x: compile_with(settings, gm, x))
    with pytest.raises(Exception, match="LoweredError"):
        run(*given)
    return found


def tensors(dtype: Any = torch.float32, dim: int = 16) -> list[Any]:
    return [torch.randn(1, 2, 48, dim, dtype=dtype) for _ in range(3)]


def masked(block: int) -> Callable[..., Any]:
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 48, 48, "cpu", block)
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask)


def changed(change: Callable[..., Any]) -> Callable[..., Any]:
    return lambda q, k, v: flex_attention(
        q, k, v, score_mod=lambda score, b, h, i, j: change(score, i, j)
    )


def plain(q: Any, k: Any, v: Any) -> Any:
    return flex_attention(q, k, v)


COMPLEX = torch.ones(48, dtype=torch.complex64)

REFUSED: dict[str, tuple[Callable[..., Any], list[Any], Options, str]] = {
    "on a cpu": (plain, tensors(), Options(code="c"), "no lowering"),
    "exact numerics": (
        plain, tensors(), Options(code="triton", numerics="exact"), "numerics are exact",
    ),
    "f64": (plain, tensors(torch.float64), TRITON, "tensors of f64"),
    "wide heads": (plain, tensors(dim=272), TRITON, "heads of 272 elements"),
    "odd blocks": (masked(24), tensors(), TRITON, "blocks of 24"),
    "another backend": (
        lambda q, k, v: flex_attention(q, k, v, kernel_options={"BACKEND": "FLASH"}),
        tensors(), TRITON, "FLASH",
    ),
    "a function without a form": (
        changed(lambda s, i, j: torch.special.i1e(s)), tensors(), TRITON, "i1e of f32",
    ),
    "a sum inside": (
        changed(lambda s, i, j: s + torch.arange(3).sum() * j), tensors(), TRITON, "inside",
    ),
    "complex numbers": (
        changed(lambda s, i, j: s + COMPLEX[i].real), tensors(), TRITON, "at run time only",
    ),
}  # fmt: skip
SERVED: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "plain": (plain, tensors()),
    "half": (plain, tensors(torch.bfloat16, 80)),
    "blocks of 48": (masked(48), tensors()),
    "a function with a form": (changed(lambda s, i, j: s.sigmoid() + (i % 4 == j // 3)), tensors()),
    "a gap in a table": (
        lambda q, k, v: flex_attention(
            q, k, v, score_mod=lambda s, b, h, i, j: s + (q * 2)[0, 0, i, 3]
        ),
        tensors(),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_attention_should_not_be_ours_where_it_would_not_do_what_was_asked(name: str) -> None:
    function, given, options, reason = REFUSED[name]
    found = reasons(function, given, options)
    assert len(found) == 1
    assert reason in found[0], found


@pytest.mark.parametrize("name", SERVED)
def test_attention_is_ours(name: str) -> None:
    assert reasons(*SERVED[name], TRITON) == []
