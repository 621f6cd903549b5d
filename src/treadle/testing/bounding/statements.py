"""Errors of the statements of a body: a table beside the interpreter's own.

`BoundRun` runs a body as the interpreter does and, after each statement, asks its row here how far
code can be from what came out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from treadle.index import Expr, Kind
from treadle.ir.body import Stmt, number_of
from treadle.ir.interp import access
from treadle.ir.interp.dtypes import Array, convert, widened
from treadle.ir.interp.loops import BodyRun, count_values
from treadle.ir.interp.statements import EFFECTS, STATEMENTS
from treadle.ir.numerics import ROUNDED_ONCE, Numerics
from treadle.ir.ops import OPS, POINTWISE
from treadle.ir.program import Loop, Operation, Program
from treadle.ir.roundings import rounded_next
from treadle.ir.types import DType, promote
from treadle.testing.bounding.memory import Errors
from treadle.testing.bounding.pointwise import Pointwise, pointwise_spread
from treadle.testing.bounding.reductions import REDUCTION_SPREADS, Rows
from treadle.testing.bounding.rounding import (
    UNIT_F32,
    Deviation,
    converted,
    ends,
    no_error,
    rounded,
    ulp,
    undecided,
)
from treadle.testing.bounding.scan_sort import SCAN_SPREADS, sort_spreads
from treadle.testing.bounding.scatter import COMBINED, combined_errors

Spreads: TypeAlias = "Deviation | tuple[Deviation, ...]"
LARGEST_RADIUS = 5.7
"""Of a normal number drawn by `randn`: sqrt(-2 log 1e-7)."""


def _narrow(op: Operation, program: Program) -> list[DType | None]:
    assert isinstance(op, Loop)
    return rounded_next(op.body, program.by_name)


class BoundRun(BodyRun):
    """A body at work, each value with its error."""

    def __init__(self, op: Loop, errors: Errors, numerics: Numerics) -> None:
        super().__init__(op, errors.memory)
        self.errors, self.numerics = errors, numerics
        self.spreads: dict[int, Spreads] = {}
        self.narrow = errors.memory.program.derive_of(op, _narrow)
        self.given: list[Sequence[Deviation]] = []
        self.yielded: tuple[Deviation, ...] = ()

    def block(self, stmts: Sequence[Stmt], counter: int) -> tuple[Array, ...]:
        """Run statements whose numbers begin at `counter`; `yielded` has their errors."""
        yielded: tuple[Array, ...] = ()
        for stmt in stmts:
            if stmt.op == "yield":
                yielded = tuple(self.single(a) for a in stmt.args)
                self.yielded = tuple(self.spread(a) for a in stmt.args)
            elif OPS[stmt.op].produces:
                if stmt.op in TOGETHER:
                    TOGETHER[stmt.op](self, stmt, counter)
                else:
                    self.values[counter] = STATEMENTS[stmt.op](self, stmt, counter)
                    self.keep(counter, SPREADS[stmt.op](self, stmt, counter))
                counter = counter + 1 + count_values(stmt.region)
            elif stmt.op == "store":
                _store(self, stmt, counter)
            else:
                EFFECTS[stmt.op](self, stmt, counter)
        return yielded

    def keep(self, at: int, found: Spreads) -> None:
        """Remember the error of %at, in the shape of its value."""
        value = self.values[at]
        if isinstance(value, tuple):
            assert not isinstance(found, Deviation), "it has several results"
            pairs = zip(found, value, strict=True)
            self.spreads[at] = tuple(spread.like(part) for spread, part in pairs)
        else:
            assert isinstance(found, Deviation)
            self.spreads[at] = found.like(value)

    def spread(self, at: int) -> Deviation:
        """The error of %at, which is no tuple."""
        found = self.spreads[at]
        assert isinstance(found, Deviation), f"%{at} has several results"
        return found

    def index_error(self, e: object) -> Array:
        """No bound where an index expression is not certain."""
        assert isinstance(e, Expr)
        found = np.zeros(self._ones())
        for symbol in e.free:
            if symbol.kind is Kind.INDIRECT:
                found = np.maximum(found, self.spread(number_of(symbol)).error)
        return undecided(found > 0)

    def rows_of(self, spreads: Sequence[Deviation], values: Sequence[Array]) -> list[Deviation]:
        """Errors with the reduction loops as one last axis, as `rows` has the values."""
        full = [s.like(v) for s, v in zip(spreads, values, strict=True)]
        flat = self.rows([part for s in full for part in s] + list(values))
        return [Deviation(flat[2 * k], flat[2 * k + 1]) for k in range(len(full))]


# -------------------------------------------------------------------------- one value each


def _pointwise(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    return pointwise_spread(
        Pointwise(
            stmt.op,
            [run.single(a) for a in stmt.args],
            [run.type_of(a) for a in stmt.args],
            [run.spread(a) for a in stmt.args],
            run.types[at],
            run.values[at],
            run.numerics,
            run.narrow[at],
        )
    )


def _exact(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    return no_error(run.single(at))


def _cast(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    given, to = run.spread(stmt.args[0]), run.type_of(at)
    if to is run.type_of(stmt.args[0]):
        return given
    return Deviation.of(converted(run.single(stmt.args[0]), given.error, to)[1])


def _certain_or_not(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    """What looks at bits, or draws from a seed: any error at all leaves no bound."""
    found = np.zeros(())
    for a in stmt.args:
        found = np.maximum(found, run.spread(a).error)
    return Deviation.of(undecided(found > 0))


def _to_int(how: Callable[[Array], Array]) -> Callable[[BoundRun, Stmt, int], Spreads]:
    def rule(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
        x, error = run.single(stmt.args[0]).astype(np.float64), run.spread(stmt.args[0]).error
        low, high = ends(x, error)
        return Deviation.of(undecided((error > 0) & ~(how(low) == how(high))))

    return rule


def _load(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    index, found = run.index(stmt.attr("index")), run.errors.elements(str(stmt.attr("buffer")))

    def never(point: tuple[int, ...], where: int) -> None:
        raise AssertionError(f"index {where} was in range for the value")

    lost = run.index_error(stmt.attr("index"))
    if not (found.error.any() or found.unrounded.any() or lost.any()):
        return no_error(run.single(at))  # inputs are exact, and read most
    parts = [access.gather(row, index, run.mask, never) for row in found]
    return Deviation(np.maximum(parts[0], lost), np.maximum(parts[1], lost))


def _bucketize(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    """Certain if the least and the largest that everything can be lead to one place."""
    name, right = str(stmt.attr("buffer")), bool(stmt.attr("right"))
    layout = run.memory.layout(name)
    step = layout.strides[-1] if layout.strides else 1
    index = layout.offset + step * np.arange(int(run.index(stmt.attr("size")).flat[0]))
    value, given = run.single(stmt.args[0]), run.type_of(stmt.args[0])
    common = promote(given, run.memory.buffer(name).dtype)
    keys = widened(convert(run.memory.elements(name)[index], common), common).astype(np.float64)
    low_keys, high_keys = ends(keys, run.errors.elements(name).error[index])
    low, high = ends(value.astype(np.float64), run.spread(stmt.args[0]).error)
    side: Literal["left", "right"] = "right" if right else "left"
    first, last = (
        np.searchsorted(k, x, side=side) for k, x in ((high_keys, low), (low_keys, high))
    )
    return Deviation.of(undecided(first != last))


def _randn(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    seeds = _certain_or_not(run, stmt, at)
    assert isinstance(seeds, Deviation)
    found = run.single(at)
    wide, ulps = found.astype(np.float64), run.numerics.function_ulps
    own = 8 * ulp(wide, DType.F64) + LARGEST_RADIUS * 2.0**-50
    if ulps > ROUNDED_ONCE:
        own = np.maximum(own, LARGEST_RADIUS * (2 * ulps + 8) * UNIT_F32)
    # The reference has rounded already, so its own border may be half a unit away.
    own = own + np.where(own > 0, 0.5 * ulp(wide, run.type_of(at)), 0.0)
    return Deviation.of(np.maximum(rounded(wide, own, found, run.type_of(at)), seeds.error))


def _get(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    source, position = run.spreads[stmt.args[0]], stmt.attr("position")
    assert isinstance(source, tuple)
    assert isinstance(position, int)
    return source[position]


def _param(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    position = stmt.attr("position")
    assert isinstance(position, int)
    return run.given[-1][position]


# -------------------------------------------------------------- several points of the loops


def _reduce(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    axes = [len(run.points) + k for k in range(len(run.reduce))]
    return _over(run, stmt, at, axes)


def _reduce_part(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    over = stmt.attr("over")
    assert isinstance(over, Expr)
    first = len(run.points)
    axes = [first + k for k, v in enumerate(run.body.reduce.vars) if v in over.free]
    return _over(run, stmt, at, axes)


def _over(run: BoundRun, stmt: Stmt, at: int, axes: list[int]) -> Spreads:
    """A reduction over some axes, which become the last one; in the result they have extent 1."""
    kind, to, found = str(stmt.attr("kind")), run.types[at], run.values[at]
    values = [run.single(a) for a in stmt.args]
    shape = list(np.broadcast_shapes(*[v.shape for v in values]))
    extents = (*run.points, *run.reduce)
    for axis in axes:
        shape[axis] = extents[axis]
    kept = [n for k, n in enumerate(shape) if k not in axes]
    length = math.prod(extents[a] for a in axes)

    def row(x: Array) -> Array:
        if x.size and not any(x.strides):  # one number, which needs no memory
            return np.broadcast_to(x[(0,) * x.ndim], (*kept, length))
        last = tuple(range(len(shape) - len(axes), len(shape)))
        moved = np.moveaxis(np.broadcast_to(x, shape), axes, last)
        return moved.reshape(*kept, length)

    def one(x: Array) -> Array:
        return np.broadcast_to(x, [1 if k in axes else n for k, n in enumerate(shape)]).reshape(
            kept
        )

    spreads = [run.spread(a).changed(row) for a in stmt.args]
    to = to[0] if isinstance(to, tuple) else to
    assert to is not None, "a reduction has a type"
    results = tuple(map(one, found)) if isinstance(found, tuple) else one(found)
    rule = REDUCTION_SPREADS[kind]
    made = rule(Rows([row(v) for v in values], spreads, to, results, run.numerics))
    if isinstance(made, Deviation):
        return Deviation.of(np.expand_dims(made.error, axes))
    return tuple(Deviation.of(np.expand_dims(part.error, axes)) for part in made)


def _scan(run: BoundRun, stmt: Stmt, at: int) -> None:
    """A running combination; one that a region says is followed step by step."""
    if stmt.attr("combine") == "region":
        _fold(run, stmt, at)
        return
    run.values[at] = found = STATEMENTS["scan"](run, stmt, at)
    values = [run.single(a) for a in stmt.args]
    rows = run.rows(values)
    spreads = run.rows_of([run.spread(a) for a in stmt.args], values)
    results = tuple(run.rows(found if isinstance(found, tuple) else (found,)))
    to = run.type_of(stmt.args[0])
    made = SCAN_SPREADS[str(stmt.attr("combine"))](Rows(rows, spreads, to, results, run.numerics))
    parts = tuple(Deviation.of(run.unrolled(part.error)) for part in made)
    run.keep(at, parts if isinstance(found, tuple) else parts[0])


def _fold(run: BoundRun, stmt: Stmt, at: int) -> None:
    values = [run.single(a) for a in stmt.args]
    rows, spreads = run.rows(values), run.rows_of([run.spread(a) for a in stmt.args], values)
    length = rows[0].shape[-1]
    full = [np.broadcast_to(x, (*run.points, length)) for x in rows]
    wide = [s.like(x) for s, x in zip(spreads, full, strict=True)]
    steps = [[run.reduced(x[..., k]) for x in full] for k in range(length)]
    errors = [[Deviation.of(run.reduced(s.error[..., k])) for s in wide] for k in range(length)]
    seen, known = steps[:1], errors[:1]
    for step, error in zip(steps[1:], errors[1:], strict=True):
        run.params.append([*seen[-1], *step])
        run.given.append([*known[-1], *error])
        yielded = run.block(stmt.region, at + 1)
        made = run.yielded
        run.params.pop()
        run.given.pop()
        seen.append([np.broadcast_to(x, s.shape) for x, s in zip(yielded, step, strict=True)])
        known.append([s.like(x) for s, x in zip(made, seen[-1], strict=True)])

    def stacked(columns: Sequence[Array], like: Array) -> Array:
        joined = np.stack([x.reshape(run.points) for x in columns], axis=-1) if columns else like
        return run.unrolled(joined)

    count = range(len(stmt.args))
    found = tuple(stacked([s[k] for s in seen], full[k]) for k in count)
    parts = tuple(Deviation.of(stacked([e[k].error for e in known], wide[k].error)) for k in count)
    run.values[at] = found if len(found) > 1 else found[0]
    run.keep(at, parts if len(parts) > 1 else parts[0])


def _sort(run: BoundRun, stmt: Stmt, at: int) -> Spreads:
    values = [run.single(a) for a in stmt.args]
    types = [run.type_of(a) for a in stmt.args]
    spreads = run.rows_of([run.spread(a) for a in stmt.args], values)
    made = sort_spreads(run.rows(values), spreads, types, bool(stmt.attr("descending")))
    parts = tuple(Deviation.of(run.unrolled(part.error)) for part in made)
    return parts if len(parts) > 1 else parts[0]


def _masked(run: BoundRun, stmt: Stmt, at: int) -> None:
    """The region's value; where the mask is open, what an unmasked region holds is not known."""
    outer, mask = run.mask, run.single(stmt.args[0])
    run.mask = mask if outer is None else outer & mask
    (inner,) = run.block(stmt.region, at + 1)
    (made,) = run.yielded
    run.mask = outer
    run.values[at] = np.where(mask, inner, run.literal(stmt.attr("other"), run.type_of(at)))
    lost = run.spread(stmt.args[0]).error
    parts = [np.maximum(np.where(mask, part, 0.0), lost) for part in made]
    run.keep(at, Deviation(*parts))


