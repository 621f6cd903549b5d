"""Triton kernels compiled for a device that is not here: sm_90, sm_100, gfx942.

Gives the binary of each kernel and what it takes of the device: registers, what did not fit into
them, shared memory. Triton brings its assemblers along, so that no device and no toolkit is needed.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.codegen.triton.unit import TritonUnit
from treadle.codegen.triton.writer import TritonSource
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.runtime.triton_kernels import launch_options, load_module

NVIDIA, AMD = re.compile(r"sm_(\d+)a?"), re.compile(r"gfx[0-9a-f]+")
LANES = {"cuda": 32, "hip": 64}


@dataclass(frozen=True)
class AheadKernel:
    """One kernel for one device."""

    name: str
    arch: str
    binary: bytes
    suffix: str
    registers: int
    """Of each thread."""
    spilled: int
    """Bytes, or registers, of each thread that do not fit."""
    shared_bytes: int

    @property
    def file(self) -> str:
        """What its binary is called on disk."""
        return f"{self.name}.{self.arch}.{self.suffix}"


def compile_ahead_for(unit: TritonUnit, arch: str, options: Options) -> list[AheadKernel]:
    """Every function of a module for a device by name; UsageError if nobody knows the device."""
    target = _target(arch)
    module = load_module(unit.text, options)
    every = [one for several in unit.kernels for one in several]
    sources = {one.name: one for one in every}.values()
    return [_compiled(getattr(module, one.name), one, arch, target) for one in sources]


def _target(arch: str) -> Any:
    try:
        backends: Any = importlib.import_module("triton.backends.compiler")
    except ImportError as e:
        message = f"kernels are compiled for {arch} by Triton, which is not installed"
        raise UsageError(f"{message}: pip install triton") from e
    if found := NVIDIA.fullmatch(arch):
        return backends.GPUTarget("cuda", int(found[1]), LANES["cuda"])
    if AMD.fullmatch(arch):
        return backends.GPUTarget("hip", arch, LANES["hip"])
    raise UsageError(f"no device is called {arch}; expected sm_90, sm_100, gfx942 or the like")


def _compiled(function: Any, source: TritonSource, arch: str, target: Any) -> AheadKernel:
    compiler: Any = importlib.import_module("triton.compiler")
    names = list(function.arg_names)
    whole = dict.fromkeys(names[: len(source.storages)], "i64")
    numbers = dict.fromkeys(names[len(source.storages) :], "i32")
    aligned = {(k,): [["tt.divisibility", 16]] for k in range(len(source.storages))}
    text = compiler.ASTSource(function, {**whole, **numbers}, constexprs={}, attrs=aligned)
    how = {k: v for k, v in launch_options(source).items() if k == "num_warps"}
    try:
        made = compiler.compile(text, target=target, options=how)
    except (RuntimeError, ValueError, AttributeError, ImportError) as e:
        words = str(e).strip().splitlines() or [type(e).__name__]
        raise UsageError(f"{source.name} cannot be compiled for {arch}: {words[0]}") from e
    shared = int(made.metadata.shared)
    if "cubin" in made.asm:
        registers, spilled = _of_cubin(made.asm["cubin"])
        return AheadKernel(
            source.name, arch, made.asm["cubin"], "cubin", registers, spilled, shared
        )
    registers, spilled = _of_amd(made.asm["amdgcn"])
    return AheadKernel(source.name, arch, made.asm["hsaco"], "hsaco", registers, spilled, shared)


def _of_cubin(binary: bytes) -> tuple[int, int]:
    """Registers, and bytes of a thread's stack."""
    triton: Any = importlib.import_module("triton")
    tool = os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin/cuobjdump")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [tool, "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (found,) = re.findall(r"REG:(\d+) STACK:(\d+)", said)
    return int(found[0]), int(found[1])


def _of_amd(text: str) -> tuple[int, int]:
    """Vector registers, and how many of them are kept in memory."""
    used = re.findall(r"\.vgpr_count:\s+(\d+)", text)
    spilled = re.findall(r"\.vgpr_spill_count:\s+(\d+)", text)
    return int(used[0]), int(spilled[0])


def rows_of(kernels: Sequence[AheadKernel]) -> Iterator[dict[str, object]]:
    """What kernels take, as rows for a manifest."""
    for one in kernels:
        yield {
            "name": one.name,
            "arch": one.arch,
            "file": one.file,
            "registers": one.registers,
            "spilled": one.spilled,
            "shared_bytes": one.shared_bytes,
        }
