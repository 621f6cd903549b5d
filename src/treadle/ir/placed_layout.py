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

    @property
    def reach(self) -> int:
        """How many elements of its memory a tensor needs; an empty one still has its offset."""
        if 0 in self.sizes:
            return max(self.offset, 0)
        pairs = zip(self.sizes, self.strides, strict=True)
        return self.offset + 1 + sum((n - 1) * s for n, s in pairs if s > 0)

    @property
    def is_plain(self) -> bool:
        """Whether the elements lie row by row without gaps."""
        step = 1
        for n, s in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if n != 1 and s != step:
                return False
            step *= n
        return self.offset == 0
