"""The passes, one file each; every file shows before and after."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.core.options import Options
from treadle.ir.spec import Stage
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes.bucket_collectives import bucket_collectives
from treadle.schedule.passes.build_kernels import build_kernels
from treadle.schedule.passes.combine_launches import combine_launches
from treadle.schedule.passes.drop_dead_ops import drop_dead_ops
from treadle.schedule.passes.fuse import fuse
from treadle.schedule.passes.lower_peak import lower_peak
from treadle.schedule.passes.merge_duplicates import merge_duplicates
from treadle.schedule.passes.merge_loops import merge_loops
from treadle.schedule.passes.mix_orders import mix_orders
from treadle.schedule.passes.name_kernels import name_kernels
from treadle.schedule.passes.order_collectives import order_collectives
from treadle.schedule.passes.place_parts import place_parts
from treadle.schedule.passes.recompute import recompute
from treadle.schedule.passes.schedule_loops import schedule_loops
from treadle.schedule.passes.simplify_indices import simplify_indices
from treadle.schedule.passes.split_collectives import split_collectives
from treadle.schedule.passes.split_reductions import split_reductions
from treadle.schedule.passes.state_parameters import state_parameters

PARTS = Pass("split-collectives", split_collectives, Stage.GROUPED, moves_collectives=True)
BUCKETS = Pass("bucket-collectives", bucket_collectives, Stage.GROUPED, moves_collectives=True)

SCHEDULING: tuple[Pass, ...] = (
    Pass("drop-dead-ops", drop_dead_ops, Stage.GROUPED),
    # Simplified indices let more loops be seen as contiguous, so they come first.
    Pass("simplify-indices", simplify_indices, Stage.GROUPED),
    Pass("merge-duplicates", merge_duplicates, Stage.GROUPED),
    Pass("recompute", recompute, Stage.GROUPED),
    # Producers that nobody reads any more.
    Pass("drop-dead-ops", drop_dead_ops, Stage.GROUPED, only_after="recompute"),
    Pass("split-reductions", split_reductions, Stage.GROUPED),
    Pass("drop-dead-ops", drop_dead_ops, Stage.GROUPED, only_after="split-reductions"),
    # Copies that are gone leave less to put in order.
    Pass("place-parts", place_parts, Stage.GROUPED),
    # A low peak to begin with is what fusion must keep.
    Pass("lower-peak", lower_peak, Stage.GROUPED),
    Pass("fuse", fuse, Stage.GROUPED),
    Pass("mix-orders", mix_orders, Stage.GROUPED),
    Pass("combine-launches", combine_launches, Stage.GROUPED),
    # The last word on the order: what comes after moves nothing.
    Pass("order-collectives", order_collectives, Stage.GROUPED, moves_collectives=True),
    Pass("name-kernels", name_kernels, Stage.GROUPED),
)
"""What is decided: which operations are one kernel, and their order."""

KERNELS: tuple[Pass, ...] = (
    Pass("build-kernels", build_kernels, Stage.KERNELS),
    # Per kernel: all accesses of its nests must agree that two loops are one.
    Pass("merge-loops", merge_loops, Stage.GROUPED),
    Pass("schedule-loops", schedule_loops, Stage.GROUPED, rounds=True),
    Pass("state-parameters", state_parameters, Stage.GROUPED),
)
"""What is done about it: the kernels themselves."""

PIPELINE: tuple[Pass, ...] = (*SCHEDULING, *KERNELS)

PASSES: Mapping[str, Pass] = {p.name: p for p in (PARTS, BUCKETS, *PIPELINE)}


def message_passes(options: Options) -> tuple[Pass, ...]:
    """What is done to messages before the pipeline, if it is asked for."""
    asked = {PARTS: options.split, BUCKETS: options.bucket is not None}
    return tuple([p for p, is_asked in asked.items() if is_asked])
