"""A program whose kernels are Triton's, in the form that hosts on torch carry out."""

from __future__ import annotations

from treadle.codegen.c.unit import Unit
from treadle.codegen.host import KernelSource
from treadle.codegen.lower import lower
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.runtime.hosts.numpy import CompiledProgram
from treadle.runtime.triton_kernels import GpuDevice, TritonKernels
from treadle.runtime.tuning.answers import TunedAnswers
from treadle.runtime.tuning.tuner import AUTOTUNE_IS_OFF, OTHER_RANKS, Tuning


def build_triton_program(
    program: Program, options: Options, device: GpuDevice | None = None
) -> CompiledProgram:
    """Write the kernels in Triton, and begin to compile them."""
    tuning = tuning_for(program, options, device)
    host = lower(program if tuning is None else tuning.program)
    kernels = TritonKernels(host, options, device, tuning)
    sources = tuple(
        [
            KernelSource(
                name=plan.name,
                text="\n".join([one.text for one in several]),
                args=(*plan.storages, *[s.name for s in plan.sizes]),
                facts={"shape": plan.shape, "launches": len(several)},
            )
            for plan, several in zip(host.kernels, kernels.unit.kernels, strict=True)
        ]
    )
    kernels.compile_ahead()
    unit = Unit(kernels.unit.text, sources, kernels.storages, ())
    return CompiledProgram(host, unit, kernels, None, {})


def tuning_for(program: Program, options: Options, device: GpuDevice | None) -> Tuning | None:
    """What is known, or will be measured, about the schedules of a program on a device."""
    if device is None or (not options.autotune and options.tuned is None):
        return None
    why_not = "" if device.is_alone else OTHER_RANKS
    answers = TunedAnswers(options, device.name, device.arch, device.is_alone)
    return Tuning(program, options, answers, why_not if options.autotune else AUTOTUNE_IS_OFF)
