"""Random programs that communicate, in two groups of the same ranks, every form of every kind.

The same seed is the same program on every rank, as it must be. Values are 8 rows of 6 numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

OPERATORS: Any = torch.ops._c10d_functional
ROWS, COLUMNS = 8, 6
MOST_PENDING = 3


def reduced(u: Any, v: Any, world: int, group: str) -> list[Any]:
    return [OPERATORS.all_reduce(u * 0.5, "sum", group)]


def largest(u: Any, v: Any, world: int, group: str) -> list[Any]:
    return [OPERATORS.all_reduce(u, "max", group)]


def gathered(u: Any, v: Any, world: int, group: str) -> list[Any]:
    return [OPERATORS.all_gather_into_tensor(u[: ROWS // world].contiguous(), world, group)]


def scattered(u: Any, v: Any, world: int, group: str) -> list[Any]:
    return [
        OPERATORS.reduce_scatter_tensor(torch.cat([u, *[v] * (world - 1)]), "sum", world, group)
    ]


def exchanged(u: Any, v: Any, world: int, group: str) -> list[Any]:
    parts = [ROWS // world] * world
    return [OPERATORS.all_to_all_single(u.contiguous(), parts, parts, group)]


def sent_to_all(u: Any, v: Any, world: int, group: str) -> list[Any]:
    return [OPERATORS.broadcast(u, world - 1, group)]


def reduced_together(u: Any, v: Any, world: int, group: str) -> list[Any]:
    return list(OPERATORS.all_reduce_coalesced([u * 0.3, v + 1], "sum", group))


def gathered_together(u: Any, v: Any, world: int, group: str) -> list[Any]:
    part = ROWS // world
    given = [u[:part].contiguous(), v[ROWS - part :].contiguous()]
    return list(OPERATORS.all_gather_into_tensor_coalesced(given, world, group))


def told_where(u: Any, v: Any, world: int, group: str) -> list[Any]:
    made, part = u.new_empty(ROWS, COLUMNS), u[: ROWS // world].contiguous()
    OPERATORS.all_gather_into_tensor_out(part, world, group, out=made)
    return [made]


def waited_for_before(u: Any, v: Any, world: int, group: str) -> list[Any]:
    made = OPERATORS.all_reduce(u * 0.1, "sum", group)
    OPERATORS.wait_tensor(made)
    return [made]


SENDS = (reduced, largest, gathered, scattered, exchanged, sent_to_all, reduced_together,
         gathered_together, told_where, waited_for_before)  # fmt: skip


def multiplied(u: Any, v: Any) -> Any:
    return torch.tanh(u @ v.t() @ v * 0.1)


def added(u: Any, v: Any) -> Any:
    return torch.sin(u) + v


def turned(u: Any, v: Any) -> Any:
    return u.t().reshape(ROWS, COLUMNS)


def changed_in_place(u: Any, v: Any) -> Any:
    made = u + 0
    made.mul_(0.7)
    return made


def summed_in_place(u: Any, v: Any) -> Any:
    made = u * 0.4
    dist.all_reduce(made)
    return made


COMPUTES = (multiplied, added, turned, changed_in_place, summed_in_place)


def random_program(seed: int, world: int, groups: list[str]) -> Callable[[Any, Any], Any]:
    """A function of two values; it changes the first, and waits now or later for what it sends."""
    drawn = random.Random(seed)
    steps: list[tuple[Any, float, float, str, bool]] = []
    for _ in range(drawn.randint(5, 12)):
        what = drawn.choice(SENDS if drawn.random() < 0.6 else COMPUTES)
        steps.append(
            (what, drawn.random(), drawn.random(), drawn.choice(groups), drawn.random() < 0.5)
        )

    def program(x: Any, y: Any) -> Any:
        values, pending = [x, y], []
        for what, a, b, group, is_late in steps:
            u, v = values[int(a * len(values))], values[int(b * len(values))]
            if what in COMPUTES:
                values.append(what(u, v))
                continue
            pending += what(u, v, world, group)
            while pending and (not is_late or len(pending) > MOST_PENDING):
                values.append(OPERATORS.wait_tensor(pending.pop(0)))
        values += [OPERATORS.wait_tensor(one) for one in pending]
        x.add_(0.25)
        return [value * 1 for value in values]

    return program
