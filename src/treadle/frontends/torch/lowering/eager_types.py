"""Element types that an operator refuses in eager mode although its formula would do.

A lowering is a formula: it would give whole numbers a softmax. Eager mode raises there, because its
kernels were written for floats only. Such a node stays a call, so the operator itself refuses.
Operators that torch takes apart before we see them are not here: see docs/limits.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

WHOLE = frozenset([torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
BOOL = frozenset([torch.bool])
_FLOATS_ONLY = (
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "_log_softmax", "_safe_softmax", "_softmax", "elu", "frac", "gelu", "hardsigmoid", "hardswish",
    "hypot", "igamma", "igammac", "leaky_relu", "log_sigmoid_forward", "logaddexp", "logaddexp2",
    "logcumsumexp", "nextafter", "silu", "softplus",
)  # fmt: skip
_NO_BOOL = (
    "abs", "ceil", "floor", "round", "trunc", "floor_divide", "kthvalue",
    "max_pool2d_with_indices", "max_pool3d_with_indices", "median", "nanmedian", "threshold",
)  # fmt: skip

REFUSED: Mapping[str, frozenset[torch.dtype]] = {
    **{f"aten.{name}.default": WHOLE for name in _FLOATS_ONLY},
    **{f"aten.{name}.default": BOOL for name in _NO_BOOL},
    "aten.lerp.Scalar": WHOLE,
    "aten.lerp.Tensor": WHOLE,
    "aten.round.decimals": WHOLE,
    "aten.median.dim": BOOL,
    "aten.nanmedian.dim": BOOL,
    "aten.div.Tensor_mode": BOOL,
    "aten.fmod.Tensor": BOOL,
    "aten.remainder.Tensor": BOOL,
    "aten.pow.Tensor_Tensor": BOOL,
    "aten.avg_pool2d.default": WHOLE - {torch.int64},
    "aten.avg_pool3d.default": WHOLE - {torch.int64},
}
"""By overload: the types that its kernels were not written for."""


def refused_type(node: Any) -> torch.dtype | None:
    """The element type for which eager mode has no kernel of this operator, if it is given one."""
    refused = REFUSED.get(str(node.target))
    if refused is None:
        return None
    values = [a.meta.get("val") for a in node.all_input_nodes]
    types = {v.dtype for v in values if isinstance(v, torch.Tensor)}
    # Operands of several types are promoted first, and floats among them make a float.
    return next(iter(types)) if len(types) == 1 and types <= refused else None
