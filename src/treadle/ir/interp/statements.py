"""The statements of a body, as tables: what computes a value, and what only has an effect.

Each row is given the body at work (`BodyRun`), the statement and its number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import numpy as np

from treadle.index import Expr, Kind
from treadle.ir.body import Stmt, number_of
from treadle.ir.interp import access, pointwise
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array, convert, widened
from treadle.ir.interp.random import GENERATORS
from treadle.ir.interp.reductions import NEEDS_AN_ELEMENT, REDUCERS
from treadle.ir.interp.scan_sort import SCANNERS, sort
from treadle.ir.ops import POINTWISE
from treadle.ir.types import DType, promote

if TYPE_CHECKING:
    from treadle.ir.interp.loops import BodyRun

Value: TypeAlias = "Array | tuple[Array, ...]"

# ------------------------------------------------------------------- statements with a value


def _pointwise(run: BodyRun, stmt: Stmt, at: int) -> Value:
    values = [run.single(a) for a in stmt.args]
    types = [run.type_of(a) for a in stmt.args]
    return pointwise.apply(stmt.op, values, types, run.types[at])


def _bitcast(run: BodyRun, stmt: Stmt, at: int) -> Value:
    source, to = run.single(stmt.args[0]), run.type_of(at)
    given = run.type_of(stmt.args[0])
    if given.bits != to.bits:
        run.fail("RUN008", f"the bits of {given} cannot be read as {to}: widths differ", stmt)
    if to is DType.BOOL:
        return np.asarray(source.view(np.uint8) != 0)
    return np.ascontiguousarray(source).view(NUMPY_TYPES[to])


def _to_int(how: Callable[[Array], Array]) -> Callable[[BodyRun, Stmt, int], Value]:
    def statement(run: BodyRun, stmt: Stmt, at: int) -> Value:
        value, given = run.single(stmt.args[0]), run.type_of(stmt.args[0])
        if given.is_float:
            value = how(widened(value, given))
        return convert(value, run.type_of(at))

    return statement


def _indirect(run: BodyRun, stmt: Stmt, at: int) -> Value:
    size_expression, wrap, check = stmt.attrs
    given, size = convert(run.single(stmt.args[0]), DType.I64), run.index(size_expression)
    value = np.where(given < 0, given + size, given) if wrap else given

    def complain(point: tuple[int, ...], found: int) -> NoReturn:
        limit = int(np.broadcast_to(size, (*run.points, *run.reduce))[point])
        raw = found - limit if wrap and found < 0 else found
        shown = f"index %{stmt.args[0]} is {raw}, outside {-limit if wrap else 0}..{limit}"
        users = [b for b, e, _ in run.body.loads() if at in _numbers(e)]
        users += [b for b, e, _, _ in run.body.stores() if at in _numbers(e)]
        where = f" of buffer '{users[0]}'" if users else ""
        run.fail("RUN004", shown + where, stmt, point)

    if check:
        access.check_range(value, size, run.mask, complain)
    return value


def _numbers(e: Expr) -> set[int]:
    return {number_of(s) for s in e.free if s.kind is Kind.INDIRECT}


def _bounds_complaint(
    run: BodyRun, stmt: Stmt, name: str, size: int, has_point: bool = True
) -> access.Complain:
    def complain(point: tuple[int, ...], found: int) -> NoReturn:
        message = f"index {found} leaves the storage of buffer '{name}' ({size} elements)"
        run.fail("RUN003", message, stmt, point if has_point else None)

    return complain


def _load(run: BodyRun, stmt: Stmt, at: int) -> Value:
    name = stmt.buffer
    run.memory.require(name, run.name)
    row = run.memory.elements(name)
    complain = _bounds_complaint(run, stmt, name, row.size)
    found = access.gather(row, run.index(stmt.address), run.mask, complain)
    # Bytes other than 0 and 1 may come from a view of another type.
    return found.view(np.uint8) != 0 if found.dtype == np.bool_ else found


def _bucketize(run: BodyRun, stmt: Stmt, at: int) -> Value:
    name, size, right, _ = stmt.attrs
    name = str(name)
    run.memory.require(name, run.name)
    row, layout = run.memory.elements(name), run.memory.layout(name)
    step = layout.strides[-1] if layout.strides else 1
    index = layout.offset + step * np.arange(int(run.index(size).flat[0]))
    borders = access.gather(row, index, None, _bounds_complaint(run, stmt, name, row.size, False))
    value, given = run.single(stmt.args[0]), run.type_of(stmt.args[0])
    common = promote(given, run.memory.buffer(name).dtype)
    keys = widened(convert(borders, common), common)
    wanted = widened(convert(value, common), common)
    found = np.searchsorted(keys, wanted, side="right" if right else "left")
    return convert(np.asarray(found, np.int64), run.type_of(at))


def _reduce(run: BodyRun, stmt: Stmt, at: int) -> Value:
    kind, to = str(stmt.attr("kind")), run.types[at]
    rows = run.rows([run.single(a) for a in stmt.args])
    if kind in NEEDS_AN_ELEMENT and rows[0].shape[-1] == 0:
        run.fail("RUN009", f"{kind} over no elements has no answer", stmt)
    to = to[0] if isinstance(to, tuple) else to
    assert to is not None, "a reduction has a type"
    found = REDUCERS[kind](rows, to)
    if isinstance(found, tuple):
        return tuple(run.reduced(x) for x in found)
    return run.reduced(found)


def _reduce_part(run: BodyRun, stmt: Stmt, at: int) -> Value:
    """A reduction over some inner loops: those become the last axis, the others stay."""
    kind, to, over = str(stmt.attr("kind")), run.types[at], stmt.attr("over")
    assert isinstance(over, Expr)
    first = len(run.points)
    axes = [first + k for k, v in enumerate(run.body.reduce.vars) if v in over.free]
    extents = (*run.points, *run.reduce)
    values = [run.single(a) for a in stmt.args]
    shape = list(np.broadcast_shapes(*[v.shape for v in values]))
    for axis in axes:
        shape[axis] = extents[axis]
    last = tuple(range(len(shape) - len(axes), len(shape)))
    moved = [np.moveaxis(np.broadcast_to(v, shape), axes, last) for v in values]
    kept = moved[0].shape[: len(shape) - len(axes)]
    rows = [m.reshape(*kept, math.prod(extents[a] for a in axes)) for m in moved]
    if kind in NEEDS_AN_ELEMENT and rows[0].shape[-1] == 0:
        run.fail("RUN009", f"{kind} over no elements has no answer", stmt)
    to = to[0] if isinstance(to, tuple) else to
    assert to is not None, "a reduction has a type"
    found = REDUCERS[kind](rows, to)
    if isinstance(found, tuple):
        return tuple(np.expand_dims(x, axes) for x in found)
    return np.expand_dims(found, axes)


def _scan(run: BodyRun, stmt: Stmt, at: int) -> Value:
    types = [run.type_of(a) for a in stmt.args]
    rows = run.rows([run.single(a) for a in stmt.args])
    combine = str(stmt.attr("combine"))
    if combine == "region":
        found = _fold(run, stmt, at, rows)
    elif combine == "unknown":
        run.fail("RUN008", "how this scan combines values is not known", stmt)
    else:
        found = SCANNERS[combine](rows, types)
    results = tuple(run.unrolled(x) for x in found)
    return results if len(results) > 1 else results[0]


def _fold(run: BodyRun, stmt: Stmt, at: int, rows: Sequence[Array]) -> tuple[Array, ...]:
    """The running combination of a region, point after point along the rows."""
    length = rows[0].shape[-1]
    full = [np.broadcast_to(x, (*run.points, length)) for x in rows]
    steps = [[run.reduced(x[..., k]) for x in full] for k in range(length)]
    seen = steps[:1]
    for step in steps[1:]:
        run.params.append([*seen[-1], *step])
        yielded = run.block(stmt.region, at + 1)
        run.params.pop()
        if any(x.size > s.size for x, s in zip(yielded, step, strict=True)):
            run.fail("RUN008", "the region uses a value that varies along the scanned loops", stmt)
        seen.append([np.broadcast_to(x, s.shape) for x, s in zip(yielded, step, strict=True)])
    if not seen:
        return tuple(full)
    columns = zip(*seen, strict=True)
    return tuple(np.stack([x.reshape(run.points) for x in c], axis=-1) for c in columns)


def _sort(run: BodyRun, stmt: Stmt, at: int) -> Value:
    types = [run.type_of(a) for a in stmt.args]
    rows = run.rows([run.single(a) for a in stmt.args])
    found = tuple(run.unrolled(x) for x in sort(rows, types, bool(stmt.attr("descending"))))
    return found if len(found) > 1 else found[0]


def _get(run: BodyRun, stmt: Stmt, at: int) -> Value:
    source, position = run.values[stmt.args[0]], stmt.attr("position")
    assert isinstance(source, tuple)
    assert isinstance(position, int)
    return source[position]


def _masked(run: BodyRun, stmt: Stmt, at: int) -> Value:
    outer, mask = run.mask, run.single(stmt.args[0])
    run.mask = mask if outer is None else outer & mask
    (inner,) = run.block(stmt.region, at + 1)
    run.mask = outer
    return np.where(mask, inner, run.literal(stmt.attr("other"), run.type_of(at)))


def _param(run: BodyRun, stmt: Stmt, at: int) -> Value:
    position = stmt.attr("position")
    assert isinstance(position, int)
    return run.params[-1][position]


def _inline_asm(run: BodyRun, stmt: Stmt, at: int) -> NoReturn:
    run.fail("RUN008", "inline assembly cannot be interpreted", stmt)


STATEMENTS: Mapping[str, Callable[[BodyRun, Stmt, int], Value]] = {
    **dict.fromkeys(POINTWISE, _pointwise),
    "constant": lambda run, stmt, at: run.literal(stmt.attr("value"), run.type_of(at)),
    "cast": lambda run, stmt, at: convert(run.single(stmt.args[0]), run.type_of(at)),
    "bitcast": _bitcast,
    "floor_to_int": _to_int(np.floor),
    "ceil_to_int": _to_int(np.ceil),
    "trunc_to_int": _to_int(np.trunc),
    "round_to_int": _to_int(np.rint),
    "index": lambda run, stmt, at: convert(run.index(stmt.attr("expr")), run.type_of(at)),
    "indirect": _indirect,
    "load": _load,
    "bucketize": _bucketize,
    "reduce": _reduce,
    "reduce_part": _reduce_part,
    "scan": _scan,
    "sort": _sort,
    **dict.fromkeys(
        GENERATORS,
        lambda run, stmt, at: GENERATORS[stmt.op](
            [run.single(a) for a in stmt.args], run.type_of(at)
        ),
    ),
    "get": _get,
    "masked": _masked,
    "param": _param,
    "inline_asm": _inline_asm,
}
"""How each operation that has a value computes it, from the run, the statement and its number."""


# ---------------------------------------------------------------- statements without a value


def _store(run: BodyRun, stmt: Stmt, at: int) -> None:
    name, mode = stmt.buffer, stmt.mode
    if run.mask is not None or run.params:
        run.fail("RUN008", "a region cannot store", stmt)
    dtype = run.memory.buffer(name).dtype
    if mode in access.BITWISE and dtype.is_float:
        run.fail("RUN008", f"{mode} has no meaning for {dtype}", stmt)
    if mode != "plain":
        run.memory.require(name, run.name)
    value, index = convert(run.single(stmt.args[0]), dtype), run.index(stmt.address)
    varies = np.broadcast_shapes(value.shape, index.shape, (*run.points, *([1] * len(run.reduce))))
    row = run.memory.elements(name)
    index = np.broadcast_to(index, varies)
    access.check_range(index, row.size, None, _bounds_complaint(run, stmt, name, row.size))
    access.scatter(row, index, np.broadcast_to(value, varies), mode, dtype)
    run.memory.define(name)


def _assert(run: BodyRun, stmt: Stmt, at: int) -> None:
    holds = run.single(stmt.args[0])
    if run.mask is not None:
        holds = holds | ~run.mask
    if not holds.all():
        point = tuple(int(k) for k in np.argwhere(~holds)[0])
        run.fail("RUN007", f"assertion failed: {stmt.attr('message')}", stmt, point)


EFFECTS: Mapping[str, Callable[[BodyRun, Stmt, int], None]] = {
    "store": _store,
    "assert": _assert,
}
"""How each operation without a value acts; `yield` ends a block and is seen to there."""
