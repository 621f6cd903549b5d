"""Attention with functions inside on torch tensors: results allocated, kernels launched.

An operator is called with tensors as the plan has them; whatever a kernel cannot take as it lies
(an address that is no multiple of 16, gaps along a head) is copied first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from treadle.codegen.triton.flex.forward import write_forward
from treadle.codegen.triton.flex.spec import FlexKernel, FlexSpec, Tile
from treadle.codegen.triton.flex.tiles import forward_tile
from treadle.core.options import Options
from treadle.runtime.flex_kernels import BoundKernel
from treadle.runtime.triton_kernels import GpuDevice

ALIGNED = 16


@dataclass(frozen=True)
class Lie:
    """Sizes and strides of a tensor."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Lengths:
    """All that a binding depends on: lengths, strides, the widths of lists, run-time sizes."""

    query: Lie
    key: Lie
    value: Lie
    results: tuple[tuple[int, ...], ...]
    """The strides of what is allocated."""
    widths: tuple[int, ...]
    """How long the rows of lists are, and how many rows there are, in the order of arguments."""
    sizes: tuple[int, ...]

    @property
    def q_len(self) -> int:
        """How many queries a head has."""
        return self.query.sizes[2]

    @property
    def kv_len(self) -> int:
        """How many keys a head has."""
        return self.key.sizes[2]


def lie(x: Any) -> Lie:
    """How a tensor lies."""
    return Lie(tuple(x.shape), tuple(x.stride()))


def ready(x: Any) -> Any:
    """A tensor as kernels take it: the last dimension without gaps, the address even."""
    is_dense = x.ndim == 0 or x.shape[-1] <= 1 or x.stride(-1) == 1
    if is_dense and x.data_ptr() % ALIGNED == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)


def captured(x: Any, strides: Sequence[int]) -> Any:
    """A tensor that functions read: it lies just as they think."""
    if tuple(x.stride()) == tuple(strides) and x.data_ptr() % ALIGNED == 0:
        return x
    made = torch.empty_strided(tuple(x.shape), tuple(strides), dtype=x.dtype, device=x.device)
    return made.copy_(x)


def listed(x: Any) -> Any:
    """A list of blocks as kernels take it."""
    return ready(x.contiguous())


def list_widths(lists: Sequence[Any]) -> tuple[int, ...]:
    """The numbers that kernels are told about lists (count, blocks, count, blocks)."""
    if not lists:
        return ()
    return (*[int(x.shape[-1]) for x in lists[1::2]], int(lists[0].shape[-1]))


def numbers_of(spec: FlexSpec, at: Lengths, tensors: dict[str, Lie]) -> dict[str, int]:
    """The values of all numbers by the names that kernels have for them."""
    found = {"q_len": at.q_len, "kv_len": at.kv_len}
    for name, one in tensors.items():
        for k, d in enumerate("bhs"):
            found[f"{name}_{d}"] = one.strides[k]
    if spec.lists is not None:
        names = ["part_width", *(["full_width"] if spec.lists.has_full else []), "list_rows"]
        found |= dict(zip(names, at.widths, strict=True))
    return found | {f"n_{s.name}": n for s, n in zip(spec.sizes, at.sizes, strict=True)}


def is_even(spec: FlexSpec, tile: Tile, at: Lengths) -> bool:
    """Whether nothing is cut off: lengths are multiples of tiles, and of the blocks of lists."""
    m, n = tile.m, tile.n
    if spec.lists is not None:
        m, n = max(m, spec.lists.block_q), max(n, spec.lists.block_kv)
    return at.q_len % m == 0 and at.kv_len % n == 0


def in_rows(at: Lengths, heads: int, side: int) -> int:
    """How many programs share out all queries."""
    return -(-at.q_len // side) * at.query.sizes[0] * heads


class FlexForward:
    """The forward operator: `(out, log2 of sums, maxima)`; what nobody asks for is None."""

    def __init__(
        self,
        spec: FlexSpec,
        options: Options,
        device: GpuDevice | None,
        wants_top: bool,
        tile: Tile | None = None,
    ) -> None:
        self.spec, self.options, self.device = spec, options, device
        self.wants_top, self.tile = wants_top, tile
        self._bound: dict[Lengths, BoundKernel] = {}

    def kernel(self, at: Lengths) -> FlexKernel:
        """The kernel for some lengths."""
        tile = self.tile or forward_tile(self.spec, at.q_len)
        return write_forward(self.spec, tile, is_even(self.spec, tile, at), self.wants_top)

    def bind(self, at: Lengths) -> BoundKernel:
        """What launches it for some lengths; compiled from now on."""
        if at not in self._bound:
            kernel = self.kernel(at)
            tensors = {"q": at.query, "k": at.key, "v": at.value}
            tensors["out"] = Lie((), at.results[0])
            numbers = numbers_of(self.spec, at, tensors)
            grid = in_rows(at, self.spec.heads, kernel.tile.m)
            self._bound[at] = BoundKernel(kernel, numbers, grid, self.options, self.device)
        return self._bound[at]

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        lists: Sequence[Any],
        given: Sequence[Any],
        lies: Sequence[Sequence[int]],
        sizes: Sequence[int],
        results: Sequence[Sequence[int]],
    ) -> tuple[Any, Any, Any]:
        """Attention of `query` to `key` and `value`.

        `given` are the tensors that functions read, `lies` their strides, `results` the strides of
        what is allocated.
        """
        query, key, value = ready(query), ready(key), ready(value)
        lists = [listed(x) for x in lists]
        given = [captured(x, s) for x, s in zip(given, lies, strict=True)]
        at = Lengths(
            lie(query), lie(key), lie(value),
            tuple([tuple(s) for s in results]), list_widths(lists), tuple(sizes),
        )  # fmt: skip
        shape = (*query.shape[:3], value.shape[3])
        out = torch.empty_strided(shape, at.results[0], dtype=query.dtype, device=query.device)
        lse = torch.empty(shape[:3], dtype=torch.float32, device=query.device)
        top = torch.empty_like(lse) if self.wants_top else None
        held = [query, key, value, out, lse, *([top] if self.wants_top else []), *lists, *given]
        self.bind(at).launch([x.data_ptr() for x in held])
        return out, lse, top
