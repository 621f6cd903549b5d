"""A pair of kernels that might become one, as the rules see it; `first` runs before `second`."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.core.costs import CostModel
from treadle.ir.program import Program
from treadle.kernel.space import Space, joined
from treadle.schedule.kernels import KernelDraft
from treadle.schedule.policy import Policy


@dataclass(slots=True)
class Pair:
    """Two kernels and the space they would share (None if there is none)."""

    program: Program
    policy: Policy
    cost: CostModel
    first: KernelDraft
    second: KernelDraft
    shared: tuple[str, ...]
    space: Space | None

    @classmethod
    def of(
        cls,
        program: Program,
        policy: Policy,
        cost: CostModel,
        first: KernelDraft,
        second: KernelDraft,
        shared: tuple[str, ...],
    ) -> Pair:
        """The pair with its common space."""
        before_call = first.call is None and second.call is not None
        space = second.space if before_call else joined(first.space, second.space, policy.nests)
        return cls(program, policy, cost, first, second, shared, space)

    @property
    def is_on_gpu(self) -> bool:
        """Whether programs of a GPU would run it."""
        return self.first.device.partition(":")[0] == "cuda"

    @property
    def is_prologue(self) -> bool:
        """Whether loops come before a call: they run where the call reads, in its space."""
        return self.first.call is None and self.second.call is not None
