"""Storages with very many users: who is first and last among them, without looking at all."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.analysis.lives import Storage
from treadle.analysis.sequence import Fringe

_MANY = 64  # more users than this are not scanned on each change, but kept in a Fringe


class Hubs:
    """The fringes of all hubs; a step must `leave` before its place changes and `join` after."""

    __slots__ = ("_of_step", "firsts", "lasts")

    def __init__(
        self, storages: Sequence[Storage], leader: Sequence[int], label: Sequence[int]
    ) -> None:
        self.lasts: dict[int, Fringe] = {}
        self.firsts: dict[int, Fringe] = {}
        self._of_step: dict[int, list[Fringe]] = {}
        for i, storage in enumerate(storages):
            if len(storage.users) <= _MANY:
                continue
            watched = [Fringe(storage.users, lambda user: label[leader[user]])]
            self.lasts[i] = watched[0]
            if storage.producer is not None:
                watched.append(Fringe(storage.users, lambda user: -label[leader[user]]))
                self.firsts[i] = watched[1]
            for step in dict.fromkeys(storage.users):
                self._of_step.setdefault(step, []).extend(watched)

    def leave(self, steps: Sequence[int]) -> None:
        """Forget where these steps stand: their places are about to change."""
        if self._of_step:
            for step in steps:
                for fringe in self._of_step.get(step, ()):
                    fringe.leave(step)

    def join(self, steps: Sequence[int]) -> None:
        """Take in where these steps stand now."""
        if self._of_step:
            for step in steps:
                for fringe in self._of_step.get(step, ()):
                    fringe.join(step)
