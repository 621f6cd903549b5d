"""The two questions that passes ask a cost model; the answers live in higher layers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class CostModel(Protocol):
    """Answers in nanoseconds, always the same for the same program.

    Operations are typed `object` because the layer that defines them stands above this one.
    """

    def op_ns(self, op: object) -> float:
        """Return how long `op` runs on its device."""
        ...

    def latency_ns(self, a: object, b: object) -> float:
        """Return how long after the end of `a` its result can be used by `b`."""
        ...