SPREADS: Mapping[str, Callable[[BoundRun, Stmt, int], Spreads]] = {
    **dict.fromkeys(POINTWISE, _pointwise),
    "constant": _exact,
    "cast": _cast,
    "bitcast": _certain_or_not,
    "floor_to_int": _to_int(np.floor),
    "ceil_to_int": _to_int(np.ceil),
    "trunc_to_int": _to_int(np.trunc),
    "round_to_int": _to_int(np.rint),
    "index": lambda run, stmt, at: Deviation.of(run.index_error(stmt.attr("expr"))),
    "indirect": _certain_or_not,
    "load": _load,
    "bucketize": _bucketize,
    "reduce": _reduce,
    "reduce_part": _reduce_part,
    "sort": _sort,
    "rand": _certain_or_not,
    "randn": _randn,
    "randint": _certain_or_not,
    "get": _get,
    "param": _param,
    "inline_asm": _certain_or_not,
}
"""How far code can be from the value of each statement."""
TOGETHER: Mapping[str, Callable[[BoundRun, Stmt, int], None]] = {"scan": _scan, "masked": _masked}
"""Statements with regions: value and error are found side by side."""


def _is_combined_again(run: BoundRun, stmt: Stmt) -> bool:
    """Whether a later store of the body combines in the same storage."""
    storage_of = run.memory.program.storage_of
    later = run.body.stmts[::-1]
    later = later[: next((k for k, other in enumerate(later) if other is stmt), len(later))]
    return any(
        s.op == "store" and s.mode in COMBINED and storage_of(s.buffer) == storage_of(stmt.buffer)
        for s in later
    )


