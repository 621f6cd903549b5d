"""When a computation becomes a loop with a result in memory, and how.

A value is realised when

- a call needs it in memory, it is a result of the graph, or a reduction makes it (always);
- it repeats more than `LONGEST` pointwise operations or reads more than `MOST_READS` buffers;
- it has several readers and computing it again in each costs more than `CHEAP` units of work
  (the work column of the table of body operations) or reads several buffers of more bytes than it
  has itself; of what reads far less than it makes, more than `CHEAP_OF_LITTLE` units. Of a value
  that is another one in a wider type, that other one is realised;
- on a CPU it costs more than `CHEAP_OF_LITTLE` units and its readers ask for every element
  `REPEATED` times or more: the angles of rotary positions, which all heads of all layers turn by;
  or more than `CHEAP` units and they ask `OFTEN` times: the weights of a row that all rows of a
  resized picture are made with, and its places, unless a formula is found for them; of what is
  repeated around a long line, `SEVERAL` times: the logarithm of a sum over channels, which no
  loop around the line could keep;
- something is about to overwrite a buffer it reads;
- a view of it shows elements several times (it overlaps itself), or several results show it.

Everything else is written into the loops of its readers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from treadle.frontends.torch.lowering.readers import looks_at_shape
from treadle.frontends.torch.lowering.symbols import GraphSizes
from treadle.frontends.torch.lowering.values import (
    Index,
    Lazy,
    LoopWriter,
    NotLowered,
    Realised,
    Refusal,
    Tensor,
)
from treadle.index import Expr, Facts, as_expr, hint
from treadle.ir.build import ProgramBuilder
from treadle.ir.ops import OPS
from treadle.ir.program import Loop
from treadle.ir.types import Buffer, DType, Layout, row_major_strides

LONGEST = 30
MOST_READS = 8
CHEAP = 4.0
CHEAP_OF_LITTLE = 12.0
LITTLE = 16
"""So many times the elements it reads makes a value one of little."""
REPEATED = 2
"""So many times its elements is more than a costly value is computed for."""
OFTEN = 64
"""So many times its elements is more than anything but a few steps is computed for."""
SEVERAL, LINE = 8, 16
"""So many times where the value has a line of so many elements, around which it is repeated."""
ATEN: Any = torch.ops.aten
PUTTING = (ATEN.cat, ATEN.stack, ATEN.constant_pad_nd, ATEN.slice_scatter, ATEN.select_scatter)
"""Operators that put what they read beside other things: larger than it, they read it once."""


def is_too_long(value: Lazy) -> bool:
    """Whether a computation has grown past what one loop should repeat."""
    return len(value.parts) > LONGEST or len(value.reads) > MOST_READS


def is_cheap(value: Lazy, buffers: dict[str, Buffer]) -> bool:
    """Whether several readers may each compute the value again."""
    if not value.reads:
        return True
    most = CHEAP
    if _reads_little(value, buffers):
        most = CHEAP_OF_LITTLE
    elif len(value.reads) > 1 and not _saves_reads(value, buffers):
        return False
    return work_of(value, buffers) <= most


def is_costly_to_repeat(
    value: Lazy, buffers: dict[str, Buffer], asked: int, is_around: bool
) -> bool:
    """Whether a value that is asked for `asked` elements in all should be computed but once.

    `is_around` says that it is repeated around its lines, not along them.
    """
    made = _elements(value)
    if not asked >= REPEATED * made > 0:
        return False
    is_often = asked >= (SEVERAL if is_around else OFTEN) * made
    if work_of(value, buffers) <= (CHEAP if is_often else CHEAP_OF_LITTLE):
        return False
    return not _is_formula(value, buffers)


def _is_formula(value: Lazy, buffers: dict[str, Buffer]) -> bool:
    """Whether readers who take a whole number for an index find a formula for it."""
    if value.dtype is not DType.I64 or value.reads:
        return False
    scratch = LoopWriter(buffers, value.sizes)
    return scratch.formula_of(value.load(scratch, scratch.at).number) is not None


def is_repeated_around(node: Any, value: Lazy, sizes: GraphSizes) -> bool:
    """Whether a reader of a node repeats whole lines of it: in a dimension before a long one."""
    own = [hint(n) for n in value.sizes]
    if not own or own[-1] < LINE:
        return False
    shapes = [_likely_shape(user.meta.get("val"), sizes) for user in node.users]
    return any(
        made and own[-1] == made[-1] and _is_broadcast(own, made) and own != made for made in shapes
    )


def elements_asked(node: Any, value: Lazy, sizes: GraphSizes) -> int:
    """How many elements all readers of a node ask for: those that broadcast it, many."""
    own, asked = [hint(n) for n in value.sizes], 0
    for user in node.users:
        if looks_at_shape(user):
            continue
        made = _likely_shape(user.meta.get("val"), sizes)
        is_put = getattr(user.target, "overloadpacket", None) in PUTTING
        asked += math.prod(made if not is_put and _is_broadcast(own, made) else own)
    return asked


def _likely_shape(val: Any, sizes: GraphSizes) -> list[int]:
    """The likely sizes of a tensor; none for what is no tensor, or whose sizes data decide."""
    if not isinstance(val, torch.Tensor):
        return []
    try:
        return [hint(n) for n in sizes.exprs(val.shape)]
    except NotLowered:
        return []


def _is_broadcast(small: Sequence[int], large: Sequence[int]) -> bool:
    """Whether the one shape is the other with dimensions repeated."""
    if len(small) > len(large):
        return False
    tail = large[len(large) - len(small) :]
    return all(n in (1, m) for n, m in zip(small, tail, strict=True))


def work_of(value: Lazy, buffers: dict[str, Buffer]) -> float:
    """Units of work that computing one element takes."""
    scratch = LoopWriter(buffers, value.sizes)
    value.load(scratch, scratch.at)
    return sum(OPS[at.stmt.op].work for at in scratch.build().walk() if at.stmt.op != "index")


def _saves_reads(value: Lazy, buffers: dict[str, Buffer]) -> bool:
    """Whether all that a value is made of has no more bytes than the value."""
    read = sum(hint(buffers[name].numel) * buffers[name].dtype.itemsize for name in value.reads)
    made = value.dtype.itemsize
    for n in value.sizes:
        made *= hint(n)
    return read <= made


def _reads_little(value: Lazy, buffers: dict[str, Buffer]) -> bool:
    """Whether a value has far more elements than all that it is made of."""
    read = sum(hint(buffers[name].numel) for name in value.reads)
    return read * LITTLE < _elements(value)


def _elements(value: Lazy) -> int:
    return math.prod(map(hint, value.sizes))


def dense_strides(sizes: Index, strides: Index | None) -> Index:
    """The given strides if they fill memory without gaps or overlaps, else row-major ones."""
    plain = row_major_strides(sizes)
    if strides is None or tuple(strides) == plain:
        return plain
    order = memory_order(sizes, strides)
    step: Expr = as_expr(1)
    for d in reversed(order):
        if sizes[d].value == 1:
            continue
        if strides[d] is not step:
            return plain
        step = step * sizes[d]
    return tuple(strides)


def is_spread(sizes: Index, strides: Index) -> bool:
    """Whether no two elements share memory: provably, or for likely sizes if those are open."""
    facts, reach = Facts(), as_expr(0)
    for d in reversed(memory_order(sizes, strides)):
        if sizes[d].value == 1:
            continue
        if not facts.less(reach, strides[d]) and not hint(reach) < hint(strides[d]):
            return False
        reach = reach + (sizes[d] - 1) * strides[d]
    return True


def memory_order(sizes: Index, strides: Index) -> list[int]:
    """Dimensions from the largest step to the smallest: the order in which memory lies."""
    return sorted(range(len(sizes)), key=lambda d: (-hint(strides[d]), sizes[d].value == 1, d))


def write_loop(
    builder: ProgramBuilder,
    name: str,
    value: Tensor,
    target: Buffer,
    layout: Layout,
    origins: Sequence[str],
    refuses: Refusal | None = None,
) -> None:
    """Append a loop that computes every element of `value` into a view of `target`."""
    order = memory_order(layout.sizes, layout.strides)
    k = LoopWriter(builder.buffers, [value.sizes[d] for d in order], refuses=refuses)
    at: list[Expr] = [as_expr(0)] * len(order)
    for var, d in zip(k.at, order, strict=True):
        at[d] = var
    k.store_at(target, layout.index(at), value.load(k, tuple(at)))
    builder.add(Loop(name=name, device=target.device, origins=tuple(origins), body=k.build()))


def overlaps(sizes: Index, strides: Index) -> bool:
    """Whether different elements share memory, other than by being repeated without steps."""
    pairs = [(n, s) for n, s in zip(sizes, strides, strict=True) if s.value != 0]
    return not is_spread(tuple([n for n, _ in pairs]), tuple([s for _, s in pairs]))


def realise(
    builder: ProgramBuilder,
    name: str,
    value: Lazy,
    origins: Sequence[str],
    keep_gaps: bool = False,
    refuses: Refusal | None = None,
) -> Realised:
    """The value in memory: a buffer and a loop that fills it, made once.

    With `keep_gaps` it lies as torch says even if that leaves gaps.
    """
    if value.home is None:
        strides = dense_strides(value.sizes, value.strides)
        if keep_gaps and value.strides is not None and 0 not in [n.value for n in value.sizes]:
            strides = value.strides if is_spread(value.sizes, value.strides) else strides
        target = builder.buffer(name, value.dtype, value.sizes, strides)
        write_loop(builder, name, value, target, target.layout, origins, refuses)
        value.home = Realised(target, target.layout)
    return value.home
