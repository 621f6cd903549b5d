"""A whole program as one C translation unit.

    int treadle_run(void *const *buffers, const int64_t *sizes, int64_t *error,
                    int64_t first, int64_t last);

`buffers` holds one pointer per storage of `Unit.storages`, `sizes` the run-time sizes in order of
declaration. Kernels number `first` up to, not including, `last` run one after the other, so that
the host can make library calls in between; the result is 0, or 1 with `error` filled in.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from treadle.codegen.c.kernel import write_kernel
from treadle.codegen.c.sites import LONGEST_POINT, RECORD, Site, Sites
from treadle.codegen.host import HostProgram, KernelSource

ENTRY = "treadle_run"
ERROR_LENGTH = RECORD + LONGEST_POINT
FLAGS = ("-std=c11", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-math-errno", "-w")
"""What the text must be compiled with to mean what the interpreter means."""
FAST_FLAGS = (
    "-march=native",
    "-ftree-vectorize",
    "-fopenmp-simd",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
"""What scheduled loops are compiled with besides: they promise less, see `ir.numerics`."""
LIBRARIES = ("-lm",)


@dataclass(frozen=True)
class Unit:
    """The text of a program, its kernels, the storages in order, the places that can fail."""

    text: str
    kernels: tuple[KernelSource, ...]
    storages: tuple[str, ...]
    sites: tuple[Site, ...]
    flags: tuple[str, ...] = FLAGS


def write_unit(host: HostProgram) -> Unit:
    """The translation unit of a lowered program."""
    sites = Sites()
    kernels = tuple([write_kernel(host.program, plan, sites) for plan in host.kernels])
    storages = tuple(dict.fromkeys(s for plan in host.kernels for s in plan.storages))
    helpers: set[str] = set()
    for kernel in kernels:
        wanted = kernel.facts["helpers"]
        assert isinstance(wanted, tuple)
        helpers.update(wanted)
    parts = [prelude(frozenset(helpers)), *[kernel.text for kernel in kernels]]
    parts.append(_entry(host, kernels, storages))
    flags = (*FLAGS, *FAST_FLAGS) if "fast" in helpers else FLAGS
    return Unit("\n".join(parts), kernels, storages, tuple(sites.all), flags)


def prelude(helpers: frozenset[str] = frozenset()) -> str:
    """The helpers generated code stands on, with the optional parts asked for."""
    names = ["prelude", *[part for part in ("special", "sort", "fast") if part in helpers]]
    folder = files("treadle.codegen.c")
    return "\n".join([folder.joinpath(f"{name}.h").read_text("utf-8") for name in names])


def _entry(host: HostProgram, kernels: tuple[KernelSource, ...], storages: tuple[str, ...]) -> str:
    place = {name: k for k, name in enumerate(storages)}
    lines = [
        f"int {ENTRY}(void *const *buffers, const int64_t *sizes, int64_t *error,",
        "                int64_t first, int64_t last)",
        "{",
        "    (void)buffers; (void)sizes; (void)error;",
        "    for (int64_t k = first; k < last; ++k) {",
        "        int status = 0;",
        "        switch (k) {",
    ]
    for number, (kernel, plan) in enumerate(zip(kernels, host.kernels, strict=True)):
        given = [f"buffers[{place[s]}]" for s in plan.storages]
        given += [f"sizes[{k}]" for k in range(len(plan.sizes))]
        call = f"{kernel.name}({', '.join([*given, 'error'])})"
        lines.append(f"        case {number}: status = {call}; break;")
    lines += ["        }", "        if (status) return status;", "    }", "    return 0;", "}", ""]
    return "\n".join(lines)
