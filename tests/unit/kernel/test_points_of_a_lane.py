"""How many points of pointwise work a lane of a GPU takes."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.context import Ctx
from treadle.core.journal import Journal
from treadle.core.options import Options
from treadle.ir.build import ProgramBuilder
from treadle.ir.loop_schedule import plan_loops
from treadle.ir.numerics import TORCH_ON_GPU
from treadle.ir.program import Nest
from treadle.schedule.passes import KERNELS
from treadle.schedule.pipeline import run_pipeline
from treadle.testing.costs import MACHINES

GPU = "cuda:0"
MANY = 1 << 20


def points_of_a_lane(step: int, places: Sequence[int]) -> float:
    """For sums of what lies at some places from `step` times the point on."""
    b = ProgramBuilder("sums", numerics=TORCH_ON_GPU)
    x = b.input("x", "f32", [step * MANY + max(places)], device=GPU)
    y = b.output("y", "f32", [MANY], device=GPU)
    with b.loop("sums", [MANY], device=GPU) as k:
        (i,) = k.vars
        total = k.load(x, i * step)
        for n in places:
            total = total + k.load(x, i * step + n)
        k.store(y, (i,), total)
    built = run_pipeline(b.build(), Ctx(Options(), MACHINES, Journal()), KERNELS)
    (nest,) = built.leaves
    assert isinstance(nest, Nest)
    plan, tile = plan_loops(nest.body, nest.schedule), 1
    for axis in plan.tiles:
        tile *= axis.size
    return tile / (32 * plan.knob("warps", 0))


def test_neighbours_in_memory_are_a_lanes_as_far_as_wide_loads_go() -> None:
    assert points_of_a_lane(1, [1, 2, 3]) == 8


def test_a_lane_takes_fewer_points_where_these_are_apart_in_memory() -> None:
    assert points_of_a_lane(2, [1]) == 2


def test_a_lane_takes_one_point_where_each_has_many_loads() -> None:
    assert points_of_a_lane(1, range(1, 40)) == 1
