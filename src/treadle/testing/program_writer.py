"""Writes random programs, one operation after the other, each legal given what is there.

A move looks at the buffers that hold a value and appends one operation (or declares a view). New
moves are one function and one row of MOVES.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hypothesis import strategies as st

from treadle.index import Expr, Symbol, as_expr, product_of
from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.program import Program
from treadle.ir.types import Buffer, DType

EXTENTS = (1, 2, 3, 4, 5)
UNARY_FLOAT = ("neg", "abs", "relu", "sigmoid", "tanh", "square", "floor", "sin")
UNARY_WHOLE = ("neg", "abs", "relu", "square", "sign", "bitwise_not")
UNARY_BOOL = ("logical_not", "abs", "bitwise_not", "identity")
BINARY = ("add", "mul", "maximum", "minimum", "sub")
BINARY_BOOL = BINARY[:4]
REDUCTIONS = ("sum", "max", "min", "prod", "any", "argmax")
FLOATS = (DType.F32, DType.F64, DType.BF16)


class Writer:
    """A program under construction: the builder, the draw function, what can be read."""

    def __init__(self, draw: st.DrawFn, dtypes: Sequence[DType], symbolic: bool) -> None:
        self.draw = draw
        self.dtypes = tuple(dtypes)
        self.builder = ProgramBuilder("random")
        self.ready: list[Buffer] = []
        self.results: list[Buffer] = []
        sizes = [self.builder.size("s0", lo=1, hi=6, hint=4)] if symbolic else []
        self.extents: list[Expr] = [as_expr(n) for n in EXTENTS] + list(sizes)
        self._count = 0

    # -- drawing ---------------------------------------------------------------------------
    def pick(self, options: Sequence[Buffer]) -> Buffer:
        """One of several buffers, recent ones first when shrinking."""
        return self.draw(st.sampled_from(list(reversed(options))))

    def choose(self, names: Sequence[str]) -> str:
        """One of several names."""
        return self.draw(st.sampled_from(names))

    def maybe(self) -> bool:
        """A coin."""
        return self.draw(st.booleans())

    def fresh(self, prefix: str) -> str:
        """A name nobody has yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    # -- declaring -------------------------------------------------------------------------
    def add_input(self) -> None:
        """An input of one to three dimensions."""
        count = self.draw(st.integers(1, 3))
        shape = [self.draw(st.sampled_from(self.extents)) for _ in range(count)]
        dtype = self.draw(st.sampled_from(self.dtypes))
        self.ready.append(self.builder.input(self.fresh("x"), dtype, shape))

    def result(self, dtype: DType, shape: Sequence[Expr]) -> Buffer:
        """A new buffer for a result: row-major, or with its dimensions stored in reverse."""
        strides: list[Expr] | None = None
        if len(shape) > 1 and all(n.value is not None for n in shape) and self.maybe():
            strides = [product_of(shape[:k]) for k in range(len(shape))]
        buffer = self.builder.buffer(self.fresh("t"), dtype, shape, strides)
        self.results.append(buffer)
        return buffer

    def storage(self, buffer: Buffer) -> str:
        """The buffer whose storage this one lives in."""
        while buffer.view_of is not None:
            buffer = self.builder.buffers[buffer.view_of]
        return buffer.name

    def fitting(self, shape: Sequence[Expr], but: Buffer | None = None) -> list[Buffer]:
        """Buffers that broadcast to `shape`, none of them in the storage of `but`."""
        taken = None if but is None else self.storage(but)
        return [b for b in self.ready if self.storage(b) != taken and _broadcasts(b, shape)]

    # -- bodies ----------------------------------------------------------------------------
    def load(self, k: BodyBuilder, buffer: Buffer, at: Sequence[Symbol]) -> Value:
        """The element of a buffer at a point of a shape it broadcasts to."""
        inner = at[len(at) - len(buffer.layout.sizes) :]
        pairs = zip(buffer.layout.sizes, inner, strict=True)
        return k.load(buffer, *[0 if n.value == 1 else v for n, v in pairs])

    def chain(self, k: BodyBuilder, value: Value, others: Sequence[Value]) -> Value:
        """A few pointwise operations on `value`, using the others on the way."""
        for other in others:
            has_bool = DType.BOOL in (value.dtype, other.dtype)
            value = k.op(self.choose(BINARY_BOOL if has_bool else BINARY), value, other)
        for _ in range(self.draw(st.integers(0, 3))):
            value = k.op(self.choose(_unary(value.dtype)), value)
        if value.dtype is not DType.BOOL and self.maybe():
            value = k.where(value > 0, value, 1)
        return value


def _unary(dtype: DType) -> tuple[str, ...]:
    if dtype is DType.BOOL:
        return UNARY_BOOL
    return UNARY_FLOAT if dtype.is_float else UNARY_WHOLE


def _broadcasts(buffer: Buffer, shape: Sequence[Expr]) -> bool:
    sizes = buffer.layout.sizes
    if len(sizes) > len(shape):
        return False
    pairs = zip(reversed(sizes), reversed(shape), strict=False)
    return all(n is m or n.value == 1 for n, m in pairs)


# ----------------------------------------------------------------------------------- moves


