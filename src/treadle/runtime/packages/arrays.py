"""Arrays of any library as the C interface of packages sees them, and results as such arrays.

Tensors of torch, arrays of numpy and whatever speaks DLPack are looked at where they lie. Neither
torch nor numpy is imported for it: who gives a tensor of torch has imported torch.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

from treadle.codegen.package_c.tables import MOST_DIMS, TYPE_CODES
from treadle.core.errors import UsageError
from treadle.ir.types import DTYPES, DType

WRONG = "PKG004"
NO_NUMPY_TYPE = {DType.BF16: DType.U16, DType.F8E4M3: DType.U8, DType.F8E5M2: DType.U8}
"""Element types that numpy knows only by their bits, unless ml_dtypes is there."""


class CTensor(ctypes.Structure):
    """`treadle_tensor` of the header."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("type", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * MOST_DIMS),
        ("strides", ctypes.c_int64 * MOST_DIMS),
    )


class _DLTensor(ctypes.Structure):
    """A tensor as DLPack describes it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DL_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
DL_CPU = (1, 3, 11)
"""The CPU's memory, and memory of the CPU that GPUs can see."""


def c_tensor(
    data: int, dtype: DType, sizes: Sequence[int], strides: Sequence[int], name: str
) -> CTensor:
    """The record of a tensor."""
    if len(sizes) > MOST_DIMS:
        raise wrong(name, f"has {len(sizes)} dimensions; up to {MOST_DIMS} are possible")
    made = CTensor(data or None, TYPE_CODES[dtype], len(sizes))
    made.sizes[: len(sizes)] = list(sizes)
    made.strides[: len(sizes)] = list(strides)
    return made


def wrong(name: str, what: str) -> UsageError:
    """The one line about an input that is not what it must be."""
    return UsageError(f"input '{name}' {what}", code=WRONG)


