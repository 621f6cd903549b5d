"""A whole program as one Triton module: a function for each nest, the helpers they call.

A nest is a launch: nests of one kernel that follow each other through memory cannot share a grid.
Those that know no order and are alike do (`together`). Nests that differ in nothing but the memory
they are given are one function: layers, time steps and the parameters of a model repeat themselves,
and compiling is what takes time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from treadle.codegen.host import HostProgram
from treadle.codegen.names import Names
from treadle.codegen.triton.functions import source_of
from treadle.codegen.triton.together import together, without_name
from treadle.codegen.triton.writer import TritonSource, TritonWriter

HEAD_OF_ONE = """import triton
import triton.language as tl
"""
HEAD = '"""Kernels of program {name}."""\n' + HEAD_OF_ONE


@dataclass(frozen=True)
class TritonUnit:
    """The text of a program and, for each of its kernels, the functions to launch in order."""

    text: str
    kernels: tuple[tuple[TritonSource, ...], ...]
    functions: Mapping[str, TritonSource]
    """The functions of the module by name: fewer than launches where these are alike."""

    def module_of(self, name: str) -> str:
        """One function as a module of its own."""
        return module_of([self.functions[name]], HEAD_OF_ONE)


def module_of(sources: Sequence[TritonSource], head: str) -> str:
    """Functions and the helpers they call as the text of a module."""
    helpers = {name for one in sources for name in one.helpers}
    parts = [head, source_of(helpers), *[s.text for s in sources]]
    return "\n\n".join([p for p in parts if p])


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
    text = module_of(sources, HEAD.format(name=host.program.name))
    return TritonUnit(text, tuple(kernels), {one.name: one for one in sources})
