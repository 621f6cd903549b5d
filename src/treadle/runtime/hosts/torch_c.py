"""The host on torch tensors, in C: one function carries out the whole plan.

Python checks that the inputs lie as the plan expects, hands over their addresses, and takes the
results. What the function cannot be given (an input that lies otherwise, memory that others look
at too) the Python host runs instead: `enter` then gives None, and nothing has happened yet.
"""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

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
from treadle.ir.placed_layout import PlacedLayout
from treadle.runtime.hosts.torch_c_blocks import empty_again
from treadle.runtime.hosts.torch_c_enter import Entering, Entrance
from treadle.runtime.hosts.torch_c_library import handle_of, has_interface, tensors_from
from treadle.runtime.hosts.torch_c_translate import InC, NotInC, Translation, table_of
from treadle.runtime.hosts.torch_memory import RunMemory
from treadle.runtime.hosts.torch_tensors import as_elements, reinterpret
from treadle.runtime.kernels import Kernels
from treadle.runtime.launch_plan import CallStep, Step
from treadle.runtime.signature import ObjectResult, TensorResult

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
        made = bound.instructions()
    except NotInC as e:
        return HostReport("python", str(e))
    rows = [(_call_step(bound.plan.steps[k]).target, x.reason) for k, x in made.back.items()]
    counted = Counter(rows).items()
    return HostReport("c", back=tuple([(target, why, n) for (target, why), n in counted]))


def choose_host(bound: Bound, options: Options) -> HostChoice:
    """The plan in C, compiled; or the reason why Python walks it."""
    try:
        made = translated(bound)
    except NotInC as e:
        return HostChoice(None, str(e))
    try:
        library = host_library(bound, made, options)
        kernels = bound.runner.compiled.kernels
        assert isinstance(kernels, Kernels), "a host in C launches kernels in C"
        return HostChoice(CHost(bound, made, library, options, kernels.address))
    except OSError as e:
        return HostChoice(None, str(e))


def host_library(bound: Bound, made: InC, options: Options) -> Any:
    """The host function, compiled and loaded once for each text; OSError if that fails."""
    text, known = render_host(made.function), bound.runner.host_libraries
    if text not in known:
        loaded = load_shared(text, flags=FLAGS, options=options)
        if not loaded.verdict:
            raise OSError(why_not_compiled(loaded.verdict))
        known[text] = loaded.library
    return known[text]


def translated(bound: Bound) -> InC:
    """A plan on a CPU as instructions; NotInC with the reason if Python must walk it."""
    signature = bound.runner.signature
    if bound.plan.main.device != "cpu":
        raise NotInC("its memory is not the CPU's")
    if not isinstance(bound.runner.compiled.kernels, Kernels):
        raise NotInC("its kernels are not in C")
    why_not = why_not_in_c(bound)
    if why_not:
        raise NotInC(why_not)
    storages = bound.runner.compiled.unit.storages
    plan, layouts = bound.plan, bound.layouts
    return Translation(bound.shape, plan, layouts, signature, bound.values, storages).translated()


def why_not_in_c(bound: Bound) -> str:
    """What keeps a plan from being walked in C on any device; empty if nothing does."""
    if not has_interface():
        return "this torch does not have the C interface"
    if len(bound.plan.memory) > 1:
        return "its memory is not all on one device"
    if bound.runner.signature.objects:
        return "it is given objects that only Python knows"
    if bound.calls.broken:
        names = ", ".join(sorted(bound.calls.broken))
        return f"results that were not what their operators promise: {names}"
    return ""