def _store(run: BoundRun, stmt: Stmt, at: int) -> None:
    """Write a value and its error; at an index that is not certain, no element has a bound."""
    name, mode = str(stmt.attr("buffer")), str(stmt.attr("mode"))
    dtype = run.memory.buffer(name).dtype
    before = run.memory.elements(name).copy()
    EFFECTS["store"](run, stmt, at)
    given, raw = run.spread(stmt.args[0]), run.single(stmt.args[0])
    value, error = converted(raw, given.error, dtype)
    unrounded = given.unrounded if dtype is run.type_of(stmt.args[0]) else error
    index = run.index(stmt.attr("index"))
    ones = (*run.points, *([1] * len(run.reduce)))
    shape = np.broadcast_shapes(value.shape, index.shape, ones)
    lost = run.index_error(stmt.attr("index")).any()
    old = run.errors.elements(name)
    touched = np.full(before.size, lost)
    where, spread = np.broadcast_to(index, shape), Deviation(error, unrounded).like(value)
    touched[where.reshape(-1)] = True
    new = combined_errors(
        mode,
        before,
        old,
        where.reshape(-1),
        np.broadcast_to(value, shape).reshape(-1),
        Deviation(*[np.broadcast_to(part, shape).reshape(-1) for part in spread]),
        dtype,
        run.memory.elements(name),
        run.numerics,
        may_stay_wide=_is_combined_again(run, stmt),
    )
    if lost:
        new = Deviation.of(np.full(before.size, np.inf))
    run.errors.write(name, run.errors.with_bits_of_nan(name, new), touched)
