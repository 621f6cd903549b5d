"""Kernels on the threads of torch: the same bits on 1, 2 and 4, after a fork, from many callers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from treadle.core.options import Options  # noqa: E402
from treadle.frontends.torch.backend import compile_with  # noqa: E402
from treadle.frontends.torch.capture.compile import Built, Settings  # noqa: E402
from treadle.runtime.hosts.torch_threads import threads_of_torch  # noqa: E402

pytestmark = pytest.mark.torch
PATIENCE_S = 120

needs_threads = pytest.mark.skipif(
    threads_of_torch() is None, reason="no OpenMP runtime that could be joined"
)


@pytest.fixture(autouse=True)
def threads_are_put_back() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()


def work(x: Any, w: Any, k: Any) -> Any:
    """Rows, columns, a transposed walk and a gather, each long enough to be shared."""
    y = torch.softmax(x * w, -1) + torch.tanh(x.t().contiguous()).t()
    return y, y.sum(0), y.amax(1), x[k], torch.sigmoid(x).flatten() * 2


def arguments() -> tuple[Any, ...]:
    torch.manual_seed(0)
    return torch.randn(700, 515), torch.randn(515), torch.randint(0, 700, (900,))


def compiled() -> tuple[Any, list[Built]]:
    built: list[Built] = []
    settings = Settings(Options.from_env().with_(host="c"), True, report=built.append)
    return torch.compile(work, backend=lambda gm, x: compile_with(settings, gm, x)), built


def bits(results: Any) -> list[bytes]:
    return [t.contiguous().numpy().tobytes() for t in results]


@needs_threads
def test_bits_do_not_depend_on_how_many_threads_there_are() -> None:
    run, built = compiled()
    given, found = arguments(), []
    for count in (1, 2, 4, 1):
        torch.set_num_threads(count)
        found += [bits(run(*given)) for _ in range(3)]
    assert "tr_in_parts" in built[0].runner.compiled.unit.text
    assert all(one == found[0] for one in found)


@needs_threads
def test_many_callers_at_once() -> None:
    run, _ = compiled()
    given = arguments()
    torch.set_num_threads(2)
    expected, wrong = bits(run(*given)), []

    def calls() -> None:
        for _ in range(10):
            if bits(run(*given)) != expected:
                wrong.append(threading.get_ident())

    callers = [threading.Thread(target=calls) for _ in range(8)]
    for one in callers:
        one.start()
    for one in callers:
        one.join(PATIENCE_S)
    assert not any(one.is_alive() for one in callers)
    assert not wrong


@needs_threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_was_forked_works_alone() -> None:
    """Threads of the runtime do not come along, and nobody waits for them."""
    run, _ = compiled()
    given = arguments()
    torch.set_num_threads(2)
    expected = bits(run(*given))
    receive, send = multiprocessing.Pipe()
    child = os.fork()
    if not child:
        signal.alarm(PATIENCE_S)  # whoever waits for ever is ended
        try:
            with torch.no_grad():
                send.send(bits(run(*given)) == expected)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, "it waited for threads that are not there"
    assert receive.poll(1)
    assert receive.recv()
    assert bits(run(*given)) == expected, "who forked goes on as before"
