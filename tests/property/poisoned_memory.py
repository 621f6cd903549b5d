"""Runs a program in exactly the memory that a `Liveness` grants it, and poisons what it frees.

A storage gets a row of bytes when the engine says that it is allocated, lives in the very bytes of
another where the engine hands those over, and is overwritten with rubbish when it is freed. Loops
that take over a block run point by point in random order, as parallel hardware would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
from small_programs import EXTERNS, inputs_for

from treadle.analysis.liveness import Liveness, LiveRange
from treadle.index import Domain, Kind, Symbol, evaluate, substitute
from treadle.ir.change import map_indices
from treadle.ir.effects import effects
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array
from treadle.ir.interp.loops import run_loop
from treadle.ir.interp.machine import RUNNERS
from treadle.ir.interp.memory import Memory
from treadle.ir.program import Loop, Operation, Program

RUBBISH = 0x5B


class PoisonedRun:
    """One run of a program in the order and the memory of a `Liveness`."""

    def __init__(self, live: Liveness, sizes: Mapping[Symbol, int], random: Random) -> None:
        self.live, self.program, self.random = live, live.program, random
        self.memory = Memory(live.program, sizes, poisoned=True)
        self.rows = self.memory._rows
        self.blocks: dict[str, Array] = {}
        self.ranges = {r.storage: r for r in live.ranges()}

    def run(self) -> None:
        """Run every step; what is live must be what the curve says, before and after frees."""
        self._begin()
        curve = self.live.curve()
        with np.errstate(all="ignore"):
            for cell, (name, during, after) in zip(self.live.order(), curve, strict=True):
                taken = self._allocate(name)
                assert self._bytes() == during, f"during {name}"
                self._run_cell(cell, taken)
                self._free(name)
                assert self._bytes() == after, f"after {name}"

    def cells(self, name: str) -> bytes:
        """The bytes of a storage at the end."""
        return self.rows[name].tobytes()

    # -- memory ----------------------------------------------------------------------------
    def _bytes(self) -> int:
        return sum(row.nbytes for row in self.blocks.values())

    def _begin(self) -> None:
        arrays = inputs_for(self.program, self.memory.sizes)
        for name, array in arrays.items():
            if self.ranges[name].block is not None:
                self.blocks[name] = self.memory.elements(name)
                self.memory.tensor(name)[...] = array
            self.memory.define(name)

    def _allocate(self, step: str) -> set[str]:
        """Give what begins here its bytes; which of it lives in those of another."""
        taken: set[str] = set()
        born = [r for r in self.ranges.values() if r.first == step]
        # A chain of takers in one step: whoever gives comes before whoever takes.
        reused_by = self.live.in_place_reuse()
        for r in sorted(born, key=lambda r: _links_to(r.storage, reused_by), reverse=True):
            assert r.storage not in self.rows, f"{r.storage} is allocated twice"
            row = self.memory.elements(r.storage)
            if r.block == r.storage:
                self.blocks[r.storage] = row
            elif r.block is not None:
                taken.add(r.storage)
                self.rows[r.storage] = self._lodger(self.blocks[r.block], r)
        return taken

    def _lodger(self, host: Array, r: LiveRange) -> Array:
        element = NUMPY_TYPES[self.program.by_name[r.storage].dtype]
        assert host.itemsize == element.itemsize, "a block of another width was handed over"
        raw = host.view(np.uint8)
        assert r.bytes <= raw.size, f"{r.storage} does not fit into {r.block}"
        return raw[: r.bytes].view(element)

    def _free(self, step: str) -> None:
        for r in self.ranges.values():
            if r.last != step:
                continue
            if r.freed:
                assert r.block is not None
                self.blocks.pop(r.block).view(np.uint8)[...] = RUBBISH
            if r.freed or r.block is None or r.storage in self.live.in_place_reuse():
                self.rows.pop(r.storage, None)

    # -- steps -----------------------------------------------------------------------------
    def _run_cell(self, cell: tuple[str, ...], taken: set[str]) -> None:
        ops = [self.program.op_by_name[name] for name in cell]
        for op in ops:
            tensors = touched_storages(self.program, op) & self.ranges.keys()
            assert tensors <= self.rows.keys(), f"{op.name} touches {tensors - self.rows.keys()}"
        loops = [op for op in ops if isinstance(op, Loop) and not _is_ordered(op)]
        if taken and len(loops) == len(ops) and not self._depend(cell):
            self._run_by_points(loops)
            return
        for op in ops:
            if op in loops and taken & touched_storages(self.program, op):
                self._run_by_points([op])
            else:
                RUNNERS[type(op)](op, self.memory, EXTERNS)

    def _depend(self, cell: tuple[str, ...]) -> bool:
        """Whether one of several operations must follow another of them."""
        deps = self.live.deps
        here = {deps.position[name] for name in cell}
        return any(d.source in here for k in here for d in deps.into[k])

    def _run_by_points(self, ops: Sequence[Loop]) -> None:
        """All points of all operations in one shuffle, as a kernel may run them."""
        points = [p for op in ops for p in one_point_loops(op, self.memory.sizes)]
        self.random.shuffle(points)
        for point in points:
            run_loop(point, self.memory)
        for op in ops:
            for name in effects(op).writes:
                self.memory.define(name)  # also where there was no point to run


def _links_to(storage: str, reused_by: Mapping[str, str]) -> int:
    """How many take the block after this one: those with more must come first."""
    count = 0
    while storage in reused_by:
        storage, count = reused_by[storage], count + 1
    return count


def _is_ordered(op: Loop) -> bool:
    """Whether the order of points shows: sums round once over all points, a scatter's last wins."""
    return any(
        mode != "plain" or any(s.kind is Kind.INDIRECT for s in index.free)
        for _, index, mode, _ in op.body.stores()
    )


def one_point_loops(op: Loop, sizes: Mapping[Symbol, int]) -> Iterator[Loop]:
    """The loop cut into one operation for each point of its iteration loops."""
    loops = op.body.domain
    for at in product(*[range(evaluate(n, sizes)) for n in loops.extents]):
        values = dict(zip(loops.vars, at, strict=True))
        body = map_indices(op.body, lambda e, values=values: substitute(e, values))
        yield replace(op, body=replace(body, domain=Domain()))


def touched_storages(program: Program, op: Operation) -> set[str]:
    """The storages an operation touches."""
    return {program.storage_of(n) for n in effects(op).touched}
