"""combine-launches: run independent small kernels in one launch.

before   a = f(x) ; b = g(y)                     two launches
after    foreach { a = f(x) ; b = g(y) }         one
needs    the same device and kind, no dependence between them, the peak in budget, and kernels so
         short that a launch is more than a hundredth of their time; fills of one shape always
"""

from __future__ import annotations

from treadle.analysis.cost import Roofline, work_of
from treadle.analysis.deps import dependences
from treadle.core.context import Ctx
from treadle.core.verdict import Verdict, no, yes
from treadle.ir.effects import effects
from treadle.ir.program import Foreach, Fused, Loop, Operation, Program
from treadle.schedule.board import Board
from treadle.schedule.policy import policy_named
from treadle.schedule.shapes import Space, space_of

WORTH = 0.01
"""A launch that is a smaller share of a kernel's time is not worth sharing."""


def combine_launches(program: Program, ctx: Ctx) -> Program:
    """Let kernels of one level share a launch."""
    policy = policy_named(ctx.options.policy)
    if policy.combine <= 1:
        return program
    model = Roofline(program)
    small = [op for op in program.ops if _is_small(op, model) or isinstance(_kind(op), Space)]
    batches = _batches(program, small) if len(small) > 1 else []
    if not batches:
        return program
    board = Board(program, ctx, policy)
    board.enter_groups(lambda kept, gone: None)
    found: dict[int, list[Operation]] = {}
    for batch in batches:
        for host, members in _combined(batch, board, ctx, policy.combine):
            found[host] = members
    if not any(len(members) > 1 for members in found.values()):
        return program
    return _rebuilt(program, board, found)


def _is_small(op: Operation, model: Roofline) -> bool:
    if not all(isinstance(leaf, Loop) for leaf in op.leaves) or not isinstance(op, Loop | Fused):
        return False
    device = model.device_of(op)
    moved = work_of(model.program, op).bytes / device.gigabytes_per_second
    return device.launch_ns >= WORTH * (moved + device.launch_ns)


def _batches(program: Program, small: list[Operation]) -> list[list[Operation]]:
    """Kernels of one level of the dependence graph, on one device, with or without reductions.

    Kernels of one level do not depend on each other.
    """
    deps = dependences(program)
    owner = [0] * len(deps.names)
    for k, op in enumerate(program.ops):
        for leaf in op.leaves:
            owner[deps.position[leaf.name]] = k
    # The program's order is valid, so every source has its level before its targets ask for it.
    level = [0] * len(program.ops)
    for position, name in enumerate(deps.names):
        mine = owner[position]
        for d in deps.into[deps.position[name]]:
            other = owner[d.source]
            if other != mine:
                level[mine] = max(level[mine], level[other] + 1)
    at = {op.name: level[k] for k, op in enumerate(program.ops)}
    rows: dict[tuple[object, ...], list[Operation]] = {}
    for op in small:
        rows.setdefault((at[op.name], op.device, _kind(op)), []).append(op)
    return [row for row in rows.values() if len(row) > 1]


def _kind(op: Operation) -> object:
    """What may share a launch: reductions, pointwise kernels, and fills of one shape."""
    if isinstance(op, Loop) and not effects(op).reads and not len(op.body.reduce):
        return space_of(op)
    return any(isinstance(leaf, Loop) and len(leaf.body.reduce) for leaf in op.leaves)


def _combined(
    batch: list[Operation], board: Board, ctx: Ctx, limit: int
) -> list[tuple[int, list[Operation]]]:
    """The launches of a batch: each kernel joins the open launch if everything allows it."""
    launches: list[tuple[int, list[Operation]]] = []
    host: Operation | None = None
    members: list[Operation] = []
    for op in batch:
        if host is None or len(members) >= limit:
            host, members = op, [op]
            launches.append((board.deps.position[op.leaves[0].name], members))
            continue
        verdict = _joins(host, members, op, board)
        ctx.journal.verdict("combine", (host.name, op.name), verdict)
        if verdict:
            members.append(op)
        else:
            host, members = op, [op]
            launches.append((board.deps.position[op.leaves[0].name], members))
    return launches


def _joins(host: Operation, members: list[Operation], op: Operation, board: Board) -> Verdict:
    """COM001 no shared storage that one of them writes; then order, place and peak."""
    storage = board.program.storage_of
    mine = effects(op)
    written = {storage(n) for n in (*mine.writes, *mine.mutates)}
    touched = {storage(n) for n in mine.touched}
    for other in members:
        theirs = effects(other)
        changed = {storage(n) for n in (*theirs.writes, *theirs.mutates)}
        meets = changed & touched or written & {storage(n) for n in theirs.touched}
        if meets:
            return no("COM001", storage=sorted(meets)[0], left=other.name, right=op.name)
    a, b = (board.deps.position[o.leaves[0].name] for o in (host, op))
    a, b = board.group_of(a), board.group_of(b)
    verdict = board.acyclic(a, b)
    if verdict:
        first, second = (a, b) if board.before(a, b) else (b, a)
        verdict = board.place(first, second, drop_internal=False)
    if not verdict:
        return verdict
    board.join(a, b)
    return yes("COM000", members=len(members) + 1, peak=verdict.facts["peak"])


def _rebuilt(program: Program, board: Board, found: dict[int, list[Operation]]) -> Program:
    launch_of = {m.name: members for members in found.values() for m in members}
    op_of = {board.deps.position[leaf.name]: op for op in program.ops for leaf in op.leaves}
    ops: list[Operation] = []
    for step in board.final_order():
        op = op_of[step[0]]
        members = launch_of.get(op.name, [op])
        if len(members) == 1:
            ops.append(members[0])
            continue
        name = "_".join(m.name for m in members)
        # Fills of one shape are one loop that stores to several buffers.
        kind = Fused if isinstance(_kind(members[0]), Space) else Foreach
        ops.append(kind(name=name, device=op.device, members=tuple(members)))
    ops.extend(op for op in program.ops if not op.leaves)
    return program.with_ops(tuple(ops))
