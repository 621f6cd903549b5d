"""Make the fixtures of this folder: compile small functions on the CPU, save what is dumped.

    python tests/corpus/inductor/make_dumps.py            rewrites the .txt files beside this one
    python tests/corpus/inductor/make_dumps.py FOLDER     writes them there
    python tests/corpus/inductor/make_dumps.py FOLDER softmax pad_masked     only these

The files gpu_*.txt come from `make_gpu_dumps.py`, run with torch 2.11 on an H200.

The kernels themselves are never compiled: the dumps are complete before that, and waiting for a C++
compiler would be most of the time.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch._inductor.async_compile
import torch._inductor.config as inductor_config
import torch.nn.functional as functional

HEADERS = {"BEFORE FUSION": "pre", "AFTER FUSION": "post"}
LOGGED = "foreach"  # also saved as the log shows it
CASES: dict[str, tuple[Callable[..., object], Callable[[], tuple[Any, ...]], dict[str, Any]]] = {}


def case(make_arguments: Callable[[], tuple[Any, ...]], **options: Any) -> Callable[..., Any]:
    def register(function: Callable[..., object]) -> Callable[..., object]:
        CASES[function.__name__] = (function, make_arguments, options)
        return function

    return register


def floats(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape)


@case(lambda: (floats(8, 16),))
def softmax(x):
    return x.softmax(-1)


@case(lambda: (floats(9, 18), floats(18)), dynamic=True)
def softmax_dynamic(x, y):
    return (x + y).softmax(-1)


@case(lambda: (floats(64, 512),))
def welford(x):
    return torch.var_mean(x, 1)


@case(lambda: (floats(1, 1, 8, 9),))
def pad_masked(x):
    return functional.pad(x, (1, 2, 3, 4), value=2.5) + 1, functional.pad(
        x, (1, 1, 1, 1), "reflect"
    )


@case(lambda: (floats(8, 8),))
def random_numbers(x):
    return functional.dropout(x, 0.5), torch.rand_like(x), torch.randint(0, 10, (4,))


@case(lambda: (floats(9, 9), torch.zeros(9, dtype=torch.long)), dynamic=True)
def indirect_dynamic(x, i):
    return x[i] + 1, torch.gather(x, 1, i[:, None])


@case(lambda: (floats(8, 16), torch.zeros(3, dtype=torch.long), floats(3, 16)))
def scatter(x, i, v):
    return x.index_put((i,), v, accumulate=True)


@case(lambda: (floats(4, 4), floats(4, 4)))
def mutations(x, y):
    x.add_(1)
    y.copy_(x * 2)
    return x.sum()


@case(lambda: (floats(4, 4), floats(4, 4)))
def concatenate(x, y):
    return torch.cat([x.sin(), y.cos()], 0).relu()


@case(lambda: (floats(5, 5),))
def several_outputs(x):
    return torch.linalg.svd(x)


@case(lambda: (floats(10), torch.tensor(3)))
def size_from_data(x, n):
    count = n.item()
    torch._check(count >= 0)
    torch._check(count < 100)
    return torch.zeros(count) + 1, x[:count].sum()


@case(lambda: (torch.tensor(True), floats(4, 4)))
def conditional(p, x):
    return torch.cond(p, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,))


@case(lambda: ([floats(4), floats(5)], [floats(4), floats(5)]))
def foreach(a, b):
    return torch._foreach_add(a, b)


@case(lambda: (floats(16, 32), floats(32), floats(32)))
def outer_loop_fusion(x, w, b):
    return functional.layer_norm(x, (32,), w, b), x.softmax(-1)


@case(lambda: (floats(9, 9),), dynamic=True)
def views_dynamic(x):
    return x.unfold(1, 3, 2) + 1, x.roll(1, 0), x.flip(0), x.repeat(2, 3)


@case(lambda: (floats(1, 2, 9, 11),), dynamic=True)
def resize_dynamic(x):
    return functional.interpolate(x, scale_factor=1.7)


@case(lambda: (floats(3, 1, 7, 5), floats(9, 3, 5, 2), floats(9, 3, 10)))
def loops_split_again(x, a, b):
    padded = functional.pad(x, (2, 2, 1, 2), "reflect")
    one = functional.layer_norm(padded.reshape(a.shape), a.shape[-1:]) * a
    other = functional.layer_norm(padded.reshape(b.shape), b.shape[-1:]) * b
    return one, padded.var((1, 2, 3)), other


@case(lambda: (floats(4, 1, 9),), dynamic=True)
def reflect_dynamic(x):
    padded = functional.pad(x, (2, 1), "reflect")
    return padded.var(-1), padded * 2


@case(lambda: (floats(1, 8, 5, 10),), dynamic=True)
def removed_users(x):
    joined = torch.cat([x, x * 2], 3)
    return functional.instance_norm(joined), joined.softmax(1), joined


@case(lambda: (floats(8, 16), floats(16, 16).requires_grad_()))
def training(x, w):
    y = functional.dropout(functional.layer_norm((x @ w).relu(), (16,)), 0.1)
    functional.cross_entropy(y, torch.zeros(8, dtype=torch.long)).backward()


@case(lambda: (floats(8, 8),), options={"test_configs.track_memory_lifecycle": "assert"})
def memory_checks(x):
    return (x @ x).relu().sum(1)


@case(lambda: (floats(4, 4), floats(4, 4)), needs_group=True)
def collectives(x, y):
    import torch.distributed._functional_collectives as collective

    ranks = [0, 1]
    a = collective.all_reduce(x, "sum", ranks)
    b = collective.all_gather_tensor(y * 2, 0, ranks)
    c = collective.reduce_scatter_tensor(a + 1, "sum", 0, ranks)
    many = collective.all_reduce_coalesced([x, y, a], "sum", ranks)
    x.mul_(2)
    return a.relu(), b, c + 1, many


class Recorder(logging.Handler):
    """Keeps the messages of the two IR loggers, plain and as the log would show them."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.logged: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        from torch._logging._internal import TorchLogsFormatter

        self.messages.append(record.getMessage())
        self.logged.append(TorchLogsFormatter().format(record))


