"""Fake quantisation in steps that become one loop: rounded to a step of a scale, and back.

    fake_quantize(x, scale, zero, low, high)
    ->   q = round(x / scale) + zero              as a float
         (clamp(q, low, high) - zero) * scale     and whether q was within the limits

A NaN is the lowest number. With a scale for each channel eager mode makes a whole number of 64 bits
of q: there all that has none is the lowest one, infinity too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
LEAST = -(2.0**63)


def _single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _quantised(
    x: Any, scale: Any, zero: Any, low: int, high: int, is_whole: bool = False
) -> tuple[Any, Any]:
    """The numbers and the mask, for a scale and a zero point that are numbers or tensors."""
    if isinstance(scale, float):
        steps = aten.mul.Scalar(x, _single(1.0 / _single(scale)))
        q = aten.add.Scalar(aten.round.default(steps), float(zero))
    else:
        steps = aten.mul.Tensor(x, aten.reciprocal.default(scale))
        zero = aten.to.dtype(zero, torch.float32)
        q = aten.add.Tensor(aten.round.default(steps), zero)
    least = aten.scalar_tensor.default(LEAST, dtype=torch.float32, device=x.device)
    has_place = aten.lt.Scalar(aten.abs.default(q), -LEAST) if is_whole else aten.eq.Tensor(q, q)
    q = aten.where.self(has_place, q, least)
    mask = aten.logical_and.default(aten.ge.Scalar(q, low), aten.le.Scalar(q, high))
    held = aten.clamp.default(q, low, high)
    if isinstance(scale, float):
        return aten.mul.Scalar(aten.sub.Scalar(held, float(zero)), _single(scale)), mask
    return aten.mul.Tensor(aten.sub.Tensor(held, zero), scale), mask


def _is_known(x: Any, scale: Any = None, zero: Any = None) -> bool:
    """Whether a loop gives what eager mode does: floats, and whole zero points, on a CPU."""
    is_plain = x.dtype is torch.float32 and x.device.type == "cpu"
    is_single = scale is None or scale.dtype is torch.float32
    return is_plain and is_single and (zero is None or zero.dtype in (torch.int32, torch.int64))


def _by_numbers(x: Any, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Any:
    if not _is_known(x):
        return NotImplemented
    return _quantised(x, scale, zero_point, quant_min, quant_max)


def _by_tensors(
    x: Any, scale: Any, zero_point: Any, enabled: Any, quant_min: int, quant_max: int
) -> Any:
    if not _is_known(x, scale, zero_point) or scale.numel() != 1 or zero_point.numel() != 1:
        return NotImplemented
    one, other = aten.reshape.default(scale, []), aten.reshape.default(zero_point, [])
    found, mask = _quantised(x, one, other, quant_min, quant_max)
    is_on = aten.ne.Scalar(aten.reshape.default(enabled, []), 0)
    off = aten.logical_not.default(is_on)
    return aten.where.self(is_on, found, x), aten.logical_or.default(mask, off)


def _by_channels(
    x: Any, scale: Any, zero_point: Any, axis: int, quant_min: int, quant_max: int
) -> Any:
    if not _is_known(x, scale, zero_point):
        return NotImplemented
    sizes = [1] * x.dim()
    sizes[axis] = -1
    one, other = aten.reshape.default(scale, sizes), aten.reshape.default(zero_point, sizes)
    return _quantised(x, one, other, quant_min, quant_max, is_whole=True)


FAKE_QUANTISE: dict[Any, Callable[..., Any]] = {
    aten.fake_quantize_per_tensor_affine_cachemask.default: _by_numbers,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _by_tensors,
    aten.fake_quantize_per_channel_affine_cachemask.default: _by_channels,
}
