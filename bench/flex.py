"""flex_attention on a GPU: kernels of ours, the peer's, and the library's causal attention.

  python bench/flex.py [--save] [--only causal] [--dims 64,128] [--forward] [--tiles]

GPU milliseconds of one call (the median of many, between events) and the TFLOP/s of the pairs that
count; `backward` is the gradient alone. `--tiles` times our kernels with other tiles instead, which
is how those in `codegen/triton/flex/tiles.py` were chosen. A result that is not close to the
library's, or to the peer's, is said to be wrong.
"""

from __future__ import annotations

import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._functorch.config
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import treadle.torch  # noqa: F401 - makes the backend known
from common import parser, report
from treadle.codegen.triton.flex.spec import Tile
from treadle.runtime.hosts import torch_flex

BATCH, HEADS, LENGTH = 4, 16, 4096
WINDOW, DOCUMENT = 1024, 1000


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def window(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q - k < WINDOW)


def documents() -> Callable[..., Any]:
    which = (torch.arange(LENGTH, device="cuda") // DOCUMENT).int()
    return lambda b, h, q, k: (q >= k) & (which[q] == which[k])


def alibi() -> Callable[..., Any]:
    slopes = torch.exp2(-8.0 / HEADS * torch.arange(1.0, HEADS + 1, device="cuda"))
    return lambda score, b, h, q, k: score + slopes[h] * (k - q)


def softcap(score: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
    return torch.tanh(score / 20) * 20


def kinds() -> dict[str, tuple[Any, Any]]:
    """Each attention as its score function and its mask function."""
    return {
        "plain": (None, None),
        "causal": (None, causal),
        "window": (None, window),
        "documents": (None, documents()),
        "alibi": (alibi(), causal),
        "softcap": (softcap, causal),
    }


def milliseconds(work: Callable[[], Any], before: Callable[[], Any] | None = None) -> float:
    """The median time of a call on the device."""
    for _ in range(5):
        if before is not None:
            before()
        work()
    torch.cuda.synchronize()
    found = []
    for _ in range(30):
        if before is not None:
            before()
        start, end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end))
    return round(statistics.median(found), 4)


def share_of_pairs(counts: Any) -> float:
    """Which part of all pairs counts."""
    if counts is None:
        return 1.0
    at = torch.arange(LENGTH, device="cuda")
    return float(counts(0, 0, at[:, None], at[None, :]).float().mean())


def given(dim: int) -> list[Any]:
    """Queries, keys, values and the gradient of the result."""
    torch.manual_seed(0)
    shape = (BATCH, HEADS, LENGTH, dim)
    made = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    return [*[x.requires_grad_() for x in made[:3]], made[3]]


def attention(change: Any, counts: Any) -> Callable[..., Any]:
    """The function that is compiled."""
    mask = None
    if counts is not None:
        mask = create_block_mask(counts, None, None, LENGTH, LENGTH, device="cuda")
    return lambda q, k, v: flex_attention(q, k, v, score_mod=change, block_mask=mask)


