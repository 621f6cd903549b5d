"""Changing frozen bodies and programs: new from old ones, the same object if nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from treadle.index import Domain, Expr
from treadle.ir.body import Body, Stmt
from treadle.ir.effects import effects
from treadle.ir.program import Group, Loop, Operation, Program
from treadle.ir.rewrite import map_stmts
from treadle.ir.types import Buffer


def map_indices(body: Body, change: Callable[[Expr], Expr]) -> Body:
    """The body with `change` applied to every index expression in it."""

    def in_stmt(stmt: Stmt) -> Stmt:
        attrs = [change(a) if isinstance(a, Expr) else a for a in stmt.attrs]
        same = all(a is b for a, b in zip(attrs, stmt.attrs, strict=True))
        return stmt if same else stmt._replace(attrs=tuple(attrs))

    stmts = map_stmts(body.stmts, in_stmt)
    return body if stmts is body.stmts else replace(body, stmts=stmts)


def with_loops(body: Body, domain: Domain, reduce: Domain) -> Body:
    """The body over other loops; its index expressions must already speak of them."""
    if domain is body.domain and reduce is body.reduce:
        return body
    return replace(body, domain=domain, reduce=reduce)


def map_loops(op: Operation, change: Callable[[Loop], Loop]) -> Operation:
    """The operation with `change` applied to each loop in it, groups included."""
    if isinstance(op, Loop):
        return change(op)
    if isinstance(op, Group):
        members = tuple([map_loops(m, change) for m in op.members])
        if any(a is not b for a, b in zip(members, op.members, strict=True)):
            return op.with_members(members)
    return op


def alone(
    program: Program, ops: Sequence[Operation], made: Mapping[str, Buffer] | None = None
) -> Program:
    """A program of some operations and the buffers they name, which may also be among `made`.

    Whoever looks at a few operations need not pay for all the others.
    """
    known, own, given = program.by_name, made or {}, program.derive(_inputs)
    found: dict[str, Buffer] = {}
    for name in [n for op in ops for n in effects(op).touched]:
        seen: str | None = name
        while seen is not None and seen not in found:
            found[seen] = own[seen] if seen in own else known[seen]
            seen = found[seen].view_of
    return replace(
        program,
        name="one",
        buffers=tuple(found.values()),
        ops=tuple(ops),
        inputs=tuple([n for n in found if n in given]),
        outputs=(),
        donated=(),
    )


def _inputs(program: Program) -> frozenset[str]:
    return frozenset(program.inputs)


def devices_of(program: Program) -> set[str]:
    """The devices that a program has buffers or operations on."""
    return {b.device for b in program.buffers} | {op.device for op in program.ops}


def moved_to(program: Program, device: str) -> Program:
    """The program with all its buffers and operations on another device."""
    if devices_of(program) <= {device}:
        return program
    buffers = tuple([replace(b, device=device) for b in program.buffers])
    ops = tuple([_moved(op, device) for op in program.ops])
    return replace(program, buffers=buffers, ops=ops)


def _moved(op: Operation, device: str) -> Operation:
    if isinstance(op, Group):
        op = op.with_members(tuple([_moved(m, device) for m in op.members]))
    return replace(op, device=device)
