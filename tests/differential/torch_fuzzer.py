"""Random torch functions: eager, the reference interpreter and compiled code must agree.

    PYTHONPATH=src python tests/differential/torch_fuzzer.py --cases 10000 --seed 0

With --threads N torch has so many, and every nest that may be shared is, however short.

Prints the seed of every failure and, made smaller, the source text of its function. A failure is
one that torch's own plain backend (`aot_eager`) does not have.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from many_threads import on_threads
from torch_bounds import BoundedTensor, further_off
from torch_fuzz_cases import Case, functions_of, make_case, storage_of, text_of
from torch_fuzz_interp import Watching

from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture.compile import Settings

BATCH = 6
REPORT = 500
"""How many cases are told at once."""
POLICIES = ("balanced", "fast", "balanced", "memory", "balanced", "inductor")
"""What is asked of the scheduler, by the last digits of the seed."""
BoundOf: TypeAlias = Callable[[Any], BoundedTensor | None]
"""From a tensor to what is known of its error."""
ANYTHING = 1.0
"""An error that lets every value pass."""
GROWTH = 2
"""How much larger the size `n` of the inputs is when a dynamic case runs a second time."""


@dataclass
class Outcome:
    """What a function gave and what it did to its inputs."""

    results: list[Any]
    inputs: list[Any]
    gradients: list[Any]
    shared: list[bool]
    """For each pair of inputs and results, whether they share memory."""


def cheap_compiler(folder: str) -> str:
    """A C compiler that does not optimise much: most of the time would be spent there."""
    path = os.path.join(folder, "cc")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'#!/bin/sh\nexec {shutil.which("cc") or "cc"} "$@" -O1\n')
    os.chmod(path, 0o755)
    return path


def settings_in(folder: str, policy: str) -> Settings:
    """Strict settings that keep what they compile in a folder."""
    made = Options.from_env().with_(cache_dir=os.path.join(folder, "cache"), policy=policy)
    if made.cc is None and shutil.which("cc"):
        made = made.with_(cc=cheap_compiler(folder))
    return Settings(made, strict=True)


# --------------------------------------------------------------------------------- running


def run_case(function: Callable[..., Any], inputs: list[Any]) -> Outcome:
    """The function on its inputs, with gradients if an input wants one."""
    torch.manual_seed(7)
    results = list(function(*inputs))
    everything = [*inputs, *results]
    shared = [
        storage_of(a) == storage_of(b) for k, a in enumerate(everything) for b in everything[:k]
    ]
    gradients: list[Any] = []
    leaves = [x for x in inputs if x.requires_grad and x.is_leaf]
    scalars = [weighted(y) for y in results if y.requires_grad and y.numel()]
    if leaves and scalars:
        total = sum(scalars[1:], scalars[0])
        unique = list({id(x): x for x in leaves}.values())
        gradients = list(torch.autograd.grad(total, unique, allow_unused=True))
    # Only now: a gradient must not have taken the memory of a result.
    kept = [x.detach().clone(memory_format=torch.preserve_format) for x in results]
    strided = [(x, y) for x, y in zip(results, kept, strict=True)]
    return Outcome(strided, [x.detach() for x in inputs], gradients, shared)


def weighted(y: Any) -> Any:
    """A number that depends on every element."""
    weights = torch.linspace(0.5, 1.5, y.numel(), dtype=torch.float64).reshape(y.shape)
    return (y.double() * weights).sum()


def difference(
    case: Case,
    found: Outcome,
    wanted: Outcome,
    n: int | None = None,
    bound_of: BoundOf = lambda tensor: None,
) -> str | None:
    """What two outcomes of a case disagree about, or None; results within their derived bound."""
    for k, error in enumerate(case.errors):
        (mine, ours), (yours, theirs) = found.results[k], wanted.results[k]
        bound = None if error >= ANYTHING else bound_of(mine)
        problem = unequal_within(ours, theirs, bound, error) or steps_differ(mine, yours)
        if problem is not None and problem.startswith("strides") and n is not None:
            problem = problem if steps_differ(mine, predicted(case, n)[k]) else None
        if problem is None and mine.requires_grad != yours.requires_grad:
            problem = f"requires_grad is {mine.requires_grad}"
        if problem is not None:
            return f"result {k} ({case.outputs[k]}): {problem}"
    for k, (a, b) in enumerate(zip(found.inputs, wanted.inputs, strict=True)):
        problem = unequal(a, b, case.noise)
        if problem is not None:
            return f"input {k} afterwards: {problem}"
    for k, (a, b) in enumerate(zip(found.gradients, wanted.gradients, strict=True)):
        if (a is None) != (b is None):
            return f"gradient {k}: one is missing"
        problem = None if a is None else unequal(a, b, max(case.noise, 1.3e-6) * 4)
        if problem is not None:
            return f"gradient {k}: {problem}"
    if found.shared != wanted.shared:
        return f"memory is shared as {found.shared}, not {wanted.shared}"
    return None


def judged(
    case: Case, found: Outcome, wanted: Outcome, n: int, bound_of: BoundOf = lambda tensor: None
) -> str | None:
    """What an outcome gets wrong: not what it has more exactly than eager mode."""
    problem = difference(case, found, wanted, n, bound_of)
    if problem is None:
        return None
    anything = replace(case, errors=tuple([ANYTHING] * len(case.errors)), noise=ANYTHING)
    other = difference(anything, found, wanted, n)
    if other is not None:
        return other
    exact = eager(in_double(case), n)
    return None if exact is not None and is_closer(found, wanted, exact) else problem


def in_double(case: Case) -> Case:
    """The case with inputs of twice the precision."""
    inputs = [x.replace("torch.float32", "torch.float64") for x in case.inputs]
    return replace(case, inputs=tuple(inputs))


def is_closer(found: Outcome, wanted: Outcome, exact: Outcome) -> bool:
    """Whether no tensor is further from the exact one than eager's is, roundings apart."""

    def tensors(of: Outcome) -> list[Any]:
        return [*[kept for _, kept in of.results], *of.inputs, *of.gradients]

    def distance(a: Any, b: Any) -> float:
        return float((a.double() - b.double()).abs().max())

    for ours, theirs, right in zip(tensors(found), tensors(wanted), tensors(exact), strict=True):
        if ours is None or not ours.numel():
            continue
        rounding = 1e-6 * float(right.double().abs().max())
        if not distance(ours, right) <= distance(theirs, right) + rounding:
            return False
    return True