@contextmanager
def recording() -> Iterator[Recorder]:
    """Send the two IR loggers to a recorder, and only there."""
    torch._logging.set_logs(ir_pre_fusion=True, ir_post_fusion=True)
    recorder = Recorder()
    loggers = [logging.getLogger(f"torch._inductor.debug.__ir_{when}_fusion") for when in
               HEADERS.values()]  # fmt: skip
    for logger in loggers:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
        logger.addHandler(recorder)
        logger.propagate = False
    yield recorder


def do_not_compile_kernels() -> None:
    """Replace every C++ kernel by a function that does nothing."""

    def nothing(*_: object) -> None:
        return None

    torch._inductor.async_compile.AsyncCompile.cpp_pybinding = lambda *_, **__: nothing


def join_fake_group() -> None:
    """Pretend to be one of two processes, without any network."""
    import torch.distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)


def dumps_of(name: str) -> tuple[list[str], list[str]]:
    """The messages and the log texts that compiling one case gives."""
    function, make_arguments, options = CASES[name]
    options = dict(options)
    if options.pop("needs_group", False):
        join_fake_group()
    torch._dynamo.reset()
    with recording() as recorder:
        try:
            torch.compile(function, **options)(*make_arguments())
        except Exception as error:
            # Nothing was computed, so running on may fail; the dumps are there all the same.
            print(f"{name}: {type(error).__name__} after {len(recorder.messages)} dumps")
    return recorder.messages, recorder.logged


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    wanted = sys.argv[2:] or list(CASES)
    inductor_config.force_disable_caches = True
    torch._dynamo.config.capture_scalar_outputs = True
    do_not_compile_kernels()
    for name in wanted:
        messages, logged = dumps_of(name)
        for position, message in enumerate(messages):
            header, _, text = message.partition("\n")
            if position % 2 and text == messages[position - 1].partition("\n")[2]:
                continue  # nothing was fused: one file says it all
            path = folder / f"{name}.{position // 2}.{HEADERS[header]}.txt"
            path.write_text(text, encoding="utf-8")
        if name == LOGGED:
            between = "V0101 00:00:00.000000 1 torch/_inductor/scheduler.py:1] [__fusion] fusing\n"
            text = between.join(f"{part}\n" for part in logged)
            (folder / f"{name}.log.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
