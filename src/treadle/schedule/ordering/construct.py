"""Orders built from nothing but the graph and the sizes: each is good for some programs.

greedy     of the steps that may run, the one that adds least (frees most), nearest first
deep       depth first from the results: one result at a time, larger operands first
backwards  greedy on the reversed graph: late makers, read from the end
levels     by the longest way from the start: what is a front in a grid of steps
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from treadle.schedule.ordering.steps import Steps


def greedy(steps: Steps) -> list[int]:
    """List scheduling by the change in bytes, then by the order given."""
    made = [0] * len(steps)
    uses: list[list[int]] = [[] for _ in range(len(steps))]
    left = []
    for k, h in enumerate(steps.held):
        if h.producer is not None:
            made[h.producer] += h.bytes
        left.append(len(set(h.users)))
        for u in dict.fromkeys(h.users):
            uses[u].append(k)

    def change(s: int) -> int:
        freed = sum(steps.held[k].bytes for k in uses[s] if left[k] == 1 and steps.held[k].ends)
        return made[s] - freed

    waiting = [len(b) for b in steps.before]
    ready = [(change(s), s) for s in range(len(steps)) if not waiting[s]]
    ready.sort()
    order: list[int] = []
    done = [False] * len(steps)
    while ready:
        gain, s = heappop(ready)
        if done[s]:
            continue
        now = change(s)
        if now != gain:
            heappush(ready, (now, s))
            continue
        done[s] = True
        order.append(s)
        for k in uses[s]:
            left[k] -= 1
            if left[k] == 1:
                # Whoever is the last user now frees it: its price has changed.
                for u in steps.held[k].users:
                    if not done[u] and not waiting[u]:
                        heappush(ready, (change(u), u))
        for n in steps.after[s]:
            waiting[n] -= 1
            if not waiting[n]:
                heappush(ready, (change(n), n))
    return order


def deep(steps: Steps) -> list[int]:
    """Depth first: everything a step needs right before it, the largest results first."""
    size = [0] * len(steps)
    for h in steps.held:
        if h.producer is not None:
            size[h.producer] += h.bytes
    order: list[int] = []
    seen = [False] * len(steps)
    for root in range(len(steps)):
        if steps.after[root] or seen[root]:
            continue
        stack = [(root, False)]
        while stack:
            s, expanded = stack.pop()
            if expanded:
                order.append(s)
                continue
            if seen[s]:
                continue
            seen[s] = True
            stack.append((s, True))
            needed = sorted(steps.before[s], key=lambda p: (size[p], -p))
            stack.extend((p, False) for p in needed if not seen[p])
    return order


def backwards(steps: Steps) -> list[int]:
    """Greedy from the end: of the steps whose users are all placed, the one that saves most."""
    makes: list[list[int]] = [[] for _ in range(len(steps))]
    uses: list[list[int]] = [[] for _ in range(len(steps))]
    for k, h in enumerate(steps.held):
        if h.producer is not None:
            makes[h.producer].append(k)
        for u in dict.fromkeys(h.users):
            uses[u].append(k)
    alive = [not h.ends for h in steps.held]

    def change(s: int) -> int:
        """Bytes alive before the step minus bytes alive after it, seen from the end."""
        gone = sum(steps.held[k].bytes for k in makes[s] if alive[k])
        new = sum(
            steps.held[k].bytes for k in uses[s] if not alive[k] and steps.held[k].producer != s
        )
        return new - gone

    waiting = [len(a) for a in steps.after]
    ready = [(change(s), -s) for s in range(len(steps)) if not waiting[s]]
    ready.sort()
    order: list[int] = []
    done = [False] * len(steps)
    while ready:
        gain, negative = heappop(ready)
        s = -negative
        if done[s]:
            continue
        now = change(s)
        if now != gain:
            heappush(ready, (now, negative))
            continue
        done[s] = True
        order.append(s)
        for k in makes[s]:
            alive[k] = False
        for k in uses[s]:
            if steps.held[k].producer != s:
                alive[k] = True
        for p in steps.before[s]:
            waiting[p] -= 1
            if not waiting[p]:
                heappush(ready, (change(p), -p))
    return order[::-1]


def levels(steps: Steps) -> list[int]:
    """Steps that are equally far from the start together, those given first in front."""
    depth = [0] * len(steps)
    for s in range(len(steps)):  # the given order is valid
        depth[s] = max([depth[p] + 1 for p in steps.before[s]], default=0)
    return sorted(range(len(steps)), key=lambda s: (depth[s], s))


CONSTRUCTIONS: dict[str, Callable[[Steps], list[int]]] = {
    "greedy": greedy,
    "deep": deep,
    "backwards": backwards,
    "levels": levels,
}
