"""How exact arithmetic must be: the contract between a program and the code made from it.

The interpreter computes exactly: every operation rounds its result once, sums are added in f64 and
rounded once at the end. Code may do so too, always; this says how far from that it may go.

    exact                                   what the interpreter gives, to the bit
    blocked 512, functions 6 ulp, ...       faster code, and by how much it may differ

A front end states the contract, passes keep it or make it tighter. What it allows on given data is
derived by `treadle.testing.error_bound`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

ACCUMULATIONS = ("exact", "blocked", "f32")
"""How sums of floats are added, from the tightest to the loosest."""
DEFAULT_BLOCK = 512
ROUNDED_ONCE = 0.5
"""The error in ulp of a function that is computed in f64 and rounded once."""


@dataclass(frozen=True, slots=True)
class Numerics:
    """What code may do to the values of floats; without arguments, nothing."""

    accumulation: str = "exact"
    """`exact`: sums of floats in f64, rounded once at the end; `blocked`: partial sums in f32 of at
    most `block` additions each, which are then added in f64; `f32`: of any length."""
    block: int = DEFAULT_BLOCK
    """The most additions of a partial sum; only `blocked` has them."""
    function_ulps: float = ROUNDED_ONCE
    """The largest error of a function (exp, erf, tanh, ...) in f32, in ulp of that type."""
    as_result: bool = False
    """A function need only be as exact as the type its value is rounded to next (bf16, fp8)."""
    contraction: bool = False
    """`a * b + c` may be rounded once."""
    reassociation: bool = False
    """A sum may be added in another order."""

    def __post_init__(self) -> None:
        if self.accumulation not in ACCUMULATIONS:
            known = ", ".join(ACCUMULATIONS)
            raise ValueError(f"sums are added in one of {known}, not in '{self.accumulation}'")
        if self.accumulation != "blocked":
            # What nothing reads must not make two contracts differ.
            object.__setattr__(self, "block", DEFAULT_BLOCK)
        if self.block < 1:
            raise ValueError(f"a block of {self.block} additions")
        if not (ROUNDED_ONCE <= self.function_ulps < math.inf):
            raise ValueError(f"an error of {self.function_ulps} ulp, where 0.5 is the least")

    def is_within(self, other: Numerics) -> bool:
        """Whether all that this allows, `other` allows too."""
        return not any(self.looser_than(other))

    def looser_than(self, other: Numerics) -> Iterator[str]:
        """What this allows and `other` does not, in words."""
        mine, theirs = self._longest_partial_sum(), other._longest_partial_sum()
        if mine > theirs:
            yield f"sums were {other._show_sums()}, now {self._show_sums()}"
        if self.function_ulps > other.function_ulps:
            was, now = _number(other.function_ulps), _number(self.function_ulps)
            yield f"functions were within {was} ulp, now {now}"
        for name in ("as_result", "contraction", "reassociation"):
            if getattr(self, name) and not getattr(other, name):
                yield f"{name} was not allowed, now it is"

    def meet(self, other: Numerics) -> Numerics:
        """What both allow."""
        sums = min(self, other, key=Numerics._longest_partial_sum)
        return Numerics(
            sums.accumulation,
            sums.block,
            min(self.function_ulps, other.function_ulps),
            self.as_result and other.as_result,
            self.contraction and other.contraction,
            self.reassociation and other.reassociation,
        )

    @property
    def largest_rounding(self) -> float:
        """By how much sums of f32 of moderate numbers may differ, relative to the largest."""
        if self.accumulation == "exact" or not self.reassociation:
            return 0.0
        return self.block * 2.0**-24

    def _longest_partial_sum(self) -> float:
        """How many additions may be made in f32 before f64 takes over."""
        return {"exact": 0, "blocked": self.block, "f32": math.inf}[self.accumulation]

    def _show_sums(self) -> str:
        return f"blocked {self.block}" if self.accumulation == "blocked" else self.accumulation

    def __str__(self) -> str:
        parts = [self._show_sums()]
        if self.function_ulps != ROUNDED_ONCE:
            parts.append(f"functions {_number(self.function_ulps)} ulp")
        parts += ["as result"] if self.as_result else []
        parts += ["contract"] if self.contraction else []
        parts += ["reassociate"] if self.reassociation else []
        return ", ".join(parts)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


EXACT = Numerics()
"""What the interpreter computes, to the bit."""
TORCH = Numerics(
    "blocked", DEFAULT_BLOCK, 6.0, as_result=True, contraction=True, reassociation=True
)
"""What torch itself promises, or tighter."""
TORCH_ON_GPU = replace(TORCH, function_ulps=8.0)
"""The same on a GPU, where a division in f32 is itself within 2 ulp."""
