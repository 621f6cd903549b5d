"""`flex_attention` by kernels of ours, against torch's own computation in f64.

    TRITON_INTERPRET=1 TREADLE_CODE=triton python tests/differential/flex_cases.py
    python tests/differential/flex_cases.py --device cuda --large --fuzz 200

Every case says which functions it has and what becomes of it: kernels, or torch's operator with a
reason. Results, sums and gradients stay within bounds that follow from how often each is rounded.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.attention.flex_attention as public
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from treadle.core.options import Options
from treadle.frontends.torch.backend import compile_with
from treadle.frontends.torch.capture.compile import Settings

U = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""Unit roundoffs."""
VERBOSE: list[str] = []
U32 = U[torch.float32]


@dataclass
class Case:
    """One attention: sizes, functions, and what is expected of it."""

    name: str
    change: Callable[..., Any] | None = None
    """The score function."""
    counts: Callable[..., Any] | None = None
    """The mask function."""
    batch: int = 1
    heads: int = 2
    kv_heads: int = 2
    queries: int = 80
    keys: int = 80
    dim: int = 16
    v_dim: int = 0
    dtype: Any = torch.float32
    block: int = 32
    per_head: bool = False
    gradients: bool = False
    transposed: bool = False
    dynamic: bool = False
    scale: float | None = None
    refused: str = ""
    """Part of the reason why it stays torch's; empty: it does not."""
    refused_backward: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    grows: float = 1.0
    """By how much the score function may make errors larger."""


# ---------------------------------------------------------------------------------- functions


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def nothing_before(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q > 40)


def window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q - k <= 24)


