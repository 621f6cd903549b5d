"""The host on torch tensors, in C: one function carries out the whole plan.

Python checks that the inputs lie as the plan expects, hands over their addresses, and takes the
results. What the function cannot be given (an input that lies otherwise, memory that others look
at too) the Python host runs instead: `run` then gives None, and nothing has happened yet.
"""

from __future__ import annotations

import ctypes
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from treadle.codegen.c.unit import ERROR_LENGTH
from treadle.codegen.host_c.render import (
    ENTRY,
    ERROR,
    FLAGS,
    KERNEL_FAILED,
    NO_MEMORY,
    render_host,
)
from treadle.core.options import Options
from treadle.core.toolchain import load_shared, why_not_compiled
from treadle.memory.from_program import CPU_ALIGNMENT
from treadle.runtime.hosts.torch_c_library import handle_of, has_interface, tensors_from
from treadle.runtime.hosts.torch_c_translate import InC, NotInC, Translation, table_of
from treadle.runtime.hosts.torch_memory import RunMemory
from treadle.runtime.hosts.torch_tensors import as_elements, reinterpret, storage_key
from treadle.runtime.signature import TensorResult

if TYPE_CHECKING:
    from treadle.runtime.hosts.torch_cpu import Bound


@dataclass(frozen=True)
class HostChoice:
    """Who carries out a plan, and why not C where it is not C."""

    host: CHost | None
    reason: str = ""


def choose_host(bound: Bound, options: Options) -> HostChoice:
    """The plan in C, compiled; or the reason why Python walks it."""
    if not has_interface():
        return HostChoice(None, "this torch does not have the C interface")
    if len(bound.plan.memory) > 1 or bound.plan.main.device != "cpu":
        return HostChoice(None, "not all of its memory is the CPU's")
    if bound.runner.signature.objects:
        return HostChoice(None, "it is given objects that only Python knows")
    try:
        made = Translation(
            bound.shape,
            bound.plan,
            bound.layouts,
            bound.runner.signature,
            bound.values,
            bound.runner.compiled.unit.storages,
        ).translated()
    except NotInC as e:
        return HostChoice(None, str(e))
    loaded = load_shared(render_host(made.function), flags=FLAGS, options=options)
    if not loaded.verdict:
        return HostChoice(None, why_not_compiled(loaded.verdict))
    return HostChoice(CHost(bound, made, loaded.library))


