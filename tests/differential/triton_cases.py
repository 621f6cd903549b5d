"""Kernels in Triton, run by Triton's interpreter in a process of its own.

    TRITON_INTERPRET=1 python tests/differential/triton_cases.py --programs 25 --seed 1
    TRITON_INTERPRET=1 python tests/differential/triton_cases.py --graphs

Random programs are scheduled for a GPU, written in Triton and held against the bound of their
numerics; graphs of torch go the whole way through torch.compile. Narrow floats are left out: the
interpreter rounds them otherwise than any GPU does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))

from treadle.codegen.lower import lower
from treadle.core.context import Ctx
from treadle.core.errors import TreadleError
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.interp.compare import random_inputs
from treadle.ir.interp.dtypes import Array
from treadle.ir.interp.memory import Memory
from treadle.ir.numerics import TORCH
from treadle.ir.program import Program
from treadle.ir.text import parse_program, show_program
from treadle.runtime.triton_kernels import TritonKernels, is_interpreted
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES
from treadle.testing.error_bound import derive_bounds, outside


def run_in_triton(
    program: Program,
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int],
    folder: str,
    change: Callable[[Program], Program] = lambda built: built,
) -> tuple[str, dict[str, Array]]:
    """The text of a program's kernels, changed before they are written, and what they leave."""
    options = Options(code="triton", cache_dir=folder)
    stated = replace(program, numerics=TORCH)
    built = run_pipeline(stated, Ctx(options, MACHINES, Journal()), KERNELS)
    built = change(built)
    kernels = TritonKernels(lower(built), options)
    values = {s: sizes[s.name] for s in built.sizes}
    memory = Memory(built, values, False)
    for name in built.inputs:
        memory.define(name)
        memory.tensor(name)[...] = inputs[name]
    addresses = [memory.elements(name).ctypes.data for name in kernels.storages]
    numbers = [values[s] for s in built.sizes]
    kernels.bind(0, len(kernels.kernels), numbers)(addresses)
    names = (*program.outputs, *program.inputs)
    text = f"{show_program(built)}\n{kernels.unit.text}"
    return text, {name: memory.tensor(name).copy() for name in names}


def check_programs(count: int, first: int) -> int:
    """Run random programs; gives how many were compared."""
    import random_bodies
    import wide_programs
    from hypothesis import HealthCheck, assume, given, seed, settings
    from triton.runtime.errors import InterpreterError

    wide = tuple(e for e in wide_programs.ELEMENTS if not e.is_low_precision)
    wide_programs.ELEMENTS = wide  # type: ignore[assignment]
    random_bodies.ELEMENTS = wide  # type: ignore[assignment]
    compared = 0
    with tempfile.TemporaryDirectory() as folder:

        @seed(first)
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(wide_programs.wide_programs())
        def every_program(program: Program) -> None:
            nonlocal compared
            sizes = {s.name: 48 for s in program.sizes}
            inputs = random_inputs(program, sizes=sizes)
            try:
                text, got = run_in_triton(program, inputs, sizes, folder)
            except TreadleError as e:
                assume(e.code != "GEN004")
                raise
            except InterpreterError as e:
                # It takes a comparison of single floats for a float once it is spread to a tile.
                assume("'bitwise_and' not supported" not in str(e))
                raise
            bounds = derive_bounds(replace(program, numerics=TORCH), inputs, sizes=sizes)
            found = outside(bounds, got, undecidable=1.0)
            assert not found, "\n".join([*found, text])
            compared += 1

        every_program()
    return compared


ADDING = """treadle 1
program adding
inputs x
outputs y, z

buffer x : f32[8, 3] on cpu
buffer y : f32[1] on cpu
buffer z : f32[ROWS] on cpu

loop nothing on cpu for i in 1 {
  %0 = constant 0.0 f32
  store y[0] = %0
}
loop rows on cpu for i in ROWS reduce r in 3 {
  %0 = load x[r]
  %1 = reduce sum %0
  store y[0] = %1 mode atomic_add
  store z[i] = %1
}
"""


