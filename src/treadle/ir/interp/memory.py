"""The storages of a run: bytes, seen through the buffers that name them.

Each storage root owns one row of bytes, allocated at its first use. A buffer sees the row as
elements of its own type: views of another type reinterpret the bytes, and indices count elements
of the type that is asked for. Memory nobody has written is poisoned.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from treadle.index import Symbol
from treadle.ir.interp.bindings import number
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array, poison
from treadle.ir.interp.errors import RunError
from treadle.ir.placed_layout import PlacedLayout
from treadle.ir.program import Program
from treadle.ir.types import Buffer, BufferKind


class Memory:
    """All bytes of one run, which of them are defined, and the tuples calls have returned."""

    def __init__(self, program: Program, sizes: Mapping[Symbol, int], poisoned: bool) -> None:
        self.program = program
        self.sizes = sizes
        self.tuples: dict[str, tuple[Array, ...]] = {}
        self._poisoned = poisoned
        self._rows: dict[str, Array] = {}
        self._layouts: dict[str, PlacedLayout] = {}
        self._defined: set[str] = set()

    def buffer(self, name: str) -> Buffer:
        """The buffer called `name`."""
        return self.program.by_name[name]

    def layout(self, name: str) -> PlacedLayout:
        """The layout of a buffer in numbers."""
        if name not in self._layouts:
            layout, where = self.buffer(name).layout, f"buffer '{name}'"
            sizes = tuple(number(n, self.sizes, where) for n in layout.sizes)
            strides = tuple(number(n, self.sizes, where) for n in layout.strides)
            offset = number(layout.offset, self.sizes, where)
            self._layouts[name] = PlacedLayout(sizes, strides, offset)
        return self._layouts[name]

    # -- seeing the bytes ------------------------------------------------------------------
    def elements(self, name: str) -> Array:
        """The whole storage as elements of the type of buffer `name`; writing changes it."""
        root = self.program.storage_of(name)
        if root not in self._rows:
            count = self.layout(root).span
            row = np.zeros(count, NUMPY_TYPES[self.buffer(root).dtype])
            self._rows[root] = row
            self._fill(root, row)
        element = NUMPY_TYPES[self.buffer(name).dtype]
        row = self._rows[root]
        if row.dtype == element:
            return row
        raw = row.view(np.uint8)
        return raw[: raw.size // element.itemsize * element.itemsize].view(element)

    def tensor(self, name: str) -> Array:
        """The elements of buffer `name` in its shape; writing changes the storage."""
        row, at = self.elements(name), self.layout(name)
        if 0 in at.sizes:
            return np.zeros(at.sizes, row.dtype)
        if at.lowest < 0 or at.span > row.size:
            notes = [f"the storage of '{self.program.storage_of(name)}' holds {row.size} elements"]
            message = f"buffer '{name}' reaches storage index {at.span - 1}"
            raise RunError(message, code="RUN003", notes=notes)
        wide = row.itemsize
        steps = [s * wide for s in at.strides]
        raw = row.view(np.uint8)
        return np.ndarray(at.sizes, row.dtype, buffer=raw, offset=at.offset * wide, strides=steps)

    def _fill(self, name: str, elements: Array) -> None:
        dtype = self.buffer(name).dtype
        elements[...] = poison(dtype) if self._poisoned else np.zeros((), elements.dtype)

    # -- what is defined -------------------------------------------------------------------
    def allocate(self, name: str) -> None:
        """Make `name` usable without a value: its elements are poisoned again."""
        if self.buffer(name).kind is BufferKind.TENSOR:
            is_root = self.program.storage_of(name) == name
            self._fill(name, self.elements(name) if is_root else self.tensor(name))
        self.define(name)

    def define(self, name: str) -> None:
        """From now on the storage of `name` may be read."""
        self._defined.add(self.program.storage_of(name))

    def require(self, name: str, reader: str) -> None:
        """Refuse to read a buffer that is no input and that nothing has written."""
        if self.program.storage_of(name) in self._defined:
            return
        message = f"operation '{reader}' reads buffer '{name}', which nothing has written"
        notes = ["a buffer is an input, or an earlier operation writes or allocates it"]
        raise RunError(message, code="RUN005", notes=notes)