class CHost:
    """A loaded host function with all that one call of it needs."""

    def __init__(self, bound: Bound, made: InC, library: Any) -> None:
        self.bound, self.made = bound, made
        kernels = bound.runner.compiled.kernels
        assert kernels is not None, "a runner is made of what was compiled"
        self.kernels = kernels
        self._entry = library[ENTRY]
        self._entry.restype = ctypes.c_int64
        self._entry.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
        self._error = library[ERROR]
        self._error.restype = ctypes.POINTER(ctypes.c_int64)
        table = table_of(made, kernels.address)
        self._table = (ctypes.c_int64 * len(table))(*table)
        self._numbers = ctypes.addressof(self._table)
        self._results = ctypes.c_int64 * max(len(made.results), 1)
        self._pack = struct.Struct(f"{len(made.inputs) + len(made.owned)}q").pack
        signature, layouts = bound.runner.signature, bound.layouts
        position = {name: k for k, name in signature.tensors}
        self._given = [
            (position[n], layouts[n].sizes, layouts[n].strides)
            for n in made.inputs
            if n in position
        ]
        self._checked_only = [
            (k, layouts[n].sizes, layouts[n].strides)
            for k, n in signature.tensors
            if n not in made.inputs
        ]
        self._constants = [signature.constants[n] for n in made.inputs if n not in position]
        names = [*[n for n in made.inputs if n in position]]
        names += [n for n in made.inputs if n not in position]
        self._order = None if tuple(names) == made.inputs else [names.index(n) for n in made.inputs]
        self._owned = [position[n] for n in made.owned]
        self._pools = [position[n] for n in made.pools_of_inputs]
        self._positions = position
        self._calls_library = bool(made.function.functions)
        self._makes_any = bool(made.results)
        self._simple = self._simple_results()

    def run(self, given: list[Any]) -> list[Any] | None:
        """The results of one run; None if the Python host must do it. Empties what it lets go."""
        addresses = self._addresses(given)
        if addresses is None:
            return None
        results: Any = self._results()
        status = self._entry(self._pack(*addresses), self._numbers, results)
        if status:
            self._fail(status)
        made = tensors_from(results) if self._makes_any else []
        if self._simple is None:
            return self._other_results(given, made)
        return made if self._simple == [] else [made[k] for k in self._simple]

    # -- going in --------------------------------------------------------------------------
    def _addresses(self, given: list[Any]) -> list[int] | None:
        check, found = CHECK, []
        if self._calls_library and MODES():
            return None  # somebody wants to see every call
        try:
            for position, sizes, strides in self._given:
                tensor = given[position]
                check(tensor, sizes, strides)
                if tensor.is_neg():
                    return None
                found.append(tensor.data_ptr())
            for position, sizes, strides in self._checked_only:
                check(given[position], sizes, strides)
        except (AssertionError, AttributeError, TypeError, RuntimeError):
            return None  # it lies in another way, or is no tensor at all
        if self._constants:
            found += [tensor.data_ptr() for tensor in self._constants]
        if self._order is not None:
            found = [found[k] for k in self._order]
        if self._pools and not self._are_free(given):
            return None
        for position in self._owned:
            found.append(handle_of(given[position]))
            given[position] = None
        return found

    def _are_free(self, given: Sequence[Any]) -> bool:
        """Whether nobody else looks at the memory of inputs that others will lie in."""
        owners = Counter([storage_key(x) for x in given if isinstance(x, torch.Tensor)])
        memory = self.bound.memory
        for name, position in zip(self.made.pools_of_inputs, self._pools, strict=True):
            tensor = given[position]
            if owners[storage_key(tensor)] > 1 or tensor.data_ptr() % CPU_ALIGNMENT:
                return False
            is_whole = tensor.untyped_storage().nbytes() == memory.lives[name].bytes
            gives = any(n in self.bound.shape.outputs for n in memory.suballocations[name])
            if gives and not is_whole:
                return False
        return True

    # -- coming out ------------------------------------------------------------------------
    def _simple_results(self) -> list[int] | None:
        """Which of the tensors C made each result is; empty: just these in order.

        None if some result is anything else: a view, an input, a number, a tensor given twice.
        """
        places = {name: k for k, name in enumerate(self.made.results)}
        found: list[int] = []
        for result in self.bound.runner.signature.results:
            if not isinstance(result, TensorResult) or not result.is_whole:
                return None
            if result.storage not in places or places[result.storage] in found:
                return None
            found.append(places[result.storage])
        if len(found) != len(places):
            return None
        return [] if found == list(range(len(found))) else found

    def _other_results(self, given: list[Any], made: list[Any]) -> list[Any]:
        """Results in general: views, inputs, storages that lie in others, numbers."""
        bound, tensors = self.bound, RunMemory(0)
        tensors.tensors.update(zip(self.made.results, made, strict=True))
        for name, position in self._positions.items():
            if given[position] is not None:
                tensors.tensors[name] = given[position]
        tensors.tensors.update(bound.runner.signature.constants)
        for name in bound.shape.outputs:
            place = bound.memory.places.get(name)
            if place is not None:
                home = as_elements(tensors.tensors[place.pool], bound.tensors.element(name))
                layout = bound.layouts[name]
                start = place.offset // home.element_size()
                found = reinterpret(home, layout.sizes, layout.strides, start)
                tensors.tensors[name] = found
        return [give(tensors) for give in bound.results]

    def _fail(self, status: int) -> None:
        if status == KERNEL_FAILED:
            self.kernels.fail(self._error()[:ERROR_LENGTH])
        if status == NO_MEMORY:
            raise RuntimeError("torch has no memory left for what a graph needs")
        step = self.bound.plan.steps[status - 1]
        target = getattr(step, "target", "a call")
        raise RuntimeError(f"torch's {target} failed in operation '{step.operation}'")


CHECK: Callable[..., None] = torch._C._dynamo.guards.assert_size_stride
MODES: Callable[[], int] = torch._C._len_torch_dispatch_stack
