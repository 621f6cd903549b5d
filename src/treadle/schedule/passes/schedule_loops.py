"""schedule-loops: decide how the loops of each nest are walked on the machine it is for.

before   nest for i in 512 reduce r in 512: y[i] = sum of x[i, r]
after    nest ... schedule (order i r, bind r to vector)
keeps    everything but the order of points and of additions, which numerics must allow
"""

from __future__ import annotations

from dataclasses import replace

from treadle.core.context import Ctx
from treadle.ir.program import Kernel, Nest, Operation, Program, walk_operations
from treadle.ir.types import Buffer
from treadle.kernel.choose_cpu import choose_steps
from treadle.kernel.choose_gpu import choose_gpu_steps
from treadle.kernel.renest import renest


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
        return replace(op, members=tuple(members)) if self.changed else op

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
        made = renest(nest, self.program, lambda: self._name(f"{nest.name}_total"))
        if made is None:
            return [nest]
        self.changed = True
        self.buffers.extend(made.buffers)
        names = [self._name(f"{nest.name}_{k}") for k in range(len(made.bodies))]
        return [replace(nest, name=n, body=b) for n, b in zip(names, made.bodies, strict=True)]

    def _name(self, wanted: str) -> str:
        found, count = wanted, 1
        while found in self._taken:
            count += 1
            found = f"{wanted}_{count}"
        self._taken.add(found)
        return found
