"""Which ATen operators torch takes apart before we see the graph.

torch's table for core ATen, plus operators whose decomposition is made of loops that fuse well,
less everything we lower natively and what is faster as one library call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from treadle.frontends.torch import compat
from treadle.frontends.torch.capture.fake_quantise import FAKE_QUANTISE
from treadle.frontends.torch.capture.own_steps import OwnSteps
from treadle.frontends.torch.lowering.table import TABLE

ALSO = (
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update_functional", "_batch_norm_no_update", "batch_norm_backward",
    "elu", "leaky_relu", "hardtanh", "linalg_vector_norm", "dist", "lift", "narrow_copy",
    "permute_copy", "view_copy", "unbind_copy", "_to_copy", "angle", "lcm", "addmv",
    "grid_sampler_2d", "rrelu_with_noise_backward", "tril_indices", "triu_indices",
)  # fmt: skip
NOT = (
    # Its backward stays one call, so the forward must too: they share what is saved.
    "_scaled_dot_product_flash_attention_for_cpu",
    # Random numbers must be drawn as eager draws them.
    "bernoulli", "uniform", "normal", "exponential", "geometric", "cauchy", "log_normal",
    "native_dropout", "rand_like", "randn_like", "randint", "randint_like",
)  # fmt: skip


aten = torch.ops.aten


def _zero(x: Any) -> Any:
    return aten.full_like.default(x, 0)


def _roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    form = suggest_memory_format(x)
    # The step of a dimension of one element can be anything, and that torch's guess depends on.
    is_vague = any(isinstance(n, int) and n == 1 for n in x.shape[2:])
    if not dims or is_vague or form is torch.contiguous_format:
        return NotImplemented
    dense = aten.clone.default(x, memory_format=torch.contiguous_format)
    return aten.clone.default(aten.roll.default(dense, shifts, dims), memory_format=form)


def _index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    number = aten.scalar_tensor.default(value, dtype=x.dtype, device=x.device)
    return _index_fill_tensor(x, dim, index, number)


def _index_fill_tensor(x: Any, dim: int, index: Any, value: Any) -> Any:
    if x.dim() == 0:
        one = aten.unsqueeze.default(x, 0)
        return aten.squeeze.dim(_index_fill_tensor(one, dim, index, value), 0)
    where = index if index.dim() else aten.unsqueeze.default(index, 0)
    value = aten.to.dtype(value, x.dtype)
    return aten.index_put.default(x, [None] * (dim % x.dim()) + [where], value)


STRIDES_LOST: dict[Any, Callable[..., Any]] = {
    aten.zero.default: _zero,
    aten.roll.default: _roll,
    aten.index_fill.int_Scalar: _index_fill,
    aten.index_fill.int_Tensor: _index_fill_tensor,
}
"""Operators that torch captures with other strides than they have, in forms that keep them.

`zero` until torch 2.12, `roll` of images with their channels last and `index_fill` still in 2.13.
"""


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    if not all(compat.is_never_zero(n) for n in source.shape):
        return NotImplemented
    shape = torch.broadcast_shapes(mask.shape, x.shape)  # type: ignore[no-untyped-call]
    mask, x = aten.expand.default(mask, shape), aten.expand.default(x, shape)
    taken = aten.clamp.default(_places_of(mask), 0)
    values = aten.index.Tensor(aten.reshape.default(source, [-1]), [taken])
    filled = aten.where.self(mask, aten.reshape.default(values, x.shape), x)
    return aten.clone.default(filled, memory_format=torch.contiguous_format)


def _masked_scatter_backward(grad: Any, mask: Any, sizes: Any) -> Any:
    count = math.prod(sizes)
    mask = aten.expand.default(mask, grad.shape)
    # What was not replaced goes to a place of its own, behind the others.
    into = aten.where.ScalarOther(aten.reshape.default(mask, [-1]), _places_of(mask), count)
    empty = aten.new_zeros.default(grad, [count + 1])
    filled = aten.index_put.default(empty, [into], aten.reshape.default(grad, [-1]))
    return aten.reshape.default(aten.slice.Tensor(filled, 0, 0, count), sizes)


def _places_of(mask: Any) -> Any:
    """How many places of the mask before each one are set."""
    return aten.sub.Scalar(aten.cumsum.default(aten.reshape.default(mask, [-1]), 0), 1)


def _weight_norm_backward(grad: Any, v: Any, g: Any, norms: Any, dim: int) -> Any:
    if v.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    others = [d for d in range(v.dim()) if d != dim]
    along = aten.sum.dim_IntList(aten.mul.Tensor(grad, v), others, True)
    straight = aten.div.Tensor(along, aten.mul.Tensor(norms, norms))
    turned = aten.sub.Tensor(grad, aten.mul.Tensor(v, straight))
    return aten.mul.Tensor(turned, aten.div.Tensor(g, norms)), aten.div.Tensor(along, norms)


def _softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    moved = _below_the_highest(x, dim)
    if moved is None:
        return NotImplemented
    powers = aten.exp.default(moved)
    result = aten.div.Tensor(powers, aten.sum.dim_IntList(powers, [dim], True))
    return _in_one_row(result if half_to_float else aten.to.dtype(result, x.dtype))


def _log_softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    moved = _below_the_highest(x, dim)
    if moved is None:
        return NotImplemented
    total = aten.sum.dim_IntList(aten.exp.default(moved), [dim], True)
    result = aten.sub.Tensor(moved, aten.log.default(total))
    return _in_one_row(result if half_to_float else aten.to.dtype(result, x.dtype))


def _in_one_row(x: Any) -> Any:
    """The same numbers as torch's kernel leaves them, however its input lies."""
    if compat.is_contiguous(x):
        return x
    return aten.clone.default(x, memory_format=torch.contiguous_format)