def predicted(case: Case, n: int) -> list[Any]:
    """The results as torch's own fake tensors have them: their strides are not always eager's."""
    make, function = functions_of(case)
    inputs = make(n)
    with torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        return list(function(*[mode.from_tensor(x) for x in inputs]))


def unequal_within(ours: Any, theirs: Any, bound: BoundedTensor | None, error: float) -> str | None:
    """What differs beyond eager's usual error and beyond twice the bound.

    That ours is within the bound is seen to where graphs run; eager may round more often than the
    program says (products of bf16), or be as far off as the bound says where much cancels.
    """
    problem = unequal(ours, theirs, error)
    if problem is None or bound is None or ours.dtype != theirs.dtype:
        return problem
    if not bound.error.isfinite().all():
        return problem
    return further_off(ours, BoundedTensor(theirs, 2 * bound.error)) and problem


def unequal(ours: Any, theirs: Any, error: float) -> str | None:
    """What differs between two tensors; `error` 0 leaves room for one rounding only."""
    plain = {torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float32: 5e-7}.get(ours.dtype, 1e-12)
    rtol = max(plain, 8 * error) if theirs.is_floating_point() else 0.0
    largest = float(theirs.abs().max()) if theirs.numel() and rtol else 0.0
    atol = rtol * max(largest, 1.0) if error else 0.0
    try:
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as e:
        return " ".join(str(e).split())[:240]
    return None


