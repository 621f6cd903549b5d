"""mix-orders: one kernel for a reduction of rows and a reduction of columns over the same data.

before   s = sum(x, rows) ; t = sum(x, columns)              x is read twice
after    mixorder { s = sum(x, rows) ; t = sum(x, columns) }  x is read once
before   y = f(x), s = sum(y, rows) ; t = sum(y, columns)    y is written and read again
after    mixorder { s = sum(f(x), rows) ; t = sum(f(x), columns) }   y need not be in memory
needs    two kernels that go through the same elements in another order, the rows side contiguous
         and the columns side made of partial results, both large enough to pay; one may need
         what the other makes of the same element, and columns what rows make of the same row
also     what uses the rows' elements and results at the same place joins them: z = y - s
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from treadle.analysis.access import accesses
from treadle.analysis.cost import work_of
from treadle.analysis.deps import carry_over
from treadle.analysis.kernel_time import kernel_ns, work_of_loop
from treadle.core.context import Ctx
from treadle.core.costs import CostModel
from treadle.core.verdict import YES, Verdict, check_rules, no, yes
from treadle.index import hint
from treadle.ir.change import alone
from treadle.ir.program import (
    Fused,
    Kernel,
    Loop,
    MixOrder,
    Operation,
    Program,
    walk_operations,
)
from treadle.ir.types import Buffer
from treadle.kernel.build import Builder
from treadle.kernel.choose_gpu import keeps_rows
from treadle.kernel.row_chunks import chunk_rows
from treadle.schedule.board import Board
from treadle.schedule.mixed_rows import Followers
from treadle.schedule.naming import JoinedNames
from treadle.schedule.policy import policy_of
from treadle.schedule.profit import PairTimes
from treadle.schedule.touches import Touch, as_set

PARTIAL = frozenset({"sum", "prod", "max", "min", "any", "all"})
"""Reductions whose partial results can be combined in a second step."""
SUM_BYTES = 4
"""Of a partial result."""


@dataclass(frozen=True)
class ReducingSide:
    """A kernel that reduces, with what it reads at every step."""

    op: Operation
    rows: int
    steps: int
    reads: dict[str, list[Touch]]
    makes: dict[str, list[Touch]]
    """What it writes at every step."""
    kinds: frozenset[str]

    @property
    def columns(self) -> int:
        """Reduction steps per point."""
        return self.steps // max(self.rows, 1)


@dataclass(frozen=True)
class Mix:
    """Two kernels that might read their common data once."""

    board: Board
    builder: Builder
    """Tries kernels; it remembers bodies that it has written."""
    by_rows: ReducingSide
    by_columns: ReducingSide
    shared: int
    on_gpu: bool
    cost: CostModel

    def members(self) -> list[Operation]:
        """The two sides, the one that the other needs first."""
        place = self.board.deps.position
        sides = [self.by_rows.op, self.by_columns.op]
        return sorted(sides, key=lambda op: min(place[leaf.name] for leaf in op.leaves))


def reads_rows_straight(m: Mix) -> Verdict:
    """MIX001: one side walks straight through the common data."""
    if _is_straight(m.by_rows):
        return YES
    return no("MIX001", rows=m.by_rows.op.name)


def has_partial_results(m: Mix) -> Verdict:
    """MIX002: the other side's reductions can be made of partial results."""
    wrong = m.by_columns.kinds - PARTIAL
    return YES if not wrong else no("MIX002", reductions=sorted(wrong))


def is_large_and_tall(m: Mix) -> Verdict:
    """MIX003: enough rows to share between cores, rows short enough to be kept."""
    rows, columns, policy = m.by_rows.rows, m.by_rows.columns, m.board.policy
    if m.on_gpu:
        tall = rows >= max(policy.mix_rows, policy.mix_tallness * columns)
        large = rows * columns >= policy.mix_steps and tall
    else:
        wide = rows > 1 and columns >= policy.mix_columns_on_cpu
        large = rows * columns >= policy.mix_steps_on_cpu and wide
    if large and columns <= policy.mix_columns:
        return YES
    return no("MIX003", rows=rows, columns=columns)


def is_one_walk(m: Mix) -> Verdict:
    """MIX004: rows that others have joined can still be walked together with the columns."""
    if _built(m) is not None:
        return YES
    return no("MIX004", rows=m.by_rows.op.name, columns=m.by_columns.op.name)


def know_enough(m: Mix) -> Verdict:
    """MIX004: what one side needs of the other is known at the same element or in the same row."""
    a, b = (_step(m.board, side.op) for side in (m.by_rows, m.by_columns))
    depends = m.board.order.reaches(b, a) or m.board.order.reaches(a, b)
    if not depends or _built(m) is not None:
        return YES
    return no("MIX004", rows=m.by_rows.op.name, columns=m.by_columns.op.name)


