"""The passes, one file each; every file shows before and after."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.ir.spec import Stage
from treadle.schedule.pass_card import Pass
from treadle.schedule.passes.drop_dead_ops import drop_dead_ops
from treadle.schedule.passes.merge_loops import merge_loops
from treadle.schedule.passes.simplify_indices import simplify_indices

PIPELINE: tuple[Pass, ...] = (
    Pass("drop-dead-ops", drop_dead_ops, Stage.GROUPED),
    # Simplified indices let more loops be seen as contiguous, so they come first.
    Pass("simplify-indices", simplify_indices, Stage.GROUPED),
    Pass("merge-loops", merge_loops, Stage.GROUPED),
)

PASSES: Mapping[str, Pass] = {p.name: p for p in PIPELINE}
