"""The host on torch tensors, in C: one function carries out the whole plan.

Python checks that the inputs lie as the plan expects, hands over their addresses, and takes the
results. What the function cannot be given (an input that lies otherwise, memory that others look
at too) the Python host runs instead: `enter` then gives None, and nothing has happened yet.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

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
from treadle.ir.devices import CPU_ALIGNMENT
from treadle.runtime.hosts.torch_c_enter import Entering, Entrance
from treadle.runtime.hosts.torch_c_library import handle_of, has_interface, tensors_from
from treadle.runtime.hosts.torch_c_translate import InC, NotInC, Translation, table_of
from treadle.runtime.hosts.torch_memory import RunMemory
from treadle.runtime.hosts.torch_tensors import as_elements, reinterpret, storage_key
from treadle.runtime.kernels import Kernels
from treadle.runtime.launch_plan import CallStep, Step
from treadle.runtime.signature import TensorResult

if TYPE_CHECKING:
    from treadle.runtime.hosts.torch_cpu import Bound


@dataclass(frozen=True)
class HostChoice:
    """Who carries out a plan, and why not C where it is not C."""

    host: CHost | None
    reason: str = ""


@dataclass(frozen=True)
class HostReport:
    """Who carries out a plan, in words for people."""

    host: str
    """`c` or `python`."""
    reason: str = ""
    """Why it is Python."""
    back: tuple[tuple[str, str, int], ...] = ()
    """(operator, why it goes back to Python, how often) of calls that a host in C does not make."""


def host_report(bound: Bound) -> HostReport:
    """What will carry out a plan that runs often; nothing is compiled for the answer."""
    if bound.runner.options.host == "python":
        return HostReport("python", "the option `host` asks for it")
    try:
        made = _translated(bound)
    except NotInC as e:
        return HostReport("python", str(e))
    rows = [(_call_step(bound.plan.steps[k]).target, x.reason) for k, x in made.back.items()]
    counted = Counter(rows).items()
    return HostReport("c", back=tuple([(target, why, n) for (target, why), n in counted]))


def choose_host(bound: Bound, options: Options) -> HostChoice:
    """The plan in C, compiled; or the reason why Python walks it."""
    try:
        made = _translated(bound)
    except NotInC as e:
        return HostChoice(None, str(e))
    text, known = render_host(made.function), bound.runner.host_libraries
    if text not in known:
        loaded = load_shared(text, flags=FLAGS, options=options)
        if not loaded.verdict:
            return HostChoice(None, why_not_compiled(loaded.verdict))
        known[text] = loaded.library
    try:
        return HostChoice(CHost(bound, made, known[text], options))
    except OSError as e:
        return HostChoice(None, str(e))


def _translated(bound: Bound) -> InC:
    """The plan as instructions; NotInC with the reason if Python must walk it."""
    signature = bound.runner.signature
    if not has_interface():
        raise NotInC("this torch does not have the C interface")
    if len(bound.plan.memory) > 1 or bound.plan.main.device != "cpu":
        raise NotInC("not all of its memory is the CPU's")
    if not isinstance(bound.runner.compiled.kernels, Kernels):
        raise NotInC("its kernels are not in C")
    if signature.objects:
        raise NotInC("it is given objects that only Python knows")
    if bound.calls.broken:
        names = ", ".join(sorted(bound.calls.broken))
        raise NotInC(f"results that were not what their operators promise: {names}")
    storages = bound.runner.compiled.unit.storages
    plan, layouts = bound.plan, bound.layouts
    return Translation(bound.shape, plan, layouts, signature, bound.values, storages).translated()


class CHost:
    """A loaded host function with all that one call of it needs."""

    def __init__(self, bound: Bound, made: InC, library: Any, options: Options) -> None:
        self.bound, self.made, self._library = bound, made, library
        kernels = bound.runner.compiled.kernels
        assert isinstance(kernels, Kernels), "a host in C launches kernels in C"
        self.kernels = kernels
        self._error = library[ERROR]
        self._error.restype = ctypes.POINTER(ctypes.c_int64)
        self._steps = {
            k: (one.given, bound.calls.called_back(_call_step(bound.plan.steps[k])))
            for k, one in made.back.items()
        }
        self._raised = threading.local()
        self._back = BACK(self._called_back) if made.back else None
        back = 0 if self._back is None else _address(self._back)
        table = table_of(made, kernels.address, back)
        self._table = (ctypes.c_int64 * len(table))(*table)
        signature = bound.runner.signature
        self._positions = {name: k for k, name in signature.tensors}
        self._pools = [self._positions[n] for n in made.pools_of_inputs]
        self._entrance = Entrance(self._entering(), options)
        self.enter = self._entrance.enter
        """Takes the arguments; gives what C made, None if Python must run, or a failure."""
        self._order = self._simple_results()
        self.is_direct = self._order == []
        """Whether what C made are just the results, in order."""

    def _entering(self) -> Entering:
        made, at, layouts = self.made, self._positions, self.bound.layouts
        constants = self.bound.runner.signature.constants
        unseen = [name for name in at if name not in made.inputs]
        return Entering(
            host=_address(self._library[ENTRY]),
            numbers=ctypes.addressof(self._table),
            inputs=[at.get(name, -1) for name in made.inputs],
            constants=[constants.get(name) for name in made.inputs],
            owned=[at[name] for name in made.owned],
            checked=[at[name] for name in unseen],
            layouts=[layouts[name][:2] for name in (*made.inputs, *unseen)],
            results=len(made.results),
            is_free=self._are_free if self._pools else None,
            calls_library=bool(made.function.functions or made.back),
        )

    def results(self, given: list[Any], found: Any) -> list[Any]:
        """What the graph gives, from what `enter` gave; raises what it says failed."""
        if not isinstance(found, list):
            self._fail(found)
        if self._order is None:
            return self._other_results(given, found)
        return found if self.is_direct else [found[k] for k in self._order]

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

    # -- in between ------------------------------------------------------------------------
    def _called_back(self, step: int, given: Any, made: Any) -> int:
        """Make one call from Python, with views that end with it; 1 if it raised something."""
        names, answer = self._steps[step]
        try:
            tensors = dict(zip(names, tensors_from(given[: len(names)]), strict=True))
            for k, result in enumerate(answer(tensors)):
                made[k][0] = handle_of(result)
        except BaseException as e:
            self._raised.error = e
            return 1
        return 0

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

    def _fail(self, status: int) -> NoReturn:
        if status == KERNEL_FAILED:
            self.kernels.fail(self._error()[:ERROR_LENGTH])
        if status == NO_MEMORY:
            raise RuntimeError("torch has no memory left for what a graph needs")
        raised, self._raised.error = getattr(self._raised, "error", None), None
        if raised is not None:
            raise raised
        step = self.bound.plan.steps[status - 1]
        target = getattr(step, "target", "a call")
        raise RuntimeError(f"torch's {target} failed in operation '{step.operation}'")


BACK = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)),
)
"""How a host function calls back: a step, views, and where its results go."""


def _call_step(step: Step) -> CallStep:
    assert isinstance(step, CallStep), f"'{step.operation}' is no call"
    return step


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None, "a function that was loaded has an address"
    return found
