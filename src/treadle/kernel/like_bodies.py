"""Bodies of kernels, written once for groups of members that are alike.

Layers and time steps repeat the same members over other buffers. A body that was written for one
group serves the next, if patterns, element types and who shares storage with whom are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from treadle.core.verdict import Verdict
from treadle.ir.body import Body
from treadle.ir.pattern import named, pattern_of
from treadle.ir.program import Loop, Program
from treadle.ir.types import Buffer
from treadle.kernel.mixing import Mixed, mixed_nests


class KnownBody(NamedTuple):
    """A body over anonymous buffers, and which buffers of its members those are."""

    body: Body
    places: tuple[int, ...]

    @classmethod
    def of(cls, body: Body, buffers: Sequence[str]) -> KnownBody:
        """The body of members that name these buffers."""
        place = {name: k for k, name in enumerate(buffers)}
        pattern, own = pattern_of(Loop(name="joined", body=body))
        return cls(pattern.body, tuple([place[n] for n in own]))

    def over(self, buffers: Sequence[str]) -> Body:
        """The same for members that name other buffers."""
        return named(self.body, [buffers[k] for k in self.places])


def form_of(
    program: Program, loops: Sequence[Loop], inside: frozenset[str]
) -> tuple[object, tuple[str, ...]]:
    """All that a body made of loops depends on, whatever the buffers are called; and those."""
    place: dict[str, int] = {}
    parts = []
    for op in loops:
        pattern, buffers = pattern_of(op)
        parts.append((pattern, tuple([place.setdefault(n, len(place)) for n in buffers])))
    roots: dict[str, int] = {}
    about = []
    for name in place:
        root = program.storage_of(name)
        number = roots.setdefault(root, len(roots))
        about.append((program.by_name[name].dtype, number, root in inside))
    return (tuple(parts), tuple(about)), tuple(place)


class _KnownMix(NamedTuple):
    """The nests of a mixed kernel over anonymous buffers; `made` are those of its own."""

    bodies: tuple[KnownBody, ...]
    made: tuple[Buffer, ...]


class LikeMixes:
    """Writes the nests of mixed kernels of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[object, _KnownMix] = {}

    def nests(
        self,
        sides: tuple[Loop, Loop],
        inside: frozenset[str],
        name: Callable[[], str],
        finish: Callable[[Body], Body],
    ) -> Mixed | Verdict:
        """What `mixed_nests` gives, with `finish` applied to the walk over the common data."""
        form, buffers = form_of(self._program, sides, inside)
        key = (form, sides[0].device)
        known = self._known.get(key)
        if known is not None:
            made = tuple([replace(b, name=name()) for b in known.made])
            names = (*buffers, *[b.name for b in made])
            first, middle, last = [body.over(names) for body in known.bodies]
            return Mixed(first, middle, last, made)
        found = mixed_nests(self._program, sides, name)
        if isinstance(found, Verdict):
            return found  # it names who is to blame, so the next pair is asked by itself
        found = found._replace(middle=finish(found.middle))
        names = (*buffers, *[b.name for b in found.buffers])
        bodies = [KnownBody.of(b, names) for b in (found.first, found.middle, found.last)]
        self._known[key] = _KnownMix(tuple(bodies), found.buffers)
        return found
