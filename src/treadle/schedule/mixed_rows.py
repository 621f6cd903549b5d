"""What joins the rows of a mixed kernel after rows and columns have become one.

    y = f(x), s = sum(y, rows) ; t = sum(y, columns) ; z = y - s
    ->   mixorder { fused { y, s, z } ; t }        y is in no memory any more

Before the two were one, z could not join the rows without an y that columns still want beside it:
that is two arrays alive where there was one, which the peak forbids. Together there is none.
"""

from __future__ import annotations

from functools import cached_property

from treadle.analysis.inplace import boundary
from treadle.core.context import Ctx
from treadle.core.verdict import Verdict, check_rules, no, yes
from treadle.ir.effects import effects
from treadle.ir.program import Fused, Loop, Operation
from treadle.kernel.space import joined
from treadle.schedule.board import Board
from treadle.schedule.kernels import KernelDraft, storages_shared
from treadle.schedule.profit import is_faster, worth_in_memory
from treadle.schedule.rules.chain import RULES
from treadle.schedule.rules.pair import Pair
from treadle.schedule.savings import Surroundings, saved_bytes


class Followers:
    """Kernels that use what a mixed kernel's rows make or read, asked whether they may join."""

    def __init__(self, board: Board, ctx: Ctx) -> None:
        self.board, self.ctx, self.program = board, ctx, board.program
        self._drafts: dict[tuple[str, ...], KernelDraft | None] = {}

    @cached_property
    def around(self) -> Surroundings:
        """Who else uses a storage, and which the caller sees."""
        edge = self.program.derive(boundary)
        return Surroundings.of(self.board.deps, edge, self.board.policy.nests)

    def of(self, rows: Operation, columns: Operation) -> list[Operation]:
        """Kernels of loops alone that need a result of the two."""
        made = self._writes(rows) | self._writes(columns)
        places = {k for storage in made for k in self._readers.get(storage, ())}
        return [self.program.ops[k] for k in sorted(places)]

    @cached_property
    def _readers(self) -> dict[str, list[int]]:
        """For each storage the places of the kernels of loops alone that read it."""
        found: dict[str, list[int]] = {}
        for k, op in enumerate(self.program.ops):
            if isinstance(op, Loop | Fused) and all(isinstance(x, Loop) for x in op.leaves):
                for storage in {
                    self.program.storage_of(n) for x in op.leaves for n in effects(x).reads
                }:
                    found.setdefault(storage, []).append(k)
        return found

    def may_join(self, rows: Operation, columns: Operation, op: Operation) -> Verdict:
        """Whether it may be one with the rows by the rules of fusion, and what that saves."""
        if (self._writes(columns) & self._touched(op)) or (
            self._writes(op) & self._touched(columns)
        ):
            return no("MIX004", rows=op.name, columns=columns.name)
        one, other = self._draft(rows), self._draft(op)
        if one is None or other is None:
            return no("FUS004", left=rows.name, right=op.name)
        shared = tuple(storages_shared(one, other))
        pair = Pair.of(self.program, self.board.policy, self.ctx.cost, one, other, shared)
        verdict = check_rules(RULES, pair)
        score = saved_bytes(one, other, shared, self.around)
        if verdict and score <= 0:
            verdict = no("FUS012")
        verdict = verdict and is_faster(pair, score)
        return (yes if verdict else no)(verdict.code, **{**verdict.facts, "bytes": score})

    def place(self, columns: Operation, op: Operation, fits: Verdict) -> Verdict:
        """Put it where the mixed kernel stands, within the peak budget."""
        a, b = (self._step(x) for x in (columns, op))
        verdict = self.board.acyclic(a, b)
        if verdict:
            first, second = (a, b) if self.board.before(a, b) else (b, a)
            saved = fits.facts["bytes"]
            assert isinstance(saved, int), "what may join says what it saves"
            worth = worth_in_memory(saved, self.ctx.cost.machine(op.device))
            verdict = self.board.place(first, second, worth=worth)
        if not verdict:
            return no(verdict.code, **verdict.facts, bytes=fits.facts["bytes"])
        self.board.join(a, b)
        return yes("MIX000", bytes=fits.facts["bytes"], peak=verdict.facts["peak"])

    def joined(self, rows: Operation, op: Operation) -> Fused:
        """The rows with one more kernel, in the order of the program."""
        place = self.board.deps.position
        leaves = sorted((*rows.leaves, *op.leaves), key=lambda leaf: place[leaf.name])
        return Fused(name=rows.name, device=rows.device, members=tuple(leaves))

    def _writes(self, op: Operation) -> set[str]:
        return {self.program.storage_of(n) for x in op.leaves for n in effects(x).writes}

    def _touched(self, op: Operation) -> set[str]:
        return {self.program.storage_of(n) for x in op.leaves for n in effects(x).touched}

    def _step(self, op: Operation) -> int:
        return self.board.group_of(self.board.deps.position[op.leaves[0].name])

    def _draft(self, op: Operation) -> KernelDraft | None:
        """The kernel as the rules see it; None if its loops have no space in common."""
        key = tuple([leaf.name for leaf in op.leaves])
        if key not in self._drafts:
            self._drafts[key] = self._new_draft(op)
        return self._drafts[key]

    def _new_draft(self, op: Operation) -> KernelDraft | None:
        found: KernelDraft | None = None
        for leaf in op.leaves:
            one = KernelDraft(self.board.deps.position[leaf.name], leaf, self.program)
            if found is None:
                found = one
                continue
            space = joined(found.space, one.space, self.board.policy.nests)
            if space is None:
                return None
            found.absorb(one, space)
        return found
