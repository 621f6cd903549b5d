"""Products, and convolutions one element wide, are kernels: like eager, touching only their own."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import treadle  # noqa: E402
from treadle.frontends.torch import compat  # noqa: E402
from treadle.frontends.torch.lowering.ops import products as ops_products  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(compat.floats_in_a_vector() < 16, reason="tiles are for wider vectors"),
]
PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.convolution.default")


def compiled(function: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="treadle", dynamic=False, options=options)


def calls(function: Any, *args: Any) -> set[str]:
    torch._dynamo.reset()
    found = treadle.explain(function, *args)
    return {name for graph in found.graphs for name, _, _ in graph.fallbacks if name in PRODUCTS}


def close(found: Any, exact: Any, terms: int) -> None:
    """Within what sums of that many products may be off, each rounded."""
    limit = 2 * (min(terms, 512) + 4) * 2.0**-24
    assert (found - exact).abs().max() <= limit * exact.abs().max() * 4 + 1e-6


@pytest.mark.parametrize("m, n, k", [(4, 8, 4), (8, 256, 64), (33, 70, 513), (100, 9, 1030)])
@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
def test_products_of_any_layout_are_close_to_f64(
    m: int, n: int, k: int, turned: tuple[bool, bool]
) -> None:
    x = torch.randn(k, m).t() if turned[0] else torch.randn(m, k)
    w = torch.randn(n, k).t() if turned[1] else torch.randn(k, n)
    y = torch.randn(n)

    def product(x: Any, w: Any, y: Any) -> Any:
        return torch.relu(torch.addmm(y, x, w, beta=0.5, alpha=2)), x @ w

    assert calls(product, x, w, y) == set()
    wanted = product(x.double(), w.double(), y.double())
    fast = compiled(product)
    for _ in range(3):
        for found, exact in zip(fast(x, w, y), wanted, strict=True):
            close(found, exact, k)


@pytest.mark.parametrize("m", range(2, 9))
@pytest.mark.parametrize("n, k", [(16, 64), (21, 77), (9, 513), (40, 1100)])
def test_a_few_rows_that_lie_along_the_terms_are_close_to_f64(m: int, n: int, k: int) -> None:
    x, w, y = torch.randn(m, k), torch.randn(n, k), torch.randn(n)
    several = torch.randn(3, m, k), torch.randn(3, n, k)

    def product(x: Any, w: Any, y: Any, a: Any, b: Any) -> Any:
        return torch.nn.functional.linear(x, w, y).sigmoid(), torch.bmm(a, b.mT)

    given = x, w, y, *several
    assert calls(product, *given) == set()
    wanted = product(*[t.double() for t in given])
    for found, exact in zip(compiled(product)(*given), wanted, strict=True):
        close(found, exact, k)


def test_a_row_for_each_matrix_is_a_sum_of_columns() -> None:
    x, w = torch.randn(5, 1, 40), torch.randn(5, 40, 24)

    def product(x: Any, w: Any) -> Any:
        return torch.bmm(torch.softmax(x, -1), w)

    assert calls(product, x, w) == set()
    close(compiled(product)(x, w), product(x.double(), w.double()), 40)
    turned = torch.randn(5, 24, 40).mT
    assert calls(product, x, turned) == set()
    close(compiled(product)(x, turned), product(x.double(), turned.double()), 40)


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_column_for_each_matrix_is_a_sum_of_its_own(
    is_turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(5, 40, 24).mT if is_turned else torch.randn(5, 24, 40)
    v = torch.randn(5, 40)

    def product(x: Any, v: Any) -> Any:
        return torch.bmm(x, v[:, :, None])[:, :, 0] * 2

    assert calls(product, x, v) == set()
    close(compiled(product)(x, v), product(x.double(), v.double()), 40)
    # Across the terms each column is asked for anew: out of a cache that is the library's.
    monkeypatch.setattr(compat, "second_cache", lambda: 1 << 10)
    assert calls(product, x, v) == ({"aten.bmm.default"} if is_turned else set())


def test_a_column_for_each_matrix_has_gradients_of_loops() -> None:
    x, v = torch.randn(6, 32, 48, requires_grad=True), torch.randn(6, 48, requires_grad=True)

    def product(x: Any, v: Any) -> Any:
        return torch.einsum("bij,bj->bi", x, v).sigmoid()

    assert calls(product, x, v) == set()
    wide = [t.detach().double().requires_grad_() for t in (x, v)]
    exact = torch.autograd.grad(product(*wide).square().sum(), wide)
    found = torch.autograd.grad(compiled(product)(x, v).square().sum(), (x, v))
    for one, other in zip(found, exact, strict=True):
        close(one, other, 48)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_product_of_one_term_is_no_sum(dtype: Any) -> None:
    a, b, c = [torch.randn(n).to(dtype) for n in (33, 20, 20)]

    def product(a: Any, b: Any, c: Any) -> Any:
        pairs = torch.einsum("bi,bj->bij", a.view(3, 11), b.view(-1)[:6].view(3, 2))
        return a[:, None] @ b[None], pairs, torch.addmm(c, a[:, None], b[None], alpha=2)

    assert calls(product, a, b, c) == set()
    for found, exact in zip(compiled(product)(a, b, c), product(a, b, c), strict=True):
        torch.testing.assert_close(found, exact)


def test_gradients_of_a_layer_are_products_of_ours() -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(48, 40), torch.nn.ReLU(), torch.nn.Linear(40, 24))
    x = torch.randn(20, 48, requires_grad=True)
    assert calls(layer, x) == set()
    fast = compiled(layer)
    wanted = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    found = torch.autograd.grad(fast(x).square().sum(), [x, *layer.parameters()])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_one_element_wide_is_a_product(bias: bool) -> None:
    layer = torch.nn.Conv2d(12, 20, 1, bias=bias).to(memory_format=torch.channels_last)
    x = torch.randn(3, 12, 5, 7).to(memory_format=torch.channels_last).requires_grad_()
    assert calls(layer, x) == set()
    fast = compiled(layer)
    y, z = layer(x), fast(x)
    assert y.stride() == z.stride()
    g = torch.randn_like(y)
    given = [x, *layer.parameters()]
    wanted, found = torch.autograd.grad(y, given, g), torch.autograd.grad(z, given, g)
    torch.testing.assert_close(z, y)
    torch.testing.assert_close(found, wanted)
    assert [t.stride() for t in found] == [t.stride() for t in wanted]


@pytest.mark.parametrize(
    "layer, x",
    [
        (torch.nn.Conv2d(12, 20, 3), torch.randn(3, 12, 5, 7)),
        (torch.nn.Conv2d(12, 20, 1, stride=2), torch.randn(3, 12, 5, 7)),
        (torch.nn.Conv2d(12, 24, 1, groups=2), torch.randn(3, 12, 5, 7)),
        (torch.nn.Conv2d(12, 20, 1), torch.randn(3, 12, 5, 7)),
        (torch.nn.Linear(12, 20).bfloat16(), torch.randn(9, 12).bfloat16()),
        (torch.nn.Linear(12, 20), torch.randn(2, 12)),
    ],
    ids=["wide", "strided", "groups", "channels first", "bf16", "two rows"],
)
def test_what_is_no_such_product_is_a_call(layer: Any, x: Any) -> None:
    assert calls(layer, x)
    torch.testing.assert_close(compiled(layer)(x), layer(x))


def test_the_library_multiplies_where_that_is_asked_for() -> None:
    x, w = torch.randn(16, 32), torch.randn(32, 24)

    def product(x: Any, w: Any) -> Any:
        return x @ w

    for options in ({"products": "library"}, {"numerics": "exact"}):
        assert torch.equal(compiled(product, **options)(x, w), x @ w)


def test_open_sizes_are_multiplied_too() -> None:
    layer = torch.nn.Linear(40, 24)
    torch._dynamo.reset()
    fast = torch.compile(layer, backend="treadle", dynamic=True)
    for rows in (33, 4, 8, 16, 70, 2):
        x = torch.randn(rows, 40)
        torch.testing.assert_close(fast(x), layer(x))


def test_threads_multiply_the_same() -> None:
    before = torch.get_num_threads()
    x, w = torch.randn(96, 300), torch.randn(400, 300)

    def product(x: Any, w: Any) -> Any:
        return x @ w.t(), w @ x.t()

    fast = compiled(product)
    alone = fast(x, w)
    try:
        torch.set_num_threads(2)
        for found, wanted in zip(fast(x, w), alone, strict=True):
            assert torch.equal(found, wanted)
    finally:
        torch.set_num_threads(before)


class Guarded:
    """A matrix between two pages that nobody may touch."""

    def __init__(self, rows: int, columns: int, at_end: bool) -> None:
        size = rows * columns * 4
        inner = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.memory = mmap.mmap(-1, inner + 2 * mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        for page in (start, start + mmap.PAGESIZE + inner):
            assert LIBC.mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, 0) == 0
        offset = mmap.PAGESIZE + (inner - size if at_end else 0)
        flat = torch.frombuffer(self.memory, dtype=torch.float32, offset=offset, count=size // 4)
        self.tensor = flat.view(rows, columns).normal_()


LIBC = ctypes.CDLL(None)


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize(
    "m, n, k", [(5, 9, 17), (33, 40, 20), (16, 31, 64), (70, 13, 40), (4, 13, 70), (7, 9, 65)]
)
def test_products_touch_no_more_than_their_matrices(m: int, n: int, k: int, at_end: bool) -> None:
    sides = [Guarded(*sizes, at_end) for sizes in ((m, k), (k, n), (n, k), (k, m))]
    x, w, v, u = (side.tensor for side in sides)

    def products(x: Any, w: Any, v: Any, u: Any) -> Any:
        return x @ w, x @ v.t(), u.t() @ w, u.t() @ v.t()

    fast = compiled(products, host="c")
    for found, wanted in zip(fast(x, w, v, u), products(x, w, v, u), strict=True):
        torch.testing.assert_close(found, wanted)


def test_matrices_beyond_the_second_cache_are_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    def product(x: Any, w: Any) -> Any:
        return x @ w

    monkeypatch.setattr(compat, "library_is_narrower", lambda: False)
    monkeypatch.setattr(compat, "second_cache", lambda: 4 * (64 * 48 + 48 * 40 + 64 * 40))
    assert calls(product, torch.randn(64, 48), torch.randn(48, 40)) == set()
    assert calls(product, torch.randn(65, 48), torch.randn(48, 40)) == {"aten.mm.default"}
    assert calls(product, torch.randn(32, 48), torch.randn(48, 400)) == set()


def test_a_library_of_narrower_vectors_gets_only_what_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def product(x: Any, w: Any) -> Any:
        return x @ w

    def across(x: Any, w: Any) -> Any:
        return x.t() @ w

    shape = torch.randn
    monkeypatch.setattr(compat, "floats_in_a_vector", lambda: 16)
    monkeypatch.setattr(compat, "second_cache", lambda: 1)
    monkeypatch.setattr(ops_products, "MOST_POINTS", 1 << 12)
    monkeypatch.setattr(ops_products, "MOST_BESIDE_NARROW", 1 << 18)
    monkeypatch.setattr(ops_products, "MOST_ACROSS", 4 * 64 * 48)
    monkeypatch.setattr(compat, "library_is_narrower", lambda: True)
    assert calls(product, shape(64, 48), shape(48, 64)) == set()
    assert calls(across, shape(48, 64), shape(48, 64)) == set()
    assert calls(across, shape(48, 65), shape(48, 64)) == {"aten.mm.default"}
    assert calls(product, shape(64, 80), shape(80, 64)) == {"aten.mm.default"}
    # Threads have a tile each, at least.
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert calls(product, shape(64, 48), shape(48, 64)) == {"aten.mm.default"}
    monkeypatch.setattr(compat, "library_is_narrower", lambda: False)
    assert calls(product, shape(64, 48), shape(48, 64)) == {"aten.mm.default"}


HALVES = {
    "mm": (lambda x, w, b: x @ w, (9, 40), (40, 33)),
    "one row": (lambda x, w, b: x @ w, (1, 70), (70, 64)),
    "addmm": (lambda x, w, b: torch.nn.functional.linear(x, w, b), (64, 48), (33, 48)),
    "bmm": (lambda x, w, b: x @ w + b, (3, 17, 24), (3, 24, 33)),
    "across": (lambda x, w, b: x.t() @ w.t() + b, (40, 21), (33, 40)),
}


@pytest.mark.parametrize("name", HALVES)
def test_products_of_f16_are_rounded_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "multiplies_f16", lambda: False)
    torch.manual_seed(3)
    function, left, right = HALVES[name]
    given = [torch.randn(s).half() for s in (left, right, (33,) if name != "one row" else (64,))]
    wide = [x.double().requires_grad_() for x in given]
    assert calls(function, *given) == set()
    fast = compiled(function)
    slope = torch.randn_like(function(*given))
    wanted = function(*wide)
    wanted.backward(slope.double())
    for _ in range(2):
        args = [x.clone().requires_grad_() for x in given]
        found = fast(*args)
        assert found.stride() == function(*given).stride()
        found.backward(slope)
        # An addition after a product rounds once more; so do gradients that are sums of several.
        torch.testing.assert_close(found.double(), wanted, rtol=2e-3, atol=2e-3)
        for a, b in zip(args, wide, strict=True):
            if a.grad is not None:
                torch.testing.assert_close(a.grad.double(), b.grad, rtol=4e-3, atol=4e-3)


def test_large_products_of_f16_and_machines_that_know_them_are_the_librarys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def product(x: Any, w: Any) -> Any:
        return x @ w

    x, w = torch.randn(64, 48).half(), torch.randn(48, 40).half()
    monkeypatch.setattr(compat, "multiplies_f16", lambda: True)
    assert calls(product, x, w) == {"aten.mm.default"}
    monkeypatch.setattr(compat, "multiplies_f16", lambda: False)
    assert calls(product, x, w) == set()
    monkeypatch.setattr(ops_products, "MOST_WIDENED", 64 * 48 + 48 * 40 - 1)
    assert calls(product, x, w) == {"aten.mm.default"}


LAYERS = {
    "plain": (lambda x, w, b: torch.nn.functional.linear(x, w), ()),
    "with a bias": (lambda x, w, b: torch.nn.functional.linear(x, w, b), ()),
    "and what follows": (lambda x, w, b: torch.relu(torch.nn.functional.linear(x, w, b)) + 1, ()),
    "of many": (lambda x, w, b: x @ w.mT + b, (3,)),
    "made on the way": (lambda x, w, b: (x * 2) @ w.mT, ()),
    "one in four": (lambda x, w, b: x[..., 1:, :] @ w[..., 1:, :].mT, ()),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    "m, n, k", [(4, 9, 5), (15, 33, 64), (33, 130, 577), (64, 70, 16), (17, 17, 1)]
)
def test_layers_of_f16_of_any_size_are_not_put_into_memory_as_f32(
    name: str, m: int, n: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "multiplies_f16", lambda: False)
    monkeypatch.setattr(ops_products, "MOST_WIDENED", 1 << 16)
    torch.manual_seed(m + n + k)
    function, others = LAYERS[name]
    x, w = torch.randn(*others, m + 1, k).half(), torch.randn(*others, n, k).half()
    b = torch.randn(n).half()
    fast = compiled(function)
    with torch.no_grad():
        if k > ops_products.LEAST_TERMS:
            assert calls(function, x, w, b) == set()
        wanted = function(x.double(), w.double(), b.double())
        for _ in range(2):
            found = fast(x, w, b)
            assert found.dtype is torch.float16
            torch.testing.assert_close(found.double(), wanted, rtol=3e-3, atol=3e-3 * k**0.5)


def test_layers_of_f16_have_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compat, "multiplies_f16", lambda: False)
    x, w = torch.randn(40, 512).half(), torch.randn(700, 512).half()
    fast, found, before = compiled(torch.nn.functional.linear), [], torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(fast(x, w))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, found[0]) for one in found)
