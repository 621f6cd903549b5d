"""schedule-loops: decide how the loops of each nest are walked on the machine it is for.

before   nest for i in 512 reduce r in 512: y[i] = sum of x[i, r]
after    nest ... schedule (order i r, bind r to vector)
keeps    everything but the order of points and of additions, which numerics must allow
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from treadle.core.context import Ctx
from treadle.index import hint
from treadle.ir.program import Kernel, Nest, Operation, Program, walk_operations
from treadle.ir.types import Buffer
from treadle.kernel.choose_cpu import choose_steps
from treadle.kernel.choose_gpu import BUSY_PROGRAMS, choose_gpu_steps, programs_of
from treadle.kernel.cooperate import FEWEST_POINTS, cooperate
from treadle.kernel.fission import fission
from treadle.kernel.renest import Renested, renest
from treadle.kernel.two_orders import two_orders


def schedule_loops(program: Program, ctx: Ctx) -> Program:
    """Give every nest a loop schedule."""
    found = _Scheduling(program, ctx)
    ops = tuple([found.operation(op) for op in program.ops])
    buffers = (*program.buffers, *found.buffers)
    return replace(program, buffers=buffers).with_ops(ops) if found.changed else program


class _Scheduling:
    """Schedules the nests of one program."""

    def __init__(self, program: Program, ctx: Ctx) -> None:
        self.program, self.ctx = program, ctx
        self.buffers: list[Buffer] = []
        self.changed = False
        self._taken = {b.name for b in program.buffers}
        self._taken |= {op.name for op in walk_operations(program.ops)}

    def operation(self, op: Operation) -> Operation:
        """A kernel with schedules; anything else as it is."""
        if not isinstance(op, Kernel):
            return op
        members = [one for m in op.members for one in self._member(m)]
        if not self.changed:
            return op
        # Nests that were taken apart follow each other; members of a foreach know no order.
        several = op.shape == "foreach" and len(members) > len(op.members)
        return replace(op, members=tuple(members), shape="mixed" if several else op.shape)

    def _member(self, op: Operation) -> list[Operation]:
        if not isinstance(op, Nest) or op.schedule:
            return [op]
        nests = self._renested(op)
        found: list[Operation] = []
        program = replace(self.program, buffers=(*self.program.buffers, *self.buffers))
        for nest in nests:
            choose = choose_gpu_steps if self._is_for_triton(nest) else choose_steps
            steps, verdict = choose(nest, program)
            if self.ctx.journal.enabled:
                self.ctx.journal.verdict("schedule-loops", (nest.name,), verdict)
            self.changed = self.changed or bool(steps)
            found.append(replace(nest, schedule=steps) if steps else nest)
        return found

    def _is_for_triton(self, nest: Nest) -> bool:
        return nest.device.partition(":")[0] == "cuda" or self.ctx.options.code == "triton"

    def _renested(self, nest: Nest) -> list[Nest]:
        """The nest itself, or the rows and totals it is made of."""
        if not self.program.numerics.reassociation:
            return [nest]
        total = partial(self._name, f"{nest.name}_total")
        made = renest(nest, self.program, total)
        if made is None and not self._is_for_triton(nest):
            made = two_orders(nest, self.program, total)
        nests = [nest] if made is None else self._parts(nest, made)
        if not self._is_for_triton(nest):
            return nests
        return [part for one in nests for part in self._shared_out(one)]

    def _shared_out(self, nest: Nest) -> list[Nest]:
        """A reduction of few results as chunks for many programs, and what puts them together."""
        program = replace(self.program, buffers=(*self.program.buffers, *self.buffers))
        name = partial(self._name, f"{nest.name}_part")
        programs = programs_of(nest, program)
        made = cooperate(nest, program, name, programs, BUSY_PROGRAMS)
        if made is not None:
            return self._parts(nest, made)
        if programs >= BUSY_PROGRAMS // 4 or hint(nest.body.reduce.numel) < FEWEST_POINTS:
            return [nest]
        apart = fission(nest, program, partial(self._name, f"{nest.name}_sum"))
        if apart is None:
            return [nest]
        return [part for one in self._parts(nest, apart) for part in self._shared_out(one)]

    def _parts(self, nest: Nest, made: Renested) -> list[Nest]:
        self.changed = True
        self.buffers.extend(made.buffers)
        # The last one has the results, and the name by which others know who made them.
        names = [self._name(f"{nest.name}_{k}") for k in range(len(made.bodies) - 1)]
        names.append(nest.name)
        return [replace(nest, name=n, body=b) for n, b in zip(names, made.bodies, strict=True)]

    def _name(self, wanted: str) -> str:
        found, count = wanted, 1
        while found in self._taken:
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add(found)
        return found
