"""The way from Python into a host function: a built-in function made of a record of addresses.

One piece of C for all graphs (`codegen/host_c/enter.c`) checks the tensors it is given, calls the
host function and takes its results; here is what it needs to know, laid out as it reads it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import torch

from treadle.core.options import Options
from treadle.core.toolchain import load_shared
from treadle.ir.devices import CPU_ALIGNMENT

PYTHON = (
    "PyList_GetItem", "PyList_SetItem", "PyList_New", "PyObject_CallFunctionObjArgs",
    "PyObject_CallMethodObjArgs", "PyLong_AsLongLong", "PyLong_FromLongLong", "PyObject_IsTrue",
    "PyCapsule_New", "PyCapsule_GetPointer", "Py_IncRef", "Py_DecRef", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyErr_Clear", "PyList_AsTuple", "PyObject_CallObject",
)  # fmt: skip
"""What the way in calls of Python's stable interface, in the order of its table."""
FEWEST_ALIKE = 4
"""Arguments from which one question about all is faster than one about each."""
ONE_ARGUMENT = 0x0008
"""How Python calls a built-in function that takes one argument."""
FLAGS = ("-std=c11", "-O2", "-w")


class _Method(ctypes.Structure):
    """A built-in function as Python describes it."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Record(ctypes.Structure):
    """What `enter.c` calls a record, field by field."""

    _fields_ = (
        ("host", ctypes.c_void_p),
        ("numbers", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("owned", ctypes.c_int64),
        ("checked", ctypes.c_int64),
        ("results", ctypes.c_int64),
        ("positions", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        *[(name, ctypes.py_object) for name in ("none", "check", "is_neg", "data_ptr")],
        *[(name, ctypes.py_object) for name in ("handle_of", "steal", "storage", "nbytes")],
        ("modes", ctypes.c_void_p),
        ("pools", ctypes.c_int64),
        ("alignment", ctypes.c_int64),
        *[(name, ctypes.c_void_p) for name in ("pool", "whole", "reach", "alike", "learn")],
        ("least", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Entering:
    """What one host function is given and gives."""

    host: int
    numbers: int
    inputs: Sequence[int]
    """Positions of the arguments whose addresses it takes, -1 for constants."""
    constants: Sequence[Any]
    """For each of these the constant, or None."""
    owned: Sequence[int]
    """Positions of arguments that it lets go of."""
    checked: Sequence[int]
    """Positions of arguments that must lie as expected, though it does not look at them."""
    layouts: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
    """Sizes and strides of inputs, then of those only checked."""
    reach: Sequence[int]
    """How many bytes each of these reaches over."""
    pools: Sequence[tuple[int, int]]
    """(number among the inputs, bytes that its storage must have or -1) of inputs whose memory
    others will lie in: nobody else may look at it."""
    results: int
    calls_library: bool
    alignment: int = 1
    """The address of every input must be a multiple of it."""


class Entrance:
    """A callable from a list of arguments to a list of tensors, None, or a failure's number."""

    def __init__(self, about: Entering, options: Options) -> None:
        library = _library(options)
        own: Any = torch._C
        sizes = [sizes for sizes, _ in about.layouts]
        strides = [strides for _, strides in about.layouts]
        modes = own._len_torch_dispatch_stack
        positions = [*about.inputs, *about.owned, *about.checked]
        # Everything the record points to lives as long as it does.
        self._kept = (
            _numbers(positions),
            _objects(about.constants),
            _objects(sizes),
            _objects(strides),
            _numbers([number for number, _ in about.pools]),
            _numbers([whole for _, whole in about.pools]),
            _numbers(about.reach),
            modes,
        )
        places, constants, size_rows, stride_rows, pool, whole, reach, _ = self._kept
        self._record = _Record(
            about.host,
            about.numbers,
            len(about.inputs),
            len(about.owned),
            len(about.checked),
            about.results,
            ctypes.addressof(places),
            ctypes.addressof(constants),
            ctypes.addressof(size_rows),
            ctypes.addressof(stride_rows),
            None,
            own._dynamo.guards.assert_size_stride,
            "is_neg",
            "data_ptr",
            own._aoti.unsafe_alloc_void_ptr_from_tensor,
            own._aoti.alloc_tensors_by_stealing_from_void_ptrs,
            "untyped_storage",
            "nbytes",
            id(modes) if about.calls_library else None,
            len(about.pools),
            CPU_ALIGNMENT,
            ctypes.addressof(pool),
            ctypes.addressof(whole),
            ctypes.addressof(reach),
            None,
            None,
            about.alignment,
        )
        self._alike: Any = None
        self._learner = self._learn
        if len(about.layouts) >= FEWEST_ALIKE:
            self._record.learn = id(self._learner)
        address = ctypes.cast(library["treadle_enter"], ctypes.c_void_p).value
        self._method = _Method(b"treadle_enter", address, ONE_ARGUMENT, None)
        capsule = _NEW_CAPSULE(ctypes.addressof(self._record), None, None)
        self.enter: Callable[[list[Any]], Any] = _NEW_FUNCTION(
            ctypes.addressof(self._method), capsule, None
        )

    def _learn(self, given: list[Any]) -> None:
        """Keep in one object how arguments are that lay as the plan expects.

        It knows more of them than the plan asks for, so that what it does not recognise is looked
        at one by one. Arguments that are not all tensors have none.
        """
        self._record.learn = None
        if self._alike is not None or not all(isinstance(x, torch.Tensor) for x in given):
            return
        made: Any = torch._C._dynamo.guards.TensorGuards
        sizes, strides = [list(x.shape) for x in given], [list(x.stride()) for x in given]
        known = made(*given, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
        # Of two threads that come here at once the first is heard; no Python runs in between.
        kept = self.__dict__.setdefault("_known_check", known.check)
        self._alike = kept
        self._record.alike = id(kept)


def _numbers(values: Sequence[int]) -> Any:
    return (ctypes.c_int64 * (len(values) or 1))(*values)


def _objects(values: Sequence[Any]) -> Any:
    return (ctypes.py_object * (len(values) or 1))(*values)


@lru_cache(maxsize=4)
def _library(options: Options) -> Any:
    """The way in, compiled once and told where Python's functions are."""
    source = files("treadle.codegen.host_c").joinpath("enter.c").read_text("utf-8")
    loaded = load_shared(source, flags=FLAGS, options=options)
    if not loaded.verdict:
        raise OSError(f"the way into host functions cannot be compiled: {loaded.verdict}")
    found = [ctypes.cast(ctypes.pythonapi[name], ctypes.c_void_p).value for name in PYTHON]
    table = (ctypes.c_void_p * len(found))(*found)
    link = loaded.library["treadle_enter_link"]
    link.argtypes, link.restype = [ctypes.c_void_p], None
    link(ctypes.addressof(table))
    loaded.library.table_of_python = table  # it must not go before the library does
    return loaded.library


_NEW_CAPSULE = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", ctypes.pythonapi))
_NEW_FUNCTION = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)(("PyCFunction_NewEx", ctypes.pythonapi))
