"""combine-launches: run independent small kernels in one launch.

before   a = f(x) ; b = g(y)                     two launches
after    foreach { a = f(x) ; b = g(y) }         one
needs    the same device and kind, no dependence between them, the peak in budget (on a CPU, as it
         is), and kernels so short that a launch is more than a hundredth of their time; fills of
         one shape always
"""

from __future__ import annotations

from treadle.analysis.cost import work_of
from treadle.analysis.deps import carry_over, dependences
from treadle.analysis.kernel_time import kernel_ns, work_of_loop
from treadle.core.context import Ctx
from treadle.core.costs import CostModel
from treadle.core.verdict import Verdict, no, yes
from treadle.ir.effects import effects
from treadle.ir.program import Foreach, Fused, Loop, Operation, Program, walk_operations
from treadle.kernel.space import Space, space_of
from treadle.schedule.board import Board
from treadle.schedule.naming import JoinedNames
from treadle.schedule.policy import policy_of
from treadle.schedule.profit import worth_in_memory


def combine_launches(program: Program, ctx: Ctx) -> Program:
    """Let kernels of one level share a launch."""
    policy = policy_of(ctx)
    if policy.combine <= 1:
        return program
    weigh = _Scales(program, ctx.cost)
    batches = []
    for batch in _batches(program):
        small = [op for op in batch if _may_share(op, weigh, ctx, policy.launch_share)]
        if len(small) > 1:
            batches.append(small)
    if not batches:
        return program
    board = Board(program, ctx, policy)
    board.enter_groups(lambda kept, gone: None)
    board.pays = True
    found: dict[int, list[Operation]] = {}
    for batch in batches:
        for host, members in _combined(batch, board, weigh, ctx, policy.combine):
            found[host] = members
    if not any(len(members) > 1 for members in found.values()):
        return program
    return _rebuilt(program, board, found)


class _Scales:
    """Predicted times of kernels that may share a launch."""

    def __init__(self, program: Program, cost: CostModel) -> None:
        self.program, self.cost = program, cost
        self.known: dict[str, float] = {}
        """Nanoseconds by kernel; for short ones at most so many, as if all touched were moved."""

    def is_short(self, op: Operation, share: float) -> bool:
        """Whether the launch is at least this share of a kernel's time."""
        machine, of, by_name = self.cost.machine(op.device), effects(op), self.program.by_name
        loops = [leaf for leaf in op.leaves if isinstance(leaf, Loop)]
        points = min([x.body.domain.numel_hint for x in loops])
        work = sum([work_of_loop(x) for x in loops])
        # A kernel that would be short if it moved all it touches need not be weighed.
        most = sum([by_name[n].tensor_bytes for n in (*of.touched, *of.mutates)])
        needs = kernel_ns(machine, most, work, points)
        if machine.launch_ns < share * needs:
            needs = kernel_ns(machine, work_of(self.program, op).bytes, work, points)
        self.known[op.name] = needs
        return machine.launch_ns >= share * needs


def _may_share(op: Operation, weigh: _Scales, ctx: Ctx, share: float) -> bool:
    """COM002: the launch is a good part of the kernel's time; fills of one shape always may."""
    if isinstance(_kind(op), Space) or weigh.is_short(op, share):
        return True
    launch, needs = weigh.cost.machine(op.device).launch_ns, weigh.known[op.name]
    verdict = no("COM002", kernel_ns=round(needs), launch_ns=round(launch), share=share)
    ctx.journal.verdict("combine", (op.name,), verdict)
    return False


def _batches(program: Program) -> list[list[Operation]]:
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
    rows: dict[tuple[object, ...], list[Operation]] = {}
    for op, height in zip(program.ops, level, strict=True):
        if isinstance(op, Loop | Fused) and all(isinstance(leaf, Loop) for leaf in op.leaves):
            rows.setdefault((height, op.device, _kind(op)), []).append(op)
    return [row for row in rows.values() if len(row) > 1]


