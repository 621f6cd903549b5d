"""Sorting and searching in C: rows of keys, positions in order, a search in sorted boundaries."""

from __future__ import annotations

from treadle.codegen.c.types import suffix
from treadle.ir.types import DType


def sort_call(key: DType, rows: str, order: str, spare: str, count: str, descending: bool) -> str:
    """The call that fills `order` with positions in the order of the keys in `rows`."""
    helper = f"tr_sort_{suffix(key)}"
    return f"{helper}({rows}, {order}, {spare}, {count}, {int(descending)});"


def less(a: str, b: str, dtype: DType) -> str:
    """Whether a comes before b; NaN comes last."""
    return f"tr_less_{suffix(dtype)}({a}, {b})" if dtype.is_float else f"{a} < {b}"


def search_lines(name: str, count: str, key: str, wanted: str, t: DType, right: bool) -> list[str]:
    """Find in `name` the position of `wanted`; `key` is the boundary at {name}_mid."""
    mid, end = f"{name}_mid", f"{name}_end"
    smaller = f"!({less(wanted, key, t)})" if right else less(key, wanted, t)
    return [
        f"int64_t {name} = 0;",
        f"for (int64_t {end} = {count}; {name} < {end};) {{",
        f"    const int64_t {mid} = {name} + ({end} - {name}) / 2;",
        f"    if ({smaller}) {name} = {mid} + 1; else {end} = {mid};",
        "}",
    ]