def pointwise(w: Writer) -> None:
    """A new buffer computed point by point, from one to three that broadcast together."""
    first = w.pick(w.ready)
    shape = first.layout.sizes
    others = [w.pick(w.fitting(shape)) for _ in range(w.draw(st.integers(0, 2)))]
    with w.builder.loop(w.fresh("point"), shape) as k:
        values = [w.load(k, b, k.vars) for b in (first, *others)]
        value = w.chain(k, values[0], values[1:])
        target = w.result(value.dtype, shape)
        k.store(target, k.vars, value)
    w.ready.append(target)


def reduction(w: Writer) -> None:
    """A new buffer that combines some dimensions of another, in any order of loops."""
    source = w.pick([b for b in w.ready if b.layout.sizes])
    sizes = source.layout.sizes
    chosen = w.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1))
    kept = [n for d, n in enumerate(sizes) if d not in chosen]
    gone = [n for d, n in enumerate(sizes) if d in chosen]
    with w.builder.loop(w.fresh("reduce"), kept, reduce=gone) as k:
        loops, inner = iter(k.domain.vars), iter(k.reduce.vars)
        at = [next(inner if d in chosen else loops) for d in range(len(sizes))]
        value = k.reduce_by(w.choose(REDUCTIONS), w.load(k, source, at))
        target = w.result(value.dtype, kept)
        k.store(target, k.domain.vars, value)
    w.ready.append(target)


def normalise(w: Writer) -> None:
    """A reduction whose result is used at every point of the same body."""
    source = w.pick([b for b in w.ready if b.layout.sizes])
    *outer, last = source.layout.sizes
    with w.builder.loop(w.fresh("norm"), outer, reduce=[last]) as k:
        value = w.load(k, source, k.vars)
        if value.dtype is DType.BOOL:
            value = value.to(DType.I32)
        value = value - k.reduce_by(w.choose(("max", "sum", "min")), value)
        target = w.result(value.dtype, source.layout.sizes)
        k.store(target, k.vars, w.chain(k, value, ()).to(target.dtype))
    w.ready.append(target)


def in_place(w: Writer) -> None:
    """A buffer (input, result or view) changed where it lies."""
    target = w.pick(w.ready)
    shape = target.layout.sizes
    others = w.fitting(shape, but=target)
    with w.builder.loop(w.fresh("update"), shape) as k:
        extra = [w.load(k, w.pick(others), k.vars)] if others and w.maybe() else []
        k.store(target, k.vars, w.chain(k, k.load(target, *k.vars), extra))


def view(w: Writer) -> None:
    """Another view of a buffer: its dimensions reversed, or without the first rows."""
    base = w.pick(w.ready)
    layout = base.layout
    sizes, strides, offset = list(layout.sizes), list(layout.strides), layout.offset
    first = sizes[0].value if sizes else None
    if first is not None and first > 1 and w.maybe():
        skipped = w.draw(st.integers(1, first - 1))
        sizes[0], offset = as_expr(first - skipped), offset + strides[0] * skipped
    else:
        sizes.reverse()
        strides.reverse()
    w.ready.append(w.builder.view(w.fresh("v"), base, sizes, strides, offset))


def product(w: Writer) -> None:
    """A library call: the matrix product of two matrices that fit, or of one with its mirror."""
    matrices = [b for b in w.ready if len(b.layout.sizes) == 2 and b.dtype in FLOATS]
    if not matrices:
        return pointwise(w)
    left = w.pick(matrices)
    rows, inner = left.layout.sizes
    fitting = [b for b in matrices if b.layout.sizes[0] is inner and b.dtype is left.dtype]
    if fitting and w.maybe():
        right = w.pick(fitting)
    else:
        layout = left.layout
        mirrored = layout.sizes[::-1], layout.strides[::-1], layout.offset
        right = w.builder.view(w.fresh("v"), left, *mirrored)
    target = w.result(left.dtype, [rows, right.layout.sizes[1]])
    w.builder.extern("aten.mm.default", [left, right], [target], name=w.fresh("call"))
    w.ready.append(target)
    return None


MOVES: Mapping[str, Callable[[Writer], None]] = {
    "pointwise": pointwise,
    "reduction": reduction,
    "normalise": normalise,
    "in_place": in_place,
    "view": view,
    "product": product,
}


@st.composite
def program_strategy(
    draw: st.DrawFn,
    *,
    min_ops: int = 1,
    max_ops: int = 6,
    dtypes: Sequence[DType] = (DType.F32, DType.F64, DType.BF16, DType.I32, DType.BOOL),
    moves: Sequence[str] = tuple(MOVES),
    symbolic: bool = True,
) -> Program:
    """A legal program of a few small operations over one to three inputs.

    `moves` picks the kinds of operations (see MOVES), `symbolic=False` leaves run-time sizes out.
    Its outputs are some of the buffers it computes; inputs may be changed in place.
    """
    w = Writer(draw, dtypes, symbolic and draw(st.booleans()))
    for _ in range(draw(st.integers(1, 3))):
        w.add_input()
    for _ in range(draw(st.integers(min_ops, max_ops))):
        MOVES[w.choose(moves)](w)
    if not w.results:
        pointwise(w)  # views and updates alone leave nothing to return
    chosen = draw(st.sets(st.sampled_from([b.name for b in w.results]), min_size=1))
    w.builder.returns(*sorted(chosen))
    return w.builder.build()