def check_adding() -> int:
    """All points add the same to one place: as often as there are points; gives how many sizes."""
    import numpy as np

    counts = (2, 100, 3000)
    x = np.arange(24, dtype=np.float32).reshape(8, 3)
    for rows in counts:
        program = parse_program(ADDING.replace("ROWS", str(rows)))
        with tempfile.TemporaryDirectory() as folder:
            text, got = run_in_triton(program, {"x": x}, {}, folder)
        assert got["y"][0] == 3.0 * rows, f"{got['y'][0]} instead of {3.0 * rows}: {text}"
    return len(counts)


def large_functions() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What is scheduled otherwise than small things: Triton's interpreter takes long for it."""
    import torch
    from torch.nn import functional

    return {
        "groups with channels last": (
            lambda t: functional.silu(functional.group_norm(t.permute(0, 3, 1, 2), 4) * 2),
            (torch.randn(2, 33, 31, 32),),
        ),
        "a loss and its gradient": (
            lambda t: functional.mse_loss(t.view(8, 1031).repeat(1, 32), t.new_ones(8, 32992)),
            (torch.randn(1031, 8),),
        ),
    }


def check_graphs(large: bool) -> int:
    """Functions of torch, forward and backward, against eager; gives how many."""
    import torch
    from torch.nn import functional

    import treadle.torch  # noqa: F401

    x, w, tall = torch.randn(33, 64), torch.randn(64, 48), torch.randn(1031, 8)
    ids = torch.randint(0, 33, (7,))
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "pointwise": (lambda x: torch.tanh(x) * torch.sigmoid(x) + x.exp().clamp(max=3), (x,)),
        "layer norm": (lambda x: functional.layer_norm(functional.gelu(x) + x, (64,)), (x,)),
        "softmax of columns": (lambda x: x.softmax(0), (x,)),
        "gelu by tanh": (lambda x: functional.gelu(3 * x, approximate="tanh"), (x,)),
        "transposed": (lambda x: x.t().contiguous() + x.sum(1), (x,)),
        "product with ends": (lambda x, w: torch.relu((x * 2) @ w + 1), (x, w)),
        "rows by index": (lambda x, i: x[i] * 2, (x, ids)),
        "cross entropy": (
            lambda x: functional.cross_entropy(x, torch.arange(33, device=x.device) % 64),
            (x,),
        ),
        "several results": (lambda x: (x.amax(1), x.argmax(1), x.var(1), x.mean()), (x,)),
        "padded": (lambda x: functional.pad(x, (1, 2)), (x,)),
        "upsampled": (
            lambda x: functional.interpolate(
                x.view(1, 3, 11, 64), scale_factor=(2.0, 1.5), mode="bilinear"
            ),
            (x,),
        ),
        "put together and reduced": (
            lambda x: torch.stack((x, x.exp(), x * 2)).mean(0) + x.view(3, 11, 64).amax(0).sum(0),
            (x,),
        ),
        "a prime number of rows": (lambda t: (t.sum(0), (t * t).amin(0), t.mean()), (tall,)),
    }
    functions = large_functions() if large else functions
    warnings.filterwarnings("error", message="TOR0")
    for name, (function, given_values) in functions.items():
        for dynamic in (False, True):
            torch._dynamo.reset()
            ours = torch.compile(function, backend="treadle", dynamic=dynamic)
            results = []
            for one in (function, ours):
                args = [a.clone().requires_grad_(a.is_floating_point()) for a in given_values]
                out = one(*args)
                outs = list(out) if isinstance(out, tuple) else [out]
                total = sum(o.sin().sum() for o in outs if o.is_floating_point())
                total.backward()
                results.append([*outs, *[a.grad for a in args if a.grad is not None]])
            for wanted, got in zip(*results, strict=True):
                torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-4, msg=name)
    return len(functions)


