"""Stores in C, plain and combining.

Sequential loops need no atomic instructions. Sums and products of narrow floats would be rounded
at every step; they are held in a wider shadow of the storage for the time of the loops and rounded
once: in double, as the interpreter does, or in float where numerics allow sums in it. Other types
combine where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping

from treadle.codegen.c.ops import native
from treadle.codegen.c.types import converted, held, loaded, stored
from treadle.ir.types import DType

COMBINE: Mapping[str, str] = {
    "atomic_add": "add",
    "atomic_mul": "mul",
    "atomic_min": "minimum",
    "atomic_max": "maximum",
    "atomic_and": "bitwise_and",
    "atomic_or": "bitwise_or",
    "atomic_xor": "bitwise_xor",
}
"""The operation of the table behind every mode that combines."""
IN_SHADOW = frozenset({"atomic_add", "atomic_mul", "atomic_min", "atomic_max"})
"""Modes that combine in a wider shadow just as well."""
BITWISE = frozenset({"atomic_and", "atomic_or", "atomic_xor"})


def wants_shadow(mode: str, dtype: DType) -> bool:
    """Whether combining step by step would round at every step."""
    return mode in ("atomic_add", "atomic_mul") and dtype.is_low_precision


def store_line(mode: str, dtype: DType, element: str, value: str) -> str:
    """The statement that stores `value`, already of the buffer's type, into `element`."""
    if mode == "plain":
        return f"{element} = {stored(dtype, value)};"
    old = loaded(dtype, element)
    if dtype is DType.F32:
        # A double holds a sum or product of two floats so well that rounding it twice is rounding
        # it once: float arithmetic gives the same, and twice as much of it fits into a vector.
        return f"{element} = {native(COMBINE[mode], [old, value], dtype)};"
    if dtype.is_float:
        total = native(COMBINE[mode], [f"(double){old}", f"(double){value}"], DType.F64)
        return f"{element} = {stored(dtype, converted(f'({total})', DType.F64, dtype))};"
    return f"{element} = {native(COMBINE[mode], [old, value], dtype)};"


def shadow_line(mode: str, element: str, value: str, shadow: DType) -> str:
    """The statement that combines `value` with an element of the shadow."""
    return f"{element} = {native(COMBINE[mode], [element, f'({held(shadow)}){value}'], shadow)};"


def shadow_copies(
    dtype: DType, pointer: str, name: str, count: str, shadow: DType
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The loops that fill the shadow before, and write it back after.

    What was NaN and is NaN keeps its bits: they may be half of a number that nothing touched.
    """
    head = ("#pragma omp simd", f"for (int64_t q = 0; q < {count}; ++q)")
    back = stored(dtype, converted(f"{name}[q]", shadow, dtype))
    old = loaded(dtype, f"{pointer}[q]")
    is_number = f"{name}[q] == {name}[q] || {old} == {old}"
    return (
        (*head, f"    {name}[q] = {loaded(dtype, f'{pointer}[q]')};"),
        (*head, f"    {pointer}[q] = {is_number} ? {back} : {pointer}[q];"),
    )
