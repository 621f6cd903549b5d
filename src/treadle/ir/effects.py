"""Which buffers an operation touches, by name: the one place that knows it for every kind.

`reads` must hold their value before the operation; `writes` get a value from it; `mutates` are
changed in place, so both. An atomic store mutates: what was there shows in the result. What a call
writes it does not read: a target among its arguments only says where to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from treadle.index import Expr
from treadle.ir.body import Body, Literal
from treadle.ir.pattern import pattern_of, place_of
from treadle.ir.program import (
    Arg,
    Call,
    Collective,
    Extern,
    Foreach,
    Fused,
    Group,
    Grouped,
    Kernel,
    Loop,
    MixOrder,
    MultiOutput,
    Nest,
    Nop,
    Operation,
    Ref,
    Template,
    UserKernel,
    Wait,
)


class Effects(NamedTuple):
    """Buffer names in order of first touch, each list without repetition."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    mutates: tuple[str, ...]

    @property
    def touched(self) -> tuple[str, ...]:
        """Every buffer, once."""
        return tuple(dict.fromkeys(self.reads + self.writes + self.mutates))


def effects(op: Operation) -> Effects:
    """What `op` touches. Remembered on the operation, which is frozen."""
    known = op.__dict__.get("_effects")
    if known is None:
        known = op.__dict__["_effects"] = EFFECTS[type(op)](op)
    found: Effects = known
    return found


RUNS = "runs"
"""The attribute of a call that may say that nothing is run for it (`with (runs = false)`)."""


def runs(op: Operation) -> bool:
    """Whether anything is done for an operation when its turn comes.

    If not, it only says who holds what and when: it costs nothing, and is never dropped.
    """
    return not (isinstance(op, Call) and (RUNS, Literal(False)) in op.attrs)


def acts_by_itself(op: Operation) -> bool:
    """Whether a leaf does more than write buffers, so that it must stay even if nobody reads them.

    Side effects, communication (other ranks wait for it), assertions, impure assembly.
    """
    if isinstance(op, Collective | Wait):
        return True
    if isinstance(op, Loop):
        return pattern_of(op).pattern.derive(_body_acts)
    return isinstance(op, Call) and op.has_side_effects


def _body_acts(body: Body) -> bool:
    return any(
        at.stmt.op == "assert" or (at.stmt.op == "inline_asm" and not at.stmt.attr("is_pure"))
        for at in body.walk()
    )


def refs(args: Iterable[Arg]) -> list[str]:
    """The buffers named in call arguments, nested lists included."""
    found: list[str] = []
    for arg in args:
        if isinstance(arg, Ref):
            found.append(arg.buffer)
        elif not isinstance(arg, Literal | Expr):
            found.extend(refs(arg))
    return found


def _unique(names: Iterable[str], but: Iterable[str] = ()) -> tuple[str, ...]:
    gone = set(but)
    return tuple([n for n in dict.fromkeys(names) if n not in gone])


def _of_loop(op: Operation) -> Effects:
    assert isinstance(op, Loop)
    pattern, buffers = pattern_of(op)
    reads, writes, mutates = pattern.derive(_body_effects)
    return Effects(
        tuple([buffers[k] for k in reads]),
        tuple([buffers[k] for k in writes]),
        tuple([buffers[k] for k in mutates]),
    )


def _body_effects(body: Body) -> tuple[list[int], list[int], list[int]]:
    """Effects as places among the buffers of a pattern."""
    reads: list[str] = []
    writes: list[str] = []
    mutates: list[str] = []
    for at in body.walk():
        stmt = at.stmt
        if stmt.op in ("load", "bucketize"):
            reads.append(stmt.buffer)
        elif stmt.op == "store":
            (writes if stmt.mode == "plain" else mutates).append(stmt.buffer)
    changed = _unique(mutates)
    rows = (_unique(reads), _unique(writes, changed), changed)
    first, second, third = [[place_of(name) for name in row] for row in rows]
    return first, second, third


def _of_call(op: Operation) -> Effects:
    assert isinstance(op, Call)
    named = [*refs(op.args), *refs([a for _, a in op.attrs])]
    return Effects(_unique(named, (*op.writes, *op.mutates)), op.writes, op.mutates)


def _of_wait(op: Operation) -> Effects:
    assert isinstance(op, Wait)
    return Effects((), (), (op.buffer,))


def _of_multi_output(op: Operation) -> Effects:
    assert isinstance(op, MultiOutput)
    return Effects((op.source,), (op.target,), ())


def _of_nop(op: Operation) -> Effects:
    assert isinstance(op, Nop)
    return Effects((), op.writes, ())


def _of_group(op: Operation) -> Effects:
    """What the outside sees: a buffer the group itself wrote first is no read of the group."""
    assert isinstance(op, Group)
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    mutates: dict[str, None] = {}
    for leaf in op.leaves:
        of = effects(leaf)
        for name in of.reads:
            if name not in writes and name not in mutates:
                reads[name] = None
        for name in of.mutates:
            if name not in writes:
                mutates[name] = None
        for name in of.writes:
            if name not in mutates:
                writes[name] = None
    return Effects(tuple(reads), tuple(writes), tuple(mutates))


EFFECTS: Mapping[type[Operation], Callable[[Operation], Effects]] = {
    Loop: _of_loop,
    Nest: _of_loop,
    Extern: _of_call,
    Template: _of_call,
    UserKernel: _of_call,
    Collective: _of_call,
    Wait: _of_wait,
    MultiOutput: _of_multi_output,
    Nop: _of_nop,
    Fused: _of_group,
    MixOrder: _of_group,
    Foreach: _of_group,
    Grouped: _of_group,
    Kernel: _of_group,
}
