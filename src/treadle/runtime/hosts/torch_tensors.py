"""Tensors of torch as memory: views of it, element types, whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from treadle.ir.placed_layout import PlacedLayout
from treadle.ir.types import DType

DEVICE_ALIGNMENT = 16
"""Kernels for a device load 16 bytes at a time; a view may begin anywhere."""
TORCH_TYPES: Mapping[DType, torch.dtype] = {d: getattr(torch, d.torch_name) for d in DType}


def storage_key(tensor: Any) -> object:
    """What two tensors have in common if one is a view of the other, fake ones too."""
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return ("no storage", id(tensor))  # sparse ones, and subclasses that wrap others


def reinterpret(tensor: Any, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """Another view of a tensor's memory, `offset` elements after its first.

    Autograd takes it for a tensor of its own, not for a view.
    """
    guards: Any = torch._C._dynamo.guards
    return guards._reinterpret_tensor(tensor, sizes, strides, offset)


def view_of(tensor: Any, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Any:
    """The same as a view that knows whose it is: torch looks for that in later graphs."""
    return tensor.as_strided(sizes, strides, tensor.storage_offset() + offset)


def uncounted(tensor: Any) -> AbstractContextManager[None]:
    """Changes to a tensor in here do not count as changes for autograd."""
    own: Any = torch.autograd
    context: AbstractContextManager[None] = own._unsafe_preserve_version_counter(tensor)
    return context


def as_elements(tensor: Any, element: torch.dtype) -> Any:
    """The memory behind a tensor, from its first element on, as elements of another type."""
    memory = tensor.untyped_storage()
    start = tensor.storage_offset() * tensor.element_size()
    count = (memory.nbytes() - start) // element.itemsize
    empty = torch.empty(0, dtype=element, device=tensor.device)
    return empty.set_(memory, start // element.itemsize, (count,), (1,))


def as_expected(tensor: Any, layout: PlacedLayout) -> Any:
    """The tensor itself if it lies as the program expects, else a copy that does."""
    if tensor.dim() == len(layout.sizes) == 1 and tensor.shape[0] > layout.sizes[0]:
        # What AOTAutograd puts in the place of inputs that overlap is the whole storage, of which
        # the graph was captured with as much as they reach.
        tensor = tensor[: layout.sizes[0]]
    is_aligned = tensor.device.type == "cpu" or tensor.data_ptr() % DEVICE_ALIGNMENT == 0
    if lies(tensor, layout) and not tensor.is_neg() and is_aligned:
        return tensor
    kind, device = tensor.dtype, tensor.device
    moved = torch.empty_strided(layout.sizes, layout.strides, dtype=kind, device=device)
    if 0 in layout.strides:
        # Elements that share memory cannot be written one by one.
        picks = [slice(0, 1) if s == 0 else slice(None) for s in layout.strides]
        for axis, pick in enumerate(picks):
            if pick.stop == 1:
                tensor, moved = tensor.narrow(axis, 0, 1), moved.narrow(axis, 0, 1)
        moved.copy_(tensor)
        return reinterpret(moved, layout.sizes, layout.strides, 0)
    return moved.copy_(tensor)


def lies(tensor: Any, layout: PlacedLayout) -> bool:
    """Whether a tensor lies in memory as a layout says, steps of single elements aside."""
    if tuple(tensor.shape) != layout.sizes:
        return False
    if tuple(tensor.stride()) == layout.strides or 0 in layout.sizes:
        return True
    steps = zip(layout.sizes, tensor.stride(), layout.strides, strict=True)
    return all(a == b for n, a, b in steps if n > 1)
