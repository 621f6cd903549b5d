"""A whole program as one Triton module: a function for each nest, the helpers they call.

A nest is a launch: nests of one kernel that follow each other through memory cannot share a grid.
Those that know no order and are alike do (`together`). Nests that differ in nothing but the memory
they are given are one function: layers, time steps and the parameters of a model repeat themselves,
and compiling is what takes time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from treadle.codegen.host import HostProgram
from treadle.codegen.names import Names
from treadle.codegen.triton.functions import source_of
from treadle.codegen.triton.together import together, without_name
from treadle.codegen.triton.writer import TritonSource, TritonWriter

HEAD = '''"""Kernels of program {name}."""
import triton
import triton.language as tl
'''


@dataclass(frozen=True)
class TritonUnit:
    """The text of a program and, for each of its kernels, the functions to launch in order."""

    text: str
    kernels: tuple[tuple[TritonSource, ...], ...]


def write_triton(host: HostProgram) -> TritonUnit:
    """The module of a lowered program; GEN004 names what has no form in Triton."""
    names = Names()
    kernels = []
    known: dict[str, TritonSource] = {}
    for plan in host.kernels:
        made = [TritonWriter(host.program, n, names.fresh("k", n.name)).write() for n in plan.nests]
        found = []
        for one in together(made) if plan.shape == "foreach" else made:
            same = known.setdefault(without_name(one), one)
            found.append(one if same is one else replace(one, name=same.name))
        kernels.append(tuple(found))
    sources = list(known.values())
    helpers = {name for one in sources for name in one.helpers}
    parts = [HEAD.format(name=host.program.name), source_of(helpers), *[s.text for s in sources]]
    return TritonUnit("\n\n".join([p for p in parts if p]), tuple(kernels))
