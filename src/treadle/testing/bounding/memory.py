"""Errors of what lies in memory: one bound for every element of every storage.

Memory that nobody has written has no bound, unless every code poisons it alike. Bytes that are read
as another type are certain or have no bound: a small error says nothing about single bits.
"""

from __future__ import annotations

import numpy as np

from treadle.ir.interp.dtypes import NUMPY_TYPES, Array
from treadle.ir.interp.memory import Memory
from treadle.ir.program import Program
from treadle.ir.types import DType
from treadle.testing.bounding.rounding import Deviation, undecided


class Errors:
    """The errors of all storages of a run, in elements of each storage's own type."""

    def __init__(self, memory: Memory, poisoned: bool = False) -> None:
        self.memory = memory
        self.unwritten = 0.0 if poisoned else np.inf
        self.tuples: dict[str, tuple[Array, ...]] = {}
        self._rows: dict[str, tuple[Array, Array]] = {}

    def row(self, name: str) -> tuple[Array, Array]:
        """The errors of the storage of `name`, rounded and not; writing changes them."""
        root = self.memory.program.storage_of(name)
        if root not in self._rows:
            count = self.memory.elements(root).size
            self._rows[root] = np.full(count, self.unwritten), np.full(count, self.unwritten)
        return self._rows[root]

    def _widths(self, name: str) -> tuple[int, int]:
        program = self.memory.program
        names = (name, program.storage_of(name))
        widths = [NUMPY_TYPES[program.by_name[n].dtype].itemsize for n in names]
        return widths[0], widths[1]

    def _is_plain(self, name: str) -> bool:
        program = self.memory.program
        root = program.storage_of(name)
        return program.by_name[name].dtype is program.by_name[root].dtype

    def elements(self, name: str) -> Deviation:
        """The errors of a storage as elements of the type of buffer `name`: a copy."""
        error, unrounded = self.row(name)
        if self._is_plain(name):
            return Deviation(error.copy(), unrounded.copy())
        width, root_width = self._widths(name)
        of_bytes = np.repeat(error > 0, root_width)
        count = of_bytes.size // width
        return Deviation.of(undecided(_any_of(of_bytes[: count * width], width)))

    def write(self, name: str, new: Deviation, touched: Array) -> None:
        """Give touched elements of the storage, seen as buffer `name`, new errors."""
        error, unrounded = self.row(name)
        if self._is_plain(name):
            error[touched], unrounded[touched] = new.error[touched], new.unrounded[touched]
            return
        width, root_width = self._widths(name)
        of_bytes = np.repeat(error > 0, root_width)
        places = np.repeat(touched, width)
        of_bytes[: places.size][places] = np.repeat(new.error > 0, width)[places]
        all_places = np.zeros(of_bytes.size, bool)
        all_places[: places.size] = places
        is_touched = _any_of(all_places, root_width)
        lost = undecided(_any_of(of_bytes, root_width))
        error[is_touched] = unrounded[is_touched] = lost[is_touched]

    def with_bits_of_nan(self, name: str, new: Deviation) -> Deviation:
        """Errors that are about to be written: which bits a NaN has is nobody's promise.

        That matters only where the storage is read as another type as well.
        """
        program = self.memory.program
        if program.storage_of(name) not in program.derive_from_buffers(_seen_as_several_types):
            return new
        if not self.memory.buffer(name).dtype.is_float:
            return new
        is_nan = undecided(np.isnan(self.memory.elements(name)))
        return new.changed(lambda error: np.maximum(error, is_nan))

    # -- buffers in their shape --------------------------------------------------------------
    def tensor(self, name: str) -> Array:
        """The errors of a buffer in its shape: a copy."""
        return self._shaped(name, self.elements(name).error)

    def fill(self, name: str, error: Array) -> None:
        """Set the errors of a whole buffer."""
        current = self.elements(name)
        touched = np.zeros(current.error.size, bool)
        view = self._shaped(name, current.error, copy=False)
        view[...] = error
        self._shaped(name, touched, copy=False)[...] = True
        self.write(name, Deviation.of(current.error), touched)

    def _shaped(self, name: str, row: Array, copy: bool = True) -> Array:
        at = self.memory.layout(name)
        if 0 in at.sizes:
            return np.zeros(at.sizes, row.dtype)
        steps = [s * row.itemsize for s in at.strides]
        view: Array = np.ndarray(
            at.sizes, row.dtype, buffer=row, offset=at.offset * row.itemsize, strides=steps
        )
        return view.copy() if copy else view


def _seen_as_several_types(program: Program) -> frozenset[str]:
    types: dict[str, set[DType]] = {}
    for b in program.buffers:
        types.setdefault(program.storage_of(b.name), set()).add(b.dtype)
    return frozenset(name for name, found in types.items() if len(found) > 1)


def _any_of(of_bytes: Array, width: int) -> Array:
    """For each element of so many bytes whether any of them is set."""
    return np.asarray(of_bytes.reshape(of_bytes.size // width, width).any(axis=1))