def _softmax_backward(grad: Any, output: Any, dim: int, input_type: Any) -> Any:
    grad, output = _long(grad), _long(output)
    product = aten.mul.Tensor(grad, output)
    total = aten.sum.dim_IntList(product, [dim], True)
    return aten.to.dtype(aten.sub.Tensor(product, aten.mul.Tensor(output, total)), input_type)


def _log_softmax_backward(grad: Any, output: Any, dim: int, input_type: Any) -> Any:
    grad, output = _long(grad), _long(output)
    total = aten.sum.dim_IntList(grad, [dim], True)
    away = aten.mul.Tensor(aten.exp.default(output), total)
    return aten.to.dtype(aten.sub.Tensor(grad, away), input_type)


def _threshold_backward(grad: Any, x: Any, threshold: Any) -> Any:
    zero = aten.scalar_tensor.default(0, dtype=grad.dtype, device=grad.device)
    return aten.where.self(aten.le.Scalar(x, threshold), zero, grad)


def _long(x: Any) -> Any:
    """The same numbers in a type that sums can be computed in."""
    is_short = x.dtype in (torch.float16, torch.bfloat16)
    return aten.to.dtype(x, torch.float32) if is_short else x


def _below_the_highest(x: Any, dim: int) -> Any:
    """How far every element lies below the highest of its row; None for rows that may be empty."""
    if x.dim() == 0 or not compat.is_never_zero(x.shape[dim]):
        return None
    x = _long(x)
    return aten.sub.Tensor(x, aten.amax.default(x, [dim], True))


def _filled(x: Any, value: Any, memory_format: Any = None, **kind: Any) -> Any:
    """As many numbers as a tensor has, all the same, without looking at that tensor."""
    is_dense = memory_format in (None, torch.preserve_format, torch.contiguous_format)
    wanted = {key: given for key, given in kind.items() if given is not None}
    layout = wanted.pop("layout", x.layout)
    is_plain = x.layout is layout is torch.strided and not wanted.pop("pin_memory", False)
    if not is_dense or not is_plain or not compat.is_contiguous(x):
        return NotImplemented
    wanted = {"dtype": x.dtype, "device": x.device, **wanted}
    return aten.full.default(list(x.shape), value, **wanted)


def _zeros_like(x: Any, **kind: Any) -> Any:
    is_flag = kind.get("dtype", x.dtype) is torch.bool
    return _filled(x, False if is_flag else 0, **kind)


def _ones_like(x: Any, **kind: Any) -> Any:
    is_flag = kind.get("dtype", x.dtype) is torch.bool
    return _filled(x, True if is_flag else 1, **kind)


def _norms(tensors: list[Any], ord: Any = 2, dtype: Any = None) -> Any:
    if any(x.device.type != "cpu" or not compat.is_never_zero(x.numel()) for x in tensors):
        return NotImplemented  # devices have one kernel for all of them
    return [aten.linalg_vector_norm.default(x, ord, dtype=dtype) for x in tensors]


LOOPS: dict[Any, Callable[..., Any]] = {
    # A gradient that is all zeros is no reason to keep the tensor it is the gradient of.
    aten.zeros_like.default: _zeros_like,
    aten.ones_like.default: _ones_like,
    aten.full_like.default: _filled,
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten.masked_scatter.default: _masked_scatter,
    aten.masked_scatter_backward.default: _masked_scatter_backward,
    aten._foreach_norm.Scalar: _norms,
    **FAKE_QUANTISE,
}
"""Operators that torch or our table leaves whole, made of others that become loops."""


IN_TRAINING: dict[Any, Callable[..., Any]] = {
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten._softmax_backward_data.default: _softmax_backward,
    aten._log_softmax_backward_data.default: _log_softmax_backward,
    aten.threshold_backward.default: _threshold_backward,
}
"""Operators in steps, from which a backward can compute again what it would have to keep."""


def decompositions(steps: OwnSteps, in_training: bool = True) -> dict[Any, Any]:
    """The table AOTAutograd is given, with our own entries watched."""
    ours = {**LOOPS, **STRIDES_LOST, **(IN_TRAINING if in_training else {})}
    watched = {o: steps.watched(f"the decomposition of {o}", f) for o, f in ours.items()}
    return {**torchs_decompositions(), **watched}


@lru_cache(maxsize=1)
def torchs_decompositions() -> dict[Any, Any]:
    """Those of torch's own decompositions that we want."""
    table = compat.core_decompositions()
    packets = [getattr(torch.ops.aten, name) for name in ALSO if hasattr(torch.ops.aten, name)]
    table.update(compat.decompositions_of(packets))
    for operator in list(table):
        name = str(operator)
        packet = name.removeprefix("aten.").partition(".")[0].rstrip("_")
        if name in TABLE or packet in NOT:
            del table[operator]
    norm = aten.linalg_vector_norm.default
    if norm in table:
        table[norm] = _counted_from_the_front(table[norm])
    return table


def _counted_from_the_front(norm: Any) -> Callable[..., Any]:
    """torch's form of a norm, without negative dimensions: until 2.12 it keeps those of size 1."""

    def counted(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, **kind: Any) -> Any:
        dims = dim if dim is None or not x.dim() else [d % x.dim() for d in dim]
        return norm(x, ord, dims, keepdim, **kind)

    return counted
