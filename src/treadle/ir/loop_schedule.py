"""How the loops of a nest are walked: a list of steps, and the loops that come of them.

    split i0 by 16            i0 now counts blocks of 16, i0' walks within a block
    order i0, r0, i0', r0'    the loops from the outermost in
    bind i0 to threads        who carries a loop out: serial, threads, vector, unroll, grid, tile
    stage %3                  a load is copied into a tile first, and read from there; what is
                              stored goes into a tile, and from there to memory
    keep %7                   a value stays in a row between passes instead of being made again
    flush r0                  at each step of r0, partial sums in f32 flow into wide ones
    tune warps 4              a number for the renderer: warps, pipeline

Steps are data: they are printed with their nest, saved, replayed, compared and searched. Without
any, loops are walked as they stand, one element after the other. What the steps of one nest come
to is a `LoopPlan`; renderers read that and decide nothing.

Loops up to the first one that reduces or walks within a block are `outer`: all passes share them.
The others are `inner`: every pass opens them anew, and a value that lives longer than a pass has
one place for each point of the inner loops that do not reduce (`lanes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from treadle.index import Symbol
from treadle.ir.body import Body


class Binding(Enum):
    """Who carries a loop out."""

    SERIAL = "serial"
    THREADS = "threads"
    VECTOR = "vector"
    UNROLL = "unroll"
    GRID = "grid"
    TILE = "tile"


class AxisKind(Enum):
    """Whether points of a loop stand for themselves, are combined, or follow each other."""

    PARALLEL = "parallel"
    REDUCE = "reduce"
    SEQUENTIAL = "sequential"


class AxisPart(Enum):
    """A loop of the body as a whole, or one of the two it was split into."""

    WHOLE = "whole"
    BLOCKS = "blocks"
    WITHIN = "within"


@dataclass(frozen=True, slots=True)
class Split:
    """Walk a loop in blocks of `size`."""

    axis: str
    size: int

    def __str__(self) -> str:
        return f"split {self.axis} by {self.size}"


@dataclass(frozen=True, slots=True)
class Order:
    """The loops from the outermost in."""

    axes: tuple[str, ...]

    def __str__(self) -> str:
        return f"order {' '.join(self.axes)}"


@dataclass(frozen=True, slots=True)
class Bind:
    """Let threads, vectors, ... carry a loop out."""

    axis: str
    to: Binding

    def __str__(self) -> str:
        return f"bind {self.axis} to {self.to.value}"


@dataclass(frozen=True, slots=True)
class StageLoad:
    """Copy what a load reads into a tile before it is used, or what is stored before it is."""

    value: int

    def __str__(self) -> str:
        return f"stage %{self.value}"


@dataclass(frozen=True, slots=True)
class Keep:
    """Keep a value in a row between passes."""

    value: int

    def __str__(self) -> str:
        return f"keep %{self.value}"


@dataclass(frozen=True, slots=True)
class Flush:
    """Let partial sums flow into wide ones at each step of a loop."""

    axis: str

    def __str__(self) -> str:
        return f"flush {self.axis}"


@dataclass(frozen=True, slots=True)
class Tune:
    """Tell the renderer a number: how many warps, how deep a pipeline."""

    knob: str
    value: int

    def __str__(self) -> str:
        return f"tune {self.knob} {self.value}"


KNOBS = ("warps", "pipeline", "picoseconds")
"""What can be tuned; picoseconds: what a point takes one thread, by which parts are cut."""

Step: TypeAlias = Split | Order | Bind | StageLoad | Keep | Flush | Tune


@dataclass(frozen=True, slots=True)
class Axis:
    """One loop to be walked: which loop of the body, which part of it, by whom."""

    loop: Symbol
    kind: AxisKind
    part: AxisPart = AxisPart.WHOLE
    size: int = 0
    """The elements of a block; 0 for a whole loop."""
    binding: Binding = Binding.SERIAL

    @property
    def name(self) -> str:
        """As steps call it: a prime marks the walk within a block."""
        return self.loop.name + ("'" if self.part is AxisPart.WITHIN else "")

    @property
    def reduces(self) -> bool:
        """Whether its points are not kept apart."""
        return self.kind is not AxisKind.PARALLEL


class UnfitStepError(ValueError):
    """A step that does not fit its nest."""


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """The loops of a nest as they are walked, and what is kept on the way."""

    axes: tuple[Axis, ...]
    kept: frozenset[int] = frozenset()
    staged: frozenset[int] = frozenset()
    flush: str | None = None
    tuned: tuple[tuple[str, int], ...] = ()

    @property
    def tiles(self) -> tuple[Axis, ...]:
        """The loops whose points are worked on together."""
        return tuple([a for a in self.axes if a.binding is Binding.TILE])

    def knob(self, name: str, default: int) -> int:
        """The number a step gave to a knob."""
        return dict(self.tuned).get(name, default)

    @property
    def first_inner(self) -> int:
        """The number of outer loops.

        Rows that vectors walk whole are nobody's lanes: a block of them is one row after the other.
        """
        last = self.vector
        is_row = last is not None and last.reduces and last.part is AxisPart.WHOLE
        lanes = () if is_row else [a for a in self.axes if a.part is AxisPart.WITHIN]
        inner = (k for k, a in enumerate(self.axes) if a.reduces or a in lanes)
        return next(inner, len(self.axes))

    @property
    def outer(self) -> tuple[Axis, ...]:
        """Loops that all passes share."""
        return self.axes[: self.first_inner]

    @property
    def inner(self) -> tuple[Axis, ...]:
        """Loops that every pass opens anew."""
        return self.axes[self.first_inner :]

    @property
    def lanes(self) -> tuple[Axis, ...]:
        """Inner loops that do not reduce."""
        return tuple([a for a in self.inner if not a.reduces])

    @property
    def threads(self) -> Axis | None:
        """The loop that is cut into parts, each for a thread."""
        return next((a for a in self.axes if a.binding is Binding.THREADS), None)

    @property
    def vector(self) -> Axis | None:
        """The loop that vectors carry out."""
        return next((a for a in self.axes if a.binding is Binding.VECTOR), None)

    def axis(self, name: str) -> Axis:
        """The loop of this name."""
        for a in self.axes:
            if a.name == name:
                return a
        known = ", ".join(a.name for a in self.axes)
        raise UnfitStepError(f"there is no loop {name}: there are {known}")


def plan_loops(body: Body, steps: Sequence[Step]) -> LoopPlan:
    """What the steps make of the loops of a body; UnfitStepError says which does not fit."""
    plan = LoopPlan(_whole_axes(body))
    for step in steps:
        plan = _take(plan, step, body)
    _check_order(plan)
    return plan


def _whole_axes(body: Body) -> tuple[Axis, ...]:
    follows = any(at.stmt.op in ("scan", "sort") for at in body.walk())
    inner = AxisKind.SEQUENTIAL if follows else AxisKind.REDUCE
    return (
        *[Axis(v, AxisKind.PARALLEL) for v in body.domain.vars],
        *[Axis(v, inner) for v in body.reduce.vars],
    )


def _take(plan: LoopPlan, step: Step, body: Body) -> LoopPlan:
    if isinstance(step, Split):
        return _split(plan, step)
    if isinstance(step, Order):
        if sorted(step.axes) != sorted(a.name for a in plan.axes):
            known = ", ".join(a.name for a in plan.axes)
            raise UnfitStepError(f"{step}: an order names each of {known} once")
        return replace(plan, axes=tuple([plan.axis(n) for n in step.axes]))
    if isinstance(step, Bind):
        found = plan.axis(step.axis)
        bound = replace(found, binding=step.to)
        return replace(plan, axes=tuple([bound if a is found else a for a in plan.axes]))
    if isinstance(step, Flush):
        if not plan.axis(step.axis).reduces:
            raise UnfitStepError(f"{step}: the loop does not reduce")
        return replace(plan, flush=step.axis)
    if isinstance(step, Tune):
        return replace(plan, tuned=(*plan.tuned, (step.knob, step.value)))
    made = {at.number: at for at in body.walk() if at.number is not None}
    at = made.get(step.value)
    if at is None or at.depth:
        raise UnfitStepError(f"{step}: there is no such value outside of regions")
    if isinstance(step, StageLoad):
        is_stored = any(s.op == "store" and s.args == (step.value,) for s in body.stmts)
        if at.stmt.op != "load" and not is_stored:
            raise UnfitStepError(f"{step}: it is no load, and nothing stores it")
        return replace(plan, staged=plan.staged | {step.value})
    return replace(plan, kept=plan.kept | {step.value})


def _split(plan: LoopPlan, step: Split) -> LoopPlan:
    found = plan.axis(step.axis)
    if found.part is not AxisPart.WHOLE:
        raise UnfitStepError(f"{step}: it is split already")
    if step.size < 2:
        raise UnfitStepError(f"{step}: a block has at least 2 elements")
    parts = [replace(found, part=p, size=step.size) for p in (AxisPart.BLOCKS, AxisPart.WITHIN)]
    at = plan.axes.index(found)
    return replace(plan, axes=(*plan.axes[:at], *parts, *plan.axes[at + 1 :]))


def _check_order(plan: LoopPlan) -> None:
    """Blocks before what is within them, vectors innermost, lanes of known size."""
    seen: set[Symbol] = set()
    for a in plan.axes:
        if a.part is AxisPart.WITHIN and a.loop not in seen:
            raise UnfitStepError(f"{a.name} is walked outside of its blocks")
        seen.add(a.loop)
    for a in plan.lanes:
        if a.part is not AxisPart.WITHIN:
            raise UnfitStepError(f"{a.name} is walked inside a reduction, but not in blocks")
    if plan.vector is not None and plan.vector is not plan.axes[-1]:
        raise UnfitStepError(f"{plan.vector.name} is bound to vectors, but is not innermost")
    if plan.threads is not None and (plan.threads is not plan.axes[0] or plan.threads.reduces):
        raise UnfitStepError(f"{plan.threads.name} is bound to threads, but is not outermost")
    if plan.flush is not None:
        plan.axis(plan.flush)