def check_operators() -> int:
    """Scans, functions, and operators without a form among those that have one; gives how many."""
    import torch
    from torch.nn import functional

    import treadle.torch  # noqa: F401

    x, i, j = torch.randn(33, 64), torch.randint(-50, 50, (33, 64)), torch.randint(1, 9, (33, 64))
    z = torch.zeros(64, 64)
    edges = torch.linspace(-1, 1, 7)
    rounding = ("trunc", "floor")
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "running sums": (lambda x: x.cumsum(1) * 2 + x.cumsum(0), (x,)),
        "running products": (lambda x: x.cumprod(1), (x,)),
        "running counts": (lambda i: i.cumsum(1) + i.bool().cumsum(0), (i,)),
        "running maximum": (lambda x: torch.where(x > 2, torch.nan, x).cummax(1), (x,)),
        "running minimum of whole numbers": (lambda i: i.cummin(0), (i,)),
        "running logsumexp": (lambda x: x.logcumsumexp(1), (x,)),
        "running logsumexp from -inf": (
            lambda x: torch.where(x < 0, -torch.inf, x).logcumsumexp(1),
            (x,),
        ),
        "sorted": (lambda x: torch.sort(x, dim=1)[0] + 1, (x,)),
        "largest": (lambda x: (x * 2).topk(5)[0].exp(), (x,)),
        "near zero": (lambda x: functional.elu(x) + torch.expm1(x * 1e-3), (x,)),
        "near one": (lambda x: functional.softplus(x) + torch.log1p(x.abs() * 1e-5), (x,)),
        "rounded": (lambda x: torch.round(x * 4) / 2 + torch.trunc(x * 3), (x,)),
        "halves": (lambda i: torch.round(i / 2), (i,)),
        "rounded at all sizes": (
            lambda x: (
                [torch.round(x.double() * 3.0**k) for k in range(-20, 60, 4)]
                + [torch.signbit(torch.round(x * 0.3)), torch.round(x * 3e6), torch.round(x * 3e9)]
            ),
            (x,),
        ),
        "in double": (lambda x: torch.erf(x.double()) * torch.sin(x.double()) + 1, (x,)),
        "whole quotients": (
            lambda i, j: [torch.div(i, j, rounding_mode=how) for how in rounding],
            (i, j),
        ),
        "whole remainders": (lambda i, j: (torch.fmod(i, j), i % j), (i, j)),
        "shifts": (lambda i, j: (i << j, i >> j), (i, j)),
        "signs": (lambda x: torch.copysign(x, -x) + torch.signbit(x).float(), (x,)),
        "powers": (lambda x: x.abs() ** 1.5 + torch.pow(x, -3.0), (x,)),
        "hyperbolic": (lambda x: torch.sinh(x) + torch.cosh(x) + torch.tan(x), (x,)),
        "angles": (lambda x: torch.atan2(x, x + 1) * 2 + torch.asin(x.tanh()), (x,)),
        "areas": (lambda x: torch.asinh(x) * 2 + torch.lgamma(x.exp()), (x,)),
        "zeros of either sign": (lambda x: 1 / -(x * 0), (x,)),
        "buckets": (lambda x, e: torch.bucketize(x, e) + 1, (x, edges)),
        "bits": (lambda x: (x + 1).view(torch.int32) + 1, (x,)),
        "middle": (lambda x: x.median(1)[0] + 1, (x,)),
        "added by index": (lambda z, x, j: z.index_add(0, j[0, :33], x[:33]), (z, x, j)),
    }
    warnings.filterwarnings("error", message="TOR0")
    for name, (function, given_values) in functions.items():
        for dynamic in (False, True):
            torch._dynamo.reset()
            ours = torch.compile(function, backend="treadle", dynamic=dynamic)(*given_values)
            wanted = function(*given_values)
            close = {"rtol": 1e-4, "atol": 1e-5, "equal_nan": True}
            torch.testing.assert_close(ours, wanted, **close, msg=lambda m, n=name: f"{n}: {m}")
    return len(functions)


