"""The one planner of runs: from a lowered program and run-time sizes to a launch plan.

    host = lower(program)
    shape = LaunchShape(host)                        once: steps and lives
    plan = plan_launches(shape, {"n": 128})          for each set of sizes: bytes and places

Lives come from the liveness engine, places from the memory planner or from the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from treadle.analysis.cost import cost_model
from treadle.core.context import Ctx
from treadle.index import Symbol, hint
from treadle.ir.placed_layout import PlacedLayout
from treadle.ir.program import Program
from treadle.runtime.arena import Placement, plan_layout, stacked_layout
from treadle.runtime.device_memory import DeviceMemory, Role, StorageLife
from treadle.runtime.launch_plan import LaunchPlan, RecordedSteps
from treadle.runtime.launch_shape import LaunchShape
from treadle.runtime.layouts_at_sizes import layouts_at
from treadle.runtime.place_storages import WAYS, in_place_chains, place_storages
from treadle.runtime.recorded_parts import LEAST_NS, in_parts, may_gain

Lives: TypeAlias = Mapping[str, StorageLife]
PlaceDevice: TypeAlias = Callable[[str, Lives], DeviceMemory]
"""Places the storages of one device."""


def sizes_of(program: Program, known: Mapping[str, int] | None = None) -> dict[Symbol, int]:
    """The run-time sizes of a program; those not given have their likely value."""
    given = known or {}
    return {s: given.get(s.name, hint(s)) for s in program.sizes}


def plan_launches(
    shape: LaunchShape,
    sizes: Mapping[str, int] | None = None,
    *,
    ctx: Ctx | None = None,
    like: LaunchPlan | None = None,
    layouts: Mapping[str, PlacedLayout] | None = None,
    at_once: bool = False,
) -> LaunchPlan:
    """The plan of a run with as low a peak as a short search finds.

    `like` is a plan for other sizes: what was best there is used again, without a search.
    `at_once`: the run allocates all before its first step, as one that is replayed does; a long
    run that would hold much less otherwise is cut into parts (see `recorded_parts`).
    """
    known = {} if like is None else {one.device: one for one in like.memory}
    is_long = at_once and ctx is not None and _takes_long(shape.program, ctx)

    def place(device: str, lives: Lives) -> DeviceMemory:
        whole = place_storages(shape, device, lives, ctx, known.get(device), at_once)
        if not is_long or not may_gain(whole):
            return whole
        ways = [replace(whole, hosts=hosts) for hosts in WAYS]
        tried = [place_storages(shape, device, lives, ctx, like) for like in ways]
        return in_parts(whole, min(tried, key=lambda one: one.peak_bytes)) or whole

    return _planned(shape, sizes, place, layouts)


def _takes_long(program: Program, ctx: Ctx) -> bool:
    """Whether a run keeps its device busy for so long that a host can start parts of it."""
    total, cost = 0.0, cost_model(program, ctx.options)
    for op in program.ops:
        total += cost.op_ns(op)
        if total >= LEAST_NS:
            return True
    return False


def plan_as_told(
    shape: LaunchShape, sizes: Mapping[str, int] | None, placement: Placement | None
) -> LaunchPlan:
    """The plan of a run whose storages lie as the caller says; None: none share memory."""

    def place(device: str, lives: Lives) -> DeviceMemory:
        temps = {n: x.bytes for n, x in lives.items() if x.role in (Role.TEMP, Role.PINNED)}
        where = stacked_layout(temps) if placement is None else plan_layout(placement, temps)
        chains = in_place_chains(shape, lives)
        return DeviceMemory(
            device, shape.end, lives, chains, where.places, where.total, where.total
        )

    return _planned(shape, sizes, place, None)


def _planned(
    shape: LaunchShape,
    sizes: Mapping[str, int] | None,
    place: PlaceDevice,
    layouts: Mapping[str, PlacedLayout] | None,
) -> LaunchPlan:
    values = sizes_of(shape.program, sizes)
    placed = layouts_at(shape.program, values) if layouts is None else layouts
    lives = {x.storage: x for x in shape.lives(placed, values)}
    memory = [place(device, rows) for device, rows in _by_device(lives)]
    cut = memory[0].parts if len(memory) == 1 and not memory[0].at_once else ()
    recordings = tuple([RecordedSteps(*part) for part in cut]) or shape.recordings
    return LaunchPlan(
        name=shape.program.name,
        steps=shape.steps,
        memory=tuple(memory),
        streams=shape.streams,
        recordings=recordings,
        sizes={s.name: n for s, n in values.items()},
    )


def _by_device(lives: Lives) -> Iterator[tuple[str, Lives]]:
    """The lives of each device, the one with the most bytes first."""
    total: dict[str, int] = {}
    for x in lives.values():
        total[x.device] = total.get(x.device, 0) + x.bytes
    if len(total) <= 1:
        yield next(iter(total), "cpu"), lives
        return
    for device in sorted(total, key=lambda d: (-total[d], d)):
        yield device, {n: x for n, x in lives.items() if x.device == device}
