"""Local improvement: change the order in which items are placed, keep what is not higher.

A plan is turned into the order of its addresses; placing by first fit in that order gives a plan
that is at least as low. Then either an item at the very top goes earlier, or everything that
lives at a moment of the top is taken out and put in first, in a shuffled order (ruin and
recreate at the peak).
"""

from __future__ import annotations

from random import Random

from treadle.memory.engine import Engine
from treadle.memory.line import Line, top_of
from treadle.memory.search import SearchBudget

MOST_WORK = 2_000_000
"""Items placed, over all steps: a large problem gets fewer steps."""
RUIN_CHANCE = 0.25


def improved(
    line: Line,
    engine: Engine,
    offsets: list[int],
    enough: int,
    steps: int,
    budget: SearchBudget,
    seed: int = 0,
) -> list[int]:
    """Addresses that are at most as high, after so many steps or when `enough` is reached."""
    random = Random(seed)
    order = sorted(range(len(offsets)), key=lambda i: (line.items[i].fixed is None, offsets[i], i))
    best, height = offsets, top_of(line, offsets)
    current, current_height = offsets, height
    for _ in range(min(steps, MOST_WORK // max(1, len(order)))):
        if height <= enough or budget.is_late:
            break
        trial = _changed(line, order, current, random)
        found = engine.fit(trial, best=random.random() < 0.5, seconds=budget.seconds)
        if found is None or (top := top_of(line, found)) > current_height:
            continue
        order, current, current_height = trial, found, top
        if top < height:
            best, height = found, top
    return best


def _changed(line: Line, order: list[int], offsets: list[int], random: Random) -> list[int]:
    """Another order to try; fixed items stay in front."""
    items = line.items
    top = max(offsets[i] + items[i].size for i in order)
    peak = random.choice([i for i in order if offsets[i] + items[i].size == top])
    loose = [i for i in order if items[i].fixed is None]
    fixed = order[: len(order) - len(loose)]
    if items[peak].fixed is not None or not loose:
        return order
    if random.random() < RUIN_CHANCE:
        moment = random.choice([t for a, b in items[peak].spans for t in (a, b - 1)])
        first = [i for i in loose if any(a <= moment < b for a, b in items[i].spans)]
        first.sort(key=lambda i: -items[i].size * (0.5 + random.random()))
        chosen = set(first)
        return [*fixed, *first, *[i for i in loose if i not in chosen]]
    at = loose.index(peak)
    loose.insert(random.randrange(at + 1), loose.pop(at))
    if len(loose) > 1:  # and one swap nearby, so that repeated tries differ
        k = random.randrange(len(loose) - 1)
        loose[k], loose[k + 1] = loose[k + 1], loose[k]
    return [*fixed, *loose]
