"""What becomes of the kernels of a file: C, Triton, or the plan by which they are launched."""

from __future__ import annotations

from treadle.analysis.cost import ACCELERATOR
from treadle.codegen.c.unit import write_unit
from treadle.codegen.host import HostProgram
from treadle.codegen.lower import lower
from treadle.codegen.triton.unit import write_triton
from treadle.core.errors import TreadleError, UsageError
from treadle.core.suggest import suggestion_notes
from treadle.ir.program import Program
from treadle.runtime.launch_plan import show_plan
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.plan_launches import plan_launches

EMITTED = ("c", "triton", "plan")


def target_of(form: str | None, target: str | None) -> str | None:
    """The machine to schedule for: C is for a CPU, Triton for a GPU; None: the file's own."""
    if form == "c" and target not in (None, "cpu"):
        raise UsageError(f"C is written for the CPU, not for {target}: --emit c --target cpu")
    if form == "triton" and target == "cpu":
        raise UsageError("Triton is written for a GPU, not for the CPU: try --target h200")
    if target is None and form in ("c", "triton"):
        return "cpu" if form == "c" else ACCELERATOR
    return target


def emitted(form: str, program: Program, only: str | None) -> str:
    """The text of a program of kernels in one of these forms; `only`: of one kernel."""
    host = lower(program)
    if form == "plan":
        if only is not None:
            raise UsageError("a launch plan is of all kernels: --emit plan goes without --only")
        return show_plan(plan_launches(LaunchShape(host)))
    if not host.kernels:
        raise UsageError(f"there is no kernel to write: {program.name} only makes calls")
    try:
        return _of_c(host, only) if form == "c" else _of_triton(host, only)
    except TreadleError as e:
        if isinstance(e, UsageError):
            raise
        message = f"the kernels of {program.name} cannot be written as {form}: {e.message}"
        raise UsageError(message, code=e.code) from e


def _of_c(host: HostProgram, only: str | None) -> str:
    unit = write_unit(host)
    if only is None:
        return unit.text
    return unit.kernels[_number(host, only)].text


def _of_triton(host: HostProgram, only: str | None) -> str:
    unit = write_triton(host)
    if only is None:
        return unit.text
    return "\n\n".join([one.text for one in unit.kernels[_number(host, only)]])


def _number(host: HostProgram, only: str) -> int:
    """Which kernel an operation launches."""
    name = host.launches.get(only)
    if name is None:
        notes = suggestion_notes(only, list(host.launches), "kernels")
        raise UsageError(f"there is no kernel '{only}'", notes=notes)
    return next(k for k, plan in enumerate(host.kernels) if plan.name == name)
