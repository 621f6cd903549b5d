"""A loop that computes what it read: written once for pairs of loops that are alike.

    source   t[i] = x[i] * 2             for i in 64
    reader   y[i] = t[i] + 1             for i in 64
    repeated y[i] = x[i] * 2 + 1         for i in 64

Layers, parameters and time steps repeat a few pairs over other buffers. What a pair becomes, and
whether the rules allow it, depends on the two patterns, on which of their buffers are the same, and
on the form of each; everything else is names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from treadle.ir.change import alone
from treadle.ir.effects import effects
from treadle.ir.inline import inlined
from treadle.ir.pattern import Pattern, Patterned, named, pattern_of
from treadle.ir.program import Loop, Program
from treadle.ir.spec import violations


class Repeater:
    """Writes sources into their readers, over the buffers of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[object, tuple[Pattern, tuple[int, ...]] | None] = {}
        self._forms: dict[str, int] = {}
        self._numbers: dict[tuple[object, ...], int] = {}

    def repeated(self, reader: Loop, source: Loop) -> Loop | None:
        """`reader` with the source's computation in place of loads of its result.

        None if that cannot be said, or breaks a rule of bodies.
        """
        key, places = self._key(reader, source)
        if key not in self._known:
            return self._first(key, reader, source, places)
        known = self._known[key]
        if known is None:
            return None
        pattern, order = known
        names = tuple(places)
        buffers = tuple([names[k] for k in order])
        new = replace(reader, body=named(pattern.body, buffers))
        new.__dict__["_pattern"] = Patterned(pattern, buffers)
        return new

    def form(self, reader: Loop, source: Loop) -> object:
        """Equal for pairs of loops that are alike in all that rewriting and rules look at."""
        return self._key(reader, source)[0]

    def _key(self, reader: Loop, source: Loop) -> tuple[object, dict[str, int]]:
        reading, making = pattern_of(reader), pattern_of(source)
        places: dict[str, int] = {}
        for name in (*reading.buffers, *making.buffers):
            places.setdefault(name, len(places))
        key = (
            type(reader), reader.device, reader.after, reading.pattern, making.pattern,
            tuple([places[name] for name in making.buffers]),
            tuple([self._form(name) for name in places]), self._shared(places),
        )  # fmt: skip
        return key, places

    def _first(
        self, key: object, reader: Loop, source: Loop, places: dict[str, int]
    ) -> Loop | None:
        new = _written(reader, source, self._program)
        if new is None:
            self._known[key] = None
            return None
        pattern, buffers = pattern_of(new)
        self._known[key] = pattern, tuple([places[name] for name in buffers])
        return new

    def _form(self, name: str) -> int:
        """A number for a buffer without its name: for all that rewriting and rules look at."""
        known = self._forms.get(name)
        if known is None:
            buffer = self._program.by_name[name]
            form: tuple[object, ...] = (buffer.dtype, buffer.layout, buffer.kind, buffer.device)
            if buffer.view_of is not None:
                root = self._program.by_name[self._program.storage_of(name)]
                form = (*form, root.dtype, root.layout)
            known = self._forms[name] = self._numbers.setdefault(form, len(self._numbers))
        return known

    def _shared(self, names: Iterable[str]) -> tuple[int, ...]:
        """Which of the buffers lie in one storage; empty if each has its own."""
        roots: dict[str, int] = {}
        found = [roots.setdefault(self._program.storage_of(n), len(roots)) for n in names]
        return tuple(found) if len(roots) < len(found) else ()


def _written(reader: Loop, source: Loop, program: Program) -> Loop | None:
    target = program.by_name[effects(source).writes[0]]
    body = inlined(reader.body, target, source.body, program.by_name)
    if body is None:
        return None
    new = replace(reader, body=body)
    wrong = [v for v in violations(alone(program, [new])) if v.where == new.name]
    return new if all(v.code == "IR015" for v in wrong) else None
