"""mix-orders: one kernel for a reduction of rows and a reduction of columns over the same data.

before   s = sum(x, rows) ; t = sum(x, columns)              x is read twice
after    mixorder { s = sum(x, rows) ; t = sum(x, columns) }  x is read once
needs    two independent kernels that read the same elements in another order, the rows side
         contiguous and the columns side made of partial results, both large enough to pay
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from treadle.analysis.access import accesses
from treadle.core.context import Ctx
from treadle.core.verdict import YES, Verdict, check_rules, no, yes
from treadle.index import hint
from treadle.ir.program import Fused, Loop, MixOrder, Operation, Program, walk_operations
from treadle.schedule.board import Board
from treadle.schedule.naming import JoinedNames
from treadle.schedule.policy import policy_named
from treadle.schedule.touches import Touch, as_set

PARTIAL = frozenset({"sum", "prod", "max", "min", "any", "all"})
"""Reductions whose partial results can be combined in a second step."""
LEAST_STEPS = 5 << 20
LEAST_ROWS = 4096
MOST_COLUMNS = 16384
LEAST_ON_CPU, LEAST_COLUMNS = 1 << 16, 256
"""Steps from which on a CPU gains: what it reads twice has left the first cache by then. It has no
cores to fill, so that rows need not be many; but with few columns, sums stay in registers."""


@dataclass(frozen=True)
class ReducingSide:
    """A kernel that reduces, with what it reads at every step."""

    op: Operation
    rows: int
    steps: int
    reads: dict[str, list[Touch]]
    kinds: frozenset[str]

    @property
    def columns(self) -> int:
        """Reduction steps per point."""
        return self.steps // max(self.rows, 1)


@dataclass(frozen=True)
class Mix:
    """Two kernels that might read their common data once."""

    board: Board
    by_rows: ReducingSide
    by_columns: ReducingSide
    shared: int


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
    rows, columns = m.by_rows.rows, m.by_rows.columns
    if _is_on_cpu(m.by_rows.op):
        large = rows * columns >= LEAST_ON_CPU and rows > 1 and columns >= LEAST_COLUMNS
    else:
        large = rows * columns >= LEAST_STEPS and rows >= max(LEAST_ROWS, 2 * columns)
    if large and columns <= MOST_COLUMNS:
        return YES
    return no("MIX003", rows=rows, columns=columns)


def is_independent(m: Mix) -> Verdict:
    """MIX004: neither needs the other's results."""
    a, b = (_step(m.board, side.op) for side in (m.by_rows, m.by_columns))
    if m.board.order.reaches(a, b) or m.board.order.reaches(b, a):
        return no("MIX004", rows=m.by_rows.op.name, columns=m.by_columns.op.name)
    return YES


RULES: tuple[Callable[[Mix], Verdict], ...] = (
    reads_rows_straight,
    is_large_and_tall,
    has_partial_results,
    is_independent,
)


def mix_orders(program: Program, ctx: Ctx) -> Program:
    """Let a reduction of rows and one of columns read their common data once."""
    policy = policy_named(ctx.options.policy)
    sides = [s for op in program.ops if (s := _side(op, program)) is not None]
    pairs = list(_pairs(sides))
    if not policy.mix_orders or not pairs:
        return program
    board = Board(program, ctx, policy)
    board.enter_groups(lambda kept, gone: None)
    board.pays = True
    taken: dict[str, str] = {}
    for shared, by_rows, by_columns in sorted(pairs, key=lambda p: -p[0]):
        if by_rows.op.name in taken or by_columns.op.name in taken:
            continue
        verdict = _mixed(Mix(board, by_rows, by_columns, shared))
        ctx.journal.verdict("mix", (by_rows.op.name, by_columns.op.name), verdict)
        if verdict:
            taken[by_rows.op.name] = by_columns.op.name
            taken[by_columns.op.name] = by_rows.op.name
    return _rebuilt(program, board, taken) if taken else program


def _side(op: Operation, program: Program) -> ReducingSide | None:
    """The operation as a side of a mixed kernel, if it reduces and nothing else but loops."""
    if not isinstance(op, Loop | Fused) or not all(isinstance(x, Loop) for x in op.leaves):
        return None
    loops = [leaf for leaf in op.leaves if isinstance(leaf, Loop)]
    reducing = [leaf for leaf in loops if len(leaf.body.reduce)]
    if not reducing:
        return None
    steps = max(leaf.body.space.numel_hint for leaf in reducing)
    if steps < (LEAST_ON_CPU if _is_on_cpu(op) else LEAST_STEPS // 2):
        return None  # far too small: not worth a look at what it reads
    rows = min(hint(leaf.body.domain.numel) for leaf in reducing)
    reads: dict[str, list[Touch]] = {}
    written: set[str] = set()
    kinds: set[str] = set()
    for leaf in loops:
        for access in program.derive(accesses)[leaf.name]:
            if access.is_write:
                written.add(access.storage)
            elif access.storage not in written:
                touch = Touch(access, leaf, program)
                if touch.access_map is not None and hint(touch.level) == steps:
                    reads.setdefault(access.storage, []).append(touch)
        for at in leaf.body.walk():
            if at.stmt.op in ("reduce", "scan", "sort"):
                kinds.add(str(at.stmt.attr("kind")) if at.stmt.op == "reduce" else at.stmt.op)
    return ReducingSide(op, rows, steps, reads, frozenset(kinds))


def _is_on_cpu(op: Operation) -> bool:
    return op.device.partition(":")[0] == "cpu"


def _pairs(sides: list[ReducingSide]) -> Iterator[tuple[int, ReducingSide, ReducingSide]]:
    """Sides that read common elements in different orders, with the bytes in common."""
    readers: dict[tuple[str, object], list[ReducingSide]] = {}
    for side in sides:
        for storage, touches in side.reads.items():
            for t in touches:
                assert t.access_map is not None, "only reads with an access map are kept"
                row = readers.setdefault((storage, as_set(t.access_map)), [])
                if side not in row:
                    row.append(side)
    found: dict[tuple[str, str], tuple[int, ReducingSide, ReducingSide]] = {}
    for (storage, _), row in readers.items():
        for a, b in pairwise(row):
            if a.steps != b.steps or a.columns == b.columns:
                continue
            size = min(t.bytes for t in (*a.reads[storage], *b.reads[storage]))
            by_rows, by_columns = (a, b) if _is_straight(a) else (b, a)
            key = (by_rows.op.name, by_columns.op.name)
            known = found.get(key, (0, by_rows, by_columns))
            found[key] = (known[0] + size, by_rows, by_columns)
    yield from found.values()


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
    return yes("MIX000", bytes=m.shared, peak=verdict.facts["peak"])


def _step(board: Board, op: Operation) -> int:
    return board.group_of(board.deps.position[op.leaves[0].name])


def _rebuilt(program: Program, board: Board, partner: dict[str, str]) -> Program:
    op_of = {board.deps.position[leaf.name]: op for op in program.ops for leaf in op.leaves}
    names = JoinedNames(walk_operations(program.ops))
    ops: list[Operation] = []
    for step in board.final_order():
        parts = list(dict.fromkeys(op_of[k].name for k in step))
        members = tuple([program.op_by_name[n] for n in parts])
        if len(members) == 1:
            ops.append(members[0])
        else:
            ops.append(MixOrder(name=names.of(members), device=members[0].device, members=members))
    ops.extend(op for op in program.ops if not op.leaves)
    return program.with_ops(tuple(ops))
