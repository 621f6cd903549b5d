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
from treadle.core.errors import UsageError
from treadle.runtime import triton_server


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


def compile_ahead_for(unit: TritonUnit, arch: str) -> list[AheadKernel]:
    """Every function of a module for a device by name; UsageError if nobody knows the device."""
    _check_target(arch)
    return [_compiled(unit, name, arch) for name in unit.functions]


def _check_target(arch: str) -> None:
    try:
        known = triton_server.target_of(arch) is not None
    except ImportError as e:
        message = f"kernels are compiled for {arch} by Triton, which is not installed"
        raise UsageError(f"{message}: pip install triton") from e
    if not known:
        raise UsageError(f"no device is called {arch}; expected sm_90, sm_100, gfx942 or the like")


def _compiled(unit: TritonUnit, name: str, arch: str) -> AheadKernel:
    source = unit.functions[name]
    job = {
        "name": name,
        "arch": arch,
        "addresses": len(source.storages),
        "sizes": [("i32", False)] * len(source.sizes),
        "options": {"num_warps": source.warps},
    }
    return compile_job(unit.module_of(name), job)


def compile_job(text: str, job: dict[str, Any]) -> AheadKernel:
    """A function of a module, as a job for the compilers says; UsageError if that fails."""
    name, arch = job["name"], job["arch"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, f"{name}.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        try:
            made = triton_server.compile_function(path, job)
        except (RuntimeError, ValueError, AttributeError, ImportError) as e:
            words = str(e).strip().splitlines() or [type(e).__name__]
            raise UsageError(f"{name} cannot be compiled for {arch}: {words[0]}") from e
    shared = int(made.metadata.shared)
    if "cubin" in made.asm:
        registers, spilled = _of_cubin(made.asm["cubin"])
        return AheadKernel(name, arch, made.asm["cubin"], "cubin", registers, spilled, shared)
    registers, spilled = _of_amd(made.asm["amdgcn"])
    return AheadKernel(name, arch, made.asm["hsaco"], "hsaco", registers, spilled, shared)


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
