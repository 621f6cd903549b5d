"""Which tiles fit: registers hold sums and scores, shared memory the steps under way.

Chosen for Hopper, by type and by the wider of the two head sizes (`bench/results/flex_tiles.json`);
blocks of a mask are multiples of a tile's sides.
"""

from __future__ import annotations

from treadle.codegen.triton.flex.spec import FlexSpec, Tile
from treadle.codegen.triton.flex.writer import LEAST
from treadle.codegen.triton.writer import power_of_two
from treadle.ir.types import DType

HALF_FORWARD = {64: Tile(64, 64, 4, 3), 128: Tile(64, 64, 4, 3), 256: Tile(128, 64, 8, 2)}
WIDE_FORWARD = {64: Tile(32, 32, 4, 2), 128: Tile(32, 32, 8, 1), 256: Tile(16, 32, 8, 1)}
HALF_QUERIES = {64: Tile(64, 64, 4, 3), 128: Tile(128, 32, 8, 3), 256: Tile(64, 32, 8, 2)}
WIDE_QUERIES = {64: Tile(32, 32, 4, 2), 128: Tile(32, 16, 4, 1), 256: Tile(16, 16, 8, 1)}
HALF_KEYS = {64: Tile(32, 64, 4, 3), 128: Tile(32, 64, 4, 3), 256: Tile(32, 64, 8, 2)}
WIDE_KEYS = {64: Tile(32, 32, 8, 1), 128: Tile(16, 32, 8, 1), 256: Tile(16, 16, 8, 1)}
"""Forward; backward for queries, walking keys; backward for keys, walking queries."""


def forward_tile(spec: FlexSpec, q_len: int | None = None) -> Tile:
    """The tile of the forward kernel; few queries take a small one."""
    return fitted(_row(spec, HALF_FORWARD, WIDE_FORWARD), spec, q_len)


def query_tile(spec: FlexSpec, q_len: int | None = None) -> Tile:
    """The tile of the backward kernel for queries."""
    return fitted(_row(spec, HALF_QUERIES, WIDE_QUERIES), spec, q_len)


def key_tile(spec: FlexSpec) -> Tile:
    """The tile of the backward kernel for keys and values."""
    return fitted(_row(spec, HALF_KEYS, WIDE_KEYS), spec, None)


def _row(spec: FlexSpec, half: dict[int, Tile], wide: dict[int, Tile]) -> Tile:
    width = power_of_two(max(spec.qk_dim, spec.v_dim))
    table = wide if spec.dtype is DType.F32 else half
    return table[min(max(width, 64), 256)]


def fitted(tile: Tile, spec: FlexSpec, q_len: int | None) -> Tile:
    """The tile made small enough for the blocks of a mask and for few queries."""
    m, n = tile.m, tile.n
    if q_len is not None:
        m = min(m, max(power_of_two(q_len), LEAST))
    if spec.lists is not None:
        m, n = _dividing(m, spec.lists.block_q), _dividing(n, spec.lists.block_kv)
    is_half = 2 * m * n <= tile.m * tile.n
    return Tile(m, n, 4 if is_half else tile.warps, tile.stages)


def _dividing(side: int, block: int) -> int:
    """The largest power of two up to `side` that divides a block."""
    return min(side, block & -block)


def why_no_tile(spec: FlexSpec) -> str | None:
    """What no tile is large or small enough for; None if one fits."""
    if max(spec.qk_dim, spec.v_dim) > 256:
        return f"heads of {max(spec.qk_dim, spec.v_dim)} elements; up to 256 fit into registers"
    lists = spec.lists
    if lists is not None:
        for block in (lists.block_q, lists.block_kv):
            if block & -block < LEAST:
                return f"blocks of {block}; tiles are multiples of {LEAST}"
    return None
