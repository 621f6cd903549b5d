"""What the host costs per call: tiny functions, where all else is small, beside the peers.

  python bench/host_time.py [--save] [--backends eager,aot_eager,inductor,treadle]

CPU microseconds per call, the least of many short runs, one thread. `little` and `products` are
without gradients; `step` is a forward and a backward of a norm of 8 x 8. `treadle (python)` is the
same graph with TREADLE_HOST=python. `own` is the part behind Dynamo and AOTAutograd: the runner
called directly; `per_call` what each further library call with its kernel adds to it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import treadle.torch  # noqa: F401 - makes the backend known
from common import parser, report
from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture.compile import Built, Settings

CALLS, RUNS, PRODUCTS = 200, 100, 10


def little(x: Any) -> Any:
    return torch.sin(x) + 1


def products(x: Any, w: Any) -> Any:
    for _ in range(PRODUCTS):
        x = torch.relu(x @ w) + 1
    return x


def norm(x: Any, w: Any) -> Any:
    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w).sum()


def step(run: Callable[..., Any], x: Any, w: Any) -> None:
    """One forward and backward; gradients begin anew."""
    x.grad = w.grad = None
    run(x, w).backward()


def microseconds(call: Callable[[], Any]) -> float:
    for _ in range(20):
        call()
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        for _ in range(CALLS):
            call()
        best = min(best, time.process_time() - start)
    return round(best / CALLS * 1e6, 2)


def compiled(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    torch._dynamo.reset()
    if backend == "eager":
        return function
    if backend == "treadle (python)":
        return torch.compile(function, backend="treadle", options={"host": "python"})
    return torch.compile(function, backend=backend)


def times(backend: str, given: dict[str, tuple[Any, ...]]) -> dict[str, float]:
    found = {}
    with torch.no_grad():
        for function in (little, products):
            run, args = compiled(function, backend), given[function.__name__]
            found[function.__name__] = microseconds(lambda run=run, args=args: run(*args))
    run, args = compiled(norm, backend), [torch.randn(s).requires_grad_() for s in ((8, 8), (8,))]
    found["step"] = microseconds(lambda: step(run, *args))
    return found


def own(host: str, given: dict[str, tuple[Any, ...]]) -> dict[str, float]:
    """The runner by itself."""
    found = {}
    for function in (little, products):
        torch._dynamo.reset()
        built: list[Built] = []
        settings = Settings(
            Options.from_env().with_(host=host, products="library"), True, report=built.append
        )
        backend = lambda gm, x, settings=settings: compile_with(settings, gm, x)  # noqa: E731
        args = given[function.__name__]
        torch.compile(function, backend=backend)(*args)
        runner = built[0].runner
        found[function.__name__] = microseconds(lambda r=runner, a=args: r(list(a)))
    found["per_call"] = round((found["products"] - found["little"]) / (PRODUCTS - 1), 2)
    return found


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--backends", default="eager,aot_eager,inductor,treadle,treadle (python)")
    asked = made.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    x, w = torch.randn(8, 8), torch.randn(8, 8) * 0.1
    given = {"little": (x,), "products": (x, w)}
    rows = {backend: times(backend, given) for backend in asked.backends.split(",")}
    with torch.no_grad():
        alone = {host: own(host, given) for host in ("c", "python")}
    data = {"torch": torch.__version__, "us_per_call": rows, "own_us": alone}
    report("host_time", data, asked.save)


if __name__ == "__main__":
    main()
