"""Runs torch's operator database through the backend and compares with eager.

    PYTHONPATH=src:tests/differential python tests/differential/opinfo_runner.py [NAME ...]
        [--dtype float32] [--samples 3] [--dynamic] [--forward] [--json FILE] [--from N] [--to N]
        [--device cuda] [--share K/N] [--threads N]

For every operator: `pass` (all of it generated), `fallback` (right, with calls of the operator
itself), `fail` (wrong, not compiled, or a lowering that raised an exception),
or `skip` (eager or `aot_eager` do not handle it either).
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import torch
from many_threads import on_threads
from torch.utils import _pytree as pytree

from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture.compile import Settings

TOLERANCES = {
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float16: (1e-3, 1e-3),
}
FACTOR = 4.0
"""Our sums run in another order than eager's, so a few times the tolerance of one rounding."""


@dataclass
class Outcome:
    """What came of one operator."""

    name: str
    status: str = "pass"
    note: str = ""
    samples: int = 0
    calls: dict[str, str] = field(default_factory=dict)
    crashes: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0


def operators(names: Sequence[str] = ()) -> Iterator[Any]:
    """The operators of the database, all or those named."""
    # The database asks for a package that only torch's own test cases use.
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        full = full_name(op)
        if not names or full in names or op.name in names:
            yield op


