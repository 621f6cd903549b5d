"""The page of operators, `docs/operators.md`: what becomes loops, and what is called and why.

    python -m treadle.frontends.torch.report.operator_list          prints the page
    python -m treadle.frontends.torch.report.operator_list FILE     writes it

The page is about the torch that is installed; a test checks it against the newest one we run on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from treadle.frontends.torch.capture.decompositions import decompositions
from treadle.frontends.torch.capture.own_steps import OwnSteps
from treadle.frontends.torch.lowering.registry import collect
from treadle.frontends.torch.lowering.table import MODULES, TABLE

REASONS: tuple[tuple[str, str], ...] = (
    (
        r"_?addmm|bmm|mm|addbmm|_int_mm|_scaled_mm|_grouped_mm|_trilinear|_foreach_mm|mkldnn_"
        r"|(.*_)?conv(olution|_|\d)|.*attention|_fused_sdp|.*_mm\b|.*rnn_layer|_transform",
        "matrix products, convolutions, attention: library calls",
    ),
    (
        r"rand|normal|bernoulli|uniform|exponential|geometric|cauchy|log_normal|multinomial|poisson"
        r"|binomial|native_dropout|_sample_|_standard_gamma|_philox|_dirichlet|rrelu",
        "random numbers: drawn as eager draws them",
    ),
    (
        r".*linalg|.*cholesky|geqrf|ormqr|lu_unpack|triangular_solve|_compute_linear_combination",
        "linear algebra: LAPACK",
    ),
    (r"_?fft|.*complex|.*conj|polar|.*view_as_real|_neg_view|angle", "complex numbers"),
    (
        r".*nonzero|masked_select|.*unique|repeat_interleave|bincount|_local_scalar|equal|allclose"
        r"|is_same_size|_has_same|is_set_to",
        "the result's size, or a Python number, depends on the data",
    ),
    (r".*nested|.*jagged|_pack_padded|.*padded_dense", "nested tensors"),
    (
        r".*sparse|_convert_indices|_?c?(row|col)_indices|_?indices|_?values|_coalesced|_spdiags"
        r"|is_coalesced|dense_dim",
        "sparse tensors",
    ),
    (r".*quant|.*int4|.*int8|.*_qparams|_fused_moving", "quantised tensors"),
    (r"_assert|_functional_assert|.*sym_constrain|_print|_make_dep", "checks at run time"),
    (r"_test_|_foobar", "operators that only torch's own tests use"),
    (
        r"set|resize|_resize_output|from_file|is_pinned|_pin_memory|to_mkldnn|_fw_primal"
        r"|_make_dual|_lazy_clone|_new_zeros_with|_efficientzero",
        "about storage, devices or forward mode rather than values",
    ),
    (r"_fused_|_amp_", "whole optimiser steps: one library call each"),
    (r".*", "no lowering yet"),
)
"""Why operators are called: the first pattern an operator's name matches says it."""

HEAD = """# Operators

Written by `python -m treadle.frontends.torch.report.operator_list docs/operators.md`; a test
checks that it is current.

Every operator runs. {lowered} overloads of ATen become loops or views. Many more are taken apart by
torch into others before we see them. The rest is called: the operator itself runs between our
kernels, and only what feeds it must be in memory.

A lowering may refuse a case (`NotLowered`); that node is then a call as well, and the reason is
kept with the graph's `fallbacks`.
"""


def functional_overloads() -> list[str]:
    """Every overload of ATen that computes on the CPU and that a captured graph may hold."""
    found = set()
    keys = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::") or schema.is_mutable:
            continue
        overload = schema.overload_name
        full = schema.name + ("." + overload if overload else "")
        if "out" in overload.split("_") or not torch._C._dispatch_has_kernel(full):
            continue
        if has_kernel(full, "CompositeImplicitAutograd"):
            continue
        if any(has_kernel(full, key) for key in keys):
            found.add(f"aten.{schema.name.removeprefix('aten::')}.{overload or 'default'}")
    return sorted(found)


def reason_for(overload: str) -> str:
    """Why an overload that is not lowered is called."""
    name = overload.removeprefix("aten.")
    return next(why for pattern, why in REASONS if re.match(pattern, name))


def called() -> Mapping[str, list[str]]:
    """The overloads that are called, by reason, in the order of `REASONS`."""
    known = {str(operator) for operator in decompositions(OwnSteps())} | set(TABLE)
    found: dict[str, list[str]] = {why: [] for _, why in REASONS}
    for overload in functional_overloads():
        if overload not in known:
            found[reason_for(overload)].append(overload)
    return {why: names for why, names in found.items() if names}


def lowered() -> Mapping[ModuleType, list[str]]:
    """The overloads that are lowered, by the module their lowering stands in."""
    return {
        module: sorted(name for name in collect(module) if name in TABLE)
        for module in sorted(MODULES, key=lambda module: module.__name__)
    }


def page() -> str:
    """The page as Markdown."""
    lines = [HEAD.format(lowered=len(TABLE))]
    lines.append("## Lowered\n")
    for module, names in lowered().items():
        file = module.__name__.rpartition(".")[2]
        about = (module.__doc__ or "").strip().splitlines()[0]
        lines.append(f"### `{file}.py`: {len(names)}\n\n{about}\n\n{listed(names)}\n")
    lines.append("## Called\n")
    for why, names in called().items():
        lines.append(f"### {why[0].upper()}{why[1:]}: {len(names)}\n\n{listed(names)}\n")
    return "\n".join(lines)


def listed(overloads: Sequence[str]) -> str:
    """Overloads by operator: `add` (Tensor, Scalar), those called `default` without saying so."""
    packets: dict[str, list[str]] = {}
    for overload in overloads:
        _, packet, name = overload.split(".")
        packets.setdefault(packet, []).append(name)
    words = []
    for packet, names in packets.items():
        others = [n for n in names if n != "default"]
        words.append(f"`{packet}`" + (f" ({', '.join(names)})" if others else ""))
    return ", ".join(words)


def main() -> int:
    """Print the page, or write it to the file that is named."""
    if len(sys.argv) > 1:
        with open(sys.argv[1], "w", encoding="utf-8") as f:
            f.write(page())
    else:
        print(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
