"""A cost model for tests of single passes: the built-in machines, and no times of operations."""

from __future__ import annotations

from treadle.analysis.cost import ACCELERATOR
from treadle.analysis.devices import DEVICES, Device


class MachinesOnly:
    """Knows the figures of devices; a pass that asks for the time of an operation fails."""

    def op_ns(self, op: object) -> float:
        """Nothing: single passes compare machines, not operations."""
        raise AssertionError("this pass asked for the time of an operation")

    def machine(self, device: str) -> Device:
        """The built-in figures of a device."""
        return DEVICES["cpu" if device.startswith("cpu") else ACCELERATOR]

    def latency_ns(self, a: object, b: object) -> float:
        """Nothing, for the same reason."""
        raise AssertionError("this pass asked for a latency")


MACHINES = MachinesOnly()
