"""What is rounded to 16 bits next is written in a shorter form, where numerics allow it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treadle.codegen.lower import lower
from treadle.codegen.triton.unit import write_triton
from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.numerics import TORCH_ON_GPU, Numerics
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES

GPU = "cuda:0"
SHORT_EXP = "tl.exp2(v0 * 1.4426950408889634)"


def written(name: str, dtype: str, *more: float, numerics: Numerics = TORCH_ON_GPU) -> str:
    """The text of a kernel that stores a function of an f32 in a type."""
    b = ProgramBuilder("one", numerics=numerics)
    x = b.input("x", "f32", [4096], device=GPU)
    y = b.output("y", dtype, [4096], device=GPU)
    with b.loop("f", [4096], device=GPU) as k:
        (i,) = k.vars
        value = k.load(x, i)
        value = k.op(name, value, *[k.constant(c, "f32") for c in more])
        k.store(y, i, value.to(dtype) if dtype != "f32" else value)
    built = run_pipeline(b.build(), Ctx(Options(), MACHINES, Journal()), KERNELS)
    ((source,),) = write_triton(lower(built)).kernels
    return source.text


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_function_whose_value_is_rounded_next_is_short(dtype: str) -> None:
    assert SHORT_EXP in written("exp", dtype)
    assert "tr_tanh_short(v0)" in written("tanh", dtype)
    assert repr(1.0 / 3.0) in written("truediv", dtype, 3.0)


def test_a_function_of_f32_should_not_be_short() -> None:
    assert "tl.exp(v0)" in written("exp", "f32")
    assert "tr_tanh(v0)" in written("tanh", "f32")
    assert "v0 / v1" in written("truediv", "f32", 3.0)


def test_a_function_should_not_be_short_where_numerics_ask_for_more() -> None:
    strict = replace(TORCH_ON_GPU, as_result=False)
    assert "tl.exp(v0)" in written("exp", "bf16", numerics=strict)
    assert "v0 / v1" in written("truediv", "bf16", 3.0, numerics=strict)


@pytest.mark.parametrize(("by", "inverse"), [(8.0, "0.125"), (-0.5, "-2.0")])
def test_a_quotient_by_a_power_of_two_is_a_product(by: float, inverse: str) -> None:
    assert f"v0 * {inverse}" in written("truediv", "f32", by)


def test_a_quotient_by_what_has_no_inverse_should_not_be_a_product() -> None:
    assert "v0 / v1" in written("truediv", "bf16", 0.0)
    assert "v0 / v1" in written("truediv", "bf16", 1e38)
