"""libtorch's C interface: which functions this torch has, and which operators they stand for.

The functions are declared nowhere but here: each operator's schema says the arguments, and the
interface passes a tensor as a handle, a list as a pointer and a count, a truth value as 32 bits.
They are found by name in what Python has loaded; what is not there is called from Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from treadle.codegen.host_c.render import NEEDED

aten = torch.ops.aten
ATTENTION = "aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu"
WRITING: Mapping[Any, str] = {
    aten.mm.default: "aoti_torch_cpu_mm_out",
    aten.bmm.default: "aoti_torch_cpu_bmm_out",
    aten.addmm.default: "aoti_torch_cpu_addmm_out",
    aten.baddbmm.default: "aoti_torch_cpu_baddbmm_out",
}
"""Operators whose function writes where it is told: the result is its first argument."""
ALIKE = (
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool2d_backward",
    "_adaptive_avg_pool3d",
    "_adaptive_avg_pool3d_backward",
    "_cdist_backward",
    "_cdist_forward",
    "_embedding_bag",
    "_embedding_bag_dense_backward",
    "_embedding_bag_forward_only",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_backward",
    "fractional_max_pool2d",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d",
    "fractional_max_pool3d_backward",
    "grid_sampler_2d_backward",
    "grid_sampler_3d",
    "grid_sampler_3d_backward",
    "histc",
    "kthvalue",
    "logcumsumexp",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices",
    "max_pool3d_with_indices_backward",
    "max_unpool2d",
    "max_unpool3d",
    "median",
    "mode",
    "nanmedian",
    "sort",
    "topk",
    "upsample_bicubic2d_backward",
    "upsample_linear1d_backward",
    "upsample_trilinear3d_backward",
)
"""Operators whose function has the same name."""
MAKING_ON_CPU: Mapping[Any, str] = {
    aten.sort.stable: "aoti_torch_cpu_sort_stable",
    **{getattr(aten, name).default: f"aoti_torch_cpu_{name}" for name in ALIKE},
}
"""Those below that are asked for from C on a CPU only: elsewhere nobody tried what they do while
launches are recorded."""
MAKING: Mapping[Any, str] = {
    aten.convolution.default: "aoti_torch_cpu_convolution",
    aten.convolution_backward.default: "aoti_torch_cpu_convolution_backward",
    aten._scaled_dot_product_flash_attention_for_cpu.default: ATTENTION,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: f"{ATTENTION}_backward",
    **MAKING_ON_CPU,
}
"""Operators whose function makes its results, in memory of their own that nobody else sees."""


@lru_cache(maxsize=1)
def has_interface() -> bool:
    """Whether this torch has what every host function needs."""
    is_there = hasattr(torch._C, "_aoti") and hasattr(torch._C._dynamo.guards, "assert_size_stride")
    return is_there and None not in addresses_of(NEEDED)


def addresses_of(names: Sequence[str]) -> list[int | None]:
    """Where functions of the library lie; None for those it does not have."""
    return [address_of(name) for name in names]


@lru_cache(maxsize=256)
def address_of(name: str) -> int | None:
    """Where a function of the library lies; None if it does not have it."""
    # Python's own module of torch was linked against the library: what it can see, we can.
    library = ctypes.CDLL(torch._C.__file__)
    try:
        return ctypes.cast(library[name], ctypes.c_void_p).value
    except AttributeError:
        return None


@lru_cache(maxsize=64)
def type_code(element: torch.dtype) -> int | None:
    """The number by which the interface knows an element type; None if it does not."""
    address = address_of(f"aoti_torch_dtype_{str(element).removeprefix('torch.')}")
    return None if address is None else int(ctypes.CFUNCTYPE(ctypes.c_int32)(address)())


def function_for(operator: Any, kind: str = "cpu") -> str | None:
    """The function of the interface that does what an operator does on a kind of device."""
    name = WRITING.get(operator) or MAKING.get(operator)
    if name is None or (kind != "cpu" and operator in MAKING_ON_CPU):
        return None
    own = name.replace("aoti_torch_cpu_", f"aoti_torch_{kind}_")
    return own if address_of(own) is not None else None


def tensors_from(handles: Sequence[int]) -> list[Any]:
    """The tensors behind handles, which this is the end of."""
    # The function for a single handle would not let go of it.
    own: Any = torch._C
    capsules = [_NEW_CAPSULE(handle, None, None) for handle in handles]
    found: list[Any] = own._aoti.alloc_tensors_by_stealing_from_void_ptrs(capsules)
    return found


def handle_of(tensor: Any) -> int:
    """A new handle of a tensor, which keeps it alive until it is let go of."""
    own: Any = torch._C
    found: int = _POINTER_IN(own._aoti.unsafe_alloc_void_ptr_from_tensor(tensor), None)
    return found


_NEW_CAPSULE = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
_POINTER_IN = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