def can_be_shared_out(m: Mix) -> Verdict:
    """MIX005: on a GPU, programs have rows of their own, and no two add to the same place."""
    if not m.on_gpu:
        return YES
    nests, count = _built(m), 0

    def name() -> str:
        nonlocal count
        count += 1
        return f"chunk_sums_{count}"

    found = None
    if nests is not None:
        kernel, buffers = nests
        known = alone(m.board.program, kernel.members, {b.name: b for b in buffers})
        found = chunk_rows(kernel.members, known, name)
    if found is not None and keeps_rows(found.nests[1].body):
        return YES
    return no("MIX005", rows=m.by_rows.op.name, columns=m.by_columns.op.name)


def times_of(m: Mix) -> PairTimes:
    """Predicted times of both walks, and of the one that they could be.

    Where rows are as many and as short as MIX003 asks, one walk is never the slower one.
    """
    machine, program = m.cost.machine(m.by_rows.op.device), m.board.program
    moved, work = [], []
    for side in (m.by_rows, m.by_columns):
        moved.append(work_of(program, side.op).bytes)
        work.append(sum(work_of_loop(x) for x in side.op.leaves if isinstance(x, Loop)))
    alone_ns = [
        kernel_ns(machine, b, w, side.rows)
        for b, w, side in zip(moved, work, (m.by_rows, m.by_columns), strict=True)
    ]
    # Each core sums up columns by itself: its sums are written and read once more.
    chunks = min(machine.cores, m.by_rows.rows) if m.on_gpu else 1
    left = 2 * SUM_BYTES * chunks * m.by_columns.rows
    once = max(sum(moved) - m.shared, 0) + left
    together_ns = kernel_ns(machine, once, sum(work), m.by_rows.rows)
    return PairTimes(round(sum(alone_ns)), round(together_ns))


def _built(m: Mix) -> tuple[Kernel, tuple[Buffer, ...]] | None:
    """The mixed kernel and the buffers of its sums; None if one walk does not do."""
    members = m.members()
    mixed = MixOrder(name="mixed", device=members[0].device, members=tuple(members))
    found, buffers = m.builder.tried(mixed)
    if not isinstance(found, Kernel) or found.shape != "mixed":
        return None
    return found, buffers


RULES: tuple[Callable[[Mix], Verdict], ...] = (
    reads_rows_straight,
    is_large_and_tall,
    has_partial_results,
    know_enough,
    can_be_shared_out,
)
BUILDABLE: tuple[Callable[[Mix], Verdict], ...] = (is_one_walk, can_be_shared_out)
"""What is asked again when rows have grown."""