def forms(name: str, change: Any, counts: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Who computes it."""
    attend = attention(change, counts)
    yield "ours", torch.compile(attend, backend="treadle", dynamic=False)
    yield "peer", torch.compile(attend, dynamic=False)
    if name in ("plain", "causal"):
        is_causal = name == "causal"
        yield (
            "library",
            lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal),
        )


def measure(name: str, dim: int, only_forward: bool) -> dict[str, Any]:
    """One attention, all forms."""
    change, counts = kinds()[name]
    q, k, v, slope = given(dim)
    work = 4 * BATCH * HEADS * LENGTH * LENGTH * dim * share_of_pairs(counts)
    row: dict[str, Any] = {"kind": name, "dim": dim}
    seen: dict[str, list[Any]] = {}
    for form, f in forms(name, change, counts):
        torch._dynamo.reset()
        try:
            began = time.perf_counter()
            out = f(q, k, v)
            torch.cuda.synchronize()
            row[f"{form}_compile_s"] = round(time.perf_counter() - began, 2)
            with torch.no_grad():
                ms = milliseconds(lambda f=f: f(q, k, v))
            row[f"{form}_forward_ms"] = ms
            row[f"{form}_forward_tflops"] = round(work / ms / 1e9, 1)
            seen[form] = [out.detach()]
            if only_forward:
                continue
            # The gradient alone: graphs of the forward are kept, and walked again and again.
            out = f(q, k, v)

            def back(out: Any = out) -> list[Any]:
                return list(torch.autograd.grad(out, (q, k, v), slope, retain_graph=True))

            seen[form] += back()
            ms = milliseconds(back)
            row[f"{form}_backward_ms"] = ms
            row[f"{form}_backward_tflops"] = round(2.5 * work / ms / 1e9, 1)
        except Exception as e:  # one that fails must not hide the others
            row[f"{form}_error"] = f"{type(e).__name__}: {str(e)[:300]}"
            traceback.print_exc()
    row["wrong"] = differences(seen)
    return row


def differences(seen: dict[str, list[Any]]) -> list[str]:
    """Where our results are farther from the others' than roundings explain."""
    found = []
    for other in ("peer", "library"):
        for name, a, b in zip(["out", "dq", "dk", "dv"], seen.get("ours", []), seen.get(other, [])):
            size = b.float().abs().mean()
            off = (a.float() - b.float()).abs().mean() / size
            if not off < 0.02:
                found.append(f"{name} against {other}: {float(off):.3g} of its mean size")
    return found


FORWARD = {
    64: [(128, 128, 4, 3), (128, 128, 8, 3), (128, 128, 8, 2), (128, 64, 4, 3), (128, 64, 4, 2),
         (128, 64, 8, 3), (64, 64, 4, 3), (64, 128, 4, 3), (128, 64, 4, 4)],
    128: [(128, 64, 8, 3), (128, 64, 8, 2), (128, 128, 8, 2), (64, 64, 4, 3), (64, 64, 4, 2),
          (64, 128, 4, 2), (128, 32, 8, 3), (128, 64, 8, 4)],
}  # fmt: skip
QUERIES = {
    64: [(128, 64, 8, 3), (128, 64, 4, 3), (128, 64, 4, 2), (128, 128, 8, 2), (64, 64, 4, 3),
         (64, 64, 4, 2), (64, 128, 4, 2), (128, 32, 4, 3)],
    128: [(128, 64, 8, 3), (128, 64, 8, 2), (64, 64, 4, 2), (64, 64, 4, 3), (128, 128, 8, 2),
          (64, 32, 4, 3), (128, 32, 8, 3)],
}  # fmt: skip
KEYS = {
    64: [(64, 128, 8, 3), (64, 128, 8, 2), (64, 64, 4, 3), (64, 64, 4, 2), (32, 128, 4, 3),
         (32, 128, 8, 3), (32, 64, 4, 3), (128, 64, 8, 2)],
    128: [(64, 128, 8, 3), (64, 128, 8, 2), (64, 64, 8, 2), (64, 64, 8, 3), (32, 128, 8, 3),
          (32, 64, 4, 3), (32, 128, 8, 2), (64, 64, 4, 2)],
}  # fmt: skip
"""Tiles to try: queries and keys at once, warps, steps under way."""


def noted(kind: Any, called: list[Any]) -> Callable[[], None]:
    """Remember who is called with what; gives what ends that."""
    usual = kind.into

    def note(self: Any, *args: Any, **out: Any) -> None:
        called.append((self, args, out))
        usual(self, *args, **out)

    kind.into = note
    return lambda: setattr(kind, "into", usual)


def tiles(name: str, dim: int) -> dict[str, Any]:
    """Our kernels with other tiles, milliseconds by tile."""
    change, counts = kinds()[name]
    q, k, v, slope = given(dim)
    row: dict[str, Any] = {"kind": name, "dim": dim}
    torch._dynamo.reset()
    forward: list[Any] = []
    backward: list[Any] = []
    ends = [noted(torch_flex.FlexForward, forward), noted(torch_flex.FlexBackward, backward)]
    f = torch.compile(attention(change, counts), backend="treadle", dynamic=False)
    f(q, k, v).backward(slope)
    for end in ends:
        end()
    op, args, out = forward[0]
    for tile in FORWARD[dim]:
        one = torch_flex.FlexForward(op.spec, op.options, op.device, op.wanted, Tile(*tile))
        row[f"forward {tile}"] = tried(lambda one=one: one.into(*args, **out))
    op, args, out = backward[0]
    for which, known in ((1, QUERIES[dim]), (2, KEYS[dim])):
        for tile in known:
            pair = (Tile(*tile), Tile(*tile))
            two = torch_flex.FlexBackward(op.spec, op.by_keys, op.options, op.device, pair)
            row[f"{('', 'queries', 'keys')[which]} {tile}"] = one_kernel(two, which, args, out)
    return row


def one_kernel(op: Any, which: int, args: Any, out: Any) -> float | str:
    """One of the kernels of a backward."""
    try:
        kernel, held = op.launches(*args, **out)[which]
        at = torch_flex.addresses(held)
    except Exception as e:  # does not fit
        return str(e)[:80]
    return tried(lambda: kernel.launch(at))


def tried(work: Callable[[], Any]) -> float | str:
    """Milliseconds, or why there are none."""
    try:
        return milliseconds(work)
    except Exception as e:  # does not fit
        return str(e)[:80]


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--only", default="")
    made.add_argument("--dims", default="64,128")
    made.add_argument("--forward", action="store_true")
    made.add_argument("--tiles", action="store_true")
    asked = made.parse_args()
    torch._functorch.config.donated_buffer = False  # gradients are asked for again and again
    rows = []
    for dim in map(int, asked.dims.split(",")):
        for name in kinds():
            if asked.only in name:
                row = tiles(name, dim) if asked.tiles else measure(name, dim, asked.forward)
                print(row, flush=True)
                rows.append(row)
    sizes = {"batch": BATCH, "heads": HEADS, "length": LENGTH, "dtype": "bfloat16"}
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, **sizes}
    report("flex_tiles" if asked.tiles else "flex", {**about, "rows": rows}, asked.save)


if __name__ == "__main__":
    main()
