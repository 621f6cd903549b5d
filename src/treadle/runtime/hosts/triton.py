"""A program whose kernels are Triton's, in the form that hosts on torch carry out."""

from __future__ import annotations

from treadle.codegen.c.unit import Unit
from treadle.codegen.host import KernelSource
from treadle.codegen.lower import lower
from treadle.core.options import Options
from treadle.ir.program import Program
from treadle.runtime.hosts.numpy import CompiledProgram
from treadle.runtime.triton_kernels import GpuDevice, TritonKernels


def build_triton_program(
    program: Program, options: Options, device: GpuDevice | None = None
) -> CompiledProgram:
    """Write the kernels in Triton, and begin to compile them."""
    host = lower(program)
    kernels = TritonKernels(host, options, device)
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