def mix_orders(program: Program, ctx: Ctx) -> Program:
    """Let a reduction of rows and one of columns read their common data once."""
    policy = policy_of(ctx)
    least = min(policy.mix_steps // 2, policy.mix_steps_on_cpu)
    found = [_side(op, program, least) for op in program.ops]
    sides = [side for side in found if side is not None]
    pairs = list(_pairs(sides))
    if not policy.mix_orders or not pairs:
        return program
    board = Board(program, ctx, policy)
    board.enter_groups(lambda kept, gone: None)
    board.pays = True
    followers = Followers(board, ctx)
    builder = Builder(program, lambda *told: None)
    mixes: list[Mix] = []
    taken: set[str] = set()
    for shared, by_rows, by_columns in sorted(pairs, key=lambda p: -p[0]):
        if by_rows.op.name in taken or by_columns.op.name in taken:
            continue
        on_gpu = not by_rows.op.device.startswith("cpu") or ctx.options.code == "triton"
        mix = Mix(board, builder, by_rows, by_columns, shared, on_gpu, ctx.cost)
        verdict = _mixed(mix)
        ctx.journal.verdict("mix", (by_rows.op.name, by_columns.op.name), verdict)
        if verdict:
            taken |= {by_rows.op.name, by_columns.op.name}
            mix = _with_followers(mix, followers, taken, ctx)
            mixes.append(mix)
    return _rebuilt(program, board, mixes) if mixes else program


def _with_followers(mix: Mix, followers: Followers, taken: set[str], ctx: Ctx) -> Mix:
    """The mixed kernel with all that may join its rows; each is heard again after another came."""
    pending = True
    while pending:
        pending = False
        for op in followers.of(mix.by_rows.op, mix.by_columns.op):
            if op.name in taken:
                continue
            rows, columns = mix.by_rows.op, mix.by_columns.op
            verdict = followers.may_join(rows, columns, op)
            if verdict:
                grown = replace(mix.by_rows, op=followers.joined(rows, op))
                larger = replace(mix, by_rows=grown)
                whole = check_rules(BUILDABLE, larger)
                verdict = followers.place(columns, op, verdict) if whole else whole
            ctx.journal.verdict("mix", (rows.name, op.name), verdict)
            if verdict:
                taken.add(op.name)
                mix, pending = larger, True
    return mix


def _side(op: Operation, program: Program, least_steps: int) -> ReducingSide | None:
    """The operation as a side of a mixed kernel, if it reduces and nothing else but loops."""
    if not isinstance(op, Loop | Fused) or not all(isinstance(x, Loop) for x in op.leaves):
        return None
    loops = [leaf for leaf in op.leaves if isinstance(leaf, Loop)]
    reducing = [leaf for leaf in loops if len(leaf.body.reduce)]
    if not reducing:
        return None
    steps = max(leaf.body.space.numel_hint for leaf in reducing)
    if steps < least_steps:
        return None  # far too small: not worth a look at what it reads
    rows = min(hint(leaf.body.domain.numel) for leaf in reducing)
    reads: dict[str, list[Touch]] = {}
    makes: dict[str, list[Touch]] = {}
    written: set[str] = set()
    kinds: set[str] = set()
    for leaf in loops:
        for access in program.derive(accesses)[leaf.name]:
            to = makes if access.is_write else reads
            if access.is_write:
                written.add(access.storage)
            elif access.storage in written:
                continue
            touch = Touch(access, leaf, program)
            if touch.access_map is not None and hint(touch.level) == steps:
                to.setdefault(access.storage, []).append(touch)
        for at in leaf.body.walk():
            if at.stmt.op in ("reduce", "scan", "sort"):
                kinds.add(str(at.stmt.attr("kind")) if at.stmt.op == "reduce" else at.stmt.op)
    return ReducingSide(op, rows, steps, reads, makes, frozenset(kinds))


def _pairs(sides: list[ReducingSide]) -> Iterator[tuple[int, ReducingSide, ReducingSide]]:
    """Sides that go through common elements in different orders, with the bytes that saves."""
    users: dict[tuple[str, object], list[ReducingSide]] = {}
    for side in sides:
        for storage, t in _all_touches(side):
            assert t.access_map is not None, "only touches with an access map are kept"
            row = users.setdefault((storage, as_set(t.access_map)), [])
            if side not in row:
                row.append(side)
    found: dict[tuple[str, str], tuple[int, ReducingSide, ReducingSide]] = {}
    for (storage, _), row in users.items():
        for a, b in pairwise(row):
            if a.steps != b.steps:
                continue
            # Over a square the loops look alike: there the steps through memory tell.
            if a.columns == b.columns and _is_straight(a) == _is_straight(b):
                continue
            own = [t for side in (a, b) for name, t in _all_touches(side) if name == storage]
            # What one of them makes is neither written nor read, if nobody else wants it.
            size = min(t.bytes for t in own) * (2 if any(t.is_write for t in own) else 1)
            by_rows, by_columns = (a, b) if _is_straight(a) else (b, a)
            key = (by_rows.op.name, by_columns.op.name)
            known = found.get(key, (0, by_rows, by_columns))
            found[key] = (known[0] + size, by_rows, by_columns)
    yield from found.values()


def _all_touches(side: ReducingSide) -> Iterator[tuple[str, Touch]]:
    for touches in (side.reads, side.makes):
        for storage, several in touches.items():
            for t in several:
                yield storage, t


def _is_straight(side: ReducingSide) -> bool:
    """Whether every step reads the element behind the one before."""
    for touches in side.reads.values():
        for t in touches:
            assert t.access_map is not None, "only reads with an access map are kept"
            inner = t.access_map.domain.vars[-1] if len(t.access_map.domain) else None
            stride = None if inner is None else t.access_map.stride(inner)
            if stride is not None and stride.value not in (0, 1):
                return False
    return True


def _mixed(m: Mix) -> Verdict:
    verdict = check_rules(RULES, m)
    if not verdict:
        return no(verdict.code, **verdict.facts, bytes=m.shared)
    a, b = (_step(m.board, side.op) for side in (m.by_rows, m.by_columns))
    verdict = m.board.acyclic(a, b)
    if verdict:
        first, second = (a, b) if m.board.before(a, b) else (b, a)
        verdict = m.board.place(first, second, worth=m.shared)
    if not verdict:
        return no(verdict.code, **verdict.facts, bytes=m.shared)
    m.board.join(a, b)
    return yes("MIX000", bytes=m.shared, peak=verdict.facts["peak"], **times_of(m)._asdict())


def _step(board: Board, op: Operation) -> int:
    return board.group_of(board.deps.position[op.leaves[0].name])


def _rebuilt(program: Program, board: Board, mixes: list[Mix]) -> Program:
    names = JoinedNames(walk_operations(program.ops))
    place = board.deps.position
    op_of = {place[leaf.name]: op for op in program.ops for leaf in op.leaves}
    mix_of = {place[x.leaves[0].name]: m for m in mixes for x in (m.by_rows.op, m.by_columns.op)}
    ops: list[Operation] = []
    for step in board.final_order():
        mix = next((mix_of[k] for k in step if k in mix_of), None)
        if mix is None:
            ops.append(op_of[step[0]])
            continue
        sides = []
        for side in mix.members():
            has_grown = side is not program.op_by_name[side.name]
            sides.append(replace(side, name=names.of(side.leaves)) if has_grown else side)
        ops.append(MixOrder(name=names.of(sides), device=sides[0].device, members=tuple(sides)))
    ops.extend(op for op in program.ops if not op.leaves)
    mixed = program.with_ops(tuple(ops))
    carry_over(program, mixed)
    return mixed
