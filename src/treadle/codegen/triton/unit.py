"""A whole program as one Triton module: a function for each nest, the helpers they call.

A nest is a launch: nests of one kernel that follow each other through memory cannot share a grid.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.codegen.host import HostProgram
from treadle.codegen.names import Names
from treadle.codegen.triton.functions import source_of
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
    for plan in host.kernels:
        found = []
        for nest in plan.nests:
            name = names.fresh("k", nest.name)
            found.append(TritonWriter(host.program, nest, name).write())
        kernels.append(tuple(found))
    sources = [one for several in kernels for one in several]
    helpers = {name for one in sources for name in one.helpers}
    parts = [HEAD.format(name=host.program.name), source_of(helpers), *[s.text for s in sources]]
    return TritonUnit("\n\n".join([p for p in parts if p]), tuple(kernels))
