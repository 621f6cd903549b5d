"""Scans in C: a carried state that is declared before the pass and moved on at each point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from treadle.codegen.c.ops import native
from treadle.codegen.c.types import converted, held
from treadle.ir.types import DType


@dataclass(frozen=True)
class Scan:
    """Lines before the pass, lines at each point, and the results there."""

    before: tuple[str, ...]
    at_point: tuple[str, ...]
    results: tuple[str, ...]


Scanner = Callable[[str, Sequence[str], Sequence[DType]], Scan]


def carried_type(t: DType) -> str:
    """The C type of what a scan of values of a type carries on."""
    return "double" if t.is_float else held(t)


def scan_step(combine: str, state: str, value: str, t: DType, first: str) -> tuple[str, str]:
    """The line that carries a state on, begun where `first` holds, and the result there."""
    common = DType.F64 if t.is_float else t
    wide = f"(double){value}" if t.is_float else value
    step = native(NATIVE_NAMES.get(combine, combine), [state, wide], common)
    return f"{state} = {first} ? {wide} : ({step});", converted(state, common, t)


NATIVE_NAMES = {"max": "maximum", "min": "minimum"}
"""Combinations that the table of operations calls otherwise."""


def _running(op: str) -> Scanner:
    """The first point starts it; sums and products of floats are held in double."""

    def scan(name: str, values: Sequence[str], types: Sequence[DType]) -> Scan:
        (x,), (t,) = values, types
        common = DType.F64 if t.is_float else t
        wide = f"(double){x}" if t.is_float else x
        step = native(op, [name, wide], common)
        before = (f"{carried_type(t)} {name} = 0;", f"int {name}_on = 0;")
        lines = (f"{name} = {name}_on ? ({step}) : {wide};", f"{name}_on = 1;")
        return Scan(before, lines, (converted(name, common, t),))

    return scan


def _logaddexp(name: str, values: Sequence[str], types: Sequence[DType]) -> Scan:
    x = f"(double){values[0]}"
    before = (f"double {name} = 0;", f"int {name}_on = 0;")
    lines = (f"{name} = {name}_on ? tr_logaddexp({name}, {x}) : {x};", f"{name}_on = 1;")
    return Scan(before, lines, (converted(name, DType.F64, types[0]),))


def _running_position(op: str) -> Scanner:
    """The latest place that attains the running extreme; after a NaN, the latest NaN."""

    def scan(name: str, values: Sequence[str], types: Sequence[DType]) -> Scan:
        (x, at), (t, t_at) = values, types
        best, found, place = f"{name}_best", f"{name}_found", f"{name}_place"
        before = (
            f"{held(t)} {best} = 0, {found} = 0;",
            f"{held(t_at)} {place} = 0;",
            f"int {name}_on = 0;",
        )
        better = native(op, [best, x], t)
        lines = (
            f"{best} = {name}_on ? ({better}) : {x};",
            f"if (!{name}_on || {x} == {best} || {x} != {x}) {{ {found} = {x}; {place} = {at}; }}",
            f"{name}_on = 1;",
        )
        return Scan(before, lines, (found, place))

    return scan


SCANNERS: Mapping[str, Scanner] = {
    "add": _running("add"),
    "mul": _running("mul"),
    "max": _running("maximum"),
    "min": _running("minimum"),
    "logaddexp": _logaddexp,
    "argmax": _running_position("maximum"),
    "argmin": _running_position("minimum"),
}
"""Every combination of `ops.SCAN_COMBINES` that has a name; regions are written by the body."""
