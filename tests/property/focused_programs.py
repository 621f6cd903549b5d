"""Random programs that do little else than what one analysis has to get right.

`crowds`   many small reads and writes of one storage: what meets, what misses, what hides what
`relays`   kernels that each make a new buffer from the newest: which may take over the block
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import assume
from hypothesis import strategies as st
from small_operations import INDEX_RANGE, Draft

from treadle.index import Expr, Symbol, as_expr
from treadle.ir.build import BodyBuilder, ProgramBuilder, Value
from treadle.ir.program import Foreach, Fused, Grouped, Program
from treadle.ir.spec import violations
from treadle.ir.types import Buffer, DType, Layout

SIZE = 24
STEPS = (1, 1, 2, 3, 4, 6, -1, -2)
ELEMENTS = {DType.F16: 2 * SIZE, DType.F64: SIZE // 2}


# ----------------------------------------------------------------------------------- crowds


@st.composite
def crowds(draw: st.DrawFn) -> Program:
    """Up to ten operations on one storage; each read goes to an output of its own."""
    b = ProgramBuilder("crowd")
    d = Draft(draw, b)
    if d.maybe():
        root = b.input("x", "f32", [SIZE])
    else:
        root = b.input("x", "f32", [SIZE // 2], strides=[2], offset=1)
    b.input("at", "i64", [8])
    windows = [root]
    for k, element in enumerate((DType.F16, DType.F64)):
        if d.number(0, 3) == 0:
            layout = Layout.contiguous([ELEMENTS[element]])
            windows.append(b._declare(Buffer(f"v{k}", element, layout, "cpu", "x")))
    if d.number(0, 2) == 0:
        windows.append(b.view("part", root, [5], [d.number(1, 4)], d.number(0, 7)))
    b.returns(root)
    for k in range(d.number(3, 12)):
        _crowd_operation(d, windows[d.number(0, len(windows) - 1)], k)
        if violations(b.build()):
            b._ops.pop()
            b.outputs = [n for n in b.outputs if n != f"r{k}"]
            d.under_way = [sink for sink in d.under_way if sink.name != f"r{k}"]
        if d.under_way and d.maybe():
            _finish(d)
    while d.under_way:
        _finish(d)
    return b.build()


def _finish(d: Draft) -> None:
    sink = d.under_way.pop()
    d.builder.wait(sink, name=f"wait_{sink.name}")
    d.builder.returns(sink)


def _crowd_operation(d: Draft, window: Buffer, k: int) -> None:
    b, how = d.builder, d.number(0, 13)
    if how == 0:
        b.extern("mix", [float(k)], [window], name=f"fill{k}")
    elif how == 1:
        b.extern("mix", [float(k)], [], mutates=[window], name=f"change{k}")
    elif how == 2:
        sink = b.output(f"r{k}", "f32", [1])
        b.extern("mix", [window, float(k)], [sink], name=f"look{k}")
    elif how == 3:
        sink = b.buffer(f"r{k}", "f32", [1])
        b.collective("mix", [window, float(k)], writes=[sink], name=f"send{k}", group="world")
        d.under_way.append(sink)
    elif how <= 7:
        _crowd_read(d, window, k)
    else:
        mode = "atomic_add" if how == 8 else "plain"
        _crowd_write(d, window, k, scattered=how in (9, 10), mode=mode)


def _crowd_read(d: Draft, window: Buffer, k: int) -> None:
    extents = _extents(d)
    sink = d.builder.output(f"r{k}", "f32", extents)
    with d.builder.loop(f"read{k}", extents) as body:
        index = _walk(d, window, body, d.number(0, 7) == 0)
        body.store(sink, body.vars, body.load_at(window, index).to("f32"))


def _crowd_write(d: Draft, window: Buffer, k: int, scattered: bool, mode: str) -> None:
    with d.builder.loop(f"write{k}", _extents(d)) as body:
        value = body.constant(float(k), window.dtype)
        body.store_at(window, _walk(d, window, body, scattered), value, mode)


def _extents(d: Draft) -> list[int]:
    return [d.draw(st.sampled_from((1, 2, 3, 4, 8))) for _ in range(d.number(1, 2))]


def _walk(d: Draft, window: Buffer, body: BodyBuilder, from_data: bool) -> Expr:
    """An index that stays inside: strides and a start drawn so that the last element fits."""
    total: Expr = as_expr(0)
    low = high = 0
    for v, n in body.domain.items():
        step = d.draw(st.sampled_from(STEPS))
        reach = step * ((n.value or 1) - 1)
        low, high, total = low + min(reach, 0), high + max(reach, 0), total + v * step
    if from_data:
        step = d.draw(st.sampled_from((1, 2, 3, 4)))
        at = body.load_at(d.builder.buffers["at"], body.domain.vars[0] % 8)
        total = body.indirect(at, INDEX_RANGE) * step
        low, high = 0, step * (INDEX_RANGE - 1)
    limit = d.limit(window).value
    assert limit is not None
    return total - low + d.number(0, max(limit - 1 - high + low, 0))


# ----------------------------------------------------------------------------------- relays


@st.composite
def relays(draw: st.DrawFn) -> Program:
    """A few kernels in a row, some of them fused, that hand values from buffer to buffer."""
    b = ProgramBuilder("relay")
    d = Draft(draw, b)
    count = d.draw(st.sampled_from((2, 4, 6)))
    made = [b.input("x", "f32", [count], donated=d.number(0, 3) > 0)]
    b.input("at", "i64", [8])
    for _ in range(d.number(1, 3)):
        kinds = (None, None, Fused, Grouped, Foreach)
        kind = d.draw(st.sampled_from(kinds))
        if kind is None:
            made.append(_relay_kernel(d, made, count))
        else:
            with b.group(kind, d.fresh("g")):
                for _ in range(2):
                    made.append(_relay_kernel(d, made, count))
    b.returns(made[-1], *[m for m in made[1:-1] if d.number(0, 3) == 0])
    program = b.build()
    assume(not violations(program))
    return program


def _relay_kernel(d: Draft, made: Sequence[Buffer], count: int) -> Buffer:
    older = made[-1] if d.number(0, 3) else made[d.number(0, len(made) - 1)]
    element = "f32" if d.number(0, 5) else d.word(("f16", "f64"))
    sizes = [count] if d.number(0, 5) else [d.draw(st.sampled_from((1, count + 1)))]
    target = d.builder.buffer(d.fresh("y"), element, sizes)
    reduce = [2] if d.number(0, 5) == 0 else []
    with d.builder.loop(d.fresh("k"), [count], reduce=reduce) as k:
        where = k.vars[0]
        value = _relay_load(d, k, older, where, count)
        if d.number(0, 2) == 0:
            value = value + _relay_load(d, k, made[d.number(0, len(made) - 1)], where, count)
        if reduce:
            value = k.sum(value)
        last = target.numel.value or 1
        index = where if d.number(0, 3) else count - 1 - where
        index = where // 2 if last == 1 and count == 2 else index
        k.store_at(target, index, (value * 0.5 + float(d.count)).to(element))
        if d.number(0, 7) == 0:
            extra = d.builder.output(d.fresh("z"), "f32", [count])
            k.store_at(extra, where, _relay_load(d, k, older, where, count))
    return target


def _relay_load(d: Draft, k: BodyBuilder, source: Buffer, at: Symbol, count: int) -> Value:
    """Mostly the element with the same number; now and then another, or whatever data says."""
    last = count - 1
    options: list[Expr] = [at, at, at, at, last - at, at // 2, as_expr(d.number(0, last))]
    if source.numel.value != count:
        options = [at % (source.numel.value or 1)]
    index = options[d.number(0, len(options) - 1)]
    if count == INDEX_RANGE and d.number(0, 7) == 0:
        index = k.indirect(k.load_at(d.builder.buffers["at"], at), INDEX_RANGE)
    return k.load_at(source, index).to("f32")
