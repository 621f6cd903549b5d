"""The planner: every method behind one call, the cheap ones first, the best plan always at hand.

    solution = solve(problem, seconds=2.0, ctx=ctx)
    solution.plan          the best plan found, validated
    solution.gap           how far above the lower bound it is, 0.0 when it is proven lowest

Parts of time that no block connects are planned one by one. Within a part: a few greedy orders,
then all of them, then local improvement, then exact search; whoever meets the lower bound ends
it. With `steps` and without `seconds` the answer depends on the problem and the seed alone; time
only ever cuts off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import NamedTuple

from treadle.core.context import Ctx
from treadle.core.errors import UsageError
from treadle.core.options import Options
from treadle.core.verdict import YES, Verdict, no
from treadle.memory import greedy, improve, search
from treadle.memory.engine import Engine, LazyEngine
from treadle.memory.line import Item, Line, granule, line_of, plan_of, top_of
from treadle.memory.lower_bound import bound_of
from treadle.memory.problem import Plan, Problem
from treadle.memory.search_python import IMPOSSIBLE
from treadle.memory.validate import validated

DEFAULT_SECONDS = 10.0
QUICK_NODES = 20_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How much each method may do: orders, improvement steps, nodes of exact search."""

    orders: tuple[str, ...]
    improvements: int
    nodes: int


EFFORTS = {
    "fast": Effort(greedy.XLA_RULES, 0, 0),
    "balanced": Effort(tuple(greedy.ORDERS), 200, 200_000),
    "exact": Effort(tuple(greedy.ORDERS), 1000, 1 << 60),
}


class Tried(NamedTuple):
    """One method that was tried, the height it reached and its seconds."""

    method: str
    height: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Solution:
    """The best plan found and how good it is.

    `plan` is None only if nothing could be placed at all. `verdict` refuses with MEM030 if there
    is no plan within the problem's capacity, and its facts say whether that is proven.
    """

    plan: Plan | None
    height: int
    lower_bound: int
    method: str
    seconds: float
    tried: tuple[Tried, ...]
    verdict: Verdict

    @property
    def gap(self) -> float:
        """The height above the lower bound, as a part of the bound."""
        return (self.height - self.lower_bound) / max(1, self.lower_bound)

    @property
    def is_optimal(self) -> bool:
        """Whether no plan can be lower."""
        return self.plan is not None and self.height == self.lower_bound


def solve(
    problem: Problem,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    effort: str = "balanced",
    ctx: Ctx | None = None,
) -> Solution:
    """Plan the problem: the lowest arena that the effort, time and steps allow to find.

    steps: nodes of exact search, over all parts. seconds: wall time after which the best so far
    is given; where neither is said, DEFAULT_SECONDS. With a capacity, exact search ends at the
    first plan within it.
    """
    if effort not in EFFORTS:
        raise UsageError(f"unknown effort {effort!r}", notes=[f"known: {', '.join(EFFORTS)}"])
    began = monotonic()
    if seconds is None and steps is None:
        seconds = DEFAULT_SECONDS
    nodes = EFFORTS[effort].nodes if steps is None else steps
    deadline = None if seconds is None else began + seconds
    options = ctx.options if ctx else Options.from_env()
    budget = search.SearchBudget(nodes, deadline)
    line = line_of(problem)
    parts = [_Part(part, numbers) for part, numbers in split(line)]
    _greedy(line, parts, EFFORTS[effort], LazyEngine(line, options), budget)
    aim = problem.capacity if effort != "exact" else None
    _each_part(parts, EFFORTS[effort], budget, _Aim(problem.capacity, aim or 0, seed, options))
    return _assemble(problem, line, parts, began)


def split(line: Line) -> Iterator[tuple[Line, list[int]]]:
    """Parts of the line that share no moment, each with the numbers of its items."""
    by_start = sorted(range(len(line.items)), key=lambda i: line.items[i].spans[0][0])
    at = 0
    while at < len(by_start):
        first = line.items[by_start[at]].spans[0][0]
        reach = first
        numbers: list[int] = []
        while at < len(by_start):
            item = line.items[by_start[at]]
            if numbers and item.spans[0][0] >= reach:
                break
            numbers.append(by_start[at])
            reach = max(reach, item.spans[-1][1])
            at += 1
        numbers.sort()
        items = tuple(_shifted(line.items[i], first) for i in numbers)
        yield Line(items, line.regions, line.times[first:reach], ()), numbers


def _shifted(item: Item, by: int) -> Item:
    if not by:
        return item
    spans = tuple((start - by, end - by) for start, end in item.spans)
    return Item(
        item.members, item.size, item.alignment, spans, item.regions, item.fixed, item.duration
    )


@dataclass(slots=True)
class _Part:
    """One part of the problem on its way: the bound and the best addresses so far."""

    line: Line
    numbers: list[int]
    bound: int = 0
    offsets: list[int] | None = None
    height: int = 0
    method: str = "none"
    tried: list[Tried] = field(default_factory=list)

    def __post_init__(self) -> None:
        step = granule(self.line)
        bound = bound_of(self.line).height
        self.bound = bound + -bound % step

    def offer(self, method: str, offsets: list[int], seconds: float) -> None:
        """Keep addresses if they are lower than what is there."""
        height = top_of(self.line, offsets)
        self.tried.append(Tried(method, height, round(seconds, 4)))
        if self.offsets is None or height < self.height:
            self.offsets, self.height, self.method = offsets, height, method


