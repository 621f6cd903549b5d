"""A compiled program beside the interpreter: the same inputs, results compared number by number.

    found = differences(compile_program(program), {"x": x})
    assert not found, found

Whole numbers and bools must agree exactly, NaN equals NaN, and floats agree up to `slack` units in
the last place of their type: 0 asks for the same value (signs of zero are not looked at).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from treadle.ir.interp import RunError, run
from treadle.ir.interp.dtypes import dtype_of
from treadle.ir.types import DType
from treadle.runtime import CompiledProgram

UNITS: Mapping[DType, float] = {
    DType.F64: 2.0**-52,
    DType.F32: 2.0**-23,
    DType.F16: 2.0**-10,
    DType.BF16: 2.0**-7,
    DType.F8E4M3: 2.0**-3,
    DType.F8E5M2: 2.0**-2,
}
"""The distance of 1 from the next larger number."""


def differences(
    compiled: CompiledProgram,
    inputs: Mapping[str, Any],
    *,
    sizes: Mapping[str, int] | None = None,
    slack: float = 0,
    floor: float = 0.0,
) -> list[str]:
    """What differs after running both: outputs and inputs, one line each; errors count too.

    `floor` is an absolute difference that is never counted, for results of cancellation.
    """
    program = compiled.program
    outcomes: list[Any] = []
    for runner in (_reference, _compiled):
        try:
            outcomes.append(runner(compiled, inputs, sizes))
        except RunError as error:
            outcomes.append(error)
    expected, found = outcomes
    if isinstance(expected, RunError) or isinstance(found, RunError):
        codes = [getattr(o, "code", None) if isinstance(o, RunError) else None for o in outcomes]
        return [] if codes[0] == codes[1] else [f"interpreter: {expected!s}; compiled: {found!s}"]
    lines = []
    for name in dict.fromkeys((*program.outputs, *program.inputs)):
        line = unlike(expected.read(name), found.read(name), slack, floor)
        if line:
            lines.append(f"{name}: {line}")
    return lines


def _reference(compiled: CompiledProgram, inputs: Any, sizes: Any) -> Any:
    return run(compiled.program, inputs, sizes=sizes, externs=compiled.externs)


def _compiled(compiled: CompiledProgram, inputs: Any, sizes: Any) -> Any:
    return compiled.run(inputs, sizes=sizes, poison=True)


def unlike(expected: Any, found: Any, slack: float = 0, floor: float = 0.0) -> str:
    """How two arrays differ beyond `slack` units in the last place; empty if they do not."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return f"{expected.dtype}{expected.shape} became {found.dtype}{found.shape}"
    kind = dtype_of(expected)
    if kind is None or not kind.is_float:
        wrong = expected != found
    else:
        with np.errstate(all="ignore"):
            a, b = expected.astype(np.float64), found.astype(np.float64)
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            allowed = slack * UNITS[kind] * np.maximum(np.abs(a), np.abs(b)) + floor
            wrong = ~(same | (np.abs(a - b) <= allowed))
    if not np.any(wrong):
        return ""
    at = tuple(int(k) for k in np.argwhere(wrong)[0])
    return f"{int(np.sum(wrong))} elements, first {list(at)}: {expected[at]} became {found[at]}"
