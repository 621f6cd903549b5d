"""How a lowering says which ATen overloads it is for.

    @lowers("aten.relu.default")
    def relu(c: Node, x: Tensor) -> Tensor:
        return c.pointwise(lambda k, v: k.relu(v), x)

The function takes the node's context and then the operator's own arguments, by the names of its
schema: tensors as `Lazy` or `Realised`, numbers as Python numbers (run-time sizes as index
expressions), lists as lists, None as None. It returns one value, or a tuple for operators with
several results. Raising `NotLowered("why")` makes the node a call of the operator itself.

A module of lowerings may also hold a mapping `ROWS` from overload to lowering, for those that are
made rather than written. `table.py` lists the modules and puts their entries together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

Lowering: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Lowering)

MARK = "_lowers"


def lowers(*overloads: str) -> Callable[[F], F]:
    """Mark a function as the lowering of these overloads (`aten.add.Tensor`)."""

    def mark(function: F) -> F:
        setattr(function, MARK, overloads)
        return function

    return mark


def collect(*modules: ModuleType) -> Mapping[str, Lowering]:
    """Every lowering of the modules by overload; one overload has one lowering."""
    table: dict[str, Lowering] = {}
    for module in modules:
        for overload, function in _entries(module):
            if overload in table:
                raise ValueError(f"{overload} has two lowerings, one in {module.__name__}")
            table[overload] = function
    return table


def _entries(module: ModuleType) -> list[tuple[str, Lowering]]:
    found = list(getattr(module, "ROWS", {}).items())
    for value in vars(module).values():
        if getattr(value, "__module__", None) == module.__name__:
            found += [(overload, value) for overload in getattr(value, MARK, ())]
    return found
