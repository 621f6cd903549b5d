"""Functions of generated Triton keep the errors that their texts state.

They are run on arrays by a stand-in for Triton's language, whose approximate instructions are as
far off as a GPU's may be, to either side.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("scipy")

from treadle.codegen.triton.functions import source_of  # noqa: E402
from treadle.codegen.triton.ops import SHORT  # noqa: E402
from treadle.ir.interp.special import WIDE as SPECIAL  # noqa: E402

WIDE = {**SPECIAL, "sqrt": np.sqrt}
RSQRT_OFF, EXP2_OFF = 2.0**-22.9, 2.0**-22.5
"""How far the instructions of an NVIDIA GPU are off, relative to the value (PTX 8)."""
ULP = 2.0**-23
HALF_UNIT_OF_F16 = 2.0**-12
SMALLEST, LARGEST = 2.0**-126, 3.4e38


@dataclass
class Language:
    """What the functions use of `triton.language`, on arrays of f32."""

    rsqrt_side: int
    exp2_side: int
    float64 = np.dtype(np.float64)

    def rsqrt(self, x: Any) -> Any:
        exact = 1.0 / np.sqrt(_flushed(x).astype(np.float64))
        return (exact * (1.0 + self.rsqrt_side * RSQRT_OFF)).astype(np.float32)

    def sqrt(self, x: Any) -> Any:
        exact = np.sqrt(_flushed(x).astype(np.float64))
        return (exact * (1.0 + self.rsqrt_side * RSQRT_OFF)).astype(np.float32)

    def exp2(self, x: Any) -> Any:
        exact = np.exp2(np.asarray(x, np.float32).astype(np.float64))
        found = (exact * (1.0 + self.exp2_side * EXP2_OFF)).astype(np.float32)
        return np.where(np.abs(found) < SMALLEST, np.float32(0), found)

    abs, where = staticmethod(np.abs), staticmethod(np.where)
    minimum, maximum = staticmethod(np.fmin), staticmethod(np.fmax)


def _flushed(x: Any) -> Any:
    """What an approximate root sees of its argument: the smallest floats are zero."""
    return np.where(np.abs(x) < SMALLEST, np.copysign(np.float32(0), x), x)


def compiled(text: str, language: Language) -> Callable[[Any], Any]:
    """An expression of `x`, with the functions of ours that it calls."""
    names = re.findall(r"\btr_\w+", text)
    source = source_of(names).replace("@triton.jit\n", "")
    # Constants of Triton take the type of what they meet.
    scope: dict[str, Any] = {"tl": language, "triton": SimpleNamespace()}
    exec(source, scope)
    return lambda x: eval(text, {**scope, "x": x})


def all_of(kind: str) -> Any:
    """All finite values of a type of 16 bits, or many of f32 at all sizes, as f32."""
    if kind == "f16":
        every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    else:
        step = 1 if kind == "bf16" else 997
        low = 0 if kind == "bf16" else 16
        bits = np.arange(0, 1 << (16 + low), step, dtype=np.uint64) << (16 - low)
        every = bits.astype(np.uint32).view(np.float32)
    return every[np.isfinite(every)]


def largest_error(text: str, name: str, x: Any, floor: float = 0.0) -> float:
    """The largest error relative to the exact value, less what may be off in any case."""
    with np.errstate(all="ignore"):
        wide = WIDE[name](x.astype(np.float64))
        worst = 0.0
        for sides in product((-1, 0, 1), repeat=2):
            found = compiled(text, Language(*sides))(x).astype(np.float64)
            both = np.isnan(found) == np.isnan(wide)
            assert both.all(), f"{text} of {x[~both][0]!r} is no number, or should not be one"
            counts = (np.abs(wide) >= SMALLEST) & (np.abs(wide) <= LARGEST)
            error = np.maximum(np.abs(found - wide)[counts] - floor, 0) / np.abs(wide[counts])
            worst = max(worst, float(error.max()))
            assert np.array_equal(found[wide > LARGEST], np.full((wide > LARGEST).sum(), np.inf))
    return worst


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", ["erf", "tanh", "gelu_tilt"])
def test_a_function_of_f32_is_within_eight_ulp(name: str, kind: str) -> None:
    assert largest_error(f"tr_{name}(x)", name, all_of(kind)) <= 8 * ULP


def test_erf_is_one_far_out() -> None:
    # What is left beside it may be multiplied by any number, in a gelu that a user wrote.
    x = np.array([3.9301, 5, 1e3, 3.4e38, np.inf], np.float32)
    with np.errstate(all="ignore"):
        for sides in product((-1, 0, 1), repeat=2):
            both = compiled("tr_erf(x)", Language(*sides))
            assert (both(x) == 1).all()
            assert (both(-x) == -1).all()


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", ["sqrt", "rsqrt"])
def test_roots_are_within_two_ulp_of_the_smallest_floats_too(name: str, kind: str) -> None:
    every = all_of(kind)
    x = np.append(every[every >= 0], np.float32([1e-45, 1e-40, 1.1e-38, 0.0, -0.0, np.inf]))
    assert largest_error(f"tr_{name}(x)", name, x) <= 2 * ULP
    with np.errstate(all="ignore"):
        ends = compiled(f"tr_{name}(x)", Language(0, 0))(np.float32([0.0, -0.0, np.inf, -1e-40]))
        wanted = WIDE[name](np.array([0.0, -0.0, np.inf, -1e-40]))
    np.testing.assert_array_equal(ends, wanted)
    np.testing.assert_array_equal(np.signbit(ends[:3]), np.signbit(wanted[:3]))


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_sigmoid_is_within_five_ulp_and_one_for_each_unit_of_the_argument(kind: str) -> None:
    x = all_of(kind)
    assert largest_error("tr_sigmoid(x)", "sigmoid", x[np.abs(x) <= 1]) <= 5 * ULP
    for most in (4, 20, 87):
        assert largest_error("tr_sigmoid(x)", "sigmoid", x[np.abs(x) <= most]) <= (5 + most) * ULP


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", ["gelu_gate", "gelu_slope"])
def test_what_gelu_is_made_of_is_off_by_less_than_its_text_says(name: str, kind: str) -> None:
    x = all_of(kind)
    assert largest_error(f"tr_{name}(x)", name, x, floor=5e-7) == 0.0
    # Another one is not within that: the check can fail.
    assert largest_error(f"tr_{name}(x * 1.001)", name, x[np.abs(x) < 9], floor=5e-7) > 0.0


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", sorted(SHORT))
def test_a_short_form_is_within_half_a_unit_of_f16_for_all_its_arguments(
    name: str, kind: str
) -> None:
    x = all_of(kind)
    text = SHORT[name].format(a="x")
    assert largest_error(text, name, x) <= 0.3 * HALF_UNIT_OF_F16
    assert largest_error(SHORT[name].format(a="(x * 1.001)"), name, x) > HALF_UNIT_OF_F16
