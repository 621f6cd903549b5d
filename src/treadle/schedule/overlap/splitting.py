"""A large message of several tensors sent in parts, so that what needs one need not wait for all.

before   a, b = gather_coalesced([x, y]) ; wait a ; use(a) ; wait b ; use(b)
after    a = gather_coalesced([x]) ; b = gather_coalesced([y]) ; wait a ; use(a) ; wait b ; use(b)

A part is begun as soon as its own tensors are there, hides behind the use of the one before it, and
lets others of the group go in between. It costs the latency of one more call: only simulating both
tells. Tensors stay whole: parts of one would have to be copied together again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.analysis.comm.kinds import kind_of_collective
from treadle.analysis.comm.machine import machine_of
from treadle.core.context import Ctx
from treadle.core.verdict import Verdict, no, yes
from treadle.ir.body import Literal
from treadle.ir.program import Arg, Collective, Operation, Program, Ref
from treadle.ir.types import BufferKind
from treadle.schedule.overlap.anneal import LARGEST
from treadle.schedule.overlap.bucketing import CALL, COALESCED, CONSTANTS
from treadle.schedule.overlap.by_model import budget_of, overlap_of

PART_SHARES = (2, 4, 8)
"""Parts of the largest message that are tried as the size of what is sent at once."""
WORTH_SPLITTING = 0.002
"""The part of the time that smaller messages must save."""


@dataclass(frozen=True)
class Splittable:
    """A collective of several tensors: the position of each among its arguments and results."""

    at: int
    """Its position among the operations."""
    bytes: tuple[int, ...]
    """Of each tensor as it is given."""
    in_list: bool
    """Whether the tensors stand in a list, its first argument, rather than one behind the other."""

    def parts(self, most: int) -> list[range]:
        """Runs of tensors of at most so many bytes together; a larger one goes by itself."""
        found: list[range] = []
        first, size = 0, 0
        for k, count in enumerate(self.bytes):
            if k > first and size + count > most:
                found.append(range(first, k))
                first, size = k, 0
            size += count
        return [*found, range(first, len(self.bytes))]


def splittable(program: Program, at: int) -> Splittable | str:
    """How an operation can be sent in parts, or why it cannot."""
    op = program.ops[at]
    assert isinstance(op, Collective), f"'{op.name}' sends nothing"
    base = op.target.removesuffix(".default").rpartition(".")[2]
    plain = COALESCED.get(kind_of_collective(op.target))
    if plain is None or base != f"{plain}_coalesced":
        return "it sends one tensor, whose parts would have to be put together again"
    if op.sent_together:
        return "its messages were put together on purpose"
    said = dict(op.attrs)
    in_list = CALL not in said
    given = op.args[0] if in_list and op.args else op.args
    if not isinstance(given, tuple) or len(given) != len(op.writes) or op.mutates:
        return "not every tensor that is sent has a result of its own"
    if not in_list and CONSTANTS not in said:
        return "nobody knows which arguments of the call are no tensors"
    names = [a.buffer for a in given if isinstance(a, Ref)]
    kinds = {program.by_name[n].kind for n in (*names, *op.writes)}
    if len(names) != len(given) or kinds != {BufferKind.TENSOR}:
        return "its results are taken out of a tuple"
    return Splittable(at, tuple([program.by_name[n].tensor_bytes for n in names]), in_list)


def with_parts(program: Program, found: list[Splittable], most: int) -> Program:
    """The program with each of these messages sent in parts of at most so many bytes."""
    cut = {one.at: one for one in found}
    ops: list[Operation] = []
    for at, op in enumerate(program.ops):
        parts = cut[at].parts(most) if at in cut else []
        if len(parts) < 2:
            ops.append(op)
            continue
        assert isinstance(op, Collective), "only what sends is split"
        ops += [_part(op, number, which, cut[at].in_list) for number, which in enumerate(parts)]
    return program if len(ops) == len(program.ops) else program.with_ops(tuple(ops))


def _part(op: Collective, number: int, which: range, in_list: bool) -> Collective:
    given: object = op.args[0] if in_list else op.args
    assert isinstance(given, tuple), "tensors stand in a list"
    own: tuple[Arg, ...] = given[which.start : which.stop]
    kept = tuple([(key, value) for key, value in op.attrs if key != CALL])
    place = (("part_of", Literal(op.name)), ("first", Literal(which.start)))
    return replace(
        op,
        name=f"{op.name}_part{number}",
        args=(own, *op.args[1:]) if in_list else own,
        writes=op.writes[which.start : which.stop],
        attrs=(*kept, *place),
    )


def choose_parts(program: Program, ctx: Ctx) -> Program:
    """The program with large messages in parts, of several sizes or none, that is done soonest."""
    sent = [k for k, op in enumerate(program.ops) if isinstance(op, Collective)]
    looked_at = {k: splittable(program, k) for k in sent}
    found = [one for one in looked_at.values() if isinstance(one, Splittable)]
    best, best_us, budget = program, 0.0, 0
    if found:
        machine = machine_of(program, ctx.options)
        close = len(program.ops) <= LARGEST  # one order each is a rough look
        best_us = overlap_of(program, ctx, machine, thorough=close).after.makespan_us
        budget = budget_of(program, ctx)
        largest = max(sum(one.bytes) for one in found)
        for share in PART_SHARES:
            made = with_parts(program, found, largest // share)
            if made is program:
                continue
            run = overlap_of(made, ctx, machine, thorough=close)
            if run.peak_bytes <= budget and run.after.makespan_us < best_us * (1 - WORTH_SPLITTING):
                best, best_us = made, run.after.makespan_us
    for k, one in looked_at.items():
        name = program.ops[k].name
        ctx.journal.verdict("split", (name,), _verdict(name, one, best))
    return best


def _verdict(name: str, one: Splittable | str, made: Program) -> Verdict:
    if isinstance(one, str):
        return no("COL012", reason=one)
    into = [op.name for op in made.ops if isinstance(op, Collective) and op.part_of == name]
    if not into:
        return no("COL012", reason="no order of its parts is done sooner")
    return yes("COL011", into=into, bytes=sum(one.bytes))
