"""Kernels of attention compile for Hopper, keep loads under way, and fit into its registers."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "codegen"))

from flex_specs import CAUSAL, SOFTCAP

from treadle.codegen.triton.flex.backward import write_delta, write_keys, write_queries
from treadle.codegen.triton.flex.forward import write_forward
from treadle.codegen.triton.flex.spec import FlexKernel
from treadle.codegen.triton.flex.tiles import forward_tile, key_tile, query_tile
from treadle.ir.types import DType
from treadle.runtime.triton_ahead import AheadKernel, compile_job

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
SHARED_OF_HOPPER = 227 << 10
EVEN = ("_b", "_h", "_s", "_len", "_width", "_rows")


def ahead(kernel: FlexKernel) -> AheadKernel:
    """A kernel for sm_90; strides and lengths are multiples of 16."""
    job = {
        "name": kernel.name,
        "arch": "sm_90",
        "addresses": len(kernel.addresses),
        "sizes": [("i32", name.endswith(EVEN)) for name in kernel.numbers],
        "options": kernel.options,
    }
    return compile_job(kernel.text, job)


@pytest.mark.parametrize("dim", [64, 128])
def test_kernels_for_half_fit_into_registers(dim: int) -> None:
    causal = replace(CAUSAL, qk_dim=dim, v_dim=dim)
    kernels = (
        write_forward(causal, forward_tile(causal), True, False),
        write_queries(causal, query_tile(causal), True),
        write_keys(causal, key_tile(causal), True),
    )
    for kernel in kernels:
        made = ahead(kernel)
        assert made.spilled == 0, f"{kernel.name}: {made.spilled} bytes"
        steps = kernel.tile.m + kernel.tile.n
        assert steps * dim * 2 < made.shared_bytes < SHARED_OF_HOPPER


def test_f32_wide_heads_and_functions_compile_with_few_spills() -> None:
    wide = replace(CAUSAL, dtype=DType.F32, qk_dim=128, v_dim=96)
    large = replace(CAUSAL, qk_dim=256, v_dim=256)
    kernels = (
        write_forward(wide, forward_tile(wide), False, True),
        write_forward(large, forward_tile(large), True, False),
        write_keys(SOFTCAP, key_tile(SOFTCAP), False),
        write_delta(CAUSAL, True, True),
    )
    for kernel in kernels:
        made = ahead(kernel)
        assert made.spilled <= 64, f"{kernel.name}: {made.spilled} bytes"
        assert made.shared_bytes < SHARED_OF_HOPPER
