"""Groups of ranks: who takes part in a collective, and how that is written.

RankGroup("tp", (0, 1, 2, 3))       ranks 0..3
RankGroup("dp", (0, 8, 16, 24))     ranks 0..24 by 8
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise


@dataclass(frozen=True)
class RankGroup:
    """The ranks that run a collective together, numbered as in the whole job."""

    name: str
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.ranks:
            raise ValueError(f"group {self.name!r} has no ranks")
        if len(set(self.ranks)) != len(self.ranks) or min(self.ranks) < 0:
            raise ValueError(f"group {self.name!r} names a rank twice or below 0: {self.ranks}")

    @cached_property
    def _nodes(self) -> dict[int, int]:
        return {}  # groups are large and asked again for each collective

    @property
    def size(self) -> int:
        """How many ranks take part."""
        return len(self.ranks)

    @property
    def step(self) -> int | None:
        """The distance between neighbours if it is always the same; None otherwise."""
        return step_of(self.ranks)

    def nodes(self, ranks_per_node: int) -> int:
        """How many machines the group spans if each holds so many neighbouring ranks."""
        known = self._nodes.get(ranks_per_node)
        if known is None:
            known = self._nodes[ranks_per_node] = len({r // ranks_per_node for r in self.ranks})
        return known

    def at_world(self, known: int, world: int) -> RankGroup:
        """The same group in a job of `world` ranks, captured in one of `known`.

        A group that reaches over the whole job grows with it; one that fills a part of it (tensor
        parallel ranks side by side) stays as it is.
        """
        step = self.step if self.size > 1 else None
        if step is None or step * self.size != known or world % step:
            return self
        return RankGroup(self.name, tuple(range(self.ranks[0] % step, world, step)))


def step_of(ranks: tuple[int, ...]) -> int | None:
    """The distance between neighbours if it is positive and always the same; None otherwise."""
    if len(ranks) == 1:
        return 1
    steps = {b - a for a, b in pairwise(ranks)}
    return steps.pop() if len(steps) == 1 and min(steps) > 0 else None


def show_ranks(ranks: tuple[int, ...]) -> str:
    """Ranks as text: `0..7`, `0..24 by 8`, or a list in parentheses."""
    step = step_of(ranks)
    if len(ranks) < 3 or step is None:
        return f"({', '.join(map(str, ranks))})"
    return f"{ranks[0]}..{ranks[-1]}" + (f" by {step}" if step > 1 else "")
