"""Element types as numpy types, and conversions between them, exact to the bit.

Conversions follow torch's casts on x86:

    to bool         x != 0, so NaN is true
    float to int    truncated towards zero as int64, then wrapped to the width asked for; NaN and
                    what does not fit int64 become the smallest int64 (so 0 in narrower types)
    float to u64    the same, but 2**63 up to 2**64 is exact, and what lies above becomes 0
    int to int      wrapped
    to f32, f64     rounded to nearest even
    to f16, bf16, fp8   first to f32, then rounded to nearest even; too large becomes infinity,
                    except in f8e4m3fn, which has none: there it becomes the largest value, 448
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from treadle.ir.types import DType

Array: TypeAlias = npt.NDArray[Any]

NUMPY_TYPES: Mapping[DType, np.dtype[Any]] = {
    DType.BOOL: np.dtype(np.bool_),
    DType.I8: np.dtype(np.int8),
    DType.I16: np.dtype(np.int16),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.U8: np.dtype(np.uint8),
    DType.U16: np.dtype(np.uint16),
    DType.U32: np.dtype(np.uint32),
    DType.U64: np.dtype(np.uint64),
    DType.F8E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.F8E5M2: np.dtype(ml_dtypes.float8_e5m2),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
}
_BY_NUMPY: Mapping[np.dtype[Any], DType] = {n: d for d, n in NUMPY_TYPES.items()}

F8E4M3_LARGEST = 448.0
POISON_BYTE = 0x7E
_INT64_LIMIT = 2.0**63
_INT64_SMALLEST = np.int64(-(2**63))


def dtype_of(array: Array) -> DType | None:
    """The element type of a numpy array; None if Treadle has no such type."""
    return _BY_NUMPY.get(array.dtype)


def compute_type(dtype: DType) -> np.dtype[Any]:
    """The numpy type arithmetic of `dtype` is done in: f32 for the narrow floats."""
    return NUMPY_TYPES[DType.F32 if dtype.is_low_precision else dtype]


def widened(array: Array, dtype: DType) -> Array:
    """Values of type `dtype` in the type their arithmetic is done in; always exact."""
    return array.astype(compute_type(dtype), copy=False)


def convert(array: Array, to: DType) -> Array:
    """`array` converted to another element type by the rules above."""
    source, target = array.dtype, NUMPY_TYPES[to]
    if source == target:
        return array
    if to is DType.BOOL:
        return np.asarray(array != np.zeros((), source))
    is_float = source not in _BY_NUMPY or _BY_NUMPY[source].is_float
    if not is_float and not to.is_low_precision:
        return array.astype(target)
    if to.is_int:
        return _whole(array.astype(np.float64), target)
    if to.is_low_precision:
        return _narrowed(array.astype(np.float32, copy=False), to)
    return array.astype(target)


def _narrowed(array: Array, to: DType) -> Array:
    if to is DType.F8E4M3:
        # Clipping before rounding is the same as after it, and keeps NaN.
        array = np.clip(array, np.float32(-F8E4M3_LARGEST), np.float32(F8E4M3_LARGEST))
    return array.astype(NUMPY_TYPES[to])


def _whole(array: Array, target: np.dtype[Any]) -> Array:
    fits = np.abs(array) < _INT64_LIMIT  # false for NaN
    whole = np.where(fits, array, 0.0).astype(np.int64)
    result = np.where(fits, whole, _INT64_SMALLEST).astype(target)
    if target == NUMPY_TYPES[DType.U64]:
        upper = (array >= _INT64_LIMIT) & (array < 2 * _INT64_LIMIT)
        exact = np.where(upper, array, 0.0).astype(np.uint64)
        result = np.where(upper, exact, np.where(array >= 2 * _INT64_LIMIT, np.uint64(0), result))
    return result


def scalar(value: object, dtype: DType) -> Array:
    """A literal as an array of no dimensions; whole numbers wrap, text such as "inf" is read."""
    if isinstance(value, str):
        value = float(value)
    if isinstance(value, int) and dtype.is_int:
        value = int(value) & ((1 << dtype.bits) - 1)
        unsigned = NUMPY_TYPES[DType[f"U{dtype.bits}"]]
        return np.array(value, unsigned).view(NUMPY_TYPES[dtype])
    if isinstance(value, int):
        value = float(value)
    assert isinstance(value, float), f"{value!r} is no number"
    return convert(np.array(value, np.float64), dtype)


def poison(dtype: DType) -> Array:
    """What uninitialised memory holds: NaN, true, or a pattern nobody computes by chance."""
    if dtype.is_float:
        return scalar(float("nan"), dtype)
    if dtype is DType.BOOL:
        return np.array(True)
    pattern = bytes([POISON_BYTE]) * dtype.itemsize
    return np.frombuffer(pattern, NUMPY_TYPES[dtype])[0:1].reshape(())


def smallest(dtype: DType) -> Array:
    """The value no other is below: minus infinity, the least integer, false."""
    if dtype is DType.BOOL:
        return np.array(False)
    if dtype.is_int:
        return np.array(np.iinfo(NUMPY_TYPES[dtype]).min, NUMPY_TYPES[dtype])
    return scalar(float("-inf"), dtype)


def largest(dtype: DType) -> Array:
    """The value no other is above: infinity, the greatest integer, true."""
    if dtype is DType.BOOL:
        return np.array(True)
    if dtype.is_int:
        return np.array(np.iinfo(NUMPY_TYPES[dtype]).max, NUMPY_TYPES[dtype])
    return scalar(float("inf"), dtype)
