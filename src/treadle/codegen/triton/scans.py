"""Scans in Triton: along a row that is one tile, combined in a tree.

Points behind the end of a row come last, so that no other point sees them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from treadle.codegen.triton.types import converted, held, rounded
from treadle.ir.body import Stmt
from treadle.ir.types import DType

if TYPE_CHECKING:
    from treadle.codegen.triton.writer import TritonWriter

SCANS: Mapping[str, str] = {
    "add": "tr_add",
    "mul": "tr_mul",
    "max": "tr_max",
    "min": "tr_min",
    "logaddexp": "tr_logaddexp",
    "argmax": "tr_later_max",
    "argmin": "tr_later_min",
}
"""How two partial results of each combination that has a form are combined."""
WHOLE: Mapping[str, str] = {"max": "tr_max_whole", "min": "tr_min_whole"}
"""The same where values are whole numbers, among which there is no NaN."""


def scan_lines(w: TritonWriter, stmt: Stmt, number: int) -> tuple[list[str], list[str]]:
    """The lines of a scan, and the expressions of its results."""
    combine = str(stmt.attr("combine"))
    result = w.types[number]
    types = [result] if isinstance(result, DType) else list(result or ())
    tiles = w.plan.tiles
    (axis,) = [k for k, a in enumerate(tiles) if a.reduces]
    shape = ", ".join(str(w.tile_size(a)) for a in tiles)
    given = []
    for a, t in zip(stmt.args, types, strict=True):
        value = converted(w.name_of(a), w.type_of(a), t)
        given.append(f"tl.broadcast_to(({value}).to({_summed(t)}), [{shape}])")
    function = SCANS[combine]
    if not types[0].is_float:
        function = WHOLE.get(combine, function)
    names = [f"c{number}_{k}" for k in range(len(types))]
    operand = given[0] if len(given) == 1 else f"({', '.join(given)})"
    line = f"{', '.join(names)} = tl.associative_scan({operand}, {axis}, {function})"
    return [line], _typed(names, types)


def _summed(t: DType) -> str:
    return "tl.int32" if t is DType.BOOL else held(t)


def _typed(names: Sequence[str], types: Sequence[DType]) -> list[str]:
    """Partial results as values of their types."""
    found = []
    for name, t in zip(names, types, strict=True):
        text = f"({name} != 0)" if t is DType.BOOL else f"({name}).to({held(t)})"
        found.append(rounded(text, t))
    return found
