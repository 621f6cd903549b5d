"""How exact the values of a nest must be: what may be written in a shorter form.

%1 = exp %0           its only reader rounds it to bf16: tl.exp2(v0 * 1.4426950408889634)
%2 = cast bf16 %1
%3 = truediv %2, 8    v2 * 0.125: the same number
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.codegen.triton.ops import inverse_of, pointwise
from treadle.ir.body import Body, Stmt
from treadle.ir.program import Program
from treadle.ir.roundings import rounded_next
from treadle.ir.types import DType
from treadle.ir.typing import ValueType, infer_types


@dataclass(frozen=True)
class Exactness:
    """What is known of the values of a nest, by number."""

    short: frozenset[int]
    """Those that are rounded to 16 bits or fewer next, where numerics allow the use of that."""
    inverses: Mapping[int, float]
    """Quotients by constants that are products as well: what to multiply with."""

    def pointwise(
        self,
        number: int,
        name: str,
        values: Sequence[str],
        types: Sequence[DType],
        result: ValueType,
    ) -> str:
        """The expression of an operation on named values."""
        if (by := self.inverses.get(number)) is not None:
            return f"{values[0]} * {by!r}"
        return pointwise(name, values, types, result, is_short=number in self.short)


def exactness_of(body: Body, program: Program) -> Exactness:
    """Look at a body in its program."""
    types, stmts = infer_types(body, program.by_name), dict[int, Stmt]()
    narrow = rounded_next(body, program.by_name) if program.numerics.as_result else []
    short = frozenset([k for k, one in enumerate(narrow) if one is not None])
    inverses = dict[int, float]()
    for at in body.walk():
        if at.number is None:
            continue
        stmts[at.number] = at.stmt
        if at.stmt.op == "truediv" and all(types[a] is DType.F32 for a in at.stmt.args):
            by = inverse_of(stmts[at.stmt.args[1]], is_short=at.number in short)
            if by is not None:
                inverses[at.number] = by
    return Exactness(short, inverses)
