"""Short names for kernels from what they do: `mm_relu_0`, `sum_exp_2`.

Calls come first, then reductions, then the arithmetic that costs most; at most three words, each
once, and a number that makes the name the only one. A name depends on the kernel and on those with
the same words before it, on nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from treadle.core.unused import unused_name
from treadle.ir.program import (
    Call,
    Foreach,
    Group,
    Loop,
    MixOrder,
    Operation,
    Program,
    walk_operations,
)

MOST_WORDS = 3
LONGEST = 20
PLAIN = frozenset({"load", "store", "constant", "cast", "index", "get", "yield", "param"})
GENERIC = frozenset({"default", "out", "tensor", "aten", "torch", "ops"})


class JoinedNames:
    """Names of new groups: those of their members, joined, and a number where that is taken.

    `index` with `select_scatter` is not `index_select` with `scatter`.
    """

    def __init__(self, kept: Iterable[Operation]) -> None:
        self._taken = {op.name for op in kept}

    def of(self, members: Iterable[Operation]) -> str:
        """The name of a group, different from all given before."""
        return unused_name("_".join(m.name for m in members), self._taken)


def kernel_names(program: Program) -> dict[str, str]:
    """A new name for every group of the program, by its old one."""
    taken = {leaf.name for leaf in program.leaves}
    counts: dict[str, int] = {}
    found: dict[str, str] = {}
    for op in walk_operations(program.ops):
        if isinstance(op, Group):
            stem = "_".join(words_of(op))
            found[op.name] = _next(stem, counts, taken)
    return found


def _next(stem: str, counts: dict[str, int], taken: set[str]) -> str:
    while True:
        number = counts.get(stem, 0)
        counts[stem] = number + 1
        name = f"{stem}_{number}"
        if name not in taken:
            taken.add(name)
            return name


def words_of(op: Group) -> list[str]:
    """The words that say what a group does, most telling first."""
    weights: dict[str, float] = {}
    for word, weight in _told(op):
        weights[word] = max(weight, weights.get(word, 0.0))
    order = {word: k for k, word in enumerate(weights)}
    words = sorted(weights, key=lambda w: (-weights[w], order[w]))[:MOST_WORDS]
    kind = {MixOrder: ["mix"], Foreach: ["each"]}.get(type(op), [])
    return [*kind, *words] or ["copy"]


def _told(op: Operation) -> Iterator[tuple[str, float]]:
    for leaf in op.leaves:
        if isinstance(leaf, Call):
            yield _base(leaf.target), 1e9
        elif isinstance(leaf, Loop):
            for at in leaf.body.walk():
                if at.stmt.op == "reduce":
                    yield str(at.stmt.attr("kind")), 1e6
                elif at.stmt.op not in PLAIN:
                    yield at.stmt.op, at.stmt.definition.work


def _base(target: str) -> str:
    """`mm` of `aten.mm.default`, `my_kernel` of `my_kernel[grid]`."""
    parts = [p for p in re.split(r"[^A-Za-z0-9_]+", target) if p]
    telling = [p for p in parts if p.lower() not in GENERIC]
    return (telling or ["call"])[-1].strip("_").lower()[:LONGEST] or "call"
