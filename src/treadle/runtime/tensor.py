"""Tensors of the caller, seen as memory: where they begin, how they lie."""

from __future__ import annotations

from typing import Any, Protocol


class TensorAdapter(Protocol):
    """What the runtime asks of a tensor, whichever library it belongs to."""

    @property
    def data_ptr(self) -> int:
        """The address of the first element."""
        ...

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        ...

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        ...

    @property
    def strides(self) -> tuple[int, ...]:
        """The step of each dimension, in elements."""
        ...


class NumpyTensor:
    """A numpy array as the runtime sees it."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self.array.ctypes.data)

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return int(self.array.nbytes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each dimension."""
        return tuple(int(n) for n in self.array.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """The step of each dimension, in elements."""
        return tuple(int(s) // int(self.array.itemsize) for s in self.array.strides)


def as_array(tensor: TensorAdapter, dtype: Any) -> Any:
    """A numpy array over the memory of a tensor; `dtype` is the numpy type of its elements."""
    import numpy as np

    if isinstance(tensor, NumpyTensor):
        return tensor.array
    wide = int(np.dtype(dtype).itemsize)
    if 0 in tensor.shape:
        return np.zeros(tensor.shape, dtype)
    reach = [(n - 1) * s * wide for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    below, above = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    raw = _bytes_at(tensor.data_ptr + below, above - below + wide, tensor)
    steps = [s * wide for s in tensor.strides]
    return np.ndarray(tensor.shape, dtype, buffer=raw, offset=-below, strides=steps)


def has_layout(tensor: TensorAdapter, sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a tensor lies in memory as a layout says, steps of single elements aside."""
    if tensor.shape != sizes:
        return False
    steps = zip(sizes, tensor.strides, strides, strict=True)
    return all(a == b for n, a, b in steps if n > 1)


def bytes_of(array: Any) -> Any:
    """The memory an array reaches from its first element on, as bytes; steps are not negative."""
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    return _bytes_at(int(array.ctypes.data), int(reach) + int(array.itemsize), array)


def _bytes_at(address: int, count: int, owner: Any) -> Any:
    import ctypes

    import numpy as np

    raw: Any = (ctypes.c_uint8 * count).from_address(address)
    raw.owner = owner  # the memory lives as long as what it was made of
    return np.frombuffer(raw, np.uint8)