def _kind(op: Operation) -> object:
    """What may share a launch: reductions, pointwise kernels, and fills of one shape."""
    if isinstance(op, Loop) and not effects(op).reads and not len(op.body.reduce):
        return space_of(op)
    return any(isinstance(leaf, Loop) and len(leaf.body.reduce) for leaf in op.leaves)


def _combined(
    batch: list[Operation], board: Board, weigh: _Scales, ctx: Ctx, limit: int
) -> list[tuple[int, list[Operation]]]:
    """The launches of a batch: each kernel joins the open launch if everything allows it."""
    launches: list[_Launch] = []
    for op in batch:
        launch = launches[-1] if launches and len(launches[-1].members) < limit else None
        if launch is not None:
            verdict = launch.take_in(op)
            ctx.journal.verdict("combine", (launch.members[0].name, op.name), verdict)
            if verdict:
                continue
        launches.append(_Launch(op, board, weigh))
    return [(launch.position, launch.members) for launch in launches]


class _Launch:
    """Kernels that share a launch, and who of them touches what."""

    def __init__(self, op: Operation, board: Board, weigh: _Scales) -> None:
        self.board, self.weigh = board, weigh
        self.machine = weigh.cost.machine(op.device)
        # A launch on a CPU is a call: short, and no reason for results to wait in memory.
        is_call = op.device.partition(":")[0] == "cpu"
        self._worth = 0.0 if is_call else worth_in_memory(0, self.machine)
        self.members: list[Operation] = []
        self.position = board.deps.position[op.leaves[0].name]
        self._written: dict[str, str] = {}
        self._touched: dict[str, str] = {}
        self._add(op, *self._storages(op))

    def _storages(self, op: Operation) -> tuple[list[str], list[str]]:
        storage, of = self.board.program.storage_of, effects(op)
        written = [storage(n) for n in (*of.writes, *of.mutates)]
        return written, [*written, *[storage(n) for n in of.reads]]

    def _add(self, op: Operation, written: list[str], touched: list[str]) -> None:
        self.members.append(op)
        self._written.update(dict.fromkeys(written, op.name))
        self._touched.update(dict.fromkeys(touched, op.name))

    def take_in(self, op: Operation) -> Verdict:
        """COM001 no shared storage that one of them writes; then order, place and peak."""
        written, touched = self._storages(op)
        meets = [s for s in touched if s in self._written] + [
            s for s in written if s in self._touched
        ]
        if meets:
            first = min(meets)
            return no("COM001", storage=first, left=self._touched[first], right=op.name)
        board = self.board
        a, b = board.group_of(self.position), board.group_of(board.deps.position[op.leaves[0].name])
        verdict = board.acyclic(a, b)
        if verdict:
            first_step, second = (a, b) if board.before(a, b) else (b, a)
            verdict = board.place(first_step, second, worth=self._worth, drop_internal=False)
        if not verdict:
            return verdict
        board.join(a, b)
        self._add(op, written, touched)
        facts: dict[str, object] = {"members": len(self.members), "peak": verdict.facts["peak"]}
        if op.name in self.weigh.known:
            facts["kernel_ns"] = round(self.weigh.known[op.name])
        return yes("COM000", **facts, launch_ns=round(self.machine.launch_ns))


def _rebuilt(program: Program, board: Board, found: dict[int, list[Operation]]) -> Program:
    launch_of = {m.name: members for members in found.values() for m in members}
    op_of = {board.deps.position[leaf.name]: op for op in program.ops for leaf in op.leaves}
    names = JoinedNames(walk_operations(program.ops))
    ops: list[Operation] = []
    for step in board.final_order():
        op = op_of[step[0]]
        members = launch_of.get(op.name, [op])
        if len(members) == 1:
            ops.append(members[0])
            continue
        # Fills of one shape are one loop that stores to several buffers.
        kind = Fused if isinstance(_kind(members[0]), Space) else Foreach
        ops.append(kind(name=names.of(members), device=op.device, members=tuple(members)))
    ops.extend(op for op in program.ops if not op.leaves)
    combined = program.with_ops(tuple(ops))
    carry_over(program, combined)
    return combined
