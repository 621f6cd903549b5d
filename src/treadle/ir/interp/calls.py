"""What the implementation of an opaque call sees of the program, and how it answers.

    def softmax(ctx: CallContext, op: Call) -> None:
        x, axis = ctx.args                       # buffers as arrays, literals as Python values
        e = np.exp(x - x.max(axis, keepdims=True))
        ctx.write(op.writes[0], e / e.sum(axis, keepdims=True))

    run(program, inputs, externs={"mylib.softmax": softmax})

`from_arrays` makes the same out of a plain function of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from treadle.index import Expr
from treadle.ir.body import Literal
from treadle.ir.interp.bindings import number
from treadle.ir.interp.dtypes import Array, convert, dtype_of
from treadle.ir.interp.errors import RunError
from treadle.ir.interp.memory import Memory
from treadle.ir.program import Arg, Call, Ref
from treadle.ir.types import BufferKind, DType


class CallContext:
    """The arguments of one call, resolved, and the way to write its results."""

    def __init__(self, op: Call, memory: Memory) -> None:
        self.op = op
        self.written: set[str] = set()
        self._memory = memory

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments: buffers as arrays in their shape, literals as values, tuples of these."""
        return tuple(self.resolve(a) for a in self.op.args)

    @property
    def attrs(self) -> dict[str, Any]:
        """The named arguments, resolved in the same way."""
        return {name: self.resolve(a) for name, a in self.op.attrs}

    @property
    def sizes(self) -> Mapping[str, int]:
        """The run-time sizes by name."""
        return {s.name: n for s, n in self._memory.sizes.items()}

    def shape_of(self, name: str) -> tuple[int, ...]:
        """The shape of a buffer."""
        return self._memory.layout(name).sizes

    def dtype_of(self, name: str) -> DType:
        """The element type of a buffer."""
        return self._memory.buffer(name).dtype

    def kind_of(self, name: str) -> BufferKind:
        """Whether a buffer is a tensor, a tuple or a token."""
        return self._memory.buffer(name).kind

    def resolve(self, arg: Arg) -> Any:
        """An argument as Python sees it: an array, a literal's value, a size, a tuple of these."""
        if isinstance(arg, Ref):
            return self.read(arg.buffer)
        if isinstance(arg, Literal):
            return arg.value
        if isinstance(arg, Expr):
            return number(arg, self._memory.sizes, f"call '{self.op.name}'")
        return tuple(self.resolve(a) for a in arg)

    def read(self, name: str) -> Any:
        """A copy of a buffer in its shape (of a tuple buffer: the tuple)."""
        if name not in self.op.writes:  # a target may stand among the arguments, still empty
            self._memory.require(name, self.op.name)
        if self.kind_of(name) is BufferKind.TUPLE:
            return self._memory.tuples.get(name, ())
        return self._memory.tensor(name).copy()

    def write(self, name: str, value: Array | Sequence[Array]) -> None:
        """Fill a buffer, converting to its element type; a tuple buffer takes several arrays."""
        if name not in (*self.op.writes, *self.op.mutates):
            message = f"call '{self.op.name}' may not write '{name}'"
            notes = [f"it says it writes: {', '.join((*self.op.writes, *self.op.mutates))}"]
            raise RunError(message, code="RUN010", notes=notes)
        if self.kind_of(name) is BufferKind.TUPLE:
            self._memory.tuples[name] = tuple(np.array(x) for x in value)
            self._memory.define(name)
        else:
            fill(self._memory, name, value, f"call '{self.op.name}'")
        self.written.add(name)

    def write_all(self, *values: Array) -> None:
        """Fill everything the call writes, in order (what it mutates, where it writes nothing)."""
        targets = self.op.writes or self.op.mutates
        if len(values) != len(targets):
            message = f"call '{self.op.name}' gave {len(values)} results for {len(targets)} buffers"
            raise RunError(message, code="RUN010")
        for name, value in zip(targets, values, strict=True):
            self.write(name, value)


ExternFn: TypeAlias = Callable[[CallContext, Call], None]


def from_arrays(function: Callable[..., Any]) -> ExternFn:
    """An implementation from a function of the arguments that returns one array or a tuple."""

    def implementation(ctx: CallContext, op: Call) -> None:
        results = function(*ctx.args, **ctx.attrs)
        kinds = [ctx.kind_of(n) for n in op.writes or op.mutates]
        if kinds == [BufferKind.TUPLE] or not isinstance(results, tuple):
            results = (results,)
        ctx.write_all(*results)

    return implementation


def fill(memory: Memory, name: str, value: Any, who: str) -> None:
    """Write an array into a buffer of exactly its shape, converted to its element type."""
    array, target = np.asarray(value), memory.tensor(name)
    if array.shape != target.shape:
        message = f"{who} gave buffer '{name}' shape {list(array.shape)}"
        raise RunError(message, code="RUN010", notes=[f"its shape is {list(target.shape)}"])
    if dtype_of(array) is None:
        message = f"{who} gave buffer '{name}' elements of type {array.dtype}"
        raise RunError(message, code="RUN010", notes=["Treadle has no such element type"])
    target[...] = convert(array, memory.buffer(name).dtype)
    memory.define(name)