def check_row_sums() -> int:
    """Rows of narrow floats added up where data says, against f64; gives how many tables."""
    import torch

    import treadle.torch  # noqa: F401

    backward = torch.ops.aten.embedding_dense_backward
    kinds = [torch.float16, torch.float32]
    kinds += [] if is_interpreted() else [torch.bfloat16]  # which it rounds otherwise
    # A crowd on two rows, lines of their own for few of many, a row left out, a table of f32.
    tables = ((2, 512, -1), (300, 100, -1), (300, 100, 7), (50, 64, 3))
    for kind in kinds:
        units = (32 if kind is torch.float32 else 2) * torch.finfo(kind).eps
        for rows, added, left_out in tables:
            torch._dynamo.reset()
            ids = torch.randint(0, min(rows, 20), (2, added // 2))
            given = torch.randn(2, added // 2, 8).to(kind)

            def function(g: Any, i: Any, n: int = rows, out: int = left_out) -> Any:
                return backward(g, i, n, out, False) * 2

            found = torch.compile(function, backend="treadle", dynamic=False)(given, ids)
            wanted = function(given.double(), ids)
            room = units * wanted.abs().max().item()
            torch.testing.assert_close(found.double(), wanted, rtol=0, atol=room)
        torch._dynamo.reset()
        z, i, x = torch.randn(2, 8).to(kind), torch.randint(0, 2, (300,)), torch.randn(300, 8)
        put = torch.compile(lambda z, i, x: z.index_add(0, i, x), backend="treadle")
        wanted = z.double().index_add(0, i, x.to(kind).double())
        room = units * wanted.abs().max().item()
        torch.testing.assert_close(put(z, i, x.to(kind)).double(), wanted, rtol=0, atol=room)
    return len(kinds) * (len(tables) + 1)


ULPS: dict[str, tuple[str, float]] = {
    "exp": ("exp", 8),
    "log": ("log", 4),
    "log1p": ("log1p", 8),
    "expm1": ("expm1", 8),
    "tanh": ("tanh", 8),
    "erf": ("erf", 8),
    "sigmoid": ("sigmoid", 8),
    "sin": ("sin", 8),
    "cos": ("cos", 8),
    "asin": ("asin", 8),
    "acos": ("acos", 8),
    "atan": ("atan", 8),
    "sinh": ("sinh", 8),
    "sqrt": ("sqrt", 8),
    "rsqrt": ("rsqrt", 8),
}
"""Functions of torch, and by how many units in the last place kernels may miss them."""
WIDEST = 20.0
"""Larger arguments of exponentials multiply the error of an f32 argument by themselves."""


PAIRS = {"pow": 6.0, "atan2": 6.0, "copysign": 0.0}
"""Functions of two numbers, and by how much kernels may miss them."""


def check_pairs(count: int) -> int:
    """Functions of two floats, also of zeros, infinities and NaN; gives how many functions."""
    import torch

    odd = [0.0, 1.0, 2.0, 3.0, 0.5, 2.5, torch.inf, 1e-40, 1e38]
    odd = torch.tensor([*odd, *[-x for x in odd], torch.nan])
    ends = torch.cartesian_prod(odd, odd)
    bits = torch.randint(-(2**31), 2**31 - 1, (2, count)).to(torch.int32).view(torch.float32)
    near_one, far = 1 + torch.randn(count) * 1e-3, torch.randn(count) * 20000
    whole = torch.randn(count).mul(5).round()
    x = torch.cat([bits[0], torch.rand(count) * 4, near_one, whole, ends[:, 0]])
    y = torch.cat([bits[1], torch.randn(count) * 20, far, whole.flip(0), ends[:, 1]])
    for name, most in PAIRS.items():
        torch._dynamo.reset()
        function = getattr(torch, name)
        got = torch.compile(lambda x, y, f=function: f(x, y), backend="treadle")(x, y)
        wanted = function(x.double(), y.double())
        near = wanted.float()
        step = (near.abs().nextafter(torch.tensor(torch.inf)) - near.abs()).double()
        is_normal = near.isfinite() & (near.abs() > 2.0**-126)
        missed = ((got.double() - wanted).abs() / step)[is_normal].max().item()
        assert missed <= most, f"{name} is off by {missed} units in the last place"
        is_end = near.isinf() | (near == 0)
        same = (got.isnan() == near.isnan()) & (
            ~is_end | ((got == near) & (got.signbit() == near.signbit()))
        )
        assert same.all(), f"{name} of {x[~same][:4]} and {y[~same][:4]} is {got[~same][:4]}"
    return len(PAIRS)


def check_functions(count: int) -> int:
    """Functions at floats of all sizes, against f64; gives how many functions."""
    import torch

    import treadle.torch  # noqa: F401

    bits = torch.randint(-(2**31), 2**31 - 1, (count,)).to(torch.int32)
    whole = torch.cat([bits.view(torch.float32), torch.randn(count), torch.randn(count) * 4])
    odd = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 1e-40])
    x = torch.cat([whole[whole.abs() < 1e30], odd])
    for name, (said, most) in ULPS.items():
        torch._dynamo.reset()
        given_values = x[(x.abs() < WIDEST) | ~x.isfinite()] if "exp" in name or "h" in name else x
        function = getattr(torch, said)
        got = torch.compile(lambda x, f=function: f(x), backend="treadle")(given_values)
        wanted = function(given_values.double())
        near = wanted.float()
        step = (near.abs().nextafter(torch.tensor(torch.inf)) - near.abs()).double()
        is_normal = near.isfinite() & (near.abs() > 2.0**-126)
        # Devices round the argument of an exponential once more, which its size multiplies.
        room = given_values.double().abs() if name in ("exp", "expm1", "sigmoid") else 0.0
        off = (got.double() - wanted).abs() / step - room
        missed = off[is_normal].max().item()
        assert missed <= most, f"{name} is off by {missed} units in the last place"
        same = got.isnan() == wanted.isnan()
        assert same.all(), f"{name} of {given_values[~same][:4]} is {got[~same][:4]}"
    return len(ULPS) + check_pairs(count)


def check_mixed(more: bool) -> int:
    """Graphs whose rows and columns go in one walk, or more; gives how many kernels did so."""
    import torch
    from torch.nn import functional

    import treadle.torch  # noqa: F401
    from treadle.runtime import triton_kernels
    from treadle.schedule import policy

    usual = policy.POLICIES["balanced"]
    policy.POLICIES["balanced"] = replace(usual, mix_steps=1, mix_rows=1, mix_tallness=1)
    texts: list[str] = []
    written = triton_kernels.write_triton

    def noted(host: Any) -> Any:
        unit = written(host)
        texts.append(unit.text)
        return unit

    triton_kernels.write_triton = noted

    def normed(x: Any, w: Any, b: Any) -> Any:
        return functional.gelu(functional.layer_norm(x, (x.shape[1],), w, b))

    def scaled(x: Any, w: Any, b: Any) -> Any:
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * w + b

    def reduced(x: Any, w: Any, b: Any) -> Any:
        y = x.exp() * w
        return y.sum(1), y.amax(0), (y + b).sum(0), (y - y.mean(1, keepdim=True)).sum(0)

    # Of many rows several chunks are made; 585 have three each, which two at a time do not divide,
    # and of 2113 one is left over.
    few = {normed: ((128, 37),), scaled: ((585, 16),), reduced: ((528, 16),)}
    others = {
        normed: ((192, 48),),
        scaled: ((128, 37), (1040, 16)),
        reduced: ((585, 48), (2113, 8)),
    }
    shapes = others if more else few
    for function, given_shapes in shapes.items():
        for rows, columns in given_shapes:
            torch._dynamo.reset()
            given_values = (torch.randn(rows, columns), torch.randn(columns), torch.randn(columns))
            results = []
            for one in (function, torch.compile(function, backend="treadle")):
                args = [a.double() if one is function else a for a in given_values]
                args = [a.clone().requires_grad_() for a in args]
                out = one(*args)
                outs = list(out) if isinstance(out, tuple) else [out]
                sum((o * 0.01).sin().sum() for o in outs).backward()
                results.append([*outs, *[a.grad for a in args]])
            for wanted, got in zip(*results, strict=True):
                close = {"rtol": 2e-4, "atol": 3e-4}
                torch.testing.assert_close(got, wanted.float(), **close)
    at_a_time = sum(text.count("_in_chunk_b in tl.range") for text in texts)
    assert at_a_time >= 1, "short rows go several at a time"
    return sum(text.count("_in_chunk_i in tl.range") for text in texts) + at_a_time


def check_long_rows() -> int:
    """Softmax of rows that do not fit into registers, with all that is odd in them."""
    import torch

    import treadle.torch  # noqa: F401

    x = torch.randn(160, 17000) * 30
    x[3, 5], x[4, :], x[5, 7], x[6, :9000] = torch.nan, -torch.inf, torch.inf, -torch.inf
    x[7, 8999:], x[8, :] = -torch.inf, -3e38
    functions = (
        lambda x: x.softmax(1),
        lambda x: x.log_softmax(1),
        lambda x: x.logsumexp(1),
    )
    for function in functions:
        torch._dynamo.reset()
        ours = torch.compile(function, backend="treadle")(x)
        torch.testing.assert_close(ours, function(x), equal_nan=True)
    return len(functions) + check_spreads()


def check_spreads() -> int:
    """Means and variances in one walk, far from zero and with a first value far from all others."""
    import torch

    import treadle.torch  # noqa: F401

    rows = torch.randn(160, 17000) * 2 + 1e4
    rows[3, 0], rows[4, :], rows[5, 0], rows[6, 77] = 1e7, 7e3, -3e6, torch.nan
    shapes = ((rows, 1), (rows.t().contiguous(), 0), (torch.randn(8, 24, 57, 33) + 50, (0, 2, 3)))
    for x, along in shapes:
        torch._dynamo.reset()
        both = torch.compile(lambda x, d=along: torch.var_mean(x, d), backend="treadle")(x)
        exact = torch.var_mean(x.double(), along)
        # What is summed up is off by as much as the largest square is of all of them.
        torch.testing.assert_close(both[0].double(), exact[0], rtol=5e-5, atol=1e-3, equal_nan=True)
        torch.testing.assert_close(both[1].double(), exact[1], rtol=1e-6, atol=0, equal_nan=True)
    return len(shapes)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--functions", type=int, default=0)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--large-graphs", action="store_true")
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--more-mixed", action="store_true")
    parser.add_argument("--long-rows", action="store_true")
    parser.add_argument("--operators", action="store_true")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    if asked.device == "cpu":
        assert is_interpreted(), "set TRITON_INTERPRET=1"
    else:
        import torch

        torch.set_default_device(asked.device)
    if asked.functions:
        print("functions", check_functions(asked.functions))
    if asked.operators:
        print("operators", check_operators())
        print("tables", check_row_sums())
    if asked.programs:
        print("programs", check_programs(asked.programs, asked.seed))
        print("adding", check_adding())
    if asked.graphs:
        print("graphs", check_graphs(large=False))
    if asked.large_graphs:
        print("large", check_graphs(large=True))
    if asked.mixed:
        print("mixed", check_mixed(more=False))
    if asked.more_mixed:
        print("mixed", check_mixed(more=True))
    if asked.long_rows:
        print("long", check_long_rows())


if __name__ == "__main__":
    main()
