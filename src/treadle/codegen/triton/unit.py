"""A whole program as one Triton module: a function for each nest, the helpers they call.

A nest is a launch: nests of one kernel that follow each other through memory cannot share a grid.
Those that know no order and are alike do (`together`). Nests that differ in nothing but the memory
they are given are one function: layers, time steps and the parameters of a model repeat themselves,
and compiling is what takes time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from treadle.codegen.host import HostProgram
from treadle.codegen.names import Names
from treadle.codegen.triton.functions import source_of
from treadle.codegen.triton.together import together, without_name
from treadle.codegen.triton.writer import TritonSource, TritonWriter
from treadle.ir.program import Nest, Program

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
    names: Mapping[str, str] = field(default_factory=dict)
    """What the function of each nest would be called, were there no other like it."""

    def module_of(self, name: str) -> str:
        """One function as a module of its own."""
        return module_of_one(self.functions[name])


def module_of_one(source: TritonSource) -> str:
    """A function as a module of its own."""
    return module_of([source], HEAD_OF_ONE)


def module_of(sources: Sequence[TritonSource], head: str) -> str:
    """Functions and the helpers they call as the text of a module."""
    helpers = {name for one in sources for name in one.helpers}
    parts = [head, source_of(helpers), *[s.text for s in sources]]
    return "\n\n".join([p for p in parts if p])


def write_triton(host: HostProgram) -> TritonUnit:
    """The module of a lowered program; GEN004 names what has no form in Triton."""
    names = Names()
    called = {n.name: names.fresh("k", n.name) for plan in host.kernels for n in plan.nests}
    kernels = []
    known: dict[object, TritonSource] = {}
    for plan in host.kernels:
        found = []
        for one in sources_of(host.program, plan.nests, plan.shape, called):
            same = known.setdefault(same_function(one), one)
            found.append(one if same is one else replace(one, name=same.name))
        kernels.append(tuple(found))
    sources = list(known.values())
    text = module_of(sources, HEAD.format(name=host.program.name))
    return TritonUnit(text, tuple(kernels), {one.name: one for one in sources}, called)


def sources_of(
    program: Program, nests: Sequence[Nest], shape: str, names: Mapping[str, str]
) -> list[TritonSource]:
    """The functions of the nests of one kernel, which shape says how they share launches."""
    made = [TritonWriter(program, n, names[n.name]).write() for n in nests]
    return together(made) if shape == "foreach" else made


def same_function(one: TritonSource) -> object:
    """What functions have in common that may stand for each other: what they do, by how many."""
    return without_name(one), one.warps
