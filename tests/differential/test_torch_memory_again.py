"""Memory of results is used again when nobody looks at it any more, and never before."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_strictly import Function  # noqa: E402

import treadle.torch  # noqa: E402, F401
from treadle.core.options import Options  # noqa: E402
from treadle.runtime.hosts import torch_c_blocks  # noqa: E402

pytestmark = pytest.mark.torch

SIDE = 256
BYTES = SIDE * SIDE * 4
RUNS_BEFORE = 3
"""Then a host in C carries out the plan."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    if torch_c_blocks.empty_again(Options.from_env()) is None:
        pytest.skip("this torch counts holders of memory in another way")
    torch._dynamo.reset()
    torch_c_blocks.let_go()
    yield
    torch_c_blocks.let_go()


def ready(function: Function, *args: Any, **options: Any) -> Function:
    """The function, compiled, and carried out in C by now."""
    made: Function = torch.compile(
        function, backend="treadle", options={"strict": True, "host": "c", **options}
    )
    for _ in range(RUNS_BEFORE):
        made(*args)
    return made


def square(fill: float = 1.0) -> Any:
    return torch.full((SIDE, SIDE), float(fill))


def test_what_is_dropped_is_used_by_the_next_run() -> None:
    x = square()
    fast = ready(lambda x: x + 1, x)
    places = {fast(x).data_ptr() for _ in range(10)}
    assert len(places) == 1
    assert torch_c_blocks.held_bytes() == BYTES


def test_two_blocks_take_turns_where_a_name_is_bound_again() -> None:
    x = square()
    fast = ready(lambda x: x + 1, x)
    places, result = [], None
    for _ in range(10):
        result = fast(x)
        places.append(result.data_ptr())
    assert len(set(places[2:])) == 2
    assert all(a != b for a, b in itertools.pairwise(places))


def holders(result: Any) -> dict[str, Any]:
    """All kinds of things that keep the memory of a result."""
    return {
        "itself": result,
        "a view": result[3:5],
        "an array": result.numpy(),
        "its storage": result.untyped_storage(),
        "detached": result.detach(),
        "other elements": result.view(torch.int32),
        "what autograd keeps": (result * torch.ones((), requires_grad=True)).grad_fn,
        "through DLPack": torch.from_dlpack(result),
        "a parameter": torch.nn.Parameter(result),
    }


@pytest.mark.parametrize("kind", holders(torch.zeros(8)))
def test_what_somebody_holds_is_not_written(kind: str) -> None:
    x = square()
    fast = ready(lambda x: x * 2, x)
    result = fast(square(3))
    place, held = result.data_ptr(), holders(result)[kind]
    del result
    later = [fast(square(5)) for _ in range(4)]
    assert place not in [one.data_ptr() for one in later]
    assert held is not None
    if isinstance(held, torch.Tensor) and held.dtype == torch.float32:
        assert held.detach().eq(6).all()


def test_random_programs_of_holding_and_dropping_see_what_they_were_given() -> None:
    choose = random.Random(7)
    shapes = [(SIDE, SIDE), (SIDE, 2 * SIDE), (SIDE * SIDE,)]
    given = [torch.zeros(s) for s in shapes]
    fast = [ready(lambda x, k: (x + k, (x + k + 1).sum(0)), x, 1) for x in given]
    held: list[tuple[Any, int]] = []
    for turn in range(300):
        which, amount = choose.randrange(3), turn % 17
        result, _ = fast[which](given[which], amount)
        if choose.random() < 0.6:
            held.append((result if choose.random() < 0.5 else result.flatten()[5:], amount))
        while held and choose.random() < 0.5:
            held.pop(choose.randrange(len(held)))
        for one, wanted in held:
            assert one.eq(wanted).all()


def test_a_result_may_be_the_next_input() -> None:
    fast = ready(lambda x: x * 0.5 + 1, square())
    x, wanted = square(), square()
    for _ in range(12):
        x, wanted = fast(x), wanted * 0.5 + 1
        assert torch.equal(x, wanted)


def test_storages_that_were_resized_are_not_used() -> None:
    x = square()
    fast = ready(lambda x: x + 1, x)
    for size in (0, 8 * BYTES):
        fast(x).untyped_storage().resize_(size)
        result = fast(x)
        assert result.eq(2).all()
        assert result.untyped_storage().nbytes() == BYTES


def test_smaller_memory_at_the_same_address_is_not_used() -> None:
    import torch._inductor.inductor_prims  # makes the operator known

    # Unlike a storage's own method it makes no object in Python, which would hold the storage.
    resize = torch.ops.inductor.resize_storage_bytes_
    x = square()
    fast = ready(lambda x: x + 1, x)
    found = 0
    for _ in range(20):
        result = fast(x)
        address = result.data_ptr()
        for less in range(64, 64 * 64, 64):
            resize(result, 0)
            resize(result, BYTES - less)
            if result.data_ptr() == address:
                found += 1
                break
        del result
        assert fast(x).untyped_storage().nbytes() == BYTES
    assert found  # or the allocator does not do what this is about


def test_tensors_of_inference_mode_stay_there() -> None:
    x = square()
    fast = ready(lambda x: x + 1, x)
    with torch.inference_mode():
        for _ in range(RUNS_BEFORE):
            assert fast(x).is_inference()
    result = fast(x)
    assert not result.is_inference()
    (result * torch.ones((), requires_grad=True)).sum().backward()


def test_what_may_be_held_is_bounded() -> None:
    x = square()
    fast = ready(lambda x: x + 1, x)
    torch_c_blocks._limit(torch_c_blocks._library(Options.from_env()))(3 * BYTES)
    results = [fast(x) for _ in range(10)]
    assert torch_c_blocks.held_bytes() == 3 * BYTES
    assert len({one.data_ptr() for one in results}) == 10
    torch_c_blocks.let_go()
    assert torch_c_blocks.held_bytes() == 0
    assert all(one.eq(2).all() for one in results)


def test_what_is_not_asked_for_any_more_is_given_back() -> None:
    x = square()
    fast = ready(lambda x: x + 1, x)
    many = [fast(x) for _ in range(6)]
    assert torch_c_blocks.held_bytes() >= 6 * BYTES
    del many
    for _ in range(2000):
        fast(x)
    assert torch_c_blocks.held_bytes() == BYTES


def test_the_option_turns_it_off() -> None:
    x = square()
    fast = ready(lambda x: x + 1, x, reuse=0)
    fast(x)
    assert torch_c_blocks.held_bytes() == 0


def test_training_holds_nothing() -> None:
    x = square().requires_grad_()
    fast = ready(lambda x: x.sin() * x, x)
    for _ in range(3):
        fast(x).sum().backward()
    assert torch_c_blocks.held_bytes() == 0


def test_threads_do_not_get_the_same_memory() -> None:
    fast = ready(lambda x: x * 2 + 1, square())

    def run(seed: int) -> bool:
        x, held = square(seed), []
        for turn in range(40):
            held.append(fast(x))
            held = held[-(turn % 3 + 1) :]
            if not all(one.eq(2 * seed + 1).all() for one in held):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(16)))
