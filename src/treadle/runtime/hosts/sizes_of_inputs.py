"""The run-time sizes of a program, read off the inputs that show them.

This happens in every run, so where each size stands is found out once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treadle.index import Symbol
from treadle.ir.program import Program
from treadle.runtime.signature import Signature

Sizes = tuple[tuple[str, int], ...]
Place = tuple[int, int | None]
"""The position of an input, and the axis of a tensor or None for a number."""


class SizesOfInputs:
    """Gives the value of every run-time size for a list of inputs."""

    def __init__(self, program: Program, signature: Signature) -> None:
        places = _places(program, signature)
        self._places = [(size.name, places.get(size.name, [])) for size in program.sizes]
        numbers = [(name, places[0][0]) for name, places in self._places if _is_number(places)]
        self._numbers = numbers if len(numbers) == len(self._places) else None
        """Where all sizes stand, if each is an input of its own: mostly it is."""

    def __call__(self, given: Sequence[Any]) -> Sizes:
        """The name and the value of every size, in the program's order."""
        if self._numbers is not None:
            return tuple([(name, int(given[k])) for name, k in self._numbers])
        return tuple([(name, _value(given, places)) for name, places in self._places])


def _places(program: Program, signature: Signature) -> Mapping[str, list[Place]]:
    """For each size where it can be read, numbers before axes of tensors."""
    found: dict[str, list[Place]] = {}
    for position, name in signature.numbers:
        found.setdefault(name, []).append((position, None))
    for position, name in signature.tensors:
        for axis, extent in enumerate(program.by_name[name].layout.sizes):
            if isinstance(extent, Symbol):
                found.setdefault(extent.name, []).append((position, axis))
    return found


def _is_number(places: Sequence[Place]) -> bool:
    return bool(places) and places[0][1] is None


def _value(given: Sequence[Any], places: Sequence[Place]) -> int:
    """The value at the first place that is there: a tensor may be missing."""
    for position, axis in places:
        one = given[position]
        if one is None or (axis is not None and axis >= one.dim()):
            continue
        return int(one if axis is None else one.shape[axis])
    raise ValueError("a run-time size that no input shows")
