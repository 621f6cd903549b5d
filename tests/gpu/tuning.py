"""A real device decides between schedules; `make test-gpu` runs it.

    PYTHONPATH=src python tests/gpu/tuning.py

Kernels of several shapes are compiled by three processes that share a cache: one measures, one
finds its answers, and one is told by a file to take the last schedule of each. All must compute
what eager mode does, and the first must leave torch's figures of memory as they are without it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any


def functions() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Points, a transposition, rows, long rows, columns, a step over many tensors."""
    import torch
    from torch.nn import functional

    def made(*sizes: int) -> Any:
        return torch.randn(*sizes, device="cuda")

    x, many = made(4096, 4096), [made(1 << 20) for _ in range(6)]
    return {
        "points": (lambda x: functional.gelu(x) * x.sigmoid() + 1, (x,)),
        "transposed": (lambda x: x.t().contiguous() * 2 + x, (x,)),
        "rows": (lambda x: functional.layer_norm(x, (4096,)), (x,)),
        "long rows": (lambda x: x.softmax(1), (made(2048, 50_000),)),
        "columns": (lambda x: x.exp().sum(0), (x,)),
        "many": (lambda *several: [torch.sqrt(a.abs()) + 1 for a in several], tuple(many)),
    }


def child() -> None:
    """Compile and run everything; say what was decided and what it took."""
    import torch

    import treadle.torch  # noqa: F401
    from treadle.frontends.torch.capture import compile as capture

    built: list[Any] = []
    own = capture._build

    def noted(*args: Any) -> Any:
        built.append(own(*args))
        return built[-1]

    capture._build = noted
    torch.manual_seed(0)
    said: dict[str, Any] = {}
    for name, (function, args) in functions().items():
        built.clear()
        wanted = function(*args)
        ours = torch.compile(function, backend="treadle")
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        got = ours(*args)
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated() - before
        for _ in range(4):
            again = ours(*args)
        pairs = [(got, wanted), (again, wanted)]
        for one, other in pairs:
            torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)
        verdicts = [v.to_dict() for b in built for v in b.runner.compiled.kernels.tuned]
        for b in built:
            if b.runner.compiled.kernels._tuning is not None:
                b.runner.compiled.kernels._tuning.answers.finish()
        said[name] = {"peak": peak, "tuned": verdicts}
    print("SAID " + json.dumps(said), flush=True)


def in_process(cache: str, **more: str) -> dict[str, Any]:
    """What a process says that has some variables set."""
    env = {**os.environ, "TREADLE_CACHE_DIR": cache, "TREADLE_STRICT": "1", **more}
    done = subprocess.run(
        [sys.executable, __file__, "--child"], env=env, capture_output=True, text=True, check=False
    )
    lines = [x for x in done.stdout.splitlines() if x.startswith("SAID ")]
    assert lines, done.stdout[-2000:] + done.stderr[-6000:]
    found: dict[str, Any] = json.loads(lines[0][5:])
    return found


def decided(said: Mapping[str, Any]) -> list[Any]:
    """Every verdict of a process."""
    return [v for one in said.values() for v in one["tuned"]]


def main() -> int:
    from treadle.core.options import Options
    from treadle.runtime.tuning.answers import all_kept, as_file

    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as other:
        plain = in_process(other, TREADLE_AUTOTUNE="0")
        assert decided(plain) == []
        # What compilers did not finish in time for the first process the second one measures.
        first = in_process(cache)
        second = in_process(cache)
        third = in_process(cache)
        for name, one in first.items():
            assert one["peak"] == plain[name]["peak"], (name, one["peak"], plain[name]["peak"])
        measured = [v for v in decided(first) + decided(second) if v["facts"].get("by")]
        assert measured, decided(first)
        for v in measured:
            times = [t for t in v["facts"]["measured_us"] if t is not None]
            assert len(times) >= 2, v
            assert all(0.5 < t < 1e5 for t in times), v
        known = [v["facts"].get("by", v["facts"].get("reason")) for v in decided(third)]
        assert set(known) == {"earlier run"}, known
        answers = all_kept(Options(cache_dir=cache))
        file = Path(cache) / "tuned.json"
        file.write_text(as_file([replace(a, chosen=len(a.steps) - 1) for a in answers]))
        last = in_process(other, TREADLE_AUTOTUNE="0", TREADLE_TUNED=str(file))
        assert {v["facts"]["by"] for v in decided(last) if v["ok"]} == {"file"}
        others = sum(v["facts"]["chosen"] != v["facts"]["schedules"][0] for v in measured)
        print(f"{len(answers)} questions, {len(measured)} answers, {others} for other schedules")
    return 0


if __name__ == "__main__":
    child() if "--child" in sys.argv else sys.exit(main())
