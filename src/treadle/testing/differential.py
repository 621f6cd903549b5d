"""A compiled program beside the interpreter: the same inputs, results compared number by number.

    found = differences(compile_program(program), {"x": x})
    assert not found, found

`differences` demands the same values; NaN equals NaN, signs of zero are not looked at.
`out_of_bounds` demands what the program's numerics promise, on this data: see `error_bound`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from treadle.ir.interp import RunError, run
from treadle.ir.numerics import Numerics
from treadle.runtime import CompiledProgram
from treadle.testing.error_bound import MOST_UNDECIDABLE, derive_bounds, outside


def differences(
    compiled: CompiledProgram,
    inputs: Mapping[str, Any],
    *,
    sizes: Mapping[str, int] | None = None,
) -> list[str]:
    """What differs after running both: outputs and inputs, one line each; errors count too."""
    program = compiled.program
    expected = _outcome(lambda: run(program, inputs, sizes=sizes, externs=compiled.externs))
    found = _outcome(lambda: compiled.run(inputs, sizes=sizes, poison=True))
    if isinstance(expected, RunError) or isinstance(found, RunError):
        return _unlike_errors(expected, found)
    lines = []
    for name in dict.fromkeys((*program.outputs, *program.inputs)):
        line = unlike(expected.read(name), found.read(name))
        if line:
            lines.append(f"{name}: {line}")
    return lines


def out_of_bounds(
    compiled: CompiledProgram,
    inputs: Mapping[str, Any],
    *,
    sizes: Mapping[str, int] | None = None,
    numerics: Numerics | None = None,
    undecidable: float = MOST_UNDECIDABLE,
) -> list[str]:
    """What is further from the interpreter than the numerics allow: one line each; errors count.

    `undecidable` is the share of elements that may be without a bound.
    """
    program = compiled.program
    expected = _outcome(
        lambda: derive_bounds(
            program, inputs, numerics, sizes=sizes, externs=compiled.externs, poisoned=True
        )
    )
    found = _outcome(lambda: compiled.run(inputs, sizes=sizes, poison=True))
    if isinstance(expected, RunError) or isinstance(found, RunError):
        return _unlike_errors(expected, found)
    names = dict.fromkeys((*program.outputs, *program.inputs))
    return outside(expected, {n: found.read(n) for n in names}, undecidable=undecidable)


def _outcome(runner: Any) -> Any:
    try:
        return runner()
    except RunError as error:
        return error


def _unlike_errors(expected: Any, found: Any) -> list[str]:
    codes = [o.code if isinstance(o, RunError) else None for o in (expected, found)]
    return [] if codes[0] == codes[1] else [f"interpreter: {expected!s}; compiled: {found!s}"]


def unlike(expected: Any, found: Any) -> str:
    """How two arrays differ; empty if they do not."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return f"{expected.dtype}{expected.shape} became {found.dtype}{found.shape}"
    with np.errstate(all="ignore"):
        same = (expected == found) | ((expected != expected) & (found != found))
    if np.all(same):
        return ""
    at = tuple(int(k) for k in np.argwhere(~same)[0])
    return f"{int(np.sum(~same))} elements, first {list(at)}: {expected[at]} became {found[at]}"
