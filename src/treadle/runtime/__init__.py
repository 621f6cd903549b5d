"""Runs compiled programs: an arena, a shared object, library calls in between.

compiled = compile_program(program)
y = compiled.run({"x": x})["y"]
"""

from __future__ import annotations

from treadle.runtime.arena import ArenaLayout, Placement, Spot, plan_layout, stacked_layout
from treadle.runtime.module import CompiledProgram, RunResult, compile_program
from treadle.runtime.tensor import NumpyTensor, TensorAdapter

__all__ = [
    "ArenaLayout",
    "CompiledProgram",
    "NumpyTensor",
    "Placement",
    "RunResult",
    "Spot",
    "TensorAdapter",
    "compile_program",
    "plan_layout",
    "stacked_layout",
]
