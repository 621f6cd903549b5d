"""Library calls of a package: what a host in C says, with expressions of sizes for numbers.

A package has no Python to go back to: a call that the C interface lacks is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treadle.codegen.host_c.instructions import Instruction
from treadle.core.errors import UsageError
from treadle.index import Expr, Symbol, hint
from treadle.ir.program import Call, Ref
from treadle.ir.types import Layout
from treadle.runtime.hosts.torch_c_library import MAKING, function_for
from treadle.runtime.hosts.torch_c_translate import NotInC, Translation
from treadle.runtime.launch_plan import CallStep, LaunchPlan
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.library_calls import Hole
from treadle.runtime.packages.pack import MOST_FUNCTIONS, REFUSED, Calls, Packing
from treadle.runtime.signature import Signature

SHOWN = 5
"""How many calls that cannot be made are named."""


def calls_in_c(
    shape: LaunchShape, plan: LaunchPlan, signature: Signature, place_of: Callable[[str], str]
) -> Calls:
    """How the calls of a graph become instructions; `place_of` gives an operation's line.

    All that cannot are refused at once, by operator and line, before anything is written.
    """
    writer = _SizedCalls(shape, plan, signature)
    _refuse(writer, place_of)
    return Calls(frozenset(writer.adopted), writer.written)


def _refuse(writer: _SizedCalls, place_of: Callable[[str], str]) -> None:
    found: dict[tuple[str, str], str] = {}
    for step in writer.shape.steps:
        if not isinstance(step, CallStep):
            continue
        op = writer.shape.program.op_by_name[step.operation]
        call = writer.signature.calls.get(step.operation)
        assert isinstance(op, Call), f"'{op.name}' is no call"
        if call is None or function_for(call.function) is None or op.mutates:
            found.setdefault((step.target, place_of(op.name)), "the C interface of torch lacks it")
    if found:
        raise refusal([(target, place, why) for (target, place), why in found.items()])


def refusal(rows: Sequence[tuple[str, str, str]]) -> UsageError:
    """The one error about operators that need Python: (operator, line, why)."""
    words = [f"{target} (at {place})" if place else target for target, place, _ in rows[:SHOWN]]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    message = f"the graph calls what needs Python: {', '.join(words)}{more}"
    notes = list(dict.fromkeys(f"{target}: {why}" for target, _, why in rows[:SHOWN]))
    return UsageError(message, code=REFUSED, notes=notes)


class _SizedCalls(Translation):
    """Writes calls for all sizes at once: numbers are expressions in the package's table."""

    most_functions = MOST_FUNCTIONS

    def __init__(self, shape: LaunchShape, plan: LaunchPlan, signature: Signature) -> None:
        layouts: Any = {b.name: b.layout for b in shape.program.buffers}
        values: Mapping[Symbol, int] = {s: hint(s) for s in shape.program.sizes}
        super().__init__(shape, plan, layouts, signature, values, ())
        self.adopted = self._made_by_calls()
        self._packing: Packing | None = None

    def _made_by_calls(self) -> set[str]:
        found: set[str] = set()
        for step in self.shape.steps:
            if isinstance(step, CallStep):
                call = self.signature.calls.get(step.operation)
                if call is not None and call.function in MAKING:
                    found.update(step.writes)
        return found & self.memory.lives.keys()

    def written(self, k: int, step: CallStep, packing: Packing) -> list[Instruction]:
        """One call, with the views it needs before it."""
        if self._packing is None:
            self._packing, self.slots, self.handles = packing, packing.slots, packing.handles
            self.functions = packing.functions
        op = self.shape.program.op_by_name[step.operation]
        assert isinstance(op, Call), f"'{op.name}' is no call"
        self.code = []
        try:
            called = self._library_call(k, op, self.signature.calls[op.name])
        except NotInC as e:
            raise refusal([(step.target, _line(op), str(e))]) from None
        packing.views = len(self.views)
        return [*self.code, called]

    def at(self, *values: Any) -> int:
        """Where some numbers lie in the package's table."""
        assert self._packing is not None, "calls are written into a package"
        return self._packing.numbers.at(*values)

    def _whole(self, value: Any, op: Call) -> Any:
        if isinstance(value, Hole):
            given: Any = op.args[value.position]
            if isinstance(given, Ref):
                raise NotInC(f"a tensor stands for a number in '{op.target}'")
            return given
        return super()._whole(value, op)

    def _number(self, value: Any, op: Call) -> float:
        if isinstance(value, Hole):
            given: Any = op.args[value.position]
            if isinstance(given, Expr) and given.value is None:
                raise NotInC(f"a number of '{op.target}' depends on the sizes of inputs")
        return super()._number(value, op)

    def _seen_as(self, layout: Layout) -> Any:
        return layout


def _line(op: Call) -> str:
    lines = [origin for origin in op.origins if ":" in origin and not origin.startswith("aten")]
    return lines[-1] if lines else ""
