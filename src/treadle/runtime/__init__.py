"""Runs compiled programs: an arena, a shared object, library calls in between.

compiled = compile_program(program)
y = compiled.run({"x": x})["y"]
"""

from __future__ import annotations

from treadle.memory.problem import Place
from treadle.runtime.arena import ArenaLayout, Placement, plan_layout, stacked_layout
from treadle.runtime.hosts.numpy import CompiledProgram, RunResult, compile_program
from treadle.runtime.launch_plan import LaunchPlan, show_plan
from treadle.runtime.tensor import NumpyTensor, TensorAdapter

__all__ = [
    "ArenaLayout",
    "CompiledProgram",
    "LaunchPlan",
    "NumpyTensor",
    "Place",
    "Placement",
    "RunResult",
    "TensorAdapter",
    "compile_program",
    "plan_layout",
    "show_plan",
    "stacked_layout",
]
