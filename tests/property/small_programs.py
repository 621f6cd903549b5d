"""Random small programs that pass the verifier, and the calls they make.

Storages of a few elements, many of them shared through views: shifted, strided, reversed,
transposed, of another width. So operations meet, half meet and just miss each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from small_operations import INDEX_RANGE, MOVES, Draft
from touched_bytes import Cell, all_cells, touched

from treadle.index import Expr, Symbol, as_expr
from treadle.ir.build import ProgramBuilder
from treadle.ir.effects import effects
from treadle.ir.interp import CallContext, ExternFn, run
from treadle.ir.interp.bindings import number
from treadle.ir.interp.dtypes import NUMPY_TYPES, Array
from treadle.ir.interp.machine import Result
from treadle.ir.program import Call, Foreach, Fused, Group, Grouped, Loop, Operation, Program
from treadle.ir.spec import violations
from treadle.ir.types import Buffer, BufferKind, DType, Layout

SHAPES = ((8,), (16,), (12,), (3, 4), (4, 2), (4, 4), (1,), (2, 2, 2), ())
DENSE, GAPS, REVERSED = "dense", "gaps", "reversed"


# ------------------------------------------------------------------------------ library calls


def _mix(ctx: CallContext, op: Call) -> None:
    """Fills what it writes with a function of all it reads; changes what it mutates by it."""
    arrays = [a for a in ctx.args if isinstance(a, np.ndarray)]
    total = sum(float(np.nansum(a.astype(np.float64))) for a in arrays) / 8 + ctx.args[-1]
    for name in (*op.writes, *op.mutates):
        shape, kind = ctx.shape_of(name), NUMPY_TYPES[ctx.dtype_of(name)]
        ramp = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape) / 4 + total
        old = ctx.read(name).astype(np.float64) / 2 if name in op.mutates else 0.0
        ctx.write(name, np.asarray(old + ramp).astype(kind))


def _split(ctx: CallContext, op: Call) -> None:
    """A tuple with one array for each buffer named in the last argument."""
    source, shift, names = ctx.args
    total = float(np.nansum(source.astype(np.float64))) / 8 + shift
    parts = [np.full(ctx.shape_of(n), total + k, np.float32) for k, n in enumerate(names)]
    ctx.write(op.writes[0], parts)


EXTERNS: Mapping[str, ExternFn] = {"mix": _mix, "split": _split}


# ------------------------------------------------------------------------------------ buffers


def _declare(d: Draft, sizes: Sequence[Symbol]) -> None:
    b = d.builder
    # Crowded: hardly anything but windows onto one storage, so that most operations meet.
    crowded = d.maybe()
    for k in range(1 if crowded else d.number(1, 2)):
        shape = _shape(d, sizes)
        d.floats.append(b.input(f"x{k}", "f32", shape, donated=d.maybe()))
    d.whole.append(b.input("at", "i64", [8]))
    for k in range(1 if crowded else d.number(1, 3)):
        d.floats.append(_root(d, f"t{k}", sizes))
    if crowded:
        b.nop(d.floats[-1], name="begin")
    for k in range(d.number(2, 4) if crowded else d.number(0, 3)):
        view = _view(d, f"v{k}")
        if view is not None:
            d.floats.append(b._declare(view))


def _shape(d: Draft, sizes: Sequence[Symbol]) -> list[Expr]:
    if sizes and d.maybe():
        return [as_expr(sizes[0]), *([as_expr(2)] if d.maybe() else [])]
    return [as_expr(n) for n in d.draw(st.sampled_from(SHAPES))]


def _root(d: Draft, name: str, sizes: Sequence[Symbol]) -> Buffer:
    shape = _shape(d, sizes)
    plain = Layout.contiguous(shape)
    strides, offset = list(plain.strides), as_expr(0)
    how = d.word((DENSE, DENSE, DENSE, GAPS))
    if how == GAPS and shape:
        strides, offset = [s * 2 for s in strides], as_expr(d.number(0, 1))
    return d.builder.buffer(name, d.word(("f32", "f32", "f64")), shape, strides, offset)


def _view(d: Draft, name: str) -> Buffer | None:
    """A window onto an earlier buffer of known size, in any of several ways."""
    known = [b for b in d.floats if b.layout.span.value]
    if not known:
        return None
    base = d.one_of(known)
    element = base.dtype if d.number(0, 2) else DType[d.word(("F16", "F32", "F64"))]
    total = d.limit(base).value
    assert total is not None
    total = total * base.dtype.itemsize // element.itemsize
    if total == 0:
        return None
    step = d.draw(st.sampled_from((1, 1, 2, -1)))
    count = d.number(1, max(1, total // abs(step)))
    reach = abs(step) * (count - 1)
    first = d.number(0, total - 1 - reach) if total > reach else 0
    offset = first if step > 0 else first + reach
    if count % 2 == 0 and d.maybe():
        half = as_expr(count // 2)
        layout = Layout((as_expr(2), half), (half * step, as_expr(step)), as_expr(offset))
        if d.maybe():
            layout = Layout(layout.sizes[::-1], layout.strides[::-1], layout.offset)
    else:
        layout = Layout((as_expr(count),), (as_expr(step),), as_expr(offset))
    return Buffer(name, element, layout, "cpu", base.name)


# ----------------------------------------------------------------------------------- programs


class _Known:
    """Which bytes hold a value, for each choice of the run-time sizes."""

    def __init__(self, choices: Sequence[dict[Symbol, int]]) -> None:
        self.choices = choices
        self.written: list[set[Cell]] = [set() for _ in choices]

    def begin(self, program: Program) -> None:
        for sizes, cells in zip(self.choices, self.written, strict=True):
            for name in program.inputs:
                cells.update(all_cells(program, name, sizes))

    def accepts(self, program: Program, ops: Sequence[Operation]) -> bool:
        """Whether `ops` read only what holds a value or was allocated; remembers if so."""
        after = []
        for sizes, cells in zip(self.choices, self.written, strict=True):
            mine = set(cells)
            for op in ops:
                of = touched(program, op, sizes)
                if not of.reads <= mine:
                    return False
                mine |= of.certain
            after.append(mine)
        self.written = after
        return True

    def is_full(self, program: Program, name: str) -> bool:
        """Whether every byte of a storage holds a value."""
        each = zip(self.choices, self.written, strict=True)
        return all(cells.issuperset(all_cells(program, name, sizes)) for sizes, cells in each)


@st.composite
def small_programs(
    draw: st.DrawFn,
    *,
    max_ops: int = 9,
    moves: Sequence[str] = tuple(MOVES),
    groups: bool = False,
    run_time_sizes: bool = True,
) -> Program:
    """A program the verifier accepts, whose reads are all of values that were written."""
    b = ProgramBuilder("small")
    d = Draft(draw, b)
    sizes = [b.size("s", 1, 6, hint=4)] if run_time_sizes and d.number(0, 3) == 0 else []
    d.extents += [as_expr(s) for s in sizes] * 3
    _declare(d, sizes)
    program = b.build()
    known = _Known(size_choices(program))
    known.begin(program)
    known.accepts(program, program.ops)
    for _ in range(d.number(2, max_ops)):
        d.filled = [x for x in d.floats if known.is_full(program, x.name)]
        before = list(b._ops)
        try:
            MOVES["finish" if d.under_way and d.maybe() else draw(st.sampled_from(moves))](d)
        except (ValueError, AssertionError, IndexError):
            b._ops = before
            continue
        program = b.build()
        if violations(program) or not known.accepts(program, b._ops[len(before) :]):
            b._ops = before
    for target in d.under_way:
        b.wait(target, name=d.fresh("wait"))
        if violations(b.build()):
            b._ops.pop()
    b.outputs = _outputs(d)
    if groups:
        b._ops = list(_grouped(d, b._ops))
    return b.build()


def size_choices(program: Program) -> list[dict[Symbol, int]]:
    """The run-time sizes to look at: the least, the likely and the largest."""
    if not program.sizes:
        return [{}]
    (s,) = program.sizes
    return [{s: n} for n in (s.lo, s.hint, s.hi) if n is not None]


def _outputs(d: Draft) -> list[str]:
    """What is given back: mostly what was written last, so that mistakes show."""
    program = d.builder.build()
    order = [program.storage_of(n) for op in program.leaves for n in _written(op)]
    latest = list(dict.fromkeys(reversed([s for s in order if _is_tensor(program, s)])))
    ready = {*latest, *map(program.storage_of, program.inputs)}
    others = [x.name for x in d.floats if program.storage_of(x.name) in ready]
    return [*latest[: d.number(0, 3)], d.draw(st.sampled_from(others))]


def _is_tensor(program: Program, name: str) -> bool:
    return program.by_name[name].kind is BufferKind.TENSOR


def _grouped(d: Draft, ops: Sequence[Operation]) -> Iterator[Operation]:
    """Some neighbours made groups: kernels of loops, and any that stay side by side."""
    rest = list(ops)
    while rest:
        loops = next((k for k, op in enumerate(rest) if not isinstance(op, Loop)), len(rest))
        of_loops = loops > 1 and d.number(0, 3) > 0
        count = d.number(2, min(loops, 4)) if of_loops else min(d.number(1, 3), len(rest))
        members, rest = rest[:count], rest[count:]
        if count == 1:
            yield from members
            continue
        kinds: list[type[Group]] = [Fused, Fused, Foreach, Grouped] if of_loops else [Grouped]
        kind = d.draw(st.sampled_from(kinds))
        if kind is Foreach and not _independent(d, members):
            kind = Grouped
        yield kind(name=d.fresh("group"), members=tuple(members))


def _independent(d: Draft, members: Sequence[Operation]) -> bool:
    """Whether no member touches a storage that another one writes."""
    program = d.builder.build()
    stored = [{program.storage_of(n) for n in effects(m).touched} for m in members]
    wrote = [{program.storage_of(n) for n in _written(m)} for m in members]
    return all(
        wrote[a].isdisjoint(stored[b])
        for a in range(len(members))
        for b in range(len(members))
        if a != b
    )


def _written(op: Operation) -> tuple[str, ...]:
    of = effects(op)
    return (*of.writes, *of.mutates)


def ungrouped(program: Program) -> Program:
    """The same operations, none of them in a group."""
    return replace(program, ops=program.leaves)


# ------------------------------------------------------------------------------------ running


def inputs_for(program: Program, sizes: Mapping[Symbol, int], seed: int = 0) -> dict[str, Array]:
    """Arrays for the inputs; whole numbers are legal indices."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in program.inputs:
        b = program.by_name[name]
        shape = tuple(number(n, sizes, name) for n in b.layout.sizes)
        if b.dtype.is_int:
            found[name] = rng.integers(0, INDEX_RANGE, shape).astype(NUMPY_TYPES[b.dtype])
        else:
            found[name] = rng.standard_normal(shape).astype(NUMPY_TYPES[b.dtype])
    return found


def run_small(program: Program, sizes: Mapping[Symbol, int], seed: int = 0) -> Result:
    """Run a small program with the calls it may make."""
    named = {s.name: n for s, n in sizes.items()}
    return run(program, inputs_for(program, sizes, seed), sizes=named, externs=EXTERNS)


def seen_by_caller(program: Program, result: Result) -> dict[str, bytes]:
    """The bytes of every output and input after a run."""
    names = dict.fromkeys((*program.outputs, *program.inputs))
    return {n: result.read(n).tobytes() for n in names}
