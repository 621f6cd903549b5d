"""Runs a program with every storage at the bytes a plan gives it, in one arena full of rubbish.

Independent of the runtime: rows of the interpreter are windows onto the arena, or onto the output
or donated input that takes them in. What is born is overwritten with rubbish first and what dies
last, so whoever shares bytes with somebody still alive destroys them.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np
from poisoned_memory import RUBBISH, PoisonedRun
from small_programs import inputs_for

from treadle.index import Symbol
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array
from treadle.memory.from_program import ProgramProblem
from treadle.memory.problem import ARENA, Plan


class PlacedRun(PoisonedRun):
    """One run of a program in the places of a plan."""

    def __init__(
        self, of: ProgramProblem, plan: Plan, sizes: Mapping[Symbol, int], random: Random
    ) -> None:
        super().__init__(of.live, sizes, random)
        self.plan = plan
        self.arena = np.full(plan.height, RUBBISH, np.uint8)
        self.lives = {t.storage: (t.lower, t.upper) for t in of.suballocations}
        self.names = of.steps
        self.takers = set(self.live.in_place_reuse().values())

    def run(self) -> None:
        """Run every step in its place."""
        arrays = inputs_for(self.program, self.memory.sizes)
        for name, array in arrays.items():
            self.memory.elements(name)
            self.memory.tensor(name)[...] = array
            self.memory.define(name)
        with np.errstate(all="ignore"):
            for time, (cell, name) in enumerate(zip(self.live.order(), self.names, strict=True)):
                self._give_places(name)
                self._run_cell(cell, self.takers)
                self._bury(time, name)

    def _give_places(self, step: str) -> None:
        for r in self.ranges.values():
            if r.first != step:
                continue
            place = self.plan.placements.get(r.storage)
            if place is None or place.pool == r.storage:
                self.memory.elements(r.storage)  # an output, or what needs no memory by the plan
            else:
                self.rows[r.storage] = self._window(place.pool, place.offset, r.storage)
            if r.storage not in self.takers:
                self.rows[r.storage].view(np.uint8)[...] = RUBBISH

    def _window(self, pool: str, offset: int, storage: str) -> Array:
        raw = self.arena if pool == ARENA else self.memory.elements(pool).view(np.uint8)
        element = NUMPY_TYPES[self.program.by_name[storage].dtype]
        end = offset + self.memory.layout(storage).span * element.itemsize
        assert end <= raw.size, f"{storage} reaches byte {end} of {pool}, which has {raw.size}"
        return raw[offset:end].view(element)

    def _bury(self, time: int, step: str) -> None:
        for r in self.ranges.values():
            if r.last != step or r.storage not in self.lives:
                continue
            if r.freed and r.storage in self.plan.placements:
                assert self.lives[r.storage][1] == time + 1
                self.rows[r.storage].view(np.uint8)[...] = RUBBISH
