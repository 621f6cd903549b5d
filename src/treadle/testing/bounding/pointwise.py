"""Errors of pointwise operations, one table row each.

    ARITHMETIC   the unrounded result, and how far it can be from it
    DECISIONS    questions with a yes or no: an answer that could be the other one has no bound
    OWN          rows that bring types together themselves

What is whole has no small errors: a whole number or bool is certain, or has no bound at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from treadle.ir.interp.arithmetic import floor_divide, relu, remainder, sign, truncate_divide
from treadle.ir.interp.dtypes import Array, convert
from treadle.ir.numerics import Numerics
from treadle.ir.ops import POINTWISE
from treadle.ir.types import DType
from treadle.ir.typing import ValueType, as_float, promote_all
from treadle.testing.bounding.functions import MOVED, VALUES, at_corners, own_error
from treadle.testing.bounding.rounding import (
    Deviation,
    converted,
    ends,
    farthest,
    rounded,
    ulp,
    undecided,
)

Rule: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], "tuple[Array, Array]"]
Decision: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], Array]


@dataclass(frozen=True)
class Pointwise:
    """One pointwise operation at work: operands, their types and errors, and what came out."""

    name: str
    values: Sequence[Array]
    types: Sequence[DType]
    spreads: Sequence[Deviation]
    result: ValueType
    found: Array | tuple[Array, ...]
    numerics: Numerics
    narrow: DType | None


# -------------------------------------------------------------------------------- arithmetic


def _monotone(function: Callable[..., Array]) -> Rule:
    moved = at_corners(function)
    return lambda xs, errors: (np.asarray(function(*xs)), moved(xs, errors))


def _added(function: Callable[..., Array]) -> Rule:
    """Errors add up, whatever the values."""
    return lambda xs, errors: (np.asarray(function(*xs)), sum(errors[1:], errors[0]))


def _fma(xs: Sequence[Array], errors: Sequence[Array]) -> tuple[Array, Array]:
    product, moved = _monotone(np.multiply)(xs[:2], errors[:2])
    wide = product + xs[2]
    # The product of two f64 is not exact here, nor need it be where no error comes in.
    return wide, np.where(moved + errors[2] > 0, moved + errors[2] + ulp(product, DType.F64), 0.0)


def _not_by_zero(function: Callable[..., Array]) -> Rule:
    """A quotient: monotone as long as the divisor keeps its sign."""
    moved = at_corners(function)

    def rule(xs: Sequence[Array], errors: Sequence[Array]) -> tuple[Array, Array]:
        by, of = xs[-1], errors[-1]
        return function(*xs), np.where((np.abs(by) <= of) & (of > 0), np.inf, moved(xs, errors))

    return rule


def _left_over(function: Callable[..., Array], divide: Callable[..., Array]) -> Rule:
    """A remainder: bounded where the whole quotient is certain."""
    quotient = _not_by_zero(divide)

    def rule(xs: Sequence[Array], errors: Sequence[Array]) -> tuple[Array, Array]:
        (a, b), (of_a, of_b) = xs, errors
        # The quotient is rounded here as well, so a little more than the errors must be certain.
        room = [
            e + np.where(e > 0, 4 * ulp(x, DType.F64), 0.0) for x, e in zip(xs, errors, strict=True)
        ]
        times, moves = quotient(xs, room)
        error = np.where(moves > 0, np.inf, of_a + np.where(of_b > 0, np.abs(times) * of_b, 0.0))
        return function(a, b), np.where(of_a + of_b > 0, error, 0.0)

    return rule


def _square(xs: Sequence[Array], errors: Sequence[Array]) -> tuple[Array, Array]:
    low, high = ends(xs[0], errors[0])
    wide = xs[0] * xs[0]
    return wide, farthest(wide, low * low, high * high)


def _signed(xs: Sequence[Array], errors: Sequence[Array]) -> tuple[Array, Array]:
    """copysign: a sign that is not certain may turn the value round."""
    may_turn = (np.abs(xs[1]) <= errors[1]) & (errors[1] > 0)
    return np.copysign(*xs), errors[0] + np.where(may_turn, 2 * np.abs(xs[0]), 0.0)


def _whole_only(xs: Sequence[Array], errors: Sequence[Array]) -> tuple[Array, Array]:
    return xs[0], undecided(sum(errors, np.zeros(())) > 0)


def _function(name: str) -> Rule:
    return lambda xs, errors: (np.asarray(VALUES[name](*xs)), MOVED[name](xs, errors))


ARITHMETIC: Mapping[str, Rule] = {
    "identity": _added(lambda x: x),
    "add": _added(np.add),
    "sub": _added(np.subtract),
    "mul": _monotone(np.multiply),
    "fma": _fma,
    "maximum": _monotone(np.maximum),
    "minimum": _monotone(np.minimum),
    "neg": _added(np.negative),
    "abs": _added(np.absolute),
    "square": _square,
    "relu": _monotone(relu),
    "sign": _monotone(sign),
    "truediv": _not_by_zero(np.divide),
    "int_truediv": _not_by_zero(np.divide),
    "floordiv": _not_by_zero(floor_divide),
    "truncdiv": _not_by_zero(truncate_divide),
    "fmod": _left_over(np.fmod, truncate_divide),
    "remainder": _left_over(remainder, floor_divide),
    "reciprocal": _not_by_zero(np.reciprocal),
    "floor": _monotone(np.floor),
    "ceil": _monotone(np.ceil),
    "trunc": _monotone(np.trunc),
    "round": _monotone(np.rint),
    "sqrt": _monotone(np.sqrt),
    "copysign": _signed,
    **dict.fromkeys(
        ("bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "gcd"), _whole_only
    ),
    **{name: _function(name) for name in MOVED if name != "ldexp"},
}

# --------------------------------------------------------------------------------- decisions


def _compared(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    total = errors[0] + errors[1]
    apart = np.abs(xs[0] - xs[1])
    return undecided((total > 0) & ~(apart > total) & ~(np.isnan(xs[0]) | np.isnan(xs[1])))


def _known(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    """NaN and infinity are values of their own: no finite error makes one of a number."""
    return undecided(np.isinf(errors[0]))


def _near_zero(x: Array, error: Array) -> Array:
    return (error > 0) & ~(np.abs(x) > error)


def _zero(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    return undecided(_near_zero(xs[0], errors[0]))


def _either(decides: bool) -> Decision:
    """And, or: one operand that surely is `decides` decides alone."""

    def decision(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
        open_ = [_near_zero(x, e) for x, e in zip(xs, errors, strict=True)]
        certain = [((x != 0) == decides) & ~o for x, o in zip(xs, open_, strict=True)]
        return undecided((open_[0] | open_[1]) & ~(certain[0] | certain[1]))

    return decision


def _both(xs: Sequence[Array], errors: Sequence[Array]) -> Array:
    return undecided(_near_zero(xs[0], errors[0]) | _near_zero(xs[1], errors[1]))


DECISIONS: Mapping[str, Decision] = {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _compared),
    **dict.fromkeys(("isnan", "isinf", "isfinite"), _known),
    "signbit": _zero,
    "logical_not": _zero,
    "logical_and": _either(False),
    "logical_or": _either(True),
    "logical_xor": _both,
    "bitwise_and": _either(False),
    "bitwise_or": _both,
    "bitwise_xor": _both,
}

# ------------------------------------------------------------------------------ own conversions


def _where(p: Pointwise) -> Deviation:
    """What is chosen; where the choice is open, what either would give.

    A product that is chosen may still go into a sum as it is: compilers move the choice behind it.
    """
    assert isinstance(p.result, DType)
    assert not isinstance(p.found, tuple), "it has one result"
    value = p.found.astype(np.float64)
    choice = p.values[0].astype(bool)
    parts, exact = [], []
    for k, chosen in ((1, choice), (2, ~choice)):
        new, error = converted(p.values[k], p.spreads[k].error, p.result)
        apart = farthest(value, new.astype(np.float64))
        is_open = np.isinf(p.spreads[0].error)
        parts.append(np.where(chosen, error, np.where(is_open, apart + error, 0.0)))
        whole = p.spreads[k].unrounded if p.types[k] is p.result else error
        exact.append(np.where(chosen, whole, np.where(is_open, apart + whole, 0.0)))
    if not p.result.is_float:
        return Deviation.of(np.maximum(*[undecided(part > 0) for part in parts]))
    return Deviation(np.maximum(*parts), np.maximum(*exact))


def _nextafter(p: Pointwise) -> Deviation:
    assert isinstance(p.result, DType)
    assert not isinstance(p.found, tuple), "it has one result"
    start, error = converted(p.values[0], p.spreads[0].error, p.result)
    total = error + p.spreads[1].error
    step = 2 * ulp(np.abs(start.astype(np.float64)) + error, p.result)
    return Deviation.of(np.where(total > 0, error + 2 * step, 0.0))


def _ldexp(p: Pointwise) -> Deviation:
    assert isinstance(p.result, DType)
    assert not isinstance(p.found, tuple), "it has one result"
    xs = [v.astype(np.float64) for v in p.values]
    errors = [s.error for s in p.spreads]
    wide = VALUES["ldexp"](*xs)
    own = own_error("ldexp", wide, p.result, p.numerics, p.narrow)
    own = np.where(xs[1] == np.trunc(xs[1]), 0.0, own)
    return Deviation.of(rounded(wide, MOVED["ldexp"](xs, errors) + own, p.found, p.result))


def _frexp(p: Pointwise) -> tuple[Deviation, ...]:
    assert isinstance(p.found, tuple)
    x, error = p.values[0].astype(np.float64), p.spreads[0].error
    low, high = (np.frexp(side)[1] for side in ends(x, error))
    exponent = p.found[1]
    open_ = (error > 0) & ((low != exponent) | (high != exponent))
    scaled = np.where(error > 0, np.ldexp(error, -exponent), 0.0)
    mantissa = rounded(p.found[0].astype(np.float64), scaled, p.found[0], p.types[0])
    return Deviation.of(np.where(open_, np.inf, mantissa)), Deviation.of(undecided(open_))


OWN: Mapping[str, Callable[[Pointwise], Deviation | tuple[Deviation, ...]]] = {
    "where": _where,
    "nextafter": _nextafter,
    "ldexp": _ldexp,
    "frexp": _frexp,
}

# --------------------------------------------------------------------------------------- all


def pointwise_spread(p: Pointwise) -> Deviation | tuple[Deviation, ...]:
    """How far code can be from what a pointwise operation gave."""
    if p.name in OWN:
        return OWN[p.name](p)
    assert isinstance(p.result, DType)
    assert not isinstance(p.found, tuple), "it has one result"
    common = promote_all(list(p.types))
    if POINTWISE[p.name].result == "float":
        common = as_float(common)
    xs = [convert(v, common).astype(np.float64) for v in p.values]
    sums = p.name in ("add", "sub") and p.numerics.contraction
    errors = [s.unrounded if sums else s.error for s in p.spreads]
    if p.name in DECISIONS:
        if not _is_bitwise_of_numbers(p):
            return Deviation.of(np.broadcast_to(DECISIONS[p.name](xs, errors), p.found.shape))
        errors = [np.asarray(sum(errors, np.zeros(())))]
    if not p.result.is_float:
        open_ = undecided(sum(errors, np.zeros(())) > 0)
        return Deviation.of(np.broadcast_to(open_, p.found.shape))
    wide, moved = ARITHMETIC[p.name](xs, errors)
    error = moved + own_error(p.name, wide, p.result, p.numerics, p.narrow)
    error = np.where(np.isinf(sum(errors, np.zeros(()))), np.inf, error)
    return _spread(p, wide, error, p.found, p.result)


def _is_bitwise_of_numbers(p: Pointwise) -> bool:
    return p.name.startswith("bitwise") and p.result is not DType.BOOL


CARRYING = ("neg", "identity", "abs")
"""Through these a product may reach a sum unrounded: of a square compilers drop the `abs`."""


def _spread(p: Pointwise, wide: Array, error: Array, found: Array, result: DType) -> Deviation:
    """With contraction a product may go into a sum as it is, not rounded."""
    bound = rounded(wide, error, found, result)
    if p.numerics.contraction and p.name == "add" and not result.is_low_precision:
        # x + x is a product by two for a compiler, which may go into a sum as it is.
        doubled = (p.values[0] == p.values[1]) & np.isfinite(p.values[0]) & ~np.isfinite(found)
        return Deviation(bound, np.maximum(bound, undecided(doubled)))
    if not p.numerics.contraction or p.name not in ("mul", "square", *CARRYING):
        return Deviation.of(bound)
    if result.is_low_precision:
        return Deviation.of(bound)
    if p.name in CARRYING:
        return Deviation(bound, np.broadcast_to(p.spreads[0].unrounded, found.shape))
    apart = error + farthest(found.astype(np.float64), wide)
    if result is DType.F64:
        apart = apart + 0.5 * ulp(wide, result)  # here the product itself was rounded
    return Deviation(bound, np.maximum(bound, np.where(np.isfinite(wide), apart, bound)))
