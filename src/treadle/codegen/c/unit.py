"""A whole program as one C translation unit.

    int treadle_run(void *const *buffers, const int64_t *sizes, int64_t *error,
                    int64_t first, int64_t last);

`buffers` holds one pointer per storage of `Unit.storages`, `sizes` the run-time sizes in order of
declaration. Kernels number `first` up to, not including, `last` run one after the other, so that
the host can make library calls in between; the result is 0, or 1 with `error` filled in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from treadle.codegen.c.fast_ops import LIBRARY, OF_TWO, VECTOR
from treadle.codegen.c.kernel import write_kernel
from treadle.codegen.c.remainders import F64, REMAINDERS, remainders
from treadle.codegen.c.sites import LONGEST_POINT, RECORD, Site, Sites
from treadle.codegen.host import HostProgram, KernelSource

ENTRY = "treadle_run"
USE_THREADS = "treadle_use_threads"
"""Tells a unit with nests in parts where threads are; see threads.h."""
ERROR_LENGTH = RECORD + LONGEST_POINT
FLAGS = (
    "-std=c11",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fno-tree-slp-vectorize",
    "-w",
)
"""What the text must be compiled with to mean what the interpreter means.

gcc 12 loses roundings where it makes vectors of straight code: a double that became a float and a
double again stayed what it was (tests/unit/codegen/test_c_straight_code.py). Loops stay on vectors.
"""
FAST_FLAGS = (
    "-march=native",
    "-ftree-vectorize",
    "-fopenmp-simd",
    "-fno-trapping-math",
    "-ffp-contract=fast",
)
"""What scheduled loops are compiled with besides: they promise less, see `ir.numerics`."""
EXACT_FLAGS = FAST_FLAGS[:3]
"""Those of them that change no result, for what goes on vectors without a schedule: sorting."""
LIBRARIES = ("-lm",)
OPTIONAL = ("special", "sort", "turn", "product")
"""Parts of the prelude that are there if they are asked for, in this order."""
MADE_OF = {f"{F64}sigmoid": ("exp",), f"{F64}erfinv": ("exp", "log", "erf", "erfc")}
"""Functions in double that are made of others of the library's."""
LANES = (4, 8, 16)
"""Floats in a vector, for which functions of fast.h are written."""


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
    flags: tuple[str, ...] = FLAGS
    if not helpers.isdisjoint(("fast", "sort")):
        flags += FAST_FLAGS if "fast" in helpers else EXACT_FLAGS
    return Unit("\n".join(parts), kernels, storages, tuple(sites.all), flags)


def prelude(helpers: frozenset[str] = frozenset()) -> str:
    """The helpers generated code stands on, with the optional parts asked for."""
    parts = ["prelude", *[part for part in OPTIONAL if part in helpers]]
    texts = [_header(name) for name in parts]
    if "threads" in helpers:
        texts.append(_header("threads").replace("TR_ERRORS", str(ERROR_LENGTH)))
    if "fast" in helpers:
        texts += [_header("lanes_1"), _header("fast")]
    wanted = sorted(name for name in helpers if name.startswith(VECTOR))
    if wanted or not helpers.isdisjoint(("halves", "whole")):
        names = [name.removeprefix(VECTOR) for name in wanted]
        texts.append(_header("vectors"))
        texts += [_header("halves")] if "halves" in helpers else []
        texts += [_header("product_halves")] if "product_halves" in helpers else []
        exact = [name for name in names if name.removeprefix(F64) in REMAINDERS]
        names = [name for name in names if name not in exact]
        theirs = [name for name in names if name in LIBRARY or name.startswith(F64)]
        if own := [name for name in names if name not in theirs]:
            texts += [*_on_vectors(), *[f"TR_VECTOR_FUNCTION({name})" for name in own]]
        if theirs:
            texts.append(_header("library"))
        made = [name for name in theirs if name in MADE_OF]
        others = {f"{F64}{other}" for name in made for other in MADE_OF[name]}
        for name in sorted({*theirs, *others} - {*made}):
            plain, kind = name.removeprefix(F64), "_F64" if name.startswith(F64) else ""
            count = "_OF_TWO" if plain in OF_TWO else ""
            texts.append(f"TR_LIBRARY_FUNCTION{kind}{count}({plain})")
            texts += [] if kind else [f"TR_LIBRARY_WHOLE{count}({plain})"]
        texts += [f"TR_{name.removeprefix(F64).upper()}_F64" for name in made]
        texts += remainders(exact, _header("remainders"))
        texts += [_header("whole"), _header("whole_bytes")] if "whole" in helpers else []
    texts += [_header("stream")] if "stream" in helpers else []
    return "\n".join(texts)


def _on_vectors() -> Iterator[str]:
    """The functions of fast.h again for each length of a vector, where the machine has it."""
    yield "#ifdef TR_HAS_VECTORS"
    for lanes in LANES:
        yield "#ifdef __AVX512F__" if lanes > 8 else "#if 1"
        yield _header("lanes_n").replace("$n", str(lanes))
        yield _header("fast")
        yield "#endif"
    yield "#endif"


def _header(name: str) -> str:
    return files("treadle.codegen.c").joinpath(f"{name}.h").read_text("utf-8")


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