class CHost:
    """A loaded host function with all that one call of it needs."""

    uses_again = True
    """Whether memory of results may be what an earlier run had."""
    alignment_of_inputs = 1
    """What the address of every input must be a multiple of; others are left to Python."""

    def __init__(
        self, bound: Bound, made: InC, library: Any, options: Options, kernels: int
    ) -> None:
        """`kernels` is the address of what runs them."""
        self.bound, self.made, self._library = bound, made, library
        self._error = library[ERROR]
        self._error.restype = ctypes.POINTER(ctypes.c_int64)
        self._steps = {
            k: (one.given, bound.calls.called_back(_call_step(bound.plan.steps[k])))
            for k, one in made.back.items()
        }
        self._raised = threading.local()
        self._back = BACK(self._called_back) if made.back else None
        back = 0 if self._back is None else address_of_function(self._back)
        signature = bound.runner.signature
        # What others keep for a backward, or what a backward makes, has peaks of its own.
        again = self.uses_again and signature.is_inference
        empty = empty_again(options) if again else None
        table = table_of(made, kernels, back, empty)
        self._table = (ctypes.c_int64 * len(table))(*table)
        self._positions = {name: k for k, name in signature.tensors}
        self._entrance = Entrance(self._entering(), options)
        self.enter = self._entrance.enter
        """Takes the arguments; gives what C made, None if Python must run, or a failure."""
        self._order = self._simple_results()
        self._givers = self._known_results() if self._order is None else None
        self.is_direct = self._order == []
        """Whether what C made are just the results, in order."""

    def _entering(self) -> Entering:
        made, at, layouts = self.made, self._positions, self.bound.layouts
        constants = self.bound.runner.signature.constants
        unseen = [name for name in at if name not in made.inputs]
        return Entering(
            host=address_of_function(self._library[ENTRY]),
            numbers=ctypes.addressof(self._table),
            inputs=[at.get(name, -1) for name in made.inputs],
            constants=[constants.get(name) for name in made.inputs],
            owned=[at[name] for name in made.owned],
            checked=[at[name] for name in unseen],
            layouts=[layouts[name][:2] for name in (*made.inputs, *unseen)],
            reach=[self._reach(name) for name in (*made.inputs, *unseen)],
            pools=[self._pool(name) for name in made.pools_of_inputs],
            results=len(made.results),
            calls_library=bool(made.function.functions or made.back),
            alignment=self.alignment_of_inputs,
        )

    def _reach(self, name: str) -> int:
        """The bytes from the first element of an input to the end of its last."""
        sizes, strides = self.bound.layouts[name][:2]
        if 0 in sizes:
            return 0
        last = sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
        return (last + 1) * self.bound.tensors.element(name).itemsize

    def _pool(self, name: str) -> tuple[int, int]:
        """An input that others lie in; a result in it is a tensor over its whole storage."""
        memory = self.bound.memory
        gives = any(n in self.bound.shape.outputs for n in memory.suballocations[name])
        return self.made.inputs.index(name), memory.lives[name].bytes if gives else -1

    def results(self, given: list[Any], found: Any) -> list[Any]:
        """What the graph gives, from what `enter` gave; raises what it says failed."""
        if not isinstance(found, list):
            self._fail(found)
        if self._givers is not None:
            return [give(given, found) for give in self._givers]
        if self._order is None:
            return self._other_results(given, found)
        return found if self.is_direct else [found[k] for k in self._order]

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

    def _known_results(self) -> list[Giver] | None:
        """How each result is had; None if some are views of what lies in others."""
        seen: set[str] = set()
        found: list[Giver] = []
        for result, give in zip(
            self.bound.runner.signature.results, self.bound.results, strict=True
        ):
            if isinstance(result, ObjectResult):
                return None
            if not isinstance(result, TensorResult):
                found.append(_always(give(RunMemory(0))))
                continue
            name = result.storage
            source = self._source(name)
            if source is None or (name in self.bound.memory.places and name in seen):
                return None
            if result.is_whole and name not in seen:
                seen.add(name)
            elif name in self.bound.memory.places:
                return None
            else:
                source = _seen_through(source, self.bound.viewer(result))
            found.append(source)
        return found

    def _source(self, name: str) -> Giver | None:
        """How the tensor of a storage is had: made, given, held, or lying in one of these."""
        place = self.bound.memory.places.get(name)
        if place is not None:
            home, element = self._source(place.pool), self.bound.tensors.element(name)
            if home is None or place.pool in self.bound.memory.places:
                return None
            if (
                place.pool not in self.bound.layouts
                or self.bound.tensors.element(place.pool) is not element
            ):
                return None
            return _part_of(home, self.bound.layouts[name], place.offset // element.itemsize)
        if name in self.made.results:
            return _item_of_made(self.made.results.index(name))
        if name in self._positions:
            return _item_of_given(self._positions[name])
        held = self.bound.runner.signature.constants.get(name)
        return None if held is None else _always(held)

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
            kernels = self.bound.runner.compiled.kernels
            assert isinstance(kernels, Kernels), "kernels in C say why they failed"
            kernels.fail(self._error()[:ERROR_LENGTH])
        if status == NO_MEMORY:
            raise RuntimeError("torch has no memory left for what a graph needs")
        raised, self._raised.error = getattr(self._raised, "error", None), None
        if raised is not None:
            raise raised
        step = self.bound.plan.steps[status - 1]
        target = getattr(step, "target", "a call")
        raise RuntimeError(f"torch's {target} failed in operation '{step.operation}'")


Giver = Callable[[list[Any], list[Any]], Any]
"""Gives a result, from the arguments and from what C made."""


def _always(value: Any) -> Giver:
    return lambda given, made: value


def _item_of_made(k: int) -> Giver:
    return lambda given, made: made[k]


def _item_of_given(position: int) -> Giver:
    return lambda given, made: given[position]


def _part_of(home: Giver, layout: PlacedLayout, start: int) -> Giver:
    sizes, strides = layout.sizes, layout.strides
    return lambda given, made: reinterpret(home(given, made), sizes, strides, start)


def _seen_through(source: Giver, look: Callable[[Any], Any]) -> Giver:
    return lambda given, made: look(source(given, made))


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


def address_of_function(function: Any) -> int:
    """Where a function that was loaded begins."""
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None, "a function that was loaded has an address"
    return found
