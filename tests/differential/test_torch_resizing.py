"""Resizing to any size is like eager's, and its places are loops or one operator."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

import treadle  # noqa: E402
import treadle.torch  # noqa: E402
from treadle.frontends.torch.capture.resized_by_library import keep_resizing_whole  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("error::UserWarning")]
SHAPES = {"linear": (2, 3, 11), "bilinear": (2, 3, 11, 8), "trilinear": (1, 2, 5, 6, 7)}
SHAPES["bicubic"] = SHAPES["bilinear"]
SIDES = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def results(call: Any, x: Any) -> tuple[Any, Any]:
    own = x.clone().requires_grad_()
    out = call(own)
    (out.float() * torch.linspace(-1, 1, out.shape[-1])).sum().backward()
    return out.detach(), own.grad


def compare(call: Any, x: Any, dynamic: bool = False) -> None:
    fast = torch.compile(call, backend="treadle", dynamic=dynamic)
    for found, wanted in zip(results(fast, x), results(call, x), strict=True):
        assert found.stride() == wanted.stride()
        wide = found.dtype in (torch.float32, torch.float64)
        near = 1e-4 if wide else 0.03
        torch.testing.assert_close(found, wanted, rtol=near, atol=near)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), call(x), rtol=near, atol=near)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("mode", SIDES)
def test_sizes_without_a_formula_are_like_eagers(mode: str, aligned: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(SHAPES[mode])
    for size in ((29, 23, 17), (7, 19, 3), (1, 6, 40)):
        sides = size[: SIDES[mode]]
        compare(
            lambda x, s=sides: functional.interpolate(x, s, mode=mode, align_corners=aligned) * 2, x
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_place_is_eagers(mode: str, dtype: Any) -> None:
    torch.manual_seed(0)
    for shape in ((2, 3, 11), (2, 3, 11, 8), (1, 2, 5, 6, 7)):
        x = torch.randn(shape).to(dtype)
        for size in ((29, 23, 17), (7, 19, 3)):
            sides = size[: len(shape) - 2]
            compare(lambda x, s=sides: functional.interpolate(x, s, mode=mode) * 2, x)
        compare(lambda x: functional.interpolate(x, scale_factor=1.7, mode=mode), x)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_channels_that_lie_last_are_like_eagers(mode: str, dtype: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 9, 8).to(dtype).to(memory_format=torch.channels_last)
    for factor in (2, 0.5, 1.6):
        compare(lambda x, f=factor: functional.interpolate(x, scale_factor=f, mode=mode), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_types_are_like_eagers(dtype: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 9, 13).to(dtype)
    compare(lambda x: functional.interpolate(x, (31, 23), mode="bilinear"), x)


@pytest.mark.parametrize("recompute", [None, True])
@pytest.mark.parametrize("factor", [1.7, 2.6, (0.45, 3.3), (2, 1.3)])
def test_factors_are_like_eagers(factor: Any, recompute: bool | None) -> None:
    torch.manual_seed(0)

    def call(x: Any) -> Any:
        return functional.interpolate(
            x, scale_factor=factor, mode="bilinear", recompute_scale_factor=recompute
        )

    compare(call, torch.randn(2, 3, 11, 14))
    compare(call, torch.randn(2, 3, 11, 14).to(memory_format=torch.channels_last))


def test_open_sizes_are_like_eagers() -> None:
    torch.manual_seed(0)
    up = torch.nn.Upsample(scale_factor=2.5, mode="bilinear", align_corners=True)
    fast = torch.compile(lambda x: up(x * 2), backend="treadle", dynamic=True)
    for n in (6, 7, 12):
        x = torch.randn(2, 3, n, n + 1)
        for found, wanted in zip(results(fast, x), results(lambda x: up(x * 2), x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_under_transforms_and_autocast_it_is_like_eagers() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 2, 4, 7, 9)

    def each(x: Any) -> Any:
        return torch.vmap(lambda y: functional.interpolate(y, (17, 20), mode="bilinear"))(x)

    torch.testing.assert_close(
        torch.compile(each, backend="treadle")(x), each(x), rtol=1e-4, atol=1e-4
    )

    def cast(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return functional.interpolate(x.bfloat16(), (17, 20), mode="bilinear")

    found, wanted = torch.compile(cast, backend="treadle")(x[0]), cast(x[0])
    assert found.dtype is wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)


def test_gradients_without_a_formula_are_one_call() -> None:
    def call(x: Any, size: int) -> Any:
        return functional.interpolate(x, (size, size), mode="bilinear").sum()

    torch._dynamo.reset()
    x = torch.randn(2, 3, 32, 32, requires_grad=True)
    kinds = {size: _calls(call, x, size) for size in (57, 64)}
    assert any("upsample_bilinear2d_backward" in name for name in kinds[57])
    assert not any("upsample" in name for name in kinds[64])


def _calls(call: Any, x: Any, size: int) -> list[str]:
    return [str(op) for graph in treadle.explain(call, x, size) for op in graph.fallbacks]


def test_a_graph_is_changed_only_where_no_formula_has_the_places() -> None:
    def seen(size: int) -> int:
        found: list[int] = []

        def backend(gm: Any, _: Any) -> Any:
            found.append(keep_resizing_whole(gm.graph))
            return gm

        torch._dynamo.reset()
        call = torch.compile(
            lambda x: functional.interpolate(x, size, mode="bilinear"), backend=backend
        )
        x = torch.randn(1, 2, 32, 32)
        whole = call(x)
        wanted = functional.interpolate(x, size, mode="bilinear")
        torch.testing.assert_close(whole, wanted, rtol=1e-4, atol=1e-4)
        return found[0]

    assert [seen(n) for n in (64, 48, 16, 32, 57, 20, 131)] == [0, 0, 0, 0, 1, 1, 1]