def is_torch(value: Any) -> bool:
    """Whether something is a tensor of torch; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def given_tensor(value: Any, name: str, dtype: DType, changes: bool) -> tuple[CTensor, Any]:
    """An input as C sees it, and what must live as long as C looks at it."""
    if is_torch(value):
        return _of_torch(value, name, changes)
    if hasattr(value, "__array_interface__"):
        return _of_numpy(value, name, dtype, changes)
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value, name)
    kind = type(value).__name__
    raise wrong(name, f"is {kind}: expected an array of numpy, torch or anything with DLPack")


def refuse_shared(records: Sequence[CTensor], rows: Sequence[tuple[str, DType, bool]]) -> None:
    """Raise PKG004 if an input that a run changes lies where another input lies.

    `rows`: name, element type, and whether a run changes it. The model was captured with inputs
    that do not see each other's changes.
    """
    if not any(changes for _, _, changes in rows):
        return
    spans = [_span(r, dtype.itemsize) for r, (_, dtype, _) in zip(records, rows, strict=False)]
    for k, (name, _, changes) in enumerate(rows):
        for other, (begin, end) in enumerate(spans):
            meets = max(spans[k][0], begin) < min(spans[k][1], end)
            if changes and other != k and meets:
                raise wrong(
                    name, f"is changed by the run and shares memory with '{rows[other][0]}'"
                )


def _span(record: CTensor, itemsize: int) -> tuple[int, int]:
    """The first byte of a tensor and the one behind its last; the same one if it has none."""
    at, sizes = record.data or 0, record.sizes[: record.rank]
    if 0 in sizes:
        return at, at
    steps = zip(sizes, record.strides[: record.rank], strict=True)
    reach = [(n - 1) * step for n, step in steps]
    first, last = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    return at + first * itemsize, at + (last + 1) * itemsize


def _of_torch(value: Any, name: str, changes: bool) -> tuple[CTensor, Any]:
    torch = sys.modules["torch"]
    if value.device.type != "cpu" or value.layout is not torch.strided:
        raise wrong(name, f"is on {value.device} as {value.layout}: expected a plain CPU tensor")
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise wrong(name, f"is a {type(value).__name__}: expected a plain tensor")
    found = DTYPES.get(str(value.dtype).removeprefix("torch."))
    if found is None:
        raise wrong(name, f"has elements of type {value.dtype}, which packages do not know")
    if value.is_neg() or value.is_conj():
        if changes:
            raise wrong(name, "is seen negated, and a run would change it")
        value = value.resolve_neg().resolve_conj()
    if changes and value.requires_grad:
        raise wrong(name, "has gradients, and a run would change it")
    made = c_tensor(value.data_ptr(), found, value.shape, value.stride(), name)
    return made, value


def _of_numpy(value: Any, name: str, dtype: DType, changes: bool) -> tuple[CTensor, Any]:
    import numpy as np

    array = np.asarray(value)
    found = DTYPES.get(array.dtype.name)
    bits = NO_NUMPY_TYPE.get(dtype)
    if bits is not None and found is bits:
        found = dtype
    if found is None or not array.dtype.isnative:
        raise wrong(name, f"has elements of type {array.dtype}, expected {dtype}")
    item = array.itemsize
    if changes and not array.flags.writeable:
        raise wrong(name, "cannot be written to, and a run would change it")
    is_odd = any(step < 0 or step % item for step in array.strides)
    if is_odd or array.ctypes.data % item:
        if changes:
            raise wrong(name, "does not lie row by row, and a run would change it")
        array = np.array(array, order="C")
    steps = [step // item for step in array.strides]
    return c_tensor(array.ctypes.data, found, array.shape, steps, name), array


def _of_dlpack(value: Any, name: str) -> tuple[CTensor, Any]:
    try:
        capsule = value.__dlpack__()
        at = _POINTER_IN(capsule, b"dltensor")
    except Exception as e:
        raise wrong(name, f"cannot be read by DLPack: {type(e).__name__}: {e}") from None
    about = _DLTensor.from_address(at)
    if about.device_type not in DL_CPU:
        raise wrong(name, "is not in the memory of the CPU")
    kind = DL_KINDS.get(about.code, "?")
    text = "bool" if kind == "bool" else f"{kind}{about.bits}"
    found = DTYPES.get(text)
    if found is None or about.lanes != 1:
        raise wrong(name, f"has elements of type {text}, which packages do not know")
    sizes = [about.shape[k] for k in range(about.ndim)]
    if about.strides:
        steps = [about.strides[k] for k in range(about.ndim)]
    else:
        steps = dense_steps(sizes)
    start = (about.data or 0) + about.byte_offset
    return c_tensor(start, found, sizes, steps, name), (value, capsule)


def dense_steps(sizes: Sequence[int]) -> list[int]:
    """Strides of a tensor that lies row by row."""
    steps, step = [], 1
    for n in reversed(sizes):
        steps.append(step)
        step *= max(n, 1)
    return steps[::-1]


def new_torch(record: CTensor, dtype: DType) -> tuple[CTensor, Any]:
    """A new tensor of torch that lies as a record says."""
    torch = sys.modules["torch"]
    sizes, steps = record.sizes[: record.rank], record.strides[: record.rank]
    made = torch.empty_strided(sizes, steps, dtype=getattr(torch, dtype.torch_name))
    return c_tensor(made.data_ptr(), dtype, sizes, steps, "result"), made


def new_numpy(record: CTensor, dtype: DType) -> tuple[CTensor, Any]:
    """A new array of numpy with the sizes of a record, row by row."""
    import numpy as np

    sizes = record.sizes[: record.rank]
    made = np.empty(sizes, dtype=numpy_type(dtype))
    return c_tensor(made.ctypes.data, dtype, sizes, dense_steps(sizes), "result"), made


def numpy_type(dtype: DType) -> Any:
    """The element type in numpy; unsigned numbers with the bits where numpy has none."""
    import numpy as np

    if dtype in NO_NUMPY_TYPE:
        try:
            import ml_dtypes
        except ImportError:
            return np.dtype(NO_NUMPY_TYPE[dtype].torch_name)
        return np.dtype(getattr(ml_dtypes, dtype.torch_name))
    return np.dtype(dtype.torch_name)


_POINTER_IN = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