def relative(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + (q - k) * 0.125


def softcap(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.tanh(score / 3) * 3


def causal_by_score(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.where(q >= k, score, -float("inf"))


def sorted_score(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return score + torch.special.zeta(score * 0 + 2, score * 0 + 1)


def documents(device: str, count: int) -> Callable[..., Any]:
    which = (torch.arange(count, device=device) // 29).int()
    return lambda b, h, q, k: (q >= k) & (which[q] == which[k])


def alibi(device: str, heads: int) -> Callable[..., Any]:
    slopes = torch.exp2(-torch.arange(1.0, heads + 1, device=device))
    return lambda score, b, h, q, k: score + slopes[h] * (k - q)


def table_of_distances(device: str, queries: int, keys: int) -> Callable[..., Any]:
    table = torch.randn(queries + keys, device=device)
    return lambda score, b, h, q, k: score + table[q - k + keys]


def distances_from_the_end(device: str, keys: int) -> Callable[..., Any]:
    table = torch.randn(keys, device=device)
    return lambda score, b, h, q, k: score + table[q - k]


def biased(device: str, heads: int, queries: int, keys: int) -> Callable[..., Any]:
    bias = torch.randn(heads, keys, queries, device=device).transpose(1, 2)
    return lambda score, b, h, q, k: score * 0.5 + bias[h, q, k]


def looked_up_twice(device: str, keys: int) -> Callable[..., Any]:
    place = torch.randint(0, 7, (keys,), device=device)
    value = torch.randn(7, device=device)
    return lambda score, b, h, q, k: score + value[place[k]]


def column_of_a_table(device: str, heads: int, queries: int) -> Callable[..., Any]:
    table = torch.randn(2, heads, queries, 5, device=device)
    warmth = torch.tensor(0.75, device=device)
    return lambda score, b, h, q, k: score * warmth + table[1, h, q, 3]


def learned(device: str, heads: int) -> Callable[..., Any]:
    weight = torch.randn(heads, device=device, requires_grad=True)
    return lambda score, b, h, q, k: score * weight[h]


def cases(device: str) -> list[Case]:
    """All cases of usual sizes, those that stay torch's last."""
    half = torch.float16  # of bf16 the interpreter multiplies the bits
    return [
        Case("plain"),
        Case("plain, odd lengths", queries=77, keys=51),
        Case("causal", counts=causal, gradients=True),
        Case("causal, odd lengths", counts=causal, queries=77, keys=77, gradients=True),
        Case("window", counts=window, queries=96, keys=96, batch=2, gradients=True),
        Case("documents", counts=documents(device, 96), queries=96, keys=96, gradients=True),
        Case("rows that see nothing", counts=nothing_before, gradients=True),
        Case("relative", change=relative, gradients=True),
        Case("alibi", change=alibi(device, 4), counts=causal, heads=4, kv_heads=2, gradients=True),
        Case("softcap", change=softcap, counts=causal, gradients=True),
        Case("masked by score", change=causal_by_score, queries=50, keys=50, gradients=True),
        Case("distances", change=table_of_distances(device, 77, 51), queries=77, keys=51),
        Case("distances from the end", change=distances_from_the_end(device, 80), counts=causal),
        Case("bias", change=biased(device, 2, 64, 80), queries=64, gradients=True),
        Case("looked up twice", change=looked_up_twice(device, 80)),
        Case("a column of a table", change=column_of_a_table(device, 2, 80), gradients=True),
        Case("one query", queries=1, change=relative),
        Case("groups", counts=causal, heads=6, kv_heads=2, batch=2, transposed=True),
        Case("masks per head", counts=lambda b, h, q, k: q + h * 16 >= k, per_head=True,
             gradients=True),
        Case("heads of 24 and 40", counts=causal, dim=24, v_dim=40, gradients=True),
        Case("small blocks", counts=causal, block=16, queries=48, keys=48, gradients=True),
        Case("negative scale", counts=causal, scale=-0.3),
        Case("half", counts=causal, change=softcap, dtype=half, dim=32, gradients=True),
        Case("open lengths", change=relative, queries=77, dynamic=True, gradients=True),
        Case("open lengths and documents", counts=documents(device, 90), queries=77, keys=77,
             dynamic=True, gradients=True),
        Case("f64", dtype=torch.float64, refused="tensors of f64"),
        Case("an operation without a form", change=sorted_score, refused="zeta"),
        Case("blocks of 24", counts=causal, block=24, queries=48, keys=48, refused="blocks of 24"),
        Case("heads of 272", dim=272, queries=16, keys=16, refused="heads of 272"),
        Case("FLASH", options={"BACKEND": "FLASH"}, refused="FLASH"),
        Case("a learned weight", change=learned(device, 2), queries=32, keys=32, gradients=True,
             refused_backward="gradient"),
    ]  # fmt: skip


def large_cases(device: str) -> list[Case]:
    """Sizes that a device has tiles for."""
    found = []
    half = [(torch.bfloat16, dim) for dim in (16, 64, 96, 128, 256)] + [(torch.float16, 64)]
    for dtype, dim in half + [(torch.float32, dim) for dim in (64, 128, 256)]:
        rest: dict[str, Any] = {"dtype": dtype, "dim": dim, "block": 128, "gradients": True}
        rest |= {"heads": 4, "kv_heads": 2, "batch": 2}
        even, odd = {"queries": 512, "keys": 512}, {"queries": 459, "keys": 459}
        tag = f"{str(dtype)[6:]} {dim}"
        found += [
            Case(f"causal {tag}", counts=causal, **even, **rest),
            Case(f"window {tag}", counts=window, change=softcap, **odd, **rest),
            Case(f"documents {tag}", counts=documents(device, 512), change=alibi(device, 4),
                 **even, **rest),
            Case(f"plain {tag}", **odd, **rest),
        ]  # fmt: skip
    return found


# ------------------------------------------------------------------------------------ running


def tensors(case: Case, device: str) -> list[Any]:
    """Queries, keys and values."""
    v_dim = case.v_dim or case.dim
    sizes = [(case.heads, case.queries, case.dim), (case.kv_heads, case.keys, case.dim)]
    sizes.append((case.kv_heads, case.keys, v_dim))
    made = []
    for heads, count, dim in sizes:
        if case.transposed:
            x = torch.randn(case.batch, count, heads, dim, device=device).transpose(1, 2)
        else:
            x = torch.randn(case.batch, heads, count, dim, device=device)
        made.append(x.to(case.dtype))
    return made


def attention_of(case: Case, device: str) -> Callable[..., Any]:
    """The function that is compiled."""
    mask = None
    if case.counts is not None:
        heads = case.heads if case.per_head else None
        where = (case.batch if case.per_head else None, heads, case.queries, case.keys)
        mask = create_block_mask(case.counts, *where, device=device, BLOCK_SIZE=case.block)
    rest = {"score_mod": case.change, "block_mask": mask, "scale": case.scale}
    rest |= {"enable_gqa": case.heads != case.kv_heads, "kernel_options": case.options or None}

    def attend(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q, k, v, return_lse=True, **rest)

    return attend


def run(function: Callable[..., Any], given: list[Any], slopes: list[Any]) -> list[Any]:
    """Results, and gradients if there are slopes."""
    inputs = [x.detach().clone(memory_format=torch.preserve_format) for x in given]
    inputs = [x.requires_grad_(bool(slopes)) for x in inputs]
    results = list(function(*inputs))
    if not slopes:
        return results
    seen = torch.nan_to_num(results[1], neginf=0.0)  # a row that sees nothing has no sum
    total = (results[0] * slopes[0]).sum() + (seen * slopes[1]).sum()
    return [*results, *torch.autograd.grad(total, inputs)]


def bounds(case: Case, given: list[Any], slopes: list[Any]) -> list[Any]:
    """How far each result may be from its exact value, from f64 throughout."""
    q, k, v = [x.double() for x in given]
    repeated = case.heads // case.kv_heads
    k, v = k.repeat_interleave(repeated, 1), v.repeat_interleave(repeated, 1)
    scale = case.scale if case.scale is not None else case.dim**-0.5
    scores = q @ k.transpose(-2, -1) * scale
    at = [torch.arange(n, device=q.device) for n in scores.shape]
    where = (at[0][:, None, None, None], at[1][:, None, None], at[2][:, None], at[3])
    post = scores if case.change is None else case.change(scores, *where)
    if case.counts is not None:
        post = torch.where(case.counts(*where), post, -float("inf"))
    p = torch.nan_to_num(torch.softmax(post, -1))
    u = U[case.dtype]
    sizes = q.abs() @ k.abs().transpose(-2, -1) * abs(scale)
    finite = torch.where(post.isinf(), 0.0, post).abs()
    # Of a score: products one after the other, the functions of it, the exponential.
    unsure = U32 * (sizes * (case.dim + 8) + 24 * finite + 32)
    if case.dtype is not torch.float32:
        unsure += 1e-6 * 20  # short functions, times what a cap multiplies with
    largest = unsure.amax(-1, keepdim=True) * case.grows
    out = p @ v.abs() * (3 * u + 2 * largest)
    found = [out, largest[..., 0] * 2 + U32 * 8 * finite.amax(-1)]
    if not slopes:
        return found
    slope = slopes[0].double().abs()
    behind = slope @ v.abs().transpose(-2, -1)
    inner = (p @ v.abs() * slope).sum(-1, keepdim=True) + slopes[1].double().abs()[..., None]
    tilt = 2.0 if case.change is None else 4.0 * case.grows
    per_score = p * (behind + inner) * (2 * u + 2 * largest) + p * inner * 2 * u
    found.append(abs(scale) * tilt * per_score @ k.abs() + 2 * u)
    keys = abs(scale) * tilt * per_score.transpose(-2, -1) @ q.abs() + 2 * u
    values = p.transpose(-2, -1) @ (slope * (4 * u + 2 * largest)) + 2 * u
    for x in (keys, values):
        found.append(x.unflatten(1, (case.kv_heads, repeated)).sum(2))
    return found


def compare(case: Case, device: str) -> list[str]:
    """What is wrong with a case; nothing if all is as it should be."""
    torch.manual_seed(3)
    torch._dynamo.reset()
    given, seen = tensors(case, device), []
    slopes: list[Any] = []
    if case.gradients:
        shape = (*given[0].shape[:3], given[2].shape[3])
        slopes = [torch.randn(shape, device=device).to(case.dtype)]
        slopes.append(torch.randn(shape[:3], device=device))
    attend = attention_of(case, device)
    settings = Settings(Options.from_env(), True, seen.append)
    ours = torch.compile(
        attend, backend=lambda gm, x: compile_with(settings, gm, x), dynamic=case.dynamic
    )
    got = run(ours, given, slopes)
    if case.dtype is torch.float64 or case.refused:
        return _refused(case, seen)
    torch._dynamo.reset()
    exact = run(attend, [x.double() for x in given], [x.double() for x in slopes])
    wrong = [] if case.refused_backward else _served(case, seen)
    if case.refused_backward:
        wrong += _refused(case, seen)
    names = ("out", "sums", "query", "key", "value")
    limits = bounds(case, given, slopes)
    for name, a, b, limit in zip(names, got, exact, limits, strict=False):
        off = (a.double() - b).abs()
        bad = ~((off <= limit) | (a.double() == b))
        if VERBOSE:
            print(f"{case.name}: {name} {(off / limit).nan_to_num().max().item():.3g} of its bound")
        if bad.any():
            worst = (off / limit)[bad].max().item()
            wrong.append(f"{name}: {int(bad.sum())} of {bad.numel()} outside, {worst:.3g} times")
    return wrong


def _reasons(seen: list[Any]) -> list[tuple[str, str]]:
    return [(n, r) for one in seen for n, r in one.fallbacks if n.startswith("flex_attention")]


def _served(case: Case, seen: list[Any]) -> list[str]:
    return [f"{name} stays torch's: {reason}" for name, reason in _reasons(seen)]


def _refused(case: Case, seen: list[Any]) -> list[str]:
    wanted = case.refused or case.refused_backward
    found = _reasons(seen)
    if any(wanted in reason for _, reason in found):
        return []
    return [f"'{wanted}' is no reason among {found}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--large", action="store_true", help="also sizes that a device has")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--fuzz", type=int, default=0, help="so many random ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", default="0/1", help="every n-th case, beginning with k: k/n")
    parser.add_argument("--forward", action="store_true", help="no gradients")
    parser.add_argument("--verbose", action="store_true", help="how much of each bound is used")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    public._validate_device = lambda *given: None  # type: ignore[assignment]
    VERBOSE.extend(["yes"] if args.verbose else [])
    chosen = cases(args.device) + (large_cases(args.device) if args.large else [])
    if args.fuzz:
        from flex_fuzz import random_case

        seeds = range(args.seed, args.seed + args.fuzz)
        chosen += [random_case(seed, args.device) for seed in seeds]
    failed = 0
    first, step = map(int, args.share.split("/"))
    chosen = [c for c in chosen if args.only in c.name][first::step]
    for case in chosen:
        if args.forward:
            case.gradients, case.refused_backward = False, ""
        try:
            wrong = compare(case, args.device)
        except Exception as e:  # every case is looked at
            wrong = [f"{type(e).__name__}: {str(e)[:600]}"]
        failed += bool(wrong)
        for line in wrong:
            print(f"WRONG {case.name}: {line}", flush=True)
    print(f"flex {len(chosen)}, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