def steps_differ(a: Any, b: Any) -> str | None:
    """Whether tensors lie differently in memory."""
    steps = [(x, y) for n, x, y in zip(a.shape, a.stride(), b.stride(), strict=True) if n > 1]
    if a.numel() and any(x != y for x, y in steps):
        return f"strides {a.stride()} instead of {b.stride()}"
    return None


# ---------------------------------------------------------------------------------- judging


def eager(case: Case, n: int | None = None) -> Outcome | None:
    """What eager mode makes of a case; None if it refuses it."""
    make, function = functions_of(case)
    try:
        return run_case(function, make(case.n if n is None else n))
    except Exception:
        return None


def with_backend(case: Case, backend: Any, wanted: Outcome) -> str | None:
    """What a backend gets wrong about a case, or None."""
    torch._dynamo.reset()
    make, function = functions_of(case)
    compiled = torch.compile(function, backend=backend, dynamic=case.is_dynamic)
    try:
        bound_of = backend.bound_of if isinstance(backend, Watching) else lambda tensor: None
        problem = judged(case, run_case(compiled, make(case.n)), wanted, case.n, bound_of)
        n = case.n + GROWTH
        larger = eager(case, n) if case.is_dynamic and problem is None else None
        if larger is not None:
            problem = judged(case, run_case(compiled, make(n)), larger, n, bound_of)
            problem = problem and f"with n={n}: {problem}"
    except Exception as e:
        lines = [x for x in str(e).splitlines() if x and not x.endswith("raised:")]
        return f"{type(e).__name__}: {(lines or [''])[0][:200]}"
    return problem


def check(case: Case, settings: Settings) -> str | None:
    """What is wrong with a case that is not wrong with torch's plain backend, or None."""
    wanted = eager(case)
    if wanted is None:
        return None
    if torch.get_default_device().type != "cpu":
        problem = with_backend(case, partial(compile_with, settings), wanted)
    else:
        watching = Watching(settings)
        problem = with_backend(case, watching, wanted) or watching.problem
    if problem is None or with_backend(case, "aot_eager", wanted) is not None:
        return None
    return problem


def check_batch(cases: Sequence[Case], settings: Settings) -> list[tuple[Case, str]]:
    """The failing ones among several cases, compiled together as one function."""
    pairs = [(case, eager(case)) for case in cases]
    usable = [(case, wanted) for case, wanted in pairs if wanted is not None]
    if torch.get_default_device().type != "cpu":  # the interpreter sees memory of the CPU only
        failures = [(case, check(case, settings)) for case, _ in usable]
        return [(case, problem) for case, problem in failures if problem is not None]
    watching = Watching(settings)
    if len(usable) > 1 and _all_agree(usable, watching) and watching.problem is None:
        return []
    failures = [(case, check(case, settings)) for case, _ in usable]
    return [(case, problem) for case, problem in failures if problem is not None]


def _all_agree(usable: Sequence[tuple[Case, Outcome]], watching: Watching) -> bool:
    torch._dynamo.reset()
    made = [functions_of(case) for case, _ in usable]
    inputs = [make(case.n) for (make, _), (case, _) in zip(made, usable, strict=True)]
    ends = [0]
    for given in inputs:
        ends.append(ends[-1] + len(given))
    parts = [(function, ends[k], ends[k + 1]) for k, (_, function) in enumerate(made)]

    def together(*args: Any) -> Any:
        return [x for function, a, b in parts for x in function(*args[a:b])]

    flat = [x for given in inputs for x in given]
    try:
        compiled = torch.compile(together, backend=watching, dynamic=usable[0][0].is_dynamic)
        found = run_case(compiled, flat)
        whole = joined([case for case, _ in usable])
        wanted = run_case(together, [x for (make, _), (case, _) in zip(made, usable, strict=True)
                                     for x in make(case.n)])  # fmt: skip
        return difference(whole, found, wanted, bound_of=watching.bound_of) is None
    except Exception:
        return False


