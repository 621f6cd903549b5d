"""How long scheduled nests take on a GPU: what is launched, by the grid and tiles it was given.

    time = start + dependent statements + reductions + the longest of
             bytes / bandwidth       of the cache, if all of it fits there, or of memory
             statements / issue      of all programs, each at the points of its tiles
             waves * steps * turn    programs that walk step by step, as many as run at once

The figures are shares of a device's own (`devices.py`), so that a calibration file moves them. They
were fitted to the kernels of twelve workloads on an H200 (`bench/results/gpu_kernels.json`,
`bench/fit_gpu_time.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from treadle.analysis.devices import Device
from treadle.index import hint
from treadle.ir.body import Body, Numbered, operands_of
from treadle.ir.loop_schedule import Binding, plan_loops
from treadle.ir.program import Nest
from treadle.ir.reduced import levels_of

START = 0.62
"""Of the time of a launch: what one costs in a recording."""
MEMORY_SHARE, CACHE_SHARE = 0.81, 1.57
"""Of the bandwidth of memory: what kernels reach there, and in the cache."""
CACHE_ROOM = 0.88
"""Of the cache: how much of it holds what one launch touches, from one launch to the next."""
ISSUED = 5.9
"""Statements of 32 lanes that a core begins in a nanosecond."""
RUNNING = 7.7
"""Warps of a core that get ahead at once where each waits for its loads."""
TURN_NS, DEPENDENT_NS, MOST_DEPENDENT, REDUCTION_NS = 240.0, 5.5, 73.0, 250.0
"""A step of a walk; a statement that waits for another, and how many do; a reduction in a tile."""
FREE: Mapping[str, float] = dict.fromkeys(("constant", "get", "index", "yield"), 0.0)
LATENCIES: Mapping[str, float] = {
    **FREE, "load": 2.0, "store": 2.0, "reduce": 10.0, "truediv": 6.0, "reciprocal": 6.0,
    "sqrt": 6.0, "rsqrt": 6.0, "log": 6.0, "exp": 4.0, "exp2": 4.0, "sigmoid": 14.0, "tanh": 24.0,
    "erf": 24.0, "gelu_tilt": 28.0, "gelu_gate": 18.0, "gelu_slope": 20.0, "sin": 30.0,
    "cos": 30.0, "pow": 40.0,
}  # fmt: skip
"""What a statement that waits for the one before it takes, as against a plain one."""
INSTRUCTIONS: Mapping[str, float] = {
    **LATENCIES, "load": 2.0, "store": 1.0, "cast": 0.5, "reduce": 8.5, "truediv": 3.0,
    "exp": 2.0, "sigmoid": 6.0, "tanh": 10.0, "erf": 8.0, "gelu_tilt": 10.0,
    "gelu_gate": 4.0, "gelu_slope": 5.0,
}  # fmt: skip
"""Instructions of each lane; loads and stores are of several elements, conversions of two."""
LANES = 32
AGAIN = 1.4
"""What moving bytes a second time makes of them, if they are still in the cache."""
BUSY, SHARING_BUSY, SHARING = 4, 8, 32
"""Programs of each core that keep a device busy; nests that share a launch if so, and if not."""


@dataclass(frozen=True)
class NestShape:
    """What decides how long one launch of a nest takes."""

    programs: int
    warps: int
    points: float
    """Points of a tile that each lane has."""
    turns: int
    """Tiles that a program goes through one after the other."""
    at_point: float
    """Instructions at every point of a tile."""
    once: float
    """Instructions once for a program."""
    depth: float
    """Statements, the costly ones several times: what a lane does one after the other."""
    reductions: int
    bytes: float


def shape_of(nest: Nest, moved: float) -> NestShape:
    """The shape of a nest that has a schedule and moves some bytes."""
    plan, extents = plan_loops(nest.body, nest.schedule), dict(nest.body.space.items())
    programs, tile, turns = 1, 1, 1
    for axis in plan.axes:
        extent = max(hint(extents[axis.loop]), 1)
        blocks = -(-extent // max(axis.size, 1))
        if axis.binding is Binding.GRID:
            programs *= blocks
        elif axis.binding is Binding.TILE:
            tile *= axis.size if axis.size > 1 else 1 << (extent - 1).bit_length()
        else:
            turns *= blocks
    kinds = [str(at.stmt.attr("kind")) for at in nest.body.walk() if at.stmt.op == "reduce"]
    if turns > 1 and "welford_combine" in kinds:
        turns *= 2  # the mean first, then what is off it: the second walk finds it in the cache
        moved *= AGAIN
    warps = plan.knob("warps", 4)
    at_point, once = _instructions(nest.body)
    points = max(tile / (LANES * warps), 1.0)
    depth = sum(_price(at, LATENCIES) for at in nest.body.walk())
    return NestShape(programs, warps, points, turns, at_point, once, depth, len(kinds), moved)


def _instructions(body: Body) -> tuple[float, float]:
    """At every point, and once for each row."""
    varies, _ = levels_of(body)
    inner = frozenset(body.reduce.vars)
    at_point = once = 0.0
    for at in body.walk():
        price = _price(at, INSTRUCTIONS)
        if (
            not inner
            or at.stmt.op == "reduce"
            or at.number in varies
            or at.depth
            or (
                at.stmt.op == "store"
                and (inner & at.stmt.address.free or operands_of(at.stmt) & varies)
            )
        ):
            at_point += price
        else:
            once += price
    return at_point, once


def _price(at: Numbered, prices: Mapping[str, float]) -> float:
    return prices.get(at.stmt.op, 1.0)


def launch_ns(one: NestShape, device: Device, count: int = 1) -> float:
    """Predicted nanoseconds of one launch; of `count` like nests, if they share it."""
    moved = one.bytes * count
    share = CACHE_SHARE if moved < CACHE_ROOM * device.cache_bytes else MEMORY_SHARE
    memory = moved / (device.gigabytes_per_second * share)
    warps = one.programs * one.warps * count
    each = one.turns * one.points * one.at_point + one.once
    issue = warps * each / (ISSUED * device.cores)
    waves = max(warps / (RUNNING * device.cores), 1.0)
    walk = waves * one.turns * TURN_NS if one.turns > 1 else 0.0
    waits = min(one.depth, MOST_DEPENDENT) * DEPENDENT_NS
    fixed = START * device.launch_ns + waits + one.reductions * REDUCTION_NS
    return fixed + max(memory, issue, walk)


def scheduled_ns(nests: Sequence[tuple[Nest, float]], device: Device, shares: bool) -> float:
    """Predicted nanoseconds of nests and the bytes they move; like ones share launches if so."""
    shapes = [shape_of(nest, moved) for nest, moved in nests]
    if not shares:
        return sum(launch_ns(one, device) for one in shapes)
    total = 0.0
    for _, group in groupby(sorted(shapes, key=repr)):
        alike = list(group)
        most = SHARING_BUSY if alike[0].programs >= BUSY * device.cores else SHARING
        for k in range(0, len(alike), most):
            total += launch_ns(alike[0], device, len(alike[k : k + most]))
    return total
