"""The interpreter's view of memory over the bytes of a compiled run, for library calls."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.index import Symbol
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array
from treadle.ir.interp.memory import Memory
from treadle.ir.program import Program
from treadle.ir.types import DType


class PlacedMemory(Memory):
    """Storages that lie where they are put; what a compiled program reads is not tracked."""

    def __init__(self, program: Program, sizes: Mapping[Symbol, int], poisoned: bool) -> None:
        super().__init__(program, sizes, poisoned)
        self.is_poisoned = poisoned

    def nbytes(self, storage: str) -> int:
        """The bytes a storage needs."""
        return self.layout(storage).span * self.buffer(storage).dtype.itemsize

    def put(self, storage: str, raw: Array, is_fresh: bool = True) -> None:
        """Let a storage lie in the given bytes; poisoned, if asked for, where nobody else is."""
        row = raw[: self.nbytes(storage)].view(NUMPY_TYPES[self.buffer(storage).dtype])
        self._rows[storage] = row
        if self.is_poisoned and is_fresh:
            self._fill(storage, row)

    def raw(self, storage: str) -> Array:
        """The bytes of a storage."""
        return self.elements(storage).view(NUMPY_TYPES[DType.U8])

    def address(self, storage: str) -> int:
        """Where a storage begins."""
        return int(self._rows[storage].ctypes.data)

    def require(self, name: str, reader: str) -> None:
        """Nothing: the verifier saw that values exist before they are read."""

    def clear(self, name: str) -> None:
        """Begin a buffer anew: poisoned where that is asked for."""
        if self.is_poisoned:
            self.allocate(name)
