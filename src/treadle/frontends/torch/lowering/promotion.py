"""torch's type promotion for element-wise operators, asked of torch itself.

`common_types` gives two types: the one the operator computes in (f32 for f16 and bf16, as eager
does inside one operator) and the one of its result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from treadle.frontends.torch.lowering.values import Lazy, NotLowered, Number, Realised
from treadle.index import Expr
from treadle.ir.types import DTYPES, DType, dtype
from treadle.runtime.hosts.torch_tensors import TORCH_TYPES

DEFAULT = "DEFAULT"
INT_TO_FLOAT = "INT_TO_FLOAT"
ALWAYS_BOOL = "ALWAYS_BOOL"
NO_OPMATH = "NO_OPMATH"
BOOL_TO_LONG = "BOOL_TO_LONG"


def known_type(t: Any) -> DType | None:
    """Our element type for one of torch's, if there is one."""
    return DTYPES.get(str(t).removeprefix("torch."))


def our_type(t: Any) -> DType:
    """Our element type for one of torch's, or NotLowered."""
    found = known_type(t)
    if found is None:
        raise NotLowered(f"there is no element type {t}")
    return found


def common_types(kind: str, *operands: Any) -> tuple[DType, DType]:
    """The type to compute in and the type of the result, by torch's rules of promotion."""
    return _common(kind, tuple([_key(x) for x in operands if x is not None]))


def _key(operand: Any) -> tuple[str, bool]:
    if isinstance(operand, Lazy | Realised):
        return operand.dtype.text, not operand.sizes
    if isinstance(operand, Expr):
        return NUMBERS[int], True
    if isinstance(operand, Number):
        return NUMBERS[float], True
    if type(operand) not in NUMBERS:
        raise NotLowered(f"{type(operand).__name__} is no element-wise operand")
    return NUMBERS[type(operand)], True


NUMBERS: dict[type, str] = {bool: "a bool", int: "a whole number", float: "a number"}
EXAMPLES: dict[str, Any] = {"a bool": True, "a whole number": 1, "a number": 1.0}


@lru_cache(maxsize=4096)
def _common(kind: str, keys: tuple[tuple[str, bool], ...]) -> tuple[DType, DType]:
    args = [EXAMPLES[name] if name in EXAMPLES else _stand_in(name, at) for name, at in keys]
    compute, result = elementwise_dtypes(*args, type_promotion_kind=getattr(KIND, kind))
    if kind == ALWAYS_BOOL:
        # Nothing is computed: operands are compared in the type they have in common.
        _, compute = elementwise_dtypes(*args, type_promotion_kind=KIND.DEFAULT)
    return our_type(compute), our_type(result)


def _stand_in(name: str, has_no_dimensions: bool) -> Any:
    shape = () if has_no_dimensions else (1,)
    return torch.empty(shape, dtype=TORCH_TYPES[dtype(name)], device="meta")
