"""Which type each value of a body is rounded to next: how exact a function needs to be.

    %1 = exp %0           f32, and its only reader rounds it to bf16: 8 bits are enough
    %2 = mul %1, %9       products keep relative errors, so they pass the question on
    %3 = cast bf16 %2

Renderers and the derived error bound ask the same function, so they cannot disagree on what the
freedom `as result` of a program's numerics means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from treadle.ir.body import Body, Stmt
from treadle.ir.ops import OPS
from treadle.ir.types import Buffer, DType
from treadle.ir.typing import ValueType, infer_types

BITS: Mapping[DType, int] = {
    DType.F64: 53,
    DType.F32: 24,
    DType.F16: 11,
    DType.BF16: 8,
    DType.F8E4M3: 4,
    DType.F8E5M2: 3,
}
"""The significant bits of each float type."""
PASSES_ON = frozenset({
    "identity", "neg", "abs", "relu", "mul", "truediv", "maximum", "minimum", "where",
})  # fmt: skip
"""Operations whose result has about the relative error of their operands."""
ALL_BITS = 99


def rounded_next(body: Body, buffers: Mapping[str, Buffer]) -> list[DType | None]:
    """For each value by number the narrow type that all its readers round it to, else None."""
    types = infer_types(body, buffers)
    wanted: list[tuple[int, DType | None]] = [(0, None)] * len(types)
    for number, stmt, owner in reversed(list(_with_owners(body.stmts, 0, None))):
        for operand, need in _needs(number, stmt, owner, wanted, types, buffers):
            wanted[operand] = max(wanted[operand], need, key=lambda one: one[0])
    return [narrow for _, narrow in wanted]


def _needs(
    number: int,
    stmt: Stmt,
    owner: int | None,
    wanted: Sequence[tuple[int, DType | None]],
    types: Sequence[ValueType],
    buffers: Mapping[str, Buffer],
) -> Iterator[tuple[int, tuple[int, DType | None]]]:
    """What a statement asks of each of its operands: (bits, type)."""
    need: tuple[int, DType | None] = (ALL_BITS, None)
    if stmt.op == "store" and stmt.attr("mode") == "plain":
        need = _of_type(buffers[str(stmt.attr("buffer"))].dtype)
    elif stmt.op == "yield":
        need = (ALL_BITS, None) if owner is None else wanted[owner]
    elif OPS[stmt.op].produces:
        made = types[number]
        if stmt.op == "cast" and isinstance(made, DType):
            need = _of_type(made)
        elif stmt.op in PASSES_ON and made in (DType.F32, DType.F64):
            need = wanted[number]
    for operand in stmt.args:
        yield operand, need


def _of_type(dtype: DType) -> tuple[int, DType | None]:
    return (BITS[dtype], dtype) if dtype.is_low_precision else (ALL_BITS, None)


def _with_owners(
    stmts: Sequence[Stmt], number: int, owner: int | None
) -> Iterator[tuple[int, Stmt, int | None]]:
    """Each statement with its number and the masked value whose region it stands in."""
    for stmt in stmts:
        yield number, stmt, owner
        here = number
        number += OPS[stmt.op].produces
        if stmt.region:
            inner = list(_with_owners(stmt.region, number, here if stmt.op == "masked" else None))
            yield from inner
            number += sum(OPS[s.op].produces for _, s, _ in inner)
