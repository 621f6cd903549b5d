"""Layouts in numbers: sizes, strides and offset of a buffer in one run."""

from __future__ import annotations

from typing import NamedTuple


class PlacedLayout(NamedTuple):
    """A layout with every size known."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def lowest(self) -> int:
        """The smallest storage index of an element."""
        steps = zip(self.sizes, self.strides, strict=True)
        return self.offset + sum((n - 1) * s for n, s in steps if s < 0)

    @property
    def span(self) -> int:
        """One more than the largest storage index of an element (the offset if there is none)."""
        if 0 in self.sizes:
            return self.offset
        steps = zip(self.sizes, self.strides, strict=True)
        return self.offset + sum((n - 1) * s for n, s in steps if s > 0) + 1
