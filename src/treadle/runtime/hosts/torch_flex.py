"""Attention with functions inside on torch tensors: results allocated, kernels launched.

An operator is called with tensors as the plan has them; whatever a kernel cannot take as it lies
(an address that is no multiple of 16, gaps along a head) is copied first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from treadle.codegen.triton.flex.backward import (
    DELTA_TILE,
    write_delta,
    write_keys,
    write_queries,
)
from treadle.codegen.triton.flex.forward import write_forward
from treadle.codegen.triton.flex.spec import FlexKernel, FlexSpec, Tile
from treadle.codegen.triton.flex.tiles import forward_tile, key_tile, query_tile
from treadle.core.options import Options
from treadle.runtime.flex_kernels import MOST_BOUND, BoundKernel, Loaded
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

    tensors: tuple[Lie, ...]
    """Queries, keys, values; backward also what the forward gave, and its gradient."""
    results: tuple[tuple[int, ...], ...]
    """The strides of what is allocated."""
    widths: tuple[int, ...]
    """How long the rows of lists are, and how many rows there are, in the order of arguments."""
    sizes: tuple[int, ...]

    @property
    def batches(self) -> int:
        """How many batches of queries there are."""
        return self.tensors[0].sizes[0]

    @property
    def q_len(self) -> int:
        """How many queries a head has."""
        return self.tensors[0].sizes[2]

    @property
    def kv_len(self) -> int:
        """How many keys a head has."""
        return self.tensors[1].sizes[2]


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
    if tuple(x.stride()) == tuple(strides):
        if x.data_ptr() % ALIGNED == 0:
            return x
        # Its elements may share places, so what is copied is the memory that it shows.
        span = 1 + sum([(n - 1) * step for n, step in zip(x.shape, strides, strict=True)])
        memory = x.as_strided((span,), (1,), x.storage_offset()).clone()
        return memory.as_strided(x.shape, tuple(strides))
    made = torch.empty_strided(tuple(x.shape), tuple(strides), dtype=x.dtype, device=x.device)
    return made.copy_(x)


def listed(x: Any) -> Any:
    """A list of blocks as kernels take it."""
    return ready(x.contiguous())


def list_widths(lists: Sequence[Any]) -> tuple[int, ...]:
    """The numbers that kernels are told about lists (count, blocks, count, blocks)."""
    if not lists:
        return ()
    rows = {x.shape[:3] for x in lists}
    if len(rows) != 1:
        raise ValueError(f"lists of the blocks of a mask differ in their rows: {sorted(rows)}")
    return (*[int(x.shape[-1]) for x in lists[1::2]], int(lists[0].shape[-1]))


def numbers_of(
    spec: FlexSpec, at: Lengths, tensors: Mapping[str, Sequence[int]], widths: Sequence[int]
) -> dict[str, int]:
    """The values of all numbers by the names that kernels have for them; tensors by strides."""
    found = {"q_len": at.q_len, "kv_len": at.kv_len}
    for name, strides in tensors.items():
        for k, d in enumerate("bhs"):
            found[f"{name}_{d}"] = strides[k]
    if spec.lists is not None:
        names = ["part_width", *(["full_width"] if spec.lists.has_full else []), "list_rows"]
        found |= dict(zip(names, widths, strict=True))
    return found | {f"n_{s.name}": n for s, n in zip(spec.sizes, at.sizes, strict=True)}


def check_lists(rows: int, block: int, length: int) -> None:
    """A ValueError if a mask is shorter than what it masks."""
    if rows * block < length:
        raise ValueError(f"a mask of {rows} blocks of {block} is too short for {length} places")


def is_even(spec: FlexSpec, tile: Tile, at: Lengths) -> bool:
    """Whether nothing is cut off: lengths are multiples of tiles, and of the blocks of lists."""
    m, n = tile.m, tile.n
    if spec.lists is not None:
        m, n = max(m, spec.lists.block_q), max(n, spec.lists.block_kv)
    return at.q_len % m == 0 and at.kv_len % n == 0


def shared_out(length: int, side: int, heads: int) -> int:
    """How many programs there are for tiles of some side."""
    return -(-length // side) * heads


class FlexForward:
    """The forward operator: `(out, log2 of sums, maxima)`; what nobody asks for is None."""

    def __init__(
        self,
        spec: FlexSpec,
        options: Options,
        device: GpuDevice | None,
        wanted: Sequence[int],
        tile: Tile | None = None,
    ) -> None:
        """`wanted`: the results that somebody reads, by position."""
        self.spec, self.options, self.device = spec, options, device
        self.wanted, self.tile = tuple(wanted), tile
        self.wants_top = 2 in self.wanted
        self._bound: dict[Lengths, BoundKernel] = {}
        self._loaded: Loaded = {}

    def kernel(self, at: Lengths) -> FlexKernel:
        """The kernel for some lengths."""
        tile = self.tile or forward_tile(self.spec, at.q_len)
        return write_forward(self.spec, tile, is_even(self.spec, tile, at), self.wants_top)

    def numbers(self, at: Lengths) -> dict[str, int]:
        """What its kernel is told of some lengths."""
        tensors = dict(zip("qkv", [x.strides for x in at.tensors], strict=True))
        return numbers_of(self.spec, at, {**tensors, "out": at.results[0]}, at.widths)

    def bind(self, at: Lengths) -> BoundKernel:
        """What launches it for some lengths; compiled from now on."""
        if at not in self._bound:
            if self.spec.lists is not None:
                check_lists(at.widths[-1], self.spec.lists.block_q, at.q_len)
            kernel = self.kernel(at)
            grid = shared_out(at.q_len, kernel.tile.m, at.batches * self.spec.heads)
            rest = (self.options, self.device, self._loaded)
            if len(self._bound) >= MOST_BOUND:
                self._bound.clear()
            self._bound[at] = BoundKernel(kernel, self.numbers(at), grid, *rest)
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
        made = {k: fresh_result(k, query, value, results) for k in self.wanted}
        rest = (lists, given, lies, sizes, results)
        self.into(query, key, value, *rest, out=list(made.values()))
        return made.get(0), made.get(1), made.get(2)

    def into(
        self,
        query: Any,
        key: Any,
        value: Any,
        lists: Sequence[Any],
        given: Sequence[Any],
        lies: Sequence[Sequence[int]],
        sizes: Sequence[int],
        results: Sequence[Sequence[int]],
        *,
        out: Sequence[Any],
    ) -> None:
        """The same into memory that is given, that of the wanted results."""
        tensors = [ready(x) for x in (query, key, value)]
        lists = [listed(x) for x in lists]
        given = [captured(x, s) for x, s in zip(given, lies, strict=True)]
        at = Lengths(lies_of(tensors), told(results), list_widths(lists), tuple(sizes))
        made = dict(zip(self.wanted, out, strict=True))
        written = (0, 1, 2) if self.wants_top else (0, 1)
        held = [made[k] if k in made else fresh_result(k, query, value, results) for k in written]
        self.bind(at).launch(addresses([*tensors, *held, *lists, *given]))


class FlexBackward:
    """The backward operator: gradients of queries, keys and values."""

    def __init__(
        self,
        spec: FlexSpec,
        by_keys: FlexSpec,
        options: Options,
        device: GpuDevice | None,
        tiles: tuple[Tile, Tile] | None = None,
    ) -> None:
        """`by_keys` has the lists of the walk along queries."""
        self.spec, self.by_keys, self.options, self.device = spec, by_keys, options, device
        self.tiles = tiles
        self._bound: dict[tuple[Lengths, bool], tuple[BoundKernel, BoundKernel, BoundKernel]] = {}
        self._loaded: Loaded = {}

    def kernels(self, at: Lengths, has_lse_slope: bool) -> tuple[FlexKernel, ...]:
        """The kernels for some lengths: what pulls rows down, queries, keys."""
        spec, given = (
            self.spec,
            self.tiles or (query_tile(self.spec, at.q_len), key_tile(self.spec)),
        )
        whole = at.q_len % DELTA_TILE.m == 0
        return (
            write_delta(spec, whole, has_lse_slope),
            write_queries(spec, given[0], is_even(spec, given[0], at)),
            write_keys(self.by_keys, given[1], is_even(spec, given[1], at)),
        )

    def numbers(self, at: Lengths) -> tuple[dict[str, int], dict[str, int]]:
        """What the walks along keys and along queries are told of some lengths."""
        names = ("q", "k", "v", "out", "slope")
        tensors = dict(zip(names, [x.strides for x in at.tensors], strict=True))
        tensors |= dict(zip(("dq", "dk", "dv"), at.results, strict=True))
        half = len(at.widths) // 2
        return (
            numbers_of(self.spec, at, tensors, at.widths[:half]),
            numbers_of(self.by_keys, at, tensors, at.widths[half:]),
        )

    def bind(
        self, at: Lengths, has_lse_slope: bool
    ) -> tuple[BoundKernel, BoundKernel, BoundKernel]:
        """What launches the kernels for some lengths; compiled from now on."""
        found = self._bound.get((at, has_lse_slope))
        if found is None:
            if self.spec.lists is not None:
                half, lists = len(at.widths) // 2, self.spec.lists
                check_lists(at.widths[half - 1], lists.block_q, at.q_len)
                check_lists(at.widths[-1], lists.block_kv, at.kv_len)
            delta, queries, keys = self.kernels(at, has_lse_slope)
            along_keys, along_queries = self.numbers(at)
            heads = at.batches * self.spec.heads
            kv_heads = heads // self.spec.group
            rest = (self.options, self.device, self._loaded)
            if len(self._bound) >= MOST_BOUND:
                self._bound.clear()
            found = (
                BoundKernel(delta, along_keys, shared_out(at.q_len, delta.tile.m, heads), *rest),
                BoundKernel(
                    queries, along_keys, shared_out(at.q_len, queries.tile.m, heads), *rest
                ),
                BoundKernel(
                    keys, along_queries, shared_out(at.kv_len, keys.tile.n, kv_heads), *rest
                ),
            )
            self._bound[at, has_lse_slope] = found
        return found

    def __call__(
        self,
        tensors: Sequence[Any],
        sums: Sequence[Any],
        lists: Sequence[Any],
        by_keys: Sequence[Any],
        given: Sequence[Any],
        lies: Sequence[Sequence[int]],
        sizes: Sequence[int],
        results: Sequence[Sequence[int]],
    ) -> tuple[Any, Any, Any]:
        """Gradients, of queries, keys, values, `out` and its gradient.

        `sums` are the logarithms of the forward's sums and the gradient of these, either gradient
        may be None; the rest is as in the forward.
        """
        made = [
            torch.empty_strided(x.shape, s, dtype=x.dtype, device=x.device)
            for x, s in zip(tensors[:3], told(results), strict=True)
        ]
        self.into(tensors, sums, lists, by_keys, given, lies, sizes, results, out=made)
        return made[0], made[1], made[2]

    def into(
        self,
        tensors: Sequence[Any],
        sums: Sequence[Any],
        lists: Sequence[Any],
        by_keys: Sequence[Any],
        given: Sequence[Any],
        lies: Sequence[Sequence[int]],
        sizes: Sequence[int],
        results: Sequence[Sequence[int]],
        *,
        out: Sequence[Any],
    ) -> None:
        """The same into memory that is given."""
        rest = (lists, by_keys, given, lies, sizes, results)
        for kernel, held in self.launches(tensors, sums, *rest, out=out):
            kernel.launch(addresses(held))

    def launches(
        self,
        tensors: Sequence[Any],
        sums: Sequence[Any],
        lists: Sequence[Any],
        by_keys: Sequence[Any],
        given: Sequence[Any],
        lies: Sequence[Sequence[int]],
        sizes: Sequence[int],
        results: Sequence[Sequence[int]],
        *,
        out: Sequence[Any],
    ) -> list[tuple[BoundKernel, list[Any]]]:
        """The kernels in their order, each with the tensors it is launched on."""
        query, key, value, seen, slope = tensors
        slope = torch.zeros_like(seen) if slope is None else slope
        tensors = [ready(x) for x in (query, key, value, seen, slope)]
        rows = [listed(x) for x in sums if x is not None]
        lists, by_keys = [listed(x) for x in lists], [listed(x) for x in by_keys]
        given = [captured(x, s) for x, s in zip(given, lies, strict=True)]
        widths = (*list_widths(lists), *list_widths(by_keys))
        at = Lengths(lies_of(tensors), told(results), widths, tuple(sizes))
        delta = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        pull, queries, keys = self.bind(at, len(rows) == 2)
        q, k, v, _, slopes = tensors
        return [
            (pull, [*tensors[3:], delta, *rows[1:]]),
            (queries, [q, k, v, slopes, out[0], rows[0], delta, *lists, *given]),
            (keys, [q, k, v, slopes, *out[1:], rows[0], delta, *by_keys, *given]),
        ]


def fresh_result(position: int, query: Any, value: Any, results: Sequence[Sequence[int]]) -> Any:
    """Memory for a result of the forward."""
    shape = (*query.shape[:3], value.shape[3])
    if position == 0:
        return torch.empty_strided(shape, results[0], dtype=query.dtype, device=query.device)
    return torch.empty(shape[:3], dtype=torch.float32, device=query.device)


def addresses(tensors: Sequence[Any]) -> list[int]:
    """Where tensors lie."""
    return [x.data_ptr() for x in tensors]


def lies_of(tensors: Sequence[Any]) -> tuple[Lie, ...]:
    """How tensors lie."""
    return tuple([lie(x) for x in tensors])


def told(strides: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Strides as they are remembered."""
    return tuple([tuple(s) for s in strides])