def joined(cases: Sequence[Case]) -> Case:
    """What is asked of several cases that ran as one."""
    return Case(
        cases[0].seed, tuple([i for c in cases for i in c.inputs]), (),
        tuple([o for c in cases for o in c.outputs]), 0, cases[0].is_dynamic,
        tuple([e for c in cases for e in c.errors]), max(c.noise for c in cases),
    )  # fmt: skip


def smaller(case: Case, settings: Settings, seconds: float = 40.0) -> Case:
    """The case without the statements and outputs it fails without as well."""
    end = time.perf_counter() + seconds
    for step in (_without_outputs, _without_lines):
        case = step(case, lambda c: time.perf_counter() < end and check(c, settings) is not None)
    return case


def _without_outputs(case: Case, fails: Callable[[Case], bool]) -> Case:
    for k in range(len(case.outputs) - 1, -1, -1):
        outputs, errors = list(case.outputs), list(case.errors)
        del outputs[k], errors[k]
        fewer = replace(case, outputs=tuple(outputs), errors=tuple(errors))
        if outputs and fails(fewer):
            case = fewer
    return case


def _without_lines(case: Case, fails: Callable[[Case], bool]) -> Case:
    for position in range(len(case.lines) - 1, -1, -1):
        if fails(case.without(position)):
            case = case.without(position)
    return case


# ------------------------------------------------------------------------------------- many


def fuzz(
    seeds: Sequence[int], seconds: float = 1e9, tell: Callable[[str], None] = print
) -> tuple[int, list[tuple[Case, str]]]:
    """How many cases ran within the time, and those that failed, made smaller."""
    end, done = time.perf_counter() + seconds, 0
    failures: list[tuple[Case, str]] = []
    waiting: dict[tuple[bool, bool, str], list[Case]] = {}
    with tempfile.TemporaryDirectory(prefix="treadle-fuzz-") as folder:
        for position, seed in enumerate(seeds):
            case = make_case(seed)
            wants_grad = any("requires_grad" in x for x in case.inputs)
            key = (case.is_dynamic, wants_grad, POLICIES[seed % len(POLICIES)])
            waiting.setdefault(key, []).append(case)
            is_last = position == len(seeds) - 1
            # Sizes that are open in one case would close those of another: these run alone.
            full = [k for k, v in waiting.items() if len(v) >= BATCH or k[0] or is_last]
            for k in full:
                batch, settings = waiting.pop(k), settings_in(folder, k[2])
                for one, problem in check_batch(batch, settings):
                    found = smaller(one, settings)
                    failures.append((found, problem))
                    how = f"policy {k[2]}" + (", dynamic=True" if one.is_dynamic else "")
                    tell(f"# seed {one.seed} ({how}): {problem}\n{text_of(found)}")
                if done // REPORT < (done + len(batch)) // REPORT:
                    tell(f"# {done + len(batch)} cases up to seed {seed}: {len(failures)} failures")
                done += len(batch)
            if time.perf_counter() > end:
                break
    return done, failures


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--device", default="cpu", help="where functions run: cpu or cuda")
    parser.add_argument("--threads", type=int, help="share every nest among so many threads")
    args = parser.parse_args()
    torch.set_default_device(args.device)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    start = time.perf_counter()
    seeds = range(args.seed, args.seed + args.cases)
    with on_threads(args.threads) if args.threads else nullcontext():
        done, failures = fuzz(seeds, args.seconds, lambda text: print(text, flush=True))
    took = time.perf_counter() - start
    print(f"{done} cases from seed {args.seed}, {len(failures)} failures, {took:.0f} s")
    print("failing seeds:", [case.seed for case, _ in failures])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
