"""The passes, one file each; every file shows before and after."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.ir.spec import Stage
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes.drop_dead_ops import drop_dead_ops
from treadle.schedule.passes.fuse import fuse
from treadle.schedule.passes.merge_duplicates import merge_duplicates
from treadle.schedule.passes.merge_loops import merge_loops
from treadle.schedule.passes.recompute import recompute
from treadle.schedule.passes.simplify_indices import simplify_indices

DROP_DEAD = Pass("drop-dead-ops", drop_dead_ops, Stage.GROUPED)
PIPELINE: tuple[Pass, ...] = (
    DROP_DEAD,
    # Simplified indices let more loops be seen as contiguous, so they come first.
    Pass("simplify-indices", simplify_indices, Stage.GROUPED),
    Pass("merge-duplicates", merge_duplicates, Stage.GROUPED),
    Pass("fuse", fuse, Stage.GROUPED),
    # After fusion: what is read from another kernel costs memory traffic, what is fused does not.
    Pass("recompute", recompute, Stage.GROUPED),
    DROP_DEAD,
    Pass("merge-loops", merge_loops, Stage.GROUPED),
)

PASSES: Mapping[str, Pass] = {p.name: p for p in PIPELINE}
