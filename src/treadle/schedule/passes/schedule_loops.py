"""schedule-loops: decide how the loops of each nest are walked on the machine it is for.

before   nest for i in 512 reduce r in 512: y[i] = sum of x[i, r]
after    nest ... schedule (order i r, bind r to vector)
keeps    everything but the order of points and of additions, which numerics must allow
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from treadle.core.context import Ctx
from treadle.index import hint
from treadle.ir.change import alone
from treadle.ir.effects import effects
from treadle.ir.picked_sums import with_picked_sums
from treadle.ir.plain_scans import with_plain_scans
from treadle.ir.program import Kernel, Nest, Operation, Program, walk_operations
from treadle.ir.types import Buffer
from treadle.kernel.checked_first import checked_first
from treadle.kernel.choose_cpu import takes_long
from treadle.kernel.choose_gpu import (
    BUSY_PROGRAMS,
    IN_CHUNKS,
    choose_gpu_steps,
    keeps_rows,
    programs_of,
    short_columns,
)
from treadle.kernel.cooperate import columns_first, cooperate, rows_leave_parts
from treadle.kernel.fission import fission
from treadle.kernel.like_choices import LikeChoices
from treadle.kernel.one_row import as_one_row
from treadle.kernel.online import with_online_sums
from treadle.kernel.pieces import in_pieces
from treadle.kernel.renest import Renested, renest, sums_across
from treadle.kernel.row_chunks import CPU_CHUNKS, chunk_rows
from treadle.kernel.short_lines import in_short_lines
from treadle.kernel.single_steps import without_single_steps
from treadle.kernel.sums_apart import sums_apart
from treadle.kernel.two_orders import two_orders
from treadle.schedule.passes.merge_loops import straight
from treadle.schedule.policy import policy_of

AnyMember = TypeVar("AnyMember", bound=Operation)
ROW_AT_ONCE = 16
"""How many times the points a row has, as against a column, before programs share it."""


def schedule_loops(program: Program, ctx: Ctx) -> Program:
    """Give every nest a loop schedule."""
    found = _Scheduling(program, ctx)
    ops = tuple([found.operation(op) for op in program.ops])
    buffers = (*program.buffers, *found.made())
    return replace(program, buffers=buffers).with_ops(ops) if found.changed else program


class _Scheduling:
    """Schedules the nests of one program."""

    def __init__(self, program: Program, ctx: Ctx) -> None:
        self.program, self.ctx = program, ctx
        policy = policy_of(ctx)
        self.fewest = policy.share_out_points
        self._made: dict[str, Buffer] = {}
        self._choices = LikeChoices()
        self.changed = False
        self._taken = {b.name for b in program.buffers}
        self._taken |= {op.name for op in walk_operations(program.ops)}

    def _known(self, nest: Nest) -> Program:
        """The program; over the nest's buffers alone, if some were made for it on the way."""
        if self._made.keys().isdisjoint(effects(nest).touched):
            return self.program
        return alone(self.program, [nest], self._made)

    def made(self) -> tuple[Buffer, ...]:
        """The buffers that nests were given on the way."""
        return tuple(self._made.values())

    def _note(self, buffers: Iterable[Buffer]) -> None:
        self._made.update((b.name, b) for b in buffers)

    def operation(self, op: Operation) -> Operation:
        """A kernel with schedules; anything else as it is."""
        if not isinstance(op, Kernel):
            return op
        members = [one for m in self._chunked(op) for one in self._member(m)]
        if not self.changed:
            return op
        # Nests that were taken apart follow each other; members of a foreach know no order.
        several = op.shape == "foreach" and len(members) > len(op.members)
        shape = "mixed" if several else op.shape
        return replace(op.with_members(tuple(members)), shape=shape)

    def _chunked(self, op: Kernel) -> Sequence[Operation]:
        """The members, rows and columns of one walk in chunks that programs share out."""
        is_fitting = op.shape == "mixed" and self.program.numerics.reassociation
        if not is_fitting or len({self._is_for_triton(m) for m in op.members}) > 1:
            return op.members
        if any(isinstance(m, Nest) and m.schedule for m in op.members):
            return op.members
        return self._in_chunks(op.name, op.members, self.program)

    def _in_chunks(
        self, name: str, members: Sequence[AnyMember], program: Program
    ) -> Sequence[AnyMember | Nest]:
        """Nests that begin, walk and end rows and columns, in chunks if that may be."""
        on_cpu = not self._is_for_triton(members[0])
        if on_cpu and program.numerics.accumulation == "exact":
            return members
        made = chunk_rows(tuple(members), program, partial(self._name, f"{name}_chunks"), on_cpu)
        if made is None:
            return members
        self._note(made.buffers)
        self.changed = True
        return made.nests

    def _member(self, op: Operation) -> list[Operation]:
        if not isinstance(op, Nest) or op.schedule:
            return [op]
        nests = self._renested(self._picked(op))
        found: list[Operation] = []
        for nest in nests:
            choose = choose_gpu_steps if self._is_for_triton(nest) else self._choices.steps
            steps, verdict = choose(nest, self._known(nest))
            if self.ctx.journal.enabled:
                self.ctx.journal.verdict("schedule-loops", (nest.name,), verdict)
            self.changed = self.changed or bool(steps)
            found.append(replace(nest, schedule=steps) if steps else nest)
        return found

    def _is_for_triton(self, nest: Operation) -> bool:
        return nest.device.partition(":")[0] == "cuda" or self.ctx.options.code == "triton"

    def _renested(self, nest: Nest) -> list[Nest]:
        """The nest itself, or the rows and totals it is made of."""
        if not self.program.numerics.reassociation:
            return [nest]
        total = partial(self._name, f"{nest.name}_total")
        if self._is_for_triton(nest):
            nest = self._one_row(nest)
        # Rows that are summed up across memory are columns, which a nest of their own may walk so.
        is_across = not self._is_for_triton(nest) and sums_across(nest.body)
        if self._is_for_triton(nest):
            made = rows_leave_parts(nest, self.program, total)
            made = made or sums_apart(nest, self.program, total)
        else:
            made = None if is_across else renest(nest, self.program, total)
        if made is None and not self._is_for_triton(nest):
            # Sums within sums would be walked as they stand, one step after the other.
            made = two_orders(nest, self.program, total) or self._sums_apart(nest, total)
            made = made or self._for_threads(nest)
            if made is None and is_across:
                made = renest(nest, self.program, total)
        nests = [nest] if made is None else self._parts(nest, made)
        if not self._is_for_triton(nest):
            if made is not None:
                known = alone(self.program, nests, self._made)
                nests = [*self._in_chunks(nest.name, nests, known)]
            checked = [part for one in nests for part in self._checked_first(one)]
            return [part for one in checked for part in self._pieces(one)]
        return [part for one in nests for part in self._shared_out(self._in_one_walk(one))]

    def _sums_apart(self, nest: Nest, name: Callable[[], str]) -> Renested | None:
        """A nest for the sums over the same loops, which may follow each other in memory then."""
        made = sums_apart(nest, self.program, name)
        return None if made is None else made._replace(bodies=tuple(map(straight, made.bodies)))

    def _for_threads(self, nest: Nest) -> Renested | None:
        """A long reduction of few results in chunks, however many threads there are."""
        if self.program.numerics.accumulation == "exact" or not takes_long(nest, self.program):
            return None
        points, part = hint(nest.body.domain.numel), partial(self._name, f"{nest.name}_part")
        return cooperate(nest, self.program, part, points, CPU_CHUNKS[0], 1, masks=False)

    def _checked_first(self, nest: Nest) -> list[Nest]:
        """The nest, or one that checks its indices and one that then cannot stop."""
        bodies = checked_first(nest, self._known(nest))
        return [nest] if bodies is None else self._parts(nest, Renested(bodies, ()))

    def _pieces(self, nest: Nest) -> list[Nest]:
        """The nest, or pieces of it in each of which vectors load what lies side by side."""
        short = in_short_lines(nest, self._known(nest))
        if short is not None:
            self.changed, nest = True, replace(nest, body=short)
        bodies = in_pieces(nest, self._known(nest))
        return [nest] if bodies is None else self._parts(nest, Renested(bodies, ()))

    def _one_row(self, nest: Nest) -> Nest:
        """The nest with one inner loop, if it scans."""
        found = as_one_row(nest, self._known(nest))
        self.changed = self.changed or found is not nest
        return found

    def _picked(self, nest: Nest) -> Nest:
        """The nest without sums of one term or a single step, and positions nobody asks for."""
        if not self.program.numerics.reassociation:
            return nest
        body = with_picked_sums(nest.body, self._known(nest).by_name)
        if not self._is_for_triton(nest):
            body = with_plain_scans(without_single_steps(body, self._known(nest).by_name))
        self.changed = self.changed or body is not nest.body
        return nest if body is nest.body else replace(nest, body=body)

    def _in_one_walk(self, nest: Nest) -> Nest:
        """Long rows, whose softmax would walk through memory once more."""
        if keeps_rows(nest.body) or hint(nest.body.domain.numel) < BUSY_PROGRAMS // 4:
            return nest  # it is read once, or rows are cut into chunks
        body = with_online_sums(nest.body, self._known(nest).by_name)
        self.changed = self.changed or body is not nest.body
        return replace(nest, body=body)

    def _shared_out(self, nest: Nest) -> list[Nest]:
        """A reduction of few results as chunks for many programs, and what puts them together."""
        program = self._known(nest)
        name = partial(self._name, f"{nest.name}_part")
        columns = self._columns_first(nest, program)
        if columns is not None:
            return [part for one in self._parts(nest, columns) for part in self._shared_out(one)]
        programs = programs_of(nest, program)
        # One program has a row that it keeps in no time; columns it would walk step by step.
        _, chosen = choose_gpu_steps(nest, program)
        if chosen.facts.get("shape") == IN_CHUNKS:
            return [nest]  # it is shared out by rows
        is_row = chosen.facts.get("shape") == "rows"
        fewest = self.fewest * (ROW_AT_ONCE if is_row else 1)
        made = cooperate(nest, program, name, programs, BUSY_PROGRAMS, fewest)
        if made is not None:
            return self._parts(nest, made)
        if programs >= BUSY_PROGRAMS // 4 or hint(nest.body.reduce.numel) < fewest:
            return [nest]
        apart = fission(nest, program, partial(self._name, f"{nest.name}_sum"))
        if apart is None:
            return [nest]
        return [part for one in self._parts(nest, apart) for part in self._shared_out(one)]

    def _columns_first(self, nest: Nest, program: Program) -> Renested | None:
        """The nest with a sum for each step of a short loop along memory, if that helps."""
        if hint(nest.body.reduce.numel) < self.fewest:
            return None
        short = short_columns(nest, program)
        if short is None:
            return None
        part = partial(self._name, f"{nest.name}_part")
        found = columns_first(nest, program, part, short)
        if found is not None:
            return found
        return fission(nest, program, partial(self._name, f"{nest.name}_sum"))

    def _parts(self, nest: Nest, made: Renested) -> list[Nest]:
        self.changed = True
        self._note(made.buffers)
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
