"""Policies are data: what fusion may do, and what it must not cost."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.core.context import Ctx
from treadle.core.errors import UsageError
from treadle.core.suggest import suggestion_notes


@dataclass(frozen=True)
class Policy:
    """The limits and prices of one way to schedule."""

    name: str
    doc: str
    peak_factor: float | None = 1.02
    """The peak may reach this multiple of that of the program as given; None: no limit."""
    peak_price: float = 1.0
    """Bytes of traffic that must be saved for every byte by which the peak rises above the lowest
    that was found; a launch counts as the bytes that could be moved meanwhile."""
    never_raise: bool = False
    """No single fusion may raise the peak of the moment at all."""
    max_members: int = 64
    max_buffers: int = 40
    """Different buffers that one kernel may touch: each is a pointer, and registers."""
    max_statements: int = 1500
    max_levels: int = 3
    """Levels of a kernel's space: 2 is a reduction, 3 one with reductions of blocks inside."""
    nests: bool = True
    """Pointwise loops over rows may run in a kernel over the rows' elements, once for each row."""
    small_kernel: int = 1 << 17
    """Kernels of fewer steps need not fill the device: their launch costs more."""
    points_per_core: int = 2
    """Independent points per core that a large kernel must keep."""
    reindex: bool = True
    """Walk a loop in another order if that lets it fuse."""
    late: bool = True
    """Run operations late before fusing, which leaves room under the peak."""
    max_moves: int = 64
    """How many operations in between may be moved out of the way of one fusion."""
    user_epilogues: bool = False
    """Let loops follow a user's kernel element by element in its launch."""
    combine: int = 1024
    """How many independent kernels may share one launch; 1: none."""
    mix_orders: bool = True
    """Reductions of rows and of columns over the same data in one kernel."""
    mix_steps: int = 5 << 20
    """Elements that such a kernel must read at least: small data stays in the cache anyway."""
    mix_rows: int = 4096
    """Rows that it must have, to be shared between cores."""
    mix_columns: int = 16384
    """The longest row that it can keep."""
    mix_tallness: int = 2
    """Rows that it must have for each column."""
    mix_steps_on_cpu: int = 1 << 16
    """The same on a CPU: what it reads twice has left the first cache by then."""
    mix_columns_on_cpu: int = 256
    """The fewest columns there: with fewer, sums of columns stay in registers anyway."""
    launch_share: float = 0.01
    """The part of a kernel's time that its launch must be for the launch to be worth sharing."""
    split: str = "gpu"
    """Where reductions with few points become two stages: `never`, `gpu`, `always`."""
    split_chunk: int = 256
    """Steps that a block of the first stage must have."""
    split_points: int = 8
    """Points for each core that the first stage should have."""
    share_out_points: int = 512
    """Points of a reduction from which several programs of a GPU work on it."""
    merge_duplicates: bool = True
    recompute: bool = True
    """Compute cheap values again where they are read."""
    recompute_statements: int = 6
    """Statements of a producer that are still cheap to repeat."""
    place_parts: bool = True
    """Compute what is copied into a part of a tensor there."""
    lower_peak: bool = True
    """Look for an order with a lower peak."""
    search: str = "queue"
    """`queue`: best pair first, to a fixpoint; `rounds`: the peer's rounds."""


POLICIES: dict[str, Policy] = {
    p.name: p
    for p in (
        Policy("balanced", "memory is spent where it saves traffic, up to the given peak + 2 %"),
        Policy("fast", "fewest bytes moved, the peak may grow by a quarter", peak_factor=1.25,
               peak_price=0.0),
        Policy("memory", "no fusion that raises the peak, no shared launches", never_raise=True,
               combine=1, split="never"),
        Policy("inductor", "the rules of TorchInductor's scheduler, for comparison",
               peak_factor=None, max_buffers=10**6, max_statements=10**9, max_levels=2,
               nests=False, small_kernel=1 << 62, max_moves=10**6, late=False, combine=1,
               recompute=False, place_parts=False, lower_peak=False, mix_orders=True,
               merge_duplicates=False, search="rounds", split="never"),
    )
}  # fmt: skip


def policy_of(ctx: Ctx) -> Policy:
    """The policy of a compilation: the one in its context, else the one its options name."""
    return ctx.policy if isinstance(ctx.policy, Policy) else policy_named(ctx.options.policy)


def policy_named(name: str) -> Policy:
    """The policy called `name`, or a UsageError that lists them."""
    if name not in POLICIES:
        notes = suggestion_notes(name, list(POLICIES), "policies")
        raise UsageError(f"unknown policy '{name}'", code="OPT002", notes=notes)
    return POLICIES[name]