@dataclass(frozen=True, slots=True)
class _Aim:
    """What is asked of each part: fit the capacity; anything at most `enough` high will do."""

    capacity: int | None
    enough: int
    seed: int
    options: Options


def _enough(parts: list[_Part], aim: int) -> int:
    """No part needs to be lower than the highest bound of all, nor than the aim."""
    return max(aim, *(part.bound for part in parts), 0)


def _greedy(
    line: Line, parts: list[_Part], effort: Effort, engine: Engine, budget: search.SearchBudget
) -> None:
    """Every order over the whole line; each part keeps its own best."""
    began = monotonic()
    enough = _enough(parts, 0)
    for attempt in greedy.attempts(line, engine, effort.orders, deadline=budget.deadline):
        now = monotonic()
        for part in parts:
            part.offer(attempt.method, [attempt.offsets[i] for i in part.numbers], now - began)
        began = now
        if all(part.height <= enough for part in parts):
            return


def _each_part(parts: list[_Part], effort: Effort, budget: search.SearchBudget, aim: _Aim) -> None:
    """Improvement and search for the parts that stand out, the highest first."""
    for part in sorted(parts, key=lambda part: -part.height):
        enough = _enough(parts, aim.enough)
        if part.offsets is not None and (part.height <= enough or budget.is_late):
            continue
        engine = LazyEngine(part.line, aim.options)
        if effort.nodes and _quick_search(part, engine, enough, budget, aim):
            continue
        if part.offsets is not None and effort.improvements:
            began = monotonic()
            offsets = improve.improved(
                part.line, engine, part.offsets, enough, effort.improvements, budget, aim.seed
            )
            part.offer("improve", offsets, monotonic() - began)
        if effort.nodes:
            _search(part, engine, enough, budget, aim)


def _quick_search(
    part: _Part, engine: Engine, enough: int, budget: search.SearchBudget, aim: _Aim
) -> bool:
    """Whether a short search meets what is enough: the common case, and quicker than improving."""
    began = monotonic()
    short = search.SearchBudget(min(QUICK_NODES, budget.nodes), budget.deadline)
    given = short.nodes
    answer = search.find(part.line, engine, enough, short, aim.seed)
    budget.nodes -= given - short.nodes
    if answer.offsets is not None:
        part.offer("search", answer.offsets, monotonic() - began)
    elif answer.status == IMPOSSIBLE:
        part.bound = max(part.bound, enough + granule(part.line))
    return answer.offsets is not None


def _search(
    part: _Part, engine: Engine, enough: int, budget: search.SearchBudget, aim: _Aim
) -> None:
    """Exact search: first for any plan within the capacity, then for lower ones."""
    began = monotonic()
    if aim.capacity is not None and (part.offsets is None or part.height > aim.capacity):
        answer = search.find(part.line, engine, aim.capacity, budget, aim.seed)
        if answer.offsets is not None:
            part.offer("search", answer.offsets, monotonic() - began)
        elif answer.status == IMPOSSIBLE:
            part.bound = max(part.bound, aim.capacity + 1)
        if answer.offsets is None:
            return
    if part.offsets is None:
        answer = search.find(part.line, engine, _stacked(part.line), budget, aim.seed)
        if answer.offsets is None:
            return
        part.offer("search", answer.offsets, monotonic() - began)
    bound = max(part.bound, enough)
    for low, offsets in search.lower(
        part.line, engine, bound, part.offsets or [], budget, aim.seed
    ):
        if offsets is None:
            part.bound = max(part.bound, low)
        else:
            part.offer("search", offsets, monotonic() - began)
        began = monotonic()


def _stacked(line: Line) -> int:
    """A height that is enough for anything that can be placed at all."""
    fixed = [i.fixed + i.size - line.arena.base for i in line.items if i.fixed is not None]
    return max(fixed, default=0) + sum(item.size + item.alignment for item in line.items)


def _assemble(problem: Problem, line: Line, parts: list[_Part], began: float) -> Solution:
    bound = _enough(parts, 0)
    tried = _merged(parts)
    seconds = round(monotonic() - began, 4)
    if any(part.offsets is None for part in parts):
        is_proven = problem.capacity is not None and bound > problem.capacity
        verdict = no("MEM030", lower_bound=bound, capacity=problem.capacity, is_proven=is_proven)
        return Solution(None, 0, bound, "none", seconds, tried, verdict)
    offsets = [0] * len(line.items)
    for part in parts:
        for number, offset in zip(part.numbers, part.offsets or [], strict=True):
            offsets[number] = offset
    plan = plan_of(line, offsets)
    highest = max(parts, key=lambda part: part.height, default=None)
    verdict = YES
    if problem.capacity is not None and plan.height > problem.capacity:
        verdict = no(
            "MEM030",
            height=plan.height,
            capacity=problem.capacity,
            lower_bound=bound,
            is_proven=bound > problem.capacity,
        )
    validated(replace(problem, capacity=None), plan)
    method = highest.method if highest else "none"
    return Solution(plan, plan.height, bound, method, seconds, tried, verdict)


def _merged(parts: list[_Part]) -> tuple[Tried, ...]:
    """What was tried, over all parts: the highest of their best heights, the longest time."""
    rows: dict[str, Tried] = {}
    for part in parts:
        own: dict[str, Tried] = {}
        for one in part.tried:  # a search reports each plan on its way: the last is the lowest
            own[one.method] = one
        for one in own.values():
            old = rows.get(one.method, one)
            rows[one.method] = Tried(
                one.method, max(old.height, one.height), max(old.seconds, one.seconds)
            )
    return tuple(rows.values())
