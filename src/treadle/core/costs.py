"""The questions that passes ask a cost model; the answers live in higher layers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Machine(Protocol):
    """The figures of a device that decisions are made by."""

    @property
    def cores(self) -> int:
        """Return how many independent points run at once."""
        ...

    @property
    def vector_gflops(self) -> float:
        """Return the peak of arithmetic outside matrix units, in f32."""
        ...

    @property
    def launch_ns(self) -> float:
        """Return what one more kernel costs on top of its work."""
        ...

    @property
    def cache_bytes(self) -> int:
        """Return how much the last-level cache holds."""
        ...

    @property
    def gigabytes_per_second(self) -> float:
        """Return the bandwidth of main memory."""
        ...


@runtime_checkable
class CostModel(Protocol):
    """Answers in nanoseconds, always the same for the same program.

    Operations are typed `object` because the layer that defines them stands above this one.
    """

    def op_ns(self, op: object) -> float:
        """Return how long `op` runs on its device."""
        ...

    def machine(self, device: str) -> Machine:
        """Return the figures of the device that programs call `device` (cpu, cuda:0)."""
        ...

    def latency_ns(self, a: object, b: object) -> float:
        """Return how long after the end of `a` its result can be used by `b`."""
        ...
