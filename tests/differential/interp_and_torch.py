"""Carries arrays between numpy and torch, runs single operations, compares to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from treadle.ir.build import ProgramBuilder
from treadle.ir.interp import run
from treadle.ir.interp.dtypes import NUMPY_TYPES, convert
from treadle.ir.types import DType

BITS = {1: (np.uint8, torch.uint8), 2: (np.int16, torch.int16)}
EXOTIC = ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def torch_type(dtype: DType) -> torch.dtype:
    return getattr(torch, dtype.torch_name)


def to_torch(array: np.ndarray) -> torch.Tensor:
    array = np.ascontiguousarray(array)
    if array.dtype.name not in EXOTIC:
        return torch.from_numpy(array.copy())
    raw, _ = BITS[array.dtype.itemsize]
    return torch.from_numpy(array.view(raw).copy()).view(getattr(torch, array.dtype.name))


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    name = str(tensor.dtype).removeprefix("torch.")
    tensor = tensor.contiguous()
    if name not in EXOTIC:
        return tensor.numpy()
    _, raw = BITS[tensor.element_size()]
    wanted = next(n for d, n in NUMPY_TYPES.items() if d.torch_name == name)
    return tensor.view(raw).numpy().view(wanted)


def interpret(op: str, operands: Sequence[np.ndarray], types: Sequence[DType]) -> list[np.ndarray]:
    """One pointwise operation over operands of one shape: all its results."""
    shape = operands[0].shape
    b = ProgramBuilder("one")
    buffers = [b.input(f"x{k}", t, shape) for k, t in enumerate(types)]
    results = []
    with b.loop("it", shape) as k:
        value = k.op(op, *[k.load(x, *k.vars) for x in buffers])
        found = k.types.values[value.number]
        parts = list(value) if isinstance(found, tuple) else [value]
        for n, part in enumerate(parts):
            results.append(b.buffer(f"y{n}", part.dtype, shape))
            k.store(results[-1], k.vars, part)
    b.returns(*results)
    inputs = {f"x{k}": x for k, x in enumerate(operands)}
    return run(b.build(), inputs).outputs


def of_type(values: Sequence[float] | np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers as an array of the element type; what it cannot hold is left out."""
    if dtype.is_float:
        return convert(np.asarray(values, np.float64), dtype)
    limits = np.iinfo(NUMPY_TYPES[dtype]) if dtype.is_int else None
    low, high = (limits.min, limits.max) if limits else (0, 1)
    return np.array([int(v) for v in values if low <= v <= high], NUMPY_TYPES[dtype])


def ordered(array: np.ndarray) -> np.ndarray:
    """Floats as whole numbers whose difference counts the values between them (-0 is 0)."""
    width = array.dtype.itemsize
    bits = array.view(np.dtype(f"i{width}")).astype(np.int64)
    least = np.int64(-(1 << (8 * width - 1)))
    return np.where(bits < 0, least - bits, bits)


def is_nan(array: np.ndarray) -> np.ndarray:
    return array != array


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many values lie between a and b; 0 for two NaNs, huge for one."""
    assert a.dtype == b.dtype, f"{a.dtype} is not {b.dtype}"
    if a.dtype.kind in "biu":
        return np.where(a != b, np.inf, 0.0)
    low, high = np.minimum(ordered(a), ordered(b)), np.maximum(ordered(a), ordered(b))
    far = (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64)
    both, one = is_nan(a) & is_nan(b), is_nan(a) != is_nan(b)
    return np.where(both, 0.0, np.where(one, np.inf, far))


def same_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where a and b agree, the sign of zero included; any NaN equals any other."""
    equal = distance(a, b) == 0
    if a.dtype.kind in "biu":
        return equal
    zeros = (a == 0) & (b == 0)
    return equal & ~(zeros & (np.signbit(a) != np.signbit(b)))
