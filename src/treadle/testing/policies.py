"""A policy for tests: every pass does what it does to programs of any size."""

from __future__ import annotations

from dataclasses import replace

from treadle.analysis.devices import DEVICES, Device
from treadle.core.costs import CostModel
from treadle.schedule.policy import Policy

ANY_SIZE = Policy(
    "any_size",
    "whatever is legal pays, however small: for tests",
    peak_factor=None,
    small_kernel=1,
    points_per_core=1,
    mix_steps=1,
    mix_rows=1,
    mix_tallness=1,
    launch_share=0.0,
    split="always",
    split_chunk=1,
    split_points=1,
    share_out_points=1,
    mix_steps_on_cpu=1,
    mix_columns_on_cpu=1,
)
"""All thresholds at one, memory without a price."""


class FreeLaunches:
    """A cost model whose devices start kernels at no cost: what saves a byte saves time."""

    def __init__(self, base: CostModel, cores: int = 4) -> None:
        self.base, self.cores = base, cores

    def op_ns(self, op: object) -> float:
        """The time of an operation, as the model it is made of says."""
        return self.base.op_ns(op)

    def machine(self, device: str) -> Device:
        """A processor with free launches, whatever the device."""
        return replace(DEVICES["cpu"], name=device, launch_ns=0.0, cores=self.cores)

    def latency_ns(self, a: object, b: object) -> float:
        """The time between two operations, as the model it is made of says."""
        return self.base.latency_ns(a, b)
