"""The memory of a plan put into effect on torch: tensors, addresses for kernels, what ends when.

A pool is memory that others lie in: the arena, an output, a donated input, the result of a call.
Whoever lies in a pool gets its address when the pool gets its tensor. A donated input or a result
that turns out to be shared or oddly aligned is left alone: a block of the same size stands in.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import torch

from treadle.codegen.c.unit import ERROR_LENGTH
from treadle.ir.devices import CPU_ALIGNMENT
from treadle.ir.placed_layout import PlacedLayout
from treadle.memory.problem import ARENA
from treadle.runtime.device_memory import DeviceMemory, Role
from treadle.runtime.hosts.torch_tensors import (
    TORCH_TYPES,
    as_elements,
    reinterpret,
    storage_key,
)
from treadle.runtime.launch_shape import LaunchShape


class RunMemory:
    """What one run holds: tensors by storage, objects by name, addresses for the kernels."""

    __slots__ = ("addresses", "arena", "error", "is_odd", "objects", "pending", "tensors")

    def __init__(self, count: int) -> None:
        self.tensors: dict[str, Any] = {}
        self.objects: dict[str, Any] = {}
        self.arena: Any = None
        self.pending: dict[str, Any] = {}
        """Results of collectives that nobody has waited for yet, by storage."""
        self.addresses: Any = (ctypes.c_void_p * max(count, 1))()
        self.error: Any = (ctypes.c_int64 * ERROR_LENGTH)()
        self.is_odd = False
        """Whether an input has other sizes than the graph was captured with."""

    def copy(self) -> RunMemory:
        """The same tensors under the same names; either can then take in others."""
        other = RunMemory(0)
        other.tensors, other.objects = dict(self.tensors), dict(self.objects)
        other.pending, other.arena = dict(self.pending), self.arena
        other.addresses = type(self.addresses)(*self.addresses)
        other.is_odd = self.is_odd
        return other


Action = Callable[[RunMemory], None]
"""Something a host does in a run."""


class PooledStorage(NamedTuple):
    """One storage in a pool."""

    name: str
    offset: int
    at: int | None
    """Its number among the addresses that kernels are given."""
    is_seen: bool
    """Whether calls or the caller look at it, who need a tensor."""
    is_output: bool


class TensorMemory:
    """Where storages lie at one set of sizes, ready to be put into effect."""

    def __init__(
        self,
        shape: LaunchShape,
        plan: DeviceMemory,
        layouts: Mapping[str, PlacedLayout],
        place: Callable[[str], int | None],
        lets_inputs_go: bool,
    ) -> None:
        self.shape, self.plan, self.layouts, self.place = shape, plan, layouts, place
        self.lets_inputs_go = lets_inputs_go
        self.device = plan.device
        """Where memory is allocated."""
        seen = shape.seen_by_calls | shape.outputs
        self.pools: dict[str, list[PooledStorage]] = {
            pool: [
                PooledStorage(n, plan.places[n].offset, place(n), n in seen, n in shape.outputs)
                for n in names
            ]
            for pool, names in plan.suballocations.items()
        }
        self.pools_of_inputs = [
            pool for pool in self.pools if pool != ARENA and plan.lives[pool].first < 0
        ]

    def element(self, name: str) -> torch.dtype:
        """torch's element type of a storage."""
        return TORCH_TYPES[self.shape.program.by_name[name].dtype]

    def put(self, memory: RunMemory, name: str, tensor: Any) -> None:
        """Let a storage lie in a tensor's memory."""
        memory.tensors[name] = tensor
        at = self.place(name)
        if at is not None:
            memory.addresses[at] = tensor.data_ptr()

    # -- steps -----------------------------------------------------------------------------
    @cached_property
    def allocations(self) -> dict[int, list[Action]]:
        """For each step, what must be allocated before it."""
        plan, found = self.plan, dict[int, list[Action]]()
        if plan.arena is not None:
            found[plan.arena.first] = [self._take_arena(plan.arena_bytes)]
        for name, span in plan.spans.items():
            if plan.lives[name].role in (Role.OUTPUT, Role.PINNED, Role.TEMP):
                found.setdefault(span.first, []).append(self._take(name))
        return found

    @cached_property
    def ends(self) -> dict[int, list[str]]:
        """For each step, the storages whose tensors are let go of after it."""
        plan, found = self.plan, dict[int, list[str]]()
        for name, span in plan.spans.items():
            if plan.lives[name].role is not Role.KEPT:
                found.setdefault(span.last, []).extend([name, *plan.suballocations.get(name, [])])
        if plan.arena is not None:
            found.setdefault(plan.arena.last, []).extend(plan.suballocations[ARENA])
        if self.lets_inputs_go:
            # The caller may have given inputs away; we need not be the one who keeps them. With
            # gradients torch says which (they are donated), and predictions are exact.
            for name in self.shape.inputs - self.shape.outputs:
                found.setdefault(self.shape.last(name), []).append(name)
        return found

    def fresh(self, name: str) -> Any:
        """A tensor without values, as a storage is to be."""
        sizes, strides, _ = self.layouts[name]
        element = self.element(name)
        return torch.empty_strided(sizes, strides, dtype=element, device=self.device)

    def _take(self, name: str) -> Action:
        layout, element, is_pool = self.layouts[name], self.element(name), name in self.pools
        device = self.device

        def take(memory: RunMemory) -> None:
            made = torch.empty_strided(layout.sizes, layout.strides, dtype=element, device=device)
            self.put(memory, name, made)
            if is_pool:
                self.settle(memory, name)

        return take

    def _take_arena(self, count: int) -> Action:
        def take(memory: RunMemory) -> None:
            memory.arena = torch.empty(count, dtype=torch.uint8, device=self.device)
            self._move_in(memory, self.pools[ARENA], memory.arena)

        return take

    # -- pools -----------------------------------------------------------------------------
    def settle_inputs(self, memory: RunMemory, given: list[Any]) -> None:
        """Give those who will lie in donated inputs their addresses."""
        if not self.pools_of_inputs:
            return
        tensors = [x for x in given if isinstance(x, torch.Tensor)]
        owners = Counter([storage_key(x) for x in tensors])
        for pool in self.pools_of_inputs:
            tensor = memory.tensors[pool]
            shared = owners[storage_key(tensor)] > 1
            lies = tuple(tensor.shape) == self.layouts[pool].sizes
            self.settle(memory, pool, lies and not shared)

    def settle(self, memory: RunMemory, pool: str, is_free: bool = True) -> None:
        """Give those who lie in a storage their addresses, now that it has its tensor."""
        tensor, inside = memory.tensors[pool], self.pools[pool]
        is_ours = self.plan.lives[pool].role is Role.OUTPUT
        if not is_ours and (not is_free or tensor.data_ptr() % CPU_ALIGNMENT):
            count = self.plan.lives[pool].bytes
            tensor = torch.empty(count, dtype=torch.uint8, device=self.device)
            is_ours = True
            for one in [t for t in inside if t.is_output]:
                self._alone(memory, one.name)
            inside = [t for t in inside if not t.is_output]
            # Kernels know addresses only: somebody must keep what they point to.
            memory.tensors.update({t.name: tensor for t in inside})
        if not is_ours and any(t.is_output for t in inside):
            # What the caller gets must not keep more memory alive than it needs.
            whole = tensor.untyped_storage().nbytes() == self.plan.lives[pool].bytes
            for one in [t for t in inside if t.is_output and not whole]:
                self._alone(memory, one.name)
            inside = [t for t in inside if whole or not t.is_output]
        self._move_in(memory, inside, tensor)

    def _alone(self, memory: RunMemory, name: str) -> None:
        self.put(memory, name, self.fresh(name))

    def _move_in(self, memory: RunMemory, inside: list[PooledStorage], tensor: Any) -> None:
        base, addresses = tensor.data_ptr(), memory.addresses
        known: dict[Any, Any] = {tensor.dtype: tensor}
        for name, offset, at, is_seen, _ in inside:
            if at is not None:
                addresses[at] = base + offset
            if is_seen:
                element = self.element(name)
                if element not in known:
                    known[element] = as_elements(tensor, element)
                layout, whole = self.layouts[name], known[element]
                start = offset // whole.element_size()
                memory.tensors[name] = reinterpret(whole, layout.sizes, layout.strides, start)