def full_name(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def check(
    op: Any,
    dtype: torch.dtype = torch.float32,
    samples: int = 3,
    gradients: bool = True,
    dynamic: bool = False,
    device: str = "cpu",
) -> Outcome:
    """One operator on its first samples, forward and, where it has them, gradients."""
    outcome, start = Outcome(full_name(op)), time.perf_counter()
    with_grad = gradients and op.supports_autograd and dtype.is_floating_point
    known = op.dtypes if device == "cpu" else op.dtypesIfCUDA
    if dtype not in known:
        return Outcome(full_name(op), "skip", f"no {dtype} samples")
    torch.manual_seed(0)
    try:
        chosen = list(islice(op.sample_inputs(device, dtype, requires_grad=with_grad), samples))
    except Exception as e:
        return Outcome(full_name(op), "skip", f"no samples: {first_line(e)}")
    for sample in chosen:
        _check_sample(op, sample, outcome, with_grad, dynamic)
        outcome.samples += 1
        if outcome.status in ("fail", "skip"):
            break
    if outcome.status == "pass" and outcome.calls:
        outcome.status = "fallback"
    outcome.seconds = round(time.perf_counter() - start, 2)
    return outcome


def _check_sample(op: Any, sample: Any, outcome: Outcome, grad: bool, dynamic: bool) -> None:
    inputs = (sample.input, sample.args, sample.kwargs)

    def function(x: Any, args: Any, kwargs: Any) -> Any:
        return op(x, *args, **kwargs)

    try:
        wanted = run(function, inputs, grad)
    except Exception as e:
        outcome.status, outcome.note = "skip", f"eager: {first_line(e)}"
        return
    torch._dynamo.reset()
    backend = _counting(outcome)
    compiled = torch.compile(function, backend=backend, dynamic=dynamic)
    try:
        found = run(compiled, inputs, grad)
        problem = difference(wanted, found)
        if problem is not None and no_worse_than_eager(function, inputs, grad, wanted, found):
            problem = None
        if problem is not None and difference(wanted, run(function, inputs, grad)) is not None:
            outcome.status, outcome.note = "skip", "eager mode differs from itself"
            return
    except Exception as e:
        problem = f"{type(e).__name__}: {first_line(e)}"
    if outcome.crashes:
        # Torch runs the operator instead, so the results are right: the mistake would not show.
        outcome.status, outcome.note = "fail", "; ".join(outcome.crashes.values())
        return
    if problem is None:
        return
    outcome.status, outcome.note = _blame(function, inputs, grad, wanted, problem, dynamic)


def _blame(
    function: Any, inputs: Any, grad: bool, wanted: Any, problem: str, dynamic: bool
) -> tuple[str, str]:
    """`skip` if torch's own plain backend has the same trouble, else `fail`."""
    torch._dynamo.reset()
    try:
        again = run(torch.compile(function, backend="aot_eager", dynamic=dynamic), inputs, grad)
        theirs = difference(wanted, again)
    except Exception as e:
        theirs = first_line(e)
    return ("fail", problem) if theirs is None else ("skip", f"aot_eager: {theirs}")


def no_worse_than_eager(function: Any, inputs: Any, grad: bool, wanted: Any, found: Any) -> bool:
    """Whether our results are about as close to those in double precision as eager's are."""
    try:
        exact = run(function, pytree.tree_map(_wide, inputs), grad)
    except Exception:
        return False
    for ours, theirs, right in zip(found, wanted, exact, strict=True):
        for a, b, c in zip(ours, theirs, right, strict=True):
            if a is None or b is None or c is None:
                continue
            if a.shape != b.shape or a.dtype != b.dtype or not a.is_floating_point():
                return False
            mine, eager = (a.double() - c).abs(), (b.double() - c).abs()
            scale = c.abs().max() * TOLERANCES.get(b.dtype, (1e-6, 0))[0] if c.numel() else 0
            if not bool((mine <= FACTOR * eager.max() + scale).all()):
                return False
    return True


def _wide(x: Any) -> Any:
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        return x.detach().double().requires_grad_(x.requires_grad)
    return x


def _counting(outcome: Outcome) -> Any:
    """The backend, strict, that notes which operators it calls instead of generating loops."""

    def look(done: Any) -> None:
        outcome.calls.update(done.fallbacks)
        outcome.crashes.update(done.crashes)

    settings = Settings(Options.from_env(), True, look)

    def backend(gm: Any, example_inputs: Any) -> Any:
        return compile_with(settings, gm, example_inputs)

    return backend


def run(function: Any, inputs: Any, grad: bool) -> Any:
    """Results and gradients on fresh copies of the inputs, with the same random numbers."""
    given = pytree.tree_map(_copy, inputs)
    torch.manual_seed(7)
    result = function(*given)
    leaves = [x for x in pytree.tree_leaves(given) if isinstance(x, torch.Tensor)]
    flat = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
    gradients: list[Any] = []
    differentiable = [y for y in flat if y.requires_grad and y.numel()]
    if grad and differentiable:
        wanted = [x for x in leaves if x.requires_grad]
        begin = torch.zeros((), device=differentiable[0].device)
        total = sum((_scalar(y) for y in differentiable), begin)
        gradients = list(torch.autograd.grad(total, wanted, allow_unused=True))
    return [x.detach() for x in flat], gradients


def _scalar(y: Any) -> Any:
    torch.manual_seed(11)
    real = torch.view_as_real(y.resolve_conj()) if y.is_complex() else y
    weights = torch.rand(real.shape, dtype=torch.float32).to(real.dtype)
    return (real * weights.to(real.device)).sum().to(torch.float32)


def _copy(x: Any) -> Any:
    """A copy that lies in memory just as the original does, in a storage as large."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.layout is not torch.strided or x.is_conj() or x.is_neg():
        return x.detach().clone().requires_grad_(x.requires_grad)
    whole = x.detach().untyped_storage().clone()
    same = torch.empty(0, dtype=x.dtype, device=x.device).set_(
        whole, x.storage_offset(), x.size(), x.stride()
    )
    return same.requires_grad_(x.requires_grad)


def difference(wanted: Any, found: Any) -> str | None:
    """What differs between two sets of results, or None."""
    for what, ours, theirs in zip(("result", "gradient"), found, wanted, strict=True):
        if len(ours) != len(theirs):
            return f"{len(ours)} {what}s instead of {len(theirs)}"
        for position, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            problem = _unequal(a, b)
            if problem is not None:
                return f"{what} {position}: {problem}"
    return None


def _unequal(a: Any, b: Any) -> str | None:
    if a is None or b is None:
        return None if a is b else "one is missing"
    rtol, atol = TOLERANCES.get(b.dtype, (1e-6, 1e-6))
    try:
        torch.testing.assert_close(
            a, b, rtol=rtol * FACTOR, atol=atol * FACTOR, equal_nan=True, check_stride=False
        )
    except (AssertionError, RuntimeError, NotImplementedError) as e:
        return " ".join(str(e).split())[:300]
    return None


def first_line(e: BaseException) -> str:
    """The line of a message that says what is wrong."""
    lines = [line for line in str(e).strip().splitlines() if not line.endswith("raised:")]
    return (lines or [type(e).__name__])[0][:300]


def summary(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """How many operators of each status."""
    return dict(Counter(o.status for o in outcomes))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--forward", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", type=int, default=10_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--share", default="0/1", help="every Nth operator from the Kth on: K/N")
    parser.add_argument("--threads", type=int, help="share every nest among so many threads")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with on_threads(args.threads) if args.threads else nullcontext():
        outcomes = run_all(args)
    print(summary(outcomes))
    return 1 if any(o.status == "fail" for o in outcomes) else 0


def run_all(args: argparse.Namespace) -> list[Outcome]:
    """What became of each operator asked for; failures are told at once."""
    outcomes: list[Outcome] = []
    own, shares = map(int, args.share.split("/"))
    dtype = getattr(torch, args.dtype)
    for op in islice(operators(args.names), args.first + own, args.to, shares):
        one = check(op, dtype, args.samples, not args.forward, args.dynamic, args.device)
        outcomes.append(one)
        if one.status == "fail" or args.names:
            print(f"{one.status:9} {one.name}: {one.note} {one.calls}", flush=True)
        if args.json:
            with open(args.json, "w", encoding="utf-8") as f:
                json.dump([asdict(o) for o in outcomes], f, indent=1)
        gc.collect()
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
